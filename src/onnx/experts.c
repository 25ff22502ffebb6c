// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts, and attention sinks. Rows of tokens are sorted by expert, and each expert
// multiplies its own rows only: a slice whose bounds the graph computes.
#include "onnx/emit.h"

#include <stdio.h>

static const char *number(struct sw_onnx_emit *e, enum sw_onnx_type type, double value)
{
    return sw_onnx_number(&e->file, type, value);
}

static const char *as_f32(struct sw_onnx_emit *e, const char *x, enum sw_onnx_type type)
{
    return type == ONNX_F32 ? x : sw_onnx_cast(e, x, ONNX_F32);
}

/* The n largest along the last dimension: values, or their places. */
static const char *largest(struct sw_onnx_emit *e, const char *x, int64_t n, bool places)
{
    const char *values = ONNX_ADD(e, "TopK", x, sw_onnx_int(&e->file, n));
    const char *indices = sw_onnx_more(&e->file);
    sw_onnx_set_int(&e->file, "axis", -1);
    return places ? indices : values;
}

/* ---- the router ---- */

/* Scores of experts in groups that are not kept become very small. choice: [N,E] */
static const char *keep_groups(struct sw_onnx_emit *e, const char *choice, int64_t experts)
{
    static const int64_t last[] = {-1};
    const struct sw_router_attrs *attrs = &e->op->attrs.experts.router;
    const int64_t per = experts / attrs->groups;
    const int64_t split[] = {0, attrs->groups, per}, joined[] = {0, experts};
    const char *grouped = ONNX_ADD(e, "Reshape", choice, sw_onnx_ints(&e->file, split, 3));
    const char *best = largest(e, grouped, per > 1 ? 2 : 1, false);
    best = sw_onnx_reduce(e, "ReduceSum", best, -1, false); /* [N,G] */
    const char *kept = largest(e, best, attrs->kept, true);
    const char *set = ONNX_ADD(e, "Expand", number(e, ONNX_F32, 1), ONNX_ADD(e, "Shape", kept));
    const char *none = ONNX_ADD(e, "Expand", number(e, ONNX_F32, 0), ONNX_ADD(e, "Shape", best));
    const char *mask = ONNX_ADD(e, "ScatterElements", none, kept, set);
    sw_onnx_set_int(&e->file, "axis", 1);
    mask = sw_onnx_unsqueeze(e, sw_onnx_cast(e, mask, ONNX_BOOL), last, 1);
    grouped = ONNX_ADD(e, "Where", mask, grouped, number(e, ONNX_F32, -3e38));
    return ONNX_ADD(e, "Reshape", grouped, sw_onnx_ints(&e->file, joined, 2));
}

void sw_onnx_router(struct sw_onnx_emit *e)
{
    const struct sw_router_attrs *attrs = &e->op->attrs.experts.router;
    const int64_t experts = sw_onnx_in_dims(e, 0)->of[1].c0;
    const char *logits = as_f32(e, sw_onnx_in(e, 0), sw_onnx_in_type(e, 0));
    const char *scores = ONNX_ADD(e, attrs->sigmoid ? "Sigmoid" : "Softmax", logits);
    if (!attrs->sigmoid) {
        sw_onnx_set_int(&e->file, "axis", -1);
    }
    const char *choice = scores;
    if (e->op->n_in > 1) {
        choice = ONNX_ADD(e, "Add", scores, as_f32(e, sw_onnx_in(e, 1), sw_onnx_in_type(e, 1)));
    }
    choice = attrs->groups > 0 ? keep_groups(e, choice, experts) : choice;
    choice = largest(e, choice, attrs->k, true);
    const char *weights = ONNX_ADD(e, "GatherElements", scores, choice);
    sw_onnx_set_int(&e->file, "axis", 1);
    if (attrs->normalise) {
        const char *sum = sw_onnx_reduce(e, "ReduceSum", weights, -1, true);
        sum = attrs->sigmoid ? ONNX_ADD(e, "Add", sum, number(e, ONNX_F32, 1e-20)) : sum;
        weights = ONNX_ADD(e, "Div", weights, sum);
    }
    if (attrs->scale != 1) {
        weights = ONNX_ADD(e, "Mul", weights, number(e, ONNX_F32, attrs->scale));
    }
    sw_onnx_set_output(e, 0, weights);
    sw_onnx_set_output(e, 1, choice);
}

/* ---- rows ---- */

void sw_onnx_expert_rows(struct sw_onnx_emit *e)
{
    static const int64_t flat_shape[] = {-1}, first[] = {0}, last[] = {-1};
    const struct sw_experts_attrs *attrs = &e->op->attrs.experts;
    if (attrs->capacity > 0) {
        sw_onnx_refuse(e, "drops tokens beyond a capacity");
        return;
    }
    const struct sw_onnx_size *size = &e->forward->dims[e->op->out[1]].of[0];
    const char *n = sw_onnx_size_value(e, size), *place = sw_onnx_range(e, size);
    const char *flat =
        ONNX_ADD(e, "Reshape", sw_onnx_in(e, 0), sw_onnx_ints(&e->file, flat_shape, 1));
    const char *key = ONNX_ADD(e, "Add", ONNX_ADD(e, "Mul", flat, n), place);
    ONNX_ADD(e, "TopK", key, n);
    const char *sources = sw_onnx_more(&e->file);
    sw_onnx_set_int(&e->file, "axis", 0);
    sw_onnx_set_int(&e->file, "largest", 0);
    const char *slots = ONNX_ADD(e, "ScatterElements", place, sources, place);
    sw_onnx_set_int(&e->file, "axis", 0);
    slots = ONNX_ADD(e, "Reshape", slots, ONNX_ADD(e, "Shape", sw_onnx_in(e, 0)));
    const struct sw_onnx_size experts = {.c0 = attrs->n + 1};
    const char *bound = sw_onnx_unsqueeze(e, sw_onnx_range(e, &experts), last, 1);
    const char *before = ONNX_ADD(e, "Less", sw_onnx_unsqueeze(e, flat, first, 1), bound);
    const char *offsets =
        sw_onnx_reduce(e, "ReduceSum", sw_onnx_cast(e, before, ONNX_I64), 1, false);
    sw_onnx_set_output(e, 0, slots);
    sw_onnx_set_output(e, 1, sources);
    sw_onnx_set_output(e, 2, offsets); /* without the number of dropped choices, which is 0 */
}

void sw_onnx_to_experts(struct sw_onnx_emit *e)
{
    const int64_t k = sw_onnx_in_dims(e, 1)->of[1].c0;
    const char *token = ONNX_ADD(e, "Div", sw_onnx_in(e, 2), sw_onnx_scalar(&e->file, k));
    sw_onnx_set_out(e, ONNX_ADD(e, "Gather", sw_onnx_in(e, 0), token));
}

void sw_onnx_from_experts(struct sw_onnx_emit *e)
{
    static const int64_t last[] = {-1};
    const enum sw_onnx_type type = sw_onnx_in_type(e, 0);
    const char *rows = ONNX_ADD(e, "Gather", sw_onnx_in(e, 0), sw_onnx_in(e, 1));
    rows = as_f32(e, rows, type);
    if (e->op->n_in > 3) {
        const char *weights = as_f32(e, sw_onnx_in(e, 3), sw_onnx_in_type(e, 3));
        rows = ONNX_ADD(e, "Mul", rows, sw_onnx_unsqueeze(e, weights, last, 1));
    }
    const char *sum = sw_onnx_reduce(e, "ReduceSum", rows, 1, false);
    sw_onnx_set_out(e, type == ONNX_F32 ? sum : sw_onnx_cast(e, sum, type));
}

/* ---- products ---- */

static bool keep_part(struct sw_onnx_emit *e, const char *part)
{
    if (e->n_parts + 1 >= e->cap_parts) {
        const int64_t cap = 2 * e->cap_parts + 64;
        const char **grown = sw_realloc("onnx", e->parts, (size_t)cap * sizeof *grown);
        if (!grown) {
            sw_onnx_fail(&e->file, SW_FAIL(SW_E_NOMEM, "out of host memory for an ONNX graph"));
            return false;
        }
        e->parts = grown;
        e->cap_parts = cap;
    }
    e->parts[e->n_parts++] = part;
    e->parts[e->n_parts] = NULL;
    return true;
}

/* The first row of an expert: int64 [1]. */
static const char *first_row(struct sw_onnx_emit *e, int64_t expert)
{
    char key[320];
    snprintf(key, sizeof key, "expert %lld of %s", (long long)expert, sw_onnx_in(e, 1));
    const char *known = sw_onnx_known(e, key);
    return known
               ? known
               : sw_onnx_note(e, key, sw_onnx_slice_at(e, sw_onnx_in(e, 1), 0, expert, expert + 1));
}

/* The rows of an expert times its matrix; i: the number of the expert in w. */
static const char *product(struct sw_onnx_emit *e, int64_t i)
{
    static const int64_t turn[] = {1, 0};
    const struct sw_experts_attrs *attrs = &e->op->attrs.experts;
    const int64_t expert = attrs->expert + i;
    const bool several = sw_onnx_in_dims(e, 2)->rank == 3;
    const char *index = several ? sw_onnx_scalar(&e->file, i) : NULL;
    const char *w = sw_onnx_in(e, 2);
    w = several ? ONNX_ADD(e, "Gather", w, index) : attrs->tb ? sw_onnx_transposed(e, w) : w;
    w = several && attrs->tb ? sw_onnx_transpose(e, w, turn, 2) : w;
    const char *rows =
        sw_onnx_slice(e, sw_onnx_in(e, 0), 0, first_row(e, expert), first_row(e, expert + 1));
    const char *y = ONNX_ADD(e, "MatMul", rows, w);
    if (attrs->has_bias) {
        const char *bias = sw_onnx_in(e, 3);
        y = ONNX_ADD(e, "Add", y, several ? ONNX_ADD(e, "Gather", bias, index) : bias);
    }
    return y;
}

void sw_onnx_expert_matmul(struct sw_onnx_emit *e)
{
    const struct sw_experts_attrs *attrs = &e->op->attrs.experts;
    const struct sw_onnx_dims *w = sw_onnx_in_dims(e, 2);
    const int64_t n = w->rank == 3 ? w->of[0].c0 : 1;
    e->n_parts = attrs->continues ? e->n_parts : 0;
    if (attrs->expert != e->n_parts) {
        sw_onnx_refuse(e, "multiplies rows of experts out of their order");
        return;
    }
    for (int64_t i = 0; i < n && e->file.status >= 0; i++) {
        if (!keep_part(e, product(e, i))) {
            return;
        }
    }
    sw_onnx_set_out(e, attrs->ends && e->file.status >= 0 ? sw_onnx_concat(e, e->parts, 0) : "");
}

void sw_onnx_clamped_gate(struct sw_onnx_emit *e)
{
    static const int64_t last[] = {-1};
    const struct sw_experts_attrs *attrs = &e->op->attrs.experts;
    const enum sw_onnx_type type = sw_onnx_in_type(e, 0);
    const struct sw_onnx_dims *dims = sw_onnx_in_dims(e, 0);
    struct sw_onnx_dims pairs = {.rank = 3,
                                 .of = {dims->of[0], {.c0 = dims->of[1].c0 / 2}, {.c0 = 2}}};
    const char *both = sw_onnx_reshape(e, sw_onnx_in(e, 0), dims, &pairs), *part[2];
    for (int i = 0; i < 2; i++) {
        part[i] = ONNX_ADD(e, "Squeeze", sw_onnx_slice_at(e, both, 2, i, i + 1),
                           sw_onnx_ints(&e->file, last, 1));
    }
    const char *g = ONNX_ADD(e, "Min", part[0], number(e, type, attrs->limit));
    const char *u = ONNX_ADD(e, "Min", part[1], number(e, type, attrs->limit));
    u = ONNX_ADD(e, "Max", u, number(e, type, -attrs->limit));
    u = ONNX_ADD(e, "Add", u, number(e, type, 1));
    const char *share =
        ONNX_ADD(e, "Sigmoid", ONNX_ADD(e, "Mul", g, number(e, type, attrs->alpha)));
    sw_onnx_set_out(e, ONNX_ADD(e, "Mul", ONNX_ADD(e, "Mul", g, share), u));
}

/* ---- attention sinks ---- */

void sw_onnx_attention_sink(struct sw_onnx_emit *e)
{
    static const int64_t last[] = {-1}, by_token[] = {0, 2, 1};
    const enum sw_onnx_type type = sw_onnx_in_type(e, 0);
    const struct sw_onnx_dims *o = sw_onnx_in_dims(e, 0);
    const int64_t heads = sw_onnx_in_dims(e, 1)->of[1].c0;
    const struct sw_onnx_dims split = {
        .rank = 4, .of = {o->of[0], o->of[1], {.c0 = heads}, {.c0 = o->of[2].c0 / heads}}};
    if (e->op->n_out > 1 && e->op->out[1] >= 0 && e->wanted[e->op->out[1]]) {
        sw_onnx_refuse(e, "has an lse that is read, which a forward has not");
        return;
    }
    const char *sinks = as_f32(e, sw_onnx_in(e, 2), sw_onnx_in_type(e, 2));
    const char *share = ONNX_ADD(e, "Sub", sw_onnx_in(e, 1), sw_onnx_unsqueeze(e, sinks, last, 1));
    share = sw_onnx_transpose(e, ONNX_ADD(e, "Sigmoid", share), by_token, 3);
    share = sw_onnx_unsqueeze(e, share, last, 1);
    share = type == ONNX_F32 ? share : sw_onnx_cast(e, share, type);
    const char *y = ONNX_ADD(e, "Mul", sw_onnx_reshape(e, sw_onnx_in(e, 0), o, &split), share);
    sw_onnx_set_out(e, sw_onnx_reshape(e, y, &split, o));
}
