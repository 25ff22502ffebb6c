// SPDX-License-Identifier: Apache-2.0
// The forward graph of every encoder-decoder family, from its specification and its names.
#include "model/seq2seq.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/heads.h"

/* State that the layers of one forward share. */
struct build {
    const struct sw_seq2seq *m;
    sw_graph *g;
    const struct sw_forward_spec *spec;
    sw_value mask;     /* of the encoder's tokens */
    sw_value encoded;  /* the decoder's input from the encoder */
    sw_value position; /* position of the token given to a decoder with a cache */
    int stack;
    sw_value bias;               /* bias of this stack's scores */
    struct sw_layer_names names; /* of this stack */
};

static const struct sw_seq2seq *seq2seq_of(const struct sw_model *model)
{
    return SW_CONTAINER(model, struct sw_seq2seq, super);
}

static void enter_stack(struct build *b, int stack)
{
    const struct sw_seq2seq_names *n = &b->m->family->names;
    b->stack = stack;
    b->names = (struct sw_layer_names){.trunk = n->stack[stack], .layers = n->layers};
}

static const char *in_attention(struct build *b, const char *attention, const char *suffix)
{
    char both[96];
    snprintf(both, sizeof both, "%s.%s", attention, suffix);
    return sw_name_in_layer(&b->names, both);
}

/* ---- pieces ---- */

static struct sw_linear_spec linear_of(const struct build *b, int64_t in, int64_t out, double std)
{
    return (struct sw_linear_spec){.in = in, .out = out, .no_bias = b->m->spec.plain, .std = std};
}

static sw_value linear(struct build *b, const char *name, sw_value x, int64_t in, int64_t out,
                       double std)
{
    const struct sw_linear_spec spec = linear_of(b, in, out, std);
    return sw_nn_linear(b->g, name, x, &spec);
}

/* A product that begins a branch: ranks have columns, whole units of them. */
static sw_value columns(struct build *b, const char *name, sw_value x, int64_t out, int64_t unit,
                        double std)
{
    struct sw_linear_spec spec = linear_of(b, b->m->super.width, out, std);
    spec.columns = unit;
    return sw_nn_linear(b->g, name, x, &spec);
}

/* A product that ends a branch: ranks have rows. */
static sw_value rows(struct build *b, const char *name, sw_value x, int64_t in, int64_t unit,
                     double std)
{
    struct sw_linear_spec spec = linear_of(b, in, b->m->super.width, std);
    spec.rows = unit;
    return sw_nn_linear(b->g, name, x, &spec);
}

static sw_value norm(struct build *b, const char *name, sw_value x)
{
    const int64_t width = b->m->super.width;
    return b->m->spec.plain ? sw_nn_rms_norm(b->g, name, x, width, b->m->spec.eps, false)
                            : sw_nn_layer_norm(b->g, name, x, width, b->m->spec.eps);
}

static sw_value drop(struct build *b, sw_value x)
{
    return sw_dropout(b->g, x, b->m->spec.dropout);
}

/* ---- positions ---- */

/* The bucket of a key's distance behind its query (negative: ahead). A decoder only looks back.
 * Computed in fp32 as in the published code. */
static int32_t bucket_of(int64_t buckets, int64_t distance, bool both_ways, int64_t apart)
{
    const int64_t n = both_ways ? buckets / 2 : buckets, exact = n / 2;
    const int64_t first = both_ways && apart > 0 ? n : 0;
    const int64_t r = both_ways ? (apart < 0 ? -apart : apart) : sw_max_i64(0, -apart);
    if (r < exact) {
        return (int32_t)(first + r);
    }
    const float span = (float)log((double)distance / (double)exact);
    const float step = logf((float)r / (float)exact) / span * (float)(n - exact);
    return (int32_t)(first + sw_min_i64(n - 1, exact + (int64_t)step));
}

sw_value sw_bucket_ids(sw_graph *g, const char *what, int64_t buckets, int64_t distance,
                       bool both_ways, int64_t n)
{
    const int64_t rows = 2 * n - 1;
    char name[64];
    int32_t *ids = sw_alloc("model", (size_t)rows * sizeof *ids);
    if (!ids) {
        sw_graph_fail(g, SW_E_NOMEM, "out of host memory for the model");
        return SW_NO_VALUE;
    }
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = bucket_of(buckets, distance, both_ways, i - (n - 1));
    }
    snprintf(name, sizeof name, "%s_buckets.%lld", what, (long long)n);
    const sw_value out = sw_constant(g, name, SW_I32, SW_SHAPE(rows), ids);
    sw_free(ids);
    return out;
}

/* True for a decoder that keeps keys and values of earlier tokens. */
static bool is_cached(const struct build *b)
{
    return b->spec->cache_tokens > 0 && b->stack == SW_DECODER_STACK;
}

/* f32 [H,T,S] for a stack with T tokens, from the table of its first layer; all layers share it. */
static sw_value relative_bias(struct build *b, int64_t queries)
{
    const struct sw_seq2seq_spec *s = &b->m->spec;
    const int64_t n = is_cached(b) ? b->spec->cache_tokens : queries;
    const bool both = b->stack == SW_ENCODER_STACK;
    const sw_value ids =
        sw_bucket_ids(b->g, both ? "encoder" : "decoder", s->buckets, s->distance, both, n);
    const struct sw_linear_spec heads = {.out = s->stack[b->stack].heads, .columns = 1};
    b->names.layer = 0;
    const sw_value table =
        sw_nn_table(b->g, sw_name_in_layer(&b->names, b->m->family->names.relative), s->buckets,
                    s->stack[b->stack].heads, s->std.relative);
    sw_nn_split_linear(b->g, table, 1, -1, &heads);
    return sw_relative_bias(b->g, sw_embedding(b->g, table, ids, -1), b->position, queries, n,
                            n - 1);
}

/* Position embeddings of 0 .. n - 1, the same for all samples. */
static sw_value rows_of_places(struct build *b, int64_t n)
{
    const struct sw_seq2seq_spec *s = &b->m->spec;
    const struct sw_model *m = &b->m->super;
    char name[64];
    if (n > m->max_tokens) {
        sw_graph_fail(b->g, SW_E_ARG, "%s: %s of %lld tokens; the model has places for %lld",
                      b->m->family->names.stack[b->stack],
                      b->stack == SW_ENCODER_STACK ? "texts" : "targets", (long long)n,
                      (long long)m->max_tokens);
    }
    int32_t *places = sw_alloc("model", (size_t)n * sizeof *places);
    if (!places) {
        sw_graph_fail(b->g, SW_E_NOMEM, "out of host memory for the model");
        return SW_NO_VALUE;
    }
    for (int64_t t = 0; t < n; t++) {
        places[t] = (int32_t)(t + s->position_offset);
    }
    snprintf(name, sizeof name, "%s.places.%lld", b->m->family->names.stack[b->stack],
             (long long)n);
    const sw_value ids = sw_constant(b->g, name, SW_I32, SW_SHAPE(n), places);
    sw_free(places);
    return ids;
}

/* Files need not have them. As in transformers, Pegasus trains them. */
static sw_value table_of_sines(struct build *b)
{
    const struct sw_model *m = &b->m->super;
    char name[240];
    snprintf(name, sizeof name, "%s.weight",
             sw_name_in_trunk(&b->names, b->m->family->names.positions));
    const struct sw_shape shape = SW_SHAPE(m->max_tokens, m->width);
    const struct sw_init init = {SW_INIT_SINES_APART, 0};
    return b->m->spec.keeps_sines ? sw_param_fixed(b->g, name, shape, init)
                                  : sw_param(b->g, name, shape, init);
}

static sw_value embedded_positions(struct build *b, int64_t n)
{
    const struct sw_seq2seq_spec *s = &b->m->spec;
    const struct sw_model *m = &b->m->super;
    const sw_value rows =
        is_cached(b) ? sw_add_offset(b->g, b->position, s->position_offset) : rows_of_places(b, n);
    const sw_value table =
        s->sines ? table_of_sines(b)
                 : sw_nn_table(b->g, sw_name_in_trunk(&b->names, b->m->family->names.positions),
                               m->max_tokens + s->position_offset, m->width, s->std.table);
    return sw_embedding(b->g, table, rows, -1);
}

/* ---- a layer ---- */

/* Width of the stack's queries, keys and values over all heads. */
static int64_t inner_of(const struct build *b)
{
    return b->m->spec.stack[b->stack].heads * b->m->spec.stack[b->stack].head_width;
}

/* Keys or values of `from` (what: "key", "value"). */
static sw_value project(struct build *b, const char *attention, const char *what, sw_value from)
{
    const struct sw_seq2seq_spec *s = &b->m->spec;
    const struct sw_seq2seq_names *n = &b->m->family->names;
    const char *name = *what == 'k' ? n->k : n->v;
    return columns(b, in_attention(b, attention, name), from, inner_of(b),
                   s->stack[b->stack].head_width, s->std.kv);
}

static struct sw_nn_cache cache_of(const struct build *b, bool cross)
{
    return (struct sw_nn_cache){.layer = b->names.layer,
                                .tokens = cross ? b->spec->tokens : b->spec->cache_tokens};
}

/* Keys or values of the encoder's tokens, cached or computed now. */
static sw_value cross_part(struct build *b, const char *what)
{
    const struct sw_nn_cache cache = cache_of(b, true);
    return is_cached(b) ? sw_nn_kept(b->g, what, b->spec->batch, inner_of(b), &cache)
                        : project(b, b->m->family->names.cross, what, b->encoded);
}

/* Self-attention of h, or cross-attention with the encoder's output. */
static sw_value attend(struct build *b, const char *attention, sw_value h, bool cross)
{
    const struct sw_seq2seq_spec *s = &b->m->spec;
    const struct sw_seq2seq_names *n = &b->m->family->names;
    const int64_t head = s->stack[b->stack].head_width, inner = inner_of(b);
    const bool masked = cross || b->stack == SW_ENCODER_STACK;
    const struct sw_nn_cache cache = cache_of(b, false);
    const struct sw_attention_spec spec = {
        .heads = s->stack[b->stack].heads,
        .scale = s->stack[b->stack].scale,
        .causal = !masked,
        .dropout = s->attention_dropout,
        .mask = masked ? b->mask : SW_NO_VALUE,
        .position = cross ? SW_NO_VALUE : b->position,
        .slopes = SW_NO_VALUE,
        .segments = SW_NO_VALUE,
        .bias = cross ? SW_NO_VALUE : b->bias,
    };
    const sw_value q = columns(b, in_attention(b, attention, n->q), h, inner, head, s->std.q);
    const sw_value k = cross ? cross_part(b, "key") : project(b, attention, "key", h);
    const sw_value v = cross ? cross_part(b, "value") : project(b, attention, "value", h);
    const sw_value o = !cross && is_cached(b) ? sw_nn_cached_attention(b->g, q, k, v, &spec, &cache)
                                              : sw_attention(b->g, q, k, v, &spec);
    return rows(b, in_attention(b, attention, n->out), o, inner, head, s->std.out);
}

static sw_value feed_forward(struct build *b, sw_value h)
{
    const struct sw_seq2seq_spec *s = &b->m->spec;
    const struct sw_seq2seq_names *n = &b->m->family->names;
    const int64_t inner = s->stack[b->stack].inner;
    sw_value x;
    if (s->gated) {
        const sw_value gate =
            columns(b, sw_name_in_layer(&b->names, n->gate[b->stack]), h, inner, 1, s->std.up);
        const sw_value up =
            columns(b, sw_name_in_layer(&b->names, n->gated[b->stack]), h, inner, 1, s->std.up);
        x = sw_gated_act(b->g, gate, up, s->act);
    } else {
        x = sw_act(b->g,
                   columns(b, sw_name_in_layer(&b->names, n->up[b->stack]), h, inner, 1, s->std.up),
                   s->act);
    }
    x = sw_dropout(b->g, x, s->act_dropout);
    return rows(b, sw_name_in_layer(&b->names, n->down[b->stack]), x, inner, 1, s->std.down);
}

enum branch { SELF, CROSS, FEED_FORWARD };

/* h with a branch added, in pre-norm or post-norm form. */
static sw_value branch(struct build *b, sw_value h, enum branch branch)
{
    const struct sw_seq2seq_names *n = &b->m->family->names;
    const char *const norms[] = {n->self_norm, n->cross_norm, n->mlp_norm[b->stack]};
    static const char *const scopes[] = {"attention", "cross", "mlp"};
    const bool pre = b->m->spec.pre_norm;
    sw_scope_push(b->g, scopes[branch]);
    sw_value x = pre ? norm(b, sw_name_in_layer(&b->names, norms[branch]), h) : h;
    x = branch == FEED_FORWARD ? feed_forward(b, x)
        : branch == CROSS      ? attend(b, n->cross, x, true)
                               : attend(b, n->self, x, false);
    x = sw_add(b->g, h, drop(b, x));
    sw_scope_pop(b->g);
    return pre ? x : norm(b, sw_name_in_layer(&b->names, norms[branch]), x);
}

/* ---- stacks ---- */

static void name_hidden(const struct build *b, sw_value h)
{
    if (b->spec->want_hidden) {
        char name[48];
        snprintf(name, sizeof name, "%s_hidden.%lld",
                 b->stack == SW_ENCODER_STACK ? "encoder" : "decoder", (long long)b->names.layer);
        sw_output(b->g, name, h);
    }
}

static sw_value embed(struct build *b, sw_value table, sw_value ids, int64_t n)
{
    const struct sw_seq2seq_spec *s = &b->m->spec;
    sw_value h = sw_embedding(b->g, table, ids, s->padding_id);
    h = s->embedding_scale != 1 ? sw_scale(b->g, h, s->embedding_scale) : h;
    b->bias = s->buckets > 0 ? relative_bias(b, n) : SW_NO_VALUE;
    if (s->buckets == 0) {
        const char *name = b->m->family->names.embedding_norm;
        h = sw_add(b->g, h, embedded_positions(b, n));
        h = name ? norm(b, sw_name_in_trunk(&b->names, name), h) : h;
    }
    return drop(b, h);
}

/* Runs ids [B,n] through one of the two stacks. */
static sw_value run_stack(struct build *b, int stack, sw_value table, sw_value ids, int64_t n)
{
    const struct sw_seq2seq_names *names = &b->m->family->names;
    enter_stack(b, stack);
    sw_scope_push(b->g, stack == SW_ENCODER_STACK ? "encoder" : "decoder");
    sw_value h = embed(b, table, ids, n);
    for (b->names.layer = 0; b->names.layer < b->m->spec.stack[stack].layers; b->names.layer++) {
        char name[48];
        snprintf(name, sizeof name, "%s.%lld", names->layers, (long long)b->names.layer);
        name_hidden(b, h);
        sw_scope_push_block(b->g, name);
        h = branch(b, h, SELF);
        h = stack == SW_DECODER_STACK ? branch(b, h, CROSS) : h;
        h = branch(b, h, FEED_FORWARD);
        sw_scope_pop(b->g);
    }
    h = names->final_norm ? norm(b, sw_name_in_trunk(&b->names, names->final_norm), h) : h;
    h = b->m->spec.plain ? drop(b, h) : h;
    name_hidden(b, h);
    sw_scope_pop(b->g);
    return h;
}

/* Keeps the keys and values that the decoder's layers see of all source tokens. */
static void keep_source(struct build *b)
{
    static const char *const parts[] = {"key", "value"};
    enter_stack(b, SW_DECODER_STACK);
    sw_scope_push(b->g, "decoder");
    for (b->names.layer = 0; b->names.layer < b->m->spec.stack[b->stack].layers; b->names.layer++) {
        const struct sw_nn_cache cache = cache_of(b, true);
        char name[48];
        snprintf(name, sizeof name, "%s.%lld", b->m->family->names.layers,
                 (long long)b->names.layer);
        sw_scope_push_block(b->g, name);
        sw_scope_push(b->g, "cross");
        for (size_t i = 0; i < SW_LEN(parts); i++) {
            sw_nn_keep(b->g, parts[i], project(b, b->m->family->names.cross, parts[i], b->encoded),
                       &cache);
        }
        sw_scope_pop(b->g);
        sw_scope_pop(b->g);
    }
    sw_scope_pop(b->g);
}

/* ---- heads ---- */

static void text_head(struct build *b, struct sw_head *head, sw_value h, sw_value table)
{
    const struct sw_seq2seq_names *n = &b->m->family->names;
    const struct sw_model *m = &b->m->super;
    sw_value weight = table, bias = SW_NO_VALUE;
    if (m->head_name) {
        weight = sw_param(b->g, m->head_name, SW_SHAPE(m->vocab, m->width),
                          (struct sw_init){SW_INIT_NORMAL, b->m->spec.std.head});
    }
    if (n->logits_bias) {
        bias = sw_param_fixed(b->g, n->logits_bias, SW_SHAPE(1, m->vocab),
                              (struct sw_init){SW_INIT_ZERO, 0});
        sw_nn_split_words(b->g, bias, 1);
        bias = sw_reshape(b->g, bias, SW_SHAPE(m->vocab));
    }
    sw_nn_split_words(b->g, weight, 0);
    h = b->m->spec.head_scale != 1 ? sw_scale(b->g, h, b->m->spec.head_scale) : h;
    sw_head_linear_term(head, 0, h, h, weight, bias, 0);
}

/* Classifies from the decoder's row at the last end-of-text id. */
static void class_head(struct build *b, struct sw_head *head, sw_value h, sw_value ids)
{
    const struct sw_seq2seq_spec *s = &b->m->spec;
    const struct sw_seq2seq_names *n = &b->m->family->names;
    const struct sw_model *m = &b->m->super;
    sw_value x = sw_select_rows(b->g, h, sw_last_index_of(b->g, ids, m->eos_id));
    x = sw_dropout(b->g, x, s->classifier_dropout);
    x = sw_act(b->g, linear(b, n->pool, x, m->width, m->width, s->std.head), SW_ACT_TANH);
    x = sw_dropout(b->g, x, s->classifier_dropout);
    sw_head_term(head, 0, linear(b, n->tells, x, m->width, m->labels, s->std.head));
}

/* Runs the decoder on the labels shifted right, or on one token. */
static sw_value decode(struct build *b, sw_value table, sw_value ids)
{
    const struct sw_model *model = &b->m->super;
    const struct sw_forward_spec *spec = b->spec;
    const bool is_text = sw_model_is_seq2seq(model);
    if (spec->cache_tokens > 0) {
        const sw_value token =
            sw_input(b->g, "decoder_input_ids", SW_I32, SW_SHAPE(spec->batch, 1));
        b->position = sw_input(b->g, "position", SW_I32, SW_SHAPE(1));
        const sw_value h = run_stack(b, SW_DECODER_STACK, table, token, 1);
        return sw_reshape(b->g, h, SW_SHAPE(spec->batch, model->width));
    }
    const int64_t start = b->m->spec.begins_with_last ? -1 : model->start_id;
    const sw_value given = is_text ? sw_model_input(b->g, model, spec, "labels") : ids;
    return run_stack(b, SW_DECODER_STACK, table, sw_shift_right(b->g, given, start, model->pad_id),
                     is_text ? spec->targets : spec->tokens);
}

void sw_seq2seq_forward(const struct sw_model *model, sw_graph *g,
                        const struct sw_forward_spec *spec, sw_value *out_loss)
{
    struct build b = {.m = seq2seq_of(model), .g = g, .spec = spec, .position = SW_NO_VALUE};
    struct sw_head head = {model, g, spec, SW_NO_VALUE};
    sw_value ids = SW_NO_VALUE;
    *out_loss = SW_NO_VALUE;
    if (spec->is_packed) {
        sw_graph_fail(g, SW_E_UNSUP,
                      "%s: spillway.packing is not built in this version for encoder-decoders",
                      model->ops->model_type);
    }
    const bool encodes = spec->cache_tokens == 0 || spec->is_source;
    if (encodes) {
        ids = sw_model_input(g, model, spec, "input_ids");
    }
    b.mask = sw_model_input(g, model, spec, "attention_mask");
    const sw_value table = sw_nn_vocabulary(g, b.m->family->names.table, model->vocab, model->width,
                                            b.m->spec.std.table);
    if (encodes) {
        b.encoded = run_stack(&b, SW_ENCODER_STACK, table, ids, spec->tokens);
    }
    if (spec->is_source) {
        keep_source(&b);
        return;
    }
    const sw_value h = decode(&b, table, ids);
    sw_scope_push(g, "head");
    if (sw_model_is_seq2seq(model)) {
        text_head(&b, &head, h, table);
    } else if (model->task->n_losses > 0) {
        class_head(&b, &head, h, ids);
    }
    *out_loss = sw_head_end(&head);
    sw_scope_pop(g);
}
