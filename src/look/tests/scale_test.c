// SPDX-License-Identifier: Apache-2.0
// Rows of a growing cluster: each is the plan for its nodes, and days and money follow from it.
#include <math.h>
#include <string.h>

#include "json/json.h"
#include "spillway/look.h"
#include "support/test.h"

enum { ROWS = 3, SEQ_LEN = 64 };

static struct sw_engine_options options_of(const char *const *sets, int n_sets)
{
    return (struct sw_engine_options){
        .config.text = "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": "
                       "\"AdamW\", \"params\": {\"lr\": 0.001}}}",
        .config.sets = sets,
        .config.n_sets = n_sets,
        .model.path = "gpt2-tiny",
        .inputs.seq_len = SEQ_LEN,
        .train.wanted = true,
        .plan.only = true};
}

static struct sw_json_doc *parse(sw_status st, char *text)
{
    struct sw_json_doc *doc = NULL;
    if (st < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(sw_json_parse("rows", text, strlen(text), SW_JSON_STRICT, &doc), SW_OK);
    sw_text_free(text);
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

static struct sw_json_doc *rows_of(const char *set, const struct sw_plan_scale *wanted,
                                   const struct sw_json *rows[ROWS])
{
    const struct sw_engine_options o = options_of(&set, 1);
    char *text = NULL;
    const sw_status st = sw_plan_scale_text(&o, wanted, &text);
    struct sw_json_doc *doc = parse(st, text);
    const struct sw_json *list = sw_json_path(sw_json_root(doc), "rows");
    int n = 0;
    for (const struct sw_json *row = list->first; row && n < ROWS; row = row->next) {
        rows[n++] = row;
    }
    assert_int_equal(n, ROWS);
    return doc;
}

static void a_row_is_the_plan_for_its_nodes(void **state)
{
    (void)state;
    const char *set = "train_micro_batch_size_per_gpu=2";
    const struct sw_plan_scale wanted = {
        .cluster = "dgx2-v100", .first = 2, .last = 4, .tokens = 1e9, .price = 3, .json = true};
    const struct sw_json *rows[ROWS];
    struct sw_json_doc *doc = rows_of(set, &wanted, rows);
    for (int i = 0; i < ROWS; i++) {
        const struct sw_engine_options o = options_of(&set, 1);
        struct sw_plan_cluster on = {.name = "dgx2-v100", .nodes = i + 2, .json = true};
        char *text = NULL;
        assert_int_equal(sw_plan_cluster_size(&on), SW_OK);
        const sw_status st = sw_plan_cluster_text(&o, &on, &text);
        struct sw_json_doc *one = parse(st, text);
        const struct sw_json *plan = sw_json_root(one);
        const double ranks = number(rows[i], "ranks"), seconds = number(rows[i], "step_seconds");
        assert_true(ranks == 16 * (i + 2) && number(rows[i], "nodes") == i + 2);
        assert_true(seconds == number(plan, "step_seconds"));
        assert_true(number(rows[i], "tflops_per_device") == number(plan, "tflops_per_device"));
        assert_true(number(rows[i], "samples") == 2 * ranks);
        assert_true(number(rows[i], "tokens") == 2 * ranks * SEQ_LEN);
        const double days = 1e9 / (2 * ranks * SEQ_LEN) * seconds / 86400;
        assert_true(fabs(number(rows[i], "days") / days - 1) < 1e-9);
        assert_true(fabs(number(rows[i], "money") / (days * 24 * ranks * 3) - 1) < 1e-9);
        const double linear = number(rows[0], "step_seconds") / seconds;
        assert_true(fabs(number(rows[i], "of_linear") / linear - 1) < 1e-9);
        sw_json_close(one);
    }
    sw_json_close(doc);
}

static void a_row_without_a_plan_has_the_reason(void **state)
{
    (void)state;
    const struct sw_plan_scale wanted = {
        .cluster = "dgx2-v100", .first = 1, .last = 3, .json = true};
    const struct sw_json *rows[ROWS];
    struct sw_json_doc *doc = rows_of("spillway.mesh.pipe=3", &wanted, rows);
    for (int i = 0; i < 2; i++) { /* 3 stages divide neither 16 nor 32 ranks */
        const struct sw_json *why = sw_json_path(rows[i], "refused");
        assert_non_null(why);
        assert_non_null(strstr(why->string, "pipe"));
    }
    assert_true(number(rows[2], "step_seconds") > 0);
    assert_true(number(rows[2], "of_linear") == 1); /* the first row that has a plan */
    sw_json_close(doc);
}

static void bad_numbers_are_refused(void **state)
{
    (void)state;
    static const struct {
        struct sw_plan_scale wanted;
        sw_status st;
        const char *message;
    } cases[] = {
        {{.cluster = NULL, .first = 1, .last = 1}, SW_E_ARG, "no name"},
        {{.cluster = "dgx2-v100", .first = 0, .last = 1}, SW_E_ARG, "1 <= first <= last"},
        {{.cluster = "dgx2-v100", .first = 2, .last = 1}, SW_E_ARG, "1 <= first <= last"},
        {{.cluster = "dgx2-v100", .first = 1, .last = 65}, SW_E_CONFIG, "wanted 65 nodes"},
        {{.cluster = "dgx2-v100", .first = 1, .last = 1, .tokens = -1}, SW_E_ARG, "0 or more"},
        {{.cluster = "dgx2-v100", .first = 1, .last = 1, .price = 1}, SW_E_ARG, "needs tokens"}};
    const char *set = "train_micro_batch_size_per_gpu=2";
    const struct sw_engine_options o = options_of(&set, 1);
    char *text = NULL;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        assert_int_equal(sw_plan_scale_text(&o, &cases[i].wanted, &text), cases[i].st);
        assert_non_null(strstr(sw_error_message(), cases[i].message));
    }
    assert_null(text);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_row_is_the_plan_for_its_nodes),
    cmocka_unit_test(a_row_without_a_plan_has_the_reason),
    cmocka_unit_test(bad_numbers_are_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
