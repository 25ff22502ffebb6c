// SPDX-License-Identifier: Apache-2.0
// Values in the graph of one of several ranks: parameters, inputs and caches, and the exchanges
// that make a value in another spread than the one its op leaves it in.
#include "graph/part.h"

void sw_part_set(struct sw_part_pass *p, sw_value v, const struct sw_spread *spread, sw_value value)
{
    struct sw_part_form *f = &p->forms[v];
    *f = (struct sw_part_form){.is_made = true, .native = *spread};
    for (int i = 0; i < SW_N_SPREADS; i++) {
        f->at[i] = SW_NO_VALUE;
    }
    f->at[spread->kind] = value;
    f->cut = *spread;
}

static struct sw_exchange_attrs exchange_of(const struct sw_part_pass *p, enum sw_spread_kind from,
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

/* Fails unless the ranks divide each group by whole units. */
static void check_units(struct sw_part_pass *p, sw_value v, const struct sw_spread *spread)
{
    const struct sw_value_info *info = sw_part_info(p, v);
    const bool is_blocks = !sw_dtype_is_float(info->dtype) && spread->split.dim > 0;
    const int64_t unit = spread->split.unit;
    char list[128];
    for (int i = 0; i < spread->split.n_groups && unit > 0; i++) {
        const int64_t n = spread->split.group[i] / unit;
        if (spread->split.group[i] % (unit * sw_spread_parts(spread, i)) != 0) {
            sw_graph_fail(p->out, SW_E_UNSUP,
                          "spillway.mesh.tensor %d does not divide the %lld %s of %s; sizes that "
                          "do: %s",
                          p->ranks.n, (long long)n,
                          is_blocks               ? "blocks of codes in a row"
                          : unit > 1              ? "heads"
                          : spread->split.dim > 0 ? "columns"
                                                  : "rows",
                          info->name, sw_list_divisors(n, list, sizeof list));
        }
    }
}

/* Fails unless the groups that ranks share are the last rows, of which each has equally many
 * copies: an exchange adds their gradients. */
static void check_copies(struct sw_part_pass *p, sw_value v, const struct sw_spread *spread)
{
    const int n = spread->split.n_groups, most = spread->copies[n - 1];
    bool good = true;
    for (int i = 0; i < n; i++) {
        good = good && (spread->copies[i] == most || (spread->copies[i] <= 1 && i == 0));
    }
    if (most > 1 && (!good || spread->split.dim != 0 || spread->parts < p->ranks.n)) {
        sw_graph_fail(p->out, SW_E_UNSUP,
                      "spillway.mesh.tensor %d: ranks would share some groups of %s; that is built "
                      "for all of its rows but those of the first group",
                      p->ranks.n, sw_part_info(p, v)->name);
    }
}

/* Fails if ranks would share columns of codes, of which activations have parts. */
static void check_blocks(struct sw_part_pass *p, sw_value v, const struct sw_spread *spread)
{
    const struct sw_value_info *info = sw_part_info(p, v);
    if (!sw_dtype_is_float(info->dtype) && spread->split.dim > 0 && spread->parts < p->ranks.n) {
        sw_graph_fail(p->out, SW_E_UNSUP,
                      "spillway.mesh.tensor %d: ranks would share the blocks of codes in a row of "
                      "%s; wanted at most %d ranks",
                      p->ranks.n, info->name, spread->parts);
    }
}

/* The spread of a parameter; WHOLE if it has no split. Ranks share what has fewer units than ranks,
 * as layout/ has it: all of it, or some groups. */
static struct sw_spread spread_of_param(struct sw_part_pass *p, sw_value v)
{
    const struct sw_param_part *part = sw_graph_param_part(p->g, v);
    if (!part || part->of_experts) {
        return sw_spread_of(SW_SPREAD_WHOLE);
    }
    const int64_t length = part->whole.dims[part->split.dim];
    struct sw_spread spread = {.kind = SW_SPREAD_CUT,
                               .split = sw_split_over(&part->split, length, p->ranks.n)};
    spread.repeats = (int)sw_split_repeats(&spread.split, length);
    const int ranks = p->ranks.n / spread.repeats;
    int64_t common = p->ranks.n;
    for (int i = 0; i < spread.split.n_groups; i++) {
        spread.copies[i] = sw_split_sharing(&spread.split, i, ranks);
        common = sw_common_divisor(common, spread.copies[i]);
    }
    for (int i = 0; i < spread.split.n_groups; i++) {
        spread.copies[i] /= (int)common;
    }
    spread.parts = p->ranks.n / (int)common;
    if (spread.parts == 1) {
        return sw_spread_of(SW_SPREAD_WHOLE);
    }
    check_blocks(p, v, &spread);
    check_copies(p, v, &spread);
    check_units(p, v, &spread);
    return spread;
}

static bool add_split(struct sw_graph *g, sw_value x, const struct sw_param_part *part)
{
    if (!sw_graph_grow(g, (void **)&g->parts, g->n_parts, sizeof *g->parts)) {
        return false;
    }
    g->parts[g->n_parts] = *part;
    g->parts[g->n_parts++].param = x;
    return true;
}

/* Who has the parameter along the expert axis stays. */
static void keep_experts(struct sw_part_pass *p, sw_value v, sw_value x)
{
    p->out->values[x].is_local = sw_part_info(p, v)->is_local;
    p->out->values[x].is_elsewhere = sw_part_info(p, v)->is_elsewhere;
}

/* Ranks with tokens have all of it, and summands of its gradient. */
static void copy_param(struct sw_part_pass *p, sw_value v)
{
    const struct sw_value_info *info = sw_part_info(p, v);
    const struct sw_param_part *part = sw_graph_param_part(p->g, v);
    const struct sw_spread spread =
        sw_spread_of(info->needs_grad ? SW_SPREAD_COPIED : SW_SPREAD_WHOLE);
    const sw_value x = sw_graph_param(p->out, info->name, info->dtype, info->shape, info->init);
    if (x >= 0) {
        p->out->values[x].needs_grad = info->needs_grad;
        keep_experts(p, v, x);
    }
    if (x >= 0 && (!part || add_split(p->out, x, part))) {
        sw_part_set(p, v, &spread, x);
    }
}

/* The scope of the first op that reads v; 0 = none does. */
static int32_t scope_of_reader(const struct sw_part_pass *p, sw_value v)
{
    for (int32_t i = 0; i < p->g->n_ops; i++) {
        for (int k = 0; k < p->g->ops[i].n_in; k++) {
            if (p->g->ops[i].in[k] == v) {
                return p->g->ops[i].scope;
            }
        }
    }
    return 0;
}

/* x, a part of v that several ranks hold, or of whose last groups they hold copies: its gradient is
 * the sum of theirs. The exchange is in the stage of a pipeline that reads v. */
static sw_value add_gradients(struct sw_part_pass *p, sw_value v, sw_value x,
                              const struct sw_spread *spread)
{
    const int copies = sw_max_i64(spread->copies[spread->split.n_groups - 1], 1);
    struct sw_exchange_attrs shared = exchange_of(p, SW_SPREAD_WHOLE, SW_SPREAD_COPIED, 0);
    shared.ranks = p->ranks.n / spread->parts * copies;
    shared.me = p->ranks.me % shared.ranks;
    shared.own = copies > 1 ? spread->split.group[0] / sw_spread_parts(spread, 0) : 0;
    if (shared.ranks <= 1) {
        return x;
    }
    p->out->scope = scope_of_reader(p, v);
    x = sw_graph_exchange(p->out, x, &shared);
    p->out->scope = 0;
    return x;
}

static void make_param(struct sw_part_pass *p, sw_value v)
{
    const struct sw_value_info *info = sw_part_info(p, v);
    struct sw_graph *g = p->out;
    if (p->ranks.tokens) {
        copy_param(p, v);
        return;
    }
    const struct sw_param_part *part = sw_graph_param_part(p->g, v);
    const struct sw_spread spread = spread_of_param(p, v);
    sw_value x = sw_graph_param(g, info->name, info->dtype, sw_spread_shape(&spread, &info->shape),
                                info->init);
    if (x >= 0) {
        g->values[x].needs_grad = info->needs_grad;
        keep_experts(p, v, x);
    }
    if (x >= 0 && (spread.kind == SW_SPREAD_CUT || (part && part->of_experts)) &&
        !add_split(g, x, part)) {
        return;
    }
    if (x >= 0 && spread.kind == SW_SPREAD_CUT) {
        x = info->needs_grad ? add_gradients(p, v, x, &spread) : x;
    }
    sw_part_set(p, v, &spread, x);
}

static bool is_cache(const struct sw_value_info *info)
{
    return info->role == SW_ROLE_STATE && !info->data && info->producer < 0;
}

static void make_leaf(struct sw_part_pass *p, sw_value v, const struct sw_spread *want)
{
    const struct sw_value_info *info = sw_part_info(p, v);
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
    sw_part_set(p, v, &spread, x);
}

void sw_part_leaves(struct sw_part_pass *p)
{
    p->out->scope = 0;
    for (sw_value v = 0; v < p->g->n_values && p->out->status >= 0; v++) {
        if (sw_part_info(p, v)->producer < 0 && !is_cache(sw_part_info(p, v))) {
            make_leaf(p, v, NULL);
        }
    }
}

/* ---- spreads of a value ---- */

/* Tokens may be cut unevenly: a last part that has fewer is padded. */
static bool may_pad(const struct sw_part_pass *p, sw_value v, const struct sw_spread *want)
{
    const struct sw_value_info *info = sw_part_info(p, v);
    return p->ranks.tokens && want->split.dim == 1 && info->shape.rank == 3 &&
           sw_dtype_is_float(info->dtype);
}

bool sw_part_can(struct sw_part_pass *p, sw_value v, const struct sw_spread *want)
{
    if (is_cache(sw_part_info(p, v)) && !p->forms[v].is_made) {
        return true;
    }
    make_leaf(p, v, want);
    const struct sw_part_form *f = &p->forms[v];
    const bool may_gather =
        f->native.kind != SW_SPREAD_CUT ||
        (f->native.parts == p->ranks.n && f->native.split.n_groups == 1 && !f->native.is_nested);
    switch (want->kind) {
    case SW_SPREAD_SUM:
        return f->at[SW_SPREAD_SUM] >= 0;
    case SW_SPREAD_CUT:
        return (f->at[SW_SPREAD_CUT] >= 0 && sw_spread_equal(&f->cut, want)) ||
               (may_gather && want->parts == p->ranks.n && want->split.n_groups == 1 &&
                (sw_spread_is_even(want) || may_pad(p, v, want)));
    default:
        return may_gather;
    }
}

/* Gathers a cut value. Padding follows the last part and is left out. */
static sw_value gather(struct sw_part_pass *p, sw_value v, enum sw_spread_kind to)
{
    const struct sw_part_form *f = &p->forms[v];
    const int dim = f->cut.split.dim;
    const struct sw_exchange_attrs attrs = exchange_of(p, SW_SPREAD_CUT, to, dim);
    const sw_value x = sw_graph_exchange(p->out, f->at[SW_SPREAD_CUT], &attrs);
    return x < 0 || sw_spread_is_even(&f->cut)
               ? x
               : sw_slice(p->out, x, dim, 0, sw_part_info(p, v)->shape.dims[dim]);
}

sw_value sw_part_change(struct sw_part_pass *p, enum sw_spread_kind from, sw_value x,
                        enum sw_spread_kind to, int dim)
{
    const struct sw_exchange_attrs attrs = exchange_of(p, from, to, dim);
    return sw_graph_exchange(p->out, x, &attrs);
}

/* x, with its first tokens again as padding, so that the ranks divide dimension 1. No op reads the
 * padding but those that make more of it, so its gradients are zeros. */
static sw_value pad(struct sw_part_pass *p, sw_value x, int64_t tokens)
{
    const int64_t n = sw_ceil_div(tokens, p->ranks.n) * p->ranks.n - tokens;
    if (n == 0 || x < 0) {
        return x;
    }
    const sw_value both[2] = {sw_graph_dense(p->out, x),
                              sw_graph_dense(p->out, sw_slice(p->out, x, 1, 0, n))};
    return sw_concat(p->out, both, 2, 1);
}

sw_value sw_part_turn(struct sw_part_pass *p, sw_value x, int dim, int to_dim, int64_t tokens)
{
    struct sw_exchange_attrs attrs = exchange_of(p, SW_SPREAD_CUT, SW_SPREAD_CUT, dim);
    attrs.to_dim = to_dim;
    x = sw_graph_exchange(p->out, to_dim == 1 ? pad(p, x, tokens) : x, &attrs);
    return dim == 1 && tokens % p->ranks.n != 0
               ? sw_graph_dense(p->out, sw_slice(p->out, x, 1, 0, tokens))
               : x;
}

static sw_value make_whole(struct sw_part_pass *p, sw_value v)
{
    const struct sw_part_form *f = &p->forms[v];
    return f->at[SW_SPREAD_CUT] >= 0 ? gather(p, v, SW_SPREAD_WHOLE)
           : f->at[SW_SPREAD_SUM] >= 0
               ? sw_part_change(p, SW_SPREAD_SUM, f->at[SW_SPREAD_SUM], SW_SPREAD_WHOLE, 0)
               : sw_part_change(p, SW_SPREAD_COPIED, f->at[SW_SPREAD_COPIED], SW_SPREAD_WHOLE, 0);
}

static sw_value make_copied(struct sw_part_pass *p, sw_value v)
{
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    const struct sw_part_form *f = &p->forms[v];
    return f->at[SW_SPREAD_WHOLE] < 0 && f->at[SW_SPREAD_CUT] >= 0
               ? gather(p, v, SW_SPREAD_COPIED)
               : sw_part_change(p, SW_SPREAD_WHOLE, sw_part_in(p, v, &whole), SW_SPREAD_COPIED, 0);
}

static sw_value make_cut(struct sw_part_pass *p, sw_value v, const struct sw_spread *want)
{
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    const struct sw_part_form *f = &p->forms[v];
    const struct sw_shape *shape = &sw_part_info(p, v)->shape;
    const int64_t tokens = may_pad(p, v, want) ? shape->dims[1] : 0;
    const int dim = want->split.dim;
    if (p->ranks.tokens && f->native.kind == SW_SPREAD_CUT && f->at[SW_SPREAD_WHOLE] < 0) {
        return sw_part_turn(p, f->at[SW_SPREAD_CUT], f->cut.split.dim, dim,
                            shape->rank == 3 ? shape->dims[1] : 0);
    }
    if (f->native.kind == SW_SPREAD_SUM && f->at[SW_SPREAD_WHOLE] < 0) {
        return sw_part_change(p, SW_SPREAD_SUM, pad(p, f->at[SW_SPREAD_SUM], tokens), SW_SPREAD_CUT,
                              dim);
    }
    if (f->at[SW_SPREAD_WHOLE] < 0 && f->at[SW_SPREAD_COPIED] >= 0) {
        return sw_part_change(p, SW_SPREAD_COPIED, pad(p, f->at[SW_SPREAD_COPIED], tokens),
                              SW_SPREAD_CUT, dim);
    }
    return sw_part_change(p, SW_SPREAD_WHOLE, pad(p, sw_part_in(p, v, &whole), tokens),
                          SW_SPREAD_CUT, dim);
}

sw_value sw_part_in(struct sw_part_pass *p, sw_value v, const struct sw_spread *want)
{
    make_leaf(p, v, want);
    struct sw_part_form *f = &p->forms[v];
    const enum sw_spread_kind kind =
        want->kind == SW_SPREAD_COPIED && !sw_part_info(p, v)->needs_grad ? SW_SPREAD_WHOLE
                                                                          : want->kind;
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
