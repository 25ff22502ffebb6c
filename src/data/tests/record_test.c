// SPDX-License-Identifier: Apache-2.0
// Files of records: the record of each row, and the line named for a bad one.
#include "data/record.h"

#include "support/files.h"
#include "support/test.h"

#include <string.h>

/* Appends records as compact JSON. */
static sw_status list(void *ctx, const struct sw_json_doc *doc, const struct sw_json *record)
{
    (void)doc;
    sw_json_write(record, 0, ctx);
    sw_str_putc(ctx, ';');
    return SW_OK;
}

static void gives(const char *name, const char *text, bool numbered, const char *wanted)
{
    struct sw_str out = {0};
    const char *path = sw_test_write_text(0, name, text);
    if (sw_records_read(path, numbered, list, &out) != SW_OK) {
        fail_msg("%s", sw_error_message());
    }
    assert_string_equal(sw_str_text(&out), wanted);
    sw_str_fini(&out);
}

/* The message begins with the path. */
static void refuses(const char *name, const char *text, bool numbered, const char *why)
{
    struct sw_str out = {0};
    const char *path = sw_test_write_text(0, name, text);
    assert_true(sw_records_read(path, numbered, list, &out) < 0);
    if (!strstr(sw_error_message(), why) || strncmp(sw_error_message(), path, strlen(path)) != 0) {
        fail_msg("\"%s\" without \"%s\"", sw_error_message(), why);
    }
    sw_str_fini(&out);
}

static void rows_of_tables_are_objects(void **state)
{
    (void)state;
    gives("a.csv", "text,label\na b,1\n\nc,2", false,
          "{\"text\":\"a b\",\"label\":\"1\"};{\"text\":\"c\",\"label\":\"2\"};");
    gives("a.csv", "\xEF\xBB\xBFtext,label\r\n\"x, \"\"y\"\"\r\nz\",0\r\n", false,
          "{\"text\":\"x, \\\"y\\\"\\r\\nz\",\"label\":\"0\"};");
    gives("a.csv", "\"3\",\"t\",\"\"\n4,u \"v\",w\n", true,
          "{\"1\":\"3\",\"2\":\"t\",\"3\":\"\"};{\"1\":\"4\",\"2\":\"u \\\"v\\\"\",\"3\":\"w\"};");
    gives("a.tsv", "sentence\tlabel\n\"so\" it is, a\t1\n", false,
          "{\"sentence\":\"\\\"so\\\" it is, a\",\"label\":\"1\"};");
    refuses("a.csv", "text,label\na,1\nb\n", false, "line 3: 1 columns, wanted 2");
    refuses("a.csv", "a,b\nc,d,e\n", true, "line 2: 3 columns, wanted 2");
    refuses("a.csv", "text,label\n\"a\nb\",1\n\"c,2\n", false, "line 4: a quote opens here");
    refuses("a.csv", "text,label\n\"a\"b,2\n", false, "line 2: column 1 continues after");
    refuses("a.csv", "text,text\na,2\n", false, "line 1: two columns are named \"text\"");
    refuses("a.csv", "text,label\n", false, "no record in it");
    refuses("a.csv", "", false, "the file is empty");
    refuses("a.csv", "text,label\n\xFF,1\n", false, "is not UTF-8");
    refuses("a.xls", "x", false, "its ending names no format of records; wanted .jsonl");
    refuses("a.parquet", "x", false, "this format is not read; convert it: python3 -c");
}

static void questions_bring_their_context(void **state)
{
    (void)state;
    static const char squad[] =
        "{\"version\": \"v2.0\", \"data\": [{\"title\": \"t\", \"paragraphs\": "
        "[{\"context\": \"It is\","
        "\"qas\": [\n{\"id\": \"1\", \"question\": \"Is?\", \"is_impossible\": false, \"answers\": "
        "[{\"text\": \"is\", \"answer_start\": 3}, {\"text\": \"It\", \"answer_start\": 0}]},\n"
        "{\"id\": \"2\", \"question\": \"Why?\", \"is_impossible\": true, \"answers\": []}]}]}]}";
    gives("s.json", squad, false,
          "{\"id\":\"1\",\"question\":\"Is?\",\"context\":\"It is\",\"answers\":{\"text\":[\"is\","
          "\"It\"],\"answer_start\":[3,0]}};{\"id\":\"2\",\"question\":\"Why?\",\"context\":\"It "
          "is\",\"answers\":{\"text\":[],\"answer_start\":[]}};");
    refuses("s.json", "{\"data\": [{\"paragraphs\": [{\"context\": \"c\"}]}]}", false,
            "line 1: \"qas\" is absent, wanted an array");
    refuses(
        "s.json",
        "{\"data\": [{\"paragraphs\": [{\"context\": \"c\", \"qas\": [\n{\"question\": 3}]}]}]}",
        false, "line 2: \"question\" is an integer, wanted a string");
    refuses("s.json", "{\"data\": []}", false, "no record in it");
    refuses("s.json", "{\"rows\": []}", false, "wanted SQuAD's form");
    gives("l.json", "[{\"a\": 1}, {\"a\": [2]}]", false, "{\"a\":1};{\"a\":[2]};");
    refuses("l.json", "[{\"a\": 1},\n 7]", false, "line 2: an integer, wanted an object");
    gives("l.jsonl", "{\"a\": 1}\n\n{\"b\": 2}\n", false, "{\"a\":1};{\"b\":2};");
    refuses("l.jsonl", "{\"a\": 1}\n7\n", false, "line 2: an integer, wanted an object");
    gives("l.txt", "a\nb\n", false, "{\"text\":\"a\\nb\\n\"};");
}

static void a_missing_column_is_told_with_those_that_there_are(void **state)
{
    (void)state;
    struct sw_json_doc *doc;
    static const char *const usual[] = {"text", "sentence", NULL};
    static const char row[] = "{\"Text\": \"a\", \"label\": 1}";
    const struct sw_json *found;
    struct sw_field_wanted wanted = {.usual = usual, .flag = "--text-column"};
    assert_int_equal(sw_json_parse("x.csv line 2", row, strlen(row), SW_JSON_STRICT, &doc), SW_OK);
    const struct sw_json *record = sw_json_root(doc);
    assert_int_equal(sw_record_get_text(doc, record, &wanted, &found), SW_E_FORMAT);
    assert_string_equal(sw_error_message(),
                        "x.csv line 2: no \"text\" or \"sentence\"; there are \"Text\", \"label\": "
                        "--text-column names another");
    wanted.given = "title";
    assert_int_equal(sw_record_get_text(doc, record, &wanted, &found), SW_E_FORMAT);
    assert_string_equal(sw_error_message(), "x.csv line 2: no \"title\" (--text-column); there are "
                                            "\"Text\", \"label\"");
    wanted.given = "label";
    assert_int_equal(sw_record_get_text(doc, record, &wanted, &found), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "\"label\" is an integer, wanted a string"));
    wanted.given = "Text";
    assert_int_equal(sw_record_get_text(doc, record, &wanted, &found), SW_OK);
    assert_string_equal(found->string, "a");
    sw_json_close(doc);
    assert_true(sw_columns_are_numbered(&(struct sw_columns){.label = "1"}));
    assert_false(sw_columns_are_numbered(&(struct sw_columns){.text = {"a1"}}));
    assert_false(sw_columns_are_numbered(&(struct sw_columns){0}));
}

static void lack_of_memory_is_said(void **state)
{
    (void)state;
    const char *path = sw_test_write_text(0, "m.csv", "text,label\na,1\nb,2\n");
    struct sw_str out = {0};
    sw_status st = SW_E_NOMEM;
    for (int64_t nth = 1; st == SW_E_NOMEM; nth++) {
        sw_str_fini(&out);
        out = (struct sw_str){0};
        sw_alloc_fail_nth(nth);
        st = sw_records_read(path, false, list, &out);
        sw_alloc_fail_nth(0);
        st = st >= 0 && out.failed ? SW_E_NOMEM : st;
        assert_true(nth < 1000);
    }
    assert_int_equal(st, SW_OK);
    sw_str_fini(&out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_of_tables_are_objects),
    cmocka_unit_test(questions_bring_their_context),
    cmocka_unit_test(a_missing_column_is_told_with_those_that_there_are),
    cmocka_unit_test(lack_of_memory_is_said),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
