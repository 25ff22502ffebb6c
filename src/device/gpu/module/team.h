// SPDX-License-Identifier: Apache-2.0
// team - the threads that share a row: one warp, or all of the block. Sums have an order that the
// size of the team alone decides.
#pragma once

#include "device/gpu/module/gpu_rt.h"

/* One slot a warp. Of a team that is the block; a warp leaves it alone. */
template <int THREADS> struct team_scratch {
    float sums[THREADS / SW_WARP];
};

SW_DEVICE float warp_sum(float x)
{
    SW_UNROLL
    for (int mask = SW_WARP / 2; mask > 0; mask /= 2) {
        x += shuffle_xor(x, mask);
    }
    return x;
}

/* The same for all threads of the team. */
template <int THREADS>
SW_DEVICE float team_sum(float x, int team, struct team_scratch<THREADS> &scratch)
{
    x = warp_sum(x);
    if (team <= SW_WARP) {
        return x;
    }
    sync_block(); /* the sums before have been read */
    if (lane_index() == 0) {
        scratch.sums[warp_index()] = x;
    }
    sync_block();
    x = 0;
    SW_UNROLL
    for (int w = 0; w < THREADS / SW_WARP; w++) {
        x += scratch.sums[w];
    }
    return x;
}
