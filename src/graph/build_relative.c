// SPDX-License-Identifier: Apache-2.0
// Builders of scores by the distance of key and query, and their gradient rules.
#include "graph/private.h"

static const struct sw_value_info *info_of(const sw_graph *g, sw_value v)
{
    return &g->values[v];
}

sw_value sw_relative_bias(sw_graph *g, sw_value rows, sw_value position, int64_t queries,
                          int64_t keys, int64_t origin)
{
    const char *what = "relative bias";
    if (!sw_graph_usable(g, rows, what) || (position >= 0 && !sw_graph_usable(g, position, what))) {
        return SW_NO_VALUE;
    }
    if (info_of(g, rows)->shape.rank != 2 || info_of(g, rows)->shape.dims[0] < 1 || queries < 1 ||
        keys < 1) {
        return sw_graph_bad_shapes(g, what, rows, SW_NO_VALUE,
                                   "wants rows [R, H], and some queries and keys");
    }
    const struct sw_shape one = SW_SHAPE(1);
    if (position >= 0 && (info_of(g, position)->dtype != SW_I32 ||
                          !sw_shape_equal(&info_of(g, position)->shape, &one))) {
        return sw_graph_bad_shapes(g, what, rows, position, "wants an i32 position [1]");
    }
    const struct sw_attrs attrs = {
        .relative = {.queries = queries, .keys = keys, .origin = origin}};
    const sw_value in[2] = {sw_graph_dense(g, rows), position};
    return sw_graph_emit_one(g, SW_OP_RELATIVE_BIAS, in, position >= 0 ? 2 : 1, &attrs);
}

void sw_grad_relative_bias(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                           sw_value *d_in)
{
    const sw_value in[2] = {d_out[0], op->n_in > 1 ? op->in[1] : SW_NO_VALUE};
    const int32_t i = sw_graph_add_op(g, SW_OP_RELATIVE_BIAS_GRAD, in, op->n_in, &op->attrs);
    d_in[0] = sw_graph_gradient_out(g, i, op->in[0]);
}

/* Kernels do not check the elements of the index, so they are checked here. */
static bool index_fits(sw_graph *g, const char *what, sw_value table, sw_value index)
{
    const int32_t *at = info_of(g, index)->data;
    const int64_t rows = info_of(g, table)->shape.dims[0];
    if (!at || info_of(g, index)->dtype != SW_I32) {
        sw_graph_bad_dtype(g, what, index, "an i32 index that is a constant");
        return false;
    }
    for (int64_t i = 0; i < info_of(g, index)->shape.dims[0]; i++) {
        if (at[i] < 0 || at[i] >= rows) {
            sw_graph_fail(g, SW_E_ARG, "%s: index[%lld] is %d; wanted 0 .. %lld", what,
                          (long long)i, at[i], (long long)rows - 1);
            return false;
        }
    }
    return true;
}

sw_value sw_relative_scores(sw_graph *g, sw_value x, sw_value table, sw_value index, bool by_key,
                            double scale)
{
    const char *what = "relative scores";
    if (!sw_graph_usable(g, x, what) || !sw_graph_usable(g, table, what) ||
        !sw_graph_usable(g, index, what)) {
        return SW_NO_VALUE;
    }
    const struct sw_shape *sx = &info_of(g, x)->shape, *st = &info_of(g, table)->shape;
    const struct sw_shape *si = &info_of(g, index)->shape;
    if (sx->rank != 4 || st->rank != 3 || st->dims[1] != sx->dims[2] ||
        st->dims[2] != sx->dims[3]) {
        return sw_graph_bad_shapes(g, what, x, table, "wants x [B, T, H, D] and a table [P, H, D]");
    }
    if (si->rank != 1 || si->dims[0] != 2 * sx->dims[1] - 1) {
        return sw_graph_bad_shapes(g, what, x, index, "wants an index [2 T - 1]");
    }
    if (!sw_dtype_is_float(info_of(g, x)->dtype) ||
        info_of(g, table)->dtype != info_of(g, x)->dtype) {
        return sw_graph_bad_dtype(g, what, table, "floats of one dtype");
    }
    if (!index_fits(g, what, table, index)) {
        return SW_NO_VALUE;
    }
    const struct sw_attrs attrs = {.relative = {.by_key = by_key, .scale = scale}};
    const sw_value in[3] = {sw_graph_dense(g, x), sw_graph_dense(g, table), index};
    return sw_graph_emit_one(g, SW_OP_RELATIVE_SCORES, in, 3, &attrs);
}

void sw_grad_relative_scores(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                             sw_value *d_in)
{
    const sw_value in[4] = {d_out[0], op->in[0], op->in[1], op->in[2]};
    const int32_t i = sw_graph_add_op(g, SW_OP_RELATIVE_SCORES_GRAD, in, 4, &op->attrs);
    d_in[0] = sw_graph_gradient_out(g, i, op->in[0]);
    d_in[1] = sw_graph_gradient_out(g, i, op->in[1]);
}
