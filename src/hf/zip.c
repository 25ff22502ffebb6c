// SPDX-License-Identifier: Apache-2.0
// hf/zip - the members of a ZIP or ZIP64 archive that is in memory, stored and not compressed, as
// PyTorch writes them. Every claim is checked before it is followed; nothing is copied.
#include "hf/pickle.h"

#include <stdlib.h>
#include <string.h>

enum {
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    COMMENT_MAX = 0xffff
};
static const uint64_t in_extra = 0xffffffff; /* a number that stands in the ZIP64 field */

static uint64_t number(const unsigned char *at, int bytes)
{
    uint64_t n = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        n = n << 8 | at[i];
    }
    return n;
}

struct archive {
    const char *path; /* for messages */
    const unsigned char *bytes;
    size_t len;
    uint64_t n, first, size; /* entries, offset and size of the central directory */
};

static bool is_inside(const struct archive *a, uint64_t first, uint64_t n)
{
    return first <= a->len && n <= a->len - first;
}

static bool has_mark(const struct archive *a, uint64_t at, const char *mark)
{
    return is_inside(a, at, 4) && memcmp(a->bytes + at, mark, 4) == 0;
}

static sw_status damaged(const struct archive *a, const char *what)
{
    return SW_FAIL(SW_E_FORMAT, "%s: %s", a->path, what);
}

/* Finds the directory from the end record, which a comment may follow. */
static sw_status find_directory(struct archive *a)
{
    size_t end = 0;
    bool found = false;
    if (a->len < END_BYTES || !has_mark(a, 0, "PK\3\4")) {
        return damaged(a, "not an archive of PyTorch 1.6 or later; save the model as safetensors");
    }
    for (size_t back = 0; back <= COMMENT_MAX && back + END_BYTES <= a->len && !found; back++) {
        end = a->len - END_BYTES - back;
        found = has_mark(a, end, "PK\5\6") && number(a->bytes + end + 20, 2) == back;
    }
    if (!found) {
        return damaged(a, "the archive has no end: the file is truncated");
    }
    a->n = number(a->bytes + end + 10, 2);
    a->size = number(a->bytes + end + 12, 4);
    a->first = number(a->bytes + end + 16, 4);
    if (end >= LOCATOR_BYTES && has_mark(a, end - LOCATOR_BYTES, "PK\6\7")) {
        const uint64_t end64 = number(a->bytes + end - LOCATOR_BYTES + 8, 8);
        if (!is_inside(a, end64, END64_BYTES) || !has_mark(a, end64, "PK\6\6")) {
            return damaged(a, "the archive's ZIP64 end lies outside of the file");
        }
        a->n = number(a->bytes + end64 + 32, 8);
        a->size = number(a->bytes + end64 + 40, 8);
        a->first = number(a->bytes + end64 + 48, 8);
    }
    if (!is_inside(a, a->first, a->size) || a->n > a->size / ENTRY_BYTES) {
        return damaged(a, "the archive's directory lies outside of the file");
    }
    return SW_OK;
}

/* Numbers that do not fit stand in field 1 of the extra ones, in this order. */
static bool read_extra(const unsigned char *extra, size_t len, uint64_t *const *values, int n)
{
    while (len >= 4) {
        const uint64_t id = number(extra, 2), bytes = number(extra + 2, 2);
        if (bytes > len - 4) {
            return false;
        }
        for (int i = 0, at = 0; id == 1 && i < n; i++) {
            if (*values[i] != in_extra) {
                continue;
            }
            if ((uint64_t)at + 8 > bytes) {
                return false;
            }
            *values[i] = number(extra + 4 + at, 8);
            at += 8;
        }
        if (id == 1) {
            return true;
        }
        extra += 4 + bytes;
        len -= 4 + bytes;
    }
    return true;
}

static sw_status read_entry(const struct archive *a, const unsigned char *entry,
                            struct sw_zip_member *m)
{
    const uint64_t flags = number(entry + 8, 2), method = number(entry + 10, 2);
    uint64_t packed = number(entry + 20, 4), bytes = number(entry + 24, 4);
    uint64_t local = number(entry + 42, 4);
    uint64_t *const values[] = {&bytes, &packed, &local};
    m->name = (const char *)entry + ENTRY_BYTES;
    m->name_len = (size_t)number(entry + 28, 2);
    const int shown = (int)m->name_len;
    if (!read_extra(entry + ENTRY_BYTES + m->name_len, (size_t)number(entry + 30, 2), values, 3)) {
        return SW_FAIL(SW_E_FORMAT, "%s: %.*s: its ZIP64 field is damaged", a->path, shown,
                       m->name);
    }
    if (flags & 1 || method != 0 || packed != bytes) {
        return SW_FAIL(SW_E_FORMAT, "%s: %.*s is %s, wanted stored", a->path, shown, m->name,
                       flags & 1 ? "encrypted" : "compressed");
    }
    if (!is_inside(a, local, LOCAL_BYTES) || !has_mark(a, local, "PK\3\4")) {
        return SW_FAIL(SW_E_FORMAT, "%s: %.*s lies outside of the file", a->path, shown, m->name);
    }
    const uint64_t first =
        local + LOCAL_BYTES + number(a->bytes + local + 26, 2) + number(a->bytes + local + 28, 2);
    if (!is_inside(a, first, bytes)) {
        return SW_FAIL(SW_E_FORMAT, "%s: %.*s has %llu bytes, beyond the end of the file", a->path,
                       shown, m->name, (unsigned long long)bytes);
    }
    m->data = a->bytes + first;
    m->bytes = (size_t)bytes;
    return SW_OK;
}

static int compare(const struct sw_zip_member *a, const char *name, size_t len)
{
    const int order = memcmp(a->name, name, a->name_len < len ? a->name_len : len);
    return order != 0 ? order : (a->name_len > len) - (a->name_len < len);
}

static int compare_members(const void *a, const void *b)
{
    const struct sw_zip_member *y = b;
    return compare(a, y->name, y->name_len);
}

sw_status sw_zip_read(struct sw_arena *arena, const char *path, const void *bytes, size_t len,
                      struct sw_zip *out)
{
    struct archive a = {.path = path, .bytes = bytes, .len = len};
    SW_TRY(find_directory(&a));
    struct sw_zip_member *members = sw_arena_array(arena, (size_t)a.n + 1, sizeof *members);
    SW_TRY_ALLOC(members, path);
    uint64_t at = a.first;
    const uint64_t end = a.first + a.size;
    for (uint64_t i = 0; i < a.n; i++) {
        const unsigned char *entry = a.bytes + at;
        if (end - at < ENTRY_BYTES || !has_mark(&a, at, "PK\1\2")) {
            return damaged(&a, "the archive's directory is damaged");
        }
        const uint64_t more = number(entry + 28, 2) + number(entry + 30, 2) + number(entry + 32, 2);
        if (end - at - ENTRY_BYTES < more) {
            return damaged(&a, "the archive's directory is damaged");
        }
        SW_TRY(read_entry(&a, entry, &members[i]));
        at += ENTRY_BYTES + more;
    }
    qsort(members, (size_t)a.n, sizeof *members, compare_members);
    *out = (struct sw_zip){members, (size_t)a.n};
    return SW_OK;
}

const struct sw_zip_member *sw_zip_find(const struct sw_zip *zip, const char *name, size_t len)
{
    size_t low = 0, high = zip->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = compare(&zip->members[middle], name, len);
        if (order == 0) {
            return &zip->members[middle];
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return NULL;
}
