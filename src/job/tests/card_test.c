// SPDX-License-Identifier: Apache-2.0
// Model cards: an export has its own README.md, made from the run's record. It takes only the
// license from the base's card, and leaves out what was not recorded.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "spillway/checkpoint.h"
#include "spillway/engine.h"
#include "spillway/train.h"
#include "support/fixtures.h"
#include "support/scratch.h"
#include "support/test.h"

static FILE *quiet;

/* Trains a model for one step. sets: edits of the configuration. */
static void train(const char *model, const char *output, const char *const *sets, int n_sets)
{
    struct sw_train_result result;
    bool started;
    const char *data = test_at("text.txt");
    const struct sw_train_options o = {.model = model,
                                       .data = &data,
                                       .n_data = 1,
                                       .output = test_at(output),
                                       .steps = 1,
                                       .seq_len = 8,
                                       .eval_every = 1,
                                       .eval_batches = 1,
                                       .sets = sets,
                                       .n_sets = n_sets,
                                       .quiet = true,
                                       .export_dtype = -1};
    if (sw_train(&o, quiet, &started, &result) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

static void export_run(const char *path, const char *to, bool merge)
{
    const struct sw_checkpoint_export_options o = {
        .path = test_at(path), .folder = test_at(to), .merge = merge, .dtype = -1};
    if (sw_checkpoint_export(&o, quiet) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

static void card_has(const char *name, const char *const *wanted, const char *const *unwanted)
{
    char *text = test_text(name);
    for (; *wanted; wanted++) {
        if (!strstr(text, *wanted)) {
            fail_msg("%s lacks \"%s\":\n%s", name, *wanted, text);
        }
    }
    for (; *unwanted; unwanted++) {
        if (strstr(text, *unwanted)) {
            fail_msg("%s has \"%s\":\n%s", name, *unwanted, text);
        }
    }
    sw_free(text);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void a_card_says_what_the_run_recorded(void **state)
{
    (void)state;
    train("gpt2-tiny", "first", NULL, 0);
    card_has("first/model/README.md",
             WORDS("---\nlibrary_name: \"transformers\"\ntags:\n- \"spillway\"\n- \"causal\"\n"
                   "datasets:\n- \"text.txt\"\n---\n",
                   "Trained from nothing: `gpt2-tiny`", "| optimizer | AdamW |",
                   "| learning rate | 0.001 |", "| samples of a step | 8 |", "| steps | 1 |",
                   "| seed | 42 |", "| weights | f32 |", "| training loss | ",
                   " | 8 of 19 rows of the validation data |"),
             WORDS("base_model", "license"));
}

/* The card of an exported checkpoint equals the one that the training wrote, byte for byte. */
static void a_card_names_the_base_and_its_license(void **state)
{
    (void)state;
    test_put("first/model/README.md", "---\ntags:\n- old\nlicense: other # theirs\n"
                                      "license_name: 'their own'\nlicense_link: LICENSE\n---\n"
                                      "# The card of the base\n");
    train(test_at("first/model"), "plain", NULL, 0);
    card_has("plain/model/README.md",
             WORDS("base_model: \"model\"\n", "Fine-tuned from `model`",
                   "license: \"other\"\nlicense_name: \"their own\"\nlicense_link: \"LICENSE\"\n"),
             WORDS("The card of the base", "- old", "theirs"));
    test_put("first/model/README.md",
             "---\r\nlicense:   other \r\nlicense_name: 'their own'\r\n---\r\n"
             "# The card of the base\n");
    train(test_at("first/model"), "second", NULL, 0);
    static const char *const license =
        "base_model: \"model\"\nlibrary_name: \"transformers\"\nlicense: \"other\"\n"
        "license_name: \"their own\"\ntags:";
    card_has("second/model/README.md", WORDS(license),
             WORDS("The card of the base", "license_link"));
    export_run("second", "again", false);
    char *one = test_text("second/model/README.md"), *two = test_text("again/README.md");
    assert_string_equal(one, two);
    sw_free(one);
    sw_free(two);
    assert_int_equal(unlink(test_at("second/run.json")), 0);
    assert_int_equal(unlink(test_at("second/metrics.jsonl")), 0);
    export_run("second", "unknown", false);
    card_has("unknown/README.md", WORDS("- \"text.txt\"", "| steps | 1 |", "| validation loss | "),
             WORDS("base_model", "license", "training loss", "Task:", "Fine-tuned"));
}

static void an_adapter_has_the_card_of_an_adapter(void **state)
{
    (void)state;
    static const char *const sets[] = {"spillway.lora.target_modules=all-linear"};
    train(test_at("first/model"), "lora", sets, 1);
    card_has("lora/adapter/README.md",
             WORDS("base_model: \"model\"\nlibrary_name: \"peft\"\nlicense: \"other\"\n",
                   "- \"lora\"\n", "# LoRA adapter", "Its base is `model`"),
             WORDS("The card of the base"));
    export_run("lora", "whole", true);
    card_has("whole/README.md", WORDS("library_name: \"transformers\"", "Fine-tuned from `model`"),
             WORDS("The card of the base", "\"lora\""));
    export_run("lora/adapter", "added", true);
    card_has("added/README.md",
             WORDS("base_model: \"model\"\n", "license: \"other\"\n", "the adapter `adapter`"),
             WORDS("The card of the base", "datasets"));
}

/* An engine knows no run, so its export has no card. A card of the base, or of an earlier export,
 * is not kept. */
static void an_export_of_an_engine_has_no_card(void **state)
{
    (void)state;
    sw_engine *engine;
    const struct sw_engine_options o = {.config.text = "{\"train_batch_size\": 1}",
                                        .model.path = test_at("first/model"),
                                        .evaluate.loss = true};
    if (sw_initialize(&o, &engine) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(access(test_at("first/model/README.md"), F_OK), 0);
    assert_int_equal(access(test_at("plain/model/README.md"), F_OK), 0);
    for (int i = 0; i < 2; i++) { /* the second export finds no card */
        assert_int_equal(sw_export(engine, test_at("plain/model"), SW_DTYPE_COUNT), SW_OK);
        assert_int_equal(access(test_at("plain/model/README.md"), F_OK), -1);
    }
    sw_close(engine);
}

/* A foreign folder is refused before its README is touched. */
static void another_folder_keeps_its_readme(void **state)
{
    (void)state;
    assert_int_equal(sw_mkdirs(test_at("mine")), SW_OK);
    test_put("mine/README.md", "mine\n");
    const struct sw_checkpoint_export_options o = {
        .path = test_at("first"), .folder = test_at("mine"), .dtype = -1};
    assert_int_equal(sw_checkpoint_export(&o, quiet), SW_E_ARG);
    char *text = test_text("mine/README.md");
    assert_string_equal(text, "mine\n");
    sw_free(text);
}

static int set_up(void **state)
{
    (void)state;
    struct sw_str text = {0};
    quiet = fopen("/dev/null", "w");
    if (!quiet) {
        return 1;
    }
    for (int i = 0; i < 100; i++) {
        sw_str_printf(&text, "day %d, %d stones.", i % 7, i * 7 % 10);
    }
    test_put("text.txt", sw_str_text(&text));
    sw_str_fini(&text);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fclose(quiet);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_card_says_what_the_run_recorded),
    cmocka_unit_test(a_card_names_the_base_and_its_license),
    cmocka_unit_test(an_adapter_has_the_card_of_an_adapter),
    cmocka_unit_test(an_export_of_an_engine_has_no_card),
    cmocka_unit_test(another_folder_keeps_its_readme),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
