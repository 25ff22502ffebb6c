// SPDX-License-Identifier: Apache-2.0
// Attention, backward, in two passes that recompute the probabilities, so that each sum has one
// owner. dk and dv go by keys, over the queries of all heads that share them, in head order; dq
// goes by queries, over keys. One kernel serves both sides. A warp owns 16 rows (of k and v, or of
// q and do) and walks over tiles of the other side in shared memory:
//
//               own x, y   tile u, w   s = x u^T, d = y w^T     sums
//   by keys     k, v       q, do       transposed: keys x       dv += p^T do, dk += ds^T q
//                                      queries
//   by queries  q, do      k, v        queries x keys           dq += ds k
#include "device/gpu/module/attention.h"
#include "device/gpu/module/registry.h"

enum { DELTA_THREADS = 256, DELTA_LANES = 8 };

/* delta = sum of do o over a head, for each query; eight lanes per row. */
template <typename T> SW_KERNEL(DELTA_THREADS) void attention_delta(struct gpu_attention_args args)
{
    if (args.skip && *args.skip != 0) {
        return;
    }
    const int64_t n_rows = (int64_t)args.batch * args.n_queries * args.heads, n_blocks = grid_x();
    const int row_of_block = thread_index() / DELTA_LANES, lane = thread_index() % DELTA_LANES;
    enum { ROWS = DELTA_THREADS / DELTA_LANES };
    for (int64_t first = block_x() * ROWS; first < n_rows; first += n_blocks * ROWS) {
        const int64_t row = first + row_of_block; /* index of (b, i, head) in memory order */
        float sum = 0;
        if (row < n_rows) {
            const T *d_o = (const T *)args.d_o.x + row * args.width;
            const T *o = (const T *)args.o.x + row * args.width;
            for (int d = lane; d < args.width; d += DELTA_LANES) {
                sum = fmaf(load(d_o, d), load(o, d), sum);
            }
        }
        for (int mask = 1; mask < DELTA_LANES; mask *= 2) {
            sum += shuffle_xor(sum, mask);
        }
        if (row < n_rows && lane == 0) {
            const int64_t head = row % args.heads, at = row / args.heads;
            const int64_t b = at / args.n_queries, i = at % args.n_queries;
            args.delta[(b * args.heads + head) * args.n_queries + i] = sum;
        }
    }
}

template <int GROUPS> struct sums {
    float x[GROUPS][MMA_ELEMS];
};

/* From a product q k and the gradient d of its probability, with factor `kept` after dropout: *p is
 * the remaining probability, *ds the gradient of the product. Returns the gradient of the score.
 * bias: of the sample and head, or NULL. */
SW_DEVICE float slope_of(const struct sight &s, const float *bias, int i, int j, float kept,
                         float product, float d, float lse, float delta, float *p, float *ds)
{
    float bend;
    float score = score_of(s, j, product, &bend);
    if (bias) {
        score += bias[bias_at(s, i, j)];
    }
    const float whole = expf(score - lse);
    const float of_score = whole * (kept * d - delta);
    *p = kept * whole;
    *ds = of_score * s.args->scale * bend;
    return of_score;
}

/* Rounds a slope to 16 bits and carries the error over to the lane's next slope. Over a query's
 * keys the slopes of its softmax add up to zero, so whatever the keys have in common must cancel.
 * Without the carry, each rounding leaves an error times that common part, which a bias of keys
 * makes large. */
template <typename T> SW_DEVICE float round_and_owe(float slope, float *owed)
{
    if (sizeof(T) > 2) {
        return slope; /* no rounding */
    }
    const float wanted = slope + *owed, given = rounded<T>(wanted);
    *owed = wanted - given;
    return given;
}

template <typename T, int D, bool BY_KEYS>
SW_DEVICE void gradient(const struct gpu_attention_args &args)
{
    using M = mma<T>;
    constexpr int WARPS = GPU_ATTENTION_GRAD_WARPS(D), THREADS = WARPS * SW_WARP;
    constexpr int TILE = GPU_ATTENTION_GRAD_TILE(D, sizeof(T)), SUBS = TILE / GROUP,
                  ROWS = WARPS * GROUP;
    constexpr int COLS = GPU_ATTENTION_GRAD_COLS(D), SLICES = D / COLS, GROUPS = COLS / GROUP;
    constexpr int LD = GPU_ATTENTION_LD(D, sizeof(T)), STEPS = D / GROUP;
    constexpr int AT_ONCE = sizeof(T) == 2 ? STEPS : 1; /* steps at a time: fp32 has longer ones */
    constexpr int OWN = GPU_ATTENTION_GRAD_OWN(D, sizeof(T));
    SW_DYNAMIC_SHARED(shared);
    if (args.skip && *args.skip != 0) {
        return;
    }
    T *const tile_u = (T *)shared, *const tile_w = tile_u + TILE * LD;
    T *const own_x = tile_w + TILE * LD, *const own_y = own_x + OWN * LD;
    float *const lse = (float *)(own_y + OWN * LD), *const delta = lse + 64;
    const int warp = warp_index(), lane = lane_index(), width = args.width;
    float *const scratch = delta + 64 + warp * (GPU_ATTENTION_SCRATCH / (int)sizeof(float));

    const int n_own = BY_KEYS ? args.n_keys : args.n_queries;
    const int n_heads = BY_KEYS ? args.kv_heads : args.heads;
    const int n_tiles = (n_own + ROWS - 1) / ROWS;
    const int col = (int)(block_x() % SLICES) * COLS; /* the block's first column of the gradient */
    int64_t at = block_x() / SLICES;
    /* Causality gives these the most work, so they come first. */
    const int first = (int)(BY_KEYS ? at % n_tiles : n_tiles - 1 - at % n_tiles) * ROWS;
    at /= n_tiles;
    const int own_head = (int)(at % n_heads);
    const int64_t b = at / n_heads;
    if (col >= width) {
        return;
    }
    const int end = first + ROWS < n_own ? first + ROWS : n_own;
    struct span mine; /* rows of the warp */
    mine.first = first + warp * GROUP;
    mine.end = mine.first + GROUP < end ? mine.first + GROUP : end;
    const int32_t *mask = args.mask ? args.mask + b * args.n_keys : nullptr;
    const struct gpu_heads &x = BY_KEYS ? args.k : args.q, &y = BY_KEYS ? args.v : args.d_o;
    const struct gpu_heads &u = BY_KEYS ? args.q : args.k, &w = BY_KEYS ? args.d_o : args.v;
    if (OWN > 0) {
        constexpr int MANY = OWN > 0 ? OWN : GROUP;
        load_tile<T, D, MANY, THREADS>(own_x, x, b, own_head, first, {0, n_own},
                                       BY_KEYS ? mask : nullptr, width);
        load_tile<T, D, MANY, THREADS>(own_y, y, b, own_head, first, {0, n_own},
                                       BY_KEYS ? mask : nullptr, width);
    }
    const own_rows<T> rows_x =
        own_rows<T>::of(own_x + warp * GROUP * LD, LD, x, b, own_head, mine.first, n_own, width);
    const own_rows<T> rows_y =
        own_rows<T>::of(own_y + warp * GROUP * LD, LD, y, b, own_head, mine.first, n_own, width);
    struct sums<GROUPS> du = {
    }; /* gradient of k, or of q */
    struct sums<BY_KEYS ? GROUPS : 1> dw = {
    }; /* gradient of v */

    float owed[MMA_ROWS] = {}; /* rounding errors of slopes, carried per query of the lane */

    const int group = args.heads / args.kv_heads;
    const int head_first = BY_KEYS ? own_head * group : own_head;
    const int head_end = head_first + (BY_KEYS ? group : 1);
    for (int head = head_first; head < head_end; head++) {
        const struct sight s = sight_of(args, b, head);
        const float *const bias = args.bias ? bias_of(s) : nullptr;
        const int64_t row0 = (b * args.heads + head) * args.n_queries;  /* row of lse and delta */
        struct span seen = {0, BY_KEYS ? args.n_queries : args.n_keys}; /* rows seen by the block */
        if (BY_KEYS) {
            if (args.causal && first - s.position > 0) {
                seen.first = first - s.position;
            }
            if (args.window > 0 && end - 1 + args.window - s.position < seen.end) {
                seen.end = end - 1 + args.window - s.position;
            }
        } else {
            if (args.window > 0 && s.position + first - args.window + 1 > 0) {
                seen.first = s.position + first - args.window + 1;
            }
            if (args.causal && s.position + end < seen.end) {
                seen.end = s.position + end;
            }
            for (int i = thread_index(); i < ROWS && first + i < end; i += THREADS) {
                lse[i] = args.lse[row0 + first + i];
                delta[i] = args.delta[row0 + first + i];
            }
        }
        for (int t = seen.first / GROUP * GROUP; t < seen.end; t += TILE) {
            const int t_end = t + TILE < seen.end ? t + TILE : seen.end;
            const struct span block = {first, end}, tile = {t, t_end};
            if (BY_KEYS ? nothing_seen(s, tile, block) : nothing_seen(s, block, tile)) {
                continue;
            }
            sync_block(); /* all threads have finished with the tile before */
            load_tile<T, D, TILE, THREADS>(tile_u, u, b, BY_KEYS ? head : s.kv_head, t, seen,
                                           BY_KEYS ? nullptr : mask, width);
            load_tile<T, D, TILE, THREADS>(tile_w, w, b, BY_KEYS ? head : s.kv_head, t, seen,
                                           BY_KEYS ? nullptr : mask, width);
            for (int i = thread_index(); BY_KEYS && i < TILE && t + i < t_end; i += THREADS) {
                lse[i] = args.lse[row0 + t + i];
                delta[i] = args.delta[row0 + t + i];
            }
            wait_for_loads<0>();
            unsigned shown = 0;
            for (int sub = 0; sub < SUBS; sub++) {
                const int from = t + sub * GROUP;
                const struct span other = {from, from + GROUP < t_end ? from + GROUP : t_end};
                if (!(BY_KEYS ? nothing_seen(s, other, mine) : nothing_seen(s, mine, other))) {
                    shown |= 1u << sub;
                }
            }
            if (!shown) {
                continue;
            }
            float p[SUBS][MMA_ELEMS] = {}, ds[SUBS][MMA_ELEMS] = {}; /* the products at first */
            SW_UNROLL_BY(AT_ONCE)
            for (int step = 0; step < STEPS; step++) {
                if (step * GROUP < width) {
                    const typename M::tile_a a_x = rows_x.at(step), a_y = rows_y.at(step);
                    SW_UNROLL
                    for (int sub = 0; sub < SUBS; sub++) {
                        if (shown >> sub & 1) {
                            const int from = sub * GROUP * LD + step * GROUP;
                            M::multiply(p[sub], a_x, M::load_rows(tile_u + from, LD));
                            M::multiply(ds[sub], a_y, M::load_rows(tile_w + from, LD));
                        }
                    }
                }
            }
            const int n_other = BY_KEYS ? args.n_queries : args.n_keys;
            const struct span cols = {t, t + TILE < n_other ? t + TILE : n_other};
            const uint32_t bits = seen_bits<SUBS, BY_KEYS>(s, mine, cols);
            const uint32_t kept = kept_bits<SUBS, BY_KEYS>(s, mine, cols, bits);
            SW_UNROLL
            for (int n = 0; n < SUBS * MMA_ELEMS; n++) {
                const int sub = n / MMA_ELEMS, e = n % MMA_ELEMS;
                const int row = mma_row(lane, e), c = sub * GROUP + mma_col(lane, e);
                const int at_lse = BY_KEYS ? c : warp * GROUP + row;
                if (bits >> n & 1) {
                    const int i = BY_KEYS ? t + c : mine.first + row;
                    const int j = BY_KEYS ? mine.first + row : t + c;
                    const float of_score =
                        slope_of(s, bias, i, j, kept >> n & 1 ? args.keep_scale : 0, p[sub][e],
                                 ds[sub][e], lse[at_lse], delta[at_lse], &p[sub][e], &ds[sub][e]);
                    if (!BY_KEYS) {
                        ds[sub][e] = round_and_owe<T>(ds[sub][e], &owed[mma_slot(e)]);
                    }
                    if (!BY_KEYS && args.dbias && col == 0) {
                        const int64_t of_head = b * args.heads + head;
                        float *dbias =
                            args.dbias + of_head * ((int64_t)args.n_queries * args.n_keys);
                        dbias[bias_at(s, i, j)] = of_score;
                    }
                } else {
                    p[sub][e] = ds[sub][e] = 0;
                }
            }
            SW_UNROLL
            for (int sub = 0; sub < SUBS; sub++) {
                if (!(shown >> sub & 1)) {
                    continue;
                }
                const int from = sub * GROUP * LD + col;
                if (BY_KEYS) {
                    const typename M::tile_a a = M::pack(p[sub], scratch);
                    SW_UNROLL
                    for (int d = 0; d < GROUPS; d++) {
                        if (col + d * GROUP < width) {
                            M::multiply(dw.x[BY_KEYS ? d : 0], a,
                                        M::load_cols(tile_w + from + d * GROUP, LD));
                        }
                    }
                }
                const typename M::tile_a a = M::pack(ds[sub], scratch);
                SW_UNROLL
                for (int d = 0; d < GROUPS; d++) {
                    if (col + d * GROUP < width) {
                        M::multiply(du.x[d], a, M::load_cols(tile_u + from + d * GROUP, LD));
                    }
                }
            }
        }
    }

    const float ones[2] = {1, 1};
    const struct gpu_heads &to = BY_KEYS ? args.dk : args.dq;
    SW_UNROLL
    for (int d = 0; d < GROUPS; d++) {
        if (to.x) {
            store_group<T>(to, b, own_head, mine.first, n_own, col + d * GROUP, width, du.x[d],
                           ones);
        }
        if (BY_KEYS && args.dv.x) {
            store_group<T>(args.dv, b, own_head, mine.first, n_own, col + d * GROUP, width,
                           dw.x[BY_KEYS ? d : 0], ones);
        }
    }
}

#define GRADIENT(D)                                                                                \
    template <typename T>                                                                          \
    SW_KERNEL(GPU_ATTENTION_GRAD_WARPS(D) * SW_WARP, 8 / GPU_ATTENTION_GRAD_WARPS(D))              \
    void attention_keys_##D(struct gpu_attention_args args)                                        \
    {                                                                                              \
        gradient<T, D, true>(args);                                                                \
    }                                                                                              \
    template <typename T>                                                                          \
    SW_KERNEL(GPU_ATTENTION_GRAD_WARPS(D) * SW_WARP, 8 / GPU_ATTENTION_GRAD_WARPS(D))              \
    void attention_queries_##D(struct gpu_attention_args args)                                     \
    {                                                                                              \
        gradient<T, D, false>(args);                                                               \
    }
GRADIENT(64)
GRADIENT(128)
GRADIENT(256)

#define GRADIENT_ROWS(D)                                                                           \
    SW_FLOATS(attention_keys_##D, GPU_ATTENTION_GRAD_WARPS(D) * SW_WARP),                          \
        SW_FLOATS(attention_queries_##D, GPU_ATTENTION_GRAD_WARPS(D) * SW_WARP)
static const struct sw_gpu_kernel rows[] = {SW_FLOATS(attention_delta, DELTA_THREADS),

                                            GRADIENT_ROWS(64), GRADIENT_ROWS(128),
                                            GRADIENT_ROWS(256)};
const struct sw_gpu_kernels sw_gpu_kernels_attention_grad = {rows, SW_ROWS(rows)};
