// SPDX-License-Identifier: Apache-2.0
// Files that are read by name, and folders. A reader opens regular files only, and never waits for
// anything else. Writing is in output.c.
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static sw_status fail_io(const char *what, const char *path)
{
    return SW_FAIL(SW_E_IO, "cannot %s %s: %s", what, path, strerror(errno));
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
    int fd;
    do {
        fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
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

/* ---- folders ---- */

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

bool sw_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

sw_status sw_each_folder(const char *path, sw_status (*make)(const char *folder))
{
    char part[PATH_MAX];
    const size_t len = strlen(path);
    if (len == 0 || len >= sizeof(part)) {
        return SW_FAIL(SW_E_ARG, "cannot make the folder \"%s\": its name has %zu characters", path,
                       len);
    }
    /* Each prefix that ends before a slash, then the whole. */
    for (size_t i = 1; i <= len; i++) {
        if ((path[i] != '/' && path[i] != '\0') || path[i - 1] == '/') {
            continue;
        }
        memcpy(part, path, i);
        part[i] = '\0';
        SW_TRY(make(part));
    }
    return SW_OK;
}

static sw_status make_folder(const char *folder)
{
    const bool made = sw_is_folder(folder) ||
                      (!sw_fault_fails("mkdir", NULL) && mkdir(folder, 0777) == 0) ||
                      (errno == EEXIST && sw_is_folder(folder)); /* another job was faster */
    return made ? SW_OK : fail_io("make the folder", folder);
}

sw_status sw_mkdirs(const char *path)
{
    return sw_each_folder(path, make_folder);
}
