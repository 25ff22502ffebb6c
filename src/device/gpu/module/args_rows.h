// SPDX-License-Identifier: Apache-2.0
// args_rows - integers made of ids, rows that a mask leaves out, tensors behind one another.
#pragma once

#include <stdint.h>

#define SW_GPU_ROWS_KERNELS(X)                                                                     \
    X(not_equal) X(shift_right) X(trim) X(mask_rows) X(place_run) X(masked_mean) X(masked_mean_grad)

/* y = x != value; ids [.., tokens] shifted right, `value` first, -100 becomes pad; ids [.., tokens]
 * up to the length of the row, then -1. */
struct gpu_integers_args {
    const double *skip;
    const int32_t *x, *lengths;
    int32_t *y;
    int64_t n, tokens, value, pad;
};
/* Rows of x [rows, width] whose mask is 0 become zeros. */
struct gpu_mask_rows_args {
    const double *skip;
    const void *x;
    const int32_t *mask;
    void *y;
    int64_t n_rows, width;
    int out_type;
};
/* x [outer, run] into y [outer, whole] from `start` on, all counted in units of so many bytes. */
struct gpu_place_run_args {
    const double *skip;
    const void *x;
    void *y;
    int64_t n, run, whole, start; /* n: units of x */
    int unit;
};
/* y [batch, width] of x [batch, tokens, width]; the gradient the other way round. */
struct gpu_masked_mean_args {
    const double *skip;
    const void *x;
    const int32_t *mask;
    void *y;
    int64_t batch, tokens, width;
    int out_type;
};
