// SPDX-License-Identifier: Apache-2.0
// Captured segments. Between two things that computation waits for, or that wait for it, the
// launches of a phase are captured as one graph when the executor is opened, and replayed from then
// on. Transfers, exchanges, work of the host and waits stay outside. The walk finds both: the same
// events end a graph when it is captured and when it is replayed.
//
// A graph has addresses by value. Phases therefore share graphs if they differ only in their round,
// and operands in a ring have the same slots. Scalars are read by address: those of the phase's
// micro-batches are copied to a place that all phases share.
#include "run/executor.h"

/* ---- which phases are alike ---- */

/* Number of rounds after which the kernels of a phase have the same operands again; at most
 * n_rows. */
static int64_t period_of(const struct sw_executor *ex, const struct sw_step_phase *phase)
{
    const struct sw_program *program = &ex->plan->programs[phase->program];
    const struct sw_instr_range range = sw_program_range(program, phase->segment, phase->chunk);
    int64_t period = 1;
    for (int32_t i = range.first; i < range.end && period < ex->n_rows; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const int n = instr->queue == SW_QUEUE_COMPUTE ? instr->n_in + instr->n_out : 0;
        for (int k = 0; k < n * SW_OPERAND_RINGS; k++) {
            const struct sw_ring *ring = &program->operands[instr->operands + k / SW_OPERAND_RINGS]
                                              .ring[k % SW_OPERAND_RINGS];
            if (ring->by == SW_RING_MICRO && ring->stride > 0) {
                period = sw_common_multiple(period, ring->modulus > 0 ? ring->modulus : ex->n_rows);
            }
        }
    }
    for (int32_t b = 0; ex->options.verify && b < program->n_buffers; b++) { /* are poisoned */
        const struct sw_buffer *buffer = &program->buffers[b];
        if (buffer->micro_bytes > 0 && period < ex->n_rows) {
            period = sw_common_multiple(period, (int64_t)(buffer->bytes / buffer->micro_bytes));
        }
    }
    return sw_min_i64(period, ex->n_rows);
}

static bool has_once(const struct sw_executor *ex, const struct sw_step_phase *phase)
{
    const struct sw_program *program = &ex->plan->programs[phase->program];
    const struct sw_instr_range range = sw_program_range(program, phase->segment, phase->chunk);
    bool found = false;
    for (int32_t i = range.first; i < range.end; i++) {
        found = found || program->instrs[i].turn.once;
    }
    return found;
}

static bool is_alike(const struct captured_phase *c, const struct sw_step_phase *phase)
{
    const struct sw_step_phase *like = &c->like;
    return like->action == phase->action && like->program == phase->program &&
           like->segment == phase->segment && like->chunk == phase->chunk &&
           like->n_micro == phase->n_micro && like->is_last == phase->is_last &&
           like->is_first == phase->is_first && like->finds == phase->finds &&
           like->runs_on == phase->runs_on && (like->turn > 0) == (phase->turn > 0) &&
           !(c->begins && (like->round == 0) != (phase->round == 0)) &&
           phase->round % c->period == like->round % c->period;
}

static struct captured_phase *find(const struct capture *capture, const struct sw_step_phase *phase)
{
    for (int i = 0; i < capture->n_phases; i++) {
        if (is_alike(&capture->phases[i], phase)) {
            return &capture->phases[i];
        }
    }
    return NULL;
}

/* True if the event may put something between two launches of computation. */
static bool ends_graph(const struct sw_executor *ex, const struct sw_walk *at,
                       const struct sw_event *event)
{
    const bool computes = at->program->instrs[at->instr].queue == SW_QUEUE_COMPUTE;
    return event->kind == SW_EVENT_ISSUE    ? !computes
           : event->kind == SW_EVENT_PASSED ? !computes && ex->options.verify
                                            : true;
}

/* ---- capturing ---- */

static sw_status end_graph(struct sw_executor *ex, struct captured_phase *phase)
{
    if (!ex->capture.records) {
        return SW_OK;
    }
    struct captured_run *run = &phase->runs[phase->n_runs];
    ex->capture.records = false;
    SW_TRY(sw_device_capture_end(ex->dev, ex->compute, &run->work));
    phase->n_runs++;
    return SW_OK;
}

/* Adds the instruction at the walk's position, to a new graph if none is begun. */
static sw_status add_launch(struct sw_executor *ex, const struct sw_walk *at,
                            struct captured_phase *phase)
{
    struct prepared *step = &ex->programs[phase->like.program].steps[at->instr];
    if (!ex->capture.records) {
        struct captured_run *runs =
            sw_realloc("run", phase->runs, ((size_t)phase->n_runs + 1) * sizeof *runs);
        SW_TRY_ALLOC(runs, "captured launches");
        phase->runs = runs;
        runs[phase->n_runs] = (struct captured_run){.first = at->instr};
        SW_TRY(sw_device_capture_begin(ex->dev, ex->compute));
        ex->capture.records = true;
    }
    phase->runs[phase->n_runs].last = at->instr;
    step->profile.is_captured = true;
    return sw_executor_launch_alone(ex, at);
}

static sw_status capture_event(struct sw_executor *ex, const struct sw_walk *at,
                               const struct sw_event *event, struct captured_phase *phase)
{
    if (event->kind == SW_EVENT_END || ends_graph(ex, at, event)) {
        return end_graph(ex, phase);
    }
    return event->kind == SW_EVENT_ISSUE ? add_launch(ex, at, phase)
           : ex->capture.records         ? sw_executor_verify(ex, at)
                                         : SW_OK;
}

static sw_status capture_phase(struct sw_executor *ex, const struct sw_step_phase *like)
{
    struct capture *capture = &ex->capture;
    struct captured_phase *phases =
        sw_realloc("run", capture->phases, ((size_t)capture->n_phases + 1) * sizeof *phases);
    SW_TRY_ALLOC(phases, "captured launches");
    capture->phases = phases;
    capture->now = &phases[capture->n_phases++];
    *capture->now = (struct captured_phase){
        .like = *like, .period = period_of(ex, like), .begins = has_once(ex, like)};
    struct sw_walk walk;
    struct sw_event event;
    sw_status st = SW_OK;
    sw_walk_begin(&walk, ex->plan, like, 1);
    do {
        sw_walk_next(&walk, &event);
        st = capture_event(ex, &walk, &event, capture->now);
    } while (event.kind != SW_EVENT_END && st >= 0);
    if (capture->records) {
        capture->records = false;
        ex->dev->capture->end(ex->dev, ex->compute, NULL);
    }
    capture->now = NULL;
    return st < 0 ? sw_fail_prefix(st,
                                   "capturing the launches of %s (\"capture\": false launches one "
                                   "by one)",
                                   sw_segment_name(like->segment))
                  : SW_OK;
}

static bool runs(const struct sw_step_phase *phase)
{
    return phase->action <= SW_STEP_RECEIVE;
}

/* Captures a phase, unless there is one like it. */
static sw_status capture_new(struct sw_executor *ex, const struct sw_step_phase *phase)
{
    return runs(phase) && !find(&ex->capture, phase) ? capture_phase(ex, phase) : SW_OK;
}

/* The most micro-batches of an instruction's phase. */
static int64_t most_rows(const struct sw_plan *plan)
{
    int64_t most = 1;
    for (int p = 0; p < plan->n_programs; p++) {
        for (int32_t i = 0; i < plan->programs[p].n_instrs; i++) {
            most = sw_max_i64(most, plan->programs[p].instrs[i].micro + 1);
        }
    }
    return most;
}

sw_status sw_executor_open_capture(struct sw_executor *ex)
{
    const struct sw_plan *plan = ex->plan;
    struct capture *capture = &ex->capture;
    void *scalars = NULL;
    if (!ex->options.capture || !ex->dev->capture || ex->options.no_kernels) {
        return SW_OK;
    }
    capture->n_rows = sw_min_i64(most_rows(plan), ex->n_rows);
    SW_TRY(sw_device_alloc(ex->dev, SW_MEM_DEVICE, sw_capture_scalars_bytes(capture), &scalars));
    capture->scalars = scalars;
    for (int32_t i = 0; i < plan->step.n_phases + plan->step.n_settling; i++) {
        struct sw_step_phase phase = plan->step.phases[i];
        SW_TRY(capture_new(ex, &phase));
        phase.is_first = false; /* if no update is due */
        SW_TRY(capture_new(ex, &phase));
        phase.finds = false; /* if nothing was read for it */
        SW_TRY(capture_new(ex, &phase));
        phase.is_first = plan->step.phases[i].is_first;
        SW_TRY(capture_new(ex, &phase));
    }
    for (int p = 0; p < plan->n_programs; p++) { /* programs that are no part of the step */
        const struct sw_step_phase alone = sw_executor_phase_of(p);
        SW_TRY(plan->programs[p].kind != SW_PROGRAM_TRAIN ? capture_phase(ex, &alone) : SW_OK);
    }
    return SW_OK;
}

void sw_executor_close_capture(struct sw_executor *ex)
{
    struct capture *capture = &ex->capture;
    if (capture->n_phases > 0) {
        ex->dev->ops->stream_wait(ex->dev, ex->compute);
    }
    for (int i = 0; i < capture->n_phases; i++) {
        for (int k = 0; k < capture->phases[i].n_runs; k++) {
            sw_device_captured_close(ex->dev, capture->phases[i].runs[k].work);
        }
        sw_free(capture->phases[i].runs);
    }
    sw_free(capture->phases);
    sw_device_free(ex->dev, SW_MEM_DEVICE, capture->scalars, sw_capture_scalars_bytes(capture));
}

/* ---- replaying ---- */

/* Brings the scalars of the phase's micro-batches to where graphs read them. */
static sw_status bring_scalars(struct sw_executor *ex, const struct sw_step_phase *phase)
{
    const int64_t n = sw_min_i64(ex->capture.n_rows, ex->n_rows - phase->round);
    return sw_device_copy(ex->dev, ex->compute, ex->capture.scalars,
                          ex->scalars + phase->round * SW_SCALAR_COUNT,
                          (size_t)n * SW_SCALAR_COUNT * sizeof *ex->scalars);
}

sw_status sw_capture_see(struct sw_executor *ex, const struct sw_walk *at,
                         const struct sw_event *event)
{
    struct capture *capture = &ex->capture;
    if (event->kind == SW_EVENT_BEGIN) {
        capture->now = find(capture, at->phase);
        capture->next = 0;
        capture->inside = false;
        return capture->now ? bring_scalars(ex, at->phase) : SW_OK;
    }
    if (capture->inside && (event->kind == SW_EVENT_END || ends_graph(ex, at, event))) {
        capture->inside = false;
    }
    return SW_OK;
}

sw_status sw_capture_replay(struct sw_executor *ex, const struct sw_walk *at)
{
    struct capture *capture = &ex->capture;
    if (capture->inside) {
        return SW_OK;
    }
    const bool timed = ex->meter.trace != NULL;
    const int64_t begin = timed ? sw_now_ns() : 0;
    SW_ASSERT(capture->next < capture->now->n_runs);
    const struct captured_run *run = &capture->now->runs[capture->next++];
    SW_ASSERT(run->first == at->instr);
    SW_TRY(sw_device_replay(ex->dev, ex->compute, run->work));
    capture->inside = true;
    if (timed) {
        SW_TRY(ex->dev->ops->stream_wait(ex->dev, ex->compute));
        sw_meter_ran(&ex->meter, &(struct sw_span){.queue = SW_QUEUE_COMPUTE,
                                                   .program = at->phase->program,
                                                   .instr = at->instr,
                                                   .last = run->last,
                                                   .n_launches = run->work->n_launches,
                                                   .begin_ns = begin,
                                                   .end_ns = sw_now_ns()});
    }
    return SW_OK;
}

struct sw_captures sw_executor_captures(const struct sw_executor *ex)
{
    struct sw_captures out = {0};
    const struct sw_step *step = &ex->plan->step;
    for (int32_t i = 0; i < step->n_phases; i++) {
        const struct captured_phase *phase =
            runs(&step->phases[i]) ? find(&ex->capture, &step->phases[i]) : NULL;
        for (int k = 0; phase && k < phase->n_runs; k++) {
            out.n_launches += phase->runs[k].work->n_launches;
            out.n_replays++;
        }
    }
    for (int i = 0; i < ex->capture.n_phases; i++) {
        out.n_graphs += ex->capture.phases[i].n_runs;
    }
    return out;
}
