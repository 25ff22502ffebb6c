// SPDX-License-Identifier: Apache-2.0
// Collects a rank's weights: the ranges of each tensor that its shards cover.
#include "engine/tests/owned.h"

sw_status test_owned_weights(struct sw_engine *e, float *all, int64_t most)
{
    int64_t at = 0;
    for (int32_t i = 0; i < sw_engine_n_tensors(e); i++) {
        const char *name;
        struct sw_shape shape;
        SW_TRY(sw_engine_tensor(e, i, &name, &shape));
        const int64_t elems = sw_shape_elems(&shape);
        const struct sw_persistent *item = sw_weights_find(&e->weights, name)->work;
        struct sw_run_iter iter;
        struct sw_run run;
        if (at + elems > most) {
            return SW_FAIL(SW_E_ARG, "the test's model is larger than its array");
        }
        sw_owned_begin(&item->layout, &iter);
        while (sw_runs_next(&iter, &run)) {
            SW_TRY(sw_get_weight(e, name, run.first, run.n, all + at + run.first));
        }
        at += elems;
    }
    return SW_OK;
}
