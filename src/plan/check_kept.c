// SPDX-License-Identifier: Apache-2.0
// Verifies weights that stay from one micro-batch to the next, independently of how they were
// chosen: what the first micro-step of a step has brought is there in all others, unchanged, and
// would be the same if it were brought again.
#include "plan/private.h"

struct check {
    const struct sw_program *program;
    int32_t *once; /* [n_buffers] the instruction that runs once and writes it; -1 = none */
};

static int32_t buffer_of(const struct check *c, sw_value v)
{
    return v < 0 ? -1 : c->program->buffer_of[sw_ir_root(c->program->ir, v)];
}

static const struct sw_ir_op *op_of(const struct check *c, int32_t i)
{
    return &c->program->ir->ops[c->program->instrs[i].op];
}

/* Instructions that run once are gathers and loads of forward and backward. */
static sw_status note_once(const struct check *c, bool one_round)
{
    for (int32_t b = 0; b < c->program->n_buffers; b++) {
        c->once[b] = -1;
    }
    for (int32_t i = 0; i < c->program->n_instrs; i++) {
        const struct sw_instr *instr = &c->program->instrs[i];
        const struct sw_ir_op *op = op_of(c, i);
        const bool moves = op->move == SW_MOVE_GATHER || op->move == SW_MOVE_LOAD;
        if (!instr->turn.once) {
            continue;
        }
        if (!moves || op->n_in != 1 || one_round || instr->segment >= SW_SEGMENT_UPDATE ||
            instr->last_only || instr->turn.first_only) {
            return SW_FAIL(
                SW_E_ARG,
                "plan: instruction %d (%s) runs in the first micro-step only, and brings "
                "nothing that stays",
                i, sw_ir_op_name(op));
        }
        c->once[buffer_of(c, op->out[0])] = i;
    }
    return SW_OK;
}

/* True if the buffer has memory of its own in all micro-steps. */
static bool is_apart(const struct check *c, const struct sw_buffer *b)
{
    return !b->persistent && b->first == 0 && b->micro_bytes == 0 &&
           b->last >= c->program->segment_first[SW_SEGMENT_UPDATE] - 1;
}

/* Instruction i must not write to weights that stay. */
static sw_status check_writes(const struct check *c, int32_t i)
{
    const struct sw_ir_op *op = op_of(c, i);
    for (int k = 0; k < op->n_out; k++) {
        const int32_t b = buffer_of(c, op->out[k]), by = b < 0 ? -1 : c->once[b];
        if (by >= 0 && by != i) {
            return SW_FAIL(SW_E_ARG,
                           "plan: instruction %d (%s) writes what instruction %d (%s) brings for "
                           "all micro-steps",
                           i, sw_ir_op_name(op), by, sw_ir_op_name(op_of(c, by)));
        }
    }
    return SW_OK;
}

static sw_status check_reads(const struct check *c, int32_t i)
{
    const struct sw_instr *instr = &c->program->instrs[i];
    const struct sw_ir_op *op = op_of(c, i);
    for (int k = 0; k < op->n_in && !instr->turn.once; k++) {
        const int32_t b = buffer_of(c, op->in[k]), by = b < 0 ? -1 : c->once[b];
        if (by >= 0 && (by > i || !is_apart(c, &c->program->buffers[b]))) {
            return SW_FAIL(SW_E_ARG,
                           "plan: instruction %d (%s) runs in every micro-step and reads what "
                           "instruction %d (%s) brings in the first one; its memory is used again",
                           i, sw_ir_op_name(op), by, sw_ir_op_name(op_of(c, by)));
        }
    }
    return SW_OK;
}

/* An instruction that runs once must find the same bytes in each micro-step. sources: [n_values] by
 * root, an instruction that reads it once; -1 = none */
static sw_status check_sources(const struct check *c, int32_t *sources)
{
    const struct sw_ir *ir = c->program->ir;
    for (sw_value v = 0; v < ir->n_values; v++) {
        sources[v] = -1;
    }
    for (int32_t i = 0; i < c->program->n_instrs; i++) {
        if (c->program->instrs[i].turn.once) {
            sources[sw_ir_root(ir, op_of(c, i)->in[0])] = i;
        }
    }
    for (int32_t i = 0; i < c->program->n_instrs; i++) { /* loads for it may run again */
        const struct sw_ir_op *op = op_of(c, i);
        const int32_t by = op->move == SW_MOVE_LOAD ? sources[sw_ir_root(ir, op->out[0])] : -1;
        if (by >= 0) {
            sources[sw_ir_root(ir, op->in[0])] = by;
        }
    }
    for (int32_t i = 0; i < c->program->segment_first[SW_SEGMENT_UPDATE]; i++) {
        const struct sw_instr *instr = &c->program->instrs[i];
        const struct sw_ir_op *op = op_of(c, i);
        const bool brings = instr->turn.once || op->move == SW_MOVE_LOAD;
        for (int k = 0; k < op->n_out && !brings && !instr->last_only; k++) {
            const int32_t by = op->out[k] < 0 ? -1 : sources[sw_ir_root(ir, op->out[k])];
            if (by >= 0) {
                return SW_FAIL(SW_E_ARG,
                               "plan: instruction %d (%s) changes what instruction %d (%s) reads "
                               "in the first micro-step only",
                               i, sw_ir_op_name(op), by, sw_ir_op_name(op_of(c, by)));
            }
        }
    }
    return SW_OK;
}

static sw_status check_all(const struct check *c, int32_t *sources, bool one_round)
{
    SW_TRY(note_once(c, one_round));
    for (int32_t i = 0; i < c->program->n_instrs; i++) {
        SW_TRY(check_writes(c, i));
        SW_TRY(check_reads(c, i));
    }
    return check_sources(c, sources);
}

sw_status sw_plan_check_kept(const struct sw_program *program, bool one_round)
{
    struct check c = {.program = program};
    c.once = sw_alloc("plan", ((size_t)program->n_buffers + 1) * sizeof *c.once);
    int32_t *sources = sw_alloc("plan", ((size_t)program->ir->n_values + 1) * sizeof *sources);
    const sw_status st = c.once && sources
                             ? check_all(&c, sources, one_round)
                             : SW_FAIL(SW_E_NOMEM, "out of host memory for checking the plan");
    sw_free(c.once);
    sw_free(sources);
    return st;
}
