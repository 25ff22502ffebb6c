// SPDX-License-Identifier: Apache-2.0
// The search for a plan. One try is a policy, with the slots and tiles that its budgets require.
// "auto" settings and the advice after a refusal each try a list of policies. The number of tries
// depends on the work of planning, never on a clock, so that all ranks agree.
#include "search/private.h"

void sw_policy_print(const struct sw_policy *p, struct sw_str *out)
{
    sw_str_printf(out, "micro-batch %lld x %lld, recompute %lld", (long long)p->micro_batch,
                  (long long)p->micro_batches, (long long)p->recompute.every);
    if (p->recompute.blocks > 0) {
        sw_str_printf(out, " of the first %lld blocks", (long long)p->recompute.blocks);
    }
    sw_str_printf(out, ", %s, stage %d, states on %s", sw_schedule_name(p->schedule), p->stage,
                  sw_tier_name(p->states_tier));
    if (p->states_tier != SW_TIER_DEVICE && p->states_share > 0 && p->states_share < 1) {
        sw_str_printf(out, " (a share of %g)", p->states_share);
    }
    sw_str_printf(out, "%s, parameters on %s, budgets", p->host_updates ? " updated there" : "",
                  sw_tier_name(p->params_tier));
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        sw_str_printf(out, " %zu", p->budget[t]);
    }
    sw_str_printf(out, ", tiles of %zu bytes, slots %d, ahead %zu bytes and %lld elements",
                  p->tile_bytes, p->two_slots ? 2 : 1, p->transfer_bytes,
                  (long long)p->prefetch_elems);
}

sw_status sw_search_open(const struct sw_search *s, struct sw_policy *out_policy,
                         struct sw_plan **out)
{
    struct sw_search_look l = {.s = s};
    struct sw_policy policy = s->asked;
    sw_search_choose_tiers(&l, &policy);
    policy.two_slots |= sw_search_wants_other_slots(&l, &policy); /* so that it is refused */
    if (s->any_micro_batch || s->any_recompute) {
        SW_TRY(sw_search_choose(&l, &policy));
    } else {
        SW_TRY(sw_search_borrow_graphs(&l, &policy));
        SW_TRY(sw_search_open_asked(&l, &policy));
    }
    if (s->any_update && s->fixed.host.query && policy.states_tier == SW_TIER_HOST) {
        SW_TRY(sw_search_try_on_host(&l));
    }
    *out_policy = l.policy;
    out_policy->transfer_bytes = l.plan->ahead.transfer_bytes;
    out_policy->prefetch_elems = l.plan->ahead.prefetch_elems;
    *out = l.plan;
    return SW_OK;
}
