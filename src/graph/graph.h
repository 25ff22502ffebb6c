// SPDX-License-Identifier: Apache-2.0
// graph - values, ops and scopes; shape rules; gradient rules; printing; what a device reports
// about an op. The order of `ops` is a valid execution order, which passes preserve. Values have no
// memory here, and nothing here depends on where a parameter is stored.
#pragma once

#include "base/base.h"
#include "graph/op.h"
#include "spillway/graph.h"
#include "tensor/tensor.h"

/* Products of larger parameters are split into pieces. */
enum { SW_PIECE_ABOVE = 1 << 22, SW_PIECE_LEAST = 256, SW_PIECE_MOST = 1024 };
/* attrs.piece for a parameter of this shape. */
int64_t sw_piece_rows(const struct sw_shape *shape);

/* Values that change from step to step without changing the plan; a table of doubles on the
 * device. */
// clang-format off
#define SW_SCALAR_LIST(X)                                                                          \
    X(SEED_LO)       /* low 32 bits of the seed of the training's randomness */ \
    X(SEED_HI)                                                                                     \
    X(MICRO)         /* global micro-batch number: step * K + k */ \
    X(FIRST)         /* 1 in the first micro-batch of a step */ \
    X(LOSS_SCALE)    /* initial gradient of backward */ \
    X(GRAD_FACTOR)   /* 1 / (K scale), or 1 / (targets scale); applied once, to the fp32 sum */ \
    X(OVERFLOW_FACTOR) /* 1 / K: the boundary sum times this must fit fp16 */ \
    X(LR)                                                                                          \
    X(BETA1)         /* for SGD the momentum */ \
    X(BETA2)                                                                                       \
    X(STEP)          /* applied optimizer steps so far plus 1: t of Adam's bias correction */ \
    X(CORRECTION1)   /* 1 - BETA1^STEP, set by sw_scalars_complete */ \
    X(CORRECTION2)   /* 1 - BETA2^STEP */ \
    X(SQUARES_KEPT)  /* ADAFACTOR: share that means of squares keep */ \
    X(NORM)          /* out: global gradient norm before clipping, unscaled */ \
    X(CLIP)          /* out: factor on the gradients, at most 1 */ \
    X(SKIP)          /* out: 1 = overflow, the update does not run */
// clang-format on
enum sw_scalar {
#define SW_SCALAR_ENUM(name) SW_SCALAR_##name,
    SW_SCALAR_LIST(SW_SCALAR_ENUM)
#undef SW_SCALAR_ENUM
        SW_SCALAR_COUNT
};
/* Sets the derived scalars before a table goes to a device. The host computes powers once, so that
 * all devices have the same values. */
void sw_scalars_complete(double scalars[SW_SCALAR_COUNT]);

/* SQUARES_KEPT of step t: 1 - t^decay_rate. */
double sw_update_squares_kept(const struct sw_update_attrs *attrs, double t);

/* Rates of an update, from the table and the factors of the parameter's group. The step size
 * includes the bias corrections that multiply the direction. */
struct sw_update_rates {
    double lr, beta1, beta2, correction1, correction2, step_size;
};
struct sw_update_rates sw_update_rates_of(const struct sw_update_attrs *attrs,
                                          const double scalars[SW_SCALAR_COUNT]);

enum sw_phase { SW_PHASE_FORWARD, SW_PHASE_BACKWARD, SW_PHASE_UPDATE };

enum sw_role {
    SW_ROLE_INPUT,
    SW_ROLE_PARAM, /* the working copy */
    /* kept between steps: moments, parts of masters, accumulators, caches, stats, constants */
    SW_ROLE_STATE,
    SW_ROLE_TRANSIENT, /* activation, gradient of an activation, or temporary value */
    SW_ROLE_GRAD       /* one gradient stream of a parameter */
};

struct sw_value_info {
    enum sw_dtype dtype;
    struct sw_shape shape;
    int64_t strides[SW_MAX_RANK]; /* in elements */
    enum sw_role role;
    const char *name; /* for inputs, parameters and states; else NULL. In the arena of the graph */
    const void *data; /* constant states: its elements, in the arena of the graph; else NULL */
    int32_t producer; /* index of the op; -1 for leaves */
    /* Storage. SW_NO_VALUE = its own. Else the value lies in `base` (a root value), from element
     * `base_offset` on: a view, or an in-place output. */
    sw_value base;
    int64_t base_offset;
    sw_value sparse_index; /* row-sparse gradient: the i32 [N] index that belongs to these rows */
    sw_value param;        /* STATE and GRAD: of which parameter, else SW_NO_VALUE */
    struct sw_init init;   /* PARAM */
    /* PARAM: only some ranks of the expert axis have it; others */
    bool is_local, is_elsewhere;
    bool contiguous;
    bool needs_grad; /* a parameter, or computed from one */
    bool is_output;
};

struct sw_op {
    enum sw_op_kind kind;
    enum sw_phase phase;
    int n_in, n_out;
    sw_value in[SW_MAX_INPUTS];
    sw_value out[SW_MAX_OUTPUTS]; /* SW_NO_VALUE = an optional output that nobody reads */
    struct sw_attrs attrs;
    const struct sw_user_op *user;
    int32_t scope;
    uint64_t path; /* key of the op's random numbers; a clone keeps it */
};

struct sw_scope {
    const char *name; /* full name, such as "transformer.h.3.attn" */
    int32_t parent;   /* -1 for the root */
    bool is_block;
    /* number of forward ops of each kind so far, which is the ordinal in a path */
    uint16_t n_kinds[SW_N_OP_KINDS];
};

/* One use of a parameter, and its gradient. */
struct sw_stream {
    sw_value param;
    sw_value grad;  /* in the communication dtype; row-sparse if it has a sparse_index */
    bool continues; /* of the same use as the stream before, for another micro-batch */
};

struct sw_named {
    const char *name;
    sw_value value;
};

/* Small matrices that are trained beside frozen weights. Their creator (nn/lora.h) also decides by
 * name what else is trained. */
struct sw_adapter {
    bool (*trains)(const struct sw_adapter *adapter, const char *param);
};

/* Decides which matrices are stored quantized; see sw_weight. */
struct sw_quantizer {
    /* The form of a parameter of that shape; kind NONE: it is stored as it is. */
    sw_status (*form)(struct sw_quantizer *by, const char *param, const struct sw_shape *shape,
                      struct sw_quantized_form *out);
};

/* A linear layer with adapters: y = x W^T + bias + scaling (x A^T) B^T. */
struct sw_adapted {
    const char *module; /* such as "model.layers.0.self_attn.q_proj"; in the arena of the graph */
    sw_value weight, a, b;
    double scaling;
    bool in_out; /* the weight is stored as [in, out] */
};

struct sw_adapted_layers {
    const struct sw_adapter *by; /* NULL = none; borrowed */
    struct sw_adapted *items;    /* [n] in forward order */
    int32_t n;
};

/* How the ranks of an axis have a parameter (sw_param_split). */
struct sw_param_part {
    sw_value param;
    struct sw_shape
        whole; /* its shape; in the graph of one rank (sw_graph_part) the value is a part */
    struct sw_tensor_split split;
    bool of_experts; /* along the expert axis; else along the tensor axis */
};

struct sw_graph {
    struct sw_arena arena; /* for names */
    sw_status status;
    char *error;              /* message of the first failure (in the arena) */
    enum sw_dtype dtype;      /* dtype of parameters and activations */
    enum sw_dtype grad_dtype; /* communication dtype, in which parameters have their gradients */
    bool training;
    bool token_mean;     /* losses of a micro-batch are weighted by 1/(rows); see LOSS_MEAN_GRAD */
    int64_t loss_chunk;  /* rows of the vocabulary matrix per chunk of LINEAR_CE */
    enum sw_phase phase; /* phase of ops added from now on */
    struct sw_value_info *values;
    struct sw_op *ops;
    struct sw_scope *scopes;
    struct sw_stream *streams;
    struct sw_named *outputs;
    sw_value *params;       /* in order of first use */
    struct sw_names leaves; /* inputs, parameters and states by role; scopes by parent */
    int32_t n_values, n_ops, n_scopes, n_streams, n_outputs, n_params;
    int32_t scope;             /* current */
    const char *const *frozen; /* name patterns of parameters that are not trained; borrowed */
    int n_frozen;
    struct sw_adapted_layers adapted;
    struct sw_quantizer *quantizer; /* NULL = nothing is quantized; borrowed */
    struct sw_param_part *parts;    /* [n_parts] */
    int32_t n_parts;
};

struct sw_graph_options {
    enum sw_dtype dtype, grad_dtype;
    bool training, token_mean;
    int64_t loss_chunk; /* 0 = SW_LOSS_CHUNK */
    /* glob patterns ("*" matches any run) for parameter names; borrowed */
    const char *const *frozen;
    int n_frozen;
    const struct sw_adapter *adapter; /* if given, decides what is trained; borrowed */
    struct sw_quantizer *quantizer;   /* NULL = nothing is quantized; borrowed */
};
enum { SW_LOSS_CHUNK = 4096 };

sw_status sw_graph_open(const struct sw_graph_options *options, struct sw_graph **out);
void sw_graph_close(struct sw_graph *g);

/*
 * sw_graph_backward - append the backward computation of scalar `loss` ([1]).
 *
 * Walks the ops in reverse; each gradient rule emits ops. If an activation is used several times,
 * its
 * gradients are added in order of use, from the last to the first. Each use of a parameter becomes
 * an
 * entry of g->streams, in forward order.
 */
sw_status sw_graph_backward(struct sw_graph *g, sw_value loss);

/* ---- parts: what one of several ranks computes of a graph ---- */

/* The ranks of an axis that compute one forward together. */
struct sw_ranks {
    int axis;  /* enum sw_axis */
    int n, me; /* their number; this rank */
    /* Sequence-parallel regions: ops between products work on a part of the rows. If this is a part
     * of the tokens, it is one that `next` ranks of the context axis can divide. */
    bool rows;
    int next; /* 0 counts as 1 */
    /* A loss over a cut vocabulary is made from its parts (LINEAR_CE_MERGE); else w is gathered. */
    bool words;
    /* Ranks have runs of the tokens of every row, and whole parameters; attention has heads. Of a
     * parameter's gradient each rank has a summand: the caller adds them. */
    bool tokens;
};

/*
 * sw_graph_part - makes the graph of one rank from a forward graph.
 *
 * Parameters with a split (sw_param_split) become parts, and ops that read them work on parts
 * (sw_op_cut). Where an op needs another spread of a value than its producer leaves, there is an
 * exchange. All ranks have the same ops with the same shapes; only offsets differ. Outputs are
 * whole. Differentiation of the result makes the other half of the exchanges. With `tokens`, what
 * is computed from ids is cut along the tokens instead, and splits stay as they are.
 *
 * g          has no backward yet
 * ranks      with one rank, the result is a copy
 * loss       a value of g; *out_loss is that value in *out
 * out        the caller's; it borrows what g's options borrow, and with one rank g's names
 *
 * SW_E_UNSUP a split that the ranks do not divide; the message names the parameter. tokens: an
 *            attention whose heads the ranks do not divide, or whose queries are not cut
 */
sw_status sw_graph_part(const struct sw_graph *g, const struct sw_ranks *ranks, sw_value loss,
                        struct sw_graph **out, sw_value *out_loss);
/* The split of a parameter; NULL = every rank has all of it. */
const struct sw_param_part *sw_graph_param_part(const struct sw_graph *g, sw_value param);

/* ---- shares.c ---- */

/* Ranks that share a forward; 0 counts as 1. */
struct sw_shares {
    int64_t tensor, context;
};
/* SW_E_CONFIG: heads that tensor x context does not divide, or rows of ids that context does not
 * divide. SW_E_UNSUP: an op that is not cut along these axes. Names the sizes that work. */
sw_status sw_graph_check_shares(const struct sw_graph *g, const struct sw_shares *shares);

/* ---- mixtures of experts (build_experts.c) ---- */

/* Like sw_param_fixed, but in f32 also where the graph has 16 bits. */
sw_value sw_param_fixed_wide(sw_graph *g, const char *name, struct sw_shape shape,
                             struct sw_init init);

/* Words of ROUTER_STATS: choices of each of n experts, sums of their probabilities, then these. */
enum { SW_ROUTER_TOKENS, SW_ROUTER_SQUARES, SW_ROUTER_DROPPED, SW_ROUTER_MORE };
static inline int64_t sw_router_stats(int64_t n)
{
    return 2 * n + SW_ROUTER_MORE;
}

/* Numbers of EXPERT_LOADS. */
enum sw_expert_load { SW_LOAD_LEAST, SW_LOAD_MOST, SW_LOAD_ENTROPY, SW_LOAD_DROPPED, SW_LOADS };

/* The choices of tokens, and the rows of experts that they become. */
struct sw_routes {
    sw_value experts, weights; /* i32 and f32 [N,k] */
    sw_value slots, sources, offsets;
    sw_value stats;
};
/* The last numbers among the offsets of a rank are of no expert: the number of its rows, and that
 * of dropped choices. */
enum { SW_OFFSETS_BEHIND = 2 };
/* Operands of an EXPERT_MATMUL; a bias follows the weights. Of both it reads only what belongs to
 * experts with rows. */
enum { SW_EXPERTS_OFFSETS = 1, SW_EXPERTS_WEIGHTS = 2 };
/* Ranks of the expert axis, which have equally many experts each; axis: enum sw_axis. n 0 counts as
 * 1. */
struct sw_expert_ranks {
    int axis, n, me;
};
enum { SW_MOST_EXPERT_RANKS = 1024 };
/* logits [N,E]; bias [E], or SW_NO_VALUE, is added to scores for the choice; mask i32 [N], or
 * SW_NO_VALUE: tokens that count in the statistics; capacity: most rows of an expert, 0 = no
 * bound; ranks: that have the experts. */
struct sw_routes sw_route(sw_graph *g, sw_value logits, sw_value bias, sw_value mask,
                          const struct sw_router_attrs *attrs, int64_t capacity, int64_t ranks);
/* Sends each rank its part of rows or offsets, and gets a part from each: [ranks P, ..] of the same
 * shape. sent, received: offsets of the rows that go to each rank, and that come from it; other
 * rows do not travel, and must be 0. SW_NO_VALUE: all of x travels. */
sw_value sw_experts_exchange(sw_graph *g, sw_value x, sw_value sent, sw_value received,
                             const struct sw_expert_ranks *ranks);
/* Marks a parameter of one rank of the expert axis. mine: this rank has it; else no op reads it. */
void sw_param_of_expert(sw_graph *g, sw_value param, bool mine);
/* Says that a parameter [n / ranks, ..] is a part of one with n experts, whose others are on other
 * ranks of the axis. */
void sw_param_of_experts(sw_graph *g, sw_value param, int64_t n);
/* x [N,C] -> [R,C], the rows of all experts, those of one together. */
sw_value sw_to_experts(sw_graph *g, sw_value x, const struct sw_routes *routes);
/* y [R,C] -> [N,C]: the sum of each token's rows, times their weights. */
sw_value sw_from_experts(sw_graph *g, sw_value y, const struct sw_routes *routes);
/* x [R,in] -> [R,out]: each row by the weights of its expert. weights: [n] values [out,in]
 * ([in,out] with in_out), one for each expert; or one value [E,out,in]. biases: as many, or
 * NULL. */
sw_value sw_expert_linear(sw_graph *g, sw_value x, const struct sw_routes *routes,
                          const sw_value *weights, const sw_value *biases, int64_t n, bool in_out);
/* x [R,2 F], whose columns are gates and ups in turn -> [R,F]: g sigmoid(alpha g) (u + 1), with
 * gates of at most `limit`, and ups between -limit and limit. */
sw_value sw_clamped_gate(sw_graph *g, sw_value x, double alpha, double limit);
/* Means over micro-batches: the load-balancing loss of Fedus et al. 2021 (equations 4 to 6), or
 * with z the squares of log sum exp(logits) (Zoph et al. 2022). stats: of one router, or the sum of
 * several. */
sw_value sw_router_loss(sw_graph *g, sw_value stats, bool z);

/* How evenly the rows are spread: f32 [2 SW_LOADS], a sum and a count of each number. Those of
 * several layers may be added. */
sw_value sw_expert_loads(sw_graph *g, const struct sw_routes *routes);

/* o: an output of an attention -> what it would be if the softmax had another score, sinks[h],
 * whose value is 0. sinks [H]. */
sw_value sw_attention_sink(sw_graph *g, sw_value o, sw_value sinks);
/* x with zeros before index `start` and after it, so that dim has n elements. */
sw_value sw_pad(sw_graph *g, sw_value x, int dim, int64_t start, int64_t n);

/* ---- building blocks for passes and update rules ---- */

/* Adds an op with the given inputs; the caller adds its outputs with sw_graph_add_out. Returns its
 * index, or -1 after a failure. */
int32_t sw_graph_add_op(struct sw_graph *g, enum sw_op_kind kind, const sw_value *in, int n_in,
                        const struct sw_attrs *attrs);
sw_value sw_graph_add_out(struct sw_graph *g, int32_t i_op, enum sw_dtype dtype,
                          struct sw_shape shape);
/* Adds an output that lives in the storage of `of` (whole). */
sw_value sw_graph_add_out_in_place(struct sw_graph *g, int32_t i_op, sw_value of);
/* x in another spread: an op EXCHANGE, or a VIEW if it needs no messages. */
sw_value sw_graph_exchange(struct sw_graph *g, sw_value x, const struct sw_exchange_attrs *attrs);
/* The same for counted rows of experts, see sw_experts_exchange. */
sw_value sw_graph_exchange_rows(struct sw_graph *g, sw_value x, sw_value sent, sw_value received,
                                const struct sw_exchange_attrs *attrs);
/* Marks an optional output as unused. */
void sw_graph_add_out_absent(struct sw_graph *g, int32_t i_op);
/* x itself if row-major, else a copy (op CONTIGUOUS). */
sw_value sw_graph_dense(struct sw_graph *g, sw_value x);
/* sw_param with a dtype of its own. */
sw_value sw_graph_param(struct sw_graph *g, const char *name, enum sw_dtype dtype,
                        struct sw_shape shape, struct sw_init init);
/*
 * sw_weight - a matrix that ops read, which may be stored quantized.
 *
 * That is the parameter itself, or what DEQUANTIZE makes of frozen parameters: the codes under the
 * name of the matrix, "<name>.absmax", and with double quantization "<name>.nested".
 *
 * shape      [rows, columns] of the matrix
 * out_param  the parameter of that name
 */
sw_value sw_weight(struct sw_graph *g, const char *name, struct sw_shape shape, struct sw_init init,
                   sw_value *out_param);
/* 1 / |w + scaling b a| of each row of outputs, [out], as a constant of differentiation. w: the
 * weight of the layer as a product reads it. */
sw_value sw_inverse_norms(struct sw_graph *g, sw_value w, const struct sw_adapted *layer);
/* Records a layer with adapters; its name is copied. */
void sw_graph_note_adapted(struct sw_graph *g, const struct sw_adapted *layer);
/* Adds a persistent tensor by name; param may be SW_NO_VALUE. The same name yields the same
 * value. */
sw_value sw_graph_state(struct sw_graph *g, const char *name, enum sw_dtype dtype,
                        struct sw_shape shape, sw_value param);
sw_value sw_graph_find(const struct sw_graph *g, enum sw_role role, const char *name);
sw_value sw_graph_find_output(const struct sw_graph *g, const char *name);
/* The value whose storage v lies in; v itself for most values. */
sw_value sw_graph_root(const struct sw_graph *g, sw_value v);
/* bytes of the elements, without strides */
size_t sw_value_bytes(const struct sw_value_info *info);
/* Copies the graph for a pass that changes ops. Names and scopes belong to `g`, which must outlive
 * the copy. */
sw_status sw_graph_copy(const struct sw_graph *g, struct sw_graph **out);
void sw_graph_fail(struct sw_graph *g, sw_status code, const char *fmt, ...) SW_PRINTF(3, 4);
/* Matches "*" (any run) and literal characters. */
bool sw_glob_match(const char *pattern, const char *text);

/* Hash of everything that may change a bit of the training in this graph. */
uint64_t sw_graph_fingerprint(const struct sw_graph *g, uint64_t h);

/* x in the dtype of sums and statistics (f32, or f64), with its gradient. */
sw_value sw_to_statistic(sw_graph *g, sw_value x);
/* sw_linear_cross_entropy token by token: losses and counts in the labels' shape, 0 where a label
 * is ignored. */
sw_value sw_linear_token_losses(sw_graph *g, sw_value h, sw_value weight, sw_value bias,
                                sw_value labels, double cap, sw_value *out_counts);
/* sw_linear_cross_entropy with a weight for each label, f32: the sum of weighted losses over the
 * sum of weights. Weights of ignored labels do not count. */
sw_value sw_weighted_linear_cross_entropy(sw_graph *g, sw_value h, sw_value weight, sw_value bias,
                                          sw_value labels, sw_value weights, double cap);
/* A loss between the rows of a micro-batch; see struct sw_preference_attrs. */
struct sw_preference_spec {
    struct sw_preference_attrs attrs; /* has_reference and has_kinds follow from the values */
    sw_value x, counts;               /* [R,T] losses of tokens, and 1 for each that counts */
    sw_value reference;               /* f32 [R]; SW_NO_VALUE = 0 */
    sw_value kinds;                   /* i32 [R] for KTO, else SW_NO_VALUE */
};
/* The mean loss over the pairs, or rows, that count. values: [R]; totals: [SW_PREFERENCE_TOTALS] */
sw_value sw_preference_loss(sw_graph *g, const struct sw_preference_spec *spec,
                            sw_value *out_values, sw_value *out_totals);

/* A term of a loss. A loss is a sum of terms: weight times the mean over the term's own targets. */
enum sw_loss_of { SW_LOSS_OF_TASK, SW_LOSS_OF_BALANCE, SW_LOSS_OF_Z }; /* the last two: routers */
struct sw_loss_term {
    double weight;
    double row_weight;   /* attrs.loss_mean.weight */
    sw_value sum, count; /* each is f32 [1] */
    enum sw_loss_of of;
};
/* Lists the terms in forward order and returns their number; 0 = the loss is not such a sum, or has
 * more than `most` terms. */
int sw_graph_loss_terms(const struct sw_graph *g, sw_value loss, struct sw_loss_term *terms,
                        int most);

/* ---- exact sums: a long fixed-point accumulator, so that a sum of doubles does not depend on
 * grouping or order. It holds |x| < 2^640 down to 2^-640; smaller parts are always dropped in the
 * same way. ---- */
enum { SW_EXACT_WORDS = 44, SW_STATS_WORDS = SW_EXACT_WORDS + 4 };
enum { SW_LAMB_WORDS = 2 * SW_STATS_WORDS }; /* stats of w, then stats of u */
enum { SW_LINE_WORDS = SW_EXACT_WORDS + 1 }; /* ADAFACTOR: a sum, and the bits of a double */
/* Layout of stats: words [0, SW_EXACT_WORDS) are the sum of squares. Word SW_EXACT_WORDS counts
 * elements that are not finite or do not fit. The rest is 0. */
void sw_exact_add(int64_t *acc, double x); /* |x| < 2^640 */
/* Adds a sum of squares. If it does not fit, or is NaN, it is counted in *n_bad instead. */
void sw_exact_add_squares(int64_t *acc, int64_t *n_bad, double sum);
void sw_exact_merge(int64_t *acc, const int64_t *other);
/* Normalises the sum so that no word has pending carries. Then 2^33 such accumulators may be added.
 * Before, an accumulator has room for 2^33 numbers. */
void sw_exact_carry(int64_t *acc);
double sw_exact_value(const int64_t *acc);

/* ---- what a device reports about an op ---- */

struct sw_kernel_info {
    bool supported;
    bool no_memory; /* to find it out, see sw_error_message: asking again may tell */
    size_t workspace_bytes;
    const char *path; /* implementation, such as "onednn:avx512_core", "avx512", "reference" */
};
/* The op with dtypes, shapes and strides of its operands, without data. Filled from the graph. */
struct sw_op_desc {
    const struct sw_op *op;
    bool is_predicated; /* does not run if the scalar SKIP is set; ops with TRAIT_UPDATE never do */
    struct sw_view in[SW_MAX_INPUTS];
    /* dtype and shape are unset (rank -1) for an absent output */
    struct sw_view out[SW_MAX_OUTPUTS];
    /* Offset of an operand from a multiple of SW_STORAGE_ALIGN, in bytes; nonzero for some values
     * inside others. It comes from the graph, never from the plan, which shards or tiles parameters
     * at such multiples. */
    uint8_t in_shift[SW_MAX_INPUTS], out_shift[SW_MAX_OUTPUTS];
};
/* Alignment of a value's storage in bytes. */
enum { SW_STORAGE_ALIGN = 64 };
static inline uint8_t sw_storage_shift(int64_t base_offset, enum sw_dtype dtype)
{
    return (uint8_t)((size_t)base_offset * sw_dtype_bytes(dtype) % SW_STORAGE_ALIGN);
}
void sw_graph_describe(const struct sw_graph *g, const struct sw_op *op, struct sw_op_desc *out);
/* UPDATE: number of elements that it updates, and the element of stream i that corresponds to the
 * first of them. */
int64_t sw_update_elems(const struct sw_op_desc *desc);
int64_t sw_update_first(const struct sw_op_desc *desc, int i);
/* Index of the input with the first moment, if moments are 8-bit codes. The second moment and the
 * scales of both follow it. 0 = moments are not codes. */
int sw_update_codes(const struct sw_op_desc *desc);
/* Number of updated elements without padding, which does not affect scales. */
int64_t sw_update_coded_elems(const struct sw_op_desc *desc);
/* Floating-point operations per launch: 2 M N K for products, a few per element otherwise. */
int64_t sw_op_flops(const struct sw_op_desc *desc);
/* Bytes that a launch reads and writes; for a lookup, only the rows that it reads from the
 * table. */
double sw_op_bytes(const struct sw_op_desc *desc);
