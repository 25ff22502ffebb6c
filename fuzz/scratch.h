// SPDX-License-Identifier: Apache-2.0
// A folder for readers that take paths: made once, in memory where there is a file system for that,
// and removed when the program ends. Files are written without the care that real ones need.
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

static char scratch_root[64];

static inline void scratch_remove(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch_root);
    if (system(command) != 0) {
        fprintf(stderr, "%s is left\n", scratch_root);
    }
}

static inline const char *scratch_folder(void)
{
    if (!scratch_root[0]) {
        snprintf(scratch_root, sizeof scratch_root, "%s/spillway-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        SW_ASSERT(mkdtemp(scratch_root));
        atexit(scratch_remove);
    }
    return scratch_root;
}

static inline void scratch_path(char out[256], const char *name)
{
    snprintf(out, 256, "%s/%s", scratch_folder(), name);
}

/* Writes a file of the folder, in place of what it held. */
static inline void scratch_write(const char *name, const void *data, size_t len)
{
    char path[256];
    scratch_path(path, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    SW_ASSERT(fd >= 0 && write(fd, data, len) == (ssize_t)len);
    close(fd);
}
