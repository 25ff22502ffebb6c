// SPDX-License-Identifier: Apache-2.0
// COST 1
// Experts that no token has chosen are not loaded where a program has few tokens. In generation
// each token loads the experts that it has chosen, from the host and from the disk. Forward and
// backward of training load those of their micro-batch. Text, evaluation, losses and weights have
// the same bits as with all parameters on the device. Programs with many tokens load all.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

enum {
    LAYERS = 2,
    EXPERTS = 8,
    CHOSEN = 2,
    WIDTH = 12,
    INNER = 10,
    VOCAB = 19,
    PROMPT = 3,
    NEW = 4,
    B = 1,
    STEPS = 3,
    K = 2, /* micro-batches of a step */
    MOST_ELEMS = 1 << 14,
    MATRIX_BYTES = WIDTH * INNER * (int)sizeof(float),
    EXPERT_BYTES = 3 * MATRIX_BYTES
};

struct job {
    const char *device, *tier; /* tier NULL: nothing is offloaded */
    const char *more;          /* keys of zero_optimization */
    int tokens;                /* of an evaluation */
    int expert;                /* ranks of the expert axis */
    /* results */
    int32_t text[NEW];
    double sum;
    struct sw_transfers generated, evaluated; /* on rank 0 */
};

static sw_status open_engine(const struct job *job, sw_comm *comm, sw_engine **out)
{
    char config[1024];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"zero_optimization\": {\"stage\": 3, "
             "\"stage3_param_persistence_threshold\": 30%s%s%s%s%s%s}, \"spillway\": {\"threads\": "
             "1, \"mesh\": {\"expert\": %d}}}",
             B, job->tier ? ", \"offload_param\": {\"device\": \"" : "", job->tier ? job->tier : "",
             job->tier ? "\", \"nvme_path\": \"" : "", job->tier ? test_folder() : "",
             job->tier ? "\"}" : "", job->more ? job->more : "", job->expert);
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = test_at("mixtral.json"),
        .inputs.seq_len = job->tokens,
        .run = {.comm = comm, .verify = true, .device = job->device},
        .seed = 5,
        .evaluate.loss = true,
        .generate = {.wanted = true, .tokens = 12}};
    return sw_initialize(&options, out);
}

static void subtract(struct sw_transfers *from, const struct sw_transfers *before)
{
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        from->in[t] -= before->in[t];
        from->unchosen[t] -= before->unchosen[t];
    }
}

static sw_status run(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    struct sw_transfers before, between, after;
    int32_t ids[16], text[NEW];
    int64_t n_new = 0;
    double sum = 0, count;
    sw_engine *e = NULL;
    SW_TRY(open_engine(job, comm, &e));
    for (int i = 0; i < 16; i++) {
        ids[i] = (int32_t)(sw_philox_u64(9, 1, (uint64_t)i) % VOCAB);
    }
    const struct sw_shape shape = {2, {B, job->tokens}};
    const struct sw_tensor tensors[2] = {{"input_ids", {ids, SW_I32, shape, {0}}},
                                         {"labels", {ids, SW_I32, shape, {0}}}};
    sw_executor_transferred(e->executor, &before);
    sw_status st = sw_generate(e, ids, PROMPT, NEW, NULL, text, &n_new, NULL);
    sw_executor_transferred(e->executor, &between);
    st = st < 0 ? st : sw_evaluate(e, &(struct sw_batch){tensors, 2}, &sum, &count);
    sw_executor_transferred(e->executor, &after);
    if (st >= 0 && e->world.rank == 0) {
        subtract(&after, &between);
        subtract(&between, &before);
        memcpy(job->text, text, sizeof text);
        job->sum = sum;
        job->generated = between;
        job->evaluated = after;
    }
    sw_close(e);
    return st;
}

static struct job run_it(struct job job)
{
    job.expert = job.expert > 0 ? job.expert : 1;
    if (sw_threads_run(job.expert, 60, run, &job) < 0) {
        fail_msg("%s, %s: %s", job.device, job.tier ? job.tier : "all here", sw_error_message());
    }
    return job;
}

static const struct {
    const char *device, *tier, *more;
    enum sw_tier from;
} places[] = {{"cpu", "cpu", NULL, SW_TIER_HOST},
              {"cpu:reference", "nvme", ", \"sub_group_size\": 64", SW_TIER_DISK},
              {"mock", "cpu", NULL, SW_TIER_HOST},
              {"mock:early", "nvme", ", \"sub_group_size\": 64", SW_TIER_DISK}};

/* The prompt is shorter than a chunk, so each run has one token. The last one is not run. */
static void a_token_loads_its_experts(void **state)
{
    enum { RUNS = PROMPT + NEW - 1 };
    (void)state;
    for (size_t i = 0; i < SW_LEN(places); i++) {
        struct job job = {.device = places[i].device, .tokens = 12};
        const struct job here = run_it(job);
        job.tier = places[i].tier;
        job.more = places[i].more;
        const struct job far = run_it(job);
        const int64_t left_out = far.generated.unchosen[places[i].from];
        assert_int_equal(left_out, (int64_t)RUNS * LAYERS * (EXPERTS - CHOSEN) * EXPERT_BYTES);
        assert_true(far.generated.in[places[i].from] >=
                    (int64_t)RUNS * LAYERS * CHOSEN * EXPERT_BYTES);
        assert_int_equal(here.generated.unchosen[places[i].from], 0);
        assert_memory_equal(here.text, far.text, sizeof here.text);
        assert_memory_equal(&here.sum, &far.sum, sizeof here.sum);
    }
}

/* One token may leave experts without rows, and many are expected to reach all. */
static void many_tokens_load_all(void **state)
{
    (void)state;
    struct job job = {.device = "cpu", .tier = "cpu", .tokens = 12};
    assert_int_equal(run_it(job).evaluated.unchosen[SW_TIER_HOST], 0);
    job.tokens = 2;
    const int64_t left_out = run_it(job).evaluated.unchosen[SW_TIER_HOST];
    assert_true(left_out >= LAYERS * (EXPERTS - 2 * CHOSEN) * EXPERT_BYTES);
    assert_int_equal(left_out % EXPERT_BYTES, 0);
}

/* Ranks of the expert axis ask for the rows of all of them. */
static void ranks_of_experts_load_what_any_chose(void **state)
{
    (void)state;
    struct job job = {.device = "cpu", .tokens = 2, .expert = 2};
    const struct job here = run_it(job);
    job.tier = "cpu";
    const struct job far = run_it(job);
    assert_memory_equal(here.text, far.text, sizeof here.text);
    assert_memory_equal(&here.sum, &far.sum, sizeof here.sum);
    assert_true(far.generated.unchosen[SW_TIER_HOST] > 0);
}

/* ---- training ---- */

struct training {
    const char *device, *tier;
    const char *spillway; /* further keys */
    int pipe, expert, tokens;
    bool updates_in_forward; /* which reads the updated parameter as a whole */
    /* results */
    struct sw_step_report reports[STEPS];
    float weights[MOST_ELEMS];
    struct sw_transfers moved; /* on rank 0 */
};

static sw_status open_training(const struct training *t, sw_comm *comm, sw_engine **out)
{
    char config[1024], tier[256] = "";
    if (t->tier) {
        snprintf(tier, sizeof tier,
                 ", \"sub_group_size\": 64, \"offload_param\": {\"device\": \"%s\", "
                 "\"nvme_path\": \"%s\"}, \"offload_optimizer\": {\"device\": \"%s\", "
                 "\"nvme_path\": \"%s\"}",
                 t->tier, test_folder(), t->tier, test_folder());
    }
    snprintf(
        config, sizeof config,
        "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": 0.5, "
        "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 30%s}, "
        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01, \"weight_decay\": "
        "0.1}}, \"spillway\": {\"micro_batches\": %d, \"threads\": 1, %s\"mesh\": {\"pipe\": %d, "
        "\"expert\": %d}}}",
        B, tier, K, t->spillway && t->tier ? t->spillway : "", t->pipe, t->expert);
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = test_at("mixtral.json"),
        .inputs.seq_len = t->tokens,
        .run = {.comm = comm, .verify = true, .device = t->device},
        .seed = 5,
        .train.wanted = true};
    return sw_initialize(&options, out);
}

static sw_status train(void *ctx, sw_comm *comm)
{
    struct training *t = ctx;
    sw_engine *e = NULL;
    sw_status st = open_training(t, comm, &e);
    for (int i = 0; st >= 0 && i < STEPS; i++) {
        struct sw_step_report report;
        st = test_train_step(e, K, B, t->tokens, VOCAB, &report);
        if (st >= 0 && e->world.rank == 0) {
            t->reports[i] = report;
        }
    }
    if (st >= 0 && e->world.rank == 0) {
        sw_executor_transferred(e->executor, &t->moved);
    }
    st = st < 0 ? st : test_owned_weights(e, t->weights, MOST_ELEMS);
    sw_close(e);
    return st;
}

static void train_it(struct training *t)
{
    t->pipe = t->pipe > 0 ? t->pipe : 1;
    t->expert = t->expert > 0 ? t->expert : 1;
    t->tokens = t->tokens > 0 ? t->tokens : 2;
    if (sw_threads_run(t->pipe * t->expert, 60, train, t) < 0) {
        fail_msg("%s, %s, %s: %s", t->device, t->tier ? t->tier : "all here",
                 t->spillway ? t->spillway : "", sw_error_message());
    }
}

/* Each micro-batch uses the matrices of all layers once in forward and once in backward, whether
 * that computes the block again or not. Its 2 tokens have chosen between 2 and 4 experts. */
static void training_loads_the_experts_of_a_micro_batch(void **state)
{
    static const struct training rows[] = {
        {.device = "cpu", .tier = "cpu"},
        {.device = "cpu:reference", .tier = "nvme", .spillway = "\"recompute\": \"blocks\", "},
        {.device = "mock", .tier = "cpu", .spillway = "\"recompute\": \"blocks\", "},
        {.device = "mock:early", .tier = "nvme"},
        {.device = "mock",
         .tier = "nvme",
         .spillway = "\"clipped_update\": \"next_forward\", ",
         .updates_in_forward = true},
        {.device = "mock", .tier = "cpu", .pipe = 2},
        {.device = "cpu", .tier = "nvme", .expert = 2},
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        struct training far = rows[i], here = rows[i];
        here.tier = NULL;
        train_it(&far);
        train_it(&here);
        const enum sw_tier from = strcmp(far.tier, "cpu") == 0 ? SW_TIER_HOST : SW_TIER_DISK;
        const int64_t chosen = far.moved.chosen[from], left_out = far.moved.unchosen[from];
        const int64_t phases = far.updates_in_forward ? 1 : 2;
        const int64_t uses = phases * STEPS * K * LAYERS / far.pipe;
        if (far.expert == 1) {
            assert_int_equal(chosen + left_out, uses * EXPERTS * EXPERT_BYTES);
            assert_true(chosen >= uses * CHOSEN * EXPERT_BYTES);
            assert_true(chosen <= uses * 2 * CHOSEN * EXPERT_BYTES);
        }
        assert_int_equal(left_out % (phases * EXPERT_BYTES), 0);
        assert_true(left_out > 0);
        assert_int_equal(here.moved.unchosen[from], 0);
        assert_memory_equal(far.reports, here.reports, sizeof far.reports);
        assert_memory_equal(far.weights, here.weights, sizeof far.weights);
    }
}

/* Micro-batches that share a load, and those with many tokens, load all experts. */
static void training_loads_all(void **state)
{
    (void)state;
    struct training shared = {
        .device = "cpu", .tier = "cpu", .spillway = "\"schedule\": \"vertical\", "};
    train_it(&shared);
    assert_int_equal(shared.moved.unchosen[SW_TIER_HOST], 0);
    struct training many = {.device = "cpu", .tier = "cpu", .tokens = 12};
    train_it(&many);
    assert_int_equal(many.moved.unchosen[SW_TIER_HOST], 0);
}

static int set_up(void **state)
{
    (void)state;
    char config[512];
    snprintf(config, sizeof config,
             "{\"model_type\":\"mixtral\",\"vocab_size\":%d,\"max_position_embeddings\":12,"
             "\"hidden_size\":%d,\"intermediate_size\":%d,\"num_hidden_layers\":%d,"
             "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"num_local_experts\":%d,"
             "\"num_experts_per_tok\":%d}",
             VOCAB, WIDTH, INNER, LAYERS, EXPERTS, CHOSEN);
    test_put("mixtral.json", config);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_token_loads_its_experts),
    cmocka_unit_test(many_tokens_load_all),
    cmocka_unit_test(ranks_of_experts_load_what_any_chose),
    cmocka_unit_test(training_loads_the_experts_of_a_micro_batch),
    cmocka_unit_test(training_loads_all),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
