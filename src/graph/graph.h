// SPDX-License-Identifier: Apache-2.0
// graph - values, ops, scopes; shape rules; gradient rules; printing; what a kernel table tells about
// an op. The order of `ops` is a legal execution order; passes keep it so.
// Values have no memory here. Nothing in this room knows where a parameter lives.
#pragma once

#include "base/base.h"
#include "spillway/graph.h"
#include "tensor/tensor.h"

enum { SW_OP_MAX_IN = 12, SW_OP_MAX_OUT = 6 };

/*
 * The ops. Conventions: sums are in fp32 (f64 in f64 graphs) in an order that depends on shapes and
 * dtypes only; outputs are rounded once. rows(x) = product of all dims but the last.
 * "in place": out[i] shares the storage of the named input.
 */
// clang-format off
#define SW_OP_LIST(X)                                                                              \
    X(VIEW,               "view")               /* reshape, transpose, slice: no kernel           */ \
    X(CONTIGUOUS,         "contiguous")         /* strided x -> row-major copy                    */ \
    X(CAST,               "cast")               /* x -> same shape, other float dtype             */ \
    X(EMBEDDING,          "embedding")          /* table [V,C], ids i32 [..] -> [..,C]; a tile     \
                                                   writes the rows of its ids alone */             \
    X(EMBEDDING_GRAD,     "embedding_grad")     /* dy [..,C], ids -> rows [N,C], index i32 [N];   \
                                                   index: distinct ids ascending, then -1; rows:  \
                                                   sums in token order, 0 where index is -1;      \
                                                   attrs.n = padding id (-1 none), its row is     \
                                                   left out */                                     \
    X(MATMUL,             "matmul")             /* a, b [, bias [N]] -> act(a b + bias)           \
                                                   [, a b + bias before act]; attrs.ta, tb, act;  \
                                                   a as [rows,K] (ta: [K,M], leading dims         \
                                                   flattened into K), b as 2-D likewise; see      \
                                                   attrs.piece */                                  \
    X(SUM_ROWS,           "sum_rows")           /* x -> its suffix shape, summed over the leading \
                                                   dims: blocks of SW_SUM_BLOCK rows, each in     \
                                                   order, block sums in order */                   \
    X(ADD,                "add")                /* a, b (same shape or suffix of a's) -> a + b    */ \
    X(SCALE,              "scale")              /* x -> attrs.alpha x                             */ \
    X(ACT,                "act")                /* x -> attrs.act(x)                              */ \
    X(ACT_GRAD,           "act_grad")           /* x, dy -> dy act'(x)                            */ \
    X(LAYER_NORM,         "layer_norm")         /* x, w, b -> y, mean [rows], rstd [rows] (f32)   */ \
    X(LAYER_NORM_GRAD,    "layer_norm_grad")    /* dy, x, w, mean, rstd -> dx, dw [C], db [C];    \
                                                   dw, db summed as SUM_ROWS does */               \
    X(ADD_LAYER_NORM,     "add_layer_norm")     /* a, b, w, bias -> s = a + b (rounded), y =      \
                                                   norm(s), mean, rstd */                          \
    X(DROPOUT,            "dropout")            /* x -> keep ? x / (1-p) : 0; attrs.p; the same op \
                                                   with the same path is its own gradient */       \
    X(ATTENTION,          "attention")          /* attrs.packed: qkv, else q, k, v; then mask and \
                                                   position where attrs.has_mask, has_position    \
                                                   -> o [B,T,H D], lse [B,H,T] f32 */              \
    X(ATTENTION_GRAD,     "attention_grad")     /* do, o, lse, then the inputs of ATTENTION       \
                                                   -> dqkv, or dq, dk, dv */                       \
    X(LAST_INDEX,         "last_index")         /* ids [B,T] -> i32 [B]; attrs.n = pad            */ \
    X(SELECT_ROWS,        "select_rows")        /* x [B,T,C], index [B] -> [B,C]                  */ \
    X(SELECT_ROWS_GRAD,   "select_rows_grad")   /* dy [B,C], index [B] -> [B,T,C], zeros elsewhere */ \
    X(SLICE_GRAD,         "slice_grad")         /* dy -> zeros of the source's shape with dy at   \
                                                   attrs.n along dim attrs.dim */                  \
    X(KV_APPEND,          "kv_append")          /* cache [B,S,W] (in place), x [B,T,W], position  \
                                                   i32 [1] -> cache; writes rows pos .. pos+T-1 */ \
    X(CROSS_ENTROPY,      "cross_entropy")      /* logits [..,V], labels -> sum [1], count [1],   \
                                                   lse [rows] (f32; f64 in f64 graphs) */          \
    X(CROSS_ENTROPY_GRAD, "cross_entropy_grad") /* dsum, logits, labels, lse -> dlogits           */ \
    X(LINEAR_CE,          "linear_ce")          /* h, w [V,C], labels -> sum, count, lse; logits  \
                                                   in chunks of attrs.n rows of w; partial: ->    \
                                                   [3, rows]: label logits, maxima, sums */        \
    X(LINEAR_CE_GRAD,     "linear_ce_grad")     /* dsum, h, w, labels, lse -> dh, dw; the slope   \
                                                   (p - onehot) dsum is rounded to h's dtype       \
                                                   before the products;                            \
                                                   dh is summed over chunks in fp32; partial: ->  \
                                                   that sum, dw */                                 \
    X(LOSS_MEAN,          "loss_mean")          /* sum, count -> sum / count, 0 if count is 0     */ \
    X(LOSS_MEAN_GRAD,     "loss_mean_grad")     /* dloss, count -> dsum: dloss / count, or        \
                                                   dloss attrs.alpha where alpha is not 0 */       \
    X(SEED,               "seed")               /* -> [1], the scalar LOSS_SCALE                  */ \
    X(ACCUMULATE,         "accumulate")         /* acc f32 (in place), g [, index] -> acc: g where \
                                                   the scalar FIRST is set, else acc + g */        \
    X(STATS_RESET,        "stats_reset")        /* stats i64 [SW_STATS_WORDS] (in place)          */ \
    X(GRAD_STATS,         "grad_stats")         /* stats (in place), streams of one parameter     */ \
    X(STATS_FINISH,       "stats_finish")       /* stats -> writes scalars NORM, CLIP, SKIP;      \
                                                   attrs.alpha = clip threshold (0 none),         \
                                                   attrs.n = 1: overflow skips */                  \
    X(DENSIFY,            "densify")            /* rows [N,C], index [N] -> [V,C], zeros elsewhere */ \
    X(SELECT_INDEX,       "select_index")       /* rows [N,C], index [N] -> of rows attrs.first .. \
                                                   attrs.first + attrs.n - 1 of the whole alone:  \
                                                   rows [M,C], index [M] from attrs.first on */    \
    X(REDUCE,             "reduce")             /* collective: acc f32 [S] (in place), g -> acc:  \
                                                   the owner of slice r of g adds the ranks'      \
                                                   slices in rank order; where the scalar FIRST   \
                                                   is set, or attrs.n, the first one is taken as  \
                                                   it is; attrs.n: also from ranks that have no   \
                                                   micro-batch now */                             \
    X(GATHER,             "gather")             /* collective: slice [S] of each rank -> whole    */ \
    X(STATS_MERGE,        "stats_merge")        /* collective: stats (in place), summed over ranks */ \
    X(LOAD,               "load")               /* transfer: x in another tier -> its elements     \
                                                   attrs.n, attrs.n + 1, .. here;                 \
                                                   with ids i32: its rows of these ids */          \
    X(STORE,              "store")              /* transfer: s in another tier (in place), x -> s, \
                                                   from element attrs.n of s on */                 \
    X(UPDATE,             "update")             /* param, states.. (all in place), streams..;     \
                                                   attrs.update; not run where SKIP is set;       \
                                                   states shorter than param: of its elements     \
                                                   attrs.n, attrs.n + 1, .., alone updated; so     \
                                                   may dense streams be */                         \
    X(LAMB_MOMENTS,       "lamb_moments")       /* param, states.. (moments in place), streams..  \
                                                   -> m, v, norms i64 [SW_LAMB_WORDS]: the sums   \
                                                   of w^2 and of u^2, u being the step before its \
                                                   rate; attrs.update, attrs.n = elements that    \
                                                   are no padding; not run where SKIP is set */    \
    X(LAMB_APPLY,         "lamb_apply")         /* param, states.., norms, ratio [1] -> param and \
                                                   its master, ratio (in place): w - step ratio u; \
                                                   attributes as above; not run where SKIP is set */ \
    X(USER,               "user")                                                                  \
    X(LAMB_ADD_NORMS,     "lamb_add_norms")     /* norms, norms of another part -> of both, in place; \
                                                   not run where SKIP is set */

enum sw_op_kind {
#define SW_OP_ENUM(name, text) SW_OP_##name,
    SW_OP_LIST(SW_OP_ENUM)
#undef SW_OP_ENUM
    SW_OP_COUNT
};
// clang-format on

enum { SW_SUM_BLOCK = 64 }; /* rows of one partial sum in SUM_ROWS and LAYER_NORM_GRAD */
/* Products of larger parameters are cut into pieces. */
enum { SW_PIECE_ABOVE = 1 << 22, SW_PIECE_LEAST = 256, SW_PIECE_MOST = 1024 };
/* attrs.piece for a parameter of this shape. */
int64_t sw_piece_rows(const struct sw_shape *shape);

/* Values that change from step to step without changing the plan; a table of doubles on the device. */
// clang-format off
#define SW_SCALAR_LIST(X)                                                                          \
    X(SEED_LO)       /* low 32 bits of the seed of the training's randomness                     */ \
    X(SEED_HI)                                                                                      \
    X(MICRO)         /* global micro-batch number: step * K + k                                   */ \
    X(FIRST)         /* 1 in the first micro-batch of a step                                      */ \
    X(LOSS_SCALE)    /* what backward's seed is                                                   */ \
    X(GRAD_FACTOR)   /* 1 / (K scale), or 1 over targets and scale: applied once to the fp32 sum  */ \
    X(OVERFLOW_FACTOR) /* 1 / K: the boundary sum times this must fit fp16                        */ \
    X(LR)                                                                                           \
    X(BETA1)         /* or the momentum of SGD                                                    */ \
    X(BETA2)                                                                                        \
    X(STEP)          /* applied optimizer steps so far plus 1: t of Adam's bias correction        */ \
    X(NORM)          /* out: global gradient norm before clipping, unscaled                       */ \
    X(CLIP)          /* out: factor on the gradients, at most 1                                   */ \
    X(SKIP)          /* out: 1 = overflow, the update is not run                                  */
// clang-format on
enum sw_scalar {
#define SW_SCALAR_ENUM(name) SW_SCALAR_##name,
    SW_SCALAR_LIST(SW_SCALAR_ENUM)
#undef SW_SCALAR_ENUM
        SW_SCALAR_COUNT
};

enum sw_update_kind { SW_UPDATE_ADAM, SW_UPDATE_SGD, SW_UPDATE_LAMB };
/* Constant parts of an update rule; lr, betas and t come from the scalar table. */
struct sw_update_attrs {
    enum sw_update_kind kind;
    bool decoupled;       /* ADAM: AdamW's decay */
    bool bias_correction; /* ADAM, LAMB */
    bool nesterov;        /* SGD */
    bool maximize;        /* SGD */
    double eps, weight_decay, dampening;
    int n_states;                /* values after the parameter that the rule updates in place */
    bool eps_inside_sqrt;        /* LAMB */
    double min_coeff, max_coeff; /* LAMB: bounds of the trust ratio */
};

enum sw_view_kind { SW_VIEW_RESHAPE, SW_VIEW_TRANSPOSE, SW_VIEW_SLICE };

struct sw_attrs {
    bool ta, tb;         /* MATMUL */
    enum sw_act act;     /* MATMUL, ACT, ACT_GRAD */
    bool packed, causal; /* ATTENTION */
    bool has_mask, has_position;
    bool has_bias;                   /* MATMUL */
    enum sw_view_kind view;          /* VIEW */
    int dim, dim_b;                  /* VIEW, SLICE_GRAD */
    int64_t heads, kv_heads, window; /* ATTENTION */
    int64_t n;                       /* see the list */
    /* MATMUL of or for a large parameter, whose rows are columns of the result (tb), rows of the result (ta), or
     * summed over: it is computed in pieces of so many of these rows, and sums over pieces are added in order; 0 = in
     * one. By shape alone. */
    int64_t piece;
    /* One tile of an op on a parameter (MATMUL, EMBEDDING, LINEAR_CE and its gradient): whole pieces or chunks of it,
     * from this row on. */
    int64_t first;
    bool continues; /* the last inputs are what the tiles before have made of the outputs */
    bool partial;   /* the output is a sum that the next tile goes on with */
    double alpha, eps, p;
    struct sw_update_attrs update;
};

enum sw_phase { SW_PHASE_FORWARD, SW_PHASE_BACKWARD, SW_PHASE_UPDATE };

enum sw_role {
    SW_ROLE_INPUT,
    SW_ROLE_PARAM,     /* the working copy */
    SW_ROLE_STATE,     /* lives between steps: moments, master parts, accumulators, caches, stats */
    SW_ROLE_TRANSIENT, /* activation, gradient of an activation, workspace-like */
    SW_ROLE_GRAD       /* gradient of a parameter, one stream */
};

struct sw_value_info {
    enum sw_dtype dtype;
    struct sw_shape shape;
    int64_t strides[SW_MAX_RANK]; /* elements */
    enum sw_role role;
    const char *name; /* inputs, parameters, states; else NULL. Arena of the graph */
    int32_t producer; /* op index, -1 for leaves */
    /* Storage: SW_NO_VALUE = its own; else this value lives inside `base` (a root value) from
     * element `base_offset` on (views and in-place outputs). */
    sw_value base;
    int64_t base_offset;
    sw_value sparse_index; /* row-sparse gradient: the i32 [N] index that belongs to these rows */
    sw_value param;        /* STATE and GRAD: of which parameter, else SW_NO_VALUE */
    struct sw_init init;   /* PARAM */
    /* Slice of a flattened tensor that one rank owns: elements [first, first + shape[0]) of `whole`;
     * what lies beyond its end is padding and holds zeros. whole.rank = -1 where nothing is cut. */
    struct sw_shape whole;
    int64_t first;
    int64_t
        padded_elems; /* storage beyond the shape, so that equal slices of it can travel; 0 = none */
    bool contiguous;
    bool needs_grad;         /* a parameter, or computed from one */
    bool is_optimizer_state; /* STATE: moments, masters, rests of masters */
    bool is_gradient_sum;    /* STATE: of one stream, over micro-batches or ranks */
    bool
        out_of_place; /* PARAM, STATE: a step writes it beside what it read, and may be undone; not on the device */
    bool is_tiled; /* PARAM: ops see values inside it, whole rows, and never all of it */
    bool is_pack;  /* PARAM, STATE: bytes in which several of them lie */
    /* 0 = on the device, else the tier that it lies in (plan.h, enum sw_tier), and ops other than LOAD and STORE never
     * see it. */
    int tier;
    bool is_output;
    int micro; /* see struct sw_op; shared by all: 0 */
};

struct sw_op {
    enum sw_op_kind kind;
    enum sw_phase phase;
    int n_in, n_out;
    sw_value in[SW_OP_MAX_IN];
    sw_value out[SW_OP_MAX_OUT]; /* SW_NO_VALUE: an optional output that nobody wants */
    struct sw_attrs attrs;
    const struct sw_user_op *user;
    int32_t scope;
    int micro;           /* vertical schedule: of which of this rank's micro-batches; else 0 */
    uint64_t path;       /* names this op for its randomness; a clone keeps it */
    bool unless_skipped; /* predicated: not run where the scalar SKIP is set */
    bool in_backward;    /* of the update, and runs within the step's last backward */
    bool settles;        /* of the update, and runs behind all of it that may fail */
    bool is_clone;       /* made by recomputation */
    bool removed;        /* by a pass; kept so that indices stay */
};

struct sw_scope {
    const char *name; /* full: "transformer.h.3.attn" */
    int32_t parent;   /* -1 for the root */
    bool is_block;
    uint16_t n_kinds[SW_OP_COUNT]; /* forward ops of each kind so far: the ordinal in a path */
};

/* One use of a parameter, and its gradient. */
struct sw_stream {
    sw_value param;
    sw_value grad; /* comm dtype; row-sparse where its sparse_index says so */
    int micro;     /* above 0: continues the use of the stream before */
};

struct sw_named {
    const char *name;
    sw_value value;
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
    enum sw_phase phase; /* of ops added now, */
    int micro;           /* and their micro-batch, as of values */
    struct sw_value_info *values;
    struct sw_op *ops;
    struct sw_scope *scopes;
    struct sw_stream *streams;
    struct sw_named *outputs;
    sw_value *params; /* in order of first use */
    sw_value *states; /* [cap_states] by a hash of the name; SW_NO_VALUE = free */
    int32_t n_states, cap_states;
    int32_t n_values, n_ops, n_scopes, n_streams, n_outputs, n_params;
    int32_t cap_values, cap_ops, cap_scopes, cap_streams, cap_outputs, cap_params;
    int32_t scope;             /* current */
    const char *const *frozen; /* name patterns of parameters without gradient, borrowed */
    int n_frozen;
};

struct sw_graph_options {
    enum sw_dtype dtype, grad_dtype;
    bool training, token_mean;
    int64_t loss_chunk;        /* 0 = SW_LOSS_CHUNK */
    const char *const *frozen; /* glob patterns ("*" any run) over parameter names; borrowed */
    int n_frozen;
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

/* Adds an op with the given inputs; outputs are made by the caller with sw_graph_new_value.
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
/* A persistent tensor, by name; param may be SW_NO_VALUE. The same name again is the same value. */
sw_value sw_graph_state(struct sw_graph *g, const char *name, enum sw_dtype dtype,
                        struct sw_shape shape, sw_value param);
sw_value sw_graph_find(const struct sw_graph *g, enum sw_role role, const char *name);
sw_value sw_graph_find_output(const struct sw_graph *g, const char *name);
/* Of one micro-batch, where the graph holds several. */
sw_value sw_graph_find_output_of(const struct sw_graph *g, const char *name, int micro);
/* The value whose storage v lives in (v itself for most). */
sw_value sw_graph_root(const struct sw_graph *g, sw_value v);
size_t sw_value_bytes(const struct sw_value_info *info); /* of its elements, without strides */
size_t sw_value_storage_bytes(const struct sw_value_info *info); /* with padding */
static inline bool sw_value_is_slice(const struct sw_value_info *info)
{
    return info->whole.rank >= 0;
}
/* Runs on all ranks together, by the executor and no device. */
bool sw_op_is_collective(enum sw_op_kind kind);
/* Moves bytes between tiers; by the executor and no kernel. */
bool sw_op_is_transfer(enum sw_op_kind kind);
/* A value without a name or a producer; passes add it to ops themselves. */
sw_value sw_graph_new_value(struct sw_graph *g, enum sw_role role, enum sw_dtype dtype,
                            struct sw_shape shape);
/* Another value like v, also in where it lies. */
sw_value sw_graph_copy_value(struct sw_graph *g, sw_value v);
void sw_graph_fail(struct sw_graph *g, sw_status code, const char *fmt, ...) SW_PRINTF(3, 4);
/* Matches "*" (any run) and literal characters. */
bool sw_glob_match(const char *pattern, const char *text);

const char *sw_op_name(const struct sw_op *op);
/* What a message about an op calls its place: its scope; outside of all scopes that of what it works on, or the parameter,
 * or the phase. Never empty. */
const char *sw_op_where(const struct sw_graph *g, const struct sw_op *op);
/* Floating-point operations of one launch: 2 M N K for products, a few per element elsewhere. */
int64_t sw_op_flops(const struct sw_graph *g, const struct sw_op *op);
/* "%12 = matmul(%10, %3) f32[2, 64, 768]  h.0.attn" lines. */
void sw_graph_print(const struct sw_graph *g, struct sw_str *out);
/* Hash of everything that may change a bit of the training in this graph (architecture 5a). */
uint64_t sw_graph_fingerprint(const struct sw_graph *g, uint64_t h);

/* ---- exact sums: a long fixed-point accumulator, so that a sum of doubles does not depend on how it
 * was cut or ordered. Holds |x| < 2^640 down to 2^-640; smaller parts are dropped alike always. ---- */
enum { SW_EXACT_WORDS = 44, SW_STATS_WORDS = SW_EXACT_WORDS + 4 };
/* Elements of a tensor whose squares are added in order and in double before they are added exactly. So a
 * tensor may be cut between any two runs, and is never cut elsewhere. */
enum { SW_SQUARES_RUN = 8 };
enum { SW_LAMB_WORDS = 2 * SW_STATS_WORDS }; /* stats of w, then of u */
/* stats: words [0, SW_EXACT_WORDS) the sum of squares; word SW_EXACT_WORDS: elements that are not
 * finite or do not fit; the rest 0. */
void sw_exact_add(int64_t *acc, double x); /* |x| < 2^640 */
void sw_exact_merge(int64_t *acc, const int64_t *other);
/* The same sum in the only words that have no carries left: 2^33 of such accumulators may be added. An
 * accumulator has room for 2^33 numbers before. */
void sw_exact_settle(int64_t *acc);
double sw_exact_value(const int64_t *acc);

/* ---- what a device tells about an op ---- */

struct sw_kernel_info {
    bool supported;
    size_t workspace_bytes;
    const char *path; /* which implementation: "onednn:avx512_core", "avx512", "reference" */
};
/* The op with the dtypes, shapes and strides of its operands; no data. Filled from the graph. */
struct sw_op_desc {
    const struct sw_op *op;
    struct sw_view in[SW_OP_MAX_IN];
    struct sw_view out[SW_OP_MAX_OUT]; /* dtype and shape unset (rank -1) for an absent output */
};
void sw_graph_describe(const struct sw_graph *g, const struct sw_op *op, struct sw_op_desc *out);
/* UPDATE: how many elements it updates, and which element of stream i belongs to the first of them. */
int64_t sw_update_elems(const struct sw_op_desc *desc);
int64_t sw_update_first(const struct sw_op_desc *desc, int i);
