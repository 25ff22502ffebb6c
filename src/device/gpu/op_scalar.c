// SPDX-License-Identifier: Apache-2.0
// Scalar ops around the loss.
#include "device/gpu/gpu.h"

static void seed_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = sw_gpu_all_floats(desc->out, 1);
}

static sw_status seed(const struct gpu_call *call)
{
    struct gpu_seed_args args = {.scalar = call->scalars + SW_SCALAR_LOSS_SCALE,
                                 .y = call->out[0],
                                 .out_type = (int)sw_gpu_type_of(call->desc->out[0].dtype)};
    GPU_LAUNCH(call, seed, SW_GPU_PLAIN, (struct gpu_grid){.x = 1}, &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_seed = {.query = seed_query, .run = seed};

static void loss_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    (void)dev;
    out->supported =
        desc->in[0].dtype == SW_F32 && desc->in[1].dtype == SW_F32 && desc->out[0].dtype == SW_F32;
}

static sw_status loss_mean(const struct gpu_call *call)
{
    struct gpu_loss_mean_args args = {.x = call->in[0],
                                      .count = call->in[1],
                                      .y = call->out[0],
                                      .weight = (float)call->desc->op->attrs.loss_mean.weight};
    if (call->desc->op->kind == SW_OP_LOSS_MEAN) {
        GPU_LAUNCH(call, loss_mean, SW_GPU_PLAIN, (struct gpu_grid){.x = 1}, &args);
    } else {
        GPU_LAUNCH(call, loss_mean_grad, SW_GPU_PLAIN, (struct gpu_grid){.x = 1}, &args);
    }
    return SW_OK;
}
const struct gpu_op sw_gpu_loss_mean = {.query = loss_query, .run = loss_mean};
