// SPDX-License-Identifier: Apache-2.0
// The vector kernels in what every compiler of GCC's kind understands: four lanes.
#define VECTOR_TABLE sw_cpu_vector_portable
#define VECTOR_NAME "portable"
#include "device/cpu/fast_vector.inc"
