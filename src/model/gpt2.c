// SPDX-License-Identifier: Apache-2.0
// GPT-2 as Hugging Face defines it (Radford et al. 2019): pre-norm blocks, learned positions 0..T-1
// regardless of the mask, Conv1D weights [in,out], head tied to the token embedding.
#include <math.h>

#include "model/decoder.h"

static sw_status refuse(struct sw_json_doc *doc, const struct sw_json *config)
{
    const struct sw_json *pruned = sw_json_get(config, "pruned_heads");
    SW_TRY(sw_model_only(doc, config, "add_cross_attention", false));
    if (pruned && pruned->n_children > 0) {
        return SW_FAIL(SW_E_UNSUP, "%s: pruned_heads is not built in this version",
                       sw_json_name(doc));
    }
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    struct sw_decoder_spec *s = &decoder->spec;
    bool scales = true;
    SW_TRY(refuse(doc, config));
    SW_TRY(sw_model_read_act(doc, config, "activation_function", "gelu_new", &s->act));
    SW_TRY(sw_model_read_amount(doc, config, "layer_norm_epsilon", 1e-5, &s->eps));
    SW_TRY(sw_model_read_amount(doc, config, "initializer_range", 0.02, &s->init_range));
    SW_TRY(sw_model_read_dropout(doc, config, "embd_pdrop", 0.1, &s->embedding_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "attn_pdrop", 0.1, &s->attention_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "resid_pdrop", 0.1, &s->hidden_dropout));
    SW_TRY(sw_json_get_bool(doc, config, "scale_attn_weights", true, &scales));
    SW_TRY(sw_json_get_bool(doc, config, "scale_attn_by_inverse_layer_idx", false,
                            &s->scale_by_layer));
    s->proj_range = s->init_range / sqrt(2.0 * (double)decoder->super.layers);
    s->score_scale = scales ? 0 : 1;
    s->qkv = SW_QKV_PACKED;
    s->in_out = s->qkv_bias = s->out_bias = s->mlp_bias = true;
    return SW_OK;
}

/* The causal masks that old files store as buffers. */
static const char *const ignored[] = {"*.attn.bias", "*.attn.masked_bias", NULL};

const struct sw_decoder_family sw_family_gpt2 = {
    SW_DECODER_OPS("gpt2"),
    .ops.classes =
        SW_DECODER_CLASSES("GPT2LMHeadModel", "GPT2ForSequenceClassification", "GPT2Model"),
    .ops.sizes = {[SW_SIZE_WIDTH] = {"n_embd", "hidden_size", 768},
                  [SW_SIZE_LAYERS] = {"n_layer", "num_hidden_layers", 12},
                  [SW_SIZE_HEADS] = {"n_head", "num_attention_heads", 12},
                  [SW_SIZE_INNER] = {"n_inner", NULL, 0},
                  [SW_SIZE_VOCAB] = {"vocab_size", NULL, 50257},
                  [SW_SIZE_TOKENS] = {"n_positions", "max_position_embeddings", 1024}},
    .names = {.trunk = "transformer",
              .embedding = "wte",
              .positions = "wpe",
              .layers = "h",
              .final_norm = "ln_f",
              .head = "lm_head",
              .attention_norm = "ln_1",
              .qkv = "attn.c_attn",
              .out = "attn.c_proj",
              .mlp_norm = "ln_2",
              .up = "mlp.c_fc",
              .down = "mlp.c_proj"},
    .tied = true,
    .ignored = ignored,
    .read = read,
};
