// SPDX-License-Identifier: Apache-2.0
// measure - short measurements of what a plan's instructions cost. Private to the room.
#pragma once

#include "run/run.h"

/* Time on the clock, and of all processors, since it began. */
struct sw_stopwatch {
    double wall, processor;
};
struct sw_stopwatch sw_stopwatch_start(void);
/* Of `ranks` that did the same meanwhile, what each took. */
struct sw_cost sw_stopwatch_cost(const struct sw_stopwatch *begin, int ranks);
double sw_median(double *values, int n); /* sorts them */

/* Kernels of that queue, COMPUTE's or HOST's, which differ in what they compute, in types, shapes
 * or strides, once each, on the device that runs them. meet: the other ranks that do the same at
 * the same time; NULL = nobody does. out [n_instrs]: those of other queues are left alone */
sw_status sw_measure_kernels(const struct sw_plan *plan, enum sw_queue queue, struct sw_device *dev,
                             sw_comm *meet, const double given[SW_LOAD_COUNT],
                             struct sw_cost (*out)[2]);
