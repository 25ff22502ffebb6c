// SPDX-License-Identifier: Apache-2.0
// speeds - the cost of a plan's instructions on a machine. Rates are given, or measured in this
// process with the plan's own kernels, sizes and disk, without running a step. Part of the public
// interface of walk.
#pragma once

#include "walk/clock.h"

/* Kinds of transfers. A cost curve is measured at a few sizes, and interpolated linearly. */
enum sw_curve {
    SW_CURVE_COPY_IN,
    SW_CURVE_COPY_OUT,
    SW_CURVE_READ,
    SW_CURVE_WRITE,
    SW_CURVE_ROW, /* one row of many small scattered reads */
    SW_CURVE_GATHER,
    SW_CURVE_REDUCE, /* and adding to an fp32 sum */
    SW_CURVE_MOVE,   /* gathering activations, which a kernel has just written */
    SW_CURVE_SUM,    /* and adding and rounding them */
    SW_CURVE_SEND,   /* a message, on the side of its sender */
    SW_CURVE_RECEIVE,
    SW_CURVE_COUNT
};
enum { SW_CURVE_POINTS = 4 };
struct sw_rate_curve {
    int n; /* number of points; 0 = unknown */
    struct sw_rate_point {
        double bytes; /* ascending; exchanges: bytes of a rank's shard */
        struct sw_cost cost;
    } at[SW_CURVE_POINTS];
};

/* Rates of a machine. */
struct sw_machine_rates {
    double work[SW_LOAD_COUNT]; /* work per second, by kind; 0 = not given */
    /* Bytes per second of exchanges among ranks of one host, and among ranks of several; 0 = the
     * rate of SW_LOAD_SENT. */
    double node, net;
    int node_ranks; /* ranks of each host, numbered host by host; 0 = all share one */
    /* Seconds that an exchange takes however small it is, and a meeting of ranks between phases.
     * Exchanges that travel together take it once. */
    double latency;
};
/* Bytes per second of an exchange, by whether its ranks share a host; 0 = not given. */
double sw_exchange_rate(const struct sw_plan *plan, const struct sw_instr *instr,
                        const struct sw_machine_rates *rates);
/* Default rates: a server's processor, its memory, one NVMe drive and a network of 10 Gbit/s.
 * docs/zero.md has the table. */
void sw_builtin_rates(struct sw_machine_rates *out);

struct sw_speeds {
    struct sw_machine_rates given; /* they override measurements */
    struct sw_cost (*kernels)[2];  /* [n_instrs] see struct sw_pace; NULL = not measured */
    struct sw_rate_curve curves[SW_CURVE_COUNT];
    double cores, meeting, wake, issue, yield;    /* see struct sw_pace */
    struct sw_disk_share disk_share, disk_beside; /* disk_share 0 = 1/2 */
    const double *phases;                         /* borrowed; see struct sw_pace */
    /* Bytes of memory that a rank reads and writes per second if all ranks do nothing else; 0 =
     * its queues share none */
    double bandwidth;
};

void sw_speeds_close(struct sw_speeds *speeds);

/* Writes the costs of the instructions of the first program: costs [n_instrs], see struct sw_pace.
 * unknown [SW_LOAD_COUNT]: there is such work but no rate; it counts as 0. */
void sw_speeds_costs(const struct sw_plan *plan, const struct sw_speeds *speeds,
                     bool unknown[SW_LOAD_COUNT], struct sw_cost (*costs)[2]);
/* The pace of these speeds; costs: borrowed */
struct sw_pace sw_speeds_pace(const struct sw_speeds *speeds, struct sw_cost (*costs)[2]);
/* Predicts the step from these costs. unknown [SW_LOAD_COUNT]: there is such work but no rate; it
 * counts as 0. */
sw_status sw_speeds_step(const struct sw_plan *plan, const struct sw_speeds *speeds,
                         bool unknown[SW_LOAD_COUNT], struct sw_clock_report *out);

/* Predicts the step of a pipeline by sw_clock_stages, which see; the paces are made here.
 *
 * speeds    [n] of each stage's plan; stages may share one that has no measured kernels
 * unknown   [SW_LOAD_COUNT] of any stage, see sw_speeds_step
 * seconds   out: time of a step */
sw_status sw_speeds_stages(struct sw_clock_rank *stages, const struct sw_speeds *const *speeds,
                           int n, bool unknown[SW_LOAD_COUNT], double *seconds);

/* Predicts the time of a step at given rates. Work that has none counts as 0. Micro-steps that are
 * alike are walked once. */
sw_status sw_speeds_seconds(const struct sw_plan *plan, const struct sw_machine_rates *rates,
                            double *out);

/* Predicts the time of a pipeline's stage if it never waits for another one, and that of one of its
 * micro-batches. The third one and all later ones are taken to be alike. */
sw_status sw_speeds_alone(const struct sw_plan *plan, const struct sw_machine_rates *rates,
                          double *seconds, double *micro_step);
