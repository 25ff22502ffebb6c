// SPDX-License-Identifier: Apache-2.0
// Scores by the distance of key and query, and their gradients.
#include "device/gpu/gpu.h"

enum { THREADS = 256 };

static void query_bias(const struct gpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = gpu_is_float(desc->in[0].dtype) && gpu_is_float(desc->out[0].dtype);
}

static sw_status bias(const struct gpu_call *call)
{
    const bool forward = call->desc->op->kind == SW_OP_RELATIVE_BIAS;
    const struct sw_relative_attrs *attrs = &call->desc->op->attrs.relative;
    const struct sw_shape *rows = forward ? &call->desc->in[0].shape : &call->desc->out[0].shape;
    struct gpu_relative_bias_args args = {
        .x = call->in[0],
        .position = call->desc->op->n_in > 1 ? call->in[1] : NULL,
        .y = call->out[0],
        .heads = rows->dims[1],
        .queries = attrs->queries,
        .keys = attrs->keys,
        .n_rows = rows->dims[0],
        .origin = attrs->origin,
        .out_type = (int)sw_gpu_type_of(call->desc->out[0].dtype),
    };
    if (forward) {
        GPU_LAUNCH(call, relative_bias, sw_gpu_type_of(call->desc->in[0].dtype),
                   sw_gpu_grid_for(gpu_elems(&call->desc->out[0]), THREADS), &args);
    } else {
        GPU_LAUNCH(call, relative_bias_grad, SW_GPU_PLAIN,
                   sw_gpu_grid_for(args.heads * args.n_rows, THREADS), &args);
    }
    return SW_OK;
}
const struct gpu_op sw_gpu_relative_bias = {.query = query_bias, .run = bias};

static void query_scores(const struct gpu_device *dev, const struct sw_op_desc *desc,
                         struct sw_kernel_info *out)
{
    (void)dev;
    const int i_x = desc->op->kind == SW_OP_RELATIVE_SCORES ? 0 : 1;
    out->supported = gpu_is_float(desc->in[i_x].dtype) &&
                     desc->in[i_x].dtype == desc->in[i_x + 1].dtype &&
                     (i_x == 0 ? desc->out[0].dtype : desc->in[0].dtype) == SW_F32;
    for (int k = 0; k < desc->op->n_out; k++) {
        out->supported =
            out->supported && (!gpu_has_output(desc, k) || gpu_is_float(desc->out[k].dtype));
    }
}

static struct gpu_relative_scores_args scores_args(const struct gpu_call *call, int i_x)
{
    const struct sw_shape *x = &call->desc->in[i_x].shape;
    const struct sw_relative_attrs *attrs = &call->desc->op->attrs.relative;
    return (struct gpu_relative_scores_args){
        .x = call->in[i_x],
        .table = call->in[i_x + 1],
        .index = call->in[i_x + 2],
        .d = i_x > 0 ? call->in[0] : NULL,
        .batch = x->dims[0],
        .tokens = x->dims[1],
        .heads = x->dims[2],
        .width = x->dims[3],
        .n_rows = call->desc->in[i_x + 1].shape.dims[0],
        .scale = (float)attrs->scale,
        .by_key = attrs->by_key,
    };
}

static sw_status scores(const struct gpu_call *call)
{
    struct gpu_relative_scores_args args = scores_args(call, 0);
    args.y = call->out[0];
    GPU_LAUNCH(
        call, relative_scores, sw_gpu_type_of(call->desc->in[0].dtype),
        sw_gpu_grid_for(args.batch * args.heads * args.tokens * call->dev->facts.warp, THREADS),
        &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_relative_scores = {.query = query_scores, .run = scores};

static sw_status scores_grad(const struct gpu_call *call)
{
    const enum sw_gpu_type type = sw_gpu_type_of(call->desc->in[1].dtype);
    struct gpu_relative_scores_args args = scores_args(call, 1);
    if (call->out[0]) {
        args.y = call->out[0];
        args.out_type = (int)sw_gpu_type_of(call->desc->out[0].dtype);
        GPU_LAUNCH(call, relative_scores_dx, type,
                   sw_gpu_grid_for(gpu_elems(&call->desc->in[1]), THREADS), &args);
    }
    if (call->out[1]) {
        args.y = call->out[1];
        args.out_type = (int)sw_gpu_type_of(call->desc->out[1].dtype);
        GPU_LAUNCH(call, relative_scores_dtable, type,
                   sw_gpu_grid_for(gpu_elems(&call->desc->in[2]), THREADS), &args);
    }
    return SW_OK;
}
const struct gpu_op sw_gpu_relative_scores_grad = {.query = query_scores, .run = scores_grad};
