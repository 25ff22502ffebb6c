// SPDX-License-Identifier: Apache-2.0
// Elements of constants, of any type and alignment. Files are little-endian, as every machine that
// this program is built for.
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "onnx/file.h"
#include "onnx/fold.h"
#include "onnx/reading.h"
#include "tensor/tensor.h"

const char *sw_onnx_type_name(enum sw_onnx_type type)
{
    switch (type) {
    case ONNX_F32:
        return "f32";
    case ONNX_F64:
        return "f64";
    case ONNX_F16:
        return "f16";
    case ONNX_BF16:
        return "bf16";
    case ONNX_I8:
        return "i8";
    case ONNX_U8:
        return "u8";
    case ONNX_I16:
        return "i16";
    case ONNX_U16:
        return "u16";
    case ONNX_I32:
        return "i32";
    case ONNX_U32:
        return "u32";
    case ONNX_I64:
        return "i64";
    case ONNX_U64:
        return "u64";
    case ONNX_BOOL:
        return "bool";
    case ONNX_TEXTS:
        break;
    }
    return NULL;
}

bool sw_onnx_is_float(enum sw_onnx_type type)
{
    return type == ONNX_F32 || type == ONNX_F16 || type == ONNX_BF16 || type == ONNX_F64;
}

#define LOAD(T)                                                                                    \
    do {                                                                                           \
        T x;                                                                                       \
        memcpy(&x, (const char *)elems + (size_t)i * sizeof x, sizeof x);                          \
        return (int64_t)x;                                                                         \
    } while (0)

static double load_float(enum sw_onnx_type type, const void *elems, int64_t i)
{
    uint16_t half;
    float single;
    double whole;
    switch (type) {
    case ONNX_F32:
        memcpy(&single, (const char *)elems + (size_t)i * sizeof single, sizeof single);
        return (double)single;
    case ONNX_F64:
        memcpy(&whole, (const char *)elems + (size_t)i * sizeof whole, sizeof whole);
        return whole;
    default:
        memcpy(&half, (const char *)elems + (size_t)i * sizeof half, sizeof half);
        return (double)(type == ONNX_F16 ? sw_f16_to_f32(half) : sw_bf16_to_f32(half));
    }
}

static int64_t load_int(enum sw_onnx_type type, const void *elems, int64_t i)
{
    switch (type) {
    case ONNX_I64:
        LOAD(int64_t);
    case ONNX_I32:
        LOAD(int32_t);
    case ONNX_BOOL:
        return ((const unsigned char *)elems)[i] != 0;
    case ONNX_U8:
        LOAD(uint8_t);
    case ONNX_I8:
        LOAD(int8_t);
    case ONNX_U16:
        LOAD(uint16_t);
    case ONNX_I16:
        LOAD(int16_t);
    case ONNX_U32:
        LOAD(uint32_t);
    case ONNX_U64:
        LOAD(uint64_t);
    default:
        return sw_onnx_whole(load_float(type, elems, i));
    }
}

int64_t sw_onnx_whole(double x)
{
    if (!(x >= -0x1p63)) { /* or NaN */
        return INT64_MIN;
    }
    return x >= 0x1p63 ? INT64_MAX : (int64_t)x;
}

int64_t sw_onnx_load_int(enum sw_onnx_type type, const void *elems, int64_t i)
{
    return load_int(type, elems, i);
}

double sw_onnx_load_number(enum sw_onnx_type type, const void *elems, int64_t i)
{
    return sw_onnx_is_float(type) ? load_float(type, elems, i) : (double)load_int(type, elems, i);
}

void sw_onnx_store_int(enum sw_onnx_type type, void *elems, int64_t i, int64_t x)
{
    char *at = (char *)elems + (size_t)i * sw_onnx_type_bytes(type);
    if (type == ONNX_BOOL) {
        x = x != 0;
    }
    if (sw_onnx_is_float(type)) {
        sw_onnx_store_number(type, elems, i, (double)x);
    } else {
        memcpy(at, &x, sw_onnx_type_bytes(type)); /* its lowest bytes */
    }
}

void sw_onnx_store_number(enum sw_onnx_type type, void *elems, int64_t i, double x)
{
    char *at = (char *)elems + (size_t)i * sw_onnx_type_bytes(type);
    const float single = (float)x;
    const uint16_t half = type == ONNX_BF16 ? sw_f32_to_bf16(single) : sw_f32_to_f16(single);
    switch (type) {
    case ONNX_F32:
        memcpy(at, &single, sizeof single);
        break;
    case ONNX_F64:
        memcpy(at, &x, sizeof x);
        break;
    case ONNX_F16:
    case ONNX_BF16:
        memcpy(at, &half, sizeof half);
        break;
    case ONNX_BOOL:
        *at = x != 0;
        break;
    default:
        sw_onnx_store_int(type, elems, i, sw_onnx_whole(x));
    }
}

int64_t sw_onnx_place(const struct sw_onnx_data *data, int64_t i)
{
    int64_t at = 0;
    if (!data->strided) {
        return i;
    }
    for (int d = data->rank - 1; d >= 0; d--) {
        at += i % data->dims[d] * data->strides[d];
        i /= data->dims[d];
    }
    return at;
}

int64_t sw_onnx_data_int(const struct sw_onnx_data *data, int64_t i)
{
    return load_int(data->type, data->elems, sw_onnx_place(data, i));
}

double sw_onnx_data_number(const struct sw_onnx_data *data, int64_t i)
{
    return sw_onnx_load_number(data->type, data->elems, sw_onnx_place(data, i));
}

void sw_onnx_forget(const void *bytes, size_t len)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)bytes / page * page;
    if (len >= 16 * page) {
        madvise((void *)from, (uintptr_t)bytes + len - from, MADV_DONTNEED); /* a hint */
    }
}

void sw_onnx_data_floats(const struct sw_onnx_data *data, int64_t first, int64_t n, float *out)
{
    const size_t bytes = sw_onnx_type_bytes(data->type);
    const char *from = data->elems;
    if (data->strided || !sw_onnx_is_float(data->type)) {
        for (int64_t i = 0; i < n; i++) {
            out[i] = (float)sw_onnx_data_number(data, first + i);
        }
        return;
    }
    from += (size_t)first * bytes;
    if (data->type == ONNX_F32) {
        memcpy(out, from, (size_t)n * bytes);
    } else {
        for (int64_t i = 0; i < n; i++) {
            out[i] = (float)load_float(data->type, from, i);
        }
    }
    if (data->i_file >= 0) {
        sw_onnx_forget(from, (size_t)n * bytes);
    }
}

bool sw_onnx_data_uniform(const struct sw_onnx_data *data, double *out)
{
    bool one = true; /* stored element */
    if (data->n == 0) {
        return false;
    }
    for (int d = 0; d < data->rank; d++) {
        one = one && (data->dims[d] == 1 || (data->strided && data->strides[d] == 0));
    }
    const double x = sw_onnx_data_number(data, 0);
    for (int64_t i = 1; i < data->n && !one; i++) {
        if (sw_onnx_data_number(data, i) != x) {
            return false;
        }
    }
    *out = x;
    return x == x;
}
