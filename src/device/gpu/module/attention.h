// SPDX-License-Identifier: Apache-2.0
// attention - code shared by attention and its gradient: which keys a query sees, the score,
// loading a head's rows into shared memory. Keys and queries are processed in groups of 16, tile by
// tile of mma.h. A group in which nothing is visible is skipped. The definition is in
// cpu/ref_attention.inc.
#pragma once

#include "device/gpu/module/mma.h"
#include "device/gpu/module/philox.h"

enum { GROUP = GPU_ATTENTION_GROUP };

/* One sample and head, with what its queries may see. */
struct sight {
    const struct gpu_attention_args *args;
    int64_t b;
    int head, kv_head, position;
    float slope;
    struct draw draw;
};

SW_DEVICE struct sight sight_of(const struct gpu_attention_args &args, int64_t b, int head)
{
    struct sight s;
    s.args = &args;
    s.b = b;
    s.head = head;
    s.kv_head = head / (args.heads / args.kv_heads);
    s.position = args.position ? *args.position : 0;
    s.slope = args.slopes ? args.slopes[head] : 0;
    if (args.has_dropout) {
        s.draw = draw_of(args.draw, b);
    }
    return s;
}

/* A range of queries or keys. */
struct span {
    int first, end;
};

/* Least and largest segment of tokens [first, end), possibly of a few more. False: there are
 * none. */
SW_DEVICE bool segments_of(const struct sight &s, int first, int end, int *least, int *most)
{
    const int n = s.args->n_keys, n_groups = (n + GROUP - 1) / GROUP;
    first = first > 0 ? first : 0;
    end = end < n ? end : n;
    *least = INT32_MAX;
    *most = INT32_MIN;
    for (int g = first / GROUP; g * GROUP < end; g++) {
        const int32_t *bounds = s.args->bounds + (s.b * n_groups + g) * 2;
        *least = bounds[0] < *least ? bounds[0] : *least;
        *most = bounds[1] > *most ? bounds[1] : *most;
    }
    return first < end;
}

/* True: none of the queries sees any of the keys. May return false in such a case. */
SW_DEVICE bool nothing_seen(const struct sight &s, struct span queries, struct span keys)
{
    const struct gpu_attention_args &args = *s.args;
    int q_least, q_most, k_least, k_most;
    if (queries.first >= queries.end || keys.first >= keys.end ||
        (args.causal && keys.first > s.position + queries.end - 1) ||
        (args.window > 0 && keys.end - 1 <= s.position + queries.first - args.window)) {
        return true;
    }
    if (!args.bounds) {
        return false;
    }
    return !segments_of(s, s.position + queries.first, s.position + queries.end, &q_least,
                        &q_most) ||
           !segments_of(s, keys.first, keys.end, &k_least, &k_most) || q_least > k_most ||
           k_least > q_most;
}

/* True: each of the queries sees all of the keys. */
SW_DEVICE bool all_seen(const struct sight &s, struct span queries, struct span keys)
{
    const struct gpu_attention_args &args = *s.args;
    return !args.mask && !args.segments &&
           (!args.causal || keys.end - 1 <= s.position + queries.first) &&
           (args.window == 0 || keys.first > s.position + queries.end - 1 - args.window);
}

SW_DEVICE bool is_seen(const struct sight &s, int i, int j)
{
    const struct gpu_attention_args &args = *s.args;
    const int query = s.position + i;
    if (i >= args.n_queries || j >= args.n_keys || (args.causal && j > query) ||
        (args.window > 0 && j <= query - args.window) ||
        (args.mask && args.mask[s.b * args.n_keys + j] == 0)) {
        return false;
    }
    const int32_t *segments = args.segments + s.b * args.n_keys;
    return !args.segments || (query >= 0 && query < args.n_keys && segments[j] == segments[query]);
}

/* Offset of a (query, key) pair in a bias of scores, or in its gradient, from the first of the
 * (sample, head). Below 2^31: an int saves registers. */
SW_DEVICE int bias_at(const struct sight &s, int i, int j)
{
    return i * s.args->n_keys + j;
}

/* The bias of a sample and head; computed where it is used, to save registers. */
SW_DEVICE const float *bias_of(const struct sight &s)
{
    int head = s.head;
    SW_HERE(head);
    return s.args->bias + s.b * s.args->bias_batch +
           head * ((int64_t)s.args->n_queries * s.args->n_keys);
}

/* The score from the product q k, without a bias. *bend: d score / d scaled product, which a cap
 * flattens. */
SW_DEVICE float score_of(const struct sight &s, int j, float product, float *bend)
{
    const struct gpu_attention_args &args = *s.args;
    float score = args.scale * product;
    *bend = 1;
    if (args.cap > 0) {
        const float bent = tanhf(score / args.cap);
        score = args.cap * bent;
        *bend = 1 - bent * bent;
    }
    if (args.slopes) {
        const int place = args.places ? args.places[s.b * args.n_keys + j] : j;
        score += args.bf16_slopes
                     ? rounded<bf16>(s.slope * rounded<bf16>((float)place)) * args.scale
                     : s.slope * (float)place;
    }
    return score;
}

/* Decides whether dropout keeps a probability; four neighbours of a row share a draw. */
struct keeper {
    uint64_t block;
    struct philox_block bits;
};

SW_DEVICE bool is_kept(const struct sight &s, struct keeper *last, int i, int j)
{
    const struct gpu_attention_args &args = *s.args;
    const int64_t row = (int64_t)(args.first_head + s.head) * args.n_queries + s.position + i;
    const uint64_t element = (uint64_t)(row * args.n_keys + j);
    if (last->block != element / 4) {
        last->block = element / 4;
        last->bits = draw_block(s.draw, element / 4);
    }
    const uint32_t low = element % 2 ? last->bits.words[1] : last->bits.words[0];
    const uint32_t high = element % 2 ? last->bits.words[3] : last->bits.words[2];
    return (element % 4 < 2 ? low : high) >= s.draw.threshold;
}

/* A warp's tile of SUBS groups side by side: 16 queries by keys, or with BY_KEYS keys by queries.
 * Bit sub MMA_ELEMS + e stands for element e of group sub. */
template <int SUBS, bool BY_KEYS>
SW_DEVICE uint32_t seen_bits(const struct sight &s, struct span rows, struct span cols)
{
    if (rows.end - rows.first == GROUP && cols.end - cols.first == SUBS * GROUP &&
        all_seen(s, BY_KEYS ? cols : rows, BY_KEYS ? rows : cols)) {
        return UINT32_MAX;
    }
    uint32_t bits = 0;
    SW_ROLLED
    for (int n = 0; n < SUBS * MMA_ELEMS; n++) {
        const int row = rows.first + mma_row(lane_index(), n % MMA_ELEMS);
        const int col = cols.first + n / MMA_ELEMS * GROUP + mma_col(lane_index(), n % MMA_ELEMS);
        bits |= (uint32_t)is_seen(s, BY_KEYS ? col : row, BY_KEYS ? row : col) << n;
    }
    return bits;
}
/* Dropout keeps these of the `wanted` elements. */
template <int SUBS, bool BY_KEYS>
SW_DEVICE uint32_t kept_bits(const struct sight &s, struct span rows, struct span cols,
                             uint32_t wanted)
{
    if (!s.args->has_dropout) {
        return wanted;
    }
    struct keeper last;
    last.block = UINT64_MAX;
    uint32_t bits = 0;
    SW_ROLLED
    for (int n = 0; n < SUBS * MMA_ELEMS; n++) {
        const int row = rows.first + mma_row(lane_index(), n % MMA_ELEMS);
        const int col = cols.first + n / MMA_ELEMS * GROUP + mma_col(lane_index(), n % MMA_ELEMS);
        if (wanted >> n & 1) {
            bits |= (uint32_t)is_kept(s, &last, BY_KEYS ? col : row, BY_KEYS ? row : col) << n;
        }
    }
    return bits;
}

/* The larger one; NaN if either is NaN. */
struct larger {
    SW_DEVICE_MEMBER float operator()(float a, float b) const
    {
        return b > a || b != b ? b : a;
    }
};
struct sum {
    SW_DEVICE_MEMBER float operator()(float a, float b) const
    {
        return a + b;
    }
};

/* ---- rows of a head ---- */

template <typename T> SW_DEVICE const T *head_at(const struct gpu_heads &x, int64_t b, int head)
{
    return (const T *)x.x + b * x.batch + head * x.head;
}

/* Copies 16 bytes into shared memory, zeros unless `there`; on CUDA the copy is asynchronous. */
struct alignas(16) sixteen_bytes {
    unsigned char x[16];
};
SW_DEVICE void copy_chunk(void *to, const void *from, bool there)
{
#if defined(__CUDACC__)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
#else
    const struct sixteen_bytes none = {};
    *(struct sixteen_bytes *)to = there ? *(const struct sixteen_bytes *)from : none;
#endif
}
/* Ends a load: commits all copies started since the last one. */
SW_DEVICE void end_load()
{
#if defined(__CUDACC__)
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* Waits until all loads but the last `LATER` have arrived for all threads of the block, and all
 * threads have finished reading earlier data. */
template <int LATER> SW_DEVICE void wait_for_loads()
{
#if defined(__CUDACC__)
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
#endif
    sync_block();
}

/* Loads rows first .. first + ROWS - 1 of a head into shared memory, by all threads of the block.
 * Zeros replace rows outside `valid` or hidden by mask, and columns from width up to whole
 * groups. */
template <typename T, int D, int ROWS, int THREADS>
SW_DEVICE void load_tile(T *tile, const struct gpu_heads &x, int64_t b, int head, int first,
                         struct span valid, const int32_t *mask, int width)
{
    constexpr int LD = GPU_ATTENTION_LD(D, sizeof(T)), MANY = 16 / sizeof(T), CHUNKS = D / MANY;
    constexpr int AT_ONCE = D <= 128 ? ROWS : 2; /* wide heads need the registers for sums */
    const int padded = (width + GROUP - 1) / GROUP * GROUP;
    const T *from = head_at<T>(x, b, head) + first * x.token;
    const int begin = valid.first > first ? valid.first - first : 0;
    const int end = valid.end - first < ROWS ? valid.end - first : ROWS;
    if (first >= valid.end) { /* nothing to load: the tile is not read */
    } else if (x.aligned) {
        SW_UNROLL_BY(AT_ONCE)
        for (int i = 0; i < ROWS * CHUNKS; i += THREADS) {
            const int at = i + thread_index(), row = at / CHUNKS, col = at % CHUNKS * MANY;
            if (row < ROWS && col < padded) {
                const bool there =
                    row >= begin && row < end && col < width && (!mask || mask[first + row] != 0);
                copy_chunk(tile + row * LD + col,
                           there ? from + row * x.token + col : (const T *)x.x, there);
            }
        }
    } else {
        SW_ROLLED
        for (int at = thread_index(); at < ROWS * D; at += THREADS) {
            const int row = at / D, col = at % D;
            if (col < padded) {
                const bool there =
                    row >= begin && row < end && col < width && (!mask || mask[first + row] != 0);
                tile[row * LD + col] = there ? from[row * x.token + col * x.element] : T{};
            }
        }
    }
    end_load();
}

/* A warp's own rows, the first factors of products. 16-bit rows are read from its 16 rows in shared
 * memory, fp32 rows from global memory; rows past the end repeat the last. */
template <typename T> struct own_rows {
    const T *x;
    int ld;
    static SW_DEVICE_MEMBER struct own_rows of(const T *shared, int ld,
                                               const struct gpu_heads &heads, int64_t b, int head,
                                               int first, int n, int width)
    {
        (void)heads, (void)b, (void)head, (void)first, (void)n, (void)width;
        return {shared, ld};
    }
    SW_DEVICE_MEMBER typename mma<T>::tile_a at(int step) const
    {
        return mma<T>::load_rows(x + step * GROUP, ld);
    }
};
/* The same for repeated use: 16-bit rows are held in registers. */
template <typename T, int STEPS> struct held_rows {
    typename mma<T>::tile_a steps[STEPS];
    SW_DEVICE_MEMBER void hold(const struct own_rows<T> &own, int width)
    {
        SW_UNROLL
        for (int step = 0; step < STEPS; step++) {
            if (step * GROUP < width) {
                steps[step] = own.at(step);
            }
        }
    }
    SW_DEVICE_MEMBER typename mma<T>::tile_a at(int step) const
    {
        return steps[step];
    }
};
template <> struct own_rows<float> {
    const float *rows[MMA_ROWS];
    int64_t element;
    int width;
    static SW_DEVICE_MEMBER struct own_rows of(const float *shared, int ld,
                                               const struct gpu_heads &heads, int64_t b, int head,
                                               int first, int n, int width)
    {
        struct own_rows own;
        (void)shared, (void)ld;
        SW_UNROLL
        for (int slot = 0; slot < MMA_ROWS; slot++) {
            const int row = first + mma_row(lane_index(), 2 * slot);
            own.rows[slot] = head_at<float>(heads, b, head) + (row < n ? row : n - 1) * heads.token;
        }
        own.element = heads.element;
        own.width = width;
        return own;
    }
    SW_DEVICE_MEMBER mma<float>::tile_a at(int step) const
    {
        mma<float>::tile_a tile;
        SW_UNROLL
        for (int slot = 0; slot < MMA_ROWS; slot++) {
            tile.rows[slot] = rows[slot] + step * GROUP * element;
        }
        tile.step = element;
        tile.n = width - step * GROUP < GROUP ? width - step * GROUP : GROUP;
        return tile;
    }
};

template <int STEPS> struct held_rows<float, STEPS> {
    struct own_rows<float> own;
    SW_DEVICE_MEMBER void hold(const struct own_rows<float> &rows, int width)
    {
        (void)width;
        own = rows;
    }
    SW_DEVICE_MEMBER mma<float>::tile_a at(int step) const
    {
        return own.at(step);
    }
};

/* Stores accumulators of 16 columns, times a factor for each of the lane's rows, into rows of a
 * head with contiguous elements. Rows and columns out of range are skipped. */
template <typename T>
SW_DEVICE void store_group(const struct gpu_heads &out, int64_t b, int head, int first, int n,
                           int col, int width, const float *c, const float *factors)
{
    const int lane = lane_index();
    T *to = (T *)out.x + b * out.batch + head * out.head;
    SW_UNROLL
    for (int e = 0; e < MMA_ELEMS; e++) {
        const int row = first + mma_row(lane, e);
        const int at = col + mma_col(lane, e);
        if (row < n && at < width) {
            store(to, row * out.token + at, c[e] * factors[mma_slot(e)]);
        }
    }
}
