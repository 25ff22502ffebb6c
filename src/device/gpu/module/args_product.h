// SPDX-License-Identifier: Apache-2.0
// args_product - products of matrices where no library is, and what is done to a product afterwards.
#pragma once

#include <stdint.h>

#define SW_GPU_PRODUCT_KERNELS(X) X(product) X(product_finish)

enum { SW_GPU_PRODUCT_TILE = 64, SW_GPU_FINISH_COLUMNS = 1024 };

/* d [m, n] = a [m, k] b [k, n] + bias: a's element (i, k) lies at i a_outer + k a_inner, b's element
 * (k, j) at j b_outer + k b_inner. A block makes a tile: the grid has as many as there are, across
 * first. */
struct gpu_product_args {
    const double *skip;
    const void *a, *b, *bias; /* bias: NULL, or [n] of out_type */
    void *d;
    int64_t m, n, k;
    int64_t a_outer, a_inner, b_outer, b_inner, ldd;
    int out_type;
};
/* out = act(x + part + bias), and that before act, where x (fp32) and bias may be missing; rows of
 * each begin ld_.. elements apart. A block has SW_GPU_FINISH_COLUMNS of a row: the grid has rows
 * times as many as a row needs, across first. The instance is of out and pre. */
struct gpu_product_finish_args {
    const double *skip;
    const float *x;
    const void *part, *bias;
    void *out, *pre; /* pre: NULL = not wanted; out may be part or x, pre part */
    int64_t rows, columns;
    int64_t ld_x, ld_part, ld_out; /* pre's is out's */
    int part_type, bias_type;
    int act; /* enum sw_act */
};
