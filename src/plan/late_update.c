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
// stays on the device is updated at the end of its own step.
#include "plan/private.h"
#include "plan/technique.h"

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
        sw_advise(out, ", or ", "spillway.clipped_update \"end\"");
    }
}

static void describe(const struct sw_plan *plan, const struct sw_program *program,
                     struct sw_str *out)
{
    if (!program && plan->update.in_forward) {
        sw_str_puts(out, "parameters off the device are updated within the next forward\n");
    }
}

const struct sw_technique sw_technique_late_update = {
    .keys = "spillway.clipped_update",
    .refuses = refuses,
    .advise = advise,
    .describe = describe,
};
