// SPDX-License-Identifier: Apache-2.0
// Folds the steady state of a pipeline. Once all ranks are in the state in which they were some
// micro-batches before, and their phases go on alike, the same time passes again and again. The
// clock then skips these periods, and adds them to its reports.
//
// A state is a list of numbers. Times count from the present of the first rank, and phases and
// orders from those of the period, so that equal states have equal lists. Invariant: a folded step
// is the step that is not folded, but for rounding.
#include <string.h>

#include "walk/ranks.h"

/* A rank's phases of a period or of several, and turns among them. */
struct period {
    int32_t phases, turns;
};

/* The state of all ranks between two periods. */
struct state {
    double *numbers;
    size_t n, cap;
    bool failed; /* no memory */
};

/* A period is at first the shortest one of the phases, and then the one of the states, which may
 * take several of these: Brent's algorithm compares each state with an earlier one, which is
 * replaced after 1, 2, 4, .. periods. */
struct fold {
    int64_t rounds;         /* micro-batches of a period */
    struct period *periods; /* [n] */
    struct period *base;    /* [n] of all periods since the first state */
    int64_t at;             /* the phase of rank 0 in the latest state; 0 = there is none */
    struct state then, now; /* the earlier state, and the latest one */
    int32_t passed, most;   /* periods since then; after so many, it is replaced */
    double began;           /* the time of the earlier state */
    struct sw_clock_report *reports; /* [n] as they were then, with their own `instrs` */
    bool is_armed;                   /* the state came again once; `reports` are filled in */
};

/* ---- periods ---- */

/* True if b is the phase a of so many micro-batches and turns later. */
static bool is_later(const struct sw_step_phase *a, const struct sw_step_phase *b, int64_t rounds,
                     int32_t turns)
{
    return a->turn > 0 && a->action == b->action && a->program == b->program &&
           a->segment == b->segment && a->chunk == b->chunk && a->n_micro == b->n_micro &&
           (a->round > 0) == (b->round > 0) && a->is_first == b->is_first && a->finds == b->finds &&
           a->is_last == b->is_last && a->drains == b->drains && a->runs_on == b->runs_on &&
           a->joins == b->joins && b->round == a->round + rounds && b->turn == a->turn + turns &&
           b->sent == (a->sent > 0 ? a->sent + turns : 0);
}

/* The number of phases from `from` on that come again a period later. */
static int64_t count_again(const struct sw_step *step, const struct period *period, int64_t rounds,
                           int64_t from)
{
    int64_t i = from;
    while (i + period->phases < step->n_phases &&
           is_later(&step->phases[i], &step->phases[i + period->phases], rounds, period->turns)) {
        i++;
    }
    return i - from;
}

/* The phases and turns of so many micro-batches. false: they are not the same in the middle of the
 * step as a period later. */
static bool find_period(const struct sw_step *step, int64_t rounds, struct period *out)
{
    int64_t phases = 0, turns = 0;
    for (int32_t i = 0; i < step->n_phases; i++) {
        phases += step->phases[i].turn > 0;
        turns = sw_max_i64(turns, step->phases[i].turn);
    }
    *out = (struct period){(int32_t)(phases / step->rounds * rounds),
                           (int32_t)(turns / step->rounds * rounds)};
    return out->phases > 0 && phases % step->rounds == 0 && turns % step->rounds == 0 &&
           count_again(step, out, rounds, phases / 2 - out->phases) > out->phases;
}

/* ---- states ---- */

static void put(struct state *s, double x)
{
    if (s->n == s->cap) {
        const size_t cap = s->cap > 0 ? 2 * s->cap : 1024;
        double *larger = sw_realloc("walk", s->numbers, cap * sizeof *larger);
        if (!larger) {
            s->failed = true;
            return;
        }
        s->numbers = larger;
        s->cap = cap;
    }
    s->numbers[s->n++] = x;
}

/* The origin from which the numbers of a rank count. */
struct base {
    double now;
    int64_t phases, turns;
};

static int64_t phase_at(const struct rank *r, const struct sw_step_phase *phase)
{
    return phase - r->plan->step.phases;
}

/* An order of a phase with a turn; others stay. */
static void put_order(struct state *s, const struct base *base, int64_t order)
{
    const int64_t since = order - base->turns * SW_WALK_TURN;
    put(s, order < SW_WALK_TURN || order == SW_WALK_ALL ? -1 : (double)(since / SW_WALK_TURN));
    put(s, (double)(order % SW_WALK_TURN));
}

static void put_walk(struct state *s, const struct rank *r, const struct base *base)
{
    const struct sw_walk *w = &r->walk;
    put(s, (double)(phase_at(r, w->phase) - base->phases));
    put(s, w->instr);
    put(s, w->piece);
    put(s, w->turn);
    put(s, w->last);
    put(s, w->loads + 2 * w->left_out);
    put(s, w->queue);
    put(s, w->stage);
    put_order(s, base, w->order);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        put_order(s, base, w->needs[q]);
    }
}

static void put_line(struct state *s, const struct rank *r, const struct base *base,
                     const struct line *line)
{
    put(s, (double)(line->n_issued - line->n_done));
    put(s, (double)(line->n_served - line->n_done));
    put(s, line->serving + 2 * line->is_here + 4 * (line->free_from >= r->now));
    put(s, line->serving ? line->delay : 0);
    put(s, line->serving || line->is_here ? line->left : 0);
    put(s, line->is_here || line->serving ? line->since - base->now : 0);
    for (int64_t i = line->n_done; i < line->n_issued; i++) {
        const struct job *job = sw_job_at(line, i);
        put(s, job->instr);
        put(s, (double)(phase_at(r, job->phase) - base->phases));
        put_order(s, base, job->order);
        put(s, i < line->n_served ? job->end - base->now : 0);
        for (int q = SW_QUEUE_COMM; q < r->end; q++) {
            put(s, fmax((double)(job->needs[q] - r->lines[q].n_done), 0));
        }
    }
}

static void put_rank(struct state *s, const struct rank *r, const struct base *base)
{
    put_walk(s, r, base);
    put(s, r->now - base->now);
    put(s, r->kernel);
    put(s, r->kernel > 0 ? r->since - base->now : 0);
    put(s, r->charged);
    put(s, r->waits_for);
    put(s, fmax((double)(r->target - r->lines[r->waits_for].n_done), 0));
    put(s, r->drains);
    put(s, r->meets + 2 * r->talks + 4 * r->sleeps + 8 * r->has_ended);
    put(s, r->n_here);
    for (int q = SW_QUEUE_COMM; q < r->end; q++) {
        put_line(s, r, base, &r->lines[q]);
    }
}

static void take_state(const struct clock *c, struct state *s)
{
    s->n = 0;
    for (int i = 0; i < c->n; i++) {
        const struct period *of = &c->fold->base[i];
        const struct base base = {c->ranks[0].now, of->phases, of->turns};
        put_rank(s, &c->ranks[i], &base);
    }
    for (int i = 0; i < c->n_units; i++) {
        put(s, c->units[i].next - c->ranks[0].now);
    }
    put(s, c->n_ready);
    for (int i = 0; i < c->n_ready; i++) {
        put(s, c->ready[i]);
    }
    for (int g = 0; g < c->n_gates; g++) {
        const struct gate *gate = &c->gates[g];
        put(s, gate->n_here);
        put(s, gate->n_here > 0 ? gate->meeting.from - c->ranks[0].now : 0);
    }
}

/* Equal but for the rounding of times. */
static bool are_equal(const struct state *a, const struct state *b, double seconds)
{
    const double most = 1e-12 * seconds;
    bool equal = a->n == b->n;
    for (size_t i = 0; equal && i < a->n; i++) {
        const double x = a->numbers[i], y = b->numbers[i];
        equal = x == y || fabs(x - y) <= most;
    }
    return equal;
}

/* ---- skipping ---- */

/* How many further periods all ranks have. */
static int64_t count_periods(const struct clock *c)
{
    const struct fold *f = c->fold;
    int64_t n = INT64_MAX;
    for (int i = 0; i < c->n; i++) {
        const struct rank *r = &c->ranks[i];
        const struct period *period = &f->periods[i];
        const int64_t from = phase_at(r, r->walk.phase) - 2 * (int64_t)period->phases;
        const int64_t again = from < 0 ? 0 : count_again(&r->plan->step, period, f->rounds, from);
        n = sw_min_i64(n, (again - 1) / period->phases - 1);
    }
    return n;
}

static void skip_order(int64_t *order, int64_t turns)
{
    *order += *order < SW_WALK_TURN || *order == SW_WALK_ALL ? 0 : turns * SW_WALK_TURN;
}

/* Adds n periods, of these seconds in all, to the report of a rank. */
static void skip_report(struct rank *r, const struct sw_clock_report *before, int64_t n,
                        double seconds)
{
    struct sw_clock_report *now = &r->report;
    const double more = (double)n;
    now->most += more * (now->most - before->most);
    now->passes.busy += more * (now->passes.busy - before->passes.busy);
    now->passes.end += seconds;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        now->part[q] += more * (now->part[q] - before->part[q]);
        now->alone[q] += more * (now->alone[q] - before->alone[q]);
    }
    for (int32_t i = 0; now->instrs && i < r->plan->programs[0].n_instrs; i++) {
        struct sw_clock_instr *to = &now->instrs[i];
        const struct sw_clock_instr *from = &before->instrs[i];
        to->runs += n * (to->runs - from->runs);
        to->alone += more * (to->alone - from->alone);
        to->charge += more * (to->charge - from->charge);
    }
}

/* Moves a rank by n periods. */
static void skip(struct rank *r, const struct period *period, int64_t n, double seconds)
{
    const int64_t phases = n * period->phases, turns = n * period->turns;
    r->walk.phase += phases;
    skip_order(&r->walk.order, turns);
    r->now += seconds;
    r->since += seconds;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        struct line *line = &r->lines[q];
        skip_order(&r->walk.needs[q], turns);
        line->since += seconds;
        line->free_from += seconds;
        for (int64_t i = line->n_done; i < line->n_issued; i++) {
            struct job *job = sw_job_at(line, i);
            job->phase += phases;
            job->end += seconds;
            skip_order(&job->order, turns);
        }
    }
}

static void skip_all(struct clock *c, int64_t n)
{
    struct fold *f = c->fold;
    const double seconds = (double)n * (c->ranks[0].now - f->began);
    for (int i = 0; i < c->n; i++) {
        skip_report(&c->ranks[i], &f->reports[i], n, seconds);
        c->ranks[i].report.folded = n * f->rounds;
        skip(&c->ranks[i], &f->periods[i], n, seconds);
    }
    for (int i = 0; i < c->n_units; i++) {
        c->units[i].next += seconds;
    }
    for (int g = 0; g < c->n_gates; g++) {
        c->gates[g].meeting.from += seconds;
    }
}

/* ---- opening ---- */

static void close_reports(struct fold *f, int n)
{
    for (int i = 0; f->reports && i < n; i++) {
        sw_free(f->reports[i].instrs);
    }
    sw_free(f->reports);
    f->reports = NULL;
}

/* Copies the reports of all ranks. */
static sw_status keep_reports(struct clock *c)
{
    struct fold *f = c->fold;
    close_reports(f, c->n);
    f->reports = sw_alloc_zero("walk", (size_t)c->n, sizeof *f->reports);
    SW_TRY_ALLOC(f->reports, "the clock of a step");
    for (int i = 0; i < c->n; i++) {
        const struct rank *r = &c->ranks[i];
        const size_t bytes = (size_t)r->plan->programs[0].n_instrs * sizeof *r->report.instrs;
        f->reports[i] = r->report;
        f->reports[i].instrs = NULL;
        if (r->report.instrs && bytes > 0) {
            f->reports[i].instrs = sw_alloc("walk", bytes);
            SW_TRY_ALLOC(f->reports[i].instrs, "the clock of a step");
            memcpy(f->reports[i].instrs, r->report.instrs, bytes);
        }
    }
    return SW_OK;
}

void sw_clock_close_fold(struct clock *c)
{
    struct fold *f = c->fold;
    if (f) {
        close_reports(f, c->n);
        sw_free(f->then.numbers);
        sw_free(f->now.numbers);
        sw_free(f->periods);
        sw_free(f->base);
    }
    sw_free(f);
    c->fold = NULL;
}

/* Finds the shortest period that all ranks have. */
static bool find_periods(const struct clock *c, struct fold *f)
{
    const int64_t most = c->ranks[0].plan->step.rounds / 4;
    bool found = false;
    for (f->rounds = 0; !found && f->rounds < most;) {
        f->rounds++;
        found = true;
        for (int i = 0; i < c->n && found; i++) {
            found = find_period(&c->ranks[i].plan->step, f->rounds, &f->periods[i]);
        }
    }
    return found;
}

sw_status sw_clock_open_fold(struct clock *c)
{
    for (int i = 0; i < c->n; i++) {
        const struct rank *r = &c->ranks[i];
        if (r->asked->ran || r->pace->phases || r->plan->step.rounds < 1) {
            return SW_OK;
        }
    }
    c->fold = sw_alloc_zero("walk", 1, sizeof *c->fold);
    SW_TRY_ALLOC(c->fold, "the clock of a step");
    c->fold->periods = sw_alloc_zero("walk", (size_t)c->n, sizeof *c->fold->periods);
    c->fold->base = sw_alloc_zero("walk", (size_t)c->n, sizeof *c->fold->base);
    if (!c->fold->periods || !c->fold->base) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the clock of a step");
    }
    if (!find_periods(c, c->fold)) {
        sw_clock_close_fold(c);
    }
    return SW_OK;
}

/* ---- a period has passed ---- */

/* Makes the latest state the earlier one. */
static void replace(struct clock *c, int32_t most)
{
    struct fold *f = c->fold;
    const struct state then = f->then;
    f->then = f->now;
    f->now = then;
    f->passed = 0;
    f->most = most;
    f->began = c->ranks[0].now;
}

/* The state came again: so many periods are one from now on. */
static sw_status arm(struct clock *c)
{
    struct fold *f = c->fold;
    f->rounds *= f->passed;
    for (int i = 0; i < c->n; i++) {
        f->periods[i].phases *= f->passed;
        f->periods[i].turns *= f->passed;
    }
    f->is_armed = true;
    replace(c, 1);
    return keep_reports(c);
}

/* Compares the latest state with the earlier one. If it comes again twice, it will do so again. */
static sw_status compare(struct clock *c)
{
    struct fold *f = c->fold;
    const bool alike = are_equal(&f->then, &f->now, c->ranks[0].now);
    if (f->is_armed) {
        const int64_t n = alike ? count_periods(c) : 0;
        if (n > 0) {
            skip_all(c, n);
        }
        sw_clock_close_fold(c);
        return SW_OK;
    }
    if (alike) {
        return arm(c);
    }
    if (f->passed == f->most) {
        replace(c, 2 * f->most);
    }
    return SW_OK;
}

/* is_new: the states before cannot be compared with this one. */
static void pass(struct clock *c, int64_t at, bool is_new)
{
    struct fold *f = c->fold;
    f->at = at;
    f->passed = is_new ? 0 : f->passed + 1;
    for (int i = 0; i < c->n; i++) {
        const struct period *base = &f->base[i], *more = &f->periods[i];
        f->base[i] = is_new
                         ? (struct period){0, 0}
                         : (struct period){base->phases + more->phases, base->turns + more->turns};
    }
    take_state(c, &f->now);
}

sw_status sw_clock_fold(struct clock *c)
{
    struct fold *f = c->fold;
    const int64_t at = phase_at(&c->ranks[0], c->ranks[0].walk.phase);
    const int64_t mark = f->at > 0 ? f->at + f->periods[0].phases : 1;
    if (c->n_ended > 0) {
        sw_clock_close_fold(c);
        return SW_OK;
    }
    if (at < mark) {
        return SW_OK;
    }
    const bool is_new = f->at == 0 || at > mark;
    pass(c, at, is_new);
    if (f->now.failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the clock of a step");
    }
    if (is_new) {
        f->is_armed = false;
        replace(c, 1);
        return SW_OK;
    }
    return compare(c);
}
