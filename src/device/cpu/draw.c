// SPDX-License-Identifier: Apache-2.0
// The draws of dropout and of updates: key and counter name the element (see cpu.h).
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

struct cpu_draw sw_cpu_draw_of_update(const struct cpu_call *call)
{
    struct cpu_draw draw;
    sw_cpu_draw_init(&draw, call->scalars, call->desc->op->attrs.update.draw, 0, 0, 0);
    draw.sample = (uint64_t)call->scalars[SW_SCALAR_STEP];
    return draw;
}

uint32_t sw_cpu_draw_word(const struct cpu_draw *draw, uint64_t element)
{
    uint32_t words[4];
    const uint64_t block = element / 4;
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)draw->sample,
                                 (uint32_t)(draw->sample >> 32)};
    sw_philox(draw->key, counter, words);
    return words[element % 4];
}
