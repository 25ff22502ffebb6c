// SPDX-License-Identifier: Apache-2.0
// The lock of a folder of checkpoints: flock on its file .lock, which the system releases when the
// holder ends, however it ends. The file names the holder, for messages. It is not removed on
// release, because a file that is removed and created again could be locked twice.
#include "ckpt/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define LOCK_NAME ".lock"
/* A holder needs a moment to write who it is, so that whoever comes second can say it. */
#define GRACE_S 0.1
enum { POLL_MS = 20 };

struct sw_ckpt_lock {
    int fd;
    char *dir;
    bool made_dir; /* the folder was not there before */
};

const char *sw_ckpt_lock_dir(const struct sw_ckpt_lock *lock)
{
    return lock->dir;
}

/* For people: which file system it is that has no locks. */
static const char *name_file_system(int fd, char *buf, size_t cap)
{
    static const struct {
        unsigned long magic;
        const char *name;
    } known[] = {
        {0x6969, "NFS"},        {0x0BD00BD0, "Lustre"},  {0xFF534D42, "CIFS"},
        {0xFE534D42, "SMB2"},   {0x65735546, "FUSE"},    {0x01021997, "9p"},
        {0xEF53, "ext4"},       {0x01021994, "tmpfs"},   {0x58465342, "XFS"},
        {0x9123683E, "btrfs"},  {0x794C7630, "overlay"}, {0x47504653, "GPFS"},
        {0x19830326, "BeeGFS"}, {0x00C36400, "Ceph"},
    };
    struct statfs info;
    snprintf(buf, cap, "unknown");
    if (fstatfs(fd, &info) == 0) {
        const unsigned long magic = (unsigned long)info.f_type & 0xFFFFFFFFul;
        snprintf(buf, cap, "type 0x%lx", magic);
        for (size_t i = 0; i < SW_LEN(known); i++) {
            if (known[i].magic == magic) {
                snprintf(buf, cap, "%s", known[i].name);
            }
        }
    }
    return buf;
}

/* ---- who holds it: "HOST PID" ---- */

static sw_status write_holder(const struct sw_ckpt_lock *lock)
{
    char host[256] = "", text[320];
    gethostname(host, sizeof(host) - 1);
    const int len = snprintf(text, sizeof(text), "%s %ld\n", *host ? host : "?", (long)getpid());
    if (ftruncate(lock->fd, 0) != 0 || pwrite(lock->fd, text, (size_t)len, 0) != len) {
        return SW_FAIL(SW_E_IO, "cannot write %s/" LOCK_NAME ": %s", lock->dir, strerror(errno));
    }
    return SW_OK;
}

/* The file may hold anything: what is no name of a host goes into no message. */
static const char *read_holder(const struct sw_ckpt_lock *lock, char *buf, size_t cap)
{
    char text[320] = "", host[256];
    long pid = 0;
    const ssize_t n = pread(lock->fd, text, sizeof(text) - 1, 0);
    const bool read = n > 0 && sscanf(text, "%255s %ld", host, &pid) == 2;
    static const char of_hosts[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-?";
    if (read && host[strspn(host, of_hosts)] == '\0') {
        snprintf(buf, cap, "process %ld on host %s", pid, host);
    } else {
        snprintf(buf, cap, "another process");
    }
    return buf;
}

/* ---- taking it ---- */

static sw_status open_lock(struct sw_ckpt_lock *lock)
{
    char path[PATH_MAX];
    struct stat info;
    SW_TRY(sw_ckpt_join(lock->dir, LOCK_NAME, path));
    lock->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (lock->fd < 0) {
        return SW_FAIL(SW_E_IO, "cannot open %s: %s", path, strerror(errno));
    }
    if (fstat(lock->fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return SW_FAIL(SW_E_IO, "cannot lock %s: it is not a regular file", path);
    }
    return SW_OK;
}

/* SW_PENDING: somebody else has it. */
static sw_status try_lock(const struct sw_ckpt_lock *lock)
{
    if (flock(lock->fd, LOCK_EX | LOCK_NB) == 0) {
        return SW_OK;
    }
    const int error = errno;
    if (error == EWOULDBLOCK || error == EINTR) {
        return SW_PENDING;
    }
    if (error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP) {
        char name[64];
        return SW_FAIL(SW_E_UNSUP,
                       "%s: its file system (%s) has no locks (flock: %s), so nothing would keep a "
                       "second job out of the folder; name one on another file system",
                       lock->dir, name_file_system(lock->fd, name, sizeof(name)), strerror(error));
    }
    return SW_FAIL(SW_E_IO, "cannot lock %s/" LOCK_NAME ": %s", lock->dir, strerror(error));
}

/* Whoever made the folder and leaves nothing in it removes the file, too: then it is another one's
 * name, or nobody's. */
static bool is_current(const struct sw_ckpt_lock *lock)
{
    char path[PATH_MAX];
    struct stat mine, named;
    return sw_ckpt_join(lock->dir, LOCK_NAME, path) >= 0 && fstat(lock->fd, &mine) == 0 &&
           lstat(path, &named) == 0 && mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
}

static sw_status take(struct sw_ckpt_lock *lock, double wait_s)
{
    char holder[384];
    bool said = false;
    const double begin_s = sw_now_s();
    SW_TRY(open_lock(lock));
    for (;;) {
        const sw_status st = try_lock(lock);
        SW_TRY(st);
        if (st == SW_OK && is_current(lock)) {
            return write_holder(lock);
        }
        if (st == SW_OK) {
            close(lock->fd);
            lock->fd = -1;
            SW_TRY(sw_ckpt_make_folders(lock->dir));
            SW_TRY(open_lock(lock));
            continue;
        }
        const double waited_s = sw_now_s() - begin_s;
        if (waited_s >= GRACE_S && waited_s >= wait_s) {
            return SW_FAIL(SW_E_ARG,
                           "%s is in use by %s: one job at a time writes to a folder of "
                           "checkpoints; end that one, or name another folder",
                           lock->dir, read_holder(lock, holder, sizeof(holder)));
        }
        if (waited_s >= GRACE_S && !said) {
            said = true;
            sw_log(SW_LOG_WARN, "%s is in use by %s; waiting up to %g s for it to end", lock->dir,
                   read_holder(lock, holder, sizeof(holder)), wait_s);
        }
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    }
}

sw_status sw_ckpt_acquire(const char *dir, double wait_s, struct sw_ckpt_lock **out)
{
    const bool made_dir = !sw_ckpt_exists(dir);
    SW_TRY(sw_ckpt_make_folders(dir));
    struct sw_ckpt_lock *lock = sw_alloc_zero("checkpoint", 1, sizeof(*lock));
    SW_TRY_ALLOC(lock, "the lock of a folder");
    lock->fd = -1;
    lock->made_dir = made_dir;
    lock->dir = sw_strdup("checkpoint", dir);
    const sw_status st = lock->dir
                             ? take(lock, wait_s)
                             : SW_FAIL(SW_E_NOMEM, "out of host memory for the lock of a folder");
    if (st < 0) {
        if (lock->fd >= 0) {
            close(lock->fd); /* the text in the file is the holder's */
        }
        sw_free(lock->dir);
        sw_free(lock);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    *out = lock;
    return SW_OK;
}

/* A job that was refused before it wrote anything leaves nothing. */
static void remove_if_empty(const struct sw_ckpt_lock *lock)
{
    char path[PATH_MAX];
    const char **names = NULL;
    int64_t n = 0;
    struct sw_arena arena;
    sw_arena_init(&arena, "checkpoint");
    const bool alone = sw_ckpt_names(lock->dir, &arena, &names, &n) >= 0 && n == 1 &&
                       strcmp(names[0], LOCK_NAME) == 0 && is_current(lock) &&
                       sw_ckpt_join(lock->dir, LOCK_NAME, path) >= 0;
    sw_arena_fini(&arena);
    if (alone && (unlink(path) != 0 || rmdir(lock->dir) != 0)) {
        sw_log(SW_LOG_DEBUG, "%s: %s", lock->dir, strerror(errno));
    }
}

void sw_ckpt_release(struct sw_ckpt_lock *lock)
{
    if (!lock) {
        return;
    }
    if (lock->made_dir) {
        remove_if_empty(lock);
    }
    if (ftruncate(lock->fd, 0) !=
        0) { /* it is for people: a name that is out of date harms nobody */
        sw_log(SW_LOG_DEBUG, "%s/" LOCK_NAME ": %s", lock->dir, strerror(errno));
    }
    close(lock->fd);
    sw_free(lock->dir);
    sw_free(lock);
}
