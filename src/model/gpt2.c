// SPDX-License-Identifier: Apache-2.0
// GPT-2 as Hugging Face defines it: pre-norm blocks, learned positions, Conv1D weights [in,out],
// head tied to the token embedding. Positions are 0..T-1 whatever the mask says.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"
#include "nn/nn.h"

enum { MOST_LAYERS = 10000 };

struct gpt2 {
    struct sw_model super;
    int64_t heads, inner;
    enum sw_act act;
    double eps, init_range;
    double embd_pdrop, attn_pdrop, resid_pdrop;
    bool scale_attn, scale_by_layer;
};

static const struct gpt2 *gpt2_of(const struct sw_model *model)
{
    return SW_CONTAINER(model, struct gpt2, super);
}

/* ---- config.json ---- */

static sw_status read_head(struct sw_json_doc *doc, const struct sw_json *config, struct gpt2 *m)
{
    const struct sw_json *list = sw_json_get(config, "architectures");
    const char *name =
        list && list->type == SW_JSON_ARRAY && list->first && list->first->type == SW_JSON_STRING
            ? list->first->string
            : "GPT2LMHeadModel";
    if (strcmp(name, "GPT2LMHeadModel") == 0 || strcmp(name, "GPT2Model") == 0) {
        m->super.head = SW_HEAD_LM;
        m->super.head_name = m->super.tied ? NULL : "lm_head.weight";
        return SW_OK;
    }
    if (strcmp(name, "GPT2ForSequenceClassification") != 0) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: architectures \"%s\" is not built in this version (it has: "
                       "GPT2LMHeadModel, GPT2ForSequenceClassification)",
                       sw_json_name(doc), name);
    }
    const char *problem = NULL;
    SW_TRY(sw_json_get_str(doc, config, "problem_type", NULL, &problem));
    SW_TRY(sw_model_read_labels(doc, config, &m->super.labels));
    if ((problem && strcmp(problem, "single_label_classification") != 0) ||
        (!problem && m->super.labels == 1)) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: problem_type \"%s\" is not built in this version (it has: "
                       "single_label_classification with two labels or more)",
                       sw_json_name(doc), problem ? problem : "regression");
    }
    m->super.head = SW_HEAD_CLASSIFY;
    m->super.head_name = "score.weight";
    return SW_OK;
}

static sw_status check_size(const struct sw_json_doc *doc, const char *key, int64_t value)
{
    if (value < 1 || value > INT32_MAX) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s is %lld; wanted a positive 32-bit number",
                       sw_json_name(doc), key, (long long)value);
    }
    return SW_OK;
}

/* Sizes that are fine one by one: what is summed over all parameters must still fit 64 bits. */
static sw_status check_parameters(const struct sw_json_doc *doc, const struct gpt2 *m)
{
    const struct sw_model *base = &m->super;
    const double width = (double)base->width, most = 0x1p56;
    const double layer = 4 * width * width + 2 * width * (double)m->inner;
    const double all =
        layer * (double)base->layers + width * ((double)base->vocab + (double)base->max_tokens);
    if (all > most) {
        return SW_FAIL(
            SW_E_FORMAT,
            "%s: n_embd %lld, n_inner %lld, n_layer %lld, vocab_size %lld: %.3g parameters; "
            "wanted at most %.3g",
            sw_json_name(doc), (long long)base->width, (long long)m->inner, (long long)base->layers,
            (long long)base->vocab, all, most);
    }
    return SW_OK;
}

static sw_status read_sizes(struct sw_json_doc *doc, const struct sw_json *config, struct gpt2 *m)
{
    struct sw_model *base = &m->super;
    SW_TRY(sw_json_get_i64(doc, config, "n_embd", 768, &base->width));
    SW_TRY(sw_json_get_i64(doc, config, "n_layer", 12, &base->layers));
    SW_TRY(sw_json_get_i64(doc, config, "n_head", 12, &m->heads));
    SW_TRY(sw_json_get_i64(doc, config, "vocab_size", 50257, &base->vocab));
    int64_t n_ctx = 0;
    SW_TRY(sw_json_get_i64(doc, config, "n_ctx", 1024, &n_ctx));
    SW_TRY(sw_json_get_i64(doc, config, "n_positions", n_ctx, &base->max_tokens));
    SW_TRY(check_size(doc, "n_embd", base->width)); /* before it is multiplied */
    const struct sw_json *inner = sw_json_get(config, "n_inner");
    m->inner = 4 * base->width;
    if (inner && inner->type != SW_JSON_NULL) {
        SW_TRY(sw_json_get_i64(doc, config, "n_inner", m->inner, &m->inner));
    }
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"n_layer", base->layers},
                 {"n_head", m->heads},
                 {"vocab_size", base->vocab},
                 {"n_inner", m->inner},
                 {"n_positions", base->max_tokens}};
    for (size_t i = 0; i < SW_LEN(sizes); i++) {
        SW_TRY(check_size(doc, sizes[i].key, sizes[i].value));
    }
    if (base->layers >
        MOST_LAYERS) { /* a plan grows with them, and takes time before it is refused */
        return SW_FAIL(SW_E_FORMAT, "%s: n_layer is %lld; wanted at most %d", sw_json_name(doc),
                       (long long)base->layers, MOST_LAYERS);
    }
    if (base->width % m->heads != 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: n_embd %lld does not divide into n_head %lld heads",
                       sw_json_name(doc), (long long)base->width, (long long)m->heads);
    }
    return check_parameters(doc, m);
}

static sw_status read_probability(struct sw_json_doc *doc, const struct sw_json *config,
                                  const char *key, double *out)
{
    double p = 0;
    SW_TRY(sw_json_get_f64(doc, config, key, 0.1, &p));
    if (!(p >= 0 && p < 1)) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s is %g; wanted 0 <= p < 1", sw_json_name(doc), key, p);
    }
    *out = p;
    return SW_OK;
}

static sw_status read_rest(struct sw_json_doc *doc, const struct sw_json *config, struct gpt2 *m)
{
    bool cross = false, pruned = false;
    SW_TRY(sw_model_read_act(doc, config, "activation_function", "gelu_new", &m->act));
    SW_TRY(sw_json_get_f64(doc, config, "layer_norm_epsilon", 1e-5, &m->eps));
    SW_TRY(sw_json_get_f64(doc, config, "initializer_range", 0.02, &m->init_range));
    if (!(m->eps >= 0 && m->init_range >= 0)) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s is %g; wanted 0 or more", sw_json_name(doc),
                       m->eps >= 0 ? "initializer_range" : "layer_norm_epsilon",
                       m->eps >= 0 ? m->init_range : m->eps);
    }
    SW_TRY(read_probability(doc, config, "embd_pdrop", &m->embd_pdrop));
    SW_TRY(read_probability(doc, config, "attn_pdrop", &m->attn_pdrop));
    SW_TRY(read_probability(doc, config, "resid_pdrop", &m->resid_pdrop));
    SW_TRY(sw_json_get_bool(doc, config, "scale_attn_weights", true, &m->scale_attn));
    SW_TRY(sw_json_get_bool(doc, config, "scale_attn_by_inverse_layer_idx", false,
                            &m->scale_by_layer));
    SW_TRY(sw_json_get_bool(doc, config, "tie_word_embeddings", true, &m->super.tied));
    SW_TRY(sw_json_get_bool(doc, config, "add_cross_attention", false, &cross));
    const struct sw_json *heads = sw_json_get(config, "pruned_heads");
    pruned = heads && heads->n_children > 0;
    if (cross || pruned) {
        return SW_FAIL(SW_E_UNSUP, "%s: %s is not built in this version", sw_json_name(doc),
                       cross ? "add_cross_attention" : "pruned_heads");
    }
    m->super.pad_id = m->super.eos_id = -1;
    const struct sw_json *pad = sw_json_get(config, "pad_token_id");
    const struct sw_json *eos = sw_json_get(config, "eos_token_id");
    if (pad && pad->type == SW_JSON_INT) {
        m->super.pad_id = pad->integer;
    }
    if (eos && eos->type == SW_JSON_INT) {
        m->super.eos_id = eos->integer;
    }
    return SW_OK;
}

static void close(struct sw_model *model)
{
    sw_free(SW_CONTAINER(model, struct gpt2, super));
}

static sw_status open(struct sw_json_doc *doc, const struct sw_json *config, struct sw_model **out)
{
    struct gpt2 *m = sw_alloc_zero("model", 1, sizeof *m);
    SW_TRY_ALLOC(m, "the model");
    m->super.ops = &sw_model_gpt2;
    m->super.embedding_name = "transformer.wte.weight";
    sw_status st = read_sizes(doc, config, m);
    st = st < 0 ? st : read_rest(doc, config, m);
    st = st < 0 ? st : read_head(doc, config, m);
    if (st < 0) {
        close(&m->super);
        return st;
    }
    *out = &m->super;
    return SW_OK;
}

/* ---- forward ---- */

/* With a cache, queries see the keys of all tokens before: new keys and values are appended
 * first. */
static sw_value cached_attention(const struct gpt2 *m, sw_graph *g, sw_value qkv_BTC3,
                                 const struct sw_forward_spec *spec, int64_t layer,
                                 struct sw_attention_spec *attention)
{
    const int64_t width = m->super.width;
    sw_value all[2];
    for (int i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "cache.%lld.%s", (long long)layer, i == 0 ? "key" : "value");
        const sw_value cache =
            sw_graph_state(g, name, sw_graph_dtype(g),
                           SW_SHAPE(spec->batch, spec->cache_tokens, width), SW_NO_VALUE);
        const sw_value in[3] = {cache, sw_slice(g, qkv_BTC3, 2, (1 + i) * width, width),
                                attention->position};
        all[i] =
            sw_graph_add_out_in_place(g, sw_graph_add_op(g, SW_OP_KV_APPEND, in, 3, NULL), cache);
    }
    const sw_value q_BTC = sw_slice(g, qkv_BTC3, 2, 0, width);
    return sw_attention(g, q_BTC, all[0], all[1], attention);
}

static sw_value block(const struct gpt2 *m, sw_graph *g, sw_value h_BTC, int64_t layer,
                      const struct sw_forward_spec *spec, sw_value mask, sw_value position)
{
    const int64_t width = m->super.width;
    const double head = (double)width / (double)m->heads;
    const struct sw_linear_spec to_qkv = {
        .in = width, .out = 3 * width, .in_out = true, .std = m->init_range};
    const double proj_std = m->init_range / sqrt(2.0 * (double)m->super.layers);
    const struct sw_linear_spec from_heads = {
        .in = width, .out = width, .in_out = true, .std = proj_std};
    const struct sw_linear_spec up = {
        .in = width, .out = m->inner, .in_out = true, .std = m->init_range};
    const struct sw_linear_spec down = {
        .in = m->inner, .out = width, .in_out = true, .std = proj_std};
    struct sw_attention_spec attention = {
        .heads = m->heads,
        .scale = (m->scale_attn ? 1 / sqrt(head) : 1.0) /
                 (m->scale_by_layer ? (double)(layer + 1) : 1.0),
        .causal = true,
        .dropout = m->attn_pdrop,
        .mask = mask,
        .position = position,
        .slopes = SW_NO_VALUE,
        .segments = SW_NO_VALUE,
    };
    char p[128], name[160];
    snprintf(p, sizeof p, "transformer.h.%lld", (long long)layer);
#define NAMED(suffix) (snprintf(name, sizeof name, "%s." suffix, p), name)
    sw_value x_BTC = sw_nn_layer_norm(g, NAMED("ln_1"), h_BTC, width, m->eps);
    sw_scope_push(g, "attn");
    const sw_value qkv_BTC3 = sw_nn_linear(g, NAMED("attn.c_attn"), x_BTC, &to_qkv);
    x_BTC = spec->cache_tokens > 0 ? cached_attention(m, g, qkv_BTC3, spec, layer, &attention)
                                   : sw_attention_packed(g, qkv_BTC3, &attention);
    x_BTC = sw_nn_linear(g, NAMED("attn.c_proj"), x_BTC, &from_heads);
    sw_scope_pop(g);
    h_BTC = sw_add(g, h_BTC, sw_dropout(g, x_BTC, m->resid_pdrop));
    x_BTC = sw_nn_layer_norm(g, NAMED("ln_2"), h_BTC, width, m->eps);
    sw_scope_push(g, "mlp");
    const sw_value x_BTF = sw_act(g, sw_nn_linear(g, NAMED("mlp.c_fc"), x_BTC, &up), m->act);
    x_BTC = sw_nn_linear(g, NAMED("mlp.c_proj"), x_BTF, &down);
    sw_scope_pop(g);
#undef NAMED
    return sw_add(g, h_BTC, sw_dropout(g, x_BTC, m->resid_pdrop));
}

static void name_hidden(sw_graph *g, const struct sw_forward_spec *spec, int64_t i, sw_value h)
{
    if (spec->want_hidden) {
        char name[32];
        snprintf(name, sizeof name, "hidden.%lld", (long long)i);
        sw_output(g, name, h);
    }
}

/* Logits and loss of the language model; h [B,T,C]. */
static sw_value lm_head(const struct gpt2 *m, sw_graph *g, const struct sw_forward_spec *spec,
                        sw_value h_BTC, sw_value wte_VC)
{
    const sw_value head_VC =
        m->super.tied ? wte_VC
                      : sw_param(g, "lm_head.weight", SW_SHAPE(m->super.vocab, m->super.width),
                                 (struct sw_init){SW_INIT_NORMAL, m->init_range});
    if (spec->want_logits) {
        sw_value x = h_BTC;
        if (spec->cache_tokens > 0) {
            x = sw_select_rows(g, h_BTC, sw_input(g, "last", SW_I32, SW_SHAPE(spec->batch)));
        }
        sw_output(g, "logits", sw_matmul(g, x, false, head_VC, true));
    }
    if (!spec->has_labels) {
        return SW_NO_VALUE;
    }
    const sw_value labels = sw_input(g, "labels", SW_I32, SW_SHAPE(spec->batch, spec->tokens));
    return sw_linear_cross_entropy(g, h_BTC, head_VC, SW_NO_VALUE, labels, 0);
}

static sw_value classify_head(const struct gpt2 *m, sw_graph *g, const struct sw_forward_spec *spec,
                              sw_value h_BTC, sw_value ids)
{
    const sw_value score_LC = sw_param(g, "score.weight", SW_SHAPE(m->super.labels, m->super.width),
                                       (struct sw_init){SW_INIT_NORMAL, m->init_range});
    const sw_value x_BC = sw_select_rows(g, h_BTC, sw_last_index(g, ids, m->super.pad_id));
    const sw_value logits_BL = sw_matmul(g, x_BC, false, score_LC, true);
    if (spec->want_logits) {
        sw_output(g, "logits", logits_BL);
    }
    if (!spec->has_labels) {
        return SW_NO_VALUE;
    }
    return sw_cross_entropy(g, logits_BL, sw_input(g, "labels", SW_I32, SW_SHAPE(spec->batch)));
}

static void forward(const struct sw_model *model, sw_graph *g, const struct sw_forward_spec *spec,
                    sw_value *out_loss)
{
    const struct gpt2 *m = gpt2_of(model);
    const int64_t batch = spec->batch, tokens = spec->tokens;
    const sw_value ids = sw_input(g, "input_ids", SW_I32, SW_SHAPE(batch, tokens));
    const sw_value positions = sw_input(g, "positions", SW_I32, SW_SHAPE(tokens));
    const sw_value mask = spec->has_mask
                              ? sw_input(g, "attention_mask", SW_I32, SW_SHAPE(batch, tokens))
                              : SW_NO_VALUE;
    const sw_value position =
        spec->cache_tokens > 0 ? sw_input(g, "position", SW_I32, SW_SHAPE(1)) : SW_NO_VALUE;

    sw_scope_push(g, "transformer");
    const sw_value wte_VC =
        sw_nn_table(g, "transformer.wte", model->vocab, model->width, m->init_range);
    const sw_value wpe_PC =
        sw_nn_table(g, "transformer.wpe", model->max_tokens, model->width, m->init_range);
    sw_value h_BTC =
        sw_add(g, sw_embedding(g, wte_VC, ids, -1), sw_embedding(g, wpe_PC, positions, -1));
    h_BTC = sw_dropout(g, h_BTC, m->embd_pdrop);
    for (int64_t layer = 0; layer < model->layers; layer++) {
        char name[32];
        snprintf(name, sizeof name, "h.%lld", (long long)layer);
        name_hidden(g, spec, layer, h_BTC);
        sw_scope_push_block(g, name);
        h_BTC = block(m, g, h_BTC, layer, spec, mask, position);
        sw_scope_pop(g);
    }
    h_BTC = sw_nn_layer_norm(g, "transformer.ln_f", h_BTC, model->width, m->eps);
    name_hidden(g, spec, model->layers, h_BTC);
    sw_scope_pop(g);

    sw_scope_push(g, "head");
    *out_loss = model->head == SW_HEAD_LM ? lm_head(m, g, spec, h_BTC, wte_VC)
                                          : classify_head(m, g, spec, h_BTC, ids);
    if (*out_loss >= 0) {
        sw_output(g, "loss", *out_loss);
    }
    sw_scope_pop(g);
}

/* ---- names in files ---- */

static const char *alias(const struct sw_model *model, const char *name, int i, char *buf,
                         size_t cap)
{
    static const char prefix[] = "transformer.";
    (void)model;
    if (i == 0) {
        snprintf(buf, cap, "%s", name);
        return buf;
    }
    if (i == 1 && strncmp(name, prefix, sizeof prefix - 1) == 0) {
        snprintf(buf, cap, "%s", name + sizeof prefix - 1);
        return buf;
    }
    return NULL;
}

/* The causal masks that old files store as buffers, and a head that is the embedding again. */
static bool ignores(const struct sw_model *model, const char *file_name)
{
    const char *dot = strstr(file_name, ".attn.");
    if (dot && (strcmp(dot, ".attn.bias") == 0 || strcmp(dot, ".attn.masked_bias") == 0)) {
        return true;
    }
    return strcmp(file_name, "lm_head.weight") == 0 && !model->head_name;
}

const struct sw_model_ops sw_model_gpt2 = {
    .model_type = "gpt2",
    .open = open,
    .close = close,
    .forward = forward,
    .alias = alias,
    .ignores = ignores,
};
