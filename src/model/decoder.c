// SPDX-License-Identifier: Apache-2.0
// The forward graph of every decoder-only family, from its specification and its names.
#include "model/decoder.h"

#include <stdio.h>
#include <string.h>

/* State that the layers of one forward share. */
struct build {
    const struct sw_decoder *m;
    sw_graph *g;
    const struct sw_forward_spec *spec;
    sw_value mask, positions, position, segments, slopes;
    sw_value table, local_table; /* of angles */
    struct sw_layer_names names;
    struct sw_router_sums routers; /* so far */
};

static const struct sw_decoder *decoder_of(const struct sw_model *model)
{
    return SW_CONTAINER(model, struct sw_decoder, super);
}

/* Enters the scope of a layer's part: the text before the dot of "attn.c_proj". */
static void push_part(struct build *b, const char *suffix, const char *otherwise)
{
    const char *dot = strchr(suffix, '.');
    char name[48];
    snprintf(name, sizeof name, "%.*s", dot ? (int)(dot - suffix) : (int)strlen(otherwise),
             dot ? suffix : otherwise);
    sw_scope_push(b->g, name);
}

/* [n] filled with number: scale or bias of norms that lack a parameter. */
static sw_value filled(struct build *b, const char *name, float number, int64_t n)
{
    const enum sw_dtype dtype = sw_graph_dtype(b->g);
    char all[48], *values = sw_alloc("model", (size_t)n * sw_dtype_bytes(dtype));
    if (!values) {
        sw_graph_fail(b->g, SW_E_NOMEM, "out of host memory for the model");
        return SW_NO_VALUE;
    }
    for (int64_t i = 0; i < n; i++) {
        sw_convert(dtype, values + (size_t)i * sw_dtype_bytes(dtype), SW_F32, &number, 1);
    }
    snprintf(all, sizeof all, n == b->m->super.width ? "%s" : "%s.%lld", name, (long long)n);
    const sw_value out = sw_constant(b->g, all, dtype, SW_SHAPE(n), values);
    sw_free(values);
    return out;
}

/* Mean 0 and variance 1, without parameters. */
static sw_value plain_norm(struct build *b, sw_value x, int64_t width)
{
    return sw_layer_norm(b->g, x, filled(b, "norm.ones", 1, width),
                         filled(b, "norm.zeros", 0, width), b->m->spec.eps);
}

/* name: without ".weight" */
static sw_value weight_of(struct build *b, const char *name, struct sw_shape shape)
{
    char full[240];
    snprintf(full, sizeof full, "%s.weight", name);
    return sw_param(b->g, full, shape, (struct sw_init){SW_INIT_ONE, 0});
}

static sw_value norm(struct build *b, const char *name, sw_value x, int64_t width)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    if (s->norm != SW_NORM_LAYER) {
        return sw_nn_rms_norm(b->g, name, x, width, s->eps, s->norm == SW_NORM_RMS_ONE_PLUS);
    }
    if (s->plain_norms) {
        return plain_norm(b, x, width);
    }
    if (s->biasless_norms) {
        return sw_layer_norm(b->g, x, weight_of(b, name, SW_SHAPE(width)),
                             filled(b, "norm.zeros", 0, width), s->eps);
    }
    return sw_nn_layer_norm(b->g, name, x, width, s->eps);
}

static sw_value norm_in_trunk(struct build *b, const char *suffix, sw_value x)
{
    return suffix ? norm(b, sw_name_in_trunk(&b->names, suffix), x, b->m->super.width) : x;
}

/* suffix NULL: returns x unchanged. */
static sw_value norm_in_layer(struct build *b, const char *suffix, sw_value x)
{
    return suffix ? norm(b, sw_name_in_layer(&b->names, suffix), x, b->m->super.width) : x;
}

static struct sw_linear_spec linear_of(const struct build *b, int64_t in, int64_t out, bool bias,
                                       double std)
{
    return (struct sw_linear_spec){
        .in = in, .out = out, .in_out = b->m->spec.in_out, .no_bias = !bias, .std = std};
}

/* A product that begins a branch: ranks have columns, whole units of them. */
static sw_value columns(struct build *b, const char *suffix, sw_value x, int64_t out, int64_t unit,
                        bool bias)
{
    struct sw_linear_spec spec = linear_of(b, b->m->super.width, out, bias, b->m->spec.init_range);
    spec.columns = unit;
    return sw_nn_linear(b->g, sw_name_in_layer(&b->names, suffix), x, &spec);
}

/* A product that ends a branch: ranks have rows. */
static sw_value rows(struct build *b, const char *suffix, sw_value x, int64_t in, int64_t unit,
                     bool bias)
{
    struct sw_linear_spec spec = linear_of(b, in, b->m->super.width, bias, b->m->spec.proj_range);
    spec.rows = unit;
    return sw_nn_linear(b->g, sw_name_in_layer(&b->names, suffix), x, &spec);
}

/* x [..,in] -> [..,out], outside the layers; suffix NULL: returns x unchanged. */
static sw_value project(struct build *b, const char *suffix, sw_value x, int64_t in, int64_t out)
{
    const struct sw_linear_spec spec = {
        .in = in, .out = out, .no_bias = true, .std = b->m->spec.init_range};
    return suffix ? sw_nn_linear(b->g, sw_name_in_trunk(&b->names, suffix), x, &spec) : x;
}

/* ---- attention ---- */

/* Queries, keys and values: [B,T,heads x width], or [B,T,heads,width] if heads are handled one by
 * one. */
struct heads {
    sw_value q, k, v;
};

static sw_value split_heads(struct build *b, sw_value x, int64_t heads, int64_t width)
{
    return sw_reshape(b->g, x, SW_SHAPE(b->spec->batch, b->spec->tokens, heads, width));
}

static bool is_windowed(const struct build *b)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    return s->is_windowed ? s->is_windowed[b->names.layer] : s->window > 0;
}

static bool rotates(const struct build *b)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    return s->positions == SW_POSITION_ROTARY && (!s->is_rotated || s->is_rotated[b->names.layer]);
}

/* [heads, width] from a weight for each head. */
static sw_value listed_weights(struct build *b, const char *suffix, int64_t heads)
{
    sw_value all[SW_MAX_INPUTS], joined = SW_NO_VALUE;
    int n = 0;
    char name[96];
    for (int64_t i = 0; i < heads; i++) {
        snprintf(name, sizeof name, "%s.norms.%lld", suffix, (long long)i);
        all[n++] = weight_of(b, sw_name_in_layer(&b->names, name), SW_SHAPE(b->m->spec.head_width));
        if (n == SW_MAX_INPUTS || i + 1 == heads) {
            joined = sw_concat(b->g, all, n, 0);
            all[0] = joined;
            n = 1;
        }
    }
    return sw_reshape(b->g, joined, SW_SHAPE(heads, b->m->spec.head_width));
}

/* x [B,T,heads,width] */
static sw_value norm_heads(struct build *b, const char *suffix, sw_value x, int64_t heads)
{
    const int64_t width = b->m->spec.head_width;
    switch (b->m->spec.head_norm) {
    case SW_HEAD_NORM_OWN:
        return sw_mul(b->g, plain_norm(b, x, width),
                      weight_of(b, sw_name_in_layer(&b->names, suffix), SW_SHAPE(heads, width)));
    case SW_HEAD_NORM_LISTED:
        return sw_mul(b->g, plain_norm(b, x, width), listed_weights(b, suffix, heads));
    default:
        return norm(b, sw_name_in_layer(&b->names, suffix), x, width);
    }
}

static struct heads separate(struct build *b, sw_value x)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    const struct sw_decoder_names *n = &b->m->names;
    const int64_t q = s->heads * s->head_width;
    const int64_t kv = s->kv_heads * s->head_width;
    struct heads out;
    out.q = columns(b, n->q, x, q, s->head_width, s->qkv_bias);
    out.k = columns(b, n->k, x, kv, s->head_width, s->qkv_bias);
    out.v = columns(b, n->v, x, kv, s->head_width, s->qkv_bias);
    if (n->q_norm && s->head_norm == SW_HEAD_NORM_JOINT) {
        out.q = norm(b, sw_name_in_layer(&b->names, n->q_norm), out.q, q);
        out.k = norm(b, sw_name_in_layer(&b->names, n->k_norm), out.k, kv);
    }
    if (n->q_norm || rotates(b)) {
        out.q = split_heads(b, out.q, s->heads, s->head_width);
        out.k = split_heads(b, out.k, s->kv_heads, s->head_width);
        out.v = split_heads(b, out.v, s->kv_heads, s->head_width);
    }
    if (n->q_norm && s->head_norm != SW_HEAD_NORM_JOINT) {
        out.q = norm_heads(b, n->q_norm, out.q, s->heads);
        out.k = norm_heads(b, n->k_norm, out.k, s->kv_heads);
    }
    return out;
}

/* Queries, keys and values of one product: three groups of heads, or heads with one of each. */
static sw_value joint(struct build *b, sw_value x)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    const int64_t q = s->heads * s->head_width, kv = s->kv_heads * s->head_width;
    struct sw_linear_spec spec =
        linear_of(b, b->m->super.width, q + 2 * kv, s->qkv_bias, s->init_range);
    const int64_t repeats = s->qkv == SW_QKV_PACKED ? 1 : s->kv_heads;
    spec.groups[0] = q / repeats;
    spec.groups[1] = spec.groups[2] = kv / repeats;
    spec.columns = s->head_width;
    return sw_nn_linear(b->g, sw_name_in_layer(&b->names, b->m->names.qkv), x, &spec);
}

/* Each key head's queries, key and value are side by side: three views of the product. Several
 * queries are copied, as no stride leads from the last one to the next head's first. */
static struct heads by_head(struct build *b, sw_value qkv)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    const int64_t width = s->head_width, queries = s->heads / s->kv_heads * width;
    const sw_value x = split_heads(b, qkv, s->kv_heads, queries + 2 * width);
    const sw_value q = sw_slice(b->g, x, 3, 0, queries);
    return (struct heads){queries > width ? split_heads(b, q, s->heads, width) : q,
                          sw_slice(b->g, x, 3, queries, width),
                          sw_slice(b->g, x, 3, queries + width, width)};
}

/* Three groups of heads: three views of the product. */
static struct heads by_group(struct build *b, sw_value qkv)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    const sw_value x = split_heads(b, qkv, s->heads + 2 * s->kv_heads, s->head_width);
    return (struct heads){sw_slice(b->g, x, 2, 0, s->heads),
                          sw_slice(b->g, x, 2, s->heads, s->kv_heads),
                          sw_slice(b->g, x, 2, s->heads + s->kv_heads, s->kv_heads)};
}

static sw_value turn(struct build *b, sw_value x)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    const bool local = s->local.width > 0 && is_windowed(b);
    return sw_rotary(b->g, x, local ? b->local_table : b->table, b->positions,
                     (local ? &s->local : &s->rotary)->interleaved);
}

static struct sw_attention_spec attention_spec(const struct build *b)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    return (struct sw_attention_spec){
        .heads = s->heads,
        .kv_heads = s->kv_heads,
        .scale = s->score_scale / (s->scale_by_layer ? (double)(b->names.layer + 1) : 1.0),
        .causal = true,
        .window = is_windowed(b) ? s->window : 0,
        .cap = s->score_cap,
        .dropout = s->attention_dropout,
        .mask = b->mask,
        .position = b->position,
        .segments = b->segments,
        .bias = SW_NO_VALUE,
        .slopes = b->slopes,
        .bf16_slopes = s->bf16_slopes,
    };
}

/* n copies of a head's columns, [B,T,1,W] -> [B,T,n,W]. */
static sw_value repeat_head(struct build *b, sw_value x, int64_t n)
{
    sw_value all[SW_MAX_INPUTS];
    if (n == 1) {
        return x;
    }
    const int64_t parts = sw_min_i64(n, SW_MAX_INPUTS), each = n / parts, longer = n % parts;
    const sw_value part = repeat_head(b, x, each);
    const sw_value more = longer > 0 ? repeat_head(b, x, each + 1) : SW_NO_VALUE;
    for (int64_t i = 0; i < parts; i++) {
        all[i] = i < longer ? more : part;
    }
    return sw_concat(b->g, all, (int)parts, 2);
}

/* x [B,T,C] -> [B,T,out]; ranks have whole heads of `unit` columns, or, with unit 0, all. */
static sw_value latent_product(struct build *b, const char *suffix, sw_value x, int64_t in,
                               int64_t out, int64_t unit)
{
    struct sw_linear_spec spec =
        linear_of(b, in, out, unit == 0 && b->m->spec.latent.bias, b->m->spec.init_range);
    spec.columns = unit;
    return sw_nn_linear(b->g, sw_name_in_layer(&b->names, suffix), x, &spec);
}

static sw_value latent_norm(struct build *b, const char *suffix, sw_value x, int64_t width)
{
    return norm(b, sw_name_in_layer(&b->names, suffix), x, width);
}

/* Queries, keys and values of one width: the shorter ones are padded with zeros. */
static struct heads latent(struct build *b, sw_value x)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    const struct sw_latent_spec *l = &s->latent;
    const int64_t key = l->nope + l->rope, heads = s->heads, width = sw_max_i64(key, l->value);
    int64_t from = b->m->super.width;
    sw_value q = x;
    if (l->q_rank > 0) {
        q = latent_product(b, "self_attn.q_a_proj", x, from, l->q_rank, 0);
        q = latent_norm(b, "self_attn.q_a_layernorm", q, l->q_rank);
        from = l->q_rank;
    }
    q = latent_product(b, l->q_rank > 0 ? "self_attn.q_b_proj" : b->m->names.q, q, from,
                       heads * key, key);
    q = split_heads(b, q, heads, key);
    const sw_value low = latent_product(b, "self_attn.kv_a_proj_with_mqa", x, b->m->super.width,
                                        l->kv_rank + l->rope, 0);
    const sw_value kv = latent_norm(b, "self_attn.kv_a_layernorm",
                                    sw_slice(b->g, low, 2, 0, l->kv_rank), l->kv_rank);
    const sw_value both =
        split_heads(b,
                    latent_product(b, "self_attn.kv_b_proj", kv, l->kv_rank,
                                   heads * (l->nope + l->value), l->nope + l->value),
                    heads, l->nope + l->value);
    const sw_value shared =
        turn(b, split_heads(b, sw_slice(b->g, low, 2, l->kv_rank, l->rope), 1, l->rope));
    const sw_value q_parts[2] = {sw_slice(b->g, q, 3, 0, l->nope),
                                 turn(b, sw_slice(b->g, q, 3, l->nope, l->rope))};
    const sw_value k_parts[2] = {sw_slice(b->g, both, 3, 0, l->nope),
                                 repeat_head(b, shared, heads)};
    struct heads out = {sw_concat(b->g, q_parts, 2, 3), sw_concat(b->g, k_parts, 2, 3),
                        sw_slice(b->g, both, 3, l->nope, l->value)};
    if (key < width) {
        out.q = sw_pad(b->g, out.q, 3, 0, width);
        out.k = sw_pad(b->g, out.k, 3, 0, width);
    }
    if (l->value < width) {
        out.v = sw_pad(b->g, out.v, 3, 0, width);
    }
    return out;
}

/* With a cache, if the graph generates token by token. */
static sw_value attention_of(struct build *b, const struct heads *h)
{
    const struct sw_attention_spec spec = attention_spec(b);
    const struct sw_nn_cache cache = {.layer = b->names.layer, .tokens = b->spec->cache_tokens};
    return cache.tokens > 0 ? sw_nn_cached_attention(b->g, h->q, h->k, h->v, &spec, &cache)
                            : sw_attention(b->g, h->q, h->k, h->v, &spec);
}

static sw_value packed_attention_of(struct build *b, sw_value qkv)
{
    const struct sw_attention_spec spec = attention_spec(b);
    const struct sw_nn_cache cache = {.layer = b->names.layer, .tokens = b->spec->cache_tokens};
    return cache.tokens > 0 ? sw_nn_cached_packed(b->g, qkv, &spec, &cache)
                            : sw_attention_packed(b->g, qkv, &spec);
}

static sw_value attend_latent(struct build *b, sw_value x)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    const struct heads h = latent(b, x);
    const int64_t width = sw_max_i64(s->latent.nope + s->latent.rope, s->latent.value);
    sw_value o = attention_of(b, &h);
    if (s->latent.value < width) {
        o = sw_slice(b->g, split_heads(b, o, s->heads, width), 3, 0, s->latent.value);
        o = sw_reshape(b->g, o,
                       SW_SHAPE(b->spec->batch, b->spec->tokens, s->heads * s->latent.value));
    }
    return o;
}

static sw_value with_sinks(struct build *b, sw_value o)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    if (!b->m->names.sinks) {
        return o;
    }
    const sw_value sinks =
        sw_param(b->g, sw_name_in_layer(&b->names, b->m->names.sinks), SW_SHAPE(s->heads),
                 (struct sw_init){SW_INIT_NORMAL, s->init_range});
    const struct sw_tensor_split split = {
        .dim = 0, .n_groups = 1, .group = {s->heads}, .unit = s->heads / s->kv_heads};
    if (sinks >= 0) {
        sw_param_split(b->g, sinks, &split);
    }
    return sw_attention_sink(b->g, o, sinks);
}

static sw_value attend(struct build *b, sw_value x)
{
    if (b->m->spec.latent.value > 0) {
        return attend_latent(b, x);
    }
    const struct sw_decoder_spec *s = &b->m->spec;
    struct heads h;
    if (s->qkv == SW_QKV_SEPARATE) {
        h = separate(b, x);
    } else {
        const sw_value qkv = joint(b, x);
        if (s->qkv == SW_QKV_PACKED && !rotates(b)) {
            return packed_attention_of(b, qkv);
        }
        h = s->qkv == SW_QKV_PACKED ? by_group(b, qkv) : by_head(b, qkv);
    }
    if (rotates(b)) {
        h.q = turn(b, h.q);
        h.k = turn(b, h.k);
    }
    return with_sinks(b, attention_of(b, &h));
}

/* ---- a layer ---- */

static sw_value attention_branch(struct build *b, sw_value x)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    const struct sw_decoder_names *n = &b->m->names;
    push_part(b, n->out, "attn");
    const sw_value o = attend(b, x);
    const int64_t width = s->latent.value > 0 ? s->latent.value : s->head_width;
    const sw_value y = rows(b, n->out, o, s->heads * width, width, s->out_bias);
    sw_scope_pop(b->g);
    return norm_in_layer(b, n->attention_out_norm, y);
}

/* act(gate) up of one product with both. */
static sw_value gate_up(struct build *b, sw_value x)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    struct sw_linear_spec spec =
        linear_of(b, b->m->super.width, 2 * s->inner, s->mlp_bias, s->init_range);
    spec.columns = 1;
    spec.groups[0] = spec.groups[1] = s->inner;
    const sw_value both =
        sw_nn_linear(b->g, sw_name_in_layer(&b->names, b->m->names.gate_up), x, &spec);
    return sw_gated_act(b->g, sw_slice(b->g, both, 2, 0, s->inner),
                        sw_slice(b->g, both, 2, s->inner, s->inner), s->act);
}

/* The expert that all tokens share. */
static sw_value shared_expert(struct build *b, sw_value x)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    const struct sw_decoder_names *n = &b->m->names;
    const int64_t inner = s->experts.shared;
    const sw_value gate = columns(b, n->shared_gate, x, inner, 1, false);
    const sw_value up = columns(b, n->shared_up, x, inner, 1, false);
    const sw_value y =
        rows(b, n->shared_down, sw_gated_act(b->g, gate, up, s->act), inner, 1, false);
    if (!n->shared_scale) {
        return y;
    }
    const struct sw_linear_spec one = linear_of(b, b->m->super.width, 1, false, s->init_range);
    const sw_value scale =
        sw_nn_linear(b->g, sw_name_in_layer(&b->names, n->shared_scale), x, &one);
    const int64_t width = b->m->super.width;
    const sw_value ones = sw_reshape(b->g, filled(b, "norm.ones", 1, width), SW_SHAPE(1, width));
    const sw_value factors =
        sw_matmul(b->g, sw_act(b->g, scale, SW_ACT_SIGMOID), false, ones, false);
    return sw_mul(b->g, y, factors);
}

static sw_value experts_branch(struct build *b, sw_value x)
{
    const struct sw_decoder_names *n = &b->m->names;
    push_part(b, n->router, "mlp");
    sw_value y = sw_experts_branch(b->m, b->g, &b->names, b->spec, x, b->mask, &b->routers);
    if (b->m->spec.experts.shared > 0) {
        y = sw_add(b->g, y, shared_expert(b, x));
    }
    sw_scope_pop(b->g);
    return norm_in_layer(b, n->mlp_out_norm, y);
}

static sw_value mlp_branch(struct build *b, sw_value x)
{
    if (sw_experts_has(b->m, b->names.layer)) {
        return experts_branch(b, x);
    }
    const struct sw_decoder_spec *s = &b->m->spec;
    const struct sw_decoder_names *n = &b->m->names;
    sw_value hidden;
    push_part(b, n->down, "mlp");
    if (n->gate_up) {
        hidden = gate_up(b, x);
    } else if (n->gate) {
        const sw_value gate = columns(b, n->gate, x, s->inner, 1, s->mlp_bias);
        const sw_value up = columns(b, n->up, x, s->inner, 1, s->mlp_bias);
        hidden = sw_gated_act(b->g, gate, up, s->act);
    } else {
        hidden = columns(b, n->up, x, s->inner, 1, s->mlp_bias);
        hidden = sw_act(b->g, hidden, s->act);
    }
    const sw_value y = rows(b, n->down, hidden, s->inner, 1, s->mlp_bias);
    sw_scope_pop(b->g);
    return norm_in_layer(b, n->mlp_out_norm, y);
}

/* Pre-norm: a branch reads the norm of h. Post-norm: norm_after normalises the sum. */
static sw_value norm_before(struct build *b, const char *suffix, sw_value h)
{
    return b->m->spec.branches == SW_BRANCHES_POST_NORM ? h : norm_in_layer(b, suffix, h);
}

static sw_value norm_after(struct build *b, const char *suffix, sw_value h)
{
    return b->m->spec.branches == SW_BRANCHES_POST_NORM ? norm_in_layer(b, suffix, h) : h;
}

/* Returns what is added to the residual stream. */
static sw_value end_branch(struct build *b, sw_value x, double dropout)
{
    const double scale = b->m->spec.branch_scale;
    x = sw_dropout(b->g, x, dropout);
    return scale > 0 ? sw_scale(b->g, x, scale) : x;
}

static sw_value layer(struct build *b, sw_value h)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    const struct sw_decoder_names *n = &b->m->names;
    const sw_value x = norm_before(b, n->attention_norm, h);
    const bool drops = !s->drops_mlp_only && !s->drops_sum;
    const sw_value a = end_branch(b, attention_branch(b, x), drops ? s->hidden_dropout : 0);
    if (s->branches == SW_BRANCHES_PARALLEL) {
        const sw_value y = n->mlp_norm ? norm_in_layer(b, n->mlp_norm, h) : x;
        const sw_value f = end_branch(b, mlp_branch(b, y), s->drops_sum ? 0 : s->hidden_dropout);
        const sw_value sum = sw_add(b->g, a, f);
        return sw_add(b->g, h, s->drops_sum ? sw_dropout(b->g, sum, s->hidden_dropout) : sum);
    }
    const bool on_norm = s->branches == SW_BRANCHES_ON_NORM;
    h = norm_after(b, n->attention_norm, sw_add(b->g, on_norm ? x : h, a));
    const sw_value y = norm_before(b, n->mlp_norm, h);
    const sw_value f = end_branch(b, mlp_branch(b, y), s->hidden_dropout);
    h = sw_add(b->g, on_norm ? y : h, f);
    return norm_after(b, n->mlp_norm, h);
}

/* ---- the whole ---- */

/* A table with offset rows counts positions from the mask, as OPT does. Exception: documents that
 * share a row start anew, and get explicit positions. */
static bool counts_mask(const struct build *b)
{
    return b->m->spec.position_offset > 0 && b->spec->has_mask && !b->spec->is_packed;
}

static sw_value learned_positions(struct build *b)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    const struct sw_model *m = &b->m->super;
    const sw_value table = sw_nn_table(b->g, sw_name_in_trunk(&b->names, b->m->names.positions),
                                       m->max_tokens + s->position_offset, m->width, s->init_range);
    const sw_value places = counts_mask(b) ? sw_positions(b->g, b->mask, s->position_offset)
                            : s->position_offset > 0
                                ? sw_add_offset(b->g, b->positions, s->position_offset)
                                : b->positions;
    return sw_embedding(b->g, table, places, -1);
}

/* fp32 kernels round it themselves. */
static double embedding_scale(const struct build *b)
{
    const double scale = b->m->spec.embedding_scale;
    if (!b->m->family->rounds_scale) {
        return scale;
    }
    switch (sw_graph_dtype(b->g)) {
    case SW_BF16:
        return (double)sw_bf16_to_f32(sw_f32_to_bf16((float)scale));
    case SW_F16:
        return (double)sw_f16_to_f32(sw_f32_to_f16((float)scale));
    default:
        return scale;
    }
}

static sw_value embed(struct build *b, sw_value table, sw_value ids)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    const struct sw_decoder_names *n = &b->m->names;
    const sw_value places = n->positions ? learned_positions(b) : SW_NO_VALUE;
    sw_value h = sw_embedding(b->g, table, ids, s->padding_id);
    h = s->embedding_scale > 0 ? sw_scale(b->g, h, embedding_scale(b)) : h;
    h = project(b, n->project_in, h, b->m->table_width, b->m->super.width);
    h = n->positions ? sw_add(b->g, h, places) : h;
    h = norm_in_trunk(b, n->embedding_norm, h);
    return sw_dropout(b->g, h, s->embedding_dropout);
}

static sw_value input(const struct build *b, const char *name, bool wanted)
{
    return wanted ? sw_model_input(b->g, &b->m->super, b->spec, name) : SW_NO_VALUE;
}

static void open_inputs(struct build *b, sw_value *ids)
{
    const struct sw_forward_spec *spec = b->spec;
    const enum sw_position_kind kind = b->m->spec.positions;
    *ids = input(b, "input_ids", true);
    b->positions = input(b, "positions", kind != SW_POSITION_ALIBI && !counts_mask(b));
    b->mask = input(b, "attention_mask", spec->has_mask);
    b->segments = input(b, "segments", spec->is_packed);
    b->position =
        spec->cache_tokens > 0 ? sw_input(b->g, "position", SW_I32, SW_SHAPE(1)) : SW_NO_VALUE;
    const int64_t rows = sw_max_i64(spec->tokens, spec->cache_tokens);
    if (kind == SW_POSITION_ROTARY) {
        b->table = sw_rotary_table(b->g, "rotary", &b->m->spec.rotary, rows);
    }
    if (b->m->spec.local.width > 0) {
        b->local_table = sw_rotary_table(b->g, "rotary.local", &b->m->spec.local, rows);
    }
    b->slopes = kind == SW_POSITION_ALIBI
                    ? sw_alibi_slopes(b->g, b->m->spec.heads, b->m->spec.bf16_slopes)
                    : SW_NO_VALUE;
}

static sw_value layers(struct build *b, sw_value h)
{
    for (b->names.layer = 0; b->names.layer < b->m->super.layers; b->names.layer++) {
        sw_model_begin_layer(b->g, b->spec, &b->names, h);
        h = layer(b, h);
        sw_scope_pop(b->g);
    }
    return h;
}

void sw_decoder_forward(const struct sw_model *model, sw_graph *g,
                        const struct sw_forward_spec *spec, sw_value *out_loss)
{
    struct build b = {
        .m = decoder_of(model), .g = g, .spec = spec, .routers = {SW_NO_VALUE, SW_NO_VALUE}};
    const struct sw_decoder_names *n = &b.m->names;
    b.names = (struct sw_layer_names){.trunk = n->trunk, .layers = n->layers};
    sw_value ids;
    open_inputs(&b, &ids);
    sw_scope_push(g, n->trunk);
    const sw_value table = sw_nn_vocabulary(g, sw_name_in_trunk(&b.names, n->embedding),
                                            model->vocab, b.m->table_width, b.m->spec.init_range);
    sw_value h = norm_in_trunk(&b, n->final_norm, layers(&b, embed(&b, table, ids)));
    h = project(&b, n->project_out, h, model->width, b.m->table_width);
    sw_model_name_hidden(g, spec, model->layers, h);
    sw_scope_pop(g);

    sw_scope_push(g, "head");
    if (b.routers.loads >= 0) {
        sw_output(g, "expert_loads", b.routers.loads);
    }
    *out_loss =
        sw_model_is_causal(model)
            ? sw_head_lm(b.m, g, spec, h, table, sw_experts_loss(b.m, g, spec, b.routers.stats))
            : sw_head_classify(b.m, g, spec, h, ids);
    sw_scope_pop(g);
}

/* ---- names in files ---- */

/* Alternatives: the name itself; without the trunk's; and without the trunk's first module if it
 * has two. */
const char *sw_decoder_alias(const struct sw_model *model, const char *name, int i, char *buf,
                             size_t cap)
{
    const struct sw_decoder *m = decoder_of(model);
    const size_t trunk = strlen(m->names.trunk);
    const bool in = strncmp(name, m->names.trunk, trunk) == 0 && name[trunk] == '.';
    const char *dot = strchr(m->names.trunk, '.');
    const char *names[3] = {name};
    int n = 1;
    if (in) {
        names[n++] = name + trunk + 1;
    }
    if (in && dot) {
        names[n++] = name + (dot - m->names.trunk) + 1;
    }
    const char *found = i < n ? names[i] : sw_model_other_name(m->family->aliases, name, i - n);
    if (found) {
        snprintf(buf, cap, "%s", found);
    }
    return found ? buf : NULL;
}

bool sw_decoder_ignores(const struct sw_model *model, const char *file_name)
{
    const struct sw_decoder *m = decoder_of(model);
    if (m->spec.positions == SW_POSITION_ROTARY &&
        sw_glob_match("*.rotary_emb.inv_freq", file_name)) {
        return true; /* the rotary frequencies, which old files store */
    }
    return sw_model_ignores(model, m->family->ignored, file_name);
}
