// SPDX-License-Identifier: Apache-2.0
// Reports name what was chosen for keys that are "auto": the text and the JSON of a plan, and the
// table of stages, for which the choice at the configured stage holds.
#include <string.h>

#include "engine/engine.h"
#include "spillway/look.h"
#include "support/scratch.h"
#include "support/test.h"

enum { T = 8, BLOCKS = 5 };

static const char config[] =
    "{\"train_batch_size\": 12, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
    "\"spillway\": {\"threads\": 1}}";
static int write_model(void **state)
{
    (void)state;
    test_put("model.json", "{\"model_type\":\"gpt2\",\"vocab_size\":37,\"n_positions\":16,"
                           "\"n_embd\":16,\"n_layer\":8,\"n_head\":2}");
    return 0;
}

static struct sw_engine_options options_of(const char *const *sets, int n_sets)
{
    return (struct sw_engine_options){.config = {.text = config, .sets = sets, .n_sets = n_sets},
                                      .model.path = test_at("model.json"),
                                      .inputs.seq_len = T,
                                      .train.wanted = true,
                                      .plan.only = true};
}

/* Device memory that the first BLOCKS blocks recomputed need, as an edit. */
static void budget_of_blocks(char *edit, size_t cap)
{
    char blocks[48];
    const char *const sets[] = {"train_micro_batch_size_per_gpu=12", "spillway.recompute=1",
                                blocks};
    sw_engine *e = NULL;
    snprintf(blocks, sizeof blocks, "spillway.recompute_blocks=%d", BLOCKS);
    const struct sw_engine_options o = options_of(sets, 3);
    if (sw_initialize(&o, &e) < 0) {
        fail_msg("%s", sw_error_message());
    }
    snprintf(edit, cap, "spillway.device_memory=%lld",
             (long long)sw_engine_tier_bytes(e, SW_TIER_DEVICE));
    sw_close(e);
}

static void what_was_chosen_is_said(void **state)
{
    (void)state;
    static const char want[] = "chosen: spillway.micro_batch 12, spillway.recompute \"blocks\", "
                               "spillway.recompute_blocks 5\n";
    char budget[64];
    const char *const sets[] = {"spillway.micro_batch=auto", "spillway.recompute=auto", budget};
    sw_engine *e = NULL;
    char *text = NULL;
    budget_of_blocks(budget, sizeof budget);
    const struct sw_engine_options o = options_of(sets, 3);
    assert_int_equal(sw_initialize(&o, &e), SW_OK);
    assert_int_equal(sw_plan_text(e, false, false, &text), SW_OK);
    assert_int_equal(strncmp(text, want, strlen(want)), 0);
    assert_non_null(strstr(text, "\n  backward recomputes the first 5 of 8 blocks\n"));
    sw_text_free(text);
    assert_int_equal(sw_plan_text(e, false, true, &text), SW_OK);
    assert_non_null(strstr(text, ",\"chosen\":{\"micro_batch\":12,\"recompute\":\"blocks\","
                                 "\"recompute_blocks\":5}}"));
    assert_non_null(strstr(text, ",\"recomputed_blocks\":5,"));
    sw_text_free(text);
    sw_close(e);
    for (int json = 0; json < 2; json++) {
        assert_int_equal(sw_plan_stages_text(&o, 2, json, &text), SW_OK);
        assert_non_null(strstr(text, json ? "\"chosen\":{\"micro_batch\":6,\"recompute\":"
                                          : "chosen: spillway.micro_batch 6, spillway.recompute "));
        assert_non_null(strstr(text, json ? "\"micro_batches\":2" : "K = 2 micro-batches"));
        sw_text_free(text);
    }
    assert_int_equal(sw_plan_stages_text(NULL, 2, false, &text), SW_E_ARG);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_chosen_is_said)};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = write_model};
