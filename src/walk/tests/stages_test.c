// SPDX-License-Identifier: Apache-2.0
// Tests the clock of a pipeline with plans of its stages.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/plans.h"
#include "support/test.h"
#include "support/towers.h"
#include "walk/walk.h"

enum { MOST_STAGES = 8, MOST_PARTS = 32, MOST_RANKS = 16 };

/* Blocks take nearly all of the time. */
static struct sw_graph *tower(int blocks)
{
    return test_tower(&(struct test_tower){
        .graph = {.dtype = SW_F32, .grad_dtype = SW_F32, .training = true},
        .blocks = blocks,
        .batch = 4,
        .tokens = 16,
        .vocab = 2,
        .width = 64,
        .inner = 256,
        .std = 0.1,
    });
}

struct mesh {
    int pipe, data, blocks, micro_batches;
    enum sw_step_schedule schedule;
    int chunks;
    enum sw_tier grads; /* outside of the device, LOSSES comes before backward ends */
};

/* room: elements that are gathered ahead, or stay, and then weights are slices; budget: of device
 * memory, 0 = none */
static struct sw_plan *plan_with(const struct mesh *m, int me, int64_t room, size_t budget)
{
    const int parts = m->pipe * (m->chunks > 1 ? m->chunks : 1);
    int bounds[MOST_PARTS + 1];
    struct sw_plan *plan = NULL;
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, tower(m->blocks)};
    const struct sw_plan_options options = {
        .device = {test_query, NULL},
        .policy = {.micro_batches = m->micro_batches * m->data,
                   .schedule = m->schedule,
                   .chunks = m->chunks,
                   .grads_tier = m->grads,
                   .budget[SW_TIER_DEVICE] = budget,
                   .prefetch_elems = room,
                   .stage = room > 0 ? 3 : m->data > 1},
        .limits = {.max_live_elems = room,
                   .kept_elems = room,
                   .reduce_bucket_elems = 1 << 14,
                   .allgather_bucket_elems = 1 << 14},
        .overlap = true,
        .clip = 1,
        .rule = &test_adam,
        .kernel_set = "test",
        .mesh.size = {[SW_AXIS_PIPE] = m->pipe, [SW_AXIS_DATA] = m->data},
        .me = me,
        .stage_blocks = m->pipe > 1 ? bounds : NULL};
    sw_partition_uniform(m->blocks, parts, bounds);
    if (plan_once(&spec, 1, &options, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return plan;
}

static struct sw_plan *plan_of(const struct mesh *m, int me)
{
    return plan_with(m, me, 0, 0);
}

/* Rates at which products take nearly all of the time; sent: bytes per second of exchanges. */
static struct sw_speeds speeds_of(double sent, double latency)
{
    struct sw_speeds speeds = {.given.latency = latency};
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        speeds.given.work[k] = k < SW_LOAD_OTHER ? 1e9 : 1e15;
    }
    speeds.given.work[SW_LOAD_SENT] = sent;
    return speeds;
}

static void open_stages(const struct mesh *m, struct sw_clock_rank *stages)
{
    for (int s = 0; s < m->pipe; s++) {
        stages[s] = (struct sw_clock_rank){.plan = plan_of(m, s * m->data)};
    }
}

static void close_ranks(const struct sw_clock_rank *ranks, int n)
{
    for (int i = 0; i < n; i++) {
        sw_plan_close((struct sw_plan *)(uintptr_t)ranks[i].plan);
    }
}

static double predict(struct sw_clock_rank *stages, int n, const struct sw_speeds *speeds)
{
    const struct sw_speeds *all[MOST_STAGES];
    bool unknown[SW_LOAD_COUNT];
    double seconds = 0;
    for (int s = 0; s < n; s++) {
        all[s] = speeds;
    }
    if (sw_speeds_stages(stages, all, n, unknown, &seconds) < 0) {
        fail_msg("%s", sw_error_message());
    }
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        assert_false(unknown[k]);
    }
    return seconds;
}

/* Walks all ranks of the mesh. */
static double walk_all(const struct mesh *m, struct sw_clock_rank *ranks,
                       const struct sw_speeds *speeds)
{
    const int n = m->pipe * m->data;
    struct sw_pace paces[MOST_RANKS];
    struct sw_cost(*costs[MOST_RANKS])[2];
    bool unknown[SW_LOAD_COUNT];
    double seconds = 0;
    for (int i = 0; i < n; i++) {
        ranks[i] = (struct sw_clock_rank){.plan = plan_of(m, i), .pace = &paces[i]};
        costs[i] = calloc((size_t)ranks[i].plan->programs[0].n_instrs + 1, sizeof *costs[i]);
        sw_speeds_costs(ranks[i].plan, speeds, unknown, costs[i]);
        paces[i] = (struct sw_pace){.costs = (const struct sw_cost(*)[2])costs[i],
                                    .meeting = speeds->given.latency,
                                    .disk_share = {0.5, 0.5}};
    }
    if (sw_clock_ranks(ranks, n) < 0) {
        fail_msg("%s", sw_error_message());
    }
    for (int i = 0; i < n; i++) {
        seconds = fmax(seconds, ranks[i].seconds);
        free(costs[i]);
    }
    return seconds;
}

/* ---- tests ---- */

static void one_rank_of_each_stage_stands_for_all(void **state)
{
    static const struct mesh meshes[] = {{2, 2, 4, 3, SW_STEP_1F1B, 1, 0},
                                         {3, 2, 5, 4, SW_STEP_GPIPE, 1, 0},
                                         {4, 3, 4, 2, SW_STEP_1F1B, 1, 0},
                                         {2, 1, 3, 4, SW_STEP_GPIPE, 1, 0}};
    (void)state;
    const struct sw_speeds speeds = speeds_of(1e7, 1e-5);
    for (size_t i = 0; i < SW_LEN(meshes); i++) {
        const struct mesh *m = &meshes[i];
        struct sw_clock_rank stages[MOST_STAGES], all[MOST_RANKS];
        open_stages(m, stages);
        assert_true(predict(stages, m->pipe, &speeds) == walk_all(m, all, &speeds));
        for (int r = 0; r < m->pipe * m->data; r++) {
            assert_true(stages[r / m->data].seconds == all[r].seconds);
            assert_true(stages[r / m->data].idle == all[r].idle);
        }
        close_ranks(stages, m->pipe);
        close_ranks(all, m->pipe * m->data);
    }
}

/* Spans of a rank: seconds of its passes, and sums over its messages. */
struct seen {
    const struct sw_plan *plan;
    double last[SW_QUEUE_COUNT], busy, sent, received;
    int n_sent, n_received;
};

static void see(void *ctx, const struct sw_clock_span *span)
{
    struct seen *seen = ctx;
    const struct sw_instr *instr = &seen->plan->programs[0].instrs[span->instr];
    const bool sends = sw_queue_sends(instr->queue), receives = sw_queue_receives(instr->queue);
    assert_true(span->end > span->begin);
    assert_true(span->begin >= seen->last[instr->queue] - 1e-9);
    seen->last[instr->queue] = span->end;
    if (instr->queue == SW_QUEUE_COMPUTE && span->phase->segment < SW_SEGMENT_UPDATE) {
        seen->busy += span->end - span->begin;
    }
    seen->sent += sends ? span->begin + span->end : 0;
    seen->received += receives ? span->begin + span->end : 0;
    seen->n_sent += sends;
    seen->n_received += receives;
}

/* Spans of kernels add up to the time that a stage is not idle, and a message has the same span on
 * both sides. */
static void spans_tell_what_ran(void **state)
{
    (void)state;
    const struct mesh m = {3, 1, 6, 5, SW_STEP_1F1B, 1, 0};
    const struct sw_speeds speeds = speeds_of(1e7, 0);
    struct sw_clock_rank stages[MOST_STAGES];
    struct seen seen[MOST_STAGES] = {0};
    struct sw_clock_report reports[MOST_STAGES];
    double sent = 0, received = 0;
    open_stages(&m, stages);
    for (int s = 0; s < m.pipe; s++) {
        seen[s].plan = stages[s].plan;
        stages[s].ran = see;
        stages[s].ctx = &seen[s];
        stages[s].report = &reports[s];
    }
    predict(stages, m.pipe, &speeds);
    for (int s = 0; s < m.pipe; s++) {
        const double busy = reports[s].passes.busy;
        assert_true(busy > 0 && fabs(seen[s].busy - busy) < 1e-9 * busy);
        assert_int_equal(seen[s].n_sent, m.micro_batches * ((s > 0) + (s < m.pipe - 1)));
        assert_int_equal(seen[s].n_received, seen[s].n_sent);
        sent += seen[s].sent;
        received += seen[s].received;
        sw_free(reports[s].instrs);
    }
    assert_true(sent > 0 && fabs(sent - received) < 1e-9 * sent);
    close_ranks(stages, m.pipe);
}

static const enum sw_step_schedule schedules[] = {SW_STEP_GPIPE, SW_STEP_1F1B, SW_STEP_ZERO_BUBBLE,
                                                  SW_STEP_INTERLEAVED};

/* A stage waits for its neighbours, and for its own messages to leave, but never in a circle. */
static void no_schedule_deadlocks(void **state)
{
    (void)state;
    const struct sw_speeds speeds = speeds_of(1e9, 0);
    for (size_t i = 0; i < SW_LEN(schedules); i++) {
        const int most = schedules[i] == SW_STEP_INTERLEAVED ? 3 : 1;
        for (int k = 0; k < 2 * 8 * 4 * most; k++) {
            const int pipe = 2 + k % 4, chunks = 1 + k / 4 % most;
            const struct mesh m = {pipe,
                                   1,
                                   pipe * chunks,
                                   1 + k / 4 / most % 8,
                                   schedules[i],
                                   chunks,
                                   k < 8 * 4 * most ? SW_TIER_DEVICE : SW_TIER_HOST};
            struct sw_clock_rank stages[MOST_STAGES];
            open_stages(&m, stages);
            assert_true(predict(stages, pipe, &speeds) > 0);
            close_ranks(stages, pipe);
        }
    }
}

/* Time of a step whose kernels take so much longer in even and in odd turns. *idle: mean share */
static double with_phases(const struct mesh *m, double even, double odd, double *idle)
{
    struct sw_clock_rank stages[MOST_STAGES];
    struct sw_speeds speeds[MOST_STAGES];
    const struct sw_speeds *all[MOST_STAGES];
    double *phases[MOST_STAGES], seconds = 0;
    bool unknown[SW_LOAD_COUNT];
    open_stages(m, stages);
    for (int s = 0; s < m->pipe; s++) {
        const struct sw_step *step = &stages[s].plan->step;
        phases[s] = calloc((size_t)step->n_phases, sizeof **phases);
        for (int32_t i = 0; i < step->n_phases; i++) {
            phases[s][i] = step->phases[i].turn % 4 < 2 ? even : odd;
        }
        speeds[s] = speeds_of(1e15, 0);
        speeds[s].phases = phases[s];
        all[s] = &speeds[s];
    }
    assert_int_equal(sw_speeds_stages(stages, all, m->pipe, unknown, &seconds), SW_OK);
    *idle = 0;
    for (int s = 0; s < m->pipe; s++) {
        *idle += stages[s].idle / m->pipe;
        free(phases[s]);
    }
    close_ranks(stages, m->pipe);
    return seconds;
}

/* Kernels that take twice as long in all phases double the step. If only some take longer, stages
 * that wait for each other pay for it, though the kernels take as long in sum. */
static void speed_may_change_by_phase(void **state)
{
    (void)state;
    const struct mesh m = {2, 1, 4, 8, SW_STEP_1F1B, 1, 0};
    const struct sw_speeds speeds = speeds_of(1e15, 0);
    struct sw_clock_rank stages[MOST_STAGES];
    double idle[3];
    open_stages(&m, stages);
    const double step = predict(stages, m.pipe, &speeds);
    close_ranks(stages, m.pipe);
    assert_true(fabs(with_phases(&m, 1, 1, &idle[0]) - step) < 1e-9 * step);
    assert_true(fabs(with_phases(&m, 2, 2, &idle[1]) - 2 * step) < 1e-6 * step);
    assert_true(fabs(idle[1] - idle[0]) < 1e-6);
    assert_true(with_phases(&m, 1.5, 0.5, &idle[2]) > 1.02 * step);
    assert_true(idle[2] > idle[0] + 0.02);
}

/* Seconds and processors of the messages of one direction. */
static struct sw_cost cost_of(const struct sw_plan *plan, const struct sw_speeds *speeds,
                              enum sw_verb verb)
{
    const struct sw_program *program = &plan->programs[0];
    struct sw_cost(*costs)[2] = calloc((size_t)program->n_instrs, sizeof *costs);
    struct sw_cost cost = {0};
    bool unknown[SW_LOAD_COUNT];
    sw_speeds_costs(plan, speeds, unknown, costs);
    for (int32_t i = 0; i < program->n_instrs; i++) {
        cost = program->instrs[i].verb == verb ? costs[i][1] : cost;
    }
    free(costs);
    return cost;
}

/* The two sides of a message have costs of their own; those that are not measured cost as much as
 * a gather. */
static void sides_of_a_message_have_their_own_costs(void **state)
{
    (void)state;
    const struct mesh m = {2, 1, 2, 2, SW_STEP_1F1B, 1, 0};
    struct sw_plan *plan = plan_of(&m, 0);
    struct sw_speeds speeds = {.bandwidth = 1e9};
    speeds.curves[SW_CURVE_GATHER] = (struct sw_rate_curve){1, {{1e9, {.seconds = 3, .cores = 1}}}};
    assert_true(cost_of(plan, &speeds, SW_VERB_SEND).seconds == 3);
    assert_true(cost_of(plan, &speeds, SW_VERB_RECV).cores == 1);
    speeds.curves[SW_CURVE_SEND] =
        (struct sw_rate_curve){1, {{1e9, {.seconds = 1, .cores = 0.25}}}};
    speeds.curves[SW_CURVE_RECEIVE] = (struct sw_rate_curve){1, {{1e9, {.seconds = 2}}}};
    const struct sw_cost sent = cost_of(plan, &speeds, SW_VERB_SEND);
    const struct sw_cost received = cost_of(plan, &speeds, SW_VERB_RECV);
    assert_true(sent.seconds == 1 && sent.cores == 0.25);
    assert_true(received.seconds == 2 && received.cores == 0);
    assert_true(sent.bandwidth > 0 && fabs(sent.bandwidth - 2 * received.bandwidth) < 1e-12);
    sw_plan_close(plan);
}

/* ---- memory ---- */

/* Bytes of a message that is in flight. */
struct flight {
    enum sw_queue queue;
    int64_t order;
    size_t first, end;
    bool writes;
};

/* The memory of a stage: its contents, and messages in flight. A unit is 16 bytes. */
struct shadow {
    const struct sw_plan *plan;
    int64_t *holds; /* [units] tag of the buffer and the micro-batch; 0 = nothing */
    bool *stays;    /* [n_buffers] what the first micro-batch gathers is there for all of them */
    struct flight flights[64];
    int n_flights;
};
enum { UNIT = 16 };

static int64_t tag_of(int32_t buffer, int64_t round)
{
    return 1 + buffer + (round << 32);
}

/* The transient buffer that the operand of an instruction is in; -1 = none. */
static int32_t buffer_of(const struct sw_program *program, int32_t instr,
                         const struct sw_operand *operand)
{
    for (int32_t b = 0; b < program->n_buffers && operand->tier == SW_TIER_DEVICE; b++) {
        const struct sw_buffer *buffer = &program->buffers[b];
        if (!buffer->persistent && buffer->tier == SW_TIER_DEVICE && buffer->first <= instr &&
            instr <= buffer->last && buffer->offset <= operand->offset &&
            operand->offset < buffer->offset + buffer->bytes) {
            return b;
        }
    }
    return -1;
}

/* No message writes these bytes, or touches them if they are written. needs: messages that are
 * waited for, by queue */
static void check_flights(const struct shadow *s, size_t first, size_t end, bool writes,
                          const int64_t needs[SW_QUEUE_COUNT])
{
    for (int i = 0; i < s->n_flights; i++) {
        const struct flight *f = &s->flights[i];
        const bool meets = f->first < end && first < f->end && (writes || f->writes);
        assert_true(!meets || f->order <= needs[f->queue]);
    }
}

/* Touches the bytes of an operand in a phase. Reads find what was written for the same
 * micro-batch. */
static void touch(struct shadow *s, const struct sw_walk *at, const struct sw_operand *operand,
                  bool writes)
{
    static const int64_t none[SW_QUEUE_COUNT] = {[0 ... SW_QUEUE_COUNT - 1] = -1};
    const struct sw_instr *instr = &at->program->instrs[at->instr];
    const bool travels = instr->verb == SW_VERB_SEND || instr->verb == SW_VERB_RECV;
    const int32_t b = buffer_of(at->program, at->instr, operand);
    const int64_t round = b >= 0 && s->stays[b] ? 0 : at->phase->round;
    const int64_t index[SW_RING_COUNT] = {[SW_RING_MICRO] = at->phase->round};
    if (b < 0 || operand->bytes == 0) {
        return;
    }
    const size_t first = operand->offset + sw_operand_shift(operand, index),
                 end = first + operand->bytes;
    check_flights(s, first, end, writes, travels ? at->needs : none);
    for (size_t u = first / UNIT; u <= (end - 1) / UNIT; u++) {
        if (writes) {
            s->holds[u] = tag_of(b, round);
        } else {
            assert_true(s->holds[u] == tag_of(b, round));
        }
    }
    if (travels) {
        assert_in_range(s->n_flights, 0, SW_LEN(s->flights) - 1);
        s->flights[s->n_flights++] = (struct flight){instr->queue, at->order, first, end, writes};
    }
}

static void issue(struct shadow *s, const struct sw_walk *at)
{
    const struct sw_instr *instr = &at->program->instrs[at->instr];
    const struct sw_operand *operands = &at->program->operands[instr->operands];
    const int n_in = instr->verb == SW_VERB_RECV ? 0 : instr->n_in;
    const int n = instr->verb == SW_VERB_KERNEL ? n_in + instr->n_out : 1;
    for (int k = 0; k < n; k++) {
        touch(s, at, &operands[k], k >= n_in);
    }
    for (int32_t k = 0; instr->verb == SW_VERB_GATHER && k < instr->exchange.batch; k++) {
        struct sw_walk inside = *at;
        inside.instr += k;
        touch(s, &inside, &at->program->operands[instr[k].operands + 1], true);
    }
}

/* Gives the inputs of a micro-batch, as its first forward begins. */
static void give(struct shadow *s, const struct sw_walk *at)
{
    for (int32_t i = 0; i < at->program->ports.n_inputs; i++) {
        if (at->program->ports.inputs[i].at.tier == SW_TIER_DEVICE) {
            touch(s, at, &at->program->ports.inputs[i].at, true);
        }
    }
}

static void land(struct shadow *s, enum sw_queue queue, int64_t until)
{
    int n = 0;
    for (int i = 0; i < s->n_flights; i++) {
        if (s->flights[i].queue != queue || s->flights[i].order > until) {
            s->flights[n++] = s->flights[i];
        }
    }
    s->n_flights = n;
}

static void find_what_stays(const struct sw_program *program, bool *stays)
{
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const int32_t b =
            instr->turn.once ? buffer_of(program, i, &program->operands[instr->operands + 1]) : -1;
        if (b >= 0) {
            stays[b] = true;
        }
    }
}

/* Walks forward and backward of a stage, and checks every access. */
static void walk_memory(const struct sw_plan *plan)
{
    struct shadow s = {.plan = plan};
    struct sw_walk walk;
    struct sw_event event;
    s.holds = calloc(plan->tier_bytes[SW_TIER_DEVICE] / UNIT + 1, sizeof *s.holds);
    s.stays = calloc((size_t)plan->programs[0].n_buffers + 1, sizeof *s.stays);
    find_what_stays(&plan->programs[0], s.stays);
    sw_walk_begin(&walk, plan, plan->step.phases, plan->step.n_phases);
    do {
        sw_walk_next(&walk, &event);
        const struct sw_step_phase *phase = walk.phase;
        if (event.kind == SW_EVENT_BEGIN && phase->action == SW_STEP_RUN &&
            phase->segment == SW_SEGMENT_FORWARD && phase->chunk == 0) {
            give(&s, &walk);
        } else if (event.kind == SW_EVENT_ISSUE) {
            issue(&s, &walk);
        } else if (event.kind == SW_EVENT_WAIT) {
            land(&s, event.queue, event.until);
        } else if (event.kind == SW_EVENT_BARRIER || event.kind == SW_EVENT_LOSSES) {
            s.n_flights = 0;
        }
    } while (event.kind != SW_EVENT_END && walk.phase->segment < SW_SEGMENT_UPDATE);
    free(s.holds);
    free(s.stays);
}

static void messages_share_no_byte_with_what_runs(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        for (int pipe = 2; pipe <= 4; pipe++) {
            for (int m = 1; m <= 9; m += 1 + m / 3) {
                const int chunks = schedules[i] == SW_STEP_INTERLEAVED ? 2 : 1;
                const struct mesh mesh = {pipe, 1, pipe * chunks, m, schedules[i], chunks, 0};
                for (int s = 0; s < pipe; s++) {
                    struct sw_plan *plan = plan_of(&mesh, s);
                    walk_memory(plan);
                    sw_plan_close(plan);
                }
            }
        }
    }
}

enum { ROOM = 1 << 18, AMPLE = 1 << 30 };

/* Gathered weights are where their readers are, in each phase, and those that stay are what the
 * first micro-batch has gathered. */
static void weights_stay_where_they_are(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        for (int m = 2; m <= 7; m += 5) {
            const int chunks = schedules[i] == SW_STEP_INTERLEAVED ? 2 : 1;
            const struct mesh mesh = {2, 2, 4 * chunks, m, schedules[i], chunks, 0};
            for (int s = 0; s < 2; s++) {
                struct sw_plan *plan = plan_with(&mesh, s * 2, ROOM, AMPLE);
                assert_true(plan->programs[0].peak.kept_bytes > 0);
                walk_memory(plan);
                sw_plan_close(plan);
            }
        }
    }
}

/* Opens the stages with weights that stay, and within a budget that has no room for them. */
static void open_both(const struct mesh *m, int64_t room, struct sw_clock_rank *with,
                      struct sw_clock_rank *without)
{
    for (int s = 0; s < m->pipe; s++) {
        struct sw_plan *stays = plan_with(m, s * m->data, room, AMPLE);
        struct sw_plan *goes =
            plan_with(m, s * m->data, room, stays->tier_bytes[SW_TIER_DEVICE] - 1);
        assert_int_equal(goes->programs[0].peak.kept_bytes, 0);
        assert_int_equal(goes->ahead.prefetch_elems, stays->ahead.prefetch_elems);
        with[s] = (struct sw_clock_rank){.plan = stays};
        without[s] = (struct sw_clock_rank){.plan = goes};
    }
}

/* Whatever the wire, a step is faster than one in which each phase waits for its first block. Where
 * a gather is shorter than the work on a block, all of these waits are saved but the first two. */
static void phases_begin_with_weights_that_stay(void **state)
{
    (void)state;
    const double gather = 2.0 * 64 * 256 * sizeof(float) / 2; /* bytes */
    for (int i = 0; i < 5; i++) {
        const bool is_cut = i < 4;
        const enum sw_step_schedule schedule = is_cut ? schedules[i] : SW_STEP_HORIZONTAL;
        const int chunks = schedule == SW_STEP_INTERLEAVED ? 2 : 1;
        const struct mesh m = {is_cut ? 2 : 1, 2, 8, 4, schedule, chunks, 0};
        for (int k = 0; k < 2; k++) {
            struct sw_clock_rank with[MOST_STAGES], without[MOST_STAGES];
            open_both(&m, k == 0 ? ROOM : 70000, with, without);
            for (double sent = 1e6; sent < 1e10; sent *= 10) {
                const struct sw_speeds speeds = speeds_of(sent, 1e-6);
                const double less = predict(with, m.pipe, &speeds);
                const double more = predict(without, m.pipe, &speeds);
                const double least = sent < 1e8 ? 0 : 2 * (m.micro_batches - 1) * gather / sent;
                if (more - less <= least) {
                    fail_msg("schedule %d at %g bytes/s: %g s, and %g s where nothing stays", i,
                             sent, less, more);
                }
            }
            close_ranks(with, m.pipe);
            close_ranks(without, m.pipe);
        }
    }
}

static double idle_share(const struct sw_clock_rank *stages, int n)
{
    double sum = 0;
    for (int s = 0; s < n; s++) {
        sum += stages[s].idle / n;
    }
    return sum;
}

/* With equal stages and no wire, a pipeline waits only while it fills and drains. */
static void equal_stages_idle_while_they_fill_and_drain(void **state)
{
    (void)state;
    const struct sw_speeds speeds = speeds_of(INFINITY, 0);
    for (int pipe = 2; pipe <= 4; pipe++) {
        for (int n = 2; n <= 16; n *= 2) {
            for (int i = 0; i < 2; i++) { /* gpipe, 1f1b */
                const struct mesh m = {pipe, 1, 4 * pipe, n, schedules[i], 1, 0};
                struct sw_clock_rank stages[MOST_STAGES];
                open_stages(&m, stages);
                const double wanted = (pipe - 1.0) / (n + pipe - 1);
                predict(stages, pipe, &speeds);
                assert_true(fabs(idle_share(stages, pipe) - wanted) < 0.03 * wanted);
                close_ranks(stages, pipe);
            }
        }
    }
}

/* A message that is shorter than a forward costs a stage at most its own time per micro-batch. */
static void messages_hide_behind_phases(void **state)
{
    (void)state;
    for (int n = 2; n <= 16; n *= 2) {
        for (double sent = 1e6; sent < 1e9; sent *= 3) {
            const struct mesh m = {2, 1, 8, n, SW_STEP_1F1B, 1, 0};
            const struct sw_speeds wire = speeds_of(sent, 0), none = speeds_of(INFINITY, 0);
            struct sw_clock_rank stages[MOST_STAGES];
            open_stages(&m, stages);
            /* of a stage: 4 blocks of 2 products, and of twice that for their gradients */
            const double forward = 4 * 2 * 2.0 * 64 * 64 * 256 / 1e9, both = 3 * forward;
            const double message = 64 * 64 * 4 / sent;
            const double without = predict(stages, 2, &none), with = predict(stages, 2, &wire);
            assert_true(with >= without);
            assert_true(message >= forward || with / without <= 1.05 + message / both);
            close_ranks(stages, 2);
        }
    }
}

static void see_nothing(void *ctx, const struct sw_clock_span *span)
{
    (void)ctx;
    (void)span;
}

static void are_near(double a, double b)
{
    assert_true(fabs(a - b) < 1e-9);
}

static void are_alike(const struct sw_clock_report *a, const struct sw_clock_report *b,
                      const struct sw_program *program)
{
    are_near(a->seconds, b->seconds);
    are_near(a->passes.begin, b->passes.begin);
    are_near(a->passes.end, b->passes.end);
    are_near(a->passes.busy, b->passes.busy);
    are_near(a->most, b->most);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        are_near(a->part[q], b->part[q]);
        are_near(a->alone[q], b->alone[q]);
    }
    for (int32_t i = 0; i < program->n_instrs; i++) {
        assert_int_equal(a->instrs[i].runs, b->instrs[i].runs);
        are_near(a->instrs[i].alone, b->instrs[i].alone);
        are_near(a->instrs[i].charge, b->instrs[i].charge);
    }
}

/* Walks a pipeline with and without folding. Returns the micro-batches that were folded. */
static int64_t fold(const struct mesh *m, const struct sw_speeds *speeds)
{
    struct sw_clock_rank stages[MOST_STAGES];
    struct sw_clock_report reports[2][MOST_STAGES];
    int64_t folded = 0;
    open_stages(m, stages);
    for (int k = 0; k < 2; k++) {
        for (int s = 0; s < m->pipe; s++) {
            stages[s].report = &reports[k][s];
            stages[s].ran = k > 0 ? see_nothing : NULL;
        }
        predict(stages, m->pipe, speeds);
    }
    for (int s = 0; s < m->pipe; s++) {
        are_alike(&reports[0][s], &reports[1][s], &stages[s].plan->programs[0]);
        assert_int_equal(reports[1][s].folded, 0);
        folded = reports[0][s].folded;
        sw_free(reports[0][s].instrs);
        sw_free(reports[1][s].instrs);
    }
    close_ranks(stages, m->pipe);
    return folded;
}

/* The bounds say how many micro-batches at most fill and drain the pipeline, or are needed to see
 * that nothing changes. */
static void folded_micro_batches_pass_like_those_that_are_walked(void **state)
{
    static const struct {
        struct mesh mesh;
        double sent, latency;
        int walked; /* most micro-batches */
    } cases[] = {{{4, 1, 4, 40, SW_STEP_1F1B, 1, 0}, 1e9, 0, 20},
                 {{4, 1, 7, 40, SW_STEP_1F1B, 1, 0}, 1e7, 1e-5, 20},
                 {{3, 2, 3, 41, SW_STEP_1F1B, 1, SW_TIER_HOST}, 1e6, 1e-4, 20},
                 {{4, 1, 5, 40, SW_STEP_ZERO_BUBBLE, 1, 0}, 1e8, 0, 24},
                 {{4, 1, 8, 80, SW_STEP_INTERLEAVED, 2, 0}, 1e8, 1e-6, 48},
                 {{2, 2, 7, 36, SW_STEP_INTERLEAVED, 3, 0}, 1e7, 1e-5, 24},
                 {{4, 1, 4, 40, SW_STEP_GPIPE, 1, 0}, 1e8, 0, 40}};
    (void)state;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        const struct mesh *m = &cases[i].mesh;
        const struct sw_speeds speeds = speeds_of(cases[i].sent, cases[i].latency);
        const int64_t folded = fold(m, &speeds);
        if (folded < m->micro_batches - cases[i].walked) {
            fail_msg("case %zu: %lld of %d micro-batches were folded", i, (long long)folded,
                     m->micro_batches);
        }
    }
}

static void stages_of_different_worlds_are_refused(void **state)
{
    (void)state;
    const struct mesh two = {2, 1, 4, 2, SW_STEP_1F1B, 1, 0},
                      three = {3, 1, 4, 2, SW_STEP_1F1B, 1, 0};
    const struct sw_speeds speeds = speeds_of(1e9, 0), *all[] = {&speeds, &speeds};
    struct sw_clock_rank stages[] = {{.plan = plan_of(&two, 0)}, {.plan = plan_of(&three, 1)}};
    bool unknown[SW_LOAD_COUNT];
    double seconds;
    assert_int_equal(sw_speeds_stages(stages, all, 2, unknown, &seconds), SW_E_ARG);
    assert_string_equal(sw_error_message(),
                        "stage 1: wanted a rank of a world of 2 that no other stage has");
    close_ranks(stages, 2);
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    const struct mesh m = {2, 2, 4, 20, SW_STEP_1F1B, 1, 0};
    const struct sw_speeds speeds = speeds_of(1e9, 0), *all[] = {&speeds, &speeds};
    struct sw_clock_rank stages[MOST_STAGES];
    bool unknown[SW_LOAD_COUNT];
    double seconds;
    sw_status st = SW_E_NOMEM;
    open_stages(&m, stages);
    for (int64_t nth = 1; st < 0; nth++) {
        sw_alloc_fail_nth(nth);
        st = sw_speeds_stages(stages, all, 2, unknown, &seconds);
        sw_alloc_fail_nth(0);
        assert_true(st >= 0 || st == SW_E_NOMEM);
        assert_true(nth < 100);
    }
    close_ranks(stages, 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_rank_of_each_stage_stands_for_all),
    cmocka_unit_test(spans_tell_what_ran),
    cmocka_unit_test(no_schedule_deadlocks),
    cmocka_unit_test(speed_may_change_by_phase),
    cmocka_unit_test(sides_of_a_message_have_their_own_costs),
    cmocka_unit_test(messages_share_no_byte_with_what_runs),
    cmocka_unit_test(weights_stay_where_they_are),
    cmocka_unit_test(phases_begin_with_weights_that_stay),
    cmocka_unit_test(equal_stages_idle_while_they_fill_and_drain),
    cmocka_unit_test(messages_hide_behind_phases),
    cmocka_unit_test(folded_micro_batches_pass_like_those_that_are_walked),
    cmocka_unit_test(stages_of_different_worlds_are_refused),
    cmocka_unit_test(survives_lack_of_memory),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
