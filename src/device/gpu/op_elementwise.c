// SPDX-License-Identifier: Apache-2.0
// Ops whose output elements depend on the elements at their place alone.
#include "device/gpu/gpu.h"

static void query_any(const struct gpu_device *dev, const struct sw_op_desc *desc,
                      struct sw_kernel_info *out)
{
    (void)dev;
    (void)desc;
    out->supported = true;
}

static sw_status add(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    struct gpu_add_args args = {.a = call->in[0],
                                .b = call->in[1],
                                .y = call->out[0],
                                .n = gpu_elems(&desc->out[0]),
                                .n_b = gpu_elems(&desc->in[1])};
    GPU_LAUNCH(call, add, sw_gpu_type_of(desc->out[0].dtype), sw_gpu_grid_for(args.n, 256), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_add = {.query = query_any, .run = add};

static sw_status scale(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    struct gpu_scale_args args = {.x = call->in[0],
                                  .y = call->out[0],
                                  .n = gpu_elems(&desc->out[0]),
                                  .factor = (float)desc->op->attrs.scale.factor};
    GPU_LAUNCH(call, scale, sw_gpu_type_of(desc->out[0].dtype), sw_gpu_grid_for(args.n, 256),
               &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_scale = {.query = query_any, .run = scale};
