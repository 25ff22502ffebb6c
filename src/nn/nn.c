// SPDX-License-Identifier: Apache-2.0
// Layers shared by the model families.
#include "nn/nn.h"

#include <stdio.h>
#include <string.h>

static sw_value leaf(sw_graph *g, const char *prefix, const char *suffix, struct sw_shape shape,
                     struct sw_init init)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", prefix, suffix);
    return sw_param(g, name, shape, init);
}

/* Enters the layer's scope: the last component of its prefix. */
static void enter(sw_graph *g, const char *prefix)
{
    const char *dot = strrchr(prefix, '.');
    sw_scope_push(g, dot ? dot + 1 : prefix);
}

sw_value sw_nn_table(sw_graph *g, const char *prefix, int64_t rows, int64_t width, double std)
{
    return leaf(g, prefix, "weight", SW_SHAPE(rows, width), (struct sw_init){SW_INIT_NORMAL, std});
}

void sw_nn_split_linear(sw_graph *g, sw_value param, int dim_out, int dim_in,
                        const struct sw_linear_spec *spec)
{
    struct sw_tensor_split outputs = {
        .dim = dim_out, .n_groups = 1, .group = {spec->out}, .unit = spec->columns};
    const struct sw_tensor_split inputs = {
        .dim = dim_in, .n_groups = 1, .group = {spec->in}, .unit = spec->rows};
    if (spec->groups[0] > 0) {
        outputs.n_groups = spec->groups[2] > 0 ? 3 : 2;
        memcpy(outputs.group, spec->groups, sizeof spec->groups);
    }
    if (param >= 0 && spec->columns > 0 && dim_out >= 0) {
        sw_param_split(g, param, &outputs);
    }
    if (param >= 0 && spec->rows > 0 && dim_in >= 0) {
        sw_param_split(g, param, &inputs);
    }
}

void sw_nn_split_words(sw_graph *g, sw_value param, int dim)
{
    if (param >= 0) {
        const struct sw_tensor_split words = {
            .dim = dim, .n_groups = 1, .group = {g->values[param].shape.dims[dim]}};
        sw_param_split(g, param, &words);
    }
}

sw_value sw_nn_vocabulary(sw_graph *g, const char *prefix, int64_t rows, int64_t width, double std)
{
    const sw_value table = sw_nn_table(g, prefix, rows, width, std);
    sw_nn_split_words(g, table, 0);
    return table;
}

sw_value sw_nn_linear(sw_graph *g, const char *prefix, sw_value x,
                      const struct sw_linear_spec *spec)
{
    enter(g, prefix);
    const struct sw_shape shape =
        spec->in_out ? SW_SHAPE(spec->in, spec->out) : SW_SHAPE(spec->out, spec->in);
    char name[256];
    sw_value param = SW_NO_VALUE;
    snprintf(name, sizeof name, "%s.weight", prefix);
    const sw_value weight =
        sw_weight(g, name, shape, (struct sw_init){SW_INIT_NORMAL, spec->std}, &param);
    const sw_value bias = spec->no_bias ? SW_NO_VALUE
                                        : leaf(g, prefix, "bias", SW_SHAPE(spec->out),
                                               (struct sw_init){SW_INIT_ZERO, 0});
    sw_nn_split_linear(g, weight, spec->in_out ? 1 : 0, spec->in_out ? 0 : 1, spec);
    sw_nn_split_linear(g, bias, 0, -1, spec);
    const struct sw_nn_layer layer = {prefix, x, param, weight, bias, spec};
    const sw_value y = sw_nn_adapted(g, &layer);
    sw_scope_pop(g);
    return y;
}

sw_value sw_nn_layer_norm(sw_graph *g, const char *prefix, sw_value x, int64_t width, double eps)
{
    enter(g, prefix);
    const sw_value weight =
        leaf(g, prefix, "weight", SW_SHAPE(width), (struct sw_init){SW_INIT_ONE, 0});
    const sw_value bias =
        leaf(g, prefix, "bias", SW_SHAPE(width), (struct sw_init){SW_INIT_ZERO, 0});
    const sw_value y = sw_layer_norm(g, x, weight, bias, eps);
    sw_scope_pop(g);
    return y;
}

sw_value sw_nn_rms_norm(sw_graph *g, const char *prefix, sw_value x, int64_t width, double eps,
                        bool one_plus)
{
    enter(g, prefix);
    const struct sw_init init = {one_plus ? SW_INIT_ZERO : SW_INIT_ONE, 0};
    const sw_value weight = leaf(g, prefix, "weight", SW_SHAPE(width), init);
    const sw_value y = sw_rms_norm(g, x, weight, eps, one_plus);
    sw_scope_pop(g);
    return y;
}
