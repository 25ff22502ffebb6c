// SPDX-License-Identifier: Apache-2.0
// Walks ranks by costs that it asks for, rank by rank.
#include <math.h>

#include "walk/clock.h"

/* paces, costs: [n] all 0 */
static sw_status walk(struct sw_clock_rank *ranks, int n, const int *kind_of,
                      const struct sw_prices *prices, struct sw_pace *paces,
                      struct sw_cost (**costs)[2])
{
    for (int i = 0; i < n; i++) {
        const struct sw_plan *plan = ranks[i].plan;
        costs[i] = sw_alloc_zero("walk", (size_t)plan->programs[0].n_instrs + 1, sizeof *costs[i]);
        SW_TRY_ALLOC(costs[i], "the costs of a step");
        paces[i] = prices->fill(prices->ctx, i, plan, costs[i]);
        ranks[i].pace = &paces[i];
    }
    return kind_of ? sw_clock_kinds(ranks, n, kind_of) : sw_clock_stages(ranks, n);
}

sw_status sw_clock_priced(struct sw_clock_rank *ranks, int n, const int *kind_of,
                          const struct sw_prices *prices, double *seconds)
{
    struct sw_pace *paces = sw_alloc_zero("walk", (size_t)n, sizeof *paces);
    struct sw_cost(**costs)[2] = sw_alloc_zero("walk", (size_t)n, sizeof *costs);
    const sw_status st = paces && costs
                             ? walk(ranks, n, kind_of, prices, paces, costs)
                             : SW_FAIL(SW_E_NOMEM, "out of host memory for the ranks of a step");
    *seconds = 0;
    for (int i = 0; i < n; i++) {
        *seconds = st >= 0 ? fmax(*seconds, ranks[i].seconds) : 0;
        ranks[i].pace = NULL;
        if (costs) {
            sw_free(costs[i]);
        }
    }
    sw_free(costs);
    sw_free(paces);
    return st;
}
