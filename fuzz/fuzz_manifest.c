// SPDX-License-Identifier: Apache-2.0
// Any bytes as a checkpoint's manifest.json, with a check that fits: one row of a list, complete or
// with what is wrong with it.
#include "ckpt/ckpt.h"

#include <sys/stat.h>

#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PART_BYTES = 8792 }; /* that the seeds claim */

static void make_folder(void)
{
    static const char part[PART_BYTES];
    char path[256];
    scratch_path(path, "checkpoint-1");
    SW_ASSERT(mkdir(path, 0700) == 0);
    scratch_write("checkpoint-1/part-00000.safetensors", part, sizeof part);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sw_str text = {0};
    struct sw_ckpt_list list;
    sw_log_set_level(SW_LOG_ERROR);
    if (!scratch_root[0]) {
        make_folder();
    }
    sw_str_append(&text, (const char *)data, size);
    sw_str_printf(&text, ",\"check\":\"%08x\"}\n", (unsigned)sw_crc32c(0, data, size));
    SW_ASSERT(!text.failed);
    scratch_write("checkpoint-1/manifest.json", text.ptr, text.len);
    sw_str_fini(&text);
    SW_ASSERT(sw_ckpt_list(scratch_folder(), &list) == SW_OK);
    SW_ASSERT(list.n_items == 1);
    SW_ASSERT(list.items[0].complete || *list.items[0].problem);
    sw_ckpt_list_fini(&list);
    return 0;
}
