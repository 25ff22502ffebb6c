// SPDX-License-Identifier: Apache-2.0
// PREFERENCE and its gradient: losses between the rows of a micro-batch.
#include "device/gpu/gpu.h"

enum { THREADS = 256 };

static int input_x(const struct sw_op *op)
{
    return op->kind == SW_OP_PREFERENCE ? 0 : 1;
}

static void query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    (void)dev;
    const int i_x = input_x(desc->op);
    out->supported = desc->in[0].dtype == SW_F32 && desc->in[i_x].dtype == SW_F32;
    out->workspace_bytes = 2 * (size_t)desc->in[i_x].shape.dims[0] * sizeof(double);
}

static sw_status run(const struct gpu_call *call)
{
    const struct sw_preference_attrs *attrs = &call->desc->op->attrs.preference;
    const int i_x = input_x(call->desc->op);
    const struct sw_view *x = &call->desc->in[i_x];
    const int64_t rows = x->shape.dims[0];
    struct gpu_preference_args args = {
        .x = call->in[i_x],
        .counts = call->in[i_x + 1],
        .reference = attrs->has_reference ? call->in[i_x + 2] : NULL,
        .kinds = attrs->has_kinds ? call->in[i_x + 2 + attrs->has_reference] : NULL,
        .value = call->workspace,
        .count = (double *)call->workspace + rows,
        .rows = rows,
        .width = gpu_elems(x) / rows,
        .beta = attrs->beta,
        .smoothing = attrs->smoothing,
        .desirable = attrs->desirable,
        .undesirable = attrs->undesirable,
        .kind = (int)attrs->kind,
        .mean = attrs->mean,
    };
    GPU_LAUNCH(call, preference_values, SW_GPU_PLAIN, sw_gpu_grid_for(rows, THREADS), &args);
    if (i_x == 0) {
        args.sum = call->out[0];
        args.n = call->out[1];
        args.values = call->out[2];
        args.totals = call->out[3];
        GPU_LAUNCH(call, preference, SW_GPU_PLAIN, (struct gpu_grid){.x = 1}, &args);
    } else {
        args.dsum = call->in[0];
        args.dx = call->out[0];
        GPU_LAUNCH(call, preference_grad, SW_GPU_PLAIN, sw_gpu_grid_for(rows, THREADS), &args);
    }
    return SW_OK;
}
const struct gpu_op sw_gpu_preference = {.query = query, .run = run};
