// SPDX-License-Identifier: Apache-2.0
// A model for tests of pipelines: a tower of equal blocks between an embedding and a head.
#pragma once

#include <stdio.h>

#include "graph/graph.h"
#include "support/test.h"

struct test_tower {
    struct sw_graph_options graph;
    int blocks;
    int64_t batch, tokens, vocab, width, inner;
    double std;   /* of initial values */
    bool is_tied; /* the head is the embedding's table */
    /* Blocks have dropout, and read a value that was made before the first one ("side"). */
    bool has_side;
};

/* h + block(h), where h and the output are [batch, tokens, width]. */
static inline sw_value test_tower_block(struct sw_graph *g, const struct test_tower *t, int i,
                                        sw_value h, sw_value side)
{
    const struct sw_init init = {SW_INIT_NORMAL, t->std};
    char name[32];
    snprintf(name, sizeof name, "h.%d", i);
    sw_scope_push_block(g, name);
    snprintf(name, sizeof name, "up.%d", i);
    const sw_value up = sw_param(g, name, SW_SHAPE(t->width, t->inner), init);
    snprintf(name, sizeof name, "down.%d", i);
    const sw_value down = sw_param(g, name, SW_SHAPE(t->inner, t->width), init);
    sw_value x = sw_act(g, sw_linear(g, h, up, SW_NO_VALUE, true), SW_ACT_GELU);
    x = sw_linear(g, x, down, SW_NO_VALUE, true);
    h = sw_add(g, h, side >= 0 ? sw_dropout(g, x, 0.1) : x);
    h = side >= 0 ? sw_add(g, h, side) : h;
    sw_scope_pop(g);
    return h;
}

/* The graph with its gradients, which the caller closes. Inputs: "ids" and "labels". */
static inline struct sw_graph *test_tower(const struct test_tower *t)
{
    const struct sw_init init = {SW_INIT_NORMAL, t->std};
    const struct sw_shape rows = SW_SHAPE(t->vocab, t->width), ids = SW_SHAPE(t->batch, t->tokens);
    struct sw_graph *g;
    assert_int_equal(sw_graph_open(&t->graph, &g), SW_OK);
    const sw_value table = sw_param(g, "table", rows, init);
    const sw_value head = t->is_tied ? table : sw_param(g, "head", rows, init);
    sw_value h = sw_embedding(g, table, sw_input(g, "ids", SW_I32, ids), -1), side = SW_NO_VALUE;
    if (t->has_side) {
        const sw_value square = sw_param(g, "side", SW_SHAPE(t->width, t->width), init);
        side = sw_linear(g, h, square, SW_NO_VALUE, true);
    }
    for (int i = 0; i < t->blocks; i++) {
        h = test_tower_block(g, t, i, h, side);
    }
    const sw_value labels = sw_input(g, "labels", SW_I32, ids);
    const sw_value loss = sw_linear_cross_entropy(g, h, head, SW_NO_VALUE, labels, 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    return g;
}
