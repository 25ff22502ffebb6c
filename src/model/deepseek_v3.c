// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V3 (DeepSeek-AI 2024): queries, keys and values through low ranks (latent attention), a
// few dense layers, then experts in groups, chosen by sigmoids and a bias that is not trained, and
// one that all tokens share.
#include "model/decoder.h"

#include <math.h>
#include <string.h>

/* The scores of YaRN get the square of 0.1 mscale_all_dim ln(factor) + 1. */
static sw_status read_scale(struct sw_json_doc *doc, const struct sw_json *config,
                            struct sw_decoder *decoder)
{
    struct sw_decoder_spec *s = &decoder->spec;
    const struct sw_json *rope = sw_json_get(config, "rope_scaling");
    rope = rope && rope->type == SW_JSON_OBJECT ? rope : sw_json_get(config, "rope_parameters");
    double all = 0;
    s->score_scale = 1 / sqrt((double)(s->latent.nope + s->latent.rope));
    if (s->rotary.kind == SW_ROTARY_DEFAULT || !rope) {
        return SW_OK;
    }
    SW_TRY(sw_model_read_amount(doc, rope, "mscale_all_dim", 0, &all));
    if (all > 0 && s->rotary.factor > 1) {
        const double scale = 0.1 * all * log(s->rotary.factor) + 1;
        s->score_scale *= scale * scale;
    }
    return SW_OK;
}

static sw_status read_latent(struct sw_json_doc *doc, const struct sw_json *config,
                             struct sw_decoder *decoder)
{
    struct sw_latent_spec *l = &decoder->spec.latent;
    static const struct sw_model_key keys[] = {{"q_lora_rank", NULL, 1536},
                                               {"kv_lora_rank", NULL, 512},
                                               {"qk_nope_head_dim", NULL, 128},
                                               {"qk_rope_head_dim", NULL, 64},
                                               {"v_head_dim", NULL, 128}};
    const struct sw_json *rank = sw_json_get(config, "q_lora_rank");
    int64_t *const to[] = {&l->q_rank, &l->kv_rank, &l->nope, &l->rope, &l->value};
    for (size_t i = rank && rank->type == SW_JSON_NULL ? 1 : 0; i < SW_LEN(keys); i++) {
        SW_TRY(sw_model_read_size(doc, config, &keys[i], keys[i].fallback, to[i]));
    }
    return SW_OK;
}

static sw_status read_experts(struct sw_json_doc *doc, const struct sw_json *config,
                              struct sw_decoder *decoder)
{
    static const struct sw_experts_keys keys = {.n = "n_routed_experts",
                                                .n_alias = "num_local_experts",
                                                .inner = "moe_intermediate_size",
                                                .fallback_n = 256,
                                                .fallback_k = 8,
                                                .fallback_inner = 2048};
    struct sw_experts_spec *e = &decoder->spec.experts;
    int64_t dense = 3, n_shared = 1;
    SW_TRY(sw_experts_read(doc, config, &keys, decoder));
    e->router.sigmoid = true;
    e->aux_loss = 0; /* the model has no such loss */
    SW_TRY(sw_json_get_i64(doc, config, "n_group", 8, &e->router.groups));
    SW_TRY(sw_json_get_i64(doc, config, "topk_group", 4, &e->router.kept));
    SW_TRY(sw_json_get_bool(doc, config, "norm_topk_prob", true, &e->router.normalise));
    SW_TRY(sw_model_read_amount(doc, config, "routed_scaling_factor", 2.5, &e->router.scale));
    SW_TRY(sw_json_get_i64(doc, config, "n_shared_experts", 1, &n_shared));
    SW_TRY(sw_json_get_i64(doc, config, "first_k_dense_replace", 3, &dense));
    const int64_t groups = e->router.groups, kept = e->router.kept;
    if (groups < 1 || e->n % groups != 0 || e->n / groups < 2 || kept < 1 || kept > groups ||
        e->router.k > e->n / groups * kept) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: n_group %lld, topk_group %lld, num_experts_per_tok %lld; wanted groups "
                       "of at least two of the %lld experts, of which the kept ones have enough",
                       sw_json_name(doc), (long long)groups, (long long)kept,
                       (long long)e->router.k, (long long)e->n);
    }
    if (n_shared < 0 || n_shared > e->n || dense < 0) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: n_shared_experts %lld, first_k_dense_replace %lld; wanted "
                       "0 or more",
                       sw_json_name(doc), (long long)n_shared, (long long)dense);
    }
    e->shared = n_shared * e->inner;
    bool *is_dense = sw_alloc_zero("model", (size_t)decoder->super.layers, sizeof *is_dense);
    SW_TRY_ALLOC(is_dense, "the layers without experts");
    e->is_dense = is_dense;
    for (int64_t i = 0; i < decoder->super.layers && i < dense; i++) {
        is_dense[i] = true;
    }
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    struct sw_decoder_spec *s = &decoder->spec;
    SW_TRY(read_latent(doc, config, decoder));
    s->head_width = s->latent.rope; /* the part that is rotated */
    SW_TRY(sw_decoder_read_common(doc, config, decoder));
    SW_TRY(sw_decoder_read_rotary(doc, config, 10000, 1, decoder));
    SW_TRY(sw_json_get_bool(doc, config, "rope_interleave", true, &s->rotary.interleaved));
    SW_TRY(sw_json_get_bool(doc, config, "attention_bias", false, &s->latent.bias));
    s->out_bias = s->latent.bias;
    s->kv_heads = s->heads;
    SW_TRY(read_scale(doc, config, decoder));
    return read_experts(doc, config, decoder);
}

static const char *const ignored[] = {"model.layers.*.eh_proj.*", "model.layers.*.enorm.*",
                                      "model.layers.*.hnorm.*", "model.layers.*.shared_head.*",
                                      NULL};

const struct sw_decoder_family sw_family_deepseek_v3 = {
    SW_DECODER_OPS("deepseek_v3"),
    .ops.classes = SW_DECODER_CLASSES("DeepseekV3ForCausalLM",
                                      "DeepseekV3ForSequenceClassification", "DeepseekV3Model"),
    .ops.sizes = SW_LLAMA_SIZES(7168, 61, 128, 18432, 129280, 4096),
    .names = {.trunk = "model",
              .embedding = "embed_tokens",
              .layers = "layers",
              .final_norm = "norm",
              .head = "lm_head",
              .attention_norm = "input_layernorm",
              .q = "self_attn.q_proj",
              .out = "self_attn.o_proj",
              .mlp_norm = "post_attention_layernorm",
              .gate = "mlp.gate_proj",
              .up = "mlp.up_proj",
              .down = "mlp.down_proj",
              .router = "mlp.gate",
              .choice_bias = "mlp.gate.e_score_correction_bias",
              .experts = "mlp.experts",
              .expert_gate = "gate_proj",
              .expert_up = "up_proj",
              .expert_down = "down_proj",
              .shared_gate = "mlp.shared_experts.gate_proj",
              .shared_up = "mlp.shared_experts.up_proj",
              .shared_down = "mlp.shared_experts.down_proj"},
    .ignored = ignored,
    .read = read,
};
