// SPDX-License-Identifier: Apache-2.0
// Rows of a sparse gradient: a bitonic sort, then each row's sum in the order of its tokens,
// without atomics. All keys differ, so the sorted order is unique.
#include "device/gpu/module/pack.h"
#include "device/gpu/module/registry.h"

enum { THREADS = 256, TILE = GPU_SORT_TILE, KEYS = TILE / THREADS };

struct tile_keys {
    uint64_t at[TILE];
};

/* ---- sorting ---- */

SW_DEVICE void order(uint64_t *a, uint64_t *b, bool up)
{
    if ((*a > *b) == up) {
        const uint64_t key = *a;
        *a = *b;
        *b = key;
    }
}

/* The first key of pair p in a merge; pairs are `distance` apart, a power of two. */
SW_DEVICE int64_t first_of_pair(int64_t p, int64_t distance)
{
    return (p / distance) * 2 * distance + p % distance;
}

/* The steps of the merge into runs of `run` keys, from this distance on, within the block's tile.
 * All keys are in place before and after. */
SW_DEVICE void merge_tile(struct tile_keys &tile, int64_t base, int64_t run, int distance)
{
    for (; distance > 0; distance /= 2) {
        for (int p = thread_index(); p < TILE / 2; p += THREADS) {
            const int i = (p & ~(distance - 1)) * 2 + (p & (distance - 1));
            order(&tile.at[i], &tile.at[i + distance], ((base + i) & run) == 0);
        }
        sync_block();
    }
}

SW_KERNEL(THREADS) void sort_tiles(struct gpu_sort_tiles_args args)
{
    SW_SHARED(struct tile_keys, tile);
    if (skipped(args.skip)) {
        return;
    }
    const int64_t base = block_x() * TILE;
    for (int i = thread_index(); i < TILE; i += THREADS) {
        const int64_t token = base + i;
        const int32_t id = token < args.n_tokens ? args.ids[token] : -1;
        tile.at[i] =
            id >= 0 && id != args.padding ? (uint64_t)id << 32 | (uint64_t)token : UINT64_MAX;
    }
    sync_block();
    for (int run = 2; run <= TILE; run *= 2) {
        merge_tile(tile, base, run, run / 2);
    }
    for (int i = thread_index(); i < TILE; i += THREADS) {
        args.keys[base + i] = tile.at[i];
    }
}

SW_KERNEL(THREADS) void merge_far(struct gpu_merge_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t p = first_element(); p < args.n_keys / 2; p += grid_threads()) {
        const int64_t i = first_of_pair(p, args.distance);
        order(&args.keys[i], &args.keys[i + args.distance], (i & args.run) == 0);
    }
}

SW_KERNEL(THREADS) void merge_near(struct gpu_merge_args args)
{
    SW_SHARED(struct tile_keys, tile);
    if (skipped(args.skip)) {
        return;
    }
    const int64_t base = block_x() * TILE;
    for (int i = thread_index(); i < TILE; i += THREADS) {
        tile.at[i] = args.keys[base + i];
    }
    sync_block();
    merge_tile(tile, base, args.run, TILE / 2);
    for (int i = thread_index(); i < TILE; i += THREADS) {
        args.keys[base + i] = tile.at[i];
    }
}

/* ---- rows ---- */

SW_DEVICE uint32_t id_of(uint64_t key)
{
    return (uint32_t)(key >> 32);
}

SW_DEVICE bool begins_row(const uint64_t *keys, int64_t i)
{
    return keys[i] != UINT64_MAX && (i == 0 || id_of(keys[i - 1]) != id_of(keys[i]));
}

struct scan_scratch {
    int warps[THREADS / SW_WARP];
};

/* The sum over the threads before this one, and over all. */
struct scan {
    int before, all;
};

SW_DEVICE struct scan scan_block(int x, struct scan_scratch &scratch)
{
    int sum = x;
    for (int step = 1; step < SW_WARP; step *= 2) {
        const int lane = lane_index() - step;
        const int other = shuffle(sum, lane < 0 ? 0 : lane);
        sum += lane < 0 ? 0 : other;
    }
    sync_block(); /* the previous scan has been read */
    if (lane_index() == SW_WARP - 1) {
        scratch.warps[warp_index()] = sum;
    }
    sync_block();
    struct scan scan = {sum - x, 0};
    for (int w = 0; w < THREADS / SW_WARP; w++) {
        scan.before += w < warp_index() ? scratch.warps[w] : 0;
        scan.all += scratch.warps[w];
    }
    return scan;
}

/* The number of rows that begin with one of this thread's keys. */
SW_DEVICE int rows_of_thread(const uint64_t *keys, int64_t first)
{
    int n = 0;
    for (int k = 0; k < KEYS; k++) {
        n += begins_row(keys, first + k);
    }
    return n;
}

SW_KERNEL(THREADS) void count_rows(struct gpu_number_rows_args args)
{
    SW_SHARED(struct scan_scratch, scratch);
    if (skipped(args.skip)) {
        return;
    }
    const int64_t first = block_x() * TILE + thread_index() * KEYS;
    const struct scan rows = scan_block(rows_of_thread(args.keys, first), scratch);
    if (thread_index() == 0) {
        args.counts[block_x()] = rows.all;
    }
}

SW_KERNEL(THREADS) void number_rows(struct gpu_number_rows_args args)
{
    SW_SHARED(struct scan_scratch, scratch);
    if (skipped(args.skip)) {
        return;
    }
    int earlier = 0; /* rows in earlier tiles */
    for (int64_t t = thread_index(); t < block_x(); t += THREADS) {
        earlier += args.counts[t];
    }
    earlier = scan_block(earlier, scratch).all;
    const int64_t first = block_x() * TILE + thread_index() * KEYS;
    const int here = rows_of_thread(args.keys, first);
    int row = earlier + scan_block(here, scratch).before;
    for (int64_t i = first; i < first + KEYS; i++) {
        if (begins_row(args.keys, i)) {
            args.starts[row++] = (int32_t)i;
        }
        const bool last = i + 1 == args.n_keys || args.keys[i + 1] == UINT64_MAX;
        if (args.keys[i] != UINT64_MAX && last) {
            args.starts[row] = (int32_t)(i + 1);
            *args.n_rows = row;
        }
        if (i == 0 && args.keys[0] == UINT64_MAX) {
            *args.n_rows = 0;
        }
    }
}

/* A warp takes some columns of one row. */
template <typename T> SW_KERNEL(THREADS, 2) void sum_tokens(struct gpu_sum_tokens_args args)
{
    constexpr int N = pack_elems<T>, AHEAD = 4; /* tokens read at once */
    if (skipped(args.skip)) {
        return;
    }
    const T *dy = (const T *)args.dy;
    const bool wide = args.width % N == 0 && aligned(dy) && aligned(args.rows);
    const int64_t chunks = (args.width + SW_WARP * N - 1) / (SW_WARP * N);
    const int n_rows = *args.n_rows, n_warps = THREADS / SW_WARP;
    for (int64_t w = block_x() * n_warps + warp_index(); w < args.n_out * chunks;
         w += grid_x() * n_warps) {
        const int64_t row = quotient(w, chunks), chunk = w - row * chunks;
        const int64_t column = (chunk * SW_WARP + lane_index()) * N;
        /* may be 0 or negative */
        const int n = args.width - column < N ? (int)(args.width - column) : N;
        const int begin = row < n_rows ? args.starts[row] : 0;
        const int end = row < n_rows ? args.starts[row + 1] : 0;
        float sum[N] = {0};
        for (int i = begin; i < end; i += AHEAD) {
            float values[AHEAD][N];
            SW_UNROLL
            for (int k = 0; k < AHEAD; k++) {
                const int64_t token = i + k < end ? (int64_t)(uint32_t)args.keys[i + k] : 0;
                load_pack<N>(dy, token * args.width + column, i + k < end ? n : 0, wide, values[k]);
            }
            SW_UNROLL
            for (int k = 0; k < AHEAD; k++) {
                SW_UNROLL
                for (int e = 0; e < N; e++) {
                    sum[e] = i + k < end ? sum[e] + values[k][e] : sum[e];
                }
            }
        }
        store_pack_any<N>(args.rows, args.out_type, row * args.width + column, n, wide, sum);
        if (column == 0) {
            args.index[row] = row < n_rows ? (int32_t)id_of(args.keys[begin]) : -1;
        }
    }
}

static const struct sw_gpu_kernel rows[] = {
    SW_PLAIN(sort_tiles, THREADS), SW_PLAIN(merge_far, THREADS),   SW_PLAIN(merge_near, THREADS),
    SW_PLAIN(count_rows, THREADS), SW_PLAIN(number_rows, THREADS), SW_FLOATS(sum_tokens, THREADS),
};
const struct sw_gpu_kernels sw_gpu_kernels_sparse = {rows, SW_ROWS(rows)};
