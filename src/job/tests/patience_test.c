// SPDX-License-Identifier: Apache-2.0
// Early stopping: a run ends after a given number of validations without a better one. A run that
// was cut and resumed anywhere ends at the same step with the same bits.
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "json/json.h"
#include "spillway/train.h"
#include "support/fixtures.h"
#include "support/scratch.h"
#include "support/test.h"

enum { EVERY = 2, MOST = 3 };

/* A learning rate at which validation stops improving after the first few. */
static const char *const sets[] = {"train_micro_batch_size_per_gpu=4",
                                   "optimizer={\"type\": \"AdamW\", \"params\": {\"lr\": 1}}"};

static struct sw_train_options options_of(const char *const *data, const char *output)
{
    return (struct sw_train_options){.model = "gpt2-tiny",
                                     .data = data,
                                     .n_data = 1,
                                     .output = output,
                                     .steps = 60,
                                     .seq_len = 8,
                                     .sets = sets,
                                     .n_sets = 2,
                                     .eval_every = EVERY,
                                     .early_stopping = MOST,
                                     .save_every = 3,
                                     .export_dtype = -1,
                                     .quiet = true};
}

/* Trains; `text` receives the output. */
static struct sw_train_result train(const struct sw_train_options *o, char *text, size_t cap)
{
    struct sw_train_result result;
    bool started;
    FILE *out = tmpfile();
    assert_non_null(out);
    if (sw_train(o, out, &started, &result) < 0) {
        fail_msg("%s", sw_error_message());
    }
    rewind(out);
    text[fread(text, 1, cap - 1, out)] = '\0';
    fclose(out);
    return result;
}

/* The last step by the rule, computed from the validations in metrics.jsonl. */
static int64_t last_by_the_rule(const char *output)
{
    char path[200], *text;
    size_t len;
    double best = INFINITY;
    int waited = 0;
    long long step = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", output);
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    for (char *line = strtok(text, "\n"); line && waited < MOST; line = strtok(NULL, "\n")) {
        const char *at = strstr(line, "\"val_loss\":");
        assert_int_equal(sscanf(line, "{\"step\":%lld", &step), 1);
        if (at && strtod(at + 11, NULL) < best) {
            best = strtod(at + 11, NULL);
            waited = 0;
        } else if (at) {
            waited++;
        }
    }
    assert_int_equal(waited, MOST);
    sw_free(text);
    return step;
}

static void same_models(const char *a, const char *b)
{
    char path[2][200], *data[2];
    size_t len[2];
    const char *runs[] = {a, b};
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/model/model.safetensors", runs[i]);
        assert_int_equal(sw_file_read(path[i], &data[i], &len[i]), SW_OK);
    }
    assert_int_equal(len[0], len[1]);
    assert_memory_equal(data[0], data[1], len[0]);
    sw_free(data[0]);
    sw_free(data[1]);
}

static void a_cut_run_ends_as_the_whole_one(void **state)
{
    (void)state;
    char text[8192], path[200], name[16];
    const char *data = test_at("text.txt"), *whole = test_at("w");
    struct sw_train_options o = options_of(&data, whole);
    const struct sw_train_result result = train(&o, text, sizeof text);
    assert_true(result.stopped_early && !result.stopped && result.step < 60);
    assert_int_equal(result.step, last_by_the_rule(whole));
    assert_non_null(strstr(text, "stopped early at step "));
    assert_non_null(strstr(text, "3 validations without a better validation loss than "));
    struct sw_json_doc *run;
    snprintf(path, sizeof path, "%s/run.json", whole);
    assert_int_equal(sw_json_read(path, SW_JSON_STRICT, &run), SW_OK);
    const struct sw_json *end = sw_json_get(sw_json_root(run), "end");
    assert_int_equal(sw_json_get(end, "step")->integer, result.step);
    assert_int_equal(strncmp(sw_json_get(end, "why")->string, "early stopping: 3 ", 18), 0);
    sw_json_close(run);
    for (int64_t cut = 1; cut < result.step; cut += 3) {
        snprintf(name, sizeof name, "cut%d", (int)cut);
        const char *output = test_at(name);
        o = options_of(&data, output);
        o.steps = cut;
        assert_int_equal(train(&o, text, sizeof text).step, cut);
        o.steps = 60;
        o.resume = true;
        assert_int_equal(train(&o, text, sizeof text).step, result.step);
        same_models(whole, output);
    }
    o = options_of(&data, whole); /* a run that has ended stays ended */
    o.resume = true;
    assert_int_equal(train(&o, text, sizeof text).step, result.step);
    o.early_stopping = MOST + 1; /* more patience lets it go on */
    assert_int_equal(train(&o, text, sizeof text).step, result.step + EVERY);
}

static void it_wants_validations(void **state)
{
    (void)state;
    struct sw_train_result result;
    bool started;
    const char *data = test_at("text.txt");
    struct sw_train_options o = options_of(&data, test_at("none"));
    o.eval_every = 0;
    assert_int_equal(sw_train(&o, stdout, &started, &result), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "--early-stopping needs --eval-every"));
}

static int set_up(void **state)
{
    (void)state;
    struct sw_str text = {0};
    for (int i = 0; i < 60; i++) {
        sw_str_printf(&text, "day %d, %d stones.\n", i, i * 7);
    }
    test_put("text.txt", sw_str_text(&text));
    sw_str_fini(&text);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_cut_run_ends_as_the_whole_one),
    cmocka_unit_test(it_wants_validations),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
