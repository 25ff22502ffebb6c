// SPDX-License-Identifier: Apache-2.0
// One row for each kind of op: the nodes that it becomes, or why it has none.
#include "onnx/emit.h"

#include <stdio.h>
#include <string.h>

static const char *number(struct sw_onnx_emit *e, double value)
{
    return sw_onnx_number(&e->file, sw_onnx_in_type(e, 0), value);
}

static const char *last_dim(struct sw_onnx_emit *e, const char *x)
{
    static const int64_t last[] = {-1};
    return sw_onnx_unsqueeze(e, x, last, 1);
}

/* ---- views and copies ---- */

static void emit_same(struct sw_onnx_emit *e)
{
    sw_onnx_set_out(e, sw_onnx_in(e, 0));
}

static void emit_slice(struct sw_onnx_emit *e)
{
    const struct sw_onnx_forward *f = e->forward;
    const int dim = e->op->attrs.view.dim;
    const int32_t i_op = (int32_t)(e->op - e->graph->ops);
    int64_t numbers[ONNX_N_SMALL], ends[ONNX_N_SMALL];
    const int64_t whole = e->op->attrs.view.start;
    const int64_t len = e->graph->values[e->op->out[0]].shape.dims[dim];
    struct sw_onnx_size start, end;
    for (int i = 0; i < ONNX_N_SMALL; i++) {
        const struct sw_graph *g = f->small[i];
        numbers[i] = g->ops[i_op].attrs.view.start;
        ends[i] = numbers[i] + g->values[e->op->out[0]].shape.dims[dim];
    }
    sw_status st = sw_onnx_forward_size(f, numbers, whole, "a slice", &start);
    st = st < 0 ? st : sw_onnx_forward_size(f, ends, whole + len, "a slice", &end);
    if (st < 0) {
        sw_onnx_fail(&e->file, st);
        sw_onnx_set_out(e, "");
        return;
    }
    sw_onnx_set_out(e, sw_onnx_slice(e, sw_onnx_in(e, 0), dim, sw_onnx_size_value(e, &start),
                                     sw_onnx_size_value(e, &end)));
}

static void emit_view(struct sw_onnx_emit *e)
{
    const struct sw_view_attrs *attrs = &e->op->attrs.view;
    const struct sw_onnx_dims *from = sw_onnx_in_dims(e, 0);
    int64_t order[ONNX_MAX_RANK];
    switch (attrs->kind) {
    case SW_VIEW_RESHAPE:
        sw_onnx_set_out(e, sw_onnx_reshape(e, sw_onnx_in(e, 0), from, sw_onnx_out_dims(e)));
        return;
    case SW_VIEW_TRANSPOSE:
        for (int d = 0; d < from->rank; d++) {
            order[d] = d == attrs->dim ? attrs->dim_b : d == attrs->dim_b ? attrs->dim : d;
        }
        sw_onnx_set_out(e, sw_onnx_transpose(e, sw_onnx_in(e, 0), order, from->rank));
        return;
    case SW_VIEW_SLICE:
        emit_slice(e);
        return;
    }
}

/* x from attrs start on along a dimension, 0 elsewhere. */
static void emit_pad(struct sw_onnx_emit *e)
{
    const int rank = sw_onnx_in_dims(e, 0)->rank, dim = e->op->attrs.slice.dim;
    const struct sw_onnx_size *all = &sw_onnx_out_dims(e)->of[dim];
    int64_t pads[2 * ONNX_MAX_RANK] = {0};
    if (!sw_onnx_is_fixed(all)) {
        sw_onnx_refuse(e, "pads to a size that depends on the batch");
        return;
    }
    pads[dim] = e->op->attrs.slice.start;
    pads[rank + dim] = all->c0 - pads[dim] - sw_onnx_in_dims(e, 0)->of[dim].c0;
    sw_onnx_set_out(e, ONNX_ADD(e, "Pad", sw_onnx_in(e, 0), sw_onnx_ints(&e->file, pads, 2 * rank),
                                number(e, 0)));
}

static void emit_cast(struct sw_onnx_emit *e)
{
    const enum sw_onnx_type to = sw_onnx_type_of(e->graph->values[e->op->out[0]].dtype);
    sw_onnx_set_out(e, to == sw_onnx_in_type(e, 0) ? sw_onnx_in(e, 0)
                                                   : sw_onnx_cast(e, sw_onnx_in(e, 0), to));
}

static void emit_concat(struct sw_onnx_emit *e)
{
    const char *in[SW_MAX_INPUTS + 1] = {NULL};
    for (int k = 0; k < e->op->n_in; k++) {
        in[k] = sw_onnx_in(e, k);
    }
    sw_onnx_set_out(e, sw_onnx_concat(e, in, e->op->attrs.slice.dim));
}

/* ---- products and elements ---- */

static void emit_matmul(struct sw_onnx_emit *e)
{
    const struct sw_matmul_attrs *attrs = &e->op->attrs.matmul;
    const struct sw_onnx_dims *dims = sw_onnx_in_dims(e, 1);
    const char *b = sw_onnx_in(e, 1);
    if (attrs->ta || attrs->has_bias || attrs->act != SW_ACT_NONE || dims->rank != 2) {
        sw_onnx_refuse(e, "is a product that a forward has not");
        return;
    }
    sw_onnx_set_out(
        e, ONNX_ADD(e, "MatMul", sw_onnx_in(e, 0), attrs->tb ? sw_onnx_transposed(e, b) : b));
}

static void emit_add(struct sw_onnx_emit *e)
{
    sw_onnx_set_out(e, ONNX_ADD(e, "Add", sw_onnx_in(e, 0), sw_onnx_in(e, 1)));
}

static void emit_mul(struct sw_onnx_emit *e)
{
    sw_onnx_set_out(e, ONNX_ADD(e, "Mul", sw_onnx_in(e, 0), sw_onnx_in(e, 1)));
}

static void emit_scale(struct sw_onnx_emit *e)
{
    sw_onnx_set_out(e, ONNX_ADD(e, "Mul", sw_onnx_in(e, 0), number(e, e->op->attrs.scale.factor)));
}

static void emit_act(struct sw_onnx_emit *e)
{
    sw_onnx_set_out(e,
                    sw_onnx_act(e, sw_onnx_in(e, 0), sw_onnx_in_type(e, 0), e->op->attrs.act.act));
}

static void emit_gated_act(struct sw_onnx_emit *e)
{
    const char *gate =
        sw_onnx_act(e, sw_onnx_in(e, 0), sw_onnx_in_type(e, 0), e->op->attrs.act.act);
    sw_onnx_set_out(e, ONNX_ADD(e, "Mul", gate, sw_onnx_in(e, 1)));
}

/* ---- norms ---- */

static void emit_layer_norm(struct sw_onnx_emit *e)
{
    const char *out =
        ONNX_ADD(e, "LayerNormalization", sw_onnx_in(e, 0), sw_onnx_in(e, 1), sw_onnx_in(e, 2));
    sw_onnx_set_int(&e->file, "axis", -1);
    sw_onnx_set_float(&e->file, "epsilon", e->op->attrs.norm.eps);
    sw_onnx_set_out(e, out);
}

static const char *rms_in_parts(struct sw_onnx_emit *e, const char *weight)
{
    const enum sw_onnx_type type = sw_onnx_in_type(e, 0);
    const char *x =
        type == ONNX_F32 ? sw_onnx_in(e, 0) : sw_onnx_cast(e, sw_onnx_in(e, 0), ONNX_F32);
    const char *mean = sw_onnx_reduce(e, "ReduceMean", ONNX_ADD(e, "Mul", x, x), -1, true);
    const char *sum =
        ONNX_ADD(e, "Add", mean, sw_onnx_number(&e->file, ONNX_F32, e->op->attrs.norm.eps));
    const char *y = ONNX_ADD(e, "Div", x, ONNX_ADD(e, "Sqrt", sum));
    return ONNX_ADD(e, "Mul", type == ONNX_F32 ? y : sw_onnx_cast(e, y, type), weight);
}

static void emit_rms_norm(struct sw_onnx_emit *e)
{
    const char *weight = sw_onnx_in(e, 1);
    weight = e->op->attrs.norm.one_plus ? ONNX_ADD(e, "Add", weight, number(e, 1)) : weight;
    if (e->opset < 23) {
        sw_onnx_set_out(e, rms_in_parts(e, weight));
        return;
    }
    const char *out = ONNX_ADD(e, "RMSNormalization", sw_onnx_in(e, 0), weight);
    sw_onnx_set_int(&e->file, "axis", -1);
    sw_onnx_set_float(&e->file, "epsilon", e->op->attrs.norm.eps);
    sw_onnx_set_out(e, out);
}

/* ---- lookups ---- */

static void emit_embedding(struct sw_onnx_emit *e)
{
    sw_onnx_set_out(e, ONNX_ADD(e, "Gather", sw_onnx_in(e, 0), sw_onnx_in(e, 1)));
    e->centered[e->op->out[0]] = e->centered[e->op->in[1]];
}

static void emit_last_index(struct sw_onnx_emit *e)
{
    const struct sw_last_index_attrs *attrs = &e->op->attrs.last_index;
    const struct sw_onnx_dims *dims = sw_onnx_in_dims(e, 0);
    const char *place = sw_onnx_range(e, &dims->of[1]);
    if (attrs->padding_id >= 0 || attrs->is_value) {
        const char *hit =
            ONNX_ADD(e, "Equal", sw_onnx_in(e, 0), sw_onnx_scalar(&e->file, attrs->padding_id));
        hit = attrs->is_value ? hit : ONNX_ADD(e, "Not", hit);
        place = ONNX_ADD(e, "Mul", sw_onnx_cast(e, hit, ONNX_I64), place);
    } else {
        place = ONNX_ADD(e, "Expand", place, sw_onnx_shape_value(e, dims));
    }
    sw_onnx_set_out(e, sw_onnx_reduce(e, "ReduceMax", place, 1, false));
}

static void emit_select_rows(struct sw_onnx_emit *e)
{
    const char *out = ONNX_ADD(e, "GatherND", sw_onnx_in(e, 0), last_dim(e, sw_onnx_in(e, 1)));
    sw_onnx_set_int(&e->file, "batch_dims", 1);
    sw_onnx_set_out(e, out);
}

/* ---- integers ---- */

static void emit_positions(struct sw_onnx_emit *e)
{
    const struct sw_positions_attrs *attrs = &e->op->attrs.positions;
    const char *x = sw_onnx_in(e, 0);
    const int64_t offset = attrs->offset - attrs->counted;
    if (attrs->counted) {
        x = ONNX_ADD(e, "Mul", ONNX_ADD(e, "CumSum", x, sw_onnx_scalar(&e->file, 1)), x);
    }
    sw_onnx_set_out(e, offset != 0 ? ONNX_ADD(e, "Add", x, sw_onnx_scalar(&e->file, offset)) : x);
}

static void emit_not_equal(struct sw_onnx_emit *e)
{
    const char *same = ONNX_ADD(e, "Equal", sw_onnx_in(e, 0),
                                sw_onnx_scalar(&e->file, e->op->attrs.integers.value));
    sw_onnx_set_out(e, sw_onnx_cast(e, ONNX_ADD(e, "Not", same), ONNX_I64));
}

static void emit_shift_right(struct sw_onnx_emit *e)
{
    const struct sw_integers_attrs *attrs = &e->op->attrs.integers;
    const struct sw_onnx_dims *dims = sw_onnx_in_dims(e, 0);
    const struct sw_onnx_dims one = {.rank = 2, .of = {dims->of[0], {.c0 = 1}}};
    const char *first =
        ONNX_ADD(e, "Expand", sw_onnx_scalar(&e->file, attrs->value), sw_onnx_shape_value(e, &one));
    const char *rest = sw_onnx_slice_at(e, sw_onnx_in(e, 0), 1, 0, -1);
    const char *all = sw_onnx_concat(e, ONNX_IN(first, rest), 1);
    sw_onnx_set_out(e,
                    ONNX_ADD(e, "Where", ONNX_ADD(e, "Equal", all, sw_onnx_scalar(&e->file, -100)),
                             sw_onnx_scalar(&e->file, attrs->pad), all));
}

static void emit_trim(struct sw_onnx_emit *e)
{
    const char *inside = ONNX_ADD(e, "Less", sw_onnx_range(e, &sw_onnx_in_dims(e, 0)->of[1]),
                                  last_dim(e, sw_onnx_in(e, 1)));
    sw_onnx_set_out(e,
                    ONNX_ADD(e, "Where", inside, sw_onnx_in(e, 0), sw_onnx_scalar(&e->file, -1)));
}

/* ---- masks of rows ---- */

/* x where the mask (input 1) is not 0, else 0. */
static const char *masked(struct sw_onnx_emit *e)
{
    const char *kept = last_dim(e, sw_onnx_cast(e, sw_onnx_in(e, 1), ONNX_BOOL));
    return ONNX_ADD(e, "Where", kept, sw_onnx_in(e, 0), number(e, 0));
}

static void emit_mask_rows(struct sw_onnx_emit *e)
{
    sw_onnx_set_out(e, masked(e));
}

static void emit_masked_mean(struct sw_onnx_emit *e)
{
    const char *sum = sw_onnx_reduce(e, "ReduceSum", masked(e), 1, false);
    const char *set = sw_onnx_cast(e, sw_onnx_cast(e, sw_onnx_in(e, 1), ONNX_BOOL), ONNX_I64);
    const char *n = sw_onnx_reduce(e, "ReduceSum", set, 1, true);
    n = sw_onnx_cast(e, ONNX_ADD(e, "Max", n, sw_onnx_scalar(&e->file, 1)), sw_onnx_in_type(e, 0));
    sw_onnx_set_out(e, ONNX_ADD(e, "Div", sum, n));
}

/* ---- distances ---- */

/* Row of the longest table for query t and key s: s - t + origin, clamped to `rows`. int64 [T,S] */
static const char *by_distance(struct sw_onnx_emit *e, const struct sw_onnx_size *queries,
                               const struct sw_onnx_size *keys, int64_t origin, int64_t rows)
{
    char key[160];
    snprintf(key, sizeof key, "distance %lld %lld %d%d %d%d", (long long)origin, (long long)rows,
             queries->free[1], queries->free[2], keys->free[1], keys->free[2]);
    const char *known = sw_onnx_known(e, key);
    if (known) {
        return known;
    }
    const char *apart =
        ONNX_ADD(e, "Sub", sw_onnx_range(e, keys), last_dim(e, sw_onnx_range(e, queries)));
    apart = ONNX_ADD(e, "Add", apart, sw_onnx_scalar(&e->file, origin));
    apart = ONNX_ADD(e, "Max", apart, sw_onnx_scalar(&e->file, 0));
    return sw_onnx_note(e, key, ONNX_ADD(e, "Min", apart, sw_onnx_scalar(&e->file, rows - 1)));
}

static void emit_relative_bias(struct sw_onnx_emit *e)
{
    static const int64_t order[] = {2, 0, 1};
    const struct sw_onnx_dims *out = sw_onnx_out_dims(e);
    if (e->op->n_in > 1) {
        sw_onnx_refuse(e, "reads a cache, which an export has not");
        return;
    }
    const char *row = by_distance(e, &out->of[1], &out->of[2], e->op->attrs.relative.origin,
                                  sw_onnx_in_info(e, 0)->shape.dims[0]);
    const char *bias = sw_onnx_transpose(e, ONNX_ADD(e, "Gather", sw_onnx_in(e, 0), row), order, 3);
    sw_onnx_set_out(e, sw_onnx_in_type(e, 0) == ONNX_F32 ? bias : sw_onnx_cast(e, bias, ONNX_F32));
}

static void emit_relative_scores(struct sw_onnx_emit *e)
{
    static const int64_t by_head[] = {0, 2, 1, 3}, columns[] = {1, 2, 0}, turn[] = {0, 1, 3, 2};
    static const int64_t swap[] = {1, 0};
    const struct sw_relative_attrs *attrs = &e->op->attrs.relative;
    const struct sw_onnx_dims *dims = sw_onnx_out_dims(e);
    const int64_t rows = sw_onnx_in_info(e, 2)->shape.dims[0];
    const char *x = sw_onnx_transpose(e, sw_onnx_in(e, 0), by_head, 4);
    const char *all = ONNX_ADD(e, "MatMul", x,
                               sw_onnx_transpose(e, sw_onnx_in(e, 1), columns, 3)); /* [B,H,T,P] */
    const char *row = by_distance(e, &dims->of[2], &dims->of[3], (rows - 1) / 2, rows);
    row = ONNX_ADD(e, "Gather", sw_onnx_in(e, 2), row);
    row = attrs->by_key ? sw_onnx_transpose(e, row, swap, 2) : row;
    const char *out = ONNX_ADD(e, "GatherElements", all,
                               ONNX_ADD(e, "Expand", row, sw_onnx_shape_value(e, dims)));
    sw_onnx_set_int(&e->file, "axis", 3);
    out = attrs->by_key ? sw_onnx_transpose(e, out, turn, 4) : out;
    out = ONNX_ADD(e, "Mul", out, number(e, attrs->scale));
    sw_onnx_set_out(e, sw_onnx_in_type(e, 0) == ONNX_F32 ? out : sw_onnx_cast(e, out, ONNX_F32));
}

/* ---- images ---- */

/* Weights of a convolution by channel that copies each element of a window: [C K, 1, KH, KW]. */
static const char *copying_weights(struct sw_onnx_emit *e, int64_t channels, int rank)
{
    const struct sw_window_attrs *attrs = &e->op->attrs.window;
    const int64_t area = attrs->kernel[0] * attrs->kernel[1], rows = channels * area;
    const enum sw_dtype dtype = sw_onnx_in_info(e, 0)->dtype;
    const size_t bytes = sw_dtype_bytes(dtype);
    const float one = 1;
    char name[96];
    char *data = sw_alloc_zero("onnx", (size_t)(rows * area), bytes);
    if (!data) {
        sw_onnx_fail(&e->file, SW_FAIL(SW_E_NOMEM, "out of host memory for an ONNX graph"));
        return "";
    }
    for (int64_t r = 0; r < rows; r++) {
        sw_convert(dtype, data + (size_t)(r * area + r % area) * bytes, SW_F32, &one, 1);
    }
    snprintf(name, sizeof name, "windows %lld x %lld of %lld channels", (long long)attrs->kernel[0],
             (long long)attrs->kernel[1], (long long)channels);
    const struct sw_shape shape = rank == 3 ? SW_SHAPE(rows, 1, attrs->kernel[1])
                                            : SW_SHAPE(rows, 1, attrs->kernel[0], attrs->kernel[1]);
    const char *out = sw_onnx_tensor(&e->file, name, sw_onnx_in_type(e, 0), shape, data);
    sw_free(data);
    return out;
}

static void set_window(struct sw_onnx_emit *e, int rank)
{
    const struct sw_window_attrs *attrs = &e->op->attrs.window;
    const int first = rank == 3, n = rank - 2;
    int64_t pads[4];
    for (int i = 0; i < n; i++) {
        pads[i] = pads[n + i] = attrs->padding[first + i];
    }
    sw_onnx_set_ints(&e->file, "kernel_shape", attrs->kernel + first, n);
    sw_onnx_set_ints(&e->file, "pads", pads, 2 * n);
    sw_onnx_set_ints(&e->file, "strides", attrs->stride + first, n);
}

static void emit_im2col(struct sw_onnx_emit *e)
{
    static const int64_t order[] = {0, 2, 1};
    const struct sw_onnx_dims *dims = sw_onnx_in_dims(e, 0);
    const int64_t channels = dims->of[1].c0;
    const char *y = ONNX_ADD(e, "Conv", sw_onnx_in(e, 0), copying_weights(e, channels, dims->rank));
    sw_onnx_set_int(&e->file, "group", channels);
    set_window(e, dims->rank);
    if (dims->rank == 4) {
        const int64_t flat[] = {0, 0, -1};
        y = ONNX_ADD(e, "Reshape", y, sw_onnx_ints(&e->file, flat, 3));
    }
    sw_onnx_set_out(e, sw_onnx_transpose(e, y, order, 3));
}

static void emit_pool(struct sw_onnx_emit *e)
{
    const bool mean = e->op->attrs.window.mean;
    const char *out = ONNX_ADD(e, mean ? "AveragePool" : "MaxPool", sw_onnx_in(e, 0));
    if (mean) {
        sw_onnx_set_int(&e->file, "count_include_pad", 1);
    }
    set_window(e, 4);
    sw_onnx_set_out(e, out);
}

/* ---- recurrence ---- */

/* Gates i, f, g, o as ONNX has them: i, o, f, c. x has 4 n rows along dim 0. */
static const char *gates(struct sw_onnx_emit *e, const char *x, int64_t n)
{
    static const int order[] = {0, 3, 1, 2};
    const char *part[5] = {NULL};
    for (int i = 0; i < 4; i++) {
        part[i] = sw_onnx_slice_at(e, x, 0, order[i] * n, (order[i] + 1) * n);
    }
    return sw_onnx_concat(e, part, 0);
}

/* The input has the projection of all gates already, so the weights of the input only order it. */
static const char *ordering_weights(struct sw_onnx_emit *e, int64_t n)
{
    static const int order[] = {0, 3, 1, 2};
    const enum sw_dtype dtype = sw_onnx_in_info(e, 0)->dtype;
    const size_t bytes = sw_dtype_bytes(dtype);
    const float one = 1;
    char name[64];
    char *data = sw_alloc_zero("onnx", (size_t)(16 * n * n), bytes);
    if (!data) {
        sw_onnx_fail(&e->file, SW_FAIL(SW_E_NOMEM, "out of host memory for an ONNX graph"));
        return "";
    }
    for (int64_t r = 0; r < 4 * n; r++) {
        const int64_t from = order[r / n] * n + r % n;
        sw_convert(dtype, data + (size_t)(r * 4 * n + from) * bytes, SW_F32, &one, 1);
    }
    snprintf(name, sizeof name, "order of %lld gates", (long long)(4 * n));
    const char *out =
        sw_onnx_tensor(&e->file, name, sw_onnx_in_type(e, 0), SW_SHAPE(1, 4 * n, 4 * n), data);
    sw_free(data);
    return out;
}

/* A mask that ends each row is a length for ONNX. Others are refused: no family has them. */
static bool ends_rows(const struct sw_onnx_emit *e, sw_value mask)
{
    const int32_t p = e->graph->values[mask].producer;
    const struct sw_op *op = p < 0 ? NULL : &e->graph->ops[p];
    if (!op || op->kind != SW_OP_NOT_EQUAL || op->attrs.integers.value != -1) {
        return false;
    }
    const int32_t q = e->graph->values[op->in[0]].producer;
    return q >= 0 && e->graph->ops[q].kind == SW_OP_TRIM;
}

static void emit_lstm(struct sw_onnx_emit *e)
{
    static const int64_t first[] = {0}, batch_first[] = {1, 0, 2}, direction[] = {1};
    const struct sw_lstm_attrs *attrs = &e->op->attrs.lstm;
    const int64_t n = sw_onnx_in_dims(e, 1)->of[1].c0;
    const char *lengths = "";
    if (attrs->has_mask && !ends_rows(e, e->op->in[3])) {
        sw_onnx_refuse(e, "has a mask that does not end rows");
        return;
    }
    if (attrs->has_mask) {
        lengths = sw_onnx_reduce(e, "ReduceSum", sw_onnx_in(e, 3), 1, false);
        lengths = sw_onnx_cast(e, lengths, ONNX_I32);
    }
    const char *x = sw_onnx_transpose(e, sw_onnx_in(e, 0), batch_first, 3);
    const char *w = ordering_weights(e, n);
    const char *r = sw_onnx_unsqueeze(e, gates(e, sw_onnx_in(e, 1), n), first, 1);
    const char *none =
        sw_onnx_concat(e,
                       ONNX_IN(gates(e, sw_onnx_in(e, 2), n),
                               ONNX_ADD(e, "Expand", number(e, 0), sw_onnx_int(&e->file, 4 * n))),
                       0);
    const char *out = ONNX_ADD(e, "LSTM", x, w, r, sw_onnx_unsqueeze(e, none, first, 1), lengths);
    sw_onnx_set_text(&e->file, "direction", attrs->reverse ? "reverse" : "forward");
    sw_onnx_set_int(&e->file, "hidden_size", n);
    out = ONNX_ADD(e, "Squeeze", out, sw_onnx_ints(&e->file, direction, 1)); /* [T,B,H] */
    sw_onnx_set_out(e, sw_onnx_transpose(e, out, batch_first, 3));
}

/* ---- the table ---- */

#define BACKWARD                                                                                   \
    {                                                                                              \
        NULL, "is of backward", NULL, NULL                                                         \
    }
#define UPDATE                                                                                     \
    {                                                                                              \
        NULL, "is of the update", NULL, NULL                                                       \
    }
#define LOSS                                                                                       \
    {                                                                                              \
        NULL, "is of a loss, and exports have logits", NULL, NULL                                  \
    }
#define FUSED                                                                                      \
    {                                                                                              \
        NULL, "is made when a plan joins ops, and exports have none", NULL, NULL                   \
    }

static const struct sw_onnx_row rows[SW_N_OP_KINDS] = {
    [SW_OP_VIEW] = {emit_view, NULL, "Reshape, Transpose or Slice", NULL},
    [SW_OP_CONTIGUOUS] = {emit_same, NULL, "nothing", NULL},
    [SW_OP_CAST] = {emit_cast, NULL, "Cast", NULL},
    [SW_OP_EMBEDDING] = {emit_embedding, NULL, "Gather", NULL},
    [SW_OP_EMBEDDING_GRAD] = BACKWARD,
    [SW_OP_MATMUL] = {emit_matmul, NULL, "MatMul, after a Transpose of the weight", NULL},
    [SW_OP_SUM_ROWS] = BACKWARD,
    [SW_OP_ADD] = {emit_add, NULL, "Add", NULL},
    [SW_OP_SCALE] = {emit_scale, NULL, "Mul", NULL},
    [SW_OP_ACT] = {emit_act, NULL, "Relu, Tanh, Sigmoid, Erf, ..", "20: Gelu"},
    [SW_OP_ACT_GRAD] = BACKWARD,
    [SW_OP_LAYER_NORM] = {emit_layer_norm, NULL, "LayerNormalization", NULL},
    [SW_OP_LAYER_NORM_GRAD] = BACKWARD,
    [SW_OP_ADD_LAYER_NORM] = FUSED,
    [SW_OP_DROPOUT] = {emit_same, NULL, "nothing", NULL},
    [SW_OP_ATTENTION] = {sw_onnx_attention, NULL, "MatMul, Mul, Where, Softmax, MatMul",
                         "23: Attention, unless scores have a cap or a sink"},
    [SW_OP_ATTENTION_GRAD] = BACKWARD,
    [SW_OP_LAST_INDEX] = {emit_last_index, NULL, "Equal, Range, ReduceMax", NULL},
    [SW_OP_SELECT_ROWS] = {emit_select_rows, NULL, "GatherND", NULL},
    [SW_OP_SELECT_ROWS_GRAD] = BACKWARD,
    [SW_OP_SLICE_GRAD] = {emit_pad, NULL, "Pad", NULL},
    [SW_OP_KV_APPEND] = {NULL, "fills a cache, and exports have none", NULL, NULL},
    [SW_OP_CROSS_ENTROPY] = LOSS,
    [SW_OP_CROSS_ENTROPY_GRAD] = BACKWARD,
    [SW_OP_LINEAR_CE] = LOSS,
    [SW_OP_LINEAR_CE_GRAD] = BACKWARD,
    [SW_OP_LOSS_MEAN] = LOSS,
    [SW_OP_LOSS_MEAN_GRAD] = BACKWARD,
    [SW_OP_SEED] = BACKWARD,
    [SW_OP_ACCUMULATE] = BACKWARD,
    [SW_OP_STATS_RESET] = UPDATE,
    [SW_OP_GRAD_STATS] = UPDATE,
    [SW_OP_STATS_FINISH] = UPDATE,
    [SW_OP_DENSIFY] = UPDATE,
    [SW_OP_SELECT_INDEX] = UPDATE,
    [SW_OP_UPDATE] = UPDATE,
    [SW_OP_LAMB_MOMENTS] = UPDATE,
    [SW_OP_LAMB_APPLY] = UPDATE,
    [SW_OP_USER] = {NULL, "is a user's own, and its nodes are not known", NULL, NULL},
    [SW_OP_LAMB_ADD_NORMS] = UPDATE,
    [SW_OP_RMS_NORM] = {emit_rms_norm, NULL, "Mul, ReduceMean, Sqrt, Div, Mul",
                        "23: RMSNormalization"},
    [SW_OP_RMS_NORM_GRAD] = BACKWARD,
    [SW_OP_ADD_RMS_NORM] = FUSED,
    [SW_OP_MUL] = {emit_mul, NULL, "Mul", NULL},
    [SW_OP_GATED_ACT] = {emit_gated_act, NULL, "the activation, Mul", "20: Gelu"},
    [SW_OP_GATED_ACT_GRAD] = BACKWARD,
    [SW_OP_ROTARY] = {sw_onnx_rotary, NULL, "Slice, Mul, Sub, Add, Concat", "23: RotaryEmbedding"},
    [SW_OP_POSITIONS] = {emit_positions, NULL, "Add, or CumSum of the mask", NULL},
    [SW_OP_NOT_EQUAL] = {emit_not_equal, NULL, "Equal, Not, Cast", NULL},
    [SW_OP_SHIFT_RIGHT] = {emit_shift_right, NULL, "Slice, Concat, Where", NULL},
    [SW_OP_MASK_ROWS] = {emit_mask_rows, NULL, "Where", NULL},
    [SW_OP_CONCAT] = {emit_concat, NULL, "Concat", NULL},
    [SW_OP_MASKED_MEAN] = {emit_masked_mean, NULL, "Where, ReduceSum, Div", NULL},
    [SW_OP_MASKED_MEAN_GRAD] = BACKWARD,
    [SW_OP_ELEMENT_LOSS] = LOSS,
    [SW_OP_ELEMENT_LOSS_GRAD] = BACKWARD,
    [SW_OP_RELATIVE_BIAS] = {emit_relative_bias, NULL, "Gather by distance, Transpose", NULL},
    [SW_OP_RELATIVE_BIAS_GRAD] = BACKWARD,
    [SW_OP_RELATIVE_SCORES] = {emit_relative_scores, NULL, "MatMul, GatherElements by distance",
                               NULL},
    [SW_OP_RELATIVE_SCORES_GRAD] = BACKWARD,
    [SW_OP_IM2COL] = {emit_im2col, NULL, "Conv whose weights copy, Transpose", NULL},
    [SW_OP_COL2IM] = BACKWARD,
    [SW_OP_POOL] = {emit_pool, NULL, "MaxPool or AveragePool", NULL},
    [SW_OP_POOL_GRAD] = BACKWARD,
    [SW_OP_LSTM] = {emit_lstm, NULL, "LSTM", NULL},
    [SW_OP_LSTM_GRAD] = BACKWARD,
    [SW_OP_TRIM] = {emit_trim, NULL, "Less, Where", NULL},
    [SW_OP_MUON_MOMENTS] = UPDATE,
    [SW_OP_MUON_APPLY] = UPDATE,
    [SW_OP_ADAFACTOR_SUMS] = UPDATE,
    [SW_OP_ADAFACTOR_MOMENTS] = UPDATE,
    [SW_OP_ADAFACTOR_APPLY] = UPDATE,
    [SW_OP_EXCHANGE] = {NULL, "passes between ranks, and exports have one", NULL, NULL},
    [SW_OP_LINEAR_CE_MERGE] = LOSS,
    [SW_OP_CROSS_ENTROPY_MERGE] = LOSS,
    [SW_OP_PREFERENCE] = LOSS,
    [SW_OP_PREFERENCE_GRAD] = BACKWARD,
    [SW_OP_ROUTER] = {sw_onnx_router, NULL, "Softmax or Sigmoid, TopK, GatherElements", NULL},
    [SW_OP_ROUTER_GRAD] = BACKWARD,
    [SW_OP_EXPERT_ROWS] = {sw_onnx_expert_rows, NULL, "TopK of expert and place, ScatterElements",
                           NULL},
    [SW_OP_TO_EXPERTS] = {sw_onnx_to_experts, NULL, "Gather", NULL},
    [SW_OP_FROM_EXPERTS] = {sw_onnx_from_experts, NULL, "Gather, Mul, ReduceSum", NULL},
    [SW_OP_FROM_EXPERTS_GRAD] = BACKWARD,
    [SW_OP_EXPERT_MATMUL] = {sw_onnx_expert_matmul, NULL,
                             "for each expert Slice of its rows and MatMul; Concat", NULL},
    [SW_OP_EXPERT_MATMUL_GRAD] = BACKWARD,
    [SW_OP_ROUTER_STATS] = LOSS,
    [SW_OP_ROUTER_STATS_GRAD] = BACKWARD,
    [SW_OP_ROUTER_LOSS] = LOSS,
    [SW_OP_ROUTER_LOSS_GRAD] = BACKWARD,
    [SW_OP_CLAMPED_GATE] = {sw_onnx_clamped_gate, NULL, "Min, Max, Sigmoid, Mul", NULL},
    [SW_OP_CLAMPED_GATE_GRAD] = BACKWARD,
    [SW_OP_ATTENTION_SINK] = {sw_onnx_attention_sink, NULL, "ReduceLogSumExp, Sigmoid, Mul", NULL},
    [SW_OP_ATTENTION_SINK_GRAD] = BACKWARD,
    [SW_OP_EXPERT_LOADS] = LOSS,
    [SW_OP_INVERSE_NORMS] = {NULL, "belongs to DoRA; export the model with its adapter merged",
                             NULL, NULL},
    [SW_OP_DEQUANTIZE] = {NULL,
                          "decodes a quantized weight; export the model that it was made from",
                          NULL, NULL},
    [SW_OP_QUANTIZED_MATMUL] = FUSED,
    [SW_OP_LINEAR_CE_AT_ONCE] = FUSED,
};

const struct sw_onnx_row *sw_onnx_row_of(enum sw_op_kind kind)
{
    return &rows[kind];
}

const char *sw_onnx_reason(enum sw_op_kind kind)
{
    const struct sw_onnx_row *row = &rows[kind];
    return row->emit ? NULL : row->reason ? row->reason : "";
}

void sw_onnx_list(struct sw_str *out)
{
    sw_str_puts(out, "| Op | Nodes at opset 17 | Later |\n|---|---|---|\n");
    for (int kind = 0; kind < SW_N_OP_KINDS; kind++) {
        const struct sw_op op = {.kind = (enum sw_op_kind)kind};
        if (rows[kind].emit) {
            sw_str_printf(out, "| `%s` | %s | %s |\n", sw_op_name(&op), rows[kind].nodes,
                          rows[kind].later ? rows[kind].later : "");
        }
    }
}
