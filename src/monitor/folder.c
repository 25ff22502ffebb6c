// SPDX-License-Identifier: Apache-2.0
// Files of earlier runs in a monitor's folder.
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "monitor/private.h"

/* False for links and the like: they are not ours to move or cut. */
static bool is_file(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISREG(info.st_mode);
}

sw_status sw_monitor_each(const struct sw_monitor_place *place, const char *what,
                          bool (*wanted)(const char *name, const struct sw_monitor_place *place),
                          sw_status (*then)(const char *path, const struct sw_monitor_place *place))
{
    DIR *dir = opendir(place->folder);
    sw_status st = SW_OK;
    if (!dir) {
        return SW_FAIL(SW_E_IO, "%s: %s", place->folder, strerror(errno));
    }
    for (struct dirent *one = readdir(dir); one && st >= 0; one = readdir(dir)) {
        struct sw_str path = {0};
        if (wanted(one->d_name, place)) {
            sw_str_printf(&path, "%s/%s", place->folder, one->d_name);
            st = path.failed         ? SW_FAIL(SW_E_NOMEM, "out of host memory for %s", what)
                 : is_file(path.ptr) ? then(path.ptr, place)
                                     : SW_OK;
        }
        sw_str_fini(&path);
    }
    closedir(dir);
    return st;
}

sw_status sw_monitor_cut(const char *path, size_t bytes)
{
    int fd;
    SW_TRY(sw_file_append(path, &fd));
    const sw_status st = ftruncate(fd, (off_t)bytes) == 0
                             ? SW_OK
                             : SW_FAIL(SW_E_IO, "%s: %s", path, strerror(errno));
    close(fd);
    return st;
}
