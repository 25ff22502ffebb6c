// SPDX-License-Identifier: Apache-2.0
// Cases of DEQUANTIZE and QUANTIZED_MATMUL: both kinds, sizes that end within a block or a byte,
// and each dtype in which values are rounded.
#include "device/tests/op_cases.h"

static const struct {
    int64_t rows, columns;
    struct sw_quantized_form form;
} variants[] = {
    {1, 1, {SW_QUANTIZED_NF4, false, SW_F32}},      {7, 33, {SW_QUANTIZED_NF4, true, SW_BF16}},
    {129, 131, {SW_QUANTIZED_NF4, true, SW_F32}},   {64, 128, {SW_QUANTIZED_NF4, false, SW_F16}},
    {70, 260, {SW_QUANTIZED_NF4, true, SW_BF16}},   {3, 5, {SW_QUANTIZED_INT8, false, SW_F32}},
    {67, 129, {SW_QUANTIZED_INT8, false, SW_BF16}}, {5, 70, {SW_QUANTIZED_INT8, false, SW_F16}},
};

static void bytes_in(struct op_case *c, enum sw_dtype dtype, struct sw_shape shape)
{
    const int i = case_in_zero(c, dtype, shape);
    uint32_t random = (uint32_t)case_random(c, c->n_made, 0, 1, 1 << 30);
    for (int64_t k = 0; k < sw_shape_elems(&shape); k++) {
        random = random * UINT32_C(1664525) + UINT32_C(1013904223);
        ((uint8_t *)c->in[i].view.data)[k] = (uint8_t)(random >> 24);
    }
    c->n_made++;
}

/* Adds the codes and scales of a weight. */
static void weight_in(struct op_case *c, const struct sw_quantized_form *form, int64_t rows,
                      int64_t columns)
{
    const int64_t n = rows * columns, n_blocks = sw_ceil_div(n, SW_NF4_BLOCK);
    const bool int8 = form->kind == SW_QUANTIZED_INT8;
    bytes_in(c, int8 ? SW_I8 : SW_U8, int8 ? SW_SHAPE(rows, columns) : SW_SHAPE((n + 1) / 2));
    if (form->is_nested) {
        bytes_in(c, SW_U8, SW_SHAPE(n_blocks));
        const int nested = case_in(
            c, SW_F32, SW_SHAPE(SW_NESTED_SCALES + sw_ceil_div(n_blocks, SW_NF4_NESTED)), 0.1, 2);
        sw_nf4_map(c->in[nested].view.data);
    } else {
        case_in(c, SW_F32, SW_SHAPE(int8 ? rows : n_blocks), 0.1, 2);
    }
}

bool case_dequantize(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(variants)) {
        return false;
    }
    const struct sw_quantized_form form = variants[variant].form;
    const int64_t rows = variants[variant].rows, columns = variants[variant].columns;
    case_init(c, SW_OP_DEQUANTIZE, "dequantize %d %s", variant, sw_dtype_name(dtype));
    c->exact = true;
    c->op.attrs.weight =
        (struct sw_weight_attrs){.form = form, .rows = rows, .columns = columns, .to = dtype};
    weight_in(c, &form, rows, columns);
    case_out(c, dtype, SW_SHAPE(rows, columns));
    return true;
}

/* ---- QUANTIZED_MATMUL ---- */

void case_quantized_product(struct op_case *c, enum sw_dtype dtype,
                            const struct quantized_shape *shape)
{
    const bool tb = shape->tb, is_odd = shape->columns % 2 == 1;
    const int64_t n = tb ? shape->rows : shape->columns, depth = tb ? shape->columns : shape->rows;
    case_init(c, SW_OP_QUANTIZED_MATMUL, "quantized_matmul %lldx%lld%s %s", (long long)shape->rows,
              (long long)shape->columns, tb ? "^T" : "", sw_dtype_name(dtype));
    c->op.attrs = (struct sw_attrs){
        .matmul = {.tb = tb, .has_bias = is_odd, .act = is_odd ? SW_ACT_GELU_TANH : SW_ACT_NONE},
        .weight = {
            .form = shape->form, .rows = shape->rows, .columns = shape->columns, .to = dtype}};
    case_in(c, dtype, SW_SHAPE(shape->n_tokens, depth), -1, 1);
    weight_in(c, &shape->form, shape->rows, shape->columns);
    if (is_odd) {
        case_in(c, dtype, SW_SHAPE(n), -1, 1);
    }
    case_out(c, dtype, SW_SHAPE(shape->n_tokens, n));
    if (is_odd) { /* the value before the activation */
        case_out(c, dtype, SW_SHAPE(shape->n_tokens, n));
    }
}

bool case_quantized_matmul(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 2 * (int)SW_LEN(variants)) {
        return false;
    }
    const int i = variant / 2;
    const struct quantized_shape shape = {variants[i].rows, variants[i].columns, 1 + 3 * i,
                                          variant % 2 == 1, variants[i].form};
    case_quantized_product(c, dtype, &shape);
    c->slack = 4;
    return true;
}

/* ---- INVERSE_NORMS ---- */

bool case_inverse_norms(struct op_case *c, enum sw_dtype dtype, int variant)
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {37, 301, 3}, {64, 512, 8}};
    if (variant >= 2 * (int)SW_LEN(sizes)) {
        return false;
    }
    const int64_t *size = sizes[variant / 2], out = size[0], in = size[1], r = size[2];
    const bool in_out = variant % 2 == 1;
    case_init(c, SW_OP_INVERSE_NORMS, "inverse_norms %d %s", variant, sw_dtype_name(dtype));
    c->op.attrs.weight = (struct sw_weight_attrs){.factor = 0.75, .in_out = in_out};
    case_in(c, dtype, in_out ? SW_SHAPE(in, out) : SW_SHAPE(out, in), 0.1, 1);
    case_in(c, dtype, SW_SHAPE(r, in), -1, 1);
    case_in(c, dtype, SW_SHAPE(out, r), 0, 1);
    case_out(c, dtype, SW_SHAPE(out));
    return true;
}
