// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of cost.
#pragma once

#include "cost/cost.h"

/* ---- links.c ---- */

/* The ways of some costs (struct sw_way). Functions that take a list give the cost of a rank that
 * is alone, and put its way there. With NULL, they give the cost while all ranks of its node do the
 * same at the same time. */
struct sw_cost_ways {
    struct sw_way *list; /* release with sw_free */
    int n, cap;
    bool failed; /* no memory */
};
/* Number of the things that ranks share, which ways name: links, disks, and the host's memory and
 * processors. */
int sw_cost_n_things(const struct sw_cluster *cluster);
/* Devices that share one. */
int64_t sw_cost_sharers(const struct sw_cluster *cluster, int thing);
/* Ranks of a full node. */
double sw_cost_node_ranks(const struct sw_cost_mesh *mesh);
int64_t sw_cost_node_of(const struct sw_cost_mesh *mesh, int64_t rank);
/* Seconds of all links of a joint. */
double sw_cost_latency(const struct sw_cost_mesh *mesh, enum sw_joint joint);
/* Bytes per second of a rank over a joint, both ways between ranks, while all do the same. */
double sw_cost_joint_rate(const struct sw_cost_mesh *mesh, enum sw_joint joint);
/* A copy between a device and its host. */
struct sw_cost sw_cost_copy(const struct sw_cost_mesh *mesh, bool out, double bytes,
                            struct sw_cost_ways *ways);
/* An exchange in which each member sends and receives so many bytes. */
struct sw_cost sw_cost_exchange(const struct sw_cost_mesh *mesh, const struct sw_group *group,
                                double bytes, struct sw_cost_ways *ways);
/* A message to a member, or from one. */
struct sw_cost sw_cost_message(const struct sw_cost_mesh *mesh, const struct sw_group *group,
                               const struct sw_instr *instr, double bytes,
                               struct sw_cost_ways *ways);
/* All disks of the node work together. */
struct sw_cost sw_cost_disk(const struct sw_cost_mesh *mesh, bool reads, double bytes,
                            struct sw_cost_ways *ways);
/* Work of the host: bytes of memory, or updates of parameters, whichever takes longer. */
struct sw_cost sw_cost_on_host(const struct sw_cost_mesh *mesh, double bytes, double parameters,
                               struct sw_cost_ways *ways);
/* Share of their rate that reads and writes have beside each other. */
double sw_cost_disk_share(const struct sw_cluster *cluster);

/* ---- kinds.c ---- */

/* Ranks that do the same. */
struct sw_cost_kinds {
    int n_ranks, n;
    int *of;                  /* [n_ranks] kind of each */
    int *first;               /* [n] its first rank */
    struct sw_shared *shared; /* [n, things] what that rank shares */
    bool is_rough; /* ranks of a kind may differ in where they are; telling them apart gave too
                      many */
};
/* each: every rank is a kind. stages: [n] the first rank of each */
sw_status sw_cost_open_kinds(const struct sw_clock_rank *stages, int n, bool each,
                             const struct sw_cost_mesh *mesh, struct sw_cost_kinds *out);
void sw_cost_close_kinds(struct sw_cost_kinds *kinds);

/* ---- cost.c ---- */

/* The costs of the instructions as a rank of a mesh has them; ways NULL: see above. */
sw_status sw_cost_fill(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                       struct sw_cost (*costs)[2], struct sw_cost_ways *ways);
/* Walks one rank of each kind, [kinds->n]. seconds: out, of the slowest one */
sw_status sw_cost_walk(struct sw_clock_rank *ranks, const struct sw_cost_kinds *kinds,
                       const struct sw_cost_mesh *mesh, double *seconds);

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
