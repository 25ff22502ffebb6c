// SPDX-License-Identifier: Apache-2.0
// quantized - QUANTIZED_MATMUL in terms of MATMUL, for all back ends: the result is computed in
// blocks of columns, each by a product whose operand b is the part of the weight that the block
// needs, decoded in a workspace. Columns of a product do not depend on each other, so blocks change
// no bit; the depth is never cut.
#pragma once

#include "device/device.h"

/* The weight of the inputs of DEQUANTIZE. */
struct sw_quantized sw_quantized_weight(const struct sw_weight_attrs *attrs, void *const *in);

struct sw_quantized_blocks {
    int64_t columns;    /* of the result */
    int64_t block;      /* of them at a time, a multiple of SW_NF4_BLOCK; the last may be less */
    int64_t n;          /* number of blocks */
    size_t block_bytes; /* of a block's decoded part, a multiple of 64 */
};
/* At most `most` decoded bytes at a time, if SW_NF4_BLOCK columns are not more. */
struct sw_quantized_blocks sw_quantized_blocks_of(const struct sw_op_desc *desc, size_t most);
/* Number of columns of block i. */
int64_t sw_quantized_columns(const struct sw_quantized_blocks *blocks, int64_t i);

/* The decoded part for n columns, row-major, consists of runs of adjacent elements of the weight:
 * run i has `run` elements, from first + i stride on. */
struct sw_quantized_part {
    int64_t first, run, stride, n_runs;
};
struct sw_quantized_part sw_quantized_part_of(const struct sw_op_desc *desc, int64_t column,
                                              int64_t n);

/*
 * sw_quantized_product - the MATMUL of n columns.
 *
 * Its inputs are a, the decoded part and the bias (if any). Its outputs are those of `desc`: b is
 * narrower than the result, whose rows keep their distance.
 *
 * op          set; out->op points to it
 */
void sw_quantized_product(const struct sw_op_desc *desc, int64_t n, struct sw_op *op,
                          struct sw_op_desc *out);
/* The operands of this product, from those of QUANTIZED_MATMUL: bias and outputs begin at `column`
 * of the result. */
struct sw_quantized_operands {
    void *in[3], *out[2];
};
struct sw_quantized_operands sw_quantized_operands_of(const struct sw_op_desc *desc,
                                                      void *const *in, void *const *out,
                                                      void *decoded, int64_t column);
