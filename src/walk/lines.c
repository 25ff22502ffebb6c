// SPDX-License-Identifier: Apache-2.0
// The queues of one rank, as time passes: what is served, what is complete, and when the next of
// this happens.
#include "walk/ranks.h"

void sw_rank_compute(struct rank *r, const struct sw_cost *cost, enum sw_queue for_queue,
                     int32_t charged)
{
    r->kernel = cost->seconds;
    r->since = r->now;
    r->kernel_cores = cost->cores;
    r->kernel_bandwidth = cost->bandwidth;
    r->waits_for = for_queue;
    r->target = 0;
    r->charged = charged;
}

int64_t sw_line_jobs_until(const struct line *line, int64_t until)
{
    int64_t n = line->n_issued;
    while (n > line->n_done && sw_job_at(line, n - 1)->order > until) {
        n--;
    }
    return n;
}

sw_status sw_line_make_room(struct line *line)
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
        *sw_job_at(&larger, i) = *sw_job_at(line, i);
    }
    sw_free(line->jobs);
    *line = larger;
    return SW_OK;
}

/* Jobs end in the order in which they began. */
static void end_service(const struct rank *r, struct line *line)
{
    const double end = r->now + line->latency;
    const bool more = line->n_served > line->n_done;
    const double last = more ? sw_job_at(line, line->n_served - 1)->end : end;
    struct job *job = sw_job_at(line, line->n_served);
    job->end = fmax(end, last);
    sw_rank_tell(r, job->instr, job->phase, line->since);
    line->n_served++;
    line->serving = false;
    line->free_from = r->now;
}

double sw_rank_time_left(const struct rank *r)
{
    double least = r->kernel > 0 ? r->kernel / r->speed[SW_QUEUE_COMPUTE] : INFINITY;
    for (int q = SW_QUEUE_COMM; q < r->end; q++) {
        const struct line *line = &r->lines[q];
        if (line->serving) {
            least = fmin(least, line->delay > 0 ? line->delay : line->left / r->speed[q]);
        }
        if (line->n_done < line->n_served) {
            least = fmin(least, sw_job_at(line, line->n_done)->end - r->now);
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
    const struct sw_step_phase *phase = r->walk.phase;
    struct sw_clock_passes *passes = &r->report.passes;
    if (r->kernel > 0 && r->waits_for == SW_QUEUE_COMPUTE && phase->segment < SW_SEGMENT_UPDATE) {
        passes->begin = passes->busy > 0 ? passes->begin : r->now - seconds;
        passes->busy += seconds;
        passes->end = r->now;
    }
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
    while (line->n_done < line->n_served && sw_job_at(line, line->n_done)->end <= r->now) {
        line->n_done++;
    }
}

void sw_rank_go_on(struct rank *r, double seconds)
{
    r->now += seconds;
    charge(r, seconds);
    if (r->kernel > 0) {
        r->kernel = without(r->kernel, seconds * r->speed[SW_QUEUE_COMPUTE]);
        if (r->kernel == 0 && r->waits_for == SW_QUEUE_COMPUTE) {
            sw_rank_tell(r, r->charged, r->walk.phase, r->since);
        }
    }
    for (int q = SW_QUEUE_COMM; q < r->end; q++) {
        pass_on_line(r, &r->lines[q], seconds, r->speed[q]);
    }
}
