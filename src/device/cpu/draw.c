// SPDX-License-Identifier: Apache-2.0
// The draw of dropout: who is named by key and counter (cpu.h says which element is which).
#include "device/cpu/cpu.h"

void sw_cpu_draw_init(struct cpu_draw *draw, const double *scalars, uint64_t path, double p,
                      int64_t batch, int64_t i_batch)
{
    const double threshold = p * 0x1p32;
    draw->key[0] = (uint32_t)scalars[SW_SCALAR_SEED_LO] ^ (uint32_t)path;
    draw->key[1] = (uint32_t)scalars[SW_SCALAR_SEED_HI] ^ (uint32_t)(path >> 32);
    draw->sample = (uint64_t)scalars[SW_SCALAR_MICRO] * (uint64_t)batch + (uint64_t)i_batch;
    draw->threshold = threshold >= 0x1p32 ? UINT32_MAX : (uint32_t)threshold;
}
