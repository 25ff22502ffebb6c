// SPDX-License-Identifier: Apache-2.0
// utf8proc: normal forms and lower case. The only file that knows its header.
//
// Lower case is the reference's: code point by code point, a final sigma no exception, U+0130 the
// one that becomes two. utf8proc 2.6 knows Unicode 13; the pairs of Unicode 14 to 17 are listed
// here.
#include "data/normalize.h"

#include "data/utf8.h"

#include <string.h>

static const char *const form_names[] = {
    [SW_NORMAL_NFC] = "NFC",   [SW_NORMAL_NFD] = "NFD",         [SW_NORMAL_NFKC] = "NFKC",
    [SW_NORMAL_NFKD] = "NFKD", [SW_NORMAL_LOWER] = "Lowercase",
};

bool sw_normal_form_by_name(const char *name, enum sw_normal_form *out)
{
    for (size_t i = 0; i < SW_LEN(form_names); ++i) {
        if (strcmp(name, form_names[i]) == 0) {
            *out = (enum sw_normal_form)i;
            return true;
        }
    }
    return false;
}

#if SW_HAVE_UTF8PROC

#include <utf8proc.h>

/* Capitals of Unicode 14 to 17: first, last, what is added to reach the small letter. */
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

static int32_t lower(int32_t code_point)
{
    for (size_t i = 0; i < SW_LEN(newer_capitals) && code_point >= 0x1C89; ++i) {
        if (code_point >= newer_capitals[i].first && code_point <= newer_capitals[i].last) {
            return code_point + newer_capitals[i].add;
        }
    }
    return utf8proc_tolower(code_point);
}

static sw_status apply_lower(const char *text, size_t len, struct sw_str *out)
{
    size_t pos = 0;
    while (pos < len) {
        const int32_t code_point = sw_utf8_next(text, len, &pos);
        if (code_point < 0) {
            return SW_FAIL(SW_E_FORMAT, "lower case: byte offset %zu is not UTF-8", pos);
        }
        char bytes[4];
        if (code_point == 0x130) {
            sw_str_puts(out, "i\xCC\x87");
        } else {
            sw_str_append(out, bytes, sw_utf8_put(lower(code_point), bytes));
        }
    }
    return SW_OK;
}

static sw_status apply_form(enum sw_normal_form form, const char *text, size_t len,
                            struct sw_str *out)
{
    static const utf8proc_option_t options[] = {
        [SW_NORMAL_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [SW_NORMAL_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [SW_NORMAL_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [SW_NORMAL_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *)text;
    const utf8proc_ssize_t len_signed = (utf8proc_ssize_t)len;
    utf8proc_ssize_t n = utf8proc_decompose(bytes, len_signed, NULL, 0, options[form]);
    if (n >= 0) { /* code points first, then their bytes in the same memory, with a NUL */
        utf8proc_int32_t *mapped = sw_alloc("normal form", ((size_t)n + 1) * sizeof(*mapped));
        SW_TRY_ALLOC(mapped, "normalised text");
        n = utf8proc_decompose(bytes, len_signed, mapped, n, options[form]);
        n = n < 0 ? n : utf8proc_reencode(mapped, n, options[form]);
        if (n >= 0) {
            sw_str_append(out, (const char *)mapped, (size_t)n);
        }
        sw_free(mapped);
    }
    if (n < 0) {
        return SW_FAIL(n == UTF8PROC_ERROR_NOMEM ? SW_E_NOMEM : SW_E_FORMAT, "%s: %s",
                       form_names[form], utf8proc_errmsg(n));
    }
    return SW_OK;
}

/* Most text is ASCII, which every normal form leaves alone. */
static bool is_ascii(const char *text, size_t len)
{
    unsigned char any = 0;
    for (size_t i = 0; i < len; ++i) {
        any |= (unsigned char)text[i];
    }
    return any < 0x80;
}

sw_status sw_normalizer_check(const struct sw_normalizer *normalizer)
{
    (void)normalizer;
    return SW_OK;
}

static sw_status apply_step(enum sw_normal_form form, const char *text, size_t len,
                            struct sw_str *out)
{
    sw_str_clear(out);
    if (form == SW_NORMAL_LOWER) {
        SW_TRY(apply_lower(text, len, out));
    } else if (is_ascii(text, len)) {
        sw_str_append(out, text, len);
    } else {
        SW_TRY(apply_form(form, text, len, out));
    }
    if (out->failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for normalised text");
    }
    return SW_OK;
}

#else

sw_status sw_normalizer_check(const struct sw_normalizer *normalizer)
{
    if (normalizer->n_steps > 0) {
        return SW_FAIL(SW_E_UNSUP,
                       "this build has no utf8proc, which the normalizer %s needs: install "
                       "libutf8proc-dev and build again",
                       form_names[normalizer->steps[0]]);
    }
    return SW_OK;
}

static sw_status apply_step(enum sw_normal_form form, const char *text, size_t len,
                            struct sw_str *out)
{
    (void)text, (void)len, (void)out;
    return SW_FAIL(SW_E_UNSUP, "this build has no utf8proc for the normalizer %s",
                   form_names[form]);
}

#endif

sw_status sw_normalizer_apply(const struct sw_normalizer *normalizer, const char *text, size_t len,
                              struct sw_str *out)
{
    sw_status st = SW_OK;
    struct sw_str before = {0};
    if (normalizer->n_steps == 0) {
        sw_str_clear(out);
        sw_str_append(out, text, len);
    }
    for (int i = 0; i < normalizer->n_steps; ++i) {
        if (i > 0) { /* the result so far is the next step's input */
            const struct sw_str swap = before;
            before = *out;
            *out = swap;
            text = sw_str_text(&before);
            len = before.len;
        }
        SW_TRY_OR(done, apply_step(normalizer->steps[i], text, len, out));
    }
    if (out->failed) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for normalised text");
    }
done:
    sw_str_fini(&before);
    return st;
}
