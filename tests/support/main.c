// SPDX-License-Identifier: Apache-2.0
// The main of every test program: runs the tests of sw_tests, or those with the first argument in
// their names. It ends with 0, with 1 if a test failed, or with 77 if the program has nothing to
// test here.
#include "support/test.h"

static const char *only;

void test_run_only(const char *word)
{
    only = word;
}

size_t test_choose(const struct test_program *p, const char *word, struct CMUnitTest *chosen)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_tests; i++) {
        const char *name = p->tests[i].name;
        if (name && (!word || strstr(name, word))) {
            chosen[n++] = p->tests[i];
        }
    }
    return n;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int run_program(const char *program)
{
    struct CMUnitTest *chosen = calloc(sw_tests.n_tests, sizeof *chosen);
    if (!chosen) {
        return 1;
    }
    const size_t n = test_choose(&sw_tests, only, chosen);
    if (n == 0) {
        fprintf(stderr, "%s: no test has \"%s\" in its name\n", program, only ? only : "");
    }
    const int n_failed =
        n > 0 ? test_run_group(program, chosen, n, sw_tests.setup, sw_tests.teardown) : 1;
    free(chosen);
    return n_failed != 0;
}

int main(int argc, char **argv)
{
    if (sw_tests.left_out) {
        printf("skipped: %s\n", sw_tests.left_out);
        return TEST_EXIT_SKIPPED;
    }
    test_run_only(argc > 1 ? argv[1] : NULL);
    const int status = sw_tests.begin ? sw_tests.begin(argv) : 0;
    return status != 0 ? status : run_program(base_name(argv[0]));
}
