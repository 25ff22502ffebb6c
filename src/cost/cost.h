// SPDX-License-Identifier: Apache-2.0
// cost - the seconds of a plan's instructions on a cluster, from its rates: the table that the
// clock (walk/clock.h) walks. Ranks fill one node after the other. Invariant: the same plan and
// cluster give the same costs everywhere; nothing is measured.
#pragma once

#include "cluster/cluster.h"
#include "plan/plan.h"
#include "walk/walk.h"

/* The bytes that a system moves in a step, and what it overlaps. The plan's instructions stay, but
 * their bytes are scaled, and the clock walks only what is not listed here. */
struct sw_accounting {
    const char *name;
    bool rings; /* exchanges pass from neighbour to neighbour; else each rank sends to each other */
    bool exchanges_overlap;  /* exchanges of the data axis with computation */
    bool parameters_overlap; /* transfers of parameters between tiers with computation */
    bool updates_overlap;    /* the update with backward */
    bool reads_overlap;      /* reads of the update with its writes */
    /* Bytes per parameter and step that pass the disks, where the states, or the parameters, are
     * on disks: read and written by the update, and moved for the passes; 0 = as planned. */
    double update_read, update_written, moved;
    /* Transfers and exchanges are the plan's, and overlap as there; the above has no effect. The
     * only accountings that pipelines have. */
    bool as_planned;
    /* Kernels. Recomputation repeats whole blocks; ours leaves out products that backward does not
     * read. Losses keep their logits for backward; ours compute them again. */
    bool whole_blocks, keeps_logits;
    /* Times that the scores of all pairs of attention pass memory; 0 = they stay on the chip, and
     * pairs that a causal mask hides are left out. */
    double scores_forward, scores_backward;
};

/* The part of a cluster that a plan runs on, and how. */
struct sw_cost_mesh {
    const struct sw_cluster *cluster;
    int64_t ranks;                          /* of all nodes; a device each */
    const struct sw_accounting *accounting; /* NULL = the plan as it is */
    /* With an accounting: parameters of the model, and whether its states and parameters pass the
     * disks, though the plan may keep some of them in host memory. */
    double parameters;
    bool states_on_disk, parameters_on_disk;
};

/* Writes the costs of the instructions of the first program: costs [n_instrs], see struct
 * sw_pace, while all ranks of a node do the same at the same time. An exchange inside a batch has
 * none; the first one has those of all. Kernels have those of the mesh's accounting. */
sw_status sw_cost_instrs(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                         struct sw_cost (*costs)[2]);
/* Walks an optimizer step in the mesh's accounting, of which the plan is one rank. As planned:
 * sw_cost_stages of one stage. Else: sw_clock_step with the costs above; what does not overlap is
 * added to the step and to the part of its queue. */
sw_status sw_cost_step(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                       struct sw_clock_report *out);
/* Walks the step of all ranks, of which the first one of each of n stages is given; the paces are
 * made here. Ranks that do the same are walked as one (sw_clock_kinds): those of a stage with
 * equally many micro-batches, and with the same kinds of ranks at the same links, disks and hosts.
 * Exception: if that gives more kinds than 16 and four for each stage, where ranks are within nodes
 * does not count, and each shares with ranks like itself. An accounting is `as_planned`.
 *
 * seconds   out: time of a step */
sw_status sw_cost_stages(struct sw_clock_rank *stages, int n, const struct sw_cost_mesh *mesh,
                         double *seconds);
/* The cluster as the rates of a machine, for choices among many plans: what a rank has while all
 * others do the same. Products have the share of their peak that large ones reach; shapes, kernels
 * without work and measured kernels do not count. */
void sw_cost_rates(const struct sw_cost_mesh *mesh, struct sw_machine_rates *out);
/* Bytes that a device and its host exchange per second in one direction, while all ranks of the
 * node do. */
double sw_cost_host_rate(const struct sw_cost_mesh *mesh);
/* The share of its speed that a product [m, k] x [k, n] leaves to its device: blocks at the edges,
 * the last round of blocks, and short sums. */
double sw_cost_efficiency(const struct sw_cluster *cluster, enum sw_dtype dtype, double m, double n,
                          double k);
