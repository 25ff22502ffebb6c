// SPDX-License-Identifier: Apache-2.0
// BART (Lewis et al. 2019): learned positions from row 2 on, a norm after the embedding and after
// each residual sum. Classification reads the decoder's row at the last end-of-text token. mBART
// (Liu et al. 2020) has norms before branches, and begins targets with the last label of a row, the
// language. Pegasus (Zhang et al. 2020) and Marian (Junczys-Dowmunt et al. 2018) have positions of
// sines and no norm of the embedding; Pegasus has norms before branches, too.
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

/* Reads the keys of all families. pad, eos, start: ids that config.json does not give */
static sw_status read_all(struct sw_json_doc *doc, const struct sw_json *config, int64_t pad,
                          int64_t eos, int64_t start, struct sw_seq2seq *m)
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
    m->super.pad_id = m->super.pad_id < 0 ? pad : m->super.pad_id;
    m->super.eos_id = m->super.eos_id < 0 ? eos : m->super.eos_id;
    m->super.start_id = m->super.start_id < 0 ? start : m->super.start_id;
    s->embedding_scale = scaled ? sqrt((double)m->super.width) : 1;
    s->padding_id = m->super.pad_id;
    s->eps = 1e-5;
    s->std.table = s->std.q = s->std.kv = s->std.out = s->std.up = s->std.down = s->std.head = std;
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config, struct sw_seq2seq *m)
{
    m->spec.position_offset = 2;
    return read_all(doc, config, 1, 2, 2, m);
}

static sw_status read_mbart(struct sw_json_doc *doc, const struct sw_json *config,
                            struct sw_seq2seq *m)
{
    const int64_t bos = sw_model_token_id(config, "bos_token_id"); /* generation starts with it */
    m->spec.position_offset = 2;
    m->spec.pre_norm = m->spec.begins_with_last = true;
    return read_all(doc, config, 1, 2, bos < 0 ? 0 : bos, m);
}

static sw_status read_pegasus(struct sw_json_doc *doc, const struct sw_json *config,
                              struct sw_seq2seq *m)
{
    m->spec.sines = m->spec.pre_norm = true;
    return read_all(doc, config, 0, 1, 0, m);
}

static sw_status read_marian(struct sw_json_doc *doc, const struct sw_json *config,
                             struct sw_seq2seq *m)
{
    enum { PADDING = 58100 };
    const int64_t vocab = m->super.vocab;
    int64_t words = vocab;
    SW_TRY(sw_model_only(doc, config, "share_encoder_decoder_embeddings", true));
    SW_TRY(sw_json_get_i64(doc, config, "decoder_vocab_size", vocab, &words));
    if (words != vocab) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: decoder_vocab_size %lld is not built in this version (it has: "
                       "vocab_size %lld)",
                       sw_json_name(doc), (long long)words, (long long)vocab);
    }
    m->spec.sines = m->spec.keeps_sines = true;
    return read_all(doc, config, PADDING, 0, PADDING, m);
}

static const char *const ignored[] = {"*.version", NULL};

#define SIZES(width, heads, vocab)                                                                 \
    {                                                                                              \
        [SW_SIZE_WIDTH] = {"d_model", "hidden_size", (width)},                                     \
        [SW_SIZE_LAYERS] = {"encoder_layers", "num_hidden_layers", 12},                            \
        [SW_SIZE_HEADS] = {"encoder_attention_heads", "num_attention_heads", (heads)},             \
        [SW_SIZE_INNER] = {"encoder_ffn_dim", NULL, 4096},                                         \
        [SW_SIZE_VOCAB] = {"vocab_size", NULL, (vocab)}, [SW_SIZE_TOKENS] = {                      \
            "max_position_embeddings",                                                             \
            NULL,                                                                                  \
            1024                                                                                   \
        }                                                                                          \
    }
#define NAMES                                                                                      \
    .trunk = "model", .table = "model.shared", .stack = {"model.encoder", "model.decoder"},        \
    .positions = "embed_positions", .layers = "layers", .self = "self_attn",                       \
    .self_norm = "self_attn_layer_norm", .cross = "encoder_attn",                                  \
    .cross_norm = "encoder_attn_layer_norm", .q = "q_proj", .k = "k_proj", .v = "v_proj",          \
    .out = "out_proj", .up = {"fc1", "fc1"}, .down = {"fc2", "fc2"},                               \
    .mlp_norm = {"final_layer_norm", "final_layer_norm"}, .head = "lm_head",                       \
    .logits_bias = "final_logits_bias", .pool = "classification_head.dense",                       \
    .tells = "classification_head.out_proj", .classifier = "classification_head"

const struct sw_seq2seq_family sw_family_bart = {
    SW_SEQ2SEQ_OPS("bart"),
    .ops.classes = {{"BartForConditionalGeneration", "seq2seq"},
                    {"BartForSequenceClassification", "classify"}},
    .ops.sizes = SIZES(1024, 16, 50265),
    .ops.labels = 3, /* entailment: contradiction, neutral, entailment */
    .names = {NAMES, .embedding_norm = "layernorm_embedding"},
    .ignored = ignored,
    .read = read,
};

const struct sw_seq2seq_family sw_family_mbart = {
    SW_SEQ2SEQ_OPS("mbart"),
    .ops.classes = {{"MBartForConditionalGeneration", "seq2seq"},
                    {"MBartForSequenceClassification", "classify"}},
    .ops.sizes = SIZES(1024, 16, 50265),
    .names = {NAMES, .embedding_norm = "layernorm_embedding", .final_norm = "layer_norm"},
    .ignored = ignored,
    .read = read_mbart,
};

const struct sw_seq2seq_family sw_family_pegasus = {
    SW_SEQ2SEQ_OPS("pegasus"),
    .ops.classes = {{"PegasusForConditionalGeneration", "seq2seq"}},
    .ops.sizes = SIZES(1024, 16, 50265),
    .names = {NAMES, .final_norm = "layer_norm"},
    .ignored = ignored,
    .read = read_pegasus,
};

const struct sw_seq2seq_family sw_family_marian = {
    SW_SEQ2SEQ_OPS("marian"),
    .ops.classes = {{"MarianMTModel", "seq2seq"}},
    .ops.sizes = SIZES(1024, 16, 58101),
    .names = {NAMES},
    .ignored = ignored,
    .read = read_marian,
};
