// SPDX-License-Identifier: Apache-2.0
// The executor. Opening turns the plan's offsets into addresses and prepares kernels. A run walks
// the instructions of one segment in order. Transfers that it leaves in flight are known to the
// next run.
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "run/collectives.h"
#include "run/meter.h"
#include "run/queues.h"
#include "run/staging.h"
#include "run/swap.h"
#include "run/watch.h"

struct step { /* a prepared instruction */
    struct sw_kernel *kernel;
    void *in[SW_MAX_INPUTS];
    void *out[SW_MAX_OUTPUTS];
    void *workspace;
    struct sw_profile profile;
};

struct loaded { /* a loaded program */
    struct step *steps;
    struct sw_collective_call *calls; /* [n_instrs] for collectives */
};

struct flight {                       /* a transfer in flight */
    const struct sw_program *program; /* NULL = none */
    int32_t instr, piece;
    int64_t begin_ns;
    bool begun;   /* it is at the disk, which reaches device memory directly */
    bool is_left; /* not begun yet: the whole transfer is done at its end */
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
};

struct exchanges {
    sw_comm **groups;           /* [n_groups of the plan]; NULL: the plan has no exchange */
    struct sw_comm_item *items; /* scratch of a batch */
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
    struct sw_meter meter;  /* time and bytes by queue */
    struct sw_swap *swap;   /* disk tier; NULL = none */
    double *scalars;        /* on the device, [n_rows, SW_SCALAR_COUNT]: a row per micro-step */
    double *host_scalars;   /* the same, in host memory from the device */
    double *update_scalars; /* [SW_SCALAR_COUNT] in such memory: what kernels of the host read */
    float *fetched;         /* [n_rows, SW_FETCHED] in such memory: outputs of micro-steps */
    int64_t n_rows;
    bool has_new_scalars; /* not sent to the device yet */
    struct loaded *programs;
    int slot; /* current slot of tensors with two slots */
    /* queues beside the computing thread; NULL = none */
    struct sw_queues *queues;
    struct sw_stage stages[SW_QUEUE_COUNT]; /* how bytes get to the device, and from it */
    struct exchanges exchanges;
    struct flight flights[SW_QUEUE_COUNT][SW_QUEUE_BEGUN]; /* each of its queue's thread */
    int64_t ended_ns[SW_QUEUE_COUNT];                      /* the latest transfer */
    struct sw_phase_times phases;
    /* for asynchronous devices; NULL = synchronous, or not requested */
    struct sw_watch *watch;
    struct phase *begun; /* [n_phases of the step] not counted yet */
    int32_t n_begun;
    struct held fault;
    bool holds_faults;                 /* from the current phase */
    const struct sw_step_hooks *hooks; /* during a walk; NULL = none given */
};

static size_t scalars_bytes(const struct sw_executor *ex)
{
    return (size_t)ex->n_rows * SW_SCALAR_COUNT * sizeof *ex->scalars;
}

static size_t fetched_bytes(const struct sw_executor *ex)
{
    return (size_t)ex->n_rows * SW_FETCHED * sizeof *ex->fetched;
}

static const enum sw_mem mem_of[] = {SW_MEM_DEVICE, SW_MEM_HOST};

/* NULL for operands on disk. */
static char *address(const struct sw_executor *ex, const struct sw_operand *operand)
{
    return operand->tier > SW_TIER_HOST ? NULL : ex->arenas[operand->tier] + operand->offset;
}

/* The device that runs the kernel. */
static struct sw_device *device_of(const struct sw_executor *ex, const struct sw_instr *instr)
{
    return instr->queue == SW_QUEUE_HOST ? ex->options.host : ex->dev;
}

static sw_status load_step(struct sw_executor *ex, const struct sw_program *program, int32_t i,
                           struct step *step)
{
    const struct sw_instr *instr = &program->instrs[i];
    const struct sw_operand *operands = &program->operands[instr->operands];
    struct sw_collective_call *call = &ex->programs[program - ex->plan->programs].calls[i];
    if (instr->workspace >= 0) {
        step->workspace = ex->arenas[SW_TIER_DEVICE] + program->buffers[instr->workspace].offset;
    }
    if (instr->verb == SW_VERB_KERNEL) {
        struct sw_op op;
        struct sw_op_desc desc;
        sw_program_describe(program, i, &op, &desc);
        SW_TRY(sw_device_prepare(device_of(ex, instr), &desc, &step->kernel));
        for (int k = 0; k < instr->n_in + instr->n_out; k++) {
            *(k < instr->n_in ? &step->in[k] : &step->out[k - instr->n_in]) =
                address(ex, &operands[k]);
        }
    } else if (instr->queue == SW_QUEUE_COMM) {
        if (!ex->options.comm) {
            return SW_FAIL(SW_E_ARG,
                           "the plan has collectives, but the executor has no communicator");
        }
        *call = (struct sw_collective_call){instr, operands, {NULL}, step->workspace};
        for (int k = 0; k < instr->n_in; k++) {
            call->at[k] = address(ex, &operands[k]);
        }
    }
    return SW_OK;
}

static sw_status load_program(struct sw_executor *ex, int p)
{
    const struct sw_program *program = &ex->plan->programs[p];
    const size_t n = (size_t)program->n_instrs + 1;
    ex->programs[p].steps = sw_alloc_zero("run", n, sizeof(struct step));
    SW_TRY_ALLOC(ex->programs[p].steps, "the executor");
    ex->programs[p].calls = sw_alloc_zero("run", n, sizeof(struct sw_collective_call));
    SW_TRY_ALLOC(ex->programs[p].calls, "the executor");
    for (int32_t i = 0; i < program->n_instrs; i++) {
        SW_TRY(load_step(ex, program, i, &ex->programs[p].steps[i]));
    }
    return SW_OK;
}

/* Allocates a row of scalars for each micro-step, on the device and on the host. */
static sw_status open_scalars(struct sw_executor *ex)
{
    void *scalars = NULL, *host = NULL;
    ex->n_rows = ex->plan->step.rounds > 0 ? ex->plan->step.rounds : 1;
    SW_TRY(sw_device_alloc(ex->dev, SW_MEM_HOST, scalars_bytes(ex), &host));
    ex->host_scalars = memset(host, 0, scalars_bytes(ex));
    SW_TRY(sw_device_alloc(ex->dev, SW_MEM_DEVICE, scalars_bytes(ex), &scalars));
    ex->scalars = scalars;
    ex->has_new_scalars = true;
    void *fetched = NULL;
    SW_TRY(sw_device_alloc(ex->dev, SW_MEM_HOST, fetched_bytes(ex), &fetched));
    ex->fetched = memset(fetched, 0, fetched_bytes(ex));
    return SW_OK;
}

enum { UPDATE_SCALARS_BYTES = SW_SCALAR_COUNT * sizeof(double) };

static bool uses_host(const struct sw_plan *plan)
{
    bool uses = false;
    for (int p = 0; p < plan->n_programs; p++) {
        for (int32_t i = 0; i < plan->programs[p].n_instrs; i++) {
            uses |= plan->programs[p].instrs[i].queue == SW_QUEUE_HOST;
        }
    }
    return uses;
}

/* Opens the processors that update states in host memory. */
static sw_status open_host(struct sw_executor *ex)
{
    void *scalars = NULL;
    if (!uses_host(ex->plan)) {
        return SW_OK;
    }
    if (!ex->options.host) {
        return SW_FAIL(SW_E_ARG,
                       "the plan has kernels of the host, but the executor has no device for them");
    }
    SW_TRY(sw_device_alloc(ex->dev, SW_MEM_HOST, UPDATE_SCALARS_BYTES, &scalars));
    ex->update_scalars = scalars;
    return ex->options.host->ops->stream_open(ex->options.host, &ex->host);
}

/* On a synchronous device, computation is over when a call returns; otherwise a thread watches. */
static sw_status open_watch(struct sw_executor *ex)
{
    const size_t n = (size_t)ex->plan->step.n_phases;
    if (ex->dev->caps & SW_DEVICE_HOST_VISIBLE) {
        return SW_OK;
    }
    ex->begun = sw_alloc_zero("run", n + 1, sizeof *ex->begun);
    SW_TRY_ALLOC(ex->begun, "the executor");
    return sw_watch_open(ex->dev, (int64_t)n, &ex->watch);
}

static sw_status begin_beside(void *ctx, enum sw_queue queue, const struct sw_queue_job *job,
                              int slot);
static sw_status end_beside(void *ctx, enum sw_queue queue, const struct sw_queue_job *job,
                            int slot);

/* begin and end are separate, so that the disk has the next transfer at once. A later transfer may
 * be complete earlier. */
static const struct sw_queue_ops queue_ops = {
    .begin = begin_beside,
    .end = end_beside,
    .most_begun = {[SW_QUEUE_COMM] = 1,
                   [SW_QUEUE_H2D] = 1,
                   [SW_QUEUE_D2H] = 1,
                   [SW_QUEUE_HOST] = 1,
                   [SW_QUEUE_READ] = SW_QUEUE_BEGUN,
                   [SW_QUEUE_WRITE] = SW_QUEUE_BEGUN},
};

/* Counts the jobs of instructions first .. behind - 1 by queue; returns the size of the largest
 * batch. */
static int32_t count_jobs(const struct sw_program *program, int32_t first, int32_t behind,
                          int64_t n_jobs[SW_QUEUE_COUNT])
{
    int32_t most = 0;
    for (int32_t i = first; i < behind; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        most = instr->batch > most ? instr->batch : most;
        n_jobs[instr->queue] +=
            instr->queue == SW_QUEUE_COMPUTE ? 0 : sw_instr_pieces(program, instr);
    }
    return most;
}

/* Upper bound: a whole step may be issued before its first job is done. */
static int32_t count_all_jobs(const struct sw_plan *plan, int64_t n_jobs[SW_QUEUE_COUNT])
{
    int32_t most = 0;
    for (int p = 0; p < plan->n_programs; p++) {
        const struct sw_program *program = &plan->programs[p];
        int64_t n[SW_QUEUE_COUNT] = {0};
        const int32_t batch = count_jobs(program, 0, program->n_instrs, n);
        most = batch > most ? batch : most;
        for (int q = 0; q < SW_QUEUE_COUNT; q++) {
            n_jobs[q] = sw_max_i64(n_jobs[q], n[q]);
        }
    }
    int64_t n[SW_QUEUE_COUNT] = {0};
    for (int32_t i = 0; i < plan->step.n_phases; i++) {
        const struct sw_step_phase *phase = &plan->step.phases[i];
        const int32_t *first = &plan->programs[phase->program].segment_first[phase->segment];
        if (phase->action == SW_STEP_RUN) {
            count_jobs(&plan->programs[phase->program], first[0], first[1], n);
        }
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        n_jobs[q] = sw_max_i64(n_jobs[q], n[q]);
    }
    return most;
}

/* Creates a communicator for each group of the plan, in the plan's order. */
static sw_status open_groups(struct sw_executor *ex, int32_t most_items)
{
    const struct sw_plan *plan = ex->plan;
    ex->exchanges.groups = sw_alloc_zero("run", (size_t)plan->n_groups, sizeof(sw_comm *));
    SW_TRY_ALLOC(ex->exchanges.groups, "the groups of ranks");
    for (int g = 0; g < plan->n_groups; g++) {
        const struct sw_group *group = &plan->groups[g];
        SW_TRY(sw_comm_open_group(ex->options.comm, g + 1, group->ranks, group->n,
                                  &ex->exchanges.groups[g]));
        SW_TRY(sw_comm_reserve(ex->exchanges.groups[g], most_items));
    }
    return SW_OK;
}

/* Opens the queues that any program uses, and scratch for the largest batch. */
static sw_status open_queues(struct sw_executor *ex)
{
    struct sw_queues_options options = {
        .dev = ex->dev, .compute = ex->compute, .meter = &ex->meter, .ops = queue_ops, .ctx = ex};
    const int32_t most = count_all_jobs(ex->plan, options.most_jobs);
    if (most > 0) {
        ex->exchanges.items = sw_alloc_zero("run", 2 * (size_t)most, sizeof *ex->exchanges.items);
        SW_TRY_ALLOC(ex->exchanges.items, "collectives");
        SW_TRY(open_groups(ex, most));
    }
    bool any = false;
    for (int q = SW_QUEUE_COMM; q < SW_QUEUE_COUNT; q++) {
        if (options.most_jobs[q] > 0) {
            any = true;
            SW_TRY(ex->dev->ops->stream_open(ex->dev, &ex->stages[q].on));
        }
    }
    if (sw_stage_is_for_disk(&ex->stages[SW_QUEUE_READ])) {
        /* reads through staging memory keep the disk busy on their own */
        options.ops.most_begun[SW_QUEUE_READ] = options.ops.most_begun[SW_QUEUE_WRITE] = 1;
    }
    return any ? sw_queues_open(&options, &ex->queues) : SW_OK;
}

sw_status sw_executor_open(const struct sw_plan *plan, struct sw_device *dev,
                           const struct sw_executor_options *options, struct sw_executor **out)
{
    sw_status st = SW_OK;
    struct sw_executor *ex = sw_alloc_zero("run", 1, sizeof *ex);
    SW_TRY_ALLOC(ex, "the executor");
    ex->plan = plan;
    ex->dev = dev;
    ex->options = *options;
    ex->meter.profiles = options->profile;
    pthread_mutex_init(&ex->fault.lock, NULL);
    ex->programs = sw_alloc_zero("run", (size_t)plan->n_programs, sizeof *ex->programs);
    void *arena = NULL;
    if (!ex->programs) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the executor");
        goto close;
    }
    SW_TRY_OR(close, dev->ops->stream_open(dev, &ex->compute));
    for (int t = 0; t <= SW_TIER_HOST; t++) {
        if (t == SW_TIER_DEVICE || plan->tier_bytes[t] > 0) {
            SW_TRY_OR(close, sw_device_alloc(dev, mem_of[t], plan->tier_bytes[t], &arena));
            ex->arenas[t] = arena;
        }
    }
    SW_TRY_OR(close, sw_stages_open(plan, dev, ex->arenas[SW_TIER_HOST],
                                    options->comm ? sw_comm_size(options->comm) : 1, &ex->meter,
                                    ex->stages));
    ex->stages[SW_QUEUE_COMPUTE].on = ex->compute;
    if (plan->tier_bytes[SW_TIER_DISK] > 0) {
        st = sw_swap_open(&options->swap, plan->tier_bytes[SW_TIER_DISK], &ex->swap);
        if (options->disk_full) {
            *options->disk_full = st == SW_E_NOMEM;
        }
        SW_TRY_OR(close, st);
    }
    SW_TRY_OR(close, open_scalars(ex));
    SW_TRY_OR(close, open_host(ex));
    for (int p = 0; p < plan->n_programs; p++) {
        SW_TRY_OR(close, load_program(ex, p));
    }
    SW_TRY_OR(close, open_queues(ex));
    SW_TRY_OR(close, options->phase_times ? open_watch(ex) : SW_OK);
    *out = ex;
    return SW_OK;
close:
    sw_executor_close(ex);
    return st;
}

void sw_executor_close(struct sw_executor *ex)
{
    if (!ex) {
        return;
    }
    sw_queues_close(ex->queues);
    if (ex->watch) {
        ex->dev->ops->stream_wait(ex->dev, ex->compute); /* it has marks to pass */
        sw_watch_close(ex->watch);
    }
    sw_free(ex->begun);
    sw_swap_close(ex->swap);
    for (int q = SW_QUEUE_COMM; q < SW_QUEUE_COUNT; q++) {
        if (ex->stages[q].on) {
            ex->dev->ops->stream_close(ex->dev, ex->stages[q].on);
        }
    }
    for (int g = 0; ex->exchanges.groups && g < ex->plan->n_groups; g++) {
        sw_comm_close(ex->exchanges.groups[g], false);
    }
    sw_free(ex->exchanges.groups);
    sw_free(ex->exchanges.items);
    for (int p = 0; ex->programs && p < ex->plan->n_programs; p++) {
        for (int32_t i = 0; ex->programs[p].steps && i < ex->plan->programs[p].n_instrs; i++) {
            struct sw_device *dev = device_of(ex, &ex->plan->programs[p].instrs[i]);
            if (ex->programs[p].steps[i].kernel) {
                dev->ops->release(dev, ex->programs[p].steps[i].kernel);
            }
        }
        sw_free(ex->programs[p].steps);
        sw_free(ex->programs[p].calls);
    }
    sw_free(ex->programs);
    sw_device_free(ex->dev, SW_MEM_DEVICE, ex->scalars, scalars_bytes(ex));
    sw_device_free(ex->dev, SW_MEM_HOST, ex->host_scalars, scalars_bytes(ex));
    sw_device_free(ex->dev, SW_MEM_HOST, ex->fetched, fetched_bytes(ex));
    sw_device_free(ex->dev, SW_MEM_HOST, ex->update_scalars, UPDATE_SCALARS_BYTES);
    for (int t = 0; t <= SW_TIER_HOST; t++) {
        sw_device_free(ex->dev, mem_of[t], ex->arenas[t], ex->plan->tier_bytes[t]);
    }
    if (ex->compute) {
        ex->dev->ops->stream_close(ex->dev, ex->compute);
    }
    if (ex->host) {
        ex->options.host->ops->stream_close(ex->options.host, ex->host);
    }
    pthread_mutex_destroy(&ex->fault.lock);
    sw_free(ex);
}

/* ---- verifying runs ---- */

/* Marks a range as touched. Buffers are multiples of the alignment, so the end is rounded up. */
static void note_range(struct sw_executor *ex, const void *begin, size_t bytes)
{
    const size_t end = sw_round_up(
        (size_t)((const char *)begin - ex->arenas[SW_TIER_DEVICE]) + bytes, SW_PLAN_ALIGN);
    ex->high_water = end > ex->high_water ? end : ex->high_water;
}

static void note_step(struct sw_executor *ex, const struct sw_program *program, int32_t i)
{
    const struct sw_instr *instr = &program->instrs[i];
    const struct step *step = &ex->programs[program - ex->plan->programs].steps[i];
    for (int k = 0; k < instr->n_in + instr->n_out; k++) {
        const struct sw_operand *operand = &program->operands[instr->operands + k];
        if (operand->tier == SW_TIER_DEVICE) {
            note_range(ex, address(ex, operand), operand->bytes);
        }
    }
    if (instr->workspace >= 0) {
        note_range(ex, step->workspace, instr->about->kernel.workspace_bytes);
    }
}

static sw_status poison_dead(struct sw_executor *ex, const struct sw_program *program, int32_t i)
{
    for (int32_t b = 0; b < program->n_buffers; b++) {
        const struct sw_buffer *buffer = &program->buffers[b];
        if (!buffer->persistent && buffer->last == i && buffer->tier != SW_TIER_DISK) {
            SW_TRY(sw_device_fill(ex->dev, ex->compute, ex->arenas[buffer->tier] + buffer->offset,
                                  0xff, buffer->bytes));
        }
    }
    return SW_OK;
}

/* ---- running ---- */

static int index_of(const struct sw_executor *ex, const struct sw_program *program)
{
    return (int)(program - ex->plan->programs);
}

static void ran(const struct sw_executor *ex, struct sw_profile *profile, int64_t ns)
{
    if (ex->meter.profiles) {
        profile->ns += ns;
        profile->n_runs++;
    }
}

/* Sets the operands of a loop's kernel to the present piece. */
static void go_to_piece(const struct sw_walk *at, const struct step *step, void **in, void **out)
{
    const struct sw_instr *instr = &at->program->instrs[at->instr];
    const struct sw_operand *operands = &at->program->operands[instr->operands];
    const int64_t index[SW_RING_COUNT] = {[SW_RING_PIECE] = at->piece};
    for (int k = 0; k < instr->n_in + instr->n_out; k++) {
        char *const first = k < instr->n_in ? step->in[k] : step->out[k - instr->n_in];
        *(k < instr->n_in ? &in[k] : &out[k - instr->n_in]) =
            first ? first + sw_operand_shift(&operands[k], index) : NULL;
    }
}

static sw_status launch(struct sw_executor *ex, const struct sw_walk *at)
{
    const int i_program = index_of(ex, at->program), micro = at->program->instrs[at->instr].micro;
    struct step *step = &ex->programs[i_program].steps[at->instr];
    double *scalars = ex->scalars + (micro < 0 ? 0 : at->phase->round + micro) * SW_SCALAR_COUNT;
    const bool timed = ex->meter.profiles || ex->meter.trace;
    void *moved[SW_MAX_INPUTS + SW_MAX_OUTPUTS];
    if (ex->options.no_kernels) {
        return SW_OK;
    }
    void **const in = at->piece > 0 ? moved : step->in;
    void **const out = at->piece > 0 ? moved + SW_MAX_INPUTS : step->out;
    if (at->piece > 0) {
        go_to_piece(at, step, in, out);
    }
    const int64_t begin = timed ? sw_now_ns() : 0;
    SW_TRY(sw_device_launch(ex->dev, ex->compute, step->kernel, in, out, step->workspace, scalars));
    if (timed) {
        SW_TRY(ex->dev->ops->stream_wait(ex->dev, ex->compute));
        const struct sw_span span = {.queue = SW_QUEUE_COMPUTE,
                                     .program = i_program,
                                     .instr = at->instr,
                                     .begin_ns = begin,
                                     .end_ns = sw_now_ns()};
        ran(ex, &step->profile, span.end_ns - begin);
        sw_meter_ran(&ex->meter, &span);
    }
    return SW_OK;
}

/* Runs a kernel of the host on the thread of its queue. It reads the scalars that the device would
 * read now: new ones are not sent before it is done. */
static sw_status compute_here(struct sw_executor *ex, const struct sw_queue_job *job)
{
    const int i_program = index_of(ex, job->program);
    const struct sw_instr *instr = &job->program->instrs[job->instr];
    struct sw_device *host = ex->options.host;
    struct step *step = &ex->programs[i_program].steps[job->instr];
    if (ex->options.no_kernels) {
        return SW_OK;
    }
    const int64_t begin = sw_now_ns();
    const struct sw_stage *stage = &ex->stages[SW_QUEUE_HOST];
    sw_status st =
        sw_device_copy(ex->dev, stage->on, ex->update_scalars, ex->scalars, UPDATE_SCALARS_BYTES);
    st = st < 0 ? st : sw_stage_wait(stage);
    st = st < 0 ? st
                : sw_device_launch(host, ex->host, step->kernel, step->in, step->out, NULL,
                                   ex->update_scalars);
    st = st < 0 ? st : host->ops->stream_wait(host, ex->host);
    if (st < 0) {
        return sw_fail_prefix(st, "instruction %d (%s of %s on the host)", job->instr,
                              instr->about->name, instr->about->where);
    }
    const struct sw_span span = {.queue = SW_QUEUE_HOST,
                                 .program = i_program,
                                 .instr = job->instr,
                                 .begin_ns = begin,
                                 .end_ns = sw_now_ns()};
    ran(ex, &step->profile, span.end_ns - begin);
    sw_meter_ran(&ex->meter, &span);
    return SW_OK;
}

/* Runs a batch of collectives. */
static sw_status collect(struct sw_executor *ex, const struct sw_queue_job *what)
{
    const struct sw_program *program = what->program;
    const int32_t i = what->instr;
    struct loaded *loaded = &ex->programs[program - ex->plan->programs];
    const struct sw_comm_job job = {
        .i_program = index_of(ex, program),
        .meter = &ex->meter,
        .stage = &ex->stages[SW_QUEUE_COMM],
        .calls = &loaded->calls[i],
        .instr = i,
        .n = program->instrs[i].batch,
        .step = &ex->plan->step,
        .round = what->round,
        .ns = ex->meter.profiles ? &loaded->steps[i].profile.ns : NULL,
    };
    return sw_collectives_run(ex->exchanges.groups[program->instrs[i].group], &job,
                              ex->exchanges.items);
}

/* Addresses of a transfer, for its step and piece. */
struct route {
    enum sw_tier tier;
    bool in, rows;
    void *here;
    size_t at, bytes;
};

static bool goes_in(const struct sw_instr *instr)
{
    return instr->verb == SW_VERB_COPY_IN || instr->verb == SW_VERB_READ;
}

static struct route route_of(const struct sw_executor *ex, const struct sw_queue_job *job)
{
    const struct sw_instr *instr = &job->program->instrs[job->instr];
    const struct sw_operand *there = &job->program->operands[instr->operands], *here = there + 1;
    const bool in = goes_in(instr);
    const int64_t index[SW_RING_COUNT] = {
        [SW_RING_STEP] = ex->slot + !in, [SW_RING_PIECE] = job->piece};
    return (struct route){
        .tier = there->tier,
        .in = in,
        .rows = instr->n_in > 2,
        .here = address(ex, here) + sw_operand_shift(here, index),
        .at = there->offset + sw_operand_shift(there, index),
        .bytes = there->bytes,
    };
}

static sw_status fail_transfer(sw_status st, const struct sw_program *program, int32_t i)
{
    const struct sw_instr *instr = &program->instrs[i];
    return sw_fail_prefix(st, "instruction %d (%s of %s)", i, instr->about->name,
                          instr->about->tensor ? instr->about->tensor : "an activation");
}

/* ---- holding back disk errors while other ranks wait for this one ---- */

static sw_status fault_of(struct sw_executor *ex)
{
    const int st = atomic_load(&ex->fault.st);
    return st < 0 ? SW_FAIL((sw_status)st, "%s", ex->fault.message) : SW_OK;
}

void sw_executor_forget_fault(struct sw_executor *ex)
{
    atomic_store(&ex->fault.st, SW_OK);
}

static sw_status hold(struct sw_executor *ex, sw_status st)
{
    pthread_mutex_lock(&ex->fault.lock);
    if (atomic_load(&ex->fault.st) >= 0) {
        snprintf(ex->fault.message, sizeof ex->fault.message, "%s", sw_error_message());
        atomic_store(&ex->fault.st, (int)st);
    }
    pthread_mutex_unlock(&ex->fault.lock);
    return SW_OK;
}

/* Errors that do not come from the disk, such as a row index out of range, end the run. */
static sw_status fail_move(struct sw_executor *ex, sw_status st, enum sw_tier tier,
                           const struct sw_queue_job *job)
{
    const sw_status named = fail_transfer(st, job->program, job->instr);
    return job->holds_fault && tier == SW_TIER_DISK && st != SW_E_ARG ? hold(ex, named) : named;
}

static bool goes_without(const struct sw_executor *ex, enum sw_tier tier, bool holds_fault)
{
    return ex->options.no_transfers ||
           (tier == SW_TIER_DISK && holds_fault && atomic_load(&ex->fault.st) < 0);
}

/* A disk transfer through staging memory. */
static sw_status pass_through(struct sw_executor *ex, const struct route *r)
{
    return r->in ? sw_stage_read(&ex->stages[SW_QUEUE_READ], ex->swap, r->at, r->here, r->bytes)
                 : sw_stage_write(&ex->stages[SW_QUEUE_WRITE], ex->swap, r->at, r->here, r->bytes);
}

static sw_status copy_between(struct sw_executor *ex, const struct route *r)
{
    const struct sw_stage *stage = &ex->stages[r->in ? SW_QUEUE_H2D : SW_QUEUE_D2H];
    char *there = ex->arenas[r->tier] + r->at;
    SW_TRY(sw_device_copy(ex->dev, stage->on, r->in ? r->here : there, r->in ? there : r->here,
                          r->bytes));
    return sw_stage_wait(stage);
}

/* Rows of a table in a tier, which begins at byte `at`. */
struct rows {
    enum sw_tier tier;
    size_t at, row; /* in bytes; of one row, too */
    const struct sw_stage *stage;
};

/* Loads rows ids[0, n) to `out`; all ids are valid. */
static sw_status load_rows(struct sw_executor *ex, const struct rows *r, const int32_t *ids, int n,
                           char *out)
{
    if (r->tier == SW_TIER_DISK) {
        return sw_stage_read_rows(r->stage, ex->swap, r->at, r->row, ids, n, out);
    }
    for (int i = 0; i < n; i++) {
        const struct route one = {.tier = SW_TIER_HOST,
                                  .in = true,
                                  .here = out + (size_t)i * r->row,
                                  .at = r->at + (size_t)ids[i] * r->row,
                                  .bytes = r->row};
        SW_TRY(copy_between(ex, &one));
    }
    return SW_OK;
}

/* Fills the row of an id that is not a token (sw_trim) with NaN, as a lookup does. */
static sw_status fill_row(struct sw_executor *ex, const struct rows *r, char *out)
{
    enum { NO_NUMBER = 0xff }; /* a NaN in every float dtype, if all bytes have it */
    SW_TRY(sw_device_fill(ex->dev, r->stage->on, out, NO_NUMBER, r->row));
    return sw_stage_wait(r->stage);
}

/* Loads ids[0, n), with one call per run of valid rows. */
static sw_status load_runs(struct sw_executor *ex, const struct rows *r, const int32_t *ids, int n,
                           char *out)
{
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && ids[i] >= 0 && ids[end] >= 0; end++) {
        }
        char *to = out + (size_t)i * r->row;
        SW_TRY(ids[i] < 0 ? fill_row(ex, r, to) : load_rows(ex, r, ids + i, end - i, to));
    }
    return SW_OK;
}

/* Loads the rows of a table, which begins at byte `at` of a tier, that the indices of a transfer
 * name. */
static sw_status move_rows(struct sw_executor *ex, const struct sw_program *program,
                           int32_t i_instr, size_t at)
{
    const struct sw_instr *instr = &program->instrs[i_instr];
    const struct sw_operand *operands = &program->operands[instr->operands];
    const struct sw_operand *table = &operands[0], *here = &operands[1], *indices = &operands[2];
    const int64_t n = (int64_t)(indices->bytes / sizeof(int32_t));
    const size_t row = n > 0 ? here->bytes / (size_t)n : 1;
    const int64_t n_rows = (int64_t)(table->bytes / row);
    const struct rows rows = {
        (enum sw_tier)table->tier, at, row,
        &ex->stages[table->tier == SW_TIER_DISK ? SW_QUEUE_READ : SW_QUEUE_H2D]};
    int32_t ids[SW_SWAP_ROWS];
    for (int64_t first = 0; first < n; first += SW_SWAP_ROWS) {
        const int64_t some = sw_min_i64(SW_SWAP_ROWS, n - first);
        SW_TRY(sw_stage_out(rows.stage, ids, address(ex, indices) + (size_t)first * sizeof *ids,
                            (size_t)some * sizeof *ids));
        for (int64_t i = 0; i < some; i++) {
            if (ids[i] < -1 || ids[i] >= n_rows) {
                return SW_FAIL(SW_E_ARG, "%s has %lld rows, got index %d",
                               instr->about->tensor ? instr->about->tensor : "a table",
                               (long long)n_rows, ids[i]);
            }
        }
        SW_TRY(load_runs(ex, &rows, ids, (int)some, address(ex, here) + (size_t)first * row));
    }
    return SW_OK;
}

/* Begins a disk transfer that reaches device memory directly. Transfers that are copied are done at
 * their end. Rows are read here, since they wait for many small requests, and nothing long is begun
 * beside them. */
static sw_status begin_move(struct sw_executor *ex, const struct sw_queue_job *job,
                            struct flight *f)
{
    const struct sw_program *program = job->program;
    const int32_t i = job->instr;
    const struct route r = route_of(ex, job);
    *f = (struct flight){
        .program = program, .instr = i, .piece = job->piece, .begin_ns = sw_now_ns()};
    if (goes_without(ex, r.tier, job->holds_fault)) {
        return SW_OK;
    }
    const bool begins =
        r.tier == SW_TIER_DISK && !r.rows && !sw_stage_is_for_disk(&ex->stages[SW_QUEUE_READ]);
    sw_status st = r.rows   ? move_rows(ex, program, i, r.at)
                   : begins ? sw_swap_begin(ex->swap, !r.in, r.at, r.here, r.bytes, &f->request)
                            : SW_OK;
    f->begun = begins && st >= 0;
    f->is_left = !begins && !r.rows;
    st = st < 0 ? fail_move(ex, st, r.tier, job) : st;
    f->program = st < 0 ? NULL : program;
    return st;
}

static sw_status end_move(struct sw_executor *ex, const struct sw_queue_job *job, struct flight *f)
{
    const struct sw_program *program = job->program;
    const int32_t i = job->instr;
    const struct route r = route_of(ex, job);
    sw_status st = f->begun                 ? sw_swap_end(ex->swap, &f->request)
                   : !f->is_left            ? SW_OK
                   : r.tier == SW_TIER_DISK ? pass_through(ex, &r)
                                            : copy_between(ex, &r);
    st = st < 0 ? fail_move(ex, st, r.tier, job) : st;
    f->program = NULL;
    if (st < 0) {
        return st;
    }
    const enum sw_queue queue = program->instrs[i].queue;
    const int64_t now = sw_now_ns(), before = ex->ended_ns[queue];
    const int64_t bytes = program->instrs[i].bytes;
    (r.in ? ex->transferred.in : ex->transferred.out)[r.tier] += bytes;
    const struct sw_span span = {.queue = queue,
                                 .program = index_of(ex, program),
                                 .instr = i,
                                 .bytes_in = r.in ? bytes : 0,
                                 .bytes_out = r.in ? 0 : bytes,
                                 .begin_ns = f->begin_ns > before ? f->begin_ns : before,
                                 .end_ns = now};
    ex->ended_ns[queue] = now;
    ran(ex, &ex->programs[span.program].steps[i].profile, span.end_ns - span.begin_ns);
    sw_meter_ran(&ex->meter, &span);
    return SW_OK;
}

static sw_status begin_beside(void *ctx, enum sw_queue queue, const struct sw_queue_job *job,
                              int slot)
{
    struct sw_executor *ex = ctx;
    if (queue == SW_QUEUE_COMM || queue == SW_QUEUE_HOST) {
        return SW_OK;
    }
    return begin_move(ex, job, &ex->flights[queue][slot]);
}

static sw_status end_beside(void *ctx, enum sw_queue queue, const struct sw_queue_job *job,
                            int slot)
{
    struct sw_executor *ex = ctx;
    return queue == SW_QUEUE_COMM   ? collect(ex, job)
           : queue == SW_QUEUE_HOST ? compute_here(ex, job)
                                    : end_move(ex, job, &ex->flights[queue][slot]);
}

/* ---- the events of a walk ---- */

static struct sw_waiter waiter_of(const struct sw_executor *ex, const struct sw_walk *at)
{
    return (struct sw_waiter){index_of(ex, at->program), at->instr};
}

static sw_status barrier(struct sw_executor *ex, struct sw_waiter waiter)
{
    return ex->queues ? sw_queues_barrier(ex->queues, &waiter) : SW_OK;
}

static sw_status wait_for(struct sw_executor *ex, enum sw_queue queue, int64_t until,
                          struct sw_waiter waiter)
{
    return ex->queues ? sw_queues_order(ex->queues, queue, until, &waiter) : SW_OK;
}

static sw_status run_kernel(struct sw_executor *ex, const struct sw_walk *at)
{
    const struct sw_instr *instr = &at->program->instrs[at->instr];
    const sw_status st = launch(ex, at);
    return st >= 0 ? SW_OK
                   : sw_fail_prefix(st, "instruction %d (%s in %s)", at->instr, instr->about->name,
                                    instr->about->where);
}

static sw_status issue_beside(struct sw_executor *ex, const struct sw_walk *at)
{
    struct sw_queue_job job = {.program = at->program,
                               .instr = at->instr,
                               .piece = at->piece,
                               .order = at->order,
                               .round = at->phase->round,
                               .holds_fault = ex->holds_faults};
    memcpy(job.needs, at->needs, sizeof job.needs);
    SW_TRY(ex->options.serial ? barrier(ex, waiter_of(ex, at)) : SW_OK);
    SW_TRY(sw_queues_issue(ex->queues, at->program->instrs[at->instr].queue, &job));
    return ex->options.serial ? barrier(ex, waiter_of(ex, at)) : SW_OK;
}

static sw_status issue(struct sw_executor *ex, const struct sw_walk *at)
{
    return at->program->instrs[at->instr].queue == SW_QUEUE_COMPUTE ? run_kernel(ex, at)
                                                                    : issue_beside(ex, at);
}

/* Waits until all work issued before a barrier is complete. */
static sw_status wait_here(struct sw_executor *ex)
{
    SW_TRY(sw_stage_wait(&ex->stages[SW_QUEUE_COMPUTE]));
    return ex->queues ? sw_queues_status(ex->queues) : SW_OK;
}

/* Waits until nothing is in flight. */
static sw_status drain(struct sw_executor *ex)
{
    SW_TRY(barrier(ex, (struct sw_waiter){0, 0}));
    return wait_here(ex);
}

/* Waits for exchanges, too; the communicator is then the caller's. */
static sw_status join(struct sw_executor *ex)
{
    SW_TRY(wait_for(ex, SW_QUEUE_COMM, SW_WALK_ALL, (struct sw_waiter){0, 0}));
    if (!ex->has_new_scalars) {
        SW_TRY(
            sw_device_copy(ex->dev, ex->compute, ex->host_scalars, ex->scalars, scalars_bytes(ex)));
    }
    return wait_here(ex);
}

/* Sends new scalars to the device. Kernels of the host read the old ones until they are done. */
static sw_status send_scalars(struct sw_executor *ex, const struct sw_walk *at)
{
    if (!ex->has_new_scalars) {
        return SW_OK;
    }
    SW_TRY(ex->host ? wait_for(ex, SW_QUEUE_HOST, SW_WALK_ALL, waiter_of(ex, at)) : SW_OK);
    ex->has_new_scalars = false;
    for (int64_t round = 0; round < ex->n_rows; round++) {
        sw_scalars_complete(ex->host_scalars + round * SW_SCALAR_COUNT);
    }
    return sw_device_copy(ex->dev, ex->compute, ex->scalars, ex->host_scalars, scalars_bytes(ex));
}

static sw_status verify(struct sw_executor *ex, const struct sw_walk *at)
{
    const struct sw_instr *instr = &at->program->instrs[at->instr];
    if (!ex->options.verify || at->piece < sw_instr_pieces(at->program, instr) - 1) {
        return SW_OK;
    }
    note_step(ex, at->program, at->instr);
    return poison_dead(ex, at->program, at->instr);
}

/* The losses have been copied to the host by now. */
static sw_status exchange_losses(struct sw_executor *ex)
{
    const struct sw_step_hooks *hooks = ex->hooks;
    SW_TRY(join(ex));
    return hooks && hooks->losses ? hooks->losses(hooks->ctx) : SW_OK;
}

static sw_status agree(struct sw_executor *ex)
{
    const struct sw_step_hooks *hooks = ex->hooks;
    const sw_status fault = fault_of(ex);
    return hooks && hooks->agree ? hooks->agree(hooks->ctx, fault) : fault;
}

/* Makes what the step wrote current. The phase before has joined. */
static sw_status commit(struct sw_executor *ex)
{
    ex->slot = ex->host_scalars[SW_SCALAR_SKIP] != 0 ? ex->slot : 1 - ex->slot;
    return SW_OK;
}

static sw_status act(struct sw_executor *ex, const struct sw_walk *at, const struct sw_event *event)
{
    switch (event->kind) {
    case SW_EVENT_BEGIN:
        return send_scalars(ex, at);
    case SW_EVENT_ISSUE:
        return issue(ex, at);
    case SW_EVENT_WAIT:
        return wait_for(ex, event->queue, event->until, waiter_of(ex, at));
    case SW_EVENT_PASSED:
        return verify(ex, at);
    case SW_EVENT_BARRIER:
        return barrier(ex, waiter_of(ex, at));
    case SW_EVENT_JOIN:
        return join(ex);
    case SW_EVENT_LOSSES:
        return exchange_losses(ex);
    case SW_EVENT_AGREE:
        return agree(ex);
    case SW_EVENT_COMMIT:
        return commit(ex);
    case SW_EVENT_END:
        break;
    }
    return SW_OK;
}

/* Walks one phase. A failure names the instruction. */
static sw_status follow(struct sw_executor *ex, const struct sw_step_phase *phase)
{
    struct sw_walk walk;
    struct sw_event event;
    sw_walk_begin(&walk, ex->plan, phase, 1);
    do {
        sw_walk_next(&walk, &event);
        SW_TRY(act(ex, &walk, &event));
    } while (event.kind != SW_EVENT_END);
    return SW_OK;
}

/* After a failure: waits for jobs that have begun and for computation, and drops the rest. */
static sw_status end_run(struct sw_executor *ex, sw_status st)
{
    char message[1024];
    if (st >= 0) {
        return st;
    }
    snprintf(message, sizeof message, "%s", sw_error_message());
    if (ex->queues) {
        sw_queues_stop(ex->queues);
    }
    sw_stage_wait(&ex->stages[SW_QUEUE_COMPUTE]);
    return SW_FAIL(st, "%s", message);
}

sw_status sw_executor_join(struct sw_executor *ex)
{
    return end_run(ex, join(ex));
}

static sw_status walk(struct sw_executor *ex, const struct sw_step_phase *phase)
{
    const bool runs = phase->action == SW_STEP_RUN;
    const int64_t begun = runs ? sw_meter_begin(&ex->meter) : 0;
    const sw_status st = follow(ex, phase);
    if (runs) {
        sw_meter_end(&ex->meter, begun);
    }
    return end_run(ex, st);
}

/* Counts a phase. Exchanging losses, agreeing and switching slots count as part of the update. */
static sw_status count_phase(struct sw_executor *ex, const struct sw_step_phase *phase,
                             int64_t begin_ns, int64_t waited_ns)
{
    const bool runs = phase->action == SW_STEP_RUN;
    const enum sw_segment segment = runs ? phase->segment : SW_SEGMENT_UPDATE;
    const int64_t now = sw_now_ns();
    if (segment == SW_SEGMENT_BACKWARD) {
        ex->phases.reduce_ns += sw_meter_waited_for(&ex->meter, SW_QUEUE_COMM) - waited_ns;
    }
    if (!ex->watch) {
        ex->phases.ns[segment] += now - begin_ns;
    } else if (ex->n_begun < ex->plan->step.n_phases) {
        struct phase *begun = &ex->begun[ex->n_begun];
        *begun = (struct phase){segment, begin_ns, now, 0};
        SW_TRY(runs ? sw_watch_mark(ex->watch, ex->compute, &begun->mark) : SW_OK);
        ex->n_begun++;
    }
    return SW_OK;
}

sw_status sw_executor_walk(struct sw_executor *ex, const struct sw_step_hooks *hooks, int32_t *at,
                           int32_t until)
{
    const struct sw_step *step = &ex->plan->step;
    sw_status st = SW_OK;
    ex->hooks = hooks;
    for (; *at < until && st >= 0; *at += st >= 0) { /* faults are held back until AGREE */
        const int64_t begin = sw_now_ns();
        const int64_t waited = sw_meter_waited_for(&ex->meter, SW_QUEUE_COMM);
        ex->holds_faults = step->holds_faults && *at + 1 < step->n_safe;
        st = walk(ex, &step->phases[*at]);
        st = st < 0 ? st : count_phase(ex, &step->phases[*at], begin, waited);
    }
    ex->hooks = NULL;
    return st;
}

sw_status sw_executor_forward(struct sw_executor *ex, int i_program)
{
    const struct sw_step_phase phase = {.action = SW_STEP_RUN,
                                        .program = i_program,
                                        .segment = SW_SEGMENT_FORWARD,
                                        .n_micro = 1,
                                        .drains = true,
                                        .joins = true};
    ex->holds_faults = false;
    SW_TRY(barrier(ex, (struct sw_waiter){0, 0}));
    return walk(ex, &phase);
}

void sw_executor_transferred(const struct sw_executor *ex, struct sw_transfers *out)
{
    *out = ex->transferred;
}

void sw_executor_queue_times(const struct sw_executor *ex,
                             struct sw_queue_times out[SW_QUEUE_COUNT])
{
    sw_meter_read(&ex->meter, out);
}

/* A phase begins when it was issued, or when the previous one ended, whichever is later. */
void sw_executor_phase_times(struct sw_executor *ex, struct sw_phase_times *out)
{
    int64_t until = 0;
    for (int32_t i = 0; i < ex->n_begun; i++) {
        const struct phase *p = &ex->begun[i];
        const int64_t passed = p->mark > 0 ? sw_watch_passed_ns(ex->watch, p->mark) : p->end_ns;
        const int64_t begin = sw_max_i64(p->begin_ns, until), end = sw_max_i64(passed, begin);
        ex->phases.ns[p->segment] += end - begin;
        until = end;
    }
    ex->n_begun = 0;
    *out = ex->phases;
}

bool sw_executor_measure(struct sw_executor *ex, bool on)
{
    return atomic_exchange(&ex->meter.profiles, on);
}

void sw_executor_trace(struct sw_executor *ex, struct sw_trace *trace)
{
    ex->meter.trace = trace;
}

void sw_executor_set_of(struct sw_executor *ex, int64_t round, enum sw_scalar scalar, double value)
{
    SW_ASSERT(round < ex->n_rows);
    ex->host_scalars[round * SW_SCALAR_COUNT + (int)scalar] = value;
    ex->has_new_scalars = true;
}

void sw_executor_set(struct sw_executor *ex, enum sw_scalar scalar, double value)
{
    for (int64_t round = 0; round < ex->n_rows; round++) {
        sw_executor_set_of(ex, round, scalar, value);
    }
}

double sw_executor_get(const struct sw_executor *ex, enum sw_scalar scalar)
{
    return ex->host_scalars[scalar];
}

/* ---- reading and writing tensors ---- */

static sw_status check_bytes(const struct sw_port *port, size_t bytes)
{
    if (sw_port_bytes(port) != bytes) {
        return SW_FAIL(SW_E_ARG, "%s holds %zu bytes, %zu given", port->name, sw_port_bytes(port),
                       bytes);
    }
    return SW_OK;
}

sw_status sw_executor_give(struct sw_executor *ex, const struct sw_port *port, int64_t round,
                           const void *src, size_t bytes)
{
    if (port->slot.tier == SW_TIER_COUNT) {
        return sw_executor_write(ex, port, src, bytes);
    }
    SW_TRY(check_bytes(port, bytes));
    SW_ASSERT(round < ex->n_rows);
    const int64_t index[SW_RING_COUNT] = {[SW_RING_MICRO] = round};
    char *slot = address(ex, &port->slot) + sw_operand_shift(&port->slot, index);
    memcpy(slot, src, bytes);
    return sw_device_copy(ex->dev, ex->compute, address(ex, &port->at), slot, bytes);
}

sw_status sw_executor_fetch(struct sw_executor *ex, const struct sw_port *port, int64_t round,
                            int i)
{
    SW_TRY(check_bytes(port, sizeof *ex->fetched));
    SW_ASSERT(round < ex->n_rows && i < SW_FETCHED);
    return sw_device_copy(ex->dev, ex->compute, &ex->fetched[round * SW_FETCHED + i],
                          address(ex, &port->at), sizeof *ex->fetched);
}

double sw_executor_fetched(const struct sw_executor *ex, int64_t round, int i)
{
    return ex->fetched[round * SW_FETCHED + i];
}

sw_status sw_executor_write(struct sw_executor *ex, const struct sw_port *port, const void *src,
                            size_t bytes)
{
    SW_TRY(check_bytes(port, bytes));
    if (port->at.tier == SW_TIER_COUNT) {
        return SW_OK; /* the program does not read the input */
    }
    return sw_stage_in(&ex->stages[SW_QUEUE_COMPUTE], address(ex, &port->at), src, bytes);
}

sw_status sw_executor_read(struct sw_executor *ex, const struct sw_port *port, void *dst,
                           size_t bytes)
{
    SW_TRY(check_bytes(port, bytes));
    if (port->at.tier > SW_TIER_HOST) {
        return SW_FAIL(SW_E_ARG, "%s is not there to be read", port->name);
    }
    return sw_stage_out(&ex->stages[SW_QUEUE_COMPUTE], dst, address(ex, &port->at), bytes);
}

static sw_status check_range(const struct sw_persistent *item, size_t at, size_t bytes)
{
    if (at > item->bytes || bytes > item->bytes - at) {
        return SW_FAIL(SW_E_ARG, "%s: bytes %zu to %zu of %zu", item->name, at, at + bytes,
                       item->bytes);
    }
    return SW_OK;
}

/* Address of the current slot, in its tier. */
static size_t place_of(const struct sw_executor *ex, const struct sw_persistent *item)
{
    return item->offset + item->slot_bytes * (size_t)ex->slot;
}

/* Zeroes the bytes that round a tensor up to whole blocks: they are read with it, and a step need
 * not write them. */
static sw_status zero_tails(struct sw_executor *ex, const struct sw_persistent *item)
{
    const size_t tail = sw_persistent_taken(item) - item->bytes;
    const size_t end = item->offset + item->bytes;
    SW_TRY(sw_swap_zero(ex->swap, end, tail));
    return item->slot_bytes > 0 ? sw_swap_zero(ex->swap, end + item->slot_bytes, tail) : SW_OK;
}

static sw_status roll_back(struct sw_executor *ex, const struct sw_persistent *item)
{
    const size_t tail = sw_persistent_taken(item) - item->bytes;
    const size_t other = item->offset + item->slot_bytes * (size_t)(1 - ex->slot);
    if (sw_state_is_sum(item->state)) {
        return sw_executor_zero(ex, item);
    }
    return item->slot_bytes > 0 ? sw_swap_zero(ex->swap, other + item->bytes, tail) : SW_OK;
}

sw_status sw_executor_roll_back(struct sw_executor *ex)
{
    sw_status st = drain(ex);
    for (int32_t i = 0; i < ex->plan->n_persistent && st >= 0; i++) {
        const struct sw_persistent *item = &ex->plan->persistent[i];
        st = item->tier == SW_TIER_DISK ? roll_back(ex, item) : SW_OK;
    }
    return st < 0 && ex->plan->step.holds_faults ? hold(ex, st) : st;
}

sw_status sw_executor_load(struct sw_executor *ex, const struct sw_persistent *item, size_t at,
                           const void *src, size_t bytes)
{
    SW_TRY(check_range(item, at, bytes));
    SW_TRY(drain(ex));
    if (item->tier == SW_TIER_DISK) {
        SW_TRY(sw_swap_write(ex->swap, place_of(ex, item) + at, src, bytes));
        return at + bytes == item->bytes ? zero_tails(ex, item) : SW_OK;
    }
    return sw_stage_in(&ex->stages[SW_QUEUE_COMPUTE],
                       ex->arenas[item->tier] + place_of(ex, item) + at, src, bytes);
}

sw_status sw_executor_save(struct sw_executor *ex, const struct sw_persistent *item, size_t at,
                           void *dst, size_t bytes)
{
    SW_TRY(check_range(item, at, bytes));
    SW_TRY(drain(ex)); /* an update within backward may be in flight */
    if (item->tier == SW_TIER_DISK) {
        return sw_swap_read(ex->swap, place_of(ex, item) + at, dst, bytes);
    }
    return sw_stage_out(&ex->stages[SW_QUEUE_COMPUTE], dst,
                        ex->arenas[item->tier] + place_of(ex, item) + at, bytes);
}

sw_status sw_executor_zero(struct sw_executor *ex, const struct sw_persistent *item)
{
    if (item->data) {
        return sw_executor_load(ex, item, 0, item->data, item->bytes);
    }
    SW_TRY(drain(ex));
    if (item->tier == SW_TIER_DISK) {
        SW_TRY(sw_swap_zero(ex->swap, place_of(ex, item), item->bytes));
        return zero_tails(ex, item);
    }
    SW_TRY(sw_device_fill(ex->dev, ex->compute, ex->arenas[item->tier] + place_of(ex, item), 0,
                          item->bytes));
    return sw_stage_wait(&ex->stages[SW_QUEUE_COMPUTE]);
}

size_t sw_executor_high_water(const struct sw_executor *ex)
{
    return ex->high_water;
}

struct sw_profile sw_executor_profile(const struct sw_executor *ex, int i_program, int32_t i_instr)
{
    return ex->programs[i_program].steps[i_instr].profile;
}
