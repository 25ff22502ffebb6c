// SPDX-License-Identifier: Apache-2.0
// streams - the gradient streams of one parameter, added up in their order.
#pragma once

#include "device/gpu/module/exact.h"
#include "device/gpu/module/run.h"

/* A kernel's argument in its original memory. For a struct indexed by a runtime value, AMD's
 * compiler would otherwise copy the struct to every thread's memory. */
template <typename A> SW_DEVICE const A &in_place(const A &args)
{
#if defined(__HIP_DEVICE_COMPILE__)
    (void)args;
    return *(const A *)__builtin_amdgcn_kernarg_segment_ptr();
#else
    return args;
#endif
}

/* The number of elements that a thread has from i on, of n in all. */
SW_DEVICE int part_of(int64_t i, int64_t n)
{
    return n - i < GPU_UPDATE_PART ? (int)(n - i) : (int)GPU_UPDATE_PART;
}

/* The item that owns this block: item k has the blocks from its first_block to the next item's. */
template <typename I> SW_DEVICE const I &item_of_block(const I *items, int n)
{
    int k = 0;
    while (k + 1 < n && block_x() >= items[k + 1].first_block) {
        k++;
    }
    return items[k];
}

/* Position of the first entry of an index that is at least `row`. The padding -1 after the last row
 * counts as such. */
SW_DEVICE int64_t lower_bound(const int32_t *index, int64_t n, int64_t row)
{
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if ((int64_t)(uint32_t)index[middle] < row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Bit e of *bad is set if a term of element e is not finite. */
template <int N>
SW_DEVICE void add_stream_rows(const struct gpu_stream &stream, int64_t width, int64_t start, int n,
                               float (&sum)[N], unsigned *bad)
{
    int64_t row = (stream.first + start) / width, column = (stream.first + start) % width;
    for (int done = 0; done < n; row++) {
        const int64_t left = width - column;
        const int end = left < n - done ? done + (int)left : n;
        const int64_t at = lower_bound(stream.index, stream.n_rows, row);
        if (at < stream.n_rows && stream.index[at] == row) {
            SW_UNROLL
            for (int e = 0; e < N; e++) {
                if (e >= done && e < end) {
                    const float g = load_any(stream.x, stream.type, at * width + column + e - done);
                    sum[e] += g;
                    *bad |= is_finite(g) ? 0u : 1u << e;
                }
            }
        }
        done = end;
        column = 0;
    }
}

/* s0 + s1 + .. for elements start .. start+n-1; absent rows add nothing. */
template <int N>
SW_DEVICE void add_streams(const struct gpu_streams &s, int64_t start, int n, float (&sum)[N],
                           unsigned *bad)
{
    *bad = 0;
    SW_UNROLL
    for (int e = 0; e < N; e++) {
        sum[e] = 0;
    }
    for (int k = 0; k < s.n; k++) {
        const struct gpu_stream &stream = s.stream[k];
        if (stream.index) {
            add_stream_rows(stream, s.row_elems, start, n, sum, bad);
            continue;
        }
        float g[N];
        load_run_any(stream.x, stream.type, stream.first + start, n, g);
        SW_UNROLL
        for (int e = 0; e < N; e++) {
            sum[e] = k == 0 ? g[e] : sum[e] + g[e];
            *bad |= is_finite(g[e]) ? 0u : 1u << e;
        }
    }
}
