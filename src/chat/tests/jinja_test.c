// SPDX-License-Identifier: Apache-2.0
// Chat templates: the language piece by piece and whole templates, each as recorded from the
// reference; and, without recordings, its rules, limits and refusals.
#include "chat/jinja.h"

#include "support/files.h"
#include "support/test.h"
#include "text/text.h"

#include <dirent.h>
#include <unistd.h>

static const char *const kinds[] = {
    [SW_JINJA_NONE] = "none",           [SW_JINJA_RAISED] = "raise_exception",
    [SW_JINJA_UNDEFINED] = "undefined", [SW_JINJA_TYPE] = "type",
    [SW_JINJA_RUNTIME] = "runtime",     [SW_JINJA_SECURITY] = "security",
    [SW_JINJA_LIMIT] = "limit"};

/* The result of a rendering: its text, or "<kind>: <message>". */
struct made {
    struct sw_jinja_text text;
    const char *kind; /* of the error; NULL = none */
};

static void make(const char *template, size_t len, const struct sw_json *variables,
                 struct made *out)
{
    struct sw_jinja *jinja = NULL;
    *out = (struct made){0};
    if (sw_jinja_open("template", template, len, &jinja) < 0) {
        out->kind = "syntax";
    } else if (sw_jinja_render(jinja, variables, 0, &out->text) < 0) {
        out->kind = kinds[out->text.error];
    }
    sw_jinja_close(jinja);
}

static void check_made(const char *where, const struct made *made, const struct sw_json *text,
                       const struct sw_json *error, int *n_wrong)
{
    bool same;
    if (error) {
        const struct sw_json *message = sw_json_get(error, "message");
        same = made->kind && strcmp(made->kind, sw_json_get(error, "kind")->string) == 0 &&
               (!message || strstr(sw_error_message(), message->string));
    } else {
        same = !made->kind && made->text.text.len == text->string_len &&
               memcmp(sw_str_text(&made->text.text), text->string, text->string_len) == 0;
    }
    if (!same && (*n_wrong)++ < 8) {
        print_error("%s: wanted %s, found %s\n", where,
                    error ? sw_json_get(error, "kind")->string : text->string,
                    made->kind ? sw_error_message() : sw_str_text(&made->text.text));
    }
}

/* ---- recorded ---- */

static void put_default(struct sw_json_doc *doc, struct sw_json *object, const char *key)
{
    if (!sw_json_get(object, key)) {
        if (strcmp(key, "messages") == 0) {
            struct sw_json *list = sw_json_put(doc, object, key, SW_JSON_ARRAY);
            struct sw_json *message = sw_json_put(doc, list, NULL, SW_JSON_OBJECT);
            sw_json_put_str(doc, message, "role", "user");
            sw_json_put_str(doc, message, "content", "Hi");
        } else if (strcmp(key, "add_generation_prompt") == 0) {
            sw_json_put_bool(doc, object, key, false);
        } else {
            sw_json_put(doc, object, key, SW_JSON_NULL);
        }
    }
}

static void put_missing(struct sw_json_doc *doc, struct sw_json *to, const struct sw_json *from)
{
    for (const struct sw_json *v = from ? from->first : NULL; v; v = v->next) {
        if (!sw_json_get(to, v->key)) {
            sw_json_put_copy(doc, to, v->key, v);
        }
    }
}

/* Rows have a template and its text or error; variables are in the row, beside the rows, or both.
 * A row that is "refused" renders in the reference only. */
static void check_rows(struct sw_json_doc *doc)
{
    static const char *const usual[] = {"messages", "tools", "documents", "add_generation_prompt"};
    struct sw_json *root = sw_json_root(doc);
    const struct sw_json *shared = sw_json_get(root, "variables");
    int n_wrong = 0, n = 0, n_skipped = 0;
    for (struct sw_json *row = sw_json_get(root, "rows")->first; row; row = row->next, ++n) {
        const struct sw_json *template = sw_json_get(row, "template");
        struct sw_json *variables = sw_json_get(row, "variables");
        struct made made;
        variables = variables ? variables : sw_json_put(doc, row, "variables", SW_JSON_OBJECT);
        put_missing(doc, variables, shared->type == SW_JSON_OBJECT ? shared : NULL);
        for (size_t i = 0; i < SW_LEN(usual); ++i) {
            put_default(doc, variables, usual[i]);
        }
        make(template->string, template->string_len, variables, &made);
        if (!SW_HAVE_UTF8PROC && made.kind && strstr(sw_error_message(), "utf8proc")) {
            n_skipped++;
        } else if (sw_json_get(row, "refused")) {
            n_wrong += made.kind == NULL;
        } else {
            check_made(template->string, &made, sw_json_get(row, "text"), sw_json_get(row, "error"),
                       &n_wrong);
        }
        sw_jinja_text_fini(&made.text);
    }
    print_message("  %d rows, %d wrong, %d need utf8proc\n", n, n_wrong, n_skipped);
    assert_true(n > n_skipped);
    assert_int_equal(n_wrong, 0);
}

static void recorded_language(void **state)
{
    (void)state;
    struct sw_json_doc *doc;
    struct sw_str path = {0};
    if (!sw_test_fixtures()) {
        skip();
    }
    sw_str_printf(&path, "%s/chat/jinja/reference.json", sw_test_fixtures());
    if (access(path.ptr, R_OK) != 0) {
        print_message("skipped: no %s\n", path.ptr);
        sw_str_fini(&path);
        skip();
    }
    assert_int_equal(sw_json_read(path.ptr, SW_JSON_STRICT, &doc), SW_OK);
    check_rows(doc);
    sw_json_close(doc);
    sw_str_fini(&path);
}

/* Each argument of each filter, test and method (tests/peers/record_jinja.py). */
static void recorded_arguments(void **state)
{
    (void)state;
    struct sw_json_doc *doc;
    assert_int_equal(sw_json_read("tests/cases/jinja/reference.json", SW_JSON_STRICT, &doc), SW_OK);
    check_rows(doc);
    sw_json_close(doc);
}

static int64_t chars_before(const struct sw_str *text, size_t end)
{
    int64_t n = 0;
    for (size_t i = 0; i < end; ++i) {
        n += ((unsigned char)text->ptr[i] & 0xC0) != 0x80;
    }
    return n;
}

static bool same_spans(const struct made *made, const struct sw_json *spans)
{
    const struct sw_json *span = spans->first;
    size_t i = 0;
    for (; span && i < made->text.n_spans; span = span->next, ++i) {
        if (chars_before(&made->text.text, made->text.spans[i].first) != span->first->integer ||
            chars_before(&made->text.text, made->text.spans[i].end) != span->last->integer) {
            return false;
        }
    }
    return !span && i == made->text.n_spans;
}

/* One conversation, with and without the prompt for an answer. */
static void check_chat(struct sw_json_doc *doc, const struct sw_json *root,
                       const struct sw_json *row, int *n_wrong)
{
    static const char *const templates[] = {"template", "template_marked"};
    const struct sw_json *spans = sw_json_get(row, "spans");
    for (int prompt = 0; prompt < 2; ++prompt) {
        struct sw_json *variables = sw_json_put(doc, sw_json_root(doc), "vars", SW_JSON_OBJECT);
        const struct sw_json *text = sw_json_get(row, prompt ? "prompt_text" : "text");
        const struct sw_json *error = sw_json_get(row, prompt ? "prompt_error" : "error");
        const struct sw_json *kind = error ? sw_json_get(error, "kind") : NULL;
        for (const struct sw_json *v = sw_json_get(root, "variables")->first; v; v = v->next) {
            sw_json_put_copy(doc, variables, v->key, v);
        }
        for (const struct sw_json *v = row->first; v; v = v->next) {
            if (strcmp(v->key, "messages") == 0 || strcmp(v->key, "tools") == 0) {
                sw_json_put_copy(doc, variables, v->key, v);
            }
        }
        sw_json_put_bool(doc, variables, "add_generation_prompt", prompt);
        for (size_t i = 0; i < SW_LEN(templates) && (text || error) &&
                           !(kind && strcmp(kind->string, "empty") == 0);
             ++i) {
            const struct sw_json *template = sw_json_get(root, templates[i]);
            struct made made;
            make(template->string, template->string_len, variables, &made);
            check_made(sw_json_get(row, "name")->string, &made, text, error, n_wrong);
            if (i == 1 && !prompt && spans && !made.kind && !same_spans(&made, spans)) {
                print_error("%s: spans\n", sw_json_get(row, "name")->string);
                ++*n_wrong;
            }
            sw_jinja_text_fini(&made.text);
        }
        sw_json_remove(sw_json_root(doc), variables);
    }
}

static void recorded_chats(void **state)
{
    (void)state;
    struct sw_str path = {0};
    int n_folders = 0, n_wrong = 0;
    if (!sw_test_fixtures()) {
        skip();
    }
    sw_str_printf(&path, "%s/chat", sw_test_fixtures());
    DIR *dir = opendir(path.ptr);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        struct sw_json_doc *doc;
        int n = 0;
        sw_str_clear(&path);
        sw_str_printf(&path, "%s/chat/%s/reference.json", sw_test_fixtures(), entry->d_name);
        if (entry->d_name[0] == '.' || sw_json_read(path.ptr, SW_JSON_STRICT, &doc) < 0) {
            continue;
        }
        const struct sw_json *root = sw_json_root(doc);
        const struct sw_json *row =
            sw_json_get(root, "template") ? sw_json_get(root, "rows")->first : NULL;
        n_folders += row != NULL;
        for (; row; row = row->next, ++n) {
            check_chat(doc, root, row, &n_wrong);
        }
        print_message("  %s: %d conversations\n", entry->d_name, n);
        sw_json_close(doc);
    }
    if (dir) {
        closedir(dir);
    }
    sw_str_fini(&path);
    if (n_folders == 0) {
        print_message("skipped: no recorded chats\n");
        skip();
    }
    assert_int_equal(n_wrong, 0);
}

/* ---- by the rules ---- */

static void check(const char *template, const char *variables, const char *wanted)
{
    struct sw_json_doc *doc;
    struct made made;
    assert_int_equal(sw_json_parse("variables", variables, strlen(variables), SW_JSON_STRICT, &doc),
                     SW_OK);
    make(template, strlen(template), sw_json_root(doc), &made);
    if (made.kind) {
        struct sw_str found = {0};
        sw_str_printf(&found, "%s: %s", made.kind, sw_error_message());
        if (strncmp(found.ptr, wanted, strlen(wanted)) != 0) {
            fail_msg("%s: wanted %s, found %s", template, wanted, found.ptr);
        }
        sw_str_fini(&found);
    } else if (strcmp(sw_str_text(&made.text.text), wanted) != 0) {
        fail_msg("%s: wanted %s, found %s", template, wanted, sw_str_text(&made.text.text));
    }
    sw_jinja_text_fini(&made.text);
    sw_json_close(doc);
}

static void what_a_chat_needs(void **state)
{
    (void)state;
    check("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}",
          "{\"messages\":[{\"role\":\"user\",\"content\":\" Hi \"},"
          "{\"role\":\"x\",\"content\":\"a\"}]}",
          "<user>Hi<x>a");
    check("{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}"
          "{% endfor %}{{ ns.n }}",
          "{}", "3");
    check("a\n  {% if x %}\n  b\n  {% endif %}\nc\n", "{\"x\":true}", "a\n  b\nc");
    check("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}"
          "{% break %}{% endif %}{{ i }}{% endfor %}",
          "{}", "013");
    check("{{ [1, 'a', none, 0.5, true] }}", "{}", "[1, 'a', None, 0.5, True]");
    check("{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='role') | "
          "join(',') }}",
          "{\"messages\":[{\"role\":\"user\"},{\"role\":\"x\"},{}]}", "user");
    check("{{ strftime_now('%d %b %Y') }}", "{}", "01 Jan 1970");
    check("{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 'ab' * 2 }} {{ not 1 in [2] }}", "{}",
          "True False abab True");
}

/* As Jinja renders them: a macro sees its parameters and the names of the whole template. */
static void macros_write_what_they_are_given(void **state)
{
    (void)state;
    check("{% macro f(a, b='x', c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}"
          "{{ f(1) }}{{ f(1, 2) }}{{ f(1, c=3) }}{{ f(b=4, a=5) }}",
          "{}", "[1x1][121][1x3][545]");
    check("{% set g = 1 %}{% macro f() %}{{ g }}{% set g = 7 %}{{ g }}{% endmacro %}"
          "{{ f() }}{{ g }}{% set g = 2 %}{{ f() }}",
          "{}", "17127");
    check("{% macro f() %}{{ loop is defined }}{{ i is defined }}{% endmacro %}"
          "{% for i in [8] %}{{ f() }}{% endfor %}",
          "{}", "FalseFalse");
    check("{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
          "{}", "543210");
    check("{% macro f(x) %}{% for i in x %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}"
          "{% endmacro %}{% for k in [1, 2] %}{{ f([0, 1, 2, 3]) }}{% endfor %}",
          "{}", "0101");
    check("{% macro a() %}{{ b() }}{% endmacro %}{% macro b(x) -%}  {{ x is defined }} "
          "{%- endmacro %}{% set c %}{{ a() }}{% endset %}{{ c + a() }}{{ a is callable }}",
          "{}", "FalseFalseTrue");
    check("{% macro f(a) %}{{ a.b }}{% endmacro %}\n{{ f() }}", "{}",
          "undefined: template:1:21: 'a' is undefined");
    check("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{}",
          "type: template:1:35: macro 'f' takes at most 1 arguments");
    check("{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}", "{}",
          "type: template:1:35: macro 'f' has no argument 'a' left");
    check("{% macro f(a, a) %}{% endmacro %}", "{}", "syntax: template:1:15: a parameter has the");
    check("{% macro f(a=1, b) %}{% endmacro %}", "{}",
          "syntax: template:1:17: a parameter without");
    check("{% for i in [1] %}{% macro f() %}{% endmacro %}{% endfor %}", "{}",
          "syntax: template:1:22: a macro inside a loop or a macro is not built");
    check("{% macro f() %}{% generation %}{% endgeneration %}{% endmacro %}", "{}",
          "syntax: template:1:19: a generation block inside a macro is not built");
}

/* As in Jinja, `loop` may be kept beyond its loop, and then stays at the last item entered. */
static void a_loop_outlives_its_body(void **state)
{
    (void)state;
#define KEPT "{% set ns = namespace() %}{% for i in 'abc' %}{% set ns.l = loop %}"
    check(KEPT "{% endfor %}{{ ns.l.index }}{{ ns.l.last }}{{ ns.l.previtem }}"
               "{{ ns.l.nextitem is defined }}{{ ns.l.length }}{{ ns.l.revindex0 }}",
          "{}", "3TruebFalse30");
    check(KEPT "{% if i == 'b' %}{% break %}{% endif %}{% endfor %}"
               "{{ ns.l.index }}{{ ns.l.last }}{{ ns.l.nextitem }}{{ ns.l }}",
          "{}", "2Falsec<LoopContext 2/3>");
    check(KEPT "{% for j in [1, 2] %}{% endfor %}{{ ns.l.index }}{{ ns.l.depth }}{% endfor %}"
               "{% for j in [1, 2] %}{{ ns.l.index }}{{ ns.l == loop }}{% endfor %}",
          "{}", "1121313False3False");
    check("{% set ns = namespace(a=[]) %}{% for i in [1, 2] %}{% set ns.a = ns.a + [loop] %}"
          "{% endfor %}{{ ns.a[0].index }}{{ ns.a[0] == ns.a[1] }}{{ ns.a }}",
          "{}", "2True[<LoopContext 2/2>, <LoopContext 2/2>]");
    check("{% macro f(l) %}{{ l.index }}{% for k in 'ab' %}{{ loop.index }}{{ l.index }}"
          "{% endfor %}{% endmacro %}{% for i in [1, 2] %}{{ f(loop) }}{% endfor %}",
          "{}", "1112121222");
    check("{% for i in [1, 2] %}{% set x = loop %}{{ x.index }}{% for j in [1] %}{{ x.index }}"
          "{{ loop.index }}{% endfor %}{% endfor %}{{ x is defined }}{{ loop is defined }}",
          "{}", "111221FalseFalse");
    check("{% for i in [1, 2] %}{% for j in [1] if loop.first %}{{ i }}{% endfor %}{% endfor %}",
          "{}", "1");
    check("{% for i in [1] %}{% set loop = 1 %}{% endfor %}", "{}",
          "syntax: template:1:26: `loop` cannot be assigned in a loop");
    check("{% for loop in [1] %}{% endfor %}", "{}",
          "syntax: template:1:8: `loop` cannot be assigned in a loop");
    check("{% set loop = 1 %}{{ loop }}", "{}", "1");
}

/* As in transformers, these blocks have names of their own. It would mark another text where a
 * generation block is inside a set block: refused. */
static void blocks_have_their_own_names(void **state)
{
    (void)state;
    struct sw_json_doc *doc;
    struct made made;
    static const char nested[] =
        "x{% generation %}ab{% generation %}cd{% endgeneration %}e{% endgeneration %}"
        "{% for i in 'fg' %}{% generation %}{{ i }}{% endgeneration %}{% endfor %}";
    check("{% set y = 0 %}{% set x %}{% set y = 1 %}{{ y }}{% set z = 2 %}{% endset %}"
          "{{ x }}{{ y }}{{ z is defined }}",
          "{}", "10False");
    check("{% set x = 0 %}{% generation %}{{ x }}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}",
          "{}", "010");
    check("{% for i in [1, 2] %}a{% set x %}b{% if i == 1 %}{% continue %}{% endif %}c{% endset %}"
          "{{ x }}{% endfor %}",
          "{}", "aabc");
    check("{% set ns = namespace(x=0) %}{% for i in [1] %}{% set ns.x %}{% break %}{% endset %}"
          "{% endfor %}{{ ns.x }}",
          "{}", "0");
    check("{% generation %}{% set x %}a{% endset %}{{ x }}{% endgeneration %}", "{}", "a");
    check("ab{% set x %}{% generation %}cd{% endgeneration %}{% endset %}ef{{ x }}", "{}",
          "syntax: template:1:17: a generation block inside a set block is not built");
    check("{% set x %}{% macro f() %}{% endmacro %}{% endset %}", "{}",
          "syntax: template:1:15: a macro inside a set or generation block is not built");
    check("{% generation %}{% macro f() %}{% endmacro %}{% endgeneration %}", "{}",
          "syntax: template:1:20: a macro inside a set or generation block is not built");
    check("{% for i in [1] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{}",
          "syntax: template:1:38: wanted this inside a loop");
    check("{% for i in [1] %}{% generation %}{% set loop = 1 %}{% endgeneration %}{% endfor %}",
          "{}", "syntax: template:1:42: `loop` cannot be assigned in a loop");
    assert_int_equal(sw_json_parse("variables", "{}", 2, SW_JSON_STRICT, &doc), SW_OK);
    make(nested, sizeof(nested) - 1, sw_json_root(doc), &made);
    assert_string_equal(sw_str_text(&made.text.text), "xabcdefg");
    assert_int_equal(made.text.n_spans, 3);
    assert_int_equal(made.text.spans[0].first, 1);
    assert_int_equal(made.text.spans[0].end, 6);
    assert_int_equal(made.text.spans[2].first, 7);
    sw_jinja_text_fini(&made.text);
    sw_json_close(doc);
}

/* Infinite recursion, and recursion through deeply nested bodies, hit a limit. */
static void macros_that_call_themselves_end(void **state)
{
    (void)state;
    struct sw_str text = {0};
    check("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{}", "limit: template:1:");
    check("{% macro f(a=f()) %}{% endmacro %}{{ f() }}", "{}", "limit: template:1:");
    check("{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{% for i in range(9) %}{{ f() }}"
          "{% endfor %}",
          "{}", "limit: template:1:");
    check("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
          "{{ f(40) }}",
          "{}", "limit: template:1:");
    check("{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(x='a') %}"
          "{% for i in range(60) %}{% set ns.x = f(ns.x) %}{% endfor %}",
          "{}", "limit: template:1:");
    sw_str_puts(&text, "{% macro f() %}");
    for (int i = 0; i < 90; ++i) {
        sw_str_puts(&text, "{% for i in [1] %}");
    }
    sw_str_puts(&text, "{{ f() }}");
    for (int i = 0; i < 90; ++i) {
        sw_str_puts(&text, "{% endfor %}");
    }
    sw_str_puts(&text, "{% endmacro %}{{ f() }}");
    check(sw_str_text(&text), "{}", "limit: template:1:");
    sw_str_fini(&text);
}

static void refusals_name_line_and_column(void **state)
{
    (void)state;
    check("a\n{{ b.c }}", "{}", "undefined: template:2:5: 'b' is undefined");
    check("{% call x() %}{% endcall %}", "{}",
          "syntax: template:1:4: the statement call is not built");
    check("{{ 2 ** 3 }}", "{}", "syntax: template:1:6: the operator ** is not built");
    check("{{ x | nothing }}", "{}",
          "syntax: template:1:8: wanted a filter that is built, found 'nothing'");
    check("x\n{% if a %}b", "{}", "syntax: template:2:9: the block does not end: wanted elif");
    check("{{ raise_exception('roles') }}", "{}", "raise_exception: template:1:19: roles");
    check("{% break %}", "{}", "syntax: template:1:4: wanted this inside a loop");
    check("{{ 'a' | trim(char='a') }}", "{}", "type: template:1:10: trim has no argument 'char'");
    check("{{ 'a' | trim('a', 'b') }}", "{}",
          "type: template:1:10: trim takes at most 1 arguments, found 2");
    check("{{ 'a'.replace('a') }}", "{}", "type: template:1:7: replace wants 2 arguments, found 1");
    check("{{ 6 is divisibleby }}", "{}",
          "type: template:1:6: divisibleby wants 1 arguments, found 0");
    check("{{ range(1, 2, 3, 4, 5, 6, 7, 8, 9) }}", "{}",
          "syntax: template:1:34: a call of so many arguments");
    check("{{ f(a=1, a=2) }}", "{}", "syntax: template:1:11: two arguments have the same name");
    check("{{ 1 | tojson(indent=17) }}", "{}",
          "limit: template:1:8: tojson with an indent of 17, at most 16");
}

/* No template may run forever or use all memory. */
static void limits(void **state)
{
    (void)state;
    check("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "{}",
          "limit: template");
    check(
        "{% set ns = namespace(x='aaaaaaaa') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}"
        "{% endfor %}",
        "{}", "limit: template");
    check("{{ 'aaaaaaaaaa' * 99999999 }}", "{}", "limit: template");
    check("{{ range(999999) }}", "{}", "limit: template");
    struct sw_str deep = {0};
    struct sw_jinja *jinja;
    for (int i = 0; i < 100000; ++i) {
        sw_str_puts(&deep, "{{ (");
    }
    assert_int_equal(sw_jinja_open("deep", deep.ptr, deep.len, &jinja), SW_E_FORMAT);
    sw_str_clear(&deep);
    sw_str_puts(&deep, "{{ ");
    for (int i = 0; i < 100000; ++i) {
        sw_str_puts(&deep, i % 2 ? "[" : "-(");
    }
    assert_int_equal(sw_jinja_open("deep", deep.ptr, deep.len, &jinja), SW_E_FORMAT);
    sw_str_fini(&deep);
}

/* begin, n times part, end; refused or rendered, with a place. */
static void check_chain(const char *begin, const char *part, int n, const char *end)
{
    struct sw_str text = {0};
    struct sw_jinja *jinja = NULL;
    struct sw_jinja_text out = {0};
    struct sw_json_doc *doc;
    sw_str_puts(&text, begin);
    for (int i = 0; i < n; ++i) {
        sw_str_puts(&text, part);
    }
    sw_str_puts(&text, end);
    const sw_status st = sw_jinja_open("chain", text.ptr, text.len, &jinja);
    if (n > 1000) {
        if (st != SW_E_FORMAT || strncmp(sw_error_message(), "chain:1:", 8) != 0) {
            fail_msg("%s%s..: %d %s", begin, part, st, sw_error_message());
        }
    } else {
        assert_int_equal(st, SW_OK);
        assert_int_equal(sw_json_parse("none", "{}", 2, SW_JSON_STRICT, &doc), SW_OK);
        const sw_status rendered = sw_jinja_render(jinja, sw_json_root(doc), 0, &out);
        assert_true(rendered == SW_OK || out.error == SW_JINJA_UNDEFINED ||
                    out.error == SW_JINJA_TYPE);
        sw_json_close(doc);
    }
    sw_jinja_text_fini(&out);
    sw_jinja_close(jinja);
    sw_str_fini(&text);
}

/* Parsing and walking a chain use as much stack as brackets do. */
static void chains_are_as_deep_as_brackets(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *part, *end;
    } chains[] = {
        {"{{ a", ".b", " }}"},       {"{{ a", "[0]", " }}"},   {"{{ a", "()", " }}"},
        {"{{ 1", " + 1", " }}"},     {"{{ 1", " * 1", " }}"},  {"{{ 1", " ~ 1", " }}"},
        {"{{ 1", " and 1", " }}"},   {"{{ 1", " or 1", " }}"}, {"{{ 1", " | string", " }}"},
        {"{{ 1", " is true", " }}"}, {"{{ 1", " if 1", " }}"}, {"{% if 1", ".b", " %}{% endif %}"},
        {"{{ a", "[0:1]", " }}"},    {"{{ a", ".b()", " }}"},
    };
    for (size_t i = 0; i < SW_LEN(chains); ++i) {
        check_chain(chains[i].begin, chains[i].part, 100, chains[i].end);
        check_chain(chains[i].begin, chains[i].part, 10000, chains[i].end);
    }
}

/* Each case doubles its data with every iteration. */
static void what_grows_is_counted_before_it_is_made(void **state)
{
    (void)state;
#define TURNS "{% for i in range(60) %}"
#define END "{% endfor %}"
    static const char *const templates[] = {
        "{% set ns = namespace() %}{% set ns.a = ns %}{% set ns.b = ns %}{{ ns }}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{% set ns.b = ns %}{{ ns ~ 'x' }}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{% set ns.b = ns %}{{ [ns] | string }}",
        "{% set ns = namespace(x=[1], y=[1]) %}" TURNS "{% set ns.x = [ns.x, ns.x] %}"
        "{% set ns.y = [ns.y, ns.y] %}" END "{{ ns.x == ns.y }}",
        "{% set ns = namespace(x=[1], y=[1]) %}" TURNS "{% set ns.x = {'a': ns.x, 'b': ns.x} %}"
        "{% set ns.y = {'a': ns.y, 'b': ns.y} %}" END "{{ ns.x in [ns.y] }}",
        "{% set ns = namespace(x=[1]) %}" TURNS "{% set ns.x = [ns.x, ns.x] %}" END
        "{{ ns.x | tojson }}",
        "{% set ns = namespace(x=[1]) %}" TURNS "{% set ns.x = [ns.x, ns.x] %}" END
        "{{ ns.x | join(',') }}",
#ifndef TEST_SANITIZED /* whose memmem reads all the rest of the text at each call */
        "{% set ns = namespace(x='a') %}" TURNS "{% set ns.x = ns.x.replace('a', 'aa') %}" END,
#endif
        "{% set ns = namespace(x='a') %}" TURNS "{% set ns.x = [ns.x, ns.x] | join %}" END,
        "{% set ns = namespace(x='a') %}" TURNS "{% set ns.x = ns.x * 2 %}" END,
        "{% set ns = namespace(x='a') %}" TURNS "{% set ns.x = ns.x + ns.x %}" END,
        "{% set ns = namespace(x=[1]) %}" TURNS "{% set ns.x = ns.x + ns.x %}" END,
        "{% set ns = namespace(x='a') %}" TURNS
        "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}" END,
        "{% set ns = namespace(x='a') %}" TURNS "{% set ns.x = ns.x | tojson | tojson %}" END,
        "{% set x = 'a' * 9000000 %}{% for i in range(99999) %}{{ 'b' in x }}" END,
        "{% set x = 'a' * 9000000 %}{% for i in range(99999) %}{{ x | length }}" END,
        "{% set x = 'a' * 9000000 %}{% for i in range(99999) %}{{ x.split() | length }}" END,
        "{% set x = 'a' * 9000000 %}{% set y = 'a' * 9000000 %}{% for i in range(99999) %}"
        "{{ x == y }}" END,
        "{% set x = ' ' * 9000000 %}{% for i in range(99999) %}{{ x.strip() }}" END,
        "{% set x = 'a' * 9000000 %}{% for i in range(99999) %}{{ x | upper | length }}" END,
    };
    for (size_t i = 0; i < SW_LEN(templates); ++i) {
        check(templates[i], "{}", "limit: template:1:");
    }
}

static void failing_allocations(void **state)
{
    (void)state;
    static const char text[] =
        "{% for m in l %}{% set x = m ~ '!' %}{% generation %}{{ x | upper }}{% endgeneration %}"
        "{% endfor %}{{ {'a': [1]} | tojson }}{% set y %}b{% endset %}{{ y }}";
    struct sw_json_doc *doc;
    struct sw_alloc_stats before, after;
    sw_status st = SW_E_NOMEM;
    assert_int_equal(sw_json_parse("v", "{\"l\":[\"a\",\"b\"]}", 15, SW_JSON_STRICT, &doc), SW_OK);
    sw_alloc_get_stats(&before);
    for (int64_t n = 1; st != SW_OK; ++n) {
        struct sw_jinja *jinja = NULL;
        struct sw_jinja_text out = {0};
        sw_alloc_fail_nth(n);
        st = sw_jinja_open("t", text, sizeof(text) - 1, &jinja);
        st = st == SW_OK ? sw_jinja_render(jinja, sw_json_root(doc), 0, &out) : st;
        sw_alloc_fail_nth(0);
        assert_true(st == SW_OK || st == SW_E_NOMEM);
        if (st == SW_OK) {
            assert_string_equal(out.text.ptr, "A!B!{\"a\": [1]}b");
            assert_int_equal(out.n_spans, 2);
        }
        sw_jinja_text_fini(&out);
        sw_jinja_close(jinja);
        sw_alloc_get_stats(&after);
        assert_int_equal(after.live_blocks, before.live_blocks);
    }
    sw_json_close(doc);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_a_chat_needs),
    cmocka_unit_test(macros_write_what_they_are_given),
    cmocka_unit_test(a_loop_outlives_its_body),
    cmocka_unit_test(blocks_have_their_own_names),
    cmocka_unit_test(macros_that_call_themselves_end),
    cmocka_unit_test(refusals_name_line_and_column),
    cmocka_unit_test(limits),
    cmocka_unit_test(chains_are_as_deep_as_brackets),
    cmocka_unit_test(what_grows_is_counted_before_it_is_made),
    cmocka_unit_test(failing_allocations),
    cmocka_unit_test(recorded_arguments),
    TEST_IF(SW_HAVE_UTF8PROC, recorded_language),
    TEST_IF(SW_HAVE_UTF8PROC, recorded_chats),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
