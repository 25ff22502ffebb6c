// SPDX-License-Identifier: Apache-2.0
// encoder - encoder families as data, as decoder.h for decoders. struct sw_encoder_spec is the
// computation, struct sw_encoder_names the tensor names; encoder.c builds the graph from both, with
// the task's head. Part of model.h.
#pragma once

#include "model/model.h"
#include "nn/nn.h"

/* Scores by distance of tokens, and DeBERTa's other features (deberta.c). */
struct sw_encoder_distances {
    int64_t buckets, places, span; /* buckets 0 = one row per distance; the table has 2 span rows */
    /* terms: queries with distances (c2p), keys with distances (p2c) */
    bool with_keys, with_queries;
    int terms; /* scores are divided by its root: the terms of pos_att_type plus one */
    bool is_shared, is_normed; /* the tables go through the key and query layers */
    bool adds_positions;       /* adds positions to the embedding */
    int64_t window;            /* of the convolution; 0 = none */
    enum sw_act window_act;
};

/* The computation: BERT (Devlin et al. 2018), with post-norm branches. */
struct sw_encoder_spec {
    int64_t heads, inner;
    int64_t types; /* rows of the token type table; 0 = no table */
    double eps;
    enum sw_act act;
    enum sw_act pool_act; /* on the first token's row, before the classifier */
    enum sw_act mask_act; /* on each token's row, before masked tokens are predicted */
    /* Positions count the tokens that are not the padding id, starting at the row after it;
     * otherwise they are 0, 1, .. */
    bool counts_tokens;
    int64_t padding_id; /* the lookup gives its embedding no gradient; -1 = none */
    double init_range;
    bool begins_with_sines; /* the position table starts as sines; it is trained like any other */
    double embedding_dropout, attention_dropout, hidden_dropout;
    double pool_dropout;       /* before the pooling layer */
    bool keeps_mlp;            /* hidden_dropout leaves the MLP's branch as it is */
    double classifier_dropout; /* before the text classifier */
    double tokens_dropout;     /* before the token classifier */
    double answers_dropout;    /* before the answer positions */
    struct sw_encoder_distances distances;
    int64_t buckets, bucket_distance; /* a bias of scores by distance, as T5's; 0 = none */
    /* ALBERT: layers take turns in groups, and a layer of `parts` parts uses those of its group; 0
     * groups = each layer has its own */
    int64_t groups, parts;
};

/* Names of tensors, without ".weight" and ".bias". Names from `layers` on follow the trunk's name;
 * a layer's names follow "<layers>.<number>."; names of heads are complete. NULL: there is no such
 * tensor. */
struct sw_encoder_names {
    const char *trunk; /* absent in files that hold only the trunk */
    const char *embedding, *positions, *types, *embedding_norm, *layers;
    const char *project;  /* from the width of the tables to that of the layers */
    const char *relative; /* table of the bias by distance */
    const char *q, *k, *v, *out, *attention_norm;
    const char *up, *down, *mlp_norm;
    const char *pooler;                 /* module in the trunk that contains `pool`, or NULL */
    const char *pool, *classifier;      /* for the first token's row */
    const char *tokens, *answers;       /* for each token's row */
    const char *mask_dense, *mask_norm; /* masked tokens: before the vocabulary product */
    const char *mask_head, *mask_bias;  /* NULL mask_head: the embedding's table */
    const char *next;                   /* on the pooled row: next sentence prediction */
    const char *head;                   /* module of the text classifier */
};

struct sw_encoder;

struct sw_encoder_family {
    struct sw_model_ops ops; /* SW_ENCODER_OPS of its model_type */
    struct sw_encoder_names names;
    const char *const *ignored; /* globs of file tensors to ignore; NULL-terminated */
    const char *const *aliases; /* pairs: a parameter's name and an alternative; NULL-terminated */
    int64_t padding_id;         /* default if config.json does not say */
    sw_status (*read)(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_encoder *encoder);
};

struct sw_encoder {
    struct sw_model super;
    const struct sw_encoder_family *family;
    struct sw_encoder_spec spec;
    struct sw_encoder_names names;
    int64_t table_width; /* of embeddings, and of the head of masked tokens */
    char embedding[96], mask_head[96], mask_bias[96], pooler[96]; /* full names */
};

sw_status sw_encoder_read(struct sw_json_doc *doc, const struct sw_json *config,
                          const struct sw_model_options *options, struct sw_model *model);
void sw_encoder_forward(const struct sw_model *model, sw_graph *g,
                        const struct sw_forward_spec *spec, sw_value *out_loss);
const char *sw_encoder_alias(const struct sw_model *model, const char *name, int i, char *buf,
                             size_t cap);
bool sw_encoder_ignores(const struct sw_model *model, const char *file_name);

#define SW_ENCODER_OPS(type)                                                                       \
    .ops.model_type = (type), .ops.bytes = sizeof(struct sw_encoder), .ops.read = sw_encoder_read, \
    .ops.forward = sw_encoder_forward, .ops.alias = sw_encoder_alias,                              \
    .ops.ignores = sw_encoder_ignores

/* Names of trunk tensors and keys of config.json that BERT and RoBERTa share. */
#define SW_BERT_TRUNK                                                                              \
    .embedding = "embeddings.word_embeddings", .positions = "embeddings.position_embeddings",      \
    .types = "embeddings.token_type_embeddings", .embedding_norm = "embeddings.LayerNorm",         \
    .layers = "encoder.layer", .q = "attention.self.query", .k = "attention.self.key",             \
    .v = "attention.self.value", .out = "attention.output.dense",                                  \
    .attention_norm = "attention.output.LayerNorm", .up = "intermediate.dense",                    \
    .down = "output.dense", .mlp_norm = "output.LayerNorm"
/* Names of the heads' tensors that BERT and DeBERTa share. */
#define SW_BERT_HEADS                                                                              \
    .classifier = "classifier", .tokens = "classifier", .answers = "qa_outputs",                   \
    .mask_dense = "cls.predictions.transform.dense",                                               \
    .mask_norm = "cls.predictions.transform.LayerNorm", .mask_head = "cls.predictions.decoder",    \
    .mask_bias = "cls.predictions.bias", .head = "classifier"
sw_status sw_bert_read(struct sw_json_doc *doc, const struct sw_json *config,
                       struct sw_encoder *encoder);

extern const struct sw_encoder_family sw_family_bert, sw_family_roberta, sw_family_xlm_roberta,
    sw_family_camembert, sw_family_distilbert, sw_family_deberta, sw_family_electra,
    sw_family_albert, sw_family_mpnet;

/* ---- layers (encoder.c) ---- */

/* State that the layers of one forward share. */
struct sw_encoder_build {
    const struct sw_encoder *m;
    sw_graph *g;
    const struct sw_forward_spec *spec;
    sw_value mask, segments;
    sw_value bias; /* of scores, SW_NO_VALUE = none */
    struct sw_layer_names names;
};

/* A product that begins a branch: ranks have columns, whole units of them. suffix: in the layer */
sw_value sw_encoder_columns(struct sw_encoder_build *b, const char *suffix, sw_value x, int64_t out,
                            int64_t unit);
/* A product that ends a branch: ranks have rows. */
sw_value sw_encoder_rows(struct sw_encoder_build *b, const char *suffix, sw_value x, int64_t in,
                         int64_t unit);
/* name: complete */
sw_value sw_encoder_norm(struct sw_encoder_build *b, const char *name, sw_value x);

/* ---- heads (encoder_heads.c) ---- */

/* x [..,in] -> [..,out], with the initial values of the family. */
sw_value sw_encoder_linear(const struct sw_encoder *m, sw_graph *g, const char *name, sw_value x,
                           int64_t in, int64_t out);
/* The head of the model's task on h [B,T,C], with the embedding's table [V,C]. Returns the loss,
 * which is output "loss". */
sw_value sw_encoder_head(const struct sw_encoder *m, sw_graph *g,
                         const struct sw_forward_spec *spec, sw_value h, sw_value table);
