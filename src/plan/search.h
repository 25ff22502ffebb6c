// SPDX-License-Identifier: Apache-2.0
// search - which plan: policies are tried one after the other until one fits the budgets. Pure: the
// same graphs, policy, budgets and rates have the same plan, or the same refusal, on every machine.
// Part of plan's door.
#pragma once

#include "plan/plan.h"

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
    struct sw_plan_options fixed; /* its policy is not read; `host`: what policies may use */
    /* tile_bytes 0: as the budget asks; budget, two_slots, grads_tier, update_elems and
     * transfer_bytes are not read, for they follow from .. */
    struct sw_policy asked;
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
 * tiles. Micro-batches are tried from the largest on; within one, no recomputation first. Else, by
 * groups of one block, then of more, as few blocks are recomputed as fit, and of all that fits that
 * is taken by which a step takes least. Updates on the host are tried behind
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
