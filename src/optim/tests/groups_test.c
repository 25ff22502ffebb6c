// SPDX-License-Identifier: Apache-2.0
// Tests groups of parameters: the first match wins, rates decrease from layer to layer, and errors
// name the key.
#include <math.h>

#include "optim/optim.h"
#include "support/test.h"

static const char *const names[] = {"wte.weight",      "wpe.weight",      "h.0.ln_1.weight",
                                    "h.0.attn.weight", "h.1.attn.weight", "h.1.attn.bias",
                                    "ln_f.weight",     "score.weight"};
enum { N = sizeof names / sizeof *names };

static sw_status groups_for(const char *spillway, const char *const *of, int n,
                            struct sw_update_groups **out)
{
    struct sw_config *config = NULL;
    char text[1024];
    snprintf(text, sizeof text, "{\"optimizer\": {\"type\": \"%s\"}, \"spillway\": {%s}}",
             strstr(spillway, "SGD")      ? "SGD"
             : strstr(spillway, "sparse") ? "SparseAdam"
                                          : "AdamW",
             spillway);
    assert_int_equal(sw_config_parse("ds.json", text, strlen(text), NULL, 0, &config), SW_OK);
    sw_status st = sw_update_groups_open(config, out);
    if (st >= 0 && *out) {
        st = sw_update_groups_bind(*out, of, n);
        if (st < 0) {
            sw_update_groups_close(*out);
        }
    }
    sw_config_close(config); /* patterns are not needed any more */
    return st;
}

/* Opens groups and binds them to the names above. */
static sw_status groups_of(const char *spillway, struct sw_update_groups **out)
{
    return groups_for(spillway, names, N, out);
}

static struct sw_update_attrs of(const struct sw_update_groups *groups, const char *name)
{
    struct sw_update_attrs attrs = {.weight_decay = 0.5};
    sw_update_groups_apply(groups, name, &attrs);
    return attrs;
}

static void the_first_match_decides(void **state)
{
    struct sw_update_groups *groups = NULL;
    (void)state;
    assert_int_equal(groups_of("\"groups\": [{\"match\": [\"*.bias\", \"*ln_*\"], "
                               "\"weight_decay\": 0}, {\"match\": \"h.*\", \"lr_scale\": 0.25, "
                               "\"betas\": [0.8, 0.9]}]",
                               &groups),
                     SW_OK);
    assert_true(of(groups, "h.0.ln_1.weight").weight_decay == 0);
    assert_false(of(groups, "h.1.attn.bias").is_scaled);
    const struct sw_update_attrs a = of(groups, "h.0.attn.weight");
    assert_true(a.is_scaled && a.lr_scale == 0.25 && a.weight_decay == 0.5);
    assert_true(a.has_betas && a.beta1 == 0.8 && a.beta2 == 0.9);
    assert_false(of(groups, "wte.weight").is_scaled || of(groups, "wte.weight").has_betas);
    sw_update_groups_close(groups);
    groups = NULL;
    assert_int_equal(groups_of("", &groups), SW_OK);
    assert_null(groups);
}

static void rates_fall_from_layer_to_layer(void **state)
{
    static const double wanted[N] = {0.125, 0.125, 0.25, 0.25, 0.5, 0.05, 1, 1};
    struct sw_update_groups *groups = NULL;
    (void)state;
    assert_int_equal(groups_of("\"layer_decay\": 0.5, \"groups\": [{\"match\": \"*.bias\", "
                               "\"lr_scale\": 0.1}]",
                               &groups),
                     SW_OK);
    for (int i = 0; i < N; i++) {
        const struct sw_update_attrs a = of(groups, names[i]);
        assert_true((a.is_scaled ? a.lr_scale : 1) == wanted[i]);
    }
    sw_update_groups_close(groups);
}

/* Each stack counts from its own end, however many layers the other one has. A parameter that
 * precedes both counts from the deeper stack. Names are in forward order. */
static void an_encoder_and_a_decoder_count_by_themselves(void **state)
{
    static const struct {
        const char *name;
        double scale;
    } rows[] = {{"model.shared.weight", 0.0625},
                {"model.encoder.embed_positions.weight", 0.0625},
                {"model.encoder.layers.0.fc1.weight", 0.125},
                {"model.encoder.layers.1.fc1.weight", 0.25},
                {"model.encoder.layers.2.fc1.weight", 0.5},
                {"model.encoder.layer_norm.weight", 1},
                {"model.decoder.embed_positions.weight", 0.25},
                {"model.decoder.layernorm_embedding.weight", 0.25},
                {"model.decoder.layers.0.fc1.weight", 0.5},
                {"model.decoder.layer_norm.weight", 1},
                {"lm_head.weight", 1}};
    const char *bart[SW_LEN(rows)];
    struct sw_update_groups *groups = NULL;
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        bart[i] = rows[i].name;
    }
    assert_int_equal(groups_for("\"layer_decay\": 0.5", bart, SW_LEN(rows), &groups), SW_OK);
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        const struct sw_update_attrs a = of(groups, rows[i].name);
        if ((a.is_scaled ? a.lr_scale : 1) != rows[i].scale) {
            fail_msg("%s: scaled by %g, wanted %g", rows[i].name, a.is_scaled ? a.lr_scale : 1,
                     rows[i].scale);
        }
    }
    sw_update_groups_close(groups);
    static const char *const flat[] = {"conv1.weight", "fc1.weight"};
    assert_int_equal(groups_for("\"layer_decay\": 0.5", flat, 2, &groups), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "spillway.layer_decay: no parameter name"));
}

static void what_is_wrong_is_named(void **state)
{
    static const char *const cases[][2] = {
        {"\"groups\": [{\"match\": \"h.*\"}, {\"match\": \"decoder.*\", \"lr_scale\": 1}]",
         "spillway.groups[1].match: no parameter"},
        {"\"groups\": [{\"lr_scale\": 1}]", "spillway.groups[0] has no \"match\""},
        {"\"groups\": [{\"match\": \"*\", \"lr\": 1}]", "unknown key \"lr\""},
        {"\"groups\": [{\"match\": \"*\", \"lr_scale\": -1}]", "spillway.groups[0].lr_scale"},
        {"\"groups\": [{\"match\": \"*\", \"betas\": [0.9, 1]}]", "spillway.groups[0].betas"},
        {"\"groups\": [{\"match\": [], \"betas\": [0.9, 0.9]}]", "spillway.groups[0].match"},
        {"\"groups\": [{\"match\": [\"*\", \"sparse\"], \"weight_decay\": 1}]",
         "spillway.groups[0].weight_decay: SparseAdam"},
        {"\"groups\": [{\"match\": \"*\", \"betas\": [0.9, 0.9]}], \"trace\": \"SGD\"",
         "the optimizer has no betas"},
        {"\"groups\": {\"match\": \"*\"}", "wanted a list"},
        {"\"groups\": [3]", "wanted an object"}};
    (void)state;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct sw_update_groups *groups = NULL;
        assert_int_equal(groups_of(cases[i][0], &groups), SW_E_CONFIG);
        if (!strstr(sw_error_message(), cases[i][1])) {
            fail_msg("\"%s\" lacks %s", sw_error_message(), cases[i][1]);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_first_match_decides),
    cmocka_unit_test(rates_fall_from_layer_to_layer),
    cmocka_unit_test(an_encoder_and_a_decoder_count_by_themselves),
    cmocka_unit_test(what_is_wrong_is_named),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
