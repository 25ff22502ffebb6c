// SPDX-License-Identifier: Apache-2.0
// Quantized weights with the bits of bitsandbytes. NF4: 4-bit codes of a normal distribution with a
// scale for each block of 64 elements, and 8-bit codes of the scales (QLoRA, Dettmers et al. 2023).
// INT8: a scale for each row (LLM.int8(), Dettmers et al. 2022).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tensor.h"

static const float levels[SW_NF4_LEVELS] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};
static const float per_step = 7.874015718698502e-3f; /* 1 / 127 */

float sw_nf4_level(int code)
{
    return levels[code & 15];
}

const char *sw_quantized_name(enum sw_quantized_kind kind)
{
    static const char *const names[] = {"none", "nf4", "int8"};
    return names[kind];
}

/* ---- decoding ---- */

static float scale_of(const struct sw_quantized *q, int64_t i)
{
    if (!q->form.is_nested) {
        return ((const float *)q->scales)[i];
    }
    const uint8_t code = ((const uint8_t *)q->scales)[i];
    return q->map[code] * q->nested[i / SW_NF4_NESTED] + q->offset;
}

/* n values in fp32 become those of the form's dtype, and then of the result's. */
static void round_to(const struct sw_quantized *q, float *x, int64_t n, enum sw_dtype dtype,
                     void *out)
{
    uint16_t narrow[SW_NF4_BLOCK];
    if (q->form.dtype != SW_F32 && q->form.dtype != dtype) {
        sw_convert(q->form.dtype, narrow, SW_F32, x, n);
        sw_convert(SW_F32, x, q->form.dtype, narrow, n);
    }
    sw_convert(dtype, out, SW_F32, x, n);
}

#define DECODE(type)                                                                               \
    {                                                                                              \
        type *to = out;                                                                            \
        const type *of = (const type *)(const void *)table;                                        \
        int64_t i = first;                                                                         \
        if (i % 2 != 0 && n > 0) {                                                                 \
            *to++ = of[codes[i++ / 2] & 15];                                                       \
        }                                                                                          \
        for (; i + 1 < first + n; i += 2, to += 2) {                                               \
            to[0] = of[codes[i / 2] >> 4];                                                         \
            to[1] = of[codes[i / 2] & 15];                                                         \
        }                                                                                          \
        if (i < first + n) {                                                                       \
            *to = of[codes[i / 2] >> 4];                                                           \
        }                                                                                          \
        break;                                                                                     \
    }

void sw_nf4_values(const struct sw_quantized *q, int64_t i_block, enum sw_dtype dtype, void *out)
{
    const float scale = scale_of(q, i_block);
    float values[SW_NF4_LEVELS];
    for (int i = 0; i < SW_NF4_LEVELS; i++) {
        values[i] = levels[i] * scale;
    }
    round_to(q, values, SW_NF4_LEVELS, dtype, out);
}

/* Within one block, whose values are made once. */
static void decode_nf4(const struct sw_quantized *q, int64_t first, int64_t n, enum sw_dtype dtype,
                       void *out)
{
    const uint8_t *codes = q->codes;
    double table[SW_NF4_LEVELS]; /* in the result's dtype */
    sw_nf4_values(q, first / SW_NF4_BLOCK, dtype, table);
    switch (sw_dtype_bytes(dtype)) {
    case 2:
        DECODE(uint16_t)
    case 4:
        DECODE(uint32_t)
    default:
        DECODE(uint64_t)
    }
}

/* Within one row. */
static void decode_int8(const struct sw_quantized *q, int64_t first, int64_t n, enum sw_dtype dtype,
                        void *out)
{
    const float scale = scale_of(q, first / q->columns);
    const int8_t *codes = (const int8_t *)q->codes + first;
    float values[SW_NF4_BLOCK];
    for (int64_t i = 0; i < n; i++) {
        values[i] = (float)codes[i] * scale * per_step;
    }
    round_to(q, values, n, dtype, out);
}

void sw_quantized_decode(const struct sw_quantized *q, int64_t first, int64_t n,
                         enum sw_dtype dtype, void *out)
{
    const size_t bytes = sw_dtype_bytes(dtype);
    const bool int8 = q->form.kind == SW_QUANTIZED_INT8;
    for (int64_t done = 0, some = 0; done < n; done += some) {
        const int64_t at = first + done;
        some = sw_min_i64(n - done, SW_NF4_BLOCK - at % SW_NF4_BLOCK);
        some = int8 ? sw_min_i64(some, q->columns - at % q->columns) : some;
        (int8 ? decode_int8 : decode_nf4)(q, at, some, dtype, (char *)out + (size_t)done * bytes);
    }
}

/* ---- encoding ---- */

float sw_quantized_peak(const float *x, int64_t n)
{
    float peak = 0, peaks[16] = {0};
    int64_t i = 0;
    for (; i + (int64_t)SW_LEN(peaks) <= n; i += (int64_t)SW_LEN(peaks)) {
        for (size_t k = 0; k < SW_LEN(peaks); k++) {
            const float size = fabsf(x[i + (int64_t)k]);
            peaks[k] = size > peaks[k] ? size : peaks[k];
        }
    }
    for (; i < n; i++) {
        const float size = fabsf(x[i]);
        peak = size > peak ? size : peak;
    }
    for (size_t k = 0; k < SW_LEN(peaks); k++) {
        peak = peaks[k] > peak ? peaks[k] : peak;
    }
    return peak;
}

void sw_nf4_scales(const float *x, int64_t n, float *scales)
{
    for (int64_t first = 0; first < n; first += SW_NF4_BLOCK) {
        scales[first / SW_NF4_BLOCK] =
            sw_quantized_peak(x + first, sw_min_i64(SW_NF4_BLOCK, n - first));
    }
}

/* 1 if x is above the middle between levels k and k + 1. */
#define IS_ABOVE(x, k) ((levels[k] + levels[(k) + 1]) / 2 < (x))

/* Encodes whole blocks. The nearest level is the number of middles between levels that are below a
 * number. Lengths are constants and nothing branches, so that compilers make vectors of the inner
 * loops. */
static inline __attribute__((always_inline)) void
encode_blocks(const float *x, int64_t n_blocks, const float *scales, uint8_t *packed)
{
    for (int64_t b = 0; b < n_blocks; b++, x += SW_NF4_BLOCK, packed += SW_NF4_BLOCK / 2) {
        const float scale = scales[b];
        int32_t codes[SW_NF4_BLOCK];
        for (int i = 0; i < SW_NF4_BLOCK; i++) {
            const float y = x[i] / scale;
            codes[i] = IS_ABOVE(y, 0) + IS_ABOVE(y, 1) + IS_ABOVE(y, 2) + IS_ABOVE(y, 3) +
                       IS_ABOVE(y, 4) + IS_ABOVE(y, 5) + IS_ABOVE(y, 6) + IS_ABOVE(y, 7) +
                       IS_ABOVE(y, 8) + IS_ABOVE(y, 9) + IS_ABOVE(y, 10) + IS_ABOVE(y, 11) +
                       IS_ABOVE(y, 12) + IS_ABOVE(y, 13) + IS_ABOVE(y, 14);
        }
        for (int i = 0; i < SW_NF4_BLOCK / 2; i++) {
            packed[i] = (uint8_t)(codes[2 * i] << 4 | codes[2 * i + 1]);
        }
        if (!(scale > 0)) {
            memset(packed, 0x77, SW_NF4_BLOCK / 2);
        }
    }
}

static void encode_portable(const float *x, int64_t n_blocks, const float *scales, uint8_t *packed)
{
    encode_blocks(x, n_blocks, scales, packed);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void encode_avx2(const float *x, int64_t n_blocks,
                                                        const float *scales, uint8_t *packed)
{
    encode_blocks(x, n_blocks, scales, packed);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
#define encode_avx2 encode_portable

static bool has_avx2(void)
{
    return false;
}
#endif

void sw_nf4_encode(const float *x, int64_t n, const float *scales, uint8_t *packed)
{
    void (*const encode)(const float *x, int64_t n_blocks, const float *scales, uint8_t *packed) =
        has_avx2() ? encode_avx2 : encode_portable;
    const int64_t whole = n / SW_NF4_BLOCK, rest = n % SW_NF4_BLOCK;
    float last[SW_NF4_BLOCK] = {0}; /* a zero has code 7, as wanted after an odd last one */
    uint8_t codes[SW_NF4_BLOCK / 2];
    encode(x, whole, scales, packed);
    if (rest > 0) {
        memcpy(last, x + whole * SW_NF4_BLOCK, (size_t)rest * sizeof *x);
        encode(last, 1, scales + whole, codes);
        memcpy(packed + whole * SW_NF4_BLOCK / 2, codes, (size_t)(rest + 1) / 2);
    }
}

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* torch.linspace(0.1, 1, n), which counts from both ends and rounds once. */
static float border(int i, int n)
{
    const float step = (1.0f - 0.1f) / (float)(n - 1);
    return i < n / 2 ? fmaf(step, (float)i, 0.1f) : fmaf(-step, (float)(n - 1 - i), 1.0f);
}

/* A sign, up to 7 bits of a decimal exponent, and the rest for a linear fraction, which stands for
 * the middle between two borders. */
void sw_nf4_map(float out[256])
{
    int n = 0;
    for (int i = 0; i < 7; i++) {
        const int items = 1 << i; /* fractions */
        const float factor = (float)pow(10, i - 6);
        for (int k = 0; k < items; k++) {
            const float mean = (border(k, items + 1) + border(k + 1, items + 1)) / 2;
            out[n++] = factor * mean;
            out[n++] = -factor * mean;
        }
    }
    out[n++] = 0;
    out[n++] = 1;
    qsort(out, (size_t)n, sizeof *out, compare_floats);
}

/* The nearest of 256 ascending numbers: the number of middles between them that are below x. */
static uint8_t find_nearest(const float middles[255], float x)
{
    int below = 0;
    for (int half = 128; half > 0; half /= 2) {
        below += middles[below + half - 1] < x ? half : 0;
    }
    return (uint8_t)below;
}

void sw_nf4_encode_scales(const float *scales, int64_t n, const float map[256], float offset,
                          uint8_t *out, float *nested)
{
    float middles[255];
    for (int i = 0; i < 255; i++) {
        middles[i] = (map[i] + map[i + 1]) / 2;
    }
    for (int64_t first = 0; first < n; first += SW_NF4_NESTED) {
        const int64_t end = sw_min_i64(first + SW_NF4_NESTED, n);
        float peak = 0;
        for (int64_t i = first; i < end; i++) {
            const float size = fabsf(scales[i] - offset);
            peak = size > peak ? size : peak;
        }
        nested[first / SW_NF4_NESTED] = peak;
        for (int64_t i = first; i < end; i++) {
            out[i] = find_nearest(middles, peak > 0 ? (scales[i] - offset) / peak : 0);
        }
    }
}

/* PyTorch, and so bitsandbytes on the CPU, divides a number by a tensor through its reciprocal. */
void sw_int8_encode(const float *x, int64_t n, float scale, int8_t *out)
{
    const float factor = 127.0f * (1.0f / scale);
    const bool is_zero = !(scale > 0) || isinf(factor); /* fp16 has 0 for rows as small, too */
    for (int64_t i = 0; i < n; i++) {
        out[i] = (int8_t)(is_zero ? 0 : rintf(x[i] * factor));
    }
}
