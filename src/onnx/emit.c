// SPDX-License-Identifier: Apache-2.0
// Pieces that the rows of several ops consist of: sizes as values, views, activations.
#include "onnx/emit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- operands ---- */

const char *sw_onnx_in(const struct sw_onnx_emit *e, int k)
{
    return e->names[e->op->in[k]];
}

const struct sw_value_info *sw_onnx_in_info(const struct sw_onnx_emit *e, int k)
{
    return &e->graph->values[e->op->in[k]];
}

const struct sw_onnx_dims *sw_onnx_in_dims(const struct sw_onnx_emit *e, int k)
{
    return &e->forward->dims[e->op->in[k]];
}

const struct sw_onnx_dims *sw_onnx_out_dims(const struct sw_onnx_emit *e)
{
    return &e->forward->dims[e->op->out[0]];
}

enum sw_onnx_type sw_onnx_in_type(const struct sw_onnx_emit *e, int k)
{
    return sw_onnx_type_of(sw_onnx_in_info(e, k)->dtype);
}

void sw_onnx_set_out(struct sw_onnx_emit *e, const char *name)
{
    e->names[e->op->out[0]] = name;
}

void sw_onnx_set_output(struct sw_onnx_emit *e, int k, const char *name)
{
    if (k < e->op->n_out && e->op->out[k] >= 0) {
        e->names[e->op->out[k]] = name;
    }
}

void sw_onnx_refuse(struct sw_onnx_emit *e, const char *why)
{
    sw_onnx_fail(&e->file,
                 SW_FAIL(SW_E_UNSUP, "%s: op %s of %s %s", e->forward->model->ops->model_type,
                         sw_op_name(e->op), *e->scope ? e->scope : "the model", why));
    sw_onnx_set_out(e, "");
}

/* ---- results that are there once ---- */

const char *sw_onnx_known(struct sw_onnx_emit *e, const char *key)
{
    const int32_t known = sw_names_find(&e->memo, 0, key);
    return known < 0 ? NULL : e->memos[known];
}

const char *sw_onnx_note(struct sw_onnx_emit *e, const char *key, const char *name)
{
    const char *kept = sw_arena_strdup(&e->file.arena, key);
    if (e->n_memos == e->cap_memos) {
        const int32_t cap = 2 * e->cap_memos + 64;
        const char **grown = sw_realloc("onnx", e->memos, (size_t)cap * sizeof *grown);
        e->memos = grown ? grown : e->memos;
        e->cap_memos = grown ? cap : e->cap_memos;
    }
    if (!kept || e->n_memos == e->cap_memos || !sw_names_add(&e->memo, 0, kept, e->n_memos)) {
        sw_onnx_fail(&e->file, SW_FAIL(SW_E_NOMEM, "out of host memory for an ONNX graph"));
        return name;
    }
    e->memos[e->n_memos++] = name;
    return name;
}

/* Nodes that several ops use are in a scope of their own. Returns the scope to go back to. */
static const char *enter(struct sw_onnx_emit *e, const char *scope)
{
    const char *old = e->scope;
    e->scope = scope;
    return old;
}

/* ---- sizes ---- */

/* The size of a free dimension: from the shape of the first input that has it. */
static const char *free_value(struct sw_onnx_emit *e, int k)
{
    const struct sw_onnx_file *file = &e->file;
    for (int i = 0; i < file->n_inputs; i++) {
        for (int d = 0; d < file->inputs[i].dims.rank; d++) {
            const struct sw_onnx_size *size = &file->inputs[i].dims.of[d];
            struct sw_onnx_size wanted = {.c1 = 1};
            wanted.free[k] = true;
            if (sw_onnx_sizes_equal(size, &wanted)) {
                const char *out = ONNX_ADD(e, "Shape", file->inputs[i].name);
                sw_onnx_set_int(&e->file, "start", d);
                sw_onnx_set_int(&e->file, "end", d + 1);
                return out;
            }
        }
    }
    sw_onnx_refuse(e, "has a size that no input has");
    return "";
}

bool sw_onnx_sizes_equal(const struct sw_onnx_size *a, const struct sw_onnx_size *b)
{
    return a->c0 == b->c0 && a->c1 == b->c1 && memcmp(a->free, b->free, sizeof a->free) == 0;
}

static const char *make_size(struct sw_onnx_emit *e, const struct sw_onnx_size *size)
{
    const char *all = NULL;
    for (int k = 0; k < ONNX_N_FREE; k++) {
        if (size->free[k]) {
            struct sw_onnx_size one = {.c1 = 1};
            one.free[k] = true;
            const char *n =
                sw_onnx_sizes_equal(size, &one) ? free_value(e, k) : sw_onnx_size_value(e, &one);
            all = all ? ONNX_ADD(e, "Mul", all, n) : n;
        }
    }
    if (size->c1 != 1) {
        all = ONNX_ADD(e, "Mul", all, sw_onnx_int(&e->file, size->c1));
    }
    return size->c0 != 0 ? ONNX_ADD(e, "Add", all, sw_onnx_int(&e->file, size->c0)) : all;
}

static void key_of(char *key, size_t cap, const char *what, const struct sw_onnx_size *size)
{
    snprintf(key, cap, "%s %lld %lld %d%d%d", what, (long long)size->c0, (long long)size->c1,
             size->free[0], size->free[1], size->free[2]);
}

const char *sw_onnx_size_value(struct sw_onnx_emit *e, const struct sw_onnx_size *size)
{
    char key[96];
    key_of(key, sizeof key, "size", size);
    const char *known =
        sw_onnx_is_fixed(size) ? sw_onnx_int(&e->file, size->c0) : sw_onnx_known(e, key);
    if (known) {
        return known;
    }
    const char *scope = enter(e, "sizes");
    const char *out = make_size(e, size);
    enter(e, scope);
    return sw_onnx_note(e, key, out);
}

const char *sw_onnx_shape_value(struct sw_onnx_emit *e, const struct sw_onnx_dims *dims)
{
    const char *in[ONNX_MAX_RANK + 1] = {NULL};
    int64_t ints[ONNX_MAX_RANK];
    bool fixed = true;
    for (int d = 0; d < dims->rank; d++) {
        fixed = fixed && sw_onnx_is_fixed(&dims->of[d]);
        ints[d] = dims->of[d].c0;
    }
    if (fixed) {
        return sw_onnx_ints(&e->file, ints, dims->rank);
    }
    for (int d = 0; d < dims->rank; d++) {
        in[d] = sw_onnx_size_value(e, &dims->of[d]);
    }
    return sw_onnx_concat(e, in, 0);
}

const char *sw_onnx_range(struct sw_onnx_emit *e, const struct sw_onnx_size *size)
{
    char key[96];
    key_of(key, sizeof key, "range", size);
    const char *known = sw_onnx_known(e, key);
    if (known) {
        return known;
    }
    const char *n = sw_onnx_size_value(e, size);
    const char *scope = enter(e, "sizes");
    const char *out = ONNX_ADD(e, "Range", sw_onnx_scalar(&e->file, 0), ONNX_ADD(e, "Squeeze", n),
                               sw_onnx_scalar(&e->file, 1));
    enter(e, scope);
    return sw_onnx_note(e, key, out);
}

/* ---- views ---- */

const char *sw_onnx_reshape(struct sw_onnx_emit *e, const char *x, const struct sw_onnx_dims *from,
                            const struct sw_onnx_dims *to)
{
    int64_t ints[ONNX_MAX_RANK];
    int n_inferred = 0;
    bool equal = from->rank == to->rank;
    for (int d = 0; d < to->rank; d++) {
        const bool same = d < from->rank && sw_onnx_sizes_equal(&from->of[d], &to->of[d]);
        equal = equal && same;
        ints[d] = sw_onnx_is_fixed(&to->of[d]) ? to->of[d].c0 : same ? 0 : -1;
        n_inferred += ints[d] < 0;
    }
    if (equal) {
        return x;
    }
    return ONNX_ADD(e, "Reshape", x,
                    n_inferred <= 1 ? sw_onnx_ints(&e->file, ints, to->rank)
                                    : sw_onnx_shape_value(e, to));
}

const char *sw_onnx_transpose(struct sw_onnx_emit *e, const char *x, const int64_t *order, int rank)
{
    const char *out = ONNX_ADD(e, "Transpose", x);
    sw_onnx_set_ints(&e->file, "perm", order, rank);
    return out;
}

const char *sw_onnx_slice(struct sw_onnx_emit *e, const char *x, int dim, const char *start,
                          const char *end)
{
    return ONNX_ADD(e, "Slice", x, start, end, sw_onnx_int(&e->file, dim));
}

const char *sw_onnx_slice_at(struct sw_onnx_emit *e, const char *x, int dim, int64_t start,
                             int64_t end)
{
    return sw_onnx_slice(e, x, dim, sw_onnx_int(&e->file, start), sw_onnx_int(&e->file, end));
}

const char *sw_onnx_unsqueeze(struct sw_onnx_emit *e, const char *x, const int64_t *dims, int n)
{
    return ONNX_ADD(e, "Unsqueeze", x, sw_onnx_ints(&e->file, dims, n));
}

const char *sw_onnx_cast(struct sw_onnx_emit *e, const char *x, enum sw_onnx_type type)
{
    const char *out = ONNX_ADD(e, "Cast", x);
    sw_onnx_set_int(&e->file, "to", type);
    return out;
}

const char *sw_onnx_concat(struct sw_onnx_emit *e, const char *const *in, int dim)
{
    const char *out = sw_onnx_add(&e->file, e->scope, "Concat", in);
    sw_onnx_set_int(&e->file, "axis", dim);
    return out;
}

/* ReduceSum has had its axes as an input since opset 13, the others since 18. */
const char *sw_onnx_reduce(struct sw_onnx_emit *e, const char *op, const char *x, int64_t dim,
                           bool keeps)
{
    const char *out;
    if (e->opset >= 18 || strcmp(op, "ReduceSum") == 0) {
        out = ONNX_ADD(e, op, x, sw_onnx_int(&e->file, dim));
    } else {
        out = ONNX_ADD(e, op, x);
        sw_onnx_set_ints(&e->file, "axes", &dim, 1);
    }
    sw_onnx_set_int(&e->file, "keepdims", keeps);
    return out;
}

const char *sw_onnx_transposed(struct sw_onnx_emit *e, const char *x)
{
    static const int64_t order[] = {1, 0};
    char key[320];
    snprintf(key, sizeof key, "transposed %s", x);
    const char *known = sw_onnx_known(e, key);
    return known ? known : sw_onnx_note(e, key, sw_onnx_transpose(e, x, order, 2));
}

/* ---- activations ---- */

static const char *number(struct sw_onnx_emit *e, enum sw_onnx_type type, double value)
{
    return sw_onnx_number(&e->file, type, value);
}

/* 0.5 x (1 + y) */
static const char *gate_half(struct sw_onnx_emit *e, const char *x, const char *y,
                             enum sw_onnx_type type)
{
    const char *sum = ONNX_ADD(e, "Add", y, number(e, type, 1));
    return ONNX_ADD(e, "Mul", ONNX_ADD(e, "Mul", x, number(e, type, 0.5)), sum);
}

static const char *gelu(struct sw_onnx_emit *e, const char *x, enum sw_onnx_type type)
{
    if (e->opset >= 20) {
        return ONNX_ADD(e, "Gelu", x);
    }
    const char *y = ONNX_ADD(e, "Erf", ONNX_ADD(e, "Mul", x, number(e, type, sqrt(0.5))));
    return gate_half(e, x, y, type);
}

static const char *gelu_tanh(struct sw_onnx_emit *e, const char *x, enum sw_onnx_type type)
{
    if (e->opset >= 20) {
        const char *out = ONNX_ADD(e, "Gelu", x);
        sw_onnx_set_text(&e->file, "approximate", "tanh");
        return out;
    }
    const char *cube = ONNX_ADD(e, "Mul", ONNX_ADD(e, "Mul", x, x), x);
    const char *sum = ONNX_ADD(e, "Add", x, ONNX_ADD(e, "Mul", cube, number(e, type, 0.044715)));
    const char *y = ONNX_ADD(e, "Tanh", ONNX_ADD(e, "Mul", sum, number(e, type, sqrt(2 / M_PI))));
    return gate_half(e, x, y, type);
}

/* x sigmoid(factor x) */
static const char *swish(struct sw_onnx_emit *e, const char *x, enum sw_onnx_type type,
                         double factor)
{
    const char *y = factor != 1 ? ONNX_ADD(e, "Mul", x, number(e, type, factor)) : x;
    return ONNX_ADD(e, "Mul", x, ONNX_ADD(e, "Sigmoid", y));
}

static const char *laplace(struct sw_onnx_emit *e, const char *x, enum sw_onnx_type type)
{
    const char *y = ONNX_ADD(e, "Sub", x, number(e, type, 0.707107));
    y = ONNX_ADD(e, "Erf", ONNX_ADD(e, "Div", y, number(e, type, 0.282095 * sqrt(2))));
    y = ONNX_ADD(e, "Add", y, number(e, type, 1));
    return ONNX_ADD(e, "Mul", y, number(e, type, 0.5));
}

const char *sw_onnx_act(struct sw_onnx_emit *e, const char *x, enum sw_onnx_type type,
                        enum sw_act act)
{
    const char *y;
    switch (act) {
    case SW_ACT_NONE:
        return x;
    case SW_ACT_GELU:
        return gelu(e, x, type);
    case SW_ACT_GELU_TANH:
        return gelu_tanh(e, x, type);
    case SW_ACT_RELU:
        return ONNX_ADD(e, "Relu", x);
    case SW_ACT_SILU:
        return swish(e, x, type, 1);
    case SW_ACT_TANH:
        return ONNX_ADD(e, "Tanh", x);
    case SW_ACT_SIGMOID:
        return ONNX_ADD(e, "Sigmoid", x);
    case SW_ACT_QUICK_GELU:
        return swish(e, x, type, 1.702);
    case SW_ACT_GELU_10:
        return ONNX_ADD(e, "Min", gelu(e, x, type), number(e, type, 10));
    case SW_ACT_RELU6:
        return ONNX_ADD(e, "Min", ONNX_ADD(e, "Relu", x), number(e, type, 6));
    case SW_ACT_RELU2:
        y = ONNX_ADD(e, "Relu", x);
        return ONNX_ADD(e, "Mul", y, y);
    case SW_ACT_LEAKY_RELU:
        y = ONNX_ADD(e, "LeakyRelu", x);
        sw_onnx_set_float(&e->file, "alpha", 0.01);
        return y;
    case SW_ACT_HARDSWISH:
        return ONNX_ADD(e, "HardSwish", x);
    case SW_ACT_MISH:
        return ONNX_ADD(e, "Mul", x, ONNX_ADD(e, "Tanh", ONNX_ADD(e, "Softplus", x)));
    case SW_ACT_LAPLACE:
        return laplace(e, x, type);
    case SW_ACT_COUNT:
        break;
    }
    sw_onnx_refuse(e, "has an activation without nodes");
    return "";
}
