// SPDX-License-Identifier: Apache-2.0
// The walk does not know stages, tiers, ranks or schedules: the plan expresses all of them as
// phases and instructions. A walk is a small automaton over them, so that one thread can hold any
// number of walks.
#include "walk/walk.h"

/* The next thing to do. An instruction passes through VISIT .. MOVE; only the last one of a phase
 * passes through DRAIN and JOIN. */
enum stage { ENTER, START, VISIT, WAITS, ISSUE, BLOCK, DRAIN, JOIN, PASS, MOVE };

static int64_t first_order(const struct sw_step_phase *phase)
{
    return phase->turn * SW_WALK_TURN;
}

/* True for instructions of the last or the first micro-step in another one, for reads that the step
 * before has done, and for those of a micro-batch that this rank lacks. A skipped step is
 * different: the kernels themselves see on the device that they must not change anything. Copies,
 * gathers and writes then move the old bytes. */
static bool is_left_out(const struct sw_walk *w, const struct sw_instr *instr)
{
    const bool rows = !sw_instr_exchanges(instr) && instr->verb != SW_VERB_KERNEL &&
                      instr->n_in > 2; /* the micro-batch has their numbers */
    return (instr->last_only && !w->phase->is_last) ||
           (instr->turn.first_only && !w->phase->is_first) ||
           (instr->turn.once && w->phase->round > 0) ||
           (instr->turn.from_last && w->phase->finds) ||
           ((rows || instr->verb == SW_VERB_KERNEL) && instr->micro >= w->phase->n_micro);
}

/* Order of instruction j for a waiter in `loop`: with the same piece if j is in the same loop, else
 * with the last piece. */
static int64_t order_of(const struct sw_walk *w, int32_t loop, int32_t j)
{
    const struct sw_program *program = w->program;
    const struct sw_instr *instr = &program->instrs[j];
    const int64_t order = first_order(w->phase) + instr->turn.order;
    if (instr->turn.loop == 0) {
        return order;
    }
    const struct sw_loop *other = &program->loops[instr->turn.loop - 1];
    const int32_t piece = instr->turn.loop == loop ? w->piece : other->pieces - 1;
    return order + (int64_t)piece * other->n;
}

/* Sets `needs` and `order` for the visited piece. In a loop it may also need the instruction
 * `turn.again` for the piece `turns` before, which empties its place. */
static void find_needs(struct sw_walk *w, const struct sw_instr *instr)
{
    const struct sw_program *program = w->program;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        w->needs[q] = instr->waits[q] < 0 ? -1 : order_of(w, instr->turn.loop, instr->waits[q]);
    }
    w->order = first_order(w->phase) + instr->turn.order;
    if (instr->turn.loop > 0) {
        const int32_t n = program->loops[instr->turn.loop - 1].n,
                      before = w->piece - program->turns;
        w->order += (int64_t)w->piece * n;
        if (instr->turn.again >= 0 && before >= 0) {
            const struct sw_instr *other = &program->instrs[instr->turn.again];
            w->needs[other->queue] =
                first_order(w->phase) + other->turn.order + (int64_t)before * n;
        }
    }
}

/* ---- the position ---- */

/* Moves on within a loop. A turn visits the loads of piece `turn`, then the kernel and the stores
 * of an earlier piece. A piece of that number need not exist. false = the loop is over, and the
 * position is its last instruction */
static bool go_on_in_loop(struct sw_walk *w, const struct sw_loop *loop)
{
    const int32_t ahead = sw_loop_ahead(w->program), end = loop->first + loop->n;
    for (;;) {
        if (++w->instr == end) {
            w->turn += w->loads ? 0 : 1;
            w->loads = !w->loads;
            if (w->turn == loop->pieces + ahead) {
                w->instr = end - 1;
                return false;
            }
            w->instr = loop->first;
        }
        const enum sw_verb verb = w->program->instrs[w->instr].verb;
        const bool is_load = verb == SW_VERB_COPY_IN || verb == SW_VERB_READ;
        w->piece = w->loads ? w->turn : w->turn - ahead;
        if (is_load == w->loads && w->piece >= 0 && w->piece < loop->pieces) {
            return true;
        }
    }
}

static const struct sw_loop *loop_at(const struct sw_walk *w)
{
    const int32_t number = w->program->instrs[w->instr].turn.loop;
    return number > 0 ? &w->program->loops[number - 1] : NULL;
}

/* Moves to the first visit of instruction i, which is outside of a loop or its first one. */
static void go_to(struct sw_walk *w, int32_t i)
{
    w->instr = i;
    w->piece = 0;
    const struct sw_loop *loop = loop_at(w);
    if (loop) {
        w->instr = i - 1;
        w->turn = 0;
        w->loads = true;
        go_on_in_loop(w, loop);
    }
}

/* True after the last visit of the phase, or if it has none. */
static bool is_over(const struct sw_walk *w)
{
    return w->instr > w->last ||
           (w->instr == w->last &&
            w->piece == sw_instr_pieces(w->program, &w->program->instrs[w->instr]) - 1);
}

static void go_on(struct sw_walk *w)
{
    const struct sw_loop *loop = loop_at(w);
    if (!loop || !go_on_in_loop(w, loop)) {
        go_to(w, w->instr + 1);
    }
}

/* ---- events ---- */

/* Leaves a visit, or the phase. */
static void move(struct sw_walk *w)
{
    const bool over = is_over(w);
    if (over) {
        w->phase++;
    } else {
        go_on(w);
    }
    w->stage = over ? ENTER : VISIT;
}

/* Sets the position to the first instruction of the phase, and `last`. The receives of a pipeline's
 * phase are apart. */
static void set_range(struct sw_walk *w)
{
    const struct sw_step_phase *phase = w->phase;
    const struct sw_instr_range range = sw_program_range(w->program, phase->segment, phase->chunk);
    int32_t end = range.first; /* of the receives */
    while (phase->turn > 0 && end < range.end && w->program->instrs[end].verb == SW_VERB_RECV) {
        end++;
    }
    const bool receives = phase->action == SW_STEP_RECEIVE;
    w->instr = receives ? range.first : end;
    w->last = (receives ? end : range.end) - 1;
}

/* Enters a phase, and moves to its first visit if it has instructions. Returns its first event. */
static enum sw_event_kind enter(struct sw_walk *w)
{
    static const enum sw_event_kind kinds[] = {[SW_STEP_RUN] = SW_EVENT_BEGIN,
                                               [SW_STEP_RECEIVE] = SW_EVENT_BEGIN,
                                               [SW_STEP_LOSSES] = SW_EVENT_LOSSES,
                                               [SW_STEP_AGREE] = SW_EVENT_AGREE,
                                               [SW_STEP_COMMIT] = SW_EVENT_COMMIT};
    const struct sw_step_phase *phase = w->phase;
    w->program = &w->plan->programs[phase->program];
    w->left_out = true;
    w->instr = 0;
    w->last = -1;
    w->stage = MOVE;
    w->queue = SW_QUEUE_COMPUTE + 1;
    if (phase->action <= SW_STEP_RECEIVE) {
        set_range(w);
        w->stage = START;
    }
    if (w->instr <= w->last) {
        go_to(w, w->instr);
    }
    return kinds[phase->action];
}

static void visit(struct sw_walk *w, const struct sw_instr *instr)
{
    w->left_out = is_left_out(w, instr);
    w->queue = SW_QUEUE_COMPUTE + 1;
    find_needs(w, instr);
}

/* Finds the next queue that is waited for before the instruction is issued. Instructions that do
 * not run wait, too: the memory map relies on it. */
static bool next_wait(struct sw_walk *w, const struct sw_instr *instr, struct sw_event *out)
{
    const enum sw_queue on = sw_instr_queue(instr);
    while (w->queue < SW_QUEUE_COUNT) {
        const int q = w->queue++;
        if (w->needs[q] >= 0 && (on == SW_QUEUE_COMPUTE || q == (int)on)) {
            *out = (struct sw_event){SW_EVENT_WAIT, (enum sw_queue)q, w->needs[q]};
            return true;
        }
    }
    return false;
}

/* Adds what the instruction follows on its own queue. Nobody waits for that before it is issued. */
static void find_hazard(struct sw_walk *w, const struct sw_instr *instr)
{
    if (instr->follows >= 0) {
        w->needs[instr->queue] =
            sw_max_i64(w->needs[instr->queue], order_of(w, instr->turn.loop, instr->follows));
    }
}

/* True if the instruction is issued here. An exchange may travel with an earlier one. */
static bool is_issued(const struct sw_walk *w, const struct sw_instr *instr)
{
    return !w->left_out && !sw_instr_is_inside(instr);
}

/* Emits one kind of event, if it is due, and goes to the next stage. */
static bool emit(struct sw_walk *w, enum stage next, bool due, enum sw_event_kind kind,
                 struct sw_event *out)
{
    w->stage = (int8_t)next;
    *out = (struct sw_event){.kind = kind};
    return due;
}

/* Passes through a stage of an instruction. false = the stage has no event */
static bool next_of_instr(struct sw_walk *w, struct sw_event *out)
{
    const struct sw_instr *instr = &w->program->instrs[w->instr];
    switch ((enum stage)w->stage) {
    case VISIT:
        visit(w, instr);
        w->stage = WAITS;
        return false;
    case WAITS:
        return next_wait(w, instr, out) || emit(w, ISSUE, false, SW_EVENT_WAIT, out);
    case ISSUE:
        find_hazard(w, instr);
        return emit(w, BLOCK, is_issued(w, instr), SW_EVENT_ISSUE, out);
    case BLOCK:
        w->stage = is_over(w) ? DRAIN : PASS;
        w->queue = SW_QUEUE_COMPUTE + 1;
        *out = (struct sw_event){SW_EVENT_WAIT, instr->queue, w->order};
        return instr->exchange.blocking && is_issued(w, instr);
    default:
        return false;
    }
}

/* In a pipeline: waits for what must have left. */
static bool start(struct sw_walk *w, struct sw_event *out)
{
    const int32_t sent = w->phase->sent;
    while (sent > 0 && w->queue < SW_QUEUE_COUNT) {
        const enum sw_queue q = (enum sw_queue)w->queue++;
        if (sw_queue_sends(q)) {
            *out = (struct sw_event){SW_EVENT_WAIT, q, (sent + 1) * SW_WALK_TURN - 1};
            return true;
        }
    }
    w->queue = SW_QUEUE_COMPUTE + 1;
    w->stage = w->instr <= w->last ? VISIT : DRAIN;
    return false;
}

/* Ends a phase with a barrier; in a pipeline with a wait for each queue, but for messages that run
 * on. The phase's own receives do not. */
static bool drain(struct sw_walk *w, struct sw_event *out)
{
    if (!w->phase->runs_on) {
        return emit(w, JOIN, w->phase->drains, SW_EVENT_BARRIER, out);
    }
    while (w->queue < SW_QUEUE_COUNT) {
        const enum sw_queue q = (enum sw_queue)w->queue++;
        if (!sw_queue_sends(q)) {
            const bool received = sw_queue_receives(q);
            *out = (struct sw_event){SW_EVENT_WAIT, q,
                                     received ? first_order(w->phase) + SW_WALK_TURN - 1
                                              : SW_WALK_ALL};
            return true;
        }
    }
    w->stage = JOIN;
    return false;
}

void sw_walk_begin(struct sw_walk *walk, const struct sw_plan *plan,
                   const struct sw_step_phase *phases, int32_t n)
{
    *walk = (struct sw_walk){.plan = plan, .phase = phases, .end = phases + n, .stage = ENTER};
}

void sw_walk_next(struct sw_walk *w, struct sw_event *out)
{
    for (bool found = false; !found;) {
        switch ((enum stage)w->stage) {
        case ENTER:
            *out = (struct sw_event){.kind = w->phase == w->end ? SW_EVENT_END : enter(w)};
            found = true;
            break;
        case START:
            found = start(w, out);
            break;
        case DRAIN:
            found = drain(w, out);
            break;
        case JOIN:
            found = emit(w, PASS, w->phase->joins, SW_EVENT_JOIN, out);
            break;
        case PASS:
            found = emit(w, MOVE, !w->left_out, SW_EVENT_PASSED, out);
            break;
        case MOVE:
            move(w);
            break;
        default:
            found = next_of_instr(w, out);
        }
    }
}
