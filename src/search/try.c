// SPDX-License-Identifier: Apache-2.0
// A try: one policy, with the slots and tiles that its budgets require.
#include <math.h>
#include <string.h>

#include "search/private.h"

/* Elements of an offloaded tensor that are updated at a time, and bytes that travel ahead of their
 * use. Both take a disk a few milliseconds. */
enum { UPDATE_ELEMS = 1 << 21, LEAST_TRANSFER_BYTES = 1 << 26, MOST_TRANSFER_BYTES = 1 << 30 };

struct sw_plan_options sw_search_options(const struct sw_search_look *l,
                                         const struct sw_policy *policy)
{
    struct sw_plan_options o = l->s->fixed;
    o.policy = *policy;
    o.math = l->graphs.math;
    memcpy(o.enough, l->enough, sizeof o.enough);
    return o;
}

static bool may_take_two_slots(const struct sw_search_look *l, const struct sw_policy *policy)
{
    const struct sw_plan_options o = sw_search_options(l, policy);
    return sw_may_take_two_slots(&o);
}

/* Ignores the restrictions by tiles, which are known only with the plan. */
static bool may_take_two_slots_whole(const struct sw_search_look *l, const struct sw_policy *policy)
{
    struct sw_policy whole = *policy;
    whole.tile_bytes = 0;
    return may_take_two_slots(l, &whole);
}

/* Default to two slots if only the disk needs the extra room, or if every other tier that does has
 * a budget. */
static bool wants_two_slots(const struct sw_search_look *l, const struct sw_policy *p)
{
    const enum sw_tier states = p->states_tier, params = p->params_tier;
    if (l->s->slots == 1 || l->s->one_slot || !may_take_two_slots_whole(l, p)) {
        return false;
    }
    return l->s->slots == 2 || ((states == SW_TIER_DISK || p->budget[states] > 0) &&
                                (params == SW_TIER_DISK || p->budget[params] > 0));
}

void sw_search_choose_tiers(const struct sw_search_look *l, struct sw_policy *p)
{
    const struct sw_search *s = l->s;
    const bool offloads = p->states_tier != SW_TIER_DEVICE;
    const bool moves =
        offloads || p->params_tier != SW_TIER_DEVICE || p->activations_tier != SW_TIER_DEVICE;
    p->grads_tier = offloads ? SW_TIER_HOST : SW_TIER_DEVICE;
    p->update_elems = moves ? sw_min_i64(s->sub_group_elems, UPDATE_ELEMS) : 0;
    memcpy(p->budget, s->memory, sizeof p->budget);
    if (!moves && p->budget[SW_TIER_DEVICE] == 0) {
        /* nothing is in another tier, and on the CPU both are the same memory */
        p->budget[SW_TIER_DEVICE] = p->budget[SW_TIER_HOST];
    }
    p->two_slots = wants_two_slots(l, p);
    const size_t half = p->budget[SW_TIER_DEVICE] / 2;
    p->transfer_bytes = !moves                        ? 0
                        : s->transfer_bytes > 0       ? s->transfer_bytes
                        : half < LEAST_TRANSFER_BYTES ? LEAST_TRANSFER_BYTES
                        : half > MOST_TRANSFER_BYTES  ? MOST_TRANSFER_BYTES
                                                      : half;
}

bool sw_search_wants_other_slots(const struct sw_search_look *l, const struct sw_policy *p)
{
    const bool on_disk =
        l->s->fixed.rule && (p->states_tier == SW_TIER_DISK || p->params_tier == SW_TIER_DISK);
    return l->s->slots == 2 && on_disk && !may_take_two_slots_whole(l, p);
}

/* ---- a try ---- */

/* Number of micro-steps of a step: micro-batches per rank, rounded up. */
static int64_t rounds_of(const struct sw_search_look *l, const struct sw_policy *p)
{
    return sw_ceil_div(p->micro_batches, sw_data_ranks(&l->s->fixed));
}

bool sw_search_trains(const struct sw_search_look *l)
{
    return l->graphs.specs[0].kind == SW_PROGRAM_TRAIN;
}

int64_t sw_search_blocks(const struct sw_search_look *l)
{
    const struct sw_graph *g = l->graphs.specs[0].graph;
    int64_t n = 0;
    for (int32_t i = 0; sw_search_trains(l) && i < g->n_scopes; i++) {
        n += g->scopes[i].is_block;
    }
    return n;
}

/* True if one slot will not do. */
static bool has_to_have_two(const struct sw_search_look *l, const struct sw_policy *policy)
{
    return l->s->slots == 2 || policy->clipped_update == SW_CLIPPED_NEXT_FORWARD;
}

/* Fails with SW_E_CONFIG if a technique that the policy wants cannot be had. */
static sw_status refuse(const struct sw_search_look *l, const struct sw_policy *policy)
{
    struct sw_policy asked = *policy;
    asked.two_slots = policy->two_slots && has_to_have_two(l, policy); /* else one will do */
    const struct sw_plan_options o = sw_search_options(l, &asked);
    const struct sw_facts facts = {
        .options = &o, .trains = sw_search_trains(l), .blocks = sw_search_blocks(l)};
    struct sw_str why = {0};
    const sw_status st =
        sw_technique_refusal(&facts, &why) ? SW_FAIL(SW_E_CONFIG, "%s", sw_str_text(&why)) : SW_OK;
    sw_str_fini(&why);
    return st;
}

sw_status sw_search_borrow_graphs(struct sw_search_look *l, const struct sw_policy *policy)
{
    SW_TRY(l->s->graphs(l->s->ctx, policy, &l->graphs));
    return refuse(l, policy);
}

bool sw_search_is_refused(sw_status st, const struct sw_plan_refusal *refusal)
{
    return st == SW_E_NOMEM && refusal->missing > 0;
}

sw_status sw_search_open_plan(struct sw_search_look *l, const struct sw_policy *policy,
                              struct sw_plan_refusal *refusal)
{
    struct sw_plan_options o = sw_search_options(l, policy);
    o.refusal = refusal;
    l->policy = *policy;
    const sw_status st = sw_plan_open(l->graphs.specs, l->graphs.n_specs, &o, &l->plan);
    if (sw_search_is_refused(st, refusal)) {
        l->said = *refusal;
        /* transients shrink at most in proportion to the micro-batch, other memory does not
         * shrink */
        const double transients = (double)refusal->transients;
        const double left = transients - (double)refusal->missing;
        l->share = fmax(l->share, refusal->tier != SW_TIER_DEVICE ? 1
                                  : left > 0                      ? left / transients
                                                                  : 0);
    }
    return st;
}

void sw_search_drop_plan(struct sw_search_look *l)
{
    sw_plan_close(l->plan);
    l->plan = NULL;
}

/* True if second slots of tensors cached in host memory cost little. Without them the cache could
 * hold more, and save disk traffic of at least one read and one write per step. The saving must be
 * a small part of the plan's disk traffic. */
static bool is_cheap(const struct sw_search_look *l, const struct sw_policy *p)
{
    enum { SMALL_PART = 32 };
    const struct sw_plan *plan = l->plan;
    const struct sw_transfers moves = sw_plan_transfers(plan, rounds_of(l, p));
    size_t cache = 0;
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        const enum sw_tier meant = item->role == SW_ROLE_PARAM ? p->params_tier : p->states_tier;
        const bool cached = item->tier == SW_TIER_HOST && meant == SW_TIER_DISK;
        cache += cached && !sw_state_is_sum(item->state) ? item->slot_bytes : 0;
    }
    return 2 * (int64_t)cache <= (moves.in[SW_TIER_DISK] + moves.out[SW_TIER_DISK]) / SMALL_PART;
}

sw_status sw_search_open_in_slots(struct sw_search_look *l, const struct sw_policy *policy,
                                  struct sw_plan_refusal *refusal)
{
    struct sw_policy p = *policy;
    *refusal = (struct sw_plan_refusal){.beside = SIZE_MAX};
    if (p.two_slots && !may_take_two_slots(l, &p)) {
        if (has_to_have_two(l, &p)) {
            return refuse(l, &p);
        }
        p.two_slots = false;
    }
    const sw_status st = sw_search_open_plan(l, &p, refusal);
    const bool helps = sw_search_is_refused(st, refusal)
                           ? refusal->missing / 2 <= refusal->beside || refusal->whatever_the_tiles
                           : st >= 0 && p.two_slots && !is_cheap(l, &p);
    if (!p.two_slots || has_to_have_two(l, &p) || !helps) {
        return st;
    }
    sw_search_drop_plan(l);
    p.two_slots = false;
    return sw_search_open_plan(l, &p, refusal);
}

bool sw_search_may_tile(const struct sw_search_look *l, const struct sw_policy *policy)
{
    struct sw_policy tiled = *policy;
    tiled.tile_bytes = LEAST_TILE;
    const struct sw_plan_options o = sw_search_options(l, &tiled);
    return sw_technique_allows(&sw_technique_tile, &o);
}

bool sw_search_tiles_keep_slots(const struct sw_search_look *l, const struct sw_policy *policy)
{
    struct sw_policy tiled = *policy;
    tiled.tile_bytes = LEAST_TILE;
    return l->s->slots != 2 || !policy->two_slots || may_take_two_slots(l, &tiled);
}

sw_status sw_search_open_in_tiles(struct sw_search_look *l, const struct sw_policy *policy,
                                  struct sw_plan_refusal *refusal)
{
    enum { LEAST_TRIES = 4 };
    struct sw_policy p = *policy;
    const bool asked = p.tile_bytes > 0;
    sw_status st = sw_search_open_in_slots(l, &p, refusal);
    struct sw_plan_refusal last = *refusal;
    int64_t planned = refusal->n_instrs;
    p.tile_bytes = l->s->memory[SW_TIER_DEVICE];
    const bool helps = sw_search_is_refused(st, refusal) && !asked &&
                       refusal->tier == SW_TIER_DEVICE && !refusal->whatever_the_tiles &&
                       sw_search_may_tile(l, &p) && sw_search_tiles_keep_slots(l, &p);
    for (int i = 0; sw_search_is_refused(st, &last) && helps; i++) {
        p.tile_bytes /= 2;
        if (p.tile_bytes < LEAST_TILE || (i >= LEAST_TRIES && planned > MOST_INSTRS)) {
            break;
        }
        st = sw_search_open_in_slots(l, &p, &last);
        planned += last.n_instrs;
    }
    if (st < 0 && !sw_search_is_refused(st, &last)) {
        *refusal = last; /* the cause is not a budget */
    }
    return st;
}
