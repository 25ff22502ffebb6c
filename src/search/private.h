// SPDX-License-Identifier: Apache-2.0
// private - what the files of the search share.
#pragma once

#include "search/search.h"

enum { LEAST_TILE = 1 << 15 }; /* bytes of the smallest tile that is tried */

/* Number of instructions that takes about a second to plan. Optional tries stop there. */
enum { MOST_INSTRS = 1 << 18 };

/* A search that is under way. */
struct sw_search_look {
    const struct sw_search *s;
    struct sw_search_graphs graphs;
    struct sw_plan *plan;    /* plan of the last try, if it fits */
    struct sw_policy policy; /* of the last try */
    /* largest share of the policies tried since it was reset, see struct sw_verdict */
    double share;
    /* refusal of the last try that did not fit; the message is about it */
    struct sw_plan_refusal said;
    size_t enough[SW_TIER_COUNT]; /* see struct sw_plan_options */
};

/* ---- try.c ---- */

/* The options of a try. */
struct sw_plan_options sw_search_options(const struct sw_search_look *l,
                                         const struct sw_policy *policy);
/* Sets the settings that follow from the chosen tiers. */
void sw_search_choose_tiers(const struct sw_search_look *l, struct sw_policy *p);
/* True if two slots are asked for on the disk, but are impossible. */
bool sw_search_wants_other_slots(const struct sw_search_look *l, const struct sw_policy *p);
/* True if the graphs that were borrowed train. */
bool sw_search_trains(const struct sw_search_look *l);
/* Number of blocks of the model; 0 if it is not trained. */
int64_t sw_search_blocks(const struct sw_search_look *l);
/* Borrows the graphs of a policy's micro-batch. */
sw_status sw_search_borrow_graphs(struct sw_search_look *l, const struct sw_policy *policy);
/* True if a budget refused the plan; false if planning itself ran out of memory. */
bool sw_search_is_refused(sw_status st, const struct sw_plan_refusal *refusal);
/* Plans a policy as it is, without a change of slots or tiles. Sets l->policy, and l->plan if it
 * fits. If a budget refuses it, sets l->said and raises l->share. */
sw_status sw_search_open_plan(struct sw_search_look *l, const struct sw_policy *policy,
                              struct sw_plan_refusal *refusal);
/* Closes the plan of the last try, if there is one. */
void sw_search_drop_plan(struct sw_search_look *l);
/* Uses two slots if the budgets have room for them, else one. One slot is tried if it could save
 * enough memory, or if two fit but are not cheap; never if the user asked for two. *refusal is
 * about the last plan. */
sw_status sw_search_open_in_slots(struct sw_search_look *l, const struct sw_policy *policy,
                                  struct sw_plan_refusal *refusal);
/* True if tiles of any size are possible. */
bool sw_search_may_tile(const struct sw_search_look *l, const struct sw_policy *policy);
/* Automatic tiles must not cost a second slot that the user asked for. */
bool sw_search_tiles_keep_slots(const struct sw_search_look *l, const struct sw_policy *policy);
/* Uses tiles if the device's memory is too small for whole parameters: the largest tiles that fit.
 * Some are tried no matter how large the model is. *refusal is about whole parameters, unless
 * planning in tiles failed for another cause than a budget. */
sw_status sw_search_open_in_tiles(struct sw_search_look *l, const struct sw_policy *policy,
                                  struct sw_plan_refusal *refusal);

/* ---- advice.c ---- */

/* Tries one policy; if it does not fit, finds what would help. */
sw_status sw_search_open_asked(struct sw_search_look *l, const struct sw_policy *policy);

/* ---- auto.c ---- */

/* The plan in l->plan updates on the device. This also tries one that updates on the host, and
 * keeps the faster of the two. On failure l->plan is NULL. */
sw_status sw_search_try_on_host(struct sw_search_look *l);
/* Chooses the micro-batch and the recomputation that are "auto". Sets l->plan and l->policy.
 * policy: the first to try; changed */
sw_status sw_search_choose(struct sw_search_look *l, struct sw_policy *policy);
