// SPDX-License-Identifier: Apache-2.0
// run - the executor: runs a plan on a device. It makes no decision and, after opening, no allocation.
#pragma once

#include "device/device.h"
#include "plan/plan.h"

struct sw_executor;

/* What the executor needs of the other ranks; blocking, called by the driver thread in the order of the
 * plan, the same on every rank. `what` names the tensor, for whoever waits too long. */
struct sw_collectives {
    void *ctx;
    int rank, size;
    /* Slice r of src ([size] slices) goes to rank r; dst [size] slices in rank order. */
    sw_status (*all_to_all)(void *ctx, const void *src, void *dst, size_t slice_bytes,
                            const char *what);
    /* dst [size] slices in rank order; src may be its own place in dst. */
    sw_status (*all_gather)(void *ctx, const void *src, void *dst, size_t slice_bytes,
                            const char *what);
    /* This rank cannot go on: whoever waits for it gets an error instead. NULL = not needed. */
    void (*abort)(void *ctx, sw_status reason);
};

/*
 * sw_thread_ranks_open - ranks that are threads of this process.
 *
 * size         each rank r is driven by a thread of its own, with sw_thread_ranks_at(.., r)
 * deadline_s   longest wait for the others; then those who are missing are named, on every rank
 */
struct sw_thread_ranks;
sw_status sw_thread_ranks_open(int size, double deadline_s, struct sw_thread_ranks **out);
/* When no rank uses it any more. */
void sw_thread_ranks_close(struct sw_thread_ranks *ranks);
/* Lent until close. */
const struct sw_collectives *sw_thread_ranks_at(const struct sw_thread_ranks *ranks, int rank);

struct sw_executor_options {
    const struct sw_collectives *ranks; /* borrowed; NULL = alone */
    /* Fills every range with NaN bytes when its life ends and records the highest byte that kernels
     * were given; for tests. */
    bool verify;
    bool profile; /* measures each instruction; see sw_executor_profile */
};

/*
 * sw_executor_open - one arena for all programs of the plan, every kernel prepared.
 *
 * plan, dev    borrowed; must outlive the executor
 *
 * SW_E_NOMEM   the device cannot give the arena
 */
sw_status sw_executor_open(const struct sw_plan *plan, struct sw_device *dev,
                           const struct sw_executor_options *options, struct sw_executor **out);
void sw_executor_close(struct sw_executor *ex);

/* Runs one segment of a program, to its end. Values written before stay where the plan put them. */
sw_status sw_executor_run(struct sw_executor *ex, int i_program, enum sw_segment segment);

/* The collectives alone: a rank without a micro-batch still serves the others. */
sw_status sw_executor_run_idle(struct sw_executor *ex, int i_program, enum sw_segment segment);
/* Ranks that have a micro-batch in this micro-step: the first n. */
void sw_executor_set_active(struct sw_executor *ex, int n);

/* Scalars travel to the device with the next run; outputs are read back after one. */
void sw_executor_set(struct sw_executor *ex, enum sw_scalar scalar, double value);
double sw_executor_get(const struct sw_executor *ex, enum sw_scalar scalar);

/* Whole values of a program: inputs before a run, outputs after. bytes must match. */
sw_status sw_executor_write(struct sw_executor *ex, int i_program, sw_value v, const void *src,
                            size_t bytes);
sw_status sw_executor_read(struct sw_executor *ex, int i_program, sw_value v, void *dst,
                           size_t bytes);
/* Part of a parameter or state: `bytes` from byte `at`. */
sw_status sw_executor_load(struct sw_executor *ex, const struct sw_persistent *item, size_t at,
                           const void *src, size_t bytes);
sw_status sw_executor_save(struct sw_executor *ex, const struct sw_persistent *item, size_t at,
                           void *dst, size_t bytes);
sw_status sw_executor_zero(struct sw_executor *ex, const struct sw_persistent *item);

/* verify: highest byte of the arena that a kernel was given so far. */
size_t sw_executor_high_water(const struct sw_executor *ex);
/* profile: nanoseconds instruction i of a program took, summed over runs. */
int64_t sw_executor_profile(const struct sw_executor *ex, int i_program, int32_t i_instr);
void sw_executor_profile_reset(struct sw_executor *ex);
