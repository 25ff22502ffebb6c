// SPDX-License-Identifier: Apache-2.0
// op - the kinds of ops, the attributes of each, and one row of facts for each kind (struct
// sw_op_info). Whoever wants to know something of an op asks its row: what it does to its operands,
// what it makes of them, what it costs, how it may be cut. Part of graph.h.
#pragma once

#include "spillway/graph.h"
#include "tensor/tensor.h"

struct sw_graph;
struct sw_op;
struct sw_op_desc;

enum { SW_MAX_INPUTS = 12, SW_MAX_OUTPUTS = 6 };

/*
 * The ops. Conventions: sums are in fp32 (f64 in f64 graphs) in an order that depends on shapes and
 * dtypes only; outputs are rounded once. rows(x) = product of all dims but the last.
 * "in place": out[i] shares the storage of the named input. Attributes are in struct sw_attrs.
 */
// clang-format off
#define SW_OP_LIST(X)                                                                              \
    X(VIEW,               "view")               /* reshape, transpose, slice: no kernel */ \
    X(CONTIGUOUS,         "contiguous")         /* strided x -> row-major copy */ \
    X(CAST,               "cast")               /* x -> same shape, other float dtype */ \
    X(EMBEDDING,          "embedding")          /* table [V,C], ids i32 [..] -> [..,C]; a tile     \
                                                   writes the rows of its ids alone */             \
    X(EMBEDDING_GRAD,     "embedding_grad")     /* dy [..,C], ids -> rows [N,C], index i32 [N];    \
                                                   index: distinct ids ascending, then -1; rows:   \
                                                   sums in token order, 0 where index is -1;       \
                                                   the padding id's row is left out */             \
    X(MATMUL,             "matmul")             /* a, b [, bias [N]] -> act(a b + bias)            \
                                                   [, a b + bias before act]; attrs ta, tb, act;   \
                                                   a as [rows,K] (ta: [K,M], leading dims          \
                                                   flattened into K), b as 2-D likewise; see       \
                                                   attrs piece */                                  \
    X(SUM_ROWS,           "sum_rows")           /* x -> its suffix shape, summed over the leading  \
                                                   dims: blocks of SW_SUM_BLOCK rows, each in      \
                                                   order, block sums in order */                   \
    X(ADD,                "add")                /* a, b (same shape or suffix of a's) -> a + b */ \
    X(SCALE,              "scale")              /* x -> factor x */ \
    X(ACT,                "act")                /* x -> act(x) */ \
    X(ACT_GRAD,           "act_grad")           /* x, dy -> dy act'(x) */ \
    X(LAYER_NORM,         "layer_norm")         /* x, w, b -> y, mean [rows], rstd [rows] (f32) */ \
    X(LAYER_NORM_GRAD,    "layer_norm_grad")    /* dy, x, w, mean, rstd -> dx, dw [C], db [C];     \
                                                   dw, db summed as SUM_ROWS does */               \
    X(ADD_LAYER_NORM,     "add_layer_norm")     /* a, b, w, bias -> s = a + b (rounded), y =       \
                                                   norm(s), mean, rstd */                          \
    X(DROPOUT,            "dropout")            /* x -> keep ? x / (1-p) : 0; the same op with     \
                                                   the same path is its own gradient */            \
    X(ATTENTION,          "attention")          /* packed: qkv, else q, k, v; then mask, position, \
                                                   slopes, segments, bias where there are such     \
                                                   -> o [B,T,H D], lse [B,H,T] f32 */              \
    X(ATTENTION_GRAD,     "attention_grad")     /* do, o, lse, then the inputs of ATTENTION        \
                                                   -> dqkv, or dq, dk, dv [, dbias: of a bias that \
                                                   samples share the sum over them in order] */    \
    X(LAST_INDEX,         "last_index")         /* ids [B,T] -> i32 [B]; the last that is no       \
                                                   padding, or is_value: that is it; else 0 */     \
    X(SELECT_ROWS,        "select_rows")        /* x [B,T,C], index [B] -> [B,C] */ \
    X(SELECT_ROWS_GRAD,   "select_rows_grad")   /* dy [B,C], index [B] -> [B,T,C], else zeros */ \
    X(SLICE_GRAD,         "slice_grad")         /* dy -> zeros of the source's shape with dy at    \
                                                   attrs start along dim */                        \
    X(KV_APPEND,          "kv_append")          /* cache [B,S,W] (in place), x [B,T,W], position   \
                                                   i32 [1] -> cache; writes rows pos .. pos+T-1 */ \
    X(CROSS_ENTROPY,      "cross_entropy")      /* logits [..,V], labels -> sum [1], count [1],    \
                                                   lse [rows] (f32; f64 in f64 graphs); smoothing  \
                                                   e: (1-e) of it, and e of the mean over classes; \
                                                   ignores_beyond: labels from V on do not count   \
                                                 */                                                \
    X(CROSS_ENTROPY_GRAD, "cross_entropy_grad") /* dsum, logits, labels, lse -> dlogits */ \
    X(LINEAR_CE,          "linear_ce")          /* h, w [V,C], labels [, bias [V]] -> sum, count,  \
                                                   lse; logits in chunks of so many rows of w;     \
                                                   attrs cap: cap tanh(logits / cap); partial: ->  \
                                                   [3, rows]: label logits, maxima, sums; of rows  \
                                                   without a label anything                     */ \
    X(LINEAR_CE_GRAD,     "linear_ce_grad")     /* dsum, h, w, labels, lse [, bias] -> dh, dw      \
                                                   [, db]; the slope (p - onehot) dsum, of a cap   \
                                                   too, is rounded to h's dtype before the         \
                                                   products and the sum over rows;                 \
                                                   dh is summed over chunks in fp32; partial: ->   \
                                                   that sum, dw [, db] */                          \
    X(LOSS_MEAN,          "loss_mean")          /* sum, count -> sum / count, 0 if count is 0 */ \
    X(LOSS_MEAN_GRAD,     "loss_mean_grad")     /* dloss, count -> dsum: dloss / count, or         \
                                                   dloss weight where weight is not 0 */           \
    X(SEED,               "seed")               /* -> [1], the scalar LOSS_SCALE */ \
    X(ACCUMULATE,         "accumulate")         /* acc f32 (in place), g [, index] -> acc: g where \
                                                   the scalar FIRST is set, else acc + g */        \
    X(STATS_RESET,        "stats_reset")        /* stats i64 [SW_STATS_WORDS] (in place) */ \
    X(GRAD_STATS,         "grad_stats")         /* stats (in place), streams of one parameter */ \
    X(STATS_FINISH,       "stats_finish")       /* stats -> writes scalars NORM, CLIP, SKIP */ \
    X(DENSIFY,            "densify")            /* rows [N,C], index [N] -> [V,C], else zeros */ \
    X(SELECT_INDEX,       "select_index")       /* rows [N,C], index [N] -> of rows attrs first .. \
                                                   first + n - 1 of the whole alone:               \
                                                   rows [M,C], index [M] from attrs first on */    \
    X(UPDATE,             "update")             /* param, states.. (all in place), streams..; not  \
                                                   run where SKIP is set; states shorter than      \
                                                   param: of its elements attrs first, first + 1,  \
                                                   .., alone updated; so may dense streams be;     \
                                                   moments of u8 are codes of runs of SW_CODE_RUN  \
                                                   elements, and behind them come their scales:    \
                                                   attrs n_elems, first a multiple of the run */   \
    X(LAMB_MOMENTS,       "lamb_moments")       /* param, states.. (moments in place), streams..   \
                                                   -> m, v, norms i64 [SW_LAMB_WORDS]: the sums    \
                                                   of w^2 and of u^2, u being the step before its  \
                                                   rate; attrs n_elems; not run where SKIP is set \
                                                 */ \
    X(LAMB_APPLY,         "lamb_apply")         /* param, states.., norms, ratio [1] -> param and  \
                                                   its master, ratio (in place): w - step ratio u; \
                                                   attributes as above; not run where SKIP is     \
                                                   set */ \
    X(USER,               "user")                                                                  \
    X(LAMB_ADD_NORMS,     "lamb_add_norms")     /* norms, those of another part -> both, in place; \
                                                   not run where SKIP is set */                    \
    X(RMS_NORM,           "rms_norm")           /* x, w -> y, rstd [rows] (f32): x rstd is rounded \
                                                   to x's dtype before it is multiplied with w;    \
                                                   one_plus: x rstd (1 + w), rounded once */       \
    X(RMS_NORM_GRAD,      "rms_norm_grad")      /* dy, x, w, rstd -> dx, dw [C], summed as         \
                                                   SUM_ROWS does */                                \
    X(ADD_RMS_NORM,       "add_rms_norm")       /* a, b, w -> s = a + b (rounded), y = norm(s),    \
                                                   rstd */                                         \
    X(MUL,                "mul")                /* a, b of one shape -> a b */                     \
    X(GATED_ACT,          "gated_act")          /* gate, up -> act(gate) up, rounded once */       \
    X(GATED_ACT_GRAD,     "gated_act_grad")     /* dy, gate, up -> dgate, dup */                   \
    X(ROTARY,             "rotary")             /* x [B,T,H,D], table f32 [P,R], positions i32 [T] \
                                                   or [B,T] -> y: row p of the table has cos of    \
                                                   R/2 angles, then sin; of each head the pairs    \
                                                   (i, i + R/2), or interleaved (2i, 2i + 1), are  \
                                                   turned, the elements from R on copied; inverse: \
                                                   turned back, which is the gradient */           \
    X(POSITIONS,          "positions")          /* i32 x -> x + offset; counted: mask x [B,T] ->   \
                                                   x times the sum of it up to here, - 1 +         \
                                                   offset */                                       \
    X(NOT_EQUAL,          "not_equal")          /* i32 x -> i32: 0 where it is attrs value, else 1 \
                                                 */                                                \
    X(SHIFT_RIGHT,        "shift_right")        /* ids i32 [B,T] -> i32: attrs value, then a row   \
                                                   but for its last; -100 becomes attrs pad */     \
    X(MASK_ROWS,          "mask_rows")          /* x [..,C], mask i32 [..] -> x, and zeros where   \
                                                   the mask is 0; its own gradient */              \
    X(CONCAT,             "concat")             /* alike but along attrs dim -> behind one another \
                                                 */                                                \
    X(MASKED_MEAN,        "masked_mean")        /* x [B,T,C], mask i32 [B,T] -> [B,C]: the sum of  \
                                                   rows whose mask is not 0, in order, over their  \
                                                   count; 0 where there is none */                 \
    X(MASKED_MEAN_GRAD,   "masked_mean_grad")   /* dy [B,C], mask -> dx [B,T,C] */                 \
    X(ELEMENT_LOSS,       "element_loss")       /* x, target f32 -> sum [1], count [1]: (x - t)^2, \
                                                   or binary: -log p(t), p(1) = sigmoid(x), over   \
                                                   the targets that are no NaN */                  \
    X(ELEMENT_LOSS_GRAD,  "element_loss_grad")  /* dsum, x, target -> dx */                        \
    X(RELATIVE_BIAS,      "relative_bias")      /* rows [R,H] [, position i32 [1]] -> f32 [H,T,S]: \
                                                   of query t and key s row s - (t + position) +   \
                                                   origin, or the nearest there is */              \
    X(RELATIVE_BIAS_GRAD, "relative_bias_grad") /* d [H,T,S] [, position] -> drows, summed in the  \
                                                   order of queries, then of keys */               \
    X(RELATIVE_SCORES,    "relative_scores")    /* x [B,T,H,D], table [P,H,D], index i32 [2T - 1]  \
                                                   -> f32 [B,H,T,T]: scale x_i . table row         \
                                                   index[j - i + T - 1]; by_key: x_j */            \
    X(RELATIVE_SCORES_GRAD, "relative_scores_grad") /* d, x, table, index -> dx, dtable */         \
    X(IM2COL,             "im2col")             /* x [B,C,H,W] or [B,C,W] -> [B,OH OW,C KH KW]:    \
                                                   what a window sees, zeros outside */            \
    X(COL2IM,             "col2im")             /* its gradient: sums over the windows, in order   \
                                                   of the place in them */                         \
    X(POOL,               "pool")               /* x [B,C,H,W] -> [B,C,OH,OW]: the largest of a    \
                                                   window, the first of equal ones, or the mean */ \
    X(POOL_GRAD,          "pool_grad")          /* dy, x -> dx, summed over the windows in order   \
                                                 */                                                \
    X(LSTM,               "lstm")               /* x [B,T,4H] (of the input, as gates i, f, g, o), \
                                                   w [4H,H], bias [4H] [, mask i32 [B,T]] -> y     \
                                                   [B,T,H], gates behind their activation          \
                                                   [B,T,4H], cells [B,T,H] (f32); a step looks at  \
                                                   the y (rounded) of the one before; no step, and \
                                                   zeros, where the mask is 0; reverse: from the   \
                                                   last token on */                                \
    X(LSTM_GRAD,          "lstm_grad")          /* dy, w, y, gates, cells [, mask] -> dx, dw,      \
                                                   dbias; dw, dbias summed by sample, then step */ \
    X(TRIM,               "trim")               /* ids i32 [B,T], lengths i32 [B] -> ids, and -1   \
                                                   from the length of the row on */                \
    X(MUON_MOMENTS,       "muon_moments")       /* param, states.. (momentum in place), streams..  \
                                                   -> momentum, bf16 of param's shape: where to go,\
                                                   before it is made orthogonal; not run where     \
                                                   SKIP is set */                                  \
    X(MUON_APPLY,         "muon_apply")         /* param, what belongs to its master, that of the  \
                                                   whole matrix [R,C] -> param and its master (in  \
                                                   place), of whose elements attrs n_elems from    \
                                                   attrs origin on are here; not run where SKIP is \
                                                   set */                                          \
    X(ADAFACTOR_SUMS,     "adafactor_sums")     /* param, states.., streams.. -> i64: stats of w^2,\
                                                   then for each line (the rows, then the columns, \
                                                   of all matrices) the exact sum of g^2, and the  \
                                                   mean that it has had; those of all slices are   \
                                                   added word by word; this one and the next two   \
                                                   are not run where SKIP is set */                \
    X(ADAFACTOR_MOMENTS,  "adafactor_moments")  /* param, states.. (the last ones in place),       \
                                                   words, streams.. -> means of squares, stats of  \
                                                   u^2 [, a factor for each line] */               \
    X(ADAFACTOR_APPLY,    "adafactor_apply")    /* param, states.., words, stats of u^2            \
                                                   [, factors], streams.. -> param and the states  \
                                                   that are no means of squares, in place */

enum sw_op_kind {
#define SW_OP_ENUM(name, text) SW_OP_##name,
    SW_OP_LIST(SW_OP_ENUM)
#undef SW_OP_ENUM
    SW_N_OP_KINDS
};
// clang-format on

enum { SW_SUM_BLOCK = 64 }; /* rows of one partial sum in SUM_ROWS and LAYER_NORM_GRAD */

/* ---- attributes ---- */

/* One tile of an op on a parameter: whole pieces or chunks of its rows, from row `first` on. */
struct sw_tile_attrs {
    int64_t first;
    bool continues; /* the last inputs are what the tiles before have made of the outputs */
    bool partial;   /* the output is a sum that the next tile goes on with */
};

struct sw_matmul_attrs {
    bool ta, tb, has_bias;
    enum sw_act act;
    /* Of or for a large parameter, whose rows are columns of the result (tb), rows of the result
     * (ta), or summed over: the product is computed in pieces of so many of these rows, and sums
     * over pieces are added in order; 0 = in one. By shape alone. */
    int64_t piece;
    struct sw_tile_attrs tile;
};

struct sw_embedding_attrs {
    int64_t padding_id; /* -1 = none */
    struct sw_tile_attrs tile;
};

struct sw_linear_ce_attrs {
    int64_t chunk; /* rows of the vocabulary */
    double cap;    /* of the logits; 0 = none */
    bool has_bias; /* behind the labels, or lse */
    struct sw_tile_attrs tile;
};

struct sw_attention_attrs {
    bool packed, causal, has_mask, has_position, has_slopes, has_segments, has_bias;
    int64_t heads, kv_heads, window;
    double scale, dropout, cap;
};
/* Width of a head of x [.., heads D] or [.., heads, D]; 0 where x is neither. */
int64_t sw_head_width(const struct sw_shape *x, int64_t heads);
/* The same of an attention, from its input q or qkv. */
int64_t sw_attention_width(const struct sw_attention_attrs *attrs, const struct sw_shape *q);
/* Which input the bias is, where `first` is q or qkv; which output of the gradient is its own. */
int sw_attention_bias_input(const struct sw_attention_attrs *attrs, int first);
static inline int sw_attention_bias_output(const struct sw_attention_attrs *attrs)
{
    return attrs->packed ? 1 : 3;
}

/* What is not equal, or comes first; what a label that is none becomes. */
struct sw_integers_attrs {
    int64_t value, pad;
};

struct sw_stats_attrs {
    double clip;         /* STATS_FINISH: threshold, 0 = none */
    bool overflow_skips; /* fp16: what does not fit skips the update */
};

struct sw_rotary_attrs {
    bool interleaved, inverse;
};

struct sw_positions_attrs {
    int64_t offset;
    bool counted; /* of a mask */
};

struct sw_last_index_attrs {
    int64_t padding_id;
    bool is_value; /* the last that is this id, not the last that is another one */
};

struct sw_cross_entropy_attrs {
    double smoothing;
    bool ignores_beyond;
};

struct sw_element_loss_attrs {
    bool binary;
};

struct sw_lstm_attrs {
    bool reverse, has_mask;
};

struct sw_relative_attrs {
    int64_t queries, keys, origin; /* BIAS */
    bool by_key;                   /* SCORES */
    double scale;
};

/* Of rows and columns of an image; of one with a single row it is 1, 1, 0. */
struct sw_window_attrs {
    int64_t kernel[2], stride[2], padding[2];
    bool mean; /* POOL: else the largest */
};
/* Places of a window along rows (0) or columns (1) of so many. */
int64_t sw_window_places(const struct sw_window_attrs *attrs, int dim, int64_t n);
/* x [B,C,H,W] or [B,C,W] as [B,C,H,W], with its strides. */
void sw_image_view(const struct sw_view *x, struct sw_view *out);

enum sw_view_kind { SW_VIEW_RESHAPE, SW_VIEW_TRANSPOSE, SW_VIEW_SLICE };

struct sw_view_attrs {
    enum sw_view_kind kind;
    int dim, dim_b;
    int64_t start; /* SLICE: along dim */
};

enum sw_update_kind {
    SW_UPDATE_ADAM,
    SW_UPDATE_SGD,
    SW_UPDATE_LAMB,
    SW_UPDATE_ADAGRAD,
    SW_UPDATE_LION,
    SW_UPDATE_SPARSE_ADAM, /* leaves elements whose gradient is 0 as they are */
    SW_UPDATE_RMSPROP,
    SW_UPDATE_MUON,
    SW_UPDATE_ADAFACTOR,
    SW_N_UPDATE_KINDS
};
/* Constant parts of an update rule; lr, betas and t come from the scalar table. */
struct sw_update_attrs {
    enum sw_update_kind kind;
    bool decoupled;       /* ADAM: AdamW's decay */
    bool bias_correction; /* ADAM, LAMB */
    bool nesterov;        /* SGD, MUON */
    bool maximize;        /* SGD, RMSPROP */
    double eps, weight_decay, dampening;
    int n_states;                /* values after the parameter that the rule updates in place */
    int ns_steps;                /* MUON: of Newton and Schulz */
    bool eps_inside_sqrt;        /* LAMB */
    double min_coeff, max_coeff; /* LAMB: bounds of the trust ratio */
    double lr_decay, initial;    /* ADAGRAD: of the rate; what the sum of squares begins with */
    /* ADAFACTOR: the least scale, the power that means of squares decay by (of the scalar
     * SQUARES_KEPT), the largest rms of a direction; the rate is a factor of the parameter's
     * scale */
    double least_scale, decay_rate, clip_threshold;
    bool scale_parameter;
    /* of the group that a parameter is in: a factor of the rate, betas in place of the table's;
     * RMSPROP: always, its momentum and alpha; MUON, ADAFACTOR: its momentum */
    bool is_scaled, has_betas;
    double lr_scale, beta1, beta2;
};

/* A rule, and what of a parameter it is for. */
struct sw_update_op_attrs {
    struct sw_update_attrs rule;
    int64_t first;   /* UPDATE: element of the parameter */
    int64_t n_elems; /* LAMB, MUON, ADAFACTOR, codes: elements that are no padding */
    /* MUON, ADAFACTOR, moments of bf16: element of the whole tensor that is the parameter's first
     * one here; and what names the tensor among those that draw */
    int64_t origin;
    uint64_t draw;
    /* ADAFACTOR: elements of the whole tensor; the matrices that its last two dimensions are, 0 =
     * it has fewer; and which slice of the means is here */
    int64_t whole, matrices, rows, columns, slice;
};

/* Which member of struct sw_attrs the ops of a kind have. */
enum sw_attrs_kind {
    SW_ATTRS_NONE,
    SW_ATTRS_EMBEDDING,
    SW_ATTRS_MATMUL,
    SW_ATTRS_SCALE,
    SW_ATTRS_ACT,
    SW_ATTRS_NORM,
    SW_ATTRS_DROPOUT,
    SW_ATTRS_ATTENTION,
    SW_ATTRS_VIEW,
    SW_ATTRS_LAST_INDEX,
    SW_ATTRS_SLICE,
    SW_ATTRS_LINEAR_CE,
    SW_ATTRS_LOSS_MEAN,
    SW_ATTRS_STATS,
    SW_ATTRS_SELECT_INDEX,
    SW_ATTRS_UPDATE,
    SW_ATTRS_ROTARY,
    SW_ATTRS_POSITIONS,
    SW_ATTRS_INTEGERS,
    SW_ATTRS_CROSS_ENTROPY,
    SW_ATTRS_ELEMENT_LOSS,
    SW_ATTRS_RELATIVE,
    SW_ATTRS_WINDOW,
    SW_ATTRS_LSTM,
    SW_N_ATTRS_KINDS
};

/* The op's kind says which one; the others must not be read. All zeros are a default of each. */
struct sw_attrs {
    union {
        struct sw_embedding_attrs embedding;
        struct sw_matmul_attrs matmul;
        struct {
            double factor;
        } scale;
        struct {
            enum sw_act act;
        } act;
        struct {
            double eps;
            bool one_plus; /* RMS_NORM: the factor is 1 + w */
        } norm;
        struct {
            double p;
        } dropout;
        struct sw_attention_attrs attention;
        struct sw_view_attrs view;
        struct sw_last_index_attrs last_index;
        struct {
            int dim;
            int64_t start;
        } slice;
        struct sw_linear_ce_attrs linear_ce;
        struct {
            double weight; /* of the gradient instead of 1 / count; 0 = that */
        } loss_mean;
        struct sw_stats_attrs stats;
        struct {
            int64_t first, n;
        } select_index;
        struct sw_rotary_attrs rotary;
        struct sw_positions_attrs positions;
        struct sw_integers_attrs integers;
        struct sw_cross_entropy_attrs cross_entropy;
        struct sw_element_loss_attrs element_loss;
        struct sw_relative_attrs relative;
        struct sw_window_attrs window;
        struct sw_lstm_attrs lstm;
        struct sw_update_op_attrs update;
    };
};

/* ---- what is known of each kind ---- */

enum sw_op_trait {
    SW_TRAIT_VIEW = 1,        /* another look at the bytes of input 0: no kernel */
    SW_TRAIT_PRODUCTS = 8,    /* its FLOPs are products of matrices; see `factor` */
    SW_TRAIT_LOOKUP = 16,     /* of input 0 only the rows are read that input 1 names */
    SW_TRAIT_FRESH = 32,      /* what is in place is written and not read: always, .. */
    SW_TRAIT_SUM = 64,        /* .. or in the first micro-batch of a step; else added to */
    SW_TRAIT_SKIP = 128,      /* says whether the step is skipped: writes the table of scalars */
    SW_TRAIT_UPDATE = 256,    /* moves a parameter; not run where the step is skipped */
    SW_TRAIT_STATES = 512,    /* .. with its gradients and states; the first op of its update */
    SW_TRAIT_ELEMENTS = 1024, /* of its operands any run of elements may be done by itself */
    SW_TRAIT_DENSE = 2048,    /* makes a sparse gradient dense */
    SW_TRAIT_COPY = 4096,     /* the elements of input 0 as they are, elsewhere */
    /* its indices are labels: -100 is none; of a COPY: -100 becomes an index that is fine */
    SW_TRAIT_LABELS = 8192,
};

enum sw_access {
    SW_ACCESS_READ,
    SW_ACCESS_ROWS,       /* read: the rows that the next operand names */
    SW_ACCESS_WRITE,      /* written in place, not read */
    SW_ACCESS_UPDATE,     /* read and written in place */
    SW_ACCESS_ACCUMULATE, /* added to in place; written in the first micro-batch of a step */
};

/* What becomes of an op that has tiles of a parameter, runs of its rows, instead of all of it. */
enum sw_cut_effect {
    SW_CUT_NONE,  /* it wants the whole parameter */
    SW_CUT_PARTS, /* each tile writes its part of the outputs: columns, or rows */
    SW_CUT_SUM, /* each tile adds to output 0; the last one does what the op does behind the sum */
};
/* And of one that makes the gradient of a parameter in tiles. */
enum sw_grad_cut {
    SW_GRAD_CUT_NONE,
    SW_GRAD_CUT_ROWS,   /* the tile's rows of the result are computed alone */
    SW_GRAD_CUT_SELECT, /* made once; a tile's rows are selected from it */
};

struct sw_cut {
    enum sw_cut_effect effect;
    int64_t unit;            /* rows of which a tile may be any multiple; 0 = none */
    struct sw_shape partial; /* SUM: shape of the sum, f32 */
    int n_own, n_out; /* SUM: inputs and outputs of the tiles before the last, without the sum */
    int written;      /* SUM: an output of which each tile writes its part, 0 = none */
};

typedef void (*sw_gradient_fn)(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                               sw_value *d_in);

struct sw_op_info {
    enum sw_attrs_kind attrs;
    unsigned traits; /* enum sw_op_trait */
    int n_out;       /* outputs that it always has, absent or not */
    /* Aliasing: which input's storage output k has, -1 = its own. NULL: all have their own. */
    int (*alias)(const struct sw_op *op, int k);
    /* Shape rule: dtype and shape of all outputs, those that are optional too, from inputs that
     * have been checked. NULL: whoever makes the op says it. The gradient of a parameter has the
     * dtype of communication instead, and a tile has parts of these shapes. */
    void (*shapes)(const struct sw_op_desc *desc, struct sw_view *out);
    /* Gradient rule: NULL = not differentiable (integers, or made by differentiation). */
    sw_gradient_fn gradient;
    /* Floating-point operations of one launch; NULL = one for each element of the largest input. */
    int64_t (*flops)(const struct sw_op_desc *desc);
    int flops_per_elem; /* instead of `flops`: of input 0; -1 = it computes nothing */
    /* The input that holds indices (never the first; 0 = there is none), and how many rows they
     * index. */
    int index_input;
    int64_t (*n_indexed)(const struct sw_op_desc *desc);
    /* Of joined ops: outputs that another op, *out, makes of the others, to the same bits. False:
     * not of this one. NULL: it is joined of nothing. */
    bool (*apart)(const struct sw_op_desc *desc, struct sw_op *out);
    int factor; /* PRODUCTS: the input whose dtype decides how they are computed */
    /* Cuts: the input that may be a parameter in tiles, with what becomes of the op; NULL cut =
     * none may. */
    int cut_input;
    void (*cut)(const struct sw_op_desc *desc, struct sw_cut *out);
    /* The output that may be the gradient of one, and rows of which a tile may be any multiple (0 =
     * not). */
    enum sw_grad_cut grad_cut;
    int grad_output;
    int64_t (*grad_unit)(const struct sw_op *op);
    /* why a two-dimensional parameter never is an operand; NULL = `cut` */
    const char *takes_no_matrix;
};

const struct sw_op_info *sw_op_info(enum sw_op_kind kind);
static inline bool sw_kind_has(enum sw_op_kind kind, unsigned traits)
{
    return (sw_op_info(kind)->traits & traits) != 0;
}
bool sw_op_has(const struct sw_op *op, unsigned traits);
const char *sw_op_name(const struct sw_op *op);

/* Input whose storage output k shares, -1 = it has its own. */
int sw_op_alias(const struct sw_op *op, int k);
/* How input k is touched. */
enum sw_access sw_op_access(const struct sw_op *op, int k);
/* The part of its attributes that says which tile it is; NULL = this kind has none. */
struct sw_tile_attrs *sw_op_tile(struct sw_op *op);
/* One of the tiles before the last: it leaves a sum, and what the op does behind the sum is not its
 * business. */
void sw_op_make_partial(struct sw_op *op, const struct sw_cut *cut);
