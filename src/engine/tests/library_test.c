// SPDX-License-Identifier: Apache-2.0
// COST 8
// SLOW SPILLWAY_LIBRARY_RANKS=4
// Ranks whose devices exchange by a library, on emulated GPUs. Trainings have the bits of one rank.
// A rank that fails, is killed or does not come is named by the others, and nobody hangs.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/private.h"
#include "engine/tests/matrix.h"
#include "engine/tests/owned.h"
#include "support/processes.h"
#include "support/scratch.h"

enum { B = 2, T = 7, V = 37, K = 4, MOST_RANKS = 4, MOST_SAID = 1024 };
enum { STEPS = 2, MOST_WEIGHTS = 1 << 13 };

static int most_ranks(void)
{
    const char *ranks = getenv("SPILLWAY_LIBRARY_RANKS");
    return ranks ? atoi(ranks) : 2;
}

static void stages_have_the_bits_of_one_rank(void **state)
{
    (void)state;
    matrix_skip_without_emulation();
    matrix_by_library(most_ranks(), 2);
}

/* ---- failures ---- */

static const char model_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":37,"
    "\"n_positions\":11,\"n_embd\":21,\"n_layer\":1,\"n_head\":3,\"n_inner\":29}";

enum fault { FAILS, IS_KILLED, IS_LATE };

/* Shared with the children. */
struct run {
    enum fault fault;
    int n_ranks, bad_rank, stage, port;
    double deadline_s;
    const char *more;           /* keys of "spillway" */
    const char *comm;           /* NULL = "library" */
    bool saves, resumes;        /* a checkpoint behind the first step; from it */
    volatile bool has_saved;    /* some rank knows that it is whole */
    const char *device;         /* NULL = "emu" */
    const char *of_last_device; /* device of the last rank; NULL = as the others have */
    sw_status st[MOST_RANKS];
    size_t memory[MOST_RANKS]; /* of its device, for the rank */
    char said[MOST_RANKS][MOST_SAID];
    volatile int n_over; /* ranks that have failed */
    double losses[STEPS];
    float weights[MOST_WEIGHTS]; /* of the whole model; each rank writes its own part */
};

static sw_status train(struct run *run, sw_comm *comm, sw_engine **out)
{
    struct sw_step_report report = {0};
    char config[512];
    const bool is_last = comm && sw_comm_rank(comm) == run->n_ranks - 1;
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": 0.5, "
             "\"zero_optimization\": {\"stage\": %d, \"stage3_param_persistence_threshold\": 30}, "
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
             "\"spillway\": {\"micro_batches\": %d, \"threads\": 1, \"comm\": \"%s\"%s}}",
             B, run->stage, K, run->comm ? run->comm : "library", run->more ? run->more : "");
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = test_at("config.json"),
                                              .inputs.seq_len = T,
                                              .run = {.comm = comm,
                                                      .device = is_last && run->of_last_device
                                                                    ? run->of_last_device
                                                                : run->device ? run->device
                                                                              : "emu"},
                                              .seed = 5,
                                              .train.wanted = true};
    SW_TRY(sw_initialize(&options, out));
    if (run->resumes) {
        SW_TRY(sw_load(*out, test_at("checkpoint")));
    }
    for (int step = run->resumes ? 1 : 0; step < STEPS; step++) {
        while (run->fault == IS_LATE && step == 1 && comm && sw_comm_rank(comm) == run->bad_rank &&
               run->n_over < run->n_ranks - 1) {
            usleep(1000);
        }
        SW_TRY(test_train_step(*out, K, B, T, V, &report));
        if (!comm || sw_comm_rank(comm) == 0) {
            run->losses[step] = report.loss;
        }
        if (run->saves && step == 0) {
            SW_TRY(sw_save(*out, test_at("checkpoint"), NULL));
            run->has_saved = true;
        }
    }
    return test_owned_weights(*out, run->weights, MOST_WEIGHTS);
}

static sw_status run_rank(struct run *run, sw_comm *comm)
{
    const int rank = sw_comm_rank(comm);
    sw_engine *engine = NULL;
    const sw_status st = run->st[rank] = train(run, comm, &engine);
    snprintf(run->said[rank], sizeof run->said[rank], "%s", st < 0 ? sw_error_message() : "");
    run->memory[rank] = st < 0 ? 0 : engine->device->memory_bytes;
    __atomic_fetch_add(&run->n_over, 1, __ATOMIC_SEQ_CST);
    if (st < 0) {
        sw_comm_abort(comm, st);
    }
    sw_close(engine);
    return SW_OK;
}

static sw_status run_thread(void *ctx, sw_comm *comm)
{
    return run_rank(ctx, comm);
}

static sw_status run_process(struct run *run, int rank)
{
    const struct sw_tcp_options options = {.rank = rank,
                                           .size = run->n_ranks,
                                           .host = "localhost",
                                           .port = run->port,
                                           .deadline_s = run->deadline_s};
    struct sw_transport transport;
    sw_comm *comm = NULL;
    SW_TRY(sw_tcp_open(&options, &transport));
    SW_TRY(sw_comm_open(&transport, &comm));
    SW_TRY(run_rank(run, comm));
    sw_comm_close(comm, run->st[rank] < 0);
    return SW_OK;
}

static void run_processes(struct run *run)
{
    pid_t pids[MOST_RANKS];
    fflush(NULL);
    for (int r = 0; r < run->n_ranks; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            _exit(run_process(run, r) < 0);
        }
    }
    for (int r = 0; r < run->n_ranks; r++) {
        waitpid(pids[r], NULL, 0);
    }
}

/* A copy that processes share. */
static struct run *share(const struct run *given)
{
    struct run *run =
        mmap(NULL, sizeof *run, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(run != MAP_FAILED);
    *run = *given;
    return run;
}

static int n_resumed; /* runs that failed behind their checkpoint */

/* A rank alone goes on from the last checkpoint of a run that failed. */
static void check_checkpoint(const struct run *failed)
{
    static struct run alone;
    sw_engine *engine = NULL;
    alone = (struct run){.stage = failed->stage, .comm = "host", .resumes = true};
    if (failed->has_saved && train(&alone, NULL, &engine) < 0) {
        fail_msg("the checkpoint of a run that failed: %s", sw_error_message());
    }
    n_resumed += failed->has_saved;
    sw_close(engine);
}

/* Every rank but the bad one has an error of a peer that names it. Returns false if the exchange to
 * fail was never reached. */
static bool run_once(const struct run *given, int64_t at)
{
    static const char *const how[] = {[FAILS] = "fail", [IS_KILLED] = "exit", [IS_LATE] = "none"};
    struct run *run = share(given);
    char text[64], name[24];
    bool reached = false;
    test_remove(test_at("checkpoint"));
    snprintf(text, sizeof text, "rank=%d,%s=%lld", run->bad_rank, how[run->fault], (long long)at);
    snprintf(name, sizeof name, "rank %d", run->bad_rank);
    if (run->fault != IS_LATE) {
        assert_int_equal(setenv("SPILLWAY_STANDIN_NCCL", text, 1), 0);
    }
    if (run->fault == IS_KILLED) {
        run->port = test_free_port();
        run_processes(run);
    } else {
        assert_int_equal(sw_threads_run(run->n_ranks, run->deadline_s, run_thread, run), SW_OK);
    }
    assert_int_equal(unsetenv("SPILLWAY_STANDIN_NCCL"), 0);
    for (int r = 0; r < run->n_ranks; r++) {
        reached = reached || run->st[r] < 0;
    }
    for (int r = 0; r < run->n_ranks && reached; r++) {
        if (r != run->bad_rank && (run->st[r] != SW_E_PEER || !strstr(run->said[r], name))) {
            fail_msg("%s, stage %d: rank %d of %d returns %d: %s", text, run->stage, r,
                     run->n_ranks, run->st[r], run->said[r]);
        }
    }
    check_checkpoint(run);
    munmap(run, sizeof *run);
    return reached;
}

/* Fails exchanges of both steps, a few here, and 200 in the slow run. */
static void a_rank_that_fails_is_named(void **state)
{
    (void)state;
    const bool all = most_ranks() > 2;
    const int n = all ? 200 : 6;
    int done = 0;
    matrix_skip_without_emulation();
    for (int i = 0; done < n; i++) {
        const struct run run = {.fault = i % 3 == 2 ? IS_KILLED : FAILS,
                                .n_ranks = 2 + i % (all ? 3 : 2),
                                .bad_rank = i % 2,
                                .stage = i % 2 * 3,
                                .deadline_s = 300,
                                .saves = true};
        assert_true(i < 2 * n);
        done += run_once(&run, 1 + i * 7 % 20);
    }
    print_message("%d failures, %d of them behind a checkpoint\n", done, n_resumed);
    assert_true(n_resumed > 0);
}

static void a_rank_that_does_not_come_is_named(void **state)
{
    (void)state;
    const struct run run = {
        .fault = IS_LATE, .bad_rank = 1, .stage = 3, .deadline_s = 10, .saves = true};
    matrix_skip_without_emulation();
    for (int n = 2; most_ranks() > 2 && n <= most_ranks(); n++) {
        struct run late = run;
        late.n_ranks = n;
        assert_true(run_once(&late, 0));
    }
}

/* ---- processes, and sums of the library ---- */

/* Trains on threads or processes. */
static struct run *train_all(const struct run *given, bool as_processes)
{
    struct run *run = share(given);
    if (as_processes) {
        run->port = test_free_port();
        run_processes(run);
    } else {
        assert_int_equal(sw_threads_run(run->n_ranks, run->deadline_s, run_thread, run), SW_OK);
    }
    assert_int_equal(run->n_over, run->n_ranks);
    for (int r = 0; r < run->n_ranks; r++) {
        assert_string_equal(run->said[r], "");
        assert_int_equal(run->st[r], SW_OK);
    }
    return run;
}

/* The library's sums have another order, which is that of neither kind of ranks. */
static void processes_have_the_bits_of_threads(void **state)
{
    static const char *const sums[] = {NULL, ", \"library_sums\": true"};
    const bool all = most_ranks() > 2;
    (void)state;
    matrix_skip_without_emulation();
    for (int way = 0; way < (all ? 2 * 3 * 4 : 2); way++) {
        struct run given = {.n_ranks = 2 + way / 2 % 3, .stage = 2, .deadline_s = 300};
        given.stage = all ? way / 6 : 2;
        given.more = sums[way % 2];
        struct run *threads = train_all(&given, false), *processes = train_all(&given, true);
        assert_memory_equal(threads->losses, processes->losses, sizeof threads->losses);
        assert_memory_equal(threads->weights, processes->weights, sizeof threads->weights);
        given.more = NULL;
        struct run *plain = train_all(&given, false);
        for (int step = 0; step < STEPS; step++) {
            assert_true(fabs(threads->losses[step] - plain->losses[step]) <
                        1e-5 * plain->losses[step]);
        }
        munmap(threads, sizeof *threads);
        munmap(processes, sizeof *processes);
        munmap(plain, sizeof *plain);
    }
}

/* ---- refusals ---- */

/* Before the first step, by all ranks alike. */
static void what_a_library_would_hang_in_is_refused(void **state)
{
    (void)state;
    static const struct {
        struct run run;
        const char *name, *value; /* of the environment */
        const char *says;
    } cases[] = {
        {{.of_last_device = "emu:direct"}, "", "", "but rank 1 has no library"},
        {{.of_last_device = "emu:64"}, "", "", "rank 0 has a device of emu32, rank 1 one of emu64"},
        {{.of_last_device = "cpu"}, "", "", "but rank 1 has no library: device cpu has none"},
        {{.fault = 0}, "SPILLWAY_STANDIN_NCCL_VERSION", "21703", "wanted 2.18 or later"},
        {{.fault = 0}, "SPILLWAY_STANDIN_BUS", "0000:01:00.0", "0000:01:00.0) for nccl "},
        {{.device = "emu:direct", .comm = "auto"},
         "SPILLWAY_STANDIN_BUS",
         "0000:01:00.0",
         "0000:01:00.0), wanted one for each rank"},
        {{.comm = "auto", .more = ", \"library_sums\": true"},
         "",
         "",
         "spillway.library_sums: no library exchanges here: device emu has none"},
    };
    matrix_skip_without_emulation();
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct run run = cases[i].run;
        struct sw_device *last = NULL;
        if (run.of_last_device && sw_device_open(run.of_last_device, 1, &last) < 0) {
            print_message("left out: %s\n", sw_error_message());
            continue;
        }
        sw_device_close(last);
        run.n_ranks = 2;
        assert_true(!*cases[i].name || setenv(cases[i].name, cases[i].value, 1) == 0);
        assert_int_equal(sw_threads_run(2, 60, run_thread, &run), SW_OK);
        assert_true(!*cases[i].name || unsetenv(cases[i].name) == 0);
        for (int r = 0; r < 2; r++) {
            if (run.st[r] != SW_E_CONFIG || !strstr(run.said[r], cases[i].says)) {
                fail_msg("wanted \"%s\", rank %d returns %d: %s", cases[i].says, r, run.st[r],
                         run.said[r]);
            }
        }
    }
}

/* Wants each of two ranks to have that part of the emulation's memory. */
static void check_memory(const struct run *run, size_t part)
{
    for (int r = 0; r < 2; r++) {
        if (run->said[r][0] || run->memory[r] != ((size_t)16 << 30) / 64 * 63 / part) {
            fail_msg("rank %d has %zu bytes, wanted one part of %zu: %s", r, run->memory[r], part,
                     run->said[r]);
        }
    }
}

/* By exchanges through host memory, or by the number of a GPU. */
static void ranks_share_a_gpu_where_it_is_asked_for(void **state)
{
    (void)state;
    static const struct run ways[] = {
        {.device = "emu:direct", .comm = "host"},
        {.comm = "host"},
        {.device = "emu:64:direct", .comm = "auto"}, /* has a number */
    };
    matrix_skip_without_emulation();
    assert_int_equal(setenv("SPILLWAY_STANDIN_BUS", "0000:01:00.0", 1), 0);
    for (size_t i = 0; i < SW_LEN(ways); i++) {
        struct run run = ways[i];
        struct sw_device *device = NULL;
        if (run.device && sw_device_open(run.device, 1, &device) < 0) {
            print_message("left out: %s\n", sw_error_message());
            continue;
        }
        sw_device_close(device);
        run.n_ranks = 2;
        assert_int_equal(sw_threads_run(2, 60, run_thread, &run), SW_OK);
        check_memory(&run, 2);
    }
    assert_int_equal(unsetenv("SPILLWAY_STANDIN_BUS"), 0);
}

/* Each rank may see its GPU alone: the number of ranks and of GPUs that one sees says nothing. */
static void ranks_with_a_gpu_of_their_own_have_all_its_memory(void **state)
{
    (void)state;
    struct run run = {.n_ranks = 2, .comm = "host"};
    matrix_skip_without_emulation();
    assert_int_equal(sw_threads_run(2, 60, run_thread, &run), SW_OK);
    check_memory(&run, 1);
}

static int set_up(void **state)
{
    test_put("config.json", model_json);
    return matrix_set_up(state);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stages_have_the_bits_of_one_rank),
    cmocka_unit_test(a_rank_that_fails_is_named),
    cmocka_unit_test(a_rank_that_does_not_come_is_named),
    cmocka_unit_test(processes_have_the_bits_of_threads),
    cmocka_unit_test(what_a_library_would_hang_in_is_refused),
    cmocka_unit_test(ranks_share_a_gpu_where_it_is_asked_for),
    cmocka_unit_test(ranks_with_a_gpu_of_their_own_have_all_its_memory),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
