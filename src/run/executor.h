// SPDX-License-Identifier: Apache-2.0
// The parts of the executor: open.c prepares everything; executor.c follows the walk of a step;
// kernel.c, move.c and exchange.c run the three kinds of instructions; capture.c replays launches
// as one; tensors.c reads and writes tensors between steps. Private to this folder.
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "run/collectives.h"
#include "run/guard.h"
#include "run/meter.h"
#include "run/queues.h"
#include "run/staging.h"
#include "run/swap.h"
#include "run/watch.h"

struct prepared { /* a prepared instruction */
    struct sw_kernel *kernel;
    void *in[SW_MAX_INPUTS];
    void *out[SW_MAX_OUTPUTS];
    void *workspace;
    bool has_rings; /* its operands have a slot for each micro-batch in flight */
    struct sw_profile profile;
};

/* Transients by the instruction with which they die, for run.verify. */
struct dying {
    int32_t *first; /* [n_instrs] a buffer that dies there; -1 = none does */
    int32_t *next;  /* [n_buffers] another one that dies there; -1 = the last one */
};

struct loaded { /* a loaded program */
    struct prepared *steps;
    struct dying dying;
    struct sw_collective_call *calls; /* [n_instrs] for collectives */
};

struct flight { /* a transfer in flight */
    int64_t begin_ns;
    bool begun;       /* it is at the disk, which reaches device memory directly */
    bool is_left;     /* not begun yet: the whole transfer is done at its end */
    bool is_unchosen; /* it does not take place, since its experts have no rows */
    struct sw_swap_request request;
};

struct phase { /* a phase that has begun */
    enum sw_segment segment;
    int64_t begin_ns, end_ns; /* as seen by the issuing thread */
    int64_t mark;             /* 0 = it ends when the issuing thread says so */
};

struct held { /* disk error that a queue's thread met */
    pthread_mutex_t lock;
    atomic_int st;
    char message[1024];
    bool holds; /* from the current phase */
};

struct link {     /* a communicator that exchanges of a group use */
    int number;   /* see sw_comm_open_group */
    int group;    /* index into the plan's groups */
    int from, to; /* SEND and RECV: members of the group; -1 = it has all members */
    struct sw_route route;
    atomic_llong n_issued; /* exchanges that were queued on a stream */
};
struct exchanges {
    struct link *links; /* [n_links] by number */
    int n_links;
    struct sw_comm_item *items[SW_QUEUE_COUNT]; /* scratch of a batch, by queue */
    struct sw_guard *guard;                     /* of exchanges by a library; NULL = none */
    bool run_failed; /* the latest run failed; the guard tells the other ranks */
};

struct slots { /* of tensors with two slots */
    /* the current one; that of what is updated within the next forward; the one with the gradients
     * of the last step that counts */
    int step, late, kept;
    bool is_due;     /* a step has counted, and its update within the next forward has not */
    bool is_renewed; /* that forward has run, and the second slots have its results */
    bool has_read;   /* the last step has read for the first forward of the next one */
    double scalars[SW_SCALAR_COUNT]; /* of that update; a step that fails may set others */
};

struct captured_run { /* launches that are replayed as one */
    struct sw_captured *work;
    int32_t first, last; /* instructions */
};
struct captured_phase {
    struct sw_step_phase like; /* other phases differ only in their round, by this period */
    int64_t period;
    bool begins; /* the first micro-batch of a step has instructions that others lack */
    struct captured_run *runs; /* [n_runs] in the order of the walk */
    int n_runs;
};
struct capture {
    struct captured_phase *phases; /* [n_phases]; none = every launch is queued by itself */
    int n_phases;
    double *scalars; /* device [n_rows, SW_SCALAR_COUNT]: those of the phase's micro-batches */
    int64_t n_rows;
    struct captured_phase *now; /* of the present walk; NULL = its launches are not captured */
    int next;                   /* the next of its runs */
    bool inside;                /* the latest run goes on */
    bool records;               /* a run is being captured */
};

struct sw_executor {
    const struct sw_plan *plan;
    struct sw_device *dev;
    struct sw_stream_queue *compute;
    struct sw_stream_queue *host; /* stream of options.host; NULL = no kernel runs there */
    struct sw_executor_options options;
    char *arenas[SW_TIER_COUNT]; /* by tier; NULL for the disk */
    size_t high_water;           /* on the device */
    struct sw_transfers transferred;
    struct sw_meter meter; /* time and bytes by queue */
    struct sw_swap *swap;  /* disk tier; NULL = none */
    struct capture capture;
    double *scalars;        /* on the device, [n_rows, SW_SCALAR_COUNT]: a row per micro-step */
    double *host_scalars;   /* the same, in host memory from the device */
    double *update_scalars; /* [SW_SCALAR_COUNT] in such memory: what kernels of the host read */
    float *fetched;         /* [n_rows, SW_FETCHED] in such memory: outputs of micro-steps */
    int64_t n_rows;
    bool has_new_scalars; /* not sent to the device yet */
    struct loaded *programs;
    struct slots slots;
    /* queues beside the computing thread; NULL = none */
    struct sw_queues *queues;
    struct sw_stage stages[SW_QUEUE_COUNT]; /* how bytes get to the device, and from it */
    struct exchanges exchanges;
    struct flight flights[SW_QUEUE_COUNT][SW_QUEUE_BEGUN]; /* each used by its queue's thread */
    int64_t ended_ns[SW_QUEUE_COUNT];                      /* end of the queue's latest transfer */
    struct sw_phase_times phases;
    /* for asynchronous devices; NULL = synchronous, or not requested */
    struct sw_watch *watch;
    struct phase *begun; /* [n_phases of the step] not counted yet */
    int32_t n_begun;
    struct held fault;
    const struct sw_step_hooks *hooks; /* during a walk; NULL = none given */
};

static inline size_t sw_executor_scalars_bytes(const struct sw_executor *ex)
{
    return (size_t)ex->n_rows * SW_SCALAR_COUNT * sizeof *ex->scalars;
}

enum { SW_UPDATE_SCALARS_BYTES = SW_SCALAR_COUNT * sizeof(double) };

static inline int sw_executor_index(const struct sw_executor *ex, const struct sw_program *program)
{
    return (int)(program - ex->plan->programs);
}

/* NULL for operands on disk. */
static inline char *sw_executor_address(const struct sw_executor *ex,
                                        const struct sw_operand *operand)
{
    return operand->tier > SW_TIER_HOST ? NULL : ex->arenas[operand->tier] + operand->offset;
}

/* The same for a micro-batch. NULL for operands on disk. */
static inline char *sw_executor_slot(const struct sw_executor *ex, const struct sw_operand *operand,
                                     int64_t round)
{
    const int64_t index[SW_RING_COUNT] = {[SW_RING_MICRO] = round};
    char *const first = sw_executor_address(ex, operand);
    return first ? first + sw_operand_shift(operand, index) : NULL;
}

/* Counts a run of an instruction, if each is measured. */
static inline void sw_executor_ran(const struct sw_executor *ex, struct sw_profile *profile,
                                   int64_t ns)
{
    if (ex->meter.profiles) {
        profile->ns += ns;
        profile->n_runs++;
    }
}

/* ---- executor.c ---- */

/* Waits until nothing is in flight. */
sw_status sw_executor_drain(struct sw_executor *ex);
/* The phase of a program that is not part of the step. */
struct sw_step_phase sw_executor_phase_of(int i_program);

/* ---- kernel.c ---- */

/* Launches the kernel at the walk's position on the device, or replays those that it begins. */
sw_status sw_executor_launch(struct sw_executor *ex, const struct sw_walk *at);
/* Launches that kernel alone. */
sw_status sw_executor_launch_alone(struct sw_executor *ex, const struct sw_walk *at);
/* Runs a kernel of the host on the thread of its queue. */
sw_status sw_executor_compute_here(struct sw_executor *ex, const struct sw_queue_job *job);
/* With the option `verify`: notes what the instruction touched, and poisons what nobody uses after
 * it. */
sw_status sw_executor_verify(struct sw_executor *ex, const struct sw_walk *at);

/* ---- capture.c ---- */

static inline size_t sw_capture_scalars_bytes(const struct capture *capture)
{
    return (size_t)capture->n_rows * SW_SCALAR_COUNT * sizeof *capture->scalars;
}
/* Captures the launches of all phases, if that is wanted and the device can. Nothing runs. */
sw_status sw_executor_open_capture(struct sw_executor *ex);
void sw_executor_close_capture(struct sw_executor *ex);
/* Sees each event of a walk before it is acted upon. */
sw_status sw_capture_see(struct sw_executor *ex, const struct sw_walk *at,
                         const struct sw_event *event);
/* Replays the run that begins at the position; within one, does nothing. */
sw_status sw_capture_replay(struct sw_executor *ex, const struct sw_walk *at);

/* ---- move.c: each is called on the thread of the transfer's queue ---- */

sw_status sw_executor_begin_move(struct sw_executor *ex, const struct sw_queue_job *job,
                                 struct flight *f);
sw_status sw_executor_end_move(struct sw_executor *ex, const struct sw_queue_job *job,
                               struct flight *f);
/* Holds the error message of this thread back until AGREE. */
sw_status sw_executor_hold(struct sw_executor *ex, sw_status st);
/* Fails with the error that is held back. */
sw_status sw_executor_fault(struct sw_executor *ex);

/* ---- exchange.c ---- */

/* Number of the link on which member `from` of a group of n sends to `to`. Neighbours come first,
 * because MPI has few tags: those of a pipeline have numbers of some 4 n. */
int sw_link_number(int n_groups, int group, int n, int from, int to, bool back);
/* Opens the communicators that the plan's exchanges use, in an order that all ranks share, and
 * scratch for the largest batch of each queue that has jobs. */
sw_status sw_executor_open_groups(struct sw_executor *ex, const int64_t n_jobs[SW_QUEUE_COUNT],
                                  int32_t most_items);
void sw_executor_close_groups(struct sw_executor *ex);
/* The members of an exchange, after sw_executor_open_groups. */
struct link *sw_executor_link(const struct sw_executor *ex, const struct sw_instr *instr);
/* Runs a batch of exchanges on the thread of their queue, or queues it if the queue is in order. */
sw_status sw_executor_exchange(struct sw_executor *ex, enum sw_queue queue,
                               const struct sw_queue_job *what);
/* Counts a batch that was queued, and has passed. */
void sw_executor_exchanged(struct sw_executor *ex, enum sw_queue queue,
                           const struct sw_queue_job *what, int64_t begin_ns, int64_t end_ns);
/* Puts the instruction of a job in front of the present message. */
sw_status sw_executor_blame(struct sw_executor *ex, enum sw_queue queue,
                            const struct sw_queue_job *what, sw_status st);
