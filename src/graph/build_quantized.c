// SPDX-License-Identifier: Apache-2.0
// Matrices that may be stored quantized.
#include <stdio.h>

#include "graph/private.h"

static sw_value frozen(struct sw_graph *g, const char *name, const char *suffix,
                       enum sw_dtype dtype, struct sw_shape shape, struct sw_init init)
{
    char full[320];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    const sw_value v = sw_graph_param(g, full, dtype, shape, init);
    if (v >= 0) {
        g->values[v].needs_grad = false;
    }
    return v;
}

static sw_value dequantize(struct sw_graph *g, const char *name, struct sw_shape shape,
                           struct sw_init init, const struct sw_quantized_form *form,
                           sw_value *out_param)
{
    const struct sw_init zero = {SW_INIT_ZERO, 0};
    const bool int8 = form->kind == SW_QUANTIZED_INT8;
    const bool whole_blocks = shape.dims[1] % SW_NF4_BLOCK == 0;
    const int64_t n = sw_shape_elems(&shape);
    const int64_t n_scales = int8 ? shape.dims[0] : sw_ceil_div(n, SW_NF4_BLOCK);
    const struct sw_shape codes = int8           ? shape
                                  : whole_blocks ? SW_SHAPE(shape.dims[0], shape.dims[1] / 2)
                                                 : SW_SHAPE((n + 1) / 2);
    const struct sw_shape scales = int8 || !whole_blocks
                                       ? SW_SHAPE(n_scales)
                                       : SW_SHAPE(shape.dims[0], shape.dims[1] / SW_NF4_BLOCK);
    const struct sw_attrs attrs = {
        .weight = {.form = *form, .rows = shape.dims[0], .columns = shape.dims[1], .to = g->dtype}};
    sw_value in[3];
    in[0] = frozen(g, name, "", int8 ? SW_I8 : SW_U8, codes, init);
    in[1] = frozen(g, name, ".absmax", form->is_nested ? SW_U8 : SW_F32, scales, zero);
    if (form->is_nested) {
        const int64_t n_nested = sw_ceil_div(n_scales, SW_NF4_NESTED);
        in[2] = frozen(g, name, ".nested", SW_F32, SW_SHAPE(SW_NESTED_SCALES + n_nested), zero);
    }
    *out_param = in[0];
    return g->status < 0
               ? SW_NO_VALUE
               : sw_graph_emit_one(g, SW_OP_DEQUANTIZE, in, form->is_nested ? 3 : 2, &attrs);
}

sw_value sw_weight(struct sw_graph *g, const char *name, struct sw_shape shape, struct sw_init init,
                   sw_value *out_param)
{
    struct sw_quantized_form form = {SW_QUANTIZED_NONE, false, SW_F32};
    const sw_status st = g->quantizer && g->status >= 0
                             ? g->quantizer->form(g->quantizer, name, &shape, &form)
                             : SW_OK;
    if (st < 0) {
        sw_graph_fail(g, st, "%s", sw_error_message());
    }
    if (form.kind == SW_QUANTIZED_NONE) {
        *out_param = sw_param(g, name, shape, init);
        return *out_param;
    }
    return dequantize(g, name, shape, init, &form, out_param);
}

/* The split of a parameter, of which an element stands for `per` columns: between whole blocks. */
static void split_columns(struct sw_graph *g, sw_value param, struct sw_tensor_split split,
                          int64_t per)
{
    int64_t block = SW_NF4_BLOCK;
    while (block % sw_max_i64(split.unit, 1) != 0) {
        block += SW_NF4_BLOCK;
    }
    split.unit = block / per;
    for (int i = 0; i < split.n_groups; i++) {
        split.group[i] /= per;
    }
    sw_param_split(g, param, &split);
}

void sw_graph_split_quantized(struct sw_graph *g, const struct sw_op *decode,
                              const struct sw_tensor_split *split)
{
    const sw_value codes = decode->in[0], scales = decode->in[1];
    const bool int8 = decode->attrs.weight.form.kind == SW_QUANTIZED_INT8;
    if (!int8 && g->values[codes].shape.rank < 2) {
        return;
    }
    if (int8 || split->dim == 0) {
        sw_param_split(g, codes, split);
    } else {
        split_columns(g, codes, *split, 2);
        split_columns(g, scales, *split, SW_NF4_BLOCK);
    }
    if (split->dim == 0) {
        sw_param_split(g, scales, split);
    }
}

sw_value sw_inverse_norms(struct sw_graph *g, sw_value w, const struct sw_adapted *layer)
{
    const sw_value in[3] = {w, layer->a, layer->b};
    const struct sw_attrs attrs = {.weight = {.factor = layer->scaling, .in_out = layer->in_out}};
    if (g->status < 0 || w < 0 || layer->a < 0 || layer->b < 0) {
        return SW_NO_VALUE;
    }
    const sw_value out = sw_graph_emit_one(g, SW_OP_INVERSE_NORMS, in, 3, &attrs);
    if (out >= 0) {
        g->values[out].needs_grad = false;
    }
    return out;
}
