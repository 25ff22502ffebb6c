// SPDX-License-Identifier: Apache-2.0
// ROTARY: rotates the pairs of elements of each head by the angles of its token's position.
#include "device/gpu/gpu.h"

enum { THREADS = 256, PACK = 4 }; /* least pairs per thread if they are packed */

static void query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = sw_gpu_all_floats(desc->in, 1) && desc->in[0].dtype == desc->out[0].dtype &&
                     desc->in[1].dtype == SW_F32 && desc->in[0].strides[3] == 1;
}

static sw_status rotary(const struct gpu_call *call)
{
    const struct sw_view *x = &call->desc->in[0], *table = &call->desc->in[1];
    const struct sw_op *op = call->desc->op;
    struct gpu_rotary_args args = {
        .x = call->in[0],
        .table = call->in[1],
        .positions = call->in[2],
        .y = call->out[0],
        .batch = x->shape.dims[0],
        .tokens = x->shape.dims[1],
        .heads = x->shape.dims[2],
        .width = x->shape.dims[3],
        .half = table->shape.dims[1] / 2,
        .n_positions = table->shape.dims[0],
        .strides = {x->strides[0], x->strides[1], x->strides[2]},
        .by_sample = call->desc->in[2].shape.rank == 2,
        .interleaved = op->attrs.rotary.interleaved,
        .inverse = op->attrs.rotary.inverse,
    };
    GPU_LAUNCH(call, rotary, sw_gpu_type_of(x->dtype),
               sw_gpu_grid_for(sw_ceil_div(gpu_elems(x), 2 * PACK), THREADS), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_rotary = {.query = query, .run = rotary};
