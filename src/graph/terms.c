// SPDX-License-Identifier: Apache-2.0
// Finds the terms of a loss: means over targets, scaled and added.
#include "graph/graph.h"

struct found {
    struct sw_loss_term *terms;
    int n, most;
};

static enum sw_loss_of loss_of(const struct sw_graph *g, sw_value sum)
{
    const int32_t producer = g->values[sum].producer;
    const struct sw_op *op = producer >= 0 ? &g->ops[producer] : NULL;
    return !op || op->kind != SW_OP_ROUTER_LOSS ? SW_LOSS_OF_TASK
           : op->attrs.experts.z                ? SW_LOSS_OF_Z
                                                : SW_LOSS_OF_BALANCE;
}

static bool add_terms(const struct sw_graph *g, sw_value v, double weight, struct found *out)
{
    const int32_t producer = v >= 0 ? g->values[v].producer : -1;
    const struct sw_op *op = producer >= 0 ? &g->ops[producer] : NULL;
    switch (op ? op->kind : SW_N_OP_KINDS) {
    case SW_OP_ADD:
        return add_terms(g, op->in[0], weight, out) && add_terms(g, op->in[1], weight, out);
    case SW_OP_SCALE:
        return add_terms(g, op->in[0], weight * op->attrs.scale.factor, out);
    case SW_OP_LOSS_MEAN:
        if (out->n == out->most) {
            return false;
        }
        out->terms[out->n++] = (struct sw_loss_term){weight, op->attrs.loss_mean.weight, op->in[0],
                                                     op->in[1], loss_of(g, op->in[0])};
        return true;
    default:
        return false;
    }
}

int sw_graph_loss_terms(const struct sw_graph *g, sw_value loss, struct sw_loss_term *terms,
                        int most)
{
    struct found found = {.terms = terms, .most = most};
    return add_terms(g, loss, 1, &found) ? found.n : 0;
}
