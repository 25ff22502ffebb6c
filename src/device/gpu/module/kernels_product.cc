// SPDX-License-Identifier: Apache-2.0
// Products of matrices, for machines without a library of them: a tile of the result a block, its
// operands passed through shared memory; every output is one sum over k in order. And what follows
// a product: sums over pieces, bias, activation, rounding.
#include "device/gpu/module/act.h"
#include "device/gpu/module/registry.h"

enum { THREADS = 256, TILE = SW_GPU_PRODUCT_TILE, DEPTH = 16, EACH = 4, WIDE = TILE + 1 };

struct product_tiles {
    float a[DEPTH][WIDE], b[DEPTH][WIDE];
};

/* Columns k .. k + DEPTH of TILE rows of an operand, zeros beyond its end. Neighbouring threads
 * take what lies together. */
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
    if (args.skip && *args.skip != 0) {
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
            for (int i = 0; i < EACH; i++) {
                for (int j = 0; j < EACH; j++) {
                    sum[i][j] = fmaf(s.a[kk][y + i], s.b[kk][x + j * (TILE / EACH)], sum[i][j]);
                }
            }
        }
        sync_block();
    }
    for (int i = 0; i < EACH; i++) {
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

template <typename T> SW_KERNEL(THREADS) void product_finish(struct gpu_product_finish_args args)
{
    if (args.skip && *args.skip != 0) {
        return;
    }
    const int64_t across = (args.columns + SW_GPU_FINISH_COLUMNS - 1) / SW_GPU_FINISH_COLUMNS;
    const int64_t row = block_x() / across;
    const int64_t first = block_x() % across * SW_GPU_FINISH_COLUMNS;
    for (int e = 0; e < SW_GPU_FINISH_COLUMNS; e += THREADS) {
        const int64_t column = first + e + thread_index();
        if (column < args.columns) {
            float y = load_any(args.part, args.part_type, row * args.ld_part + column);
            if (args.x) {
                y = args.x[row * args.ld_x + column] + y;
            }
            if (args.bias) {
                y += load_any(args.bias, args.bias_type, column);
            }
            const int64_t at = row * args.ld_out + column;
            if (args.pre) {
                store((T *)args.pre, at, y);
            }
            store((T *)args.out, at, activate(args.act, y));
        }
    }
}

static const struct sw_gpu_kernel rows[] = {SW_FLOATS(product, THREADS),
                                            SW_FLOATS(product_finish, THREADS)};
extern const struct sw_gpu_kernels sw_gpu_kernels_product;
const struct sw_gpu_kernels sw_gpu_kernels_product = {rows, SW_ROWS(rows)};
