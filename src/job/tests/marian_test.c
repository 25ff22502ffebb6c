// SPDX-License-Identifier: Apache-2.0
// A translator of the Marian family, whose sources and targets have SentencePiece models of their
// own: it trains on pairs, its folder has the files of both, and eval and generate write the same
// texts.
#include <stdlib.h>

#include "base/base.h"
#include "json/json.h"
#include "spillway/train.h"
#include "support/scratch.h"
#include "support/test.h"

static const char words[] = "tests/cases/marian_tokenizer";
static const char *const sources[] = {">>fra<< the sun", "roll of the", "went there"};
static const char *const targets[] = {"the sun", "went", "sun of roll"};

static int write_files(void **state)
{
    struct sw_str lines = {0};
    (void)state;
    for (size_t i = 0; i < SW_LEN(sources); i++) {
        sw_str_printf(&lines, "{\"source\": \"%s\", \"target\": \"%s\"}\n", sources[i], targets[i]);
    }
    test_put("pairs.jsonl", sw_str_text(&lines));
    sw_str_fini(&lines);
    test_put("marian.json",
             "{\"model_type\": \"marian\", \"architectures\": [\"MarianMTModel\"], "
             "\"vocab_size\": 287, \"d_model\": 16, \"encoder_layers\": 1, \"decoder_layers\": 1, "
             "\"encoder_attention_heads\": 2, \"decoder_attention_heads\": 2, "
             "\"encoder_ffn_dim\": 24, \"decoder_ffn_dim\": 24, \"max_position_embeddings\": 24, "
             "\"init_std\": 0.5, \"pad_token_id\": 285, \"eos_token_id\": 0, "
             "\"decoder_start_token_id\": 285, \"bad_words_ids\": [[285]]}");
    return 0;
}

static void train(void)
{
    static const char *const sets[] = {
        "train_micro_batch_size_per_gpu=3",
        "optimizer={\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}"};
    const char *data = test_at("pairs.jsonl");
    struct sw_train_result result = {0};
    bool started;
    FILE *quiet = fopen("/dev/null", "w");
    const struct sw_train_options o = {.model = test_at("marian.json"),
                                       .tokenizer = words,
                                       .data = &data,
                                       .n_data = 1,
                                       .val_data = &data,
                                       .n_val_data = 1,
                                       .eval_every = 3,
                                       .task = {.name = "seq2seq", .target_len = 12},
                                       .output = test_at("run"),
                                       .steps = 3,
                                       .seq_len = 16,
                                       .sets = sets,
                                       .n_sets = SW_LEN(sets),
                                       .sample_every = 3,
                                       .sample_prompt = sources[0],
                                       .export_dtype = -1};
    if (sw_train(&o, quiet, &started, &result) < 0) {
        fail_msg("%s", sw_error_message());
    }
    fclose(quiet);
}

static void check_folder(void)
{
    static const char *const names[] = {"source.spm", "target.spm", "vocab.json",
                                        "tokenizer_config.json"};
    for (size_t i = 0; i < SW_LEN(names); i++) {
        char path[64], *a, *b;
        size_t n_a, n_b;
        snprintf(path, sizeof path, "%s/%s", words, names[i]);
        assert_int_equal(sw_file_read(path, &a, &n_a), SW_OK);
        snprintf(path, sizeof path, "run/model/%s", names[i]);
        assert_int_equal(sw_file_read(test_at(path), &b, &n_b), SW_OK);
        assert_int_equal(n_a, n_b);
        assert_memory_equal(a, b, n_a);
        sw_free(a);
        sw_free(b);
    }
}

static void predict(const char *file)
{
    const char *data = test_at("pairs.jsonl");
    bool started;
    FILE *quiet = fopen("/dev/null", "w");
    const struct sw_eval_options o = {.model = test_at("run/model"),
                                      .data = &data,
                                      .n_data = 1,
                                      .task.target_len = 12,
                                      .batch = 3,
                                      .seq_len = 16,
                                      .predictions = file};
    if (sw_eval(&o, quiet, &started) < 0) {
        fail_msg("%s", sw_error_message());
    }
    fclose(quiet);
}

/* The texts of all sources, a line each. Owned by the caller. */
static char *generate(void)
{
    char lines[128] = "", *text = NULL;
    size_t len;
    bool started;
    FILE *to = open_memstream(&text, &len);
    for (size_t i = 0; i < SW_LEN(sources); i++) {
        snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%s\n", sources[i]);
    }
    const struct sw_generate_options o = {
        .model = test_at("run/model"), .in = fmemopen(lines, strlen(lines), "r"), .tokens = 12};
    if (sw_generate_text(&o, to, &started) < 0) {
        fail_msg("%s", sw_error_message());
    }
    fclose(o.in);
    fclose(to);
    return text;
}

static void texts_are_those_of_the_targets_model(void **state)
{
    char *lines, *next;
    size_t len;
    (void)state;
    train();
    check_folder();
    const char *file = test_at("predictions.jsonl");
    predict(file);
    assert_int_equal(sw_file_read(file, &lines, &len), SW_OK);
    char *text = generate(), *at = text;
    next = lines;
    for (size_t i = 0; i < SW_LEN(sources); i++) {
        struct sw_json_doc *doc;
        const size_t n = strcspn(next, "\n"), n_text = strcspn(at, "\n");
        assert_int_equal(sw_json_parse(file, next, n, SW_JSON_STRICT, &doc), SW_OK);
        const struct sw_json *root = sw_json_root(doc);
        const struct sw_json *prediction = sw_json_get(root, "prediction");
        assert_string_equal(sw_json_get(root, "target")->string, targets[i]);
        assert_int_equal(prediction->string_len, n_text);
        assert_memory_equal(prediction->string, at, n_text);
        sw_json_close(doc);
        next += n + 1;
        at += n_text + 1;
    }
    assert_true(strlen(text) > 2 * SW_LEN(sources));
    free(text);
    sw_free(lines);
}

/* As for programs of their own, which may have no tokenizer. */
static void rules_come_from_config_json(void **state)
{
    (void)state;
    struct sw_writing *writing;
    struct sw_sampling sampling = {0};
    assert_int_equal(sw_writing_open(test_at("marian.json"), NULL, &sampling, &writing), SW_OK);
    sw_writing_apply(writing, 5, true, &sampling);
    assert_int_equal(sampling.n_stop_ids, 1);
    assert_int_equal(sampling.stop_ids[0], 0);
    assert_int_equal(sampling.rules->start_id, 285);
    assert_int_equal(sampling.rules->n_never, 1);
    assert_int_equal(sampling.rules->never[0], 285);
    sw_writing_close(writing);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rules_come_from_config_json),
    cmocka_unit_test(texts_are_those_of_the_targets_model),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = write_files};
