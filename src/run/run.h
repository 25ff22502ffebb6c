// SPDX-License-Identifier: Apache-2.0
// run - the executor, which runs a plan on a device. It makes no decisions, and allocates nothing
// after opening.
#pragma once

#include "device/device.h"
#include "plan/plan.h"
#include "spillway/comm.h"
#include "spillway/nvme.h"
#include "walk/walk.h"

struct sw_executor;

/* Location of a plan's disk tier: a file in each folder, striped. The files belong to this executor
 * alone. */
struct sw_swap_options {
    const char *const *folders; /* [n_folders] borrowed for the call */
    int n_folders, rank;
    struct sw_nvme_options nvme;
};
/* Opens a store over a new file in each folder, accessible to the user only (mode 0600). The files
 * have no names once this returns, so a process that is killed leaves nothing. */
sw_status sw_swap_open_files(const struct sw_swap_options *options, int64_t bytes, sw_nvme **out);

struct sw_executor_options {
    struct sw_swap_options swap; /* for plans with a disk tier */
    bool *disk_full;   /* set to true if the disk is full, with SW_E_NOMEM; NULL = not wanted */
    sw_comm *comm;     /* borrowed; NULL = a single rank */
    bool library;      /* the device's library exchanges (dev->ccl); false: comm does */
    bool library_sums; /* it also adds what ranks send, in an order of its own */
    /* borrowed: the host's processors, for plans with kernels of the host */
    struct sw_device *host;
    /* For tests: fills every range with NaN bytes when its life ends, and records the highest byte
     * that kernels were given. */
    bool verify;
    /* Captures launches when it is opened, and replays them, if the device can (dev->capture). With
     * `profile` they are launched one by one. */
    bool capture;
    bool profile;     /* measures each instruction; see sw_executor_profile */
    bool phase_times; /* also measures sw_executor_phase_times on an asynchronous device */
    bool serial;      /* every collective and transfer blocks, for comparison */
    bool no_kernels, no_transfers; /* leaves them out to time the rest; results are meaningless */
};

/*
 * sw_executor_open - allocates one arena for all programs of the plan, and prepares every kernel.
 *
 * plan, dev    borrowed; must outlive the executor
 *
 * SW_E_NOMEM   the device has too little memory for the arena, or the disk for its tier
 */
sw_status sw_executor_open(const struct sw_plan *plan, struct sw_device *dev,
                           const struct sw_executor_options *options, struct sw_executor **out);
void sw_executor_close(struct sw_executor *ex);

/* Callbacks of a step; NULL = nothing to do. */
struct sw_step_hooks {
    void *ctx;
    /* SW_STEP_LOSSES: also sets the scalars that depend on the losses */
    sw_status (*losses)(void *ctx);
    /* SW_STEP_AGREE: returns the worst status of all ranks. fault: this rank's, with its message;
     * SW_OK = none */
    sw_status (*agree)(void *ctx, sw_status fault);
};

/*
 * sw_executor_walk - runs phases *at .. until - 1 of the plan's step.
 *
 * hooks   borrowed for the call; NULL = none
 * at      current position; afterwards the phase that failed, or `until`
 *
 * Work may still be in flight on return, unless the last phase joins. Later calls report its
 * failures.
 */
sw_status sw_executor_walk(struct sw_executor *ex, const struct sw_step_hooks *hooks, int32_t *at,
                           int32_t until);
/* True after a step that counts, until its update of what is offloaded has run: within the next
 * forward, or by sw_executor_settle. */
bool sw_executor_is_due(const struct sw_executor *ex);
/* Drops what the last step has read for the first forward of the next one, which then reads it.
 * Loading tensors and running other programs do so, too. */
void sw_executor_forget_read(struct sw_executor *ex);
/* Drops the update that is due, and what a forward has made of it, before other parameters and
 * states are loaded. */
void sw_executor_forget_due(struct sw_executor *ex);
/* Runs the update that is due, without a forward, between steps. Collective. After a failure it is
 * still due, and can be repeated after sw_executor_roll_back; *at: the phase that failed */
sw_status sw_executor_settle(struct sw_executor *ex, const struct sw_step_hooks *hooks,
                             int32_t *at);
/* Runs a program that is not part of the step; no update may be due. */
sw_status sw_executor_forward(struct sw_executor *ex, int i_program);

/* After an abandoned step: drops a fault that was held back until AGREE. */
void sw_executor_forget_fault(struct sw_executor *ex);
/* Call it after a failed run, before the next step. It zeroes what a failed write may have damaged
 * and a step reads without having written it: sums on disk, and the padding of disk blocks in slots
 * that are not current. */
sw_status sw_executor_roll_back(struct sw_executor *ex);

/* Bytes moved between tiers since opening. */
void sw_executor_transferred(const struct sw_executor *ex, struct sw_transfers *out);

/* Time and bytes of one queue since the executor was opened. For the computing thread, the time in
 * segments is its own busy_ns plus the waited_ns of all queues; no time counts twice. */
struct sw_queue_times {
    int64_t busy_ns; /* time with work; COMPUTE: time in segments without waits for other queues */
    int64_t waited_ns; /* time that computation waited for it */
    /* transfers: to the device, and from it; exchanges: received, and sent */
    int64_t bytes_in, bytes_out;
    /* How often the queue's thread (for COMPUTE, the issuing thread) waited for the device. Waits
     * of a profile or a trace do not count. */
    int64_t n_host_waits;
};
void sw_executor_queue_times(const struct sw_executor *ex,
                             struct sw_queue_times out[SW_QUEUE_COUNT]);
/* Reports what this rank has sent in exchanges of a group of the plan. Call it between steps. */
void sw_executor_traffic(const struct sw_executor *ex, int group, struct sw_traffic *out);

/* Times of the steps since the executor was opened. Measuring does not delay a step: on an
 * asynchronous device a thread notes the end of each phase (if the option phase_times is set). */
struct sw_phase_times {
    /* UPDATE includes the exchange of losses and the agreement of ranks */
    int64_t ns[SW_SEGMENT_COUNT];
    int64_t reduce_ns; /* part of backward: computation waited for other ranks */
};
/* Call it between steps. */
void sw_executor_phase_times(struct sw_executor *ex, struct sw_phase_times *out);

/* Sets a scalar for all micro-steps and the update. Scalars travel to the device with the next
 * phase. */
void sw_executor_set(struct sw_executor *ex, enum sw_scalar scalar, double value);
/* Sets a scalar for one micro-step; the update reads the first row. */
void sw_executor_set_of(struct sw_executor *ex, int64_t round, enum sw_scalar scalar, double value);
/* Waits on the host for all work of computation and all exchanges. Afterwards the communicator is
 * the caller's again, and sw_executor_get returns scalars that kernels wrote. A phase with `joins`
 * does this itself. */
sw_status sw_executor_join(struct sw_executor *ex);
double sw_executor_get(const struct sw_executor *ex, enum sw_scalar scalar);

/* Sets an input of the step's program, or fetches an output that is a single number. Call it before
 * or after the phase that computes the micro-batch; it does not wait. The device keeps an input's
 * bytes per micro-step until a join; after a join, fetched values are available. i: which output,
 * below SW_FETCHED */
enum { SW_FETCHED = 28 };
sw_status sw_executor_give(struct sw_executor *ex, const struct sw_port *port, int64_t round,
                           const void *src, size_t bytes);
sw_status sw_executor_fetch(struct sw_executor *ex, const struct sw_port *port, int64_t round,
                            int i);
double sw_executor_fetched(const struct sw_executor *ex, int64_t round, int i);
/* Writes inputs before a run of a program, reads outputs after it. `bytes` must match. */
sw_status sw_executor_write(struct sw_executor *ex, const struct sw_port *port, const void *src,
                            size_t bytes);
sw_status sw_executor_read(struct sw_executor *ex, const struct sw_port *port, void *dst,
                           size_t bytes);
/* Accesses a part of a parameter or state: `bytes` bytes from byte `at` on. */
sw_status sw_executor_load(struct sw_executor *ex, const struct sw_persistent *item, size_t at,
                           const void *src, size_t bytes);
sw_status sw_executor_save(struct sw_executor *ex, const struct sw_persistent *item, size_t at,
                           void *dst, size_t bytes);
/* Sets the initial contents: zeros, or the values of a constant. */
sw_status sw_executor_zero(struct sw_executor *ex, const struct sw_persistent *item);

/* verify: highest byte of the arena that a kernel was given so far */
size_t sw_executor_high_water(const struct sw_executor *ex);
/* profile: time of instruction i of a program, summed over its measured runs. Runs of collectives
 * are not counted. */
struct sw_profile {
    int64_t ns, n_runs;
    bool is_captured; /* replayed with others while it is not measured */
};
struct sw_profile sw_executor_profile(const struct sw_executor *ex, int i_program, int32_t i_instr);
/* Launches of a step that are replayed: how many (kernels, products, fills), as how many, and how
 * many graphs that takes with other programs and slots. All 0: nothing is captured. */
struct sw_captures {
    int64_t n_launches, n_replays, n_graphs;
};
struct sw_captures sw_executor_captures(const struct sw_executor *ex);
/* Call it between steps: turns measuring of each instruction on or off. Returns the previous
 * setting. */
bool sw_executor_measure(struct sw_executor *ex, bool on);

/* ---- a trace: what ran when ---- */

struct sw_trace;

/* sw_trace_open - allocates memory for `steps` steps of the plan's first program, with `rounds`
 * micro-steps each. Recording allocates nothing; events beyond the memory are counted and dropped.
 * plan   borrowed; must outlive the trace */
sw_status sw_trace_open(const struct sw_plan *plan, int64_t steps, int64_t rounds,
                        struct sw_trace **out);
void sw_trace_close(struct sw_trace *trace); /* NULL is a no-op */
/* Call it between runs: records later runs in `trace` (of the same plan; borrowed). NULL = stop.
 * Each instruction is an event of its queue; collectives that travel together are one event. A wait
 * for another queue is an event of COMPUTE. */
void sw_executor_trace(struct sw_executor *ex, struct sw_trace *trace);
/* Records a whole step; times are by sw_now_ns. */
void sw_trace_step(struct sw_trace *trace, int64_t step, int64_t begin_ns, int64_t end_ns);
int64_t sw_trace_events(const struct sw_trace *trace); /* number of instruction events */
int64_t sw_trace_dropped(const struct sw_trace *trace);
/* Appends the events as JSON objects, separated by commas, in the format of Perfetto and Chrome:
 * process `rank`, a thread per queue, counters of planned bytes. Times are relative to base_ns.
 * Call it while nothing is recorded. */
sw_status sw_trace_render(struct sw_trace *trace, int rank, int64_t base_ns, struct sw_str *out);
/* Writes a whole file from the rendered events of n ranks; NULL or "" = a rank without events. */
void sw_trace_document(const char *const *ranks, int n, struct sw_str *out);

/* ---- measure.c: the costs of a plan's instructions on this machine ---- */

struct sw_measure_options {
    /* [n_devices] devices of identical ranks that run at the same time on this machine, this rank's
     * first. The members below are the same for all. */
    struct sw_device *const *devices;
    /* their processors for kernels of the host; NULL = the plan has none */
    struct sw_device *const *hosts;
    int n_devices;
    int ranks; /* number of ranks that share the machine's processors and disk */
    const struct sw_swap_options *swap; /* options for files like theirs */
    /* Ranks that are there, each with one device, and measure at the same time; NULL = threads of
     * this process stand in for them */
    sw_comm *comm;
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
/* Measures exchanges of host memory among the ranks of a communicator. Rank 0 sets the curves of
 * GATHER and REDUCE, and `meeting`. Collective. */
sw_status sw_speeds_measure_exchanges(sw_comm *comm, struct sw_speeds *speeds);
