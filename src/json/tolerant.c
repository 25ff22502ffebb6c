// SPDX-License-Identifier: Apache-2.0
// json/tolerant - hjson's additions to JSON, as DeepSpeed's reader takes them: comments, bare keys,
// bare words up to the end of the line, multi-line strings. tests/hjson_test.c compares it with
// recorded cases. A bare value is a number or true, false or null if a comma, a closing bracket, a
// comment or the end of the line follows directly. Any other bare value is a string that runs to
// the end of its line, including commas, brackets and comment signs.

#include "json/private.h"

#include <string.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_line_end(const struct sw_json_reader *r, const char *c)
{
    return c == r->end || *c == '\n' || *c == '\r';
}

static bool starts(const struct sw_json_reader *r, const char *c, const char *word)
{
    const size_t len = strlen(word);
    return (size_t)(r->end - c) >= len && memcmp(c, word, len) == 0;
}

bool sw_json_skip_comments(struct sw_json_reader *r)
{
    for (;;) {
        while (r->at < r->end && is_space(*r->at)) {
            r->at++;
        }
        if (sw_json_is(r, '#') || starts(r, r->at, "//")) {
            while (!is_line_end(r, r->at)) {
                r->at++;
            }
        } else if (starts(r, r->at, "/*")) {
            const char *close = memmem(r->at + 2, (size_t)(r->end - r->at - 2), "*/", 2);
            if (!close) {
                r->fail_final = true;
                return sw_json_fail(r, r->at, "comment does not end");
            }
            r->at = close + 2;
        } else {
            return true;
        }
    }
}

bool sw_json_read_bare_key(struct sw_json_reader *r, const char **out_text, size_t *out_len)
{
    const char *from = r->at;
    const char *to = from; /* end of the last character that is not a space */
    for (; r->at < r->end && *r->at != ':'; r->at++) {
        if (strchr("{}[],", *r->at) && *r->at != '\0') {
            char found[32];
            return sw_json_fail(r, r->at, "expected a key, found %s",
                                sw_json_found(r, r->at, found));
        }
        if (is_space(*r->at)) {
            continue;
        }
        if (to != r->at) {
            return sw_json_fail(r, from, "a key with spaces needs quotes");
        }
        to = r->at + 1;
    }
    if (r->at == r->end) {
        return sw_json_fail(r, from, "expected a key, found %s",
                            from == r->end ? "the end of the text" : "no ':' after it");
    }
    if (from == r->at) {
        return sw_json_fail(r, from, "an empty key needs quotes");
    }
    char *key = sw_arena_alloc(&r->doc->arena, (size_t)(to - from) + 1);
    if (!key) {
        return sw_json_fail_nomem(r);
    }
    memcpy(key, from, (size_t)(to - from));
    *out_text = key;
    *out_len = (size_t)(to - from);
    return true;
}

/* ---- bare values ---- */

static bool ends_scalar(const struct sw_json_reader *r, const char *c)
{
    return is_line_end(r, c) || *c == ',' || *c == '}' || *c == ']' || *c == '#' ||
           starts(r, c, "//") || starts(r, c, "/*");
}

/* Bytes of the white space at c as Python's str.strip defines it; 0 for any other character. */
static size_t wide_space_len(const char *c, size_t len)
{
    static const char *const wide[] = {"\xc2\x85", "\u00a0", "\u1680", "\u2000", "\u2001",
                                       "\u2002",   "\u2003", "\u2004", "\u2005", "\u2006",
                                       "\u2007",   "\u2008", "\u2009", "\u200a", "\u2028",
                                       "\u2029",   "\u202f", "\u205f", "\u3000"};
    if (len == 0) {
        return 0;
    }
    if (*c == ' ' || (*c >= '\t' && *c <= '\r') || (*c >= 0x1c && *c <= 0x1f)) {
        return 1;
    }
    for (size_t i = 0; i < SW_LEN(wide); i++) {
        const size_t n = strlen(wide[i]);
        if (n <= len && memcmp(c, wide[i], n) == 0) {
            return n;
        }
    }
    return 0;
}

/* Strips white space from both ends of [from, to). */
static void strip(const char **from, const char **to)
{
    size_t n = 0;
    while ((n = wide_space_len(*from, (size_t)(*to - *from))) > 0) {
        *from += n;
    }
    while (*to > *from) {
        const char *last = *to - 1;
        while (last > *from && ((unsigned char)*last & 0xc0) == 0x80) {
            last--;
        }
        if (wide_space_len(last, (size_t)(*to - last)) == 0) {
            break;
        }
        *to = last;
    }
}

/* Reads true, false or null if it fills [from, to). */
static bool set_word(struct sw_json *node, const char *from, const char *to)
{
    static const struct {
        const char *text;
        enum sw_json_type type;
        bool boolean;
    } words[] = {{"true", SW_JSON_BOOL, true},
                 {"false", SW_JSON_BOOL, false},
                 {"null", SW_JSON_NULL, false}};
    strip(&from, &to);
    for (size_t i = 0; i < SW_LEN(words); i++) {
        const size_t len = strlen(words[i].text);
        if ((size_t)(to - from) == len && memcmp(from, words[i].text, len) == 0) {
            node->type = words[i].type;
            node->boolean = words[i].boolean;
            return true;
        }
    }
    return false;
}

static bool read_bare(struct sw_json_reader *r, struct sw_json *node)
{
    const char *from = r->at;
    if (from == r->end || strchr("{}[],:", *from)) {
        char found[32];
        if (from == r->end || *from != '\0') {
            return sw_json_fail(r, from, "expected a value, found %s",
                                sw_json_found(r, from, found));
        }
    }

    bool whole = false;
    const char *number_end = from + sw_json_number_len(from, (size_t)(r->end - from), &whole);
    if (number_end > from) {
        const char *c = number_end;
        while (c < r->end && (*c == ' ' || *c == '\t')) {
            c++;
        }
        if (ends_scalar(r, c)) {
            r->at = c;
            return sw_json_set_number(r, node, from, number_end, whole);
        }
    }

    const char *first_end = from;
    while (!ends_scalar(r, first_end)) {
        first_end++;
    }
    if (strchr("tfn", *from) && set_word(node, from, first_end)) {
        r->at = first_end;
        return true;
    }
    const char *to = first_end;
    while (!is_line_end(r, to)) {
        to++;
    }
    r->at = to;
    strip(&from, &to);
    return sw_json_set_string(r, node, from, (size_t)(to - from));
}

/* ---- '''multi-line strings''' ---- */

/* Skips at most n blanks. */
static const char *skip_indent(const struct sw_json_reader *r, const char *c, size_t n)
{
    while (n > 0 && c < r->end && (*c == ' ' || *c == '\t' || *c == '\r')) {
        c++;
        n--;
    }
    return c;
}

static bool read_multiline(struct sw_json_reader *r, struct sw_json *node)
{
    const char *open = r->at;
    /* each line of the string may be indented by up to the column of its opening quotes */
    int line = 0, column = 0;
    sw_json_locate(r, open, &line, &column);
    const size_t indent = (size_t)column - 1;
    const char *c = skip_indent(r, open + 3, SIZE_MAX);
    if (c < r->end && *c == '\n') {
        c = skip_indent(r, c + 1, indent);
    }
    const char *close = c;
    while (close < r->end && !starts(r, close, "'''")) {
        close++;
    }
    if (close == r->end) {
        return sw_json_fail(r, open, "multi-line string does not end");
    }
    char *text = sw_arena_alloc(&r->doc->arena, (size_t)(close - c) + 1);
    if (!text) {
        return sw_json_fail_nomem(r);
    }
    size_t len = 0;
    while (c < close) {
        if (*c != '\r') {
            text[len++] = *c;
        }
        c = *c == '\n' ? skip_indent(r, c + 1, indent) : c + 1;
    }
    r->at = close + 3;
    if (len > 0 && text[len - 1] == '\n') {
        len--;
    }
    text[len] = '\0';
    node->type = SW_JSON_STRING;
    node->string = node->raw = text;
    node->string_len = len;
    return true;
}

bool sw_json_read_tolerant_scalar(struct sw_json_reader *r, struct sw_json *node)
{
    if (starts(r, r->at, "'''")) {
        return read_multiline(r, node);
    }
    if (sw_json_is(r, '"') || sw_json_is(r, '\'')) {
        node->type = SW_JSON_STRING;
        return sw_json_read_quoted(r, &node->string, &node->string_len, &node->raw);
    }
    return read_bare(r, node);
}
