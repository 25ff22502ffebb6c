// SPDX-License-Identifier: Apache-2.0
// Builders of the operations, with their shape rules. Each function checks its operands once, and
// its messages have the shapes. Later code does not check again.
#include <float.h>
#include <math.h>
#include <string.h>

#include "graph/private.h"

static const struct sw_value_info *info_of(const sw_graph *g, sw_value v)
{
    return &g->values[v];
}

bool sw_graph_usable(struct sw_graph *g, sw_value v, const char *what)
{
    if (g->status < 0) {
        return false;
    }
    if (v < 0 || v >= g->n_values) {
        sw_graph_fail(g, SW_E_ARG, "%s: no such value in this graph", what);
        return false;
    }
    return true;
}

sw_value sw_graph_bad_shapes(struct sw_graph *g, const char *op, sw_value a, sw_value b,
                             const char *wanted)
{
    char text_a[96], text_b[96] = "";
    sw_shape_format(&info_of(g, a)->shape, text_a, sizeof text_a);
    if (b >= 0) {
        sw_shape_format(&info_of(g, b)->shape, text_b, sizeof text_b);
    }
    sw_graph_fail(g, SW_E_ARG, "%s: %s; got %s %s %s", op, wanted, text_a, b >= 0 ? "and" : "",
                  text_b);
    return SW_NO_VALUE;
}

sw_value sw_graph_bad_dtype(struct sw_graph *g, const char *op, sw_value v, const char *wanted)
{
    sw_graph_fail(g, SW_E_ARG, "%s: wants %s, got %s", op, wanted,
                  sw_dtype_name(info_of(g, v)->dtype));
    return SW_NO_VALUE;
}

int32_t sw_graph_emit(struct sw_graph *g, enum sw_op_kind kind, const sw_value *in, int n_in,
                      const struct sw_attrs *attrs)
{
    const struct sw_op_info *info = sw_op_info(kind);
    const int32_t i = sw_graph_add_op(g, kind, in, n_in, attrs);
    if (i < 0) {
        return -1;
    }
    struct sw_op_desc desc;
    struct sw_view out[SW_MAX_OUTPUTS];
    sw_graph_describe(g, &g->ops[i], &desc);
    info->shapes(&desc, out);
    for (int k = 0; k < info->n_out; k++) {
        sw_graph_add_out(g, i, out[k].dtype, out[k].shape);
    }
    return g->status < 0 ? -1 : i;
}

sw_value sw_graph_emit_one(struct sw_graph *g, enum sw_op_kind kind, const sw_value *in, int n_in,
                           const struct sw_attrs *attrs)
{
    const int32_t i = sw_graph_emit(g, kind, in, n_in, attrs);
    return i < 0 ? SW_NO_VALUE : g->ops[i].out[0];
}

sw_value sw_graph_dense(struct sw_graph *g, sw_value x)
{
    if (x < 0 || g->status < 0 || info_of(g, x)->contiguous) {
        return x;
    }
    return sw_graph_emit_one(g, SW_OP_CONTIGUOUS, &x, 1, NULL);
}

/* ---- elementwise and norms ---- */

static sw_value unary(sw_graph *g, enum sw_op_kind kind, sw_value x, const struct sw_attrs *attrs)
{
    if (!sw_graph_usable(g, x, "unary op")) {
        return SW_NO_VALUE;
    }
    if (!sw_dtype_is_float(info_of(g, x)->dtype)) {
        return sw_graph_bad_dtype(g, "unary op", x, "a float tensor");
    }
    x = sw_graph_dense(g, x);
    return sw_graph_emit_one(g, kind, &x, 1, attrs);
}

static bool is_suffix(const struct sw_shape *suffix, const struct sw_shape *of)
{
    if (suffix->rank > of->rank) {
        return false;
    }
    for (int d = 1; d <= suffix->rank; d++) {
        if (suffix->dims[suffix->rank - d] != of->dims[of->rank - d]) {
            return false;
        }
    }
    return true;
}

/* a and b element by element; b is repeated if its shape is a suffix of a's. */
static sw_value with_suffix(sw_graph *g, enum sw_op_kind kind, sw_value a, sw_value b,
                            const char *what)
{
    if (!sw_graph_usable(g, a, what) || !sw_graph_usable(g, b, what)) {
        return SW_NO_VALUE;
    }
    if (!is_suffix(&info_of(g, b)->shape, &info_of(g, a)->shape) ||
        info_of(g, a)->dtype != info_of(g, b)->dtype) {
        return sw_graph_bad_shapes(g, what, a, b,
                                   "wants equal shapes and dtypes, or b a suffix of a");
    }
    const sw_value in[2] = {sw_graph_dense(g, a), sw_graph_dense(g, b)};
    return sw_graph_emit_one(g, kind, in, 2, NULL);
}

sw_value sw_add(sw_graph *g, sw_value a, sw_value b)
{
    return with_suffix(g, SW_OP_ADD, a, b, "add");
}

sw_value sw_scale(sw_graph *g, sw_value x, double factor)
{
    const struct sw_attrs attrs = {.scale = {.factor = factor}};
    return unary(g, SW_OP_SCALE, x, &attrs);
}

sw_value sw_cast(sw_graph *g, sw_value x, enum sw_dtype dtype)
{
    if (!sw_graph_usable(g, x, "cast")) {
        return SW_NO_VALUE;
    }
    if (!sw_dtype_is_float(info_of(g, x)->dtype) || !sw_dtype_is_float(dtype)) {
        return sw_graph_bad_dtype(g, "cast", x, "a float tensor, and a float dtype");
    }
    return sw_graph_cast(g, x, dtype);
}

sw_value sw_act(sw_graph *g, sw_value x, enum sw_act act)
{
    if (act == SW_ACT_NONE) {
        return x;
    }
    const struct sw_attrs attrs = {.act = {.act = act}};
    return unary(g, SW_OP_ACT, x, &attrs);
}

sw_value sw_dropout(sw_graph *g, sw_value x, double p)
{
    if (!sw_graph_usable(g, x, "dropout")) {
        return SW_NO_VALUE;
    }
    if (!(p >= 0 && p < 1)) {
        sw_graph_fail(g, SW_E_ARG, "dropout: probability %g is not in [0, 1)", p);
        return SW_NO_VALUE;
    }
    if (p == 0 || !g->training) {
        return x;
    }
    const struct sw_attrs attrs = {.dropout = {.p = p}};
    return unary(g, SW_OP_DROPOUT, x, &attrs);
}

sw_value sw_layer_norm(sw_graph *g, sw_value x, sw_value weight, sw_value bias, double eps)
{
    if (!sw_graph_usable(g, x, "layer norm") || !sw_graph_usable(g, weight, "layer norm") ||
        !sw_graph_usable(g, bias, "layer norm")) {
        return SW_NO_VALUE;
    }
    const struct sw_shape *shape = &info_of(g, x)->shape;
    const struct sw_shape wanted = SW_SHAPE(sw_shape_last(shape));
    if (shape->rank < 1 || !sw_shape_equal(&info_of(g, weight)->shape, &wanted) ||
        !sw_shape_equal(&info_of(g, bias)->shape, &wanted)) {
        return sw_graph_bad_shapes(g, "layer norm", x, weight,
                                   "weight and bias must be as long as x's rows");
    }
    const struct sw_attrs attrs = {.norm = {.eps = eps}};
    const sw_value in[3] = {sw_graph_dense(g, x), weight, bias};
    return sw_graph_emit_one(g, SW_OP_LAYER_NORM, in, 3, &attrs);
}

sw_value sw_rms_norm(sw_graph *g, sw_value x, sw_value weight, double eps, bool one_plus)
{
    if (!sw_graph_usable(g, x, "RMS norm") || !sw_graph_usable(g, weight, "RMS norm")) {
        return SW_NO_VALUE;
    }
    const struct sw_shape *shape = &info_of(g, x)->shape;
    const struct sw_shape wanted = SW_SHAPE(shape->rank < 1 ? -1 : sw_shape_last(shape));
    if (!sw_shape_equal(&info_of(g, weight)->shape, &wanted)) {
        return sw_graph_bad_shapes(g, "RMS norm", x, weight, "weight must be as long as x's rows");
    }
    if (!sw_dtype_is_float(info_of(g, x)->dtype) ||
        info_of(g, weight)->dtype != info_of(g, x)->dtype) {
        return sw_graph_bad_dtype(g, "RMS norm", weight, "floats of one dtype");
    }
    const struct sw_attrs attrs = {.norm = {.eps = eps, .one_plus = one_plus}};
    const sw_value in[2] = {sw_graph_dense(g, x), weight};
    return sw_graph_emit_one(g, SW_OP_RMS_NORM, in, 2, &attrs);
}

/* Two float tensors of equal shape and dtype, element by element. */
static sw_value binary(sw_graph *g, enum sw_op_kind kind, sw_value a, sw_value b, const char *what,
                       const struct sw_attrs *attrs)
{
    if (!sw_graph_usable(g, a, what) || !sw_graph_usable(g, b, what)) {
        return SW_NO_VALUE;
    }
    if (!sw_shape_equal(&info_of(g, a)->shape, &info_of(g, b)->shape)) {
        return sw_graph_bad_shapes(g, what, a, b, "wants equal shapes");
    }
    if (!sw_dtype_is_float(info_of(g, a)->dtype) || info_of(g, b)->dtype != info_of(g, a)->dtype) {
        return sw_graph_bad_dtype(g, what, b, "floats of one dtype");
    }
    const sw_value in[2] = {sw_graph_dense(g, a), sw_graph_dense(g, b)};
    return sw_graph_emit_one(g, kind, in, 2, attrs);
}

sw_value sw_mul(sw_graph *g, sw_value a, sw_value b)
{
    return with_suffix(g, SW_OP_MUL, a, b, "multiply");
}

sw_value sw_gated_act(sw_graph *g, sw_value gate, sw_value up, enum sw_act act)
{
    const struct sw_attrs attrs = {.act = {.act = act}};
    return binary(g, SW_OP_GATED_ACT, gate, up, "gated activation", &attrs);
}

/* ---- positions ---- */

sw_value sw_rotary(sw_graph *g, sw_value x, sw_value table, sw_value positions, bool interleaved)
{
    if (!sw_graph_usable(g, x, "rotary") || !sw_graph_usable(g, table, "rotary") ||
        !sw_graph_usable(g, positions, "rotary")) {
        return SW_NO_VALUE;
    }
    const struct sw_shape sx = info_of(g, x)->shape;
    const struct sw_shape *st = &info_of(g, table)->shape, *sp = &info_of(g, positions)->shape;
    if (sx.rank != 4 || st->rank != 2 || st->dims[1] < 2 || st->dims[1] % 2 != 0 ||
        st->dims[1] > sx.dims[3]) {
        return sw_graph_bad_shapes(
            g, "rotary", x, table,
            "wants x [B, T, H, D] and a table [P, R] with an even R of at most D");
    }
    const struct sw_shape by_token = SW_SHAPE(sx.dims[1]);
    const struct sw_shape by_sample = SW_SHAPE(sx.dims[0], sx.dims[1]);
    if (!sw_shape_equal(sp, &by_token) && !sw_shape_equal(sp, &by_sample)) {
        return sw_graph_bad_shapes(g, "rotary", x, positions, "wants positions [T] or [B, T]");
    }
    if (info_of(g, positions)->dtype != SW_I32) {
        return sw_graph_bad_dtype(g, "rotary", positions, "i32 positions");
    }
    if (info_of(g, table)->dtype != SW_F32 || info_of(g, table)->needs_grad) {
        return sw_graph_bad_dtype(g, "rotary", table, "an f32 table that is not trained");
    }
    if (!sw_dtype_is_float(info_of(g, x)->dtype)) {
        return sw_graph_bad_dtype(g, "rotary", x, "a float tensor");
    }
    const struct sw_attrs attrs = {.rotary = {.interleaved = interleaved}};
    /* Kernels iterate over heads, so only the last dim must be dense. */
    const sw_value in[3] = {info_of(g, x)->strides[3] == 1 ? x : sw_graph_dense(g, x),
                            sw_graph_dense(g, table), sw_graph_dense(g, positions)};
    return sw_graph_emit_one(g, SW_OP_ROTARY, in, 3, &attrs);
}

static sw_value positions_of(sw_graph *g, sw_value x, const char *what,
                             const struct sw_attrs *attrs)
{
    if (!sw_graph_usable(g, x, what)) {
        return SW_NO_VALUE;
    }
    if (info_of(g, x)->dtype != SW_I32) {
        return sw_graph_bad_dtype(g, what, x, "i32");
    }
    if (attrs->positions.counted && info_of(g, x)->shape.rank != 2) {
        return sw_graph_bad_shapes(g, what, x, SW_NO_VALUE, "wants a mask [B, T]");
    }
    x = sw_graph_dense(g, x);
    return sw_graph_emit_one(g, SW_OP_POSITIONS, &x, 1, attrs);
}

sw_value sw_positions(sw_graph *g, sw_value mask, int64_t offset)
{
    const struct sw_attrs attrs = {.positions = {.offset = offset, .counted = true}};
    return positions_of(g, mask, "positions", &attrs);
}

sw_value sw_add_offset(sw_graph *g, sw_value positions, int64_t offset)
{
    const struct sw_attrs attrs = {.positions = {.offset = offset}};
    return positions_of(g, positions, "offset of positions", &attrs);
}

/* ---- products ---- */

/* Replaces a transposed view of a matrix by the matrix, and flips the flag. */
static sw_value peel_transpose(sw_graph *g, sw_value x, bool *trans)
{
    const struct sw_value_info *info = info_of(g, x);
    if (info->contiguous || info->producer < 0 || info->shape.rank != 2) {
        return x;
    }
    const struct sw_op *op = &g->ops[info->producer];
    if (op->kind == SW_OP_VIEW && op->attrs.view.kind == SW_VIEW_TRANSPOSE &&
        info_of(g, op->in[0])->contiguous) {
        *trans = !*trans;
        return op->in[0];
    }
    return x;
}

sw_value sw_matmul(sw_graph *g, sw_value a, bool trans_a, sw_value b, bool trans_b)
{
    if (!sw_graph_usable(g, a, "matmul") || !sw_graph_usable(g, b, "matmul")) {
        return SW_NO_VALUE;
    }
    a = sw_graph_dense(g, peel_transpose(g, a, &trans_a));
    b = sw_graph_dense(g, peel_transpose(g, b, &trans_b));
    if (g->status < 0) {
        return SW_NO_VALUE;
    }
    const struct sw_shape sa = info_of(g, a)->shape, sb = info_of(g, b)->shape;
    const enum sw_dtype dtype = info_of(g, a)->dtype;
    if (sa.rank < 2 || sb.rank < 2) {
        return sw_graph_bad_shapes(g, "matmul", a, b, "wants two matrices");
    }
    const int64_t k_a = trans_a ? sw_shape_rows(&sa) : sw_shape_last(&sa);
    const int64_t k_b = trans_b ? sw_shape_last(&sb) : sw_shape_rows(&sb);
    if (k_a != k_b) {
        return sw_graph_bad_shapes(g, "matmul", a, b, "inner dimensions differ");
    }
    if (dtype != info_of(g, b)->dtype) {
        return sw_graph_bad_dtype(g, "matmul", b, sw_dtype_name(dtype));
    }
    const struct sw_attrs attrs = {.matmul = {.ta = trans_a, .tb = trans_b}};
    const sw_value in[2] = {a, b};
    return sw_graph_emit_one(g, SW_OP_MATMUL, in, 2, &attrs);
}

sw_value sw_linear(sw_graph *g, sw_value x, sw_value weight, sw_value bias, bool in_out)
{
    if (!sw_graph_usable(g, x, "linear") || !sw_graph_usable(g, weight, "linear")) {
        return SW_NO_VALUE;
    }
    const struct sw_shape *sw = &info_of(g, weight)->shape;
    if (sw->rank != 2 || sw_shape_last(&info_of(g, x)->shape) != sw->dims[in_out ? 0 : 1]) {
        return sw_graph_bad_shapes(g, "linear", x, weight,
                                   in_out ? "wants weight [in, out]" : "wants weight [out, in]");
    }
    const sw_value y = sw_matmul(g, x, false, weight, !in_out);
    return bias < 0 ? y : sw_add(g, y, bias);
}

/* ---- lookups ---- */

sw_value sw_embedding(sw_graph *g, sw_value table, sw_value ids, int64_t padding_id)
{
    if (!sw_graph_usable(g, table, "embedding") || !sw_graph_usable(g, ids, "embedding")) {
        return SW_NO_VALUE;
    }
    const struct sw_shape *st = &info_of(g, table)->shape;
    if (st->rank != 2 || info_of(g, ids)->shape.rank >= SW_MAX_RANK) {
        return sw_graph_bad_shapes(g, "embedding", table, ids, "wants a table [V, C] and ids");
    }
    if (info_of(g, ids)->dtype != SW_I32) {
        return sw_graph_bad_dtype(g, "embedding", ids, "i32 ids");
    }
    const struct sw_attrs attrs = {.embedding = {.padding_id = padding_id}};
    const sw_value in[2] = {sw_graph_dense(g, table), sw_graph_dense(g, ids)};
    return sw_graph_emit_one(g, SW_OP_EMBEDDING, in, 2, &attrs);
}

static sw_value last_index(sw_graph *g, sw_value ids, const struct sw_attrs *attrs)
{
    if (!sw_graph_usable(g, ids, "last index")) {
        return SW_NO_VALUE;
    }
    const struct sw_shape shape = info_of(g, ids)->shape;
    if (shape.rank != 2 || info_of(g, ids)->dtype != SW_I32) {
        return sw_graph_bad_shapes(g, "last index", ids, SW_NO_VALUE, "wants i32 ids [B, T]");
    }
    if (attrs->last_index.padding_id >= 0) { /* otherwise the ids are not read */
        ids = sw_graph_dense(g, ids);
    }
    return sw_graph_emit_one(g, SW_OP_LAST_INDEX, &ids, 1, attrs);
}

sw_value sw_last_index(sw_graph *g, sw_value ids, int64_t pad)
{
    const struct sw_attrs attrs = {.last_index = {.padding_id = pad}};
    return last_index(g, ids, &attrs);
}

sw_value sw_last_index_of(sw_graph *g, sw_value ids, int64_t id)
{
    const struct sw_attrs attrs = {.last_index = {.padding_id = id, .is_value = true}};
    return last_index(g, ids, &attrs);
}

sw_value sw_select_rows(sw_graph *g, sw_value x, sw_value index)
{
    if (!sw_graph_usable(g, x, "select rows") || !sw_graph_usable(g, index, "select rows")) {
        return SW_NO_VALUE;
    }
    const struct sw_shape shape = info_of(g, x)->shape;
    const struct sw_shape *si = &info_of(g, index)->shape;
    if (shape.rank != 3 || si->rank != 1 || si->dims[0] != shape.dims[0] ||
        info_of(g, index)->dtype != SW_I32) {
        return sw_graph_bad_shapes(g, "select rows", x, index,
                                   "wants x [B, T, C] and i32 index [B]");
    }
    const sw_value in[2] = {sw_graph_dense(g, x), index};
    return sw_graph_emit_one(g, SW_OP_SELECT_ROWS, in, 2, NULL);
}

/* ---- attention ---- */

/* Checks queries, keys and values against these attributes. */
static bool heads_fit(sw_graph *g, const sw_value *qkv, const struct sw_attention_attrs *attrs)
{
    const struct sw_shape *q = &info_of(g, qkv[0])->shape;
    const int64_t h = attrs->heads, kv = attrs->kv_heads;
    const int64_t d = h < 1 || kv < 1 || h % kv != 0 || (attrs->packed && q->rank != 3)
                          ? 0
                          : sw_attention_width(attrs, q);
    if (d < 1) {
        sw_graph_bad_shapes(g, "attention", qkv[0], attrs->packed ? SW_NO_VALUE : qkv[1],
                            "wants [B, T, heads x width] with heads a multiple of kv_heads");
        return false;
    }
    const struct sw_shape *k = &info_of(g, qkv[attrs->packed ? 0 : 1])->shape;
    for (int i = 1; i <= 2 && !attrs->packed; i++) {
        const struct sw_shape *x = &info_of(g, qkv[i])->shape;
        if (sw_head_width(x, kv) != d || x->dims[0] != q->dims[0] || x->dims[1] != k->dims[1] ||
            info_of(g, qkv[i])->dtype != info_of(g, qkv[0])->dtype) {
            sw_graph_bad_shapes(g, "attention", qkv[0], qkv[i],
                                "keys and values must be [B, S, kv x D]");
            return false;
        }
    }
    return true;
}

static bool is_i32(const sw_graph *g, sw_value v, struct sw_shape wanted)
{
    return info_of(g, v)->dtype == SW_I32 && sw_shape_equal(&info_of(g, v)->shape, &wanted);
}

static bool bias_fits(sw_graph *g, sw_value bias, sw_value q, int64_t heads, int64_t n_queries,
                      struct sw_shape keys)
{
    const struct sw_shape *shape = &info_of(g, bias)->shape;
    const struct sw_shape shared = SW_SHAPE(heads, n_queries, keys.dims[1]);
    const struct sw_shape each = SW_SHAPE(keys.dims[0], heads, n_queries, keys.dims[1]);
    if (!sw_shape_equal(shape, &shared) && !sw_shape_equal(shape, &each)) {
        sw_graph_bad_shapes(g, "attention", q, bias,
                            "wants a bias [heads, queries, keys], or one of each sample");
        return false;
    }
    if (info_of(g, bias)->dtype != sw_stat_dtype(info_of(g, q)->dtype)) {
        sw_graph_bad_dtype(g, "attention", bias, "an f32 bias");
        return false;
    }
    return true;
}

/* Appends the optional inputs to `in`. Returns the number of inputs; -1 = one of them is wrong. */
static int attention_extras(sw_graph *g, const struct sw_attention_spec *spec,
                            const struct sw_attention_attrs *attrs, int64_t n_queries,
                            struct sw_shape keys, sw_value *in, int n_in)
{
    const sw_value all[] = {spec->mask, spec->position, spec->slopes, spec->segments, spec->bias};
    for (size_t i = 0; i < SW_LEN(all); i++) {
        if (all[i] >= 0 && !sw_graph_usable(g, all[i], "attention")) {
            return -1;
        }
    }
    if (attrs->has_mask && !is_i32(g, spec->mask, keys)) {
        sw_graph_bad_shapes(g, "attention", in[0], spec->mask, "wants an i32 mask [B, keys]");
        return -1;
    }
    if (attrs->has_slopes) {
        const struct sw_value_info *slopes = info_of(g, spec->slopes);
        if (slopes->dtype != SW_F32 || slopes->needs_grad || slopes->shape.rank != 1 ||
            slopes->shape.dims[0] != attrs->heads) {
            sw_graph_bad_shapes(g, "attention", in[0], spec->slopes,
                                "wants constant f32 slopes [heads]");
            return -1;
        }
    }
    if (attrs->has_segments &&
        (!is_i32(g, spec->segments, keys) || (n_queries != keys.dims[1] && !attrs->has_position))) {
        sw_graph_bad_shapes(g, "attention", in[0], spec->segments,
                            "wants i32 segments [B, keys], and a position unless queries are keys");
        return -1;
    }
    if (attrs->has_bias && !bias_fits(g, spec->bias, in[0], attrs->heads, n_queries, keys)) {
        return -1;
    }
    for (size_t i = 0; i < SW_LEN(all); i++) {
        if (all[i] >= 0) {
            in[n_in++] = sw_graph_dense(g, all[i]);
        }
    }
    return n_in;
}

static sw_value attention(sw_graph *g, const sw_value *qkv, int n_qkv,
                          const struct sw_attention_spec *spec)
{
    for (int i = 0; i < n_qkv; i++) {
        if (!sw_graph_usable(g, qkv[i], "attention")) {
            return SW_NO_VALUE;
        }
    }
    const struct sw_attrs all = {.attention = {
                                     .packed = n_qkv == 1,
                                     .causal = spec->causal,
                                     .heads = spec->heads,
                                     .kv_heads = spec->kv_heads > 0 ? spec->kv_heads : spec->heads,
                                     .window = spec->window,
                                     .scale = spec->scale,
                                     .dropout = g->training ? spec->dropout : 0,
                                     .cap = spec->cap,
                                     .has_mask = spec->mask >= 0,
                                     .has_position = spec->position >= 0,
                                     .has_slopes = spec->slopes >= 0,
                                     .bf16_slopes = spec->slopes >= 0 && spec->bf16_slopes,
                                     .has_segments = spec->segments >= 0,
                                     .has_bias = spec->bias >= 0,
                                 }};
    const struct sw_attention_attrs *attrs = &all.attention;
    if (!heads_fit(g, qkv, attrs)) {
        return SW_NO_VALUE;
    }
    if (!(attrs->dropout >= 0 && attrs->dropout < 1)) {
        sw_graph_fail(g, SW_E_ARG, "attention: dropout %g is not in [0, 1)", attrs->dropout);
        return SW_NO_VALUE;
    }
    if (!(attrs->cap >= 0 && attrs->cap <= FLT_MAX)) {
        sw_graph_fail(g, SW_E_ARG, "attention: cap %g; wanted a number above 0, or 0 for none",
                      attrs->cap);
        return SW_NO_VALUE;
    }
    const int64_t n_queries = info_of(g, qkv[0])->shape.dims[1];
    const struct sw_shape k = info_of(g, qkv[n_qkv == 1 ? 0 : 1])->shape;
    sw_value in[8];
    for (int i = 0; i < n_qkv; i++) {
        /* Kernels iterate over rows, so only the last dim must be dense. */
        const struct sw_value_info *x = info_of(g, qkv[i]);
        in[i] = x->strides[x->shape.rank - 1] == 1 ? qkv[i] : sw_graph_dense(g, qkv[i]);
    }
    const int n_in =
        attention_extras(g, spec, attrs, n_queries, SW_SHAPE(k.dims[0], k.dims[1]), in, n_qkv);
    return n_in < 0 ? SW_NO_VALUE : sw_graph_emit_one(g, SW_OP_ATTENTION, in, n_in, &all);
}

sw_value sw_attention_packed(sw_graph *g, sw_value qkv, const struct sw_attention_spec *spec)
{
    return attention(g, &qkv, 1, spec);
}

sw_value sw_attention(sw_graph *g, sw_value q, sw_value k, sw_value v,
                      const struct sw_attention_spec *spec)
{
    const sw_value qkv[3] = {q, k, v};
    return attention(g, qkv, 3, spec);
}

/* ---- views ---- */

/* Adds the VIEW op; the caller sets strides and offset of the new value. */
static sw_value view_of(sw_graph *g, sw_value x, const struct sw_attrs *attrs,
                        struct sw_shape shape)
{
    const int32_t op = sw_graph_add_op(g, SW_OP_VIEW, &x, 1, attrs);
    const sw_value v = sw_graph_add_out(g, op, info_of(g, x)->dtype, shape);
    if (v >= 0) {
        struct sw_value_info *info = &g->values[v];
        info->base = sw_graph_root(g, x);
        info->base_offset = g->values[x].base_offset;
    }
    return v;
}

static void mark_contiguous(struct sw_value_info *info)
{
    int64_t stride = 1;
    info->contiguous = true;
    for (int d = info->shape.rank - 1; d >= 0; d--) {
        if (info->shape.dims[d] != 1 && info->strides[d] != stride) {
            info->contiguous = false;
        }
        stride *= info->shape.dims[d];
    }
}

sw_value sw_reshape(sw_graph *g, sw_value x, struct sw_shape shape)
{
    if (!sw_graph_usable(g, x, "reshape")) {
        return SW_NO_VALUE;
    }
    if (!sw_shape_check(&shape, 8) ||
        sw_shape_elems(&shape) != sw_shape_elems(&info_of(g, x)->shape)) {
        char a[96], b[96];
        sw_graph_fail(g, SW_E_ARG, "reshape: %s and %s have different numbers of elements",
                      sw_shape_format(&shape, a, sizeof a),
                      sw_shape_format(&info_of(g, x)->shape, b, sizeof b));
        return SW_NO_VALUE;
    }
    const struct sw_attrs attrs = {.view = {.kind = SW_VIEW_RESHAPE}};
    x = sw_graph_dense(g, x);
    return x < 0 ? x : view_of(g, x, &attrs, shape);
}

sw_value sw_transpose(sw_graph *g, sw_value x, int dim_a, int dim_b)
{
    if (!sw_graph_usable(g, x, "transpose")) {
        return SW_NO_VALUE;
    }
    struct sw_shape shape = info_of(g, x)->shape;
    if (dim_a < 0 || dim_b < 0 || dim_a >= shape.rank || dim_b >= shape.rank) {
        return sw_graph_bad_shapes(g, "transpose", x, SW_NO_VALUE, "no such dimension");
    }
    shape.dims[dim_a] = info_of(g, x)->shape.dims[dim_b];
    shape.dims[dim_b] = info_of(g, x)->shape.dims[dim_a];
    const struct sw_attrs attrs = {
        .view = {.kind = SW_VIEW_TRANSPOSE, .dim = dim_a, .dim_b = dim_b}};
    const sw_value v = view_of(g, x, &attrs, shape);
    if (v >= 0) {
        struct sw_value_info *info = &g->values[v];
        memcpy(info->strides, g->values[x].strides, sizeof info->strides);
        info->strides[dim_a] = g->values[x].strides[dim_b];
        info->strides[dim_b] = g->values[x].strides[dim_a];
        mark_contiguous(info);
    }
    return v;
}

sw_value sw_slice(sw_graph *g, sw_value x, int dim, int64_t start, int64_t len)
{
    if (!sw_graph_usable(g, x, "slice")) {
        return SW_NO_VALUE;
    }
    struct sw_shape shape = info_of(g, x)->shape;
    if (dim < 0 || dim >= shape.rank || start < 0 || len < 0 || start > shape.dims[dim] - len) {
        return sw_graph_bad_shapes(g, "slice", x, SW_NO_VALUE, "the range is outside the tensor");
    }
    shape.dims[dim] = len;
    const struct sw_attrs attrs = {.view = {.kind = SW_VIEW_SLICE, .dim = dim, .start = start}};
    const sw_value v = view_of(g, x, &attrs, shape);
    if (v >= 0) {
        struct sw_value_info *info = &g->values[v];
        memcpy(info->strides, g->values[x].strides, sizeof info->strides);
        info->base_offset += start * info->strides[dim];
        mark_contiguous(info);
    }
    return v;
}

sw_value sw_attention_sink(sw_graph *g, sw_value o, sw_value sinks)
{
    if (!sw_graph_usable(g, o, "attention sink") || !sw_graph_usable(g, sinks, "attention sink")) {
        return SW_NO_VALUE;
    }
    const int32_t producer = info_of(g, o)->producer;
    const struct sw_op *op = producer >= 0 ? &g->ops[producer] : NULL;
    const bool is_attention = op && op->kind == SW_OP_ATTENTION;
    const struct sw_shape heads = SW_SHAPE(is_attention ? op->attrs.attention.heads : -1);
    if (!sw_shape_equal(&info_of(g, sinks)->shape, &heads)) {
        return sw_graph_bad_shapes(g, "attention sink", o, sinks,
                                   "wants the output of an attention and sinks [heads]");
    }
    const sw_value in[3] = {o, op->out[1], sw_graph_dense(g, sinks)};
    return sw_graph_emit_one(g, SW_OP_ATTENTION_SINK, in, 3, NULL);
}

/* ---- losses ---- */

static sw_value mean_of(sw_graph *g, sw_value sum, sw_value count, int64_t rows)
{
    const sw_value in[2] = {sum, count};
    /* With token mean, the weight of a micro-batch is one that all micro-batches share: its rows.
     * The number of targets in the global batch is applied once, at the boundary. */
    const struct sw_attrs attrs = {.loss_mean = {.weight = g->token_mean ? 1.0 / (double)rows : 0}};
    return sw_graph_emit_one(g, SW_OP_LOSS_MEAN, in, 2, &attrs);
}

static bool labels_fit(sw_graph *g, const char *op, sw_value x, sw_value labels)
{
    if (info_of(g, labels)->dtype != SW_I32) {
        sw_graph_bad_dtype(g, op, labels, "i32 labels");
        return false;
    }
    if (sw_shape_elems(&info_of(g, labels)->shape) != sw_shape_rows(&info_of(g, x)->shape)) {
        sw_graph_bad_shapes(g, op, x, labels, "wants one label per row");
        return false;
    }
    return true;
}

/* The mean loss over `rows` rows; op has its sum and count. */
static sw_value mean_loss(struct sw_graph *g, int32_t op, int64_t rows)
{
    return op < 0 ? SW_NO_VALUE : mean_of(g, g->ops[op].out[0], g->ops[op].out[1], rows);
}

static bool smoothing_fits(sw_graph *g, const char *what, double smoothing)
{
    if (!(smoothing >= 0 && smoothing < 1)) {
        sw_graph_fail(g, SW_E_ARG, "%s: a label smoothing of %g; wanted a number in [0, 1)", what,
                      smoothing);
        return false;
    }
    return true;
}

sw_value sw_cross_entropy_of(sw_graph *g, sw_value logits, sw_value labels,
                             const struct sw_cross_entropy_spec *spec)
{
    const char *what = "cross entropy";
    if (!sw_graph_usable(g, logits, what) || !sw_graph_usable(g, labels, what) ||
        !labels_fit(g, what, logits, labels) || !smoothing_fits(g, what, spec->smoothing)) {
        return SW_NO_VALUE;
    }
    const int64_t rows = sw_shape_rows(&info_of(g, logits)->shape);
    const struct sw_attrs attrs = {
        .cross_entropy = {.smoothing = spec->smoothing, .ignores_beyond = spec->ignores_beyond}};
    const sw_value in[2] = {sw_graph_dense(g, logits), sw_graph_dense(g, labels)};
    return mean_loss(g, sw_graph_emit(g, SW_OP_CROSS_ENTROPY, in, 2, &attrs), rows);
}

sw_value sw_cross_entropy(sw_graph *g, sw_value logits, sw_value labels)
{
    const struct sw_cross_entropy_spec plain = {0};
    return sw_cross_entropy_of(g, logits, labels, &plain);
}

/* A loss per element of x, with float targets. */
static sw_value element_loss(sw_graph *g, const char *what, sw_value x, sw_value target,
                             bool binary)
{
    if (!sw_graph_usable(g, x, what) || !sw_graph_usable(g, target, what)) {
        return SW_NO_VALUE;
    }
    const int64_t n = sw_shape_elems(&info_of(g, x)->shape);
    if (n != sw_shape_elems(&info_of(g, target)->shape)) {
        return sw_graph_bad_shapes(g, what, x, target, "wants one target for each element");
    }
    if (!sw_dtype_is_float(info_of(g, x)->dtype) || info_of(g, target)->dtype != SW_F32) {
        return sw_graph_bad_dtype(g, what, target, "f32 targets");
    }
    const struct sw_attrs attrs = {.element_loss = {.binary = binary}};
    const sw_value in[2] = {sw_graph_dense(g, x), sw_graph_dense(g, target)};
    return mean_loss(g, sw_graph_emit(g, SW_OP_ELEMENT_LOSS, in, 2, &attrs), n);
}

sw_value sw_mean_squared_error(sw_graph *g, sw_value x, sw_value target)
{
    return element_loss(g, "mean squared error", x, target, false);
}

sw_value sw_binary_cross_entropy(sw_graph *g, sw_value logits, sw_value target)
{
    return element_loss(g, "binary cross entropy", logits, target, true);
}

/* Emits the op; -1 after a failure. */
static int32_t linear_ce(sw_graph *g, sw_value h, sw_value weight, sw_value bias, sw_value labels,
                         double cap, bool by_row)
{
    const char *what = "linear cross entropy";
    if (!sw_graph_usable(g, h, what) || !sw_graph_usable(g, weight, what) ||
        (bias != SW_NO_VALUE && !sw_graph_usable(g, bias, what)) ||
        !sw_graph_usable(g, labels, what) || !labels_fit(g, what, h, labels)) {
        return -1;
    }
    const struct sw_shape *sw = &info_of(g, weight)->shape;
    if (sw->rank != 2 || sw->dims[1] != sw_shape_last(&info_of(g, h)->shape)) {
        sw_graph_bad_shapes(g, what, h, weight, "wants h [.., C], weight [V, C]");
        return -1;
    }
    const struct sw_shape wanted = SW_SHAPE(sw->dims[0]);
    if (bias != SW_NO_VALUE && !sw_shape_equal(&info_of(g, bias)->shape, &wanted)) {
        sw_graph_bad_shapes(g, what, weight, bias, "wants a bias as long as the weight has rows");
        return -1;
    }
    if (!(cap >= 0) || isinf(cap)) {
        sw_graph_fail(g, SW_E_ARG, "%s: a cap of %g; wanted a number above 0, or 0 for none", what,
                      cap);
        return -1;
    }
    const struct sw_attrs attrs = {.linear_ce = {.chunk = sw_min_i64(g->loss_chunk, sw->dims[0]),
                                                 .cap = cap,
                                                 .has_bias = bias != SW_NO_VALUE,
                                                 .by_row = by_row}};
    const sw_value in[4] = {sw_graph_dense(g, h), sw_graph_dense(g, weight),
                            sw_graph_dense(g, labels), bias};
    return sw_graph_emit(g, SW_OP_LINEAR_CE, in, attrs.linear_ce.has_bias ? 4 : 3, &attrs);
}

sw_value sw_linear_cross_entropy(sw_graph *g, sw_value h, sw_value weight, sw_value bias,
                                 sw_value labels, double cap)
{
    const int32_t op = linear_ce(g, h, weight, bias, labels, cap, false);
    return op < 0 ? SW_NO_VALUE : mean_loss(g, op, sw_shape_rows(&info_of(g, h)->shape));
}

sw_value sw_linear_token_losses(sw_graph *g, sw_value h, sw_value weight, sw_value bias,
                                sw_value labels, double cap, sw_value *out_counts)
{
    const int32_t op = linear_ce(g, h, weight, bias, labels, cap, true);
    *out_counts = op < 0 ? SW_NO_VALUE : g->ops[op].out[1];
    return op < 0 ? SW_NO_VALUE : g->ops[op].out[0];
}

/* The sum of the products of elements of x and w, [1]. */
static sw_value sum_of_products(sw_graph *g, sw_value x, sw_value w, int64_t n)
{
    const sw_value row = sw_reshape(g, x, SW_SHAPE(1, n));
    return sw_reshape(g, sw_matmul(g, row, false, w, true), SW_SHAPE(1));
}

sw_value sw_weighted_linear_cross_entropy(sw_graph *g, sw_value h, sw_value weight, sw_value bias,
                                          sw_value labels, sw_value weights, double cap)
{
    sw_value counts;
    const sw_value x = sw_linear_token_losses(g, h, weight, bias, labels, cap, &counts);
    if (x < 0 || !sw_graph_usable(g, weights, "weighted cross entropy")) {
        return SW_NO_VALUE;
    }
    const int64_t n = sw_shape_elems(&info_of(g, x)->shape);
    if (n != sw_shape_elems(&info_of(g, weights)->shape)) {
        return sw_graph_bad_shapes(g, "weighted cross entropy", labels, weights,
                                   "wants a weight for each label");
    }
    const sw_value w =
        sw_reshape(g, sw_graph_cast(g, weights, info_of(g, x)->dtype), SW_SHAPE(1, n));
    return mean_of(g, sum_of_products(g, x, w, n), sum_of_products(g, counts, w, n), n);
}

/* ---- losses of preferences ---- */

sw_value sw_to_statistic(sw_graph *g, sw_value x)
{
    return sw_graph_usable(g, x, "cast") ? sw_graph_cast(g, x, sw_stat_dtype(info_of(g, x)->dtype))
                                         : SW_NO_VALUE;
}

/* Is v a number of this dtype for each row of x? */
static bool one_per_row(sw_graph *g, const char *what, sw_value x, sw_value v, enum sw_dtype dtype)
{
    const struct sw_shape rows = SW_SHAPE(info_of(g, x)->shape.dims[0]);
    if (!sw_graph_usable(g, v, what)) {
        return false;
    }
    if (!sw_shape_equal(&info_of(g, v)->shape, &rows)) {
        sw_graph_bad_shapes(g, what, x, v, "wants x [R, T] and a number for each row [R]");
        return false;
    }
    if (info_of(g, v)->dtype != dtype) {
        sw_graph_bad_dtype(g, what, v, sw_dtype_name(dtype));
        return false;
    }
    return true;
}

static bool preference_fits(sw_graph *g, const char *what, const struct sw_preference_spec *spec)
{
    const enum sw_preference_kind kind = spec->attrs.kind;
    if (!sw_graph_usable(g, spec->x, what) || !sw_graph_usable(g, spec->counts, what)) {
        return false;
    }
    const struct sw_value_info *x = info_of(g, spec->x), *counts = info_of(g, spec->counts);
    if (x->shape.rank != 2 || !sw_shape_equal(&x->shape, &counts->shape) ||
        (kind != SW_PREFERENCE_KTO && x->shape.dims[0] % 2 != 0)) {
        sw_graph_bad_shapes(g, what, spec->x, spec->counts,
                            "wants x [R, T] and counts [R, T]; R is even for pairs");
        return false;
    }
    if (x->dtype != sw_stat_dtype(x->dtype) || counts->dtype != sw_stat_dtype(counts->dtype)) {
        sw_graph_bad_dtype(g, what, spec->counts, "f32 losses and counts");
        return false;
    }
    if ((spec->kinds >= 0) != (kind == SW_PREFERENCE_KTO)) {
        sw_graph_fail(g, SW_E_ARG, "%s: kinds of rows are for KTO, which needs them", what);
        return false;
    }
    return (spec->reference < 0 || one_per_row(g, what, spec->x, spec->reference, SW_F32)) &&
           (spec->kinds < 0 || one_per_row(g, what, spec->x, spec->kinds, SW_I32));
}

sw_value sw_preference_loss(sw_graph *g, const struct sw_preference_spec *spec,
                            sw_value *out_values, sw_value *out_totals)
{
    struct sw_attrs attrs = {.preference = spec->attrs};
    sw_value in[4];
    int n = 0;
    *out_values = *out_totals = SW_NO_VALUE;
    if (!preference_fits(g, "preference", spec)) {
        return SW_NO_VALUE;
    }
    attrs.preference.has_reference = spec->reference >= 0;
    attrs.preference.has_kinds = spec->kinds >= 0;
    in[n++] = sw_graph_dense(g, spec->x);
    in[n++] = sw_graph_dense(g, spec->counts);
    if (spec->reference >= 0) {
        in[n++] = sw_graph_dense(g, spec->reference);
    }
    if (spec->kinds >= 0) {
        in[n++] = sw_graph_dense(g, spec->kinds);
    }
    const int64_t rows = info_of(g, spec->x)->shape.dims[0];
    const int32_t op = sw_graph_emit(g, SW_OP_PREFERENCE, in, n, &attrs);
    if (op >= 0) {
        *out_values = g->ops[op].out[2];
        *out_totals = g->ops[op].out[3];
    }
    return mean_loss(g, op, rows / 2);
}

sw_value sw_smoothed_linear_cross_entropy(sw_graph *g, sw_value h, sw_value weight, sw_value bias,
                                          sw_value labels, double cap, double smoothing)
{
    if (smoothing == 0) {
        return sw_linear_cross_entropy(g, h, weight, bias, labels, cap);
    }
    sw_value logits = sw_linear(g, h, weight, bias, false);
    if (cap > 0) {
        logits = sw_scale(g, sw_act(g, sw_scale(g, logits, 1 / cap), SW_ACT_TANH), cap);
    }
    const struct sw_cross_entropy_spec spec = {.smoothing = smoothing};
    return sw_cross_entropy_of(g, logits, labels, &spec);
}

/* ---- user ops ---- */

void sw_user(sw_graph *g, const struct sw_user_op *op, const sw_value *in, sw_value *out_values)
{
    for (int i = 0; i < op->n_out; i++) {
        out_values[i] = SW_NO_VALUE;
    }
    sw_value inputs[SW_MAX_INPUTS];
    struct sw_view in_views[SW_MAX_INPUTS], out_views[SW_MAX_OUTPUTS];
    memset(in_views, 0, sizeof in_views);
    memset(out_views, 0, sizeof out_views);
    if (g->status >= 0 && (op->n_in > SW_MAX_INPUTS || op->n_out > SW_MAX_OUTPUTS)) {
        sw_graph_fail(g, SW_E_ARG, "%s: at most %d inputs and %d outputs", op->name, SW_MAX_INPUTS,
                      SW_MAX_OUTPUTS);
    }
    for (int i = 0; i < op->n_in; i++) {
        if (!sw_graph_usable(g, in[i], op->name)) {
            return;
        }
        inputs[i] = sw_graph_dense(g, in[i]);
        in_views[i].dtype = info_of(g, in[i])->dtype;
        in_views[i].shape = info_of(g, in[i])->shape;
    }
    if (g->status < 0) {
        return;
    }
    if (op->infer(op, in_views, out_views) < 0) {
        sw_graph_fail(g, SW_E_ARG, "%s: its shape rule refused the inputs: %s", op->name,
                      sw_error_message());
        return;
    }
    const int32_t i_op = sw_graph_add_op(g, SW_OP_USER, inputs, op->n_in, NULL);
    if (i_op < 0) {
        return;
    }
    g->ops[i_op].user = op;
    for (int i = 0; i < op->n_out; i++) {
        out_values[i] = sw_graph_add_out(g, i_op, out_views[i].dtype, out_views[i].shape);
    }
}
