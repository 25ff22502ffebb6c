// SPDX-License-Identifier: Apache-2.0
// args_loss - cross entropy of logits, one range of columns at a time.
#pragma once

#include <stdint.h>

#define SW_GPU_LOSS_KERNELS(X)                                                                     \
    X(loss_stats)                                                                                  \
    X(loss_rows)                                                                                   \
    X(loss_sum)                                                                                    \
    X(loss_slope)                                                                                  \
    X(loss_bias)                                                                                   \
    X(loss_total)                                                                                  \
    X(loss_merge)                                                                                  \
    X(loss_each)                                                                                   \
    X(element_loss)                                                                                \
    X(element_loss_grad)                                                                           \
    X(preference_values)                                                                           \
    X(preference)                                                                                  \
    X(preference_grad)

/* Adds logits of columns first .. first + n - 1 to the state of rows, from `before` to `state` or
 * in place. The state [3, rows] is the label's logit (NaN until its column was seen), the
 * maximum, and the sum of exponentials relative to it. One block per row. The instance is the
 * logits' type. */
struct gpu_loss_stats_args {
    const double *skip;
    const void *logits; /* [rows_now, ld]: rows row .. row + rows_now - 1 */
    const void *bias;   /* NULL, or starting at column `first` */
    const int32_t *labels;
    const float *before; /* [3, rows]; NULL = no columns seen yet */
    float *state;        /* [3, rows] */
    int64_t rows, row, first, n, ld;
    float cap; /* 0 = no cap */
    int bias_type;
};
/* The states of rows from those that ranks made of parts of the vocabulary, in their order. */
struct gpu_loss_merge_args {
    const double *skip;
    const float *parts; /* [n, per, rows] */
    float *state;       /* [3, rows] */
    float *totals;      /* [rows] sums of logits, the fourth of each part; NULL = per is 3 */
    int64_t rows, n, per;
};
/* Turns the states into lse (NULL = not wanted) and the loss of rows. */
struct gpu_loss_rows_args {
    const double *skip;
    const float *state;
    float *lse, *loss;
    const float *totals; /* sums of the rows' logits; NULL = no smoothing */
    int64_t rows;
    float smoothing, each; /* weight of all classes together, and of each */
};
/* Sum and count over rows whose label is not ignored. One block. */
struct gpu_loss_sum_args {
    const double *skip;
    const float *loss;
    const int32_t *labels;
    float *sum, *count;
    int64_t rows;
    int64_t beyond; /* labels from here on are ignored; 0 = none are */
};
/* Loss and count of each row; 0 if its label is ignored. */
struct gpu_loss_each_args {
    const double *skip;
    const float *loss;
    const int32_t *labels;
    float *out, *count;
    int64_t rows;
};
/* d = (exp(logit - lse) - smooth - (1 - smoothing) onehot) dsum, times the slope of the cap; 0 if
 * the label is ignored. One block per row. The instance is d's type. */
struct gpu_loss_slope_args {
    const double *skip;
    const void *logits; /* [rows_now, ld] */
    const void *bias;
    const int32_t *labels; /* labels, lse, d: starting at the first of these rows */
    const float *dsum, *lse;
    void *d;
    int64_t first, n, ld, ld_d;
    int64_t dsum_step; /* 1: dsum has an element for each row, starting at the first of these */
    int64_t padding;   /* columns of d after those, which become 0 */
    int64_t beyond;    /* as in gpu_loss_sum_args */
    float cap, smooth, smoothing;
    int logits_type, bias_type;
};
/* totals [rows] of the first n of logits [rows, ld]. One block per row. */
struct gpu_loss_total_args {
    const double *skip;
    const void *logits;
    float *totals;
    int64_t n, ld;
};
/* Loss of elements with a target (NaN = no target): one block makes sum and count; or dx. */
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
/* PREFERENCE and its gradient; see struct sw_preference_attrs, whose kinds `kind` numbers.
 * preference_values makes each row's value and count (a thread per row), preference the outputs
 * (one thread), preference_grad dx (a thread per row). */
struct gpu_preference_args {
    const double *skip;
    const float *x, *counts; /* [rows, width] */
    const float *reference;  /* [rows]; NULL = 0 */
    const int32_t *kinds;    /* [rows]; NULL = rows are pairs */
    double *value, *count;   /* [rows] */
    float *sum, *n, *values, *totals;
    const float *dsum;
    float *dx;
    int64_t rows, width;
    double beta, smoothing, desirable, undesirable;
    int kind, mean;
};
/* Sums over blocks of rows of d, and then of those sums, in order. A block has 256 columns;
 * loss_bias has as many blocks as needed for each block of rows. The instances are the types of d
 * and of db. */
struct gpu_loss_bias_args {
    const double *skip;
    const void *d;
    float *sums; /* [blocks of rows, n] */
    int64_t rows, n, ld_d, block;
};
