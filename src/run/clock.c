// SPDX-License-Identifier: Apache-2.0
// Simulates the queues of a step. Time stands still while the walk issues. It advances from event
// to event while computation runs a kernel or waits. Between two events nothing begins or ends, so
// all work proceeds at constant speed. Speed 1 is that of work alone; it is less if others use the
// processors or the disk.
#include "run/clock.h"

#include <math.h>

#include "run/queues.h"
#include "run/walk.h"

struct job {
    int32_t instr;
    int64_t order;
    struct sw_cost cost;
    int64_t needs[SW_QUEUE_COUNT]; /* number of jobs of each other queue that must be done before */
};

/* A queue beside computation. Jobs n_done .. n_served - 1 wait for their latency. The next one is
 * served, or waits for what it needs. */
struct line {
    struct job *jobs; /* ring of `cap` jobs */
    int32_t cap;
    int64_t n_issued, n_served, n_done;
    int most_begun;
    bool serving;
    double left;                 /* remaining seconds of the job that is served */
    double ends[SW_QUEUE_BEGUN]; /* by slot: when a served job is complete */
};

struct clock {
    const struct sw_plan *plan;
    const struct sw_pace *pace;
    struct sw_clock_report *report;
    double now;
    double kernel, kernel_cores; /* remaining seconds of the kernel, and its processors */
    struct line lines[SW_QUEUE_COUNT];
    double speed[SW_QUEUE_COUNT]; /* current speed of each queue */
    enum sw_queue waits_for;      /* queue that computation waits for; COMPUTE = it runs */
    int32_t charged;              /* instruction that runs, or that computation waits for */
};

/* ---- speeds ---- */

/* Threads that want processors, all of them equally much. */
struct wish {
    enum sw_queue queue;
    int n_threads;
    double each;
};

/* The most that each thread gets so that at most `cores` are in use. Threads that want less get
 * what they want; the others share equally. */
static double fair_level(const struct wish *wishes, int n, double cores)
{
    double level = INFINITY;
    for (int pass = 0; pass <= n; pass++) { /* each pass satisfies at least one more wish */
        double left = cores;
        int n_more = 0;
        for (int i = 0; i < n; i++) {
            const bool content = pass > 0 && wishes[i].each <= level;
            left -= content ? wishes[i].n_threads * wishes[i].each : 0;
            n_more += content ? 0 : wishes[i].n_threads;
        }
        if (n_more == 0) {
            return INFINITY;
        }
        level = left / n_more;
    }
    return level;
}

static void add_wish(const struct clock *c, enum sw_queue queue, double cores, struct wish *wishes,
                     int *n)
{
    if (cores > 0 && c->pace->cores > 0) {
        const int n_threads = (int)sw_max_i64(1, (int64_t)ceil(cores - 0.05));
        wishes[(*n)++] = (struct wish){queue, n_threads, cores * c->speed[queue] / n_threads};
    }
}

static const struct job *head_of(const struct line *line)
{
    return &line->jobs[line->n_served % line->cap];
}

static void set_speeds(struct clock *c)
{
    struct wish wishes[SW_QUEUE_COUNT];
    int n = 0;
    const bool both = c->lines[SW_QUEUE_READ].serving && c->lines[SW_QUEUE_WRITE].serving;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        const bool disk = q == SW_QUEUE_READ || q == SW_QUEUE_WRITE;
        c->speed[q] = disk && both ? c->pace->disk_share : 1;
    }
    if (c->kernel > 0) {
        add_wish(c, SW_QUEUE_COMPUTE, c->kernel_cores, wishes, &n);
    }
    for (int q = SW_QUEUE_COMM; q < SW_QUEUE_COUNT; q++) {
        if (c->lines[q].serving) {
            add_wish(c, (enum sw_queue)q, head_of(&c->lines[q])->cost.cores, wishes, &n);
        }
    }
    const double level = n > 0 ? fair_level(wishes, n, c->pace->cores) : INFINITY;
    for (int i = 0; i < n; i++) {
        c->speed[wishes[i].queue] *= fmin(1, level / wishes[i].each);
    }
}

/* ---- events ---- */

static bool has_met(const struct clock *c, const struct job *job)
{
    for (int q = SW_QUEUE_COMM; q < SW_QUEUE_COUNT; q++) {
        if (c->lines[q].n_done < job->needs[q]) {
            return false;
        }
    }
    return true;
}

static void serve_next(struct clock *c, struct line *line)
{
    const bool room = line->n_served - line->n_done < line->most_begun;
    if (!line->serving && line->n_served < line->n_issued && room && has_met(c, head_of(line))) {
        line->serving = true;
        line->left = head_of(line)->cost.seconds;
    }
}

/* Jobs end in the order in which they began. */
static void end_service(struct clock *c, struct line *line)
{
    const double end = c->now + head_of(line)->cost.latency;
    const int64_t before = line->n_served - 1;
    const double last = before >= line->n_done ? line->ends[before % SW_QUEUE_BEGUN] : end;
    line->ends[line->n_served % SW_QUEUE_BEGUN] = fmax(end, last);
    line->n_served++;
    line->serving = false;
}

/* Time until the next event at current speeds; infinite = nothing is running. */
static double time_left(const struct clock *c)
{
    double least = c->kernel > 0 ? c->kernel / c->speed[SW_QUEUE_COMPUTE] : INFINITY;
    for (int q = SW_QUEUE_COMM; q < SW_QUEUE_COUNT; q++) {
        const struct line *line = &c->lines[q];
        if (line->serving) {
            least = fmin(least, line->left / c->speed[q]);
        }
        if (line->n_done < line->n_served) {
            least = fmin(least, line->ends[line->n_done % SW_QUEUE_BEGUN] - c->now);
        }
    }
    return fmax(least, 0);
}

static double without(double left, double done)
{
    return left - done > 1e-12 * done ? left - done : 0; /* ignores what rounding leaves */
}

static void charge(struct clock *c, double seconds)
{
    c->report->part[c->waits_for] += seconds;
    if (c->charged >= 0) {
        c->report->instrs[c->charged].charge += seconds;
    }
}

/* Advances to the next event. false = there is none */
static bool go_on(struct clock *c)
{
    for (int q = SW_QUEUE_COMM; q < SW_QUEUE_COUNT; q++) {
        serve_next(c, &c->lines[q]);
    }
    set_speeds(c);
    const double seconds = time_left(c);
    if (!isfinite(seconds)) {
        return false;
    }
    c->now += seconds;
    charge(c, seconds);
    if (c->kernel > 0) {
        c->kernel = without(c->kernel, seconds * c->speed[SW_QUEUE_COMPUTE]);
    }
    for (int q = SW_QUEUE_COMM; q < SW_QUEUE_COUNT; q++) {
        struct line *line = &c->lines[q];
        if (line->serving) {
            line->left = without(line->left, seconds * c->speed[q]);
        }
        if (line->serving && line->left == 0) {
            end_service(c, line);
        }
        while (line->n_done < line->n_served &&
               line->ends[line->n_done % SW_QUEUE_BEGUN] <= c->now) {
            line->n_done++;
        }
    }
    return true;
}

/* ---- jobs ---- */

/* Number of jobs of a queue up to order `until`; see queues.c. */
static int64_t jobs_until(const struct line *line, int64_t until)
{
    int64_t n = line->n_issued;
    while (n > line->n_done && line->jobs[(n - 1) % line->cap].order > until) {
        n--;
    }
    return n;
}

static sw_status wait_until(struct clock *c, enum sw_queue queue, int64_t until)
{
    const struct line *line = &c->lines[queue];
    const int64_t target = jobs_until(line, until);
    if (line->n_done >= target) {
        return SW_OK;
    }
    c->waits_for = queue;
    c->charged = line->jobs[(target - 1) % line->cap].instr;
    while (line->n_done < target) {
        if (!go_on(c)) {
            return SW_FAIL(SW_E_ARG, "instruction %d on %s waits for one that never completes",
                           c->charged, sw_queue_name(queue));
        }
    }
    return SW_OK;
}

static struct sw_cost cost_of(const struct clock *c, const struct sw_walk *at)
{
    const int micro = at->program->instrs[at->instr].micro;
    const bool first = micro < 0 || at->phase->round + micro == 0;
    const struct sw_cost cost = c->pace->costs[at->instr][first ? 0 : 1];
    const enum sw_queue queue = at->program->instrs[at->instr].queue;
    const double latency = queue == SW_QUEUE_COMPUTE ? 0 : cost.latency;
    struct sw_clock_instr *instr = &c->report->instrs[at->instr];
    const double cores = c->pace->cores;
    const double slower = cores > 0 && cost.cores > cores ? cost.cores / cores : 1;
    const double seconds = cost.seconds * slower; /* alone, with the available processors */
    const int32_t batch = at->program->instrs[at->instr].batch;
    for (int32_t k = 0; k < (batch > 1 ? batch : 1); k++) {
        instr[k].runs++;
    }
    instr->alone += seconds + latency;
    c->report->alone[queue] += seconds;
    c->report->most += seconds + latency;
    return cost;
}

/* ---- the events of a walk ---- */

static void compute(struct clock *c)
{
    while (c->kernel > 0) {
        go_on(c);
    }
}

static void run_kernel(struct clock *c, const struct sw_walk *at)
{
    const struct sw_cost cost = cost_of(c, at);
    c->kernel = cost.seconds;
    c->kernel_cores = cost.cores;
    c->waits_for = SW_QUEUE_COMPUTE;
    c->charged = at->instr;
    compute(c);
}

static sw_status issue(struct clock *c, const struct sw_walk *at)
{
    const struct sw_instr *instr = &at->program->instrs[at->instr];
    if (instr->queue == SW_QUEUE_COMPUTE) {
        run_kernel(c, at);
        return SW_OK;
    }
    struct line *line = &c->lines[instr->queue];
    while (line->n_issued - line->n_done == line->cap) {
        SW_TRY(wait_until(c, instr->queue, line->jobs[line->n_done % line->cap].order));
    }
    struct job *job = &line->jobs[line->n_issued % line->cap];
    *job = (struct job){.instr = at->instr, .order = at->order, .cost = cost_of(c, at)};
    for (int q = SW_QUEUE_COMM; q < SW_QUEUE_COUNT; q++) {
        const bool other = q != (int)instr->queue && at->needs[q] >= 0;
        job->needs[q] = other ? jobs_until(&c->lines[q], at->needs[q]) : 0;
    }
    line->n_issued++;
    return SW_OK;
}

static sw_status wait_for_all(struct clock *c)
{
    for (int q = SW_QUEUE_COMM; q < SW_QUEUE_COUNT; q++) {
        SW_TRY(wait_until(c, (enum sw_queue)q, SW_WALK_ALL));
    }
    return SW_OK;
}

/* Ranks communicate once their exchanges have arrived; computation waits. */
static sw_status meet(struct clock *c)
{
    const double seconds = c->plan->step.ranks > 1 ? c->pace->meeting : 0;
    SW_TRY(wait_until(c, SW_QUEUE_COMM, SW_WALK_ALL));
    c->kernel = seconds;
    c->kernel_cores = 0;
    c->waits_for = SW_QUEUE_COMM;
    c->charged = -1;
    c->report->alone[SW_QUEUE_COMM] += seconds;
    c->report->most += seconds;
    compute(c);
    return SW_OK;
}

static sw_status pass(struct clock *c, const struct sw_walk *at, const struct sw_event *event)
{
    switch (event->kind) {
    case SW_EVENT_ISSUE:
        return issue(c, at);
    case SW_EVENT_WAIT:
        return wait_until(c, event->queue, event->until);
    case SW_EVENT_BARRIER:
        return wait_for_all(c);
    case SW_EVENT_JOIN: /* transfers continue */
        return wait_until(c, SW_QUEUE_COMM, SW_WALK_ALL);
    case SW_EVENT_LOSSES:
    case SW_EVENT_AGREE:
        return meet(c);
    default:
        return SW_OK;
    }
}

static sw_status walk(struct clock *c)
{
    static const struct sw_step_phase forward = {
        .action = SW_STEP_RUN, .segment = SW_SEGMENT_FORWARD, .n_micro = 1, .drains = true};
    const struct sw_step *step = &c->plan->step;
    const bool trains = step->n_phases > 0;
    struct sw_walk walk;
    struct sw_event event;
    sw_walk_begin(&walk, c->plan, trains ? step->phases : &forward, trains ? step->n_phases : 1);
    do {
        sw_walk_next(&walk, &event);
        SW_TRY(pass(c, &walk, &event));
    } while (event.kind != SW_EVENT_END);
    return SW_OK;
}

/* ---- opening ---- */

/* Rings have the length of the executor's, which waits when one is full. */
static sw_status open_lines(struct clock *c)
{
    const struct sw_program *program = &c->plan->programs[0];
    for (int q = SW_QUEUE_COMM; q < SW_QUEUE_COUNT; q++) {
        const bool disk = q == SW_QUEUE_READ || q == SW_QUEUE_WRITE;
        c->lines[q].cap = 1;
        for (int32_t i = 0; i < program->n_instrs; i++) {
            const struct sw_instr *instr = &program->instrs[i];
            c->lines[q].cap += (int)instr->queue == q ? sw_instr_pieces(program, instr) : 0;
        }
        c->lines[q].most_begun = disk ? SW_QUEUE_BEGUN : 1;
        c->lines[q].jobs = sw_alloc_zero("run", (size_t)c->lines[q].cap, sizeof(struct job));
        SW_TRY_ALLOC(c->lines[q].jobs, "the clock of a step");
    }
    return SW_OK;
}

static void finish(struct clock *c)
{
    struct sw_clock_report *r = c->report;
    const struct sw_program *program = &c->plan->programs[0];
    r->seconds = c->now;
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

sw_status sw_clock_step(const struct sw_plan *plan, const struct sw_pace *pace,
                        struct sw_clock_report *out)
{
    const size_t n = (size_t)plan->programs[0].n_instrs + 1;
    struct sw_clock_report report = {.instrs = sw_alloc_zero("run", n, sizeof *report.instrs)};
    struct clock c = {.plan = plan, .pace = pace, .report = &report};
    SW_TRY_ALLOC(report.instrs, "the clock of a step");
    sw_status st = open_lines(&c);
    st = st < 0 ? st : walk(&c);
    for (int q = SW_QUEUE_COMM; q < SW_QUEUE_COUNT; q++) {
        sw_free(c.lines[q].jobs);
    }
    if (st < 0) {
        sw_free(report.instrs);
        return st;
    }
    finish(&c);
    *out = report;
    return SW_OK;
}
