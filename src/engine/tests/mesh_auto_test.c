// SPDX-License-Identifier: Apache-2.0
// A mesh that is "auto": all ranks take the choice of rank 0, budgets and rates decide it, and a
// run that resumes keeps the sums of its checkpoint.
#include <stdio.h>
#include <string.h>

#include "engine/private.h"
#include "support/scratch.h"
#include "support/test.h"

enum { T = 5, RANKS = 4 };

static int write_model(void **state)
{
    (void)state;
    test_put("model.json",
             "{\"model_type\":\"gpt2\",\"vocab_size\":20,\"n_positions\":64,\"n_embd\":32,"
             "\"n_layer\":4,\"n_head\":4,\"tie_word_embeddings\":false}");
    return 0;
}

struct job {
    const char *mesh, *rates[3], *resume_from, *save;
    int n_rates, ranks;
    const char *schedule; /* of pipelines, or NULL */
    long long budget;
    bool open_batch, plan_only;
    /* results */
    int64_t sizes[RANKS][SW_AXIS_COUNT];
    bool has_choice[RANKS];
    double best, next; /* seconds of the first two */
};

static void write_config(const struct job *job, char *config, size_t size)
{
    snprintf(config, size,
             "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"AdamW\"}, "
             "\"spillway\": {\"threads\": 1, \"kernels\": \"reference\", "
             "\"device_memory\": %lld%s%s, \"mesh\": %s}}",
             job->budget > 0 ? job->budget : 1LL << 40,
             job->open_batch ? "" : ", \"micro_batches\": 8", job->schedule ? job->schedule : "",
             job->mesh ? job->mesh : "\"auto\"");
}

static sw_status open_engine(const struct job *job, sw_comm *comm, sw_engine **out)
{
    char config[512];
    write_config(job, config, sizeof config);
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = test_at("model.json"),
                                              .inputs.seq_len = T,
                                              .run.comm = comm,
                                              .plan = {.only = job->plan_only,
                                                       .resume_from = job->resume_from,
                                                       .rates = job->rates,
                                                       .n_rates = job->n_rates},
                                              .train.wanted = true};
    return sw_initialize(&options, out);
}

static sw_status open_and_keep(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    const int rank = sw_comm_rank(comm);
    sw_engine *e = NULL;
    sw_status st = open_engine(job, comm, &e);
    st = st >= 0 && job->save ? sw_save(e, job->save, NULL) : st;
    if (st >= 0) {
        const struct sw_mesh_choice *choice = sw_engine_mesh_choice(e);
        for (unsigned a = 0; a < SW_AXIS_COUNT; a++) {
            job->sizes[rank][a] = sw_mesh_size(&e->mesh, 1U << a);
        }
        job->has_choice[rank] = choice != NULL;
        if (choice && choice->n > 1) {
            job->best = choice->tries[0].seconds;
            job->next = choice->tries[1].seconds;
        }
    }
    sw_close(e);
    return st;
}

static void run(struct job *job)
{
    if (sw_threads_run(job->ranks, 60, open_and_keep, job) < 0) {
        fail_msg("%s", sw_error_message());
    }
    for (int r = 1; r < job->ranks; r++) {
        assert_memory_equal(job->sizes[r], job->sizes[0], sizeof job->sizes[0]);
    }
}

/* Bytes of the largest stage of a mesh. */
static long long bytes_of(const char *mesh)
{
    const struct job job = {.mesh = mesh, .plan_only = true};
    long long most = 0;
    for (int rank = 0; rank < 2; rank++) {
        sw_engine *e = NULL;
        sw_comm *comm;
        assert_int_equal(sw_comm_open(&(struct sw_transport){.rank = rank, .size = 2}, &comm),
                         SW_OK);
        if (open_engine(&job, comm, &e) < 0) {
            fail_msg("%s", sw_error_message());
        }
        most = sw_max_i64(most, sw_engine_tier_bytes(e, SW_TIER_DEVICE));
        sw_close(e);
        sw_comm_close(comm, false);
    }
    return most;
}

/* Whatever the link between hosts costs, ranks agree, and the fastest of the tries is taken. */
static void all_ranks_take_the_fastest_mesh(void **state)
{
    (void)state;
    static const char *const nets[] = {"net=1e6", "net=1", "net=0.001"};
    for (size_t i = 0; i < SW_LEN(nets); i++) {
        struct job job = {
            .ranks = RANKS, .rates = {"node=1e6", nets[i], "node_ranks=2"}, .n_rates = 3};
        run(&job);
        assert_true(job.best > 0 && job.best <= job.next);
        assert_int_equal(job.sizes[0][SW_AXIS_TENSOR], 1);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(job.has_choice[r], r == 0);
        }
    }
}

/* The time of a step whose stages are walked together. */
static double walk_stages(const struct job *job)
{
    char config[512];
    bool unknown[SW_LOAD_COUNT];
    struct sw_lineup lineup;
    struct sw_clock_rank stages[RANKS] = {{.plan = NULL}};
    struct sw_speeds speeds = {.cores = 0};
    const struct sw_speeds *each[RANKS];
    double seconds = 0;
    write_config(job, config, sizeof config);
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = test_at("model.json"),
                                              .inputs.seq_len = T,
                                              .train.wanted = true};
    sw_builtin_rates(&speeds.given);
    if (sw_engine_take_rates(job->rates, job->n_rates, &speeds.given) < 0 ||
        sw_lineup_open(&options, RANKS, &lineup) < 0) {
        fail_msg("%s", sw_error_message());
    }
    for (int s = 0; s < lineup.n; s++) {
        stages[s].plan = lineup.stages[s].engine->plan;
        each[s] = &speeds;
    }
    assert_int_equal(sw_speeds_stages(stages, each, lineup.n, unknown, &seconds), SW_OK);
    sw_lineup_close(&lineup);
    return seconds;
}

/* A mesh of which only a bound is known takes no less time, and the bound is not far from it. */
static void bounds_hold(void **state)
{
    (void)state;
    static const char *const schedules[] = {NULL, ", \"schedule\": \"gpipe\"",
                                            ", \"schedule\": \"zero-bubble\""};
    for (size_t i = 0; i < SW_LEN(schedules); i++) {
        struct job job = {.schedule = schedules[i],
                          .plan_only = true,
                          .rates = {"net=1e6", "node=1e6", "comm_latency=0.001"},
                          .n_rates = 3};
        sw_engine *e = NULL;
        sw_comm *comm;
        assert_int_equal(sw_comm_open(&(struct sw_transport){.size = RANKS}, &comm), SW_OK);
        assert_int_equal(open_engine(&job, comm, &e), SW_OK);
        const struct sw_mesh_choice *choice = sw_engine_mesh_choice(e);
        const struct sw_mesh_try *t = &choice->tries[0];
        while (sw_mesh_size(&t->mesh, 1U << SW_AXIS_PIPE) < RANKS) {
            t++;
        }
        assert_true(t < choice->tries + choice->n && t > choice->tries && t->is_bound);
        job.mesh = "{\"pipe\": 4}";
        const double seconds = walk_stages(&job);
        print_message("schedule %zu: at least %.9g s, walked %.9g s\n", i, t->seconds, seconds);
        assert_true(t->seconds <= seconds * (1 + 1e-9) && t->seconds > 0.7 * seconds);
        sw_close(e);
        sw_comm_close(comm, false);
    }
}

/* Budgets leave only some meshes. What cuts sums comes last. */
static void budgets_decide(void **state)
{
    (void)state;
    const long long data = bytes_of("{}"), pipe = bytes_of("{\"pipe\": 2}");
    const long long tensor = bytes_of("{\"tensor\": 2}");
    assert_true(pipe < data && tensor < pipe);
    struct job job = {.ranks = 2, .budget = pipe};
    run(&job);
    assert_int_equal(job.sizes[0][SW_AXIS_PIPE], 2);
    job = (struct job){.ranks = 2, .budget = pipe - 1};
    run(&job);
    assert_int_equal(job.sizes[0][SW_AXIS_TENSOR], 2);
    job = (struct job){.ranks = 2, .budget = 1};
    assert_int_equal(sw_threads_run(2, 60, open_and_keep, &job), SW_E_NOMEM);
    assert_non_null(strstr(sw_error_message(), "spillway.mesh \"auto\": none of "));
    assert_non_null(strstr(sw_error_message(), "bytes (")); /* what the nearest one lacks */
}

static void a_resumed_run_keeps_its_sums(void **state)
{
    (void)state;
    struct job first = {.ranks = 2, .mesh = "{\"tensor\": 2}", .save = test_at("saved")};
    run(&first);
    struct job next = {.ranks = RANKS, .resume_from = test_at("saved")};
    run(&next);
    assert_int_equal(next.sizes[0][SW_AXIS_TENSOR], 2);
    struct job none = {.ranks = 2, .resume_from = test_at("nothing")};
    run(&none);
    assert_int_equal(none.sizes[0][SW_AXIS_TENSOR], 1);
}

static void a_batch_that_follows_from_the_mesh_is_refused(void **state)
{
    (void)state;
    struct job job = {.ranks = 2, .open_batch = true};
    assert_int_equal(sw_threads_run(2, 60, open_and_keep, &job), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "give train_batch_size or spillway.micro_batches"));
    job.ranks = 1; /* there is nothing to choose */
    run(&job);
    assert_int_equal(job.sizes[0][SW_AXIS_DATA], 1);
    assert_false(job.has_choice[0]);
}

/* Keys that are "auto" have one value on all stages, also where a stage alone would choose
 * another. */
static void stages_choose_alike(void **state)
{
    (void)state;
    static const char config[] = "{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"AdamW\"}, "
                                 "\"spillway\": {\"threads\": 1, \"micro_batch\": \"auto\", "
                                 "\"recompute\": \"auto\", \"mesh\": {\"pipe\": 4}}}";
    int n_differ = 0;
    for (int i = 0; i < 44; i++) {
        char budget[64];
        const char *const sets[] = {budget};
        struct sw_engine_options options = {.config = {.text = config, .sets = sets, .n_sets = 1},
                                            .model.path = test_at("model.json"),
                                            .inputs.seq_len = 32,
                                            .plan.only = true,
                                            .train.wanted = true};
        struct sw_lineup lineup;
        sw_engine *last = NULL;
        snprintf(budget, sizeof budget, "spillway.device_memory=%d", 500000 + 50000 * i);
        const sw_status st = sw_lineup_open(&options, RANKS, &lineup);
        if (st == SW_E_NOMEM) {
            /* how much it needs at least depends on the processor's kernels */
            int stage = -1;
            assert_int_equal(sscanf(sw_error_message(), "stage %d of 4: ", &stage), 1);
            assert_in_range(stage, 0, 3);
            continue;
        }
        assert_int_equal(st, SW_OK);
        const struct sw_engine *a = lineup.stages[0].engine, *b = lineup.stages[3].engine;
        const struct sw_recompute *r = &a->config->spillway.recompute;
        assert_int_equal(a->sizes.batch, b->sizes.batch);
        assert_int_equal(r->every, b->config->spillway.recompute.every);
        assert_int_equal(r->blocks, b->config->spillway.recompute.blocks);
        options.run.comm = lineup.stages[3].comm;
        assert_int_equal(sw_initialize(&options, &last), SW_OK);
        n_differ += last->sizes.batch != a->sizes.batch ||
                    last->config->spillway.recompute.every != r->every;
        sw_close(last);
        sw_lineup_close(&lineup);
    }
    assert_true(n_differ > 0);
}

/* Also if it is the first one that does not fit. */
static void a_stage_that_does_not_fit_is_named(void **state)
{
    (void)state;
    const struct sw_engine_options options = {
        .config.text = "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": "
                       "\"AdamW\"}, \"spillway\": {\"micro_batches\": 4, \"device_memory\": 1000, "
                       "\"mesh\": {\"pipe\": 4}}}",
        .model.path = test_at("model.json"),
        .inputs.seq_len = 32,
        .train.wanted = true};
    struct sw_lineup lineup;
    assert_int_equal(sw_lineup_open(&options, RANKS, &lineup), SW_E_NOMEM);
    assert_non_null(strstr(sw_error_message(), "stage 0 of 4: does not fit: "));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stages_choose_alike),
    cmocka_unit_test(a_stage_that_does_not_fit_is_named),
    cmocka_unit_test(all_ranks_take_the_fastest_mesh),
    cmocka_unit_test(bounds_hold),
    cmocka_unit_test(budgets_decide),
    cmocka_unit_test(a_resumed_run_keeps_its_sums),
    cmocka_unit_test(a_batch_that_follows_from_the_mesh_is_refused),
};
const struct test_program sw_tests = {TEST_TABLE(tests), .setup = write_model};
