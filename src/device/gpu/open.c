// SPDX-License-Identifier: Apache-2.0
// Opens a device's module and checks that it belongs to this build.
#include "device/gpu/open.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

bool sw_gpu_module_path(const char *backend, char *path, size_t cap)
{
    char file[64];
    snprintf(file, sizeof file, "spillway_%s.so", backend);
    return sw_module_find(file, path, cap);
}

sw_status sw_gpu_module_open(const char *backend, const struct sw_gpu_module **out)
{
    char path[PATH_MAX + 256];
    if (!sw_gpu_module_path(backend, path, sizeof path)) {
        return SW_FAIL(SW_E_UNSUP,
                       "device %s: there is no %s; a build with -DSPILLWAY_%s=ON makes it "
                       "(docs/gpu.md)",
                       backend, path,
                       strcmp(backend, "cuda") == 0  ? "CUDA"
                       : strcmp(backend, "hip") == 0 ? "HIP"
                                                     : "GPU_EMULATION");
    }
    sw_gpu_set_environment(backend);
    void *opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct sw_gpu_module *module = opened ? dlsym(opened, "sw_gpu_module") : NULL;
    if (!module) {
        const char *error = dlerror(), *why = error ? error : "it has no sw_gpu_module";
        const bool names_path = strncmp(why, path, strlen(path)) == 0;
        return SW_FAIL(SW_E_UNSUP, "%s%s%s%s", names_path ? "" : path, names_path ? "" : ": ", why,
                       strstr(why, "libamdhip64") ? " (apt-get install libamdhip64-5, or what ROCm "
                                                    "has for the same)"
                                                  : "");
    }
    if (module->abi != SW_GPU_ABI || module->bytes != sizeof *module) {
        return SW_FAIL(
            SW_E_UNSUP,
            "%s: interface %d of %zu bytes, wanted %d of %zu; it belongs to another build, so "
            "build both again",
            path, module->abi, module->bytes, SW_GPU_ABI, sizeof *module);
    }
    if (strncmp(backend, module->backend, strlen(module->backend)) != 0) {
        return SW_FAIL(SW_E_UNSUP, "%s: it is the module for %s, wanted %s", path, module->backend,
                       backend);
    }
    *out = module;
    return SW_OK;
}
