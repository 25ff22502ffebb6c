// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: refused by a named kind, or every tensor lies inside the file,
// in order, without holes, and can be read.
#include "hf/hf.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned char sum_bytes(const struct sw_safetensor *tensor)
{
    const unsigned char *bytes = tensor->data;
    unsigned char sum = 0;
    for (size_t i = 0; i < tensor->bytes; i++) {
        sum = (unsigned char)(sum + bytes[i]);
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sw_safetensors *file = NULL;
    if (sw_safetensors_parse("fuzz", data, size, &file) < 0) {
        SW_ASSERT(strncmp(sw_error_message(), "fuzz: ", 6) == 0);
        return 0;
    }
    const int64_t n = sw_safetensors_count(file);
    size_t total = 0;
    volatile unsigned char sink = 0; /* so that the bytes are really read */
    for (int64_t i = 0; i < n; i++) {
        const struct sw_safetensor *tensor = sw_safetensors_at(file, i);
        SW_ASSERT(sw_safetensors_find(file, tensor->name) == tensor);
        if (tensor->dtype != SW_DTYPE_COUNT) {
            const size_t bytes = sw_dtype_bytes(tensor->dtype);
            SW_ASSERT((size_t)sw_shape_elems(&tensor->shape) * bytes == tensor->bytes);
            SW_ASSERT((uintptr_t)tensor->data % bytes == 0);
        }
        total += tensor->bytes;
        sink = (unsigned char)(sink + sum_bytes(tensor));
    }
    uint64_t header = 0;
    memcpy(&header, data, 8);
    SW_ASSERT(total == size - 8 - (size_t)header);
    sw_safetensors_close(file);
    return 0;
}
