// SPDX-License-Identifier: Apache-2.0
// seq2seq - encoder-decoder families as data. struct sw_seq2seq_spec is the computation, struct
// sw_seq2seq_names the tensor names; seq2seq.c builds the graph from both. The decoder gets the
// labels shifted right; for classification it gets the text itself. Part of model.h.
#pragma once

#include "model/model.h"
#include "nn/nn.h"

/* The two stacks. */
enum { SW_ENCODER_STACK, SW_DECODER_STACK, SW_N_STACKS };

/* The computation: Transformer (Vaswani et al. 2017), with norms before or after its branches, and
 * positions from a table that is learned or made of sines, or biases of scores by distance. */
struct sw_seq2seq_spec {
    struct {
        int64_t layers, heads, head_width, inner;
        double scale; /* factor of scores */
    } stack[SW_N_STACKS];
    int64_t buckets, distance; /* relative positions and largest distance; 0 buckets = learned */
    int64_t position_offset;   /* rows of the table of positions before position 0 */
    bool sines;                /* positions begin as those of Vaswani et al. */
    bool keeps_sines;          /* and are not trained */
    bool pre_norm;             /* norms before branches instead of after */
    bool plain;                /* RMS norms, no biases in any layer, dropout after the final norm */
    bool gated;
    bool begins_with_last; /* the decoder's input begins with the last label of a row */
    enum sw_act act;
    double embedding_scale, head_scale; /* factors of embedded rows, and of a tied head's input */
    double eps;
    int64_t padding_id; /* the lookup gives its table row no gradient; -1 = none */
    double dropout, attention_dropout, act_dropout, classifier_dropout;
    struct {
        double table, q, kv, out, up, down, relative, head;
    } std; /* standard deviations of the initial weights */
};

/* Names of tensors, without ".weight" and ".bias". Names from `layers` on follow the stack's name;
 * a layer's names follow "<layers>.<number>.". NULL: there is no such tensor. */
struct sw_seq2seq_names {
    const char *trunk; /* module of everything but the heads, or NULL */
    const char *table;
    const char *stack[SW_N_STACKS];
    const char *positions, *embedding_norm, *final_norm, *layers;
    const char *self, *self_norm, *cross, *cross_norm; /* attentions and their norms */
    const char *q, *k, *v, *out;                       /* follow the attention's name */
    const char *relative;
    const char *up[SW_N_STACKS], *down[SW_N_STACKS], *mlp_norm[SW_N_STACKS];
    const char *gate[SW_N_STACKS],
        *gated[SW_N_STACKS];  /* instead of `up`: the gate, and the other factor */
    const char *head;         /* an untied head */
    const char *logits_bias;  /* full name; a buffer [1,V] that is not trained */
    const char *pool, *tells; /* classifier: first and last layer; full names */
    const char *classifier;   /* module of both */
};

struct sw_seq2seq;

struct sw_seq2seq_family {
    struct sw_model_ops ops; /* SW_SEQ2SEQ_OPS of its model_type */
    struct sw_seq2seq_names names;
    const char *const *ignored; /* globs of file tensors to ignore; NULL-terminated */
    sw_status (*read)(struct sw_json_doc *doc, const struct sw_json *config, struct sw_seq2seq *m);
};

struct sw_seq2seq {
    struct sw_model super;
    const struct sw_seq2seq_family *family;
    struct sw_seq2seq_spec spec;
    char embedding[64], head[64]; /* full names */
};

sw_status sw_seq2seq_read(struct sw_json_doc *doc, const struct sw_json *config,
                          const struct sw_model_options *options, struct sw_model *model);
void sw_seq2seq_forward(const struct sw_model *model, sw_graph *g,
                        const struct sw_forward_spec *spec, sw_value *out_loss);
const char *sw_seq2seq_alias(const struct sw_model *model, const char *name, int i, char *buf,
                             size_t cap);
bool sw_seq2seq_ignores(const struct sw_model *model, const char *file_name);

#define SW_SEQ2SEQ_OPS(type)                                                                       \
    .ops.model_type = (type), .ops.bytes = sizeof(struct sw_seq2seq), .ops.read = sw_seq2seq_read, \
    .ops.forward = sw_seq2seq_forward, .ops.alias = sw_seq2seq_alias,                              \
    .ops.ignores = sw_seq2seq_ignores

extern const struct sw_seq2seq_family sw_family_bart, sw_family_mbart, sw_family_pegasus,
    sw_family_marian, sw_family_t5, sw_family_mt5;

/* The rows of a table of `buckets` distances for keys from n - 1 before a query to n - 1 after
 * it, a constant i32 [2 n - 1] (Raffel et al. 2019). both_ways: keys after a query have buckets */
sw_value sw_bucket_ids(sw_graph *g, const char *what, int64_t buckets, int64_t distance,
                       bool both_ways, int64_t n);
