// SPDX-License-Identifier: Apache-2.0
// Packing of bf16 operands into tiles, in registers.
#include "device/cpu/bf16_tiles.h"

#if defined(__AVX512BW__)

/* Stored rows have all terms of a row (column); 16 of them make a panel. */
INLINE void pack_rows(const struct cpu_dot_pack *p, int64_t k, bool is_left)
{
    const char *from = (const char *)p->from + (size_t)k * sizeof(uint16_t);
    const size_t stride = (size_t)p->ld * sizeof(uint16_t),
                 at = (size_t)k / TILE_TERMS * TILE_BYTES;
    const __mmask32 in = tile_terms(p->terms - k);
    for (int panel = 0; panel < 2; panel++, from += TILE_EDGE * stride) {
        const int64_t rows = p->n - panel * TILE_EDGE;
        __m512i x[TILE_EDGE];
        if (rows >= TILE_EDGE && p->terms - k >= TILE_TERMS) {
            tile_load_rows(x, from, stride, TILE_EDGE, ~(__mmask32)0);
        } else {
            tile_load_rows(x, from, stride, rows, in);
        }
        if (!is_left) {
            tile_transpose(x);
        }
        tile_store((char *)p->to[panel] + at, x);
    }
}

/* A stored row has one term of all rows (columns). */
INLINE void pack_columns(const struct cpu_dot_pack *p, int64_t k, bool is_left)
{
    const size_t stride = (size_t)p->ld * sizeof(uint16_t),
                 at = (size_t)k / TILE_TERMS * TILE_BYTES;
    const char *from = (const char *)p->from + (size_t)k * stride;
    __m512i x[2][TILE_EDGE];
    if (p->n >= DOT_EDGE && p->terms - k >= TILE_TERMS) {
        tile_interleave(x[0], x[1], from, stride, TILE_TERMS, ~(__mmask32)0);
    } else {
        tile_interleave(x[0], x[1], from, stride, p->terms - k, tile_terms(p->n));
    }
    for (int panel = 0; panel < 2; panel++) {
        if (is_left) {
            tile_transpose(x[panel]);
        }
        tile_store((char *)p->to[panel] + at, x[panel]);
    }
}

void sw_cpu_dot_pack(const struct cpu_dot_pack *p)
{
    for (int64_t k = 0; k < p->terms; k += TILE_TERMS) {
        if (p->terms_apart && p->is_left) {
            pack_columns(p, k, true);
        } else if (p->terms_apart) {
            pack_columns(p, k, false);
        } else {
            pack_rows(p, k, p->is_left);
        }
    }
}

#endif
