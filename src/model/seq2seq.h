// SPDX-License-Identifier: Apache-2.0
// seq2seq - families of an encoder and a decoder that reads it, as data: struct sw_seq2seq_spec
// says what is computed, struct sw_seq2seq_names how the tensors are called, and seq2seq.c builds
// the graph of both. The decoder is given the labels shifted right, or to tell classes the text
// itself. Part of model.h.
#pragma once

#include "model/model.h"
#include "nn/nn.h"

/* Encoder and decoder. */
enum { SW_ENCODER_STACK, SW_DECODER_STACK, SW_N_STACKS };

/* What is computed: Transformer (Vaswani et al. 2017) with learned positions and sums normalised
 * behind each branch, or with RMS norms before it, one at the end, and biases of scores by
 * distance. */
struct sw_seq2seq_spec {
    struct {
        int64_t layers, heads, head_width, inner;
        double scale; /* of scores */
    } stack[SW_N_STACKS];
    int64_t buckets,
        distance; /* of relative positions, and from where on there is one; 0 = learned */
    int64_t position_offset; /* rows of the table of positions before position 0 */
    bool pre_norm;           /* RMS norms before branches, no biases anywhere */
    bool gated;
    enum sw_act act;
    double embedding_scale, head_scale; /* of looked up rows; of what the tied head reads */
    double eps;
    int64_t padding_id; /* its row of the table gets no gradient from the look-up; -1 = none */
    double dropout, attention_dropout, act_dropout, classifier_dropout;
    struct {
        double table, q, kv, out, up, down, relative, head;
    } std; /* of the initial weights */
};

/* What tensors are called, without ".weight" and ".bias". Those from `layers` on stand behind the
 * stack's name, those of a layer behind "<layers>.<number>.". NULL: there is none such. */
struct sw_seq2seq_names {
    const char *trunk; /* module of all but the heads, or NULL */
    const char *table;
    const char *stack[SW_N_STACKS];
    const char *positions, *embedding_norm, *final_norm, *layers;
    const char *self, *self_norm, *cross, *cross_norm; /* attentions, and their norms */
    const char *q, *k, *v, *out;                       /* behind the attention's name */
    const char *relative;
    const char *up[SW_N_STACKS], *down[SW_N_STACKS], *mlp_norm[SW_N_STACKS];
    const char *gate[SW_N_STACKS],
        *gated[SW_N_STACKS];  /* instead of `up`: the gate, and the other */
    const char *head;         /* an untied one */
    const char *logits_bias;  /* whole; a buffer [1,V] that is not trained */
    const char *pool, *tells; /* of classes: the layer below, and the last; whole */
    const char *classifier;   /* module of both */
};

struct sw_seq2seq;

struct sw_seq2seq_family {
    struct sw_model_ops ops; /* SW_SEQ2SEQ_OPS of its model_type */
    struct sw_seq2seq_names names;
    const char *const *ignored; /* globs over tensors of files; ends with NULL */
    sw_status (*read)(struct sw_json_doc *doc, const struct sw_json *config, struct sw_seq2seq *m);
};

struct sw_seq2seq {
    struct sw_model super;
    const struct sw_seq2seq_family *family;
    struct sw_seq2seq_spec spec;
    char embedding[64], head[64]; /* whole names */
};

sw_status sw_seq2seq_open(const struct sw_model_ops *ops, struct sw_json_doc *doc,
                          const struct sw_json *config, const struct sw_model_options *options,
                          struct sw_model **out);
void sw_seq2seq_close(struct sw_model *model);
void sw_seq2seq_forward(const struct sw_model *model, sw_graph *g,
                        const struct sw_forward_spec *spec, sw_value *out_loss);
const char *sw_seq2seq_alias(const struct sw_model *model, const char *name, int i, char *buf,
                             size_t cap);
bool sw_seq2seq_ignores(const struct sw_model *model, const char *file_name);

#define SW_SEQ2SEQ_OPS(type)                                                                       \
    .ops.model_type = (type), .ops.open = sw_seq2seq_open, .ops.close = sw_seq2seq_close,          \
    .ops.forward = sw_seq2seq_forward, .ops.alias = sw_seq2seq_alias,                              \
    .ops.ignores = sw_seq2seq_ignores

extern const struct sw_seq2seq_family sw_family_bart, sw_family_t5;
