// SPDX-License-Identifier: Apache-2.0
// The builder of a recurrent layer. The input projection of all tokens is an ordinary product; the
// op does the recurrence.
#include "graph/private.h"

static const struct sw_value_info *info_of(const sw_graph *g, sw_value v)
{
    return &g->values[v];
}

static bool lstm_fits(sw_graph *g, sw_value x, const struct sw_lstm_spec *spec)
{
    const sw_value all[] = {x, spec->w_ih, spec->w_hh, spec->b_ih, spec->b_hh};
    for (size_t i = 0; i < SW_LEN(all); i++) {
        if (!sw_graph_usable(g, all[i], "lstm")) {
            return false;
        }
    }
    const struct sw_shape *sx = &info_of(g, x)->shape, *w = &info_of(g, spec->w_hh)->shape;
    if (sx->rank != 3 || w->rank != 2 || w->dims[1] < 1 || w->dims[0] != 4 * w->dims[1]) {
        sw_graph_bad_shapes(g, "lstm", x, spec->w_hh, "wants x [B, T, I] and weights [4 H, H]");
        return false;
    }
    const struct sw_shape w_ih = SW_SHAPE(w->dims[0], sx->dims[2]), bias = SW_SHAPE(w->dims[0]);
    if (!sw_shape_equal(&info_of(g, spec->w_ih)->shape, &w_ih)) {
        sw_graph_bad_shapes(g, "lstm", x, spec->w_ih, "wants weights [4 H, I] of the input");
        return false;
    }
    for (int i = 3; i < 5; i++) {
        if (!sw_shape_equal(&info_of(g, all[i])->shape, &bias)) {
            sw_graph_bad_shapes(g, "lstm", spec->w_hh, all[i], "wants biases [4 H]");
            return false;
        }
    }
    for (size_t i = 1; i < SW_LEN(all); i++) {
        if (info_of(g, all[i])->dtype != info_of(g, x)->dtype) {
            sw_graph_bad_dtype(g, "lstm", all[i], sw_dtype_name(info_of(g, x)->dtype));
            return false;
        }
    }
    return true;
}

sw_value sw_lstm(sw_graph *g, sw_value x, const struct sw_lstm_spec *spec)
{
    const bool has_mask = spec->mask >= 0;
    if (!lstm_fits(g, x, spec) || (has_mask && !sw_graph_usable(g, spec->mask, "lstm"))) {
        return SW_NO_VALUE;
    }
    const struct sw_shape rows =
        SW_SHAPE(info_of(g, x)->shape.dims[0], info_of(g, x)->shape.dims[1]);
    if (has_mask && (info_of(g, spec->mask)->dtype != SW_I32 ||
                     !sw_shape_equal(&info_of(g, spec->mask)->shape, &rows))) {
        return sw_graph_bad_shapes(g, "lstm", x, spec->mask, "wants an i32 mask [B, T]");
    }
    const struct sw_attrs attrs = {.lstm = {.reverse = spec->reverse, .has_mask = has_mask}};
    const sw_value in[4] = {sw_linear(g, x, spec->w_ih, spec->b_ih, false),
                            sw_graph_dense(g, spec->w_hh), sw_graph_dense(g, spec->b_hh),
                            has_mask ? sw_graph_dense(g, spec->mask) : SW_NO_VALUE};
    return g->status < 0 ? SW_NO_VALUE
                         : sw_graph_emit_one(g, SW_OP_LSTM, in, has_mask ? 4 : 3, &attrs);
}

void sw_grad_lstm(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out, sw_value *d_in)
{
    const int n_mask = op->attrs.lstm.has_mask ? 1 : 0;
    const sw_value in[6] = {d_out[0],   op->in[1],  op->out[0],
                            op->out[1], op->out[2], n_mask ? op->in[3] : SW_NO_VALUE};
    const int32_t i = sw_graph_add_op(g, SW_OP_LSTM_GRAD, in, 5 + n_mask, &op->attrs);
    for (int k = 0; k < 3; k++) {
        d_in[k] = sw_graph_gradient_out(g, i, op->in[k]);
    }
}
