// SPDX-License-Identifier: Apache-2.0
// Two slots: an update writes to a second slot, which becomes current once all of it is written. A
// step that fails before that has changed nothing.
#include "plan/private.h"
#include "plan/technique.h"

bool sw_may_take_two_slots(const struct sw_plan_options *options)
{
    struct sw_plan_options two = *options;
    two.policy.two_slots = true;
    return sw_technique_allows(&sw_technique_two_slots, &two);
}

size_t sw_plan_second_places(const struct sw_plan *plan, enum sw_tier tier)
{
    size_t sum = 0;
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        sum += item->tier == tier && item->packed_bytes == 0 ? item->slot_bytes : 0;
    }
    for (int32_t i = 0; i < plan->n_packs && tier == SW_TIER_DISK; i++) {
        sum += plan->packs[i].slot_bytes;
    }
    return sum;
}

/* All that an update writes must go to a second slot, or be kept until the step is settled. LAMB in
 * tiles reads what it has written. */
static bool refuses(const struct sw_facts *facts, struct sw_str *why)
{
    const struct sw_plan_options *o = facts->options;
    const struct sw_policy *p = &o->policy;
    if (!p->two_slots) {
        return false;
    }
    const bool all_leave = o->rule && p->states_tier != SW_TIER_DEVICE &&
                           (p->states_tier == SW_TIER_DISK || p->params_tier == SW_TIER_DISK) &&
                           (p->states_share <= 0 || p->states_share >= 1);
    if (!all_leave) {
        return sw_refuse(why, "spillway.disk_slots: 2 slots need all optimizer states off the "
                              "device; set zero_optimization.offload_optimizer.ratio to 1");
    }
    return p->tile_bytes > 0 && sw_update_facts(o->rule->attrs.kind)->reach == SW_REACH_NORMS &&
           sw_refuse(why,
                     "spillway.disk_slots: LAMB with tiles (%zu bytes) supports 1 slot only, "
                     "because it reads what it has written",
                     p->tile_bytes);
}

static sw_status run(struct sw_plan *plan, const struct sw_plan_options *options)
{
    plan->update.two_slots = options->policy.two_slots;
    return SW_OK;
}

static void advise(const struct sw_shortage *s, struct sw_str *out)
{
    if (s->tier == SW_TIER_DISK && s->plan->update.two_slots) {
        sw_advise(out, ", or ", "spillway.disk_slots 1");
    }
}

static void describe(const struct sw_plan *plan, const struct sw_program *program,
                     struct sw_str *out)
{
    const struct sw_program *first = &plan->programs[0];
    if (program || first->segment_first[SW_SEGMENT_UPDATE] == first->n_instrs ||
        plan->tier_bytes[SW_TIER_DISK] == 0) {
        return;
    }
    if (plan->update.two_slots) {
        char bytes[32];
        sw_format_bytes(bytes, sizeof bytes, (double)sw_plan_second_places(plan, SW_TIER_DISK));
        sw_str_printf(out,
                      "updates write to second slots, %s more on the disk: a failed step "
                      "changes nothing\n",
                      bytes);
    } else {
        sw_str_puts(out, "updates write in place: after a failed step, training continues from "
                         "a checkpoint (spillway.disk_slots)\n");
    }
}

const struct sw_technique sw_technique_two_slots = {
    .keys = "spillway.disk_slots",
    .refuses = refuses,
    .run = run,
    .advise = advise,
    .describe = describe,
};
