// SPDX-License-Identifier: Apache-2.0
// Computations shared by all of Muon's kernels on the CPU.
#include <math.h>

#include "device/cpu/cpu.h"

double sw_cpu_muon_step(const struct sw_op_desc *desc, double lr)
{
    const int64_t *dims = desc->in[desc->op->n_in - 1].shape.dims;
    return lr * sqrt(dims[0] > dims[1] ? (double)dims[0] / (double)dims[1] : 1);
}
