// SPDX-License-Identifier: Apache-2.0
// Growing strings, slips of the pen, byte counts.
#include "base/base.h"

#include "support/test.h"

static void appends_grow(void **state)
{
    (void)state;
    struct sw_str str = {0};
    assert_string_equal(sw_str_text(&str), "");
    sw_str_append(&str, NULL, 0);
    sw_str_puts(&str, "ab");
    sw_str_putc(&str, 'c');
    sw_str_append(&str, "\0d", 2);
    assert_int_equal(str.len, 5);
    assert_memory_equal(str.ptr, "abc\0d", 6);
    sw_str_clear(&str);
    assert_string_equal(sw_str_text(&str), "");
    for (int i = 0; i < 1000; i++) {
        sw_str_printf(&str, "%03d,", i);
    }
    assert_int_equal(str.len, 4000);
    assert_false(str.failed);
    assert_memory_equal(str.ptr + 4 * 123, "123,", 4);
    sw_str_fini(&str);
    assert_null(str.ptr);
}

static void failure_keeps_the_contents(void **state)
{
    (void)state;
    struct sw_str str = {0};
    sw_str_puts(&str, "kept");
    char more[200];
    memset(more, 'x', sizeof(more));
    sw_alloc_fail_nth(1);
    sw_str_append(&str, more, sizeof(more));
    assert_true(str.failed);
    sw_str_puts(&str, "!");
    assert_string_equal(sw_str_text(&str), "kept");
    sw_str_clear(&str);
    sw_str_puts(&str, "again");
    assert_false(str.failed);
    assert_string_equal(sw_str_text(&str), "again");
    sw_str_fini(&str);
}

static void edit_distances(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        int distance;
    } rows[] = {{"", "", 0},       {"", "abc", 3},      {"kitten", "sitting", 3},
                {"abc", "abc", 0}, {"flaw", "lawn", 2}, {"abcdef", "azced", 3}};
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        assert_int_equal(sw_edit_distance(rows[i].a, rows[i].b), rows[i].distance);
        assert_int_equal(sw_edit_distance(rows[i].b, rows[i].a), rows[i].distance);
    }
    sw_alloc_fail_nth(1);
    assert_int_equal(sw_edit_distance("a", "b"), -1);
}

static void nearest_word(void **state)
{
    (void)state;
    static const char *const words[] = {"zero_optimization", "stage", "optimizer", "fp16"};
    assert_string_equal(sw_nearest("zero_optimisation", words, 4), "zero_optimization");
    assert_string_equal(sw_nearest("stages", words, 4), "stage");
    assert_string_equal(sw_nearest("fp_16", words, 4), "fp16");
    assert_null(sw_nearest("communication_data_type", words, 4));
    assert_null(sw_nearest("x", words, 4));
    assert_null(sw_nearest("anything", words, 0));
    assert_string_equal(sw_hint("stage").text, "; the nearest is \"stage\"");
    assert_string_equal(sw_hint(NULL).text, "");
}

static void bytes_for_people(void **state)
{
    (void)state;
    static const struct {
        double bytes;
        const char *text;
    } rows[] = {{0, "0 B"},
                {512, "512 B"},
                {1023, "1023 B"},
                {1024, "1.0 KiB"},
                {1536, "1.5 KiB"},
                {1048575, "1.0 MiB"},
                {3.2 * 1073741824, "3.2 GiB"},
                {-2048, "-2.0 KiB"},
                {0x1p70, "1024.0 EiB"}};
    char buf[32];
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        assert_string_equal(sw_format_bytes(buf, sizeof(buf), rows[i].bytes), rows[i].text);
    }
}

static void bytes_of_people(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } rows[] = {{"0", 0},
                {"1000000", 1000000},
                {"9223372036854775806", INT64_MAX - 1},
                {"512B", 512},
                {"64K", 65536},
                {"300M", 300 << 20},
                {"300 m", 300 << 20},
                {"2G", INT64_C(2) << 30},
                {"1T", INT64_C(1) << 40},
                {"64KiB", 65536},
                {"512MiB", 512 << 20},
                {"512mib", 512 << 20},
                {"1.5 GiB", INT64_C(3) << 29},
                {"0.5G", 512 << 20},
                {"1TiB", INT64_C(1) << 40},
                {"3KB", 3000},
                {"1.5 GB", 1500000000},
                {"2MB", 2000000},
                {"1TB", 1000000000000},
                {"-5K", -5120}};
    static const char *const wrong[] = {"",    "K",    "lots", "1.5", "1.5B", "5X",  "5 MM", "M5",
                                        "1e9", "0x10", "nan",  "inf", "5 0",  ".5M", "5.M",  "- 5",
                                        "+5",  " 5",   "5i",   "5iB", "5P",   "5M ", "1..5M"};
    static const char *const large[] = {"9223372036854775808", "8388608T", "99999999999999999999",
                                        "9000000000G"};
    int64_t bytes = 0;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        assert_null(sw_parse_bytes(rows[i].text, &bytes));
        assert_int_equal(bytes, rows[i].bytes);
    }
    bytes = 7;
    for (size_t i = 0; i < SW_LEN(wrong); i++) {
        const char *why = sw_parse_bytes(wrong[i], &bytes);
        if (!why || !strstr(why, "\"300M\"") || !strstr(why, "1024")) {
            fail_msg("\"%s\" is a number of bytes?", wrong[i]);
        }
    }
    for (size_t i = 0; i < SW_LEN(large); i++) {
        assert_non_null(strstr(sw_parse_bytes(large[i], &bytes), "too large"));
    }
    assert_int_equal(bytes, 7);
}

/* Untrusted text must not move a terminal's cursor. */
static void words_for_a_terminal_are_plain(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"plain words, 7 \\", "plain words, 7 \\"},
        {"\033[2J\r\n\177", "\\x1b[2J\\x0d\\x0a\\x7f"},
        {"h\303\264te \342\202\254 \360\237\230\200", "h\303\264te \342\202\254 \360\237\230\200"},
        {"\302\233K", "\\xc2\\x9bK"},                          /* a control character of Latin 1 */
        {"\300\233\340\202\233", "\\xc0\\x9b\\xe0\\x82\\x9b"}, /* the same, in too many bytes */
        {"\303", "\\xc3"},
        {"\233\377", "\\x9b\\xff"},
    };
    char out[128], short_one[6];
    for (size_t i = 0; i < SW_LEN(pairs); i++) {
        assert_string_equal(sw_plain_words(pairs[i][0], out, sizeof out), pairs[i][1]);
    }
    assert_string_equal(sw_plain_words("ab\033c", short_one, sizeof short_one), "ab");
    assert_string_equal(sw_plain_words("abcdefgh", short_one, sizeof short_one), "abcde");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(appends_grow),
    cmocka_unit_test(failure_keeps_the_contents),
    cmocka_unit_test(edit_distances),
    cmocka_unit_test(nearest_word),
    cmocka_unit_test(bytes_for_people),
    cmocka_unit_test(bytes_of_people),
    cmocka_unit_test(words_for_a_terminal_are_plain),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
