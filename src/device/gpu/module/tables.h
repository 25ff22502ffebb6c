// SPDX-License-Identifier: Apache-2.0
// tables - lists all kernel files, for a module's table.
#pragma once

#include "device/gpu/module/registry.h"

static const struct sw_gpu_kernels *const all_kernels[] = {
    &sw_gpu_kernels_adafactor,   &sw_gpu_kernels_attention, &sw_gpu_kernels_attention_grad,
    &sw_gpu_kernels_elementwise, &sw_gpu_kernels_loss,      &sw_gpu_kernels_move,
    &sw_gpu_kernels_norm,        &sw_gpu_kernels_product,   &sw_gpu_kernels_rotary,
    &sw_gpu_kernels_scalar,      &sw_gpu_kernels_sparse,    &sw_gpu_kernels_stats,
    &sw_gpu_kernels_sums,        &sw_gpu_kernels_update,    &sw_gpu_kernels_rows,
    &sw_gpu_kernels_relative,    &sw_gpu_kernels_image,     &sw_gpu_kernels_lstm,
    &sw_gpu_kernels_preference,  &sw_gpu_kernels_experts,   &sw_gpu_kernels_expert_product,
};
