// SPDX-License-Identifier: Apache-2.0
// The math fingerprint: a hash of all that may change a bit of the training. Decisions about memory
// are not part of it. Two runs with one fingerprint can go on from each other's checkpoints.
#include "plan/private.h"

uint64_t sw_plan_fingerprint(const struct sw_graph *fused, const struct sw_plan_options *options)
{
    const int64_t fp16 = options->fp16;
    uint64_t h = sw_graph_fingerprint(fused, SW_HASH_INIT);
    h = sw_hash_str(h, options->kernel_set ? options->kernel_set : "");
    h = sw_hash(h, &options->policy.micro_batches, sizeof options->policy.micro_batches);
    h = sw_hash(h, &options->clip, sizeof options->clip);
    h = sw_hash(h, &fp16, sizeof fp16);
    h = options->rule ? sw_update_rule_hash(options->rule, h) : h;
    return sw_hash(h, &options->math.extra, sizeof options->math.extra);
}
