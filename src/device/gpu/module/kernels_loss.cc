// SPDX-License-Identifier: Apache-2.0
// Softmax cross entropy. A row's statistics are accumulated as its logits are made, one range of
// columns after the other (two-term online softmax). All threads of a block take a range, in an
// order that depends only on its length. Rows with the label IGNORED do not count; any other label
// without a column makes the loss NaN.
#include "device/gpu/module/registry.h"
#include "device/gpu/module/team.h"

enum { THREADS = 256, IGNORED = -100 };

struct softmax {
    float max, sum; /* sum: of exponentials relative to max */
};

SW_DEVICE struct softmax join(struct softmax a, struct softmax b)
{
    if (b.max > a.max) {
        return {b.max, a.sum * expf(a.max - b.max) + b.sum};
    }
    /* Equal maxima may both be -inf, if there are no logits at all. */
    return {a.max, b.max == a.max ? a.sum + b.sum : a.sum + b.sum * expf(b.max - a.max)};
}

/* Turns a product into a logit. */
SW_DEVICE float logit_of(float product, const void *bias, int bias_type, int64_t column, float cap)
{
    const float z = bias ? product + load_any(bias, bias_type, column) : product;
    return cap > 0 ? cap * tanhf(z / cap) : z;
}

struct stats_shared {
    struct softmax warps[THREADS / SW_WARP];
    float label;
};

template <typename T> SW_KERNEL(THREADS) void loss_stats(struct gpu_loss_stats_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    SW_SHARED(struct stats_shared, s);
    const T *logits = (const T *)args.logits + block_x() * args.ld;
    const int64_t row = args.row + block_x(), hit = args.labels[row] - args.first;
    struct softmax mine = {-INFINITY, 0};
    for (int64_t j = thread_index(); j < args.n; j += THREADS) {
        const float x = logit_of(load(logits, j), args.bias, args.bias_type, j, args.cap);
        if (x > mine.max) {
            mine.sum = mine.sum * expf(mine.max - x) + 1;
            mine.max = x;
        } else {
            mine.sum += x == mine.max ? 1.0f : expf(x - mine.max); /* both may be -inf */
        }
        if (j == hit) {
            s.label = x;
        }
    }
    for (int mask = SW_WARP / 2; mask > 0; mask /= 2) {
        const struct softmax other = {shuffle_xor(mine.max, mask), shuffle_xor(mine.sum, mask)};
        /* Both lanes join the lower lane's first, so that they get the same sum. */
        mine = lane_index() & mask ? join(other, mine) : join(mine, other);
    }
    if (lane_index() == 0) {
        s.warps[warp_index()] = mine;
    }
    sync_block();
    if (thread_index() == 0) {
        struct softmax all = s.warps[0];
        for (int w = 1; w < THREADS / SW_WARP; w++) {
            all = join(all, s.warps[w]);
        }
        float label = of_bits(0x7fc00000u);
        if (args.before) {
            label = args.before[row];
            all = join({args.before[args.rows + row], args.before[2 * args.rows + row]}, all);
        }
        args.state[row] = hit >= 0 && hit < args.n ? s.label : label;
        args.state[args.rows + row] = all.max;
        args.state[2 * args.rows + row] = all.sum;
    }
}

SW_KERNEL(THREADS) void loss_merge(struct gpu_loss_merge_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t r = first_element(); r < args.rows; r += grid_threads()) {
        float label = of_bits(0x7fc00000u);
        struct softmax all = {-INFINITY, 0};
        float total = 0;
        for (int64_t k = 0; k < args.n; k++) {
            const float *part = args.parts + args.per * k * args.rows + r;
            label = part[0] == part[0] ? part[0] : label;
            all = join(all, {part[args.rows], part[2 * args.rows]});
            total += args.totals ? part[3 * args.rows] : 0.0f;
        }
        if (args.totals) {
            args.totals[r] = total;
        }
        args.state[r] = label;
        args.state[args.rows + r] = all.max;
        args.state[2 * args.rows + r] = all.sum;
    }
}

SW_KERNEL(THREADS) void loss_rows(struct gpu_loss_rows_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t r = first_element(); r < args.rows; r += grid_threads()) {
        const float lse = args.state[args.rows + r] + logf(args.state[2 * args.rows + r]);
        args.loss[r] = args.totals
                           ? lse - (1 - args.smoothing) * args.state[r] - args.each * args.totals[r]
                           : lse - args.state[r];
        if (args.lse) {
            args.lse[r] = lse;
        }
    }
}

struct sum_shared {
    double sum[THREADS], count[THREADS];
};

/* Sums over the threads of the block, by halving. */
SW_DEVICE void add_up(struct sum_shared &s, double sum, double count, float *out_sum,
                      float *out_count)
{
    const int t = thread_index();
    s.sum[t] = sum;
    s.count[t] = count;
    sync_block();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (t < half) {
            s.sum[t] += s.sum[t + half];
            s.count[t] += s.count[t + half];
        }
        sync_block();
    }
    if (t == 0) {
        *out_sum = (float)s.sum[0];
        *out_count = (float)s.count[0];
    }
}

SW_KERNEL(THREADS) void loss_sum(struct gpu_loss_sum_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    SW_SHARED(struct sum_shared, s);
    double sum = 0, count = 0;
    for (int64_t r = thread_index(); r < args.rows; r += THREADS) {
        if (args.labels[r] != IGNORED && (args.beyond == 0 || args.labels[r] < args.beyond)) {
            sum += (double)args.loss[r];
            count += 1;
        }
    }
    add_up(s, sum, count, args.sum, args.count);
}

SW_KERNEL(THREADS) void loss_each(struct gpu_loss_each_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t r = first_element(); r < args.rows; r += grid_threads()) {
        const bool counts = args.labels[r] != IGNORED;
        args.out[r] = counts ? args.loss[r] : 0.0f;
        args.count[r] = counts ? 1.0f : 0.0f;
    }
}

template <typename T> SW_KERNEL(THREADS) void loss_slope(struct gpu_loss_slope_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t row = block_x();
    const int32_t label = args.labels[row];
    const float lse = args.lse[row], dsum = args.dsum[row * args.dsum_step];
    const bool counts = label != IGNORED && (args.beyond == 0 || label < args.beyond);
    for (int64_t j = thread_index(); j < args.n; j += THREADS) {
        const float product = load_any(args.logits, args.logits_type, row * args.ld + j);
        const float x = logit_of(product, args.bias, args.bias_type, j, args.cap);
        const float t = args.cap > 0 ? x / args.cap : 0.0f;
        const float hot = args.first + j == label ? 1.0f - args.smoothing : 0.0f;
        const float d = expf(x - lse) - args.smooth - hot;
        store((T *)args.d, row * args.ld_d + j, counts ? d * dsum * (1 - t * t) : 0.0f);
    }
    for (int64_t j = thread_index(); j < args.padding; j += THREADS) {
        store((T *)args.d, row * args.ld_d + args.n + j, 0.0f);
    }
}

template <typename T> SW_KERNEL(THREADS) void loss_total(struct gpu_loss_total_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    SW_SHARED(struct team_scratch<THREADS>, scratch);
    float sum = 0;
    for (int64_t j = thread_index(); j < args.n; j += THREADS) {
        sum += load((const T *)args.logits, block_x() * args.ld + j);
    }
    sum = team_sum(sum, THREADS, scratch);
    if (thread_index() == 0) {
        args.totals[block_x()] = sum;
    }
}

template <typename T> SW_KERNEL(THREADS) void element_loss(struct gpu_element_loss_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    SW_SHARED(struct sum_shared, s);
    double sum = 0, count = 0;
    for (int64_t i = thread_index(); i < args.n; i += THREADS) {
        const float x = load((const T *)args.x, i), target = args.target[i];
        const float apart = x - target;
        if (target == target) {
            sum += (double)(args.binary ? (x > 0 ? x : 0) - x * target + log1pf(expf(-fabsf(x)))
                                        : apart * apart);
            count += 1;
        }
    }
    add_up(s, sum, count, args.sum, args.count);
}

template <typename T> SW_KERNEL(THREADS) void element_loss_grad(struct gpu_element_loss_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const float dsum = *args.dsum;
    for (int64_t i = first_element(); i < args.n; i += grid_threads()) {
        const float x = load((const T *)args.x, i), target = args.target[i];
        const float d = args.binary ? 1 / (1 + expf(-x)) - target : 2 * (x - target);
        store_any(args.dx, args.out_type, i, target == target ? dsum * d : 0.0f);
    }
}

template <typename T> SW_KERNEL(THREADS) void loss_bias(struct gpu_loss_bias_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t across = (args.n + THREADS - 1) / THREADS;
    const int64_t block = block_x() / across,
                  column = block_x() % across * THREADS + thread_index();
    const int64_t first = block * args.block;
    const int64_t end = first + args.block < args.rows ? first + args.block : args.rows;
    if (column < args.n) {
        float sum = 0;
        for (int64_t r = first; r < end; r++) {
            sum += load((const T *)args.d, r * args.ld_d + column);
        }
        args.sums[block * args.n + column] = sum;
    }
}

static const struct sw_gpu_kernel rows[] = {
    SW_FLOATS(loss_stats, THREADS),        SW_PLAIN(loss_rows, THREADS),
    SW_PLAIN(loss_sum, THREADS),           SW_FLOATS(loss_slope, THREADS),
    SW_FLOATS(loss_bias, THREADS),         SW_FLOATS(loss_total, THREADS),
    SW_PLAIN(loss_merge, THREADS),         SW_FLOATS(element_loss, THREADS),
    SW_FLOATS(element_loss_grad, THREADS), SW_PLAIN(loss_each, THREADS)};
const struct sw_gpu_kernels sw_gpu_kernels_loss = {rows, SW_ROWS(rows)};
