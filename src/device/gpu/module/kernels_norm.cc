// SPDX-License-Identifier: Apache-2.0
// Norms. A team of threads takes a row, keeps as much of it in registers as fits and reads the rest
// again. Sums over rows: each block of rows in order, then the blocks in order.
#include "device/gpu/module/pack.h"
#include "device/gpu/module/registry.h"
#include "device/gpu/module/team.h"

enum { THREADS = 256, COLUMN_THREADS = GPU_SUM_COLUMNS / 2, SUM_THREADS = 64 };

/* ---- rows ---- */

/* The row of this thread's team, and the thread's packs of it. */
struct team_row {
    int64_t row, at, width; /* at: its first element */
    int first, team;        /* packs first, first + team, .. */
};

SW_DEVICE struct team_row row_of(int team, int64_t width)
{
    const int64_t row = block_x() * (THREADS / team) + thread_index() / team;
    return {row, row * width, width, thread_index() % team, team};
}

/* A thread's part of N_TENSORS tensors in a row. */
template <typename T, int N_TENSORS, int N_KEPT> struct row_packs {
    static constexpr int N = pack_elems<T>;
    const T *from[N_TENSORS];
    bool wide;
    float kept[N_KEPT][N_TENSORS][N];
};

/* Calls fn(offset in the row, number of valid elements, values [N_TENSORS][N]) for each pack;
 * FIRST: the packs are read from memory. */
template <bool FIRST, typename T, int N_TENSORS, int N_KEPT, typename Fn>
SW_DEVICE void each_pack(const struct team_row &r, struct row_packs<T, N_TENSORS, N_KEPT> &packs,
                         Fn fn)
{
    constexpr int N = pack_elems<T>;
    SW_UNROLL
    for (int k = 0; k < N_KEPT; k++) {
        const int64_t i = (int64_t)(r.first + k * r.team) * N;
        if (i < r.width) {
            const int n = r.width - i < N ? (int)(r.width - i) : N;
            if (FIRST) {
                SW_UNROLL
                for (int t = 0; t < N_TENSORS; t++) {
                    load_pack<N>(packs.from[t], r.at + i, n, packs.wide, packs.kept[k][t]);
                }
            }
            fn(i, n, packs.kept[k]);
        }
    }
    for (int64_t i = (int64_t)(r.first + N_KEPT * r.team) * N; i < r.width;
         i += (int64_t)r.team * N) {
        const int n = r.width - i < N ? (int)(r.width - i) : N;
        float values[N_TENSORS][N];
        SW_UNROLL
        for (int t = 0; t < N_TENSORS; t++) {
            load_pack<N>(packs.from[t], r.at + i, n, packs.wide, values[t]);
        }
        fn(i, n, values);
    }
}

/* True if packs of rows of this width are 16-byte aligned, given that the tensor is. */
template <typename T> SW_DEVICE bool wide_rows(int64_t width)
{
    return width % pack_elems<T> == 0;
}

/* Packs of a row that forward keeps in registers, as many as fit. */
template <typename T> constexpr int kept_forward = sizeof(T) == 4 ? 4 : 3;

/* Stores a + b, rounded; each thread rereads only what it wrote itself. */
template <typename T>
SW_DEVICE void add_rows(const struct gpu_norm_args &args, const struct team_row &r)
{
    constexpr int N = pack_elems<T>;
    const bool wide =
        wide_rows<T>(r.width) && aligned(args.x) && aligned(args.b) && aligned(args.sum);
    for (int64_t i = (int64_t)r.first * N; i < r.width; i += (int64_t)r.team * N) {
        const int n = r.width - i < N ? (int)(r.width - i) : N;
        float a[N], b[N];
        load_pack<N>((const T *)args.x, r.at + i, n, wide, a);
        load_pack<N>((const T *)args.b, r.at + i, n, wide, b);
        SW_UNROLL
        for (int e = 0; e < N; e++) {
            a[e] += b[e];
        }
        store_pack<N>((T *)args.sum, r.at + i, n, wide, a);
    }
}

/* The row that is normalised, or the sum of two if there is a second; its packs, to be read. */
template <typename T>
SW_DEVICE void begin_row(const struct gpu_norm_args &args, const struct team_row &r,
                         struct row_packs<T, 1, kept_forward<T>> &packs)
{
    if (args.b) {
        add_rows<T>(args, r);
    }
    packs.from[0] = (const T *)(args.b ? args.sum : args.x);
    packs.wide = wide_rows<T>(r.width) && aligned(packs.from[0]);
}

template <typename T> SW_KERNEL(THREADS, 2) void layer_norm(struct gpu_norm_args args)
{
    constexpr int N = pack_elems<T>;
    SW_SHARED(struct team_scratch<THREADS>, scratch);
    const struct team_row r = row_of(args.team, args.width);
    if (skipped(args.skip) || r.row >= args.n_rows) {
        return;
    }
    const T *w = (const T *)args.w, *bias = (const T *)args.bias;
    T *y = (T *)args.y;
    const bool wide = wide_rows<T>(r.width);
    struct row_packs<T, 1, kept_forward<T>> packs;
    begin_row(args, r, packs);
    float sum = 0, squares = 0;
    each_pack<true>(r, packs, [&](int64_t, int, float(*v)[N]) {
        SW_UNROLL
        for (int e = 0; e < N; e++) { /* elements out of range are 0 */
            sum += v[0][e];
        }
    });
    const float mean = team_sum(sum, args.team, scratch) / (float)r.width;
    each_pack<false>(r, packs, [&](int64_t, int n, float(*v)[N]) {
        SW_UNROLL
        for (int e = 0; e < N; e++) {
            const float d = v[0][e] - mean;
            squares += e < n ? d * d : 0;
        }
    });
    const float var = team_sum(squares, args.team, scratch) / (float)r.width;
    const float rstd = 1 / sqrtf(var + args.eps);
    const bool wide_w = wide && aligned(w) && aligned(bias), wide_y = wide && aligned(y);
    each_pack<false>(r, packs, [&](int64_t i, int n, float(*v)[N]) {
        float factor[N], shift[N];
        load_pack<N>(w, i, n, wide_w, factor);
        load_pack<N>(bias, i, n, wide_w, shift);
        SW_UNROLL
        for (int e = 0; e < N; e++) {
            factor[e] = (v[0][e] - mean) * rstd * factor[e] + shift[e];
        }
        store_pack<N>(y, r.at + i, n, wide_y, factor);
    });
    if (r.first == 0) {
        if (args.mean) {
            args.mean[r.row] = mean;
        }
        if (args.rstd) {
            args.rstd[r.row] = rstd;
        }
    }
}

/* x rstd is rounded before it is multiplied by w; with one_plus it is not. */
template <typename T> SW_KERNEL(THREADS, 2) void rms_norm(struct gpu_norm_args args)
{
    constexpr int N = pack_elems<T>;
    SW_SHARED(struct team_scratch<THREADS>, scratch);
    const struct team_row r = row_of(args.team, args.width);
    if (skipped(args.skip) || r.row >= args.n_rows) {
        return;
    }
    const T *w = (const T *)args.w;
    T *y = (T *)args.y;
    const bool wide = wide_rows<T>(r.width);
    struct row_packs<T, 1, kept_forward<T>> packs;
    begin_row(args, r, packs);
    float squares = 0;
    each_pack<true>(r, packs, [&](int64_t, int, float(*v)[N]) {
        SW_UNROLL
        for (int e = 0; e < N; e++) {
            squares += v[0][e] * v[0][e];
        }
    });
    const float mean = team_sum(squares, args.team, scratch) / (float)r.width;
    const float rstd = 1 / sqrtf(mean + args.eps);
    const bool wide_w = wide && aligned(w), wide_y = wide && aligned(y);
    each_pack<false>(r, packs, [&](int64_t i, int n, float(*v)[N]) {
        float factor[N];
        load_pack<N>(w, i, n, wide_w, factor);
        SW_UNROLL
        for (int e = 0; e < N; e++) {
            const float hat = v[0][e] * rstd;
            factor[e] = args.one_plus ? hat * (1 + factor[e]) : rounded<T>(hat) * factor[e];
        }
        store_pack<N>(y, r.at + i, n, wide_y, factor);
    });
    if (r.first == 0 && args.rstd) {
        args.rstd[r.row] = rstd;
    }
}

/* ---- gradients of rows ---- */

/* CENTERED: with g = dy w and n = (x - mean) rstd, dx = rstd (g - mean(g) - n mean(g n)). Else,
 * with g = dy times the factor and n = x rstd, dx = rstd (g - n mean(g n)). */
template <typename T, bool CENTERED>
SW_DEVICE void row_dx(const struct gpu_norm_grad_args &args, struct team_scratch<THREADS> &scratch)
{
    constexpr int N = pack_elems<T>, KEPT = 2;
    const struct team_row r = row_of(args.team, args.width);
    if (skipped(args.skip) || r.row >= args.n_rows) {
        return;
    }
    const T *w = (const T *)args.w;
    T *dx = (T *)args.dx;
    const bool wide = wide_rows<T>(r.width), wide_w = wide && aligned(w);
    const float rstd = args.rstd[r.row], plus = args.one_plus ? 1.0f : 0.0f;
    const float mean = CENTERED ? args.mean[r.row] : 0;
    auto g_of = [&](float dy, float factor) { return dy * (CENTERED ? factor : plus + factor); };
    auto n_of = [&](float x) { return (CENTERED ? x - mean : x) * rstd; };
    struct row_packs<T, 2, KEPT> packs;
    packs.from[0] = (const T *)args.dy;
    packs.from[1] = (const T *)args.x;
    packs.wide = wide && aligned(args.dy) && aligned(args.x);
    float sum_g = 0, sum_gn = 0;
    each_pack<true>(r, packs, [&](int64_t i, int n, float(*v)[N]) {
        float factor[N];
        load_pack<N>(w, i, n, wide_w, factor);
        SW_UNROLL
        for (int e = 0; e < N; e++) { /* dy of elements out of range is 0 */
            const float g = g_of(v[0][e], factor[e]);
            sum_g += g;
            sum_gn += g * n_of(v[1][e]);
        }
    });
    const float mean_g = CENTERED ? team_sum(sum_g, args.team, scratch) / (float)r.width : 0;
    const float mean_gn = team_sum(sum_gn, args.team, scratch) / (float)r.width;
    const bool wide_dx = wide && aligned(dx);
    each_pack<false>(r, packs, [&](int64_t i, int n, float(*v)[N]) {
        float factor[N];
        load_pack<N>(w, i, n, wide_w, factor);
        SW_UNROLL
        for (int e = 0; e < N; e++) {
            const float g = g_of(v[0][e], factor[e]);
            factor[e] = rstd * ((CENTERED ? g - mean_g : g) - n_of(v[1][e]) * mean_gn);
        }
        store_pack<N>(dx, r.at + i, n, wide_dx, factor);
    });
}

template <typename T> SW_KERNEL(THREADS, 2) void layer_norm_dx(struct gpu_norm_grad_args args)
{
    SW_SHARED(struct team_scratch<THREADS>, scratch);
    row_dx<T, true>(args, scratch);
}

template <typename T> SW_KERNEL(THREADS, 2) void rms_norm_dx(struct gpu_norm_grad_args args)
{
    SW_SHARED(struct team_scratch<THREADS>, scratch);
    row_dx<T, false>(args, scratch);
}

/* ---- sums over rows ---- */

/* A thread takes two neighbouring columns of one block of rows. */
struct column_pair {
    int64_t block, n_blocks; /* block of rows, and number of them */
    int64_t column, first_row, end_row;
    int64_t chunk; /* chunk of columns of this thread block */
    int n;         /* number of valid columns: 0, 1 or 2 */
};

SW_DEVICE struct column_pair columns_of(int64_t n_rows, int64_t width, int64_t block_rows)
{
    struct column_pair c;
    const int64_t chunks = (width + GPU_SUM_COLUMNS - 1) / GPU_SUM_COLUMNS;
    c.block = block_x() / chunks;
    c.n_blocks = grid_x() / chunks;
    c.chunk = block_x() % chunks;
    c.column = 2 * (c.chunk * COLUMN_THREADS + thread_index());
    c.first_row = c.block * block_rows;
    c.end_row = c.first_row + block_rows < n_rows ? c.first_row + block_rows : n_rows;
    c.n = c.column + 1 < width ? 2 : c.column < width ? 1 : 0;
    return c;
}

/* True if a pair of columns can be read in one access. */
template <typename T> SW_DEVICE bool wide_pairs(const void *x, int64_t width)
{
    return width % 2 == 0 && aligned(x, 2 * sizeof(T));
}

SW_DEVICE void store_sums(float *sums, const struct column_pair &c, int64_t width, const float *sum)
{
    for (int e = 0; e < 2; e++) {
        if (sums && e < c.n) {
            sums[c.block * width + c.column + e] = sum[e];
        }
    }
}

/* Adds in order. Several loads are issued before the first is needed, to hide their latency. */
SW_DEVICE float sum_in_order(const float *sums, int64_t n_blocks, int64_t width)
{
    constexpr int AHEAD = 8;
    float total = 0;
    int64_t k = 0;
    for (; k + AHEAD <= n_blocks; k += AHEAD) {
        float part[AHEAD];
        SW_UNROLL
        for (int e = 0; e < AHEAD; e++) {
            part[e] = sums[(k + e) * width];
        }
        SW_UNROLL
        for (int e = 0; e < AHEAD; e++) {
            total += part[e];
        }
    }
    for (; k < n_blocks; k++) {
        total += sums[k * width];
    }
    return total;
}

/* True for the last thread block to finish these columns: all blocks of rows have then stored their
 * sums. It resets the ticket for the next kernel. */
SW_DEVICE bool comes_last(int *tickets, const struct column_pair &c)
{
    SW_SHARED(int, is_last);
    fence_device();
    sync_block();
    if (thread_index() == 0) {
        is_last = atomic_add(&tickets[c.chunk], 1) + 1 == c.n_blocks;
        if (is_last) {
            tickets[c.chunk] = 0;
        }
    }
    sync_block();
    fence_device();
    return is_last;
}

SW_DEVICE void add_up(const float *sums, const struct column_pair &c, int64_t width,
                      const struct gpu_total &total)
{
    for (int e = 0; e < 2; e++) {
        if (sums && e < c.n) {
            store_any(total.y, total.type, c.column + e,
                      sum_in_order(sums + c.column + e, c.n_blocks, width));
        }
    }
}

/* dw and, if CENTERED, db: sums of dy n and of dy over a block of rows. */
template <typename T, bool CENTERED>
SW_DEVICE void columns_dw(const struct gpu_norm_grad_args &args)
{
    if (skipped(args.skip)) {
        return;
    }
    const struct column_pair c = columns_of(args.n_rows, args.width, args.block);
    const T *dy = (const T *)args.dy, *x = (const T *)args.x;
    const bool wide = wide_pairs<T>(dy, args.width) && wide_pairs<T>(x, args.width);
    float dw[2] = {0, 0}, db[2] = {0, 0};
    for (int64_t row = c.first_row; row < c.end_row; row++) {
        const int64_t at = row * args.width + c.column;
        const float mean = CENTERED ? args.mean[row] : 0, rstd = args.rstd[row];
        float g[2], v[2];
        load_pack<2>(dy, at, c.n, wide, g);
        load_pack<2>(x, at, c.n, wide, v);
        SW_UNROLL
        for (int e = 0; e < 2; e++) {
            dw[e] += g[e] * ((CENTERED ? v[e] - mean : v[e]) * rstd);
            db[e] += g[e];
        }
    }
    store_sums(args.dw, c, args.width, dw);
    if (CENTERED) {
        store_sums(args.db, c, args.width, db);
    }
    if (args.tickets && comes_last(args.tickets, c)) {
        add_up(args.dw, c, args.width, args.total_dw);
        if (CENTERED) {
            add_up(args.db, c, args.width, args.total_db);
        }
    }
}

template <typename T> SW_KERNEL(COLUMN_THREADS) void layer_norm_dw(struct gpu_norm_grad_args args)
{
    columns_dw<T, true>(args);
}

template <typename T> SW_KERNEL(COLUMN_THREADS) void rms_norm_dw(struct gpu_norm_grad_args args)
{
    columns_dw<T, false>(args);
}

template <typename T> SW_KERNEL(COLUMN_THREADS) void sum_rows(struct gpu_sum_rows_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const struct column_pair c = columns_of(args.n_rows, args.width, args.block);
    const T *x = (const T *)args.x;
    const bool wide = wide_pairs<T>(x, args.width);
    float sum[2] = {0, 0};
    for (int64_t row = c.first_row; row < c.end_row; row++) {
        float v[2];
        load_pack<2>(x, row * args.width + c.column, c.n, wide, v);
        sum[0] += v[0];
        sum[1] += v[1];
    }
    store_sums(args.sums, c, args.width, sum);
    if (args.tickets && comes_last(args.tickets, c)) {
        add_up(args.sums, c, args.width, args.total);
    }
}

SW_KERNEL(SUM_THREADS) void sum_blocks(struct gpu_sum_blocks_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t column = first_element(); column < args.width; column += grid_threads()) {
        store_any(args.y, args.out_type, column,
                  sum_in_order(args.sums + column, args.n_blocks, args.width));
    }
}

static const struct sw_gpu_kernel rows[] = {
    SW_FLOATS(layer_norm, THREADS),           SW_FLOATS(rms_norm, THREADS),
    SW_FLOATS(layer_norm_dx, THREADS),        SW_FLOATS(rms_norm_dx, THREADS),
    SW_FLOATS(layer_norm_dw, COLUMN_THREADS), SW_FLOATS(rms_norm_dw, COLUMN_THREADS),
    SW_FLOATS(sum_rows, COLUMN_THREADS),      SW_PLAIN(sum_blocks, SUM_THREADS),
};
const struct sw_gpu_kernels sw_gpu_kernels_norm = {rows, SW_ROWS(rows)};
