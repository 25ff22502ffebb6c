// SPDX-License-Identifier: Apache-2.0
// simd - one vector of floats, as wide as the including file is compiled for. Kernels written with
// it are compiled once per instruction set (fast_vector_*.c). Intrinsics are used only for what
// GCC's vector extensions cannot express: fused multiply-add and the half-precision conversions.
// exp, tanh and erf are accurate to about 2 units in the last place over their whole range.
#pragma once

#include <math.h>
#include <string.h>

#include "tensor/tensor.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

#define INLINE static inline __attribute__((always_inline, unused))

/* Put before a loop whose counter indexes registers: the loop must be unrolled at any optimisation
 * level. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

/* An asm operand that is read and written in a vector register. */
#if defined(__AVX512F__)
#define VECTOR_REGISTER(x) "+v"(x)
#elif defined(__x86_64__)
#define VECTOR_REGISTER(x) "+x"(x)
#else
#define VECTOR_REGISTER(x) "+m"(x)
#endif

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef uint16_t vh __attribute__((vector_size(2 * LANES)));
/* Doubles: half as many lanes in the same register. */
typedef double vd __attribute__((vector_size(4 * LANES)));
typedef int64_t vl __attribute__((vector_size(4 * LANES)));
typedef float vf_half __attribute__((vector_size(2 * LANES)));

/* The same vectors in memory, aligned as a single element. */
typedef float vf_mem __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t vu_mem __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t vh_mem __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

/* f(0), f(1), .., one for each lane. Constant vectors are written as lists, since compilers do not
 * optimise assignments lane by lane. */
#define EACH_4(f, l) f(l), f((l) + 1), f((l) + 2), f((l) + 3)
#if LANES == 16
#define EACH_LANE(f) EACH_4(f, 0), EACH_4(f, 4), EACH_4(f, 8), EACH_4(f, 12)
#elif LANES == 8
#define EACH_LANE(f) EACH_4(f, 0), EACH_4(f, 4)
#else
#define EACH_LANE(f) EACH_4(f, 0)
#endif
#define LANE_NUMBER(l) (l)

INLINE vf vf_set(float x)
{
    return x - (vf){0};
}

INLINE vf vf_load(const float *p)
{
    return *(const vf_mem *)p;
}

INLINE void vf_store(float *p, vf x)
{
    *(vf_mem *)p = x;
}

INLINE vf vf_fma(vf a, vf b, vf c)
{
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

INLINE vf vf_select(vi mask, vf a, vf b)
{
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

/* The larger; if b is NaN, NaN. */
INLINE vf vf_max(vf a, vf b)
{
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vf_select(a > b, a, b);
#endif
}

/* The smaller; if b is NaN, NaN. */
INLINE vf vf_min(vf a, vf b)
{
#if defined(__AVX512F__)
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return vf_select(a < b, a, b);
#endif
}

INLINE vf vf_abs(vf x)
{
    return (vf)((vi)x & 0x7fffffff);
}

INLINE vf vf_copysign(vf magnitude, vf sign)
{
    return (vf)(((vi)magnitude & 0x7fffffff) | ((vi)sign & (int32_t)0x80000000));
}

INLINE vf vf_sqrt(vf x)
{
#if defined(__AVX512F__)
    return (vf)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
    return (vf)_mm256_sqrt_ps((__m256)x);
#else
    for (int i = 0; i < LANES; i++) {
        x[i] = sqrtf(x[i]);
    }
    return x;
#endif
}

/* Folds the lanes by halving, a fixed order: their largest, or their sum. */
INLINE float vf_fold(vf x, bool largest)
{
#if !defined(__clang__)
    const vi number = {EACH_LANE(LANE_NUMBER)};
    UNROLL
    for (int n = LANES / 2; n > 0; n /= 2) {
        const vf other = __builtin_shuffle(x, (number + n) & (LANES - 1));
        x = !largest ? x + other : vf_select(x > other, x, other);
    }
    return x[0];
#else
    float part[LANES];
    memcpy(part, &x, sizeof part);
    for (int n = LANES / 2; n > 0; n /= 2) {
        for (int i = 0; i < n; i++) {
            const float a = part[i], b = part[i + n];
            part[i] = !largest ? a + b : a > b ? a : b;
        }
    }
    return part[0];
#endif
}

INLINE float vf_sum(vf x)
{
    return vf_fold(x, false);
}

INLINE float vf_top(vf x)
{
    return vf_fold(x, true);
}

/* Gathers table[at] for each lane. */
INLINE vf vf_gather(const float *table, vi at)
{
#if defined(__AVX512F__)
    return (vf)_mm512_i32gather_ps((__m512i)at, table, 4);
#elif defined(__AVX2__)
    return (vf)_mm256_i32gather_ps(table, (__m256i)at, 4);
#else
    vf x = {0};
    for (int i = 0; i < LANES; i++) {
        x[i] = table[at[i]];
    }
    return x;
#endif
}

INLINE vi vi_max(vi a, vi b)
{
#if defined(__AVX512F__)
    return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    const vi more = a > b;
    return (more & a) | (~more & b);
#endif
}

INLINE vd vd_from(vf_half x)
{
#if defined(__AVX512F__)
    return (vd)_mm512_cvtps_pd((__m256)x);
#elif defined(__AVX2__)
    return (vd)_mm256_cvtps_pd((__m128)x);
#else
    return __builtin_convertvector(x, vd);
#endif
}

/* a * a + b, whatever the rounding: a is a float, so its square is exact. */
INLINE vd vd_add_square(vd a, vd b)
{
#if defined(__AVX512F__)
    return (vd)_mm512_fmadd_pd((__m512d)a, (__m512d)a, (__m512d)b);
#elif defined(__FMA__)
    return (vd)_mm256_fmadd_pd((__m256d)a, (__m256d)a, (__m256d)b);
#else
    return a * a + b;
#endif
}

/* The larger of a and the size of b; neither is NaN. */
INLINE vd vd_largest(vd a, vd b)
{
    const vl size = (vl)b & INT64_MAX;
#if defined(__AVX512F__)
    return (vd)_mm512_max_pd((__m512d)a, (__m512d)size);
#elif defined(__AVX2__)
    return (vd)_mm256_max_pd((__m256d)a, (__m256d)size);
#else
    const vl more = size > (vl)a;
    return (vd)((more & size) | (~more & (vl)a));
#endif
}

/* ---- storage types: dtype is a constant at every call, so the compiler resolves the switch
 * ---- */

INLINE vf vf_from_bf16(vh h)
{
    return (vf)(__builtin_convertvector(h, vu) << 16);
}

/* Rounds to nearest, ties to even; NaN becomes quiet, as in sw_f32_to_bf16. */
INLINE vh vf_to_bf16(vf x)
{
    const vu bits = (vu)x;
    const vu rounded = bits + 0x7fff + ((bits >> 16) & 1);
#if defined(__AVX512F__)
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
    const __m512i kept =
        _mm512_mask_or_epi32((__m512i)rounded, nan, (__m512i)bits, _mm512_set1_epi32(0x400000));
    return (vh)_mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
#else
    const vu nan = (vu)(x != x);
    const vu kept = (nan & (bits | 0x400000)) | (~nan & rounded);
    return __builtin_convertvector(kept >> 16, vh);
#endif
}

INLINE vf vf_from_f16(vh h)
{
#if defined(__AVX512F__)
    return (vf)_mm512_cvtph_ps((__m256i)h);
#elif defined(__AVX2__)
    return (vf)_mm256_cvtph_ps((__m128i)h);
#else
    vf x = {0};
    for (int i = 0; i < LANES; i++) {
        x[i] = sw_f16_to_f32(h[i]);
    }
    return x;
#endif
}

INLINE vh vf_to_f16(vf x)
{
#if defined(__AVX512F__)
    return (vh)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
    return (vh)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    vh h = {0};
    for (int i = 0; i < LANES; i++) {
        h[i] = sw_f32_to_f16(x[i]);
    }
    return h;
#endif
}

INLINE size_t float_bytes(enum sw_dtype dtype)
{
    return dtype == SW_F32 ? 4 : 2;
}

INLINE vf load(enum sw_dtype dtype, const void *p, int64_t i)
{
    if (dtype == SW_F32) {
        return vf_load((const float *)p + i);
    }
    const vh h = *(const vh_mem *)((const uint16_t *)p + i);
    return dtype == SW_BF16 ? vf_from_bf16(h) : vf_from_f16(h);
}

INLINE void store(enum sw_dtype dtype, void *p, int64_t i, vf x)
{
    if (dtype == SW_F32) {
        vf_store((float *)p + i, x);
    } else {
        *(vh_mem *)((uint16_t *)p + i) = dtype == SW_BF16 ? vf_to_bf16(x) : vf_to_f16(x);
    }
}

/* Loads the first n < LANES elements. The other lanes are 0, and no memory past the end is read. */
INLINE vf load_part(enum sw_dtype dtype, const void *p, int64_t i, int64_t n)
{
    float buffer[LANES] = {0};
    memcpy(buffer, (const char *)p + (size_t)i * float_bytes(dtype),
           (size_t)n * float_bytes(dtype));
    return load(dtype, buffer, 0);
}

INLINE void store_part(enum sw_dtype dtype, void *p, int64_t i, int64_t n, vf x)
{
    float buffer[LANES];
    store(dtype, buffer, 0, x);
    memcpy((char *)p + (size_t)i * float_bytes(dtype), buffer, (size_t)n * float_bytes(dtype));
}

INLINE vf load_some(enum sw_dtype dtype, const void *p, int64_t i, int64_t n)
{
    return n >= LANES ? load(dtype, p, i) : load_part(dtype, p, i, n);
}

INLINE void store_some(enum sw_dtype dtype, void *p, int64_t i, int64_t n, vf x)
{
    if (n >= LANES) {
        store(dtype, p, i, x);
    } else {
        store_part(dtype, p, i, n, x);
    }
}

/* A loop over vectors of n elements from j on: `statement` is compiled for whole vectors, where
 * `rest` is the constant LANES, and for the last, part of one. */
#define EACH_VECTOR(j, rest, n, statement)                                                         \
    do {                                                                                           \
        int64_t j = 0;                                                                             \
        for (; j + LANES <= (n); j += LANES) {                                                     \
            const int64_t rest = LANES;                                                            \
            statement;                                                                             \
        }                                                                                          \
        if (j < (n)) {                                                                             \
            const int64_t rest = (n)-j;                                                            \
            statement;                                                                             \
        }                                                                                          \
    } while (0)

/* Runs `statement` with the constant `name` equal to `value`: one specialised copy of an inlined
 * kernel for each of the three dtypes. */
#define WITH_DTYPE(name, value, statement)                                                         \
    do {                                                                                           \
        if ((value) == SW_F32) {                                                                   \
            const enum sw_dtype name = SW_F32;                                                     \
            statement;                                                                             \
        } else if ((value) == SW_BF16) {                                                           \
            const enum sw_dtype name = SW_BF16;                                                    \
            statement;                                                                             \
        } else {                                                                                   \
            const enum sw_dtype name = SW_F16;                                                     \
            statement;                                                                             \
        }                                                                                          \
    } while (0)

/* True in the lanes whose number is below n. */
INLINE vi lanes_below(int64_t n)
{
    const vi number = {EACH_LANE(LANE_NUMBER)};
    return number < (int32_t)(n < LANES ? n : LANES);
}

/* ---- functions ---- */

/* 2^n e^r with x = n ln 2 + r, |r| <= ln 2 / 2. n is split in two, so that subnormal results and
 * the overflow to infinity need no special case. x is at most 89; NaN remains. */
INLINE vf vf_exp_below(vf x)
{
    const float low = -104.0f, shift = 0x1.8p23f;
    x = vf_max(vf_set(low), x);
    const vf shifted = vf_fma(x, vf_set(0x1.715476p+0f), vf_set(shift));
    const vf whole = shifted - shift;
    vf r = vf_fma(whole, vf_set(-0x1.62e400p-1f), x);
    r = vf_fma(whole, vf_set(-0x1.7f7d1cp-20f), r);
    vf p = vf_fma(vf_set(1.392620336e-03f), r, vf_set(8.363194882e-03f));
    p = vf_fma(p, r, vf_set(4.166655450e-02f));
    p = vf_fma(p, r, vf_set(1.666657689e-01f));
    p = vf_fma(p, r, vf_set(0.5f));
    p = vf_fma(p * r, r, r) + 1.0f;
#if defined(__AVX512F__)
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)whole);
#else
    const vi n = (vi)shifted - (vi)vf_set(shift), half = n >> 1;
    const vf first = (vf)((half + 127) << 23), second = (vf)((n - half + 127) << 23);
    return p * first * second;
#endif
}

INLINE vf vf_exp(vf x)
{
    return vf_exp_below(vf_min(vf_set(89.0f), x));
}

INLINE vf vf_tanh(vf x)
{
    const vf a = vf_abs(x), z = x * x;
    vf p = vf_fma(vf_set(-6.096714166e-03f), z, vf_set(2.099717900e-02f));
    p = vf_fma(p, z, vf_set(-5.385090958e-02f));
    p = vf_fma(p, z, vf_set(1.333276974e-01f));
    p = vf_fma(p, z, vf_set(-3.333332894e-01f));
    const vf near = vf_fma(p * z, x, x);
    const vf far = 1.0f - 2.0f / (vf_exp(a + a) + 1.0f);
    return vf_select(a < 0.625f, near, vf_copysign(far, x));
}

/* An odd polynomial near 0; farther out 1 - exp of a polynomial fitted to log erfc. */
INLINE vf vf_erf(vf x)
{
    const vf z = x * x;
    vf near = vf_fma(vf_set(7.875875063e-05f), z, vf_set(-8.016864287e-04f));
    near = vf_fma(near, z, vf_set(5.189087423e-03f));
    near = vf_fma(near, z, vf_set(-2.685421201e-02f));
    near = vf_fma(near, z, vf_set(1.128359472e-01f));
    near = vf_fma(near, z, vf_set(-3.761262667e-01f));
    near = vf_fma(near, z, vf_set(1.283791658e-01f));
    near = vf_fma(near, x, x);
    const vf all = vf_abs(x);
    const vf a = vf_select(all > 4.0f, vf_set(4.0f), all); /* erf(4) rounds to 1; NaN propagates */
    vf far = vf_fma(vf_set(1.641048555e-06f), a, vf_set(-4.613435317e-05f));
    far = vf_fma(far, a, vf_set(5.974394286e-04f));
    far = vf_fma(far, a, vf_set(-4.762502396e-03f));
    far = vf_fma(far, a, vf_set(2.642914987e-02f));
    far = vf_fma(far, a, vf_set(-1.100936318e-01f));
    far = vf_fma(far, a, vf_set(-6.318124047e-01f));
    far = vf_fma(far, a, vf_set(-1.130240880e+00f));
    far = vf_fma(far, a, vf_set(3.218123132e-04f));
    far = vf_copysign(1.0f - vf_exp(far), x);
    return vf_select(all < 1.0f, near, far);
}

INLINE vf vf_sigmoid(vf x)
{
    return 1.0f / (1.0f + vf_exp(-x));
}
