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

static sw_status reduce(sw_comm *comm, const struct sw_collective_call *call)
{
    const struct sw_value_info *acc = &call->graph->values[call->op->in[0]];
    const struct sw_value_info *grad = &call->graph->values[call->op->in[1]];
    clear_padding(grad, call->in[1]);
    const struct sw_reduction reduction = {
        .dtype = grad->dtype,
        .src = call->in[1],
        .workspace = call->workspace,
        .acc = call->in[0],
        .n = sw_shape_elems(&acc->shape),
        .fresh = call->first,
        .n_contributors = call->n_active,
    };
    return sw_comm_reduce_scatter(comm, &reduction, acc->name);
}

static sw_status gather(sw_comm *comm, const struct sw_collective_call *call)
{
    const struct sw_value_info *slice = &call->graph->values[call->op->in[0]];
    const char *what = slice->name ? slice->name : "a parameter";
    return sw_comm_all_gather(comm, call->in[0], call->out[0], sw_value_bytes(slice), what);
}

/* Words of exact sums add without rounding, so the order of ranks cannot matter. */
static sw_status merge_stats(sw_comm *comm, const struct sw_collective_call *call)
{
    const struct sw_value_info *info = &call->graph->values[call->op->in[0]];
    const int64_t n_words = sw_shape_elems(&info->shape);
    int64_t *stats = call->in[0];
    const int64_t *all = call->workspace;
    const int size = sw_comm_size(comm);
    SW_TRY(sw_comm_all_gather(comm, stats, call->workspace, sw_value_bytes(info),
                              info->name ? "the gradient norm" : "the norms of a tensor"));
    for (int64_t w = 0; w < n_words; w++) {
        int64_t sum = 0;
        for (int r = 0; r < size; r++) {
            sum += all[r * n_words + w];
        }
        stats[w] = sum;
    }
    return SW_OK;
}

sw_status sw_collective_run(sw_comm *comm, const struct sw_collective_call *call)
{
    switch (call->op->kind) {
    case SW_OP_REDUCE:
        return reduce(comm, call);
    case SW_OP_GATHER:
        return gather(comm, call);
    default:
        return merge_stats(comm, call);
    }
}
