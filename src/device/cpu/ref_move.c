// SPDX-License-Identifier: Apache-2.0
// Reference kernels that only move elements, or work on integers and scalars: copies, conversions,
// selections, the key-value cache, the final statistics, a user's own op.
#include "device/cpu/ref.h"
#include "device/quantized.h"

#include <math.h>
#include <string.h>

/* ---- contiguous: any strides -> row-major; an item is a row of the last dim ---- */

static void contiguous_item(void *ctx, int64_t row, int i_worker)
{
    (void)i_worker;
    const struct cpu_call *call = ctx;
    const struct sw_view *x = &call->desc->in[0];
    const size_t bytes = sw_dtype_bytes(x->dtype);
    const int rank = x->shape.rank;
    const int64_t width = sw_shape_last(&x->shape);
    const int64_t stride = rank > 0 ? x->strides[rank - 1] : 1;
    int64_t at = 0, rest = row;
    for (int d = rank - 2; d >= 0; d--) {
        at += rest % x->shape.dims[d] * x->strides[d];
        rest /= x->shape.dims[d];
    }
    const char *src = (const char *)call->in[0] + at * (int64_t)bytes;
    char *dst = (char *)call->out[0] + row * width * (int64_t)bytes;
    if (stride == 1) {
        memcpy(dst, src, (size_t)width * bytes);
        return;
    }
    for (int64_t c = 0; c < width; c++) {
        memcpy(dst + c * (int64_t)bytes, src + c * stride * (int64_t)bytes, bytes);
    }
}

static void contiguous(const struct cpu_call *call)
{
    if (sw_shape_elems(&call->desc->in[0].shape) > 0) {
        ref_items(call, sw_shape_rows(&call->desc->in[0].shape), contiguous_item);
    }
}

static void cast_item(void *ctx, int64_t i_block, int i_worker)
{
    (void)i_worker;
    const struct cpu_call *call = ctx;
    const struct ref_tensor x = ref_in(call, 0), out = ref_out(call, 0);
    const int64_t start = i_block * REF_BLOCK;
    const int64_t end = ref_block_end(i_block, sw_shape_elems(&call->desc->in[0].shape));
    sw_convert(out.dtype, (char *)out.data + (size_t)start * sw_dtype_bytes(out.dtype), x.dtype,
               (const char *)x.data + (size_t)start * sw_dtype_bytes(x.dtype), end - start);
}

static void cast(const struct cpu_call *call)
{
    ref_items(call, sw_ceil_div(sw_shape_elems(&call->desc->in[0].shape), REF_BLOCK), cast_item);
}

/* ---- dequantize ---- */

static void dequantize_item(void *ctx, int64_t i_block, int i_worker)
{
    (void)i_worker;
    const struct cpu_call *call = ctx;
    const struct sw_weight_attrs *attrs = &call->desc->op->attrs.weight;
    const struct sw_quantized weight = sw_quantized_weight(attrs, call->in);
    const int64_t start = i_block * REF_BLOCK;
    sw_quantized_decode(&weight, start,
                        ref_block_end(i_block, attrs->rows * attrs->columns) - start, attrs->to,
                        (char *)call->out[0] + (size_t)start * sw_dtype_bytes(attrs->to));
}

static void dequantize(const struct cpu_call *call)
{
    const struct sw_weight_attrs *attrs = &call->desc->op->attrs.weight;
    ref_items(call, sw_ceil_div(attrs->rows * attrs->columns, REF_BLOCK), dequantize_item);
}

/* The whole weight is decoded in the workspace. */
static size_t decoded_bytes(const struct sw_op_desc *desc, int threads)
{
    const struct sw_weight_attrs *attrs = &desc->op->attrs.weight;
    (void)threads;
    return (size_t)(attrs->rows * attrs->columns) * sw_dtype_bytes(attrs->to);
}

static void quantized_matmul(const struct cpu_call *call)
{
    const struct sw_weight_attrs *weight = &call->desc->op->attrs.weight;
    const struct sw_quantized_blocks all = sw_quantized_blocks_of(call->desc, SIZE_MAX);
    const struct sw_op decode = {.kind = SW_OP_DEQUANTIZE, .attrs = {.weight = *weight}};
    struct sw_op_desc desc = {.op = &decode};
    const struct sw_quantized_operands operands =
        sw_quantized_operands_of(call->desc, call->in, call->out, call->workspace, 0);
    void *const decoded[1] = {call->workspace};
    struct cpu_call inner = *call;
    inner.desc = &desc;
    inner.in = call->in + 1;
    inner.out = decoded;
    dequantize(&inner);
    struct sw_op product;
    sw_quantized_product(call->desc, all.columns, &product, &desc);
    inner.in = operands.in;
    inner.out = operands.out;
    (weight->to == SW_F64 ? sw_cpu_ref_f64 : sw_cpu_ref_f32)[SW_OP_MATMUL].run(&inner);
}

/* ---- rows ---- */

static void last_index(const struct cpu_call *call)
{
    const int64_t batch = call->desc->in[0].shape.dims[0], tokens = call->desc->in[0].shape.dims[1];
    const int64_t pad = call->desc->op->attrs.last_index.padding_id;
    const bool is_value = call->desc->op->attrs.last_index.is_value;
    const int32_t *ids = call->in[0];
    int32_t *out = call->out[0];
    for (int64_t b = 0; b < batch; b++) {
        int64_t t = tokens - 1;
        while (t > 0 &&
               (is_value ? ids[b * tokens + t] != pad : pad >= 0 && ids[b * tokens + t] == pad)) {
            t--;
        }
        out[b] = (int32_t)sw_max_i64(t, 0);
    }
}

static void positions(const struct cpu_call *call)
{
    const struct sw_shape *shape = &call->desc->in[0].shape;
    const struct sw_op *op = call->desc->op;
    const int32_t *x = call->in[0];
    int32_t *out = call->out[0], sum = 0;
    const int64_t tokens = op->attrs.positions.counted ? shape->dims[1] : 1;
    for (int64_t i = 0; i < sw_shape_elems(shape); i++) {
        sum = i % tokens == 0 ? x[i] : sum + x[i];
        out[i] = (int32_t)((op->attrs.positions.counted ? (int64_t)x[i] * sum - 1 : x[i]) +
                           op->attrs.positions.offset);
    }
}

static void not_equal(const struct cpu_call *call)
{
    const int64_t value = call->desc->op->attrs.integers.value;
    const int32_t *x = call->in[0];
    int32_t *out = call->out[0];
    for (int64_t i = 0; i < sw_shape_elems(&call->desc->in[0].shape); i++) {
        out[i] = x[i] != value;
    }
}

static void trim(const struct cpu_call *call)
{
    const int64_t tokens = call->desc->in[0].shape.dims[1];
    const int32_t *ids = call->in[0], *lengths = call->in[1];
    int32_t *out = call->out[0];
    for (int64_t i = 0; i < sw_shape_elems(&call->desc->in[0].shape); i++) {
        out[i] = i % tokens < lengths[i / tokens] ? ids[i] : -1;
    }
}

enum { NO_LABEL = -100 };

/* A row's last id that is neither padding nor ignored, which follow the others; else padding. */
static int64_t last_of_row(const int32_t *ids, int64_t tokens, int64_t pad)
{
    int64_t n = 0;
    for (int64_t t = 0; t < tokens; t++) {
        n += ids[t] != NO_LABEL && ids[t] != pad;
    }
    return n > 0 && ids[n - 1] != NO_LABEL ? ids[n - 1] : pad;
}

static void shift_right(const struct cpu_call *call)
{
    const struct sw_op *op = call->desc->op;
    const int64_t tokens = call->desc->in[0].shape.dims[1];
    const int32_t *ids = call->in[0];
    int32_t *out = call->out[0];
    for (int64_t i = 0; i < sw_shape_elems(&call->desc->in[0].shape); i++) {
        const int64_t pad = op->attrs.integers.pad, start = op->attrs.integers.value;
        const int64_t id = i % tokens != 0 ? (ids[i - 1] == NO_LABEL ? pad : ids[i - 1])
                           : start >= 0    ? start
                                           : last_of_row(ids + i, tokens, pad);
        out[i] = (int32_t)id;
    }
}

/* Row `index[b]` of sample b, clamped to the sample. */
static int64_t selected(const struct cpu_call *call, int64_t b, int64_t tokens)
{
    const int64_t t = ((const int32_t *)call->in[1])[b];
    return b * tokens + sw_max_i64(0, sw_min_i64(t, tokens - 1));
}

static void select_rows(const struct cpu_call *call)
{
    const struct sw_view *x = &call->desc->in[0];
    const int64_t batch = x->shape.dims[0], tokens = x->shape.dims[1];
    const size_t row_bytes = (size_t)x->shape.dims[2] * sw_dtype_bytes(x->dtype);
    for (int64_t b = 0; b < batch; b++) {
        memcpy((char *)call->out[0] + (size_t)b * row_bytes,
               (const char *)call->in[0] + (size_t)selected(call, b, tokens) * row_bytes,
               row_bytes);
    }
}

static void select_rows_grad(const struct cpu_call *call)
{
    const struct sw_view *dx = &call->desc->out[0];
    const int64_t batch = dx->shape.dims[0], tokens = dx->shape.dims[1], width = dx->shape.dims[2];
    const struct ref_tensor dy = ref_in(call, 0);
    const size_t row_bytes = (size_t)width * sw_dtype_bytes(dx->dtype);
    memset(call->out[0], 0,
           sw_shape_bytes(&dx->shape, dx->dtype)); /* all bits zero is 0.0 in every float dtype */
    for (int64_t b = 0; b < batch; b++) {
        sw_convert(dx->dtype, (char *)call->out[0] + (size_t)selected(call, b, tokens) * row_bytes,
                   dy.dtype, (const char *)dy.data + (size_t)(b * width) * sw_dtype_bytes(dy.dtype),
                   width);
    }
}

/* ---- densify: rows at their positions, zeros elsewhere; an item is a row of the table ---- */

static void densify_item(void *ctx, int64_t row, int i_worker)
{
    (void)i_worker;
    const struct cpu_call *call = ctx;
    const struct sw_view *rows = &call->desc->in[0];
    const int32_t *index = call->in[1];
    const size_t bytes = (size_t)sw_shape_last(&rows->shape) * sw_dtype_bytes(rows->dtype);
    char *dst = (char *)call->out[0] + (size_t)row * bytes;
    int64_t low = 0, high = sw_shape_rows(&rows->shape); /* distinct ids, ascending, then -1 */
    while (low < high) {
        const int64_t mid = (low + high) / 2;
        if (index[mid] >= 0 && index[mid] < row) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    if (low < sw_shape_rows(&rows->shape) && index[low] == row) {
        memcpy(dst, (const char *)call->in[0] + (size_t)low * bytes, bytes);
    } else {
        memset(dst, 0, bytes);
    }
}

static void densify(const struct cpu_call *call)
{
    ref_items(call, call->desc->out[0].shape.dims[0], densify_item);
}

static void slice_grad(const struct cpu_call *call)
{
    const int dim = call->desc->op->attrs.slice.dim;
    const struct sw_view *dx = &call->desc->out[0];
    const struct ref_tensor dy = ref_in(call, 0);
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < dx->shape.rank; d++) {
        *(d < dim ? &outer : &inner) *= d == dim ? 1 : dx->shape.dims[d];
    }
    const int64_t run = call->desc->in[0].shape.dims[dim] * inner;
    const int64_t whole = dx->shape.dims[dim] * inner;
    memset(call->out[0], 0, sw_shape_bytes(&dx->shape, dx->dtype));
    for (int64_t i = 0; i < outer; i++) {
        const int64_t at = i * whole + call->desc->op->attrs.slice.start * inner;
        sw_convert(dx->dtype, (char *)call->out[0] + (size_t)at * sw_dtype_bytes(dx->dtype),
                   dy.dtype, (const char *)dy.data + (size_t)(i * run) * sw_dtype_bytes(dy.dtype),
                   run);
    }
}

/* An item is a row. */
static void mask_rows_item(void *ctx, int64_t row, int i_worker)
{
    (void)i_worker;
    const struct cpu_call *call = ctx;
    const struct ref_tensor x = ref_in(call, 0), out = ref_out(call, 0);
    const int64_t width = sw_shape_last(&call->desc->in[0].shape);
    char *to = (char *)out.data + (size_t)(row * width) * sw_dtype_bytes(out.dtype);
    if (((const int32_t *)call->in[1])[row] != 0) {
        sw_convert(out.dtype, to, x.dtype,
                   (const char *)x.data + (size_t)(row * width) * sw_dtype_bytes(x.dtype), width);
    } else {
        memset(to, 0, (size_t)width * sw_dtype_bytes(out.dtype));
    }
}

static void mask_rows(const struct cpu_call *call)
{
    ref_items(call, sw_shape_rows(&call->desc->in[0].shape), mask_rows_item);
}

static void concat(const struct cpu_call *call)
{
    const struct sw_view *y = &call->desc->out[0];
    const int dim = call->desc->op->attrs.slice.dim;
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < y->shape.rank; d++) {
        *(d < dim ? &outer : &inner) *= d == dim ? 1 : y->shape.dims[d];
    }
    const size_t whole = (size_t)(y->shape.dims[dim] * inner) * sw_dtype_bytes(y->dtype);
    size_t start = 0;
    for (int k = 0; k < call->desc->op->n_in; k++) {
        const size_t run =
            (size_t)(call->desc->in[k].shape.dims[dim] * inner) * sw_dtype_bytes(y->dtype);
        for (int64_t i = 0; i < outer; i++) {
            memcpy((char *)call->out[0] + (size_t)i * whole + start,
                   (const char *)call->in[k] + (size_t)i * run, run);
        }
        start += run;
    }
}

/* ---- select_index: the rows of a row-sparse tensor that lie in a range ---- */

static void select_index(const struct cpu_call *call)
{
    const struct sw_view *rows = &call->desc->in[0];
    const int64_t first = call->desc->op->attrs.select_index.first;
    const int64_t n = call->desc->op->attrs.select_index.n;
    const int64_t most = call->desc->out[0].shape.dims[0];
    const size_t row = (size_t)sw_shape_last(&rows->shape) * sw_dtype_bytes(rows->dtype);
    const int32_t *index = call->in[1];
    int32_t *out_index = call->out[1];
    int64_t at = 0;
    for (int64_t i = 0; i < rows->shape.dims[0] && index[i] >= 0; i++) {
        if (index[i] >= first && index[i] < first + n) {
            memcpy((char *)call->out[0] + (size_t)at * row,
                   (const char *)call->in[0] + (size_t)i * row, row);
            out_index[at++] = (int32_t)(index[i] - first);
        }
    }
    memset((char *)call->out[0] + (size_t)at * row, 0, (size_t)(most - at) * row);
    for (; at < most; at++) {
        out_index[at] = -1;
    }
}

/* cache [B,S,W], x [B,T,W], position: rows past the end of the cache are dropped. */
static void kv_append(const struct cpu_call *call)
{
    const struct sw_view *cache = &call->desc->in[0], *x = &call->desc->in[1];
    const size_t bytes = sw_dtype_bytes(x->dtype);
    const int64_t position = ((const int32_t *)call->in[2])[0];
    for (int64_t b = 0; b < x->shape.dims[0]; b++) {
        for (int64_t t = 0; t < x->shape.dims[1]; t++) {
            if (position + t < 0 || position + t >= cache->shape.dims[1]) {
                continue;
            }
            const int64_t to = b * cache->strides[0] + (position + t) * cache->strides[1];
            const int64_t from = b * x->strides[0] + t * x->strides[1];
            for (int64_t c = 0; c < x->shape.dims[2]; c++) {
                memcpy((char *)call->in[0] + (to + c * cache->strides[2]) * (int64_t)bytes,
                       (const char *)call->in[1] + (from + c * x->strides[2]) * (int64_t)bytes,
                       bytes);
            }
        }
    }
}

/* ---- statistics ---- */

static void stats_reset(const struct cpu_call *call)
{
    memset(call->in[0], 0, SW_STATS_WORDS * sizeof(int64_t));
}

static void lamb_add_norms(const struct cpu_call *call)
{
    int64_t *norms = call->in[0];
    const int64_t *more = call->in[1];
    for (int w = 0; w < SW_LAMB_WORDS; w++) {
        norms[w] += more[w];
    }
    sw_exact_carry(norms);
    sw_exact_carry(norms + SW_STATS_WORDS);
}

/* CLIP = clip / (norm + 1e-6) if that is below 1, as in PyTorch. A gradient with an element that is
 * not finite has an infinite norm, even if nothing is skipped. */
static void stats_finish(const struct cpu_call *call)
{
    const double clip = call->desc->op->attrs.stats.clip;
    const int64_t *stats = call->in[0];
    const bool overflow = stats[SW_EXACT_WORDS] > 0;
    const double norm =
        overflow ? INFINITY : sqrt(sw_exact_value(stats)) * call->scalars[SW_SCALAR_GRAD_FACTOR];
    const double factor = clip > 0 ? clip / (norm + 1e-6) : 1;
    call->scalars[SW_SCALAR_NORM] = norm;
    call->scalars[SW_SCALAR_CLIP] = factor < 1 ? factor : 1;
    call->scalars[SW_SCALAR_SKIP] = call->desc->op->attrs.stats.overflow_skips && overflow;
}

/* ---- a user's own op ---- */

static void user(const struct cpu_call *call)
{
    const struct sw_op *op = call->desc->op;
    struct sw_view in[SW_MAX_INPUTS], out[SW_MAX_OUTPUTS];
    for (int i = 0; i < op->n_in; i++) {
        in[i] = call->desc->in[i];
        in[i].data = call->in[i];
    }
    for (int i = 0; i < op->n_out; i++) {
        out[i] = call->desc->out[i];
        out[i].data = call->out[i];
    }
    op->user->kernel(op->user, in, out);
}

const struct ref_kernel sw_cpu_ref_move[SW_N_OP_KINDS] = {
    [SW_OP_CONTIGUOUS] = {contiguous, NULL},
    [SW_OP_CAST] = {cast, NULL},
    [SW_OP_LAST_INDEX] = {last_index, NULL},
    [SW_OP_SELECT_ROWS] = {select_rows, NULL},
    [SW_OP_SELECT_ROWS_GRAD] = {select_rows_grad, NULL},
    [SW_OP_SLICE_GRAD] = {slice_grad, NULL},
    [SW_OP_DENSIFY] = {densify, NULL},
    [SW_OP_SELECT_INDEX] = {select_index, NULL},
    [SW_OP_KV_APPEND] = {kv_append, NULL},
    [SW_OP_STATS_RESET] = {stats_reset, NULL},
    [SW_OP_STATS_FINISH] = {stats_finish, NULL},
    [SW_OP_USER] = {user, NULL},
    [SW_OP_LAMB_ADD_NORMS] = {lamb_add_norms, NULL},
    [SW_OP_POSITIONS] = {positions, NULL},
    [SW_OP_NOT_EQUAL] = {not_equal, NULL},
    [SW_OP_SHIFT_RIGHT] = {shift_right, NULL},
    [SW_OP_TRIM] = {trim, NULL},
    [SW_OP_MASK_ROWS] = {mask_rows, NULL},
    [SW_OP_CONCAT] = {concat, NULL},
    [SW_OP_DEQUANTIZE] = {dequantize, NULL},
    [SW_OP_QUANTIZED_MATMUL] = {quantized_matmul, decoded_bytes},
};
