// SPDX-License-Identifier: Apache-2.0
// The cases of attention and its gradient: odd shapes, shared key heads, and everything that hides
// keys or bends scores, alone and combined, in each layout of the heads.
#include <math.h>

#include "device/tests/op_cases.h"

enum layout {
    PACKED, /* q, k, v of a token are contiguous */
    APART,  /* three tensors [B,T,H D] with gaps between rows */
    HEADS   /* [B,T,H,D]: q, k, v of a head side by side; a head's keys contiguous, as in a cache */
};
enum segments { NONE, RUNS, SCATTERED };
enum bias { NO_BIAS, SHARED, EACH }; /* [H,T,S], or one per sample */

struct row {
    int64_t b, t, s, h, kv, d;
    enum layout layout;
    bool causal, mask;
    int64_t position, window; /* position -1: not given */
    double p, cap;
    int slopes; /* 2: rounded to bf16 */
    enum segments segments;
    enum bias bias;
};

/* The first ten cover GPT-2. The next four are small enough for finite differences. The rest have
 * rows of several blocks of queries and keys. */
static const struct row rows[] = {
    {2, 5, 5, 3, 3, 4, PACKED, true, false, -1, 0, 0, 0, false, NONE, NO_BIAS},
    {1, 1, 1, 1, 1, 1, PACKED, true, false, -1, 0, 0, 0, false, NONE, NO_BIAS},
    {2, 37, 37, 2, 2, 16, PACKED, true, true, -1, 0, 0.1, 0, false, NONE, NO_BIAS},
    {1, 131, 131, 2, 2, 64, PACKED, true, false, -1, 0, 0, 0, false, NONE, NO_BIAS},
    {2, 19, 19, 6, 2, 8, PACKED, true, true, -1, 0, 0.25, 0, false, NONE, NO_BIAS},
    {2, 9, 33, 4, 2, 5, APART, false, true, -1, 0, 0, 0, false, NONE, NO_BIAS},
    {1, 40, 40, 2, 1, 24, APART, true, false, -1, 7, 0, 0, false, NONE, NO_BIAS},
    {2, 3, 50, 2, 2, 8, APART, true, false, 13, 0, 0, 0, false, NONE, NO_BIAS},
    {1, 1, 200, 3, 3, 32, APART, true, true, 150, 0, 0, 0, false, NONE, NO_BIAS},
    {1, 140, 140, 1, 1, 80, APART, false, false, -1, 50, 0.1, 0, false, NONE, NO_BIAS},
    {1, 6, 6, 4, 2, 3, PACKED, true, true, -1, 0, 0, 0.7, true, RUNS, NO_BIAS},
    {1, 6, 6, 4, 2, 3, HEADS, true, false, -1, 3, 0.25, 0.5, false, RUNS, NO_BIAS},
    {2, 3, 7, 4, 2, 2, HEADS, true, true, 4, 0, 0, 0, true, RUNS, NO_BIAS},
    {1, 5, 5, 3, 1, 4, HEADS, false, true, -1, 0, 0, 0.9, true, SCATTERED, NO_BIAS},
    {1, 250, 250, 2, 1, 8, PACKED, true, false, -1, 0, 0, 0, false, RUNS, NO_BIAS},
    {1, 240, 240, 4, 1, 12, HEADS, true, true, -1, 40, 0.1, 0, true, NONE, NO_BIAS},
    {1, 130, 300, 2, 2, 9, HEADS, true, false, 170, 60, 0, 2, false, RUNS, NO_BIAS},
    {1, 150, 150, 2, 1, 17, APART, false, false, -1, 0, 0.2, 1.5, true, SCATTERED, NO_BIAS},
    {1, 2, 40, 2, 1, 8, APART, true, false, 39, 0, 0, 0, true, RUNS,
     NO_BIAS}, /* a query after the keys */
    {1, 9, 9, 2, 1, 8, APART, false, false, -4, 0, 0, 0, false, RUNS,
     NO_BIAS}, /* queries before the keys */
    /* Heads as wide as in models, in whole vectors; and heads wider than one piece of a kernel. */
    {2, 70, 70, 2, 1, 64, HEADS, true, true, -1, 0, 0, 0, false, NONE, NO_BIAS},
    {2, 1, 300, 4, 2, 64, HEADS, true, true, 280, 0, 0, 0, false, NONE, NO_BIAS},
    {1, 40, 72, 2, 1, 128, HEADS, true, false, 32, 30, 0.1, 0, true, NONE, NO_BIAS},
    {1, 20, 20, 1, 1, 200, HEADS, true, false, -1, 0, 0, 1.5, false, RUNS, NO_BIAS},
    {1, 19, 35, 1, 1, 251, APART, true, false, 16, 0, 0, 0, false, NONE, NO_BIAS},
    /* A bias of scores: alone, with all of the above, and with whole blocks that no query sees. */
    {3, 5, 5, 4, 2, 4, PACKED, false, true, -1, 0, 0, 0, false, NONE, SHARED},
    {2, 9, 33, 4, 4, 5, APART, false, true, -1, 0, 0, 0, false, NONE, SHARED},
    {2, 6, 6, 4, 2, 3, HEADS, true, true, -1, 3, 0.25, 0.5, true, RUNS, EACH},
    {3, 140, 140, 3, 3, 16, PACKED, true, false, -1, 0, 0.1, 0, false, NONE, SHARED},
    {2, 130, 270, 2, 1, 24, APART, true, true, 140, 60, 0, 1.5, false, NONE, EACH},
    {5, 70, 70, 1, 1, 72, HEADS, false, true, -1, 0, 0, 0, false, RUNS, SHARED},
    {2, 20, 37, 2, 1, 200, APART, true, false, 17, 0, 0, 0, false, NONE, SHARED},
    /* Slopes and positions of 16 bits: few and small, then some above 256. */
    {1, 6, 6, 4, 2, 3, PACKED, true, true, -1, 0, 0, 0, 2, RUNS, NO_BIAS},
    {1, 20, 300, 2, 1, 16, HEADS, true, false, 280, 0, 0.1, 1.5, 2, NONE, NO_BIAS},
    /* More keys than the forward in 16 bits takes at a time: for queries after them, and for
     * queries of which some see keys of one block and others of two. */
    {1, 40, 1100, 2, 1, 64, APART, true, false, 1060, 0, 0.1, 0, false, NONE, NO_BIAS},
    {1, 600, 600, 2, 1, 16, PACKED, true, true, -1, 540, 0, 0, false, SCATTERED, NO_BIAS},
};

/* A mask of left padding: under causality the first queries see nothing. Positions count the real
 * keys. */
static void mask_of(struct op_case *c, const struct row *r)
{
    const int i = case_in_ints(c, SW_SHAPE(r->b, r->s), 1, 2);
    int32_t *mask = c->in[i].view.data;
    for (int64_t b = 0; b < r->b; b++) {
        for (int64_t j = 0; j < b + 1; j++) {
            mask[b * r->s + j] = 0;
        }
        if (r->slopes) {
            mask[b * r->s + r->s / 2] = 0;
        }
    }
}

/* Runs of 1, 4, 7, .. 40 tokens, each id once; or three ids at random. */
static void segments_of(struct op_case *c, const struct row *r)
{
    const int i = case_in_ints(c, SW_SHAPE(r->b, r->s), 0, 3);
    int32_t *segments = c->in[i].view.data;
    for (int64_t e = 0, left = 0, next = 0; r->segments == RUNS && e < r->b * r->s; e++) {
        if (e % r->s == 0 || left == 0) {
            left = 1 + 3 * next % 40;
            next += 1;
        }
        segments[e] = (int32_t)(1000 - next);
        left -= 1;
    }
}

/* Backward is given an arbitrary lse: slopes may only make probabilities smaller. */
static void slopes_of(struct op_case *c, const struct row *r)
{
    const double sign = c->op.kind == SW_OP_ATTENTION ? 1 : -1;
    const int i = case_in_zero(c, SW_F32, SW_SHAPE(r->h));
    for (int64_t h = 0; h < r->h; h++) {
        sw_store_f64(SW_F32, c->in[i].view.data, h, sign * 0.07 / (double)(h + 1));
    }
}

static void heads_in(struct op_case *c, enum sw_dtype dtype, const struct row *r)
{
    const int64_t h = r->h, kv = r->kv, d = r->d, width = (h + 2 * kv) * d;
    switch (r->layout) {
    case PACKED:
        case_in_strided(c, dtype, SW_SHAPE(r->b, r->t, width),
                        (int64_t[]){r->t * (width + 3), width + 3, 1});
        break;
    case APART:
        case_in_strided(c, dtype, SW_SHAPE(r->b, r->t, h * d),
                        (int64_t[]){r->t * (h * d + 5), h * d + 5, 1});
        case_in_strided(c, dtype, SW_SHAPE(r->b, r->s, kv * d),
                        (int64_t[]){r->s * 2 * kv * d, 2 * kv * d, 1});
        case_in_strided(c, dtype, SW_SHAPE(r->b, r->s, kv * d),
                        (int64_t[]){kv * d, r->b * kv * d, 1});
        break;
    case HEADS:
        case_in_strided(c, dtype, SW_SHAPE(r->b, r->t, h, d),
                        (int64_t[]){r->t * h * 3 * d, h * 3 * d, 3 * d, 1});
        case_in_strided(c, dtype, SW_SHAPE(r->b, r->s, kv, d),
                        (int64_t[]){kv * r->s * d, d, r->s * d, 1});
        case_in_strided(c, dtype, SW_SHAPE(r->b, r->s, kv, d),
                        (int64_t[]){r->s * kv * 2 * d, kv * 2 * d, 2 * d, 1});
        break;
    }
}

static void inputs(struct op_case *c, enum sw_dtype dtype, const struct row *r)
{
    c->op.attrs.attention = (struct sw_attention_attrs){
        .heads = r->h,
        .kv_heads = r->kv,
        .packed = r->layout == PACKED,
        .causal = r->causal,
        .has_mask = r->mask,
        .has_position = r->position != -1,
        .has_slopes = r->slopes > 0,
        .bf16_slopes = r->slopes == 2,
        .has_segments = r->segments != NONE,
        .has_bias = r->bias != NO_BIAS,
        .window = r->window,
        .dropout = r->p,
        .cap = r->cap,
        .scale = 1 / sqrt((double)r->d),
    };
    c->slack = 2;
    heads_in(c, dtype, r);
    if (r->mask) {
        mask_of(c, r);
    }
    if (r->position != -1) {
        case_in_i32(c, 1, (int32_t[]){(int32_t)r->position});
    }
    if (r->slopes) {
        slopes_of(c, r);
    }
    if (r->segments != NONE) {
        segments_of(c, r);
    }
    /* backward is given an arbitrary lse: the bias may only make probabilities smaller */
    if (r->bias != NO_BIAS) {
        const bool forward = c->op.kind == SW_OP_ATTENTION;
        const struct sw_shape shared = SW_SHAPE(r->h, r->t, r->s);
        case_in(c, dtype == SW_F64 ? SW_F64 : SW_F32,
                r->bias == SHARED ? shared : SW_SHAPE(r->b, r->h, r->t, r->s), -2, forward ? 2 : 0);
    }
}

bool case_attention(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(rows)) {
        return false;
    }
    const struct row *r = &rows[variant];
    case_init(c, SW_OP_ATTENTION, "attention %d %s", variant, sw_dtype_name(dtype));
    inputs(c, dtype, r);
    case_out(c, dtype, SW_SHAPE(r->b, r->t, r->h * r->d));
    case_out(c, dtype == SW_F64 ? SW_F64 : SW_F32, SW_SHAPE(r->b, r->h, r->t));
    return true;
}

/* After the rows, one of them is repeated with unwanted gradients. */
bool case_attention_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    enum { PARTLY = 16, PARTLY_BIAS = 29 };
    static const bool wanted[][4] = {{false, true, true, false},
                                     {true, false, false, false},
                                     {true, false, true, false},
                                     {false, false, false, true},
                                     {true, true, true, false}};
    const int i_wanted = variant - (int)SW_LEN(rows);
    if (i_wanted >= (int)SW_LEN(wanted)) {
        return false;
    }
    const struct row *r = &rows[i_wanted < 0 ? variant : i_wanted < 3 ? PARTLY : PARTLY_BIAS];
    const struct sw_shape o = SW_SHAPE(r->b, r->t, r->h * r->d);
    case_init(c, SW_OP_ATTENTION_GRAD, "attention_grad %d %s", variant, sw_dtype_name(dtype));
    case_in(c, dtype, o, -1, 1);
    case_in(c, dtype, o, -1, 1);
    case_in(c, dtype == SW_F64 ? SW_F64 : SW_F32, SW_SHAPE(r->b, r->h, r->t), 2, 4);
    inputs(c, dtype, r);
    for (int i = 0; i < (r->layout == PACKED ? 1 : 3); i++) {
        if (i_wanted < 0 || wanted[i_wanted][i]) {
            case_out(c, dtype, c->in[3 + i].view.shape);
        } else {
            case_out_absent(c);
        }
    }
    if (r->bias != NO_BIAS && (i_wanted < 0 || wanted[i_wanted][3])) {
        case_out(c, dtype == SW_F64 ? SW_F64 : SW_F32, c->in[c->op.n_in - 1].view.shape);
    } else if (r->bias != NO_BIAS) {
        case_out_absent(c);
    }
    return true;
}
