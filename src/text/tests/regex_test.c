// SPDX-License-Identifier: Apache-2.0
// Patterns of tokenizer files mean the same as in the reference. Patterns that would differ are
// refused. token/regex_classes compares the character classes.
#include "text/regex.h"

#include "support/test.h"

static struct sw_regex *compile(const char *pattern)
{
    struct sw_regex *regex = NULL;
    if (sw_regex_open(pattern, strlen(pattern), false, &regex) < 0) {
        fail_msg("%s: %s", pattern, sw_error_message());
    }
    return regex;
}

static void check_spans(const char *pattern, const char *text, const char *wanted)
{
    struct sw_str found = {0};
    struct sw_regex *regex = compile(pattern);
    const size_t len = strlen(text);
    for (size_t at = 0, first, end; at < len; at = end) {
        assert_int_equal(sw_regex_find(regex, text, len, at, &first, &end), SW_OK);
        if (first < end) {
            sw_str_printf(&found, "<%.*s>", (int)(end - first), text + first);
        }
    }
    assert_string_equal(sw_str_text(&found), wanted);
    sw_regex_close(regex);
    sw_str_fini(&found);
}

static void patterns_match(void **state)
{
    (void)state;
    check_spans("\\s+(?!\\S)|\\s+", "a   b ", "<  >< >< >");
    check_spans("(?i:'s|'t)", "x's'T'q'\xC5\xBF", "<'s><'T><'\xC5\xBF>");
    check_spans("\\p{N}{1,3}", "12345", "<123><45>");
    check_spans("[a\\s-]", "a-b c", "<a><->< >"); /* a hyphen after a class is a hyphen */
    check_spans("\\u0041\\x42\\x{43}", "ABC", "<ABC>");
    check_spans("[\\[\\]]", "[x]", "<[><]>");
}

static void other_meanings_are_refused(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "\\w+",    "\\bx",  "\\h",    "a$",    "^a",    "[a[b]]", "[a&&b]",
        "(?<n>a)", "(?i)a", "(?m:a)", "a{,3}", "a{2}+", "a{2}?",  "[\\P{L}]",
        "\\pL",    "\\K",   "\\1",    "[]a]",  "\\xE9", "a\\Z",   "(*UCP)a",
    };
    for (size_t i = 0; i < SW_LEN(patterns); ++i) {
        struct sw_str out = {0};
        if (sw_regex_translate(patterns[i], strlen(patterns[i]), &out) != SW_E_UNSUP) {
            fail_msg("%s is not refused", patterns[i]);
        }
        assert_non_null(strstr(sw_error_message(), "is not built"));
        sw_str_fini(&out);
    }
}

static void bad_patterns_are_errors(void **state)
{
    (void)state;
    static const char *const patterns[] = {"(", "a**", "[a", "x*", "a|", "", "\\p{Nonsense}"};
    for (size_t i = 0; i < SW_LEN(patterns); ++i) {
        struct sw_regex *regex = NULL;
        if (sw_regex_open(patterns[i], strlen(patterns[i]), false, &regex) != SW_E_FORMAT) {
            fail_msg("%s is not an error", patterns[i]);
        }
    }
}

/* An exponential pattern ends with an error, a long run of spaces without one. */
static void matching_has_a_limit(void **state)
{
    (void)state;
    const size_t n = 200000;
    char *text = sw_alloc("test", n);
    size_t first, end;
    memset(text, 'a', n);
    struct sw_regex *regex = compile("(?:(?:a|aa)+)+[bc]");
    assert_int_equal(sw_regex_find(regex, text, 100, 0, &first, &end), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "offset 0"));
    sw_regex_close(regex);
    memset(text, ' ', n);
    text[n - 1] = 'x';
    regex = compile("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+");
    assert_int_equal(sw_regex_find(regex, text, n, 0, &first, &end), SW_OK);
    assert_int_equal(end, n - 2);
    sw_regex_close(regex);
    sw_free(text);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(other_meanings_are_refused),
    TEST_IF(SW_HAVE_PCRE2, patterns_match),
    TEST_IF(SW_HAVE_PCRE2, bad_patterns_are_errors),
    TEST_IF(SW_HAVE_PCRE2, matching_has_a_limit),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
