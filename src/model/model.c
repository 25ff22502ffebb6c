// SPDX-License-Identifier: Apache-2.0
// The registry of model families, the presets, and what their config.json readers share.
#include "model/model.h"

#include <stdio.h>
#include <string.h>

static const struct sw_model_ops *const families[] = {&sw_model_gpt2};

sw_status sw_model_open(struct sw_json_doc *doc, struct sw_model **out)
{
    const struct sw_json *config = sw_json_root(doc);
    const char *type = NULL;
    SW_TRY(sw_json_get_str(doc, config, "model_type", NULL, &type));
    if (!type) {
        return SW_FAIL(SW_E_FORMAT, "%s: model_type is missing", sw_json_name(doc));
    }
    for (size_t i = 0; i < SW_LEN(families); i++) {
        if (strcmp(families[i]->model_type, type) == 0) {
            return families[i]->open(doc, config, out);
        }
    }
    return SW_FAIL(SW_E_UNSUP, "%s: model_type \"%s\" is not built in this version (it has: gpt2)",
                   sw_json_name(doc), type);
}

void sw_model_close(struct sw_model *model)
{
    if (model) {
        model->ops->close(model);
    }
}

/* ---- presets ---- */

struct preset {
    const char *name;
    int64_t layers, width, heads, vocab, max_tokens;
    double dropout;
};

/* Sizes of GPT-2 as published; the tiny one learns letters in seconds, with dropout left out as is
 * usual for so few steps. */
static const struct preset presets[] = {
    {"gpt2-tiny", 4, 128, 4, 256, 64, 0.0},          {"gpt2", 12, 768, 12, 50257, 1024, 0.1},
    {"gpt2-medium", 24, 1024, 16, 50257, 1024, 0.1}, {"gpt2-large", 36, 1280, 20, 50257, 1024, 0.1},
    {"gpt2-xl", 48, 1600, 25, 50257, 1024, 0.1},
};

static const struct preset *find_preset(const char *name)
{
    for (size_t i = 0; i < SW_LEN(presets); i++) {
        if (strcmp(presets[i].name, name) == 0) {
            return &presets[i];
        }
    }
    return NULL;
}

bool sw_model_is_preset(const char *name)
{
    return find_preset(name) != NULL;
}

sw_status sw_model_preset(const char *name, int64_t vocab, int64_t max_tokens,
                          struct sw_json_doc **out)
{
    const struct preset *preset = find_preset(name);
    if (!preset) {
        struct sw_str known = {0};
        for (size_t i = 0; i < SW_LEN(presets); i++) {
            sw_str_printf(&known, "%s%s", i ? ", " : "", presets[i].name);
        }
        const sw_status st =
            SW_FAIL(SW_E_CONFIG, "no preset \"%s\"; there are %s", name, sw_str_text(&known));
        sw_str_fini(&known);
        return st;
    }
    const int64_t v = vocab > 0 ? vocab : preset->vocab;
    struct sw_str text = {0};
    sw_str_printf(&text,
                  "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],"
                  "\"activation_function\":\"gelu_new\",\"vocab_size\":%lld,\"n_positions\":%lld,"
                  "\"n_embd\":%lld,\"n_layer\":%lld,\"n_head\":%lld,\"n_inner\":null,"
                  "\"embd_pdrop\":%g,\"attn_pdrop\":%g,\"resid_pdrop\":%g,"
                  "\"layer_norm_epsilon\":1e-05,\"initializer_range\":0.02,"
                  "\"scale_attn_weights\":true,\"tie_word_embeddings\":true",
                  (long long)v, (long long)(max_tokens > 0 ? max_tokens : preset->max_tokens),
                  (long long)preset->width, (long long)preset->layers, (long long)preset->heads,
                  preset->dropout, preset->dropout, preset->dropout);
    /* GPT-2's own vocabulary has one special token, its last. Left out, it would be that one for
     * any. */
    const char *special = v == 50257 ? "50256" : "null";
    sw_str_printf(&text, ",\"bos_token_id\":%s,\"eos_token_id\":%s}", special, special);
    const sw_status st =
        text.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a preset")
                    : sw_json_parse(name, sw_str_text(&text), text.len, SW_JSON_STRICT, out);
    sw_str_fini(&text);
    return st;
}

/* ---- shared reading ---- */

sw_status sw_model_read_act(const struct sw_json_doc *doc, const struct sw_json *config,
                            const char *key, const char *fallback, enum sw_act *out)
{
    static const struct {
        const char *name;
        enum sw_act act;
    } names[] = {
        {"gelu", SW_ACT_GELU},           {"gelu_new", SW_ACT_GELU_TANH},
        {"gelu_fast", SW_ACT_GELU_TANH}, {"gelu_pytorch_tanh", SW_ACT_GELU_TANH},
        {"relu", SW_ACT_RELU},           {"silu", SW_ACT_SILU},
        {"swish", SW_ACT_SILU},          {"tanh", SW_ACT_TANH},
        {"sigmoid", SW_ACT_SIGMOID},     {"quick_gelu", SW_ACT_QUICK_GELU},
        {"linear", SW_ACT_NONE},
    };
    const char *name = NULL;
    SW_TRY(sw_json_get_str(doc, config, key, fallback, &name));
    for (size_t i = 0; i < SW_LEN(names); i++) {
        if (strcmp(names[i].name, name) == 0) {
            *out = names[i].act;
            return SW_OK;
        }
    }
    return SW_FAIL(SW_E_UNSUP, "%s: %s \"%s\" is not an activation this version knows",
                   sw_json_name(doc), key, name);
}

sw_status sw_model_read_labels(const struct sw_json_doc *doc, const struct sw_json *config,
                               int64_t *out)
{
    const struct sw_json *map = sw_json_get(config, "id2label");
    int64_t labels = 2;
    SW_TRY(sw_json_get_i64(doc, config, "num_labels", 2, &labels));
    if (map && map->type == SW_JSON_OBJECT && map->n_children > 0) {
        labels = map->n_children;
    }
    if (labels < 1) {
        return SW_FAIL(SW_E_FORMAT, "%s: num_labels is %lld", sw_json_name(doc), (long long)labels);
    }
    *out = labels;
    return SW_OK;
}
