// SPDX-License-Identifier: Apache-2.0
// Simulates the queues of a step, for one rank or for all of them. Each rank has a time of its own.
// It stands still while the walk issues, and advances from event to event while computation runs a
// kernel or waits. Between two events nothing begins or ends, so all work proceeds at constant
// speed. Speed 1 is that of work alone; it is less if others use the processors or the disk.
//
// A rank that arrives at an exchange before others is put aside: how its time goes on may depend on
// them. The last one to arrive tells all members when the exchange starts and what it costs.
// Nothing else couples ranks, so the order in which others are advanced does not matter. If all are
// equal, the maximum over them is each one's own value, every rank does the arithmetic of a rank
// alone, and the times are equal to the last bit.
//
// The other queues of a rank that is aside go on, and may bring it to the exchange for which the
// others wait. If all ranks are aside, the one whose next event is earliest advances to it: whoever
// arrives for it arrives no earlier. If none has an event, they wait for each other forever.
#include <math.h>

#include "walk/walk.h"

struct job {
    int32_t instr;
    bool later; /* it has the costs of later micro-steps */
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
    double since; /* its arrival */
    double delay; /* seconds until all ranks have arrived; the job that is served begins then */
    double left;  /* remaining seconds of the job that is served */
    double latency, cores;
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
    double kernel, kernel_cores; /* remaining seconds of the kernel, and its processors */
    struct line lines[SW_QUEUE_COUNT];
    enum sw_queue waits_for; /* queue that computation waits for; COMPUTE = it runs */
    int64_t target;          /* number of its jobs that must be done */
    int32_t charged;         /* instruction that runs, or that computation waits for */
    unsigned drains;         /* set of queues that computation waits for next, 1 << enum sw_queue */
    int end;                 /* queues from this one on have no jobs */
    bool meets;              /* ranks communicate before the next event */
    bool talks;              /* it waits for others to communicate */
    bool has_ended;
    int n_here;  /* exchanges at which it waits for others, and `talks` */
    double next; /* while it is aside: the time of its next event; infinite = none */
    int place;   /* in the heap; -1 = it is not aside */
};

struct clock {
    struct rank *ranks; /* [n] */
    int n;
    struct gate *gates; /* [groups of a plan, n] by group and first member; NULL = a rank alone */
    int *ready;         /* [n] ranks that can advance */
    int *aside;         /* [n] heap of ranks that are put aside, the earliest `next` first */
    int n_ready, n_aside, n_ended;
};

/* ---- costs ---- */

static struct sw_cost cost_of(const struct rank *r, int32_t instr, bool later)
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
    const double seconds = cost->seconds * slower; /* alone, with the available processors */
    r->report.alone[instr->queue] += seconds;
    r->report.most += seconds + latency;
    if (r->report.instrs) {
        r->report.instrs[i].alone += seconds + latency;
        for (int32_t k = 0; k < (instr->exchange.batch > 1 ? instr->exchange.batch : 1); k++) {
            r->report.instrs[i + k].runs++;
        }
    }
}

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

/* cores: processors that the work of a queue occupies at speed 1; 0 = it wants none */
static void add_wish(enum sw_queue queue, double cores, const double *speed, struct wish *wishes,
                     int *n)
{
    if (cores > 0) {
        const int n_threads = (int)sw_max_i64(1, (int64_t)ceil(cores - 0.05));
        wishes[(*n)++] = (struct wish){queue, n_threads, cores * speed[queue] / n_threads};
    }
}

/* Multiplies the speed of each queue by the part of its processors that it gets. */
static void share_cores(const struct rank *r, double speed[SW_QUEUE_COUNT])
{
    struct wish wishes[SW_QUEUE_COUNT];
    int n = 0;
    if (r->kernel > 0) {
        add_wish(SW_QUEUE_COMPUTE, r->kernel_cores, speed, wishes, &n);
    }
    for (int q = SW_QUEUE_COMM; q < r->end; q++) {
        if (r->lines[q].serving && r->lines[q].delay == 0) {
            add_wish((enum sw_queue)q, r->lines[q].cores, speed, wishes, &n);
        }
    }
    const double level = n > 0 ? fair_level(wishes, n, r->pace->cores) : INFINITY;
    for (int i = 0; i < n; i++) {
        speed[wishes[i].queue] *= fmin(1, level / wishes[i].each);
    }
}

/* Current speed of each queue, from 0 to 1; 1 = as fast as alone. */
static void find_speeds(const struct rank *r, double speed[SW_QUEUE_COUNT])
{
    const bool both = r->lines[SW_QUEUE_READ].serving && r->lines[SW_QUEUE_WRITE].serving;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        const bool disk = q == SW_QUEUE_READ || q == SW_QUEUE_WRITE;
        speed[q] = disk && both ? r->pace->disk_share : 1;
    }
    if (r->pace->cores > 0) {
        share_cores(r, speed);
    }
}

/* ---- ranks that are put aside: a binary heap ---- */

static bool is_earlier(const struct clock *c, int a, int b)
{
    const struct rank *x = &c->ranks[c->aside[a]], *y = &c->ranks[c->aside[b]];
    return x->next != y->next ? x->next < y->next : x < y;
}

static void swap(struct clock *c, int a, int b)
{
    const int rank = c->aside[a];
    c->aside[a] = c->aside[b];
    c->aside[b] = rank;
    c->ranks[c->aside[a]].place = a;
    c->ranks[c->aside[b]].place = b;
}

static void rise(struct clock *c, int at)
{
    for (; at > 0 && is_earlier(c, at, (at - 1) / 2); at = (at - 1) / 2) {
        swap(c, at, (at - 1) / 2);
    }
}

static void sink(struct clock *c, int at)
{
    for (int least = at;; at = least) {
        for (int k = 2 * at + 1; k <= 2 * at + 2 && k < c->n_aside; k++) {
            least = is_earlier(c, k, least) ? k : least;
        }
        if (least == at) {
            return;
        }
        swap(c, at, least);
    }
}

static void put_aside(struct clock *c, struct rank *r, double next)
{
    r->next = next;
    r->place = c->n_aside;
    c->aside[c->n_aside++] = (int)(r - c->ranks);
    rise(c, r->place);
}

static void take_back(struct clock *c, struct rank *r)
{
    const int at = r->place, last = --c->n_aside;
    if (at != last) {
        swap(c, at, last);
        rise(c, at);
        sink(c, at);
    }
    r->place = -1;
}

/* ---- the events of a rank ---- */

static struct job *job_at(const struct line *line, int64_t i)
{
    return &line->jobs[i & (line->cap - 1)];
}

static bool has_met(const struct rank *r, const struct job *job)
{
    for (int q = SW_QUEUE_COMM; q < r->end; q++) {
        if (r->lines[q].n_done < job->needs[q]) {
            return false;
        }
    }
    return true;
}

/* Starts the job for which a queue has met the other ranks. */
static void start(const struct rank *r, struct line *line, const struct meeting *m)
{
    line->is_here = false;
    line->serving = true;
    line->delay = fmax(m->from - r->now, 0);
    line->left = m->seconds;
    line->latency = m->latency;
}

/* Occupies computation for some seconds. for_queue: the queue that they are charged to; COMPUTE for
 * a kernel. charged: the instruction; -1 = none. */
static void compute(struct rank *r, double seconds, double cores, enum sw_queue for_queue,
                    int32_t charged)
{
    r->kernel = seconds;
    r->kernel_cores = cores;
    r->waits_for = for_queue;
    r->target = 0;
    r->charged = charged;
}

/* A rank that was at a meeting goes on. queue: that of its exchange; COMPUTE = ranks talk */
static void let_go(struct clock *c, struct rank *r, enum sw_queue queue, const struct meeting *m)
{
    r->n_here--;
    if (r->talks) {
        r->talks = false;
        compute(r, fmax(m->from - r->now, 0) + m->seconds, 0, SW_QUEUE_COMM, -1);
    } else {
        start(r, &r->lines[queue], m);
    }
    if (r->place >= 0) {
        take_back(c, r);
        c->ready[c->n_ready++] = (int)(r - c->ranks);
    }
}

/* Takes a rank to the gate of a group. The last one to come lets all of them go. */
static void arrive(struct clock *c, struct rank *r, int group, enum sw_queue queue,
                   const struct meeting *mine)
{
    r->n_here++;
    if (!c->gates) {
        let_go(c, r, queue, mine);
        return;
    }
    const struct sw_group *who = &r->plan->groups[group];
    struct gate *gate = &c->gates[(int64_t)group * c->n + who->ranks[0]];
    struct meeting *m = &gate->meeting;
    *m = gate->n_here > 0 ? *m : (struct meeting){0, 0, 0};
    *m = (struct meeting){fmax(m->from, mine->from), fmax(m->seconds, mine->seconds),
                          fmax(m->latency, mine->latency)};
    if (++gate->n_here < who->n) {
        return;
    }
    gate->n_here = 0;
    const struct meeting all = *m;
    for (int i = 0; i < who->n; i++) {
        let_go(c, &c->ranks[who->ranks[i]], queue, &all);
    }
}

static const struct sw_instr *instr_of(const struct rank *r, const struct line *line)
{
    return &r->plan->programs[0].instrs[job_at(line, line->n_served)->instr];
}

/* The rank of the world that is the peer of a SEND or a RECV; -1 = it does not exist. */
static int peer_of(const struct rank *r, const struct sw_instr *instr)
{
    const struct sw_group *group = &r->plan->groups[instr->exchange.group];
    const int peer = instr->exchange.peer;
    return peer >= 0 && peer < group->n ? group->ranks[peer] : -1;
}

/* Takes a rank to its peer. The second one to come lets both of them go. */
static sw_status arrive_at_peer(struct clock *c, struct rank *r, enum sw_queue queue,
                                const struct meeting *mine)
{
    const enum sw_queue other_queue = queue == SW_QUEUE_SENT ? SW_QUEUE_RECEIVED : SW_QUEUE_SENT;
    const struct sw_instr *instr = instr_of(r, &r->lines[queue]);
    const int me = (int)(r - c->ranks), peer = c->gates ? peer_of(r, instr) : me;
    if (peer < 0) {
        return SW_FAIL(SW_E_ARG, "rank %d: instruction %d (%s in %s) has peer %d of %d ranks", me,
                       (int)(instr - r->plan->programs[0].instrs), instr->about->name,
                       instr->about->where, instr->exchange.peer,
                       r->plan->groups[instr->exchange.group].n);
    }
    struct rank *other = &c->ranks[peer];
    const struct line *theirs = &other->lines[other_queue];
    r->n_here++;
    if (!c->gates) {
        let_go(c, r, queue, mine);
        return SW_OK;
    }
    if (!theirs->is_here || peer_of(other, instr_of(other, theirs)) != me) {
        return SW_OK;
    }
    const struct sw_instr *of_peer = instr_of(other, theirs);
    if (of_peer->bytes != instr->bytes) {
        return SW_FAIL(
            SW_E_ARG,
            "rank %d: instruction %d (%s in %s) moves %lld bytes; that of rank %d (%s in "
            "%s) moves %lld",
            me, (int)(instr - r->plan->programs[0].instrs), instr->about->name, instr->about->where,
            (long long)instr->bytes, peer, of_peer->about->name, of_peer->about->where,
            (long long)of_peer->bytes);
    }
    const struct meeting both = {fmax(theirs->since, mine->from), fmax(theirs->left, mine->seconds),
                                 fmax(theirs->latency, mine->latency)};
    let_go(c, other, other_queue, &both);
    let_go(c, r, queue, &both);
    return SW_OK;
}

/* Begins the next job of a queue, if it can. An exchange waits for others. */
static sw_status serve_next(struct clock *c, struct rank *r, enum sw_queue queue)
{
    struct line *line = &r->lines[queue];
    const bool disk = queue == SW_QUEUE_READ || queue == SW_QUEUE_WRITE;
    const bool room = line->n_served - line->n_done < (disk ? SW_QUEUE_BEGUN : 1);
    if (line->serving || line->is_here || line->n_served == line->n_issued || !room) {
        return SW_OK;
    }
    const struct job *job = job_at(line, line->n_served);
    if (!has_met(r, job)) {
        return SW_OK;
    }
    const struct sw_cost cost = cost_of(r, job->instr, job->later);
    const struct meeting m = {r->now, cost.seconds, cost.latency};
    line->cores = cost.cores;
    if (!sw_queue_exchanges(queue)) {
        start(r, line, &m);
        return SW_OK;
    }
    line->is_here = true;
    line->since = r->now;
    line->left = cost.seconds;
    line->latency = cost.latency;
    if (queue == SW_QUEUE_SENT || queue == SW_QUEUE_RECEIVED) {
        return arrive_at_peer(c, r, queue, &m);
    }
    arrive(c, r, instr_of(r, line)->exchange.group, queue, &m);
    return SW_OK;
}

/* Jobs end in the order in which they began. */
static void end_service(const struct rank *r, struct line *line)
{
    const double end = r->now + line->latency;
    const bool more = line->n_served > line->n_done;
    const double last = more ? job_at(line, line->n_served - 1)->end : end;
    job_at(line, line->n_served)->end = fmax(end, last);
    line->n_served++;
    line->serving = false;
}

/* Time until the next event at current speeds; infinite = nothing is running. */
static double time_left(const struct rank *r, const double speed[SW_QUEUE_COUNT])
{
    double least = r->kernel > 0 ? r->kernel / speed[SW_QUEUE_COMPUTE] : INFINITY;
    for (int q = SW_QUEUE_COMM; q < r->end; q++) {
        const struct line *line = &r->lines[q];
        if (line->serving) {
            least = fmin(least, line->delay > 0 ? line->delay : line->left / speed[q]);
        }
        if (line->n_done < line->n_served) {
            least = fmin(least, job_at(line, line->n_done)->end - r->now);
        }
    }
    return fmax(least, 0);
}

static double without(double left, double done)
{
    return left - done > 1e-12 * done ? left - done : 0; /* ignores what rounding leaves */
}

/* Charges time to the queue that computation waits for, and to the instruction that runs or is
 * waited for. */
static void charge(struct rank *r, double seconds)
{
    r->report.part[r->waits_for] += seconds;
    if (r->charged >= 0 && r->report.instrs) {
        r->report.instrs[r->charged].charge += seconds;
    }
}

/* Lets seconds pass for a queue: ends what is served, and completes jobs. `now` is already the time
 * after them. */
static void pass_on_line(struct rank *r, struct line *line, double seconds, double speed)
{
    if (line->serving && line->delay > 0) {
        line->delay = without(line->delay, seconds);
    } else if (line->serving) {
        line->left = without(line->left, seconds * speed);
    }
    if (line->serving && line->delay == 0 && line->left == 0) {
        end_service(r, line);
    }
    while (line->n_done < line->n_served && job_at(line, line->n_done)->end <= r->now) {
        line->n_done++;
    }
}

/* Begins what can begin, on all queues. */
static sw_status serve(struct clock *c, struct rank *r)
{
    for (int q = SW_QUEUE_COMM; q < r->end; q++) {
        SW_TRY(serve_next(c, r, (enum sw_queue)q));
    }
    return SW_OK;
}

/* Advances a rank to its next event, after so many seconds. */
static void go_on(struct rank *r, double seconds, const double speed[SW_QUEUE_COUNT])
{
    r->now += seconds;
    charge(r, seconds);
    if (r->kernel > 0) {
        r->kernel = without(r->kernel, seconds * speed[SW_QUEUE_COMPUTE]);
    }
    for (int q = SW_QUEUE_COMM; q < r->end; q++) {
        pass_on_line(r, &r->lines[q], seconds, speed[q]);
    }
}

/* ---- the events of a walk ---- */

/* Number of jobs of a queue up to order `until`; see queues.c. */
static int64_t jobs_until(const struct line *line, int64_t until)
{
    int64_t n = line->n_issued;
    while (n > line->n_done && job_at(line, n - 1)->order > until) {
        n--;
    }
    return n;
}

/* Makes computation wait for the jobs of a queue up to order `until`. A no-op if they are done. */
static void wait_until(struct rank *r, enum sw_queue queue, int64_t until)
{
    const struct line *line = &r->lines[queue];
    const int64_t target = jobs_until(line, until);
    if (line->n_done < target) {
        r->waits_for = queue;
        r->target = target;
        r->charged = job_at(line, target - 1)->instr;
    }
}

/* True while computation runs a kernel or waits. */
static bool is_busy(const struct rank *r)
{
    return r->kernel > 0 || r->talks || r->lines[r->waits_for].n_done < r->target;
}

/* Makes room for another job. The executor has room for all jobs of a step. */
static sw_status make_room(struct line *line)
{
    enum { LEAST = 16 };
    if (line->n_issued - line->n_done < line->cap) {
        return SW_OK;
    }
    struct line larger = *line;
    larger.cap = line->cap > 0 ? 2 * line->cap : LEAST;
    larger.jobs = sw_alloc("walk", (size_t)larger.cap * sizeof *larger.jobs);
    SW_TRY_ALLOC(larger.jobs, "the clock of a step");
    for (int64_t i = line->n_done; i < line->n_issued; i++) {
        *job_at(&larger, i) = *job_at(line, i);
    }
    sw_free(line->jobs);
    *line = larger;
    return SW_OK;
}

static sw_status issue(struct rank *r)
{
    const struct sw_walk *at = &r->walk;
    const enum sw_queue queue = at->program->instrs[at->instr].queue;
    const bool later = is_later(at);
    const struct sw_cost cost = cost_of(r, at->instr, later);
    count(r, &cost);
    if (queue == SW_QUEUE_COMPUTE) {
        compute(r, cost.seconds, cost.cores, SW_QUEUE_COMPUTE, at->instr);
        return SW_OK;
    }
    struct line *line = &r->lines[queue];
    SW_TRY(make_room(line));
    struct job *job = job_at(line, line->n_issued);
    *job = (struct job){.instr = at->instr, .later = later, .order = at->order};
    for (int q = SW_QUEUE_COMM; q < r->end; q++) {
        job->needs[q] = at->needs[q] < 0 ? 0 : jobs_until(&r->lines[q], at->needs[q]);
    }
    line->n_issued++;
    return SW_OK;
}

enum {
    ALL_QUEUES = (1 << SW_QUEUE_COUNT) - 1 - (1 << SW_QUEUE_COMPUTE),
    EXCHANGES =
        1 << SW_QUEUE_COMM | 1 << SW_QUEUE_TENSOR | 1 << SW_QUEUE_SENT | 1 << SW_QUEUE_RECEIVED
};

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

static sw_status pass(struct rank *r, const struct sw_event *event)
{
    switch (event->kind) {
    case SW_EVENT_ISSUE:
        return issue(r);
    case SW_EVENT_WAIT:
        wait_until(r, event->queue, event->until);
        return SW_OK;
    case SW_EVENT_BARRIER:
        r->drains = ALL_QUEUES;
        return SW_OK;
    case SW_EVENT_LOSSES:
    case SW_EVENT_AGREE: /* once the exchanges have arrived */
        r->meets = true;
        r->drains = EXCHANGES;
        return SW_OK;
    case SW_EVENT_JOIN: /* transfers continue */
        r->drains = EXCHANGES;
        return SW_OK;
    default:
        return SW_OK;
    }
}

/* Ranks communicate between phases. */
static void talk(struct clock *c, struct rank *r)
{
    const double seconds = r->plan->step.ranks > 1 ? r->pace->meeting : 0;
    const struct meeting mine = {r->now, seconds, 0};
    r->meets = false;
    r->talks = true;
    r->report.alone[SW_QUEUE_COMM] += seconds;
    r->report.most += seconds;
    r->waits_for = SW_QUEUE_COMM;
    r->target = 0;
    r->charged = -1;
    arrive(c, r, SW_GROUP_WORLD, SW_QUEUE_COMPUTE, &mine);
}

static sw_status fail_stuck(const struct rank *r)
{
    return SW_FAIL(SW_E_ARG, "instruction %d on %s waits for one that never completes", r->charged,
                   sw_queue_name(r->waits_for));
}

/* Passes the time to the next event of a rank that computes or waits. *may_step: it is aside, and
 * may advance to one event. *aside: it is put aside */
static sw_status pass_time(struct clock *c, struct rank *r, bool *may_step, bool *aside)
{
    double speed[SW_QUEUE_COUNT];
    SW_TRY(serve(c, r));
    if (!is_busy(r)) { /* others let it go */
        return SW_OK;
    }
    find_speeds(r, speed);
    const double seconds = time_left(r, speed);
    *aside = r->n_here > 0 && !(*may_step && isfinite(seconds));
    if (*aside) {
        put_aside(c, r, r->now + seconds);
        return SW_OK;
    }
    if (!isfinite(seconds)) {
        return fail_stuck(r);
    }
    *may_step = false;
    go_on(r, seconds, speed);
    return SW_OK;
}

/* Advances a rank until it has ended or is put aside. */
static sw_status advance(struct clock *c, struct rank *r, bool may_step)
{
    struct sw_event event = {.kind = SW_EVENT_BEGIN};
    while (event.kind != SW_EVENT_END) {
        if (is_busy(r)) {
            bool aside = false;
            SW_TRY(pass_time(c, r, &may_step, &aside));
            if (aside) {
                return SW_OK;
            }
        } else if (r->drains != 0) {
            drain(r);
        } else if (r->meets) {
            talk(c, r);
        } else {
            sw_walk_next(&r->walk, &event);
            SW_TRY(pass(r, &event));
        }
    }
    r->has_ended = true;
    c->n_ended++;
    return SW_OK;
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
        sw_str_printf(&who, "%s rank %d", n > 1 ? "," : "", i);
        sw_str_puts(&who, r->talks ? " between phases" : "");
        for (int q = SW_QUEUE_COMM; q < r->end; q++) {
            if (r->lines[q].is_here) {
                const struct sw_instr *instr = instr_of(r, &r->lines[q]);
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
        if (c->n_ready > 0) {
            SW_TRY(advance(c, &c->ranks[c->ready[--c->n_ready]], false));
        } else if (c->n_aside > 0 && isfinite(c->ranks[c->aside[0]].next)) {
            struct rank *r = &c->ranks[c->aside[0]];
            take_back(c, r);
            SW_TRY(advance(c, r, true));
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
    *r = (struct rank){.plan = asked->plan,
                       .pace = asked->pace,
                       .charged = -1,
                       .end = end_of_queues(asked->plan),
                       .place = -1};
    sw_walk_begin(&r->walk, asked->plan, trains ? step->phases : &forward,
                  trains ? step->n_phases : 1);
    if (asked->report) {
        const size_t n = (size_t)asked->plan->programs[0].n_instrs + 1;
        r->report.instrs = sw_alloc_zero("walk", n, sizeof *r->report.instrs);
        SW_TRY_ALLOC(r->report.instrs, "the clock of a step");
    }
    return SW_OK;
}

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

/* Opens all ranks as ready. Rank 0 is last in the list, since the last one advances first. */
static sw_status open_ranks(struct clock *c, const struct sw_clock_rank *asked)
{
    const size_t n = (size_t)c->n;
    int n_groups = 0;
    c->ranks = sw_alloc_zero("walk", n, sizeof *c->ranks);
    SW_TRY_ALLOC(c->ranks, "the clock of a step");
    c->ready = sw_alloc_zero("walk", n, sizeof *c->ready);
    SW_TRY_ALLOC(c->ready, "the clock of a step");
    c->aside = sw_alloc_zero("walk", n, sizeof *c->aside);
    SW_TRY_ALLOC(c->aside, "the clock of a step");
    for (int i = 0; i < c->n; i++) {
        SW_TRY(open_rank(&c->ranks[i], &asked[i]));
        SW_TRY(c->n > 1 && (i == 0 || asked[i].plan != asked[i - 1].plan)
                   ? check_groups(asked[i].plan, i, c->n)
                   : SW_OK);
        n_groups = asked[i].plan->n_groups > n_groups ? asked[i].plan->n_groups : n_groups;
        c->ready[c->n - 1 - i] = i;
    }
    c->n_ready = c->n;
    if (c->n > 1) {
        c->gates = sw_alloc_zero("walk", n * (size_t)n_groups, sizeof *c->gates);
        SW_TRY_ALLOC(c->gates, "the clock of a step");
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
    sw_free(c->ready);
    sw_free(c->aside);
    sw_free(c->gates);
}

sw_status sw_clock_ranks(struct sw_clock_rank *ranks, int n)
{
    struct clock c = {.n = n};
    sw_status st = open_ranks(&c, ranks);
    st = st < 0 ? st : advance_all(&c);
    for (int i = 0; i < n && st >= 0; i++) {
        ranks[i].seconds = c.ranks[i].now;
        if (ranks[i].report) {
            finish(&c.ranks[i]);
            *ranks[i].report = c.ranks[i].report;
            c.ranks[i].report.instrs = NULL;
        }
    }
    close_ranks(&c);
    return st;
}

sw_status sw_clock_step(const struct sw_plan *plan, const struct sw_pace *pace,
                        struct sw_clock_report *out)
{
    struct sw_clock_rank rank = {.plan = plan, .pace = pace, .report = out};
    return sw_clock_ranks(&rank, 1);
}
