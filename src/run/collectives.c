// SPDX-License-Identifier: Apache-2.0
// The canonical sum over ranks (architecture 5a): the slices of a gradient travel to their owners as they
// are, and the owner adds them in rank order onto its running fp32 accumulator. With R ranks and micro-step
// j that is k = jR, jR+1, ..: the order in which one rank would have added its micro-batches.
#include "run/collectives.h"

#include <string.h>

/* What lies between the shape and the storage is sent too, so it must hold zeros. */
static void clear_padding(const struct sw_value_info *info, void *data)
{
    const size_t used = sw_value_bytes(info), all = sw_value_storage_bytes(info);
    memset((char *)data + used, 0, all - used);
}

static void add_slice(float *acc, enum sw_dtype dtype, const void *slice, int64_t n, bool first)
{
    if (first) {
        sw_convert(SW_F32, acc, dtype, slice, n);
        return;
    }
    switch (dtype) {
    case SW_F32: {
        const float *x = slice;
        for (int64_t i = 0; i < n; i++) {
            acc[i] += x[i];
        }
        break;
    }
    case SW_BF16: {
        const uint16_t *x = slice;
        for (int64_t i = 0; i < n; i++) {
            acc[i] += sw_bf16_to_f32(x[i]);
        }
        break;
    }
    default: {
        const uint16_t *x = slice;
        for (int64_t i = 0; i < n; i++) {
            acc[i] += sw_f16_to_f32(x[i]);
        }
        break;
    }
    }
}

static sw_status reduce(const struct sw_collectives *ranks, const struct sw_collective_call *call)
{
    const struct sw_value_info *acc = &call->graph->values[call->op->in[0]];
    const struct sw_value_info *grad = &call->graph->values[call->op->in[1]];
    const int64_t n = sw_shape_elems(&acc->shape);
    const size_t slice_bytes = (size_t)n * sw_dtype_bytes(grad->dtype);
    clear_padding(grad, call->in[1]);
    SW_TRY(ranks->all_to_all(ranks->ctx, call->in[1], call->workspace, slice_bytes, acc->name));
    for (int r = 0; r < call->n_active; r++) {
        add_slice(call->in[0], grad->dtype, (const char *)call->workspace + (size_t)r * slice_bytes,
                  n, call->first && r == 0);
    }
    return SW_OK;
}

static sw_status gather(const struct sw_collectives *ranks, const struct sw_collective_call *call)
{
    const struct sw_value_info *slice = &call->graph->values[call->op->in[0]];
    const char *what = slice->name ? slice->name : "a parameter";
    return ranks->all_gather(ranks->ctx, call->in[0], call->out[0], sw_value_bytes(slice), what);
}

/* Words of exact sums add without rounding, so the order of ranks cannot matter. */
static sw_status merge_stats(const struct sw_collectives *ranks,
                             const struct sw_collective_call *call)
{
    const struct sw_value_info *info = &call->graph->values[call->op->in[0]];
    const int64_t n_words = sw_shape_elems(&info->shape);
    int64_t *stats = call->in[0];
    const int64_t *all = call->workspace;
    SW_TRY(ranks->all_gather(ranks->ctx, stats, call->workspace, sw_value_bytes(info),
                             info->name ? "the gradient norm" : "the norms of a tensor"));
    for (int64_t w = 0; w < n_words; w++) {
        int64_t sum = 0;
        for (int r = 0; r < ranks->size; r++) {
            sum += all[r * n_words + w];
        }
        stats[w] = sum;
    }
    return SW_OK;
}

sw_status sw_collective_run(const struct sw_collectives *ranks,
                            const struct sw_collective_call *call)
{
    switch (call->op->kind) {
    case SW_OP_REDUCE:
        return reduce(ranks, call);
    case SW_OP_GATHER:
        return gather(ranks, call);
    default:
        return merge_stats(ranks, call);
    }
}
