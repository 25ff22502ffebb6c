// SPDX-License-Identifier: Apache-2.0
// args_rows - integers made from ids, rows zeroed by a mask, concatenation of tensors.
#pragma once

#include <stdint.h>

#define SW_GPU_ROWS_KERNELS(X)                                                                     \
    X(not_equal)                                                                                   \
    X(shift_right)                                                                                 \
    X(trim)                                                                                        \
    X(mask_rows) X(place_run) X(masked_mean) X(masked_mean_grad) X(dequantize) X(inverse_norms)

/* Three kernels: y = x != value; ids [.., tokens] shifted right, with `value` first and -100
 * replaced by pad; ids [.., tokens] up to the row's length, then -1. */
struct gpu_integers_args {
    const double *skip;
    const int32_t *x, *lengths;
    int32_t *y;
    int64_t n, tokens, value, pad;
};
/* Zeroes rows of x [rows, width] whose mask is 0. */
struct gpu_mask_rows_args {
    const double *skip;
    const void *x;
    const int32_t *mask;
    void *y;
    int64_t n_rows, width;
    int out_type;
};
/* Copies x [outer, run] into y [outer, whole] from `start` on, counted in units of the given
 * bytes. */
struct gpu_place_run_args {
    const double *skip;
    const void *x;
    void *y;
    int64_t n, run, whole, start; /* n: units of x */
    int unit;
};
/* y [n] from the codes and scales of a quantized weight (struct sw_quantized, DEQUANTIZE): NF4 has
 * two codes a byte and a scale for each `block` elements, INT8 a code each and a scale for each row
 * of `block` elements. y has runs of `run` adjacent elements, which begin at first, first + stride,
 * .. */
enum { GPU_NESTED_OFFSET = 256, GPU_NESTED_SCALES = 257, GPU_NESTED_RUN = 256 };
struct gpu_dequantize_args {
    const double *skip;
    const uint8_t *codes;
    const float *scales;
    const uint8_t *scale_codes; /* instead of scales, with nested */
    const float *nested;
    void *y;
    int64_t n, block;
    int64_t first, run, stride;
    int int8, rounds; /* rounds: type in which values are rounded first */
    float levels[16];
};
/* y [rows] = 1 / |w + factor b a| of each row: w [rows, width], or [width, rows] with in_out;
 * a [rank, width], b [rows, rank]. */
struct gpu_inverse_norms_args {
    const double *skip;
    const void *w, *a, *b;
    void *y;
    int64_t rows, width, rank;
    float factor;
    int in_out;
};
/* y [batch, width] from x [batch, tokens, width]; the gradient goes the other way. */
struct gpu_masked_mean_args {
    const double *skip;
    const void *x;
    const int32_t *mask;
    void *y;
    int64_t batch, tokens, width;
    int out_type;
};
