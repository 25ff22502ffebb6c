// SPDX-License-Identifier: Apache-2.0
// Meshes of an engine: whatever the sizes of pipe and data, losses, norms, weights and checkpoints
// equal those of one rank bit for bit. The world agrees, and rows follow the data coordinate. What
// an axis does not support is refused by name. pipe_test.c, tensor_test.c and context_test.c have
// one axis each.
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, T = 5, V = 19, K = 3, STEPS = 3, MAX_RANKS = 8, MAX_ELEMS = 1 << 13 };

static const char model_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":19,"
    "\"n_positions\":8,\"n_embd\":12,\"n_layer\":2,\"n_head\":4,\"n_inner\":20,\"embd_pdrop\":0.1,"
    "\"attn_pdrop\":0.1,\"resid_pdrop\":0.1,\"tie_word_embeddings\":false}";
static char model_path[96];

struct job {
    int pipe, data, context, tensor, stage;
    bool keeps_gradients, any_length;
    bool others; /* spillway.allow_other_math */
    const char *load, *save;
    /* results */
    double losses[STEPS], norms[STEPS];
    float *weights; /* [MAX_ELEMS] of all ranks together */
    uint64_t fingerprint;
    sw_status status;
    char message[1024];
};

static int ranks_of(const struct job *job)
{
    return job->pipe * job->data * job->context * job->tensor;
}

static sw_status open_engine(const struct job *job, sw_comm *comm, sw_engine **out)
{
    char config[1024];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": 0.5, "
             "\"zero_optimization\": {\"stage\": %d, \"stage3_param_persistence_threshold\": 30}, "
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"spillway\": "
             "{\"micro_batches\": %d, \"threads\": 1, \"allow_other_math\": %s, \"mesh\": "
             "{\"pipe\": %d, \"context\": %d, \"tensor\": %d}}}",
             B, job->stage, K, job->others ? "true" : "false", job->pipe, job->context,
             job->tensor);
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = model_path,
        .inputs.seq_len = job->any_length ? 0 : T,
        .run = {.comm = comm, .verify = true},
        .seed = 5,
        .train = {true, .keep_gradients = job->keeps_gradients}};
    return sw_initialize(&options, out);
}

/* Every rank reports the same; the first one's results are kept. */
static sw_status keep(struct job *job, const struct sw_engine *e, int step,
                      const struct sw_step_report *report)
{
    SW_TRY(test_same_reports(e, report));
    if (e->world.rank == 0) {
        job->losses[step] = report->loss;
        job->norms[step] = report->grad_norm;
    }
    return SW_OK;
}

static sw_status train(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    sw_engine *e = NULL;
    struct sw_step_report report;
    sw_status st = open_engine(job, comm, &e);
    st = st >= 0 && job->load ? sw_load(e, job->load) : st;
    for (int i = 0; st >= 0 && i < STEPS; i++) {
        st = test_train_step(e, K, B, T, V, &report);
        st = st < 0 ? st : keep(job, e, i, &report);
    }
    st = st >= 0 && job->save ? sw_save(e, job->save, NULL) : st;
    st = st < 0 ? st : test_owned_weights(e, job->weights, MAX_ELEMS);
    if (st >= 0 && e->world.rank == 0) {
        job->fingerprint = e->plan->fingerprint;
    }
    sw_close(e);
    return st;
}

static void run(struct job *job)
{
    job->weights = calloc(MAX_ELEMS, sizeof *job->weights);
    job->status = sw_threads_run(ranks_of(job), 60, train, job);
    snprintf(job->message, sizeof job->message, "%s", sw_error_message());
}

static void clear(struct job *job)
{
    free(job->weights);
}

static void assert_same(const struct job *a, const struct job *b)
{
    if (a->status < 0) {
        fail_msg("(%d, %d, %d, %d) at stage %d: %s", a->pipe, a->data, a->context, a->tensor,
                 a->stage, a->message);
    }
    assert_memory_equal(a->losses, b->losses, sizeof a->losses);
    assert_memory_equal(a->norms, b->norms, sizeof a->norms);
    assert_memory_equal(a->weights, b->weights, MAX_ELEMS * sizeof *a->weights);
}

/* Losses of a training whose sums are cut otherwise. */
static void assert_near(const struct job *a, const struct job *b)
{
    if (a->status < 0) {
        fail_msg("tensor %d: %s", a->tensor, a->message);
    }
    for (int i = 0; i < STEPS; i++) {
        assert_true(fabs(a->losses[i] - b->losses[i]) <= 1e-4 * b->losses[i]);
    }
}

static void pipe_and_data_change_no_bit(void **state)
{
    static const int meshes[][2] = {/* pipe, data */ {2, 1}, {1, 3}, {2, 3}, {2, 2}, {2, 4}};
    (void)state;
    struct job one = {1, 1, 1, 1, .stage = 0};
    run(&one);
    assert_int_equal(one.status, SW_OK);
    for (size_t m = 0; m < SW_LEN(meshes); m++) {
        const int *size = meshes[m];
        struct job job = {size[0], size[1], 1, 1, .stage = (int)(m % 4)};
        run(&job);
        assert_same(&job, &one);
        assert_int_equal(job.fingerprint, one.fingerprint);
        clear(&job);
    }
    clear(&one);
}

static void checkpoints_move_between_meshes(void **state)
{
    (void)state;
    struct job first = {2, 2, 1, 1, .stage = 2, .save = test_at("saved")};
    run(&first);
    struct job one = {1, 1, 1, 1, .stage = 0, .load = test_at("saved"), .save = test_at("next")};
    run(&one);
    struct job more = {2, 1, 1, 1, .stage = 3, .load = test_at("saved")};
    run(&more);
    assert_same(&more, &one);
    clear(&more);
    /* other sums only if that is allowed */
    struct job cut = {1, 2, 1, 2, .stage = 1, .load = test_at("saved")};
    run(&cut);
    assert_int_equal(cut.status, SW_E_CONFIG);
    assert_non_null(strstr(cut.message, "allow_other_math"));
    assert_non_null(strstr(cut.message, "spillway.mesh.tensor 1 -> 2"));
    clear(&cut);
    struct job allowed = {
        1, 2, 1, 2, .stage = 1, .load = test_at("saved"), .others = true, .save = test_at("cut")};
    run(&allowed);
    assert_near(&allowed, &one);
    clear(&allowed);
    struct job back = {1, 1, 1, 1, .stage = 0, .load = test_at("cut"), .others = true};
    run(&back);
    struct job on = {1, 1, 1, 1, .stage = 0, .load = test_at("next")};
    run(&on);
    assert_near(&back, &on);
    clear(&back);
    clear(&on);
    clear(&one);
    clear(&first);
}

static void refused(struct job job, const char *const *words)
{
    run(&job);
    assert_true(job.status < 0);
    for (; *words; words++) {
        if (!strstr(job.message, *words)) {
            fail_msg("\"%s\" lacks \"%s\"", job.message, *words);
        }
    }
    clear(&job);
}

static sw_status open_only(void *ctx, sw_comm *comm)
{
    sw_engine *e = NULL;
    const sw_status st = open_engine(ctx, comm, &e);
    sw_close(e);
    return st;
}

static void sizes_that_do_not_make_up_the_ranks_are_refused(void **state)
{
    (void)state;
    struct job job = {1, 1, 1, 2, .stage = 0};
    assert_int_equal(sw_threads_run(3, 60, open_only, &job), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), ": spillway.mesh.tensor: pipe 1 x expert 1 x "));
    assert_non_null(strstr(sw_error_message(), "do not make up 3 ranks"));
    assert_non_null(strstr(sw_error_message(), "multiple of 2"));
}

static void what_an_axis_does_not_support_is_refused(void **state)
{
    (void)state;
    refused((struct job){2, 1, 1, 1, .keeps_gradients = true},
            (const char *const[]){"spillway.mesh.pipe 2", "train.keep_gradients", "data", NULL});
}

static void shares_that_do_not_divide_are_refused(void **state)
{
    (void)state;
    refused((struct job){1, 1, 1, 3, .stage = 0},
            (const char *const[]){"tensor 3 x context 1", "4 heads", "transformer.h.0.attn",
                                  "1, 2, 4", NULL});
    refused((struct job){3, 1, 1, 1, .stage = 0},
            (const char *const[]){"spillway.mesh.pipe: 3", "2 blocks", "at most 2 stages", NULL});
}

static void models_that_are_not_cut_are_refused(void **state)
{
    static const struct {
        const char *file, *config, *words[4];
    } models[] = {
        {"cifar.json",
         "{\"model_type\": \"cifar_net\"}",
         {"spillway.mesh.tensor 2", "the CIFAR network, which pools pictures, is not", "data"}},
        {"lstm.json",
         "{\"model_type\": \"bi_lstm_classifier\", \"vocab\": 53, \"width\": 8, \"hidden\": 6}",
         {"spillway.mesh.tensor 2", "LSTM", "data"}},
    };
    char decoder[sizeof model_path];
    (void)state;
    memcpy(decoder, model_path, sizeof decoder);
    for (size_t i = 0; i < SW_LEN(models); i++) {
        test_put(models[i].file, models[i].config);
        snprintf(model_path, sizeof model_path, "%s/%s", test_folder(), models[i].file);
        refused((struct job){1, 1, 1, 2, .any_length = true}, models[i].words);
    }
    memcpy(model_path, decoder, sizeof decoder);
}

static sw_status in_parts(void *ctx, sw_comm *comm)
{
    sw_engine *e = NULL;
    sw_status st = open_engine(ctx, comm, &e);
    st = st < 0 ? st : sw_forward(e, NULL, NULL);
    sw_close(e);
    return st;
}

static void a_pipeline_runs_no_parts_of_a_step(void **state)
{
    (void)state;
    struct job job = {2, 1, 1, 1, .stage = 0};
    assert_int_equal(sw_threads_run(2, 60, in_parts, &job), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "sw_forward: with spillway.mesh.pipe 2"));
    assert_non_null(strstr(sw_error_message(), "sw_train_batch"));
}

/* ---- groups and hosts ---- */

/* Each axis has the ranks that differ along it only, in order, and exchanges among them. */
static sw_status try_groups(void *ctx, sw_comm *comm)
{
    sw_engine *e = NULL;
    sw_status st = open_engine(ctx, comm, &e);
    for (int a = 0; a < SW_AXIS_COUNT && st >= 0; a++) {
        int ranks[MAX_RANKS], met[MAX_RANKS], mine = e->world.rank;
        const struct sw_group want = sw_mesh_group(&e->mesh, 1U << a, mine, ranks);
        sw_comm *group = NULL, *again = NULL;
        int me = -1, n = -1;
        SW_ASSERT(sw_engine_axis(e, sw_axis_name((enum sw_axis)a), &me, &n) == SW_OK);
        SW_ASSERT(me == want.me && n == want.n);
        st = sw_engine_group(e, sw_axis_name((enum sw_axis)a), &group);
        st = st < 0 ? st : sw_comm_all_gather(group, &mine, met, sizeof mine, "ranks");
        st = st < 0 ? st : sw_engine_group(e, sw_axis_name((enum sw_axis)a), &again);
        if (st >= 0 && (sw_comm_size(group) != want.n || sw_comm_rank(group) != want.me ||
                        memcmp(met, ranks, (size_t)want.n * sizeof *met) != 0 || again != group)) {
            st = SW_FAIL(SW_E_ARG, "rank %d has another group along %s", mine,
                         sw_axis_name((enum sw_axis)a));
        }
    }
    struct sw_step_report report;
    st = st < 0 ? st
                : test_train_step(e, K, B, T, V, &report); /* the engine's own exchanges go on */
    sw_close(e);
    return st;
}

static void groups_are_lent_by_axis(void **state)
{
    (void)state;
    struct job job = {2, 2, 1, 2, .stage = 2};
    if (sw_threads_run(8, 60, try_groups, &job) < 0) {
        fail_msg("%s", sw_error_message());
    }
    struct job one = {1, 1, 1, 1, .stage = 0};
    sw_engine *e = NULL;
    sw_comm *group = NULL;
    assert_int_equal(open_engine(&one, NULL, &e), SW_OK);
    assert_int_equal(sw_engine_group(e, "tensor", &group), SW_OK);
    assert_int_equal(sw_comm_size(group), 1);
    assert_int_equal(sw_comm_barrier(group, "nobody"), SW_OK);
    assert_int_equal(sw_engine_group(e, "tenser", &group), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "the nearest is \"tensor\""));
    sw_close(e);
}

static sw_status lose_a_rank(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    sw_engine *e = NULL;
    sw_status st = open_engine(job, comm, &e);
    if (st >= 0 && e->world.rank == 1) {
        st = SW_FAIL(SW_E_IO, "this rank gives up");
    } else if (st >= 0) {
        st = sw_comm_barrier(comm, "nobody");
        snprintf(job->message, sizeof job->message, "%s", sw_error_message());
    }
    sw_close(e);
    return st;
}

static void lost_ranks_are_named_by_coordinates(void **state)
{
    (void)state;
    struct job job = {1, 1, 1, 2, .stage = 0};
    assert_int_equal(sw_threads_run(2, 60, lose_a_rank, &job), SW_E_IO);
    assert_non_null(strstr(job.message, "tensor_01"));
}

static void hosts_are_printed(void **state)
{
    (void)state;
    struct engine_host hosts[6] = {{"a", 0}, {"a", 0}, {"a", 0}, {"b", 0}, {"b", 0}, {"b", 0}};
    struct sw_engine e = {.world = {0, 6}};
    struct sw_str text = {0};
    const int size[SW_AXIS_COUNT] = {1, 1, 3, 1, 2};
    assert_int_equal(sw_mesh_init(&e.mesh, size, 6), SW_OK);
    sw_engine_print_mesh(&e, &text);
    assert_string_equal(sw_str_text(&text), "mesh: data 3 x tensor 2\n");
    sw_str_fini(&text);
    e.machine.hosts = hosts;
    sw_engine_print_mesh(&e, &text);
    assert_non_null(strstr(sw_str_text(&text),
                           "mesh: data 3 x tensor 2 on a (ranks 0 to 2), b (ranks 3 to 5)\n"));
    assert_non_null(strstr(sw_str_text(&text), "tensor neighbours 2 (a) and 3 (b) do not share"));
    sw_str_fini(&text);
    memcpy(hosts[3].name, "a", 2);
    sw_engine_print_mesh(&e, &text);
    assert_non_null(strstr(sw_str_text(&text), "b (ranks 4 to 5)\n"));
    assert_null(strstr(sw_str_text(&text), "neighbours"));
    sw_str_fini(&text);
    e.world.size = 1;
    sw_engine_print_mesh(&e, &text);
    assert_string_equal(sw_str_text(&text), "");
    sw_str_fini(&text);
}

static void processors_are_shared_by_ranks_of_a_host_with_the_same_ones(void **state)
{
    (void)state;
    struct engine_host hosts[5] = {{"a", 1}, {"a", 1}, {"b", 1}, {"b", 2}, {"c", 1}};
    const int alike[] = {2, 2, 1, 1, 1}, here[] = {2, 2, 2, 2, 1};
    struct sw_config *config = calloc(1, sizeof *config);
    struct sw_engine e = {.world = {0, 5}, .config = config, .machine.hosts = hosts};
    for (; e.world.rank < 5; e.world.rank++) {
        assert_int_equal(sw_engine_share_threads(&e),
                         sw_cpu_share(alike[e.world.rank], here[e.world.rank]));
    }
    e.world.rank = 4;
    assert_int_equal(sw_engine_share_threads(&e), sw_cpu_count());
    config->spillway.threads = 3;
    assert_int_equal(sw_engine_share_threads(&e), 3);
    free(config);
}

static void keep_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    assert_int_equal(sched_setaffinity(0, sizeof set, &set), 0);
}

/* ctx: [2] threads of both ranks */
static sw_status count_threads(void *ctx, sw_comm *comm)
{
    const struct sw_engine_options options = {.config.text =
                                                  "{\"train_micro_batch_size_per_gpu\": 1}",
                                              .model.path = model_path,
                                              .inputs.seq_len = T,
                                              .evaluate.logits = true,
                                              .run.comm = comm};
    cpu_set_t before;
    sw_engine *e = NULL;
    sched_getaffinity(0, sizeof before, &before);
    if (sw_comm_rank(comm) == 1) {
        keep_to(sched_getcpu());
    }
    const sw_status st = sw_initialize(&options, &e);
    if (st >= 0) {
        ((int *)ctx)[e->world.rank] = sw_engine_facts(e).threads;
    }
    sw_close(e);
    sched_setaffinity(0, sizeof before, &before);
    return st;
}

static void a_bound_rank_takes_no_threads_from_another(void **state)
{
    (void)state;
    int threads[2];
    assert_int_equal(sw_threads_run(2, 60, count_threads, threads), SW_OK);
    assert_int_equal(threads[0], sw_cpu_count() > 1 ? sw_cpu_share(1, 2) : 1);
    assert_int_equal(threads[1], 1);
}

static void a_shrunk_data_axis_is_printed(void **state)
{
    (void)state;
    struct sw_engine e = {.world = {0, 2}, .data = {0, 1}, .options.run.batch_ranks = 6};
    struct sw_str text = {0};
    const int size[SW_AXIS_COUNT] = {[SW_AXIS_PIPE] = 2, 1, 1, 1, 1};
    assert_int_equal(sw_mesh_init(&e.mesh, size, 2), SW_OK);
    sw_engine_print_mesh(&e, &text);
    assert_non_null(strstr(sw_str_text(&text), "2 of the 6 ranks"));
    assert_non_null(strstr(sw_str_text(&text), "data 3 -> 1"));
    sw_str_fini(&text);
    e.options.run.batch_ranks = 2; /* a restart without a loss */
    sw_engine_print_mesh(&e, &text);
    assert_string_equal(sw_str_text(&text), "mesh: pipe 2\n");
    sw_str_fini(&text);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(model_path, sizeof model_path, "%s/config.json", test_folder());
    test_put("config.json", model_json);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pipe_and_data_change_no_bit),
    cmocka_unit_test(checkpoints_move_between_meshes),
    cmocka_unit_test(sizes_that_do_not_make_up_the_ranks_are_refused),
    cmocka_unit_test(what_an_axis_does_not_support_is_refused),
    cmocka_unit_test(shares_that_do_not_divide_are_refused),
    cmocka_unit_test(models_that_are_not_cut_are_refused),
    cmocka_unit_test(groups_are_lent_by_axis),
    cmocka_unit_test(hosts_are_printed),
    cmocka_unit_test(processors_are_shared_by_ranks_of_a_host_with_the_same_ones),
    cmocka_unit_test(a_bound_rank_takes_no_threads_from_another),
    cmocka_unit_test(a_shrunk_data_axis_is_printed),
    cmocka_unit_test(lost_ranks_are_named_by_coordinates),
    cmocka_unit_test(a_pipeline_runs_no_parts_of_a_step),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
