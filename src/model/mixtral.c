// SPDX-License-Identifier: Apache-2.0
// Mixtral (Jiang et al. 2024): Mistral whose MLPs are experts, of which a token chooses two.
#include "model/decoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    static const struct sw_experts_keys keys = {
        .n = "num_local_experts", .n_alias = "num_experts", .fallback_n = 8, .fallback_k = 2};
    double jitter = 0;
    SW_TRY(sw_decoder_read_llama(doc, config, 1e6, 0, decoder));
    SW_TRY(sw_decoder_read_window(doc, config, 0, decoder));
    SW_TRY(sw_model_read_amount(doc, config, "router_jitter_noise", 0, &jitter));
    if (jitter > 0) {
        return SW_FAIL(SW_E_UNSUP, "%s: router_jitter_noise %g is not built in this version",
                       sw_json_name(doc), jitter);
    }
    SW_TRY(sw_experts_read(doc, config, &keys, decoder));
    decoder->spec.experts.router.normalise = true;
    return SW_OK;
}

const struct sw_decoder_family sw_family_mixtral = {
    SW_DECODER_OPS("mixtral"),
    .ops.classes = SW_DECODER_CLASSES("MixtralForCausalLM", "MixtralForSequenceClassification",
                                      "MixtralModel"),
    .ops.sizes = SW_LLAMA_SIZES(4096, 32, 32, 14336, 32000, 131072),
    .names = {.trunk = "model",
              .embedding = "embed_tokens",
              .layers = "layers",
              .final_norm = "norm",
              .head = "lm_head",
              .attention_norm = "input_layernorm",
              .q = "self_attn.q_proj",
              .k = "self_attn.k_proj",
              .v = "self_attn.v_proj",
              .out = "self_attn.o_proj",
              .mlp_norm = "post_attention_layernorm",
              .router = "block_sparse_moe.gate",
              .experts = "block_sparse_moe.experts",
              .expert_gate = "w1",
              .expert_up = "w3",
              .expert_down = "w2"},
    .kv_heads = 8,
    .rms_norm_eps = 1e-5,
    .read = read,
};
