// SPDX-License-Identifier: Apache-2.0
// Qwen 2 and 2.5 (Yang et al. 2024): LLaMA with biases on queries, keys and values; upper layers
// may have a window.
#include "model/decoder.h"

static bool is_windowed(int64_t layer, int64_t from)
{
    return layer >= from;
}

sw_status sw_qwen_read_windows(struct sw_json_doc *doc, const struct sw_json *config,
                               struct sw_decoder *decoder)
{
    bool use = false;
    int64_t from = 0;
    SW_TRY(sw_json_get_bool(doc, config, "use_sliding_window", false, &use));
    SW_TRY(sw_json_get_i64(doc, config, "max_window_layers", 28, &from));
    if (!use) {
        return SW_OK;
    }
    SW_TRY(sw_decoder_read_window(doc, config, 4096, decoder));
    return sw_decoder_read_windows(doc, config, is_windowed, from, decoder);
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    SW_TRY(sw_decoder_read_llama(doc, config, 10000, 0, decoder));
    decoder->spec.qkv_bias = true;
    return sw_qwen_read_windows(doc, config, decoder);
}

const struct sw_decoder_family sw_family_qwen2 = {
    SW_DECODER_OPS("qwen2"),
    .ops.classes =
        SW_DECODER_CLASSES("Qwen2ForCausalLM", "Qwen2ForSequenceClassification", "Qwen2Model"),
    .ops.sizes = SW_LLAMA_SIZES(4096, 32, 32, 22016, 151936, 32768),
    .names = SW_LLAMA_NAMES,
    .kv_heads = 32,
    .read = read,
};
