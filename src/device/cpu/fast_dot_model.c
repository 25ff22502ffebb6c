// SPDX-License-Identifier: Apache-2.0
// The dot-product instructions of bf16 in plain C. A step is a fused multiply-add with one
// rounding; a result below the least normal number, after rounding with an unbounded exponent, is
// zero of its sign. The two instructions differ in the order of steps.
#include "device/cpu/bf16_tiles.h"

#include <math.h>
#include <string.h>

/* A denormal is zero of its sign. */
static float flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static float widen(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return flush(wide);
}

static float step(float a, float b, float c)
{
    const float sum = fmaf(a, b, c);
    if (fabsf(sum) > 0x1p-126f || sum == 0) {
        return sum;
    }
    /* Is it below the least normal number if the exponent has no limit? The smaller factor is
     * scaled, so that nothing overflows. */
    const bool a_is_small = fabsf(a) < fabsf(b);
    const float big = a_is_small ? b : a, small = a_is_small ? a : b;
    return fabsf(fmaf(small * 0x1p64f, big, c * 0x1p64f)) < 0x1p-62f ? copysignf(0, sum) : sum;
}

/* Even and odd terms are summed by themselves, then together; the sum is added to c. */
static float tile_element(float c, const uint16_t *a, const uint16_t *b)
{
    float even = 0, odd = 0;
    for (int i = 0; i < TILE_EDGE; i++) {
        even = step(widen(a[2 * i]), widen(b[2 * TILE_EDGE * i]), even);
        odd = step(widen(a[2 * i + 1]), widen(b[2 * TILE_EDGE * i + 1]), odd);
    }
    return step(step(even, 1, odd), 1, flush(c));
}

void sw_cpu_model_tdpbf16ps(float c[TILE_EDGE * TILE_EDGE], const uint16_t a[TILE_ELEMS],
                            const uint16_t b[TILE_ELEMS])
{
    for (int m = 0; m < TILE_EDGE; m++) {
        for (int n = 0; n < TILE_EDGE; n++) {
            float *at = c + m * TILE_EDGE + n;
            *at = tile_element(*at, a + m * TILE_TERMS, b + 2 * n);
        }
    }
}

/* The odd term of a pair comes first. */
void sw_cpu_model_vdpbf16ps(float c[TILE_EDGE], const uint16_t a[TILE_TERMS],
                            const uint16_t b[TILE_TERMS])
{
    for (int l = 0; l < TILE_EDGE; l++) {
        const float first = step(widen(a[2 * l + 1]), widen(b[2 * l + 1]), flush(c[l]));
        c[l] = step(widen(a[2 * l]), widen(b[2 * l]), first);
    }
}

/* ---- as microkernels ---- */

static void begin_block(const struct cpu_dot *dot)
{
    if (!dot->adds) {
        memset(dot->c, 0, DOT_ELEMS * sizeof *dot->c);
    }
}

static const uint16_t *row_of(const struct cpu_dot *dot, int64_t step, int row)
{
    return (const uint16_t *)((const char *)dot->a[row / TILE_EDGE] + (size_t)step * dot->a_step +
                              (size_t)(row % TILE_EDGE) * dot->a_row);
}

static const uint16_t *tile_of(const struct cpu_dot *dot, int64_t step, int panel)
{
    return (const uint16_t *)((const char *)dot->b[panel] + (size_t)step * TILE_BYTES);
}

static void amx_block(const struct cpu_dot *dot)
{
    begin_block(dot);
    for (int64_t step = 0; step < dot->steps; step++) {
        for (int i = 0; i < DOT_ELEMS; i++) {
            const int m = i / DOT_EDGE, n = i % DOT_EDGE;
            dot->c[i] = tile_element(dot->c[i], row_of(dot, step, m),
                                     tile_of(dot, step, n / TILE_EDGE) + n % TILE_EDGE * 2);
        }
        if (dot->side) {
            dot->side(dot->ctx, step);
        }
    }
}

static void avx512bf16_block(const struct cpu_dot *dot)
{
    begin_block(dot);
    for (int64_t step = 0; step < dot->steps; step++) {
        for (int i = 0; i < DOT_ELEMS; i += TILE_EDGE) {
            const uint16_t *a = row_of(dot, step, i / DOT_EDGE);
            const uint16_t *b = tile_of(dot, step, i % DOT_EDGE / TILE_EDGE);
            for (int pair = 0; pair < TILE_EDGE; pair++) {
                uint16_t same[TILE_TERMS];
                for (int l = 0; l < TILE_TERMS; l++) {
                    same[l] = a[2 * pair + l % 2];
                }
                sw_cpu_model_vdpbf16ps(dot->c + i, same, b + pair * TILE_TERMS);
            }
        }
        if (dot->side) {
            dot->side(dot->ctx, step);
        }
    }
}

static uint16_t element(const struct cpu_dot_pack *p, int64_t i, int64_t term)
{
    const uint16_t *from = p->from;
    return i >= p->n || term >= p->terms ? 0
           : p->terms_apart              ? from[term * p->ld + i]
                                         : from[i * p->ld + term];
}

static void pack(const struct cpu_dot_pack *p)
{
    for (int64_t i = 0; i < DOT_EDGE; i++) {
        uint16_t *panel = p->to[i / TILE_EDGE];
        const int64_t r = i % TILE_EDGE;
        for (int64_t term = 0; term < sw_ceil_div(p->terms, TILE_TERMS) * TILE_TERMS; term++) {
            const int64_t t = term % TILE_TERMS;
            const int64_t at = p->is_left ? r * TILE_TERMS + t : t / 2 * TILE_TERMS + 2 * r + t % 2;
            panel[term / TILE_TERMS * TILE_ELEMS + at] = element(p, i, term);
        }
    }
}

const struct cpu_dot_kernel sw_cpu_dot_amx_model = {
    .name = "amx_bf16 model", .block = amx_block, .pack = pack};
const struct cpu_dot_kernel sw_cpu_dot_avx512bf16_model = {
    .name = "avx512_bf16 model", .block = avx512bf16_block, .pack = pack};
