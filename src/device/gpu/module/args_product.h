// SPDX-License-Identifier: Apache-2.0
// args_product - matrix products without a library, and the finishing of a product.
#pragma once

#include <stdint.h>

#define SW_GPU_PRODUCT_KERNELS(X) X(product) X(product_finish)

enum { SW_GPU_PRODUCT_TILE = 64 };

/* d [m, n] = a [m, k] b [k, n] + bias. a's element (i, k) is at i a_outer + k a_inner, b's element
 * (k, j) at j b_outer + k b_inner. One block per tile; consecutive blocks go across first. */
struct gpu_product_args {
    const double *skip;
    const void *a, *b, *bias; /* bias: NULL, or [n] of out_type */
    void *d;
    int64_t m, n, k;
    int64_t a_outer, a_inner, b_outer, b_inner, ldd;
    int out_type;
};
/* pre = x + part + bias and out = act(pre); x (fp32) and bias may be absent. Row strides are ld_..,
 * in elements. The instance is the type of out and pre. */
struct gpu_product_finish_args {
    const double *skip;
    const float *x;
    const void *part, *bias;
    void *out, *pre; /* pre: NULL = not wanted; out may be part or x, pre part */
    int64_t rows, columns;
    int64_t ld_x, ld_part, ld_out; /* pre has ld_out */
    int part_type, bias_type;
    int act; /* enum sw_act */
};
