// SPDX-License-Identifier: Apache-2.0
// The walk does not know stages, tiers, ranks or schedules: the plan expresses all of them as
// phases and instructions.
#include "run/walk.h"

struct walk {
    const struct sw_walk_ops *ops;
    void *ctx;
    struct sw_walk at;
    int32_t last; /* instruction of the phase */
};

/* True for instructions of the last micro-step in another one, and of a micro-batch that this rank
 * lacks. A skipped step is different: the kernels themselves see on the device that they must not
 * change anything. Copies, gathers and writes then move the old bytes. */
static bool is_left_out(const struct walk *w, const struct sw_instr *instr)
{
    const struct sw_step_phase *phase = w->at.phase;
    return (instr->last_only && !phase->is_last) ||
           (instr->verb == SW_VERB_KERNEL && instr->micro >= phase->n_micro);
}

/* Order of instruction j for a waiter in `loop`: with the same piece if j is in the same loop, else
 * with the last piece. */
static int64_t order_of(const struct walk *w, int32_t loop, int32_t j)
{
    const struct sw_program *program = w->at.program;
    const struct sw_instr *instr = &program->instrs[j];
    if (instr->loop == 0) {
        return instr->order;
    }
    const struct sw_loop *other = &program->loops[instr->loop - 1];
    const int32_t piece = instr->loop == loop ? w->at.piece : other->pieces - 1;
    return instr->order + (int64_t)piece * other->n;
}

static void find_needs(struct walk *w, const struct sw_instr *instr)
{
    const struct sw_program *program = w->at.program;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        w->at.needs[q] = instr->waits[q] < 0 ? -1 : order_of(w, instr->loop, instr->waits[q]);
    }
    w->at.order = instr->order;
    if (instr->loop > 0) {
        const int32_t n = program->loops[instr->loop - 1].n, before = w->at.piece - program->turns;
        w->at.order += (int64_t)w->at.piece * n;
        if (instr->again >= 0 && before >= 0) {
            const struct sw_instr *other = &program->instrs[instr->again];
            w->at.needs[other->queue] = other->order + (int64_t)before * n;
        }
    }
}

/* Instructions that do not run wait, too: the memory map relies on it. */
static sw_status wait_for(const struct walk *w, const struct sw_instr *instr)
{
    const enum sw_queue on = sw_instr_queue(instr);
    for (int q = SW_QUEUE_COMPUTE + 1; q < SW_QUEUE_COUNT; q++) {
        if (w->at.needs[q] >= 0 && (on == SW_QUEUE_COMPUTE || q == (int)on)) {
            SW_TRY(w->ops->wait(w->ctx, &w->at, (enum sw_queue)q, w->at.needs[q]));
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
    if (instr->batch == 0) {
        return SW_OK; /* issued with its batch */
    }
    SW_TRY(ops->exchange(w->ctx, &w->at));
    return instr->blocking ? ops->wait(w->ctx, &w->at, SW_QUEUE_COMM, w->at.order) : SW_OK;
}

static sw_status end(const struct walk *w)
{
    const struct sw_step_phase *phase = w->at.phase;
    SW_TRY(phase->drains ? w->ops->barrier(w->ctx, &w->at) : SW_OK);
    return phase->joins && w->ops->join ? w->ops->join(w->ctx, &w->at) : SW_OK;
}

static sw_status visit(struct walk *w, int32_t i, int32_t piece)
{
    const struct sw_program *program = w->at.program;
    const struct sw_instr *instr = &program->instrs[i];
    const bool left_out = is_left_out(w, instr);
    w->at.instr = i;
    w->at.piece = piece;
    find_needs(w, instr);
    SW_TRY(wait_for(w, instr));
    SW_TRY(left_out ? SW_OK : issue(w, instr));
    if (i == w->last && piece == sw_instr_pieces(program, instr) - 1) {
        SW_TRY(end(w));
    }
    return !left_out && w->ops->passed ? w->ops->passed(w->ctx, &w->at) : SW_OK;
}

/* Visits a piece: its loads, or its kernel and stores. A piece of that number need not exist. */
static sw_status visit_piece(struct walk *w, const struct sw_loop *loop, bool loads, int32_t piece)
{
    for (int32_t i = loop->first; i < loop->first + loop->n; i++) {
        const enum sw_verb verb = w->at.program->instrs[i].verb;
        const bool is_load = verb == SW_VERB_COPY_IN || verb == SW_VERB_READ;
        if (is_load == loads && piece >= 0 && piece < loop->pieces) {
            SW_TRY(visit(w, i, piece));
        }
    }
    return SW_OK;
}

static sw_status run_loop(struct walk *w, const struct sw_loop *loop)
{
    const int32_t ahead = sw_loop_ahead(w->at.program);
    for (int32_t piece = 0; piece < loop->pieces + ahead; piece++) {
        SW_TRY(visit_piece(w, loop, true, piece));
        SW_TRY(visit_piece(w, loop, false, piece - ahead));
    }
    return SW_OK;
}

static sw_status run(struct walk *w)
{
    const struct sw_program *program = w->at.program;
    const int32_t first = program->segment_first[w->at.phase->segment];
    w->last = program->segment_first[w->at.phase->segment + 1] - 1;
    w->at.instr = first;
    SW_TRY(w->ops->begin(w->ctx, &w->at));
    for (int32_t i = first; i <= w->last; i++) {
        const int32_t number = program->instrs[i].loop;
        if (number > 0) {
            const struct sw_loop *loop = &program->loops[number - 1];
            SW_TRY(run_loop(w, loop));
            i += loop->n - 1;
        } else {
            SW_TRY(visit(w, i, 0));
        }
    }
    return first <= w->last ? SW_OK : end(w);
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
