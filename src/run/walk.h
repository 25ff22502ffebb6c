// SPDX-License-Identifier: Apache-2.0
// walk - goes through the phases of a step and their instructions, and says what to do next: which
// instruction is left out, what starts after which, where a phase ends. What "doing" is, a table
// says: the executor's moves bytes and runs kernels. Nothing in it waits by itself: an order is an
// order of the queues. Private to the room.
#pragma once

#include "plan/plan.h"

struct sw_walk { /* where it is */
    const struct sw_program *program;
    const struct sw_step_phase *phase;
    int32_t instr;
    int32_t piece; /* of a loop, which one; else 0 */
    int64_t order; /* see struct sw_instr: with this piece */
    /* By queue, the order of the latest that must be complete before this one starts; -1 = none. */
    int64_t needs[SW_QUEUE_COUNT];
};

#define SW_WALK_ALL INT64_MAX

struct sw_walk_ops {
    /* A phase of instructions begins. */
    sw_status (*begin)(void *ctx, const struct sw_walk *at);
    /* Issue it on its queue, behind all that was issued on that and all that computation knows. */
    sw_status (*kernel)(void *ctx, const struct sw_walk *at);
    sw_status (*transfer)(void *ctx, const struct sw_walk *at); /* COPY_*, READ, WRITE, on HOST */
    sw_status (*exchange)(void *ctx, const struct sw_walk *at); /* the batch that begins here */
    /* What is issued next, on any queue, starts after what `queue` has up to that order, or
     * SW_WALK_ALL of it. */
    sw_status (*wait)(void *ctx, const struct sw_walk *at, enum sw_queue queue, int64_t until);
    /* All that is issued later, on every queue, starts after all that was issued before. */
    sw_status (*barrier)(void *ctx, const struct sw_walk *at);
    /* The host waits until that has happened, at the end of a phase that says so; NULL = it need
     * not. */
    sw_status (*join)(void *ctx, const struct sw_walk *at);
    /* Behind an instruction that was not left out, and the end of its phase; NULL = nobody
     * looks. */
    sw_status (*passed)(void *ctx, const struct sw_walk *at);
    /* The other actions of a step. */
    sw_status (*losses)(void *ctx);
    sw_status (*agree)(void *ctx);
    sw_status (*commit)(void *ctx);
};

/* One phase. A failure names the instruction. */
sw_status sw_walk_phase(const struct sw_plan *plan, const struct sw_step_phase *phase,
                        const struct sw_walk_ops *ops, void *ctx);
