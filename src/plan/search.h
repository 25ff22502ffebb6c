// SPDX-License-Identifier: Apache-2.0
// search - which plan: policies are tried one after the other until one fits the budgets. Pure: the
// same graphs, policy, budgets and rates have the same plan, or the same refusal, on every machine.
// Part of plan's door.
#pragma once

#include "plan/plan.h"

/* The few choices of one try. */
struct sw_policy {
    int64_t micro_batch, micro_batches; /* B; K, of a step of all ranks */
    int64_t recompute_every;
    bool vertical; /* the schedule */
    int stage;
    enum sw_tier states_tier, params_tier;
    double states_share;          /* of the states go to their tier */
    bool host_updates;            /* those in host memory are updated there */
    size_t budget[SW_TIER_COUNT]; /* shares of what memory there is; 0 = no budget */
    size_t tile_bytes;            /* 0 = no tiles */
    int slots;                    /* of what a step updates on the disk */
    size_t transfer_bytes;        /* prefetch distance: loads .. */
    int64_t prefetch_elems;       /* .. and collectives */
};
/* One line. */
void sw_policy_print(const struct sw_policy *policy, struct sw_str *out);

/* The graphs of one micro-batch, made once for all policies that have it. */
struct sw_search_graphs {
    const struct sw_program_spec *specs;
    int n_specs;
    uint64_t extra_fingerprint; /* see struct sw_plan_options */
};

/* What came of a try, on this rank or on all of them. */
struct sw_verdict {
    sw_status status; /* below 0: the search ends */
    bool fits;
    int rank;         /* one that it does not fit */
    double seconds;   /* of a step, as predicted */
    double share;     /* no more than this part of the micro-batch can fit */
    int64_t n_instrs; /* how much work planning is */
};

struct sw_search {
    /* What no policy says: kernels, rule, ranks, buckets, ..; `host`: what policies may use. */
    struct sw_plan_options fixed;
    struct sw_policy asked; /* tile_bytes 0: as the budget asks; budget, slots, transfer_bytes: not
                               read, for they follow from .. */
    size_t memory[SW_TIER_COUNT]; /* .. the budgets that were given, .. */
    int64_t slots;                /* .. 1 or 2, or 0: as there is room, .. */
    bool one_slot;                /* .. unless somebody has no room for two, .. */
    size_t transfer_bytes;        /* .. this, where it is not 0, .. */
    int64_t sub_group_elems;      /* .. and the largest piece of an update */
    /* Instead of what is asked: the largest micro-batch, the least recomputation that fit. */
    bool any_micro_batch, any_recompute;
    bool any_update; /* on the host or on the device: where a step takes less */
    /* [SW_LOAD_COUNT] a second: they decide what recomputation is the least, and where updates
     * are */
    const double *rates;

    void *ctx;
    /* Lends the graphs of policy->micro_batch until the next call. */
    sw_status (*graphs)(void *ctx, const struct sw_policy *policy, struct sw_search_graphs *out);
    /* any_micro_batch: the largest up to `most` and how many of it a step has; 0 = there is none */
    void (*next)(void *ctx, int64_t most, struct sw_policy *policy);
    /* any_micro_batch, any_recompute: what is true of all ranks takes the place of what is of this
     * one; NULL = this one is alone. */
    sw_status (*agree)(void *ctx, struct sw_verdict *verdict);
};

/*
 * sw_search_open - the plan of the first policy that fits.
 *
 * Beside what is asked for, or chosen, two slots are tried before one, and whole parameters before
 * tiles. Micro-batches are tried from the largest on; within one, no recomputation first, and else
 * that is taken of those that fit by which a step takes least. Updates on the host are tried behind
 * those on the device, with all else as that has it.
 *
 * out_policy   what was chosen
 * out          sw_plan_close
 *
 * SW_E_NOMEM   nothing fits: has the missing bytes, and the smallest change with which it would
 * SW_E_CONFIG  tiles, or two slots, were asked for where there can be none
 * SW_E_PEER    nothing fits another rank, which is named
 */
sw_status sw_search_open(const struct sw_search *search, struct sw_policy *out_policy,
                         struct sw_plan **out);
