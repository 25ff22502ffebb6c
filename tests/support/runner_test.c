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

static void is_skipped(void **state)
{
    (void)state;
    skip();
    n_after++;
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, NULL, tear_down)

int main(void)
{
    const struct CMUnitTest to_fail[] = {
        CASE(fails_true),  CASE(fails_false),   CASE(fails_null),    CASE(fails_non_null),
        CASE(fails_int),   CASE(fails_int_not), CASE(fails_string),  CASE(fails_memory),
        CASE(fails_float), CASE(fails_range),   CASE(fails_message),
    };
    const struct CMUnitTest to_pass[] = {CASE(passes), CASE(is_skipped)};
    const int n_to_fail = (int)(sizeof(to_fail) / sizeof(to_fail[0]));
    const int n_failed = cmocka_run_group_tests(to_fail, NULL, NULL);
    const int n_failed_of_good = cmocka_run_group_tests(to_pass, NULL, NULL);
    if (n_failed != n_to_fail || n_failed_of_good != 0 || n_after != 0 ||
        n_torn_down != n_to_fail + 2) {
        fprintf(stderr, "%d of %d failed, %d of the good failed, %d went on, %d torn down\n",
                n_failed, n_to_fail, n_failed_of_good, n_after, n_torn_down);
        return 1;
    }
    printf("the failures above were asked for\n");
    return 0;
}
