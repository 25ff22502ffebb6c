// SPDX-License-Identifier: Apache-2.0
// Exact sums of doubles in a long fixed-point accumulator (after U. Kulisch). Word i holds the bits
// of weight 2^(30 i - LOW), as a signed 64-bit number with room for carries. Adding and merging are
// exact, so order and grouping do not matter. Carries are propagated only at the end.
#include <math.h>
#include <string.h>

#include "graph/graph.h"

enum { WORD_BITS = 30, LOW = 640 }; /* words cover 2^-640 .. 2^680 */
enum { MANTISSA_BITS = 52, EXPONENT_BIAS = 1075, EXPONENT_MASK = 0x7ff };
#define WORD_MASK ((UINT64_C(1) << WORD_BITS) - 1)

/* |x| is mantissa 2^(exponent - BIAS). The shifted mantissa has at most 53 + 29 bits, so it spans
 * three words. */
void sw_exact_add(int64_t *acc, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int exponent = (int)(bits >> MANTISSA_BITS) & EXPONENT_MASK;
    const uint64_t hidden = UINT64_C(1) << MANTISSA_BITS;
    /* subnormal numbers, which have no hidden bit, are too small to count */
    uint64_t mantissa = (bits & (hidden - 1)) | hidden;
    int position = exponent - EXPONENT_BIAS + LOW;
    if (position < 0) { /* below the lowest bit kept */
        mantissa = position >= -MANTISSA_BITS ? mantissa >> -position : 0;
        position = 0;
    }
    const int word = position / WORD_BITS, shift = position % WORD_BITS;
    const int64_t flip = -(int64_t)(bits >> 63);
    const uint64_t part[3] = {(mantissa << shift) & WORD_MASK,
                              (mantissa >> (WORD_BITS - shift)) & WORD_MASK,
                              mantissa >> (2 * WORD_BITS - shift)};
    SW_ASSERT(word + 2 < SW_EXACT_WORDS);
    for (int i = 0; i < 3; i++) {
        acc[word + i] += ((int64_t)part[i] ^ flip) - flip;
    }
}

void sw_exact_add_squares(int64_t *acc, int64_t *n_bad, double sum)
{
    if (sum < 0x1p640) {
        sw_exact_add(acc, sum);
    } else {
        (*n_bad)++;
    }
}

void sw_exact_merge(int64_t *acc, const int64_t *other)
{
    for (int i = 0; i < SW_EXACT_WORDS; i++) {
        acc[i] += other[i];
    }
}

/* Brings words into [0, 2^30); the last one is signed. */
void sw_exact_carry(int64_t *acc)
{
    for (int i = 0; i + 1 < SW_EXACT_WORDS; i++) {
        const int64_t low = acc[i] & (int64_t)WORD_MASK;
        acc[i + 1] += (acc[i] - low) / (INT64_C(1) << WORD_BITS);
        acc[i] = low;
    }
}

double sw_exact_value(const int64_t *acc)
{
    int64_t words[SW_EXACT_WORDS];
    memcpy(words, acc, sizeof words);
    sw_exact_carry(words);
    double value = 0;
    for (int i = SW_EXACT_WORDS - 1; i >= 0; i--) { /* from the top: error far below one ulp */
        value += ldexp((double)words[i], WORD_BITS * i - LOW);
    }
    return value;
}
