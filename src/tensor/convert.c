// SPDX-License-Identifier: Apache-2.0
// Conversions between float types, each rounded once, to nearest, ties to even. They are the
// definition that the devices' fast kernels are tested against.
#include "tensor/tensor.h"

#include <string.h>

enum { F64_MANTISSA = 52, F64_BIAS = 1023, F64_EXP_MAX = 0x7ff };

static uint32_t bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* value / 2^shift, to nearest, ties to even; shift is 1 .. 63. */
static uint64_t shift_round(uint64_t value, int shift)
{
    const uint64_t quotient = value >> shift;
    const uint64_t rest = value & ((UINT64_C(1) << shift) - 1), half = UINT64_C(1) << (shift - 1);
    return quotient + (rest > half || (rest == half && (quotient & 1)));
}

/* A double as a 16-bit float with the given exponent and mantissa widths. A carry out of the
 * mantissa goes into the exponent, which is correct: the next binade, or infinity. */
static uint16_t narrow(double x, int exp_bits, int mantissa_bits)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    const uint16_t sign = (uint16_t)(bits >> 63 << 15);
    const int exp = (int)(bits >> F64_MANTISSA & F64_EXP_MAX);
    const uint64_t mantissa = bits & ((UINT64_C(1) << F64_MANTISSA) - 1);
    const int dropped = F64_MANTISSA - mantissa_bits;
    const int exp_max = (1 << exp_bits) - 1;
    const uint16_t infinity = (uint16_t)(exp_max << mantissa_bits);

    if (exp == F64_EXP_MAX && mantissa) {
        const uint16_t quiet = (uint16_t)(1 << (mantissa_bits - 1));
        return sign | infinity | quiet | (uint16_t)(mantissa >> dropped);
    }
    const int new_exp = exp - F64_BIAS + (exp_max >> 1);
    if (new_exp >= exp_max) {
        return sign | infinity;
    }
    if (new_exp > 0) {
        const uint64_t magnitude = (uint64_t)new_exp << F64_MANTISSA | mantissa;
        return sign | (uint16_t)shift_round(magnitude, dropped);
    }
    /* Subnormal: the leading one becomes explicit. After a shift beyond 53 places nothing is
     * left. */
    const int shift = dropped + 1 - new_exp;
    const uint64_t magnitude = UINT64_C(1) << F64_MANTISSA | mantissa;
    return shift > F64_MANTISSA + 1 ? sign : sign | (uint16_t)shift_round(magnitude, shift);
}

static uint16_t f64_to_bf16(double x)
{
    return narrow(x, 8, 7);
}

static uint16_t f64_to_f16(double x)
{
    return narrow(x, 5, 10);
}

uint16_t sw_f32_to_f16(float x)
{
    return f64_to_f16((double)x);
}

float sw_f16_to_f32(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000) << 16;
    const uint32_t exp = x >> 10 & 0x1f, mantissa = x & 0x3ff;
    if (exp == 0x1f) {
        const uint32_t quiet = mantissa ? 0x400000 : 0;
        return f32_of_bits(sign | 0x7f800000 | quiet | mantissa << 13);
    }
    if (exp == 0) {
        const float magnitude = (float)mantissa * 0x1p-24f;
        return f32_of_bits(sign | bits_of_f32(magnitude));
    }
    return f32_of_bits(sign | (exp + 127 - 15) << 23 | mantissa << 13);
}

/* One loop per pair of types. Memory may be unaligned, hence memcpy. */
#define EACH(dst_type, src_type, expression)                                                       \
    for (int64_t i = 0; i < n; i++) {                                                              \
        src_type x;                                                                                \
        memcpy(&x, in + i * (int64_t)sizeof(x), sizeof(x));                                        \
        const dst_type y = (expression);                                                           \
        memcpy(out + i * (int64_t)sizeof(y), &y, sizeof(y));                                       \
    }                                                                                              \
    return

#define PAIR(dst, src) ((int)(dst)*SW_DTYPE_COUNT + (int)(src))

void sw_convert(enum sw_dtype dst_dtype, void *dst, enum sw_dtype src_dtype, const void *src,
                int64_t n)
{
    char *out = dst;
    const char *in = src;
    if (dst_dtype == src_dtype) {
        if (n > 0) {
            memmove(dst, src, (size_t)n * sw_dtype_bytes(src_dtype));
        }
        return;
    }
    switch (PAIR(dst_dtype, src_dtype)) {
    case PAIR(SW_F32, SW_F64):
        EACH(float, double, (float)x);
    case PAIR(SW_F32, SW_BF16):
        EACH(float, uint16_t, sw_bf16_to_f32(x));
    case PAIR(SW_F32, SW_F16):
        EACH(float, uint16_t, sw_f16_to_f32(x));
    case PAIR(SW_F64, SW_F32):
        EACH(double, float, (double)x);
    case PAIR(SW_F64, SW_BF16):
        EACH(double, uint16_t, (double)sw_bf16_to_f32(x));
    case PAIR(SW_F64, SW_F16):
        EACH(double, uint16_t, (double)sw_f16_to_f32(x));
    case PAIR(SW_BF16, SW_F32):
        EACH(uint16_t, float, sw_f32_to_bf16(x));
    case PAIR(SW_BF16, SW_F64):
        EACH(uint16_t, double, f64_to_bf16(x));
    case PAIR(SW_BF16, SW_F16):
        EACH(uint16_t, uint16_t, sw_f32_to_bf16(sw_f16_to_f32(x)));
    case PAIR(SW_F16, SW_F32):
        EACH(uint16_t, float, sw_f32_to_f16(x));
    case PAIR(SW_F16, SW_F64):
        EACH(uint16_t, double, f64_to_f16(x));
    case PAIR(SW_F16, SW_BF16):
        EACH(uint16_t, uint16_t, sw_f32_to_f16(sw_bf16_to_f32(x)));
    default:
        SW_ASSERT(!"a conversion between float types");
    }
}

/* ---- the split master ---- */

void sw_master_split(float master, uint16_t *hi, int16_t *lo)
{
    uint32_t bits = bits_of_f32(master);
    if ((bits & 0x7fffffff) > 0x7f800000) {
        bits = (bits & 0x80000000) | 0x7fc00000;
    }
    const uint32_t rounded = (bits + 0x8000) >> 16;
    *hi = (uint16_t)rounded;
    *lo = (int16_t)(uint16_t)(bits - (rounded << 16));
}

float sw_master_join(uint16_t hi, int16_t lo)
{
    return f32_of_bits(((uint32_t)hi << 16) + (uint32_t)(int32_t)lo);
}
