// SPDX-License-Identifier: Apache-2.0
// Exact sums of doubles in a long fixed-point accumulator (after U. Kulisch): word i holds the bits of
// weight 2^(30 i - LOW) as a signed 64-bit number with room for carries, so that adding and merging
// are exact and their order and grouping cannot matter. Carries are settled only when reading.
#include <math.h>
#include <string.h>

#include "graph/graph.h"

enum { WORD_BITS = 30, LOW = 640 }; /* words cover 2^-640 .. 2^680 */

void sw_exact_add(int64_t *acc, double x)
{
    int exponent;
    const double fraction =
        frexp(x, &exponent); /* x = fraction 2^exponent, |fraction| in [1/2, 1) */
    if (fraction == 0) {
        return;
    }
    /* The 53-bit integer mantissa has weight 2^(exponent - 53). */
    int64_t mantissa = (int64_t)ldexp(fraction, 53);
    int position = exponent - 53 + LOW;
    if (position < 0) {
        if (position <= -53) {
            return; /* below the lowest bit kept */
        }
        mantissa = mantissa >= 0 ? mantissa >> -position : -(-mantissa >> -position);
        position = 0;
    }
    int word = position / WORD_BITS;
    const int shift = position % WORD_BITS;
    const int sign = mantissa < 0 ? -1 : 1;
    unsigned __int128 rest = (unsigned __int128)(uint64_t)(mantissa < 0 ? -mantissa : mantissa)
                             << shift;
    for (; rest && word < SW_EXACT_WORDS; word++) {
        acc[word] += sign * (int64_t)((uint64_t)rest & ((UINT64_C(1) << WORD_BITS) - 1));
        rest >>= WORD_BITS;
    }
}

void sw_exact_merge(int64_t *acc, const int64_t *other)
{
    for (int i = 0; i < SW_EXACT_WORDS; i++) {
        acc[i] += other[i];
    }
}

double sw_exact_value(const int64_t *acc)
{
    int64_t words[SW_EXACT_WORDS];
    int64_t carry = 0;
    for (int i = 0; i < SW_EXACT_WORDS; i++) { /* settle carries: words in [0, 2^30), last signed */
        const int64_t sum = acc[i] + carry;
        if (i == SW_EXACT_WORDS - 1) {
            words[i] = sum;
            break;
        }
        words[i] = sum & ((INT64_C(1) << WORD_BITS) - 1);
        carry = (sum - words[i]) / (INT64_C(1) << WORD_BITS);
    }
    double value = 0;
    for (int i = SW_EXACT_WORDS - 1; i >= 0; i--) { /* from the top: error far below one ulp */
        value += ldexp((double)words[i], WORD_BITS * i - LOW);
    }
    return value;
}
