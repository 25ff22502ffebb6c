// SPDX-License-Identifier: Apache-2.0
// Folders and checkpoints of an engine: the progress of its training goes with its weights.
#include "engine/private.h"

sw_status sw_export(sw_engine *e, const char *folder, enum sw_dtype dtype)
{
    SW_TRY(sw_engine_settle(e));
    return sw_weights_export_folder(&e->weights, e->options.run.comm, folder, dtype);
}

static struct sw_weights_run run_of(const struct sw_engine *e)
{
    return (struct sw_weights_run){.comm = e->options.run.comm,
                                   .rank = e->world.rank,
                                   .ranks = e->world.size,
                                   .device = e->device,
                                   .tokens = e->sizes.tokens,
                                   .training = &e->training,
                                   .step = e->progress.step,
                                   .applied = e->progress.applied,
                                   .samples = e->progress.samples,
                                   .scaler = e->optimizer.scaler};
}

sw_status sw_save(sw_engine *e, const char *folder, const struct sw_save_options *options)
{
    if (e->progress.failed || e->progress.phase != 0) {
        return SW_FAIL(SW_E_ARG, "sw_save: a step is under way or failed half way");
    }
    SW_TRY(sw_engine_settle(e));
    const struct sw_weights_run run = run_of(e);
    return sw_weights_save(&e->weights, &run, folder, options);
}

static void take_over(struct sw_engine *e, const struct sw_weights_run *run)
{
    sw_executor_forget_fault(e->executor);
    e->progress = (struct engine_progress){
        .step = run->step,
        .applied = run->applied,
        .samples = run->samples,
        /* a failed step has destroyed state that a checkpoint does not hold */
        .rolled_back = true,
    };
    e->optimizer.scaler = run->scaler;
}

sw_status sw_load(sw_engine *e, const char *folder)
{
    struct sw_weights_run run = run_of(e);
    bool begun;
    const sw_status st = sw_weights_load(&e->weights, &run, folder, &begun);
    e->progress.failed |= begun; /* until the load is complete on all ranks */
    if (st == SW_OK) {
        take_over(e, &run);
    }
    return st;
}
