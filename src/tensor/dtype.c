// SPDX-License-Identifier: Apache-2.0
// The element types: one table of sizes and names, and reading any element as a double.
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    size_t bytes;
    bool is_float;
    const char *aliases[3];
} dtypes[SW_DTYPE_COUNT] = {
    [SW_F32] = {"f32", 4, true, {"fp32", "float32", "float"}},
    [SW_F64] = {"f64", 8, true, {"fp64", "float64", "double"}},
    [SW_BF16] = {"bf16", 2, true, {"bfloat16"}},
    [SW_F16] = {"f16", 2, true, {"fp16", "float16", "half"}},
    [SW_I8] = {"i8", 1, false, {"int8"}},
    [SW_U8] = {"u8", 1, false, {"uint8"}},
    [SW_I16] = {"i16", 2, false, {"int16"}},
    [SW_U16] = {"u16", 2, false, {"uint16"}},
    [SW_I32] = {"i32", 4, false, {"int32", "int"}},
    [SW_U32] = {"u32", 4, false, {"uint32"}},
    [SW_I64] = {"i64", 8, false, {"int64", "long"}},
    [SW_U64] = {"u64", 8, false, {"uint64"}},
    [SW_BOOL] = {"bool", 1, false, {0}},
};

size_t sw_dtype_bytes(enum sw_dtype dtype)
{
    SW_ASSERT((unsigned)dtype < SW_DTYPE_COUNT);
    return dtypes[dtype].bytes;
}

const char *sw_dtype_name(enum sw_dtype dtype)
{
    return (unsigned)dtype < SW_DTYPE_COUNT ? dtypes[dtype].name : "unknown dtype";
}

bool sw_dtype_is_float(enum sw_dtype dtype)
{
    SW_ASSERT((unsigned)dtype < SW_DTYPE_COUNT);
    return dtypes[dtype].is_float;
}

bool sw_dtype_parse(const char *text, enum sw_dtype *out)
{
    for (int i = 0; i < SW_DTYPE_COUNT; i++) {
        bool matches = strcasecmp(text, dtypes[i].name) == 0;
        for (size_t j = 0; j < SW_LEN(dtypes[i].aliases) && dtypes[i].aliases[j]; j++) {
            matches = matches || strcasecmp(text, dtypes[i].aliases[j]) == 0;
        }
        if (matches) {
            *out = (enum sw_dtype)i;
            return true;
        }
    }
    return false;
}

/* The integer dtypes: type, least and largest number, the first double that is too large. */
#define INTEGERS(X)                                                                                \
    X(SW_I8, int8_t, INT8_MIN, INT8_MAX, 0x1p7)                                                    \
    X(SW_U8, uint8_t, 0, UINT8_MAX, 0x1p8)                                                         \
    X(SW_I16, int16_t, INT16_MIN, INT16_MAX, 0x1p15)                                               \
    X(SW_U16, uint16_t, 0, UINT16_MAX, 0x1p16)                                                     \
    X(SW_I32, int32_t, INT32_MIN, INT32_MAX, 0x1p31)                                               \
    X(SW_U32, uint32_t, 0, UINT32_MAX, 0x1p32)                                                     \
    X(SW_I64, int64_t, INT64_MIN, INT64_MAX, 0x1p63)                                               \
    X(SW_U64, uint64_t, 0, UINT64_MAX, 0x1p64)

/* Unaligned reads and writes of one element: tensors in files start at any byte. */
#define LOAD(type)                                                                                 \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, bytes, sizeof(value));                                                      \
        return (double)value;                                                                      \
    }
#define LOAD_CASE(dtype, type, min, max, past_max)                                                 \
    case dtype:                                                                                    \
        LOAD(type)

double sw_load_f64(enum sw_dtype dtype, const void *src, int64_t i)
{
    const char *bytes = (const char *)src + i * (int64_t)sw_dtype_bytes(dtype);
    uint16_t half;
    switch (dtype) {
    case SW_F32:
        LOAD(float)
    case SW_F64:
        LOAD(double)
    case SW_BF16:
        memcpy(&half, bytes, sizeof(half));
        return (double)sw_bf16_to_f32(half);
    case SW_F16:
        memcpy(&half, bytes, sizeof(half));
        return (double)sw_f16_to_f32(half);
    case SW_BOOL:
        LOAD(uint8_t)
        INTEGERS(LOAD_CASE)
    case SW_DTYPE_COUNT:
        break;
    }
    return NAN;
}

/* Stores the nearest integer in the type's range, 0 for NaN: a plain cast would be undefined
 * there. */
#define STORE_CASE(dtype, type, min, max, past_max)                                                \
    case dtype: {                                                                                  \
        const double nearest = rint(value);                                                        \
        const type stored = isnan(value)              ? 0                                          \
                            : nearest >= (past_max)   ? (max)                                      \
                            : nearest < (double)(min) ? (min)                                      \
                                                      : (type)nearest;                             \
        memcpy(bytes, &stored, sizeof(stored));                                                    \
        return;                                                                                    \
    }

void sw_store_f64(enum sw_dtype dtype, void *dst, int64_t i, double value)
{
    char *bytes = (char *)dst + i * (int64_t)sw_dtype_bytes(dtype);
    switch (dtype) {
    case SW_F64:
    case SW_F32:
    case SW_BF16:
    case SW_F16:
        sw_convert(dtype, bytes, SW_F64, &value, 1);
        return;
        INTEGERS(STORE_CASE)
    case SW_BOOL:
        *bytes = value != 0.0;
        return;
    case SW_DTYPE_COUNT:
        break;
    }
}
