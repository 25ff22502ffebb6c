// SPDX-License-Identifier: Apache-2.0
// Text and numbers for a page. Whatever a run holds, a name, a sample or a path, reaches the page
// through sw_html_text, so that none of it is ever markup.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "report/private.h"

enum { MARK_WITHIN = 600 };
static const char mark[] = "<meta name=\"generator\" content=\"spillway ";

static const char *entity(unsigned char c)
{
    switch (c) {
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '&':
        return "&amp;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

/* Bytes of the character at text; one that is no UTF-8 has 1. */
static size_t length_of(const char *text, size_t len)
{
    const unsigned char lead = (unsigned char)*text;
    const size_t n = lead < 0xc0 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    return n <= len && sw_json_utf8_check(text, n) == n ? n : 1;
}

/* Controls of direction, U+202A .. U+202E and U+2066 .. U+2069: one that is not closed
 * reverses the text after the name. */
static bool turns(const char *text, size_t n)
{
    return n == 3 && ((memcmp(text, "\u202a", 3) >= 0 && memcmp(text, "\u202e", 3) <= 0) ||
                      (memcmp(text, "\u2066", 3) >= 0 && memcmp(text, "\u2069", 3) <= 0));
}

static bool is_shown(const char *text, size_t n, bool lines)
{
    const unsigned char c = (unsigned char)*text;
    if (n == 1) {
        return c < 0x7f && (c >= 0x20 || (lines && (c == '\n' || c == '\t')));
    }
    const unsigned char second = (unsigned char)text[1];
    const bool control = c == 0xc2 && second < 0xa0; /* U+0080 .. U+009F */
    const bool nonchar = c == 0xef && second == 0xbf && (unsigned char)text[2] >= 0xbe;
    return !control && !nonchar && (lines || !turns(text, n));
}

void sw_html_text(struct sw_str *out, const char *text, size_t len, bool lines)
{
    size_t done = 0; /* everything before is written */
    for (size_t i = 0; i < len;) {
        const size_t n = length_of(text + i, len - i);
        const char *as = is_shown(text + i, n, lines) ? entity((unsigned char)text[i]) : "\ufffd";
        if (as) {
            sw_str_append(out, text + done, i - done);
            sw_str_puts(out, as);
            done = i + n;
        }
        i += n;
    }
    sw_str_append(out, text + done, len - done);
}

void sw_html_name(struct sw_str *out, const char *text)
{
    sw_str_puts(out, "<bdi>");
    sw_html_text(out, text, strlen(text), false);
    sw_str_puts(out, "</bdi>");
}

/* 1234567 as 1,234,567. */
static void group_digits(char *buf, size_t cap, double value)
{
    char digits[40];
    size_t at = 0;
    if (fabs(value) >= 1e18) {
        snprintf(buf, cap, "%.4g", value);
        return;
    }
    const int n = snprintf(digits, sizeof digits, "%.0f", value);
    for (int i = 0; i < n && at + 2 < cap; i++) {
        const int left = n - i;
        if (i > 0 && left % 3 == 0 && digits[i - 1] != '-') {
            buf[at++] = ',';
        }
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
}

const char *sw_html_seconds(char *buf, size_t cap, double seconds)
{
    const double whole = floor(seconds + 0.5);
    if (!isfinite(seconds)) {
        snprintf(buf, cap, "–");
    } else if (seconds < 60) {
        snprintf(buf, cap, seconds < 1 ? "%.3f s" : "%.1f s", seconds);
    } else if (seconds < 3600) {
        snprintf(buf, cap, "%.0f min %02.0f s", floor(whole / 60), fmod(whole, 60));
    } else {
        snprintf(buf, cap, "%.0f h %02.0f min", floor(whole / 3600), floor(fmod(whole, 3600) / 60));
    }
    return buf;
}

const char *sw_html_number(char *buf, size_t cap, double value, enum sw_unit unit)
{
    if (!isfinite(value)) {
        snprintf(buf, cap, "–");
        return buf;
    }
    switch (unit) {
    case SW_UNIT_BYTES:
        return sw_format_bytes(buf, cap, value);
    case SW_UNIT_SHARE:
        snprintf(buf, cap, "%.0f %%", 100 * value);
        break;
    case SW_UNIT_MS:
        if (value >= 60e3) {
            return sw_html_seconds(buf, cap, value / 1e3);
        }
        snprintf(buf, cap, value >= 1e4 ? "%.1f s" : "%.4g ms", value >= 1e4 ? value / 1e3 : value);
        break;
    case SW_UNIT_COUNT:
        group_digits(buf, cap, value);
        break;
    default:
        snprintf(buf, cap, fabs(value) >= 1e4 && fabs(value) < 1e7 ? "%.0f" : "%.4g", value);
        break;
    }
    return buf;
}

/* ---- a page ---- */

void sw_html_begin(struct sw_str *out)
{
    sw_str_printf(out,
                  "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n%s%s\">\n"
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                  "style-src 'unsafe-inline'\">\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                  "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
                  mark, sw_version());
}

void sw_html_end_head(const char *more_style, struct sw_str *out)
{
    sw_str_puts(out, " – Spillway</title>\n<style>\n");
    sw_str_puts(out, sw_html_style());
    sw_str_puts(out, more_style);
    sw_str_puts(out, "</style></head>\n<body>\n");
}

/* The only regular file that is replaced is a page. */
static sw_status check_output(const char *path, const char *flag)
{
    char head[MARK_WITHIN + 1] = "";
    int fd;
    size_t bytes;
    SW_TRY(sw_file_open(path, &fd, &bytes));
    const sw_status st =
        sw_file_read_at(fd, path, head, bytes < MARK_WITHIN ? bytes : MARK_WITHIN, 0);
    close(fd);
    SW_TRY(st);
    return strstr(head, mark)
               ? SW_OK
               : SW_FAIL(SW_E_ARG, "%s %s: the file exists and is not a report; name another file",
                         flag, path);
}

sw_status sw_html_open(const char *path, const char *flag, struct sw_output *out)
{
    const sw_status st = sw_output_open(path, true, out);
    if (st < 0) {
        return sw_fail_prefix(st == SW_E_IO ? SW_E_ARG : st, "%s", flag);
    }
    return out->kind == SW_OUTPUT_REPLACES ? check_output(path, flag) : SW_OK;
}
