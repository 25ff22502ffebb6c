// SPDX-License-Identifier: Apache-2.0
// The microkernel of bf16 products with VDPBF16PS, on operands packed as for AMX. A block of 32 x
// 32 is made of parts of 8 x 32, whose sums stay in 16 registers.
#include "device/cpu/bf16_tiles.h"

#if defined(__AVX512BF16__)

enum { PART = 8 }; /* rows */

INLINE void step_of(__m512 sum[PART][2], const char *a, size_t row, const char *b0, const char *b1)
{
    for (int pair = 0; pair < TILE_EDGE; pair++) {
        const __m512bh left = (__m512bh)_mm512_load_si512(b0 + pair * TILE_ROW_BYTES);
        const __m512bh right = (__m512bh)_mm512_load_si512(b1 + pair * TILE_ROW_BYTES);
        UNROLL
        for (int i = 0; i < PART; i++) {
            int32_t both;
            memcpy(&both, a + (size_t)i * row + (size_t)pair * sizeof both, sizeof both);
            const __m512bh same = (__m512bh)_mm512_set1_epi32(both);
            sum[i][0] = _mm512_dpbf16_ps(sum[i][0], same, left);
            sum[i][1] = _mm512_dpbf16_ps(sum[i][1], same, right);
        }
    }
}

/* Epilogues may stream their stores. */
static void end(void)
{
    _mm_sfence();
}

static void block(const struct cpu_dot *dot)
{
    for (int part = 0; part < DOT_EDGE; part += PART) {
        const char *a =
            (const char *)dot->a[part / TILE_EDGE] + (size_t)(part % TILE_EDGE) * dot->a_row;
        float *c = dot->c + part * DOT_EDGE;
        __m512 sum[PART][2];
        UNROLL
        for (int i = 0; i < PART; i++) {
            sum[i][0] = dot->adds ? _mm512_load_ps(c + i * DOT_EDGE) : _mm512_setzero_ps();
            sum[i][1] =
                dot->adds ? _mm512_load_ps(c + i * DOT_EDGE + TILE_EDGE) : _mm512_setzero_ps();
        }
        for (int64_t step = 0; step < dot->steps; step++) {
            step_of(sum, a + (size_t)step * dot->a_step, dot->a_row,
                    (const char *)dot->b[0] + step * TILE_BYTES,
                    (const char *)dot->b[1] + step * TILE_BYTES);
            if (part == 0 && dot->side) {
                dot->side(dot->ctx, step);
            }
        }
        UNROLL
        for (int i = 0; i < PART; i++) {
            _mm512_store_ps(c + i * DOT_EDGE, sum[i][0]);
            _mm512_store_ps(c + i * DOT_EDGE + TILE_EDGE, sum[i][1]);
        }
    }
}

const struct cpu_dot_kernel sw_cpu_dot_avx512bf16 = {
    .name = "avx512_bf16", .end = end, .block = block, .pack = sw_cpu_dot_pack};

#endif
