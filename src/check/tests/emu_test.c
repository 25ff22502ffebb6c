// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 1200
// COST 15
// SLOW SPILLWAY_EMU_ALL=1
// Recorded cases on the kernels of GPUs, emulated: our own and those of GPT-2 with warps of 32; for
// the slow label those of every family, optimizer and stage, with warps of 64 and in the other
// order of threads, too.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "spillway/check.h"
#include "support/fixtures.h"
#include "support/test.h"

enum { MAX_CASES = 128 };

static int set_up(void **state)
{
    (void)state;
    struct sw_device *dev;
    if (sw_device_open("emu", 1, &dev) < 0) {
        print_message("skipped: %s\n", sw_error_message());
        exit(TEST_EXIT_SKIPPED);
    }
    sw_device_close(dev);
    return 0;
}

/* What is not built yet, it says so of itself, is left out; so is Muon, which is the CPU's. */
static bool is_left_out(const char *message)
{
    return strstr(message, "not built") || strstr(message, "no kernel on this device for muon_");
}

static bool is_right(const char *path, const char *device)
{
    char set[64], *text = NULL;
    const char *const sets[] = {set};
    const struct sw_check_options options = {.sets = sets, .n_sets = 1};
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
    free(text);
    return right;
}

/* Twenty steps of a model of 6.9 million parameters, in 16 and 20 ways: two minutes each. How they
 * differ, in transfers, has nothing to do with warps and the order of threads. */
static bool is_long(const char *name)
{
    return strcmp(name, "nvme") == 0 || strcmp(name, "offload_cpu") == 0;
}

static void check_folder(const char *folder, const char *device)
{
    static char names[MAX_CASES][TEST_NAME_CAP];
    const int n = test_list(folder, "", names, MAX_CASES);
    int n_wrong = 0;
    for (int i = 0; i < n; i++) {
        char path[TEST_PATH_CAP], recording[TEST_PATH_CAP];
        if (is_long(names[i]) && strcmp(device, "emu") != 0) {
            continue;
        }
        test_join(path, folder, names[i]);
        test_join(recording, path, "reference.json");
        n_wrong += test_exists(recording) && !is_right(path, device);
    }
    assert_int_equal(n_wrong, 0);
}

static void our_own_cases(void **state)
{
    (void)state;
    check_folder("tests/cases", "emu");
    check_folder("tests/cases/optimizers", "emu");
    check_folder("tests/cases/optimizers_8bit", "emu");
}

static void check_area(const char *area, const char *device)
{
    char folder[TEST_PATH_CAP];
    if (test_fixture_folder(area, folder)) {
        check_folder(folder, device);
    }
}

static void cases_of_gpt2(void **state)
{
    (void)state;
    check_area("gpt2", "emu");
}

static void every_case_in_every_way(void **state)
{
    static const char *const areas[] = {
        "gpt2",       "llama", "mistral", "qwen2",      "qwen3",      "gemma2", "opt",  "gpt_neox",
        "phi",        "bloom", "bert",    "roberta",    "distilbert", "lora",   "zero", "packing",
        "optimizers", "t5",    "bart",    "deberta-v2", "vision",     "rnn"};
    static const char *const devices[] = {"emu", "emu:64", "emu:reversed"};
    (void)state;
    if (!getenv("SPILLWAY_EMU_ALL")) {
        skip();
    }
    for (size_t d = 0; d < SW_LEN(devices); d++) {
        for (size_t a = 0; a < SW_LEN(areas); a++) {
            check_area(areas[a], devices[d]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_own_cases),
        cmocka_unit_test(cases_of_gpt2),
        cmocka_unit_test(every_case_in_every_way),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
