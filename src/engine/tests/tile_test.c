// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 1200
// COST 50
// SLOW SPILLWAY_TILES=all
// Memory-centric tiling: a tiled run has the bits of a run with whole parameters, and its peak
// memory falls with the tile size. Some settings are refused. The models have folders, because the
// initial values of so many parameters take longer than all else. engine/matrix has tiles with
// initial values.
#include <stdio.h>
#include <unistd.h>

#include "engine/private.h"
#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

/* No tile size divides these widths. Both matrices of the inner layer and the table exceed
 * SW_PIECE_ABOVE. */
enum { B = 2, T = 5, VOCAB = 5503, WIDTH = 771, INNER = 5641, STEPS = 2, MOST_ELEMS = 1 << 25 };
/* Half of each matrix of this inner layer does, too. */
enum { SLICED = 2, SLICED_WIDTH = 770, SLICED_INNER = 10900 };

static bool all_axes;

static void path_of(int model, char *path, size_t size)
{
    snprintf(path, size, "%s/model%d", test_folder(), model);
}

static sw_status write_model(int model, const char *json)
{
    const struct sw_engine_options options = {.config.text = "{\"train_batch_size\": 2}",
                                              .model.path = json,
                                              .inputs.seq_len = T,
                                              .seed = 5,
                                              .evaluate.loss = true};
    char path[128];
    sw_engine *e = NULL;
    path_of(model, path, sizeof path);
    SW_TRY(sw_initialize(&options, &e));
    const sw_status st = sw_export(e, path, SW_F32);
    sw_close(e);
    return st;
}

static int set_up(void **state)
{
    (void)state;
    all_axes = getenv("SPILLWAY_TILES") != NULL;
    for (int model = all_axes ? 0 : 1; model <= SLICED; model++) {
        char text[512];
        const bool sliced = model == SLICED;
        snprintf(text, sizeof text,
                 "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],"
                 "\"vocab_size\":%d,\"n_positions\":%d,\"n_embd\":%d,\"n_layer\":1,\"n_head\":%d,"
                 "\"n_inner\":%d,\"tie_word_embeddings\":%s}",
                 VOCAB, T, sliced ? SLICED_WIDTH : WIDTH, sliced ? 2 : 3,
                 sliced ? SLICED_INNER : INNER, model > 0 ? "true" : "false");
        if (write_model(model, text) < 0) {
            print_error("%s\n", sw_error_message());
            return 1;
        }
    }
    return 0;
}

struct math {
    const char *precision; /* a member of the configuration, or "" */
    int micro_batches;
    bool tied;
    const char *clip;
    const char *optimizer;
};

struct way {
    const char *states, *params; /* "none": not offloaded */
    const char *recompute, *schedule;
    const char *tile_bytes, *device_memory; /* or null */
    const char *kernels;
    int ranks;
    int tensor; /* ranks that share each matrix; 0 = one */
};

struct result {
    double losses[STEPS], norms[STEPS], eval;
    uint64_t weights;
    int64_t device_bytes;
    int n_tiled;
};

static void config_of(const struct math *math, const struct way *way, char *text, size_t size)
{
    char offload[512] = "";
    if (strcmp(way->params, "none") != 0) {
        snprintf(offload, sizeof offload,
                 "\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": %d, "
                 "\"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}, "
                 "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}}, ",
                 /* a few pieces per tile, or a loop over many */
                 strcmp(way->states, "nvme") == 0 ? 32768 : 300007, way->states, test_folder(),
                 way->params, test_folder());
    }
    snprintf(text, size,
             "{\"train_micro_batch_size_per_gpu\": %d, %s%s\"gradient_clipping\": %s, "
             "\"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": 0.01, \"weight_decay\": "
             "0.1}}, \"spillway\": {\"micro_batches\": %d, \"recompute\": \"%s\", \"schedule\": "
             "\"%s\", \"tile_bytes\": %s, \"device_memory\": %s, \"loss_chunk\": 1100, "
             "\"kernels\": \"%s\", \"mesh\": {\"tensor\": %d}}}",
             B, math->precision, offload, math->clip, math->optimizer, math->micro_batches,
             way->recompute, way->schedule, way->tile_bytes, way->device_memory, way->kernels,
             way->tensor > 0 ? way->tensor : 1);
}

static sw_status open_engine(const struct math *math, const struct way *way, sw_comm *comm,
                             bool plan_only, sw_engine **out)
{
    char config[2048], model[128];
    config_of(math, way, config, sizeof config);
    path_of(way->tensor > 0 ? SLICED : math->tied, model, sizeof model);
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = model,
        .inputs.seq_len = T,
        .run = {.comm = comm, .verify = true},
        .seed = 5,
        .train.wanted = true,
        .evaluate.loss = true,
        .plan.only = plan_only,
    };
    return sw_initialize(&options, out);
}

static uint64_t hash_weights(const sw_engine *e, const float *all)
{
    uint64_t h = SW_HASH_INIT;
    int64_t at = 0;
    for (int32_t i = 0; i < e->weights.params.n; i++) {
        const struct sw_persistent *item = e->weights.params.items[i].work;
        const int64_t elems = sw_shape_elems(&item->layout.whole);
        h += sw_hash(sw_hash_str(SW_HASH_INIT, item->name), all + at,
                     (size_t)elems * sizeof *all); /* in any order */
        at += elems;
    }
    return h;
}

static sw_status step(sw_engine *e, int64_t micro_batches, int i_step, struct result *result)
{
    enum { MOST = 4 };
    int32_t ids[MOST][B * T], labels[MOST][B * T];
    struct sw_tensor tensors[MOST][2];
    struct sw_batch batches[MOST];
    const struct sw_shape shape = SW_SHAPE(B, T);
    int64_t n = 0;
    for (int64_t k = e->data.rank; k < micro_batches || n == 0; k += e->data.size, n++) {
        for (int i = 0; i < B * T; i++) {
            const uint64_t at = (uint64_t)((i_step * micro_batches + k) * B * T + i);
            ids[n][i] = (int32_t)(sw_philox_u64(9, 1, at) % VOCAB);
            labels[n][i] = i % 5 == 3 ? -100 : (int32_t)(sw_philox_u64(9, 2, at) % VOCAB);
        }
        tensors[n][0] =
            (struct sw_tensor){"input_ids", {.data = ids[n], .dtype = SW_I32, .shape = shape}};
        tensors[n][1] =
            (struct sw_tensor){"labels", {.data = labels[n], .dtype = SW_I32, .shape = shape}};
        batches[n] = (struct sw_batch){tensors[n], 2};
    }
    struct sw_step_report report;
    double eval, count;
    SW_TRY(sw_train_batch(e, batches, sw_engine_local_micro_batches(e), &report));
    SW_TRY(sw_evaluate(e, &batches[0], &eval, &count));
    if (e->world.rank == 0) {
        result->losses[i_step] = report.loss;
        result->norms[i_step] = report.grad_norm;
        result->eval = eval;
    }
    return SW_OK;
}

struct job {
    const struct math *math;
    const struct way *way;
    int first, end; /* range of steps */
    const char *load, *save;
    struct result *result;
    float *weights; /* the whole model; each rank writes its own part */
};

/* Trains on one rank. */
static sw_status train(void *ctx, sw_comm *comm)
{
    const struct job *job = ctx;
    sw_engine *e = NULL;
    SW_TRY(open_engine(job->math, job->way, comm, false, &e));
    sw_status st = job->load ? sw_load(e, job->load) : SW_OK;
    for (int i = job->first; i < job->end && st >= 0; i++) {
        st = step(e, job->math->micro_batches, i, job->result);
    }
    if (st >= 0 && job->save) {
        st = sw_save(e, job->save, NULL);
    }
    if (st >= 0) {
        st = test_owned_weights(e, job->weights, MOST_ELEMS);
        st = st < 0 ? st : sw_comm_barrier(comm, "the weights");
    }
    if (st >= 0 && e->world.rank == 0) {
        job->result->device_bytes = sw_engine_tier_bytes(e, SW_TIER_DEVICE);
        job->result->n_tiled = e->plan->n_tiled;
        job->result->weights = hash_weights(e, job->weights);
    }
    sw_close(e);
    return st;
}

static void run_job(struct job *job)
{
    job->weights = calloc(MOST_ELEMS, sizeof *job->weights);
    assert_non_null(job->weights);
    if (sw_threads_run(job->way->ranks, 600, train, job) < 0) {
        fail_msg("%s", sw_error_message());
    }
    free(job->weights);
}

static struct result run(const struct math *math, const struct way *way)
{
    struct result result = {0};
    run_job(&(struct job){.math = math, .way = way, .end = STEPS, .result = &result});
    return result;
}

static void assert_same(const struct result *a, const struct result *b)
{
    assert_memory_equal(a->losses, b->losses, sizeof a->losses);
    assert_memory_equal(a->norms, b->norms, sizeof a->norms);
    assert_memory_equal(&a->eval, &b->eval, sizeof a->eval);
    assert_true(a->weights == b->weights);
}

static const char bf16[] = "\"bf16\": {\"enabled\": true}, ";
static const char fp16[] = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 8}, ";

/* Tiled matrices are large, so running every pair of math and way takes minutes. */

static const struct way whole = {"none", "none", "none", "horizontal", "null", "null",
                                 "fast", 1,      0};
static const struct math tied_bf16 = {bf16, 1, true, "0", "AdamW"};

/* The reference that several tests share is computed once. */
static const struct result *whole_tied_bf16(void)
{
    static struct result result;
    static bool made;
    if (!made) {
        result = run(&tied_bf16, &whole);
        made = true;
    }
    return &result;
}

static void tiles_give_the_bits_of_whole_parameters(void **state)
{
    const struct math maths[] = {
        {"", 4, false, "0.5", "AdamW"}, tied_bf16,
        {bf16, 4, true, "0", "AdamW"},  {fp16, 1, false, "0.5", "AdamW"},
        {fp16, 4, true, "0", "AdamW"},  {bf16, 4, true, "0.5", "Lamb"},
        {"", 1, false, "0", "Lamb"},
    };
    static const struct way ways[] = {
        {"cpu", "cpu", "none", "horizontal", "1000000", "null", "fast", 1, 0},
        {"nvme", "nvme", "blocks", "horizontal", "3000000", "null", "fast", 1, 0},
        {"nvme", "cpu", "blocks", "vertical", "1", "null", "fast", 1, 0},
        {"cpu", "nvme", "blocks", "horizontal", "2000000", "null", "fast", 2, 0},
        {"cpu", "cpu", "none", "vertical", "1000000", "null", "fast", 3, 0},
    };
    (void)state;
    for (size_t m = 0; m < SW_LEN(maths); m++) {
        if (!all_axes && m != 1 && m != 4) {
            continue;
        }
        const struct result one = m == 1 ? *whole_tied_bf16() : run(&maths[m], &whole);
        for (size_t w = all_axes ? 0 : 1 + m / 4; w < SW_LEN(ways); w += all_axes ? 1 : 2) {
            const struct result tiled = run(&maths[m], &ways[w]);
            print_message("math %zu, way %zu: %d tiled, device %lld B, whole %lld B\n", m, w,
                          tiled.n_tiled, (long long)tiled.device_bytes,
                          (long long)one.device_bytes);
            assert_int_equal(tiled.n_tiled, maths[m].tied ? 3 : 4);
            assert_same(&one, &tiled);
        }
    }
}

/* The parts of a matrix that ranks hold are tiled like whole ones, also if other ranks share their
 * tiles: each sums the gradients of its own slices. */
static void so_do_tiles_of_slices(void **state)
{
    static const struct way slices = {"none", "none", "none", "horizontal", "null", "null",
                                      "fast", 2,      2};
    static const struct way tiles = {"cpu",  "cpu", "blocks", "horizontal", "1000000", "null",
                                     "fast", 4,     2};
    static const struct math math = {bf16, 2, true, "0", "AdamW"};
    struct result results[2] = {{.n_tiled = 0}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        run_job(&(struct job){
            .math = &math, .way = i == 0 ? &slices : &tiles, .end = 1, .result = &results[i]});
    }
    assert_int_equal(results[0].n_tiled, 0);
    assert_int_equal(results[1].n_tiled, 2); /* both matrices of the inner layer */
    assert_same(&results[0], &results[1]);
}

static void so_do_the_plain_kernels(void **state)
{
    static const struct way plain = {"none",      "none", "none", "horizontal", "null", "null",
                                     "reference", 1,      0};
    static const struct way tiled = {"cpu",       "cpu", "none", "horizontal", "1000000", "null",
                                     "reference", 1,     0};
    (void)state;
    if (!all_axes) {
        skip();
    }
    const struct result one = run(&tied_bf16, &plain), two = run(&tied_bf16, &tiled);
    assert_same(&one, &two);
}

/* A file has whole tensors, whoever wrote it. */
static void checkpoints_know_nothing_of_tiles(void **state)
{
    static const struct way tiled = {"cpu",  "nvme", "none", "horizontal", "1000000", "null",
                                     "fast", 2,      0};
    const struct way *ways[] = {&tiled, &whole};
    char path[128];
    (void)state;
    const struct result one = *whole_tied_bf16();
    for (int first = 0; first < 2; first++) {
        struct result result = one;
        struct job saves = {&tied_bf16, ways[first], 0, 1, NULL, path, &result, NULL};
        struct job goes_on = {&tied_bf16, ways[!first], 1, 2, path, NULL, &result, NULL};
        snprintf(path, sizeof path, "%s/saved%d", test_folder(), first);
        run_job(&saves);
        run_job(&goes_on);
        assert_same(&one, &result);
    }
}

/* Least bytes that a plan needs, read from its refusal. */
static int64_t least_bytes(const char *tile_bytes)
{
    const struct way way = {"cpu", "cpu", "blocks", "horizontal", tile_bytes, "1", "fast", 1, 0};
    sw_engine *e = NULL;
    assert_int_equal(open_engine(&tied_bf16, &way, NULL, true, &e), SW_E_NOMEM);
    const char *needs = strstr(sw_error_message(), "needs ");
    assert_non_null(needs);
    assert_non_null(strstr(sw_error_message(), "spillway.tile_bytes"));
    return strtoll(needs + strlen("needs "), NULL, 10);
}

static void the_peak_falls_with_the_tiles(void **state)
{
    (void)state;
    const int64_t none = least_bytes("\"1GiB\""), large = least_bytes("\"8MiB\"");
    const int64_t small = least_bytes("\"1MiB\"");
    print_message("device: %lld, %lld, %lld B\n", (long long)none, (long long)large,
                  (long long)small);
    assert_true(large < none);
    assert_true(small < large);
}

static void a_budget_too_small_for_whole_parameters_has_tiles(void **state)
{
    struct way way = {"cpu", "cpu", "blocks", "horizontal", "null", "null", "fast", 1, 0};
    char budget[32];
    (void)state;
    const struct result one = *whole_tied_bf16();
    const int64_t none = least_bytes("\"1GiB\""), large = least_bytes("\"8MiB\"");
    way.device_memory = budget;
    for (way.ranks = 1; way.ranks <= 2; way.ranks++) {
        /* with several ranks the need is a little lower, because kernels have fewer threads */
        snprintf(budget, sizeof budget, "%lld",
                 (long long)(way.ranks == 1 ? none - 1 : (none + large) / 2));
        const struct result tiled = run(&tied_bf16, &way);
        assert_true(tiled.n_tiled > 0);
        assert_true(tiled.device_bytes <= atoll(budget));
        assert_same(&one, &tiled);
    }
}

/* All experts of a block together exceed the budget, and the matrices of one do not, with kernels
 * that have no workspace. A matrix is a tile. */
static void experts_have_tiles_within_a_budget(void **state)
{
    static const char model[] =
        "{\"model_type\": \"mixtral\", \"vocab_size\": 64, \"hidden_size\": 64, "
        "\"intermediate_size\": 256, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
        "\"num_key_value_heads\": 2, \"num_local_experts\": 8}";
    char config[1024];
    sw_engine *e = NULL;
    (void)state;
    snprintf(
        config, sizeof config,
        "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
        "{\"lr\": 0.001}}, \"zero_optimization\": {\"stage\": 3, "
        "\"stage3_param_persistence_threshold\": 1000, \"offload_param\": {\"device\": \"nvme\", "
        "\"nvme_path\": \"%s\"}, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": "
        "\"%s\"}}, \"spillway\": {\"kernels\": \"reference\", \"device_memory\": 700000, "
        "\"recompute\": \"blocks\"}}",
        test_folder(), test_folder());
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = model,
                                              .inputs.seq_len = 8,
                                              .train.wanted = true,
                                              .plan.only = true};
    if (sw_initialize(&options, &e) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_true(e->plan->n_tiled >= 2 * 8 * 3);
    for (int32_t i = 0; i < e->plan->n_tiled; i++) {
        assert_int_equal(e->plan->tiled[i].n_tiles, 1);
    }
    sw_close(e);
}

static void assert_refused(const char *config)
{
    char model[128];
    path_of(1, model, sizeof model);
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = model,
                                              .inputs.seq_len = T,
                                              .train.wanted = true,
                                              .plan.only = true};
    sw_engine *e = NULL;
    assert_int_equal(sw_initialize(&options, &e), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "spillway.tile_bytes"));
}

static void refusals_name_the_key(void **state)
{
    (void)state;
#define ADAM "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
#define OFFLOAD(optimizer)                                                                         \
    "\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}, "             \
    "\"offload_optimizer\": {\"device\": \"" optimizer "\"}}, "
#define TILES "\"spillway\": {\"tile_bytes\": 100000}}"
    assert_refused("{\"train_batch_size\": 2, " ADAM TILES);
    assert_refused("{\"train_batch_size\": 2, " ADAM OFFLOAD("none") TILES);
    assert_refused(
        "{\"train_batch_size\": 2, " ADAM OFFLOAD("cpu") "\"spillway\": {\"tile_bytes\": -1}}");
    assert_refused("{\"train_batch_size\": 2, " ADAM OFFLOAD(
        "cpu") "\"spillway\": {\"tile_bytes\": \"many\"}}");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(refusals_name_the_key),
    cmocka_unit_test(the_peak_falls_with_the_tiles),
    cmocka_unit_test(a_budget_too_small_for_whole_parameters_has_tiles),
    cmocka_unit_test(experts_have_tiles_within_a_budget),
    cmocka_unit_test(tiles_give_the_bits_of_whole_parameters),
    cmocka_unit_test(so_do_tiles_of_slices),
    cmocka_unit_test(so_do_the_plain_kernels),
    cmocka_unit_test(checkpoints_know_nothing_of_tiles),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
