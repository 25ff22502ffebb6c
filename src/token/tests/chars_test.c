// SPDX-License-Identifier: Apache-2.0
// The tokenizer of characters: ids by code point, saving and opening again, refusals.
#include "token/token.h"

#include "support/files.h"
#include "support/scratch.h"
#include "support/test.h"

static void character_vocabulary(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer, *again;
    struct sw_ids ids = {0};
    char *text;
    assert_int_equal(sw_tokenizer_open_chars("t",
                                             "b\xC3\xA9"
                                             "a\n\"b",
                                             7, &tokenizer),
                     SW_OK);
    assert_int_equal(sw_tokenizer_vocab_size(tokenizer), 5);
    assert_int_equal(sw_tokenizer_eos(tokenizer), -1);
    assert_int_equal(sw_tokenizer_encode(tokenizer, "\"\n\xC3\xA9", 4, true, &ids), SW_OK);
    assert_int_equal(ids.len, 3);
    assert_memory_equal(ids.ptr, ((int32_t[]){1, 0, 4}), 3 * sizeof(int32_t));
    assert_int_equal(sw_tokenizer_save(tokenizer, test_folder()), SW_OK);
    char path[256];
    snprintf(path, sizeof(path), "%s/chars.json", test_folder());
    assert_int_equal(sw_tokenizer_open(path, NULL, &again), SW_OK);
    assert_int_equal(sw_tokenizer_decode(again, ids.ptr, ids.len, false, &text, NULL), SW_OK);
    assert_string_equal(text, "\"\n\xC3\xA9");
    assert_int_equal(sw_tokenizer_find(again, "\xC3\xA9"), 4);
    assert_int_equal(sw_tokenizer_find(again, "ab"), -1);
    sw_text_free(text);
    sw_tokenizer_close(again);
    sw_tokenizer_close(tokenizer);
    sw_ids_fini(&ids);
    assert_int_equal(sw_tokenizer_open_chars("t", "a\xFF", 2, &tokenizer), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "offset 1"));
    assert_int_equal(sw_tokenizer_open_chars("t", "", 0, &tokenizer), SW_E_FORMAT);
    sw_test_write_text(0, "chars.json", "[\"a\",\"bc\"]");
    assert_int_equal(sw_tokenizer_open(path, NULL, &tokenizer), SW_E_FORMAT);
    sw_test_write_text(0, "chars.json", "[\"a\",\"a\"]");
    assert_int_equal(sw_tokenizer_open(path, NULL, &tokenizer), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "U+0061"));
}

static void a_tokenizer_beside_an_onnx_file_is_found(void **state)
{
    struct sw_tokenizer *tokenizer = NULL;
    (void)state;
    test_put("chars.json", "[\"a\",\"b\"]");
    assert_true(sw_tokenizer_is_there(test_at("model.onnx")));
    assert_false(sw_tokenizer_is_there(test_at("model.bin")));
    assert_int_equal(sw_tokenizer_open(test_at("model.onnx"), NULL, &tokenizer), SW_OK);
    assert_int_equal(sw_tokenizer_find(tokenizer, "b"), 1);
    sw_tokenizer_close(tokenizer);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(character_vocabulary),
    cmocka_unit_test(a_tokenizer_beside_an_onnx_file_is_found),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
