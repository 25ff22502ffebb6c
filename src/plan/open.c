// SPDX-License-Identifier: Apache-2.0
// Opens a plan: runs the passes in order, and orders instructions within the budgets.
#include "plan/private.h"
#include "plan/technique.h"

#include <stdio.h>
#include <string.h>

/* Frees everything except the graph and the scheduled order. */
static void clear_program(struct sw_program *program)
{
    const int32_t n_for_next = sw_program_for_next(program);
    sw_free(program->instrs);
    sw_free(program->loops);
    sw_free(program->operands);
    sw_free(program->ports.inputs);
    sw_free(program->ports.outputs);
    sw_free(program->buffers);
    sw_free(program->buffer_of);
    *program = (struct sw_program){
        .kind = program->kind,
        .ir = program->ir,
        .micro_batches = program->micro_batches,
        .draft.scheduled = program->draft.scheduled,
        .draft.least_tiles = program->draft.least_tiles,
        .draft.n_least = program->draft.n_least,
        .draft.phases = program->draft.phases,
        .draft.n_phases = program->draft.n_phases,
        .draft.late = program->draft.late,
        .n_instrs = program->n_instrs - n_for_next,
        .flops = program->flops,
        .recomputed = program->recomputed,
        .remade = program->remade,
    };
}

/* Chooses when instructions start, and computes the waits. keeps: weights may stay for all
 * micro-batches of a step */
static sw_status arrange(struct sw_program *program, const struct sw_plan_options *options,
                         bool keeps)
{
    struct sw_cells cells;
    SW_TRY(keeps ? sw_pass_keep(program, options) : SW_OK);
    SW_TRY(sw_cells_open(&cells, program->ir));
    sw_status st = SW_OK;
    for (int i = 0; i < sw_n_techniques && st >= 0; i++) {
        const struct sw_technique *row = sw_techniques[i];
        st = row->arrange ? row->arrange(program, &cells, options) : SW_OK;
    }
    st = st < 0 ? st : sw_pass_waits(program, &cells, options);
    sw_cells_close(&cells);
    return st;
}

/* Computes order and addresses for one prefetch distance. It can be called again. keeps: see
 * arrange */
static sw_status finish(struct sw_plan *plan, const struct sw_plan_options *options, bool keeps)
{
    for (int i = 0; i < plan->n_programs; i++) {
        struct sw_program *program = &plan->programs[i];
        clear_program(program);
        SW_TRY(sw_program_begin(program));
        SW_TRY(arrange(program, options, keeps));
    }
    memcpy(plan->tier_bytes, plan->persistent_bytes, sizeof plan->tier_bytes);
    for (int i = 0; i < plan->n_programs; i++) {
        const struct sw_program *program = &plan->programs[i];
        SW_TRY(sw_program_place(plan, &plan->programs[i]));
        for (int t = 0; t < SW_TIER_COUNT; t++) {
            const size_t bytes = plan->persistent_bytes[t] + program->peak.bytes[t];
            plan->tier_bytes[t] = bytes > plan->tier_bytes[t] ? bytes : plan->tier_bytes[t];
        }
    }
    plan->ahead.prefetch_elems = options->overlap ? options->policy.prefetch_elems : -1;
    plan->ahead.transfer_bytes = options->policy.transfer_bytes;
    return SW_OK;
}

static bool is_over_budget(const struct sw_plan *plan, const struct sw_plan_options *options)
{
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        if (options->policy.budget[t] > 0 && plan->tier_bytes[t] > options->policy.budget[t]) {
            return true;
        }
    }
    return false;
}

/* Limits transfers to the bytes that move; then to a half of that, or to a quarter if much memory
 * is missing. */
static size_t fewer_transfers(const struct sw_plan *plan, const struct sw_plan_options *options,
                              size_t now)
{
    enum { LEAST = 1 << 18 };
    size_t over = 0;
    for (int t = 0; t < SW_TIER_DISK; t++) {
        const size_t need = plan->tier_bytes[t], have = options->policy.budget[t];
        over = have > 0 && need > have && need - have > over ? need - have : over;
    }
    size_t moved = 0;
    for (int i = 0; i < plan->n_programs; i++) {
        const struct sw_ir *ir = plan->programs[i].ir;
        size_t sum = 0;
        for (int32_t k = 0; k < ir->n_ops; k++) {
            sum += sw_ir_is_transfer(&ir->ops[k]) ? sw_transfer_bytes(ir, &ir->ops[k]) : 0;
        }
        moved = sum > moved ? sum : moved;
    }
    const size_t most = now < moved ? now : moved;
    return most < LEAST ? 0 : over < most / 2 ? most / 2 : most / 4;
}

/* Prefetches as much as the budget allows. If it allows none, collectives block. If that does not
 * fit either, the plan is refused at once. Weights stay for all micro-batches if the device has a
 * budget, and it has room for them beside all prefetching. */
static sw_status finish_within_budget(struct sw_plan *plan, const struct sw_plan_options *options)
{
    const bool keeps = options->policy.budget[SW_TIER_DEVICE] > 0;
    struct sw_plan_options o = *options;
    o.overlap = options->overlap && plan->groups[SW_GROUP_DATA].n > 1;
    SW_TRY(finish(plan, &o, keeps));
    if (is_over_budget(plan, options) && plan->programs[0].peak.kept_bytes > 0) {
        SW_TRY(finish(plan, &o, false));
    }
    if (!is_over_budget(plan, options)) {
        return SW_OK;
    }
    struct sw_plan_options least = o;
    least.overlap = false;
    least.policy.prefetch_elems = 0;
    least.policy.transfer_bytes = 0;
    least.limits.reduce_bucket_elems = 1; /* each gradient travels on its own */
    SW_TRY(finish(plan, &least, false));
    if (is_over_budget(plan, options)) {
        return SW_OK;
    }
    do {
        if (!o.overlap && o.policy.transfer_bytes == 0) {
            return finish(plan, &least, false);
        }
        o.overlap = o.overlap && o.policy.prefetch_elems > 0;
        o.policy.prefetch_elems =
            o.policy.prefetch_elems >= 1 << 16 ? o.policy.prefetch_elems / 4 : 0;
        o.policy.transfer_bytes = fewer_transfers(plan, options, o.policy.transfer_bytes);
        SW_TRY(finish(plan, &o, false));
    } while (is_over_budget(plan, options));
    return SW_OK;
}

/* Takes the fingerprint of the same computation on one rank. */
static sw_status take_fingerprint(struct sw_plan *plan, const struct sw_graph *same,
                                  const struct sw_plan_options *options)
{
    struct sw_graph *fused = NULL;
    SW_TRY(sw_pass_fuse(same, options, &fused));
    plan->fingerprint = sw_plan_fingerprint(fused, options);
    sw_graph_close(fused);
    return SW_OK;
}

/* Runs the pass on the graph, then makes the list that all other passes work on. */
static sw_status take_graph(struct sw_plan *plan, int i, const struct sw_graph *g,
                            const struct sw_blocks *blocks, const struct sw_plan_options *options)
{
    struct sw_graph *fused = NULL;
    SW_TRY(i == 0 && options->math.same ? take_fingerprint(plan, options->math.same, options)
                                        : SW_OK);
    SW_TRY(sw_pass_fuse(g, options, &fused));
    if (i == 0 && !options->math.same) {
        plan->fingerprint = sw_plan_fingerprint(fused, options);
    }
    const sw_status st = sw_ir_open(fused, &plan->programs[i].ir);
    sw_graph_close(fused);
    SW_TRY(st);
    plan->programs[i].ir->groups = plan->groups;
    plan->programs[i].ir->params.local = sw_plan_group(plan, sw_local_axes(&options->mesh));
    SW_TRY(sw_ir_take_exchanges(plan->programs[i].ir, plan));
    if (options->policy.tile_bytes > 0 && sw_may_tile(options)) {
        plan->programs[i].draft.tile_rows = sw_tile_rows(plan->programs[i].ir, options);
        SW_TRY_ALLOC(plan->programs[i].draft.tile_rows, "the plan");
    }
    const int pipe = options->stage_blocks ? sw_plan_group(plan, 1U << SW_AXIS_PIPE) : -1;
    const struct sw_pipe_schedule *schedule = sw_schedule_info(options->policy.schedule)->pipe;
    const struct sw_stage_cut cut = {.bounds = options->stage_blocks,
                                     .chunks = sw_stage_chunks(options),
                                     .has_weights = schedule && schedule->has_weights,
                                     .blocks = blocks,
                                     .group = pipe,
                                     .trains = plan->programs[i].kind == SW_PROGRAM_TRAIN};
    return pipe < 0 ? sw_ir_drop_elsewhere(plan->programs[i].ir)
                    : sw_pass_stage(plan->programs[i].ir, &cut);
}

/* Makes the lists of all programs. */
static sw_status take_graphs(struct sw_plan *plan, const struct sw_program_spec *specs,
                             const struct sw_plan_options *options)
{
    struct sw_blocks blocks = {.n = 0};
    sw_status st = SW_OK;
    for (int i = 0; i < plan->n_programs && st >= 0; i++) {
        st = sw_blocks_add(&blocks, specs[i].graph);
    }
    for (int i = 0; i < plan->n_programs && st >= 0; i++) {
        st = take_graph(plan, i, specs[i].graph, &blocks, options);
    }
    sw_blocks_close(&blocks);
    return st;
}

/* Reserves host memory if some transfers cannot reach the device's memory directly: a staging area,
 * and the inputs of every micro-batch of this rank, so that no step waits for a copy. */
static void reserve_staging(struct sw_plan *plan, const struct sw_plan_options *options)
{
    const struct sw_program *program = &plan->programs[0];
    const int ranks = sw_data_ranks(options);
    plan->staging.bytes = plan->persistent_bytes[SW_TIER_HOST] = options->staging_bytes;
    if (options->staging_bytes == 0 || program->kind != SW_PROGRAM_TRAIN) {
        return;
    }
    for (sw_value v = 0; v < program->ir->n_values; v++) {
        const struct sw_ir_value *info = &program->ir->values[v];
        plan->staging.input_bytes += info->role == SW_ROLE_INPUT && info->base < 0
                                         ? sw_round_up(sw_ir_bytes(info), SW_PLAN_ALIGN)
                                         : 0;
    }
    const size_t all =
        plan->staging.input_bytes * (size_t)sw_ceil_div(options->policy.micro_batches, ranks);
    plan->persistent_bytes[SW_TIER_HOST] += sw_round_up(all, SW_PLAN_DISK_ALIGN);
}

/* Orders the instructions of all programs within the budget. */
static sw_status put_in_order(struct sw_plan *plan, const struct sw_plan_options *options)
{
    for (int i = 0; i < plan->n_programs; i++) { /* once for all prefetch distances */
        SW_TRY(sw_pass_schedule(&plan->programs[i], options));
    }
    const sw_status st = finish_within_budget(plan, options);
    for (int i = 0; i < plan->n_programs; i++) {
        sw_free(plan->programs[i].draft.scheduled);
        plan->programs[i].draft.scheduled = NULL;
        sw_free(plan->programs[i].draft.phases);
        plan->programs[i].draft.phases = NULL;
        plan->programs[i].draft.n_phases = 0;
        plan->programs[i].draft.late = 0;
    }
    return st;
}

/* Runs all passes on the lists of a plan. A plan that exceeds a budget is refused. */
static sw_status run_passes(struct sw_plan *plan, const struct sw_plan_options *options)
{
    memcpy(plan->tier_budget, options->policy.budget, sizeof plan->tier_budget);
    reserve_staging(plan, options);
    if (options->refusal && options->policy.tile_bytes == 0 && plan->groups[SW_GROUP_DATA].n == 1 &&
        options->policy.budget[SW_TIER_DEVICE] > 0) {
        plan->programs[0].draft.n_least = plan->programs[0].ir->n_values;
        plan->programs[0].draft.least_tiles = sw_least_tiles(plan->programs[0].ir, options);
        SW_TRY_ALLOC(plan->programs[0].draft.least_tiles, "the plan");
    }
    for (int i = 0; i < sw_n_techniques; i++) {
        SW_TRY(sw_techniques[i]->prepare ? sw_techniques[i]->prepare(plan, options) : SW_OK);
    }
    for (int i = 0; i < sw_n_techniques; i++) {
        SW_TRY(sw_techniques[i]->run ? sw_techniques[i]->run(plan, options) : SW_OK);
    }
    SW_TRY(sw_plan_place_persistent(plan, options));
    SW_TRY(sw_plan_check_outer_budgets(plan, options));
    SW_TRY(put_in_order(plan, options));
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        if (options->policy.budget[t] > 0 && plan->tier_bytes[t] > options->policy.budget[t]) {
            return sw_plan_refuse(plan, options, (enum sw_tier)t);
        }
    }
    /* before the rest, since it needs more memory than what is made after it */
    SW_TRY(sw_plan_check(plan, options));
    for (int i = 0; i < plan->n_programs; i++) {
        SW_TRY(sw_pass_lower(plan, &plan->programs[i]));
    }
    return sw_plan_make_step(plan, options);
}

sw_status sw_plan_open(const struct sw_program_spec *specs, int n_specs,
                       const struct sw_plan_options *options, struct sw_plan **out)
{
    SW_ASSERT(n_specs > 0);
    struct sw_plan *plan = sw_alloc_zero("plan", 1, sizeof *plan);
    struct sw_program *programs = sw_alloc_zero("plan", (size_t)n_specs, sizeof *programs);
    if (!plan || !programs) {
        sw_free(plan);
        sw_free(programs);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
    }
    plan->programs = programs;
    plan->n_programs = n_specs;
    for (int i = 0; i < n_specs; i++) {
        programs[i].kind = specs[i].kind;
        programs[i].micro_batches = 1;
    }
    sw_status st = sw_plan_open_groups(plan, specs, n_specs, options);
    st = st < 0 ? st : take_graphs(plan, specs, options);
    st = st < 0 ? st : run_passes(plan, options);
    if (st < 0) {
        sw_plan_close(plan);
        return st;
    }
    *out = plan;
    return SW_OK;
}

void sw_plan_close(struct sw_plan *plan)
{
    if (!plan) {
        return;
    }
    for (int i = 0; i < plan->n_programs; i++) {
        sw_free(plan->programs[i].draft.scheduled);
        sw_free(plan->programs[i].draft.least_tiles);
        sw_free(plan->programs[i].draft.tile_rows);
        sw_free(plan->programs[i].draft.phases);
        clear_program(&plan->programs[i]);
        sw_ir_close(plan->programs[i].ir);
    }
    sw_free(plan->programs);
    sw_free(plan->groups);
    sw_free(plan->members);
    sw_free(plan->persistent);
    sw_free(plan->packs);
    sw_free(plan->tiled);
    sw_free(plan->step.phases);
    sw_names_close(&plan->names);
    sw_free(plan);
}
