// SPDX-License-Identifier: Apache-2.0
// Peak bf16 multiply-add rate on registers with vdpbf16ps: two products per lane.
#if defined(__AVX512BF16__)
#include <immintrin.h>

#include "device/cpu/fast.h"

enum { PEAK_SUMS = 24 };

double sw_cpu_peak_bf16(int64_t rounds, float *sink)
{
    __m512 sum[PEAK_SUMS];
    __m512i x = _mm512_set1_epi32((int)*sink), y = x;
#pragma GCC unroll 32
    for (int i = 0; i < PEAK_SUMS; i++) {
        sum[i] = _mm512_set1_ps((float)i);
    }
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 32
        for (int i = 0; i < PEAK_SUMS; i++) {
            sum[i] = _mm512_dpbf16_ps(sum[i], (__m512bh)x, (__m512bh)y);
        }
        __asm__ volatile("" : "+v"(x), "+v"(y));
    }
    __m512 total = sum[0];
    for (int i = 1; i < PEAK_SUMS; i++) {
        total = _mm512_add_ps(total, sum[i]);
    }
    *sink = _mm512_reduce_add_ps(total);
    return 4.0 * 16 * PEAK_SUMS * (double)rounds;
}
#endif
