// SPDX-License-Identifier: Apache-2.0
// The microkernel of bf16 products on the tiles of AMX. Four accumulators of 16 x 16 make a block
// of 32 x 32. The right operand streams from the L2 cache, so its loads carry the hint that it is
// not needed again. Rows of the left operand stay in the L1 cache for the next block.
#include "device/cpu/bf16_tiles.h"

#if defined(__AMX_BF16__) || defined(__AMXBF16__) /* gcc; clang */

static void begin(void)
{
    tile_begin();
}

static void end(void)
{
    tile_end();
    _mm_sfence(); /* epilogues may stream their stores */
}

static void block(const struct cpu_dot *dot)
{
    const char *a0 = dot->a[0], *a1 = dot->a[1], *b0 = dot->b[0], *b1 = dot->b[1];
    const size_t row = dot->a_row, row_c = DOT_EDGE * sizeof(float);
    float *c0 = dot->c, *c1 = dot->c + TILE_EDGE * DOT_EDGE;
    if (dot->adds) {
        _tile_loadd(0, c0, row_c);
        _tile_loadd(1, c0 + TILE_EDGE, row_c);
        _tile_loadd(2, c1, row_c);
        _tile_loadd(3, c1 + TILE_EDGE, row_c);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t step = 0; step < dot->steps; step++) {
        _tile_stream_loadd(4, b0, TILE_ROW_BYTES);
        _tile_loadd(6, a0, row);
        _tile_dpbf16ps(0, 6, 4);
        _tile_stream_loadd(5, b1, TILE_ROW_BYTES);
        _tile_dpbf16ps(1, 6, 5);
        _tile_loadd(7, a1, row);
        _tile_dpbf16ps(2, 7, 4);
        _tile_dpbf16ps(3, 7, 5);
        a0 += dot->a_step;
        a1 += dot->a_step;
        b0 += TILE_BYTES;
        b1 += TILE_BYTES;
        if (dot->side) {
            dot->side(dot->ctx, step);
        }
    }
    _tile_stored(0, c0, row_c);
    _tile_stored(1, c0 + TILE_EDGE, row_c);
    _tile_stored(2, c1, row_c);
    _tile_stored(3, c1 + TILE_EDGE, row_c);
}

const struct cpu_dot_kernel sw_cpu_dot_amx = {
    .name = "amx_bf16", .begin = begin, .end = end, .block = block, .pack = sw_cpu_dot_pack};

#endif
