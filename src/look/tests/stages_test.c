// SPDX-License-Identifier: Apache-2.0
// The table of ZeRO stages for a model that fits no machine here. The folder has only config.json,
// planning takes no memory, and the bytes match the ZeRO paper.
#include <stdlib.h>
#include <unistd.h>

#include "engine/engine.h"
#include "spillway/look.h"
#include "support/scratch.h"
#include "support/test.h"

/* GPT-2 with 36 layers of width 4096: 7.5B parameters. */
static const char model_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":50257,"
    "\"n_positions\":1024,\"n_embd\":4096,\"n_layer\":36,\"n_head\":32}";
static const char config_json[] =
    "{\"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true},"
    " \"zero_optimization\": {\"stage\": 2},"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-4}}}";

static int open_folder(void **state)
{
    (void)state;
    char path[96];
    snprintf(path, sizeof path, "%s/config.json", test_folder());
    FILE *file = fopen(path, "w");
    return file && fputs(model_json, file) >= 0 && fclose(file) == 0 ? 0 : -1;
}

static int close_folder(void **state)
{
    (void)state;
    char path[96];
    snprintf(path, sizeof path, "%s/config.json", test_folder());
    return unlink(path) == 0 && rmdir(test_folder()) == 0 ? 0 : -1;
}

static int64_t number(const struct sw_json *row, const char *key)
{
    const struct sw_json *value = sw_json_get(row, key);
    assert_non_null(value);
    assert_int_equal(value->type, SW_JSON_INT);
    return value->integer;
}

static struct sw_json_doc *table_of(const struct sw_engine_options *o, int ranks)
{
    char *text = NULL;
    struct sw_json_doc *doc;
    if (sw_plan_stages_text(o, ranks, true, &text) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(sw_json_parse("table", text, strlen(text), SW_JSON_STRICT, &doc), SW_OK);
    sw_text_free(text);
    return doc;
}

static void a_model_larger_than_the_machine(void **state)
{
    (void)state;
    static const double most[] = {120e9, 31.4e9, 16.7e9, 1.9e9};
    const struct sw_engine_options o = {
        .config.text = config_json, .model.path = test_folder(), .train.wanted = true};
    struct sw_alloc_stats stats;
    const double start = sw_now_s();
    struct sw_json_doc *doc = table_of(&o, 64);
    print_message("planned in %.1f s\n", sw_now_s() - start);
    assert_int_equal(number(sw_json_root(doc), "parameters"), 7459729408);
    assert_int_equal(number(sw_json_root(doc), "configured_stage"), 2);
    const struct sw_json *row = sw_json_get(sw_json_root(doc), "stages")->first;
    int64_t before = INT64_MAX;
    for (int stage = 0; stage < 4; stage++, row = row->next) {
        const int64_t states = number(row, "model_states");
        const int64_t total = number(row, "device_bytes");
        assert_true((double)states <= most[stage]);
        assert_true((double)states <= 1.02 * (double)number(row, "model_states_paper"));
        assert_true(total > states && total <= before);
        before = total;
    }
    assert_null(row);
    sw_json_close(doc);
    sw_alloc_get_stats(&stats);
    /* the plan is for hundreds of GB, but planning takes little memory */
    assert_true(stats.peak_bytes < INT64_C(300) << 20);
}

static void models_from_a_hundred_million_on(void **state)
{
    (void)state;
    static const int ranks[] = {2, 8, 64, 512, 1000, 1024, 2048};
    const struct sw_engine_options o = {.config.text = config_json,
                                        .model.path = "gpt2",
                                        .inputs.seq_len = 128,
                                        .train.wanted = true};
    for (size_t i = 0; i < SW_LEN(ranks); i++) {
        struct sw_json_doc *doc = table_of(&o, ranks[i]);
        const struct sw_json *row = sw_json_get(sw_json_root(doc), "stages")->first;
        for (; row; row = row->next) {
            const double over =
                (double)number(row, "model_states") / (double)number(row, "model_states_paper");
            print_message("R = %d, stage %d: %.4f of the formula\n", ranks[i],
                          (int)number(row, "stage"), over);
            assert_true(over <= 1.02);
        }
        sw_json_close(doc);
    }
}

/* The table's statement on a budget equals that of the plan for a real run. */
static void what_fits_is_what_a_run_would_find(void **state)
{
    (void)state;
    int n_fit = 0, n_all = 0;
    for (int64_t kib = 2000; kib < 24000; kib += 2750) {
        char budget[64];
        snprintf(budget, sizeof budget, "spillway.device_memory=%lldKiB", (long long)kib);
        const char *sets[] = {budget, NULL};
        struct sw_engine_options o = {.config = {.text = config_json, .sets = sets, .n_sets = 1},
                                      .model.path = "gpt2-tiny",
                                      .train.wanted = true};
        struct sw_json_doc *doc = table_of(&o, 2);
        const struct sw_json *row = sw_json_get(sw_json_root(doc), "stages")->first;
        for (int stage = 0; row; row = row->next, stage++) {
            char text[64];
            sw_engine *e = NULL;
            struct sw_engine_options run = o;
            snprintf(text, sizeof text, "zero_optimization.stage=%d", stage);
            sets[1] = text;
            run.config.n_sets = 2;
            run.plan.only = true;
            assert_int_equal(sw_comm_open(&(struct sw_transport){.size = 2}, &run.run.comm), SW_OK);
            const bool fits = sw_initialize(&run, &e) >= 0;
            sw_close(e);
            sw_comm_close(run.run.comm, false);
            assert_int_equal(fits, sw_json_get(row, "fits")->boolean);
            n_fit += fits;
            n_all++;
        }
        sw_json_close(doc);
    }
    assert_true(n_fit > 0 && n_fit < n_all);
}

static void text_marks_the_stage_and_the_budget(void **state)
{
    (void)state;
    const char *sets[] = {"zero_optimization.stage=3", "spillway.device_memory=30MiB"};
    struct sw_engine_options o = {.config = {.text = config_json, .sets = sets, .n_sets = 2},
                                  .model.path = "gpt2-tiny",
                                  .train.wanted = true};
    char *text = NULL;
    assert_int_equal(sw_plan_stages_text(&o, 4, false, &text), SW_OK);
    assert_non_null(strstr(text, "-> stage 3"));
    assert_null(strstr(text, "-> stage 2"));
    assert_non_null(strstr(text, "= model states"));
    assert_non_null(strstr(text, "16 at stage 0, 4 + 12/R at 1, 2 + 14/R at 2, 16/R at 3"));
    assert_non_null(strstr(text, "fits the budgets"));
    sw_text_free(text);
    o.config.n_sets = 1;
    assert_int_equal(sw_plan_stages_text(&o, 4, false, &text), SW_OK);
    assert_null(strstr(text, "fits the budgets"));
    sw_text_free(text);
    o.train.wanted = false;
    o.evaluate.loss = true;
    assert_int_equal(sw_plan_stages_text(&o, 4, false, &text), SW_E_ARG);
}

/* If some stages refuse a key, the table still shows the others. */
static void a_stage_that_refuses_a_key_leaves_the_others(void **state)
{
    (void)state;
    static const struct {
        const char *sets[4];
        int n_sets;
        bool refused[4];
    } rows[] = {
        {{"spillway.reduce=boundary", "zero_optimization.stage=1"}, 2, {false, false, true, true}},
        {{"spillway.update=host", "zero_optimization.offload_optimizer.device=cpu"},
         2,
         {true, false, false, false}},
        {{"zero_optimization.stage=3", "zero_optimization.offload_optimizer.device=cpu",
          "zero_optimization.offload_optimizer.ratio=0.5"},
         3,
         {false, true, true, false}},
    };
    for (size_t r = 0; r < SW_LEN(rows); r++) {
        struct sw_engine_options o = {
            .config = {.text = config_json, .sets = rows[r].sets, .n_sets = rows[r].n_sets},
            .model.path = "gpt2-tiny",
            .train.wanted = true};
        char *text = NULL;
        struct sw_json_doc *doc = table_of(&o, 2);
        const struct sw_json *row = sw_json_get(sw_json_root(doc), "stages")->first;
        assert_int_equal(sw_plan_stages_text(&o, 2, false, &text), SW_OK);
        for (int stage = 0; stage < 4; stage++, row = row->next) {
            char line[32];
            snprintf(line, sizeof line, "Stage %d is refused: ", stage);
            assert_int_equal(sw_json_get(row, "refused") != NULL, rows[r].refused[stage]);
            assert_int_equal(sw_json_get(row, "device_bytes") != NULL, !rows[r].refused[stage]);
            assert_int_equal(strstr(text, line) != NULL, rows[r].refused[stage]);
        }
        sw_text_free(text);
        sw_json_close(doc);
    }
    static const char *const alone[][2] = {
        {"spillway.reduce=boundary", "zero_optimization.stage=2"},
        {"spillway.tile_bytes=4096", "zero_optimization.stage=1"},
        {"zero_optimization.offload_param.device=cpu", "zero_optimization.stage=1"},
        {"zero_optimization.offload_optimizer.device=cpu", "zero_optimization.stage=0"},
    };
    for (size_t r = 0; r < SW_LEN(alone); r++) { /* settings that a training run would refuse */
        const struct sw_engine_options o = {
            .config = {.text = config_json, .sets = alone[r], .n_sets = 2},
            .model.path = "gpt2-tiny",
            .train.wanted = true};
        char *text = NULL;
        assert_int_equal(sw_plan_stages_text(&o, 2, false, &text), SW_E_CONFIG);
    }
}

static void training_wants_the_weights(void **state)
{
    (void)state;
    const struct sw_engine_options o = {
        .config.text = config_json, .model.path = test_folder(), .train.wanted = true};
    sw_engine *e = NULL;
    assert_int_equal(sw_initialize(&o, &e), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "model.safetensors"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_model_larger_than_the_machine),
    cmocka_unit_test(models_from_a_hundred_million_on),
    cmocka_unit_test(what_fits_is_what_a_run_would_find),
    cmocka_unit_test(text_marks_the_stage_and_the_budget),
    cmocka_unit_test(a_stage_that_refuses_a_key_leaves_the_others),
    cmocka_unit_test(training_wants_the_weights),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = open_folder,
                                      .teardown = close_folder};
