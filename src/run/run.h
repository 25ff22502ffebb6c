// SPDX-License-Identifier: Apache-2.0
// run - the executor: runs a plan on a device. It makes no decision and, after opening, no allocation.
#pragma once

#include "device/device.h"
#include "plan/plan.h"
#include "spillway/comm.h"
#include "spillway/nvme.h"

struct sw_executor;

/* Where a plan's disk tier lies: a file in each folder, striped. The files belong to this executor alone and are
 * removed when it closes. */
struct sw_swap_options {
    const char *const *folders; /* [n_folders] borrowed for the call */
    int n_folders, rank;
    struct sw_nvme_options nvme;
};

struct sw_executor_options {
    struct sw_swap_options swap; /* plans with a disk tier */
    sw_comm *comm;               /* borrowed; NULL = alone */
    /* Fills every range with NaN bytes when its life ends and records the highest byte that kernels
     * were given; for tests. */
    bool verify;
    bool profile; /* measures each instruction; see sw_executor_profile */
    bool serial;  /* every collective blocks, to compare with one that does not */
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
/* Ranks that have a micro-batch in this micro-step: the first n. micro: which one of a program that holds several
 * (vertical schedule), else 0; a rank without it serves the others there. */
void sw_executor_set_active(struct sw_executor *ex, int micro, int n);

/* Bytes moved between tiers since opening. */
void sw_executor_transferred(const struct sw_executor *ex, struct sw_transfers *out);

/* Nanoseconds that collectives beside computation took, and that it waited for them. */
void sw_executor_comm_times(const struct sw_executor *ex, int64_t *out_busy_ns,
                            int64_t *out_waited_ns);

/* Scalars travel to the device with the next run; outputs are read back after one. */
void sw_executor_set(struct sw_executor *ex, enum sw_scalar scalar, double value);
/* For the ops of one micro-batch of several; sw_executor_set is for those of the first, and of the update. */
void sw_executor_set_of(struct sw_executor *ex, int micro, enum sw_scalar scalar, double value);
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
