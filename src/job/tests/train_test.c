// SPDX-License-Identifier: Apache-2.0
// Requests that a training refuses before it opens anything.
#include "spillway/data.h"
#include "spillway/train.h"
#include "support/test.h"

static void no_options_are_refused(void **state)
{
    (void)state;
    struct sw_train_result result;
    sw_dataset *dataset = NULL;
    bool started = true;
    assert_int_equal(sw_train(NULL, stdout, &started, &result), SW_E_ARG);
    assert_false(started);
    assert_int_equal(sw_dataset_open(NULL, &dataset), SW_E_ARG);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(no_options_are_refused)};

const struct test_program sw_tests = {TEST_TABLE(tests)};
