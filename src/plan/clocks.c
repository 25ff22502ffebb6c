// SPDX-License-Identifier: Apache-2.0
// The meaning of a program's waits, as vector clocks (Mattern 1989) with one component per queue.
// The computing thread issues instructions in order, through all segments, and each queue runs its
// own in that order. Waiting for an instruction implies all that was complete when it was. Waits
// are chosen by this rule, and finished plans are checked by it.
#include <string.h>

#include "plan/private.h"

enum sw_queue sw_instr_queue(const struct sw_instr *instr)
{
    return instr->exchange.blocking ? SW_QUEUE_COMPUTE : instr->queue;
}

sw_status sw_clocks_open(struct sw_clocks *clocks, const struct sw_program *program)
{
    *clocks = (struct sw_clocks){.program = program};
    clocks->done = sw_alloc("plan", ((size_t)program->n_instrs + 1) * sizeof *clocks->done);
    SW_TRY_ALLOC(clocks->done, "the plan");
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        clocks->issued[q] = -1;
        for (int r = 0; r < SW_QUEUE_COUNT; r++) {
            clocks->now[q][r] = -1;
        }
    }
    return SW_OK;
}

void sw_clocks_close(struct sw_clocks *clocks)
{
    sw_free(clocks->done);
    *clocks = (struct sw_clocks){0};
}

/* An instruction that may not run implies nothing beyond itself. */
static bool may_be_left_out(const struct sw_clocks *clocks, int32_t i)
{
    const struct sw_instr *instr = &clocks->program->instrs[i];
    const struct sw_ir_op *op = &clocks->program->ir->ops[instr->op];
    return instr->unless_skipped || instr->last_only || instr->turn.first_only ||
           instr->turn.once || instr->turn.from_last || sw_ir_waits_for_router(op) ||
           (sw_ir_is_transfer(op) && sw_ir_moves_rows(op)); /* without a micro-batch */
}

static void join(int32_t a[SW_QUEUE_COUNT], const int32_t b[SW_QUEUE_COUNT])
{
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        a[q] = b[q] > a[q] ? b[q] : a[q];
    }
}

/* `clock` learns that instruction j of queue r is complete; usually it knows already. */
static inline void learn(const struct sw_clocks *clocks, int32_t clock[SW_QUEUE_COUNT], int r,
                         int32_t j)
{
    if (j <= clock[r]) {
        return;
    }
    if (!may_be_left_out(clocks, j)) {
        join(clock, clocks->done[j]);
    }
    clock[r] = j > clock[r] ? j : clock[r];
}

void sw_clocks_find(const struct sw_clocks *clocks, int32_t i, const int32_t waits[SW_QUEUE_COUNT],
                    int32_t out[SW_QUEUE_COUNT])
{
    const struct sw_instr *instr = &clocks->program->instrs[i];
    const enum sw_queue on = sw_instr_queue(instr);
    memcpy(out, clocks->now[on], sizeof clocks->now[on]);
    join(out, clocks->now[SW_QUEUE_COMPUTE]);
    out[SW_QUEUE_COMPUTE] = i - 1;
    if (instr->exchange.blocking && !may_be_left_out(clocks, i)) {
        /* an instruction that does not run waits for nothing */
        learn(clocks, out, (int)instr->queue, clocks->issued[instr->queue]);
    }
    for (int r = 0; r < SW_QUEUE_COUNT; r++) {
        learn(clocks, out, r, waits[r]);
    }
}

void sw_clocks_step(struct sw_clocks *clocks, int32_t i)
{
    const struct sw_instr *instr = &clocks->program->instrs[i];
    const enum sw_queue on = sw_instr_queue(instr);
    int32_t found[SW_QUEUE_COUNT];
    if (on != SW_QUEUE_COMPUTE) { /* the computing thread waits before it issues */
        learn(clocks, clocks->now[SW_QUEUE_COMPUTE], (int)on, instr->waits[on]);
    }
    clocks->now[SW_QUEUE_COMPUTE][SW_QUEUE_COMPUTE] = i - 1;
    sw_clocks_find(clocks, i, instr->waits, found);
    found[on] = i;
    memcpy(clocks->done[i], found, sizeof found);
    if (on == SW_QUEUE_COMPUTE || !may_be_left_out(clocks, i)) {
        memcpy(clocks->now[on], found, sizeof found);
    }
    clocks->now[on][on] = i;
    clocks->issued[on] = i;
}

void sw_clocks_settle(struct sw_clocks *clocks, int32_t i)
{
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        for (int r = 0; r < SW_QUEUE_COUNT; r++) {
            clocks->now[q][r] = i;
        }
    }
}

bool sw_program_settles(const struct sw_program *program, bool is_stage, int32_t i)
{
    return is_stage && i + 1 < program->n_instrs &&
           program->instrs[i].segment < SW_SEGMENT_UPDATE &&
           sw_instr_key(&program->instrs[i]) != sw_instr_key(&program->instrs[i + 1]);
}
