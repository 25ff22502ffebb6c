// SPDX-License-Identifier: Apache-2.0
// Filters, tests, functions and methods of templates, by name, as in Jinja and Python.
#include "chat/jinja_value.h"

#include "text/text.h"

#include <string.h>
#include <time.h>

typedef const struct jinja_arguments *args;
typedef const struct jinja_value *input;

const struct jinja_value *sw_jinja_argument(const struct jinja_arguments *arguments, int position,
                                            const char *name)
{
    for (int i = arguments->n_positional; i < arguments->n; ++i) {
        if (arguments->name_lens[i] == strlen(name) &&
            memcmp(arguments->names[i], name, strlen(name)) == 0) {
            return &arguments->at[i];
        }
    }
    return position < arguments->n_positional ? &arguments->at[position] : NULL;
}

static sw_status finish_text(struct jinja_run *run, struct sw_str *text, struct jinja_value *out)
{
    const sw_status st = text->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a template")
                                      : sw_jinja_copy(run, sw_str_text(text), text->len, out);
    sw_str_fini(text);
    return st;
}

static sw_status type_error(struct jinja_run *run, const char *what, input value)
{
    return sw_jinja_fail(run, value->type == JINJA_V_UNDEFINED ? SW_JINJA_UNDEFINED : SW_JINJA_TYPE,
                         "%s of %s", what, sw_jinja_type_name(value));
}

/* Checks that an argument is text. NULL: it was not given. */
static sw_status want_text(struct jinja_run *run, input value, const char *what)
{
    return value && value->type != JINJA_V_STRING ? type_error(run, what, value) : SW_OK;
}

/* ---- text ---- */

/* Counts the work of walking the characters of a text. */
static sw_status go_through(struct jinja_run *run, input text)
{
    sw_jinja_work(run, 4 * (int64_t)text->len);
    return sw_jinja_check(run);
}

/* White space as in Python's str.isspace. */
static bool is_space(int32_t c)
{
    return sw_char_is_space(c) || (c >= 0x1C && c <= 0x1F);
}

static bool is_stripped(int32_t c, input set)
{
    if (!set || set->type != JINJA_V_STRING) {
        return is_space(c);
    }
    for (size_t pos = 0; pos < set->len;) {
        if (sw_utf8_step(set->text, set->len, &pos) == c) {
            return true;
        }
    }
    return false;
}

static struct jinja_value strip(const char *text, size_t len, input set, bool left, bool right)
{
    size_t first = 0;
    for (size_t pos = 0; left && pos < len; first = pos) {
        if (!is_stripped(sw_utf8_next(text, len, &pos), set)) {
            break;
        }
    }
    while (right && len > first) {
        size_t at = len - 1;
        while (at > first && ((unsigned char)text[at] & 0xC0) == 0x80) {
            at--;
        }
        size_t pos = at;
        if (!is_stripped(sw_utf8_next(text, len, &pos), set)) {
            break;
        }
        len = at;
    }
    return sw_jinja_string(text + first, len - first);
}

static bool is_name(const char *text, size_t len, const char *name)
{
    return len == strlen(name) && memcmp(text, name, len) == 0;
}

/* Both filters and methods of a text. */
enum casing { UPPER, LOWER, CAPITALIZED, TITLE, N_CASINGS };
static const char *const casings[N_CASINGS] = {"upper", "lower", "capitalize", "title"};

/* N_CASINGS if the name is none of them. */
static enum casing find_casing(const char *name, size_t len)
{
    int i = 0;
    while (i < N_CASINGS && !is_name(name, len, casings[i])) {
        ++i;
    }
    return (enum casing)i;
}

static void put_char(int32_t c, bool upper, struct sw_str *out)
{
    char bytes[4];
    if (upper && c == 0xDF) {
        sw_str_puts(out, "SS");
    } else if (!upper && c == 0x130) {
        sw_str_puts(out, "i\xCC\x87");
    } else {
        sw_str_append(out, bytes, sw_utf8_put(upper ? sw_char_upper(c) : sw_char_lower(c), bytes));
    }
}

static sw_status change_case(struct jinja_run *run, const char *text, size_t len,
                             enum casing casing, struct jinja_value *out)
{
    struct sw_str made = {0};
    bool begins = true;
    if (!sw_jinja_room(run, &made, 3 * len) || !sw_jinja_work(run, 4 * (int64_t)len)) {
        return sw_jinja_check(run);
    }
    for (size_t pos = 0; pos < len;) {
        const int32_t c = sw_utf8_step(text, len, &pos);
        if (c >= 128 && !SW_HAVE_UTF8PROC) {
            sw_str_fini(&made);
            return sw_jinja_fail(
                run, SW_JINJA_RUNTIME,
                "upper and lower case beyond ASCII need utf8proc, which this build "
                "does not have: install libutf8proc-dev and build again");
        }
        const bool upper = casing == UPPER || (casing != LOWER && begins);
        put_char(c, upper, &made);
        begins = casing == TITLE && !sw_char_is_cased(c);
    }
    return finish_text(run, &made, out);
}

static sw_status replace(struct jinja_run *run, input value, input from, input to,
                         struct jinja_value *out)
{
    struct sw_str made = {0};
    SW_TRY(want_text(run, from, "replace"));
    SW_TRY(want_text(run, to, "replace"));
    if (!from || !to || from->len == 0) {
        return sw_jinja_fail(run, SW_JINJA_TYPE,
                             "replace wants two texts, the first one not empty");
    }
    for (size_t at = 0; at < value->len;) {
        const char *hit = memmem(value->text + at, value->len - at, from->text, from->len);
        const size_t plain = hit ? (size_t)(hit - value->text) - at : value->len - at;
        if (!sw_jinja_room(run, &made, plain + (hit ? to->len : 0))) {
            sw_str_fini(&made);
            return sw_jinja_check(run);
        }
        sw_str_append(&made, value->text + at, plain);
        sw_str_append(&made, to->text, hit ? to->len : 0);
        at += plain + (hit ? from->len : 0);
    }
    return finish_text(run, &made, out);
}

static sw_status split_at_spaces(struct jinja_run *run, input value, struct jinja_value *out)
{
    size_t first = 0;
    for (size_t pos = 0; pos <= value->len;) {
        const size_t at = pos;
        const int32_t c = sw_utf8_step(value->text, value->len, &pos);
        if (at == value->len || is_space(c)) {
            if (at > first) {
                const struct jinja_value word = sw_jinja_string(value->text + first, at - first);
                SW_TRY(sw_jinja_append(run, out->list, &word));
            }
            first = pos;
        }
    }
    return SW_OK;
}

static sw_status split(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    input separator = sw_jinja_argument(a, 0, "sep"), most = sw_jinja_argument(a, 1, "maxsplit");
    int64_t left =
        most && most->type == JINJA_V_INT && most->integer >= 0 ? most->integer : INT64_MAX;
    SW_TRY(go_through(run, value));
    SW_TRY(sw_jinja_new_list(run, out));
    if (!separator || separator->type == JINJA_V_NONE) {
        return split_at_spaces(run, value, out);
    }
    SW_TRY(want_text(run, separator, "split"));
    if (separator->len == 0) {
        return sw_jinja_fail(run, SW_JINJA_TYPE, "split at an empty separator");
    }
    for (size_t at = 0;; --left) {
        const char *hit =
            left > 0 ? memmem(value->text + at, value->len - at, separator->text, separator->len)
                     : NULL;
        const size_t n = hit ? (size_t)(hit - value->text) - at : value->len - at;
        const struct jinja_value part = sw_jinja_string(value->text + at, n);
        SW_TRY(sw_jinja_append(run, out->list, &part));
        if (!hit) {
            return SW_OK;
        }
        at += n + separator->len;
    }
}

/* ---- filters ---- */

static sw_status as_text(struct jinja_run *run, input value, struct jinja_value *out)
{
    struct sw_str text = {0};
    if (value->type == JINJA_V_STRING) {
        *out = *value;
        return SW_OK;
    }
    sw_jinja_print(run, value, &text);
    return finish_text(run, &text, out);
}

static sw_status do_trim(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    SW_TRY(as_text(run, value, out));
    SW_TRY(go_through(run, out));
    *out = strip(out->text, out->len, sw_jinja_argument(a, 0, "chars"), true, true);
    return SW_OK;
}

static sw_status cased(struct jinja_run *run, input value, enum casing casing,
                       struct jinja_value *out)
{
    struct jinja_value text;
    SW_TRY(as_text(run, value, &text));
    return change_case(run, text.text, text.len, casing, out);
}

static sw_status do_length(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    (void)a;
    switch (value->type) {
    case JINJA_V_STRING:
        sw_jinja_work(run, 2 * (int64_t)value->len);
        *out = sw_jinja_int(sw_utf8_count(value->text, value->len));
        return SW_OK;
    case JINJA_V_LIST:
        *out = sw_jinja_int(value->list->n);
        return SW_OK;
    case JINJA_V_MAP:
        *out = sw_jinja_int(value->map->n);
        return SW_OK;
    case JINJA_V_UNDEFINED:
        *out = sw_jinja_int(0);
        return SW_OK;
    default:
        return type_error(run, "length", value);
    }
}

static sw_status do_default(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    input other = sw_jinja_argument(a, 0, "default_value"),
          any = sw_jinja_argument(a, 1, "boolean");
    (void)run;
    const bool missing = value->type == JINJA_V_UNDEFINED ||
                         (any && sw_jinja_is_true(any) && !sw_jinja_is_true(value));
    *out = !missing ? *value : other ? *other : sw_jinja_string("", 0);
    return SW_OK;
}

static sw_status do_tojson(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    enum { MOST_INDENT = 16 };
    struct sw_str text = {0};
    input indent = sw_jinja_argument(a, 0, "indent");
    const bool given = indent && indent->type == JINJA_V_INT;
    if (given && (indent->integer < 0 || indent->integer > MOST_INDENT)) {
        return sw_jinja_fail(run, SW_JINJA_TYPE, "tojson with an indent of %lld",
                             (long long)indent->integer);
    }
    const sw_status st = sw_jinja_print_json(run, value, given ? indent->integer : -1, &text);
    if (st < 0) {
        sw_str_fini(&text);
        return st;
    }
    return finish_text(run, &text, out);
}

static sw_status do_join(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    struct jinja_value items;
    struct sw_str text = {0};
    input separator = sw_jinja_argument(a, 0, "d");
    SW_TRY(sw_jinja_items(run, value, &items));
    for (int64_t i = 0; i < items.list->n; ++i) {
        if (separator && i > 0) {
            sw_jinja_print(run, separator, &text);
        }
        sw_jinja_print(run, &items.list->items[i], &text);
    }
    return finish_text(run, &text, out);
}

static sw_status end_of(struct jinja_run *run, input value, bool last, struct jinja_value *out)
{
    struct jinja_value items;
    SW_TRY(sw_jinja_items(run, value, &items));
    const int64_t n = items.list->n;
    *out = n > 0 ? items.list->items[last ? n - 1 : 0] : sw_jinja_undefined("", 0);
    return SW_OK;
}

static sw_status do_first(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    (void)a;
    return end_of(run, value, false, out);
}

static sw_status do_last(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    (void)a;
    return end_of(run, value, true, out);
}

static sw_status do_string(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    (void)a;
    return as_text(run, value, out);
}

static sw_status do_safe(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    (void)a, (void)run;
    *out = *value; /* nothing is escaped here */
    return SW_OK;
}

static sw_status do_list(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    struct jinja_value items;
    (void)a;
    SW_TRY(sw_jinja_items(run, value, &items));
    SW_TRY(sw_jinja_new_list(run, out));
    for (int64_t i = 0; i < items.list->n; ++i) {
        SW_TRY(sw_jinja_append(run, out->list, &items.list->items[i]));
    }
    return SW_OK;
}

static sw_status do_reverse(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    struct jinja_value items;
    (void)a;
    SW_TRY(sw_jinja_items(run, value, &items));
    SW_TRY(sw_jinja_new_list(run, out));
    for (int64_t i = items.list->n - 1; i >= 0; --i) {
        SW_TRY(sw_jinja_append(run, out->list, &items.list->items[i]));
    }
    return value->type == JINJA_V_STRING
               ? do_join(run, &(struct jinja_value){.type = JINJA_V_LIST, .list = out->list},
                         &(struct jinja_arguments){0}, out)
               : SW_OK;
}

static sw_status do_replace(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    struct jinja_value text;
    SW_TRY(as_text(run, value, &text));
    return replace(run, &text, sw_jinja_argument(a, 0, "old"), sw_jinja_argument(a, 1, "new"), out);
}

static sw_status do_items(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    (void)a;
    if (value->type == JINJA_V_UNDEFINED) {
        return sw_jinja_new_list(run, out);
    }
    if (value->type != JINJA_V_MAP) {
        return type_error(run, "items", value);
    }
    SW_TRY(sw_jinja_new_list(run, out));
    for (int64_t i = 0; i < value->map->n; ++i) {
        struct jinja_value pair;
        SW_TRY(sw_jinja_new_list(run, &pair));
        SW_TRY(sw_jinja_append(run, pair.list, &value->map->keys[i]));
        SW_TRY(sw_jinja_append(run, pair.list, &value->map->values[i]));
        SW_TRY(sw_jinja_append(run, out->list, &pair));
    }
    return SW_OK;
}

/* The member of an item that an attribute names; undefined if the item lacks it. */
static struct jinja_value member_of(struct jinja_run *run, input item, input name)
{
    const struct jinja_value *found =
        item->type == JINJA_V_MAP ? sw_jinja_get(run, item->map, name) : NULL;
    return found ? *found : sw_jinja_undefined(name->text, name->len);
}

static sw_status select_by(struct jinja_run *run, input value, args a, bool wanted,
                           struct jinja_value *out)
{
    struct jinja_value items;
    input name = sw_jinja_argument(a, 0, "attribute"), test = sw_jinja_argument(a, 1, "test");
    struct jinja_arguments rest = {0};
    if (!name || name->type != JINJA_V_STRING || (test && test->type != JINJA_V_STRING)) {
        return sw_jinja_fail(run, SW_JINJA_TYPE,
                             "selectattr wants the names of a member and a test");
    }
    if (test && !sw_jinja_is_test(test->text, test->len)) {
        return sw_jinja_fail(run, SW_JINJA_RUNTIME, "the test '%.*s' is not built", (int)test->len,
                             test->text);
    }
    if (a->n_positional > 2) {
        rest.at[0] = a->at[2];
        rest.n = rest.n_positional = 1;
    }
    SW_TRY(sw_jinja_items(run, value, &items));
    SW_TRY(sw_jinja_new_list(run, out));
    for (int64_t i = 0; i < items.list->n; ++i) {
        const struct jinja_value member = member_of(run, &items.list->items[i], name);
        bool good = sw_jinja_is_true(&member);
        SW_TRY(test ? sw_jinja_test(run, test->text, test->len, &member, &rest, &good) : SW_OK);
        SW_TRY(good == wanted ? sw_jinja_append(run, out->list, &items.list->items[i]) : SW_OK);
    }
    return SW_OK;
}

static sw_status do_selectattr(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    return select_by(run, value, a, true, out);
}

static sw_status do_rejectattr(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    return select_by(run, value, a, false, out);
}

/* map(attribute='x') or map('filter'). */
static sw_status do_map(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    struct jinja_value items, made;
    input attribute = sw_jinja_argument(a, 8, "attribute"), filter = sw_jinja_argument(a, 0, "");
    const struct jinja_arguments none = {0};
    input name = attribute ? attribute : filter;
    if (!name || name->type != JINJA_V_STRING ||
        (!attribute && !sw_jinja_is_filter(name->text, name->len))) {
        return sw_jinja_fail(run, SW_JINJA_RUNTIME,
                             "map wants attribute=.. or a filter that is built");
    }
    SW_TRY(sw_jinja_items(run, value, &items));
    SW_TRY(sw_jinja_new_list(run, out));
    for (int64_t i = 0; i < items.list->n; ++i) {
        if (attribute) {
            made = member_of(run, &items.list->items[i], name);
        } else {
            SW_TRY(
                sw_jinja_filter(run, name->text, name->len, &items.list->items[i], &none, &made));
        }
        SW_TRY(sw_jinja_append(run, out->list, &made));
    }
    return SW_OK;
}

static const struct {
    const char *name;
    sw_status (*apply)(struct jinja_run *run, input value, args a, struct jinja_value *out);
} filters[] = {
    {"trim", do_trim},
    {"length", do_length},
    {"count", do_length},
    {"default", do_default},
    {"d", do_default},
    {"tojson", do_tojson},
    {"join", do_join},
    {"first", do_first},
    {"last", do_last},
    {"string", do_string},
    {"list", do_list},
    {"replace", do_replace},
    {"items", do_items},
    {"reverse", do_reverse},
    {"safe", do_safe},
    {"selectattr", do_selectattr},
    {"rejectattr", do_rejectattr},
    {"map", do_map},
};

bool sw_jinja_is_filter(const char *name, size_t len)
{
    for (size_t i = 0; i < SW_LEN(filters); ++i) {
        if (is_name(name, len, filters[i].name)) {
            return true;
        }
    }
    return find_casing(name, len) < N_CASINGS;
}

sw_status sw_jinja_filter(struct jinja_run *run, const char *name, size_t len,
                          const struct jinja_value *value, const struct jinja_arguments *arguments,
                          struct jinja_value *out)
{
    const struct jinja_value copy = *value; /* out may be it */
    const enum casing casing = find_casing(name, len);
    if (casing < N_CASINGS) {
        return cased(run, &copy, casing, out);
    }
    for (size_t i = 0; i < SW_LEN(filters); ++i) {
        if (is_name(name, len, filters[i].name)) {
            return filters[i].apply(run, &copy, arguments, out);
        }
    }
    return sw_jinja_fail(run, SW_JINJA_RUNTIME, "the filter '%.*s' is not built", (int)len, name);
}

/* ---- tests ---- */

enum test {
    IS_DEFINED,
    IS_UNDEFINED,
    IS_NONE,
    IS_STRING,
    IS_MAPPING,
    IS_ITERABLE,
    IS_SEQUENCE,
    IS_NUMBER,
    IS_INTEGER,
    IS_FLOAT,
    IS_BOOLEAN,
    IS_TRUE,
    IS_FALSE,
    IS_EQUAL,
    IS_OTHER,
    IS_IN,
    IS_ODD,
    IS_EVEN,
    IS_DIVISIBLE,
    IS_CALLABLE
};

static const struct {
    const char *name;
    enum test test;
} tests[] = {
    {"defined", IS_DEFINED},
    {"undefined", IS_UNDEFINED},
    {"none", IS_NONE},
    {"string", IS_STRING},
    {"mapping", IS_MAPPING},
    {"iterable", IS_ITERABLE},
    {"sequence", IS_SEQUENCE},
    {"number", IS_NUMBER},
    {"integer", IS_INTEGER},
    {"float", IS_FLOAT},
    {"boolean", IS_BOOLEAN},
    {"true", IS_TRUE},
    {"false", IS_FALSE},
    {"equalto", IS_EQUAL},
    {"eq", IS_EQUAL},
    {"ne", IS_OTHER},
    {"in", IS_IN},
    {"odd", IS_ODD},
    {"even", IS_EVEN},
    {"divisibleby", IS_DIVISIBLE},
    {"callable", IS_CALLABLE},
};

static int find_test(const char *name, size_t len)
{
    for (size_t i = 0; i < SW_LEN(tests); ++i) {
        if (is_name(name, len, tests[i].name)) {
            return (int)tests[i].test;
        }
    }
    return -1;
}

bool sw_jinja_is_test(const char *name, size_t len)
{
    return find_test(name, len) >= 0;
}

static sw_status test_with(struct jinja_run *run, enum test test, input value, input other,
                           bool *out)
{
    struct jinja_value items;
    if (!other) {
        return sw_jinja_fail(run, SW_JINJA_TYPE, "the test needs a value to compare with");
    }
    if (test == IS_EQUAL || test == IS_OTHER) {
        *out = sw_jinja_equal(run, value, other) == (test == IS_EQUAL);
        return SW_OK;
    }
    if (test == IS_DIVISIBLE) {
        if (value->type != JINJA_V_INT || other->type != JINJA_V_INT || other->integer == 0) {
            return type_error(run, "divisibleby", value);
        }
        *out = value->integer % other->integer == 0;
        return SW_OK;
    }
    *out = false;
    SW_TRY(sw_jinja_items(run, other, &items));
    for (int64_t i = 0; i < items.list->n; ++i) {
        *out |= sw_jinja_equal(run, &items.list->items[i], value);
    }
    return SW_OK;
}

sw_status sw_jinja_test(struct jinja_run *run, const char *name, size_t len,
                        const struct jinja_value *value, const struct jinja_arguments *arguments,
                        bool *out)
{
    const enum jinja_type type = value->type;
    const int test = find_test(name, len);
    switch (test) {
    case IS_DEFINED:
    case IS_UNDEFINED:
        *out = (type != JINJA_V_UNDEFINED) == (test == IS_DEFINED);
        break;
    case IS_NONE:
        *out = type == JINJA_V_NONE;
        break;
    case IS_STRING:
        *out = type == JINJA_V_STRING;
        break;
    case IS_MAPPING:
        *out = type == JINJA_V_MAP;
        break;
    case IS_ITERABLE:
    case IS_SEQUENCE:
        *out = type == JINJA_V_STRING || type == JINJA_V_LIST || type == JINJA_V_MAP ||
               type == JINJA_V_UNDEFINED;
        break;
    case IS_NUMBER:
        *out = sw_jinja_is_number(value);
        break;
    case IS_INTEGER:
        *out = type == JINJA_V_INT;
        break;
    case IS_FLOAT:
        *out = type == JINJA_V_FLOAT;
        break;
    case IS_BOOLEAN:
        *out = type == JINJA_V_BOOL;
        break;
    case IS_TRUE:
    case IS_FALSE:
        *out = type == JINJA_V_BOOL && (value->integer != 0) == (test == IS_TRUE);
        break;
    case IS_ODD:
    case IS_EVEN:
        if (type != JINJA_V_INT && type != JINJA_V_BOOL) {
            return type_error(run, "odd and even", value);
        }
        *out = (value->integer % 2 != 0) == (test == IS_ODD);
        break;
    case IS_CALLABLE:
        *out = type == JINJA_V_FUNCTION;
        break;
    default:
        return test_with(run, (enum test)test, value, sw_jinja_argument(arguments, 0, "other"),
                         out);
    }
    return SW_OK;
}

/* ---- functions ---- */

static sw_status do_range(struct jinja_run *run, args a, struct jinja_value *out)
{
    enum { MOST = 100000 }; /* values of a range, so that no template fills the memory */
    int64_t at[3] = {0, 0, 1};
    if (a->n_positional < 1 || a->n_positional > 3 || a->n > a->n_positional) {
        return sw_jinja_fail(run, SW_JINJA_TYPE, "range wants one to three numbers");
    }
    for (int i = 0; i < a->n_positional; ++i) {
        if (a->at[i].type != JINJA_V_INT && a->at[i].type != JINJA_V_BOOL) {
            return type_error(run, "range", &a->at[i]);
        }
        at[a->n_positional == 1 ? 1 : i] = a->at[i].integer;
    }
    if (at[2] == 0) {
        return sw_jinja_fail(run, SW_JINJA_TYPE, "range in steps of 0");
    }
    SW_TRY(sw_jinja_new_list(run, out));
    for (int64_t i = at[0]; at[2] > 0 ? i < at[1] : i > at[1];) {
        const struct jinja_value item = sw_jinja_int(i);
        if (out->list->n == MOST) {
            return sw_jinja_fail(run, SW_JINJA_LIMIT, "range of more than %d", MOST);
        }
        SW_TRY(sw_jinja_append(run, out->list, &item));
        if (__builtin_add_overflow(i, at[2], &i)) {
            break;
        }
    }
    return SW_OK;
}

static sw_status do_namespace(struct jinja_run *run, args a, struct jinja_value *out)
{
    SW_TRY(sw_jinja_new_map(run, JINJA_V_NAMESPACE, out));
    if (a->n_positional > 0) {
        return sw_jinja_fail(run, SW_JINJA_TYPE, "namespace wants names: namespace(x=1)");
    }
    for (int i = 0; i < a->n; ++i) {
        const struct jinja_value key = sw_jinja_string(a->names[i], a->name_lens[i]);
        SW_TRY(sw_jinja_put(run, out->map, &key, &a->at[i]));
    }
    return SW_OK;
}

static sw_status do_raise(struct jinja_run *run, args a, struct jinja_value *out)
{
    struct jinja_value text;
    input message = sw_jinja_argument(a, 0, "message");
    (void)out;
    if (!message) {
        return sw_jinja_fail(run, SW_JINJA_TYPE, "raise_exception wants a message");
    }
    SW_TRY(as_text(run, message, &text));
    return sw_jinja_fail(run, SW_JINJA_RAISED, "%.*s", (int)sw_min_i64((int64_t)text.len, 400),
                         text.text);
}

static sw_status do_strftime(struct jinja_run *run, args a, struct jinja_value *out)
{
    char text[256];
    struct tm parts;
    const time_t now = (time_t)run->today;
    input format = sw_jinja_argument(a, 0, "format");
    if (!format || format->type != JINJA_V_STRING || !gmtime_r(&now, &parts)) {
        return sw_jinja_fail(run, SW_JINJA_TYPE, "strftime_now wants a format");
    }
    const size_t n = strftime(text, sizeof(text), format->text, &parts);
    if (n == 0 && format->len > 0) {
        return sw_jinja_fail(run, SW_JINJA_TYPE, "strftime_now: a format that gives no short text");
    }
    return sw_jinja_copy(run, text, n, out);
}

static const struct {
    const char *name;
    sw_status (*call)(struct jinja_run *run, args a, struct jinja_value *out);
} functions[] = {
    {"range", do_range},
    {"namespace", do_namespace},
    {"raise_exception", do_raise},
    {"strftime_now", do_strftime},
};

bool sw_jinja_is_function(const char *name, size_t len)
{
    for (size_t i = 0; i < SW_LEN(functions); ++i) {
        if (is_name(name, len, functions[i].name)) {
            return true;
        }
    }
    return false;
}

sw_status sw_jinja_function(struct jinja_run *run, const char *name, size_t len,
                            const struct jinja_arguments *arguments, struct jinja_value *out)
{
    for (size_t i = 0; i < SW_LEN(functions); ++i) {
        if (is_name(name, len, functions[i].name)) {
            return functions[i].call(run, arguments, out);
        }
    }
    return sw_jinja_fail(run, SW_JINJA_TYPE, "'%.*s' cannot be called", (int)len, name);
}

/* ---- methods ---- */

/* startswith and endswith, with one text or any of several. */
static sw_status has_end(struct jinja_run *run, input of, input what, bool at_end,
                         struct jinja_value *out)
{
    bool found = false;
    if (!what || (what->type != JINJA_V_STRING && what->type != JINJA_V_LIST)) {
        return sw_jinja_fail(run, SW_JINJA_TYPE, "startswith and endswith want a text");
    }
    const struct jinja_list one = {(struct jinja_value *)what, 1, 1};
    const struct jinja_list *all = what->type == JINJA_V_LIST ? what->list : &one;
    for (int64_t i = 0; i < all->n; ++i) {
        input part = &all->items[i];
        SW_TRY(want_text(run, part, "startswith and endswith"));
        found |= part->len <= of->len && memcmp(at_end ? of->text + of->len - part->len : of->text,
                                                part->text, part->len) == 0;
    }
    *out = sw_jinja_bool(found);
    return SW_OK;
}

static sw_status of_text(struct jinja_run *run, input of, const char *name, size_t len, args a,
                         struct jinja_value *out)
{
    static const struct {
        const char *name;
        bool left, right;
    } strips[] = {{"strip", true, true}, {"lstrip", true, false}, {"rstrip", false, true}};
    const enum casing casing = find_casing(name, len);
    for (size_t i = 0; i < SW_LEN(strips); ++i) {
        if (is_name(name, len, strips[i].name)) {
            input set = sw_jinja_argument(a, 0, "chars");
            if (set && set->type != JINJA_V_NONE) {
                SW_TRY(want_text(run, set, "strip"));
            }
            SW_TRY(go_through(run, of));
            *out = strip(of->text, of->len, set, strips[i].left, strips[i].right);
            return SW_OK;
        }
    }
    if (casing < N_CASINGS) {
        return change_case(run, of->text, of->len, casing, out);
    }
    if (is_name(name, len, "startswith") || is_name(name, len, "endswith")) {
        return has_end(run, of, sw_jinja_argument(a, 0, "prefix"), name[0] == 'e', out);
    }
    if (is_name(name, len, "split")) {
        return split(run, of, a, out);
    }
    if (is_name(name, len, "replace")) {
        return replace(run, of, sw_jinja_argument(a, 0, "old"), sw_jinja_argument(a, 1, "new"),
                       out);
    }
    if (is_name(name, len, "join")) {
        struct jinja_arguments with = {.n = 1, .n_positional = 1};
        const struct jinja_value *what = sw_jinja_argument(a, 0, "iterable");
        with.at[0] = *of;
        return what ? do_join(run, what, &with, out)
                    : sw_jinja_fail(run, SW_JINJA_TYPE, "join wants a list");
    }
    return sw_jinja_fail(run, SW_JINJA_UNDEFINED, "a str has no '%.*s' here", (int)len, name);
}

static sw_status of_map(struct jinja_run *run, input of, const char *name, size_t len, args a,
                        struct jinja_value *out)
{
    if (is_name(name, len, "items")) {
        return do_items(run, of, a, out);
    }
    if (is_name(name, len, "keys")) {
        return sw_jinja_items(run, of, out);
    }
    if (is_name(name, len, "values")) {
        SW_TRY(sw_jinja_new_list(run, out));
        for (int64_t i = 0; i < of->map->n; ++i) {
            SW_TRY(sw_jinja_append(run, out->list, &of->map->values[i]));
        }
        return SW_OK;
    }
    input key = sw_jinja_argument(a, 0, "key"), other = sw_jinja_argument(a, 1, "default");
    if (is_name(name, len, "get") && key) {
        const struct jinja_value *found = sw_jinja_get(run, of->map, key);
        *out = found ? *found : other ? *other : (struct jinja_value){.type = JINJA_V_NONE};
        return SW_OK;
    }
    const struct jinja_value member = sw_jinja_string(name, len);
    const struct jinja_value *found = sw_jinja_get(run, of->map, &member);
    return found ? sw_jinja_fail(run, SW_JINJA_TYPE, "'%.*s' cannot be called", (int)len, name)
                 : sw_jinja_fail(run, SW_JINJA_UNDEFINED, "a dict has no '%.*s' here", (int)len,
                                 name);
}

sw_status sw_jinja_method(struct jinja_run *run, const struct jinja_value *of, const char *name,
                          size_t len, const struct jinja_arguments *arguments,
                          struct jinja_value *out)
{
    static const char *const changing[] = {"append", "extend",     "insert", "pop",
                                           "remove", "clear",      "sort",   "reverse",
                                           "update", "setdefault", "popitem"};
    for (size_t i = 0; i < SW_LEN(changing); ++i) {
        if (is_name(name, len, changing[i]) &&
            (of->type == JINJA_V_LIST || of->type == JINJA_V_MAP)) {
            return sw_jinja_fail(run, SW_JINJA_SECURITY,
                                 "%s would change a variable: that is forbidden", changing[i]);
        }
    }
    const struct jinja_value copy = *of;
    if (of->type == JINJA_V_STRING) {
        return of_text(run, &copy, name, len, arguments, out);
    }
    if (of->type == JINJA_V_MAP) {
        return of_map(run, &copy, name, len, arguments, out);
    }
    return sw_jinja_fail(run, SW_JINJA_UNDEFINED, "%s has no '%.*s'", sw_jinja_type_name(of),
                         (int)len, name);
}
