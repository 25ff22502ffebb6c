// SPDX-License-Identifier: Apache-2.0
// Whole small files: configuration, vocabularies, manifests. Writing is atomic and durable: a
// reader, and a machine after a loss of power, sees the old file or the new one and never a part.
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

enum { COPY_BYTES = 1 << 18 };

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

/* O_NONBLOCK: a FIFO that nobody writes to, or a terminal line, must not hold us up before we know
 * what it is. It is taken back, because requests of an io_uring heed it on regular files, too. */
static sw_status check_regular(int fd, const char *path, size_t *out_bytes)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return fail_io("read", path);
    }
    if (!S_ISREG(info.st_mode)) {
        return SW_FAIL(SW_E_IO, "cannot read %s: %s", path,
                       S_ISDIR(info.st_mode) ? "it is a folder" : "it is not a regular file");
    }
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0) {
        return fail_io("read", path);
    }
    *out_bytes = (size_t)info.st_size;
    return SW_OK;
}

/* A clone made without Git LFS has small text files in the place of large ones. Source:
 * https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md */
static sw_status check_contents(int fd, const char *path, size_t bytes)
{
    static const char first[] = "version https://git-lfs.github.com/spec/";
    enum { MOST_BYTES = 1023 };
    char begin[sizeof first - 1];
    if (bytes < sizeof begin || bytes > MOST_BYTES ||
        pread(fd, begin, sizeof begin, 0) != (ssize_t)sizeof begin ||
        memcmp(begin, first, sizeof begin) != 0) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_FORMAT,
                   "%s is a Git LFS pointer of %zu bytes, not the file that it stands for: run "
                   "\"git lfs pull\" in its folder",
                   path, bytes);
}

sw_status sw_file_open(const char *path, int *out_fd, size_t *out_bytes)
{
    const int fd = open_retry(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0) {
        return fail_io("read", path);
    }
    sw_status st = check_regular(fd, path, out_bytes);
    st = st < 0 ? st : check_contents(fd, path, *out_bytes);
    if (st < 0) {
        close(fd);
        return st;
    }
    *out_fd = fd;
    return SW_OK;
}

sw_status sw_file_read_at(int fd, const char *path, void *out, size_t bytes, int64_t at)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pread(fd, (char *)out + done, bytes - done, (off_t)at + (off_t)done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fail_io("read", path);
        }
        if (n == 0) {
            return SW_FAIL(SW_E_IO,
                           "%s became shorter while it was read: it ends at byte %lld, wanted %zu "
                           "bytes from %lld on",
                           path, (long long)(at + (int64_t)done), bytes, (long long)at);
        }
        done += (size_t)n;
    }
    return SW_OK;
}

sw_status sw_file_read(const char *path, char **out, size_t *out_len)
{
    sw_status st;
    int fd;
    size_t len;
    SW_TRY(sw_file_open(path, &fd, &len));
    char *text = sw_alloc("file", len + 1);
    st = text ? sw_file_read_at(fd, path, text, len, 0)
              : SW_FAIL(SW_E_NOMEM, "out of host memory for %s", path);
    close(fd);
    if (st < 0) {
        sw_free(text);
        return st;
    }
    text[len] = '\0';
    *out = text;
    *out_len = len;
    return SW_OK;
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

/* Opens a new file beside `path`; another process, thread or a killed run may hold other such
 * names. */
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

/* What a new file is to hold: bytes in memory, or those of another file. */
struct contents {
    const void *data; /* NULL: from `fd` */
    size_t len;
    int fd;
    const char *path; /* of fd */
};

static sw_status copy_all(int fd, const char *path, const struct contents *from)
{
    char *block = sw_alloc("file", COPY_BYTES);
    sw_status st = block ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for %s", path);
    for (size_t at = 0; at < from->len && st >= 0; at += COPY_BYTES) {
        const size_t n = from->len - at < COPY_BYTES ? from->len - at : COPY_BYTES;
        st = sw_file_read_at(from->fd, from->path, block, n, (int64_t)at);
        if (st >= 0 && !write_all(fd, block, n)) {
            st = fail_io("write", path);
        }
    }
    sw_free(block);
    return st;
}

static sw_status fill(int fd, const char *path, const struct contents *contents)
{
    if (!contents->data) {
        SW_TRY(copy_all(fd, path, contents));
    } else if (!write_all(fd, contents->data, contents->len)) {
        return fail_io("write", path);
    }
    return !fault("fsync") && fsync(fd) == 0 ? SW_OK : fail_io("write", path);
}

static sw_status write_new(const char *path, const struct contents *contents)
{
    char temp[PATH_MAX];
    const int fd = open_beside(path, temp, sizeof(temp));
    if (fd < 0) {
        return fail_io("create a file beside", path);
    }
    sw_status st = fill(fd, path, contents);
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

sw_status sw_file_write_atomic(const char *path, const void *data, size_t len)
{
    return write_new(path, &(struct contents){.data = data, .len = len, .fd = -1});
}

sw_status sw_file_copy(const char *from, const char *to)
{
    struct contents contents = {.path = from};
    SW_TRY(sw_file_open(from, &contents.fd, &contents.len));
    const sw_status st = write_new(to, &contents);
    close(contents.fd);
    return st;
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
