// SPDX-License-Identifier: Apache-2.0
// Element types, shapes and views: plain values, all zero is a legal empty one.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SW_MAX_RANK = 6 };

enum sw_dtype {
    SW_F32,
    SW_F64,
    SW_BF16,
    SW_F16,
    SW_I8,
    SW_U8,
    SW_I16,
    SW_U16,
    SW_I32,
    SW_U32,
    SW_I64,
    SW_U64,
    SW_BOOL,
    SW_DTYPE_COUNT
};

/* dims[0] is the slowest. Rank 0 is a scalar of one element. */
struct sw_shape {
    int rank;
    int64_t dims[SW_MAX_RANK];
};

/* A tensor somewhere: strides in elements; row-major unless said otherwise. Borrows data. */
struct sw_view {
    void *data;
    enum sw_dtype dtype;
    struct sw_shape shape;
    int64_t strides[SW_MAX_RANK];
};

/*
 * How a parameter is cut for ranks that compute with parts of it (tensor parallelism): along one
 * dimension, which consists of groups that are each cut alone, at multiples of a unit. Columns,
 * rows and a vocabulary are one group; q, k and v side by side are three; heads have their width as
 * unit. All zeros: it is not cut, every rank has all of it.
 */
enum { SW_SPLIT_MAX_GROUPS = 4 };
struct sw_tensor_split {
    int dim;
    int n_groups;
    int64_t group[SW_SPLIT_MAX_GROUPS]; /* lengths along dim, which they add up to */
    int64_t unit;                       /* 0 counts as 1 */
};

#ifdef __cplusplus
}
#endif
