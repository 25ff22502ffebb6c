// SPDX-License-Identifier: Apache-2.0
// Rules of the context axis, in the order in which an op tries them. Values that come from ids are
// cut along the tokens; attention is cut along its heads (graph/part_heads.c).
#include "graph/part.h"

/* Numbers per row of logits: in the order of the rank's own rows, which no other rank reads. */
static struct sw_spread of_own_rows(const struct sw_part_pass *p, const struct sw_view *numbers)
{
    const int dim = numbers->shape.rank - 1;
    return sw_spread_cut(dim, sw_shape_last(&numbers->shape), p->ranks.n);
}

/* A loss has such numbers as its last output and, if it is made from parts of the vocabulary, as
 * its last input. */
static bool part_of_loss(struct sw_part_pass *p, const struct sw_op_desc *desc, int lead,
                         const struct sw_spread *cut, struct sw_op_part *part)
{
    const int last_in = desc->op->n_in - 1, last_out = desc->op->n_out - 1;
    const bool of_words = desc->op->kind == SW_OP_LINEAR_CE_MERGE;
    const bool merges = of_words || desc->op->kind == SW_OP_CROSS_ENTROPY_MERGE;
    struct sw_op op = *desc->op;
    struct sw_op_desc whole = *desc;
    whole.op = &op;
    whole.out[last_out].shape.rank = -1;
    if (merges) {
        op.kind = of_words ? SW_OP_LINEAR_CE : SW_OP_CROSS_ENTROPY;
        op.n_in--;
    }
    if (lead >= op.n_in || !sw_op_part(&whole, lead, cut, &p->ranks, part)) {
        return false;
    }
    part->out[last_out] = of_own_rows(p, &desc->out[last_out]);
    if (merges) {
        part->in[last_in] = of_own_rows(p, &desc->in[last_in]);
    }
    return true;
}

bool sw_part_of_tokens(struct sw_part_pass *p, const struct sw_op *op,
                       const struct sw_op_desc *desc, int lead, const struct sw_spread *cut,
                       struct sw_op_part *part)
{
    const bool is_loss = op->kind == SW_OP_CROSS_ENTROPY || op->kind == SW_OP_LINEAR_CE ||
                         op->kind == SW_OP_LINEAR_CE_MERGE || op->kind == SW_OP_CROSS_ENTROPY_MERGE;
    if (!(is_loss ? part_of_loss(p, desc, lead, cut, part)
                  : sw_op_part(desc, lead, cut, &p->ranks, part))) {
        return false;
    }
    if (op->kind == SW_OP_MATMUL) {
        part->op.attrs.matmul.piece = op->attrs.matmul.piece;
    }
    const struct sw_dropout_attrs *cut_before = &op->attrs.dropout;
    if (op->kind == SW_OP_DROPOUT && cut_before->part > 0 &&
        part->op.attrs.dropout.outer.part == 0) { /* regions are parts of this rank's tokens */
        part->op.attrs.dropout.first =
            p->ranks.me * (cut_before->whole / p->ranks.n) + cut_before->first / p->ranks.n;
    }
    return sw_part_all_can(p, op, part);
}

bool sw_part_along_tokens(struct sw_part_pass *p, const struct sw_op *op,
                          const struct sw_op_desc *desc)
{
    struct sw_op_part part;
    for (int k = 0; k < op->n_in; k++) {
        if (sw_part_is_cut(p, op->in[k]) &&
            sw_part_of_tokens(p, op, desc, k, &p->forms[op->in[k]].native, &part)) {
            sw_part_emit(p, op, &part);
            return true;
        }
    }
    return false;
}

/* Ids name the rows of a table: the tokens of this rank. */
static bool from_ids(struct sw_part_pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    struct sw_op_part part;
    if (op->kind != SW_OP_EMBEDDING || desc->in[1].shape.rank == 0) {
        return false;
    }
    const int dim = desc->in[1].shape.rank - 1;
    const struct sw_spread ids = sw_spread_cut(dim, desc->in[1].shape.dims[dim], p->ranks.n);
    if (!sw_spread_is_even(&ids) || !sw_part_of_tokens(p, op, desc, 1, &ids, &part)) {
        return false;
    }
    sw_part_emit(p, op, &part);
    return true;
}

static bool is_in_block(const struct sw_graph *g, int32_t scope)
{
    while (scope > 0 && !g->scopes[scope].is_block) {
        scope = g->scopes[scope].parent;
    }
    return scope > 0;
}

static bool has_ids(const struct sw_graph *g)
{
    for (int32_t i = 0; i < g->n_ops; i++) {
        if (g->ops[i].kind == SW_OP_EMBEDDING) {
            return true;
        }
    }
    return false;
}

/* Without ids all ranks make the patches of pictures, and the first block cuts them. */
static bool of_patches(struct sw_part_pass *p, const struct sw_op *op,
                       const struct sw_op_desc *desc)
{
    struct sw_op_part part;
    if (op->n_in == 0 || desc->in[0].shape.rank != 3 || desc->in[0].shape.dims[1] < p->ranks.n ||
        !is_in_block(p->g, op->scope) || has_ids(p->g)) {
        return false;
    }
    const struct sw_spread tokens = sw_spread_cut(1, desc->in[0].shape.dims[1], p->ranks.n);
    if (!sw_part_of_tokens(p, op, desc, 0, &tokens, &part)) {
        return false;
    }
    sw_part_emit(p, op, &part);
    return true;
}

/* One token of each row: each rank gives the one at this place of its part. */
static bool by_place(struct sw_part_pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    const struct sw_view_attrs *attrs = &op->attrs.view;
    if (op->kind != SW_OP_VIEW || attrs->kind != SW_VIEW_SLICE || attrs->dim != 1 ||
        desc->in[0].shape.rank != 3 || desc->out[0].shape.dims[1] != 1 ||
        !sw_part_is_cut_along(p, op->in[0], 1)) {
        return false;
    }
    const int64_t each = sw_ceil_div(desc->in[0].shape.dims[1], p->ranks.n);
    const sw_value mine =
        sw_slice(p->out, p->forms[op->in[0]].at[SW_SPREAD_CUT], 1, attrs->start % each, 1);
    const sw_value all =
        sw_part_change(p, SW_SPREAD_CUT, sw_graph_dense(p->out, mine), SW_SPREAD_WHOLE, 1);
    const sw_value token = sw_slice(p->out, all, 1, attrs->start / each, 1);
    if (p->out->status >= 0) {
        sw_part_set(p, op->out[0], &whole, token);
    }
    return true;
}

/* The op works on some columns of all tokens: the mean of tokens, or one of each row. */
static bool by_columns(struct sw_part_pass *p, const struct sw_op *op,
                       const struct sw_op_desc *desc)
{
    const struct sw_shape *x = &desc->in[0].shape;
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    struct sw_op_part part;
    if (op->n_in == 0 || op->n_out != 1 || x->rank != 3 || !sw_part_is_cut_along(p, op->in[0], 1)) {
        return false;
    }
    const struct sw_spread columns = sw_spread_cut(2, x->dims[2], p->ranks.n);
    if (!sw_spread_is_even(&columns) || !sw_part_of_tokens(p, op, desc, 0, &columns, &part) ||
        part.out[0].kind != SW_SPREAD_CUT) {
        return false;
    }
    sw_part_emit(p, op, &part);
    if (p->out->status >= 0) {
        sw_part_set(p, op->out[0], &whole, sw_part_in(p, op->out[0], &whole));
    }
    return true;
}

/* ---- exchanges of an axis that was cut before ---- */

static const struct sw_exchange_attrs *exchange_in(const struct sw_op *op)
{
    return op->kind == SW_OP_EXCHANGE                                    ? &op->attrs.exchange
           : op->kind == SW_OP_VIEW && op->attrs.view.exchange.ranks > 0 ? &op->attrs.view.exchange
                                                                         : NULL;
}

/* Ranks with the same tokens exchange them as they would exchange all. Parts of integers per token,
 * which are whole here, are parts of this rank's. */
static bool across(struct sw_part_pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    const struct sw_exchange_attrs *attrs = exchange_in(op);
    const struct sw_shape *x = &desc->in[0].shape;
    if (!attrs || op->n_in > 1) { /* rows of experts are those of all tokens */
        return false;
    }
    struct sw_spread spread = p->forms[op->in[0]].native;
    const bool is_part = attrs->to == SW_SPREAD_CUT && attrs->from != SW_SPREAD_CUT;
    if (spread.kind == SW_SPREAD_SUM) {
        spread = sw_spread_of(SW_SPREAD_WHOLE);
    } else if (spread.kind == SW_SPREAD_WHOLE && desc->in[0].dtype == SW_I32 && is_part &&
               x->rank == 2 && attrs->dim == 1) {
        spread = sw_spread_cut(attrs->dim, x->dims[attrs->dim], p->ranks.n);
    }
    if (!sw_part_can(p, op->in[0], &spread)) {
        return false;
    }
    const sw_value y = sw_graph_exchange(p->out, sw_part_in(p, op->in[0], &spread), attrs);
    if (spread.kind == SW_SPREAD_CUT) {
        spread.split.group[0] = desc->out[0].shape.dims[spread.split.dim];
    }
    sw_part_set(p, op->out[0], &spread, y);
    return true;
}

void sw_part_take_tokens(struct sw_part_pass *p, const struct sw_op *op,
                         const struct sw_op_desc *desc)
{
    if (!across(p, op, desc) && !sw_part_by_attention(p, op, desc) &&
        !sw_part_by_heads(p, op, desc) && !from_ids(p, op, desc) && !by_place(p, op, desc) &&
        !sw_part_along_tokens(p, op, desc) && !of_patches(p, op, desc) &&
        !by_columns(p, op, desc) && !sw_part_by_copies(p, op)) {
        sw_part_on_all(p, op);
    }
}
