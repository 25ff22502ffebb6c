// SPDX-License-Identifier: Apache-2.0
// The table of moves. An op that moves bytes between tiers or ranks has no kernel, and has a row
// here. A row has the operands of its instruction with their access, its verb, and what travels.
// Passes use the row, and do not test for the kind.
#include "plan/private.h"

// clang-format off
#define IN(k, how) {.index = (k), .access = SW_ACCESS_##how}
#define OUT(k) {.index = (k), .is_output = true, .access = SW_ACCESS_WRITE}
// clang-format on

static const struct sw_move_info table[SW_N_MOVES] = {
    [SW_MOVE_LOAD] = {.name = "load",
                      .verb = {SW_VERB_COPY_IN, SW_VERB_READ},
                      .queue = {SW_QUEUE_H2D, SW_QUEUE_READ},
                      .n_in = 1,
                      .n_operands = 2,
                      .n_optional = 1,
                      .operands = {IN(0, READ), OUT(0), IN(1, READ)}},
    [SW_MOVE_STORE] = {.name = "store",
                       .verb = {SW_VERB_COPY_OUT, SW_VERB_WRITE},
                       .queue = {SW_QUEUE_D2H, SW_QUEUE_WRITE},
                       .n_in = 2,
                       .n_operands = 2,
                       .operands = {IN(0, WRITE), IN(1, READ)}},
    [SW_MOVE_REDUCE] = {.name = "reduce",
                        .verb = {SW_VERB_REDUCE, SW_VERB_REDUCE},
                        .queue = {SW_QUEUE_COMM, SW_QUEUE_COMM},
                        .n_in = 2,
                        .n_operands = 2,
                        .n_optional = 2,
                        .operands = {IN(0, ACCUMULATE), IN(1, READ), IN(2, READ), IN(3, READ)},
                        .wire = 1,
                        .collects = true},
    [SW_MOVE_GATHER] = {.name = "gather",
                        .verb = {SW_VERB_GATHER, SW_VERB_GATHER},
                        .queue = {SW_QUEUE_COMM, SW_QUEUE_COMM},
                        .n_in = 1,
                        .n_operands = 2,
                        .operands = {IN(0, READ), OUT(0)}},
    [SW_MOVE_MERGE] = {.name = "stats_merge",
                       .verb = {SW_VERB_MERGE, SW_VERB_MERGE},
                       .queue = {SW_QUEUE_COMM, SW_QUEUE_COMM},
                       .n_in = 1,
                       .n_operands = 1,
                       .operands = {IN(0, UPDATE)},
                       .collects = true},
};

const struct sw_move_info *sw_move_info(enum sw_move move)
{
    SW_ASSERT(move > SW_MOVE_NONE && move < SW_N_MOVES);
    return &table[move];
}

bool sw_ir_moves_rows(const struct sw_ir_op *op)
{
    return op->n_in > sw_move_info(op->move)->n_in;
}

int sw_move_operands(const struct sw_ir_op *op, sw_value out[SW_MOVE_OPERANDS])
{
    const struct sw_move_info *info = sw_move_info(op->move);
    const int n = info->n_operands + (sw_ir_moves_rows(op) ? info->n_optional : 0);
    for (int k = 0; k < n; k++) {
        const struct sw_move_operand *operand = &info->operands[k];
        out[k] = operand->is_output ? op->out[operand->index] : op->in[operand->index];
    }
    return n;
}

sw_status sw_move_check(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    const struct sw_move_info *info = sw_move_info(op->move);
    bool good = op->n_in == info->n_in || op->n_in == info->n_in + info->n_optional;
    good &= op->n_out >= 1 && op->out[0] >= 0;
    for (int k = 0; k < info->n_operands && good; k++) {
        const struct sw_move_operand *operand = &info->operands[k];
        good = operand->is_output || operand->access == SW_ACCESS_READ ||
               sw_ir_root(ir, op->out[operand->index]) == sw_ir_root(ir, op->in[operand->index]);
    }
    return good ? SW_OK
                : SW_FAIL(SW_E_ARG, "plan: a %s has %d inputs and %d outputs that are not its own",
                          info->name, op->n_in, op->n_out);
}

/* ---- transfers ---- */

sw_value sw_ir_moved(const struct sw_ir_op *op)
{
    const struct sw_move_operand *here = &sw_move_info(op->move)->operands[1];
    return here->is_output ? op->out[here->index] : op->in[here->index];
}

int64_t sw_transfer_elems(const struct sw_ir *ir, const struct sw_ir_op *op, int64_t *out_first)
{
    if (sw_ir_moves_rows(op)) { /* rows may start anywhere */
        *out_first = 0;
        return ir->values[sw_ir_root(ir, op->in[0])].form->elems;
    }
    *out_first = op->first;
    return sw_ir_pieces(ir, op) * ir->values[sw_ir_moved(op)].form->elems;
}

size_t sw_transfer_bytes(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    return (size_t)sw_ir_pieces(ir, op) * sw_ir_bytes(&ir->values[sw_ir_moved(op)]);
}

size_t sw_transfer_disk_bytes(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    int64_t first;
    const int64_t n = sw_transfer_elems(ir, op, &first);
    const struct sw_ir_value *home = &ir->values[sw_ir_root(ir, op->in[0])];
    const size_t bytes = sw_transfer_bytes(ir, op);
    const size_t at = (size_t)first * sw_dtype_bytes(home->dtype);
    return !sw_ir_moves_rows(op) && at % SW_PLAN_DISK_ALIGN == 0 && first + n == home->form->elems
               ? sw_round_up(bytes, SW_PLAN_DISK_ALIGN)
               : bytes;
}

struct sw_range sw_transfer_range(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    int64_t first;
    const int64_t n = sw_transfer_elems(ir, op, &first);
    return (struct sw_range){first, first + n};
}

enum sw_queue sw_move_queue(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    return sw_move_info(op->move)->queue[sw_ir_is_on_disk(ir, op->in[0])];
}

/* ---- exchanges ---- */

enum { ROWS_ALIGN = 8 };

int64_t sw_instr_rows_bytes(int64_t rows, int64_t row_elems, enum sw_dtype dtype)
{
    const int64_t row = row_elems * (int64_t)sw_dtype_bytes(dtype) + (int64_t)sizeof(int32_t);
    return ROWS_ALIGN + sw_ceil_div(rows * row, ROWS_ALIGN) * ROWS_ALIGN;
}

int64_t sw_instr_sent_bytes(const struct sw_instr *instr)
{
    return instr->exchange.rows > 0
               ? (int64_t)sizeof(int64_t) + sw_instr_rows_bytes(instr->exchange.rows,
                                                                instr->exchange.row_elems,
                                                                instr->exchange.dtype)
               : instr->bytes;
}

void sw_exchange_rows(const struct sw_ir *ir, const struct sw_ir_op *op, struct sw_instr *out)
{
    if (op->move != SW_MOVE_REDUCE || !sw_ir_moves_rows(op)) {
        return;
    }
    const int64_t width = sw_shape_last(&ir->values[op->in[2]].form->shape);
    const int64_t rows = sw_min_i64(ir->values[op->in[3]].form->elems,
                                    ir->values[op->in[0]].form->elems / width + 2);
    SW_ASSERT(rows <= INT32_MAX && width <= INT32_MAX); /* row numbers have 32 bits */
    out->exchange.rows = (int32_t)rows;                 /* a shard may begin and end within a row */
    out->exchange.row_elems = (int32_t)width;
}

enum sw_dtype sw_exchange_dtype(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    return ir->values[op->in[sw_move_info(op->move)->wire]].dtype;
}

int64_t sw_exchange_slice_bytes(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    return ir->values[op->in[0]].form->elems * (int64_t)sw_dtype_bytes(sw_exchange_dtype(ir, op));
}

int64_t sw_exchange_bytes(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    struct sw_instr instr = {.exchange.dtype = sw_exchange_dtype(ir, op),
                             .bytes = sw_exchange_slice_bytes(ir, op)};
    sw_exchange_rows(ir, op, &instr);
    return sw_instr_sent_bytes(&instr);
}

size_t sw_exchange_workspace(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    return sw_move_info(op->move)->collects
               ? (size_t)ir->groups[op->group].n * (size_t)sw_exchange_slice_bytes(ir, op)
               : 0;
}
