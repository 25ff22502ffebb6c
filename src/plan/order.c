// SPDX-License-Identifier: Apache-2.0
// The list in which a pass that inserts ops collects them, in their new order, and which then replaces the
// graph's.
#include "plan/plan.h"

sw_status sw_op_order_open(struct sw_op_order *order, const struct sw_graph *g)
{
    *order = (struct sw_op_order){.cap = g->n_ops * 2 + 16};
    order->ops = sw_alloc("plan", (size_t)order->cap * sizeof *order->ops);
    SW_TRY_ALLOC(order->ops, "the plan");
    return SW_OK;
}

void sw_op_order_close(struct sw_op_order *order)
{
    sw_free(order->ops);
    *order = (struct sw_op_order){0};
}

bool sw_op_order_add(struct sw_op_order *order, const struct sw_op *op)
{
    if (order->n == order->cap) {
        const int32_t cap = order->cap * 2;
        void *mem = sw_realloc("plan", order->ops, (size_t)cap * sizeof *order->ops);
        if (!mem) {
            return false;
        }
        order->ops = mem;
        order->cap = cap;
    }
    order->ops[order->n++] = *op;
    return true;
}

void sw_op_order_install(struct sw_op_order *order, struct sw_graph *g)
{
    sw_free(g->ops);
    g->ops = order->ops;
    g->n_ops = order->n;
    g->cap_ops = order->cap;
    *order = (struct sw_op_order){0};
    for (int32_t i = 0; i < g->n_ops; i++) {
        for (int k = 0; k < g->ops[i].n_out; k++) {
            if (g->ops[i].out[k] >= 0) {
                g->values[g->ops[i].out[k]].producer = i;
            }
        }
    }
}
