// SPDX-License-Identifier: Apache-2.0
// Peak bf16 multiply-add rate on tiles with tdpbf16ps: 16 x 16 sums of 32 products each.
#if defined(__AMX_BF16__) || defined(__AMXBF16__) /* gcc; clang */
#include "device/cpu/bf16_tiles.h"
#include "device/cpu/fast.h"

enum { PEAK_TILES = 4, PEAK_UNROLLED = 4 };

double sw_cpu_peak_amx(int64_t rounds, float *sink)
{
    tile_begin();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(6);
    for (int64_t r = 0; r < rounds; r += PEAK_UNROLLED) {
        for (int i = 0; i < PEAK_UNROLLED; i++) {
            _tile_dpbf16ps(0, 6, 4);
            _tile_dpbf16ps(1, 6, 4);
            _tile_dpbf16ps(2, 6, 4);
            _tile_dpbf16ps(3, 6, 4);
        }
    }
    float sums[TILE_EDGE * TILE_EDGE];
    _tile_stored(0, sums, TILE_ROW_BYTES);
    *sink += sums[0];
    tile_end();
    const int64_t whole = sw_ceil_div(rounds, PEAK_UNROLLED) * PEAK_UNROLLED;
    return 2.0 * TILE_EDGE * TILE_EDGE * TILE_TERMS * PEAK_TILES * (double)whole;
}
#endif
