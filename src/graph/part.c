// SPDX-License-Identifier: Apache-2.0
// The graph of one of several ranks that compute a forward together. One walk over the ops: an op
// whose parameter or input is cut works on parts, if it can; sums over ranks are taken where an op
// needs them; between products, ops work on a part of the rows. Everything else is whole. On the
// context axis, what comes from ids is cut along the tokens, and attention along its heads.
// Invariant: all ranks get the same ops, so their exchanges meet.
#include <string.h>

#include "graph/spread.h"

enum { N_SPREADS = SW_SPREAD_SUM + 1 };

/* A value of the whole graph in the graph of this rank. */
struct form {
    bool is_made;
    struct sw_spread native; /* as its op leaves it */
    struct sw_spread cut;    /* of at[SW_SPREAD_CUT] */
    sw_value at[N_SPREADS];  /* SW_NO_VALUE = not made in that spread */
};

struct pass {
    const struct sw_graph *g;
    struct sw_ranks ranks;
    struct sw_graph *out;
    struct form *forms; /* [g->n_values] */
};

static const struct sw_value_info *info_of(const struct pass *p, sw_value v)
{
    return &p->g->values[v];
}

static void set_form(struct pass *p, sw_value v, const struct sw_spread *spread, sw_value value)
{
    struct form *f = &p->forms[v];
    *f = (struct form){.is_made = true, .native = *spread};
    for (int i = 0; i < N_SPREADS; i++) {
        f->at[i] = SW_NO_VALUE;
    }
    f->at[spread->kind] = value;
    f->cut = *spread;
}

static struct sw_exchange_attrs exchange_of(const struct pass *p, enum sw_spread_kind from,
                                            enum sw_spread_kind to, int dim)
{
    return (struct sw_exchange_attrs){.from = from,
                                      .to = to,
                                      .axis = p->ranks.axis,
                                      .dim = dim,
                                      .ranks = p->ranks.n,
                                      .me = p->ranks.me};
}

/* ---- leaves ---- */

/* The spread of a parameter; WHOLE if it has no split. */
static struct sw_spread spread_of_param(struct pass *p, sw_value v)
{
    const struct sw_param_part *part = sw_graph_param_part(p->g, v);
    if (!part) {
        return sw_spread_of(SW_SPREAD_WHOLE);
    }
    struct sw_spread spread = {.kind = SW_SPREAD_CUT, .parts = p->ranks.n, .split = part->split};
    const int64_t unit = sw_max_i64(part->split.unit, 1);
    const int64_t units = sw_ceil_div(part->split.group[0], unit);
    if (part->split.n_groups == 1 && units < p->ranks.n && p->ranks.n % units == 0) {
        spread.parts = (int)units; /* ranks share a head, as layout/ has it */
    }
    if (spread.parts == 1) {
        return sw_spread_of(SW_SPREAD_WHOLE);
    }
    for (int i = 0; i < part->split.n_groups && part->split.unit > 0; i++) {
        const int64_t n = part->split.group[i] / unit;
        char list[128];
        if (part->split.group[i] % (unit * spread.parts) != 0) {
            sw_graph_fail(p->out, SW_E_UNSUP,
                          "spillway.mesh.tensor %d does not divide the %lld %s of %s; sizes that "
                          "do: %s",
                          p->ranks.n, (long long)n,
                          unit > 1              ? "heads"
                          : part->split.dim > 0 ? "columns"
                                                : "rows",
                          info_of(p, v)->name, sw_list_divisors(n, list, sizeof list));
        }
    }
    return spread;
}

static bool add_split(struct sw_graph *g, sw_value x, const struct sw_shape *whole,
                      const struct sw_tensor_split *split)
{
    if (!sw_graph_grow(g, (void **)&g->parts, g->n_parts, sizeof *g->parts)) {
        return false;
    }
    g->parts[g->n_parts++] = (struct sw_param_part){x, *whole, *split};
    return true;
}

/* Ranks with tokens have all of it, and summands of its gradient. */
static void copy_param(struct pass *p, sw_value v)
{
    const struct sw_value_info *info = info_of(p, v);
    const struct sw_param_part *part = sw_graph_param_part(p->g, v);
    const struct sw_spread spread =
        sw_spread_of(info->needs_grad ? SW_SPREAD_COPIED : SW_SPREAD_WHOLE);
    const sw_value x = sw_param(p->out, info->name, info->shape, info->init);
    if (x >= 0) {
        p->out->values[x].needs_grad = info->needs_grad;
    }
    if (x >= 0 && (!part || add_split(p->out, x, &part->whole, &part->split))) {
        set_form(p, v, &spread, x);
    }
}

static void make_param(struct pass *p, sw_value v)
{
    const struct sw_value_info *info = info_of(p, v);
    struct sw_graph *g = p->out;
    if (p->ranks.tokens) {
        copy_param(p, v);
        return;
    }
    const struct sw_spread spread = spread_of_param(p, v);
    sw_value x = sw_param(g, info->name, sw_spread_shape(&spread, &info->shape), info->init);
    if (x >= 0) {
        g->values[x].needs_grad = info->needs_grad;
    }
    if (x >= 0 && spread.kind == SW_SPREAD_CUT) {
        if (!add_split(g, x, &info->shape, &spread.split)) {
            return;
        }
        if (spread.parts < p->ranks.n && info->needs_grad) {
            struct sw_exchange_attrs shared = exchange_of(p, SW_SPREAD_WHOLE, SW_SPREAD_COPIED, 0);
            shared.ranks = p->ranks.n / spread.parts;
            shared.me = p->ranks.me % shared.ranks;
            x = sw_graph_exchange(g, x, &shared);
        }
    }
    set_form(p, v, &spread, x);
}

static void make_leaf(struct pass *p, sw_value v, const struct sw_spread *want)
{
    const struct sw_value_info *info = info_of(p, v);
    struct sw_spread spread = sw_spread_of(SW_SPREAD_WHOLE);
    if (p->forms[v].is_made) {
        return;
    }
    if (info->role == SW_ROLE_PARAM) {
        make_param(p, v);
        return;
    }
    sw_value x;
    if (info->role == SW_ROLE_INPUT) {
        x = sw_input(p->out, info->name, info->dtype, info->shape);
    } else if (info->data) {
        x = sw_constant(p->out, info->name, info->dtype, info->shape, info->data);
    } else { /* a cache: as its first op wants it */
        spread = want && want->kind == SW_SPREAD_CUT ? *want : spread;
        x = sw_graph_state(p->out, info->name, info->dtype, sw_spread_shape(&spread, &info->shape),
                           SW_NO_VALUE);
    }
    set_form(p, v, &spread, x);
}

static bool is_cache(const struct sw_value_info *info)
{
    return info->role == SW_ROLE_STATE && !info->data && info->producer < 0;
}

/* ---- spreads of a value ---- */

/* True if a value can have this spread. */
static bool can(struct pass *p, sw_value v, const struct sw_spread *want)
{
    if (is_cache(info_of(p, v)) && !p->forms[v].is_made) {
        return true;
    }
    make_leaf(p, v, want);
    const struct form *f = &p->forms[v];
    const bool may_gather = f->native.kind != SW_SPREAD_CUT ||
                            (f->native.parts == p->ranks.n && f->native.split.n_groups == 1);
    switch (want->kind) {
    case SW_SPREAD_SUM:
        return f->at[SW_SPREAD_SUM] >= 0;
    case SW_SPREAD_CUT:
        return (f->at[SW_SPREAD_CUT] >= 0 && sw_spread_equal(&f->cut, want)) ||
               (may_gather && want->parts == p->ranks.n && want->split.n_groups == 1 &&
                sw_spread_is_even(want));
    default:
        return may_gather;
    }
}

/* Gathers a cut value. Padding follows the last part and is left out. */
static sw_value gather(struct pass *p, sw_value v, enum sw_spread_kind to)
{
    const struct form *f = &p->forms[v];
    const int dim = f->cut.split.dim;
    const struct sw_exchange_attrs attrs = exchange_of(p, SW_SPREAD_CUT, to, dim);
    const sw_value x = sw_graph_exchange(p->out, f->at[SW_SPREAD_CUT], &attrs);
    return x < 0 || sw_spread_is_even(&f->cut)
               ? x
               : sw_slice(p->out, x, dim, 0, info_of(p, v)->shape.dims[dim]);
}

static sw_value change(struct pass *p, enum sw_spread_kind from, sw_value x, enum sw_spread_kind to,
                       int dim)
{
    const struct sw_exchange_attrs attrs = exchange_of(p, from, to, dim);
    return sw_graph_exchange(p->out, x, &attrs);
}

/* Parts along `dim` become parts along `to_dim`. */
static sw_value turn(struct pass *p, sw_value x, int dim, int to_dim)
{
    struct sw_exchange_attrs attrs = exchange_of(p, SW_SPREAD_CUT, SW_SPREAD_CUT, dim);
    attrs.to_dim = to_dim;
    return sw_graph_exchange(p->out, x, &attrs);
}

static sw_value in_spread(struct pass *p, sw_value v, const struct sw_spread *want);

static sw_value make_whole(struct pass *p, sw_value v)
{
    const struct form *f = &p->forms[v];
    return f->at[SW_SPREAD_CUT] >= 0 ? gather(p, v, SW_SPREAD_WHOLE)
           : f->at[SW_SPREAD_SUM] >= 0
               ? change(p, SW_SPREAD_SUM, f->at[SW_SPREAD_SUM], SW_SPREAD_WHOLE, 0)
               : change(p, SW_SPREAD_COPIED, f->at[SW_SPREAD_COPIED], SW_SPREAD_WHOLE, 0);
}

static sw_value make_copied(struct pass *p, sw_value v)
{
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    const struct form *f = &p->forms[v];
    return f->at[SW_SPREAD_WHOLE] < 0 && f->at[SW_SPREAD_CUT] >= 0
               ? gather(p, v, SW_SPREAD_COPIED)
               : change(p, SW_SPREAD_WHOLE, in_spread(p, v, &whole), SW_SPREAD_COPIED, 0);
}

static sw_value make_cut(struct pass *p, sw_value v, const struct sw_spread *want)
{
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    const struct form *f = &p->forms[v];
    const int dim = want->split.dim;
    if (p->ranks.tokens && f->native.kind == SW_SPREAD_CUT && f->at[SW_SPREAD_WHOLE] < 0) {
        return turn(p, f->at[SW_SPREAD_CUT], f->cut.split.dim, dim);
    }
    if (f->native.kind == SW_SPREAD_SUM && f->at[SW_SPREAD_WHOLE] < 0) {
        return change(p, SW_SPREAD_SUM, f->at[SW_SPREAD_SUM], SW_SPREAD_CUT, dim);
    }
    if (f->at[SW_SPREAD_WHOLE] < 0 && f->at[SW_SPREAD_COPIED] >= 0) {
        return change(p, SW_SPREAD_COPIED, f->at[SW_SPREAD_COPIED], SW_SPREAD_CUT, dim);
    }
    return change(p, SW_SPREAD_WHOLE, in_spread(p, v, &whole), SW_SPREAD_CUT, dim);
}

/* The value in this spread; `can` said that it can have it. */
static sw_value in_spread(struct pass *p, sw_value v, const struct sw_spread *want)
{
    make_leaf(p, v, want);
    struct form *f = &p->forms[v];
    const enum sw_spread_kind kind =
        want->kind == SW_SPREAD_COPIED && !info_of(p, v)->needs_grad ? SW_SPREAD_WHOLE : want->kind;
    if (f->at[kind] >= 0 && (kind != SW_SPREAD_CUT || sw_spread_equal(&f->cut, want))) {
        return f->at[kind];
    }
    const sw_value x = kind == SW_SPREAD_CUT      ? make_cut(p, v, want)
                       : kind == SW_SPREAD_COPIED ? make_copied(p, v)
                                                  : make_whole(p, v);
    if (kind != SW_SPREAD_CUT || f->native.kind != SW_SPREAD_CUT) {
        f->at[kind] = x;
        f->cut = kind == SW_SPREAD_CUT ? *want : f->cut;
    }
    return x;
}

/* ---- ops ---- */

static sw_value view_of(struct pass *p, const struct sw_op *op, sw_value x, struct sw_shape shape)
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

/* Adds the op of this rank with its outputs. */
static void add_op(struct pass *p, const struct sw_op *whole, const struct sw_op_part *part,
                   const sw_value *in)
{
    struct sw_graph *g = p->out;
    struct sw_shape shapes[SW_MAX_OUTPUTS];
    for (int k = 0; k < whole->n_out; k++) {
        shapes[k] = sw_spread_shape(&part->out[k], &info_of(p, whole->out[k])->shape);
    }
    if (whole->kind == SW_OP_VIEW) {
        set_form(p, whole->out[0], &part->out[0], view_of(p, &part->op, in[0], shapes[0]));
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
                       : sw_graph_add_out(g, i, info_of(p, whole->out[k])->dtype, shapes[k]);
        set_form(p, whole->out[k], &part->out[k], out);
    }
}

static void emit(struct pass *p, const struct sw_op *op, const struct sw_op_part *part)
{
    sw_value in[SW_MAX_INPUTS];
    for (int k = 0; k < op->n_in; k++) {
        const sw_value x = in_spread(p, op->in[k], &part->in[k]);
        in[k] = info_of(p, op->in[k])->contiguous ? sw_graph_dense(p->out, x) : x;
        if (in[k] < 0) {
            return;
        }
    }
    add_op(p, op, part, in);
}

static bool all_can(struct pass *p, const struct sw_op *op, const struct sw_op_part *part)
{
    for (int k = 0; k < op->n_in; k++) {
        if (!can(p, op->in[k], &part->in[k])) {
            return false;
        }
    }
    return true;
}

static bool is_model_cut(const struct pass *p, sw_value v)
{
    const struct sw_spread *native = &p->forms[v].native;
    return native->kind == SW_SPREAD_CUT && !native->is_rows;
}

/* By parts of a parameter, or of what was computed from parts. */
static bool by_parts(struct pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    struct sw_op_part part;
    for (int k = 0; k < op->n_in; k++) {
        if (p->forms[op->in[k]].is_made && is_model_cut(p, op->in[k]) &&
            sw_op_part(desc, k, &p->forms[op->in[k]].native, &p->ranks, &part) &&
            all_can(p, op, &part)) {
            emit(p, op, &part);
            return true;
        }
    }
    return false;
}

/* True if the only reader of an op's output adds something to it that is a sum over ranks, too, or
 * is not made yet: another branch, or an adapter. */
static bool joins_a_sum(const struct pass *p, const struct sw_op *op)
{
    bool joins = false;
    int n_readers = 0;
    for (const struct sw_op *next = op + 1; next < p->g->ops + p->g->n_ops && n_readers < 2;
         next++) {
        for (int k = 0; k < next->n_in; k++) {
            if (next->in[k] == op->out[0]) {
                const struct form *other = &p->forms[next->in[k == 0 && next->n_in > 1]];
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
static bool by_shares(struct pass *p, const struct sw_op *op)
{
    const struct sw_spread copied = sw_spread_of(SW_SPREAD_COPIED);
    const struct sw_spread sum = sw_spread_of(SW_SPREAD_SUM);
    if (op->kind != SW_OP_ADD || p->forms[op->in[0]].native.kind != SW_SPREAD_SUM ||
        info_of(p, op->in[1])->shape.rank != 1 || !can(p, op->in[1], &copied) ||
        !joins_a_sum(p, op)) {
        return false;
    }
    const sw_value bias = sw_scale(p->out, in_spread(p, op->in[1], &copied), 1.0 / p->ranks.n);
    const sw_value in[2] = {p->forms[op->in[0]].at[SW_SPREAD_SUM], bias};
    const struct sw_op_part part = {.op = *op, .out[0] = sum};
    if (p->out->status >= 0) {
        add_op(p, op, &part, in);
    }
    return true;
}

static bool by_sums(struct pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    struct sw_spread in[SW_MAX_INPUTS];
    struct sw_op_part part;
    for (int k = 0; k < op->n_in; k++) {
        in[k] = p->forms[op->in[k]].native;
    }
    if (by_shares(p, op)) {
        return true;
    }
    if (op->n_in == 0 || !sw_op_part_of_sum(desc, in, &part) || !all_can(p, op, &part)) {
        return false;
    }
    emit(p, op, &part);
    return true;
}

/* A loss over the words of this rank, and from those of all ranks the whole loss. */
static void merge_words(struct pass *p, const struct sw_op *op, const sw_value *in, int n_in)
{
    struct sw_graph *g = p->out;
    struct sw_attrs attrs = op->attrs;
    sw_value all[SW_MAX_INPUTS];
    const int64_t rows = sw_shape_rows(&info_of(p, op->in[0])->shape);
    const int64_t words = g->values[in[1]].shape.dims[0];
    attrs.linear_ce.whole = info_of(p, op->in[1])->shape.dims[0];
    attrs.linear_ce.chunk = sw_min_i64(attrs.linear_ce.chunk, words);
    attrs.linear_ce.tile = (struct sw_tile_attrs){.first = p->ranks.me * words, .partial = true};
    const enum sw_dtype dtype = sw_stat_dtype(g->values[in[0]].dtype);
    memcpy(all, in, (size_t)n_in * sizeof *in);
    all[n_in] = sw_graph_add_out(g, sw_graph_add_op(g, SW_OP_LINEAR_CE, in, n_in, &attrs), dtype,
                                 SW_SHAPE(3, rows));
    all[n_in] = change(p, SW_SPREAD_CUT, all[n_in], SW_SPREAD_WHOLE, 0);
    attrs.linear_ce.tile.partial = false;
    const int32_t i = sw_graph_emit(g, SW_OP_LINEAR_CE_MERGE, all, n_in + 1, &attrs);
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    for (int k = 0; k < op->n_out && i >= 0; k++) {
        set_form(p, op->out[k], &whole, g->ops[i].out[k]);
    }
}

/* The same for logits of which ranks have some classes. */
static void merge_classes(struct pass *p, const struct sw_op *op, sw_value logits, sw_value labels)
{
    struct sw_graph *g = p->out;
    struct sw_attrs attrs = op->attrs;
    const int64_t rows = sw_shape_rows(&info_of(p, op->in[0])->shape);
    const enum sw_dtype dtype = sw_stat_dtype(g->values[logits].dtype);
    attrs.cross_entropy.whole = sw_shape_last(&info_of(p, op->in[0])->shape);
    attrs.cross_entropy.first = p->ranks.me * sw_shape_last(&g->values[logits].shape);
    attrs.cross_entropy.partial = true;
    sw_value in[3] = {logits, labels};
    in[2] = sw_graph_add_out(g, sw_graph_add_op(g, SW_OP_CROSS_ENTROPY, in, 2, &attrs), dtype,
                             SW_SHAPE(4, rows));
    in[2] = change(p, SW_SPREAD_CUT, in[2], SW_SPREAD_WHOLE, 0);
    attrs.cross_entropy.partial = false;
    const int32_t i = sw_graph_emit(g, SW_OP_CROSS_ENTROPY_MERGE, in, 3, &attrs);
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    for (int k = 0; k < op->n_out && i >= 0; k++) {
        set_form(p, op->out[k], &whole, g->ops[i].out[k]);
    }
}

static bool by_classes(struct pass *p, const struct sw_op *op)
{
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    if (!p->ranks.words || op->kind != SW_OP_CROSS_ENTROPY) {
        return false;
    }
    const struct sw_spread *classes = &p->forms[op->in[0]].native;
    if (!is_model_cut(p, op->in[0]) || classes->parts != p->ranks.n ||
        classes->split.dim != info_of(p, op->in[0])->shape.rank - 1 ||
        classes->split.n_groups != 1 || !can(p, op->in[1], &whole)) {
        return false;
    }
    const sw_value logits = sw_graph_dense(p->out, in_spread(p, op->in[0], classes));
    const sw_value labels = sw_graph_dense(p->out, in_spread(p, op->in[1], &whole));
    if (p->out->status >= 0) {
        merge_classes(p, op, logits, labels);
    }
    return true;
}

static bool by_words(struct pass *p, const struct sw_op *op)
{
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    const struct sw_spread copied = sw_spread_of(SW_SPREAD_COPIED);
    sw_value in[SW_MAX_INPUTS];
    if (!p->ranks.words || op->kind != SW_OP_LINEAR_CE) {
        return false;
    }
    const struct sw_spread *words = &p->forms[op->in[1]].native;
    const bool is_cut = words->kind == SW_SPREAD_CUT && words->parts == p->ranks.n &&
                        words->split.dim == 0 && words->split.n_groups == 1;
    if (!is_cut || (op->n_in > 3 && !sw_spread_equal(words, &p->forms[op->in[3]].native))) {
        return false;
    }
    const struct sw_spread *const want[4] = {&copied, words, &whole, words};
    for (int k = 0; k < op->n_in; k++) {
        if (!can(p, op->in[k], want[k])) {
            return false;
        }
    }
    for (int k = 0; k < op->n_in; k++) {
        in[k] = sw_graph_dense(p->out, in_spread(p, op->in[k], want[k]));
    }
    if (p->out->status >= 0) {
        merge_words(p, op, in, op->n_in);
    }
    return true;
}

/* The op reads what a product reads: copies that are there, and parameters. */
static bool by_copies(struct pass *p, const struct sw_op *op)
{
    struct sw_op_part part = {.op = *op};
    bool any = false;
    for (int k = 0; k < op->n_in; k++) {
        const struct sw_value_info *info = info_of(p, op->in[k]);
        const struct form *f = &p->forms[op->in[k]];
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
    if (!any || !all_can(p, op, &part)) {
        return false;
    }
    emit(p, op, &part);
    return true;
}

/* The cut of rows of a region: samples, else tokens. False = they do not divide. */
static bool rows_of(const struct pass *p, sw_value v, struct sw_spread *out)
{
    const struct sw_shape *shape = &info_of(p, v)->shape;
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

static bool on_rows(struct pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    struct sw_op_part part;
    for (int k = 0; k < op->n_in && !sw_op_has(op, SW_TRAIT_PRODUCTS); k++) {
        const struct sw_spread *native = &p->forms[op->in[k]].native;
        struct sw_spread rows = *native;
        const bool is_rows = native->kind == SW_SPREAD_CUT && native->is_rows;
        if ((!is_rows && (native->kind != SW_SPREAD_SUM || !rows_of(p, op->in[k], &rows))) ||
            !sw_op_part(desc, k, &rows, &p->ranks, &part) || !all_can(p, op, &part)) {
            continue;
        }
        bool all = true;
        for (int i = 0; i < op->n_out; i++) {
            all = all && part.out[i].kind == SW_SPREAD_CUT;
        }
        if (all) {
            emit(p, op, &part);
            return true;
        }
    }
    return false;
}

static void on_all(struct pass *p, const struct sw_op *op)
{
    const struct sw_op_part part = {.op = *op};
    for (int k = 0; k < op->n_in; k++) {
        if (!can(p, op->in[k], &part.in[k])) {
            sw_graph_fail(p->out, SW_E_UNSUP,
                          "%s: an op needs all of an input of which each rank "
                          "has parts of several groups, or shares a part",
                          sw_op_name(op));
        }
    }
    emit(p, op, &part);
}

static bool has_sum(const struct pass *p, const struct sw_op *op)
{
    for (int k = 0; k < op->n_in; k++) {
        if (p->forms[op->in[k]].native.kind == SW_SPREAD_SUM) {
            return true;
        }
    }
    return false;
}

/* ---- the context axis ---- */

static bool is_cut(const struct pass *p, sw_value v)
{
    return p->forms[v].native.kind == SW_SPREAD_CUT;
}

static bool is_cut_along(const struct pass *p, sw_value v, int dim)
{
    return is_cut(p, v) && p->forms[v].native.split.dim == dim;
}

/* Numbers per row of logits: in the order of the rank's own rows, which no other rank reads. */
static struct sw_spread of_own_rows(const struct pass *p, const struct sw_view *numbers)
{
    const int dim = numbers->shape.rank - 1;
    return sw_spread_cut(dim, sw_shape_last(&numbers->shape), p->ranks.n);
}

/* A loss has such numbers as its last output and, if it is made from parts of the vocabulary, as
 * its last input. */
static bool part_of_loss(struct pass *p, const struct sw_op_desc *desc, int lead,
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

/* The part that an op has if input `lead` is cut like that. A cut of rows leaves pieces of a
 * product as they are. */
static bool part_of_tokens(struct pass *p, const struct sw_op *op, const struct sw_op_desc *desc,
                           int lead, const struct sw_spread *cut, struct sw_op_part *part)
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
    return all_can(p, op, part);
}

static bool along_tokens(struct pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    struct sw_op_part part;
    for (int k = 0; k < op->n_in; k++) {
        if (is_cut(p, op->in[k]) &&
            part_of_tokens(p, op, desc, k, &p->forms[op->in[k]].native, &part)) {
            emit(p, op, &part);
            return true;
        }
    }
    return false;
}

/* Ids name the rows of a table: the tokens of this rank. */
static bool from_ids(struct pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    struct sw_op_part part;
    if (op->kind != SW_OP_EMBEDDING || desc->in[1].shape.rank == 0) {
        return false;
    }
    const int dim = desc->in[1].shape.rank - 1;
    const struct sw_spread ids = sw_spread_cut(dim, desc->in[1].shape.dims[dim], p->ranks.n);
    if (!sw_spread_is_even(&ids) || !part_of_tokens(p, op, desc, 1, &ids, &part)) {
        return false;
    }
    emit(p, op, &part);
    return true;
}

/* The op works on some columns of all tokens: the mean of tokens, or one of them. */
static bool by_columns(struct pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    const struct sw_shape *x = &desc->in[0].shape;
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    struct sw_op_part part;
    if (op->n_in == 0 || op->n_out != 1 || x->rank != 3 || !is_cut_along(p, op->in[0], 1)) {
        return false;
    }
    const struct sw_spread columns = sw_spread_cut(2, x->dims[2], p->ranks.n);
    if (!sw_spread_is_even(&columns) || !part_of_tokens(p, op, desc, 0, &columns, &part) ||
        part.out[0].kind != SW_SPREAD_CUT) {
        return false;
    }
    emit(p, op, &part);
    if (p->out->status >= 0) {
        set_form(p, op->out[0], &whole, in_spread(p, op->out[0], &whole));
    }
    return true;
}

/* ---- heads: all tokens of some of them ---- */

/* x [B,T,KV D] or [B,T,KV,D] with n copies of each head side by side. */
static sw_value repeat_heads(struct sw_graph *g, sw_value x, int64_t heads, int64_t n)
{
    while (n > 1 && x >= 0) {
        sw_value copies[SW_MAX_INPUTS];
        struct sw_shape shape = g->values[x].shape;
        int64_t each = SW_MAX_INPUTS;
        while (n % each != 0) {
            each--;
        }
        if (each == 1) {
            sw_graph_fail(g, SW_E_UNSUP, "%lld copies of a key head for ranks of the context axis",
                          (long long)n);
            return SW_NO_VALUE;
        }
        const int64_t width = sw_head_width(&shape, heads);
        const sw_value one =
            sw_reshape(g, x, SW_SHAPE(shape.dims[0], shape.dims[1], heads, 1, width));
        for (int64_t i = 0; i < each; i++) {
            copies[i] = one;
        }
        shape.dims[2] *= each;
        x = sw_reshape(g, sw_concat(g, copies, (int)each, 3), shape);
        heads *= each;
        n /= each;
    }
    return x;
}

/* An attention as ranks with heads compute it. */
struct heads {
    struct sw_op op; /* q, k and v may have become separate, and key heads several */
    struct sw_op_desc whole;
    sw_value in[3]; /* of this rank */
    int n_made;
};

/* Packed q, k, v of a rank's tokens become those of its heads in one exchange, if they have equally
 * many. */
static sw_value turn_packed(struct pass *p, sw_value x)
{
    struct sw_graph *g = p->out;
    const struct sw_shape shape = g->values[x].shape;
    const int64_t width = shape.dims[2] / 3, n = p->ranks.n;
    const struct sw_shape parts = SW_SHAPE(shape.dims[0], shape.dims[1], 3, n, width / n);
    const sw_value by_rank = sw_transpose(g, sw_reshape(g, x, parts), 2, 3);
    return turn(p, sw_reshape(g, by_rank, shape), 1, 2);
}

/* Heads from a value of which all ranks have the same tokens, such as their mean. */
static sw_value heads_of_all(struct pass *p, sw_value v, int64_t heads, int64_t copies)
{
    const bool is_copied = p->forms[v].native.kind == SW_SPREAD_COPIED;
    const struct sw_spread all = sw_spread_of(is_copied ? SW_SPREAD_COPIED : SW_SPREAD_WHOLE);
    const sw_value x = repeat_heads(p->out, in_spread(p, v, &all), heads, copies);
    return change(p, all.kind, x, SW_SPREAD_CUT, 2);
}

/* Copies of key heads until each rank has those that its queries need. */
static int64_t copies_of_heads(const struct sw_attention_attrs *attrs, int n)
{
    const int64_t most = attrs->heads / attrs->kv_heads;
    int64_t copies = 1;
    while (copies < most && (most % copies != 0 || attrs->kv_heads * copies % n != 0)) {
        copies++;
    }
    return copies;
}

static void take_separate(struct pass *p, const struct sw_op *op, int64_t copies, struct heads *out)
{
    for (int i = 0; i < 3; i++) {
        const int64_t heads = i == 0 ? op->attrs.attention.heads : op->attrs.attention.kv_heads;
        const int64_t n = i == 0 ? 1 : copies;
        const sw_value v = op->in[i];
        out->in[i] =
            is_cut_along(p, v, 1)
                ? turn(p, repeat_heads(p->out, p->forms[v].at[SW_SPREAD_CUT], heads, n), 1, 2)
                : heads_of_all(p, v, heads, n);
        out->whole.in[i].shape.dims[2] *= n;
    }
}

/* Takes q, k and v apart. */
static void unpack(struct pass *p, const struct sw_op *op, int64_t copies, struct heads *out)
{
    const struct sw_attention_attrs *attrs = &op->attrs.attention;
    const sw_value x = p->forms[op->in[0]].at[SW_SPREAD_CUT];
    const struct sw_view qkv = out->whole.in[0];
    const int64_t width = sw_attention_width(attrs, &qkv.shape);
    int64_t start = 0;
    memmove(&out->op.in[3], &op->in[1], (size_t)(op->n_in - 1) * sizeof *op->in);
    memmove(&out->whole.in[3], &out->whole.in[1], (size_t)(op->n_in - 1) * sizeof qkv);
    out->op.n_in += 2;
    out->op.attrs.attention.packed = false;
    for (int i = 0; i < 3; i++) {
        const int64_t heads = i == 0 ? attrs->heads : attrs->kv_heads, n = i == 0 ? 1 : copies;
        const sw_value part = sw_slice(p->out, x, 2, start, heads * width);
        out->in[i] = turn(p, repeat_heads(p->out, part, heads, n), 1, 2);
        out->whole.in[i] = qkv;
        out->whole.in[i].shape.dims[2] = heads * width * n;
        start += heads * width;
    }
}

static void take_heads(struct pass *p, const struct sw_op *op, const struct sw_op_desc *desc,
                       struct heads *out)
{
    const struct sw_attention_attrs *attrs = &op->attrs.attention;
    const int64_t copies = copies_of_heads(attrs, p->ranks.n);
    *out = (struct heads){.op = *op, .whole = *desc, .n_made = 3};
    out->op.attrs.attention.kv_heads *= copies;
    if (!attrs->packed) {
        take_separate(p, op, copies, out);
    } else if (attrs->heads == attrs->kv_heads) {
        out->n_made = 1;
        out->in[0] = turn_packed(p, p->forms[op->in[0]].at[SW_SPREAD_CUT]);
    } else {
        unpack(p, op, copies, out);
    }
}

static struct sw_spread spread_of_heads(const struct heads *h, int n)
{
    const int64_t width = h->whole.in[0].shape.dims[2];
    struct sw_spread spread = sw_spread_cut(2, width, n);
    if (h->op.attrs.attention.packed) {
        spread.split.n_groups = SW_CUT_SECTIONS;
        for (int i = 0; i < SW_CUT_SECTIONS; i++) {
            spread.split.group[i] = width / SW_CUT_SECTIONS;
        }
    }
    return spread;
}

/* Each rank takes some heads, with the inputs that it has made, and gets its tokens back. */
static void attend(struct pass *p, struct heads *h)
{
    const sw_value o = h->op.out[0];
    const int64_t tokens = info_of(p, o)->shape.dims[1];
    const struct sw_spread back = sw_spread_cut(1, tokens, p->ranks.n);
    struct sw_op_part part;
    sw_value in[SW_MAX_INPUTS];
    h->whole.op = &h->op;
    const struct sw_spread cut = spread_of_heads(h, p->ranks.n);
    bool good = p->out->status >= 0 && sw_op_part(&h->whole, 0, &cut, &p->ranks, &part);
    for (int k = 0; k < h->op.n_in && good; k++) {
        good = k < h->n_made || can(p, h->op.in[k], &part.in[k]);
        in[k] = k < h->n_made ? h->in[k]
                : good        ? sw_graph_dense(p->out, in_spread(p, h->op.in[k], &part.in[k]))
                              : SW_NO_VALUE;
    }
    if (!good) {
        sw_graph_fail(p->out, SW_E_UNSUP,
                      "attention in %s: ranks of the context axis cannot "
                      "divide its heads",
                      p->g->scopes[h->op.scope].name);
        return;
    }
    add_op(p, &h->op, &part, in);
    if (p->out->status >= 0) {
        set_form(p, o, &back, turn(p, p->forms[o].at[SW_SPREAD_CUT], 2, 1));
    }
}

static bool by_attention(struct pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    const struct sw_attention_attrs *attrs = &op->attrs.attention;
    const char *scope = p->g->scopes[op->scope].name;
    struct heads heads;
    if (op->kind != SW_OP_ATTENTION) {
        return false;
    }
    if (!attrs->packed && !is_cut(p, op->in[1]) && !is_cut(p, op->in[2]) &&
        along_tokens(p, op, desc)) {
        return true; /* queries that see the same keys, of which all ranks have all */
    }
    if (!is_cut_along(p, op->in[0], 1)) {
        sw_graph_fail(p->out, SW_E_UNSUP,
                      "attention in %s: its queries do not come from rows of ids that the %d "
                      "ranks of the context axis divide",
                      scope, p->ranks.n);
    } else if (attrs->heads % p->ranks.n != 0) {
        sw_graph_fail(p->out, SW_E_UNSUP,
                      "attention in %s: %lld heads do not divide by %d ranks of the context axis",
                      scope, (long long)attrs->heads, p->ranks.n);
    } else {
        take_heads(p, op, desc, &heads);
        attend(p, &heads);
    }
    return true;
}

/* Terms of an attention's scores: a rank makes those of its heads. */
static bool by_heads(struct pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    struct sw_op_part part;
    const int dim = op->kind == SW_OP_RELATIVE_SCORES ? 2 : 1;
    if (op->kind != SW_OP_RELATIVE_SCORES && op->kind != SW_OP_RELATIVE_BIAS) {
        return false;
    }
    const struct sw_spread cut = sw_spread_cut(dim, desc->in[0].shape.dims[dim], p->ranks.n);
    if (!sw_spread_is_even(&cut) || !part_of_tokens(p, op, desc, 0, &cut, &part)) {
        return false;
    }
    emit(p, op, &part);
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
static bool across(struct pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    const struct sw_exchange_attrs *attrs = exchange_in(op);
    const struct sw_shape *x = &desc->in[0].shape;
    if (!attrs) {
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
    if (!can(p, op->in[0], &spread)) {
        return false;
    }
    const sw_value y = sw_graph_exchange(p->out, in_spread(p, op->in[0], &spread), attrs);
    if (spread.kind == SW_SPREAD_CUT) {
        spread.split.group[0] = desc->out[0].shape.dims[spread.split.dim];
    }
    set_form(p, op->out[0], &spread, y);
    return true;
}

static void take_tokens(struct pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    if (!across(p, op, desc) && !by_attention(p, op, desc) && !by_heads(p, op, desc) &&
        !from_ids(p, op, desc) && !along_tokens(p, op, desc) && !by_columns(p, op, desc) &&
        !by_copies(p, op)) {
        on_all(p, op);
    }
}

/* ---- the graph ---- */

static void take(struct pass *p, const struct sw_op *op)
{
    struct sw_op_desc desc;
    sw_graph_describe(p->g, op, &desc);
    p->out->scope = op->scope;
    if (p->ranks.tokens && p->out->status >= 0) {
        take_tokens(p, op, &desc);
        return;
    }
    if (p->out->status < 0 || by_words(p, op) || by_classes(p, op) || by_parts(p, op, &desc) ||
        by_sums(p, op, &desc) || (!has_sum(p, op) && by_copies(p, op)) ||
        (p->ranks.rows && on_rows(p, op, &desc))) {
        return;
    }
    on_all(p, op);
}

/* The same scopes, so that the numbers of scopes, and names in messages, stay. */
static void copy_scopes(struct pass *p)
{
    for (int32_t i = 1; i < p->g->n_scopes; i++) {
        const struct sw_scope *scope = &p->g->scopes[i];
        const size_t parent = strlen(p->g->scopes[scope->parent].name);
        const char *name = scope->name + parent + (parent > 0);
        p->out->scope = scope->parent;
        if (scope->is_block) {
            sw_scope_push_block(p->out, name);
        } else {
            sw_scope_push(p->out, name);
        }
    }
}

/* All leaves in their order, but caches get theirs from their first op. */
static void make_leaves(struct pass *p)
{
    p->out->scope = 0;
    for (sw_value v = 0; v < p->g->n_values && p->out->status >= 0; v++) {
        if (info_of(p, v)->producer < 0 && !is_cache(info_of(p, v))) {
            make_leaf(p, v, NULL);
        }
    }
}

static void copy_outputs(struct pass *p)
{
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    for (int32_t i = 0; i < p->g->n_outputs; i++) {
        const struct sw_named *output = &p->g->outputs[i];
        if (!can(p, output->value, &whole)) {
            sw_graph_fail(p->out, SW_E_UNSUP, "output %s: ranks have parts of several groups of it",
                          output->name);
        }
        /* row-major: what is gathered without its padding is a view */
        sw_output(p->out, output->name,
                  sw_graph_dense(p->out, in_spread(p, output->value, &whole)));
    }
}

static void copy_adapted(struct pass *p)
{
    for (int32_t i = 0; i < p->g->adapted.n; i++) {
        const struct sw_adapted *of = &p->g->adapted.items[i];
        struct sw_adapted layer = *of;
        layer.weight = sw_graph_find(p->out, SW_ROLE_PARAM, info_of(p, of->weight)->name);
        layer.a = sw_graph_find(p->out, SW_ROLE_PARAM, info_of(p, of->a)->name);
        layer.b = sw_graph_find(p->out, SW_ROLE_PARAM, info_of(p, of->b)->name);
        sw_graph_note_adapted(p->out, &layer);
    }
}

static sw_status open_out(struct pass *p)
{
    const struct sw_graph *g = p->g;
    const struct sw_graph_options options = {.dtype = g->dtype,
                                             .grad_dtype = g->grad_dtype,
                                             .training = g->training,
                                             .token_mean = g->token_mean,
                                             .loss_chunk = g->loss_chunk,
                                             .frozen = g->frozen,
                                             .n_frozen = g->n_frozen,
                                             .adapter = g->adapted.by};
    p->forms = sw_alloc_zero("graph", (size_t)sw_max_i64(g->n_values, 1), sizeof *p->forms);
    SW_TRY_ALLOC(p->forms, "the graph of a rank");
    return sw_graph_open(&options, &p->out);
}

sw_status sw_graph_part(const struct sw_graph *g, const struct sw_ranks *ranks, sw_value loss,
                        struct sw_graph **out, sw_value *out_loss)
{
    struct pass p = {.g = g, .ranks = *ranks};
    SW_TRY(sw_graph_status(g));
    if (ranks->n <= 1) {
        SW_TRY(sw_graph_copy(g, out));
        *out_loss = loss;
        return SW_OK;
    }
    sw_status st = open_out(&p);
    if (st < 0) {
        sw_free(p.forms);
        return st;
    }
    copy_scopes(&p);
    make_leaves(&p);
    for (int32_t i = 0; i < g->n_ops && p.out->status >= 0; i++) {
        take(&p, &g->ops[i]);
    }
    p.out->scope = 0;
    copy_outputs(&p);
    copy_adapted(&p);
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    const sw_value at = loss < 0 ? SW_NO_VALUE : in_spread(&p, loss, &whole);
    p.out->scope = 0;
    sw_free(p.forms);
    st = sw_graph_status(p.out);
    if (st < 0) {
        sw_graph_close(p.out);
        return st;
    }
    *out = p.out;
    *out_loss = at;
    return SW_OK;
}
