// SPDX-License-Identifier: Apache-2.0
// Cases of the ops of mixtures of experts, and of attention sinks. Routes are made here, in another
// way than by the kernels: sorted by comparing.
#include <string.h>

#include "device/tests/op_cases.h"

static enum sw_dtype stat_of(enum sw_dtype dtype)
{
    return dtype == SW_F64 ? SW_F64 : SW_F32;
}

/* tokens, choices of a token, experts, width, inner width, capacity, and ranks that have the
 * experts */
static const struct sizes {
    int64_t n, k, experts, width, inner, capacity, ranks;
} sizes[] = {{1, 1, 1, 1, 1, 0, 1},     {7, 2, 4, 9, 5, 0, 1},    {33, 3, 8, 40, 24, 0, 1},
             {70, 2, 3, 65, 130, 0, 1}, {33, 2, 5, 16, 33, 9, 1}, {130, 4, 6, 36, 64, 50, 1},
             {100, 2, 4, 20, 24, 68, 2}};

static void init(struct op_case *c, enum sw_op_kind kind, enum sw_dtype dtype, int variant)
{
    const struct sw_op op = {.kind = kind};
    case_init(c, kind, "%s %d %s", sw_op_name(&op), variant, sw_dtype_name(dtype));
}

/* ---- routes ---- */

enum { MOST_ROWS = 600 };
struct routes {
    int32_t experts[MOST_ROWS], slots[MOST_ROWS], sources[MOST_ROWS], offsets[16];
    int64_t n_rows; /* of the buffer, in equal parts for each rank */
    int64_t own;    /* experts of a rank */
};

/* Experts of a token differ. The last expert is chosen by none if there are more than k. */
static void draw(const struct op_case *c, const struct sizes *s, struct routes *r)
{
    const int64_t used = s->experts > s->k ? s->experts - 1 : s->experts;
    for (int64_t i = 0; i < s->n * s->k; i++) {
        const int64_t first = (int64_t)case_random(c, 99, (uint64_t)(i / s->k), 0, (double)used);
        r->experts[i] = (int32_t)((first + i % s->k) % used);
    }
}

static void sort(const struct sizes *s, struct routes *r)
{
    const int64_t all = s->n * s->k, most = s->capacity > 0 ? s->capacity : all;
    int32_t n = 0;
    memset(r->offsets, 0, sizeof r->offsets);
    for (int64_t i = 0; i < all; i++) {
        int64_t before = 0; /* choices that are taken first */
        for (int64_t other = 0; other < all; other++) {
            const bool first = other % s->k < i % s->k || (other % s->k == i % s->k && other < i);
            before += first && r->experts[other] == r->experts[i];
        }
        r->slots[i] = before < most ? 0 : -1;
    }
    r->own = s->experts / s->ranks;
    const int64_t most_of_rank = s->n * sw_min_i64(s->k, r->own);
    const int64_t room =
        s->capacity > 0 ? sw_min_i64(most_of_rank, r->own * s->capacity) : most_of_rank;
    r->n_rows = s->ranks * room;
    memset(r->sources, 0xff, sizeof r->sources);
    for (int64_t e = 0; e < s->experts; e++) {
        int32_t *offsets = &r->offsets[e / r->own * (r->own + SW_OFFSETS_BEHIND)];
        n = e % r->own == 0 ? 0 : n;
        offsets[e % r->own] = n;
        for (int64_t i = 0; i < all; i++) {
            if (r->experts[i] == e && r->slots[i] >= 0) {
                r->slots[i] = (int32_t)(e / r->own * room) + n++;
                r->sources[r->slots[i]] = (int32_t)i;
            }
        }
        offsets[r->own] = n;
    }
    for (int64_t i = 0; i < all; i++) {
        const int64_t rank = r->experts[i] / r->own;
        r->offsets[(rank + 1) * (r->own + SW_OFFSETS_BEHIND) - 1] += r->slots[i] < 0;
    }
}

static void routes_of(const struct op_case *c, const struct sizes *s, struct routes *r)
{
    draw(c, s, r);
    sort(s, r);
}

static void in_matrix(struct op_case *c, const int32_t *values, int64_t rows, int64_t columns)
{
    const int i = case_in_i32(c, rows * columns, values);
    c->in[i].view.shape = SW_SHAPE(rows, columns);
    sw_shape_row_major(&c->in[i].view.shape, c->in[i].view.strides);
}

static struct sw_shape offsets_of(const struct sizes *s, const struct routes *r)
{
    const int64_t width = r->own + SW_OFFSETS_BEHIND;
    return s->ranks > 1 ? SW_SHAPE(s->ranks, width) : SW_SHAPE(width);
}

static void in_offsets(struct op_case *c, const struct sizes *s, const struct routes *r)
{
    const int i = case_in_i32(c, s->ranks * (r->own + SW_OFFSETS_BEHIND), r->offsets);
    c->in[i].view.shape = offsets_of(s, r);
    sw_shape_row_major(&c->in[i].view.shape, c->in[i].view.strides);
}

/* ---- the router ---- */

static const struct router_row {
    int64_t n, experts;
    struct sw_router_attrs attrs;
    bool bias;
} routers[] = {
    {5, 4, {.k = 2, .normalise = true, .scale = 1}, false},
    {70, 9, {.k = 3, .scale = 1}, false},
    {33,
     8,
     {.k = 3, .sigmoid = true, .normalise = true, .scale = 1.5, .groups = 4, .kept = 2},
     true},
    {33, 12, {.k = 4, .sigmoid = true, .scale = 2, .groups = 3, .kept = 2}, true},
    {9, 130, {.k = 8, .normalise = true, .scale = 1}, true},
};

/* Scores of a token differ by more than roundings: each is a multiple of 1/16, permuted. */
static void fill_logits(struct op_case *c, int i, int64_t experts)
{
    const struct case_tensor *t = &c->in[i];
    for (int64_t at = 0; at < sw_shape_elems(&t->view.shape); at++) {
        const int64_t row = at / experts, e = at % experts;
        const int64_t step = 1 + row % 2 * (experts % 2), place = (e * step + row) % experts;
        sw_store_f64(t->view.dtype, t->view.data, at, 0.0625 * (double)place - 1);
    }
}

bool case_router(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(routers)) {
        return false;
    }
    const struct router_row *row = &routers[variant];
    init(c, SW_OP_ROUTER, dtype, variant);
    c->op.attrs.experts.router = row->attrs;
    fill_logits(c, case_in(c, dtype, SW_SHAPE(row->n, row->experts), -1, 1), row->experts);
    if (row->bias) { /* smaller than the distance of two scores */
        case_in(c, dtype, SW_SHAPE(row->experts), 0, 0.0001);
    }
    case_out(c, stat_of(dtype), SW_SHAPE(row->n, row->attrs.k));
    case_out(c, SW_I32, SW_SHAPE(row->n, row->attrs.k));
    return true;
}

bool case_router_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    struct routes r;
    if (variant >= (int)SW_LEN(routers)) {
        return false;
    }
    const struct router_row *row = &routers[variant];
    const struct sizes s = {.n = row->n, .k = row->attrs.k, .experts = row->experts};
    init(c, SW_OP_ROUTER_GRAD, dtype, variant);
    c->op.attrs.experts.router = row->attrs;
    draw(c, &s, &r);
    case_in(c, stat_of(dtype), SW_SHAPE(row->n, row->attrs.k), -1, 1);
    case_in(c, dtype, SW_SHAPE(row->n, row->experts), -2, 2);
    in_matrix(c, r.experts, row->n, row->attrs.k);
    case_out(c, dtype, SW_SHAPE(row->n, row->experts));
    return true;
}

bool case_router_stats(struct op_case *c, enum sw_dtype dtype, int variant)
{
    struct routes r;
    if (variant >= (int)SW_LEN(sizes)) {
        return false;
    }
    const struct sizes *s = &sizes[variant];
    init(c, SW_OP_ROUTER_STATS, dtype, variant);
    routes_of(c, s, &r);
    case_in(c, dtype, SW_SHAPE(s->n, s->experts), -2, 2);
    in_matrix(c, r.experts, s->n, s->k);
    in_matrix(c, r.slots, s->n, s->k);
    if (variant % 2) {
        case_in_ints(c, SW_SHAPE(s->n), 0, 2);
    }
    case_out(c, stat_of(dtype), SW_SHAPE(sw_router_stats(s->experts)));
    return true;
}

bool case_router_stats_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(sizes)) {
        return false;
    }
    const struct sizes *s = &sizes[variant];
    init(c, SW_OP_ROUTER_STATS_GRAD, dtype, variant);
    case_in(c, stat_of(dtype), SW_SHAPE(sw_router_stats(s->experts)), -1, 1);
    case_in(c, dtype, SW_SHAPE(s->n, s->experts), -2, 2);
    if (variant % 2) {
        case_in_ints(c, SW_SHAPE(s->n), 0, 2);
    }
    case_out(c, dtype, SW_SHAPE(s->n, s->experts));
    return true;
}

/* Variants: each loss; without tokens. */
static bool loss_init(struct op_case *c, enum sw_op_kind kind, enum sw_dtype dtype, int variant)
{
    enum { EXPERTS = 5 };
    const bool grad = kind == SW_OP_ROUTER_LOSS_GRAD;
    if (variant >= 3) {
        return false;
    }
    init(c, kind, dtype, variant);
    c->op.attrs.experts.z = variant == 1;
    if (grad) {
        case_in(c, stat_of(dtype), SW_SHAPE(1), 0.5, 1);
    }
    const struct sw_shape stats = SW_SHAPE(sw_router_stats(EXPERTS));
    const int i = case_in(c, stat_of(dtype), stats, 1, 9);
    if (variant == 2) {
        sw_store_f64(stat_of(dtype), c->in[i].view.data, 2 * EXPERTS + SW_ROUTER_TOKENS, 0);
    }
    case_out(c, stat_of(dtype), grad ? stats : SW_SHAPE(1));
    if (!grad) {
        case_out(c, stat_of(dtype), SW_SHAPE(1));
    }
    return true;
}

bool case_router_loss(struct op_case *c, enum sw_dtype dtype, int variant)
{
    return loss_init(c, SW_OP_ROUTER_LOSS, dtype, variant);
}

bool case_router_loss_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    return loss_init(c, SW_OP_ROUTER_LOSS_GRAD, dtype, variant);
}

/* ---- rows ---- */

bool case_expert_rows(struct op_case *c, enum sw_dtype dtype, int variant)
{
    struct routes r;
    if (variant >= (int)SW_LEN(sizes)) {
        return false;
    }
    const struct sizes *s = &sizes[variant];
    init(c, SW_OP_EXPERT_ROWS, dtype, variant);
    c->exact = true;
    c->op.attrs.experts.n = s->experts;
    c->op.attrs.experts.capacity = s->capacity;
    c->op.attrs.experts.ranks = s->ranks;
    routes_of(c, s, &r);
    in_matrix(c, r.experts, s->n, s->k);
    case_out(c, SW_I32, SW_SHAPE(s->n, s->k));
    case_out(c, SW_I32, SW_SHAPE(r.n_rows));
    case_out(c, SW_I32, offsets_of(s, &r));
    return true;
}

bool case_expert_loads(struct op_case *c, enum sw_dtype dtype, int variant)
{
    struct routes r;
    if (variant >= (int)SW_LEN(sizes)) {
        return false;
    }
    const struct sizes *s = &sizes[variant];
    init(c, SW_OP_EXPERT_LOADS, dtype, variant);
    routes_of(c, s, &r);
    in_offsets(c, s, &r);
    case_out(c, SW_F32, SW_SHAPE(2 * SW_LOADS));
    return true;
}

bool case_to_experts(struct op_case *c, enum sw_dtype dtype, int variant)
{
    struct routes r;
    if (variant >= (int)SW_LEN(sizes)) {
        return false;
    }
    const struct sizes *s = &sizes[variant];
    init(c, SW_OP_TO_EXPERTS, dtype, variant);
    c->exact = true;
    routes_of(c, s, &r);
    case_in(c, dtype, SW_SHAPE(s->n, s->width), -1, 1);
    in_matrix(c, r.slots, s->n, s->k);
    case_in_i32(c, r.n_rows, r.sources);
    case_out(c, dtype, SW_SHAPE(r.n_rows, s->width));
    return true;
}

/* Variants come with weights, then without. */
bool case_from_experts(struct op_case *c, enum sw_dtype dtype, int variant)
{
    struct routes r;
    if (variant >= 2 * (int)SW_LEN(sizes)) {
        return false;
    }
    const struct sizes *s = &sizes[variant / 2];
    init(c, SW_OP_FROM_EXPERTS, dtype, variant);
    routes_of(c, s, &r);
    case_in(c, dtype, SW_SHAPE(r.n_rows, s->width), -1, 1);
    in_matrix(c, r.slots, s->n, s->k);
    case_in_i32(c, r.n_rows, r.sources);
    if (variant % 2 == 0) {
        case_in(c, stat_of(dtype), SW_SHAPE(s->n, s->k), 0, 1);
    }
    case_out(c, dtype, SW_SHAPE(s->n, s->width));
    return true;
}

bool case_from_experts_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    struct routes r;
    if (variant >= (int)SW_LEN(sizes)) {
        return false;
    }
    const struct sizes *s = &sizes[variant];
    init(c, SW_OP_FROM_EXPERTS_GRAD, dtype, variant);
    routes_of(c, s, &r);
    case_in(c, dtype, SW_SHAPE(s->n, s->width), -1, 1);
    case_in(c, dtype, SW_SHAPE(r.n_rows, s->width), -1, 1);
    in_matrix(c, r.slots, s->n, s->k);
    case_in_i32(c, r.n_rows, r.sources);
    case_in(c, stat_of(dtype), SW_SHAPE(s->n, s->k), 0, 1);
    case_out(c, dtype, SW_SHAPE(r.n_rows, s->width));
    if (variant % 3 == 2) {
        case_out_absent(c);
    } else {
        case_out(c, stat_of(dtype), SW_SHAPE(s->n, s->k));
    }
    return true;
}

/* ---- products ---- */

/* Variants of a size: one expert that continues; the first of several, with a bias, as [in, out];
 * all of them. */
enum { PRODUCTS = 3 };

static bool product_init(struct op_case *c, enum sw_op_kind kind, enum sw_dtype dtype, int variant,
                         struct routes *r, struct sw_shape *w)
{
    if (variant >= PRODUCTS * (int)SW_LEN(sizes)) {
        return false;
    }
    const struct sizes *s = &sizes[variant / PRODUCTS];
    struct sw_experts_attrs *attrs = &c->op.attrs.experts;
    init(c, kind, dtype, variant);
    routes_of(c, s, r);
    c->slack = 1 + (double)(s->width + r->n_rows) / 200;
    attrs->tb = variant % PRODUCTS != 1;
    attrs->has_bias = variant % PRODUCTS != 0;
    attrs->expert = variant % PRODUCTS == 0 ? r->own / 2 : 0;
    attrs->part = kind == SW_OP_EXPERT_MATMUL_GRAD ? s->ranks - 1 : 0;
    *w = attrs->tb ? SW_SHAPE(s->inner, s->width) : SW_SHAPE(s->width, s->inner);
    if (variant % PRODUCTS == 2) {
        *w = SW_SHAPE(r->own, s->inner, s->width);
    }
    return true;
}

static struct sw_shape bias_of(const struct sizes *s, const struct sw_shape *w)
{
    return w->rank == 3 ? SW_SHAPE(w->dims[0], s->inner) : SW_SHAPE(s->inner);
}

/* One of several ops writes its rows of an operand, which has all others. The first one may have
 * experts of which the last rows are not its own; tests give them to no one. */
bool case_expert_matmul(struct op_case *c, enum sw_dtype dtype, int variant)
{
    struct routes r;
    struct sw_shape w;
    if (!product_init(c, SW_OP_EXPERT_MATMUL, dtype, variant, &r, &w)) {
        return false;
    }
    const struct sizes *s = &sizes[variant / PRODUCTS];
    c->op.attrs.experts.continues = variant % PRODUCTS != 2;
    case_in(c, dtype, SW_SHAPE(r.n_rows, s->width), -1, 1);
    in_offsets(c, s, &r);
    case_in(c, dtype, w, -1, 1);
    if (c->op.attrs.experts.has_bias) {
        case_in(c, dtype, bias_of(s, &w), -1, 1);
    }
    if (c->op.attrs.experts.continues) {
        case_out_in_place(c, case_in(c, dtype, SW_SHAPE(r.n_rows, s->inner), -1, 1));
    } else {
        case_out(c, dtype, SW_SHAPE(r.n_rows, s->inner));
    }
    return true;
}

bool case_expert_matmul_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    struct routes r;
    struct sw_shape w;
    if (!product_init(c, SW_OP_EXPERT_MATMUL_GRAD, dtype, variant, &r, &w)) {
        return false;
    }
    const struct sizes *s = &sizes[variant / PRODUCTS];
    case_in(c, dtype, SW_SHAPE(r.n_rows, s->inner), -1, 1);
    case_in(c, dtype, SW_SHAPE(r.n_rows, s->width), -1, 1);
    in_offsets(c, s, &r);
    case_out(c, dtype, w);
    if (c->op.attrs.experts.has_bias) {
        case_out(c, dtype, bias_of(s, &w));
    }
    return true;
}

/* ---- clamped gates, sinks ---- */

static bool gate_init(struct op_case *c, enum sw_op_kind kind, enum sw_dtype dtype, int variant)
{
    static const int64_t shapes[][2] = {{1, 2}, {7, 10}, {33, 130}};
    if (variant >= (int)SW_LEN(shapes)) {
        return false;
    }
    const struct sw_shape x = SW_SHAPE(shapes[variant][0], shapes[variant][1]);
    const struct sw_shape y = SW_SHAPE(x.dims[0], x.dims[1] / 2);
    init(c, kind, dtype, variant);
    c->op.attrs.experts.alpha = 1.702;
    c->op.attrs.experts.limit = 1;
    if (kind == SW_OP_CLAMPED_GATE_GRAD) {
        case_in(c, dtype, y, -1, 1);
    }
    case_in(c, dtype, x, -2, 2);
    case_out(c, dtype, kind == SW_OP_CLAMPED_GATE ? y : x);
    return true;
}

bool case_clamped_gate(struct op_case *c, enum sw_dtype dtype, int variant)
{
    return gate_init(c, SW_OP_CLAMPED_GATE, dtype, variant);
}

bool case_clamped_gate_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    return gate_init(c, SW_OP_CLAMPED_GATE_GRAD, dtype, variant);
}

static const int64_t sink_shapes[][4] = {{1, 1, 1, 1}, {2, 5, 4, 8}, {3, 33, 2, 10}};

bool case_attention_sink(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(sink_shapes)) {
        return false;
    }
    const int64_t *s = sink_shapes[variant];
    init(c, SW_OP_ATTENTION_SINK, dtype, variant);
    case_in(c, dtype, SW_SHAPE(s[0], s[1], s[2] * s[3]), -1, 1);
    case_in(c, stat_of(dtype), SW_SHAPE(s[0], s[2], s[1]), -2, 2);
    case_in(c, dtype, SW_SHAPE(s[2]), -2, 2);
    case_out(c, dtype, SW_SHAPE(s[0], s[1], s[2] * s[3]));
    case_out(c, stat_of(dtype), SW_SHAPE(s[0], s[2], s[1]));
    return true;
}

bool case_attention_sink_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(sink_shapes)) {
        return false;
    }
    const int64_t *s = sink_shapes[variant];
    init(c, SW_OP_ATTENTION_SINK_GRAD, dtype, variant);
    c->slack = 4;
    case_in(c, dtype, SW_SHAPE(s[0], s[1], s[2] * s[3]), -1, 1);
    case_in(c, dtype, SW_SHAPE(s[0], s[1], s[2] * s[3]), -1, 1);
    case_in(c, stat_of(dtype), SW_SHAPE(s[0], s[2], s[1]), 0, 2);
    case_in(c, dtype, SW_SHAPE(s[2]), -2, 2);
    case_out(c, dtype, SW_SHAPE(s[2]));
    return true;
}
