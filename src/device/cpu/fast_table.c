// SPDX-License-Identifier: Apache-2.0
// The fast rows, best first; an op with an empty list uses its reference row.
#include <stdio.h>

#include "device/cpu/dots.h"
#include "device/cpu/fast.h"
#include "device/cpu/fast_experts.h"

const struct cpu_kernel *const sw_cpu_fast_rows[SW_N_OP_KINDS][4] = {
    [SW_OP_MATMUL] = {&sw_cpu_matmul_dots, &sw_cpu_matmul_dnnl, &sw_cpu_matmul_own},
    [SW_OP_SUM_ROWS] = {&sw_cpu_sum_rows},
    [SW_OP_ADD] = {&sw_cpu_elementwise},
    [SW_OP_SCALE] = {&sw_cpu_elementwise},
    [SW_OP_ACT] = {&sw_cpu_elementwise},
    [SW_OP_ACT_GRAD] = {&sw_cpu_elementwise},
    [SW_OP_CAST] = {&sw_cpu_cast},
    [SW_OP_DROPOUT] = {&sw_cpu_dropout},
    [SW_OP_LAYER_NORM] = {&sw_cpu_layer_norm},
    [SW_OP_ADD_LAYER_NORM] = {&sw_cpu_layer_norm},
    [SW_OP_LAYER_NORM_GRAD] = {&sw_cpu_layer_norm_grad},
    [SW_OP_EMBEDDING] = {&sw_cpu_embedding},
    [SW_OP_EMBEDDING_GRAD] = {&sw_cpu_embedding_grad},
    [SW_OP_ATTENTION] = {&sw_cpu_attention},
    [SW_OP_ATTENTION_GRAD] = {&sw_cpu_attention_grad},
    [SW_OP_ACCUMULATE] = {&sw_cpu_accumulate},
    [SW_OP_GRAD_STATS] = {&sw_cpu_grad_stats},
    [SW_OP_UPDATE] = {&sw_cpu_update},
    [SW_OP_LAMB_MOMENTS] = {&sw_cpu_lamb_moments},
    [SW_OP_LAMB_APPLY] = {&sw_cpu_lamb_apply},
    [SW_OP_MUON_MOMENTS] = {&sw_cpu_muon_moments},
    [SW_OP_MUON_APPLY] = {&sw_cpu_muon_apply},
    [SW_OP_ADAFACTOR_SUMS] = {&sw_cpu_adafactor_sums},
    [SW_OP_ADAFACTOR_MOMENTS] = {&sw_cpu_adafactor_moments},
    [SW_OP_ADAFACTOR_APPLY] = {&sw_cpu_adafactor_apply},
    [SW_OP_CROSS_ENTROPY] = {&sw_cpu_cross_entropy},
    [SW_OP_CROSS_ENTROPY_GRAD] = {&sw_cpu_cross_entropy_grad},
    [SW_OP_LINEAR_CE] = {&sw_cpu_linear_ce},
    [SW_OP_LINEAR_CE_GRAD] = {&sw_cpu_linear_ce_grad},
    [SW_OP_LINEAR_CE_AT_ONCE] = {&sw_cpu_linear_ce_at_once},
    [SW_OP_RMS_NORM] = {&sw_cpu_rms_norm},
    [SW_OP_ADD_RMS_NORM] = {&sw_cpu_rms_norm},
    [SW_OP_RMS_NORM_GRAD] = {&sw_cpu_rms_norm_grad},
    [SW_OP_MUL] = {&sw_cpu_elementwise},
    [SW_OP_GATED_ACT] = {&sw_cpu_gate},
    [SW_OP_GATED_ACT_GRAD] = {&sw_cpu_gate},
    [SW_OP_ROTARY] = {&sw_cpu_rotary},
    [SW_OP_IM2COL] = {&sw_cpu_im2col},
    [SW_OP_COL2IM] = {&sw_cpu_col2im},
    [SW_OP_POOL] = {&sw_cpu_pool},
    [SW_OP_POOL_GRAD] = {&sw_cpu_pool_grad},
    [SW_OP_LSTM] = {&sw_cpu_lstm},
    [SW_OP_LSTM_GRAD] = {&sw_cpu_lstm_grad},
    [SW_OP_RELATIVE_SCORES] = {&sw_cpu_relative_scores},
    [SW_OP_RELATIVE_SCORES_GRAD] = {&sw_cpu_relative_scores_grad},
    [SW_OP_EXPERT_MATMUL] = {&sw_cpu_expert_dots, &sw_cpu_expert_own},
    [SW_OP_EXPERT_MATMUL_GRAD] = {&sw_cpu_expert_dots, &sw_cpu_expert_own},
    [SW_OP_QUANTIZED_MATMUL] = {&sw_cpu_quantized_matmul},
    [SW_OP_FROM_EXPERTS] = {&sw_cpu_from_experts},
    [SW_OP_FROM_EXPERTS_GRAD] = {&sw_cpu_from_experts_grad},
};

const struct cpu_vector *sw_cpu_vector_for(enum cpu_isa isa)
{
#if defined(__x86_64__)
#if !defined(SPILLWAY_WITHOUT_AVX512)
    if (isa >= CPU_AVX512) {
        return &sw_cpu_vector_avx512;
    }
#endif
#if !defined(SPILLWAY_WITHOUT_AVX2)
    if (isa >= CPU_AVX2) {
        return &sw_cpu_vector_avx2;
    }
#endif
#endif
    (void)isa;
    return &sw_cpu_vector_portable;
}

const struct cpu_dot_kernel *sw_cpu_dot_kernel(const struct cpu_device *dev)
{
#if defined(__x86_64__) && !defined(SPILLWAY_WITHOUT_AVX512)
#if !defined(SPILLWAY_WITHOUT_AMX)
    if (!dev->by_library && dev->isa == CPU_AMX_BF16) {
        return &sw_cpu_dot_amx;
    }
#endif
    if (!dev->by_library && dev->isa == CPU_AVX512_BF16 && dev->fast_vdpbf16 &&
        !sw_cpu_dnnl_takes(dev, SW_BF16)) {
        return &sw_cpu_dot_avx512bf16;
    }
#endif
    (void)dev;
    return NULL;
}

bool sw_cpu_are_alike(const struct sw_op_desc *desc, int n_out)
{
    const enum sw_dtype dtype = desc->in[0].dtype;
    bool alike = cpu_is_fast_float(dtype);
    for (int i = 1; i < desc->op->n_in; i++) {
        alike = alike && desc->in[i].dtype == dtype;
    }
    for (int i = 0; i < n_out; i++) {
        alike = alike && (!cpu_has_output(desc, i) || desc->out[i].dtype == dtype);
    }
    return alike;
}

sw_status sw_cpu_prepare_vector(const struct cpu_device *dev, const struct sw_op_desc *desc,
                                void **prepared)
{
    (void)desc;
    *prepared = (void *)(uintptr_t)sw_cpu_vector_for(dev->isa);
    return SW_OK;
}

void sw_cpu_release_nothing(void *prepared)
{
    (void)prepared;
}

void sw_cpu_fast_describe(const struct cpu_device *dev, char *out, size_t cap)
{
    if (sw_cpu_dnnl_takes(dev, SW_F32)) {
        const char *own = sw_cpu_owns_large_f32(dev) ? "f32:large " : "";
        const int n = snprintf(out, cap, "%s", own);
        sw_cpu_dnnl_describe(out + n, cap - (size_t)n);
    } else if (cap > 0) {
        out[0] = '\0';
    }
}
