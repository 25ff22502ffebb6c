// SPDX-License-Identifier: Apache-2.0
// args_adafactor - the optimizer that keeps means of squares of rows and columns. A line is a row
// or a column of one of the matrices that the last two dimensions of a tensor are; rows come first.
#pragma once

#include "device/gpu/module/args_update.h"

#define SW_GPU_ADAFACTOR_KERNELS(X)                                                                \
    X(adafactor_rows)                                                                              \
    X(adafactor_columns)                                                                           \
    X(adafactor_settle)                                                                            \
    X(adafactor_means)                                                                             \
    X(adafactor_factors)                                                                           \
    X(adafactor_moments)                                                                           \
    X(adafactor_apply)

enum {
    GPU_LINE_WORDS = GPU_EXACT_WORDS + 1, /* a sum, and the bits of a double: the mean before */
    GPU_ADAFACTOR_RUNS = 4,               /* of a row, that a lane has at a time */
    GPU_ADAFACTOR_ROWS = 128,             /* of a column, that a thread has */
    GPU_ADAFACTOR_LINES = 64              /* that a block settles */
};

/* What of a tensor is here, n elements from element `origin` on, and its gradients. A tensor
 * without lines is one row. */
struct gpu_adafactor {
    struct gpu_streams streams;
    const double *grad_factor, *clip;
    int64_t origin, n, rows, columns; /* rows: of one matrix */
    int64_t n_rows;                   /* of all matrices */
};
/* Their means, of which those from slice * n_kept on are here. */
struct gpu_adafactor_lines {
    float *rows, *columns;
    int64_t n_rows, n_columns, n_kept_rows, n_kept_columns, slice;
};

/* words: zeros; += stats of w^2, the sums of g^2 of the lines. Carries are left in them. */
struct gpu_adafactor_rows_args {
    const double *skip;
    struct gpu_adafactor of;
    struct gpu_param param;
    int64_t *words;
    int64_t *lines;                      /* of words; NULL: it has none */
    int64_t first_row, n_here, n_chunks; /* rows that are here; chunks of each */
};
struct gpu_adafactor_columns_args {
    const double *skip;
    struct gpu_adafactor of;
    int64_t *lines;                /* of the columns */
    int64_t first_matrix, n_items; /* threads that have work */
    int64_t first_row, n_here;     /* of each matrix */
};
/* No carries any more; and the means before. */
struct gpu_adafactor_settle_args {
    const double *skip;
    int64_t *words;
    struct gpu_adafactor_lines of;
};
/* New means where they are kept, and as factors: of columns 1 / sqrt(mean), of rows the mean. */
struct gpu_adafactor_means_args {
    const double *skip;
    const int64_t *words;
    struct gpu_adafactor_lines of;
    float *factors;
    const double *kept; /* of what was */
    double eps;
    int64_t row_elems, column_elems;
};
/* Means of rows become 1 / sqrt(mean / mean of all). */
struct gpu_adafactor_factors_args {
    const double *skip;
    float *factors;
    int64_t matrices, rows;
};
/* norm: zeros; the stats of u^2. */
struct gpu_adafactor_moments_args {
    const double *skip;
    struct gpu_adafactor of;
    const float *factors; /* NULL: */
    float *square;        /* a mean for each element */
    const double *kept;
    double eps;
    int64_t *norm;
};
struct gpu_adafactor_apply_args {
    const double *skip;
    struct gpu_adafactor of;
    struct gpu_param param;
    struct gpu_rule rule;
    struct gpu_rates rates;
    const float *factors, *square; /* as above */
    float *mean;                   /* of steps; NULL: it has none */
    const int64_t *words, *norm;
    double least_scale, clip_threshold;
    int64_t whole; /* elements of the whole tensor */
    int scale_parameter;
};
