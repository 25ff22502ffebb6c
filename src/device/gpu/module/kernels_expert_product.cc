// SPDX-License-Identifier: Apache-2.0
// Products of the rows of experts, whose number only the device knows. A block computes a tile of
// one expert's product; the grid has blocks for the most tiles that there can be, and those without
// a tile end at once. 16-bit operands use matrix units. Every output is one sum in order.
#include "device/gpu/module/mma.h"
#include "device/gpu/module/registry.h"
#include "device/gpu/module/run.h"

enum { THREADS = 256, WARPS = THREADS / SW_WARP, TILE = GPU_EXPERT_TILE, DEPTH = 32, MMA = 16 };
/* Elements of a line of shared memory: of a tile's row, or of all its rows at one depth. */
enum { ALONG = DEPTH + 8, ACROSS = TILE + 8, SHARED = TILE * ALONG };
static_assert(SHARED >= DEPTH * ACROSS, "both forms fit");
/* Tiles of matrix units: a warp has EACH of them side by side. */
enum { SIDE = TILE / MMA, EACH = SIDE * SIDE / WARPS };

template <typename T> struct product_shared {
    alignas(16) T a[SHARED];
    alignas(16) T b[SHARED];
};

/* n rows of an operand: element (i, k) is at i ld + k, or if it is deep, at k ld + i. */
template <typename T> struct operand {
    const T *x;
    int64_t n, ld;
    bool deep;
};

/* Brings rows first .. of an operand at depths k .. of n_k, with zeros beyond its end. */
template <typename T>
SW_DEVICE void bring(T *to, const struct operand<T> &from, int64_t first, int64_t k, int64_t n_k)
{
    constexpr int N = 16 / (int)sizeof(T);
    const int per_line = (from.deep ? TILE : DEPTH) / N, ld = from.deep ? ACROSS : ALONG;
    const int64_t n_lines = from.deep ? n_k - k : from.n - first;
    const int64_t width = from.deep ? from.n - first : n_k - k;
    const T *x = from.x + (from.deep ? k * from.ld + first : first * from.ld + k);
    for (int i = thread_index(); i < TILE * DEPTH / N; i += THREADS) {
        const int line = i / per_line, at = i % per_line * N;
        const int64_t left = line < n_lines ? width - at : 0;
        T values[N];
        fetch_run(x + line * from.ld + at, left < 0 ? 0 : left < N ? (int)left : N, values);
        put_run(to + line * ld + at, N, values);
    }
}

/* Rows i .. i + 15 at depths k .. k + 15 of what was brought. */
template <typename T>
SW_DEVICE typename mma<T>::tile_a left_tile(const T *shared, bool deep, int i, int k)
{
    return deep ? mma<T>::load_cols(shared + k * ACROSS + i, ACROSS)
                : mma<T>::load_rows(shared + i * ALONG + k, ALONG);
}
SW_DEVICE mma<float>::tile_a left_tile(const float *shared, bool deep, int i, int k)
{
    mma<float>::tile_a tile = mma<float>::load_a(shared + i * ALONG + k, ALONG);
    SW_UNROLL
    for (int slot = 0; slot < MMA_ROWS && deep; slot++) {
        tile.rows[slot] = shared + k * ACROSS + i + mma_row(lane_index(), 2 * slot);
    }
    tile.step = deep ? ACROSS : 1;
    return tile;
}
template <typename T>
SW_DEVICE typename mma<T>::tile_b right_tile(const T *shared, bool deep, int i, int k)
{
    return deep ? mma<T>::load_cols(shared + k * ACROSS + i, ACROSS)
                : mma<T>::load_rows(shared + i * ALONG + k, ALONG);
}

/* Where a block's tile goes. */
struct product_result {
    void *d;          /* [a.n, columns] of `type` */
    const void *bias; /* [columns] or NULL */
    int64_t columns;
    int type, bias_type;
};

/* The tile from (row, column) on of d = a b + bias. All threads of a block. */
template <typename T>
SW_DEVICE void multiply(struct product_shared<T> &s, const struct operand<T> &a,
                        const struct operand<T> &b, int64_t depth, int64_t row, int64_t column,
                        const struct product_result &to)
{
    float sums[EACH][MMA_ELEMS] = {};
    const int y = warp_index() % SIDE * MMA, x = warp_index() / SIDE * EACH * MMA;
    for (int64_t k = 0; k < depth; k += DEPTH) {
        bring(s.a, a, row, k, depth);
        bring(s.b, b, column, k, depth);
        sync_block();
        SW_UNROLL
        for (int at = 0; at < DEPTH; at += MMA) {
            const typename mma<T>::tile_a left = left_tile(s.a, a.deep, y, at);
            SW_UNROLL
            for (int j = 0; j < EACH; j++) {
                mma<T>::multiply(sums[j], left, right_tile(s.b, b.deep, x + j * MMA, at));
            }
        }
        sync_block();
    }
    const int lane = lane_index();
    SW_UNROLL
    for (int j = 0; j < EACH; j++) {
        SW_UNROLL
        for (int e = 0; e < MMA_ELEMS; e++) {
            const int64_t r = row + y + mma_row(lane, e);
            const int64_t c = column + x + j * MMA + mma_col(lane, e);
            if (r < a.n && c < to.columns) {
                const float bias = to.bias ? load_any(to.bias, to.bias_type, c) : 0;
                store_any(to.d, to.type, r * to.columns + c, sums[j][e] + bias);
            }
        }
    }
}

template <typename T> SW_KERNEL(THREADS) void expert_product(struct gpu_expert_product_args args)
{
    SW_SHARED(struct product_shared<T>, s);
    if (skipped(args.skip)) {
        return;
    }
    const int64_t across = (args.columns + TILE - 1) / TILE;
    int64_t tile = quotient(block_x(), across), e = 0, rows = 0;
    const int64_t column = (block_x() - tile * across) * TILE;
    const int32_t *offsets = args.offsets + block_y() * args.stride;
    for (; e < args.n; e++) {
        rows = offsets[e + 1] - offsets[e];
        const int64_t tiles = (rows + TILE - 1) / TILE;
        if (tile < tiles) {
            break;
        }
        tile -= tiles;
    }
    if (e == args.n) {
        return;
    }
    const int64_t first = block_y() * args.rows + offsets[e];
    const int64_t depth = args.depth, columns = args.columns;
    const int elem_bytes = args.out_type == SW_GPU_F32 ? 4 : 2;
    const struct operand<T> a = {
        (const T *)args.a + first *depth, rows, depth, false
    };
    const struct operand<T> b = {
        (const T *)args.b + e *depth *columns, columns, args.tb ? depth : columns, !args.tb
    };
    const int bias_bytes = args.bias_type == SW_GPU_F32 ? 4 : 2;
    const struct product_result to = {(char *)args.d + first * columns * elem_bytes,
                                      args.bias ? (const char *)args.bias + e * columns * bias_bytes
                                                : nullptr,
                                      columns, args.out_type, args.bias_type};
    multiply<T>(s, a, b, depth, tile * TILE, column, to);
}

template <typename T>
SW_KERNEL(THREADS)
void expert_product_grad(struct gpu_expert_product_args args)
{
    SW_SHARED(struct product_shared<T>, s);
    if (skipped(args.skip)) {
        return;
    }
    const int64_t across = (args.columns + TILE - 1) / TILE, down = (args.rows + TILE - 1) / TILE;
    const int64_t tile = quotient(block_x(), across), e = quotient(tile, down);
    const int64_t first = args.offsets[e], depth = args.offsets[e + 1] - first;
    const int elem_bytes = args.out_type == SW_GPU_F32 ? 4 : 2;
    const struct operand<T> a = {
        (const T *)args.a + first *args.rows, args.rows, args.rows, true
    };
    const struct operand<T> b = {
        (const T *)args.b + first *args.columns, args.columns, args.columns, true
    };
    const struct product_result to = {(char *)args.d + e * args.rows * args.columns * elem_bytes,
                                      nullptr, args.columns, args.out_type, 0};
    multiply<T>(s, a, b, depth, (tile - e * down) * TILE, (block_x() - tile * across) * TILE, to);
}

/* Strands of rows: row r of an expert belongs to strand r % STRANDS. Their sums are added in
 * order. */
enum { COLUMNS = GPU_EXPERT_COLUMNS, STRANDS = THREADS / COLUMNS };
struct bias_shared {
    float sums[STRANDS][COLUMNS];
};

template <typename T> SW_KERNEL(THREADS) void expert_bias_grad(struct gpu_expert_bias_args args)
{
    SW_SHARED(struct bias_shared, s);
    if (skipped(args.skip)) {
        return;
    }
    const int64_t across = (args.columns + COLUMNS - 1) / COLUMNS;
    const int64_t e = quotient(block_x(), across);
    const int x = thread_index() % COLUMNS, strand = thread_index() / COLUMNS;
    const int64_t column = (block_x() - e * across) * COLUMNS + x;
    const bool is_there = column < args.columns;
    float sum = 0;
    for (int64_t r = args.offsets[e] + strand; r < args.offsets[e + 1] && is_there; r += STRANDS) {
        sum += load((const T *)args.dy, r * args.columns + column);
    }
    s.sums[strand][x] = sum;
    sync_block();
    if (strand == 0 && is_there) {
        for (int i = 1; i < STRANDS; i++) {
            sum += s.sums[i][x];
        }
        store_any(args.d, args.out_type, e * args.columns + column, sum);
    }
}

template <typename T> SW_KERNEL(THREADS) void expert_rest(struct gpu_expert_rest_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t n = args.rows * args.width, first = args.first[block_y() * args.stride];
    T *y = (T *)args.y + block_y() * n;
    for (int64_t i = first * args.width + first_element(); i < n; i += grid_threads()) {
        store(y, i, 0);
    }
}

static const struct sw_gpu_kernel rows[] = {
    SW_FLOATS(expert_product, THREADS), SW_FLOATS(expert_product_grad, THREADS),
    SW_FLOATS(expert_bias_grad, THREADS), SW_FLOATS(expert_rest, THREADS)};
const struct sw_gpu_kernels sw_gpu_kernels_expert_product = {rows, SW_ROWS(rows)};
