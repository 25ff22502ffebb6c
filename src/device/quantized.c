// SPDX-License-Identifier: Apache-2.0
// Blocks of products with quantized weights.
#include "device/quantized.h"

struct sw_quantized sw_quantized_weight(const struct sw_weight_attrs *attrs, void *const *in)
{
    const float *nested = attrs->form.is_nested ? in[2] : NULL;
    return (struct sw_quantized){
        .form = attrs->form,
        .columns = attrs->columns,
        .codes = in[0],
        .scales = in[1],
        .map = nested,
        .nested = nested ? nested + SW_NESTED_SCALES : NULL,
        .offset = nested ? nested[SW_NESTED_OFFSET] : 0,
    };
}

static int64_t columns_of(const struct sw_op_desc *desc)
{
    const struct sw_attrs *attrs = &desc->op->attrs;
    return attrs->matmul.tb ? attrs->weight.rows : attrs->weight.columns;
}

static int64_t depth_of(const struct sw_op_desc *desc)
{
    const struct sw_attrs *attrs = &desc->op->attrs;
    return attrs->matmul.tb ? attrs->weight.columns : attrs->weight.rows;
}

struct sw_quantized_blocks sw_quantized_blocks_of(const struct sw_op_desc *desc, size_t most)
{
    const size_t bytes = sw_dtype_bytes(desc->op->attrs.weight.to);
    const int64_t columns = columns_of(desc), depth = depth_of(desc);
    const int64_t fit = (int64_t)(most / (bytes * (size_t)depth)) / SW_NF4_BLOCK * SW_NF4_BLOCK;
    const int64_t block = sw_min_i64(columns, sw_max_i64(fit, SW_NF4_BLOCK));
    return (struct sw_quantized_blocks){
        .columns = columns,
        .block = block,
        .n = sw_ceil_div(columns, block),
        .block_bytes = sw_round_up((size_t)(block * depth) * bytes, SW_STORAGE_ALIGN),
    };
}

int64_t sw_quantized_columns(const struct sw_quantized_blocks *blocks, int64_t i)
{
    return sw_min_i64(blocks->block, blocks->columns - i * blocks->block);
}

struct sw_quantized_part sw_quantized_part_of(const struct sw_op_desc *desc, int64_t column,
                                              int64_t n)
{
    const struct sw_attrs *attrs = &desc->op->attrs;
    const int64_t width = attrs->weight.columns;
    return attrs->matmul.tb ? (struct sw_quantized_part){column * width, n * width, 0, 1}
                            : (struct sw_quantized_part){column, n, width, attrs->weight.rows};
}

/* Index of the bias among the inputs of QUANTIZED_MATMUL; -1 = none. */
static int index_of_bias(const struct sw_op *op)
{
    return op->attrs.matmul.has_bias ? op->n_in - 1 : -1;
}

void sw_quantized_product(const struct sw_op_desc *desc, int64_t n, struct sw_op *op,
                          struct sw_op_desc *out)
{
    const struct sw_attrs *attrs = &desc->op->attrs;
    const int64_t depth = depth_of(desc);
    const int bias = index_of_bias(desc->op);
    *op = *desc->op;
    op->kind = SW_OP_MATMUL;
    op->attrs = (struct sw_attrs){.matmul = attrs->matmul};
    *out = *desc;
    out->op = op;
    out->in[1] = (struct sw_view){
        .dtype = attrs->weight.to,
        .shape = attrs->matmul.tb ? SW_SHAPE(n, depth) : SW_SHAPE(depth, n),
    };
    sw_shape_row_major(&out->in[1].shape, out->in[1].strides);
    out->in_shift[1] = 0;
    op->n_in = bias < 0 ? 2 : 3;
    if (bias >= 0) {
        op->in[2] = desc->op->in[bias];
        out->in[2] = desc->in[bias];
        out->in_shift[2] = desc->in_shift[bias];
    }
}

static void *column_of(void *rows, enum sw_dtype dtype, int64_t column)
{
    return rows ? (char *)rows + (size_t)column * sw_dtype_bytes(dtype) : NULL;
}

struct sw_quantized_operands sw_quantized_operands_of(const struct sw_op_desc *desc,
                                                      void *const *in, void *const *out,
                                                      void *decoded, int64_t column)
{
    const int bias = index_of_bias(desc->op);
    struct sw_quantized_operands block = {.in = {in[0], decoded}};
    if (bias >= 0) {
        block.in[2] = column_of(in[bias], desc->in[bias].dtype, column);
    }
    for (int k = 0; k < desc->op->n_out; k++) {
        block.out[k] = column_of(out[k], desc->out[k].dtype, column);
    }
    return block;
}
