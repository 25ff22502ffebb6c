// SPDX-License-Identifier: Apache-2.0
// UTF-8: one scanner that knows the table of well-formed sequences, and its uses.
#include "text/text.h"

/* Code point at p, or -1. *out_n: bytes of the sequence, or of its longest well-formed beginning
 * (at least 1): the part that one U+FFFD stands for. */
static int32_t scan(const unsigned char *p, size_t left, size_t *out_n)
{
    const unsigned char lead = p[0];
    unsigned char low = 0x80, high = 0xBF; /* what the second byte may be */
    size_t n_more;
    int32_t code_point;

    *out_n = 1;
    if (lead < 0x80) {
        return lead;
    }
    if (lead >= 0xC2 && lead <= 0xDF) {
        n_more = 1;
        code_point = lead & 0x1F;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        n_more = 2;
        code_point = lead & 0x0F;
        low = lead == 0xE0 ? 0xA0 : 0x80;
        high = lead == 0xED ? 0x9F : 0xBF;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        n_more = 3;
        code_point = lead & 0x07;
        low = lead == 0xF0 ? 0x90 : 0x80;
        high = lead == 0xF4 ? 0x8F : 0xBF;
    } else {
        return -1;
    }
    for (size_t i = 1; i <= n_more; ++i) {
        if (i >= left || p[i] < low || p[i] > high) {
            return -1;
        }
        code_point = (code_point << 6) | (p[i] & 0x3F);
        *out_n = i + 1;
        low = 0x80;
        high = 0xBF;
    }
    return code_point;
}

int32_t sw_utf8_next(const char *text, size_t len, size_t *pos)
{
    if (*pos >= len) {
        return -1;
    }
    size_t n;
    const int32_t code_point = scan((const unsigned char *)text + *pos, len - *pos, &n);
    if (code_point >= 0) {
        *pos += n;
    }
    return code_point;
}

int32_t sw_utf8_step(const char *text, size_t len, size_t *pos)
{
    const int32_t code_point = sw_utf8_next(text, len, pos);
    *pos += code_point < 0;
    return code_point;
}

int64_t sw_utf8_count(const char *text, size_t len)
{
    int64_t n = 0;
    for (size_t i = 0; i < len; ++i) {
        n += sw_utf8_begins(text[i]);
    }
    return n;
}

size_t sw_utf8_valid_len(const char *text, size_t len)
{
    size_t pos = 0;
    while (pos < len && sw_utf8_next(text, len, &pos) >= 0) {
    }
    return pos;
}

sw_status sw_utf8_check(const char *name, const char *text, size_t len)
{
    const size_t at = sw_utf8_valid_len(text, len);
    if (at < len) {
        return SW_FAIL(SW_E_FORMAT, "%s: byte 0x%02x at offset %zu is not UTF-8", name,
                       (unsigned)(unsigned char)text[at], at);
    }
    return SW_OK;
}

size_t sw_utf8_put(int32_t code_point, char out[4])
{
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    if (code_point < 0x800) {
        out[0] = (char)(0xC0 | (code_point >> 6));
        out[1] = (char)(0x80 | (code_point & 0x3F));
        return 2;
    }
    if (code_point < 0x10000) {
        out[0] = (char)(0xE0 | (code_point >> 12));
        out[1] = (char)(0x80 | ((code_point >> 6) & 0x3F));
        out[2] = (char)(0x80 | (code_point & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | (code_point >> 18));
    out[1] = (char)(0x80 | ((code_point >> 12) & 0x3F));
    out[2] = (char)(0x80 | ((code_point >> 6) & 0x3F));
    out[3] = (char)(0x80 | (code_point & 0x3F));
    return 4;
}

void sw_utf8_append_lossy(struct sw_str *out, const char *bytes, size_t len)
{
    size_t pos = 0;
    while (pos < len) {
        const size_t n_good = sw_utf8_valid_len(bytes + pos, len - pos);
        sw_str_append(out, bytes + pos, n_good);
        pos += n_good;
        if (pos < len) {
            size_t n_bad;
            scan((const unsigned char *)bytes + pos, len - pos, &n_bad);
            sw_str_puts(out, "\xEF\xBF\xBD");
            pos += n_bad;
        }
    }
}

bool sw_text_is_final_sigma(const char *text, size_t len, size_t at, size_t end)
{
    bool before = false, behind = false, found = false;
    while (at > 0 && !found) { /* backwards; no mark is visited twice */
        do {
            at--;
        } while (at > 0 && !sw_utf8_begins(text[at]));
        size_t pos = at;
        const int32_t c = sw_utf8_step(text, len, &pos);
        found = !sw_char_is_case_ignorable(c);
        before = found && sw_char_is_cased(c);
    }
    for (size_t pos = end; pos < len && !behind;) {
        const int32_t c = sw_utf8_step(text, len, &pos);
        if (!sw_char_is_case_ignorable(c)) {
            behind = sw_char_is_cased(c);
            break;
        }
    }
    return before && !behind;
}
