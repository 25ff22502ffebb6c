// SPDX-License-Identifier: Apache-2.0
// The random state of a launch, for kernels that draw.
#include "device/gpu/gpu.h"

struct gpu_draw_args sw_gpu_draw_args(const struct gpu_call *call, double p, int64_t batch)
{
    const double threshold = p * 0x1p32;
    return (struct gpu_draw_args){
        .seed_lo = call->scalars + SW_SCALAR_SEED_LO,
        .seed_hi = call->scalars + SW_SCALAR_SEED_HI,
        .micro = call->scalars + SW_SCALAR_MICRO,
        .path = call->desc->op->path,
        .batch = batch,
        .threshold = threshold >= 0x1p32 ? UINT32_MAX : (uint32_t)threshold,
    };
}
