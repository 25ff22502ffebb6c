// SPDX-License-Identifier: Apache-2.0
// emu_mma - the emulation of mma.h's matrix instructions. The layout of each lane's elements is
// written down only here, from the vendors' documents. Sums are in the order of k.
#pragma once

#include "device/gpu/module/types.h"

template <typename T> static inline float emu_half_of(const uint32_t *words, int i)
{
    return to_f32(T{(uint16_t)(words[i / 2] >> i % 2 * 16)});
}

#if SW_WARP == 32

/* PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type". With group = lane / 4 and
 * t = lane % 4:
 *   a0..a7   row = group for a0, a1, a4, a5, else group + 8
 *            col = 2 t + i % 2 for i < 4, else 8 more
 *   b0..b3   row = 2 t + i % 2 for i < 2, else 8 more; col = group
 *   c0..c3   row = group for i < 2, else group + 8; col = 2 t + i % 2 */
template <typename T>
static inline void emu_mma_m16n8k16(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    const int lane = emu_now->thread % 32;
    const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const struct emu_lanes all = emu_bring(mine, sizeof mine);
    float of_a[2][16], of_b[2][16]; /* two rows of a, two columns of b */
    for (int t = 0; t < 4; t++) {
        uint32_t row[6], cols[2][6];
        all.read(lane / 4 * 4 + t, row, sizeof row);
        all.read(lane % 4 * 8 + t, cols[0], sizeof cols[0]);
        all.read(lane % 4 * 8 + 4 + t, cols[1], sizeof cols[1]);
        for (int i = 0; i < 4; i++) {
            const int k = 2 * t + i % 2 + i / 2 * 8;
            of_a[0][k] = emu_half_of<T>(row, i % 2 + i / 2 * 4);
            of_a[1][k] = emu_half_of<T>(row, i % 2 + i / 2 * 4 + 2);
            of_b[0][k] = emu_half_of<T>(cols[0] + 4, i);
            of_b[1][k] = emu_half_of<T>(cols[1] + 4, i);
        }
    }
    for (int k = 0; k < 16; k++) {
        for (int i = 0; i < 4; i++) {
            c[i] += of_a[i / 2][k] * of_b[i % 2][k];
        }
    }
}

#else

/* AMD's matrix instruction calculator, v_mfma_f32_16x16x16_f16 and v_mfma_f32_16x16x16_bf16_1k
 * (CDNA2 ISA, "Matrix Arithmetic Instructions"):
 *   A[i][k]   lane = i + 16 (k / 4), element k % 4
 *   B[k][j]   lane = j + 16 (k / 4), element k % 4
 *   D[i][j]   lane = j + 16 (i / 4), element i % 4 */
template <typename T>
static inline void emu_mfma_16x16x16(float d[4], const uint32_t a[2], const uint32_t b[2])
{
    const int lane = emu_now->thread % 64;
    const uint32_t mine[4] = {a[0], a[1], b[0], b[1]};
    const struct emu_lanes all = emu_bring(mine, sizeof mine);
    for (int k = 0; k < 16; k++) {
        uint32_t of_b[4];
        all.read(lane % 16 + k / 4 * 16, of_b, sizeof of_b);
        const float factor = emu_half_of<T>(of_b + 2, k % 4);
        for (int e = 0; e < 4; e++) {
            uint32_t of_a[4];
            all.read(lane / 16 * 4 + e + k / 4 * 16, of_a, sizeof of_a);
            d[e] += emu_half_of<T>(of_a, k % 4) * factor;
        }
    }
}

#endif
