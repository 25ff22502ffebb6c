// SPDX-License-Identifier: Apache-2.0
// Ops in the graph of one of several ranks, and the rules that all axes share: an op reads copies,
// as a product does, or whole inputs.
#include "graph/part.h"

static sw_value view_of(struct sw_part_pass *p, const struct sw_op *op, sw_value x,
                        struct sw_shape shape)
{
    const struct sw_view_attrs *attrs = &op->attrs.view;
    switch (attrs->kind) {
    case SW_VIEW_RESHAPE:
        return sw_reshape(p->out, x, shape);
    case SW_VIEW_TRANSPOSE:
        return sw_transpose(p->out, x, attrs->dim, attrs->dim_b);
    default:
        return sw_slice(p->out, x, attrs->dim, attrs->start, shape.dims[attrs->dim]);
    }
}

void sw_part_add_op(struct sw_part_pass *p, const struct sw_op *whole,
                    const struct sw_op_part *part, const sw_value *in)
{
    struct sw_graph *g = p->out;
    struct sw_shape shapes[SW_MAX_OUTPUTS];
    for (int k = 0; k < whole->n_out; k++) {
        shapes[k] = sw_spread_shape(&part->out[k], &sw_part_info(p, whole->out[k])->shape);
    }
    if (whole->kind == SW_OP_VIEW) {
        sw_part_set(p, whole->out[0], &part->out[0], view_of(p, &part->op, in[0], shapes[0]));
        return;
    }
    const int32_t i = sw_graph_add_op(g, whole->kind, in, whole->n_in, &part->op.attrs);
    if (i < 0) {
        return;
    }
    g->ops[i].path = whole->path;
    g->ops[i].user = whole->user;
    for (int k = 0; k < whole->n_out; k++) {
        const int alias =
            sw_op_info(whole->kind)->alias ? sw_op_info(whole->kind)->alias(whole, k) : -1;
        const sw_value out =
            alias >= 0 ? sw_graph_add_out_in_place(g, i, in[alias])
                       : sw_graph_add_out(g, i, sw_part_info(p, whole->out[k])->dtype, shapes[k]);
        if (out >= 0 && !sw_part_info(p, whole->out[k])->needs_grad) {
            g->values[out].needs_grad = false; /* what counts as constant, such as norms of DoRA */
        }
        sw_part_set(p, whole->out[k], &part->out[k], out);
    }
}

void sw_part_emit(struct sw_part_pass *p, const struct sw_op *op, const struct sw_op_part *part)
{
    sw_value in[SW_MAX_INPUTS];
    for (int k = 0; k < op->n_in; k++) {
        const sw_value x = sw_part_in(p, op->in[k], &part->in[k]);
        in[k] = sw_part_info(p, op->in[k])->contiguous ? sw_graph_dense(p->out, x) : x;
        if (in[k] < 0) {
            return;
        }
    }
    sw_part_add_op(p, op, part, in);
}

bool sw_part_all_can(struct sw_part_pass *p, const struct sw_op *op, const struct sw_op_part *part)
{
    for (int k = 0; k < op->n_in; k++) {
        if (!sw_part_can(p, op->in[k], &part->in[k])) {
            return false;
        }
    }
    return true;
}

/* The op reads what a product reads: copies that are there, and parameters. */
bool sw_part_by_copies(struct sw_part_pass *p, const struct sw_op *op)
{
    struct sw_op_part part = {.op = *op};
    bool any = false;
    for (int k = 0; k < op->n_in; k++) {
        const struct sw_value_info *info = sw_part_info(p, op->in[k]);
        const struct sw_part_form *f = &p->forms[op->in[k]];
        const bool is_copied =
            f->at[SW_SPREAD_COPIED] >= 0 && (p->ranks.tokens || info->role != SW_ROLE_PARAM);
        any = any || (is_copied && info->needs_grad);
        if (info->needs_grad && info->role != SW_ROLE_PARAM && !is_copied) {
            return false;
        }
        part.in[k] = sw_spread_of(SW_SPREAD_COPIED);
    }
    for (int k = 0; k < op->n_out; k++) {
        part.out[k] = sw_spread_of(SW_SPREAD_COPIED);
    }
    if (!any || !sw_part_all_can(p, op, &part)) {
        return false;
    }
    sw_part_emit(p, op, &part);
    return true;
}

void sw_part_on_all(struct sw_part_pass *p, const struct sw_op *op)
{
    const struct sw_op_part part = {.op = *op};
    for (int k = 0; k < op->n_in; k++) {
        if (!sw_part_can(p, op->in[k], &part.in[k])) {
            sw_graph_fail(p->out, SW_E_UNSUP,
                          "%s: an op needs all of an input of which each rank "
                          "has parts of several groups, or shares a part",
                          sw_op_name(op));
        }
    }
    sw_part_emit(p, op, &part);
}
