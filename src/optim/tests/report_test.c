// SPDX-License-Identifier: Apache-2.0
// Tests the public texts about a configuration: reports for people and machines, and refusals.
#include "json/json.h"
#include "optim/optim.h"
#include "spillway/config.h"

#include <unistd.h>

#include "support/test.h"

static char path[] = "/tmp/spillway-report-XXXXXX";

static int write_file(void **state)
{
    (void)state;
    static const char text[] =
        "{\"train_batch_size\": 8,\n\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": "
        "0.5}},\n"
        "\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": [0.1, 0.2],\n"
        "\"cycle_max_lr\": 0.5, \"cycle_first_step_size\": 4}},\n"
        "\"zero_optimization\": {\"stage\": 3, \"zero_quantized_weights\": true}}";
    const int fd = mkstemp(path);
    if (fd < 0 || write(fd, text, sizeof text - 1) != (ssize_t)(sizeof text - 1)) {
        return -1;
    }
    return close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static void people_get_values_and_sources(void **state)
{
    (void)state;
    const char *const sets[] = {"gradient_clipping=0.5"};
    const struct sw_config_options options = {.path = path, .sets = sets, .n_sets = 1, .ranks = 2};
    char *text, *notes;
    assert_int_equal(sw_config_report(&options, &text, &notes), SW_OK);
    assert_non_null(strstr(text, "--set gradient_clipping=0.5"));
    assert_non_null(strstr(text, "derived"));
    assert_non_null(strstr(notes, "zero_optimization.zero_quantized_weights"));
    sw_text_free(text);
    sw_text_free(notes);
}

static void machines_get_rates_of_each_group(void **state)
{
    (void)state;
    const struct sw_config_options options = {
        .path = path, .json = true, .schedule = true, .n_steps = 3};
    char *text, *notes;
    assert_int_equal(sw_config_report(&options, &text, &notes), SW_OK);
    struct sw_json_doc *doc;
    assert_int_equal(sw_json_parse("report", text, strlen(text), SW_JSON_STRICT, &doc), SW_OK);
    const struct sw_json *root = sw_json_root(doc);
    const struct sw_json *steps = sw_json_get(root, "schedule");
    assert_int_equal(steps->n_children, 3);
    const struct sw_json *lr = sw_json_get(steps->first, "lr");
    assert_int_equal(lr->n_children, 2);
    assert_true(lr->first->number == 0.1 && lr->last->number == 0.2);
    assert_int_equal(sw_json_path(root, "config.train_micro_batch_size_per_gpu")->integer, 8);
    assert_int_equal(sw_json_get(root, "not_built")->n_children, 1);
    sw_json_close(doc);
    sw_text_free(text);
    sw_text_free(notes);
}

static void refusals_leave_nothing_behind(void **state)
{
    (void)state;
    struct sw_config_options options = {.path = path, .ranks = 3};
    struct sw_alloc_stats before, after;
    char *text = NULL, *notes = NULL;
    sw_alloc_get_stats(&before);
    assert_int_equal(sw_config_report(&options, &text, &notes), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "train_batch_size"));
    options.path = "/no/such/file.json";
    assert_int_equal(sw_config_report(&options, &text, &notes), SW_E_IO);
    assert_int_equal(sw_config_explain_text("train_batch_sice", &text), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "\"train_batch_size\""));
    assert_null(text);
    assert_null(notes);
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks, before.live_blocks);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(people_get_values_and_sources),
    cmocka_unit_test(machines_get_rates_of_each_group),
    cmocka_unit_test(refusals_leave_nothing_behind),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = write_file,
                                      .teardown = remove_file};
