// SPDX-License-Identifier: Apache-2.0
// mmap, read-only.
#include "data/map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

sw_status sw_map_open(const char *path, struct sw_map *out)
{
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        const int error = errno;
        if (fd >= 0) {
            close(fd);
        }
        return SW_FAIL(SW_E_IO, "%s: %s", path, strerror(error));
    }
    if (!S_ISREG(info.st_mode)) {
        close(fd);
        return SW_FAIL(SW_E_IO, "%s: is not a regular file", path);
    }
    struct sw_map map = {"", (size_t)info.st_size};
    if (map.len > 0) {
        void *data = mmap(NULL, map.len, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            const int error = errno;
            close(fd);
            return SW_FAIL(SW_E_IO, "%s: cannot be mapped: %s", path, strerror(error));
        }
        map.data = data;
    }
    close(fd);
    *out = map;
    return SW_OK;
}

void sw_map_close(struct sw_map *map)
{
    if (map->len > 0) {
        munmap((void *)map->data, map->len);
    }
    *map = (struct sw_map){0};
}
