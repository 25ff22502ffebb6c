// SPDX-License-Identifier: Apache-2.0
// The queues beside the computing thread: one thread each, which begins jobs in the order in which
// they were issued, every one after the jobs of other queues that it waits for, and ends them in
// that order. Private to the room.
#pragma once

#include "run/meter.h"

struct sw_queues;

struct sw_waiter { /* who stands still meanwhile */
    struct sw_meter *meter;
    int i_program;
    int32_t instr;
};

struct sw_queue_job {
    const struct sw_program *program; /* borrowed until it is done */
    int32_t instr;
    int64_t round; /* of the phase that issued it */
};
/* A job is begun, then ended, on the thread of its queue; `slot` [0, SW_QUEUE_BEGUN) is its own
 * between the two. */
enum { SW_QUEUE_BEGUN = 32 };
struct sw_queue_ops {
    /* SW_PENDING: not before one that was begun has ended. */
    sw_status (*begin)(void *ctx, enum sw_queue queue, const struct sw_queue_job *job, int slot);
    sw_status (*end)(void *ctx, enum sw_queue queue, const struct sw_queue_job *job, int slot);
    int most_begun[SW_QUEUE_COUNT]; /* jobs that are begun and not ended */
};

/* most_jobs [SW_QUEUE_COUNT]: issued at a time; 0 = this queue is not used. Nothing is allocated
 * after opening. */
sw_status sw_queues_open(const int32_t most_jobs[SW_QUEUE_COUNT], const struct sw_queue_ops *ops,
                         void *ctx, struct sw_queues **out);
void sw_queues_close(struct sw_queues *queues);
/* Starts it when those before it, and those that its instruction waits for, are done. Errors come
 * from a wait. */
void sw_queues_issue(struct sw_queues *queues, enum sw_queue queue, const struct sw_queue_job *job);
/* Until what was issued to a queue up to instruction `instr` is done; INT32_MAX = all of it. Fails
 * with the first failure of any queue; nothing behind it runs. */
sw_status sw_queues_wait(struct sw_queues *queues, enum sw_queue queue, int32_t instr,
                         const struct sw_waiter *waiter);
sw_status sw_queues_drain(struct sw_queues *queues, const struct sw_waiter *waiter);
/* After an error elsewhere: what has not begun never does, and what has is waited for, so that the
 * communicator and the arenas are the caller's again; then jobs are taken as ever. */
void sw_queues_stop(struct sw_queues *queues);
