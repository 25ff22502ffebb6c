// SPDX-License-Identifier: Apache-2.0
// args_attention - attention and its gradient (attention.h), for heads of up to 64, 128 and 256
// elements, and tile sizes that they share with the host.
#pragma once

#include <stdint.h>

#include "device/gpu/module/args_draw.h"

#define SW_GPU_ATTENTION_KERNELS(X)                                                                \
    X(attention_places)                                                                            \
    X(attention_64)                                                                                \
    X(attention_128)                                                                               \
    X(attention_256)                                                                               \
    X(attention_delta)                                                                             \
    X(attention_keys_64)                                                                           \
    X(attention_keys_128)                                                                          \
    X(attention_keys_256)                                                                          \
    X(attention_queries_64)                                                                        \
    X(attention_queries_128)                                                                       \
    X(attention_queries_256)                                                                       \
    X(product_of_tiles)

/* Element d of (b, t, h) is at b batch + t token + h head + d element. aligned: rows of a head
 * start at multiples of 16 bytes and are whole multiples of it. */
struct gpu_heads {
    const void *x;
    int64_t batch, token, head, element;
    int aligned;
};

struct gpu_attention_args {
    const double *skip;
    struct gpu_heads q, k, v;
    struct gpu_heads d_o, o; /* d_o: gradient of the output; o: the output, both directions */
    struct gpu_heads dq, dk, dv;
    float *lse;              /* [B,H,T]; forward: may be NULL */
    float *delta;            /* [B,H,T] sum of do o over a head */
    const int32_t *position; /* [1] or NULL */
    const int32_t *mask;     /* [B,S] or NULL */
    const int32_t *segments; /* [B,S] or NULL */
    const float *slopes;     /* [H] or NULL */
    const float *bias;       /* [H,T,S], or one per sample; NULL = none */
    float *dbias; /* [B,H,T,S]; NULL = not wanted. Elements that no query sees are left unchanged */
    int64_t bias_batch; /* stride between the samples' biases, in elements; 0 = they share one */
    int32_t *places;    /* [B,S] number of real keys before; NULL = all keys are real */
    int32_t *bounds; /* [B, groups, 2] least and largest segment of 16 keys; NULL = no segments */
    int batch, heads, kv_heads, n_queries, n_keys, window, width;
    int causal, has_dropout, first_head, bf16_slopes;
    float scale, cap, keep_scale;
    struct gpu_draw_args draw;
};

/* c = a b for 16 x 16 elements with contiguous rows: one product of a warp's matrix unit (mma.h).
 * transposed: b is given as [n][k]. */
struct gpu_product_of_tiles_args {
    const double *skip;
    const void *a, *b;
    float *c;
    int transposed;
};

/* ---- sizes; D: head width that a kernel is for, 64 to 256; bytes: of an element ---- */

enum {
    GPU_ATTENTION_MAX = 1 << 29,         /* most tokens, also of a window: sums of two are ints */
    GPU_ATTENTION_GROUP = 16,            /* keys or queries processed together; a product's rows */
    GPU_ATTENTION_WARPS = 4,             /* warps of a block, each with a group of rows */
    GPU_ATTENTION_SCRATCH = 16 * 20 * 4, /* bytes per warp */
};
/* Row stride in shared memory, in elements: rows start in different banks, and 16 bytes stay
 * contiguous. */
#define GPU_ATTENTION_LD(D, bytes) ((D) + 16 / (int)(bytes))
/* Forward: keys of a tile; the parts of shared memory: keys and values, scratch. */
#define GPU_ATTENTION_KEYS(D, bytes) ((D) * (int)(bytes) <= 256 ? 64 : (D) == 128 ? 32 : 16)
#define GPU_ATTENTION_SHARED(D, bytes)                                                             \
    (2 * GPU_ATTENTION_KEYS(D, bytes) * GPU_ATTENTION_LD(D, bytes) * (int)(bytes) +                \
     GPU_ATTENTION_WARPS * GPU_ATTENTION_SCRATCH)
/* Backward: warps of a block, rows of a tile, columns of a gradient per block. Shared memory holds
 * two tiles, the block's own rows (if 16-bit) twice, lse and delta, scratch. */
#define GPU_ATTENTION_GRAD_WARPS(D) ((D) <= 128 ? 4 : 2)
#define GPU_ATTENTION_GRAD_TILE(D, bytes) ((D) * (int)(bytes) <= 256 ? 32 : 16)
#define GPU_ATTENTION_GRAD_COLS(D) ((D) <= 128 ? (D) : 128)
#define GPU_ATTENTION_GRAD_OWN(D, bytes) ((bytes) == 2 ? 16 * GPU_ATTENTION_GRAD_WARPS(D) : 0)
#define GPU_ATTENTION_GRAD_SHARED(D, bytes)                                                        \
    (2 * (GPU_ATTENTION_GRAD_TILE(D, bytes) + GPU_ATTENTION_GRAD_OWN(D, bytes)) *                  \
         GPU_ATTENTION_LD(D, bytes) * (int)(bytes) +                                               \
     2 * 64 * 4 + GPU_ATTENTION_GRAD_WARPS(D) * GPU_ATTENTION_SCRATCH)
