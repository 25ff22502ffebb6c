// SPDX-License-Identifier: Apache-2.0
// Spread rules: the spread of one input of an op gives those of all operands, by the table of cuts.
// Some kinds have a rule of their own: attention whose key heads are shared by ranks, views that
// take a group of a cut dimension, and those of groups that repeat.
#include <string.h>

#include "graph/spread.h"

struct sw_spread sw_spread_cut(int dim, int64_t elems, int parts)
{
    return (struct sw_spread){.kind = SW_SPREAD_CUT,
                              .parts = parts,
                              .split = {.dim = dim, .n_groups = 1, .group = {elems}}};
}

static int at_least_one(int n)
{
    return n > 1 ? n : 1;
}

int sw_spread_parts(const struct sw_spread *spread, int group)
{
    return spread->parts / at_least_one(spread->repeats) / at_least_one(spread->copies[group]);
}

bool sw_spread_equal(const struct sw_spread *a, const struct sw_spread *b)
{
    bool equal = a->kind == b->kind;
    if (a->kind != SW_SPREAD_CUT || !equal) {
        return equal;
    }
    equal = a->parts == b->parts && a->split.dim == b->split.dim &&
            a->split.n_groups == b->split.n_groups && a->is_nested == b->is_nested &&
            at_least_one(a->repeats) == at_least_one(b->repeats);
    for (int i = 0; i < a->split.n_groups && equal; i++) {
        equal = a->split.group[i] == b->split.group[i] &&
                at_least_one(a->copies[i]) == at_least_one(b->copies[i]);
    }
    return equal;
}

bool sw_spread_is_even(const struct sw_spread *spread)
{
    for (int i = 0; i < spread->split.n_groups; i++) {
        if (spread->split.group[i] % sw_spread_parts(spread, i) != 0) {
            return false;
        }
    }
    return true;
}

struct sw_shape sw_spread_shape(const struct sw_spread *spread, const struct sw_shape *whole)
{
    struct sw_shape shape = *whole;
    if (spread->kind == SW_SPREAD_CUT) {
        int64_t *along = &shape.dims[spread->split.dim + spread->is_nested];
        shape.dims[spread->split.dim] = 1; /* of the repeats, if they are a dimension */
        *along = 0;
        for (int i = 0; i < spread->split.n_groups; i++) {
            *along += sw_ceil_div(spread->split.group[i], sw_spread_parts(spread, i));
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
        *is_padded = *is_padded || split->group[i] % (of->per[0] * sw_spread_parts(spread, i)) != 0;
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

/* Equal parts of one dimension; one part is a copy on each rank. */
static struct sw_spread cut_or_copied(int dim, int64_t elems, int parts)
{
    return parts == 1 ? sw_spread_of(SW_SPREAD_COPIED) : sw_spread_cut(dim, elems, parts);
}

/* Packed queries, keys and values of which each rank has one key head. */
static bool packs_shared_heads(const struct sw_attention_attrs *attrs, const struct sw_spread *qkv,
                               int ranks)
{
    return qkv->split.n_groups == SW_CUT_SECTIONS && sw_spread_parts(qkv, 0) == ranks &&
           sw_spread_parts(qkv, 1) == attrs->kv_heads && sw_spread_parts(qkv, 2) == attrs->kv_heads;
}

/* Fewer key heads than ranks: each rank has query heads of one key head. lead: spread of the input
 * that is cut; if q, k and v are packed, theirs */
static bool part_of_shared_heads(const struct sw_op_desc *desc, const struct sw_spread *lead,
                                 const struct sw_ranks *ranks, struct sw_op_part *out)
{
    struct sw_attention_attrs *attrs = &out->op.attrs.attention;
    struct sw_op each = *desc->op;
    struct sw_op_desc as_many = *desc;
    struct sw_cut cut;
    const int kv = (int)attrs->kv_heads, dim = 2;
    each.attrs.attention.kv_heads = attrs->heads; /* the other operands are cut by query heads */
    as_many.op = &each;
    const struct sw_spread q = sw_spread_cut(dim, desc->in[0].shape.dims[dim], ranks->n);
    if (attrs->heads % ranks->n != 0 || ranks->n % kv != 0 ||
        (attrs->packed && !packs_shared_heads(attrs, lead, ranks->n)) ||
        !sw_op_cut(&as_many, 0, dim, &cut) || !spread_all(desc, &cut, 0, &q, out)) {
        return false;
    }
    if (attrs->packed) {
        out->in[0] = *lead;
    }
    for (int k = 1; k <= 2 && !attrs->packed; k++) {
        out->in[k] = cut_or_copied(dim, desc->in[k].shape.dims[dim], kv);
    }
    attrs->heads /= ranks->n;
    attrs->kv_heads = 1;
    attrs->first_head = attrs->heads * ranks->me;
    return true;
}

/* The spread of one group. Of groups that repeat, a group that the ranks of a repeat divide keeps
 * its two dimensions. */
static struct sw_spread spread_of_group(const struct sw_spread *spread, int group, int dim)
{
    const int64_t n = spread->split.group[group];
    const int parts = sw_spread_parts(spread, group);
    struct sw_spread out = *spread;
    if (!spread->is_nested) {
        return cut_or_copied(dim, n, parts);
    }
    if (parts == 1) {
        return sw_spread_cut(spread->split.dim, spread->repeats, spread->repeats);
    }
    out.split.n_groups = 1;
    out.split.group[0] = n;
    out.copies[0] = spread->copies[group];
    return out;
}

/* A slice that is one of the groups of a cut dimension. */
static bool part_of_group(const struct sw_op_desc *desc, const struct sw_spread *spread,
                          struct sw_op_part *out)
{
    struct sw_view_attrs *attrs = &out->op.attrs.view;
    int64_t start = 0, here = 0;
    if (attrs->kind != SW_VIEW_SLICE || attrs->dim != spread->split.dim + spread->is_nested ||
        (spread->repeats > 1 && !spread->is_nested)) {
        return false;
    }
    for (int i = 0; i < spread->split.n_groups; i++) {
        const int64_t n = spread->split.group[i];
        if (start == attrs->start && n == desc->out[0].shape.dims[attrs->dim]) {
            out->in[0] = *spread;
            out->out[0] = spread_of_group(spread, i, attrs->dim);
            attrs->start = here;
            return true;
        }
        start += n;
        here += sw_ceil_div(n, sw_spread_parts(spread, i));
    }
    return false;
}

static bool same_dims(const struct sw_shape *a, const struct sw_shape *b, int n)
{
    return memcmp(a->dims, b->dims, (size_t)n * sizeof *a->dims) == 0;
}

/* Groups that repeat: a reshape gives the repeats a dimension of their own, and another one joins
 * it with the only group that is left, whose parts are then those of one dimension. */
static bool part_of_repeats(const struct sw_op_desc *desc, const struct sw_spread *spread,
                            struct sw_op_part *out)
{
    const struct sw_shape *from = &desc->in[0].shape, *to = &desc->out[0].shape;
    const int dim = spread->split.dim;
    const bool reshapes = desc->op->kind == SW_OP_VIEW &&
                          desc->op->attrs.view.kind == SW_VIEW_RESHAPE && to->rank > dim &&
                          same_dims(from, to, dim);
    out->in[0] = out->out[0] = *spread;
    if (desc->op->kind == SW_OP_CONTIGUOUS) {
        return true;
    }
    if (!spread->is_nested) {
        out->out[0].is_nested = true;
        return reshapes && from->rank == dim + 1 && to->rank == dim + 2 &&
               to->dims[dim] == spread->repeats;
    }
    out->out[0] = sw_spread_cut(dim, to->dims[dim], spread->parts);
    return reshapes && spread->split.n_groups == 1 && spread->copies[0] <= 1 &&
           sw_spread_is_even(&out->out[0]);
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
        return part_of_shared_heads(&whole, cut, ranks, out);
    }
    if (op.kind == SW_OP_VIEW && part_of_group(&whole, cut, out)) {
        return true;
    }
    if (cut->is_nested || (cut->repeats > 1 && op.kind == SW_OP_VIEW)) {
        return part_of_repeats(&whole, cut, out);
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
