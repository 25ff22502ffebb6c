// SPDX-License-Identifier: Apache-2.0
// Whole small files: configuration, vocabularies, manifests. Writing is atomic and durable: a reader,
// and a machine after a loss of power, sees the old file or the new one and never a part.
// The system calls that change the disk are fault points: "write", "fsync", "rename".
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static sw_status fail_io(const char *what, const char *path)
{
    return SW_FAIL(SW_E_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

/* Sets errno as the system would when a test asked for a failure here. */
static bool fault(const char *point)
{
    switch (sw_fault_point(point)) {
    case SW_FAULT_EIO:
        errno = EIO;
        return true;
    case SW_FAULT_ENOSPC:
        errno = ENOSPC;
        return true;
    default:
        return false;
    }
}

static int open_retry(const char *path, int flags, mode_t mode)
{
    int fd;
    do {
        fd = open(path, flags | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

/* ---- reading ---- */

static sw_status read_fd(int fd, const char *path, char **out, size_t *out_len)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return fail_io("read", path);
    }
    if (!S_ISREG(info.st_mode)) {
        return SW_FAIL(SW_E_IO, "cannot read %s: %s", path,
                       S_ISDIR(info.st_mode) ? "it is a folder" : "it is not a regular file");
    }
    const size_t len = (size_t)info.st_size;
    char *text = sw_alloc("file", len + 1);
    SW_TRY_ALLOC(text, path);
    size_t done = 0;
    while (done < len) {
        const ssize_t n = read(fd, text + done, len - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            const sw_status st = fail_io("read", path);
            sw_free(text);
            return st;
        }
        if (n == 0) {
            break; /* it became shorter while we read */
        }
        done += (size_t)n;
    }
    text[done] = '\0';
    *out = text;
    *out_len = done;
    return SW_OK;
}

sw_status sw_file_read(const char *path, char **out, size_t *out_len)
{
    const int fd = open_retry(path, O_RDONLY, 0);
    if (fd < 0) {
        return fail_io("read", path);
    }
    const sw_status st = read_fd(fd, path, out, out_len);
    close(fd);
    return st;
}

/* ---- writing ---- */

static bool write_all(int fd, const void *data, size_t len)
{
    const char *next = data;
    while (len > 0) {
        const enum sw_fault_action action = sw_fault_point("write");
        if (action == SW_FAULT_EIO || action == SW_FAULT_ENOSPC) {
            errno = action == SW_FAULT_EIO ? EIO : ENOSPC;
            return false;
        }
        const size_t ask = action == SW_FAULT_SHORT ? (len + 1) / 2 : len;
        const ssize_t n = write(fd, next, ask);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return false;
        }
        next += n;
        len -= (size_t)n;
    }
    return true;
}

bool sw_folder_of(const char *path, char *out, size_t cap)
{
    const char *slash = strrchr(path, '/');
    const size_t len = !slash || slash == path ? 1 : (size_t)(slash - path);
    if (len >= cap) {
        return false;
    }
    memcpy(out, slash ? path : ".", len);
    out[len] = '\0';
    return true;
}

/* The name is in the folder only when the folder itself was synced. */
static sw_status sync_folder_of(const char *path)
{
    char folder[PATH_MAX];
    if (!sw_folder_of(path, folder, sizeof(folder))) {
        errno = ENAMETOOLONG;
        return fail_io("sync the folder of", path);
    }
    const int fd = open_retry(folder, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) {
        return fail_io("open the folder", folder);
    }
    const bool synced = !fault("fsync") && fsync(fd) == 0;
    const sw_status st = synced ? SW_OK : fail_io("sync the folder", folder);
    close(fd);
    return st;
}

/* Opens a new file beside `path`; another process, thread or a killed run may hold other such names. */
static int open_beside(const char *path, char *temp, size_t cap)
{
    static _Atomic unsigned serial;
    for (int i_try = 0; i_try < 1000; i_try++) {
        const unsigned n = atomic_fetch_add_explicit(&serial, 1, memory_order_relaxed);
        const int len = snprintf(temp, cap, "%s.%ld-%u.tmp", path, (long)getpid(), n);
        if (len < 0 || (size_t)len >= cap) {
            errno = ENAMETOOLONG;
            return -1;
        }
        const int fd = open_retry(temp, O_WRONLY | O_CREAT | O_EXCL, 0666);
        if (fd >= 0 || errno != EEXIST) {
            return fd;
        }
    }
    return -1;
}

sw_status sw_file_write_atomic(const char *path, const void *data, size_t len)
{
    char temp[PATH_MAX];
    const int fd = open_beside(path, temp, sizeof(temp));
    if (fd < 0) {
        return fail_io("create a file beside", path);
    }
    const bool written = write_all(fd, data, len) && !fault("fsync") && fsync(fd) == 0;
    sw_status st = written ? SW_OK : fail_io("write", path);
    if (close(fd) != 0 && st == SW_OK) {
        st = fail_io("write", path);
    }
    if (st == SW_OK && (fault("rename") || rename(temp, path) != 0)) {
        st = fail_io("rename a new file to", path);
    }
    if (st < 0) {
        unlink(temp);
        return st;
    }
    return sync_folder_of(path);
}

/* ---- folders ---- */

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

sw_status sw_mkdirs(const char *path)
{
    char part[PATH_MAX];
    const size_t len = strlen(path);
    if (len == 0 || len >= sizeof(part)) {
        return SW_FAIL(SW_E_ARG, "cannot make the folder \"%s\": its name has %zu characters", path,
                       len);
    }
    /* Each prefix that ends before a slash, then the whole. */
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && (errno != EEXIST || !is_folder(part))) {
            return fail_io("make the folder", part);
        }
    }
    return SW_OK;
}
