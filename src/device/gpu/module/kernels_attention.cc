// SPDX-License-Identifier: Apache-2.0
// Attention, forward. A block takes a run of queries of one (sample, head), a warp 16 of them, over
// tiles of keys and values in shared memory. The softmax is online: the largest score so far, and
// sums that are scaled down when a larger one is found. Sums are in key order. If there are few
// queries (generation), all warps take the same queries and share the keys; their results are
// merged in warp order.
#include "device/gpu/module/attention.h"
#include "device/gpu/module/registry.h"

enum { WARPS = GPU_ATTENTION_WARPS, THREADS = WARPS * SW_WARP, PLACES_THREADS = 256 };

/* ---- preparation: positions of keys, segments of groups ---- */

/* One block per sample. Each thread has a run of keys. */
SW_KERNEL(PLACES_THREADS) void attention_places(struct gpu_attention_args args)
{
    struct counts {
        int32_t of[PLACES_THREADS];
    };
    SW_SHARED(struct counts, counts);
    if (args.skip && *args.skip != 0) {
        return;
    }
    const int64_t b = block_x();
    const int n = args.n_keys, many = (n + PLACES_THREADS - 1) / PLACES_THREADS;
    const int first = thread_index() * many, end = first + many < n ? first + many : n;
    if (args.places) { /* counts each run, then prefix sums */
        int32_t count = 0;
        for (int j = first; j < end; j++) {
            count += args.mask[b * n + j] != 0;
        }
        counts.of[thread_index()] = count;
        sync_block();
        int32_t place = 0;
        for (int t = 0; t < thread_index(); t++) {
            place += counts.of[t];
        }
        for (int j = first; j < end; j++) {
            args.places[b * n + j] = place;
            place += args.mask[b * n + j] != 0;
        }
    }
    const int n_groups = (n + GROUP - 1) / GROUP;
    for (int g = thread_index(); args.bounds && g < n_groups; g += PLACES_THREADS) {
        int32_t least = INT32_MAX, most = INT32_MIN;
        for (int j = g * GROUP; j < n && j < (g + 1) * GROUP; j++) {
            const int32_t id = args.segments[b * n + j];
            least = id < least ? id : least;
            most = id > most ? id : most;
        }
        args.bounds[(b * n_groups + g) * 2] = least;
        args.bounds[(b * n_groups + g) * 2 + 1] = most;
    }
}

/* ---- forward ---- */

/* The softmax and the output of a warp's rows. */
template <int D> struct result {
    float max[MMA_ROWS], sum[MMA_ROWS]; /* sum: only of this lane's elements, until the end */
    float o[D / GROUP][MMA_ELEMS];
};

/* The factor of a sum when its maximum becomes `max`. */
SW_DEVICE float faded(float from, float max)
{
    return from == max ? 1 : expf(from - max);
}

/* Turns scores of the rows with a tile of keys (hidden ones: -inf) into probabilities relative to
 * the largest so far. Sums relative to a smaller one are scaled down. kept: elements that dropout
 * keeps. */
template <int D, int SUBS>
SW_DEVICE void probabilities(struct result<D> *r, float (*p)[MMA_ELEMS], uint32_t kept)
{
    float factor[MMA_ROWS];
    SW_UNROLL
    for (int slot = 0; slot < MMA_ROWS; slot++) {
        float max = r->max[slot];
        SW_UNROLL
        for (int n = 0; n < SUBS * MMA_ELEMS; n++) {
            if (mma_slot(n % MMA_ELEMS) == slot) {
                max = larger()(max, p[n / MMA_ELEMS][n % MMA_ELEMS]);
            }
        }
        max = mma_row_reduce(max, larger());
        factor[slot] = faded(r->max[slot], max);
        r->max[slot] = max;
        r->sum[slot] *= factor[slot];
    }
    SW_UNROLL
    for (int n = 0; n < SUBS * MMA_ELEMS; n++) {
        const int e = n % MMA_ELEMS, slot = mma_slot(e);
        const float score = p[n / MMA_ELEMS][e];
        const float x = score == -INFINITY ? 0 : expf(score - r->max[slot]);
        r->sum[slot] += x;
        p[n / MMA_ELEMS][e] = kept >> n & 1 ? x : 0;
    }
    if (factor[0] == 1 && factor[MMA_ROWS - 1] == 1) {
        return; /* a larger score is rare after the first tiles */
    }
    SW_UNROLL
    for (int d = 0; d < D / GROUP; d++) {
        SW_UNROLL
        for (int e = 0; e < MMA_ELEMS; e++) {
            r->o[d][e] *= factor[mma_slot(e)];
        }
    }
}

/* Merges the warps, which have the same rows and different keys: the last one gets the result. */
template <int D> SW_DEVICE void put_together(struct result<D> *r, float *shared)
{
    const int lane = lane_index(), warp = warp_index();
    float *const o = shared, *const max = o + GROUP * D, *const sum = max + GROUP;
    for (int w = 0; w < WARPS; w++) {
        sync_block();
        if (warp != w) {
            continue;
        }
        float mine[MMA_ROWS], theirs[MMA_ROWS];
        SW_UNROLL
        for (int slot = 0; slot < MMA_ROWS; slot++) {
            const int row = mma_row(lane, 2 * slot);
            mine[slot] = 1;
            theirs[slot] = 0;
            if (w > 0) {
                const float both = larger()(max[row], r->max[slot]);
                mine[slot] = faded(r->max[slot], both);
                theirs[slot] = faded(max[row], both);
                r->sum[slot] = sum[row] * theirs[slot] + r->sum[slot] * mine[slot];
                r->max[slot] = both;
            }
        }
        sync_warp();
        SW_UNROLL
        for (int slot = 0; slot < MMA_ROWS; slot++) {
            /* all lanes of a row write the same value */
            max[mma_row(lane, 2 * slot)] = r->max[slot];
            sum[mma_row(lane, 2 * slot)] = r->sum[slot];
        }
        SW_UNROLL
        for (int d = 0; d < D / GROUP; d++) {
            SW_UNROLL
            for (int e = 0; e < MMA_ELEMS; e++) {
                float *at = o + mma_row(lane, e) * D + d * GROUP + mma_col(lane, e);
                const int slot = mma_slot(e);
                r->o[d][e] = w > 0 ? *at * theirs[slot] + r->o[d][e] * mine[slot] : r->o[d][e];
                *at = r->o[d][e];
            }
        }
    }
}

/* The first tile from keys.first on with a key that some query sees; else keys.end. */
SW_DEVICE int next_tile(const struct sight &s, struct span queries, struct span keys, int many)
{
    int at = keys.first;
    while (at < keys.end &&
           nothing_seen(s, queries, {at, at + many < keys.end ? at + many : keys.end})) {
        at += many;
    }
    return at < keys.end ? at : keys.end;
}

template <typename T, int D> SW_DEVICE void forward(const struct gpu_attention_args &args)
{
    using M = mma<T>;
    constexpr int KEYS = GPU_ATTENTION_KEYS(D, sizeof(T)), SUBS = KEYS / GROUP;
    constexpr int LD = GPU_ATTENTION_LD(D, sizeof(T)), STEPS = D / GROUP;
    constexpr int AT_ONCE = sizeof(T) == 2 ? STEPS : 1; /* steps at a time: fp32 has longer ones */
    SW_DYNAMIC_SHARED(shared);
    if (args.skip && *args.skip != 0) {
        return;
    }
    T *const keys = (T *)shared, *const values = keys + KEYS * LD;
    float *const scratch =
        (float *)(values + KEYS * LD) + warp_index() * (GPU_ATTENTION_SCRATCH / (int)sizeof(float));
    const int width = args.width, lane = lane_index();
    const bool together = args.n_queries <= GROUP;
    const int rows = together ? GROUP : WARPS * GROUP;
    const int n_tiles = (args.n_queries + rows - 1) / rows;
    /* The last queries see the most keys, so they come first. */
    const int first = (int)(n_tiles - 1 - block_x() % n_tiles) * rows;
    const int head = (int)(block_x() / n_tiles % args.heads);
    const int64_t b = block_x() / n_tiles / args.heads;
    const struct sight s = sight_of(args, b, head);
    const int end = first + rows < args.n_queries ? first + rows : args.n_queries;
    struct span mine; /* queries of the warp */
    mine.first = first + (together ? 0 : warp_index() * GROUP);
    mine.end = mine.first + GROUP < end ? mine.first + GROUP : end;
    const int32_t *mask = args.mask ? args.mask + b * args.n_keys : nullptr;

    struct span seen = {0, args.n_keys}; /* keys seen by the block */
    if (args.causal && s.position + end < seen.end) {
        seen.end = s.position + end;
    }
    if (args.window > 0 && s.position + first - args.window + 1 > 0) {
        seen.first = s.position + first - args.window + 1;
    }

    /* 16-bit queries pass through the memory of keys. */
    constexpr int Q_ROWS = KEYS < WARPS * GROUP ? KEYS : WARPS * GROUP;
    struct held_rows<T, STEPS> q = {
    };
    for (int at = 0; at < rows; at += Q_ROWS) {
        if (sizeof(T) == 2) {
            load_tile<T, D, Q_ROWS, THREADS>(keys, args.q, b, head, first + at, {0, args.n_queries},
                                             nullptr, width);
            wait_for_loads<0>();
        }
        const int row = mine.first - first - at;
        if (row >= 0 && row < Q_ROWS) {
            q.hold(own_rows<T>::of(keys + row * LD, LD, args.q, b, head, mine.first, args.n_queries,
                                   width),
                   width);
        }
        sync_block();
    }

    struct result<D> r;
    SW_UNROLL
    for (int slot = 0; slot < MMA_ROWS; slot++) {
        r.max[slot] = -INFINITY;
        r.sum[slot] = 0;
    }
    SW_UNROLL
    for (int d = 0; d < STEPS; d++) {
        SW_UNROLL
        for (int e = 0; e < MMA_ELEMS; e++) {
            r.o[d][e] = 0;
        }
    }
    /* The next tile's keys load while this tile's values are multiplied; values load while its keys
     * are multiplied. */
    const struct span block = {first, end};
    int at = next_tile(s, block, {seen.first / GROUP * GROUP, seen.end}, KEYS);
    load_tile<T, D, KEYS, THREADS>(keys, args.k, b, s.kv_head, at, seen, mask, width);
    while (at < seen.end) {
        const int at_end = at + KEYS < seen.end ? at + KEYS : seen.end;
        unsigned shown = 0; /* one bit for each group of keys that the warp processes */
        for (int sub = 0; sub < SUBS; sub++) {
            const int j = at + sub * GROUP, j_end = j + GROUP < at_end ? j + GROUP : at_end;
            if (!(together && (at / GROUP + sub) % WARPS != warp_index()) &&
                !nothing_seen(s, mine, {j, j_end})) {
                shown |= 1u << sub;
            }
        }
        wait_for_loads<0>(); /* keys have arrived; the previous values have been used */
        load_tile<T, D, KEYS, THREADS>(values, args.v, b, s.kv_head, at, seen, mask, width);
        float p[SUBS][MMA_ELEMS] = {};
        if (shown) {
            SW_UNROLL_BY(AT_ONCE)
            for (int step = 0; step < STEPS; step++) {
                if (step * GROUP < width) {
                    const typename M::tile_a a = q.at(step);
                    SW_UNROLL
                    for (int sub = 0; sub < SUBS; sub++) {
                        if (shown >> sub & 1) {
                            M::multiply(p[sub], a,
                                        M::load_rows(keys + sub * GROUP * LD + step * GROUP, LD));
                        }
                    }
                }
            }
        }
        sync_block(); /* keys have been used */
        const int next = next_tile(s, block, {at + KEYS, seen.end}, KEYS);
        load_tile<T, D, KEYS, THREADS>(keys, args.k, b, s.kv_head, next, seen, mask, width);
        if (shown) {
            const struct span tile = {at, at + KEYS <= args.n_keys ? at + KEYS : args.n_keys};
            uint32_t bits = seen_bits<SUBS, false>(s, mine, tile);
            SW_UNROLL
            for (int n = 0; n < SUBS * MMA_ELEMS; n++) {
                const int sub = n / MMA_ELEMS, e = n % MMA_ELEMS;
                if (!(shown >> sub & 1)) {
                    bits &= ~(1u << n);
                }
                float bend;
                p[sub][e] = bits >> n & 1
                                ? score_of(s, at + sub * GROUP + mma_col(lane, e), p[sub][e], &bend)
                                : -INFINITY;
            }
            if (args.bias) {
                const float *bias = bias_of(s);
                SW_UNROLL
                for (int n = 0; n < SUBS * MMA_ELEMS; n++) {
                    const int e = n % MMA_ELEMS, col = at + n / MMA_ELEMS * GROUP;
                    if (bits >> n & 1) {
                        p[n / MMA_ELEMS][e] +=
                            bias[bias_at(s, mine.first + mma_row(lane, e), col + mma_col(lane, e))];
                    }
                }
            }
            probabilities<D, SUBS>(&r, p, kept_bits<SUBS, false>(s, mine, tile, bits));
        }
        wait_for_loads<1>(); /* values have arrived */
        if (shown) {
            SW_UNROLL
            for (int sub = 0; sub < SUBS; sub++) {
                if (shown >> sub & 1) {
                    const typename M::tile_a a = M::pack(p[sub], scratch);
                    SW_UNROLL
                    for (int d = 0; d < STEPS; d++) {
                        if (d * GROUP < width) {
                            M::multiply(r.o[d], a,
                                        M::load_cols(values + sub * GROUP * LD + d * GROUP, LD));
                        }
                    }
                }
            }
        }
        at = next;
    }
    wait_for_loads<0>();

    SW_UNROLL
    for (int slot = 0; slot < MMA_ROWS; slot++) {
        r.sum[slot] = mma_row_reduce(r.sum[slot], sum());
    }
    if (together) {
        put_together<D>(&r, (float *)shared);
        if (warp_index() != WARPS - 1) {
            return;
        }
    }
    float norm[MMA_ROWS];
    SW_UNROLL
    for (int slot = 0; slot < MMA_ROWS; slot++) {
        const int i = mine.first + mma_row(lane, 2 * slot);
        const float total = r.sum[slot];
        norm[slot] = total > 0 || total != total ? args.keep_scale / total : 0;
        if (args.lse && i < args.n_queries && mma_col(lane, 0) == 0) {
            args.lse[(b * args.heads + head) * args.n_queries + i] =
                total == 0 ? -INFINITY : r.max[slot] + logf(total);
        }
    }
    SW_UNROLL
    for (int d = 0; d < STEPS; d++) {
        store_group<T>(args.o, b, head, mine.first, args.n_queries, d * GROUP, width, r.o[d], norm);
    }
}

template <typename T> SW_KERNEL(THREADS, 2) void attention_64(struct gpu_attention_args args)
{
    forward<T, 64>(args);
}
template <typename T> SW_KERNEL(THREADS, 2) void attention_128(struct gpu_attention_args args)
{
    forward<T, 128>(args);
}
template <typename T> SW_KERNEL(THREADS, 2) void attention_256(struct gpu_attention_args args)
{
    forward<T, 256>(args);
}

/* ---- for the test of mma.h ---- */

/* Runs in one warp. */
template <typename T>
SW_KERNEL(SW_WARP)
void product_of_tiles(struct gpu_product_of_tiles_args args)
{
    using M = mma<T>;
    enum { LD = 24 };
    struct tiles {
        alignas(16) T a[GROUP * LD], b[GROUP * LD];
        float scratch[GPU_ATTENTION_SCRATCH / sizeof(float)];
    };
    SW_SHARED(struct tiles, tiles);
    float a[MMA_ELEMS], c[MMA_ELEMS] = {};
    const int lane = lane_index();
    for (int i = lane; i < GROUP * GROUP; i += SW_WARP) {
        tiles.b[i / GROUP * LD + i % GROUP] = ((const T *)args.b)[i];
    }
    /* in the accumulators' layout, which is also that of a first factor */
    for (int e = 0; e < MMA_ELEMS; e++) {
        a[e] = load((const T *)args.a, mma_row(lane, e) * GROUP + mma_col(lane, e));
        tiles.a[mma_row(lane, e) * LD + mma_col(lane, e)] = round_to<T>(a[e]);
    }
    sync_warp();
    const typename M::tile_b b =
        args.transposed ? M::load_rows(tiles.b, LD) : M::load_cols(tiles.b, LD);
    M::multiply(c, M::pack(a, tiles.scratch), b);
    for (int e = 0; e < MMA_ELEMS; e++) {
        args.c[mma_row(lane, e) * GROUP + mma_col(lane, e)] = c[e];
    }
}

static const struct sw_gpu_kernel rows[] = {
    SW_PLAIN(attention_places, PLACES_THREADS), SW_FLOATS(attention_64, THREADS),
    SW_FLOATS(attention_128, THREADS), SW_FLOATS(attention_256, THREADS),
    SW_FLOATS(product_of_tiles, SW_WARP)};
const struct sw_gpu_kernels sw_gpu_kernels_attention = {rows, SW_ROWS(rows)};
