// SPDX-License-Identifier: Apache-2.0
// The order of a save: everything durable under a name that no reader takes for a checkpoint, then
// one rename; the markers after it; deletion last. At every moment the newest checkpoint that was
// ever reported as saved can be read.
#include "ckpt/private.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A token that is unique to this save, among all machines, threads and earlier runs. */
static uint64_t draw_token(const struct sw_ckpt_lock *lock)
{
    char host[256] = "";
    struct timespec now;
    const long pid = (long)getpid();
    clock_gettime(CLOCK_REALTIME, &now);
    gethostname(host, sizeof(host) - 1);
    uint64_t h = sw_hash_str(SW_HASH_INIT, host);
    h = sw_hash(h, &pid, sizeof(pid));
    h = sw_hash(h, &now.tv_sec, sizeof(now.tv_sec));
    h = sw_hash(h, &now.tv_nsec, sizeof(now.tv_nsec));
    return sw_hash(h, &lock, sizeof(lock)); /* no two threads have the same one */
}

sw_status sw_ckpt_begin(const struct sw_ckpt_lock *lock, int64_t step, uint64_t *out_token)
{
    if (step < 0) {
        return SW_FAIL(SW_E_ARG, "checkpoint of step %lld", (long long)step);
    }
    char path[PATH_MAX];
    const char *dir = sw_ckpt_lock_dir(lock);
    const uint64_t token = draw_token(lock);
    SW_TRY(sw_ckpt_unfinished(dir, step, token, path));
    SW_TRY(sw_ckpt_heal(dir));
    SW_TRY(sw_ckpt_make_folder(path));
    *out_token = token;
    return SW_OK;
}

void sw_ckpt_drop(const struct sw_ckpt_lock *lock, int64_t step, uint64_t token)
{
    char path[PATH_MAX], reason[1024];
    snprintf(reason, sizeof(reason), "%s", sw_error_message());
    if (sw_ckpt_unfinished(sw_ckpt_lock_dir(lock), step, token, path) < 0 ||
        !sw_ckpt_exists(path)) {
        return;
    }
    if (sw_ckpt_remove(path) < 0) {
        sw_log(SW_LOG_WARN, "%s", sw_error_message());
        SW_FAIL(SW_E_IO, "%s", reason); /* the caller reports why the save failed */
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

/* Renames the unfinished folder to its final name. A checkpoint of the same step is renamed first;
 * readers find it under its other name meanwhile. */
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

/* The new name is durable before the first file goes: a machine that stops in between finds either
 * the whole checkpoint or one that does not look like any. */
static sw_status retire(const char *dir, const char *path, const char *retired)
{
    if (sw_ckpt_exists(path)) {
        SW_TRY(sw_ckpt_rename(path, retired));
        SW_TRY(sw_ckpt_sync_folder(dir));
    }
    SW_TRY(sw_ckpt_remove(retired));
    return SW_OK;
}

/* Deletes old checkpoints. One that cannot be deleted is logged, and the next save deletes it. */
static void keep_newest(const char *dir, int keep_last, const struct sw_ckpt_list *list)
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
        if (sw_ckpt_folder(dir, item->step, "", path) < 0 ||
            sw_ckpt_folder(dir, item->step, CKPT_RETIRED, retired) < 0 ||
            retire(dir, path, retired) < 0) {
            sw_log(SW_LOG_WARN, "cannot remove the old %s for now: %s", item->path,
                   sw_error_message());
        }
    }
}

static sw_status write_markers(const char *dir, const struct sw_ckpt_list *list)
{
    const struct sw_ckpt_summary *best = sw_ckpt_best(list);
    SW_TRY(write_marker(dir, "latest", list->items[0].name));
    if (best) {
        SW_TRY(write_marker(dir, "best", best->name));
    }
    return SW_OK;
}

/* The checkpoint is complete here. Later failures are reported and do not undo it. */
static sw_status mark_and_clean(const struct sw_ckpt_save_options *options, int64_t step,
                                const char *retired)
{
    const char *dir = sw_ckpt_lock_dir(options->lock);
    struct sw_ckpt_list list;
    SW_TRY(sw_ckpt_list(dir, &list));
    if (list.n_items == 0 || !list.items[0].complete || list.items[0].step != step) {
        sw_ckpt_list_fini(&list);
        return SW_FAIL(SW_E_IO, "%s: the checkpoint of step %lld cannot be read back", dir,
                       (long long)step);
    }
    const sw_status st = write_markers(dir, &list);
    if (st < 0) {
        sw_fail_prefix(st, "%s is saved, but", list.items[0].path);
        sw_ckpt_list_fini(&list);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    if (sw_ckpt_exists(retired) && sw_ckpt_remove(retired) < 0) {
        sw_log(SW_LOG_WARN, "cannot remove the old %s for now: %s", retired, sw_error_message());
    }
    keep_newest(dir, options->keep_last, &list);
    sw_ckpt_list_fini(&list);
    return SW_OK;
}

sw_status sw_ckpt_commit(const struct sw_ckpt_save_options *options,
                         const struct sw_ckpt_meta *meta, uint64_t token, int n_ranks)
{
    const char *dir = sw_ckpt_lock_dir(options->lock);
    char unfinished[PATH_MAX], path[PATH_MAX], retired[PATH_MAX];
    int64_t serial;
    if (n_ranks < 1) {
        return SW_FAIL(SW_E_ARG, "checkpoint by %d writers", n_ranks);
    }
    SW_TRY(sw_ckpt_unfinished(dir, meta->step, token, unfinished));
    SW_TRY(sw_ckpt_folder(dir, meta->step, "", path));
    SW_TRY(sw_ckpt_folder(dir, meta->step, CKPT_RETIRED, retired));
    SW_TRY(next_serial(dir, &serial));
    SW_TRY(sw_ckpt_manifest_write(unfinished, meta, serial, n_ranks));
    SW_TRY(publish(dir, unfinished, path, retired));
    SW_TRY(mark_and_clean(options, meta->step, retired));
    return SW_OK;
}

sw_status sw_ckpt_save(const struct sw_ckpt_save_options *options, const struct sw_ckpt_meta *meta,
                       const struct sw_ckpt_tensor *tensors, int64_t n_tensors,
                       sw_ckpt_read_fn read, void *ctx)
{
    const char *dir = sw_ckpt_lock_dir(options->lock);
    uint64_t token;
    SW_TRY(sw_ckpt_begin(options->lock, meta->step, &token));
    sw_status st = sw_ckpt_write_part(dir, meta->step, token, 0, tensors, n_tensors, read, ctx);
    st = st < 0 ? st : sw_ckpt_commit(options, meta, token, 1);
    if (st < 0) {
        sw_ckpt_drop(options->lock, meta->step, token);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    return SW_OK;
}
