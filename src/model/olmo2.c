// SPDX-License-Identifier: Apache-2.0
// OLMo 2 (OLMo Team 2024): LLaMA with norms after each branch instead of before, and of queries and
// keys over all heads.
#include "model/decoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    struct sw_decoder_spec *s = &decoder->spec;
    bool bias = false;
    SW_TRY(sw_decoder_read_llama(doc, config, 10000, 0, decoder));
    SW_TRY(sw_json_get_bool(doc, config, "attention_bias", false, &bias));
    sw_decoder_read_padding(config, 1, decoder);
    s->qkv_bias = s->out_bias = bias;
    s->head_norm = SW_HEAD_NORM_JOINT;
    return SW_OK;
}

const struct sw_decoder_family sw_family_olmo2 = {
    SW_DECODER_OPS("olmo2"),
    .ops.classes =
        SW_DECODER_CLASSES("Olmo2ForCausalLM", "Olmo2ForSequenceClassification", "Olmo2Model"),
    .ops.sizes = SW_LLAMA_SIZES(4096, 32, 32, 11008, 50304, 2048),
    .names = {.trunk = "model",
              .embedding = "embed_tokens",
              .layers = "layers",
              .final_norm = "norm",
              .head = "lm_head",
              .attention_out_norm = "post_attention_layernorm",
              .q = "self_attn.q_proj",
              .k = "self_attn.k_proj",
              .v = "self_attn.v_proj",
              .q_norm = "self_attn.q_norm",
              .k_norm = "self_attn.k_norm",
              .out = "self_attn.o_proj",
              .mlp_out_norm = "post_feedforward_layernorm",
              .gate = "mlp.gate_proj",
              .up = "mlp.up_proj",
              .down = "mlp.down_proj"},
    .rms_norm_eps = 1e-5,
    .read = read,
};
