// SPDX-License-Identifier: Apache-2.0
// Modules: libraries of ours that are opened at run time, because what they link to is not on every
// machine. They lie in the folder that the user says; else beside this code, or where it is
// installed.
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

bool sw_module_find(const char *file, char *path, size_t cap)
{
    static const char *const places[] = {"", "/spillway", "/../" SPILLWAY_LIBDIR "/spillway"};
    const char *folder = getenv("SPILLWAY_MODULES");
    Dl_info info;
    char here[PATH_MAX] = ".";
    if (folder) {
        snprintf(path, cap, "%s/%s", folder, file);
        return access(path, R_OK) == 0;
    }
    if (dladdr((void *)(uintptr_t)sw_module_find, &info) && info.dli_fname &&
        realpath(info.dli_fname, here)) {
        char *slash = strrchr(here, '/');
        *(slash ? slash : here) = '\0';
    }
    for (size_t i = 0; i < SW_LEN(places); i++) {
        snprintf(path, cap, "%s%s/%s", here, places[i], file);
        if (access(path, R_OK) == 0) {
            return true;
        }
    }
    snprintf(path, cap, "%s", file);
    return false;
}
