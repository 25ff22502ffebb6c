// SPDX-License-Identifier: Apache-2.0
// gpt-oss (OpenAI 2025): layers with and without a window in turn, a sink for each head, biases,
// YaRN, and clamped experts whose weights are packed.
#include "model/decoder.h"

static bool is_windowed(int64_t layer, int64_t from)
{
    (void)from;
    return layer % 2 == 0;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    static const struct sw_experts_keys keys = {
        .n = "num_local_experts", .n_alias = "num_experts", .fallback_n = 128, .fallback_k = 4};
    struct sw_decoder_spec *s = &decoder->spec;
    bool bias = true;
    SW_TRY(sw_decoder_read_llama(doc, config, 150000, 64, decoder));
    SW_TRY(sw_json_get_bool(doc, config, "attention_bias", true, &bias));
    SW_TRY(sw_decoder_read_window(doc, config, 128, decoder));
    SW_TRY(sw_decoder_read_windows(doc, config, is_windowed, 0, decoder));
    SW_TRY(sw_experts_read(doc, config, &keys, decoder));
    SW_TRY(sw_model_read_amount(doc, config, "swiglu_alpha", 1.702, &s->experts.alpha));
    SW_TRY(sw_model_read_amount(doc, config, "swiglu_limit", 7, &s->experts.limit));
    s->qkv_bias = s->out_bias = bias;
    s->experts.router.normalise = true;
    s->experts.router_bias = true;
    return SW_OK;
}

const struct sw_decoder_family sw_family_gpt_oss = {
    SW_DECODER_OPS("gpt_oss"),
    .ops.classes =
        SW_DECODER_CLASSES("GptOssForCausalLM", "GptOssForSequenceClassification", "GptOssModel"),
    .ops.sizes = SW_LLAMA_SIZES(2880, 36, 64, 2880, 201088, 131072),
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
              .sinks = "self_attn.sinks",
              .mlp_norm = "post_attention_layernorm",
              .router = "mlp.router",
              .experts = "mlp.experts",
              .expert_gate_up = "gate_up_proj",
              .expert_down = "down_proj"},
    .kv_heads = 8,
    .rope_parameters =
        "{\"rope_type\": \"yarn\", \"factor\": 32, \"beta_fast\": 32, \"beta_slow\": 1, "
        "\"truncate\": false, \"original_max_position_embeddings\": 4096}",
    .rms_norm_eps = 1e-5,
    .read = read,
};
