// SPDX-License-Identifier: Apache-2.0
// The math fingerprints of tests/fingerprints.txt are those of this version: each line is planned
// with the plain C kernels, alone and as one of two ranks, and nothing is trained. Every kind of op
// is in some of the plans.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "graph/graph.h"
#include "plan/ir.h"
#include "support/test.h"

enum { T = 8, N_COLUMNS = 5 };
enum column { NAME, PROGRAM, MODEL, CONFIG, FINGERPRINT };

static bool met[SW_N_OP_KINDS];
static char model_path[64];

/* ---- a model of what the families leave out ---- */

static sw_status infer(const struct sw_user_op *op, const struct sw_view *in, struct sw_view *out)
{
    (void)op;
    out[0] = in[0];
    return SW_OK;
}

static void gradient(sw_graph *g, const struct sw_user_op *op, const sw_value *in,
                     const sw_value *out, const sw_value *d_out, sw_value *d_in)
{
    (void)in;
    (void)out;
    d_in[0] = sw_scale(g, d_out[0], op->param[0]);
}

static void kernel(const struct sw_user_op *op, const struct sw_view *in, const struct sw_view *out)
{
    (void)op;
    memcpy(out[0].data, in[0].data,
           (size_t)sw_shape_elems(&in[0].shape) * sw_dtype_bytes(in[0].dtype));
}

static const struct sw_user_op same = {"same", 1, 1, {1, 2}, infer, gradient, kernel};

static sw_value own_forward(sw_graph *g, void *ctx, int64_t batch)
{
    enum { C = 16 };
    const struct sw_init init = {SW_INIT_NORMAL, 0.02};
    const struct sw_attention_spec attention = {.heads = 2,
                                                .scale = 0.5,
                                                .window = 3,
                                                .mask = -1,
                                                .position = -1,
                                                .slopes = -1,
                                                .segments = -1,
                                                .bias = SW_NO_VALUE};
    (void)ctx;
    const sw_value ids = sw_input(g, "input_ids", SW_I32, SW_SHAPE(batch, T));
    const sw_value labels = sw_input(g, "labels", SW_I32, SW_SHAPE(batch));
    sw_value h = sw_embedding(g, sw_param(g, "table", SW_SHAPE(40, C), init), ids, 0), user;
    h = sw_act(g, sw_scale(g, h, 3), SW_ACT_SILU);
    h = sw_add(g, h,
               sw_attention(g, h, sw_slice(g, sw_slice(g, h, 2, 0, C), 2, 0, C), h, &attention));
    h = sw_reshape(g, sw_transpose(g, h, 1, 2), SW_SHAPE(batch, T, C));
    sw_user(g, &same, &h, &user);
    h = sw_linear(g, user, sw_param(g, "w", SW_SHAPE(C, C), init), SW_NO_VALUE, false);
    h = sw_slice(g, sw_dropout(g, h, 0.2), 1, 1, T - 1);
    h = sw_select_rows(g, h, sw_last_index(g, sw_slice(g, ids, 1, 1, T - 1), -1));
    return sw_cross_entropy(
        g, sw_matmul(g, h, false, sw_param(g, "head", SW_SHAPE(C, 5), init), false), labels);
}

/* Operations of other decoder families: rotary positions, RMS norm, gates, a cap. */
static sw_value decoder_forward(sw_graph *g, void *ctx, int64_t batch)
{
    enum { C = 16, HEADS = 2, R = 4 };
    const struct sw_init init = {SW_INIT_NORMAL, 0.02}, one = {SW_INIT_ONE, 0};
    const struct sw_attention_spec attention = {.heads = HEADS,
                                                .scale = 0.5,
                                                .mask = SW_NO_VALUE,
                                                .position = SW_NO_VALUE,
                                                .slopes = SW_NO_VALUE,
                                                .segments = SW_NO_VALUE,
                                                .bias = SW_NO_VALUE};
    float angles[T * R];
    (void)ctx;
    for (int i = 0; i < T * R; i++) {
        angles[i] = (float)(i % 7) / 8; /* no cosines, and the same on every machine */
    }
    const sw_value ids = sw_input(g, "input_ids", SW_I32, SW_SHAPE(batch, T));
    const sw_value mask = sw_input(g, "attention_mask", SW_I32, SW_SHAPE(batch, T));
    const sw_value labels = sw_input(g, "labels", SW_I32, SW_SHAPE(batch, T));
    const sw_value places = sw_add_offset(g, sw_positions(g, mask, 1), -1);
    const sw_value cosines = sw_constant(g, "angles", SW_F32, SW_SHAPE(T, R), angles);
    const sw_value table = sw_param(g, "table", SW_SHAPE(40, C), init);
    const sw_value h = sw_embedding(g, table, ids, -1);
    const sw_value heads = sw_reshape(g, h, SW_SHAPE(batch, T, HEADS, C / HEADS));
    const sw_value turned =
        sw_reshape(g, sw_rotary(g, heads, cosines, places, false), SW_SHAPE(batch, T, C));
    const sw_value sum = sw_add(g, h, sw_attention(g, turned, turned, h, &attention));
    const sw_value x = sw_rms_norm(g, sum, sw_param(g, "norm", SW_SHAPE(C), one), 1e-6, false);
    const sw_value up = sw_linear(g, x, sw_param(g, "up", SW_SHAPE(C, C), init), SW_NO_VALUE, true);
    const sw_value y = sw_mul(g, sw_gated_act(g, x, up, SW_ACT_SILU), up);
    const sw_value w = sw_param(g, "last", SW_SHAPE(C), init);
    return sw_linear_cross_entropy(g, sw_rms_norm(g, y, w, 1e-6, true), table, SW_NO_VALUE, labels,
                                   30);
}

/* Operations of mixtures of experts, and a sink. ctx: not NULL = with the loads of experts */
static sw_value experts_forward(sw_graph *g, void *ctx, int64_t batch)
{
    enum { C = 16, EXPERTS = 3 };
    const struct sw_init init = {SW_INIT_NORMAL, 0.02};
    const struct sw_router_attrs router = {.k = 2, .normalise = true, .scale = 1};
    const struct sw_attention_spec attention = {.heads = 2,
                                                .scale = 0.5,
                                                .mask = SW_NO_VALUE,
                                                .position = SW_NO_VALUE,
                                                .slopes = SW_NO_VALUE,
                                                .segments = SW_NO_VALUE,
                                                .bias = SW_NO_VALUE};
    const int64_t rows = batch * T;
    const sw_value ids = sw_input(g, "input_ids", SW_I32, SW_SHAPE(batch, T));
    const sw_value labels = sw_input(g, "labels", SW_I32, SW_SHAPE(batch, T));
    const sw_value table = sw_param(g, "table", SW_SHAPE(40, C), init);
    const sw_value h = sw_embedding(g, table, ids, -1);
    const sw_value o = sw_attention_sink(g, sw_attention(g, h, h, h, &attention),
                                         sw_param(g, "sinks", SW_SHAPE(2), init));
    const sw_value x = sw_reshape(g, o, SW_SHAPE(rows, C));
    const sw_value gate = sw_param(g, "gate", SW_SHAPE(EXPERTS, C), init);
    const struct sw_routes routes = sw_route(g, sw_linear(g, x, gate, SW_NO_VALUE, false),
                                             SW_NO_VALUE, SW_NO_VALUE, &router, 9, 1);
    const sw_value up = sw_param(g, "up", SW_SHAPE(EXPERTS, C, 2 * C), init);
    const sw_value both =
        sw_expert_linear(g, sw_to_experts(g, x, &routes), &routes, &up, NULL, 1, true);
    sw_value down[EXPERTS];
    for (int i = 0; i < EXPERTS; i++) {
        char name[24];
        snprintf(name, sizeof name, "down.%d", i);
        down[i] = sw_param(g, name, SW_SHAPE(C, C), init);
    }
    const sw_value y =
        sw_expert_linear(g, sw_clamped_gate(g, both, 1.7, 7), &routes, down, NULL, EXPERTS, false);
    const sw_value last = sw_reshape(g, sw_from_experts(g, y, &routes), SW_SHAPE(batch, T, C));
    if (ctx) {
        sw_output(g, "loads", sw_expert_loads(g, &routes));
    }
    return sw_add(g, sw_linear_cross_entropy(g, last, table, SW_NO_VALUE, labels, 0),
                  sw_scale(g, sw_router_loss(g, routes.stats, false), 0.01));
}

/* A loss that compares two rows. */
static sw_value pairs_forward(sw_graph *g, void *ctx, int64_t batch)
{
    enum { C = 16 };
    (void)ctx;
    const sw_value ids = sw_input(g, "input_ids", SW_I32, SW_SHAPE(batch, T));
    const sw_value labels = sw_input(g, "labels", SW_I32, SW_SHAPE(batch, T));
    const sw_value table =
        sw_param(g, "table", SW_SHAPE(40, C), (struct sw_init){SW_INIT_NORMAL, 0.02});
    struct sw_preference_spec spec = {.attrs = {.kind = SW_PREFERENCE_SIGMOID, .beta = 0.1},
                                      .reference = SW_NO_VALUE,
                                      .kinds = SW_NO_VALUE};
    sw_value values, totals;
    spec.x = sw_linear_token_losses(g, sw_embedding(g, table, ids, -1), table, SW_NO_VALUE, labels,
                                    0, &spec.counts);
    return sw_preference_loss(g, &spec, &values, &totals);
}

/* Operations of encoders and encoder-decoders: rows that a mask leaves out, ids of another
 * sequence, scores by distance, a regression loss. */
static sw_value encoder_forward(sw_graph *g, void *ctx, int64_t batch)
{
    enum { C = 16, PAD = 1, HEADS = 2 };
    const struct sw_init init = {SW_INIT_NORMAL, 0.02};
    (void)ctx;
    const sw_value ids = sw_input(g, "input_ids", SW_I32, SW_SHAPE(batch, T));
    const sw_value targets = sw_input(g, "targets", SW_F32, SW_SHAPE(batch));
    const sw_value table = sw_param(g, "table", SW_SHAPE(40, C), init);
    const sw_value lengths = sw_input(g, "lengths", SW_I32, SW_SHAPE(batch));
    const sw_value mask = sw_not_equal(g, sw_trim(g, ids, lengths), -1);
    sw_value both[2] = {sw_embedding(g, table, ids, PAD),
                        sw_embedding(g, table, sw_shift_right(g, ids, 2, PAD), -1)};
    static const int32_t apart[2 * T - 1] = {2, 2, 2, 2, 2, 2, 1, 1, 1, 0, 0, 0, 0, 0, 0};
    const sw_value index = sw_constant(g, "apart", SW_I32, SW_SHAPE(2 * T - 1), apart);
    const sw_value rows = sw_embedding(g, sw_param(g, "near", SW_SHAPE(3, HEADS), init), index, -1);
    const sw_value q = sw_reshape(g, both[0], SW_SHAPE(batch, T, HEADS, C / HEADS));
    const sw_value far = sw_param(g, "far", SW_SHAPE(3, HEADS, C / HEADS), init);
    const struct sw_attention_spec attention = {
        .heads = HEADS,
        .scale = 0.5,
        .mask = mask,
        .position = SW_NO_VALUE,
        .slopes = SW_NO_VALUE,
        .segments = SW_NO_VALUE,
        .bias = sw_add(g, sw_relative_scores(g, q, far, index, true, 0.5),
                       sw_relative_bias(g, rows, SW_NO_VALUE, T, T, T - 1)),
    };
    both[1] = sw_attention(g, both[1], both[0], both[0], &attention);
    const struct sw_window three = {.kernel = {1, 3}, .padding = {0, 1}};
    const struct sw_window two = {.kernel = {2, 1}, .stride = {2, 1}};
    const sw_value seen = sw_im2col(g, sw_transpose(g, both[0], 1, 2), &three);
    const sw_value wide =
        sw_linear(g, seen, sw_param(g, "conv", SW_SHAPE(2 * C, 3 * C), init), SW_NO_VALUE, false);
    both[0] = sw_reshape(g, sw_pool_max(g, sw_reshape(g, wide, SW_SHAPE(batch, T, 2 * C, 1)), &two),
                         SW_SHAPE(batch, T, C));
    const struct sw_lstm_spec lstm = {.w_ih = sw_param(g, "w_ih", SW_SHAPE(4 * C, C), init),
                                      .w_hh = sw_param(g, "w_hh", SW_SHAPE(4 * C, C), init),
                                      .b_ih = sw_param(g, "b_ih", SW_SHAPE(4 * C), init),
                                      .b_hh = sw_param(g, "b_hh", SW_SHAPE(4 * C), init),
                                      .mask = mask,
                                      .reverse = true};
    both[1] = sw_lstm(g, both[1], &lstm);
    const sw_value h = sw_mask_rows(g, sw_concat(g, both, 2, 2), mask);
    const sw_value mean = sw_masked_mean(g, h, mask);
    const sw_value w = sw_param(g, "head", SW_SHAPE(1, 2 * C), init);
    return sw_mean_squared_error(g, sw_linear(g, mean, w, SW_NO_VALUE, false), targets);
}

/* ---- one line ---- */

static uint64_t plan(char *const *columns, int n_ranks)
{
    char model[1024], config[2048];
    const char *optimizer = "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, ";
    const bool decoder = strcmp(columns[MODEL], "decoder") == 0;
    const bool encoder = strcmp(columns[MODEL], "encoder") == 0;
    bool loads = strcmp(columns[MODEL], "loads") == 0;
    const bool experts = loads || strcmp(columns[MODEL], "experts") == 0;
    const bool pairs = strcmp(columns[MODEL], "pairs") == 0;
    const bool own = decoder || encoder || experts || pairs || strcmp(columns[MODEL], "own") == 0;
    const bool trains =
        strcmp(columns[PROGRAM], "train") == 0 || strcmp(columns[PROGRAM], "mask") == 0;
    const bool generates = strcmp(columns[PROGRAM], "generate") == 0;
    snprintf(config, sizeof config, "{%s%s}",
             strstr(columns[CONFIG], "\"optimizer\"") ? "" : optimizer, columns[CONFIG]);
    snprintf(model, sizeof model,
             "{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_positions\": 11, \"n_embd\": 24, "
             "\"n_layer\": 2, \"n_head\": 3%s%s}",
             *columns[MODEL] ? ", " : "", columns[MODEL]);
    if (sw_file_write_atomic(model_path, model, strlen(model)) < 0) {
        fail_msg("%s", sw_error_message());
    }
    static const char *const kernels[] = {"spillway.kernels=reference"};
    sw_comm *comm = NULL;
    sw_engine *e = NULL;
    if (n_ranks > 1) {
        assert_int_equal(sw_comm_open(&(struct sw_transport){.size = n_ranks}, &comm), SW_OK);
    }
    const struct sw_engine_options options = {
        .config = {.text = config, .sets = kernels, .n_sets = 1},
        .model = {.path = own ? NULL : model_path,
                  .forward = decoder   ? decoder_forward
                             : encoder ? encoder_forward
                             : experts ? experts_forward
                             : pairs   ? pairs_forward
                             : own     ? own_forward
                                       : NULL,
                  .forward_ctx = loads ? &loads : NULL},
        .inputs = {.seq_len = own ? 0 : T, .mask = strcmp(columns[PROGRAM], "mask") == 0},
        .run = {.comm = comm, .batch_ranks = 1},
        .seed = 5,
        .train.wanted = trains,
        .evaluate.loss = strcmp(columns[PROGRAM], "evaluate") == 0,
        .generate = {.wanted = generates, .tokens = generates ? T : 0},
        .plan.only = true,
    };
    if (sw_initialize(&options, &e) < 0) {
        fail_msg("%s: %s", columns[NAME], sw_error_message());
    }
    const struct sw_plan *plan = sw_engine_facts(e).plan;
    for (int i = 0; i < plan->n_programs; i++) {
        const struct sw_ir *ir = plan->programs[i].ir;
        for (int32_t k = 0; k < ir->n_ops; k++) {
            if (ir->ops[k].move == SW_MOVE_NONE) {
                met[ir->ops[k].kind] = true;
            }
        }
    }
    const uint64_t fingerprint = plan->fingerprint;
    sw_close(e);
    sw_comm_close(comm, true); /* it never had a transport */
    return fingerprint;
}

static char *trimmed(char *text)
{
    text += strspn(text, " ");
    for (size_t n = strlen(text); n > 0 && text[n - 1] == ' '; n--) {
        text[n - 1] = '\0';
    }
    return text;
}

static void fingerprints_are_those_on_file(void **state)
{
    char *text = NULL, *rest = NULL;
    size_t len = 0;
    int n = 0, bad = 0;
    (void)state;
    if (sw_file_read("tests/fingerprints.txt", &text, &len) < 0) {
        fail_msg("%s", sw_error_message());
    }
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *columns[N_COLUMNS];
        if (*line == '#') {
            continue;
        }
        for (int i = 0; i < N_COLUMNS; i++) {
            char *end = strchr(line, '|');
            if (!end && i < N_COLUMNS - 1) {
                fail_msg("\"%s\": wanted %d columns", line, N_COLUMNS);
            }
            if (end) {
                *end = '\0';
            }
            columns[i] = trimmed(line);
            line = end + 1;
        }
        for (int n_ranks = 1; n_ranks <= 2; n_ranks++) {
            char found[32];
            snprintf(found, sizeof found, "%016llx", (unsigned long long)plan(columns, n_ranks));
            if (strcmp(found, columns[FINGERPRINT]) != 0) {
                print_error("%s, %d ranks: %s; the file has \"%s\"\n", columns[NAME], n_ranks,
                            found, columns[FINGERPRINT]);
                bad++;
            }
        }
        n++;
    }
    sw_free(text);
    print_message("%d lines\n", n);
    assert_true(n > 20);
    assert_int_equal(bad, 0);
}

static void every_kind_of_op_is_in_some_plan(void **state)
{
    (void)state;
    int n_missing = 0;
    for (int kind = 0; kind < SW_N_OP_KINDS; kind++) {
        /* no plan has several ranks for one forward; a pass makes the last one, after the
         * fingerprint is taken */
        if (!met[kind] && kind != SW_OP_EXCHANGE && kind != SW_OP_LINEAR_CE_MERGE &&
            kind != SW_OP_CROSS_ENTROPY_MERGE && kind != SW_OP_LINEAR_CE_AT_ONCE) {
            print_error("no line of tests/fingerprints.txt has the op %s\n",
                        sw_op_name(&(struct sw_op){.kind = (enum sw_op_kind)kind}));
            n_missing++;
        }
    }
    assert_int_equal(n_missing, 0);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(model_path, sizeof model_path, "/tmp/spillway-model-XXXXXX");
    const int fd = mkstemp(model_path);
    return fd < 0 || close(fd) != 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove(model_path);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(fingerprints_are_those_on_file),
    cmocka_unit_test(every_kind_of_op_is_in_some_plan),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
