// SPDX-License-Identifier: Apache-2.0
// UTF-8 for the data room: decode, check, encode, repair. Surrogates and overlong forms are not
// UTF-8, as in the Unicode standard.
#pragma once

#include "base/base.h"

/* Returns the code point at text[*pos] and advances *pos past it. Ill-formed: returns -1, *pos
 * stays. */
int32_t sw_utf8_next(const char *text, size_t len, size_t *pos);
/* As sw_utf8_next, but an ill-formed sequence advances *pos by one byte. For loops over checked
 * text. */
int32_t sw_utf8_step(const char *text, size_t len, size_t *pos);
/* Whether a code point begins with this byte. */
static inline bool sw_utf8_begins(char byte)
{
    return ((unsigned char)byte & 0xC0) != 0x80;
}
/* Number of code points in a well-formed text. */
int64_t sw_utf8_count(const char *text, size_t len);
/* Offset of the first byte that is not UTF-8; len if there is none. */
size_t sw_utf8_valid_len(const char *text, size_t len);
/* SW_E_FORMAT naming the first bad byte and its offset; `name` says what the text is. */
sw_status sw_utf8_check(const char *name, const char *text, size_t len);
/* Encodes a code point. Returns the number of bytes, 1 to 4. */
size_t sw_utf8_put(int32_t code_point, char out[4]);
/* Appends text, replacing each maximal ill-formed part by U+FFFD (Unicode 3.9, as web decoders
 * do). */
void sw_utf8_append_lossy(struct sw_str *out, const char *bytes, size_t len);
