// SPDX-License-Identifier: Apache-2.0
// A small model whose plans the tests of this folder show.
#pragma once

#include "support/plans.h"

struct sw_plan_options options(int ranks, int stage, int64_t micro_batches);

enum shape {
    TIED = 1, /* the table is the head, too: a sparse and a dense stream */
    BIAS = 2, /* backward does not read it */
    FROZEN = 4
};

/* Two blocks between matrices. Sizes are odd unless `even`, when shards need no padding. flags: of
 * enum shape */
struct sw_graph *tower(enum sw_dtype dtype, int flags, bool even);
