// SPDX-License-Identifier: Apache-2.0
// Qwen 3 with experts (Yang et al. 2025): Qwen 3, with many small experts in most layers.
#include "model/decoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    static const struct sw_experts_keys keys = {.n = "num_experts",
                                                .n_alias = "num_local_experts",
                                                .inner = "moe_intermediate_size",
                                                .fallback_n = 128,
                                                .fallback_k = 8,
                                                .fallback_inner = 768};
    bool windowed = false;
    SW_TRY(sw_qwen3_read(doc, config, 0, decoder));
    SW_TRY(sw_json_get_bool(doc, config, "use_sliding_window", false, &windowed));
    if (windowed) { /* every layer */
        SW_TRY(sw_decoder_read_window(doc, config, 4096, decoder));
    }
    SW_TRY(sw_experts_read(doc, config, &keys, decoder));
    SW_TRY(sw_json_get_bool(doc, config, "norm_topk_prob", false,
                            &decoder->spec.experts.router.normalise));
    return sw_experts_read_layers(doc, config, decoder);
}

const struct sw_decoder_family sw_family_qwen3_moe = {
    SW_DECODER_OPS("qwen3_moe"),
    .ops.classes = SW_DECODER_CLASSES("Qwen3MoeForCausalLM", "Qwen3MoeForSequenceClassification",
                                      "Qwen3MoeModel"),
    .ops.sizes = SW_LLAMA_SIZES(2048, 24, 32, 6144, 151936, 32768),
    .names = SW_EXPERTS_NAMES,
    .kv_heads = 4,
    .read = read,
};
