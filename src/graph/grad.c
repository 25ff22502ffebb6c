// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation by gradient rules that emit ops, one rule per op kind. The driver
// walks the forward in reverse. It adds the gradients of activations that were used several times,
// and records each use of a parameter as a separate stream.
#include <string.h>

#include "graph/private.h"

static const struct sw_value_info *info_of(const struct sw_graph *g, sw_value v)
{
    return &g->values[v];
}

bool sw_graph_wants(const struct sw_graph *g, sw_value v)
{
    return v >= 0 && g->values[v].needs_grad;
}

/* Gradients of parameters, and of views of them, are rounded to the communication dtype. */
static enum sw_dtype grad_dtype(const struct sw_graph *g, sw_value v)
{
    return info_of(g, sw_graph_root(g, v))->role == SW_ROLE_PARAM ? g->grad_dtype
                                                                  : info_of(g, v)->dtype;
}

sw_value sw_graph_gradient_out(struct sw_graph *g, int32_t op, sw_value like)
{
    if (!sw_graph_wants(g, like)) {
        sw_graph_add_out_absent(g, op);
        return SW_NO_VALUE;
    }
    return sw_graph_add_out(g, op, grad_dtype(g, like), info_of(g, like)->shape);
}

static sw_value product(struct sw_graph *g, sw_value a, bool ta, sw_value b, bool tb, sw_value like)
{
    const struct sw_attrs attrs = {.matmul = {.ta = ta, .tb = tb}};
    const sw_value in[2] = {a, b};
    return sw_graph_gradient_out(g, sw_graph_add_op(g, SW_OP_MATMUL, in, 2, &attrs), like);
}

void sw_grad_matmul(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                    sw_value *d_in)
{
    const sw_value a = op->in[0], b = op->in[1], dy = d_out[0];
    const bool ta = op->attrs.matmul.ta, tb = op->attrs.matmul.tb;
    if (sw_graph_wants(g, a)) {
        d_in[0] = ta ? product(g, b, tb, dy, true, a) : product(g, dy, false, b, !tb, a);
    }
    if (sw_graph_wants(g, b)) {
        d_in[1] = tb ? product(g, dy, true, a, ta, b) : product(g, a, !ta, dy, false, b);
    }
}

void sw_grad_add(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out, sw_value *d_in)
{
    const sw_value b = op->in[1];
    d_in[0] = d_out[0];
    if (!sw_graph_wants(g, b)) {
        return;
    }
    if (sw_shape_equal(&info_of(g, op->in[0])->shape, &info_of(g, b)->shape)) {
        d_in[1] = d_out[0];
    } else {
        d_in[1] = sw_graph_gradient_out(g, sw_graph_add_op(g, SW_OP_SUM_ROWS, d_out, 1, NULL), b);
    }
}

void sw_grad_scale(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                   sw_value *d_in)
{
    d_in[0] = sw_scale(g, d_out[0], op->attrs.scale.factor);
}

void sw_grad_act(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out, sw_value *d_in)
{
    const sw_value in[2] = {op->in[0], d_out[0]};
    d_in[0] =
        sw_graph_gradient_out(g, sw_graph_add_op(g, SW_OP_ACT_GRAD, in, 2, &op->attrs), op->in[0]);
}

void sw_grad_dropout(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                     sw_value *d_in)
{
    const int32_t i = sw_graph_add_op(g, SW_OP_DROPOUT, d_out, 1, &op->attrs);
    if (i >= 0) {
        g->ops[i].path = op->path; /* the same random numbers */
    }
    d_in[0] = sw_graph_gradient_out(g, i, op->in[0]);
}

void sw_grad_layer_norm(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                        sw_value *d_in)
{
    const sw_value in[5] = {d_out[0], op->in[0], op->in[1], op->out[1], op->out[2]};
    const int32_t i = sw_graph_add_op(g, SW_OP_LAYER_NORM_GRAD, in, 5, &op->attrs);
    for (int k = 0; k < 3; k++) {
        d_in[k] = sw_graph_gradient_out(g, i, op->in[k]);
    }
}

void sw_grad_rms_norm(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                      sw_value *d_in)
{
    const sw_value in[4] = {d_out[0], op->in[0], op->in[1], op->out[1]};
    const int32_t i = sw_graph_add_op(g, SW_OP_RMS_NORM_GRAD, in, 4, &op->attrs);
    d_in[0] = sw_graph_gradient_out(g, i, op->in[0]);
    d_in[1] = sw_graph_gradient_out(g, i, op->in[1]);
}

void sw_grad_mul(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out, sw_value *d_in)
{
    const sw_value a = op->in[0], b = op->in[1];
    const bool repeats = !sw_shape_equal(&info_of(g, a)->shape, &info_of(g, b)->shape);
    for (int k = 0; k < 2; k++) {
        const sw_value in[2] = {d_out[0], op->in[1 - k]};
        if (sw_graph_wants(g, op->in[k])) {
            d_in[k] = sw_graph_gradient_out(g, sw_graph_add_op(g, SW_OP_MUL, in, 2, NULL),
                                            repeats ? a : op->in[k]);
        }
    }
    if (repeats && d_in[1] >= 0) {
        d_in[1] =
            sw_graph_gradient_out(g, sw_graph_add_op(g, SW_OP_SUM_ROWS, &d_in[1], 1, NULL), b);
    }
}

void sw_grad_gated_act(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                       sw_value *d_in)
{
    const sw_value in[3] = {d_out[0], op->in[0], op->in[1]};
    const int32_t i = sw_graph_add_op(g, SW_OP_GATED_ACT_GRAD, in, 3, &op->attrs);
    d_in[0] = sw_graph_gradient_out(g, i, op->in[0]);
    d_in[1] = sw_graph_gradient_out(g, i, op->in[1]);
}

/* A rotation by the opposite angle. */
void sw_grad_rotary(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                    sw_value *d_in)
{
    const sw_value in[3] = {d_out[0], op->in[1], op->in[2]};
    struct sw_attrs attrs = op->attrs;
    attrs.rotary.inverse = !attrs.rotary.inverse;
    d_in[0] = sw_graph_gradient_out(g, sw_graph_add_op(g, SW_OP_ROTARY, in, 3, &attrs), op->in[0]);
}

/* Leaves the rows that belong to this part of the table. Returns their index. */
static sw_value select_own_rows(struct sw_graph *g, const struct sw_op *op, sw_value *rows,
                                sw_value index)
{
    const struct sw_attrs attrs = {.select_index = {.first = op->attrs.embedding.tile.first,
                                                    .n = info_of(g, op->in[0])->shape.dims[0]}};
    const sw_value in[2] = {*rows, index};
    const int32_t i = sw_graph_emit(g, SW_OP_SELECT_INDEX, in, 2, &attrs);
    *rows = i < 0 ? SW_NO_VALUE : g->ops[i].out[0];
    return i < 0 ? SW_NO_VALUE : g->ops[i].out[1];
}

void sw_grad_embedding(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                       sw_value *d_in)
{
    const sw_value table = op->in[0];
    if (!sw_graph_wants(g, table)) {
        return;
    }
    if (info_of(g, table)->role != SW_ROLE_PARAM) {
        sw_graph_fail(g, SW_E_UNSUP, "embedding: only a parameter can be a table with a gradient");
        return;
    }
    const sw_value in[2] = {d_out[0], op->in[1]};
    const int64_t n = sw_shape_elems(&info_of(g, op->in[1])->shape);
    const int64_t width = sw_shape_last(&info_of(g, table)->shape);
    const int32_t i = sw_graph_add_op(g, SW_OP_EMBEDDING_GRAD, in, 2, &op->attrs);
    d_in[0] = sw_graph_add_out(g, i, g->grad_dtype, SW_SHAPE(n, width));
    sw_value index = sw_graph_add_out(g, i, SW_I32, SW_SHAPE(n));
    if (op->attrs.embedding.whole > 0) {
        index = select_own_rows(g, op, &d_in[0], index);
    }
    if (index >= 0) {
        g->values[d_in[0]].sparse_index = index;
    }
}

void sw_grad_select_rows(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                         sw_value *d_in)
{
    const sw_value in[2] = {d_out[0], op->in[1]};
    d_in[0] = sw_graph_gradient_out(g, sw_graph_add_op(g, SW_OP_SELECT_ROWS_GRAD, in, 2, NULL),
                                    op->in[0]);
}

void sw_grad_attention(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                       sw_value *d_in)
{
    const struct sw_op *next = &g->ops[info_of(g, op->out[0])->producer + 1];
    /* with a sink, the output and the sums of the softmax are those with it */
    const bool sinks = next->kind == SW_OP_ATTENTION_SINK && next->in[0] == op->out[0];
    const sw_value *out = sinks ? next->out : op->out;
    sw_value in[SW_MAX_INPUTS] = {d_out[0], out[0], out[1]};
    for (int k = 0; k < op->n_in; k++) {
        in[3 + k] = op->in[k];
    }
    const int32_t i = sw_graph_add_op(g, SW_OP_ATTENTION_GRAD, in, 3 + op->n_in, &op->attrs);
    if (i >= 0) {
        g->ops[i].path = op->path; /* the same random numbers for its probabilities */
    }
    const int n_qkv = op->attrs.attention.packed ? 1 : 3;
    for (int k = 0; k < n_qkv; k++) {
        d_in[k] = sw_graph_gradient_out(g, i, op->in[k]);
    }
    if (op->attrs.attention.has_bias) {
        const int k = sw_attention_bias_input(&op->attrs.attention, 0);
        d_in[k] = sw_graph_gradient_out(g, i, op->in[k]);
    }
}

/* The gradient of attention's output is that with the sink; sw_grad_attention knows. */
void sw_grad_attention_sink(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                            sw_value *d_in)
{
    const sw_value in[4] = {d_out[0], op->out[0], op->out[1], op->in[2]};
    d_in[0] = d_out[0];
    if (sw_graph_wants(g, op->in[2])) {
        d_in[2] = sw_graph_gradient_out(
            g, sw_graph_add_op(g, SW_OP_ATTENTION_SINK_GRAD, in, 4, NULL), op->in[2]);
    }
}

void sw_grad_clamped_gate(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                          sw_value *d_in)
{
    const sw_value in[2] = {d_out[0], op->in[0]};
    d_in[0] = sw_graph_gradient_out(
        g, sw_graph_add_op(g, SW_OP_CLAMPED_GATE_GRAD, in, 2, &op->attrs), op->in[0]);
}

void sw_grad_slice_grad(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                        sw_value *d_in)
{
    const int dim = op->attrs.slice.dim;
    d_in[0] =
        sw_slice(g, d_out[0], dim, op->attrs.slice.start, info_of(g, op->in[0])->shape.dims[dim]);
}

void sw_grad_view(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out, sw_value *d_in)
{
    const sw_value x = op->in[0];
    if (op->attrs.view.exchange.ranks > 0) {
        d_in[0] = sw_graph_exchange_gradient(g, d_out[0], x, &op->attrs.view.exchange);
        return;
    }
    switch (op->attrs.view.kind) {
    case SW_VIEW_RESHAPE:
        d_in[0] = sw_reshape(g, d_out[0], info_of(g, x)->shape);
        break;
    case SW_VIEW_TRANSPOSE:
        d_in[0] = sw_transpose(g, d_out[0], op->attrs.view.dim, op->attrs.view.dim_b);
        break;
    case SW_VIEW_SLICE: {
        const struct sw_attrs attrs = {
            .slice = {.dim = op->attrs.view.dim, .start = op->attrs.view.start}};
        const sw_value dy = sw_graph_dense(g, d_out[0]);
        if (dy >= 0) {
            d_in[0] =
                sw_graph_gradient_out(g, sw_graph_add_op(g, SW_OP_SLICE_GRAD, &dy, 1, &attrs), x);
        }
        break;
    }
    }
}

void sw_grad_pass(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out, sw_value *d_in)
{
    (void)g;
    (void)op;
    d_in[0] = d_out[0];
}

sw_value sw_graph_cast(struct sw_graph *g, sw_value x, enum sw_dtype dtype)
{
    if (x < 0 || info_of(g, x)->dtype == dtype) {
        return x;
    }
    x = sw_graph_dense(g, x);
    const int32_t i = sw_graph_add_op(g, SW_OP_CAST, &x, 1, NULL);
    return i < 0 ? SW_NO_VALUE : sw_graph_add_out(g, i, dtype, info_of(g, x)->shape);
}

void sw_grad_cast(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out, sw_value *d_in)
{
    d_in[0] = sw_graph_cast(g, d_out[0], grad_dtype(g, op->in[0]));
}

void sw_grad_loss_mean(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                       sw_value *d_in)
{
    const sw_value in[2] = {d_out[0], op->in[1]};
    d_in[0] = sw_graph_gradient_out(g, sw_graph_add_op(g, SW_OP_LOSS_MEAN_GRAD, in, 2, &op->attrs),
                                    op->in[0]);
}

void sw_grad_cross_entropy(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                           sw_value *d_in)
{
    if (d_out[0] < 0) {
        return;
    }
    const sw_value in[4] = {d_out[0], op->in[0], op->in[1], op->out[2]};
    d_in[0] = sw_graph_gradient_out(
        g, sw_graph_add_op(g, SW_OP_CROSS_ENTROPY_GRAD, in, 4, &op->attrs), op->in[0]);
}

void sw_grad_element_loss(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                          sw_value *d_in)
{
    if (d_out[0] < 0) {
        return;
    }
    const sw_value in[3] = {d_out[0], op->in[0], op->in[1]};
    d_in[0] = sw_graph_gradient_out(
        g, sw_graph_add_op(g, SW_OP_ELEMENT_LOSS_GRAD, in, 3, &op->attrs), op->in[0]);
}

void sw_grad_preference(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                        sw_value *d_in)
{
    sw_value in[SW_MAX_INPUTS] = {d_out[0]};
    if (d_out[0] < 0) {
        return;
    }
    memcpy(&in[1], op->in, (size_t)op->n_in * sizeof *in);
    d_in[0] = sw_graph_gradient_out(
        g, sw_graph_add_op(g, SW_OP_PREFERENCE_GRAD, in, 1 + op->n_in, &op->attrs), op->in[0]);
}

void sw_grad_linear_ce(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                       sw_value *d_in)
{
    if (d_out[0] < 0) {
        return;
    }
    const int bias = op->attrs.linear_ce.has_bias ? 1 : 0;
    const sw_value in[6] = {d_out[0],  op->in[0],  op->in[1],
                            op->in[2], op->out[2], bias ? op->in[3] : SW_NO_VALUE};
    const int32_t i = sw_graph_add_op(g, SW_OP_LINEAR_CE_GRAD, in, 5 + bias, &op->attrs);
    d_in[0] = sw_graph_gradient_out(g, i, op->in[0]);
    d_in[1] = sw_graph_gradient_out(g, i, op->in[1]);
    if (bias) {
        d_in[3] = sw_graph_gradient_out(g, i, op->in[3]);
    }
}

void sw_grad_user(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out, sw_value *d_in)
{
    if (!op->user->gradient) {
        sw_graph_fail(g, SW_E_UNSUP, "op %s has no gradient rule", op->user->name);
        return;
    }
    op->user->gradient(g, op->user, op->in, op->out, d_out, d_in);
}

/* ---- driver ---- */

void sw_graph_add_stream(struct sw_graph *g, sw_value param, sw_value grad, bool continues)
{
    if (grad < 0) {
        return;
    }
    if (info_of(g, grad)->sparse_index < 0) {
        grad = sw_graph_cast(g, sw_graph_dense(g, grad), g->grad_dtype);
    }
    if (grad < 0 || !sw_graph_grow(g, (void **)&g->streams, g->n_streams, sizeof *g->streams)) {
        return;
    }
    struct sw_value_info *info = &g->values[grad];
    if (info->role == SW_ROLE_TRANSIENT && info->base < 0) {
        info->role = SW_ROLE_GRAD;
        info->param = param;
    }
    g->streams[g->n_streams++] =
        (struct sw_stream){.param = param, .grad = grad, .continues = continues};
}

static void contribute(struct sw_graph *g, sw_value *grads, sw_value to, sw_value grad)
{
    if (grad < 0 || !sw_graph_wants(g, to) || g->status < 0) {
        return;
    }
    if (info_of(g, to)->role == SW_ROLE_PARAM) {
        sw_graph_add_stream(g, to, grad, false);
    } else {
        grads[to] = grads[to] < 0 ? grad : sw_add(g, grads[to], grad);
    }
}

static void differentiate(struct sw_graph *g, sw_value *grads, int32_t i_op)
{
    const struct sw_op op = g->ops[i_op]; /* a copy: the array moves while rules add ops */
    sw_value d_out[SW_MAX_OUTPUTS], d_in[SW_MAX_INPUTS];
    bool any = false;
    g->scope = op.scope;
    for (int i = 0; i < op.n_out; i++) {
        d_out[i] = op.out[i] < 0 ? SW_NO_VALUE : grads[op.out[i]];
        any |= d_out[i] >= 0;
    }
    if (!any) {
        return;
    }
    bool any_input = false;
    for (int i = 0; i < op.n_in; i++) {
        d_in[i] = SW_NO_VALUE;
        any_input |= sw_graph_wants(g, op.in[i]);
    }
    if (!any_input) {
        return;
    }
    const struct sw_op_info *info = sw_op_info(op.kind);
    if (!info->gradient) {
        sw_graph_fail(g, SW_E_UNSUP, "op %s has no gradient rule", sw_op_name(&op));
        return;
    }
    for (int i = 0; i < op.n_out; i++) {
        if (d_out[i] >= 0 && op.kind != SW_OP_VIEW && op.kind != SW_OP_CONTIGUOUS) {
            d_out[i] = sw_graph_dense(g, d_out[i]);
        }
    }
    info->gradient(g, &op, d_out, d_in);
    for (int i = op.n_in - 1; i >= 0; i--) {
        contribute(g, grads, op.in[i], d_in[i]);
    }
}

sw_status sw_graph_backward(struct sw_graph *g, sw_value loss)
{
    SW_TRY(sw_graph_status(g));
    if (loss < 0 || loss >= g->n_values || sw_shape_elems(&info_of(g, loss)->shape) != 1) {
        return SW_FAIL(SW_E_ARG, "backward needs a loss of one element");
    }
    if (!sw_graph_wants(g, loss)) {
        return SW_FAIL(SW_E_ARG, "the loss depends on no trained parameter");
    }
    const int32_t n_forward = g->n_ops, n_values = g->n_values;
    sw_value *grads = sw_alloc("graph", (size_t)n_values * sizeof *grads);
    SW_TRY_ALLOC(grads, "the backward pass");
    for (int32_t i = 0; i < n_values; i++) {
        grads[i] = SW_NO_VALUE;
    }
    g->phase = SW_PHASE_BACKWARD;
    g->scope = 0;
    const int32_t seed = sw_graph_add_op(g, SW_OP_SEED, NULL, 0, NULL);
    if (seed >= 0) {
        grads[loss] = sw_graph_add_out(g, seed, info_of(g, loss)->dtype, SW_SHAPE(1));
    }
    for (int32_t i = n_forward - 1; i >= 0 && g->status >= 0; i--) {
        differentiate(g, grads, i);
    }
    g->scope = 0;
    sw_free(grads);
    for (int32_t i = 0, j = g->n_streams - 1; i < j; i++, j--) { /* into forward order */
        const struct sw_stream tmp = g->streams[i];
        g->streams[i] = g->streams[j];
        g->streams[j] = tmp;
    }
    return sw_graph_status(g);
}
