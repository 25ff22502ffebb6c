// SPDX-License-Identifier: Apache-2.0
// The registry of model families, and what their config.json readers share.
#include "model/decoder.h"

#include <string.h>

/* A new family is its file and a line here. */
static const struct sw_decoder_family *const families[] = {
    &sw_family_gpt2,  &sw_family_llama,  &sw_family_mistral,  &sw_family_qwen2,
    &sw_family_qwen3, &sw_family_gemma2, &sw_family_gpt_neox, &sw_family_opt,
    &sw_family_phi,   &sw_family_bloom,  &sw_family_gptj,
};

const struct sw_decoder_family *sw_decoder_family_of(const char *type)
{
    for (size_t i = 0; i < SW_LEN(families); i++) {
        if (strcmp(families[i]->ops.model_type, type) == 0) {
            return families[i];
        }
    }
    return NULL;
}

static sw_status fail_unknown(const struct sw_json_doc *doc, const char *type)
{
    struct sw_str known = {0};
    for (size_t i = 0; i < SW_LEN(families); i++) {
        sw_str_printf(&known, "%s%s", i ? ", " : "", families[i]->ops.model_type);
    }
    const sw_status st =
        SW_FAIL(SW_E_UNSUP, "%s: model_type \"%s\" is not built in this version (it has: %s)",
                sw_json_name(doc), type, sw_str_text(&known));
    sw_str_fini(&known);
    return st;
}

sw_status sw_model_open(struct sw_json_doc *doc, struct sw_model **out)
{
    const struct sw_json *config = sw_json_root(doc);
    const struct sw_json *quantized = sw_json_get(config, "quantization_config");
    const char *type = NULL;
    SW_TRY(sw_json_get_str(doc, config, "model_type", NULL, &type));
    if (!type) {
        return SW_FAIL(SW_E_FORMAT, "%s: model_type is missing", sw_json_name(doc));
    }
    const struct sw_decoder_family *family = sw_decoder_family_of(type);
    if (!family) {
        return fail_unknown(doc, type);
    }
    if (quantized && quantized->type != SW_JSON_NULL) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s:%d:%d: quantization_config: quantized weights are not built in this "
                       "version; take the model in bf16, f16 or f32",
                       sw_json_name(doc), quantized->key_line, quantized->key_column);
    }
    return family->ops.open(&family->ops, doc, config, out);
}

void sw_model_list(struct sw_str *out)
{
    sw_str_printf(out, "%-10s  %-21s  %s\n", "model_type", "class", "presets");
    for (size_t i = 0; i < SW_LEN(families); i++) {
        sw_str_printf(out, "%-10s  %-21s ", families[i]->ops.model_type, families[i]->lm_class);
        sw_model_list_presets(families[i]->ops.model_type, out);
        sw_str_printf(out, "\n");
    }
}

void sw_model_close(struct sw_model *model)
{
    if (model) {
        model->ops->close(model);
    }
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
