// SPDX-License-Identifier: Apache-2.0
// The optimizer step of this rank, as a list of phases. These are forward and backward for each of
// its micro-batches (once for all of them if vertical), and rounds in which only other ranks have a
// micro-batch. The update follows, with the point from which it counts.
#include "plan/private.h"

int sw_step_active(const struct sw_step *step, int64_t round)
{
    const int64_t left = step->micro_batches - round * step->ranks;
    return (int)(left < 0 ? 0 : sw_min_i64(left, step->ranks)) * step->per_rank;
}

struct draft {
    struct sw_step *step;
    int program;
    bool is_cut; /* the model is cut into stages, which send values to each other */
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
    struct sw_step_phase forward = phase;
    forward.is_first = plan->update.in_forward && round == 0;
    forward.finds = forward.is_first && sw_program_for_next(&plan->programs[d->program]) > 0;
    add(d, &forward);
    if (is_last && plan->update.norms_in_backward) {
        add_action(d, SW_STEP_LOSSES);
    }
    phase.segment = SW_SEGMENT_BACKWARD;
    phase.drains = !is_last || !flows_into_update(plan);
    phase.joins = joins;
    add(d, &phase);
}

/* True if the phase begins with receives. */
static bool receives(const struct sw_plan *plan, const struct sw_step_phase *phase)
{
    const struct sw_program *program = &plan->programs[phase->program];
    const struct sw_instr_range range = sw_program_range(program, phase->segment, phase->chunk);
    return range.first < range.end && program->instrs[range.first].verb == SW_VERB_RECV;
}

/* Adds phase i of a stage, or its receives. */
static struct sw_step_phase phase_of(const struct draft *d, const struct sw_pipe_phase *phases,
                                     int64_t i, int64_t local)
{
    return (struct sw_step_phase){.action = SW_STEP_RUN,
                                  .program = d->program,
                                  .segment = phases[i].segment,
                                  .chunk = phases[i].chunk,
                                  .round = phases[i].micro,
                                  .n_micro = phases[i].micro < local,
                                  .turn = d->is_cut ? (int32_t)i + 1 : 0,
                                  .drains = true};
}

/* Begins what a phase receives. */
static void add_receives(const struct draft *d, const struct sw_plan *plan,
                         const struct sw_step_phase *phase)
{
    struct sw_step_phase only = *phase;
    only.action = SW_STEP_RECEIVE;
    only.drains = false;
    if (d->is_cut && receives(plan, phase)) {
        add(d, &only);
    }
}

/* The first phase after the forward of the last micro-batch that works on it; n = none. */
static int64_t find_end(const struct draft *d, const struct sw_pipe_phase *phases, int64_t n)
{
    int64_t i = 0;
    while (i < n &&
           (phases[i].micro < d->step->rounds - 1 || phases[i].segment == SW_SEGMENT_FORWARD)) {
        i++;
    }
    return i;
}

/* The last turn whose messages have left when a phase starts. */
static int32_t sent_before(int late, int32_t turn)
{
    return turn > late + 1 ? turn - 1 - late : 0;
}

/* Adds the phases of a stage. Each drains, since the next one may reuse its memory. Exception:
 * messages run on, also through LOSSES, and the receives of the next one begin first. local:
 * micro-batches that this rank has */
static void add_stage(const struct draft *d, const struct sw_plan *plan,
                      const struct sw_pipe_phase *phases, int64_t n, int64_t local,
                      const struct sw_plan_options *options)
{
    const bool updates = options->rule != NULL;
    const int late = sw_stage_late(options);
    const int64_t end = updates ? find_end(d, phases, n) : n;
    const int64_t meets = plan->update.norms_in_backward ? end : n;
    int64_t received = 0; /* phases whose receives have begun */
    for (int64_t i = 0; i < n; i++) {
        struct sw_step_phase phase = phase_of(d, phases, i, local);
        phase.is_last = updates && phases[i].micro == d->step->rounds - 1;
        phase.sent = sent_before(late, phase.turn);
        phase.runs_on = d->is_cut && i < n - 1;
        phase.joins = i == n - 1 && meets < n && !flows_into_update(plan);
        for (; received < n && received <= i + 1; received++) {
            struct sw_step_phase next = phase_of(d, phases, received, local);
            next.sent = sent_before(late, next.turn - 1);
            add_receives(d, plan, &next);
        }
        if (i == meets) {
            add(d, &(struct sw_step_phase){
                       .action = SW_STEP_LOSSES, .program = d->program, .runs_on = d->is_cut});
        }
        if (i == end && plan->update.in_backward && !plan->update.two_slots) {
            d->step->n_safe = d->step->n_phases;
        }
        add(d, &phase);
    }
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

/* Adds the phases that run the update of the last step, if no forward follows: a forward without a
 * micro-batch. They are not part of a step. */
static void add_settling(const struct draft *d, const struct sw_plan *plan)
{
    const int32_t n = d->step->n_phases;
    if (!plan->update.in_forward) {
        return;
    }
    add(d, &(struct sw_step_phase){.action = SW_STEP_RUN,
                                   .program = d->program,
                                   .segment = SW_SEGMENT_FORWARD,
                                   .is_first = true,
                                   .drains = true,
                                   .joins = true});
    if (plan->groups[SW_GROUP_WORLD].n > 1) {
        add_action(d, SW_STEP_AGREE);
    }
    add(d,
        &(struct sw_step_phase){.action = SW_STEP_COMMIT, .program = d->program, .is_first = true});
    d->step->n_settling = d->step->n_phases - n;
    d->step->n_phases = n;
}

/* Adds forward and backward of all micro-batches, one after the other or all at once. */
static void add_rounds(const struct draft *d, const struct sw_plan *plan, int64_t local,
                       bool updates)
{
    const bool at_once = plan->programs[0].micro_batches > 1;
    const int64_t runs = at_once ? 1 : d->step->rounds;
    for (int64_t j = 0; j < runs; j++) {
        const bool is_last = updates && j == runs - 1;
        const int n = at_once ? (int)local : j < local;
        if (is_last && plan->update.in_backward && !plan->update.two_slots) {
            d->step->n_safe =
                /* its forward changes nothing, and LOSSES reports its failures */
                d->step->n_phases + 2;
        }
        add_round(d, plan, j, n, is_last);
    }
}

sw_status sw_plan_make_step(struct sw_plan *plan, const struct sw_plan_options *options)
{
    const int ranks = sw_data_ranks(options);
    const int rank = sw_mesh_coord(&options->mesh, SW_BATCH_AXES, options->me).rank;
    const int64_t rounds = sw_ceil_div(options->policy.micro_batches, ranks);
    const int64_t local = (options->policy.micro_batches - rank + ranks - 1) / ranks;
    struct sw_step *step = &plan->step;
    const struct draft d = {step, 0, options->stage_blocks != NULL};
    if (plan->programs[0].kind != SW_PROGRAM_TRAIN) {
        return SW_OK;
    }
    enum { MOST_OF_ROUND = 3, MOST_OF_UPDATE = 5, MOST_OF_SETTLING = 3 };
    struct sw_pipe_phase *phases;
    int64_t n;
    SW_TRY(sw_stage_phases(options, &phases, &n));
    step->phases = sw_alloc_zero(
        "plan", (size_t)(2 * n + rounds * MOST_OF_ROUND + MOST_OF_UPDATE + MOST_OF_SETTLING),
        sizeof *step->phases);
    if (!step->phases) {
        sw_free(phases);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the plan of a step");
    }
    step->ranks = ranks;
    step->per_rank = sw_zero_ranks(options) / ranks;
    step->rounds = rounds;
    step->micro_batches = options->policy.micro_batches;
    step->holds_faults = plan->groups[SW_GROUP_WORLD].n > 1 && plan->update.two_slots;
    if (n > 0) {
        add_stage(&d, plan, phases, n, local, options);
    } else {
        add_rounds(&d, plan, local, options->rule);
    }
    sw_free(phases);
    if (options->rule) {
        add_update(&d, plan);
        add_settling(&d, plan);
    } else {
        step->n_safe = step->n_phases;
        step->phases[step->n_phases - 1].joins = true;
    }
    return SW_OK;
}
