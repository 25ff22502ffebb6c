// SPDX-License-Identifier: Apache-2.0
// measure - short measurements of the cost of a plan's instructions. Private to this folder.
#pragma once

#include <stdatomic.h>

#include "run/run.h"

/* Elapsed time, and time of all processors, since the start. */
struct sw_stopwatch {
    double wall, processor;
};
struct sw_stopwatch sw_stopwatch_start(void);
/* Cost per rank if `ranks` ranks did the same work meanwhile. */
struct sw_cost sw_stopwatch_cost(const struct sw_stopwatch *begin, int ranks);

/* Times the kernels of one queue, COMPUTE or HOST, on the device that runs them. Kernels with equal
 * arithmetic, types, shapes and strides are timed once. meet: other ranks that do the same at the
 * same time; NULL = none. out [n_instrs]: instructions of other queues are unchanged */
sw_status sw_measure_kernels(const struct sw_plan *plan, enum sw_queue queue, struct sw_device *dev,
                             sw_comm *meet, const struct sw_machine_rates *given,
                             struct sw_cost (*out)[2]);
/* Launches of kernels on all ranks, which ran them side by side. */
enum { SW_MOST_LAUNCHES = 60 };
struct sw_launches {
    const double *seconds; /* [ranks] lists of them, one every `stride` */
    size_t stride;
    int ranks;
};
/* Mean of the slowest rank's launches, if ranks meet after `each` of them: which one is the slowest
 * may change. at: the first of SW_MOST_LAUNCHES in a rank's list, which a 0 ends. Returns 0 if a
 * rank has none. */
double sw_launches_mean(const struct sw_launches *launches, size_t at, int each);

/* Runs kernels of the first program on their own memory until *stop, after all of `meet` have met.
 * Those that take integers are left out, and those whose rates are given. */
sw_status sw_run_kernels(const struct sw_plan *plan, struct sw_device *dev, sw_comm *meet,
                         const struct sw_machine_rates *given, const atomic_bool *stop);
