// SPDX-License-Identifier: Apache-2.0
// BLOOM (BigScience 2022): ALiBi, a norm after the embedding; the file stores each head's query,
// key and value side by side.
#include "model/decoder.h"

static sw_status refuse(struct sw_json_doc *doc, const struct sw_json *config)
{
    int64_t slices = 1;
    SW_TRY(sw_json_get_i64(doc, config, "pretraining_tp", 1, &slices));
    if (slices > 1) { /* transformers' sliced products leave biases out */
        SW_TRY(sw_model_only(doc, config, "slow_but_exact", false));
    }
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    struct sw_decoder_spec *s = &decoder->spec;
    bool on = false;
    SW_TRY(refuse(doc, config));
    SW_TRY(sw_model_read_amount(doc, config, "layer_norm_epsilon", 1e-5, &s->eps));
    SW_TRY(sw_model_read_amount(doc, config, "initializer_range", 0.02, &s->init_range));
    SW_TRY(sw_model_read_dropout(doc, config, "attention_dropout", 0, &s->attention_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "hidden_dropout", 0, &s->hidden_dropout));
    SW_TRY(sw_json_get_bool(doc, config, "apply_residual_connection_post_layernorm", false, &on));
    s->branches = on ? SW_BRANCHES_ON_NORM : SW_BRANCHES_IN_TURN;
    decoder->super.is_endless = true;
    s->act = SW_ACT_GELU_TANH;
    s->positions = SW_POSITION_ALIBI;
    s->qkv = SW_QKV_BY_HEAD;
    s->qkv_bias = s->out_bias = s->mlp_bias = true;
    return SW_OK;
}

const struct sw_decoder_family sw_family_bloom = {
    SW_DECODER_OPS("bloom"),
    .ops.classes =
        SW_DECODER_CLASSES("BloomForCausalLM", "BloomForSequenceClassification", "BloomModel"),
    .ops.sizes = {[SW_SIZE_WIDTH] = {"hidden_size", "n_embed", 64},
                  [SW_SIZE_LAYERS] = {"n_layer", "num_hidden_layers", 2},
                  [SW_SIZE_HEADS] = {"n_head", "num_attention_heads", 8},
                  [SW_SIZE_VOCAB] = {"vocab_size", NULL, 250880},
                  [SW_SIZE_TOKENS] = {"seq_length", NULL, 2048}},
    .names = {.trunk = "transformer",
              .embedding = "word_embeddings",
              .embedding_norm = "word_embeddings_layernorm",
              .layers = "h",
              .final_norm = "ln_f",
              .head = "lm_head",
              .attention_norm = "input_layernorm",
              .qkv = "self_attention.query_key_value",
              .out = "self_attention.dense",
              .mlp_norm = "post_attention_layernorm",
              .up = "mlp.dense_h_to_4h",
              .down = "mlp.dense_4h_to_h"},
    .tied = true,
    .read = read,
};
