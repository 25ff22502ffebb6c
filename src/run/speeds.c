// SPDX-License-Identifier: Apache-2.0
// Turns rates into costs of instructions. A given rate applies to any size, and uses no shared
// processors. Measurements are per kernel, or per size.
#include "run/speeds.h"

#include <math.h>

void sw_speeds_close(struct sw_speeds *speeds)
{
    sw_free(speeds->kernels);
    speeds->kernels = NULL;
}

/* Beyond the last point, the cost is proportional to the size. */
static struct sw_cost cost_at(const struct sw_rate_curve *curve, double bytes)
{
    const struct sw_rate_point *last = &curve->at[curve->n - 1];
    struct sw_cost cost = last->cost;
    if (bytes >= last->bytes) {
        cost.seconds *= bytes / last->bytes;
        return cost;
    }
    int k = 0;
    while (curve->at[k].bytes < bytes) {
        k++;
    }
    cost = curve->at[k].cost;
    if (k > 0) {
        const struct sw_rate_point *low = &curve->at[k - 1], *high = &curve->at[k];
        const double part = (bytes - low->bytes) / (high->bytes - low->bytes);
        cost.seconds = low->cost.seconds + part * (high->cost.seconds - low->cost.seconds);
    }
    return cost;
}

static const struct sw_rate_curve *curve_of(const struct sw_speeds *speeds, enum sw_verb verb)
{
    static const enum sw_curve curves[] = {
        [SW_VERB_COPY_IN] = SW_CURVE_COPY_IN, [SW_VERB_COPY_OUT] = SW_CURVE_COPY_OUT,
        [SW_VERB_READ] = SW_CURVE_READ,       [SW_VERB_WRITE] = SW_CURVE_WRITE,
        [SW_VERB_REDUCE] = SW_CURVE_REDUCE,   [SW_VERB_GATHER] = SW_CURVE_GATHER,
        [SW_VERB_MERGE] = SW_CURVE_GATHER};
    return &speeds->curves[curves[verb]];
}

/* Cost of moving rows of a table one by one. */
static bool by_rows(const struct sw_program *program, const struct sw_instr *instr, double *n,
                    double *row)
{
    const struct sw_operand *operands = &program->operands[instr->operands];
    if ((instr->verb != SW_VERB_READ && instr->verb != SW_VERB_COPY_IN) || instr->n_in < 3) {
        return false;
    }
    *n = (double)(operands[2].bytes / sizeof(int32_t));
    *row = *n > 0 ? (double)operands[1].bytes / *n : 0;
    return true;
}

static struct sw_cost measured(const struct sw_speeds *speeds, const struct sw_program *program,
                               int32_t i)
{
    const struct sw_instr *instr = &program->instrs[i];
    const bool disk = instr->verb == SW_VERB_READ;
    const struct sw_rate_curve *curve = curve_of(speeds, instr->verb);
    double n, row, bytes = 0;
    if (by_rows(program, instr, &n, &row)) {
        struct sw_cost cost = cost_at(disk ? &speeds->curves[SW_CURVE_ROW] : curve, row);
        cost.seconds *= n;
        return cost;
    }
    const bool exchange = instr->verb >= SW_VERB_REDUCE;
    for (int32_t k = i; k < i + (exchange ? instr->batch : 1); k++) {
        bytes += (double)program->instrs[k].bytes;
    }
    return cost_at(curve, bytes);
}

static bool is_measured(const struct sw_speeds *speeds, const struct sw_instr *instr)
{
    return instr->verb == SW_VERB_KERNEL ? speeds->kernels != NULL
                                         : curve_of(speeds, instr->verb)->n > 0;
}

static void find_cost(const struct sw_plan *plan, const struct sw_speeds *speeds, int32_t i,
                      bool *unknown, struct sw_cost out[2])
{
    const struct sw_program *program = &plan->programs[0];
    const struct sw_instr *instr = &program->instrs[i];
    double work = 0, all = 0;
    const enum sw_load load = sw_instr_load(plan, program, i, &work);
    const bool exchange = instr->verb >= SW_VERB_REDUCE;
    for (int32_t k = i; k < i + (exchange ? instr->batch : 1); k++) {
        sw_instr_load(plan, program, k, &work);
        all += work;
    }
    out[0] = out[1] = (struct sw_cost){0, 0, 0};
    if (all <= 0) {
        return;
    }
    if (speeds->given[load] > 0) {
        out[0].seconds = out[1].seconds = all / speeds->given[load];
    } else if (!is_measured(speeds, instr)) {
        unknown[load] = true;
    } else if (instr->verb == SW_VERB_KERNEL) {
        out[0] = speeds->kernels[i][0];
        out[1] = speeds->kernels[i][1];
    } else {
        out[0] = out[1] = measured(speeds, program, i);
    }
}

void sw_speeds_costs(const struct sw_plan *plan, const struct sw_speeds *speeds,
                     bool unknown[SW_LOAD_COUNT], struct sw_cost (*costs)[2])
{
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        unknown[k] = false;
    }
    for (int32_t i = 0; i < plan->programs[0].n_instrs; i++) {
        find_cost(plan, speeds, i, unknown, costs[i]);
    }
}

sw_status sw_speeds_step(const struct sw_plan *plan, const struct sw_speeds *speeds,
                         bool unknown[SW_LOAD_COUNT], struct sw_clock_report *out)
{
    const int32_t n = plan->programs[0].n_instrs;
    struct sw_cost(*costs)[2] = sw_alloc_zero("run", (size_t)n + 1, sizeof *costs);
    SW_TRY_ALLOC(costs, "the costs of a step");
    sw_speeds_costs(plan, speeds, unknown, costs);
    const struct sw_pace pace = {.costs = (const struct sw_cost(*)[2])costs,
                                 .meeting = speeds->meeting,
                                 .cores = speeds->cores,
                                 .disk_share = speeds->disk_share > 0 ? speeds->disk_share : 0.5};
    const sw_status st = sw_clock_step(plan, &pace, out);
    sw_free(costs);
    return st;
}
