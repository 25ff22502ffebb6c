// SPDX-License-Identifier: Apache-2.0
// Adafactor, with the CPU's bits (cpu/ref_adafactor.inc has the formulas): exact sums over rows and
// columns, the new means, and the step.
#include "device/gpu/module/registry.h"
#include "device/gpu/module/update.h"

enum { THREADS = GPU_UPDATE_THREADS, WARPS = THREADS / SW_WARP, PART = GPU_UPDATE_PART };
enum { ROW_RUNS = GPU_ADAFACTOR_RUNS, RUNS = 2, LINES = GPU_ADAFACTOR_LINES };

/* Loads elements start .. start+n-1. */
template <int N>
SW_DEVICE void load_gradients(const struct gpu_adafactor &of, int64_t start, int n, float (&g)[N])
{
    const float factor = (float)(*of.grad_factor * *of.clip);
    unsigned bad;
    add_streams(of.streams, start, n, g, &bad);
    SW_UNROLL
    for (int e = 0; e < N; e++) {
        g[e] = g[e] * factor;
    }
}

/* ---- sums over rows: a warp has some runs of one row ---- */

struct rows_shared {
    exact_block<1, THREADS> head;
    struct exact_words line[WARPS];
};

/* The sum of squares if it is finite; otherwise 0, and *n_bad counts it. */
SW_DEVICE double fitting(double sum, int *n_bad)
{
    const bool fits = sum < 0x1p640;
    *n_bad += !fits;
    return fits ? sum : 0;
}

/* Adds elements start .. start+n-1 of one run: weights, gradients. */
template <typename T>
SW_DEVICE void add_run(const struct gpu_adafactor_rows_args &args, int64_t start, int n,
                       double *of_w, double *of_g, int (&n_bad)[2])
{
    float w[GPU_RUN], g[GPU_RUN];
    double sum_w = 0, sum_g = 0;
    load_gradients(args.of, start, n, g);
    load_master(args.param, (const T *)args.param.param, start, n, w);
    SW_UNROLL
    for (int e = 0; e < GPU_RUN; e++) {
        if (e < n) {
            sum_w += (double)w[e] * (double)w[e];
            sum_g += (double)g[e] * (double)g[e];
        }
    }
    *of_w = fitting(sum_w, &n_bad[0]);
    *of_g = args.lines ? fitting(sum_g, &n_bad[1]) : 0;
}

/* Adds the warp's part of a line to the line. */
SW_DEVICE void put_line(struct exact_words *from, int64_t *line)
{
    sync_warp();
    for (int i = lane_index(); i < GPU_EXACT_WORDS; i += SW_WARP) {
        if (from->word[i] != 0) {
            atomic_add((unsigned long long *)&line[i], (unsigned long long)from->word[i]);
            from->word[i] = 0;
        }
    }
    sync_warp();
}

template <typename T>
SW_DEVICE void add_chunk(const struct gpu_adafactor_rows_args &args, int64_t item,
                         struct rows_shared *shared, int (&n_bad)[2])
{
    const struct gpu_adafactor &of = args.of;
    const int64_t row = args.first_row + quotient(item, args.n_chunks);
    const int64_t chunk = item - (row - args.first_row) * args.n_chunks;
    const int64_t at = row * of.columns - of.origin, begin = at > 0 ? at : 0;
    const int64_t end = at + of.columns < of.n ? at + of.columns : of.n;
    double of_w[ROW_RUNS] = {}, of_g[ROW_RUNS] = {};
    SW_UNROLL
    for (int r = 0; r < ROW_RUNS; r++) {
        const int64_t run = begin / GPU_RUN + (chunk * ROW_RUNS + r) * SW_WARP + lane_index();
        const int64_t start = run * GPU_RUN > begin ? run * GPU_RUN : begin;
        const int64_t stop = (run + 1) * GPU_RUN < end ? (run + 1) * GPU_RUN : end;
        if (start < stop) {
            add_run<T>(args, start, (int)(stop - start), &of_w[r], &of_g[r], n_bad);
        }
    }
    exact_add_warp(shared->head.warp[warp_index()][0].word, of_w);
    if (args.lines) {
        exact_add_warp(shared->line[warp_index()].word, of_g);
        put_line(&shared->line[warp_index()], args.lines + row * GPU_LINE_WORDS);
    }
}

template <typename T>
SW_KERNEL(THREADS, 2)
void adafactor_rows(struct gpu_adafactor_rows_args value)
{
    SW_SHARED(struct rows_shared, shared);
    const struct gpu_adafactor_rows_args &args = in_place(value);
    if (skipped(args.skip)) {
        return;
    }
    for (int i = lane_index(); i < GPU_STATS_WORDS; i += SW_WARP) {
        shared.line[warp_index()].word[i] = 0;
    }
    exact_begin(&shared.head);
    int n_bad[2] = {};
    for (int64_t item = block_x() * WARPS + warp_index(); item < args.n_here * args.n_chunks;
         item += grid_x() * WARPS) {
        add_chunk<T>(args, item, &shared, n_bad);
    }
    SW_UNROLL
    for (int k = 0; k < 2; k++) {
        const int sum = warp_sum(n_bad[k]);
        if (lane_index() == 0) {
            shared.head.warp[warp_index()][0].word[GPU_EXACT_WORDS + k] = sum;
        }
    }
    exact_put(&shared.head, args.words);
}

/* ---- sums over columns: a thread has some rows of one column ---- */

/* An element if it is on this rank and finite; else 0: the rows have counted it. */
SW_DEVICE float element_at(const struct gpu_adafactor &of, int64_t at)
{
    float g[1] = {};
    if (at >= 0 && at < of.n) {
        load_gradients(of, at, 1, g);
    }
    return is_finite(g[0]) ? g[0] : 0;
}

/* Adds the squares of n <= GPU_ADAFACTOR_ROWS elements of a column, the first one at `at`, exactly
 * in doubles. Each square is split at two places below the largest. The parts of all rows are then
 * multiples of one power of two, and few enough to add without error. The remainder of the smallest
 * squares goes into the accumulator by itself. */
SW_DEVICE void add_column(const struct gpu_adafactor &of, int64_t at, int n, int64_t *line)
{
    /* extra bits of sums over their parts; distance of the places */
    enum { MORE = 7, NEXT = 53 - MORE };
    static_assert(GPU_ADAFACTOR_ROWS <= 1 << MORE, "sums of all rows are exact");
    float most = 0x1p-140f;
    for (int i = 0; i < n; i++) {
        const float size = fabsf(element_at(of, at + i * of.columns));
        most = size > most ? size : most;
    }
    /* most is below 2^(exponent + 1) */
    const int exponent = (int)(bits_of((double)most) >> 52) - 1023;
    int place = 2 * exponent + 2 + MORE;
    double sum = 0, sum_of_next = 0;
    for (int i = 0; i < n; i++) {
        const double g = (double)element_at(of, at + i * of.columns), x = g * g;
        SW_HERE(place);
        const double cut = 1.5 * power_of_2(place), next = 1.5 * power_of_2(place - NEXT);
        const double high = (x + cut) - cut, rest = x - high;
        const double low = (rest + next) - next;
        sum += high;
        sum_of_next += low;
        if (rest != low) {
            exact_add_among_others(line, rest - low);
        }
    }
    exact_add_among_others(line, sum);
    exact_add_among_others(line, sum_of_next);
}

SW_KERNEL(THREADS) void adafactor_columns(struct gpu_adafactor_columns_args value)
{
    const struct gpu_adafactor_columns_args &args = in_place(value);
    if (skipped(args.skip)) {
        return;
    }
    const struct gpu_adafactor &of = args.of;
    const int64_t n_chunks = (args.n_here + GPU_ADAFACTOR_ROWS - 1) / GPU_ADAFACTOR_ROWS;
    for (int64_t i = first_element(); i < args.n_items; i += grid_threads()) {
        const int64_t item = quotient(i, of.columns), column = i - item * of.columns;
        const int64_t m = quotient(item, n_chunks), chunk = item - m * n_chunks;
        const int64_t matrix = args.first_matrix + m, done = chunk * GPU_ADAFACTOR_ROWS;
        const int64_t row = matrix * of.rows + args.first_row + done, left = args.n_here - done;
        add_column(of, row * of.columns + column - of.origin,
                   left < GPU_ADAFACTOR_ROWS ? (int)left : (int)GPU_ADAFACTOR_ROWS,
                   args.lines + (matrix * of.columns + column) * GPU_LINE_WORDS);
    }
}

/* ---- lines ---- */

struct lines_shared {
    int64_t line[LINES][GPU_LINE_WORDS];
    struct exact_words head;
};

/* Loads this block's lines into shared memory and settles their carries. Returns their number. */
SW_DEVICE int take_lines(const int64_t *lines, int64_t n_lines, struct lines_shared *shared)
{
    const int64_t first = block_x() * LINES, left = n_lines - first;
    const int n = left < LINES ? (int)left : (int)LINES;
    for (int i = thread_index(); i < n * GPU_LINE_WORDS; i += LINES) {
        shared->line[i / GPU_LINE_WORDS][i % GPU_LINE_WORDS] = lines[first * GPU_LINE_WORDS + i];
    }
    sync_block();
    if (thread_index() < n) {
        exact_carry(shared->line[thread_index()]);
    }
    return n;
}

/* Address of a line's kept mean; NULL: not on this rank. */
SW_DEVICE float *place_of(const struct gpu_adafactor_lines &of, int64_t line)
{
    const bool is_row = line < of.n_rows;
    const int64_t here = is_row ? of.n_kept_rows : of.n_kept_columns;
    const int64_t at = (is_row ? line : line - of.n_rows) - of.slice * here;
    return at >= 0 && at < here ? (is_row ? of.rows : of.columns) + at : nullptr;
}

SW_KERNEL(LINES) void adafactor_settle(struct gpu_adafactor_settle_args args)
{
    SW_SHARED(struct lines_shared, shared);
    if (skipped(args.skip)) {
        return;
    }
    int64_t *lines = args.words + GPU_STATS_WORDS;
    const int n = take_lines(lines, args.of.n_rows + args.of.n_columns, &shared);
    if (thread_index() < n) {
        const float *kept = place_of(args.of, block_x() * LINES + thread_index());
        shared.line[thread_index()][GPU_EXACT_WORDS] = kept ? (int64_t)bits_of((double)*kept) : 0;
    }
    sync_block();
    for (int i = thread_index(); i < n * GPU_LINE_WORDS; i += LINES) {
        lines[block_x() * LINES * GPU_LINE_WORDS + i] =
            shared.line[i / GPU_LINE_WORDS][i % GPU_LINE_WORDS];
    }
    if (block_x() == 0) {
        exact_settled(args.words, &shared.head, 1);
        for (int i = thread_index(); i < GPU_EXACT_WORDS; i += LINES) {
            args.words[i] = shared.head.word[i];
        }
    }
}

SW_KERNEL(LINES) void adafactor_means(struct gpu_adafactor_means_args args)
{
    SW_SHARED(struct lines_shared, shared);
    if (skipped(args.skip)) {
        return;
    }
    const int n =
        take_lines(args.words + GPU_STATS_WORDS, args.of.n_rows + args.of.n_columns, &shared);
    if (thread_index() >= n) {
        return;
    }
    const int64_t *words = shared.line[thread_index()], line = block_x() * LINES + thread_index();
    const bool is_row = line < args.of.n_rows;
    const bool is_bad = args.words[GPU_EXACT_WORDS + 1] > 0;
    const double elems = (double)(is_row ? args.row_elems : args.column_elems);
    const float mean = (float)((is_bad ? (double)NAN : exact_value(words) / elems) + args.eps);
    const float before = (float)of_bits((uint64_t)words[GPU_EXACT_WORDS]);
    const float now = (float)*args.kept * before + (float)(1 - *args.kept) * mean;
    float *kept = place_of(args.of, line);
    if (kept) {
        *kept = now;
    }
    args.factors[line] = is_row ? now : (float)(1 / sqrt((double)now));
}

struct factors_shared {
    float mean[THREADS];
    double sum;
};

/* Adds n numbers one after the other, by one thread, as the defined bits require. */
SW_DEVICE double sum_in_order(const float *x, int64_t n, struct factors_shared *shared)
{
    double sum = 0;
    for (int64_t first = 0; first < n; first += THREADS) {
        const int here = n - first < THREADS ? (int)(n - first) : (int)THREADS;
        sync_block(); /* the numbers before have been added */
        if (thread_index() < here) {
            shared->mean[thread_index()] = x[first + thread_index()];
        }
        sync_block();
        for (int i = 0; thread_index() == 0 && i < here; i++) {
            sum += (double)shared->mean[i];
        }
    }
    if (thread_index() == 0) {
        shared->sum = sum;
    }
    sync_block();
    return shared->sum;
}

SW_KERNEL(THREADS) void adafactor_factors(struct gpu_adafactor_factors_args args)
{
    SW_SHARED(struct factors_shared, shared);
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t m = block_x(); m < args.matrices; m += grid_x()) {
        float *rows = args.factors + m * args.rows;
        const double mean = sum_in_order(rows, args.rows, &shared) / (double)args.rows;
        for (int64_t i = thread_index(); i < args.rows; i += THREADS) {
            rows[i] = (float)(1 / sqrt((double)rows[i] / mean));
        }
    }
}

/* ---- directions: g times its factors ---- */

template <int N>
SW_DEVICE void scale_by_lines(const struct gpu_adafactor &of, const float *factors, int64_t start,
                              int n, float (&g)[N])
{
    const int64_t at = of.origin + start;
    int64_t row = quotient(at, of.columns), column = at - row * of.columns;
    const int64_t matrix = quotient(row, of.rows);
    const float *columns = factors + of.n_rows + matrix * of.columns;
    int64_t end = (matrix + 1) * of.rows;
    float of_row = factors[row];
    SW_UNROLL
    for (int e = 0; e < N; e++) {
        if (e < n) {
            if (column == of.columns) {
                row++;
                column = 0;
                columns += row == end ? of.columns : 0;
                end += row == end ? of.rows : 0;
                of_row = factors[row];
            }
            g[e] = g[e] * (of_row * columns[column]);
            column++;
        }
    }
}

template <int N>
SW_DEVICE void scale_gradients(const struct gpu_adafactor &of, const float *factors,
                               const float *square, int64_t start, int n, float (&g)[N])
{
    if (factors) {
        scale_by_lines(of, factors, start, n, g);
        return;
    }
    float v[N];
    load_run(square + start, n, v);
    SW_UNROLL
    for (int e = 0; e < N; e++) {
        g[e] = g[e] * (1 / sqrtf(v[e]));
    }
}

SW_DEVICE void move_squares(const struct gpu_adafactor_moments_args &args, int64_t start, int n,
                            const float (&g)[GPU_RUN])
{
    const float kept = (float)*args.kept, rest = (float)(1 - *args.kept), eps = (float)args.eps;
    float v[GPU_RUN];
    load_run((const float *)args.square + start, n, v);
    SW_UNROLL
    for (int e = 0; e < GPU_RUN; e++) {
        v[e] = kept * v[e] + rest * (g[e] * g[e] + eps);
    }
    store_run(args.square + start, n, v);
}

SW_KERNEL(THREADS, 2) void adafactor_moments(struct gpu_adafactor_moments_args value)
{
    typedef exact_block<1, THREADS> norm_block;
    SW_SHARED(norm_block, block);
    const struct gpu_adafactor_moments_args &args = in_place(value);
    if (skipped(args.skip)) {
        return;
    }
    const int64_t n_runs = (args.of.n + GPU_RUN - 1) / GPU_RUN;
    int n_bad = 0;
    exact_begin(&block);
    for (int64_t base = block_x() * THREADS * RUNS; base < n_runs; base += grid_threads() * RUNS) {
        double sums[RUNS] = {};
        SW_UNROLL
        for (int r = 0; r < RUNS; r++) {
            const int64_t start = (base + r * THREADS + thread_index()) * GPU_RUN;
            const int64_t left = args.of.n - start;
            if (left > 0) {
                const int n = left < GPU_RUN ? (int)left : (int)GPU_RUN;
                float g[GPU_RUN];
                load_gradients(args.of, start, n, g);
                if (!args.factors) {
                    move_squares(args, start, n, g);
                }
                scale_gradients(args.of, args.factors, args.square, start, n, g);
                sums[r] = squares(g, n, &n_bad);
            }
        }
        exact_add_warp(block.warp[warp_index()][0].word, sums);
    }
    exact_end_squares(&block, n_bad, args.norm);
}

/* ---- the step ---- */

/* RMS from stats without carries; NaN if an element is not finite. */
SW_DEVICE double rms_of(const struct exact_words &words, int64_t n)
{
    return words.word[GPU_EXACT_WORDS] > 0 ? (double)NAN
                                           : sqrt(exact_value(words.word) / (double)n);
}

struct adafactor_step {
    float size, decay; /* decay: 1 = none */
};

/* The same as sw_cpu_adafactor_step (cpu/adafactor.c). rms: of the weights, of u. */
SW_DEVICE struct adafactor_step step_of(const struct gpu_adafactor_apply_args &args,
                                        const double (&rms)[2])
{
    const double too_far = rms[1] / args.clip_threshold;
    double lr = step_rates_of(args.rule, args.rates).lr;
    if (args.scale_parameter) { /* NaN passes the comparisons */
        lr *= rms[0] < args.least_scale ? args.least_scale : rms[0];
    }
    struct adafactor_step step;
    step.size = (float)(too_far < 1 ? lr : lr / too_far);
    step.decay = (float)(1 - lr * args.rule.weight_decay);
    return step;
}

struct apply_shared {
    struct exact_words words[2];
    double rms[2];
    struct adafactor_step step;
};

/* Called by all threads of the block. */
SW_DEVICE void find_step(const struct gpu_adafactor_apply_args &args, struct apply_shared *shared)
{
    exact_settled(args.words, &shared->words[0], 1);
    exact_settled(args.norm, &shared->words[1], 1);
    if (lane_index() == 0 && warp_index() < 2) {
        shared->rms[warp_index()] = rms_of(shared->words[warp_index()], args.whole);
    }
    sync_block();
    if (thread_index() == 0) {
        shared->step = step_of(args, shared->rms);
    }
    sync_block();
}

template <typename T>
SW_KERNEL(THREADS, 4)
void adafactor_apply(struct gpu_adafactor_apply_args value)
{
    SW_SHARED(struct apply_shared, shared);
    const struct gpu_adafactor_apply_args &args = in_place(value);
    if (skipped(args.skip)) {
        return;
    }
    find_step(args, &shared);
    const struct rule u = rule_of(args.rule, args.rates);
    const struct adafactor_step step = shared.step;
    T *param = (T *)args.param.param;
    for (int64_t i = first_element() * PART; i < args.of.n; i += grid_threads() * PART) {
        const int n = part_of(i, args.of.n);
        float d[PART], w[PART], mean[PART];
        load_gradients(args.of, i, n, d);
        scale_gradients(args.of, args.factors, args.square, i, n, d);
        load_master(args.param, (const T *)param, i, n, w);
        if (args.mean) {
            load_run((const float *)args.mean + i, n, mean);
        }
        SW_UNROLL
        for (int e = 0; e < PART; e++) {
            d[e] = d[e] * step.size;
            d[e] = args.mean ? u.beta1 * mean[e] + u.one_minus_beta1 * d[e] : d[e];
            w[e] = w[e] * step.decay - d[e];
        }
        if (args.mean) {
            store_run(args.mean + i, n, d);
        }
        store_master(args.param, param, i, n, w);
    }
}

static const struct sw_gpu_kernel rows[] = {
    SW_FLOATS(adafactor_rows, THREADS),   SW_PLAIN(adafactor_columns, THREADS),
    SW_PLAIN(adafactor_settle, LINES),    SW_PLAIN(adafactor_means, LINES),
    SW_PLAIN(adafactor_factors, THREADS), SW_PLAIN(adafactor_moments, THREADS),
    SW_FLOATS(adafactor_apply, THREADS)};
const struct sw_gpu_kernels sw_gpu_kernels_adafactor = {rows, SW_ROWS(rows)};
