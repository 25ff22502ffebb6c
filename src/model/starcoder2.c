// SPDX-License-Identifier: Apache-2.0
// StarCoder2 (Lozhkov et al. 2024): LayerNorm, biases everywhere, rotary positions, an MLP without
// a gate, a window on every layer if the file has one.
#include "model/decoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    static const struct sw_model_key head = {"head_dim", NULL, 0};
    struct sw_decoder_spec *s = &decoder->spec;
    const struct sw_json *given = sw_json_get(config, head.key);
    SW_TRY(sw_decoder_read_kv_heads(doc, config, decoder));
    if (given && given->type != SW_JSON_NULL) {
        SW_TRY(sw_model_read_size(doc, config, &head, 0, &s->head_width));
    }
    SW_TRY(sw_model_read_act(doc, config, "hidden_act", "gelu_pytorch_tanh", &s->act));
    SW_TRY(sw_model_read_amount(doc, config, "norm_epsilon", 1e-5, &s->eps));
    SW_TRY(sw_model_read_amount(doc, config, "initializer_range", 0.018042, &s->init_range));
    SW_TRY(sw_model_read_dropout(doc, config, "attention_dropout", 0, &s->attention_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "residual_dropout", 0, &s->hidden_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "embedding_dropout", 0, &s->embedding_dropout));
    SW_TRY(sw_json_get_bool(doc, config, "use_bias", true, &s->qkv_bias));
    s->out_bias = s->mlp_bias = s->qkv_bias;
    sw_decoder_read_padding(config, -1, decoder);
    SW_TRY(sw_decoder_read_window(doc, config, 0, decoder));
    return sw_decoder_read_rotary(doc, config, 10000, 1, decoder);
}

const struct sw_decoder_family sw_family_starcoder2 = {
    SW_DECODER_OPS("starcoder2"),
    .ops.classes = SW_DECODER_CLASSES("Starcoder2ForCausalLM",
                                      "Starcoder2ForSequenceClassification", "Starcoder2Model"),
    .ops.sizes = SW_LLAMA_SIZES(3072, 30, 24, 12288, 49152, 4096),
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
              .up = "mlp.c_fc",
              .down = "mlp.c_proj"},
    .tied = true,
    .kv_heads = 2,
    .read = read,
};
