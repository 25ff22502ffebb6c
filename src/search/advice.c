// SPDX-License-Identifier: Apache-2.0
// A refusal says what would help: budgets that suffice, and the smallest change of the policy with
// which the plan fits.
#include <stdio.h>
#include <string.h>

#include "search/private.h"

/* A change that makes a plan smaller: techniques that the search may try, as bits of their numbers,
 * and how far from the device they may go. */
struct remedy {
    uint32_t techniques;
    int level; /* see struct sw_technique */
};
enum { LEVELS = SW_TIER_COUNT - 1 };

/* True if only host_memory is given and nothing is offloaded. It is then the one budget, and the
 * host is not a separate place. */
static bool is_one_memory(const struct sw_search_look *l, const struct sw_policy *p)
{
    return l->s->memory[SW_TIER_DEVICE] == 0 && p->budget[SW_TIER_DEVICE] > 0;
}

/* share of the host if one memory is split because something goes to disk: 1 / HOST_PART */
enum { HOST_PART = 4 };

/* Changes the policy by all techniques of a remedy, each at its farthest level. false = one of them
 * cannot change it, or none goes as far as the remedy says: another remedy covers the rest */
static bool change(const struct sw_search_look *l, const struct remedy *remedy, struct sw_policy *p)
{
    const struct sw_plan_options o = sw_search_options(l, p);
    const struct sw_facts facts = {.options = &o, .trains = sw_search_trains(l), .blocks = -1};
    bool reaches = false;
    for (int i = 0; i < sw_n_techniques; i++) {
        if (!(remedy->techniques & UINT32_C(1) << i)) {
            continue;
        }
        int level = remedy->level;
        while (level >= 0 && !sw_techniques[i]->cheaper(&facts, p, level)) {
            level--;
        }
        if (level < 0) {
            return false;
        }
        reaches |= level == remedy->level;
    }
    return reaches;
}

/* Applies a remedy to the policy. false = it changes nothing, or is not allowed */
static bool apply(const struct sw_search_look *l, const struct remedy *remedy, struct sw_policy *p)
{
    const struct sw_policy before = *p;
    const bool one_memory = is_one_memory(l, p);
    if (!change(l, remedy, p)) {
        return false;
    }
    const bool states = p->states_tier != before.states_tier;
    const bool params = p->params_tier != before.params_tier;
    if (one_memory && ((states && p->states_tier == SW_TIER_HOST) ||
                       (params && p->params_tier == SW_TIER_HOST))) {
        return false;
    }
    const int stage = sw_policy_stage(p);
    p->stage = p->stage < stage ? stage : p->stage;
    if ((l->s->fixed.reduces & SW_REDUCES_SUMS) && p->stage >= 2) {
        return false;
    }
    sw_search_choose_tiers(l, p);
    if (one_memory && (states || params)) { /* the split is part of the remedy, see describe */
        const size_t all = before.budget[SW_TIER_DEVICE];
        p->budget[SW_TIER_HOST] = all / HOST_PART;
        p->budget[SW_TIER_DEVICE] = all - all / HOST_PART;
    }
    return !sw_search_wants_other_slots(l, p);
}

/* True if the remedy cannot save enough. Any technique may free transients. */
static bool is_hopeless(const struct remedy *remedy, const struct sw_plan_refusal *refusal)
{
    size_t most = refusal->transients;
    for (int i = 0; i < sw_n_techniques; i++) {
        most += remedy->techniques & UINT32_C(1) << i ? sw_techniques[i]->spares(refusal) : 0;
    }
    return refusal->tier == SW_TIER_DEVICE && refusal->missing > most;
}

/* Appends "; it fits with KEY VALUE, KEY VALUE and KEY VALUE, in tiles". */
static void describe(const struct sw_search_look *l, const struct sw_policy *policy,
                     const struct remedy *remedy, bool tiles, struct sw_str *out)
{
    struct sw_policy after = *policy;
    struct sw_str items = {0};
    apply(l, remedy, &after);
    for (int i = 0; i < sw_n_techniques; i++) {
        if (sw_techniques[i]->settings) {
            sw_techniques[i]->settings(policy, &after, &items);
        }
    }
    if (is_one_memory(l, policy) &&
        after.budget[SW_TIER_DEVICE] != policy->budget[SW_TIER_DEVICE]) {
        sw_str_printf(&items, "spillway.device_memory %zu\nspillway.host_memory %zu\n",
                      after.budget[SW_TIER_DEVICE], after.budget[SW_TIER_HOST]);
    }
    const char *text = sw_str_text(&items), *end = strchr(text, '\n');
    for (bool first = true; end; first = false) {
        const char *next = strchr(end + 1, '\n');
        sw_str_printf(out, "%s%.*s",
                      first  ? "; it fits with "
                      : next ? ", "
                             : " and ",
                      (int)(end - text), text);
        text = end + 1;
        end = next;
    }
    sw_str_puts(out, tiles ? ", in tiles" : "");
    sw_str_fini(&items);
}

/* True if the plan fits with the remedy, possibly in tiles, which a run would find as well. Only
 * plans that reach scheduling are counted; refusals by the host or the disk come earlier. */
static bool fits_with(struct sw_search_look *l, const struct sw_policy *policy,
                      const struct remedy *remedy, bool *tiles, int *n_plans)
{
    enum { PART = 8 };
    struct sw_policy p = *policy;
    struct sw_plan_refusal refusal;
    *tiles = false;
    if (!apply(l, remedy, &p)) {
        return false;
    }
    sw_status st = sw_search_open_in_slots(l, &p, &refusal);
    *n_plans += st != SW_E_NOMEM || refusal.transients > 0;
    if (st == SW_E_NOMEM && p.tile_bytes == 0 && refusal.tier == SW_TIER_DEVICE &&
        !refusal.whatever_the_tiles && sw_search_may_tile(l, &p) &&
        p.budget[SW_TIER_DEVICE] / PART >= LEAST_TILE && sw_search_tiles_keep_slots(l, &p)) {
        p.tile_bytes = p.budget[SW_TIER_DEVICE] / PART;
        *tiles = true;
        *n_plans += 1;
        st = sw_search_open_in_slots(l, &p, &refusal);
    }
    if (st >= 0) {
        sw_search_drop_plan(l);
    }
    return st >= 0;
}

enum { MESSAGE = 2048 };

/* The budget that the bytes of a tier count against. */
static enum sw_tier budget_of(const struct sw_search_look *l, const struct sw_policy *p,
                              enum sw_tier tier)
{
    return tier == SW_TIER_DEVICE && is_one_memory(l, p) ? SW_TIER_HOST : tier;
}

/* After a refusal: finds budgets that suffice. It plans again, each time with what the last try
 * lacked. false = another cause prevents the plan */
static bool find_enough(const struct sw_search_look *look, const struct sw_policy *policy,
                        size_t out[SW_TIER_COUNT])
{
    enum { MOST_TRIES = 32 };
    struct sw_search s = *look->s;
    struct sw_search_look l = *look;
    sw_status st = SW_E_NOMEM;
    l.s = &s;
    for (int i = 0; i < MOST_TRIES && sw_search_is_refused(st, &l.said); i++) {
        struct sw_policy p = *policy;
        struct sw_plan_refusal refusal;
        s.memory[budget_of(&l, policy, l.said.tier)] = l.said.needed;
        sw_search_choose_tiers(&l, &p);
        st = sw_search_open_in_tiles(&l, &p, &refusal);
        memcpy(out, p.budget, sizeof p.budget);
    }
    sw_search_drop_plan(&l);
    return st >= 0;
}

/* Adds to the message of the last try the budgets that suffice, if they exceed what it took. */
static sw_status refuse_again(struct sw_search_look *l, const struct sw_policy *policy,
                              sw_status st)
{
    const struct sw_plan_refusal said = l->said;
    const struct sw_policy last = l->policy;
    struct sw_plan_refusal again = {.missing = 0};
    bool more = false;
    char *message = sw_alloc("plan", MESSAGE);
    if (!message) {
        return st;
    }
    snprintf(message, MESSAGE, "%s", sw_error_message());
    if (find_enough(l, policy, l->enough)) {
        for (int t = 0; t < SW_TIER_COUNT; t++) {
            more |= l->enough[t] > (t == (int)said.tier ? said.needed : last.budget[t]);
        }
    }
    st = more ? sw_search_open_plan(l, &last, &again) : SW_FAIL(st, "%s", message);
    sw_free(message);
    memset(l->enough, 0, sizeof l->enough);
    return st;
}

/* Goes to the next remedy. These are all subsets of the techniques that have `cheaper`, then the
 * same subsets one level farther from the device. The subset counts up as a binary number of their
 * bits. Each further level begins with the empty subset, which the caller skips. false = there is
 * none */
static bool next_remedy(struct remedy *remedy)
{
    uint32_t all = 0;
    for (int i = 0; i < sw_n_techniques; i++) {
        all |= sw_techniques[i]->cheaper ? UINT32_C(1) << i : 0;
    }
    remedy->techniques = (remedy->techniques - all) & all; /* the next subset */
    remedy->level += remedy->techniques == 0;
    return remedy->level < LEVELS;
}

/* After a refusal: adds to the message the smallest change with which it fits. The number of tries
 * depends only on the plan, so the same refusal always gives the same advice. */
static sw_status name_remedy(struct sw_search_look *l, const struct sw_policy *policy,
                             const struct sw_plan_refusal *refusal, sw_status st)
{
    /* instructions that may be planned for advice; takes a fraction of a second */
    enum { MOST_INSTRS_OF_ADVICE = 12000 };
    char *message = sw_alloc("plan", MESSAGE);
    if (!message) {
        return st;
    }
    snprintf(message, MESSAGE, "%s", sw_error_message());
    struct sw_str text = {0};
    int n_plans = 0;
    for (struct remedy remedy = {0}; next_remedy(&remedy) && text.len == 0;) {
        bool tiles;
        if (n_plans * refusal->n_instrs <= MOST_INSTRS_OF_ADVICE && remedy.techniques != 0 &&
            !is_hopeless(&remedy, refusal) && fits_with(l, policy, &remedy, &tiles, &n_plans)) {
            describe(l, policy, &remedy, tiles, &text);
        }
    }
    st = SW_FAIL(SW_E_NOMEM, "%s%s", message, sw_str_text(&text));
    sw_str_fini(&text);
    sw_free(message);
    return st;
}

sw_status sw_search_open_asked(struct sw_search_look *l, const struct sw_policy *policy)
{
    struct sw_plan_refusal refusal = {.missing = 0};
    sw_status st = sw_search_open_in_tiles(l, policy, &refusal);
    if (!sw_search_is_refused(st, &refusal)) {
        return st;
    }
    if (l->s->refusal) {
        *l->s->refusal = l->said;
        return st;
    }
    st = refuse_again(l, policy, st);
    return name_remedy(l, policy, &refusal, st);
}
