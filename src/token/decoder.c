// SPDX-License-Identifier: Apache-2.0
// Each step makes a new list from the previous one. A list is one string plus the ends of its
// texts.
#include "token/decoder.h"

#include "text/text.h"

#include <string.h>

void sw_decoder_fini(struct sw_decoder *decoder)
{
    for (int i = 0; i < decoder->n_steps; ++i) {
        sw_regex_close(decoder->steps[i].regex);
        sw_free(decoder->steps[i].pattern);
        sw_free(decoder->steps[i].text);
    }
    *decoder = (struct sw_decoder){0};
}

sw_status sw_decoder_add(struct sw_decoder *decoder, enum sw_decode_kind kind,
                         struct sw_decode_step **out)
{
    if (decoder->n_steps == SW_DECODER_MAX) {
        return SW_FAIL(SW_E_UNSUP, "more than %d decoders", SW_DECODER_MAX);
    }
    *out = &decoder->steps[decoder->n_steps++];
    **out = (struct sw_decode_step){.kind = kind};
    return SW_OK;
}

/* ---- lists ---- */

void sw_texts_fini(struct sw_texts *texts)
{
    sw_str_fini(&texts->bytes);
    sw_free(texts->ends);
    *texts = (struct sw_texts){0};
}

sw_status sw_texts_end(struct sw_texts *texts)
{
    if (texts->n == texts->cap) {
        const size_t cap = texts->cap ? 2 * texts->cap : 64;
        size_t *ends = sw_realloc("texts", texts->ends, cap * sizeof(*ends));
        SW_TRY_ALLOC(ends, "the text of tokens");
        texts->ends = ends;
        texts->cap = cap;
    }
    texts->ends[texts->n++] = texts->bytes.len;
    return texts->bytes.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for the text of tokens")
                               : SW_OK;
}

sw_status sw_texts_add(struct sw_texts *texts, const char *text, size_t len)
{
    sw_str_append(&texts->bytes, text, len);
    return sw_texts_end(texts);
}

struct part {
    const char *text;
    size_t len;
};

static struct part part_of(const struct sw_texts *texts, size_t i)
{
    const size_t first = i > 0 ? texts->ends[i - 1] : 0;
    return (struct part){sw_str_text(&texts->bytes) + first, texts->ends[i] - first};
}

static bool begins_with(struct part part, const char *text)
{
    const size_t n = strlen(text);
    return part.len >= n && memcmp(part.text, text, n) == 0;
}

static bool ends_with(struct part part, const char *text)
{
    const size_t n = strlen(text);
    return part.len >= n && memcmp(part.text + part.len - n, text, n) == 0;
}

/* ---- steps: each appends one token to `out`; two look at several tokens ---- */

/* Stops early once `out` exceeds `most` bytes. */
static void replace_all(struct part in, const char *what, const char *by, size_t most,
                        struct sw_str *out)
{
    const size_t n = strlen(what);
    while (in.len > 0 && out->len <= most) {
        const char *at = memmem(in.text, in.len, what, n);
        const size_t plain = at ? (size_t)(at - in.text) : in.len;
        sw_str_append(out, in.text, plain);
        if (at) {
            sw_str_puts(out, by);
        }
        in.text += plain + (at ? n : 0);
        in.len -= plain + (at ? n : 0);
    }
}

static void replace_in(struct sw_str *text, const char *what, const char *by)
{
    struct sw_str next = {0};
    replace_all((struct part){sw_str_text(text), text->len}, what, by, SIZE_MAX, &next);
    next.failed |= text->failed;
    sw_str_fini(text);
    *text = next;
}

void sw_clean_up_spaces(struct sw_str *text)
{
    static const char *const pairs[][2] = {
        {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
        {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (size_t i = 0; i < SW_LEN(pairs); ++i) {
        replace_in(text, pairs[i][0], pairs[i][1]);
    }
}

static void put_wordpiece(const struct sw_decode_step *step, struct part in, bool first,
                          struct sw_str *out)
{
    struct sw_str text = {0};
    if (!first && begins_with(in, step->pattern)) {
        const size_t n = strlen(step->pattern);
        in = (struct part){in.text + n, in.len - n};
    } else if (!first) {
        sw_str_putc(&text, ' ');
    }
    sw_str_append(&text, in.text, in.len);
    if (step->clean) {
        sw_clean_up_spaces(&text);
        replace_in(&text, " do not", " don't");
    }
    sw_str_append(out, sw_str_text(&text), text.len);
    out->failed |= text.failed;
    sw_str_fini(&text);
}

static sw_status put_replaced(const struct sw_decode_step *step, struct part in, size_t most,
                              struct sw_str *out)
{
    if (!step->regex) {
        replace_all(in, step->pattern, step->text, most, out);
        return SW_OK;
    }
    for (size_t at = 0; at < in.len && out->len <= most;) {
        size_t first, end;
        SW_TRY(sw_regex_find(step->regex, in.text, in.len, at, &first, &end));
        sw_str_append(out, in.text + at, first - at);
        if (first < end) {
            sw_str_puts(out, step->text);
        }
        at = end;
    }
    return SW_OK;
}

static void put_stripped(const struct sw_decode_step *step, struct part in, struct sw_str *out)
{
    const size_t n = strlen(step->pattern);
    for (int64_t i = 0; i < step->left && begins_with(in, step->pattern); ++i) {
        in = (struct part){in.text + n, in.len - n};
    }
    for (int64_t i = 0; i < step->right && ends_with(in, step->pattern); ++i) {
        in.len -= n;
    }
    sw_str_append(out, in.text, in.len);
}

static sw_status put(const struct sw_decode_step *step, struct part in, bool first, bool last,
                     size_t most, struct sw_str *out)
{
    switch (step->kind) {
    case SW_DECODE_WORDPIECE:
        put_wordpiece(step, in, first, out);
        break;
    case SW_DECODE_METASPACE:
        replace_all(in, step->pattern, first && !step->keep_first ? "" : " ", most, out);
        break;
    case SW_DECODE_REPLACE:
        return put_replaced(step, in, most, out);
    case SW_DECODE_STRIP:
        put_stripped(step, in, out);
        break;
    case SW_DECODE_SUFFIX:
        replace_all(in, step->pattern, last ? "" : " ", most, out);
        break;
    case SW_DECODE_FUSE:
    case SW_DECODE_BYTE_FALLBACK:
        sw_str_append(out, in.text, in.len);
        break;
    }
    return SW_OK;
}

/* The byte of a token <0x00> to <0xFF>; -1: not a byte token. */
static int byte_of(struct part in)
{
    static const char digits[] = "0123456789ABCDEF";
    static const char small[] = "0123456789abcdef";
    int value = 0;
    if (in.len != 6 || !begins_with(in, "<0x") || in.text[5] != '>') {
        return -1;
    }
    for (int i = 3; i < 5; ++i) {
        const char *big = in.text[i] ? strchr(digits, in.text[i]) : NULL;
        const char *little = in.text[i] ? strchr(small, in.text[i]) : NULL;
        if (!big && !little) {
            return -1;
        }
        value = value * 16 + (int)(big ? big - digits : little - small);
    }
    return value;
}

/* Ends a run of bytes. It becomes text, or one U+FFFD per byte if it is not UTF-8. */
static sw_status end_bytes(struct sw_str *run, struct sw_texts *out)
{
    if (run->len == 0) {
        return SW_OK;
    }
    if (sw_utf8_valid_len(sw_str_text(run), run->len) == run->len) {
        SW_TRY(sw_texts_add(out, sw_str_text(run), run->len));
    } else {
        for (size_t i = 0; i < run->len; ++i) {
            SW_TRY(sw_texts_add(out, "\xEF\xBF\xBD", 3));
        }
    }
    sw_str_clear(run);
    return SW_OK;
}

static sw_status join_bytes(const struct sw_texts *in, struct sw_texts *out)
{
    sw_status st;
    struct sw_str run = {0};
    for (size_t i = 0; i < in->n; ++i) {
        const struct part part = part_of(in, i);
        const int byte = byte_of(part);
        if (byte >= 0) {
            sw_str_putc(&run, (char)byte);
            continue;
        }
        SW_TRY_OR(done, end_bytes(&run, out));
        SW_TRY_OR(done, sw_texts_add(out, part.text, part.len));
    }
    SW_TRY_OR(done, end_bytes(&run, out));
    if (run.failed) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the text of tokens");
    }
done:
    sw_str_fini(&run);
    return st;
}

static sw_status apply(const struct sw_decode_step *step, const struct sw_texts *in, size_t most,
                       struct sw_texts *out)
{
    if (step->kind == SW_DECODE_BYTE_FALLBACK) {
        return join_bytes(in, out);
    }
    for (size_t i = 0; i < in->n; ++i) {
        SW_TRY(put(step, part_of(in, i), i == 0, i + 1 == in->n, most, &out->bytes));
        if (out->bytes.len > most) {
            return SW_FAIL(SW_E_FORMAT,
                           "a decoder makes more than %zu bytes of tokens, wanted at most %d times "
                           "theirs and %d",
                           most, SW_DECODED_MOST_TIMES, SW_DECODED_MOST_MORE);
        }
        if (step->kind != SW_DECODE_FUSE || i + 1 == in->n) {
            SW_TRY(sw_texts_end(out));
        }
    }
    return SW_OK;
}

sw_status sw_decoder_apply(const struct sw_decoder *decoder, struct sw_texts *tokens)
{
    const size_t most = SW_DECODED_MOST_TIMES * tokens->bytes.len + SW_DECODED_MOST_MORE;
    for (int i = 0; i < decoder->n_steps; ++i) {
        struct sw_texts next = {0};
        const sw_status st = apply(&decoder->steps[i], tokens, most, &next);
        sw_texts_fini(tokens);
        *tokens = next;
        SW_TRY(st);
    }
    return SW_OK;
}
