// SPDX-License-Identifier: Apache-2.0
// philox - the draw of dropout, identical to the CPU's (cpu/cpu.h, base/philox.c): Philox4x32-10
// with key = seed ^ path, counter = (e / 4, sample), word e % 4 for element e of its sample. One
// block of random bits serves four neighbours.
#pragma once

#include "device/gpu/module/args_draw.h"
#include "device/gpu/module/gpu_rt.h"

struct philox_block {
    uint32_t words[4];
};

SW_DEVICE struct philox_block philox(uint32_t k0, uint32_t k1, uint64_t low, uint64_t high)
{
    uint32_t c0 = (uint32_t)low, c1 = (uint32_t)(low >> 32);
    uint32_t c2 = (uint32_t)high, c3 = (uint32_t)(high >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

/* The draw of one sample. */
struct draw {
    uint32_t k0, k1, threshold;
    uint64_t sample;
};

SW_DEVICE struct draw draw_of(const struct gpu_draw_args &args, int64_t i_batch)
{
    struct draw draw;
    draw.k0 = (uint32_t)*args.seed_lo ^ (uint32_t)args.path;
    draw.k1 = (uint32_t)*args.seed_hi ^ (uint32_t)(args.path >> 32);
    draw.threshold = args.threshold;
    draw.sample = (uint64_t)*args.micro * (uint64_t)args.batch + (uint64_t)i_batch;
    return draw;
}

/* The words of elements 4 block .. 4 block + 3. */
SW_DEVICE struct philox_block draw_block(const struct draw &draw, uint64_t block)
{
    return philox(draw.k0, draw.k1, block, draw.sample);
}

/* Draws for a single element; costs ten rounds each. */
SW_DEVICE bool draw_keep(const struct draw &draw, uint64_t element)
{
    return draw_block(draw, element / 4).words[element % 4] >= draw.threshold;
}
