// SPDX-License-Identifier: Apache-2.0
// bf16_tiles - bf16 operands of the dot-product instructions TDPBF16PS (AMX) and VDPBF16PS. Both
// take pairs of terms: 16 dwords of two bf16. A tile has 16 rows of 64 bytes, and one of two forms:
// - A tile: row r is row r of the left operand, 32 terms;
// - V tile: row p is terms 2p and 2p+1 of each of 16 columns of the right operand.
// As dwords one form is the transpose of the other. A packed operand has panels of 16 rows or
// columns; a panel has a tile for each 32 terms. VDPBF16PS takes a row of a V tile, and one dword
// of an A tile, repeated.
// Included by files compiled for AVX-512 (packing) or AMX (tile registers as well).
#pragma once

#include "device/cpu/simd.h"

enum { TILE_EDGE = 16, TILE_TERMS = 32, TILE_ELEMS = TILE_EDGE * TILE_TERMS };
enum { TILE_ROW_BYTES = 64, TILE_BYTES = TILE_EDGE * TILE_ROW_BYTES };

/*
 * The instructions in plain C, to the bit except for the payload of NaNs, for tests on processors
 * without them. c is fp32, a and b are bf16. Neither reads MXCSR: both round to nearest even, take
 * denormals as zero of their sign and make such zeros.
 */
void sw_cpu_model_tdpbf16ps(float c[TILE_EDGE * TILE_EDGE], const uint16_t a[TILE_ELEMS],
                            const uint16_t b[TILE_ELEMS]);
void sw_cpu_model_vdpbf16ps(float c[TILE_EDGE], const uint16_t a[TILE_TERMS],
                            const uint16_t b[TILE_TERMS]);

/* ---- microkernels: a block of 32 x 32 of a product ---- */

enum { DOT_EDGE = 2 * TILE_EDGE, DOT_ELEMS = DOT_EDGE * DOT_EDGE };

/* Work beside the product: called once a step, i_step = 0 .. steps - 1. */
typedef void (*cpu_dot_side_fn)(void *ctx, int64_t i_step);

/*
 * c [32,32] = the product of two panels of rows and two of columns over `steps` times 32 terms; or
 * it is added to c, with the bits of one product of all terms.
 */
struct cpu_dot {
    const void *a[2]; /* A tiles of rows 0 .. 15 and 16 .. 31 */
    size_t a_row;     /* bytes between rows, and between tiles of a panel */
    size_t a_step;
    const void *b[2]; /* V tiles of columns 0 .. 15 and 16 .. 31, TILE_BYTES apart */
    int64_t steps;
    bool adds;
    float *c;             /* dense, aligned to a cache line */
    cpu_dot_side_fn side; /* or NULL */
    void *ctx;
};

/* Packs up to 32 rows of the left operand into A tiles, or columns of the right one into V tiles,
 * one step at a time. Missing rows, columns and terms are 0. */
struct cpu_dot_pack {
    bool is_left;
    bool terms_apart; /* a stored row is one term of all rows (columns); else all terms of one */
    const void *from; /* first row (column), first term */
    int64_t ld;       /* elements between stored rows */
    int64_t n, terms; /* n <= 32 */
    void *to[2];      /* panels; tiles TILE_BYTES apart */
};

/* A set of microkernels. All but the models need the instructions. */
struct cpu_dot_kernel {
    const char *name;
    /* before and after products in a thread; or NULL. `end` also orders stores past the caches
     * before later ones */
    void (*begin)(void);
    void (*end)(void);
    void (*block)(const struct cpu_dot *dot);
    void (*pack)(const struct cpu_dot_pack *pack);
};

void sw_cpu_dot_pack(const struct cpu_dot_pack *pack);
extern const struct cpu_dot_kernel sw_cpu_dot_amx, sw_cpu_dot_avx512bf16; /* x86-64 only */
extern const struct cpu_dot_kernel sw_cpu_dot_amx_model, sw_cpu_dot_avx512bf16_model;

#if defined(__AVX512BW__)
/* ---- packing: a tile is 16 registers on its way ---- */

/* The lowest n of 32 terms; all for n >= 32. */
INLINE __mmask32 tile_terms(int64_t n)
{
    return n >= TILE_TERMS ? ~(__mmask32)0 : n <= 0 ? 0 : ((__mmask32)1 << n) - 1;
}

/* x[r] = terms of row r, `stride` bytes apart; zeros for rows from `rows` on and terms not `in`. */
INLINE void tile_load_rows(__m512i x[TILE_EDGE], const void *from, size_t stride, int64_t rows,
                           __mmask32 in)
{
    const char *row = from;
    UNROLL
    for (int r = 0; r < TILE_EDGE; r++) {
        x[r] = r < rows ? _mm512_maskz_loadu_epi16(in, row + (size_t)r * stride)
                        : _mm512_setzero_si512();
    }
}

/*
 * Two neighbouring V tiles, 32 columns, of an operand whose columns are contiguous: left[p] and
 * right[p] are terms 2p and 2p+1. Rows (terms) are `stride` bytes apart; zeros for terms from
 * `terms` on and columns not `in`.
 */
INLINE void tile_interleave(__m512i left[TILE_EDGE], __m512i right[TILE_EDGE], const void *from,
                            size_t stride, int64_t terms, __mmask32 in)
{
#define TILE_LOW(l) (short)((l) / 2 + (l) % 2 * 32)
#define TILE_HIGH(l) (short)((l) / 2 + (l) % 2 * 32 + 16)
#define TILE_16(f, l)                                                                              \
    f((l) + 15), f((l) + 14), f((l) + 13), f((l) + 12), f((l) + 11), f((l) + 10), f((l) + 9),      \
        f((l) + 8), f((l) + 7), f((l) + 6), f((l) + 5), f((l) + 4), f((l) + 3), f((l) + 2),        \
        f((l) + 1), f(l)
    const __m512i low = _mm512_set_epi16(TILE_16(TILE_LOW, 16), TILE_16(TILE_LOW, 0));
    const __m512i high = _mm512_set_epi16(TILE_16(TILE_HIGH, 16), TILE_16(TILE_HIGH, 0));
#undef TILE_LOW
#undef TILE_HIGH
#undef TILE_16
    const char *row = from;
    UNROLL
    for (int p = 0; p < TILE_EDGE; p++) {
        const __m512i even = 2 * p < terms
                                 ? _mm512_maskz_loadu_epi16(in, row + (size_t)(2 * p) * stride)
                                 : _mm512_setzero_si512();
        const __m512i odd = 2 * p + 1 < terms
                                ? _mm512_maskz_loadu_epi16(in, row + (size_t)(2 * p + 1) * stride)
                                : _mm512_setzero_si512();
        left[p] = _mm512_permutex2var_epi16(even, low, odd);
        right[p] = _mm512_permutex2var_epi16(even, high, odd);
    }
}

/* Dword i of x[j] <-> dword j of x[i]: turns an A tile into a V tile and back. */
INLINE void tile_transpose(__m512i x[TILE_EDGE])
{
    __m512i y[TILE_EDGE];
    UNROLL
    for (int i = 0; i < TILE_EDGE; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    UNROLL
    for (int i = 0; i < TILE_EDGE; i += 4) {
        x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
    UNROLL
    for (int i = 0; i < 4; i++) { /* x[i + 4 g]: column i + 4 q of rows 4g .., in 128-bit part q */
        y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
        y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
        y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
        y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88);
        x[i + 8] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd);
        x[i + 4] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0x88);
        x[i + 12] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0xdd);
    }
}

/* to: aligned to a cache line. */
INLINE void tile_store(void *to, const __m512i x[TILE_EDGE])
{
    UNROLL
    for (int r = 0; r < TILE_EDGE; r++) {
        _mm512_store_si512((char *)to + r * TILE_ROW_BYTES, x[r]);
    }
}
#endif

#if defined(__AMX_BF16__) || defined(__AMXBF16__) /* gcc; clang */
/* ---- tile registers ---- */

/* Configures all eight tile registers of this thread for whole tiles, and clears them. An item
 * begins and ends them itself: the pool's threads run other kernels in between, and the system
 * saves configured tiles at each context switch. */
INLINE void tile_begin(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = TILE_ROW_BYTES;
        config.rows[i] = TILE_EDGE;
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
}

INLINE void tile_end(void)
{
    _tile_release();
}
#endif
