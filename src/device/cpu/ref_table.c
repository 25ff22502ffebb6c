// SPDX-License-Identifier: Apache-2.0
// The reference rows: picks the arithmetic type from the operands' dtypes.
#include "device/cpu/ref.h"

static bool any_f64(const struct sw_op_desc *desc)
{
    for (int i = 0; i < desc->op->n_in; i++) {
        if (desc->in[i].shape.rank >= 0 && desc->in[i].dtype == SW_F64) {
            return true;
        }
    }
    for (int i = 0; i < desc->op->n_out; i++) {
        if (desc->out[i].shape.rank >= 0 && desc->out[i].dtype == SW_F64) {
            return true;
        }
    }
    return false;
}

static const struct ref_kernel *kernel_for(const struct sw_op_desc *desc)
{
    const enum sw_op_kind kind = desc->op->kind;
    if (sw_cpu_ref_move[kind].run) {
        return &sw_cpu_ref_move[kind];
    }
    return any_f64(desc) ? &sw_cpu_ref_f64[kind] : &sw_cpu_ref_f32[kind];
}

static void query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    const struct ref_kernel *kernel = kernel_for(desc);
    if (!kernel->run || (desc->op->kind == SW_OP_USER && !desc->op->user->kernel)) {
        return;
    }
    out->supported = true;
    out->path = "reference";
    if (kernel->workspace_bytes) {
        out->workspace_bytes = kernel->workspace_bytes(desc, sw_pool_threads(dev->pool));
    }
}

static void run(const struct cpu_call *call)
{
    kernel_for(call->desc)->run(call);
}

/* One row serves every kind, since the op carries the details. A view has no kernel. */
// clang-format off
const struct cpu_kernel sw_cpu_reference_rows[SW_N_OP_KINDS] = {
#define REFERENCE_ROW(kind, text)                                                                  \
    [SW_OP_##kind] = {.name = "reference", .query = query, .run = run},
    SW_OP_LIST(REFERENCE_ROW)
#undef REFERENCE_ROW
};
// clang-format on
