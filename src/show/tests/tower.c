// SPDX-License-Identifier: Apache-2.0
// A small model with a tied table, biases and frozen parameters on request.
#include "show/tests/tower.h"

#include "support/test.h"

struct sw_plan_options options(int ranks, int stage, int64_t micro_batches)
{
    return (struct sw_plan_options){.device = {test_query, NULL},
                                    .policy.micro_batches = micro_batches,
                                    .clip = 1,
                                    .rule = &test_adam,
                                    .kernel_set = "test",
                                    .mesh = sw_mesh_of_data(ranks),
                                    .policy.stage = stage,
                                    .limits.persistence_total = INT64_MAX};
}

struct sw_graph *tower(enum sw_dtype dtype, int flags, bool even)
{
    static const char *const frozen[] = {"up.0"};
    const struct sw_graph_options graph = {.dtype = dtype,
                                           .grad_dtype = dtype,
                                           .training = true,
                                           .frozen = frozen,
                                           .n_frozen = flags & FROZEN ? 1 : 0};
    const int64_t width = even ? 64 : 13, inner = even ? 128 : 37, vocab = even ? 64 : 19;
    const struct sw_init init = {SW_INIT_NORMAL, 0.1};
    struct sw_graph *g;
    assert_int_equal(sw_graph_open(&graph, &g), SW_OK);
    const sw_value table = sw_param(g, "table", SW_SHAPE(vocab, width), init);
    sw_value h;
    if (flags & TIED) {
        h = sw_embedding(g, table, sw_input(g, "ids", SW_I32, SW_SHAPE(3, 5)), -1);
    } else {
        const sw_value in = sw_param(g, "in", SW_SHAPE(vocab, width), init);
        h = sw_linear(g, sw_input(g, "x", dtype, SW_SHAPE(3, 5, vocab)), in, SW_NO_VALUE, true);
    }
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "h.%d", i);
        sw_scope_push_block(g, name);
        snprintf(name, sizeof name, "up.%d", i);
        const sw_value up = sw_param(g, name, SW_SHAPE(width, inner), init);
        snprintf(name, sizeof name, "bias.%d", i);
        const sw_value bias = flags & BIAS ? sw_param(g, name, SW_SHAPE(inner), init) : SW_NO_VALUE;
        snprintf(name, sizeof name, "down.%d", i);
        const sw_value down = sw_param(g, name, SW_SHAPE(inner, width), init);
        const sw_value x = sw_act(g, sw_linear(g, h, up, bias, true), SW_ACT_GELU);
        h = sw_add(g, h, sw_linear(g, x, down, SW_NO_VALUE, true));
        sw_scope_pop(g);
    }
    const sw_value loss = sw_linear_cross_entropy(g, h, table, SW_NO_VALUE,
                                                  sw_input(g, "labels", SW_I32, SW_SHAPE(3, 5)), 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    return g;
}
