// SPDX-License-Identifier: Apache-2.0
// Files of ours that are found at run time. Modules are libraries that are opened late, because
// what they link to is not on every machine. Shared files are data. Both lie in the folder that the
// user names; else beside the file that holds this code, the program or the shared library, or
// where they are installed. The current folder is never searched.
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

/* The folder of the file that holds this code, as the kernel knows it: the dynamic loader only has
 * the name that a program was started by, which may be relative to any folder. */
static bool find_own_folder(char *out, size_t cap)
{
    const uintptr_t here = (uintptr_t)find_own_folder;
    char line[PATH_MAX + 128];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        unsigned long long first, end;
        const char *path = strchr(line, '/');
        found = path && sscanf(line, "%llx-%llx", &first, &end) == 2 && here >= first && here < end;
        if (found) {
            snprintf(out, cap, "%.*s", (int)(strrchr(path, '/') - path), path);
        }
    }
    if (maps) {
        fclose(maps);
    }
    Dl_info info;
    if (!found && dladdr((void *)here, &info) && info.dli_fname && info.dli_fname[0] == '/') {
        snprintf(out, cap, "%.*s", (int)(strrchr(info.dli_fname, '/') - info.dli_fname),
                 info.dli_fname);
        found = true;
    }
    return found;
}

/* Where a kind of files may lie. */
struct places {
    const char *variable;      /* names the one folder that is searched instead */
    const char *const *places; /* [n] below the folder of this code, in order */
    size_t n;
};

static bool find_in(const struct places *of, const char *file, char *path, size_t cap)
{
    const char *folder = getenv(of->variable);
    char here[PATH_MAX];
    if (folder && *folder) {
        snprintf(path, cap, "%s/%s", folder, file);
        return access(path, R_OK) == 0;
    }
    if (!find_own_folder(here, sizeof here)) {
        snprintf(path, cap, "%s", file);
        return false;
    }
    for (size_t i = 0; i < of->n; i++) { /* the last one is named if there is none */
        snprintf(path, cap, "%s%s/%s", here, of->places[i], file);
        if (access(path, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

bool sw_module_find(const char *file, char *path, size_t cap)
{
    static const char *const places[] = {"/spillway", "/../" SPILLWAY_LIBDIR "/spillway", ""};
    static const struct places of = {"SPILLWAY_MODULES", places, SW_LEN(places)};
    return find_in(&of, file, path, cap);
}

/* In order: installed, for lib/x86_64-linux-gnu; in the tree for a build folder, and in a wheel;
 * installed, for bin and lib. */
bool sw_share_find(const char *file, char *path, size_t cap)
{
    static const char *const places[] = {"/../../" SPILLWAY_DATADIR, "/../share",
                                         "/../" SPILLWAY_DATADIR};
    static const struct places of = {"SPILLWAY_SHARE", places, SW_LEN(places)};
    return find_in(&of, file, path, cap);
}
