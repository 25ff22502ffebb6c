// SPDX-License-Identifier: Apache-2.0
// Files that the program writes by name. It replaces regular files only, and each as a whole: a
// reader, and a machine after a loss of power, sees the old file or the new one and never a part.
//
// The new file is made beside the old one as NAME.spillway-PID-N.tmp. Its writer holds a lock on it
// until it has its final name. A file of such a name that can be locked has no writer any more: it
// was left by a process that was killed, and the next writer of NAME removes it. Where the file
// system has no locks, leftovers stay.
//
// The system calls that change the disk are fault points: "create", "write", "fsync", "rename".
#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define MARK ".spillway-"
#define ENDING ".tmp"
enum { COPY_BYTES = 1 << 18, MOST_NAME = 200, MOST_TRIES = 1000 };
enum { READER_WAIT_MS = 10000, POLL_MS = 20 };

static sw_status fail_io(const char *what, const char *path)
{
    return SW_FAIL(SW_E_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

static int open_retry(const char *path, int flags, mode_t mode)
{
    int fd;
    do {
        fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, mode);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

/* ---- what has the name ---- */

static bool is_null_device(const struct stat *info)
{
    return S_ISCHR(info->st_mode) && info->st_rdev == makedev(1, 3);
}

static const char *name_of(const struct stat *info)
{
    switch (info->st_mode & S_IFMT) {
    case S_IFDIR:
        return "a folder";
    case S_IFLNK:
        return "a symbolic link";
    case S_IFSOCK:
        return "a socket";
    case S_IFIFO:
        return "a FIFO";
    case S_IFBLK:
        return "a block device";
    case S_IFCHR:
        return "a character device";
    default:
        return "something unknown";
    }
}

static sw_status find_kind(const char *path, const struct stat *info, bool or_stream,
                           enum sw_output_kind *out)
{
    const bool is_stream = S_ISFIFO(info->st_mode) || is_null_device(info);
    if (!S_ISREG(info->st_mode) && !(or_stream && is_stream)) {
        return SW_FAIL(SW_E_IO, "cannot write %s: it is %s; wanted a regular file%s or a new name",
                       path, name_of(info),
                       or_stream ? ", a FIFO, /dev/null, /dev/stdout, /dev/stderr" : "");
    }
    *out = is_stream ? SW_OUTPUT_STREAM : SW_OUTPUT_REPLACES;
    return SW_OK;
}

static sw_status look(const char *path, bool or_stream, enum sw_output_kind *out)
{
    struct stat info;
    if (!*path) {
        return SW_FAIL(SW_E_IO, "cannot write \"\": wanted the name of a file");
    }
    if (lstat(path, &info) == 0) {
        return find_kind(path, &info, or_stream, out);
    }
    if (errno != ENOENT) {
        return fail_io("write", path);
    }
    *out = SW_OUTPUT_NEW;
    return SW_OK;
}

/* ---- streams ---- */

/* The descriptor that a name of the system stands for, or -1. It is written as it is open: a file
 * that standard output was redirected to is neither emptied nor replaced. */
static int descriptor_of(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "/dev/stdout") == 0 || strcmp(path, "/dev/stderr") == 0) {
        return strcmp(path, "/dev/stdout") == 0 ? STDOUT_FILENO : STDERR_FILENO;
    }
    for (size_t i = 0; i < SW_LEN(folders); i++) {
        const size_t len = strlen(folders[i]);
        const size_t digits =
            strncmp(path, folders[i], len) == 0 ? strspn(path + len, "0123456789") : 0;
        if (digits > 0 && digits < 8 && path[len + digits] == '\0') {
            return atoi(path + len);
        }
    }
    return -1;
}

static sw_status open_descriptor(const char *path, int fd, int *out)
{
    const int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY) {
        return SW_FAIL(SW_E_IO, "cannot write %s: it is open for reading only", path);
    }
    if (fd == STDOUT_FILENO) {
        fflush(stdout);
    }
    *out = flags < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    return *out >= 0 ? SW_OK : fail_io("write", path);
}

/* A FIFO can be opened for writing once somebody reads it. A program does not wait for that without
 * end. */
static sw_status open_stream(const char *path, int *out)
{
    const int64_t until = sw_now_ns() + READER_WAIT_MS * INT64_C(1000000);
    int fd;
    while ((fd = open_retry(path, O_WRONLY | O_NONBLOCK, 0)) < 0 && errno == ENXIO) {
        if (sw_now_ns() >= until) {
            return SW_FAIL(SW_E_IO, "cannot write %s: nobody read the FIFO within %d s", path,
                           READER_WAIT_MS / 1000);
        }
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000}, NULL);
    }
    struct stat info;
    const int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0 || fstat(fd, &info) != 0) {
        const sw_status st = fail_io("write", path);
        if (fd >= 0) {
            close(fd);
        }
        return st;
    }
    enum sw_output_kind kind;
    const sw_status st = find_kind(path, &info, true, &kind);
    if (st < 0) {
        close(fd);
        return st;
    }
    *out = fd;
    return SW_OK;
}

/* A reader that is gone is an error, EPIPE, and no signal that ends the program. */
static ssize_t write_some(int fd, const void *data, size_t len)
{
    sigset_t broken, before, pending;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    const ssize_t n = write(fd, data, len);
    const int error = errno;
    if (n < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE)) {
        sigtimedwait(&broken, NULL, &(struct timespec){0});
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return n;
}

/* ---- leftovers ---- */

static bool lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &whole) == 0;
}

/* The name of a file beside the path up to PID. A long name is cut, to leave room for the rest. */
static bool begin_temp(const char *path, char *out, size_t cap)
{
    const char *slash = strrchr(path, '/');
    const size_t folder = slash ? (size_t)(slash + 1 - path) : 0;
    size_t len = strlen(path) - folder;
    len = folder + (len < MOST_NAME ? len : MOST_NAME);
    if (len + sizeof MARK > cap) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(out, path, len);
    memcpy(out + len, MARK, sizeof MARK);
    return true;
}

static bool is_temp(const char *name, const char *begin)
{
    const size_t len = strlen(begin);
    const char *pid = name + len;
    if (strncmp(name, begin, len) != 0) {
        return false;
    }
    const char *serial = pid + strspn(pid, "0123456789");
    if (serial == pid || *serial++ != '-') {
        return false;
    }
    const char *end = serial + strspn(serial, "0123456789");
    return end != serial && strcmp(end, ENDING) == 0;
}

bool sw_output_is_temp(const char *entry, const char *name)
{
    char begin[PATH_MAX];
    return begin_temp(name, begin, sizeof begin) && is_temp(entry, begin);
}

/* Removes a file that has no writer any more, if it is as this program makes them. */
static void remove_leftover(const char *path)
{
    struct stat info, opened;
    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
        info.st_nlink != 1) {
        return;
    }
    const int fd = open_retry(path, O_RDWR | O_NONBLOCK, 0);
    if (fd < 0) {
        return;
    }
    if (lock(fd) && fstat(fd, &opened) == 0 && lstat(path, &info) == 0 &&
        opened.st_dev == info.st_dev && opened.st_ino == info.st_ino) {
        unlink(path);
    }
    close(fd);
}

static void remove_leftovers(const char *path)
{
    char begin[PATH_MAX], folder[PATH_MAX], name[2 * PATH_MAX];
    if (!begin_temp(path, begin, sizeof begin) || !sw_folder_of(path, folder, sizeof folder)) {
        return;
    }
    const char *slash = strrchr(begin, '/');
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (is_temp(entry->d_name, slash ? slash + 1 : begin)) {
            snprintf(name, sizeof name, "%.*s%s", slash ? (int)(slash + 1 - begin) : 0, begin,
                     entry->d_name);
            remove_leftover(name);
        }
    }
    if (dir) {
        closedir(dir);
    }
}

/* ---- the new file ---- */

/* Whether the file is this writer's: another process may have taken it for a leftover in the moment
 * before it was locked. */
static bool keep(int fd)
{
    struct stat info;
    const bool locked = lock(fd);
    return (locked || (errno != EAGAIN && errno != EACCES)) && fstat(fd, &info) == 0 &&
           info.st_nlink > 0;
}

static int make_temp(const char *path, char *temp, size_t cap)
{
    char begin[PATH_MAX];
    if (!begin_temp(path, begin, sizeof begin) || sw_fault_fails("create", NULL)) {
        return -1;
    }
    for (int i_try = 0; i_try < MOST_TRIES; i_try++) { /* other threads have their own */
        const int len = snprintf(temp, cap, "%s%ld-%d" ENDING, begin, (long)getpid(), i_try);
        if (len < 0 || (size_t)len >= cap) {
            errno = ENAMETOOLONG;
            return -1;
        }
        const int fd = open_retry(temp, O_RDWR | O_CREAT | O_EXCL, 0666);
        if (fd < 0 && errno != EEXIST) {
            return -1;
        }
        if (fd >= 0 && keep(fd)) {
            return fd;
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    errno = EEXIST;
    return -1;
}

static bool write_all(int fd, const void *data, size_t len)
{
    const char *next = data;
    while (len > 0) {
        size_t ask = len;
        if (sw_fault_fails("write", &ask)) {
            return false;
        }
        const ssize_t n = write_some(fd, next, ask);
        if (n < 0 && errno == EAGAIN) {
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        } else if (n < 0 && errno != EINTR) {
            return false;
        }
        next += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
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
    int fd;
    do {
        fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        return fail_io("open the folder", folder);
    }
    const bool synced = !sw_fault_fails("fsync", NULL) && fsync(fd) == 0;
    const sw_status st = synced ? SW_OK : fail_io("sync the folder", folder);
    close(fd);
    return st;
}

/* ---- outputs ---- */

sw_status sw_output_open(const char *path, bool or_stream, struct sw_output *out)
{
    struct sw_output o = {.fd = -1};
    const int descriptor = or_stream ? descriptor_of(path) : -1;
    if (descriptor >= 0) {
        o.kind = SW_OUTPUT_STREAM;
        SW_TRY(open_descriptor(path, descriptor, &o.fd));
    } else {
        SW_TRY(look(path, or_stream, &o.kind));
        if (o.kind == SW_OUTPUT_STREAM) {
            SW_TRY(open_stream(path, &o.fd));
        } else {
            remove_leftovers(path);
        }
    }
    o.path = sw_strdup("file", path);
    if (!o.path) {
        if (o.fd >= 0) {
            close(o.fd);
        }
        return SW_FAIL(SW_E_NOMEM, "out of host memory for %s", path);
    }
    *out = o;
    return SW_OK;
}

sw_status sw_output_begin(struct sw_output *out)
{
    char temp[PATH_MAX];
    if (out->kind == SW_OUTPUT_STREAM) {
        return SW_OK;
    }
    const int fd = make_temp(out->path, temp, sizeof temp);
    if (fd < 0) {
        return fail_io("create a file beside", out->path);
    }
    out->temp = sw_strdup("file", temp);
    if (!out->temp) {
        unlink(temp);
        close(fd);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for %s", out->path);
    }
    out->fd = fd;
    return SW_OK;
}

sw_status sw_output_add(struct sw_output *out, const void *data, size_t len)
{
    return write_all(out->fd, data, len) ? SW_OK : fail_io("write", out->path);
}

/* The lock goes with the descriptor, and must outlast the temporary name. */
static void discard(struct sw_output *out)
{
    if (out->temp) {
        unlink(out->temp);
    }
    if (out->fd >= 0) {
        close(out->fd);
    }
    sw_free(out->temp);
    out->temp = NULL;
    out->fd = -1;
}

sw_status sw_output_commit(struct sw_output *out, bool durable)
{
    enum sw_output_kind now;
    if (out->kind == SW_OUTPUT_STREAM) {
        return SW_OK;
    }
    if (durable && (sw_fault_fails("fsync", NULL) || fsync(out->fd) != 0)) {
        return fail_io("write", out->path);
    }
    SW_TRY(look(out->path, false, &now)); /* it may have become something else meanwhile */
    if (sw_fault_fails("rename", NULL) || rename(out->temp, out->path) != 0) {
        return fail_io("rename a new file to", out->path);
    }
    sw_free(out->temp);
    out->temp = NULL;
    const int fd = out->fd;
    out->fd = -1;
    if (close(fd) != 0) {
        return fail_io("write", out->path);
    }
    return durable ? sync_folder_of(out->path) : SW_OK;
}

sw_status sw_output_put(struct sw_output *out, const void *data, size_t len, bool durable)
{
    sw_status st = sw_output_begin(out);
    st = st < 0 ? st : sw_output_add(out, data, len);
    st = st < 0 ? st : sw_output_commit(out, durable);
    if (st < 0 && out->kind != SW_OUTPUT_STREAM) {
        discard(out);
    }
    return st;
}

void sw_output_close(struct sw_output *out)
{
    if (out->path) {
        discard(out);
        sw_free(out->path);
        *out = (struct sw_output){.fd = -1};
    }
}

/* ---- whole files ---- */

static sw_status write_whole(const char *path, bool or_stream, const void *data, size_t len)
{
    struct sw_output out;
    SW_TRY(sw_output_open(path, or_stream, &out));
    const sw_status st = sw_output_put(&out, data, len, true);
    sw_output_close(&out);
    return st;
}

sw_status sw_output_text(const char *path, const void *data, size_t len)
{
    return write_whole(path, true, data, len);
}

sw_status sw_file_write_atomic(const char *path, const void *data, size_t len)
{
    return write_whole(path, false, data, len);
}

sw_status sw_file_write_str(const char *path, const struct sw_str *text)
{
    return text->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for %s", path)
                        : sw_file_write_atomic(path, sw_str_text(text), text->len);
}

static sw_status copy_all(struct sw_output *out, int fd, const char *from, size_t bytes)
{
    char *block = sw_alloc("file", COPY_BYTES);
    sw_status st =
        block ? sw_output_begin(out) : SW_FAIL(SW_E_NOMEM, "out of host memory for %s", out->path);
    for (size_t at = 0; at < bytes && st >= 0; at += COPY_BYTES) {
        const size_t n = bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES;
        st = sw_file_read_at(fd, from, block, n, (int64_t)at);
        st = st < 0 ? st : sw_output_add(out, block, n);
    }
    sw_free(block);
    return st < 0 ? st : sw_output_commit(out, true);
}

sw_status sw_file_copy(const char *from, const char *to)
{
    struct sw_output out = {.fd = -1};
    int fd;
    size_t bytes;
    SW_TRY(sw_file_open(from, &fd, &bytes));
    sw_status st = sw_output_open(to, false, &out);
    st = st < 0 ? st : copy_all(&out, fd, from, bytes);
    sw_output_close(&out);
    close(fd);
    return st;
}

sw_status sw_file_append(const char *path, int *out_fd)
{
    enum sw_output_kind kind;
    struct stat info;
    SW_TRY(look(path, false, &kind));
    const int fd = open_retry(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK, 0666);
    if (fd < 0) {
        return fail_io("write", path);
    }
    sw_status st =
        fstat(fd, &info) == 0 ? find_kind(path, &info, false, &kind) : fail_io("write", path);
    if (st < 0) {
        close(fd);
        return st;
    }
    *out_fd = fd;
    return SW_OK;
}
