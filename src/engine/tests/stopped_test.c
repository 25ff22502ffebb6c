// SPDX-License-Identifier: Apache-2.0
// COST 4
// A rank that stops without a word, by SIGSTOP, in each kind of phase. Every other rank names it by
// its coordinates, and says in which phase and micro-batch it was missed. Some ranks wait for it
// only through others. Ranks are processes that talk over TCP.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/tests/owned.h"
#include "support/processes.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, T = 4, V = 19, K = 4, PIPE = 2, TENSOR = 2, RANKS = PIPE * TENSOR };
enum { STOPPED = 3, NEXT = 2 /* beside it along tensor */ };

#ifdef TEST_SANITIZED
static const double deadline_s = 12;
#else
static const double deadline_s = 3;
#endif

/* The exchange at which a rank stops, and what the rank beside it says of its phase. */
static const struct stop {
    const char *op, *what, *phase;
} stops[] = {
    {"all_gather", "transformer.h.1.attn.c_attn", "forward of micro-batch 0"},
    {"reduce_scatter", "head", "backward of micro-batch 0"},
    {"reduce_scatter", "transformer.h.1.ln_2", "weights of micro-batch 0"},
    {"all_gather", "the gradient norm", "update"},
    {"all_gather", "the losses", "all_gather of the losses"},
};

/* ---- a rank that stops ---- */

struct stopping {
    struct sw_transport inner;
    const struct stop *stop;
};

static sw_status exchange(void *ctx, const struct sw_exchange *x)
{
    const struct stopping *s = ctx;
    if (strcmp(x->op, s->stop->op) == 0 && strcmp(x->what, s->stop->what) == 0) {
        raise(SIGSTOP);
    }
    return s->inner.exchange(s->inner.ctx, x);
}

static sw_status open_group(void *ctx, const struct sw_group_options *options,
                            const char *const *names, struct sw_transport *out);

/* The process ends without closing, so nothing is freed. */
static struct sw_transport stopping(const struct sw_transport *inner, const struct stop *stop)
{
    struct stopping *s = malloc(sizeof *s);
    *s = (struct stopping){*inner, stop};
    return (struct sw_transport){.ctx = s,
                                 .rank = inner->rank,
                                 .size = inner->size,
                                 .exchange = exchange,
                                 .open_group = inner->open_group ? open_group : NULL};
}

static sw_status open_group(void *ctx, const struct sw_group_options *options,
                            const char *const *names, struct sw_transport *out)
{
    const struct stopping *s = ctx;
    struct sw_transport group;
    SW_TRY(s->inner.open_group(s->inner.ctx, options, names, &group));
    *out = stopping(&group, s->stop);
    return SW_OK;
}

/* ---- ranks ---- */

static sw_status train(sw_comm *comm)
{
    char config[768];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": 0.5, "
             "\"zero_optimization\": {\"stage\": 1}, "
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
             "\"spillway\": {\"micro_batches\": %d, \"threads\": 1, \"schedule\": \"zero-bubble\", "
             "\"mesh\": {\"pipe\": %d, \"tensor\": %d}}}",
             B, K, PIPE, TENSOR);
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = test_at("config.json"),
                                              .inputs.seq_len = T,
                                              .run.comm = comm,
                                              .seed = 5,
                                              .train.wanted = true};
    sw_engine *e = NULL;
    SW_TRY(sw_initialize(&options, &e));
    return test_train_step(e, K, B, T, V, NULL);
}

/* Trains as a rank, and writes its error. */
static _Noreturn void be(int rank, int port, const struct stop *stop, const char *path)
{
    const struct sw_tcp_options options = {
        .rank = rank, .size = RANKS, .host = "localhost", .port = port, .deadline_s = deadline_s};
    struct sw_transport transport;
    sw_comm *comm = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sw_status st = sw_tcp_open(&options, &transport);
    if (st >= 0 && rank == STOPPED) {
        transport = stopping(&transport, stop);
    }
    st = st < 0 ? st : sw_comm_open(&transport, &comm);
    st = st < 0 ? st : train(comm);
    const char *text = st < 0 ? sw_error_message() : "it trained";
    sw_file_write_atomic(path, text, strlen(text));
    if (comm) {
        sw_comm_abort(comm, st);
    }
    _exit(0);
}

/* Other ranks may be in a later phase, or wait for the next micro-batch. */
static bool says_a_phase(const char *text)
{
    return strstr(text, " of micro-batch ") || strstr(text, ", update)") ||
           strstr(text, "the losses");
}

/* Fails unless the other ranks name the stopped one, and that beside it the phase. */
static void assert_named(const struct stop *stop, int rank, const char *path)
{
    char *text = NULL;
    size_t len;
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    const bool has_phase = rank == NEXT ? strstr(text, stop->phase) != NULL : says_a_phase(text);
    if (!strstr(text, "pipe_01-tensor_01 (") || !has_phase) {
        fail_msg("rank 3 stops at %s of %s, rank %d says: %s", stop->op, stop->what, rank, text);
    }
    sw_free(text);
}

static void all_others_name_it(void **state)
{
    enum { STOPS = SW_LEN(stops) };
    (void)state;
    pid_t pids[STOPS][RANKS];
    char paths[STOPS][RANKS][160];
    for (int i = 0; i < STOPS; i++) { /* all at once: they only wait */
        const int port = test_free_port();
        for (int r = 0; r < RANKS; r++) {
            snprintf(paths[i][r], sizeof paths[i][r], "%s/said.%d.%d", test_folder(), i, r);
            pids[i][r] = fork();
            assert_true(pids[i][r] >= 0);
            if (pids[i][r] == 0) {
                be(r, port, &stops[i], paths[i][r]);
            }
        }
    }
    for (int i = 0; i < STOPS; i++) {
        for (int r = 0; r < RANKS; r++) { /* the last one is the stopped one */
            kill(pids[i][r], r == STOPPED ? SIGKILL : 0);
            assert_int_equal(test_exit_of(pids[i][r]), r == STOPPED ? 128 + SIGKILL : 0);
        }
    }
    for (int i = 0; i < STOPS * RANKS; i++) {
        if (i % RANKS != STOPPED) {
            assert_named(&stops[i / RANKS], i % RANKS, paths[i / RANKS][i % RANKS]);
        }
    }
}

static int make_files(void **state)
{
    (void)state;
    test_put("config.json", "{\"model_type\":\"gpt2\",\"vocab_size\":19,\"n_positions\":8,"
                            "\"n_embd\":8,\"n_layer\":2,\"n_head\":2}");
    return 0;
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(all_others_name_it)};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_files};
