// SPDX-License-Identifier: Apache-2.0
// Finds libraries that are not linked.
#include "device/gpu/libs.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_there(const char *path)
{
    return access(path, R_OK) == 0;
}

/* folders: separated by ':'. */
static bool in_folders(const char *folders, const char *name, char *path, size_t cap)
{
    while (folders && *folders) {
        const size_t n = strcspn(folders, ":");
        snprintf(path, cap, "%.*s/%s", (int)n, folders, name);
        if (n > 0 && is_there(path)) {
            return true;
        }
        folders += n + (folders[n] == ':');
    }
    return false;
}

/* Asks the system's loader. The library stays open, since the caller opens it, too. */
static bool by_system(const char *name, char *path, size_t cap)
{
    void *opened = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    struct link_map *map = NULL;
    if (!opened) {
        return false;
    }
    const bool known = dlinfo(opened, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name[0];
    snprintf(path, cap, "%s", known ? map->l_name : name);
    return true;
}

/* The first file that matches <folder><pattern>/<name>. */
static bool by_pattern(const char *folder, const char *pattern, const char *name, char *path,
                       size_t cap)
{
    char text[PATH_MAX];
    glob_t found;
    if (!folder) {
        return false;
    }
    snprintf(text, sizeof text, "%s%s/%s", folder, pattern, name);
    const bool any = glob(text, 0, NULL, &found) == 0 && found.gl_pathc > 0;
    if (any) {
        snprintf(path, cap, "%s", found.gl_pathv[0]);
    }
    globfree(&found);
    return any && is_there(path);
}

/* Searches the packages of the Python that PATH leads to, in a virtual environment or not. */
static bool by_python(const char *name, char *path, size_t cap)
{
    char python[PATH_MAX];
    if (!in_folders(getenv("PATH"), "python3", python, sizeof python)) {
        return false;
    }
    *strrchr(python, '/') = '\0';
    return by_pattern(python, "/../lib/python3*/site-packages/nvidia/*/lib", name, path, cap);
}

bool sw_gpu_find_named(const char *name, char *path, size_t cap)
{
    return in_folders(getenv("SPILLWAY_GPU_LIBS"), name, path, cap);
}

bool sw_gpu_find_library(const char *name, char *path, size_t cap)
{
    static const struct {
        const char *variable, *folder; /* environment variable, or a fixed folder */
        const char *pattern;
    } places[] = {
        {"CUDA_HOME", NULL, "/lib64"},
        {"CUDA_PATH", NULL, "/lib64"},
        {NULL, "/usr/local/cuda", "/lib64"},
        {NULL, "/usr/local", "/cuda-*/lib64"},
        {"ROCM_PATH", NULL, "/lib"},
        {NULL, "/opt", "/rocm*/lib"},
        {"VIRTUAL_ENV", NULL, "/lib/python3*/site-packages/nvidia/*/lib"},
        {"CONDA_PREFIX", NULL, "/lib/python3*/site-packages/nvidia/*/lib"},
        {"CONDA_PREFIX", NULL, "/lib"},
        {"HOME", NULL, "/.local/lib/python3*/site-packages/nvidia/*/lib"},
        {NULL, "/usr", "/local/lib/python3*/[sd]i[ts][et]-packages/nvidia/*/lib"},
        {NULL, "/usr", "/lib/python3*/[sd]i[ts][et]-packages/nvidia/*/lib"},
    };
    if (sw_gpu_find_named(name, path, cap) || by_system(name, path, cap)) {
        return true;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *folder = places[i].variable ? getenv(places[i].variable) : places[i].folder;
        if (by_pattern(folder, places[i].pattern, name, path, cap)) {
            return true;
        }
    }
    if (by_python(name, path, cap)) {
        return true;
    }
    snprintf(path, cap, "%s", name);
    return false;
}
