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
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
