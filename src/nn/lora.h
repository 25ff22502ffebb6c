// SPDX-License-Identifier: Apache-2.0
// nn/lora - low-rank adapters (Hu et al. 2021) with the meaning that PEFT gives them: which linear
// layers get one, their rank and scaling, and which parameters are trained whole beside them. All
// is decided by the names of modules, in this one place, while a graph is built: families know
// nothing of it. Part of the room's door, nn/nn.h.
#pragma once

#include "graph/graph.h"

/* Names as PEFT has them: a list, where an entry is a module or ends one behind a dot; or one
 * pattern that matches whole names (nn/pattern.h). */
struct sw_lora_names {
    const char *const *items;
    int n;
    bool is_pattern;
};

/* For modules that end in what `pattern` matches, behind a dot or whole, the value is another. */
struct sw_lora_exception {
    const char *pattern;
    double value;
};

/* Everything is borrowed. */
struct sw_lora {
    struct sw_adapter super; /* sw_lora_init */
    double r, alpha, dropout;
    bool rslora;                          /* scaling alpha / sqrt(r), not alpha / r */
    bool all_linear;                      /* instead of target: all layers but the head */
    struct sw_lora_names target, exclude; /* of modules */
    const double *layers;                 /* [n_layers] of blocks; none = all */
    int n_layers;
    struct sw_lora_names lists; /* patterns of what lists of blocks are called; none = any name */
    const struct sw_lora_exception *ranks, *alphas; /* the first that matches counts */
    int n_ranks, n_alphas;
    const char *const *saved; /* [n_saved] ends of names of modules that are trained whole */
    int n_saved;
    const char *head;   /* module of the output head, NULL = none of its own */
    bool tells_classes; /* what the head does */
    bool saves_head;
};

void sw_lora_init(struct sw_lora *lora);
/* "X.lora_A.weight" or "X.lora_B.weight" */
bool sw_lora_is_adapter(const char *param);
/* The parameter is one of a module that is trained whole. */
bool sw_lora_saves(const struct sw_lora *lora, const char *param);
/* After the forward: SW_E_CONFIG names what found no layer in it. */
sw_status sw_lora_check(const struct sw_lora *lora, const struct sw_graph *g);

/* ---- for layers ---- */

struct sw_linear_spec;
struct sw_nn_layer {
    const char *prefix; /* its module */
    sw_value x, y;      /* what goes in, and comes out without an adapter */
    sw_value weight;
    const struct sw_linear_spec *spec;
};
/* What comes out with its adapter, where the graph has one for it; else y. */
sw_value sw_nn_lora(sw_graph *g, const struct sw_nn_layer *layer);
