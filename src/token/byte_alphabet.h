// SPDX-License-Identifier: Apache-2.0
// GPT-2's byte alphabet: one printable code point for each byte, so that vocabularies of byte
// strings can be written as JSON text. Printable Latin-1
// bytes map to themselves; the other 68 map in rising order to U+0100, U+0101, ..
#pragma once

#include "base/base.h"

struct sw_byte_alphabet {
    int32_t code_point[256]; /* byte -> code point */
    int16_t byte[324];       /* code point -> byte; -1: not in the alphabet */
};

void sw_byte_alphabet_init(struct sw_byte_alphabet *alphabet);
/* Appends bytes as letters of the alphabet. */
void sw_byte_alphabet_write(const struct sw_byte_alphabet *alphabet, const char *bytes, size_t len,
                            struct sw_str *out);
/* Appends the bytes that text stands for. Text with a letter outside the alphabet is copied as
 * is. */
void sw_byte_alphabet_read(const struct sw_byte_alphabet *alphabet, const char *text, size_t len,
                           struct sw_str *out);
