// SPDX-License-Identifier: Apache-2.0
// A graph of an ONNX file as a model: patterns of its nodes (match.c, attention_match.c) become
// layers (build.c) in a forward graph of ours. Nothing runs by nodes. Private to the room.
#pragma once

#include "model/model.h"
#include "nn/nn.h"
#include "onnx/onnx.h"
#include "onnx/read.h"

/* A parameter: an initializer, in the orientation that the model has it. */
struct sw_onnx_param {
    const char *name;
    int32_t value;   /* of the file's graph */
    bool transposed; /* the file has it as [in,out], the model as [out,in] */
    int32_t copy;    /* an initializer with the same elements, transposed; -1 = none */
};

struct sw_onnx_import {
    struct sw_model super;
    struct sw_onnx_graph *graph;
    struct sw_arena arena; /* names of parameters */
    struct sw_onnx_param *params;
    int32_t n_params;
    struct sw_names names; /* of parameters, with their numbers */
    int32_t tables[8];     /* [n_tables] parameters that rows are looked up in */
    int n_tables;
    int32_t *param_of;  /* [n_values] parameter of an initializer, -1 = none yet */
    int32_t outputs[2]; /* values that the task's losses compare, or the hidden states */
    int32_t n_outputs;
    char class_name[64];
};

struct sw_onnx_plan;
struct sw_onnx_build;
struct sw_onnx_match;

/* A row of the table of patterns (match.c). The first that matches a value is taken. */
struct sw_onnx_pattern {
    const char *name;  /* for people */
    const char *ops;   /* operators of its last node, with spaces around each */
    const char *wants; /* a noun phrase: what it is made of */
    bool (*match)(const struct sw_onnx_plan *p, int32_t value, struct sw_onnx_match *out);
    sw_value (*emit)(struct sw_onnx_build *b, const struct sw_onnx_match *m);
};

/* Ids of a lookup: an input; first, first + 1, ..; constants; numbers of tokens that are not
 * padding; `first` for each token. */
enum { ONNX_IDS_GIVEN, ONNX_IDS_COUNTED, ONNX_IDS_CONSTANT, ONNX_IDS_REAL, ONNX_IDS_SAME };
enum { ONNX_MATCH_IN = 12 };
enum { ONNX_STEPS = 16 }; /* the most nodes in a row that change no more than scale or layout */
/* A value as a pattern has it. */
struct sw_onnx_match {
    const struct sw_onnx_pattern *by;
    int32_t value, node;
    int32_t in[ONNX_MATCH_IN]; /* [n_in] values that are built before */
    int n_in;
    int32_t weight, bias; /* initializers, or -1 */
    bool in_out;          /* the weight is [in,out] in the file */
    double number;        /* eps or factor */
    enum sw_act act;
    int dim;       /* of a slice; of a lookup, ONNX_IDS_.. */
    int64_t first; /* of a slice; of positions */
    int order[4];  /* transpose: dim d of the result is dim order[d] of in[0] */
    const struct sw_onnx_data *data[2]; /* constants: ids; cosines and sines */
    struct {
        int64_t heads, kv_heads, window;
        bool causal, has_mask;
        bool packed;                   /* in[0] has queries, keys and values side by side */
        bool flat;                     /* in[] and the result are [B,T,H D] */
        int of_q[4], of_k[4], of_v[4]; /* dims of in[i] that are batch, token, head, column */
    } attention;
};

enum { ONNX_PROBES = 2 };
/* A folded graph, and what its values are made of. */
struct sw_onnx_plan {
    const struct sw_onnx_import *of;
    struct sw_onnx_graph *graph;
    /* The same with all inputs constant. Masks and positions are recognised by their values: the
     * first probe has a mask of ones, the second one has holes. */
    struct sw_onnx_graph *probes[ONNX_PROBES];
    int64_t batch, tokens, probe_batch;
    int64_t *probe_ids, *probe_mask; /* [probe_batch, tokens] */
    int64_t pad;                     /* the id of padding in probe_ids */
    int32_t *match_of;               /* [n_values], -1 = none */
    struct sw_onnx_match *matches;   /* [n] in the order of nodes */
    int32_t n;
    /* Repeated blocks: n_blocks times `period` matches from `first` on. */
    int32_t first, period, n_blocks;
    struct sw_arena arena;
};

/* Sizes of a plan; a decoder may have no mask. */
struct sw_onnx_plan_spec {
    int64_t batch, tokens;
    bool has_mask;
    /* Inputs that the task has; NULL: all. */
    const struct sw_task *task;
};
/* SW_E_UNSUP: a node that no pattern takes. */
sw_status sw_onnx_plan_open(const struct sw_onnx_import *of, const struct sw_onnx_plan_spec *spec,
                            struct sw_onnx_plan **out);
void sw_onnx_plan_close(struct sw_onnx_plan *plan);
/* The modules that all nodes of block i are in: the first so many characters of *out. */
size_t sw_onnx_block_name(const struct sw_onnx_plan *p, int32_t i, const char **out);

/* ---- match.c ---- */

/* Finds what a value is made of. False: no pattern takes it. */
bool sw_onnx_match_value(const struct sw_onnx_plan *p, int32_t value, struct sw_onnx_match *out);
/* Appends the patterns that come nearest to a node. */
void sw_onnx_nearest(const struct sw_onnx_graph_node *node, struct sw_str *out);

const struct sw_onnx_graph_value *sw_onnx_value(const struct sw_onnx_plan *p, int32_t v);
/* The node that makes a value; NULL: none. */
const struct sw_onnx_graph_node *sw_onnx_maker(const struct sw_onnx_plan *p, int32_t v);
/* The same if it is of this operator. */
const struct sw_onnx_graph_node *sw_onnx_made_by(const struct sw_onnx_plan *p, int32_t v,
                                                 const char *op);
/* The single number that a constant consists of. */
bool sw_onnx_single(const struct sw_onnx_plan *p, int32_t v, double *out);
bool sw_onnx_is_single(const struct sw_onnx_plan *p, int32_t v, double wanted);
/* The value before casts between floats. */
int32_t sw_onnx_uncast(const struct sw_onnx_plan *p, int32_t v);
/* v is elements [*first, *first + *n) of the last dim of *x. */
bool sw_onnx_columns(const struct sw_onnx_plan *p, int32_t v, int32_t *x, int64_t *first,
                     int64_t *n);
/* The constant that operand i_in of a node is in a probe; NULL: it is none. */
const struct sw_onnx_data *sw_onnx_probe(const struct sw_onnx_plan *p, int i_probe, int32_t node,
                                         int i_in);
void sw_onnx_need(struct sw_onnx_match *m, int32_t v);

/* ---- match_attention.c ---- */
bool sw_onnx_match_attention(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m);
bool sw_onnx_match_whole_attention(const struct sw_onnx_plan *p, int32_t v,
                                   struct sw_onnx_match *m);
bool sw_onnx_match_rotary(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m);

/* ---- build.c ---- */

struct sw_onnx_build {
    const struct sw_onnx_plan *plan;
    const struct sw_forward_spec *spec;
    sw_graph *g;
    sw_value *built; /* [n_values] */
    struct sw_arena arena;
};
/* The value of our graph for a value of the file; weights, constants and inputs are built now. */
sw_value sw_onnx_use(struct sw_onnx_build *b, int32_t v);
void sw_onnx_forward(const struct sw_model *model, sw_graph *g, const struct sw_forward_spec *spec,
                     sw_value *out_loss);
/* x with dim d = dim order[d] of x. */
sw_value sw_onnx_permute(sw_graph *g, sw_value x, const int *order, int rank);
const struct sw_onnx_param *sw_onnx_param_of(const struct sw_onnx_build *b, int32_t weight);

/* ---- emission of rows (build.c) ---- */
#define ONNX_EMIT(name) sw_value name(struct sw_onnx_build *b, const struct sw_onnx_match *m)
ONNX_EMIT(sw_onnx_emit_same);
ONNX_EMIT(sw_onnx_emit_reshape);
ONNX_EMIT(sw_onnx_emit_transpose);
ONNX_EMIT(sw_onnx_emit_slice);
ONNX_EMIT(sw_onnx_emit_concat);
ONNX_EMIT(sw_onnx_emit_rows);
ONNX_EMIT(sw_onnx_emit_linear);
ONNX_EMIT(sw_onnx_emit_embedding);
ONNX_EMIT(sw_onnx_emit_layer_norm);
ONNX_EMIT(sw_onnx_emit_rms_norm);
ONNX_EMIT(sw_onnx_emit_act);
ONNX_EMIT(sw_onnx_emit_gate);
ONNX_EMIT(sw_onnx_emit_scale);
ONNX_EMIT(sw_onnx_emit_add);
ONNX_EMIT(sw_onnx_emit_mul);
ONNX_EMIT(sw_onnx_emit_conv);
ONNX_EMIT(sw_onnx_emit_masked_mean);
ONNX_EMIT(sw_onnx_emit_attention);
ONNX_EMIT(sw_onnx_emit_rotary);
