// SPDX-License-Identifier: Apache-2.0
// What one rank of many would hold at each ZeRO stage: the plans of all four stages, made and not run,
// beside the formulas of the ZeRO paper (Rajbhandari et al. 2020, section 3).
#include <string.h>

#include "engine/engine.h"

struct held { /* bytes on one rank */
    size_t params, states, transients, total;
};

static struct held count(const struct sw_plan *plan)
{
    struct held held = {.total = plan->tier_bytes[SW_TIER_DEVICE]};
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        size_t *to = plan->persistent[i].role == SW_ROLE_PARAM ? &held.params : &held.states;
        *to += plan->persistent[i].bytes;
    }
    held.transients = held.total - plan->persistent_bytes;
    return held;
}

/* Model states by the paper: w, g and K bytes a parameter of working copy, gradient and optimizer. */
static double formula(int stage, double elems, double ranks, bool wide)
{
    const double w = wide ? 4 : 2, g = wide ? 4 : 2, k = wide ? 8 : 12;
    switch (stage) {
    case 0:
        return (w + g + k) * elems;
    case 1:
        return (w + g) * elems + k * elems / ranks;
    case 2:
        return w * elems + (g + k) * elems / ranks;
    default:
        return (w + g + k) * elems / ranks;
    }
}

static sw_status plan_stage(const struct sw_engine_options *options, int ranks, int stage,
                            struct sw_str *out)
{
    const struct sw_collectives world = {.size = ranks};
    struct sw_engine_options o = *options;
    const char *sets[64];
    char text[64];
    sw_engine *e = NULL;
    if (options->n_sets >= (int)SW_LEN(sets)) {
        return SW_FAIL(SW_E_ARG, "too many --set");
    }
    snprintf(text, sizeof text, "zero_optimization.stage=%d", stage);
    if (options->n_sets > 0) {
        memcpy(sets, options->sets, (size_t)options->n_sets * sizeof *sets);
    }
    sets[options->n_sets] = text;
    o.sets = sets;
    o.n_sets = options->n_sets + 1;
    o.plan_only = true;
    o.ranks = &world;
    SW_TRY(sw_initialize(&o, &e));
    const struct held held = count(e->plan);
    const double elems = (double)sw_engine_parameters(e);
    char buf[6][32];
    if (stage == 0) {
        sw_str_printf(
            out,
            "%.0f parameters, %s, %d ranks, %lld micro-batches a step; bytes on one rank:\n"
            "%-6s %12s %12s %12s %12s   %12s\n",
            elems, sw_dtype_name(e->dtype), ranks, (long long)e->micro_batches, "stage",
            "parameters", "states", "transients", "planned", "paper");
    }
    sw_str_printf(
        out, "%-6d %12s %12s %12s %12s   %12s\n", stage,
        sw_format_bytes(buf[0], sizeof buf[0], (double)held.params),
        sw_format_bytes(buf[1], sizeof buf[1], (double)held.states),
        sw_format_bytes(buf[2], sizeof buf[2], (double)held.transients),
        sw_format_bytes(buf[3], sizeof buf[3], (double)held.total),
        sw_format_bytes(buf[4], sizeof buf[4], formula(stage, elems, ranks, e->dtype == SW_F32)));
    sw_close(e);
    return SW_OK;
}

sw_status sw_plan_stages_text(const struct sw_engine_options *options, int ranks, char **out)
{
    struct sw_str text = {0};
    sw_status st = SW_OK;
    SW_TRY_OPTIONS(options);
    for (int stage = 0; stage < 4 && st >= 0; stage++) {
        st = plan_stage(options, ranks, stage, &text);
    }
    sw_str_puts(&text,
                "states: masters, moments, sums of gradients over micro-batches. The paper's "
                "figure is of model states\nalone: activations and buffers come on top of it, "
                "and are among the transients.\n");
    if (st >= 0 && text.failed) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a report");
    }
    if (st < 0) {
        sw_str_fini(&text);
        return st;
    }
    *out = text.ptr;
    return SW_OK;
}
