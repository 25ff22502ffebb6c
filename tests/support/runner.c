// SPDX-License-Identifier: Apache-2.0
// The runner behind test.h where cmocka is absent: runs each case, leaves a failed one by longjmp,
// counts. Everything here is the state of one test program with one testing thread.
#include "support/test.h"

#if SW_HAVE_CMOCKA

/* cmocka is the runner; this file only has to be a translation unit. */
typedef int test_runner_is_cmocka;

#else

enum outcome { PASSED, FAILED, SKIPPED };

static struct {
    jmp_buf leave;
    bool active; /* a case is running, so `leave` is valid */
} run;

void print_message(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(stdout, fmt, args);
    va_end(args);
    fflush(stdout);
}

void print_error(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
}

static _Noreturn void leave(enum outcome outcome)
{
    if (!run.active) {
        fprintf(stderr, "an assertion was used outside of a test case\n");
        abort();
    }
    longjmp(run.leave, (int)outcome);
}

_Noreturn void test_fail_at(const char *file, int line, const char *fmt, ...)
{
    fprintf(stderr, "%s:%d: ", file, line);
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    leave(FAILED);
}

_Noreturn void test_skip_at(const char *file, int line)
{
    fprintf(stderr, "%s:%d: skipped\n", file, line);
    leave(SKIPPED);
}

void test_check_int(const char *file, int line, const char *text_a, const char *text_b, intmax_t a,
                    intmax_t b, bool want_equal)
{
    if ((a == b) != want_equal) {
        test_fail_at(file, line, "%s (%jd, %#jx) %s %s (%jd, %#jx)", text_a, a, (uintmax_t)a,
                     want_equal ? "!=" : "==", text_b, b, (uintmax_t)b);
    }
}

void test_check_ptr(const char *file, int line, const char *text_a, const char *text_b,
                    const void *a, const void *b, bool want_equal)
{
    if ((a == b) != want_equal) {
        test_fail_at(file, line, "%s (%p) %s %s (%p)", text_a, a, want_equal ? "!=" : "==", text_b,
                     b);
    }
}

void test_check_string(const char *file, int line, const char *a, const char *b, bool want_equal)
{
    if (!a || !b) {
        test_fail_at(file, line, "a string is NULL: %s, %s", a ? a : "NULL", b ? b : "NULL");
    }
    if ((strcmp(a, b) == 0) != want_equal) {
        test_fail_at(file, line, "\"%s\" %s \"%s\"", a, want_equal ? "!=" : "==", b);
    }
}

void test_check_memory(const char *file, int line, const void *a, const void *b, size_t bytes,
                       bool want_equal)
{
    const unsigned char *x = a, *y = b;
    size_t i = 0;
    while (i < bytes && x[i] == y[i]) {
        i++;
    }
    if (want_equal && i < bytes) {
        test_fail_at(file, line, "byte %zu of %zu differs: 0x%02x != 0x%02x", i, bytes, x[i], y[i]);
    }
    if (!want_equal && i == bytes) {
        test_fail_at(file, line, "all %zu bytes are equal", bytes);
    }
}

void test_check_float(const char *file, int line, double a, double b, double epsilon,
                      bool want_equal)
{
    const bool equal = a == b || fabs(a - b) <= epsilon;
    if (equal != want_equal) {
        test_fail_at(file, line, "%.17g %s %.17g (epsilon %g)", a, want_equal ? "!=" : "==", b,
                     epsilon);
    }
}

void test_check_range(const char *file, int line, uintmax_t value, uintmax_t low, uintmax_t high,
                      bool want_inside)
{
    if ((value >= low && value <= high) != want_inside) {
        test_fail_at(file, line, "%ju is %s %ju .. %ju", value, want_inside ? "outside of" : "in",
                     low, high);
    }
}

static enum outcome run_case(const struct CMUnitTest *test, void *group_state)
{
    void *volatile state = test->initial_state ? test->initial_state : group_state;
    void *current = state;
    if (test->setup_func && test->setup_func(&current) != 0) {
        fprintf(stderr, "%s: set-up failed\n", test->name);
        return FAILED;
    }
    state = current;
    run.active = true;
    const int left = setjmp(run.leave);
    if (left == 0) {
        void *lent = state;
        test->test_func(&lent);
    }
    run.active = false;
    void *after = state;
    if (test->teardown_func && test->teardown_func(&after) != 0) {
        fprintf(stderr, "%s: tear-down failed\n", test->name);
        return FAILED;
    }
    return (enum outcome)left;
}

int test_run_group(const char *name, const struct CMUnitTest *tests, size_t n_tests,
                   test_fixture_fn setup, test_fixture_fn teardown)
{
    static const char *const words[] = {"ok", "FAILED", "skipped"};
    int counts[3] = {0, 0, 0};
    void *group_state = NULL;
    if (setup && setup(&group_state) != 0) {
        fprintf(stderr, "%s: group set-up failed\n", name);
        return 1;
    }
    for (size_t i = 0; i < n_tests; i++) {
        const enum outcome outcome = run_case(&tests[i], group_state);
        counts[outcome]++;
        print_message("%-7s %s\n", words[outcome], tests[i].name);
    }
    if (teardown && teardown(&group_state) != 0) {
        fprintf(stderr, "%s: group tear-down failed\n", name);
        counts[FAILED]++;
    }
    print_message("%s: %d passed, %d failed, %d skipped\n", name, counts[PASSED], counts[FAILED],
                  counts[SKIPPED]);
    return counts[FAILED];
}

#endif
