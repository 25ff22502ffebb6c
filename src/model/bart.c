// SPDX-License-Identifier: Apache-2.0
// BART (Lewis et al. 2019): learned positions from row 2 on, a norm after the embedding and after
// each residual sum. Classification reads the decoder's row at the last end-of-text token.
#include <math.h>

#include "model/seq2seq.h"

static sw_status read_stacks(struct sw_json_doc *doc, const struct sw_json *config,
                             struct sw_seq2seq *m)
{
    static const struct sw_model_key keys[] = {{"decoder_layers", NULL, 12},
                                               {"decoder_attention_heads", NULL, 16},
                                               {"decoder_ffn_dim", NULL, 4096}};
    struct sw_seq2seq_spec *s = &m->spec;
    int64_t *const out[] = {&s->stack[1].layers, &s->stack[1].heads, &s->stack[1].inner};
    for (size_t i = 0; i < SW_LEN(keys); i++) {
        SW_TRY(sw_model_read_size(doc, config, &keys[i], keys[i].fallback, out[i]));
    }
    for (int i = 0; i < SW_N_STACKS; i++) {
        if (m->super.width % s->stack[i].heads != 0) {
            return SW_FAIL(SW_E_FORMAT, "%s: d_model %lld does not divide into %s %lld heads",
                           sw_json_name(doc), (long long)m->super.width,
                           i == 0 ? "encoder_attention_heads" : keys[1].key,
                           (long long)s->stack[i].heads);
        }
        s->stack[i].head_width = m->super.width / s->stack[i].heads;
        s->stack[i].scale = 1 / sqrt((double)s->stack[i].head_width);
    }
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config, struct sw_seq2seq *m)
{
    struct sw_seq2seq_spec *s = &m->spec;
    bool scaled = false;
    double std = 0.02;
    SW_TRY(read_stacks(doc, config, m));
    SW_TRY(sw_json_get_bool(doc, config, "scale_embedding", false, &scaled));
    SW_TRY(sw_model_read_act(doc, config, "activation_function", "gelu", &s->act));
    SW_TRY(sw_model_read_dropout(doc, config, "dropout", 0.1, &s->dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "attention_dropout", 0, &s->attention_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "activation_dropout", 0, &s->act_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "classifier_dropout", 0, &s->classifier_dropout));
    SW_TRY(sw_model_read_amount(doc, config, "init_std", 0.02, &std));
    for (int i = 0; i < SW_N_STACKS; i++) {
        double p = 0;
        const char *key = i == 0 ? "encoder_layerdrop" : "decoder_layerdrop";
        SW_TRY(sw_json_get_f64(doc, config, key, 0, &p));
        if (p != 0) {
            return SW_FAIL(SW_E_UNSUP, "%s: %s %g is not built in this version (it has: 0)",
                           sw_json_name(doc), key, p);
        }
    }
    m->super.pad_id = m->super.pad_id < 0 ? 1 : m->super.pad_id;
    m->super.eos_id = m->super.eos_id < 0 ? 2 : m->super.eos_id;
    m->super.start_id = m->super.start_id < 0 ? 2 : m->super.start_id;
    s->embedding_scale = scaled ? sqrt((double)m->super.width) : 1;
    s->position_offset = 2;
    s->padding_id = m->super.pad_id;
    s->eps = 1e-5;
    s->std.table = s->std.q = s->std.kv = s->std.out = s->std.up = s->std.down = s->std.head = std;
    return SW_OK;
}

static const char *const ignored[] = {"*.version", NULL};

const struct sw_seq2seq_family sw_family_bart = {
    SW_SEQ2SEQ_OPS("bart"),
    .ops.classes = {{"BartForConditionalGeneration", "seq2seq"},
                    {"BartForSequenceClassification", "classify"}},
    .ops.sizes = {[SW_SIZE_WIDTH] = {"d_model", NULL, 1024},
                  [SW_SIZE_LAYERS] = {"encoder_layers", NULL, 12},
                  [SW_SIZE_HEADS] = {"encoder_attention_heads", NULL, 16},
                  [SW_SIZE_INNER] = {"encoder_ffn_dim", NULL, 4096},
                  [SW_SIZE_VOCAB] = {"vocab_size", NULL, 50265},
                  [SW_SIZE_TOKENS] = {"max_position_embeddings", NULL, 1024}},
    .names = {.trunk = "model",
              .table = "model.shared",
              .stack = {"model.encoder", "model.decoder"},
              .positions = "embed_positions",
              .embedding_norm = "layernorm_embedding",
              .layers = "layers",
              .self = "self_attn",
              .self_norm = "self_attn_layer_norm",
              .cross = "encoder_attn",
              .cross_norm = "encoder_attn_layer_norm",
              .q = "q_proj",
              .k = "k_proj",
              .v = "v_proj",
              .out = "out_proj",
              .up = {"fc1", "fc1"},
              .down = {"fc2", "fc2"},
              .mlp_norm = {"final_layer_norm", "final_layer_norm"},
              .head = "lm_head",
              .logits_bias = "final_logits_bias",
              .pool = "classification_head.dense",
              .tells = "classification_head.out_proj",
              .classifier = "classification_head"},
    .ignored = ignored,
    .read = read,
};
