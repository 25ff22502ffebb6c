// SPDX-License-Identifier: Apache-2.0
// graph - values, ops, scopes; shape rules; gradient rules; printing; what a kernel table tells
// about an op. The order of `ops` is a legal execution order; passes keep it so. Values have no
// memory here. Nothing in this room knows where a parameter lives.
#pragma once

#include "base/base.h"
#include "graph/op.h"
#include "spillway/graph.h"
#include "tensor/tensor.h"

/* Products of larger parameters are cut into pieces. */
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
    X(LOSS_SCALE)    /* what backward's seed is */ \
    X(GRAD_FACTOR)   /* 1 / (K scale), or 1 over targets and scale: once, to the fp32 sum */ \
    X(OVERFLOW_FACTOR) /* 1 / K: the boundary sum times this must fit fp16 */ \
    X(LR)                                                                                          \
    X(BETA1)         /* or the momentum of SGD */ \
    X(BETA2)                                                                                       \
    X(STEP)          /* applied optimizer steps so far plus 1: t of Adam's bias correction */ \
    X(CORRECTION1)   /* 1 - BETA1^STEP: of sw_scalars_complete */ \
    X(CORRECTION2)   /* 1 - BETA2^STEP */ \
    X(SQUARES_KEPT)  /* ADAFACTOR: what means of squares keep of themselves */ \
    X(NORM)          /* out: global gradient norm before clipping, unscaled */ \
    X(CLIP)          /* out: factor on the gradients, at most 1 */ \
    X(SKIP)          /* out: 1 = overflow, the update is not run                                  */
// clang-format on
enum sw_scalar {
#define SW_SCALAR_ENUM(name) SW_SCALAR_##name,
    SW_SCALAR_LIST(SW_SCALAR_ENUM)
#undef SW_SCALAR_ENUM
        SW_SCALAR_COUNT
};
/* Sets what follows from the others, before a table goes to a device: powers are computed once, by
 * the host, so that all devices have the same. */
void sw_scalars_complete(double scalars[SW_SCALAR_COUNT]);

/* SQUARES_KEPT of step t: 1 - t^decay_rate. */
double sw_update_squares_kept(const struct sw_update_attrs *attrs, double t);

/* What an update takes from the table: with the factors of its parameter's group, and the size of a
 * step, which has the corrections that stand in front of the direction. */
struct sw_update_rates {
    double lr, beta1, beta2, correction1, correction2, step_size;
};
struct sw_update_rates sw_update_rates_of(const struct sw_update_attrs *attrs,
                                          const double scalars[SW_SCALAR_COUNT]);

enum sw_phase { SW_PHASE_FORWARD, SW_PHASE_BACKWARD, SW_PHASE_UPDATE };

enum sw_role {
    SW_ROLE_INPUT,
    SW_ROLE_PARAM,     /* the working copy */
    SW_ROLE_STATE,     /* lives between steps: moments, master parts, accumulators, caches, stats,
                        * constants */
    SW_ROLE_TRANSIENT, /* activation, gradient of an activation, workspace-like */
    SW_ROLE_GRAD       /* gradient of a parameter, one stream */
};

struct sw_value_info {
    enum sw_dtype dtype;
    struct sw_shape shape;
    int64_t strides[SW_MAX_RANK]; /* elements */
    enum sw_role role;
    const char *name; /* inputs, parameters, states; else NULL. Arena of the graph */
    const void *data; /* a state that is a constant: its elements, else NULL. Arena of the graph */
    int32_t producer; /* op index, -1 for leaves */
    /* Storage: SW_NO_VALUE = its own; else this value lives inside `base` (a root value) from
     * element `base_offset` on (views and in-place outputs). */
    sw_value base;
    int64_t base_offset;
    sw_value sparse_index; /* row-sparse gradient: the i32 [N] index that belongs to these rows */
    sw_value param;        /* STATE and GRAD: of which parameter, else SW_NO_VALUE */
    struct sw_init init;   /* PARAM */
    bool contiguous;
    bool needs_grad; /* a parameter, or computed from one */
    bool is_output;
};

struct sw_op {
    enum sw_op_kind kind;
    enum sw_phase phase;
    int n_in, n_out;
    sw_value in[SW_MAX_INPUTS];
    sw_value out[SW_MAX_OUTPUTS]; /* SW_NO_VALUE: an optional output that nobody wants */
    struct sw_attrs attrs;
    const struct sw_user_op *user;
    int32_t scope;
    uint64_t path; /* names this op for its randomness; a clone keeps it */
};

struct sw_scope {
    const char *name; /* full: "transformer.h.3.attn" */
    int32_t parent;   /* -1 for the root */
    bool is_block;
    uint16_t n_kinds[SW_N_OP_KINDS]; /* forward ops of each kind so far: the ordinal in a path */
};

/* One use of a parameter, and its gradient. */
struct sw_stream {
    sw_value param;
    sw_value grad; /* comm dtype; row-sparse where its sparse_index says so */
};

struct sw_named {
    const char *name;
    sw_value value;
};

/* Small matrices that are trained beside frozen weights. Who makes them (nn/lora.h) also decides
 * what else is trained, by name. */
struct sw_adapter {
    bool (*trains)(const struct sw_adapter *adapter, const char *param);
};

/* A linear layer that has some: y = x W^T + bias + scaling (x A^T) B^T. */
struct sw_adapted {
    const char *module; /* "model.layers.0.self_attn.q_proj"; arena of the graph */
    sw_value weight, a, b;
    double scaling;
    bool in_out; /* the weight is [in, out] */
};

struct sw_adapted_layers {
    const struct sw_adapter *by; /* NULL = none; borrowed */
    struct sw_adapted *items;    /* [n] in order of the forward */
    int32_t n;
};

struct sw_graph {
    struct sw_arena arena; /* names */
    sw_status status;
    char *error;              /* message of the first failure (arena) */
    enum sw_dtype dtype;      /* parameters and activations */
    enum sw_dtype grad_dtype; /* gradients of parameters: the communication dtype */
    bool training;
    bool token_mean;     /* losses are weighted by 1/(rows) in a micro-batch; see LOSS_MEAN_GRAD */
    int64_t loss_chunk;  /* rows of the vocabulary matrix per chunk of LINEAR_CE */
    enum sw_phase phase; /* of ops added now */
    struct sw_value_info *values;
    struct sw_op *ops;
    struct sw_scope *scopes;
    struct sw_stream *streams;
    struct sw_named *outputs;
    sw_value *params;       /* in order of first use */
    struct sw_names leaves; /* by role: inputs, parameters, states; scopes by their parent */
    int32_t n_values, n_ops, n_scopes, n_streams, n_outputs, n_params;
    int32_t scope;             /* current */
    const char *const *frozen; /* name patterns of parameters without gradient, borrowed */
    int n_frozen;
    struct sw_adapted_layers adapted;
};

struct sw_graph_options {
    enum sw_dtype dtype, grad_dtype;
    bool training, token_mean;
    int64_t loss_chunk;        /* 0 = SW_LOSS_CHUNK */
    const char *const *frozen; /* glob patterns ("*" any run) over parameter names; borrowed */
    int n_frozen;
    const struct sw_adapter *adapter; /* trains what it says, and nothing else; borrowed */
};
enum { SW_LOSS_CHUNK = 4096 };

sw_status sw_graph_open(const struct sw_graph_options *options, struct sw_graph **out);
void sw_graph_close(struct sw_graph *g);

/*
 * sw_graph_backward - append the backward computation of scalar `loss` ([1]).
 *
 * Walks the ops in reverse and lets each gradient rule emit ops. Gradients of activations that are
 * used several times are added in order of use from the last to the first; each use of a parameter
 * becomes one entry of g->streams, in order of the forward.
 */
sw_status sw_graph_backward(struct sw_graph *g, sw_value loss);

/* ---- building blocks for passes and update rules ---- */

/* Adds an op with the given inputs; outputs are made by the caller with sw_graph_add_out.
 * Returns its index, -1 after a failure. */
int32_t sw_graph_add_op(struct sw_graph *g, enum sw_op_kind kind, const sw_value *in, int n_in,
                        const struct sw_attrs *attrs);
sw_value sw_graph_add_out(struct sw_graph *g, int32_t i_op, enum sw_dtype dtype,
                          struct sw_shape shape);
/* An output that lives in the storage of `of` (whole). */
sw_value sw_graph_add_out_in_place(struct sw_graph *g, int32_t i_op, sw_value of);
/* An output that this op has by its kind but nobody wants. */
void sw_graph_add_out_absent(struct sw_graph *g, int32_t i_op);
/* x itself when row-major, else one copy of it (op CONTIGUOUS). */
sw_value sw_graph_dense(struct sw_graph *g, sw_value x);
/* Notes a layer with adapters; its name is copied. */
void sw_graph_note_adapted(struct sw_graph *g, const struct sw_adapted *layer);
/* A persistent tensor, by name; param may be SW_NO_VALUE. The same name again is the same value. */
sw_value sw_graph_state(struct sw_graph *g, const char *name, enum sw_dtype dtype,
                        struct sw_shape shape, sw_value param);
sw_value sw_graph_find(const struct sw_graph *g, enum sw_role role, const char *name);
sw_value sw_graph_find_output(const struct sw_graph *g, const char *name);
/* The value whose storage v lives in (v itself for most). */
sw_value sw_graph_root(const struct sw_graph *g, sw_value v);
size_t sw_value_bytes(const struct sw_value_info *info); /* of its elements, without strides */
/* The same graph again, for a pass that changes ops; names and scopes stay those of `g`, which must
 * outlive it. */
sw_status sw_graph_copy(const struct sw_graph *g, struct sw_graph **out);
void sw_graph_fail(struct sw_graph *g, sw_status code, const char *fmt, ...) SW_PRINTF(3, 4);
/* Matches "*" (any run) and literal characters. */
bool sw_glob_match(const char *pattern, const char *text);

/* Hash of everything that may change a bit of the training in this graph. */
uint64_t sw_graph_fingerprint(const struct sw_graph *g, uint64_t h);

/* A loss is a sum of terms, weight times the mean over the term's own targets each. */
struct sw_loss_term {
    double weight;
    double row_weight;   /* attrs.loss_mean.weight */
    sw_value sum, count; /* f32 [1] */
};
/* How many terms, in the order of the forward; 0: it is no such sum, or of more than `most`. */
int sw_graph_loss_terms(const struct sw_graph *g, sw_value loss, struct sw_loss_term *terms,
                        int most);

/* ---- exact sums: a long fixed-point accumulator, so that a sum of doubles does not depend on how
 * it was cut or ordered. Holds |x| < 2^640 down to 2^-640; smaller parts are dropped alike always.
 * ---- */
enum { SW_EXACT_WORDS = 44, SW_STATS_WORDS = SW_EXACT_WORDS + 4 };
enum { SW_LAMB_WORDS = 2 * SW_STATS_WORDS }; /* stats of w, then of u */
enum { SW_LINE_WORDS = SW_EXACT_WORDS + 1 }; /* ADAFACTOR: a sum, and the bits of a double */
/* stats: words [0, SW_EXACT_WORDS) the sum of squares; word SW_EXACT_WORDS: elements that are not
 * finite or do not fit; the rest 0. */
void sw_exact_add(int64_t *acc, double x); /* |x| < 2^640 */
/* A sum of squares; one that does not fit, or is NaN, is counted in *n_bad instead. */
void sw_exact_add_squares(int64_t *acc, int64_t *n_bad, double sum);
void sw_exact_merge(int64_t *acc, const int64_t *other);
/* The same sum in the only words that have no carries left: 2^33 of such accumulators may be added.
 * An accumulator has room for 2^33 numbers before. */
void sw_exact_carry(int64_t *acc);
double sw_exact_value(const int64_t *acc);

/* ---- what a device tells about an op ---- */

struct sw_kernel_info {
    bool supported;
    bool no_memory; /* to find it out, see sw_error_message: asking again may tell */
    size_t workspace_bytes;
    const char *path; /* which implementation: "onednn:avx512_core", "avx512", "reference" */
};
/* The op with the dtypes, shapes and strides of its operands; no data. Filled from the graph. */
struct sw_op_desc {
    const struct sw_op *op;
    bool is_predicated; /* not run where the scalar SKIP is set; an op with TRAIT_UPDATE never is */
    struct sw_view in[SW_MAX_INPUTS];
    struct sw_view out[SW_MAX_OUTPUTS]; /* dtype and shape unset (rank -1) for an absent output */
    /* Bytes from the last multiple of SW_STORAGE_ALIGN to where an operand begins: not 0 for some
     * that lie in others. The graph's, never the plan's: parts of a parameter are cut there. */
    uint8_t in_shift[SW_MAX_INPUTS], out_shift[SW_MAX_OUTPUTS];
};
/* Storage of a value begins at multiples of so many bytes. */
enum { SW_STORAGE_ALIGN = 64 };
static inline uint8_t sw_storage_shift(int64_t base_offset, enum sw_dtype dtype)
{
    return (uint8_t)((size_t)base_offset * sw_dtype_bytes(dtype) % SW_STORAGE_ALIGN);
}
void sw_graph_describe(const struct sw_graph *g, const struct sw_op *op, struct sw_op_desc *out);
/* UPDATE: how many elements it updates, and which element of stream i belongs to the first of
 * them. */
int64_t sw_update_elems(const struct sw_op_desc *desc);
int64_t sw_update_first(const struct sw_op_desc *desc, int i);
/* The input of the first moment, where moments are codes of 8 bits; the other one, then the scales
 * of both come behind it. 0: they are no codes. */
int sw_update_codes(const struct sw_op_desc *desc);
/* Of elements of the update, those that are no padding: which has a part in no scale. */
int64_t sw_update_coded_elems(const struct sw_op_desc *desc);
/* Floating-point operations of one launch: 2 M N K for products, a few per element elsewhere. */
int64_t sw_op_flops(const struct sw_op_desc *desc);
/* Bytes that one launch reads and writes; of a table that is looked up, the rows alone. */
double sw_op_bytes(const struct sw_op_desc *desc);
