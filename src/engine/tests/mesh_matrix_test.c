// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 900
// COST 20
// SLOW SPILLWAY_MESHES=all
// Meshes of 1, 2, 4, 6 and 8 ranks in all factorisations, next to one rank. The pipe and data axes
// change no bit of losses, norms and weights, at any ZeRO stage, schedule and placement. The axes
// tensor and context cut sums: losses stay near those of one rank, and bits depend on these two
// sizes only. Each rank sends the bytes of its plan, along pipe those of a formula, and takes its
// memory to the byte.
//
// Each pair of choices is tried for one step; of the meshes of 8 ranks, those that cut three axes.
// SPILLWAY_MESHES=all tries each mesh at each stage, schedule and precision for 30 steps, with the
// other choices drawn. SPILLWAY_MESHES=3/48 tries the third of 48 parts of that.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
#include "engine/tests/cover.h"
#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

enum {
    MOST_STEPS = 30,
    MOST_K = 8,
    MOST_ROWS = 32,
    MOST_RANKS = 8,
    MOST_ELEMS = 1 << 18,
    TILE_BYTES = 300
};

/* ---- the axes ---- */

// clang-format off
enum axis {
    /* the arithmetic */
    FAMILY, PRECISION, MICRO_BATCHES, SIZES, DROPOUT, CLIPPING, TABLE, FROZEN, OPTIMIZER, REGIONS,
    /* how it is run; the first choice is the reference's */
    MESH, STAGE, SCHEDULE, PLACEMENT, RECOMPUTE,
    N_AXES,
    N_MATH = MESH
};
// clang-format on

/* More than pairs: every n_parts-th combination, from `part`; 0 parts = pairs only. */
static int part, n_parts;

/* All meshes of 1, 2, 4, 6 and 8 ranks, or most of them; the first one is of one rank. */
struct mesh {
    int pipe, data, context, tensor;
};
enum { MOST_MESHES = 64 };
static struct mesh meshes[MOST_MESHES];
static int n_meshes;

static bool is_wanted(struct mesh mesh, int n_ranks)
{
    const int cut = (mesh.pipe > 1) + (mesh.data > 1) + (mesh.context > 1) + (mesh.tensor > 1);
    return n_ranks < MOST_RANKS || n_parts > 0 || cut > 2;
}

static void list_meshes(void)
{
    static const int ranks[] = {1, 2, 4, 6, 8};
    n_meshes = 0;
    for (size_t i = 0; i < SW_LEN(ranks); i++) {
        for (int way = 0; way < MOST_RANKS * MOST_RANKS * MOST_RANKS; way++) {
            const int p = way / 64 + 1, d = way / 8 % 8 + 1, c = way % 8 + 1;
            const struct mesh mesh = {p, d, c, ranks[i] / (p * d * c)};
            if (ranks[i] % (p * d * c) == 0 && is_wanted(mesh, ranks[i])) {
                SW_ASSERT(n_meshes < MOST_MESHES);
                meshes[n_meshes++] = mesh;
            }
        }
    }
}

static const char *const families[] = {"gpt2", "llama"};
static const char *const precisions[] = {"fp32", "bf16", "fp16"};
static const int micro_batches[] = {8, 5};
enum { EIGHT_BIT = 2 };
static const char *const optimizers[] = {"AdamW", "Lamb", [EIGHT_BIT] = "AdamW8bit"};
/* by one stage, and by several */
static const char *const schedules[][2] = {{"horizontal", "1f1b"},
                                           {"vertical", "gpipe"},
                                           {"horizontal", "interleaved"},
                                           {"vertical", "zero-bubble"}};
/* Moves states and parameters off the device, if the stage allows it. The last one cuts tables into
 * tiles; engine/tile has matrices. */
enum { TILED = 3 };
#define OFFLOAD_STATES ", \"offload_optimizer\": {\"device\": \"cpu\"}"
#define OFFLOAD OFFLOAD_STATES ", \"offload_param\": {\"device\": \"cpu\"}"
static const char *const placements[] = {"", OFFLOAD_STATES, OFFLOAD, OFFLOAD};

static int count_of(int axis)
{
    static const int counts[N_AXES] = {
        [FAMILY] = 2,   [PRECISION] = 3, [MICRO_BATCHES] = 2, [SIZES] = 2,     [DROPOUT] = 2,
        [CLIPPING] = 2, [TABLE] = 2,     [FROZEN] = 2,        [OPTIMIZER] = 3, [REGIONS] = 2,
        [STAGE] = 4,    [SCHEDULE] = 4,  [PLACEMENT] = 4,     [RECOMPUTE] = 2};
    return axis == MESH ? n_meshes : counts[axis];
}

/* The model and its rows. */
struct shape {
    int layers, heads, kv_heads, width, inner, vocab, batch, tokens;
};

struct row {
    int8_t at[N_AXES];
    struct mesh mesh;
    struct shape shape;
};

static const char *schedule_of(const struct row *row)
{
    return schedules[row->at[SCHEDULE]][row->mesh.pipe > 1];
}

static int chunks_of(const struct row *row)
{
    return strcmp(schedule_of(row), "interleaved") == 0 ? 2 : 1;
}

/* As many blocks and heads as the mesh needs. chunks: of each stage */
static struct shape shape_for(struct mesh mesh, int chunks, bool odd)
{
    const int cut = mesh.context * mesh.tensor, most = mesh.pipe * chunks;
    const int heads = cut % 3 == 0 ? 6 : cut == 8 ? 8 : 4;
    return (struct shape){.layers = most > 4   ? most
                                    : most > 2 ? 4
                                               : 2,
                          .heads = heads,
                          .kv_heads = cut > 2 ? heads : heads / 2,
                          .width = heads * 4,
                          .inner = heads * (odd ? 5 : 8),
                          .vocab = odd ? 37 : 64,
                          .batch = odd && mesh.context == 1 ? 3 : 2,
                          .tokens = mesh.context % 3 == 0      ? 6
                                    : odd && mesh.context == 1 ? 7
                                                               : 8};
}

/* ---- one training ---- */

static void write_model(const struct row *row, char *path, size_t size)
{
    const struct shape s = row->shape;
    const char *p = row->at[DROPOUT] == 0 ? "0.1" : "0";
    char text[1024];
    snprintf(text, sizeof text,
             "{\"model_type\":\"%s\",\"vocab_size\":%d,\"n_positions\":11,"
             "\"max_position_embeddings\":11,\"n_embd\":%d,\"hidden_size\":%d,\"n_layer\":%d,"
             "\"num_hidden_layers\":%d,\"n_head\":%d,\"num_attention_heads\":%d,"
             "\"num_key_value_heads\":%d,\"n_inner\":%d,\"intermediate_size\":%d,"
             "\"embd_pdrop\":%s,\"attn_pdrop\":%s,\"resid_pdrop\":%s,\"attention_dropout\":%s,"
             "\"tie_word_embeddings\":%s}",
             families[row->at[FAMILY]], s.vocab, s.width, s.width, s.layers, s.layers, s.heads,
             s.heads, s.kv_heads, s.inner, s.inner, p, p, p, p,
             row->at[TABLE] == 1 ? "true" : "false");
    test_put("model.json", text);
    snprintf(path, size, "%s/model.json", test_folder());
}

struct result {
    double losses[MOST_STEPS], norms[MOST_STEPS], eval[2];
    uint64_t weights;
};

struct job {
    const struct row *row;
    const char *model;
    int n_steps;
    float *weights; /* the whole model; each rank writes what it owns */
    struct result *result;
};

static int placement_of(const struct row *row)
{
    const int stage = row->at[STAGE];
    return stage == 3 ? row->at[PLACEMENT] : stage > 0 && row->at[PLACEMENT] > 0;
}

static void write_config(const struct row *row, char *text, size_t size)
{
    static const char *const keys[] = {
        "", "\"bf16\": {\"enabled\": true}, ",
        "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 10, \"loss_scale_window\": 3}, "};
    static const char *const frozen[] = {"\"*.1.ln_2.weight\", \"*.0.*fc*\"",
                                         "\"*.1.*norm*.weight\", \"*.0.*up_proj*\""};
    const struct mesh mesh = row->mesh;
    const int stage = row->at[STAGE], placement = placement_of(row);
    snprintf(text, size,
             "{\"train_micro_batch_size_per_gpu\": %d, %s\"gradient_clipping\": %s, "
             "\"zero_optimization\": {\"stage\": %d, \"stage3_param_persistence_threshold\": 30%s},"
             " \"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": 0.003, \"weight_decay\": "
             "0.1%s}}, \"spillway\": {\"micro_batches\": %d, \"threads\": 1, \"loss_chunk\": 8, "
             "\"schedule\": \"%s\", "
             "\"chunks\": %d, \"recompute\": \"%s\", \"tile_bytes\": %d, "
             "\"sequence_parallel\": %s, "
             "\"frozen\": [%s], "
             "\"mesh\": {\"pipe\": %d, \"context\": %d, \"tensor\": %d}}}",
             row->shape.batch, keys[row->at[PRECISION]], row->at[CLIPPING] == 0 ? "0.5" : "0",
             stage, placements[placement], optimizers[row->at[OPTIMIZER]],
             row->at[OPTIMIZER] == EIGHT_BIT ? ", \"min_8bit_size\": 200" : "",
             micro_batches[row->at[MICRO_BATCHES]], schedule_of(row), chunks_of(row),
             row->at[RECOMPUTE] == 1 ? "blocks" : "none", placement == TILED ? TILE_BYTES : 0,
             row->at[REGIONS] == 0 ? "true" : "false",
             row->at[FROZEN] == 1 ? frozen[row->at[FAMILY]] : "", mesh.pipe, mesh.context,
             mesh.tensor);
}

struct rows {
    int32_t ids[MOST_ROWS], labels[MOST_ROWS];
    struct sw_tensor tensors[2];
};

/* Micro-batch k of a step: drawn tokens, some of them without a label. */
static void draw_rows(const struct shape *s, uint64_t step, int k, struct rows *out)
{
    const int n = s->batch * s->tokens;
    for (int i = 0; i < n; i++) {
        const uint64_t at = (step * MOST_K + (uint64_t)k) * MOST_ROWS + (uint64_t)i;
        out->ids[i] = (int32_t)(sw_philox_u64(9, 1, at) % (uint64_t)s->vocab);
        out->labels[i] =
            i % 5 == k % 5 ? -100 : (int32_t)(sw_philox_u64(9, 2, at) % (uint64_t)s->vocab);
    }
    const struct sw_shape shape = {2, {s->batch, s->tokens}};
    out->tensors[0] =
        (struct sw_tensor){"input_ids", {.data = out->ids, .dtype = SW_I32, .shape = shape}};
    out->tensors[1] =
        (struct sw_tensor){"labels", {.data = out->labels, .dtype = SW_I32, .shape = shape}};
}

static sw_status one_step(sw_engine *e, const struct job *job, struct sw_step_report *report)
{
    const struct shape s = job->row->shape;
    struct rows rows[MOST_K];
    struct sw_batch batches[MOST_K];
    int n = 0;
    for (int k = e->data.rank; k < e->sizes.micro_batches; k += e->data.size, n++) {
        draw_rows(&s, (uint64_t)e->progress.step, k, &rows[n]);
        batches[n] = (struct sw_batch){rows[n].tensors, 2};
    }
    SW_TRY(sw_train_batch(e, batches, n, report));
    return test_same_reports(e, report);
}

/* ---- bytes ---- */

enum { MOST_GROUPS = 8 };

/* Bytes that this rank has sent in the exchanges of each group but the world, which also agrees on
 * failures and losses. */
static void count_sent(const sw_engine *e, int64_t sent[MOST_GROUPS])
{
    SW_ASSERT(e->plan->n_groups <= MOST_GROUPS);
    for (int g = 1; g < e->plan->n_groups; g++) {
        struct sw_traffic traffic;
        sw_executor_traffic(e->executor, g, &traffic);
        sent[g] = 0;
        for (int op = 0; op < SW_COMM_OP_COUNT; op++) {
            sent[g] += traffic.sent[op];
        }
    }
}

static sw_status check_sent(const sw_engine *e, const int64_t before[MOST_GROUPS])
{
    int64_t after[MOST_GROUPS];
    count_sent(e, after);
    for (int g = 1; g < e->plan->n_groups; g++) {
        const int64_t planned = sw_plan_group_bytes(e->plan, g);
        if (after[g] - before[g] != planned) {
            return SW_FAIL(SW_E_ARG, "rank %d sent %lld bytes along axes %x, planned were %lld",
                           e->world.rank, (long long)(after[g] - before[g]),
                           e->plan->groups[g].axes, (long long)planned);
        }
    }
    return SW_OK;
}

/* Elements that cross a border between stages: those of [B, T, C], of which each rank of the
 * context axis has its tokens, and of the tensor axis its rows if samples or tokens divide. */
static int64_t elems_at_borders(const struct row *row)
{
    const struct shape s = row->shape;
    const struct mesh m = row->mesh;
    const bool divides = s.batch % m.tensor == 0 || s.tokens % (m.tensor * m.context) == 0;
    const int parts = row->at[REGIONS] == 0 && divides ? m.tensor : 1;
    return (int64_t)s.batch * s.tokens * s.width / m.context / parts;
}

/* Bytes of the sums of squares that the norm adds; 0 = this plan has none. */
static int64_t bytes_of_sums(const struct sw_plan *plan)
{
    const struct sw_persistent *sums = sw_plan_find(plan, "stats");
    return sums ? (int64_t)sums->bytes : 0;
}

/* Each part of the model but the last one sends its output, each but the first one a gradient. A
 * rank with fewer micro-batches than others sends as many. Stages may also send their part of the
 * norm. A table of two stages has formulas of its own. */
static sw_status check_pipe(const sw_engine *e, const struct row *row)
{
    const int stages = row->mesh.pipe, parts = stages * chunks_of(row);
    const int64_t width = row->at[PRECISION] == 0 ? 4 : 2;
    int64_t messages = 0;
    for (int p = e->world.rank / (e->world.size / stages); p < parts; p += stages) {
        messages += (p < parts - 1) + (p > 0);
    }
    const int64_t norm = (stages - 1) * bytes_of_sums(e->plan);
    const int64_t wanted = e->sizes.rounds * messages * elems_at_borders(row) * width;
    for (int g = 1; g < e->plan->n_groups && row->at[TABLE] == 0; g++) {
        const bool is_pipe = e->plan->groups[g].axes == 1U << SW_AXIS_PIPE;
        const int64_t bytes = is_pipe ? sw_plan_group_bytes(e->plan, g) : wanted;
        if (bytes != wanted && bytes != wanted + norm) {
            return SW_FAIL(SW_E_ARG, "rank %d sends %lld bytes along pipe, by the formula %lld",
                           e->world.rank, (long long)bytes, (long long)wanted);
        }
    }
    return SW_OK;
}

/* Some ranks have fewer micro-batches than others. */
static sw_status check_peak(const sw_engine *e)
{
    const int64_t peak = sw_engine_high_water(e), planned = sw_engine_tier_bytes(e, SW_TIER_DEVICE);
    return peak == planned || (e->sizes.local < e->sizes.rounds && peak < planned)
               ? SW_OK
               : SW_FAIL(SW_E_ARG, "rank %d took %lld bytes, planned were %lld", e->world.rank,
                         (long long)peak, (long long)planned);
}

static sw_status train(void *ctx, sw_comm *comm)
{
    const struct job *job = ctx;
    const struct shape s = job->row->shape;
    struct result others, *result = sw_comm_rank(comm) == 0 ? job->result : &others;
    char config[1536];
    write_config(job->row, config, sizeof config);
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = job->model,
                                              .inputs.seq_len = s.tokens,
                                              .run = {.comm = comm, .verify = true},
                                              .seed = 5,
                                              .train.wanted = true,
                                              .evaluate.loss = true};
    sw_engine *e = NULL;
    sw_status st = sw_initialize(&options, &e);
    st = st < 0 ? st : check_pipe(e, job->row);
    for (int i = 0; st >= 0 && i < job->n_steps; i++) {
        struct sw_step_report report = {0};
        int64_t sent[MOST_GROUPS];
        count_sent(e, sent);
        st = one_step(e, job, &report);
        st = st < 0 ? st : check_sent(e, sent);
        result->losses[i] = report.loss;
        result->norms[i] = report.grad_norm;
    }
    if (st >= 0) {
        struct rows rows;
        draw_rows(&s, 1000, 0, &rows);
        st =
            sw_evaluate(e, &(struct sw_batch){rows.tensors, 2}, &result->eval[0], &result->eval[1]);
    }
    st = st < 0 ? st : check_peak(e);
    st = st < 0 ? st : test_owned_weights(e, job->weights, MOST_ELEMS);
    sw_close(e);
    return st;
}

static sw_status run(const struct row *row, int n_steps, struct result *out)
{
    static float weights[MOST_ELEMS];
    const struct mesh mesh = row->mesh;
    char model[128];
    struct job job = {row, model, n_steps, weights, out};
    write_model(row, model, sizeof model);
    memset(weights, 0, sizeof weights);
    memset(out, 0, sizeof *out);
    SW_TRY(sw_threads_run(mesh.pipe * mesh.data * mesh.context * mesh.tensor, 120, train, &job));
    out->weights = sw_hash(SW_HASH_INIT, weights, sizeof weights);
    return SW_OK;
}

/* ---- a combination next to its references ---- */

static void text_of(const struct row *row, char *text, size_t size)
{
    const struct mesh m = row->mesh;
    const struct shape s = row->shape;
    snprintf(text, size,
             "pipe %d, data %d, context %d, tensor %d, stage %d, %s: %s of %d layers, %d heads, %s,"
             " %d micro-batches, sizes %d, dropout %d, clipping %d, table %d, frozen %d, %s, "
             "regions %d, placement %d, recompute %d",
             m.pipe, m.data, m.context, m.tensor, row->at[STAGE], schedule_of(row),
             families[row->at[FAMILY]], s.layers, s.heads, precisions[row->at[PRECISION]],
             micro_batches[row->at[MICRO_BATCHES]], row->at[SIZES], row->at[DROPOUT],
             row->at[CLIPPING], row->at[TABLE], row->at[FROZEN], optimizers[row->at[OPTIMIZER]],
             row->at[REGIONS], row->at[PLACEMENT], row->at[RECOMPUTE]);
}

static void fail_of(const struct row *row)
{
    char text[768];
    text_of(row, text, sizeof text);
    fail_msg("%s: %s", text, sw_error_message());
}

/* References by what they depend on: the arithmetic, the model, and the sizes of the axes that cut
 * sums. */
struct reference {
    struct row row;
    int n_steps;
    struct result result;
};

/* The same training with one rank along pipe and data, at stage 0. */
static const struct result *refer(const struct row *row, int context, int tensor, int n_steps)
{
    enum { KEPT = 64 };
    static struct reference kept[KEPT];
    static int next;
    struct row key = {.mesh = {1, 1, context, tensor}, .shape = row->shape};
    memcpy(key.at, row->at, N_MATH);
    key.at[REGIONS] = tensor > 1 ? row->at[REGIONS] : 0;
    for (int i = 0; i < KEPT; i++) {
        if (memcmp(&kept[i].row, &key, sizeof key) == 0 && kept[i].n_steps == n_steps) {
            return &kept[i].result;
        }
    }
    struct reference *r = &kept[next++ % KEPT];
    *r = (struct reference){.row = key, .n_steps = n_steps};
    if (run(&key, n_steps, &r->result) < 0) {
        fail_of(&key);
    }
    return &r->result;
}

/* Relative tolerance of losses, if sums are cut otherwise. The tensor axis also cuts the runs of
 * 8-bit codes, which then have other scales: losses differ as much as those of 8-bit moments and of
 * fp32 ones do. */
static double tolerance_of(const struct row *row)
{
    const bool cuts_runs = row->at[OPTIMIZER] == EIGHT_BIT && row->mesh.tensor > 1;
    return row->at[PRECISION] != 0 ? 2e-2 : cuts_runs ? 1e-2 : 1e-4;
}

/* Fails unless losses agree with those of sums that are cut otherwise. */
static void assert_near(const struct row *row, const struct result *a, const struct result *b,
                        int n_steps)
{
    const double tolerance = tolerance_of(row);
    char text[768];
    for (int i = 0; i < n_steps; i++) {
        if (!(fabs(a->losses[i] - b->losses[i]) <= tolerance * fabs(b->losses[i]))) {
            text_of(row, text, sizeof text);
            fail_msg("%s: step %d: loss %.9g, by one rank %.9g", text, i, a->losses[i],
                     b->losses[i]);
        }
    }
}

/* Fails unless all bits are the same. Those of overflowed norms are compared, too. */
static void assert_same(const struct row *row, const struct result *a, const struct result *b,
                        int n_steps)
{
    char text[768];
    for (int i = 0; i < n_steps; i++) {
        if (memcmp(&a->losses[i], &b->losses[i], sizeof *a->losses) != 0 ||
            memcmp(&a->norms[i], &b->norms[i], sizeof *a->norms) != 0) {
            text_of(row, text, sizeof text);
            fail_msg("%s: step %d: loss %.17g and norm %.17g, by the reference %.17g and %.17g",
                     text, i, a->losses[i], a->norms[i], b->losses[i], b->norms[i]);
        }
    }
    if (memcmp(a->eval, b->eval, sizeof a->eval) != 0 || a->weights != b->weights) {
        text_of(row, text, sizeof text);
        fail_msg("%s: the evaluation (%.17g, by the reference %.17g) or the weights differ", text,
                 a->eval[0], b->eval[0]);
    }
}

static void try_row(void *ctx, const struct cover_row *drawn)
{
    const int n_steps = *(const int *)ctx;
    struct result result;
    struct row row = {.mesh = meshes[drawn->at[MESH]]};
    memcpy(row.at, drawn->at, N_AXES);
    row.shape = shape_for(row.mesh, chunks_of(&row), row.at[SIZES] == 0);
    if (run(&row, n_steps, &result) < 0) {
        fail_of(&row);
    }
    const struct mesh mesh = row.mesh;
    const struct result *cut = refer(&row, mesh.context, mesh.tensor, n_steps);
    assert_same(&row, &result, cut, n_steps);
    if (mesh.context * mesh.tensor > 1) {
        assert_near(&row, cut, refer(&row, 1, 1, n_steps), n_steps);
    }
}

/* ---- tests ---- */

#ifdef __SANITIZE_THREAD__
enum { LEFT_OUT = 70 }; /* percent of the pairs */
#elif defined TEST_SANITIZED
enum { LEFT_OUT = 30 };
#else
enum { LEFT_OUT = 0 };
#endif

static void pairs_of_choices_follow_one_rank(void **state)
{
    int n_steps = 1;
    int counts[N_AXES];
    (void)state;
    if (n_parts > 0) {
        skip();
    }
    for (int a = 0; a < N_AXES; a++) {
        counts[a] = count_of(a);
    }
    const int n = cover(2, N_AXES, counts, LEFT_OUT, try_row, &n_steps);
    print_message("%d combinations of %d meshes\n", n, n_meshes);
}

/* Stages of ZeRO share the other choices, and so the references. */
static void try_stages(int at, int n_steps)
{
    static const enum axis product[] = {MESH, SCHEDULE, PRECISION};
    struct cover_row row;
    int rest = at;
    for (int a = 0; a < N_AXES; a++) {
        row.at[a] = (int8_t)(sw_philox_u64(17, (uint64_t)at, (uint64_t)a) % (uint64_t)count_of(a));
    }
    for (size_t i = 0; i < SW_LEN(product); i++) {
        row.at[product[i]] = (int8_t)(rest % count_of(product[i]));
        rest /= count_of(product[i]);
    }
    for (int stage = 0; stage < count_of(STAGE); stage++) {
        row.at[STAGE] = (int8_t)stage;
        row.at[PLACEMENT] = (int8_t)((row.at[PLACEMENT] + 1) % count_of(PLACEMENT));
        row.at[RECOMPUTE] = (int8_t)(sw_philox_u64(18, (uint64_t)at, (uint64_t)stage) % 2);
        try_row(&n_steps, &row);
    }
}

static void all_meshes_follow_one_rank(void **state)
{
    const int n = count_of(MESH) * count_of(SCHEDULE) * count_of(PRECISION);
    (void)state;
    if (n_parts == 0) {
        skip();
    }
    for (int at = part; at < n; at += n_parts) {
        try_stages(at, MOST_STEPS);
    }
    print_message("part %d of %d of %d combinations of %d meshes\n", part + 1, n_parts,
                  n * count_of(STAGE), n_meshes);
}

static int set_up(void **state)
{
    const char *asked = getenv("SPILLWAY_MESHES");
    (void)state;
    part = 0;
    n_parts = asked && strcmp(asked, "all") == 0 ? 1 : 0;
    if (asked && n_parts == 0) {
        SW_ASSERT(sscanf(asked, "%d/%d", &part, &n_parts) == 2 && part > 0 && part <= n_parts);
        part--;
    }
    list_meshes();
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pairs_of_choices_follow_one_rank),
    cmocka_unit_test(all_meshes_follow_one_rank),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
