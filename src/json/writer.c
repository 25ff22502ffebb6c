// SPDX-License-Identifier: Apache-2.0
// json/writer - from tree to text, walking by parent pointers.

#include "json/private.h"

#include <string.h>

static void write_escape(unsigned char c, struct sw_str *out)
{
    static const char names[] = "\"\\bfnrt";
    static const char means[] = "\"\\\b\f\n\r\t";
    const char *mean = c ? strchr(means, c) : NULL;
    if (mean) {
        sw_str_putc(out, '\\');
        sw_str_putc(out, names[mean - means]);
    } else {
        sw_str_printf(out, "\\u%04x", c);
    }
}

void sw_json_write_string(const char *text, size_t len, struct sw_str *out)
{
    sw_str_putc(out, '"');
    size_t done = 0; /* everything before is already written */
    for (size_t i = 0; i < len;) {
        const unsigned char c = (unsigned char)text[i];
        const size_t n = sw_json_utf8_len(text + i, len - i);
        if (n > 0 && c >= 0x20 && c != '"' && c != '\\') {
            i += n;
            continue;
        }
        sw_str_append(out, text + done, i - done);
        if (n == 0) {
            sw_str_puts(out, "\ufffd");
        } else {
            write_escape(c, out);
        }
        i++;
        done = i;
    }
    sw_str_append(out, text + done, len - done);
    sw_str_putc(out, '"');
}

/* An integer too large for int64_t keeps its digits. */
static bool is_big_whole(const struct sw_json *value)
{
    bool whole = false;
    if (!value->raw) {
        return false;
    }
    const size_t len = strlen(value->raw);
    return sw_json_number_len(value->raw, len, &whole) == len && whole;
}

static void write_scalar(const struct sw_json *value, struct sw_str *out)
{
    switch (value->type) {
    case SW_JSON_BOOL:
        sw_str_puts(out, value->boolean ? "true" : "false");
        break;
    case SW_JSON_INT:
        sw_str_printf(out, "%lld", (long long)value->integer);
        break;
    case SW_JSON_FLOAT:
        if (is_big_whole(value)) {
            sw_str_puts(out, value->raw);
        } else {
            sw_json_write_f64(value->number, out);
        }
        break;
    case SW_JSON_STRING:
        sw_json_write_string(value->string, value->string_len, out);
        break;
    default:
        sw_str_puts(out, "null");
        break;
    }
}

static void new_line(int indent, int depth, struct sw_str *out)
{
    if (indent > 0) {
        sw_str_printf(out, "\n%*s", indent * depth, "");
    }
}

void sw_json_write(const struct sw_json *value, int indent, struct sw_str *out)
{
    const struct sw_json *at = value;
    int depth = 0;
    for (;;) {
        if (at != value && at->key) {
            sw_json_write_string(at->key, at->key_len, out);
            sw_str_puts(out, indent > 0 ? ": " : ":");
        }
        const bool object = at->type == SW_JSON_OBJECT;
        if (object || at->type == SW_JSON_ARRAY) {
            sw_str_putc(out, object ? '{' : '[');
            if (at->first) {
                at = at->first;
                new_line(indent, ++depth, out);
                continue;
            }
            sw_str_putc(out, object ? '}' : ']');
        } else {
            write_scalar(at, out);
        }
        while (at != value && !at->next) {
            at = at->parent;
            new_line(indent, --depth, out);
            sw_str_putc(out, at->type == SW_JSON_OBJECT ? '}' : ']');
        }
        if (at == value) {
            return;
        }
        at = at->next;
        sw_str_putc(out, ',');
        new_line(indent, depth, out);
    }
}
