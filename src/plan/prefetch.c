// SPDX-License-Identifier: Apache-2.0
// Overlaps transfers with computation (ZeRO-Infinity, Rajbhandari et al. 2021, section 6.2). A load
// is issued ahead of its first reader, possibly in an earlier segment, within a limit of bytes that
// are loaded and unread. Loads keep their order, and none passes a store to the same bytes. A load
// that moves ahead of the point at which SKIP is known loses its predicate.
//
// Under clipping, what an update within forward needs of the disk is read ahead across steps, too:
// the first reads of a forward come once more in the last backward, where its own loads leave room.
// The first forward of the next step leaves them out, unless something has come between.
//
// Stores of an update within forward lag (lag.c). They get what the loads that are left in forward
// do not need of the limit, at least half of it, so that forward ends with as many as possible.
// Backward writes these first, and then reads for the next step, in the same memory (waits.c).
#include <string.h>

#include "plan/private.h"
#include "plan/technique.h"

/* An instruction in the new order, with its fields there. */
struct slot {
    int32_t from;
    uint16_t chunk;
    uint8_t segment;
    bool unless_skipped : 1, last_only : 1;
};

/* A read of forward, which the step before may do. */
struct across {
    int32_t slot;  /* its index in the new order */
    int32_t after; /* the last reader of what it has read in this step, in the old order */
    int32_t at;    /* the index before which it comes once more */
    size_t bytes;
};

struct pass {
    struct sw_program *program;
    const struct sw_ir *ir;
    const struct sw_cells *cells;
    size_t room, ahead; /* in bytes */
    struct slot *out;   /* [n_instrs] the new order */
    int32_t n_out;
    bool is_stage;  /* see sw_program_is_stage */
    bool finished;  /* it is known whether the step is skipped */
    bool *emitted;  /* [n_instrs] */
    size_t *unread; /* [n_values] by root, bytes that are loaded and not read */
    struct sw_lag lag;
    bool lags;           /* some stores may lag */
    size_t forward_left; /* bytes of loads that forward has still to issue */
    size_t lagging;      /* bytes of stores that may lag, issued since it has none */
    size_t update_bytes; /* of loads for an update at the end of the step, at most `room` */
    size_t later;        /* bytes that forward loads for backward */
    /* FLOPs of forward and backward that are to come: now, and when forward had issued its loads */
    double work_left, work;
    bool written;          /* before the latest kernel there was the time to write what lags */
    struct across *across; /* [n_across], of which n_again come once more */
    int32_t n_across, n_again;
    size_t across_bytes;
    bool may_add; /* reads for the next step are wanted */
    /* [n_instrs] for loads: the latest instruction that it must not pass; -1 = none */
    int32_t *behind;
    int32_t *last_read; /* [n_values] by root, the last instruction that reads it; -1 = none */
};

static const struct sw_ir_op *op_of(const struct pass *p, int32_t i)
{
    return &p->ir->ops[p->program->instrs[i].op];
}

/* The latest writers. */
struct writers {
    int32_t *stored; /* [n_cells] the store to a cell; -1 = none */
    int32_t *last;   /* [n_values] by root, the latest writer on the device; -1 = none */
};

/* The latest instruction that load i must not pass: a store to the same bytes, a kernel of the host
 * that writes them, or the op that makes its row indices or offsets. -1 = none. */
static int32_t find_behind(const struct pass *p, const struct writers *w, int32_t i)
{
    const struct sw_ir_op *load = op_of(p, i);
    const struct sw_cell_range cells = p->cells->of[p->program->instrs[i].op];
    int32_t behind = load->n_in > 1 ? w->last[sw_ir_root(p->ir, load->in[1])] : -1;
    if (sw_ir_first_touched(p->ir, load) == 0) { /* or the kernel of the host that writes it */
        const int32_t made = w->last[sw_ir_root(p->ir, load->in[0])];
        behind = made > behind ? made : behind;
    }
    for (int32_t c = cells.first; c < cells.end; c++) {
        behind = w->stored[c] > behind ? w->stored[c] : behind;
    }
    return behind;
}

/* Notes instruction i as the last writer of its outputs and of the cells that it stores. */
static void note_writes(const struct pass *p, const struct writers *w, int32_t i)
{
    const struct sw_ir_op *op = op_of(p, i);
    if (op->move == SW_MOVE_STORE) {
        const struct sw_cell_range cells = p->cells->of[p->program->instrs[i].op];
        for (int32_t c = cells.first; c < cells.end; c++) {
            w->stored[c] = i;
        }
    }
    for (int k = 0; k < op->n_out; k++) {
        if (op->out[k] >= 0) {
            w->last[sw_ir_root(p->ir, op->out[k])] = i;
        }
    }
}

/* false = out of memory */
static bool find_order(const struct pass *p)
{
    const size_t n_cells = (size_t)p->cells->n + 1, n_values = (size_t)p->ir->n_values + 1;
    const struct writers w = {.stored = sw_alloc("plan", n_cells * sizeof *w.stored),
                              .last = sw_alloc("plan", n_values * sizeof *w.last)};
    const bool good = w.stored && w.last;
    if (good) {
        memset(w.stored, 0xff, n_cells * sizeof *w.stored);
        memset(w.last, 0xff, n_values * sizeof *w.last);
        memset(p->last_read, 0xff, n_values * sizeof *p->last_read);
    }
    for (int32_t i = 0; good && i < p->program->n_instrs; i++) {
        const struct sw_ir_op *op = op_of(p, i);
        p->behind[i] = op->move == SW_MOVE_LOAD ? find_behind(p, &w, i) : -1;
        note_writes(p, &w, i);
        for (int k = 0; k < op->n_in; k++) {
            p->last_read[sw_ir_root(p->ir, op->in[k])] = i;
        }
    }
    sw_free(w.stored);
    sw_free(w.last);
    return good;
}

/* True if it loads a parameter to its permanent place, so that it needs no room. */
static bool is_for_good(const struct sw_ir *ir, const struct sw_ir_op *load)
{
    return ir->values[sw_ir_root(ir, load->out[0])].role == SW_ROLE_PARAM;
}

/* True for a load of forward that needs room. */
static bool is_of_forward(const struct pass *p, int32_t i)
{
    const struct sw_ir_op *op = op_of(p, i);
    return op->move == SW_MOVE_LOAD && op->loop == 0 && !is_for_good(p->ir, op) &&
           p->program->instrs[i].segment == SW_SEGMENT_FORWARD;
}

/* FLOPs of an instruction of forward or backward. */
static double work_of(const struct pass *p, int32_t i)
{
    return p->program->instrs[i].segment <= SW_SEGMENT_BACKWARD
               ? (double)sw_ir_flops(p->ir, op_of(p, i))
               : 0;
}

/* True if the step before may read it: parameters and states of an update within forward, which
 * forward has not stored. */
static bool may_be_read_before(const struct pass *p, int32_t i)
{
    const struct sw_ir_op *op = op_of(p, i);
    const struct sw_ir_value *home = &p->ir->values[sw_ir_root(p->ir, op->in[0])];
    return op->loop == 0 && op->n_in == 1 && sw_ir_is_on_disk(p->ir, op->in[0]) &&
           home->two_slots == SW_SLOTS_LATE && !sw_state_is_sum(home->state) && p->behind[i] < 0 &&
           !is_for_good(p->ir, op) && p->program->instrs[i].segment == SW_SEGMENT_FORWARD;
}

/* Bytes that may be read for the next step: about as many as stores that lag and loads of backward
 * have when backward begins, since later there are none of these. */
static size_t most_across(const struct pass *p)
{
    enum { MOST_MORE = 1 << 27 }; /* as many as stores that are in flight, see waits.c */
    const size_t more = p->room / 4 < MOST_MORE ? p->room / 4 : MOST_MORE;
    return p->room + (p->lags ? more : 0);
}

/* Notes a read of forward, if there is room for it. */
static void note_across(struct pass *p, int32_t i)
{
    if (!p->may_add || !may_be_read_before(p, i)) {
        return;
    }
    const size_t bytes = sw_transfer_bytes(p->ir, op_of(p, i));
    if (p->across_bytes + bytes <= most_across(p)) {
        p->across_bytes += bytes;
        p->across[p->n_across++] =
            (struct across){.slot = p->n_out,
                            .after = p->last_read[sw_ir_root(p->ir, op_of(p, i)->out[0])],
                            .bytes = bytes};
    }
}

/* Notes that instruction i is emitted in a segment: what forward has still to load, and what
 * follows once it has not. */
static void note_work(struct pass *p, int32_t i, enum sw_segment segment)
{
    const struct sw_ir_op *op = op_of(p, i);
    const size_t bytes = sw_ir_is_transfer(op) ? sw_transfer_bytes(p->ir, op) : 0;
    const bool is_later = p->program->instrs[i].segment > segment;
    p->later += op->move == SW_MOVE_LOAD && segment == SW_SEGMENT_FORWARD && is_later ? bytes : 0;
    p->lagging += p->lag.may[i] && p->forward_left == 0 ? bytes : 0;
    if (is_of_forward(p, i)) {
        p->forward_left -= bytes;
        p->work = p->work_left;
    }
    p->work_left -= work_of(p, i);
}

/* True once there was the time to write what lags: its share of what the disk does besides the
 * loads of backward itself. The kernel that comes next may wait for it. */
static bool has_written(const struct pass *p)
{
    const double lagging = (double)p->lagging, next = (double)(p->across_bytes + p->update_bytes);
    return (p->work - p->work_left) * (lagging + next) >= p->work * lagging;
}

/* Emits instruction i before instruction `at`, or in its own place if at = i. SKIP is known once
 * the norm is. */
static void emit(struct pass *p, int32_t i, int32_t at)
{
    const struct sw_ir_op *op = op_of(p, i);
    const struct sw_instr *instr = &p->program->instrs[i];
    const enum sw_segment segment = p->program->instrs[at].segment;
    const bool early =
        op->phase == SW_PHASE_UPDATE && !op->chunk.in_forward && segment < SW_SEGMENT_UPDATE;
    note_across(p, i);
    p->out[p->n_out++] = (struct slot){
        .from = i,
        .segment = (uint8_t)segment,
        .chunk = (uint16_t)p->program->instrs[at].chunk,
        .unless_skipped = instr->unless_skipped && (at == i || p->finished),
        .last_only = instr->last_only || early,
    };
    p->finished = p->finished || sw_ir_has(op, SW_TRAIT_SKIP);
    p->emitted[i] = true;
    p->written = p->written || (segment == SW_SEGMENT_BACKWARD &&
                                instr->queue == SW_QUEUE_COMPUTE && has_written(p));
    note_work(p, i, segment);
    if (op->move == SW_MOVE_LOAD && op->loop == 0 && !is_for_good(p->ir, op)) {
        const size_t bytes = sw_transfer_bytes(p->ir, op);
        p->unread[sw_ir_root(p->ir, op->out[0])] = bytes;
        p->ahead += bytes;
        return;
    }
    for (int k = 0; k < op->n_in; k++) {
        size_t *unread = &p->unread[sw_ir_root(p->ir, op->in[k])];
        p->ahead -= *unread;
        *unread = 0;
    }
}

/* The instructions of a loop stay together; the loop itself reads ahead. */
static bool is_inside(const struct pass *p, int32_t i)
{
    const int32_t loop = op_of(p, i)->loop;
    return loop > 0 && i > 0 && op_of(p, i - 1)->loop == loop;
}

/* True if the load must stay in its phase of a pipeline: another micro-batch may store the same
 * bytes in between. Loads of the update move into the last phases. */
static bool stays(const struct pass *p, int32_t load, int32_t at)
{
    const struct sw_instr *a = &p->program->instrs[load], *b = &p->program->instrs[at];
    return p->is_stage && a->segment < SW_SEGMENT_UPDATE && sw_instr_key(a) != sw_instr_key(b);
}

/* True if load `load` has room before instruction i. Loads of backward have a quarter of the limit
 * in forward, where the stores that lag and the loads of forward have all of it. In backward, loads
 * and stores that are not written have 5/4 of the limit together. */
static bool has_room(const struct pass *p, int32_t load, int32_t i)
{
    const size_t bytes = sw_transfer_bytes(p->ir, op_of(p, load)), room = p->room;
    const enum sw_segment at = p->program->instrs[i].segment;
    if (p->lags && at == SW_SEGMENT_FORWARD && p->program->instrs[load].segment > at) {
        return p->later + bytes <= room / 4;
    }
    const bool waits = p->lags && at == SW_SEGMENT_BACKWARD && !p->written;
    const size_t lagging = waits && p->lagging > room / 4 ? p->lagging - room / 4 : 0;
    return p->ahead + p->lag.bytes + lagging + bytes <= room;
}

/* In the last backward, if the loads of this step leave room: adds reads for the next one before
 * instruction i. Each follows the readers of what it overwrites. */
static void read_for_next(struct pass *p, int32_t i)
{
    const int32_t backward = p->program->segment_first[SW_SEGMENT_BACKWARD];
    const int32_t end = p->program->segment_first[SW_SEGMENT_BACKWARD + 1];
    while (i > backward && i < end && p->written && p->n_again < p->n_across &&
           p->across[p->n_again].after < i &&
           p->ahead + p->across[p->n_again].bytes <= most_across(p)) {
        p->across[p->n_again].at = p->n_out;
        p->ahead += p->across[p->n_again++].bytes;
    }
}

/* Emits stores that wait until at most so many bytes of them are left. */
static void release(struct pass *p, size_t most)
{
    while (p->lag.bytes > most) {
        const int32_t i = sw_lag_next(&p->lag);
        emit(p, i, i);
    }
}

/* Bytes of stores that may wait. None waits once forward has issued its loads: the disk is free. */
static size_t most_lagging(const struct pass *p)
{
    const size_t loads = p->forward_left < p->room / 2 ? p->forward_left : p->room / 2;
    return loads > 0 ? p->room - loads : 0;
}

/* True for a load that others may pass: it waits for its router, or it reads rows of a table that
 * an update within forward stores. */
static bool may_be_passed(const struct pass *p, const struct sw_ir_op *load)
{
    return sw_ir_waits_for_router(load) || (p->lags && sw_ir_moves_rows(load));
}

/* Before each instruction, emits the loads that may be ahead of it, in their order, until room is
 * short or one must stay behind it. None moves into a batch or a loop, or before what a phase
 * receives. Where other loads pass one, the next instruction looks at it again. */
static void order(struct pass *p)
{
    enum { MOST_PASSED = 1024 };
    const int32_t end = p->program->n_instrs;
    int32_t next = 0;
    for (int32_t i = 0; i < end; i++) {
        const struct sw_instr *instr = &p->program->instrs[i];
        if (p->emitted[i]) {
            continue;
        }
        const bool inside =
            sw_instr_is_inside(instr) || is_inside(p, i) || op_of(p, i)->move == SW_MOVE_RECV;
        if (!inside) {
            release(p, sw_lag_ends(&p->lag, i) ? 0 : most_lagging(p));
        }
        bool full = false;                 /* a load of this step has no room */
        int32_t passed = -1, n_passed = 0; /* the first load that others pass, and all */
        for (next = next > i ? next : i; !inside && next < end; next++) {
            const struct sw_ir_op *op = op_of(p, next);
            if (op->move != SW_MOVE_LOAD || op->loop > 0 || p->emitted[next]) {
                continue;
            }
            if (next != i && p->behind[next] >= i && is_for_good(p->ir, op)) {
                continue; /* other loads may pass results of the host that are not ready */
            }
            if (next != i && p->behind[next] >= i && may_be_passed(p, op) &&
                ++n_passed <= MOST_PASSED) {
                passed = passed < 0 ? next : passed;
                continue;
            }
            full = !has_room(p, next, i);
            if (next != i && (full || stays(p, next, i) || p->behind[next] >= i)) {
                break;
            }
            emit(p, next, i);
        }
        next = passed < 0 ? next : passed;
        if (!inside && !full) {
            read_for_next(p, i);
        }
        if (!p->emitted[i] && !sw_lag_hold(&p->lag, i)) {
            emit(p, i, i);
        }
    }
    release(p, 0);
}

/* Finds whether stores may lag, and sums what decides how many and for how long. */
static void sum_up(struct pass *p)
{
    for (int32_t i = 0; i < p->program->n_instrs; i++) {
        const bool loads = op_of(p, i)->move == SW_MOVE_LOAD;
        const size_t bytes = loads ? sw_transfer_bytes(p->ir, op_of(p, i)) : 0;
        const bool updates = p->program->instrs[i].segment == SW_SEGMENT_UPDATE;
        p->lags |= p->lag.may[i];
        p->forward_left += is_of_forward(p, i) ? bytes : 0;
        p->update_bytes += updates ? bytes : 0;
        p->work_left += work_of(p, i);
    }
    p->update_bytes = p->update_bytes < p->room ? p->update_bytes : p->room;
}

/* Permutes in place, cycle by cycle, since a copy of all instructions would be large. */
static void install(struct pass *p)
{
    struct sw_instr *instrs = p->program->instrs;
    memset(p->emitted, 0, (size_t)p->n_out * sizeof *p->emitted);
    for (int32_t i = 0; i < p->n_out; i++) {
        const struct sw_instr first = instrs[i];
        int32_t at = i;
        for (; !p->emitted[at]; at = p->out[at].from) {
            const int32_t from = p->out[at].from;
            p->emitted[at] = true;
            instrs[at] = from == i ? first : instrs[from];
        }
        instrs[i].segment = (enum sw_segment)p->out[i].segment;
        instrs[i].chunk = p->out[i].chunk;
        instrs[i].unless_skipped = p->out[i].unless_skipped;
        instrs[i].last_only = p->out[i].last_only;
    }
    sw_program_find_segments(p->program);
}

/* Adds the reads for the next step. false = out of memory */
static bool add_reads(struct pass *p)
{
    struct sw_program *program = p->program;
    int32_t k = p->n_again, to = program->n_instrs + k;
    struct sw_instr *instrs =
        sw_realloc("plan", program->instrs, ((size_t)to + 1) * sizeof *instrs);
    if (!instrs) {
        return false;
    }
    program->instrs = instrs;
    for (int32_t i = program->n_instrs; k > 0; i--) {
        for (; k > 0 && p->across[k - 1].at == i; k--) {
            struct sw_instr *again = &instrs[--to];
            *again = instrs[p->across[k - 1].slot];
            again->segment = SW_SEGMENT_BACKWARD;
            again->last_only = again->turn.for_next = true;
            again->turn.first_only = false;
        }
        if (k > 0) {
            instrs[--to] = instrs[i - 1];
        }
    }
    for (k = 0; k < p->n_again; k++) {
        instrs[p->across[k].slot].turn.from_last = true;
    }
    program->n_instrs += p->n_again;
    sw_program_find_segments(program);
    return true;
}

int32_t sw_program_for_next(const struct sw_program *program)
{
    int32_t n = 0;
    for (int32_t i = program->instrs ? program->segment_first[SW_SEGMENT_BACKWARD] : INT32_MAX;
         i < program->segment_first[SW_SEGMENT_BACKWARD + 1]; i++) {
        n += program->instrs[i].turn.for_next;
    }
    return n;
}

sw_status sw_pass_prefetch(struct sw_program *program, const struct sw_cells *cells,
                           const struct sw_plan_options *options)
{
    struct pass p = {.program = program,
                     .ir = program->ir,
                     .cells = cells,
                     .room = options->policy.transfer_bytes,
                     .is_stage = sw_program_is_stage(program, options)};
    const size_t n = (size_t)program->n_instrs + 1;
    p.out = sw_alloc("plan", n * sizeof *p.out);
    p.emitted = sw_alloc_zero("plan", n, sizeof *p.emitted);
    p.unread = sw_alloc_zero("plan", (size_t)program->ir->n_values + 1, sizeof *p.unread);
    p.behind = sw_alloc("plan", n * sizeof *p.behind);
    p.last_read = sw_alloc("plan", ((size_t)program->ir->n_values + 1) * sizeof *p.last_read);
    p.across = sw_alloc("plan", n * sizeof *p.across);
    p.may_add = program->kind == SW_PROGRAM_TRAIN && sw_updates_in_forward(options) && !p.is_stage;
    sw_status st = sw_lag_open(&p.lag, program, cells, p.is_stage);
    bool good = st >= 0 && p.out && p.emitted && p.unread && p.behind && p.last_read && p.across &&
                find_order(&p);
    if (good) {
        sum_up(&p);
        p.written = !p.lags;
        order(&p);
        SW_ASSERT(p.n_out == program->n_instrs);
        install(&p);
        good = p.n_again == 0 || add_reads(&p);
    }
    st = st < 0 || good ? st : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
    sw_lag_close(&p.lag);
    sw_free(p.out);
    sw_free(p.emitted);
    sw_free(p.unread);
    sw_free(p.behind);
    sw_free(p.last_read);
    sw_free(p.across);
    return st;
}

const struct sw_technique sw_technique_prefetch = {
    .keys = "spillway.transfer_bytes",
    .arrange = sw_pass_prefetch,
};
