// SPDX-License-Identifier: Apache-2.0
// The most layers that fit: so many fit, one more does not, and less memory never fits more.
#include <stdio.h>
#include <string.h>

#include "json/json.h"
#include "spillway/look.h"
#include "support/test.h"

static const char *const MEMORY[] = {"spillway.device_memory=40M", "spillway.device_memory=48M",
                                     "spillway.device_memory=64M"};

static struct sw_engine_options options_of(const char *const *set, const char *model)
{
    return (struct sw_engine_options){
        .config.text = "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": "
                       "\"AdamW\", \"params\": {\"lr\": 0.001}}, "
                       "\"spillway\": {\"comm\": \"host\"}}", /* no communicators */
        .config.sets = set,
        .config.n_sets = 1,
        .model.path = model,
        .inputs.seq_len = 64,
        .train.wanted = true,
        .plan.only = true};
}

static sw_status largest(const char *const *set, const char *model, struct sw_json_doc **out)
{
    const struct sw_engine_options o = options_of(set, model);
    const struct sw_plan_cluster on = {.name = "h100-node", .nodes = 1, .ranks = 2, .json = true};
    char *text = NULL;
    const sw_status st = sw_plan_largest_text(&o, &on, &text);
    if (st >= 0) {
        assert_int_equal(sw_json_parse("largest", text, strlen(text), SW_JSON_STRICT, out), SW_OK);
    }
    sw_text_free(text);
    return st;
}

static int64_t integer(struct sw_json_doc *doc, const char *path)
{
    const struct sw_json *value = sw_json_path(sw_json_root(doc), path);
    if (!value) {
        fail_msg("no %s", path);
    }
    return value->integer;
}

/* Two stages hold the model once. */
static void stages_count_each_parameter_once(void **state)
{
    (void)state;
    static const char *const pipe = "spillway.mesh.pipe=2";
    const char *sets[] = {pipe, MEMORY[0]};
    struct sw_engine_options o = options_of(sets, "gpt2-tiny");
    const struct sw_plan_cluster on = {.name = "h100-node", .nodes = 1, .ranks = 2, .json = true};
    struct sw_json_doc *doc = NULL;
    char *text = NULL;
    o.config.n_sets = 2;
    assert_int_equal(sw_plan_largest_text(&o, &on, &text), SW_OK);
    assert_int_equal(sw_json_parse("largest", text, strlen(text), SW_JSON_STRICT, &doc), SW_OK);
    const int64_t h = 128, rows = 256 + 64; /* of tokens and positions */
    assert_int_equal(integer(doc, "parameters"),
                     integer(doc, "layers") * (12 * h * h + 13 * h) + (rows + 2) * h);
    sw_json_close(doc);
    sw_text_free(text);
}

/* Whether so many layers fit, by a plan of their own. */
static bool fits(const char *const *set, int64_t layers)
{
    char model[256];
    snprintf(model, sizeof model,
             "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":%lld,"
             "\"n_embd\":64,\"n_head\":4,\"n_positions\":64,\"vocab_size\":256}",
             (long long)layers);
    const struct sw_engine_options o = options_of(set, model);
    const struct sw_plan_cluster on = {.name = "h100-node", .nodes = 1, .ranks = 2, .json = true};
    char *text = NULL;
    const sw_status st = sw_plan_cluster_text(&o, &on, &text);
    sw_text_free(text);
    return st >= 0;
}

static void so_many_layers_fit_and_one_more_does_not(void **state)
{
    (void)state;
    static const char model[] =
        "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":3,"
        "\"n_embd\":64,\"n_head\":4,\"n_positions\":64,\"vocab_size\":256}";
    int64_t last = 0;
    for (size_t i = 0; i < SW_LEN(MEMORY); i++) {
        struct sw_json_doc *doc = NULL;
        if (largest(&MEMORY[i], model, &doc) < 0) {
            fail_msg("%s: %s", MEMORY[i], sw_error_message());
        }
        const int64_t layers = integer(doc, "layers");
        assert_true(layers > last);
        assert_int_equal(integer(doc, "next.layers"), layers + 1);
        assert_true(integer(doc, "next.missing_bytes") > 0);
        assert_true(integer(doc, "tiers.device.bytes") <= integer(doc, "tiers.device.there_are"));
        /* per layer 12 h^2 + 13 h; embeddings of tokens and positions, and the last norm */
        assert_int_equal(integer(doc, "parameters"),
                         layers * (12 * 64 * 64 + 13 * 64) + (256 + 64 + 2) * 64);
        assert_true(fits(&MEMORY[i], layers));
        assert_false(fits(&MEMORY[i], layers + 1));
        last = layers;
        sw_json_close(doc);
    }
}

/* Six layers have no room, and three are fewer than the four stages: four or five fit. */
static void fewer_layers_than_stages_end_no_search(void **state)
{
    (void)state;
    static const char model[] =
        "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":6,"
        "\"n_embd\":64,\"n_head\":4,\"n_positions\":64,\"vocab_size\":256}";
    const struct sw_plan_cluster on = {.name = "h100-node", .nodes = 1, .ranks = 4};
    bool is_between = false, is_none = false;
    for (int kib = 33 << 10; kib < 35 << 10; kib += 256) {
        char memory[64], *text = NULL;
        snprintf(memory, sizeof memory, "spillway.device_memory=%dK", kib);
        const char *sets[] = {"spillway.mesh.pipe=4", memory};
        struct sw_engine_options o = options_of(sets, model);
        o.config.n_sets = 2;
        const sw_status st = sw_plan_largest_text(&o, &on, &text);
        is_between |= st >= 0 && (strstr(text, ": 4 layers fit") || strstr(text, ": 5 layers fit"));
        is_none |= st == SW_E_NOMEM && strstr(sw_error_message(), "not even 4 layers fit") &&
                   strstr(sw_error_message(), "fewer are refused: ");
        if (st < 0 && st != SW_E_NOMEM) {
            fail_msg("%s: %s", memory, sw_error_message());
        }
        sw_text_free(text);
    }
    assert_true(is_between && is_none);
}

/* A file may name the layers twice, or only under transformers' name. */
static void either_name_of_the_layers_counts(void **state)
{
    (void)state;
    static const char *const named[] = {"\"n_layer\":2", "\"num_hidden_layers\":2",
                                        "\"n_layer\":2,\"num_hidden_layers\":2"};
    int64_t found[SW_LEN(named)];
    for (size_t i = 0; i < SW_LEN(named); i++) {
        struct sw_json_doc *doc = NULL;
        char model[256];
        snprintf(model, sizeof model,
                 "{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_head\":4,\"vocab_size\":256,"
                 "\"n_positions\":64,%s}",
                 named[i]);
        if (largest(&MEMORY[0], model, &doc) < 0) {
            fail_msg("%s: %s", model, sw_error_message());
        }
        found[i] = integer(doc, "layers");
        sw_json_close(doc);
        assert_true(found[i] > 2);
        assert_int_equal(found[i], found[0]);
    }
}

/* Lists of one item a layer grow and shrink with the layers. */
static void lists_of_layers_follow(void **state)
{
    (void)state;
    static const int layers[] = {2, 64};
    int64_t found[2];
    for (int i = 0; i < 2; i++) {
        struct sw_json_doc *doc = NULL;
        struct sw_str model = {0};
        sw_str_printf(&model,
                      "{\"model_type\":\"smollm3\",\"architectures\":[\"SmolLM3ForCausalLM\"],"
                      "\"hidden_size\":64,\"intermediate_size\":128,\"num_hidden_layers\":%d,"
                      "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":256,"
                      "\"max_position_embeddings\":64",
                      layers[i]);
        for (int k = 0; k < layers[i]; k++) {
            sw_str_printf(&model, "%s\"full_attention\"", k > 0 ? "," : ",\"layer_types\":[");
        }
        for (int k = 0; k < layers[i]; k++) {
            sw_str_printf(&model, "%s%d", k > 0 ? "," : "],\"no_rope_layers\":[", k % 2);
        }
        sw_str_puts(&model, "]}");
        if (largest(&MEMORY[0], sw_str_text(&model), &doc) < 0) {
            fail_msg("%d layers: %s", layers[i], sw_error_message());
        }
        found[i] = integer(doc, "layers");
        sw_json_close(doc);
        sw_str_fini(&model);
    }
    assert_true(found[0] > 2 && found[0] < 64);
    assert_int_equal(found[0], found[1]);
}

static void what_has_no_plan_is_refused(void **state)
{
    (void)state;
    static const char *const small = "spillway.device_memory=1M";
    struct sw_json_doc *doc = NULL;
    assert_int_equal(largest(&small, "gpt2-tiny", &doc), SW_E_NOMEM);
    assert_non_null(strstr(sw_error_message(), "not even 1 layer fits"));
    assert_int_equal(largest(&MEMORY[0], "cifar-net", &doc), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "no number of layers"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(so_many_layers_fit_and_one_more_does_not),
    cmocka_unit_test(stages_count_each_parameter_once),
    cmocka_unit_test(fewer_layers_than_stages_end_no_search),
    cmocka_unit_test(either_name_of_the_layers_counts),
    cmocka_unit_test(lists_of_layers_follow),
    cmocka_unit_test(what_has_no_plan_is_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
