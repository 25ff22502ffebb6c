// SPDX-License-Identifier: Apache-2.0
// Loops: the pieces of an update differ only in their offset, so the instructions of one piece
// stand for all. This pass chooses how many pieces have a place at a time, from the bytes that
// transfers may be ahead. It runs once the order is settled.
#include "plan/private.h"
#include "plan/technique.h"

int32_t sw_instr_pieces(const struct sw_program *program, const struct sw_instr *instr)
{
    return instr->turn.loop > 0 ? program->loops[instr->turn.loop - 1].pieces : 1;
}

/* Half of the turns are loaded; the others are computed or stored. */
int32_t sw_loop_ahead(const struct sw_program *program)
{
    return program->turns / 2;
}

static const struct sw_ir_op *op_of(const struct sw_program *program, int32_t i)
{
    return &program->ir->ops[program->instrs[i].op];
}

/* Sets `first`, `n` and `pieces` of each loop, and `loop` and `order` of each instruction. */
static void find_loops(struct sw_program *program)
{
    int64_t order = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        struct sw_instr *instr = &program->instrs[i];
        const struct sw_ir_op *op = op_of(program, i);
        instr->turn.loop = op->loop;
        instr->turn.order = order;
        if (op->loop == 0) {
            order++;
            continue;
        }
        struct sw_loop *loop = &program->loops[op->loop - 1];
        loop->first = loop->n++ == 0 ? i : loop->first;
        loop->pieces = (int32_t)sw_ir_pieces(program->ir, op);
        const bool last = i + 1 == program->n_instrs || op_of(program, i + 1)->loop != op->loop;
        order += last ? (int64_t)loop->n * (loop->pieces - 1) + 1 : 1;
    }
}

/* The store of the bytes that a load overwrites. */
static int32_t store_of(const struct sw_program *program, const struct sw_loop *loop, int32_t load)
{
    const struct sw_ir *ir = program->ir;
    const sw_value here = sw_ir_root(ir, op_of(program, load)->out[0]);
    for (int32_t i = loop->first; i < loop->first + loop->n; i++) {
        const struct sw_ir_op *op = op_of(program, i);
        if (op->move == SW_MOVE_STORE && sw_ir_root(ir, op->in[1]) == here) {
            return i;
        }
    }
    return -1;
}

static size_t piece_bytes(const struct sw_program *program, const struct sw_loop *loop)
{
    size_t sum = 0;
    for (int32_t i = loop->first; i < loop->first + loop->n; i++) {
        const struct sw_ir_op *op = op_of(program, i);
        sum += op->move == SW_MOVE_LOAD ? sw_ir_turn_bytes(&program->ir->values[op->out[0]]) : 0;
    }
    return sum;
}

/* Enough turns keep a disk busy that stalls now and then. With too many, a large part of the loop
 * is its beginning and end, when only reads or only writes are in flight. */
static int32_t choose_turns(const struct sw_program *program, const struct sw_plan_options *options)
{
    enum { MOST_TURNS = 16, LEAST_ROUNDS = 8 };
    int32_t turns = MOST_TURNS;
    for (int32_t k = 0; k < program->n_loops; k++) {
        const struct sw_loop *loop = &program->loops[k];
        const size_t fit = 1 + options->policy.transfer_bytes / piece_bytes(program, loop);
        turns = fit < (size_t)turns ? (int32_t)fit : turns;
        turns = loop->pieces / LEAST_ROUNDS < turns ? loop->pieces / LEAST_ROUNDS : turns;
    }
    return program->n_loops > 0 && turns > 0 ? turns : 1;
}

sw_status sw_pass_loops(struct sw_program *program, const struct sw_plan_options *options)
{
    program->n_loops = program->ir->loops.n;
    program->loops = sw_alloc_zero("plan", (size_t)program->n_loops + 1, sizeof *program->loops);
    SW_TRY_ALLOC(program->loops, "the plan");
    find_loops(program);
    for (int32_t k = 0; k < program->n_loops; k++) {
        const struct sw_loop *loop = &program->loops[k];
        for (int32_t i = loop->first; i < loop->first + loop->n; i++) {
            const bool loads = op_of(program, i)->move == SW_MOVE_LOAD;
            program->instrs[i].turn.again = loads ? store_of(program, loop, i) : -1;
        }
    }
    program->turns = choose_turns(program, options);
    return SW_OK;
}

/* ---- the technique ---- */

static sw_status arrange(struct sw_program *program, const struct sw_cells *cells,
                         const struct sw_plan_options *options)
{
    (void)cells;
    return sw_pass_loops(program, options);
}

const struct sw_technique sw_technique_loops = {
    .keys = "",
    .arrange = arrange,
};
