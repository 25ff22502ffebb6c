// SPDX-License-Identifier: Apache-2.0
// args - the list of kernels and their arguments: one struct by value, filled by C (gpu.h) and read
// by C++ (kernels_*.cc). Each family of kernels has its own header. The first member of every
// struct is `skip`: NULL, or a number on the device that, if it is not 0, tells the kernel to do
// nothing. Addresses are on the device; types are enum sw_gpu_type.
#pragma once

#include "device/gpu/module/args_adafactor.h"
#include "device/gpu/module/args_attention.h"
#include "device/gpu/module/args_elementwise.h"
#include "device/gpu/module/args_loss.h"
#include "device/gpu/module/args_move.h"
#include "device/gpu/module/args_norm.h"
#include "device/gpu/module/args_product.h"
#include "device/gpu/module/args_rotary.h"
#include "device/gpu/module/args_scalar.h"
#include "device/gpu/module/args_sparse.h"
#include "device/gpu/module/args_sums.h"
#include "device/gpu/module/args_update.h"
#include "device/gpu/module/args_rows.h"
#include "device/gpu/module/args_relative.h"
#include "device/gpu/module/args_image.h"
#include "device/gpu/module/args_lstm.h"
#include "device/gpu/module/args_experts.h"
#include "device/gpu/module/module.h"

/* X(name) for each kernel. */
#define SW_GPU_KERNEL_LIST(X)                                                                      \
    SW_GPU_ATTENTION_KERNELS(X)                                                                    \
    SW_GPU_ELEMENTWISE_KERNELS(X)                                                                  \
    SW_GPU_LOSS_KERNELS(X)                                                                         \
    SW_GPU_MOVE_KERNELS(X)                                                                         \
    SW_GPU_NORM_KERNELS(X)                                                                         \
    SW_GPU_PRODUCT_KERNELS(X)                                                                      \
    SW_GPU_ROTARY_KERNELS(X)                                                                       \
    SW_GPU_SCALAR_KERNELS(X)                                                                       \
    SW_GPU_SPARSE_KERNELS(X)                                                                       \
    SW_GPU_SUMS_KERNELS(X)                                                                         \
    SW_GPU_UPDATE_KERNELS(X)                                                                       \
    SW_GPU_ROWS_KERNELS(X)                                                                         \
    SW_GPU_RELATIVE_KERNELS(X)                                                                     \
    SW_GPU_IMAGE_KERNELS(X)                                                                        \
    SW_GPU_EXPERTS_KERNELS(X)                                                                      \
    SW_GPU_LSTM_KERNELS(X)                                                                         \
    SW_GPU_ADAFACTOR_KERNELS(X)

enum sw_gpu_kernel_id {
#define SW_GPU_KERNEL_ENUM(name) GPU_##name,
    SW_GPU_KERNEL_LIST(SW_GPU_KERNEL_ENUM)
#undef SW_GPU_KERNEL_ENUM
        GPU_N_KERNELS
};
