// SPDX-License-Identifier: Apache-2.0
// tables - all files of kernels, for a module's table.
#pragma once

#include "device/gpu/module/args.h"

extern const struct sw_gpu_kernels sw_gpu_kernels_attention;
extern const struct sw_gpu_kernels sw_gpu_kernels_attention_grad;
extern const struct sw_gpu_kernels sw_gpu_kernels_elementwise;
extern const struct sw_gpu_kernels sw_gpu_kernels_norm;
extern const struct sw_gpu_kernels sw_gpu_kernels_product;
extern const struct sw_gpu_kernels sw_gpu_kernels_sums;
extern const struct sw_gpu_kernels sw_gpu_kernels_stats;
extern const struct sw_gpu_kernels sw_gpu_kernels_update;

static const struct sw_gpu_kernels *const all_kernels[] = {
    &sw_gpu_kernels_attention,
    &sw_gpu_kernels_attention_grad,
    &sw_gpu_kernels_elementwise,
    &sw_gpu_kernels_norm,
    &sw_gpu_kernels_product,
    &sw_gpu_kernels_sums,
    &sw_gpu_kernels_stats,
    &sw_gpu_kernels_update,
};
