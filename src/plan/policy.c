// SPDX-License-Identifier: Apache-2.0
// Consequences of a policy that several passes must agree on.
#include "plan/private.h"

enum sw_tier sw_tier_of(enum sw_offload_device device)
{
    return device == SW_OFFLOAD_CPU    ? SW_TIER_HOST
           : device == SW_OFFLOAD_NVME ? SW_TIER_DISK
                                       : SW_TIER_DEVICE;
}

bool sw_has_one_round(const struct sw_plan_options *options)
{
    return sw_schedule_is_at_once(options->policy.schedule) ||
           options->policy.micro_batches <= sw_data_ranks(options);
}

int sw_program_micro_batches(const struct sw_plan_options *options)
{
    return sw_schedule_is_at_once(options->policy.schedule)
               ? (int)sw_ceil_div(options->policy.micro_batches, sw_data_ranks(options))
               : 1;
}

/* Work of the update within backward follows the exchange of losses. With several chunks, a stage
 * takes messages of another one after both have exchanged theirs, so they would wait for each
 * other. */
static bool may_reach_backward(const struct sw_plan_options *options)
{
    return options->rule && sw_stage_chunks(options) == 1;
}

/* True if an update in backward frees a gradient, and costs no time. With several rounds gradients
 * are in sums, so none is freed. Below stage 3 several ranks would gather updated parameters block
 * by block, not together. */
static bool frees_gradients(const struct sw_plan_options *options)
{
    return sw_has_one_round(options) && (sw_zero_ranks(options) == 1 || options->policy.stage == 3);
}

/* An overflow is known only with the last gradient. If it may skip the step, earlier updates must
 * be undone. */
bool sw_updates_in_backward(const struct sw_plan_options *options)
{
    return may_reach_backward(options) && options->clip == 0 &&
           (!options->fp16 || options->policy.two_slots) &&
           (options->policy.states_tier != SW_TIER_DEVICE ||
            options->policy.params_tier != SW_TIER_DEVICE || frees_gradients(options));
}

bool sw_may_update_late(const struct sw_plan_options *options, const char **why)
{
    const struct sw_policy *p = &options->policy;
    const struct sw_update_facts *facts =
        options->rule ? sw_update_facts(options->rule->attrs.kind) : NULL;
    const bool on_disk = p->states_tier == SW_TIER_DISK || p->params_tier == SW_TIER_DISK;
    const bool all_leave =
        p->states_tier != SW_TIER_DEVICE && (p->states_share <= 0 || p->states_share >= 1);
    const char *reason =
        !options->rule || options->clip <= 0 ? "without gradient_clipping, updates run in backward"
        : p->params_tier == SW_TIER_DEVICE   ? "parameters stay on the device"
        : !on_disk                           ? "nothing is offloaded to a disk"
        : !all_leave ? "optimizer states stay on the device (zero_optimization.offload_optimizer)"
        : facts->reach != SW_REACH_ELEMENT ? "the optimizer needs norms of whole parameters"
        : options->stage_blocks            ? "stages of a pipeline begin backward in between"
        : !p->two_slots ? "updates on the disk have one slot (spillway.disk_slots 2 gives two)"
                        : NULL;
    if (why) {
        *why = reason;
    }
    return !reason;
}

bool sw_updates_in_forward(const struct sw_plan_options *options)
{
    return options->policy.clipped_update == SW_CLIPPED_NEXT_FORWARD &&
           sw_may_update_late(options, NULL);
}

/* Gradients leave the device as soon as they are final, and their norms are taken then. */
bool sw_norms_in_backward(const struct sw_plan_options *options)
{
    return sw_updates_in_backward(options) ||
           (may_reach_backward(options) && options->policy.grads_tier != SW_TIER_DEVICE);
}

bool sw_sums_before_reducing(const struct sw_plan_options *options)
{
    return (options->reduces & SW_REDUCES_SUMS) && sw_zero_ranks(options) > 1 &&
           options->policy.micro_batches > sw_data_ranks(options);
}

/* Parameters that stay whole on each rank because of the threshold stay on the device, too. */
bool sw_param_leaves(const struct sw_ir *ir, const struct sw_plan_options *options, sw_value param)
{
    const struct sw_ir_value *info = &ir->values[param];
    return sw_ir_spread(ir, param).size > 1
               ? sw_ir_is_slice(info)
               : info->form->elems > options->limits.persistence_elems &&
                     !info->param_facts.is_viewed;
}
