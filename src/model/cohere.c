// SPDX-License-Identifier: Apache-2.0
// Command R (Cohere 2024): LLaMA with LayerNorm without biases, attention and MLP in parallel,
// pairs of neighbouring columns rotated, scaled logits; each head's queries and keys may have
// norms.
#include "model/decoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    struct sw_decoder_spec *s = &decoder->spec;
    bool bias = false, normed = false;
    SW_TRY(sw_decoder_read_llama(doc, config, 500000, 0, decoder));
    SW_TRY(sw_model_read_amount(doc, config, "layer_norm_eps", 1e-5, &s->eps));
    SW_TRY(sw_json_get_bool(doc, config, "attention_bias", false, &bias));
    SW_TRY(sw_json_get_bool(doc, config, "use_qk_norm", false, &normed));
    SW_TRY(sw_decoder_read_factor(doc, config, "logit_scale", 0.0625, &s->logits_scale));
    sw_decoder_read_padding(config, 0, decoder);
    s->qkv_bias = s->out_bias = bias;
    s->norm = SW_NORM_LAYER;
    s->biasless_norms = true;
    s->branches = SW_BRANCHES_PARALLEL;
    s->rotary.interleaved = true;
    s->head_norm = SW_HEAD_NORM_OWN;
    decoder->names.mlp_norm = NULL;
    decoder->names.q_norm = normed ? "self_attn.q_norm" : NULL;
    decoder->names.k_norm = normed ? "self_attn.k_norm" : NULL;
    return SW_OK;
}

const struct sw_decoder_family sw_family_cohere = {
    SW_DECODER_OPS("cohere"),
    .ops.classes = {{"CohereForCausalLM", "causal"}, {"CohereModel", "causal"}},
    .ops.sizes = SW_LLAMA_SIZES(8192, 40, 64, 22528, 256000, 8192),
    .names = SW_LLAMA_NAMES,
    .tied = true,
    .read = read,
};
