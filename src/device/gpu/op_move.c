// SPDX-License-Identifier: Apache-2.0
// Ops that move elements unchanged, and ops on integers. Bytes are moved in the largest units that
// rows and addresses allow. Only addresses decide, never the data.
#include "device/gpu/gpu.h"

enum { THREADS = 256, UNIT = 16 };

static void query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = desc->in[0].dtype == desc->out[0].dtype;
}

static void kv_append_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                            struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = desc->in[0].dtype == desc->in[1].dtype;
}

/* Indices in; floats of any two types. */
static void query_floats(const struct gpu_device *dev, const struct sw_op_desc *desc,
                         struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = sw_gpu_all_floats(desc->in, 1) && sw_gpu_all_floats(desc->out, 1);
}

/* The largest power of two that divides all of them, at most 16. */
static int unit_of(uint64_t bits)
{
    int unit = UNIT;
    while (bits % (uint64_t)unit != 0) {
        unit /= 2;
    }
    return unit;
}

static uint64_t address(const void *at)
{
    return (uint64_t)(uintptr_t)at;
}

static int64_t elem_bytes(const struct sw_view *view)
{
    return (int64_t)sw_dtype_bytes(view->dtype);
}

static int64_t row_bytes(const struct sw_view *view)
{
    return sw_shape_last(&view->shape) * elem_bytes(view);
}

/* A grid with as many warps as rows. */
static struct gpu_grid grid_of_rows(const struct gpu_call *call, int64_t n_rows)
{
    return sw_gpu_grid_for(n_rows * call->dev->facts.warp, THREADS);
}

/* ---- contiguous ---- */

/* Drops dims of 1 and merges contiguous neighbours; keeps at least one dim. */
static int merge_dims(const struct sw_view *x, int64_t *dims, int64_t *strides)
{
    int rank = 0;
    for (int d = 0; d < x->shape.rank; d++) {
        const int64_t n = x->shape.dims[d], stride = x->strides[d];
        if (n == 1) {
            continue;
        }
        if (rank > 0 && strides[rank - 1] == n * stride) {
            dims[rank - 1] *= n;
            strides[rank - 1] = stride;
        } else {
            dims[rank] = n;
            strides[rank++] = stride;
        }
    }
    if (rank == 0) {
        dims[rank] = 1;
        strides[rank++] = 1;
    }
    return rank;
}

static sw_status contiguous(const struct gpu_call *call)
{
    const struct sw_view *x = &call->desc->in[0];
    const int64_t bytes = elem_bytes(x);
    struct gpu_contiguous_args args = {.x = call->in[0], .y = call->out[0]};
    args.rank = merge_dims(x, args.dims, args.strides);
    const int last = args.rank - 1;
    int64_t elems = 1; /* elements per unit */
    if (args.strides[last] == 1) {
        uint64_t all = address(args.x) | address(args.y) | (uint64_t)(args.dims[last] * bytes);
        for (int d = 0; d < last; d++) {
            all |= (uint64_t)(args.strides[d] * bytes);
        }
        elems = sw_max_i64(1, unit_of(all) / bytes);
        args.dims[last] /= elems;
        for (int d = 0; d < last; d++) {
            args.strides[d] /= elems;
        }
    }
    args.n = gpu_elems(x) / elems;
    args.unit = (int)(elems * bytes);
    GPU_LAUNCH(call, contiguous, SW_GPU_PLAIN, sw_gpu_grid_for(args.n, THREADS), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_contiguous = {.query = query, .run = contiguous};

/* ---- rows ---- */

/* A quiet NaN; two of them for 16-bit elements. */
static uint32_t nan_bits(enum sw_dtype dtype)
{
    return dtype == SW_BF16  ? UINT32_C(0x7fc07fc0)
           : dtype == SW_F16 ? UINT32_C(0x7e007e00)
                             : UINT32_C(0x7fc00000);
}

static sw_status embedding(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    const struct sw_tile_attrs *tile = &desc->op->attrs.embedding.tile;
    struct gpu_embedding_args args = {
        .table = call->in[0],
        .ids = call->in[1],
        .y = call->out[0],
        .n_tokens = gpu_elems(&desc->in[1]),
        .n_rows = desc->in[0].shape.dims[0],
        .row_bytes = row_bytes(&desc->in[0]),
        .first = tile->first,
        .later = tile->continues,
        .other = desc->op->attrs.embedding.whole > 0 ? 0 : nan_bits(desc->in[0].dtype),
    };
    args.unit = unit_of(address(args.table) | address(args.y) | (uint64_t)args.row_bytes);
    GPU_LAUNCH(call, embedding, SW_GPU_PLAIN, grid_of_rows(call, args.n_tokens), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_embedding = {.query = query, .run = embedding};

static sw_status densify(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    struct gpu_densify_args args = {
        .rows = call->in[0],
        .index = call->in[1],
        .y = call->out[0],
        .n = sw_shape_rows(&desc->in[0].shape),
        .n_rows = desc->out[0].shape.dims[0],
        .row_bytes = row_bytes(&desc->in[0]),
    };
    args.unit = unit_of(address(args.rows) | address(args.y) | (uint64_t)args.row_bytes);
    GPU_LAUNCH(call, densify, SW_GPU_PLAIN, grid_of_rows(call, args.n_rows), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_densify = {.query = query, .run = densify};

static sw_status select_index(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    struct gpu_select_index_args args = {
        .rows = call->in[0],
        .index = call->in[1],
        .y = call->out[0],
        .y_index = call->out[1],
        .n = desc->in[0].shape.dims[0],
        .n_out = desc->out[0].shape.dims[0],
        .first = desc->op->attrs.select_index.first,
        .n_wanted = desc->op->attrs.select_index.n,
        .row_bytes = row_bytes(&desc->in[0]),
    };
    args.unit = unit_of(address(args.rows) | address(args.y) | (uint64_t)args.row_bytes);
    GPU_LAUNCH(call, select_index, SW_GPU_PLAIN, grid_of_rows(call, args.n_out), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_select_index = {.query = query, .run = select_index};

static sw_status select_rows(const struct gpu_call *call)
{
    const struct sw_view *x = &call->desc->in[0];
    struct gpu_select_rows_args args = {
        .x = call->in[0],
        .index = call->in[1],
        .y = call->out[0],
        .batch = x->shape.dims[0],
        .tokens = x->shape.dims[1],
        .row_bytes = row_bytes(x),
    };
    args.unit = unit_of(address(args.x) | address(args.y) | (uint64_t)args.row_bytes);
    GPU_LAUNCH(call, select_rows, SW_GPU_PLAIN, grid_of_rows(call, args.batch), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_select_rows = {.query = query, .run = select_rows};

static sw_status select_rows_grad(const struct gpu_call *call)
{
    const struct sw_view *dx = &call->desc->out[0];
    struct gpu_select_rows_grad_args args = {
        .dy = call->in[0],
        .index = call->in[1],
        .dx = call->out[0],
        .batch = dx->shape.dims[0],
        .tokens = dx->shape.dims[1],
        .width = dx->shape.dims[2],
        .out_type = (int)sw_gpu_type_of(dx->dtype),
    };
    GPU_LAUNCH(call, select_rows_grad, sw_gpu_type_of(call->desc->in[0].dtype),
               grid_of_rows(call, args.batch * args.tokens), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_select_rows_grad = {.query = query_floats, .run = select_rows_grad};

static sw_status slice_grad(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    const struct sw_view *dx = &desc->out[0];
    const int dim = desc->op->attrs.slice.dim;
    int64_t inner = 1;
    for (int d = dim + 1; d < dx->shape.rank; d++) {
        inner *= dx->shape.dims[d];
    }
    struct gpu_slice_grad_args args = {
        .dy = call->in[0],
        .dx = call->out[0],
        .n = gpu_elems(dx),
        .whole = dx->shape.dims[dim] * inner,
        .run = desc->in[0].shape.dims[dim] * inner,
        .start = desc->op->attrs.slice.start * inner,
        .out_type = (int)sw_gpu_type_of(dx->dtype),
    };
    GPU_LAUNCH(call, slice_grad, sw_gpu_type_of(desc->in[0].dtype),
               sw_gpu_grid_for(args.n, THREADS), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_slice_grad = {.query = query_floats, .run = slice_grad};

/* Moves rows in larger units if their elements are contiguous. */
static sw_status kv_append(const struct gpu_call *call)
{
    const struct sw_view *cache = &call->desc->in[0], *x = &call->desc->in[1];
    const int64_t bytes = elem_bytes(x);
    struct gpu_kv_append_args args = {
        .x = call->in[1],
        .cache = call->in[0],
        .position = call->in[2],
        .batch = x->shape.dims[0],
        .tokens = x->shape.dims[1],
        .rows = cache->shape.dims[1],
    };
    int64_t elems = 1; /* elements per unit */
    if (x->strides[2] == 1 && cache->strides[2] == 1) {
        const int64_t all = x->shape.dims[2] | x->strides[0] | x->strides[1] | cache->strides[0] |
                            cache->strides[1];
        const int unit = unit_of(address(args.x) | address(args.cache) | (uint64_t)(all * bytes));
        elems = sw_max_i64(1, unit / bytes);
    }
    args.width = x->shape.dims[2] / elems;
    for (int d = 0; d < 3; d++) {
        args.x_strides[d] = d < 2 ? x->strides[d] / elems : x->strides[d];
        args.cache_strides[d] = d < 2 ? cache->strides[d] / elems : cache->strides[d];
    }
    args.unit = (int)(elems * bytes);
    GPU_LAUNCH(call, kv_append, SW_GPU_PLAIN,
               sw_gpu_grid_for(args.batch * args.tokens * args.width, THREADS), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_kv_append = {.query = kv_append_query, .run = kv_append};

/* ---- integers ---- */

static sw_status last_index(const struct gpu_call *call)
{
    const struct sw_shape *shape = &call->desc->in[0].shape;
    struct gpu_last_index_args args = {
        .ids = call->in[0],
        .y = call->out[0],
        .batch = shape->dims[0],
        .tokens = shape->dims[1],
        .padding = call->desc->op->attrs.last_index.padding_id,
        .is_value = call->desc->op->attrs.last_index.is_value,
    };
    GPU_LAUNCH(call, last_index, SW_GPU_PLAIN, grid_of_rows(call, args.batch), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_last_index = {.query = query, .run = last_index};

static sw_status positions(const struct gpu_call *call)
{
    const struct sw_shape *shape = &call->desc->in[0].shape;
    const struct sw_op *op = call->desc->op;
    struct gpu_positions_args args = {
        .x = call->in[0],
        .y = call->out[0],
        .n_rows = sw_shape_rows(shape),
        .width = sw_shape_last(shape),
        .offset = op->attrs.positions.offset,
        .counted = op->attrs.positions.counted,
    };
    GPU_LAUNCH(call, positions, SW_GPU_PLAIN, grid_of_rows(call, args.n_rows), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_positions = {.query = query, .run = positions};
