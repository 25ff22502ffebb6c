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
    const int64_t n = sw_shape_elems(&shape);
    const int64_t n_scales = int8 ? shape.dims[0] : sw_ceil_div(n, SW_NF4_BLOCK);
    const struct sw_attrs attrs = {
        .weight = {.form = *form, .rows = shape.dims[0], .columns = shape.dims[1], .to = g->dtype}};
    sw_value in[3];
    in[0] = frozen(g, name, "", int8 ? SW_I8 : SW_U8, int8 ? shape : SW_SHAPE((n + 1) / 2), init);
    in[1] = frozen(g, name, ".absmax", form->is_nested ? SW_U8 : SW_F32, SW_SHAPE(n_scales), zero);
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
