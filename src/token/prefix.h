// SPDX-License-Identifier: Apache-2.0
// A set of byte strings that finds, byte by byte, those that are a prefix of a text. A walk is
// never longer than SW_PREFIX_MOST_BYTES, whatever a token file holds.
#pragma once

#include "base/base.h"

/* The longest tokens of real vocabularies, runs of spaces, have a few hundred bytes. */
enum { SW_PREFIX_MOST_BYTES = 1024 };

struct sw_prefix_item {
    const char *text; /* borrowed */
    size_t len;       /* above 0 */
    int32_t id;
};

/* All zero: an empty set. */
struct sw_prefix_set {
    struct sw_prefix_item *items; /* [n] owned; sorted by their bytes, no two equal */
    size_t n, cap;
    size_t first[257]; /* index of the first item that begins with each byte */
};

/* Adds a string. SW_E_FORMAT: it is longer than SW_PREFIX_MOST_BYTES. */
sw_status sw_prefix_add(struct sw_prefix_set *set, const char *text, size_t len, int32_t id);
/* Call once, after all strings are added. */
void sw_prefix_sort(struct sw_prefix_set *set);
void sw_prefix_fini(struct sw_prefix_set *set);

struct sw_prefix_walk {
    const struct sw_prefix_set *set;
    size_t begin, end, depth; /* range of items that begin with the bytes so far */
};

struct sw_prefix_walk sw_prefix_start(const struct sw_prefix_set *set);
/* Advances by one byte. False: no item continues with it. */
bool sw_prefix_step(struct sw_prefix_walk *walk, unsigned char byte);
/* The id of the item that ends here; -1: no item does. */
int32_t sw_prefix_here(const struct sw_prefix_walk *walk);
/* Length of the longest item that is a prefix of the text; 0: no item is. */
size_t sw_prefix_longest(const struct sw_prefix_set *set, const char *text, size_t len,
                         int32_t *out_id);
