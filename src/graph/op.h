// SPDX-License-Identifier: Apache-2.0
// op - the kinds of ops, their attributes, and one row of facts per kind (struct sw_op_info).
// Questions about an op are answered by its row: how it accesses its operands, what it outputs,
// what it costs, how it may be cut. Part of graph.h.
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
                                                   writes only the rows of its own ids */          \
    X(EMBEDDING_GRAD,     "embedding_grad")     /* dy [..,C], ids -> rows [N,C], index i32 [N].    \
                                                   index: distinct ids ascending, then -1. rows:   \
                                                   sums in token order, 0 if index is -1; the      \
                                                   padding id has no row */                        \
    X(MATMUL,             "matmul")             /* a, b [, bias [N]] -> act(a b + bias) [, a b +   \
                                                   bias before act]; attrs ta, tb, act. a is read  \
                                                   as [rows,K] (ta: [K,M], leading dims flattened  \
                                                   into K), b as 2-D in the same way; see attrs    \
                                                   piece */                                        \
    X(SUM_ROWS,           "sum_rows")           /* x -> its suffix shape, summed over the leading  \
                                                   dims: within blocks of SW_SUM_BLOCK rows in     \
                                                   order, then over blocks in order */             \
    X(ADD,                "add")                /* a, b (same shape or suffix of a's) -> a + b */ \
    X(SCALE,              "scale")              /* x -> factor x */ \
    X(ACT,                "act")                /* x -> act(x) */ \
    X(ACT_GRAD,           "act_grad")           /* x, dy -> dy act'(x) */ \
    X(LAYER_NORM,         "layer_norm")         /* x, w, b -> y, mean [rows], rstd [rows] (f32) */ \
    X(LAYER_NORM_GRAD,    "layer_norm_grad")    /* dy, x, w, mean, rstd -> dx, dw [C], db [C]; dw  \
                                                   and db are summed as in SUM_ROWS */             \
    X(ADD_LAYER_NORM,     "add_layer_norm")     /* a, b, w, bias -> s = a + b (rounded), y =       \
                                                   norm(s), mean, rstd */                          \
    X(DROPOUT,            "dropout")            /* x -> keep ? x / (1-p) : 0; the same op with     \
                                                   the same path is its own gradient */            \
    X(ATTENTION,          "attention")          /* packed: qkv, else q, k, v; then the optional    \
                                                   mask, position, slopes, segments, bias -> o     \
                                                   [B,T,H D], lse [B,H,T] f32 */                   \
    X(ATTENTION_GRAD,     "attention_grad")     /* do, o, lse, then the inputs of ATTENTION ->     \
                                                   dqkv, or dq, dk, dv [, dbias: if samples share  \
                                                   the bias, summed over them in order] */         \
    X(LAST_INDEX,         "last_index")         /* ids [B,T] -> i32 [B]: position of the last id   \
                                                   that is not padding (is_value: that equals the  \
                                                   given id); 0 = not found */                     \
    X(SELECT_ROWS,        "select_rows")        /* x [B,T,C], index [B] -> [B,C] */ \
    X(SELECT_ROWS_GRAD,   "select_rows_grad")   /* dy [B,C], index [B] -> [B,T,C], 0 elsewhere */  \
    X(SLICE_GRAD,         "slice_grad")         /* dy -> source's shape, with dy from attrs start  \
                                                   on along dim, 0 elsewhere */                    \
    X(KV_APPEND,          "kv_append")          /* cache [B,S,W] (in place), x [B,T,W], position   \
                                                   i32 [1] -> cache; writes rows pos .. pos+T-1 */ \
    X(CROSS_ENTROPY,      "cross_entropy")      /* logits [..,V], labels -> sum [1], count [1], lse\
                                                   [rows] (f32; f64 in f64 graphs). smoothing e:   \
                                                   (1-e) of the loss, plus e of the mean over      \
                                                   classes. ignores_beyond: labels from V on do not\
                                                   count. partial: -> [4, rows]: label logits,     \
                                                   maxima, sums, totals of logits */               \
    X(CROSS_ENTROPY_GRAD, "cross_entropy_grad") /* dsum, logits, labels, lse -> dlogits */ \
    X(LINEAR_CE,          "linear_ce")          /* h, w [V,C], labels [, bias [V]] -> sum, count,  \
                                                   lse; logits are computed in chunks of rows of w.\
                                                   attrs cap: cap tanh(logits / cap). partial: ->  \
                                                   [3, rows]: label logits, maxima, sums; undefined\
                                                   in rows without a label. by_row: sum and count  \
                                                   are those of each row, in the labels' shape */  \
    X(LINEAR_CE_GRAD,     "linear_ce_grad")     /* dsum, h, w, labels, lse [, bias] -> dh, dw [,   \
                                                   db]. The slope (p - onehot) dsum, with that of  \
                                                   the cap, is rounded to h's dtype before the     \
                                                   products and the sum over rows. dh is summed    \
                                                   over chunks in fp32. partial: -> that sum, dw [,\
                                                   db]. by_row: dsum has an element for each row */\
    X(LOSS_MEAN,          "loss_mean")          /* sum, count -> sum / count, 0 if count is 0 */ \
    X(LOSS_MEAN_GRAD,     "loss_mean_grad")     /* dloss, count -> dsum: dloss / count, or dloss   \
                                                   weight if weight is not 0 */                    \
    X(SEED,               "seed")               /* -> [1], the scalar LOSS_SCALE */ \
    X(ACCUMULATE,         "accumulate")         /* acc f32 (in place), g [, index] -> acc: g if the\
                                                   scalar FIRST is set, else acc + g */            \
    X(STATS_RESET,        "stats_reset")        /* stats i64 [SW_STATS_WORDS] (in place) */ \
    X(GRAD_STATS,         "grad_stats")         /* stats (in place), streams of one parameter */ \
    X(STATS_FINISH,       "stats_finish")       /* stats -> writes scalars NORM, CLIP, SKIP */ \
    X(DENSIFY,            "densify")            /* rows [N,C], index [N] -> [V,C], 0 elsewhere */  \
    X(SELECT_INDEX,       "select_index")       /* rows [N,C], index [N] -> rows [M,C], index [M]  \
                                                   relative to attrs first: only rows attrs first  \
                                                   .. first + n - 1 of the whole */                \
    X(UPDATE,             "update")             /* param, states.. (all in place), streams..; does \
                                                   not run if SKIP is set. If states are shorter   \
                                                   than param, only its elements from attrs first  \
                                                   on are updated; dense streams may be short, too.\
                                                   u8 moments are codes in runs of SW_CODE_RUN     \
                                                   elements, followed by their scales: attrs       \
                                                   n_elems; first is a multiple of the run */      \
    X(LAMB_MOMENTS,       "lamb_moments")       /* param, states.. (moments in place), streams.. ->\
                                                   m, v, norms i64 [SW_LAMB_WORDS]: sums of w^2 and\
                                                   of u^2, where u is the step before its rate;    \
                                                   attrs n_elems; does not run if SKIP is set */   \
    X(LAMB_APPLY,         "lamb_apply")         /* param, states.., norms, ratio [1] -> param      \
                                                   and its master, ratio (in place): w - step      \
                                                   ratio u; attributes as above; does not run if   \
                                                   SKIP is set */                                  \
    X(USER,               "user")                                                                  \
    X(LAMB_ADD_NORMS,     "lamb_add_norms")     /* norms, norms of another part -> their sum (in   \
                                                   place); does not run if SKIP is set */          \
    X(RMS_NORM,           "rms_norm")           /* x, w -> y, rstd [rows] (f32). x rstd is rounded \
                                                   to x's dtype before the product with w.         \
                                                   one_plus: x rstd (1 + w), rounded once */       \
    X(RMS_NORM_GRAD,      "rms_norm_grad")      /* dy, x, w, rstd -> dx, dw [C], which is summed as\
                                                   in SUM_ROWS */                                  \
    X(ADD_RMS_NORM,       "add_rms_norm")       /* a, b, w -> s = a + b (rounded), y = norm(s),    \
                                                   rstd */                                         \
    X(MUL,                "mul")                /* a, b of equal shape -> a b */                   \
    X(GATED_ACT,          "gated_act")          /* gate, up -> act(gate) up, rounded once */       \
    X(GATED_ACT_GRAD,     "gated_act_grad")     /* dy, gate, up -> dgate, dup */                   \
    X(ROTARY,             "rotary")             /* x [B,T,H,D], table f32 [P,R], positions i32 [T] \
                                                   or [B,T] -> y. Row p of the table has the       \
                                                   cosines of R/2 angles, then the sines. In each  \
                                                   head the pairs (i, i + R/2), or interleaved (2i,\
                                                   2i + 1), are rotated; elements from R on are    \
                                                   copied. inverse: rotated back, which is the     \
                                                   gradient */                                     \
    X(POSITIONS,          "positions")          /* i32 x -> x + offset. counted: mask x [B,T] -> x \
                                                   times its prefix sum, - 1 + offset */           \
    X(NOT_EQUAL,          "not_equal")          /* i32 x -> i32: 0 if it equals attrs value,       \
                                                   else 1 */                                       \
    X(SHIFT_RIGHT,        "shift_right")        /* ids i32 [B,T] -> i32: attrs value, then the row \
                                                   without its last id; -100 becomes attrs pad */  \
    X(MASK_ROWS,          "mask_rows")          /* x [..,C], mask i32 [..] -> x, with 0 in rows    \
                                                   whose mask is 0; its own gradient */            \
    X(CONCAT,             "concat")             /* inputs with equal shapes except along attrs dim \
                                                   -> their concatenation along it */              \
    X(MASKED_MEAN,        "masked_mean")        /* x [B,T,C], mask i32 [B,T] -> [B,C]: the sum, in \
                                                   order, of rows whose mask is not 0, over their  \
                                                   count; 0 if there are none */                   \
    X(MASKED_MEAN_GRAD,   "masked_mean_grad")   /* dy [B,C], mask -> dx [B,T,C] */                 \
    X(ELEMENT_LOSS,       "element_loss")       /* x, target f32 -> sum [1], count [1]: (x - t)^2, \
                                                   or binary: -log p(t), p(1) = sigmoid(x). NaN    \
                                                   targets do not count */                         \
    X(ELEMENT_LOSS_GRAD,  "element_loss_grad")  /* dsum, x, target -> dx */                        \
    X(RELATIVE_BIAS,      "relative_bias")      /* rows [R,H] [, position i32 [1]] -> f32 [H,T,S]: \
                                                   for query t and key s, row s - (t + position) + \
                                                   origin, clamped to the table */                 \
    X(RELATIVE_BIAS_GRAD, "relative_bias_grad") /* d [H,T,S] [, position] -> drows, summed over    \
                                                   queries in order, then over keys */             \
    X(RELATIVE_SCORES,    "relative_scores")    /* x [B,T,H,D], table [P,H,D], index i32 [2T - 1]  \
                                                   -> f32 [B,H,T,T]: scale x_i . table row         \
                                                   index[j - i + T - 1]; by_key: x_j */            \
    X(RELATIVE_SCORES_GRAD, "relative_scores_grad") /* d, x, table, index -> dx, dtable */         \
    X(IM2COL,             "im2col")             /* x [B,C,H,W] or [B,C,W] -> [B,OH OW,C KH KW]: the\
                                                   contents of each window, 0 outside the image */ \
    X(COL2IM,             "col2im")             /* gradient of IM2COL: sums over the windows,      \
                                                   ordered by the position in the window */        \
    X(POOL,               "pool")               /* x [B,C,H,W] -> [B,C,OH,OW]: the maximum of a    \
                                                   window (the first of equal ones), or the mean */\
    X(POOL_GRAD,          "pool_grad")          /* dy, x -> dx, summed over the windows in order */\
    X(LSTM,               "lstm")               /* x [B,T,4H] (input projection for gates i, f, g, \
                                                   o), w [4H,H], bias [4H] [, mask i32 [B,T]] -> y \
                                                   [B,T,H], gates after activation [B,T,4H], cells \
                                                   [B,T,H] (f32). A step reads the rounded y of the\
                                                   previous step. If the mask is 0, the step is    \
                                                   skipped and its y is 0. reverse: starts at the  \
                                                   last token */                                   \
    X(LSTM_GRAD,          "lstm_grad")          /* dy, w, y, gates, cells [, mask] -> dx, dw,      \
                                                   dbias; dw and dbias are summed by sample, then  \
                                                   step */                                         \
    X(TRIM,               "trim")               /* ids i32 [B,T], lengths i32 [B] -> ids, with -1  \
                                                   from the length of the row on */                \
    X(MUON_MOMENTS,       "muon_moments")       /* param, states.. (momentum in place), streams..  \
                                                   -> momentum, bf16 of param's shape: the         \
                                                   direction before it is made orthogonal; does not\
                                                   run if SKIP is set */                           \
    X(MUON_APPLY,         "muon_apply")         /* param, its master, momentum of the whole matrix \
                                                   [R,C] -> param and its master (in place). param \
                                                   has attrs n_elems elements of the matrix, from  \
                                                   attrs origin on. Does not run if SKIP is set */ \
    X(ADAFACTOR_SUMS,     "adafactor_sums")     /* param, states.., streams.. -> i64: stats of w^2,\
                                                   then per line (the rows, then the columns, of   \
                                                   all matrices) the exact sum of g^2, and the     \
                                                   previous mean. The words of all shards are      \
                                                   added. This op and the next two do not run if   \
                                                   SKIP is set */                                  \
    X(ADAFACTOR_MOMENTS,  "adafactor_moments")  /* param, states.. (the last ones in place), words,\
                                                   streams.. -> means of squares, stats of u^2 [, a\
                                                   factor for each line] */                        \
    X(ADAFACTOR_APPLY,    "adafactor_apply")    /* param, states.., words, stats of u^2 [,         \
                                                   factors], streams.. -> param and the states     \
                                                   other than means of squares (in place) */       \
    X(EXCHANGE,           "exchange")           /* x in the spread attrs from -> in the spread     \
                                                   attrs to, by messages between ranks: SUM -> the \
                                                   sum (WHOLE), or a rank's part of it (CUT); CUT  \
                                                   -> all parts along attrs dim (CUT: of a rank's  \
                                                   part along attrs to_dim). With offsets [ranks,  \
                                                   W] of the rows for each rank, and of those from \
                                                   it: only these rows travel, and others are 0.   \
                                                   No device has a kernel for it */               \
    X(LINEAR_CE_MERGE,    "linear_ce_merge")    /* h, w, labels [, bias], parts [3 n, rows] ->     \
                                                   sum, count, lse, from what LINEAR_CE with attrs \
                                                   partial made of n parts of the vocabulary. Only \
                                                   labels and parts are read; w is one of the      \
                                                   parts, for the gradient, which is that of       \
                                                   LINEAR_CE */                                    \
    X(CROSS_ENTROPY_MERGE, "cross_entropy_merge") /* logits, labels, parts [4 n, rows] -> sum,     \
                                                   count, lse, the same for CROSS_ENTROPY. logits  \
                                                   are one of the parts, for the gradient */       \
    X(PREFERENCE,         "preference")         /* x f32 [R,T], counts f32 [R,T] [, reference f32  \
                                                   [R]] [, kinds i32 [R]] -> sum [1], count [1],   \
                                                   values [R], totals [SW_PREFERENCE_TOTALS]. The  \
                                                   value of a row is minus the sum of its x (the   \
                                                   log-probability of its response); see struct    \
                                                   sw_preference_attrs */                          \
    X(PREFERENCE_GRAD,    "preference_grad")    /* dsum, then the inputs of PREFERENCE -> dx */  \
    X(ROUTER,             "router")             /* logits [N,E] [, bias [E]] -> weights [N,k] (f32)\
                                                   and experts i32 [N,k], best first; of equal     \
                                                   scores the first. The bias counts in the choice \
                                                   only. groups: experts of the kept groups only,  \
                                                   which have the largest sums of their two best   \
                                                   scores */                                       \
    X(ROUTER_GRAD,        "router_grad")        /* dweights, logits, experts -> dlogits */         \
    X(EXPERT_ROWS,        "expert_rows")        /* experts i32 [N,k] -> slots i32 [N,k], sources   \
                                                   i32 [R], offsets i32 [E + 2]. Choice n k + j has\
                                                   row slots[n,j], or -1: dropped. Row r belongs to\
                                                   choice sources[r], -1 = none. Expert e has rows \
                                                   offsets[e] .. offsets[e + 1] - 1, in the order  \
                                                   of choices; offsets[E + 1]: number of dropped   \
                                                   ones. With a capacity, an expert takes first    \
                                                   choices first, then second ones, .. With several\
                                                   ranks the rows have a part of R / ranks for the \
                                                   experts of each, and offsets [ranks, E / ranks +\
                                                   2] count within the part */                     \
    X(TO_EXPERTS,         "to_experts")         /* x [N,C], slots, sources -> [R,C]; 0 without a   \
                                                   source */                                       \
    X(FROM_EXPERTS,       "from_experts")       /* y [R,C], slots, sources [, weights [N,k]] ->    \
                                                   [N,C]: the sum over j, in order, of weight times\
                                                   row; dropped choices count as 0 */              \
    X(FROM_EXPERTS_GRAD,  "from_experts_grad")  /* dout [N,C], y, slots, sources, weights -> dy,   \
                                                   dweights */                                     \
    X(EXPERT_MATMUL,      "expert_matmul")      /* x [R,K], offsets, w [K,N], or [e,K,N] of e      \
                                                   experts [, bias [N] or [e,N]] [, y] -> y [R,N]  \
                                                   (in place, if given): rows of experts attrs     \
                                                   expert, .. are x w + bias, others stay. tb: w is\
                                                   [N,K]. Offsets [P, e + 2]: x has P equal parts  \
                                                   */                                              \
    X(EXPERT_MATMUL_GRAD, "expert_matmul_grad") /* dy [R,N], x [R,K], offsets -> dw [, dbias],     \
                                                   summed over the rows of each expert in order;   \
                                                   of one part */                                  \
    X(ROUTER_STATS,       "router_stats")       /* logits [N,E], experts, slots [, mask i32 [N]] ->\
                                                   f32 [2 E + 3]: choices of each expert, sums of  \
                                                   softmax(logits), tokens, sum of the squares of  \
                                                   log sum exp(logits), dropped choices; of tokens \
                                                   whose mask is not 0, in order */                \
    X(ROUTER_STATS_GRAD,  "router_stats_grad")  /* dstats, logits [, mask] -> dlogits */           \
    X(ROUTER_LOSS,        "router_loss")        /* stats -> sum [1], count [1] (1, or 0 without    \
                                                   tokens): E times the sum over experts of share  \
                                                   of choices times mean of softmax; z: the mean of\
                                                   the squares */                                  \
    X(ROUTER_LOSS_GRAD,   "router_loss_grad")   /* dsum, stats -> dstats */                        \
    X(CLAMPED_GATE,       "clamped_gate")       /* x [R,2 F], gates and ups in turn -> [R,F]: g    \
                                                   sigmoid(alpha g) (u + 1), where g = min(gate,   \
                                                   limit), u = up clamped to -limit .. limit */    \
    X(CLAMPED_GATE_GRAD,  "clamped_gate_grad")  /* dy, x -> dx; 0 for what was clamped */          \
    X(ATTENTION_SINK,     "attention_sink")     /* o [B,T,H D], lse [B,H,T], sinks [H] -> o and lse\
                                                   of the softmax that has a further score, the    \
                                                   head's sink, without a value */                 \
    X(ATTENTION_SINK_GRAD, "attention_sink_grad") /* do, o, lse (outputs of ATTENTION_SINK), sinks \
                                                   -> dsinks, summed over samples, then queries */\
    X(EXPERT_LOADS,       "expert_loads")       /* offsets -> f32 [2 SW_LOADS]: a sum and a        \
                                                   count for each of enum sw_expert_load. Least and\
                                                   most rows of an expert, 1 = the mean; entropy of\
                                                   the experts' shares over log E; dropped choices,\
                                                   whose count is all choices */\
    X(DEQUANTIZE,         "dequantize")         /* codes (NF4: (n + 1) / 2 of u8, INT8: i8 [rows,  \
                                                   columns]), scales (f32, nested: u8) [, nested   \
                                                   f32 [257 + m]: the map of codes of scales, their\
                                                   offset, their m scales] -> the weight [rows,    \
                                                   columns] of n elements; see struct              \
                                                   sw_quantized */                                 \
    X(INVERSE_NORMS,      "inverse_norms")      /* w [out,in] ([in,out] with in_out), a [r,in], b  \
                                                   [out,r] -> [out]: 1 / |w + factor b a| of each  \
                                                   row of outputs, the squares added in double. No \
                                                   gradient: it counts as constant (DoRA, Liu et   \
                                                   al. 2024, section 4.3) */                       \
    X(QUANTIZED_MATMUL,   "quantized_matmul")   /* a, the inputs of DEQUANTIZE [, bias [N]] -> the \
                                                   outputs of MATMUL, to the bit, with the decoded \
                                                   weight as b. A block of columns of the result is\
                                                   computed at a time, and only its part of the    \
                                                   weight is decoded. Attrs piece and ta are 0 */ \
    X(LINEAR_CE_AT_ONCE,  "linear_ce_at_once")  /* dloss, h, w [V,C], labels [, bias [V]] -> sum,  \
                                                   count, dh, dw [, dbias]: the outputs of         \
                                                   LINEAR_CE, of LOSS_MEAN_GRAD with attrs         \
                                                   mean_weight, and of LINEAR_CE_GRAD, to the bit. \
                                                   No tile, no part, not by row */

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
    bool continues; /* the last inputs are the outputs of the tiles so far */
    bool partial;   /* the output is a partial sum, which the next tile continues */
};

struct sw_matmul_attrs {
    bool ta, tb, has_bias;
    enum sw_act act;
    /* For products of or for a large parameter. Its rows are columns of the result (tb), rows of
     * the result (ta), or summed over. The product is computed in pieces of so many rows, and sums
     * over pieces are added in order. 0 = one piece. It depends on the shape only. */
    int64_t piece;
    struct sw_tile_attrs tile;
};

/* How the ranks of an axis have a value, and how they have its gradient. */
enum sw_spread_kind {
    SW_SPREAD_WHOLE,  /* each rank has all of both */
    SW_SPREAD_COPIED, /* each rank has all of it; the gradient is the sum over the ranks */
    SW_SPREAD_CUT,    /* each rank has a part of both, along a dimension */
    SW_SPREAD_SUM,    /* the value is the sum over the ranks; each rank has all of the gradient */
};

/* Changes the spread of a value. The gradient of an exchange is an exchange: COPIED and SUM change
 * places with each other, and so do from and to. */
struct sw_exchange_attrs {
    enum sw_spread_kind from, to;
    int axis;   /* enum sw_axis */
    int dim;    /* CUT: along this one, in equal parts */
    int to_dim; /* from CUT to CUT: along this one afterwards */
    int ranks;  /* that take part: consecutive ones along the axis; 0 = no exchange */
    int me;     /* this rank among them */
    /* WHOLE to COPIED: indices of dimension 0, its first ones, that are this rank's alone and stay
     * as they are */
    int64_t own;
};

/* to CUT: along this one. */
static inline int sw_exchange_to_dim(const struct sw_exchange_attrs *attrs)
{
    return attrs->from == SW_SPREAD_CUT ? attrs->to_dim : attrs->dim;
}

struct sw_embedding_attrs {
    int64_t padding_id; /* -1 = none */
    /* rows of the whole table, if this one is a part of it from row tile.first on: ids of other
     * parts give 0. 0 = the table is whole */
    int64_t whole;
    struct sw_tile_attrs tile;
};

struct sw_linear_ce_attrs {
    int64_t chunk; /* rows of the vocabulary per chunk */
    double cap;    /* for logits; 0 = none */
    bool has_bias; /* the bias comes after the labels, or after lse */
    bool by_row;   /* sum and count have an element for each row */
    /* rows of the whole vocabulary, if w (and the bias) is a part of it from row tile.first on;
     * what it has beyond is padding, which gets the gradient 0. 0 = w is a tile, or whole */
    int64_t whole;
    struct sw_tile_attrs tile;
    double mean_weight; /* LINEAR_CE_AT_ONCE: attrs weight of its LOSS_MEAN_GRAD */
};
/* Number of words, without padding. rows: of w */
static inline int64_t sw_linear_ce_words(const struct sw_linear_ce_attrs *attrs, int64_t rows)
{
    const int64_t left = attrs->whole - attrs->tile.first;
    return attrs->whole > 0 ? sw_max_i64(0, sw_min_i64(rows, left)) : rows;
}
/* Row of the bias for row 0 of w: a tile has all of the bias, a part of the vocabulary its own. */
static inline int64_t sw_linear_ce_bias_row(const struct sw_linear_ce_attrs *attrs)
{
    return attrs->whole > 0 ? 0 : attrs->tile.first;
}

struct sw_dropout_attrs {
    double p;
    /* If x is a part of a value: of each `whole` elements of it, x has `part` elements from `first`
     * on, and a sample of it has `sample` elements. part 0 = x is the value. Numbers are drawn for
     * elements of the whole. */
    int64_t part, whole, first, sample;
    /* The same of what these `whole` elements are a part of, if two dimensions are cut: this one
     * lies before the other. */
    struct sw_dropout_cut {
        int64_t part, whole, first;
    } outer;
};
/* The element of the whole value that element e of x is; part > 0. */
static inline int64_t sw_dropout_element(const struct sw_dropout_attrs *attrs, int64_t e)
{
    const struct sw_dropout_cut *outer = &attrs->outer;
    e = e / attrs->part * attrs->whole + attrs->first + e % attrs->part;
    return outer->part > 0 ? e / outer->part * outer->whole + outer->first + e % outer->part : e;
}
/* The samples of the whole value, if x has so many elements; part > 0. */
static inline int64_t sw_dropout_batch(const struct sw_dropout_attrs *attrs, int64_t elems)
{
    const struct sw_dropout_cut *outer = &attrs->outer;
    elems = elems / attrs->part * attrs->whole;
    return (outer->part > 0 ? elems / outer->part * outer->whole : elems) / attrs->sample;
}

struct sw_attention_attrs {
    bool packed, causal, has_mask, has_position, has_slopes, has_segments, has_bias;
    bool bf16_slopes;
    int64_t heads, kv_heads, window;
    double scale, dropout, cap;
    int64_t first_head; /* the first of these heads among all, for the draws of dropout */
};
/* Width of a head if x is [.., heads D] or [.., heads, D]; else 0. */
int64_t sw_head_width(const struct sw_shape *x, int64_t heads);
/* The same for an attention, from its input q or qkv. */
int64_t sw_attention_width(const struct sw_attention_attrs *attrs, const struct sw_shape *q);
/* Index of the bias among the inputs, if `first` is the index of q or qkv; index of its gradient
 * among the outputs of ATTENTION_GRAD. */
int sw_attention_bias_input(const struct sw_attention_attrs *attrs, int first);
static inline int sw_attention_bias_output(const struct sw_attention_attrs *attrs)
{
    return attrs->packed ? 1 : 3;
}

/* value: the one to compare with, or the first one; pad: replaces the label -100. */
struct sw_integers_attrs {
    int64_t value, pad;
};

struct sw_stats_attrs {
    double clip;         /* STATS_FINISH: threshold, 0 = none */
    bool overflow_skips; /* STATS_FINISH: fp16 overflow skips the update */
    bool continues;      /* ACCUMULATE: adds also in the first micro-batch of a step */
    int64_t counted; /* GRAD_STATS: elements of dense streams that count, the first ones; 0 = all */
};

struct sw_rotary_attrs {
    bool interleaved, inverse;
};

/* How tokens choose experts: ROUTER and its gradient. */
struct sw_router_attrs {
    int64_t k;            /* experts of a token */
    bool sigmoid;         /* scores are sigmoids; else a softmax over all experts */
    bool normalise;       /* weights are divided by their sum */
    double scale;         /* factor of the weights */
    int64_t groups, kept; /* equal groups of experts, of which so many are kept; 0 = no groups */
};

struct sw_experts_attrs {
    struct sw_router_attrs router;
    int64_t n;        /* EXPERT_ROWS: number of experts */
    int64_t capacity; /* EXPERT_ROWS: most rows of an expert; 0 = no bound */
    int64_t ranks;    /* EXPERT_ROWS: that have equally many experts each; 0 counts as 1 */
    int64_t part;     /* EXPERT_MATMUL_GRAD: the part of the rows that it adds up */
    int64_t expert;   /* EXPERT_MATMUL: the first expert of w */
    bool tb, has_bias;
    bool continues;      /* EXPERT_MATMUL: the last input is y, with the rows of other experts */
    bool ends;           /* EXPERT_MATMUL: the last of the ops that write y */
    bool z;              /* ROUTER_LOSS */
    double alpha, limit; /* CLAMPED_GATE */
};

struct sw_positions_attrs {
    int64_t offset;
    bool counted; /* the input is a mask, and positions are counted */
};

struct sw_last_index_attrs {
    int64_t padding_id;
    bool is_value; /* find the last id that equals padding_id, not the last one that differs */
};

struct sw_cross_entropy_attrs {
    double smoothing;
    bool ignores_beyond, partial;
    /* number of all classes, if logits are those of some, from `first` on; further columns are
     * padding, which gets the gradient 0. 0 = the logits have all classes */
    int64_t whole, first;
};
/* Number of classes, without padding. columns: of the logits */
static inline int64_t sw_cross_entropy_classes(const struct sw_cross_entropy_attrs *attrs,
                                               int64_t columns)
{
    const int64_t left = attrs->whole - attrs->first;
    return attrs->whole > 0 ? sw_max_i64(0, sw_min_i64(columns, left)) : columns;
}
static inline int64_t sw_cross_entropy_all(const struct sw_cross_entropy_attrs *attrs,
                                           int64_t columns)
{
    return attrs->whole > 0 ? attrs->whole : columns;
}

struct sw_element_loss_attrs {
    bool binary;
};

/*
 * Losses of preferences. pi is the value of a row, ref its reference; rows without counts take no
 * part. Pairs: rows 2i are chosen, 2i + 1 rejected. d = (pi_c - ref_c) - (pi_r - ref_r).
 */
enum sw_preference_kind {
    /* -(1 - e) log sigmoid(beta d) - e log sigmoid(-beta d), with smoothing e (Rafailov et al.
     * 2023; Mitchell 2023) */
    SW_PREFERENCE_SIGMOID,
    SW_PREFERENCE_IPO, /* (d - 1 / (2 beta))^2 (Azar et al. 2023) */
    /* -pi_c - beta log sigmoid(o_c - o_r), o = pi - log(1 - exp(pi)) (Hong et al. 2024) */
    SW_PREFERENCE_ORPO,
    /* No pairs: rows of kind 1 are desirable, 0 undesirable. With z = max(0, mean of pi - ref over
     * rows of kind 2), which has no gradient: w_d (1 - sigmoid(beta (pi - ref - z))), or w_u (1 -
     * sigmoid(beta (z - pi + ref))) (Ethayarajh et al. 2024) */
    SW_PREFERENCE_KTO,
    SW_PREFERENCE_REWARD, /* -log sigmoid(pi_c - pi_r) (Bradley and Terry) */
    /* ref_c - pi_c + ref_r - pi_r: a loss that was linearised elsewhere. beta is its scale there,
     * and no factor here */
    SW_PREFERENCE_LINEAR
};
struct sw_preference_attrs {
    enum sw_preference_kind kind;
    double beta, smoothing;
    double desirable, undesirable; /* KTO: w_d, w_u */
    bool mean;                     /* the value is the mean over the row's counts, not the sum */
    bool has_reference, has_kinds;
};
/* Totals of a micro-batch, for metrics; each sum has a count after it. A reward is beta (pi - ref),
 * or pi. */
enum {
    SW_PREFERENCE_CHOSEN,       /* rewards of chosen (desirable) rows */
    SW_PREFERENCE_REJECTED = 2, /* rewards of rejected (undesirable) rows */
    SW_PREFERENCE_RIGHT = 4,    /* pairs whose chosen row has the higher reward */
    SW_PREFERENCE_LOGPS_CHOSEN = 6,
    SW_PREFERENCE_LOGPS_REJECTED = 8,
    SW_PREFERENCE_MORE = 10, /* ORPO: log sigmoid(o_c - o_r). KTO: z */
    SW_PREFERENCE_ODDS = 12, /* ORPO: o_c - o_r */
    SW_PREFERENCE_TOTALS = 14
};

enum { SW_NESTED_OFFSET = 256, SW_NESTED_SCALES = 257 }; /* places in `nested` of DEQUANTIZE */
struct sw_norm_attrs {
    double eps;
    bool one_plus; /* RMS_NORM: multiply by 1 + w */
};

/* For DEQUANTIZE, INVERSE_NORMS and QUANTIZED_MATMUL. */
struct sw_weight_attrs {
    struct sw_quantized_form form;
    int64_t rows, columns;
    enum sw_dtype to;
    double factor; /* INVERSE_NORMS; so is in_out */
    bool in_out;
};

struct sw_lstm_attrs {
    bool reverse, has_mask;
};

struct sw_relative_attrs {
    int64_t queries, keys, origin; /* for BIAS */
    bool by_key;                   /* for SCORES */
    double scale;
};

/* Window over the rows and columns of an image; a sequence has a single row, for which it is 1, 1,
 * 0. */
struct sw_window_attrs {
    int64_t kernel[2], stride[2], padding[2];
    bool mean; /* POOL: mean instead of maximum */
};
/* Number of window positions along rows (0) or columns (1), if there are n of them. */
int64_t sw_window_places(const struct sw_window_attrs *attrs, int dim, int64_t n);
/* Views x, [B,C,H,W] or [B,C,W], as [B,C,H,W], with its strides. */
void sw_image_view(const struct sw_view *x, struct sw_view *out);

enum sw_view_kind { SW_VIEW_RESHAPE, SW_VIEW_TRANSPOSE, SW_VIEW_SLICE };

struct sw_view_attrs {
    enum sw_view_kind kind;
    int dim, dim_b;
    int64_t start; /* for SLICE, along dim */
    /* A change of spread without messages: WHOLE or COPIED -> CUT is the SLICE that this rank has;
     * all others are a RESHAPE to the same shape. */
    struct sw_exchange_attrs exchange;
};

enum sw_update_kind {
    SW_UPDATE_ADAM,
    SW_UPDATE_SGD,
    SW_UPDATE_LAMB,
    SW_UPDATE_ADAGRAD,
    SW_UPDATE_LION,
    SW_UPDATE_SPARSE_ADAM, /* skips elements whose gradient is 0 */
    SW_UPDATE_RMSPROP,
    SW_UPDATE_MUON,
    SW_UPDATE_ADAFACTOR,
    SW_N_UPDATE_KINDS
};
/* Constant parts of an update rule; lr, betas and t come from the table of scalars. */
struct sw_update_attrs {
    enum sw_update_kind kind;
    bool decoupled;       /* ADAM: decoupled decay, as in AdamW */
    bool bias_correction; /* for ADAM, LAMB */
    bool nesterov;        /* for SGD, MUON */
    bool maximize;        /* for SGD, RMSPROP */
    double eps, weight_decay, dampening;
    int n_states;         /* number of inputs after the parameter that the rule updates in place */
    int ns_steps;         /* MUON: Newton-Schulz iterations */
    bool eps_inside_sqrt; /* for LAMB */
    double min_coeff, max_coeff; /* LAMB: bounds of the trust ratio */
    double lr_decay, initial;    /* ADAGRAD: decay of the rate; initial sum of squares */
    /* ADAFACTOR: smallest scale of the parameter, exponent for the scalar SQUARES_KEPT, largest rms
     * of a direction. scale_parameter: the rate is multiplied by the parameter's scale */
    double least_scale, decay_rate, clip_threshold;
    bool scale_parameter;
    /* Settings of the parameter's group: a factor on the rate, and betas that replace those of the
     * table. SGD, RMSPROP, MUON and ADAFACTOR always have their momentum here, RMSPROP its alpha */
    bool is_scaled, has_betas;
    double lr_scale, beta1, beta2;
};

/* A rule, and the part of a parameter that it applies to. */
struct sw_update_op_attrs {
    struct sw_update_attrs rule;
    int64_t first;   /* UPDATE: first element of the parameter */
    int64_t n_elems; /* LAMB, MUON, ADAFACTOR, 8-bit moments: number of elements without padding */
    /* LAMB: elements, the last of n_elems, whose squares another rank adds */
    int64_t n_shared;
    /* MUON, ADAFACTOR, bf16 moments: index in the whole tensor of the parameter's first element
     * here; and the key of the tensor for random draws */
    int64_t origin;
    uint64_t draw;
    /* ADAFACTOR: elements of the whole tensor; its matrices, formed by the last two dimensions, 0 =
     * fewer dimensions; index of this rank's shard of the means */
    int64_t whole, matrices, rows, columns, slice;
};

/* The member of struct sw_attrs that ops of a kind use. */
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
    SW_ATTRS_PREFERENCE,
    SW_ATTRS_RELATIVE,
    SW_ATTRS_WINDOW,
    SW_ATTRS_LSTM,
    SW_ATTRS_EXCHANGE,
    SW_ATTRS_EXPERTS,
    SW_ATTRS_WEIGHT,
    SW_ATTRS_QUANTIZED_MATMUL,
    SW_N_ATTRS_KINDS
};

/* The kind of the op selects the member; other members must not be read. All zeros are a default of
 * each. */
struct sw_attrs {
    union {
        struct sw_embedding_attrs embedding;
        struct { /* QUANTIZED_MATMUL has both: the weight is operand b of the product */
            struct sw_matmul_attrs matmul;
            struct sw_weight_attrs weight;
        };
        struct {
            double factor;
        } scale;
        struct {
            enum sw_act act;
        } act;
        struct sw_norm_attrs norm;
        struct sw_dropout_attrs dropout;
        struct sw_attention_attrs attention;
        struct sw_view_attrs view;
        struct sw_last_index_attrs last_index;
        struct {
            int dim;
            int64_t start;
            bool is_own; /* start is that of this rank's part */
        } slice;
        struct sw_linear_ce_attrs linear_ce;
        struct {
            double weight; /* factor of the gradient; 0 = 1 / count */
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
        struct sw_preference_attrs preference;
        struct sw_relative_attrs relative;
        struct sw_window_attrs window;
        struct sw_lstm_attrs lstm;
        struct sw_exchange_attrs exchange;
        struct sw_experts_attrs experts;
        struct sw_update_op_attrs update;
    };
};

/* ---- facts of each kind ---- */

enum sw_op_trait {
    SW_TRAIT_VIEW = 1,     /* a view of input 0, without a kernel */
    SW_TRAIT_PRODUCTS = 8, /* its FLOPs are matrix products; see `factor` */
    SW_TRAIT_LOOKUP = 16,  /* reads only the rows of input 0 that input 1 names */
    SW_TRAIT_FRESH = 32,   /* in-place operands are overwritten without being read */
    SW_TRAIT_SUM = 64,     /* the same in the first micro-batch of a step; else adds to them */
    SW_TRAIT_SKIP = 128, /* writes the table of scalars, and decides whether the step is skipped */
    SW_TRAIT_UPDATE = 256,    /* updates a parameter; does not run if the step is skipped */
    SW_TRAIT_STATES = 512,    /* first op of an update, which takes the gradients and states */
    SW_TRAIT_ELEMENTS = 1024, /* any run of elements can be processed separately */
    SW_TRAIT_DENSE = 2048,    /* makes a sparse gradient dense */
    SW_TRAIT_COPY = 4096,     /* copies the elements of input 0 unchanged */
    /* its indices are labels, so -100 is none; for COPY, -100 becomes a valid index */
    SW_TRAIT_LABELS = 8192,
};

enum sw_access {
    SW_ACCESS_READ,
    SW_ACCESS_ROWS,       /* reads the rows that the next operand names */
    SW_ACCESS_WRITE,      /* overwritten in place, not read */
    SW_ACCESS_UPDATE,     /* read and written in place */
    SW_ACCESS_ACCUMULATE, /* added to in place; overwritten in the first micro-batch of a step */
};

/* ---- cuts ---- */

/* The effect of a cut of one operand along one of its dimensions on another operand. */
enum sw_cut_effect {
    SW_CUT_WHOLE,   /* input: each part needs all of it */
    SW_CUT_ALIKE,   /* it is cut, too */
    SW_CUT_ONCE,    /* input: one part takes it (apart: the first, in turn: the last) */
    SW_CUT_ADDED,   /* output: the parts' outputs are added */
    SW_CUT_SAME,    /* output: each part makes all of it, with the same bits */
    SW_CUT_WRITTEN, /* output: whole; a part writes its own elements, and leaves the others */
    SW_CUT_MERGED,  /* output: made from partial results of all parts, which then run in turn */
};
/* How parts that run one after the other use struct sw_tile_attrs. Then only one operand is cut
 * (`tiled`), with outputs of SW_TURNS_SUM other than the sum; all other operands are whole. Such
 * parts have the bits of the whole. */
enum sw_cut_turns {
    SW_TURNS_NONE,  /* not possible */
    SW_TURNS_WRITE, /* each part writes its elements of the outputs (of a gradient: its rows) */
    SW_TURNS_SUM,   /* each part continues output 0; the last one also does the rest of the op */
};

enum { SW_CUT_SECTIONS = 3 };
struct sw_operand_cut {
    enum sw_cut_effect effect;
    int dim; /* ALIKE: the dimension that is cut; -1 = an absent output */
    /* ALIKE: elements along `dim`, and those of one unit. Packed q, k, v have three sections with
     * the same units; sw_cut_run finds the elements of a part in a section. 0 = no such section */
    int64_t elems, per[SW_CUT_SECTIONS];
};

/* The dimension consists of units (heads, groups of heads, pieces of a product, chunks of the
 * loss, rows, ..). A part has a run of them. The last unit may be shorter. */
struct sw_cut {
    int operand;  /* the one that was asked for */
    char axis;    /* its dimension, as the row names it */
    int64_t n;    /* number of units */
    int64_t unit; /* elements of that dimension per unit */
    bool apart;   /* parts are independent: each may run anywhere (sw_op_take_part) */
    enum sw_cut_turns turns;
    int tiled;               /* turns: the parameter that is cut, or its gradient */
    struct sw_shape partial; /* TURNS_SUM: shape of output 0 of all parts but the last, in f32 */
    struct sw_operand_cut operands[SW_MAX_INPUTS + SW_MAX_OUTPUTS]; /* inputs, then outputs */
};

enum { SW_AXES_TEXT = 128 };

typedef void (*sw_gradient_fn)(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                               sw_value *d_in);

struct sw_op_info {
    enum sw_attrs_kind attrs;
    unsigned traits; /* a set of enum sw_op_trait */
    int n_out;       /* number of non-optional outputs */
    /* Aliasing: index of the input whose storage output k shares; -1 = none. NULL = all outputs
     * have their own. */
    int (*alias)(const struct sw_op *op, int k);
    /* Shape rule: dtype and shape of all outputs, including optional ones, from inputs that have
     * been checked. NULL = the builder of the op sets them. Exceptions: the gradient of a parameter
     * has the communication dtype, and a tile has parts of these shapes. */
    void (*shapes)(const struct sw_op_desc *desc, struct sw_view *out);
    /* Gradient rule; NULL = not differentiable (integers, or the op itself comes from
     * differentiation). */
    sw_gradient_fn gradient;
    /* Floating-point operations per launch; NULL = one per element of the largest input. */
    int64_t (*flops)(const struct sw_op_desc *desc);
    int flops_per_elem; /* instead of `flops`: per element of input 0; -1 = it computes nothing */
    /* The input that holds indices (never the first; 0 = none), and the number of rows that they
     * index. */
    int index_input;
    int64_t (*n_indexed)(const struct sw_op_desc *desc);
    /* Fused ops: finds the op, *out, that makes some outputs from the other ones with the same
     * bits. false = not for this op. NULL = the kind is not fused. */
    bool (*apart)(const struct sw_op_desc *desc, struct sw_op *out);
    int factor; /* PRODUCTS: the input whose dtype selects the implementation */
    /* Cuts: names for the dimensions of inputs and outputs, such as "*k kn -> *n". Operands are
     * separated by blanks; absent ones at the end may be named.
     *   letter  the dimension can be cut, with those of the same name
     *   .       it cannot be cut
     *   *       any number of dimensions; where an operand has fewer, the last ones
     *   #       those of *, perhaps flattened
     *   _       any number of dimensions that cannot be cut
     *   =       in front of an output: each part makes all of it unless it has the dimension
     * An input without the name is needed whole. An output without it is a sum over it. axes_of:
     * instead of `axes`, if they depend on attributes; it may write into `text` [SW_AXES_TEXT].
     * NULL = this op cannot be cut. */
    const char *axes;
    const char *(*axes_of)(const struct sw_op_desc *desc, char *text);
    const char *uncut; /* why the op, or a dimension of it, cannot be cut */
    /* Completes a cut that follows from the names; false = not possible. */
    bool (*cut)(const struct sw_op_desc *desc, struct sw_cut *out);
    /* Makes the attributes those of a part (see sw_op_take_part). */
    void (*part)(const struct sw_op_desc *desc, struct sw_op *op, const struct sw_cut *cut,
                 int64_t first, int64_t n);
};

const struct sw_op_info *sw_op_info(enum sw_op_kind kind);
static inline bool sw_kind_has(enum sw_op_kind kind, unsigned traits)
{
    return (sw_op_info(kind)->traits & traits) != 0;
}
bool sw_op_has(const struct sw_op *op, unsigned traits);
const char *sw_op_name(const struct sw_op *op);

/* Index of the input whose storage output k shares; -1 = its own. */
int sw_op_alias(const struct sw_op *op, int k);
/* How the op accesses input k. */
enum sw_access sw_op_access(const struct sw_op *op, int k);
/* The tile in the op's attributes; NULL = the kind has none. */
struct sw_tile_attrs *sw_op_tile(struct sw_op *op);
/* Finds the effects of a cut of an operand along a dimension. Operands are counted: inputs, then
 * outputs. false = it cannot be cut. */
bool sw_op_cut(const struct sw_op_desc *desc, int operand, int dim, struct sw_cut *out);
/* Elements of operand k, which is cut ALIKE, in units first .. first + n - 1 of a section. Returns
 * the first one. */
int64_t sw_cut_run(const struct sw_cut *cut, int k, int section, int64_t first, int64_t n,
                   int64_t *n_elems);
/* Makes the attributes those of units first .. first + n - 1, as a part that runs apart. desc: the
 * whole op */
void sw_op_take_part(const struct sw_op_desc *desc, struct sw_op *op, const struct sw_cut *cut,
                     int64_t first, int64_t n);
/* TURNS_SUM: makes the op a part before the last, which outputs a partial sum, and skips the rest
 * of the op. */
void sw_op_make_partial(struct sw_op *op, const struct sw_cut *cut);
