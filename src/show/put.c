// SPDX-License-Identifier: Apache-2.0
// Members of JSON objects, each with the comma before it. Members without content are left out.
#include <stdio.h>
#include <string.h>

#include "show/private.h"

static bool ends_with(const struct sw_str *out, char c)
{
    return !out->failed && out->len > 0 && out->ptr[out->len - 1] == c;
}

static void cut(struct sw_str *out, size_t len)
{
    out->len = len;
    out->ptr[len] = '\0';
}

void sw_put_element(struct sw_str *out)
{
    sw_str_puts(out, ends_with(out, '{') || ends_with(out, '[') ? "" : ",");
}

size_t sw_put_key(struct sw_str *out, const char *key)
{
    const size_t before = out->len;
    sw_put_element(out);
    sw_str_putc(out, '"');
    sw_str_puts(out, key);
    sw_str_puts(out, "\":");
    return before;
}

void sw_put_end(struct sw_str *out, size_t before)
{
    if (ends_with(out, ':')) {
        cut(out, before);
    }
}

void sw_put_object_end(struct sw_str *out)
{
    if (ends_with(out, '{')) {
        cut(out, out->len - 1);
    } else {
        sw_str_putc(out, '}');
    }
}

void sw_put_text(struct sw_str *out, const char *key, const char *text)
{
    if (text && *text) {
        sw_put_key(out, key);
        sw_json_write_string(text, strlen(text), out);
    }
}

static void put_int(struct sw_str *out, const char *key, int64_t value)
{
    char text[32];
    const int len = snprintf(text, sizeof text, "%lld", (long long)value);
    sw_put_key(out, key);
    sw_str_append(out, text, (size_t)len);
}

void sw_put_count(struct sw_str *out, const char *key, int64_t value)
{
    if (value != 0) {
        put_int(out, key, value);
    }
}

void sw_put_number(struct sw_str *out, const char *key, int64_t value)
{
    if (value >= 0) {
        put_int(out, key, value);
    }
}

void sw_put_flag(struct sw_str *out, const char *key, bool value)
{
    if (value) {
        sw_put_key(out, key);
        sw_str_puts(out, "true");
    }
}
