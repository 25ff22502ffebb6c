// SPDX-License-Identifier: Apache-2.0
// 8-bit codes: their values match the published construction, and decoded numbers are near the
// originals.
#include <math.h>

#include "tensor/tensor.h"

#include "support/test.h"

enum { DECADES = 7, CODES = 256 };

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The values as the authors' program makes them. Each decade has the means of neighbours among
 * equally spaced numbers from 0.1 to 1; signed ones also their negatives; then 0 and 1, sorted. */
static void published_values(enum sw_codes kind, double out[CODES])
{
    int n = 0;
    for (int i = 0; i < DECADES; i++) {
        const int cells = 1 << (kind == SW_CODES_SIGNED ? i : i + 1);
        for (int k = 0; k < cells; k++) {
            const double low = 0.1 + 0.9 * k / cells, high = 0.1 + 0.9 * (k + 1) / cells;
            const double value = pow(10, i - DECADES + 1) * (low + high) / 2;
            out[n++] = value;
            if (kind == SW_CODES_SIGNED) {
                out[n++] = -value;
            }
        }
    }
    out[n++] = 0;
    out[n++] = 1;
    assert_int_equal(n, CODES);
    qsort(out, CODES, sizeof *out, by_value);
}

static void codes_stand_for_the_published_values(void **state)
{
    (void)state;
    for (int kind = SW_CODES_SIGNED; kind <= SW_CODES_UNSIGNED; kind++) {
        double want[CODES];
        published_values((enum sw_codes)kind, want);
        for (int code = 0; code < CODES; code++) {
            const double got = (double)sw_code_value((enum sw_codes)kind, (uint8_t)code);
            assert_true(fabs(got - want[code]) <= 1e-7 * fabs(want[code]));
            assert_true(code == 0 || want[code] > want[code - 1]);
        }
    }
    assert_true(sw_code_value(SW_CODES_SIGNED, SW_SIGNED_ZERO) == 0);
    assert_true(sw_code_value(SW_CODES_SIGNED, 255) == 1);
    assert_true(sw_code_value(SW_CODES_UNSIGNED, 0) == 0);
    assert_true(sw_code_value(SW_CODES_UNSIGNED, 255) == 1);
}

/* The least distance from a factor to a code's value. */
static double least_distance(enum sw_codes kind, double x)
{
    double least = INFINITY;
    for (int code = 0; code < CODES; code++) {
        least = fmin(least, fabs(x - (double)sw_code_value(kind, (uint8_t)code)));
    }
    return least;
}

/* Sizes from 1e-9 to 1, the largest first, some negative. */
static void fill(enum sw_codes kind, uint64_t seed, float x[SW_CODE_RUN])
{
    for (int i = 0; i < SW_CODE_RUN; i++) {
        const uint64_t bits = sw_philox_u64(seed, 0, (uint64_t)i);
        const double size = pow(10, -9 * (double)(bits >> 11) / 0x1p53);
        x[i] = (float)(kind == SW_CODES_SIGNED && (bits & 1) ? -size : size);
    }
    x[0] = 1;
}

static void the_nearest_code_is_taken(void **state)
{
    (void)state;
    for (int kind = SW_CODES_SIGNED; kind <= SW_CODES_UNSIGNED; kind++) {
        for (uint64_t seed = 0; seed < 60; seed++) {
            const float scale = (float)pow(10, (double)seed - 30);
            float x[SW_CODE_RUN], back[SW_CODE_RUN];
            uint8_t codes[SW_CODE_RUN];
            fill((enum sw_codes)kind, seed, x);
            for (int i = 0; i < SW_CODE_RUN; i++) {
                x[i] *= scale;
            }
            assert_true(sw_encode_run((enum sw_codes)kind, x, SW_CODE_RUN, codes) == scale);
            sw_decode_run((enum sw_codes)kind, codes, scale, SW_CODE_RUN, back);
            for (int i = 0; i < SW_CODE_RUN; i++) {
                const double part = (double)x[i] / (double)scale;
                const double far = fabs((double)back[i] / (double)scale - part);
                const bool is_least = kind == SW_CODES_UNSIGNED && codes[i] == 1; /* never 0 */
                assert_true(is_least || far <= least_distance((enum sw_codes)kind, part) + 1e-7);
                /* half a cell of the decade: 1 in 142 of the largest decade, 1 in 14 of the next,
                 * .. */
                const double cells = kind == SW_CODES_SIGNED ? 64 : 128;
                assert_true(fabs(part) < 0.1 || far <= 0.45 / cells + 1e-7);
                assert_true((back[i] < 0) == (x[i] < 0) || back[i] == 0);
            }
        }
    }
}

/* Encoding decoded values gives the same codes, even for a short run. */
static void codes_are_stable(void **state)
{
    (void)state;
    for (int kind = SW_CODES_SIGNED; kind <= SW_CODES_UNSIGNED; kind++) {
        float x[CODES];
        uint8_t codes[CODES], again[CODES];
        for (int i = 0; i < CODES; i++) {
            codes[i] = (uint8_t)i;
        }
        sw_decode_run((enum sw_codes)kind, codes, 3e-7f, CODES, x);
        assert_true(sw_encode_run((enum sw_codes)kind, x, CODES, again) == 3e-7f);
        assert_memory_equal(again, codes, sizeof codes);
        assert_true(sw_encode_run((enum sw_codes)kind, &x[CODES - 9], 9, again) == 3e-7f);
        assert_memory_equal(again, &codes[CODES - 9], 9);
    }
}

static void what_is_special(void **state)
{
    (void)state;
    const float zeros[3] = {0, -0.0f, 0}, down[3] = {-4, 1e-12f, 2};
    const float squares[3] = {1, 1e-12f, 1e-30f};
    float back[3];
    uint8_t codes[3];
    assert_true(sw_encode_run(SW_CODES_SIGNED, zeros, 3, codes) == 0);
    sw_decode_run(SW_CODES_SIGNED, codes, 0, 3, back);
    assert_true(back[0] == 0 && back[1] == 0 && back[2] == 0);
    /* the most negative code is one step above -1 */
    assert_true(sw_encode_run(SW_CODES_SIGNED, down, 3, codes) == 4);
    sw_decode_run(SW_CODES_SIGNED, codes, 4, 3, back);
    assert_true(back[0] < -3.97f && back[0] > -4 && back[1] == 0);
    /* values above 0 stay above 0, since steps are divided by their root */
    assert_true(sw_encode_run(SW_CODES_UNSIGNED, squares, 3, codes) == 1);
    assert_true(codes[0] == 255 && codes[1] == 1 && codes[2] == 1);
    const float bad[][3] = {{1, NAN, 2}, {INFINITY, 0, 1}, {0, 1, -INFINITY}};
    for (size_t i = 0; i < SW_LEN(bad); i++) {
        const float scale = sw_encode_run(SW_CODES_SIGNED, bad[i], 3, codes);
        sw_decode_run(SW_CODES_SIGNED, codes, scale, 3, back);
        assert_true(isnan(scale) && isnan(back[0]) && isnan(back[1]) && isnan(back[2]));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(codes_stand_for_the_published_values),
    cmocka_unit_test(the_nearest_code_is_taken),
    cmocka_unit_test(codes_are_stable),
    cmocka_unit_test(what_is_special),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
