// SPDX-License-Identifier: Apache-2.0
// Simulates the queues of a step, for one rank or for all of them. Each rank has a time of its own.
// It stands still while the walk issues, and advances from event to event while computation runs a
// kernel or waits. Between two events nothing begins or ends, so all work proceeds at constant
// speed. Speed 1 is that of work alone; it is less if others use the processors or the disk.
//
// Ranks that share links, disks or a host are a unit. They have one time, and advance to the next
// event of any of them. Most units are a rank alone.
//
// A unit with a rank that arrives at an exchange before others is put aside: how its time goes on
// may depend on them. The last one to arrive tells all members when the exchange starts and what it
// costs. Nothing else couples units, so the order in which others are advanced does not matter. If
// all are equal, the maximum over them is each one's own value, every rank does the arithmetic of a
// rank alone, and the times are equal to the last bit.
//
// The other queues of a unit that is aside go on, and may bring it to the exchange for which the
// others wait. If all units are aside, the one whose next event is earliest advances to it: whoever
// arrives for it arrives no earlier. If none has an event, they wait for each other forever.
#include "walk/ranks.h"

#include <string.h>

/* ---- the events of a walk ---- */

static bool is_later(const struct sw_walk *at)
{
    const int micro = at->program->instrs[at->instr].micro;
    return micro >= 0 && at->phase->round + micro > 0;
}

/* Counts the instruction at the walk's position in the report. */
static void count(struct rank *r, const struct sw_cost *cost)
{
    const int32_t i = r->walk.instr;
    const struct sw_instr *instr = &r->walk.program->instrs[i];
    const double latency = instr->queue == SW_QUEUE_COMPUTE ? 0 : cost->latency;
    const double cores = r->pace->cores;
    const double slower = cores > 0 && cost->cores > cores ? cost->cores / cores : 1;
    /* alone, with the available processors */
    const double seconds = cost->seconds * slower * sw_rank_crowd(r, cost);
    r->report.alone[instr->queue] += seconds;
    r->report.most += seconds + latency;
    if (r->report.instrs) {
        r->report.instrs[i].alone += seconds + latency;
        for (int32_t k = 0; k < (instr->exchange.batch > 1 ? instr->exchange.batch : 1); k++) {
            r->report.instrs[i + k].runs++;
        }
    }
}

/* Makes computation wait for the jobs of a queue up to order `until`. A no-op if they are done. */
static void wait_until(struct rank *r, enum sw_queue queue, int64_t until)
{
    const struct line *line = &r->lines[queue];
    const int64_t target = sw_line_jobs_until(line, until);
    if (line->n_done < target) {
        r->waits_for = queue;
        r->target = target;
        r->sleeps = r->pace->wake > 0;
        r->charged = sw_job_at(line, target - 1)->instr;
    }
}

/* True while computation runs a kernel or waits. */
static bool is_busy(const struct rank *r)
{
    return r->kernel > 0 || r->talks || r->lines[r->waits_for].n_done < r->target;
}

static sw_status issue(struct rank *r)
{
    const struct sw_walk *at = &r->walk;
    const enum sw_queue queue = at->program->instrs[at->instr].queue;
    const bool later = is_later(at);
    struct sw_cost cost = sw_rank_cost(r, at->instr, later);
    if (queue == SW_QUEUE_COMPUTE && r->pace->phases) {
        cost.seconds *= r->pace->phases[at->phase - r->plan->step.phases];
    }
    count(r, &cost);
    if (queue == SW_QUEUE_COMPUTE) {
        sw_rank_compute(r, &cost, SW_QUEUE_COMPUTE, at->instr);
        return SW_OK;
    }
    struct line *line = &r->lines[queue];
    SW_TRY(sw_line_make_room(line));
    struct job *job = sw_job_at(line, line->n_issued);
    *job = (struct job){.instr = at->instr, .later = later, .phase = at->phase, .order = at->order};
    for (int q = SW_QUEUE_COMM; q < r->end; q++) {
        job->needs[q] = at->needs[q] < 0 ? 0 : sw_line_jobs_until(&r->lines[q], at->needs[q]);
    }
    line->n_issued++;
    if (r->pace->issue > 0) {
        r->report.most += r->pace->issue;
        sw_rank_compute(r, &(struct sw_cost){.seconds = r->pace->issue}, queue, at->instr);
    }
    return SW_OK;
}

/* The set of all queues, or of those that exchange; runs_on: without messages of a pipeline. */
static unsigned set_of_queues(bool all, bool runs_on)
{
    unsigned set = 0;
    for (int i = SW_QUEUE_COMM; i < SW_QUEUE_COUNT; i++) {
        const enum sw_queue q = (enum sw_queue)i;
        const bool is_message = sw_queue_sends(q) || sw_queue_receives(q);
        set |= (all || sw_queue_exchanges(q)) && !(runs_on && is_message) ? 1U << i : 0;
    }
    return set;
}

/* Makes computation wait for the first of the queues that it drains. */
static void drain(struct rank *r)
{
    int q = SW_QUEUE_COMM;
    while (!(r->drains >> q & 1)) {
        q++;
    }
    r->drains &= ~(1U << q);
    wait_until(r, (enum sw_queue)q, SW_WALK_ALL);
}

/* Computation goes on after a wait. */
static void wake_up(struct rank *r)
{
    const struct sw_cost cost = {.seconds = r->pace->wake};
    r->sleeps = false;
    r->report.most += cost.seconds;
    sw_rank_compute(r, &cost, r->waits_for, r->charged);
}

static sw_status pass(struct rank *r, const struct sw_event *event)
{
    switch (event->kind) {
    case SW_EVENT_ISSUE:
        return issue(r);
    case SW_EVENT_WAIT:
        wait_until(r, event->queue, event->until);
        return SW_OK;
    case SW_EVENT_BARRIER:
        r->drains = set_of_queues(true, false);
        return SW_OK;
    case SW_EVENT_LOSSES:
    case SW_EVENT_AGREE: /* once the exchanges have arrived */
        r->meets = true;
        r->drains = set_of_queues(false, r->walk.phase->runs_on);
        return SW_OK;
    case SW_EVENT_JOIN: /* transfers continue */
        r->drains = set_of_queues(false, false);
        return SW_OK;
    default:
        return SW_OK;
    }
}

/* Ranks communicate between phases. */
static void talk(struct clock *c, struct rank *r)
{
    const struct sw_step *step = &r->plan->step;
    const double seconds = step->ranks > 1 || step->per_rank > 1 ? r->pace->meeting : 0;
    const struct meeting mine = {r->now, seconds, 0};
    r->meets = false;
    r->talks = true;
    r->report.alone[SW_QUEUE_COMM] += seconds;
    r->report.most += seconds;
    r->waits_for = SW_QUEUE_COMM;
    r->target = 0;
    r->charged = -1;
    sw_clock_meet(c, r, SW_GROUP_WORLD, SW_QUEUE_COMPUTE, &mine);
}

static sw_status fail_stuck(const struct rank *r)
{
    return SW_FAIL(SW_E_ARG, "instruction %d on %s waits for one that never completes", r->charged,
                   sw_queue_name(r->waits_for));
}

/* Does what takes no time: goes on until computation runs a kernel or waits, or the step ends. */
static sw_status settle(struct clock *c, struct rank *r)
{
    struct sw_event event;
    while (!r->has_ended) {
        if (is_busy(r)) {
            SW_TRY(sw_clock_serve(c, r));
            if (is_busy(r)) { /* nobody else let it go */
                return SW_OK;
            }
        } else if (r->sleeps) {
            wake_up(r);
        } else if (r->drains != 0) {
            drain(r);
        } else if (r->meets) {
            talk(c, r);
        } else {
            sw_walk_next(&r->walk, &event);
            SW_TRY(pass(r, &event));
            r->has_ended = event.kind == SW_EVENT_END;
            c->n_ended += r->has_ended;
        }
    }
    return SW_OK;
}

/* Settles all ranks of a unit, which may let each other go. */
static sw_status settle_all(struct clock *c, const struct unit *u)
{
    bool again = true;
    while (again) {
        again = false;
        for (int i = 0; i < u->n; i++) {
            SW_TRY(settle(c, &c->ranks[u->who[i]]));
        }
        for (int i = 0; i < u->n; i++) {
            const struct rank *r = &c->ranks[u->who[i]];
            again |= !r->has_ended && !is_busy(r);
        }
    }
    return SW_OK;
}

/* The time until the next event of a unit; infinite = nothing is running. Returns one of its ranks
 * that have not ended; NULL = all have. *waits: one waits for others */
static const struct rank *find_next(const struct clock *c, const struct unit *u, double *seconds,
                                    bool *waits)
{
    const struct rank *any = NULL;
    *seconds = INFINITY;
    *waits = false;
    sw_unit_speeds(c, u);
    for (int i = 0; i < u->n; i++) {
        const struct rank *r = &c->ranks[u->who[i]];
        if (!r->has_ended) {
            *seconds = fmin(*seconds, sw_rank_time_left(r));
            *waits |= r->n_here > 0;
            any = r;
        }
    }
    return any;
}

/* Advances a unit until its ranks have ended or it is put aside. may_step: it was aside, and may
 * advance to one event. */
static sw_status advance(struct clock *c, struct unit *u, bool may_step)
{
    for (;;) {
        double seconds;
        bool waits;
        SW_TRY(settle_all(c, u));
        const struct rank *any = find_next(c, u, &seconds, &waits);
        if (!any) {
            return SW_OK;
        }
        if (waits && !(may_step && isfinite(seconds))) {
            sw_clock_put_aside(c, u, any->now + seconds);
            return SW_OK;
        }
        if (!isfinite(seconds)) {
            return fail_stuck(any);
        }
        may_step = false;
        for (int i = 0; i < u->n; i++) {
            if (!c->ranks[u->who[i]].has_ended) {
                sw_rank_go_on(&c->ranks[u->who[i]], seconds);
            }
        }
    }
}

/* The number of a rank in the world. */
static int number_of(const struct clock *c, int i)
{
    const struct sw_group *world = &c->ranks[i].plan->groups[SW_GROUP_WORLD];
    return c->index_of ? world->ranks[world->me] : i;
}

/* Names the ranks that wait for each other, and their exchanges. */
static sw_status fail_deadlock(const struct clock *c)
{
    enum { MOST_NAMED = 4 };
    struct sw_str who = {0};
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        const struct rank *r = &c->ranks[i];
        if (r->has_ended || ++n > MOST_NAMED) {
            continue;
        }
        sw_str_printf(&who, "%s rank %d", n > 1 ? "," : "", number_of(c, i));
        sw_str_puts(&who, r->talks ? " between phases" : "");
        for (int q = SW_QUEUE_COMM; q < r->end; q++) {
            if (r->lines[q].is_here) {
                const struct sw_instr *instr = sw_rank_instr(r, &r->lines[q]);
                sw_str_printf(&who, " at instruction %d (%s in %s)",
                              (int)(instr - r->plan->programs[0].instrs), instr->about->name,
                              instr->about->where);
            }
        }
    }
    const sw_status st = SW_FAIL(SW_E_ARG, "%d of %d ranks wait for others that never come:%s%s", n,
                                 c->n, sw_str_text(&who), n > MOST_NAMED ? ", .." : "");
    sw_str_fini(&who);
    return st;
}

static sw_status advance_all(struct clock *c)
{
    for (;;) {
        SW_TRY(c->fold ? sw_clock_fold(c) : SW_OK);
        if (c->n_ready > 0) {
            SW_TRY(advance(c, &c->units[c->ready[--c->n_ready]], false));
        } else if (c->n_aside > 0 && isfinite(c->units[c->aside[0]].next)) {
            struct unit *u = &c->units[c->aside[0]];
            sw_clock_take_back(c, u);
            SW_TRY(advance(c, u, true));
        } else {
            return c->n_ended < c->n ? fail_deadlock(c) : SW_OK;
        }
    }
}

/* ---- opening ---- */

/* The number of the last queue that the plan's first program uses, plus 1. */
static int end_of_queues(const struct sw_plan *plan)
{
    int end = SW_QUEUE_COMM;
    for (int32_t i = 0; i < plan->programs[0].n_instrs; i++) {
        const int queue = (int)plan->programs[0].instrs[i].queue;
        end = queue < end ? end : queue + 1;
    }
    return end;
}

/* Without training, the step is one forward. */
static sw_status open_rank(struct rank *r, const struct sw_clock_rank *asked)
{
    static const struct sw_step_phase forward = {
        .action = SW_STEP_RUN, .segment = SW_SEGMENT_FORWARD, .n_micro = 1, .drains = true};
    const struct sw_step *step = &asked->plan->step;
    const bool trains = step->n_phases > 0;
    *r = (struct rank){.asked = asked,
                       .plan = asked->plan,
                       .pace = asked->pace,
                       .charged = -1,
                       .end = end_of_queues(asked->plan)};
    sw_walk_begin(&r->walk, asked->plan, trains ? step->phases : &forward,
                  trains ? step->n_phases : 1);
    if (asked->report) {
        const size_t n = (size_t)asked->plan->programs[0].n_instrs + 1;
        r->report.instrs = sw_alloc_zero("walk", n, sizeof *r->report.instrs);
        SW_TRY_ALLOC(r->report.instrs, "the clock of a step");
    }
    return SW_OK;
}

/* n: ranks of the world */
static sw_status check_groups(const struct sw_plan *plan, int i, int n)
{
    for (int g = 0; g < plan->n_groups; g++) {
        const struct sw_group *group = &plan->groups[g];
        for (int k = 0; k < group->n; k++) {
            if (group->ranks[k] < 0 || group->ranks[k] >= n) {
                return SW_FAIL(SW_E_ARG, "rank %d is in a group with rank %d of a world of %d", i,
                               group->ranks[k], n);
            }
        }
    }
    return SW_OK;
}

static sw_status open_ranks(struct clock *c, const struct sw_clock_rank *asked)
{
    const int world = c->index_of ? asked[0].plan->groups[SW_GROUP_WORLD].n : c->n;
    int n_groups = 0;
    c->ranks = sw_alloc_zero("walk", (size_t)c->n, sizeof *c->ranks);
    SW_TRY_ALLOC(c->ranks, "the clock of a step");
    for (int i = 0; i < c->n; i++) {
        SW_TRY(open_rank(&c->ranks[i], &asked[i]));
        SW_TRY(c->n > 1 && (i == 0 || asked[i].plan != asked[i - 1].plan)
                   ? check_groups(asked[i].plan, i, world)
                   : SW_OK);
        n_groups = asked[i].plan->n_groups > n_groups ? asked[i].plan->n_groups : n_groups;
    }
    SW_TRY(sw_clock_open_units(c));
    if (c->n > 1) {
        c->n_gates = c->n * n_groups;
        c->gates = sw_alloc_zero("walk", (size_t)c->n_gates, sizeof *c->gates);
        SW_TRY_ALLOC(c->gates, "the clock of a step");
        SW_TRY(sw_clock_open_fold(c));
    }
    return SW_OK;
}

/* Completes a report that has `instrs`. */
static void finish(struct rank *rank)
{
    struct sw_clock_report *r = &rank->report;
    const struct sw_program *program = &rank->plan->programs[0];
    r->seconds = rank->now;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        r->least = fmax(r->least, r->alone[q]);
        r->bound = r->part[q] > r->part[r->bound] ? (enum sw_queue)q : r->bound;
    }
    r->longest = -1;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const double most = r->longest < 0 ? 0 : r->instrs[r->longest].charge;
        if (program->instrs[i].queue == r->bound && r->instrs[i].charge > most) {
            r->longest = i;
        }
    }
}

static void close_ranks(struct clock *c)
{
    for (int i = 0; c->ranks && i < c->n; i++) {
        for (int q = SW_QUEUE_COMM; q < SW_QUEUE_COUNT; q++) {
            sw_free(c->ranks[i].lines[q].jobs);
        }
        sw_free(c->ranks[i].report.instrs);
    }
    sw_free(c->ranks);
    sw_clock_close_units(c);
    sw_free(c->gates);
    sw_clock_close_fold(c);
    sw_free(c->index_of);
}

/* Writes the results of all ranks. */
static void hand_over(struct clock *c, struct sw_clock_rank *ranks)
{
    double begin = INFINITY, end = 0;
    for (int i = 0; i < c->n; i++) {
        const struct sw_clock_passes *passes = &c->ranks[i].report.passes;
        begin = passes->busy > 0 ? fmin(begin, passes->begin) : begin;
        end = fmax(end, passes->end);
    }
    for (int i = 0; i < c->n; i++) {
        struct rank *r = &c->ranks[i];
        ranks[i].seconds = r->now;
        ranks[i].idle = end > begin ? 1 - r->report.passes.busy / (end - begin) : 0;
        if (ranks[i].report) {
            finish(r);
            *ranks[i].report = r->report;
            r->report.instrs = NULL;
        }
    }
}

/* Walks the step of these ranks. c: its n, and perhaps index_of, which is freed */
static sw_status walk(struct clock *c, struct sw_clock_rank *ranks)
{
    sw_status st = open_ranks(c, ranks);
    st = st < 0 ? st : advance_all(c);
    if (st >= 0) {
        hand_over(c, ranks);
    }
    close_ranks(c);
    return st;
}

sw_status sw_clock_ranks(struct sw_clock_rank *ranks, int n)
{
    struct clock c = {.n = n};
    return walk(&c, ranks);
}

sw_status sw_clock_stages(struct sw_clock_rank *stages, int n)
{
    struct clock c = {.n = n};
    const int world = stages[0].plan->groups[SW_GROUP_WORLD].n;
    c.index_of = sw_alloc("walk", (size_t)world * sizeof *c.index_of);
    SW_TRY_ALLOC(c.index_of, "the clock of a step");
    memset(c.index_of, 0xff, (size_t)world * sizeof *c.index_of);
    for (int i = 0; i < n; i++) {
        const struct sw_group *group = &stages[i].plan->groups[SW_GROUP_WORLD];
        const int rank = group->n == world ? group->ranks[group->me] : -1;
        if (rank < 0 || c.index_of[rank] >= 0) {
            sw_free(c.index_of);
            return SW_FAIL(SW_E_ARG,
                           "stage %d: wanted a rank of a world of %d that no other stage has", i,
                           world);
        }
        c.index_of[rank] = i;
    }
    return walk(&c, stages);
}

sw_status sw_clock_kinds(struct sw_clock_rank *kinds, int n, const int *kind_of)
{
    struct clock c = {.n = n};
    const size_t bytes = (size_t)kinds[0].plan->groups[SW_GROUP_WORLD].n * sizeof *c.index_of;
    c.index_of = sw_alloc("walk", bytes);
    SW_TRY_ALLOC(c.index_of, "the clock of a step");
    memcpy(c.index_of, kind_of, bytes);
    return walk(&c, kinds);
}

sw_status sw_clock_step(const struct sw_plan *plan, const struct sw_pace *pace,
                        struct sw_clock_report *out)
{
    struct sw_clock_rank rank = {.plan = plan, .pace = pace, .report = out};
    return sw_clock_ranks(&rank, 1);
}
