// SPDX-License-Identifier: Apache-2.0
// Swap files: named by host, process, rank and number, and made by whoever uses them, so that two jobs in one folder
// never meet. Those that nobody holds locked and whose process is gone from this host are named in the log and
// left alone; of other hosts' processes nothing is known here.
#include "run/swap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH_CAP = 4096, HOST_CAP = 65, MOST_FOLDERS = 64, ZEROS = 1 << 16, MOST_FILES = 10000 };
enum { OLD_S = 60 }; /* by then who made a file has locked it */

struct sw_swap {
    sw_nvme *nvme;
    int n_paths;
    char *paths[MOST_FOLDERS];
    char *zeros;
};

/* ---- names ---- */

/* As a part of a file's name. */
static void host_name(char *out)
{
    if (gethostname(out, HOST_CAP) != 0) {
        snprintf(out, HOST_CAP, "unknown");
    }
    out[HOST_CAP - 1] = '\0';
    for (char *c = out; *c; c++) {
        *c = *c == '/' ? '_' : *c;
    }
}

/* The process of this host that made the file; 0: none. */
static int maker_of(const char *name, const char *host)
{
    static const char prefix[] = "spillway-", suffix[] = ".swap";
    const size_t before = sizeof prefix - 1 + strlen(host), all = strlen(name);
    int pid = 0, rank, n, length = 0;
    if (all < before || strncmp(name, prefix, sizeof prefix - 1) != 0 ||
        strncmp(name + sizeof prefix - 1, host, strlen(host)) != 0 ||
        sscanf(name + before, "-%d-rank%d-%d%n", &pid, &rank, &n, &length) != 3) {
        return 0;
    }
    return pid > 0 && strcmp(name + before + length, suffix) == 0 ? pid : 0;
}

/* ---- what others left ---- */

/* The maker is gone, or its number is another process's by now; then nobody holds the file. A young file of a
 * process that lives is not touched: it may be about to be locked. */
static bool is_left(int folder, const char *name, int pid)
{
    struct stat st;
    const bool gone = kill((pid_t)pid, 0) != 0 && errno == ESRCH;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode) ||
        (!gone && time(NULL) - st.st_mtime < OLD_S)) {
        return false;
    }
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return gone && errno == EACCES;
    }
    const bool free_of_locks = flock(fd, LOCK_SH | LOCK_NB) == 0;
    const bool no_locks_here = !free_of_locks && errno != EWOULDBLOCK;
    close(fd);
    return free_of_locks || (no_locks_here && gone);
}

static void name_leftovers(const char *folder, const char *host)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        const int pid = maker_of(entry->d_name, host);
        if (pid > 0 && is_left(dirfd(dir), entry->d_name, pid)) {
            sw_log(SW_LOG_WARN, "%s/%s is left of process %d, which is gone; remove it", folder,
                   entry->d_name, pid);
        }
    }
    if (dir) {
        closedir(dir);
    }
}

/* ---- opening and closing ---- */

/* Makes a file that nobody else has. */
static sw_status make_file(const char *folder, const char *host, int rank, char **out_path)
{
    char path[PATH_CAP];
    int fd = -1;
    for (int n = 0; n < MOST_FILES && fd < 0; n++) {
        snprintf(path, sizeof path, "%s/spillway-%s-%d-rank%d-%d.swap", folder, host, (int)getpid(),
                 rank, n);
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) {
            break;
        }
    }
    if (fd < 0) {
        return SW_FAIL(SW_E_IO, "cannot make the swap file %s: %s", path, strerror(errno));
    }
    close(fd);
    *out_path = sw_strdup("run", path);
    if (!*out_path) {
        unlink(path);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the disk tier");
    }
    return SW_OK;
}

sw_status sw_swap_open(const struct sw_swap_options *options, size_t bytes, struct sw_swap **out)
{
    sw_status st = SW_OK;
    char host[HOST_CAP];
    if (options->n_folders < 1 || options->n_folders > MOST_FOLDERS) {
        return SW_FAIL(SW_E_ARG, "the disk tier wants 1 to %d folders (nvme_path), found %d",
                       MOST_FOLDERS, options->n_folders);
    }
    struct sw_swap *swap = sw_alloc_zero("run", 1, sizeof *swap);
    SW_TRY_ALLOC(swap, "the disk tier");
    swap->zeros = sw_alloc_zero("run", 1, ZEROS);
    if (!swap->zeros) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the disk tier");
        goto close;
    }
    host_name(host);
    for (int i = 0; i < options->n_folders; i++) {
        if (options->rank == 0) {
            name_leftovers(options->folders[i], host);
        }
        SW_TRY_OR(close, make_file(options->folders[i], host, options->rank, &swap->paths[i]));
        swap->n_paths++;
    }
    SW_TRY_OR(close, sw_nvme_open((const char *const *)swap->paths, swap->n_paths, (int64_t)bytes,
                                  &options->nvme, &swap->nvme));
    *out = swap;
    return SW_OK;
close:
    sw_swap_close(swap);
    return st;
}

void sw_swap_close(struct sw_swap *swap)
{
    if (!swap) {
        return;
    }
    sw_nvme_close(swap->nvme);
    if (swap->n_paths > 0) {
        sw_nvme_remove((const char *const *)swap->paths, swap->n_paths);
    }
    for (int i = 0; i < swap->n_paths; i++) {
        sw_free(swap->paths[i]);
    }
    sw_free(swap->zeros);
    sw_free(swap);
}

sw_status sw_swap_read(struct sw_swap *swap, size_t at, void *data, size_t bytes)
{
    return bytes ? sw_nvme_read(swap->nvme, (int64_t)at, data, bytes) : SW_OK;
}

sw_status sw_swap_write(struct sw_swap *swap, size_t at, const void *data, size_t bytes)
{
    return bytes ? sw_nvme_write(swap->nvme, (int64_t)at, data, bytes) : SW_OK;
}

sw_status sw_swap_read_rows(struct sw_swap *swap, size_t at, size_t row_bytes, const int32_t *ids,
                            int n, void *out)
{
    struct sw_swap_request requests[SW_SWAP_ROWS];
    sw_status st = SW_OK;
    int n_begun = 0, next;
    for (int i = 0; i < n && st >= 0; i = next) {
        for (next = i + 1; next < n && ids[next] == ids[next - 1] + 1; next++) {
        }
        st = sw_swap_begin(swap, false, at + (size_t)ids[i] * row_bytes,
                           (char *)out + (size_t)i * row_bytes, (size_t)(next - i) * row_bytes,
                           &requests[n_begun]);
        n_begun += st >= 0;
    }
    for (int i = 0; i < n_begun; i++) { /* all of them: their memory is the caller's again */
        const sw_status got = sw_swap_end(swap, &requests[i]);
        st = st < 0 ? st : got;
    }
    return st;
}

sw_status sw_swap_begin(struct sw_swap *swap, bool write, size_t at, void *data, size_t bytes,
                        struct sw_swap_request *out)
{
    out->memory = (struct sw_nvme_segment){data, bytes};
    return (write ? sw_nvme_begin_write : sw_nvme_begin_read)(swap->nvme, (int64_t)at, &out->memory,
                                                              1, &out->ticket);
}

sw_status sw_swap_end(struct sw_swap *swap, const struct sw_swap_request *request)
{
    char message[1024];
    const sw_status st = sw_nvme_wait(swap->nvme, request->ticket, 0);
    if (st >= 0 || !sw_nvme_in_flight(swap->nvme, request->ticket)) {
        return st;
    }
    snprintf(message, sizeof message, "%s", sw_error_message()); /* its deadline passed */
    sw_nvme_cancel(swap->nvme, request->ticket);
    while (sw_nvme_in_flight(swap->nvme, request->ticket)) {
        sw_nvme_wait(swap->nvme, request->ticket, 0);
    }
    return SW_FAIL(st, "%s", message);
}

sw_status sw_swap_zero(struct sw_swap *swap, size_t at, size_t bytes)
{
    for (size_t done = 0; done < bytes; done += ZEROS) {
        SW_TRY(sw_swap_write(swap, at + done, swap->zeros,
                             bytes - done < ZEROS ? bytes - done : ZEROS));
    }
    return SW_OK;
}
