// SPDX-License-Identifier: Apache-2.0
// Sums of slices in a fixed order: the definition of the canonical sum over ranks. Host and devices
// give exactly these bits when they add the ranks' slices.
#include <string.h>

#include "tensor/tensor.h"

static void add_slice(float *acc, enum sw_dtype dtype, const void *addend, int64_t n, bool first)
{
    if (first) {
        sw_convert(SW_F32, acc, dtype, addend, n);
        return;
    }
    switch (dtype) {
    case SW_F32: {
        const float *x = addend;
        for (int64_t i = 0; i < n; i++) {
            acc[i] += x[i];
        }
        break;
    }
    case SW_BF16: {
        const uint16_t *x = addend;
        for (int64_t i = 0; i < n; i++) {
            acc[i] += sw_bf16_to_f32(x[i]);
        }
        break;
    }
    default: {
        const uint16_t *x = addend;
        for (int64_t i = 0; i < n; i++) {
            acc[i] += sw_f16_to_f32(x[i]);
        }
        break;
    }
    }
}

void sw_add_slices(float *acc, enum sw_dtype dtype, const void *slices, int64_t n, int n_slices,
                   bool fresh)
{
    const size_t slice_bytes = (size_t)n * sw_dtype_bytes(dtype);
    for (int k = 0; k < n_slices; k++) {
        add_slice(acc, dtype, (const char *)slices + (size_t)k * slice_bytes, n, fresh && k == 0);
    }
}

/* ---- slices given by their rows ---- */

struct part { /* part of a row, within the slice */
    int64_t at, n, skip;
};

static struct part part_of_row(int64_t row, int64_t width, int64_t first, int64_t n)
{
    const int64_t begin = row * width - first, end = begin + width;
    const int64_t from = sw_max_i64(begin, 0), to = sw_min_i64(end, n);
    return (struct part){from, to - from, from - begin};
}

int64_t sw_first_row(const int32_t *index, int64_t n, int64_t row)
{
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (index[middle] >= 0 && index[middle] < row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool has_row(const int32_t *index, int64_t n_rows, int64_t row)
{
    const int64_t at = sw_first_row(index, n_rows, row);
    return at < n_rows && index[at] == row;
}

/* An absent row adds +0, which turns -0 into +0 and changes nothing else. */
static void add_zeros(float *acc, const struct sw_row_slice *slices, int64_t n_rows, int64_t width,
                      int64_t first, int64_t n, int n_slices)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &acc[i], sizeof bits);
        for (int k = 0; k < n_slices && bits == 0x80000000u; k++) {
            bits = has_row(slices[k].index, n_rows, (first + i) / width) ? bits : 0;
        }
        memcpy(&acc[i], &bits, sizeof bits);
    }
}

void sw_add_rows(float *acc, enum sw_dtype dtype, const struct sw_row_slice *slices, int64_t n_rows,
                 int64_t width, int64_t first, int64_t n, int n_slices, bool fresh)
{
    if (fresh) {
        memset(acc, 0, (size_t)n * sizeof *acc);
    }
    for (int k = 0; k < n_slices; k++) {
        for (int64_t i = 0; i < n_rows && slices[k].index[i] >= 0; i++) {
            const struct part part = part_of_row(slices[k].index[i], width, first, n);
            if (part.n > 0) {
                const size_t at = (size_t)(i * width + part.skip) * sw_dtype_bytes(dtype);
                add_slice(acc + part.at, dtype, (const char *)slices[k].rows + at, part.n,
                          fresh && k == 0);
            }
        }
    }
    if (n_slices > 0) {
        add_zeros(acc, slices, n_rows, width, first, n, n_slices);
    }
}
