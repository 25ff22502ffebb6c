// SPDX-License-Identifier: Apache-2.0
// Describing a model: only its forward computation, as a graph of values and operations.
//
// Builder calls return the new value. After a failure (wrong shapes, out of memory) they return
// SW_NO_VALUE, accept SW_NO_VALUE as input and do nothing further: write the whole forward straight
// through and ask sw_graph_status once at the end.
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
    SW_ACT_GELU_10,    /* GELU up to 10 */
    SW_ACT_RELU6,      /* relu up to 6 */
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
    SW_INIT_SINES /* positions of Vaswani et al. 2017: columns are sine and cosine in turn */
};
struct sw_init {
    enum sw_init_kind kind;
    double std; /* NORMAL: mean 0; UNIFORM: half the width of the interval around 0 */
};

/* The first failure while building, or SW_OK. */
SW_API sw_status sw_graph_status(const sw_graph *graph);
/* dtype that parameters and activations compute in (f32, bf16, f16; f64 for checks). */
SW_API enum sw_dtype sw_graph_dtype(const sw_graph *graph);
/* True in training programs: dropout draws. False in evaluation: dropout is left out. */
SW_API bool sw_graph_training(const sw_graph *graph);

/* ---- leaves ---- */

/* Given anew for each micro-batch, by name. */
SW_API sw_value sw_input(sw_graph *g, const char *name, enum sw_dtype dtype, struct sw_shape shape);
/* A trainable tensor, by its full name ("transformer.h.0.ln_1.weight"). The same name again is the
 * same parameter; each use is a gradient stream of its own. */
SW_API sw_value sw_param(sw_graph *g, const char *name, struct sw_shape shape, struct sw_init init);
/* The same for a tensor of the model's files that is never trained: a buffer. */
SW_API sw_value sw_param_fixed(sw_graph *g, const char *name, struct sw_shape shape,
                               struct sw_init init);
/* How ranks that compute with parts of the parameter cut it. No plan cuts one yet: a split that
 * fits is refused with SW_E_UNSUP, one that does not with SW_E_ARG. */
SW_API void sw_param_split(sw_graph *g, sw_value param, const struct sw_tensor_split *split);
/* A tensor of these values (copied), the same for every program and rank: a table of angles, say.
 * Never trained and in no checkpoint; its values belong to the fingerprint. The same name again
 * must be the same tensor. */
SW_API sw_value sw_constant(sw_graph *g, const char *name, enum sw_dtype dtype,
                            struct sw_shape shape, const void *data);
/* The value stays readable by this name after the program ran. */
SW_API void sw_output(sw_graph *g, const char *name, sw_value value);

/* ---- scopes: the unit of recomputation, gathering, tiling and profiling; they nest ---- */

SW_API void sw_scope_push(sw_graph *g, const char *name);
/* The same, for a repeated block whose inside may be recomputed in backward. */
SW_API void sw_scope_push_block(sw_graph *g, const char *name);
SW_API void sw_scope_pop(sw_graph *g);

/* ---- operations ---- */

/* table [V,C], ids i32 [..] -> [..,C]; the gradient is row-sparse. padding_id: a row that gets no
 * gradient, -1 for none. */
SW_API sw_value sw_embedding(sw_graph *g, sw_value table, sw_value ids, int64_t padding_id);
/* a [..,K] (leading dims are rows) times b [K,N]; trans_b: b is [N,K]; trans_a: a is [K,M], one
 * matrix. -> [..,N] or [M,N]. Sums in fp32 (f64 in f64 graphs), rounded once. */
SW_API sw_value sw_matmul(sw_graph *g, sw_value a, bool trans_a, sw_value b, bool trans_b);
/* x [..,I]; weight [O,I], or [I,O] with in_out (GPT-2's Conv1D); bias [O] or SW_NO_VALUE ->
 * [..,O] */
SW_API sw_value sw_linear(sw_graph *g, sw_value x, sw_value weight, sw_value bias, bool in_out);
/* b has a's shape, or a suffix of it (then it repeats over the leading dims). */
SW_API sw_value sw_add(sw_graph *g, sw_value a, sw_value b);
SW_API sw_value sw_scale(sw_graph *g, sw_value x, double factor);
/* x in another float dtype. */
SW_API sw_value sw_cast(sw_graph *g, sw_value x, enum sw_dtype dtype);
SW_API sw_value sw_act(sw_graph *g, sw_value x, enum sw_act act);
/* x [..,C], weight and bias [C]; statistics in fp32, biased variance, eps inside the root. */
SW_API sw_value sw_layer_norm(sw_graph *g, sw_value x, sw_value weight, sw_value bias, double eps);
/* x [..,C], weight [C]: y = x / sqrt(mean(x^2) + eps) times weight, or times 1 + weight. In fp32;
 * as elsewhere x / sqrt(..) is rounded before it is multiplied with weight, and with 1 + weight it
 * is not. */
SW_API sw_value sw_rms_norm(sw_graph *g, sw_value x, sw_value weight, double eps, bool one_plus);
/* Of one shape. */
SW_API sw_value sw_mul(sw_graph *g, sw_value a, sw_value b);
/* act(gate) up, of one shape; rounded once. */
SW_API sw_value sw_gated_act(sw_graph *g, sw_value gate, sw_value up, enum sw_act act);
SW_API sw_value sw_dropout(sw_graph *g, sw_value x, double p);

struct sw_attention_spec {
    int64_t heads, kv_heads; /* kv_heads 0 = heads */
    double scale;            /* of the scores, for example 1/sqrt(D) */
    bool causal;
    int64_t window;    /* 0 = none; else key j is visible to query i only if j > i - window */
    double dropout;    /* of the probabilities, in training */
    sw_value mask;     /* i32 [B,S], 1 = a real token; SW_NO_VALUE for none */
    sw_value position; /* i32 [1], absolute index of query 0 (keys count from 0); SW_NO_VALUE = 0 */
    double cap;        /* score = cap tanh(score / cap); 0 = none */
    /* ALiBi: f32 [H], no parameter. Behind the cap, score += slope x place of the key: how many
     * real tokens are before it where there is a mask, else its index. SW_NO_VALUE for none */
    sw_value slopes;
    /* i32 [B,S]: a query sees the keys of its own segment alone, which is that of the key at its
     * absolute index. SW_NO_VALUE for none; else T = S, or there is a position */
    sw_value segments;
    /* f32 [H,T,S] or [B,H,T,S] (f64 in f64 graphs), added to the scores behind all of these: of
     * relative positions, say. It may be trained: its gradient is fp32, of [H,T,S] the sum over
     * samples in order; those of layers that share a bias are added in fp32. SW_NO_VALUE for none
     */
    sw_value bias;
};
/* qkv [B,T,(H + 2 KV) D], queries then keys then values, heads contiguous inside -> [B,T,H D].
 * Streams over key blocks: no T x T matrix is stored. A query that sees no key gives zeros. */
SW_API sw_value sw_attention_packed(sw_graph *g, sw_value qkv,
                                    const struct sw_attention_spec *spec);
/* q [B,T,H D] or [B,T,H,D], k and v [B,S,KV D] or [B,S,KV,D] -> [B,T,H D]. Tokens and heads may be
 * any strides apart. */
SW_API sw_value sw_attention(sw_graph *g, sw_value q, sw_value k, sw_value v,
                             const struct sw_attention_spec *spec);

/* A bias of scores that depends on how far key and query are apart: rows [R,H], position i32 [1] as
 * in struct sw_attention_spec or SW_NO_VALUE -> f32 [H,queries,keys] (f64 in f64 graphs). Key s and
 * query t take row s - (t + position) + origin, the first one below and the last one above. With
 * origin queries - 1 and R = queries + keys - 1 each difference has a row of its own. */
SW_API sw_value sw_relative_bias(sw_graph *g, sw_value rows, sw_value position, int64_t queries,
                                 int64_t keys, int64_t origin);
/* What a token and a relative position make of each other, for a bias of each sample: x [B,T,H,D],
 * table [P,H,D], index i32 [2T - 1], a constant: key j and query i take row index[j - i + T - 1] of
 * the table -> f32 [B,H,T,T]: scale times its product with x of the query, or with by_key of the
 * key. */
SW_API sw_value sw_relative_scores(sw_graph *g, sw_value x, sw_value table, sw_value index,
                                   bool by_key, double scale);

/* Windows of an image, rows and then columns; of a sequence the columns alone count. */
struct sw_window {
    int64_t kernel[2];
    int64_t stride[2];  /* 0 = 1 */
    int64_t padding[2]; /* zeros around, at each side */
};
/* x [B,C,H,W] -> [B,OH OW,C KH KW], or a sequence [B,C,W] -> [B,OW,C KW]: of each place of the
 * window all that it sees, as weights [O,C,KH,KW] lie, so that a convolution is sw_linear with
 * [O,C KH KW]. x may have any strides. */
SW_API sw_value sw_im2col(sw_graph *g, sw_value x, const struct sw_window *window);
/* x [B,C,H,W] -> [B,C,OH,OW]: the largest in each window, whose gradient the first of equal ones
 * has, or the mean; without padding. x may have any strides. */
SW_API sw_value sw_pool_max(sw_graph *g, sw_value x, const struct sw_window *window);
SW_API sw_value sw_pool_mean(sw_graph *g, sw_value x, const struct sw_window *window);

/* A layer of long short-term memory in one direction, with PyTorch's parameters: its gates are
 * input, forget, cell and output, in this order. */
struct sw_lstm_spec {
    sw_value w_ih, w_hh; /* [4H,I], [4H,H] */
    sw_value b_ih, b_hh; /* [4H] */
    /* i32 [B,T], 1 = a real token; no step is taken at the others, and their row is 0. SW_NO_VALUE
     * for none */
    sw_value mask;
    bool reverse; /* from the last token to the first */
};
/* x [B,T,I] -> [B,T,H] */
SW_API sw_value sw_lstm(sw_graph *g, sw_value x, const struct sw_lstm_spec *spec);

/* Rotary positions. x [B,T,H,D], whose last dim alone must be dense; table f32 [P,R], a constant:
 * row p holds the cosines of R/2 angles, then their sines; R is even and at most D: of each head
 * the first R elements are turned, in pairs (i, i + R/2) or interleaved ones (2i, 2i + 1), and the
 * others copied. positions i32 [T] or [B,T], each below P -> [B,T,H,D] */
SW_API sw_value sw_rotary(sw_graph *g, sw_value x, sw_value table, sw_value positions,
                          bool interleaved);
/* mask i32 [B,T], 1 = a real token -> i32 [B,T]: real tokens count from `offset` on, the others are
 * offset - 1. */
SW_API sw_value sw_positions(sw_graph *g, sw_value mask, int64_t offset);
/* positions i32 [..] -> + offset */
SW_API sw_value sw_add_offset(sw_graph *g, sw_value positions, int64_t offset);

/* ids i32 [..] -> i32 [..]: 0 where an id is `value`, else 1. The places of tokens that are no
 * padding count by sw_positions(g, sw_not_equal(g, ids, pad), first). */
SW_API sw_value sw_not_equal(sw_graph *g, sw_value ids, int64_t value);
/* ids i32 [B,T], lengths i32 [B] -> i32 [B,T]: the ids of a row's first tokens, as many as its
 * length says, then -1, which is no token: look-ups give it no gradient, sw_not_equal finds it. */
SW_API sw_value sw_trim(sw_graph *g, sw_value ids, sw_value lengths);
/* ids i32 [B,T] -> i32 [B,T]: `start`, then all ids of the row but its last; -100, a label that is
 * none, becomes `pad`. What a decoder is given where the labels are the other sequence. */
SW_API sw_value sw_shift_right(sw_graph *g, sw_value ids, int64_t start, int64_t pad);
/* x [..,C], mask i32 [..] -> x, with zeros in the rows whose mask is 0. */
SW_API sw_value sw_mask_rows(sw_graph *g, sw_value x, sw_value mask);
/* Behind one another along `dim`, the other dims being equal; 1 to 12 values. */
SW_API sw_value sw_concat(sw_graph *g, const sw_value *values, int n, int dim);
/* x [B,T,C], mask i32 [B,T] -> [B,C]: the mean of the rows of a sample whose mask is not 0, summed
 * in order in fp32; 0 where there is none. */
SW_API sw_value sw_masked_mean(sw_graph *g, sw_value x, sw_value mask);

/* Views: no bytes move. A strided view that a consumer cannot read is copied once before it. */
SW_API sw_value sw_reshape(sw_graph *g, sw_value x, struct sw_shape shape);
SW_API sw_value sw_transpose(sw_graph *g, sw_value x, int dim_a, int dim_b);
SW_API sw_value sw_slice(sw_graph *g, sw_value x, int dim, int64_t start, int64_t len);

/* ids i32 [B,T] -> i32 [B]: place of the last id that is not pad (0 if all are); pad < 0: T-1. */
SW_API sw_value sw_last_index(sw_graph *g, sw_value ids, int64_t pad);
/* ids i32 [B,T] -> i32 [B]: place of the last id that is this one (0 if none is). */
SW_API sw_value sw_last_index_of(sw_graph *g, sw_value ids, int64_t id);
/* x [B,T,C], index i32 [B] -> [B,C] */
SW_API sw_value sw_select_rows(sw_graph *g, sw_value x, sw_value index);

/* Mean cross entropy over the labels that are not -100; labels i32 with one label per row of the
 * first argument. -> f32 [1]; 0 when no label counts. */
SW_API sw_value sw_cross_entropy(sw_graph *g, sw_value logits, sw_value labels);
struct sw_cross_entropy_spec {
    double smoothing; /* e in [0, 1): (1 - e) of it, and e of the mean of -log p over all classes */
    bool ignores_beyond; /* labels from V on are no error; they count like -100 */
};
SW_API sw_value sw_cross_entropy_of(sw_graph *g, sw_value logits, sw_value labels,
                                    const struct sw_cross_entropy_spec *spec);
/* Means over all elements of x with targets f32, as many: of (x - target)^2, and of -(target log p
 * + (1 - target) log(1 - p)) with p = sigmoid(logit). A target that is NaN does not count; 0 when
 * none does. -> f32 [1] */
SW_API sw_value sw_mean_squared_error(sw_graph *g, sw_value x, sw_value target);
SW_API sw_value sw_binary_cross_entropy(sw_graph *g, sw_value logits, sw_value target);
/* Cross entropy of logits = h weight^T + bias without ever holding them: h [..,C], weight [V,C],
 * bias [V] or SW_NO_VALUE; runs over chunks of the vocabulary. cap: a logit x becomes cap tanh(x /
 * cap); 0 = none. */
SW_API sw_value sw_linear_cross_entropy(sw_graph *g, sw_value h, sw_value weight, sw_value bias,
                                        sw_value labels, double cap);
/* With label smoothing (struct sw_cross_entropy_spec); where it is not 0 the logits are held. */
SW_API sw_value sw_smoothed_linear_cross_entropy(sw_graph *g, sw_value h, sw_value weight,
                                                 sw_value bias, sw_value labels, double cap,
                                                 double smoothing);

/* ---- an operation of your own ---- */

struct sw_user_call; /* what a kernel is given: sw_user_in, sw_user_out below */
struct sw_user_op {
    const char *name; /* for printing; part of the math fingerprint */
    int n_in, n_out;
    double param[4]; /* yours; part of the math fingerprint */
    /* Shapes and dtypes of the outputs from those of the inputs. */
    sw_status (*infer)(const struct sw_user_op *op, const struct sw_view *in, struct sw_view *out);
    /* Emits operations for the gradients of the inputs: d_out[i] is SW_NO_VALUE when output i got
     * none; set d_in[j] for inputs that have one. NULL: not differentiable. */
    void (*gradient)(sw_graph *g, const struct sw_user_op *op, const sw_value *in,
                     const sw_value *out, const sw_value *d_out, sw_value *d_in);
    /* Runs on the CPU; views are row-major. Deterministic, thread-safe, allocates nothing. */
    void (*kernel)(const struct sw_user_op *op, const struct sw_view *in,
                   const struct sw_view *out);
};
/* op is borrowed for the life of the engine. out_values [op->n_out]. */
SW_API void sw_user(sw_graph *g, const struct sw_user_op *op, const sw_value *in,
                    sw_value *out_values);

#ifdef __cplusplus
}
#endif
