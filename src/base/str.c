// SPDX-License-Identifier: Apache-2.0
// Text: the growing string, the nearest known word for a slip, byte counts for people.
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Room for `extra` more bytes and the NUL. */
static bool reserve(struct sw_str *str, size_t extra)
{
    size_t need;
    if (str->failed || !sw_add_size(str->len, extra, &need) || !sw_add_size(need, 1, &need)) {
        str->failed = true;
        return false;
    }
    if (need <= str->cap) {
        return true;
    }
    size_t cap = str->cap ? str->cap : 64;
    while (cap < need) {
        cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    }
    char *grown = sw_realloc("string", str->ptr, cap);
    if (!grown) {
        str->failed = true;
        return false;
    }
    str->ptr = grown;
    str->cap = cap;
    return true;
}

void sw_str_append(struct sw_str *str, const char *text, size_t len)
{
    if (reserve(str, len)) {
        if (len) {
            memcpy(str->ptr + str->len, text, len);
        }
        str->len += len;
        str->ptr[str->len] = '\0';
    }
}

void sw_str_puts(struct sw_str *str, const char *text)
{
    sw_str_append(str, text, strlen(text));
}

void sw_str_putc(struct sw_str *str, char c)
{
    sw_str_append(str, &c, 1);
}

void sw_str_printf(struct sw_str *str, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (len < 0) {
        str->failed = true;
    } else if (reserve(str, (size_t)len)) {
        vsnprintf(str->ptr + str->len, (size_t)len + 1, fmt, again);
        str->len += (size_t)len;
    }
    va_end(again);
}

const char *sw_str_text(const struct sw_str *str)
{
    return str->ptr ? str->ptr : "";
}

void sw_str_clear(struct sw_str *str)
{
    str->len = 0;
    str->failed = false;
    if (str->ptr) {
        str->ptr[0] = '\0';
    }
}

void sw_str_fini(struct sw_str *str)
{
    sw_free(str->ptr);
    *str = (struct sw_str){0};
}

/* Bytes of the character at `at` when a terminal may have it as it is, else 0. */
static size_t printable(const unsigned char *at)
{
    const size_t n = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : at[0] >= 0xc2 ? 2 : 1;
    if (n == 1 || at[0] > 0xf4) {
        return n == 1 && at[0] >= ' ' && at[0] < 127;
    }
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80) { /* also the NUL at the end */
            return 0;
        }
    }
    /* a control character above 127, or one in more bytes than it needs */
    const bool hidden = (at[0] == 0xc2 && at[1] < 0xa0) || (at[0] == 0xe0 && at[1] < 0xa0) ||
                        (at[0] == 0xf0 && at[1] < 0x90);
    return hidden ? 0 : n;
}

const char *sw_plain_words(const char *text, char *out, size_t cap)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t len = 0;
    while (*at) {
        const size_t n = printable(at), room = n > 0 ? n : 4;
        if (len + room >= cap) {
            break;
        }
        if (n > 0) {
            memcpy(out + len, at, n);
        } else {
            snprintf(out + len, 5, "\\x%02x", *at);
        }
        len += room;
        at += n > 0 ? n : 1;
    }
    out[len] = '\0';
    return out;
}

/* One row of the dynamic programme at a time: before round i, row[j] is the distance between the
 * first i-1 bytes of a and the first j bytes of b. */
int sw_edit_distance(const char *a, const char *b)
{
    const size_t n_a = strlen(a), n_b = strlen(b);
    int *row = sw_alloc_zero("edit distance", n_b + 1, sizeof(*row));
    if (!row) {
        return -1;
    }
    for (size_t j = 0; j <= n_b; j++) {
        row[j] = (int)j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            const int substituted = diagonal + (a[i - 1] != b[j - 1]);
            const int removed = row[j] + 1, inserted = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = substituted < removed ? substituted : removed;
            row[j] = inserted < row[j] ? inserted : row[j];
        }
    }
    const int distance = row[n_b];
    sw_free(row);
    return distance;
}

const char *sw_nearest(const char *word, const char *const *candidates, size_t n_candidates)
{
    const char *best = NULL;
    int best_distance = (int)(strlen(word) / 3) + 2; /* a slip: fewer than a third is wrong */
    for (size_t i = 0; i < n_candidates; i++) {
        const int distance = sw_edit_distance(word, candidates[i]);
        /* Not when everything is different: "x" is no slip for "y". */
        if (distance >= 0 && distance < best_distance && (size_t)distance < strlen(candidates[i])) {
            best_distance = distance;
            best = candidates[i];
        }
    }
    return best;
}

struct sw_hint sw_hint(const char *nearest)
{
    struct sw_hint hint = {""};
    if (nearest) {
        snprintf(hint.text, sizeof hint.text, "; the nearest is \"%.100s\"", nearest);
    }
    return hint;
}

const char *sw_format_bytes(char *buf, size_t cap, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    const double size = bytes < 0 ? -bytes : bytes;
    double scaled = size;
    size_t i = 0;
    /* 1023.95 would be printed as 1024.0 of the smaller unit */
    while (scaled >= (i == 0 ? 1023.5 : 1023.95) && i + 1 < SW_LEN(units)) {
        scaled /= 1024;
        i++;
    }
    snprintf(buf, cap, "%s%.*f %s", bytes < 0 ? "-" : "", i == 0 ? 0 : 1, scaled, units[i]);
    return buf;
}

const char *sw_parse_bytes(const char *text, int64_t *out)
{
    static const char wanted[] = "is not a number of bytes, such as 1000000, \"300M\", \"2G\" or "
                                 "\"1T\" (powers of 1024, as MiB; MB are of 1000)";
    static const struct {
        const char *name;
        int64_t bytes;
    } units[] = {
        {"", 1},
        {"B", 1},
        {"K", INT64_C(1) << 10},
        {"M", INT64_C(1) << 20},
        {"G", INT64_C(1) << 30},
        {"T", INT64_C(1) << 40},
        {"KiB", INT64_C(1) << 10},
        {"MiB", INT64_C(1) << 20},
        {"GiB", INT64_C(1) << 30},
        {"TiB", INT64_C(1) << 40},
        {"KB", 1000},
        {"MB", 1000000},
        {"GB", 1000000000},
        {"TB", 1000000000000},
    };
    static const char digits[] = "0123456789";
    const bool negative = *text == '-';
    const char *number = text + negative;
    const size_t whole = strspn(number, digits);
    const size_t part = whole > 0 && number[whole] == '.' ? strspn(number + whole + 1, digits) : 0;
    const char *end = number + whole + (part > 0 ? part + 1 : 0);
    end += strspn(end, " ");
    int64_t unit = 0;
    for (size_t i = 0; i < SW_LEN(units); i++) {
        unit = strcasecmp(end, units[i].name) == 0 ? units[i].bytes : unit;
    }
    if (whole == 0 || unit == 0 || (part > 0 && unit == 1)) {
        return wanted;
    }
    errno = 0;
    const long long n = strtoll(number, NULL, 10);
    const double fraction = part > 0 ? strtod(number + whole, NULL) : 0;
    if (errno || n >= INT64_MAX / unit) {
        return "is an integer too large for 64 bits";
    }
    const int64_t bytes = (int64_t)n * unit + (int64_t)(fraction * (double)unit);
    *out = negative ? -bytes : bytes;
    return NULL;
}

void sw_text_free(char *text)
{
    sw_free(text);
}
