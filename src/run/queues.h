// SPDX-License-Identifier: Apache-2.0
// The queues beside computation: one thread each, which begins jobs in the order in which they were
// issued, every one after what computation was given before it and after the jobs of other queues
// that it waits for, and ends them in that order. Each queue has a timeline on the device, the
// number of its jobs that are done; that of computation counts the jobs that were issued. So the
// thread that issues waits for nobody: what it gives to computation does. Private to the room.
#pragma once

#include "run/meter.h"

struct sw_queues;

struct sw_waiter { /* what would stand still meanwhile */
    int i_program;
    int32_t instr;
};

struct sw_queue_job {
    const struct sw_program *program; /* borrowed until it is done */
    int32_t instr, piece;             /* see struct sw_walk, .. */
    int64_t order;                    /* .. too: those of a queue grow up to a barrier */
    int64_t needs[SW_QUEUE_COUNT];
    int64_t round;    /* of the phase that issued it */
    bool holds_fault; /* a disk that fails is kept for AGREE: of that phase, too */
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

struct sw_queues_options {
    struct sw_device *dev;           /* borrowed, .. */
    struct sw_stream_queue *compute; /* .. and the queue of its kernels */
    struct sw_meter *meter;
    struct sw_queue_ops ops;
    void *ctx;
    /* Issued and not done at a time; whoever issues more waits. 0 = this queue is not used. */
    int64_t most_jobs[SW_QUEUE_COUNT];
};
/* Nothing is allocated after opening. */
sw_status sw_queues_open(const struct sw_queues_options *options, struct sw_queues **out);
void sw_queues_close(struct sw_queues *queues);
/* Starts when those before it, those that it needs of other queues, and all that computation was
 * given are done. */
sw_status sw_queues_issue(struct sw_queues *queues, enum sw_queue queue,
                          const struct sw_queue_job *job);
/* What computation is given from here on starts after what was issued to a queue up to that order;
 * INT64_MAX = all of it. Fails with the first failure of any queue that is known by now; nothing
 * behind that begins. */
sw_status sw_queues_order(struct sw_queues *queues, enum sw_queue queue, int64_t until,
                          const struct sw_waiter *waiter);
/* .. after all that was issued to all queues, and hence also what is issued. */
sw_status sw_queues_barrier(struct sw_queues *queues, const struct sw_waiter *waiter);
/* The first failure that is known: of all that computation waited for, once that is done. */
sw_status sw_queues_status(struct sw_queues *queues);
/* After an error elsewhere: what has not begun never does, and what has is waited for, so that the
 * communicator and the arenas are the caller's again; then jobs are taken as ever. */
void sw_queues_stop(struct sw_queues *queues);
