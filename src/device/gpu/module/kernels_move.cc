// SPDX-License-Identifier: Apache-2.0
// Moves elements unchanged; and ops on integers. When rows are moved, a warp takes one at a time.
#include "device/gpu/module/pack.h"
#include "device/gpu/module/registry.h"

enum { THREADS = 256 };

/* ---- one unit of 1, 2, 4, 8 or 16 bytes ---- */

SW_DEVICE void move_unit(void *to, int64_t i, const void *from, int64_t k, int unit)
{
    switch (unit) {
    case 16:
        store_words((char *)to + i * 16, load_words<16>((const char *)from + k * 16));
        break;
    case 8:
        store_words((char *)to + i * 8, load_words<8>((const char *)from + k * 8));
        break;
    case 4:
        store_words((char *)to + i * 4, load_words<4>((const char *)from + k * 4));
        break;
    case 2:
        ((uint16_t *)to)[i] = ((const uint16_t *)from)[k];
        break;
    default:
        ((uint8_t *)to)[i] = ((const uint8_t *)from)[k];
        break;
    }
}

SW_DEVICE void fill_unit(void *to, int64_t i, uint32_t bits, int unit)
{
    switch (unit) {
    case 16:
        store_words((char *)to + i * 16, pack_words<16>{{bits, bits, bits, bits}});
        break;
    case 8:
        store_words((char *)to + i * 8, pack_words<8>{{bits, bits}});
        break;
    case 4:
        store_words((char *)to + i * 4, pack_words<4>{{bits}});
        break;
    case 2:
        ((uint16_t *)to)[i] = (uint16_t)bits;
        break;
    default:
        ((uint8_t *)to)[i] = (uint8_t)bits;
        break;
    }
}

/* By a warp. from NULL: repeats `bits` instead. */
SW_DEVICE void move_row(void *to, const void *from, uint32_t bits, int64_t row_bytes, int unit)
{
    for (int64_t i = lane_index(); i < row_bytes / unit; i += SW_WARP) {
        if (from) {
            move_unit(to, i, from, i, unit);
        } else {
            fill_unit(to, i, bits, unit);
        }
    }
}

/* Rows of a warp: for (row = first_row(); row < n; row += grid_warps()). */
SW_DEVICE int64_t first_row()
{
    return block_x() * (THREADS / SW_WARP) + warp_index();
}
SW_DEVICE int64_t grid_warps()
{
    return grid_x() * (THREADS / SW_WARP);
}

/* The number of entries of index [n] below id; the index is padded with -1 after the last id. */
SW_DEVICE int64_t n_below(const int32_t *index, int64_t n, int64_t id)
{
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (index[middle] >= 0 && index[middle] < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* ---- kernels ---- */

SW_KERNEL(THREADS) void contiguous(struct gpu_contiguous_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t i = first_element(); i < args.n; i += grid_threads()) {
        int64_t from = 0, rest = i;
        for (int d = args.rank - 1; d > 0; d--) {
            const int64_t next = quotient(rest, args.dims[d]);
            from += (rest - next * args.dims[d]) * args.strides[d];
            rest = next;
        }
        move_unit(args.y, i, args.x, from + rest * args.strides[0], args.unit);
    }
}

SW_KERNEL(THREADS) void embedding(struct gpu_embedding_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t t = first_row(); t < args.n_tokens; t += grid_warps()) {
        const int64_t id = args.ids[t] - args.first;
        const bool known = id >= 0 && id < args.n_rows;
        if (known || !args.later) {
            move_row((char *)args.y + t * args.row_bytes,
                     known ? (const char *)args.table + id * args.row_bytes : nullptr, args.other,
                     args.row_bytes, args.unit);
        }
    }
}

SW_KERNEL(THREADS) void densify(struct gpu_densify_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t row = first_row(); row < args.n_rows; row += grid_warps()) {
        const int64_t at = n_below(args.index, args.n, row);
        const bool known = at < args.n && args.index[at] == row;
        move_row((char *)args.y + row * args.row_bytes,
                 known ? (const char *)args.rows + at * args.row_bytes : nullptr, 0, args.row_bytes,
                 args.unit);
    }
}

SW_KERNEL(THREADS) void select_index(struct gpu_select_index_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t first = n_below(args.index, args.n, args.first);
    const int64_t end = n_below(args.index, args.n, args.first + args.n_wanted);
    for (int64_t row = first_row(); row < args.n_out; row += grid_warps()) {
        const bool known = first + row < end;
        if (lane_index() == 0) {
            args.y_index[row] = known ? (int32_t)(args.index[first + row] - args.first) : -1;
        }
        move_row((char *)args.y + row * args.row_bytes,
                 known ? (const char *)args.rows + (first + row) * args.row_bytes : nullptr, 0,
                 args.row_bytes, args.unit);
    }
}

SW_DEVICE int64_t inside(int64_t t, int64_t tokens)
{
    t = t < tokens - 1 ? t : tokens - 1;
    return t > 0 ? t : 0;
}

SW_KERNEL(THREADS) void select_rows(struct gpu_select_rows_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t b = first_row(); b < args.batch; b += grid_warps()) {
        const int64_t from = b * args.tokens + inside(args.index[b], args.tokens);
        move_row((char *)args.y + b * args.row_bytes, (const char *)args.x + from * args.row_bytes,
                 0, args.row_bytes, args.unit);
    }
}

/* Writes n elements of dy [width], or zeros, to dx from element `to` on. */
template <typename T>
SW_DEVICE void move_elements(void *dx, int out_type, int64_t to, const T *dy, int64_t from,
                             bool there, int n, bool wide)
{
    constexpr int N = pack_elems<T>;
    float values[N];
    load_pack<N>(dy, there ? from : 0, there ? n : 0, wide, values);
    store_pack_any<N>(dx, out_type, to, n, wide, values);
}

template <typename T>
SW_KERNEL(THREADS)
void select_rows_grad(struct gpu_select_rows_grad_args args)
{
    constexpr int N = pack_elems<T>;
    if (skipped(args.skip)) {
        return;
    }
    const T *dy = (const T *)args.dy;
    const bool wide = aligned(dy) && aligned(args.dx) && args.width % N == 0;
    for (int64_t row = first_row(); row < args.batch * args.tokens; row += grid_warps()) {
        const int64_t b = quotient(row, args.tokens);
        const bool there = inside(args.index[b], args.tokens) == row - b * args.tokens;
        for (int64_t i = lane_index() * N; i < args.width; i += SW_WARP * N) {
            const int n = args.width - i < N ? (int)(args.width - i) : N;
            move_elements(args.dx, args.out_type, row * args.width + i, dy, b * args.width + i,
                          there, n, wide);
        }
    }
}

template <typename T> SW_KERNEL(THREADS) void slice_grad(struct gpu_slice_grad_args args)
{
    constexpr int N = pack_elems<T>;
    if (skipped(args.skip)) {
        return;
    }
    const T *dy = (const T *)args.dy;
    const bool wide = aligned(dy) && aligned(args.dx) && args.whole % N == 0 && args.run % N == 0 &&
                      args.start % N == 0;
    const int step = wide ? N : 1; /* a pack is either inside or outside dy */
    for (int64_t i = first_element() * step; i < args.n; i += grid_threads() * step) {
        const int64_t outer = quotient(i, args.whole), at = i - outer * args.whole - args.start;
        move_elements(args.dx, args.out_type, i, dy, outer * args.run + at,
                      at >= 0 && at < args.run, step, wide);
    }
}

SW_KERNEL(THREADS) void kv_append(struct gpu_kv_append_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t position = args.position[0], n = args.batch * args.tokens * args.width;
    for (int64_t i = first_element(); i < n; i += grid_threads()) {
        const int64_t row = quotient(i, args.width), c = i - row * args.width;
        const int64_t b = quotient(row, args.tokens), t = row - b * args.tokens;
        if (position + t >= 0 && position + t < args.rows) {
            move_unit(args.cache,
                      b * args.cache_strides[0] + (position + t) * args.cache_strides[1] +
                          c * args.cache_strides[2],
                      args.x, b * args.x_strides[0] + t * args.x_strides[1] + c * args.x_strides[2],
                      args.unit);
        }
    }
}

/* ---- integers ---- */

SW_KERNEL(THREADS) void last_index(struct gpu_last_index_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t b = first_row(); b < args.batch; b += grid_warps()) {
        const int32_t *ids = args.ids + b * args.tokens;
        int last = 0;
        for (int64_t t = lane_index(); t < args.tokens; t += SW_WARP) {
            const bool other = args.padding < 0 || ids[t] != args.padding;
            last = other != (args.is_value != 0) ? (int)t : last;
        }
        for (int mask = SW_WARP / 2; mask > 0; mask /= 2) {
            const int other = shuffle_xor(last, mask);
            last = other > last ? other : last;
        }
        if (lane_index() == 0) {
            args.y[b] = last;
        }
    }
}

/* A warp walks a row with a running sum. */
SW_KERNEL(THREADS) void positions(struct gpu_positions_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t row = first_row(); row < args.n_rows; row += grid_warps()) {
        const int32_t *x = args.x + row * args.width;
        int behind = 0;
        for (int64_t start = 0; start < args.width; start += SW_WARP) {
            const int64_t i = start + lane_index();
            const int here = i < args.width ? x[i] : 0;
            int sum = here;
            for (int step = 1; step < SW_WARP; step *= 2) {
                const int lane = lane_index() - step;
                const int before = shuffle(sum, lane < 0 ? 0 : lane);
                sum += lane < 0 ? 0 : before;
            }
            if (i < args.width) {
                const int64_t value = args.counted ? (int64_t)here * (behind + sum) - 1 : here;
                args.y[row * args.width + i] = (int32_t)(value + args.offset);
            }
            behind += shuffle(sum, SW_WARP - 1);
        }
    }
}

static const struct sw_gpu_kernel rows[] = {
    SW_PLAIN(contiguous, THREADS),  SW_PLAIN(embedding, THREADS),
    SW_PLAIN(densify, THREADS),     SW_PLAIN(select_index, THREADS),
    SW_PLAIN(select_rows, THREADS), SW_FLOATS(select_rows_grad, THREADS),
    SW_FLOATS(slice_grad, THREADS), SW_PLAIN(kv_append, THREADS),
    SW_PLAIN(last_index, THREADS),  SW_PLAIN(positions, THREADS),
};
const struct sw_gpu_kernels sw_gpu_kernels_move = {rows, SW_ROWS(rows)};
