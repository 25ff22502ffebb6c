// SPDX-License-Identifier: Apache-2.0
// Attention on the context axis. One exchange gives a rank all tokens of some heads; another one
// gives it all heads of its tokens back.
#include <string.h>

#include "graph/part.h"

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
static sw_value turn_packed(struct sw_part_pass *p, sw_value x, int64_t tokens)
{
    struct sw_graph *g = p->out;
    const struct sw_shape shape = g->values[x].shape;
    const int64_t width = shape.dims[2] / 3, n = p->ranks.n;
    const struct sw_shape parts = SW_SHAPE(shape.dims[0], shape.dims[1], 3, n, width / n);
    const sw_value by_rank = sw_transpose(g, sw_reshape(g, x, parts), 2, 3);
    return sw_part_turn(p, sw_reshape(g, by_rank, shape), 1, 2, tokens);
}

/* Takes heads from a value that all ranks have, such as the mean of the tokens. */
static sw_value heads_of_all(struct sw_part_pass *p, sw_value v, int64_t heads, int64_t copies)
{
    const bool is_copied = p->forms[v].native.kind == SW_SPREAD_COPIED;
    const struct sw_spread all = sw_spread_of(is_copied ? SW_SPREAD_COPIED : SW_SPREAD_WHOLE);
    const sw_value x = repeat_heads(p->out, sw_part_in(p, v, &all), heads, copies);
    return sw_part_change(p, all.kind, x, SW_SPREAD_CUT, 2);
}

/* Number of copies of each key head with which every rank has the ones that its queries need. */
static int64_t copies_of_heads(const struct sw_attention_attrs *attrs, int n)
{
    const int64_t most = attrs->heads / attrs->kv_heads;
    int64_t copies = 1;
    while (copies < most && (most % copies != 0 || attrs->kv_heads * copies % n != 0)) {
        copies++;
    }
    return copies;
}

static void take_separate(struct sw_part_pass *p, const struct sw_op *op, int64_t copies,
                          struct heads *out)
{
    for (int i = 0; i < 3; i++) {
        const int64_t heads = i == 0 ? op->attrs.attention.heads : op->attrs.attention.kv_heads;
        const int64_t n = i == 0 ? 1 : copies;
        const sw_value v = op->in[i];
        out->in[i] =
            sw_part_is_cut_along(p, v, 1)
                ? sw_part_turn(p, repeat_heads(p->out, p->forms[v].at[SW_SPREAD_CUT], heads, n), 1,
                               2, sw_part_info(p, v)->shape.dims[1])
                : heads_of_all(p, v, heads, n);
        out->whole.in[i].shape.dims[2] *= n;
    }
}

/* Takes q, k and v apart. */
static void unpack(struct sw_part_pass *p, const struct sw_op *op, int64_t copies,
                   struct heads *out)
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
        out->in[i] = sw_part_turn(p, repeat_heads(p->out, part, heads, n), 1, 2, qkv.shape.dims[1]);
        out->whole.in[i] = qkv;
        out->whole.in[i].shape.dims[2] = heads * width * n;
        start += heads * width;
    }
}

static void take_heads(struct sw_part_pass *p, const struct sw_op *op,
                       const struct sw_op_desc *desc, struct heads *out)
{
    const struct sw_attention_attrs *attrs = &op->attrs.attention;
    const int64_t copies = copies_of_heads(attrs, p->ranks.n);
    *out = (struct heads){.op = *op, .whole = *desc, .n_made = 3};
    out->op.attrs.attention.kv_heads *= copies;
    if (!attrs->packed) {
        take_separate(p, op, copies, out);
    } else if (attrs->heads == attrs->kv_heads) {
        out->n_made = 1;
        out->in[0] =
            turn_packed(p, p->forms[op->in[0]].at[SW_SPREAD_CUT], desc->in[0].shape.dims[1]);
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
static void attend(struct sw_part_pass *p, struct heads *h)
{
    const sw_value o = h->op.out[0];
    const int64_t tokens = sw_part_info(p, o)->shape.dims[1];
    const struct sw_spread back = sw_spread_cut(1, tokens, p->ranks.n);
    struct sw_op_part part;
    sw_value in[SW_MAX_INPUTS];
    h->whole.op = &h->op;
    const struct sw_spread cut = spread_of_heads(h, p->ranks.n);
    bool good = p->out->status >= 0 && sw_op_part(&h->whole, 0, &cut, &p->ranks, &part);
    for (int k = 0; k < h->op.n_in && good; k++) {
        good = k < h->n_made || sw_part_can(p, h->op.in[k], &part.in[k]);
        in[k] = k < h->n_made ? h->in[k]
                : good        ? sw_graph_dense(p->out, sw_part_in(p, h->op.in[k], &part.in[k]))
                              : SW_NO_VALUE;
    }
    if (!good) {
        sw_graph_fail(p->out, SW_E_UNSUP,
                      "attention in %s: ranks of the context axis cannot "
                      "divide its heads",
                      p->g->scopes[h->op.scope].name);
        return;
    }
    sw_part_add_op(p, &h->op, &part, in);
    if (p->out->status >= 0) {
        sw_part_set(p, o, &back, sw_part_turn(p, p->forms[o].at[SW_SPREAD_CUT], 2, 1, tokens));
    }
}

bool sw_part_by_attention(struct sw_part_pass *p, const struct sw_op *op,
                          const struct sw_op_desc *desc)
{
    const struct sw_attention_attrs *attrs = &op->attrs.attention;
    const char *scope = p->g->scopes[op->scope].name;
    struct heads heads;
    if (op->kind != SW_OP_ATTENTION) {
        return false;
    }
    if (!attrs->packed && !sw_part_is_cut(p, op->in[1]) && !sw_part_is_cut(p, op->in[2]) &&
        sw_part_along_tokens(p, op, desc)) {
        return true; /* queries that see the same keys, of which all ranks have all */
    }
    if (!sw_part_is_cut_along(p, op->in[0], 1)) {
        sw_graph_fail(
            p->out, SW_E_UNSUP,
            "attention in %s: its queries do not come from rows of ids, or of patches, that "
            "the %d ranks of the context axis cut",
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
bool sw_part_by_heads(struct sw_part_pass *p, const struct sw_op *op, const struct sw_op_desc *desc)
{
    struct sw_op_part part;
    const int dim = op->kind == SW_OP_RELATIVE_SCORES ? 2 : 1;
    if (op->kind != SW_OP_RELATIVE_SCORES && op->kind != SW_OP_RELATIVE_BIAS) {
        return false;
    }
    const struct sw_spread cut = sw_spread_cut(dim, desc->in[0].shape.dims[dim], p->ranks.n);
    if (!sw_spread_is_even(&cut) || !sw_part_of_tokens(p, op, desc, 0, &cut, &part)) {
        return false;
    }
    sw_part_emit(p, op, &part);
    return true;
}
