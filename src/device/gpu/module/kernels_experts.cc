// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts but for their products, and attention sinks, as defined in
// cpu/ref_experts.inc. A warp takes the scores of a token. Sums over tokens are those of blocks of
// tokens, which another kernel adds in order.
#include "device/gpu/module/pack.h"
#include "device/gpu/module/registry.h"
#include "device/gpu/module/team.h"

enum { THREADS = 256, WARPS = THREADS / SW_WARP };
enum { ROUTER_THREADS = GPU_ROUTER_WARPS * 32, ROUTER_WARPS = ROUTER_THREADS / SW_WARP };

/* The number of this warp in the grid; a block has WARPS of them. */
template <int N_WARPS> SW_DEVICE int64_t grid_warp()
{
    return block_x() * N_WARPS + warp_index();
}

/* ---- softmax of a token, by a warp ---- */

/* exp(x - most) / sum; most + log(sum) is log sum exp. */
struct row_softmax {
    float most, sum;
};

template <typename T> SW_DEVICE struct row_softmax softmax_of(const T *logits, int64_t width)
{
    struct row_softmax row = {-INFINITY, 0};
    for (int64_t e = lane_index(); e < width; e += SW_WARP) {
        const float x = load(logits, e);
        row.most = x > row.most ? x : row.most;
    }
    for (int mask = SW_WARP / 2; mask > 0; mask /= 2) {
        const float other = shuffle_xor(row.most, mask);
        row.most = other > row.most ? other : row.most;
    }
    for (int64_t e = lane_index(); e < width; e += SW_WARP) {
        row.sum += expf(load(logits, e) - row.most);
    }
    row.sum = warp_sum(row.sum);
    return row;
}

SW_DEVICE float probability(const struct row_softmax &row, float logit)
{
    return expf(logit - row.most) / row.sum;
}

/* scores: [width] of the warp's shared memory */
template <typename T>
SW_DEVICE void scores_of(const struct gpu_router_args &args, const T *logits, float *scores)
{
    if (args.sigmoid) {
        for (int64_t e = lane_index(); e < args.width; e += SW_WARP) {
            scores[e] = 1 / (1 + expf(-load(logits, e)));
        }
    } else {
        const struct row_softmax row = softmax_of(logits, args.width);
        for (int64_t e = lane_index(); e < args.width; e += SW_WARP) {
            scores[e] = probability(row, load(logits, e));
        }
    }
}

/* ---- the router ---- */

/* A NaN is larger than all numbers; of equal ones the first is better. */
SW_DEVICE bool is_better(float a, int at_a, float b, int at_b)
{
    const bool nan_a = a != a, nan_b = b != b;
    return nan_a || nan_b ? nan_a && (!nan_b || at_a < at_b) : a > b || (a == b && at_a < at_b);
}

/* The best of x [n], by a warp. */
SW_DEVICE int best_of(const float *x, int64_t n)
{
    int best = (int)n + lane_index(); /* a lane without elements loses */
    float value = -INFINITY;
    for (int e = lane_index(); e < n; e += SW_WARP) {
        if (is_better(x[e], e, value, best)) {
            value = x[e];
            best = e;
        }
    }
    for (int mask = SW_WARP / 2; mask > 0; mask /= 2) {
        const float other = shuffle_xor(value, mask);
        const int at = shuffle_xor(best, mask);
        if (is_better(other, at, value, best)) {
            value = other;
            best = at;
        }
    }
    return best;
}

/* The sum of the two best scores of a group, by a lane. */
SW_DEVICE float score_of_group(const float *own, int64_t n)
{
    int first = 0;
    float second = n > 1 ? -INFINITY : 0;
    for (int i = 1; i < n; i++) {
        first = is_better(own[i], i, own[first], first) ? i : first;
    }
    for (int i = 0; i < n; i++) {
        second = i != first && own[i] > second ? own[i] : second;
    }
    return own[first] + second;
}

/* x[at] = -infinity, by a warp. */
SW_DEVICE void take_out(float *x, int at)
{
    sync_warp();
    if (lane_index() == 0) {
        x[at] = -INFINITY;
    }
    sync_warp();
}

/* Takes out the experts of groups that are not kept. groups: [args.groups] */
SW_DEVICE void keep_groups(const struct gpu_router_args &args, float *choice, float *groups)
{
    const int64_t per = args.width / args.groups;
    sync_warp();
    for (int64_t g = lane_index(); g < args.groups; g += SW_WARP) {
        groups[g] = score_of_group(choice + g * per, per);
    }
    sync_warp();
    for (int64_t kept = 0; kept < args.kept; kept++) {
        take_out(groups, best_of(groups, args.groups));
    }
    for (int64_t e = lane_index(); e < args.width; e += SW_WARP) {
        if (groups[e / per] != -INFINITY) {
            choice[e] = -INFINITY;
        }
    }
}

template <typename T> SW_KERNEL(ROUTER_THREADS) void router(struct gpu_router_args args)
{
    SW_DYNAMIC_SHARED(shared);
    if (skipped(args.skip)) {
        return;
    }
    const int64_t n = grid_warp<ROUTER_WARPS>();
    if (n >= args.tokens) {
        return;
    }
    float *scores = (float *)shared + warp_index() * 3 * args.width;
    float *choice = scores + args.width, sum = 0;
    scores_of(args, (const T *)args.logits + n * args.width, scores);
    for (int64_t e = lane_index(); e < args.width; e += SW_WARP) {
        choice[e] = scores[e] + (args.bias ? load_any(args.bias, args.bias_type, e) : 0);
    }
    if (args.groups > 0) {
        keep_groups(args, choice, choice + args.width);
    }
    int32_t *experts = args.experts + n * args.k;
    sync_warp();
    for (int64_t j = 0; j < args.k; j++) {
        const int e = best_of(choice, args.width);
        sum += scores[e];
        take_out(choice, e);
        if (lane_index() == 0) {
            experts[j] = e;
        }
    }
    sum = args.normalise ? sum + (args.sigmoid ? 1e-20f : 0) : 1;
    for (int64_t j = 0; j < args.k && args.weights && lane_index() == 0; j++) {
        args.weights[n * args.k + j] = scores[experts[j]] / sum * args.scale;
    }
}

/* The gradient of a token's scores, of which only the chosen ones have one. */
SW_DEVICE void gradient_of_scores(const struct gpu_router_args &args, int64_t n,
                                  const float *scores, float *d)
{
    const int32_t *experts = args.chosen + n * args.k;
    const float *dweights = args.dweights + n * args.k;
    float sum = args.sigmoid ? 1e-20f : 0, dot = 0;
    for (int64_t j = 0; j < args.k; j++) {
        sum += scores[experts[j]];
    }
    sum = args.normalise ? sum : 1;
    for (int64_t j = 0; j < args.k && args.normalise; j++) {
        dot += dweights[j] * (scores[experts[j]] / sum);
    }
    for (int64_t j = 0; j < args.k; j++) {
        d[experts[j]] = (dweights[j] - dot) / sum * args.scale;
    }
}

template <typename T> SW_KERNEL(ROUTER_THREADS) void router_grad(struct gpu_router_args args)
{
    SW_DYNAMIC_SHARED(shared);
    if (skipped(args.skip)) {
        return;
    }
    const int64_t n = grid_warp<ROUTER_WARPS>();
    if (n >= args.tokens) {
        return;
    }
    float *scores = (float *)shared + warp_index() * 2 * args.width, *d = scores + args.width;
    scores_of(args, (const T *)args.logits + n * args.width, scores);
    for (int64_t e = lane_index(); e < args.width; e += SW_WARP) {
        d[e] = 0;
    }
    sync_warp();
    if (lane_index() == 0) {
        gradient_of_scores(args, n, scores, d);
    }
    sync_warp();
    float dot = 0;
    for (int64_t e = lane_index(); e < args.width; e += SW_WARP) {
        dot += d[e] * scores[e];
    }
    dot = warp_sum(dot);
    for (int64_t e = lane_index(); e < args.width; e += SW_WARP) {
        const float slope = args.sigmoid ? d[e] * (1 - scores[e]) : d[e] - dot;
        store((T *)args.dlogits, n * args.width + e, scores[e] * slope);
    }
}

/* ---- statistics and losses of routers ---- */

enum { OF_TOKENS, OF_SQUARES, OF_DROPPED, OF_MORE }; /* after the words of experts */

struct stats_block {
    struct row_softmax rows[GPU_STATS_TOKENS];
};

SW_DEVICE bool counts(const struct gpu_router_stats_args &args, int64_t n)
{
    return !args.mask || args.mask[n] != 0;
}

/* Word i of the sums of one token. */
template <typename T>
SW_DEVICE float stat_of(const struct gpu_router_stats_args &args, int64_t n,
                        const struct row_softmax &row, int64_t i)
{
    if (i >= args.width && i < 2 * args.width) {
        return probability(row, load((const T *)args.logits, n * args.width + i - args.width));
    }
    if (i == 2 * args.width + OF_TOKENS) {
        return 1;
    }
    if (i == 2 * args.width + OF_SQUARES) {
        const float z = row.most + logf(row.sum);
        return z * z;
    }
    int found = 0;
    for (int64_t j = n * args.k; j < (n + 1) * args.k; j++) {
        found += i < args.width ? args.experts[j] == i : args.slots[j] < 0;
    }
    return (float)found;
}

/* A block of threads has a block of tokens. */
template <typename T> SW_KERNEL(THREADS) void router_stats(struct gpu_router_stats_args args)
{
    SW_SHARED(struct stats_block, s);
    if (skipped(args.skip)) {
        return;
    }
    const int64_t first = block_x() * args.block, words = 2 * args.width + OF_MORE;
    const int64_t n = args.tokens - first < args.block ? args.tokens - first : args.block;
    for (int64_t t = warp_index(); t < n; t += WARPS) {
        const struct row_softmax row =
            softmax_of((const T *)args.logits + (first + t) * args.width, args.width);
        if (lane_index() == 0) {
            s.rows[t] = row;
        }
    }
    sync_block();
    for (int64_t i = thread_index(); i < words; i += THREADS) {
        float sum = 0;
        for (int64_t t = 0; t < n; t++) {
            sum += counts(args, first + t) ? stat_of<T>(args, first + t, s.rows[t], i) : 0;
        }
        args.sums[block_x() * words + i] = sum;
    }
}

template <typename T> SW_KERNEL(THREADS) void router_stats_grad(struct gpu_router_stats_args args)
{
    const int64_t n = grid_warp<WARPS>(), width = args.width;
    if (skipped(args.skip) || n >= args.tokens) {
        return;
    }
    const T *logits = (const T *)args.logits + n * width;
    const float *d = args.dstats + width; /* of probabilities */
    const struct row_softmax row = softmax_of(logits, width);
    float dot = 0;
    SW_ROLLED
    for (int64_t e = lane_index(); e < width; e += SW_WARP) {
        dot += probability(row, load(logits, e)) * d[e];
    }
    const float z = row.most + logf(row.sum);
    const float of_all = 2 * z * d[width + OF_SQUARES] - warp_sum(dot);
    const bool is_counted = counts(args, n);
    SW_ROLLED
    for (int64_t e = lane_index(); e < width; e += SW_WARP) {
        const float slope = probability(row, load(logits, e)) * (d[e] + of_all);
        store((T *)args.dlogits, n * width + e, is_counted ? slope : 0);
    }
}

/* One thread: there are few experts. */
SW_KERNEL(SW_WARP) void router_loss(struct gpu_router_loss_args args)
{
    if (skipped(args.skip) || thread_index() != 0) {
        return;
    }
    const float tokens = args.stats[2 * args.width + OF_TOKENS];
    float loss = 0;
    for (int64_t e = 0; e < args.width && tokens > 0; e++) {
        loss += args.stats[e] / tokens * (args.stats[args.width + e] / tokens);
    }
    loss *= (float)args.width;
    if (args.z && tokens > 0) {
        loss = args.stats[2 * args.width + OF_SQUARES] / tokens;
    }
    *args.sum = loss;
    if (args.count) {
        *args.count = tokens > 0;
    }
}

SW_KERNEL(THREADS) void router_loss_grad(struct gpu_router_loss_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t n = args.width;
    const float tokens = args.stats[2 * n + OF_TOKENS], inverse = tokens > 0 ? 1 / tokens : 0;
    const float dsum = tokens > 0 ? *args.dsum : 0;
    for (int64_t i = first_element(); i < 2 * n + OF_MORE; i += grid_threads()) {
        float d = 0;
        if (args.z) {
            d = i == 2 * n + OF_SQUARES ? dsum * inverse : 0;
        } else if (i >= n && i < 2 * n) {
            d = dsum * (float)n * (args.stats[i - n] * inverse) * inverse;
        }
        args.dstats[i] = d;
    }
}

/* One thread: there are few experts. */
SW_KERNEL(SW_WARP) void expert_loads(struct gpu_expert_loads_args args)
{
    if (skipped(args.skip) || thread_index() != 0) {
        return;
    }
    const int64_t n = args.n, own = n / args.ranks;
    float rows = 0, dropped = 0;
    for (int64_t r = 0; r < args.ranks; r++) {
        const int32_t *offsets = args.offsets + r * (own + 2);
        rows += (float)offsets[own];
        dropped += (float)offsets[own + 1];
    }
    float least = 1, most = 0, entropy = 0;
    for (int64_t e = 0; e < n; e++) {
        const int64_t r = quotient(e, own);
        const int32_t *at = args.offsets + r * (own + 2) + e - r * own;
        const float share = rows > 0 ? (float)(at[1] - at[0]) / rows : 0;
        least = share < least ? share : least;
        most = share > most ? share : most;
        entropy -= share > 0 ? share * logf(share) : 0;
    }
    const float sums[4] = {least * (float)n, most * (float)n, n > 1 ? entropy / logf((float)n) : 1,
                           dropped};
    for (int i = 0; i < 4; i++) {
        args.loads[2 * i] = sums[i];
        args.loads[2 * i + 1] = i == 3 ? rows + dropped : 1;
    }
}

/* ---- rows of experts ---- */

struct scan_scratch {
    int sums[WARPS];
};

/* The number of threads before this one in its block whose flag is 1; all: of the whole block. */
SW_DEVICE int count_before(int flag, struct scan_scratch &s, int *all)
{
    int sum = flag;
    for (int step = 1; step < SW_WARP; step *= 2) {
        const int other = shuffle(sum, lane_index() - step);
        sum += lane_index() >= step ? other : 0;
    }
    sync_block(); /* the previous sums have been read */
    if (lane_index() == SW_WARP - 1) {
        s.sums[warp_index()] = sum;
    }
    sync_block();
    int before = 0;
    *all = 0;
    for (int w = 0; w < WARPS; w++) {
        before += w < warp_index() ? s.sums[w] : 0;
        *all += s.sums[w];
    }
    return before + sum - flag;
}

/* First choices of all tokens come first, then second ones. */
SW_KERNEL(THREADS) void expert_choices(struct gpu_expert_rows_args args)
{
    SW_SHARED(struct scan_scratch, s);
    if (skipped(args.skip)) {
        return;
    }
    const int64_t all = args.tokens * args.k, e = block_x();
    int64_t found = 0;
    for (int64_t at = 0; at < all; at += THREADS) {
        const int64_t place = at + thread_index(), j = quotient(place, args.tokens);
        const int64_t i = (place - j * args.tokens) * args.k + j;
        const bool mine = place < all && args.experts[i] == e;
        int n;
        const int64_t before = found + count_before(mine, s, &n);
        if (mine) {
            args.slots[i] = before < args.most ? 0 : -1;
        }
        found += n;
    }
    if (thread_index() == 0) {
        const int64_t rows = found < args.most ? found : args.most;
        args.counts[e] = (int32_t)rows;
        args.counts[args.n + e] = (int32_t)(found - rows);
    }
}

/* The part of a rank: its experts, its offsets and its rows. */
struct rows_part {
    int64_t first, end; /* experts */
    int32_t *offsets;
    int64_t row;
};
SW_DEVICE struct rows_part part_of(const struct gpu_expert_rows_args &args, int64_t rank)
{
    const int64_t own = quotient(args.n, args.ranks);
    return {rank * own, (rank + 1) * own, args.offsets + rank * (own + 2), rank * args.rows};
}

/* The block of a part: rows of it that no choice has. */
SW_DEVICE void end_rows(const struct gpu_expert_rows_args &args, const struct rows_part &part,
                        int64_t used)
{
    if (thread_index() == 0) {
        int32_t dropped = 0;
        for (int64_t e = part.first; e < part.end; e++) {
            dropped += args.counts[args.n + e];
        }
        part.offsets[part.end - part.first] = (int32_t)used;
        part.offsets[part.end - part.first + 1] = dropped;
    }
    for (int64_t r = used + thread_index(); r < args.rows; r += THREADS) {
        args.sources[part.row + r] = -1;
    }
}

SW_KERNEL(THREADS) void expert_rows(struct gpu_expert_rows_args args)
{
    SW_SHARED(struct scan_scratch, s);
    if (skipped(args.skip)) {
        return;
    }
    const int64_t all = args.tokens * args.k, expert = block_x();
    const bool ends = expert >= args.n;
    const struct rows_part part =
        part_of(args, ends ? expert - args.n : quotient(expert * args.ranks, args.n));
    int64_t row = 0; /* the next one of the part */
    for (int64_t e = part.first; e < (ends ? part.end : expert); e++) {
        row += args.counts[e];
    }
    if (ends) {
        end_rows(args, part, row);
        return;
    }
    if (thread_index() == 0) {
        part.offsets[expert - part.first] = (int32_t)row;
    }
    for (int64_t at = 0; at < all; at += THREADS) {
        const int64_t i = at + thread_index();
        const bool mine = i < all && args.experts[i] == expert && args.slots[i] >= 0;
        int n;
        const int64_t slot = part.row + row + count_before(mine, s, &n);
        if (mine) {
            args.slots[i] = (int32_t)slot;
            args.sources[slot] = (int32_t)i;
        }
        row += n;
    }
}

/* ---- tokens to experts and back ---- */

/* A pack of a row that a thread has. */
struct row_pack {
    int64_t row, column;
    int n;
};
template <int N> SW_DEVICE struct row_pack pack_of(int64_t i, int64_t width)
{
    const int64_t per_row = (width + N - 1) / N, row = quotient(i, per_row);
    const int64_t column = (i - row * per_row) * N;
    return {row, column, width - column < N ? (int)(width - column) : N};
}
template <int N> SW_DEVICE int64_t packs(int64_t rows, int64_t width)
{
    return rows * ((width + N - 1) / N);
}

/* A row of an expert is that of its token, times a weight if there are some; 0 without a source. */
template <typename T> SW_KERNEL(THREADS) void to_experts(struct gpu_experts_move_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    constexpr int N = pack_elems<T>;
    const bool wide = aligned(args.x) && aligned(args.out) && args.width % N == 0;
    for (int64_t i = first_element(); i < packs<N>(args.rows, args.width); i += grid_threads()) {
        const struct row_pack p = pack_of<N>(i, args.width);
        const int32_t source = args.sources[p.row];
        const float weight = source >= 0 && args.weights ? args.weights[source] : 1;
        const int64_t from = source < 0 ? 0 : quotient(source, args.k) * args.width + p.column;
        float x[N];
        load_pack<N>((const T *)args.x, from, source < 0 ? 0 : p.n, wide, x);
        SW_UNROLL
        for (int e = 0; e < N; e++) {
            x[e] = weight * x[e];
        }
        store_pack<N>((T *)args.out, p.row * args.width + p.column, p.n, wide, x);
    }
}

template <typename T> SW_KERNEL(THREADS) void from_experts(struct gpu_experts_move_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    constexpr int N = pack_elems<T>;
    const bool wide = aligned(args.x) && aligned(args.out) && args.width % N == 0;
    for (int64_t i = first_element(); i < packs<N>(args.tokens, args.width); i += grid_threads()) {
        const struct row_pack p = pack_of<N>(i, args.width);
        float sum[N] = {};
        for (int64_t j = p.row * args.k; j < (p.row + 1) * args.k; j++) {
            const int32_t slot = args.slots[j];
            const float weight = args.weights ? args.weights[j] : 1;
            float y[N];
            if (slot < 0) {
                continue;
            }
            load_pack<N>((const T *)args.x, slot * args.width + p.column, p.n, wide, y);
            SW_UNROLL
            for (int e = 0; e < N; e++) {
                sum[e] += weight * y[e];
            }
        }
        store_pack<N>((T *)args.out, p.row * args.width + p.column, p.n, wide, sum);
    }
}

/* The gradient of a weight, by a warp: x has the tokens' rows, y those of experts. */
template <typename T>
SW_KERNEL(THREADS)
void from_experts_weights(struct gpu_experts_move_args args)
{
    const int64_t i = grid_warp<WARPS>();
    if (skipped(args.skip) || i >= args.tokens * args.k) {
        return;
    }
    const int64_t slot = args.slots[i];
    const T *x = (const T *)args.x + quotient(i, args.k) * args.width;
    const T *y = (const T *)args.y + slot * args.width;
    float dot = 0;
    for (int64_t c = lane_index(); c < args.width && slot >= 0; c += SW_WARP) {
        dot += load(x, c) * load(y, c);
    }
    dot = warp_sum(dot);
    if (lane_index() == 0) {
        args.dweights[i] = dot;
    }
}

/* ---- clamped gates ---- */

struct gate_pair {
    float gate, up; /* as they come */
    float g, u, s;  /* clamped; the sigmoid */
};
template <typename T>
SW_DEVICE struct gate_pair gate_of(const struct gpu_clamped_gate_args &args, int64_t i)
{
    struct gate_pair p = {load((const T *)args.x, 2 * i), load((const T *)args.x, 2 * i + 1), 0, 0,
                          0};
    p.g = p.gate > args.limit ? args.limit : p.gate;
    p.u = p.up > args.limit ? args.limit : p.up < -args.limit ? -args.limit : p.up;
    p.s = 1 / (1 + expf(-args.alpha * p.g));
    return p;
}

template <typename T> SW_KERNEL(THREADS) void clamped_gate(struct gpu_clamped_gate_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t i = first_element(); i < args.n; i += grid_threads()) {
        const struct gate_pair p = gate_of<T>(args, i);
        store((T *)args.out, i, p.g * p.s * (p.u + 1));
    }
}

template <typename T> SW_KERNEL(THREADS) void clamped_gate_grad(struct gpu_clamped_gate_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t i = first_element(); i < args.n; i += grid_threads()) {
        const struct gate_pair p = gate_of<T>(args, i);
        const float dy = load((const T *)args.dy, i);
        const float slope = p.s * (1 + args.alpha * p.g * (1 - p.s));
        store((T *)args.out, 2 * i, p.gate > args.limit ? 0 : dy * (p.u + 1) * slope);
        store((T *)args.out, 2 * i + 1,
              p.up > args.limit || p.up < -args.limit ? 0 : dy * p.g * p.s);
    }
}

/* ---- attention sinks ---- */

/* A warp has a head of a token. */
template <typename T> SW_KERNEL(THREADS) void attention_sink(struct gpu_sink_args args)
{
    const int64_t i = grid_warp<WARPS>();
    if (skipped(args.skip) || i >= args.batch * args.tokens * args.heads) {
        return;
    }
    const int64_t token = quotient(i, args.heads), h = i - token * args.heads;
    const int64_t b = quotient(token, args.tokens), t = token - b * args.tokens;
    const int64_t row = (b * args.heads + h) * args.tokens + t;
    const float lse = args.lse[row], sink = load((const T *)args.sinks, h);
    const float share = 1 / (1 + expf(sink - lse));
    for (int64_t c = lane_index(); c < args.width && args.out; c += SW_WARP) {
        const int64_t at = i * args.width + c;
        store((T *)args.out, at, share > 0 ? share * load((const T *)args.o, at) : 0);
    }
    if (args.out_lse && lane_index() == 0) {
        args.out_lse[row] = (sink > lse ? sink : lse) + log1pf(expf(-fabsf(sink - lse)));
    }
}

/* A warp has a head of a block of tokens. */
template <typename T> SW_KERNEL(THREADS) void attention_sink_grad(struct gpu_sink_args args)
{
    const int64_t i = grid_warp<WARPS>(), all = args.batch * args.tokens;
    const int64_t block = quotient(i, args.heads), h = i - block * args.heads;
    if (skipped(args.skip) || block * args.block >= all) {
        return;
    }
    const int64_t end = all < (block + 1) * args.block ? all : (block + 1) * args.block;
    const float sink = load((const T *)args.sinks, h);
    float sum = 0;
    for (int64_t token = block * args.block; token < end; token++) {
        const int64_t b = quotient(token, args.tokens), t = token - b * args.tokens;
        float dot = 0;
        for (int64_t c = lane_index(); c < args.width; c += SW_WARP) {
            const int64_t at = (token * args.heads + h) * args.width + c;
            dot += load((const T *)args.d_o, at) * load((const T *)args.o, at);
        }
        sum -= expf(sink - args.lse[(b * args.heads + h) * args.tokens + t]) * warp_sum(dot);
    }
    if (lane_index() == 0) {
        args.sums[i] = sum;
    }
}

static const struct sw_gpu_kernel rows[] = {
    SW_FLOATS(router, ROUTER_THREADS),  SW_FLOATS(router_grad, ROUTER_THREADS),
    SW_FLOATS(router_stats, THREADS),   SW_FLOATS(router_stats_grad, THREADS),
    SW_PLAIN(router_loss, SW_WARP),     SW_PLAIN(router_loss_grad, THREADS),
    SW_PLAIN(expert_loads, SW_WARP),    SW_PLAIN(expert_choices, THREADS),
    SW_PLAIN(expert_rows, THREADS),     SW_FLOATS(to_experts, THREADS),
    SW_FLOATS(from_experts, THREADS),   SW_FLOATS(from_experts_weights, THREADS),
    SW_FLOATS(clamped_gate, THREADS),   SW_FLOATS(clamped_gate_grad, THREADS),
    SW_FLOATS(attention_sink, THREADS), SW_FLOATS(attention_sink_grad, THREADS),
};
const struct sw_gpu_kernels sw_gpu_kernels_experts = {rows, SW_ROWS(rows)};
