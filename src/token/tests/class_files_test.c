// SPDX-License-Identifier: Apache-2.0
// The files beside vocab.txt, and beside vocab.json and merges.txt: added tokens, special tokens,
// and the class. The ids in tests/cases/class_files are those of transformers 5.24, except for
// RoBERTa's <mask>, which takes the space before it as in the tokenizer.json of its models.
#include <string.h>

#include "json/json.h"
#include "support/files.h"
#include "support/scratch.h"
#include "support/test.h"
#include "token/token.h"

static const char *const all[] = {"vocab.json",
                                  "merges.txt",
                                  "vocab.txt",
                                  "tokenizer_config.json",
                                  "special_tokens_map.json",
                                  "added_tokens.json",
                                  "config.json"};

/* Leaves the scratch folder with vocab.json and merges.txt, or with vocab.txt, and no file more. */
static void put_vocabulary(bool is_pair)
{
    struct sw_json_doc *doc;
    for (size_t i = 0; i < SW_LEN(all); ++i) {
        remove(sw_test_write_text(0, all[i], ""));
    }
    assert_int_equal(
        sw_json_read("tests/cases/class_files/vocabularies.json", SW_JSON_STRICT, &doc), SW_OK);
    for (const struct sw_json *file = sw_json_root(doc)->first; file; file = file->next) {
        if (is_pair == (strcmp(file->key, "vocab.txt") != 0)) {
            sw_test_write(0, file->key, file->string, file->string_len);
        }
    }
    sw_json_close(doc);
}

static bool is_missing(void)
{
    return strstr(sw_error_message(), "utf8proc") || strstr(sw_error_message(), "PCRE2");
}

static void put_object(const char *name, const struct sw_json *object)
{
    struct sw_str text = {0};
    if (object->n_children > 0) {
        sw_json_write(object, 0, &text);
        sw_test_write(0, name, text.ptr, text.len);
    }
    sw_str_fini(&text);
}

static void put_case(const struct sw_json *one)
{
    struct sw_str model = {0};
    put_vocabulary(sw_json_get(one, "kind")->string[0] == 'p');
    put_object("tokenizer_config.json", sw_json_get(one, "settings"));
    put_object("special_tokens_map.json", sw_json_get(one, "map"));
    put_object("added_tokens.json", sw_json_get(one, "added"));
    sw_str_printf(&model, "{\"tokenizer_class\": \"%s\"}", sw_json_get(one, "class")->string);
    sw_test_write(0, "config.json", model.ptr, model.len);
    sw_str_fini(&model);
}

static void check_rows(const char *folder, const struct sw_json *one)
{
    struct sw_tokenizer *tokenizer;
    assert_int_equal(sw_tokenizer_open(folder, NULL, &tokenizer), SW_OK);
    for (const struct sw_json *row = sw_json_get(one, "rows")->first; row; row = row->next) {
        struct sw_ids ids = {0};
        const struct sw_json *text = sw_json_get(row, "text"), *wanted = sw_json_get(row, "ids");
        assert_int_equal(sw_tokenizer_encode(tokenizer, text->string, text->string_len, true, &ids),
                         SW_OK);
        int64_t i = 0;
        for (const struct sw_json *id = wanted->first; id; id = id->next, i++) {
            if (i >= ids.len || ids.ptr[i] != id->integer) {
                fail_msg("%s: '%s': id %lld is %d, wanted %lld", sw_json_get(one, "class")->string,
                         text->string, (long long)i, i < ids.len ? ids.ptr[i] : -1,
                         (long long)id->integer);
            }
        }
        assert_int_equal(ids.len, wanted->n_children);
        sw_ids_fini(&ids);
    }
    sw_tokenizer_close(tokenizer);
}

/* The folder, and another one that the tokenizer was saved to with the model's config.json. */
static bool check_case(const struct sw_json *one)
{
    struct sw_tokenizer *tokenizer;
    struct sw_str saved = {0}, model = {0};
    put_case(one);
    if (sw_tokenizer_open(test_folder(), NULL, &tokenizer) < 0) {
        if (!is_missing()) {
            fail_msg("%s", sw_error_message());
        }
        return false;
    }
    check_rows(test_folder(), one);
    sw_str_printf(&saved, "%s/saved", test_folder());
    sw_tokenizer_remove(saved.ptr);
    assert_int_equal(sw_mkdirs(saved.ptr), SW_OK);
    assert_int_equal(sw_tokenizer_save(tokenizer, saved.ptr), SW_OK);
    sw_str_printf(&model, "{\"tokenizer_class\": \"%s\"}", sw_json_get(one, "class")->string);
    sw_test_write(0, "saved/config.json", model.ptr, model.len);
    check_rows(saved.ptr, one);
    sw_tokenizer_close(tokenizer);
    sw_str_fini(&saved);
    sw_str_fini(&model);
    return true;
}

static void ids_are_those_of_the_class(void **state)
{
    (void)state;
    char *text;
    size_t len;
    int n = 0, n_missing = 0;
    assert_int_equal(sw_file_read("tests/cases/class_files/rows.jsonl", &text, &len), SW_OK);
    for (size_t at = 0; at < len; ++n) {
        struct sw_json_doc *doc = NULL;
        const size_t end = (size_t)((char *)memchr(text + at, '\n', len - at) - text);
        assert_int_equal(sw_json_parse("rows.jsonl", text + at, end - at, SW_JSON_STRICT, &doc),
                         SW_OK);
        n_missing += !check_case(sw_json_root(doc));
        sw_json_close(doc);
        at = end + 1;
    }
    assert_int_equal(n, 17);
    sw_free(text);
    if (n_missing > 0) {
        print_message("%d of %d classes want utf8proc or PCRE2\n", n_missing, n);
        skip();
    }
}

static void special_tokens_have_their_flag(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer;
    put_vocabulary(true);
    sw_test_write_text(2, "added_tokens.json", "{\"<x>\": 15, \"<y>\": 16}");
    sw_test_write_text(3, "special_tokens_map.json", "{\"additional_special_tokens\": [\"<y>\"]}");
    if (sw_tokenizer_open(test_folder(), NULL, &tokenizer) < 0) {
        assert_true(is_missing());
        skip();
    }
    assert_int_equal(tokenizer->vocab_size, 17);
    assert_false(tokenizer->ops->special->is_special(tokenizer, 15));
    assert_true(tokenizer->ops->special->is_special(tokenizer, 16));
    assert_true(tokenizer->ops->special->is_special(tokenizer, 11));
    sw_tokenizer_close(tokenizer);
}

static void other_classes_and_damaged_files_are_named(void **state)
{
    (void)state;
    static const struct {
        bool is_pair;
        const char *name, *text, *why;
    } cases[] = {
        {true, "config.json", "{\"model_type\": \"ctrl\"}",
         "the model_type ctrl is not built for vocab.json and merges.txt; classes there are GPT2 "},
        {true, "tokenizer_config.json", "{\"tokenizer_class\": \"BlenderbotSmallTokenizer\"}",
         "the class BlenderbotSmallTokenizer is not built for vocab.json"},
        {true, "tokenizer_config.json", "{\"tokenizer_class\": \"CLIPTokenizer\"}",
         "the class CLIPTokenizer is not built"},
        {true, "added_tokens.json", "{\"<x>\": \"15\"}",
         "added_tokens.json:1: the id of '<x>' is a string, wanted a number"},
        {true, "added_tokens.json", "{\"<x>\": 4}", "added_tokens.json: added token '<x>'"},
        {true, "added_tokens.json", "[]", "wanted an object"},
        {false, "config.json", "{\"model_type\": \"funnel\"}",
         "vocab.txt: the model_type funnel is not built for vocab.txt"},
        {false, "tokenizer_config.json", "{\"tokenizer_class\": \"BertJapaneseTokenizer\"}",
         "the class BertJapaneseTokenizer is not built"},
        {false, "added_tokens.json", "[]", "added_tokens.json is an array, wanted an object"},
        {false, "special_tokens_map.json", "{\"mask_token\": 7}",
         "special_tokens_map.json:1: a special token is an integer, wanted a string"},
        {false, "special_tokens_map.json", "{\"additional_special_tokens\": 7}",
         "special_tokens_map.json:1: additional_special_tokens is an integer, wanted a list"},
    };
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        struct sw_tokenizer *tokenizer;
        put_vocabulary(cases[i].is_pair);
        sw_test_write_text(2, cases[i].name, cases[i].text);
        assert_true(sw_tokenizer_open(test_folder(), NULL, &tokenizer) < 0);
        if (!strstr(sw_error_message(), cases[i].why) && !is_missing()) {
            fail_msg("\"%s\" without \"%s\"", sw_error_message(), cases[i].why);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ids_are_those_of_the_class),
    cmocka_unit_test(special_tokens_have_their_flag),
    cmocka_unit_test(other_classes_and_damaged_files_are_named),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
