// SPDX-License-Identifier: Apache-2.0
// Element types, shapes and views. They are plain values; all zero is a valid empty value.
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

/* dims[0] varies slowest. Rank 0 is a scalar of one element. */
struct sw_shape {
    int rank;
    int64_t dims[SW_MAX_RANK];
};

/* A view of a tensor; borrows data. Strides are in elements, and row-major unless stated
 * otherwise. */
struct sw_view {
    void *data;
    enum sw_dtype dtype;
    struct sw_shape shape;
    int64_t strides[SW_MAX_RANK];
};

/*
 * How a parameter is split over ranks for tensor parallelism. It is split along one dimension. The
 * dimension consists of groups, and each group is split separately at multiples of a unit. Columns,
 * rows and a vocabulary are one group. Packed q, k and v are three. The unit of heads is their
 * width. If the groups are shorter than the dimension, they repeat, as the queries, the key and the
 * value of each key head do. A group with fewer units than ranks is shared: consecutive ranks have
 * the same unit. All zero: the parameter is not split, and every rank has all of it.
 */
enum { SW_SPLIT_MAX_GROUPS = 4 };
struct sw_tensor_split {
    int dim;
    int n_groups;
    int64_t
        group[SW_SPLIT_MAX_GROUPS]; /* lengths of the groups; their sum divides the length of dim */
    int64_t unit;                   /* 0 = 1 */
};

#ifdef __cplusplus
}
#endif
