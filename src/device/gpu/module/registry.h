// SPDX-License-Identifier: Apache-2.0
// registry - lists a file's kernels for the module's table.
//
//     static const struct sw_gpu_kernel rows[] = {SW_FLOATS(scale, 256), SW_PLAIN(reset, 64)};
//     const struct sw_gpu_kernels sw_gpu_kernels_elementwise = {rows, SW_ROWS(rows)};
#pragma once

#include "device/gpu/module/args.h"
#include "device/gpu/module/types.h"

template <typename A> constexpr size_t args_bytes(void (*)(A))
{
    return sizeof(A);
}

#if defined(__CUDACC__) || defined(__HIP__)
#define SW_ENTRY(...) ((const void *)(__VA_ARGS__))
#else
/* Calls an emulated kernel for the current thread. */
template <auto F> struct emu_entry;
template <typename A, void (*F)(A)> struct emu_entry<F> {
    static void call(const void *args)
    {
        F(*static_cast<const A *>(args));
    }
};
#define SW_ENTRY(...) ((const void *)&emu_entry<(__VA_ARGS__)>::call)
#endif

/* Rows for a template over the three element types, and for a kernel without an element type. */
#define SW_FLOATS(kernel, threads)                                                                 \
    {                                                                                              \
        GPU_##kernel, #kernel, threads, args_bytes(kernel<float>),                                 \
        {                                                                                          \
            SW_ENTRY(kernel<float>), SW_ENTRY(kernel<bf16>), SW_ENTRY(kernel<f16>), nullptr        \
        }                                                                                          \
    }
#define SW_PLAIN(kernel, threads)                                                                  \
    {                                                                                              \
        GPU_##kernel, #kernel, threads, args_bytes(kernel),                                        \
        {                                                                                          \
            nullptr, nullptr, nullptr, SW_ENTRY(kernel)                                            \
        }                                                                                          \
    }
#define SW_ROWS(rows) (int)(sizeof(rows) / sizeof((rows)[0]))

/* The list of each file. */
extern const struct sw_gpu_kernels sw_gpu_kernels_adafactor;
extern const struct sw_gpu_kernels sw_gpu_kernels_attention;
extern const struct sw_gpu_kernels sw_gpu_kernels_attention_grad;
extern const struct sw_gpu_kernels sw_gpu_kernels_elementwise;
extern const struct sw_gpu_kernels sw_gpu_kernels_loss;
extern const struct sw_gpu_kernels sw_gpu_kernels_move;
extern const struct sw_gpu_kernels sw_gpu_kernels_norm;
extern const struct sw_gpu_kernels sw_gpu_kernels_product;
extern const struct sw_gpu_kernels sw_gpu_kernels_rotary;
extern const struct sw_gpu_kernels sw_gpu_kernels_scalar;
extern const struct sw_gpu_kernels sw_gpu_kernels_sparse;
extern const struct sw_gpu_kernels sw_gpu_kernels_stats;
extern const struct sw_gpu_kernels sw_gpu_kernels_sums;
extern const struct sw_gpu_kernels sw_gpu_kernels_update;
extern const struct sw_gpu_kernels sw_gpu_kernels_rows;
extern const struct sw_gpu_kernels sw_gpu_kernels_relative;
extern const struct sw_gpu_kernels sw_gpu_kernels_image;
extern const struct sw_gpu_kernels sw_gpu_kernels_lstm;
extern const struct sw_gpu_kernels sw_gpu_kernels_preference;
extern const struct sw_gpu_kernels sw_gpu_kernels_experts;
extern const struct sw_gpu_kernels sw_gpu_kernels_expert_product;
