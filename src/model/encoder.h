// SPDX-License-Identifier: Apache-2.0
// encoder - families of encoders as data, as decoder.h has those of decoders: struct
// sw_encoder_spec says what is computed, struct sw_encoder_names how the tensors are called, and
// encoder.c builds the graph of both, with the head that the task wants. Part of model.h.
#pragma once

#include "model/model.h"
#include "nn/nn.h"

/* Scores by how far tokens are apart, and what else DeBERTa has (deberta.c). */
struct sw_encoder_distances {
    int64_t buckets, places, span; /* 0 = a row for each distance; rows are 2 span */
    bool with_keys, with_queries;  /* terms: of queries with distances (c2p), of keys (p2c) */
    int terms; /* scores are divided by their root: those that pos_att_type names, and one more */
    bool is_shared, is_normed; /* the tables go through the layers of keys and queries */
    bool adds_positions;       /* to the embedding */
    int64_t window;            /* of the convolution; 0 = none */
    enum sw_act window_act;
};

/* What is computed: BERT (Devlin et al. 2018). Each branch is added to what it read, and the sum is
 * normalised. */
struct sw_encoder_spec {
    int64_t heads, inner;
    int64_t types; /* rows of the table of token types; 0 = there is none */
    double eps;
    enum sw_act act;
    enum sw_act pool_act; /* of the first token's row, before classes are told */
    enum sw_act mask_act; /* of each token's row, before masked ones are told */
    /* Positions count the tokens that are not the padding id, from the row behind it on; else they
     * are 0, 1, .. */
    bool counts_tokens;
    int64_t padding_id; /* its embedding gets no gradient from the look-up; -1 = none */
    double init_range;
    bool begins_with_sines; /* the table of positions; it is trained like any other */
    double embedding_dropout, attention_dropout, hidden_dropout;
    double pool_dropout;       /* before the pooling layer */
    double classifier_dropout; /* before the layer that tells classes of a text */
    double tokens_dropout;     /* of tokens */
    double answers_dropout;    /* places of answers */
    struct sw_encoder_distances distances;
};

/* What tensors are called, without ".weight" and ".bias". Those of `layers` on stand behind the
 * trunk's name, those of a layer behind "<layers>.<number>."; those of heads are whole. NULL: there
 * is none such. */
struct sw_encoder_names {
    const char *trunk; /* files of the trunk alone leave it out */
    const char *embedding, *positions, *types, *embedding_norm, *layers;
    const char *q, *k, *v, *out, *attention_norm;
    const char *up, *down, *mlp_norm;
    const char *pooler;                 /* module in the trunk that `pool` is of, or NULL */
    const char *pool, *classifier;      /* of the first token's row */
    const char *tokens, *answers;       /* of each token's row */
    const char *mask_dense, *mask_norm; /* of masked tokens, before .. */
    const char *mask_head, *mask_bias;  /* .. the embedding's table, or mask_head's own */
    const char *next;                   /* of the pooled row: does the text follow? */
    const char *head;                   /* module of what tells classes of a text */
};

struct sw_encoder;

struct sw_encoder_family {
    struct sw_model_ops ops; /* SW_ENCODER_OPS of its model_type */
    struct sw_encoder_names names;
    const char *const *ignored; /* globs over tensors of files; ends with NULL */
    const char *const *aliases; /* pairs: a parameter's name, another one of it; ends with NULL */
    int64_t padding_id;         /* where config.json does not say */
    sw_status (*read)(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_encoder *encoder);
};

struct sw_encoder {
    struct sw_model super;
    const struct sw_encoder_family *family;
    struct sw_encoder_spec spec;
    struct sw_encoder_names names;
    char embedding[96], mask_head[96], mask_bias[96], pooler[96]; /* whole names */
};

sw_status sw_encoder_open(const struct sw_model_ops *ops, struct sw_json_doc *doc,
                          const struct sw_json *config, const struct sw_model_options *options,
                          struct sw_model **out);
void sw_encoder_close(struct sw_model *model);
void sw_encoder_forward(const struct sw_model *model, sw_graph *g,
                        const struct sw_forward_spec *spec, sw_value *out_loss);
const char *sw_encoder_alias(const struct sw_model *model, const char *name, int i, char *buf,
                             size_t cap);
bool sw_encoder_ignores(const struct sw_model *model, const char *file_name);

#define SW_ENCODER_OPS(type)                                                                       \
    .ops.model_type = (type), .ops.open = sw_encoder_open, .ops.close = sw_encoder_close,          \
    .ops.forward = sw_encoder_forward, .ops.alias = sw_encoder_alias,                              \
    .ops.ignores = sw_encoder_ignores

/* What BERT and RoBERTa share: tensors of the trunk, and its keys of config.json. */
#define SW_BERT_TRUNK                                                                              \
    .embedding = "embeddings.word_embeddings", .positions = "embeddings.position_embeddings",      \
    .types = "embeddings.token_type_embeddings", .embedding_norm = "embeddings.LayerNorm",         \
    .layers = "encoder.layer", .q = "attention.self.query", .k = "attention.self.key",             \
    .v = "attention.self.value", .out = "attention.output.dense",                                  \
    .attention_norm = "attention.output.LayerNorm", .up = "intermediate.dense",                    \
    .down = "output.dense", .mlp_norm = "output.LayerNorm"
sw_status sw_bert_read(struct sw_json_doc *doc, const struct sw_json *config,
                       struct sw_encoder *encoder);

extern const struct sw_encoder_family sw_family_bert, sw_family_roberta, sw_family_distilbert,
    sw_family_deberta;

/* ---- heads (encoder_heads.c) ---- */

/* The head that the model's task has, on h [B,T,C]; table [V,C] of the embedding. Returns the
 * loss. */
sw_value sw_encoder_head(const struct sw_encoder *m, sw_graph *g,
                         const struct sw_forward_spec *spec, sw_value h, sw_value table);
