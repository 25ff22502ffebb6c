// SPDX-License-Identifier: Apache-2.0
// Adapters and exported models on ranks of the tensor axis: files have whole tensors, the same
// bytes as those of one rank.
#include <stdio.h>
#include <string.h>

#include "engine/tests/sliced.h"
#include "support/scratch.h"
#include "support/test.h"

static const char *folder; /* that the next run exports to */

static sw_status write_model(struct sliced *job, sw_engine *e)
{
    (void)job;
    return sw_export(e, folder, SW_DTYPE_COUNT);
}

static void assert_same_file(const char *a, const char *b, const char *name)
{
    char paths[2][256];
    snprintf(paths[0], sizeof paths[0], "%s/%s", a, name);
    snprintf(paths[1], sizeof paths[1], "%s/%s", b, name);
    test_same_file(paths[0], paths[1]);
}

/* Trains on ranks of the tensor axis; the weights file of any other mesh is the same. */
static void check_files(const struct sliced *how, const char *file)
{
    static const struct {
        int data, tensor, stage;
    } others[] = {{1, 1, 0}, {2, 2, 3}, {1, 4, 0}};
    struct sliced first = *how;
    const char *const saved = test_at("saved"), *const whole = test_at("whole");
    const char *const again = test_at("again");
    test_remove(saved);
    test_remove(whole);
    first.data = 1;
    first.save = saved;
    first.after = write_model;
    folder = whole;
    sliced_run(&first);
    for (size_t i = 0; i < SW_LEN(others); i++) {
        struct sliced job = *how;
        test_remove(again);
        job.data = others[i].data;
        job.tensor = others[i].tensor;
        job.stage = others[i].stage;
        job.load = saved;
        job.idle = true;
        job.after = write_model;
        folder = again;
        sliced_run(&job);
        assert_memory_equal(job.weights, first.weights, SLICED_ELEMS * sizeof *job.weights);
        assert_same_file(whole, again, file);
        sliced_clear(&job);
    }
    sliced_clear(&first);
}

static void exports_have_whole_tensors(void **state)
{
    (void)state;
    check_files(&(struct sliced){.model = sliced_models.odd, .tensor = 2}, "model.safetensors");
    check_files(&(struct sliced){.model = sliced_models.shared,
                                 .tensor = 4,
                                 .stage = 2,
                                 .top = "\"bf16\": {\"enabled\": true}, "},
                "model.safetensors");
    check_files(&(struct sliced){.model = sliced_models.packed, .tensor = 4, .stage = 3},
                "model.safetensors");
}

#define LORA(more)                                                                                 \
    ", \"lora\": {\"r\": 3, \"lora_alpha\": 6, \"lora_dropout\": 0.1, "                            \
    "\"target_modules\": \"all-linear\"" more "}"

static void adapters_follow_one_rank(void **state)
{
    (void)state;
    const struct sliced ways[] = {
        {.model = sliced_models.odd, .data = 1, .tensor = 4, .more = LORA("")},
        {.model = sliced_models.shared, .data = 1, .tensor = 4, .more = LORA("")},
        {.model = sliced_models.packed, .data = 1, .tensor = 4, .more = LORA("")},
        {.model = sliced_models.groups,
         .data = 1,
         .tensor = 4,
         .more = LORA(", \"use_dora\": true")},
        {.model = sliced_models.odd,
         .data = 1,
         .tensor = 2,
         .more = LORA(", \"modules_to_save\": [\"wte\"]")},
    };
    for (size_t i = 0; i < SW_LEN(ways); i++) {
        struct sliced one = ways[i], job = ways[i], sliced = ways[i];
        one.tensor = 1;
        sliced.data = 2;
        sliced.stage = 3;
        sliced_run(&one);
        sliced_run(&job);
        sliced_run(&sliced);
        sliced_assert_near(&job, &one, 1e-4);
        sliced_assert_same(&sliced, &job);
        assert_true(job.n_cut > 0);
        sliced_clear(&one);
        sliced_clear(&job);
        sliced_clear(&sliced);
    }
}

static void adapters_have_the_files_of_one_rank(void **state)
{
    (void)state;
    check_files(&(struct sliced){.model = sliced_models.odd, .tensor = 2, .more = LORA("")},
                "adapter_model.safetensors");
}

static void continue_adapters(struct sw_engine_options *o)
{
    o->model.adapter = test_at("whole");
}

static void adapters_are_read_by_parts(void **state)
{
    (void)state;
    check_files(&(struct sliced){.model = sliced_models.shared, .tensor = 2, .more = LORA("")},
                "adapter_model.safetensors");
    struct sliced one = {.model = sliced_models.shared,
                         .data = 1,
                         .tensor = 1,
                         .idle = true,
                         .ask = continue_adapters};
    struct sliced job = one;
    job.data = 2;
    job.tensor = 4;
    job.stage = 3;
    sliced_run(&one);
    sliced_run(&job);
    assert_memory_equal(job.weights, one.weights, SLICED_ELEMS * sizeof *one.weights);
    sliced_clear(&one);
    sliced_clear(&job);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(exports_have_whole_tensors),
    cmocka_unit_test(adapters_follow_one_rank),
    cmocka_unit_test(adapters_have_the_files_of_one_rank),
    cmocka_unit_test(adapters_are_read_by_parts),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = sliced_set_up};
