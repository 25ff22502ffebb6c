// SPDX-License-Identifier: Apache-2.0
// Rotary positions. A position outside the table gives NaN and reads nothing.
#include "device/gpu/module/pack.h"
#include "device/gpu/module/registry.h"

enum { THREADS = 256 };

/* One head of one token. */
template <typename T> struct head {
    const T *x;
    T *y;
    const float *cosines, *sines; /* NULL: position outside the table */
    int64_t half;
    bool interleaved, inverse;
};

/* Rotates pairs i .. i + N - 1. */
template <int N, typename T> SW_DEVICE void turn(const struct head<T> &h, int64_t i)
{
    const bool wide = N > 1;
    float c[N], s[N], a[N], b[N], both[2 * N];
    load_pack<N>(h.cosines, i, h.cosines ? N : 0, wide, c);
    load_pack<N>(h.sines, i, h.cosines ? N : 0, wide, s);
    if (h.interleaved) {
        load_pack<2 * N>(h.x, 2 * i, 2 * N, wide, both);
    } else {
        load_pack<N>(h.x, i, N, wide, a);
        load_pack<N>(h.x, h.half + i, N, wide, b);
    }
    SW_UNROLL
    for (int e = 0; e < N; e++) {
        const float p = h.interleaved ? both[2 * e] : a[e];
        const float q = h.interleaved ? both[2 * e + 1] : b[e];
        const float cosine = h.cosines ? c[e] : NAN;
        const float sine = !h.cosines ? NAN : h.inverse ? -s[e] : s[e];
        a[e] = p * cosine - q * sine;
        b[e] = q * cosine + p * sine;
        both[2 * e] = a[e];
        both[2 * e + 1] = b[e];
    }
    if (h.interleaved) {
        store_pack<2 * N>(h.y, 2 * i, 2 * N, wide, both);
    } else {
        store_pack<N>(h.y, i, N, wide, a);
        store_pack<N>(h.y, h.half + i, N, wide, b);
    }
}

/* A thread takes N pairs, or as many of the elements that are only copied. */
template <int N, typename T> SW_DEVICE void turn_all(const struct gpu_rotary_args &args)
{
    const int64_t pairs = args.half / N, per_head = pairs + (args.width - 2 * args.half) / N;
    const int64_t n = args.batch * args.tokens * args.heads * per_head;
    for (int64_t at = first_element(); at < n; at += grid_threads()) {
        const int64_t i_head = quotient(at, per_head), k = at - i_head * per_head;
        const int64_t token = quotient(i_head, args.heads), sample = quotient(token, args.tokens);
        const int64_t t = token - sample * args.tokens;
        struct head<T> h;
        h.x = (const T *)args.x + sample * args.strides[0] + t * args.strides[1] +
              (i_head - token * args.heads) * args.strides[2];
        h.y = (T *)args.y + i_head * args.width;
        h.half = args.half;
        h.interleaved = args.interleaved != 0;
        h.inverse = args.inverse != 0;
        if (k < pairs) {
            const int64_t p = args.positions[args.by_sample ? token : t];
            const bool known = p >= 0 && p < args.n_positions;
            h.cosines = known ? args.table + p * 2 * args.half : nullptr;
            h.sines = known ? h.cosines + args.half : nullptr;
            turn<N>(h, k * N);
        } else {
            const int64_t i = 2 * args.half + (k - pairs) * N;
            float values[N];
            load_pack<N>(h.x, i, N, N > 1, values);
            store_pack<N>(h.y, i, N, N > 1, values);
        }
    }
}

template <typename T> SW_KERNEL(THREADS) void rotary(struct gpu_rotary_args args)
{
    constexpr int N = pack_elems<T>;
    if (skipped(args.skip)) {
        return;
    }
    const int64_t all = args.half | (args.width - 2 * args.half) | args.strides[0] |
                        args.strides[1] | args.strides[2];
    if (all % N == 0 && aligned(args.x) && aligned(args.y) && aligned(args.table)) {
        turn_all<N, T>(args);
    } else {
        turn_all<1, T>(args);
    }
}

static const struct sw_gpu_kernel rows[] = {SW_FLOATS(rotary, THREADS)};
const struct sw_gpu_kernels sw_gpu_kernels_rotary = {rows, SW_ROWS(rows)};
