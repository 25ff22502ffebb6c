// SPDX-License-Identifier: Apache-2.0
// A folder of checkpoints: which are there, which are complete, which is the newest and which the
// best. The files `latest` and `best` are for people and scripts; nothing here believes them.
#include "ckpt/private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Out of memory is no property of the checkpoint; everything else is. */
static bool is_verdict(sw_status st)
{
    return st == SW_OK || st == SW_E_FORMAT || st == SW_E_IO || st == SW_E_UNSUP;
}

/* Fills one row from the checkpoint in item->path. */
static sw_status look(struct sw_ckpt_summary *item, struct sw_arena *arena)
{
    struct ckpt_manifest manifest = {0};
    const sw_status st = sw_ckpt_manifest_read(item->path, &manifest);
    if (!is_verdict(st)) {
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    item->complete = st == SW_OK || st == SW_E_UNSUP;
    item->val_loss = item->metric.value = NAN;
    if (item->complete) {
        item->serial = manifest.serial;
    }
    if (st == SW_OK) {
        item->bytes = manifest.total_bytes;
        item->n_writers = manifest.n_writers;
        item->fingerprint = manifest.meta.fingerprint;
        item->val_loss = manifest.meta.val_loss;
        item->metric = manifest.meta.metric;
        if (item->metric.name) { /* the manifest's */
            item->metric.name = sw_arena_strdup(arena, item->metric.name);
        }
        if (manifest.meta.metric.name && !item->metric.name) {
            sw_ckpt_manifest_fini(&manifest);
            return SW_FAIL(SW_E_NOMEM, "out of host memory for the list of checkpoints");
        }
    } else {
        item->problem = sw_arena_strdup(arena, sw_error_message());
        SW_TRY_ALLOC(item->problem, "the list of checkpoints");
    }
    sw_ckpt_manifest_fini(&manifest);
    return SW_OK;
}

static int compare_items(const void *a, const void *b)
{
    const struct sw_ckpt_summary *pa = a, *pb = b;
    if (pa->complete != pb->complete) {
        return pa->complete ? -1 : 1;
    }
    if (pa->serial != pb->serial) {
        return pa->serial > pb->serial ? -1 : 1;
    }
    return (pa->step < pb->step) - (pa->step > pb->step);
}

static sw_status add(const char *dir, const char *name, int64_t step, struct sw_ckpt_list *list)
{
    char path[PATH_MAX];
    SW_TRY(sw_ckpt_join(dir, name, path));
    struct sw_ckpt_summary item = {.step = step};
    item.name = sw_arena_strdup(&list->arena, name);
    item.path = sw_arena_strdup(&list->arena, path);
    if (!item.name || !item.path) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the list of checkpoints");
    }
    SW_TRY(look(&item, &list->arena));
    list->items[list->n_items++] = item;
    return SW_OK;
}

/* A retired checkpoint counts if no complete one has its name, because its successor was never
 * completed. */
static sw_status add_retired(const char *dir, const char *name, int64_t step,
                             struct sw_ckpt_list *list)
{
    for (int64_t i = 0; i < list->n_items; i++) {
        if (list->items[i].step == step && list->items[i].complete) {
            return SW_OK;
        }
    }
    SW_TRY(add(dir, name, step, list));
    list->n_items -= !list->items[list->n_items - 1].complete; /* half deleted */
    return SW_OK;
}

static sw_status fill(const char *dir, struct sw_ckpt_list *list)
{
    const char **names;
    int64_t n, step;
    SW_TRY(sw_ckpt_names(dir, &list->arena, &names, &n));
    list->items = sw_arena_array(&list->arena, (size_t)n + 1, sizeof(*list->items));
    SW_TRY_ALLOC(list->items, "the list of checkpoints");
    for (int64_t i = 0; i < n; i++) {
        if (sw_ckpt_parse_name(names[i], "", &step)) {
            SW_TRY(add(dir, names[i], step, list));
        }
    }
    for (int64_t i = 0; i < n; i++) {
        if (sw_ckpt_parse_name(names[i], CKPT_RETIRED, &step)) {
            SW_TRY(add_retired(dir, names[i], step, list));
        }
    }
    if (list->n_items > 0) {
        qsort(list->items, (size_t)list->n_items, sizeof(*list->items), compare_items);
    }
    return SW_OK;
}

sw_status sw_ckpt_list(const char *dir, struct sw_ckpt_list *out)
{
    struct sw_ckpt_list list = {0};
    sw_arena_init(&list.arena, "checkpoint");
    if (sw_ckpt_exists(dir)) {
        const sw_status st = fill(dir, &list);
        if (st < 0) {
            sw_ckpt_list_fini(&list);
            return sw_frame_at(__FILE__, __LINE__, st);
        }
    }
    *out = list;
    return SW_OK;
}

void sw_ckpt_list_fini(struct sw_ckpt_list *list)
{
    sw_arena_fini(&list->arena);
    memset(list, 0, sizeof(*list));
}

const struct sw_ckpt_summary *sw_ckpt_newest_damaged(const struct sw_ckpt_list *list)
{
    const struct sw_ckpt_summary *newest = NULL;
    for (int64_t i = 0; i < list->n_items; i++) {
        const struct sw_ckpt_summary *item = &list->items[i];
        if (!item->complete && (!newest || item->step > newest->step)) {
            newest = item;
        }
    }
    const bool passed = newest && list->items[0].complete && list->items[0].step > newest->step;
    return passed ? NULL : newest;
}

sw_status sw_ckpt_set_aside(const char *path, struct sw_str *out)
{
    out->len = 0;
    for (int i = 1; i == 1 || sw_ckpt_exists(sw_str_text(out)); i++) {
        out->len = 0;
        sw_str_printf(out, "%s.set-aside", path);
        if (i > 1) {
            sw_str_printf(out, "-%d", i);
        }
        if (out->failed) {
            return SW_FAIL(SW_E_NOMEM, "out of host memory for the name of a checkpoint");
        }
    }
    SW_TRY(sw_ckpt_rename(path, sw_str_text(out)));
    return SW_OK;
}

/* Value by which an item is ranked (lower is better): the metric of that name, or the loss. NaN if
 * it has none. */
static double cost_of(const struct sw_ckpt_summary *item, const char *metric)
{
    if (!item->complete || item->problem) {
        return NAN;
    }
    if (!metric) {
        return item->val_loss;
    }
    const bool same = item->metric.name && strcmp(item->metric.name, metric) == 0;
    return !same ? NAN : item->metric.falls ? item->metric.value : -item->metric.value;
}

/* A run may have been resumed with another metric. The metric of the newest checkpoint counts. */
const struct sw_ckpt_summary *sw_ckpt_best(const struct sw_ckpt_list *list)
{
    const struct sw_ckpt_summary *best = NULL;
    const char *metric = list->n_items > 0 ? list->items[0].metric.name : NULL;
    for (int64_t i = 0; i < list->n_items; i++) {
        const struct sw_ckpt_summary *item = &list->items[i];
        const double cost = cost_of(item, metric);
        if (!isnan(cost) && (!best || cost < cost_of(best, metric))) {
            best = item;
        }
    }
    return best;
}

/* ---- healing ---- */

static bool has_manifest(const char *path)
{
    char manifest[PATH_MAX];
    struct stat info;
    return sw_ckpt_join(path, CKPT_MANIFEST, manifest) < 0 || lstat(manifest, &info) == 0 ||
           (errno != ENOENT && errno != ENOTDIR);
}

/* SW_E_IO: it cannot be read for now, as on a disk that fails; it may be whole. */
static sw_status is_whole(const char *path, bool *out)
{
    struct ckpt_manifest manifest = {0};
    const sw_status st = sw_ckpt_manifest_read(path, &manifest);
    if (!is_verdict(st) || (st == SW_E_IO && has_manifest(path))) {
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    sw_ckpt_manifest_fini(&manifest);
    *out = st == SW_OK || st == SW_E_UNSUP;
    return SW_OK;
}

static sw_status heal_retired(const char *dir, const char *retired, int64_t step)
{
    char path[PATH_MAX];
    bool successor_whole = false, retired_whole = false;
    SW_TRY(sw_ckpt_folder(dir, step, "", path));
    sw_status st = is_whole(path, &successor_whole);
    st = st < 0 || successor_whole ? st : is_whole(retired, &retired_whole);
    if (st == SW_E_IO) {
        sw_log(SW_LOG_WARN, "%s is left for now: %s", retired, sw_error_message());
        return SW_OK;
    }
    SW_TRY(st);
    if (!retired_whole) {
        sw_log(SW_LOG_WARN, "removing remains of %s from an earlier run", retired);
        SW_TRY(sw_ckpt_remove(retired));
        return SW_OK;
    }
    sw_log(SW_LOG_WARN, "restoring the name of %s: the save that was to replace it did not finish",
           retired);
    if (sw_ckpt_exists(path)) {
        SW_TRY(sw_ckpt_remove(path));
    }
    SW_TRY(sw_ckpt_rename(retired, path));
    SW_TRY(sw_ckpt_sync_folder(dir));
    return SW_OK;
}

static sw_status heal(const char *dir, struct sw_arena *arena)
{
    const char **names;
    int64_t n, step;
    SW_TRY(sw_ckpt_names(dir, arena, &names, &n));
    for (int64_t i = 0; i < n; i++) {
        char path[PATH_MAX];
        SW_TRY(sw_ckpt_join(dir, names[i], path));
        if (sw_ckpt_parse_name(names[i], CKPT_RETIRED, &step)) {
            SW_TRY(heal_retired(dir, path, step));
        } else if (sw_ckpt_is_unfinished(names[i])) {
            sw_log(SW_LOG_WARN, "removing %s, which an earlier run left unfinished", path);
            if (sw_ckpt_remove(path) <
                0) { /* a rank of it may be slow to end; nothing needs the name */
                sw_log(SW_LOG_WARN, "it cannot be removed for now: %s", sw_error_message());
            }
        }
    }
    return SW_OK;
}

sw_status sw_ckpt_heal(const char *dir)
{
    struct sw_arena arena;
    sw_arena_init(&arena, "checkpoint");
    const sw_status st = heal(dir, &arena);
    sw_arena_fini(&arena);
    SW_TRY(st);
    return SW_OK;
}
