// SPDX-License-Identifier: Apache-2.0
// args_norm - norms of rows, their gradients, and sums over rows.
#pragma once

#include <stdint.h>

#define SW_GPU_NORM_KERNELS(X)                                                                     \
    X(layer_norm)                                                                                  \
    X(rms_norm)                                                                                    \
    X(layer_norm_dx)                                                                               \
    X(rms_norm_dx)                                                                                 \
    X(layer_norm_dw)                                                                               \
    X(rms_norm_dw)                                                                                 \
    X(sum_rows)                                                                                    \
    X(sum_blocks)

/* Norm of x, or of a + b with the sum stored, to y, mean and rstd. */
struct gpu_norm_args {
    const double *skip;
    const void *x, *b; /* b: NULL = none */
    const void *w, *bias;
    void *sum, *y;
    float *mean, *rstd; /* NULL = not wanted */
    int64_t n_rows, width;
    float eps;
    int one_plus;
    int team; /* threads per row: a warp or a block */
};
/* Sums over rows: each block of rows in order, then the blocks' sums in order. A thread block has
 * GPU_SUM_COLUMNS columns of one block of rows. The last thread block to finish its columns adds up
 * their sums. It is found with a ticket, a number on the device per GPU_SUM_COLUMNS columns that is
 * 0 between kernels. */
enum { GPU_SUM_COLUMNS = 256, GPU_TICKETS = 1024 };
struct gpu_total {
    void *y; /* [width] */
    int type;
};
/* Makes dx, and the sums for dw and db over each block of rows. */
struct gpu_norm_grad_args {
    const double *skip;
    const void *dy, *x, *w;
    const float *mean, *rstd;
    void *dx;
    float *dw, *db; /* [n_blocks, width], NULL = not wanted */
    int64_t n_rows, width;
    int64_t block; /* rows per sum */
    int *tickets;  /* NULL: the sums are not added up */
    struct gpu_total total_dw, total_db;
    int one_plus, team;
};
/* x [n_rows, width] -> sums of blocks of rows [n_blocks, width], and their sum. */
struct gpu_sum_rows_args {
    const double *skip;
    const void *x;
    float *sums;
    int64_t n_rows, width, block;
    int *tickets; /* NULL: the sums are not added up */
    struct gpu_total total;
};
/* Adds existing sums of blocks, in order: y [width]. */
struct gpu_sum_blocks_args {
    const double *skip;
    const float *sums;
    void *y;
    int64_t n_blocks, width;
    int out_type;
};
