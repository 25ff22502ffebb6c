// SPDX-License-Identifier: Apache-2.0
// 8-bit codes: block-wise dynamic quantization (Dettmers, Lewis, Shleifer and Zettlemoyer 2022,
// "8-bit Optimizers via Block-wise Quantization"). A run of numbers has one scale, the largest of
// their sizes; a code stands for a factor of it. Factors lie in seven decades, each cut into twice
// as many equal cells as the one below, and are the middles of the cells. So large numbers have
// small relative errors, and small ones still differ from zero.
#include <math.h>
#include <string.h>

#include "tensor/tensor.h"

/* The middle of cell j of n between a tenth of `top` and `top`. */
#define CELLS_1(top, n, j) (float)((top) * (0.1 + 0.9 * ((j) + 0.5) / (n)))
#define CELLS_2(top, n, j) CELLS_1(top, n, j), CELLS_1(top, n, (j) + 1)
#define CELLS_4(top, n, j) CELLS_2(top, n, j), CELLS_2(top, n, (j) + 2)
#define CELLS_8(top, n, j) CELLS_4(top, n, j), CELLS_4(top, n, (j) + 4)
#define CELLS_16(top, n, j) CELLS_8(top, n, j), CELLS_8(top, n, (j) + 8)
#define CELLS_32(top, n, j) CELLS_16(top, n, j), CELLS_16(top, n, (j) + 16)
#define CELLS_64(top, n, j) CELLS_32(top, n, j), CELLS_32(top, n, (j) + 32)
#define CELLS_128(top, n, j) CELLS_64(top, n, j), CELLS_64(top, n, (j) + 64)

/* The decades from 1e-6 to 1, given the number of cells of each. */
#define DECADE(n, top) CELLS_##n(top, n, 0)
#define DECADES(a, b, c, d, e, f, g)                                                               \
    DECADE(a, 1e-6), DECADE(b, 1e-5), DECADE(c, 1e-4), DECADE(d, 1e-3), DECADE(e, 1e-2),           \
        DECADE(f, 1e-1), DECADE(g, 1)

const float sw_signed_steps[SW_SIGNED_STEPS] = {0, DECADES(1, 2, 4, 8, 16, 32, 64), 1};
const float sw_unsigned_steps[SW_UNSIGNED_STEPS] = {0, DECADES(2, 4, 8, 16, 32, 64, 128), 1};

/* The step nearest to size, in [0, 1]; the smaller one of two equally near. */
static int nearest(const float *steps, int n, float size)
{
    int low = 0, high = n - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (size > 0.5f * (steps[middle] + steps[middle + 1])) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static uint8_t code_of(enum sw_codes codes, float x)
{
    if (codes == SW_CODES_UNSIGNED) {
        const int step = nearest(sw_unsigned_steps, SW_UNSIGNED_STEPS, x);
        return (uint8_t)(step == 0 && x > 0 ? 1 : step);
    }
    /* -1 has no code */
    const int n = x < 0 ? SW_SIGNED_STEPS - 1 : SW_SIGNED_STEPS;
    const int step = nearest(sw_signed_steps, n, fabsf(x));
    return (uint8_t)(x < 0 ? SW_SIGNED_ZERO - step : SW_SIGNED_ZERO + step);
}

float sw_code_value(enum sw_codes codes, uint8_t code)
{
    if (codes == SW_CODES_UNSIGNED) {
        return sw_unsigned_steps[code];
    }
    return code < SW_SIGNED_ZERO ? -sw_signed_steps[SW_SIGNED_ZERO - code]
                                 : sw_signed_steps[code - SW_SIGNED_ZERO];
}

float sw_encode_run(enum sw_codes codes, const float *x, int64_t n, uint8_t *out)
{
    float scale = 0;
    for (int64_t i = 0; i < n; i++) {
        const float size = fabsf(x[i]);
        scale = size <= scale ? scale : size; /* NaN stays */
        if (!isfinite(size)) {
            scale = NAN;
            break;
        }
    }
    if (!(scale > 0)) {
        memset(out, codes == SW_CODES_SIGNED ? SW_SIGNED_ZERO : 0, (size_t)n);
        return scale;
    }
    for (int64_t i = 0; i < n; i++) {
        out[i] = code_of(codes, x[i] / scale);
    }
    return scale;
}

void sw_decode_run(enum sw_codes codes, const uint8_t *in, float scale, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = sw_code_value(codes, in[i]) * scale;
    }
}
