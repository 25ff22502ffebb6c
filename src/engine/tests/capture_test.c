// SPDX-License-Identifier: Apache-2.0
// COST 6
// SLOW SPILLWAY_CAPTURE_ROWS=12
// Trainings on emulated GPUs whose launches are captured and replayed have the bits of those whose
// launches are queued one by one: schedules, pipelines, offloading, tiers, tiles, checkpoints and
// generation.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
#include "engine/tests/matrix.h"
#include "engine/tests/owned.h"
#include "support/scratch.h"

enum { B = 2, T = 7, V = 37, K = 4 };

static void captured_is_not_captured_bit_for_bit(void **state)
{
    (void)state;
    const char *rows = getenv("SPILLWAY_CAPTURE_ROWS");
    matrix_skip_without_emulation();
    matrix_captured(rows ? atoi(rows) : 2, 2);
}

static const char model_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":37,"
    "\"n_positions\":11,\"n_embd\":21,\"n_layer\":1,\"n_head\":3,\"n_inner\":29}";

static sw_engine *open_engine(const char *device, bool captures, bool profile)
{
    char config[512];
    sw_engine *e = NULL;
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": 0.5, "
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
             "\"spillway\": {\"micro_batches\": %d, \"threads\": 1, \"capture\": %s}}",
             B, K, captures ? "true" : "false");
    assert_int_equal(sw_file_write_atomic(test_at("config.json"), model_json, strlen(model_json)),
                     SW_OK);
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = test_at("config.json"),
                                              .inputs.seq_len = T,
                                              .run = {.device = device, .profile = profile},
                                              .seed = 5,
                                              .train.wanted = true};
    if (sw_initialize(&options, &e) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return e;
}

/* All micro-batches but the last are alike, so their graphs are captured once. Without transfers a
 * segment is one graph. */
static void micro_batches_share_graphs(void **state)
{
    (void)state;
    matrix_skip_without_emulation();
    sw_engine *e = open_engine("emu", true, false);
    const struct sw_captures captures = sw_executor_captures(e->executor);
    assert_int_equal(captures.n_replays, 2 * K + 1);
    assert_int_equal(captures.n_graphs, 2 * 2 + 1);
    assert_true(captures.n_launches > 20 * captures.n_replays);
    sw_close(e);
}

static void nothing_is_captured_where_it_is_off_or_the_driver_is_too_old(void **state)
{
    (void)state;
    matrix_skip_without_emulation();
    sw_engine *e = open_engine("emu", false, false);
    assert_int_equal(sw_executor_captures(e->executor).n_replays, 0);
    sw_close(e);
    assert_int_equal(setenv("SPILLWAY_STANDIN_DRIVER", "1", 1), 0);
    e = open_engine("emu", true, false);
    assert_int_equal(unsetenv("SPILLWAY_STANDIN_DRIVER"), 0);
    assert_int_equal(sw_executor_captures(e->executor).n_replays, 0);
    assert_non_null(e->device->no_capture);
    assert_non_null(strstr(e->device->no_capture, "its version is 1, wanted 2"));
    assert_int_equal(test_train_step(e, K, B, T, V, NULL), SW_OK);
    sw_close(e);
}

/* With a profile every launch is measured, and it says which ones are replayed without. */
static void a_profile_says_what_is_replayed(void **state)
{
    (void)state;
    matrix_skip_without_emulation();
    sw_engine *e = open_engine("emu", true, true);
    assert_int_equal(test_train_step(e, K, B, T, V, NULL), SW_OK);
    const struct sw_program *program = &e->plan->programs[0];
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_profile profile = sw_executor_profile(e->executor, 0, i);
        assert_int_equal(profile.is_captured, program->instrs[i].queue == SW_QUEUE_COMPUTE);
        assert_true(!profile.is_captured || profile.n_runs > 0);
    }
    sw_close(e);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(captured_is_not_captured_bit_for_bit),
    cmocka_unit_test(micro_batches_share_graphs),
    cmocka_unit_test(nothing_is_captured_where_it_is_off_or_the_driver_is_too_old),
    cmocka_unit_test(a_profile_says_what_is_replayed),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = matrix_set_up};
