// SPDX-License-Identifier: Apache-2.0
// Changes of a value's spread over ranks, and their gradients. The gradient of a value that ranks
// have copies of is a sum over them, and the reverse; so each change has one as its gradient.
#include "graph/private.h"

static const struct sw_value_info *info_of(const struct sw_graph *g, sw_value v)
{
    return &g->values[v];
}

/* The spread of the gradient of a value. */
static enum sw_spread_kind of_gradient(enum sw_spread_kind kind)
{
    return kind == SW_SPREAD_COPIED ? SW_SPREAD_SUM
           : kind == SW_SPREAD_SUM  ? SW_SPREAD_COPIED
                                    : kind;
}

static bool is_full(enum sw_spread_kind kind)
{
    return kind == SW_SPREAD_WHOLE || kind == SW_SPREAD_COPIED;
}

static sw_value as_view(struct sw_graph *g, sw_value x, const struct sw_exchange_attrs *attrs)
{
    struct sw_shape shape = info_of(g, x)->shape;
    int64_t start = 0;
    if (attrs->to == SW_SPREAD_CUT) {
        shape.dims[attrs->dim] /= attrs->ranks;
        start = attrs->me * shape.dims[attrs->dim];
    }
    const sw_value y = attrs->to == SW_SPREAD_CUT
                           ? sw_slice(g, x, attrs->dim, start, shape.dims[attrs->dim])
                           : sw_reshape(g, x, shape);
    if (y >= 0) {
        g->ops[info_of(g, y)->producer].attrs.view.exchange = *attrs;
    }
    return y;
}

sw_value sw_graph_exchange(struct sw_graph *g, sw_value x, const struct sw_exchange_attrs *attrs)
{
    if (x < 0 || g->status < 0) {
        return SW_NO_VALUE;
    }
    if (attrs->to == SW_SPREAD_CUT &&
        info_of(g, x)->shape.dims[sw_exchange_to_dim(attrs)] % attrs->ranks != 0) {
        return sw_graph_bad_shapes(g, "exchange", x, SW_NO_VALUE, "wants equal parts");
    }
    if (is_full(attrs->from)) {
        return as_view(g, x, attrs);
    }
    const struct sw_attrs all = {.exchange = *attrs};
    x = sw_graph_dense(g, x);
    return sw_graph_emit_one(g, SW_OP_EXCHANGE, &x, 1, &all);
}

/* This rank's part of dy among zeros. */
static sw_value among_zeros(struct sw_graph *g, sw_value dy, sw_value x,
                            const struct sw_exchange_attrs *attrs)
{
    const struct sw_attrs slice = {
        .slice = {.dim = attrs->dim,
                  .start = attrs->me * info_of(g, dy)->shape.dims[attrs->dim],
                  .is_own = true}};
    dy = sw_graph_dense(g, dy);
    const int32_t i = dy < 0 ? -1 : sw_graph_add_op(g, SW_OP_SLICE_GRAD, &dy, 1, &slice);
    return sw_graph_add_out(g, i, info_of(g, dy)->dtype, info_of(g, x)->shape);
}

/* Adds the rows of dy from `own` on over the ranks; the others are those of this rank alone. */
static sw_value add_shared(struct sw_graph *g, sw_value dy, int64_t own,
                           const struct sw_exchange_attrs *back)
{
    const int64_t n = info_of(g, dy)->shape.dims[0];
    const sw_value both[2] = {sw_graph_dense(g, sw_slice(g, dy, 0, 0, own)),
                              sw_graph_exchange(g, sw_slice(g, dy, 0, own, n - own), back)};
    return sw_concat(g, both, 2, 0);
}

sw_value sw_graph_exchange_gradient(struct sw_graph *g, sw_value dy, sw_value x,
                                    const struct sw_exchange_attrs *attrs)
{
    struct sw_exchange_attrs back = *attrs;
    back.from = of_gradient(attrs->to);
    back.to = of_gradient(attrs->from);
    if (attrs->from == SW_SPREAD_CUT && attrs->to == SW_SPREAD_CUT) {
        back.dim = attrs->to_dim;
        back.to_dim = attrs->dim;
    }
    if (dy < 0 || g->status < 0 || !sw_graph_wants(g, x)) {
        return SW_NO_VALUE;
    }
    if (attrs->own > 0) {
        back.own = 0;
        return add_shared(g, dy, attrs->own, &back);
    }
    if (is_full(back.from) && back.to == SW_SPREAD_SUM) { /* equal shares of the sum */
        return sw_scale(g, dy, 1.0 / attrs->ranks);
    }
    if (back.from == SW_SPREAD_CUT && back.to == SW_SPREAD_SUM) {
        return among_zeros(g, dy, x, attrs);
    }
    return is_full(back.from) && is_full(back.to) ? dy : sw_graph_exchange(g, dy, &back);
}

sw_value sw_graph_exchange_rows(struct sw_graph *g, sw_value x, sw_value sent, sw_value received,
                                const struct sw_exchange_attrs *attrs)
{
    if (x < 0 || sent < 0 || received < 0 || g->status < 0) {
        return SW_NO_VALUE;
    }
    const struct sw_shape *rows = &info_of(g, x)->shape, *offsets = &info_of(g, sent)->shape;
    if (rows->rank != 2 || rows->dims[0] % attrs->ranks != 0 || offsets->rank != 2 ||
        offsets->dims[0] != attrs->ranks ||
        !sw_shape_equal(offsets, &info_of(g, received)->shape)) {
        return sw_graph_bad_shapes(g, "exchange", x, sent, "wants offsets of rows for each rank");
    }
    const struct sw_attrs all = {.exchange = *attrs};
    const sw_value in[3] = {sw_graph_dense(g, x), sent, received};
    return sw_graph_emit_one(g, SW_OP_EXCHANGE, in, 3, &all);
}

/* Rows go back to where they came from. */
void sw_grad_exchange(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                      sw_value *d_in)
{
    if (op->n_in == 1) {
        d_in[0] = sw_graph_exchange_gradient(g, d_out[0], op->in[0], &op->attrs.exchange);
    } else if (d_out[0] >= 0 && sw_graph_wants(g, op->in[0])) {
        d_in[0] = sw_graph_exchange_rows(g, d_out[0], op->in[2], op->in[1], &op->attrs.exchange);
    }
}
