// SPDX-License-Identifier: Apache-2.0
// Exact norms, and the ops that use them: clipping, LAMB. Squares are added in double over runs of
// GPU_RUN elements in order; the sums of runs are added exactly.
#include "device/gpu/module/registry.h"
#include "device/gpu/module/update.h"

enum { THREADS = GPU_UPDATE_THREADS, SMALL = 64, PART = GPU_UPDATE_PART };
enum { STATS_RUNS = GPU_STATS_RUNS, LAMB_RUNS = 2 }; /* runs that a thread takes at a time */

SW_KERNEL(SMALL) void reset_words(struct gpu_reset_words_args args)
{
    if (args.skip && *args.skip != 0) {
        return;
    }
    for (int64_t i = first_element(); i < args.n; i += grid_threads()) {
        args.words[i] = 0;
    }
}

/* ---- GRAD_STATS ---- */

/* The most runs that a row touches. */
SW_DEVICE int64_t runs_of_row(int64_t width)
{
    return (width + GPU_RUN - 2) / GPU_RUN + 1;
}

/* True if an earlier stream has a row in the run. */
SW_DEVICE bool is_of_earlier(const struct gpu_streams &s, int k, int64_t start)
{
    const int64_t last = (start + GPU_RUN - 1) / s.row_elems;
    for (int j = 0; j < k; j++) {
        const struct gpu_stream &stream = s.stream[j];
        const int64_t at = lower_bound(stream.index, stream.n_rows, start / s.row_elems);
        if (at < stream.n_rows && stream.index[at] >= 0 && stream.index[at] <= last) {
            return true;
        }
    }
    return false;
}

/* Row-sparse streams: the start of run `item` among those that rows touch, if this row is the first
 * that touches it; else -1. */
SW_DEVICE int64_t sparse_run(const struct gpu_streams &s, int64_t item)
{
    const int64_t width = s.row_elems, n_runs = runs_of_row(width);
    int k = 0;
    while (k < s.n && item >= s.stream[k].n_rows * n_runs) {
        item -= s.stream[k++].n_rows * n_runs;
    }
    if (k == s.n) {
        return -1;
    }
    const int32_t *index = s.stream[k].index;
    const int64_t i = item / n_runs, row = index[i];
    if (row < 0) {
        return -1;
    }
    const int64_t start = (row * width / GPU_RUN + item % n_runs) * GPU_RUN;
    if (start >= (row + 1) * width || (i > 0 && ((int64_t)index[i - 1] + 1) * width > start) ||
        is_of_earlier(s, k, start)) {
        return -1;
    }
    return start;
}

/* The sum of squares of a run. *n_bad counts the elements that are not finite (themselves or a
 * term: bit e of `bad`), or too large if overflow skips the step. */
SW_DEVICE double squares_of_run(const float (&g)[GPU_RUN], unsigned bad, float factor,
                                int overflow_skips, int *n_bad)
{
    double sum = 0;
    SW_UNROLL
    for (int e = 0; e < GPU_RUN; e++) {
        if ((bad >> e & 1) || !is_finite(g[e]) ||
            (overflow_skips && fabsf(g[e] * factor) > 65504.0f)) {
            *n_bad += 1;
        } else {
            sum += (double)g[e] * (double)g[e];
        }
    }
    return sum;
}

SW_DEVICE double stats_run(const struct gpu_grad_stats_args &args, float factor, int64_t start,
                           int n, int *n_bad)
{
    float g[GPU_RUN];
    unsigned bad;
    add_streams(args.streams, start, n, g, &bad);
    return squares_of_run(g, bad, factor, args.overflow_skips, n_bad);
}

typedef exact_block<1, THREADS> stats_block;

SW_KERNEL(THREADS, 4) void grad_stats(struct gpu_grad_stats_args args)
{
    SW_SHARED(stats_block, block);
    if (args.skip && *args.skip != 0) {
        return;
    }
    const float factor = (float)*args.overflow_factor;
    const int64_t n_runs = (args.n + GPU_RUN - 1) / GPU_RUN;
    int n_bad = 0;
    exact_begin(&block);
    for (int64_t base = block_x() * THREADS * STATS_RUNS; base < n_runs;
         base += grid_threads() * STATS_RUNS) {
        double sums[STATS_RUNS] = {};
        SW_UNROLL
        for (int r = 0; r < STATS_RUNS; r++) {
            const int64_t start = (base + r * THREADS + thread_index()) * GPU_RUN;
            const int64_t left = args.n - start;
            if (left > 0) {
                sums[r] = stats_run(args, factor, start, left < GPU_RUN ? (int)left : (int)GPU_RUN,
                                    &n_bad);
            }
        }
        exact_add_warp(block.warp[warp_index()][0].word, sums);
    }
    exact_end_squares(&block, n_bad, args.stats);
}

SW_KERNEL(THREADS, 4) void grad_stats_many(struct gpu_grad_stats_many_args by_value)
{
    SW_SHARED(stats_block, block);
    const struct gpu_grad_stats_many_args &args = in_place(by_value);
    if (args.skip && *args.skip != 0) {
        return;
    }
    const struct gpu_grad_stats_item &item = item_of_block(args.item, args.n);
    const float factor = (float)*args.overflow_factor;
    const int64_t first = (block_x() - item.first_block) * THREADS * STATS_RUNS;
    double sums[STATS_RUNS] = {};
    int n_bad = 0;
    exact_begin(&block);
    SW_UNROLL
    for (int r = 0; r < STATS_RUNS; r++) {
        const int64_t start = (first + r * THREADS + thread_index()) * GPU_RUN;
        const int64_t left = item.n - start;
        if (left > 0) {
            float g[GPU_RUN];
            load_run_any(item.g.x, item.g.type, start, left < GPU_RUN ? (int)left : (int)GPU_RUN,
                         g);
            sums[r] = squares_of_run(g, 0, factor, args.overflow_skips, &n_bad);
        }
    }
    exact_add_warp(block.warp[warp_index()][0].word, sums);
    exact_end_squares(&block, n_bad, args.stats);
}

SW_KERNEL(THREADS, 4) void grad_stats_rows(struct gpu_grad_stats_rows_args args)
{
    SW_SHARED(stats_block, block);
    if (args.of.skip && *args.of.skip != 0) {
        return;
    }
    const float factor = (float)*args.of.overflow_factor;
    int64_t n_items = 0;
    for (int k = 0; k < args.of.streams.n; k++) {
        n_items += args.of.streams.stream[k].n_rows * runs_of_row(args.of.streams.row_elems);
    }
    int n_bad = 0;
    exact_begin(&block);
    for (int64_t base = block_x() * THREADS; base < n_items; base += grid_threads()) {
        const int64_t item = base + thread_index();
        const int64_t start = item < n_items ? sparse_run(args.of.streams, item) : -1;
        double sum[1] = {};
        if (start >= 0) {
            sum[0] = stats_run(args.of, factor, start, GPU_RUN, &n_bad);
        }
        exact_add_warp(block.warp[warp_index()][0].word, sum);
    }
    exact_end_squares(&block, n_bad, args.of.stats);
}

/* ---- STATS_FINISH ---- */

SW_KERNEL(SMALL) void stats_finish(struct gpu_stats_finish_args args)
{
    SW_SHARED(struct exact_words, words);
    if (args.skip && *args.skip != 0) {
        return;
    }
    exact_settled(args.stats, &words, 1);
    if (thread_index() == 0) {
        const bool overflow = words.word[GPU_EXACT_WORDS] > 0;
        const double norm =
            overflow ? (double)INFINITY : sqrt(exact_value(words.word)) * *args.grad_factor;
        const double factor = args.clip > 0 ? args.clip / (norm + 1e-6) : 1;
        *args.out_norm = norm;
        *args.out_clip = factor < 1 ? factor : 1;
        *args.out_skip = args.overflow_skips && overflow;
    }
}

/* ---- LAMB ---- */

/* Loads elements start .. of a gradient. */
SW_DEVICE void load_gradient(const struct gpu_streams &s, int64_t start, int n, float (&g)[GPU_RUN])
{
    unsigned bad;
    add_streams(s, start, n, g, &bad);
}
SW_DEVICE void load_gradient(const struct gpu_dense &s, int64_t start, int n, float (&g)[GPU_RUN])
{
    load_run_any(s.x, s.type, start, n, g);
}

/* Elements of a run, and those whose squares are added, the first ones. */
struct lamb_elems {
    int n, n_counted;
};

template <typename T>
SW_DEVICE void lamb_run(const struct gpu_param &p, const struct rule &u, int64_t start,
                        struct lamb_elems elems, float (&g)[GPU_RUN], double *of_w, double *of_u,
                        int (&n_bad)[2])
{
    const int n = elems.n;
    float w[GPU_RUN], m[GPU_RUN], v[GPU_RUN];
    load_master(p, (const T *)p.param, start, n, w);
    load_run((float *)p.moment[0] + start, n, m);
    load_run((float *)p.moment[1] + start, n, v);
    SW_UNROLL
    for (int e = 0; e < GPU_RUN; e++) {
        move_moments(u, gradient(u, g[e]), &m[e], &v[e]);
        g[e] = lamb_direction(u, w[e], m[e], v[e]);
    }
    store_run((float *)p.moment[0] + start, n, m);
    store_run((float *)p.moment[1] + start, n, v);
    *of_w = squares(w, elems.n_counted, &n_bad[0]);
    *of_u = squares(g, elems.n_counted, &n_bad[1]);
}

typedef exact_block<2, THREADS> lamb_block;

/* Updates the moments of runs first, first + stride, .. of THREADS * LAMB_RUNS. The block's words
 * get the sums of squares of the weights and of their directions. */
template <typename T, typename G>
SW_DEVICE void move_all_moments(lamb_block *block, const struct gpu_param &p, const G &source,
                                const struct rule &u, int64_t n, int64_t n_counted, int64_t first,
                                int64_t stride)
{
    const int64_t n_runs = (n + GPU_RUN - 1) / GPU_RUN;
    struct exact_words *words = block->warp[warp_index()];
    int n_bad[2] = {};
    exact_begin(block);
    for (int64_t base = first; base < n_runs; base += stride) {
        double of_w[LAMB_RUNS] = {}, of_u[LAMB_RUNS] = {};
        SW_UNROLL
        for (int r = 0; r < LAMB_RUNS; r++) {
            const int64_t start = (base + r * THREADS + thread_index()) * GPU_RUN;
            if (start < n) {
                const int n_here = n - start < GPU_RUN ? (int)(n - start) : (int)GPU_RUN;
                const int64_t counted = n_counted - start;
                float g[GPU_RUN];
                load_gradient(source, start, n_here, g);
                lamb_run<T>(p, u, start,
                            {n_here, counted < 0        ? 0
                                     : counted < n_here ? (int)counted
                                                        : n_here},
                            g, &of_w[r], &of_u[r], n_bad);
            }
        }
        exact_add_warp(words[0].word, of_w);
        exact_add_warp(words[1].word, of_u);
    }
    SW_UNROLL
    for (int set = 0; set < 2; set++) {
        const int sum = warp_sum(n_bad[set]);
        if (lane_index() == 0) {
            words[set].word[GPU_EXACT_WORDS] = sum;
        }
    }
}

template <typename T> SW_KERNEL(THREADS, 2) void lamb_moments(struct gpu_lamb_moments_args args)
{
    SW_SHARED(lamb_block, block);
    if (args.skip && *args.skip != 0) {
        return;
    }
    const struct rule u = rule_of(args.rule, args.rates);
    move_all_moments<T>(&block, args.param, args.streams, u, args.n, args.n_counted,
                        block_x() * THREADS * LAMB_RUNS, grid_threads() * LAMB_RUNS);
    exact_end(&block, args.norms);
}

/* NaN if an element is not finite. */
SW_DEVICE double norm_of(const struct exact_words &words)
{
    return words.word[GPU_EXACT_WORDS] > 0 ? (double)NAN : sqrt(exact_value(words.word));
}

SW_DEVICE double trust_ratio(const struct gpu_rule &attrs, double of_w, double of_u)
{
    if (of_w == 0 || of_u == 0) {
        return 1;
    }
    double ratio = of_w / of_u; /* NaN passes the comparisons */
    ratio = ratio > attrs.max_coeff ? attrs.max_coeff : ratio;
    return ratio < attrs.min_coeff ? attrs.min_coeff : ratio;
}

/* Both norms, and the step that follows from them. */
struct lamb_rates {
    double ratio;
    float step;
};
SW_DEVICE struct lamb_rates lamb_rates_of(const struct gpu_rule &attrs,
                                          const struct gpu_rates &rates, const double *norm)
{
    struct lamb_rates r;
    r.ratio = trust_ratio(attrs, norm[0], norm[1]);
    r.step = (float)(step_rates_of(attrs, rates).step_size * r.ratio);
    return r;
}

/* Updates elements first, first + stride, .., PART at a time. */
template <typename T>
SW_DEVICE void lamb_step(const struct gpu_param &p, const struct rule &u, float step, int64_t n_all,
                         int64_t first, int64_t stride)
{
    T *param = (T *)p.param;
    for (int64_t i = first * PART; i < n_all; i += stride * PART) {
        const int n = part_of(i, n_all);
        float w[PART], m[PART], v[PART];
        load_master(p, (const T *)param, i, n, w);
        load_run((float *)p.moment[0] + i, n, m);
        load_run((float *)p.moment[1] + i, n, v);
        SW_UNROLL
        for (int e = 0; e < PART; e++) {
            w[e] = w[e] - step * lamb_direction(u, w[e], m[e], v[e]);
        }
        store_master(p, param, i, n, w);
    }
}

struct lamb_shared {
    struct exact_words words[2];
    double norm[2];
};

template <typename T> SW_KERNEL(THREADS) void lamb_apply(struct gpu_lamb_apply_args args)
{
    SW_SHARED(struct lamb_shared, shared);
    if (args.skip && *args.skip != 0) {
        return;
    }
    exact_settled(args.norms, shared.words, 2);
    if (lane_index() == 0 && warp_index() < 2) {
        shared.norm[warp_index()] = norm_of(shared.words[warp_index()]);
    }
    sync_block();
    const struct rule u = rule_of(args.rule, args.rates);
    const struct lamb_rates r = lamb_rates_of(args.rule, args.rates, shared.norm);
    lamb_step<T>(args.param, u, r.step, args.n, first_element(), grid_threads());
    if (block_x() == 0 && thread_index() == 0) {
        *args.ratio = (float)r.ratio;
    }
}

struct lamb_many_shared {
    lamb_block block;
    double norm[2];
};

template <typename T> SW_KERNEL(THREADS, 2) void lamb_many(struct gpu_lamb_many_args by_value)
{
    SW_SHARED(struct lamb_many_shared, shared);
    const struct gpu_lamb_many_args &args = in_place(by_value);
    if (args.skip && *args.skip != 0) {
        return;
    }
    const struct gpu_lamb_item &item = args.item[block_x()];
    const struct rule u = rule_of(args.rule, args.rates);
    move_all_moments<T>(&shared.block, item.param, item.g, u, item.n, item.n, 0,
                        THREADS * LAMB_RUNS);
    exact_end_here(&shared.block);
    const struct exact_words *sums = shared.block.sum;
    for (int i = thread_index(); item.norms && i < 2 * (int)GPU_STATS_WORDS; i += THREADS) {
        item.norms[i] = sums[i / GPU_STATS_WORDS].word[i % GPU_STATS_WORDS];
    }
    if (!item.ratio) {
        return;
    }
    if (lane_index() == 0 && warp_index() < 2) {
        shared.norm[warp_index()] = norm_of(sums[warp_index()]);
    }
    sync_block(); /* other threads have also written their moments */
    const struct lamb_rates r = lamb_rates_of(args.rule, args.rates, shared.norm);
    lamb_step<T>(item.param, u, r.step, item.n, thread_index(), THREADS);
    if (thread_index() == 0) {
        *item.ratio = (float)r.ratio;
    }
}

SW_KERNEL(SMALL) void lamb_add_norms(struct gpu_lamb_add_norms_args args)
{
    struct sets {
        struct exact_words set[2];
    };
    SW_SHARED(struct sets, sum);
    if (args.skip && *args.skip != 0) {
        return;
    }
    for (int i = thread_index(); i < 2 * (int)GPU_STATS_WORDS; i += SMALL) {
        sum.set[i / GPU_STATS_WORDS].word[i % GPU_STATS_WORDS] = args.norms[i] + args.more[i];
    }
    sync_block();
    if (thread_index() < 2) {
        exact_carry(sum.set[thread_index()].word);
    }
    sync_block();
    for (int i = thread_index(); i < 2 * (int)GPU_STATS_WORDS; i += SMALL) {
        args.norms[i] = sum.set[i / GPU_STATS_WORDS].word[i % GPU_STATS_WORDS];
    }
}

static const struct sw_gpu_kernel rows[] = {
    SW_PLAIN(reset_words, SMALL),       SW_PLAIN(grad_stats, THREADS),
    SW_PLAIN(grad_stats_many, THREADS), SW_PLAIN(grad_stats_rows, THREADS),
    SW_PLAIN(stats_finish, SMALL),      SW_FLOATS(lamb_moments, THREADS),
    SW_FLOATS(lamb_apply, THREADS),     SW_FLOATS(lamb_many, THREADS),
    SW_PLAIN(lamb_add_norms, SMALL)};
const struct sw_gpu_kernels sw_gpu_kernels_stats = {rows, SW_ROWS(rows)};
