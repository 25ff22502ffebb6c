// SPDX-License-Identifier: Apache-2.0
// SmolLM3 (Hugging Face 2025): LLaMA in which some layers do not rotate queries and keys. Those
// have a window, if there is one.
#include "model/decoder.h"

/* no_rope_layers has a 0 for each layer that does not rotate. */
static sw_status read_rotated(struct sw_json_doc *doc, const struct sw_json *config,
                              struct sw_decoder *decoder)
{
    static const struct sw_model_key every = {"no_rope_layer_interval", NULL, 4};
    const struct sw_json *list = sw_json_get(config, "no_rope_layers");
    const int64_t n = decoder->super.layers;
    int64_t interval = 0;
    bool *rotated = sw_alloc_zero("model", (size_t)n, sizeof *rotated);
    SW_TRY_ALLOC(rotated, "the layers that rotate");
    decoder->spec.is_rotated = rotated;
    SW_TRY(sw_model_read_size(doc, config, &every, every.fallback, &interval));
    if (!list || list->type == SW_JSON_NULL) {
        for (int64_t i = 0; i < n; i++) {
            rotated[i] = (i + 1) % interval != 0;
        }
        return SW_OK;
    }
    const struct sw_json *item = list->type == SW_JSON_ARRAY ? list->first : NULL;
    for (int64_t i = 0; i < n; i++, item = item->next) {
        if (list->n_children != n || !item || item->type != SW_JSON_INT) {
            return SW_FAIL(SW_E_FORMAT,
                           "%s:%d:%d: no_rope_layers: wanted a list of %lld numbers, one a layer",
                           sw_json_name(doc), list->line, list->column, (long long)n);
        }
        rotated[i] = item->integer != 0;
    }
    return SW_OK;
}

static bool none(int64_t layer, int64_t from)
{
    (void)layer;
    (void)from;
    return false;
}

static sw_status read_windows(struct sw_json_doc *doc, const struct sw_json *config,
                              struct sw_decoder *decoder)
{
    const struct sw_json *types = sw_json_get(config, "layer_types");
    struct sw_decoder_spec *s = &decoder->spec;
    bool use = false;
    SW_TRY(sw_json_get_bool(doc, config, "use_sliding_window", false, &use));
    SW_TRY(sw_decoder_read_window(doc, config, 0, decoder));
    SW_TRY(sw_decoder_read_windows(doc, config, none, 0, decoder));
    bool *windowed = (bool *)(uintptr_t)s->is_windowed;
    for (int64_t i = 0; i < decoder->super.layers && (!types || types->type == SW_JSON_NULL); i++) {
        windowed[i] = use && !s->is_rotated[i];
    }
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    enum { PADDING = 128004 };
    struct sw_decoder_spec *s = &decoder->spec;
    bool bias = false;
    SW_TRY(sw_decoder_read_llama(doc, config, 2000000, 0, decoder));
    SW_TRY(sw_json_get_bool(doc, config, "attention_bias", false, &bias));
    SW_TRY(sw_json_get_bool(doc, config, "mlp_bias", false, &s->mlp_bias));
    sw_decoder_read_padding(config, decoder->super.vocab > PADDING ? PADDING : -1, decoder);
    s->qkv_bias = s->out_bias = bias;
    SW_TRY(read_rotated(doc, config, decoder));
    return read_windows(doc, config, decoder);
}

const struct sw_decoder_family sw_family_smollm3 = {
    SW_DECODER_OPS("smollm3"),
    .ops.classes = SW_DECODER_CLASSES("SmolLM3ForCausalLM", "SmolLM3ForSequenceClassification",
                                      "SmolLM3Model"),
    .ops.sizes = SW_LLAMA_SIZES(2048, 36, 16, 11008, 128256, 32768),
    .names = SW_LLAMA_NAMES,
    .tied = true,
    .kv_heads = 4,
    .read = read,
};
