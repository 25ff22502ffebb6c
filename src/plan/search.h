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

struct sw_search {
    struct sw_plan_options fixed; /* what no policy says: kernels, rule, ranks, buckets, .. */
    struct sw_policy asked; /* tile_bytes 0: as the budget asks; budget, slots, transfer_bytes: not
                               read, for they follow from .. */
    size_t memory[SW_TIER_COUNT]; /* .. the budgets that were given, .. */
    int64_t slots;                /* .. 1 or 2, or 0: as there is room, .. */
    bool one_slot;                /* .. unless somebody has no room for two, .. */
    size_t transfer_bytes;        /* .. this, where it is not 0, .. */
    int64_t sub_group_elems;      /* .. and the largest piece of an update */
    void *ctx;
    /* Lends the graphs of policy->micro_batch until the next call. */
    sw_status (*graphs)(void *ctx, const struct sw_policy *policy, struct sw_search_graphs *out);
};

/*
 * sw_search_open - the plan of the first policy that fits.
 *
 * Beside what is asked for, two slots are tried before one, and whole parameters before tiles.
 *
 * out_policy   what was chosen
 * out          sw_plan_close
 *
 * SW_E_NOMEM   nothing fits: has the missing bytes, and the smallest change with which it would
 * SW_E_CONFIG  tiles, or two slots, were asked for where there can be none
 */
sw_status sw_search_open(const struct sw_search *search, struct sw_policy *out_policy,
                         struct sw_plan **out);
