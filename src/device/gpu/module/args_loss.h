// SPDX-License-Identifier: Apache-2.0
// args_loss - cross entropy of logits, a run of columns at a time.
#pragma once

#include <stdint.h>

#define SW_GPU_LOSS_KERNELS(X)                                                                     \
    X(loss_stats)                                                                                  \
    X(loss_rows)                                                                                   \
    X(loss_sum) X(loss_slope) X(loss_bias) X(loss_total) X(element_loss) X(element_loss_grad)

/* The state of rows, [3, rows]: the label's logit (NaN until a column is the label's), the maximum,
 * the sum of exponentials under it. Logits of columns first .. first + n - 1 go into
 * it, from one to another or in place. A block a row. The instance is of the logits. */
struct gpu_loss_stats_args {
    const double *skip;
    const void *logits; /* [rows_now, ld]: of rows row .. row + rows_now - 1 */
    const void *bias;   /* NULL, or of column `first` on */
    const int32_t *labels;
    const float *before; /* [3, rows]; NULL = of no column yet */
    float *state;        /* [3, rows] */
    int64_t rows, row, first, n, ld;
    float cap; /* 0 = none */
    int bias_type;
};
/* The states become lse (NULL = not wanted) and loss of rows. */
struct gpu_loss_rows_args {
    const double *skip;
    const float *state;
    float *lse, *loss;
    const float *totals; /* of the logits of rows; NULL = no smoothing */
    int64_t rows;
    float smoothing, each; /* the part of all classes, of one of them */
};
/* Sum and count of rows whose label counts. One block. */
struct gpu_loss_sum_args {
    const double *skip;
    const float *loss;
    const int32_t *labels;
    float *sum, *count;
    int64_t rows;
    int64_t beyond; /* labels from here on do not count; 0 = all do */
};
/* d = (exp(logit - lse) - smooth - (1 - smoothing) onehot) dsum, times the slope of the cap; 0
 * where the label does not
 * count. A block a row. The instance is of d. */
struct gpu_loss_slope_args {
    const double *skip;
    const void *logits; /* [rows_now, ld] */
    const void *bias;
    const int32_t *labels; /* labels, lse, d: of the first of these rows on */
    const float *dsum, *lse;
    void *d;
    int64_t first, n, ld, ld_d;
    int64_t beyond; /* as above */
    float cap, smooth, smoothing;
    int logits_type, bias_type;
};
/* totals [rows] of logits [rows, n]. A block a row. */
struct gpu_loss_total_args {
    const double *skip;
    const void *logits;
    float *totals;
    int64_t n;
};
/* Loss of elements with a target, NaN = none: sum and count, by one block; or dx. */
struct gpu_element_loss_args {
    const double *skip;
    const void *x;
    const float *target;
    float *sum, *count; /* forward */
    const float *dsum;  /* backward */
    void *dx;
    int64_t n;
    int binary, out_type;
};
/* Sums of so many rows of d, and of those sums, in order. A block has 256 columns: of loss_bias as
 * many as are needed for each block of rows. The instances are of d, and of db. */
struct gpu_loss_bias_args {
    const double *skip;
    const void *d;
    float *sums; /* [blocks of rows, n] */
    int64_t rows, n, ld_d, block;
};
