// SPDX-License-Identifier: Apache-2.0
// utf8proc: categories, lower case, normal forms, clusters. The only file that knows its header.
//
// utf8proc 2.6 knows Unicode 13; the pairs of capital and small letters of Unicode 14 to 17 are
// listed here.
#include "text/text.h"

struct range {
    int32_t first, last;
};

static bool is_in(const struct range *ranges, size_t n, int32_t code_point)
{
    for (size_t i = 0; i < n; ++i) {
        if (code_point >= ranges[i].first && code_point <= ranges[i].last) {
            return true;
        }
    }
    return false;
}

bool sw_char_is_space(int32_t code_point)
{
    static const struct range spaces[] = {
        {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
        {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
    };
    return is_in(spaces, SW_LEN(spaces), code_point);
}

bool sw_char_is_ideograph(int32_t code_point)
{
    static const struct range ideographs[] = {
        {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
        {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F},
    };
    return code_point >= 0x3400 && is_in(ideographs, SW_LEN(ideographs), code_point);
}

#if SW_HAVE_UTF8PROC

#include <string.h>
#include <utf8proc.h>

static bool is_ascii_punctuation(int32_t c)
{
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
           (c >= 123 && c <= 126);
}

bool sw_char_is_punctuation(int32_t code_point)
{
    const utf8proc_category_t category = utf8proc_category(code_point);
    return code_point < 128 ? is_ascii_punctuation(code_point)
                            : category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool sw_char_is_mark(int32_t code_point)
{
    const utf8proc_category_t category = utf8proc_category(code_point);
    return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool sw_char_is_nonspacing_mark(int32_t code_point)
{
    return utf8proc_category(code_point) == UTF8PROC_CATEGORY_MN;
}

bool sw_char_is_control(int32_t code_point)
{
    const utf8proc_category_t category = utf8proc_category(code_point);
    return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_CO;
}

bool sw_char_is_word(int32_t code_point)
{
    const utf8proc_category_t category = utf8proc_category(code_point);
    return code_point == '_' ||
           (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
           (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

bool sw_char_is_case_ignorable(int32_t code_point)
{
    static const struct range within[] = {
        {'\'', '\''},     {'.', '.'},       {':', ':'},       {0xB7, 0xB7},
        {0x387, 0x387},   {0x55F, 0x55F},   {0x5F4, 0x5F4},   {0x2018, 0x2019},
        {0x2024, 0x2024}, {0x2027, 0x2027}, {0xFE13, 0xFE13}, {0xFE52, 0xFE52},
        {0xFE55, 0xFE55}, {0xFF07, 0xFF07}, {0xFF0E, 0xFF0E}, {0xFF1A, 0xFF1A}};
    switch (utf8proc_category(code_point)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return is_in(within, SW_LEN(within), code_point);
    }
}

/* Capitals of Unicode 14 to 17: first, last, and the difference to the small letter. */
static const struct {
    int32_t first, last, add;
} newer_capitals[] = {
    {0x1C89, 0x1C89, 1},      {0x2C2F, 0x2C2F, 48},   {0xA7C0, 0xA7C0, 1},
    {0xA7CB, 0xA7CB, -42343}, {0xA7CC, 0xA7CC, 1},    {0xA7CE, 0xA7CE, 1},
    {0xA7D0, 0xA7D0, 1},      {0xA7D2, 0xA7D2, 1},    {0xA7D4, 0xA7D4, 1},
    {0xA7D6, 0xA7D6, 1},      {0xA7D8, 0xA7D8, 1},    {0xA7DA, 0xA7DA, 1},
    {0xA7DC, 0xA7DC, -42561}, {0x10570, 0x1057A, 39}, {0x1057C, 0x1058A, 39},
    {0x1058C, 0x10592, 39},   {0x10594, 0x10595, 39}, {0x10D50, 0x10D65, 32},
    {0x16EA0, 0x16EB8, 27},
};

int32_t sw_char_lower(int32_t code_point)
{
    for (size_t i = 0; i < SW_LEN(newer_capitals) && code_point >= 0x1C89; ++i) {
        if (code_point >= newer_capitals[i].first && code_point <= newer_capitals[i].last) {
            return code_point + newer_capitals[i].add;
        }
    }
    return utf8proc_tolower(code_point);
}

int32_t sw_char_upper(int32_t code_point)
{
    return utf8proc_toupper(code_point);
}

int32_t sw_char_title(int32_t code_point)
{
    return utf8proc_totitle(code_point);
}

bool sw_char_is_cased(int32_t code_point)
{
    static const struct range others[] = {{0xAA, 0xAA},      {0xBA, 0xBA},       {0x2160, 0x217F},
                                          {0x24B6, 0x24E9},  {0x1F130, 0x1F149}, {0x1F150, 0x1F169},
                                          {0x1F170, 0x1F189}};
    switch (utf8proc_category(code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
        return true;
    default:
        return is_in(others, SW_LEN(others), code_point) || sw_char_lower(code_point) != code_point;
    }
}

static int combining_class(int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/* Insertion sort, for few marks. */
static void sort_few(int32_t *marks, size_t n)
{
    for (size_t i = 1; i < n; ++i) {
        const int32_t mark = marks[i];
        size_t at = i;
        while (at > 0 && combining_class(marks[at - 1]) > combining_class(mark)) {
            marks[at] = marks[at - 1];
            at--;
        }
        marks[at] = mark;
    }
}

/* Counting sort, for many marks. */
static sw_status sort_many(int32_t *marks, size_t n)
{
    size_t begin[257] = {0};
    int32_t *sorted = sw_alloc("normal form", n * sizeof(*sorted));
    SW_TRY_ALLOC(sorted, "normalised text");
    for (size_t i = 0; i < n; ++i) {
        begin[combining_class(marks[i]) + 1]++;
    }
    for (int i = 0; i < 256; ++i) {
        begin[i + 1] += begin[i];
    }
    for (size_t i = 0; i < n; ++i) {
        sorted[begin[combining_class(marks[i])]++] = marks[i];
    }
    memcpy(marks, sorted, n * sizeof(*marks));
    sw_free(sorted);
    return SW_OK;
}

/* Puts runs of marks in canonical order. The library takes quadratic time for this. */
static sw_status order_marks(int32_t *chars, size_t n)
{
    enum { FEW = 32 };
    for (size_t first = 0, end; first < n; first = end) {
        end = first;
        while (end < n && combining_class(chars[end]) > 0) {
            end++;
        }
        if (end - first > FEW) {
            SW_TRY(sort_many(chars + first, end - first));
        } else {
            sort_few(chars + first, end - first);
        }
        end += end == first;
    }
    return SW_OK;
}

/* Decomposes into out [most]. Returns the number of characters, or an error of the library. */
static utf8proc_ssize_t decompose(const char *text, size_t len, utf8proc_option_t options,
                                  int32_t *out, utf8proc_ssize_t most)
{
    int boundary = 0; /* cluster boundary: unused */
    utf8proc_ssize_t n = 0;
    for (size_t pos = 0; pos < len && n >= 0;) {
        const int32_t c = sw_utf8_step(text, len, &pos);
        const utf8proc_ssize_t more =
            utf8proc_decompose_char(c, out + n, most - n, options, &boundary);
        n = more < 0 ? more : n + more;
    }
    return n;
}

sw_status sw_unicode_form(enum sw_unicode_form form, const char *text, size_t len,
                          struct sw_str *out)
{
    static const utf8proc_option_t options[] = {
        [SW_UNICODE_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [SW_UNICODE_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [SW_UNICODE_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [SW_UNICODE_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *)text;
    const utf8proc_ssize_t len_signed = (utf8proc_ssize_t)len;
    utf8proc_ssize_t n = utf8proc_decompose(bytes, len_signed, NULL, 0, options[form]);
    if (n >= 0) { /* code points first, then their bytes in the same memory, with a NUL */
        utf8proc_int32_t *mapped = sw_alloc("normal form", ((size_t)n + 1) * sizeof(*mapped));
        SW_TRY_ALLOC(mapped, "normalised text");
        n = decompose(text, len, options[form], mapped, n);
        const sw_status st = n < 0 ? SW_OK : order_marks(mapped, (size_t)n);
        n = n < 0 || st < 0 ? n : utf8proc_reencode(mapped, n, options[form]);
        if (st < 0) {
            sw_free(mapped);
            return st;
        }
        if (n >= 0) {
            sw_str_append(out, (const char *)mapped, (size_t)n);
        }
        sw_free(mapped);
    }
    if (n < 0) {
        return SW_FAIL(n == UTF8PROC_ERROR_NOMEM ? SW_E_NOMEM : SW_E_FORMAT, "normal form: %s",
                       utf8proc_errmsg(n));
    }
    return SW_OK;
}

size_t sw_unicode_cluster(const char *text, size_t len, size_t at)
{
    utf8proc_int32_t state = 0;
    size_t pos = at;
    int32_t before = sw_utf8_next(text, len, &pos);
    for (size_t here = pos; pos < len; here = pos) {
        const int32_t c = sw_utf8_next(text, len, &pos);
        if (c < 0 || utf8proc_grapheme_break_stateful(before, c, &state)) {
            return here;
        }
        before = c;
    }
    return len;
}

#else

bool sw_char_is_punctuation(int32_t code_point)
{
    (void)code_point;
    return false;
}

bool sw_char_is_mark(int32_t code_point)
{
    (void)code_point;
    return false;
}

bool sw_char_is_nonspacing_mark(int32_t code_point)
{
    (void)code_point;
    return false;
}

bool sw_char_is_control(int32_t code_point)
{
    (void)code_point;
    return false;
}

bool sw_char_is_word(int32_t c)
{
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool sw_char_is_case_ignorable(int32_t code_point)
{
    (void)code_point;
    return false;
}

/* Without utf8proc: ASCII only. */
int32_t sw_char_lower(int32_t code_point)
{
    return code_point >= 'A' && code_point <= 'Z' ? code_point + 'a' - 'A' : code_point;
}

int32_t sw_char_upper(int32_t code_point)
{
    return code_point >= 'a' && code_point <= 'z' ? code_point + 'A' - 'a' : code_point;
}

int32_t sw_char_title(int32_t code_point)
{
    return sw_char_upper(code_point);
}

bool sw_char_is_cased(int32_t code_point)
{
    return (code_point | 0x20) >= 'a' && (code_point | 0x20) <= 'z';
}

sw_status sw_unicode_form(enum sw_unicode_form form, const char *text, size_t len,
                          struct sw_str *out)
{
    (void)form, (void)text, (void)len, (void)out;
    return SW_FAIL(SW_E_UNSUP, "this build has no utf8proc: install libutf8proc-dev");
}

size_t sw_unicode_cluster(const char *text, size_t len, size_t at)
{
    (void)text, (void)at;
    return len;
}

#endif
