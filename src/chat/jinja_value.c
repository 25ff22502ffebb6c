// SPDX-License-Identifier: Apache-2.0
// Values: creating, comparing, printing. Memory is counted, so that no template exceeds the limit.
#include "chat/jinja_value.h"

#include "text/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NESTED = 100 };

sw_status sw_jinja_fail(struct jinja_run *run, enum sw_jinja_error kind, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    run->out->error = kind;
    return SW_FAIL(SW_E_ARG, "%s:%d:%d: %s", run->template->name, run->at.line, run->at.column,
                   text);
}

bool sw_jinja_work(struct jinja_run *run, int64_t units)
{
    run->work += units;
    return run->work <= (int64_t)JINJA_STEP * JINJA_MOST_STEPS;
}

bool sw_jinja_room(struct jinja_run *run, const struct sw_str *text, size_t more)
{
    /* Count both the text and the value made from it. */
    const int64_t both = 2 * (int64_t)(text->len + more);
    run->has_too_much |= run->bytes + both > JINJA_MOST_BYTES;
    return sw_jinja_work(run, 1 + (int64_t)more / 8) && !run->has_too_much;
}

sw_status sw_jinja_check(struct jinja_run *run)
{
    if (run->has_too_much || run->bytes > JINJA_MOST_BYTES) {
        return sw_jinja_fail(run, SW_JINJA_LIMIT, "the template takes more than %d bytes",
                             JINJA_MOST_BYTES);
    }
    return sw_jinja_work(run, 0)
               ? SW_OK
               : sw_jinja_fail(run, SW_JINJA_LIMIT, "the template takes more than %d steps",
                               JINJA_MOST_STEPS);
}

static sw_status take(struct jinja_run *run, size_t bytes, void **out)
{
    run->bytes += (int64_t)bytes;
    SW_TRY(sw_jinja_check(run));
    *out = sw_arena_alloc(&run->arena, bytes > 0 ? bytes : 1);
    SW_TRY_ALLOC(*out, "rendering a template");
    return SW_OK;
}

struct jinja_value sw_jinja_undefined(const char *name, size_t len)
{
    return (struct jinja_value){.type = JINJA_V_UNDEFINED, .text = name, .len = len};
}

struct jinja_value sw_jinja_bool(bool value)
{
    return (struct jinja_value){.type = JINJA_V_BOOL, .integer = value};
}

struct jinja_value sw_jinja_int(int64_t value)
{
    return (struct jinja_value){.type = JINJA_V_INT, .integer = value};
}

struct jinja_value sw_jinja_string(const char *text, size_t len)
{
    return (struct jinja_value){.type = JINJA_V_STRING, .text = text, .len = len};
}

sw_status sw_jinja_copy(struct jinja_run *run, const char *text, size_t len,
                        struct jinja_value *out)
{
    void *copy = NULL;
    SW_TRY(take(run, len + 1, &copy));
    memcpy(copy, text, len);
    ((char *)copy)[len] = '\0';
    *out = sw_jinja_string(copy, len);
    return SW_OK;
}

sw_status sw_jinja_new_list(struct jinja_run *run, struct jinja_value *out)
{
    void *list = NULL;
    SW_TRY(take(run, sizeof(struct jinja_list), &list));
    *(struct jinja_list *)list = (struct jinja_list){0};
    *out = (struct jinja_value){.type = JINJA_V_LIST, .list = list};
    return SW_OK;
}

static sw_status grow(struct jinja_run *run, struct jinja_value **values, int64_t n, int64_t cap)
{
    void *more = NULL;
    SW_TRY(take(run, (size_t)cap * sizeof(**values), &more));
    if (n > 0) {
        memcpy(more, *values, (size_t)n * sizeof(**values));
    }
    *values = more;
    return SW_OK;
}

sw_status sw_jinja_append(struct jinja_run *run, struct jinja_list *list,
                          const struct jinja_value *item)
{
    if (list->n == list->cap) {
        const int64_t cap = list->cap ? 2 * list->cap : 4;
        SW_TRY(grow(run, &list->items, list->n, cap));
        list->cap = cap;
    }
    list->items[list->n++] = *item;
    return SW_OK;
}

sw_status sw_jinja_new_map(struct jinja_run *run, enum jinja_type type, struct jinja_value *out)
{
    void *map = NULL;
    SW_TRY(take(run, sizeof(struct jinja_map), &map));
    *(struct jinja_map *)map = (struct jinja_map){0};
    *out = (struct jinja_value){.type = type, .map = map};
    return SW_OK;
}

sw_status sw_jinja_new_loop(struct jinja_run *run, const struct jinja_list *over,
                            struct jinja_value *out)
{
    void *loop = NULL;
    SW_TRY(take(run, sizeof(struct jinja_loop), &loop));
    *(struct jinja_loop *)loop = (struct jinja_loop){.over = over};
    *out = (struct jinja_value){.type = JINJA_V_LOOP, .loop = loop};
    return SW_OK;
}

const struct jinja_value *sw_jinja_get(struct jinja_run *run, const struct jinja_map *map,
                                       const struct jinja_value *key)
{
    for (int64_t i = 0; i < map->n; ++i) {
        if (sw_jinja_equal(run, &map->keys[i], key)) {
            return &map->values[i];
        }
    }
    return NULL;
}

sw_status sw_jinja_put(struct jinja_run *run, struct jinja_map *map, const struct jinja_value *key,
                       const struct jinja_value *value)
{
    struct jinja_value *there = (struct jinja_value *)sw_jinja_get(run, map, key);
    if (there) {
        *there = *value;
        return SW_OK;
    }
    if (map->n == map->cap) {
        const int64_t cap = map->cap ? 2 * map->cap : 4;
        SW_TRY(grow(run, &map->keys, map->n, cap));
        SW_TRY(grow(run, &map->values, map->n, cap));
        map->cap = cap;
    }
    map->keys[map->n] = *key;
    map->values[map->n++] = *value;
    return SW_OK;
}

sw_status sw_jinja_put_member(struct jinja_run *run, struct jinja_map *map,
                              const struct jinja_value *name, const struct jinja_value *value)
{
    return name->type == JINJA_V_STRING && name->len > 0 && name->text[0] == '_'
               ? sw_jinja_fail(run, SW_JINJA_SECURITY, "'%.*s' of a namespace is forbidden",
                               (int)name->len, name->text)
               : sw_jinja_put(run, map, name, value);
}

static sw_status from_json(struct jinja_run *run, const struct sw_json *json, int depth,
                           struct jinja_value *out)
{
    struct jinja_value item;
    if (depth > MOST_NESTED) {
        return sw_jinja_fail(run, SW_JINJA_LIMIT, "variables are nested deeper than %d",
                             MOST_NESTED);
    }
    switch (json->type) {
    case SW_JSON_NULL:
        *out = (struct jinja_value){.type = JINJA_V_NONE};
        return SW_OK;
    case SW_JSON_BOOL:
        *out = sw_jinja_bool(json->boolean);
        return SW_OK;
    case SW_JSON_INT:
        *out = sw_jinja_int(json->integer);
        return SW_OK;
    case SW_JSON_FLOAT:
        *out = (struct jinja_value){.type = JINJA_V_FLOAT, .number = json->number};
        return SW_OK;
    case SW_JSON_STRING:
        return sw_jinja_copy(run, json->string, json->string_len, out);
    case SW_JSON_ARRAY:
        SW_TRY(sw_jinja_new_list(run, out));
        for (const struct sw_json *kid = json->first; kid; kid = kid->next) {
            SW_TRY(from_json(run, kid, depth + 1, &item));
            SW_TRY(sw_jinja_append(run, out->list, &item));
        }
        return SW_OK;
    default:
        SW_TRY(sw_jinja_new_map(run, JINJA_V_MAP, out));
        for (const struct sw_json *kid = json->first; kid; kid = kid->next) {
            struct jinja_value key;
            SW_TRY(sw_jinja_copy(run, kid->key, kid->key_len, &key));
            SW_TRY(from_json(run, kid, depth + 1, &item));
            SW_TRY(sw_jinja_put(run, out->map, &key, &item));
        }
        return SW_OK;
    }
}

sw_status sw_jinja_from_json(struct jinja_run *run, const struct sw_json *json,
                             struct jinja_value *out)
{
    return from_json(run, json, 0, out);
}

/* ---- queries ---- */

const char *sw_jinja_type_name(const struct jinja_value *value)
{
    static const char *const names[] = {"undefined",   "None",   "a bool",    "an int",
                                        "a float",     "a str",  "a list",    "a dict",
                                        "a namespace", "a loop", "a function"};
    return names[value->type];
}

bool sw_jinja_is_number(const struct jinja_value *value)
{
    return value->type == JINJA_V_BOOL || value->type == JINJA_V_INT ||
           value->type == JINJA_V_FLOAT;
}

double sw_jinja_number(const struct jinja_value *value)
{
    return value->type == JINJA_V_FLOAT ? value->number : (double)value->integer;
}

bool sw_jinja_is_true(const struct jinja_value *value)
{
    switch (value->type) {
    case JINJA_V_UNDEFINED:
    case JINJA_V_NONE:
        return false;
    case JINJA_V_BOOL:
    case JINJA_V_INT:
        return value->integer != 0;
    case JINJA_V_FLOAT:
        return value->number != 0;
    case JINJA_V_STRING:
        return value->len > 0;
    case JINJA_V_LIST:
        return value->list->n > 0;
    case JINJA_V_MAP:
        return value->map->n > 0;
    default:
        return true;
    }
}

static bool equal(struct jinja_run *run, const struct jinja_value *a, const struct jinja_value *b,
                  int depth)
{
    if (!sw_jinja_work(run, 4)) {
        return false;
    }
    if (sw_jinja_is_number(a) && sw_jinja_is_number(b)) {
        return a->type == JINJA_V_FLOAT || b->type == JINJA_V_FLOAT
                   ? sw_jinja_number(a) == sw_jinja_number(b)
                   : a->integer == b->integer;
    }
    if (a->type != b->type || depth > MOST_NESTED) {
        return false;
    }
    bool same = true;
    switch (a->type) {
    case JINJA_V_STRING:
    case JINJA_V_FUNCTION:
        return a->len == b->len && sw_jinja_work(run, (int64_t)a->len / 8) &&
               memcmp(a->text, b->text, a->len) == 0;
    case JINJA_V_LIST:
        same = a->list->n == b->list->n;
        for (int64_t i = 0; i < a->list->n && same; ++i) {
            same = equal(run, &a->list->items[i], &b->list->items[i], depth + 1);
        }
        return same;
    case JINJA_V_MAP:
        same = a->map->n == b->map->n;
        for (int64_t i = 0; i < a->map->n && same; ++i) {
            const struct jinja_value *other = sw_jinja_get(run, b->map, &a->map->keys[i]);
            same = other && equal(run, &a->map->values[i], other, depth + 1);
        }
        return same;
    case JINJA_V_NAMESPACE:
        return a->map == b->map;
    case JINJA_V_LOOP:
        return a->loop == b->loop;
    default:
        return true;
    }
}

bool sw_jinja_equal(struct jinja_run *run, const struct jinja_value *a, const struct jinja_value *b)
{
    return equal(run, a, b, 0);
}

sw_status sw_jinja_items(struct jinja_run *run, const struct jinja_value *value,
                         struct jinja_value *out)
{
    switch (value->type) {
    case JINJA_V_LIST:
        *out = *value;
        return SW_OK;
    case JINJA_V_UNDEFINED:
        return sw_jinja_new_list(run, out);
    case JINJA_V_MAP:
        SW_TRY(sw_jinja_new_list(run, out));
        for (int64_t i = 0; i < value->map->n; ++i) {
            SW_TRY(sw_jinja_append(run, out->list, &value->map->keys[i]));
        }
        return SW_OK;
    case JINJA_V_STRING:
        SW_TRY(sw_jinja_new_list(run, out));
        for (size_t pos = 0; pos < value->len;) {
            const size_t at = pos;
            sw_utf8_step(value->text, value->len, &pos);
            const struct jinja_value item = sw_jinja_string(value->text + at, pos - at);
            SW_TRY(sw_jinja_append(run, out->list, &item));
        }
        return SW_OK;
    default:
        return sw_jinja_fail(run, SW_JINJA_TYPE, "%s cannot be iterated over",
                             sw_jinja_type_name(value));
    }
}

/* ---- printing ---- */

/* Prints Python's repr of a float: the fewest digits that round-trip, with ".0" if they look
 * whole. */
static void print_float(double value, struct sw_str *out)
{
    char text[40];
    if (!isfinite(value)) {
        sw_str_puts(out, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    for (int digits = 1; digits <= 17; ++digits) {
        double back;
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (sscanf(text, "%lf", &back) == 1 && back == value) {
            break;
        }
    }
    if (fabs(value) < 1e16 && strchr(text, 'e') && fabs(value) >= 1e-4) {
        snprintf(text, sizeof(text), "%.0f", value);
    }
    sw_str_puts(out, text);
    if (!strpbrk(text, ".e")) {
        sw_str_puts(out, ".0");
    }
}

static void print_text_quoted(const char *text, size_t len, struct sw_str *out)
{
    const char quote = memchr(text, '\'', len) && !memchr(text, '"', len) ? '"' : '\'';
    sw_str_putc(out, quote);
    for (size_t i = 0; i < len; ++i) {
        const char c = text[i];
        if (c == '\\' || c == quote) {
            sw_str_putc(out, '\\');
            sw_str_putc(out, c);
        } else if (c == '\n' || c == '\t' || c == '\r') {
            sw_str_puts(out, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r");
        } else if ((unsigned char)c < 0x20 || c == 0x7F) {
            sw_str_printf(out, "\\x%02x", (unsigned)(unsigned char)c);
        } else {
            sw_str_putc(out, c);
        }
    }
    sw_str_putc(out, quote);
}

/* Bytes of a printed value without its members. An escape takes up to six bytes for one. */
static size_t own_bytes(const struct jinja_value *value, bool quoted)
{
    return value->type == JINJA_V_STRING ? value->len * (quoted ? 6 : 1) + 2 : 64;
}

static void print(struct jinja_run *run, const struct jinja_value *value, bool quoted, int depth,
                  struct sw_str *out)
{
    if (!sw_jinja_room(run, out, own_bytes(value, quoted))) {
        return;
    }
    if (depth > MOST_NESTED) {
        sw_str_puts(out, "...");
        return;
    }
    switch (value->type) {
    case JINJA_V_UNDEFINED:
        sw_str_puts(out, quoted ? "Undefined" : "");
        break;
    case JINJA_V_NONE:
        sw_str_puts(out, "None");
        break;
    case JINJA_V_BOOL:
        sw_str_puts(out, value->integer ? "True" : "False");
        break;
    case JINJA_V_INT:
        sw_str_printf(out, "%lld", (long long)value->integer);
        break;
    case JINJA_V_FLOAT:
        print_float(value->number, out);
        break;
    case JINJA_V_STRING:
        if (quoted) {
            print_text_quoted(value->text, value->len, out);
        } else {
            sw_str_append(out, value->text, value->len);
        }
        break;
    case JINJA_V_LIST:
        sw_str_putc(out, '[');
        for (int64_t i = 0; i < value->list->n; ++i) {
            sw_str_puts(out, i > 0 ? ", " : "");
            print(run, &value->list->items[i], true, depth + 1, out);
        }
        sw_str_putc(out, ']');
        break;
    case JINJA_V_MAP:
    case JINJA_V_NAMESPACE:
        sw_str_puts(out, value->type == JINJA_V_MAP ? "{" : "<Namespace {");
        for (int64_t i = 0; i < value->map->n; ++i) {
            sw_str_puts(out, i > 0 ? ", " : "");
            print(run, &value->map->keys[i], true, depth + 1, out);
            sw_str_puts(out, ": ");
            print(run, &value->map->values[i], true, depth + 1, out);
        }
        sw_str_puts(out, value->type == JINJA_V_MAP ? "}" : "}>");
        break;
    case JINJA_V_LOOP:
        sw_str_printf(out, "<LoopContext %lld/%lld>", (long long)value->loop->index + 1,
                      (long long)value->loop->over->n);
        break;
    default:
        sw_str_printf(out, "<%s>", sw_jinja_type_name(value));
        break;
    }
}

void sw_jinja_print(struct jinja_run *run, const struct jinja_value *value, struct sw_str *out)
{
    print(run, value, false, 0, out);
}

static void json_escape(int32_t c, struct sw_str *out)
{
    if (c < 0x10000) {
        sw_str_printf(out, "\\u%04x", (unsigned)c);
    } else { /* a surrogate pair */
        sw_str_printf(out, "\\u%04x\\u%04x", 0xD800U + ((unsigned)(c - 0x10000) >> 10),
                      0xDC00U + ((unsigned)c & 0x3FF));
    }
}

static void json_text(const char *text, size_t len, bool ascii, struct sw_str *out)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    sw_str_putc(out, '"');
    for (size_t pos = 0; pos < len;) {
        const size_t at = pos;
        const int32_t c = sw_utf8_step(text, len, &pos);
        const char *known = c > 0 && c < 0x80 ? strchr(from, (char)c) : NULL;
        if (known) {
            sw_str_putc(out, '\\');
            sw_str_putc(out, to[known - from]);
        } else if ((c >= 0 && c < 0x20) || (ascii && c >= 0x7F)) {
            json_escape(c, out);
        } else {
            sw_str_append(out, text + at, pos - at);
        }
    }
    sw_str_putc(out, '"');
}

static void json_number(const struct jinja_value *value, struct sw_str *out)
{
    if (value->type == JINJA_V_INT) {
        sw_str_printf(out, "%lld", (long long)value->integer);
    } else if (isfinite(value->number)) {
        print_float(value->number, out);
    } else {
        sw_str_puts(out, isnan(value->number) ? "NaN"
                         : value->number < 0  ? "-Infinity"
                                              : "Infinity");
    }
}

/* The printing of a value as JSON. */
struct json_print {
    struct jinja_run *run;
    const struct jinja_json *options;
    struct sw_str *out;
};

/* Begins the line of a member, if each has its own. */
static bool json_line(const struct json_print *p, int depth)
{
    if (!p->options->indent) {
        return true;
    }
    if (!sw_jinja_room(p->run, p->out, 1 + (size_t)depth * p->options->indent_len)) {
        return false;
    }
    sw_str_putc(p->out, '\n');
    for (int i = 0; i < depth; ++i) {
        sw_str_append(p->out, p->options->indent, p->options->indent_len);
    }
    return true;
}

static sw_status json_scalar(const struct json_print *p, const struct jinja_value *value)
{
    switch (value->type) {
    case JINJA_V_NONE:
        sw_str_puts(p->out, "null");
        return SW_OK;
    case JINJA_V_BOOL:
        sw_str_puts(p->out, value->integer ? "true" : "false");
        return SW_OK;
    case JINJA_V_INT:
    case JINJA_V_FLOAT:
        json_number(value, p->out);
        return SW_OK;
    case JINJA_V_STRING:
        json_text(value->text, value->len, p->options->ascii, p->out);
        return SW_OK;
    default:
        return sw_jinja_fail(p->run, SW_JINJA_TYPE, "tojson of %s", sw_jinja_type_name(value));
    }
}

/* Keys become texts. */
static sw_status json_key(const struct json_print *p, const struct jinja_value *key)
{
    if (!sw_jinja_room(p->run, p->out, own_bytes(key, true) + p->options->key.len)) {
        return sw_jinja_check(p->run);
    }
    sw_str_puts(p->out, key->type == JINJA_V_STRING ? "" : "\"");
    SW_TRY(json_scalar(p, key));
    sw_str_puts(p->out, key->type == JINJA_V_STRING ? "" : "\"");
    sw_str_append(p->out, p->options->key.text, p->options->key.len);
    return SW_OK;
}

static int compare_keys(const void *left, const void *right)
{
    const struct jinja_value *a = *(const struct jinja_value *const *)left;
    const struct jinja_value *b = *(const struct jinja_value *const *)right;
    if (a->type != JINJA_V_STRING) {
        return (sw_jinja_number(a) > sw_jinja_number(b)) -
               (sw_jinja_number(a) < sw_jinja_number(b));
    }
    const int first = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);
    return first != 0 ? first : (a->len > b->len) - (a->len < b->len);
}

/* Lists the keys of a map in the order to print. */
static sw_status json_order(const struct json_print *p, const struct jinja_map *map,
                            const struct jinja_value ***out)
{
    void *keys = NULL;
    SW_TRY(take(p->run, (size_t)map->n * sizeof(**out), &keys));
    *out = keys;
    for (int64_t i = 0; i < map->n; ++i) {
        (*out)[i] = &map->keys[i];
        const bool texts = map->keys[0].type == JINJA_V_STRING;
        if (p->options->sorted && map->n > 1 &&
            !(texts ? map->keys[i].type == JINJA_V_STRING : sw_jinja_is_number(&map->keys[i]))) {
            return sw_jinja_fail(p->run, SW_JINJA_TYPE, "tojson: keys that have no order");
        }
        sw_jinja_work(p->run, 64 + (int64_t)map->keys[i].len);
    }
    SW_TRY(sw_jinja_check(p->run));
    if (p->options->sorted) {
        qsort(keys, (size_t)map->n, sizeof(**out), compare_keys);
    }
    return SW_OK;
}

static sw_status print_json(const struct json_print *p, const struct jinja_value *value, int depth)
{
    const bool map = value->type == JINJA_V_MAP;
    const struct jinja_value **keys = NULL;
    if (depth > MOST_NESTED) {
        return sw_jinja_fail(p->run, SW_JINJA_LIMIT, "tojson: nested deeper than %d", MOST_NESTED);
    }
    if (!sw_jinja_room(p->run, p->out, own_bytes(value, true) + p->options->item.len)) {
        return sw_jinja_check(p->run);
    }
    if (!map && value->type != JINJA_V_LIST) {
        return json_scalar(p, value);
    }
    SW_TRY(map ? json_order(p, value->map, &keys) : SW_OK);
    const int64_t n = map ? value->map->n : value->list->n;
    sw_str_putc(p->out, map ? '{' : '[');
    for (int64_t i = 0; i < n; ++i) {
        sw_str_append(p->out, p->options->item.text, i == 0 ? 0 : p->options->item.len);
        if (!json_line(p, depth + 1)) {
            return sw_jinja_check(p->run);
        }
        SW_TRY(map ? json_key(p, keys[i]) : SW_OK);
        SW_TRY(print_json(
            p, map ? &value->map->values[keys[i] - value->map->keys] : &value->list->items[i],
            depth + 1));
    }
    if (n > 0 && !json_line(p, depth)) {
        return sw_jinja_check(p->run);
    }
    sw_str_putc(p->out, map ? '}' : ']');
    return SW_OK;
}

sw_status sw_jinja_print_json(struct jinja_run *run, const struct jinja_value *value,
                              const struct jinja_json *options, struct sw_str *out)
{
    return print_json(&(struct json_print){run, options, out}, value, 0);
}
