// SPDX-License-Identifier: Apache-2.0
// nn/lora - low-rank adapters (Hu et al. 2021) with PEFT's semantics: which linear layers get one,
// their rank and scaling, and which parameters are trained whole beside them. Names of modules
// decide everything here, while a graph is built: families know nothing of it. Part of the room's
// interface, nn/nn.h.
#pragma once

#include "graph/graph.h"

/* Names as in PEFT: a list of modules or of their suffixes after a dot; or one pattern that matches
 * complete names (nn/pattern.h). */
struct sw_lora_names {
    const char *const *items;
    int n;
    bool is_pattern;
};

/* Another value for modules that match `pattern`, either whole or with a suffix after a dot. */
struct sw_lora_exception {
    const char *pattern;
    double value;
};

enum sw_lora_bias { SW_LORA_BIAS_NONE, SW_LORA_BIAS_ALL, SW_LORA_BIAS_ADAPTED };

/* All pointers are borrowed. */
struct sw_lora {
    struct sw_adapter super; /* made by sw_lora_init */
    double r, alpha, dropout;
    bool rslora;            /* scaling alpha / sqrt(r) instead of alpha / r */
    bool dora;              /* DoRA (Liu et al. 2024): W' = m (W + BA) / |W + BA| by rows */
    enum sw_lora_bias bias; /* which biases are trained */
    bool all_linear;        /* instead of target: all linear layers but the head */
    struct sw_lora_names target, exclude; /* of modules */
    const double *layers;                 /* [n_layers] block numbers; empty = all */
    int n_layers;
    struct sw_lora_names lists; /* patterns for names of lists of blocks; empty = any name */
    const struct sw_lora_exception *ranks, *alphas; /* the first match counts */
    int n_ranks, n_alphas;
    const char *const *saved; /* [n_saved] suffixes of names of modules trained whole */
    int n_saved;
    const char *head;   /* module of the output head, NULL = no own module */
    bool tells_classes; /* the head is a classifier */
    bool saves_head;
    const char *const *biased; /* [n_biased] modules whose biases are trained (bias ADAPTED), once a
                                  graph is built */
    int n_biased;
};

void sw_lora_init(struct sw_lora *lora);
/* "X.lora_A.weight", "X.lora_B.weight" or, of DoRA, "X.lora_magnitude_vector" */
bool sw_lora_is_adapter(const char *param);
bool sw_lora_is_magnitude(const char *param);
/* True for a parameter of a module that is trained whole. */
bool sw_lora_saves(const struct sw_lora *lora, const char *param);
/* Call it after the forward: SW_E_CONFIG names an entry that matched no layer. */
sw_status sw_lora_check(const struct sw_lora *lora, const struct sw_graph *g);

/* ---- for layers ---- */

struct sw_linear_spec;
struct sw_nn_layer {
    const char *prefix;     /* name of its module */
    sw_value x;             /* input */
    sw_value param, weight; /* the parameter; what the product reads, see sw_weight */
    sw_value bias;          /* SW_NO_VALUE = none */
    const struct sw_linear_spec *spec;
};
/* Returns the output of a linear layer, with its adapter if the graph has one for it. */
sw_value sw_nn_adapted(sw_graph *g, const struct sw_nn_layer *layer);
