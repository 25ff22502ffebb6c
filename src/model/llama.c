// SPDX-License-Identifier: Apache-2.0
// LLaMA 1, 2 and 3 (Touvron et al. 2023, Grattafiori et al. 2024): RMSNorm, rotary positions, gated
// MLP, grouped key and value heads.
#include "model/decoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    bool attention_bias = false;
    SW_TRY(sw_decoder_read_llama(doc, config, 10000, 0, decoder));
    SW_TRY(sw_json_get_bool(doc, config, "attention_bias", false, &attention_bias));
    SW_TRY(sw_json_get_bool(doc, config, "mlp_bias", false, &decoder->spec.mlp_bias));
    decoder->spec.qkv_bias = decoder->spec.out_bias = attention_bias;
    return SW_OK;
}

const struct sw_decoder_family sw_family_llama = {
    SW_DECODER_OPS("llama"),
    .ops.classes =
        SW_DECODER_CLASSES("LlamaForCausalLM", "LlamaForSequenceClassification", "LlamaModel"),
    .ops.sizes = SW_LLAMA_SIZES(4096, 32, 32, 11008, 32000, 2048),
    .names = SW_LLAMA_NAMES,
    .read = read,
};
