// SPDX-License-Identifier: Apache-2.0
// The vector kernels for AVX2 with FMA and F16C.
#if defined(__AVX2__)
#define VECTOR_TABLE sw_cpu_vector_avx2
#define VECTOR_NAME "avx2"
#include "device/cpu/fast_vector.inc"
#endif
