// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 300
// spillway io through the program: measurements, comparisons and refusals. It leaves no files
// behind and touches no file that is not its own.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "support/scratch.h"
#include "support/test.h"

static const char *program;
static char *out, *err; /* of the last run */

static char *take(const char *name)
{
    char path[128];
    char *text = NULL;
    size_t len = 0;
    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    return text;
}

/* `before` may set variables of the environment. */
static int run(const char *before, const char *arguments)
{
    char command[PATH_MAX + 1024];
    snprintf(command, sizeof command, "cd %s && %s %s %s >out.txt 2>err.txt </dev/null",
             test_folder(), before, program, arguments);
    const int status = system(command);
    sw_free(out);
    sw_free(err);
    out = take("out.txt");
    err = take("err.txt");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool is_there(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    return access(path, F_OK) == 0;
}

static void verify_compares(void **state)
{
    (void)state;
    static const char *const variants[] = {
        "",
        "--direct off --backend threads",
        "--backend threads --checksum 8K --block-size 64K --threads 3",
        "--single-submit --no-overlap --queue-depth 3",
    };
    for (size_t i = 0; i < SW_LEN(variants); i++) {
        char arguments[200];
        snprintf(arguments, sizeof arguments, "io verify --path . --size 5000001 %s", variants[i]);
        assert_int_equal(run("", arguments), 0);
        assert_non_null(strstr(out, "reading after opening again"));
        assert_false(is_there("spillway-io.tmp"));
    }
    assert_int_equal(run("", "io verify --path a b c --size 9M --stripe 64K --keep"), 0);
    assert_true(is_there("a") && is_there("b") && is_there("c"));
    /* Existing files stay unchanged. */
    assert_int_equal(run("", "io verify --path a --size 1M"), 2);
    assert_non_null(strstr(err, "a exists"));
}

static void verify_fails_where_the_disk_does(void **state)
{
    (void)state;
    assert_int_equal(run("SPILLWAY_FAULT=fsync:1:eio", "io verify --path . --size 1M"), 1);
    assert_non_null(strstr(err, "Input/output error"));
    assert_false(is_there("spillway-io.tmp"));
}

static void bench_prints_rates(void **state)
{
    (void)state;
    assert_int_equal(run("", "io bench --path . --size 4M --loops 1"), 0);
    assert_non_null(strstr(out, "GB/s"));
    assert_non_null(strstr(out, "\nwrite "));
    assert_non_null(strstr(out, "\nread "));
    assert_non_null(strstr(out, "\nmixed "));
    assert_false(is_there("spillway-io.tmp"));
}

static void tune_gives_a_block_that_config_takes(void **state)
{
    (void)state;
    assert_int_equal(run("", "io tune --path . --size 2M --loops 1 --json"), 0);
    assert_non_null(strstr(err, "overlap"));
    assert_true(out[0] == '{');
    char path[128];
    snprintf(path, sizeof path, "%s/aio.json", test_folder());
    assert_int_equal(sw_file_write_atomic(path, out, strlen(out)), SW_OK);
    assert_int_equal(run("", "config aio.json --set train_batch_size=8"), 0);
    assert_non_null(strstr(out, "queue_depth"));
}

static void without_io_uring_it_says_so(void **state)
{
    (void)state;
    assert_int_equal(run("SPILLWAY_FAULT=io_uring:1:eio", "io bench --path . --size 1M --loops 1"),
                     0);
    assert_non_null(strstr(out, "threads"));
    assert_int_equal(
        run("SPILLWAY_FAULT=io_uring:1:eio", "io bench --path . --size 1M --backend io_uring"), 2);
    assert_non_null(strstr(err, SW_HAVE_URING ? "refuses io_uring" : "liburing"));
}

static void usage(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *word;
    } wrong[] = {
        {"io", "bench, tune or verify"},
        {"io look --path .", "bench, tune or verify"},
        {"io bench", "--path"},
        {"io bench --path . --size 3X", "3X"},
        {"io bench --path . --size 1000", "at least 1M"},
        {"io tune --path . --block-size 64K", "--block-size"},
        {"io bench --path . --json", "--json"},
        {"io bench --path . --direct perhaps", "perhaps"},
        {"io bench --path . --backend magic", "magic"},
        {"io bench --path . --queue-depth 0", "--queue-depth"},
        {"io bench --path . --threads 100", "intra_op_parallelism"},
        {"io bench --path . --stripe 5000", "stripe_bytes"},
        {"io verify --path . --checksum 5000", "checksum_bytes"},
        {"io bench --path /no/such/folder/file", "/no/such/folder/file"},
        {"io bench --path . --size 8000000G", "free"},
    };
    for (size_t i = 0; i < SW_LEN(wrong); i++) {
        assert_int_equal(run("", wrong[i].arguments), 2);
        if (!strstr(err, wrong[i].word)) {
            fail_msg("%s: \"%s\" has no \"%s\"", wrong[i].arguments, err, wrong[i].word);
        }
        assert_false(is_there("spillway-io.tmp"));
    }
}

static int set_up(void **state)
{
    (void)state;
    program = test_spillway();
    return program ? 0 : -1;
}

static int clean_up(void **state)
{
    (void)state;
    sw_free(out);
    sw_free(err);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(verify_compares),
    cmocka_unit_test(verify_fails_where_the_disk_does),
    cmocka_unit_test(bench_prints_rates),
    cmocka_unit_test(tune_gives_a_block_that_config_takes),
    cmocka_unit_test(without_io_uring_it_says_so),
    cmocka_unit_test(usage),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = clean_up};
