// SPDX-License-Identifier: Apache-2.0
// Updates within the next forward. Clipping needs the norm of all gradients, so a parameter on disk
// cannot be updated in the backward that has it on the device. The next forward loads it anyway:
// there it is updated before its first reader, and its states travel during computation. This moves
// as many bytes as an update in backward.
//
// The step leaves the gradients in states. In the list, the update precedes the forward and reads
// those states; the backward of the same list makes those of its own step. Instructions of the
// update run in the first forward of a step only, and only if an update is due (`first_only`).
//
// Parameters, states and gradients have two slots. The update writes second slots, from which later
// loads of the step read; its writes may go on during backward. Backward stores gradients in other
// slots than those that the update reads. All of them become current at the end of the step. A step
// that fails before leaves everything as it was, and the update is still due. A parameter that
// stays on the device, or is not in the share that the configuration gives, is updated at the end
// of its own step. Its gradients have one slot.
#include "plan/private.h"
#include "plan/technique.h"

/* True if a parameter is in the share that the next forward updates. Tiles of one are alike. */
static bool is_in_share(const struct sw_ir *ir, const struct sw_plan_options *options,
                        struct sw_late_share *share, sw_value param)
{
    const sw_value whole = sw_ir_root(ir, param);
    const double wanted = options->policy.late_share;
    if (wanted <= 0 || wanted >= 1) {
        return true;
    }
    if (whole != share->latest) {
        const double elems = (double)ir->values[whole].form->elems;
        share->all += elems;
        share->latest = whole;
        share->is_in = share->in + elems / 2 <= wanted * share->all;
        share->in += share->is_in ? elems : 0;
    }
    return share->is_in;
}

int32_t sw_late_place(const struct sw_ir *ir, const struct sw_plan_options *options,
                      const struct sw_uses *known, struct sw_late_share *share, sw_value param)
{
    return !sw_updates_in_forward(options) || !is_in_share(ir, options, share, param) ? -1
           : sw_ir_is_part(ir, param) ? known->first_reader[param]
                                      : known->first_in_place[param];
}

/* Copies v to a state, or stores it there if gradients leave the device. */
static sw_value keep_as(struct sw_ir *ir, const struct sw_plan_options *options, sw_value param,
                        enum sw_state_kind kind, int use, sw_value v)
{
    if (ir->failure.status < 0) {
        return SW_NO_VALUE;
    }
    const struct sw_ir_value info = ir->values[v];
    const sw_value state = sw_ir_param_state(ir, param, kind, use, info.dtype, info.form->shape);
    const bool leaves = options->policy.grads_tier != SW_TIER_DEVICE;
    if (state < 0) {
        return state;
    }
    ir->values[state].param = param;
    if (leaves && (info.base >= 0 || !info.form->contiguous)) {
        v = sw_ir_add_out(ir, sw_ir_add_op(ir, SW_OP_CONTIGUOUS, &v, 1, NULL), info.dtype,
                          info.form->shape);
    }
    const sw_value in[2] = {state, v};
    sw_ir_add_out_in_place(ir,
                           leaves ? sw_ir_add_move(ir, SW_MOVE_STORE, in, 2)
                                  : sw_ir_add_op(ir, SW_OP_CONTIGUOUS, &v, 1, NULL),
                           state);
    return state;
}

sw_value sw_keep_gradient(struct sw_ir *ir, const struct sw_plan_options *options, sw_value param,
                          int use, const struct sw_ir_stream *stream)
{
    const sw_value index = ir->values[stream->grad].sparse_index;
    sw_ir_go_to_maker(ir, stream->grad, stream->micro);
    const sw_value kept = keep_as(ir, options, param, SW_STATE_SUM, use, stream->grad);
    if (index >= 0) {
        const sw_value rows = keep_as(ir, options, param, SW_STATE_SUM_INDEX, use, index);
        if (kept >= 0) {
            ir->values[kept].sparse_index = rows;
        }
    }
    ir->next = (struct sw_ir_next){.phase = SW_PHASE_UPDATE};
    return kept;
}

void sw_sum_alternates(struct sw_ir *ir, sw_value sum)
{
    if (sum >= 0) {
        ir->values[sum].two_slots = SW_SLOTS_LATE;
    }
}

/* ---- the technique ---- */

static bool refuses(const struct sw_facts *facts, struct sw_str *why)
{
    const char *reason;
    return facts->trains && facts->options->policy.clipped_update == SW_CLIPPED_NEXT_FORWARD &&
           !sw_may_update_late(facts->options, &reason) &&
           sw_refuse(why, "spillway.clipped_update: wanted \"end\", since %s, got \"next_forward\"",
                     reason);
}

static void advise(const struct sw_shortage *s, struct sw_str *out)
{
    if (s->plan->update.in_forward) {
        sw_advise(out, ", ", "a smaller spillway.next_forward_share");
        sw_advise(out, ", or ", "spillway.clipped_update \"end\"");
    }
}

/* True if some parameters off the device are updated at the end of the step. */
static bool is_shared_out(const struct sw_plan *plan)
{
    bool found = false;
    for (int32_t i = 0; i < plan->n_persistent && !found; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        found = item->role == SW_ROLE_PARAM && item->tier != SW_TIER_DEVICE &&
                item->slot_bytes > 0 && !item->is_late;
    }
    return found;
}

static void describe(const struct sw_plan *plan, const struct sw_program *program,
                     struct sw_str *out)
{
    if (!program && plan->update.in_forward) {
        sw_str_printf(out, "%sparameters off the device are updated within the next forward\n",
                      is_shared_out(plan) ? "some " : "");
    }
}

const struct sw_technique sw_technique_late_update = {
    .keys = "spillway.clipped_update spillway.next_forward_share",
    .refuses = refuses,
    .advise = advise,
    .describe = describe,
};
