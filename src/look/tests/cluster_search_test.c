// SPDX-License-Identifier: Apache-2.0
// A search on a cluster: the first plan has the time that is printed for it, what the configuration
// gives is kept, and all plans have its batch.
#include <math.h>
#include <string.h>

#include "json/json.h"
#include "spillway/look.h"
#include "support/test.h"

enum { MOST_SETS = 24, SAMPLES = 32 };

static struct sw_engine_options options_of(const char *const *sets, int n_sets)
{
    return (struct sw_engine_options){
        .config.text = "{\"train_batch_size\": 32, \"optimizer\": {\"type\": \"AdamW\", "
                       "\"params\": {\"lr\": 0.001}}, "
                       "\"spillway\": {\"comm\": \"host\"}}", /* no communicators */
        .config.sets = sets,
        .config.n_sets = n_sets,
        .model.path = "gpt2-tiny",
        .inputs.seq_len = 64,
        .train.wanted = true,
        .plan.only = true};
}

static char *search_for(const char *model, const char *const *sets, int n_sets, sw_status *st)
{
    struct sw_engine_options o = options_of(sets, n_sets);
    o.model.path = model;
    const struct sw_plan_search wanted = {
        .cluster = "h100-node", .nodes = 1, .ranks = 8, .tokens = 1e9, .price = 2, .json = true};
    char *text = NULL;
    *st = sw_plan_search_text(&o, &wanted, &text);
    return text;
}

static char *search(const char *const *sets, int n_sets, sw_status *st)
{
    return search_for("gpt2-tiny", sets, n_sets, st);
}

static struct sw_json_doc *parse(char *text)
{
    struct sw_json_doc *doc = NULL;
    if (!text) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(sw_json_parse("search", text, strlen(text), SW_JSON_STRICT, &doc), SW_OK);
    return doc;
}

static double number(const struct sw_json *object, const char *path)
{
    const struct sw_json *value = sw_json_path(object, path);
    if (!value) {
        fail_msg("no %s", path);
    }
    return value->number;
}

static const struct sw_json *list(struct sw_json_doc *doc, const char *path)
{
    const struct sw_json *value = sw_json_path(sw_json_root(doc), path);
    if (!value || !value->first) {
        fail_msg("no %s", path);
    }
    return value->first;
}

static void the_best_plan_has_the_time_that_is_printed(void **state)
{
    (void)state;
    sw_status st;
    const char *kept[] = {"spillway.mesh.tensor=1", "zero_optimization.stage=1"};
    char *text = search(kept, 2, &st), *again = search(kept, 2, &st);
    struct sw_json_doc *doc = parse(text);
    assert_string_equal(text, again); /* the same bytes each time */
    const struct sw_json *best = list(doc, "best");
    assert_true(number(sw_json_root(doc), "samples") == SAMPLES);
    double last = 0;
    for (const struct sw_json *one = best; one; one = one->next) {
        const char *sets[MOST_SETS];
        int n = 2;
        memcpy(sets, kept, sizeof kept);
        for (const struct sw_json *set = sw_json_get(one, "sets")->first; set; set = set->next) {
            sets[n++] = set->string;
        }
        const struct sw_engine_options o = options_of(sets, n);
        struct sw_plan_cluster on = {.name = "h100-node", .nodes = 1, .ranks = 8, .json = true};
        char *plan = NULL;
        assert_int_equal(sw_plan_cluster_text(&o, &on, &plan), SW_OK);
        struct sw_json_doc *of_plan = parse(plan);
        const double seconds = number(one, "step_seconds");
        assert_true(seconds >= last && seconds > 0);
        assert_true(number(sw_json_root(of_plan), "step_seconds") == seconds);
        const double days = 1e9 / (SAMPLES * 64) * seconds / 86400;
        assert_true(fabs(number(one, "days") / days - 1) < 1e-9);
        assert_true(fabs(number(one, "money") / (days * 24 * 8 * 2) - 1) < 1e-9);
        assert_string_equal(sw_json_path(one, "choices.stage")->string, "1");
        last = seconds;
        sw_json_close(of_plan);
        sw_text_free(plan);
    }
    sw_json_close(doc);
    sw_text_free(text);
    sw_text_free(again);
}

static void others_lose_by_time_or_bytes(void **state)
{
    (void)state;
    sw_status st;
    const char *sets[] = {"spillway.mesh.tensor=1", "spillway.device_memory=40M"};
    char *text = search(sets, 2, &st);
    struct sw_json_doc *doc = parse(text);
    bool any_bytes = false, any_time = false;
    for (const struct sw_json *f = list(doc, "lost"); f; f = f->next) {
        for (const struct sw_json *one = f->first; one; one = one->next) {
            const struct sw_json *bytes = sw_json_get(one, "missing_bytes");
            const struct sw_json *slower = sw_json_get(one, "slower");
            any_bytes |= bytes && bytes->integer > 0 && sw_json_get(one, "tier");
            any_time |= slower && sw_json_get(one, "bound");
            assert_true(!slower || slower->number >= 0);
            assert_true(bytes || slower || sw_json_get(one, "refused"));
        }
    }
    assert_true(any_bytes && any_time);
    sw_json_close(doc);
    sw_text_free(text);
}

static void a_search_without_a_plan_names_the_nearest(void **state)
{
    (void)state;
    sw_status st;
    const char *sets[] = {"spillway.mesh.tensor=1", "spillway.device_memory=64K",
                          "zero_optimization.stage=1"};
    char *text = search(sets, 3, &st);
    assert_null(text);
    assert_int_equal(st, SW_E_NOMEM);
    assert_non_null(strstr(sw_error_message(), "the nearest one lacks"));
    const char *uneven[] = {"spillway.mesh.tensor=3"}, *wide = "spillway.mesh.tensor=16";
    text = search(uneven, 1, &st);
    assert_null(text);
    assert_int_equal(st, SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "does not divide 8 ranks"));
    const struct sw_engine_options o = options_of(&wide, 1);
    const struct sw_plan_search two_nodes = {.cluster = "h100-node", .nodes = 2, .ranks = 16};
    assert_int_equal(sw_plan_search_text(&o, &two_nodes, &text), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "is 16, but a node has 8 devices"));
}

static void given_values_that_contradict_each_other_are_named(void **state)
{
    (void)state;
    sw_status st;
    const char *sets[] = {"activation_checkpointing.cpu_checkpointing=true",
                          "spillway.recompute=none"};
    assert_null(search(sets, 2, &st));
    assert_int_equal(st, SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "gives: kept activations host, recompute none;"));
}

/* A batch that only a part of the ranks divides is that of meshes with a smaller data axis. */
static void a_given_batch_needs_no_ranks(void **state)
{
    (void)state;
    sw_status st;
    const char *sets[] = {"train_batch_size=12", "zero_optimization.stage=1",
                          "spillway.recompute=none"};
    char *text = search(sets, 3, &st);
    struct sw_json_doc *doc = parse(text);
    assert_true(number(sw_json_root(doc), "samples") == 12);
    for (const struct sw_json *one = list(doc, "best"); one; one = one->next) {
        assert_non_null(sw_json_path(one, "choices.mesh"));
        assert_null(strstr(sw_json_path(one, "choices.mesh")->string, "data 8"));
    }
    sw_json_close(doc);
    sw_text_free(text);
}

static void experts_stay_divided_as_configured(void **state)
{
    (void)state;
    static const char mixtral[] =
        "{\"model_type\":\"mixtral\",\"vocab_size\":256,\"max_position_embeddings\":64,"
        "\"hidden_size\":64,\"intermediate_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_local_experts\":4,"
        "\"num_experts_per_tok\":2}";
    sw_status st;
    const char *sets[] = {"spillway.mesh.expert=4", "zero_optimization.stage=1",
                          "spillway.recompute=none", "spillway.schedule=horizontal"};
    char *text = search_for(mixtral, sets, 4, &st);
    struct sw_json_doc *doc = parse(text);
    bool cuts = false;
    for (const struct sw_json *one = list(doc, "best"); one; one = one->next) {
        const char *mesh = sw_json_path(one, "choices.mesh")->string;
        assert_non_null(strstr(mesh, "expert 4"));
        assert_non_null(strstr(sw_json_get(one, "sets")->first->string, "\"expert\":4}"));
        cuts |= strstr(mesh, "data 2") != NULL;
    }
    assert_true(cuts);
    sw_json_close(doc);
    sw_text_free(text);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_best_plan_has_the_time_that_is_printed),
    cmocka_unit_test(others_lose_by_time_or_bytes),
    cmocka_unit_test(a_search_without_a_plan_names_the_nearest),
    cmocka_unit_test(given_values_that_contradict_each_other_are_named),
    cmocka_unit_test(a_given_batch_needs_no_ranks),
    cmocka_unit_test(experts_stay_divided_as_configured),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
