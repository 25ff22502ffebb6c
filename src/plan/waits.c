// SPDX-License-Identifier: Apache-2.0
// Computes the waits. An instruction waits, on each other queue, for the latest instruction that
// reads what it writes, or writes what it touches. Exception: waits that another wait implies are
// dropped. Work in flight is bounded: a batch of reductions waits for the previous one, stores are
// limited by bytes.
//
// The phases of a pipeline run in another order than their instructions stand. Waits are therefore
// found phase by phase, from what is in flight when one starts: messages, which no wait is about.
#include <string.h>

#include "plan/private.h"

struct pass {
    struct sw_program *program;
    const struct sw_ir *ir;
    const struct sw_plan_options *options;
    const struct sw_cells *cells;
    struct sw_clocks clocks;
    struct sw_touches touches; /* for values on the device */
    int32_t *loaded;           /* [n_cells] for offloaded values: the latest load; -1 = none */
    int32_t *stored;           /* [n_cells] the latest store; -1 = none */
    /* by queue, the first store that is not known to be complete */
    int32_t store_tail[SW_QUEUE_COUNT];
    size_t store_bytes[SW_QUEUE_COUNT];
    /* of forward, see find_tail; INT32_MAX in a stage, whose phases end when all is stored */
    int32_t tail;
    int32_t frees; /* see find_last_before_reads; -1 = none */
    /* by queue: the latest store that has lagged until the tail, and the last instruction of the
     * latest batch of reductions; -1 = none */
    int32_t lagged[SW_QUEUE_COUNT], reduced[SW_QUEUE_COUNT];
};

static const struct sw_ir_op *op_of(const struct pass *p, int32_t i)
{
    return &p->ir->ops[p->program->instrs[i].op];
}

static void need(int32_t needs[SW_QUEUE_COUNT], const int32_t latest[SW_QUEUE_COUNT])
{
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        needs[q] = latest[q] > needs[q] ? latest[q] : needs[q];
    }
}

/* Adds instruction j to what is needed; j < 0: nothing. */
static void need_instr(const struct pass *p, int32_t j, int32_t needs[SW_QUEUE_COUNT])
{
    int32_t *of = j < 0 ? NULL : &needs[p->program->instrs[j].queue];
    if (of && *of < j) {
        *of = j;
    }
}

/* Offloaded values: transfers of disjoint ranges may be in flight together. */
static void need_transfers(const struct pass *p, int32_t i, int32_t needs[SW_QUEUE_COUNT])
{
    const struct sw_cell_range cells = p->cells->of[p->program->instrs[i].op];
    const bool stores = op_of(p, i)->move == SW_MOVE_STORE;
    for (int32_t c = cells.first; c < cells.end; c++) {
        need_instr(p, p->stored[c], needs);
        need_instr(p, stores ? p->loaded[c] : -1, needs);
    }
}

/* Adds to `needs`, by queue, the latest instruction that must be complete before instruction i
 * starts: writers of what it reads; readers and writers of what it writes. */
static void find_needs(const struct pass *p, int32_t i, int32_t needs[SW_QUEUE_COUNT])
{
    const struct sw_ir_op *op = op_of(p, i);
    const bool moves = sw_ir_is_transfer(op);
    if (moves) {
        need_transfers(p, i, needs);
    }
    for (int k = sw_ir_first_touched(p->ir, op); k < op->n_in; k++) {
        need(needs, sw_touch_of(&p->touches, op->in[k])->wrote);
    }
    for (int k = 0; k < op->n_out; k++) {
        if (op->out[k] >= 0 && sw_ir_touches_outputs(p->ir, op)) {
            const struct sw_touch *t = sw_touch_of(&p->touches, op->out[k]);
            need(needs, t->read);
            need(needs, t->wrote);
        }
    }
}

/* Notes instruction i as the latest of its queue to read or write its operands. */
static void note_touches(struct pass *p, int32_t i)
{
    const struct sw_ir_op *op = op_of(p, i);
    const enum sw_queue q = sw_instr_queue(&p->program->instrs[i]);
    const bool moves = sw_ir_is_transfer(op);
    if (moves) {
        const struct sw_cell_range cells = p->cells->of[p->program->instrs[i].op];
        for (int32_t c = cells.first; c < cells.end; c++) {
            (op->move == SW_MOVE_LOAD ? p->loaded : p->stored)[c] = i;
        }
    }
    for (int k = sw_ir_first_touched(p->ir, op); k < op->n_in; k++) {
        sw_touch_of(&p->touches, op->in[k])->read[q] = i;
    }
    for (int k = 0; k < op->n_out; k++) {
        if (op->out[k] >= 0 && sw_ir_touches_outputs(p->ir, op)) {
            sw_touch_of(&p->touches, op->out[k])->wrote[q] = i;
        }
    }
}

/* Bytes of an instruction that are in flight; for a loop at most those of its turns. */
static size_t under_way(const struct pass *p, int32_t i)
{
    const struct sw_ir_op *op = op_of(p, i);
    const size_t pieces = (size_t)sw_ir_pieces(p->ir, op), turns = (size_t)p->program->turns;
    return sw_transfer_bytes(p->ir, op) / pieces * (turns < pieces ? turns : pieces);
}

/* Stores that have waited until forward had no more loads (lag.c) are not bounded: computation goes
 * on with backward. */
static bool is_bounded(const struct pass *p, int32_t i)
{
    const struct sw_ir_op *op = op_of(p, i);
    return op->move == SW_MOVE_STORE && !(op->chunk.in_forward && i >= p->tail);
}

/* Bounds the bytes of stores in flight: the computing thread waits for the oldest. A step waits for
 * all of its transfers at its end, so more in flight would gain nothing. */
static void bound_stores(struct pass *p, int32_t i)
{
    enum { MOST = 1 << 27 };
    const size_t most =
        p->options->policy.transfer_bytes < MOST ? p->options->policy.transfer_bytes : MOST;
    struct sw_instr *instr = &p->program->instrs[i];
    const int q = (int)instr->queue;
    size_t *bytes = &p->store_bytes[q];
    *bytes += under_way(p, i);
    int32_t *tail = &p->store_tail[q];
    for (; *tail < i && most < *bytes; (*tail)++) {
        if (p->program->instrs[*tail].queue == instr->queue && is_bounded(p, *tail)) {
            *bytes -= under_way(p, *tail);
            instr->waits[q] = *tail;
        }
    }
}

/* The end of forward, after the last of its own loads. */
static int32_t find_tail(const struct pass *p)
{
    int32_t i = p->program->segment_first[SW_SEGMENT_FORWARD + 1];
    while (i > 0 && (op_of(p, i - 1)->move != SW_MOVE_LOAD ||
                     sw_op_segment(op_of(p, i - 1)) != SW_SEGMENT_FORWARD)) {
        i--;
    }
    return i;
}

/* The last kernel before the first read for the next step. Before it, computation waits for the
 * stores that have lagged, so that these reads may have their memory. prefetch.c issues them when
 * that is likely to be done. */
static int32_t find_last_before_reads(const struct pass *p)
{
    int32_t kernel = -1;
    for (int32_t i = 0; i < p->program->n_instrs; i++) {
        if (p->program->instrs[i].turn.for_next) {
            return kernel;
        }
        kernel = p->program->instrs[i].queue == SW_QUEUE_COMPUTE ? i : kernel;
    }
    return -1;
}

/* True if `need` is known to be complete when an instruction of queue `on` is issued, without
 * further waits. */
static bool is_known(const struct pass *p, enum sw_queue on, int q, int32_t need)
{
    return need <= p->clocks.now[on][q] || need <= p->clocks.now[SW_QUEUE_COMPUTE][q];
}

/* Keeps only the waits that add knowledge; drops a wait that another one implies. */
static void keep_needed(const struct pass *p, int32_t i, int32_t needs[SW_QUEUE_COUNT])
{
    struct sw_instr *instr = &p->program->instrs[i];
    const enum sw_queue on = sw_instr_queue(instr);
    int32_t found[SW_QUEUE_COUNT];
    bool any = false;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (q == (int)on || q == SW_QUEUE_COMPUTE || is_known(p, on, q, needs[q])) {
            needs[q] = -1; /* ordered anyway, or already known */
        }
        any = any || needs[q] >= 0;
    }
    for (int q = SW_QUEUE_COUNT - 1; any && q >= 0; q--) {
        int32_t others[SW_QUEUE_COUNT];
        if (needs[q] < 0) {
            continue;
        }
        for (int r = 0; r < SW_QUEUE_COUNT; r++) {
            others[r] = r == q || (r == (int)on && on != SW_QUEUE_COMPUTE) ? -1 : needs[r];
        }
        sw_clocks_find(&p->clocks, i, others, found);
        needs[q] = found[q] >= needs[q] ? -1 : needs[q];
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (needs[q] >= 0) {
            instr->waits[q] = needs[q];
        }
    }
}

/* Sets the waits and `blocking` of an instruction. The first exchange of a batch has the waits of
 * all. A reduction waits for the previous batch, so that only one is in flight. Exchanges of other
 * queues than COMM never block: computation waits where it needs them. */
static void choose_waits(struct pass *p, int32_t i)
{
    struct sw_instr *instr = &p->program->instrs[i];
    const struct sw_ir_op *op = op_of(p, i);
    int32_t needs[SW_QUEUE_COUNT];
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        instr->waits[q] = needs[q] = -1;
    }
    instr->exchange.blocking =
        instr->queue == SW_QUEUE_COMM && (!p->options->overlap || op->move == SW_MOVE_MERGE);
    if (sw_instr_is_inside(instr) && !instr->exchange.blocking) {
        return; /* the first instruction of the batch has waited for it */
    }
    find_needs(p, i, needs);
    for (int32_t k = 1; k < instr->exchange.batch; k++) {
        find_needs(p, i + k, needs);
    }
    if (i == p->frees) {
        need(needs, p->lagged);
    }
    if (!instr->exchange.blocking && op->move == SW_MOVE_REDUCE) {
        instr->waits[instr->queue] = p->reduced[instr->queue];
        p->reduced[instr->queue] = i + instr->exchange.batch - 1;
    } else if (is_bounded(p, i)) {
        bound_stores(p, i);
    } else if (op->move == SW_MOVE_STORE) {
        p->lagged[instr->queue] = i;
    }
    keep_needed(p, i, needs);
}

/* Sets `retired` of the instructions that the computing thread now knows to be complete. */
static void retire(struct pass *p, int32_t known[SW_QUEUE_COUNT], int32_t i)
{
    for (int q = 1; q < SW_QUEUE_COUNT; q++) {
        for (; known[q] < p->clocks.now[SW_QUEUE_COMPUTE][q]; known[q]++) {
            struct sw_instr *instr = &p->program->instrs[known[q] + 1];
            if ((int)instr->queue == q && !instr->exchange.blocking) {
                instr->retired = i;
            }
        }
    }
}

/* Nothing before the next phase has to be waited for. */
static void settle(struct pass *p, int32_t known[SW_QUEUE_COUNT], int32_t i)
{
    sw_clocks_settle(&p->clocks, i);
    retire(p, known, i);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        p->reduced[q] = -1;
        p->store_tail[q] = i + 1;
        p->store_bytes[q] = 0;
    }
}

/* Sets waits and `retired` of all instructions. What nobody has waited for is retired at the
 * end. */
static void run(struct pass *p, int32_t end)
{
    const bool is_stage = sw_program_is_stage(p->program, p->options);
    int32_t known[SW_QUEUE_COUNT];
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        known[q] = p->reduced[q] = p->lagged[q] = -1;
    }
    p->tail = is_stage ? INT32_MAX : find_tail(p);
    p->frees = find_last_before_reads(p);
    memset(p->loaded, 0xff, (size_t)p->cells->n * sizeof *p->loaded);
    memset(p->stored, 0xff, (size_t)p->cells->n * sizeof *p->stored);
    for (int32_t i = 0; i < end; i++) {
        struct sw_instr *instr = &p->program->instrs[i];
        choose_waits(p, i);
        sw_clocks_step(&p->clocks, i);
        note_touches(p, i);
        if (sw_instr_queue(instr) == SW_QUEUE_COMPUTE) {
            instr->retired = i;
        }
        retire(p, known, i);
        if (sw_program_settles(p->program, is_stage, i)) {
            settle(p, known, i);
        }
    }
    for (int32_t i = 0; i < end; i++) { /* a blocking exchange is a batch of its own */
        struct sw_instr *instr = &p->program->instrs[i];
        for (int32_t k = 0; instr->exchange.blocking && k < instr->exchange.batch; k++) {
            instr[k].retired = i + instr->exchange.batch - 1;
        }
        instr->retired = instr->retired < 0 ? end - 1 : instr->retired;
    }
}

sw_status sw_pass_waits(struct sw_program *program, const struct sw_cells *cells,
                        const struct sw_plan_options *options)
{
    const size_t n_cells = (size_t)cells->n + 1;
    struct pass p = {.program = program, .ir = program->ir, .cells = cells, .options = options};
    for (int32_t i = 0; i < program->n_instrs; i++) {
        program->instrs[i].retired = -1;
    }
    p.loaded = sw_alloc("plan", n_cells * sizeof *p.loaded);
    p.stored = sw_alloc("plan", n_cells * sizeof *p.stored);
    sw_status st = sw_touches_open(&p.touches, program->ir);
    if (st >= 0 && (!p.loaded || !p.stored)) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
    }
    st = st < 0 ? st : sw_clocks_open(&p.clocks, program);
    if (st >= 0) {
        run(&p, program->n_instrs);
    }
    sw_clocks_close(&p.clocks);
    sw_touches_close(&p.touches);
    sw_free(p.loaded);
    sw_free(p.stored);
    return st;
}

int32_t sw_program_issued(const struct sw_program *program, int32_t i)
{
    while (sw_instr_is_inside(&program->instrs[i])) {
        i--;
    }
    return i;
}
