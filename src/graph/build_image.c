// SPDX-License-Identifier: Apache-2.0
// Builders for sliding windows over images and sequences, and their gradient rules.
#include "graph/private.h"

static const struct sw_value_info *info_of(const sw_graph *g, sw_value v)
{
    return &g->values[v];
}

/* Sets the attributes of windows over x; false = they do not fit. */
static bool window_of(sw_graph *g, const char *what, sw_value x, const struct sw_window *window,
                      struct sw_attrs *out)
{
    const struct sw_shape *shape = &info_of(g, x)->shape;
    const bool is_row = shape->rank == 3;
    if (!is_row && shape->rank != 4) {
        sw_graph_bad_shapes(g, what, x, SW_NO_VALUE, "wants [B, C, H, W]");
        return false;
    }
    if (!sw_dtype_is_float(info_of(g, x)->dtype)) {
        sw_graph_bad_dtype(g, what, x, "a float tensor");
        return false;
    }
    *out = (struct sw_attrs){.window = {{1, 1}, {1, 1}, {0, 0}, false}};
    for (int dim = is_row ? 1 : 0; dim < 2; dim++) {
        struct sw_window_attrs *w = &out->window;
        const int64_t n = shape->dims[is_row ? 2 : 2 + dim];
        w->kernel[dim] = window->kernel[dim];
        w->stride[dim] = window->stride[dim] == 0 ? 1 : window->stride[dim];
        w->padding[dim] = window->padding[dim];
        if (w->kernel[dim] < 1 || w->stride[dim] < 1 || w->padding[dim] < 0 ||
            sw_window_places(w, dim, n) < 1) {
            sw_graph_fail(g, SW_E_ARG,
                          "%s: a window of %lld with stride %lld and padding %lld has no place "
                          "in %lld",
                          what, (long long)w->kernel[dim], (long long)w->stride[dim],
                          (long long)w->padding[dim], (long long)n);
            return false;
        }
    }
    return true;
}

sw_value sw_im2col(sw_graph *g, sw_value x, const struct sw_window *window)
{
    struct sw_attrs attrs;
    if (!sw_graph_usable(g, x, "im2col") || !window_of(g, "im2col", x, window, &attrs)) {
        return SW_NO_VALUE;
    }
    return sw_graph_emit_one(g, SW_OP_IM2COL, &x, 1, &attrs);
}

void sw_grad_im2col(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                    sw_value *d_in)
{
    const int32_t i = sw_graph_add_op(g, SW_OP_COL2IM, d_out, 1, &op->attrs);
    d_in[0] = sw_graph_gradient_out(g, i, op->in[0]);
}

static sw_value pool(sw_graph *g, sw_value x, const struct sw_window *window, bool mean)
{
    struct sw_attrs attrs;
    if (!sw_graph_usable(g, x, "pool") || !window_of(g, "pool", x, window, &attrs)) {
        return SW_NO_VALUE;
    }
    if (info_of(g, x)->shape.rank != 4 || attrs.window.padding[0] + attrs.window.padding[1] > 0) {
        return sw_graph_bad_shapes(g, "pool", x, SW_NO_VALUE, "wants [B, C, H, W] and no padding");
    }
    attrs.window.mean = mean;
    return sw_graph_emit_one(g, SW_OP_POOL, &x, 1, &attrs);
}

sw_value sw_pool_max(sw_graph *g, sw_value x, const struct sw_window *window)
{
    return pool(g, x, window, false);
}

sw_value sw_pool_mean(sw_graph *g, sw_value x, const struct sw_window *window)
{
    return pool(g, x, window, true);
}

void sw_grad_pool(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out, sw_value *d_in)
{
    const sw_value in[2] = {d_out[0], op->in[0]};
    d_in[0] =
        sw_graph_gradient_out(g, sw_graph_add_op(g, SW_OP_POOL_GRAD, in, 2, &op->attrs), op->in[0]);
}
