// SPDX-License-Identifier: Apache-2.0
// Reads the config.json of a decoder-only family into its specification: the keys that all of them
// share.
#include "model/decoder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- single keys ---- */

sw_status sw_decoder_read_cap(struct sw_json_doc *doc, const struct sw_json *config,
                              const char *key, double fallback, double *out)
{
    const struct sw_json *cap = sw_json_get(config, key);
    const bool none = cap && cap->type == SW_JSON_NULL;
    return sw_model_read_amount(doc, config, key, none ? 0 : fallback, out);
}

/* ---- sizes ---- */

static sw_status check_parameters(const struct sw_json_doc *doc, const struct sw_decoder *m)
{
    const double width = (double)m->super.width;
    const struct sw_experts_spec *e = &m->spec.experts;
    const double experts = 3 * width * ((double)e->n * (double)e->inner + (double)e->shared);
    const double inner =
        (m->names.gate || m->names.gate_up ? 3 : 2) * width * (double)m->spec.inner + experts +
        width * (double)e->n;
    const double heads = 2 * width * (double)(m->spec.heads + m->spec.kv_heads);
    return sw_model_check_parameters(doc, &m->super, heads * (double)m->spec.head_width + inner,
                                     m->spec.inner);
}

sw_status sw_decoder_read_kv_heads(struct sw_json_doc *doc, const struct sw_json *config,
                                   struct sw_decoder *m)
{
    static const struct sw_model_key kv = {"num_key_value_heads", NULL, 0};
    const bool absent = !sw_json_get(config, kv.key) && m->family->kv_heads > 0;
    return sw_model_read_size(doc, config, &kv, absent ? m->family->kv_heads : m->spec.heads,
                              &m->spec.kv_heads);
}

void sw_decoder_read_padding(const struct sw_json *config, int64_t fallback, struct sw_decoder *m)
{
    const bool given = sw_json_get(config, "pad_token_id") != NULL;
    m->super.pad_id = given ? sw_model_token_id(config, "pad_token_id") : fallback;
    m->spec.padding_id = sw_model_padding_row(config, &m->super, fallback);
}

/* Heads share the width if the file does not give their width. */
static sw_status resolve_head_width(const struct sw_json_doc *doc, struct sw_decoder *m)
{
    struct sw_decoder_spec *s = &m->spec;
    const struct sw_model_key *keys = m->family->ops.sizes;
    if (s->head_width == 0 && m->super.width % s->heads != 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s %lld does not divide into %s %lld heads",
                       sw_json_name(doc), keys[SW_SIZE_WIDTH].key, (long long)m->super.width,
                       keys[SW_SIZE_HEADS].key, (long long)s->heads);
    }
    s->head_width = s->head_width > 0 ? s->head_width : m->super.width / s->heads;
    return SW_OK;
}

/* Fills in what the family's reader left at 0. */
static sw_status resolve_heads(const struct sw_json_doc *doc, struct sw_decoder *m)
{
    struct sw_decoder_spec *s = &m->spec;
    const struct sw_model_key *keys = m->family->ops.sizes;
    SW_TRY(resolve_head_width(doc, m));
    s->kv_heads = s->kv_heads > 0 ? s->kv_heads : s->heads;
    s->score_scale = s->score_scale > 0 ? s->score_scale : 1 / sqrt((double)s->head_width);
    s->proj_range = s->proj_range > 0 ? s->proj_range : s->init_range;
    if (s->heads % s->kv_heads != 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s %lld does not divide into num_key_value_heads %lld",
                       sw_json_name(doc), keys[SW_SIZE_HEADS].key, (long long)s->heads,
                       (long long)s->kv_heads);
    }
    return check_parameters(doc, m);
}

/* ---- heads of the model ---- */

static void name_heads(struct sw_decoder *m)
{
    struct sw_model *model = &m->super;
    const bool causal = sw_model_is_causal(model);
    snprintf(m->embedding, sizeof m->embedding, "%s.%s.weight", m->names.trunk, m->names.embedding);
    snprintf(m->head, sizeof m->head, "%s.weight", m->names.head);
    model->trunk = m->names.trunk;
    model->embedding_name = m->embedding;
    model->lm_head_name = m->head;
    model->head_name = causal && !model->tied ? m->head : NULL;
    model->head_module = !causal ? "score" : model->tied ? NULL : m->names.head;
}

/* A classifier finds the last token of a row by its padding, so without a usable id the requested
 * one counts. The row of the embedding that gets no gradient stays as config.json says. */
static void take_padding(const struct sw_model_options *options, struct sw_model *model)
{
    const bool usable = model->pad_id >= 0 && model->pad_id < model->vocab;
    if (options && options->has_pad_id && !usable && !sw_model_is_causal(model)) {
        model->pad_id = options->pad_id;
        model->has_other_pad = true;
    }
}

/* ---- open ---- */

sw_status sw_decoder_read(struct sw_json_doc *doc, const struct sw_json *config,
                          const struct sw_model_options *options, struct sw_model *model)
{
    struct sw_decoder *m = SW_CONTAINER(model, struct sw_decoder, super);
    m->family = SW_CONTAINER(model->ops, struct sw_decoder_family, ops);
    m->names = m->family->names;
    m->spec.padding_id = -1;
    SW_TRY(sw_model_read_sizes(doc, config, &m->super, &m->spec.heads, &m->spec.inner));
    m->table_width = m->super.width;
    SW_TRY(sw_json_get_bool(doc, config, "tie_word_embeddings", m->family->tied, &m->super.tied));
    m->super.pad_id = sw_model_token_id(config, "pad_token_id");
    m->super.eos_id = sw_model_token_id(config, "eos_token_id");
    SW_TRY(m->family->read(doc, config, m));
    SW_TRY(resolve_heads(doc, m));
    SW_TRY(sw_model_read_task(m->super.ops, doc, config, options, &m->super));
    take_padding(options, &m->super);
    name_heads(m);
    return SW_OK;
}

void sw_decoder_release(struct sw_model *model)
{
    struct sw_decoder *m = SW_CONTAINER(model, struct sw_decoder, super);
    sw_free((void *)(uintptr_t)m->spec.is_windowed);
    sw_free((void *)(uintptr_t)m->spec.is_rotated);
    sw_free((void *)(uintptr_t)m->spec.rotary.factors);
    sw_free((void *)(uintptr_t)m->spec.local.factors);
    sw_free((void *)(uintptr_t)m->spec.experts.is_dense);
}

/* ---- windows ---- */

sw_status sw_decoder_read_window(struct sw_json_doc *doc, const struct sw_json *config,
                                 int64_t fallback, struct sw_decoder *m)
{
    const struct sw_json *window = sw_json_get(config, "sliding_window");
    if (window && window->type == SW_JSON_NULL) {
        m->spec.window = 0;
        return SW_OK;
    }
    SW_TRY(sw_json_get_i64(doc, config, "sliding_window", fallback, &m->spec.window));
    return m->spec.window == 0 ? SW_OK : sw_model_check_size(doc, "sliding_window", m->spec.window);
}

sw_status sw_decoder_read_windows(struct sw_json_doc *doc, const struct sw_json *config,
                                  bool (*is_windowed)(int64_t layer, int64_t from), int64_t from,
                                  struct sw_decoder *m)
{
    const struct sw_json *types = sw_json_get(config, "layer_types");
    bool *windowed = sw_alloc_zero("model", (size_t)m->super.layers, sizeof *windowed);
    SW_TRY_ALLOC(windowed, "the layers' windows");
    m->spec.is_windowed = windowed;
    if (!types || types->type == SW_JSON_NULL) {
        for (int64_t i = 0; i < m->super.layers; i++) {
            windowed[i] = is_windowed(i, from);
        }
        return SW_OK;
    }
    if (types->type != SW_JSON_ARRAY || types->n_children != m->super.layers) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d:%d: layer_types: wanted a list of %lld, one a layer",
                       sw_json_name(doc), types->line, types->column, (long long)m->super.layers);
    }
    int64_t i = 0;
    for (const struct sw_json *type = types->first; type; type = type->next, i++) {
        const char *name = type->type == SW_JSON_STRING ? type->string : "";
        windowed[i] = strcmp(name, "sliding_attention") == 0;
        if (!windowed[i] && strcmp(name, "full_attention") != 0) {
            return SW_FAIL(SW_E_UNSUP,
                           "%s:%d:%d: layer_types[%lld] \"%s\" is not built in this version (it "
                           "has: full_attention, sliding_attention)",
                           sw_json_name(doc), type->line, type->column, (long long)i, name);
        }
    }
    return SW_OK;
}

/* ---- rotary positions ---- */

static sw_status read_kind(struct sw_json_doc *doc, const struct sw_json *rope,
                           struct sw_decoder *m)
{
    static const struct {
        const char *name;
        enum sw_rotary_kind kind;
    } kinds[] = {{"default", SW_ROTARY_DEFAULT}, {"dynamic", SW_ROTARY_DYNAMIC},
                 {"linear", SW_ROTARY_LINEAR},   {"llama3", SW_ROTARY_LLAMA3},
                 {"yarn", SW_ROTARY_YARN},       {"longrope", SW_ROTARY_LONGROPE}};
    const char *old = NULL, *name = NULL;
    SW_TRY(sw_json_get_str(doc, rope, "type", "default", &old));
    SW_TRY(sw_json_get_str(doc, rope, "rope_type", old, &name));
    /* names of the first files of Phi-3 */
    if (sw_json_get(rope, "short_factor") &&
        (strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0)) {
        name = "longrope";
    }
    for (size_t i = 0; i < SW_LEN(kinds); i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            m->spec.rotary.kind = kinds[i].kind;
            return SW_OK;
        }
    }
    return SW_FAIL(SW_E_UNSUP,
                   "%s: rope_type \"%s\" is not built in this version (it has: default, dynamic, "
                   "linear, llama3, yarn, longrope)",
                   sw_json_name(doc), name);
}

/* 0.1 weight ln s + 1: the factor of queries and of keys for a text s times as long, so that scores
 * get its square. */
static double yarn_scale(double s, double weight)
{
    return s > 1 ? 0.1 * weight * log(s) + 1 : 1;
}

/* Reads the parameters of YaRN. attention_factor, if absent, follows from mscale and
 * mscale_all_dim, or else from the factor alone. A beta of 0 means its default, as in
 * transformers. */
static sw_status read_yarn(struct sw_json_doc *doc, const struct sw_json *rope,
                           struct sw_decoder *m)
{
    struct sw_rotary_spec *r = &m->spec.rotary;
    double mscale = 0, all = 0;
    bool truncate = true;
    r->factor = r->factor > 0 ? r->factor : (double)m->super.max_tokens / r->original_tokens;
    SW_TRY(sw_model_read_amount(doc, rope, "beta_fast", 32, &r->beta_fast));
    SW_TRY(sw_model_read_amount(doc, rope, "beta_slow", 1, &r->beta_slow));
    SW_TRY(sw_model_read_amount(doc, rope, "mscale", 0, &mscale));
    SW_TRY(sw_model_read_amount(doc, rope, "mscale_all_dim", 0, &all));
    SW_TRY(sw_json_get_bool(doc, rope, "truncate", true, &truncate));
    r->beta_fast = r->beta_fast > 0 ? r->beta_fast : 32;
    r->beta_slow = r->beta_slow > 0 ? r->beta_slow : 1;
    r->keeps_fractions = !truncate;
    const double otherwise = mscale > 0 && all > 0
                                 ? yarn_scale(r->factor, mscale) / yarn_scale(r->factor, all)
                                 : yarn_scale(r->factor, 1);
    return sw_model_read_amount(doc, rope, "attention_factor", otherwise, &r->attention_factor);
}

/* Reads a factor for each frequency. */
static sw_status read_factors(const struct sw_json_doc *doc, const struct sw_json *rope,
                              const char *key, int64_t n, float *out)
{
    const struct sw_json *list = sw_json_get(rope, key);
    if (!list || list->type != SW_JSON_ARRAY || list->n_children != n) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s of the rotary scaling: wanted a list of %lld numbers",
                       sw_json_name(doc), key, (long long)n);
    }
    for (const struct sw_json *i = list->first; i; i = i->next) {
        const bool is_number = i->type == SW_JSON_INT || i->type == SW_JSON_FLOAT;
        if (!is_number || !(i->number > 0)) {
            return SW_FAIL(SW_E_FORMAT, "%s:%d:%d: %s: wanted numbers above 0", sw_json_name(doc),
                           i->line, i->column, key);
        }
        *out++ = (float)i->number;
    }
    return SW_OK;
}

static sw_status read_longrope(struct sw_json_doc *doc, const struct sw_json *rope,
                               struct sw_decoder *m)
{
    struct sw_rotary_spec *r = &m->spec.rotary;
    const int64_t n = r->width / 2;
    float *factors = sw_alloc("model", (size_t)(2 * n) * sizeof *factors);
    SW_TRY_ALLOC(factors, "factors of the rotary scaling");
    r->factors = factors;
    SW_TRY(read_factors(doc, rope, "short_factor", n, factors));
    SW_TRY(read_factors(doc, rope, "long_factor", n, factors + n));
    const double factor =
        r->factor > 0 ? r->factor : (double)m->super.max_tokens / r->original_tokens;
    const double otherwise = factor > 1 ? sqrt(1 + log(factor) / log(r->original_tokens)) : 1;
    return sw_model_read_amount(doc, rope, "attention_factor", otherwise, &r->attention_factor);
}

static sw_status read_scaling(struct sw_json_doc *doc, const struct sw_json *rope,
                              const struct sw_json *config, struct sw_decoder *m)
{
    struct sw_rotary_spec *r = &m->spec.rotary;
    static const char original[] = "original_max_position_embeddings";
    double tokens = r->original_tokens;
    if (!(tokens > 0)) {
        SW_TRY(sw_model_read_amount(doc, rope, original, (double)m->super.max_tokens, &tokens));
    }
    SW_TRY(sw_model_read_amount(doc, config, original, tokens, &r->original_tokens));
    SW_TRY(sw_model_read_amount(doc, rope, "factor", 0, &r->factor));
    SW_TRY(sw_model_read_amount(doc, rope, "low_freq_factor", 1, &r->low));
    SW_TRY(sw_model_read_amount(doc, rope, "high_freq_factor", 4, &r->high));
    r->max_tokens = (double)m->super.max_tokens;
    m->super.is_endless = r->kind == SW_ROTARY_DYNAMIC;
    const bool scales =
        r->kind == SW_ROTARY_LINEAR || r->kind == SW_ROTARY_LLAMA3 || r->kind == SW_ROTARY_DYNAMIC;
    if (scales && !(r->factor > 0)) {
        return SW_FAIL(SW_E_FORMAT, "%s: factor of the rotary scaling is %g; wanted more than 0",
                       sw_json_name(doc), r->factor);
    }
    if (r->kind == SW_ROTARY_LLAMA3 && !(r->low > 0 && r->high > r->low)) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: low_freq_factor %g, high_freq_factor %g; wanted 0 < low < high",
                       sw_json_name(doc), r->low, r->high);
    }
    if (r->kind != SW_ROTARY_YARN && r->kind != SW_ROTARY_LONGROPE) {
        return SW_OK;
    }
    if (!(r->original_tokens > 0)) {
        return SW_FAIL(SW_E_FORMAT, "%s: original_max_position_embeddings is 0; wanted more than 0",
                       sw_json_name(doc));
    }
    return r->kind == SW_ROTARY_YARN ? read_yarn(doc, rope, m) : read_longrope(doc, rope, m);
}

/* Finds rope_scaling, which takes precedence over transformers 5's key; *out is NULL if neither is
 * set. */
static sw_status find_rope(const struct sw_json_doc *doc, const struct sw_json *config,
                           const struct sw_json **out)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    *out = NULL;
    for (size_t i = 0; i < SW_LEN(keys) && !*out; i++) {
        const struct sw_json *rope = sw_json_get(config, keys[i]);
        if (rope && rope->type != SW_JSON_OBJECT && rope->type != SW_JSON_NULL) {
            return SW_FAIL(SW_E_FORMAT, "%s:%d:%d: %s: wanted an object", sw_json_name(doc),
                           rope->line, rope->column, rope->key);
        }
        *out = rope && rope->n_children > 0 ? rope : NULL;
    }
    return SW_OK;
}

/* A share of a head may give an odd number of columns. Frequencies then use that number, and one
 * more column is rotated. As in transformers, a family that does not read the share ignores it,
 * unless rotary positions are scaled: that model does not run. */
static sw_status read_share(const struct sw_json_doc *doc, double share, struct sw_decoder *m)
{
    struct sw_rotary_spec *r = &m->spec.rotary;
    const int64_t head = m->spec.head_width;
    const bool all = !m->family->rotates_part && r->kind == SW_ROTARY_DEFAULT;
    const bool valid = share > 0 && share <= 1;
    const int64_t width = all ? head : valid ? (int64_t)((double)head * share) : 0;
    if (!m->family->rotates_part && width != head) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: partial_rotary_factor %g with a scaling of rotary positions is not "
                       "built in this version for %s (it has: 1)",
                       sw_json_name(doc), share, m->family->ops.model_type);
    }
    r->is_odd = width % 2 != 0;
    r->width = width + r->is_odd;
    if (width < 1 || r->width > head) {
        return SW_FAIL(
            SW_E_FORMAT,
            "%s: rotary positions rotate %lld of %lld columns of a head; wanted at least one, "
            "and an even number if all rotate",
            sw_json_name(doc), (long long)width, (long long)head);
    }
    return SW_OK;
}

sw_status sw_decoder_read_rope(struct sw_json_doc *doc, const struct sw_json *config,
                               const struct sw_json *rope, double theta, double share,
                               struct sw_decoder *m)
{
    struct sw_rotary_spec *r = &m->spec.rotary;
    SW_TRY(resolve_head_width(doc, m));
    m->spec.positions = SW_POSITION_ROTARY;
    SW_TRY(sw_json_get_f64(doc, rope, "rope_theta", theta, &r->theta));
    SW_TRY(sw_json_get_f64(doc, rope, "partial_rotary_factor", share, &share));
    if (!(r->theta > 1)) {
        return SW_FAIL(SW_E_FORMAT, "%s: rope_theta is %g; wanted more than 1", sw_json_name(doc),
                       r->theta);
    }
    SW_TRY(read_kind(doc, rope, m));
    SW_TRY(read_share(doc, share, m));
    return read_scaling(doc, rope, config, m);
}

/* The family's own rope_parameters, if config.json has neither key. */
static sw_status open_own_rope(const struct sw_json_doc *doc, const struct sw_json *config,
                               const struct sw_decoder_family *family, struct sw_json_doc **out)
{
    const struct sw_json *given = sw_json_get(config, "rope_parameters");
    const char *text = family->rope_parameters;
    if (!text || (given && given->type != SW_JSON_NULL)) {
        return SW_OK;
    }
    return sw_json_parse(sw_json_name(doc), text, strlen(text), SW_JSON_STRICT, out);
}

sw_status sw_decoder_read_rotary(struct sw_json_doc *doc, const struct sw_json *config,
                                 double theta, double share, struct sw_decoder *m)
{
    const struct sw_json *rope = NULL;
    struct sw_json_doc *own = NULL;
    SW_TRY(find_rope(doc, config, &rope));
    SW_TRY(sw_json_get_f64(doc, config, "rope_theta", theta, &theta));
    SW_TRY(sw_json_get_f64(doc, config, "partial_rotary_factor", share, &share));
    if (!rope) {
        SW_TRY(open_own_rope(doc, config, m->family, &own));
        rope = own ? sw_json_root(own) : NULL;
    }
    const sw_status st = sw_decoder_read_rope(doc, config, rope, theta, share, m);
    sw_json_close(own);
    return st;
}

/* ---- LLaMA and related families ---- */

sw_status sw_decoder_read_common(struct sw_json_doc *doc, const struct sw_json *config,
                                 struct sw_decoder *m)
{
    struct sw_decoder_spec *s = &m->spec;
    const double eps = m->family->rms_norm_eps;
    SW_TRY(sw_model_read_act(doc, config, "hidden_act", "silu", &s->act));
    SW_TRY(sw_model_read_amount(doc, config, "rms_norm_eps", eps > 0 ? eps : 1e-6, &s->eps));
    SW_TRY(sw_model_read_amount(doc, config, "initializer_range", 0.02, &s->init_range));
    SW_TRY(sw_model_read_dropout(doc, config, "attention_dropout", 0, &s->attention_dropout));
    s->norm = SW_NORM_RMS;
    sw_decoder_read_padding(config, -1, m);
    return SW_OK;
}

sw_status sw_decoder_read_llama_layers(struct sw_json_doc *doc, const struct sw_json *config,
                                       int64_t head_width, struct sw_decoder *m)
{
    struct sw_decoder_spec *s = &m->spec;
    static const struct sw_model_key head = {"head_dim", NULL, 0};
    const struct sw_json *given = sw_json_get(config, "head_dim");
    SW_TRY(sw_decoder_read_kv_heads(doc, config, m));
    if (head_width > 0 && given && given->type == SW_JSON_NULL) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d:%d: head_dim is null; wanted a number",
                       sw_json_name(doc), given->line, given->column);
    }
    if (head_width > 0 || (given && given->type != SW_JSON_NULL)) {
        SW_TRY(sw_model_read_size(doc, config, &head, head_width, &s->head_width));
    }
    return sw_decoder_read_common(doc, config, m);
}

sw_status sw_decoder_read_llama(struct sw_json_doc *doc, const struct sw_json *config, double theta,
                                int64_t head_width, struct sw_decoder *m)
{
    SW_TRY(sw_decoder_read_llama_layers(doc, config, head_width, m));
    return sw_decoder_read_rotary(doc, config, theta, 1, m);
}

sw_status sw_decoder_read_factor(struct sw_json_doc *doc, const struct sw_json *config,
                                 const char *key, double fallback, double *out)
{
    SW_TRY(sw_model_read_amount(doc, config, key, fallback, out));
    return *out > 0 ? SW_OK
                    : SW_FAIL(SW_E_FORMAT, "%s: %s is %g; wanted more than 0", sw_json_name(doc),
                              key, *out);
}
