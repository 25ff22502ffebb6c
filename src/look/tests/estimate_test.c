// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's memory estimates: every recorded row to the byte, and the counts taken from a model.
#include "engine/engine.h"
#include "show/show.h"
#include "spillway/look.h"
#include "support/fixtures.h"
#include "support/test.h"

static char folder[TEST_PATH_CAP];

static int64_t number(const struct sw_json_doc *doc, const struct sw_json *row, const char *key)
{
    int64_t n = 0;
    assert_int_equal(sw_json_get_i64(doc, row, key, 0, &n), SW_OK);
    return n;
}

static bool flag(const struct sw_json_doc *doc, const struct sw_json *row, const char *key)
{
    bool on = false;
    assert_int_equal(sw_json_get_bool(doc, row, key, false, &on), SW_OK);
    return on;
}

static void check_row(const struct sw_json_doc *doc, const struct sw_json *row)
{
    struct sw_estimate_case c = {
        .stage = (int)number(doc, row, "stage"),
        .parameters = number(doc, row, "parameters"),
        .largest_layer = number(doc, row, "largest_layer_parameters"),
        .ranks_per_node = number(doc, row, "gpus_per_node"),
        .nodes = number(doc, row, "nodes"),
        .offload_optimizer = flag(doc, row, "offload_optimizer"),
        .offload_param = flag(doc, row, "offload_param"),
        .zero_init = flag(doc, row, "zero_init"),
    };
    struct sw_estimate e;
    assert_int_equal(sw_json_get_f64(doc, row, "additional_buffer_factor", 0, &c.buffer_factor),
                     SW_OK);
    assert_int_equal(sw_estimate(&c, &e), SW_OK);
    assert_true(e.host_bytes_per_node == number(doc, row, "cpu_bytes_per_node"));
    assert_true(e.device_bytes == number(doc, row, "gpu_bytes"));
    assert_true(e.layer_bytes == number(doc, row, "largest_layer_bytes"));
}

static void every_recorded_row_to_the_byte(void **state)
{
    (void)state;
    char path[TEST_PATH_CAP];
    struct sw_json_doc *doc;
    int n = 0;
    if (!folder[0]) {
        skip();
    }
    test_join(path, folder, "estimates.json");
    assert_int_equal(sw_json_read(path, SW_JSON_STRICT, &doc), SW_OK);
    const struct sw_json *cases = sw_json_get(sw_json_root(doc), "cases");
    assert_non_null(cases);
    for (const struct sw_json *row = cases->first; row; row = row->next) {
        check_row(doc, row);
        n++;
    }
    assert_true(n > 0);
    print_message("%d rows\n", n);
    sw_json_close(doc);
}

/* The rows of the text are those of the function. */
static void a_model_gives_the_counts(void **state)
{
    (void)state;
    struct sw_estimate_options o = {
        .model = "gpt2", .ranks_per_node = 8, .nodes = 1, .buffer_factor = 1.5, .json = true};
    char *text = NULL;
    struct sw_json_doc *doc;
    assert_int_equal(sw_estimate_text(&o, &text), SW_OK);
    assert_int_equal(sw_json_parse("text", text, strlen(text), SW_JSON_STRICT, &doc), SW_OK);
    assert_true(number(doc, sw_json_root(doc), "parameters") == 124439808);
    assert_true(number(doc, sw_json_root(doc), "largest_layer_parameters") == 50257 * 768);
    const struct sw_json *row = sw_json_get(sw_json_root(doc), "cases")->first;
    int n = 0;
    for (; row; row = row->next) {
        struct sw_estimate e;
        const struct sw_estimate_case c = {.stage = (int)number(doc, row, "stage"),
                                           .parameters = 124439808,
                                           .largest_layer = 50257 * 768,
                                           .ranks_per_node = 8,
                                           .nodes = 1,
                                           .buffer_factor = 1.5,
                                           .offload_optimizer = flag(doc, row, "offload_optimizer"),
                                           .offload_param = flag(doc, row, "offload_param"),
                                           .zero_init = flag(doc, row, "zero_init")};
        assert_int_equal(sw_estimate(&c, &e), SW_OK);
        assert_true(e.host_bytes_per_node == number(doc, row, "cpu_bytes_per_node"));
        assert_true(e.device_bytes == number(doc, row, "gpu_bytes"));
        n++;
    }
    assert_int_equal(n, 8);
    sw_json_close(doc);
    sw_text_free(text);
    o.json = false;
    assert_int_equal(sw_estimate_text(&o, &text), SW_OK);
    assert_non_null(strstr(text, "528869184")); /* stage 2, nothing offloaded */
    sw_text_free(text);
}

static void two_numbers_do_and_nonsense_is_refused(void **state)
{
    (void)state;
    struct sw_estimate_options o = {
        .parameters = 1000, .ranks_per_node = 1, .nodes = 1, .buffer_factor = 1};
    char *text = NULL;
    assert_int_equal(sw_estimate_text(&o, &text), SW_OK);
    assert_non_null(strstr(text, "20000")); /* 2 + 18 bytes each */
    assert_null(strstr(text, "\n3 "));      /* without a layer there is no stage 3 */
    sw_text_free(text);
    o.largest_layer = 1001;
    assert_int_equal(sw_estimate_text(&o, &text), SW_E_ARG);
    o.largest_layer = 10;
    o.nodes = 0;
    assert_int_equal(sw_estimate_text(&o, &text), SW_E_ARG);
    o.nodes = 1;
    o.parameters = INT64_MAX;
    assert_int_equal(sw_estimate_text(&o, &text), SW_E_ARG);
    o.parameters = 1000;
    o.buffer_factor = NAN;
    assert_int_equal(sw_estimate_text(&o, &text), SW_E_ARG);
}

static int begin(char **argv)
{
    (void)argv;
    if (!test_fixture_folder("zero_estimate", folder)) {
        folder[0] = 0; /* our own rows are tested without the recording */
    }
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_recorded_row_to_the_byte),
    cmocka_unit_test(a_model_gives_the_counts),
    cmocka_unit_test(two_numbers_do_and_nonsense_is_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .begin = begin};
