// SPDX-License-Identifier: Apache-2.0
// types - 16-bit elements; loads and stores of any float type as fp32. Stores round once, as
// tensor/tensor.h does: to nearest, ties to even, NaN becomes quiet. For kernels.
#pragma once

#include "device/gpu/module/args.h"
#include "device/gpu/module/gpu_rt.h"

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

template <typename T> struct type_of;
template <> struct type_of<float> {
    static constexpr enum sw_gpu_type type = SW_GPU_F32;
};
template <> struct type_of<bf16> {
    static constexpr enum sw_gpu_type type = SW_GPU_BF16;
};
template <> struct type_of<f16> {
    static constexpr enum sw_gpu_type type = SW_GPU_F16;
};

SW_DEVICE float to_f32(float x)
{
    return x;
}
SW_DEVICE float to_f32(bf16 x)
{
    return of_bits((uint32_t)x.bits << 16);
}
SW_DEVICE float to_f32(f16 x)
{
    const uint32_t sign = (uint32_t)(x.bits & 0x8000u) << 16;
    const uint32_t exponent = (x.bits >> 10) & 31u, mantissa = x.bits & 0x3ffu;
    if (exponent == 0) { /* zero, or mantissa 2^-24 */
        return of_bits(sign | bits_of((float)mantissa * 0x1p-24f));
    }
    if (exponent == 31) {
        return of_bits(sign | 0x7f800000u | (mantissa ? 0x400000u : 0) | mantissa << 13);
    }
    return of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

SW_DEVICE void from_f32(float x, float *out)
{
    *out = x;
}
SW_DEVICE void from_f32(float x, bf16 *out)
{
    const uint32_t bits = bits_of(x);
    out->bits = x != x ? (uint16_t)((bits >> 16) | 0x40u)
                       : (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
SW_DEVICE void from_f32(float x, f16 *out)
{
#if defined(__CUDACC__)
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out->bits) : "f"(x)); /* a NaN is 0x7fff */
#else
    const uint32_t bits = bits_of(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    uint32_t half;
    if (magnitude > 0x7f800000u) {
        half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    } else if (magnitude >= 0x477ff000u) {
        half = 0x7c00u; /* rounds to 2^16 or more */
    } else if (magnitude >= 0x38800000u) {
        const uint32_t shifted = magnitude - 0x38000000u;
        half = (shifted + 0xfffu + ((shifted >> 13) & 1u)) >> 13;
    } else { /* below 2^-14: the addition rounds to multiples of 2^-24 */
        half = bits_of(of_bits(magnitude) + 0.5f) - 0x3f000000u;
    }
    out->bits = (uint16_t)(sign | half);
#endif
}

template <typename T> SW_DEVICE T round_to(float x)
{
    T out;
    from_f32(x, &out);
    return out;
}
template <typename T> SW_DEVICE float load(const T *x, int64_t i)
{
    return to_f32(x[i]);
}
template <typename T> SW_DEVICE void store(T *x, int64_t i, float value)
{
    x[i] = round_to<T>(value);
}
/* x as a store and a load in T would return it. */
template <typename T> SW_DEVICE float rounded(float x)
{
    return to_f32(round_to<T>(x));
}

/* For operands whose type is not the kernel's own. */
SW_DEVICE float load_any(const void *x, int type, int64_t i)
{
    return type == SW_GPU_F32    ? ((const float *)x)[i]
           : type == SW_GPU_BF16 ? to_f32(((const bf16 *)x)[i])
                                 : to_f32(((const f16 *)x)[i]);
}
SW_DEVICE void store_any(void *x, int type, int64_t i, float value)
{
    if (type == SW_GPU_F32) {
        ((float *)x)[i] = value;
    } else if (type == SW_GPU_BF16) {
        store((bf16 *)x, i, value);
    } else {
        store((f16 *)x, i, value);
    }
}
