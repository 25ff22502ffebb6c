// SPDX-License-Identifier: Apache-2.0
// Mistral (Jiang et al. 2023): LLaMA with a window on every layer, if the file has one.
#include "model/decoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    SW_TRY(sw_decoder_read_llama(doc, config, 10000, 0, decoder));
    return sw_decoder_read_window(doc, config, 4096, decoder);
}

const struct sw_decoder_family sw_family_mistral = {
    SW_DECODER_OPS("mistral"),
    .ops.classes = SW_DECODER_CLASSES("MistralForCausalLM", "MistralForSequenceClassification",
                                      "MistralModel"),
    .ops.sizes = SW_LLAMA_SIZES(4096, 32, 32, 14336, 32000, 131072),
    .names = SW_LLAMA_NAMES,
    .kv_heads = 8,
    .read = read,
};
