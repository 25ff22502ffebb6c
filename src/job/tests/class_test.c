// SPDX-License-Identifier: Apache-2.0
// A tokenizer's folder that names no class, and a model whose model_type implies one: the exported
// folder makes the ids that the model was trained with.
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "json/json.h"
#include "spillway/data.h"
#include "spillway/train.h"
#include "support/scratch.h"
#include "support/test.h"

static const char text[] = "the ship sails <mask> a</s> b";
static const char vocab[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nship\na\nb\n<s>\n</s>\n<pad>\n"
    "<mask>\nsails\n<\n>\n/\ns\n##s\nmask\n[UNK]2\n";

static int n_runs;

/* A file in the folder of the last run. */
static const char *of_run(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "run%d%s%s", n_runs, *name ? "/" : "", name);
    return test_at(path);
}

/* Leaves "words/" with one file. */
static void put_words(const char *name, const char *bytes, size_t len)
{
    static const char *const names[] = {"words/tokenizer.model", "words/vocab.txt",
                                        "words/tokenizer_config.json"};
    for (size_t i = 0; i < SW_LEN(names); ++i) {
        remove(test_at(names[i]));
    }
    assert_int_equal(sw_mkdirs(test_at("words")), SW_OK);
    assert_int_equal(sw_file_write_atomic(test_at(name), bytes, len), SW_OK);
}

/* Leaves "words/" with vocab.txt. False: the build lacks the library that it needs. */
static bool put_vocab(void)
{
    sw_tokenizer *tokenizer = NULL;
    put_words("words/vocab.txt", vocab, sizeof vocab - 1);
    const bool opens = sw_tokenizer_open(test_at("words"), NULL, &tokenizer) >= 0;
    sw_tokenizer_close(tokenizer);
    assert_true(opens || strstr(sw_error_message(), "utf8proc"));
    return opens;
}

static void train(const char *model)
{
    static const char *const sets[] = {"train_micro_batch_size_per_gpu=1"};
    const char *data = test_at("lines.jsonl");
    struct sw_train_result result = {0};
    bool started;
    FILE *quiet = fopen("/dev/null", "w");
    test_put("lines.jsonl", "{\"text\": \"the ship\", \"label\": 0}\n"
                            "{\"text\": \"a b a\", \"label\": 1}\n");
    test_put("model.json", model);
    n_runs++;
    const struct sw_train_options o = {.model = test_at("model.json"),
                                       .tokenizer = test_at("words"),
                                       .data = &data,
                                       .n_data = 1,
                                       .task = {.name = "classify"},
                                       .output = of_run(""),
                                       .steps = 2,
                                       .seq_len = 8,
                                       .sets = sets,
                                       .n_sets = SW_LEN(sets),
                                       .export_dtype = -1};
    if (sw_train(&o, quiet, &started, &result) < 0) {
        fail_msg("%s", sw_error_message());
    }
    fclose(quiet);
}

static void encode(const char *folder, bool pair, struct sw_ids *ids, struct sw_ids *types)
{
    sw_tokenizer *tokenizer;
    if (sw_tokenizer_open(folder, NULL, &tokenizer) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(pair ? sw_tokenizer_encode_pair(tokenizer, text, sizeof text - 1, "a b", 3,
                                                     true, ids, types)
                          : sw_tokenizer_encode(tokenizer, text, sizeof text - 1, true, ids),
                     SW_OK);
    sw_tokenizer_close(tokenizer);
}

static void check_same(const struct sw_ids *a, const struct sw_ids *b)
{
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->ptr, b->ptr, (size_t)a->len * sizeof *a->ptr);
}

static void check_export(const char *class)
{
    struct sw_json_doc *doc;
    for (int pair = 0; pair < 2; ++pair) {
        struct sw_ids ids[2] = {{0}, {0}}, types[2] = {{0}, {0}};
        encode(test_at("words"), pair, &ids[0], &types[0]);
        encode(of_run("model"), pair, &ids[1], &types[1]);
        check_same(&ids[0], &ids[1]);
        if (pair) {
            check_same(&types[0], &types[1]);
        }
        for (int i = 0; i < 2; ++i) {
            sw_ids_fini(&ids[i]);
            sw_ids_fini(&types[i]);
        }
    }
    assert_int_equal(sw_json_read(of_run("model/tokenizer_config.json"), SW_JSON_STRICT, &doc),
                     SW_OK);
    assert_string_equal(sw_json_get(sw_json_root(doc), "tokenizer_class")->string, class);
    sw_json_close(doc);
}

#define SIZES                                                                                      \
    "\"vocab_size\": 200, \"hidden_size\": 16, \"embedding_size\": 16, \"num_hidden_layers\": 1, " \
    "\"num_attention_heads\": 2, \"intermediate_size\": 24, \"max_position_embeddings\": 40, "     \
    "\"pad_token_id\": 0, "
static const char bert[] = "{\"model_type\": \"bert\", \"architectures\": "
                           "[\"BertForSequenceClassification\"], " SIZES "\"num_labels\": 2}";
static const char albert[] = "{\"model_type\": \"albert\", \"architectures\": "
                             "[\"AlbertForSequenceClassification\"], " SIZES "\"num_labels\": 2}";
static const char xlm_roberta[] =
    "{\"model_type\": \"xlm-roberta\", \"architectures\": "
    "[\"XLMRobertaForSequenceClassification\"], " SIZES "\"num_labels\": 2}";
static const char roberta[] = "{\"model_type\": \"roberta\", \"architectures\": "
                              "[\"RobertaForSequenceClassification\"], " SIZES "\"num_labels\": 2}";

static void an_export_names_the_class(void **state)
{
    (void)state;
    const char *const models[] = {albert, xlm_roberta, bert};
    char *bytes;
    size_t len;
    assert_int_equal(sw_file_read("tests/cases/piece_classes/fairseq.model", &bytes, &len), SW_OK);
    for (size_t i = 0; i < SW_LEN(models); ++i) {
        put_words("words/tokenizer.model", bytes, len);
        train(models[i]);
        check_export("PreTrainedTokenizerFast");
        assert_int_not_equal(access(test_at("words/tokenizer_config.json"), F_OK), 0);
    }
    sw_free(bytes);
    if (put_vocab()) {
        train(roberta);
        check_export("BertTokenizer");
    }
}

/* A file that names a class stays byte by byte; another one keeps its other members. */
static void a_named_class_stays(void **state)
{
    (void)state;
    static const char named[] = "{\"tokenizer_class\":   \"MPNetTokenizer\"}";
    char *saved;
    size_t len;
    if (!put_vocab()) {
        skip();
    }
    test_put("words/tokenizer_config.json", named);
    train(bert);
    check_export("MPNetTokenizer");
    assert_int_equal(sw_file_read(of_run("model/tokenizer_config.json"), &saved, &len), SW_OK);
    assert_string_equal(saved, named);
    sw_free(saved);
    test_put("words/tokenizer_config.json",
             "{\"do_lower_case\": false, \"tokenizer_class\": null}");
    train(bert);
    check_export("BertTokenizer");
    struct sw_json_doc *doc;
    assert_int_equal(sw_json_read(of_run("model/tokenizer_config.json"), SW_JSON_STRICT, &doc),
                     SW_OK);
    assert_false(sw_json_get(sw_json_root(doc), "do_lower_case")->boolean);
    sw_json_close(doc);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_export_names_the_class),
    cmocka_unit_test(a_named_class_stays),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
