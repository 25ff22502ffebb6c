// SPDX-License-Identifier: Apache-2.0
// Plans of graphs that a test makes for them alone.
#pragma once

#include "plan/plan.h"

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
