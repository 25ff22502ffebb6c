// SPDX-License-Identifier: Apache-2.0
// The reference kernels in double, for ops with an f64 operand.
#define REF_DOUBLE 1
#define REF_TABLE sw_cpu_ref_f64
#include "device/cpu/ref_kernels.inc"
