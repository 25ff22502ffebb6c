// SPDX-License-Identifier: Apache-2.0
// Opening turns the plan's offsets into addresses, prepares kernels and allocates all memory.
#include <pthread.h>
#include <string.h>

#include "run/executor.h"

static const enum sw_mem mem_of[] = {SW_MEM_DEVICE, SW_MEM_HOST};

static size_t fetched_bytes(const struct sw_executor *ex)
{
    return (size_t)ex->n_rows * SW_FETCHED * sizeof *ex->fetched;
}

/* The device that runs the kernel. */
static struct sw_device *device_of(const struct sw_executor *ex, const struct sw_instr *instr)
{
    return instr->queue == SW_QUEUE_HOST ? ex->options.host : ex->dev;
}

/* Prepares an instruction: the kernel and its addresses, or the call of a collective. Transfers
 * need nothing. */
static sw_status load_step(struct sw_executor *ex, const struct sw_program *program, int32_t i,
                           struct prepared *step)
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
                sw_executor_address(ex, &operands[k]);
            const struct sw_ring *ring = &operands[k].ring[0];
            step->has_rings |= ring->by == SW_RING_MICRO && ring->stride > 0;
        }
    } else if (sw_instr_exchanges(instr)) {
        *call = (struct sw_collective_call){.instr = instr,
                                            .operands = operands,
                                            .workspace = step->workspace,
                                            .route = sw_executor_link(ex, instr)->route};
        for (int k = 0; k < instr->n_in; k++) {
            call->at[k] = sw_executor_address(ex, &operands[k]);
        }
    }
    return SW_OK;
}

static sw_status list_dying(const struct sw_program *program, struct dying *out)
{
    out->first = sw_alloc_zero("run", (size_t)program->n_instrs + 1, sizeof *out->first);
    SW_TRY_ALLOC(out->first, "the executor");
    out->next = sw_alloc_zero("run", (size_t)program->n_buffers + 1, sizeof *out->next);
    SW_TRY_ALLOC(out->next, "the executor");
    for (int32_t i = 0; i < program->n_instrs; i++) {
        out->first[i] = -1;
    }
    for (int32_t b = 0; b < program->n_buffers; b++) {
        const struct sw_buffer *buffer = &program->buffers[b];
        if (!buffer->persistent && buffer->tier != SW_TIER_DISK) {
            out->next[b] = out->first[buffer->last];
            out->first[buffer->last] = b;
        }
    }
    return SW_OK;
}

/* Prepares all instructions of a program. */
static sw_status load_program(struct sw_executor *ex, int p)
{
    const struct sw_program *program = &ex->plan->programs[p];
    const size_t n = (size_t)program->n_instrs + 1;
    ex->programs[p].steps = sw_alloc_zero("run", n, sizeof(struct prepared));
    SW_TRY_ALLOC(ex->programs[p].steps, "the executor");
    ex->programs[p].calls = sw_alloc_zero("run", n, sizeof(struct sw_collective_call));
    SW_TRY_ALLOC(ex->programs[p].calls, "the executor");
    for (int32_t i = 0; i < program->n_instrs; i++) {
        SW_TRY(load_step(ex, program, i, &ex->programs[p].steps[i]));
    }
    return ex->options.verify ? list_dying(program, &ex->programs[p].dying) : SW_OK;
}

/* Allocates a row of scalars for each micro-step, on the device and on the host. */
static sw_status open_scalars(struct sw_executor *ex)
{
    void *scalars = NULL, *host = NULL;
    ex->n_rows = ex->plan->step.rounds > 0 ? ex->plan->step.rounds : 1;
    SW_TRY(sw_device_alloc(ex->dev, SW_MEM_HOST, sw_executor_scalars_bytes(ex), &host));
    ex->host_scalars = memset(host, 0, sw_executor_scalars_bytes(ex));
    SW_TRY(sw_device_alloc(ex->dev, SW_MEM_DEVICE, sw_executor_scalars_bytes(ex), &scalars));
    ex->scalars = scalars;
    ex->has_new_scalars = true;
    void *fetched = NULL;
    SW_TRY(sw_device_alloc(ex->dev, SW_MEM_HOST, fetched_bytes(ex), &fetched));
    ex->fetched = memset(fetched, 0, fetched_bytes(ex));
    return SW_OK;
}

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
                       "the plan has kernels of the host, but the executor has no device for "
                       "them");
    }
    SW_TRY(sw_device_alloc(ex->dev, SW_MEM_HOST, SW_UPDATE_SCALARS_BYTES, &scalars));
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
                              int slot)
{
    struct sw_executor *ex = ctx;
    if (sw_queue_exchanges(queue) || queue == SW_QUEUE_HOST) {
        return SW_OK;
    }
    return sw_executor_begin_move(ex, job, &ex->flights[queue][slot]);
}

static sw_status end_beside(void *ctx, enum sw_queue queue, const struct sw_queue_job *job,
                            int slot)
{
    struct sw_executor *ex = ctx;
    return sw_queue_exchanges(queue) ? sw_executor_exchange(ex, queue, job)
           : queue == SW_QUEUE_HOST  ? sw_executor_compute_here(ex, job)
                                     : sw_executor_end_move(ex, job, &ex->flights[queue][slot]);
}

static sw_status enqueue_exchange(void *ctx, enum sw_queue queue, const struct sw_queue_job *job)
{
    return sw_executor_exchange(ctx, queue, job);
}

static sw_status blame_exchange(void *ctx, enum sw_queue queue, const struct sw_queue_job *job,
                                sw_status st)
{
    return sw_executor_blame(ctx, queue, job, st);
}

static void exchange_passed(void *ctx, enum sw_queue queue, const struct sw_queue_job *job,
                            int64_t begin_ns, int64_t end_ns)
{
    sw_executor_exchanged(ctx, queue, job, begin_ns, end_ns);
}

/* begin and end are separate, so that the disk has the next transfer at once. A later transfer may
 * be complete earlier. */
static const struct sw_queue_ops queue_ops = {
    .begin = begin_beside,
    .end = end_beside,
    .enqueue = enqueue_exchange,
    .passed = exchange_passed,
    .blame = blame_exchange,
    .most_begun = {[SW_QUEUE_COMM] = 1,
                   [SW_QUEUE_H2D] = 1,
                   [SW_QUEUE_D2H] = 1,
                   [SW_QUEUE_HOST] = 1,
                   [SW_QUEUE_TENSOR] = 1,
                   [SW_QUEUE_SENT] = 1,
                   [SW_QUEUE_RECEIVED] = 1,
                   [SW_QUEUE_SENT_BACK] = 1,
                   [SW_QUEUE_RECEIVED_BACK] = 1,
                   [SW_QUEUE_READ] = SW_QUEUE_BEGUN,
                   [SW_QUEUE_WRITE] = SW_QUEUE_BEGUN},
};

/* Counts the jobs of instructions [first, end) by queue. Returns the size of the largest batch. */
static int32_t count_jobs(const struct sw_program *program, int32_t first, int32_t end,
                          int64_t n_jobs[SW_QUEUE_COUNT])
{
    int32_t most = 0;
    for (int32_t i = first; i < end; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        most = instr->exchange.batch > most ? instr->exchange.batch : most;
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
        const struct sw_program *program = &plan->programs[phase->program];
        if (phase->action == SW_STEP_RUN) {
            const struct sw_instr_range range =
                sw_program_range(program, phase->segment, phase->chunk);
            count_jobs(program, range.first, range.end, n);
        }
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        n_jobs[q] = sw_max_i64(n_jobs[q], n[q]);
    }
    return most;
}

/* All ranks take part in this, so it comes before what may fail on one of them alone, such as a
 * full disk. */
static sw_status open_groups(struct sw_executor *ex)
{
    int64_t n_jobs[SW_QUEUE_COUNT] = {0};
    const int32_t most = count_all_jobs(ex->plan, n_jobs);
    return most > 0 ? sw_executor_open_groups(ex, n_jobs, most) : SW_OK;
}

/* Opens the queues that any program uses. */
static sw_status open_queues(struct sw_executor *ex)
{
    struct sw_queues_options options = {
        .dev = ex->dev, .compute = ex->compute, .meter = &ex->meter, .ops = queue_ops, .ctx = ex};
    count_all_jobs(ex->plan, options.most_jobs);
    bool any = false;
    for (int q = SW_QUEUE_COMM; q < SW_QUEUE_COUNT; q++) {
        if (options.most_jobs[q] > 0) {
            any = true;
            SW_TRY(ex->dev->ops->stream_open(ex->dev, &ex->stages[q].on));
            options.in_order[q] = ex->stages[q].in_order ? ex->stages[q].on : NULL;
        }
    }
    if (sw_stage_is_for_disk(&ex->stages[SW_QUEUE_READ])) {
        /* reads through staging memory keep the disk busy on their own */
        options.ops.most_begun[SW_QUEUE_READ] = options.ops.most_begun[SW_QUEUE_WRITE] = 1;
    }
    SW_TRY(any ? sw_queues_open(&options, &ex->queues) : SW_OK);
    return ex->options.library && ex->exchanges.n_links > 0 ? sw_guard_start(ex->exchanges.guard)
                                                            : SW_OK;
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
    SW_TRY_OR(close, open_groups(ex));
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
    SW_TRY_OR(close, sw_executor_open_capture(ex));
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
    sw_guard_end(ex->exchanges.guard, ex->exchanges.run_failed);
    sw_queues_close(ex->queues);
    if (ex->watch) {
        ex->dev->ops->stream_wait(ex->dev, ex->compute); /* it has marks to pass */
        sw_watch_close(ex->watch);
    }
    sw_executor_close_capture(ex);
    sw_free(ex->begun);
    sw_swap_close(ex->swap);
    for (int q = SW_QUEUE_COMM; q < SW_QUEUE_COUNT; q++) {
        if (ex->stages[q].on) {
            ex->dev->ops->stream_close(ex->dev, ex->stages[q].on);
        }
    }
    sw_executor_close_groups(ex);
    for (int p = 0; ex->programs && p < ex->plan->n_programs; p++) {
        for (int32_t i = 0; ex->programs[p].steps && i < ex->plan->programs[p].n_instrs; i++) {
            struct sw_device *dev = device_of(ex, &ex->plan->programs[p].instrs[i]);
            if (ex->programs[p].steps[i].kernel) {
                dev->ops->release(dev, ex->programs[p].steps[i].kernel);
            }
        }
        sw_free(ex->programs[p].steps);
        sw_free(ex->programs[p].calls);
        sw_free(ex->programs[p].dying.first);
        sw_free(ex->programs[p].dying.next);
    }
    sw_free(ex->programs);
    sw_device_free(ex->dev, SW_MEM_DEVICE, ex->scalars, sw_executor_scalars_bytes(ex));
    sw_device_free(ex->dev, SW_MEM_HOST, ex->host_scalars, sw_executor_scalars_bytes(ex));
    sw_device_free(ex->dev, SW_MEM_HOST, ex->fetched, fetched_bytes(ex));
    sw_device_free(ex->dev, SW_MEM_HOST, ex->update_scalars, SW_UPDATE_SCALARS_BYTES);
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
