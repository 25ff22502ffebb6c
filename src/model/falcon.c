// SPDX-License-Identifier: Apache-2.0
// Falcon (Almazrouei et al. 2023): 7B has one head of keys and values, and attention and MLP in
// parallel after one norm; 40B and 180B ("new_decoder_architecture") have groups of heads and a
// norm for each branch; RW has ALiBi and branches in turn.
#include "model/decoder.h"

struct form {
    bool grouped, multi_query, parallel, alibi;
};

/* Keys that transformers reads, but does not combine with the others. */
static sw_status refuse(struct sw_json_doc *doc, const struct form *f, int64_t norms,
                        const struct sw_decoder_spec *s, double dropout)
{
    if (f->grouped && !f->parallel) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: new_decoder_architecture with parallel_attn false is not built in this "
                       "version",
                       sw_json_name(doc));
    }
    if (norms < 1 || norms > (f->grouped ? 2 : 1)) {
        return SW_FAIL(SW_E_UNSUP, "%s: num_ln_in_parallel_attn is %lld; wanted 1%s",
                       sw_json_name(doc), (long long)norms,
                       f->grouped ? " or 2" : " without new_decoder_architecture");
    }
    if (!f->parallel && dropout != s->hidden_dropout) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: attention_dropout %g and hidden_dropout %g; wanted one number, since "
                       "the former drops attention's branch if parallel_attn is false",
                       sw_json_name(doc), dropout, s->hidden_dropout);
    }
    return SW_OK;
}

static sw_status read_form(struct sw_json_doc *doc, const struct sw_json *config,
                           struct sw_decoder *decoder, struct form *f)
{
    static const struct sw_model_key kv = {"num_kv_heads", NULL, 0};
    struct sw_decoder_spec *s = &decoder->spec;
    const struct sw_json *given = sw_json_get(config, "num_ln_in_parallel_attn");
    int64_t norms;
    double dropout;
    SW_TRY(sw_json_get_bool(doc, config, "new_decoder_architecture", false, &f->grouped));
    SW_TRY(sw_json_get_bool(doc, config, "multi_query", true, &f->multi_query));
    SW_TRY(sw_json_get_bool(doc, config, "parallel_attn", true, &f->parallel));
    SW_TRY(sw_json_get_bool(doc, config, "alibi", false, &f->alibi));
    norms = f->grouped ? 2 : 1;
    if (given && given->type != SW_JSON_NULL) {
        SW_TRY(sw_json_get_i64(doc, config, "num_ln_in_parallel_attn", norms, &norms));
    }
    SW_TRY(sw_model_read_size(doc, config, &kv, s->heads, &s->kv_heads));
    SW_TRY(sw_model_read_dropout(doc, config, "hidden_dropout", 0, &s->hidden_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "attention_dropout", 0, &dropout));
    SW_TRY(refuse(doc, f, norms, s, dropout));
    s->attention_dropout = f->alibi ? dropout : 0; /* as in transformers */
    s->kv_heads = f->grouped ? s->kv_heads : f->multi_query ? 1 : s->heads;
    s->qkv = f->multi_query && !f->grouped ? SW_QKV_PACKED : SW_QKV_BY_HEAD;
    s->branches = f->parallel ? SW_BRANCHES_PARALLEL : SW_BRANCHES_IN_TURN;
    s->drops_sum = f->parallel;
    if (norms == 2) {
        decoder->names.attention_norm = "ln_attn";
        decoder->names.mlp_norm = "ln_mlp";
    } else if (f->parallel) {
        decoder->names.mlp_norm = NULL;
    }
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    struct sw_decoder_spec *s = &decoder->spec;
    struct form f;
    SW_TRY(read_form(doc, config, decoder, &f));
    SW_TRY(sw_model_read_act(doc, config, "activation", "gelu", &s->act));
    SW_TRY(sw_model_read_amount(doc, config, "layer_norm_epsilon", 1e-5, &s->eps));
    SW_TRY(sw_model_read_amount(doc, config, "initializer_range", 0.02, &s->init_range));
    SW_TRY(sw_json_get_bool(doc, config, "bias", false, &s->qkv_bias));
    s->out_bias = s->mlp_bias = s->qkv_bias;
    if (f.alibi) {
        s->positions = SW_POSITION_ALIBI;
        s->bf16_slopes = true;
        decoder->super.is_endless = true;
        return SW_OK;
    }
    return sw_decoder_read_rotary(doc, config, 10000, 1, decoder);
}

const struct sw_decoder_family sw_family_falcon = {
    SW_DECODER_OPS("falcon"),
    .ops.classes =
        SW_DECODER_CLASSES("FalconForCausalLM", "FalconForSequenceClassification", "FalconModel"),
    .ops.sizes = {[SW_SIZE_WIDTH] = {"hidden_size", "n_embed", 4544},
                  [SW_SIZE_LAYERS] = {"num_hidden_layers", "n_layer", 32},
                  [SW_SIZE_HEADS] = {"num_attention_heads", "n_head", 71},
                  [SW_SIZE_INNER] = {"ffn_hidden_size", NULL, 0},
                  [SW_SIZE_VOCAB] = {"vocab_size", NULL, 65024},
                  [SW_SIZE_TOKENS] = {"max_position_embeddings", NULL, 2048}},
    .names = {.trunk = "transformer",
              .embedding = "word_embeddings",
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
