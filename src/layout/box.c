// SPDX-License-Identifier: Apache-2.0
// Arithmetic of boxes, which are n-dimensional ranges of a row-major tensor.
#include "layout/layout.h"

#include <stdio.h>

struct sw_box sw_box_whole(const struct sw_shape *shape)
{
    struct sw_box box = {0};
    for (int d = 0; d < shape->rank; d++) {
        box.dims[d] = shape->dims[d];
    }
    return box;
}

int64_t sw_box_elems(int rank, const struct sw_box *box)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++) {
        n *= box->dims[d];
    }
    return n;
}

/* A box of `count` steps along dim d, starting at element `index`; it covers all later dims. */
static struct sw_box slab(const struct sw_shape *shape, const int64_t *index, int d, int64_t count)
{
    struct sw_box box = sw_box_whole(shape);
    for (int i = 0; i < d; i++) {
        box.start[i] = index[i];
        box.dims[i] = 1;
    }
    box.start[d] = index[d];
    box.dims[d] = count;
    return box;
}

/* Greedy: from the current element, takes as many steps as fit along the slowest dim that starts
 * there. Steps grow up to the slowest dim that the range needs, and then shrink. So there are at
 * most two boxes per dim. */
int sw_box_of_range(const struct sw_shape *shape, int64_t first, int64_t n,
                    struct sw_box out[SW_BOX_MAX_OF_RANGE])
{
    SW_ASSERT(first >= 0 && n >= 0 && first + n <= sw_shape_elems(shape));
    if (n == 0) {
        return 0;
    }
    if (shape->rank == 0) {
        out[0] = (struct sw_box){0};
        return 1;
    }
    int64_t stride[SW_MAX_RANK];
    for (int d = shape->rank - 1; d >= 0; d--) {
        stride[d] = d == shape->rank - 1 ? 1 : stride[d + 1] * shape->dims[d + 1];
    }
    int n_boxes = 0;
    const int64_t end = first + n;
    while (first < end) {
        int64_t index[SW_MAX_RANK];
        for (int d = 0; d < shape->rank; d++) {
            index[d] = first / stride[d] % shape->dims[d];
        }
        int d = shape->rank - 1;
        while (d > 0 && first % stride[d - 1] == 0 && first + stride[d - 1] <= end) {
            d--;
        }
        const int64_t count = sw_min_i64((end - first) / stride[d], shape->dims[d] - index[d]);
        out[n_boxes++] = slab(shape, index, d, count);
        first += count * stride[d];
    }
    return n_boxes;
}

bool sw_box_common(int rank, const struct sw_box *a, const struct sw_box *b, struct sw_box *out)
{
    struct sw_box common = {0};
    for (int d = 0; d < rank; d++) {
        const int64_t start = sw_max_i64(a->start[d], b->start[d]);
        const int64_t end = sw_min_i64(a->start[d] + a->dims[d], b->start[d] + b->dims[d]);
        if (start >= end) {
            return false;
        }
        common.start[d] = start;
        common.dims[d] = end - start;
    }
    *out = common;
    return true;
}

bool sw_box_inside(const struct sw_shape *shape, const struct sw_box *box)
{
    for (int d = 0; d < shape->rank; d++) {
        if (box->start[d] < 0 || box->dims[d] < 0 || box->start[d] > shape->dims[d] ||
            box->dims[d] > shape->dims[d] - box->start[d]) {
            return false;
        }
    }
    return true;
}

const char *sw_box_format(int rank, const struct sw_box *box, char *buf, size_t cap)
{
    size_t len = 0;
    for (int d = 0; d < rank && len < cap; d++) {
        len +=
            (size_t)snprintf(buf + len, cap - len, "%c%lld:%lld", d ? ',' : '[',
                             (long long)box->start[d], (long long)(box->start[d] + box->dims[d]));
    }
    if (len < cap) {
        snprintf(buf + len, cap - len, "%s", rank ? "]" : "[]");
    }
    return buf;
}
