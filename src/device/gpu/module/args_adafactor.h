// SPDX-License-Identifier: Apache-2.0
// args_adafactor - Adafactor, which keeps means of squares over rows and columns. A line is a row
// or a column of one of the matrices in a tensor's last two dimensions; rows come first.
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
    /* a sum, and the bits of a double: the mean before this step */
    GPU_LINE_WORDS = GPU_EXACT_WORDS + 1,
    GPU_ADAFACTOR_RUNS = 4,   /* runs of a row per lane at a time */
    GPU_ADAFACTOR_ROWS = 128, /* rows of a column per thread */
    GPU_ADAFACTOR_LINES = 64  /* lines per block that settles carries */
};

/* The part of a tensor on this rank: n elements from element `origin` on, and its gradients. A
 * tensor without lines is one row. */
struct gpu_adafactor {
    struct gpu_streams streams;
    const double *grad_factor, *clip;
    int64_t origin, n, rows, columns; /* rows: of one matrix */
    int64_t n_rows;                   /* over all matrices */
};
/* Means of the lines; those from slice * n_kept on are kept on this rank. */
struct gpu_adafactor_lines {
    float *rows, *columns;
    int64_t n_rows, n_columns, n_kept_rows, n_kept_columns, slice;
};

/* words: zeros on entry; += stats of w^2 and the sums of g^2 of the lines. Carries are not
 * settled. */
struct gpu_adafactor_rows_args {
    const double *skip;
    struct gpu_adafactor of;
    struct gpu_param param;
    int64_t *words;
    int64_t *lines;                      /* NULL: no lines */
    int64_t first_row, n_here, n_chunks; /* rows on this rank; chunks of each */
};
struct gpu_adafactor_columns_args {
    const double *skip;
    struct gpu_adafactor of;
    int64_t *lines;                /* the columns' lines */
    int64_t first_matrix, n_items; /* n_items: threads with work */
    int64_t first_row, n_here;     /* rows of each matrix on this rank */
};
/* Settles the carries, and stores the means before this step. */
struct gpu_adafactor_settle_args {
    const double *skip;
    int64_t *words;
    struct gpu_adafactor_lines of;
};
/* Computes new means. Kept ones are stored; factors get 1 / sqrt(mean) for columns, the mean for
 * rows. */
struct gpu_adafactor_means_args {
    const double *skip;
    const int64_t *words;
    struct gpu_adafactor_lines of;
    float *factors;
    const double *kept; /* the old means */
    double eps;
    int64_t row_elems, column_elems;
};
/* Turns the means of rows into 1 / sqrt(mean / mean of all rows). */
struct gpu_adafactor_factors_args {
    const double *skip;
    float *factors;
    int64_t matrices, rows;
};
/* norm: zeros on entry; receives the stats of u^2. */
struct gpu_adafactor_moments_args {
    const double *skip;
    struct gpu_adafactor of;
    const float *factors; /* NULL: square is used */
    float *square;        /* mean per element */
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
    const float *factors, *square; /* as in gpu_adafactor_moments_args */
    float *mean;                   /* mean of steps; NULL: none is kept */
    const int64_t *words, *norm;
    double least_scale, clip_threshold;
    int64_t whole; /* elements of the whole tensor */
    int scale_parameter;
};
