// SPDX-License-Identifier: Apache-2.0
// Budgets of the tiers. A refusal names the missing bytes, the largest values, and what would help.
#include "plan/private.h"
#include "plan/technique.h"

#include <stdio.h>
#include <string.h>

/* Appends the size of a buffer and what it holds, in the words of a refusal. */
static void describe_buffer(const struct sw_program *program, const struct sw_buffer *buffer,
                            struct sw_str *out)
{
    const struct sw_ir *ir = program->ir;
    char bytes[32], shape[96];
    sw_format_bytes(bytes, sizeof bytes, (double)buffer->bytes);
    if (buffer->value < 0) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[buffer->first].op];
        sw_str_printf(out, "%s workspace of %s in %s", bytes, sw_ir_op_name(op),
                      sw_ir_where(ir, op));
        return;
    }
    const struct sw_ir_value *info = &ir->values[buffer->value];
    const char *role = info->role == SW_ROLE_GRAD ? " gradient" : "";
    sw_shape_format(&info->form->shape, shape, sizeof shape);
    if (info->name) {
        sw_str_printf(out, "%s %s", bytes, info->name);
    } else if (info->producer >= 0) {
        const struct sw_ir_op *op = &ir->ops[info->producer];
        sw_str_printf(out, "%s %s%s%s of %s in %s", bytes, sw_dtype_name(info->dtype), shape, role,
                      sw_ir_op_name(op), sw_ir_where(ir, op));
    } else { /* a partial sum, or an offloaded value */
        const char *of = info->param >= 0 ? ir->values[info->param].name : NULL;
        sw_str_printf(out, "%s %s%s%s%s%s", bytes, sw_dtype_name(info->dtype), shape, role,
                      of ? " of " : "", of ? of : "");
    }
}

/* The next largest device buffer, after `last`, that is in use at the peak; -1 = none. */
static int32_t next_largest(const struct sw_program *program, int32_t last)
{
    const size_t below = last < 0 ? SIZE_MAX : program->buffers[last].bytes;
    int32_t best = -1;
    for (int32_t i = 0; i < program->n_buffers; i++) {
        const struct sw_buffer *buffer = &program->buffers[i];
        const bool live = buffer->persistent || (buffer->first <= program->peak.instr &&
                                                 program->peak.instr <= buffer->last);
        const bool after = buffer->bytes < below || (buffer->bytes == below && i > last);
        if (buffer->tier == SW_TIER_DEVICE && live && after &&
            (best < 0 || buffer->bytes > program->buffers[best].bytes)) {
            best = i;
        }
    }
    return best;
}

bool sw_plan_largest_is_workspace(const struct sw_program *program)
{
    const int32_t largest = next_largest(program, -1);
    return largest >= 0 && program->buffers[largest].value < 0;
}

void sw_plan_largest(const struct sw_program *program, int most, struct sw_str *out)
{
    int32_t last = -1;
    for (int n = 0; n < most; n++) {
        last = next_largest(program, last);
        if (last < 0) {
            return;
        }
        sw_str_puts(out, n ? ", " : "");
        describe_buffer(program, &program->buffers[last], out);
    }
}

const struct sw_program *sw_plan_largest_program(const struct sw_plan *plan, enum sw_tier tier)
{
    const struct sw_program *largest = &plan->programs[0];
    for (int i = 1; i < plan->n_programs; i++) {
        if (plan->programs[i].peak.bytes[tier] > largest->peak.bytes[tier]) {
            largest = &plan->programs[i];
        }
    }
    return largest;
}

/* Prints the `most` largest values that are permanently in a tier, or wait there in program
 * `waiting`. */
static void largest_in(const struct sw_plan *plan, const struct sw_program *waiting,
                       enum sw_tier tier, int most, struct sw_str *out)
{
    const int32_t n_items = plan->n_persistent, n = n_items + waiting->n_buffers;
    size_t below = SIZE_MAX;
    int32_t last = -1;
    for (int k = 0; k < most; k++) {
        size_t best_bytes = 0;
        int32_t best = -1;
        for (int32_t i = 0; i < n; i++) {
            const struct sw_persistent *item = i < n_items ? &plan->persistent[i] : NULL;
            const struct sw_buffer *buffer = item ? NULL : &waiting->buffers[i - n_items];
            const size_t bytes = item ? item->bytes : buffer->bytes;
            if (item ? item->tier != tier : buffer->tier != tier || buffer->persistent) {
                continue;
            }
            if ((bytes < below || (bytes == below && i > last)) && bytes > best_bytes) {
                best = i;
                best_bytes = bytes;
            }
        }
        if (best < 0) {
            return;
        }
        sw_str_puts(out, k ? ", " : "");
        if (best < n_items) {
            char text[32];
            sw_str_printf(out, "%s %s", sw_format_bytes(text, sizeof text, (double)best_bytes),
                          plan->persistent[best].name);
        } else {
            describe_buffer(waiting, &waiting->buffers[best - n_items], out);
        }
        below = best_bytes;
        last = best;
    }
}

/* Bytes of a buffer if its parameter used the smallest tiles; 0 = tiles do not change it. */
static size_t bytes_in_tiles(const struct sw_program *program, int32_t b)
{
    const struct sw_buffer *buffer = &program->buffers[b];
    const struct sw_ir_value *info = buffer->value < 0 ? NULL : &program->ir->values[buffer->value];
    const bool known = info && info->param >= 0 && info->param < program->draft.n_least;
    const int64_t least = known ? program->draft.least_tiles[info->param] : 0;
    const size_t bytes = least > 0 ? (size_t)least * sw_dtype_bytes(info->dtype) : 0;
    return buffer->persistent || buffer->tier != SW_TIER_DEVICE ? 0
           : bytes < buffer->bytes                              ? bytes
                                                                : buffer->bytes;
}

/* Bytes of the operands of an instruction that tiles change. Such a tile is on the device for one
 * op only. */
static size_t operands_in_tiles(const struct sw_program *program, int32_t i)
{
    const struct sw_ir_op *op = &program->ir->ops[program->instrs[i].op];
    int32_t seen[SW_MAX_INPUTS + SW_MAX_OUTPUTS];
    size_t sum = 0;
    int n = 0;
    for (int k = 0; k < op->n_in + op->n_out; k++) {
        const sw_value v = k < op->n_in ? op->in[k] : op->out[k - op->n_in];
        const int32_t b = v < 0 ? -1 : program->buffer_of[sw_ir_root(program->ir, v)];
        bool known = b < 0;
        for (int j = 0; j < n && !known; j++) {
            known = seen[j] == b;
        }
        if (!known) {
            seen[n++] = b;
            sum += bytes_in_tiles(program, b);
        }
    }
    return sum;
}

/* True if the first program exceeds the budget with tiles of any size, because of an op and what is
 * live beside it. */
static bool exceeds_in_tiles(const struct sw_plan *plan, size_t budget)
{
    const struct sw_program *program = &plan->programs[0];
    const size_t n = (size_t)program->n_instrs + 2;
    int64_t *change = program->draft.least_tiles ? sw_alloc_zero("plan", n, sizeof *change) : NULL;
    int64_t live = (int64_t)plan->persistent_bytes[SW_TIER_DEVICE];
    bool exceeds = false;
    for (int32_t b = 0; change && b < program->n_buffers; b++) {
        const struct sw_buffer *buffer = &program->buffers[b];
        if (!buffer->persistent && buffer->tier == SW_TIER_DEVICE &&
            bytes_in_tiles(program, b) == 0) {
            change[buffer->first] += (int64_t)buffer->bytes;
            change[buffer->last + 1] -= (int64_t)buffer->bytes;
        }
    }
    for (int32_t i = 0; change && i < program->n_instrs; i++) {
        live += change[i];
        exceeds = exceeds || live + (int64_t)operands_in_tiles(program, i) > (int64_t)budget;
    }
    sw_free(change);
    return exceeds;
}

/* Bytes needed in a tier. A plan with exactly that budget may need more, since a larger budget is a
 * larger cache, and gives other tiles. */
static size_t needed_in(const struct sw_plan *plan, const struct sw_plan_options *options,
                        enum sw_tier tier)
{
    const size_t enough = options->enough[tier];
    return plan->tier_bytes[tier] > enough ? plan->tier_bytes[tier] : enough;
}

/* Prints the tiers that exceed their budgets once this one has what it needs. */
static void print_needs_beside(const struct sw_plan *plan, const struct sw_plan_options *options,
                               enum sw_tier tier, struct sw_str *out)
{
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        const size_t have = plan->tier_budget[t], need = options->enough[t];
        if (t != (int)tier && have > 0 && need > have) {
            char text[2][32];
            sw_str_printf(out, "; then %s memory needs %zu bytes (%s) and the budget is %zu (%s)",
                          sw_tier_name((enum sw_tier)t), need,
                          sw_format_bytes(text[0], sizeof text[0], (double)need), have,
                          sw_format_bytes(text[1], sizeof text[1], (double)have));
        }
    }
}

/* Lists what would help, by all techniques. */
static void advise(const struct sw_shortage *shortage, struct sw_str *out)
{
    for (int i = 0; i < sw_n_techniques; i++) {
        if (sw_techniques[i]->advise) {
            sw_techniques[i]->advise(shortage, out);
        }
    }
}

/* Refuses a plan that exceeds the budget of host memory or of the disk. */
static sw_status over_outer_budget(const struct sw_shortage *shortage)
{
    const struct sw_plan *plan = shortage->plan;
    const struct sw_plan_options *options = shortage->options;
    const enum sw_tier tier = shortage->tier;
    const size_t need = needed_in(plan, options, tier), have = plan->tier_budget[tier];
    char text[3][32];
    struct sw_str largest = {0}, helps = {0}, beside = {0};
    print_needs_beside(plan, options, tier, &beside);
    largest_in(plan, shortage->program, tier, 4, &largest);
    advise(shortage, &helps);
    const sw_status st = SW_FAIL(
        SW_E_NOMEM,
        "does not fit: %s memory needs %zu bytes (%s) for what is offloaded and the budget is %zu "
        "(%s): %zu bytes (%s) are missing%s; largest: %s; what would help: %s",
        sw_tier_name(tier), need, sw_format_bytes(text[0], sizeof text[0], (double)need), have,
        sw_format_bytes(text[1], sizeof text[1], (double)have), need - have,
        sw_format_bytes(text[2], sizeof text[2], (double)(need - have)), sw_str_text(&beside),
        sw_str_text(&largest), sw_str_text(&helps));
    sw_str_fini(&beside);
    sw_str_fini(&largest);
    sw_str_fini(&helps);
    return st;
}

/* Refuses a plan that exceeds the budget of a tier. */
static sw_status over_budget(const struct sw_shortage *shortage)
{
    const struct sw_plan *plan = shortage->plan;
    const struct sw_plan_options *options = shortage->options;
    const enum sw_tier tier = shortage->tier;
    if (tier != SW_TIER_DEVICE) {
        return over_outer_budget(shortage);
    }
    const struct sw_program *program = shortage->program;
    const size_t needed = needed_in(plan, options, tier), budget = plan->tier_budget[tier];
    char need[32], have[32], missing[32], fixed[32], live[32];
    struct sw_str largest = {0}, helps = {0}, beside = {0};
    const struct sw_ir_op *op = sw_program_peak(program);
    sw_plan_largest(program, 4, &largest);
    print_needs_beside(plan, options, tier, &beside);
    advise(shortage, &helps);
    sw_format_bytes(need, sizeof need, (double)needed);
    sw_format_bytes(have, sizeof have, (double)budget);
    sw_format_bytes(missing, sizeof missing, (double)(needed - budget));
    sw_format_bytes(fixed, sizeof fixed, (double)plan->persistent_bytes[SW_TIER_DEVICE]);
    sw_format_bytes(live, sizeof live, (double)program->peak.bytes[SW_TIER_DEVICE]);
    const sw_status st =
        SW_FAIL(SW_E_NOMEM,
                "does not fit: %s memory needs %zu bytes (%s) and the budget is %zu (%s): %zu "
                "bytes (%s) are "
                "missing%s; parameters and states hold %s, transients %s at instruction %d (%s in "
                "%s); largest: %s; what would help: %s%s",
                sw_tier_name(tier), needed, need, budget, have, needed - budget, missing,
                sw_str_text(&beside), fixed, live, program->peak.instr, sw_ir_op_name(op),
                sw_ir_where(program->ir, op), sw_str_text(&largest), sw_str_text(&helps),
                plan->persistent_bytes[SW_TIER_DEVICE] > budget &&
                        (options->policy.states_tier != SW_TIER_DEVICE || !options->rule)
                    ? " (not enough alone: parameters and states by themselves exceed the budget)"
                    : "");
    sw_str_fini(&beside);
    sw_str_fini(&largest);
    sw_str_fini(&helps);
    return st;
}

/* Bytes of the copies of tensors on the device, which exist until the step is settled. */
static size_t copies(const struct sw_plan *plan)
{
    const struct sw_ir *ir = plan->programs[0].ir;
    size_t sum = 0;
    for (int32_t i = 0; i < ir->n_ops; i++) {
        if (ir->ops[i].commits) {
            sum += sw_round_up(sw_ir_bytes(&ir->values[ir->ops[i].in[0]]), SW_PLAN_DISK_ALIGN);
        }
    }
    return sum;
}

/* Adds up what the device holds, by the techniques that could free it, and the instructions of all
 * programs. The sums in `out` are 0 before. */
static void describe_device(const struct sw_plan *plan, struct sw_plan_refusal *out)
{
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        if (item->tier == SW_TIER_DEVICE) {
            *(item->role == SW_ROLE_PARAM ? &out->params : &out->states) +=
                sw_persistent_taken(item);
        }
    }
    for (int i = 0; i < plan->n_programs; i++) {
        out->n_instrs += plan->programs[i].ir->n_ops;
    }
    out->transients = plan->tier_bytes[SW_TIER_DEVICE] - plan->persistent_bytes[SW_TIER_DEVICE];
}

sw_status sw_plan_refuse(const struct sw_plan *plan, const struct sw_plan_options *options,
                         enum sw_tier tier)
{
    const bool later =
        options->fp16 && options->clip == 0; /* with one slot, other gradients wait */
    const struct sw_shortage shortage = {
        .plan = plan,
        .options = options,
        .tier = tier,
        .program = sw_plan_largest_program(plan, tier),
        .whatever_the_tiles =
            tier == SW_TIER_DEVICE && exceeds_in_tiles(plan, plan->tier_budget[tier]),
    };
    if (options->refusal) {
        *options->refusal = (struct sw_plan_refusal){
            .tier = tier,
            .missing = plan->tier_bytes[tier] - plan->tier_budget[tier],
            .needed = plan->tier_bytes[tier],
            .beside = later                    ? SIZE_MAX
                      : tier == SW_TIER_DEVICE ? copies(plan)
                                               : sw_plan_second_places(plan, tier),
            .whatever_the_tiles = shortage.whatever_the_tiles,
        };
        describe_device(plan, options->refusal);
    }
    return over_budget(&shortage);
}

sw_status sw_plan_check_outer_budgets(struct sw_plan *plan, const struct sw_plan_options *options)
{
    if (options->policy.budget[SW_TIER_HOST] == 0 && options->policy.budget[SW_TIER_DISK] == 0) {
        return SW_OK;
    }
    for (int t = SW_TIER_HOST; t < SW_TIER_COUNT; t++) {
        if (options->policy.budget[t] > 0 && plan->tier_bytes[t] > options->policy.budget[t]) {
            return sw_plan_refuse(plan, options, (enum sw_tier)t);
        }
    }
    return SW_OK;
}
