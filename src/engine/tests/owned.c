// SPDX-License-Identifier: Apache-2.0
// Trains steps on drawn ids, and collects a rank's weights: the ranges of each tensor that its
// shards cover.
#include "engine/tests/owned.h"

#include <string.h>

sw_status test_owned_weights(struct sw_engine *e, float *all, int64_t most)
{
    int64_t at = 0;
    SW_TRY(sw_engine_settle(e)); /* a rank may have no weight */
    for (int32_t i = 0; i < sw_engine_n_tensors(e); i++) {
        const char *name;
        struct sw_shape shape;
        SW_TRY(sw_engine_tensor(e, i, &name, &shape));
        const int64_t elems = sw_shape_elems(&shape);
        const struct sw_parameter *param = sw_weights_find(&e->weights, name);
        struct sw_run_iter iter;
        struct sw_run run;
        if (at + elems > most) {
            return SW_FAIL(SW_E_ARG, "the test's model is larger than its array");
        }
        sw_owned_begin(&param->work->layout, &iter);
        while (sw_runs_next(&iter, &run)) {
            SW_TRY(sw_weights_get(&e->weights, param, run.first, run.n, all + at + run.first));
        }
        at += elems;
    }
    return SW_OK;
}

sw_status test_same_reports(const struct sw_engine *e, const struct sw_step_report *mine)
{
    double all[SW_THREAD_RANKS_MAX][2], own[2] = {mine->loss, mine->grad_norm};
    if (e->world.size == 1) {
        return SW_OK;
    }
    SW_TRY(sw_comm_all_gather(e->options.run.comm, own, all, sizeof own, "the reports"));
    for (int r = 1; r < e->world.size; r++) {
        if (memcmp(all[r], all[0], sizeof own) != 0) {
            return SW_FAIL(SW_E_ARG, "rank %d has loss %.17g, norm %.17g; rank 0 %.17g, %.17g", r,
                           all[r][0], all[r][1], all[0][0], all[0][1]);
        }
    }
    return SW_OK;
}

sw_status test_train_step(sw_engine *e, int n_micro, int rows, int tokens, int words,
                          struct sw_step_report *report)
{
    const struct sw_shape shape = {2, {rows, tokens}};
    const int each = rows * tokens;
    int32_t ids[TEST_MOST_IDS];
    struct sw_tensor tensors[TEST_MOST_MICRO][2];
    struct sw_batch batches[TEST_MOST_MICRO];
    int n = 0;
    SW_ASSERT(n_micro <= TEST_MOST_MICRO && n_micro * each <= TEST_MOST_IDS);
    for (int k = e->data.rank; k < n_micro; k += e->data.size, n++) {
        for (int i = 0; i < each; i++) {
            const uint64_t at = (uint64_t)((e->progress.step * n_micro + k) * each + i);
            ids[n * each + i] = (int32_t)(sw_philox_u64(9, 1, at) % (uint64_t)words);
        }
        const struct sw_view view = {.data = &ids[n * each], .dtype = SW_I32, .shape = shape};
        tensors[n][0] = (struct sw_tensor){"input_ids", view};
        tensors[n][1] = (struct sw_tensor){"labels", view};
        batches[n] = (struct sw_batch){tensors[n], 2};
    }
    return sw_train_batch(e, batches, n, report);
}
