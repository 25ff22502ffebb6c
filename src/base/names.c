// SPDX-License-Identifier: Apache-2.0
// A table from names to numbers: open addressing with linear probing, never more than half full,
// nothing is ever taken out.
#include "base/base.h"

#include <string.h>

enum { LEAST = 64 };

static struct sw_name_entry *place_of(const struct sw_names *names, int32_t kind, const char *name)
{
    const uint64_t mask = (uint64_t)names->cap - 1;
    uint64_t at = sw_hash_keyed(&names->key, name, strlen(name)) + (uint64_t)kind;
    for (;; at++) {
        struct sw_name_entry *entry = &names->entries[at & mask];
        if (!entry->name || (entry->kind == kind && strcmp(entry->name, name) == 0)) {
            return entry;
        }
    }
}

static bool grow(struct sw_names *names)
{
    struct sw_names larger = {.cap = names->cap > 0 ? 2 * names->cap : LEAST, .n = names->n};
    sw_hash_key_init(&larger.key);
    larger.entries = sw_alloc_zero("names", (size_t)larger.cap, sizeof *larger.entries);
    if (!larger.entries) {
        return false;
    }
    for (int32_t i = 0; i < names->cap; i++) {
        const struct sw_name_entry *entry = &names->entries[i];
        if (entry->name) {
            *place_of(&larger, entry->kind, entry->name) = *entry;
        }
    }
    sw_names_close(names);
    *names = larger;
    return true;
}

void sw_names_close(struct sw_names *names)
{
    sw_free(names->entries);
    *names = (struct sw_names){0};
}

bool sw_names_add(struct sw_names *names, int32_t kind, const char *name, int32_t value)
{
    if (names->n >= names->cap / 2 && !grow(names)) {
        return false;
    }
    struct sw_name_entry *entry = place_of(names, kind, name);
    if (!entry->name) {
        *entry = (struct sw_name_entry){name, kind, value};
        names->n++;
    }
    return true;
}

int32_t sw_names_find(const struct sw_names *names, int32_t kind, const char *name)
{
    const struct sw_name_entry *entry = names->cap > 0 ? place_of(names, kind, name) : NULL;
    return entry && entry->name ? entry->value : -1;
}

bool sw_names_copy(const struct sw_names *names, struct sw_names *out)
{
    *out = (struct sw_names){.n = names->n, .cap = names->cap, .key = names->key};
    if (names->cap == 0) {
        return true;
    }
    const size_t bytes = (size_t)names->cap * sizeof *names->entries;
    out->entries = sw_alloc("names", bytes);
    if (out->entries) {
        memcpy(out->entries, names->entries, bytes);
    }
    return out->entries != NULL;
}
