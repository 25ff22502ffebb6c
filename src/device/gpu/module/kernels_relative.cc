// SPDX-License-Identifier: Apache-2.0
// Scores by the distance of key and query. A gradient's sums go over samples, queries and keys in
// an order that depends only on the shapes.
#include "device/gpu/module/registry.h"
#include "device/gpu/module/team.h"

enum { THREADS = 256 };

SW_DEVICE int64_t row_inside(int64_t row, int64_t n)
{
    row = row < n - 1 ? row : n - 1;
    return row > 0 ? row : 0;
}

template <typename T> SW_KERNEL(THREADS) void relative_bias(struct gpu_relative_bias_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t shift = args.origin - (args.position ? *args.position : 0);
    const int64_t n = args.heads * args.queries * args.keys;
    for (int64_t i = first_element(); i < n; i += grid_threads()) {
        const int64_t row = quotient(i, args.keys), s = i - row * args.keys;
        const int64_t head = quotient(row, args.queries), t = row - head * args.queries;
        const float x =
            load((const T *)args.x, row_inside(s - t + shift, args.n_rows) * args.heads + head);
        ((float *)args.y)[i] = x;
    }
}

/* The keys that a query has in a row. */
struct key_span {
    int64_t first, end;
};
SW_DEVICE struct key_span keys_of_row(const struct gpu_relative_bias_args &args, int64_t row,
                                      int64_t t, int64_t shift)
{
    struct key_span span = {row + t - shift, row + t - shift + 1};
    span.first = row == 0 || span.first < 0 ? 0 : span.first;
    span.end = row == args.n_rows - 1 || span.end > args.keys ? args.keys : span.end;
    return span;
}

/* One thread per row of a head. */
SW_KERNEL(THREADS) void relative_bias_grad(struct gpu_relative_bias_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t shift = args.origin - (args.position ? *args.position : 0);
    for (int64_t i = first_element(); i < args.heads * args.n_rows; i += grid_threads()) {
        const int64_t head = quotient(i, args.n_rows), row = i - head * args.n_rows;
        const float *d = (const float *)args.x + head * args.queries * args.keys;
        float sum = 0;
        for (int64_t t = 0; t < args.queries; t++) {
            const struct key_span keys = keys_of_row(args, row, t, shift);
            for (int64_t s = keys.first; s < keys.end; s++) {
                sum += d[t * args.keys + s];
            }
        }
        store_any(args.y, args.out_type, row * args.heads + head, sum);
    }
}

/* One warp per query of a (sample, head), its lanes along the head. */
template <typename T> SW_KERNEL(THREADS) void relative_scores(struct gpu_relative_scores_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t n_warps = grid_x() * (THREADS / SW_WARP), n = args.tokens;
    for (int64_t row = block_x() * (THREADS / SW_WARP) + warp_index();
         row < args.batch * args.heads * n; row += n_warps) {
        const int64_t of_head = quotient(row, n), i = row - of_head * n;
        const int64_t b = quotient(of_head, args.heads), head = of_head - b * args.heads;
        for (int64_t j = 0; j < n; j++) {
            const T *x = (const T *)args.x +
                         ((b * n + (args.by_key ? j : i)) * args.heads + head) * args.width;
            const T *table = (const T *)args.table +
                             (args.index[j - i + n - 1] * args.heads + head) * args.width;
            float sum = 0;
            for (int64_t e = lane_index(); e < args.width; e += SW_WARP) {
                sum = fmaf(load(x, e), load(table, e), sum);
            }
            sum = warp_sum(sum);
            if (lane_index() == 0) {
                ((float *)args.y)[row * n + j] = args.scale * sum;
            }
        }
    }
}

/* One thread per element of dx. */
template <typename T>
SW_KERNEL(THREADS)
void relative_scores_dx(struct gpu_relative_scores_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t n = args.tokens, all = args.batch * n * args.heads * args.width;
    for (int64_t at = first_element(); at < all; at += grid_threads()) {
        const int64_t vector = quotient(at, args.width), e = at - vector * args.width;
        const int64_t token = quotient(vector, args.heads), head = vector - token * args.heads;
        const int64_t b = quotient(token, n), t = token - b * n;
        const float *d = args.d + (b * args.heads + head) * n * n;
        float sum = 0;
        for (int64_t other = 0; other < n; other++) {
            const int64_t i = args.by_key ? other : t, j = args.by_key ? t : other;
            const int64_t row = args.index[j - i + n - 1] * args.heads + head;
            sum = fmaf(args.scale * d[i * n + j], load((const T *)args.table, row * args.width + e),
                       sum);
        }
        store_any(args.y, args.out_type, at, sum);
    }
}

/* One thread per element of dtable. */
template <typename T>
SW_KERNEL(THREADS)
void relative_scores_dtable(struct gpu_relative_scores_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t n = args.tokens, all = args.n_rows * args.heads * args.width;
    for (int64_t at = first_element(); at < all; at += grid_threads()) {
        const int64_t vector = quotient(at, args.width), e = at - vector * args.width;
        const int64_t row = quotient(vector, args.heads), head = vector - row * args.heads;
        float sum = 0;
        for (int64_t apart = 1 - n; apart < n; apart++) {
            if (args.index[apart + n - 1] != row) {
                continue;
            }
            const int64_t first = apart < 0 ? -apart : 0, end = apart < 0 ? n : n - apart;
            for (int64_t b = 0; b < args.batch; b++) {
                const float *d = args.d + (b * args.heads + head) * n * n;
                for (int64_t i = first; i < end; i++) {
                    const int64_t t = args.by_key ? i + apart : i;
                    const T *x = (const T *)args.x + ((b * n + t) * args.heads + head) * args.width;
                    sum = fmaf(args.scale * d[i * n + i + apart], load(x, e), sum);
                }
            }
        }
        store_any(args.y, args.out_type, at, sum);
    }
}

static const struct sw_gpu_kernel rows[] = {
    SW_FLOATS(relative_bias, THREADS), SW_PLAIN(relative_bias_grad, THREADS),
    SW_FLOATS(relative_scores, THREADS), SW_FLOATS(relative_scores_dx, THREADS),
    SW_FLOATS(relative_scores_dtable, THREADS)};
const struct sw_gpu_kernels sw_gpu_kernels_relative = {rows, SW_ROWS(rows)};
