// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 1200
// COST 15
// Recorded cases on emulated GPU kernels: our own cases, and those of GPT-2 with warps of 32. With
// SPILLWAY_EMU_FAMILY, only that family's cases run, on SPILLWAY_EMU_DEVICE. SPILLWAY_EMU_COMM says
// how ranks exchange: "library", or "library_sums", is the stand-in for NCCL. sw_emulation_tests
// (cmake/SpillwayTests.cmake) makes a slow test for each family and device.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "spillway/check.h"
#include "support/fixtures.h"
#include "support/test.h"

enum { MAX_NAMES = 128 };
static const char quick[] = "own,gpt2"; /* families that CI has time for */

/* Selects the cases of one family. The name of a case is its path below the fixtures, or "own/" and
 * its path below tests/cases. */
struct selection {
    const char *families; /* all families, separated by commas */
    const char *family, *device;
    int n_cases, n_wrong;
};

static const char *device_of_this_run(void)
{
    const char *device = getenv("SPILLWAY_EMU_DEVICE");
    return device ? device : "emu";
}

static int set_up(void **state)
{
    (void)state;
    struct sw_device *dev;
    if (sw_device_open(device_of_this_run(), 1, &dev) < 0) {
        print_message("skipped: %s\n", sw_error_message());
        exit(TEST_EXIT_SKIPPED);
    }
    sw_device_close(dev);
    return 0;
}

/* True if a case is left out: it reports an unsupported feature, or operations that run on the
 * CPU only. */
static bool is_left_out(const char *message)
{
    return strstr(message, "not built") || strstr(message, "no kernel on this device for ");
}

static bool is_right(const char *path, const char *device)
{
    const char *const comm = getenv("SPILLWAY_EMU_COMM");
    const bool adds = comm && strcmp(comm, "library_sums") == 0;
    char set[64], *text = NULL;
    const char *const sets[] = {set, "spillway.comm=\"library\"", "spillway.library_sums=true"};
    const struct sw_check_options options = {.sets = sets, .n_sets = !comm ? 1 : adds ? 3 : 2};
    size_t len = 0;
    int n_failed = 0;
    snprintf(set, sizeof set, "spillway.device=\"%s\"", device);
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    const sw_status st = sw_check_case(path, &options, out, &n_failed);
    fclose(out);
    const bool not_built = st == SW_E_UNSUP && is_left_out(sw_error_message());
    const bool right = not_built || (st >= 0 && n_failed == 0);
    if (!right) {
        printf("%s%s\n", text, st < 0 ? sw_error_message() : "");
    }
    printf("%s on %s: %s\n", path, device, not_built ? "skipped" : right ? "passed" : "FAILED");
    fflush(stdout);
    free(text);
    return right;
}

/* The longest family that is the name or one of its parent folders; "others" if there is none. */
static void family_of(const char *name, const char *families, char out[TEST_NAME_CAP])
{
    size_t longest = 0, n;
    snprintf(out, TEST_NAME_CAP, "others");
    for (const char *at = families; *at; at += n + (at[n] == ',')) {
        n = strcspn(at, ",");
        if (n > longest && strncmp(name, at, n) == 0 && (name[n] == '/' || name[n] == '\0')) {
            snprintf(out, TEST_NAME_CAP, "%.*s", (int)n, at);
            longest = n;
        }
    }
}

static void a_case_is_of_one_family(void **state)
{
    static const char families[] = "zero,gpt2,zero/nvme";
    static const char *const of[][2] = {{"zero/nvme", "zero/nvme"}, {"zero/nvme/a", "zero/nvme"},
                                        {"zero/nvme2", "zero"},     {"zero/w1", "zero"},
                                        {"gpt2", "gpt2"},           {"gpt/base", "others"},
                                        {"gpt2_tied", "others"}};
    (void)state;
    for (size_t i = 0; i < SW_LEN(of); i++) {
        char family[TEST_NAME_CAP];
        family_of(of[i][0], families, family);
        assert_string_equal(family, of[i][1]);
    }
}

/* Runs all cases below a folder. A folder is a case of a model or an optimizer if it has recorded
 * tensors. */
static void check_below(struct selection *s, const char *folder, const char *name)
{
    char recording[TEST_PATH_CAP], family[TEST_NAME_CAP];
    test_join(recording, folder, "reference.safetensors");
    if (test_exists(recording)) {
        family_of(name, s->families, family);
        if (strcmp(family, s->family) == 0) {
            s->n_cases++;
            s->n_wrong += !is_right(folder, s->device);
        }
        return;
    }
    char below[MAX_NAMES][TEST_NAME_CAP];
    const int n = test_list(folder, "", below, MAX_NAMES);
    for (int i = 0; i < n; i++) {
        char path[TEST_PATH_CAP], is_folder[TEST_PATH_CAP], longer[TEST_PATH_CAP];
        test_join(path, folder, below[i]);
        test_join(is_folder, path, ".");
        if (test_exists(is_folder)) {
            test_join(longer, name, below[i]);
            check_below(s, path, *name ? longer : below[i]);
        }
    }
}

/* Returns the number of cases; 0 without fixtures. */
static int check_family(const char *families, const char *family, const char *device)
{
    struct selection s = {.families = families, .family = family, .device = device};
    char fixtures[TEST_PATH_CAP];
    check_below(&s, "tests/cases", "own");
    if (test_fixture_folder("", fixtures)) {
        check_below(&s, fixtures, "");
    }
    print_message("%d cases of %s on %s\n", s.n_cases, family, device);
    assert_int_equal(s.n_wrong, 0);
    return s.n_cases;
}

static void our_own_cases(void **state)
{
    (void)state;
    assert_true(check_family(quick, "own", "emu") > 0);
}

static void cases_of_gpt2(void **state)
{
    (void)state;
    if (check_family(quick, "gpt2", "emu") == 0) {
        skip();
    }
}

static void cases_of_a_family(void **state)
{
    (void)state;
    const char *families = getenv("SPILLWAY_EMU_FAMILIES");
    const char *family = getenv("SPILLWAY_EMU_FAMILY");
    if (!family) {
        skip();
    }
    assert_non_null(families);
    if (check_family(families, family, device_of_this_run()) == 0) {
        exit(TEST_EXIT_SKIPPED);
    }
}

static int begin(char **argv)
{
    (void)argv;
    if (getenv("SPILLWAY_EMU_FAMILY")) {
        test_run_only("cases_of_a_family");
    }
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_case_is_of_one_family),
    cmocka_unit_test(our_own_cases),
    cmocka_unit_test(cases_of_gpt2),
    cmocka_unit_test(cases_of_a_family),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .begin = begin};
