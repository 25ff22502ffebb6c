// SPDX-License-Identifier: Apache-2.0
// Phi 1, 1.5 and 2 (Gunasekar et al. 2023): attention and MLP in parallel after one norm; part of
// each head is rotated; a head with a bias.
#include "model/decoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    struct sw_decoder_spec *s = &decoder->spec;
    bool normed = false;
    SW_TRY(sw_json_get_bool(doc, config, "qk_layernorm", false, &normed));
    SW_TRY(sw_decoder_read_kv_heads(doc, config, decoder));
    SW_TRY(sw_model_read_act(doc, config, "hidden_act", "gelu_new", &s->act));
    SW_TRY(sw_model_read_amount(doc, config, "layer_norm_eps", 1e-5, &s->eps));
    SW_TRY(sw_model_read_amount(doc, config, "initializer_range", 0.02, &s->init_range));
    SW_TRY(sw_model_read_dropout(doc, config, "attention_dropout", 0, &s->attention_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "embd_pdrop", 0, &s->embedding_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "resid_pdrop", 0, &s->hidden_dropout));
    decoder->names.q_norm = normed ? "self_attn.q_layernorm" : NULL;
    decoder->names.k_norm = normed ? "self_attn.k_layernorm" : NULL;
    s->branches = SW_BRANCHES_PARALLEL;
    s->qkv_bias = s->out_bias = s->mlp_bias = s->head_bias = true;
    sw_decoder_read_padding(config, -1, decoder);
    return sw_decoder_read_rotary(doc, config, 10000, 0.5, decoder);
}

const struct sw_decoder_family sw_family_phi = {
    SW_DECODER_OPS("phi"),
    .ops.classes = SW_DECODER_CLASSES("PhiForCausalLM", "PhiForSequenceClassification", "PhiModel"),
    .ops.sizes = SW_LLAMA_SIZES(2048, 24, 32, 8192, 51200, 2048),
    .names = {.trunk = "model",
              .embedding = "embed_tokens",
              .layers = "layers",
              .final_norm = "final_layernorm",
              .head = "lm_head",
              .attention_norm = "input_layernorm",
              .q = "self_attn.q_proj",
              .k = "self_attn.k_proj",
              .v = "self_attn.v_proj",
              .out = "self_attn.dense",
              .up = "mlp.fc1",
              .down = "mlp.fc2"},
    .rotates_part = true,
    .read = read,
};
