// SPDX-License-Identifier: Apache-2.0
// Description of a model's forward computation as a graph of values and operations.
//
// Builder calls return the new value. After a failure (wrong shapes, out of memory) all further
// calls are no-ops that accept and return SW_NO_VALUE. Write the whole forward without checks, and
// call sw_graph_status once at the end. One thread builds a graph. Names and arrays are copied,
// unless a comment says that they are borrowed.
//
// Shape letters: B micro-batch, T tokens, C model width, V vocabulary, N rows (leading dims
// flattened).
#pragma once

#include <stdbool.h>

#include "spillway/status.h"
#include "spillway/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_graph sw_graph;
typedef int32_t sw_value; /* index in its graph */
#define SW_NO_VALUE ((sw_value)-1)

enum sw_act {
    SW_ACT_NONE,
    SW_ACT_GELU,      /* 0.5 x (1 + erf(x / sqrt 2)) */
    SW_ACT_GELU_TANH, /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    SW_ACT_RELU,
    SW_ACT_SILU,
    SW_ACT_TANH,
    SW_ACT_SIGMOID,
    SW_ACT_QUICK_GELU, /* x sigmoid(1.702 x) */
    SW_ACT_GELU_10,    /* min(GELU(x), 10) */
    SW_ACT_RELU6,      /* min(relu(x), 6) */
    SW_ACT_RELU2,      /* the square of relu */
    SW_ACT_LEAKY_RELU, /* x, or 0.01 x below 0 */
    SW_ACT_HARDSWISH,  /* x relu6(x + 3) / 6 */
    SW_ACT_MISH,       /* x tanh(log(1 + e^x)) */
    SW_ACT_LAPLACE,    /* 0.5 (1 + erf((x - 0.707107) / (0.282095 sqrt 2))) */
    SW_ACT_COUNT
};

enum sw_init_kind {
    SW_INIT_ZERO,
    SW_INIT_ONE,
    SW_INIT_NORMAL,
    SW_INIT_UNIFORM,
    SW_INIT_SINES, /* positions of Vaswani et al. 2017: columns alternate between sine and cosine */
    SW_INIT_SINES_APART /* the same columns: all sines, then all cosines */
};
struct sw_init {
    enum sw_init_kind kind;
    double std; /* NORMAL: mean 0; UNIFORM: half the width of the interval around 0 */
};

/* The first failure while building, or SW_OK. */
SW_API sw_status sw_graph_status(const sw_graph *graph);
/* Compute dtype of parameters and activations (f32, bf16, f16; f64 for checks). */
SW_API enum sw_dtype sw_graph_dtype(const sw_graph *graph);
/* True in training programs. In evaluation it is false, and dropout is left out. */
SW_API bool sw_graph_training(const sw_graph *graph);

/* ---- leaves ---- */

/* An input that is given for each micro-batch, by name. */
SW_API sw_value sw_input(sw_graph *g, const char *name, enum sw_dtype dtype, struct sw_shape shape);
/* A trainable tensor, by its full name ("transformer.h.0.ln_1.weight"). The same name again gives
 * the same parameter, and each use gets its own gradient. */
SW_API sw_value sw_param(sw_graph *g, const char *name, struct sw_shape shape, struct sw_init init);
/* A buffer: a tensor of the model's files that is never trained. */
SW_API sw_value sw_param_fixed(sw_graph *g, const char *name, struct sw_shape shape,
                               struct sw_init init);
/* How ranks of the tensor axis split a parameter. With one such rank, which is what plans have, it
 * changes nothing. A split that does not fit the shape, or differs from an earlier one of the same
 * parameter, is refused with SW_E_ARG. */
SW_API void sw_param_split(sw_graph *g, sw_value param, const struct sw_tensor_split *split);
/* A constant tensor, for example a table of angles. The data is copied, and must be the same for
 * every program and rank. Constants are not trained and not in checkpoints. Their values are part
 * of the fingerprint. The same name again must be the same tensor. */
SW_API sw_value sw_constant(sw_graph *g, const char *name, enum sw_dtype dtype,
                            struct sw_shape shape, const void *data);
/* Keeps a value readable by this name after the program ran. */
SW_API void sw_output(sw_graph *g, const char *name, sw_value value);

/* ---- scopes: the unit of recomputation, gathering, tiling and profiling; they nest ---- */

/* Begins a scope below the current one. sw_scope_pop ends the innermost one. */
SW_API void sw_scope_push(sw_graph *g, const char *name);
/* Like sw_scope_push, for a repeated block whose activations may be recomputed in backward. */
SW_API void sw_scope_push_block(sw_graph *g, const char *name);
SW_API void sw_scope_pop(sw_graph *g);

/* ---- operations ---- */

/* Lookup: table [V,C], ids i32 [..] -> [..,C]. The gradient is row-sparse. padding_id: row that
 * gets no gradient; -1 = none. */
SW_API sw_value sw_embedding(sw_graph *g, sw_value table, sw_value ids, int64_t padding_id);
/* a [..,K] (leading dims are rows) times b [K,N] -> [..,N]. trans_b: b is [N,K]. trans_a: a is one
 * matrix [K,M] -> [M,N]. Sums are in fp32 (f64 in f64 graphs) and rounded once. */
SW_API sw_value sw_matmul(sw_graph *g, sw_value a, bool trans_a, sw_value b, bool trans_b);
/* x [..,I]; weight [O,I], or [I,O] with in_out (GPT-2's Conv1D); bias [O] or SW_NO_VALUE ->
 * [..,O] */
SW_API sw_value sw_linear(sw_graph *g, sw_value x, sw_value weight, sw_value bias, bool in_out);
/* a + b. b has a's shape, or a suffix of it, and is then broadcast over the leading dims. */
SW_API sw_value sw_add(sw_graph *g, sw_value a, sw_value b);
/* factor x. */
SW_API sw_value sw_scale(sw_graph *g, sw_value x, double factor);
/* x converted to another float dtype. */
SW_API sw_value sw_cast(sw_graph *g, sw_value x, enum sw_dtype dtype);
/* The activation of each element. */
SW_API sw_value sw_act(sw_graph *g, sw_value x, enum sw_act act);
/* x [..,C], weight and bias [C]; statistics in fp32, biased variance, eps inside the root. */
SW_API sw_value sw_layer_norm(sw_graph *g, sw_value x, sw_value weight, sw_value bias, double eps);
/* x [..,C], weight [C]: y = x / sqrt(mean(x^2) + eps) times weight, or times 1 + weight (one_plus).
 * Computed in fp32. As in other libraries, x / sqrt(..) is rounded before it is multiplied by
 * weight. With one_plus it is not rounded. */
SW_API sw_value sw_rms_norm(sw_graph *g, sw_value x, sw_value weight, double eps, bool one_plus);
/* a b, element by element. b has a's shape, or a suffix of it, and is then broadcast over the
 * leading dims. */
SW_API sw_value sw_mul(sw_graph *g, sw_value a, sw_value b);
/* act(gate) up; both have the same shape. Rounded once. */
SW_API sw_value sw_gated_act(sw_graph *g, sw_value gate, sw_value up, enum sw_act act);
/* Zeros elements with probability p and scales the others by 1 / (1 - p), in training. */
SW_API sw_value sw_dropout(sw_graph *g, sw_value x, double p);

struct sw_attention_spec {
    int64_t heads, kv_heads; /* kv_heads 0 = heads */
    double scale;            /* factor on the scores, for example 1/sqrt(D) */
    bool causal;
    int64_t window;    /* 0 = none; else key j is visible to query i only if j > i - window */
    double dropout;    /* dropout of the probabilities in training */
    sw_value mask;     /* i32 [B,S], 1 = a real token; SW_NO_VALUE for none */
    sw_value position; /* i32 [1], absolute index of query 0 (keys count from 0); SW_NO_VALUE = 0 */
    double cap;        /* score = cap tanh(score / cap); 0 = none */
    /* ALiBi slopes: f32 [H], not a parameter. After the cap, score += slope x position of the key.
     * With a mask, that position is the number of real tokens before the key; else it is the key's
     * index. SW_NO_VALUE for none */
    sw_value slopes;
    /* slope x position is rounded to bf16, of positions that are, and multiplied by scale
     * (Falcon) */
    bool bf16_slopes;
    /* i32 [B,S]: a query sees only the keys of its own segment. The segment of a query is that of
     * the key at its absolute index. SW_NO_VALUE for none. Requires T = S, or a position */
    sw_value segments;
    /* f32 [H,T,S] or [B,H,T,S] (f64 in f64 graphs), added to the scores after all of the above, for
     * example for relative positions. It may be trained. The gradient is fp32; that of [H,T,S] is
     * the sum over samples, in order. Gradients of layers that share a bias are added in fp32.
     * SW_NO_VALUE for none */
    sw_value bias;
};
/* qkv [B,T,(H + 2 KV) D]: queries, then keys, then values; each head is contiguous -> [B,T,H D].
 * Keys are processed in blocks, so that no T x T matrix is stored. A query that sees no key gives
 * zeros. */
SW_API sw_value sw_attention_packed(sw_graph *g, sw_value qkv,
                                    const struct sw_attention_spec *spec);
/* q [B,T,H D] or [B,T,H,D], k and v [B,S,KV D] or [B,S,KV,D] -> [B,T,H D]. Tokens and heads may
 * have any strides. */
SW_API sw_value sw_attention(sw_graph *g, sw_value q, sw_value k, sw_value v,
                             const struct sw_attention_spec *spec);

/* A bias of scores by the distance between key and query: rows [R,H], position i32 [1] as in struct
 * sw_attention_spec or SW_NO_VALUE -> f32 [H,queries,keys] (f64 in f64 graphs). Key s and query t
 * take row s - (t + position) + origin, clamped to 0 .. R - 1. With origin = queries - 1 and R =
 * queries + keys - 1 each distance has its own row. */
SW_API sw_value sw_relative_bias(sw_graph *g, sw_value rows, sw_value position, int64_t queries,
                                 int64_t keys, int64_t origin);
/* Content-to-position scores, for a bias per sample: x [B,T,H,D], table [P,H,D], constant index i32
 * [2T - 1] -> f32 [B,H,T,T]. Key j and query i take row index[j - i + T - 1] of the table. The
 * score is scale times the dot product of that row with x at the query, or at the key (by_key). */
SW_API sw_value sw_relative_scores(sw_graph *g, sw_value x, sw_value table, sw_value index,
                                   bool by_key, double scale);

/* Windows of an image: rows, then columns. For a sequence only the columns count. */
struct sw_window {
    int64_t kernel[2];
    int64_t stride[2];  /* 0 = 1 */
    int64_t padding[2]; /* zeros at each side */
};
/* x [B,C,H,W] -> [B,OH OW,C KH KW], or a sequence [B,C,W] -> [B,OW,C KW]. Each row holds the
 * elements of one window in the order of weights [O,C,KH,KW]. A convolution is then sw_linear with
 * a weight [O,C KH KW]. x may have any strides. */
SW_API sw_value sw_im2col(sw_graph *g, sw_value x, const struct sw_window *window);
/* x [B,C,H,W] -> [B,C,OH,OW]: the maximum or the mean of each window, without padding. If several
 * elements equal the maximum, the first one gets the gradient. x may have any strides. */
SW_API sw_value sw_pool_max(sw_graph *g, sw_value x, const struct sw_window *window);
SW_API sw_value sw_pool_mean(sw_graph *g, sw_value x, const struct sw_window *window);

/* An LSTM layer in one direction, with PyTorch's parameters. The order of the gates is input,
 * forget, cell, output. */
struct sw_lstm_spec {
    sw_value w_ih, w_hh; /* [4H,I], [4H,H] */
    sw_value b_ih, b_hh; /* [4H] */
    /* i32 [B,T], 1 = a real token. Other tokens are skipped, and their rows are 0. SW_NO_VALUE for
     * none */
    sw_value mask;
    bool reverse; /* from the last token to the first */
};
/* x [B,T,I] -> [B,T,H] */
SW_API sw_value sw_lstm(sw_graph *g, sw_value x, const struct sw_lstm_spec *spec);

/* Rotary position embedding: x [B,T,H,D], table f32 [P,R], positions i32 [T] or [B,T] -> [B,T,H,D].
 *
 * Only the last dim of x must be dense. The table is a constant; row p holds the cosines of R/2
 * angles, then their sines. R is even and at most D. The first R elements of each head are rotated
 * in pairs (i, i + R/2), or (2i, 2i + 1) if interleaved. The others are copied. Positions are below
 * P. */
SW_API sw_value sw_rotary(sw_graph *g, sw_value x, sw_value table, sw_value positions,
                          bool interleaved);
/* mask i32 [B,T], 1 = a real token -> i32 [B,T]: real tokens are numbered from `offset` on. Others
 * are offset - 1. */
SW_API sw_value sw_positions(sw_graph *g, sw_value mask, int64_t offset);
/* positions i32 [..] -> positions + offset */
SW_API sw_value sw_add_offset(sw_graph *g, sw_value positions, int64_t offset);

/* ids i32 [..] -> i32 [..]: 0 if an id is `value`, else 1. For positions of the tokens that are not
 * padding, use sw_positions(g, sw_not_equal(g, ids, pad), first). */
SW_API sw_value sw_not_equal(sw_graph *g, sw_value ids, int64_t value);
/* ids i32 [B,T], lengths i32 [B] -> i32 [B,T]: the first length[b] ids of row b, then -1. -1 is not
 * a token: lookups give it no gradient, and sw_not_equal finds it. */
SW_API sw_value sw_trim(sw_graph *g, sw_value ids, sw_value lengths);
/* ids i32 [B,T] -> i32 [B,T]: `start`, then all ids of the row except its last. Ignored labels
 * (-100) become `pad`. Makes the input of a decoder from its labels. start -1: the row's own last
 * id that is neither, if these follow the others; a row without any begins with `pad`. */
SW_API sw_value sw_shift_right(sw_graph *g, sw_value ids, int64_t start, int64_t pad);
/* x [..,C], mask i32 [..] -> x, with zeros in the rows whose mask is 0. */
SW_API sw_value sw_mask_rows(sw_graph *g, sw_value x, sw_value mask);
/* Concatenates 1 to 12 values along `dim`. The other dims must be equal. */
SW_API sw_value sw_concat(sw_graph *g, const sw_value *values, int n, int dim);
/* x [B,T,C], mask i32 [B,T] -> [B,C]: the mean of a sample's rows whose mask is not 0, summed in
 * order in fp32. 0 if there is no such row. */
SW_API sw_value sw_masked_mean(sw_graph *g, sw_value x, sw_value mask);

/* Views: no bytes move. A strided view that a consumer cannot read is copied once before it. */
SW_API sw_value sw_reshape(sw_graph *g, sw_value x, struct sw_shape shape);
SW_API sw_value sw_transpose(sw_graph *g, sw_value x, int dim_a, int dim_b);
SW_API sw_value sw_slice(sw_graph *g, sw_value x, int dim, int64_t start, int64_t len);

/* ids i32 [B,T] -> i32 [B]: index of the last id that is not pad (0 if all are pad). pad < 0: T-1.
 */
SW_API sw_value sw_last_index(sw_graph *g, sw_value ids, int64_t pad);
/* ids i32 [B,T] -> i32 [B]: index of the last occurrence of `id` (0 if there is none). */
SW_API sw_value sw_last_index_of(sw_graph *g, sw_value ids, int64_t id);
/* x [B,T,C], index i32 [B] -> [B,C]: row index[b] of sample b. */
SW_API sw_value sw_select_rows(sw_graph *g, sw_value x, sw_value index);

/* Mean cross entropy over the labels that are not -100 -> f32 [1]; 0 if no label counts. labels
 * i32, one per row of the logits. */
SW_API sw_value sw_cross_entropy(sw_graph *g, sw_value logits, sw_value labels);
struct sw_cross_entropy_spec {
    /* Label smoothing e in [0, 1): (1 - e) times the cross entropy, plus e times the mean of -log p
     * over all classes. */
    double smoothing;
    bool ignores_beyond; /* labels >= V are not an error; they are ignored like -100 */
};
/* The same with these options. */
SW_API sw_value sw_cross_entropy_of(sw_graph *g, sw_value logits, sw_value labels,
                                    const struct sw_cross_entropy_spec *spec);
/* Means over all elements -> f32 [1]. Targets are f32, one per element. Squared error: (x -
 * target)^2. Binary cross entropy: -(target log p + (1 - target) log(1 - p)), p = sigmoid(logit).
 * NaN targets do not count; 0 if no target counts. */
SW_API sw_value sw_mean_squared_error(sw_graph *g, sw_value x, sw_value target);
SW_API sw_value sw_binary_cross_entropy(sw_graph *g, sw_value logits, sw_value target);
/* Cross entropy of logits = h weight^T + bias, without storing them: h [..,C], weight [V,C], bias
 * [V] or SW_NO_VALUE. The vocabulary is processed in chunks. cap: a logit x becomes cap tanh(x /
 * cap); 0 = none. */
SW_API sw_value sw_linear_cross_entropy(sw_graph *g, sw_value h, sw_value weight, sw_value bias,
                                        sw_value labels, double cap);
/* The same with label smoothing (struct sw_cross_entropy_spec). If it is not 0, the logits are
 * stored. */
SW_API sw_value sw_smoothed_linear_cross_entropy(sw_graph *g, sw_value h, sw_value weight,
                                                 sw_value bias, sw_value labels, double cap,
                                                 double smoothing);

/* ---- an operation of your own ---- */

struct sw_user_call;
struct sw_user_op {
    const char *name; /* for printing; part of the math fingerprint */
    int n_in, n_out;
    double param[4]; /* for your use; part of the math fingerprint */
    /* Computes shapes and dtypes of the outputs from those of the inputs. */
    sw_status (*infer)(const struct sw_user_op *op, const struct sw_view *in, struct sw_view *out);
    /* Emits operations for the gradients of the inputs. d_out[i] is SW_NO_VALUE if output i has no
     * gradient. Set d_in[j] for inputs that get one. NULL: not differentiable. */
    void (*gradient)(sw_graph *g, const struct sw_user_op *op, const sw_value *in,
                     const sw_value *out, const sw_value *d_out, sw_value *d_in);
    /* Runs on the CPU, on row-major views. Must be deterministic and thread-safe, and must not
     * allocate. */
    void (*kernel)(const struct sw_user_op *op, const struct sw_view *in,
                   const struct sw_view *out);
};
/* op is borrowed for the life of the engine. out_values [op->n_out]. */
SW_API void sw_user(sw_graph *g, const struct sw_user_op *op, const sw_value *in,
                    sw_value *out_values);

#ifdef __cplusplus
}
#endif
