// SPDX-License-Identifier: Apache-2.0
// The work of an instruction: its kind and its amount, in the units of that kind's rate.
#include "plan/private.h"

const char *sw_load_name(enum sw_load kind)
{
    static const char *const names[SW_LOAD_COUNT] = {
        "products_f32", "products_bf16", "products_f16", "other", "copies_in",
        "copies_out",   "disk_read",     "disk_written", "sent",  "host"};
    return names[kind];
}

/* The load of a kernel and its work: FLOPs for products, bytes for all others. */
static enum sw_load kernel_load(const struct sw_ir *ir, const struct sw_ir_op *op, double *out_work)
{
    if (!sw_ir_has(op, SW_TRAIT_PRODUCTS)) {
        *out_work = sw_ir_op_bytes(ir, op);
        return op->on_host ? SW_LOAD_HOST : SW_LOAD_OTHER;
    }
    const enum sw_dtype dtype = ir->values[op->in[sw_op_info(op->kind)->factor]].dtype;
    *out_work = (double)sw_ir_flops(ir, op);
    return dtype == SW_BF16  ? SW_LOAD_PRODUCTS_BF16
           : dtype == SW_F16 ? SW_LOAD_PRODUCTS_F16
                             : SW_LOAD_PRODUCTS_F32;
}

enum sw_load sw_instr_load(const struct sw_plan *plan, const struct sw_program *program, int32_t i,
                           double *out_work)
{
    static const enum sw_load kinds[] = {[SW_VERB_COPY_IN] = SW_LOAD_COPIES_IN,
                                         [SW_VERB_COPY_OUT] = SW_LOAD_COPIES_OUT,
                                         [SW_VERB_READ] = SW_LOAD_DISK_READ,
                                         [SW_VERB_WRITE] = SW_LOAD_DISK_WRITTEN};
    const struct sw_instr *instr = &program->instrs[i];
    if (instr->verb == SW_VERB_KERNEL) {
        return kernel_load(program->ir, &program->ir->ops[instr->op], out_work);
    }
    if (instr->verb >= SW_VERB_REDUCE) { /* bytes travel both ways at once */
        const struct sw_group *group = &plan->groups[instr->exchange.group];
        const struct sw_instr_traffic bytes = sw_instr_traffic(instr, group->n, group->me);
        *out_work = (double)sw_max_i64(bytes.sent, bytes.received);
        return SW_LOAD_SENT;
    }
    const bool copied = instr->verb == SW_VERB_COPY_IN || instr->verb == SW_VERB_COPY_OUT;
    *out_work = (copied ? 2 : 1) * (double)instr->bytes; /* read and written */
    return kinds[instr->verb];
}

int64_t sw_plan_count_ops(const struct sw_plan *plan)
{
    int64_t n = 0;
    for (int p = 0; p < plan->n_programs; p++) {
        n += plan->programs[p].ir->n_ops;
    }
    return n;
}
