// SPDX-License-Identifier: Apache-2.0
// GLM-4 0414 (GLM Team 2024): LLaMA with norms before and after each branch, half of each head
// rotated in pairs of neighbouring columns, the gate and the other factor of the MLP in one tensor.
#include "model/decoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    enum { PADDING = 151329 };
    struct sw_decoder_spec *s = &decoder->spec;
    SW_TRY(sw_decoder_read_llama_layers(doc, config, 128, decoder));
    SW_TRY(sw_decoder_read_rotary(doc, config, 10000, 0.5, decoder));
    SW_TRY(sw_json_get_bool(doc, config, "attention_bias", true, &s->qkv_bias));
    sw_decoder_read_padding(config, decoder->super.vocab > PADDING ? PADDING : -1, decoder);
    s->rotary.interleaved = true;
    return SW_OK;
}

const struct sw_decoder_family sw_family_glm4 = {
    SW_DECODER_OPS("glm4"),
    .ops.classes =
        SW_DECODER_CLASSES("Glm4ForCausalLM", "Glm4ForSequenceClassification", "Glm4Model"),
    .ops.sizes = SW_LLAMA_SIZES(4096, 40, 32, 13696, 151552, 131072),
    .names = {.trunk = "model",
              .embedding = "embed_tokens",
              .layers = "layers",
              .final_norm = "norm",
              .head = "lm_head",
              .attention_norm = "input_layernorm",
              .attention_out_norm = "post_self_attn_layernorm",
              .q = "self_attn.q_proj",
              .k = "self_attn.k_proj",
              .v = "self_attn.v_proj",
              .out = "self_attn.o_proj",
              .mlp_norm = "post_attention_layernorm",
              .mlp_out_norm = "post_mlp_layernorm",
              .gate_up = "mlp.gate_up_proj",
              .down = "mlp.down_proj"},
    .kv_heads = 2,
    .rms_norm_eps = 1.5625e-07,
    .rotates_part = true,
    .read = read,
};
