// SPDX-License-Identifier: Apache-2.0
// args_rotary - pairs of elements of a head, rotated by the angles of its token's position.
#pragma once

#include <stdint.h>

#define SW_GPU_ROTARY_KERNELS(X) X(rotary)

/* x [batch, tokens, heads, width], with strides of its first three dims in elements; y is
 * row-major. */
struct gpu_rotary_args {
    const double *skip;
    const void *x;
    const float *table; /* [n_positions, 2 half]: cosines, then sines */
    const int32_t *positions;
    void *y;
    int64_t batch, tokens, heads, width, half, n_positions;
    int64_t strides[3];
    int by_sample, interleaved, inverse;
};
