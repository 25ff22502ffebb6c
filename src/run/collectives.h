// SPDX-License-Identifier: Apache-2.0
// Collectives of a plan on memory that the host can reach. Private to the room.
#pragma once

#include "run/run.h"

struct sw_collective_call {
    const struct sw_graph *graph;
    const struct sw_op *op;
    void *const *in, *const *out;
    void *workspace;
    bool first;   /* the scalar FIRST: the accumulator holds nothing yet */
    int n_active; /* ranks that contribute to a sum: the first n */
};

sw_status sw_collective_run(sw_comm *comm, const struct sw_collective_call *call);
