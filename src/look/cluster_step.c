// SPDX-License-Identifier: Apache-2.0
// The step of the opened stages at a cluster's rates.
#include "cost/cost.h"
#include "look/private.h"

/* FLOPs of the kernels of a step. */
static double flops_of(const struct sw_plan *plan, const struct sw_clock_report *clock)
{
    const struct sw_program *program = &plan->programs[0];
    double sum = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        sum += (double)program->instrs[i].flops * (double)clock->instrs[i].runs;
    }
    return sum;
}

static sw_status walk(const struct sw_lineup *lineup, const struct sw_cost_mesh *mesh,
                      struct sw_clock_rank *ranks, struct sw_clock_report *reports, double *seconds)
{
    for (int s = 0; s < lineup->n; s++) {
        ranks[s] = (struct sw_clock_rank){.plan = sw_engine_facts(lineup->stages[s].engine).plan,
                                          .report = &reports[s]};
    }
    if (lineup->n > 1) {
        return sw_cost_stages(ranks, lineup->n, mesh, seconds);
    }
    const sw_status st = sw_cost_step(ranks[0].plan, mesh, &reports[0]);
    *seconds = reports[0].seconds;
    return st;
}

/* The stage that computes longest keeps its instructions. */
static int choose(struct sw_clock_report *reports, int n)
{
    int longest = 0;
    for (int s = 1; s < n; s++) {
        const bool is_longer = reports[s].passes.busy > reports[longest].passes.busy;
        sw_free(reports[is_longer ? longest : s].instrs);
        longest = is_longer ? s : longest;
    }
    return longest;
}

sw_status sw_look_cluster_stage(const struct sw_lineup *lineup, const struct sw_cost_mesh *mesh,
                                struct sw_clock_report *out, double *flops, int *stage)
{
    const size_t n = (size_t)lineup->n;
    struct sw_clock_rank *ranks = sw_alloc_zero("look", n, sizeof *ranks);
    struct sw_clock_report *reports = sw_alloc_zero("look", n, sizeof *reports);
    double seconds = 0;
    const sw_status st = ranks && reports ? walk(lineup, mesh, ranks, reports, &seconds)
                                          : SW_FAIL(SW_E_NOMEM, "out of host memory for stages");
    *flops = 0;
    for (int s = 0; s < lineup->n && st >= 0; s++) {
        *flops += flops_of(ranks[s].plan, &reports[s]) / (double)n;
    }
    if (st >= 0) {
        *stage = choose(reports, lineup->n);
        *out = reports[*stage];
        out->seconds = seconds;
    }
    sw_free(ranks);
    sw_free(reports);
    return st;
}

sw_status sw_look_cluster_step(const struct sw_lineup *lineup, const struct sw_cost_mesh *mesh,
                               struct sw_clock_report *out, double *flops)
{
    int stage;
    SW_TRY(sw_look_cluster_stage(lineup, mesh, out, flops, &stage));
    sw_free(out->instrs);
    out->instrs = NULL;
    return SW_OK;
}

void sw_look_tiers(const struct sw_lineup *lineup, size_t bytes[SW_TIER_COUNT],
                   size_t there[SW_TIER_COUNT])
{
    for (int s = 0; s < lineup->n; s++) {
        const struct sw_engine_facts f = sw_engine_facts(lineup->stages[s].engine);
        there[SW_TIER_DEVICE] = f.device->memory_bytes;
        there[SW_TIER_HOST] = f.device->host_bytes;
        there[SW_TIER_DISK] = f.device->disk_bytes;
        for (int t = 0; t < SW_TIER_COUNT; t++) {
            const size_t here = f.plan->tier_bytes[t];
            bytes[t] = s > 0 && bytes[t] > here ? bytes[t] : here;
        }
    }
}
