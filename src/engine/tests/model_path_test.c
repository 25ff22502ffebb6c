// SPDX-License-Identifier: Apache-2.0
// Names of models: a path stands for itself, and a hub name for its snapshot in Hugging Face's
// local cache.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/private.h"
#include "support/fixtures.h"
#include "support/scratch.h"
#include "support/test.h"

static int make_cache(void **state)
{
    static const char *const folders[] = {"models--org--name",
                                          "models--org--name/refs",
                                          "models--org--name/snapshots",
                                          "models--org--name/snapshots/abc123",
                                          "models--bare",
                                          "models--bare/refs"};
    (void)state;
    test_put("config.json", "{}");
    for (size_t i = 0; i < SW_LEN(folders); i++) {
        mkdir(test_at(folders[i]), 0777);
    }
    test_put("models--org--name/refs/main", "abc123\n");
    test_put("models--bare/refs/main", "0123");
    return setenv("HF_HUB_CACHE", test_folder(), 1);
}

static int remove_cache(void **state)
{
    (void)state;
    unsetenv("HF_HUB_CACHE");
    return 0;
}

static void expect(const char *name, const char *wanted)
{
    char *path = NULL;
    assert_int_equal(sw_model_find(name, &path), SW_OK);
    assert_string_equal(path, wanted);
    sw_text_free(path);
}

static void a_name_of_the_hub_is_its_main_snapshot(void **state)
{
    (void)state;
    expect("org/name", test_at("models--org--name/snapshots/abc123"));
}

/* Existing paths, presets and invalid hub names stay unchanged; opening reports the error. */
static void other_names_stay_as_they_are(void **state)
{
    static const char *const names[] = {"/tmp", "gpt2-tiny", "./org/name", "a/b/c",
                                        "../x", "org/",      "--prompt",   "org/-x"};
    (void)state;
    for (size_t i = 0; i < SW_LEN(names); i++) {
        expect(names[i], names[i]);
    }
}

/* "bare" has a ref whose snapshot is missing. */
static void a_name_that_is_nowhere_gets_the_command_that_downloads_it(void **state)
{
    static const char *const names[] = {"org/other", "bare"};
    (void)state;
    for (size_t i = 0; i < SW_LEN(names); i++) {
        char *path = NULL, wanted[64];
        snprintf(wanted, sizeof wanted, "hf download %s", names[i]);
        assert_int_equal(sw_model_find(names[i], &path), SW_E_IO);
        assert_null(path);
        assert_non_null(strstr(sw_error_message(), wanted));
        assert_non_null(strstr(sw_error_message(), test_folder()));
    }
}

static void lack_of_memory_is_an_error(void **state)
{
    (void)state;
    for (int nth = 1; nth <= 3; nth++) {
        char *path = NULL;
        sw_alloc_fail_nth(nth);
        assert_true(sw_model_find("org/name", &path) < 0 || path);
        sw_alloc_fail_nth(0);
        sw_text_free(path);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_name_of_the_hub_is_its_main_snapshot),
    cmocka_unit_test(other_names_stay_as_they_are),
    cmocka_unit_test(a_name_that_is_nowhere_gets_the_command_that_downloads_it),
    cmocka_unit_test(lack_of_memory_is_an_error),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_cache,
                                      .teardown = remove_cache};
