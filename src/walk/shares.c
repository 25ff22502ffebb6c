// SPDX-License-Identifier: Apache-2.0
// Speeds of the queues of a rank. Work that runs at once shares processors, as by the system, the
// disk, and the bandwidth of memory.
#include "walk/ranks.h"

/* Threads that want processors, all of them equally much; or a queue that wants bandwidth. */
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

/* Multiplies the speed of each queue by the part that it gets of the bandwidth that it wants. */
static void share_bandwidth(const struct rank *r, double speed[SW_QUEUE_COUNT])
{
    struct wish wishes[SW_QUEUE_COUNT];
    int n = 0;
    if (r->kernel > 0 && r->kernel_bandwidth > 0) {
        wishes[n++] =
            (struct wish){SW_QUEUE_COMPUTE, 1, r->kernel_bandwidth * speed[SW_QUEUE_COMPUTE]};
    }
    for (int q = SW_QUEUE_COMM; q < r->end; q++) {
        const struct line *line = &r->lines[q];
        if (line->serving && line->delay == 0 && line->bandwidth > 0) {
            wishes[n++] = (struct wish){(enum sw_queue)q, 1, line->bandwidth * speed[q]};
        }
    }
    const double level = n > 1 ? fair_level(wishes, n, 1) : INFINITY;
    for (int i = 0; i < n; i++) {
        speed[wishes[i].queue] *= fmin(1, level / wishes[i].each);
    }
}

void sw_rank_speeds(const struct rank *r, double speed[SW_QUEUE_COUNT])
{
    const bool both = r->lines[SW_QUEUE_READ].serving && r->lines[SW_QUEUE_WRITE].serving;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        const bool disk = q == SW_QUEUE_READ || q == SW_QUEUE_WRITE;
        speed[q] = disk && both ? r->pace->disk_share : 1;
    }
    if (r->pace->cores > 0) {
        share_cores(r, speed);
    }
    share_bandwidth(r, speed);
}
