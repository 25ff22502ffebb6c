// SPDX-License-Identifier: Apache-2.0
// ModernBERT (Warner et al. 2024): norms before branches, rotary positions, a gated MLP. Some
// layers see all tokens; the others see those up to half of local_attention away on both sides,
// and have angles of their own.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/decoder.h"
#include "model/encoder.h"
#include "model/heads.h"

struct modernbert {
    struct sw_model super;
    int64_t heads, inner, reach; /* reach: distance that layers with a window see */
    bool *is_local;              /* [layers], owned */
    struct sw_rotary_spec rotary, local;
    enum sw_act act, head_act;
    bool qkv_bias, mlp_bias, norm_bias, head_bias, decoder_bias, has_mean;
    double eps, init_range;
    double embedding_dropout, attention_dropout, mlp_dropout, classifier_dropout;
};

struct build {
    const struct modernbert *m;
    sw_graph *g;
    const struct sw_forward_spec *spec;
    struct sw_layer_names names;
    sw_value mask, segments, positions, table, local_table, window;
};

static const struct modernbert *modernbert_of(const struct sw_model *model)
{
    return SW_CONTAINER(model, struct modernbert, super);
}

/* [n] filled with number. */
static sw_value filled(struct build *b, const char *name, int64_t n, float number)
{
    const enum sw_dtype dtype = sw_graph_dtype(b->g);
    char *values = sw_alloc("model", (size_t)n * sw_dtype_bytes(dtype));
    if (!values) {
        sw_graph_fail(b->g, SW_E_NOMEM, "out of host memory for the model");
        return SW_NO_VALUE;
    }
    for (int64_t i = 0; i < n; i++) {
        sw_convert(dtype, values + (size_t)i * sw_dtype_bytes(dtype), SW_F32, &number, 1);
    }
    const sw_value out = sw_constant(b->g, name, dtype, SW_SHAPE(n), values);
    sw_free(values);
    return out;
}

static sw_value norm(struct build *b, const char *name, sw_value x)
{
    const int64_t width = b->m->super.width;
    char full[240];
    if (b->m->norm_bias) {
        return sw_nn_layer_norm(b->g, name, x, width, b->m->eps);
    }
    snprintf(full, sizeof full, "%s.weight", name);
    const sw_value weight = sw_param(b->g, full, SW_SHAPE(width), (struct sw_init){SW_INIT_ONE, 0});
    return sw_layer_norm(b->g, x, weight, filled(b, "norm.zeros", width, 0), b->m->eps);
}

/* f32 [H,T,T]: scores beyond the window become so small that their share is 0. */
static sw_value window(struct build *b)
{
    const int64_t n = b->spec->tokens, rows = 2 * n - 1, heads = b->m->heads;
    const enum sw_dtype dtype = sw_graph_dtype(b->g);
    const float far_away = -30000, near = 0;
    char name[48], *values = sw_alloc("model", (size_t)(rows * heads) * sw_dtype_bytes(dtype));
    if (!values) {
        sw_graph_fail(b->g, SW_E_NOMEM, "out of host memory for the model");
        return SW_NO_VALUE;
    }
    for (int64_t i = 0; i < rows * heads; i++) {
        const int64_t apart = i / heads - (n - 1);
        const bool sees = apart >= -b->m->reach && apart <= b->m->reach;
        sw_convert(dtype, values + (size_t)i * sw_dtype_bytes(dtype), SW_F32,
                   sees ? &near : &far_away, 1);
    }
    snprintf(name, sizeof name, "window.%lld", (long long)n);
    const sw_value table = sw_constant(b->g, name, dtype, SW_SHAPE(rows, heads), values);
    sw_free(values);
    return sw_relative_bias(b->g, table, SW_NO_VALUE, n, n, n - 1);
}

static bool is_local(const struct build *b)
{
    return b->m->is_local[b->names.layer];
}

static sw_value attend(struct build *b, sw_value x)
{
    const struct modernbert *m = b->m;
    const int64_t width = m->super.width, head = width / m->heads;
    const struct sw_linear_spec in = {.in = width,
                                      .out = 3 * width,
                                      .no_bias = !m->qkv_bias,
                                      .std = m->init_range,
                                      .columns = head,
                                      .groups = {width, width, width}};
    const struct sw_linear_spec out = {
        .in = width, .out = width, .no_bias = !m->qkv_bias, .std = m->init_range, .rows = head};
    const struct sw_attention_spec spec = {
        .heads = m->heads,
        .scale = 1 / sqrt((double)head),
        .dropout = m->attention_dropout,
        .mask = b->mask,
        .position = SW_NO_VALUE,
        .slopes = SW_NO_VALUE,
        .segments = b->segments,
        .bias = is_local(b) ? b->window : SW_NO_VALUE,
    };
    const sw_value qkv =
        sw_reshape(b->g, sw_nn_linear(b->g, sw_name_in_layer(&b->names, "attn.Wqkv"), x, &in),
                   SW_SHAPE(b->spec->batch, b->spec->tokens, 3 * m->heads, head));
    const sw_value table = is_local(b) ? b->local_table : b->table;
    const sw_value q =
        sw_rotary(b->g, sw_slice(b->g, qkv, 2, 0, m->heads), table, b->positions, false);
    const sw_value k =
        sw_rotary(b->g, sw_slice(b->g, qkv, 2, m->heads, m->heads), table, b->positions, false);
    const sw_value v = sw_slice(b->g, qkv, 2, 2 * m->heads, m->heads);
    return sw_nn_linear(b->g, sw_name_in_layer(&b->names, "attn.Wo"),
                        sw_attention(b->g, q, k, v, &spec), &out);
}

static sw_value mlp(struct build *b, sw_value x)
{
    const struct modernbert *m = b->m;
    const struct sw_linear_spec in = {.in = m->super.width,
                                      .out = 2 * m->inner,
                                      .no_bias = !m->mlp_bias,
                                      .std = m->init_range,
                                      .columns = 1,
                                      .groups = {m->inner, m->inner}};
    const struct sw_linear_spec out = {.in = m->inner,
                                       .out = m->super.width,
                                       .no_bias = !m->mlp_bias,
                                       .std = m->init_range,
                                       .rows = 1};
    const sw_value both = sw_nn_linear(b->g, sw_name_in_layer(&b->names, "mlp.Wi"), x, &in);
    x = sw_gated_act(b->g, sw_slice(b->g, both, 2, 0, m->inner),
                     sw_slice(b->g, both, 2, m->inner, m->inner), m->act);
    x = sw_dropout(b->g, x, m->mlp_dropout);
    return sw_nn_linear(b->g, sw_name_in_layer(&b->names, "mlp.Wo"), x, &out);
}

static sw_value layer(struct build *b, sw_value h)
{
    sw_scope_push(b->g, "attn");
    sw_value x = b->names.layer == 0 ? h : norm(b, sw_name_in_layer(&b->names, "attn_norm"), h);
    h = sw_add(b->g, h, sw_dropout(b->g, attend(b, x), b->m->attention_dropout));
    sw_scope_pop(b->g);
    sw_scope_push(b->g, "mlp");
    x = mlp(b, norm(b, sw_name_in_layer(&b->names, "mlp_norm"), h));
    sw_scope_pop(b->g);
    return sw_add(b->g, h, x);
}

/* ---- heads ---- */

static sw_value predict(struct build *b, sw_value x)
{
    const struct modernbert *m = b->m;
    const struct sw_linear_spec dense = {.in = m->super.width,
                                         .out = m->super.width,
                                         .no_bias = !m->head_bias,
                                         .std = m->init_range};
    x = sw_nn_linear(b->g, "head.dense", x, &dense);
    return norm(b, "head.norm", sw_act(b->g, x, m->head_act));
}

static sw_value classes(struct build *b, sw_value x, int64_t n)
{
    const struct sw_linear_spec spec = {.in = b->m->super.width, .out = n, .std = b->m->init_range};
    return sw_nn_linear(b->g, "classifier",
                        sw_dropout(b->g, predict(b, x), b->m->classifier_dropout), &spec);
}

static sw_value pooled(struct build *b, sw_value h)
{
    return b->m->has_mean ? sw_masked_mean(b->g, h, b->mask)
                          : sw_reshape(b->g, sw_slice(b->g, h, 1, 0, 1),
                                       SW_SHAPE(b->spec->batch, b->m->super.width));
}

static void masked(struct build *b, struct sw_head *head, sw_value h, sw_value table)
{
    const struct sw_model *m = &b->m->super;
    const struct sw_init init = {SW_INIT_NORMAL, b->m->init_range};
    const sw_value x = predict(b, h);
    const sw_value weight =
        m->head_name ? sw_param(b->g, m->head_name, SW_SHAPE(m->vocab, m->width), init) : table;
    const sw_value bias = b->m->decoder_bias ? sw_param(b->g, "decoder.bias", SW_SHAPE(m->vocab),
                                                        (struct sw_init){SW_INIT_ZERO, 0})
                                             : SW_NO_VALUE;
    sw_nn_split_words(b->g, weight, 0);
    sw_nn_split_words(b->g, bias, 0);
    sw_head_linear_term(head, 0, x, x, weight, bias, 0);
}

static void put_head(struct build *b, struct sw_head *head, sw_value h, sw_value table)
{
    const char *task = b->m->super.task->head;
    if (strcmp(task, "masked") == 0) {
        masked(b, head, h, table);
    } else if (strcmp(task, "tokens") == 0) {
        sw_head_term(head, 0, classes(b, h, b->m->super.labels));
    } else if (strcmp(task, "answers") == 0) {
        const sw_value both = classes(b, h, 2);
        for (int i = 0; i < 2; i++) {
            sw_head_term(head, i,
                         sw_reshape(b->g, sw_slice(b->g, both, 2, i, 1),
                                    SW_SHAPE(b->spec->batch, b->spec->tokens)));
        }
    } else if (b->m->super.task->n_losses > 0) {
        sw_head_term(head, 0, classes(b, pooled(b, h), b->m->super.labels));
    } else if (b->spec->want_logits) {
        sw_output(b->g, "hidden", h);
    }
}

/* ---- the whole ---- */

static void open_inputs(struct build *b)
{
    const struct sw_forward_spec *spec = b->spec;
    const struct sw_model *m = &b->m->super;
    bool any = false;
    b->segments = spec->is_packed ? sw_model_input(b->g, m, spec, "segments") : SW_NO_VALUE;
    b->mask = spec->is_packed && !spec->has_mask && !b->m->has_mean
                  ? SW_NO_VALUE
                  : sw_model_input(b->g, m, spec, "attention_mask");
    b->positions = sw_model_input(b->g, m, spec, "positions");
    for (int64_t i = 0; i < m->layers; i++) {
        any = any || b->m->is_local[i];
    }
    b->table = sw_rotary_table(b->g, "rotary", &b->m->rotary, spec->tokens);
    if (any) {
        b->local_table = sw_rotary_table(b->g, "rotary.local", &b->m->local, spec->tokens);
        b->window = window(b);
    }
}

static void forward(const struct sw_model *model, sw_graph *g, const struct sw_forward_spec *spec,
                    sw_value *out_loss)
{
    struct build b = {.m = modernbert_of(model), .g = g, .spec = spec};
    struct sw_head head = {model, g, spec, SW_NO_VALUE};
    b.names = (struct sw_layer_names){.trunk = model->trunk, .layers = "layers"};
    const sw_value ids = sw_model_input(g, model, spec, "input_ids");
    sw_scope_push(g, model->trunk);
    open_inputs(&b);
    const sw_value table = sw_nn_vocabulary(g, "model.embeddings.tok_embeddings", model->vocab,
                                            model->width, b.m->init_range);
    sw_value h = norm(&b, "model.embeddings.norm", sw_embedding(g, table, ids, model->pad_id));
    h = sw_dropout(g, h, b.m->embedding_dropout);
    for (b.names.layer = 0; b.names.layer < model->layers; b.names.layer++) {
        sw_model_begin_layer(g, spec, &b.names, h);
        h = layer(&b, h);
        sw_scope_pop(g);
    }
    h = norm(&b, "model.final_norm", h);
    sw_model_name_hidden(g, spec, model->layers, h);
    sw_scope_pop(g);
    sw_scope_push(g, "head");
    put_head(&b, &head, h, table);
    *out_loss = sw_head_end(&head);
    sw_scope_pop(g);
}

/* ---- config.json ---- */

/* One kind of layers: rope_parameters of transformers 5, or the older key of its theta. */
static sw_status read_rotary(struct sw_json_doc *doc, const struct sw_json *config,
                             const char *layers, const char *key, double theta,
                             struct modernbert *m, struct sw_rotary_spec *out)
{
    const struct sw_json *all = sw_json_get(config, "rope_parameters");
    const struct sw_json *scaling = sw_json_get(config, "rope_scaling");
    const bool given = all && all->type == SW_JSON_OBJECT && all->n_children > 0;
    const struct sw_json *rope = given ? sw_json_get(all, layers) : NULL;
    const char *type = NULL;
    rope = rope && rope->type == SW_JSON_OBJECT ? rope : NULL;
    SW_TRY(sw_json_get_f64(doc, config, key, theta, &theta));
    SW_TRY(sw_json_get_f64(doc, rope, "rope_theta", theta, &out->theta));
    SW_TRY(sw_json_get_str(doc, rope, "rope_type", "default", &type));
    if (strcmp(type, "default") != 0 || (scaling && scaling->type != SW_JSON_NULL)) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: a scaling of rotary positions is not built in this version for "
                       "modernbert (rope_type \"%s\")",
                       sw_json_name(doc), type);
    }
    out->width = m->super.width / m->heads;
    if (!(out->theta > 1) || out->width % 2 != 0) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: rope_theta is %g, a head has %lld columns; wanted more than 1, and an "
                       "even number",
                       sw_json_name(doc), out->theta, (long long)out->width);
    }
    return SW_OK;
}

static sw_status read_layers(struct sw_json_doc *doc, const struct sw_json *config,
                             struct modernbert *m)
{
    static const struct sw_model_key every = {"global_attn_every_n_layers", NULL, 3};
    static const struct sw_model_key local = {"local_attention", NULL, 128};
    const struct sw_json *types = sw_json_get(config, "layer_types");
    const int64_t n = m->super.layers;
    int64_t pattern = 0, window = 0;
    m->is_local = sw_alloc_zero("model", (size_t)n, sizeof *m->is_local);
    SW_TRY_ALLOC(m->is_local, "the layers' windows");
    SW_TRY(sw_model_read_size(doc, config, &every, every.fallback, &pattern));
    SW_TRY(sw_model_read_size(doc, config, &local, local.fallback, &window));
    m->reach = window / 2;
    const bool listed = types && types->type == SW_JSON_ARRAY;
    const struct sw_json *type = listed ? types->first : NULL;
    for (int64_t i = 0; i < n; i++) {
        m->is_local[i] = i % pattern != 0;
        if (!listed) {
            continue;
        }
        const char *name = type && type->type == SW_JSON_STRING ? type->string : "";
        m->is_local[i] = strcmp(name, "sliding_attention") == 0;
        if (types->n_children != n || (!m->is_local[i] && strcmp(name, "full_attention") != 0)) {
            return SW_FAIL(SW_E_FORMAT,
                           "%s:%d:%d: layer_types: wanted full_attention or sliding_attention for "
                           "each of %lld layers",
                           sw_json_name(doc), types->line, types->column, (long long)n);
        }
        type = type->next;
    }
    return SW_OK;
}

static sw_status read_rest(struct sw_json_doc *doc, const struct sw_json *config,
                           struct modernbert *m)
{
    const char *pooling = NULL;
    SW_TRY(sw_model_read_act(doc, config, "hidden_activation", "gelu", &m->act));
    SW_TRY(sw_model_read_act(doc, config, "classifier_activation", "gelu", &m->head_act));
    SW_TRY(sw_model_read_amount(doc, config, "norm_eps", 1e-5, &m->eps));
    SW_TRY(sw_model_read_amount(doc, config, "initializer_range", 0.02, &m->init_range));
    SW_TRY(sw_json_get_bool(doc, config, "norm_bias", false, &m->norm_bias));
    SW_TRY(sw_json_get_bool(doc, config, "attention_bias", false, &m->qkv_bias));
    SW_TRY(sw_json_get_bool(doc, config, "mlp_bias", false, &m->mlp_bias));
    SW_TRY(sw_json_get_bool(doc, config, "classifier_bias", false, &m->head_bias));
    SW_TRY(sw_json_get_bool(doc, config, "decoder_bias", true, &m->decoder_bias));
    SW_TRY(sw_model_read_dropout(doc, config, "embedding_dropout", 0, &m->embedding_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "attention_dropout", 0, &m->attention_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "mlp_dropout", 0, &m->mlp_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "classifier_dropout", 0, &m->classifier_dropout));
    SW_TRY(sw_json_get_str(doc, config, "classifier_pooling", "cls", &pooling));
    m->has_mean = strcmp(pooling, "mean") == 0;
    if (!m->has_mean && strcmp(pooling, "cls") != 0) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: classifier_pooling \"%s\" is not built in this version (it has: cls, "
                       "mean)",
                       sw_json_name(doc), pooling);
    }
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      const struct sw_model_options *options, struct sw_model *model)
{
    struct modernbert *m = SW_CONTAINER(model, struct modernbert, super);
    SW_TRY(sw_model_read_sizes(doc, config, model, &m->heads, &m->inner));
    SW_TRY(sw_json_get_bool(doc, config, "tie_word_embeddings", true, &model->tied));
    model->pad_id = sw_model_padding_row(config, model, model->vocab > 50283 ? 50283 : -1);
    model->eos_id = sw_model_token_id(config, "eos_token_id");
    if (model->width % m->heads != 0 || model->pad_id >= model->vocab) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: hidden_size %lld, num_attention_heads %lld, pad_token_id %lld; wanted "
                       "heads that divide the width, and an id below vocab_size %lld",
                       sw_json_name(doc), (long long)model->width, (long long)m->heads,
                       (long long)model->pad_id, (long long)model->vocab);
    }
    SW_TRY(read_layers(doc, config, m));
    SW_TRY(read_rotary(doc, config, "full_attention", "global_rope_theta", 160000, m, &m->rotary));
    SW_TRY(read_rotary(doc, config, "sliding_attention", "local_rope_theta", 10000, m, &m->local));
    SW_TRY(read_rest(doc, config, m));
    const double width = (double)model->width;
    SW_TRY(sw_model_check_parameters(doc, model, width * (4 * width + 3 * (double)m->inner),
                                     m->inner));
    SW_TRY(sw_model_read_task(model->ops, doc, config, options, model));
    const bool is_masked = strcmp(model->task->head, "masked") == 0;
    model->trunk = "model";
    model->embedding_name = "model.embeddings.tok_embeddings.weight";
    model->lm_head_name = "decoder.weight";
    model->head_name = is_masked && !model->tied ? model->lm_head_name : NULL;
    model->head_module = !is_masked ? "classifier" : model->tied ? NULL : "decoder";
    return SW_OK;
}

static void release(struct sw_model *model)
{
    sw_free(SW_CONTAINER(model, struct modernbert, super)->is_local);
}

/* ---- names in files ---- */

/* The name, and the name without the trunk's. */
static const char *alias(const struct sw_model *model, const char *name, int i, char *buf,
                         size_t cap)
{
    const size_t trunk = strlen(model->trunk) + 1;
    if (i > 1 || (i == 1 && strncmp(name, "model.", trunk) != 0)) {
        return NULL;
    }
    snprintf(buf, cap, "%s", name + (i == 1 ? trunk : 0));
    return buf;
}

/* The head of masked tokens lies in files of other classes, too. */
static bool ignores(const struct sw_model *model, const char *file_name)
{
    return sw_model_ignores(model, NULL, file_name);
}

const struct sw_model_ops sw_family_modernbert = {
    .model_type = "modernbert",
    .classes = {{"ModernBertForMaskedLM", "masked"},
                {"ModernBertForSequenceClassification", "classify"},
                {"ModernBertForTokenClassification", "tokens"},
                {"ModernBertForQuestionAnswering", "answers"},
                {"ModernBertModel", "embed"}},
    .sizes = {[SW_SIZE_WIDTH] = {"hidden_size", NULL, 768},
              [SW_SIZE_LAYERS] = {"num_hidden_layers", NULL, 22},
              [SW_SIZE_HEADS] = {"num_attention_heads", NULL, 12},
              [SW_SIZE_INNER] = {"intermediate_size", NULL, 1152},
              [SW_SIZE_VOCAB] = {"vocab_size", NULL, 50368},
              [SW_SIZE_TOKENS] = {"max_position_embeddings", NULL, 8192}},
    .bytes = sizeof(struct modernbert),
    .read = read,
    .release = release,
    .forward = forward,
    .alias = alias,
    .ignores = ignores,
};
