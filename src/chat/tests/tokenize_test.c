// SPDX-License-Identifier: Apache-2.0
// Lines of text to lines of ids and back, plain and as JSON; what is refused names its line.
#include "chat/chat.h"

#include "support/chat_tokenizer.h"
#include "support/test.h"

static sw_tokenizer *tokenizer;

static void check_stream(struct sw_tokenize_options options, const char *in, sw_status wanted,
                         const char *text)
{
    char *written = NULL;
    size_t len;
    FILE *from = fmemopen((void *)in, strlen(in), "r"), *to = open_memstream(&written, &len);
    const bool zero = !options.decode && !options.json && !options.special && !options.name;
    const sw_status st = sw_tokenize_stream(tokenizer, zero ? NULL : &options, from, to);
    fclose(from);
    fclose(to);
    if (st != wanted ||
        (st == SW_OK ? strcmp(written, text) != 0 : strstr(sw_error_message(), text) == NULL)) {
        fail_msg("found %d: '%s' %s", st, written, st < 0 ? sw_error_message() : "");
    }
    free(written);
}

/* Ids of this tokenizer: 'a' 65, 'x' 88, the line end 95, <|im_start|> 96, <|im_end|> 97. */
static void lines_through_a_tokenizer(void **state)
{
    (void)state;
    const struct sw_tokenize_options encode = {.special = true};
    const struct sw_tokenize_options decode = {.decode = true}, json = {.json = true};
    const struct sw_tokenize_options back = {.decode = true, .json = true, .special = true};
    check_stream((struct sw_tokenize_options){0}, "abc\n", SW_OK, "65 66 67\n");
    check_stream(encode, "abc\n\nx", SW_OK, "65 66 67\n\n88\n");
    check_stream(decode, "96 65 66 97\n88 \n", SW_OK, "ab\nx\n");
    check_stream(decode, "65 12x\n", SW_E_FORMAT, "standard input line 1");
    check_stream(decode, "\n9999 88\n", SW_OK, "\nx\n");
    check_stream(decode, "\n-1\n", SW_E_FORMAT, "standard input line 2: the id -1");
    check_stream(encode, "ok\n\xFF\n", SW_E_FORMAT, "line 2");
    check_stream(json, "{\"text\":\"a\\nb\"}\n{\"pair\":[\"x\",\"y\"]}\n", SW_OK,
                 "{\"ids\":[65,95,66]}\n{\"ids\":[88,89]}\n");
    check_stream(back, "{\"ids\":[65,95,96]}\n", SW_OK, "{\"text\":\"a\\n<|im_start|>\"}\n");
    check_stream(json, "{\"txt\":1}\n", SW_E_FORMAT, "line 1");
    check_stream(back, "{\"ids\":[\"a\"]}\n", SW_E_FORMAT, "line 1");
}

/* Targets have ids of their own, and no pairs. */
static void targets_through_marians_tokenizer(void **state)
{
    (void)state;
    const struct sw_tokenize_options json = {.json = true};
    sw_tokenizer *marian = NULL;
    char *written = NULL, wanted[64];
    size_t len;
    struct sw_ids ids = {0};
    static char text[] = "{\"text\":\"tool\"}\n", pair[] = "{\"pair\":[\"a\",\"b\"]}\n";
    assert_int_equal(sw_tokenizer_open("tests/cases/marian_tokenizer", NULL, &marian), SW_OK);
    assert_int_equal(sw_tokenizer_encode_target(marian, "tool", 4, false, &ids), SW_OK);
    FILE *from = fmemopen(text, strlen(text), "r"), *to = open_memstream(&written, &len);
    assert_int_equal(sw_tokenize_targets(marian, &json, from, to), SW_OK);
    fclose(from);
    fclose(to);
    snprintf(wanted, sizeof wanted, "{\"ids\":[%d,%d", ids.ptr[0], ids.ptr[1]);
    assert_memory_equal(written, wanted, strlen(wanted));
    free(written);
    from = fmemopen(pair, strlen(pair), "r");
    to = open_memstream(&written, &len);
    assert_int_equal(sw_tokenize_targets(marian, &json, from, to), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "wanted {\"text\": ..} of strings"));
    fclose(from);
    fclose(to);
    free(written);
    sw_ids_fini(&ids);
    sw_tokenizer_close(marian);
}

static int set_up(void **state)
{
    (void)state;
    tokenizer = test_open_chat_tokenizer(NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sw_tokenizer_close(tokenizer);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(lines_through_a_tokenizer),
    cmocka_unit_test(targets_through_marians_tokenizer),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
