// SPDX-License-Identifier: Apache-2.0
// Sizes that no pass chooses, but that a user may reduce when a budget is too small.
#include "plan/private.h"
#include "plan/technique.h"

/* A workspace has a part for each thread. */
static void advise_threads(const struct sw_shortage *s, struct sw_str *out)
{
    if (s->tier == SW_TIER_DEVICE && sw_plan_largest_is_workspace(s->program)) {
        sw_advise(out, ", ", "fewer spillway.threads");
    }
}

const struct sw_technique sw_technique_threads = {
    .keys = "spillway.threads",
    .advise = advise_threads,
};

static void advise_loss_chunk(const struct sw_shortage *s, struct sw_str *out)
{
    if (s->tier == SW_TIER_DEVICE &&
        sw_ir_attrs(sw_program_peak(s->program)) == SW_ATTRS_LINEAR_CE) {
        sw_advise(out, ", ", "a smaller spillway.loss_chunk");
    }
}

const struct sw_technique sw_technique_loss_chunk = {
    .keys = "spillway.loss_chunk",
    .advise = advise_loss_chunk,
};

static void advise_micro_batch(const struct sw_shortage *s, struct sw_str *out)
{
    if (s->tier == SW_TIER_DEVICE) {
        sw_advise(out, ", ", "a smaller train_micro_batch_size_per_gpu or --seq-len");
    }
}

const struct sw_technique sw_technique_micro_batch = {
    .keys = "train_micro_batch_size_per_gpu",
    .advise = advise_micro_batch,
};
