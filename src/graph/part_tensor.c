// SPDX-License-Identifier: Apache-2.0
// Rules of the tensor axis, in the order in which an op tries them: parts of a parameter, or of a
// value that was computed from parts; sums over ranks; copies; a part of the rows; whole inputs.
#include "graph/part.h"

/* The op works on parts of a parameter, or on values that were computed from parts. */
static bool by_parts(struct sw_part_pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    struct sw_op_part part;
    for (int k = 0; k < op->n_in; k++) {
        if (p->forms[op->in[k]].is_made && sw_part_is_model_cut(p, op->in[k]) &&
            sw_op_part(desc, k, &p->forms[op->in[k]].native, &p->ranks, &part) &&
            sw_part_all_can(p, op, &part)) {
            sw_part_emit(p, op, &part);
            return true;
        }
    }
    return false;
}

/* Ranks decode their parts of a quantized weight. */
static bool by_codes(struct sw_part_pass *p, const struct sw_op *op)
{
    struct sw_op_part part = {.op = *op};
    if (op->kind != SW_OP_DEQUANTIZE || !sw_part_is_cut(p, op->in[0])) {
        return false;
    }
    for (int k = 0; k < op->n_in; k++) {
        part.in[k] = p->forms[op->in[k]].native;
    }
    struct sw_spread *out = &part.out[0];
    *out = part.in[0];
    const bool int8 = op->attrs.weight.form.kind == SW_QUANTIZED_INT8;
    const int64_t per = !int8 && out->split.dim == 1 ? 2 : 1;
    out->split.unit *= per;
    for (int i = 0; i < out->split.n_groups; i++) {
        out->split.group[i] *= per;
    }
    const struct sw_shape here = sw_spread_shape(out, &sw_part_info(p, op->out[0])->shape);
    part.op.attrs.weight.rows = here.dims[0];
    part.op.attrs.weight.columns = here.dims[1];
    sw_part_emit(p, op, &part);
    return true;
}

/* True if the only reader of an op's output adds something to it that is a sum over ranks, too, or
 * is not made yet: another branch, or an adapter. */
static bool joins_a_sum(const struct sw_part_pass *p, const struct sw_op *op)
{
    bool joins = false;
    int n_readers = 0;
    for (const struct sw_op *next = op + 1; next < p->g->ops + p->g->n_ops && n_readers < 2;
         next++) {
        for (int k = 0; k < next->n_in; k++) {
            if (next->in[k] == op->out[0]) {
                const struct sw_part_form *other = &p->forms[next->in[k == 0 && next->n_in > 1]];
                n_readers++;
                joins = next->kind == SW_OP_ADD && next->in[0] != next->in[1] &&
                        (!other->is_made || other->native.kind == SW_SPREAD_SUM);
            }
        }
    }
    return joins && n_readers == 1;
}

/* Adds a bias to a sum that another one will join, so that ranks add both at once: each rank adds
 * its share of the bias. */
static bool by_shares(struct sw_part_pass *p, const struct sw_op *op)
{
    const struct sw_spread copied = sw_spread_of(SW_SPREAD_COPIED);
    const struct sw_spread sum = sw_spread_of(SW_SPREAD_SUM);
    if (op->kind != SW_OP_ADD || p->forms[op->in[0]].native.kind != SW_SPREAD_SUM ||
        sw_part_info(p, op->in[1])->shape.rank != 1 || !sw_part_can(p, op->in[1], &copied) ||
        !joins_a_sum(p, op)) {
        return false;
    }
    const sw_value bias = sw_scale(p->out, sw_part_in(p, op->in[1], &copied), 1.0 / p->ranks.n);
    const sw_value in[2] = {p->forms[op->in[0]].at[SW_SPREAD_SUM], bias};
    const struct sw_op_part part = {.op = *op, .out[0] = sum};
    if (p->out->status >= 0) {
        sw_part_add_op(p, op, &part, in);
    }
    return true;
}

/* True if a sum over ranks was added up for another op. What is added to it then joins it there: a
 * residual stream stays on the rows of the rank. */
static bool is_added_up(const struct sw_part_pass *p, const struct sw_op *op)
{
    for (int k = 0; k < op->n_in; k++) {
        const struct sw_part_form *f = &p->forms[op->in[k]];
        if (f->native.kind == SW_SPREAD_SUM &&
            (f->at[SW_SPREAD_CUT] >= 0 || f->at[SW_SPREAD_WHOLE] >= 0)) {
            return true;
        }
    }
    return false;
}

static bool by_sums(struct sw_part_pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    struct sw_spread in[SW_MAX_INPUTS];
    struct sw_op_part part;
    for (int k = 0; k < op->n_in; k++) {
        in[k] = p->forms[op->in[k]].native;
    }
    if (by_shares(p, op)) {
        return true;
    }
    if (op->n_in == 0 || is_added_up(p, op) || !sw_op_part_of_sum(desc, in, &part) ||
        !sw_part_all_can(p, op, &part)) {
        return false;
    }
    sw_part_emit(p, op, &part);
    return true;
}

/* The cut of rows of a region: samples, else tokens. False = they do not divide. */
static bool rows_of(const struct sw_part_pass *p, sw_value v, struct sw_spread *out)
{
    const struct sw_shape *shape = &sw_part_info(p, v)->shape;
    for (int dim = 0; dim < 2 && shape->rank >= 3; dim++) {
        const int64_t next = dim == 1 ? sw_max_i64(p->ranks.next, 1) : 1;
        if (shape->dims[dim] % (p->ranks.n * next) == 0) {
            *out = sw_spread_cut(dim, shape->dims[dim], p->ranks.n);
            out->is_rows = true;
            return true;
        }
    }
    return false;
}

static bool on_rows(struct sw_part_pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    struct sw_op_part part;
    for (int k = 0; k < op->n_in && !sw_op_has(op, SW_TRAIT_PRODUCTS); k++) {
        const struct sw_spread *native = &p->forms[op->in[k]].native;
        struct sw_spread rows = *native;
        const bool is_rows = native->kind == SW_SPREAD_CUT && native->is_rows;
        if ((!is_rows && (native->kind != SW_SPREAD_SUM || !rows_of(p, op->in[k], &rows))) ||
            !sw_op_part(desc, k, &rows, &p->ranks, &part) || !sw_part_all_can(p, op, &part)) {
            continue;
        }
        bool all = true;
        for (int i = 0; i < op->n_out; i++) {
            all = all && part.out[i].kind == SW_SPREAD_CUT;
        }
        if (all) {
            sw_part_emit(p, op, &part);
            return true;
        }
    }
    return false;
}

static bool has_sum(const struct sw_part_pass *p, const struct sw_op *op)
{
    for (int k = 0; k < op->n_in; k++) {
        if (p->forms[op->in[k]].native.kind == SW_SPREAD_SUM) {
            return true;
        }
    }
    return false;
}

void sw_part_take_tensor(struct sw_part_pass *p, const struct sw_op *op,
                         const struct sw_op_desc *desc)
{
    if (!by_codes(p, op) && !sw_part_by_words(p, op) && !sw_part_by_classes(p, op) &&
        !by_parts(p, op, desc) && !by_sums(p, op, desc) &&
        (has_sum(p, op) || !sw_part_by_copies(p, op)) &&
        (!p->ranks.rows || !on_rows(p, op, desc))) {
        sw_part_on_all(p, op);
    }
}
