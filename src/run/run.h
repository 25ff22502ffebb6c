// SPDX-License-Identifier: Apache-2.0
// run - the executor: runs a plan on a device. It makes no decision and, after opening, no allocation.
#pragma once

#include "device/device.h"
#include "plan/plan.h"
#include "spillway/comm.h"
#include "spillway/nvme.h"

struct sw_executor;

/* Where a plan's disk tier lies: a file in each folder, striped. The files belong to this executor alone. */
struct sw_swap_options {
    const char *const *folders; /* [n_folders] borrowed for the call */
    int n_folders, rank;
    struct sw_nvme_options nvme;
};
/* A store over a new file in each folder, for the caller's bytes alone (mode 0600). They have no names once
 * this returns, so nothing is left of a process that is killed. */
sw_status sw_swap_open_files(const struct sw_swap_options *options, int64_t bytes, sw_nvme **out);

struct sw_executor_options {
    struct sw_swap_options swap; /* plans with a disk tier */
    bool *disk_full; /* set where that has no room, with SW_E_NOMEM; NULL = nobody asks */
    sw_comm *comm;   /* borrowed; NULL = alone */
    /* Fills every range with NaN bytes when its life ends and records the highest byte that kernels
     * were given; for tests. */
    bool verify;
    bool profile; /* measures each instruction; see sw_executor_profile */
    bool serial;  /* every collective and transfer blocks, to compare with one that does not */
    bool no_kernels, no_transfers; /* left out, to measure the others alone; results mean nothing */
};

/*
 * sw_executor_open - one arena for all programs of the plan, every kernel prepared.
 *
 * plan, dev    borrowed; must outlive the executor
 *
 * SW_E_NOMEM   the device cannot give the arena, or the disk its tier
 */
sw_status sw_executor_open(const struct sw_plan *plan, struct sw_device *dev,
                           const struct sw_executor_options *options, struct sw_executor **out);
void sw_executor_close(struct sw_executor *ex);

/* Runs one segment of a program. Values written before stay where the plan put them. Transfers, but no collectives, may be under way when it
 * returns, if the next one to run is the segment behind it: backward, and the update where this micro-step is the
 * last. */
sw_status sw_executor_run(struct sw_executor *ex, int i_program, enum sw_segment segment);

/* The collectives alone: a rank without a micro-batch still serves the others. */
sw_status sw_executor_run_idle(struct sw_executor *ex, int i_program, enum sw_segment segment);
/* What was written out of place since the last call counts from now on; without it, it never was. */
void sw_executor_commit(struct sw_executor *ex);
/* On: a transfer of the disk that fails does not end the run, and those behind it are left out: the other ranks still get
 * what they wait for, though it means nothing, and all of them can end the step together. */
void sw_executor_hold_faults(struct sw_executor *ex, bool on);
/* Behind a run that failed, before a step: what a write that failed took with it of the blocks that it shares, and a step reads
 * without having written it. Places that count are not touched. */
sw_status sw_executor_mend(struct sw_executor *ex);
/* The first failure that was held back, with its message; SW_OK: none. */
sw_status sw_executor_fault(struct sw_executor *ex);
void sw_executor_forget_fault(struct sw_executor *ex);
/* Before a forward: whether this micro-step is the last of its step. Updates within backward run then, and the segment
 * of the update must follow the backward. */
void sw_executor_set_boundary(struct sw_executor *ex, bool boundary);
/* Ranks that have a micro-batch in this micro-step: the first n. micro: which one of a program that holds several
 * (vertical schedule), else 0; a rank without it serves the others there. */
void sw_executor_set_active(struct sw_executor *ex, int micro, int n);

/* Bytes moved between tiers since opening. */
void sw_executor_transferred(const struct sw_executor *ex, struct sw_transfers *out);

/*
 * Time and bytes of one queue since the executor was opened. Of the thread that computes, the time in segments is
 * its own busy_ns and the waited_ns of all queues: nothing counts twice.
 */
struct sw_queue_times {
    int64_t busy_ns;   /* it had work; COMPUTE: segments ran and waited for no other queue */
    int64_t waited_ns; /* computation stood still for it */
    int64_t bytes_in, bytes_out; /* transfers: to the device, from it; COMM: received, sent */
};
void sw_executor_queue_times(const struct sw_executor *ex,
                             struct sw_queue_times out[SW_QUEUE_COUNT]);

/* Scalars travel to the device with the next run; outputs are read back after one. */
void sw_executor_set(struct sw_executor *ex, enum sw_scalar scalar, double value);
/* For the ops of one micro-batch of several; sw_executor_set is for those of the first, and of the update. */
void sw_executor_set_of(struct sw_executor *ex, int micro, enum sw_scalar scalar, double value);
double sw_executor_get(const struct sw_executor *ex, enum sw_scalar scalar);

/* Inputs of a program before a run, outputs after. bytes must match. */
sw_status sw_executor_write(struct sw_executor *ex, const struct sw_port *port, const void *src,
                            size_t bytes);
sw_status sw_executor_read(struct sw_executor *ex, const struct sw_port *port, void *dst,
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

/* ---- a trace: what ran when ---- */

struct sw_trace;

/*
 * sw_trace_open - memory for `steps` steps of the plan's first program with `rounds` micro-steps each; what finds no
 * place in it is counted and left out. Nothing is allocated while it records.
 *
 * plan   borrowed; must outlive the trace
 */
sw_status sw_trace_open(const struct sw_plan *plan, int64_t steps, int64_t rounds,
                        struct sw_trace **out);
void sw_trace_close(struct sw_trace *trace); /* NULL is fine */
/* Between runs: what follows is recorded in `trace` (of the same plan; borrowed); NULL = no more. An instruction is
 * an event of its queue, collectives that travel together are one; waiting for another queue is one of COMPUTE. */
void sw_executor_trace(struct sw_executor *ex, struct sw_trace *trace);
/* A step as a whole, by sw_now_ns. */
void sw_trace_step(struct sw_trace *trace, int64_t step, int64_t begin_ns, int64_t end_ns);
int64_t sw_trace_events(const struct sw_trace *trace); /* of instructions */
int64_t sw_trace_dropped(const struct sw_trace *trace);
/* Appends the events as JSON objects with commas between them, as Perfetto and Chrome read them: process `rank`, a
 * thread for each queue, counters of planned bytes; time counts from base_ns. While nothing is recorded. */
sw_status sw_trace_render(struct sw_trace *trace, int rank, int64_t base_ns, struct sw_str *out);
/* The whole file, of the rendered events of n ranks; NULL or "" = none of that rank. */
void sw_trace_document(const char *const *ranks, int n, struct sw_str *out);
