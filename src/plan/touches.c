// SPDX-License-Identifier: Apache-2.0
// The latest accesses of each queue. Only roots have an entry: most values of a large plan are
// short-lived versions.
#include <string.h>

#include "plan/private.h"

sw_status sw_touches_open(struct sw_touches *touches, const struct sw_ir *ir)
{
    int32_t n = 0;
    *touches = (struct sw_touches){.ir = ir};
    touches->place_of = sw_alloc("plan", ((size_t)ir->n_values + 1) * sizeof *touches->place_of);
    SW_TRY_ALLOC(touches->place_of, "the plan");
    for (sw_value v = 0; v < ir->n_values; v++) {
        touches->place_of[v] = ir->values[v].base < 0 ? n++ : -1;
    }
    const size_t bytes = ((size_t)n + 1) * sizeof *touches->at;
    touches->at = sw_alloc("plan", bytes);
    if (!touches->at) {
        sw_touches_close(touches);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
    }
    memset(touches->at, 0xff, bytes);
    return SW_OK;
}

void sw_touches_close(struct sw_touches *touches)
{
    sw_free(touches->place_of);
    sw_free(touches->at);
    *touches = (struct sw_touches){0};
}
