// SPDX-License-Identifier: Apache-2.0
// run - N consecutive elements that a thread has in registers. If all of them are in range and
// aligned, loads are up to 16 bytes wide, else single elements; the values are the same.
#pragma once

#include <string.h>

#include "device/gpu/module/types.h"

template <int BYTES> struct __attribute__((may_alias)) run_chunk {
    alignas(BYTES) uint32_t words[BYTES / 4];
};

template <int N, typename T> SW_DEVICE bool run_is_wide(const T *x, int n)
{
    constexpr int bytes = N * (int)sizeof(T), step = bytes < 16 ? bytes : 16;
    return n >= N && (uintptr_t)x % step == 0;
}

/* The first n of N elements at x; the others are 0. */
template <int N, typename T> SW_DEVICE void fetch_run(const T *x, int n, T (&out)[N])
{
    constexpr int bytes = N * (int)sizeof(T), step = bytes < 16 ? bytes : 16;
    if (run_is_wide<N>(x, n)) {
        SW_UNROLL
        for (int i = 0; i < bytes / step; i++) {
            const run_chunk<step> chunk = ((const run_chunk<step> *)x)[i];
            memcpy((char *)out + i * step, &chunk, step);
        }
    } else {
        SW_UNROLL
        for (int e = 0; e < N; e++) {
            out[e] = T{};
            if (e < n) {
                out[e] = x[e];
            }
        }
    }
}
template <typename T> SW_DEVICE void fetch_run(const T *x, int n, T (&out)[1])
{
    out[0] = T{};
    if (n > 0) {
        out[0] = x[0];
    }
}
template <int N, typename T> SW_DEVICE void put_run(T *x, int n, const T (&in)[N])
{
    constexpr int bytes = N * (int)sizeof(T), step = bytes < 16 ? bytes : 16;
    if (run_is_wide<N>(x, n)) {
        SW_UNROLL
        for (int i = 0; i < bytes / step; i++) {
            run_chunk<step> chunk;
            memcpy(&chunk, (const char *)in + i * step, step);
            ((run_chunk<step> *)x)[i] = chunk;
        }
    } else {
        SW_UNROLL
        for (int e = 0; e < N; e++) {
            if (e < n) {
                x[e] = in[e];
            }
        }
    }
}

/* Loads as fp32. */
template <int N, typename T> SW_DEVICE void load_run(const T *x, int n, float (&out)[N])
{
    T raw[N];
    fetch_run(x, n, raw);
    SW_UNROLL
    for (int e = 0; e < N; e++) {
        out[e] = to_f32(raw[e]);
    }
}
template <int N, typename T> SW_DEVICE void store_run(T *x, int n, const float (&in)[N])
{
    T raw[N];
    SW_UNROLL
    for (int e = 0; e < N; e++) {
        raw[e] = round_to<T>(in[e]);
    }
    put_run(x, n, raw);
}
template <int N>
SW_DEVICE void load_run_any(const void *x, int type, int64_t i, int n, float (&out)[N])
{
    if (type == SW_GPU_F32) {
        load_run((const float *)x + i, n, out);
    } else if (type == SW_GPU_BF16) {
        load_run((const bf16 *)x + i, n, out);
    } else {
        load_run((const f16 *)x + i, n, out);
    }
}
