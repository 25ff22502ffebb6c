// SPDX-License-Identifier: Apache-2.0
// Shapes: plain values and checked products.
#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdio.h>

struct sw_shape sw_shape_of(int rank, const int64_t *dims)
{
    SW_ASSERT(rank >= 0 && rank <= SW_MAX_RANK);
    struct sw_shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++) {
        shape.dims[i] = dims[i];
    }
    return shape;
}

bool sw_shape_equal(const struct sw_shape *a, const struct sw_shape *b)
{
    bool equal = a->rank == b->rank;
    for (int i = 0; equal && i < a->rank; i++) {
        equal = a->dims[i] == b->dims[i];
    }
    return equal;
}

int64_t sw_shape_elems(const struct sw_shape *shape)
{
    return sw_shape_rows(shape) * sw_shape_last(shape);
}

size_t sw_shape_bytes(const struct sw_shape *shape, enum sw_dtype dtype)
{
    return (size_t)sw_shape_elems(shape) * sw_dtype_bytes(dtype);
}

void sw_shape_row_major(const struct sw_shape *shape, int64_t strides[SW_MAX_RANK])
{
    int64_t stride = 1;
    for (int d = shape->rank - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= shape->dims[d];
    }
}

int64_t sw_shape_rows(const struct sw_shape *shape)
{
    int64_t rows = 1;
    for (int i = 0; i + 1 < shape->rank; i++) {
        rows *= shape->dims[i];
    }
    return rows;
}

int64_t sw_shape_last(const struct sw_shape *shape)
{
    return shape->rank > 0 ? shape->dims[shape->rank - 1] : 1;
}

/* The product must also fit if another dim is 0, so that partial products fit in any order. */
bool sw_shape_check(const struct sw_shape *shape, size_t elem_bytes)
{
    if (shape->rank < 0 || shape->rank > SW_MAX_RANK || elem_bytes > INT64_MAX) {
        return false;
    }
    int64_t bytes = (int64_t)elem_bytes;
    for (int i = 0; i < shape->rank; i++) {
        const int64_t dim = shape->dims[i];
        if (dim < 0 || !sw_mul_i64(bytes, dim ? dim : 1, &bytes)) {
            return false;
        }
    }
    return true;
}

const char *sw_shape_format(const struct sw_shape *shape, char *buf, size_t cap)
{
    size_t len = 0;
    for (int i = 0; i < shape->rank && len < cap; i++) {
        len += (size_t)snprintf(buf + len, cap - len, "%s%" PRId64, i ? ", " : "[", shape->dims[i]);
    }
    if (len < cap) {
        snprintf(buf + len, cap - len, "%s", shape->rank > 0 ? "]" : "[]");
    }
    return buf;
}
