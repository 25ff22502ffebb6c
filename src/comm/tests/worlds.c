// SPDX-License-Identifier: Apache-2.0
// Worlds of ranks for tests. Each rank opens its own transport in its own thread, as processes
// would.
#include "comm/tests/worlds.h"

#include <stdio.h>

#include "comm/tests/mock_mpi.h"
#include "support/processes.h"
#include "support/test.h"

const char *const test_wire_names[] = {"threads", "TCP", "slow threads", "slow TCP", "MPI"};

struct world {
    enum test_wire wire;
    sw_rank_fn fn;
    void *ctx;
    int port;
    double deadline_s;
    struct sw_transport *transports; /* of threads */
};

static sw_status open_wire(const struct world *w, int rank, int size, struct sw_transport *out)
{
    const struct sw_tcp_options options = {.rank = rank,
                                           .size = size,
                                           .host = "127.0.0.1",
                                           .port = w->port,
                                           .deadline_s = w->deadline_s};
    const struct sw_fault_options slow = {.delay_s = 0.0001, .bytes_per_s = 2e9};
    struct sw_transport inner;
    if (w->wire == WIRE_THREADS || w->wire == WIRE_SLOW_THREADS) {
        inner = w->transports[rank];
    } else if (w->wire == WIRE_MPI) {
        return sw_mpi_open(test_mpi_enter(rank, size), w->deadline_s, out);
    } else {
        SW_TRY(sw_tcp_open(&options, &inner));
    }
    *out = inner;
    return w->wire >= WIRE_SLOW_THREADS ? sw_fault_open(&inner, &slow, out) : SW_OK;
}

static sw_status on_rank(void *ctx, sw_comm *thread)
{
    const struct world *w = ctx;
    struct sw_transport transport;
    sw_comm *comm = NULL;
    SW_TRY(open_wire(w, sw_comm_rank(thread), sw_comm_size(thread), &transport));
    SW_TRY(sw_comm_open(&transport, &comm));
    const sw_status st = w->fn(w->ctx, comm);
    if (st < 0) {
        sw_comm_abort(comm, st);
    }
    sw_comm_close(comm, st < 0);
    if (w->wire == WIRE_MPI) {
        test_mpi_leave();
    }
    return st;
}

sw_status test_run_ranks(enum test_wire wire, int size, double deadline_s, sw_rank_fn fn, void *ctx)
{
    struct sw_transport transports[SW_THREAD_RANKS_MAX];
    const bool tcp = wire == WIRE_TCP || wire == WIRE_SLOW_TCP;
    sw_status st = SW_E_IO;
    /* another process may take the port before it is bound */
    for (int turn = 0; turn < (tcp ? 3 : 1) && st == SW_E_IO; turn++) {
        struct world w = {wire, fn, ctx, tcp ? test_free_port() : 0, deadline_s, transports};
        SW_TRY(tcp || wire == WIRE_MPI ? SW_OK
                                       : sw_thread_transports_open(size, deadline_s, transports));
        st = sw_threads_run(size, 60, on_rank, &w);
    }
    return st;
}

void test_ranks_succeed(enum test_wire wire, int size, double deadline_s, sw_rank_fn fn, void *ctx)
{
    if (test_run_ranks(wire, size, deadline_s, fn, ctx) < 0) {
        fail_msg("%d ranks over %s: %s", size, test_wire_names[wire], sw_error_message());
    }
}

static void *thread_main(void *arg)
{
    struct test_thread *t = arg;
    t->st = t->fn(t);
    snprintf(t->message, sizeof t->message, "%s", t->st < 0 ? sw_error_message() : "");
    return NULL;
}

void test_thread_start(struct test_thread *t)
{
    SW_ASSERT(pthread_create(&t->thread, NULL, thread_main, t) == 0);
}

sw_status test_thread_join(struct test_thread *t)
{
    pthread_join(t->thread, NULL);
    return t->st < 0 ? SW_FAIL(t->st, "%s", t->message) : SW_OK;
}
