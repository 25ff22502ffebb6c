// SPDX-License-Identifier: Apache-2.0
// The normalizer steps. Lower case follows the reference: it maps each code point alone, even a
// final sigma. Only U+0130 becomes two code points.
#include "token/normalize.h"

#include "text/text.h"

#include <string.h>

static const char *const form_names[] = {
    [SW_NORMAL_NFC] = "NFC",
    [SW_NORMAL_NFD] = "NFD",
    [SW_NORMAL_NFKC] = "NFKC",
    [SW_NORMAL_NFKD] = "NFKD",
    [SW_NORMAL_LOWER] = "Lowercase",
    [SW_NORMAL_STRIP_ACCENTS] = "StripAccents",
    [SW_NORMAL_BERT] = "BertNormalizer",
    [SW_NORMAL_PRECOMPILED] = "Precompiled",
    [SW_NORMAL_STRIP] = "Strip",
    [SW_NORMAL_REPLACE] = "Replace",
    [SW_NORMAL_PREPEND] = "Prepend",
    [SW_NORMAL_NMT] = "Nmt",
};

void sw_normalizer_fini(struct sw_normalizer *normalizer)
{
    for (int i = 0; i < normalizer->n_steps; ++i) {
        struct sw_normal_step *step = &normalizer->steps[i];
        sw_regex_close(step->regex);
        sw_free(step->literal);
        sw_free(step->text);
        sw_charsmap_fini(&step->charsmap);
    }
    *normalizer = (struct sw_normalizer){0};
}

sw_status sw_normalizer_add(struct sw_normalizer *normalizer, enum sw_normal_form form,
                            struct sw_normal_step **out)
{
    if (normalizer->n_steps == SW_NORMALIZER_MAX) {
        return SW_FAIL(SW_E_UNSUP, "more than %d normalizers", SW_NORMALIZER_MAX);
    }
    *out = &normalizer->steps[normalizer->n_steps++];
    **out = (struct sw_normal_step){.form = form};
    return SW_OK;
}

bool sw_normal_form_by_name(const char *name, enum sw_normal_form *out)
{
    for (size_t i = 0; i <= SW_NORMAL_STRIP_ACCENTS; ++i) {
        if (strcmp(name, form_names[i]) == 0) {
            *out = (enum sw_normal_form)i;
            return true;
        }
    }
    return false;
}

/* Fast path: no normal form changes ASCII. */
static bool is_ascii(const char *text, size_t len)
{
    unsigned char any = 0;
    for (size_t i = 0; i < len; ++i) {
        any |= (unsigned char)text[i];
    }
    return any < 0x80;
}

static void apply_strip(const struct sw_normal_step *step, const char *text, size_t len,
                        struct sw_str *out)
{
    size_t first = 0, end = 0;
    bool begun = !step->left;
    for (size_t pos = 0; pos < len;) {
        const size_t at = pos;
        const bool space = sw_char_is_space(sw_utf8_step(text, len, &pos));
        if (!begun && !space) {
            first = at;
            begun = true;
        }
        end = !space || !step->right ? pos : end;
    }
    if (begun && end > first) {
        sw_str_append(out, text + first, end - first);
    }
}

/* The lists are those of SentencePiece's rule nmt; a NUL stays. */
static void apply_nmt(const char *text, size_t len, struct sw_str *out)
{
    for (size_t pos = 0; pos < len;) {
        const size_t at = pos;
        const int32_t c = sw_utf8_step(text, len, &pos);
        const bool gone = (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) ||
                          c == 0x7F || c == 0x8F || c == 0x9F;
        const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                           c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
        if (space) {
            sw_str_putc(out, ' ');
        } else if (!gone) {
            sw_str_append(out, text + at, pos - at);
        }
    }
}

/* Finds the next match; first = end = len: no match. */
static sw_status find_match(const struct sw_normal_step *step, const char *text, size_t len,
                            size_t from, size_t *first, size_t *end)
{
    if (step->regex) {
        return sw_regex_find(step->regex, text, len, from, first, end);
    }
    const char *at = memmem(text + from, len - from, step->literal, step->literal_len);
    *first = at ? (size_t)(at - text) : len;
    *end = at ? *first + step->literal_len : len;
    return SW_OK;
}

static sw_status apply_replace(const struct sw_normal_step *step, const char *text, size_t len,
                               size_t most, struct sw_str *out)
{
    for (size_t at = 0; at < len && out->len <= most;) {
        size_t first, end;
        SW_TRY(find_match(step, text, len, at, &first, &end));
        sw_str_append(out, text + at, first - at);
        if (first < end) {
            sw_str_append(out, step->text, step->text_len);
        }
        at = end;
    }
    return SW_OK;
}

static bool needs_library(const struct sw_normal_step *step)
{
    return step->form < SW_NORMAL_STRIP;
}

#if SW_HAVE_UTF8PROC

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
            sw_str_append(out, bytes, sw_utf8_put(sw_char_lower(code_point), bytes));
        }
    }
    return SW_OK;
}

sw_status sw_normalizer_check(const struct sw_normalizer *normalizer)
{
    (void)normalizer;
    return SW_OK;
}

static void put_char(int32_t code_point, struct sw_str *out)
{
    char bytes[4];
    sw_str_append(out, bytes, sw_utf8_put(code_point, bytes));
}

static void leave_out(bool (*what)(int32_t code_point), const char *text, size_t len,
                      struct sw_str *out)
{
    for (size_t pos = 0; pos < len;) {
        const size_t at = pos;
        if (!what(sw_utf8_step(text, len, &pos))) {
            sw_str_append(out, text + at, pos - at);
        }
    }
}

/* Removes control characters, turns white space into spaces and isolates ideographs. */
static void clean(const struct sw_normal_step *step, const char *text, size_t len,
                  struct sw_str *out)
{
    for (size_t pos = 0; pos < len;) {
        const int32_t c = sw_utf8_step(text, len, &pos);
        const bool plain_space = c == '\t' || c == '\n' || c == '\r';
        if (step->clean && (c == 0 || c == 0xFFFD || (!plain_space && sw_char_is_control(c)))) {
            continue;
        }
        const bool apart = step->ideographs && sw_char_is_ideograph(c);
        if (apart) {
            sw_str_putc(out, ' ');
        }
        put_char(step->clean && sw_char_is_space(c) ? ' ' : c, out);
        if (apart) {
            sw_str_putc(out, ' ');
        }
    }
}

static sw_status apply_bert(const struct sw_normal_step *step, const char *text, size_t len,
                            struct sw_str *out)
{
    sw_status st = SW_OK;
    struct sw_str cleaned = {0}, parts = {0};
    clean(step, text, len, &cleaned);
    if (step->accents) {
        SW_TRY_OR(done,
                  sw_unicode_form(SW_UNICODE_NFD, sw_str_text(&cleaned), cleaned.len, &parts));
        sw_str_clear(&cleaned);
        leave_out(sw_char_is_nonspacing_mark, sw_str_text(&parts), parts.len, &cleaned);
    }
    if (step->lower) {
        SW_TRY_OR(done, apply_lower(sw_str_text(&cleaned), cleaned.len, out));
    } else {
        sw_str_append(out, sw_str_text(&cleaned), cleaned.len);
    }
    out->failed |= cleaned.failed || parts.failed;
done:
    sw_str_fini(&cleaned);
    sw_str_fini(&parts);
    return st;
}

/* As in the reference, a short cluster is replaced as a whole by the shortest of its prefixes in
 * the map. Otherwise each code point is mapped alone. */
static void apply_precompiled(const struct sw_normal_step *step, const char *text, size_t len,
                              size_t most, struct sw_str *out)
{
    enum { SHORT_CLUSTER = 6 };
    for (size_t at = 0; at < len && out->len <= most;) {
        const size_t end = sw_unicode_cluster(text, len, at);
        struct sw_charsmap_match match = {0, ""};
        if (end - at < SHORT_CLUSTER) {
            match = sw_charsmap_find(&step->charsmap, text + at, end - at, false);
        }
        if (match.len > 0) {
            sw_str_puts(out, match.text);
            at = end;
        }
        while (at < end && out->len <= most) {
            const size_t first = at;
            sw_utf8_step(text, end, &at);
            match = sw_charsmap_find(&step->charsmap, text + first, at - first, false);
            if (match.len > 0) {
                sw_str_puts(out, match.text);
            } else {
                sw_str_append(out, text + first, at - first);
            }
        }
    }
}

static sw_status apply_with_library(const struct sw_normal_step *step, const char *text, size_t len,
                                    size_t most, struct sw_str *out)
{
    switch (step->form) {
    case SW_NORMAL_LOWER:
        return apply_lower(text, len, out);
    case SW_NORMAL_STRIP_ACCENTS:
        leave_out(sw_char_is_mark, text, len, out);
        return SW_OK;
    case SW_NORMAL_BERT:
        return apply_bert(step, text, len, out);
    case SW_NORMAL_PRECOMPILED:
        apply_precompiled(step, text, len, most, out);
        return SW_OK;
    default:
        if (is_ascii(text, len)) {
            sw_str_append(out, text, len);
            return SW_OK;
        }
        return sw_unicode_form((enum sw_unicode_form)step->form, text, len, out);
    }
}

#else

sw_status sw_normalizer_check(const struct sw_normalizer *normalizer)
{
    for (int i = 0; i < normalizer->n_steps; ++i) {
        if (needs_library(&normalizer->steps[i])) {
            return SW_FAIL(SW_E_UNSUP,
                           "this build has no utf8proc, which the normalizer %s needs: install "
                           "libutf8proc-dev and build again",
                           form_names[normalizer->steps[i].form]);
        }
    }
    return SW_OK;
}

static sw_status apply_with_library(const struct sw_normal_step *step, const char *text, size_t len,
                                    size_t most, struct sw_str *out)
{
    (void)text, (void)len, (void)most, (void)out, (void)is_ascii;
    return SW_FAIL(SW_E_UNSUP, "this build has no utf8proc for the normalizer %s",
                   form_names[step->form]);
}

#endif

/* A step may stop early beyond `most` bytes. */
static sw_status apply_step(const struct sw_normal_step *step, const char *text, size_t len,
                            size_t most, struct sw_str *out)
{
    sw_str_clear(out);
    if (needs_library(step)) {
        SW_TRY(apply_with_library(step, text, len, most, out));
    } else if (step->form == SW_NORMAL_STRIP) {
        apply_strip(step, text, len, out);
    } else if (step->form == SW_NORMAL_NMT) {
        apply_nmt(text, len, out);
    } else if (step->form == SW_NORMAL_REPLACE) {
        SW_TRY(apply_replace(step, text, len, most, out));
    } else {
        sw_str_append(out, step->text, len > 0 ? step->text_len : 0);
        sw_str_append(out, text, len);
    }
    return out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for normalised text") : SW_OK;
}

sw_status sw_normalizer_apply(const struct sw_normalizer *normalizer, const char *text, size_t len,
                              struct sw_str *out)
{
    sw_status st = SW_OK;
    struct sw_str before = {0};
    const size_t n_given = len, most = sw_normal_most(len);
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
        SW_TRY_OR(done, apply_step(&normalizer->steps[i], text, len, most, out));
        if (out->len > most) {
            st = SW_FAIL(SW_E_FORMAT,
                         "the normalizer %s makes more than %zu bytes of a text of %zu, wanted at "
                         "most %d times as many and %d",
                         form_names[normalizer->steps[i].form], most, n_given, SW_NORMAL_MOST_TIMES,
                         SW_NORMAL_MOST_MORE);
            goto done;
        }
    }
    if (out->failed) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for normalised text");
    }
done:
    sw_str_fini(&before);
    return st;
}
