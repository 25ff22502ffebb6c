// SPDX-License-Identifier: Apache-2.0
// args_experts - mixtures of experts: routers, their statistics and losses, rows of experts, their
// products, clamped gates; and attention sinks. N tokens choose k of E experts each.
#pragma once

#include <stdint.h>

#define SW_GPU_EXPERTS_KERNELS(X)                                                                  \
    X(router)                                                                                      \
    X(router_grad)                                                                                 \
    X(router_stats)                                                                                \
    X(router_stats_grad)                                                                           \
    X(router_loss)                                                                                 \
    X(router_loss_grad)                                                                            \
    X(expert_loads)                                                                                \
    X(expert_choices)                                                                              \
    X(expert_rows)                                                                                 \
    X(to_experts)                                                                                  \
    X(from_experts)                                                                                \
    X(from_experts_weights)                                                                        \
    X(expert_product)                                                                              \
    X(expert_product_grad)                                                                         \
    X(expert_bias_grad)                                                                            \
    X(expert_rest)                                                                                 \
    X(clamped_gate)                                                                                \
    X(clamped_gate_grad)                                                                           \
    X(attention_sink)                                                                              \
    X(attention_sink_grad)

enum {
    GPU_ROUTER_WARPS = 4,      /* warps of 32 of a block, or half as many of 64; one for a token */
    GPU_ROUTER_EXPERTS = 1024, /* most experts: shared memory holds their scores */
    GPU_EXPERT_TILE = 64,      /* rows and columns of a product that a block computes */
    GPU_EXPERT_COLUMNS = 32,   /* columns of a bias whose gradient a block computes */
};

/* Two kernels: the choice of experts, and its gradient. Shared memory: 3 and 2 E floats a warp. */
struct gpu_router_args {
    const double *skip;
    const void *logits, *bias; /* [N,E]; [E] or NULL */
    float *weights;            /* [N,k] or NULL */
    int32_t *experts;          /* [N,k] */
    const float *dweights;     /* the gradient only, as below */
    const int32_t *chosen;     /* [N,k] */
    void *dlogits;
    int64_t tokens, width, k, groups, kept;
    float scale;
    int bias_type, sigmoid, normalise;
};
/* Sums of blocks of `block` tokens, at most GPU_STATS_TOKENS: [n_blocks, 2 E + 3], as
 * SW_OP_ROUTER_STATS has them; and the gradient of the logits by that of the sums. */
enum { GPU_STATS_TOKENS = 64 };
struct gpu_router_stats_args {
    const double *skip;
    const void *logits;
    const int32_t *experts, *slots, *mask; /* mask: NULL = all tokens count */
    float *sums;
    const float *dstats; /* the gradient only, as dlogits */
    void *dlogits;
    int64_t tokens, width, k, block;
};
/* stats [2 E + 3] -> sum and count, or dsum -> dstats. */
struct gpu_router_loss_args {
    const double *skip;
    const float *stats, *dsum;
    float *sum, *count, *dstats; /* count: NULL = not wanted */
    int64_t width;               /* E */
    int z;
};
/* How evenly rows are spread: a sum and a count of each of four numbers. */
struct gpu_expert_loads_args {
    const double *skip;
    const int32_t *offsets; /* [R, E / R + 2] */
    float *loads;           /* [8] */
    int64_t n, ranks;       /* E, R */
};
/* A stable counting sort in two kernels. A block of the first has an expert: it marks slots with 0
 * or -1 (dropped) and counts rows and dropped choices. So does a block of the second, which sets
 * slots and sources. R blocks more end the offsets and clear the sources of other rows, each in the
 * part of a rank, which has E / R experts. */
struct gpu_expert_rows_args {
    const double *skip;
    const int32_t *experts;             /* [N,k] */
    int32_t *slots, *sources, *offsets; /* [N,k], [R,rows], [R, E / R + 2] */
    int32_t *counts;                    /* [2,E]: rows and dropped choices of each expert */
    int64_t tokens, k, n, ranks, rows;  /* n: E; ranks: R */
    int64_t most;                       /* rows of an expert */
};
/* Three kernels: rows of tokens x [N,width] to those of experts; rows of experts x [rows,width] to
 * those of tokens, summed; the gradient of weights from x of tokens and y of experts. */
struct gpu_experts_move_args {
    const double *skip;
    const void *x, *y;
    const int32_t *slots, *sources;
    const float *weights; /* NULL = 1 */
    void *out;
    float *dweights;
    int64_t tokens, rows, width, k;
};
/* Products of the rows of n experts, which have offsets [n + 1]. Forward: d [rows, columns] = a b +
 * bias with rows of a [.., depth] and matrices b [n, depth, columns], or transposed (tb). The y of
 * the grid is a part of `rows` rows, whose offsets are `stride` after those of the one before.
 * Gradient: d [n, rows, columns] = the sum over rows of an expert of a [.., rows] times b
 * [.., columns]. */
struct gpu_expert_product_args {
    const double *skip;
    const int32_t *offsets;
    const void *a, *b, *bias; /* bias: [n, columns] or NULL */
    void *d;
    int64_t n, rows, columns, depth, stride;
    int bias_type, out_type, tb;
};
/* d [n, columns] = sums over the rows of n experts. */
struct gpu_expert_bias_args {
    const double *skip;
    const int32_t *offsets;
    const void *dy;
    void *d;
    int64_t n, columns;
    int out_type;
};
/* Zeros in y [rows, width] from row *first on; the y of the grid is a part. */
struct gpu_expert_rest_args {
    const double *skip;
    const int32_t *first;
    void *y;
    int64_t rows, width, stride;
};
/* x [n,2] -> y [n]; the gradient dy -> dx. */
struct gpu_clamped_gate_args {
    const double *skip;
    const void *x, *dy;
    void *out;
    int64_t n;
    float alpha, limit;
};
/* o [B,T,H width], lse [B,H,T], sinks [H]. Gradient: sums of blocks of `block` tokens, [n_blocks,
 * H], of tokens of all samples in order. */
struct gpu_sink_args {
    const double *skip;
    const void *o, *sinks, *d_o; /* d_o: the gradient only, as sums */
    const float *lse;
    void *out;      /* NULL = not wanted */
    float *out_lse; /* NULL = not wanted */
    float *sums;
    int64_t batch, tokens, heads, width, block;
};
