// SPDX-License-Identifier: Apache-2.0
// Swap files. They have no name, so that two jobs in one folder never collide, and they disappear
// with the process, however it ends. On file systems that need a name, it consists of host,
// process, rank and number, and is unlinked at once.
#include "run/swap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HOST_CAP = 65, MOST_FOLDERS = 64, ZEROS = 1 << 16, MOST_FILES = 10000 };

struct sw_swap {
    sw_nvme *nvme;
    char *zeros;
};

/* ---- names ---- */

/* The host's name, made fit for a file name. */
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

/* NULL = out of host memory */
static const char *swap_path(const char *folder, int rank, int n, struct sw_arena *names)
{
    char host[HOST_CAP];
    host_name(host);
    return sw_arena_printf(names, "%s/spillway-%s-%d-rank%d-%d.swap", folder, host, (int)getpid(),
                           rank, n);
}

/* ---- opening and closing ---- */

/* The file has a name between the two calls. A process that is killed there leaves an empty
 * file. */
sw_status sw_swap_make_named(const char *folder, int rank, struct sw_arena *names,
                             const char **out_path, int *out_fd)
{
    for (int n = 0;; n++) {
        const char *path = swap_path(folder, rank, n, names);
        SW_TRY_ALLOC(path, "the disk tier");
        const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 && unlink(path) != 0) {
            const int error = errno;
            close(fd);
            return SW_FAIL(SW_E_IO, "cannot unlink the swap file %s: %s", path, strerror(error));
        }
        if (fd >= 0) {
            *out_path = path;
            *out_fd = fd;
            return SW_OK;
        }
        if (errno != EEXIST || n == MOST_FILES) {
            return SW_FAIL(SW_E_IO, "cannot make the swap file %s: %s", path, strerror(errno));
        }
    }
}

/* Creates a private file. The path is for messages. */
static sw_status make_file(const char *folder, int rank, struct sw_arena *names,
                           const char **out_path, int *out_fd)
{
    *out_fd = open(folder, O_RDWR | O_TMPFILE | O_EXCL | O_CLOEXEC, 0600);
    if (*out_fd < 0) { /* whatever the reason, the fallback works or reports it */
        return sw_swap_make_named(folder, rank, names, out_path, out_fd);
    }
    *out_path = swap_path(folder, rank, 0, names);
    if (!*out_path) {
        close(*out_fd);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the disk tier");
    }
    return SW_OK;
}

sw_status sw_swap_open_files(const struct sw_swap_options *options, int64_t bytes, sw_nvme **out)
{
    const char *paths[MOST_FOLDERS];
    int fds[MOST_FOLDERS], n = 0;
    struct sw_nvme_options nvme = options->nvme;
    struct sw_arena names;
    sw_status st = SW_OK;
    if (options->n_folders < 1 || options->n_folders > MOST_FOLDERS) {
        return SW_FAIL(SW_E_ARG, "the disk tier needs 1 to %d folders (nvme_path), got %d",
                       MOST_FOLDERS, options->n_folders);
    }
    sw_arena_init(&names, "run");
    for (; n < options->n_folders && st >= 0; n += st >= 0) {
        st = make_file(options->folders[n], options->rank, &names, &paths[n], &fds[n]);
    }
    while (st < 0 && n > 0) {
        close(fds[--n]);
    }
    nvme.fds = fds;
    st = st < 0 ? st : sw_nvme_open(paths, n, bytes, &nvme, out);
    sw_arena_fini(&names);
    return st < 0 ? sw_frame_at(__FILE__, __LINE__, st) : SW_OK;
}

sw_status sw_swap_open(const struct sw_swap_options *options, size_t bytes, struct sw_swap **out)
{
    struct sw_swap *swap = sw_alloc_zero("run", 1, sizeof *swap);
    SW_TRY_ALLOC(swap, "the disk tier");
    swap->zeros = sw_alloc_zero("run", 1, ZEROS);
    const sw_status st = swap->zeros ? sw_swap_open_files(options, (int64_t)bytes, &swap->nvme)
                                     : SW_FAIL(SW_E_NOMEM, "out of host memory for the disk tier");
    if (st < 0) {
        sw_swap_close(swap);
        return st;
    }
    *out = swap;
    return SW_OK;
}

void sw_swap_close(struct sw_swap *swap)
{
    if (!swap) {
        return;
    }
    sw_nvme_close(swap->nvme);
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
    for (int i = 0; i < n_begun; i++) { /* all of them, since their memory is the caller's again */
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
