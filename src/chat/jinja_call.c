// SPDX-License-Identifier: Apache-2.0
// Filters, tests, functions and methods of templates, by name, as in Jinja and Python.
#include "chat/jinja_value.h"

#include "text/text.h"

#include <math.h>
#include <string.h>
#include <time.h>

typedef const struct jinja_value *input;
typedef const input *inputs; /* arguments by parameter; NULL: not given */
typedef const struct jinja_arguments *args;

static bool is_name(const char *text, size_t len, const char *name)
{
    return len == strlen(name) && memcmp(text, name, len) == 0;
}

/* ---- parameters ---- */

enum { MOST_PARAMETERS = 4 };

/* The parameters of a filter, test, function or method, in the order and by the names of Jinja,
 * transformers or Python. */
struct parameters {
    const char *names[MOST_PARAMETERS]; /* "": has no name, only a position; NULL: no more */
    int n_needed;
};

static sw_status bind_named(struct jinja_run *run, const char *what, const char *const *names,
                            args a, input *out)
{
    for (int i = a->n_positional; i < a->n; ++i) {
        int k = 0;
        while (k < MOST_PARAMETERS && names[k] &&
               !is_name(a->names[i], a->name_lens[i], names[k])) {
            k++;
        }
        if (k == MOST_PARAMETERS || !names[k]) {
            return sw_jinja_fail(run, SW_JINJA_TYPE, "%s has no argument '%.*s'", what,
                                 (int)a->name_lens[i], a->names[i]);
        }
        if (out[k]) {
            return sw_jinja_fail(run, SW_JINJA_TYPE, "%s: two values of its argument '%s'", what,
                                 names[k]);
        }
        out[k] = &a->at[i];
    }
    return SW_OK;
}

/* Finds the argument of each parameter. */
static sw_status bind(struct jinja_run *run, const char *what, const struct parameters *parameters,
                      args a, input out[MOST_PARAMETERS])
{
    int n = 0;
    while (n < MOST_PARAMETERS && parameters->names[n]) {
        out[n++] = NULL;
    }
    if (a->n_positional > n) {
        return sw_jinja_fail(run, SW_JINJA_TYPE, "%s takes at most %d arguments, found %d", what, n,
                             a->n_positional);
    }
    for (int i = 0; i < a->n_positional; ++i) {
        out[i] = &a->at[i];
    }
    SW_TRY(bind_named(run, what, parameters->names, a, out));
    for (int i = 0; i < parameters->n_needed; ++i) {
        if (!out[i]) {
            return sw_jinja_fail(run, SW_JINJA_TYPE, "%s wants %d arguments, found %d", what,
                                 parameters->n_needed, a->n);
        }
    }
    return SW_OK;
}

/* The arguments after the first n. */
static struct jinja_arguments after(args a, int n)
{
    struct jinja_arguments rest = {.n = a->n - n, .n_positional = a->n_positional - n};
    for (int i = 0; i < rest.n; ++i) {
        rest.at[i] = a->at[n + i];
        rest.names[i] = a->names[n + i];
        rest.name_lens[i] = a->name_lens[n + i];
    }
    return rest;
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

static bool is_none(input value)
{
    return !value || value->type == JINJA_V_NONE;
}

/* Reads an argument that is an integer; `standard` if it was not given. */
static sw_status want_int(struct jinja_run *run, input value, int64_t standard, const char *what,
                          int64_t *out)
{
    *out = value ? value->integer : standard;
    return value && value->type != JINJA_V_INT && value->type != JINJA_V_BOOL
               ? type_error(run, what, value)
               : SW_OK;
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

enum casing {
    UPPER,
    LOWER,
    CAPITALIZED,
    TITLE, /* Python's method: a word is letters */
    WORDS  /* Jinja's filter: a word ends at white space, "-" and opening brackets */
};

static void put_char(int32_t c, struct sw_str *out)
{
    char bytes[4];
    sw_str_append(out, bytes, sw_utf8_put(c, bytes));
}

/* title: the first of several letters */
static void put_upper(int32_t c, bool title, struct sw_str *out)
{
    if (c == 0xDF) {
        sw_str_puts(out, title ? "Ss" : "SS");
    } else {
        put_char(title ? sw_char_title(c) : sw_char_upper(c), out);
    }
}

/* text[at, end) is the character c. */
static void put_lower(const char *text, size_t len, size_t at, size_t end, int32_t c,
                      struct sw_str *out)
{
    if (c == 0x130) {
        sw_str_puts(out, "i\xCC\x87");
    } else if (c == 0x3A3 && sw_text_is_final_sigma(text, len, at, end)) {
        sw_str_puts(out, "\xCF\x82");
    } else {
        put_char(sw_char_lower(c), out);
    }
}

static void put_cased(const char *text, size_t len, enum casing casing, struct sw_str *out)
{
    bool begins = true;
    for (size_t pos = 0; pos < len;) {
        const size_t at = pos;
        const int32_t c = sw_utf8_step(text, len, &pos);
        if (casing == UPPER || (casing != LOWER && begins)) {
            put_upper(c, casing != UPPER, out);
        } else {
            put_lower(text, len, at, pos, c, out);
        }
        begins = casing == TITLE && !sw_char_is_cased(c);
    }
}

static bool ends_word(int32_t c)
{
    return (c > 0 && c < 0x80 && strchr("-({[<", (char)c)) || is_space(c);
}

static void put_words(const char *text, size_t len, struct sw_str *out)
{
    for (size_t first = 0; first < len;) {
        size_t pos = first, end;
        const int32_t c = sw_utf8_step(text, len, &pos);
        const size_t rest = pos;
        put_upper(c, false, out);
        end = pos;
        while (!ends_word(c) && end < len && !ends_word(sw_utf8_step(text, len, &pos))) {
            end = pos;
        }
        put_cased(text + rest, end - rest, LOWER, out);
        first = end;
    }
}

static sw_status change_case(struct jinja_run *run, const char *text, size_t len,
                             enum casing casing, struct jinja_value *out)
{
    struct sw_str made = {0};
    if (!sw_jinja_room(run, &made, 3 * len) || !sw_jinja_work(run, 4 * (int64_t)len)) {
        return sw_jinja_check(run);
    }
    for (size_t i = 0; i < len && !SW_HAVE_UTF8PROC; ++i) {
        if ((unsigned char)text[i] >= 128) {
            return sw_jinja_fail(
                run, SW_JINJA_RUNTIME,
                "upper and lower case beyond ASCII need utf8proc, which this build "
                "does not have: install libutf8proc-dev and build again");
        }
    }
    if (casing == WORDS) {
        put_words(text, len, &made);
    } else {
        put_cased(text, len, casing, &made);
    }
    return finish_text(run, &made, out);
}

/* Puts `to` before each character and at the end, at most `left` times. */
static bool interleave(struct jinja_run *run, input value, input to, int64_t left,
                       struct sw_str *out)
{
    size_t pos = 0;
    if (!sw_jinja_room(run, out, value->len)) {
        return false;
    }
    while (left-- > 0) {
        const size_t at = pos;
        if (!sw_jinja_room(run, out, to->len + 4)) {
            return false;
        }
        sw_str_append(out, to->text, to->len);
        if (at == value->len) {
            return true;
        }
        sw_utf8_step(value->text, value->len, &pos);
        sw_str_append(out, value->text + at, pos - at);
    }
    sw_str_append(out, value->text + pos, value->len - pos);
    return true;
}

/* most < 0: all */
static sw_status replace(struct jinja_run *run, input value, input from, input to, int64_t most,
                         struct jinja_value *out)
{
    struct sw_str made = {0};
    int64_t left = most < 0 ? INT64_MAX : most;
    bool fits = from->len > 0 || interleave(run, value, to, left, &made);
    for (size_t at = 0; from->len > 0 && fits && at < value->len; --left) {
        const char *hit =
            left > 0 ? memmem(value->text + at, value->len - at, from->text, from->len) : NULL;
        const size_t plain = hit ? (size_t)(hit - value->text) - at : value->len - at;
        fits = sw_jinja_room(run, &made, plain + (hit ? to->len : 0));
        if (fits) {
            sw_str_append(&made, value->text + at, plain);
            sw_str_append(&made, to->text, hit ? to->len : 0);
        }
        at += plain + (hit ? from->len : 0);
    }
    if (!fits) {
        sw_str_fini(&made);
        return sw_jinja_check(run);
    }
    return finish_text(run, &made, out);
}

/* The last part keeps the white space at its end if `left` runs out before it. */
static sw_status split_at_spaces(struct jinja_run *run, input value, int64_t left,
                                 struct jinja_value *out)
{
    size_t pos = 0;
    for (;; --left) {
        size_t first = pos;
        while (pos < value->len && is_space(sw_utf8_step(value->text, value->len, &pos))) {
            first = pos;
        }
        if (first == value->len) {
            return SW_OK;
        }
        size_t end = pos = left > 0 ? first : value->len;
        while (pos < value->len && !is_space(sw_utf8_step(value->text, value->len, &pos))) {
            end = pos;
        }
        end = left > 0 ? end : value->len;
        const struct jinja_value word = sw_jinja_string(value->text + first, end - first);
        SW_TRY(sw_jinja_append(run, out->list, &word));
    }
}

static sw_status split(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
{
    input separator = a[0];
    int64_t left;
    SW_TRY(want_int(run, a[1], -1, "split: maxsplit", &left));
    left = left < 0 ? INT64_MAX : left;
    SW_TRY(go_through(run, value));
    SW_TRY(sw_jinja_new_list(run, out));
    if (is_none(separator)) {
        return split_at_spaces(run, value, left, out);
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

static sw_status do_trim(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
{
    SW_TRY(is_none(a[0]) ? SW_OK : want_text(run, a[0], "trim"));
    SW_TRY(as_text(run, value, out));
    SW_TRY(go_through(run, out));
    *out = strip(out->text, out->len, a[0], true, true);
    return SW_OK;
}

static sw_status cased(struct jinja_run *run, input value, enum casing casing,
                       struct jinja_value *out)
{
    struct jinja_value text;
    SW_TRY(as_text(run, value, &text));
    return change_case(run, text.text, text.len, casing, out);
}

static sw_status do_upper(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
{
    (void)a;
    return cased(run, value, UPPER, out);
}

static sw_status do_lower(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
{
    (void)a;
    return cased(run, value, LOWER, out);
}

static sw_status do_capitalize(struct jinja_run *run, input value, inputs a,
                               struct jinja_value *out)
{
    (void)a;
    return cased(run, value, CAPITALIZED, out);
}

static sw_status do_title(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
{
    (void)a;
    return cased(run, value, WORDS, out);
}

static sw_status do_length(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
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

static sw_status do_default(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
{
    (void)run;
    const bool missing = value->type == JINJA_V_UNDEFINED ||
                         (a[1] && sw_jinja_is_true(a[1]) && !sw_jinja_is_true(value));
    *out = !missing ? *value : a[0] ? *a[0] : sw_jinja_string("", 0);
    return SW_OK;
}

static sw_status read_indent(struct jinja_run *run, input indent, struct jinja_json *out)
{
    static const char spaces[] = "                ";
    int64_t n;
    if (is_none(indent)) {
        return SW_OK;
    }
    if (indent->type == JINJA_V_STRING) {
        out->indent = indent->text;
        out->indent_len = indent->len;
        return SW_OK;
    }
    SW_TRY(want_int(run, indent, 0, "tojson: indent", &n));
    if (n >= (int64_t)sizeof(spaces)) {
        return sw_jinja_fail(run, SW_JINJA_LIMIT, "tojson with an indent of %lld, at most %d",
                             (long long)n, (int)sizeof(spaces) - 1);
    }
    out->indent = spaces;
    out->indent_len = (size_t)sw_max_i64(0, n);
    return SW_OK;
}

static sw_status read_separators(struct jinja_run *run, input separators, struct jinja_json *out)
{
    struct jinja_value items;
    if (is_none(separators)) {
        return SW_OK;
    }
    SW_TRY(sw_jinja_items(run, separators, &items));
    if (items.list->n != 2) {
        return sw_jinja_fail(run, SW_JINJA_TYPE, "tojson wants two separators, found %lld",
                             (long long)items.list->n);
    }
    for (int i = 0; i < 2; ++i) {
        SW_TRY(want_text(run, &items.list->items[i], "tojson: a separator"));
    }
    out->item = items.list->items[0];
    out->key = items.list->items[1];
    return SW_OK;
}

static sw_status do_tojson(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
{
    struct sw_str text = {0};
    const bool lines = !is_none(a[1]);
    struct jinja_json options = {.item = sw_jinja_string(lines ? "," : ", ", lines ? 1 : 2),
                                 .key = sw_jinja_string(": ", 2),
                                 .ascii = a[0] && sw_jinja_is_true(a[0]),
                                 .sorted = a[3] && sw_jinja_is_true(a[3])};
    SW_TRY(read_indent(run, a[1], &options));
    SW_TRY(read_separators(run, a[2], &options));
    const sw_status st = sw_jinja_print_json(run, value, &options, &text);
    if (st < 0) {
        sw_str_fini(&text);
        return st;
    }
    return finish_text(run, &text, out);
}

/* One name of a path; digits are an index. */
static struct jinja_value path_part(const char *text, size_t len)
{
    int64_t index = 0;
    for (size_t i = 0; i < len; ++i) {
        if (text[i] < '0' || text[i] > '9') {
            return sw_jinja_string(text, len);
        }
        index = index < INT64_MAX / 20 ? index * 10 + (text[i] - '0') : INT64_MAX / 20;
    }
    return len > 0 ? sw_jinja_int(index) : sw_jinja_string(text, len);
}

/* Follows `attribute`, an index or names with dots between them. other: replaces an undefined
 * member, or NULL. */
static sw_status follow(struct jinja_run *run, input item, input attribute, input other,
                        struct jinja_value *out)
{
    *out = *item;
    if (is_none(attribute)) {
        return SW_OK;
    }
    const bool is_index = attribute->type != JINJA_V_STRING;
    int64_t index;
    SW_TRY(is_index ? want_int(run, attribute, 0, "an attribute", &index) : SW_OK);
    for (size_t at = 0, n; is_index || at <= attribute->len; at += n + 1) {
        struct jinja_value of = *out, key = *attribute;
        n = 0;
        while (!is_index && at + n < attribute->len && attribute->text[at + n] != '.') {
            n++;
        }
        if (!is_index) {
            key = path_part(attribute->text + at, n);
        }
        SW_TRY(sw_jinja_item(run, &of, &key, out));
        if (other && out->type == JINJA_V_UNDEFINED) {
            *out = *other;
        }
        if (is_index) {
            break;
        }
    }
    return SW_OK;
}

static sw_status join_items(struct jinja_run *run, const struct jinja_list *items, input separator,
                            struct jinja_value *out)
{
    struct sw_str text = {0};
    for (int64_t i = 0; i < items->n; ++i) {
        if (separator && i > 0) {
            sw_jinja_print(run, separator, &text);
        }
        sw_jinja_print(run, &items->items[i], &text);
    }
    return finish_text(run, &text, out);
}

static sw_status follow_each(struct jinja_run *run, input value, input attribute, input other,
                             struct jinja_value *out)
{
    struct jinja_value items, made;
    SW_TRY(sw_jinja_items(run, value, &items));
    SW_TRY(sw_jinja_new_list(run, out));
    for (int64_t i = 0; i < items.list->n; ++i) {
        SW_TRY(follow(run, &items.list->items[i], attribute, other, &made));
        SW_TRY(sw_jinja_append(run, out->list, &made));
    }
    return SW_OK;
}

static sw_status do_join(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
{
    struct jinja_value items;
    SW_TRY(follow_each(run, value, a[1], NULL, &items));
    return join_items(run, items.list, a[0], out);
}

static sw_status end_of(struct jinja_run *run, input value, bool last, struct jinja_value *out)
{
    struct jinja_value items;
    SW_TRY(sw_jinja_items(run, value, &items));
    const int64_t n = items.list->n;
    *out = n > 0 ? items.list->items[last ? n - 1 : 0] : sw_jinja_undefined("", 0);
    return SW_OK;
}

static sw_status do_first(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
{
    (void)a;
    return end_of(run, value, false, out);
}

static sw_status do_last(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
{
    (void)a;
    return end_of(run, value, true, out);
}

static sw_status do_string(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
{
    (void)a;
    return as_text(run, value, out);
}

static sw_status do_safe(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
{
    (void)a, (void)run;
    *out = *value; /* nothing is escaped here */
    return SW_OK;
}

static sw_status do_list(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
{
    (void)a;
    return follow_each(run, value, NULL, NULL, out);
}

static sw_status do_reverse(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
{
    struct jinja_value items;
    (void)a;
    if (value->type == JINJA_V_NONE || sw_jinja_is_number(value)) {
        return sw_jinja_fail(run, SW_JINJA_RUNTIME, "reverse of %s", sw_jinja_type_name(value));
    }
    SW_TRY(sw_jinja_items(run, value, &items));
    SW_TRY(sw_jinja_new_list(run, out));
    for (int64_t i = items.list->n - 1; i >= 0; --i) {
        SW_TRY(sw_jinja_append(run, out->list, &items.list->items[i]));
    }
    return value->type == JINJA_V_STRING ? join_items(run, out->list, NULL, out) : SW_OK;
}

static sw_status do_replace(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
{
    struct jinja_value text, from, to;
    int64_t most;
    SW_TRY(want_int(run, is_none(a[2]) ? NULL : a[2], -1, "replace: count", &most));
    SW_TRY(as_text(run, value, &text));
    SW_TRY(as_text(run, a[0], &from));
    SW_TRY(as_text(run, a[1], &to));
    return replace(run, &text, &from, &to, most, out);
}

static sw_status do_items(struct jinja_run *run, input value, inputs a, struct jinja_value *out)
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

/* selectattr(attribute, test, arguments of the test) */
static sw_status select_by(struct jinja_run *run, input value, args a, bool wanted,
                           struct jinja_value *out)
{
    struct jinja_value items, member;
    input test = a->n_positional > 1 ? &a->at[1] : NULL;
    SW_TRY(sw_jinja_new_list(run, out));
    if (a->n_positional < 1 || (!test && a->n > 1)) {
        return sw_jinja_fail(run, SW_JINJA_RUNTIME,
                             "selectattr and rejectattr want an attribute, then a test and its "
                             "arguments");
    }
    if (test && (test->type != JINJA_V_STRING || !sw_jinja_is_test(test->text, test->len))) {
        return sw_jinja_fail(run, SW_JINJA_RUNTIME, "the test '%.*s' is not built",
                             test->type == JINJA_V_STRING ? (int)test->len : 0, test->text);
    }
    if (!sw_jinja_is_true(value)) {
        return SW_OK;
    }
    const struct jinja_arguments rest = test ? after(a, 2) : (struct jinja_arguments){0};
    SW_TRY(sw_jinja_items(run, value, &items));
    for (int64_t i = 0; i < items.list->n; ++i) {
        SW_TRY(follow(run, &items.list->items[i], &a->at[0], NULL, &member));
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

/* map(attribute=path, default=other) */
static sw_status map_to_member(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    static const struct parameters members = {{"attribute", "default"}, 1};
    input at[MOST_PARAMETERS];
    if (bind(run, "map", &members, a, at) < 0) {
        run->out->error = SW_JINJA_RUNTIME; /* as Jinja has it */
        return SW_E_ARG;
    }
    return follow_each(run, value, at[0], is_none(at[1]) ? NULL : at[1], out);
}

/* map(filter, arguments of the filter) */
static sw_status do_map(struct jinja_run *run, input value, args a, struct jinja_value *out)
{
    struct jinja_value items, made;
    input name = a->n_positional > 0 ? &a->at[0] : NULL;
    if (!sw_jinja_is_true(value)) {
        return sw_jinja_new_list(run, out);
    }
    if (!name && a->n > 0) {
        return map_to_member(run, value, a, out);
    }
    if (!name || name->type != JINJA_V_STRING || !sw_jinja_is_filter(name->text, name->len)) {
        return sw_jinja_fail(run, SW_JINJA_RUNTIME,
                             "map wants attribute=.. or a filter that is built");
    }
    const struct jinja_arguments rest = after(a, 1);
    SW_TRY(sw_jinja_items(run, value, &items));
    SW_TRY(sw_jinja_new_list(run, out));
    for (int64_t i = 0; i < items.list->n; ++i) {
        SW_TRY(sw_jinja_filter(run, name->text, name->len, &items.list->items[i], &rest, &made));
        SW_TRY(sw_jinja_append(run, out->list, &made));
    }
    return SW_OK;
}

/* A filter or a method: has `apply`, or `forward` if it passes arguments on. */
struct callable {
    const char *name;
    sw_status (*apply)(struct jinja_run *run, input value, inputs a, struct jinja_value *out);
    struct parameters parameters;
    sw_status (*forward)(struct jinja_run *run, input value, args a, struct jinja_value *out);
};

static const struct callable filters[] = {
    {"trim", do_trim, {{"chars"}, 0}, NULL},
    {"length", do_length, {{NULL}, 0}, NULL},
    {"count", do_length, {{NULL}, 0}, NULL},
    {"default", do_default, {{"default_value", "boolean"}, 0}, NULL},
    {"d", do_default, {{"default_value", "boolean"}, 0}, NULL},
    {"tojson", do_tojson, {{"ensure_ascii", "indent", "separators", "sort_keys"}, 0}, NULL},
    {"join", do_join, {{"d", "attribute"}, 0}, NULL},
    {"first", do_first, {{NULL}, 0}, NULL},
    {"last", do_last, {{NULL}, 0}, NULL},
    {"string", do_string, {{NULL}, 0}, NULL},
    {"list", do_list, {{NULL}, 0}, NULL},
    {"replace", do_replace, {{"old", "new", "count"}, 2}, NULL},
    {"items", do_items, {{NULL}, 0}, NULL},
    {"reverse", do_reverse, {{NULL}, 0}, NULL},
    {"safe", do_safe, {{NULL}, 0}, NULL},
    {"upper", do_upper, {{NULL}, 0}, NULL},
    {"lower", do_lower, {{NULL}, 0}, NULL},
    {"capitalize", do_capitalize, {{NULL}, 0}, NULL},
    {"title", do_title, {{NULL}, 0}, NULL},
    {"selectattr", NULL, {{NULL}, 0}, do_selectattr},
    {"rejectattr", NULL, {{NULL}, 0}, do_rejectattr},
    {"map", NULL, {{NULL}, 0}, do_map},
};

static const struct callable *find(const struct callable *all, size_t n, const char *name,
                                   size_t len)
{
    for (size_t i = 0; i < n; ++i) {
        if (is_name(name, len, all[i].name)) {
            return &all[i];
        }
    }
    return NULL;
}

static sw_status apply(struct jinja_run *run, const struct callable *callable, input value, args a,
                       struct jinja_value *out)
{
    input at[MOST_PARAMETERS] = {NULL};
    const struct jinja_value copy = *value; /* out may be it */
    if (callable->forward) {
        return callable->forward(run, &copy, a, out);
    }
    SW_TRY(bind(run, callable->name, &callable->parameters, a, at));
    return callable->apply(run, &copy, at, out);
}

bool sw_jinja_is_filter(const char *name, size_t len)
{
    return find(filters, SW_LEN(filters), name, len) != NULL;
}

sw_status sw_jinja_filter(struct jinja_run *run, const char *name, size_t len,
                          const struct jinja_value *value, const struct jinja_arguments *arguments,
                          struct jinja_value *out)
{
    return apply(run, find(filters, SW_LEN(filters), name, len), value, arguments, out);
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
    struct parameters parameters;
} tests[] = {
    {"defined", IS_DEFINED, {{NULL}, 0}},
    {"undefined", IS_UNDEFINED, {{NULL}, 0}},
    {"none", IS_NONE, {{NULL}, 0}},
    {"string", IS_STRING, {{NULL}, 0}},
    {"mapping", IS_MAPPING, {{NULL}, 0}},
    {"iterable", IS_ITERABLE, {{NULL}, 0}},
    {"sequence", IS_SEQUENCE, {{NULL}, 0}},
    {"number", IS_NUMBER, {{NULL}, 0}},
    {"integer", IS_INTEGER, {{NULL}, 0}},
    {"float", IS_FLOAT, {{NULL}, 0}},
    {"boolean", IS_BOOLEAN, {{NULL}, 0}},
    {"true", IS_TRUE, {{NULL}, 0}},
    {"false", IS_FALSE, {{NULL}, 0}},
    {"equalto", IS_EQUAL, {{""}, 1}},
    {"eq", IS_EQUAL, {{""}, 1}},
    {"ne", IS_OTHER, {{""}, 1}},
    {"in", IS_IN, {{"seq"}, 1}},
    {"odd", IS_ODD, {{NULL}, 0}},
    {"even", IS_EVEN, {{NULL}, 0}},
    {"divisibleby", IS_DIVISIBLE, {{"num"}, 1}},
    {"callable", IS_CALLABLE, {{NULL}, 0}},
};

/* The number of tests if the name is none of them. */
static size_t find_test(const char *name, size_t len)
{
    size_t i = 0;
    while (i < SW_LEN(tests) && !is_name(name, len, tests[i].name)) {
        ++i;
    }
    return i;
}

bool sw_jinja_is_test(const char *name, size_t len)
{
    return find_test(name, len) < SW_LEN(tests);
}

/* value % by, as in Python */
static sw_status remainder_of(struct jinja_run *run, input value, input by, const char *what,
                              double *out)
{
    SW_TRY(sw_jinja_is_number(value) ? SW_OK : type_error(run, what, value));
    SW_TRY(sw_jinja_is_number(by) ? SW_OK : type_error(run, what, by));
    if (sw_jinja_number(by) == 0) {
        return sw_jinja_fail(run, SW_JINJA_TYPE, "division by zero");
    }
    if (value->type != JINJA_V_FLOAT && by->type != JINJA_V_FLOAT) {
        const int64_t rest = by->integer == -1 ? 0 : value->integer % by->integer;
        *out = (double)(rest != 0 && (rest < 0) != (by->integer < 0) ? rest + by->integer : rest);
        return SW_OK;
    }
    const double x = sw_jinja_number(value), y = sw_jinja_number(by);
    *out = x - y * floor(x / y);
    return SW_OK;
}

static sw_status test_number(struct jinja_run *run, enum test test, input value, inputs a,
                             bool *out)
{
    const struct jinja_value two = sw_jinja_int(2);
    const bool divisible = test == IS_DIVISIBLE;
    double rest = 0;
    SW_TRY(remainder_of(run, value, divisible ? a[0] : &two,
                        divisible ? "divisibleby" : "odd and even", &rest));
    *out = rest == (test == IS_ODD ? 1 : 0);
    return SW_OK;
}

static sw_status test_value(struct jinja_run *run, enum test test, input value, inputs a, bool *out)
{
    const enum jinja_type type = value->type;
    switch (test) {
    case IS_DEFINED:
    case IS_UNDEFINED:
        *out = (type != JINJA_V_UNDEFINED) == (test == IS_DEFINED);
        return SW_OK;
    case IS_NONE:
        *out = type == JINJA_V_NONE;
        return SW_OK;
    case IS_STRING:
        *out = type == JINJA_V_STRING;
        return SW_OK;
    case IS_MAPPING:
        *out = type == JINJA_V_MAP;
        return SW_OK;
    case IS_ITERABLE:
    case IS_SEQUENCE:
        *out = type == JINJA_V_STRING || type == JINJA_V_LIST || type == JINJA_V_MAP ||
               type == JINJA_V_UNDEFINED;
        return SW_OK;
    case IS_NUMBER:
        *out = sw_jinja_is_number(value);
        return SW_OK;
    case IS_INTEGER:
        *out = type == JINJA_V_INT;
        return SW_OK;
    case IS_FLOAT:
        *out = type == JINJA_V_FLOAT;
        return SW_OK;
    case IS_BOOLEAN:
        *out = type == JINJA_V_BOOL;
        return SW_OK;
    case IS_TRUE:
    case IS_FALSE:
        *out = type == JINJA_V_BOOL && (value->integer != 0) == (test == IS_TRUE);
        return SW_OK;
    case IS_EQUAL:
    case IS_OTHER:
        *out = sw_jinja_equal(run, value, a[0]) == (test == IS_EQUAL);
        return SW_OK;
    case IS_IN:
        return sw_jinja_contains(run, value, a[0], out);
    case IS_CALLABLE:
        *out = type == JINJA_V_FUNCTION || type == JINJA_V_LOOP || type == JINJA_V_UNDEFINED;
        return SW_OK;
    default: /* ODD, EVEN, DIVISIBLE */
        return test_number(run, test, value, a, out);
    }
}

sw_status sw_jinja_test(struct jinja_run *run, const char *name, size_t len,
                        const struct jinja_value *value, const struct jinja_arguments *arguments,
                        bool *out)
{
    const size_t i = find_test(name, len);
    input at[MOST_PARAMETERS] = {NULL};
    SW_TRY(bind(run, tests[i].name, &tests[i].parameters, arguments, at));
    return test_value(run, tests[i].test, value, at, out);
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
    if (a->n_positional > 1 || (a->n_positional == 1 && a->at[0].type != JINJA_V_MAP)) {
        return sw_jinja_fail(run, SW_JINJA_TYPE,
                             "namespace wants names, or a dict before them: namespace(x=1)");
    }
    const struct jinja_map *first = a->n_positional == 1 ? a->at[0].map : NULL;
    for (int64_t i = 0; first && i < first->n; ++i) {
        SW_TRY(sw_jinja_put_member(run, out->map, &first->keys[i], &first->values[i]));
    }
    for (int i = a->n_positional; i < a->n; ++i) {
        const struct jinja_value key = sw_jinja_string(a->names[i], a->name_lens[i]);
        SW_TRY(sw_jinja_put_member(run, out->map, &key, &a->at[i]));
    }
    return SW_OK;
}

static sw_status do_raise(struct jinja_run *run, args a, struct jinja_value *out)
{
    static const struct parameters parameters = {{"message"}, 1};
    struct jinja_value text;
    input at[MOST_PARAMETERS];
    (void)out;
    SW_TRY(bind(run, "raise_exception", &parameters, a, at));
    SW_TRY(as_text(run, at[0], &text));
    return sw_jinja_fail(run, SW_JINJA_RAISED, "%.*s", (int)sw_min_i64((int64_t)text.len, 400),
                         text.text);
}

static sw_status do_strftime(struct jinja_run *run, args a, struct jinja_value *out)
{
    static const struct parameters parameters = {{"format"}, 1};
    char text[256];
    struct tm parts;
    const time_t now = (time_t)run->today;
    input at[MOST_PARAMETERS];
    SW_TRY(bind(run, "strftime_now", &parameters, a, at));
    if (at[0]->type != JINJA_V_STRING || !gmtime_r(&now, &parts)) {
        return sw_jinja_fail(run, SW_JINJA_TYPE, "strftime_now wants a format");
    }
    const size_t n = strftime(text, sizeof(text), at[0]->text, &parts);
    if (n == 0 && at[0]->len > 0) {
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

/* Cuts the text as Python does for startswith and endswith. False: `first` is beyond the end. */
static sw_status cut(struct jinja_run *run, input of, inputs bounds, struct jinja_value *out,
                     bool *is_within)
{
    int64_t first, end;
    SW_TRY(go_through(run, of));
    const int64_t n = sw_utf8_count(of->text, of->len);
    SW_TRY(want_int(run, is_none(bounds[0]) ? NULL : bounds[0], 0, "a start", &first));
    SW_TRY(want_int(run, is_none(bounds[1]) ? NULL : bounds[1], n, "an end", &end));
    first = first < 0 ? sw_max_i64(0, first + n) : first;
    end = end < 0 ? sw_max_i64(0, end + n) : sw_min_i64(end, n);
    *is_within = first <= end;
    size_t at = 0, from = of->len, to = of->len;
    for (int64_t i = 0; at < of->len; ++i) {
        from = i == first ? at : from;
        to = i == end ? at : to;
        sw_utf8_step(of->text, of->len, &at);
    }
    *out = sw_jinja_string(of->text + from, *is_within ? to - from : 0);
    return SW_OK;
}

/* startswith and endswith, with one text or any of several. */
static sw_status has_end(struct jinja_run *run, input of, inputs a, bool at_end,
                         struct jinja_value *out)
{
    struct jinja_value part;
    bool found = false, is_within;
    input what = a[0];
    if (what->type != JINJA_V_STRING && what->type != JINJA_V_LIST) {
        return sw_jinja_fail(run, SW_JINJA_TYPE, "startswith and endswith want a text");
    }
    SW_TRY(cut(run, of, a + 1, &part, &is_within));
    const struct jinja_list one = {(struct jinja_value *)what, 1, 1};
    const struct jinja_list *all = what->type == JINJA_V_LIST ? what->list : &one;
    for (int64_t i = 0; i < all->n; ++i) {
        input end = &all->items[i];
        SW_TRY(want_text(run, end, "startswith and endswith"));
        found |=
            is_within && end->len <= part.len &&
            memcmp(at_end ? part.text + part.len - end->len : part.text, end->text, end->len) == 0;
    }
    *out = sw_jinja_bool(found);
    return SW_OK;
}

static sw_status text_startswith(struct jinja_run *run, input of, inputs a, struct jinja_value *out)
{
    return has_end(run, of, a, false, out);
}

static sw_status text_endswith(struct jinja_run *run, input of, inputs a, struct jinja_value *out)
{
    return has_end(run, of, a, true, out);
}

static sw_status strip_text(struct jinja_run *run, input of, inputs a, bool left, bool right,
                            struct jinja_value *out)
{
    SW_TRY(is_none(a[0]) ? SW_OK : want_text(run, a[0], "strip"));
    SW_TRY(go_through(run, of));
    *out = strip(of->text, of->len, a[0], left, right);
    return SW_OK;
}

static sw_status text_strip(struct jinja_run *run, input of, inputs a, struct jinja_value *out)
{
    return strip_text(run, of, a, true, true, out);
}

static sw_status text_lstrip(struct jinja_run *run, input of, inputs a, struct jinja_value *out)
{
    return strip_text(run, of, a, true, false, out);
}

static sw_status text_rstrip(struct jinja_run *run, input of, inputs a, struct jinja_value *out)
{
    return strip_text(run, of, a, false, true, out);
}

static sw_status text_title(struct jinja_run *run, input of, inputs a, struct jinja_value *out)
{
    (void)a;
    return cased(run, of, TITLE, out);
}

static sw_status text_replace(struct jinja_run *run, input of, inputs a, struct jinja_value *out)
{
    int64_t most;
    SW_TRY(want_text(run, a[0], "replace"));
    SW_TRY(want_text(run, a[1], "replace"));
    SW_TRY(want_int(run, a[2], -1, "replace: count", &most));
    return replace(run, of, a[0], a[1], most, out);
}

static sw_status text_join(struct jinja_run *run, input of, inputs a, struct jinja_value *out)
{
    struct jinja_value items;
    SW_TRY(sw_jinja_items(run, a[0], &items));
    for (int64_t i = 0; i < items.list->n; ++i) {
        SW_TRY(want_text(run, &items.list->items[i], "join"));
    }
    return join_items(run, items.list, of, out);
}

static const struct callable text_methods[] = {
    {"strip", text_strip, {{""}, 0}, NULL},
    {"lstrip", text_lstrip, {{""}, 0}, NULL},
    {"rstrip", text_rstrip, {{""}, 0}, NULL},
    {"upper", do_upper, {{NULL}, 0}, NULL},
    {"lower", do_lower, {{NULL}, 0}, NULL},
    {"capitalize", do_capitalize, {{NULL}, 0}, NULL},
    {"title", text_title, {{NULL}, 0}, NULL},
    {"startswith", text_startswith, {{"", "", ""}, 1}, NULL},
    {"endswith", text_endswith, {{"", "", ""}, 1}, NULL},
    {"split", split, {{"sep", "maxsplit"}, 0}, NULL},
    {"replace", text_replace, {{"", "", "count"}, 2}, NULL}, /* the name is as of Python 3.13 */
    {"join", text_join, {{""}, 1}, NULL},
};

static sw_status map_keys(struct jinja_run *run, input of, inputs a, struct jinja_value *out)
{
    (void)a;
    return sw_jinja_items(run, of, out);
}

static sw_status map_values(struct jinja_run *run, input of, inputs a, struct jinja_value *out)
{
    (void)a;
    SW_TRY(sw_jinja_new_list(run, out));
    for (int64_t i = 0; i < of->map->n; ++i) {
        SW_TRY(sw_jinja_append(run, out->list, &of->map->values[i]));
    }
    return SW_OK;
}

static sw_status map_get(struct jinja_run *run, input of, inputs a, struct jinja_value *out)
{
    const struct jinja_value *found = sw_jinja_get(run, of->map, a[0]);
    *out = found ? *found : a[1] ? *a[1] : (struct jinja_value){.type = JINJA_V_NONE};
    return SW_OK;
}

static const struct callable map_methods[] = {
    {"items", do_items, {{NULL}, 0}, NULL},
    {"keys", map_keys, {{NULL}, 0}, NULL},
    {"values", map_values, {{NULL}, 0}, NULL},
    {"get", map_get, {{"", ""}, 1}, NULL},
};

static const struct callable *find_method(input of, const char *name, size_t len)
{
    return of->type == JINJA_V_STRING ? find(text_methods, SW_LEN(text_methods), name, len)
           : of->type == JINJA_V_MAP  ? find(map_methods, SW_LEN(map_methods), name, len)
                                      : NULL;
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
    const struct callable *method = find_method(of, name, len);
    if (method) {
        return apply(run, method, of, arguments, out);
    }
    const struct jinja_value member = sw_jinja_string(name, len);
    return of->type == JINJA_V_MAP && sw_jinja_get(run, of->map, &member)
               ? sw_jinja_fail(run, SW_JINJA_TYPE, "'%.*s' cannot be called", (int)len, name)
               : sw_jinja_fail(run, SW_JINJA_UNDEFINED, "%s has no '%.*s' here",
                               sw_jinja_type_name(of), (int)len, name);
}
