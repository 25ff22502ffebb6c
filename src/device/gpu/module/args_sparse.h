// SPDX-License-Identifier: Apache-2.0
// args_sparse - the gradient of a lookup table: its used rows, each a sum over tokens. Keys are id
// << 32 | token, or all ones for a token that is ignored. Sorting brings the tokens of a row
// together, in their order. The number of keys is a power of two, at least a tile.
#pragma once

#include <stdint.h>

#define SW_GPU_SPARSE_KERNELS(X)                                                                   \
    X(sort_tiles)                                                                                  \
    X(merge_far)                                                                                   \
    X(merge_near)                                                                                  \
    X(count_rows)                                                                                  \
    X(number_rows)                                                                                 \
    X(sum_tokens)

enum { GPU_SORT_TILE = 2048 };

/* Makes the keys and sorts tiles of them, alternately ascending and descending. */
struct gpu_sort_tiles_args {
    const double *skip;
    const int32_t *ids;
    uint64_t *keys; /* [n_keys] */
    int64_t n_tokens, padding;
};
/* A bitonic merge into runs of `run` keys: the step with this distance, or all steps within a
 * tile. */
struct gpu_merge_args {
    const double *skip;
    uint64_t *keys;
    int64_t n_keys, run, distance;
};
/* counts [n_tiles]: rows that begin in a tile; starts: offset of each row's first key, and the end;
 * n_rows [1]. */
struct gpu_number_rows_args {
    const double *skip;
    const uint64_t *keys;
    int32_t *counts, *starts, *n_rows;
    int64_t n_keys;
};
struct gpu_sum_tokens_args {
    const double *skip;
    const uint64_t *keys;
    const int32_t *starts, *n_rows;
    const void *dy;
    void *rows;
    int32_t *index;
    int64_t n_out, width;
    int out_type;
};
