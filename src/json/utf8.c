// SPDX-License-Identifier: Apache-2.0
// json/utf8 - well-formed UTF-8 (Unicode 15, table 3-7): no overlong forms, no surrogates, nothing
// above U+10FFFF.

#include "json/private.h"

static bool is_tail(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

size_t sw_json_utf8_len(const char *text, size_t len)
{
    if (len == 0) {
        return 0;
    }
    const unsigned char lead = (unsigned char)text[0];
    if (lead < 0x80) {
        return 1;
    }
    const size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || len < want) {
        return 0;
    }
    for (size_t i = 1; i < want; i++) {
        if (!is_tail(text[i])) {
            return 0;
        }
    }
    /* sequences that the bit pattern allows and Unicode forbids differ in the second byte */
    const unsigned char second = (unsigned char)text[1];
    const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
    const bool surrogate = lead == 0xed && second > 0x9f;
    const bool too_large = lead == 0xf4 && second > 0x8f;
    return overlong || surrogate || too_large ? 0 : want;
}

size_t sw_json_utf8_check(const char *text, size_t len)
{
    size_t i = 0;
    while (i < len) {
        const size_t step = sw_json_utf8_len(text + i, len - i);
        if (step == 0) {
            break;
        }
        i += step;
    }
    return i;
}

size_t sw_json_utf8_put(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    const size_t n_tails = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    const uint32_t lead = n_tails == 1 ? 0xc0 : n_tails == 2 ? 0xe0 : 0xf0;
    out[0] = (char)(lead | code >> (6 * n_tails));
    for (size_t i = 1; i <= n_tails; i++) {
        out[i] = (char)(0x80 | (code >> (6 * (n_tails - i)) & 0x3f));
    }
    return n_tails + 1;
}
