// SPDX-License-Identifier: Apache-2.0
// Which file carries out which kind of op.
#include "device/gpu/gpu.h"

extern const struct gpu_op sw_gpu_add, sw_gpu_scale, sw_gpu_cast, sw_gpu_mul, sw_gpu_activation,
    sw_gpu_dropout;
extern const struct gpu_op sw_gpu_sum_rows, sw_gpu_layer_norm, sw_gpu_layer_norm_grad,
    sw_gpu_rms_norm, sw_gpu_rms_norm_grad;
extern const struct gpu_op sw_gpu_matmul;
extern const struct gpu_op sw_gpu_add, sw_gpu_scale;
extern const struct gpu_op sw_gpu_attention, sw_gpu_attention_grad;
extern const struct gpu_op sw_gpu_contiguous, sw_gpu_embedding, sw_gpu_densify, sw_gpu_select_index,
    sw_gpu_select_rows, sw_gpu_select_rows_grad, sw_gpu_slice_grad, sw_gpu_kv_append,
    sw_gpu_last_index, sw_gpu_positions;
extern const struct gpu_op sw_gpu_matmul, sw_gpu_linear_ce, sw_gpu_linear_ce_grad,
    sw_gpu_cross_entropy, sw_gpu_cross_entropy_grad;
extern const struct gpu_op sw_gpu_accumulate, sw_gpu_stats_reset, sw_gpu_grad_stats,
    sw_gpu_stats_finish, sw_gpu_update, sw_gpu_lamb_moments, sw_gpu_lamb_apply,
    sw_gpu_lamb_add_norms;
extern const struct gpu_op sw_gpu_embedding_grad, sw_gpu_rotary, sw_gpu_seed, sw_gpu_loss_mean;
extern const struct gpu_op sw_gpu_matmul, sw_gpu_linear_ce, sw_gpu_linear_ce_grad,
    sw_gpu_cross_entropy, sw_gpu_cross_entropy_grad;
extern const struct gpu_op sw_gpu_sum_rows, sw_gpu_layer_norm, sw_gpu_layer_norm_grad,
    sw_gpu_rms_norm, sw_gpu_rms_norm_grad;
extern const struct gpu_op sw_gpu_attention, sw_gpu_attention_grad;
extern const struct gpu_op sw_gpu_accumulate, sw_gpu_stats_reset, sw_gpu_grad_stats,
    sw_gpu_stats_finish, sw_gpu_update, sw_gpu_lamb_moments, sw_gpu_lamb_apply,
    sw_gpu_lamb_add_norms;

const struct gpu_op *const sw_gpu_ops[SW_N_OP_KINDS] = {
    [SW_OP_CONTIGUOUS] = &sw_gpu_contiguous,
    [SW_OP_CAST] = &sw_gpu_cast,
    [SW_OP_EMBEDDING] = &sw_gpu_embedding,
    [SW_OP_EMBEDDING_GRAD] = &sw_gpu_embedding_grad,
    [SW_OP_SUM_ROWS] = &sw_gpu_sum_rows,
    [SW_OP_ADD] = &sw_gpu_add,
    [SW_OP_MATMUL] = &sw_gpu_matmul,
    [SW_OP_CROSS_ENTROPY] = &sw_gpu_cross_entropy,
    [SW_OP_CROSS_ENTROPY_GRAD] = &sw_gpu_cross_entropy_grad,
    [SW_OP_LINEAR_CE] = &sw_gpu_linear_ce,
    [SW_OP_LINEAR_CE_GRAD] = &sw_gpu_linear_ce_grad,
    [SW_OP_SCALE] = &sw_gpu_scale,
    [SW_OP_ACT] = &sw_gpu_activation,
    [SW_OP_ACT_GRAD] = &sw_gpu_activation,
    [SW_OP_LAYER_NORM] = &sw_gpu_layer_norm,
    [SW_OP_LAYER_NORM_GRAD] = &sw_gpu_layer_norm_grad,
    [SW_OP_ADD_LAYER_NORM] = &sw_gpu_layer_norm,
    [SW_OP_DROPOUT] = &sw_gpu_dropout,
    [SW_OP_LAST_INDEX] = &sw_gpu_last_index,
    [SW_OP_SELECT_ROWS] = &sw_gpu_select_rows,
    [SW_OP_SELECT_ROWS_GRAD] = &sw_gpu_select_rows_grad,
    [SW_OP_SLICE_GRAD] = &sw_gpu_slice_grad,
    [SW_OP_KV_APPEND] = &sw_gpu_kv_append,
    [SW_OP_LOSS_MEAN] = &sw_gpu_loss_mean,
    [SW_OP_LOSS_MEAN_GRAD] = &sw_gpu_loss_mean,
    [SW_OP_SEED] = &sw_gpu_seed,
    [SW_OP_DENSIFY] = &sw_gpu_densify,
    [SW_OP_SELECT_INDEX] = &sw_gpu_select_index,
    [SW_OP_RMS_NORM] = &sw_gpu_rms_norm,
    [SW_OP_RMS_NORM_GRAD] = &sw_gpu_rms_norm_grad,
    [SW_OP_ADD_RMS_NORM] = &sw_gpu_rms_norm,
    [SW_OP_MUL] = &sw_gpu_mul,
    [SW_OP_GATED_ACT] = &sw_gpu_activation,
    [SW_OP_GATED_ACT_GRAD] = &sw_gpu_activation,
    [SW_OP_ATTENTION] = &sw_gpu_attention,
    [SW_OP_ATTENTION_GRAD] = &sw_gpu_attention_grad,
    [SW_OP_ROTARY] = &sw_gpu_rotary,
    [SW_OP_POSITIONS] = &sw_gpu_positions,
    [SW_OP_ACCUMULATE] = &sw_gpu_accumulate,
    [SW_OP_STATS_RESET] = &sw_gpu_stats_reset,
    [SW_OP_GRAD_STATS] = &sw_gpu_grad_stats,
    [SW_OP_STATS_FINISH] = &sw_gpu_stats_finish,
    [SW_OP_UPDATE] = &sw_gpu_update,
    [SW_OP_LAMB_MOMENTS] = &sw_gpu_lamb_moments,
    [SW_OP_LAMB_APPLY] = &sw_gpu_lamb_apply,
    [SW_OP_LAMB_ADD_NORMS] = &sw_gpu_lamb_add_norms,
};
