// SPDX-License-Identifier: Apache-2.0
// json/number - numbers to text and back, independent of the locale. A program that embeds the
// library may have called setlocale, after which strtod and printf use a comma.

#include "json/private.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 10^i is exact in double for these i, and so is every integer below 2^53. Their product or
 * quotient is rounded once, correctly (Clinger 1990). */
static const double exact_power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                     1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                     1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
enum { MAX_EXACT_POWER = (int)SW_LEN(exact_power) - 1, MAX_EXACT_DIGITS = 15 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t skip_digits(const char *text, size_t len, size_t i)
{
    while (i < len && is_digit(text[i])) {
        i++;
    }
    return i;
}

size_t sw_json_number_len(const char *text, size_t len, bool *out_whole)
{
    size_t i = len > 0 && text[0] == '-';
    if (i == len || !is_digit(text[i])) {
        return 0;
    }
    i = text[i] == '0' ? i + 1 : skip_digits(text, len, i);
    const size_t integer_end = i;
    if (i + 1 < len && text[i] == '.' && is_digit(text[i + 1])) {
        i = skip_digits(text, len, i + 1);
    }
    if (i < len && (text[i] == 'e' || text[i] == 'E')) {
        size_t digits = i + 1;
        if (digits < len && (text[digits] == '+' || text[digits] == '-')) {
            digits++;
        }
        const size_t exponent_end = skip_digits(text, len, digits);
        if (exponent_end > digits) {
            i = exponent_end;
        }
    }
    *out_whole = i == integer_end;
    return i;
}

/* Converts few digits and a small exponent: nearly every number of a file. */
static bool convert_exact(const char *text, double *out)
{
    const bool negative = *text == '-';
    int64_t digits = 0;
    int n_digits = 0, exponent = 0;
    bool fraction = false;
    const char *c = text + negative;
    for (; is_digit(*c) || *c == '.'; c++) {
        if (*c == '.') {
            fraction = true;
            continue;
        }
        digits = digits * 10 + (*c - '0');
        n_digits += digits != 0;
        exponent -= fraction;
        if (n_digits > MAX_EXACT_DIGITS || exponent < -MAX_EXACT_POWER) {
            return false;
        }
    }
    if (*c != '\0') {
        c++;
        const int sign = *c == '-' ? -1 : 1;
        c += *c == '-' || *c == '+';
        int written = 0;
        for (; is_digit(*c); c++) {
            written = written * 10 + (*c - '0');
            if (written > 2 * MAX_EXACT_POWER) {
                return false;
            }
        }
        exponent += sign * written;
    }
    if (exponent < -MAX_EXACT_POWER || exponent > MAX_EXACT_POWER) {
        return false;
    }
    const double value = exponent < 0 ? (double)digits / exact_power[-exponent]
                                      : (double)digits * exact_power[exponent];
    *out = negative ? -value : value;
    return true;
}

double sw_json_number_f64(const char *text)
{
    double value = 0;
    if (convert_exact(text, &value)) {
        return value;
    }
    /* the C library returns its static "C" locale: no allocation, no failure */
    const locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    value = strtod_l(text, NULL, c_locale);
    freelocale(c_locale);
    return value;
}

bool sw_json_number_i64(const char *text, int64_t *out)
{
    const bool negative = *text == '-';
    int64_t value = 0;
    for (const char *c = text + negative; *c; c++) {
        /* negative, because INT64_MIN has no positive counterpart */
        if (!sw_mul_i64(value, 10, &value) || !sw_add_i64(value, -(*c - '0'), &value)) {
            return false;
        }
    }
    if (!negative && value == INT64_MIN) {
        return false;
    }
    *out = negative ? value : -value;
    return true;
}

int64_t sw_json_truncate(double value)
{
    if (isnan(value)) {
        return 0;
    }
    if (value >= 0x1p63) {
        return INT64_MAX;
    }
    return value < -0x1p63 ? INT64_MIN : (int64_t)value;
}

/* Rounds |value| to n significant digits: digits gets "d.ddd" without the point. Returns the
 * exponent of the first digit. */
static int to_digits(double value, int n, char digits[24])
{
    char text[40];
    snprintf(text, sizeof(text), "%.*e", n - 1, value);
    int n_digits = 0;
    const char *c = text;
    for (; *c != 'e'; c++) { /* skips the decimal separator, whatever it is */
        if (is_digit(*c)) {
            digits[n_digits++] = *c;
        }
    }
    digits[n_digits] = '\0';
    return (int)strtol(c + 1, NULL, 10);
}

static double from_digits(const char *digits, int exponent)
{
    char text[48];
    snprintf(text, sizeof(text), "%se%d", digits, exponent - (int)strlen(digits) + 1);
    return sw_json_number_f64(text);
}

/* The next larger decimal with as many digits. Never called with all nines: rounded up, those have
 * fewer digits. */
static void step_up(char *digits)
{
    char *last = digits + strlen(digits) - 1;
    while (*last == '9' && last > digits) {
        *last-- = '0';
    }
    *last = (char)(*last + 1);
}

/* The fewest digits that read back equal; returns the exponent of the first digit. A decimal of up
 * to 15 digits survives a round trip through a double. So if one names value, printing 15 digits
 * finds it (subnormal numbers carry fewer: they start at one). With 16 digits the nearest decimal
 * is the one, if any is. Exception: below a power of two doubles are closer together, and the
 * nearest decimal may miss while the next one up reads back equal. */
static int shortest_digits(double value, char digits[24])
{
    for (int n = value < DBL_MIN ? 1 : 15; n <= 17; n++) {
        const int exponent = to_digits(value, n, digits);
        if (from_digits(digits, exponent) == value) {
            return exponent;
        }
        if (n == 16 && strspn(digits, "9") < 16) {
            step_up(digits);
            if (from_digits(digits, exponent) == value) {
                return exponent;
            }
        }
    }
    return to_digits(value, 17, digits);
}

void sw_json_write_f64(double value, struct sw_str *out)
{
    if (!isfinite(value)) {
        sw_str_puts(out, "null");
        return;
    }
    if (signbit(value)) {
        sw_str_putc(out, '-');
        value = -value;
    }
    char digits[24] = "0";
    const int exponent = value == 0 ? 0 : shortest_digits(value, digits);
    int n = (int)strlen(digits);
    while (n > 1 && digits[n - 1] == '0') {
        n--;
    }

    if (exponent < -4 || exponent >= 16) {
        sw_str_putc(out, digits[0]);
        if (n > 1) {
            sw_str_putc(out, '.');
            sw_str_append(out, digits + 1, (size_t)(n - 1));
        }
        sw_str_printf(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    if (exponent < 0) {
        sw_str_puts(out, "0.");
        sw_str_append(out, "0000", (size_t)(-exponent - 1));
        sw_str_append(out, digits, (size_t)n);
        return;
    }
    for (int i = 0; i <= exponent; i++) {
        sw_str_putc(out, i < n ? digits[i] : '0');
    }
    sw_str_putc(out, '.');
    if (n > exponent + 1) {
        sw_str_append(out, digits + exponent + 1, (size_t)(n - exponent - 1));
    } else {
        sw_str_putc(out, '0'); /* so that it reads back as a float */
    }
}

/* ---- numbers that JSON does not have ---- */

static const struct {
    const char *name;
    double value;
} strange[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};

void sw_json_write_any_f64(double value, struct sw_str *out)
{
    if (isfinite(value)) {
        sw_json_write_f64(value, out);
        return;
    }
    const int i = isnan(value) ? 0 : value > 0 ? 1 : 2;
    sw_str_printf(out, "\"%s\"", strange[i].name);
}

bool sw_json_any_f64(const struct sw_json *value, double *out)
{
    if (value->type == SW_JSON_INT || value->type == SW_JSON_FLOAT) {
        *out = value->number;
        return true;
    }
    for (size_t i = 0; i < SW_LEN(strange) && value->type == SW_JSON_STRING; i++) {
        if (strcmp(strange[i].name, value->string) == 0) {
            *out = strange[i].value;
            return true;
        }
    }
    return false;
}
