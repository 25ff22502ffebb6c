// SPDX-License-Identifier: Apache-2.0
// The compiled character map of SentencePiece (precompiled_charsmap): a double-array trie of
// byte strings, each with its replacement.
//
// Layout: the trie's size in bytes (u32, little endian), its units (u32 each), then the
// replacements, each ended by NUL. A unit holds the offset of its children
// (bits 10 to 30; shifted left by 8 more if bit 9 is set), its label (bits 0 to 7 and 31), and
// whether a string ends there (bit 8). The first child then holds the offset of its replacement.
#pragma once

#include "base/base.h"

struct sw_charsmap {
    uint32_t *units; /* owned; NULL = an empty map */
    size_t n_units;
    char *texts; /* owned, [texts_len + 1]; the last one is NUL */
    size_t texts_len;
};

/* SW_E_FORMAT: not a valid map. len 0 gives an empty map. */
sw_status sw_charsmap_init(struct sw_charsmap *map, const char *bytes, size_t len);
void sw_charsmap_fini(struct sw_charsmap *map);

struct sw_charsmap_match {
    size_t len; /* matched bytes of the text; 0: no match */
    const char *text;
};
/* Finds the longest or the shortest key that is a prefix of the text. Keys have at most 256
 * bytes. */
struct sw_charsmap_match sw_charsmap_find(const struct sw_charsmap *map, const char *text,
                                          size_t len, bool longest);
