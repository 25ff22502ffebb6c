// SPDX-License-Identifier: Apache-2.0
// The optimizer step of this rank, as a list of phases. These are forward and backward for each of
// its micro-batches (once for all of them if vertical), and rounds in which only other ranks have a
// micro-batch. The update follows, with the point from which it counts.
#include "plan/private.h"

int sw_step_active(const struct sw_step *step, int64_t round)
{
    const int64_t left = step->micro_batches - round * step->ranks;
    return (int)(left < 0 ? 0 : sw_min_i64(left, step->ranks));
}

struct draft {
    struct sw_step *step;
    int program;
};

/* The caller has counted the phases: see MOST_OF_ROUND and MOST_OF_UPDATE. */
static void add(const struct draft *d, const struct sw_step_phase *phase)
{
    d->step->phases[d->step->n_phases++] = *phase;
}

static void add_action(const struct draft *d, enum sw_step_action action)
{
    add(d, &(struct sw_step_phase){.action = action, .program = d->program});
}

/* True if transfers may be in flight between the last backward and the update. Exception: if
 * updates have one slot on disk, failures before the first update must be known before it. */
static bool flows_into_update(const struct sw_plan *plan)
{
    return plan->update.two_slots || plan->update.in_backward ||
           plan->tier_bytes[SW_TIER_DISK] == 0;
}

/* Adds forward and backward of n micro-batches from `round` on; n = 0: those of other ranks.
 * is_last: the update is next. */
static void add_round(const struct draft *d, const struct sw_plan *plan, int64_t round, int n,
                      bool is_last)
{
    /* earlier failures must be known before an update in place, from LOSSES or from this phase */
    const bool joins = is_last && plan->update.norms_in_backward && !flows_into_update(plan);

    struct sw_step_phase phase = {.action = SW_STEP_RUN,
                                  .program = d->program,
                                  .segment = SW_SEGMENT_FORWARD,
                                  .round = round,
                                  .n_micro = n,
                                  .is_last = is_last};
    add(d, &phase);
    if (is_last && plan->update.norms_in_backward) {
        add_action(d, SW_STEP_LOSSES);
    }
    phase.segment = SW_SEGMENT_BACKWARD;
    phase.drains = !is_last || !flows_into_update(plan);
    phase.joins = joins;
    add(d, &phase);
}

/* Adds the update and what surrounds it. Sets n_safe: the phases before the commit if there are two
 * slots; else those before the update, unless it runs in backward. */
static void add_update(const struct draft *d, const struct sw_plan *plan)
{
    const struct sw_program *program = &plan->programs[d->program];
    const struct sw_step_phase update = {.action = SW_STEP_RUN,
                                         .program = d->program,
                                         .segment = SW_SEGMENT_UPDATE,
                                         .is_last = true,
                                         .drains = true,
                                         .joins = true};
    if (!plan->update.norms_in_backward) {
        add_action(d, SW_STEP_LOSSES);
    }
    const bool in_place = !plan->update.two_slots;
    if (in_place && !plan->update.in_backward) {
        d->step->n_safe = d->step->n_phases;
    }
    add(d, &update);
    if (in_place) {
        return;
    }
    if (plan->groups[SW_GROUP_WORLD].n > 1) {
        add_action(d, SW_STEP_AGREE);
    }
    d->step->n_safe = d->step->n_phases;
    if (program->segment_first[SW_SEGMENT_COMMIT] < program->n_instrs) {
        struct sw_step_phase commit = update;
        commit.segment = SW_SEGMENT_COMMIT;
        add(d, &commit);
    }
    add_action(d, SW_STEP_COMMIT);
}

sw_status sw_plan_make_step(struct sw_plan *plan, const struct sw_plan_options *options)
{
    const struct sw_group *data = &plan->groups[SW_GROUP_DATA];
    const int ranks = data->n, rank = data->me;
    const int64_t rounds = sw_ceil_div(options->policy.micro_batches, ranks);
    const int64_t local = (options->policy.micro_batches - rank + ranks - 1) / ranks;
    struct sw_step *step = &plan->step;
    const struct draft d = {step, 0};
    if (plan->programs[0].kind != SW_PROGRAM_TRAIN) {
        return SW_OK;
    }
    enum { MOST_OF_ROUND = 3, MOST_OF_UPDATE = 5 };
    const bool at_once = plan->programs[0].micro_batches > 1;
    const int64_t runs = at_once ? 1 : rounds;
    step->phases = sw_alloc_zero("plan", (size_t)(runs * MOST_OF_ROUND + MOST_OF_UPDATE),
                                 sizeof *step->phases);
    SW_TRY_ALLOC(step->phases, "the plan of a step");
    step->ranks = ranks;
    step->rounds = rounds;
    step->micro_batches = options->policy.micro_batches;
    step->holds_faults = plan->groups[SW_GROUP_WORLD].n > 1 && plan->update.two_slots;
    for (int64_t j = 0; j < runs; j++) {
        const bool is_last = options->rule && j == runs - 1;
        const int n = at_once ? (int)local : j < local;
        if (is_last && plan->update.in_backward && !plan->update.two_slots) {
            step->n_safe =
                /* its forward changes nothing, and LOSSES reports its failures */
                step->n_phases + 2;
        }
        add_round(&d, plan, j, n, is_last);
    }
    if (options->rule) {
        add_update(&d, plan);
    } else {
        step->n_safe = step->n_phases;
        step->phases[step->n_phases - 1].joins = true;
    }
    return SW_OK;
}
