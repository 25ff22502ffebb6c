// SPDX-License-Identifier: Apache-2.0
// Hostfiles: one line "NAME slots=N" per host. # begins a comment. `max_slots=N` after it, which is
// for mpirun, is parsed and ignored. A world is the same in one word, by which a launcher tells the
// launchers of the hosts.
#include "launch/private.h"

#include <stdlib.h>
#include <string.h>

static const char *const space = " \t\r\f\v";

sw_status sw_launch_host_init(struct sw_arena *arena, const char *name, int n_slots,
                              struct host *out)
{
    out->name = sw_arena_strdup(arena, name);
    out->slots = sw_arena_array(arena, (size_t)n_slots + 1, sizeof *out->slots);
    SW_TRY_ALLOC(out->name && out->slots ? out : NULL, "the hosts");
    out->n_slots = n_slots;
    for (int i = 0; i < n_slots; i++) {
        out->slots[i] = i;
    }
    return SW_OK;
}

static bool has_host(const struct hosts *hosts, const char *name)
{
    for (int i = 0; i < hosts->n; i++) {
        if (strcmp(hosts->items[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Digits to the end of the word; -1: no such number, -2: too many slots. */
static int whole_number(const char *text)
{
    const size_t len = strspn(text, "0123456789");
    if (len == 0 || text[len]) {
        return -1;
    }
    const char *digits = text + strspn(text, "0");
    return strlen(digits) > 7 || atoi(digits) > SW_LAUNCH_MAX_SLOTS ? -2 : atoi(digits);
}

/* "slots=N", then nothing or max_slots=N. `rest` is cut into words. */
static sw_status parse_slots(const char *name, int line, char *rest, int *out)
{
    char *save;
    const char *word = strtok_r(rest, space, &save);
    if (!word || strncmp(word, "slots=", 6) != 0) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d: wanted NAME slots=N, got \"%s\"", name, line,
                       word ? word : "no slots");
    }
    *out = whole_number(word + 6);
    if (*out == -2) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d: slots: wanted at most %d, got %s", name, line,
                       SW_LAUNCH_MAX_SLOTS, word + 6);
    }
    if (*out < 0) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d: slots: wanted a whole number, got \"%s\"", name, line,
                       word + 6);
    }
    while ((word = strtok_r(NULL, space, &save))) {
        if (strncmp(word, "max_slots=", 10) != 0 || whole_number(word + 10) < 0) {
            return SW_FAIL(SW_E_FORMAT, "%s:%d: wanted the end of the line, got \"%s\"", name, line,
                           word);
        }
    }
    return SW_OK;
}

static sw_status parse_line(struct sw_arena *arena, const char *name, int line, char *text,
                            struct hosts *hosts)
{
    text[strcspn(text, "#")] = '\0';
    text += strspn(text, space);
    if (!*text) {
        return SW_OK;
    }
    const size_t len = strcspn(text, space);
    char *rest = text + len + (text[len] != '\0');
    text[len] = '\0';
    int n_slots;
    SW_TRY(parse_slots(name, line, rest, &n_slots));
    if (has_host(hosts, text)) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d: host %s is given twice", name, line, text);
    }
    return sw_launch_host_init(arena, text, n_slots, &hosts->items[hosts->n++]);
}

static int count_of(const char *text, char c)
{
    int n = 0;
    for (; *text; text++) {
        n += *text == c;
    }
    return n;
}

static sw_status start(struct sw_arena *arena, const char *text, char separator,
                       struct hosts *hosts, char **out_copy)
{
    *hosts = (struct hosts){0};
    hosts->items =
        sw_arena_array(arena, (size_t)count_of(text, separator) + 1, sizeof *hosts->items);
    *out_copy = sw_arena_strdup(arena, text);
    SW_TRY_ALLOC(hosts->items && *out_copy ? hosts : NULL, "the hosts");
    return SW_OK;
}

sw_status sw_launch_hosts_parse(struct sw_arena *arena, const char *name, const char *text,
                                struct hosts *out)
{
    struct hosts hosts;
    char *at;
    int64_t n_slots = 0; /* each takes memory */
    SW_TRY(start(arena, text, '\n', &hosts, &at));
    for (int line = 1; at; line++) {
        char *here = strsep(&at, "\n");
        const int before = hosts.n;
        SW_TRY(parse_line(arena, name, line, here, &hosts));
        n_slots += hosts.n > before ? hosts.items[before].n_slots : 0;
        if (n_slots > SW_LAUNCH_MAX_SLOTS) {
            return SW_FAIL(SW_E_FORMAT, "%s:%d: slots: wanted at most %d in all, got %lld", name,
                           line, SW_LAUNCH_MAX_SLOTS, (long long)n_slots);
        }
    }
    if (hosts.n == 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: wanted a line NAME slots=N, got no host", name);
    }
    *out = hosts;
    return SW_OK;
}

/* "NAME:0,1,2" */
static sw_status parse_world_host(struct sw_arena *arena, char *text, struct host *out)
{
    char *colon = strrchr(text, ':');
    if (!colon || colon == text) {
        return SW_FAIL(SW_E_CONFIG, "--world: wanted HOST:SLOT[,SLOT..], got \"%s\"", text);
    }
    *colon = '\0';
    char *at = colon + 1;
    SW_TRY(sw_launch_host_init(arena, text, count_of(at, ',') + 1, out));
    for (int i = 0; at; i++) {
        const char *word = strsep(&at, ",");
        out->slots[i] = whole_number(word);
        if (out->slots[i] < 0) {
            return SW_FAIL(SW_E_CONFIG, "--world: %s: wanted a slot, got \"%s\"", out->name, word);
        }
        if (i > 0 && out->slots[i] <= out->slots[i - 1]) {
            return SW_FAIL(SW_E_CONFIG, "--world: %s: wanted rising slots, got %d after %d",
                           out->name, out->slots[i], out->slots[i - 1]);
        }
    }
    return SW_OK;
}

sw_status sw_launch_world_parse(struct sw_arena *arena, const char *text, struct hosts *out)
{
    struct hosts hosts;
    char *at;
    SW_TRY(start(arena, text, '/', &hosts, &at));
    while (at) {
        char *here = strsep(&at, "/");
        struct host *host = &hosts.items[hosts.n];
        SW_TRY(parse_world_host(arena, here, host));
        if (has_host(&hosts, host->name)) {
            return SW_FAIL(SW_E_CONFIG, "--world: host %s is given twice", host->name);
        }
        hosts.n++;
    }
    *out = hosts;
    return SW_OK;
}

void sw_launch_world_write(const struct hosts *hosts, struct sw_str *out)
{
    for (int i = 0; i < hosts->n; i++) {
        sw_str_printf(out, "%s%s", i ? "/" : "", hosts->items[i].name);
        for (int k = 0; k < hosts->items[i].n_slots; k++) {
            sw_str_printf(out, "%c%d", k ? ',' : ':', hosts->items[i].slots[k]);
        }
    }
}
