// SPDX-License-Identifier: Apache-2.0
// tensor - dtype, shape, view, element conversions. No memory, no device.
#pragma once

#include <string.h>

#include "base/base.h"
#include "spillway/tensor.h"

size_t sw_dtype_bytes(enum sw_dtype dtype);
const char *sw_dtype_name(enum sw_dtype dtype); /* "f32", "bf16", .. */
bool sw_dtype_is_float(enum sw_dtype dtype);
/* From "fp32", "float32", "f32", "bf16", "bfloat16", "fp16", "float16", "half", ..; false if
 * unknown. */
bool sw_dtype_parse(const char *text, enum sw_dtype *out);

struct sw_shape sw_shape_of(int rank, const int64_t *dims);
#define SW_SHAPE(...)                                                                              \
    sw_shape_of((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
bool sw_shape_equal(const struct sw_shape *a, const struct sw_shape *b);
/* Product of all dims; 1 for rank 0. It cannot overflow: shapes in the graph were checked when
 * made. */
int64_t sw_shape_elems(const struct sw_shape *shape);
/* Product of all dims but the last (1 for rank 0 and 1); the last dim (1 for rank 0). */
int64_t sw_shape_rows(const struct sw_shape *shape);
int64_t sw_shape_last(const struct sw_shape *shape);
/* Bytes of that many contiguous elements. */
size_t sw_shape_bytes(const struct sw_shape *shape, enum sw_dtype dtype);
/* Strides in elements, the last dim contiguous. */
void sw_shape_row_major(const struct sw_shape *shape, int64_t strides[SW_MAX_RANK]);
/* False if a dim is negative, or if the product of dims and `elem_bytes` overflows int64_t. */
bool sw_shape_check(const struct sw_shape *shape, size_t elem_bytes);
/* "[2, 3]" into buf; returns buf. */
const char *sw_shape_format(const struct sw_shape *shape, char *buf, size_t cap);

/* Elements whose squares are added in order and in double, before these sums are added exactly
 * (gradient norms). A tensor may be cut only between two such runs. */
enum { SW_SQUARES_RUN = 8 };

/* ---- splits over ranks ---- */

/* Number of times that the groups follow one another along a dimension of that length. */
int64_t sw_split_repeats(const struct sw_tensor_split *split, int64_t length);
/* The split as so many ranks have it. Groups that repeat become one group, whose unit is a repeat.
 * Exception: there are more ranks than repeats, and a multiple of them; then equally many
 * consecutive ranks divide the groups of each repeat. */
struct sw_tensor_split sw_split_over(const struct sw_tensor_split *split, int64_t length,
                                     int ranks);
/* Number of consecutive ranks that hold the same elements of a group: more than one if it has fewer
 * units than ranks, and these are a multiple. ranks: those that divide the group */
int sw_split_sharing(const struct sw_tensor_split *split, int group, int ranks);

/* ---- element conversions: round to nearest, ties to even; NaN becomes quiet NaN ---- */

static inline uint16_t sw_f32_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000; /* rounding could carry it elsewhere */
    return (uint16_t)((nan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float sw_bf16_to_f32(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

uint16_t sw_f32_to_f16(float x);
float sw_f16_to_f32(uint16_t x);
/* n elements, any float dtype to any float dtype; src and dst do not overlap unless equal in
 * size. */
void sw_convert(enum sw_dtype dst_dtype, void *dst, enum sw_dtype src_dtype, const void *src,
                int64_t n);
/* acc [n] += slices [n_slices, n], slice by slice, each addition rounded to fp32 by itself. fresh:
 * the first slice is converted into acc. dtype is SW_F32, SW_BF16 or SW_F16. */
void sw_add_slices(float *acc, enum sw_dtype dtype, const void *slices, int64_t n, int n_slices,
                   bool fresh);
/* Rows of a tensor: rows [n_rows, width] and their indices, ascending, ended by -1 if there are
 * fewer. */
struct sw_row_slice {
    const int32_t *index;
    const void *rows;
};
/* Position in such an index [n] of the first entry that is at least `row` or ends the rows; n if
 * there is none. */
int64_t sw_first_row(const int32_t *index, int64_t n, int64_t row);
/* Like sw_add_slices, with the same bits, for slices given as their nonzero rows [n_rows, width].
 * acc has elements [first, first + n) of the tensor. */
void sw_add_rows(float *acc, enum sw_dtype dtype, const struct sw_row_slice *slices, int64_t n_rows,
                 int64_t width, int64_t first, int64_t n, int n_slices, bool fresh);
double sw_load_f64(enum sw_dtype dtype, const void *src, int64_t i); /* any numeric dtype */
void sw_store_f64(enum sw_dtype dtype, void *dst, int64_t i, double value);

/* The split bf16 master. The working copy is its upper half, rounded; the remainder is kept as a
 * signed 16-bit number: hi = (bits + 0x8000) >> 16, lo = bits - (hi << 16). Lossless for every
 * finite value and for infinities. NaN becomes the quiet NaN 0x7fc0 (sign kept) with lo 0. */
void sw_master_split(float master, uint16_t *hi, int16_t *lo);
float sw_master_join(uint16_t hi, int16_t lo);

/* ---- quantized.c: weights that are frozen in few bits ---- */

/* NF4: 4-bit codes with a scale for each block of the flattened weight, as published with QLoRA
 * (Dettmers et al. 2023). INT8: a scale for each row (Dettmers et al. 2022). Both have the bits of
 * bitsandbytes. */
enum sw_quantized_kind { SW_QUANTIZED_NONE, SW_QUANTIZED_NF4, SW_QUANTIZED_INT8 };
const char *sw_quantized_name(enum sw_quantized_kind kind); /* "none", "nf4", "int8" */
enum { SW_NF4_BLOCK = 64, SW_NF4_NESTED = 256 };            /* elements; scales */
enum { SW_NF4_LEVELS = 16 };
struct sw_quantized_form {
    enum sw_quantized_kind kind;
    bool is_nested;      /* NF4: double quantization, that is the scales are 8-bit codes */
    enum sw_dtype dtype; /* F32, BF16 or F16: decoded values are rounded to it */
};
/* A quantized weight of n elements in rows of `columns`; all pointers are borrowed. */
struct sw_quantized {
    struct sw_quantized_form form;
    int64_t columns;
    const void *codes;   /* NF4: u8 [(n + 1) / 2], the first of two codes in the high bits. INT8: i8
                            [n] */
    const void *scales;  /* of blocks or rows: f32, or u8 if nested */
    const float *map;    /* [256] if nested: what codes of scales stand for; times */
    const float *nested; /* if nested: scales of each SW_NF4_NESTED scales; plus */
    float offset;
};
/* Decodes elements first .. first + n - 1, any part of the weight, to a float dtype. */
void sw_quantized_decode(const struct sw_quantized *q, int64_t first, int64_t n,
                         enum sw_dtype dtype, void *out);
/* The values of the codes of NF4 in block i, [SW_NF4_LEVELS] in a float dtype. */
void sw_nf4_values(const struct sw_quantized *q, int64_t i_block, enum sw_dtype dtype, void *out);
/* The number that code 0 .. 15 stands for, as a factor of the scale: from -1 to 1, code 7 is 0. */
float sw_nf4_level(int code);
/* The scales of x [n], one for each block; the last block may be shorter. */
void sw_nf4_scales(const float *x, int64_t n, float *scales);
/* Encodes x [n]: each number gets the nearest level, and an odd last one is followed by code 7. */
void sw_nf4_encode(const float *x, int64_t n, const float *scales, uint8_t *packed);
/* bitsandbytes' map of codes of scales: ascending from about -1 to 1. */
void sw_nf4_map(float out[256]);
/* Encodes scales [n]; offset is the mean of all scales of the weight. nested: one for each
 * SW_NF4_NESTED of them */
void sw_nf4_encode_scales(const float *scales, int64_t n, const float map[256], float offset,
                          uint8_t *out, float *nested);
/* The largest size among x [n], which is the scale of a row. */
float sw_quantized_peak(const float *x, int64_t n);
/* Encodes x [n], a part of a row. */
void sw_int8_encode(const float *x, int64_t n, float scale, int8_t *out);

/* ---- codes.c: 8-bit codes, in runs with one scale each ---- */

enum { SW_CODE_RUN = 256 }; /* elements; a tensor of codes is cut only between runs */
enum sw_codes { SW_CODES_SIGNED, SW_CODES_UNSIGNED };
/* The sizes that codes stand for, as factors of the scale, ascending from 0 to 1. An unsigned code
 * is an index. A signed code is SW_SIGNED_ZERO plus the index, or minus it for negative numbers: so
 * there is no code for -1. */
enum { SW_SIGNED_ZERO = 127, SW_SIGNED_STEPS = 129, SW_UNSIGNED_STEPS = 256 };
extern const float sw_signed_steps[SW_SIGNED_STEPS], sw_unsigned_steps[SW_UNSIGNED_STEPS];
float sw_code_value(enum sw_codes codes, uint8_t code);
/*
 * sw_encode_run - encodes x [n], one run; returns the scale.
 *
 * Each number gets the nearest code, by middles in fp32. Exception: an unsigned number above 0
 * never
 * becomes 0, since steps are divided by the roots of such numbers. The scale is the largest size.
 * If a
 * number is not finite, the scale is NaN, and the whole run becomes NaN.
 */
float sw_encode_run(enum sw_codes codes, const float *x, int64_t n, uint8_t *out);
void sw_decode_run(enum sw_codes codes, const uint8_t *in, float scale, int64_t n, float *out);
