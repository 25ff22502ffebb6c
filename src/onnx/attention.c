// SPDX-License-Identifier: Apache-2.0
// Attention: one node from opset 23 on, else its parts. Which keys a query sees is a mask that all
// layers share.
#include "onnx/emit.h"

#include <float.h>
#include <stdio.h>

/* One attention: its operands, and what they look like. */
struct attention {
    const struct sw_attention_attrs *attrs;
    const char *qkv[3];               /* [B,T,H D] */
    const char *mask, *slopes, *bias; /* NULL = none */
    struct sw_onnx_size batch, queries, keys;
    int64_t width;
    enum sw_onnx_type type;
};

static const struct sw_onnx_dims *flat(struct sw_onnx_dims *out, const struct sw_onnx_size *batch,
                                       const struct sw_onnx_size *tokens, int64_t width)
{
    *out = (struct sw_onnx_dims){.rank = 3, .of = {*batch, *tokens, {.c0 = width}}};
    return out;
}

static void take_packed(struct sw_onnx_emit *e, struct attention *a)
{
    const int64_t q = a->attrs->heads * a->width, kv = a->attrs->kv_heads * a->width;
    const char *x = sw_onnx_in(e, 0);
    a->qkv[0] = sw_onnx_slice_at(e, x, 2, 0, q);
    a->qkv[1] = sw_onnx_slice_at(e, x, 2, q, q + kv);
    a->qkv[2] = sw_onnx_slice_at(e, x, 2, q + kv, q + 2 * kv);
}

static struct attention operands(struct sw_onnx_emit *e)
{
    const struct sw_attention_attrs *attrs = &e->op->attrs.attention;
    const struct sw_onnx_dims *q = sw_onnx_in_dims(e, 0);
    struct attention a = {.attrs = attrs,
                          .batch = q->of[0],
                          .queries = q->of[1],
                          .keys = sw_onnx_in_dims(e, attrs->packed ? 0 : 1)->of[1],
                          .type = sw_onnx_in_type(e, 0),
                          .width = sw_attention_width(attrs, &sw_onnx_in_info(e, 0)->shape)};
    int i = attrs->packed ? 1 : 3;
    if (attrs->packed) {
        take_packed(e, &a);
    }
    for (int k = 0; k < 3 && !attrs->packed; k++) {
        struct sw_onnx_dims to;
        const int64_t heads = k == 0 ? attrs->heads : attrs->kv_heads;
        flat(&to, &a.batch, k == 0 ? &a.queries : &a.keys, heads * a.width);
        a.qkv[k] = sw_onnx_reshape(e, sw_onnx_in(e, k), sw_onnx_in_dims(e, k), &to);
    }
    a.mask = attrs->has_mask ? sw_onnx_in(e, i++) : NULL;
    a.slopes = attrs->has_slopes ? sw_onnx_in(e, i++) : NULL;
    if (attrs->has_bias) {
        const enum sw_onnx_type type = sw_onnx_in_type(e, i);
        a.bias = type == a.type ? sw_onnx_in(e, i) : sw_onnx_cast(e, sw_onnx_in(e, i), a.type);
    }
    return a;
}

/* ---- masks ---- */

static const char *both(struct sw_onnx_emit *e, const char *a, const char *b)
{
    return !a ? b : !b ? a : ONNX_ADD(e, "And", a, b);
}

/* Whether a query sees a key, by their positions: bool [T,S]; NULL = always. */
static const char *by_position(struct sw_onnx_emit *e, const struct attention *a)
{
    static const int64_t last[] = {1};
    const char *near = NULL, *past = NULL;
    if (!a->attrs->causal && a->attrs->window == 0) {
        return NULL;
    }
    const char *query = sw_onnx_unsqueeze(e, sw_onnx_range(e, &a->queries), last, 1);
    const char *key = sw_onnx_range(e, &a->keys);
    if (a->attrs->causal) {
        past = ONNX_ADD(e, "LessOrEqual", key, query);
    }
    if (a->attrs->window > 0) {
        const char *first = ONNX_ADD(e, "Sub", query, sw_onnx_scalar(&e->file, a->attrs->window));
        near = ONNX_ADD(e, "Greater", key, first);
    }
    return both(e, past, near);
}

/* bool, [T,S], [B,1,1,S] or [B,1,T,S]; NULL = every query sees every key. */
static const char *visible(struct sw_onnx_emit *e, const struct attention *a)
{
    static const int64_t middle[] = {1, 2};
    char key[400];
    snprintf(key, sizeof key, "visible %s %d %lld %lld %d %d", a->mask ? a->mask : "",
             a->attrs->causal, (long long)a->attrs->window, (long long)a->keys.c0,
             a->queries.free[ONNX_TARGETS], a->keys.free[ONNX_TARGETS]);
    const char *known = sw_onnx_known(e, key);
    if (known || (!a->mask && !a->attrs->causal && a->attrs->window == 0)) {
        return known;
    }
    const char *scope = e->scope;
    e->scope = "mask";
    const char *mask =
        a->mask ? sw_onnx_unsqueeze(e, sw_onnx_cast(e, a->mask, ONNX_BOOL), middle, 2) : NULL;
    const char *near = by_position(e, a);
    if (!near && e->opset >= 23) { /* Attention wants a row for each query */
        const struct sw_onnx_dims full = {.rank = 4,
                                          .of = {a->batch, {.c0 = 1}, a->queries, a->keys}};
        mask = ONNX_ADD(e, "Expand", mask, sw_onnx_shape_value(e, &full));
    }
    const char *out = both(e, near, mask);
    e->scope = scope;
    return sw_onnx_note(e, key, out);
}

/* Rounds f32 to bf16. */
static const char *through_bf16(struct sw_onnx_emit *e, const char *x)
{
    return sw_onnx_cast(e, sw_onnx_cast(e, x, ONNX_BF16), ONNX_F32);
}

/* ALiBi: slope times the number of real tokens before a key, [B,H,1,S] or [H,1,S]. */
static const char *alibi(struct sw_onnx_emit *e, const struct attention *a)
{
    static const int64_t last[] = {1, 2}, middle[] = {1, 2};
    char key[400];
    snprintf(key, sizeof key, "alibi %s %s", a->slopes, a->mask ? a->mask : "");
    const char *known = sw_onnx_known(e, key);
    if (known) {
        return known;
    }
    const char *scope = e->scope, *place = NULL;
    e->scope = "mask";
    if (a->mask) {
        place = ONNX_ADD(e, "CumSum", a->mask, sw_onnx_scalar(&e->file, 1));
        sw_onnx_set_int(&e->file, "exclusive", 1);
        place = sw_onnx_unsqueeze(e, place, middle, 2);
    } else {
        place = sw_onnx_range(e, &a->keys);
    }
    place = sw_onnx_cast(e, place, ONNX_F32);
    place = a->attrs->bf16_slopes ? through_bf16(e, place) : place;
    const char *out = ONNX_ADD(e, "Mul", sw_onnx_unsqueeze(e, a->slopes, last, 2), place);
    if (a->attrs->bf16_slopes) {
        out = ONNX_ADD(e, "Mul", through_bf16(e, out),
                       sw_onnx_number(&e->file, ONNX_F32, a->attrs->scale));
    }
    out = a->type == ONNX_F32 ? out : sw_onnx_cast(e, out, a->type);
    e->scope = scope;
    return sw_onnx_note(e, key, out);
}

/* The sum of bias and ALiBi, which scores get before the mask; NULL = nothing. */
static const char *added(struct sw_onnx_emit *e, const struct attention *a)
{
    const char *slopes = a->slopes ? alibi(e, a) : NULL;
    return !slopes ? a->bias : !a->bias ? slopes : ONNX_ADD(e, "Add", slopes, a->bias);
}

static double lowest(enum sw_onnx_type type)
{
    return type == ONNX_F16 ? -65504 : -3.3895313892515355e38; /* a bf16 number */
}

/* ---- in parts ---- */

/* [B,T,H D] -> [B,H,T,D], heads of keys and values as often as there are queries for them */
static const char *by_head(struct sw_onnx_emit *e, const struct attention *a, int k)
{
    static const int64_t order[] = {0, 2, 1, 3};
    const int64_t heads = k == 0 ? a->attrs->heads : a->attrs->kv_heads;
    const int64_t group = a->attrs->heads / heads;
    const struct sw_onnx_size *tokens = k == 0 ? &a->queries : &a->keys;
    struct sw_onnx_dims from;
    const struct sw_onnx_dims to = {.rank = 4,
                                    .of = {a->batch, *tokens, {.c0 = heads}, {.c0 = a->width}}};
    flat(&from, &a->batch, tokens, heads * a->width);
    const char *x = sw_onnx_transpose(e, sw_onnx_reshape(e, a->qkv[k], &from, &to), order, 4);
    if (group == 1) {
        return x;
    }
    int64_t *index = sw_arena_array(&e->file.arena, (size_t)a->attrs->heads, sizeof *index);
    if (!index) {
        sw_onnx_fail(&e->file, SW_FAIL(SW_E_NOMEM, "out of host memory for an ONNX graph"));
        return "";
    }
    for (int64_t h = 0; h < a->attrs->heads; h++) {
        index[h] = h / group;
    }
    char name[64];
    snprintf(name, sizeof name, "head groups %lld of %lld", (long long)heads,
             (long long)a->attrs->heads);
    const char *out = ONNX_ADD(
        e, "Gather", x, sw_onnx_tensor(&e->file, name, ONNX_I64, SW_SHAPE(a->attrs->heads), index));
    sw_onnx_set_int(&e->file, "axis", 1);
    return out;
}

static bool wants_lse(const struct sw_onnx_emit *e)
{
    return e->op->out[1] >= 0 && e->wanted[e->op->out[1]];
}

static const char *in_parts(struct sw_onnx_emit *e, const struct attention *a)
{
    static const int64_t turn[] = {0, 1, 3, 2}, back[] = {0, 2, 1, 3};
    const char *seen = visible(e, a), *more = added(e, a);
    const char *key = sw_onnx_transpose(e, by_head(e, a, 1), turn, 4);
    const char *s = ONNX_ADD(e, "MatMul", by_head(e, a, 0), key);
    const double cap = a->attrs->cap;
    s = ONNX_ADD(e, "Mul", s,
                 sw_onnx_number(&e->file, a->type, a->attrs->scale / (cap > 0 ? cap : 1)));
    if (cap > 0) {
        s = ONNX_ADD(e, "Mul", ONNX_ADD(e, "Tanh", s), sw_onnx_number(&e->file, a->type, cap));
    }
    s = more ? ONNX_ADD(e, "Add", s, more) : s;
    s = seen ? ONNX_ADD(e, "Where", seen, s, sw_onnx_number(&e->file, a->type, lowest(a->type)))
             : s;
    if (wants_lse(e)) {
        const char *lse = sw_onnx_reduce(e, "ReduceLogSumExp", s, -1, false);
        sw_onnx_set_output(e, 1, a->type == ONNX_F32 ? lse : sw_onnx_cast(e, lse, ONNX_F32));
    }
    s = ONNX_ADD(e, "Softmax", s);
    sw_onnx_set_int(&e->file, "axis", -1);
    s = sw_onnx_transpose(e, ONNX_ADD(e, "MatMul", s, by_head(e, a, 2)), back, 4);
    struct sw_onnx_dims to;
    const struct sw_onnx_dims from = {
        .rank = 4, .of = {a->batch, a->queries, {.c0 = a->attrs->heads}, {.c0 = a->width}}};
    flat(&to, &a->batch, &a->queries, a->attrs->heads * a->width);
    return sw_onnx_reshape(e, s, &from, &to);
}

/* ---- whole ---- */

static const char *whole(struct sw_onnx_emit *e, const struct attention *a)
{
    const char *seen = visible(e, a), *more = added(e, a), *mask = more;
    if (more && seen) {
        mask = ONNX_ADD(e, "Where", seen, more, sw_onnx_number(&e->file, a->type, lowest(a->type)));
    } else if (seen) {
        mask = seen;
    }
    const char *out = mask ? ONNX_ADD(e, "Attention", a->qkv[0], a->qkv[1], a->qkv[2], mask)
                           : ONNX_ADD(e, "Attention", a->qkv[0], a->qkv[1], a->qkv[2]);
    sw_onnx_set_int(&e->file, "kv_num_heads", a->attrs->kv_heads);
    sw_onnx_set_int(&e->file, "q_num_heads", a->attrs->heads);
    sw_onnx_set_float(&e->file, "scale", a->attrs->scale);
    return out;
}

void sw_onnx_attention(struct sw_onnx_emit *e)
{
    const struct sw_attention_attrs *attrs = &e->op->attrs.attention;
    if (attrs->has_position || attrs->has_segments || attrs->dropout > 0) {
        sw_onnx_refuse(e, "reads a cache or packed rows, which an export has not");
        return;
    }
    const struct attention a = operands(e);
    /* Opset 23 adds the mask before the cap, and its scale is above 0. */
    const bool is_whole = e->opset >= 23 && attrs->cap == 0 && attrs->scale > 0 && !wants_lse(e);
    sw_onnx_set_out(e, is_whole ? whole(e, &a) : in_parts(e, &a));
}
