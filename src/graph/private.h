// SPDX-License-Identifier: Apache-2.0
// What the files of the room share: gradient rules, and ops whose outputs are as their row says.
#pragma once

#include "graph/graph.h"

/* Gradient rules (grad.c), by what they are rows of. */
#define SW_GRADIENT_RULES(X)                                                                       \
    X(view)                                                                                        \
    X(pass)                                                                                        \
    X(cast)                                                                                        \
    X(embedding)                                                                                   \
    X(matmul)                                                                                      \
    X(add)                                                                                         \
    X(scale)                                                                                       \
    X(act)                                                                                         \
    X(layer_norm)                                                                                  \
    X(dropout)                                                                                     \
    X(attention)                                                                                   \
    X(select_rows)                                                                                 \
    X(cross_entropy)                                                                               \
    X(linear_ce)                                                                                   \
    X(loss_mean)                                                                                   \
    X(user)                                                                                        \
    X(rms_norm)                                                                                    \
    X(mul)                                                                                         \
    X(gated_act)                                                                                   \
    X(rotary)                                                                                      \
    X(mask_rows)                                                                                   \
    X(concat)                                                                                      \
    X(masked_mean)                                                                                 \
    X(element_loss)                                                                                \
    X(relative_bias)                                                                               \
    X(relative_scores)                                                                             \
    X(im2col)                                                                                      \
    X(pool)                                                                                        \
    X(lstm)
#define SW_GRADIENT_RULE(name)                                                                     \
    void sw_grad_##name(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,         \
                        sw_value *d_in);
SW_GRADIENT_RULES(SW_GRADIENT_RULE)
#undef SW_GRADIENT_RULE

/* Sums and statistics are kept in this dtype. */
static inline enum sw_dtype sw_stat_dtype(enum sw_dtype of)
{
    return of == SW_F64 ? SW_F64 : SW_F32;
}

/* Room for one more in an array of the graph that has n; a failure fails the graph. */
bool sw_graph_grow(struct sw_graph *g, void **array, int32_t n, size_t elem_bytes);

/* ---- checks of builders: `what` is whose operands they are ---- */

/* False after a failure, or where v is no value of the graph, which is a failure. */
bool sw_graph_usable(struct sw_graph *g, sw_value v, const char *what);
/* Both fail the graph, saying what was wanted and what a and b (b may be SW_NO_VALUE), or v, are.
 * They return SW_NO_VALUE. */
sw_value sw_graph_bad_shapes(struct sw_graph *g, const char *op, sw_value a, sw_value b,
                             const char *wanted);
sw_value sw_graph_bad_dtype(struct sw_graph *g, const char *op, sw_value v, const char *wanted);

/* x itself where it has the dtype, else a CAST of it. */
sw_value sw_graph_cast(struct sw_graph *g, sw_value x, enum sw_dtype dtype);

/* ---- gradient rules ---- */

bool sw_graph_wants(const struct sw_graph *g, sw_value v);
/* One output shaped like `like`, of its dtype or that of gradients; absent when nobody wants its
 * gradient. */
sw_value sw_graph_gradient_out(struct sw_graph *g, int32_t op, sw_value like);

/* Adds an op with the outputs that its row says; its index, -1 after a failure. */
int32_t sw_graph_emit(struct sw_graph *g, enum sw_op_kind kind, const sw_value *in, int n_in,
                      const struct sw_attrs *attrs);
/* Likewise, and its first output; SW_NO_VALUE after a failure. */
sw_value sw_graph_emit_one(struct sw_graph *g, enum sw_op_kind kind, const sw_value *in, int n_in,
                           const struct sw_attrs *attrs);
