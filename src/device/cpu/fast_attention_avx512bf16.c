// SPDX-License-Identifier: Apache-2.0
// Attention in bf16: the kernels with TDPBF16PS, VDPBF16PS, and the models of both.
#include <math.h>
#include <string.h>

#include "device/cpu/bf16_tiles.h"
#include "device/cpu/fast.h"

#if defined(__AVX512BF16__)
#include "device/cpu/fast_transpose.inc"
#include "device/cpu/fast_draw.inc"
#include "device/cpu/fast_attention_bf16.inc"
#include "device/cpu/fast_attention.inc"

#define KERNEL(DOT, NAME)                                                                          \
    {                                                                                              \
        .name = NAME, .dot = &(DOT), .query_block = QUERY_BLOCK, .key_block = KEY_BLOCK,           \
        .scratch_bytes = attention_scratch_bytes, .run = attention,                                \
        .grad_scratch_bytes = attention_grad_scratch_bytes, .run_grad = attention_grad             \
    }

#if !defined(SPILLWAY_WITHOUT_AMX)
const struct cpu_attention_kernel sw_cpu_attention_amx = KERNEL(sw_cpu_dot_amx, "amx_bf16");
#endif
const struct cpu_attention_kernel sw_cpu_attention_avx512bf16 =
    KERNEL(sw_cpu_dot_avx512bf16, "avx512_bf16");
const struct cpu_attention_kernel sw_cpu_attention_amx_model =
    KERNEL(sw_cpu_dot_amx_model, "amx_bf16 model");
const struct cpu_attention_kernel sw_cpu_attention_avx512bf16_model =
    KERNEL(sw_cpu_dot_avx512bf16_model, "avx512_bf16 model");
#endif
