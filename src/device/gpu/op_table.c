// SPDX-License-Identifier: Apache-2.0
// Which file carries out which kind of op.
#include "device/gpu/gpu.h"

extern const struct gpu_op sw_gpu_add, sw_gpu_scale;
extern const struct gpu_op sw_gpu_accumulate, sw_gpu_stats_reset, sw_gpu_grad_stats,
    sw_gpu_stats_finish, sw_gpu_update, sw_gpu_lamb_moments, sw_gpu_lamb_apply,
    sw_gpu_lamb_add_norms;

const struct gpu_op *const sw_gpu_ops[SW_N_OP_KINDS] = {
    [SW_OP_ADD] = &sw_gpu_add,
    [SW_OP_SCALE] = &sw_gpu_scale,
    [SW_OP_ACCUMULATE] = &sw_gpu_accumulate,
    [SW_OP_STATS_RESET] = &sw_gpu_stats_reset,
    [SW_OP_GRAD_STATS] = &sw_gpu_grad_stats,
    [SW_OP_STATS_FINISH] = &sw_gpu_stats_finish,
    [SW_OP_UPDATE] = &sw_gpu_update,
    [SW_OP_LAMB_MOMENTS] = &sw_gpu_lamb_moments,
    [SW_OP_LAMB_APPLY] = &sw_gpu_lamb_apply,
    [SW_OP_LAMB_ADD_NORMS] = &sw_gpu_lamb_add_norms,
};
