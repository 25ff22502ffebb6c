// SPDX-License-Identifier: Apache-2.0
// hf/common - the format's element types, look-up by name, paths.

#include "hf/private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const struct sw_hf_dtype dtypes[] = {
    {"BOOL", 8, SW_BOOL},
    {"F4", 4, SW_DTYPE_COUNT},
    {"F6_E2M3", 6, SW_DTYPE_COUNT},
    {"F6_E3M2", 6, SW_DTYPE_COUNT},
    {"U8", 8, SW_U8},
    {"I8", 8, SW_I8},
    {"F8_E5M2", 8, SW_DTYPE_COUNT},
    {"F8_E4M3", 8, SW_DTYPE_COUNT},
    {"F8_E8M0", 8, SW_DTYPE_COUNT},
    {"F8_E4M3FNUZ", 8, SW_DTYPE_COUNT},
    {"F8_E5M2FNUZ", 8, SW_DTYPE_COUNT},
    {"I16", 16, SW_I16},
    {"U16", 16, SW_U16},
    {"F16", 16, SW_F16},
    {"BF16", 16, SW_BF16},
    {"I32", 32, SW_I32},
    {"U32", 32, SW_U32},
    {"F32", 32, SW_F32},
    {"C64", 64, SW_DTYPE_COUNT},
    {"F64", 64, SW_F64},
    {"I64", 64, SW_I64},
    {"U64", 64, SW_U64},
};

const struct sw_hf_dtype *sw_hf_dtype_of_name(const char *name)
{
    for (size_t i = 0; i < SW_LEN(dtypes); i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            return &dtypes[i];
        }
    }
    return NULL;
}

const struct sw_hf_dtype *sw_hf_dtype_of(enum sw_dtype dtype)
{
    for (size_t i = 0; i < SW_LEN(dtypes); i++) {
        if (dtypes[i].dtype == dtype && dtype != SW_DTYPE_COUNT) {
            return &dtypes[i];
        }
    }
    return NULL;
}

int sw_hf_compare_names(const void *a, const void *b)
{
    const struct sw_safetensor *const *x = a;
    const struct sw_safetensor *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

const struct sw_safetensor *sw_hf_find_by_name(const struct sw_safetensor *const *by_name,
                                               int64_t n, const char *name)
{
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const int order = strcmp(by_name[middle]->name, name);
        if (order == 0) {
            return by_name[middle];
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

char *sw_hf_join(const char *folder, const char *name)
{
    struct sw_str path = {0};
    sw_str_printf(&path, "%s/%s", folder, name);
    char *out = path.failed ? NULL : sw_strdup("hf", path.ptr);
    sw_str_fini(&path);
    return out;
}

sw_status sw_hf_sync_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = fd >= 0 && !sw_fault_fails("hf.fsync", NULL) && fsync(fd) == 0;
    const int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    return synced ? SW_OK
                  : SW_FAIL(SW_E_IO, "cannot sync the folder %s: %s", path, strerror(error));
}
