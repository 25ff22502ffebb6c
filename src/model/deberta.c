// SPDX-License-Identifier: Apache-2.0
// DeBERTa-v2 and v3 (He et al. 2021): scores are sums of three products: tokens with tokens, tokens
// with distances, and distances with tokens. Distances fall into buckets that widen. The embedding
// is zero at padding. A convolution over tokens may run beside the first layer.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "model/encoder.h"

/* State that the layers of one forward share. */
struct build {
    struct sw_encoder_build e; /* its mask is i32 [B,T]: 1 for tokens */
    sw_value padding, all;     /* i32 [B,T]: 1 for padding, for tokens and padding */
    sw_value table, index; /* table: [2 span, C] of distances; index: its row for each distance */
};

static sw_value drop(struct build *b, sw_value x)
{
    return sw_dropout(b->e.g, x, b->e.m->spec.hidden_dropout);
}

/* ---- distances ---- */

/* The bucket of a distance, computed in fp32 as in the published code. */
static int64_t bucket_of(const struct sw_encoder_distances *d, int64_t apart)
{
    const int64_t middle = d->buckets / 2, size = apart < 0 ? -apart : apart;
    if (d->buckets <= 0 || size <= middle) {
        return apart;
    }
    const float span = (float)log((double)(d->places - 1) / (double)middle);
    const float step = logf((float)size / (float)middle) / span * (float)(middle - 1);
    const int64_t bucket = (int64_t)ceilf(step) + middle;
    return apart < 0 ? -bucket : bucket;
}

/* The distance of key j from query i is i - j. */
static sw_value distances(struct build *b)
{
    const struct sw_encoder_distances *d = &b->e.m->spec.distances;
    const int64_t n = b->e.spec->tokens, rows = 2 * n - 1;
    char name[48];
    int32_t *index = sw_alloc("model", (size_t)rows * sizeof *index);
    if (!index) {
        sw_graph_fail(b->e.g, SW_E_NOMEM, "out of host memory for the model");
        return SW_NO_VALUE;
    }
    for (int64_t i = 0; i < rows; i++) {
        const int64_t row = bucket_of(d, n - 1 - i) + d->span;
        index[i] = (int32_t)sw_max_i64(0, sw_min_i64(2 * d->span - 1, row));
    }
    snprintf(name, sizeof name, "relative_position.%lld", (long long)n);
    const sw_value value = sw_constant(b->e.g, name, SW_I32, SW_SHAPE(rows), index);
    sw_free(index);
    return value;
}

static sw_value distance_table(struct build *b)
{
    const struct sw_encoder_distances *d = &b->e.m->spec.distances;
    const sw_value table = sw_nn_table(b->e.g, "deberta.encoder.rel_embeddings", 2 * d->span,
                                       b->e.m->super.width, b->e.m->spec.init_range);
    return d->is_normed ? sw_encoder_norm(&b->e, "deberta.encoder.LayerNorm", table) : table;
}

/* Products of x [B,T,C] with distances; the table goes through the layer `suffix`. */
static sw_value scores(struct build *b, sw_value x, const char *suffix, sw_value table, bool by_key,
                       double scale)
{
    const struct sw_encoder_spec *s = &b->e.m->spec;
    const int64_t width = b->e.m->super.width, head = width / s->heads;
    const sw_value of_table = sw_encoder_columns(&b->e, suffix, table, width, head);
    return sw_relative_scores(
        b->e.g,
        sw_reshape(b->e.g, x, SW_SHAPE(b->e.spec->batch, b->e.spec->tokens, s->heads, head)),
        sw_reshape(b->e.g, of_table, SW_SHAPE(2 * s->distances.span, s->heads, head)), b->index,
        by_key, scale);
}

/* ---- a layer ---- */

static struct sw_attention_spec attention(const struct build *b, double scale)
{
    return (struct sw_attention_spec){
        .heads = b->e.m->spec.heads,
        .scale = scale,
        .mask = SW_NO_VALUE,
        .position = SW_NO_VALUE,
        .slopes = SW_NO_VALUE,
        .segments = SW_NO_VALUE,
        .bias = SW_NO_VALUE,
    };
}

/* Returns o with other rows for padding, from which answers and masked tokens may be predicted. As
 * in the published code, padding queries see the whole row equally, other padding included: each
 * gets the mean of the values, as if that were the only key. */
static sw_value with_padding(struct build *b, sw_value o, sw_value q, sw_value v)
{
    const struct sw_attention_spec spec = attention(b, 0);
    const sw_value mean = sw_reshape(b->e.g, sw_masked_mean(b->e.g, v, b->all),
                                     SW_SHAPE(b->e.spec->batch, 1, b->e.m->super.width));
    const sw_value seen = sw_attention(b->e.g, q, mean, mean, &spec);
    return sw_add(b->e.g, sw_mask_rows(b->e.g, o, b->e.mask),
                  sw_mask_rows(b->e.g, seen, b->padding));
}

static sw_value attend(struct build *b, sw_value h)
{
    const struct sw_encoder_spec *s = &b->e.m->spec;
    const struct sw_encoder_distances *d = &s->distances;
    const int64_t width = b->e.m->super.width, head = width / s->heads;
    const double scale = 1 / sqrt((double)head * (double)d->terms);
    const sw_value q = sw_encoder_columns(&b->e, "attention.self.query_proj", h, width, head);
    const sw_value k = sw_encoder_columns(&b->e, "attention.self.key_proj", h, width, head);
    const sw_value v = sw_encoder_columns(&b->e, "attention.self.value_proj", h, width, head);
    sw_value bias = SW_NO_VALUE;
    const bool relative = d->with_keys || d->with_queries;
    const sw_value table = relative ? drop(b, b->table) : SW_NO_VALUE;
    if (d->with_keys) {
        bias =
            scores(b, q, d->is_shared ? "attention.self.key_proj" : "attention.self.pos_key_proj",
                   table, false, scale);
    }
    if (d->with_queries) {
        const sw_value more = scores(
            b, k, d->is_shared ? "attention.self.query_proj" : "attention.self.pos_query_proj",
            table, true, scale);
        bias = d->with_keys ? sw_add(b->e.g, bias, more) : more;
    }
    struct sw_attention_spec spec = attention(b, scale);
    spec.dropout = s->attention_dropout;
    spec.mask = b->e.mask;
    spec.bias = bias;
    const sw_value o = with_padding(b, sw_attention(b->e.g, q, k, v, &spec), q, v);
    return sw_encoder_rows(&b->e, "attention.output.dense", o, width, head);
}

static sw_value layer(struct build *b, sw_value h)
{
    const struct sw_encoder_spec *s = &b->e.m->spec;
    sw_scope_push(b->e.g, "attention");
    const sw_value a = drop(b, attend(b, h));
    sw_scope_pop(b->e.g);
    h = sw_encoder_norm(&b->e, sw_name_in_layer(&b->e.names, "attention.output.LayerNorm"),
                        sw_add(b->e.g, h, a));
    sw_scope_push(b->e.g, "mlp");
    const sw_value x =
        sw_act(b->e.g, sw_encoder_columns(&b->e, "intermediate.dense", h, s->inner, 1), s->act);
    const sw_value f = drop(b, sw_encoder_rows(&b->e, "output.dense", x, s->inner, 1));
    sw_scope_pop(b->e.g);
    return sw_encoder_norm(&b->e, sw_name_in_layer(&b->e.names, "output.LayerNorm"),
                           sw_add(b->e.g, h, f));
}

/* A convolution over the embedding's tokens, added to the output of the first layer. */
static sw_value convolve(struct build *b, sw_value embedded, sw_value h)
{
    const struct sw_encoder_spec *s = &b->e.m->spec;
    const int64_t width = b->e.m->super.width, n = s->distances.window;
    const struct sw_window window = {.kernel = {1, n}, .padding = {0, (n - 1) / 2}};
    const struct sw_init init = {SW_INIT_NORMAL, s->init_range};
    sw_scope_push(b->e.g, "conv");
    const sw_value weight =
        sw_param(b->e.g, "deberta.encoder.conv.conv.weight", SW_SHAPE(width, width, n), init);
    const sw_value bias = sw_param(b->e.g, "deberta.encoder.conv.conv.bias", SW_SHAPE(width),
                                   (struct sw_init){SW_INIT_ZERO, 0});
    const sw_value seen = sw_im2col(b->e.g, sw_transpose(b->e.g, embedded, 1, 2), &window);
    sw_value x = sw_linear(b->e.g, seen, sw_reshape(b->e.g, weight, SW_SHAPE(width, width * n)),
                           bias, false);
    x = sw_act(b->e.g, drop(b, sw_mask_rows(b->e.g, x, b->e.mask)), s->distances.window_act);
    x = sw_encoder_norm(&b->e, "deberta.encoder.conv.LayerNorm", sw_add(b->e.g, h, x));
    sw_scope_pop(b->e.g);
    return sw_mask_rows(b->e.g, x, b->e.mask);
}

/* ---- the whole ---- */

static sw_value embed(struct build *b, sw_value table, sw_value ids)
{
    const struct sw_encoder_spec *s = &b->e.m->spec;
    const struct sw_model *m = &b->e.m->super;
    sw_value h = sw_embedding(b->e.g, table, ids, s->padding_id);
    if (s->distances.adds_positions) {
        const sw_value rows = sw_nn_table(b->e.g, "deberta.embeddings.position_embeddings",
                                          m->max_tokens, m->width, s->init_range);
        const sw_value places = sw_model_input(b->e.g, m, b->e.spec, "positions");
        h = sw_add(b->e.g, h, sw_embedding(b->e.g, rows, places, -1));
    }
    if (s->types > 0) {
        const sw_value rows = sw_nn_table(b->e.g, "deberta.embeddings.token_type_embeddings",
                                          s->types, m->width, s->init_range);
        const sw_value types = sw_model_input(b->e.g, m, b->e.spec, "token_type_ids");
        h = sw_add(b->e.g, h, sw_embedding(b->e.g, rows, types, -1));
    }
    h = sw_encoder_norm(&b->e, "deberta.embeddings.LayerNorm", h);
    return drop(b, sw_mask_rows(b->e.g, h, b->e.mask));
}

static sw_value layers(struct build *b, sw_value embedded)
{
    sw_value h = embedded;
    for (b->e.names.layer = 0; b->e.names.layer < b->e.m->super.layers; b->e.names.layer++) {
        sw_model_begin_layer(b->e.g, b->e.spec, &b->e.names, h);
        h = layer(b, h);
        sw_scope_pop(b->e.g);
        if (b->e.names.layer == 0 && b->e.m->spec.distances.window > 0) {
            h = convolve(b, embedded, h);
        }
    }
    sw_model_name_hidden(b->e.g, b->e.spec, b->e.names.layer, h);
    return h;
}

static void forward(const struct sw_model *model, sw_graph *g, const struct sw_forward_spec *spec,
                    sw_value *out_loss)
{
    struct build b = {
        .e = {.m = SW_CONTAINER(model, struct sw_encoder, super), .g = g, .spec = spec}};
    b.e.names = (struct sw_layer_names){.trunk = "deberta", .layers = "encoder.layer"};
    const struct sw_encoder_distances *d = &b.e.m->spec.distances;
    if (spec->is_packed) {
        sw_graph_fail(g, SW_E_UNSUP, "%s: spillway.packing is not built in this version for it",
                      model->ops->model_type);
    }
    const sw_value ids = sw_model_input(g, model, spec, "input_ids");
    b.e.mask = sw_model_input(g, model, spec, "attention_mask");
    b.padding = sw_not_equal(g, b.e.mask, 1);
    b.all = sw_not_equal(g, b.e.mask, -1); /* no mask entry equals -1: all ones */
    sw_scope_push(g, "deberta");
    const sw_value table = sw_nn_vocabulary(g, "deberta.embeddings.word_embeddings", model->vocab,
                                            model->width, b.e.m->spec.init_range);
    if (d->with_keys || d->with_queries) {
        b.table = distance_table(&b);
        b.index = distances(&b);
    }
    const sw_value h = layers(&b, embed(&b, table, ids));
    sw_scope_pop(g);
    *out_loss = sw_encoder_head(b.e.m, g, spec, h, table);
}

/* ---- config.json ---- */

/* Searches a list of words, or one string of words separated by |, in either case. */
static bool has_word(const struct sw_json *words, const char *word)
{
    const size_t len = strlen(word);
    if (words && words->type == SW_JSON_ARRAY) {
        for (const struct sw_json *i = words->first; i; i = i->next) {
            if (i->type == SW_JSON_STRING && strcmp(i->string, word) == 0) {
                return true;
            }
        }
        return false;
    }
    const char *at = words && words->type == SW_JSON_STRING ? words->string : "";
    for (size_t n = 0; *at; at += n) {
        at += strspn(at, " |");
        n = strcspn(at, " |");
        if (n == len && strncasecmp(at, word, len) == 0) {
            return true;
        }
    }
    return false;
}

static sw_status read_distances(struct sw_json_doc *doc, const struct sw_json *config,
                                struct sw_encoder *m)
{
    struct sw_encoder_distances *d = &m->spec.distances;
    const struct sw_json *terms = sw_json_get(config, "pos_att_type");
    bool relative = false;
    SW_TRY(sw_json_get_bool(doc, config, "relative_attention", false, &relative));
    SW_TRY(sw_json_get_bool(doc, config, "position_biased_input", true, &d->adds_positions));
    SW_TRY(sw_json_get_bool(doc, config, "share_att_key", false, &d->is_shared));
    SW_TRY(sw_json_get_i64(doc, config, "position_buckets", -1, &d->buckets));
    SW_TRY(sw_json_get_i64(doc, config, "max_relative_positions", -1, &d->places));
    d->places = d->places < 1 ? m->super.max_tokens : d->places;
    d->buckets = d->buckets < 1 ? 0 : d->buckets;
    d->span = d->buckets > 0 ? d->buckets : d->places;
    d->terms = 1 + has_word(terms, "c2p") + has_word(terms, "p2c");
    d->with_keys = relative && has_word(terms, "c2p");
    d->with_queries = relative && has_word(terms, "p2c");
    d->is_normed = has_word(sw_json_get(config, "norm_rel_ebd"), "layer_norm");
    if (d->span > INT32_MAX / 4 || d->places > INT32_MAX || d->buckets == 1 || d->buckets == 2 ||
        (d->buckets > 0 && d->places - 1 <= d->buckets / 2)) {
        return SW_FAIL(
            SW_E_FORMAT,
            "%s: position_buckets %lld, max_relative_positions %lld; wanted 3 buckets or "
            "more, and more than half as many positions",
            sw_json_name(doc), (long long)d->buckets, (long long)d->places);
    }
    return SW_OK;
}

static sw_status read_window(struct sw_json_doc *doc, const struct sw_json *config,
                             struct sw_encoder *m)
{
    struct sw_encoder_distances *d = &m->spec.distances;
    int64_t groups = 1;
    SW_TRY(sw_json_get_i64(doc, config, "conv_kernel_size", 0, &d->window));
    SW_TRY(sw_json_get_i64(doc, config, "conv_groups", 1, &groups));
    SW_TRY(sw_model_read_act(doc, config, "conv_act", "tanh", &d->window_act));
    if (d->window < 0 || d->window > 1024 || (d->window > 0 && d->window % 2 == 0) || groups != 1) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: conv_kernel_size %lld, conv_groups %lld are not built in this version "
                       "(it has: an odd size up to 1024, 1 group)",
                       sw_json_name(doc), (long long)d->window, (long long)groups);
    }
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_encoder *encoder)
{
    struct sw_encoder_spec *s = &encoder->spec;
    const struct sw_model *m = &encoder->super;
    static const char *const widths[] = {"embedding_size", "pooler_hidden_size"};
    int64_t head = m->width / s->heads;
    bool legacy = true;
    SW_TRY(read_distances(doc, config, encoder));
    SW_TRY(read_window(doc, config, encoder));
    SW_TRY(sw_json_get_i64(doc, config, "type_vocab_size", 0, &s->types));
    SW_TRY(sw_model_read_act(doc, config, "hidden_act", "gelu", &s->act));
    SW_TRY(sw_model_read_act(doc, config, "pooler_hidden_act", "gelu", &s->pool_act));
    SW_TRY(sw_model_read_amount(doc, config, "layer_norm_eps", 1e-7, &s->eps));
    SW_TRY(sw_model_read_amount(doc, config, "initializer_range", 0.02, &s->init_range));
    SW_TRY(sw_model_read_dropout(doc, config, "hidden_dropout_prob", 0.1, &s->hidden_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "attention_probs_dropout_prob", 0.1,
                                 &s->attention_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "pooler_dropout", 0, &s->pool_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "cls_dropout", s->hidden_dropout,
                                 &s->classifier_dropout));
    SW_TRY(sw_json_get_bool(doc, config, "legacy", true, &legacy));
    encoder->super.tied |= !legacy; /* the newer head has no table of its own */
    s->tokens_dropout = s->hidden_dropout;
    s->mask_act = s->act;
    if (s->types < 0 || s->types > INT32_MAX) {
        return SW_FAIL(SW_E_FORMAT, "%s: type_vocab_size is %lld; wanted 0 or more",
                       sw_json_name(doc), (long long)s->types);
    }
    for (size_t i = 0; i < SW_LEN(widths); i++) {
        int64_t width = m->width;
        SW_TRY(sw_json_get_i64(doc, config, widths[i], m->width, &width));
        if (width != m->width) {
            return SW_FAIL(SW_E_UNSUP, "%s: %s %lld is not built in this version (it has: %lld)",
                           sw_json_name(doc), widths[i], (long long)width, (long long)m->width);
        }
    }
    SW_TRY(sw_json_get_i64(doc, config, "attention_head_size", head, &head));
    if (head != m->width / s->heads) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: attention_head_size %lld is not built in this version (it has: %lld)",
                       sw_json_name(doc), (long long)head, (long long)(m->width / s->heads));
    }
    return SW_OK;
}

/* Stored buffers, and an unused head. */
static const char *const ignored[] = {"*embeddings.position_ids", "*mask_predictions.*", NULL};

/* Also ignores the distance parameters if the model uses no distances. */
static bool ignores(const struct sw_model *model, const char *file_name)
{
    const struct sw_encoder_distances *d =
        &SW_CONTAINER(model, struct sw_encoder, super)->spec.distances;
    const bool counts = d->with_keys || d->with_queries;
    return sw_encoder_ignores(model, file_name) ||
           (!counts && (sw_glob_match("*encoder.LayerNorm.*", file_name) ||
                        sw_glob_match("*encoder.rel_embeddings.weight", file_name)));
}

/* Microsoft's files use these names. */
static const char *const aliases[] = {"cls.predictions.bias",
                                      "cls.predictions.decoder.bias",
                                      "cls.predictions.decoder.bias",
                                      "cls.predictions.bias",
                                      "cls.predictions.bias",
                                      "lm_predictions.lm_head.bias",
                                      "cls.predictions.transform.dense.weight",
                                      "lm_predictions.lm_head.dense.weight",
                                      "cls.predictions.transform.dense.bias",
                                      "lm_predictions.lm_head.dense.bias",
                                      "cls.predictions.transform.LayerNorm.weight",
                                      "lm_predictions.lm_head.LayerNorm.weight",
                                      "cls.predictions.transform.LayerNorm.bias",
                                      "lm_predictions.lm_head.LayerNorm.bias",
                                      NULL};

const struct sw_encoder_family sw_family_deberta = {
    .ops = {.model_type = "deberta-v2",
            .bytes = sizeof(struct sw_encoder),
            .read = sw_encoder_read,
            .forward = forward,
            .alias = sw_encoder_alias,
            .ignores = ignores,
            .classes = {{"DebertaV2ForMaskedLM", "masked"},
                        {"DebertaV2ForSequenceClassification", "classify"},
                        {"DebertaV2ForTokenClassification", "tokens"},
                        {"DebertaV2ForQuestionAnswering", "answers"},
                        {"DebertaV2Model", "embed"}},
            .sizes = {[SW_SIZE_WIDTH] = {"hidden_size", NULL, 1536},
                      [SW_SIZE_LAYERS] = {"num_hidden_layers", NULL, 24},
                      [SW_SIZE_HEADS] = {"num_attention_heads", NULL, 24},
                      [SW_SIZE_INNER] = {"intermediate_size", NULL, 6144},
                      [SW_SIZE_VOCAB] = {"vocab_size", NULL, 128100},
                      [SW_SIZE_TOKENS] = {"max_position_embeddings", NULL, 512}}},
    .names = {.trunk = "deberta",
              .embedding = "embeddings.word_embeddings",
              .pool = "pooler.dense",
              SW_BERT_HEADS},
    .ignored = ignored,
    .aliases = aliases,
    .read = read,
};
