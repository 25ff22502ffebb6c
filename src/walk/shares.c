// SPDX-License-Identifier: Apache-2.0
// Speeds of the queues of a unit. Work of a rank that runs at once shares processors, as by the
// system, the disk, and the bandwidth of memory. Work of all its ranks shares links, disks and
// hosts. These are divided one after the other: a later one may leave a part of an earlier one
// unused, but none is used above its rate.
#include "walk/ranks.h"

/* Divides a thing among its flows so that at most `there` is in use: multiplies the speed of each
 * by the part that it gets of what it wants. Those that want less than the level get all of it; the
 * others get the level. */
static void divide(const struct flow *flows, int n, double there)
{
    double level = INFINITY;
    for (int pass = 0; pass <= n; pass++) { /* each pass satisfies at least one more flow */
        double left = there;
        int n_more = 0;
        for (int i = 0; i < n; i++) {
            const double each = flows[i].share * *flows[i].speed;
            const bool content = pass > 0 && each <= level;
            left -= content ? flows[i].n * each : 0;
            n_more += content ? 0 : flows[i].n;
        }
        if (n_more == 0) {
            return;
        }
        level = left / n_more;
    }
    for (int i = 0; i < n; i++) {
        *flows[i].speed *= fmin(1, level / (flows[i].share * *flows[i].speed));
    }
}

/* ---- within a rank ---- */

/* Adds threads that want processors, all of them equally much. cores: those that the work occupies
 * at speed 1; 0 = it wants none */
static int add_threads(double cores, double *speed, struct flow *flows, int n)
{
    if (cores > 0) {
        const int n_threads = (int)sw_max_i64(1, (int64_t)ceil(cores - 0.05));
        flows[n++] = (struct flow){0, n_threads, cores / n_threads, speed};
    }
    return n;
}

static int add_bandwidth(double bandwidth, double *speed, struct flow *flows, int n)
{
    if (bandwidth > 0) {
        flows[n++] = (struct flow){0, 1, bandwidth, speed};
    }
    return n;
}

static bool is_served(const struct line *line)
{
    return line->serving && line->delay == 0;
}

static void share_cores(struct rank *r)
{
    struct flow flows[SW_QUEUE_COUNT];
    int n = r->kernel > 0 ? add_threads(r->kernel_cores, &r->speed[SW_QUEUE_COMPUTE], flows, 0) : 0;
    for (int q = SW_QUEUE_COMM; q < r->end; q++) {
        if (is_served(&r->lines[q])) {
            n = add_threads(r->lines[q].cores, &r->speed[q], flows, n);
        }
    }
    divide(flows, n, r->pace->cores);
}

static void share_bandwidth(struct rank *r)
{
    struct flow flows[SW_QUEUE_COUNT];
    int n = r->kernel > 0
                ? add_bandwidth(r->kernel_bandwidth, &r->speed[SW_QUEUE_COMPUTE], flows, 0)
                : 0;
    for (int q = SW_QUEUE_COMM; q < r->end; q++) {
        if (is_served(&r->lines[q])) {
            n = add_bandwidth(r->lines[q].bandwidth, &r->speed[q], flows, n);
        }
    }
    divide(flows, n, 1);
}

/* Reads and writes share the disk, and processors serve it beside their work. */
static void share_disk(struct rank *r)
{
    double *reads = &r->speed[SW_QUEUE_READ], *writes = &r->speed[SW_QUEUE_WRITE];
    const struct sw_disk_share *beside = &r->pace->disk_beside;
    const bool works =
        r->kernel > 0 || is_served(&r->lines[SW_QUEUE_H2D]) || is_served(&r->lines[SW_QUEUE_D2H]);
    if (r->lines[SW_QUEUE_READ].serving && r->lines[SW_QUEUE_WRITE].serving) {
        *reads = r->pace->disk_share.reads;
        *writes = r->pace->disk_share.writes;
    }
    *reads *= works && beside->reads > 0 ? beside->reads : 1;
    *writes *= works && beside->writes > 0 ? beside->writes : 1;
}

static void share_in_rank(struct rank *r)
{
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        r->speed[q] = 1;
    }
    share_disk(r);
    if (r->pace->cores > 0) {
        share_cores(r);
    }
    share_bandwidth(r);
}

double sw_clock_share(const struct sw_pace *pace, const struct sw_cost *kernel,
                      const struct sw_cost *job)
{
    struct rank r = {.pace = pace,
                     .kernel = kernel->seconds,
                     .kernel_cores = kernel->cores,
                     .kernel_bandwidth = kernel->bandwidth,
                     .end = SW_QUEUE_COUNT};
    r.lines[SW_QUEUE_H2D] =
        (struct line){.serving = true, .cores = job->cores, .bandwidth = job->bandwidth};
    share_in_rank(&r);
    return r.speed[SW_QUEUE_COMPUTE];
}

/* ---- links, disks and hosts ---- */

/* Puts the uses of a queue into the list, which is kept in the order of ids. */
static int add_flows(struct rank *r, int queue, struct flow *flows, int n)
{
    const struct sw_way *way = &r->pace->ways[r->lines[queue].way - 1];
    for (int i = 0; i < way->n; i++) {
        const struct sw_shared *shared = &r->asked->shared[way->uses[i].kind];
        const struct flow flow = {shared->id, shared->n, way->uses[i].share, &r->speed[queue]};
        int at = n++;
        for (; at > 0 && flows[at - 1].id > flow.id; at--) {
            flows[at] = flows[at - 1];
        }
        flows[at] = flow;
    }
    return n;
}

void sw_unit_speeds(const struct clock *c, const struct unit *u)
{
    int n = 0;
    for (int i = 0; i < u->n; i++) {
        struct rank *r = &c->ranks[u->who[i]];
        share_in_rank(r);
        for (int q = SW_QUEUE_COMM; q < r->end && r->asked->shared; q++) {
            if (is_served(&r->lines[q]) && r->lines[q].way > 0) {
                n = add_flows(r, q, c->flows, n);
            }
        }
    }
    for (int i = 0; i < n;) {
        int k = 1;
        while (i + k < n && c->flows[i + k].id == c->flows[i].id) {
            k++;
        }
        divide(&c->flows[i], k, 1);
        i += k;
    }
}

double sw_rank_crowd(const struct rank *r, const struct sw_cost *cost)
{
    double most = 1;
    if (cost->way > 0 && r->asked->shared) {
        const struct sw_way *way = &r->pace->ways[cost->way - 1];
        for (int i = 0; i < way->n; i++) {
            most = fmax(most, way->uses[i].share * r->asked->shared[way->uses[i].kind].n);
        }
    }
    return most;
}
