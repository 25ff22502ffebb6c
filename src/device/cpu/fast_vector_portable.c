// SPDX-License-Identifier: Apache-2.0
// The vector kernels in GCC's portable vector extensions: four lanes.
#define VECTOR_TABLE sw_cpu_vector_portable
#define VECTOR_NAME "portable"
#include "device/cpu/fast_vector.inc"
