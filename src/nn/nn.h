// SPDX-License-Identifier: Apache-2.0
// nn - layers as graph builders: a layer asks for its parameters by "<prefix>.weight",
// "<prefix>.bias" and emits its ops in a scope of its own. Nothing here knows where a parameter
// lives.
#pragma once

#include "graph/graph.h"

/* x [..,in] -> [..,out]; weight [out,in], or [in,out] with in_out (GPT-2's Conv1D). std of the
 * initial weights; biases start at zero. */
struct sw_linear_spec {
    int64_t in, out;
    bool in_out, no_bias;
    double std;
};
sw_value sw_nn_linear(sw_graph *g, const char *prefix, sw_value x,
                      const struct sw_linear_spec *spec);
sw_value sw_nn_layer_norm(sw_graph *g, const char *prefix, sw_value x, int64_t width, double eps);
/* The table "<prefix>.weight" [rows, width], N(0, std). */
sw_value sw_nn_table(sw_graph *g, const char *prefix, int64_t rows, int64_t width, double std);
