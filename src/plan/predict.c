// SPDX-License-Identifier: Apache-2.0
// How long a step would take: the work of a finished plan by kind, divided by rates that somebody measured. Pure.
#include <math.h>

#include "plan/plan.h"

const char *sw_load_name(enum sw_load kind)
{
    static const char *const names[SW_LOAD_COUNT] = {
        "products_f32", "products_bf16", "products_f16", "other", "copies_in",
        "copies_out",   "disk_read",     "disk_written", "sent"};
    return names[kind];
}

enum sw_queue sw_load_queue(enum sw_load kind)
{
    return kind <= SW_LOAD_OTHER        ? SW_QUEUE_COMPUTE
           : kind == SW_LOAD_COPIES_IN  ? SW_QUEUE_H2D
           : kind == SW_LOAD_COPIES_OUT ? SW_QUEUE_D2H
           : kind == SW_LOAD_SENT       ? SW_QUEUE_COMM
           : kind == SW_LOAD_DISK_READ  ? SW_QUEUE_READ
                                        : SW_QUEUE_WRITE;
}

/* The factor whose dtype decides how a product is computed; SW_NO_VALUE = no product. */
static sw_value factor_of(const struct sw_op *op)
{
    switch (op->kind) {
    case SW_OP_MATMUL:
    case SW_OP_ATTENTION:
    case SW_OP_ATTENTION_GRAD:
    case SW_OP_LINEAR_CE:
        return op->in[0];
    case SW_OP_LINEAR_CE_GRAD:
        return op->in[1];
    default:
        return SW_NO_VALUE;
    }
}

static bool is_rows(const struct sw_graph *g, const struct sw_op *op, int k)
{
    return k + 1 < op->n_in && g->values[op->in[k + 1]].dtype == SW_I32;
}

/* Of an update in pieces the first one stands for all where it is given what is there as a whole. */
static bool is_counted(const struct sw_graph *g, const struct sw_op *op, sw_value v, bool rows)
{
    const struct sw_shape *piece = &g->values[op->in[op->attrs.update.n_states > 0]].shape;
    return op->kind != SW_OP_UPDATE || op->attrs.n == 0 ||
           (!rows && sw_shape_elems(&g->values[v].shape) == sw_shape_elems(piece));
}

/* What an op that is no product reads and writes; where it touches rows of a table, or of a cache, only these. */
static double bytes_of(const struct sw_graph *g, const struct sw_op *op)
{
    double sum = 0;
    if (op->kind == SW_OP_KV_APPEND || (op->kind == SW_OP_ACCUMULATE && is_rows(g, op, 1))) {
        const struct sw_value_info *rows = &g->values[op->in[1]], *to = &g->values[op->in[0]];
        const double elems = (double)sw_shape_elems(&rows->shape);
        const int touched = op->kind == SW_OP_KV_APPEND ? 1 : 2; /* a sum is read, too */
        return (double)sw_value_bytes(rows) + touched * elems * (double)sw_dtype_bytes(to->dtype);
    }
    for (int k = 0; k < op->n_out; k++) {
        sum += op->out[k] >= 0 && is_counted(g, op, op->out[k], false)
                   ? (double)sw_value_bytes(&g->values[op->out[k]])
                   : 0;
    }
    if (op->kind == SW_OP_EMBEDDING || op->kind == SW_OP_SELECT_ROWS) {
        return 2 * sum;
    }
    for (int k = 0; k < op->n_in; k++) {
        sum += is_counted(g, op, op->in[k], is_rows(g, op, k))
                   ? (double)sw_value_bytes(&g->values[op->in[k]])
                   : 0;
    }
    return sum;
}

void sw_plan_loads(const struct sw_plan *plan, int64_t rounds, double out[SW_LOAD_COUNT])
{
    const struct sw_program *program = &plan->programs[0];
    const struct sw_graph *g = program->graph;
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        out[k] = 0;
    }
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_op *op = &g->ops[program->instrs[i].op];
        const double times = op->phase == SW_PHASE_UPDATE ? 1 : (double)rounds;
        const sw_value factor = factor_of(op);
        if (sw_op_is_transfer(op->kind) || sw_op_is_collective(op->kind)) {
            continue;
        }
        if (factor >= 0) {
            const enum sw_dtype dtype = g->values[factor].dtype;
            out[dtype == SW_BF16  ? SW_LOAD_PRODUCTS_BF16
                : dtype == SW_F16 ? SW_LOAD_PRODUCTS_F16
                                  : SW_LOAD_PRODUCTS_F32] += times * (double)sw_op_flops(g, op);
        } else {
            out[SW_LOAD_OTHER] += times * bytes_of(g, op);
        }
    }
    const struct sw_transfers moved = sw_plan_transfers(plan, rounds);
    out[SW_LOAD_COPIES_IN] = 2 * (double)moved.in[SW_TIER_HOST]; /* read and written */
    out[SW_LOAD_COPIES_OUT] = 2 * (double)moved.out[SW_TIER_HOST];
    out[SW_LOAD_DISK_READ] = (double)moved.in[SW_TIER_DISK];
    out[SW_LOAD_DISK_WRITTEN] = (double)moved.out[SW_TIER_DISK];
}

void sw_predict(const double loads[SW_LOAD_COUNT], const double rates[SW_LOAD_COUNT],
                struct sw_prediction *out)
{
    struct sw_prediction p = {.bound = SW_QUEUE_COMPUTE};
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        p.part[k] = loads[k] > 0 ? rates[k] > 0 ? loads[k] / rates[k] : NAN : 0;
        if (isnan(p.part[k])) {
            p.unknown = true;
        } else {
            p.seconds[sw_load_queue((enum sw_load)k)] += p.part[k];
            p.most += p.part[k];
        }
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        p.bound = p.seconds[q] > p.seconds[p.bound] ? (enum sw_queue)q : p.bound;
    }
    p.least = p.seconds[p.bound];
    *out = p;
}
