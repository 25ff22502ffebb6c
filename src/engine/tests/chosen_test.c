// SPDX-License-Identifier: Apache-2.0
// COST 1
// Experts that no token has chosen are not loaded where a program has few tokens. In generation
// each token loads the experts that it has chosen, from the host and from the disk. Text and
// evaluation have the same bits as with all parameters on the device. Programs with many tokens
// load all.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
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
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
