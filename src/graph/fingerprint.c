// SPDX-License-Identifier: Apache-2.0
// The math fingerprint: a hash of everything in a graph that may change a bit of training, in a
// fixed order.
#include "graph/graph.h"

static uint64_t hash_i64(uint64_t h, int64_t x)
{
    return sw_hash(h, &x, sizeof x);
}

static uint64_t hash_f64(uint64_t h, double x)
{
    return sw_hash(h, &x, sizeof x);
}

/* Attributes in the fingerprint, in the same order for every kind; 0 if a kind does not have
 * one. */
struct words {
    int64_t ta, tb, act, packed, causal, has_mask, has_position, has_bias, view, dim, dim_b, heads,
        kv_heads, window, n, rule[6];
    double alpha, eps, p, rule_eps, weight_decay, dampening;
};

static struct words words_of_attention(const struct sw_attention_attrs *a)
{
    return (struct words){.packed = a->packed,
                          .causal = a->causal,
                          .has_mask = a->has_mask,
                          .has_position = a->has_position,
                          .heads = a->heads,
                          .kv_heads = a->kv_heads,
                          .window = a->window,
                          .alpha = a->scale,
                          .p = a->dropout};
}

static struct words words_of(const struct sw_op *op)
{
    const struct sw_attrs *a = &op->attrs;
    switch (sw_op_info(op->kind)->attrs) {
    case SW_ATTRS_MATMUL:
    case SW_ATTRS_QUANTIZED_MATMUL:
        return (struct words){.ta = a->matmul.ta,
                              .tb = a->matmul.tb,
                              .act = (int64_t)a->matmul.act,
                              .has_bias = a->matmul.has_bias};
    case SW_ATTRS_ACT:
        return (struct words){.act = (int64_t)a->act.act};
    case SW_ATTRS_ATTENTION:
        return words_of_attention(&a->attention);
    case SW_ATTRS_VIEW:
        return (struct words){.view = (int64_t)a->view.kind,
                              .dim = a->view.dim,
                              .dim_b = a->view.dim_b,
                              .n = a->view.exchange.ranks > 0 ? 0 : a->view.start};
    case SW_ATTRS_SLICE:
        return (struct words){.dim = a->slice.dim, .n = a->slice.is_own ? 0 : a->slice.start};
    case SW_ATTRS_EMBEDDING:
        return (struct words){.n = a->embedding.padding_id};
    case SW_ATTRS_SCALE:
        return (struct words){.alpha = a->scale.factor};
    case SW_ATTRS_LOSS_MEAN:
        return (struct words){.alpha = a->loss_mean.weight};
    case SW_ATTRS_NORM:
        return (struct words){.eps = a->norm.eps, .ta = a->norm.one_plus};
    case SW_ATTRS_DROPOUT:
        return (struct words){.p = a->dropout.p};
    case SW_ATTRS_LAST_INDEX:
        return (struct words){.n = a->last_index.padding_id, .ta = a->last_index.is_value};
    case SW_ATTRS_LINEAR_CE:
        return (struct words){
            .n = a->linear_ce.chunk, .has_bias = a->linear_ce.has_bias, .alpha = a->linear_ce.cap};
    case SW_ATTRS_ROTARY:
        return (struct words){.ta = a->rotary.interleaved, .tb = a->rotary.inverse};
    case SW_ATTRS_POSITIONS:
        return (struct words){.ta = a->positions.counted, .n = a->positions.offset};
    default: /* attributes of other kinds come from later passes, or are hashed below */
        return (struct words){0};
    }
}

/* Attributes that not every attention has are hashed only if present, so that fingerprints of other
 * attentions stay the same. */
static uint64_t hash_attention(uint64_t h, const struct sw_attention_attrs *a)
{
    h = a->cap > 0 ? hash_f64(sw_hash_str(h, "cap"), a->cap) : h;
    h = a->has_slopes ? sw_hash_str(h, a->bf16_slopes ? "bf16 slopes" : "slopes") : h;
    h = a->has_segments ? sw_hash_str(h, "segments") : h;
    return a->has_bias ? sw_hash_str(h, "bias") : h;
}

/* How a value is cut over ranks, and not which part is this rank's: all have one fingerprint. */
static uint64_t hash_exchange(uint64_t h, const struct sw_exchange_attrs *a)
{
    const int64_t words[] = {a->from, a->to, a->axis, a->dim, a->ranks};
    const bool turns = a->from == SW_SPREAD_CUT && a->to == SW_SPREAD_CUT;
    h = a->ranks > 0 ? sw_hash(h, words, sizeof words) : h;
    h = a->own > 0 ? hash_i64(sw_hash_str(h, "own"), a->own) : h;
    return a->ranks > 0 && turns ? hash_i64(h, a->to_dim) : h;
}

static uint64_t hash_preference(uint64_t h, const struct sw_preference_attrs *a)
{
    const int64_t words[] = {a->kind, a->mean, a->has_reference, a->has_kinds};
    h = hash_f64(hash_f64(sw_hash(h, words, sizeof words), a->beta), a->smoothing);
    return hash_f64(hash_f64(h, a->desirable), a->undesirable);
}

static uint64_t hash_experts(uint64_t h, const struct sw_experts_attrs *a)
{
    const int64_t words[] = {a->router.k,
                             a->router.sigmoid,
                             a->router.normalise,
                             a->router.groups,
                             a->router.kept,
                             a->n,
                             a->capacity,
                             a->expert,
                             a->tb,
                             a->z};
    h = sw_hash(h, words, sizeof words);
    return hash_f64(hash_f64(hash_f64(h, a->router.scale), a->alpha), a->limit);
}

/* Hashes kinds that have no words above. */
static uint64_t hash_more(uint64_t h, const struct sw_op *op)
{
    const struct sw_attrs *a = &op->attrs;
    switch (sw_op_info(op->kind)->attrs) {
    case SW_ATTRS_ATTENTION:
        return hash_attention(h, &a->attention);
    case SW_ATTRS_VIEW:
        return hash_exchange(h, &a->view.exchange);
    case SW_ATTRS_EXCHANGE:
        return hash_exchange(h, &a->exchange);
    case SW_ATTRS_CROSS_ENTROPY:
        h = a->cross_entropy.smoothing > 0 ? hash_f64(h, a->cross_entropy.smoothing) : h;
        return a->cross_entropy.ignores_beyond ? sw_hash_str(h, "ignores beyond") : h;
    case SW_ATTRS_ELEMENT_LOSS:
        return hash_i64(h, a->element_loss.binary);
    case SW_ATTRS_LINEAR_CE:
        return a->linear_ce.by_row ? sw_hash_str(h, "by row") : h;
    case SW_ATTRS_PREFERENCE:
        return hash_preference(h, &a->preference);
    case SW_ATTRS_RELATIVE:
        h = hash_i64(hash_i64(h, a->relative.origin), a->relative.by_key);
        return hash_f64(h, a->relative.scale);
    case SW_ATTRS_WINDOW:
        for (int i = 0; i < 2; i++) {
            h = hash_i64(hash_i64(h, a->window.kernel[i]), a->window.stride[i]);
            h = hash_i64(h, a->window.padding[i]);
        }
        return hash_i64(h, a->window.mean);
    case SW_ATTRS_LSTM:
        return hash_i64(hash_i64(h, a->lstm.reverse), a->lstm.has_mask);
    case SW_ATTRS_INTEGERS:
        return hash_i64(hash_i64(h, a->integers.value), a->integers.pad);
    case SW_ATTRS_EXPERTS:
        return hash_experts(h, &a->experts);
    case SW_ATTRS_WEIGHT:
    case SW_ATTRS_QUANTIZED_MATMUL:
        h = hash_i64(hash_i64(h, a->weight.form.kind), a->weight.form.is_nested);
        h = hash_i64(hash_i64(h, a->weight.form.dtype), a->weight.in_out);
        return hash_f64(h, a->weight.factor);
    default:
        return h;
    }
}

static uint64_t hash_attrs(uint64_t h, const struct sw_op *op)
{
    const struct words w = words_of(op);
    const int64_t piece = op->kind == SW_OP_MATMUL ? op->attrs.matmul.piece : 0;
    h = sw_hash(h, &w, sizeof w);
    h = piece > 0 ? hash_i64(h, piece) : h;
    return hash_more(h, op);
}

uint64_t sw_graph_fingerprint(const struct sw_graph *g, uint64_t h)
{
    h = hash_i64(h, g->dtype);
    h = hash_i64(h, g->grad_dtype);
    h = hash_i64(h, g->token_mean);
    for (sw_value v = 0; v < g->n_values; v++) {
        const struct sw_value_info *info = &g->values[v];
        h = hash_i64(h, info->dtype);
        h = hash_i64(h, info->shape.rank);
        for (int d = 0; d < info->shape.rank; d++) {
            h = hash_i64(h, info->shape.dims[d]);
        }
        h = sw_hash_str(h, info->name ? info->name : "");
        h = info->data ? sw_hash(h, info->data, sw_value_bytes(info)) : h;
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct sw_op *op = &g->ops[i];
        h = sw_hash_str(h, sw_op_name(op));
        h = hash_attrs(h, op);
        for (int k = 0; k < op->n_in; k++) {
            h = hash_i64(h, op->in[k]);
        }
        for (int k = 0; k < op->n_out; k++) {
            h = hash_i64(h, op->out[k]);
        }
        h = sw_hash(h, &op->path, sizeof op->path);
        for (int k = 0; op->user && k < (int)SW_LEN(op->user->param); k++) {
            h = hash_f64(h, op->user->param[k]);
        }
    }
    return h;
}
