// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of hf.
#pragma once

#include "hf/hf.h"

#include <limits.h>

/* One element type of the format, in order of alignment, low to high: the order of the writer. */
struct sw_hf_dtype {
    const char *name;
    int bits;
    enum sw_dtype dtype; /* SW_DTYPE_COUNT: Spillway does not have it */
};
/* NULL when unknown. */
const struct sw_hf_dtype *sw_hf_dtype_of_name(const char *name);
const struct sw_hf_dtype *sw_hf_dtype_of(enum sw_dtype dtype);

enum { SW_HF_HEADER_MAX = 100000000 }; /* bytes of the header, by the format */
#define SW_HF_METADATA "__metadata__"
#define SW_HF_SINGLE "model.safetensors"
#define SW_HF_INDEX "model.safetensors.index.json"
#define SW_HF_PICKLED "pytorch_model.bin"
#define SW_HF_PICKLED_INDEX "pytorch_model.bin.index.json"
#define SW_HF_HUB_PREFIX "models--"

/* qsort and bsearch over const struct sw_safetensor *, by name. */
int sw_hf_compare_names(const void *a, const void *b);
const struct sw_safetensor *sw_hf_find_by_name(const struct sw_safetensor *const *by_name,
                                               int64_t n, const char *name);
/* SW_E_ARG unless i is the number of one of n tensors. */
sw_status sw_hf_check_tensor(const char *path, int64_t i, int64_t n);
/* folder/name; the caller's (sw_free), NULL when out of memory. */
char *sw_hf_join(const char *folder, const char *name);
/* Whether a folder, links resolved, is a snapshot in the hub's cache; out is then the folder of its
 * model, "../models--ORG--NAME". */
bool sw_hf_hub_folder(const char *resolved, char out[PATH_MAX]);
/* fsync of a folder, so that names in it survive a power loss. */
sw_status sw_hf_sync_folder(const char *path);
