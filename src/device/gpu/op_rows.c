// SPDX-License-Identifier: Apache-2.0
// Integers made from ids, rows zeroed by a mask, concatenation of tensors.
#include "device/gpu/gpu.h"

enum { THREADS = 256 };

static void query_integers(const struct gpu_device *dev, const struct sw_op_desc *desc,
                           struct sw_kernel_info *out)
{
    (void)dev;
    (void)desc;
    out->supported = true;
}

static struct gpu_integers_args integers_of(const struct gpu_call *call)
{
    const struct sw_view *x = &call->desc->in[0];
    return (struct gpu_integers_args){
        .x = call->in[0],
        .y = call->out[0],
        .n = gpu_elems(x),
        .tokens = sw_shape_last(&x->shape),
        .value = call->desc->op->attrs.integers.value,
        .pad = call->desc->op->attrs.integers.pad,
    };
}

static sw_status not_equal(const struct gpu_call *call)
{
    struct gpu_integers_args args = integers_of(call);
    GPU_LAUNCH(call, not_equal, SW_GPU_PLAIN, sw_gpu_grid_for(args.n, THREADS), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_not_equal = {.query = query_integers, .run = not_equal};

static sw_status shift_right(const struct gpu_call *call)
{
    struct gpu_integers_args args = integers_of(call);
    GPU_LAUNCH(call, shift_right, SW_GPU_PLAIN, sw_gpu_grid_for(args.n, THREADS), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_shift_right = {.query = query_integers, .run = shift_right};

static sw_status trim(const struct gpu_call *call)
{
    struct gpu_integers_args args = integers_of(call);
    args.lengths = call->in[1];
    GPU_LAUNCH(call, trim, SW_GPU_PLAIN, sw_gpu_grid_for(args.n, THREADS), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_trim = {.query = query_integers, .run = trim};

static void query_inverse_norms(const struct gpu_device *dev, const struct sw_op_desc *desc,
                                struct sw_kernel_info *out)
{
    const enum sw_dtype dtype = desc->in[0].dtype;
    (void)dev;
    out->supported =
        gpu_is_float(dtype) && desc->in[1].dtype == dtype && desc->in[2].dtype == dtype;
}

static sw_status inverse_norms(const struct gpu_call *call)
{
    const struct sw_view *a = &call->desc->in[1], *b = &call->desc->in[2];
    const struct sw_weight_attrs *attrs = &call->desc->op->attrs.weight;
    struct gpu_inverse_norms_args args = {
        .w = call->in[0],
        .a = call->in[1],
        .b = call->in[2],
        .y = call->out[0],
        .rows = b->shape.dims[0],
        .width = sw_shape_last(&a->shape),
        .rank = a->shape.dims[0],
        .factor = (float)attrs->factor,
        .in_out = attrs->in_out,
    };
    GPU_LAUNCH(call, inverse_norms, sw_gpu_type_of(call->desc->in[0].dtype),
               ((struct gpu_grid){.x = args.rows}), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_inverse_norms = {.query = query_inverse_norms, .run = inverse_norms};

/* A float tensor and a mask in; floats of any type out. */
static void query_rows(const struct gpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = gpu_is_float(desc->in[0].dtype) && gpu_is_float(desc->out[0].dtype);
}

static sw_status mask_rows(const struct gpu_call *call)
{
    const struct sw_view *x = &call->desc->in[0];
    struct gpu_mask_rows_args args = {
        .x = call->in[0],
        .mask = call->in[1],
        .y = call->out[0],
        .n_rows = sw_shape_rows(&x->shape),
        .width = sw_shape_last(&x->shape),
        .out_type = (int)sw_gpu_type_of(call->desc->out[0].dtype),
    };
    GPU_LAUNCH(call, mask_rows, sw_gpu_type_of(x->dtype), sw_gpu_grid_for(gpu_elems(x), THREADS),
               &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_mask_rows = {.query = query_rows, .run = mask_rows};

static sw_status masked_mean(const struct gpu_call *call)
{
    const bool forward = call->desc->op->kind == SW_OP_MASKED_MEAN;
    const struct sw_shape *wide = forward ? &call->desc->in[0].shape : &call->desc->out[0].shape;
    struct gpu_masked_mean_args args = {
        .x = call->in[0],
        .mask = call->in[1],
        .y = call->out[0],
        .batch = wide->dims[0],
        .tokens = wide->dims[1],
        .width = wide->dims[2],
        .out_type = (int)sw_gpu_type_of(call->desc->out[0].dtype),
    };
    return sw_gpu_run_kernel(call, forward ? GPU_masked_mean : GPU_masked_mean_grad,
                             sw_gpu_type_of(call->desc->in[0].dtype),
                             sw_gpu_grid_for(args.batch * args.width, THREADS), 0, &args,
                             sizeof args);
}
const struct gpu_op sw_gpu_masked_mean = {.query = query_rows, .run = masked_mean};

static void query_concat(const struct gpu_device *dev, const struct sw_op_desc *desc,
                         struct sw_kernel_info *out)
{
    (void)dev;
    const size_t bytes = sw_dtype_bytes(desc->in[0].dtype);
    out->supported = bytes == 2 || bytes == 4;
}

/* Moves up to 16 bytes at a time, as addresses and lengths allow. */
static sw_status concat(const struct gpu_call *call)
{
    const struct sw_view *y = &call->desc->out[0];
    const int dim = call->desc->op->attrs.slice.dim;
    int64_t outer = 1, inner = (int64_t)sw_dtype_bytes(y->dtype), start = 0;
    for (int d = 0; d < y->shape.rank; d++) {
        *(d < dim ? &outer : &inner) *= d == dim ? 1 : y->shape.dims[d];
    }
    for (int k = 0; k < call->desc->op->n_in; k++) {
        const int64_t run = call->desc->in[k].shape.dims[dim] * inner;
        const int64_t whole = y->shape.dims[dim] * inner;
        const uint64_t all = (uint64_t)(uintptr_t)call->in[k] | (uint64_t)(uintptr_t)call->out[0] |
                             (uint64_t)run | (uint64_t)whole | (uint64_t)start;
        const int unit = all % 16 == 0 ? 16 : (int)sw_dtype_bytes(y->dtype);
        struct gpu_place_run_args args = {
            .x = call->in[k],
            .y = call->out[0],
            .n = outer * run / unit,
            .run = run / unit,
            .whole = whole / unit,
            .start = start / unit,
            .unit = unit,
        };
        GPU_LAUNCH(call, place_run, SW_GPU_PLAIN, sw_gpu_grid_for(args.n, THREADS), &args);
        start += run;
    }
    return SW_OK;
}
const struct gpu_op sw_gpu_concat = {.query = query_concat, .run = concat};
