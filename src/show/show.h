// SPDX-License-Identifier: Apache-2.0
// show - tells users what a plan does, takes, sends and costs: as text and as JSON, in tables, by
// module, and in comparison with another plan. It reads finished plans and changes nothing.
#pragma once

#include "plan/plan.h"

/* ---- print.c: a plan as text or JSON ---- */

/* Prints instructions, bytes per tier, FLOPs, and the peak with its largest values. */
void sw_plan_print(const struct sw_plan *plan, bool instructions, struct sw_str *out);
/* Prints one JSON object. full: with all that running the plan needs. docs/train.md lists the
 * members. */
void sw_plan_print_json(const struct sw_plan *plan, bool full, struct sw_str *out);

/* ---- estimate.c: without a graph ---- */

/* Inputs of DeepSpeed's memory estimators: ZeRO stage 2 or 3 on nodes x ranks_per_node devices. */
struct sw_estimate_case {
    int stage;
    int64_t parameters;
    int64_t largest_layer; /* in parameters; stage 3 */
    int64_t ranks_per_node, nodes;
    double buffer_factor; /* factor on the host's bytes */
    bool offload_optimizer;
    bool offload_param; /* stage 3, and only with offload_optimizer */
    bool zero_init;     /* stage 3: no rank ever creates the whole model */
};
struct sw_estimate {
    int64_t host_bytes_per_node, device_bytes; /* rounded down, as in DeepSpeed */
    int64_t layer_bytes; /* stage 3: the largest layer, part of device_bytes */
};
sw_status sw_estimate(const struct sw_estimate_case *c, struct sw_estimate *out);

/* Bytes of model states on one of `ranks` ranks, as in the ZeRO paper (Rajbhandari et al. 2020,
 * section 3). A parameter takes `work` bytes for its copy, `grad` for its gradient and `states` for
 * its optimizer. */
struct sw_paper {
    double work, grad, states;
};
struct sw_paper sw_paper_widths(enum sw_dtype dtype, const struct sw_update_rule *rule);
double sw_paper_bytes(const struct sw_paper *paper, int stage, double elems, double trained,
                      double ranks);

/* ---- profile.c: costs by module ---- */

/* Settings and measurements of a profile. */
struct sw_module_profile {
    const char *model; /* name of the whole model */
    int program;
    /* [n_instrs] of the program, summed over `runs` micro-batches; NULL = not measured */
    const int64_t *ns;
    int64_t runs, step, batch;
    int ranks;
    /* forward_s and backward_s per micro-batch, update_s per step */
    double forward_s, backward_s, update_s;
    double recompute_fwd_factor; /* number of forward passes that backward repeats */
    /* depth of the listing, -1 = all; modules listed per depth */
    int64_t module_depth, top_modules;
    bool detailed; /* include the tree */
};
/* Appends the text. May return SW_E_NOMEM. */
sw_status sw_plan_profile(const struct sw_plan *plan, const struct sw_module_profile *profile,
                          struct sw_str *out);

/* ---- table.c: what a finished plan takes and sends on this rank, by kind ---- */

/* Kinds of bytes in the device's arena; together they are all of it. */
enum sw_held {
    SW_HELD_PARAMS, /* model states, as the paper counts them */
    SW_HELD_GRADS,  /* model states: sums over micro-batches, one per parameter */
    SW_HELD_OPTIMIZER,
    SW_HELD_KEPT,        /* persistent: what stage 3 keeps whole beyond a shard */
    SW_HELD_SECOND,      /* persistent: sums of the further uses of a parameter */
    SW_HELD_OTHER,       /* persistent: statistics and caches */
    SW_HELD_GATHERED,    /* live at the peak: gathered copies of shards */
    SW_HELD_LOADED,      /* live at the peak: loaded copies of offloaded tensors */
    SW_HELD_GRADS_NOW,   /* live at the peak: gradients that have not left yet */
    SW_HELD_ACTIVATIONS, /* live at the peak: activations, their gradients and inputs */
    SW_HELD_WIRE,        /* live at the peak: data arriving from other ranks */
    SW_HELD_WORKSPACE,   /* live at the peak: workspace of kernels */
    SW_HELD_GAPS,        /* addresses in between that are unused at the peak */
    SW_HELD_COUNT,
    SW_HELD_STATES = SW_HELD_OPTIMIZER + 1 /* kinds before this one are model states */
};
const char *sw_held_name(enum sw_held kind);

/* Kinds of bytes that one rank sends in one optimizer step. */
enum sw_sent {
    SW_SENT_GRADS,    /* shards of gradients, to their owners */
    SW_SENT_FORWARD,  /* shards of parameters, gathered for forward */
    SW_SENT_BACKWARD, /* the same for backward */
    SW_SENT_UPDATE, /* the same after the update; stage 0: shards of the sums, before the update */
    SW_SENT_STATS,  /* norms and overflow flags */
    SW_SENT_OTHER,  /* exchanges of other tensors, or among other groups than the data axis */
    SW_SENT_COUNT
};
const char *sw_sent_name(enum sw_sent kind);

struct sw_sent_parts {
    int64_t bytes;
    /* prediction of docs/zero.md, with (R-1)/R; the members below explain the difference */
    double formula;
    double second, sparse; /* repeated: further dense uses, further sparse ones */
    double kept;           /* stage 3: parameters that stay whole travel after the update */
    double spared;         /* do not travel: kept whole, frozen, unused, or there from before */
    double stays;          /* saved because they stay gathered from one micro-batch to the next */
    double padding;
    double rows;     /* saved because rows of row-sparse gradients travel instead of shards */
    double matrices; /* Muon above stage 0: momentum of matrices, gathered whole in bf16 */
};

struct sw_plan_table {
    int64_t elems, trained; /* of all parameters; of those with a gradient */
    size_t held[SW_HELD_COUNT];
    double padding; /* bytes of the model states that padding to equal shards costs */
    size_t tier_bytes[SW_TIER_COUNT];
    struct sw_sent_parts sent[SW_SENT_COUNT];
    double boundary; /* total by the formula with "reduce": "boundary"; 0 if that is refused */
};

/* Tabulates a plan whose first program trains; `options` must be those that made it. */
sw_status sw_plan_tabulate(const struct sw_plan *plan, const struct sw_plan_options *options,
                           struct sw_plan_table *out);

/* ---- diff.c: the differences of two plans, from their JSON alone ---- */

struct sw_plan_source {
    const char *name; /* for messages and the report */
    const char *text; /* [len] output of `spillway plan --json`, of any version */
    size_t len;
};
/*
 * sw_plan_diff - compares two plans and reports to people, or as JSON.
 *
 * out_same     true if nothing differs
 *
 * SW_E_FORMAT  one is not JSON, or not a plan: names it and the member
 */
sw_status sw_plan_diff(const struct sw_plan_source source[2], bool json, bool *out_same,
                       struct sw_str *out);

#include "show/lanes.h"
