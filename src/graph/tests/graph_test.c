// SPDX-License-Identifier: Apache-2.0
// Tests the graph. Shape rules refuse with the shapes in the message, failures are sticky, and
// views share storage. Exact sums are exact in any order and grouping.
#include <math.h>
#include <string.h>

#include "graph/graph.h"
#include "support/test.h"

static struct sw_graph *fresh(void)
{
    const struct sw_graph_options options = {
        .dtype = SW_F32, .grad_dtype = SW_F32, .training = true};
    struct sw_graph *g = NULL;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    return g;
}

static sw_value param(sw_graph *g, const char *name, struct sw_shape shape)
{
    return sw_param(g, name, shape, (struct sw_init){SW_INIT_ZERO, 0});
}

static void refused(struct sw_graph *g, const char *needle)
{
    assert_true(sw_graph_status(g) < 0);
    if (!strstr(sw_error_message(), needle)) {
        fail_msg("\"%s\" does not say \"%s\"", sw_error_message(), needle);
    }
    const int32_t n_ops = g->n_ops;
    const sw_value x = param(g, "later", SW_SHAPE(2, 2)); /* nothing is added after a failure */
    assert_int_equal(x, SW_NO_VALUE);
    assert_int_equal(sw_add(g, x, x), SW_NO_VALUE);
    assert_int_equal(g->n_ops, n_ops);
    sw_graph_close(g);
}

static void wrong_shapes_are_named(void **state)
{
    (void)state;
    struct sw_graph *g = fresh();
    sw_scope_push(g, "block");
    sw_matmul(g, param(g, "a", SW_SHAPE(2, 3)), false, param(g, "b", SW_SHAPE(4, 5)), false);
    refused(g, "block: matmul");
    g = fresh();
    sw_add(g, param(g, "a", SW_SHAPE(2, 3)), param(g, "b", SW_SHAPE(2)));
    refused(g, "[2, 3]");
    g = fresh();
    sw_layer_norm(g, param(g, "a", SW_SHAPE(2, 3)), param(g, "w", SW_SHAPE(2)),
                  param(g, "b", SW_SHAPE(2)), 1e-5);
    refused(g, "layer norm");
    g = fresh();
    sw_linear(g, param(g, "a", SW_SHAPE(2, 3)), param(g, "w", SW_SHAPE(3, 4)), SW_NO_VALUE, false);
    refused(g, "[out, in]");
    g = fresh();
    sw_dropout(g, param(g, "a", SW_SHAPE(2, 3)), 1.0);
    refused(g, "[0, 1)");
    g = fresh();
    sw_slice(g, param(g, "a", SW_SHAPE(2, 3)), 1, 2, 2);
    refused(g, "outside");
    g = fresh();
    sw_reshape(g, param(g, "a", SW_SHAPE(2, 3)), SW_SHAPE(4));
    refused(g, "elements");
    g = fresh();
    sw_cross_entropy(g, param(g, "a", SW_SHAPE(2, 3)), sw_input(g, "labels", SW_I32, SW_SHAPE(3)));
    refused(g, "one label per row");
    g = fresh();
    param(g, "a", SW_SHAPE(2, 3));
    param(g, "a", SW_SHAPE(3, 2));
    refused(g, "requested as");
    g = fresh();
    sw_input(g, "a", SW_I32, SW_SHAPE(INT64_MAX / 2, 64));
    refused(g, "too large");
    g = fresh();
    sw_scope_pop(g);
    refused(g, "popped");
}

/* An attention of 4 heads of width 3 over 2 x 5 tokens, with 2 key heads; x is its queries. */
static sw_value attend(sw_graph *g, const struct sw_attention_spec *spec, struct sw_shape q,
                       struct sw_shape v)
{
    return sw_attention(g, param(g, "q", q), param(g, "k", SW_SHAPE(2, 5, 6)), param(g, "v", v),
                        spec);
}

static void splits_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const struct sw_tensor_split rows = {.dim = 0, .n_groups = 1, .group = {4}},
                                 more = {.dim = 0, .n_groups = 1, .group = {5}};
    struct sw_graph *g = fresh();
    const sw_value table = param(g, "wte.weight", SW_SHAPE(4, 2));
    assert_null(sw_graph_param_part(g, table));
    sw_param_split(g, table, &rows);
    assert_int_equal(sw_graph_status(g), SW_OK);
    assert_memory_equal(&sw_graph_param_part(g, table)->split, &rows, sizeof rows);
    sw_graph_close(g);
    g = fresh();
    sw_param_split(g, param(g, "wte.weight", SW_SHAPE(4, 2)), &more);
    assert_int_equal(sw_graph_status(g), SW_E_ARG);
    refused(g, "does not fit");
}

static void attention_names_what_does_not_fit(void **state)
{
    (void)state;
    const struct sw_attention_spec plain = {.heads = 4,
                                            .kv_heads = 2,
                                            .scale = 1,
                                            .mask = -1,
                                            .position = -1,
                                            .slopes = -1,
                                            .segments = -1,
                                            .bias = SW_NO_VALUE};
    const struct sw_shape q = SW_SHAPE(2, 5, 12), v = SW_SHAPE(2, 5, 2, 3);
    struct sw_attention_spec spec = plain;
    struct sw_graph *g = fresh();
    assert_int_equal(sw_graph_status(g), SW_OK);
    const sw_value o = attend(g, &spec, SW_SHAPE(2, 5, 4, 3), v);
    assert_true(sw_shape_equal(&g->values[o].shape, &q));
    sw_graph_close(g);
    g = fresh();
    sw_attention_packed(g, param(g, "a", SW_SHAPE(2, 3, 10)), &spec);
    refused(g, "attention");
    g = fresh();
    attend(g, &spec, SW_SHAPE(2, 5, 3, 4), v);
    refused(g, "heads a multiple of kv_heads; got [2, 5, 3, 4]");
    g = fresh();
    attend(g, &spec, q, SW_SHAPE(2, 5, 3, 2));
    refused(g, "keys and values must be");
    g = fresh();
    attend(g, &spec, q, SW_SHAPE(2, 4, 2, 3));
    refused(g, "keys and values must be");
    g = fresh();
    spec.cap = -1;
    attend(g, &spec, q, v);
    refused(g, "cap -1");
    g = fresh();
    spec = plain;
    spec.slopes = sw_input(g, "slopes", SW_F32, SW_SHAPE(2));
    attend(g, &spec, q, v);
    refused(g, "constant f32 slopes [heads]");
    g = fresh();
    spec.slopes = param(g, "slopes", SW_SHAPE(4));
    attend(g, &spec, q, v);
    refused(g, "constant f32 slopes [heads]");
    g = fresh();
    spec = plain;
    spec.segments = sw_input(g, "segments", SW_I32, SW_SHAPE(2, 4));
    attend(g, &spec, q, v);
    refused(g, "i32 segments [B, keys]");
    g = fresh();
    spec.segments = sw_input(g, "segments", SW_I32, SW_SHAPE(2, 5));
    attend(g, &spec, SW_SHAPE(2, 1, 12), v);
    refused(g, "a position unless queries are keys");
}

/* Each optional input gives another fingerprint; without them the fingerprint is unaffected. */
/* Two blocks with an attention of 28 heads. */
static struct sw_graph *two_blocks(void)
{
    struct sw_graph *g = fresh();
    for (int i = 0; i < 2; i++) {
        char name[] = "h.0";
        name[2] = (char)('0' + i);
        sw_scope_push_block(g, name);
        sw_attention_packed(g, param(g, name, SW_SHAPE(2, 5, 3 * 28 * 2)),
                            &(struct sw_attention_spec){.heads = 28,
                                                        .scale = 1,
                                                        .mask = SW_NO_VALUE,
                                                        .position = SW_NO_VALUE,
                                                        .slopes = SW_NO_VALUE,
                                                        .segments = SW_NO_VALUE,
                                                        .bias = SW_NO_VALUE});
        sw_scope_pop(g);
    }
    assert_int_equal(sw_graph_status(g), SW_OK);
    return g;
}

static void shares_that_do_not_divide_are_refused(void **state)
{
    static const struct {
        struct sw_shares shares; /* tensor, context */
        const char *words[3];
    } cases[] = {
        {{16, 1}, {"tensor 16", "the 28 heads of h.0", "1, 2, 4, 7, 14, 28"}},
        {{4, 2}, {"tensor 4 x context 2", "28 heads", "ring attention"}},
        {{1, 56}, {"context 56", "28 heads", "ring attention"}},
        {{1, 4}, {"context 4", "6 tokens of the rows of table", "multiple of 4 tokens"}},
    };
    static const struct sw_shares fit[] = {{14, 2}, {7, 4}, {28, 1}};
    (void)state;
    struct sw_graph *g = two_blocks();
    for (size_t i = 0; i < SW_LEN(fit); i++) {
        assert_int_equal(sw_graph_check_shares(g, &fit[i]), SW_OK);
    }
    const sw_value ids = sw_input(g, "ids", SW_I32, SW_SHAPE(2, 6));
    sw_embedding(g, param(g, "table", SW_SHAPE(5, 3)), ids, -1);
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        assert_int_equal(sw_graph_check_shares(g, &cases[i].shares), SW_E_CONFIG);
        for (size_t k = 0; k < SW_LEN(cases[i].words); k++) {
            if (!strstr(sw_error_message(), cases[i].words[k])) {
                fail_msg("\"%s\" lacks \"%s\"", sw_error_message(), cases[i].words[k]);
            }
        }
    }
    sw_graph_close(g);
}

static void attention_is_in_the_fingerprint(void **state)
{
    (void)state;
    uint64_t seen[5];
    for (int i = 0; i < 5; i++) {
        struct sw_graph *g = fresh();
        const sw_value slopes = sw_input(g, "slopes", SW_F32, SW_SHAPE(4));
        const sw_value segments = sw_input(g, "segments", SW_I32, SW_SHAPE(2, 5));
        const struct sw_attention_spec spec = {.heads = 4,
                                               .kv_heads = 2,
                                               .scale = 1,
                                               .cap = i == 1   ? 30
                                                      : i == 2 ? 50
                                                               : 0,
                                               .mask = -1,
                                               .position = -1,
                                               .slopes = i == 3 ? slopes : SW_NO_VALUE,
                                               .segments = i == 4 ? segments : SW_NO_VALUE,
                                               .bias = SW_NO_VALUE};
        attend(g, &spec, SW_SHAPE(2, 5, 12), SW_SHAPE(2, 5, 6));
        assert_int_equal(sw_graph_status(g), SW_OK);
        seen[i] = sw_graph_fingerprint(g, SW_HASH_INIT);
        for (int k = 0; k < i; k++) {
            assert_true(seen[k] != seen[i]);
        }
        sw_graph_close(g);
    }
}

static sw_value rotary(sw_graph *g, struct sw_shape x, struct sw_shape table,
                       struct sw_shape positions)
{
    static const float angles[64];
    return sw_rotary(g, param(g, "x", x), sw_constant(g, "angles", SW_F32, table, angles),
                     sw_input(g, "positions", SW_I32, positions), false);
}

static void operands_of_decoders_are_checked(void **state)
{
    (void)state;
    struct sw_graph *g = fresh();
    sw_rms_norm(g, param(g, "a", SW_SHAPE(2, 3)), param(g, "w", SW_SHAPE(2)), 1e-5, false);
    refused(g, "RMS norm: weight must be as long as x's rows; got [2, 3] and [2]");
    g = fresh();
    sw_rms_norm(g, param(g, "a", SW_SHAPE(0)), param(g, "w", SW_SHAPE(2)), 1e-5, false);
    refused(g, "RMS norm");
    g = fresh();
    sw_mul(g, param(g, "a", SW_SHAPE(2, 3)), param(g, "b", SW_SHAPE(2)));
    refused(g, "multiply: wants equal shapes and dtypes, or b a suffix of a");
    g = fresh();
    sw_gated_act(g, param(g, "a", SW_SHAPE(2)), sw_input(g, "b", SW_I32, SW_SHAPE(2)), SW_ACT_SILU);
    refused(g, "gated activation: wants floats of one dtype, got i32");
    g = fresh();
    rotary(g, SW_SHAPE(2, 3, 2, 8), SW_SHAPE(4, 10), SW_SHAPE(3));
    refused(g, "an even R of at most D; got [2, 3, 2, 8] and [4, 10]");
    g = fresh();
    rotary(g, SW_SHAPE(2, 3, 2, 8), SW_SHAPE(4, 3), SW_SHAPE(3));
    refused(g, "an even R");
    g = fresh();
    rotary(g, SW_SHAPE(2, 3, 2, 8), SW_SHAPE(4, 8), SW_SHAPE(3, 2));
    refused(g, "positions [T] or [B, T]");
    g = fresh();
    sw_rotary(g, param(g, "x", SW_SHAPE(2, 3, 2, 8)), param(g, "trained", SW_SHAPE(4, 8)),
              sw_input(g, "positions", SW_I32, SW_SHAPE(3)), false);
    refused(g, "not trained");
    g = fresh();
    sw_positions(g, sw_input(g, "mask", SW_I32, SW_SHAPE(3)), 2);
    refused(g, "a mask [B, T]");
    g = fresh();
    sw_linear_cross_entropy(g, param(g, "h", SW_SHAPE(2, 3)), param(g, "w", SW_SHAPE(5, 3)),
                            param(g, "b", SW_SHAPE(3)), sw_input(g, "l", SW_I32, SW_SHAPE(2)), 0);
    refused(g, "a bias as long as the weight has rows; got [5, 3] and [3]");
    g = fresh();
    sw_linear_cross_entropy(g, param(g, "h", SW_SHAPE(2, 3)), param(g, "w", SW_SHAPE(5, 3)),
                            SW_NO_VALUE, sw_input(g, "l", SW_I32, SW_SHAPE(2)), -1);
    refused(g, "a cap of -1");
}

/* The same name with the same bytes is the same tensor. Values are copied, and are part of the
 * math. */
static void a_constant_is_its_values(void **state)
{
    float values[6] = {1, 2, 3, 4, 5, 6};
    uint64_t fingerprints[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct sw_graph *g = fresh();
        values[5] = i == 2 ? 7 : 6;
        const sw_value v = sw_constant(g, "table", SW_F32, SW_SHAPE(2, 3), values);
        assert_int_equal(sw_constant(g, "table", SW_F32, SW_SHAPE(2, 3), values), v);
        assert_ptr_not_equal(g->values[v].data, values);
        assert_false(g->values[v].needs_grad);
        fingerprints[i] = sw_graph_fingerprint(g, SW_HASH_INIT);
        sw_graph_close(g);
    }
    assert_true(fingerprints[0] == fingerprints[1] && fingerprints[1] != fingerprints[2]);
    for (int i = 0; i < 3; i++) {
        struct sw_graph *g = fresh();
        sw_constant(g, "table", SW_F32, SW_SHAPE(2, 3), values);
        values[0] = i == 0 ? -1.0f : 1.0f;
        sw_constant(g, "table", i == 1 ? SW_I32 : SW_F32, i == 2 ? SW_SHAPE(3, 2) : SW_SHAPE(2, 3),
                    values);
        values[0] = 1;
        refused(g, "constant table requested twice with different values");
    }
}

static void the_first_message_stays(void **state)
{
    (void)state;
    struct sw_graph *g = fresh();
    sw_graph_fail(g, SW_E_ARG, "first");
    sw_graph_fail(g, SW_E_NOMEM, "second");
    assert_int_equal(sw_graph_status(g), SW_E_ARG);
    assert_string_equal(sw_error_message(), "first");
    sw_graph_close(g);
}

static void transposes_fold_into_products(void **state)
{
    (void)state;
    struct sw_graph *g = fresh();
    const sw_value a = param(g, "a", SW_SHAPE(4, 3)), b = param(g, "b", SW_SHAPE(5, 4));
    const sw_value c =
        sw_matmul(g, sw_transpose(g, a, 0, 1), false, sw_transpose(g, b, 0, 1), false);
    const struct sw_op *op = &g->ops[g->values[c].producer];
    assert_true(op->attrs.matmul.ta && op->attrs.matmul.tb);
    assert_int_equal(op->in[0], a);
    assert_int_equal(op->in[1], b);
    for (int32_t i = 0; i < g->n_ops; i++) {
        assert_int_not_equal(g->ops[i].kind, SW_OP_CONTIGUOUS);
    }
    sw_graph_close(g);
}

static void frozen_parameters_get_no_gradient(void **state)
{
    (void)state;
    static const char *const frozen[] = {"w*.bias"};
    const struct sw_graph_options options = {
        .dtype = SW_F32, .grad_dtype = SW_F32, .frozen = frozen, .n_frozen = 1};
    struct sw_graph *g = NULL;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const sw_value y =
        sw_linear(g, sw_input(g, "x", SW_F32, SW_SHAPE(3, 4)), param(g, "w.weight", SW_SHAPE(5, 4)),
                  param(g, "w.bias", SW_SHAPE(5)), false);
    const sw_value loss = sw_cross_entropy(g, y, sw_input(g, "labels", SW_I32, SW_SHAPE(3)));
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    assert_int_equal(g->n_streams, 1);
    assert_string_equal(g->values[g->streams[0].param].name, "w.weight");
    sw_graph_close(g);
}

static void globs(void **state)
{
    (void)state;
    assert_true(sw_glob_match("*", ""));
    assert_true(sw_glob_match("a*c", "abbbc"));
    assert_true(sw_glob_match("*.h.1.*", "transformer.h.1.ln_1.weight"));
    assert_false(sw_glob_match("*.h.1.*", "transformer.h.11.ln_1.weight"));
    assert_false(sw_glob_match("abc", "abcd"));
    assert_false(sw_glob_match("*a", "ab"));
}

/* Arrays are as large as their length says, also in a copy that grows further. */
static void a_copy_grows_like_its_original(void **state)
{
    (void)state;
    for (int n = 62; n <= 66; n++) {
        struct sw_graph *g = fresh(), *copy = NULL;
        char name[32];
        for (int i = 0; i < n; i++) {
            snprintf(name, sizeof name, "p%d", i);
            const sw_value p = param(g, name, SW_SHAPE(1));
            sw_output(g, name, sw_scale(g, p, 2));
        }
        assert_int_equal(sw_graph_copy(g, &copy), SW_OK);
        for (int i = 0; i < 70; i++) {
            snprintf(name, sizeof name, "more%d", i);
            const sw_value p = param(copy, name, SW_SHAPE(1));
            sw_output(copy, name, sw_scale(copy, p, 3));
        }
        assert_int_equal(sw_graph_status(copy), SW_OK);
        assert_int_equal(copy->n_ops, n + 70);
        assert_int_equal(copy->n_params, n + 70);
        for (int i = 0; i < n; i++) {
            assert_string_equal(copy->outputs[i].name, g->outputs[i].name);
            assert_int_equal(copy->params[i], g->params[i]);
        }
        assert_int_equal(sw_graph_find_output(copy, "more69"), copy->n_values - 1);
        sw_graph_close(copy);
        sw_graph_close(g);
    }
}

static void exact_sums_do_not_depend_on_order(void **state)
{
    (void)state;
    enum { N = 4000 };
    static double x[N];
    for (int i = 0; i < N; i++) {
        const int exponent = (int)(sw_philox_u64(1, 2, (uint64_t)i) % 900) - 450;
        x[i] = ldexp(sw_philox_normal(1, 1, (uint64_t)i), exponent);
    }
    int64_t forward[SW_EXACT_WORDS] = {0}, backward[SW_EXACT_WORDS] = {0},
            parts[3][SW_EXACT_WORDS] = {{0}};
    for (int i = 0; i < N; i++) {
        sw_exact_add(forward, x[i]);
        sw_exact_add(backward, x[N - 1 - i]);
        sw_exact_add(parts[i % 3], x[i]);
    }
    sw_exact_merge(parts[0], parts[2]);
    sw_exact_merge(parts[0], parts[1]);
    assert_true(sw_exact_value(forward) == sw_exact_value(backward));
    assert_true(sw_exact_value(forward) == sw_exact_value(parts[0]));
    sw_exact_carry(forward);
    sw_exact_carry(parts[0]);
    assert_memory_equal(forward, parts[0], sizeof forward);
}

static void exact_sums_cancel(void **state)
{
    (void)state;
    int64_t acc[SW_EXACT_WORDS] = {0};
    sw_exact_add(acc, 1e200);
    sw_exact_add(acc, 3.5);
    sw_exact_add(acc, 1e-150);
    sw_exact_add(acc, -1e200);
    sw_exact_add(acc, -3.5);
    assert_true(sw_exact_value(acc) == 1e-150);
    sw_exact_add(acc, -2e-150);
    assert_true(sw_exact_value(acc) == -1e-150);
    int64_t many[SW_EXACT_WORDS] = {0};
    for (int i = 0; i < 100000; i++) {
        sw_exact_add(many, 0.1);
    }
    /* 0.1 as a double is 0x1.999999999999ap-4: the sum is exactly 100000 of them, rounded once */
    assert_float_equal(sw_exact_value(many), 10000.000000000000555, 2e-12);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(wrong_shapes_are_named),
    cmocka_unit_test(splits_that_do_not_fit_are_refused),
    cmocka_unit_test(attention_names_what_does_not_fit),
    cmocka_unit_test(shares_that_do_not_divide_are_refused),
    cmocka_unit_test(attention_is_in_the_fingerprint),
    cmocka_unit_test(operands_of_decoders_are_checked),
    cmocka_unit_test(a_constant_is_its_values),
    cmocka_unit_test(the_first_message_stays),
    cmocka_unit_test(transposes_fold_into_products),
    cmocka_unit_test(frozen_parameters_get_no_gradient),
    cmocka_unit_test(globs),
    cmocka_unit_test(a_copy_grows_like_its_original),
    cmocka_unit_test(exact_sums_do_not_depend_on_order),
    cmocka_unit_test(exact_sums_cancel),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
