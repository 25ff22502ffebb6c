// SPDX-License-Identifier: Apache-2.0
// Spread rules: the spread of one input of an op gives those of all operands, by the table of cuts.
// Two kinds have a rule of their own: attention whose key heads are shared by ranks, and views that
// take a group of a cut dimension.
#include <string.h>

#include "graph/spread.h"

struct sw_spread sw_spread_cut(int dim, int64_t elems, int parts)
{
    return (struct sw_spread){.kind = SW_SPREAD_CUT,
                              .parts = parts,
                              .split = {.dim = dim, .n_groups = 1, .group = {elems}}};
}

bool sw_spread_equal(const struct sw_spread *a, const struct sw_spread *b)
{
    return a->kind == b->kind &&
           (a->kind != SW_SPREAD_CUT ||
            (a->parts == b->parts && a->split.dim == b->split.dim &&
             a->split.n_groups == b->split.n_groups &&
             memcmp(a->split.group, b->split.group,
                    (size_t)a->split.n_groups * sizeof *a->split.group) == 0));
}

bool sw_spread_is_even(const struct sw_spread *spread)
{
    for (int i = 0; i < spread->split.n_groups; i++) {
        if (spread->split.group[i] % spread->parts != 0) {
            return false;
        }
    }
    return true;
}

struct sw_shape sw_spread_shape(const struct sw_spread *spread, const struct sw_shape *whole)
{
    struct sw_shape shape = *whole;
    if (spread->kind == SW_SPREAD_CUT) {
        shape.dims[spread->split.dim] = 0;
        for (int i = 0; i < spread->split.n_groups; i++) {
            shape.dims[spread->split.dim] += sw_ceil_div(spread->split.group[i], spread->parts);
        }
    }
    return shape;
}

/* ---- the table of cuts ---- */

static bool has_sections(const struct sw_operand_cut *of)
{
    return of->per[1] > 0;
}

/* The parts of the lead are runs of units. Whatever is padded must not enter a sum, with the
 * exception of a table, whose padding no id names. */
static bool fits(const struct sw_op_desc *desc, const struct sw_cut *cut, int lead,
                 const struct sw_spread *spread, bool *is_padded)
{
    const struct sw_operand_cut *of = &cut->operands[lead];
    const struct sw_tensor_split *split = &spread->split;
    *is_padded = false;
    if (has_sections(of)) {
        bool same = split->n_groups == SW_CUT_SECTIONS && cut->n % spread->parts == 0;
        for (int s = 0; s < SW_CUT_SECTIONS; s++) {
            same = same && split->group[s] == cut->n * of->per[s];
        }
        return same;
    }
    for (int i = 0; i < split->n_groups; i++) {
        *is_padded = *is_padded || split->group[i] % (of->per[0] * spread->parts) != 0;
    }
    if (!*is_padded) {
        return true;
    }
    bool is_sum = false;
    for (int k = 0; k < desc->op->n_out; k++) {
        is_sum = is_sum || cut->operands[desc->op->n_in + k].effect == SW_CUT_ADDED;
    }
    return split->n_groups == 1 && of->per[0] == 1 &&
           (!is_sum || sw_op_has(desc->op, SW_TRAIT_LOOKUP));
}

/* Operand k is cut alike: its groups correspond to those of the lead. */
static bool cut_alike(const struct sw_cut *cut, int k, int lead, const struct sw_spread *spread,
                      struct sw_spread *out)
{
    const struct sw_operand_cut *of = &cut->operands[k], *from = &cut->operands[lead];
    *out = *spread;
    out->split.dim = of->dim;
    out->split.unit = 0;
    if (has_sections(of)) {
        out->split.n_groups = SW_CUT_SECTIONS;
        for (int s = 0; s < SW_CUT_SECTIONS; s++) {
            out->split.group[s] = cut->n * of->per[s];
        }
        return true;
    }
    if (has_sections(from)) {
        out->split.n_groups = 1;
        out->split.group[0] = of->elems;
        return true;
    }
    for (int i = 0; i < spread->split.n_groups; i++) {
        if (spread->split.group[i] * of->elems % from->elems != 0) {
            return false;
        }
        out->split.group[i] = spread->split.group[i] * of->elems / from->elems;
    }
    return true;
}

static bool spread_all(const struct sw_op_desc *desc, const struct sw_cut *cut, int lead,
                       const struct sw_spread *spread, struct sw_op_part *out)
{
    for (int k = 0; k < desc->op->n_in + desc->op->n_out; k++) {
        const bool is_in = k < desc->op->n_in;
        struct sw_spread *to = is_in ? &out->in[k] : &out->out[k - desc->op->n_in];
        switch (cut->operands[k].effect) {
        case SW_CUT_ALIKE:
            if (!cut_alike(cut, k, lead, spread, to)) {
                return false;
            }
            break;
        case SW_CUT_WHOLE:
            *to = sw_spread_of(SW_SPREAD_COPIED);
            break;
        case SW_CUT_ADDED:
            *to = sw_spread_of(SW_SPREAD_SUM);
            break;
        case SW_CUT_SAME:
            *to = sw_spread_of(SW_SPREAD_WHOLE);
            break;
        default:
            return false;
        }
    }
    return true;
}

static bool part_by_cut(const struct sw_op_desc *desc, int lead, const struct sw_spread *spread,
                        const struct sw_ranks *ranks, struct sw_op_part *out)
{
    struct sw_cut cut;
    bool is_padded;
    if (!sw_op_cut(desc, lead, spread->split.dim, &cut) || !cut.apart ||
        !fits(desc, &cut, lead, spread, &is_padded) || !spread_all(desc, &cut, lead, spread, out)) {
        return false;
    }
    const int64_t n = sw_ceil_div(cut.n, spread->parts);
    const int64_t me = ranks->me / (ranks->n / spread->parts);
    sw_op_take_part(desc, &out->op, &cut, me * n, n);
    return true;
}

/* ---- rows with a rule of their own ---- */

/* Fewer key heads than ranks: each rank has query heads of one key head. */
static bool part_of_shared_heads(const struct sw_op_desc *desc, const struct sw_ranks *ranks,
                                 struct sw_op_part *out)
{
    struct sw_attention_attrs *attrs = &out->op.attrs.attention;
    struct sw_op each = *desc->op;
    struct sw_op_desc as_many = *desc;
    struct sw_cut cut;
    const int kv = (int)attrs->kv_heads, dim = 2;
    each.attrs.attention.kv_heads = attrs->heads; /* the other operands are cut by query heads */
    as_many.op = &each;
    const struct sw_spread q = sw_spread_cut(dim, desc->in[0].shape.dims[dim], ranks->n);
    if (attrs->packed || attrs->heads % ranks->n != 0 || ranks->n % kv != 0 ||
        !sw_op_cut(&as_many, 0, dim, &cut) || !spread_all(desc, &cut, 0, &q, out)) {
        return false;
    }
    for (int k = 1; k <= 2; k++) {
        out->in[k] = kv == 1 ? sw_spread_of(SW_SPREAD_COPIED)
                             : sw_spread_cut(dim, desc->in[k].shape.dims[dim], kv);
    }
    attrs->heads /= ranks->n;
    attrs->kv_heads = 1;
    attrs->first_head = attrs->heads * ranks->me;
    return true;
}

/* A slice that is one of the groups of a cut dimension. */
static bool part_of_group(const struct sw_op_desc *desc, const struct sw_spread *spread,
                          struct sw_op_part *out)
{
    struct sw_view_attrs *attrs = &out->op.attrs.view;
    int64_t start = 0, here = 0;
    if (attrs->kind != SW_VIEW_SLICE || attrs->dim != spread->split.dim) {
        return false;
    }
    for (int i = 0; i < spread->split.n_groups; i++) {
        const int64_t n = spread->split.group[i];
        if (start == attrs->start && n == desc->out[0].shape.dims[attrs->dim]) {
            out->in[0] = *spread;
            out->out[0] = sw_spread_cut(attrs->dim, n, spread->parts);
            attrs->start = here;
            return true;
        }
        start += n;
        here += sw_ceil_div(n, spread->parts);
    }
    return false;
}

bool sw_op_part(const struct sw_op_desc *desc, int lead, const struct sw_spread *cut,
                const struct sw_ranks *ranks, struct sw_op_part *out)
{
    struct sw_op op = *desc->op;
    struct sw_op_desc whole = *desc;
    if (op.kind == SW_OP_MATMUL) {
        op.attrs.matmul.piece = 0; /* pieces are those of the part's own shape */
    }
    whole.op = &op;
    memset(out, 0, sizeof *out);
    out->op = op;
    if (op.kind == SW_OP_ATTENTION && !cut->is_rows &&
        op.attrs.attention.kv_heads % ranks->n != 0) {
        return part_of_shared_heads(&whole, ranks, out);
    }
    if (op.kind == SW_OP_VIEW && part_of_group(&whole, cut, out)) {
        return true;
    }
    return part_by_cut(&whole, lead, cut, ranks, out);
}

bool sw_op_part_of_sum(const struct sw_op_desc *desc, const struct sw_spread *in,
                       struct sw_op_part *out)
{
    const struct sw_op *op = desc->op;
    memset(out, 0, sizeof *out);
    out->op = *op;
    switch (op->kind) {
    case SW_OP_VIEW:
    case SW_OP_CONTIGUOUS:
    case SW_OP_SCALE:
        break;
    case SW_OP_ADD:
        if (in[1].kind != SW_SPREAD_SUM ||
            !sw_shape_equal(&desc->in[0].shape, &desc->in[1].shape)) {
            return false;
        }
        break;
    case SW_OP_MATMUL:
        if (op->attrs.matmul.ta || in[1].kind == SW_SPREAD_SUM || in[1].kind == SW_SPREAD_CUT) {
            return false;
        }
        out->in[1] = sw_spread_of(SW_SPREAD_COPIED);
        break;
    default:
        return false;
    }
    out->in[0] = out->out[0] = sw_spread_of(SW_SPREAD_SUM);
    if (op->kind == SW_OP_ADD) {
        out->in[1] = out->in[0];
    }
    return in[0].kind == SW_SPREAD_SUM;
}
