// SPDX-License-Identifier: Apache-2.0
// Verifies what takes two slots in turn: a step reads the one that counts, and writes the other,
// every element of it once, since what it left out would come back from the step before the last.
// It loads nothing that it has stored: that would be the old value.
#include "plan/private.h"

struct stored { /* all of it lies in `covers` */
    struct sw_range covers;
    int64_t n;
    int32_t last; /* where n > 0, the latest instruction that stored some */
};

/* before: [n_instrs] what stored into the same home before an instruction that does. */
static bool met_before(const struct sw_program *program, const struct stored *stored,
                       const int32_t *before, const struct sw_range *range)
{
    for (int32_t k = stored->last; k >= 0; k = before[k]) {
        const struct sw_range other =
            sw_transfer_range(program->ir, &program->ir->ops[program->instrs[k].op]);
        if (sw_ranges_meet(range, &other)) {
            return true;
        }
    }
    return false;
}

static sw_status check_transfers(const struct sw_program *program, struct stored *stored,
                                 int32_t *before)
{
    const struct sw_ir *ir = program->ir;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[i].op];
        const sw_value home = sw_ir_is_transfer(op) ? sw_ir_root(ir, op->in[0]) : -1;
        if (home < 0 || program->buffers[program->buffer_of[home]].slot_bytes == 0) {
            continue;
        }
        struct stored *to = &stored[home];
        const struct sw_range range = sw_transfer_range(ir, op);
        if (to->n > 0 && sw_ranges_meet(&range, &to->covers) &&
            met_before(program, to, before, &range)) {
            return SW_FAIL(SW_E_ARG,
                           "plan: instruction %d (%s of %s) meets what the step has stored", i,
                           sw_ir_op_name(op), ir->values[home].name);
        }
        if (op->move == SW_MOVE_STORE) {
            before[i] = to->n == 0 ? -1 : to->last;
            to->covers = to->n == 0 ? range : sw_range_of_both(&range, &to->covers);
            to->n += range.end - range.first;
            to->last = i;
        }
    }
    return SW_OK;
}

sw_status sw_plan_check_places(const struct sw_program *program)
{
    const struct sw_ir *ir = program->ir;
    struct stored *stored = sw_alloc_zero("plan", (size_t)ir->n_values + 1, sizeof *stored);
    int32_t *before = sw_alloc("plan", ((size_t)program->n_instrs + 1) * sizeof *before);
    sw_status st = stored && before
                       ? check_transfers(program, stored, before)
                       : SW_FAIL(SW_E_NOMEM, "out of host memory for checking the plan");
    for (int32_t b = 0; b < program->n_buffers && st >= 0; b++) {
        const struct sw_buffer *buffer = &program->buffers[b];
        const int64_t all = buffer->value < 0 ? 0 : ir->values[buffer->value].form->elems;
        if (program->kind == SW_PROGRAM_TRAIN && buffer->slot_bytes > 0 &&
            stored[buffer->value].n != all) {
            st = SW_FAIL(SW_E_ARG, "plan: a step stores %lld of %lld elements of %s",
                         (long long)stored[buffer->value].n, (long long)all,
                         ir->values[buffer->value].name);
        }
    }
    sw_free(stored);
    sw_free(before);
    return st;
}
