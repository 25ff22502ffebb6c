// SPDX-License-Identifier: Apache-2.0
// Verifies the loops of a finished plan. check.c covers conflicts with other instructions, since
// each instruction stands for all its pieces. Here the structure is checked, which running ahead
// relies on. The instructions are consecutive: loads, then a kernel, then stores. All go through
// the same pieces. A load waits for the store whose bytes it overwrites, and there is room for all
// turns.
#include "plan/private.h"

struct check {
    const struct sw_program *program;
    const struct sw_ir *ir;
    const struct sw_loop *loop;
    int64_t elems; /* per piece */
};

static const struct sw_ir_op *op_of(const struct check *c, int32_t i)
{
    return &c->ir->ops[c->program->instrs[i].op];
}

static int rank_of(const struct sw_ir_op *op)
{
    return op->move == SW_MOVE_LOAD ? 0 : op->move == SW_MOVE_NONE ? 1 : 2;
}

static sw_status fail(const struct check *c, int32_t i, const char *what)
{
    return SW_FAIL(SW_E_ARG, "plan: instruction %d (%s), in a loop of %d pieces from %d on, %s", i,
                   sw_ir_op_name(op_of(c, i)), c->loop->pieces, c->loop->first, what);
}

/* Each piece is whole disk blocks, and its turn has room for all their bytes. */
static sw_status check_end(const struct check *c, int32_t i, sw_value here)
{
    const struct sw_ir_value *value = &c->ir->values[here];
    const struct sw_ir_value *root = &c->ir->values[sw_ir_root(c->ir, here)];
    const struct sw_buffer *buffer =
        &c->program->buffers[c->program->buffer_of[sw_ir_root(c->ir, here)]];
    const struct sw_ir_value *home = &c->ir->values[sw_ir_root(c->ir, op_of(c, i)->in[0])];
    const size_t turn = sw_ir_turn_bytes(root);
    if (!root->takes_turns || value->form->elems != sw_ir_per_run(home, c->elems) ||
        value->base_offset != 0) {
        return fail(c, i, "moves something else than a piece");
    }
    if (sw_ir_bytes(value) % SW_PLAN_DISK_ALIGN != 0 || sw_ir_bytes(value) > turn ||
        buffer->bytes < turn * (size_t)c->program->turns) {
        return fail(c, i, "has no room for all turns");
    }
    return SW_OK;
}

/* If nothing was stored from the place of a load, only the kernel has read it, and the load starts
 * after the kernel. */
static sw_status check_again(const struct check *c, int32_t i)
{
    const sw_value here = sw_ir_root(c->ir, op_of(c, i)->out[0]);
    int32_t store = -1;
    for (int32_t k = c->loop->first; k < c->loop->first + c->loop->n; k++) {
        const struct sw_ir_op *op = op_of(c, k);
        store = op->move == SW_MOVE_STORE && sw_ir_root(c->ir, op->in[1]) == here ? k : store;
    }
    return c->program->instrs[i].turn.again == store
               ? SW_OK
               : fail(c, i, "does not wait for the store of what it writes over");
}

/* An operand takes turns, or is as long as all pieces together. */
static sw_status check_kernel(const struct check *c, int32_t i)
{
    const struct sw_ir_op *op = op_of(c, i);
    for (int k = 0; k < op->n_in + op->n_out; k++) {
        const sw_value v = k < op->n_in ? op->in[k] : op->out[k - op->n_in];
        const struct sw_ir_value *value = v < 0 ? NULL : &c->ir->values[v];
        if (value && !c->ir->values[sw_ir_root(c->ir, v)].takes_turns &&
            value->form->elems < c->elems * c->loop->pieces) {
            return fail(c, i, "has an operand that is neither a piece nor as long as all of them");
        }
    }
    return op->n_out > 0 ? SW_OK : fail(c, i, "makes nothing");
}

/* Instructions of a loop come in order: loads, the kernel, stores. */
static sw_status check_instr(const struct check *c, int32_t i, int32_t number)
{
    const struct sw_ir_op *op = op_of(c, i);
    if (op->loop != number || c->program->instrs[i].turn.loop != number ||
        sw_ir_pieces(c->ir, op) != c->loop->pieces) {
        return fail(c, i, "is of another loop");
    }
    if (i > c->loop->first && rank_of(op) < rank_of(op_of(c, i - 1))) {
        return fail(c, i, "loads after the kernel, or computes after a store");
    }
    if (op->move == SW_MOVE_NONE) {
        return check_kernel(c, i);
    }
    SW_TRY(check_end(c, i, sw_ir_moved(op)));
    return op->move == SW_MOVE_LOAD ? check_again(c, i) : SW_OK;
}

sw_status sw_plan_check_loops(const struct sw_program *program)
{
    struct check c = {.program = program, .ir = program->ir};
    int32_t n = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        n += c.ir->ops[program->instrs[i].op].loop > 0;
    }
    for (int32_t k = 0; k < program->n_loops; k++) {
        c.loop = &program->loops[k];
        int32_t n_kernels = 0;
        for (int32_t i = c.loop->first; i < c.loop->first + c.loop->n; i++) {
            if (op_of(&c, i)->move == SW_MOVE_NONE) {
                c.elems = c.ir->values[op_of(&c, i)->in[1]].form->elems;
                n_kernels++;
            }
        }
        if (n_kernels != 1) {
            return fail(&c, c.loop->first, "begins one without a kernel, or with several");
        }
        for (int32_t i = c.loop->first; i < c.loop->first + c.loop->n; i++) {
            SW_TRY(check_instr(&c, i, k + 1));
        }
        n -= c.loop->n;
    }
    return n == 0 ? SW_OK : SW_FAIL(SW_E_ARG, "plan: %d instructions are apart from their loop", n);
}
