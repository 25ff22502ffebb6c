// SPDX-License-Identifier: Apache-2.0
// mma - a warp's product of two tiles of 16 x 16, c += a b, summed in fp32. 16-bit elements use
// matrix units:
//   CUDA  mma.sync.aligned.m16n8k16, two of them side by side
//   HIP   v_mfma_f32_16x16x16f16 and .._bf16_1k with a and b swapped, which gives the product
//         transposed; on gfx908, which lacks that for bf16, two of v_mfma_f32_16x16x8bf16
// Both hold a, b transposed and c alike. Lane l has MMA_ELEMS elements of each: element e is in row
// mma_row(l, e) and column mma_col(l, e); for b rows and columns are swapped. So an accumulator
// becomes the a of the next product by rounding it in place.
// fp32 elements are multiplied by fmaf, out of memory, with the accumulators in the same lanes.
// They keep full fp32 precision.
#pragma once

#include "device/gpu/module/types.h"

#if defined(__CUDACC__) || defined(__HIP__)
#define SW_PRAGMA(...) _Pragma(#__VA_ARGS__)
#define SW_UNROLL_BY(n) SW_PRAGMA(unroll n)
#define SW_DEVICE_MEMBER __device__ __forceinline__
#else
#define SW_UNROLL_BY(n) static_assert((n) > 0, "so many at once");
#define SW_DEVICE_MEMBER inline
#include "device/gpu/module/emu_mma.h"
#endif

#define MMA_ELEMS (256 / SW_WARP)
#define MMA_ROWS (SW_WARP == 32 ? 2 : 1) /* rows in which a lane has elements */

/* The index of such a row for element e: 0 or 1. The row itself is mma_row(l, e). */
SW_DEVICE constexpr int mma_slot(int e)
{
    return SW_WARP == 32 ? e / 2 % 2 : 0;
}
SW_DEVICE constexpr int mma_row(int lane, int e)
{
    return SW_WARP == 32 ? lane / 4 + e / 2 % 2 * 8 : lane % 16;
}
SW_DEVICE constexpr int mma_col(int lane, int e)
{
    return SW_WARP == 32 ? lane % 4 * 2 + e % 2 + e / 4 * 8 : lane / 16 * 4 + e;
}
/* Length of a run of a lane's neighbouring elements in a row. */
#define MMA_RUN (SW_WARP == 32 ? 2 : 4)

/* Reduces with op over the lanes that share rows; every lane gets the result. */
template <typename Op> SW_DEVICE float mma_row_reduce(float x, Op op)
{
    x = op(x, shuffle_xor(x, SW_WARP == 32 ? 1 : 16));
    return op(x, shuffle_xor(x, SW_WARP == 32 ? 2 : 32));
}

/* Packs two neighbours into a word, the first in its low half. */
template <typename T> SW_DEVICE uint32_t pack_pair(float low, float high)
{
#if defined(__CUDACC__)
    uint32_t word;
    if (type_of<T>::type == SW_GPU_BF16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    }
    return word;
#else
    return round_to<T>(low).bits | (uint32_t)round_to<T>(high).bits << 16;
#endif
}

/* ---- 16-bit elements ---- */

#if defined(__CUDACC__)
/* Loads four 8 x 8 matrices from shared memory, a row per lane's `at`. order: "" or ".trans" */
#define LOAD_MATRICES(order, x, at)                                                                \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" order ".shared.b16 {%0, %1, %2, %3}, [%4];"       \
                 : "=r"((x)[0]), "=r"((x)[1]), "=r"((x)[2]), "=r"((x)[3])                          \
                 : "r"((uint32_t)__cvta_generic_to_shared(at))                                     \
                 : "memory")
#endif

template <typename T> struct mma {
    /* A tile, or its transpose for the second factor. */
    struct tile {
        uint32_t x[MMA_ELEMS / 2];
    };
    using tile_a = struct tile;
    using tile_b = struct tile;

    /* tile (row, col) = x[row ld + col], from 16-byte aligned shared memory; ld % 8 = 0 */
    static SW_DEVICE_MEMBER struct tile load_rows(const T *x, int ld)
    {
        struct tile tile;
        const int lane = lane_index();
#if defined(__CUDACC__)
        const T *at = x + (lane % 16) * ld + lane / 16 * 8;
        LOAD_MATRICES("", tile.x, at);
#else
        for (int e = 0; e < MMA_ELEMS; e += 2) { /* neighbours are contiguous */
            tile.x[e / 2] = *(const uint32_t *)(x + mma_row(lane, e) * ld + mma_col(lane, e));
        }
#endif
        return tile;
    }
    /* tile (row, col) = x[col ld + row]: b as stored, in shared memory as above */
    static SW_DEVICE_MEMBER struct tile load_cols(const T *x, int ld)
    {
        struct tile tile;
        const int lane = lane_index();
#if defined(__CUDACC__)
        const T *at = x + (lane % 8 + lane / 16 * 8) * ld + lane / 8 % 2 * 8;
        LOAD_MATRICES(".trans", tile.x, at);
#else
        for (int e = 0; e < MMA_ELEMS; e += 2) {
            const T *at = x + mma_col(lane, e) * ld + mma_row(lane, e);
            tile.x[e / 2] = at[0].bits | (uint32_t)at[ld].bits << 16;
        }
#endif
        return tile;
    }
    /* Rounds accumulators into a tile. scratch: not used */
    static SW_DEVICE_MEMBER struct tile pack(const float *c, float *scratch)
    {
        struct tile tile;
        (void)scratch;
        SW_UNROLL
        for (int e = 0; e < MMA_ELEMS; e += 2) {
            tile.x[e / 2] = pack_pair<T>(c[e], c[e + 1]);
        }
        return tile;
    }
    static SW_DEVICE_MEMBER void multiply(float *c, const struct tile &a, const struct tile &b)
    {
#if defined(__CUDACC__)
        /* The tile's words hold, for b, n 0..7 and n 8..15 of k 0..7, then the same of k 8..15. */
        for (int half = 0; half < 2; half++) {
            float *d = c + 4 * half;
            if (type_of<T>::type == SW_GPU_BF16) {
                asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                    "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                    : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[half]),
                      "r"(b.x[half + 2]));
            } else {
                asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                    "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                    : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[half]),
                      "r"(b.x[half + 2]));
            }
        }
#elif defined(__HIP__)
#if defined(__HIP_DEVICE_COMPILE__)
        typedef float acc __attribute__((ext_vector_type(4)));
        acc d = {c[0], c[1], c[2], c[3]};
        if (type_of<T>::type == SW_GPU_BF16) {
#if defined(__gfx908__)
            /* The older instruction has k 0..7, two of them in each lane. Which k a lane has does
             * not matter for the sum, as long as a and b agree. */
            typedef short pair __attribute__((ext_vector_type(2)));
            for (int i = 0; i < 2; i++) {
                d = __builtin_amdgcn_mfma_f32_16x16x8bf16(
                    __builtin_bit_cast(pair, b.x[i]), __builtin_bit_cast(pair, a.x[i]), d, 0, 0, 0);
            }
#else
            typedef short words __attribute__((ext_vector_type(4)));
            d = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(words, b),
                                                          __builtin_bit_cast(words, a), d, 0, 0, 0);
#endif
        } else {
            typedef _Float16 words __attribute__((ext_vector_type(4)));
            d = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(words, b),
                                                      __builtin_bit_cast(words, a), d, 0, 0, 0);
        }
        for (int e = 0; e < 4; e++) {
            c[e] = d[e];
        }
#else
        (void)c, (void)a, (void)b; /* compiled for the host, but never called there */
#endif
#elif SW_WARP == 32
        for (int half = 0; half < 2; half++) {
            const uint32_t n8[2] = {b.x[half], b.x[half + 2]};
            emu_mma_m16n8k16<T>(c + 4 * half, a.x, n8);
        }
#else
        emu_mfma_16x16x16<T>(c, b.x, a.x);
#endif
    }
};

/* ---- 32-bit elements ---- */

template <> struct mma<float> {
    /* Rows of this lane: (row, k) = rows[slot][k step] for k < n; other elements are zeros. */
    struct tile_a {
        const float *rows[MMA_ROWS];
        int64_t step;
        int n;
    };
    /* (k, col) = x[k down + col right] */
    struct tile_b {
        const float *x;
        int down, right;
    };
    enum { SCRATCH = 16 * 20 }; /* floats of shared memory for pack, per warp */

    static SW_DEVICE_MEMBER struct tile_a load_a(const float *x, int ld)
    {
        struct tile_a tile;
        SW_UNROLL
        for (int slot = 0; slot < MMA_ROWS; slot++) {
            tile.rows[slot] = x + mma_row(lane_index(), 2 * slot) * ld;
        }
        tile.step = 1;
        tile.n = 16;
        return tile;
    }
    static SW_DEVICE_MEMBER struct tile_b load_rows(const float *x, int ld)
    {
        return {x, 1, ld};
    }
    static SW_DEVICE_MEMBER struct tile_b load_cols(const float *x, int ld)
    {
        return {x, ld, 1};
    }
    /* Valid until the warp's next pack. */
    static SW_DEVICE_MEMBER struct tile_a pack(const float *c, float *scratch)
    {
        const int lane = lane_index();
        sync_warp();
        SW_UNROLL
        for (int e = 0; e < MMA_ELEMS; e++) {
            scratch[mma_row(lane, e) * 20 + mma_col(lane, e)] = c[e];
        }
        sync_warp();
        return load_a(scratch, 20);
    }
    static SW_DEVICE_MEMBER void multiply(float *c, const struct tile_a &a, const struct tile_b &b)
    {
        const int lane = lane_index();
        const float *cols[MMA_ELEMS];
        SW_UNROLL
        for (int e = 0; e < MMA_ELEMS; e++) {
            cols[e] = b.x + mma_col(lane, e) * b.right;
        }
        SW_UNROLL_BY(2)
        for (int k = 0; k < a.n; k++) {
            SW_UNROLL
            for (int e = 0; e < MMA_ELEMS; e++) {
                c[e] = fmaf(a.rows[mma_slot(e)][k * a.step], cols[e][k * b.down], c[e]);
            }
        }
    }
};
