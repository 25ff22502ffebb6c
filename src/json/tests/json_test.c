// SPDX-License-Identifier: Apache-2.0
// The strict dialect, positions in messages, lookup, editing and writing.

#include "support/test.h"

#include <float.h>
#include <locale.h>

#include "json/json.h"

static struct sw_json_doc *parse(const char *text)
{
    struct sw_json_doc *doc = NULL;
    if (sw_json_parse("t", text, strlen(text), SW_JSON_STRICT, &doc) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return doc;
}

static void expect_error(enum sw_json_dialect dialect, const char *text, size_t len,
                         const char *place_and_text)
{
    struct sw_json_doc *doc = NULL;
    const sw_status st = sw_json_parse("t", text, len, dialect, &doc);
    if (st != SW_E_FORMAT || !strstr(sw_error_message(), place_and_text)) {
        fail_msg("%s: expected \"%s\", got %d \"%s\"", text, place_and_text, (int)st,
                 st < 0 ? sw_error_message() : "");
    }
}

static void expect_text(const struct sw_json *value, int indent, const char *text)
{
    struct sw_str out = {0};
    sw_json_write(value, indent, &out);
    assert_string_equal(sw_str_text(&out), text);
    sw_str_fini(&out);
}

/* ---- reading ---- */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "t:1:1: expected a value, found the end of the text"},
        {" \n ", "t:2:2: "},
        {"{", "t:1:2: "},
        {"[1", "t:1:3: expected ',' or ']', found the end of the text"},
        {"[1,]", "t:1:4: ']' after a comma"},
        {"[,1]", "t:1:2: "},
        {"[1 2]", "t:1:4: expected ',' or ']', found '2'"},
        {"{\"a\":1,}", "t:1:8: '}' after a comma"},
        {"{\"a\" 1}", "t:1:6: expected ':' after the key \"a\", found '1'"},
        {"{a:1}", "t:1:2: expected a key in double quotes, found 'a'"},
        {"{'a':1}", "t:1:2: "},
        {"{1:1}", "t:1:2: "},
        {"{\"a\":1,\n \"b\":2,\n \"a\":3}",
         "t:3:2: duplicate key \"a\", first given in line 1, column 2"},
        {"{\"a\":1,\"\\u0061\":2}", "t:1:8: duplicate key"},
        {"[[{\"x\":[{\"a\":1,\"a\":1}]}]]", "duplicate key"},
        {"[] []", "t:1:4: expected the end of the text, found '['"},
        {"1 // c", "t:1:3: "},
        {"/**/1", "t:1:1: "},
        {"[\"a\nb\"]", "t:1:4: control character U+000A"},
        {"\"a", "t:1:1: string does not end"},
        {"\"a\\", "string does not end"},
        {"\"\\x41\"", "t:1:2: unknown escape"},
        {"\"\\'\"", "t:1:2: unknown escape"},
        {"'a'", "t:1:1: "},
        {"\"\\u12\"", "t:1:2: expected four hexadecimal digits"},
        {"\"\\u12g4\"", "t:1:2: expected four hexadecimal digits"},
        {"\"\\ud800\"", "t:1:2: half of a surrogate pair"},
        {"\"\\udc00\"", "half of a surrogate pair"},
        {"\"\\ud800\\ud800\"", "half of a surrogate pair"},
        {"\"\xc3\xa9\xff\"", "t:1:3: byte 0xff is not UTF-8"},
        {"\"\xed\xa0\x80\"", "byte 0xed is not UTF-8"},
        {"\"\xc0\x80\"", "byte 0xc0 is not UTF-8"},
        {"\"\xf4\x90\x80\x80\"", "byte 0xf4 is not UTF-8"},
        {"\xef\xbb\xbf{}", "t:1:1: "},
        {"01", "t:1:2: "},
        {"1.", "t:1:2: "},
        {".5", "t:1:1: "},
        {"+1", "t:1:1: "},
        {"-", "t:1:1: "},
        {"1e", "t:1:2: "},
        {"1e400", "t:1:1: number is beyond the range"},
        {"NaN", "t:1:1: "},
        {"Infinity", "t:1:1: "},
        {"True", "t:1:1: "},
        {"nul", "t:1:1: "},
        {"truex", "t:1:5: "},
        {"[\"é😀\", x]", "t:1:8: expected a value, found 'x'"},
    };
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        expect_error(SW_JSON_STRICT, cases[i].text, strlen(cases[i].text), cases[i].message);
    }
    expect_error(SW_JSON_STRICT, "\"a\0b\"", 5, "t:1:3: control character U+0000");
    expect_error(SW_JSON_STRICT, "1\0", 2, "t:1:2: ");
}

/* ---- without a tree ---- */

static sw_status write_event(void *ctx, enum sw_json_event event, const struct sw_json *value,
                             int depth)
{
    static const char *const names[] = {"scalar", "open", "close"};
    struct sw_str *out = ctx;
    if (value->key && strcmp(value->key, "stop") == 0) {
        return SW_FAIL(SW_E_STOP, "stopped at %s", value->key);
    }
    sw_str_printf(out, "%d %s %s%s%s", depth, names[event], value->key ? value->key : "",
                  value->key ? ": " : "", sw_json_type_name(value->type));
    if (event == SW_JSON_SCALAR && value->type == SW_JSON_STRING) {
        sw_str_printf(out, " %s", value->string);
    } else if (event == SW_JSON_SCALAR && value->type == SW_JSON_INT) {
        sw_str_printf(out, " %lld", (long long)value->integer);
    }
    sw_str_putc(out, '\n');
    return SW_OK;
}

static void test_scan(void **state)
{
    (void)state;
    static const char text[] = " {\"a\":[1,\"x\\u0041\",{}], \"b\" : {\"c\":null},\"d\":[]} ";
    struct sw_str out = {0};
    assert_int_equal(sw_json_scan("t", text, strlen(text), write_event, &out), SW_OK);
    assert_string_equal(sw_str_text(&out), "0 open an object\n"
                                           "1 open a: an array\n"
                                           "2 scalar an integer 1\n"
                                           "2 scalar a string xA\n"
                                           "2 open an object\n"
                                           "2 close an object\n"
                                           "1 close an array\n"
                                           "1 open b: an object\n"
                                           "2 scalar c: null\n"
                                           "1 close an object\n"
                                           "1 open d: an array\n"
                                           "1 close an array\n"
                                           "0 close an object\n");
    sw_str_clear(&out);
    assert_int_equal(sw_json_scan("t", "7", 1, write_event, &out), SW_OK);
    assert_string_equal(sw_str_text(&out), "0 scalar an integer 7\n");
    static const char *const bad[] = {
        "",    "{",     "[1",       "[1,]", "[,1]", "[1 2]", "{\"a\":1,}", "{a:1}", "{\"a\" 1}",
        "[} ", "[] []", "\"a\nb\"", "\"a",  "nul",  "\xff",  "{\"a\"}",    "]"};
    for (size_t i = 0; i < SW_LEN(bad); i++) {
        assert_int_equal(sw_json_scan("t", bad[i], strlen(bad[i]), write_event, &out), SW_E_FORMAT);
        assert_memory_equal(sw_error_message(), "t:1:", 4);
    }
    static const char stop[] = "{\"a\":[{\"stop\":1";
    assert_int_equal(sw_json_scan("t", stop, strlen(stop), write_event, &out), SW_E_STOP);
    assert_string_equal(sw_error_message(), "stopped at stop");
    sw_str_fini(&out);
}

static void test_tolerant_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{\n a: {\n b: 1\n", "t:4:1: expected '}' (opened in line 2, column 5)"},
        {"a: 1\na: 2", "t:2:1: duplicate key \"a\", first given in line 1, column 1"},
        {"a: 1 /* x", "t:1:6: comment does not end"},
        {"{\n a b: 1}", "t:2:2: a key with spaces needs quotes"},
        {"{a: 1e999}", "t:1:5: number is beyond the range"},
        {"{\"a\": \"\\ud800\"}", "half of a surrogate pair"},
        {"{a: '''x", "t:1:5: multi-line string does not end"},
    };
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        expect_error(SW_JSON_TOLERANT, cases[i].text, strlen(cases[i].text), cases[i].message);
    }
}

static void test_places(void **state)
{
    (void)state;
    struct sw_json_doc *doc = parse("{\n  \"é\": [1,\r\n\t{\"b\" :true}]}");
    const struct sw_json *list = sw_json_get(sw_json_root(doc), "é");
    assert_int_equal(list->key_line, 2);
    assert_int_equal(list->key_column, 3);
    assert_int_equal(list->column, 8);
    assert_int_equal(list->last->line, 3);
    assert_int_equal(list->last->column, 2);
    const struct sw_json *b = sw_json_path(sw_json_root(doc), "é")->last->first;
    assert_string_equal(b->key, "b");
    assert_int_equal(b->column, 8);
    assert_true(b->boolean);
    sw_json_close(doc);
}

static void test_values(void **state)
{
    (void)state;
    struct sw_json_doc *doc =
        parse("[9223372036854775807,-9223372036854775808,9223372036854775808,1.0,-0,1E2,0.5e-1,"
              "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\\u0000x\",\"plain\"]");
    const struct sw_json *v = sw_json_root(doc)->first;
    assert_true(v->type == SW_JSON_INT && v->integer == INT64_MAX);
    v = v->next;
    assert_true(v->type == SW_JSON_INT && v->integer == INT64_MIN);
    v = v->next;
    assert_true(v->type == SW_JSON_FLOAT && v->number == 0x1p63);
    assert_string_equal(v->raw, "9223372036854775808");
    v = v->next;
    assert_true(v->type == SW_JSON_FLOAT && v->number == 1 && v->integer == 1);
    v = v->next;
    assert_true(v->type == SW_JSON_INT && v->integer == 0);
    v = v->next;
    assert_true(v->type == SW_JSON_FLOAT && v->number == 100);
    v = v->next;
    assert_true(v->number == 0.05);
    v = v->next;
    static const char text[] = "\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9f\x98\x80\0x";
    assert_int_equal(v->string_len, sizeof(text) - 1);
    assert_memory_equal(v->string, text, sizeof(text));
    assert_string_equal(v->next->string, "plain");
    assert_string_equal(v->next->raw, "plain");
    sw_json_close(doc);
}

static void test_depth(void **state)
{
    (void)state;
    char text[2 * 513];
    for (int depth = 512; depth <= 513; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        for (int dialect = SW_JSON_STRICT; dialect <= SW_JSON_TOLERANT; dialect++) {
            struct sw_json_doc *doc = NULL;
            const sw_status st =
                sw_json_parse("t", text, 2 * (size_t)depth, (enum sw_json_dialect)dialect, &doc);
            assert_int_equal(st, depth == 512 ? SW_OK : SW_E_FORMAT);
            if (st == SW_OK) {
                expect_text(sw_json_root(doc)->first, 0, (text[2 * depth - 1] = '\0', text + 1));
                text[2 * depth - 1] = ']';
                sw_json_close(doc);
            }
        }
    }
    struct sw_str open = {0};
    for (int i = 0; i < 1000000; i++) {
        sw_str_puts(&open, "{\"a\":");
    }
    expect_error(SW_JSON_STRICT, open.ptr, open.len, "nested more than 512 deep");
    sw_str_fini(&open);
}

static void test_many_keys(void **state)
{
    (void)state;
    enum { N = 50000 };
    struct sw_str text = {0};
    for (int i = 0; i < N; i++) {
        sw_str_printf(&text, "%c\"key%d\":%d", i ? ',' : '{', i, i);
    }
    sw_str_putc(&text, '}');
    struct sw_json_doc *doc = parse(text.ptr);
    struct sw_json *root = sw_json_root(doc);
    char key[32];
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        assert_int_equal(sw_json_get(root, key)->integer, i);
    }
    assert_null(sw_json_get(root, "key"));
    for (int i = 0; i < N; i += 2) { /* ascending, so that each lookup finds its member at once */
        sw_json_remove(root, root->first);
        struct sw_json *second = root->first;
        snprintf(key, sizeof(key), "key%d", i);
        assert_null(sw_json_get(root, key));
        sw_json_remove(root, second);
        assert_non_null(sw_json_put_i64(doc, root, second->key, -1));
    }
    assert_int_equal(root->n_children, N / 2);
    assert_int_equal(sw_json_get(root, "key1")->integer, -1);
    assert_int_equal(sw_json_get(root, "key49999")->integer, -1);
    sw_str_clear(&text);
    sw_json_write(root, 0, &text);
    sw_json_close(doc);
    sw_json_close(parse(text.ptr));
    sw_str_fini(&text);
}

static void test_typed(void **state)
{
    (void)state;
    struct sw_json_doc *doc =
        parse("{\"i\":3,\"f\":0.5,\"b\":true,\"s\":\"x\",\n\"n\":null,\"o\":{}}");
    const struct sw_json *root = sw_json_root(doc);
    int64_t i = 0;
    double f = 0;
    bool b = false;
    const char *s = NULL;
    assert_int_equal(sw_json_get_i64(doc, root, "i", 7, &i), SW_OK);
    assert_int_equal(i, 3);
    assert_int_equal(sw_json_get_i64(doc, root, "n", 7, &i), SW_OK);
    assert_int_equal(i, 7);
    assert_int_equal(sw_json_get_f64(doc, root, "i", 7, &f), SW_OK);
    assert_true(f == 3);
    assert_int_equal(sw_json_get_f64(doc, root, "f", 7, &f), SW_OK);
    assert_true(f == 0.5);
    assert_int_equal(sw_json_get_bool(doc, root, "b", false, &b), SW_OK);
    assert_true(b);
    assert_int_equal(sw_json_get_str(doc, root, "s", NULL, &s), SW_OK);
    assert_string_equal(s, "x");
    assert_int_equal(sw_json_get_str(doc, root, "absent", "d", &s), SW_OK);
    assert_string_equal(s, "d");
    assert_int_equal(sw_json_get_i64(doc, root, "f", 7, &i), SW_E_FORMAT);
    assert_string_equal(sw_error_message(),
                        "t:1:12: key \"f\" must be an integer, found a number 0.5");
    assert_int_equal(i, 7);
    assert_int_equal(sw_json_get_bool(doc, root, "o", false, &b), SW_E_FORMAT);
    assert_string_equal(sw_error_message(),
                        "t:2:14: key \"o\" must be true or false, found an object");
    assert_int_equal(sw_json_get_str(doc, root, "i", NULL, &s), SW_E_FORMAT);
    assert_int_equal(sw_json_get_f64(doc, root, "s", 0, &f), SW_E_FORMAT);
    sw_json_close(doc);
}

/* ---- editing and writing ---- */

static void test_building(void **state)
{
    (void)state;
    struct sw_json_doc *doc = NULL;
    assert_int_equal(sw_json_new("built", &doc), SW_OK);
    struct sw_json *root = sw_json_root(doc);
    sw_json_put_i64(doc, root, "a", -5);
    struct sw_json *list = sw_json_put(doc, root, "list", SW_JSON_ARRAY);
    sw_json_put_f64(doc, list, NULL, 1);
    sw_json_put_bool(doc, list, NULL, true);
    sw_json_put(doc, list, NULL, SW_JSON_NULL);
    sw_json_put_str(doc, root, "s", "q\"\n\x01é");
    sw_json_put(doc, root, "empty", SW_JSON_OBJECT);
    expect_text(root, 0,
                "{\"a\":-5,\"list\":[1.0,true,null],\"s\":\"q\\\"\\n\\u0001é\",\"empty\":{}}");
    expect_text(list, 2, "[\n  1.0,\n  true,\n  null\n]");

    sw_json_put_copy(doc, root, "a", list);    /* replaced in place */
    sw_json_put_copy(doc, root, "list", root); /* contains the destination */
    expect_text(sw_json_path(root, "list.list"), 0, "[1.0,true,null]");
    assert_int_equal(root->n_children, 4);
    /* lies inside the destination */
    sw_json_put_copy(doc, root, "list", sw_json_path(root, "list.a"));
    sw_json_remove(root, sw_json_get(root, "s"));
    sw_json_remove(root, sw_json_get(root, "empty"));
    sw_json_put_bool(doc, root, "z", false);
    expect_text(root, 0, "{\"a\":[1.0,true,null],\"list\":[1.0,true,null],\"z\":false}");
    sw_json_close(doc);
}

static void expect_number(double value, const char *text)
{
    struct sw_str out = {0};
    sw_json_write_f64(value, &out);
    assert_string_equal(sw_str_text(&out), text);
    sw_str_fini(&out);
}

static void test_write_numbers(void **state)
{
    (void)state;
    expect_number(0, "0.0");
    expect_number(-0.0, "-0.0");
    expect_number(1, "1.0");
    expect_number(-100, "-100.0");
    expect_number(0.1, "0.1");
    expect_number(1e-4, "0.0001");
    expect_number(1e-5, "1e-05");
    expect_number(1234.5678, "1234.5678");
    expect_number(123456789012345680.0, "1.2345678901234568e+17");
    expect_number(1e15, "1000000000000000.0");
    expect_number(1e16, "1e+16");
    expect_number(1.0 / 3, "0.3333333333333333");
    expect_number(0x1p-44,
                  "5.684341886080802e-14"); /* its nearest 16 digits read back as another double */
    expect_number(DBL_MAX, "1.7976931348623157e+308");
    expect_number(DBL_TRUE_MIN, "5e-324");
    expect_number(DBL_MIN, "2.2250738585072014e-308");
    expect_number(INFINITY, "null");
    expect_number(NAN, "null");

    struct sw_json_doc *doc = parse("[123456789012345678901234567890,1e2]");
    expect_text(sw_json_root(doc), 0, "[123456789012345678901234567890,100.0]");
    sw_json_close(doc);
}

/* Numbers that JSON does not have are strings, and read back as themselves. */
static void test_any_numbers(void **state)
{
    static const struct {
        double value;
        const char *text;
    } rows[] = {{1.5, "1.5"},
                {INFINITY, "\"Infinity\""},
                {-INFINITY, "\"-Infinity\""},
                {NAN, "\"NaN\""},
                {-NAN, "\"NaN\""}};
    double found = 0;
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        struct sw_str out = {0};
        sw_json_write_any_f64(rows[i].value, &out);
        assert_string_equal(sw_str_text(&out), rows[i].text);
        struct sw_json_doc *doc = parse(sw_str_text(&out));
        assert_true(sw_json_any_f64(sw_json_root(doc), &found));
        assert_true(found == rows[i].value || (isnan(found) && isnan(rows[i].value)));
        sw_json_close(doc);
        sw_str_fini(&out);
    }
    struct sw_json_doc *others = parse("[null,\"inf\",\"1\",true,\"\",[]]");
    for (const struct sw_json *v = sw_json_root(others)->first; v; v = v->next) {
        assert_false(sw_json_any_f64(v, &found));
    }
    sw_json_close(others);
}

/* Every double reads back as itself: random bit patterns. Short decimals keep their spelling. */
static void test_round_trip(void **state)
{
    (void)state;
    struct sw_str text = {0};
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t bits = sw_philox_u64(1, 2, i);
        bits = i % 8 == 0 ? bits & ~((UINT64_C(1) << 52) - 1) : bits; /* powers of two */
        double value;
        memcpy(&value, &bits, sizeof(value));
        if (!isfinite(value)) {
            continue;
        }
        sw_str_clear(&text);
        sw_json_write_f64(value, &text);
        struct sw_json_doc *doc = parse(text.ptr);
        assert_int_equal(sw_json_root(doc)->type, SW_JSON_FLOAT);
        assert_memory_equal(&sw_json_root(doc)->number, &value, sizeof(value));
        sw_json_close(doc);
        assert_true(strtod(text.ptr, NULL) == value);

        char spelling[32];
        snprintf(spelling, sizeof(spelling), "0.%d", (int)(bits % 100000) * 10 + 1);
        expect_number(strtod(spelling, NULL), spelling);
    }
    sw_str_fini(&text);
}

static void test_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    bool found = false;
    for (size_t i = 0; i < SW_LEN(names) && !found; i++) {
        found = setlocale(LC_ALL, names[i]) != NULL;
    }
    if (!found) {
        skip();
    }
    expect_number(0.1, "0.1");
    struct sw_json_doc *doc = parse("3.14159265358979323846");
    assert_true(sw_json_root(doc)->number == 3.14159265358979323846);
    sw_json_close(doc);
    setlocale(LC_ALL, "C");
}

static void test_write_bad_utf8(void **state)
{
    (void)state;
    struct sw_str out = {0};
    sw_json_write_string("a\xff\xc3(\0\x7f", 6, &out);
    assert_string_equal(sw_str_text(&out), "\"a\ufffd\ufffd(\\u0000\x7f\"");
    sw_str_fini(&out);
    assert_int_equal(sw_json_utf8_check("é😀", 6), 6);
    assert_int_equal(sw_json_utf8_check("é😀", 5), 2);
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":[1,\"b\\n\",{\"c\":2.5}],\"d\":null}";
    struct sw_alloc_stats before, after;
    sw_alloc_get_stats(&before);
    bool done = false;
    for (int n = 1; !done; n++) {
        struct sw_json_doc *doc = NULL;
        sw_alloc_fail_nth(n);
        const sw_status st = sw_json_parse("t", text, sizeof(text) - 1, SW_JSON_TOLERANT, &doc);
        sw_alloc_fail_nth(0);
        done = st == SW_OK;
        assert_true(done || (st == SW_E_NOMEM && n < 100));
        sw_json_close(doc);
        sw_alloc_get_stats(&after);
        assert_int_equal(after.live_blocks, before.live_blocks);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_refusals),       cmocka_unit_test(test_tolerant_refusals),
    cmocka_unit_test(test_places),         cmocka_unit_test(test_values),
    cmocka_unit_test(test_depth),          cmocka_unit_test(test_many_keys),
    cmocka_unit_test(test_typed),          cmocka_unit_test(test_building),
    cmocka_unit_test(test_write_numbers),  cmocka_unit_test(test_round_trip),
    cmocka_unit_test(test_any_numbers),    cmocka_unit_test(test_locale),
    cmocka_unit_test(test_write_bad_utf8), cmocka_unit_test(test_no_memory),
    cmocka_unit_test(test_scan),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
