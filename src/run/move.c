// SPDX-License-Identifier: Apache-2.0
// Transfers between tiers: copies, reads and writes of whole tensors, and rows of a table by their
// indices. Experts that no token has chosen are not loaded. A disk error may be held back while
// other ranks wait for this one.
#include <stdio.h>

#include "run/executor.h"

/* Addresses of a transfer, for its step and piece. */
struct route {
    enum sw_tier tier; /* the other side: host or disk */
    bool in, rows;     /* in: towards the device; rows: of a table, by their indices */
    void *here;        /* on the device */
    size_t at, bytes;  /* offset in the tier's arena, or on the disk */
};

static bool goes_in(const struct sw_instr *instr)
{
    return instr->verb == SW_VERB_COPY_IN || instr->verb == SW_VERB_READ;
}

/* Both sides of a transfer for the piece of the job. With two slots, a write goes to the other slot
 * than a read. */
static struct route route_of(const struct sw_executor *ex, const struct sw_queue_job *job)
{
    const struct sw_instr *instr = &job->program->instrs[job->instr];
    const struct sw_operand *there = &job->program->operands[instr->operands], *here = there + 1;
    const bool in = goes_in(instr);
    const int64_t newest = ex->slots.late + ex->slots.is_due;
    const bool first = job->round == 0;
    const int64_t index[SW_RING_COUNT] = {[SW_RING_STEP] = ex->slots.step + !in,
                                          [SW_RING_LATE] =
                                              in && !first ? newest : ex->slots.late + !in,
                                          [SW_RING_NEWEST] = newest,
                                          [SW_RING_KEPT] = ex->slots.kept,
                                          [SW_RING_MADE] = ex->slots.kept + 1,
                                          [SW_RING_PIECE] = job->piece,
                                          [SW_RING_MICRO] = job->round};
    return (struct route){
        .tier = there->tier,
        .in = in,
        .rows = instr->n_in > 2 && instr->turn.chosen.n == 0,
        .here = sw_executor_address(ex, here) + sw_operand_shift(here, index),
        .at = there->offset + sw_operand_shift(there, index),
        .bytes = there->bytes,
    };
}

static sw_status fail_transfer(sw_status st, const struct sw_program *program, int32_t i)
{
    const struct sw_instr *instr = &program->instrs[i];
    return sw_fail_prefix(st, "instruction %d (%s of %s)", i, instr->about->name,
                          instr->about->tensor ? instr->about->tensor : "an activation");
}

/* ---- holding back disk errors while other ranks wait for this one ---- */

sw_status sw_executor_fault(struct sw_executor *ex)
{
    const int st = atomic_load(&ex->fault.st);
    return st < 0 ? SW_FAIL((sw_status)st, "%s", ex->fault.message) : SW_OK;
}

void sw_executor_forget_fault(struct sw_executor *ex)
{
    atomic_store(&ex->fault.st, SW_OK);
}

sw_status sw_executor_hold(struct sw_executor *ex, sw_status st)
{
    pthread_mutex_lock(&ex->fault.lock);
    if (atomic_load(&ex->fault.st) >= 0) {
        snprintf(ex->fault.message, sizeof ex->fault.message, "%s", sw_error_message());
        atomic_store(&ex->fault.st, (int)st);
    }
    pthread_mutex_unlock(&ex->fault.lock);
    return SW_OK;
}

/* Errors that do not come from the disk, such as a row index out of range, end the run. */
static sw_status fail_move(struct sw_executor *ex, sw_status st, enum sw_tier tier,
                           const struct sw_queue_job *job)
{
    const sw_status named = fail_transfer(st, job->program, job->instr);
    return job->holds_fault && tier == SW_TIER_DISK && st != SW_E_ARG ? sw_executor_hold(ex, named)
                                                                      : named;
}

static bool goes_without(const struct sw_executor *ex, enum sw_tier tier, bool holds_fault)
{
    return ex->options.no_transfers ||
           (tier == SW_TIER_DISK && holds_fault && atomic_load(&ex->fault.st) < 0);
}

/* A disk transfer through staging memory. */
static sw_status pass_through(struct sw_executor *ex, const struct route *r)
{
    return r->in ? sw_stage_read(&ex->stages[SW_QUEUE_READ], ex->swap, r->at, r->here, r->bytes)
                 : sw_stage_write(&ex->stages[SW_QUEUE_WRITE], ex->swap, r->at, r->here, r->bytes);
}

/* Copies between the device and an arena in host memory, and waits until the copy is done. */
static sw_status copy_between(struct sw_executor *ex, const struct route *r)
{
    const struct sw_stage *stage = &ex->stages[r->in ? SW_QUEUE_H2D : SW_QUEUE_D2H];
    char *there = ex->arenas[r->tier] + r->at;
    SW_TRY(sw_device_copy(ex->dev, stage->on, r->in ? r->here : there, r->in ? there : r->here,
                          r->bytes));
    return sw_stage_wait(stage);
}

/* A table whose rows are transferred. */
struct rows {
    enum sw_tier tier;
    size_t at, row; /* in bytes: offset of the table in its tier, and length of a row */
    const struct sw_stage *stage;
};

/* Loads rows ids[0, n) to `out`; all ids are valid. */
static sw_status load_rows(struct sw_executor *ex, const struct rows *r, const int32_t *ids, int n,
                           char *out)
{
    if (r->tier == SW_TIER_DISK) {
        return sw_stage_read_rows(r->stage, ex->swap, r->at, r->row, ids, n, out);
    }
    for (int i = 0; i < n; i++) {
        const struct route one = {.tier = SW_TIER_HOST,
                                  .in = true,
                                  .here = out + (size_t)i * r->row,
                                  .at = r->at + (size_t)ids[i] * r->row,
                                  .bytes = r->row};
        SW_TRY(copy_between(ex, &one));
    }
    return SW_OK;
}

/* Fills the row of an id that is not a token (sw_trim) with NaN, as a lookup does. */
static sw_status fill_row(struct sw_executor *ex, const struct rows *r, char *out)
{
    enum { NO_NUMBER = 0xff }; /* a NaN in every float dtype, if all bytes have it */
    SW_TRY(sw_device_fill(ex->dev, r->stage->on, out, NO_NUMBER, r->row));
    return sw_stage_wait(r->stage);
}

/* Loads ids[0, n), with one call per run of valid rows. */
static sw_status load_runs(struct sw_executor *ex, const struct rows *r, const int32_t *ids, int n,
                           char *out)
{
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && ids[i] >= 0 && ids[end] >= 0; end++) {
        }
        char *to = out + (size_t)i * r->row;
        SW_TRY(ids[i] < 0 ? fill_row(ex, r, to) : load_rows(ex, r, ids + i, end - i, to));
    }
    return SW_OK;
}

/* Loads the rows of a table, which begins at byte `at` of a tier, that the indices of a transfer
 * name. */
static sw_status move_rows(struct sw_executor *ex, const struct sw_queue_job *job,
                           const struct route *r)
{
    const struct sw_instr *instr = &job->program->instrs[job->instr];
    const struct sw_operand *operands = &job->program->operands[instr->operands];
    const struct sw_operand *table = &operands[0], *here = &operands[1], *indices = &operands[2];
    const int64_t n = (int64_t)(indices->bytes / sizeof(int32_t));
    const size_t row = n > 0 ? here->bytes / (size_t)n : 1;
    const int64_t n_rows = (int64_t)(table->bytes / row);
    const struct rows rows = {
        (enum sw_tier)table->tier, r->at, row,
        &ex->stages[table->tier == SW_TIER_DISK ? SW_QUEUE_READ : SW_QUEUE_H2D]};
    int32_t ids[SW_SWAP_ROWS];
    for (int64_t first = 0; first < n; first += SW_SWAP_ROWS) {
        const int64_t some = sw_min_i64(SW_SWAP_ROWS, n - first);
        SW_TRY(sw_stage_out(rows.stage, ids,
                            sw_executor_slot(ex, indices, job->round) + (size_t)first * sizeof *ids,
                            (size_t)some * sizeof *ids));
        for (int64_t i = 0; i < some; i++) {
            if (ids[i] < -1 || ids[i] >= n_rows) {
                return SW_FAIL(SW_E_ARG, "%s has %lld rows, got index %d",
                               instr->about->tensor ? instr->about->tensor : "a table",
                               (long long)n_rows, ids[i]);
            }
        }
        SW_TRY(load_runs(ex, &rows, ids, (int)some, (char *)r->here + (size_t)first * row));
    }
    return SW_OK;
}

/* Finds out whether the transfer is of experts to which the router gave no rows, in any part. */
static sw_status is_unchosen(struct sw_executor *ex, const struct sw_queue_job *job,
                             const struct route *r, bool *out)
{
    const struct sw_instr *instr = &job->program->instrs[job->instr];
    const struct sw_operand *operand = &job->program->operands[instr->operands + 2];
    const struct sw_stage *stage =
        &ex->stages[r->tier == SW_TIER_DISK ? SW_QUEUE_READ : SW_QUEUE_H2D];
    const size_t width = (size_t)instr->turn.chosen.of + SW_OFFSETS_BEHIND;
    const size_t parts = operand->bytes / sizeof(int32_t) / width;
    const int32_t *offsets = (const int32_t *)sw_executor_slot(ex, operand, job->round);
    *out = true;
    for (size_t part = 0; part < parts && *out; part++) {
        const int32_t *first = offsets + part * width + instr->turn.chosen.first;
        int32_t at[2];
        SW_TRY(sw_stage_out(stage, &at[0], first, sizeof at[0]));
        SW_TRY(sw_stage_out(stage, &at[1], first + instr->turn.chosen.n, sizeof at[1]));
        *out = at[0] == at[1];
    }
    return SW_OK;
}

/* Begins a disk transfer that reaches device memory directly. Transfers that are copied are done at
 * their end. Rows are read here, since they wait for many small requests, and nothing long is begun
 * beside them. */
sw_status sw_executor_begin_move(struct sw_executor *ex, const struct sw_queue_job *job,
                                 struct flight *f)
{
    const struct route r = route_of(ex, job);
    *f = (struct flight){.begin_ns = sw_now_ns()};
    if (goes_without(ex, r.tier, job->holds_fault)) {
        return SW_OK;
    }
    if (job->program->instrs[job->instr].turn.chosen.n > 0) {
        SW_TRY(is_unchosen(ex, job, &r, &f->is_unchosen));
        if (f->is_unchosen) {
            return SW_OK;
        }
    }
    const bool begins =
        r.tier == SW_TIER_DISK && !r.rows && !sw_stage_is_for_disk(&ex->stages[SW_QUEUE_READ]);
    sw_status st = r.rows   ? move_rows(ex, job, &r)
                   : begins ? sw_swap_begin(ex->swap, !r.in, r.at, r.here, r.bytes, &f->request)
                            : SW_OK;
    f->begun = begins && st >= 0;
    f->is_left = !begins && !r.rows;
    return st < 0 ? fail_move(ex, st, r.tier, job) : st;
}

sw_status sw_executor_end_move(struct sw_executor *ex, const struct sw_queue_job *job,
                               struct flight *f)
{
    const struct sw_program *program = job->program;
    const int32_t i = job->instr;
    const struct route r = route_of(ex, job);
    sw_status st = f->begun                 ? sw_swap_end(ex->swap, &f->request)
                   : !f->is_left            ? SW_OK
                   : r.tier == SW_TIER_DISK ? pass_through(ex, &r)
                                            : copy_between(ex, &r);
    st = st < 0 ? fail_move(ex, st, r.tier, job) : st;
    if (st < 0) {
        return st;
    }
    const enum sw_queue queue = program->instrs[i].queue;
    const int64_t now = sw_now_ns(), before = ex->ended_ns[queue];
    const int64_t bytes = f->is_unchosen ? 0 : program->instrs[i].bytes;
    if (program->instrs[i].turn.chosen.n > 0) {
        (f->is_unchosen ? ex->transferred.unchosen : ex->transferred.chosen)[r.tier] +=
            program->instrs[i].bytes;
    }
    (r.in ? ex->transferred.in : ex->transferred.out)[r.tier] += bytes;
    const struct sw_span span = {.queue = queue,
                                 .program = sw_executor_index(ex, program),
                                 .instr = i,
                                 .bytes_in = r.in ? bytes : 0,
                                 .bytes_out = r.in ? 0 : bytes,
                                 .begin_ns = f->begin_ns > before ? f->begin_ns : before,
                                 .end_ns = now};
    ex->ended_ns[queue] = now;
    sw_executor_ran(ex, &ex->programs[span.program].steps[i].profile, span.end_ns - span.begin_ns);
    sw_meter_ran(&ex->meter, &span);
    return SW_OK;
}
