// SPDX-License-Identifier: Apache-2.0
// Any bytes as model.safetensors.index.json beside two shards, and beside a file that is none:
// refused with the path, or a list of tensors in order of their names, each in a shard of the
// folder.
#include "hf/hf.h"

#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_shard(const char *name, const char *header, size_t n_data)
{
    char bytes[512] = {0};
    const uint64_t n = strlen(header);
    memcpy(bytes, &n, 8); /* the machines of these tests are little-endian */
    memcpy(bytes + 8, header, n);
    scratch_write(name, bytes, 8 + n + n_data);
}

#define TENSOR(name, begin, end)                                                                   \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" begin "," end "]}"

static void make_folder(void)
{
    put_shard("a.safetensors", "{" TENSOR("one", "0", "1") "," TENSOR("two", "1", "2") "}", 2);
    put_shard("b.safetensors", "{" TENSOR("three", "0", "1") "}", 1);
    scratch_write("bad.safetensors", "bad", 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sw_hf_folder *folder;
    sw_log_set_level(SW_LOG_ERROR);
    if (!scratch_root[0]) {
        scratch_folder();
        make_folder();
    }
    scratch_write("model.safetensors.index.json", data, size);
    if (sw_hf_folder_open(scratch_folder(), &folder) < 0) {
        SW_ASSERT(strstr(sw_error_message(), scratch_folder()));
        return 0;
    }
    for (int64_t i = 0; i < sw_hf_folder_count(folder); i++) {
        const struct sw_safetensor *tensor = sw_hf_folder_at(folder, i);
        SW_ASSERT(sw_hf_folder_find(folder, tensor->name) == tensor);
        SW_ASSERT(i == 0 || strcmp(sw_hf_folder_at(folder, i - 1)->name, tensor->name) < 0);
        SW_ASSERT(sw_safetensor_check(tensor) == SW_OK &&
                  *(const unsigned char *)tensor->data == 0);
    }
    sw_hf_folder_close(folder);
    return 0;
}
