// SPDX-License-Identifier: Apache-2.0
// Output elements from the input elements at the same position. A thread takes packs of elements in
// a grid-stride loop.
#include "device/gpu/module/act.h"
#include "device/gpu/module/pack.h"
#include "device/gpu/module/philox.h"
#include "device/gpu/module/registry.h"

enum { THREADS = 256 };

/* fn: maps x [N_IN] to y [N_OUT] for each element. */
template <typename T, int N_IN, int N_OUT, typename Fn>
SW_DEVICE void map(const struct gpu_map_args &args, Fn fn)
{
    constexpr int N = pack_elems<T>;
    bool wide = true;
    for (int k = 0; k < N_IN; k++) {
        wide = wide && aligned(args.in[k]);
    }
    for (int k = 0; k < N_OUT; k++) {
        wide = wide && aligned(args.out[k]);
    }
    for (int64_t at = first_element() * N; at < args.n; at += grid_threads() * N) {
        const int n = args.n - at < N ? (int)(args.n - at) : N;
        float in[N_IN][N], out[N_OUT][N];
        SW_UNROLL
        for (int k = 0; k < N_IN; k++) {
            load_pack<N>((const T *)args.in[k], at, n, wide, in[k]);
        }
        SW_UNROLL
        for (int e = 0; e < N; e++) {
            float x[N_IN], y[N_OUT];
            SW_UNROLL
            for (int k = 0; k < N_IN; k++) {
                x[k] = in[k][e];
            }
            fn(x, y);
            SW_UNROLL
            for (int k = 0; k < N_OUT; k++) {
                out[k][e] = y[k];
            }
        }
        SW_UNROLL
        for (int k = 0; k < N_OUT; k++) {
            if (args.out[k]) {
                store_pack_any<N>(args.out[k], args.out_type, at, n, wide, out[k]);
            }
        }
    }
}

/* fn(a, b) of each element; b repeats every n_b elements. */
template <typename T, typename F>
SW_DEVICE void map_repeated(const struct gpu_map_args &args, const F &fn)
{
    constexpr int N = pack_elems<T>;
    const bool wide = aligned(args.in[0]) && aligned(args.in[1]) && aligned(args.out[0]);
    const bool wide_b = wide && args.n_b % N == 0;
    for (int64_t at = first_element() * N; at < args.n; at += grid_threads() * N) {
        const int n = args.n - at < N ? (int)(args.n - at) : N;
        const int64_t at_b = at - quotient(at, args.n_b) * args.n_b;
        float a[N], b[N];
        load_pack<N>((const T *)args.in[0], at, n, wide, a);
        if (wide_b) {
            load_pack<N>((const T *)args.in[1], at_b, N, true, b);
        }
        SW_UNROLL
        for (int e = 0; e < N; e++) {
            if (!wide_b) {
                const int64_t from = at_b + e < args.n_b ? at_b + e : (at_b + e) % args.n_b;
                b[e] = e < n ? load((const T *)args.in[1], from) : 0;
            }
            a[e] = fn(a[e], b[e]);
        }
        store_pack_any<N>(args.out[0], args.out_type, at, n, wide, a);
    }
}

template <typename T> SW_KERNEL(THREADS) void add(struct gpu_map_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    if (args.n_b < args.n) {
        map_repeated<T>(args, [](float a, float b) { return a + b; });
    } else {
        map<T, 2, 1>(args, [](const float *x, float *y) { *y = x[0] + x[1]; });
    }
}

template <typename T> SW_KERNEL(THREADS) void scale(struct gpu_map_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    map<T, 1, 1>(args, [&](const float *x, float *y) { *y = args.factor * *x; });
}

template <typename T> SW_KERNEL(THREADS) void cast(struct gpu_map_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    map<T, 1, 1>(args, [](const float *x, float *y) { *y = *x; });
}

template <typename T> SW_KERNEL(THREADS) void act(struct gpu_map_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    map<T, 1, 1>(args, [&](const float *x, float *y) { *y = activate(args.act, *x); });
}

/* Inputs: x, dy. */
template <typename T> SW_KERNEL(THREADS) void act_grad(struct gpu_map_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    map<T, 2, 1>(args,
                 [&](const float *x, float *y) { *y = x[1] * activate_slope(args.act, x[0]); });
}

template <typename T> SW_KERNEL(THREADS) void mul(struct gpu_map_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    if (args.n_b < args.n) {
        map_repeated<T>(args, [](float a, float b) { return a * b; });
    } else {
        map<T, 2, 1>(args, [](const float *x, float *y) { *y = x[0] * x[1]; });
    }
}

/* Inputs: gate, up. */
template <typename T> SW_KERNEL(THREADS) void gated_act(struct gpu_map_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    map<T, 2, 1>(args, [&](const float *x, float *y) { *y = activate(args.act, x[0]) * x[1]; });
}

/* Inputs: dy, gate, up. */
template <typename T> SW_KERNEL(THREADS) void gated_act_grad(struct gpu_map_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    map<T, 3, 2>(args, [&](const float *x, float *y) {
        y[0] = x[0] * x[2] * activate_slope(args.act, x[1]);
        y[1] = x[0] * activate(args.act, x[1]);
    });
}

/* A thread takes the four elements of one draw; parts consist of whole draws. */
template <typename T> SW_KERNEL(THREADS) void dropout(struct gpu_dropout_args args)
{
    enum { N = 4 };
    if (skipped(args.skip)) {
        return;
    }
    const T *x = (const T *)args.x;
    T *y = (T *)args.y;
    const bool wide = aligned(x) && aligned(y) && args.n % N == 0;
    const int64_t blocks = (args.n + N - 1) / N; /* draws per run */
    const struct draw first = draw_of(args.draw, 0);
    for (int64_t i = first_element(); i < blocks * args.runs; i += grid_threads()) {
        int64_t sample = quotient(i, blocks), block = i - sample * blocks;
        const int64_t at = sample * args.n + block * N;
        const int n = args.n - block * N < N ? (int)(args.n - block * N) : N;
        if (args.part > 0) {
            int64_t there = at / args.part * args.whole + args.first + at % args.part;
            if (args.outer_part > 0) {
                there = there / args.outer_part * args.outer_whole + args.outer_first +
                        there % args.outer_part;
            }
            sample = there / args.sample;
            block = there % args.sample / N;
        }
        struct draw draw = first;
        draw.sample += (uint64_t)sample;
        const struct philox_block words = draw_block(draw, (uint64_t)block);
        float value[N];
        load_pack<N>(x, at, n, wide, value);
        SW_UNROLL
        for (int e = 0; e < N; e++) {
            value[e] = words.words[e] >= draw.threshold ? value[e] * args.factor : 0;
        }
        store_pack<N>(y, at, n, wide, value);
    }
}

static const struct sw_gpu_kernel rows[] = {
    SW_FLOATS(add, THREADS),       SW_FLOATS(scale, THREADS),          SW_FLOATS(cast, THREADS),
    SW_FLOATS(act, THREADS),       SW_FLOATS(act_grad, THREADS),       SW_FLOATS(mul, THREADS),
    SW_FLOATS(gated_act, THREADS), SW_FLOATS(gated_act_grad, THREADS), SW_FLOATS(dropout, THREADS),
};
const struct sw_gpu_kernels sw_gpu_kernels_elementwise = {rows, SW_ROWS(rows)};
