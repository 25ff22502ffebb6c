// SPDX-License-Identifier: Apache-2.0
// The reference kernels in float, for operands of f32, bf16 and f16.
#define REF_DOUBLE 0
#define REF_TABLE sw_cpu_ref_f32
#include "device/cpu/ref_kernels.inc"
