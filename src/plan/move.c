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
                        .n_in = 2,
                        .n_operands = 2,
                        .n_optional = 2,
                        .operands = {IN(0, ACCUMULATE), IN(1, READ), IN(2, READ), IN(3, READ)},
                        .route = SW_ROUTE_ALL,
                        .wire = 1,
                        .collects = true},
    [SW_MOVE_GATHER] = {.name = "gather",
                        .verb = {SW_VERB_GATHER, SW_VERB_GATHER},
                        .n_in = 1,
                        .n_operands = 2,
                        .operands = {IN(0, READ), OUT(0)},
                        .route = SW_ROUTE_ALL},
    [SW_MOVE_MERGE] = {.name = "stats_merge",
                       .verb = {SW_VERB_MERGE, SW_VERB_MERGE},
                       .n_in = 1,
                       .n_operands = 1,
                       .operands = {IN(0, UPDATE)},
                       .route = SW_ROUTE_ALL,
                       .collects = true},
    [SW_MOVE_ALL_GATHER] = {.name = "all_gather",
                            .verb = {SW_VERB_ALL_GATHER, SW_VERB_ALL_GATHER},
                            .n_in = 1,
                            .n_operands = 2,
                            .operands = {IN(0, READ), OUT(0)},
                            .route = SW_ROUTE_ALL,
                            .has_dims = true},
    [SW_MOVE_REDUCE_SCATTER] = {.name = "reduce_scatter",
                                .verb = {SW_VERB_REDUCE_SCATTER, SW_VERB_REDUCE_SCATTER},
                                .n_in = 1,
                                .n_operands = 2,
                                .operands = {IN(0, READ), OUT(0)},
                                .route = SW_ROUTE_ALL,
                                .slice = 1,
                                .collects = true,
                                .adds = true,
                                .has_dims = true},
    [SW_MOVE_ALL_TO_ALL] = {.name = "all_to_all",
                            .verb = {SW_VERB_ALL_TO_ALL, SW_VERB_ALL_TO_ALL},
                            .n_in = 1,
                            .n_operands = 2,
                            .n_optional = 2,
                            .operands = {IN(0, READ), OUT(0), IN(1, READ), IN(2, READ)},
                            .route = SW_ROUTE_ALL,
                            .is_divided = true,
                            .has_dims = true},
    [SW_MOVE_ALL_REDUCE] = {.name = "all_reduce",
                            .verb = {SW_VERB_ALL_REDUCE, SW_VERB_ALL_REDUCE},
                            .n_in = 1,
                            .n_operands = 2,
                            .operands = {IN(0, READ), OUT(0)},
                            .route = SW_ROUTE_TWICE,
                            .is_divided = true,
                            .collects = true,
                            .adds = true},
    [SW_MOVE_BROADCAST] = {.name = "broadcast",
                           .verb = {SW_VERB_BROADCAST, SW_VERB_BROADCAST},
                           .n_in = 1,
                           .n_operands = 1,
                           .operands = {IN(0, UPDATE)},
                           .route = SW_ROUTE_ROOT},
    [SW_MOVE_SEND] = {.name = "send",
                      .verb = {SW_VERB_SEND, SW_VERB_SEND},
                      .n_in = 1,
                      .n_operands = 1,
                      .operands = {IN(0, READ)},
                      .route = SW_ROUTE_TO_PEER},
    [SW_MOVE_RECV] = {.name = "recv",
                      .verb = {SW_VERB_RECV, SW_VERB_RECV},
                      .n_in = 0,
                      .n_operands = 1,
                      .operands = {OUT(0)},
                      .route = SW_ROUTE_FROM_PEER},
};

const struct sw_move_info *sw_move_info(enum sw_move move)
{
    SW_ASSERT(move > SW_MOVE_NONE && move < SW_N_MOVES);
    return &table[move];
}

static bool has_optional(const struct sw_ir_op *op)
{
    return op->n_in > sw_move_info(op->move)->n_in;
}

bool sw_ir_moves_rows(const struct sw_ir_op *op)
{
    return has_optional(op) && !sw_ir_waits_for_router(op);
}

static sw_value operand_of(const struct sw_ir_op *op, int k)
{
    const struct sw_move_operand *operand = &sw_move_info(op->move)->operands[k];
    return operand->is_output ? op->out[operand->index] : op->in[operand->index];
}

int sw_move_operands(const struct sw_ir_op *op, sw_value out[SW_MOVE_OPERANDS])
{
    const struct sw_move_info *info = sw_move_info(op->move);
    const int n = info->n_operands + (has_optional(op) ? info->n_optional : 0);
    for (int k = 0; k < n; k++) {
        out[k] = operand_of(op, k);
    }
    return n;
}

sw_status sw_move_check(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    const struct sw_move_info *info = sw_move_info(op->move);
    bool good = op->n_in == info->n_in || op->n_in == info->n_in + info->n_optional;
    bool writes = false;
    for (int k = 0; k < info->n_operands && good; k++) {
        const struct sw_move_operand *operand = &info->operands[k];
        if (operand->access != SW_ACCESS_READ) {
            writes = true;
            good = op->n_out > operand->index && op->out[operand->index] >= 0 &&
                   (operand->is_output || sw_ir_root(ir, op->out[operand->index]) ==
                                              sw_ir_root(ir, op->in[operand->index]));
        }
    }
    good = good && (writes || op->n_out == 0);
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

enum sw_queue sw_exchange_queue(unsigned axes, enum sw_verb verb)
{
    enum { INNER = 1U << SW_AXIS_EXPERT | 1U << SW_AXIS_CONTEXT | 1U << SW_AXIS_TENSOR };
    return verb == SW_VERB_SEND   ? SW_QUEUE_SENT
           : verb == SW_VERB_RECV ? SW_QUEUE_RECEIVED
           : (axes & ~INNER) == 0 ? SW_QUEUE_TENSOR
                                  : SW_QUEUE_COMM;
}

enum sw_queue sw_move_queue(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    const struct sw_move_info *info = sw_move_info(op->move);
    if (op->phase == SW_PHASE_BACKWARD && op->move == SW_MOVE_SEND) {
        return SW_QUEUE_SENT_BACK;
    }
    if (op->phase == SW_PHASE_BACKWARD && op->move == SW_MOVE_RECV) {
        return SW_QUEUE_RECEIVED_BACK;
    }
    return sw_ir_is_collective(op)
               ? sw_exchange_queue(ir->groups[op->exchange.group].axes, info->verb[0])
               : info->queue[sw_ir_is_on_disk(ir, op->in[0])];
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

/* Sets the most rows of a row-sparse gradient that travel to a rank, and their length. */
static void find_rows(const struct sw_ir *ir, const struct sw_ir_op *op,
                      struct sw_instr_exchange *out)
{
    const int64_t width = sw_shape_last(&ir->values[op->in[2]].form->shape);
    const int64_t rows = sw_min_i64(ir->values[op->in[3]].form->elems,
                                    ir->values[op->in[0]].form->elems / width + 2);
    SW_ASSERT(rows <= INT32_MAX && width <= INT32_MAX); /* row numbers have 32 bits */
    out->rows = (int32_t)rows;                          /* a shard may begin and end within a row */
    out->row_elems = (int32_t)width;
}

enum sw_dtype sw_exchange_dtype(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    return ir->values[operand_of(op, sw_move_info(op->move)->wire)].dtype;
}

int64_t sw_exchange_slice_bytes(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    const struct sw_move_info *info = sw_move_info(op->move);
    const int64_t elems = ir->values[operand_of(op, info->slice)].form->elems;
    return (info->is_divided ? sw_ceil_div(elems, ir->groups[op->exchange.group].n) : elems) *
           (int64_t)sw_dtype_bytes(sw_exchange_dtype(ir, op));
}

/* Number of contiguous runs of a slice that is cut along a dimension. */
static int32_t count_runs(const struct sw_shape *shape, int dim)
{
    int64_t n = 1;
    for (int d = 0; d < dim; d++) {
        n *= shape->dims[d];
    }
    SW_ASSERT(n <= INT32_MAX);
    return (int32_t)n;
}

/* Sets how slices lie in the operands. */
static void find_runs(const struct sw_ir *ir, const struct sw_ir_op *op,
                      struct sw_instr_exchange *out)
{
    const struct sw_move_info *info = sw_move_info(op->move);
    out->runs[0] = out->runs[1] = 1;
    if (info->has_dims) {
        const struct sw_shape *from = &ir->values[op->in[0]].form->shape;
        const struct sw_shape *to = &ir->values[op->out[0]].form->shape;
        out->runs[0] = op->move == SW_MOVE_ALL_GATHER ? 1 : count_runs(from, op->exchange.dim);
        out->runs[1] = op->move == SW_MOVE_ALL_GATHER   ? count_runs(to, op->exchange.dim)
                       : op->move == SW_MOVE_ALL_TO_ALL ? count_runs(to, op->exchange.to_dim)
                                                        : 1;
    } else if (info->is_divided) {
        out->is_padded = ir->values[op->in[0]].form->elems % ir->groups[op->exchange.group].n != 0;
    }
}

void sw_exchange_describe(const struct sw_ir *ir, const struct sw_ir_op *op, struct sw_instr *out)
{
    out->verb = sw_move_info(op->move)->verb[0];
    out->exchange.group = op->exchange.group;
    out->exchange.peer = op->exchange.peer;
    out->exchange.dtype = sw_exchange_dtype(ir, op);
    out->exchange.whole_step = op->whole_step;
    out->exchange.continues = op->exchange.continues;
    out->bytes = sw_exchange_slice_bytes(ir, op);
    find_runs(ir, op, &out->exchange);
    if (op->move == SW_MOVE_REDUCE && sw_ir_moves_rows(op)) {
        find_rows(ir, op, &out->exchange);
    } else if (op->move == SW_MOVE_ALL_TO_ALL && sw_ir_moves_rows(op)) {
        out->exchange.row_elems = (int32_t)sw_shape_last(&ir->values[op->in[0]].form->shape);
    }
}

int64_t sw_exchange_bytes(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    struct sw_instr instr = {.op = 0};
    sw_exchange_describe(ir, op, &instr);
    return sw_instr_sent_bytes(&instr);
}

size_t sw_exchange_workspace(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    struct sw_instr instr = {.op = 0};
    sw_exchange_describe(ir, op, &instr);
    return sw_instr_areas(&instr, ir->groups[op->exchange.group].n).bytes;
}

static bool is_same_but(const struct sw_shape *a, const struct sw_shape *b, int dim, int to_dim)
{
    bool same = a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++) {
        same = a->dims[d] == b->dims[d] || d == dim || d == to_dim;
    }
    return same;
}

/* True if `whole` is n times as long as `part` along a dimension, and equal along the others except
 * `beside`. */
static bool joins(const struct sw_shape *part, const struct sw_shape *whole, int dim, int beside,
                  int n)
{
    return dim >= 0 && dim < part->rank && is_same_but(part, whole, dim, beside) &&
           whole->dims[dim] == n * part->dims[dim];
}

static bool fits(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    const struct sw_move_info *info = sw_move_info(op->move);
    const struct sw_group *group = &ir->groups[op->exchange.group];
    const struct sw_shape *in = op->n_in > 0 ? &ir->values[op->in[0]].form->shape : NULL;
    const struct sw_shape *out = op->n_out > 0 ? &ir->values[op->out[0]].form->shape : NULL;
    switch (op->move) {
    case SW_MOVE_ALL_GATHER:
        return joins(in, out, op->exchange.dim, op->exchange.dim, group->n);
    case SW_MOVE_REDUCE_SCATTER:
        return joins(out, in, op->exchange.dim, op->exchange.dim, group->n);
    case SW_MOVE_ALL_TO_ALL:
        return op->exchange.dim == op->exchange.to_dim
                   ? is_same_but(in, out, -1, -1) && in->dims[op->exchange.dim] % group->n == 0
                   : joins(out, in, op->exchange.dim, op->exchange.to_dim, group->n) &&
                         joins(in, out, op->exchange.to_dim, op->exchange.dim, group->n);
    case SW_MOVE_ALL_REDUCE:
        return is_same_but(in, out, -1, -1);
    default:
        return (info->route != SW_ROUTE_ROOT && info->route != SW_ROUTE_TO_PEER &&
                info->route != SW_ROUTE_FROM_PEER) ||
               (op->exchange.peer >= 0 && op->exchange.peer < group->n &&
                (op->exchange.peer != group->me || info->route == SW_ROUTE_ROOT));
    }
}

/* Rows are counted along the first of two dimensions, by offsets for each member. */
static bool counts_fit(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    const int n = ir->groups[op->exchange.group].n;
    bool good = ir->values[op->in[0]].form->shape.rank == 2 && op->exchange.dim == 0 &&
                op->exchange.to_dim == 0;
    for (int k = 1; k < op->n_in; k++) {
        const struct sw_ir_value *counts = &ir->values[op->in[k]];
        const struct sw_shape *shape = &counts->form->shape;
        good = good && counts->dtype == SW_I32 && counts->form->contiguous && shape->rank == 2 &&
               shape->dims[0] == n && shape->dims[1] >= SW_OFFSETS_BEHIND;
    }
    return good;
}

sw_status sw_exchange_check(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    const struct sw_move_info *info = sw_move_info(op->move);
    const bool of_activation = op->move > SW_MOVE_MERGE;
    const enum sw_dtype dtype = sw_exchange_dtype(ir, op);
    bool plain = true; /* row-major, of one type */
    for (int k = 0; of_activation && k < info->n_operands; k++) {
        const struct sw_ir_value *value = &ir->values[operand_of(op, k)];
        plain = plain && value->form->contiguous && value->dtype == dtype;
    }
    const struct sw_group *group = &ir->groups[op->exchange.group];
    plain =
        plain && (op->move != SW_MOVE_ALL_TO_ALL || !sw_ir_moves_rows(op) || counts_fit(ir, op));
    if (!plain || !fits(ir, op)) {
        return SW_FAIL(SW_E_ARG,
                       "plan: a %s among %d ranks (dimension %d, to dimension %d, peer %d of rank "
                       "%d) does not fit its operands",
                       info->name, group->n, op->exchange.dim, op->exchange.to_dim,
                       op->exchange.peer, group->me);
    }
    return info->adds && dtype != SW_F32 && dtype != SW_BF16 && dtype != SW_F16
               ? SW_FAIL(SW_E_ARG, "plan: %s of %s; wanted f32, bf16 or f16", info->name,
                         sw_dtype_name(dtype))
               : SW_OK;
}

/* ---- exchanges of a graph ---- */

static enum sw_move move_of(const struct sw_exchange_attrs *attrs)
{
    const bool is_cut = attrs->to == SW_SPREAD_CUT;
    return attrs->from == SW_SPREAD_CUT ? is_cut ? SW_MOVE_ALL_TO_ALL : SW_MOVE_ALL_GATHER
           : is_cut                     ? SW_MOVE_REDUCE_SCATTER
                                        : SW_MOVE_ALL_REDUCE;
}

sw_status sw_ir_take_exchanges(struct sw_ir *ir, const struct sw_plan *plan)
{
    ir->params.group = sw_plan_group(plan, 1U << SW_AXIS_TENSOR);
    ir->params.experts = sw_plan_group(plan, 1U << SW_AXIS_EXPERT);
    if (ir->params.group < 0 && ir->params.experts < 0) {
        ir->params.n_parts = 0;
    }
    for (int32_t i = 0; i < ir->params.n_parts; i++) {
        ir->params.is_cut = ir->params.is_cut || !ir->params.parts[i].of_experts;
    }
    for (int32_t i = 0; i < ir->n_ops; i++) {
        struct sw_ir_op *op = &ir->ops[i];
        if (sw_ir_attrs(op) != SW_ATTRS_EXCHANGE) {
            continue;
        }
        const struct sw_exchange_attrs *attrs = &op->detail->attrs.exchange;
        const enum sw_axis axis = (enum sw_axis)attrs->axis;
        const int group = sw_plan_group_of(plan, axis, attrs->ranks, attrs->me);
        if (group < 0 || attrs->ranks <= 1) {
            return SW_FAIL(
                SW_E_UNSUP,
                "plan: an exchange in %s by number %d of %d ranks of the %s axis; wanted "
                "all ranks of an axis, or all that share a part of a parameter",
                sw_ir_where(ir, op), attrs->me, attrs->ranks, sw_axis_name(axis));
        }
        op->move = move_of(attrs);
        const bool turns = op->move == SW_MOVE_ALL_TO_ALL; /* its dim is the one that it divides */
        op->exchange = (struct sw_ir_exchange){.group = (int8_t)group,
                                               .dim = (int8_t)(turns ? attrs->to_dim : attrs->dim),
                                               .to_dim = (int8_t)(turns ? attrs->dim : 0)};
        op->kind = SW_N_OP_KINDS;
        op->detail = &sw_ir_no_detail;
    }
    return SW_OK;
}

/* ---- exchanges, as instructions ---- */

static const struct sw_move_info *row_of(enum sw_verb verb)
{
    int move = SW_MOVE_REDUCE;
    while (move < SW_N_MOVES - 1 && table[move].verb[0] != verb) {
        move++;
    }
    return &table[move];
}

struct sw_instr_traffic sw_instr_traffic(const struct sw_instr *instr, int n, int me)
{
    const int64_t one = sw_instr_sent_bytes(instr), all = one * (n - 1);
    const bool is_root = instr->exchange.peer == me;
    switch (row_of(instr->verb)->route) {
    case SW_ROUTE_ALL:
        return (struct sw_instr_traffic){all, all};
    case SW_ROUTE_TWICE:
        return (struct sw_instr_traffic){2 * all, 2 * all};
    case SW_ROUTE_ROOT:
        return (struct sw_instr_traffic){is_root ? all : 0, is_root ? 0 : one};
    case SW_ROUTE_TO_PEER:
        return (struct sw_instr_traffic){one, 0};
    case SW_ROUTE_FROM_PEER:
        return (struct sw_instr_traffic){0, one};
    case SW_ROUTE_NONE:
        break;
    }
    return (struct sw_instr_traffic){0, 0};
}

static size_t add_area(struct sw_exchange_areas *areas, bool needed, size_t bytes)
{
    const size_t at = sw_round_up(areas->bytes, SW_PLAN_ALIGN);
    areas->bytes = needed ? at + bytes : areas->bytes;
    return at;
}

struct sw_exchange_areas sw_instr_areas(const struct sw_instr *instr, int n)
{
    const struct sw_move_info *row = row_of(instr->verb);
    const struct sw_instr_exchange *x = &instr->exchange;
    const size_t slice = (size_t)instr->bytes, all = (size_t)n * slice;
    struct sw_exchange_areas areas = {0};
    areas.arrived = add_area(&areas, row->collects || x->runs[1] > 1, all);
    areas.packed = add_area(&areas, x->runs[0] > 1 || x->is_padded, all);
    areas.sums = add_area(&areas, row->adds && x->dtype != SW_F32,
                          slice / sw_dtype_bytes(x->dtype) * sizeof(float));
    return areas;
}
