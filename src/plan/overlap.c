// SPDX-License-Identifier: Apache-2.0
// Overlaps collectives with computation (the overlap-centric design of ZeRO-Infinity, Rajbhandari
// et al. 2021, section 6). The collectives of a program run one after the other on their own queue.
// This pass decides when each starts and which travel together.
//
// Gathers start ahead of their first reader, a block at a time, within a limit of elements. An
// update within forward (late_update.c) runs ahead with the gather of what it updates.
// Gradients of a block leave together when the block is done. A batch must arrive before the next
// one leaves, so at most two are held. Updated parameters return in batches during later updates.
// No operand changes, and no order of additions.
#include <string.h>

#include "plan/private.h"
#include "plan/technique.h"

/* Size of a group of updated parameters, if allgather_bucket_size allows it. It takes a few
 * milliseconds on the wire, so the first groups leave while most updates are still to come. */
enum { UPDATE_GROUP_ELEMS = 1 << 22 };

enum { READS = 1, WRITES = 2 };

struct pass {
    struct sw_program *program;
    const struct sw_ir *ir;
    const struct sw_plan_options *options;
    const struct sw_cells *cells;
    struct sw_instr *out; /* [n_instrs] the new order */
    int32_t n_out;
    bool *ahead;   /* [n_instrs] gathers that may start early */
    bool *emitted; /* [n_instrs] */
    /* [n_instrs] for a gather that may start early, a load and a run: the latest instruction that
     * must come before it; -1 = none */
    int32_t *behind;
    int32_t *loads;   /* [n_instrs] for a gather that may start early: the load of its operand */
    int32_t *run_end; /* [n_instrs] end of the run that it is in, see find_run; 0 = none */
    int32_t next;     /* all gathers before it have started */
    int32_t opens;    /* end of the run that starts with the next batch of gathers; 0 = none */
    /* [n_values] by whole value: how often it is read, and how often still, once it is gathered */
    int32_t *reads, *unread;
    int64_t outstanding;
    /* instructions that are held back, to leave together */
    int32_t *held;
    int32_t n_held;
    /* [n_values] by root, what held instructions do with it: READS, WRITES, or both */
    uint8_t *waits_for;
    int64_t held_elems, held_place;
    /* instructions that are put off, see is_put_off: late[first_late] .. late[n_late - 1] */
    int32_t *late, *late_for; /* [n_instrs] for: number of the batch that it may need */
    int32_t first_late, n_late, n_batches; /* batches of reductions so far */
    uint8_t *late_of;                      /* [n_values] as `waits_for`, of what is put off */
};

static const struct sw_ir_op *op_of(const struct pass *p, int32_t i)
{
    return &p->ir->ops[p->program->instrs[i].op];
}

/* Elements that the collective moves, over all ranks. */
static int64_t moved_elems(const struct pass *p, const struct sw_ir_op *op)
{
    return p->ir->values[op->in[0]].form->elems * p->ir->groups[op->exchange.group].n;
}

/* True for a shard of a tile, or its sum. It travels alone, since tiles are used when there is no
 * room for two. */
static bool moves_a_tile(const struct pass *p, const struct sw_ir_op *op)
{
    const sw_value param = p->ir->values[sw_ir_root(p->ir, op->in[0])].param;
    return param >= 0 && sw_ir_is_part(p->ir, param);
}

/* Gradients of one block and one micro-batch leave together. */
static int64_t place_of_grads(const struct pass *p, const struct sw_ir_op *op)
{
    return sw_ir_block_segment(p->ir, op) * p->program->micro_batches + op->micro;
}

/* True for a gather into its own bytes. */
static bool may_start_early(const struct pass *p, const struct sw_ir_op *op)
{
    if (op->move != SW_MOVE_GATHER || op->unless_skipped) {
        return false;
    }
    const enum sw_role role = p->ir->values[sw_ir_root(p->ir, op->out[0])].role;
    return role != SW_ROLE_PARAM && role != SW_ROLE_STATE;
}

/* ---- what must come before what ---- */

/* The latest accesses so far; -1 = none. */
struct latest {
    int32_t *read, *wrote;    /* [n_values] by root */
    int32_t *loaded, *stored; /* [n_cells] of offloaded values */
};

static int32_t later(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* The cells that a transfer moves; none of other instructions. */
static struct sw_cell_range cells_of(const struct pass *p, int32_t i)
{
    return sw_ir_is_transfer(op_of(p, i)) ? p->cells->of[p->program->instrs[i].op]
                                          : (struct sw_cell_range){0};
}

/* The latest instruction that instruction i must not pass: a writer of what it reads, or a reader
 * or writer of what it writes. */
static int32_t find_behind(const struct pass *p, const struct latest *l, int32_t i)
{
    const struct sw_ir_op *op = op_of(p, i);
    int32_t behind = -1;
    for (int k = sw_ir_first_touched(p->ir, op); k < op->n_in; k++) {
        behind = later(behind, l->wrote[sw_ir_root(p->ir, op->in[k])]);
    }
    for (int k = 0; k < op->n_out && sw_ir_touches_outputs(p->ir, op); k++) {
        const sw_value root = op->out[k] < 0 ? SW_NO_VALUE : sw_ir_root(p->ir, op->out[k]);
        behind = root < 0 ? behind : later(behind, later(l->read[root], l->wrote[root]));
    }
    const struct sw_cell_range cells = cells_of(p, i);
    for (int32_t c = cells.first; c < cells.end; c++) {
        behind = later(behind, l->stored[c]);
        behind = op->move == SW_MOVE_STORE ? later(behind, l->loaded[c]) : behind;
    }
    return behind;
}

static void note_accesses(const struct pass *p, const struct latest *l, int32_t i)
{
    const struct sw_ir_op *op = op_of(p, i);
    for (int k = sw_ir_first_touched(p->ir, op); k < op->n_in; k++) {
        l->read[sw_ir_root(p->ir, op->in[k])] = i;
    }
    for (int k = 0; k < op->n_out && sw_ir_touches_outputs(p->ir, op); k++) {
        if (op->out[k] >= 0) {
            l->wrote[sw_ir_root(p->ir, op->out[k])] = i;
        }
    }
    const struct sw_cell_range cells = cells_of(p, i);
    for (int32_t c = cells.first; c < cells.end; c++) {
        (op->move == SW_MOVE_STORE ? l->stored : l->loaded)[c] = i;
    }
}

/* A run is an update within forward, or neighbouring ones, with their loads and stores. Returns its
 * end if one starts at instruction i, else i. */
static int32_t find_run(const struct pass *p, int32_t i)
{
    const struct sw_instr *instrs = p->program->instrs;
    int32_t end = i;
    bool updates = false;
    while (end < p->program->n_instrs && instrs[end].segment == instrs[i].segment &&
           (instrs[end].turn.first_only || op_of(p, end)->move == SW_MOVE_LOAD)) {
        updates |= instrs[end++].turn.first_only;
    }
    return updates ? end : i;
}

/* A run as a whole comes after what any of its instructions must not pass. */
static void note_run(struct pass *p, const struct latest *l, int32_t first, int32_t end)
{
    int32_t behind = -1;
    for (int32_t i = first; i < end; i++) {
        behind = later(behind, find_behind(p, l, i));
    }
    for (int32_t i = first; i < end; i++) {
        p->run_end[i] = end;
        p->behind[i] = behind;
        note_accesses(p, l, i);
    }
}

/* A gather comes after what writes its operand. Exception: a load outside of a run moves with it.
 * It may start early if that is in an earlier segment, or in a run. begin: of its segment */
static void note_gather(struct pass *p, const struct latest *l, int32_t i, int32_t begin)
{
    const int32_t maker = l->wrote[sw_ir_root(p->ir, op_of(p, i)->in[0])];
    const struct sw_ir_op *op = maker < 0 ? NULL : op_of(p, maker);
    const bool moves =
        op && op->move == SW_MOVE_LOAD && !op->unless_skipped && p->run_end[maker] == 0;
    const int32_t behind = moves ? p->behind[maker] : maker;
    p->loads[i] = moves ? maker : -1;
    p->behind[i] = behind;
    p->ahead[i] = behind < begin || p->run_end[behind] > 0;
}

/* Finds the gathers that may start early, the runs, and what must come before both. */
static void find_order(struct pass *p, const struct latest *l)
{
    const struct sw_instr *instrs = p->program->instrs;
    int32_t begin = 0;
    for (int32_t i = 0; i < p->program->n_instrs;) {
        const struct sw_ir_op *op = op_of(p, i);
        const int32_t end = find_run(p, i);
        begin = i > 0 && sw_instr_key(&instrs[i]) != sw_instr_key(&instrs[i - 1]) ? i : begin;
        if (end > i) {
            note_run(p, l, i, end);
            i = end;
            continue;
        }
        if (may_start_early(p, op)) {
            note_gather(p, l, i, begin);
        } else if (op->move == SW_MOVE_LOAD) {
            p->behind[i] = find_behind(p, l, i);
        }
        note_accesses(p, l, i);
        i++;
    }
}

static void count_reads(const struct pass *p)
{
    for (int32_t i = 0; i < p->program->n_instrs; i++) {
        const struct sw_ir_op *op = op_of(p, i);
        for (int k = 0; k < op->n_in; k++) {
            p->reads[sw_ir_root(p->ir, op->in[k])]++;
        }
    }
}

/* ---- the new order ---- */

static void emit(struct pass *p, int32_t i)
{
    p->out[p->n_out++] = p->program->instrs[i];
    p->emitted[i] = true;
}

/* Emits the load that a gather depends on before the gather. */
static void emit_loads_of(struct pass *p, int32_t i)
{
    const int32_t load = p->ahead[i] ? p->loads[i] : -1;
    if (load >= 0 && !p->emitted[load]) {
        emit(p, load);
    }
}

/* Emits what is left of a run. */
static void emit_run(struct pass *p, int32_t end)
{
    int32_t first = end;
    while (first > 0 && p->run_end[first - 1] == end) {
        first--;
    }
    for (int32_t i = first; i < end; i++) {
        if (!p->emitted[i]) {
            emit(p, i);
        }
    }
}

/* Emits a batch: its members are adjacent, and the first has their number. */
static void emit_batch(struct pass *p, const int32_t *members, int32_t n)
{
    for (int32_t k = 0; k < n; k++) {
        emit_loads_of(p, members[k]);
    }
    const int32_t first = p->n_out;
    for (int32_t k = 0; k < n; k++) {
        emit(p, members[k]);
        p->out[p->n_out - 1].exchange.batch = 0;
    }
    p->out[first].exchange.batch = n;
}

/* Records or clears the accesses of an instruction that waits. waits_for: [n_values] */
static void note_waiting(const struct pass *p, uint8_t *waits_for, int32_t i, bool waits)
{
    const struct sw_ir_op *op = op_of(p, i);
    for (int k = 0; k < op->n_in + op->n_out; k++) {
        const sw_value v = k < op->n_in ? op->in[k] : op->out[k - op->n_in];
        uint8_t *of = v < 0 ? NULL : &waits_for[sw_ir_root(p->ir, v)];
        if (of) {
            *of = waits ? *of | (k < op->n_in ? READS : WRITES) : 0;
        }
    }
}

static bool holds_reductions(const struct pass *p)
{
    return p->n_held > 0 && op_of(p, p->held[0])->move == SW_MOVE_REDUCE;
}

static void emit_late(struct pass *p, int32_t batch);

/* Emits the held instructions as one batch. After a batch of reductions, emits what was put off for
 * the batch before, which has arrived. */
static void flush_held(struct pass *p)
{
    const bool reduces = holds_reductions(p);
    for (int32_t h = 0; h < p->n_held; h++) {
        note_waiting(p, p->waits_for, p->held[h], false);
    }
    if (p->n_held > 0) {
        emit_batch(p, p->held, p->n_held);
    }
    p->n_held = 0;
    p->held_elems = 0;
    if (reduces) {
        emit_late(p, p->n_batches++);
    }
}

static int64_t update_limit(const struct pass *p)
{
    return sw_min_i64(p->options->limits.allgather_bucket_elems, UPDATE_GROUP_ELEMS);
}

enum { MOST_MEMBERS = 256 };

/* True if all that a gather needs has been emitted up to instruction `at`, or will be. */
static bool is_ready(const struct pass *p, int32_t gather, int32_t at)
{
    const int32_t behind = p->behind[gather];
    return behind < at || p->emitted[behind] || (p->opens > 0 && p->run_end[behind] == p->opens);
}

/* The end of the run for which a gather waits, if it may start before instruction `at`; else 0. */
static int32_t run_before(const struct pass *p, int32_t gather, int32_t at)
{
    const int32_t behind = p->behind[gather];
    return behind >= at && !p->emitted[behind] && p->run_end[behind] > 0 && p->behind[behind] < at
               ? p->run_end[behind]
               : 0;
}

/* True if two gathers may be in one batch. */
static bool travel_together(const struct pass *p, int32_t a, int32_t b)
{
    const struct sw_instr *instrs = p->program->instrs;
    return op_of(p, a)->exchange.group == op_of(p, b)->exchange.group &&
           instrs[a].turn.once == instrs[b].turn.once;
}

/* Appends gathers from `from` on, as long as they are in the place of the first, travel together
 * and are ready before instruction `at`. Returns the start of the remaining ones; *elems: elements
 * of those that were added. */
static int32_t list_place(const struct pass *p, int32_t at, int32_t from, int32_t end,
                          int32_t *members, int32_t *n, int64_t *elems)
{
    const struct sw_ir_op *first = op_of(p, from);
    const int64_t place = sw_ir_block_segment(p->ir, first);
    int32_t i = from;
    *elems = 0;
    for (; i < end && *n < MOST_MEMBERS; i++) {
        const struct sw_ir_op *op = op_of(p, i);
        if (!p->ahead[i] || p->emitted[i]) {
            continue;
        }
        const int64_t more = moved_elems(p, op);
        if (sw_ir_block_segment(p->ir, op) != place || !is_ready(p, i, at) ||
            (*n > 0 && !travel_together(p, i, members[0])) ||
            (*elems > 0 && (moves_a_tile(p, first) || moves_a_tile(p, op))) ||
            (op->phase == SW_PHASE_UPDATE && *elems > 0 && *elems + more > update_limit(p))) {
            break; /* the sums of all parameters count as one place and travel in buckets */
        }
        *elems += more;
        members[(*n)++] = i;
    }
    return i;
}

/* Starts gathers from instruction `from` on, as one batch. It takes whole places (blocks) in order,
 * while all gathered and unread elements stay within `room`. The run for which the first one waits
 * starts with it. forced: the first place is needed now, and starts even if it exceeds `room`. */
static void start_gathers(struct pass *p, int32_t from, int32_t end, int64_t room, bool forced)
{
    const int32_t at = from;
    int32_t members[MOST_MEMBERS], n = 0;
    int64_t elems = 0;
    from = from > p->next ? from : p->next;
    while (from < end && (!p->ahead[from] || p->emitted[from])) {
        from++;
    }
    p->next = from;
    p->opens = from < end ? run_before(p, from, at) : 0;
    for (int32_t i = from; i < end && n < MOST_MEMBERS;) {
        while (i < end && (!p->ahead[i] || p->emitted[i])) {
            i++;
        }
        if (i == end) {
            break;
        }
        const int32_t n_before = n;
        int64_t sum;
        i = list_place(p, at, i, end, members, &n, &sum);
        if (n == n_before || (!(forced && n_before == 0) && p->outstanding + elems + sum > room)) {
            n = n_before; /* other ranks take part, or there is no room */
            break;
        }
        elems += sum;
    }
    for (int32_t k = 0; k < n; k++) {
        const sw_value whole = op_of(p, members[k])->out[0];
        p->unread[whole] = p->reads[whole];
    }
    p->outstanding += elems;
    if (n > 0) {
        flush_held(p);
        emit_run(p, p->opens);
        emit_batch(p, members, n);
    }
}

/* Once its readers have run, a gathered value no longer counts against the limit. */
static void note_reads(struct pass *p, const struct sw_ir_op *op)
{
    for (int k = 0; k < op->n_in; k++) {
        const sw_value root = sw_ir_root(p->ir, op->in[k]);
        if (p->unread[root] > 0 && --p->unread[root] == 0) {
            p->outstanding -= moved_elems(p, &p->ir->ops[p->ir->values[root].producer]);
        }
    }
}

static int64_t batch_limit(const struct pass *p, const struct sw_ir_op *op)
{
    return op->move == SW_MOVE_REDUCE ? p->options->limits.reduce_bucket_elems : update_limit(p);
}

/* An instruction must not overtake those that wait if it reads what they write, or writes what they
 * touch. */
static bool touches(const struct pass *p, const uint8_t *waits_for, const struct sw_ir_op *op)
{
    bool found = false;
    for (int k = 0; k < op->n_in; k++) {
        found = found || (waits_for[sw_ir_root(p->ir, op->in[k])] & WRITES);
    }
    for (int k = 0; k < op->n_out; k++) {
        found = found || (op->out[k] >= 0 && waits_for[sw_ir_root(p->ir, op->out[k])]);
    }
    return found;
}

static bool touches_held(const struct pass *p, const struct sw_ir_op *op)
{
    return p->n_held > 0 && touches(p, p->waits_for, op);
}

/* True if an instruction may travel with those that are held. */
static bool may_join(const struct pass *p, const struct sw_ir_op *op)
{
    const struct sw_ir_op *first = op_of(p, p->held[0]);
    return !moves_a_tile(p, op) && first->move == op->move &&
           first->exchange.group == op->exchange.group && first->in_backward == op->in_backward &&
           !(op->exchange.continues && touches_held(p, op)) &&
           p->held_elems + moved_elems(p, op) <= batch_limit(p, op);
}

/* Holds reductions, and gathers of updated parameters, until their block or a bucket is complete.
 * Others may be held after those before have left, see flush_held. */
static void hold(struct pass *p, int32_t i)
{
    const struct sw_ir_op *op = op_of(p, i);
    const int64_t place = op->move == SW_MOVE_REDUCE ? p->held_place : -1;
    while (p->n_held > 0 && !may_join(p, op)) {
        flush_held(p);
    }
    p->held[p->n_held++] = i;
    note_waiting(p, p->waits_for, i, true);
    p->held_elems += moved_elems(p, op);
    p->held_place = place >= 0 ? place : p->held_place;
    if (moves_a_tile(p, op)) {
        flush_held(p);
    }
}

static bool is_held(const struct pass *p, int32_t i)
{
    const struct sw_ir_op *op = op_of(p, i);
    return op->move == SW_MOVE_REDUCE || (op->move == SW_MOVE_GATHER && op->unless_skipped);
}

/* True if instruction i and the next one are in one loop, which stays together. */
static bool is_in_loop(const struct pass *p, int32_t i, int32_t end)
{
    const int32_t loop = op_of(p, i)->loop;
    return loop > 0 && i + 1 < end && op_of(p, i + 1)->loop == loop;
}

/* Emits an instruction, or holds it. */
static void place(struct pass *p, int32_t i)
{
    const struct sw_ir_op *op = op_of(p, i);
    const int64_t its = place_of_grads(p, op);
    if (is_held(p, i)) {
        hold(p, i);
        return;
    }
    if (p->program->instrs[i].queue == SW_QUEUE_COMM || touches_held(p, op) ||
        (holds_reductions(p) && its != p->held_place)) {
        flush_held(p);
    }
    p->held_place = its;
    emit(p, i);
    p->out[p->n_out - 1].exchange.batch = sw_ir_is_collective(op);
    note_reads(p, op);
}

/* True for what the update does in backward: it needs the reductions of its block. It is put off
 * until the next batch of them leaves, so that the backward of the next block runs meanwhile. */
static bool is_put_off(const struct sw_ir_op *op, int64_t room)
{
    return room > 0 && op->in_backward && op->move != SW_MOVE_REDUCE;
}

static void put_off(struct pass *p, int32_t i)
{
    note_waiting(p, p->late_of, i, true);
    p->late_for[p->n_late] = p->n_batches + holds_reductions(p);
    p->late[p->n_late++] = i;
}

/* Emits what was put off for batches up to this one. */
static void emit_late(struct pass *p, int32_t batch)
{
    const int64_t held_place = p->held_place;
    const int32_t first = p->first_late;
    while (p->first_late < p->n_late && p->late_for[p->first_late] <= batch) {
        place(p, p->late[p->first_late++]);
    }
    p->held_place = held_place;
    for (int32_t k = first; k < p->first_late; k++) {
        note_waiting(p, p->late_of, p->late[k], false);
    }
    for (int32_t k = p->first_late; k < p->n_late && first < p->first_late; k++) {
        note_waiting(p, p->late_of, p->late[k], true);
    }
}

/* Emits all that was put off. */
static void end_late(struct pass *p)
{
    if (p->first_late < p->n_late) {
        flush_held(p);
        emit_late(p, INT32_MAX);
    }
}

/* Orders a segment. Gathers start early while unread elements fit in `room`, some exchanges are
 * held for a batch, and everything else keeps its order. */
static void order_segment(struct pass *p, int32_t begin, int32_t end)
{
    const int64_t room = p->options->overlap ? sw_min_i64(p->options->policy.prefetch_elems,
                                                          p->options->limits.max_live_elems)
                                             : 0;
    p->next = begin;
    for (int32_t i = begin; i < end; i++) {
        const struct sw_ir_op *op = op_of(p, i);
        if (p->emitted[i]) {
            continue;
        }
        if (p->ahead[i]) {
            start_gathers(p, i, end, room, true);
            continue;
        }
        if (is_put_off(op, room)) {
            put_off(p, i);
            continue;
        }
        if (p->first_late < p->n_late && touches(p, p->late_of, op)) {
            end_late(p);
        }
        place(p, i);
        if (!p->emitted[i]) {
            continue;
        }
        if (p->outstanding <= room / 2 && op->move != SW_MOVE_RECV && /* receives come first */
            !is_in_loop(p, i, end)) {
            start_gathers(p, i + 1, end, room, false);
        }
    }
    flush_held(p);
    end_late(p);
    flush_held(p);
}

static void order_all(struct pass *p)
{
    struct sw_program *program = p->program;
    for (int32_t i = 0; i < program->n_instrs;) {
        const struct sw_instr *instr = &program->instrs[i];
        const struct sw_instr_range range =
            sw_program_range(program, instr->segment, (int)instr->chunk);
        order_segment(p, range.first, range.end);
        i = range.end;
    }
    SW_ASSERT(p->n_out == program->n_instrs);
    memcpy(program->instrs, p->out, (size_t)p->n_out * sizeof *p->out);
}

/* false = out of memory */
static bool prepare(struct pass *p)
{
    const size_t n_values = (size_t)p->ir->n_values + 1, n_cells = (size_t)p->cells->n + 1;
    const struct latest l = {.read = sw_alloc("plan", n_values * sizeof *l.read),
                             .wrote = sw_alloc("plan", n_values * sizeof *l.wrote),
                             .loaded = sw_alloc("plan", n_cells * sizeof *l.loaded),
                             .stored = sw_alloc("plan", n_cells * sizeof *l.stored)};
    const bool good = l.read && l.wrote && l.loaded && l.stored;
    if (good) {
        memset(l.read, 0xff, n_values * sizeof *l.read);
        memset(l.wrote, 0xff, n_values * sizeof *l.wrote);
        memset(l.loaded, 0xff, n_cells * sizeof *l.loaded);
        memset(l.stored, 0xff, n_cells * sizeof *l.stored);
        find_order(p, &l);
        count_reads(p);
    }
    sw_free(l.read);
    sw_free(l.wrote);
    sw_free(l.loaded);
    sw_free(l.stored);
    return good;
}

sw_status sw_pass_overlap(struct sw_program *program, const struct sw_cells *cells,
                          const struct sw_plan_options *options)
{
    const size_t n = (size_t)program->n_instrs + 1;
    const size_t n_values = (size_t)program->ir->n_values + 1;
    struct pass p = {.program = program, .ir = program->ir, .cells = cells, .options = options};
    if (sw_ir_data(p.ir)->n <= 1) {
        return SW_OK;
    }
    p.out = sw_alloc_zero("plan", n, sizeof *p.out);
    p.ahead = sw_alloc_zero("plan", n, sizeof *p.ahead);
    p.emitted = sw_alloc_zero("plan", n, sizeof *p.emitted);
    p.held = sw_alloc_zero("plan", n, sizeof *p.held);
    p.reads = sw_alloc_zero("plan", n_values, sizeof *p.reads);
    p.unread = sw_alloc_zero("plan", n_values, sizeof *p.unread);
    p.behind = sw_alloc("plan", n * sizeof *p.behind);
    p.loads = sw_alloc("plan", n * sizeof *p.loads);
    p.run_end = sw_alloc_zero("plan", n, sizeof *p.run_end);
    p.waits_for = sw_alloc_zero("plan", n_values, sizeof *p.waits_for);
    p.late = sw_alloc("plan", n * sizeof *p.late);
    p.late_for = sw_alloc("plan", n * sizeof *p.late_for);
    p.late_of = sw_alloc_zero("plan", n_values, sizeof *p.late_of);
    const bool good = p.out && p.ahead && p.emitted && p.held && p.reads && p.unread && p.behind &&
                      p.loads && p.run_end && p.waits_for && p.late && p.late_for && p.late_of &&
                      prepare(&p);
    if (good) {
        order_all(&p);
    }
    sw_free(p.out);
    sw_free(p.ahead);
    sw_free(p.emitted);
    sw_free(p.held);
    sw_free(p.reads);
    sw_free(p.unread);
    sw_free(p.behind);
    sw_free(p.loads);
    sw_free(p.run_end);
    sw_free(p.waits_for);
    sw_free(p.late);
    sw_free(p.late_for);
    sw_free(p.late_of);
    return good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
}

/* ---- the technique ---- */

const struct sw_technique sw_technique_overlap = {
    .keys = "zero_optimization.overlap_comm",
    .arrange = sw_pass_overlap,
};
