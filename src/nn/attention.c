// SPDX-License-Identifier: Apache-2.0
// Attention over a cache. Keys and values of all tokens so far are kept as states; those of new
// tokens are appended first. A cache is as wide as the key and value heads. Keys and values of
// another sequence are kept whole.
#include <stdio.h>

#include "nn/nn.h"

static const struct sw_shape *shape_of(const sw_graph *g, sw_value v)
{
    return &g->values[v].shape;
}

/* The layer's state for `what` ("key" or "value"), of kind `kind`. */
static sw_value open_state(sw_graph *g, const char *kind, const char *what, int64_t batch,
                           int64_t width, const struct sw_nn_cache *cache)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%lld.%s", kind, (long long)cache->layer, what);
    return sw_graph_state(g, name, sw_graph_dtype(g), SW_SHAPE(batch, cache->tokens, width),
                          SW_NO_VALUE);
}

/* The cache with x [B,T,width] appended. */
static sw_value append(sw_graph *g, sw_value cache, sw_value x, sw_value position)
{
    const sw_value in[3] = {cache, x, position};
    return sw_graph_add_out_in_place(g, sw_graph_add_op(g, SW_OP_KV_APPEND, in, 3, NULL), cache);
}

sw_value sw_nn_cached_packed(sw_graph *g, sw_value qkv, const struct sw_attention_spec *spec,
                             const struct sw_nn_cache *cache)
{
    if (qkv < 0) {
        return SW_NO_VALUE;
    }
    const int64_t kv = spec->kv_heads > 0 ? spec->kv_heads : spec->heads;
    const int64_t head = sw_shape_last(shape_of(g, qkv)) / (spec->heads + 2 * kv);
    const int64_t batch = shape_of(g, qkv)->dims[0], q = spec->heads * head, width = kv * head;
    sw_value all[2];
    for (int i = 0; i < 2; i++) {
        const sw_value state =
            open_state(g, "cache", i == 0 ? "key" : "value", batch, width, cache);
        all[i] = append(g, state, sw_slice(g, qkv, 2, q + i * width, width), spec->position);
    }
    return sw_attention(g, sw_slice(g, qkv, 2, 0, q), all[0], all[1], spec);
}

/* The cache with x [B,T,KV,D] or [B,T,KV D] appended, in the rank of x. */
static sw_value cached(sw_graph *g, const char *what, sw_value x,
                       const struct sw_attention_spec *spec, const struct sw_nn_cache *cache)
{
    if (x < 0) {
        return SW_NO_VALUE;
    }
    const struct sw_shape s = *shape_of(g, x);
    const int64_t width = s.rank == 4 ? s.dims[2] * s.dims[3] : s.dims[2];
    const sw_value flat = s.rank == 4 ? sw_reshape(g, x, SW_SHAPE(s.dims[0], s.dims[1], width)) : x;
    const sw_value all =
        append(g, open_state(g, "cache", what, s.dims[0], width, cache), flat, spec->position);
    return s.rank == 4
               ? sw_reshape(g, all, SW_SHAPE(s.dims[0], cache->tokens, s.dims[2], s.dims[3]))
               : all;
}

sw_value sw_nn_cached_attention(sw_graph *g, sw_value q, sw_value k, sw_value v,
                                const struct sw_attention_spec *spec,
                                const struct sw_nn_cache *cache)
{
    k = cached(g, "key", k, spec, cache);
    v = cached(g, "value", v, spec, cache);
    return sw_attention(g, q, k, v, spec);
}

void sw_nn_keep(sw_graph *g, const char *what, sw_value x, const struct sw_nn_cache *cache)
{
    static const int32_t start = 0;
    if (x < 0) {
        return;
    }
    const struct sw_shape s = *shape_of(g, x);
    append(g, open_state(g, "cross", what, s.dims[0], s.dims[2], cache), x,
           sw_constant(g, "cross.start", SW_I32, SW_SHAPE(1), &start));
}

sw_value sw_nn_kept(sw_graph *g, const char *what, int64_t batch, int64_t width,
                    const struct sw_nn_cache *cache)
{
    return open_state(g, "cross", what, batch, width, cache);
}
