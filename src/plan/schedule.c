// SPDX-License-Identifier: Apache-2.0
// From the ops of a graph to instructions: what nobody reads is left out, views vanish, each op
// gets a queue, a segment and a kernel, and gradients are accumulated as soon as they are final.
#include <string.h>

#include "plan/private.h"

static bool has_effect(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    if (sw_ir_has(op, SW_TRAIT_SKIP)) {
        return true; /* writes the scalar table */
    }
    for (int k = 0; k < op->n_out; k++) {
        if (op->out[k] < 0) {
            continue;
        }
        const struct sw_ir_value *info = &ir->values[op->out[k]];
        const enum sw_role role = ir->values[sw_ir_root(ir, op->out[k])].role;
        if (info->is_output ||
            (!sw_ir_has(op, SW_TRAIT_VIEW) && (role == SW_ROLE_PARAM || role == SW_ROLE_STATE))) {
            return true;
        }
    }
    return false;
}

/* live[i]: op i has an effect, or feeds one that has. */
static bool *find_live(const struct sw_ir *ir)
{
    bool *live = sw_alloc_zero("plan", (size_t)ir->n_ops + 1, sizeof *live);
    for (int32_t i = ir->n_ops - 1; live && i >= 0; i--) {
        if (!live[i] && !has_effect(ir, &ir->ops[i])) {
            continue;
        }
        live[i] = true;
        for (int k = 0; k < ir->ops[i].n_in; k++) {
            const int32_t producer = ir->values[ir->ops[i].in[k]].producer;
            if (producer >= 0) {
                live[producer] = true;
            }
        }
    }
    return live;
}

enum sw_segment sw_op_segment(const struct sw_ir_op *op)
{
    return op->in_backward ? SW_SEGMENT_BACKWARD
           : op->commits   ? SW_SEGMENT_COMMIT
                           : (enum sw_segment)op->phase;
}

static sw_status add_instr(struct sw_program *program, const struct sw_plan_options *options,
                           int32_t i_op)
{
    const struct sw_ir_op *op = &program->ir->ops[i_op];
    struct sw_instr *instr = &program->instrs[program->n_instrs];
    *instr = (struct sw_instr){.op = i_op,
                               .queue = SW_QUEUE_COMPUTE,
                               .segment = sw_op_segment(op),
                               .unless_skipped = op->unless_skipped,
                               .last_only = op->in_backward,
                               .waits = {-1, -1, -1, -1, -1, -1},
                               .retired = -1,
                               .group = sw_ir_is_collective(op),
                               .blocking = sw_ir_is_collective(op),
                               .workspace = -1};
    if (sw_ir_is_transfer(op)) {
        instr->queue = sw_transfer_queue(program->ir, op);
        instr->kernel = (struct sw_kernel_info){.supported = true, .path = "transfer"};
        program->n_instrs++;
        return SW_OK;
    }
    if (sw_ir_is_collective(op)) {
        instr->queue = SW_QUEUE_COMM;
        instr->kernel = (struct sw_kernel_info){
            .supported = true,
            .path = "collective",
            .workspace_bytes = sw_collective_workspace(program->ir, op, options->ranks)};
        program->n_instrs++;
        return SW_OK;
    }
    struct sw_op math;
    struct sw_op_desc desc;
    sw_ir_describe(program->ir, op, &math, &desc);
    options->query(options->query_ctx, &desc, &instr->kernel);
    if (!instr->kernel.supported) {
        return SW_FAIL(SW_E_UNSUP, "no kernel on this device for %s (%s) in %s", sw_ir_op_name(op),
                       op->n_in > 0 ? sw_dtype_name(desc.in[0].dtype) : "no input",
                       sw_ir_where(program->ir, op));
    }
    program->flops += sw_ir_flops(program->ir, op);
    program->n_instrs++;
    return SW_OK;
}

void sw_program_find_segments(struct sw_program *program)
{
    int32_t i = 0;
    for (int s = 0; s < SW_SEGMENT_COUNT; s++) {
        program->segment_first[s] = i;
        while (i < program->n_instrs && (int)program->instrs[i].segment == s) {
            i++;
        }
    }
    program->segment_first[SW_SEGMENT_COUNT] = i;
}

sw_status sw_pass_schedule(struct sw_program *program, const struct sw_plan_options *options)
{
    const struct sw_ir *ir = program->ir;
    sw_status st = SW_OK;
    const bool noted = sw_ir_note_where(program->ir);
    bool *live = find_live(ir);
    int32_t *after = sw_alloc("plan", ((size_t)ir->n_ops + 1) * sizeof *after);
    program->instrs = sw_alloc_zero("plan", (size_t)ir->n_ops + 1, sizeof *program->instrs);
    if (!noted || !live || !after || !program->instrs) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
        goto done;
    }
    /* after[i]: the accumulation that follows op i at once, so that the gradient's bytes are free;
     * that of its second gradient follows the first. */
    memset(after, 0xff, ((size_t)ir->n_ops + 1) * sizeof *after);
    for (int32_t i = 0; i < ir->n_ops; i++) {
        if (sw_ir_has(&ir->ops[i], SW_TRAIT_SUM) && live[i]) {
            const sw_value grad = sw_ir_root(ir, ir->ops[i].in[1]);
            const int32_t sum = ir->values[ir->ops[i].in[0]].producer;
            const bool loaded = sum >= 0 && ir->ops[sum].move == SW_MOVE_LOAD;
            int32_t at = ir->values[grad].producer;
            if (at < 0 || loaded || ir->ops[at].phase != ir->ops[i].phase) {
                continue;
            }
            while (after[at] >= 0) {
                at = after[at];
            }
            after[at] = i;
            live[i] = false; /* placed by its producer */
        }
    }
    for (int segment = 0; segment < SW_SEGMENT_COUNT; segment++) {
        for (int32_t i = 0; i < ir->n_ops; i++) {
            if (!live[i] || sw_ir_has(&ir->ops[i], SW_TRAIT_VIEW) ||
                sw_op_segment(&ir->ops[i]) != (enum sw_segment)segment) {
                continue;
            }
            SW_TRY_OR(done, add_instr(program, options, i));
            for (int32_t k = after[i]; k >= 0; k = after[k]) {
                SW_TRY_OR(done, add_instr(program, options, k));
            }
        }
    }
    sw_program_find_segments(program);
done:
    sw_free(live);
    sw_free(after);
    return st;
}
