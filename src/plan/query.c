// SPDX-License-Identifier: Apache-2.0
// Questions about ops and programs that several passes ask.
#include "plan/private.h"

enum sw_segment sw_op_segment(const struct sw_ir_op *op)
{
    return op->in_backward ? SW_SEGMENT_BACKWARD
           : op->commits   ? SW_SEGMENT_COMMIT
                           : (enum sw_segment)op->phase;
}

int64_t sw_ir_block_segment(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    int32_t scope = op->scope;
    while (scope >= 0 && !ir->scopes[scope].is_block) {
        scope = ir->scopes[scope].parent;
    }
    const int64_t place = scope >= 0 ? scope : ir->n_scopes + op->scope;
    return place * SW_SEGMENT_COUNT + (int64_t)sw_op_segment(op);
}

size_t sw_program_address(const struct sw_program *program, sw_value v)
{
    const struct sw_ir_value *info = &program->ir->values[v];
    const int32_t buffer = program->buffer_of[sw_ir_root(program->ir, v)];
    SW_ASSERT(buffer >= 0);
    return program->buffers[buffer].offset +
           (size_t)info->base_offset * sw_dtype_bytes(info->dtype);
}

struct sw_transfers sw_plan_transfers(const struct sw_plan *plan, int64_t rounds)
{
    const struct sw_program *program = &plan->programs[0];
    const struct sw_ir *ir = program->ir;
    struct sw_transfers sum = {0};
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[i].op];
        const bool once = op->phase == SW_PHASE_UPDATE || program->micro_batches > 1;
        const int64_t times = once ? 1 : rounds;
        if (sw_ir_is_transfer(op)) {
            const struct sw_ir_value *home = &ir->values[sw_ir_root(ir, op->in[0])];
            (op->move == SW_MOVE_LOAD ? sum.in : sum.out)[home->tier] +=
                times * (int64_t)sw_transfer_bytes(ir, op);
        }
    }
    return sum;
}

const struct sw_ir_op *sw_program_peak(const struct sw_program *program)
{
    return &program->ir->ops[program->instrs[program->peak.instr].op];
}
