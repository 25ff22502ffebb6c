// SPDX-License-Identifier: Apache-2.0
// Patterns mean what they mean in Python's `re`. Adapters are put on the layers that PEFT would
// choose, with its scaling. Only they and the modules to save are trained. Entries that match no
// layer are named.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "nn/nn.h"
#include "nn/pattern.h"
#include "support/test.h"

/* ---- patterns ---- */

static void a_pattern_matches_whole_names(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"q_proj", "q_proj", true},
        {"q_proj", "a.q_proj", false},
        {".*q_proj", "a.q_proj", true},
        {".*\\.[qv]_proj", "layers.0.v_proj", true},
        {".*\\.[qv]_proj", "layers.0.k_proj", false},
        {".*(q|v|up)_proj", "layers.0.up_proj", true},
        {".*(?:q|v)_proj$", "layers.0.q_proj", true},
        {"^h\\.\\d+\\.c", "h.12.c", true},
        {"h\\.\\d+\\.c", "h.x.c", false},
        {"layers\\.(0|1[0-9])\\.mlp.*", "layers.17.mlp.up", true},
        {"layers\\.(0|1[0-9])\\.mlp.*", "layers.7.mlp.up", false},
        {"h\\.[^0-3]\\..*", "h.4.x", true},
        {"h\\.[^0-3]\\..*", "h.2.x", false},
        {"a{2,3}b", "aaab", true},
        {"a{2,3}b", "ab", false},
        {"a{2}", "aa", true},
        {"(ab)+?", "ababab", true},
        {"(ab)*", "", true},
        {"(a*)*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false},
        {"x|", "", true},
        {"a.c", "a\nc", false},
        {"[]a]", "]", true},
        {"[a-]", "-", true},
        {"\\w+\\.\\S", "b_1.-", true},
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        bool matches = !cases[i].matches;
        assert_int_equal(sw_nn_pattern_match(cases[i].pattern, cases[i].text, &matches), SW_OK);
        if (matches != cases[i].matches) {
            fail_msg("\"%s\" and \"%s\"", cases[i].pattern, cases[i].text);
        }
    }
}

static void what_is_no_pattern_is_refused(void **state)
{
    static const char *const bad[] = {"(a",
                                      "a)",
                                      "[a",
                                      "*a",
                                      "a**",
                                      "(?=a)",
                                      "(?<n>a)",
                                      "\\1",
                                      "a{3,2}",
                                      "a{2000}",
                                      "a\\",
                                      "\\b",
                                      "[b-a]",
                                      "a{,",
                                      "(((((((((a)))))))))",
                                      "((.{1000}){1000})*",
                                      "((((((a{1000}){0}){1000}){0}){1000}){0}){1000}"};
    (void)state;
    for (size_t i = 0; i < SW_LEN(bad); i++) {
        bool matches = false;
        if (sw_nn_pattern_match(bad[i], "a", &matches) != SW_E_CONFIG) {
            fail_msg("\"%s\" was taken", bad[i]);
        }
        assert_non_null(strstr(sw_error_message(), "is not a pattern"));
    }
}

/* ---- adapters ---- */

/* Two blocks of layers 4 -> 6 -> 4, an embedding before and a head after them. */
static struct sw_graph *build(const struct sw_lora *lora)
{
    const struct sw_graph_options options = {
        .dtype = SW_F32, .grad_dtype = SW_F32, .training = true, .adapter = &lora->super};
    const struct sw_linear_spec up = {.in = 4, .out = 6, .in_out = true, .std = 1};
    const struct sw_linear_spec down = {.in = 6, .out = 4, .std = 1};
    const struct sw_linear_spec head = {.in = 4, .out = 9, .no_bias = true, .std = 1};
    struct sw_graph *g = NULL;
    char name[64];
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const sw_value ids = sw_input(g, "ids", SW_I32, SW_SHAPE(5));
    sw_value h = sw_embedding(g, sw_nn_table(g, "model.embed", 9, 4, 1), ids, -1);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "model.layers.%d.mlp.up", i);
        sw_value x = sw_nn_linear(g, name, h, &up);
        snprintf(name, sizeof name, "model.layers.%d.mlp.down", i);
        h = sw_add(g, h, sw_nn_linear(g, name, x, &down));
    }
    sw_output(g, "logits", sw_nn_linear(g, "head", h, &head));
    return g;
}

static const char *adapted(const struct sw_graph *g)
{
    static char text[512];
    size_t len = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < g->adapted.n; i++) {
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s", i > 0 ? " " : "",
                                g->adapted.items[i].module);
    }
    return text;
}

static const struct sw_adapted *find(const struct sw_graph *g, const char *module)
{
    for (int32_t i = 0; i < g->adapted.n; i++) {
        if (strcmp(g->adapted.items[i].module, module) == 0) {
            return &g->adapted.items[i];
        }
    }
    return NULL;
}

static bool trained(const struct sw_graph *g, const char *param)
{
    const sw_value v = sw_graph_find(g, SW_ROLE_PARAM, param);
    assert_true(v >= 0);
    return g->values[v].needs_grad;
}

static struct sw_lora fresh(const char *const *target, int n)
{
    struct sw_lora lora;
    sw_lora_init(&lora);
    lora.r = 2;
    lora.alpha = 3;
    lora.target = (struct sw_lora_names){target, n, false};
    lora.head = "head";
    return lora;
}

static void targets_are_chosen_as_peft_does(void **state)
{
    static const char *const up[] = {"up"}, *const whole[] = {"model.layers.1.mlp.up", "down"};
    static const char *const pattern[] = {".*0\\.mlp\\..*"}, *const part[] = {"p"};
    static const double one[] = {1}, zero[] = {0};
    struct sw_lora lora = fresh(up, 1);
    struct sw_graph *g = build(&lora);
    (void)state;
    assert_string_equal(adapted(g), "model.layers.0.mlp.up model.layers.1.mlp.up");
    assert_int_equal(sw_lora_check(&lora, g), SW_OK);
    sw_graph_close(g);

    lora.layers = one;
    lora.n_layers = 1;
    g = build(&lora);
    assert_string_equal(adapted(g), "model.layers.1.mlp.up");
    sw_graph_close(g);

    lora = fresh(whole, 2); /* a complete name matches in any layer */
    lora.layers = zero;
    lora.n_layers = 1;
    g = build(&lora);
    assert_string_equal(adapted(g), "model.layers.0.mlp.down model.layers.1.mlp.up");
    sw_graph_close(g);

    lora = fresh(pattern, 1);
    lora.target.is_pattern = true;
    g = build(&lora);
    assert_string_equal(adapted(g), "model.layers.0.mlp.up model.layers.0.mlp.down");
    sw_graph_close(g);

    lora = fresh(part, 1); /* a suffix consists of complete name parts */
    g = build(&lora);
    assert_string_equal(adapted(g), "");
    assert_int_equal(sw_lora_check(&lora, g), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "target_modules \"p\" matches no layer"));
    sw_graph_close(g);

    lora = fresh(NULL, 0);
    lora.all_linear = true;
    lora.exclude = (struct sw_lora_names){up, 1, false};
    g = build(&lora);
    assert_string_equal(adapted(g), "model.layers.0.mlp.down model.layers.1.mlp.down");
    sw_graph_close(g);
}

/* Nested blocks, as in T5: layers_pattern says which number counts. */
static void lists_of_blocks_have_names(void **state)
{
    static const char *const rows[][2] = {
        {NULL, "model.layers.1.mlp.up model.layers.1.mlp.down"},
        {"layers", "model.layers.1.mlp.up model.layers.1.mlp.down"},
        {"l.*s", "model.layers.1.mlp.up model.layers.1.mlp.down"},
        {"h|layers", "model.layers.1.mlp.up model.layers.1.mlp.down"},
        {"layer", ""},
        {"model.layers", ""}};
    static const char *const both[] = {"up", "down"};
    static const double second = 1;
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        struct sw_lora lora = fresh(both, 2);
        lora.layers = &second;
        lora.n_layers = 1;
        lora.lists = (struct sw_lora_names){&rows[i][0], rows[i][0] ? 1 : 0, true};
        struct sw_graph *g = build(&lora);
        assert_int_equal(sw_graph_status(g), SW_OK);
        assert_string_equal(adapted(g), rows[i][1]);
        sw_graph_close(g);
    }
}

/* Matches by the end of its name, as an entry of modules_to_save does: DistilBERT has a
 * pre_classifier. */
static void a_head_of_classes_is_trained_whole(void **state)
{
    struct sw_lora lora = fresh(NULL, 0);
    (void)state;
    assert_false(sw_lora_saves(&lora, "head.out.weight"));
    lora.saves_head = true;
    assert_true(sw_lora_saves(&lora, "head.weight") && sw_lora_saves(&lora, "head.out.bias"));
    assert_true(sw_lora_saves(&lora, "pre_head.weight"));
    assert_false(sw_lora_saves(&lora, "heads.weight") || sw_lora_saves(&lora, "model.up.weight"));
}

/* PEFT's files write "all-linear" out, including excluded modules. */
static void what_is_excluded_may_be_a_target(void **state)
{
    static const char *const written[] = {"model.layers.0.mlp.up", "model.layers.0.mlp.down"};
    static const char *const up = "up";
    struct sw_lora lora = fresh(written, 2);
    lora.exclude = (struct sw_lora_names){&up, 1, false};
    struct sw_graph *g = build(&lora);
    (void)state;
    assert_string_equal(adapted(g), "model.layers.0.mlp.down");
    assert_int_equal(sw_lora_check(&lora, g), SW_OK);
    sw_graph_close(g);
}

static void rank_and_scaling_follow_the_patterns(void **state)
{
    static const char *const both[] = {"up", "down"};
    static const struct sw_lora_exception ranks[] = {{"0.mlp.up", 4}, {"mlp\\.up", 8}};
    static const struct sw_lora_exception alphas[] = {{"1.*down", 10}};
    struct sw_lora lora = fresh(both, 2);
    lora.rslora = true;
    lora.ranks = ranks;
    lora.n_ranks = 2;
    lora.alphas = alphas;
    lora.n_alphas = 1;
    struct sw_graph *g = build(&lora);
    (void)state;
    assert_int_equal(sw_graph_status(g), SW_OK);
    const struct sw_adapted *a = find(g, "model.layers.0.mlp.up");
    const struct sw_adapted *b = find(g, "model.layers.1.mlp.up");
    const struct sw_adapted *c = find(g, "model.layers.1.mlp.down");
    assert_int_equal(g->values[a->a].shape.dims[0], 4);
    assert_int_equal(g->values[a->a].shape.dims[1], 4); /* input width */
    assert_int_equal(g->values[a->b].shape.dims[0], 6); /* output width */
    assert_true(a->in_out && !c->in_out);
    assert_true(a->scaling == 3 / sqrt(4) && b->scaling == 3 / sqrt(8));
    assert_true(c->scaling == 10 / sqrt(2));
    assert_true(g->values[b->a].init.kind == SW_INIT_UNIFORM && g->values[b->a].init.std == 0.5);
    assert_int_equal(g->values[b->b].init.kind, SW_INIT_ZERO);
    sw_graph_close(g);
    lora.n_ranks = 1;
    lora.n_alphas = 0;
    static const struct sw_lora_exception nothing[] = {{"gate", 4}};
    lora.ranks = nothing;
    g = build(&lora);
    assert_int_equal(sw_lora_check(&lora, g), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "rank_pattern \"gate\""));
    sw_graph_close(g);
}

static void nothing_else_is_trained(void **state)
{
    static const char *const down[] = {"down"};
    static const char *const saved[] = {"ead", "embed"};
    struct sw_lora lora = fresh(down, 1);
    lora.saved = saved;
    lora.n_saved = 2;
    struct sw_graph *g = build(&lora);
    (void)state;
    assert_int_equal(sw_graph_status(g), SW_OK);
    assert_int_equal(sw_lora_check(&lora, g), SW_OK);
    assert_true(trained(g, "model.layers.0.mlp.down.lora_A.weight"));
    assert_true(trained(g, "model.layers.0.mlp.down.lora_B.weight"));
    assert_true(trained(g, "head.weight") && trained(g, "model.embed.weight"));
    assert_false(trained(g, "model.layers.0.mlp.down.weight"));
    assert_false(trained(g, "model.layers.0.mlp.down.bias"));
    assert_false(trained(g, "model.layers.1.mlp.up.weight"));
    sw_graph_close(g);
}

static void a_scaling_that_fp32_cannot_hold_is_refused(void **state)
{
    static const char *const both[] = {"up", "down"};
    static const double alphas[] = {1e300, 1e-300};
    (void)state;
    for (size_t i = 0; i < SW_LEN(alphas); i++) {
        const struct sw_lora_exception down = {"0.mlp.down", alphas[i]};
        struct sw_lora lora = fresh(both, 2);
        lora.alphas = &down;
        lora.n_alphas = 1;
        struct sw_graph *g = build(&lora);
        assert_int_equal(sw_graph_status(g), SW_E_CONFIG);
        assert_non_null(strstr(sw_error_message(), "model.layers.0.mlp.down is scaled by"));
        sw_graph_close(g);
    }
}

static void what_finds_nothing_is_named(void **state)
{
    static const char *const embed[] = {"embed"}, *const down[] = {"down"},
                             *const odd[] = {"(down"};
    struct sw_lora lora = fresh(embed, 1);
    struct sw_graph *g = build(&lora);
    (void)state;
    assert_int_equal(sw_lora_check(&lora, g), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "\"embed\" matches model.embed, which cannot have"));
    sw_graph_close(g);

    lora = fresh(down, 1);
    lora.saved = odd;
    lora.n_saved = 1;
    g = build(&lora);
    assert_int_equal(sw_lora_check(&lora, g), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "modules_to_save \"(down\" matches no module"));
    sw_graph_close(g);

    lora.saved = down; /* adapted and saved */
    g = build(&lora);
    assert_int_equal(sw_graph_status(g), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "modules_to_save"));
    sw_graph_close(g);

    lora = fresh(odd, 1);
    lora.target.is_pattern = true;
    g = build(&lora);
    assert_int_equal(sw_graph_status(g), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "\"(down\" is not a pattern"));
    sw_graph_close(g);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_pattern_matches_whole_names),
    cmocka_unit_test(what_is_no_pattern_is_refused),
    cmocka_unit_test(targets_are_chosen_as_peft_does),
    cmocka_unit_test(lists_of_blocks_have_names),
    cmocka_unit_test(what_is_excluded_may_be_a_target),
    cmocka_unit_test(a_head_of_classes_is_trained_whole),
    cmocka_unit_test(rank_and_scaling_follow_the_patterns),
    cmocka_unit_test(nothing_else_is_trained),
    cmocka_unit_test(a_scaling_that_fp32_cannot_hold_is_refused),
    cmocka_unit_test(what_finds_nothing_is_named),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
