// SPDX-License-Identifier: Apache-2.0
// LSTM. Backward keeps dz of all steps in the workspace for the sums over them.
#include "device/gpu/gpu.h"

enum { THREADS = 256 };

static struct gpu_lstm_args args_of(const struct gpu_call *call, const struct sw_view *y,
                                    int i_mask)
{
    const struct sw_op *op = call->desc->op;
    return (struct gpu_lstm_args){
        .w = call->in[1],
        .mask = op->attrs.lstm.has_mask ? call->in[i_mask] : NULL,
        .batch = y->shape.dims[0],
        .tokens = y->shape.dims[1],
        .hidden = y->shape.dims[2],
        .reverse = op->attrs.lstm.reverse,
    };
}

static void query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = sw_gpu_all_floats(desc->in, 3) && desc->in[0].dtype == desc->out[0].dtype &&
                     desc->out[0].shape.dims[2] <= GPU_LSTM_HIDDEN;
}

static sw_status lstm(const struct gpu_call *call)
{
    struct gpu_lstm_args args = args_of(call, &call->desc->out[0], 3);
    args.x = call->in[0];
    args.bias = call->in[2];
    args.y = call->out[0];
    args.gates = call->out[1];
    args.cells = call->out[2];
    return sw_gpu_run_kernel(call, GPU_lstm, sw_gpu_type_of(call->desc->in[0].dtype),
                             (struct gpu_grid){.x = args.batch},
                             (size_t)(3 * args.hidden) * sizeof(float), &args, sizeof args);
}
const struct gpu_op sw_gpu_lstm = {.query = query, .run = lstm};

static void query_grad(const struct gpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = gpu_is_float(desc->in[0].dtype) && sw_gpu_all_floats(desc->in + 1, 2) &&
                     desc->in[3].dtype == SW_F32 && desc->in[4].dtype == SW_F32 &&
                     sw_shape_last(&desc->in[2].shape) <= GPU_LSTM_HIDDEN;
    for (int k = 0; k < desc->op->n_out; k++) {
        out->supported =
            out->supported && (!gpu_has_output(desc, k) || gpu_is_float(desc->out[k].dtype));
    }
    out->workspace_bytes = (size_t)gpu_elems(&desc->in[3]) * sizeof(float);
}

static int type_of_out(const struct gpu_call *call, int k)
{
    return call->out[k] ? (int)sw_gpu_type_of(call->desc->out[k].dtype) : 0;
}

static sw_status lstm_grad(const struct gpu_call *call)
{
    const enum sw_gpu_type type = sw_gpu_type_of(call->desc->in[1].dtype);
    struct gpu_lstm_args args = args_of(call, &call->desc->in[2], 5);
    args.y = call->in[2];
    args.gates = call->in[3];
    args.cells = call->in[4];
    args.dy = call->in[0];
    args.dy_type = (int)sw_gpu_type_of(call->desc->in[0].dtype);
    args.dz = call->workspace;
    args.dx = call->out[0];
    args.dw = call->out[1];
    args.dbias = call->out[2];
    args.dx_type = type_of_out(call, 0);
    args.dw_type = type_of_out(call, 1);
    args.dbias_type = type_of_out(call, 2);
    SW_TRY(sw_gpu_run_kernel(call, GPU_lstm_steps_back, type, (struct gpu_grid){.x = args.batch},
                             (size_t)(6 * args.hidden) * sizeof(float), &args, sizeof args));
    if (args.dw || args.dbias) {
        GPU_LAUNCH(call, lstm_weights, type,
                   sw_gpu_grid_for(4 * args.hidden * (args.hidden + 1), THREADS), &args);
    }
    return SW_OK;
}
const struct gpu_op sw_gpu_lstm_grad = {.query = query_grad, .run = lstm_grad};
