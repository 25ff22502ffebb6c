// SPDX-License-Identifier: Apache-2.0
// Element conversions: every 16-bit value, against arithmetic in double and against the compiler's
// own half type if it has one; rounding at every midpoint; the split master.
#include "tensor/tensor.h"

#include "support/test.h"

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* A 16-bit float by its definition: (-1)^s 2^(e-bias) 1.m, or 2^(1-bias) 0.m. */
static double by_definition(uint16_t x, int exp_bits, int mantissa_bits)
{
    const int exp_max = (1 << exp_bits) - 1, bias = exp_max >> 1;
    const int exp = x >> mantissa_bits & exp_max, mantissa = x & ((1 << mantissa_bits) - 1);
    const double sign = x & 0x8000 ? -1.0 : 1.0;
    if (exp == exp_max) {
        return mantissa ? NAN : sign * INFINITY;
    }
    const double whole = exp ? 1 << mantissa_bits : 0;
    return sign * ldexp(whole + mantissa, (exp ? exp : 1) - bias - mantissa_bits);
}

struct format {
    enum sw_dtype dtype;
    int exp_bits, mantissa_bits;
};
static const struct format formats[] = {{SW_BF16, 8, 7}, {SW_F16, 5, 10}};

static void every_16_bit_value_widens_and_returns(void **state)
{
    (void)state;
    for (size_t f = 0; f < SW_LEN(formats); f++) {
        const struct format *format = &formats[f];
        const uint16_t quiet = (uint16_t)(1 << (format->mantissa_bits - 1));
        for (int i = 0; i < 65536; i++) {
            const uint16_t x = (uint16_t)i;
            const double wanted = by_definition(x, format->exp_bits, format->mantissa_bits);
            const double got = sw_load_f64(format->dtype, &x, 0);
            uint16_t from_f32, from_f64;
            const float single = (float)got;
            sw_convert(format->dtype, &from_f32, SW_F32, &single, 1);
            sw_convert(format->dtype, &from_f64, SW_F64, &got, 1);
            if (isnan(wanted)) {
                assert_true(isnan(got));
                assert_int_equal(from_f32, x | quiet);
                assert_int_equal(from_f64, x | quiet);
            } else {
                assert_true(wanted == got && signbit(wanted) == signbit(got));
                assert_int_equal(from_f32, x);
                assert_int_equal(from_f64, x);
            }
        }
    }
}

/* Between each value and the next: the midpoint goes to the even one, its neighbours to the nearer
 * one. After the largest finite value comes infinity, in place of 2^(max+1). */
static void every_midpoint_rounds_to_even(void **state)
{
    (void)state;
    for (size_t f = 0; f < SW_LEN(formats); f++) {
        const struct format *format = &formats[f];
        const int exp_max = (1 << format->exp_bits) - 1;
        const int infinity = exp_max << format->mantissa_bits;
        for (int i = 0; i < infinity; i++) {
            const double low = by_definition((uint16_t)i, format->exp_bits, format->mantissa_bits);
            const double high =
                i + 1 < infinity
                    ? by_definition((uint16_t)(i + 1), format->exp_bits, format->mantissa_bits)
                    : ldexp(1.0, exp_max - (exp_max >> 1));
            const double middle = (low + high) / 2;
            const double points[] = {nextafter(middle, 0), middle, nextafter(middle, INFINITY)};
            const int wanted[] = {i, i + (i & 1), i + 1};
            for (int p = 0; p < 3; p++) {
                uint16_t up, down;
                const double negative = -points[p];
                sw_convert(format->dtype, &up, SW_F64, &points[p], 1);
                sw_convert(format->dtype, &down, SW_F64, &negative, 1);
                assert_int_equal(up, wanted[p]);
                assert_int_equal(down, wanted[p] | 0x8000);
            }
            const float single = (float)middle; /* exact: 24 bits hold every midpoint */
            assert_true((double)single == middle);
            uint16_t from_f32;
            sw_convert(format->dtype, &from_f32, SW_F32, &single, 1);
            assert_int_equal(from_f32, wanted[1]);
        }
    }
}

/* The double is so close above a midpoint that rounding to float first would lose the
 * difference. */
static void doubles_are_rounded_once(void **state)
{
    (void)state;
    const double bf16 = 1.0 + 0x1p-8 + 0x1p-50, half = 1.0 + 0x1p-11 + 0x1p-50;
    uint16_t got;
    sw_convert(SW_BF16, &got, SW_F64, &bf16, 1);
    assert_int_equal(got, 0x3f81);
    sw_convert(SW_F16, &got, SW_F64, &half, 1);
    assert_int_equal(got, 0x3c01);
}

static void extremes(void **state)
{
    (void)state;
    assert_int_equal(sw_f32_to_f16(65504.0F), 0x7bff);
    assert_int_equal(sw_f32_to_f16(65519.0F), 0x7bff);
    assert_int_equal(sw_f32_to_f16(65520.0F), 0x7c00);
    assert_int_equal(sw_f32_to_f16(1e30F), 0x7c00);
    assert_int_equal(sw_f32_to_f16(0x1p-25F), 0);
    assert_int_equal(sw_f32_to_f16(0x1.8p-25F), 1);
    assert_int_equal(sw_f32_to_f16(-0.0F), 0x8000);
    assert_int_equal(sw_f32_to_bf16(float_of(0x7f7fffff)), 0x7f80);
    assert_int_equal(sw_f32_to_bf16(float_of(0x7f800001)), 0x7fc0); /* not infinity */
    assert_int_equal(sw_f32_to_bf16(float_of(0xffffffff)), 0xffff);
    const double tiny = 4.9e-324, huge = 1.7e308;
    uint16_t got;
    sw_convert(SW_BF16, &got, SW_F64, &tiny, 1);
    assert_int_equal(got, 0);
    sw_convert(SW_BF16, &got, SW_F64, &huge, 1);
    assert_int_equal(got, 0x7f80);
}

#if defined(__FLT16_MAX__)
static void half_agrees_with_the_compiler(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < (UINT32_C(1) << 20); i++) {
        /* all signs and exponents of float, mantissas spread by an odd factor */
        const uint32_t bits = i << 12 | (i * UINT32_C(2654435761) >> 20);
        const float x = float_of(bits);
        if (isnan(x)) {
            continue;
        }
        const _Float16 wanted = (_Float16)x;
        uint16_t wanted_bits;
        memcpy(&wanted_bits, &wanted, sizeof(wanted_bits));
        assert_int_equal(sw_f32_to_f16(x), wanted_bits);
        assert_true((float)wanted == sw_f16_to_f32(wanted_bits));
    }
}
#endif

static void all_pairs_convert(void **state)
{
    (void)state;
    static const enum sw_dtype floats[] = {SW_F32, SW_F64, SW_BF16, SW_F16};
    const double values[] = {0.0, -1.5, 0.15625, 96.0, -0x1p-14, 240.0, 1.0};
    enum { N = SW_LEN(values) };
    for (size_t a = 0; a < 4; a++) {
        for (size_t b = 0; b < 4; b++) {
            char first[N * 8 + 1], second[N * 8 + 1]; /* one byte off: unaligned */
            for (int64_t i = 0; i < N; i++) {
                sw_store_f64(floats[a], first + 1, i, values[i]);
            }
            sw_convert(floats[b], second + 1, floats[a], first + 1, N);
            for (int64_t i = 0; i < N; i++) {
                assert_true(sw_load_f64(floats[b], second + 1, i) == values[i]);
            }
            sw_convert(floats[b], second + 1, floats[a], first + 1, 0);
        }
    }
}

static void conversion_in_place(void **state)
{
    (void)state;
    uint16_t halves[5];
    for (int i = 0; i < 5; i++) {
        halves[i] = sw_f32_to_f16((float)i - 2);
    }
    sw_convert(SW_BF16, halves, SW_F16, halves, 5);
    for (int i = 0; i < 5; i++) {
        assert_true(sw_bf16_to_f32(halves[i]) == (float)i - 2);
    }
}

/* ---- the split master ---- */

static void check_master(uint32_t bits)
{
    uint16_t hi;
    int16_t lo;
    const float master = float_of(bits);
    sw_master_split(master, &hi, &lo);
    if (isnan(master)) {
        assert_int_equal(hi, (bits >> 16 & 0x8000) | 0x7fc0);
        assert_int_equal(lo, 0);
        assert_true(isnan(sw_master_join(hi, lo)));
        return;
    }
    assert_int_equal(bits_of(sw_master_join(hi, lo)), bits);
    /* hi is bf16 rounded to nearest; only ties may not go to even */
    const bool tie = (bits & 0xffff) == 0x8000;
    const uint16_t even = sw_f32_to_bf16(master);
    assert_true(hi == even || (tie && hi == even + 1));
    assert_true(!tie || lo == INT16_MIN);
}

static void master_is_lossless(void **state)
{
    (void)state;
    /* every upper half with the lower halves at which rounding changes */
    static const uint16_t lows[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff};
    for (uint32_t high = 0; high < 65536; high++) {
        for (size_t i = 0; i < SW_LEN(lows); i++) {
            check_master(high << 16 | lows[i]);
        }
    }
    for (uint64_t i = 0; i < 500000; i++) {
        const uint64_t bits = sw_philox_u64(11, 0, i);
        check_master((uint32_t)bits);
        check_master((uint32_t)(bits >> 32));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_16_bit_value_widens_and_returns),
    cmocka_unit_test(every_midpoint_rounds_to_even),
    cmocka_unit_test(doubles_are_rounded_once),
    cmocka_unit_test(extremes),
#if defined(__FLT16_MAX__)
    cmocka_unit_test(half_agrees_with_the_compiler),
#endif
    cmocka_unit_test(all_pairs_convert),
    cmocka_unit_test(conversion_in_place),
    cmocka_unit_test(master_is_lossless),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
