// SPDX-License-Identifier: Apache-2.0
// Which file carries out which kind of op.
#include "device/gpu/gpu.h"

extern const struct gpu_op sw_gpu_add, sw_gpu_scale, sw_gpu_cast, sw_gpu_mul, sw_gpu_activation,
    sw_gpu_dropout;
extern const struct gpu_op sw_gpu_matmul, sw_gpu_linear_ce, sw_gpu_linear_ce_grad,
    sw_gpu_cross_entropy, sw_gpu_cross_entropy_grad;

const struct gpu_op *const sw_gpu_ops[SW_N_OP_KINDS] = {
    [SW_OP_CAST] = &sw_gpu_cast,
    [SW_OP_ADD] = &sw_gpu_add,
    [SW_OP_MATMUL] = &sw_gpu_matmul,
    [SW_OP_CROSS_ENTROPY] = &sw_gpu_cross_entropy,
    [SW_OP_CROSS_ENTROPY_GRAD] = &sw_gpu_cross_entropy_grad,
    [SW_OP_LINEAR_CE] = &sw_gpu_linear_ce,
    [SW_OP_LINEAR_CE_GRAD] = &sw_gpu_linear_ce_grad,
    [SW_OP_SCALE] = &sw_gpu_scale,
    [SW_OP_ACT] = &sw_gpu_activation,
    [SW_OP_ACT_GRAD] = &sw_gpu_activation,
    [SW_OP_DROPOUT] = &sw_gpu_dropout,
    [SW_OP_MUL] = &sw_gpu_mul,
    [SW_OP_GATED_ACT] = &sw_gpu_activation,
    [SW_OP_GATED_ACT_GRAD] = &sw_gpu_activation,
};
