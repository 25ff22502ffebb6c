// SPDX-License-Identifier: Apache-2.0
// The vector kernels for AVX-512 (F, BW, DQ, VL).
#if defined(__AVX512F__)
#define VECTOR_TABLE sw_cpu_vector_avx512
#define VECTOR_NAME "avx512"
#include "device/cpu/fast_vector.inc"
#endif
