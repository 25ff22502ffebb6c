// SPDX-License-Identifier: Apache-2.0
// measure - short measurements of the cost of a plan's instructions. Private to this folder.
#pragma once

#include <stdatomic.h>

#include "run/run.h"

#define SW_MEASURE_DEADLINE_S 600.0 /* for threads that measure together */

/* Elapsed time, and time of all processors, since the start. */
struct sw_stopwatch {
    double wall, processor;
};
struct sw_stopwatch sw_stopwatch_start(void);
/* Cost per rank if `ranks` ranks did the same work meanwhile. */
struct sw_cost sw_stopwatch_cost(const struct sw_stopwatch *begin, int ranks);

/* ---- copier.c ---- */

/* Copies between two buffers. Each copy is at another place, which is in no cache, as in a step. */
struct sw_copier {
    struct sw_device *dev;
    struct sw_stream_queue *on;
    char *host, *device;
    size_t at;
};
/* Close it also after a failure. */
sw_status sw_copier_open(struct sw_device *dev, struct sw_copier *out);
void sw_copier_close(struct sw_copier *c);
/* Copies into the device or out of it, and waits. bytes: at most 32 MiB */
sw_status sw_copier_copy(struct sw_copier *c, bool in, size_t bytes);

/* ---- time_kernels.c ---- */

/* Times the kernels of one queue, COMPUTE or HOST, on the device that runs them, in the order of a
 * step. Kernels with equal arithmetic, types, shapes and strides have the mean of their times.
 * meet: other ranks that do the same at the same time; NULL = none. out [n_instrs]: instructions of
 * other queues are unchanged */
sw_status sw_measure_kernels(const struct sw_plan *plan, enum sw_queue queue, struct sw_device *dev,
                             sw_comm *meet, const struct sw_machine_rates *given,
                             struct sw_cost (*out)[2]);
/* The factor by which waiting for each other slows ranks down, over their mean without waiting.
 * seconds: [ranks, n] of consecutive spans; overwritten. until: [n] number of spans that all ranks
 * must have done before the span after that one begins, 0 to its number + 1 */
double sw_slowest_over_mean(double *seconds, const size_t *until, size_t n, int ranks);

/* Kernels beside jobs of another thread. */
struct sw_kernels_beside {
    struct sw_pace pace; /* with costs; its processors and memory are shared */
    struct sw_cost job;
    /* sums over launches */
    double seconds; /* that they took */
    double alone;   /* that they take by their costs */
    double shared;  /* that they took, times sw_clock_share beside a job */
};

/* Runs kernels of the first program in the order of a step on their own memory until *stop, after
 * all of `begins` have met. Kernels whose rates are given are left out. beside: adds to the sums;
 * NULL = not wanted */
sw_status sw_run_kernels(const struct sw_plan *plan, struct sw_device *dev, sw_comm *begins,
                         const struct sw_machine_rates *given, const atomic_bool *stop,
                         struct sw_kernels_beside *beside);

/* ---- time_yield.c ---- */

/* Sets `yield`: runs kernels of the plan beside copies. The speeds have measured kernels, copies,
 * cores and bandwidth. The devices' memory is copied by the host's processors. */
sw_status sw_measure_yield(const struct sw_plan *plan, const struct sw_measure_options *options,
                           struct sw_speeds *speeds);
