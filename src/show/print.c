// SPDX-License-Identifier: Apache-2.0
// Prints the plan as text: what runs in which order, where its bytes are, and what it costs.
#include "show/private.h"

static void print_operand(const struct sw_program *program, sw_value v, struct sw_str *out)
{
    const char *name = sw_program_value(program, v).name;
    if (name) {
        sw_str_puts(out, name);
    } else {
        sw_str_printf(out, "@%zx", sw_program_address(program, v));
    }
}

static void print_instr(const struct sw_program *program, int32_t i, struct sw_str *out)
{
    const struct sw_instr *instr = &program->instrs[i];
    const struct sw_instr_op op = sw_instr_op(program, i);
    size_t bytes = 0;
    sw_str_printf(out, "%6d  %-8s %-8s %-18s ", i, sw_queue_name(instr->queue),
                  sw_segment_name(instr->segment), instr->about->name);
    for (int k = 0; k < op.math.n_out; k++) {
        if (op.math.out[k] >= 0) {
            sw_str_puts(out, k ? " " : "");
            print_operand(program, op.math.out[k], out);
            bytes += sw_program_value(program, op.math.out[k]).bytes;
        }
    }
    sw_str_puts(out, " <-");
    for (int k = 0; k < op.math.n_in; k++) {
        sw_str_putc(out, ' ');
        print_operand(program, op.math.in[k], out);
    }
    sw_str_printf(out, "  %zu B", bytes);
    if (instr->workspace >= 0 && !instr->turn.for_next) {
        sw_str_printf(out, " + %zu B workspace", program->buffers[instr->workspace].bytes);
    }
    const char *scope = instr->about->scope;
    sw_str_printf(out, "  %.3g MFLOP  [%s]%s%s%s", (double)instr->flops / 1e6,
                  instr->about->kernel.path ? instr->about->kernel.path : "", *scope ? " " : "",
                  scope, op.is_clone ? " (recomputed)" : "");
    if (instr->turn.loop > 0) {
        sw_str_printf(out, " x %d pieces", sw_instr_pieces(program, instr));
    }
    if (program->micro_batches > 1 && op.math.phase != SW_PHASE_UPDATE) {
        sw_str_printf(out, " (micro-batch %d)", op.micro);
    }
    sw_str_putc(out, '\n');
}

static void print_program(const struct sw_plan *plan, const struct sw_program *program,
                          bool instructions, struct sw_str *out)
{
    char text[2][32];
    sw_str_printf(out, "program %s: %d instructions, %.4g GFLOP",
                  sw_program_kind_name(program->kind), program->n_instrs,
                  (double)program->flops / 1e9);
    if (program->micro_batches > 1) {
        sw_str_printf(out, ", %d micro-batches, block by block", program->micro_batches);
    }
    sw_str_putc(out, '\n');
    for (int32_t i = 0; instructions && i < program->n_instrs; i++) {
        print_instr(program, i, out);
    }
    if (program->n_instrs > 0) {
        const struct sw_instr_about *about = program->instrs[program->peak.instr].about;
        sw_str_printf(
            out, "  transients: %s placed, %s alive at the peak, instruction %d (%s in %s)\n",
            sw_format_bytes(text[0], sizeof text[0], (double)program->peak.bytes[SW_TIER_DEVICE]),
            sw_format_bytes(text[1], sizeof text[1], (double)program->peak.live_bytes),
            program->peak.instr, about->name, about->where);
        if (program->peak.kept_bytes > 0) {
            sw_str_printf(
                out, "  weights that stay from one micro-batch to the next: %s\n",
                sw_format_bytes(text[0], sizeof text[0], (double)program->peak.kept_bytes));
        }
        sw_str_puts(out, "  largest at the peak: ");
        sw_plan_largest(program, 5, out);
        sw_str_putc(out, '\n');
    }
    sw_techniques_describe(plan, program, out);
}

static void print_tiers(const struct sw_plan *plan, struct sw_str *out)
{
    char text[2][32];
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        sw_str_printf(out, "%-7s peak %zu bytes (%s)", sw_tier_name((enum sw_tier)t),
                      plan->tier_bytes[t],
                      sw_format_bytes(text[0], sizeof text[0], (double)plan->tier_bytes[t]));
        if (plan->tier_budget[t] > 0) {
            sw_str_printf(out, " of a budget of %zu (%s)", plan->tier_budget[t],
                          sw_format_bytes(text[1], sizeof text[1], (double)plan->tier_budget[t]));
        }
        sw_str_putc(out, '\n');
    }
}

/* Prints one line per phase. */
static void print_step(const struct sw_step *step, struct sw_str *out)
{
    for (int32_t i = 0; i < step->n_phases; i++) {
        const struct sw_step_phase *phase = &step->phases[i];
        if (phase->action > SW_STEP_RECEIVE) {
            sw_str_printf(out, "%6d  %s\n", i, sw_step_action_name(phase->action));
            continue;
        }
        sw_str_printf(out, "%6d  %s %s", i,
                      phase->action == SW_STEP_RUN ? "run" : "begin the receives of",
                      sw_segment_name(phase->segment));
        if (phase->chunk > 0) {
            sw_str_printf(out, " of chunk %d", phase->chunk);
        }
        if (phase->segment < SW_SEGMENT_UPDATE) {
            sw_str_printf(out,
                          phase->n_micro == 0   ? " for other ranks in round %lld"
                          : phase->n_micro == 1 ? " of micro-batch %lld"
                                                : " of all micro-batches from %lld on",
                          (long long)phase->round);
        }
        sw_str_printf(out, "%s%s%s\n",
                      phase->runs_on  ? ", messages run on"
                      : phase->drains ? ", then a barrier"
                                      : "",
                      phase->joins ? ", the host waits" : "",
                      i < step->n_safe ? "" : "; a failure cannot be rolled back");
    }
}

/* Prints the bytes that a step moves to and from each tier that it uses. */
static void print_moved(const struct sw_plan *plan, struct sw_str *out)
{
    const struct sw_moved moved = sw_moved(plan);
    for (int t = SW_TIER_HOST; t < SW_TIER_COUNT && plan->step.n_phases > 0; t++) {
        if (moved.bytes.in[t] + moved.bytes.out[t] == 0) {
            continue;
        }
        sw_str_printf(out, "a step moves %lld bytes from the %s and %lld to it",
                      (long long)moved.bytes.in[t], sw_tier_name((enum sw_tier)t),
                      (long long)moved.bytes.out[t]);
        if (t == SW_TIER_DISK) {
            sw_str_printf(out, ": %.3g written per parameter, %.3g TB in 1000 steps",
                          moved.written_each, moved.tb_in_1000_steps);
        }
        sw_str_putc(out, '\n');
    }
}

void sw_plan_print(const struct sw_plan *plan, bool instructions, struct sw_str *out)
{
    char text[3][32];
    for (int p = 0; p < plan->n_programs; p++) {
        print_program(plan, &plan->programs[p], instructions, out);
    }
    if (instructions && plan->step.n_phases > 0) {
        sw_str_puts(out, "a step of this rank:\n");
        print_step(&plan->step, out);
    }
    const struct sw_role_bytes roles = sw_role_bytes(plan);
    sw_str_printf(out, "parameters %s, states %s, gradients of a step %s\n",
                  sw_format_bytes(text[0], sizeof text[0], (double)roles.params),
                  sw_format_bytes(text[1], sizeof text[1], (double)roles.states),
                  sw_format_bytes(text[2], sizeof text[2], (double)roles.gradients));
    sw_techniques_describe(plan, NULL, out);
    print_tiers(plan, out);
    sw_str_printf(out, "math fingerprint %016llx\n", (unsigned long long)plan->fingerprint);
    print_moved(plan, out);
}
