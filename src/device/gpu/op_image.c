// SPDX-License-Identifier: Apache-2.0
// Windows over images.
#include "device/gpu/gpu.h"

enum { THREADS = 256 };

/* The inputs have one float type; a gradient may have another. */
static void query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    (void)dev;
    out->supported =
        sw_gpu_all_floats(desc->in, desc->op->n_in) && gpu_is_float(desc->out[0].dtype);
}

static sw_status image(const struct gpu_call *call)
{
    static const struct {
        enum sw_gpu_kernel_id id;
        int x, d; /* indices of the inputs, -1 = none: then the output is the image */
    } kernels[SW_N_OP_KINDS] = {
        [SW_OP_IM2COL] = {GPU_im2col, 0, -1},
        [SW_OP_COL2IM] = {GPU_col2im, -1, 0},
        [SW_OP_POOL] = {GPU_pool, 0, -1},
        [SW_OP_POOL_GRAD] = {GPU_pool_grad, 1, 0},
    };
    const struct sw_op_desc *desc = call->desc;
    const struct sw_window_attrs *w = &desc->op->attrs.window;
    const int i_x = kernels[desc->op->kind].x, i_d = kernels[desc->op->kind].d;
    struct sw_view x;
    sw_image_view(i_x >= 0 ? &desc->in[i_x] : &desc->out[0], &x);
    struct gpu_image_args args = {
        .x = i_x >= 0 ? call->in[i_x] : NULL,
        .d = i_d >= 0 ? call->in[i_d] : NULL,
        .y = call->out[0],
        .batch = x.shape.dims[0],
        .channels = x.shape.dims[1],
        .mean = w->mean,
        .out_type = (int)sw_gpu_type_of(desc->out[0].dtype),
    };
    for (int d = 0; d < 4; d++) {
        args.strides[d] = x.strides[d];
    }
    for (int d = 0; d < 2; d++) {
        args.size[d] = x.shape.dims[2 + d];
        args.places[d] = sw_window_places(w, d, args.size[d]);
        args.kernel[d] = w->kernel[d];
        args.stride[d] = w->stride[d];
        args.padding[d] = w->padding[d];
    }
    return sw_gpu_run_kernel(call, kernels[desc->op->kind].id, sw_gpu_type_of(desc->in[0].dtype),
                             sw_gpu_grid_for(gpu_elems(&desc->out[0]), THREADS), 0, &args,
                             sizeof args);
}
const struct gpu_op sw_gpu_image = {.query = query, .run = image};
