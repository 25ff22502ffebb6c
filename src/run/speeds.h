// SPDX-License-Identifier: Apache-2.0
// speeds - the cost of a plan's instructions on a machine. Rates are given, or measured in this
// process with the plan's own kernels, sizes and disk, without running a step. Part of the public
// interface of run.
#pragma once

#include "run/clock.h"

struct sw_device;
struct sw_swap_options;

/* Kinds of transfers. A cost curve is measured at a few sizes, and interpolated linearly. */
enum sw_curve {
    SW_CURVE_COPY_IN,
    SW_CURVE_COPY_OUT,
    SW_CURVE_READ,
    SW_CURVE_WRITE,
    SW_CURVE_ROW, /* one row of many small scattered reads */
    SW_CURVE_GATHER,
    SW_CURVE_REDUCE,
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

struct sw_speeds {
    /* given rates, in work per second; 0 = not given. They override measurements */
    double given[SW_LOAD_COUNT];
    struct sw_cost (*kernels)[2]; /* [n_instrs] see struct sw_pace; NULL = not measured */
    struct sw_rate_curve curves[SW_CURVE_COUNT];
    double cores, disk_share, meeting; /* see struct sw_pace; disk_share 0 = 1/2 */
};

struct sw_measure_options {
    /* [n_devices] devices of identical ranks that run at the same time on this machine, this rank's
     * first. The members below are the same for all. */
    struct sw_device *const *devices;
    /* their processors for kernels of the host; NULL = the plan has none */
    struct sw_device *const *hosts;
    int n_devices;
    int ranks; /* number of ranks that share the machine's processors and disk */
    const struct sw_swap_options *swap; /* options for files like theirs */
};

/*
 * sw_speeds_measure - measures what the plan's first program needs and no given rate covers.
 * It takes a few seconds. It temporarily uses disk space for a part of the plan's disk tier.
 * Exchanges are measured with threads; for more than SW_THREAD_RANKS_MAX ranks they stay unknown.
 *
 * speeds   must be closed even after a failure
 */
sw_status sw_speeds_measure(const struct sw_plan *plan, const struct sw_measure_options *options,
                            struct sw_speeds *speeds);
void sw_speeds_close(struct sw_speeds *speeds);

/* Writes the costs of the instructions of the first program: costs [n_instrs], see struct sw_pace.
 * unknown [SW_LOAD_COUNT]: there is such work but no rate; it counts as 0. */
void sw_speeds_costs(const struct sw_plan *plan, const struct sw_speeds *speeds,
                     bool unknown[SW_LOAD_COUNT], struct sw_cost (*costs)[2]);
/* Predicts the step from these costs. unknown [SW_LOAD_COUNT]: there is such work but no rate; it
 * counts as 0. */
sw_status sw_speeds_step(const struct sw_plan *plan, const struct sw_speeds *speeds,
                         bool unknown[SW_LOAD_COUNT], struct sw_clock_report *out);
