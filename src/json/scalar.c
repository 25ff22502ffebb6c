// SPDX-License-Identifier: Apache-2.0
// json/scalar - strings, numbers and the literals true, false, null, for both dialects.

#include "json/private.h"

#include <math.h>
#include <string.h>

/* ---- strings ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    const char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* The four hex digits after "\u" at `at`; -1 if they are missing. */
static int32_t unicode_escape(const struct sw_json_reader *r, const char *at)
{
    if (r->end - at < 6 || at[0] != '\\' || at[1] != 'u') {
        return -1;
    }
    int32_t code = 0;
    for (int i = 2; i < 6; i++) {
        const int digit = hex_digit(at[i]);
        if (digit < 0) {
            return -1;
        }
        code = code * 16 + digit;
    }
    return code;
}

/* r->at is on the backslash. Writes the escaped character to out; returns its bytes, 0 on
 * failure. */
static size_t read_escape(struct sw_json_reader *r, char *out)
{
    static const char names[] = "\"\\/bfnrt'";
    static const char means[] = "\"\\/\b\f\n\r\t'";
    const char *from = r->at;
    if (r->end - from < 2) {
        sw_json_fail(r, r->end, "string does not end");
        return 0;
    }
    if (from[1] != 'u') {
        const char *name = from[1] ? strchr(names, from[1]) : NULL;
        if (!name || (*name == '\'' && r->dialect == SW_JSON_STRICT)) {
            sw_json_fail(r, from, "unknown escape in a string");
            return 0;
        }
        *out = means[name - names];
        r->at += 2;
        return 1;
    }

    int32_t code = unicode_escape(r, from);
    if (code < 0) {
        sw_json_fail(r, from, "expected four hexadecimal digits after \\u");
        return 0;
    }
    r->at += 6;
    if (code >= 0xd800 && code < 0xe000) {
        const int32_t low = unicode_escape(r, r->at);
        if (code >= 0xdc00 || low < 0xdc00 || low >= 0xe000) {
            sw_json_fail(r, from, "half of a surrogate pair");
            return 0;
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        r->at += 6;
    }
    return sw_json_utf8_put((uint32_t)code, out);
}

/* Bytes up to the closing quote, a backslash, a control character or the end of the text. */
static size_t plain_len(const struct sw_json_reader *r, char quote)
{
    const char *c = r->at;
    while (c < r->end && *c != quote && *c != '\\' && (unsigned char)*c >= 0x20) {
        c++;
    }
    return (size_t)(c - r->at);
}

/* An upper bound of the unescaped length of the string at r->at, which is after its quote. */
static size_t most_len(const struct sw_json_reader *r, char quote)
{
    const char *c = r->at;
    while (c < r->end && *c != quote && (unsigned char)*c >= 0x20) {
        c += *c == '\\' && r->end - c > 1 ? 2 : 1;
    }
    return (size_t)(c - r->at);
}

bool sw_json_read_quoted(struct sw_json_reader *r, const char **out_text, size_t *out_len,
                         const char **out_raw)
{
    struct sw_arena *arena = &r->doc->arena;
    const char *open = r->at;
    const char quote = *r->at++;
    char *text = sw_arena_alloc(arena, most_len(r, quote) + 1);
    if (!text) {
        return sw_json_fail_nomem(r);
    }
    size_t len = 0;
    bool escaped = false;
    for (;;) {
        const size_t plain = plain_len(r, quote);
        memcpy(text + len, r->at, plain);
        len += plain;
        r->at += plain;
        if (r->at == r->end) {
            return sw_json_fail(r, open, "string does not end");
        }
        if (*r->at == quote) {
            break;
        }
        if (*r->at != '\\') {
            return sw_json_fail(r, r->at, "control character U+%04X in a string must be escaped",
                                (unsigned)(unsigned char)*r->at);
        }
        const size_t n = read_escape(r, text + len);
        if (n == 0) {
            return false;
        }
        len += n;
        escaped = true;
    }
    r->at++;

    const char *raw = text;
    if (escaped && out_raw) {
        raw = sw_arena_strndup(arena, open + 1, (size_t)(r->at - open - 2));
        if (!raw) {
            return sw_json_fail_nomem(r);
        }
    }
    *out_text = text;
    *out_len = len;
    if (out_raw) {
        *out_raw = raw;
    }
    return true;
}

bool sw_json_set_string(struct sw_json_reader *r, struct sw_json *node, const char *text,
                        size_t len)
{
    char *copy = sw_arena_alloc(&r->doc->arena, len + 1);
    if (!copy) {
        return sw_json_fail_nomem(r);
    }
    memcpy(copy, text, len);
    node->type = SW_JSON_STRING;
    node->string = node->raw = copy;
    node->string_len = len;
    return true;
}

/* ---- numbers ---- */

/* hjson's reader makes an integer of every integral value below 1e10, in any spelling: 5e8, 1.0. */
static bool is_whole_value(double value)
{
    return fabs(value) < 1e10 && value == trunc(value);
}

bool sw_json_set_number(struct sw_json_reader *r, struct sw_json *node, const char *from,
                        const char *to, bool whole)
{
    node->raw = sw_arena_strndup(&r->doc->arena, from, (size_t)(to - from));
    if (!node->raw) {
        return sw_json_fail_nomem(r);
    }
    node->number = sw_json_number_f64(node->raw);
    if (isinf(node->number)) {
        r->fail_final = true;
        return sw_json_fail(r, from, "number is beyond the range of a double");
    }
    node->type = SW_JSON_FLOAT;
    node->integer = sw_json_truncate(node->number);
    if (whole) {
        if (sw_json_number_i64(node->raw, &node->integer)) {
            node->type = SW_JSON_INT;
        }
    } else if (r->dialect == SW_JSON_TOLERANT && is_whole_value(node->number)) {
        node->type = SW_JSON_INT;
        node->number = (double)node->integer; /* turns -0.0 into 0 */
    }
    return true;
}

/* ---- strict scalars ---- */

static bool read_word(struct sw_json_reader *r, const char *word)
{
    const size_t len = strlen(word);
    if ((size_t)(r->end - r->at) < len || memcmp(r->at, word, len) != 0) {
        return false;
    }
    r->at += len;
    return true;
}

bool sw_json_read_scalar(struct sw_json_reader *r, struct sw_json *node)
{
    if (sw_json_is(r, '"')) {
        node->type = SW_JSON_STRING;
        return sw_json_read_quoted(r, &node->string, &node->string_len, &node->raw);
    }
    bool whole = false;
    const size_t n = sw_json_number_len(r->at, (size_t)(r->end - r->at), &whole);
    if (n > 0) {
        const char *from = r->at;
        r->at += n;
        return sw_json_set_number(r, node, from, r->at, whole);
    }
    node->type = SW_JSON_BOOL;
    if (read_word(r, "true")) {
        node->boolean = true;
        return true;
    }
    if (read_word(r, "false")) {
        return true;
    }
    node->type = SW_JSON_NULL;
    if (read_word(r, "null")) {
        return true;
    }
    char found[32];
    return sw_json_fail(r, r->at, "expected a value, found %s", sw_json_found(r, r->at, found));
}
