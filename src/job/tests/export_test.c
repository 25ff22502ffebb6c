// SPDX-License-Identifier: Apache-2.0
// COST 2
// Exports the weights of an intact checkpoint, and refuses one that the disk changed.
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "spillway/checkpoint.h"
#include "spillway/train.h"
#include "support/fixtures.h"
#include "support/scratch.h"
#include "support/test.h"

/* Makes a run of one step, without an export. */
static int make_run(void **state)
{
    struct sw_train_result result;
    bool started;
    (void)state;
    const char *file = test_at("text.txt");
    test_put("text.txt", "abcdefgh hgfedcba abcdefgh\n");
    const struct sw_train_options o = {.model = "gpt2-tiny",
                                       .data = &file,
                                       .n_data = 1,
                                       .output = test_at("run"),
                                       .steps = 1,
                                       .seq_len = 8,
                                       .quiet = true,
                                       .no_export = true,
                                       .export_dtype = -1};
    return sw_train(&o, stdout, &started, &result) < 0 ? -1 : 0;
}

/* Flips a bit in the last number of the file. */
static void damage(const char *path)
{
    char last;
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    assert_int_equal(fread(&last, 1, 1, file), 1);
    last ^= 1;
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    assert_int_equal(fwrite(&last, 1, 1, file), 1);
    fclose(file);
}

static void what_is_damaged_is_not_exported(void **state)
{
    (void)state;
    const char *part = test_at("run/checkpoint-1/part-00000.safetensors");
    struct sw_checkpoint_export_options o = {
        .path = test_at("run"), .folder = test_at("whole"), .dtype = -1};
    assert_int_equal(sw_checkpoint_export(&o, stdout), SW_OK);
    damage(part);
    o.folder = test_at("broken");
    assert_int_equal(sw_checkpoint_export(&o, stdout), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "part-00000.safetensors is damaged: "));
    assert_int_equal(access(o.folder, F_OK), -1);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_damaged_is_not_exported)};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_run};
