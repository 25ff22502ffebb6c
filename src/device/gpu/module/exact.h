// SPDX-License-Identifier: Apache-2.0
// exact - order-independent sums of doubles: the long fixed-point accumulators of graph/exact.c.
// Word i has the bits of weight 2^(30 i - 640) of a signed sum, with room for carries. Each warp
// has its own words in shared memory. Integer atomics add up the words of all blocks, and the last
// block settles the carries.
#pragma once

#include "device/gpu/module/args.h"
#include "device/gpu/module/gpu_rt.h"

enum { EXACT_WORD_BITS = 30, EXACT_LOW = 640 };
/* A word that is otherwise unused and 0: counts the blocks that have added their words. */
enum { EXACT_TICKET = GPU_STATS_WORDS - 1 };

struct exact_words {
    int64_t word[GPU_STATS_WORDS];
};

SW_DEVICE bool is_finite(float x)
{
    return (bits_of(x) & 0x7f800000u) != 0x7f800000u;
}

SW_DEVICE double power_of_2(int exponent)
{
    return of_bits((uint64_t)(exponent + 1023) << 52);
}

/* The contribution of a number to the words from `word` on. */
struct exact_term {
    int word;
    int64_t part[3];
};

/* |x| < 2^640 */
SW_DEVICE struct exact_term exact_term_of(double x)
{
    const uint64_t bits = bits_of(x), hidden = (uint64_t)1 << 52;
    const uint64_t mask = ((uint64_t)1 << EXACT_WORD_BITS) - 1;
    uint64_t mantissa = (bits & (hidden - 1)) | hidden;
    int position = ((int)(bits >> 52) & 0x7ff) - 1075 + EXACT_LOW;
    if (position < 0) {
        mantissa = position >= -52 ? mantissa >> -position : 0;
        position = 0;
    }
    const int shift = position % EXACT_WORD_BITS;
    const int64_t flip = -(int64_t)(bits >> 63);
    struct exact_term term;
    term.word = position / EXACT_WORD_BITS;
    term.part[0] = ((int64_t)((mantissa << shift) & mask) ^ flip) - flip;
    term.part[1] = ((int64_t)((mantissa >> (EXACT_WORD_BITS - shift)) & mask) ^ flip) - flip;
    term.part[2] = ((int64_t)(mantissa >> (2 * EXACT_WORD_BITS - shift)) ^ flip) - flip;
    return term;
}

SW_DEVICE void exact_add(int64_t *acc, double x)
{
    const struct exact_term term = exact_term_of(x);
    SW_UNROLL
    for (int i = 0; i < 3; i++) {
        acc[term.word + i] += term.part[i];
    }
}

/* Safe while other threads add to the same words. */
SW_DEVICE void exact_add_among_others(int64_t *acc, double x)
{
    const struct exact_term term = exact_term_of(x);
    SW_UNROLL
    for (int i = 0; i < 3; i++) {
        if (term.part[i] != 0) {
            atomic_add((unsigned long long *)&acc[term.word + i], (unsigned long long)term.part[i]);
        }
    }
}

SW_DEVICE void exact_carry(int64_t *acc)
{
    SW_ROLLED
    for (int i = 0; i + 1 < GPU_EXACT_WORDS; i++) {
        const int64_t low = acc[i] & (((int64_t)1 << EXACT_WORD_BITS) - 1);
        acc[i + 1] += (acc[i] - low) >> EXACT_WORD_BITS;
        acc[i] = low;
    }
}

/* The value of words without carries, added from the top as the host does. */
SW_DEVICE double exact_value(const int64_t *acc)
{
    double value = 0;
    SW_ROLLED
    for (int i = GPU_EXACT_WORDS - 1; i >= 0; i--) {
        value += (double)acc[i] * power_of_2(EXACT_WORD_BITS * i - EXACT_LOW);
    }
    return value;
}

/* Copies the words of n_sets sums and settles their carries. Called by all threads of a block. */
SW_DEVICE void exact_settled(const int64_t *from, struct exact_words *to, int n_sets)
{
    for (int i = thread_index(); i < n_sets * GPU_STATS_WORDS; i += block_threads()) {
        to[i / GPU_STATS_WORDS].word[i % GPU_STATS_WORDS] = from[i];
    }
    sync_block();
    for (int set = thread_index(); set < n_sets; set += block_threads()) {
        exact_carry(to[set].word);
    }
    sync_block();
}

/* The sum of squares of a run's finite elements; *n_bad += the number of others. */
SW_DEVICE double squares(const float (&x)[GPU_RUN], int n, int *n_bad)
{
    double sum = 0;
    SW_UNROLL
    for (int e = 0; e < GPU_RUN; e++) {
        if (e < n) {
            if (is_finite(x[e])) {
                sum += (double)x[e] * (double)x[e];
            } else {
                *n_bad += 1;
            }
        }
    }
    return sum;
}

/* Adds the x of all lanes to the words of the warp. Nonzero values must be at least 2^-900 and
 * below 2^600. The bits above a place 40 below the largest have an exact sum in double; the rest is
 * added in the same way. */
template <int N> SW_DEVICE void exact_add_warp(int64_t *acc, double (&x)[N])
{
    enum { BITS = 40, DOUBLE_BITS = 52 };
    for (;;) {
        uint32_t top = 0; /* exponents compare as the upper halves do */
        SW_UNROLL
        for (int i = 0; i < N; i++) {
            const uint32_t size = (uint32_t)(bits_of(x[i]) >> 32) & 0x7fffffffu;
            top = size > top ? size : top;
        }
        SW_UNROLL
        for (int mask = SW_WARP / 2; mask > 0; mask /= 2) {
            const uint32_t other = shuffle_xor(top, mask);
            top = other > top ? other : top;
        }
        if (top == 0) {
            return;
        }
        /* All are below 2^exponent; the lowest bit of `round` is that place. */
        const int exponent = (int)(top >> 20) - 1022;
        const double round = 1.5 * power_of_2(exponent + DOUBLE_BITS - BITS);
        double sum = 0;
        SW_UNROLL
        for (int i = 0; i < N; i++) {
            const double high = (x[i] + round) - round;
            sum += high;
            x[i] -= high;
        }
        SW_UNROLL
        for (int mask = SW_WARP / 2; mask > 0; mask /= 2) {
            sum += shuffle_xor(sum, mask);
        }
        if (lane_index() == 0) {
            exact_add(acc, sum);
        }
    }
}

SW_DEVICE int warp_sum(int x)
{
    SW_UNROLL
    for (int mask = SW_WARP / 2; mask > 0; mask /= 2) {
        x += shuffle_xor(x, mask);
    }
    return x;
}

/* ---- words of a block: [SETS][warps] ---- */

template <int SETS, int THREADS> struct exact_block {
    struct exact_words warp[THREADS / SW_WARP][SETS], sum[SETS];
    int is_last;
};

template <int SETS, int THREADS> SW_DEVICE void exact_begin(exact_block<SETS, THREADS> *block)
{
    enum { WORDS = THREADS / SW_WARP * SETS * GPU_STATS_WORDS };
    for (int i = thread_index(); i < WORDS; i += THREADS) {
        block->warp[i / (SETS * GPU_STATS_WORDS)][i / GPU_STATS_WORDS % SETS]
            .word[i % GPU_STATS_WORDS] = 0;
    }
    sync_block();
}

/* Settles the carries of the block's sums. */
template <int SETS, int THREADS> SW_DEVICE void exact_carry_sums(exact_block<SETS, THREADS> *block)
{
    sync_block();
    if (thread_index() % SW_WARP == 0 && warp_index() < SETS) {
        exact_carry(block->sum[warp_index()].word);
    }
    sync_block();
}

/* Sums over all warps of the block. */
template <int SETS, int THREADS>
SW_DEVICE uint64_t exact_sum_of_warps(const exact_block<SETS, THREADS> *block, int i)
{
    uint64_t sum = 0;
    for (int w = 0; w < THREADS / SW_WARP; w++) {
        sum += (uint64_t)block->warp[w][i / GPU_STATS_WORDS].word[i % GPU_STATS_WORDS];
    }
    return sum;
}

/* Ends a sum whose terms are all in this block: leaves it in block->sum. */
template <int SETS, int THREADS> SW_DEVICE void exact_end_here(exact_block<SETS, THREADS> *block)
{
    sync_block();
    for (int i = thread_index(); i < SETS * GPU_STATS_WORDS; i += THREADS) {
        block->sum[i / GPU_STATS_WORDS].word[i % GPU_STATS_WORDS] =
            (int64_t)exact_sum_of_warps(block, i);
    }
    exact_carry_sums(block);
}

/* Adds the block's words to out [SETS, GPU_STATS_WORDS], without settling carries. */
template <int SETS, int THREADS>
SW_DEVICE void exact_put(const exact_block<SETS, THREADS> *block, int64_t *out)
{
    sync_block();
    for (int i = thread_index(); i < SETS * GPU_STATS_WORDS; i += THREADS) {
        const uint64_t sum = exact_sum_of_warps(block, i);
        if (sum != 0) {
            atomic_add((unsigned long long *)&out[i], (unsigned long long)sum);
        }
    }
}

/* Adds the block's words to out [SETS, GPU_STATS_WORDS]; the last block settles the carries. */
template <int SETS, int THREADS>
SW_DEVICE void exact_end(exact_block<SETS, THREADS> *block, int64_t *out)
{
    unsigned long long *words = (unsigned long long *)out;
    exact_put(block, out);
    fence_device();
    sync_block();
    if (thread_index() == 0) {
        block->is_last = atomic_add(&words[EXACT_TICKET], 1) + 1 == (unsigned long long)grid_x();
    }
    sync_block();
    if (!block->is_last) {
        return;
    }
    fence_device();
    for (int i = thread_index(); i < SETS * GPU_STATS_WORDS; i += THREADS) {
        block->sum[i / GPU_STATS_WORDS].word[i % GPU_STATS_WORDS] = /* the atomics' destination */
            i == EXACT_TICKET ? 0 : (int64_t)atomic_add(&words[i], 0);
    }
    exact_carry_sums(block);
    for (int i = thread_index(); i < SETS * GPU_STATS_WORDS; i += THREADS) {
        out[i] = block->sum[i / GPU_STATS_WORDS].word[i % GPU_STATS_WORDS];
    }
}

/* Adds the block's sum of squares to `stats`, and this thread's number of non-finite values. */
template <int THREADS>
SW_DEVICE void exact_end_squares(exact_block<1, THREADS> *block, int n_bad, int64_t *stats)
{
    n_bad = warp_sum(n_bad);
    if (lane_index() == 0) {
        block->warp[warp_index()][0].word[GPU_EXACT_WORDS] = n_bad;
    }
    exact_end(block, stats);
}
