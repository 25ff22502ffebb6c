// SPDX-License-Identifier: Apache-2.0
// The table of names finds all that it was given, and nothing else.
#include "base/base.h"

#include <stdio.h>

#include "support/test.h"

enum { N = 5000 };

static void name_of(char text[32], int i)
{
    snprintf(text, 32, "h.%d.%d", i % 97, i);
}

static void every_name_is_found_with_its_value_and_no_other_is(void **state)
{
    (void)state;
    static char text[N][32];
    struct sw_names names = {0};
    assert_int_equal(sw_names_find(&names, 0, "h.0.0"), -1); /* empty */
    for (int i = 0; i < N; i++) {
        name_of(text[i], i);
        assert_true(sw_names_add(&names, i % 3, text[i], i));
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(sw_names_find(&names, i % 3, text[i]), i);
        assert_int_equal(sw_names_find(&names, (i + 1) % 3, text[i]), -1);
    }
    assert_int_equal(sw_names_find(&names, 0, "h.0"), -1);
    assert_int_equal(names.n, N);
    assert_true(names.n <= names.cap / 2);
    sw_names_close(&names);
}

static void the_first_value_of_a_name_stays(void **state)
{
    (void)state;
    struct sw_names names = {0};
    assert_true(sw_names_add(&names, 1, "wte", 7));
    assert_true(sw_names_add(&names, 1, "wte", 8));
    assert_true(sw_names_add(&names, 2, "wte", 9));
    assert_int_equal(sw_names_find(&names, 1, "wte"), 7);
    assert_int_equal(sw_names_find(&names, 2, "wte"), 9);
    assert_int_equal(names.n, 2);
    sw_names_close(&names);
}

static void a_copy_is_a_table_of_its_own(void **state)
{
    (void)state;
    struct sw_names names = {0}, copy;
    assert_true(sw_names_copy(&names, &copy));
    assert_int_equal(sw_names_find(&copy, 0, "a"), -1);
    sw_names_close(&copy);
    assert_true(sw_names_add(&names, 0, "a", 1));
    assert_true(sw_names_copy(&names, &copy));
    assert_true(sw_names_add(&copy, 0, "b", 2));
    assert_int_equal(sw_names_find(&copy, 0, "a"), 1);
    assert_int_equal(sw_names_find(&copy, 0, "b"), 2);
    assert_int_equal(sw_names_find(&names, 0, "b"), -1);
    sw_names_close(&names);
    assert_int_equal(sw_names_find(&copy, 0, "a"), 1);
    sw_names_close(&copy);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_name_is_found_with_its_value_and_no_other_is),
    cmocka_unit_test(the_first_value_of_a_name_stays),
    cmocka_unit_test(a_copy_is_a_table_of_its_own),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
