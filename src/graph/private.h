// SPDX-License-Identifier: Apache-2.0
// Shared by the files of this folder: gradient rules, and helpers for ops whose outputs follow from
// their row.
#pragma once

#include "graph/graph.h"

/* Names of the gradient rules; rule x is the function sw_grad_x. */
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
    X(preference)                                                                                  \
    X(relative_bias)                                                                               \
    X(relative_scores)                                                                             \
    X(im2col)                                                                                      \
    X(pool)                                                                                        \
    X(lstm)                                                                                        \
    X(exchange)                                                                                    \
    X(router)                                                                                      \
    X(to_experts)                                                                                  \
    X(from_experts)                                                                                \
    X(expert_matmul)                                                                               \
    X(router_stats)                                                                                \
    X(router_loss)                                                                                 \
    X(clamped_gate)                                                                                \
    X(attention_sink)                                                                              \
    X(slice_grad)
#define SW_GRADIENT_RULE(name)                                                                     \
    void sw_grad_##name(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,         \
                        sw_value *d_in);
SW_GRADIENT_RULES(SW_GRADIENT_RULE)
#undef SW_GRADIENT_RULE

/* The dtype of sums and statistics. */
static inline enum sw_dtype sw_stat_dtype(enum sw_dtype of)
{
    return of == SW_F64 ? SW_F64 : SW_F32;
}

/* Makes room for one more element in an array of the graph that has n; a failure fails the
 * graph. */
bool sw_graph_grow(struct sw_graph *g, void **array, int32_t n, size_t elem_bytes);

/* Splits what DEQUANTIZE reads like the weight that it makes, between whole blocks. Codes whose
 * blocks go beyond a row stay whole. */
void sw_graph_split_quantized(struct sw_graph *g, const struct sw_op *decode,
                              const struct sw_tensor_split *split);

/* ---- checks of builders; `what` names the op ---- */

/* False if the graph has failed, or if v is not a value of the graph, which fails it. */
bool sw_graph_usable(struct sw_graph *g, sw_value v, const char *what);
/* Writes the numbers that divide n, such as "1, 2, 4". Returns buf. */
const char *sw_list_divisors(int64_t n, char *buf, size_t cap);
/* Both fail the graph with a message that has the shapes wanted and found: of a and b (b may be
 * SW_NO_VALUE), or of v. They return SW_NO_VALUE. */
sw_value sw_graph_bad_shapes(struct sw_graph *g, const char *op, sw_value a, sw_value b,
                             const char *wanted);
sw_value sw_graph_bad_dtype(struct sw_graph *g, const char *op, sw_value v, const char *wanted);

/* x itself if it has the dtype, else a CAST of it. */
sw_value sw_graph_cast(struct sw_graph *g, sw_value x, enum sw_dtype dtype);

/* ---- gradient rules ---- */

bool sw_graph_wants(const struct sw_graph *g, sw_value v);
/* Adds an output shaped like `like`, in its dtype or that of gradients. It is absent if its
 * gradient is not wanted. */
sw_value sw_graph_gradient_out(struct sw_graph *g, int32_t op, sw_value like);
/* Adds a stream, in the reverse of forward order. continues: see struct sw_stream */
void sw_graph_add_stream(struct sw_graph *g, sw_value param, sw_value grad, bool continues);

/* Adds an op with the outputs of its row. Returns its index, or -1 after a failure. */
int32_t sw_graph_emit(struct sw_graph *g, enum sw_op_kind kind, const sw_value *in, int n_in,
                      const struct sw_attrs *attrs);
/* The same, but returns the first output; SW_NO_VALUE after a failure. */
sw_value sw_graph_emit_one(struct sw_graph *g, enum sw_op_kind kind, const sw_value *in, int n_in,
                           const struct sw_attrs *attrs);

/* The gradient of x, which an exchange with these attributes turned into a value with gradient
 * dy. */
sw_value sw_graph_exchange_gradient(struct sw_graph *g, sw_value dy, sw_value x,
                                    const struct sw_exchange_attrs *attrs);

/* ---- cuts: functions of rows ---- */

#define SW_AXES_RULES(X)                                                                           \
    X(view)                                                                                        \
    X(slice)                                                                                       \
    X(matmul)                                                                                      \
    X(attention)                                                                                   \
    X(attention_grad)                                                                              \
    X(accumulate)                                                                                  \
    X(positions)                                                                                   \
    X(inverse_norms)                                                                               \
    X(dropout)
#define SW_AXES_RULE(name) const char *sw_axes_of_##name(const struct sw_op_desc *d, char *text);
SW_AXES_RULES(SW_AXES_RULE)
#undef SW_AXES_RULE

bool sw_cut_matmul(const struct sw_op_desc *d, struct sw_cut *out);
bool sw_cut_embedding(const struct sw_op_desc *d, struct sw_cut *out);
bool sw_cut_linear_ce(const struct sw_op_desc *d, struct sw_cut *out);
bool sw_cut_linear_ce_grad(const struct sw_op_desc *d, struct sw_cut *out);
bool sw_cut_attention(const struct sw_op_desc *d, struct sw_cut *out);

#define SW_PART_RULES(X)                                                                           \
    X(matmul)                                                                                      \
    X(embedding)                                                                                   \
    X(linear_ce)                                                                                   \
    X(attention)                                                                                   \
    X(relative_bias)                                                                               \
    X(dropout)
#define SW_PART_RULE(name)                                                                         \
    void sw_part_##name(const struct sw_op_desc *desc, struct sw_op *op, const struct sw_cut *cut, \
                        int64_t first, int64_t n);
SW_PART_RULES(SW_PART_RULE)
#undef SW_PART_RULE
