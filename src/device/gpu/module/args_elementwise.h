// SPDX-License-Identifier: Apache-2.0
// args_elementwise - one output element from the elements at its place.
#pragma once

#include <stdint.h>

#define SW_GPU_ELEMENTWISE_KERNELS(X) X(add) X(scale)

/* y = a + b; b repeats every n_b elements. */
struct gpu_add_args {
    const double *skip;
    const void *a, *b;
    void *y;
    int64_t n, n_b;
};
/* y = factor x */
struct gpu_scale_args {
    const double *skip;
    const void *x;
    void *y;
    int64_t n;
    float factor;
};
