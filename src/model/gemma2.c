// SPDX-License-Identifier: Apache-2.0
// Gemma 2 (Gemma Team 2024): norms with weight 1 + w before and after both branches, a window on
// every other layer, capped scores and logits, embeddings times the root of the width.
#include <math.h>

#include "model/decoder.h"

static bool is_windowed(int64_t layer, int64_t from)
{
    (void)from;
    return layer % 2 == 0;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    struct sw_decoder_spec *s = &decoder->spec;
    struct sw_decoder_names *n = &decoder->names;
    double scalar = 0;
    SW_TRY(sw_gemma_read(doc, config, decoder));
    SW_TRY(sw_decoder_read_rotary(doc, config, 10000, 1, decoder));
    SW_TRY(sw_model_read_act(doc, config, "hidden_activation", "gelu_pytorch_tanh", &s->act));
    SW_TRY(sw_model_read_amount(doc, config, "query_pre_attn_scalar", 256, &scalar));
    SW_TRY(sw_decoder_read_cap(doc, config, "attn_logit_softcapping", 50, &s->score_cap));
    SW_TRY(sw_decoder_read_cap(doc, config, "final_logit_softcapping", 30, &s->logits_cap));
    s->score_scale = 1 / sqrt(scalar > 0 ? scalar : 256);
    n->mlp_norm = "pre_feedforward_layernorm";
    n->attention_out_norm = "post_attention_layernorm";
    n->mlp_out_norm = "post_feedforward_layernorm";
    SW_TRY(sw_decoder_read_window(doc, config, 4096, decoder));
    return sw_decoder_read_windows(doc, config, is_windowed, 0, decoder);
}

const struct sw_decoder_family sw_family_gemma2 = {
    SW_DECODER_OPS("gemma2"),
    .ops.classes =
        SW_DECODER_CLASSES("Gemma2ForCausalLM", "Gemma2ForSequenceClassification", "Gemma2Model"),
    .ops.sizes = SW_LLAMA_SIZES(2304, 26, 8, 9216, 256000, 8192),
    .names = SW_LLAMA_NAMES,
    .tied = true,
    .kv_heads = 4,
    .rounds_scale = true,
    .read = read,
};
