// SPDX-License-Identifier: Apache-2.0
// The test vocabulary: cmocka where it was found, else the same subset by runner.c, so that the
// tests also run on a machine with nothing but a C compiler. Assertions belong to the thread that
// runs the test function. A test file has no main: it defines sw_tests, which main.c runs.
#pragma once

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEST_EXIT_SKIPPED 77

/* With AddressSanitizer or ThreadSanitizer, which are slow, and whose memory is not the
 * program's. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif

#if SW_HAVE_CMOCKA

#include <cmocka.h>

#define test_run_group _cmocka_run_group_tests

#else

typedef void (*test_case_fn)(void **state);
typedef int (*test_fixture_fn)(void **state);

struct CMUnitTest {
    const char *name;
    test_case_fn test_func;
    test_fixture_fn setup_func, teardown_func;
    void *initial_state;
};

#define cmocka_unit_test(f)                                                                        \
    {                                                                                              \
#f, f, NULL, NULL, NULL                                                                    \
    }
#define cmocka_unit_test_setup_teardown(f, setup, teardown)                                        \
    {                                                                                              \
#f, f, setup, teardown, NULL                                                               \
    }
#define cmocka_unit_test_prestate(f, state)                                                        \
    {                                                                                              \
#f, f, NULL, NULL, state                                                                   \
    }
#define cmocka_unit_test_prestate_setup_teardown(f, setup, teardown, state)                        \
    {                                                                                              \
#f, f, setup, teardown, state                                                              \
    }
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    test_run_group(#tests, (tests), sizeof(tests) / sizeof((tests)[0]), (setup), (teardown))
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                  \
    test_run_group((name), (tests), sizeof(tests) / sizeof((tests)[0]), (setup), (teardown))

int test_run_group(const char *name, const struct CMUnitTest *tests, size_t n_tests,
                   test_fixture_fn setup, test_fixture_fn teardown);
_Noreturn void test_fail_at(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void test_skip_at(const char *file, int line);
void print_message(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void print_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The comparisons behind the macros: each argument is evaluated once. */
void test_check_int(const char *file, int line, const char *text_a, const char *text_b, intmax_t a,
                    intmax_t b, bool want_equal);
void test_check_ptr(const char *file, int line, const char *text_a, const char *text_b,
                    const void *a, const void *b, bool want_equal);
void test_check_string(const char *file, int line, const char *a, const char *b, bool want_equal);
void test_check_memory(const char *file, int line, const void *a, const void *b, size_t bytes,
                       bool want_equal);
void test_check_float(const char *file, int line, double a, double b, double epsilon,
                      bool want_equal);
void test_check_range(const char *file, int line, uintmax_t value, uintmax_t low, uintmax_t high,
                      bool want_inside);

#define fail() test_fail_at(__FILE__, __LINE__, "fail()")
#define fail_msg(...) test_fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define skip() test_skip_at(__FILE__, __LINE__)

#define assert_true(c) ((c) ? (void)0 : test_fail_at(__FILE__, __LINE__, "%s is false", #c))
#define assert_false(c) ((c) ? test_fail_at(__FILE__, __LINE__, "%s is true", #c) : (void)0)
#define assert_null(p)                                                                             \
    ((p) == NULL ? (void)0 : test_fail_at(__FILE__, __LINE__, "%s is not NULL", #p))
#define assert_non_null(p)                                                                         \
    ((p) != NULL ? (void)0 : test_fail_at(__FILE__, __LINE__, "%s is NULL", #p))
#define assert_int_equal(a, b)                                                                     \
    test_check_int(__FILE__, __LINE__, #a, #b, (intmax_t)(a), (intmax_t)(b), true)
#define assert_int_not_equal(a, b)                                                                 \
    test_check_int(__FILE__, __LINE__, #a, #b, (intmax_t)(a), (intmax_t)(b), false)
#define assert_ptr_equal(a, b) test_check_ptr(__FILE__, __LINE__, #a, #b, (a), (b), true)
#define assert_ptr_not_equal(a, b) test_check_ptr(__FILE__, __LINE__, #a, #b, (a), (b), false)
#define assert_string_equal(a, b) test_check_string(__FILE__, __LINE__, (a), (b), true)
#define assert_string_not_equal(a, b) test_check_string(__FILE__, __LINE__, (a), (b), false)
#define assert_memory_equal(a, b, n) test_check_memory(__FILE__, __LINE__, (a), (b), (n), true)
#define assert_memory_not_equal(a, b, n) test_check_memory(__FILE__, __LINE__, (a), (b), (n), false)
#define assert_float_equal(a, b, eps)                                                              \
    test_check_float(__FILE__, __LINE__, (double)(a), (double)(b), (double)(eps), true)
#define assert_float_not_equal(a, b, eps)                                                          \
    test_check_float(__FILE__, __LINE__, (double)(a), (double)(b), (double)(eps), false)
#define assert_in_range(v, low, high)                                                              \
    test_check_range(__FILE__, __LINE__, (uintmax_t)(v), (uintmax_t)(low), (uintmax_t)(high), true)
#define assert_not_in_range(v, low, high)                                                          \
    test_check_range(__FILE__, __LINE__, (uintmax_t)(v), (uintmax_t)(low), (uintmax_t)(high), false)

#endif

/* The tests of a program. Each *_test.c ends with its table:
 *
 *     static const struct CMUnitTest tests[] = {
 *         cmocka_unit_test(a_copy_is_equal),
 *         TEST_IF(SW_HAVE_PNG, a_picture_is_read),
 *     };
 *
 *     const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
 */
struct test_program {
    const struct CMUnitTest *tests;
    size_t n_tests;
    int (*setup)(void **state);    /* once, before all tests; not 0: the program fails */
    int (*teardown)(void **state); /* once, after all tests */
    /* Called first, with the NULL-terminated arguments of main. 0: the tests run; else this is the
     * exit status. A program that starts itself in another part plays it here and calls exit. */
    int (*begin)(char **argv);
    const char *left_out; /* why a build has nothing to test, "built without libpng"; else NULL */
};

extern const struct test_program sw_tests;

#define TEST_TABLE(table) .tests = (table), .n_tests = sizeof(table) / sizeof((table)[0])

/* An entry that this build has if `condition`, a constant, is true. */
#define TEST_IF(condition, f)                                                                      \
    {                                                                                              \
        (condition) ? #f : NULL, f, NULL, NULL, NULL                                               \
    }

/* Runs only the tests that have `word` in their names, as the first argument of a program does.
 * For begin(); the last call counts, and it counts for more than the argument. */
void test_run_only(const char *word);

/* Copies the entries of `p` that this build has and that have `word` (NULL: any) in their names.
 * Returns how many; `chosen` has room for p->n_tests. */
size_t test_choose(const struct test_program *p, const char *word, struct CMUnitTest *chosen);
