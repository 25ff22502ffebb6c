// SPDX-License-Identifier: Apache-2.0
// Texts with the code of their language: those that a model reads and those that it writes, by the
// classes of mBART and mBART-50. The ids are those of transformers 5.24.
#include <string.h>

#include "support/files.h"
#include "support/scratch.h"
#include "support/test.h"
#include "token/token.h"

static const char vocabulary[] =
    "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": "
    "{\"type\": \"Metaspace\"}, \"decoder\": {\"type\": \"Metaspace\"}, \"post_processor\": "
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": "
    "0}}, {\"SpecialToken\": {\"id\": \"</s>\", \"type_id\": 0}}], \"pair\": [{\"Sequence\": "
    "{\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], "
    "\"special_tokens\": {\"</s>\": {\"id\": \"</s>\", \"ids\": [2], \"tokens\": [\"</s>\"]}}}, "
    "\"model\": {\"type\": \"Unigram\", \"unk_id\": 3, \"vocab\": [[\"<s>\", 0], [\"<pad>\", 0], "
    "[\"</s>\", 0], [\"<unk>\", 0], [\"\u2581a\", -1], [\"\u2581b\", -1.5], [\"\u2581\", -2], "
    "[\"ar_AR\", 0], [\"cs_CZ\", 0], [\"de_DE\", 0], [\"en_XX\", 0], [\"ro_RO\", 0]]}}";

static void check(const struct sw_ids *ids, const char *wanted)
{
    struct sw_str found = {0};
    for (int64_t i = 0; i < ids->len; i++) {
        sw_str_printf(&found, "%s%d", i ? " " : "", ids->ptr[i]);
    }
    assert_string_equal(sw_str_text(&found), wanted);
    sw_str_fini(&found);
}

static sw_status open_with(const char *settings, const char *model,
                           const struct sw_tokenizer_options *options, struct sw_tokenizer **out)
{
    sw_test_write_text(0, "tokenizer.json", vocabulary);
    sw_test_write_text(1, "tokenizer_config.json", settings);
    sw_test_write_text(2, "config.json", model);
    return sw_tokenizer_open(test_folder(), options, out);
}

static void a_target_has_the_code_of_its_language(void **state)
{
    (void)state;
    static const char both[] = "{\"src_lang\": \"de_DE\", \"tgt_lang\": \"ro_RO\"}";
    static const struct {
        const char *settings, *model, *source, *target, *pair;
        bool no_bos;
    } cases[] = {
        {both, "{\"model_type\": \"mbart\"}", "4 5 2 9", "4 5 2 11", "4 5 2 9", false},
        {"{\"tokenizer_class\": \"MBartTokenizerFast\", \"tgt_lang\": \"ro_RO\"}", "{}", "4 5 2 10",
         "4 5 2 11", "4 5 2 10", false},
        {"{\"tokenizer_class\": \"MBart50Tokenizer\", \"src_lang\": \"de_DE\", "
         "\"tgt_lang\": \"ro_RO\"}",
         "{\"model_type\": \"mbart\"}", "9 4 5 2", "11 4 5 2", "9 4 5 2", false},
        {"{\"tokenizer_class\": \"MBart50Tokenizer\", \"tgt_lang\": \"ro_RO\"}", "{}", "4 5 2",
         "4 5 2", "4 5 2", true},
        {both, "{\"model_type\": \"bart\"}", "4 5 2", "4 5 2", "4 5", false},
    };
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        const struct sw_tokenizer_options options = {.no_bos = cases[i].no_bos};
        struct sw_tokenizer *tokenizer;
        struct sw_ids source = {0}, target = {0}, pair = {0};
        assert_int_equal(open_with(cases[i].settings, cases[i].model, &options, &tokenizer), SW_OK);
        assert_int_equal(sw_tokenizer_encode(tokenizer, "a b", 3, true, &source), SW_OK);
        assert_int_equal(sw_tokenizer_encode_target(tokenizer, "a b", 3, true, &target), SW_OK);
        assert_int_equal(sw_tokenizer_encode_pair(tokenizer, "a", 1, "b", 1, true, &pair, NULL),
                         SW_OK);
        check(&source, cases[i].source);
        check(&target, cases[i].target);
        check(&pair, cases[i].pair);
        sw_ids_fini(&source);
        sw_ids_fini(&target);
        sw_ids_fini(&pair);
        sw_tokenizer_close(tokenizer);
    }
}

static void an_unknown_code_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *why;
    } cases[] = {
        {"{\"src_lang\": \"xx\"}", "tokenizer_config.json: src_lang is \"xx\", wanted the code"},
        {"{\"tgt_lang\": \"</t>\"}", "tgt_lang is \"</t>\", wanted the code"},
        {"{\"tgt_lang\": 7}", "tgt_lang"},
    };
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        struct sw_tokenizer *tokenizer;
        assert_true(open_with(cases[i].settings, "{\"model_type\": \"mbart\"}", NULL, &tokenizer) <
                    0);
        if (!strstr(sw_error_message(), cases[i].why)) {
            fail_msg("\"%s\" without \"%s\"", sw_error_message(), cases[i].why);
        }
    }
}

/* A model of mBART's family that was trained with another vocabulary. */
static void a_vocabulary_without_codes_has_its_own_template(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer;
    struct sw_str folder = {0};
    struct sw_ids ids = {0};
    sw_str_printf(&folder, "%s/letters", test_folder());
    assert_int_equal(sw_mkdirs(folder.ptr), SW_OK);
    sw_test_write_text(0, "letters/chars.json", "[\"a\", \"b\"]");
    sw_test_write_text(1, "letters/config.json", "{\"model_type\": \"mbart\"}");
    assert_int_equal(sw_tokenizer_open(folder.ptr, NULL, &tokenizer), SW_OK);
    assert_false(tokenizer->has_languages);
    assert_int_equal(sw_tokenizer_encode(tokenizer, "ab", 2, true, &ids), SW_OK);
    check(&ids, "0 1");
    sw_tokenizer_close(tokenizer);
    sw_ids_fini(&ids);
    sw_str_fini(&folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_target_has_the_code_of_its_language),
    cmocka_unit_test(an_unknown_code_is_refused),
    cmocka_unit_test(a_vocabulary_without_codes_has_its_own_template),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
