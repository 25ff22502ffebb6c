// SPDX-License-Identifier: Apache-2.0
// Test of the runner itself. A failing assertion fails its case, runs the tear-down, and is
// counted. A skipped case is not a failure. Otherwise every other test could pass by mistake.
#include "support/test.h"

static int n_torn_down;
static int n_after;

static int tear_down(void **state)
{
    (void)state;
    n_torn_down++;
    return 0;
}

#define FAILING(name, assertion)                                                                   \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assertion;                                                                                 \
        n_after++;                                                                                 \
    }

FAILING(fails_true, assert_true(1 == 2))
FAILING(fails_false, assert_false(1 == 1))
FAILING(fails_null, assert_null("x"))
FAILING(fails_non_null, assert_non_null(NULL))
FAILING(fails_int, assert_int_equal(1, 2))
FAILING(fails_int_not, assert_int_not_equal(2, 2))
FAILING(fails_string, assert_string_equal("a", "b"))
FAILING(fails_memory, assert_memory_equal("ab", "ac", 2))
FAILING(fails_float, assert_float_equal(1.0F, 1.5F, 0.25F))
FAILING(fails_range, assert_in_range(9, 1, 8))
FAILING(fails_message, fail_msg("on %s", "purpose"))

static void passes(void **state)
{
    (void)state;
    assert_true(1 == 1);
    assert_int_equal(3, 3);
    assert_string_equal("a", "a");
    assert_memory_equal("ab", "ac", 1);
    assert_float_equal(1.0F, 1.125F, 0.25F);
    assert_in_range(8, 1, 8);
}

static void names_choose_tests(void **state)
{
    (void)state;
    static const struct CMUnitTest all[] = {
        cmocka_unit_test(passes),
        TEST_IF(1 == 2, fails_true),
        TEST_IF(1 == 1, fails_false),
    };
    const struct test_program p = {TEST_TABLE(all)};
    struct CMUnitTest chosen[3];
    assert_int_equal(test_choose(&p, NULL, chosen), 2);
    assert_string_equal(chosen[0].name, "passes");
    assert_string_equal(chosen[1].name, "fails_false");
    assert_int_equal(test_choose(&p, "fails", chosen), 1);
    assert_string_equal(chosen[0].name, "fails_false");
    assert_int_equal(test_choose(&p, "fails_true", chosen), 0);
}

static void is_skipped(void **state)
{
    (void)state;
    skip();
    n_after++;
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, NULL, tear_down)

static const struct CMUnitTest to_fail[] = {
    CASE(fails_true),  CASE(fails_false),   CASE(fails_null),    CASE(fails_non_null),
    CASE(fails_int),   CASE(fails_int_not), CASE(fails_string),  CASE(fails_memory),
    CASE(fails_float), CASE(fails_range),   CASE(fails_message),
};

static const struct CMUnitTest to_pass[] = {
    CASE(passes),
    CASE(is_skipped),
    CASE(names_choose_tests),
};

static int fails_to_set_up(void **state)
{
    (void)state;
    return 1;
}

/* Runs failing tests, so their failures are not those of the program. */
static int begin(char **argv)
{
    (void)argv;
    const int n_to_fail = (int)(sizeof(to_fail) / sizeof(to_fail[0]));
    const int n_to_pass = (int)(sizeof(to_pass) / sizeof(to_pass[0]));
    const int n_failed = cmocka_run_group_tests(to_fail, NULL, NULL);
    const int n_failed_of_good = cmocka_run_group_tests(to_pass, NULL, NULL);
    const int n_torn_down_before = n_torn_down;
    const int n_failed_to_set_up = cmocka_run_group_tests(to_pass, fails_to_set_up, NULL);
    if (n_failed != n_to_fail || n_failed_of_good != 0 || n_after != 0 ||
        n_torn_down_before != n_to_fail + n_to_pass) {
        fprintf(stderr, "%d of %d failed, %d of the good failed, %d went on, %d torn down\n",
                n_failed, n_to_fail, n_failed_of_good, n_after, n_torn_down_before);
        return 1;
    }
    if (n_failed_to_set_up == 0 || n_torn_down != n_torn_down_before) {
        fprintf(stderr, "tests ran, or passed, although the set-up of their group failed\n");
        return 1;
    }
    printf("the failures above were asked for\n");
    return 0;
}

const struct test_program sw_tests = {TEST_TABLE(to_pass), .begin = begin};
