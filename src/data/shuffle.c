// SPDX-License-Identifier: Apache-2.0
// A balanced Feistel network with Philox as its round function is a bijection on 2^(2h) numbers,
// whatever the round function does; the smallest h that covers n is taken, and a number that falls
// outside 0 .. n-1 is sent through again until it falls inside (cycle walking, Black and Rogaway
// 2002: still a bijection; less than four turns on average because 2^(2h) < 4 n).
#include "data/shuffle.h"

#include "base/base.h"

enum { ROUNDS = 6 };

static uint64_t feistel(uint64_t seed, uint64_t epoch, int half_bits, uint64_t x)
{
    const uint32_t mask = (uint32_t)((UINT64_C(1) << half_bits) - 1);
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t left = (uint32_t)(x >> half_bits), right = (uint32_t)x & mask;
    for (uint32_t round = 0; round < ROUNDS; ++round) {
        const uint32_t counter[4] = {right, round, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
        uint32_t random[4];
        sw_philox(key, counter, random);
        const uint32_t next = left ^ (random[0] & mask);
        left = right;
        right = next;
    }
    return (uint64_t)left << half_bits | right;
}

int64_t sw_shuffle(uint64_t seed, int64_t epoch, int64_t n, int64_t i)
{
    int half_bits = 1;
    SW_ASSERT(i >= 0 && i < n && n <= INT64_C(1) << 62);
    while (INT64_C(1) << (2 * half_bits) < n) {
        half_bits++;
    }
    uint64_t x = (uint64_t)i;
    do {
        x = feistel(seed, (uint64_t)epoch, half_bits, x);
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}
