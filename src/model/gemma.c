// SPDX-License-Identifier: Apache-2.0
// Gemma (Gemma Team 2024): LLaMA with norms of weight 1 + w, and embeddings times the root of the
// width.
#include <math.h>
#include <string.h>

#include "model/decoder.h"

sw_status sw_gemma_read(struct sw_json_doc *doc, const struct sw_json *config,
                        struct sw_decoder *decoder)
{
    struct sw_decoder_spec *s = &decoder->spec;
    bool bias = false;
    SW_TRY(sw_model_only(doc, config, "use_bidirectional_attention", false));
    SW_TRY(sw_decoder_read_llama_layers(doc, config, 256, decoder));
    SW_TRY(sw_json_get_bool(doc, config, "attention_bias", false, &bias));
    sw_decoder_read_padding(config, 0, decoder);
    s->norm = SW_NORM_RMS_ONE_PLUS;
    s->qkv_bias = s->out_bias = bias;
    s->embedding_scale = sqrt((double)decoder->super.width);
    return SW_OK;
}

/* The first files say gelu and mean its approximation. Files may also have the key of Gemma 2, with
 * the same activation. */
static sw_status read_act(struct sw_json_doc *doc, const struct sw_json *config, enum sw_act *out)
{
    static const char approximate[] = "gelu_pytorch_tanh";
    const char *name = NULL, *other = NULL;
    enum sw_act same;
    SW_TRY(sw_json_get_str(doc, config, "hidden_act", approximate, &name));
    name = strcmp(name, "gelu") == 0 ? approximate : name;
    SW_TRY(sw_json_get_str(doc, config, "hidden_activation", name, &other));
    SW_TRY(sw_model_find_act(doc, "hidden_act", name, out));
    SW_TRY(sw_model_find_act(doc, "hidden_activation", other, &same));
    return same == *out ? SW_OK
                        : SW_FAIL(SW_E_FORMAT,
                                  "%s: hidden_act is \"%s\" and hidden_activation \"%s\"; "
                                  "wanted the same activation",
                                  sw_json_name(doc), name, other);
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    SW_TRY(sw_gemma_read(doc, config, decoder));
    SW_TRY(read_act(doc, config, &decoder->spec.act));
    return sw_decoder_read_rotary(doc, config, 10000, 1, decoder);
}

const struct sw_decoder_family sw_family_gemma = {
    SW_DECODER_OPS("gemma"),
    .ops.classes =
        SW_DECODER_CLASSES("GemmaForCausalLM", "GemmaForSequenceClassification", "GemmaModel"),
    .ops.sizes = SW_LLAMA_SIZES(3072, 28, 16, 24576, 256000, 8192),
    .names = SW_LLAMA_NAMES,
    .tied = true,
    .kv_heads = 16,
    .rounds_scale = true,
    .read = read,
};
