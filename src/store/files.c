// SPDX-License-Identifier: Apache-2.0
// The files under a store: opened, locked, checked for space, and extended. If opening fails, the
// store removes the files that it created, and others get their old length.
#include "store/private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static sw_status fail_io(const char *what, const char *path)
{
    return SW_FAIL(SW_E_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

/* Bytes of the store's range on one file: whole stripes, except for the last one. */
static int64_t share(const struct sw_nvme *store, int i_file)
{
    const int64_t unit = store->options.stripe_bytes, n = store->n_files;
    if (n == 1) {
        return store->bytes;
    }
    const int64_t n_stripes = store->bytes / unit, rest = store->bytes % unit;
    const int64_t whole = n_stripes / n + (i_file < n_stripes % n);
    return whole * unit + (i_file == n_stripes % n ? rest : 0);
}

/* ---- opening ---- */

static sw_status lock(const struct sw_nvme *store, const struct store_file *file)
{
    const int how = (store->options.read_only ? LOCK_SH : LOCK_EX) | LOCK_NB;
    if (flock(file->fd, how) == 0) {
        return SW_OK;
    }
    if (errno == EWOULDBLOCK) {
        return SW_FAIL(SW_E_IO, "%s is open in another store or process", file->path);
    }
    sw_log(SW_LOG_WARN, "%s cannot be locked against other processes: %s", file->path,
           strerror(errno));
    return SW_OK;
}

static int open_retry(const char *path, int flags)
{
    int fd;
    do {
        fd = open(path, flags | O_CLOEXEC, 0600);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

/* An existing file is opened only if the caller declares it as his; no file is ever truncated.
 * O_NONBLOCK keeps a FIFO from blocking the open; it is cleared afterwards. */
static sw_status open_path(const struct sw_nvme *store, struct store_file *file)
{
    const struct sw_nvme_options *o = &store->options;
    if (o->reopen) {
        file->fd = open_retry(file->path, (o->read_only ? O_RDONLY : O_RDWR) | O_NONBLOCK);
        return file->fd >= 0 ? SW_OK : fail_io("open", file->path);
    }
    file->fd = open_retry(file->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
    file->made = file->fd >= 0;
    if (file->fd < 0 && errno == EEXIST) {
        return SW_FAIL(SW_E_IO, "%s exists; reopen it, or remove it", file->path);
    }
    return file->fd >= 0 ? SW_OK : fail_io("open", file->path);
}

static sw_status open_file(const struct sw_nvme *store, struct store_file *file)
{
    const struct sw_nvme_options *o = &store->options;
    struct stat info;
    if (file->fd < 0) {
        SW_TRY(open_path(store, file));
    }
    const int flags = fcntl(file->fd, F_GETFL);
    if (flags < 0 || fcntl(file->fd, F_SETFL, flags & ~O_NONBLOCK) != 0 ||
        fstat(file->fd, &info) != 0) {
        return fail_io("open", file->path);
    }
    if (!S_ISREG(info.st_mode)) {
        return SW_FAIL(SW_E_IO, "cannot open %s: it is not a regular file", file->path);
    }
    if (!o->reopen && info.st_size > 0) {
        return SW_FAIL(SW_E_ARG, "%s: the given file has %lld bytes, wanted an empty one",
                       file->path, (long long)info.st_size);
    }
    SW_TRY(lock(store, file));
    file->bytes = o->reopen ? info.st_size : 0;
    return SW_OK;
}

/* ---- space ---- */

/* Files on one file system share its free space. */
static sw_status check_space(const struct sw_nvme *store, int i_file, int64_t granule)
{
    struct stat mine, other;
    struct statvfs fs;
    int64_t missing = 0;
    if (fstat(store->files[i_file].fd, &mine) != 0 || fstatvfs(store->files[i_file].fd, &fs) != 0) {
        return fail_io("ask for the space of", store->files[i_file].path);
    }
    for (int i = 0; i < store->n_files; i++) {
        if (fstat(store->files[i].fd, &other) == 0 && other.st_dev == mine.st_dev) {
            const int64_t whole = sw_ceil_div(share(store, i), granule) * granule;
            missing += sw_max_i64(0, whole - (int64_t)other.st_blocks * 512);
        }
    }
    const uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
    if ((uint64_t)missing > available) {
        char wanted[32], there[32];
        return SW_FAIL(SW_E_NOMEM, "%s: %s more are needed there, %s are free (missing %llu bytes)",
                       store->files[i_file].path,
                       sw_format_bytes(wanted, sizeof wanted, (double)missing),
                       sw_format_bytes(there, sizeof there, (double)available),
                       (unsigned long long)((uint64_t)missing - available));
    }
    return SW_OK;
}

static int reserve(int fd, int64_t bytes)
{
    int error;
    if (sw_fault_point("preallocate") != SW_FAULT_NONE) {
        return ENOSPC;
    }
    do {
        error = fallocate(fd, 0, 0, (off_t)bytes) == 0 ? 0 : errno;
    } while (error == EINTR);
    return error;
}

/* Extends the file to at least `bytes`, and reserves the space if the file system can. */
static sw_status lengthen(struct sw_nvme *store, struct store_file *file, int64_t bytes)
{
    if (bytes > file->bytes && file->grown_from < 0) {
        file->grown_from = file->bytes;
    }
    if (store->options.preallocate && bytes > 0) {
        const int error = reserve(file->fd, bytes);
        if (error == ENOSPC || error == EDQUOT) {
            return SW_FAIL(SW_E_NOMEM, "%s: no space for %lld bytes: %s", file->path,
                           (long long)bytes, strerror(error));
        }
        if (error != 0 && error != EOPNOTSUPP && error != ENOSYS) {
            errno = error;
            return fail_io("reserve the space of", file->path);
        }
        store->preallocated = store->preallocated && error == 0;
    }
    if (bytes > file->bytes) {
        if (ftruncate(file->fd, (off_t)bytes) != 0) {
            return fail_io("lengthen", file->path);
        }
        file->bytes = bytes;
    }
    return SW_OK;
}

/* ---- the range ---- */

static sw_status find_bytes(struct sw_nvme *store)
{
    const struct sw_nvme_options *o = &store->options;
    if (store->bytes == 0 && o->reopen && store->n_files == 1) {
        store->bytes = store->files[0].bytes;
    }
    if (store->bytes <= 0) {
        return SW_FAIL(SW_E_ARG, "%s: a store of %lld bytes", store->files[0].path,
                       (long long)store->bytes);
    }
    for (int i = 0; i < store->n_files && o->reopen; i++) {
        if (store->files[i].bytes < share(store, i) && (o->read_only || store->n_files > 1)) {
            return SW_FAIL(SW_E_FORMAT, "%s has %lld bytes, wanted %lld", store->files[i].path,
                           (long long)store->files[i].bytes, (long long)share(store, i));
        }
    }
    return SW_OK;
}

sw_status sw_store_files_open(struct sw_nvme *store)
{
    for (int i = 0; i < store->n_files; i++) {
        SW_TRY(open_file(store, &store->files[i]));
    }
    SW_TRY(find_bytes(store));
    store->written_before = store->options.reopen ? store->files[0].bytes : 0;
    if (store->n_files > 1 && store->options.reopen) {
        store->written_before = store->bytes;
    }
    return SW_OK;
}

/* Extends every file to its share in whole granules, and to at least one granule. */
sw_status sw_store_files_lengthen(struct sw_nvme *store, int64_t granule)
{
    if (store->options.read_only) {
        return SW_OK;
    }
    store->preallocated = store->options.preallocate;
    for (int i = 0; i < store->n_files && store->options.preallocate; i++) {
        SW_TRY(check_space(store, i, granule));
    }
    for (int i = 0; i < store->n_files; i++) {
        const int64_t whole = sw_ceil_div(share(store, i), granule) * granule;
        SW_TRY(lengthen(store, &store->files[i], whole));
    }
    return SW_OK;
}

/* ---- O_DIRECT ---- */

static bool set_direct(const struct store_file *file, bool on)
{
    const int flags = fcntl(file->fd, F_GETFL);
    return flags >= 0 && fcntl(file->fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

sw_status sw_store_files_direct(struct sw_nvme *store)
{
    bool all = store->options.direct != SW_NVME_DIRECT_OFF;
    store->align = store->memory_align = 1;
    for (int i = 0; i < store->n_files && all; i++) {
        struct alignment a = {.direct = false};
        if (set_direct(&store->files[i], true)) {
            sw_store_alignment(store->files[i].fd, store->files[i].path, &a);
        }
        if (!a.direct && store->options.direct == SW_NVME_DIRECT_ON) {
            return SW_FAIL(SW_E_UNSUP, "%s: its file system has no O_DIRECT", store->files[i].path);
        }
        all = a.direct;
        store->align = a.offset > store->align ? a.offset : store->align;
        store->memory_align = a.memory > store->memory_align ? a.memory : store->memory_align;
    }
    store->direct = all;
    if (!all) {
        store->align = store->memory_align = 1;
        for (int i = 0; i < store->n_files; i++) {
            set_direct(&store->files[i], false);
        }
    }
    return SW_OK;
}

/* ---- closing ---- */

static void undo(const struct store_file *file)
{
    if (file->made) {
        unlink(file->path);
    } else if (file->grown_from >= 0 && ftruncate(file->fd, (off_t)file->grown_from) != 0) {
        sw_log(SW_LOG_ERROR, "cannot give %s its length of %lld bytes back: %s", file->path,
               (long long)file->grown_from, strerror(errno));
    }
}

void sw_store_files_close(struct sw_nvme *store, bool failed)
{
    for (int i = 0; store->files && i < store->n_files; i++) {
        const struct store_file *file = &store->files[i];
        if (failed) {
            undo(file);
        }
        if (file->fd >= 0) {
            /* closing may be delayed by an io_uring that still holds the file */
            flock(file->fd, LOCK_UN);
            close(file->fd);
        }
        sw_free(file->path);
    }
    sw_free(store->files);
}

static sw_status remove_file(const char *path)
{
    if (unlink(path) != 0 && errno != ENOENT) {
        return fail_io("remove", path);
    }
    return SW_OK;
}

sw_status sw_nvme_remove(const char *const *paths, int n_paths)
{
    for (int i = 0; i < n_paths; i++) {
        SW_TRY(remove_file(paths[i]));
    }
    if (n_paths > 0) {
        char *side = sw_store_sums_path(paths[0]);
        SW_TRY_ALLOC(side, "the name of the checksums");
        const sw_status st = remove_file(side);
        sw_free(side);
        return st;
    }
    return SW_OK;
}
