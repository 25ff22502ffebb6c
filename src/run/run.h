// SPDX-License-Identifier: Apache-2.0
// run - the executor: runs a plan on a device. It makes no decision and, after opening, no
// allocation.
#pragma once

#include "device/device.h"
#include "plan/plan.h"
#include "run/speeds.h"
#include "spillway/comm.h"
#include "spillway/nvme.h"

struct sw_executor;

/* Where a plan's disk tier lies: a file in each folder, striped. The files belong to this executor
 * alone. */
struct sw_swap_options {
    const char *const *folders; /* [n_folders] borrowed for the call */
    int n_folders, rank;
    struct sw_nvme_options nvme;
};
/* A store over a new file in each folder, for the caller's bytes alone (mode 0600). They have no
 * names once this returns, so nothing is left of a process that is killed. */
sw_status sw_swap_open_files(const struct sw_swap_options *options, int64_t bytes, sw_nvme **out);

struct sw_executor_options {
    struct sw_swap_options swap; /* plans with a disk tier */
    bool *disk_full;        /* set where that has no room, with SW_E_NOMEM; NULL = nobody asks */
    sw_comm *comm;          /* borrowed; NULL = alone */
    struct sw_device *host; /* borrowed: the processors of plans with kernels of the host */
    /* Fills every range with NaN bytes when its life ends and records the highest byte that kernels
     * were given; for tests. */
    bool verify;
    bool profile;     /* measures each instruction; see sw_executor_profile */
    bool phase_times; /* sw_executor_phase_times on a device that computes by itself, too */
    bool serial;      /* every collective and transfer blocks, to compare with one that does not */
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

/* What a step asks of who runs it; NULL = nothing is to be done. */
struct sw_step_hooks {
    void *ctx;
    sw_status (*losses)(void *ctx); /* SW_STEP_LOSSES: sets the scalars that depend on them, too */
    /* SW_STEP_AGREE: the worst status of all ranks. fault: this rank's, with its message; SW_OK:
     * none. */
    sw_status (*agree)(void *ctx, sw_status fault);
};

/*
 * sw_executor_walk - phases *at .. until - 1 of the plan's step.
 *
 * hooks   borrowed for the call; NULL = none
 * at      where the step is: the phase that failed, or `until`
 *
 * All of it may be under way when it returns, unless the last phase joins; failures are heard of
 * later then.
 */
sw_status sw_executor_walk(struct sw_executor *ex, const struct sw_step_hooks *hooks, int32_t *at,
                           int32_t until);
/* A program that is no part of the step. */
sw_status sw_executor_forward(struct sw_executor *ex, int i_program);

/* After a step that is given up: a fault that was kept for AGREE counts no more. */
void sw_executor_forget_fault(struct sw_executor *ex);
/* Behind a run that failed, before a step: what a write that failed took with it of the blocks that
 * it shares, and a step reads without having written it. Slots that count are not touched. */
sw_status sw_executor_roll_back(struct sw_executor *ex);

/* Bytes moved between tiers since opening. */
void sw_executor_transferred(const struct sw_executor *ex, struct sw_transfers *out);

/* Time and bytes of one queue since the executor was opened. Of the thread that computes, the time
 * in segments is its own busy_ns and the waited_ns of all queues: nothing counts twice. */
struct sw_queue_times {
    int64_t busy_ns;   /* it had work; COMPUTE: segments ran and waited for no other queue */
    int64_t waited_ns; /* computation stood still for it */
    int64_t bytes_in, bytes_out; /* transfers: to the device, from it; COMM: received, sent */
    /* The thread of the queue stood still until the device had done what it was given; COMPUTE: the
     * thread that issues. Those of a profile or a trace do not count. */
    int64_t n_host_waits;
};
void sw_executor_queue_times(const struct sw_executor *ex,
                             struct sw_queue_times out[SW_QUEUE_COUNT]);

/* Of the steps since the executor was opened. Nothing waits for it while a step runs: on a device
 * that computes by itself a thread notes when it came to the end of a phase (phase_times). */
struct sw_phase_times {
    int64_t ns[SW_SEGMENT_COUNT]; /* UPDATE: with losses exchanged, and ranks that agree */
    int64_t reduce_ns;            /* of backward: computation stood still for the ranks */
};
/* Between steps. */
void sw_executor_phase_times(struct sw_executor *ex, struct sw_phase_times *out);

/* Scalars travel to the device with the next phase. For all micro-steps, and the update. */
void sw_executor_set(struct sw_executor *ex, enum sw_scalar scalar, double value);
/* For one micro-step; the update reads the first row. */
void sw_executor_set_of(struct sw_executor *ex, int64_t round, enum sw_scalar scalar, double value);
/* The host waits for what computation was given and for what ranks exchange: the communicator is
 * the caller's again, and sw_executor_get knows what kernels wrote among the scalars. A phase that
 * joins has done it. */
sw_status sw_executor_join(struct sw_executor *ex);
double sw_executor_get(const struct sw_executor *ex, enum sw_scalar scalar);

/* An input of the step's program, or an output that is one number, before or behind the phase that
 * computes a micro-batch; nobody waits. Until a join the device has an input's bytes in memory of
 * its own for each micro-step of a step; and behind it what was fetched is here. i: which output,
 * below SW_FETCHED. */
enum { SW_FETCHED = 4 };
sw_status sw_executor_give(struct sw_executor *ex, const struct sw_port *port, int64_t round,
                           const void *src, size_t bytes);
sw_status sw_executor_fetch(struct sw_executor *ex, const struct sw_port *port, int64_t round,
                            int i);
double sw_executor_fetched(const struct sw_executor *ex, int64_t round, int i);
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
/* What it begins with: zeros, or the values of a constant. */
sw_status sw_executor_zero(struct sw_executor *ex, const struct sw_persistent *item);

/* verify: highest byte of the arena that a kernel was given so far. */
size_t sw_executor_high_water(const struct sw_executor *ex);
/* profile: what instruction i of a program took, of all its runs that were measured; runs of
 * collectives are not counted. */
struct sw_profile {
    int64_t ns, n_runs;
};
struct sw_profile sw_executor_profile(const struct sw_executor *ex, int i_program, int32_t i_instr);
/* Between steps: measures each instruction from here on, or no more. Returns what it was. */
bool sw_executor_measure(struct sw_executor *ex, bool on);

/* ---- a trace: what ran when ---- */

struct sw_trace;

/* sw_trace_open - memory for `steps` steps of the plan's first program with `rounds` micro-steps
 * each; what finds no place in it is counted and left out. Nothing is allocated while it records.
 * plan   borrowed; must outlive the trace */
sw_status sw_trace_open(const struct sw_plan *plan, int64_t steps, int64_t rounds,
                        struct sw_trace **out);
void sw_trace_close(struct sw_trace *trace); /* NULL is fine */
/* Between runs: what follows is recorded in `trace` (of the same plan; borrowed); NULL = no more.
 * An instruction is an event of its queue, collectives that travel together are one; waiting for
 * another queue is one of COMPUTE. */
void sw_executor_trace(struct sw_executor *ex, struct sw_trace *trace);
/* A step as a whole, by sw_now_ns. */
void sw_trace_step(struct sw_trace *trace, int64_t step, int64_t begin_ns, int64_t end_ns);
int64_t sw_trace_events(const struct sw_trace *trace); /* of instructions */
int64_t sw_trace_dropped(const struct sw_trace *trace);
/* Appends the events as JSON objects with commas between them, as Perfetto and Chrome read them:
 * process `rank`, a thread for each queue, counters of planned bytes; time counts from base_ns.
 * While nothing is recorded. */
sw_status sw_trace_render(struct sw_trace *trace, int rank, int64_t base_ns, struct sw_str *out);
/* The whole file, of the rendered events of n ranks; NULL or "" = none of that rank. */
void sw_trace_document(const char *const *ranks, int n, struct sw_str *out);
