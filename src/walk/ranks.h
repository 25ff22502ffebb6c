// SPDX-License-Identifier: Apache-2.0
// ranks - a simulated step of some ranks, shared by the files of the clock: shares.c finds the
// speed of each queue; lines.c serves the queues of a rank; meet.c lets ranks wait for each other;
// units.c finds the ranks that share something; aside.c keeps those that wait; fold.c skips
// micro-batches that pass like those before; clock.c follows the walks. Private to this folder.
#pragma once

#include <math.h>

#include "walk/walk.h"

struct job {
    int32_t instr;
    bool later; /* it has the costs of later micro-steps */
    const struct sw_step_phase *phase;
    int64_t order;
    int64_t needs[SW_QUEUE_COUNT]; /* number of jobs of each queue that must be done before */
    double end;                    /* when it is complete, once it is served */
};

/* A queue beside computation. Jobs n_done .. n_served - 1 wait for their latency. The next one is
 * served, or waits for what it needs. */
struct line {
    struct job *jobs; /* ring of `cap` jobs, a power of two */
    int64_t cap;
    int64_t n_issued, n_served, n_done;
    bool serving;
    bool is_here; /* the next job is an exchange that waits for other ranks */
    double since; /* its arrival; the beginning of the job that is served */
    double delay; /* seconds until all ranks have arrived; the job that is served begins then */
    double left;  /* remaining seconds of the job that is served */
    double latency, cores, bandwidth;
    int32_t way;
    double free_from; /* when the last job was served */
};

/* A meeting of ranks, as the members that are there see it. */
struct meeting {
    double from;             /* the last arrival */
    double seconds, latency; /* of the slowest member */
};

/* All members of a group, identified by their first one. SEND and RECV need none: the peer's queue
 * shows whether it is there. */
struct gate {
    int n_here;
    struct meeting meeting;
};

struct rank {
    const struct sw_plan *plan;
    const struct sw_pace *pace;
    struct sw_walk walk;
    struct sw_clock_report report; /* without `instrs` if it is not wanted */
    double now;
    const struct sw_clock_rank *asked;
    double kernel; /* remaining seconds of the kernel */
    double kernel_cores, kernel_bandwidth;
    double speed[SW_QUEUE_COUNT]; /* of each queue until the next event, 0 to 1; 1 = as alone */
    double since;                 /* the beginning of the kernel */
    struct line lines[SW_QUEUE_COUNT];
    enum sw_queue waits_for; /* queue that computation waits for; COMPUTE = it runs */
    int64_t target;          /* number of its jobs that must be done */
    int32_t charged;         /* instruction that runs, or that computation waits for */
    unsigned drains;         /* set of queues that computation waits for next, 1 << enum sw_queue */
    int end;                 /* queues from this one on have no jobs */
    bool meets;              /* ranks communicate before the next event */
    bool talks;              /* it waits for others to communicate */
    bool sleeps;             /* it waits for a queue, and takes time to go on */
    bool has_ended;
    int n_here; /* exchanges at which it waits for others, and `talks` */
    int unit;
    const struct circle *circles; /* [n_groups] */
};

/* The members of a group that are walked, each once. */
struct circle {
    int n, *who; /* indices, ascending */
};

/* Ranks that share something, and have one time; or a rank alone. */
struct unit {
    int n, *who; /* indices, ascending */
    double next; /* while it is aside: the time of its next event; infinite = none */
    int place;   /* in the heap; -1 = it is not aside */
};

/* The use of a shared thing by a queue, on as many ranks as are walked as one. */
struct flow {
    int id, n;     /* n: users, all of them equally much */
    double share;  /* of each, at full speed */
    double *speed; /* of the queue */
};

struct clock {
    struct rank *ranks; /* [n] */
    int n;
    struct gate *gates; /* [groups of a plan, n] by group and first member; NULL = a rank alone */
    int n_gates;
    struct fold *fold; /* see fold.c; NULL = no micro-batches are folded */
    /* [ranks of the world] index in `ranks`; -1 = another rank stands for it; NULL = all are there,
     * each at its number */
    int *index_of;
    struct circle *circles; /* [sum of the ranks' groups] */
    struct unit *units;     /* [n_units] */
    int n_units;
    int *ready; /* [n_units] those that can advance */
    int *aside; /* [n_units] heap of those that are put aside, the earliest `next` first */
    int n_ready, n_aside, n_ended; /* ended: ranks */
    struct sw_arena arena;         /* lists of ranks */
    struct flow *flows;            /* for sw_unit_speeds */
};

static inline struct sw_cost sw_rank_cost(const struct rank *r, int32_t instr, bool later)
{
    const enum sw_queue queue = r->plan->programs[0].instrs[instr].queue;
    const double slower = r->pace->slower[queue];
    struct sw_cost cost = r->pace->costs[instr][later];
    if (slower > 0) {
        cost.seconds *= slower;
        cost.latency *= slower;
    }
    return cost;
}

static inline struct job *sw_job_at(const struct line *line, int64_t i)
{
    return &line->jobs[i & (line->cap - 1)];
}

/* Tells the caller that an instruction ran from `begin` until now. */
static inline void sw_rank_tell(const struct rank *r, int32_t instr,
                                const struct sw_step_phase *phase, double begin)
{
    const struct sw_clock_span span = {begin, r->now, instr, phase};
    if (r->asked->ran) {
        r->asked->ran(r->asked->ctx, &span);
    }
}

/* The index of a rank of the world; -1 = it is not there. */
static inline int sw_clock_index(const struct clock *c, int world_rank)
{
    return c->index_of ? c->index_of[world_rank] : world_rank;
}

/* The instruction of the next job of a queue. */
static inline const struct sw_instr *sw_rank_instr(const struct rank *r, const struct line *line)
{
    return &r->plan->programs[0].instrs[sw_job_at(line, line->n_served)->instr];
}

/* ---- shares.c ---- */

/* Sets the current speed of each queue of a unit's ranks. */
void sw_unit_speeds(const struct clock *c, const struct unit *u);
/* How much longer a cost takes while the ranks that are walked as this one do the same. */
double sw_rank_crowd(const struct rank *r, const struct sw_cost *cost);

/* ---- units.c ---- */

/* Finds circles and units of all ranks, which are opened. */
sw_status sw_clock_open_units(struct clock *c);
void sw_clock_close_units(struct clock *c);

/* ---- aside.c ---- */

void sw_clock_put_aside(struct clock *c, struct unit *u, double next);
void sw_clock_take_back(struct clock *c, struct unit *u);

/* ---- fold.c ---- */

/* Looks for micro-batches that all ranks repeat. fold stays NULL if there are none, or a rank's
 * spans are wanted. Release with sw_clock_close_fold, also after a failure. */
sw_status sw_clock_open_fold(struct clock *c);
void sw_clock_close_fold(struct clock *c);
/* Between the advances of ranks: skips micro-batches if the last ones passed like those before. */
sw_status sw_clock_fold(struct clock *c);

/* ---- lines.c ---- */

/* Occupies computation for `seconds` of a cost. for_queue: the queue that they are charged to;
 * COMPUTE for a kernel. charged: the instruction; -1 = none. */
void sw_rank_compute(struct rank *r, const struct sw_cost *cost, enum sw_queue for_queue,
                     int32_t charged);
/* Makes room for another job. The executor has room for all jobs of a step. */
sw_status sw_line_make_room(struct line *line);
/* Number of jobs of a queue up to order `until`; see queues.c. */
int64_t sw_line_jobs_until(const struct line *line, int64_t until);
/* Time until the next event at current speeds; infinite = nothing is running. */
double sw_rank_time_left(const struct rank *r);
/* Lets so many seconds pass, until its next event or less. */
void sw_rank_go_on(struct rank *r, double seconds);

/* ---- meet.c ---- */

/* Takes a rank to the gate of a group. The last one to come lets all of them go. queue: that of the
 * exchange; COMPUTE = ranks talk */
void sw_clock_meet(struct clock *c, struct rank *r, int group, enum sw_queue queue,
                   const struct meeting *mine);
/* Begins what can begin, on all queues of a rank. */
sw_status sw_clock_serve(struct clock *c, struct rank *r);
