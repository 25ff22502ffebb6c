// SPDX-License-Identifier: Apache-2.0
// Checks the rows of ops against graphs with nearly all ops. Shapes, aliasing and access must match
// what building and differentiation made. Every row must say how a tiled matrix is used, or why it
// never is.
#include <string.h>

#include "graph/graph.h"
#include "support/test.h"

static sw_value param(sw_graph *g, const char *name, struct sw_shape shape)
{
    return sw_param(g, name, shape, (struct sw_init){SW_INIT_NORMAL, 0.1});
}

enum { B = 2, T = 3, C = 8, V = 11, H = 2 };

static sw_value attend(sw_graph *g, sw_value x, bool packed)
{
    const struct sw_attention_spec spec = {.heads = H,
                                           .scale = 1,
                                           .causal = true,
                                           .dropout = 0.1,
                                           .mask = -1,
                                           .position = -1,
                                           .slopes = -1,
                                           .segments = -1,
                                           .bias = SW_NO_VALUE};
    if (packed) {
        return sw_attention_packed(
            g, sw_linear(g, x, param(g, "qkv", SW_SHAPE(3 * C, C)), SW_NO_VALUE, false), &spec);
    }
    const sw_value kv = sw_linear(g, x, param(g, "kv", SW_SHAPE(C, 2 * C)), SW_NO_VALUE, true);
    return sw_attention(g, x, sw_slice(g, kv, 2, 0, C), sw_slice(g, kv, 2, C, C), &spec);
}

static sw_value block(sw_graph *g, sw_value x, bool packed)
{
    const struct sw_shape vector = SW_SHAPE(C);
    const sw_value norm =
        sw_layer_norm(g, x, param(g, packed ? "w1" : "w2", vector), param(g, "b", vector), 1e-5);
    x = sw_add(g, x, attend(g, norm, packed));
    x = sw_dropout(g, sw_act(g, sw_scale(g, x, 0.5), SW_ACT_GELU), 0.1);
    x = sw_transpose(g, sw_transpose(g, x, 0, 1), 0, 1);
    return sw_add(g, x, param(g, "bias", vector));
}

/* Features of decoder families. */
static sw_value turn_and_gate(sw_graph *g, sw_value x)
{
    static const float angles[T * 4];
    const sw_value table = sw_constant(g, "angles", SW_F32, SW_SHAPE(T, 4), angles);
    const sw_value places = sw_positions(g, sw_input(g, "mask", SW_I32, SW_SHAPE(B, T)), 0);
    const sw_value y = sw_rms_norm(g, x, param(g, "rms", SW_SHAPE(C)), 1e-5, true);
    const sw_value heads = sw_reshape(g, y, SW_SHAPE(B, T, H, C / H));
    const sw_value turned = sw_rotary(g, heads, table, places, true);
    return sw_mul(g, x, sw_gated_act(g, sw_reshape(g, turned, SW_SHAPE(B, T, C)), y, SW_ACT_SILU));
}

/* Builds a graph with the head of a language model, or of a classifier. */
static struct sw_graph *build(bool classify)
{
    const struct sw_graph_options options = {
        .dtype = SW_F32, .grad_dtype = SW_BF16, .training = true, .loss_chunk = 4};
    struct sw_graph *g = NULL;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const sw_value table = param(g, "table", SW_SHAPE(V, C));
    const sw_value ids = sw_input(g, "ids", SW_I32, SW_SHAPE(B, T));
    sw_value x = sw_embedding(g, table, ids, -1);
    x = block(g, block(g, x, true), false);
    sw_value loss;
    x = turn_and_gate(g, x);
    if (classify) {
        const sw_value row = sw_select_rows(g, x, sw_last_index(g, ids, 0));
        loss = sw_cross_entropy(g, sw_matmul(g, row, false, table, true),
                                sw_input(g, "labels", SW_I32, SW_SHAPE(B)));
    } else {
        loss = sw_linear_cross_entropy(g, x, table, param(g, "head.bias", SW_SHAPE(V)),
                                       sw_input(g, "labels", SW_I32, SW_SHAPE(B, T)), 0);
    }
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    return g;
}

static void check_op(const struct sw_graph *g, const struct sw_op *op)
{
    const struct sw_op_info *info = sw_op_info(op->kind);
    struct sw_op_desc desc;
    struct sw_view out[SW_MAX_OUTPUTS];
    memset(out, 0, sizeof out);
    sw_graph_describe(g, op, &desc);
    assert_true(op->n_out >= info->n_out);
    if (info->shapes) {
        info->shapes(&desc, out);
    }
    for (int k = 0; k < op->n_out; k++) {
        if (op->out[k] < 0) {
            continue;
        }
        const struct sw_value_info *value = &g->values[op->out[k]];
        if (info->shapes && !sw_shape_equal(&out[k].shape, &value->shape)) {
            fail_msg("%s: output %d has another shape than its row says", sw_op_name(op), k);
        }
        if (info->shapes && value->role != SW_ROLE_GRAD) {
            assert_int_equal(out[k].dtype, value->dtype);
        }
        const int alias = sw_op_alias(op, k);
        const sw_value root = sw_graph_root(g, op->out[k]);
        assert_int_equal(alias >= 0, root != op->out[k]);
        if (alias >= 0) {
            assert_int_equal(root, sw_graph_root(g, op->in[alias]));
        }
    }
    sw_graph_describe(g, op, &desc);
    assert_true(sw_op_flops(&desc) >= 0);
    assert_true(sw_op_bytes(&desc) > 0);
}

static void rows_say_what_was_built(void **state)
{
    (void)state;
    int n[SW_N_OP_KINDS] = {0}, n_kinds = 0;
    for (int classify = 0; classify < 2; classify++) {
        struct sw_graph *g = build(classify);
        for (int32_t i = 0; i < g->n_ops; i++) {
            check_op(g, &g->ops[i]);
            n_kinds += n[g->ops[i].kind]++ == 0;
        }
        sw_graph_close(g);
    }
    assert_true(n_kinds >= 31); /* the kinds of ops in a forward and its backward */
}

/* A new op on a matrix must declare how its tiles are used, since large parameters depend on it. */
static void every_row_knows_tiles(void **state)
{
    (void)state;
    for (int kind = 0; kind < SW_N_OP_KINDS; kind++) {
        const struct sw_op_info *info = sw_op_info((enum sw_op_kind)kind);
        const struct sw_op op = {.kind = (enum sw_op_kind)kind};
        if (!info->cut && !info->takes_no_matrix) {
            fail_msg("%s: its row has no cut", sw_op_name(&op));
        }
        assert_true(info->cut == NULL || info->takes_no_matrix == NULL);
        assert_true((info->grad_cut == SW_GRAD_CUT_NONE) == (info->grad_unit == NULL));
        if (info->cut ||
            info->grad_cut == SW_GRAD_CUT_ROWS) { /* its kernel knows which tile it is */
            struct sw_op tiled = op;
            assert_non_null(sw_op_tile(&tiled));
        }
    }
}

/* Each use of a matrix that is a parameter, or of its gradient, must have a cut, in both graphs. */
static void every_matrix_is_cut_where_it_is_used(void **state)
{
    (void)state;
    int n = 0;
    for (int classify = 0; classify < 2; classify++) {
        struct sw_graph *g = build(classify);
        for (int32_t i = 0; i < g->n_ops; i++) {
            const struct sw_op *op = &g->ops[i];
            const struct sw_op_info *info = sw_op_info(op->kind);
            for (int k = 0; k < op->n_in; k++) {
                const struct sw_value_info *value = &g->values[op->in[k]];
                if (value->role == SW_ROLE_PARAM && value->shape.rank == 2) {
                    assert_true(info->cut && info->cut_input == k);
                    n++;
                }
            }
        }
        for (int32_t i = 0; i < g->n_streams; i++) {
            const struct sw_value_info *grad = &g->values[g->streams[i].grad];
            const struct sw_op *op = &g->ops[grad->producer];
            if (g->values[g->streams[i].param].shape.rank == 2) {
                assert_int_not_equal(sw_op_info(op->kind)->grad_cut, SW_GRAD_CUT_NONE);
                n++;
            }
        }
        sw_graph_close(g);
    }
    assert_true(n >= 12);
}

static void access_follows_aliasing(void **state)
{
    (void)state;
    const struct {
        enum sw_op_kind kind;
        int k;
        enum sw_access access;
    } rows[] = {
        {SW_OP_EMBEDDING, 0, SW_ACCESS_ROWS},        {SW_OP_EMBEDDING, 1, SW_ACCESS_READ},
        {SW_OP_ACCUMULATE, 0, SW_ACCESS_ACCUMULATE}, {SW_OP_ACCUMULATE, 1, SW_ACCESS_READ},
        {SW_OP_STATS_RESET, 0, SW_ACCESS_WRITE},     {SW_OP_GRAD_STATS, 0, SW_ACCESS_UPDATE},
        {SW_OP_KV_APPEND, 0, SW_ACCESS_UPDATE},      {SW_OP_UPDATE, 2, SW_ACCESS_UPDATE},
        {SW_OP_UPDATE, 3, SW_ACCESS_READ},           {SW_OP_LAMB_MOMENTS, 0, SW_ACCESS_READ},
        {SW_OP_LAMB_MOMENTS, 2, SW_ACCESS_UPDATE},   {SW_OP_LAMB_APPLY, 0, SW_ACCESS_UPDATE},
        {SW_OP_LAMB_APPLY, 3, SW_ACCESS_READ},       {SW_OP_LAMB_APPLY, 4, SW_ACCESS_UPDATE},
        {SW_OP_MATMUL, 0, SW_ACCESS_READ},           {SW_OP_VIEW, 0, SW_ACCESS_READ},
    };
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        struct sw_op op = {.kind = rows[i].kind, .n_in = 5, .n_out = 3};
        if (sw_op_has(&op, SW_TRAIT_UPDATE)) {
            op.attrs.update.rule.n_states = 2; /* two moments */
        }
        op.n_out = rows[i].kind == SW_OP_LAMB_APPLY ? 2 : op.n_out;
        assert_int_equal(sw_op_access(&op, rows[i].k), rows[i].access);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_say_what_was_built),
    cmocka_unit_test(every_row_knows_tiles),
    cmocka_unit_test(every_matrix_is_cut_where_it_is_used),
    cmocka_unit_test(access_follows_aliasing),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
