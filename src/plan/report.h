// SPDX-License-Identifier: Apache-2.0
// report - what a plan takes, sends and costs, for people who choose: estimates without a graph,
// tables of a finished plan, a prediction of its time. Part of plan's door.
#pragma once

#include "plan/plan.h"

/* ---- estimate.c: without a graph ---- */

/* What DeepSpeed's memory estimators are asked: ZeRO stage 2 or 3 on nodes x ranks_per_node
 * devices. */
struct sw_estimate_case {
    int stage;
    int64_t parameters;
    int64_t largest_layer; /* parameters; stage 3 */
    int64_t ranks_per_node, nodes;
    double buffer_factor; /* of what the host holds */
    bool offload_optimizer;
    bool offload_param; /* stage 3, and only with offload_optimizer */
    bool zero_init;     /* stage 3: no rank ever makes the whole model */
};
struct sw_estimate {
    int64_t host_bytes_per_node, device_bytes; /* rounded down, as there */
    int64_t layer_bytes; /* stage 3: the largest layer, part of device_bytes */
};
sw_status sw_estimate(const struct sw_estimate_case *c, struct sw_estimate *out);

/* The ZeRO paper's bytes of model states on one of `ranks` ranks (Rajbhandari et al. 2020,
 * section 3): a parameter takes work bytes for its copy, grad for its gradient, states for its
 * optimizer. */
struct sw_paper {
    double work, grad, states;
};
struct sw_paper sw_paper_widths(enum sw_dtype dtype, const struct sw_update_rule *rule);
double sw_paper_bytes(const struct sw_paper *paper, int stage, double elems, double trained,
                      double ranks);

/* ---- profile.c: by the parts of a model ---- */

/* What a profile says, and what was measured for it. */
struct sw_module_profile {
    const char *model; /* what the whole is called */
    int program;
    const int64_t *ns; /* [n_instrs] of the program, over `runs` micro-batches; NULL = nobody
                          measured */
    int64_t runs, step, batch;
    int ranks;
    double forward_s, backward_s, update_s; /* of a micro-batch; of the step */
    double recompute_fwd_factor;            /* forwards that backward runs again */
    int64_t module_depth, top_modules;      /* depths that are listed, -1 = all; parts of each */
    bool detailed;                          /* with the tree */
};
/* Appends the text. SW_E_NOMEM. */
sw_status sw_plan_profile(const struct sw_plan *plan, const struct sw_module_profile *profile,
                          struct sw_str *out);

/* ---- table.c: what a finished plan takes and sends on this rank, by kind ---- */

/* Bytes of the device's arena; together they are all of it. */
enum sw_held {
    SW_HELD_PARAMS, /* model states, as the paper counts them .. */
    SW_HELD_GRADS,  /* sums over micro-batches, one for each parameter */
    SW_HELD_OPTIMIZER,
    SW_HELD_KEPT,        /* buffers that stay: what stage 3 keeps whole beyond a slice, .. */
    SW_HELD_SECOND,      /* .. sums of the further uses of a parameter, .. */
    SW_HELD_OTHER,       /* .. statistics and caches */
    SW_HELD_GATHERED,    /* alive at the peak: whole copies of slices, .. */
    SW_HELD_LOADED,      /* .. what is offloaded and is used here, .. */
    SW_HELD_GRADS_NOW,   /* .. gradients that have not left yet, .. */
    SW_HELD_ACTIVATIONS, /* .. activations, their gradients and inputs, .. */
    SW_HELD_WIRE,        /* .. what arrives from other ranks, .. */
    SW_HELD_WORKSPACE,   /* .. workspace of kernels */
    SW_HELD_GAPS,        /* addresses between them that nothing uses then */
    SW_HELD_COUNT,
    SW_HELD_STATES = SW_HELD_OPTIMIZER + 1 /* kinds before this one are model states */
};
const char *sw_held_name(enum sw_held kind);

/* Bytes that one rank sends in one optimizer step. */
enum sw_sent {
    SW_SENT_GRADS,    /* slices of gradients to their owners */
    SW_SENT_FORWARD,  /* slices of parameters, gathered for forward, .. */
    SW_SENT_BACKWARD, /* .. for backward, .. */
    SW_SENT_UPDATE,   /* .. after the update; stage 0: slices of the sums, before it */
    SW_SENT_STATS,    /* norms and overflow flags */
    SW_SENT_COUNT
};
const char *sw_sent_name(enum sw_sent kind);

struct sw_sent_parts {
    int64_t bytes;
    double formula;        /* docs/zero.md, with (R-1)/R; what follows is the difference */
    double second, sparse; /* more than once: further dense uses, further sparse ones */
    double kept;           /* stage 3: parameters that stay whole travel after the update */
    double spared;         /* parameters that do not travel: kept whole, frozen, not read */
    double padding;
    double rows;     /* less: rows of row-sparse gradients travel, and not slices */
    double matrices; /* Muon above stage 0: momentum of matrices, gathered whole in bf16 */
};

struct sw_plan_table {
    int64_t elems, trained; /* of all parameters, of those with a gradient */
    size_t held[SW_HELD_COUNT];
    double padding; /* bytes of the model states that equal slices of whole blocks cost */
    size_t tier_bytes[SW_TIER_COUNT];
    struct sw_sent_parts sent[SW_SENT_COUNT];
    double boundary; /* all of the formula with "reduce": "boundary"; 0 where that is refused */
};

/* Of a plan whose first program trains; the options are those that it was made with. */
sw_status sw_plan_tabulate(const struct sw_plan *plan, const struct sw_plan_options *options,
                           struct sw_plan_table *out);

/* ---- predict.c: how long a step would take ---- */

enum sw_load {
    /* floating-point operations of matrix products and attention, by dtype of the factors, .. */
    SW_LOAD_PRODUCTS_F32,
    SW_LOAD_PRODUCTS_BF16,
    SW_LOAD_PRODUCTS_F16,
    SW_LOAD_OTHER,     /* .. bytes that all other computation reads and writes, .. */
    SW_LOAD_COPIES_IN, /* .. and copies between host and device, read and written, .. */
    SW_LOAD_COPIES_OUT,
    SW_LOAD_DISK_READ, /* .. and the disk, .. */
    SW_LOAD_DISK_WRITTEN,
    SW_LOAD_SENT, /* .. and bytes to other ranks, .. */
    SW_LOAD_HOST, /* .. and bytes that kernels of the host read and write */
    SW_LOAD_COUNT
};
const char *sw_load_name(enum sw_load kind);
enum sw_queue sw_load_queue(enum sw_load kind);
/* What running instruction i once is of which kind; of exchanges each of a batch for itself. */
enum sw_load sw_instr_load(const struct sw_plan *plan, const struct sw_program *program, int32_t i,
                           double *out_work);
/* Of an optimizer step of the first program with `rounds` micro-steps; SW_LOAD_SENT stays 0: see
 * sw_plan_tabulate. */
void sw_plan_loads(const struct sw_plan *plan, int64_t rounds, double out[SW_LOAD_COUNT]);

struct sw_prediction {
    double part[SW_LOAD_COUNT];     /* seconds; NaN = there is work and no rate */
    double seconds[SW_QUEUE_COUNT]; /* of the parts that are known */
    enum sw_queue bound;            /* the queue with most */
    double least, most;             /* all others hidden behind it; nothing hidden */
    bool unknown;                   /* a part is missing */
};
/* rates: a second; 0 = unknown */
void sw_predict(const double loads[SW_LOAD_COUNT], const double rates[SW_LOAD_COUNT],
                struct sw_prediction *out);

/* In place of rates that nobody gave or measured: those of a server's processor, its memory, one
 * NVMe drive and a network of 10 Gbit/s. docs/zero.md has them as a table. */
void sw_builtin_rates(double out[SW_LOAD_COUNT]);
/* Of a step with `rounds` micro-steps. */
double sw_plan_seconds(const struct sw_plan *plan, int64_t rounds,
                       const double rates[SW_LOAD_COUNT]);

/* ---- diff.c: what two plans do differently, from their JSON alone ---- */

struct sw_plan_source {
    const char *name; /* for messages, and in the report */
    const char *text; /* [len] what `spillway plan --json` wrote, whatever version it was */
    size_t len;
};
/*
 * sw_plan_diff - a report, for people or as JSON.
 *
 * out_same     nothing differs
 *
 * SW_E_FORMAT  one is no JSON, or no plan: names it and the member
 */
sw_status sw_plan_diff(const struct sw_plan_source source[2], bool json, bool *out_same,
                       struct sw_str *out);
