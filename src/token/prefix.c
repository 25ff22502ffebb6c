// SPDX-License-Identifier: Apache-2.0
// A sorted array, narrowed by binary search at each byte: a trie without nodes.
#include "token/prefix.h"

#include <stdlib.h>
#include <string.h>

sw_status sw_prefix_add(struct sw_prefix_set *set, const char *text, size_t len, int32_t id)
{
    if (len > SW_PREFIX_MOST_BYTES) {
        return SW_FAIL(SW_E_FORMAT, "token '%.40s..' has %zu bytes, wanted at most %d", text, len,
                       SW_PREFIX_MOST_BYTES);
    }
    if (set->n == set->cap) {
        const size_t cap = set->cap ? 2 * set->cap : 256;
        struct sw_prefix_item *items = sw_realloc("prefixes", set->items, cap * sizeof(*items));
        SW_TRY_ALLOC(items, "a vocabulary by its beginnings");
        set->items = items;
        set->cap = cap;
    }
    set->items[set->n++] = (struct sw_prefix_item){text, len, id};
    return SW_OK;
}

static int by_bytes(const void *a, const void *b)
{
    const struct sw_prefix_item *x = a, *y = b;
    const int order = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);
    return order != 0 ? order : (x->len > y->len) - (x->len < y->len);
}

void sw_prefix_sort(struct sw_prefix_set *set)
{
    if (set->n > 0) {
        qsort(set->items, set->n, sizeof(*set->items), by_bytes);
    }
    size_t i = 0;
    for (int byte = 0; byte < 256; ++byte) {
        set->first[byte] = i;
        while (i < set->n && (unsigned char)set->items[i].text[0] == byte) {
            i++;
        }
    }
    set->first[256] = i;
}

void sw_prefix_fini(struct sw_prefix_set *set)
{
    sw_free(set->items);
    *set = (struct sw_prefix_set){0};
}

struct sw_prefix_walk sw_prefix_start(const struct sw_prefix_set *set)
{
    return (struct sw_prefix_walk){set, 0, set->n, 0};
}

/* The next byte of an item; it has none if the item ends here. */
static int next_byte(const struct sw_prefix_walk *walk, size_t i)
{
    const struct sw_prefix_item *item = &walk->set->items[i];
    return item->len > walk->depth ? (unsigned char)item->text[walk->depth] : -1;
}

/* The first of the walk's items whose next byte is at least `byte`. */
static size_t lower_bound(const struct sw_prefix_walk *walk, int byte)
{
    size_t begin = walk->begin, end = walk->end;
    while (begin < end) {
        const size_t middle = begin + (end - begin) / 2;
        if (next_byte(walk, middle) < byte) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin;
}

bool sw_prefix_step(struct sw_prefix_walk *walk, unsigned char byte)
{
    if (walk->depth == 0) {
        walk->begin = walk->set->first[byte];
        walk->end = walk->set->first[byte + 1];
    } else {
        walk->begin += walk->begin < walk->end && next_byte(walk, walk->begin) < 0;
        const bool all_go_on = walk->begin < walk->end && next_byte(walk, walk->begin) == byte &&
                               next_byte(walk, walk->end - 1) == byte;
        if (!all_go_on) {
            walk->begin = lower_bound(walk, byte);
            walk->end = lower_bound(walk, byte + 1);
        }
    }
    walk->depth++;
    return walk->begin < walk->end;
}

int32_t sw_prefix_here(const struct sw_prefix_walk *walk)
{
    const struct sw_prefix_item *item = &walk->set->items[walk->begin];
    return walk->begin < walk->end && item->len == walk->depth ? item->id : -1;
}

size_t sw_prefix_longest(const struct sw_prefix_set *set, const char *text, size_t len,
                         int32_t *out_id)
{
    struct sw_prefix_walk walk = sw_prefix_start(set);
    size_t longest = 0;
    for (size_t i = 0; i < len && set->n > 0 && sw_prefix_step(&walk, (unsigned char)text[i]);
         ++i) {
        const int32_t id = sw_prefix_here(&walk);
        if (id >= 0) {
            longest = i + 1;
            *out_id = id;
        }
    }
    return longest;
}
