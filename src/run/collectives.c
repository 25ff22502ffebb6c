// SPDX-License-Identifier: Apache-2.0
// The canonical sum over ranks. The shards of a gradient travel to their owners unchanged, and the
// owner adds them in rank order to its fp32 accumulator. With R ranks and micro-step j these are
// the micro-batches jR, jR+1, .. of the order in which a single rank adds.
#include "run/collectives.h"

/* Zeroes the padding after the tensor, since it is sent, too. */
static sw_status clear_padding(const struct sw_stage *stage, const struct sw_collective_call *call)
{
    const struct sw_operand *grad = &call->operands[1];
    return sw_device_fill(stage->dev, stage->on, (char *)call->at[1] + grad->bytes, 0,
                          grad->room - grad->bytes);
}

/* Name of the instruction, for waits and messages. */
static const char *name_of(const struct sw_collective_call *call)
{
    return call->instr->about->tensor ? call->instr->about->tensor : "a parameter";
}

static struct sw_comm_item item_of(const struct sw_collective_call *call)
{
    const size_t slice = (size_t)call->instr->bytes;
    return call->instr->verb == SW_VERB_REDUCE
               ? (struct sw_comm_item){.op = SW_COMM_REDUCE_SCATTER,
                                       .src = call->at[1],
                                       .dst = call->workspace,
                                       .slice_bytes = slice,
                                       .what = name_of(call),
                                       .dtype = call->instr->exchange.dtype}
               : (struct sw_comm_item){.op = SW_COMM_ALL_GATHER,
                                       .src = call->at[0],
                                       .dst = call->at[1],
                                       .slice_bytes = slice,
                                       .what = name_of(call)};
}

static bool is_idle(sw_comm *comm, const struct sw_comm_job *job,
                    const struct sw_collective_call *call)
{
    return sw_comm_rank(comm) >= sw_step_active(&job->plan->step, job->round + call->instr->micro);
}

/* The library adds what all ranks send, also those without a micro-batch. */
static sw_status clear_idle(sw_comm *comm, const struct sw_comm_job *job,
                            const struct sw_collective_call *call)
{
    const struct sw_operand *grad = &call->operands[1];
    const bool idle = !call->instr->exchange.whole_step && is_idle(comm, job, call);
    return job->stage->library_sums && idle
               ? sw_device_fill(job->stage->dev, job->stage->on, call->at[1], 0, grad->bytes)
               : SW_OK;
}

/* Adds the shards that have arrived to the sum of this rank. */
static sw_status add(const struct sw_collective_call *call, const struct sw_comm_job *job,
                     int n_ranks)
{
    const struct sw_instr *instr = call->instr;
    const int64_t round = instr->micro < 0 ? 0 : job->round + instr->micro;
    const bool of_steps = instr->exchange.whole_step; /* sums of whole steps come from all ranks */
    const int active = (int)sw_min_i64(n_ranks, sw_step_active(&job->plan->step, round));
    const struct sw_slice_sum sum = {
        .acc = call->at[0],
        .dtype = instr->exchange.dtype,
        .slices = call->workspace,
        .n = instr->bytes / (int64_t)sw_dtype_bytes(instr->exchange.dtype),
        .n_slices = job->stage->library_sums ? 1
                    : of_steps               ? n_ranks
                                             : active,
        .fresh = (round == 0 && !instr->exchange.continues) || of_steps,
    };
    return sw_device_add_slices(job->stage->dev, job->stage->on, &sum);
}

/* Words of exact sums add without rounding, so the order of ranks does not matter. */
static sw_status merge_words(const struct sw_comm_job *job, struct sw_comm_item *items)
{
    const struct sw_collective_call *call = &job->calls[0];
    const struct sw_stage *stage = job->stage;
    const int64_t bytes = call->instr->bytes;
    items[0] = (struct sw_comm_item){.op = SW_COMM_ALL_GATHER,
                                     .src = call->at[0],
                                     .dst = call->workspace,
                                     .slice_bytes = (size_t)bytes,
                                     .what = call->instr->about->tensor ? "the gradient norm"
                                                                        : "the norms of a tensor"};
    SW_TRY(sw_stage_exchange(stage, &call->route, items, 1, items + 1));
    SW_TRY(sw_device_add_words(stage->dev, stage->on, call->at[0], call->workspace,
                               sw_comm_size(call->route.comm), bytes / (int64_t)sizeof(int64_t)));
    return sw_stage_wait(stage);
}

/* For the exchanges of rows in a batch: exchanges their numbers first; then the rows replace
 * the gradient. The host does this, since plans have such exchanges only if it reaches device
 * memory. */
static sw_status count_rows(sw_comm *comm, const struct sw_comm_job *job,
                            struct sw_comm_item *items)
{
    const int ranks = sw_comm_size(comm);
    int32_t n = 0;
    for (int32_t k = 0; k < job->n; k++) {
        const struct sw_collective_call *call = &job->calls[k];
        if (call->instr->exchange.rows > 0) {
            items[n++] = sw_sparse_count(call, ranks, is_idle(comm, job, call));
        }
    }
    return n > 0 ? sw_stage_exchange(job->stage, &job->calls[0].route, items, n, items + job->n)
                 : SW_OK;
}

/* Packs the rows of an exchange in the memory of its gradient. Shortens the item to them; *more
 * changes by the difference from the bytes of shards, with the counts of rows included. */
static void pack_rows(sw_comm *comm, const struct sw_comm_job *job,
                      const struct sw_collective_call *call, struct sw_comm_item *item,
                      struct sw_instr_traffic *more)
{
    const int ranks = sw_comm_size(comm);
    const int64_t most = sw_sparse_most(call, ranks);
    sw_sparse_pack(call, ranks, is_idle(comm, job, call), most);
    item->slice_bytes = (size_t)sw_instr_rows_bytes(most, call->instr->exchange.row_elems,
                                                    call->instr->exchange.dtype);
    const int64_t each = (int64_t)(item->slice_bytes + sizeof most) - call->instr->bytes;
    more->sent += each * (ranks - 1);
    more->received += each * (ranks - 1);
}

static sw_status run_batch(sw_comm *comm, const struct sw_comm_job *job, struct sw_comm_item *items,
                           struct sw_instr_traffic *more)
{
    if (job->calls[0].instr->verb == SW_VERB_MERGE) {
        return merge_words(job, items);
    }
    SW_TRY(sw_stage_wait(job->stage));
    SW_TRY(count_rows(comm, job, items));
    for (int32_t k = 0; k < job->n; k++) {
        const struct sw_collective_call *call = &job->calls[k];
        items[k] = item_of(call);
        if (call->instr->exchange.rows > 0) {
            pack_rows(comm, job, call, &items[k], more);
        } else if (call->instr->verb == SW_VERB_REDUCE) {
            SW_TRY(clear_padding(job->stage, call));
            SW_TRY(clear_idle(comm, job, call));
        }
    }
    SW_TRY(sw_stage_wait(job->stage));
    SW_TRY(sw_stage_exchange(job->stage, &job->calls[0].route, items, job->n, items + job->n));
    for (int32_t k = 0; k < job->n; k++) {
        if (job->calls[k].instr->exchange.rows > 0) {
            const int64_t round = job->round + job->calls[k].instr->micro;
            sw_sparse_add(&job->calls[k], sw_comm_rank(comm),
                          sw_step_active(&job->plan->step, round), round == 0);
        } else if (job->calls[k].instr->verb == SW_VERB_REDUCE) {
            SW_TRY(add(&job->calls[k], job, sw_comm_size(comm)));
        }
    }
    return sw_stage_wait(job->stage);
}

/* Bytes that the batch sends to the other ranks, and gets from them. Rows count as whole shards. */
static struct sw_instr_traffic count_bytes(const struct sw_comm_job *job, sw_comm *comm)
{
    struct sw_instr_traffic sum = {0, 0};
    for (int32_t k = 0; k < job->n; k++) {
        struct sw_instr instr = *job->calls[k].instr;
        instr.exchange.rows = 0;
        const struct sw_instr_traffic one =
            sw_instr_traffic(&instr, sw_comm_size(comm), sw_comm_rank(comm));
        sum.sent += one.sent;
        sum.received += one.received;
    }
    return sum;
}

/* "forward of micro-batch 5", numbered over all ranks; what runs once a step has no number. */
static void write_phase(const struct sw_comm_job *job, struct sw_str *out)
{
    const struct sw_plan *plan = job->plan;
    const struct sw_program *program = &plan->programs[job->i_program];
    const struct sw_instr *instr = job->calls[0].instr;
    const struct sw_step *step = &plan->step;
    sw_str_puts(out, sw_segment_name(instr->segment));
    if (program->kind != SW_PROGRAM_TRAIN) {
        sw_str_printf(out, " of %s", sw_program_kind_name(program->kind));
    } else if (instr->segment < SW_SEGMENT_UPDATE && instr->micro >= 0) {
        const int64_t round = job->round + instr->micro;
        sw_str_printf(
            out, " of micro-batch %lld",
            (long long)(round * step->ranks + plan->groups[SW_GROUP_DATA].me / step->per_rank));
    }
}

/* Names the instruction, with its phase; that of an activation with its group, of which there may
 * be several. */
sw_status sw_collectives_blame(const struct sw_comm_job *job, sw_status st)
{
    const struct sw_instr *instr = job->calls[0].instr;
    struct sw_str text = {0};
    char name[64];
    sw_str_printf(&text, "%s", instr->about->name);
    if (instr->verb > SW_VERB_MERGE) {
        const struct sw_group *group = &job->plan->groups[instr->exchange.group];
        sw_str_printf(&text, " of the group %s", sw_group_format(group, name, sizeof name));
    }
    sw_str_printf(&text, " in %s, ", instr->about->where);
    write_phase(job, &text);
    st = sw_fail_prefix(st, "instruction %d (%s)", job->instr, sw_str_text(&text));
    sw_str_fini(&text);
    return st;
}

void sw_collectives_ran(const struct sw_comm_job *job, const struct sw_instr_traffic *more,
                        int64_t begin_ns, int64_t end_ns)
{
    const struct sw_instr_traffic bytes = count_bytes(job, job->calls[0].route.comm);
    sw_meter_ran(job->meter, &(struct sw_span){.queue = job->stage->queue,
                                               .program = job->i_program,
                                               .instr = job->instr,
                                               .bytes_in = bytes.received + more->received,
                                               .bytes_out = bytes.sent + more->sent,
                                               .begin_ns = begin_ns,
                                               .end_ns = end_ns});
    if (job->ns) {
        *job->ns += end_ns - begin_ns;
    }
}

sw_status sw_collectives_run(const struct sw_comm_job *job, struct sw_comm_item *items,
                             struct sw_instr_traffic *more)
{
    const int64_t begin = sw_now_ns();
    *more = (struct sw_instr_traffic){0, 0};
    const sw_status st = job->calls[0].instr->verb > SW_VERB_MERGE
                             ? sw_activation_run(job->stage, &job->calls[0], items, more)
                             : run_batch(job->calls[0].route.comm, job, items, more);
    if (st < 0) {
        return sw_collectives_blame(job, st);
    }
    if (!job->stage->in_order) {
        sw_collectives_ran(job, more, begin, sw_now_ns());
    }
    return SW_OK;
}
