// SPDX-License-Identifier: Apache-2.0
// args_relative - scores by the distance of key and query.
#pragma once

#include <stdint.h>

#define SW_GPU_RELATIVE_KERNELS(X)                                                                 \
    X(relative_bias)                                                                               \
    X(relative_bias_grad) X(relative_scores) X(relative_scores_dx) X(relative_scores_dtable)

/* Spreads rows [n_rows, heads] over [heads, queries, keys], or sums back. */
struct gpu_relative_bias_args {
    const double *skip;
    const void *x;
    const int32_t *position; /* NULL = 0 */
    void *y;
    int64_t heads, queries, keys, n_rows, origin;
    int out_type;
};
/* scores [batch, heads, tokens, tokens] from x [batch, tokens, heads, width] and table [n_rows,
 * heads, width]. */
struct gpu_relative_scores_args {
    const double *skip;
    const void *x, *table;
    const int32_t *index; /* [2 tokens - 1] */
    const float *d;       /* backward: gradient of the scores */
    void *y;              /* scores f32, dx, dtable */
    int64_t batch, tokens, heads, width, n_rows;
    float scale;
    int by_key, out_type;
};
