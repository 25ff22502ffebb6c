// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX and Pythia (Black et al. 2022): attention and MLP in parallel; part of each head is
// rotated; the file stores each head's query, key and value side by side.
#include "model/decoder.h"

/* Reads `key`. transformers ignores `other`, its name in other families; files with both have the
 * same value. */
static sw_status read_old(struct sw_json_doc *doc, const struct sw_json *config, const char *key,
                          const char *other, double *out)
{
    double same = 0;
    SW_TRY(sw_json_get_f64(doc, config, key, *out, out));
    SW_TRY(sw_json_get_f64(doc, config, other, *out, &same));
    if (same != *out) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s is %g and %s %g; wanted the same number",
                       sw_json_name(doc), key, *out, other, same);
    }
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    struct sw_decoder_spec *s = &decoder->spec;
    double theta = 10000, share = 0.25;
    bool parallel = true;
    SW_TRY(sw_model_read_act(doc, config, "hidden_act", "gelu", &s->act));
    SW_TRY(sw_model_read_amount(doc, config, "layer_norm_eps", 1e-5, &s->eps));
    SW_TRY(sw_model_read_amount(doc, config, "initializer_range", 0.02, &s->init_range));
    SW_TRY(sw_model_read_dropout(doc, config, "attention_dropout", 0, &s->attention_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "hidden_dropout", 0, &s->hidden_dropout));
    SW_TRY(sw_json_get_bool(doc, config, "use_parallel_residual", true, &parallel));
    SW_TRY(sw_json_get_bool(doc, config, "attention_bias", true, &s->qkv_bias));
    SW_TRY(read_old(doc, config, "rotary_emb_base", "rope_theta", &theta));
    SW_TRY(read_old(doc, config, "rotary_pct", "partial_rotary_factor", &share));
    s->embedding_dropout = s->hidden_dropout;
    s->out_bias = s->qkv_bias;
    s->mlp_bias = true;
    s->branches = parallel ? SW_BRANCHES_PARALLEL : SW_BRANCHES_IN_TURN;
    s->qkv = SW_QKV_BY_HEAD;
    return sw_decoder_read_rotary(doc, config, theta, share, decoder);
}

static const char *const ignored[] = {"*.attention.bias", "*.attention.masked_bias", NULL};
static const char *const aliases[] = {"embed_out.weight", "lm_head.weight", NULL};

const struct sw_decoder_family sw_family_gpt_neox = {
    SW_DECODER_OPS("gpt_neox"),
    .ops.classes = SW_DECODER_CLASSES("GPTNeoXForCausalLM", "GPTNeoXForSequenceClassification",
                                      "GPTNeoXModel"),
    .ops.sizes = SW_LLAMA_SIZES(6144, 44, 64, 24576, 50432, 2048),
    .names = {.trunk = "gpt_neox",
              .embedding = "embed_in",
              .layers = "layers",
              .final_norm = "final_layer_norm",
              .head = "embed_out",
              .attention_norm = "input_layernorm",
              .qkv = "attention.query_key_value",
              .out = "attention.dense",
              .mlp_norm = "post_attention_layernorm",
              .up = "mlp.dense_h_to_4h",
              .down = "mlp.dense_4h_to_h"},
    .ignored = ignored,
    .aliases = aliases,
    .rotates_part = true,
    .read = read,
};
