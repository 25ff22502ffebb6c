// SPDX-License-Identifier: Apache-2.0
// cost - the seconds of a plan's instructions on a cluster, from its rates: the table that the
// clock (walk/clock.h) walks. Ranks fill one node after the other. Invariant: the same plan and
// cluster give the same costs everywhere; nothing is measured.
#pragma once

#include "cluster/cluster.h"
#include "plan/plan.h"
#include "walk/walk.h"

/* The part of a cluster that a plan runs on. */
struct sw_cost_mesh {
    const struct sw_cluster *cluster;
    int64_t ranks; /* of all nodes; a device each */
};

/* Writes the costs of the instructions of the first program: costs [n_instrs], see struct
 * sw_pace. An exchange inside a batch has none; the first one has those of all. */
void sw_cost_instrs(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                    struct sw_cost (*costs)[2]);
/* Walks an optimizer step with these costs (sw_clock_step). */
sw_status sw_cost_step(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                       struct sw_clock_report *out);
/* Bytes that a device and its host exchange per second in one direction, while all ranks of the
 * node do. */
double sw_cost_host_rate(const struct sw_cost_mesh *mesh);
