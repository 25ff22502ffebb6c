// SPDX-License-Identifier: Apache-2.0
// The character classes of patterns are those of the reference, code point by code point.
#include "json/json.h"
#include "support/files.h"
#include "support/test.h"
#include "text/text.h"

enum { N_CODE_POINTS = 0x110000 };

static struct sw_regex *compile(const char *pattern)
{
    struct sw_regex *regex = NULL;
    if (sw_regex_open(pattern, strlen(pattern), false, &regex) < 0) {
        fail_msg("%s: %s", pattern, sw_error_message());
    }
    return regex;
}

static bool matches(struct sw_regex *regex, int32_t code_point)
{
    char text[4];
    size_t first, end;
    const size_t n = sw_utf8_put(code_point, text);
    assert_int_equal(sw_regex_find(regex, text, n, 0, &first, &end), SW_OK);
    return end == n && first == 0;
}

/* Members of the recorded class, one flag a code point; the caller's (sw_free). */
static bool *recorded(const struct sw_json *ranges)
{
    bool *members = sw_alloc_zero("test", N_CODE_POINTS, sizeof(*members));
    for (const struct sw_json *range = ranges->first; range; range = range->next) {
        for (int64_t c = range->first->integer; c <= range->last->integer; ++c) {
            members[c] = true;
        }
    }
    return members;
}

static void check_class(const struct sw_json *ranges, const char *pattern, bool wanted)
{
    struct sw_regex *regex = compile(pattern);
    bool *members = recorded(ranges);
    int n_wrong = 0;
    for (int32_t c = 0; c < N_CODE_POINTS; ++c) {
        if (c >= 0xD800 && c <= 0xDFFF) {
            continue;
        }
        if (matches(regex, c) != (members[c] == wanted) && n_wrong++ < 5) {
            print_error("%s: U+%04X\n", pattern, (unsigned)c);
        }
    }
    assert_int_equal(n_wrong, 0);
    sw_free(members);
    sw_regex_close(regex);
}

static void classes_are_the_recorded_ones(void **state)
{
    (void)state;
    static const struct {
        const char *key, *pattern;
        bool wanted;
    } cases[] = {
        {"s", "\\s", true},     {"s", "\\S", false},       {"s", "[\\s]", true},
        {"s", "[^\\s]", false}, {"s", "[\\S]", false},     {"L", "\\p{L}", true},
        {"L", "\\P{L}", false}, {"L", "[^\\p{L}]", false}, {"L", "\\p{^L}", false},
        {"N", "\\p{N}", true},  {"N", "[\\p{N}]", true},
    };
    struct sw_json_doc *doc;
    struct sw_str path = {0};
    const char *root = sw_test_fixtures();
    if (!root) {
        skip();
    }
    sw_str_printf(&path, "%s/tokenizers/gpt2/character_classes.json", root);
    if (sw_json_read(path.ptr, SW_JSON_STRICT, &doc) < 0) {
        print_message("skipped: %s\n", sw_error_message());
        sw_str_fini(&path);
        skip();
    }
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        check_class(sw_json_get(sw_json_root(doc), cases[i].key), cases[i].pattern,
                    cases[i].wanted);
    }
    sw_json_close(doc);
    sw_str_fini(&path);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(classes_are_the_recorded_ones),
};

const struct test_program sw_tests = {TEST_TABLE(tests),
                                      .left_out = SW_HAVE_PCRE2 ? NULL : "built without PCRE2"};
