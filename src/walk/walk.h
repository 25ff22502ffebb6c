// SPDX-License-Identifier: Apache-2.0
// walk - goes through the phases of a step and their instructions, and says what to do next: which
// instructions do not run, what starts after what, and where a phase ends. The walk is pulled: it
// returns one event after the other, does nothing itself and never blocks. The executor moves bytes
// and runs kernels for each event; the clock (clock.h) lets time pass, at the costs that speeds.h
// finds.
#pragma once

#include "plan/plan.h"

enum sw_event_kind {
    SW_EVENT_BEGIN, /* a phase with instructions begins */
    /* Issue the instruction at the walk's position on its queue. It starts after all earlier work
     * of that queue, after all that computation has waited for, and after what the walk's `needs`
     * name. Exchanges: issue the batch that begins here. */
    SW_EVENT_ISSUE,
    /* Later work, on any queue, starts after the work of `queue` up to order `until`. */
    SW_EVENT_WAIT,
    SW_EVENT_PASSED,  /* the instruction at the position ran; after the end of its phase */
    SW_EVENT_BARRIER, /* later work, on every queue, starts after all earlier work */
    SW_EVENT_JOIN,    /* the host waits for computation and exchanges */
    SW_EVENT_LOSSES,  /* these three are the other actions of a step: enum sw_step_action */
    SW_EVENT_AGREE,
    SW_EVENT_COMMIT,
    SW_EVENT_END /* no phase is left */
};

#define SW_WALK_ALL INT64_MAX
/* Orders of a phase with a turn are those of its instructions plus `turn` times this, so that they
 * follow those of all phases before it. */
#define SW_WALK_TURN (INT64_C(1) << 40)

/* Most transfers of a disk queue that are begun and not ended. Other queues have one. */
enum { SW_QUEUE_BEGUN = 32 };

struct sw_event {
    enum sw_event_kind kind;
    enum sw_queue queue; /* WAIT: a queue beside computation */
    int64_t until;       /* WAIT */
};

/* A walk and its current position. Events refer to the position; consumers read the first six
 * members only. */
struct sw_walk {
    const struct sw_program *program;
    const struct sw_step_phase *phase;
    int32_t instr;
    int32_t piece; /* piece of a loop; else 0 */
    int64_t order; /* see struct sw_instr; here for this piece and phase */
    /* By queue, the order of the latest instruction that must be complete before this one starts;
     * -1 = none. */
    int64_t needs[SW_QUEUE_COUNT];

    const struct sw_plan *plan;
    const struct sw_step_phase *end; /* of the phases */
    int32_t last;                    /* instruction of the phase */
    int32_t turn;                    /* in a loop: number of the round of its pieces */
    bool loads;                      /* in a loop: the loads of the turn are issued */
    bool left_out;                   /* the instruction does not run in this phase */
    int8_t queue;                    /* next one whose wait is looked at */
    int8_t stage;                    /* what comes next, see walk.c */
};

/* Begins a walk through n phases; all are borrowed until the walk is over. */
void sw_walk_begin(struct sw_walk *walk, const struct sw_plan *plan,
                   const struct sw_step_phase *phases, int32_t n);
/* Returns the next event; END again and again once no phase is left. */
void sw_walk_next(struct sw_walk *walk, struct sw_event *out);

#include "walk/clock.h"
#include "walk/speeds.h"
