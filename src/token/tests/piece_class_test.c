// SPDX-License-Identifier: Apache-2.0
// Folders with a SentencePiece model and no tokenizer.json, by their class. The ids in
// tests/cases/piece_classes are those of transformers 5.24.
#include <string.h>
#include <sys/stat.h>

#include "json/json.h"
#include "support/files.h"
#include "support/scratch.h"
#include "support/test.h"
#include "token/token.h"

static const char *const names[] = {"spiece.model", "spm.model", "sentencepiece.bpe.model"};

/* Puts one model into the scratch folder, under the name that its class gives it. */
static void put_model(const char *model, const char *name)
{
    struct sw_str path = {0};
    char *bytes;
    size_t len;
    for (size_t i = 0; i < SW_LEN(names); ++i) {
        remove(sw_test_write_text(0, names[i], ""));
    }
    sw_str_printf(&path, "tests/cases/piece_classes/%s.model", model);
    assert_int_equal(sw_file_read(path.ptr, &bytes, &len), SW_OK);
    sw_test_write(0, name, bytes, len);
    sw_free(bytes);
    sw_str_fini(&path);
}

static void check_row(struct sw_tokenizer *tokenizer, const char *class, const struct sw_json *row)
{
    struct sw_ids ids = {0};
    const struct sw_json *pair = sw_json_get(row, "pair"), *target = sw_json_get(row, "target");
    const struct sw_json *text = target ? target : sw_json_get(row, "text");
    const struct sw_json *wanted = sw_json_get(row, "ids");
    const sw_status st =
        pair
            ? sw_tokenizer_encode_pair(tokenizer, pair->first->string, pair->first->string_len,
                                       pair->last->string, pair->last->string_len, true, &ids, NULL)
        : target ? sw_tokenizer_encode_target(tokenizer, text->string, text->string_len, true, &ids)
                 : sw_tokenizer_encode(tokenizer, text->string, text->string_len, true, &ids);
    assert_int_equal(st, SW_OK);
    int64_t i = 0;
    for (const struct sw_json *id = wanted->first; id; id = id->next, i++) {
        if (i >= ids.len || ids.ptr[i] != id->integer) {
            fail_msg("%s: '%s': id %lld is %d, wanted %lld", class,
                     pair ? pair->first->string : text->string, (long long)i,
                     i < ids.len ? ids.ptr[i] : -1, (long long)id->integer);
        }
    }
    assert_int_equal(ids.len, wanted->n_children);
    sw_ids_fini(&ids);
}

/* A build without a library refuses the classes that need it. */
static bool is_missing(void)
{
    return strstr(sw_error_message(), "utf8proc") || strstr(sw_error_message(), "PCRE2");
}

static bool check_class(const struct sw_json *one)
{
    struct sw_str settings = {0};
    struct sw_tokenizer *tokenizer;
    const char *class = sw_json_get(sw_json_get(one, "settings"), "tokenizer_class")->string;
    put_model(sw_json_get(one, "model")->string, sw_json_get(one, "file")->string);
    sw_json_write(sw_json_get(one, "settings"), 0, &settings);
    sw_test_write(1, "tokenizer_config.json", settings.ptr, settings.len);
    sw_str_fini(&settings);
    if (sw_tokenizer_open(test_folder(), NULL, &tokenizer) < 0) {
        if (!is_missing()) {
            fail_msg("%s: %s", class, sw_error_message());
        }
        return false;
    }
    assert_int_equal(tokenizer->vocab_size, sw_json_get(one, "n")->integer);
    for (const struct sw_json *row = sw_json_get(one, "rows")->first; row; row = row->next) {
        check_row(tokenizer, class, row);
    }
    sw_tokenizer_close(tokenizer);
    return true;
}

static void ids_are_those_of_the_class(void **state)
{
    (void)state;
    char *text;
    size_t len;
    int n = 0, n_missing = 0;
    assert_int_equal(sw_file_read("tests/cases/piece_classes/rows.jsonl", &text, &len), SW_OK);
    for (size_t at = 0; at < len;) {
        struct sw_json_doc *doc = NULL;
        const size_t end = (size_t)((char *)memchr(text + at, '\n', len - at) - text);
        assert_int_equal(sw_json_parse("rows.jsonl", text + at, end - at, SW_JSON_STRICT, &doc),
                         SW_OK);
        n_missing += !check_class(sw_json_root(doc));
        sw_json_close(doc);
        at = end + 1;
        n++;
    }
    assert_int_equal(n, 12);
    sw_free(text);
    if (n_missing > 0) {
        print_message("%d of %d classes want utf8proc or PCRE2\n", n_missing, n);
        skip();
    }
}

static void the_model_implies_its_class(void **state)
{
    (void)state;
    static const struct {
        const char *config, *model;
        int size;
    } cases[] = {
        {"{\"model_type\": \"t5\"}", "t5", 100},
        {"{\"model_type\": \"xlm-roberta\"}", "fairseq", 2},
        {"{\"model_type\": \"camembert\"}", "fairseq", 5},
        {"{\"model_type\": \"mbart\"}", "fairseq", 27},
        {"{\"model_type\": \"llama\"}", "fairseq", 0},
        {"{\"model_type\": \"mbart\", \"tokenizer_class\": \"LlamaTokenizer\"}", "fairseq", 0},
        {"{}", "t5", 0},
    };
    sw_test_write_text(1, "tokenizer_config.json", "{}");
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        struct sw_tokenizer *tokenizer, *model;
        struct sw_str path = {0};
        put_model(cases[i].model, names[0]);
        sw_test_write_text(2, "config.json", cases[i].config);
        sw_str_printf(&path, "tests/cases/piece_classes/%s.model", cases[i].model);
        assert_int_equal(sw_tokenizer_open(path.ptr, NULL, &model), SW_OK);
        if (sw_tokenizer_open(test_folder(), NULL, &tokenizer) < 0) {
            assert_true(is_missing());
        } else {
            assert_int_equal(tokenizer->vocab_size - model->vocab_size, cases[i].size);
            sw_tokenizer_close(tokenizer);
        }
        sw_tokenizer_close(model);
        sw_str_fini(&path);
    }
    remove(sw_test_write_text(2, "config.json", "{}"));
}

static void other_classes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *model, *why;
    } cases[] = {
        {"{\"tokenizer_class\": \"XLNetTokenizer\"}", "t5",
         "the class XLNetTokenizer of a SentencePiece model is not built; there are "},
        {"{\"tokenizer_class\": \"T5Tokenizer\", \"extra_ids\": -1}", "t5",
         "tokenizer_config.json: extra_ids is -1, wanted 0 to 10000"},
        {"{\"tokenizer_class\": \"AlbertTokenizer\"}", "deberta",
         "no piece <unk>, wanted the unknown one of the class Albert"},
        {"{\"tokenizer_class\": \"T5Tokenizer\", \"add_prefix_space\": false}", "t5",
         "tokenizer_config.json: add_prefix_space false is not built"},
        {"{\"tokenizer_class\": \"T5Tokenizer\", \"additional_special_tokens\": [7]}", "t5",
         "a special token is an integer, wanted a string"},
    };
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        struct sw_tokenizer *tokenizer;
        put_model(cases[i].model, names[0]);
        sw_test_write_text(1, "tokenizer_config.json", cases[i].settings);
        assert_true(sw_tokenizer_open(test_folder(), NULL, &tokenizer) < 0);
        if (!strstr(sw_error_message(), cases[i].why) && !is_missing()) {
            fail_msg("\"%s\" without \"%s\"", sw_error_message(), cases[i].why);
        }
    }
}

/* A folder that is written from a file of an unusual name can be opened. */
static void a_model_of_any_name_is_found_again(void **state)
{
    (void)state;
    struct sw_tokenizer *one, *two;
    char *bytes;
    size_t len;
    const char *folder = test_at("saved");
    static const char text[] = "the river rose";
    struct sw_ids ids[2] = {0};
    assert_int_equal(sw_file_read("tests/cases/piece_classes/t5.model", &bytes, &len), SW_OK);
    assert_int_equal(mkdir(folder, 0777), 0);
    remove(sw_test_write_text(1, "tokenizer_config.json", "{}"));
    assert_int_equal(sw_tokenizer_open(sw_test_write(0, "words.model", bytes, len), NULL, &one),
                     SW_OK);
    assert_int_equal(sw_tokenizer_save(one, folder), SW_OK);
    if (sw_tokenizer_open(folder, NULL, &two) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(sw_tokenizer_encode(one, text, strlen(text), true, &ids[0]), SW_OK);
    assert_int_equal(sw_tokenizer_encode(two, text, strlen(text), true, &ids[1]), SW_OK);
    assert_int_equal(ids[0].len, ids[1].len);
    assert_memory_equal(ids[0].ptr, ids[1].ptr, (size_t)ids[0].len * sizeof *ids[0].ptr);
    for (int i = 0; i < 2; i++) {
        sw_ids_fini(&ids[i]);
    }
    sw_tokenizer_close(one);
    sw_tokenizer_close(two);
    sw_free(bytes);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ids_are_those_of_the_class),
    cmocka_unit_test(the_model_implies_its_class),
    cmocka_unit_test(other_classes_are_refused),
    cmocka_unit_test(a_model_of_any_name_is_found_again),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
