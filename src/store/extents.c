// SPDX-License-Identifier: Apache-2.0
// The set of written bytes: sorted ranges that neither touch nor overlap, in an array of fixed
// size. Adjacent ranges are merged, so the set is usually small. A caller that adds must make sure
// that there is room.
#include "store/private.h"

#include <string.h>

/* The first item that ends after `at`, or at it if `touch` is set. */
static int64_t find(const struct extents *set, int64_t at, bool touch)
{
    int64_t low = 0, high = set->n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (set->items[middle].end > at || (touch && set->items[middle].end == at)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

bool sw_store_extents_touch(const struct extents *set, int64_t begin, int64_t end)
{
    const int64_t i = find(set, begin, true);
    return i < set->n && set->items[i].begin <= end;
}

/* Replaces items first .. last-1 by the n_new given items. */
static void replace(struct extents *set, int64_t first, int64_t last, const struct extent *items,
                    int64_t n_new)
{
    SW_ASSERT(set->n - (last - first) + n_new <= set->cap);
    memmove(&set->items[first + n_new], &set->items[last],
            (size_t)(set->n - last) * sizeof *set->items);
    if (n_new) {
        memcpy(&set->items[first], items, (size_t)n_new * sizeof *items);
    }
    set->n += n_new - (last - first);
}

void sw_store_extents_add(struct extents *set, int64_t begin, int64_t end)
{
    if (begin >= end) {
        return;
    }
    const int64_t first = find(set, begin, true);
    struct extent joined = {begin, end};
    int64_t last = first;
    while (last < set->n && set->items[last].begin <= end) {
        joined.begin = sw_min_i64(joined.begin, set->items[last].begin);
        joined.end = sw_max_i64(joined.end, set->items[last].end);
        last++;
    }
    replace(set, first, last, &joined, 1);
}

void sw_store_extents_remove(struct extents *set, int64_t begin, int64_t end)
{
    if (begin >= end) {
        return;
    }
    const int64_t first = find(set, begin, false);
    struct extent rest[2];
    int64_t last = first, n_rest = 0;
    while (last < set->n && set->items[last].begin < end) {
        const struct extent old = set->items[last];
        if (old.begin < begin) {
            rest[n_rest++] = (struct extent){old.begin, begin};
        }
        if (old.end > end) {
            rest[n_rest++] = (struct extent){end, old.end};
        }
        last++;
    }
    replace(set, first, last, rest, n_rest);
}

bool sw_store_extents_gap(const struct extents *set, int64_t begin, int64_t end, struct extent *out)
{
    const int64_t i = find(set, begin, false);
    const int64_t from = i < set->n && set->items[i].begin <= begin ? set->items[i].end : begin;
    if (from >= end) {
        return false;
    }
    const int64_t next = i + (from != begin);
    out->begin = from;
    out->end = next < set->n ? sw_min_i64(end, set->items[next].begin) : end;
    return true;
}
