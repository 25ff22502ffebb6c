// SPDX-License-Identifier: Apache-2.0
// The canonical sum over ranks (architecture 5a): the slices of a gradient travel to their owners as they
// are, and the owner adds them in rank order onto its running fp32 accumulator. With R ranks and micro-step
// j that is k = jR, jR+1, ..: the order in which one rank would have added its micro-batches.
#include "run/collectives.h"

static sw_status wait_for(const struct sw_stage *stage)
{
    return stage->dev->ops->stream_wait(stage->dev, stage->on);
}

static const struct sw_value_info *operand(const struct sw_collective_call *call, int k)
{
    return &call->graph->values[call->op->in[k]];
}

/* What lies between the shape and the storage is sent too, so it must hold zeros. */
static sw_status clear_padding(const struct sw_stage *stage, const struct sw_collective_call *call)
{
    const struct sw_value_info *grad = operand(call, 1);
    const size_t used = sw_value_bytes(grad), all = sw_value_storage_bytes(grad);
    return sw_device_fill(stage->dev, stage->on, (char *)call->in[1] + used, 0, all - used);
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
        return (struct sw_comm_item){SW_COMM_REDUCE_SCATTER, call->in[1], call->workspace,
                                     (size_t)sw_shape_elems(&slice->shape) *
                                         sw_dtype_bytes(operand(call, 1)->dtype),
                                     name_of(call)};
    }
    return (struct sw_comm_item){SW_COMM_ALL_GATHER, call->in[0], call->out[0],
                                 sw_value_bytes(slice), name_of(call)};
}

static sw_status add(const struct sw_collective_call *call, const struct sw_comm_job *job,
                     int n_ranks)
{
    const struct sw_round *round = &job->rounds[call->op->micro];
    const bool of_steps = call->op->attrs.reduce.whole_step; /* sums of whole steps, of all ranks */
    const struct sw_slice_sum sum = {
        .acc = call->in[0],
        .dtype = operand(call, 1)->dtype,
        .slices = call->workspace,
        .n = sw_shape_elems(&operand(call, 0)->shape),
        .n_slices = of_steps ? n_ranks : round->n_active,
        .fresh = round->first || of_steps,
    };
    return sw_device_add_slices(job->stage->dev, job->stage->on, &sum);
}

/* Words of exact sums add without rounding, so the order of ranks cannot matter. */
static sw_status merge_stats(sw_comm *comm, const struct sw_comm_job *job,
                             struct sw_comm_item *items)
{
    const struct sw_collective_call *call = &job->calls[0];
    const struct sw_value_info *info = operand(call, 0);
    const struct sw_stage *stage = job->stage;
    items[0] = (struct sw_comm_item){SW_COMM_ALL_GATHER, call->in[0], call->workspace,
                                     sw_value_bytes(info),
                                     info->name ? "the gradient norm" : "the norms of a tensor"};
    SW_TRY(sw_stage_exchange(stage, comm, items, 1, items + 1));
    SW_TRY(sw_device_add_words(stage->dev, stage->on, call->in[0], call->workspace,
                               sw_comm_size(comm), sw_shape_elems(&info->shape)));
    return wait_for(stage);
}

static sw_status run_group(sw_comm *comm, const struct sw_comm_job *job, struct sw_comm_item *items)
{
    if (job->calls[0].op->kind == SW_OP_STATS_MERGE) {
        return merge_stats(comm, job, items);
    }
    for (int32_t k = 0; k < job->n; k++) {
        if (job->calls[k].op->kind == SW_OP_REDUCE) {
            SW_TRY(clear_padding(job->stage, &job->calls[k]));
        }
        items[k] = item_of(&job->calls[k]);
    }
    SW_TRY(wait_for(job->stage));
    SW_TRY(sw_stage_exchange(job->stage, comm, items, job->n, items + job->n));
    for (int32_t k = 0; k < job->n; k++) {
        if (job->calls[k].op->kind == SW_OP_REDUCE) {
            SW_TRY(add(&job->calls[k], job, sw_comm_size(comm)));
        }
    }
    return wait_for(job->stage);
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
