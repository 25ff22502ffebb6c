// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of cost.
#pragma once

#include "cost/cost.h"

/* ---- links.c ---- */

/* A rank's rate and latency through all links of a joint. */
struct sw_cost_way {
    double rate, latency;
};
/* both: bytes go both ways at once, as in an exchange. */
struct sw_cost_way sw_cost_way(const struct sw_cost_mesh *mesh, enum sw_joint joint, bool both);
/* Ranks of a full node. */
double sw_cost_node_ranks(const struct sw_cost_mesh *mesh);
/* An exchange in which each member sends and receives so many bytes. */
struct sw_cost sw_cost_exchange(const struct sw_cost_mesh *mesh, const struct sw_group *group,
                                double bytes);
/* A message to a member, or from one. */
struct sw_cost sw_cost_message(const struct sw_cost_mesh *mesh, const struct sw_group *group,
                               int peer, double bytes);
/* All disks of the node work together. */
struct sw_cost sw_cost_disk(const struct sw_cost_mesh *mesh, bool reads, double bytes);
/* Share of their rate that reads and writes have beside each other. */
double sw_cost_disk_share(const struct sw_cluster *cluster);

/* ---- measured.c ---- */

/* Seconds of the kernel of an instruction by the cluster's file of measurements; 0 = it is not in
 * it. */
double sw_cost_measured(const struct sw_cluster *cluster, const struct sw_program *program,
                        int32_t i);

/* ---- kernels.c ---- */

/* Adds to the costs of kernels what the mesh's accounting computes or moves besides them, and takes
 * off what it does not. */
sw_status sw_cost_kernels(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                          struct sw_cost (*costs)[2]);

/* ---- account.c ---- */

/* Seconds that an accounting adds to a step, by queue: work that overlaps nothing, and work
 * that overlaps computation as well as it can. */
struct sw_cost_added {
    double alone[SW_QUEUE_COUNT], beside[SW_QUEUE_COUNT];
};
/* Scales the costs as the mesh's accounting says. Moves those of the update, of the passes'
 * parameters and of exchanges from the table to `moved`, [n_instrs], over all runs, and `out`.
 * clock: a walk with the costs as they are. */
void sw_cost_account(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                     const struct sw_clock_report *clock, struct sw_cost (*costs)[2], double *moved,
                     struct sw_cost_added *out);
