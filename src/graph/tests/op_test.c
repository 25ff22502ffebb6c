// SPDX-License-Identifier: Apache-2.0
// Checks the rows of ops against graphs with nearly all ops. Shapes, aliasing and access must match
// what building and differentiation made. Every row must say how the op works in parts, or why it
// cannot.
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

/* True if some dimension of an operand cannot be cut. */
static bool leaves_dims_whole(const char *axes)
{
    for (; *axes; axes += strspn(axes, " ")) {
        const size_t len = strcspn(axes, " ");
        if (len > 1 && strcspn(axes, "._") < len) {
            return true;
        }
        axes += len;
    }
    return false;
}

/* A new op must declare how it works in parts, or why it cannot. */
static void every_row_has_cuts_or_a_reason(void **state)
{
    (void)state;
    for (int kind = 0; kind < SW_N_OP_KINDS; kind++) {
        const struct sw_op_info *info = sw_op_info((enum sw_op_kind)kind);
        const struct sw_op op = {.kind = (enum sw_op_kind)kind};
        const bool has_axes = info->axes || info->axes_of;
        if (!has_axes && !info->uncut) {
            fail_msg("%s: its row has no axes", sw_op_name(&op));
        }
        if (info->axes && leaves_dims_whole(info->axes) && !info->uncut) {
            fail_msg("%s: its row does not say why a dimension cannot be cut", sw_op_name(&op));
        }
        assert_false(info->axes && info->axes_of);
        assert_true(has_axes || (!info->cut && !info->part));
    }
}

static const struct sw_shape *shape_of(const struct sw_op_desc *desc, int k)
{
    return k < desc->op->n_in ? &desc->in[k].shape : &desc->out[k - desc->op->n_in].shape;
}

/* The units of a cut cover each operand that is cut, and a part of each section follows the other
 * one. Asking any of these operands gives the same units. */
static void check_cut(const struct sw_op_desc *desc, const struct sw_cut *cut)
{
    const int n_operands = desc->op->n_in + desc->op->n_out;
    for (int k = 0; k < n_operands; k++) {
        const struct sw_operand_cut *to = &cut->operands[k];
        int64_t at = 0, n;
        if (to->effect != SW_CUT_ALIKE || to->dim < 0) {
            continue;
        }
        for (int s = 0; s < SW_CUT_SECTIONS && to->per[s] > 0; s++) {
            for (int64_t unit = 0; unit < cut->n; unit++) {
                assert_int_equal(sw_cut_run(cut, k, s, unit, 1, &n), at);
                assert_true(n > 0);
                at += n;
            }
        }
        assert_int_equal(at, shape_of(desc, k)->dims[to->dim]);
        struct sw_cut other;
        assert_true(sw_op_cut(desc, k, to->dim, &other));
        assert_int_equal(other.axis, cut->axis);
        assert_int_equal(other.n, cut->n);
    }
}

static void cuts_cover_operands(void **state)
{
    (void)state;
    int n = 0;
    for (int classify = 0; classify < 2; classify++) {
        struct sw_graph *g = build(classify);
        for (int32_t i = 0; i < g->n_ops; i++) {
            struct sw_op_desc desc;
            struct sw_cut cut;
            sw_graph_describe(g, &g->ops[i], &desc);
            for (int k = 0; k < desc.op->n_in + desc.op->n_out; k++) {
                for (int d = 0; d < shape_of(&desc, k)->rank; d++) {
                    if (sw_op_cut(&desc, k, d, &cut)) {
                        check_cut(&desc, &cut);
                        n++;
                    }
                }
            }
        }
        sw_graph_close(g);
    }
    assert_true(n > 100);
}

/* The unit of element `index` (of the operand's dims) of operand k. */
static int64_t unit_of(const struct sw_cut *cut, int k, const int64_t *index)
{
    return index[cut->operands[k].dim] / cut->operands[k].per[0];
}

static void index_of(const struct sw_shape *shape, int64_t e, int64_t *index)
{
    for (int d = shape->rank - 1; d >= 0; d--) {
        index[d] = e % shape->dims[d];
        e /= shape->dims[d];
    }
}

/* An element of the output is in the same unit as the element of the input that it is. */
static void check_view(const struct sw_op_desc *desc, const struct sw_cut *cut)
{
    const struct sw_view_attrs *attrs = &desc->op->attrs.view;
    const struct sw_shape *in = &desc->in[0].shape, *out = &desc->out[0].shape;
    for (int64_t e = 0; e < sw_shape_elems(out); e++) {
        int64_t to[SW_MAX_RANK], from[SW_MAX_RANK];
        index_of(out, e, to);
        memcpy(from, to, sizeof from);
        if (attrs->kind == SW_VIEW_RESHAPE) {
            index_of(in, e, from);
        } else if (attrs->kind == SW_VIEW_TRANSPOSE) {
            from[attrs->dim] = to[attrs->dim_b];
            from[attrs->dim_b] = to[attrs->dim];
        } else {
            from[attrs->dim] += attrs->start;
        }
        assert_int_equal(unit_of(cut, 0, from), unit_of(cut, 1, to));
    }
}

static void check_views(enum sw_view_kind kind, struct sw_shape in, struct sw_shape out)
{
    struct sw_op op = {.kind = SW_OP_VIEW, .n_in = 1, .n_out = 1};
    struct sw_op_desc desc = {.op = &op};
    struct sw_cut cut;
    int n = 0;
    op.attrs.view = (struct sw_view_attrs){.kind = kind, .dim = 0, .dim_b = 2, .start = 1};
    desc.in[0].shape = in;
    desc.out[0].shape = out;
    for (int k = 0; k < 2; k++) {
        for (int d = 0; d < shape_of(&desc, k)->rank; d++) {
            if (sw_op_cut(&desc, k, d, &cut)) {
                check_cut(&desc, &cut);
                check_view(&desc, &cut);
                n += cut.n > 1;
            }
        }
    }
    assert_true(n >= 2);
}

static void views_keep_elements_in_their_part(void **state)
{
    (void)state;
    check_views(SW_VIEW_RESHAPE, SW_SHAPE(2, 3, 8), SW_SHAPE(2, 3, 2, 4));
    check_views(SW_VIEW_RESHAPE, SW_SHAPE(2, 3, 2, 4), SW_SHAPE(6, 8));
    check_views(SW_VIEW_RESHAPE, SW_SHAPE(6, 8), SW_SHAPE(1, 2, 3, 8));
    check_views(SW_VIEW_RESHAPE, SW_SHAPE(4, 6), SW_SHAPE(6, 4));
    check_views(SW_VIEW_RESHAPE, SW_SHAPE(2, 3, 4), SW_SHAPE(24));
    check_views(SW_VIEW_TRANSPOSE, SW_SHAPE(2, 3, 4), SW_SHAPE(4, 3, 2));
    check_views(SW_VIEW_SLICE, SW_SHAPE(5, 3, 4), SW_SHAPE(2, 3, 4));
}

/* Each use of a matrix that is a parameter, or of its gradient, must have a cut, in both graphs. */
static void every_matrix_is_cut_where_it_is_used(void **state)
{
    (void)state;
    int n = 0;
    struct sw_op_desc desc;
    struct sw_cut cut;
    for (int classify = 0; classify < 2; classify++) {
        struct sw_graph *g = build(classify);
        for (int32_t i = 0; i < g->n_ops; i++) {
            const struct sw_op *op = &g->ops[i];
            sw_graph_describe(g, op, &desc);
            for (int k = 0; k < op->n_in; k++) {
                const struct sw_value_info *value = &g->values[op->in[k]];
                if (value->role == SW_ROLE_PARAM && value->shape.rank == 2) {
                    assert_true(sw_op_cut(&desc, k, 0, &cut));
                    n++;
                }
            }
        }
        for (int32_t i = 0; i < g->n_streams; i++) {
            const struct sw_value_info *grad = &g->values[g->streams[i].grad];
            const struct sw_op *op = &g->ops[grad->producer];
            int k = 0;
            while (op->out[k] != g->streams[i].grad) {
                k++;
            }
            if (g->values[g->streams[i].param].shape.rank == 2 && grad->sparse_index < 0) {
                sw_graph_describe(g, op, &desc);
                assert_true(sw_op_cut(&desc, op->n_in + k, 0, &cut));
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
    cmocka_unit_test(every_row_has_cuts_or_a_reason),
    cmocka_unit_test(cuts_cover_operands),
    cmocka_unit_test(views_keep_elements_in_their_part),
    cmocka_unit_test(every_matrix_is_cut_where_it_is_used),
    cmocka_unit_test(access_follows_aliasing),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
