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

static const struct sw_value_info *operand(const struct sw_collective_call *call, int k)
{
    return &call->graph->values[call->op->in[k]];
}

/* What a wait for it is called. */
static const char *name_of(const struct sw_collective_call *call)
{
    const struct sw_value_info *slice = operand(call, 0);
    if (slice->name) {
        return slice->name;
    }
    return slice->param >= 0 ? call->graph->values[slice->param].name : "a parameter";
}

static struct sw_comm_item item_of(const struct sw_collective_call *call)
{
    const struct sw_value_info *slice = operand(call, 0);
    if (call->op->kind == SW_OP_REDUCE) {
        const struct sw_value_info *grad = operand(call, 1);
        clear_padding(grad, call->in[1]);
        return (struct sw_comm_item){
            SW_COMM_REDUCE_SCATTER, call->in[1], call->workspace,
            (size_t)sw_shape_elems(&slice->shape) * sw_dtype_bytes(grad->dtype), name_of(call)};
    }
    return (struct sw_comm_item){SW_COMM_ALL_GATHER, call->in[0], call->out[0],
                                 sw_value_bytes(slice), name_of(call)};
}

static void add(const struct sw_collective_call *call, const struct sw_comm_job *job, int n_ranks)
{
    const struct sw_round *round = &job->rounds[call->op->micro];
    const struct sw_reduction reduction = {
        .dtype = operand(call, 1)->dtype,
        .src = call->in[1],
        .workspace = call->workspace,
        .acc = call->in[0],
        .n = sw_shape_elems(&operand(call, 0)->shape),
        /* attrs.n: sums of whole steps, of all ranks */
        .fresh = round->first || call->op->attrs.n > 0,
        .n_contributors = call->op->attrs.n > 0 ? 0 : round->n_active,
    };
    sw_comm_add_slices(&reduction, n_ranks);
}

/* Words of exact sums add without rounding, so the order of ranks cannot matter. */
static sw_status merge_stats(sw_comm *comm, const struct sw_collective_call *call)
{
    const struct sw_value_info *info = operand(call, 0);
    const int64_t n_words = sw_shape_elems(&info->shape);
    const int size = sw_comm_size(comm);
    int64_t *stats = call->in[0];
    const int64_t *all = call->workspace;
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

static sw_status run_group(sw_comm *comm, const struct sw_comm_job *job, struct sw_comm_item *items)
{
    if (job->calls[0].op->kind == SW_OP_STATS_MERGE) {
        return merge_stats(comm, &job->calls[0]);
    }
    for (int32_t k = 0; k < job->n; k++) {
        items[k] = item_of(&job->calls[k]);
    }
    SW_TRY(sw_comm_run(comm, items, job->n));
    for (int32_t k = 0; k < job->n; k++) {
        if (job->calls[k].op->kind == SW_OP_REDUCE) {
            add(&job->calls[k], job, sw_comm_size(comm));
        }
    }
    return SW_OK;
}

int64_t sw_collectives_bytes(const struct sw_comm_job *job, int ranks)
{
    int64_t slices = 0;
    for (int32_t k = 0; k < job->n; k++) {
        const struct sw_collective_call *call = &job->calls[k];
        const struct sw_value_info *slice = operand(call, 0);
        slices +=
            call->op->kind == SW_OP_REDUCE
                ? sw_shape_elems(&slice->shape) * (int64_t)sw_dtype_bytes(operand(call, 1)->dtype)
                : (int64_t)sw_value_bytes(slice);
    }
    return slices * (ranks - 1);
}

sw_status sw_collectives_run(sw_comm *comm, const struct sw_comm_job *job,
                             struct sw_comm_item *items)
{
    const int64_t begin = sw_now_ns();
    const sw_status st = run_group(comm, job, items);
    if (st < 0) {
        const struct sw_op *op = job->calls[0].op;
        return sw_fail_prefix(st, "instruction %d (%s in %s)", job->instr, sw_op_name(op),
                              sw_op_where(job->program->graph, op));
    }
    const int64_t bytes = sw_collectives_bytes(job, sw_comm_size(comm)), end = sw_now_ns();
    sw_meter_ran(job->meter, &(struct sw_span){.queue = SW_QUEUE_COMM,
                                               .program = job->i_program,
                                               .instr = job->instr,
                                               .bytes_in = bytes,
                                               .bytes_out = bytes,
                                               .begin_ns = begin,
                                               .end_ns = end});
    if (job->ns) {
        *job->ns += end - begin;
    }
    return SW_OK;
}
