// SPDX-License-Identifier: Apache-2.0
// Verifies what takes two places in turn: a step reads the one that counts, and writes the other, every element of it
// once, since what it left out would come back from the step before the last. It loads nothing that it has stored: that would
// be the old value.
#include "plan/private.h"

struct range { /* what has been stored; [first, end) covers it */
    int64_t first, end, n;
};

static bool met_before(const struct sw_program *program, int32_t i)
{
    const struct sw_ir *ir = program->ir;
    const struct sw_ir_op *op = &ir->ops[program->instrs[i].op];
    for (int32_t k = 0; k < i; k++) {
        const struct sw_ir_op *before = &ir->ops[program->instrs[k].op];
        if (before->move == SW_MOVE_STORE && sw_transfers_overlap(ir, op, before)) {
            return true;
        }
    }
    return false;
}

static sw_status check_transfers(const struct sw_program *program, struct range *stored)
{
    const struct sw_ir *ir = program->ir;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[i].op];
        const sw_value home = sw_ir_is_transfer(op) ? sw_ir_root(ir, op->in[0]) : -1;
        if (home < 0 || program->buffers[program->buffer_of[home]].slot_bytes == 0) {
            continue;
        }
        struct range *r = &stored[home];
        int64_t first;
        const int64_t n = sw_transfer_elems(ir, op, &first);
        if (first < r->end && r->first < first + n && met_before(program, i)) {
            return SW_FAIL(SW_E_ARG,
                           "plan: instruction %d (%s of %s) meets what the step has stored", i,
                           sw_ir_op_name(op), ir->values[home].name);
        }
        if (op->move == SW_MOVE_STORE) {
            r->first = r->n == 0 ? first : sw_min_i64(r->first, first);
            r->end = sw_max_i64(r->end, first + n);
            r->n += n;
        }
    }
    return SW_OK;
}

sw_status sw_plan_check_places(const struct sw_program *program)
{
    const struct sw_ir *ir = program->ir;
    struct range *stored = sw_alloc_zero("plan", (size_t)ir->n_values + 1, sizeof *stored);
    SW_TRY_ALLOC(stored, "checking the plan");
    sw_status st = check_transfers(program, stored);
    for (int32_t b = 0; b < program->n_buffers && st >= 0; b++) {
        const struct sw_buffer *buffer = &program->buffers[b];
        const int64_t all =
            buffer->value < 0 ? 0 : sw_shape_elems(&ir->values[buffer->value].shape);
        if (program->kind == SW_PROGRAM_TRAIN && buffer->slot_bytes > 0 &&
            stored[buffer->value].n != all) {
            st = SW_FAIL(SW_E_ARG, "plan: a step stores %lld of %lld elements of %s",
                         (long long)stored[buffer->value].n, (long long)all,
                         ir->values[buffer->value].name);
        }
    }
    sw_free(stored);
    return st;
}
