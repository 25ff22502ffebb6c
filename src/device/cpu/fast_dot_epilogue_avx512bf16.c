// SPDX-License-Identifier: Apache-2.0
// Bias, activation and rounding of a row of sums that microkernels made: bf16 and f32 results, two
// vectors at a time. Rounding is by the processor's instruction: a denormal becomes zero.
#include "device/cpu/dots.h"

#if defined(__AVX512BF16__)
#include "device/cpu/fast_act.inc"

/* Stores lanes `in` of 32 columns. streams: a whole cache line, which is not read first and does
 * not stay. */
INLINE void store_pair(enum sw_dtype dtype, bool streams, void *to, int64_t j, __mmask32 in, vf low,
                       vf high)
{
    if (dtype == SW_F32) {
        float *at = (float *)to + j;
        _mm512_mask_storeu_ps(at, (__mmask16)in, (__m512)low);
        _mm512_mask_storeu_ps(at + TILE_EDGE, (__mmask16)(in >> TILE_EDGE), (__m512)high);
        return;
    }
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
    if (streams) {
        _mm512_stream_si512((__m512i *)(void *)((uint16_t *)to + j), both);
    } else {
        _mm512_mask_storeu_epi16((uint16_t *)to + j, in, both);
    }
}

/* Adds the bias of 32 columns. */
INLINE void add_bias(const struct cpu_epilogue *e, int64_t j, __mmask32 in, vf x[2])
{
    if (e->bias_dtype == SW_F32) {
        const float *at = (const float *)e->bias + j;
        x[0] += (vf)_mm512_maskz_loadu_ps((__mmask16)in, at);
        x[1] += (vf)_mm512_maskz_loadu_ps((__mmask16)(in >> TILE_EDGE), at + TILE_EDGE);
        return;
    }
    const __m512i bias = _mm512_maskz_loadu_epi16(in, (const uint16_t *)e->bias + j);
    x[0] += vf_from_bf16((vh)_mm512_castsi512_si256(bias));
    x[1] += vf_from_bf16((vh)_mm512_extracti64x4_epi64(bias, 1));
}

/* Finishes 32 columns, or those `in`. */
INLINE void finish_pair(const struct cpu_epilogue *e, enum sw_dtype dtype, bool streams,
                        enum sw_act act, const float *c, int64_t j, __mmask32 in)
{
    vf x[2] = {(vf)_mm512_load_ps(c), (vf)_mm512_load_ps(c + TILE_EDGE)};
    if (e->bias) {
        add_bias(e, j, in, x);
    }
    if (e->pre) {
        store_pair(dtype, streams, e->pre, j, in, x[0], x[1]);
    }
    store_pair(dtype, streams, e->out, j, in, activate(act, x[0]), activate(act, x[1]));
}

/* The row below is finished soon after this one: a store to a line that is not in the L1 cache
 * would hold up those behind it. */
INLINE void fetch_below(const struct cpu_epilogue *e, enum sw_dtype dtype, void *row, int64_t n)
{
    char *below = (char *)row + (size_t)e->ld_out * float_bytes(dtype);
    for (size_t at = 0; at < (size_t)n * float_bytes(dtype); at += TILE_ROW_BYTES) {
        __asm__ volatile("prefetchw %0" ::"m"(below[at]));
    }
}

/* Are 32 columns each a cache line, which is written past the caches? */
INLINE bool streams_row(const struct cpu_epilogue *e, enum sw_dtype dtype)
{
    return e->streams && dtype == SW_BF16 && (uintptr_t)e->out % TILE_ROW_BYTES == 0 &&
           (uintptr_t)e->pre % TILE_ROW_BYTES == 0;
}

INLINE void row_of(const struct cpu_epilogue *e, enum sw_dtype dtype, enum sw_act act,
                   const float *c, int64_t n)
{
    int64_t j = 0;
    if (streams_row(e, dtype)) {
        for (; j + DOT_EDGE <= n; j += DOT_EDGE, c += DOT_ELEMS) {
            finish_pair(e, dtype, true, act, c, j, ~(__mmask32)0);
        }
    } else {
        fetch_below(e, dtype, e->out, n);
        if (e->pre) {
            fetch_below(e, dtype, e->pre, n);
        }
        for (; j + DOT_EDGE <= n; j += DOT_EDGE, c += DOT_ELEMS) {
            finish_pair(e, dtype, false, act, c, j, ~(__mmask32)0);
        }
    }
    if (j < n) {
        finish_pair(e, dtype, false, act, c, j, tile_terms(n - j));
    }
}

INLINE void row_with(const struct cpu_epilogue *e, enum sw_dtype dtype, const float *c, int64_t n)
{
    switch (e->act) {
    case SW_ACT_NONE:
        row_of(e, dtype, SW_ACT_NONE, c, n);
        return;
    case SW_ACT_GELU_TANH:
        row_of(e, dtype, SW_ACT_GELU_TANH, c, n);
        return;
    default:
        row_of(e, dtype, e->act, c, n);
    }
}

bool sw_cpu_dot_epilogue_takes(const struct cpu_epilogue *e)
{
    return (e->dtype == SW_BF16 || e->dtype == SW_F32) && e->bias_dtype != SW_F16;
}

void sw_cpu_dot_epilogue(const struct cpu_epilogue *e, const float *c, int64_t n)
{
    if (e->dtype == SW_F32) {
        row_with(e, SW_F32, c, n);
    } else {
        row_with(e, SW_BF16, c, n);
    }
}

#else

bool sw_cpu_dot_epilogue_takes(const struct cpu_epilogue *e)
{
    (void)e;
    return false;
}

void sw_cpu_dot_epilogue(const struct cpu_epilogue *e, const float *c, int64_t n)
{
    (void)e;
    (void)c;
    (void)n;
    SW_ASSERT(false); /* nothing that a caller asked about is taken */
}

#endif
