// SPDX-License-Identifier: Apache-2.0
// Measures by how much a job of another thread delays kernels, in addition to what sharing the
// processors and memory costs them. A job that begins interrupts a thread of a kernel, and the
// kernel's other threads wait for that one.
#include <math.h>
#include <time.h>

#include "run/measure.h"

enum { LEAST = 64 << 10, MOST = 8 << 20 };
static const double alone_s = 0.05, beside_s = 0.7;

struct measuring {
    const struct sw_plan *plan;
    const struct sw_measure_options *options;
    const struct sw_speeds *speeds;
    struct sw_kernels_beside beside; /* without sums */
    size_t bytes;                    /* of a copy */
    int n;                           /* ranks that measure */
    atomic_bool stop;
    /* results of the first rank */
    struct sw_kernels_beside sums;
    double alone;   /* seconds that its copies take alone */
    double copying; /* seconds that they took */
    double seconds; /* of copies and the pauses between them */
};

/* Copies in and out in turns. */
struct copies {
    struct sw_copier copier;
    size_t bytes;
    int64_t n;
};

static sw_status copy_one(struct copies *c)
{
    return sw_copier_copy(&c->copier, c->n++ % 2 == 0, c->bytes);
}

/* Seconds of one copy, without kernels. */
static sw_status copy_alone(struct copies *c, double *out)
{
    const double begin = sw_now_s();
    do {
        SW_TRY(copy_one(c));
        *out = sw_now_s() - begin;
    } while (*out < alone_s);
    *out /= (double)c->n;
    return SW_OK;
}

/* Copies, and sleeps for as long as a copy takes after each one, as a queue that waits for its
 * jobs. */
static sw_status copy_beside(struct copies *c, double alone, double *copying)
{
    const struct timespec pause = {0, (long)(fmin(alone, 0.5) * 1e9)};
    const double begin = sw_now_s();
    c->n = 0;
    for (*copying = 0; sw_now_s() - begin < beside_s;) {
        const double since = sw_now_s();
        SW_TRY(copy_one(c));
        *copying += sw_now_s() - since;
        nanosleep(&pause, NULL);
    }
    return SW_OK;
}

static sw_status run_copies(struct measuring *m, struct sw_device *dev, sw_comm *comm, bool leads)
{
    struct copies c = {.bytes = m->bytes};
    double alone = 0, copying = 0;
    sw_status st = SW_OK;
    SW_TRY_OR(close, sw_copier_open(dev, &c.copier));
    SW_TRY_OR(close, copy_alone(&c, &alone));
    SW_TRY_OR(close, sw_comm_barrier(comm, "a measurement begins"));
    const double begin = sw_now_s();
    SW_TRY_OR(close, copy_beside(&c, alone, &copying));
    if (leads) {
        m->seconds = sw_now_s() - begin;
        m->copying = copying;
        m->alone = alone * (double)c.n;
    }
close:
    atomic_store(&m->stop, true);
    sw_copier_close(&c.copier);
    return st;
}

/* The first half of the threads computes, the second one copies. */
static sw_status run_thread(void *ctx, sw_comm *comm)
{
    struct measuring *m = ctx;
    const int rank = sw_comm_rank(comm);
    struct sw_device *dev = m->options->devices[rank % m->n];
    struct sw_kernels_beside beside = m->beside;
    if (rank >= m->n) {
        return run_copies(m, dev, comm, rank == m->n);
    }
    SW_TRY(sw_run_kernels(m->plan, dev, comm, &m->speeds->given, &m->stop, &beside));
    m->sums = rank == 0 ? beside : m->sums;
    return SW_OK;
}

/* The mean size of the plan's copies, within limits. */
static size_t mean_copy(const struct sw_plan *plan)
{
    const struct sw_program *program = &plan->programs[0];
    double bytes = 0, n = 0, work = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const enum sw_load load = sw_instr_load(plan, program, i, &work);
        const bool copies = load == SW_LOAD_COPIES_IN || load == SW_LOAD_COPIES_OUT;
        bytes += copies ? work / 2 : 0; /* they are read and written */
        n += copies;
    }
    return (size_t)fmax(LEAST, fmin(MOST, n > 0 ? bytes / n : 0));
}

/* The processors and the memory that a copy takes. */
static struct sw_cost cost_of_copy(const struct sw_speeds *speeds)
{
    const struct sw_rate_curve *curve = &speeds->curves[SW_CURVE_COPY_IN];
    const struct sw_rate_point *large = &curve->at[curve->n - 1];
    struct sw_cost cost = large->cost;
    cost.bandwidth = fmin(1, 2 * large->bytes / cost.seconds / speeds->bandwidth);
    return cost;
}

/* Kernels have their share of the processors while a copy runs, and all of them otherwise. What
 * they took besides is the delay: interrupted threads, and caches that copies have filled. */
static double delay_of(const struct measuring *m)
{
    const struct sw_kernels_beside *sums = &m->sums;
    const double beside = m->copying / m->seconds * (sums->seconds - sums->shared);
    return fmax(0, sums->seconds - sums->alone - beside);
}

sw_status sw_measure_yield(const struct sw_plan *plan, const struct sw_measure_options *options,
                           struct sw_speeds *speeds)
{
    bool unknown[SW_LOAD_COUNT];
    struct sw_cost(*costs)[2] =
        sw_alloc_zero("run", (size_t)plan->programs[0].n_instrs + 1, sizeof *costs);
    SW_TRY_ALLOC(costs, "the costs of a step");
    struct measuring m = {.plan = plan,
                          .options = options,
                          .speeds = speeds,
                          .bytes = mean_copy(plan),
                          .n = options->n_devices < SW_THREAD_RANKS_MAX / 2
                                   ? options->n_devices
                                   : SW_THREAD_RANKS_MAX / 2};
    sw_speeds_costs(plan, speeds, unknown, costs);
    m.beside.pace = sw_speeds_pace(speeds, costs);
    m.beside.job = cost_of_copy(speeds);
    atomic_init(&m.stop, false);
    const sw_status st = sw_threads_run(2 * m.n, SW_MEASURE_DEADLINE_S, run_thread, &m);
    if (st >= 0 && m.alone > 0) {
        speeds->yield = delay_of(&m) / m.alone;
    }
    sw_free(costs);
    return st;
}
