// SPDX-License-Identifier: Apache-2.0
// Opens the module of a device and checks that it is of this build.
#include "device/gpu/open.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

void sw_gpu_module_close(void *handle)
{
    (void)handle; /* stays: what a run time has begun, threads among it, outlives its users */
}

sw_status sw_gpu_module_open(const char *backend, const struct sw_gpu_module **out, void **handle)
{
    char file[64], path[PATH_MAX + 256];
    snprintf(file, sizeof file, "spillway_%s.so", backend);
    if (!sw_module_find(file, path, sizeof path)) {
        return SW_FAIL(SW_E_UNSUP,
                       "device %s: there is no %s; a build with -DSPILLWAY_%s=ON makes it "
                       "(docs/gpu.md)",
                       backend, path,
                       strcmp(backend, "cuda") == 0  ? "CUDA"
                       : strcmp(backend, "hip") == 0 ? "HIP"
                                                     : "GPU_EMULATION");
    }
    void *opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct sw_gpu_module *module = opened ? dlsym(opened, "sw_gpu_module") : NULL;
    if (!module) {
        const char *why = dlerror();
        return SW_FAIL(SW_E_UNSUP, "%s: %s", path, why ? why : "it has no sw_gpu_module");
    }
    if (module->abi != SW_GPU_ABI || module->bytes != sizeof *module) {
        return SW_FAIL(SW_E_UNSUP, "%s: interface %d of %zu bytes, wanted %d of %zu: another build",
                       path, module->abi, module->bytes, SW_GPU_ABI, sizeof *module);
    }
    *out = module;
    *handle = opened;
    return SW_OK;
}
