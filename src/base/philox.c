// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10: ten rounds of two 32x32 products over a counter, keyed by a Weyl sequence.
// Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011).
#include "base/base.h"

#include <math.h>

static void split(uint64_t product, uint32_t *high, uint32_t *low)
{
    *high = (uint32_t)(product >> 32);
    *low = (uint32_t)product;
}

void sw_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint32_t high0, low0, high1, low1;
        split(UINT64_C(0xD2511F53) * c0, &high0, &low0);
        split(UINT64_C(0xCD9E8D57) * c2, &high1, &low1);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += UINT32_C(0x9E3779B9); /* golden ratio */
        k1 += UINT32_C(0xBB67AE85); /* sqrt(3) - 1 */
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The block of 128 random bits that belongs to element i of a stream. */
static void draw(uint64_t seed, uint64_t stream, uint64_t i, uint64_t out[2])
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
    uint32_t bits[4];
    sw_philox(key, counter, bits);
    out[0] = (uint64_t)bits[1] << 32 | bits[0];
    out[1] = (uint64_t)bits[3] << 32 | bits[2];
}

uint64_t sw_philox_u64(uint64_t seed, uint64_t stream, uint64_t i)
{
    uint64_t bits[2];
    draw(seed, stream, i, bits);
    return bits[0];
}

double sw_philox_normal(uint64_t seed, uint64_t stream, uint64_t i)
{
    static const double two_pi = 6.283185307179586476925286766559;
    uint64_t bits[2];
    draw(seed, stream, i, bits);
    const double radius_u =
        ((double)(bits[0] >> 11) + 1.0) * 0x1p-53;             /* (0,1]: the log is finite */
    const double angle_u = (double)(bits[1] >> 11) * 0x1p-53;  /* [0,1) */
    return sqrt(-2.0 * log(radius_u)) * cos(two_pi * angle_u); /* Box-Muller */
}
