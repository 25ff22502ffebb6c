// SPDX-License-Identifier: Apache-2.0
// Which file carries out which kind of op.
#include "device/gpu/gpu.h"

extern const struct gpu_op sw_gpu_add, sw_gpu_scale;
extern const struct gpu_op sw_gpu_attention, sw_gpu_attention_grad;

const struct gpu_op *const sw_gpu_ops[SW_N_OP_KINDS] = {
    [SW_OP_ADD] = &sw_gpu_add,
    [SW_OP_SCALE] = &sw_gpu_scale,
    [SW_OP_ATTENTION] = &sw_gpu_attention,
    [SW_OP_ATTENTION_GRAD] = &sw_gpu_attention_grad,
};
