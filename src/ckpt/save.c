// SPDX-License-Identifier: Apache-2.0
// The order of a save: everything durable under a name that no reader takes for a checkpoint, then one
// rename; the markers after it; deletion last. At every moment the newest checkpoint that was ever
// reported as saved can be read.
#include "ckpt/private.h"

#include <stdio.h>
#include <string.h>

sw_status sw_ckpt_begin(const char *dir, int64_t step)
{
    if (step < 0) {
        return SW_FAIL(SW_E_ARG, "checkpoint of step %lld", (long long)step);
    }
    char path[PATH_MAX];
    SW_TRY(sw_ckpt_folder(dir, step, CKPT_UNFINISHED, path));
    SW_TRY(sw_ckpt_make_folders(dir));
    SW_TRY(sw_ckpt_heal(dir));
    SW_TRY(sw_ckpt_make_folder(path));
    return SW_OK;
}

void sw_ckpt_drop(const char *dir, int64_t step)
{
    char path[PATH_MAX], reason[1024];
    snprintf(reason, sizeof(reason), "%s", sw_error_message());
    if (sw_ckpt_folder(dir, step, CKPT_UNFINISHED, path) < 0 || !sw_ckpt_exists(path)) {
        return;
    }
    if (sw_ckpt_remove(path) < 0) {
        sw_log(SW_LOG_WARN, "%s", sw_error_message());
        SW_FAIL(SW_E_IO, "%s", reason); /* what made the save fail is what the caller reports */
    }
}

/* ---- commit ---- */

static sw_status next_serial(const char *dir, int64_t *out)
{
    struct sw_ckpt_list list;
    int64_t serial = 0;
    SW_TRY(sw_ckpt_list(dir, &list));
    for (int64_t i = 0; i < list.n_items; i++) {
        serial = sw_max_i64(serial, list.items[i].serial);
    }
    sw_ckpt_list_fini(&list);
    *out = serial + 1;
    return SW_OK;
}

/* A checkpoint of the same step steps aside first; readers know it by its other name meanwhile. */
static sw_status publish(const char *dir, const char *unfinished, const char *path,
                         const char *retired)
{
    if (sw_ckpt_exists(path)) {
        SW_TRY(sw_ckpt_rename(path, retired));
        SW_TRY(sw_ckpt_sync_folder(dir));
    }
    SW_TRY(sw_ckpt_rename(unfinished, path));
    SW_TRY(sw_ckpt_sync_folder(dir));
    return SW_OK;
}

static sw_status write_marker(const char *dir, const char *marker, const char *name)
{
    char path[PATH_MAX], text[256];
    SW_TRY(sw_ckpt_join(dir, marker, path));
    const int len = snprintf(text, sizeof(text), "%s\n", name);
    SW_TRY(sw_file_write_atomic(path, text, (size_t)len));
    return SW_OK;
}

/* The new name is durable before the first file goes: a machine that stops in between finds either the
 * whole checkpoint or one that does not look like any. */
static sw_status retire(const char *dir, const char *path, const char *retired)
{
    if (sw_ckpt_exists(path)) {
        SW_TRY(sw_ckpt_rename(path, retired));
        SW_TRY(sw_ckpt_sync_folder(dir));
    }
    SW_TRY(sw_ckpt_remove(retired));
    return SW_OK;
}

static sw_status keep_newest(const char *dir, int keep_last, const struct sw_ckpt_list *list)
{
    const struct sw_ckpt_summary *best = sw_ckpt_best(list);
    int64_t n_kept = 0;
    for (int64_t i = 0; i < list->n_items && keep_last > 0; i++) {
        const struct sw_ckpt_summary *item = &list->items[i];
        if (!item->complete || item->problem) {
            continue; /* not ours to judge */
        }
        if (n_kept < keep_last || item == best) {
            n_kept++;
            continue;
        }
        char path[PATH_MAX], retired[PATH_MAX];
        SW_TRY(sw_ckpt_folder(dir, item->step, "", path));
        SW_TRY(sw_ckpt_folder(dir, item->step, CKPT_RETIRED, retired));
        SW_TRY(retire(dir, path, retired));
    }
    return SW_OK;
}

static sw_status mark_and_clean(const struct sw_ckpt_save_options *options, int64_t step,
                                const char *retired)
{
    struct sw_ckpt_list list;
    sw_status st;
    SW_TRY(sw_ckpt_list(options->dir, &list));
    if (list.n_items == 0 || !list.items[0].complete || list.items[0].step != step) {
        st = SW_FAIL(SW_E_IO, "%s: the checkpoint of step %lld cannot be read back", options->dir,
                     (long long)step);
        goto fini_list;
    }
    SW_TRY_OR(fini_list, write_marker(options->dir, "latest", list.items[0].name));
    const struct sw_ckpt_summary *best = sw_ckpt_best(&list);
    if (best) {
        SW_TRY_OR(fini_list, write_marker(options->dir, "best", best->name));
    }
    /* From here on the save is done: what cannot be deleted now is deleted by the next. */
    if ((sw_ckpt_exists(retired) && sw_ckpt_remove(retired) < 0) ||
        keep_newest(options->dir, options->keep_last, &list) < 0) {
        sw_log(SW_LOG_WARN, "an old checkpoint stays for now: %s", sw_error_message());
    }
fini_list:
    sw_ckpt_list_fini(&list);
    return st;
}

sw_status sw_ckpt_commit(const struct sw_ckpt_save_options *options,
                         const struct sw_ckpt_meta *meta, int n_ranks)
{
    char unfinished[PATH_MAX], path[PATH_MAX], retired[PATH_MAX];
    int64_t serial;
    if (n_ranks < 1) {
        return SW_FAIL(SW_E_ARG, "checkpoint by %d writers", n_ranks);
    }
    SW_TRY(sw_ckpt_folder(options->dir, meta->step, CKPT_UNFINISHED, unfinished));
    SW_TRY(sw_ckpt_folder(options->dir, meta->step, "", path));
    SW_TRY(sw_ckpt_folder(options->dir, meta->step, CKPT_RETIRED, retired));
    SW_TRY(next_serial(options->dir, &serial));
    SW_TRY(sw_ckpt_manifest_write(unfinished, meta, serial, n_ranks));
    SW_TRY(publish(options->dir, unfinished, path, retired));
    SW_TRY(mark_and_clean(options, meta->step, retired));
    return SW_OK;
}

static sw_status save(const struct sw_ckpt_save_options *options, const struct sw_ckpt_meta *meta,
                      const struct sw_ckpt_tensor *tensors, int64_t n_tensors, sw_ckpt_read_fn read,
                      void *ctx)
{
    SW_TRY(sw_ckpt_begin(options->dir, meta->step));
    SW_TRY(sw_ckpt_write_part(options->dir, meta->step, 0, tensors, n_tensors, read, ctx));
    SW_TRY(sw_ckpt_commit(options, meta, 1));
    return SW_OK;
}

sw_status sw_ckpt_save(const struct sw_ckpt_save_options *options, const struct sw_ckpt_meta *meta,
                       const struct sw_ckpt_tensor *tensors, int64_t n_tensors,
                       sw_ckpt_read_fn read, void *ctx)
{
    const sw_status st = save(options, meta, tensors, n_tensors, read, ctx);
    if (st < 0) {
        sw_ckpt_drop(options->dir, meta->step);
    }
    return st;
}
