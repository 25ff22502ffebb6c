// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of torch.save: refused with the name of the file, or every tensor can be
// read.
#include "hf/hf.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sw_safetensors *file = NULL;
    if (sw_pickled_parse("fuzz", data, size, &file) < 0) {
        SW_ASSERT(strncmp(sw_error_message(), "fuzz: ", 6) == 0);
        return 0;
    }
    volatile unsigned char sink = 0; /* so that the bytes are really read */
    for (int64_t i = 0; i < sw_safetensors_count(file); i++) {
        const struct sw_safetensor *tensor = sw_safetensors_at(file, i);
        SW_ASSERT(sw_safetensors_find(file, tensor->name) == tensor);
        const unsigned char *bytes = tensor->data;
        for (size_t k = 0; k < tensor->bytes; k++) {
            sink = (unsigned char)(sink + bytes[k]);
        }
    }
    sw_safetensors_close(file);
    return 0;
}
