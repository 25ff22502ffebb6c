// SPDX-License-Identifier: Apache-2.0
// Normalizers: lower case code point by code point as recorded; the normal forms by their laws.
#include "token/normalize.h"

#include "json/json.h"
#include "support/files.h"
#include "support/test.h"
#include "text/text.h"

static void apply(enum sw_normal_form form, const char *text, size_t len, struct sw_str *out)
{
    const struct sw_normalizer normalizer = {.steps = {{.form = form}}, .n_steps = 1};
    assert_int_equal(sw_normalizer_apply(&normalizer, text, len, out), SW_OK);
}

/* Code points that the recorded normalizer treats for other reasons than their case. */
static bool is_listed(const struct sw_json *object, const char *key, int32_t code_point)
{
    const struct sw_json *ranges = sw_json_get(object, key);
    for (const struct sw_json *range = ranges->first; range; range = range->next) {
        if (code_point >= range->first->integer && code_point <= range->last->integer) {
            return true;
        }
    }
    return false;
}

static bool is_compared(const struct sw_json *object, int32_t code_point)
{
    return !(code_point >= 0xD800 && code_point <= 0xDFFF) &&
           !is_listed(object, "removed", code_point) && !is_listed(object, "space", code_point) &&
           !is_listed(object, "spaces_around", code_point);
}

static void lower_case_is_the_recorded_one(void **state)
{
    (void)state;
    struct sw_json_doc *doc;
    struct sw_str path = {0}, out = {0};
    const char *root = sw_test_fixtures();
    int n_wrong = 0;
    if (!root) {
        skip();
    }
    sw_str_printf(&path, "%s/tokenizers/bert/normalizer_map.json", root);
    if (sw_json_read(path.ptr, SW_JSON_STRICT, &doc) < 0) {
        print_message("skipped: %s\n", sw_error_message());
        sw_str_fini(&path);
        skip();
    }
    const struct sw_json *map = sw_json_get(sw_json_root(doc), "lower_keep_accents");
    for (int32_t c = 0; c < 0x110000; ++c) {
        char key[16], text[4];
        const size_t n = sw_utf8_put(c, text);
        snprintf(key, sizeof(key), "%X", (unsigned)c);
        const struct sw_json *changed = sw_json_get(sw_json_get(map, "changed"), key);
        const char *wanted = changed ? changed->string : text;
        const size_t n_wanted = changed ? changed->string_len : n;
        if (!is_compared(map, c)) {
            continue;
        }
        apply(SW_NORMAL_LOWER, text, n, &out);
        if ((out.len != n_wanted || memcmp(out.ptr, wanted, n_wanted) != 0) && n_wrong++ < 5) {
            print_error("lower case of U+%04X\n", (unsigned)c);
        }
    }
    assert_int_equal(n_wrong, 0);
    sw_json_close(doc);
    sw_str_fini(&path);
    sw_str_fini(&out);
}

static void check_equal(const struct sw_str *a, const struct sw_str *b)
{
    assert_int_equal(a->len, b->len);
    assert_memory_equal(sw_str_text(a), sw_str_text(b), a->len);
}

/* NFC(x) = NFC(NFD(x)), NFD(x) = NFD(NFC(x)), and each form is its own form, for every
 * character. */
static void laws_of_normal_forms(void **state)
{
    (void)state;
    struct sw_str c = {0}, d = {0}, other = {0};
    for (int32_t code_point = 0x80; code_point < 0x30000; ++code_point) {
        char text[4];
        if (code_point >= 0xD800 && code_point <= 0xDFFF) {
            continue;
        }
        const size_t n = sw_utf8_put(code_point, text);
        apply(SW_NORMAL_NFC, text, n, &c);
        apply(SW_NORMAL_NFD, text, n, &d);
        apply(SW_NORMAL_NFC, sw_str_text(&d), d.len, &other);
        check_equal(&c, &other);
        apply(SW_NORMAL_NFD, sw_str_text(&c), c.len, &other);
        check_equal(&d, &other);
        apply(SW_NORMAL_NFC, sw_str_text(&c), c.len, &other);
        check_equal(&c, &other);
    }
    sw_str_fini(&c);
    sw_str_fini(&d);
    sw_str_fini(&other);
}

/* Marks of two classes by turns: by insertion 2^36 steps. Marks of one class keep their order. */
static void many_marks_are_put_in_order(void **state)
{
    (void)state;
    for (int n = 3; n <= 1 << 18; n = n < 64 ? n + 1 : n << 6) {
        struct sw_str text = {0}, wanted = {0}, out = {0};
        sw_str_putc(&text, 'q');
        sw_str_putc(&wanted, 'q');
        for (int i = 0; i < n; ++i) { /* above, below: U+0301 or U+0300, U+0323 */
            sw_str_puts(&text, i % 3 ? "\xCC\x81\xCC\xA3" : "\xCC\x80\xCC\xA3");
            sw_str_puts(&wanted, "\xCC\xA3");
        }
        for (int i = 0; i < n; ++i) {
            sw_str_puts(&wanted, i % 3 ? "\xCC\x81" : "\xCC\x80");
        }
        apply(SW_NORMAL_NFD, sw_str_text(&text), text.len, &out);
        check_equal(&out, &wanted);
        apply(SW_NORMAL_NFC, sw_str_text(&text), text.len, &out);
        check_equal(&out, &wanted);
        sw_str_fini(&text);
        sw_str_fini(&wanted);
        sw_str_fini(&out);
    }
}

static void steps_run_in_order(void **state)
{
    (void)state;
    struct sw_str out = {0};
    const struct sw_normalizer both = {
        .steps = {{.form = SW_NORMAL_NFKD}, {.form = SW_NORMAL_LOWER}, {.form = SW_NORMAL_NFC}},
        .n_steps = 3};
    assert_int_equal(sw_normalizer_apply(&both, "\xC3\x89\xEF\xBC\xA1", 5, &out), SW_OK);
    assert_string_equal(out.ptr, "\xC3\xA9"
                                 "a");
    const struct sw_normalizer none = {0};
    assert_int_equal(sw_normalizer_apply(&none, "A\0B", 3, &out), SW_OK);
    assert_int_equal(out.len, 3);
    sw_str_fini(&out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(steps_run_in_order),
    cmocka_unit_test(laws_of_normal_forms),
    cmocka_unit_test(many_marks_are_put_in_order),
    cmocka_unit_test(lower_case_is_the_recorded_one),
};

const struct test_program sw_tests = {
    TEST_TABLE(tests), .left_out = SW_HAVE_UTF8PROC ? NULL : "built without utf8proc"};
