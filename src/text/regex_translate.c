// SPDX-License-Identifier: Apache-2.0
// From Oniguruma's dialect, as tokenizer files use it, to PCRE2's.
//
// The split patterns of byte-level BPE are few and small, so this reads a known subset and refuses
// the rest: a construct passed on unread could match differently than when the
// vocabulary was made, and all later ids would be silently wrong.
//
// Rewritten are the classes whose members differ between the two engines:
//   \s      PCRE2 adds U+180E
//   \p{L}   PCRE2 10.42 knows Unicode 14; later letters and numbers are added by range
//   \p{N}   (naming them again to a newer PCRE2 changes nothing)
#include "text/regex.h"

#include <ctype.h>
#include <string.h>

#define SPACE                                                                                      \
    "\\x{9}-\\x{d} \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"                   \
    "\\x{202f}\\x{205f}\\x{3000}"
#define NO_SPACE                                                                                   \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-"         \
    "\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"        \
    "\\x{3001}-\\x{10ffff}"

/* Letters and numbers of Unicode 15 and 16. ASCII comes first because PCRE2 finds listed small
 * characters in a bitmap, before it looks at properties. */
#define LETTER                                                                                     \
    "A-Za-z\\p{L}\\x{1c89}\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}"    \
    "\\x{10d4a}-\\x{10d65}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}\\x{11240}"          \
    "\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}"           \
    "\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}"          \
    "\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}"                    \
    "\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}"                     \
    "\\x{1e030}-\\x{1e06d}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}"          \
    "\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define NUMBER                                                                                     \
    "0-9\\p{N}\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}"                     \
    "\\x{11f50}-\\x{11f59}\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}"         \
    "\\x{1d2c0}-\\x{1d2d3}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"

struct reader {
    const char *pattern;
    size_t len, pos;
    struct sw_str *out;
};

static sw_status refuse(const struct reader *in, size_t at, const char *what)
{
    const int n = (int)sw_min_i64((int64_t)(in->len - at), 12);
    return SW_FAIL(SW_E_UNSUP, "regular expression: %s is not built (at offset %zu: '%.*s')", what,
                   at, n, in->pattern + at);
}

static char peek(const struct reader *in, size_t ahead)
{
    return in->pos + ahead < in->len ? in->pattern[in->pos + ahead] : '\0';
}

static bool starts_with(const struct reader *in, const char *text)
{
    const size_t n = strlen(text);
    return in->len - in->pos >= n && memcmp(in->pattern + in->pos, text, n) == 0;
}

static void copy(struct reader *in, size_t n)
{
    sw_str_append(in->out, in->pattern + in->pos, n);
    in->pos += n;
}

/* A set written as the members of a class, for use inside one or alone. */
static void put_set(struct reader *in, const char *members, bool negated, bool in_class)
{
    if (in_class) {
        sw_str_puts(in->out, members);
    } else {
        sw_str_printf(in->out, negated ? "[^%s]" : "[%s]", members);
    }
}

/* \p{..}, \P{..}, \p{^..}: L and N are rewritten, other properties are PCRE2's. */
static sw_status read_property(struct reader *in, bool in_class)
{
    const size_t at = in->pos;
    bool negated = peek(in, 1) == 'P';
    in->pos += 2;
    if (peek(in, 0) != '{') {
        return refuse(in, at, "a property without braces");
    }
    in->pos++;
    if (peek(in, 0) == '^') {
        negated = !negated;
        in->pos++;
    }
    const size_t name = in->pos;
    while (isalnum((unsigned char)peek(in, 0)) || peek(in, 0) == '_') {
        in->pos++;
    }
    const size_t n = in->pos - name;
    if (peek(in, 0) != '}' || n == 0) {
        return refuse(in, at, "this property");
    }
    in->pos++;
    if (n == 1 && strchr("LN", in->pattern[name])) {
        if (in_class && negated) {
            return refuse(in, at, "a negated property inside a class");
        }
        put_set(in, in->pattern[name] == 'L' ? LETTER : NUMBER, negated, in_class);
        return SW_OK;
    }
    sw_str_printf(in->out, "\\%c{%.*s}", negated ? 'P' : 'p', (int)n, in->pattern + name);
    return SW_OK;
}

/* \uHHHH, \xHH below 0x80, \x{H..}. */
static sw_status read_code_point(struct reader *in)
{
    const size_t at = in->pos;
    const bool braces = peek(in, 1) == 'x' && peek(in, 2) == '{';
    size_t n_wanted = peek(in, 1) == 'u' ? 4 : 2;
    in->pos += braces ? 3 : 2;
    const size_t digits = in->pos;
    uint32_t value = 0;
    while (isxdigit((unsigned char)peek(in, 0)) && in->pos - digits < (braces ? 6 : n_wanted)) {
        const char c = (char)tolower((unsigned char)peek(in, 0));
        value = value * 16 + (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
        in->pos++;
    }
    if (braces) {
        n_wanted = sw_max_i64(1, (int64_t)(in->pos - digits));
        if (peek(in, 0) != '}') {
            return refuse(in, at, "this escape");
        }
    }
    if (in->pos - digits != n_wanted || (n_wanted == 2 && !braces && value >= 0x80)) {
        return refuse(in, at, "this escape");
    }
    in->pos += braces;
    sw_str_printf(in->out, "\\x{%x}", value);
    return SW_OK;
}

/* One backslash. *out_set: it stands for several characters, so no range can start here. */
static sw_status read_escape(struct reader *in, bool in_class, bool *out_set)
{
    const size_t at = in->pos;
    const char c = peek(in, 1);

    *out_set = true;
    switch (c) {
    case 's':
    case 'S':
        in->pos += 2;
        if (in_class) {
            sw_str_puts(in->out, c == 's' ? SPACE : NO_SPACE);
        } else {
            put_set(in, SPACE, c == 'S', false);
        }
        return SW_OK;
    case 'p':
    case 'P':
        return read_property(in, in_class);
    case 'd':
        in->pos += 2;
        sw_str_puts(in->out, "\\p{Nd}");
        return SW_OK;
    default:
        break;
    }
    *out_set = false;
    if (c == 'u' || c == 'x') {
        return read_code_point(in);
    }
    if (c == 'r' || c == 'n' || c == 't' || c == 'f' || (c != '\0' && ispunct((unsigned char)c))) {
        copy(in, 2);
        return SW_OK;
    }
    return refuse(in, at, "this escape");
}

static sw_status read_class(struct reader *in)
{
    const size_t at = in->pos;
    bool after_set = false;
    copy(in, 1);
    if (peek(in, 0) == '^') {
        copy(in, 1);
    }
    if (peek(in, 0) == ']') {
        return refuse(in, at, "a class that starts with ]");
    }
    while (in->pos < in->len && peek(in, 0) != ']') {
        if (peek(in, 0) == '\\') {
            SW_TRY(read_escape(in, true, &after_set));
        } else if (peek(in, 0) == '[') {
            return refuse(in, in->pos, "a class inside a class");
        } else if (starts_with(in, "&&")) {
            return refuse(in, in->pos, "an intersection of classes");
        } else if (peek(in, 0) == '-' && after_set) {
            sw_str_puts(in->out, "\\-");
            in->pos++;
            after_set = false;
        } else {
            copy(in, 1);
            after_set = false;
        }
    }
    if (in->pos == in->len) {
        return SW_FAIL(SW_E_FORMAT, "regular expression: the class at offset %zu has no end", at);
    }
    copy(in, 1);
    return SW_OK;
}

static sw_status read_group(struct reader *in)
{
    static const char *const known[] = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    if (peek(in, 1) != '?' && peek(in, 1) != '*') {
        copy(in, 1);
        return SW_OK;
    }
    for (size_t i = 0; i < SW_LEN(known); ++i) {
        if (starts_with(in, known[i])) {
            copy(in, strlen(known[i]));
            return SW_OK;
        }
    }
    return refuse(in, in->pos, "this group");
}

/* {n}, {n,} and {n,m}; a lazy mark only where both engines agree on it. */
static sw_status read_interval(struct reader *in)
{
    const size_t at = in->pos;
    bool range = false;
    size_t n = 1;
    while (isdigit((unsigned char)peek(in, n))) {
        n++;
    }
    if (n == 1) {
        return refuse(in, at, "this use of {");
    }
    if (peek(in, n) == ',') {
        range = true;
        do {
            n++;
        } while (isdigit((unsigned char)peek(in, n)));
    }
    if (peek(in, n) != '}') {
        return refuse(in, at, "this use of {");
    }
    const char mark = peek(in, n + 1);
    if (mark == '+' || mark == '*' || (mark == '?' && !range)) {
        return refuse(in, at, "a mark after {..}");
    }
    copy(in, n + 1);
    return SW_OK;
}

sw_status sw_regex_translate(const char *pattern, size_t len, struct sw_str *out)
{
    struct reader in = {pattern, len, 0, out};
    while (in.pos < len) {
        bool unused;
        switch (peek(&in, 0)) {
        case '\\':
            SW_TRY(read_escape(&in, false, &unused));
            break;
        case '[':
            SW_TRY(read_class(&in));
            break;
        case '(':
            SW_TRY(read_group(&in));
            break;
        case '{':
            SW_TRY(read_interval(&in));
            break;
        case '^':
        case '$':
            return refuse(&in, in.pos, "an anchor");
        default:
            copy(&in, 1);
        }
    }
    if (out->failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a regular expression");
    }
    return SW_OK;
}
