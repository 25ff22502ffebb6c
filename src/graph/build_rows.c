// SPDX-License-Identifier: Apache-2.0
// Builders for encoders and sequence pairs: integers computed from ids, rows that a mask drops,
// concatenation.
#include "graph/private.h"

static const struct sw_value_info *info_of(const sw_graph *g, sw_value v)
{
    return &g->values[v];
}

/* ---- integers ---- */

static sw_value integers(sw_graph *g, enum sw_op_kind kind, sw_value x, const char *what,
                         const struct sw_attrs *attrs)
{
    if (!sw_graph_usable(g, x, what)) {
        return SW_NO_VALUE;
    }
    if (info_of(g, x)->dtype != SW_I32) {
        return sw_graph_bad_dtype(g, what, x, "i32");
    }
    if (kind == SW_OP_SHIFT_RIGHT && info_of(g, x)->shape.rank != 2) {
        return sw_graph_bad_shapes(g, what, x, SW_NO_VALUE, "wants ids [B, T]");
    }
    x = sw_graph_dense(g, x);
    return sw_graph_emit_one(g, kind, &x, 1, attrs);
}

sw_value sw_not_equal(sw_graph *g, sw_value ids, int64_t value)
{
    const struct sw_attrs attrs = {.integers = {.value = value}};
    return integers(g, SW_OP_NOT_EQUAL, ids, "not equal", &attrs);
}

sw_value sw_shift_right(sw_graph *g, sw_value ids, int64_t start, int64_t pad)
{
    const struct sw_attrs attrs = {.integers = {.value = start, .pad = pad}};
    return integers(g, SW_OP_SHIFT_RIGHT, ids, "shift right", &attrs);
}

sw_value sw_trim(sw_graph *g, sw_value ids, sw_value lengths)
{
    if (!sw_graph_usable(g, ids, "trim") || !sw_graph_usable(g, lengths, "trim")) {
        return SW_NO_VALUE;
    }
    const struct sw_shape *shape = &info_of(g, ids)->shape;
    const struct sw_shape rows = SW_SHAPE(shape->rank > 0 ? shape->dims[0] : 0);
    if (shape->rank != 2 || !sw_shape_equal(&info_of(g, lengths)->shape, &rows)) {
        return sw_graph_bad_shapes(g, "trim", ids, lengths, "wants ids [B, T] and lengths [B]");
    }
    if (info_of(g, ids)->dtype != SW_I32 || info_of(g, lengths)->dtype != SW_I32) {
        return sw_graph_bad_dtype(g, "trim", lengths, "i32 ids and lengths");
    }
    const sw_value in[2] = {sw_graph_dense(g, ids), sw_graph_dense(g, lengths)};
    return sw_graph_emit_one(g, SW_OP_TRIM, in, 2, NULL);
}

/* ---- rows ---- */

/* Checks that a mask is i32 and has one element per row of x. */
static bool rows_have_mask(sw_graph *g, const char *what, sw_value x, sw_value mask)
{
    if (!sw_graph_usable(g, x, what) || !sw_graph_usable(g, mask, what)) {
        return false;
    }
    struct sw_shape rows = info_of(g, x)->shape;
    rows.rank -= 1;
    if (rows.rank < 1 || !sw_shape_equal(&rows, &info_of(g, mask)->shape)) {
        sw_graph_bad_shapes(g, what, x, mask, "wants one element of the mask for each row");
        return false;
    }
    if (info_of(g, mask)->dtype != SW_I32 || !sw_dtype_is_float(info_of(g, x)->dtype)) {
        sw_graph_bad_dtype(g, what, mask, "a float tensor and an i32 mask");
        return false;
    }
    return true;
}

sw_value sw_mask_rows(sw_graph *g, sw_value x, sw_value mask)
{
    if (!rows_have_mask(g, "mask rows", x, mask)) {
        return SW_NO_VALUE;
    }
    const sw_value in[2] = {sw_graph_dense(g, x), sw_graph_dense(g, mask)};
    return sw_graph_emit_one(g, SW_OP_MASK_ROWS, in, 2, NULL);
}

void sw_grad_mask_rows(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                       sw_value *d_in)
{
    const sw_value in[2] = {d_out[0], op->in[1]};
    d_in[0] = sw_graph_gradient_out(g, sw_graph_add_op(g, SW_OP_MASK_ROWS, in, 2, NULL), op->in[0]);
}

sw_value sw_masked_mean(sw_graph *g, sw_value x, sw_value mask)
{
    if (!rows_have_mask(g, "masked mean", x, mask)) {
        return SW_NO_VALUE;
    }
    if (info_of(g, x)->shape.rank != 3) {
        return sw_graph_bad_shapes(g, "masked mean", x, mask, "wants x [B, T, C]");
    }
    const sw_value in[2] = {sw_graph_dense(g, x), sw_graph_dense(g, mask)};
    return sw_graph_emit_one(g, SW_OP_MASKED_MEAN, in, 2, NULL);
}

void sw_grad_masked_mean(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                         sw_value *d_in)
{
    const sw_value in[2] = {d_out[0], op->in[1]};
    d_in[0] = sw_graph_gradient_out(g, sw_graph_add_op(g, SW_OP_MASKED_MEAN_GRAD, in, 2, NULL),
                                    op->in[0]);
}

/* ---- padding ---- */

sw_value sw_pad(sw_graph *g, sw_value x, int dim, int64_t start, int64_t n)
{
    if (!sw_graph_usable(g, x, "pad")) {
        return SW_NO_VALUE;
    }
    struct sw_shape shape = info_of(g, x)->shape;
    if (dim < 0 || dim >= shape.rank || start < 0 || start + shape.dims[dim] > n) {
        return sw_graph_bad_shapes(g, "pad", x, SW_NO_VALUE, "wants a longer dimension");
    }
    shape.dims[dim] = n;
    const struct sw_attrs attrs = {.slice = {.dim = dim, .start = start}};
    x = sw_graph_dense(g, x);
    const int32_t i = sw_graph_add_op(g, SW_OP_SLICE_GRAD, &x, 1, &attrs);
    return i < 0 ? SW_NO_VALUE : sw_graph_add_out(g, i, info_of(g, x)->dtype, shape);
}

/* ---- concatenation ---- */

/* True if v can be concatenated with the first value. */
static bool joins(sw_graph *g, sw_value first, sw_value v, int dim)
{
    struct sw_shape like = info_of(g, first)->shape;
    const struct sw_shape *shape = &info_of(g, v)->shape;
    if (dim >= 0 && dim < like.rank && dim < shape->rank) {
        like.dims[dim] = shape->dims[dim];
    }
    if (dim < 0 || dim >= like.rank || !sw_shape_equal(&like, shape)) {
        sw_graph_bad_shapes(g, "concat", first, v, "wants shapes that differ in that dim alone");
        return false;
    }
    if (info_of(g, v)->dtype != info_of(g, first)->dtype) {
        sw_graph_bad_dtype(g, "concat", v, sw_dtype_name(info_of(g, first)->dtype));
        return false;
    }
    return true;
}

sw_value sw_concat(sw_graph *g, const sw_value *values, int n, int dim)
{
    sw_value in[SW_MAX_INPUTS];
    if (g->status >= 0 && (n < 1 || n > SW_MAX_INPUTS)) {
        sw_graph_fail(g, SW_E_ARG, "concat: %d values; wanted 1 to %d", n, SW_MAX_INPUTS);
    }
    if (g->status < 0) {
        return SW_NO_VALUE;
    }
    for (int k = 0; k < n; k++) {
        if (!sw_graph_usable(g, values[k], "concat") || !joins(g, values[0], values[k], dim)) {
            return SW_NO_VALUE;
        }
        in[k] = sw_graph_dense(g, values[k]);
    }
    const struct sw_attrs attrs = {.slice = {.dim = dim}};
    return sw_graph_emit_one(g, SW_OP_CONCAT, in, n, &attrs);
}

/* Each input gets its part of the gradient. */
void sw_grad_concat(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                    sw_value *d_in)
{
    const int dim = op->attrs.slice.dim;
    int64_t start = 0;
    for (int k = 0; k < op->n_in; k++) {
        const int64_t n = info_of(g, op->in[k])->shape.dims[dim];
        if (sw_graph_wants(g, op->in[k])) {
            d_in[k] = sw_slice(g, d_out[0], dim, start, n);
        }
        start += n;
    }
}
