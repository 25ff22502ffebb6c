// SPDX-License-Identifier: Apache-2.0
// The system calls by which a checkpoint changes the disk, and the names of checkpoints. Each call
// is a fault point, and each error names its path.
#include "ckpt/private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static sw_status fail_io(const char *what, const char *path)
{
    return SW_FAIL(SW_E_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

/* ---- names ---- */

static sw_status check_length(int len, const char *dir)
{
    if (len < 0 || len >= PATH_MAX) {
        return SW_FAIL(SW_E_IO, "the name of a file in %s is too long", dir);
    }
    return SW_OK;
}

sw_status sw_ckpt_folder(const char *dir, int64_t step, const char *suffix, char *path)
{
    return check_length(
        snprintf(path, PATH_MAX, "%s/" CKPT_PREFIX "%lld%s", dir, (long long)step, suffix), dir);
}

sw_status sw_ckpt_unfinished(const char *dir, int64_t step, uint64_t token, char *path)
{
    char suffix[32];
    snprintf(suffix, sizeof(suffix), ".%016llx" CKPT_UNFINISHED, (unsigned long long)token);
    return sw_ckpt_folder(dir, step, suffix, path);
}

sw_status sw_ckpt_join(const char *dir, const char *name, char *path)
{
    return check_length(snprintf(path, PATH_MAX, "%s/%s", dir, name), dir);
}

bool sw_ckpt_parse_name(const char *name, const char *suffix, int64_t *out_step)
{
    const size_t len = strlen(CKPT_PREFIX);
    if (strncmp(name, CKPT_PREFIX, len) != 0 || name[len] < '0' || name[len] > '9') {
        return false;
    }
    char *end;
    errno = 0;
    const long long step = strtoll(name + len, &end, 10);
    const bool padded =
        name[len] == '0' && end != name + len + 1; /* "0004" is the name of no step */
    if (errno != 0 || padded || step > CKPT_MOST || strcmp(end, suffix) != 0) {
        return false;
    }
    *out_step = step;
    return true;
}

bool sw_ckpt_is_unfinished(const char *name)
{
    enum { TOKEN_LEN = 17 };
    const size_t len = strlen(name), n_end = strlen(CKPT_UNFINISHED);
    char head[NAME_MAX + 1];
    int64_t step;
    if (len < n_end || len > NAME_MAX || strcmp(name + len - n_end, CKPT_UNFINISHED) != 0) {
        return false;
    }
    snprintf(head, sizeof(head), "%.*s", (int)(len - n_end), name);
    char *dot = strchr(head, '.');
    if (dot && strlen(dot) == TOKEN_LEN &&
        strspn(dot + 1, "0123456789abcdef") == (size_t)TOKEN_LEN - 1) {
        *dot = '\0';
    }
    return sw_ckpt_parse_name(head, "", &step);
}

/* ---- folders ---- */

bool sw_ckpt_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

sw_status sw_ckpt_make_folder(const char *path)
{
    if (sw_fault_fails("mkdir", NULL) || mkdir(path, 0777) != 0) {
        return fail_io("make the folder", path);
    }
    return SW_OK;
}

sw_status sw_ckpt_sync_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return fail_io("open the folder", path);
    }
    const bool synced = !sw_fault_fails("fsync", NULL) && fsync(fd) == 0;
    const sw_status st = synced ? SW_OK : fail_io("sync the folder", path);
    close(fd);
    return st;
}

/* The folder above the first `len` characters of path: "." for a relative name, "/" for the
 * root. */
static sw_status sync_above(const char *path, size_t len)
{
    char above[PATH_MAX];
    while (len > 0 && path[len - 1] == '/') {
        len--;
    }
    while (len > 0 && path[len - 1] != '/') {
        len--;
    }
    if (len == 0) {
        return sw_ckpt_sync_folder(".");
    }
    memcpy(above, path, len);
    above[len] = '\0';
    return sw_ckpt_sync_folder(above);
}

static sw_status make_lasting(const char *folder)
{
    if (sw_is_folder(folder)) {
        return SW_OK;
    }
    const sw_status made = sw_ckpt_make_folder(folder);
    if (made < 0 && !sw_is_folder(folder)) {
        return sw_frame_at(__FILE__, __LINE__, made); /* else another job was faster */
    }
    return sync_above(folder, strlen(folder));
}

sw_status sw_ckpt_make_folders(const char *path)
{
    return sw_each_folder(path, make_lasting);
}

/* ---- files ---- */

sw_status sw_ckpt_write(int fd, const char *path, const void *data, size_t len)
{
    const char *next = data;
    while (len > 0) {
        size_t ask = len;
        if (sw_fault_fails("write", &ask)) {
            return fail_io("write", path);
        }
        const ssize_t n = write(fd, next, ask);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fail_io("write", path);
        }
        next += n;
        len -= (size_t)n;
    }
    return SW_OK;
}

sw_status sw_ckpt_sync(int fd, const char *path)
{
    if (sw_fault_fails("fsync", NULL) || fsync(fd) != 0) {
        return fail_io("write", path);
    }
    return SW_OK;
}

sw_status sw_ckpt_rename(const char *from, const char *to)
{
    if (sw_fault_fails("rename", NULL) || rename(from, to) != 0) {
        const int error = errno;
        return SW_FAIL(SW_E_IO, "cannot rename %s to %s: %s", from, to, strerror(error));
    }
    return SW_OK;
}

sw_status sw_ckpt_unlink(const char *path)
{
    if (sw_fault_fails("unlink", NULL) || unlink(path) != 0) {
        return fail_io("remove", path);
    }
    return SW_OK;
}

/* ---- lists and trees ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

sw_status sw_ckpt_names(const char *path, struct sw_arena *arena, const char ***out, int64_t *out_n)
{
    DIR *dir = opendir(path);
    if (!dir) {
        return fail_io("list the folder", path);
    }
    const char **names = NULL;
    size_t n = 0, cap = 0;
    sw_status st = SW_OK;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry) {
            st = errno ? fail_io("list the folder", path) : SW_OK;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (n == cap) {
            cap = cap ? 2 * cap : 32;
            const char **grown = sw_arena_array(arena, cap, sizeof(*names));
            if (grown && n) {
                memcpy(grown, names, n * sizeof(*names));
            }
            names = grown;
        }
        const char *copy = names ? sw_arena_strdup(arena, entry->d_name) : NULL;
        if (!copy) {
            st = SW_FAIL(SW_E_NOMEM, "out of host memory for the list of %s", path);
            break;
        }
        names[n++] = copy;
    }
    closedir(dir);
    if (st < 0) {
        return st;
    }
    if (n) {
        qsort(names, n, sizeof(*names), compare_names);
    }
    *out = names;
    *out_n = (int64_t)n;
    return SW_OK;
}

static sw_status unlink_or_rmdir(const char *path, bool folder)
{
    if (!folder) {
        return sw_ckpt_unlink(path);
    }
    if (sw_fault_fails("unlink", NULL) || rmdir(path) != 0) {
        return fail_io("remove", path);
    }
    return SW_OK;
}

static sw_status is_folder(const char *path, bool *out)
{
    struct stat info;
    if (lstat(path, &info) != 0) {
        return fail_io("remove", path);
    }
    *out = S_ISDIR(info.st_mode);
    return SW_OK;
}

/* Folders inside `path` are lifted to be beside it, in `top`, so that however deep a tree is, its
 * names stay short and nothing here calls itself. n_lifted: so many were, which names them. */
static sw_status flatten(const char *top, const char *path, struct sw_arena *arena,
                         int64_t *n_lifted)
{
    char inner[PATH_MAX], lifted[PATH_MAX], name[32];
    const char **names;
    int64_t n;
    SW_TRY(sw_ckpt_names(path, arena, &names, &n));
    for (int64_t i = 0; i < n; i++) {
        bool folder;
        SW_TRY(sw_ckpt_join(path, names[i], inner));
        SW_TRY(is_folder(inner, &folder));
        if (!folder) {
            SW_TRY(sw_ckpt_unlink(inner));
            continue;
        }
        do {
            snprintf(name, sizeof(name), ".lifted-%lld", (long long)(*n_lifted)++);
            SW_TRY(sw_ckpt_join(top, name, lifted));
        } while (sw_ckpt_exists(lifted));
        SW_TRY(sw_ckpt_rename(inner, lifted));
    }
    return SW_OK;
}

/* One turn: files go, and of folders the outermost level. */
static sw_status remove_level(const char *top, struct sw_arena *arena, int64_t *n_lifted,
                              int64_t *out_n)
{
    char child[PATH_MAX];
    const char **names;
    SW_TRY(sw_ckpt_names(top, arena, &names, out_n));
    for (int64_t i = 0; i < *out_n; i++) {
        bool folder;
        SW_TRY(sw_ckpt_join(top, names[i], child));
        SW_TRY(is_folder(child, &folder));
        if (folder) {
            SW_TRY(flatten(top, child, arena, n_lifted));
        }
        SW_TRY(unlink_or_rmdir(child, folder));
    }
    return SW_OK;
}

/* The manifest first: what is half removed must not look whole. */
static sw_status remove_contents(const char *path)
{
    char manifest[PATH_MAX];
    SW_TRY(sw_ckpt_join(path, CKPT_MANIFEST, manifest));
    bool folder = false;
    if (sw_ckpt_exists(manifest)) {
        SW_TRY(is_folder(manifest, &folder));
        SW_TRY(folder ? SW_OK : sw_ckpt_unlink(manifest));
    }
    int64_t n_lifted = 0, n = 1;
    while (n > 0) {
        struct sw_arena arena;
        sw_arena_init(&arena, "checkpoint");
        const sw_status st = remove_level(path, &arena, &n_lifted, &n);
        sw_arena_fini(&arena);
        SW_TRY(st);
    }
    return SW_OK;
}

sw_status sw_ckpt_remove(const char *path)
{
    bool folder;
    SW_TRY(is_folder(path, &folder));
    if (folder) {
        SW_TRY(remove_contents(path));
    }
    return unlink_or_rmdir(path, folder);
}
