// SPDX-License-Identifier: Apache-2.0
// Qwen 1.5 and 2 with experts (Yang et al. 2024): Qwen 2, with small experts in most layers, and
// one that all tokens share, weighted by a gate.
#include "model/decoder.h"

/* Without layer_types: every second of the layers before max_window_layers. */
static bool is_windowed(int64_t layer, int64_t from)
{
    return layer % 2 == 0 && layer < from;
}

static sw_status read_windows(struct sw_json_doc *doc, const struct sw_json *config,
                              struct sw_decoder *decoder)
{
    bool use = false;
    int64_t before = 28;
    SW_TRY(sw_json_get_bool(doc, config, "use_sliding_window", false, &use));
    SW_TRY(sw_json_get_i64(doc, config, "max_window_layers", 28, &before));
    if (!use) {
        return SW_OK;
    }
    SW_TRY(sw_decoder_read_window(doc, config, 4096, decoder));
    return sw_decoder_read_windows(doc, config, is_windowed, before, decoder);
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    static const struct sw_experts_keys keys = {.n = "num_experts",
                                                .inner = "moe_intermediate_size",
                                                .fallback_n = 60,
                                                .fallback_k = 4,
                                                .fallback_inner = 1408};
    static const struct sw_model_key shared = {"shared_expert_intermediate_size", NULL, 5632};
    struct sw_experts_spec *experts = &decoder->spec.experts;
    SW_TRY(sw_decoder_read_llama(doc, config, 10000, 0, decoder));
    SW_TRY(sw_json_get_bool(doc, config, "qkv_bias", true, &decoder->spec.qkv_bias));
    SW_TRY(read_windows(doc, config, decoder));
    SW_TRY(sw_experts_read(doc, config, &keys, decoder));
    SW_TRY(sw_model_read_size(doc, config, &shared, shared.fallback, &experts->shared));
    SW_TRY(sw_json_get_bool(doc, config, "norm_topk_prob", false, &experts->router.normalise));
    decoder->names.shared_gate = "mlp.shared_expert.gate_proj";
    decoder->names.shared_up = "mlp.shared_expert.up_proj";
    decoder->names.shared_down = "mlp.shared_expert.down_proj";
    decoder->names.shared_scale = "mlp.shared_expert_gate";
    return sw_experts_read_layers(doc, config, decoder);
}

const struct sw_decoder_family sw_family_qwen2_moe = {
    SW_DECODER_OPS("qwen2_moe"),
    .ops.classes = SW_DECODER_CLASSES("Qwen2MoeForCausalLM", "Qwen2MoeForSequenceClassification",
                                      "Qwen2MoeModel"),
    .ops.sizes = SW_LLAMA_SIZES(2048, 24, 16, 5632, 151936, 32768),
    .names = SW_EXPERTS_NAMES,
    .kv_heads = 16,
    .read = read,
};
