// SPDX-License-Identifier: Apache-2.0
// The queues beside computation, with one thread each. A thread begins jobs in the order in which
// they were issued, and ends them in that order. A job begins after all earlier work of
// computation, and after the jobs of other queues that it waits for. Each queue has a timeline on
// the device, which counts its finished jobs. The timeline of computation counts issued jobs.
// Therefore computation waits, and the issuing thread does not, unless a ring is full.
//
// A queue with an entry in in_order is in order: the issuing thread queues on that stream the waits
// for the timelines that a job needs, and then the job. The queue's own thread only notes when jobs
// begin and end. Private to this folder.
#pragma once

#include "run/meter.h"

struct sw_queues;

struct sw_waiter { /* whose waiting is recorded */
    int i_program;
    int32_t instr;
};

struct sw_queue_job {
    const struct sw_program *program; /* borrowed until the job is done */
    int32_t instr, piece;             /* see struct sw_walk */
    int64_t order; /* see struct sw_walk; within a queue it increases up to a barrier */
    int64_t needs[SW_QUEUE_COUNT]; /* see struct sw_walk; also of its own queue */
    int64_t round;                 /* round of the phase that issued it */
    bool holds_fault;              /* from that phase: a disk error is held back until AGREE */
};
/* A job is begun and later ended, on the thread of its queue. In between it owns slot `slot` in [0,
 * SW_QUEUE_BEGUN). */
struct sw_queue_ops {
    sw_status (*begin)(void *ctx, enum sw_queue queue, const struct sw_queue_job *job, int slot);
    sw_status (*end)(void *ctx, enum sw_queue queue, const struct sw_queue_job *job, int slot);
    int most_begun[SW_QUEUE_COUNT]; /* largest number of jobs that are begun but not ended */
    /* These are for a queue that is in order. The issuing thread calls enqueue; the thread of the
     * queue calls passed once the job is over. */
    sw_status (*enqueue)(void *ctx, enum sw_queue queue, const struct sw_queue_job *job);
    /* Puts the job in front of the present message. */
    sw_status (*blame)(void *ctx, enum sw_queue queue, const struct sw_queue_job *job,
                       sw_status st);
    void (*passed)(void *ctx, enum sw_queue queue, const struct sw_queue_job *job, int64_t begin_ns,
                   int64_t end_ns);
};

struct sw_queues_options {
    struct sw_device *dev;           /* borrowed */
    struct sw_stream_queue *compute; /* borrowed; stream of its kernels */
    struct sw_meter *meter;
    struct sw_queue_ops ops;
    void *ctx;
    /* Largest number of jobs that are issued but not done; issuing more waits. 0 = the queue is not
     * used. */
    int64_t most_jobs[SW_QUEUE_COUNT];
    /* Streams of queues that are in order; borrowed. NULL = the queue's thread does the work. */
    struct sw_stream_queue *in_order[SW_QUEUE_COUNT];
};
/* Allocates all memory; later calls allocate nothing. */
sw_status sw_queues_open(const struct sw_queues_options *options, struct sw_queues **out);
/* Finishes all issued jobs first, unless one has failed: then the rest are dropped. NULL is
 * allowed. */
void sw_queues_close(struct sw_queues *queues);
/* Issues a job. It starts after earlier jobs of its queue, the jobs of other queues that it needs,
 * and all earlier work of computation. */
sw_status sw_queues_issue(struct sw_queues *queues, enum sw_queue queue,
                          const struct sw_queue_job *job);
/* Later work of computation starts after the jobs of a queue up to that order; INT64_MAX = all of
 * them. Fails with the first failure of any queue known by now; no later job begins then. */
sw_status sw_queues_order(struct sw_queues *queues, enum sw_queue queue, int64_t until,
                          const struct sw_waiter *waiter);
/* Later work of computation, and later jobs, start after all jobs of all queues. */
sw_status sw_queues_barrier(struct sw_queues *queues, const struct sw_waiter *waiter);
/* The first known failure. It covers all that computation has waited for, once that is done. */
sw_status sw_queues_status(struct sw_queues *queues);
/* A failure that another thread met, whose message is the present one. */
void sw_queues_fail(struct sw_queues *queues, sw_status st);
/* A job of a queue that is in order, which began at least so long ago and has not ended. */
bool sw_queues_find_stuck(struct sw_queues *queues, int64_t ns, enum sw_queue *out_queue,
                          struct sw_queue_job *out);
/* After an error elsewhere: jobs that have not begun are dropped, and jobs that have are waited
 * for. The communicator and the arenas are then the caller's again, and new jobs are accepted. */
void sw_queues_stop(struct sw_queues *queues);
