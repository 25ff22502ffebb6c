// SPDX-License-Identifier: Apache-2.0
// team - the threads that share a row: a warp or a whole block. The order of sums depends only on
// the size of the team.
#pragma once

#include "device/gpu/module/gpu_rt.h"

/* One slot per warp. Only a team that is a block uses it. */
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

/* All threads of the team get the same result. */
template <int THREADS>
SW_DEVICE float team_sum(float x, int team, struct team_scratch<THREADS> &scratch)
{
    x = warp_sum(x);
    if (team <= SW_WARP) {
        return x;
    }
    sync_block(); /* the previous sums have been read */
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
