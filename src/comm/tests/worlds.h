// SPDX-License-Identifier: Apache-2.0
// Worlds of ranks for tests: each rank is a thread, and they are connected in every way that needs
// no launcher.
#pragma once

#include <pthread.h>

#include "comm/comm.h"

/* In a function of a rank, which returns a status: fails with the place of the condition. */
#define WANT(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            return SW_FAIL(SW_E_FORMAT, "%s:%d: %s: %s", __FILE__, __LINE__, #cond,                \
                           sw_error_message());                                                    \
        }                                                                                          \
    } while (0)

enum test_wire {
    WIRE_THREADS,
    WIRE_TCP,
    WIRE_SLOW_THREADS, /* through sw_fault_open, with delays and a bandwidth */
    WIRE_SLOW_TCP,
    WIRES,
    WIRE_MPI = WIRES /* a mock of it: one thread for each rank */
};

extern const char *const test_wire_names[WIRES + 1];

/* Runs fn once per rank. Returns the original failure. */
sw_status test_run_ranks(enum test_wire wire, int size, double deadline_s, sw_rank_fn fn,
                         void *ctx);
/* The same; the test fails unless all ranks succeed. */
void test_ranks_succeed(enum test_wire wire, int size, double deadline_s, sw_rank_fn fn, void *ctx);

/* A thread of a rank, beside the one that runs fn. */
struct test_thread {
    pthread_t thread;
    sw_status (*fn)(struct test_thread *t);
    sw_comm *comm;
    void *ctx;
    sw_status st;
    char message[1024];
};
void test_thread_start(struct test_thread *t);
/* Waits for its end, and fails with its error. */
sw_status test_thread_join(struct test_thread *t);
