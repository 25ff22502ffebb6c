// SPDX-License-Identifier: Apache-2.0
// nn - layers as graph builders. A layer asks for its parameters by "<prefix>.weight" and
// "<prefix>.bias", and emits its ops in a scope of its own. Nothing here knows where a parameter is
// stored.
#pragma once

#include "graph/graph.h"

/* x [..,in] -> [..,out]; weight is [out,in], or [in,out] with in_out (GPT-2's Conv1D). std: of the
 * initial weights; biases start at zero. */
struct sw_linear_spec {
    int64_t in, out;
    bool in_out, no_bias;
    double std;
    /* Ranks of the tensor axis have runs of outputs (a product that begins a branch), or of inputs
     * (one that ends it), in multiples of so many; 0 = each rank has all. */
    int64_t columns, rows;
    /* columns: of two or three packed products, such as queries, keys and values, each is split; if
     * they are shorter than `out`, they repeat (struct sw_tensor_split). 0 = one group */
    int64_t groups[3];
};
/* Splits the parameters of a layer, or of its adapter, to match: dim_out and dim_in are their
 * dimensions of outputs and inputs, -1 = none. */
void sw_nn_split_linear(sw_graph *g, sw_value param, int dim_out, int dim_in,
                        const struct sw_linear_spec *spec);

sw_value sw_nn_linear(sw_graph *g, const char *prefix, sw_value x,
                      const struct sw_linear_spec *spec);
sw_value sw_nn_layer_norm(sw_graph *g, const char *prefix, sw_value x, int64_t width, double eps);
/* x [..,width]; the weight starts at one (with one_plus at zero, and the factor is 1 + weight). */
sw_value sw_nn_rms_norm(sw_graph *g, const char *prefix, sw_value x, int64_t width, double eps,
                        bool one_plus);
/* The table "<prefix>.weight" [rows, width], initialised to N(0, std). */
sw_value sw_nn_table(sw_graph *g, const char *prefix, int64_t rows, int64_t width, double std);
/* The same for a vocabulary, which ranks of the tensor axis split; the last part is padded. */
sw_value sw_nn_vocabulary(sw_graph *g, const char *prefix, int64_t rows, int64_t width, double std);
/* Splits a parameter with an entry for each word of a vocabulary, along that dimension. */
void sw_nn_split_words(sw_graph *g, sw_value param, int dim);

/* Keys and values of up to `tokens` tokens, in states "cache.<layer>.key" and ".value" [B,tokens,KV
 * D]. */
struct sw_nn_cache {
    int64_t layer, tokens;
};
/* Attention of new tokens at spec->position: their keys and values are appended first. qkv as in
 * sw_attention_packed; q, k, v as in sw_attention. */
sw_value sw_nn_cached_packed(sw_graph *g, sw_value qkv, const struct sw_attention_spec *spec,
                             const struct sw_nn_cache *cache);
sw_value sw_nn_cached_attention(sw_graph *g, sw_value q, sw_value k, sw_value v,
                                const struct sw_attention_spec *spec,
                                const struct sw_nn_cache *cache);

/* Keeps keys or values (what: "key", "value") of another sequence that all tokens see. x
 * [B,tokens,W] becomes the state "cross.<layer>.<what>". */
void sw_nn_keep(sw_graph *g, const char *what, sw_value x, const struct sw_nn_cache *cache);
/* Reads the state that sw_nn_keep wrote. */
sw_value sw_nn_kept(sw_graph *g, const char *what, int64_t batch, int64_t width,
                    const struct sw_nn_cache *cache);

#include "nn/lora.h"
