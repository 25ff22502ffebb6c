// SPDX-License-Identifier: Apache-2.0
// COST 4
// Features of decoder families beyond GPT-2's ops: constants, rotary positions, RMS norm, gates, a
// loss with a cap and a bias. They give the same bits at every stage, in every tier, with tiles, on
// the mock device and on several ranks. No checkpoint holds constants.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/private.h"
#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, T = 6, VOCAB = 61, WIDTH = 16, HEADS = 2, STEPS = 3, MOST_ELEMS = 1 << 14 };

/* ---- the model ---- */

static sw_value matrix(sw_graph *g, const char *name, int64_t rows)
{
    return sw_param(g, name, SW_SHAPE(rows, WIDTH), (struct sw_init){SW_INIT_NORMAL, 0.2});
}

static sw_value vector(sw_graph *g, const char *name, int64_t n)
{
    return sw_param(g, name, SW_SHAPE(n), (struct sw_init){SW_INIT_NORMAL, 0.2});
}

static sw_value block(sw_graph *g, sw_value h, sw_value angles, sw_value places, int64_t batch)
{
    const struct sw_attention_spec spec = {.heads = HEADS,
                                           .scale = 0.3,
                                           .causal = true,
                                           .mask = -1,
                                           .position = -1,
                                           .slopes = -1,
                                           .segments = -1,
                                           .bias = SW_NO_VALUE};
    const struct sw_shape heads = SW_SHAPE(batch, T, HEADS, WIDTH / HEADS);
    const struct sw_shape rows = SW_SHAPE(batch, T, WIDTH);
    const sw_value x = sw_rms_norm(g, h, vector(g, "norm", WIDTH), 1e-6, false);
    const sw_value q = sw_linear(g, x, matrix(g, "q", WIDTH), SW_NO_VALUE, false);
    const sw_value k = sw_linear(g, x, matrix(g, "k", WIDTH), SW_NO_VALUE, false);
    const sw_value v = sw_linear(g, x, matrix(g, "v", WIDTH), SW_NO_VALUE, false);
    const sw_value o = sw_attention(
        g, sw_reshape(g, sw_rotary(g, sw_reshape(g, q, heads), angles, places, false), rows),
        sw_reshape(g, sw_rotary(g, sw_reshape(g, k, heads), angles, places, true), rows), v, &spec);
    const sw_value sum = sw_add(g, h, o);
    const sw_value y = sw_rms_norm(g, sum, vector(g, "norm2", WIDTH), 1e-6, true);
    const sw_value gate = sw_linear(g, y, matrix(g, "gate", WIDTH), SW_NO_VALUE, false);
    return sw_add(g, sum, sw_mul(g, sw_gated_act(g, gate, y, SW_ACT_GELU_TANH), gate));
}

/* ctx: a factor for the values of the constant; NULL = 1 */
static sw_value forward(sw_graph *g, void *ctx, int64_t batch)
{
    float table[(T + 1) * 4]; /* row 0 belongs to padding */
    for (size_t i = 0; i < SW_LEN(table); i++) {
        const double angle = (double)(i / 4) / (double)(1 + i % 2);
        table[i] = (float)(i % 4 < 2 ? cos(angle) : sin(angle)) * (ctx ? *(const float *)ctx : 1);
    }
    const sw_value ids = sw_input(g, "input_ids", SW_I32, SW_SHAPE(batch, T));
    const sw_value mask = sw_input(g, "attention_mask", SW_I32, SW_SHAPE(batch, T));
    const sw_value labels = sw_input(g, "labels", SW_I32, SW_SHAPE(batch, T));
    const sw_value angles = sw_constant(g, "angles", SW_F32, SW_SHAPE(T + 1, 4), table);
    const sw_value places = sw_positions(g, mask, 1);
    sw_value h = sw_embedding(g, matrix(g, "table", VOCAB), ids, -1);
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof name, "h.%d", i);
        sw_scope_push_block(g, name);
        h = block(g, h, angles, places, batch);
        sw_scope_pop(g);
    }
    return sw_linear_cross_entropy(g, h, matrix(g, "head", VOCAB), vector(g, "bias", VOCAB), labels,
                                   3);
}

/* ---- a run ---- */

struct way {
    /* config: members of the configuration; device NULL: the CPU */
    const char *what, *config, *device;
    int ranks;
};

struct result {
    double losses[STEPS], eval;
    float weights[MOST_ELEMS];
    int n_tiled;
};

struct job {
    const struct way *way;
    const char *precision;
    int first, end; /* range of steps */
    const char *load, *save;
    struct result *result;
};

static sw_status step(sw_engine *e, int i_step, struct result *result)
{
    enum { MOST = 3 };
    int32_t data[MOST][3][B * T];
    struct sw_tensor tensors[MOST][3];
    struct sw_batch batches[MOST];
    static const char *const names[] = {"input_ids", "attention_mask", "labels"};
    const int64_t micro_batches = sw_engine_micro_batches(e);
    int64_t n = 0;
    for (int64_t m = e->data.rank; m < micro_batches || n == 0; m += e->data.size, n++) {
        for (int i = 0; i < B * T; i++) {
            const uint64_t at = (uint64_t)(i_step * micro_batches + m) * B * T + (uint64_t)i;
            data[n][0][i] = (int32_t)(sw_philox_u64(9, 1, at) % VOCAB);
            data[n][1][i] = i % T >= i / T; /* pads the front of the second sample */
            data[n][2][i] = i % 5 == 3 ? -100 : (int32_t)(sw_philox_u64(9, 2, at) % VOCAB);
        }
        for (int k = 0; k < 3; k++) {
            tensors[n][k] = (struct sw_tensor){
                names[k], {.data = data[n][k], .dtype = SW_I32, .shape = SW_SHAPE(B, T)}};
        }
        batches[n] = (struct sw_batch){tensors[n], 3};
    }
    struct sw_step_report report;
    double count;
    SW_TRY(sw_train_batch(e, batches, sw_engine_local_micro_batches(e), &report));
    double eval;
    SW_TRY(sw_evaluate(e, &batches[0], &eval, &count));
    if (e->data.rank == 0) {
        result->losses[i_step] = report.loss;
        result->eval = eval;
    }
    return SW_OK;
}

static sw_status open_engine(const struct job *job, sw_comm *comm, void *ctx, sw_engine **out)
{
    char config[2048];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, %s%s\"gradient_clipping\": 0.5, "
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}}",
             B, job->precision, job->way->config);
    const struct sw_engine_options options = {
        .config.text = config,
        .model = {.forward = forward, .forward_ctx = ctx},
        .run = {.comm = comm, .device = job->way->device, .verify = true},
        .seed = 5,
        .train.wanted = true,
        .evaluate.loss = true,
    };
    return sw_initialize(&options, out);
}

/* Trains on one rank. */
static sw_status train(void *ctx, sw_comm *comm)
{
    const struct job *job = ctx;
    sw_engine *e = NULL;
    SW_TRY(open_engine(job, comm, NULL, &e));
    sw_status st = job->load ? sw_load(e, job->load) : SW_OK;
    for (int i = job->first; i < job->end && st >= 0; i++) {
        st = step(e, i, job->result);
    }
    if (st >= 0 && job->save) {
        st = sw_save(e, job->save, NULL);
    }
    st = st < 0 ? st : test_owned_weights(e, job->result->weights, MOST_ELEMS);
    st = st < 0 ? st : sw_comm_barrier(comm, "the weights");
    if (e->data.rank == 0) {
        job->result->n_tiled = e->plan->n_tiled;
    }
    sw_close(e);
    return st;
}

static struct result *run(const struct way *way, const char *precision)
{
    struct result *result = calloc(1, sizeof *result);
    assert_non_null(result);
    struct job job = {.way = way, .precision = precision, .end = STEPS, .result = result};
    if (sw_threads_run(way->ranks, 60, train, &job) < 0) {
        fail_msg("%s: %s", way->what, sw_error_message());
    }
    return result;
}

static void assert_same(const char *what, const struct result *a, const struct result *b)
{
    for (int i = 0; i < STEPS; i++) {
        if (a->losses[i] != b->losses[i]) {
            fail_msg("%s: loss %.9g in step %d, wanted %.9g", what, b->losses[i], i, a->losses[i]);
        }
    }
    if (a->eval != b->eval || memcmp(a->weights, b->weights, sizeof a->weights) != 0) {
        fail_msg("%s: other weights, or another loss of evaluation", what);
    }
}

#define MICRO_BATCHES "\"micro_batches\": 3, \"loss_chunk\": 8"
#define ONE_MICRO_BATCH "\"micro_batches\": 1, \"loss_chunk\": 8"
#define OFFLOADED(device)                                                                          \
    "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 20, "           \
    "\"sub_group_size\": 100, "                                                                    \
    "\"offload_optimizer\": {\"device\": \"" device "\", \"nvme_path\": \"/tmp\"}, "               \
    "\"offload_param\": {\"device\": \"" device "\", \"nvme_path\": \"/tmp\"}}, "
#define PLAIN "\"spillway\": {" MICRO_BATCHES "}, "
#define TILES "\"tile_bytes\": 600"

static const char *const precisions[] = {"", "\"bf16\": {\"enabled\": true}, "};

static void every_way_gives_the_same_bits(void **state)
{
    static const struct way plain = {"stage 0", PLAIN, NULL, 1};
    static const struct way ways[] = {
        {"stage 1 of two", "\"zero_optimization\": {\"stage\": 1}, " PLAIN, NULL, 2},
        {"stage 3 of three, recomputed",
         "\"zero_optimization\": {\"stage\": 3}, \"spillway\": {\"recompute\": "
         "\"blocks\", " MICRO_BATCHES "}, ",
         NULL, 3},
        {"tiles", OFFLOADED("cpu") "\"spillway\": {" TILES ", " MICRO_BATCHES "}, ", NULL, 1},
        {"tiles of disk on two, recomputed",
         OFFLOADED("nvme") "\"spillway\": {\"recompute\": \"blocks\", " TILES ", " MICRO_BATCHES
                           "}, ",
         NULL, 2},
        {"vertical",
         OFFLOADED("cpu") "\"spillway\": {\"schedule\": \"vertical\", \"recompute\": \"blocks\", "
                          "" TILES ", " MICRO_BATCHES "}, ",
         NULL, 1},
    };
    (void)state;
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        struct result *one = run(&plain, precisions[p]);
        assert_true(isfinite(one->losses[0]) && one->losses[0] != one->losses[STEPS - 1]);
        for (size_t w = 0; w < SW_LEN(ways); w++) {
            struct result *other = run(&ways[w], precisions[p]);
            assert_same(ways[w].what, one, other);
            assert_int_equal(other->n_tiled, strstr(ways[w].config, TILES) ? 2 : 0);
            free(other);
        }
        free(one);
    }
}

/* With one micro-batch the update reads gradients as they are computed. The bias's gradient is
 * complete with the last tile. */
static void so_does_every_way_of_one_micro_batch(void **state)
{
    static const struct way plain = {"stage 0", "\"spillway\": {" ONE_MICRO_BATCH "}, ", NULL, 1};
    static const struct way ways[] = {
        {"tiles of disk", OFFLOADED("nvme") "\"spillway\": {" TILES ", " ONE_MICRO_BATCH "}, ",
         NULL, 1},
        {"tiles on two", OFFLOADED("cpu") "\"spillway\": {" TILES ", " ONE_MICRO_BATCH "}, ", NULL,
         2},
    };
    (void)state;
    struct result *one = run(&plain, precisions[1]);
    for (size_t w = 0; w < SW_LEN(ways); w++) {
        struct result *other = run(&ways[w], precisions[1]);
        assert_same(ways[w].what, one, other);
        assert_int_equal(other->n_tiled, 2);
        free(other);
    }
    free(one);
}

/* The host cannot reach the device's memory, so only the plan can put constants there. */
static void a_device_that_the_host_does_not_reach_has_constants(void **state)
{
    static const struct way plain = {"plain kernels", PLAIN, "cpu:reference", 1};
    static const struct way ways[] = {
        {"mock", PLAIN, "mock", 1},
        {"mock, offloaded", OFFLOADED("nvme") "\"spillway\": {" TILES ", " MICRO_BATCHES "}, ",
         "mock:early", 1},
    };
    (void)state;
    struct result *one = run(&plain, "");
    for (size_t w = 0; w < SW_LEN(ways); w++) {
        struct result *other = run(&ways[w], "");
        assert_same(ways[w].what, one, other);
        free(other);
    }
    free(one);
}

static void checkpoints_have_no_constants(void **state)
{
    static const struct way first = {"two ranks", PLAIN, NULL, 2};
    static const struct way then = {
        "disk", OFFLOADED("nvme") "\"spillway\": {" TILES ", " MICRO_BATCHES "}, ", NULL, 1};
    char path[128], command[256];
    (void)state;
    struct result *one = run(&first, "");
    struct result *two = calloc(1, sizeof *two);
    assert_non_null(two);
    snprintf(path, sizeof path, "%s/saved", test_folder());
    struct job saves = {&first, "", 0, 1, NULL, path, two};
    struct job goes_on = {&then, "", 1, STEPS, path, NULL, two};
    assert_int_equal(sw_threads_run(2, 60, train, &saves), SW_OK);
    if (sw_threads_run(1, 60, train, &goes_on) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_same("resumed", one, two);
    snprintf(command, sizeof command, "grep -rq angles '%s'", path);
    assert_int_not_equal(system(command), 0);
    snprintf(command, sizeof command, "grep -rq norm2 '%s'", path);
    assert_int_equal(system(command), 0);
    free(one);
    free(two);
}

/* Constants are part of the arithmetic, and so of the fingerprint. */
static void other_values_are_another_fingerprint(void **state)
{
    static const struct way plain = {"", PLAIN, NULL, 1};
    const struct job job = {.way = &plain, .precision = ""};
    float factors[] = {1, 1.5f};
    uint64_t fingerprints[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        sw_engine *e = NULL;
        assert_int_equal(open_engine(&job, NULL, i == 0 ? NULL : &factors[i - 1], &e), SW_OK);
        fingerprints[i] = e->plan->fingerprint;
        const struct sw_persistent *item = sw_plan_find(e->plan, "angles");
        assert_true(item && item->tier == SW_TIER_DEVICE && item->state == SW_STATE_CONSTANT);
        sw_close(e);
    }
    assert_true(fingerprints[0] == fingerprints[1]);
    assert_true(fingerprints[0] != fingerprints[2]);
}

/* ---- inputs ---- */

/* The mask is cumulated and positions are shifted by one. Both index a table of T + 1 rows. */
static sw_value forward_of_places(sw_graph *g, void *ctx, int64_t batch)
{
    (void)ctx;
    const struct sw_shape rows = SW_SHAPE(batch, T);
    const sw_value table = matrix(g, "places", T + 1);
    const sw_value mask = sw_input(g, "mask", SW_I32, rows);
    const sw_value at = sw_input(g, "at", SW_I32, rows);
    const sw_value h = sw_add(g, sw_embedding(g, table, sw_positions(g, mask, 1), -1),
                              sw_embedding(g, table, sw_add_offset(g, at, 1), -1));
    return sw_linear_cross_entropy(g, h, matrix(g, "head", VOCAB), SW_NO_VALUE, mask, 0);
}

/* Inputs of a user's own forward are checked even if ops change them before they index a table. */
static void masks_and_positions_that_leave_a_table_are_refused(void **state)
{
    static const struct {
        int i;
        int32_t mask, at;
        const char *wanted;
    } cases[] = {{0, 1, T - 1, NULL},
                 {3, 2, 0, "mask: 2 at [0, 3]; wanted 0 .. 1"},
                 {4, -1, 0, "mask: -1 at [0, 4]; wanted 0 .. 1"},
                 {5, 1, T, "at: 6 at [0, 5]; wanted 0 .. 5"},
                 {7, 1, -1, "at: -1 at [1, 1]; wanted 0 .. 5"}};
    const struct sw_engine_options options = {.config.text =
                                                  "{\"train_micro_batch_size_per_gpu\": 2}",
                                              .model.forward = forward_of_places,
                                              .evaluate.loss = true};
    sw_engine *e = NULL;
    (void)state;
    assert_int_equal(sw_initialize(&options, &e), SW_OK);
    for (size_t k = 0; k < SW_LEN(cases); k++) {
        int32_t mask[B * T], at[B * T];
        double loss, count;
        for (int i = 0; i < B * T; i++) {
            mask[i] = i == cases[k].i ? cases[k].mask : 1;
            at[i] = i == cases[k].i ? cases[k].at : 0;
        }
        const struct sw_tensor tensors[] = {
            {"mask", {.data = mask, .dtype = SW_I32, .shape = SW_SHAPE(B, T)}},
            {"at", {.data = at, .dtype = SW_I32, .shape = SW_SHAPE(B, T)}}};
        const struct sw_batch batch = {tensors, 2};
        const sw_status st = sw_evaluate(e, &batch, &loss, &count);
        assert_int_equal(st, cases[k].wanted ? SW_E_ARG : SW_OK);
        if (cases[k].wanted && !strstr(sw_error_message(), cases[k].wanted)) {
            fail_msg("%s; wanted %s", sw_error_message(), cases[k].wanted);
        }
    }
    sw_close(e);
}

/* Many short packed rows may omit positions as well: each row then starts at position 0. */
static void many_packed_rows_may_come_without_positions(void **state)
{
    enum { ROWS = SW_WEIGHTS_SCRATCH / 8 + 8, TOKENS = 8 };
    static const char model[] =
        "{\"model_type\": \"gpt2\", \"vocab_size\": 3, \"n_positions\": 8, \"n_embd\": 2, "
        "\"n_layer\": 1, \"n_head\": 1}";
    char config[160], path[128];
    static int32_t ids[ROWS * TOKENS], segments[ROWS * TOKENS], positions[ROWS * TOKENS];
    const struct sw_view view = {.dtype = SW_I32, .shape = SW_SHAPE(ROWS, TOKENS)};
    struct sw_tensor tensors[] = {
        {"input_ids", view}, {"labels", view}, {"segments", view}, {"positions", view}};
    double with, without, count;
    sw_engine *e = NULL;
    (void)state;
    for (int i = 0; i < ROWS * TOKENS; i++) {
        ids[i] = i % 3;
        segments[i] = 1;
        positions[i] = i % TOKENS;
    }
    tensors[0].view.data = tensors[1].view.data = ids;
    tensors[2].view.data = segments;
    tensors[3].view.data = positions;
    snprintf(path, sizeof path, "%s/packed.json", test_folder());
    assert_int_equal(sw_file_write_atomic(path, model, sizeof model - 1), SW_OK);
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"spillway\": {\"packing\": true}}", ROWS);
    const struct sw_engine_options options = {
        .config.text = config, .model.path = path, .evaluate.loss = true};
    assert_int_equal(sw_initialize(&options, &e), SW_OK);
    assert_int_equal(sw_evaluate(e, &(struct sw_batch){tensors, 4}, &with, &count), SW_OK);
    assert_int_equal(sw_evaluate(e, &(struct sw_batch){tensors, 3}, &without, &count), SW_OK);
    assert_true(with == without && count == ROWS * TOKENS);
    sw_close(e);
}

/* Each program gets a different factor for its table. */
static sw_value changing_forward(sw_graph *g, void *ctx, int64_t batch)
{
    *(float *)ctx += 1;
    return forward(g, ctx, batch);
}

static void programs_share_their_constants(void **state)
{
    float factor = 0;
    sw_engine *e = NULL;
    (void)state;
    const struct sw_engine_options options = {
        .config.text = "{\"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": "
                       "\"AdamW\", \"params\": {\"lr\": 0.01}}}",
        .model = {.forward = changing_forward, .forward_ctx = &factor},
        .train.wanted = true,
        .evaluate.loss = true,
    };
    assert_true(sw_initialize(&options, &e) < 0);
    assert_string_equal(sw_error_message(),
                        "angles: two programs of one plan disagree about its values");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_way_gives_the_same_bits),
    cmocka_unit_test(so_does_every_way_of_one_micro_batch),
    cmocka_unit_test(a_device_that_the_host_does_not_reach_has_constants),
    cmocka_unit_test(checkpoints_have_no_constants),
    cmocka_unit_test(other_values_are_another_fingerprint),
    cmocka_unit_test(programs_share_their_constants),
    cmocka_unit_test(masks_and_positions_that_leave_a_table_are_refused),
    cmocka_unit_test(many_packed_rows_may_come_without_positions),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
