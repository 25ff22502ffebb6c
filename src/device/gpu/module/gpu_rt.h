// SPDX-License-Identifier: Apache-2.0
// gpu_rt - the language of kernels: C++17 that nvcc, hipcc and a host compiler accept alike. It
// names what differs between the three: function qualifiers, indices, barriers, shuffles, shared
// memory. Kernels include this and no vendor header. A kernel is
//
//     template <typename T> SW_KERNEL(256) void scale(struct gpu_scale_args a) { .. }
//
// with one-dimensional blocks of that many threads, in whole warps of SW_WARP lanes (32 or 64). A
// second number says how many such blocks a multiprocessor must have registers for. All threads of
// a block reach each barrier, and all threads of a warp each shuffle. Contraction is off: fused
// operations are written as fmaf.
#pragma once

#include <math.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define SW_WARP 32
#define SW_DEVICE __device__ __forceinline__
#define SW_KERNEL(...) __global__ __launch_bounds__(__VA_ARGS__)
#elif defined(__HIP__)
#include <hip/hip_runtime.h>
#define SW_WARP 64
#define SW_DEVICE __device__ __forceinline__
/* HIP's second bound counts waves on each of a compute unit's four SIMDs. On gfx908, half of their
 * registers are for results of matrix instructions alone, so half as many waves are asked for. */
#if defined(__gfx908__)
#define SW_SIMDS 8
#else
#define SW_SIMDS 4
#endif
#define SW_KERNEL(...) SW_BOUNDS(__VA_ARGS__, 1, 0)
#define SW_BOUNDS(threads, blocks, ...)                                                            \
    __global__ __launch_bounds__(threads,                                                          \
                                 ((threads) / SW_WARP * (blocks) + SW_SIMDS - 1) / SW_SIMDS)
#else
#include "device/gpu/module/emu.h" /* the build defines SW_WARP */
#define SW_DEVICE static inline
#define SW_KERNEL(...) static
#endif

#if defined(__CUDACC__) || defined(__HIP__)

/* ---- a GPU ---- */

/* SW_UNROLL goes before a loop with constant bounds: arrays that it indexes stay in registers.
 * SW_ROLLED keeps a loop from being unrolled at all. */
#define SW_UNROLL _Pragma("unroll")
/* Makes the compiler compute values derived from an int here, and not earlier in a register. */
#if defined(__CUDACC__)
#define SW_HERE(x) asm volatile("" : "+r"(x))
#else
#define SW_HERE(x) (void)(x)
#endif
#define SW_ROLLED _Pragma("unroll 1")
#define SW_SHARED(type, name) __shared__ type name
/* The memory of sw_gpu_launch.shared, 16-byte aligned. */
#define SW_DYNAMIC_SHARED(name) extern __shared__ __align__(16) char name[]

SW_DEVICE int thread_index()
{
    return (int)threadIdx.x;
}
SW_DEVICE int block_threads()
{
    return (int)blockDim.x;
}
SW_DEVICE int64_t block_x()
{
    return (int64_t)blockIdx.x;
}
SW_DEVICE int64_t block_y()
{
    return (int64_t)blockIdx.y;
}
SW_DEVICE int64_t block_z()
{
    return (int64_t)blockIdx.z;
}
SW_DEVICE int64_t grid_x()
{
    return (int64_t)gridDim.x;
}
SW_DEVICE void sync_block()
{
    __syncthreads();
}
SW_DEVICE void sync_warp()
{
#if defined(__CUDACC__)
    __syncwarp();
#else
    __builtin_amdgcn_wave_barrier();
    __threadfence_block();
#endif
}
template <typename V> SW_DEVICE V shuffle(V value, int lane)
{
#if defined(__CUDACC__)
    return __shfl_sync(0xffffffffu, value, lane);
#else
    return __shfl(value, lane);
#endif
}
template <typename V> SW_DEVICE V shuffle_xor(V value, int mask)
{
#if defined(__CUDACC__)
    return __shfl_xor_sync(0xffffffffu, value, mask);
#else
    return __shfl_xor(value, mask);
#endif
}
/* Returns the old value. Integers only: their sums do not depend on order. */
SW_DEVICE unsigned long long atomic_add(unsigned long long *at, unsigned long long value)
{
    return atomicAdd(at, value);
}
SW_DEVICE int atomic_add(int *at, int value)
{
    return atomicAdd(at, value);
}
SW_DEVICE uint32_t bits_of(float x)
{
    return __float_as_uint(x);
}
SW_DEVICE float of_bits(uint32_t x)
{
    return __uint_as_float(x);
}
SW_DEVICE uint64_t bits_of(double x)
{
    return (uint64_t)__double_as_longlong(x);
}
SW_DEVICE double of_bits(uint64_t x)
{
    return __longlong_as_double((long long)x);
}
/* Makes this thread's earlier writes visible to all blocks before its later ones. */
SW_DEVICE void fence_device()
{
    __threadfence();
}

#else

/* ---- the emulation ---- */

#define SW_UNROLL
#define SW_HERE(x) (void)(x)
#define SW_ROLLED
#define SW_SHARED(type, name) type &name = *static_cast<type *>(emu_shared(sizeof(type)))
#define SW_DYNAMIC_SHARED(name) char *const name = emu_dynamic_shared()

SW_DEVICE int thread_index()
{
    return emu_now->thread;
}
SW_DEVICE int block_threads()
{
    return emu_now->n_threads;
}
SW_DEVICE int64_t block_x()
{
    return emu_now->block[0];
}
SW_DEVICE int64_t block_y()
{
    return emu_now->block[1];
}
SW_DEVICE int64_t block_z()
{
    return emu_now->block[2];
}
SW_DEVICE int64_t grid_x()
{
    return emu_now->grid[0];
}
SW_DEVICE void sync_block()
{
    emu_sync_block();
}
SW_DEVICE void sync_warp()
{
    emu_sync_warp();
}
template <typename V> SW_DEVICE V shuffle(V value, int lane)
{
    V out;
    emu_bring(&value, sizeof value).read(lane & (SW_WARP - 1), &out, sizeof out);
    return out;
}
template <typename V> SW_DEVICE V shuffle_xor(V value, int mask)
{
    return shuffle(value, (emu_now->thread % SW_WARP) ^ mask);
}
SW_DEVICE unsigned long long atomic_add(unsigned long long *at, unsigned long long value)
{
    const unsigned long long before = *at;
    *at += value;
    return before;
}
SW_DEVICE int atomic_add(int *at, int value)
{
    const int before = *at;
    *at += value;
    return before;
}
SW_DEVICE uint32_t bits_of(float x)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}
SW_DEVICE float of_bits(uint32_t x)
{
    float value;
    __builtin_memcpy(&value, &x, sizeof value);
    return value;
}
SW_DEVICE uint64_t bits_of(double x)
{
    uint64_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}
SW_DEVICE double of_bits(uint64_t x)
{
    double value;
    __builtin_memcpy(&value, &x, sizeof value);
    return value;
}
SW_DEVICE void fence_device()
{
}

#endif

SW_DEVICE int lane_index()
{
    return thread_index() % SW_WARP;
}
SW_DEVICE int warp_index()
{
    return thread_index() / SW_WARP;
}

/* a / b of non-negative numbers; avoids the slow 64-bit division, which is seldom needed. */
SW_DEVICE int64_t quotient(int64_t a, int64_t b)
{
    return ((a | b) >> 32) != 0 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}

/* Every kernel asks this first: is its update skipped? */
SW_DEVICE bool skipped(const double *skip)
{
    return skip && *skip != 0;
}

/* Loops over elements read: for (i = first_element(); i < n; i += grid_threads()). */
SW_DEVICE int64_t first_element()
{
    return block_x() * block_threads() + thread_index();
}
SW_DEVICE int64_t grid_threads()
{
    return grid_x() * block_threads();
}
