// SPDX-License-Identifier: Apache-2.0
// The cases of every op: odd shapes, each attribute, optional operands absent.
#pragma once

#include "device/tests/op_case.h"

/* Variant `variant` of an op's case in a dtype; false past the last one. */
typedef bool (*case_build_fn)(struct op_case *c, enum sw_dtype dtype, int variant);

bool case_attention(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_attention_grad(struct op_case *c, enum sw_dtype dtype, int variant);
/* Cases in decoder_cases.c. "more": variants beyond those of op_cases.c. */
bool case_rms_norm(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_rms_norm_grad(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_add_rms_norm(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_mul(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_gated_act(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_gated_act_grad(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_rotary(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_positions(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_linear_ce_more(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_linear_ce_grad_more(struct op_case *c, enum sw_dtype dtype, int variant);

/* Cases in encoder_cases.c. */
bool case_not_equal(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_shift_right(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_trim(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_mask_rows(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_concat(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_masked_mean(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_masked_mean_grad(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_element_loss(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_linear_ce_by_row(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_linear_ce_grad_by_row(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_preference(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_preference_grad(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_element_loss_grad(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_relative_bias(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_relative_bias_grad(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_relative_scores(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_relative_scores_grad(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_im2col(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_col2im(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_pool(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_pool_grad(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_lstm(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_lstm_grad(struct op_case *c, enum sw_dtype dtype, int variant);

/* Cases in expert_cases.c. */
bool case_router(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_router_grad(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_expert_rows(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_to_experts(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_from_experts(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_from_experts_grad(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_expert_matmul(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_expert_matmul_grad(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_router_stats(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_router_stats_grad(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_router_loss(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_router_loss_grad(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_expert_loads(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_clamped_gate(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_clamped_gate_grad(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_attention_sink(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_attention_sink_grad(struct op_case *c, enum sw_dtype dtype, int variant);

/* Cases in quantized_cases.c. */
bool case_inverse_norms(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_dequantize(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_quantized_matmul(struct op_case *c, enum sw_dtype dtype, int variant);
/* QUANTIZED_MATMUL of a weight [rows, columns], or of its transpose. With an odd number of columns
 * it has a bias, an activation, and the value before it. */
struct quantized_shape {
    int64_t rows, columns, n_tokens;
    bool tb;
    struct sw_quantized_form form;
};
void case_quantized_product(struct op_case *c, enum sw_dtype dtype,
                            const struct quantized_shape *shape);

/* One builder per kind; NULL only for VIEW, which has no kernel. */
extern const case_build_fn op_cases[SW_N_OP_KINDS];
