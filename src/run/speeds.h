// SPDX-License-Identifier: Apache-2.0
// speeds - what the instructions of a plan cost on a machine: as rates that somebody gives, or
// measured in this process, with the plan's own kernels, sizes and disk, and no step of it. Part of
// run's door.
#pragma once

#include "run/clock.h"

struct sw_device;
struct sw_swap_options;

/* What moves bytes: the costs of some sizes, and between them a straight line. */
enum sw_curve {
    SW_CURVE_COPY_IN,
    SW_CURVE_COPY_OUT,
    SW_CURVE_READ,
    SW_CURVE_WRITE,
    SW_CURVE_ROW, /* one of many small reads, here and there */
    SW_CURVE_GATHER,
    SW_CURVE_REDUCE,
    SW_CURVE_COUNT
};
enum { SW_CURVE_POINTS = 4 };
struct sw_rate_curve {
    int n; /* 0 = unknown */
    struct sw_rate_point {
        double bytes; /* ascending; of a rank's slice */
        struct sw_cost cost;
    } at[SW_CURVE_POINTS];
};

struct sw_speeds {
    double given[SW_LOAD_COUNT];  /* a second; 0 = not given. They go before what is measured */
    struct sw_cost (*kernels)[2]; /* [n_instrs] see struct sw_pace; NULL = not measured */
    struct sw_rate_curve curves[SW_CURVE_COUNT];
    double cores, disk_share, meeting; /* see struct sw_pace; disk_share 0: 1/2 */
};

struct sw_measure_options {
    /* [n_devices] of ranks that are at work at the same time on this machine, this one's first; all
     * alike. What follows is the same for all. */
    struct sw_device *const *devices;
    struct sw_device *const *hosts; /* theirs for kernels of the host; NULL = the plan has none */
    int n_devices;
    int ranks;                          /* that share its processors and its disk, .. */
    const struct sw_swap_options *swap; /* .. whose files are like these */
};

/*
 * sw_speeds_measure - fills in what the plan's first program has work for and nobody has given.
 * Takes some seconds, and room on the disk for a part of what the plan has there, which it gives
 * back. What ranks exchange is measured with threads; of more than SW_THREAD_RANKS_MAX it stays
 * unknown.
 *
 * speeds   to be closed, whatever happened
 */
sw_status sw_speeds_measure(const struct sw_plan *plan, const struct sw_measure_options *options,
                            struct sw_speeds *speeds);
void sw_speeds_close(struct sw_speeds *speeds);

/* The step by these rates. unknown [SW_LOAD_COUNT]: there is such work and no rate, and it counts
 * as nothing. */
sw_status sw_speeds_step(const struct sw_plan *plan, const struct sw_speeds *speeds,
                         bool unknown[SW_LOAD_COUNT], struct sw_clock_report *out);
