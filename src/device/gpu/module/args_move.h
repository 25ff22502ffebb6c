// SPDX-License-Identifier: Apache-2.0
// args_move - moves elements unchanged. Rows are counted in bytes. `unit` is the number of bytes
// moved at a time; rows and their tensors are aligned to it.
#pragma once

#include <stdint.h>

#define SW_GPU_MOVE_KERNELS(X)                                                                     \
    X(contiguous)                                                                                  \
    X(embedding)                                                                                   \
    X(densify)                                                                                     \
    X(select_index)                                                                                \
    X(select_rows)                                                                                 \
    X(select_rows_grad)                                                                            \
    X(slice_grad)                                                                                  \
    X(kv_append)                                                                                   \
    X(last_index)                                                                                  \
    X(positions)

enum { GPU_MOVE_RANK = 6 };

/* Copies a strided tensor in row-major order; strides in units. */
struct gpu_contiguous_args {
    const double *skip;
    const void *x;
    void *y;
    int64_t n; /* units */
    int64_t dims[GPU_MOVE_RANK], strides[GPU_MOVE_RANK];
    int rank, unit;
};
/* Copies row ids[t] - first of the table; NaN for an id out of range. A later tile leaves such a
 * row unchanged. */
struct gpu_embedding_args {
    const double *skip;
    const void *table;
    const int32_t *ids;
    void *y;
    int64_t n_tokens, n_rows, row_bytes, first;
    int later, unit;
    uint32_t other; /* for ids outside the table: 0, or NaN (two of 16 bits) */
};
/* Scatters rows [n] to index (ascending, then -1) of y [n_rows], zeros elsewhere. */
struct gpu_densify_args {
    const double *skip;
    const void *rows;
    const int32_t *index;
    void *y;
    int64_t n, n_rows, row_bytes;
    int unit;
};
/* Selects, of rows [n] at index, those from first to first + n_wanted - 1: y and y_index
 * [n_out]. */
struct gpu_select_index_args {
    const double *skip;
    const void *rows;
    const int32_t *index;
    void *y;
    int32_t *y_index;
    int64_t n, n_out, first, n_wanted, row_bytes;
    int unit;
};
/* x [batch, tokens, ..] -> row index[b] of each sample, clamped. */
struct gpu_select_rows_args {
    const double *skip;
    const void *x;
    const int32_t *index;
    void *y;
    int64_t batch, tokens, row_bytes;
    int unit;
};
/* dy [batch, width] to dx [batch, tokens, width] at index[b], clamped; zeros elsewhere. */
struct gpu_select_rows_grad_args {
    const double *skip;
    const void *dy;
    const int32_t *index;
    void *dx;
    int64_t batch, tokens, width;
    int out_type;
};
/* dx [outer, whole] is dy [outer, run] from `start` on, zeros elsewhere. */
struct gpu_slice_grad_args {
    const double *skip;
    const void *dy;
    void *dx;
    int64_t n, whole, run, start; /* n: elements of dx */
    int out_type;
};
/* Writes rows position .. position + tokens - 1 of the cache; strides in units. */
struct gpu_kv_append_args {
    const double *skip;
    const void *x;
    void *cache;
    const int32_t *position;
    int64_t batch, tokens, width, rows; /* width in units; rows: of the cache */
    int64_t x_strides[3], cache_strides[3];
    int unit;
};
/* Last t of ids [batch, tokens] that is not padding; 0 if all are. */
struct gpu_last_index_args {
    const double *skip;
    const int32_t *ids;
    int32_t *y;
    int64_t batch, tokens, padding; /* -1 = no padding */
    int is_value;                   /* finds the last that equals `padding` instead */
};
/* y = x + offset. counted: y = x times the sum of its row up to here, - 1 + offset. */
struct gpu_positions_args {
    const double *skip;
    const int32_t *x;
    int32_t *y;
    int64_t n_rows, width, offset;
    int counted;
};
