// SPDX-License-Identifier: Apache-2.0
// The byte alphabet of GPT-2, both ways.
#include "token/byte_alphabet.h"

#include "text/text.h"

static bool stands_for_itself(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

void sw_byte_alphabet_init(struct sw_byte_alphabet *alphabet)
{
    int32_t next = 256;
    for (size_t i = 0; i < SW_LEN(alphabet->byte); ++i) {
        alphabet->byte[i] = -1;
    }
    for (int byte = 0; byte < 256; ++byte) {
        alphabet->code_point[byte] = stands_for_itself(byte) ? byte : next++;
        alphabet->byte[alphabet->code_point[byte]] = (int16_t)byte;
    }
}

void sw_byte_alphabet_write(const struct sw_byte_alphabet *alphabet, const char *bytes, size_t len,
                            struct sw_str *out)
{
    for (size_t i = 0; i < len; ++i) {
        char text[4];
        const size_t n = sw_utf8_put(alphabet->code_point[(unsigned char)bytes[i]], text);
        sw_str_append(out, text, n);
    }
}

void sw_byte_alphabet_read(const struct sw_byte_alphabet *alphabet, const char *text, size_t len,
                           struct sw_str *out)
{
    const size_t start = out->len;
    size_t pos = 0;
    while (pos < len) {
        const int32_t letter = sw_utf8_next(text, len, &pos);
        if (letter < 0 || letter >= (int32_t)SW_LEN(alphabet->byte) || alphabet->byte[letter] < 0) {
            out->len = start;
            sw_str_append(out, text, len);
            return;
        }
        sw_str_putc(out, (char)alphabet->byte[letter]);
    }
}
