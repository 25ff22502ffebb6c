// SPDX-License-Identifier: Apache-2.0
// Kernels: of the device, on its stream, and of the host, on the thread of their queue.
#include "run/executor.h"

/* Sets the operands of a kernel to the present piece of its loop and the present micro-batch. */
static void go_to_slot(const struct sw_walk *at, const struct prepared *step, void **in, void **out)
{
    const struct sw_instr *instr = &at->program->instrs[at->instr];
    const struct sw_operand *operands = &at->program->operands[instr->operands];
    const int64_t index[SW_RING_COUNT] = {
        [SW_RING_PIECE] = at->piece, [SW_RING_MICRO] = at->phase->round};
    for (int k = 0; k < instr->n_in + instr->n_out; k++) {
        char *const first = k < instr->n_in ? step->in[k] : step->out[k - instr->n_in];
        *(k < instr->n_in ? &in[k] : &out[k - instr->n_in]) =
            first ? first + sw_operand_shift(&operands[k], index) : NULL;
    }
}

/* The scalars that the instruction reads; captured, at an address that all rounds have. */
static double *scalars_of(const struct sw_executor *ex, const struct sw_walk *at)
{
    const int micro = at->program->instrs[at->instr].micro;
    return micro < 0         ? ex->scalars
           : ex->capture.now ? ex->capture.scalars + micro * SW_SCALAR_COUNT
                             : ex->scalars + (at->phase->round + micro) * SW_SCALAR_COUNT;
}

/* Launches the kernel of a visit. With a profile or a trace, also waits for it, to take its
 * time. */
static sw_status launch_step(struct sw_executor *ex, const struct sw_walk *at)
{
    const int i_program = sw_executor_index(ex, at->program);
    struct prepared *step = &ex->programs[i_program].steps[at->instr];
    double *scalars = scalars_of(ex, at);
    const bool timed = (ex->meter.profiles || ex->meter.trace) && !ex->capture.records;
    void *moved[SW_MAX_INPUTS + SW_MAX_OUTPUTS];
    if (ex->options.no_kernels) {
        return SW_OK;
    }
    const bool moves = at->piece > 0 || step->has_rings;
    void **const in = moves ? moved : step->in;
    void **const out = moves ? moved + SW_MAX_INPUTS : step->out;
    if (moves) {
        go_to_slot(at, step, in, out);
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
        sw_executor_ran(ex, &step->profile, span.end_ns - begin);
        sw_meter_ran(&ex->meter, &span);
    }
    return SW_OK;
}

sw_status sw_executor_launch_alone(struct sw_executor *ex, const struct sw_walk *at)
{
    return launch_step(ex, at);
}

sw_status sw_executor_launch(struct sw_executor *ex, const struct sw_walk *at)
{
    const struct sw_instr *instr = &at->program->instrs[at->instr];
    const bool replays = ex->capture.now && !ex->meter.profiles;
    const sw_status st = replays ? sw_capture_replay(ex, at) : launch_step(ex, at);
    return st >= 0 ? SW_OK
                   : sw_fail_prefix(st, "instruction %d (%s in %s)", at->instr, instr->about->name,
                                    instr->about->where);
}

/* Runs a kernel of the host on the thread of its queue. It reads the scalars that the device would
 * read now: new ones are not sent before it is done. */
sw_status sw_executor_compute_here(struct sw_executor *ex, const struct sw_queue_job *job)
{
    const int i_program = sw_executor_index(ex, job->program);
    const struct sw_instr *instr = &job->program->instrs[job->instr];
    struct sw_device *host = ex->options.host;
    struct prepared *step = &ex->programs[i_program].steps[job->instr];
    if (ex->options.no_kernels) {
        return SW_OK;
    }
    const int64_t begin = sw_now_ns();
    const struct sw_stage *stage = &ex->stages[SW_QUEUE_HOST];
    sw_status st = sw_device_copy(ex->dev, stage->on, ex->update_scalars, ex->scalars,
                                  SW_UPDATE_SCALARS_BYTES);
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
    sw_executor_ran(ex, &step->profile, span.end_ns - begin);
    sw_meter_ran(&ex->meter, &span);
    return SW_OK;
}

/* ---- verifying ---- */

/* Marks a range as touched. Buffers are multiples of the alignment, so the end is rounded up. */
static void note_range(struct sw_executor *ex, const void *begin, size_t bytes)
{
    const size_t end = sw_round_up(
        (size_t)((const char *)begin - ex->arenas[SW_TIER_DEVICE]) + bytes, SW_PLAN_ALIGN);
    ex->high_water = end > ex->high_water ? end : ex->high_water;
}

/* Marks the device memory of an instruction as touched. */
static void note_step(struct sw_executor *ex, const struct sw_walk *at)
{
    const struct sw_program *program = at->program;
    const int32_t i = at->instr;
    const struct sw_instr *instr = &program->instrs[i];
    const struct prepared *step = &ex->programs[program - ex->plan->programs].steps[i];
    for (int k = 0; k < instr->n_in + instr->n_out; k++) {
        const struct sw_operand *operand = &program->operands[instr->operands + k];
        if (operand->tier == SW_TIER_DEVICE) {
            /* slices that travel include the padding */
            note_range(ex, sw_executor_slot(ex, operand, at->phase->round),
                       sw_instr_exchanges(instr) ? operand->room : operand->bytes);
        }
    }
    if (instr->workspace >= 0) {
        note_range(ex, step->workspace,
                   sw_instr_exchanges(instr)
                       ? sw_instr_areas(instr, ex->plan->groups[instr->exchange.group].n).bytes
                       : instr->about->kernel.workspace_bytes);
    }
}

/* Bytes of a workspace that are filled: its beginning. Beside small tensors, filling all of it
 * takes longer than the kernel. */
enum { POISONED_BYTES = 1 << 16 };

/* Fills transients that die with instruction i with NaN, so that later reads are noticed. */
static sw_status poison_dead(struct sw_executor *ex, const struct sw_walk *at)
{
    const struct sw_program *program = at->program;
    const struct dying *dying = &ex->programs[program - ex->plan->programs].dying;
    for (int32_t b = dying->first[at->instr]; b >= 0; b = dying->next[b]) {
        const struct sw_buffer *buffer = &program->buffers[b];
        /* later phases may use it, or messages of a pipeline */
        const bool goes_on = at->phase->runs_on || !at->phase->is_last;
        const bool is_shared = goes_on && buffer->first == 0 &&
                               buffer->last == program->segment_first[SW_SEGMENT_UPDATE] - 1;
        if (is_shared) {
            continue;
        }
        size_t first = buffer->offset, bytes = buffer->bytes;
        if (buffer->micro_bytes > 0) { /* the slot of this micro-batch */
            const size_t slots = bytes / buffer->micro_bytes;
            bytes = buffer->micro_bytes;
            first += bytes * ((size_t)at->phase->round % slots);
        }
        if (b == program->instrs[at->instr].workspace && bytes > POISONED_BYTES) {
            bytes = POISONED_BYTES;
        }
        SW_TRY(sw_device_fill(ex->dev, ex->compute, ex->arenas[buffer->tier] + first, 0xff, bytes));
    }
    return SW_OK;
}

sw_status sw_executor_verify(struct sw_executor *ex, const struct sw_walk *at)
{
    const struct sw_instr *instr = &at->program->instrs[at->instr];
    if (!ex->options.verify || at->piece < sw_instr_pieces(at->program, instr) - 1) {
        return SW_OK;
    }
    note_step(ex, at);
    return ex->capture.inside ? SW_OK /* the graph does it */ : poison_dead(ex, at);
}
