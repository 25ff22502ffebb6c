// SPDX-License-Identifier: Apache-2.0
// Matrix products without a library: one block per tile of the result, with operands passed through
// shared memory. Every output is one sum over k in order. Also the finishing of a product: sums
// over pieces, bias, activation, rounding.
#include "device/gpu/module/act.h"
#include "device/gpu/module/pack.h"
#include "device/gpu/module/registry.h"

enum { THREADS = 256, TILE = SW_GPU_PRODUCT_TILE, DEPTH = 16, EACH = 4, WIDE = TILE + 1 };

struct product_tiles {
    float a[DEPTH][WIDE], b[DEPTH][WIDE];
};

/* Loads columns k .. k + DEPTH of TILE rows of an operand, with zeros beyond its end. Neighbouring
 * threads read neighbouring elements. */
template <typename T>
SW_DEVICE void fetch(float (&to)[DEPTH][WIDE], const T *x, int64_t first, int64_t n, int64_t k,
                     int64_t n_k, int64_t outer, int64_t inner)
{
    for (int e = thread_index(); e < TILE * DEPTH; e += THREADS) {
        const int i = inner == 1 ? e / DEPTH : e % TILE, kk = inner == 1 ? e % DEPTH : e / TILE;
        const bool is_there = first + i < n && k + kk < n_k;
        to[kk][i] = is_there ? load(x, (first + i) * outer + (k + kk) * inner) : 0.0f;
    }
}

template <typename T> SW_KERNEL(THREADS) void product(struct gpu_product_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    SW_SHARED(struct product_tiles, s);
    const int64_t across = (args.n + TILE - 1) / TILE;
    const int64_t row = block_x() / across * TILE, column = block_x() % across * TILE;
    const int y = thread_index() / (TILE / EACH) * EACH, x = thread_index() % (TILE / EACH);
    float sum[EACH][EACH] = {};
    for (int64_t k = 0; k < args.k; k += DEPTH) {
        fetch(s.a, (const T *)args.a, row, args.m, k, args.k, args.a_outer, args.a_inner);
        fetch(s.b, (const T *)args.b, column, args.n, k, args.k, args.b_outer, args.b_inner);
        sync_block();
        for (int kk = 0; kk < DEPTH; kk++) {
            SW_UNROLL
            for (int i = 0; i < EACH; i++) {
                SW_UNROLL
                for (int j = 0; j < EACH; j++) {
                    sum[i][j] = fmaf(s.a[kk][y + i], s.b[kk][x + j * (TILE / EACH)], sum[i][j]);
                }
            }
        }
        sync_block();
    }
    SW_UNROLL
    for (int i = 0; i < EACH; i++) {
        SW_UNROLL
        for (int j = 0; j < EACH; j++) {
            const int64_t at_row = row + y + i, at_column = column + x + j * (TILE / EACH);
            if (at_row < args.m && at_column < args.n) {
                const float bias = args.bias ? load_any(args.bias, args.out_type, at_column) : 0.0f;
                store_any(args.d, args.out_type, at_row * args.ldd + at_column,
                          args.bias ? sum[i][j] + bias : sum[i][j]);
            }
        }
    }
}

template <int N>
SW_DEVICE void load_pack_any(const void *x, int type, int64_t i, int n, bool wide, float *out)
{
    if (type == SW_GPU_F32) {
        load_pack<N>((const float *)x, i, n, wide, out);
    } else if (type == SW_GPU_BF16) {
        load_pack<N>((const bf16 *)x, i, n, wide, out);
    } else {
        load_pack<N>((const f16 *)x, i, n, wide, out);
    }
}

/* A thread takes packs of a row. */
template <typename T> SW_KERNEL(THREADS) void product_finish(struct gpu_product_finish_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    constexpr int N = pack_elems<T>;
    const bool wide = aligned(args.part) && aligned(args.out) && aligned(args.pre) &&
                      aligned(args.x) && aligned(args.bias) && args.ld_part % N == 0 &&
                      args.ld_out % N == 0 && args.ld_x % N == 0;
    const int64_t per_row = (args.columns + N - 1) / N;
    for (int64_t i = first_element(); i < args.rows * per_row; i += grid_threads()) {
        const int64_t row = quotient(i, per_row), column = (i - row * per_row) * N;
        const int n = args.columns - column < N ? (int)(args.columns - column) : N;
        float y[N], more[N];
        load_pack_any<N>(args.part, args.part_type, row * args.ld_part + column, n, wide, y);
        if (args.x) {
            load_pack<N>(args.x, row * args.ld_x + column, n, wide, more);
            SW_UNROLL
            for (int e = 0; e < N; e++) {
                y[e] = more[e] + y[e];
            }
        }
        if (args.bias) {
            load_pack_any<N>(args.bias, args.bias_type, column, n, wide, more);
            SW_UNROLL
            for (int e = 0; e < N; e++) {
                y[e] += more[e];
            }
        }
        const int64_t at = row * args.ld_out + column;
        if (args.pre) {
            store_pack<N>((T *)args.pre, at, n, wide, y);
        }
        SW_UNROLL
        for (int e = 0; e < N; e++) {
            y[e] = activate(args.act, y[e]);
        }
        store_pack<N>((T *)args.out, at, n, wide, y);
    }
}

static const struct sw_gpu_kernel rows[] = {SW_FLOATS(product, THREADS),
                                            SW_FLOATS(product_finish, THREADS)};
const struct sw_gpu_kernels sw_gpu_kernels_product = {rows, SW_ROWS(rows)};
