// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 600
// COST 20
// SLOW SPILLWAY_LOOPS=all
// Updates whose pieces are one loop instruction each. They have the bits of a run that holds
// everything on the device, for any number of turns, and their plans are small.
#include <stdio.h>

#include "engine/private.h"
#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

/* Matrices of 25600, 76800 and 401600 elements: 12, 37 and 196 pieces of 2048, and a rest. A third
 * of the last matrix still makes a loop. */
enum { B = 2, T = 4, VOCAB = 203, STEPS = 2, PIECE = 2048 };

/* The wide model has a matrix with several pieces of the size that 8-bit codes require. Its scales
 * are whole disk blocks, too. */
static const struct {
    int layers, inner;
    int64_t most_elems; /* in all parameters */
} models[] = {{1, 2510, 1 << 20}, {1, 105001, 1 << 26}};
enum { SMALL, WIDE };

static bool all;

static int set_up(void **state)
{
    (void)state;
    all = getenv("SPILLWAY_LOOPS") != NULL;
    for (size_t i = 0; i < SW_LEN(models); i++) {
        char text[512], name[16];
        snprintf(text, sizeof text,
                 "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],"
                 "\"vocab_size\":%d,\"n_positions\":%d,\"n_embd\":160,\"n_layer\":%d,"
                 "\"n_head\":4,\"n_inner\":%d}",
                 VOCAB, T, models[i].layers, models[i].inner);
        snprintf(name, sizeof name, "%zu.json", i);
        test_put(name, text);
    }
    return 0;
}

struct math {
    int model;
    const char *precision;
    const char *optimizer, *params; /* params: the optimizer's parameters */
    int micro_batches;
    const char *clip;
};

struct way {
    const char *device;
    const char *states, *where; /* device that holds the parameters */
    int64_t piece;              /* sub_group_size; if larger than all tensors, there are no loops */
    const char *transfer_bytes; /* or "null" */
    const char *schedule;
    int ranks;
};

struct result {
    double losses[STEPS], norms[STEPS];
    uint64_t weights;
    int32_t n_loops, n_instrs, turns;
};

static void config_of(const struct math *math, const struct way *way, char *text, size_t size)
{
    char offload[512] = "";
    if (strcmp(way->states, "none") != 0) {
        snprintf(offload, sizeof offload,
                 "\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": %lld, "
                 "\"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}, "
                 "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}}, ",
                 (long long)way->piece, way->states, test_folder(), way->where, test_folder());
    }
    snprintf(text, size,
             "{\"train_micro_batch_size_per_gpu\": %d, %s%s\"gradient_clipping\": %s, "
             "\"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": 0.01, %s}}, \"spillway\": "
             "{\"micro_batches\": %d, \"update\": \"device\", \"schedule\": \"%s\", "
             "\"transfer_bytes\": %s}}",
             B, math->precision, offload, math->clip, math->optimizer, math->params,
             math->micro_batches, way->schedule, way->transfer_bytes);
}

static sw_status step(sw_engine *e, int64_t micro_batches, int i_step, struct result *result)
{
    enum { MOST = 4 };
    int32_t ids[MOST][B * T];
    struct sw_tensor tensors[MOST][2];
    struct sw_batch batches[MOST];
    const struct sw_shape shape = SW_SHAPE(B, T);
    int64_t n = 0;
    for (int64_t k = e->data.rank; k < micro_batches || n == 0; k += e->data.size, n++) {
        for (int i = 0; i < B * T; i++) {
            const uint64_t at = (uint64_t)((i_step * micro_batches + k) * B * T + i);
            ids[n][i] = (int32_t)(sw_philox_u64(9, 1, at) % VOCAB);
        }
        const struct sw_view view = {.data = ids[n], .dtype = SW_I32, .shape = shape};
        tensors[n][0] = (struct sw_tensor){"input_ids", view};
        tensors[n][1] = (struct sw_tensor){"labels", view};
        batches[n] = (struct sw_batch){tensors[n], 2};
    }
    struct sw_step_report report;
    SW_TRY(sw_train_batch(e, batches, sw_engine_local_micro_batches(e), &report));
    if (e->data.rank == 0) {
        result->losses[i_step] = report.loss;
        result->norms[i_step] = report.grad_norm;
    }
    return SW_OK;
}

struct job {
    const struct math *math;
    const struct way *way;
    struct result *result;
    float *weights; /* the whole model; each rank writes its own part */
};

/* Trains on one rank. */
static sw_status train(void *ctx, sw_comm *comm)
{
    const struct job *job = ctx;
    char config[2048], model[128];
    sw_engine *e = NULL;
    snprintf(model, sizeof model, "%s/%d.json", test_folder(), job->math->model);
    config_of(job->math, job->way, config, sizeof config);
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = model,
        .inputs.seq_len = T,
        .run = {.comm = comm, .device = job->way->device, .verify = true},
        .seed = 5,
        .train.wanted = true,
    };
    SW_TRY(sw_initialize(&options, &e));
    sw_status st = SW_OK;
    for (int i = 0; i < STEPS && st >= 0; i++) {
        st = step(e, job->math->micro_batches, i, job->result);
    }
    if (st >= 0) {
        st = test_owned_weights(e, job->weights, models[job->math->model].most_elems);
        st = st < 0 ? st : sw_comm_barrier(comm, "the weights");
    }
    if (st >= 0 && e->data.rank == 0) {
        const struct sw_program *program = &e->plan->programs[0];
        job->result->n_loops = program->n_loops;
        job->result->n_instrs = program->n_instrs;
        job->result->turns = program->turns;
        job->result->weights =
            sw_hash(SW_HASH_INIT, job->weights,
                    (size_t)models[job->math->model].most_elems * sizeof *job->weights);
    }
    sw_close(e);
    return st;
}

static struct result run(const struct math *math, const struct way *way)
{
    struct result result = {0};
    struct job job = {math, way, &result,
                      calloc((size_t)models[math->model].most_elems, sizeof(float))};
    assert_non_null(job.weights);
    if (sw_threads_run(way->ranks, 300, train, &job) < 0) {
        fail_msg("%s", sw_error_message());
    }
    free(job.weights);
    return result;
}

static void assert_same(const struct result *a, const struct result *b)
{
    assert_memory_equal(a->losses, b->losses, sizeof a->losses);
    assert_memory_equal(a->norms, b->norms, sizeof a->norms);
    assert_true(a->weights == b->weights);
}

static const char adam[] = "\"weight_decay\": 0.1";
static const struct way whole = {"cpu:reference", "none", "none", 0, "null", "horizontal", 1};
static const struct math maths[] = {
    {SMALL, "\"bf16\": {\"enabled\": true}, ", "AdamW", adam, 1, "1.0"},
    {SMALL, "", "AdamW", adam, 2, "0"},
    {SMALL, "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 8}, ", "AdamW", adam, 2, "0.5"},
    {SMALL, "\"bf16\": {\"enabled\": true}, ", "SGD", "\"momentum\": 0.9", 3, "0"},
    {SMALL, "", "Lion", adam, 1, "0.5"},
};

/* A piece of one state is 16 KiB. The ways range from one turn, where loads and stores alternate,
 * to the maximum. */
static const struct way ways[] = {
    {"cpu:reference", "nvme", "nvme", PIECE, "null", "horizontal", 1},
    {"cpu:reference", "nvme", "cpu", PIECE, "0", "horizontal", 2},
    {"mock", "nvme", "nvme", PIECE, "60000", "vertical", 1},
    {"mock:early", "nvme", "cpu", PIECE, "10000", "horizontal", 1},
    {"cpu:reference", "cpu", "none", PIECE, "180000", "horizontal", 3},
    {"mock", "cpu", "cpu", PIECE, "0", "horizontal", 2},
    {"mock:early", "nvme", "none", 2 * PIECE - 1, "null", "vertical", 2}, /* no loops */
    {"mock", "nvme", "nvme", PIECE, "null", "horizontal", 3},
};

static void loops_give_the_bits_of_states_on_the_device(void **state)
{
    uint32_t turns = 0; /* one bit for each number of turns seen */
    (void)state;
    for (size_t m = 0; m < SW_LEN(maths); m++) {
        const struct result one = run(&maths[m], &whole);
        for (size_t w = 0; w < SW_LEN(ways); w++) {
            if (!all && (m + w) % 4 != 0) {
                continue;
            }
            const struct result looped = run(&maths[m], &ways[w]);
            print_message("math %zu, way %zu: %d loops, %d turns, %d instructions\n", m, w,
                          looped.n_loops, looped.turns, looped.n_instrs);
            assert_true((looped.n_loops > 0) == (ways[w].piece == PIECE));
            assert_same(&one, &looped);
            turns |= looped.n_loops > 0 ? 1U << looped.turns : 0;
        }
    }
    assert_true(turns & 1U << 1 && turns & (1U << 2 | 1U << 3) && turns & 1U << 8);
}

/* A scale covers 256 elements, and no piece splits them. */
static void so_do_moments_of_8_bits(void **state)
{
    static const struct math coded = {WIDE, "", "AdamW8bit", adam, 1, "0"};
    static const struct way there = {"cpu", "none", "none", 0, "null", "horizontal", 1};
    static const struct way piecewise[] = {
        {"cpu", "nvme", "nvme", PIECE * 128, "null", "horizontal", 1},
        {"mock", "cpu", "nvme", PIECE * 128, "1000000", "horizontal", 1}};
    (void)state;
    for (int w = 0; w < 2; w++) {
        if (!all) {
            skip();
        }
        struct way whole_there = there;
        whole_there.device = w ? "cpu:reference" : "cpu";
        const struct result one = run(&coded, &whole_there), looped = run(&coded, &piecewise[w]);
        assert_int_equal(looped.n_loops, 2);
        assert_same(&one, &looped);
    }
}

static void so_does_an_emulated_gpu(void **state)
{
    struct way gpu = whole, looped = ways[0];
    (void)state;
    if (!all) {
        skip();
    }
    gpu.device = looped.device = "emu";
    for (size_t m = 0; m < SW_LEN(maths); m++) {
        const struct result one = run(&maths[m], &gpu), two = run(&maths[m], &looped);
        assert_true(two.n_loops > 0);
        assert_same(&one, &two);
    }
}

/* A loop does the same work as its pieces, with the same kernels, in fewer instructions. */
static void a_loop_stands_for_its_pieces(void **state)
{
    static const struct way loops = {"cpu:reference", "nvme",       "cpu", PIECE,
                                     "null",          "horizontal", 1};
    static const struct way single = {"cpu:reference", "nvme",       "cpu", PIECE + 1,
                                      "null",          "horizontal", 1};
    (void)state;
    const struct result a = run(&maths[0], &loops), b = run(&maths[0], &single);
    print_message("%d instructions, or %d\n", a.n_instrs, b.n_instrs);
    assert_same(&a, &b);
    assert_true(a.n_loops > 0 && b.n_loops == 0);
    assert_true(3 * a.n_instrs < b.n_instrs);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(loops_give_the_bits_of_states_on_the_device),
    cmocka_unit_test(so_do_moments_of_8_bits),
    cmocka_unit_test(so_does_an_emulated_gpu),
    cmocka_unit_test(a_loop_stands_for_its_pieces),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
