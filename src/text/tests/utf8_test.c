// SPDX-License-Identifier: Apache-2.0
// UTF-8: every code point round-trips, every ill-formed pair of bytes is refused, and repair
// replaces maximal parts.
#include "text/text.h"

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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_code_point_returns),
    cmocka_unit_test(bad_bytes_are_named),
    cmocka_unit_test(repair_is_by_maximal_parts),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
