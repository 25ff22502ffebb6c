// SPDX-License-Identifier: Apache-2.0
// StableLM and StableLM 2 (Bellagente et al. 2024): LLaMA with LayerNorm, part of each head
// rotated; branches may be parallel, and each head's queries and keys may have norms of their own.
#include "model/decoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    struct sw_decoder_spec *s = &decoder->spec;
    struct sw_decoder_names *n = &decoder->names;
    bool normed = false, parallel = false;
    SW_TRY(sw_decoder_read_kv_heads(doc, config, decoder));
    SW_TRY(sw_model_read_act(doc, config, "hidden_act", "silu", &s->act));
    SW_TRY(sw_model_read_amount(doc, config, "layer_norm_eps", 1e-5, &s->eps));
    SW_TRY(sw_model_read_amount(doc, config, "initializer_range", 0.02, &s->init_range));
    SW_TRY(sw_model_read_dropout(doc, config, "attention_dropout", 0, &s->attention_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "hidden_dropout", 0, &s->hidden_dropout));
    SW_TRY(sw_json_get_bool(doc, config, "use_qkv_bias", false, &s->qkv_bias));
    SW_TRY(sw_json_get_bool(doc, config, "qk_layernorm", false, &normed));
    SW_TRY(sw_json_get_bool(doc, config, "use_parallel_residual", false, &parallel));
    s->drops_mlp_only = true;
    s->head_norm = SW_HEAD_NORM_LISTED;
    n->q_norm = normed ? "self_attn.q_layernorm" : NULL;
    n->k_norm = normed ? "self_attn.k_layernorm" : NULL;
    if (parallel) {
        s->branches = SW_BRANCHES_PARALLEL;
        n->mlp_norm = NULL;
    }
    sw_decoder_read_padding(config, -1, decoder);
    return sw_decoder_read_rotary(doc, config, 10000, 0.25, decoder);
}

const struct sw_decoder_family sw_family_stablelm = {
    SW_DECODER_OPS("stablelm"),
    .ops.classes = SW_DECODER_CLASSES("StableLmForCausalLM", "StableLmForSequenceClassification",
                                      "StableLmModel"),
    .ops.sizes = SW_LLAMA_SIZES(2560, 32, 32, 6912, 50304, 4096),
    .names = SW_LLAMA_NAMES,
    .kv_heads = 32,
    .rotates_part = true,
    .read = read,
};
