// SPDX-License-Identifier: Apache-2.0
// UTF-8: every code point round-trips, every ill-formed pair of bytes is refused, and repair
// replaces maximal parts. The byte alphabet is a bijection.
#include "data/byte_alphabet.h"
#include "data/utf8.h"

#include "support/test.h"

static void every_code_point_returns(void **state)
{
    (void)state;
    for (int32_t c = 0; c < 0x110000; ++c) {
        char bytes[4];
        size_t pos = 0;
        const size_t n = sw_utf8_put(c, bytes);
        const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
        assert_int_equal(sw_utf8_next(bytes, n, &pos), surrogate ? -1 : c);
        assert_int_equal(pos, surrogate ? 0 : n);
        pos = 0;
        assert_int_equal(sw_utf8_next(bytes, n - 1, &pos), -1);
    }
}

static void bad_bytes_are_named(void **state)
{
    (void)state;
    assert_int_equal(sw_utf8_check("x.txt", "ab\xC3\xA9", 4), SW_OK);
    assert_int_equal(sw_utf8_check("x.txt", "ab\xFFz", 4), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "x.txt"));
    assert_non_null(strstr(sw_error_message(), "0xff"));
    assert_non_null(strstr(sw_error_message(), "offset 2"));
    assert_int_equal(sw_utf8_valid_len("\xC0\x80", 2), 0);         /* overlong */
    assert_int_equal(sw_utf8_valid_len("\xED\xA0\x80", 3), 0);     /* surrogate */
    assert_int_equal(sw_utf8_valid_len("\xF4\x90\x80\x80", 4), 0); /* beyond U+10FFFF */
}

#define FFFD "\xEF\xBF\xBD"

/* The examples of the Unicode standard, table 3-8 and its neighbours. */
static void repair_is_by_maximal_parts(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64",
         "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d"},
        {"\xE9", FFFD},
        {"\xE2\x82", FFFD},
        {"\xE2\x82z", FFFD "z"},
        {"\xF0\x9F\x98", FFFD},
        {"\xC0\xAF", FFFD FFFD},
        {"\xED\xA0\x80", FFFD FFFD FFFD},
    };
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        struct sw_str out = {0};
        sw_utf8_append_lossy(&out, cases[i].bytes, strlen(cases[i].bytes));
        assert_string_equal(sw_str_text(&out), cases[i].text);
        sw_str_fini(&out);
    }
}

static void the_byte_alphabet_is_a_bijection(void **state)
{
    (void)state;
    struct sw_byte_alphabet alphabet;
    struct sw_str letters = {0}, bytes = {0};
    char all[256];
    sw_byte_alphabet_init(&alphabet);
    for (int i = 0; i < 256; ++i) {
        all[i] = (char)i;
    }
    sw_byte_alphabet_write(&alphabet, all, 256, &letters);
    sw_byte_alphabet_read(&alphabet, letters.ptr, letters.len, &bytes);
    assert_int_equal(bytes.len, 256);
    assert_memory_equal(bytes.ptr, all, 256);
    static const int known[][2] = {{0x00, 0x100}, {0x0A, 0x10A}, {0x20, 0x120},
                                   {0x7F, 0x121}, {0xAD, 0x143}, {'a', 'a'}};
    for (size_t i = 0; i < SW_LEN(known); ++i) {
        assert_int_equal(alphabet.code_point[known[i][0]], known[i][1]);
    }
    sw_str_clear(&bytes); /* a letter outside the alphabet: text is copied as is */
    sw_byte_alphabet_read(&alphabet, "\xC4\xA0x\xE2\x96\x81", 6, &bytes);
    assert_string_equal(sw_str_text(&bytes), "\xC4\xA0x\xE2\x96\x81");
    sw_str_fini(&letters);
    sw_str_fini(&bytes);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_code_point_returns),
    cmocka_unit_test(bad_bytes_are_named),
    cmocka_unit_test(repair_is_by_maximal_parts),
    cmocka_unit_test(the_byte_alphabet_is_a_bijection),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
