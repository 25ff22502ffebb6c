// SPDX-License-Identifier: Apache-2.0
// Rules of thumb for the bytes of model states, from a few numbers: DeepSpeed's memory estimators
// for ZeRO 2 and 3 (16-bit training with Adam), and the formulas of the ZeRO paper.
#include <math.h>

#include "show/show.h"

enum {
    WORK_BYTES = 2,   /* 16-bit parameters */
    INIT_BYTES = 4,   /* a model is created in fp32 before it is sharded */
    STATE_BYTES = 16, /* 16-bit gradient, fp32 gradient, master, two moments, less WORK_BYTES */
    ALL_BYTES = 18,   /* the same plus the 16-bit parameters */
    LEAST_HOST_FACTOR = 16 /* stage 2 with an offloaded optimizer */
};
static const double most_bytes = 4e18; /* fits int64_t */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void estimate_2(const struct sw_estimate_case *c, double ranks, double *host, double *device)
{
    const double elems = (double)c->parameters;
    if (c->offload_optimizer) {
        *host = elems * larger(INIT_BYTES * ranks, LEAST_HOST_FACTOR) * c->buffer_factor;
        *device = WORK_BYTES * elems;
    } else {
        *host = elems * INIT_BYTES * (double)c->ranks_per_node * c->buffer_factor;
        *device = WORK_BYTES * elems + floor(ALL_BYTES * elems / ranks);
    }
}

static void estimate_3(const struct sw_estimate_case *c, double ranks, double *host, double *device)
{
    const double elems = (double)c->parameters, nodes = (double)c->nodes;
    const double init = INIT_BYTES * (double)c->ranks_per_node;
    const double layer = INIT_BYTES * (double)c->largest_layer;
    if (!c->offload_optimizer) {
        *host = (c->zero_init ? (double)c->largest_layer : elems) * init * c->buffer_factor;
        *device = layer + floor(ALL_BYTES * elems / ranks);
        return;
    }
    /* The order of operations is DeepSpeed's: the rounded product is truncated to whole bytes. */
    const double kept = c->offload_param ? ALL_BYTES : STATE_BYTES, share = 1 / nodes;
    *host = (c->zero_init ? elems * kept * share : elems * larger(init, kept * share)) *
            c->buffer_factor;
    *device = layer + (c->offload_param ? 0 : floor(WORK_BYTES * elems / ranks));
}

sw_status sw_estimate(const struct sw_estimate_case *c, struct sw_estimate *out)
{
    if (c->stage != 2 && c->stage != 3) {
        return SW_FAIL(SW_E_ARG, "estimates exist for ZeRO stages 2 and 3, not for %d", c->stage);
    }
    if (c->stage == 2 ? c->offload_param : c->offload_param && !c->offload_optimizer) {
        return SW_FAIL(SW_E_ARG, "no estimate for offloaded parameters at stage %d%s", c->stage,
                       c->stage == 3 ? " without an offloaded optimizer" : "");
    }
    if (c->parameters < 1 || c->ranks_per_node < 1 || c->nodes < 1 || !(c->buffer_factor > 0)) {
        return SW_FAIL(
            SW_E_ARG,
            "wanted positive numbers of parameters, devices and nodes, and a positive buffer "
            "factor");
    }
    if (c->largest_layer < 0 || c->largest_layer > c->parameters) {
        return SW_FAIL(SW_E_ARG, "the largest layer has 0 .. %lld parameters, not %lld",
                       (long long)c->parameters, (long long)c->largest_layer);
    }
    const double ranks = (double)c->ranks_per_node * (double)c->nodes;
    double host = 0, device = 0;
    (c->stage == 2 ? estimate_2 : estimate_3)(c, ranks, &host, &device);
    if (!(host < most_bytes) || !(device < most_bytes)) {
        return SW_FAIL(SW_E_ARG, "an estimate of more than %g bytes", most_bytes);
    }
    *out = (struct sw_estimate){.host_bytes_per_node = (int64_t)host,
                                .device_bytes = (int64_t)device,
                                .layer_bytes = c->stage == 3 ? INIT_BYTES * c->largest_layer : 0};
    return SW_OK;
}

/* ---- the paper ---- */

struct sw_paper sw_paper_widths(enum sw_dtype dtype, const struct sw_update_rule *rule)
{
    struct sw_update_state states[SW_UPDATE_MAX_STATES];
    const double width = (double)sw_dtype_bytes(dtype);
    struct sw_paper paper = {.work = width, .grad = width};
    const bool narrow = dtype == SW_BF16 || dtype == SW_F16;
    const struct sw_shape large = SW_SHAPE(INT32_MAX, 1);
    const int n = sw_update_states(rule, dtype, &large, states);
    for (int i = narrow ? 1 : 0; i < n; i++) { /* the first state is the master, or its remainder */
        const double bytes = (double)sw_dtype_bytes(states[i].dtype);
        const enum sw_state_extent of = sw_state_infos[states[i].kind].of;
        paper.states += of == SW_STATE_OF_ELEMENTS ? bytes
                        : of == SW_STATE_OF_RUNS   ? bytes / SW_CODE_RUN
                                                   : 0; /* those per row or column are small */
    }
    paper.states += narrow ? sizeof(float) : 0;
    return paper;
}

double sw_paper_bytes(const struct sw_paper *paper, int stage, double elems, double trained,
                      double ranks)
{
    return paper->work * elems / (stage >= 3 ? ranks : 1) +
           paper->grad * trained / (stage >= 2 ? ranks : 1) +
           paper->states * trained / (stage >= 1 ? ranks : 1);
}
