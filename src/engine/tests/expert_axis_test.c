// SPDX-License-Identifier: Apache-2.0
// COST 3
// Ranks of the expert axis, which have the experts of a layer among them and micro-batches of their
// own: losses, norms, weights, evaluation and text have the bits of one rank, or of the ranks along
// tensor and context, also with stages of a pipeline, of ZeRO, other dtypes, a capacity, tiers and
// recomputation. Each expert is held once. Checkpoints load on any other number of ranks. What
// cannot be had is refused by name.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
#include "engine/tests/matrix.h"
#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, T = 6, V = 19, K = 4, STEPS = 3, MOST_ELEMS = 1 << 16, NEW = 3 };

static const char mixtral_json[] =
    "{\"model_type\":\"mixtral\",\"vocab_size\":19,\"max_position_embeddings\":12,"
    "\"hidden_size\":12,\"intermediate_size\":10,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"num_local_experts\":4,"
    "\"num_experts_per_tok\":2,\"output_router_logits\":true,\"router_aux_loss_coef\":0.1}";
static const char deepseek_json[] =
    "{\"model_type\":\"deepseek_v3\",\"vocab_size\":19,\"max_position_embeddings\":12,"
    "\"hidden_size\":12,\"intermediate_size\":10,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"n_routed_experts\":4,"
    "\"num_experts_per_tok\":3,\"n_group\":2,\"topk_group\":2,\"first_k_dense_replace\":1,"
    "\"moe_intermediate_size\":12,\"n_shared_experts\":1,\"q_lora_rank\":9,\"kv_lora_rank\":7,"
    "\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,\"v_head_dim\":5}";

static const char gpt_oss_json[] =
    "{\"model_type\":\"gpt_oss\",\"vocab_size\":19,\"max_position_embeddings\":12,"
    "\"hidden_size\":12,\"intermediate_size\":10,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":6,\"num_local_experts\":4,"
    "\"num_experts_per_tok\":2,\"sliding_window\":4,\"output_router_logits\":true}";

struct job {
    const char *model;
    int expert, pipe, data, context, tensor, stage;
    int n_micro;                       /* 0 = K */
    const char *top, *zero, *spillway; /* further keys */
    const char *device;
    const char *load, *save;
    bool idle; /* trains no step */
    bool logits;
    /* results */
    double losses[STEPS], norms[STEPS], evaluated;
    int32_t text[NEW];
    int64_t held[8]; /* bytes of parameters that each rank has */
    float weights[MOST_ELEMS];
    sw_status status;
    char message[512];
};

static sw_status open_engine(const struct job *job, sw_comm *comm, sw_engine **out)
{
    char config[1536];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, %s \"zero_optimization\": {\"stage\": %d, "
             "\"stage3_param_persistence_threshold\": 30%s}, \"optimizer\": {\"type\": \"AdamW\", "
             "\"params\": {\"lr\": 0.003}}, \"spillway\": {\"micro_batches\": %d, \"threads\": 1, "
             "%s \"mesh\": {\"expert\": %d, \"pipe\": %d, \"context\": %d, \"tensor\": %d}}}",
             B, job->top ? job->top : "\"gradient_clipping\": 0.5,", job->stage,
             job->zero ? job->zero : "", job->n_micro > 0 ? job->n_micro : K,
             job->spillway ? job->spillway : "", job->expert, job->pipe,
             job->context > 0 ? job->context : 1, job->tensor > 0 ? job->tensor : 1);
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = test_at(job->model),
        .inputs.seq_len = T,
        .run = {.comm = comm, .verify = true, .device = job->device},
        .seed = 5,
        .train.wanted = true,
        .evaluate = {.loss = true, .logits = job->logits, .hidden = job->logits},
        .generate = {.wanted = true, .tokens = 6}};
    return sw_initialize(&options, out);
}

/* Evaluates a batch, and continues a prompt. */
static sw_status look(struct job *job, sw_engine *e)
{
    const struct sw_sampling drawn = {.temperature = 2, .seed = 3, .stop_id = -1};
    const struct sw_shape shape = {2, {B, T}};
    int32_t ids[B * T], text[NEW];
    int64_t n_new = 0;
    double sum, count;
    for (int i = 0; i < B * T; i++) {
        ids[i] = (int32_t)(sw_philox_u64(9, 1, (uint64_t)i) % V);
    }
    const struct sw_tensor tensors[2] = {{"input_ids", {ids, SW_I32, shape, {0}}},
                                         {"labels", {ids, SW_I32, shape, {0}}}};
    SW_TRY(sw_evaluate(e, &(struct sw_batch){tensors, 2}, &sum, &count));
    SW_TRY(sw_generate(e, ids, 3, NEW, &drawn, text, &n_new, NULL));
    if (e->world.rank == 0) {
        job->evaluated = sum / count;
        memcpy(job->text, text, sizeof text);
    }
    return SW_OK;
}

static void count_held(struct job *job, const struct sw_engine *e)
{
    for (int32_t i = 0; i < e->plan->n_persistent; i++) {
        const struct sw_persistent *item = &e->plan->persistent[i];
        job->held[e->world.rank] += item->role == SW_ROLE_PARAM ? sw_layout_held(&item->layout) : 0;
    }
}

/* The steps sent no more than the plan says. */
static sw_status check_bound(const sw_engine *e, int steps)
{
    const int group = sw_plan_group(e->plan, 1U << SW_AXIS_EXPERT);
    struct sw_traffic traffic;
    if (group < 0) {
        return SW_OK;
    }
    sw_executor_traffic(e->executor, group, &traffic);
    const int64_t sent = traffic.sent[SW_COMM_ALL_TO_ALL];
    const int64_t bound = steps * sw_plan_group_bytes(e->plan, group);
    return (sent > 0) == (bound > 0) && sent <= bound
               ? SW_OK
               : SW_FAIL(SW_E_ARG, "rank %d sent %lld bytes to experts, at most %lld",
                         e->world.rank, (long long)sent, (long long)bound);
}

static sw_status train(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    sw_engine *e = NULL;
    struct sw_step_report report;
    sw_status st = open_engine(job, comm, &e);
    st = st >= 0 && job->load ? sw_load(e, job->load) : st;
    for (int i = 0; st >= 0 && i < STEPS && !job->idle; i++) {
        st = test_train_step(e, K, B, T, V, &report);
        st = st < 0 ? st : test_same_reports(e, &report);
        if (st >= 0 && e->world.rank == 0) {
            job->losses[i] = report.loss;
            job->norms[i] = report.grad_norm;
        }
    }
    st = st < 0 || job->idle ? st : check_bound(e, STEPS);
    if (st >= 0) {
        count_held(job, e);
    }
    st = st < 0 ? st : look(job, e);
    st = st >= 0 && job->save ? sw_save(e, job->save, NULL) : st;
    st = st < 0 ? st : test_owned_weights(e, job->weights, MOST_ELEMS);
    sw_close(e);
    return st;
}

static void run_it(struct job *job)
{
    job->expert = job->expert > 0 ? job->expert : 1;
    job->pipe = job->pipe > 0 ? job->pipe : 1;
    job->data = job->data > 0 ? job->data : 1;
    job->context = job->context > 0 ? job->context : 1;
    job->tensor = job->tensor > 0 ? job->tensor : 1;
    job->status = sw_threads_run(job->expert * job->pipe * job->data * job->context * job->tensor,
                                 60, train, job);
    snprintf(job->message, sizeof job->message, "%s", sw_error_message());
}

static struct job *run(struct job asked)
{
    struct job *job = malloc(sizeof *job);
    *job = asked;
    run_it(job);
    if (job->status < 0) {
        fail_msg("%s, expert %d, pipe %d, data %d, context %d, tensor %d, stage %d: %s", job->model,
                 job->expert, job->pipe, job->data, job->context, job->tensor, job->stage,
                 job->message);
    }
    return job;
}

static void same_bits(const struct job *a, const struct job *b)
{
    for (int i = 0; i < STEPS; i++) {
        if (a->losses[i] != b->losses[i] || a->norms[i] != b->norms[i]) {
            fail_msg(
                "%s, expert %d, pipe %d, data %d, context %d, tensor %d, stage %d: step %d has "
                "loss %.17g and norm %.17g; without the axis %.17g and %.17g",
                b->model, b->expert, b->pipe, b->data, b->context, b->tensor, b->stage, i,
                b->losses[i], b->norms[i], a->losses[i], a->norms[i]);
        }
    }
    assert_memory_equal(a->weights, b->weights, sizeof a->weights);
    assert_memory_equal(&a->evaluated, &b->evaluated, sizeof a->evaluated);
    assert_memory_equal(a->text, b->text, sizeof a->text);
}

#ifdef TEST_SANITIZED /* slow; the other ways and stages begin the same threads */
enum { EACH = 2 };
#else
enum { EACH = 1 };
#endif

static void ranks_have_the_bits_of_one(void **state)
{
    static const struct {
        const char *model, *top, *spillway;
    } kinds[] = {{"mixtral.json", NULL, NULL},
                 {"mixtral.json", "\"bf16\": {\"enabled\": true},", "\"capacity_factor\": 1,"},
                 {"gpt_oss.json", NULL, NULL},
                 {"deepseek.json", NULL, NULL}};
    (void)state;
    for (size_t k = 0; k < SW_LEN(kinds); k++) {
        const struct job base = {
            .model = kinds[k].model, .top = kinds[k].top, .spillway = kinds[k].spillway};
        struct job *one = run(base);
        /* each stage, with 2 and 4 ranks, and with a pipeline */
        for (int way = (int)k % EACH; way < 4; way += EACH) {
            struct job other = base;
            other.expert = way == 1 ? 4 : 2;
            other.pipe = way == 3 ? 2 : 1;
            other.data = way == 2 || way == 4 ? 2 : 1;
            other.stage = (way + 1 + (int)k) % 4;
            struct job *ranks = run(other);
            same_bits(one, ranks);
            free(ranks);
        }
        free(one);
    }
}

/* Attention and dense layers are cut along tensor or tokens, and each of these ranks computes the
 * experts of its coordinate for all tokens. */
static void parts_have_the_bits_of_those_without_experts(void **state)
{
    static const struct job cut[] = {
        {.model = "mixtral.json", .tensor = 2},
        {.model = "gpt_oss.json", .tensor = 2},
        {.model = "deepseek.json", .tensor = 2},
        {.model = "mixtral.json", .context = 2, .data = 2, .spillway = "\"capacity_factor\": 1,"},
        {.model = "gpt_oss.json", .context = 2, .pipe = 2},
        {.model = "deepseek.json", .context = 2},
    };
    (void)state;
    for (size_t m = 0; m < SW_LEN(cut); m++) {
        struct job parts = {.model = cut[m].model,
                            .context = cut[m].context,
                            .tensor = cut[m].tensor,
                            .spillway = cut[m].spillway};
        struct job *without = run(parts);
        for (int stage = (int)m % 2; stage < 4; stage += 2 * EACH) {
            struct job ranks = cut[m];
            ranks.expert = 2;
            ranks.stage = stage;
            struct job *with = run(ranks);
            same_bits(without, with);
            free(with);
        }
        free(without);
    }
}

static void tiers_change_no_bit(void **state)
{
    char offload[512];
    (void)state;
    snprintf(offload, sizeof offload,
             ", \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}, "
             "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}",
             test_folder(), test_folder());
    struct job one = {.model = "mixtral.json", .device = "mock", .top = ""}, far = one;
    far.expert = far.data = 2;
    far.stage = 3;
    far.zero = offload;
    far.spillway = "\"recompute\": \"blocks\", \"tile_bytes\": 256,";
    struct job *a = run(one), *b = run(far);
    same_bits(a, b);
    free(a);
    free(b);
}

/* ---- what travels ---- */

enum { LAYERS = 2, N_EXPERTS = 4, WIDTH = 12, RANKS_MOST = 4 };

/* The rows that this rank has for each rank, by the scores of its routers: of a token, the two
 * best. */
static sw_status count_rows(sw_engine *e, int ranks, int64_t *out)
{
    float scores[B * T * N_EXPERTS];
    for (int layer = 0; layer < LAYERS; layer++) {
        char name[32];
        snprintf(name, sizeof name, "router_logits.%d", layer);
        if (sw_engine_output_elems(e, name) != B * T * N_EXPERTS) {
            return SW_FAIL(SW_E_ARG, "%s: %lld elements, wanted %d", name,
                           (long long)sw_engine_output_elems(e, name), B * T * N_EXPERTS);
        }
        SW_TRY(sw_engine_output(e, name, scores));
        for (int i = 0; i < B * T * N_EXPERTS; i++) {
            const float *token = scores + i / N_EXPERTS * N_EXPERTS;
            int better = 0;
            for (int k = 0; k < N_EXPERTS; k++) {
                better += token[k] > scores[i];
            }
            out[i % N_EXPERTS / (N_EXPERTS / ranks)] += better < 2;
        }
    }
    return SW_OK;
}

/* Exchanges of forward: offsets, which are whole, and rows there and back. */
static sw_status compare_bytes(void *ctx, sw_comm *comm)
{
    const struct job *job = ctx;
    const int ranks = sw_comm_size(comm), me = sw_comm_rank(comm);
    int64_t rows[RANKS_MOST] = {0}, all[RANKS_MOST * RANKS_MOST], want, bound = 0;
    struct sw_traffic traffic;
    int32_t ids[B * T];
    sw_engine *e = NULL;
    SW_TRY(open_engine(job, comm, &e));
    for (int i = 0; i < B * T; i++) {
        ids[i] = (int32_t)(sw_philox_u64(9, (uint64_t)me, (uint64_t)i) % V);
    }
    const struct sw_tensor tensor = {"input_ids", {ids, SW_I32, {2, {B, T}}, {0}}};
    const int group = sw_plan_group(e->plan, 1U << SW_AXIS_EXPERT);
    sw_status st = sw_logits(e, &(struct sw_batch){&tensor, 1}, NULL);
    sw_executor_traffic(e->executor, group, &traffic);
    st = st < 0 ? st : count_rows(e, ranks, rows);
    st = st < 0 ? st : sw_comm_all_gather(comm, rows, all, ranks * sizeof *rows, "rows");
    want = (int64_t)LAYERS * (ranks - 1) * (N_EXPERTS / ranks + 2) * (int64_t)sizeof(int32_t);
    for (int r = 0; r < ranks && st >= 0; r++) {
        const int64_t both = all[me * ranks + r] + all[r * ranks + me];
        want += r == me ? 0 : both * WIDTH * (int64_t)sizeof(float);
    }
    const struct sw_program *program = &e->plan->programs[e->programs.logits];
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        bound += sw_instr_exchanges(instr) ? sw_instr_traffic(instr, ranks, me).sent : 0;
    }
    if (st >= 0 && (traffic.sent[SW_COMM_ALL_TO_ALL] != want || want > bound)) {
        st =
            SW_FAIL(SW_E_ARG, "rank %d of %d sent %lld bytes, wanted %lld, at most %lld", me, ranks,
                    (long long)traffic.sent[SW_COMM_ALL_TO_ALL], (long long)want, (long long)bound);
    }
    sw_close(e);
    return st;
}

static void count_rows_that_travel(const char *device, const char *spillway)
{
    for (int expert = 2; expert <= 4; expert += 2) {
        struct job job = {.model = "mixtral.json",
                          .expert = expert,
                          .pipe = 1,
                          .device = device,
                          .spillway = spillway,
                          .logits = true};
        if (sw_threads_run(job.expert, 60, compare_bytes, &job) < 0) {
            fail_msg("%s, expert %d: %s", job.device, job.expert, sw_error_message());
        }
    }
}

static void only_counted_rows_travel(void **state)
{
    (void)state;
    count_rows_that_travel("cpu:reference", NULL);
    count_rows_that_travel("mock", NULL);
}

/* Their devices exchange by a library. engine/experts_matrix trains on them. */
static void only_counted_rows_travel_among_emulated_gpus(void **state)
{
    (void)state;
    matrix_skip_without_emulation();
    count_rows_that_travel("emu", "\"comm\": \"library\",");
}

/* All but the experts are on each rank. */
static void an_expert_is_held_once(void **state)
{
    enum { EXPERTS = 2 * 4 * 3 * 12 * 10 };
    (void)state;
    struct job *one = run((struct job){.model = "mixtral.json"});
    struct job *four = run((struct job){.model = "mixtral.json", .expert = 4});
    for (int r = 0; r < 4; r++) {
        assert_int_equal(four->held[r], one->held[0] - EXPERTS + EXPERTS / 4);
    }
    free(one);
    free(four);
}

static void load_on_other_ranks(const char *model, const char *folder)
{
    struct job *saved =
        run((struct job){.model = model, .expert = 4, .stage = 1, .save = test_at(folder)});
    const struct job base = {.model = model, .load = test_at(folder), .idle = true};
    struct job one = base, two = base;
    two.expert = 2;
    two.pipe = 2;
    two.stage = 2;
    struct job *a = run(one), *b = run(two);
    assert_memory_equal(a->weights, saved->weights, sizeof a->weights);
    assert_memory_equal(b->weights, saved->weights, sizeof a->weights);
    free(a);
    free(b);
    one.idle = two.idle = false;
    a = run(one);
    b = run(two);
    same_bits(a, b);
    free(a);
    free(b);
    free(saved);
}

static void checkpoints_load_on_other_ranks(void **state)
{
    (void)state;
    load_on_other_ranks("mixtral.json", "of.mixtral");
    load_on_other_ranks("gpt_oss.json", "of.gpt_oss");
}

static void refused(struct job job, int ranks, const char *text)
{
    struct job *it = malloc(sizeof *it);
    *it = job;
    it->expert = it->expert > 0 ? it->expert : 1;
    it->pipe = 1;
    it->status = sw_threads_run(ranks, 60, train, it);
    assert_true(it->status < 0);
    if (!strstr(sw_error_message(), text)) {
        fail_msg("wanted \"%s\" in: %s", text, sw_error_message());
    }
    free(it);
}

static void what_cannot_be_had_is_refused(void **state)
{
    (void)state;
    refused((struct job){.model = "mixtral.json", .expert = 3, .n_micro = 3}, 3,
            "spillway.mesh.expert 3: wanted a divisor of the 4 experts of a layer");
    refused((struct job){.model = "mixtral.json", .expert = 2}, 3,
            "spillway.mesh.expert: pipe 1 x expert 2 x tensor 1 x context 1 do not make up 3 "
            "ranks");
    refused((struct job){.model = "mixtral.json", .expert = 2, .n_micro = 6}, 4,
            "spillway.mesh.expert 2: a step has 6 micro-batches (K); wanted a multiple of the 4 "
            "ranks along data and expert");
    refused((struct job){.model = "dense.json", .expert = 2}, 2,
            "spillway.mesh.expert 2: the model has no experts");
    refused((struct job){.model = "mixtral.json",
                         .expert = 2,
                         .spillway = "\"schedule\": \"vertical\","},
            2, "spillway.mesh.expert 2: spillway.schedule");
}

static int set_up(void **state)
{
    (void)state;
    test_put("mixtral.json", mixtral_json);
    test_put("deepseek.json", deepseek_json);
    test_put("gpt_oss.json", gpt_oss_json);
    test_put("dense.json",
             "{\"model_type\":\"llama\",\"vocab_size\":19,\"max_position_embeddings\":12,"
             "\"hidden_size\":12,\"intermediate_size\":10,\"num_hidden_layers\":2,"
             "\"num_attention_heads\":2}");
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_have_the_bits_of_one),
    cmocka_unit_test(parts_have_the_bits_of_those_without_experts),
    cmocka_unit_test(tiers_change_no_bit),
    cmocka_unit_test(only_counted_rows_travel),
    cmocka_unit_test(only_counted_rows_travel_among_emulated_gpus),
    cmocka_unit_test(an_expert_is_held_once),
    cmocka_unit_test(checkpoints_load_on_other_ranks),
    cmocka_unit_test(what_cannot_be_had_is_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
