// SPDX-License-Identifier: Apache-2.0
// Swap files: named by process, rank and number, so that two jobs in one folder never meet; those of processes that
// are gone are named in the log and left alone.
#include "run/swap.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_CAP = 4096, MOST_FOLDERS = 64, ZEROS = 1 << 16 };

struct sw_swap {
    sw_nvme *nvme;
    int n_paths;
    char *paths[MOST_FOLDERS];
    char *zeros;
};

static void name_leftovers(const char *folder)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        int pid = 0, length = 0;
        if (sscanf(entry->d_name, "spillway-%d-%n", &pid, &length) == 1 && length > 0 &&
            strstr(entry->d_name, ".swap") && kill((pid_t)pid, 0) != 0 && errno == ESRCH) {
            sw_log(SW_LOG_WARN, "%s/%s is left of process %d, which is gone; remove it", folder,
                   entry->d_name, pid);
        }
    }
    if (dir) {
        closedir(dir);
    }
}

/* A name that no other executor of this process has. */
static char *new_path(const char *folder, int rank)
{
    char path[PATH_CAP];
    struct stat st;
    for (int n = 0; n < 10000; n++) {
        snprintf(path, sizeof path, "%s/spillway-%d-rank%d-%d.swap", folder, (int)getpid(), rank,
                 n);
        if (lstat(path, &st) != 0) {
            return sw_strdup("run", path);
        }
    }
    return NULL;
}

sw_status sw_swap_open(const struct sw_swap_options *options, size_t bytes, struct sw_swap **out)
{
    sw_status st = SW_OK;
    if (options->n_folders < 1 || options->n_folders > MOST_FOLDERS) {
        return SW_FAIL(SW_E_ARG, "the disk tier wants 1 to %d folders (nvme_path), found %d",
                       MOST_FOLDERS, options->n_folders);
    }
    struct sw_swap *swap = sw_alloc_zero("run", 1, sizeof *swap);
    SW_TRY_ALLOC(swap, "the disk tier");
    swap->zeros = sw_alloc_zero("run", 1, ZEROS);
    for (int i = 0; i < options->n_folders; i++) {
        if (options->rank == 0) {
            name_leftovers(options->folders[i]);
        }
        swap->paths[i] = new_path(options->folders[i], options->rank);
        swap->n_paths += swap->paths[i] != NULL;
    }
    if (!swap->zeros || swap->n_paths < options->n_folders) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the disk tier");
        goto close;
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
    if (swap->nvme) {
        sw_nvme_close(swap->nvme);
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

sw_status sw_swap_zero(struct sw_swap *swap, size_t at, size_t bytes)
{
    for (size_t done = 0; done < bytes; done += ZEROS) {
        SW_TRY(sw_swap_write(swap, at + done, swap->zeros,
                             bytes - done < ZEROS ? bytes - done : ZEROS));
    }
    return SW_OK;
}
