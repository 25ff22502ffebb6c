// SPDX-License-Identifier: Apache-2.0
// walk - goes through the phases of a step and their instructions, and decides what to do next:
// which instructions do not run, what starts after what, and where a phase ends. A table of
// functions does the work; the executor's table moves bytes and runs kernels. The walk itself never
// waits; its orders are orders between queues. Private to this folder.
#pragma once

#include "plan/plan.h"

struct sw_walk { /* current position */
    const struct sw_program *program;
    const struct sw_step_phase *phase;
    int32_t instr;
    int32_t piece; /* piece of a loop; else 0 */
    int64_t order; /* see struct sw_instr; here for this piece */
    /* By queue, the order of the latest instruction that must be complete before this one starts;
     * -1 = none. */
    int64_t needs[SW_QUEUE_COUNT];
};

#define SW_WALK_ALL INT64_MAX

struct sw_walk_ops {
    /* Begins a phase with instructions. */
    sw_status (*begin)(void *ctx, const struct sw_walk *at);
    /* Issues a kernel on its queue, after all earlier work of that queue and all that computation
     * has waited for. */
    sw_status (*kernel)(void *ctx, const struct sw_walk *at);
    /* for COPY_*, READ and WRITE, and kernels on HOST */
    sw_status (*transfer)(void *ctx, const struct sw_walk *at);
    /* issues the batch that begins here */
    sw_status (*exchange)(void *ctx, const struct sw_walk *at);
    /* Later work, on any queue, starts after the work of `queue` up to that order, or all of it for
     * SW_WALK_ALL. */
    sw_status (*wait)(void *ctx, const struct sw_walk *at, enum sw_queue queue, int64_t until);
    /* Later work, on every queue, starts after all earlier work. */
    sw_status (*barrier)(void *ctx, const struct sw_walk *at);
    /* The host waits for that at the end of a phase with `joins`; NULL = no wait */
    sw_status (*join)(void *ctx, const struct sw_walk *at);
    /* Called after each instruction that ran, and after the end of its phase; NULL = not called */
    sw_status (*passed)(void *ctx, const struct sw_walk *at);
    /* The other actions of a step. */
    sw_status (*losses)(void *ctx);
    sw_status (*agree)(void *ctx);
    sw_status (*commit)(void *ctx);
};

/* Walks one phase. A failure names the instruction. */
sw_status sw_walk_phase(const struct sw_plan *plan, const struct sw_step_phase *phase,
                        const struct sw_walk_ops *ops, void *ctx);
