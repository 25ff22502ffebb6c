// SPDX-License-Identifier: Apache-2.0
// Who waits for whom. An instruction waits for the latest one of each other queue that reads what
// it writes, or writes what it touches, unless something it waits for anyway was behind that. What
// is under way at a time is bounded: a group of reductions by the one before it, stores by their
// bytes.
#include "plan/private.h"

struct touch { /* the latest instructions of each queue that read or write a root value */
    int32_t read[SW_QUEUE_COUNT], wrote[SW_QUEUE_COUNT];
};

struct pass {
    struct sw_program *program;
    const struct sw_ir *ir;
    const struct sw_plan_options *options;
    struct sw_clocks clocks;
    struct touch *touched;  /* [n_values] by root, of what lies on the device */
    int32_t *last_transfer; /* [n_values] by root, of what does not; -1 = none */
    int32_t *before;        /* [n_instrs] the transfer of the same root before this one */
    /* [n_instrs] elements that a transfer, and those before it, move of their root */
    struct sw_range *met;
    int32_t store_tail[SW_QUEUE_COUNT]; /* stores not known to be complete begin here */
    size_t store_bytes[SW_QUEUE_COUNT];
    int32_t reduced; /* the last of the latest group of reductions */
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

/* Operands of a transfer that are offloaded: ranges of them may be under way side by side. */
static void need_transfers(const struct pass *p, int32_t i, int32_t needs[SW_QUEUE_COUNT])
{
    const struct sw_ir_op *op = op_of(p, i);
    const sw_value home = sw_ir_root(p->ir, op->in[0]);
    const int32_t known = sw_clocks_known(&p->clocks, p->ir->values[home].tier);
    const struct sw_range range = sw_transfer_range(p->ir, op);
    for (int32_t j = p->last_transfer[home]; j > known && sw_ranges_meet(&range, &p->met[j]);
         j = p->before[j]) {
        const struct sw_ir_op *other = op_of(p, j);
        const int q = (int)p->program->instrs[j].queue;
        if ((op->move == SW_MOVE_STORE || other->move == SW_MOVE_STORE) && needs[q] < j &&
            sw_transfers_overlap(p->ir, op, other)) {
            needs[q] = j;
        }
    }
}

static void find_needs(const struct pass *p, int32_t i, int32_t needs[SW_QUEUE_COUNT])
{
    const struct sw_ir_op *op = op_of(p, i);
    const bool moves = sw_ir_is_transfer(op);
    if (moves) {
        need_transfers(p, i, needs);
    }
    for (int k = moves ? 1 : 0; k < op->n_in; k++) {
        need(needs, p->touched[sw_ir_root(p->ir, op->in[k])].wrote);
    }
    for (int k = 0; k < op->n_out; k++) {
        if (op->out[k] >= 0 && op->move != SW_MOVE_STORE) {
            const struct touch *t = &p->touched[sw_ir_root(p->ir, op->out[k])];
            need(needs, t->read);
            need(needs, t->wrote);
        }
    }
}

static void note_touches(struct pass *p, int32_t i)
{
    const struct sw_ir_op *op = op_of(p, i);
    const enum sw_queue q = sw_instr_queue(&p->program->instrs[i]);
    const bool moves = sw_ir_is_transfer(op);
    if (moves) {
        const sw_value home = sw_ir_root(p->ir, op->in[0]);
        const struct sw_range range = sw_transfer_range(p->ir, op);
        p->before[i] = p->last_transfer[home];
        p->met[i] = p->before[i] < 0 ? range : sw_range_of_both(&range, &p->met[p->before[i]]);
        p->last_transfer[home] = i;
    }
    for (int k = moves ? 1 : 0; k < op->n_in; k++) {
        p->touched[sw_ir_root(p->ir, op->in[k])].read[q] = i;
    }
    for (int k = 0; k < op->n_out; k++) {
        if (op->out[k] >= 0 && op->move != SW_MOVE_STORE) {
            p->touched[sw_ir_root(p->ir, op->out[k])].wrote[q] = i;
        }
    }
}

/* Bytes on their way back are bounded: the computing thread waits for the oldest. What is under way
 * when a step ends is waited for, so that more than this would win nothing. */
static void bound_stores(struct pass *p, int32_t i)
{
    enum { MOST = 1 << 27 };
    const size_t most = p->options->transfer_bytes < MOST ? p->options->transfer_bytes : MOST;
    struct sw_instr *instr = &p->program->instrs[i];
    const int q = (int)instr->queue;
    size_t *bytes = &p->store_bytes[q];
    *bytes += sw_transfer_bytes(p->ir, op_of(p, i));
    int32_t *tail = &p->store_tail[q];
    for (; *tail<i && * bytes> most; (*tail)++) {
        if (p->program->instrs[*tail].queue == instr->queue) {
            *bytes -= sw_transfer_bytes(p->ir, op_of(p, *tail));
            instr->waits[q] = *tail;
        }
    }
}

/* Waits that bring something new; of two, the one that brings the other, too. */
static void keep_needed(const struct pass *p, int32_t i, int32_t needs[SW_QUEUE_COUNT])
{
    struct sw_instr *instr = &p->program->instrs[i];
    const enum sw_queue on = sw_instr_queue(instr);
    int32_t found[SW_QUEUE_COUNT];
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (q == (int)on || q == SW_QUEUE_COMPUTE) {
            needs[q] = -1; /* in order by themselves */
        }
    }
    for (int q = SW_QUEUE_COUNT - 1; q >= 0; q--) {
        int32_t others[SW_QUEUE_COUNT];
        for (int r = 0; r < SW_QUEUE_COUNT; r++) {
            others[r] = r == q || (r == (int)on && on != SW_QUEUE_COMPUTE) ? -1 : needs[r];
        }
        sw_clocks_find(&p->clocks, i, others, found);
        if (needs[q] >= 0 && found[q] >= needs[q]) {
            needs[q] = -1;
        }
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (needs[q] >= 0) {
            instr->waits[q] = needs[q];
        }
    }
}

static void choose_waits(struct pass *p, int32_t i)
{
    struct sw_instr *instr = &p->program->instrs[i];
    const struct sw_ir_op *op = op_of(p, i);
    int32_t needs[SW_QUEUE_COUNT];
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        instr->waits[q] = needs[q] = -1;
    }
    instr->blocking =
        instr->queue == SW_QUEUE_COMM && (!p->options->overlap || op->move == SW_MOVE_MERGE);
    if (instr->queue == SW_QUEUE_COMM && instr->group == 0 && !instr->blocking) {
        return; /* the first of the group has waited for it */
    }
    find_needs(p, i, needs);
    for (int32_t k = 1; instr->queue == SW_QUEUE_COMM && k < instr->group; k++) {
        find_needs(p, i + k, needs);
    }
    if (!instr->blocking && op->move == SW_MOVE_REDUCE) {
        instr->waits[SW_QUEUE_COMM] = p->reduced;
        p->reduced = i + instr->group - 1;
    } else if (op->move == SW_MOVE_STORE) {
        bound_stores(p, i);
    }
    keep_needed(p, i, needs);
}

/* From now on the computing thread knows more than before. */
static void retire(struct pass *p, int32_t known[SW_QUEUE_COUNT], int32_t i)
{
    for (int q = 1; q < SW_QUEUE_COUNT; q++) {
        for (; known[q] < p->clocks.now[SW_QUEUE_COMPUTE][q]; known[q]++) {
            struct sw_instr *instr = &p->program->instrs[known[q] + 1];
            if ((int)instr->queue == q && !instr->blocking) {
                instr->retired = i;
            }
        }
    }
}

static void run(struct pass *p, int32_t end)
{
    int32_t known[SW_QUEUE_COUNT];
    p->reduced = -1;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        known[q] = -1;
    }
    for (sw_value v = 0; v < p->ir->n_values; v++) {
        p->last_transfer[v] = -1;
        for (int q = 0; q < SW_QUEUE_COUNT; q++) {
            p->touched[v].read[q] = p->touched[v].wrote[q] = -1;
        }
    }
    for (int32_t i = 0; i < end; i++) {
        struct sw_instr *instr = &p->program->instrs[i];
        choose_waits(p, i);
        sw_clocks_step(&p->clocks, i);
        note_touches(p, i);
        if (sw_instr_queue(instr) == SW_QUEUE_COMPUTE) {
            instr->retired = i;
        }
        retire(p, known, i);
    }
    for (int32_t i = 0; i < end; i++) { /* a group that blocks is one */
        struct sw_instr *instr = &p->program->instrs[i];
        for (int32_t k = 0; instr->blocking && k < instr->group; k++) {
            instr[k].retired = i + instr->group - 1;
        }
        instr->retired = instr->retired < 0 ? end - 1 : instr->retired;
    }
}

sw_status sw_pass_waits(struct sw_program *program, const struct sw_plan_options *options)
{
    const size_t n_values = (size_t)program->ir->n_values + 1;
    struct pass p = {.program = program, .ir = program->ir, .options = options};
    for (int32_t i = 0; i < program->n_instrs; i++) {
        program->instrs[i].retired = -1;
    }
    p.touched = sw_alloc("plan", n_values * sizeof *p.touched);
    p.last_transfer = sw_alloc("plan", n_values * sizeof *p.last_transfer);
    p.before = sw_alloc("plan", ((size_t)program->n_instrs + 1) * sizeof *p.before);
    p.met = sw_alloc("plan", ((size_t)program->n_instrs + 1) * sizeof *p.met);
    sw_status st = SW_OK;
    if (!p.touched || !p.last_transfer || !p.before || !p.met) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
    } else {
        st = sw_clocks_open(&p.clocks, program);
    }
    if (st >= 0) {
        run(&p, program->n_instrs);
    }
    sw_clocks_close(&p.clocks);
    sw_free(p.touched);
    sw_free(p.last_transfer);
    sw_free(p.before);
    sw_free(p.met);
    return st;
}

int32_t sw_program_issued(const struct sw_program *program, int32_t i)
{
    while (program->instrs[i].queue == SW_QUEUE_COMM && program->instrs[i].group == 0) {
        i--;
    }
    return i;
}
