// SPDX-License-Identifier: Apache-2.0
// Any bytes as a hostfile and, after the first byte 0, a filter: refused with a message that names
// the place, or read. The result is written as a world, which must read again to the same hosts and
// slots.
#include "launch/private.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_hosts(const struct hosts *hosts)
{
    for (int i = 0; i < hosts->n; i++) {
        const struct host *host = &hosts->items[i];
        SW_ASSERT(*host->name && host->n_slots >= 0 && host->n_slots <= SW_LAUNCH_MAX_SLOTS);
        for (int k = 1; k < host->n_slots; k++) {
            SW_ASSERT(host->slots[k] > host->slots[k - 1]);
        }
        for (int k = 0; k < i; k++) {
            SW_ASSERT(strcmp(host->name, hosts->items[k].name) != 0);
        }
    }
}

/* A world has no host without a slot, and a name in it no slash. */
static bool fits_a_world(const struct hosts *hosts)
{
    for (int i = 0; i < hosts->n; i++) {
        if (hosts->items[i].n_slots == 0 || hosts->items[i].n_slots > 1000 ||
            strchr(hosts->items[i].name, '/')) {
            return false;
        }
    }
    return hosts->n > 0;
}

static void check_world(struct sw_arena *arena, const struct hosts *hosts)
{
    struct sw_str text = {0};
    struct hosts again;
    sw_launch_world_write(hosts, &text);
    SW_ASSERT(sw_launch_world_parse(arena, sw_str_text(&text), &again) == SW_OK);
    SW_ASSERT(again.n == hosts->n);
    for (int i = 0; i < again.n; i++) {
        const struct host *a = &hosts->items[i], *b = &again.items[i];
        SW_ASSERT(strcmp(a->name, b->name) == 0 && a->n_slots == b->n_slots);
        SW_ASSERT(memcmp(a->slots, b->slots, (size_t)a->n_slots * sizeof *a->slots) == 0);
    }
    sw_str_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sw_arena arena;
    struct hosts hosts;
    sw_arena_init(&arena, "fuzz");
    char *text = sw_arena_strndup(&arena, (const char *)data, size);
    const size_t len = text ? strlen(text) : 0;
    const char *filter =
        text && len < size ? sw_arena_strndup(&arena, (const char *)data + len + 1, size - len - 1)
                           : NULL;
    if (text && sw_launch_hosts_parse(&arena, "fuzz", text, &hosts) >= 0) {
        check_hosts(&hosts);
        const bool excludes = filter && *filter == '-';
        if (sw_launch_filter(&arena, excludes ? NULL : filter, excludes ? filter + 1 : NULL,
                             &hosts) >= 0) {
            check_hosts(&hosts);
            if (fits_a_world(&hosts)) {
                check_world(&arena, &hosts);
            }
        } else {
            SW_ASSERT(strstr(sw_error_message(), "clude \""));
        }
    } else {
        SW_ASSERT(strncmp(sw_error_message(), "fuzz:", 5) == 0);
    }
    if (text) {
        (void)sw_launch_world_parse(&arena, text, &hosts);
    }
    sw_arena_fini(&arena);
    return 0;
}
