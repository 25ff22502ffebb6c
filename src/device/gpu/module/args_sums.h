// SPDX-License-Identifier: Apache-2.0
// args_sums - sums of the ranks' slices.
#pragma once

#include <stdint.h>

#define SW_GPU_SUMS_KERNELS(X) X(add_slices) X(add_words)

/* acc[i] += slices[k][i] for k = 0, 1, .., each addition rounded to fp32 by itself. If wanted, the
 * sums also go to `rounded`, in the type of the slices. */
struct gpu_add_slices_args {
    const double *skip;
    float *acc;
    const void *slices;
    void *rounded;
    int64_t n;
    int n_slices, fresh; /* fresh: the first slice is converted into acc */
};
/* out[i] = words[0][i] + words[1][i] + .. */
struct gpu_add_words_args {
    const double *skip;
    int64_t *out;
    const int64_t *words;
    int64_t n_sets, n;
};
