// SPDX-License-Identifier: Apache-2.0
// T5 (Raffel et al. 2019), 1.0 and 1.1: RMS pre-norms, no biases, unscaled scores with a bias by
// distance from a table in the first layer. A tied head (1.0) reads its input scaled by 1 /
// sqrt(width). 1.1 has a gate and its own head.
#include <math.h>
#include <string.h>

#include "model/seq2seq.h"

/* Reads an activation; the prefix "gated-" means a gate. */
static sw_status read_act(struct sw_json_doc *doc, const struct sw_json *config,
                          const char *fallback, struct sw_seq2seq_spec *s)
{
    static const char key[] = "feed_forward_proj", gated[] = "gated-";
    const char *name = NULL;
    SW_TRY(sw_json_get_str(doc, config, key, fallback, &name));
    s->gated = strncmp(name, gated, sizeof gated - 1) == 0;
    if (strcmp(name, "gated-gelu") == 0) { /* version 1.1 was trained with this */
        s->act = SW_ACT_GELU_TANH;
        return SW_OK;
    }
    return sw_model_find_act(doc, key, s->gated ? name + sizeof gated - 1 : name, &s->act);
}

static void set_stds(struct sw_seq2seq *m, double factor)
{
    struct sw_seq2seq_spec *s = &m->spec;
    const double width = (double)m->super.width, head = (double)s->stack[0].head_width;
    const double heads = (double)s->stack[0].heads * head;
    s->std.table = s->std.head = factor;
    s->std.q = factor / sqrt(width * head);
    s->std.kv = s->std.up = s->std.relative = factor / sqrt(width);
    s->std.out = factor / sqrt(heads);
    s->std.down = factor / sqrt((double)s->stack[0].inner);
}

static sw_status read_layers(struct sw_json_doc *doc, const struct sw_json *config, const char *act,
                             struct sw_seq2seq *m)
{
    const struct sw_model_key *encoder = &m->super.ops->sizes[SW_SIZE_LAYERS];
    static const struct sw_model_key layers = {"num_decoder_layers", NULL, 0};
    static const struct sw_model_key head = {"d_kv", "head_dim", 64};
    static const struct sw_model_key buckets = {"relative_attention_num_buckets", NULL, 32};
    static const struct sw_model_key distance = {"relative_attention_max_distance", NULL, 128};
    struct sw_seq2seq_spec *s = &m->spec;
    double factor = 1;
    int64_t same = 0;
    SW_TRY(sw_model_read_size(doc, config, &head, head.fallback, &s->stack[0].head_width));
    s->stack[0].scale = 1;
    s->stack[1] = s->stack[0];
    /* as many as num_layers says; transformers reads the other name of that key too late */
    SW_TRY(sw_json_get_i64(doc, config, encoder->key, encoder->fallback, &same));
    SW_TRY(sw_model_read_size(doc, config, &layers, same, &s->stack[1].layers));
    SW_TRY(sw_model_read_size(doc, config, &buckets, buckets.fallback, &s->buckets));
    SW_TRY(sw_model_read_size(doc, config, &distance, distance.fallback, &s->distance));
    SW_TRY(read_act(doc, config, act, s));
    SW_TRY(sw_model_read_amount(doc, config, "layer_norm_epsilon", 1e-6, &s->eps));
    SW_TRY(sw_model_read_dropout(doc, config, "dropout_rate", 0.1, &s->dropout));
    SW_TRY(sw_model_read_amount(doc, config, "initializer_factor", 1, &factor));
    if (s->buckets < 4 || s->distance <= s->buckets / 2) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: %s is %lld, %s %lld; wanted 4 or more, and more than half of it",
                       sw_json_name(doc), buckets.key, (long long)s->buckets, distance.key,
                       (long long)s->distance);
    }
    m->super.pad_id = m->super.pad_id < 0 ? 0 : m->super.pad_id;
    m->super.eos_id = m->super.eos_id < 0 ? 1 : m->super.eos_id;
    m->super.start_id = m->super.start_id < 0 ? m->super.pad_id : m->super.start_id;
    s->attention_dropout = s->act_dropout = s->dropout;
    m->super.is_endless = true;
    s->padding_id = -1;
    s->pre_norm = s->plain = true;
    m->super.ties_absent_head = true;
    set_stds(m, factor);
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config, struct sw_seq2seq *m)
{
    static const char scale_key[] = "scale_decoder_outputs";
    bool scaled = m->super.tied;
    SW_TRY(read_layers(doc, config, "relu", m));
    SW_TRY(sw_json_get_bool(doc, config, scale_key, scaled, &scaled));
    m->super.scale_key = scale_key;
    m->super.scales_head = scaled;
    m->spec.head_scale = scaled ? 1 / sqrt((double)m->super.width) : 1;
    return SW_OK;
}

/* mT5 (Xue et al. 2020): T5 1.1 with other words. Its output is never scaled. */
static sw_status read_mt5(struct sw_json_doc *doc, const struct sw_json *config,
                          struct sw_seq2seq *m)
{
    return read_layers(doc, config, "gated-gelu", m);
}

/* The hub's first files contain a cross-attention bias, which no model uses. */
static const char *const ignored[] = {"*EncDecAttention.relative_attention_bias.weight", NULL};

#define T5_NAMES                                                                                   \
    {                                                                                              \
        .table = "shared", .stack = {"encoder", "decoder"}, .final_norm = "final_layer_norm",      \
        .layers = "block", .self = "layer.0.SelfAttention", .self_norm = "layer.0.layer_norm",     \
        .cross = "layer.1.EncDecAttention", .cross_norm = "layer.1.layer_norm", .q = "q",          \
        .k = "k", .v = "v", .out = "o",                                                            \
        .relative = "layer.0.SelfAttention.relative_attention_bias",                               \
        .gate = {"layer.1.DenseReluDense.wi_0", "layer.2.DenseReluDense.wi_0"},                    \
        .gated = {"layer.1.DenseReluDense.wi_1", "layer.2.DenseReluDense.wi_1"},                   \
        .up = {"layer.1.DenseReluDense.wi", "layer.2.DenseReluDense.wi"},                          \
        .down = {"layer.1.DenseReluDense.wo", "layer.2.DenseReluDense.wo"},                        \
        .mlp_norm = {"layer.1.layer_norm", "layer.2.layer_norm"}, .head = "lm_head",               \
    }

const struct sw_seq2seq_family sw_family_t5 = {
    SW_SEQ2SEQ_OPS("t5"),
    .ops.classes = {{"T5ForConditionalGeneration", "seq2seq"}},
    .ops.sizes = {[SW_SIZE_WIDTH] = {"d_model", "hidden_size", 512},
                  [SW_SIZE_LAYERS] = {"num_layers", "num_hidden_layers", 6},
                  [SW_SIZE_HEADS] = {"num_heads", "num_attention_heads", 8},
                  [SW_SIZE_INNER] = {"d_ff", NULL, 2048},
                  [SW_SIZE_VOCAB] = {"vocab_size", NULL, 32128},
                  [SW_SIZE_TOKENS] = {"n_positions", NULL, 512}},
    .names = T5_NAMES,
    .ignored = ignored,
    .read = read,
};

const struct sw_seq2seq_family sw_family_mt5 = {
    SW_SEQ2SEQ_OPS("mt5"),
    .ops.classes = {{"MT5ForConditionalGeneration", "seq2seq"}},
    .ops.sizes = {[SW_SIZE_WIDTH] = {"d_model", "hidden_size", 512},
                  [SW_SIZE_LAYERS] = {"num_layers", "num_hidden_layers", 8},
                  [SW_SIZE_HEADS] = {"num_heads", "num_attention_heads", 6},
                  [SW_SIZE_INNER] = {"d_ff", NULL, 1024},
                  [SW_SIZE_VOCAB] = {"vocab_size", NULL, 250112},
                  [SW_SIZE_TOKENS] = {"n_positions", NULL, 512}},
    .names = T5_NAMES,
    .ignored = ignored,
    .read = read_mt5,
};
