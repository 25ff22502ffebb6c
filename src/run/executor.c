// SPDX-License-Identifier: Apache-2.0
// The executor follows the walk of a step. Transfers that a phase leaves in flight are known to the
// next one.
#include <stdio.h>
#include <string.h>

#include "run/executor.h"

/* ---- the events of a walk ---- */

static struct sw_waiter waiter_of(const struct sw_executor *ex, const struct sw_walk *at)
{
    return (struct sw_waiter){sw_executor_index(ex, at->program), at->instr};
}

static sw_status barrier(struct sw_executor *ex, struct sw_waiter waiter)
{
    return ex->queues ? sw_queues_barrier(ex->queues, &waiter) : SW_OK;
}

static sw_status wait_for(struct sw_executor *ex, enum sw_queue queue, int64_t until,
                          struct sw_waiter waiter)
{
    return ex->queues ? sw_queues_order(ex->queues, queue, until, &waiter) : SW_OK;
}

/* Issues an instruction to a queue other than computation. The option `serial` lets nothing run
 * beside it. Exception: messages of a pipeline, since each side would wait for the other. */
static sw_status issue_beside(struct sw_executor *ex, const struct sw_walk *at)
{
    struct sw_queue_job job = {.program = at->program,
                               .instr = at->instr,
                               .piece = at->piece,
                               .order = at->order,
                               .round = at->phase->round,
                               .holds_fault = ex->fault.holds};
    const bool alone = ex->options.serial && at->phase->turn == 0;
    memcpy(job.needs, at->needs, sizeof job.needs);
    SW_TRY(alone ? barrier(ex, waiter_of(ex, at)) : SW_OK);
    SW_TRY(sw_queues_issue(ex->queues, at->program->instrs[at->instr].queue, &job));
    return alone ? barrier(ex, waiter_of(ex, at)) : SW_OK;
}

static sw_status issue(struct sw_executor *ex, const struct sw_walk *at)
{
    return at->program->instrs[at->instr].queue == SW_QUEUE_COMPUTE ? sw_executor_launch(ex, at)
                                                                    : issue_beside(ex, at);
}

/* Waits until all work issued before a barrier is complete. */
static sw_status wait_here(struct sw_executor *ex)
{
    SW_TRY(sw_stage_wait(&ex->stages[SW_QUEUE_COMPUTE]));
    return ex->queues ? sw_queues_status(ex->queues) : SW_OK;
}

sw_status sw_executor_drain(struct sw_executor *ex)
{
    SW_TRY(barrier(ex, (struct sw_waiter){0, 0}));
    return wait_here(ex);
}

/* Waits for exchanges, too; the communicators are then the caller's. runs_on: messages of a
 * pipeline go on, which have communicators of their own */
static sw_status join(struct sw_executor *ex, bool runs_on)
{
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        const bool is_message =
            sw_queue_sends((enum sw_queue)q) || sw_queue_receives((enum sw_queue)q);
        SW_TRY(sw_queue_exchanges((enum sw_queue)q) && !(runs_on && is_message)
                   ? wait_for(ex, (enum sw_queue)q, SW_WALK_ALL, (struct sw_waiter){0, 0})
                   : SW_OK);
    }
    if (!ex->has_new_scalars) {
        SW_TRY(sw_device_copy(ex->dev, ex->compute, ex->host_scalars, ex->scalars,
                              sw_executor_scalars_bytes(ex)));
    }
    return wait_here(ex);
}

/* Sends new scalars to the device. Kernels of the host read the old ones until they are done. */
static sw_status send_scalars(struct sw_executor *ex, const struct sw_walk *at)
{
    if (!ex->has_new_scalars) {
        return SW_OK;
    }
    SW_TRY(ex->host ? wait_for(ex, SW_QUEUE_HOST, SW_WALK_ALL, waiter_of(ex, at)) : SW_OK);
    ex->has_new_scalars = false;
    for (int64_t round = 0; round < ex->n_rows; round++) {
        sw_scalars_complete(ex->host_scalars + round * SW_SCALAR_COUNT);
    }
    return sw_device_copy(ex->dev, ex->compute, ex->scalars, ex->host_scalars,
                          sw_executor_scalars_bytes(ex));
}

/* The losses have been copied to the host by now. */
static sw_status exchange_losses(struct sw_executor *ex, bool runs_on)
{
    const struct sw_step_hooks *hooks = ex->hooks;
    SW_TRY(join(ex, runs_on));
    return hooks && hooks->losses ? hooks->losses(hooks->ctx) : SW_OK;
}

static sw_status agree(struct sw_executor *ex)
{
    const struct sw_step_hooks *hooks = ex->hooks;
    const sw_status fault = sw_executor_fault(ex);
    return hooks && hooks->agree ? hooks->agree(hooks->ctx, fault) : fault;
}

/* Makes what the step wrote current. alone: only what an update wrote that was due. The phase
 * before has joined. */
static sw_status commit(struct sw_executor *ex, bool alone)
{
    const bool counts = !alone && ex->host_scalars[SW_SCALAR_SKIP] == 0;
    ex->slots.late = ex->slots.is_due ? 1 - ex->slots.late : ex->slots.late;
    ex->slots.step = counts ? 1 - ex->slots.step : ex->slots.step;
    ex->slots.kept = counts ? 1 - ex->slots.kept : ex->slots.kept;
    ex->slots.is_due = counts && ex->plan->update.in_forward;
    ex->slots.is_renewed = false;
    ex->slots.has_read = !alone;
    memcpy(ex->slots.scalars, ex->host_scalars, sizeof ex->slots.scalars);
    return SW_OK;
}

/* Does what an event of the walk asks for. */
static sw_status act(struct sw_executor *ex, const struct sw_walk *at, const struct sw_event *event)
{
    if (event->kind == SW_EVENT_BEGIN) {
        SW_TRY(send_scalars(ex, at));
    }
    SW_TRY(ex->capture.n_phases > 0 ? sw_capture_see(ex, at, event) : SW_OK);
    switch (event->kind) {
    case SW_EVENT_ISSUE:
        return issue(ex, at);
    case SW_EVENT_WAIT:
        return wait_for(ex, event->queue, event->until, waiter_of(ex, at));
    case SW_EVENT_PASSED:
        return sw_executor_verify(ex, at);
    case SW_EVENT_BARRIER:
        return barrier(ex, waiter_of(ex, at));
    case SW_EVENT_JOIN:
        return join(ex, false);
    case SW_EVENT_LOSSES:
        return exchange_losses(ex, at->phase->runs_on);
    case SW_EVENT_AGREE:
        return agree(ex);
    case SW_EVENT_COMMIT:
        return commit(ex, at->phase->is_first);
    case SW_EVENT_BEGIN:
    case SW_EVENT_END:
        break;
    }
    return SW_OK;
}

/* Walks one phase. A failure names the instruction. */
static sw_status follow(struct sw_executor *ex, const struct sw_step_phase *phase)
{
    struct sw_walk walk;
    struct sw_event event;
    struct sw_step_phase now = *phase;
    now.is_first &= ex->slots.is_due || phase->action != SW_STEP_RUN;
    now.finds &= ex->slots.has_read;
    ex->slots.has_read &= phase->action != SW_STEP_RUN; /* transients may overwrite it */
    ex->slots.is_renewed |= now.is_first && phase->action == SW_STEP_RUN;
    sw_walk_begin(&walk, ex->plan, &now, 1);
    do {
        sw_walk_next(&walk, &event);
        SW_TRY(act(ex, &walk, &event));
    } while (event.kind != SW_EVENT_END);
    return SW_OK;
}

/* After a failure: waits for jobs that have begun and for computation, and drops the rest. If a
 * queue has failed, that is the cause. */
static sw_status end_run(struct sw_executor *ex, sw_status st)
{
    char message[1024];
    if (st >= 0) {
        return st;
    }
    const sw_status cause = ex->queues ? sw_queues_status(ex->queues) : SW_OK;
    st = cause < 0 ? cause : st;
    snprintf(message, sizeof message, "%s", sw_error_message());
    if (ex->queues) {
        sw_queues_stop(ex->queues);
    }
    sw_stage_wait(&ex->stages[SW_QUEUE_COMPUTE]);
    return SW_FAIL(st, "%s", message);
}

sw_status sw_executor_join(struct sw_executor *ex)
{
    return end_run(ex, join(ex, false));
}

/* Runs a phase, and counts its time if it is one of instructions. */
static sw_status walk(struct sw_executor *ex, const struct sw_step_phase *phase)
{
    const bool runs = phase->action <= SW_STEP_RECEIVE;
    const int64_t begun = runs ? sw_meter_begin(&ex->meter) : 0;
    const sw_status st = follow(ex, phase);
    if (runs) {
        sw_meter_end(&ex->meter, begun);
    }
    ex->exchanges.run_failed = st < 0;
    return end_run(ex, st);
}

/* Time that computation has waited for other ranks. */
static int64_t waited_for_ranks(const struct sw_executor *ex)
{
    int64_t sum = 0;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        sum += sw_queue_exchanges((enum sw_queue)q)
                   ? sw_meter_waited_for(&ex->meter, (enum sw_queue)q)
                   : 0;
    }
    return sum;
}

/* Counts a phase. Exchanging losses, agreeing and switching slots count as part of the update. */
static sw_status count_phase(struct sw_executor *ex, const struct sw_step_phase *phase,
                             int64_t begin_ns, int64_t waited_ns)
{
    const bool runs = phase->action <= SW_STEP_RECEIVE;
    const enum sw_segment segment = runs ? phase->segment : SW_SEGMENT_UPDATE;
    const int64_t now = sw_now_ns();
    if (segment == SW_SEGMENT_BACKWARD || segment == SW_SEGMENT_WEIGHTS) {
        ex->phases.reduce_ns += waited_for_ranks(ex) - waited_ns;
    }
    if (!ex->watch) {
        ex->phases.ns[segment] += now - begin_ns;
    } else if (ex->n_begun < ex->plan->step.n_phases) {
        struct phase *begun = &ex->begun[ex->n_begun];
        *begun = (struct phase){segment, begin_ns, now, 0};
        SW_TRY(runs ? sw_watch_mark(ex->watch, ex->compute, &begun->mark) : SW_OK);
        ex->n_begun++;
    }
    return SW_OK;
}

sw_status sw_executor_walk(struct sw_executor *ex, const struct sw_step_hooks *hooks, int32_t *at,
                           int32_t until)
{
    const struct sw_step *step = &ex->plan->step;
    sw_status st = SW_OK;
    ex->hooks = hooks;
    for (; *at < until && st >= 0; *at += st >= 0) { /* faults are held back until AGREE */
        const int64_t begin = sw_now_ns();
        const int64_t waited = waited_for_ranks(ex);
        ex->fault.holds = step->holds_faults && (*at + 1 < step->n_safe || *at >= step->n_phases);
        st = walk(ex, &step->phases[*at]);
        st = st < 0 ? st : count_phase(ex, &step->phases[*at], begin, waited);
    }
    ex->hooks = NULL;
    return st;
}

bool sw_executor_is_due(const struct sw_executor *ex)
{
    return ex->slots.is_due;
}

void sw_executor_forget_read(struct sw_executor *ex)
{
    ex->slots.has_read = false;
}

void sw_executor_forget_due(struct sw_executor *ex)
{
    ex->slots.is_due = ex->slots.is_renewed = false;
}

sw_status sw_executor_settle(struct sw_executor *ex, const struct sw_step_hooks *hooks, int32_t *at)
{
    const struct sw_step *step = &ex->plan->step;
    *at = step->n_phases;
    return sw_executor_walk(ex, hooks, at, step->n_phases + step->n_settling);
}

struct sw_step_phase sw_executor_phase_of(int i_program)
{
    return (struct sw_step_phase){.action = SW_STEP_RUN,
                                  .program = i_program,
                                  .segment = SW_SEGMENT_FORWARD,
                                  .n_micro = 1,
                                  .drains = true,
                                  .joins = true};
}

sw_status sw_executor_forward(struct sw_executor *ex, int i_program)
{
    SW_ASSERT(!ex->slots.is_due);
    const struct sw_step_phase phase = sw_executor_phase_of(i_program);
    ex->fault.holds = false;
    SW_TRY(barrier(ex, (struct sw_waiter){0, 0}));
    return walk(ex, &phase);
}

/* ---- times, scalars ---- */

void sw_executor_transferred(const struct sw_executor *ex, struct sw_transfers *out)
{
    *out = ex->transferred;
}

void sw_executor_queue_times(const struct sw_executor *ex,
                             struct sw_queue_times out[SW_QUEUE_COUNT])
{
    sw_meter_read(&ex->meter, out);
}

/* A phase begins when it was issued, or when the previous one ended, whichever is later. */
void sw_executor_phase_times(struct sw_executor *ex, struct sw_phase_times *out)
{
    int64_t until = 0;
    for (int32_t i = 0; i < ex->n_begun; i++) {
        const struct phase *p = &ex->begun[i];
        const int64_t passed = p->mark > 0 ? sw_watch_passed_ns(ex->watch, p->mark) : p->end_ns;
        const int64_t begin = sw_max_i64(p->begin_ns, until), end = sw_max_i64(passed, begin);
        ex->phases.ns[p->segment] += end - begin;
        until = end;
    }
    ex->n_begun = 0;
    *out = ex->phases;
}

bool sw_executor_measure(struct sw_executor *ex, bool on)
{
    return atomic_exchange(&ex->meter.profiles, on);
}

void sw_executor_trace(struct sw_executor *ex, struct sw_trace *trace)
{
    ex->meter.trace = trace;
}

void sw_executor_set_of(struct sw_executor *ex, int64_t round, enum sw_scalar scalar, double value)
{
    SW_ASSERT(round < ex->n_rows);
    ex->host_scalars[round * SW_SCALAR_COUNT + (int)scalar] = value;
    ex->has_new_scalars = true;
}

void sw_executor_set(struct sw_executor *ex, enum sw_scalar scalar, double value)
{
    for (int64_t round = 0; round < ex->n_rows; round++) {
        sw_executor_set_of(ex, round, scalar, value);
    }
}

double sw_executor_get(const struct sw_executor *ex, enum sw_scalar scalar)
{
    return ex->host_scalars[scalar];
}

size_t sw_executor_high_water(const struct sw_executor *ex)
{
    return ex->high_water;
}

struct sw_profile sw_executor_profile(const struct sw_executor *ex, int i_program, int32_t i_instr)
{
    return ex->programs[i_program].steps[i_instr].profile;
}
