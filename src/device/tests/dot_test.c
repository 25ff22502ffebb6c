// SPDX-License-Identifier: Apache-2.0
// The microkernels of bf16 products: the processor's instructions and their models in plain C give
// the same bits.
#include <math.h>
#include <string.h>

#include "device/cpu/bf16_tiles.h"
#include "device/cpu/cpu.h"
#include "support/test.h"

enum { STEPS = 3 };

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Ordinary numbers, or any bits: denormals, infinities and NaNs, too; or numbers whose products are
 * near the least normal number. */
enum kind { ORDINARY, ANY, TINY, N_KINDS };

static uint16_t draw_bf16(uint64_t *state, enum kind kind)
{
    const uint16_t bits = (uint16_t)draw(state);
    switch (kind) {
    case ORDINARY:
        return (uint16_t)((bits & 0x80ff) | (0x3e00 + (bits & 0x0300)));
    case TINY: /* exponents 2^-66 .. 2^-60 */
        return (uint16_t)((bits & 0x807f) | (uint16_t)((61 + draw(state) % 7) << 7));
    default:
        return bits;
    }
}

static _Alignas(64) uint16_t a[2][STEPS][TILE_ELEMS], b[2][STEPS][TILE_ELEMS];

static void fill(uint64_t *state, enum kind kind)
{
    for (size_t i = 0; i < sizeof a / sizeof(uint16_t); i++) {
        (&a[0][0][0])[i] = draw_bf16(state, kind);
        (&b[0][0][0])[i] = draw_bf16(state, kind);
    }
}

static void count_step(void *ctx, int64_t i_step)
{
    int64_t *seen = ctx;
    assert_int_equal(*seen, i_step);
    (*seen)++;
}

static void multiply(const struct cpu_dot_kernel *kernel, int64_t first, int64_t steps, float *c)
{
    int64_t seen = 0;
    const struct cpu_dot dot = {.a = {a[0][first], a[1][first]},
                                .a_row = TILE_ROW_BYTES,
                                .a_step = TILE_BYTES,
                                .b = {b[0][first], b[1][first]},
                                .steps = steps,
                                .adds = first > 0,
                                .c = c,
                                .side = count_step,
                                .ctx = &seen};
    if (kernel->begin) {
        kernel->begin();
    }
    kernel->block(&dot);
    if (kernel->end) {
        kernel->end();
    }
    assert_int_equal(seen, steps);
}

static void assert_same(const float *x, const float *y)
{
    for (int i = 0; i < DOT_ELEMS; i++) {
        if (!(isnan(x[i]) && isnan(y[i]))) {
            assert_memory_equal(x + i, y + i, sizeof *x);
        }
    }
}

static const struct pair {
    enum cpu_isa needs;
    const struct cpu_dot_kernel *kernel, *model;
} pairs[] = {
#if defined(__x86_64__) && !defined(SPILLWAY_WITHOUT_AMX)
    {CPU_AVX512_BF16, &sw_cpu_dot_avx512bf16, &sw_cpu_dot_avx512bf16_model},
    {CPU_AMX_BF16, &sw_cpu_dot_amx, &sw_cpu_dot_amx_model},
#endif
    {CPU_PORTABLE, &sw_cpu_dot_amx_model, &sw_cpu_dot_amx_model},
    {CPU_PORTABLE, &sw_cpu_dot_avx512bf16_model, &sw_cpu_dot_avx512bf16_model},
};

static void instructions_have_the_bits_of_their_models(void **state)
{
    (void)state;
    static _Alignas(64) float got[DOT_ELEMS], wanted[DOT_ELEMS];
    bool amx;
    const enum cpu_isa isa = sw_cpu_isa_detect(&amx);
    uint64_t random = 1;
    for (int round = 0; round < 30; round++) {
        fill(&random, (enum kind)(round % N_KINDS));
        for (size_t p = 0; p < SW_LEN(pairs); p++) {
            if (isa >= pairs[p].needs && pairs[p].kernel != pairs[p].model) {
                multiply(pairs[p].kernel, 0, STEPS, got);
                multiply(pairs[p].model, 0, STEPS, wanted);
                assert_same(got, wanted);
            }
        }
    }
}

/* A sum that is stored and continued is the sum of one run. */
static void a_sum_may_be_cut_at_any_step(void **state)
{
    (void)state;
    static _Alignas(64) float whole[DOT_ELEMS], parts[DOT_ELEMS];
    bool amx;
    const enum cpu_isa isa = sw_cpu_isa_detect(&amx);
    uint64_t random = 7;
    for (int kind = 0; kind < N_KINDS; kind++) {
        fill(&random, (enum kind)kind);
        for (size_t p = 0; p < SW_LEN(pairs); p++) {
            if (isa >= pairs[p].needs) {
                multiply(pairs[p].kernel, 0, STEPS, whole);
                multiply(pairs[p].kernel, 0, 1, parts);
                multiply(pairs[p].kernel, 1, STEPS - 1, parts);
                assert_same(whole, parts);
            }
        }
    }
}

/* One term at a time, the sum is the exact one of small integers. */
static void models_multiply(void **state)
{
    (void)state;
    static _Alignas(64) float c[DOT_ELEMS];
    for (int i = 0; i < 2 * STEPS * TILE_ELEMS; i++) {
        const float x = (float)(i % 5 - 2), y = (float)(i % 7 - 3);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        (&a[0][0][0])[i] = (uint16_t)(bits >> 16);
        memcpy(&bits, &y, sizeof bits);
        (&b[0][0][0])[i] = (uint16_t)(bits >> 16);
    }
    for (size_t p = 0; p < SW_LEN(pairs); p++) {
        if (pairs[p].kernel != pairs[p].model) {
            continue;
        }
        multiply(pairs[p].model, 0, STEPS, c);
        for (int i = 0; i < DOT_ELEMS; i++) {
            const int m = i / DOT_EDGE, n = i % DOT_EDGE;
            int sum = 0;
            for (int k = 0; k < STEPS * TILE_TERMS; k++) {
                const int tile = STEPS * TILE_ELEMS, step = k / TILE_TERMS * TILE_ELEMS;
                const int at_a = m / 16 * tile + step + m % 16 * TILE_TERMS + k % TILE_TERMS;
                const int at_b =
                    n / 16 * tile + step + k % TILE_TERMS / 2 * TILE_TERMS + n % 16 * 2 + k % 2;
                sum += (at_a % 5 - 2) * (at_b % 7 - 3);
            }
            assert_true(c[i] == (float)sum);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(models_multiply),
    cmocka_unit_test(instructions_have_the_bits_of_their_models),
    cmocka_unit_test(a_sum_may_be_cut_at_any_step),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
