// SPDX-License-Identifier: Apache-2.0
// Walking a double array whose bytes come from a file: every index is checked.
#include "token/charsmap.h"

#include <string.h>

static uint32_t load_u32(const char *bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

sw_status sw_charsmap_init(struct sw_charsmap *map, const char *bytes, size_t len)
{
    *map = (struct sw_charsmap){0};
    if (len == 0) {
        return SW_OK;
    }
    const size_t trie = len >= 4 ? load_u32(bytes) : 0;
    if (trie < 4 || trie % 4 != 0 || trie > len - 4) {
        return SW_FAIL(SW_E_FORMAT, "precompiled_charsmap: %zu bytes with a trie of %zu", len,
                       trie);
    }
    const char *texts = bytes + 4 + trie;
    map->n_units = trie / 4;
    map->texts_len = len - 4 - trie;
    map->units = sw_alloc("charsmap", trie);
    map->texts = sw_alloc("charsmap", map->texts_len + 1);
    if (!map->units || !map->texts) {
        sw_charsmap_fini(map);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for precompiled_charsmap");
    }
    for (size_t i = 0; i < map->n_units; ++i) {
        map->units[i] = load_u32(bytes + 4 + 4 * i);
    }
    memcpy(map->texts, texts, map->texts_len);
    map->texts[map->texts_len] = '\0';
    return SW_OK;
}

void sw_charsmap_fini(struct sw_charsmap *map)
{
    sw_free(map->units);
    sw_free(map->texts);
    *map = (struct sw_charsmap){0};
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 0x200) >> 6);
}

struct sw_charsmap_match sw_charsmap_find(const struct sw_charsmap *map, const char *text,
                                          size_t len, bool longest)
{
    enum {
        LONGEST_KEY = 256
    }; /* those of real maps have some 20 bytes; a trie may go in circles */
    struct sw_charsmap_match found = {0, ""};
    size_t at = map->n_units > 0 ? offset_of(map->units[0]) : 0;
    for (size_t i = 0; i < len && i < LONGEST_KEY; ++i) {
        const unsigned char c = (unsigned char)text[i];
        at ^= c;
        if (at >= map->n_units || (map->units[at] & 0x800000FF) != c) {
            break;
        }
        const uint32_t unit = map->units[at];
        at ^= offset_of(unit);
        if (at >= map->n_units) {
            break;
        }
        const size_t value = map->units[at] & 0x7FFFFFFF;
        if ((unit >> 8 & 1) != 0 && value < map->texts_len) {
            found = (struct sw_charsmap_match){i + 1, map->texts + value};
            if (!longest) {
                break;
            }
        }
    }
    return found;
}
