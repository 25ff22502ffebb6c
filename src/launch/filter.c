// SPDX-License-Identifier: Apache-2.0
// --include and --exclude, "NAME[:SLOT[,SLOT..]]" joined by @, and the counts of hosts and ranks.
// The rest keeps the order of the hostfile. A host without slots is removed.
#include "launch/private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct filter {
    const char *flag, *text; /* for messages */
    bool include;
    bool *named;  /* [hosts] */
    bool **picks; /* [hosts][slot number] NULL: the whole host */
};

static int find(const struct hosts *hosts, const char *name)
{
    for (int i = 0; i < hosts->n; i++) {
        if (strcmp(hosts->items[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static bool has_slot(const struct host *host, long slot)
{
    for (int i = 0; i < host->n_slots; i++) {
        if (host->slots[i] == slot) {
            return true;
        }
    }
    return false;
}

static sw_status pick(const struct filter *filter, const struct host *host, const char *word,
                      bool *picks)
{
    char *end;
    errno = 0;
    const long slot = strtol(word, &end, 10);
    if (end == word || end[strspn(end, " \t")]) {
        return SW_FAIL(SW_E_CONFIG, "%s \"%s\": %s: wanted the number of a slot, got \"%s\"",
                       filter->flag, filter->text, host->name, word);
    }
    if (errno || !has_slot(host, slot)) {
        return SW_FAIL(SW_E_CONFIG, "%s \"%s\": %s has no slot %s, it has %d", filter->flag,
                       filter->text, host->name, word, host->n_slots);
    }
    picks[slot] = true;
    return SW_OK;
}

/* One part between two @. */
static sw_status read_part(struct sw_arena *arena, struct filter *filter, const struct hosts *hosts,
                           char *part)
{
    char *slots = strchr(part, ':');
    if (slots) {
        *slots++ = '\0';
        if (strchr(slots, ':')) {
            return SW_FAIL(SW_E_CONFIG, "%s \"%s\": %s: wanted one colon, got two", filter->flag,
                           filter->text, part);
        }
    }
    const int i = find(hosts, part);
    if (i < 0) {
        return SW_FAIL(SW_E_CONFIG, "%s \"%s\": the hostfile has no host \"%s\"", filter->flag,
                       filter->text, part);
    }
    const struct host *host = &hosts->items[i];
    filter->named[i] = true;
    if (slots && !filter->picks[i]) {
        const int top = host->n_slots > 0 ? host->slots[host->n_slots - 1] : 0;
        filter->picks[i] = sw_arena_array(arena, (size_t)top + 1, sizeof(bool));
        SW_TRY_ALLOC(filter->picks[i], "a filter");
    }
    while (slots) {
        SW_TRY(pick(filter, host, strsep(&slots, ","), filter->picks[i]));
    }
    return SW_OK;
}

static bool stays(const struct filter *filter, int i_host, int slot)
{
    const bool *picks = filter->picks[i_host];
    const bool matches = filter->named[i_host] && (!picks || picks[slot]);
    return matches == filter->include;
}

sw_status sw_launch_filter(struct sw_arena *arena, const char *include, const char *exclude,
                           struct hosts *hosts)
{
    include = include && *include ? include : NULL;
    exclude = exclude && *exclude ? exclude : NULL;
    if (include && exclude) {
        return SW_FAIL(SW_E_CONFIG, "wanted --include or --exclude, got both");
    }
    if (!include && !exclude) {
        return SW_OK;
    }
    struct filter filter = {.flag = include ? "--include" : "--exclude",
                            .text = include ? include : exclude,
                            .include = include != NULL};
    filter.named = sw_arena_array(arena, (size_t)hosts->n, sizeof(bool));
    filter.picks = sw_arena_array(arena, (size_t)hosts->n, sizeof(bool *));
    char *at = sw_arena_strdup(arena, filter.text);
    SW_TRY_ALLOC(filter.named && filter.picks ? at : NULL, "a filter");
    while (at) {
        SW_TRY(read_part(arena, &filter, hosts, strsep(&at, "@")));
    }
    int n = 0;
    for (int i = 0; i < hosts->n; i++) {
        struct host host = hosts->items[i];
        int kept = 0;
        for (int k = 0; k < host.n_slots; k++) {
            if (stays(&filter, i, host.slots[k])) {
                host.slots[kept++] = host.slots[k];
            }
        }
        host.n_slots = kept;
        if (kept > 0) {
            hosts->items[n++] = host;
        }
    }
    hosts->n = n;
    return SW_OK;
}

sw_status sw_launch_count(struct sw_arena *arena, int64_t num_nodes, int64_t num_ranks,
                          struct hosts *hosts)
{
    if (num_nodes < -1 || num_nodes > hosts->n) {
        return SW_FAIL(SW_E_CONFIG, "--num-nodes: wanted at most the %d hosts there are, got %lld",
                       hosts->n, (long long)num_nodes);
    }
    if (num_ranks < -1 || num_ranks > SW_LAUNCH_MAX_SLOTS) {
        return SW_FAIL(SW_E_CONFIG, "--num-ranks: wanted at most %d a host, got %lld",
                       SW_LAUNCH_MAX_SLOTS, (long long)num_ranks);
    }
    if (num_nodes > 0) {
        hosts->n = (int)num_nodes;
    }
    for (int i = 0; num_ranks > 0 && i < hosts->n; i++) {
        struct host *host = &hosts->items[i];
        SW_TRY(sw_launch_host_init(arena, host->name, (int)num_ranks, host));
    }
    return SW_OK;
}
