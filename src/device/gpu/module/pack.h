// SPDX-License-Identifier: Apache-2.0
// pack - neighbouring elements that a thread loads and stores at once, as fp32 in registers. The
// caller says through `wide` whether one access of up to 16 bytes can do it; this never changes a
// result.
#pragma once

#include "device/gpu/module/types.h"

enum { SW_PACK_BYTES = 16 };
/* Elements per access. */
template <typename T> constexpr int pack_elems = SW_PACK_BYTES / (int)sizeof(T);

template <int BYTES> struct alignas(BYTES < SW_PACK_BYTES ? BYTES : SW_PACK_BYTES) pack_words {
    uint32_t at[BYTES / 4];
};

SW_DEVICE bool aligned(const void *at, int64_t bytes = SW_PACK_BYTES)
{
    return (uintptr_t)at % (uintptr_t)bytes == 0;
}

template <int BYTES> SW_DEVICE pack_words<BYTES> load_words(const void *at)
{
    pack_words<BYTES> words;
#if defined(__CUDACC__)
    words = *(const pack_words<BYTES> *)at;
#else
    __builtin_memcpy(&words, __builtin_assume_aligned(at, alignof(pack_words<BYTES>)), BYTES);
#endif
    return words;
}
template <int BYTES> SW_DEVICE void store_words(void *at, const pack_words<BYTES> &words)
{
#if defined(__CUDACC__)
    *(pack_words<BYTES> *)at = words;
#else
    __builtin_memcpy(__builtin_assume_aligned(at, alignof(pack_words<BYTES>)), &words, BYTES);
#endif
}

SW_DEVICE void element_of(const uint32_t *words, int i, float *out)
{
    *out = of_bits(words[i]);
}
SW_DEVICE void element_of(const uint32_t *words, int i, bf16 *out)
{
    out->bits = (uint16_t)(words[i / 2] >> (i % 2 * 16));
}
SW_DEVICE void element_of(const uint32_t *words, int i, f16 *out)
{
    out->bits = (uint16_t)(words[i / 2] >> (i % 2 * 16));
}
SW_DEVICE uint32_t word_bits(float x)
{
    return bits_of(x);
}
SW_DEVICE uint32_t word_bits(bf16 x)
{
    return x.bits;
}
SW_DEVICE uint32_t word_bits(f16 x)
{
    return x.bits;
}

/* x[i .. i + N), of which n are valid: the others become 0. wide: one access may load all N. */
template <int N, typename T>
SW_DEVICE void load_pack(const T *x, int64_t i, int n, bool wide, float *out)
{
    if constexpr (N * sizeof(T) >= 4) { /* smaller accesses are not packed */
        if (wide && n >= N) {
            const pack_words<N *(int)sizeof(T)> words = load_words<N *(int)sizeof(T)>(x + i);
            SW_UNROLL
            for (int e = 0; e < N; e++) {
                T element;
                element_of(words.at, e, &element);
                out[e] = to_f32(element);
            }
            return;
        }
    }
    SW_UNROLL
    for (int e = 0; e < N; e++) {
        out[e] = e < n ? load(x, i + e) : 0;
    }
}

/* Rounds once. */
template <int N, typename T>
SW_DEVICE void store_pack(T *y, int64_t i, int n, bool wide, const float *values)
{
    if constexpr (N * sizeof(T) >= 4) {
        if (wide && n >= N) {
            constexpr int PER_WORD = 4 / (int)sizeof(T);
            pack_words<N *(int)sizeof(T)> words;
            SW_UNROLL
            for (int w = 0; w < N / PER_WORD; w++) {
                const float *v = values + w * PER_WORD;
                words.at[w] = word_bits(round_to<T>(v[0]));
                words.at[w] |= PER_WORD == 1 ? 0 : word_bits(round_to<T>(v[PER_WORD - 1])) << 16;
            }
            store_words(y + i, words);
            return;
        }
    }
    SW_UNROLL
    for (int e = 0; e < N; e++) {
        if (e < n) {
            store(y, i + e, values[e]);
        }
    }
}

/* type: enum sw_gpu_type. wide: y is aligned to 16 bytes, and i a multiple of N. */
template <int N>
SW_DEVICE void store_pack_any(void *y, int type, int64_t i, int n, bool wide, const float *values)
{
    if (type == SW_GPU_F32) {
        store_pack<N>((float *)y, i, n, wide, values);
    } else if (type == SW_GPU_BF16) {
        store_pack<N>((bf16 *)y, i, n, wide, values);
    } else {
        store_pack<N>((f16 *)y, i, n, wide, values);
    }
}
