// SPDX-License-Identifier: Apache-2.0
// Whole parameters of a model whose ranks hold parts of them.
#include <string.h>

#include "check/private.h"
#include "layout/layout.h"

/* Reads what this rank owns of a parameter. No other rank owns it, too. Other elements are 0. */
static sw_status read_own(sw_engine *e, const struct sw_parameter *param, float *out)
{
    const int64_t n = sw_shape_elems(&param->work->layout.whole);
    struct sw_run_iter iter;
    struct sw_run run;
    memset(out, 0, (size_t)n * sizeof *out);
    sw_owned_begin(&param->work->layout, &iter);
    while (sw_runs_next(&iter, &run)) {
        SW_TRY(sw_weights_get(sw_engine_weights(e), param, run.first, run.n, out + run.first));
    }
    return SW_OK;
}

sw_status sw_check_weight(const struct check *c, sw_engine *e, const struct sw_parameter *param,
                          float *out)
{
    const int64_t n = sw_shape_elems(&param->work->layout.whole);
    const int ranks = c->comm ? sw_comm_size(c->comm) : 1;
    SW_TRY(read_own(e, param, out));
    if (ranks == 1) {
        return SW_OK;
    }
    float *all = sw_alloc("check", (size_t)(n * ranks) * sizeof *all);
    SW_TRY_ALLOC(all, "weights");
    const sw_status st =
        sw_comm_all_gather(c->comm, out, all, (size_t)n * sizeof *out, param->work->name);
    memset(out, 0, (size_t)n * sizeof *out);
    for (int64_t i = 0; i < n * ranks && st >= 0; i++) {
        out[i % n] += all[i];
    }
    sw_free(all);
    return st;
}
