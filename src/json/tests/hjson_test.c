// SPDX-License-Identifier: Apache-2.0
// The tolerant dialect against recorded results of hjson: value and type of every leaf, or an
// error.

#include "support/fixtures.h"
#include "support/test.h"

#include "json/json.h"

static char folder[TEST_PATH_CAP];

static const char *python_type(const struct sw_json *value)
{
    switch (value->type) {
    case SW_JSON_NULL:
        return "NoneType";
    case SW_JSON_BOOL:
        return "bool";
    case SW_JSON_INT:
        return "int";
    case SW_JSON_FLOAT:
        return strpbrk(value->raw, ".eE") ? "float" : "int"; /* integral, but beyond int64_t */
    default:
        return "str";
    }
}

/* Compares the trees got and wanted; types has each leaf's Python type in its place. */
static void compare(const char *text, const struct sw_json *got, const struct sw_json *wanted,
                    const struct sw_json *types)
{
    const bool container = wanted->type == SW_JSON_ARRAY || wanted->type == SW_JSON_OBJECT;
    if (!container) {
        if (types->type != SW_JSON_STRING || strcmp(python_type(got), types->string) != 0) {
            fail_msg("%s: type %s, expected %s", text, python_type(got), types->string);
        }
        if (wanted->type == SW_JSON_STRING) {
            assert_int_equal(got->string_len, wanted->string_len);
            assert_memory_equal(got->string, wanted->string, wanted->string_len);
        } else {
            assert_true(got->number == wanted->number);
            assert_int_equal(got->boolean, wanted->boolean);
        }
        return;
    }
    if (got->type != wanted->type || got->n_children != wanted->n_children) {
        fail_msg("%s: %s of %d, expected %s of %d", text, sw_json_type_name(got->type),
                 (int)got->n_children, sw_json_type_name(wanted->type), (int)wanted->n_children);
    }
    const struct sw_json *type = types->first;
    const struct sw_json *w = wanted->first;
    for (const struct sw_json *g = got->first; g; g = g->next, w = w->next, type = type->next) {
        if (w->key) {
            assert_string_equal(g->key, w->key);
        }
        compare(text, g, w, type);
    }
}

static void test_recorded_readings(void **state)
{
    (void)state;
    char path[TEST_PATH_CAP];
    test_join(path, folder, "hjson.json");
    struct sw_json_doc *cases = NULL;
    if (sw_json_read(path, SW_JSON_STRICT, &cases) < 0) {
        fail_msg("%s", sw_error_message());
    }
    int n = 0;
    const struct sw_json *list = sw_json_get(sw_json_root(cases), "cases");
    for (const struct sw_json *c = list->first; c; c = c->next, n++) {
        const struct sw_json *text = sw_json_get(c, "text");
        struct sw_json_doc *doc = NULL;
        const sw_status st =
            sw_json_parse("text", text->string, text->string_len, SW_JSON_TOLERANT, &doc);
        if (sw_json_get(c, "error")) {
            if (st != SW_E_FORMAT) {
                fail_msg("%s: accepted, expected an error", text->string);
            }
            continue;
        }
        if (st < 0) {
            fail_msg("%s: %s", text->string, sw_error_message());
        }
        compare(text->string, sw_json_root(doc), sw_json_get(c, "value"), sw_json_get(c, "types"));
        sw_json_close(doc);
    }
    sw_json_close(cases);
    assert_true(n > 80);
}

/* Configuration texts: those with a syntax error or a duplicate key fail, all others parse. */
static void test_configuration_texts(void **state)
{
    (void)state;
    char path[TEST_PATH_CAP];
    test_join(path, folder, "texts.json");
    struct sw_json_doc *cases = NULL;
    assert_int_equal(sw_json_read(path, SW_JSON_STRICT, &cases), SW_OK);
    const struct sw_json *list = sw_json_get(sw_json_root(cases), "cases");
    for (const struct sw_json *c = list->first; c; c = c->next) {
        const struct sw_json *text = sw_json_get(c, "text");
        const struct sw_json *error = sw_json_get(c, "error");
        const bool bad =
            error && error->type == SW_JSON_STRING &&
            (strstr(error->string, "syntax error") || strstr(error->string, "duplicate key"));
        struct sw_json_doc *doc = NULL;
        const sw_status st =
            sw_json_parse("text", text->string, text->string_len, SW_JSON_TOLERANT, &doc);
        if (bad != (st < 0)) {
            fail_msg("%s: %s", sw_json_get(c, "name")->string,
                     st < 0 ? sw_error_message() : "read");
        }
        if (st == SW_OK) {
            sw_json_close(doc);
        }
    }
    sw_json_close(cases);
}

static int begin(char **argv)
{
    (void)argv;
    return test_fixture_folder("config", folder) ? 0 : TEST_EXIT_SKIPPED;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_recorded_readings),
    cmocka_unit_test(test_configuration_texts),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .begin = begin};
