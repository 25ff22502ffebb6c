// SPDX-License-Identifier: Apache-2.0
// Qwen 3, dense (Yang et al. 2025): LLaMA with a norm per head on queries and keys before rotation;
// the file gives the width of heads.
#include "model/decoder.h"

sw_status sw_qwen3_read(struct sw_json_doc *doc, const struct sw_json *config, int64_t head_width,
                        struct sw_decoder *decoder)
{
    bool bias = false;
    SW_TRY(sw_decoder_read_llama(doc, config, 10000, head_width, decoder));
    SW_TRY(sw_json_get_bool(doc, config, "attention_bias", false, &bias));
    decoder->spec.qkv_bias = decoder->spec.out_bias = bias;
    decoder->names.q_norm = "self_attn.q_norm";
    decoder->names.k_norm = "self_attn.k_norm";
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    SW_TRY(sw_qwen3_read(doc, config, 128, decoder));
    return sw_qwen_read_windows(doc, config, decoder);
}

const struct sw_decoder_family sw_family_qwen3 = {
    SW_DECODER_OPS("qwen3"),
    .ops.classes =
        SW_DECODER_CLASSES("Qwen3ForCausalLM", "Qwen3ForSequenceClassification", "Qwen3Model"),
    .ops.sizes = SW_LLAMA_SIZES(4096, 32, 32, 22016, 151936, 32768),
    .names = SW_LLAMA_NAMES,
    .kv_heads = 32,
    .read = read,
};
