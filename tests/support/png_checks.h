// SPDX-License-Identifier: Apache-2.0
// The checks of PNG chunks: a file that was changed on purpose gets beyond them.
#pragma once

#include <stddef.h>
#include <stdint.h>

/* CRC-32 of zlib. */
static inline uint32_t png_check(const uint8_t *bytes, size_t n)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
        }
    }
    return ~crc;
}

/* Corrects the checks of all chunks, as far as they are whole. */
static inline void png_repair(uint8_t *bytes, size_t len)
{
    for (size_t at = 8; at + 12 <= len;) {
        const uint8_t *c = bytes + at;
        const size_t n = (size_t)c[0] << 24 | (size_t)c[1] << 16 | (size_t)c[2] << 8 | c[3];
        if (n > len - at - 12) {
            return;
        }
        const uint32_t check = png_check(bytes + at + 4, n + 4);
        for (int i = 0; i < 4; i++) {
            bytes[at + 8 + n + (size_t)i] = (uint8_t)(check >> (24 - 8 * i));
        }
        at += n + 12;
    }
}
