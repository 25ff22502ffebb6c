// SPDX-License-Identifier: Apache-2.0
// Verifies tensors with two slots, which alternate. A step reads the current slot, and writes each
// element of the other slot once. An element that is left out would be stale, from the step before
// the last. A step must not load what it has stored: it would get the old value. Exception: an
// update within forward, after which loads read the slot that was written. Sums of gradients are
// stored at least once; only the update of the step before reads the other slot.
#include "plan/private.h"

/* stored: [n_cells] whether this step has stored it; elems: [n_buffers] number of elements
 * stored */
static sw_status check_transfers(const struct sw_program *program, const struct sw_cells *cells,
                                 bool *stored, int64_t *elems)
{
    const struct sw_ir *ir = program->ir;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[i].op];
        const sw_value home = sw_ir_is_transfer(op) ? sw_ir_root(ir, op->in[0]) : -1;
        const int32_t b = home < 0 ? -1 : program->buffer_of[home];
        if (b < 0 || program->buffers[b].slot_bytes == 0) {
            continue;
        }
        const bool is_sum = sw_state_is_sum(ir->values[home].state);
        if (is_sum && op->chunk.in_forward && op->move == SW_MOVE_STORE) {
            return SW_FAIL(SW_E_ARG, "plan: instruction %d (%s of %s) replaces a gradient", i,
                           sw_ir_op_name(op), ir->values[home].name);
        }
        const struct sw_cell_range range = cells->of[program->instrs[i].op];
        for (int32_t c = range.first; c < range.end && !is_sum; c++) {
            const bool renewed = op->move == SW_MOVE_LOAD && (sw_ir_is_renewed(ir, op->in[0]) ||
                                                              program->instrs[i].turn.for_next);
            if (stored[c] != renewed) {
                return SW_FAIL(
                    SW_E_ARG, "plan: instruction %d (%s of %s) meets what the step %s stored", i,
                    sw_ir_op_name(op), ir->values[home].name, renewed ? "has not" : "has");
            }
            stored[c] |= op->move == SW_MOVE_STORE;
        }
        elems[b] += op->move == SW_MOVE_STORE
                        ? sw_ir_pieces(ir, op) * ir->values[op->in[1]].form->elems
                        : 0;
    }
    return SW_OK;
}

sw_status sw_plan_check_places(const struct sw_program *program, const struct sw_cells *cells)
{
    const struct sw_ir *ir = program->ir;
    bool *stored = sw_alloc_zero("plan", (size_t)cells->n + 1, sizeof *stored);
    int64_t *elems = sw_alloc_zero("plan", (size_t)program->n_buffers + 1, sizeof *elems);
    sw_status st = stored && elems
                       ? check_transfers(program, cells, stored, elems)
                       : SW_FAIL(SW_E_NOMEM, "out of host memory for checking the plan");
    for (int32_t b = 0; b < program->n_buffers && st >= 0; b++) {
        const struct sw_buffer *buffer = &program->buffers[b];
        const int64_t all = buffer->value < 0 ? 0 : ir->values[buffer->value].form->elems;
        const bool again = elems[b] > all && sw_state_is_sum(ir->values[buffer->value].state);
        if (program->kind == SW_PROGRAM_TRAIN && buffer->slot_bytes > 0 && elems[b] != all &&
            !again) {
            st = SW_FAIL(SW_E_ARG, "plan: a step stores %lld of %lld elements of %s",
                         (long long)elems[b], (long long)all, ir->values[buffer->value].name);
        }
    }
    sw_free(stored);
    sw_free(elems);
    return st;
}
