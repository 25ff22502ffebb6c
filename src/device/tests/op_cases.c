// SPDX-License-Identifier: Apache-2.0
// One builder per kind of op, each with its variants.
#include "device/tests/op_cases.h"

#include <math.h>
#include <string.h>

static enum sw_dtype stat_of(enum sw_dtype dtype)
{
    return dtype == SW_F64 ? SW_F64 : SW_F32;
}

static const char *name_of(enum sw_dtype dtype)
{
    return sw_dtype_name(dtype);
}

/* ---- products ---- */

/* Products in pieces of 256 rows of a parameter with 700, and tiles of them. */
static bool matmul_in_pieces(struct op_case *c, enum sw_dtype dtype, int variant)
{
    enum { M = 65, WIDTH = 67, ROWS = 700 };
    static const struct {
        bool ta, tb, bias;
        int64_t first, n; /* rows of the tile */
    } rows[] = {
        {false, true, true, 0, ROWS},    {false, true, true, 256, 444},
        {false, false, true, 0, ROWS},   {false, false, false, 0, 256},
        {false, false, false, 256, 256}, {false, false, true, 512, 188},
        {true, false, false, 0, ROWS},   {true, false, false, 256, 444},
    };
    if (variant >= (int)SW_LEN(rows)) {
        return false;
    }
    const bool ta = rows[variant].ta, tb = rows[variant].tb, bias = rows[variant].bias;
    const int64_t first = rows[variant].first, n = rows[variant].n;
    const bool sums = !ta && !tb;
    case_init(c, SW_OP_MATMUL, "matmul in pieces %d %s", variant, name_of(dtype));
    c->slack = 2;
    c->op.attrs.matmul = (struct sw_matmul_attrs){
        .ta = ta,
        .tb = tb,
        .has_bias = bias,
        .act = !bias         ? SW_ACT_NONE
               : variant % 2 ? SW_ACT_GELU_TANH
                             : SW_ACT_GELU,
        .piece = 256,
        .tile = {first, first > 0 && !ta, sums && first + n < ROWS},
    };
    case_in(c, dtype, sums || ta ? SW_SHAPE(M, ROWS) : SW_SHAPE(M, WIDTH), -1, 1);
    case_in(c, dtype, ta ? SW_SHAPE(M, WIDTH) : SW_SHAPE(n, WIDTH), -1, 1);
    if (bias) {
        case_in(c, dtype, SW_SHAPE(tb ? ROWS : WIDTH), -1, 1);
    }
    if (c->op.attrs.matmul.tile.continues) {
        case_in(c, sums ? stat_of(dtype) : dtype, SW_SHAPE(M, tb ? ROWS : WIDTH), -1, 1);
    }
    if (c->op.attrs.matmul.tile.continues && (tb || c->op.attrs.matmul.tile.partial)) {
        case_out_in_place(c, c->op.n_in - 1);
    } else {
        case_out(c, c->op.attrs.matmul.tile.partial ? stat_of(dtype) : dtype,
                 ta ? SW_SHAPE(n, WIDTH) : SW_SHAPE(M, tb ? ROWS : WIDTH));
    }
    return true;
}

static bool matmul(struct op_case *c, enum sw_dtype dtype, int variant)
{
    static const struct {
        int64_t m, k, n;
        bool ta, tb, bias, pre;
        enum sw_act act;
        enum sw_dtype out;
    } rows[] = {
        {7, 13, 5, false, false, false, false, SW_ACT_NONE, SW_DTYPE_COUNT},
        {7, 13, 5, true, false, false, false, SW_ACT_NONE, SW_DTYPE_COUNT},
        {7, 13, 5, false, true, true, false, SW_ACT_NONE, SW_DTYPE_COUNT},
        {7, 13, 5, true, true, false, false, SW_ACT_NONE, SW_F32},
        {1, 1, 1, false, false, true, false, SW_ACT_NONE, SW_DTYPE_COUNT},
        {1, 259, 70, false, false, true, false, SW_ACT_GELU, SW_DTYPE_COUNT},
        {65, 129, 67, false, false, true, true, SW_ACT_GELU_TANH, SW_DTYPE_COUNT},
        {65, 129, 67, false, true, true, true, SW_ACT_GELU, SW_DTYPE_COUNT},
        {33, 17, 130, false, true, true, false, SW_ACT_RELU, SW_DTYPE_COUNT},
        {33, 17, 31, false, false, true, true, SW_ACT_SILU, SW_DTYPE_COUNT},
        {33, 18, 31, false, false, false, true, SW_ACT_QUICK_GELU, SW_DTYPE_COUNT},
        {300, 100, 270, true, false, false, false, SW_ACT_NONE, SW_F32},
        {3, 5003, 5, true, false, false, false, SW_ACT_NONE, SW_DTYPE_COUNT},
        {129, 64, 513, false, true, false, false, SW_ACT_NONE, SW_DTYPE_COUNT},
        {150, 300, 260, false, true, true, true, SW_ACT_GELU, SW_DTYPE_COUNT},
        /* Products that GPU libraries do themselves, or nearly. */
        {33, 40, 72, false, true, true, true, SW_ACT_GELU_TANH, SW_DTYPE_COUNT},
        {33, 40, 72, false, false, true, false, SW_ACT_GELU_TANH, SW_DTYPE_COUNT},
        {9, 40, 24, true, false, false, true, SW_ACT_GELU_TANH, SW_DTYPE_COUNT},
        {9, 40, 23, false, false, false, false, SW_ACT_GELU_TANH, SW_DTYPE_COUNT},
        {1, 40, 24, false, false, true, true, SW_ACT_GELU_TANH, SW_DTYPE_COUNT},
    };
    if (variant >= (int)SW_LEN(rows)) {
        return matmul_in_pieces(c, dtype, variant - (int)SW_LEN(rows));
    }
    const int64_t m = rows[variant].m, k = rows[variant].k, n = rows[variant].n;
    const enum sw_dtype out =
        rows[variant].out == SW_DTYPE_COUNT || dtype == SW_F64 ? dtype : rows[variant].out;
    case_init(c, SW_OP_MATMUL, "matmul %dx%dx%d %d%d act %d %s", (int)m, (int)k, (int)n,
              rows[variant].ta, rows[variant].tb, (int)rows[variant].act, name_of(dtype));
    c->op.attrs.matmul.ta = rows[variant].ta;
    c->op.attrs.matmul.tb = rows[variant].tb;
    c->op.attrs.matmul.act = rows[variant].act;
    c->op.attrs.matmul.has_bias = rows[variant].bias;
    c->slack = 1 + (double)k / 1000;
    case_in(c, dtype, rows[variant].ta ? SW_SHAPE(k, m) : SW_SHAPE(1, m, k), -1, 1);
    case_in(c, dtype, rows[variant].tb ? SW_SHAPE(n, k) : SW_SHAPE(k, n), -1, 1);
    if (rows[variant].bias) {
        case_in(c, dtype, SW_SHAPE(n), -1, 1);
    }
    case_out(c, out, SW_SHAPE(m, n));
    if (rows[variant].pre) {
        case_out(c, out, SW_SHAPE(m, n));
    }
    return true;
}

static bool sum_rows(struct op_case *c, enum sw_dtype dtype, int variant)
{
    static const int64_t rows[][2] = {{1, 5}, {7, 1}, {64, 33}, {65, 70}, {211, 131}, {1100, 601}};
    if (variant >= (int)SW_LEN(rows)) {
        return false;
    }
    case_init(c, SW_OP_SUM_ROWS, "sum_rows %d %s", variant, name_of(dtype));
    case_in(c, dtype, SW_SHAPE(rows[variant][0], rows[variant][1]), -1, 1);
    case_out(c, variant % 2 ? stat_of(dtype) : dtype, SW_SHAPE(rows[variant][1]));
    return true;
}

/* ---- elementwise ---- */

static bool add(struct op_case *c, enum sw_dtype dtype, int variant)
{
    static const int64_t widths[] = {1031, 1031, 1031, 64, 3};
    if (variant >= (int)SW_LEN(widths)) {
        return false;
    }
    const int64_t n = widths[variant];
    const struct sw_shape a = SW_SHAPE(3, 5, n);
    case_init(c, SW_OP_ADD, "add %d %s", variant, name_of(dtype));
    c->exact = true;
    case_in(c, dtype, a, -1, 1);
    case_in(c, dtype, variant == 0 ? a : variant == 1 ? SW_SHAPE(5, n) : SW_SHAPE(n), -1, 1);
    case_out(c, dtype, a);
    return true;
}

static bool scale(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 2) {
        return false;
    }
    const struct sw_shape shape = variant ? SW_SHAPE(4099) : SW_SHAPE(1);
    case_init(c, SW_OP_SCALE, "scale %d %s", variant, name_of(dtype));
    c->exact = true;
    c->op.attrs.scale.factor = 0.3;
    case_in(c, dtype, shape, -4, 4);
    case_out(c, dtype, shape);
    return true;
}

static bool cast(struct op_case *c, enum sw_dtype dtype, int variant)
{
    static const enum sw_dtype to[] = {SW_F32, SW_BF16, SW_F16, SW_F64};
    if (variant >= (int)SW_LEN(to)) {
        return false;
    }
    case_init(c, SW_OP_CAST, "cast %s %s", name_of(dtype), name_of(to[variant]));
    c->exact = true;
    case_in(c, dtype, SW_SHAPE(3, 1367), -70000, 70000); /* beyond f16 */
    case_out(c, to[variant], SW_SHAPE(3, 1367));
    return true;
}

static bool act_of(struct op_case *c, enum sw_op_kind kind, enum sw_dtype dtype, int variant)
{
    if (variant >= SW_ACT_COUNT) {
        return false;
    }
    case_init(c, kind, "act kind %d %d %s", (int)kind, variant, name_of(dtype));
    c->op.attrs.act.act = (enum sw_act)variant;
    case_in(c, dtype, SW_SHAPE(3, 1367), -12, 12);
    if (kind == SW_OP_ACT_GRAD) {
        case_in(c, dtype, SW_SHAPE(3, 1367), -1, 1);
    }
    case_out(c, dtype, SW_SHAPE(3, 1367));
    return true;
}

static bool act(struct op_case *c, enum sw_dtype dtype, int variant)
{
    return act_of(c, SW_OP_ACT, dtype, variant);
}

static bool act_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    return act_of(c, SW_OP_ACT_GRAD, dtype, variant);
}

static bool dropout(struct op_case *c, enum sw_dtype dtype, int variant)
{
    /* 3: columns 8 .. 15 of [2,8,16]; 4: of these, tokens 4 .. 7 */
    static const struct sw_shape shapes[] = {
        {3, {3, 7, 13}}, {2, {1, 4099}}, {3, {5, 1, 66}}, {3, {2, 8, 8}}, {3, {2, 4, 8}}};
    if (variant >= (int)SW_LEN(shapes)) {
        return false;
    }
    const struct sw_shape shape = shapes[variant];
    struct sw_dropout_attrs *attrs = &c->op.attrs.dropout;
    case_init(c, SW_OP_DROPOUT, "dropout %d %s", variant, name_of(dtype));
    c->exact = true;
    *attrs = (struct sw_dropout_attrs){.p = variant == 2 ? 0.5 : 0.1};
    if (variant >= 3) {
        attrs->part = attrs->first = 8;
        attrs->whole = 16;
        attrs->sample = 128;
    }
    if (variant == 4) {
        attrs->outer = (struct sw_dropout_cut){.part = 64, .whole = 128, .first = 64};
    }
    case_in(c, dtype, shape, -1, 1);
    case_out(c, dtype, shape);
    return true;
}

/* ---- norms ---- */

static const int64_t norm_shapes[][2] = {{1, 1},    {3, 7},    {70, 33}, {131, 260},
                                         {2, 1024}, {3, 1001}, {2, 8200}};

static bool layer_norm(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 2 * (int)SW_LEN(norm_shapes)) {
        return false;
    }
    const int64_t *s = norm_shapes[variant / 2];
    case_init(c, SW_OP_LAYER_NORM, "layer_norm %d %s", variant, name_of(dtype));
    c->slack = 1 + (double)s[1] / 1000;
    c->op.attrs.norm.eps = 1e-5;
    case_in(c, dtype, SW_SHAPE(s[0], s[1]), -1, 3);
    case_in(c, dtype, SW_SHAPE(s[1]), 0.5, 1.5);
    case_in(c, dtype, SW_SHAPE(s[1]), -1, 1);
    case_out(c, dtype, SW_SHAPE(s[0], s[1]));
    for (int i = 0; i < 2; i++) { /* every other variant does not want the statistics */
        if (variant % 2) {
            case_out_absent(c);
        } else {
            case_out(c, stat_of(dtype), SW_SHAPE(s[0]));
        }
    }
    return true;
}

static bool add_layer_norm(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(norm_shapes)) {
        return false;
    }
    const int64_t *s = norm_shapes[variant];
    case_init(c, SW_OP_ADD_LAYER_NORM, "add_layer_norm %d %s", variant, name_of(dtype));
    c->slack = 1 + (double)s[1] / 1000;
    c->op.attrs.norm.eps = 1e-5;
    case_in(c, dtype, SW_SHAPE(s[0], s[1]), -1, 3);
    case_in(c, dtype, SW_SHAPE(s[0], s[1]), -1, 1);
    case_in(c, dtype, SW_SHAPE(s[1]), 0.5, 1.5);
    case_in(c, dtype, SW_SHAPE(s[1]), -1, 1);
    case_out(c, dtype, SW_SHAPE(s[0], s[1]));
    case_out(c, dtype, SW_SHAPE(s[0], s[1]));
    case_out(c, stat_of(dtype), SW_SHAPE(s[0]));
    case_out(c, stat_of(dtype), SW_SHAPE(s[0]));
    return true;
}

static bool layer_norm_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 3 * (int)SW_LEN(norm_shapes)) {
        return false;
    }
    const int64_t *s = norm_shapes[variant / 3];
    case_init(c, SW_OP_LAYER_NORM_GRAD, "layer_norm_grad %d %s", variant, name_of(dtype));
    c->op.attrs.norm.eps = 1e-5;
    c->slack = 2 + (double)s[1] / 1000;
    case_in(c, dtype, SW_SHAPE(s[0], s[1]), -1, 1);
    case_in(c, dtype, SW_SHAPE(s[0], s[1]), -1, 3);
    case_in(c, dtype, SW_SHAPE(s[1]), 0.5, 1.5);
    case_in(c, stat_of(dtype), SW_SHAPE(s[0]), 0.8, 1.2);
    case_in(c, stat_of(dtype), SW_SHAPE(s[0]), 0.5, 1.5);
    if (variant % 3 == 1) {
        case_out_absent(c);
    } else {
        case_out(c, dtype, SW_SHAPE(s[0], s[1]));
    }
    for (int i = 0; i < 2; i++) {
        if (variant % 3 == 2) {
            case_out_absent(c);
        } else {
            case_out(c, variant % 3 ? stat_of(dtype) : dtype, SW_SHAPE(s[1]));
        }
    }
    return true;
}

/* ---- losses ---- */

static const int64_t loss_shapes[][2] = {{1, 3}, {5, 67}, {37, 130}, {70, 1031}}; /* rows, V */

static void labels(struct op_case *c, int64_t rows, int64_t vocab, bool none)
{
    const int i = case_in_ints(c, SW_SHAPE(rows), 0, vocab);
    for (int64_t r = 0; r < rows; r++) {
        if (none || r % 5 == 3) {
            ((int32_t *)c->in[i].view.data)[r] = -100;
        }
    }
    c->labels = c->in[i].view.data;
}

static void loss_outputs(struct op_case *c, enum sw_dtype dtype, int64_t rows)
{
    case_out(c, stat_of(dtype), SW_SHAPE(1));
    case_out(c, stat_of(dtype), SW_SHAPE(1));
    case_out(c, stat_of(dtype), SW_SHAPE(rows));
}

/* Variants from 1 on: with smoothing, with ignored labels beyond the classes, with both. True if
 * there may be such labels. */
static bool more_of_loss(struct op_case *c, int variant)
{
    c->op.attrs.cross_entropy.smoothing = variant == 1 || variant == 3 ? 0.1 : 0;
    c->op.attrs.cross_entropy.ignores_beyond = variant >= 2;
    return variant >= 2;
}

/* The first and the last third of 119 classes; the last one is padded. */
enum { CLASSES = 119, SOME_CLASSES = 40, ROWS_OF_CLASSES = 37 };

static void some_classes(struct op_case *c, bool last)
{
    c->op.attrs.cross_entropy =
        (struct sw_cross_entropy_attrs){.smoothing = 0.1,
                                        .ignores_beyond = last,
                                        .whole = CLASSES,
                                        .first = last ? 2 * SOME_CLASSES : 0};
}

/* The first or the last logits of each row are -inf: more of them than a kernel takes at a time. */
static bool cross_entropy_of_masked(struct op_case *c, enum sw_dtype dtype, int variant)
{
    enum { R = 3, V = 4200, MASKED = 2150 };
    if (variant > 1) {
        return false;
    }
    case_init(c, SW_OP_CROSS_ENTROPY, "cross_entropy of masked %d %s", variant, name_of(dtype));
    void *logits = c->in[case_in(c, dtype, SW_SHAPE(1, R, V), -4, 4)].view.data;
    const int64_t first = variant ? V - MASKED : 0, allowed = variant ? 0 : MASKED;
    for (int64_t i = 0; i < R * MASKED; i++) {
        sw_store_f64(dtype, logits, i / MASKED * V + first + i % MASKED, -INFINITY);
    }
    case_in_ints(c, SW_SHAPE(R), allowed, allowed + V - MASKED);
    loss_outputs(c, dtype, R);
    return true;
}

static bool cross_entropy_part(struct op_case *c, enum sw_dtype dtype, int i_part)
{
    if (i_part > 1) {
        return cross_entropy_of_masked(c, dtype, i_part - 2);
    }
    case_init(c, SW_OP_CROSS_ENTROPY, "cross_entropy part %d %s", i_part, name_of(dtype));
    some_classes(c, i_part == 1);
    c->op.attrs.cross_entropy.partial = true;
    case_in(c, dtype, SW_SHAPE(1, ROWS_OF_CLASSES, SOME_CLASSES), -4, 4);
    labels(c, ROWS_OF_CLASSES, CLASSES + 3 * i_part, false);
    case_out(c, stat_of(dtype), SW_SHAPE(4, ROWS_OF_CLASSES));
    return true;
}

static bool cross_entropy_merge(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant > 1) {
        return false;
    }
    case_init(c, SW_OP_CROSS_ENTROPY_MERGE, "cross_entropy_merge %d %s", variant, name_of(dtype));
    some_classes(c, variant == 1);
    case_in(c, dtype, SW_SHAPE(1, ROWS_OF_CLASSES, SOME_CLASSES), -4, 4);
    labels(c, ROWS_OF_CLASSES, CLASSES + 3 * variant, false);
    case_in(c, stat_of(dtype), SW_SHAPE(4 * 3, ROWS_OF_CLASSES), 1, 2);
    loss_outputs(c, dtype, ROWS_OF_CLASSES);
    return true;
}

static bool cross_entropy(struct op_case *c, enum sw_dtype dtype, int variant)
{
    const int n = (int)SW_LEN(loss_shapes);
    if (variant > n + 3) {
        return cross_entropy_part(c, dtype, variant - n - 4);
    }
    const int64_t *s = loss_shapes[variant % n];
    case_init(c, SW_OP_CROSS_ENTROPY, "cross_entropy %d %s", variant, name_of(dtype));
    case_in(c, dtype, SW_SHAPE(1, s[0], s[1]), -4, 4);
    /* n: all labels are ignored */
    labels(c, s[0], s[1] + 3 * more_of_loss(c, variant - n), variant == n);
    loss_outputs(c, dtype, s[0]);
    return true;
}

static bool cross_entropy_grad_part(struct op_case *c, enum sw_dtype dtype, int i_part)
{
    const struct sw_shape logits = SW_SHAPE(1, ROWS_OF_CLASSES, SOME_CLASSES);
    if (i_part > 1) {
        return false;
    }
    case_init(c, SW_OP_CROSS_ENTROPY_GRAD, "cross_entropy_grad part %d %s", i_part, name_of(dtype));
    some_classes(c, i_part == 1);
    case_in(c, stat_of(dtype), SW_SHAPE(1), 0.1, 2);
    case_in(c, dtype, logits, -4, 4);
    labels(c, ROWS_OF_CLASSES, CLASSES + 3 * i_part, false);
    case_in(c, stat_of(dtype), SW_SHAPE(ROWS_OF_CLASSES), 4.5, 6);
    case_out(c, dtype, logits);
    return true;
}

static bool cross_entropy_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    const int n = (int)SW_LEN(loss_shapes);
    if (variant >= n + 3) {
        return cross_entropy_grad_part(c, dtype, variant - n - 3);
    }
    const int64_t *s = loss_shapes[variant % n];
    case_init(c, SW_OP_CROSS_ENTROPY_GRAD, "cross_entropy_grad %d %s", variant, name_of(dtype));
    case_in(c, stat_of(dtype), SW_SHAPE(1), 0.1, 2);
    case_in(c, dtype, SW_SHAPE(1, s[0], s[1]), -4, 4);
    labels(c, s[0], s[1] + 3 * more_of_loss(c, variant - n + 1), false);
    case_in(c, stat_of(dtype), SW_SHAPE(s[0]), 4.5, 6);
    case_out(c, dtype, SW_SHAPE(1, s[0], s[1]));
    return true;
}

enum { TILE_ROWS_OF_LABELS = 37, TILE_VOCAB = 1031, TILE_CHUNK = 100, TILE_WIDTH = 39 };

/* Rows 0 .. 299, 300 .. 599, 600 .. of a table: the first tile starts the sum, the last one
 * finishes it. */
static int64_t loss_tile(struct op_case *c, int i_tile)
{
    c->op.attrs.linear_ce.chunk = TILE_CHUNK;
    c->op.attrs.linear_ce.tile.first = 300 * i_tile;
    c->op.attrs.linear_ce.tile.continues = i_tile > 0;
    c->op.attrs.linear_ce.tile.partial = i_tile < 2;
    return i_tile < 2 ? 300 : TILE_VOCAB - 600;
}

static bool linear_ce_tile(struct op_case *c, enum sw_dtype dtype, int i_tile)
{
    if (i_tile > 2) {
        return case_linear_ce_more(c, dtype, i_tile - 3);
    }
    case_init(c, SW_OP_LINEAR_CE, "linear_ce tile %d %s", i_tile, name_of(dtype));
    const int64_t n = loss_tile(c, i_tile), rows = TILE_ROWS_OF_LABELS;
    c->slack = 2;
    case_in(c, dtype, SW_SHAPE(1, rows, TILE_WIDTH), -1, 1);
    case_in(c, dtype, SW_SHAPE(n, TILE_WIDTH), -0.5, 0.5);
    labels(c, rows, TILE_VOCAB, false);
    if (i_tile > 0) {
        case_in(c, stat_of(dtype), SW_SHAPE(3, rows), 1, 2);
    }
    if (i_tile == 2) {
        loss_outputs(c, dtype, rows);
    } else if (i_tile == 1) {
        case_out_in_place(c, 3);
    } else {
        case_out(c, stat_of(dtype), SW_SHAPE(3, rows));
    }
    return true;
}

static bool linear_ce(struct op_case *c, enum sw_dtype dtype, int variant)
{
    const int n = (int)SW_LEN(loss_shapes);
    if (variant > n) {
        return linear_ce_tile(c, dtype, variant - n - 1);
    }
    const int64_t *s = loss_shapes[variant % n], width = 9 + 30 * variant;
    case_init(c, SW_OP_LINEAR_CE, "linear_ce %d %s", variant, name_of(dtype));
    c->op.attrs.linear_ce.chunk = sw_min_i64(s[1], 300);
    c->slack = 2;
    case_in(c, dtype, SW_SHAPE(1, s[0], width), -1, 1);
    case_in(c, dtype, SW_SHAPE(s[1], width), -0.5, 0.5);
    labels(c, s[0], s[1], variant == n);
    loss_outputs(c, dtype, s[0]);
    return true;
}

static bool linear_ce_merge(struct op_case *c, enum sw_dtype dtype, int variant)
{
    const int64_t rows = 5 + 60 * variant, words = 7, n_parts = 2 + variant;
    if (variant == 3) {
        return false;
    }
    case_init(c, SW_OP_LINEAR_CE_MERGE, "linear_ce_merge %d %s", variant, name_of(dtype));
    c->op.attrs.linear_ce.whole = words * n_parts;
    c->op.attrs.linear_ce.tile.first = words;
    case_in(c, dtype, SW_SHAPE(1, rows, 9), -1, 1);
    case_in(c, dtype, SW_SHAPE(words, 9), -0.5, 0.5);
    labels(c, rows, words * n_parts, variant == 2);
    case_in(c, stat_of(dtype), SW_SHAPE(3 * n_parts, rows), 1, 2);
    loss_outputs(c, dtype, rows);
    return true;
}

static bool linear_ce_grad_tile(struct op_case *c, enum sw_dtype dtype, int i_tile)
{
    if (i_tile > 2) {
        return case_linear_ce_grad_more(c, dtype, i_tile - 3);
    }
    case_init(c, SW_OP_LINEAR_CE_GRAD, "linear_ce_grad tile %d %s", i_tile, name_of(dtype));
    const int64_t n = loss_tile(c, i_tile), rows = TILE_ROWS_OF_LABELS;
    c->slack = 4;
    case_in(c, stat_of(dtype), SW_SHAPE(1), 0.1, 2);
    case_in(c, dtype, SW_SHAPE(1, rows, TILE_WIDTH), -1, 1);
    case_in(c, dtype, SW_SHAPE(n, TILE_WIDTH), -0.5, 0.5);
    labels(c, rows, TILE_VOCAB, false);
    case_in(c, stat_of(dtype), SW_SHAPE(rows), 4.5, 6);
    if (i_tile > 0) {
        case_in(c, stat_of(dtype), SW_SHAPE(rows, TILE_WIDTH), -1, 1);
    }
    if (i_tile == 1) {
        case_out_in_place(c, 5);
    } else {
        case_out(c, i_tile == 2 ? dtype : stat_of(dtype), SW_SHAPE(rows, TILE_WIDTH));
    }
    case_out(c, dtype, SW_SHAPE(n, TILE_WIDTH));
    return true;
}

static bool linear_ce_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    const int n = (int)SW_LEN(loss_shapes);
    if (variant >= n + 2) {
        return linear_ce_grad_tile(c, dtype, variant - n - 2);
    }
    const int64_t *s = loss_shapes[variant < n ? variant : n - 1], width = 9 + 30 * variant;
    case_init(c, SW_OP_LINEAR_CE_GRAD, "linear_ce_grad %d %s", variant, name_of(dtype));
    c->op.attrs.linear_ce.chunk = sw_min_i64(s[1], 300);
    c->slack = 4;
    case_in(c, stat_of(dtype), SW_SHAPE(1), 0.1, 2);
    case_in(c, dtype, SW_SHAPE(1, s[0], width), -1, 1);
    case_in(c, dtype, SW_SHAPE(s[1], width), -0.5, 0.5);
    labels(c, s[0], s[1], false);
    case_in(c, stat_of(dtype), SW_SHAPE(s[0]), 4.5, 6);
    if (variant == n) { /* a frozen output layer, or frozen activations */
        case_out_absent(c);
    } else {
        case_out(c, dtype, SW_SHAPE(1, s[0], width));
    }
    if (variant == n + 1) {
        case_out_absent(c);
    } else {
        case_out(c, variant % 2 ? stat_of(dtype) : dtype, SW_SHAPE(s[1], width));
    }
    return true;
}

static bool loss_mean(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 2) {
        return false;
    }
    case_init(c, SW_OP_LOSS_MEAN, "loss_mean %d %s", variant, name_of(dtype));
    c->exact = true;
    case_in(c, stat_of(dtype), SW_SHAPE(1), 1, 9);
    if (variant) {
        case_in_zero(c, stat_of(dtype), SW_SHAPE(1));
    } else {
        case_in(c, stat_of(dtype), SW_SHAPE(1), 3, 4);
    }
    case_out(c, stat_of(dtype), SW_SHAPE(1));
    return true;
}

static bool loss_mean_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 3) {
        return false;
    }
    loss_mean(c, dtype, variant % 2);
    c->op.kind = SW_OP_LOSS_MEAN_GRAD;
    c->op.attrs.loss_mean.weight = variant == 2 ? 1.0 / 7 : 0;
    return true;
}

static bool seed(struct op_case *c, enum sw_dtype dtype, int variant)
{
    case_init(c, SW_OP_SEED, "seed %s", name_of(dtype));
    c->exact = true;
    case_out(c, stat_of(dtype), SW_SHAPE(1));
    return variant == 0;
}

/* ---- lookups and moves ---- */

static bool embedding(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 5) {
        return false;
    }
    const int64_t width = variant == 4 ? 72 : variant ? 257 : 3;
    case_init(c, SW_OP_EMBEDDING, "embedding %d %s", variant, name_of(dtype));
    c->exact = true;
    c->op.attrs.embedding.tile.first =
        variant == 3 ? 7 : 0; /* from variant 3 on: tiles of a larger table */
    c->op.attrs.embedding.tile.continues = variant == 3;
    case_in(c, dtype, SW_SHAPE(19, width), -1, 1);
    case_in_ints(c, SW_SHAPE(3, 11), 0, variant < 2 ? 19 : 30);
    if (variant == 3) {
        case_in(c, dtype, SW_SHAPE(3, 11, width), -1, 1);
        case_out_in_place(c, 2);
    } else {
        case_out(c, dtype, SW_SHAPE(3, 11, width));
    }
    return true;
}

static bool embedding_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 6) {
        return false;
    }
    const int64_t tokens = variant == 5 ? 4500 : variant == 3 ? 1 : 67;
    const int64_t width = variant == 5 ? 3 : variant == 4 ? 72 : variant ? 33 : 5;
    case_init(c, SW_OP_EMBEDDING_GRAD, "embedding_grad %d %s", variant, name_of(dtype));
    c->exact = true;
    c->op.attrs.embedding.padding_id = variant == 2 ? 4 : -1;
    case_in(c, dtype, SW_SHAPE(1, tokens, width), -1, 1);
    case_in_ints(c, SW_SHAPE(1, tokens), 0, variant == 5 ? 3000 : variant == 1 ? 1000 : 9);
    case_out(c, variant == 1 ? stat_of(dtype) : dtype, SW_SHAPE(tokens, width));
    case_out(c, SW_I32, SW_SHAPE(tokens));
    return true;
}

static bool contiguous(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 4) {
        return false;
    }
    case_init(c, SW_OP_CONTIGUOUS, "contiguous %d %s", variant, name_of(dtype));
    c->exact = true;
    if (variant >= 2) { /* rows that can be moved in larger units; without gaps */
        case_in_strided(c, dtype, SW_SHAPE(2, 3, 16),
                        variant == 2 ? (int64_t[]){32, 64, 1} : (int64_t[]){48, 16, 1});
        case_out(c, dtype, SW_SHAPE(2, 3, 16));
        return true;
    }
    case_in_strided(c, dtype, SW_SHAPE(5, 3, 7),
                    variant ? (int64_t[]){7, 40, 1} : (int64_t[]){1, 35, 5});
    case_out(c, dtype, SW_SHAPE(5, 3, 7));
    return true;
}

static bool last_index(struct op_case *c, enum sw_dtype dtype, int variant)
{
    (void)dtype;
    case_init(c, SW_OP_LAST_INDEX, "last_index %d", variant);
    c->exact = true;
    c->op.attrs.last_index.padding_id = variant ? 1 : -1;
    c->op.attrs.last_index.is_value = variant == 2;
    case_in_ints(c, SW_SHAPE(20, 3), 0, 2);
    case_out(c, SW_I32, SW_SHAPE(20));
    return variant < 3;
}

static bool select_rows(struct op_case *c, enum sw_dtype dtype, int variant)
{
    case_init(c, SW_OP_SELECT_ROWS, "select_rows %s", name_of(dtype));
    c->exact = true;
    case_in(c, dtype, SW_SHAPE(4, 5, 7), -1, 1);
    case_in_ints(c, SW_SHAPE(4), 0, 5);
    case_out(c, dtype, SW_SHAPE(4, 7));
    return variant == 0;
}

static bool select_rows_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    case_init(c, SW_OP_SELECT_ROWS_GRAD, "select_rows_grad %s", name_of(dtype));
    c->exact = true;
    case_in(c, dtype, SW_SHAPE(4, 7), -1, 1);
    case_in_ints(c, SW_SHAPE(4), 0, 5);
    case_out(c, dtype, SW_SHAPE(4, 5, 7));
    return variant == 0;
}

static bool slice_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 4) {
        return false;
    }
    const int dim = variant < 3 ? variant : 1;
    const int64_t width = variant < 3 ? 6 : 16;
    struct sw_shape dy = SW_SHAPE(4, 5, width);
    dy.dims[dim] = 3;
    case_init(c, SW_OP_SLICE_GRAD, "slice_grad %d %s", variant, name_of(dtype));
    c->exact = true;
    c->op.attrs.slice.dim = dim;
    c->op.attrs.slice.start = 1;
    case_in(c, dtype, dy, -1, 1);
    case_out(c, variant == 1 ? stat_of(dtype) : dtype, SW_SHAPE(4, 5, width));
    return true;
}

static bool kv_append(struct op_case *c, enum sw_dtype dtype, int variant)
{
    case_init(c, SW_OP_KV_APPEND, "kv_append %d %s", variant, name_of(dtype));
    const int64_t width = variant == 2 ? 16 : 5, row = variant == 2 ? 48 : 17;
    c->exact = true;
    case_in(c, dtype, SW_SHAPE(2, 9, width), -1, 1);
    case_in_strided(c, dtype, SW_SHAPE(2, 3, width), (int64_t[]){3 * row, row, 1});
    case_in_i32(c, 1, (int32_t[]){variant ? 7 : 4}); /* 7: one row does not fit */
    case_out_in_place(c, 0);
    return variant < 3;
}

/* ---- gradients of parameters ---- */

static const int32_t sparse_rows[] = {1, 2, 9, 11, -1, -1};
static const int32_t other_rows[] = {0, 2, 3, 8, 11, -1};
static const int32_t no_rows[] = {-1, -1, -1, -1, -1, -1};

enum { PARAM_ROWS = 12, PARAM_WIDTH = 137 };

static void sparse_stream(struct op_case *c, enum sw_dtype dtype, const int32_t *index)
{
    case_in(c, dtype, SW_SHAPE(6, PARAM_WIDTH), -1, 1);
    case_in_i32(c, 6, index);
}

/* Variants: dense and sparse, each later and first; both first, but continuing. */
static bool accumulate(struct op_case *c, enum sw_dtype dtype, int variant)
{
    const bool continues = variant >= 4, is_sparse = continues ? variant == 5 : variant >= 2;
    if (variant >= 6) {
        return false;
    }
    case_init(c, SW_OP_ACCUMULATE, "accumulate %d %s", variant, name_of(dtype));
    c->exact = true;
    c->scalars[SW_SCALAR_FIRST] = continues || variant % 2;
    c->op.attrs.stats.continues = continues;
    case_in(c, stat_of(dtype), SW_SHAPE(PARAM_ROWS, PARAM_WIDTH), -1, 1);
    if (is_sparse) {
        sparse_stream(c, dtype, sparse_rows);
    } else {
        case_in(c, dtype, SW_SHAPE(PARAM_ROWS, PARAM_WIDTH), -1, 1);
    }
    case_out_in_place(c, 0);
    return true;
}

static bool densify(struct op_case *c, enum sw_dtype dtype, int variant)
{
    case_init(c, SW_OP_DENSIFY, "densify %s", name_of(dtype));
    c->exact = true;
    sparse_stream(c, dtype, sparse_rows);
    case_out(c, dtype, SW_SHAPE(PARAM_ROWS, PARAM_WIDTH));
    return variant == 0;
}

static bool select_index(struct op_case *c, enum sw_dtype dtype, int variant)
{
    static const int64_t ranges[][2] = {{0, 2}, {2, 8}, {9, 3}, {0, PARAM_ROWS}};
    if (variant >= (int)SW_LEN(ranges)) {
        return false;
    }
    case_init(c, SW_OP_SELECT_INDEX, "select_index %d %s", variant, name_of(dtype));
    c->exact = true;
    c->op.attrs.select_index.first = ranges[variant][0];
    c->op.attrs.select_index.n = ranges[variant][1];
    sparse_stream(c, dtype, sparse_rows);
    case_out(c, dtype, SW_SHAPE(sw_min_i64(6, ranges[variant][1]), PARAM_WIDTH));
    case_out(c, SW_I32, SW_SHAPE(sw_min_i64(6, ranges[variant][1])));
    return true;
}

static bool stats_reset(struct op_case *c, enum sw_dtype dtype, int variant)
{
    (void)dtype;
    case_init(c, SW_OP_STATS_RESET, "stats_reset");
    c->exact = true;
    const int i = case_in_zero(c, SW_I64, SW_SHAPE(SW_STATS_WORDS));
    memset(c->in[i].view.data, 0x3c, c->in[i].bytes);
    case_out_in_place(c, 0);
    return variant == 0;
}

static void make_infinite(struct op_case *c, int i_in, int64_t element, double value)
{
    sw_store_f64(c->in[i_in].view.dtype, c->in[i_in].view.data, element, value);
}

static bool grad_stats(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 10) {
        return false;
    }
    case_init(c, SW_OP_GRAD_STATS, "grad_stats %d %s", variant, name_of(dtype));
    c->exact = true;
    const int stats = case_in_zero(c, SW_I64, SW_SHAPE(SW_STATS_WORDS));
    sw_exact_add(c->in[stats].view.data, 0.7); /* sum of the parameters before */
    const int64_t rows = variant == 6 ? 8 * PARAM_ROWS : PARAM_ROWS;
    const bool has_rows_only = variant == 1 || variant == 7 || variant == 8;
    if (!has_rows_only) {
        case_in(c, dtype, SW_SHAPE(rows, PARAM_WIDTH), -1, 1);
    }
    if (variant == 7 || variant == 8) { /* rows of several streams that share runs */
        sparse_stream(c, dtype, variant == 7 ? other_rows : no_rows);
    }
    if (variant >= 1 && variant < 9) {
        sparse_stream(c, dtype, sparse_rows);
    }
    if (variant == 9) { /* another rank counts the last elements */
        c->op.attrs.stats.counted = rows * PARAM_WIDTH - 3 * SW_SQUARES_RUN - 5;
    }
    if (variant == 3) { /* not finite, so it is counted */
        make_infinite(c, 1, 700, INFINITY);
        make_infinite(c, 1, 3, NAN);
        make_infinite(c, 2, 5, -INFINITY);
    }
    if (variant == 6) { /* such different sizes that no sum in double is exact */
        for (int64_t i = 0; i < rows * PARAM_WIDTH; i++) {
            const int exponent =
                dtype == SW_F16 ? (int)(i * 7 % 24) - 12 : (int)(i * 7 % 240) - 140;
            sw_store_f64(dtype, c->in[1].view.data, i,
                         ldexp(sw_load_f64(dtype, c->in[1].view.data, i), exponent));
        }
    }
    if (variant == 4 || variant == 5) { /* out of f16's range: counted if the op asks for it */
        c->op.attrs.stats.overflow_skips = variant == 4;
        c->scalars[SW_SCALAR_OVERFLOW_FACTOR] = 65504 / 0.9;
    }
    case_out_in_place(c, 0);
    return true;
}

static bool stats_finish(struct op_case *c, enum sw_dtype dtype, int variant)
{
    (void)dtype;
    if (variant >= 5) {
        return false;
    }
    case_init(c, SW_OP_STATS_FINISH, "stats_finish %d", variant);
    c->exact = true;
    c->op.attrs.stats.clip = variant == 1 ? 0.5 : variant == 2 ? 100 : 0;
    c->op.attrs.stats.overflow_skips = variant == 3;
    const int i = case_in_zero(c, SW_I64, SW_SHAPE(SW_STATS_WORDS));
    int64_t *stats = c->in[i].view.data;
    sw_exact_add(stats, 49);
    stats[SW_EXACT_WORDS] = variant >= 3;
    case_out_in_place(c, 0);
    return true;
}

/* Adds a parameter, its master's storage and its moments. */
static void param_and_states(struct op_case *c, enum sw_dtype dtype, struct sw_shape whole,
                             struct sw_shape shape, int moments, bool half)
{
    case_in(c, dtype, whole, -1, 1);
    if (dtype == SW_F16) {
        case_in(c, SW_F32, shape, -1, 1);
    } else if (dtype == SW_BF16) { /* the master's low half: arbitrary 16-bit values */
        const int i = case_in_zero(c, SW_I16, shape);
        for (int64_t e = 0; e < sw_shape_elems(&shape); e++) {
            ((int16_t *)c->in[i].view.data)[e] =
                (int16_t)case_random(c, 99, (uint64_t)e, -32768, 32767);
        }
    }
    const enum sw_update_kind kind = c->op.attrs.update.rule.kind;
    const bool is_of_squares = kind == SW_UPDATE_ADAGRAD || kind == SW_UPDATE_RMSPROP;
    for (int i = 0; i < moments; i++) {
        case_in(c, half && dtype != SW_F64 ? SW_BF16 : stat_of(dtype), shape,
                i == 0 && !is_of_squares ? -1 : 0, 1);
    }
    c->op.attrs.update.rule.n_states = c->op.n_in - 1;
}

/* ---- 8-bit moments: more elements than one item of a fast row ---- */

enum { CODED_ROWS = 61 };

static void coded_states(struct op_case *c, enum sw_dtype dtype, struct sw_shape whole,
                         struct sw_shape shape)
{
    const int64_t n = sw_shape_elems(&shape), n_runs = sw_ceil_div(n, SW_CODE_RUN);
    param_and_states(c, dtype, whole, shape, 0, false);
    for (int k = 0; k < 2; k++) {
        const int i = case_in_zero(c, SW_U8, shape);
        for (int64_t e = 0; e < n; e++) {
            ((uint8_t *)c->in[i].view.data)[e] =
                (uint8_t)case_random(c, (uint64_t)(97 + k), (uint64_t)e, 0, 255.99);
        }
    }
    case_in(c, SW_F32, SW_SHAPE(n_runs), 0, 1);
    case_in(c, SW_F32, SW_SHAPE(n_runs), 0, 1e-3);
    c->op.attrs.update.rule.n_states = c->op.n_in - 1;
}

/* The first run starts as zeros and stays so. The others get numbers of very different sizes, so
 * that every code and every place between codes occurs. */
static void special_runs(struct op_case *c, int i_grad)
{
    const int i_codes = c->op.attrs.update.rule.n_states - 3;
    float *scales[2] = {c->in[i_codes + 2].view.data, c->in[i_codes + 3].view.data};
    for (int64_t e = 0; e < sw_shape_elems(&c->in[i_grad].view.shape); e++) {
        const double size = pow(10, case_random(c, 96, (uint64_t)e, -9, 0));
        sw_store_f64(c->in[i_grad].view.dtype, c->in[i_grad].view.data, e,
                     e < SW_CODE_RUN ? 0
                     : e % 2         ? -size
                                     : size);
        scales[0][e / SW_CODE_RUN] = scales[1][e / SW_CODE_RUN] = e < SW_CODE_RUN ? 0 : 1e-30f;
    }
}

/* Variants: dense; dense and sparse with padding; elements of a piece; non-finite elements;
 * skipped; less than a run. */
static bool update_coded(struct op_case *c, enum sw_dtype dtype, int variant)
{
    enum { DENSE, PADDED, PIECE, NOT_FINITE, SKIPPED, SHORT, N_CODED };
    enum { FIRST = 2 * SW_CODE_RUN, PADDING = 300 };
    if (variant >= N_CODED || dtype == SW_F64) {
        return false;
    }
    const struct sw_shape whole = SW_SHAPE(variant == SHORT ? 1 : CODED_ROWS, PARAM_WIDTH);
    const int64_t elems = sw_shape_elems(&whole);
    case_init(c, SW_OP_UPDATE, "update coded %d %s", variant, name_of(dtype));
    c->exact = true;
    c->op.attrs.update =
        (struct sw_update_op_attrs){.rule = {.kind = SW_UPDATE_ADAM,
                                             .decoupled = variant != PADDED,
                                             .bias_correction = true,
                                             .eps = 1e-8,
                                             .weight_decay = 0.1},
                                    .first = variant == PIECE ? FIRST : 0,
                                    .n_elems = variant == PADDED ? elems - PADDING : elems};
    c->scalars[SW_SCALAR_STEP] = 3;
    c->scalars[SW_SCALAR_SKIP] = variant == SKIPPED;
    coded_states(c, dtype, whole, variant == PIECE ? SW_SHAPE(5 * SW_CODE_RUN) : whole);
    for (int i = 0; i <= c->op.attrs.update.rule.n_states; i++) {
        case_out_in_place(c, i);
    }
    const int g = case_in(c, variant % 2 ? dtype : SW_F32, whole, -1, 1);
    if (variant == DENSE) {
        special_runs(c, g);
    }
    if (variant == PADDED) {
        sparse_stream(c, dtype, sparse_rows);
    }
    if (variant == NOT_FINITE) {
        make_infinite(c, g, 700, INFINITY);
        make_infinite(c, g, 4097, NAN);
    }
    return true;
}

static bool update(struct op_case *c, enum sw_dtype dtype, int variant)
{
    static const struct {
        struct sw_update_attrs attrs;
        int moments;
        int streams; /* 0 dense, 1 sparse, 2 dense and sparse, 3 sparse without rows */
        double step;
    } rows[] = {
        {{.kind = SW_UPDATE_ADAM,
          .decoupled = true,
          .bias_correction = true,
          .eps = 1e-8,
          .weight_decay = 0.1},
         2,
         0,
         3},
        {{.kind = SW_UPDATE_ADAM,
          .bias_correction = true,
          .maximize = true,
          .eps = 1e-6,
          .weight_decay = 0.1},
         2,
         2,
         1},
        {{.kind = SW_UPDATE_ADAM, .decoupled = true, .eps = 1e-8}, 2, 1, 7},
        {{.kind = SW_UPDATE_ADAM,
          .decoupled = true,
          .bias_correction = true,
          .eps = 1e-8,
          .weight_decay = 0.01},
         2,
         3,
         7},
        {{.kind = SW_UPDATE_SGD}, 0, 0, 1},
        {{.kind = SW_UPDATE_SGD, .weight_decay = 0.1, .dampening = 0.2}, 1, 2, 2},
        {{.kind = SW_UPDATE_SGD, .nesterov = true, .maximize = true, .weight_decay = 0.1}, 1, 0, 1},
        {{.kind = SW_UPDATE_SGD, .nesterov = true}, 1, 1, 5},
        {{.kind = SW_UPDATE_ADAM,
          .decoupled = true,
          .bias_correction = true,
          .eps = 1e-8,
          .weight_decay = 0.1},
         2,
         2,
         3},                                                                       /* piece 0 */
        {{.kind = SW_UPDATE_SGD, .weight_decay = 0.1, .dampening = 0.2}, 1, 0, 2}, /* piece 1 */
        {{.kind = SW_UPDATE_ADAM,
          .decoupled = true,
          .bias_correction = true,
          .eps = 1e-8,
          .weight_decay = 0.1},
         2,
         0,
         3}, /* skipped */
        {{.kind = SW_UPDATE_ADAGRAD, .eps = 1e-10, .initial = 0.2}, 1, 0, 1},
        {{.kind = SW_UPDATE_ADAGRAD, .eps = 1e-8, .weight_decay = 0.1, .lr_decay = 0.3}, 1, 2, 5},
        {{.kind = SW_UPDATE_LION}, 1, 1, 1},
        {{.kind = SW_UPDATE_LION, .weight_decay = 0.1}, 1, 0, 9},
        {{.kind = SW_UPDATE_SPARSE_ADAM, .bias_correction = true, .eps = 1e-8}, 2, 1, 4},
        {{.kind = SW_UPDATE_SPARSE_ADAM, .bias_correction = true, .eps = 1e-8}, 2, 3, 4},
        {{.kind = SW_UPDATE_RMSPROP, .eps = 1e-8, .has_betas = true, .beta2 = 0.9}, 1, 2, 1},
        {{.kind = SW_UPDATE_RMSPROP,
          .maximize = true,
          .eps = 1e-6,
          .weight_decay = 0.1,
          .has_betas = true,
          .beta1 = 0.8,
          .beta2 = 0.95},
         2,
         0,
         4},
        {{.kind = SW_UPDATE_ADAM,
          .decoupled = true,
          .bias_correction = true,
          .eps = 1e-8,
          .weight_decay = 0.1},
         2,
         2,
         3},
        {{.kind = SW_UPDATE_ADAM,
          .bias_correction = true,
          .eps = 1e-8,
          .is_scaled = true,
          .lr_scale = 0.3,
          .has_betas = true,
          .beta1 = 0.7,
          .beta2 = 0.95},
         2,
         0,
         6},
    };
    enum { SKIPPED = 10, FIRST_PIECE = 8, FIRST_HALF = 19 }; /* then moments of bf16 */
    /* States of only some of the elements. */
    static const struct {
        int64_t first, n;
    } pieces[] = {{PARAM_WIDTH + 5, PARAM_WIDTH * PARAM_ROWS - 2 * PARAM_WIDTH - 7}, {64, 64}};
    if (variant >= (int)SW_LEN(rows)) {
        return update_coded(c, dtype, variant - (int)SW_LEN(rows));
    }
    const int i_piece = variant - FIRST_PIECE;
    const bool half = variant >= FIRST_HALF;
    const bool in_piece = i_piece >= 0 && i_piece < (int)SW_LEN(pieces);
    const struct sw_shape shape = SW_SHAPE(PARAM_ROWS, PARAM_WIDTH);
    const enum sw_dtype stat = stat_of(dtype);
    case_init(c, SW_OP_UPDATE, "update %d %s", variant, name_of(dtype));
    c->exact = true;
    c->op.attrs.update.rule = rows[variant].attrs;
    c->scalars[SW_SCALAR_STEP] = rows[variant].step;
    c->scalars[SW_SCALAR_SKIP] = variant == SKIPPED;
    c->op.attrs.update.origin = half ? variant : 0; /* not a multiple of the draw's block */
    c->op.attrs.update.draw = 0x1234567890abcdef;
    c->op.attrs.update.first = in_piece ? pieces[i_piece].first : 0;
    param_and_states(c, dtype, shape, in_piece ? SW_SHAPE(pieces[i_piece].n) : shape,
                     rows[variant].moments, half);
    for (int i = 0; i <= c->op.attrs.update.rule.n_states; i++) {
        case_out_in_place(c, i);
    }
    if (rows[variant].streams == 0 || rows[variant].streams == 2) {
        case_in(c, variant % 2 ? dtype : stat, shape, -1, 1);
    }
    if (rows[variant].streams != 0) {
        sparse_stream(c, dtype, rows[variant].streams == 3 ? no_rows : sparse_rows);
    }
    if (rows[variant].streams == 1) { /* a row is added to 0, which turns -0 into +0 */
        const int64_t e = sparse_rows[0] * PARAM_WIDTH + 3;
        sw_store_f64(stat, c->in[dtype == SW_F32 || dtype == SW_F64 ? 1 : 2].view.data, e, -0.0);
        sw_store_f64(dtype, c->in[c->op.n_in - 2].view.data, 3, -0.0);
    }
    return true;
}

/* ---- LAMB: more elements than one item of a fast row, and part of one ---- */

enum { LAMB_ROWS = 61, LAMB_PADDING = 300, LAMB_SHARED = 1237 };

static const struct sw_update_attrs lamb_attrs[] = {
    {.kind = SW_UPDATE_LAMB, .bias_correction = true, .eps = 1e-6, .max_coeff = 10},
    {.kind = SW_UPDATE_LAMB,
     .bias_correction = true,
     .eps = 1e-3,
     .weight_decay = 0.1,
     .eps_inside_sqrt = true,
     .min_coeff = 0.01,
     .max_coeff = 10},
    {.kind = SW_UPDATE_LAMB, .eps = 1e-6, .weight_decay = 0.1, .min_coeff = 5, .max_coeff = 10},
    {.kind = SW_UPDATE_LAMB, .maximize = true, .eps = 1e-6, .min_coeff = 0.01, .max_coeff = 0.02},
};

/* Variants: the rules above; then the first one with padding and elements that another rank
 * counts, with a non-finite element, and (for
 * LAMB_APPLY) skipped. */
enum { LAMB_PADDED = SW_LEN(lamb_attrs), LAMB_NOT_FINITE, LAMB_SKIPPED, N_LAMB };

static void lamb_init(struct op_case *c, enum sw_op_kind kind, enum sw_dtype dtype, int variant)
{
    const struct sw_shape shape = SW_SHAPE(LAMB_ROWS, PARAM_WIDTH);
    case_init(c, kind, "%s %d %s", kind == SW_OP_LAMB_MOMENTS ? "lamb_moments" : "lamb_apply",
              variant, name_of(dtype));
    c->exact = true;
    c->op.attrs.update.rule = lamb_attrs[variant < LAMB_PADDED ? variant : 0];
    c->op.attrs.update.n_elems =
        sw_shape_elems(&shape) - (variant == LAMB_PADDED ? LAMB_PADDING : 0);
    c->op.attrs.update.n_shared = variant == LAMB_PADDED ? LAMB_SHARED : 0;
    c->scalars[SW_SCALAR_SKIP] = variant == LAMB_SKIPPED;
    param_and_states(c, dtype, shape, shape, 2, false);
}

static bool lamb_moments(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= LAMB_SKIPPED) {
        return false;
    }
    lamb_init(c, SW_OP_LAMB_MOMENTS, dtype, variant);
    const int n_states = c->op.attrs.update.rule.n_states;
    case_out_in_place(c, n_states - 1);
    case_out_in_place(c, n_states);
    case_out(c, SW_I64, SW_SHAPE(SW_LAMB_WORDS));
    const int g =
        case_in(c, variant % 2 ? dtype : stat_of(dtype), SW_SHAPE(LAMB_ROWS, PARAM_WIDTH), -1, 1);
    if (variant == 2 || variant == 3) {
        sparse_stream(c, dtype, variant == 2 ? sparse_rows : no_rows);
    }
    if (variant == LAMB_NOT_FINITE) {
        make_infinite(c, g, 700, INFINITY);
        make_infinite(c, g, 4097, NAN);
    }
    return true;
}

static bool lamb_apply(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= N_LAMB) {
        return false;
    }
    lamb_init(c, SW_OP_LAMB_APPLY, dtype, variant);
    const int n_states = c->op.attrs.update.rule.n_states;
    int64_t *norms = c->in[case_in_zero(c, SW_I64, SW_SHAPE(SW_LAMB_WORDS))].view.data;
    sw_exact_add(norms, 7);
    sw_exact_add(norms + SW_STATS_WORDS, 3);
    norms[SW_EXACT_WORDS] = variant == LAMB_NOT_FINITE;
    const int ratio = case_in_zero(c, stat_of(dtype), SW_SHAPE(1));
    case_out_in_place(c, 0);
    if (n_states > 2) {
        case_out_in_place(c, 1);
    }
    case_out_in_place(c, ratio);
    return true;
}

/* Wide, tall, square, a row; the last three: a slice of the first, a slice with padding,
 * skipped. */
static const int64_t muon_shapes[][2] = {{5, 7},   {61, 37}, {24, 24}, {1, 33},
                                         {37, 61}, {24, 40}, {5, 7}};
enum { N_MUON = SW_LEN(muon_shapes), MUON_SLICE = 4, MUON_PADDED, MUON_SKIPPED };

static struct sw_shape muon_init(struct op_case *c, enum sw_op_kind kind, enum sw_dtype dtype,
                                 int variant)
{
    const struct sw_shape whole = SW_SHAPE(muon_shapes[variant][0], muon_shapes[variant][1]);
    const bool is_slice = variant == MUON_SLICE || variant == MUON_PADDED;
    const int64_t n = is_slice ? 480 : sw_shape_elems(&whole);
    case_init(c, kind, "muon %d %s", variant, name_of(dtype));
    c->op.attrs.update.rule = (struct sw_update_attrs){.kind = SW_UPDATE_MUON,
                                                       .nesterov = variant % 2 == 0,
                                                       .weight_decay = variant % 3 == 0 ? 0 : 0.1,
                                                       .has_betas = true,
                                                       .beta1 = 0.95,
                                                       .ns_steps = 5};
    c->op.attrs.update.origin = is_slice ? 960 - 480 * (variant == MUON_SLICE) : 0;
    c->op.attrs.update.n_elems = variant == MUON_PADDED ? 0 : n;
    c->scalars[SW_SCALAR_SKIP] = variant == MUON_SKIPPED;
    param_and_states(c, dtype, is_slice ? SW_SHAPE(n) : whole, is_slice ? SW_SHAPE(n) : whole, 1,
                     false);
    return whole;
}

static bool muon_moments(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= MUON_SKIPPED) {
        return false;
    }
    muon_init(c, SW_OP_MUON_MOMENTS, dtype, variant);
    c->exact = true;
    case_out_in_place(c, c->op.attrs.update.rule.n_states);
    case_out(c, SW_BF16, c->in[0].view.shape);
    case_in(c, variant % 2 ? dtype : stat_of(dtype), c->in[0].view.shape, -1, 1);
    return true;
}

/* A sum near a rounding boundary may round to bf16 the other way and move some elements by 2^-8 of
 * the rate. */
static bool muon_apply(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= N_MUON) {
        return false;
    }
    const struct sw_shape whole = muon_init(c, SW_OP_MUON_APPLY, dtype, variant);
    const int i_momentum = --c->op.n_in; /* the op does not take it */
    sw_free(c->in[i_momentum].view.data);
    c->in[i_momentum].view.data = NULL;
    c->slack = dtype == SW_F64 ? 1 : 400;
    for (int i = 0; i < i_momentum; i++) {
        case_out_in_place(c, i);
    }
    case_in(c, SW_BF16, whole, -1, 1);
    return true;
}

/* Whole tensors: one matrix, several, none. Slices: one that begins and ends inside rows, one of
 * padding only, one of several matrices. Long rows, with sums or directions that were not finite.
 * Long columns, with rows of a lookup beside the dense gradient. One skipped. A slice keeps the
 * second of two parts of the means. */
static const struct sw_shape adafactor_shapes[] = {{2, {61, 37}},  {3, {3, 5, 7}}, {1, {1031}},
                                                   {2, {37, 61}},  {2, {24, 40}},  {3, {5, 6, 32}},
                                                   {2, {5, 2600}}, {2, {4200, 3}}, {2, {5, 7}}};
enum {
    N_ADAFACTOR = SW_LEN(adafactor_shapes),
    ADAFACTOR_SLICE = 3,
    ADAFACTOR_PADDED,
    ADAFACTOR_SLICE_OF_SEVERAL,
    ADAFACTOR_NOT_FINITE,
    ADAFACTOR_LOOKED_UP,
    ADAFACTOR_SKIPPED,
    ADAFACTOR_HERE = 480
};

static bool is_adafactor_slice(int variant)
{
    return variant >= ADAFACTOR_SLICE && variant <= ADAFACTOR_SLICE_OF_SEVERAL;
}

static struct sw_shape lines_of(int64_t n, bool is_slice)
{
    return SW_SHAPE(is_slice ? sw_ceil_div(n, 2 * SW_SQUARES_RUN) * SW_SQUARES_RUN : n);
}

static void adafactor_init(struct op_case *c, enum sw_op_kind kind, enum sw_dtype dtype,
                           int variant)
{
    const struct sw_shape *whole = &adafactor_shapes[variant];
    const bool is_slice = is_adafactor_slice(variant);
    const struct sw_shape shape = is_slice ? SW_SHAPE(ADAFACTOR_HERE) : *whole;
    struct sw_update_op_attrs *of = &c->op.attrs.update;
    case_init(c, kind, "adafactor %d %s", variant, name_of(dtype));
    c->exact = true;
    of->rule = (struct sw_update_attrs){.kind = SW_UPDATE_ADAFACTOR,
                                        .eps = 1e-6,
                                        .least_scale = 1e-3,
                                        .decay_rate = -0.8,
                                        .clip_threshold = variant % 2 ? 0.5 : 100,
                                        .scale_parameter = variant != 1,
                                        .weight_decay = variant % 3 == 0 ? 0.1 : 0,
                                        .has_betas = true,
                                        .beta1 = variant % 2 ? 0.9 : 0};
    c->scalars[SW_SCALAR_SQUARES_KEPT] =
        sw_update_squares_kept(&of->rule, c->scalars[SW_SCALAR_STEP]);
    of->whole = sw_shape_elems(whole);
    of->origin = is_slice ? 960 - 480 * (variant != ADAFACTOR_PADDED) : 0;
    of->n_elems = variant == ADAFACTOR_PADDED ? 0 : sw_shape_elems(&shape);
    of->slice = is_slice;
    if (whole->rank > 1) {
        of->rows = whole->dims[whole->rank - 2];
        of->columns = sw_shape_last(whole);
        of->matrices = of->whole / (of->rows * of->columns);
    }
    c->scalars[SW_SCALAR_SKIP] = variant == ADAFACTOR_SKIPPED;
    param_and_states(c, dtype, shape, shape, variant % 2, false);
    if (whole->rank > 1) {
        case_in(c, stat_of(dtype), lines_of(of->matrices * of->rows, is_slice), 0, 1);
        case_in(c, stat_of(dtype), lines_of(of->matrices * of->columns, is_slice), 0, 1);
    } else {
        case_in(c, stat_of(dtype), shape, 0, 1);
    }
    of->rule.n_states = c->op.n_in - 1;
}

static int64_t adafactor_lines(const struct op_case *c)
{
    const struct sw_update_op_attrs *of = &c->op.attrs.update;
    return of->matrices * (of->rows + of->columns);
}

/* Sums of w^2 and of each line's squares, and the means before. */
static void adafactor_words(struct op_case *c, int variant)
{
    const int64_t n = adafactor_lines(c);
    int64_t *words =
        c->in[case_in_zero(c, SW_I64, SW_SHAPE(SW_STATS_WORDS + n * SW_LINE_WORDS))].view.data;
    sw_exact_add(words, 7);
    words[SW_EXACT_WORDS + 1] = variant == ADAFACTOR_NOT_FINITE;
    for (int64_t i = 0; i < n; i++) {
        int64_t *line = words + SW_STATS_WORDS + i * SW_LINE_WORDS;
        const double mean = 0.25 + (double)(i % 5);
        sw_exact_add(line, 0.5 + (double)(i % 7));
        memcpy(&line[SW_EXACT_WORDS], &mean, sizeof mean);
    }
}

static void adafactor_streams(struct op_case *c, enum sw_dtype dtype, int variant)
{
    for (int i = 0; i < 1 + (variant == 0); i++) {
        case_in(c, variant % 2 ? dtype : stat_of(dtype), c->in[0].view.shape, -1, 1);
    }
    if (variant == ADAFACTOR_LOOKED_UP) {
        static const int32_t rows[] = {0, 7, 130, 255, 4199, -1};
        case_in(c, dtype, SW_SHAPE(SW_LEN(rows), sw_shape_last(&c->in[0].view.shape)), -1, 1);
        case_in_i32(c, SW_LEN(rows), rows);
    }
    if (variant == 3) { /* very different sizes in one column */
        static const double sizes[] = {1e-3, 3e-9, 1e4, 1e-14, 2e-20, 5e-39};
        struct case_tensor *g = &c->in[c->op.n_in - 1];
        for (int i = 0; i < (int)SW_LEN(sizes); i++) {
            sw_store_f64(g->view.dtype, g->view.data, 7 + 61 * i, sizes[i]);
        }
    }
}

static bool adafactor_sums(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= ADAFACTOR_SKIPPED) {
        return false;
    }
    adafactor_init(c, SW_OP_ADAFACTOR_SUMS, dtype, variant);
    adafactor_streams(c, dtype, variant);
    if (variant == 1) {
        make_infinite(c, c->op.n_in - 1, 17, INFINITY);
        make_infinite(c, c->op.n_in - 1, 40, NAN);
    }
    case_out(c, SW_I64, SW_SHAPE(SW_STATS_WORDS + adafactor_lines(c) * SW_LINE_WORDS));
    return true;
}

static bool adafactor_moments(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= ADAFACTOR_SKIPPED) {
        return false;
    }
    adafactor_init(c, SW_OP_ADAFACTOR_MOMENTS, dtype, variant);
    const int64_t n = adafactor_lines(c);
    const int n_states = c->op.attrs.update.rule.n_states;
    adafactor_words(c, variant);
    adafactor_streams(c, dtype, variant);
    for (int i = n_states - (n > 0); i <= n_states; i++) {
        case_out_in_place(c, i);
    }
    case_out(c, SW_I64, SW_SHAPE(SW_STATS_WORDS));
    if (n > 0) {
        case_out(c, stat_of(dtype), SW_SHAPE(n));
    }
    return true;
}

static bool adafactor_apply(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= N_ADAFACTOR) {
        return false;
    }
    adafactor_init(c, SW_OP_ADAFACTOR_APPLY, dtype, variant);
    const int64_t n = adafactor_lines(c);
    const int n_squares = n > 0 ? 2 : 1;
    adafactor_words(c, variant);
    int64_t *norm = c->in[case_in_zero(c, SW_I64, SW_SHAPE(SW_STATS_WORDS))].view.data;
    sw_exact_add(norm, 3);
    norm[SW_EXACT_WORDS] = variant == ADAFACTOR_NOT_FINITE;
    if (n > 0) {
        case_in(c, stat_of(dtype), SW_SHAPE(n), 0.5, 2);
    }
    adafactor_streams(c, dtype, variant);
    for (int i = 0; i <= c->op.attrs.update.rule.n_states - n_squares; i++) {
        case_out_in_place(c, i);
    }
    return true;
}

static bool lamb_add_norms(struct op_case *c, enum sw_dtype dtype, int variant)
{
    (void)dtype;
    case_init(c, SW_OP_LAMB_ADD_NORMS, "lamb_add_norms %d", variant);
    c->exact = true;
    c->scalars[SW_SCALAR_SKIP] = variant == 1;
    for (int i = 0; i < 2; i++) {
        int64_t *norms = c->in[case_in_zero(c, SW_I64, SW_SHAPE(SW_LAMB_WORDS))].view.data;
        sw_exact_add(norms, 7 + 1e-30 * i);
        sw_exact_add(norms + SW_STATS_WORDS, 3e20 * (i + 1));
        norms[SW_EXACT_WORDS] = i;
    }
    case_out_in_place(c, 0);
    return variant < 2;
}

/* ---- a user's op ---- */

static void user_kernel(const struct sw_user_op *op, const struct sw_view *in,
                        const struct sw_view *out)
{
    for (int64_t i = 0; i < sw_shape_elems(&in[0].shape); i++) {
        const double x = sw_load_f64(in[0].dtype, in[0].data, i);
        sw_store_f64(out[0].dtype, out[0].data, i, op->param[0] * x + 1);
    }
}

static bool user(struct op_case *c, enum sw_dtype dtype, int variant)
{
    static const struct sw_user_op op = {
        .name = "line", .n_in = 1, .n_out = 1, .param = {3}, .kernel = user_kernel};
    case_init(c, SW_OP_USER, "user %s", name_of(dtype));
    c->op.user = &op;
    c->exact = true;
    case_in(c, dtype, SW_SHAPE(3, 5), -1, 1);
    case_out(c, dtype, SW_SHAPE(3, 5));
    return variant == 0;
}

const case_build_fn op_cases[SW_N_OP_KINDS] = {
    [SW_OP_CONTIGUOUS] = contiguous,
    [SW_OP_CAST] = cast,
    [SW_OP_EMBEDDING] = embedding,
    [SW_OP_EMBEDDING_GRAD] = embedding_grad,
    [SW_OP_MATMUL] = matmul,
    [SW_OP_SUM_ROWS] = sum_rows,
    [SW_OP_ADD] = add,
    [SW_OP_SCALE] = scale,
    [SW_OP_ACT] = act,
    [SW_OP_ACT_GRAD] = act_grad,
    [SW_OP_LAYER_NORM] = layer_norm,
    [SW_OP_LAYER_NORM_GRAD] = layer_norm_grad,
    [SW_OP_ADD_LAYER_NORM] = add_layer_norm,
    [SW_OP_DROPOUT] = dropout,
    [SW_OP_ATTENTION] = case_attention,
    [SW_OP_ATTENTION_GRAD] = case_attention_grad,
    [SW_OP_LAST_INDEX] = last_index,
    [SW_OP_SELECT_ROWS] = select_rows,
    [SW_OP_SELECT_ROWS_GRAD] = select_rows_grad,
    [SW_OP_SLICE_GRAD] = slice_grad,
    [SW_OP_KV_APPEND] = kv_append,
    [SW_OP_CROSS_ENTROPY] = cross_entropy,
    [SW_OP_CROSS_ENTROPY_GRAD] = cross_entropy_grad,
    [SW_OP_LINEAR_CE] = linear_ce,
    [SW_OP_LINEAR_CE_GRAD] = linear_ce_grad,
    [SW_OP_LINEAR_CE_MERGE] = linear_ce_merge,
    [SW_OP_CROSS_ENTROPY_MERGE] = cross_entropy_merge,
    [SW_OP_LOSS_MEAN] = loss_mean,
    [SW_OP_LOSS_MEAN_GRAD] = loss_mean_grad,
    [SW_OP_SEED] = seed,
    [SW_OP_ACCUMULATE] = accumulate,
    [SW_OP_DENSIFY] = densify,
    [SW_OP_SELECT_INDEX] = select_index,
    [SW_OP_STATS_RESET] = stats_reset,
    [SW_OP_GRAD_STATS] = grad_stats,
    [SW_OP_STATS_FINISH] = stats_finish,
    [SW_OP_UPDATE] = update,
    [SW_OP_LAMB_MOMENTS] = lamb_moments,
    [SW_OP_LAMB_APPLY] = lamb_apply,
    [SW_OP_MUON_MOMENTS] = muon_moments,
    [SW_OP_MUON_APPLY] = muon_apply,
    [SW_OP_ADAFACTOR_SUMS] = adafactor_sums,
    [SW_OP_ADAFACTOR_MOMENTS] = adafactor_moments,
    [SW_OP_ADAFACTOR_APPLY] = adafactor_apply,
    [SW_OP_USER] = user,
    [SW_OP_LAMB_ADD_NORMS] = lamb_add_norms,
    [SW_OP_RMS_NORM] = case_rms_norm,
    [SW_OP_RMS_NORM_GRAD] = case_rms_norm_grad,
    [SW_OP_ADD_RMS_NORM] = case_add_rms_norm,
    [SW_OP_MUL] = case_mul,
    [SW_OP_GATED_ACT] = case_gated_act,
    [SW_OP_GATED_ACT_GRAD] = case_gated_act_grad,
    [SW_OP_ROTARY] = case_rotary,
    [SW_OP_POSITIONS] = case_positions,
    [SW_OP_NOT_EQUAL] = case_not_equal,
    [SW_OP_SHIFT_RIGHT] = case_shift_right,
    [SW_OP_TRIM] = case_trim,
    [SW_OP_MASK_ROWS] = case_mask_rows,
    [SW_OP_CONCAT] = case_concat,
    [SW_OP_MASKED_MEAN] = case_masked_mean,
    [SW_OP_MASKED_MEAN_GRAD] = case_masked_mean_grad,
    [SW_OP_ELEMENT_LOSS] = case_element_loss,
    [SW_OP_DEQUANTIZE] = case_dequantize,
    [SW_OP_QUANTIZED_MATMUL] = case_quantized_matmul,
    [SW_OP_INVERSE_NORMS] = case_inverse_norms,
    [SW_OP_PREFERENCE] = case_preference,
    [SW_OP_PREFERENCE_GRAD] = case_preference_grad,
    [SW_OP_LSTM] = case_lstm,
    [SW_OP_LSTM_GRAD] = case_lstm_grad,
    [SW_OP_IM2COL] = case_im2col,
    [SW_OP_COL2IM] = case_col2im,
    [SW_OP_POOL] = case_pool,
    [SW_OP_POOL_GRAD] = case_pool_grad,
    [SW_OP_RELATIVE_BIAS] = case_relative_bias,
    [SW_OP_RELATIVE_BIAS_GRAD] = case_relative_bias_grad,
    [SW_OP_RELATIVE_SCORES] = case_relative_scores,
    [SW_OP_RELATIVE_SCORES_GRAD] = case_relative_scores_grad,
    [SW_OP_ELEMENT_LOSS_GRAD] = case_element_loss_grad,
    [SW_OP_ROUTER] = case_router,
    [SW_OP_ROUTER_GRAD] = case_router_grad,
    [SW_OP_EXPERT_ROWS] = case_expert_rows,
    [SW_OP_TO_EXPERTS] = case_to_experts,
    [SW_OP_FROM_EXPERTS] = case_from_experts,
    [SW_OP_FROM_EXPERTS_GRAD] = case_from_experts_grad,
    [SW_OP_EXPERT_MATMUL] = case_expert_matmul,
    [SW_OP_EXPERT_MATMUL_GRAD] = case_expert_matmul_grad,
    [SW_OP_ROUTER_STATS] = case_router_stats,
    [SW_OP_ROUTER_STATS_GRAD] = case_router_stats_grad,
    [SW_OP_ROUTER_LOSS] = case_router_loss,
    [SW_OP_ROUTER_LOSS_GRAD] = case_router_loss_grad,
    [SW_OP_CLAMPED_GATE] = case_clamped_gate,
    [SW_OP_CLAMPED_GATE_GRAD] = case_clamped_gate_grad,
    [SW_OP_ATTENTION_SINK] = case_attention_sink,
    [SW_OP_ATTENTION_SINK_GRAD] = case_attention_sink_grad,
    [SW_OP_EXPERT_LOADS] = case_expert_loads,
};
