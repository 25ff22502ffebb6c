// SPDX-License-Identifier: Apache-2.0
// Softmax cross entropy: what a row's logits come to is gathered as they are made, a run of columns
// after the other (two-term online softmax), each run by all threads of a block in an order that
// its length alone decides. A label of IGNORED takes no part; any other one that no column has
// makes the loss NaN.
#include "device/gpu/module/registry.h"

enum { THREADS = 256, IGNORED = -100 };

struct softmax {
    float max, sum; /* of exponentials under max */
};

SW_DEVICE struct softmax join(struct softmax a, struct softmax b)
{
    if (b.max > a.max) {
        return {b.max, a.sum * expf(a.max - b.max) + b.sum};
    }
    /* Equal ones may both be -inf, of no logits at all. */
    return {a.max, b.max == a.max ? a.sum + b.sum : a.sum + b.sum * expf(b.max - a.max)};
}

/* A product becomes a logit. */
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
        /* The lower lane's first, for both: the same sum. */
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

SW_KERNEL(THREADS) void loss_rows(struct gpu_loss_rows_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t r = first_element(); r < args.rows; r += grid_threads()) {
        const float lse = args.state[args.rows + r] + logf(args.state[2 * args.rows + r]);
        args.loss[r] = lse - args.state[r];
        if (args.lse) {
            args.lse[r] = lse;
        }
    }
}

struct sum_shared {
    double sum[THREADS], count[THREADS];
};

SW_KERNEL(THREADS) void loss_sum(struct gpu_loss_sum_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    SW_SHARED(struct sum_shared, s);
    const int t = thread_index();
    double sum = 0, count = 0;
    for (int64_t r = t; r < args.rows; r += THREADS) {
        if (args.labels[r] != IGNORED) {
            sum += (double)args.loss[r];
            count += 1;
        }
    }
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
        *args.sum = (float)s.sum[0];
        *args.count = (float)s.count[0];
    }
}

template <typename T> SW_KERNEL(THREADS) void loss_slope(struct gpu_loss_slope_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t row = block_x();
    const int32_t label = args.labels[row];
    const float lse = args.lse[row], dsum = *args.dsum;
    for (int64_t j = thread_index(); j < args.n; j += THREADS) {
        const float product = load_any(args.logits, args.logits_type, row * args.ld + j);
        const float x = logit_of(product, args.bias, args.bias_type, j, args.cap);
        const float t = args.cap > 0 ? x / args.cap : 0.0f;
        const float d = expf(x - lse) - (args.first + j == label ? 1.0f : 0.0f);
        store((T *)args.d, row * args.ld_d + j, label == IGNORED ? 0.0f : d * dsum * (1 - t * t));
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
    SW_FLOATS(loss_stats, THREADS), SW_PLAIN(loss_rows, THREADS), SW_PLAIN(loss_sum, THREADS),
    SW_FLOATS(loss_slope, THREADS), SW_FLOATS(loss_bias, THREADS)};
extern const struct sw_gpu_kernels sw_gpu_kernels_loss;
const struct sw_gpu_kernels sw_gpu_kernels_loss = {rows, SW_ROWS(rows)};
