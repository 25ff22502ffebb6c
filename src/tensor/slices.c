// SPDX-License-Identifier: Apache-2.0
// Sums of slices in a fixed order. It is the definition of the canonical sum over ranks: whoever
// adds what ranks sent, the host or a device, gives these bits.
#include "tensor/tensor.h"

static void add_slice(float *acc, enum sw_dtype dtype, const void *addend, int64_t n, bool first)
{
    if (first) {
        sw_convert(SW_F32, acc, dtype, addend, n);
        return;
    }
    switch (dtype) {
    case SW_F32: {
        const float *x = addend;
        for (int64_t i = 0; i < n; i++) {
            acc[i] += x[i];
        }
        break;
    }
    case SW_BF16: {
        const uint16_t *x = addend;
        for (int64_t i = 0; i < n; i++) {
            acc[i] += sw_bf16_to_f32(x[i]);
        }
        break;
    }
    default: {
        const uint16_t *x = addend;
        for (int64_t i = 0; i < n; i++) {
            acc[i] += sw_f16_to_f32(x[i]);
        }
        break;
    }
    }
}

void sw_add_slices(float *acc, enum sw_dtype dtype, const void *slices, int64_t n, int n_slices,
                   bool fresh)
{
    const size_t slice_bytes = (size_t)n * sw_dtype_bytes(dtype);
    for (int k = 0; k < n_slices; k++) {
        add_slice(acc, dtype, (const char *)slices + (size_t)k * slice_bytes, n, fresh && k == 0);
    }
}
