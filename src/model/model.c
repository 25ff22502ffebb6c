// SPDX-License-Identifier: Apache-2.0
// The registry of model families.
#include "model/decoder.h"
#include "model/encoder.h"
#include "model/nets.h"
#include "model/seq2seq.h"

#include <stdio.h>
#include <ctype.h>
#include <string.h>

/* To add a family, add its file and a line here. */
static const struct sw_model_ops *const families[] = {
    &sw_family_gpt2.ops,       &sw_family_llama.ops,       &sw_family_mistral.ops,
    &sw_family_qwen2.ops,      &sw_family_qwen3.ops,       &sw_family_gemma.ops,
    &sw_family_gemma2.ops,     &sw_family_gemma3.ops,      &sw_family_gpt_neox.ops,
    &sw_family_opt.ops,        &sw_family_phi.ops,         &sw_family_phi3.ops,
    &sw_family_bloom.ops,      &sw_family_gptj.ops,        &sw_family_smollm3.ops,
    &sw_family_olmo2.ops,      &sw_family_granite.ops,     &sw_family_stablelm.ops,
    &sw_family_mixtral.ops,    &sw_family_qwen2_moe.ops,   &sw_family_qwen3_moe.ops,
    &sw_family_gpt_oss.ops,    &sw_family_deepseek_v3.ops, &sw_family_starcoder2.ops,
    &sw_family_cohere.ops,     &sw_family_glm4.ops,        &sw_family_bert.ops,
    &sw_family_roberta.ops,    &sw_family_xlm_roberta.ops, &sw_family_camembert.ops,
    &sw_family_distilbert.ops, &sw_family_deberta.ops,     &sw_family_electra.ops,
    &sw_family_albert.ops,     &sw_family_mpnet.ops,       &sw_family_bart.ops,
    &sw_family_mbart.ops,      &sw_family_pegasus.ops,     &sw_family_marian.ops,
    &sw_family_t5.ops,         &sw_family_mt5.ops,         &sw_family_vit.ops,
    &sw_family_deit.ops,       &sw_family_dinov2.ops,      &sw_family_modernbert,
    &sw_family_cifar_net,      &sw_family_bi_lstm,         &sw_family_falcon.ops,
};

const struct sw_model_ops *sw_model_family(const char *type)
{
    for (size_t i = 0; i < SW_LEN(families); i++) {
        if (strcmp(families[i]->model_type, type) == 0) {
            return families[i];
        }
    }
    return NULL;
}

/* For unsupported families, the supported one that resembles them most. */
static const struct {
    const char *relative, *types[16];
} relatives[] = {
    {"bart", {"m2m_100", "blenderbot", "bigbird_pegasus", "plbart"}},
    {"bert", {"convbert", "ernie", "flaubert", "mobilebert"}},
    {"bloom", {"mpt"}},
    {"deberta-v2", {"deberta"}},
    {"gemma3_text", {"gemma3", "gemma3n_text"}},
    {"gpt2", {"gpt_bigcode", "gpt_neo", "openai-gpt"}},
    {"falcon", {"RefinedWeb", "RefinedWebModel"}},
    {"gptj", {"codegen"}},
    {"llama", {"olmo"}},
    {"mistral", {"ministral"}},
    {"opt", {"xglm"}},
    {"roberta", {"data2vec-text", "ibert", "xlm-roberta-xl"}},
    {"t5", {"longt5", "switch_transformers", "umt5"}},
    {"vit", {"beit"}},
    {"dinov2", {"dinov2_with_registers", "dinov3_vit"}},
};

/* The built family that a type resembles: a relative, the one whose name it begins with
 * (qwen3_next), or the nearest name; NULL: none. */
static const char *relative_of(const char *type)
{
    const char *names[SW_LEN(families)], *base = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < SW_LEN(relatives); i++) {
        for (const char *const *known = relatives[i].types; *known; known++) {
            if (strcmp(*known, type) == 0) {
                return relatives[i].relative;
            }
        }
    }
    for (size_t i = 0; i < SW_LEN(families); i++) {
        const size_t len = strlen(families[i]->model_type);
        names[i] = families[i]->model_type;
        if (len > longest && strncmp(type, names[i], len) == 0 &&
            !isalpha((unsigned char)type[len])) {
            longest = len;
            base = names[i];
        }
    }
    return base ? base : sw_nearest(type, names, SW_LEN(names));
}

static sw_status fail_unknown(const struct sw_json_doc *doc, const char *type)
{
    const char *relative = relative_of(type);
    return SW_FAIL(SW_E_UNSUP,
                   "%s: model_type \"%s\" is not built in this version%s%s%s; docs/models.md lists "
                   "the families",
                   sw_json_name(doc), type, relative ? ", its nearest relative is \"" : "",
                   relative ? relative : "", relative ? "\"" : "");
}

static const char *text_of(const struct sw_json *object, const char *key, const char *otherwise)
{
    const struct sw_json *v = sw_json_get(object, key);
    return v && v->type == SW_JSON_STRING ? v->string : otherwise;
}

static bool is_set(const struct sw_json *object, const char *key)
{
    const struct sw_json *v = sw_json_get(object, key);
    return v && v->type == SW_JSON_BOOL && v->boolean;
}

/* NF4 and int8 of bitsandbytes are decoded when the weights are read. */
static sw_status check_quantized(const struct sw_json_doc *doc, const struct sw_json *quantized)
{
    const char *method = text_of(quantized, "quant_method", "bitsandbytes");
    const char *type = text_of(quantized, "bnb_4bit_quant_type", "fp4");
    if (strcmp(method, "bitsandbytes") == 0 &&
        (is_set(quantized, "load_in_8bit") ||
         (is_set(quantized, "load_in_4bit") && strcmp(type, "nf4") == 0))) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_UNSUP,
                   "%s:%d:%d: quantization_config: weights quantized by \"%s\"%s%s are not built "
                   "in this version; wanted bitsandbytes' nf4 or int8, or the model in bf16, f16 "
                   "or f32",
                   sw_json_name(doc), quantized->key_line, quantized->key_column, method,
                   strcmp(method, "bitsandbytes") == 0 ? " to " : "",
                   strcmp(method, "bitsandbytes") == 0 ? type : "");
}

sw_status sw_model_open(struct sw_json_doc *doc, const struct sw_model_options *options,
                        struct sw_model **out)
{
    const struct sw_json *config = sw_json_root(doc);
    const struct sw_json *quantized = sw_json_get(config, "quantization_config");
    const char *type = NULL;
    SW_TRY(sw_json_get_str(doc, config, "model_type", NULL, &type));
    if (!type) {
        return SW_FAIL(SW_E_FORMAT, "%s: model_type is missing", sw_json_name(doc));
    }
    const struct sw_model_ops *family = sw_model_family(type);
    if (!family) {
        return fail_unknown(doc, type);
    }
    if (quantized && quantized->type != SW_JSON_NULL) {
        SW_TRY(check_quantized(doc, quantized));
    }
    struct sw_model *model = sw_alloc_zero("model", 1, family->bytes);
    SW_TRY_ALLOC(model, "the model");
    model->ops = family;
    model->pad_id = model->eos_id = -1;
    const sw_status st = family->read(doc, config, options, model);
    if (st < 0) {
        sw_model_close(model);
        return st;
    }
    *out = model;
    return SW_OK;
}

void sw_model_list(struct sw_str *out)
{
    sw_str_printf(out, "%-18s  %-34s  %s\n", "model_type", "class", "presets");
    for (size_t i = 0; i < SW_LEN(families); i++) {
        sw_str_printf(out, "%-18s  %-34s ", families[i]->model_type, families[i]->classes[0].name);
        sw_model_list_presets(families[i]->model_type, out);
        sw_str_printf(out, "\n");
    }
}

void sw_model_close(struct sw_model *model)
{
    if (model && model->ops->release) {
        model->ops->release(model);
    }
    sw_free(model);
}

/* ---- shared by families ---- */

const char *sw_name_in_trunk(struct sw_layer_names *names, const char *suffix)
{
    snprintf(names->text, sizeof names->text, "%s.%s", names->trunk, suffix);
    return names->text;
}

const char *sw_name_in_layer(struct sw_layer_names *names, const char *suffix)
{
    snprintf(names->text, sizeof names->text, "%s.%s.%lld.%s", names->trunk, names->layers,
             (long long)names->layer, suffix);
    return names->text;
}

void sw_model_name_hidden(sw_graph *g, const struct sw_forward_spec *spec, int64_t i, sw_value h)
{
    if (spec->want_hidden) {
        char name[32];
        snprintf(name, sizeof name, "hidden.%lld", (long long)i);
        sw_output(g, name, h);
    }
}

void sw_model_begin_layer(sw_graph *g, const struct sw_forward_spec *spec,
                          const struct sw_layer_names *names, sw_value h)
{
    char name[48];
    snprintf(name, sizeof name, "%s.%lld", names->layers, (long long)names->layer);
    sw_model_name_hidden(g, spec, names->layer, h);
    sw_scope_push_block(g, name);
}

bool sw_model_ignores(const struct sw_model *model, const char *const *globs, const char *file_name)
{
    for (; globs && *globs; globs++) {
        if (sw_glob_match(*globs, file_name)) {
            return true;
        }
    }
    return !model->head_name && strcmp(file_name, model->lm_head_name) == 0;
}

const char *sw_model_other_name(const char *const *pairs, const char *name, int i)
{
    for (; pairs && *pairs; pairs += 2) {
        if (strcmp(pairs[0], name) == 0 && i-- == 0) {
            return pairs[1];
        }
    }
    return NULL;
}
