// SPDX-License-Identifier: Apache-2.0
// Nothing here depends on stages, tiers, ranks or schedules: the plan has said it all in phases and
// instructions.
#include "run/walk.h"

struct walk {
    const struct sw_walk_ops *ops;
    void *ctx;
    struct sw_walk at;
};

/* Of the last micro-step, or of a micro-batch that this rank does not have. What a skipped step
 * leaves out are kernels, which see that on the device: the update leaves its operands, so that
 * what is copied, gathered or written back is what was there. */
static bool is_left_out(const struct walk *w, const struct sw_instr *instr)
{
    const struct sw_step_phase *phase = w->at.phase;
    return (instr->last_only && !phase->is_last) ||
           (instr->verb == SW_VERB_KERNEL && instr->micro >= phase->n_micro);
}

/* What is left out waits, too: the memory map counts on it. */
static sw_status wait_for(const struct walk *w, const struct sw_instr *instr)
{
    const enum sw_queue on = sw_instr_queue(instr);
    for (int q = SW_QUEUE_COMPUTE + 1; q < SW_QUEUE_COUNT; q++) {
        if (instr->waits[q] >= 0 && (on == SW_QUEUE_COMPUTE || q == (int)on)) {
            SW_TRY(w->ops->wait(w->ctx, &w->at, (enum sw_queue)q, instr->waits[q]));
        }
    }
    return SW_OK;
}

static sw_status issue(const struct walk *w, const struct sw_instr *instr)
{
    const struct sw_walk_ops *ops = w->ops;
    if (instr->queue == SW_QUEUE_COMPUTE) {
        return ops->kernel(w->ctx, &w->at);
    }
    if (instr->verb < SW_VERB_REDUCE) {
        return ops->transfer(w->ctx, &w->at);
    }
    if (instr->group == 0) {
        return SW_OK; /* left with its group */
    }
    SW_TRY(ops->exchange(w->ctx, &w->at));
    return instr->blocking ? ops->wait(w->ctx, &w->at, SW_QUEUE_COMM, w->at.instr) : SW_OK;
}

static sw_status end(const struct walk *w)
{
    const struct sw_step_phase *phase = w->at.phase;
    SW_TRY(phase->drains ? w->ops->barrier(w->ctx, &w->at) : SW_OK);
    return phase->joins && w->ops->join ? w->ops->join(w->ctx, &w->at) : SW_OK;
}

static sw_status run(struct walk *w)
{
    const struct sw_program *program = w->at.program;
    const int32_t first = program->segment_first[w->at.phase->segment];
    const int32_t behind = program->segment_first[w->at.phase->segment + 1];
    w->at.instr = first;
    SW_TRY(w->ops->begin(w->ctx, &w->at));
    for (int32_t i = first; i < behind; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const bool left_out = is_left_out(w, instr);
        w->at.instr = i;
        SW_TRY(wait_for(w, instr));
        SW_TRY(left_out ? SW_OK : issue(w, instr));
        if (i == behind - 1) {
            SW_TRY(end(w));
        }
        if (!left_out && w->ops->passed) {
            SW_TRY(w->ops->passed(w->ctx, &w->at));
        }
    }
    return first < behind ? SW_OK : end(w);
}

sw_status sw_walk_phase(const struct sw_plan *plan, const struct sw_step_phase *phase,
                        const struct sw_walk_ops *ops, void *ctx)
{
    struct walk w = {
        .ops = ops, .ctx = ctx, .at = {.program = &plan->programs[phase->program], .phase = phase}};
    switch (phase->action) {
    case SW_STEP_RUN:
        return run(&w);
    case SW_STEP_LOSSES:
        return ops->losses(ctx);
    case SW_STEP_AGREE:
        return ops->agree(ctx);
    case SW_STEP_COMMIT:
        return ops->commit(ctx);
    }
    return SW_OK;
}
