// SPDX-License-Identifier: Apache-2.0
// Plans of graphs that a test makes for them alone.
#pragma once

#include "plan/plan.h"

static const struct sw_update_rule test_adam = {
    .attrs = {.kind = SW_UPDATE_ADAM, .decoupled = true, .bias_correction = true, .eps = 1e-8}};

/* Supports every op but a loss with its gradient, as most devices do. Products ask for workspace,
 * so that its placement is tested. */
static inline void test_query(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    (void)ctx;
    *out = (struct sw_kernel_info){.supported = desc->op->kind != SW_OP_LINEAR_CE_AT_ONCE,
                                   .path = "imagined"};
    if (desc->op->kind == SW_OP_MATMUL) {
        out->workspace_bytes = 1000;
    }
}

/* sw_plan_open; then the graphs are closed. */
static inline sw_status plan_once(const struct sw_program_spec *specs, int n,
                                  const struct sw_plan_options *options, struct sw_plan **out)
{
    const sw_status st = sw_plan_open(specs, n, options, out);
    for (int i = 0; i < n; i++) {
        sw_graph_close((struct sw_graph *)(uintptr_t)specs[i].graph);
    }
    return st;
}
