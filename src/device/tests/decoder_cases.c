// SPDX-License-Identifier: Apache-2.0
// Cases of decoder ops beyond GPT-2's: RMS norm, products, gates, positions, the cap and the bias
// of the loss.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device/tests/op_cases.h"

static enum sw_dtype stat_of(enum sw_dtype dtype)
{
    return dtype == SW_F64 ? SW_F64 : SW_F32;
}

/* ---- norms ---- */

static const int64_t norm_shapes[][2] = {{1, 1},    {3, 7},    {70, 33}, {131, 90},
                                         {2, 1024}, {3, 1001}, {2, 8200}};

/* The variants of a shape alternate between the two factors. */
static void norm_init(struct op_case *c, enum sw_op_kind kind, enum sw_dtype dtype, int variant)
{
    const struct sw_op op = {.kind = kind};
    case_init(c, kind, "%s %d %s", sw_op_name(&op), variant, sw_dtype_name(dtype));
    c->op.attrs.norm.eps = 1e-6;
    c->op.attrs.norm.one_plus = variant % 2;
}

/* Every other shape does not want the statistics. */
bool case_rms_norm(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 2 * (int)SW_LEN(norm_shapes)) {
        return false;
    }
    const int64_t *s = norm_shapes[variant / 2];
    norm_init(c, SW_OP_RMS_NORM, dtype, variant);
    c->slack = 1 + (double)s[1] / 1000;
    case_in(c, dtype, SW_SHAPE(1, s[0], s[1]), -1, 3);
    case_in(c, dtype, SW_SHAPE(s[1]), 0.5, 1.5);
    case_out(c, dtype, SW_SHAPE(1, s[0], s[1]));
    if (variant / 2 % 2) {
        case_out_absent(c);
    } else {
        case_out(c, stat_of(dtype), SW_SHAPE(1, s[0]));
    }
    return true;
}

bool case_add_rms_norm(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 2 * (int)SW_LEN(norm_shapes)) {
        return false;
    }
    const int64_t *s = norm_shapes[variant / 2];
    norm_init(c, SW_OP_ADD_RMS_NORM, dtype, variant);
    c->slack = 1 + (double)s[1] / 1000;
    case_in(c, dtype, SW_SHAPE(s[0], s[1]), -1, 3);
    case_in(c, dtype, SW_SHAPE(s[0], s[1]), -1, 1);
    case_in(c, dtype, SW_SHAPE(s[1]), 0.5, 1.5);
    case_out(c, dtype, SW_SHAPE(s[0], s[1]));
    case_out(c, dtype, SW_SHAPE(s[0], s[1]));
    case_out(c, stat_of(dtype), SW_SHAPE(s[0]));
    return true;
}

/* All gradients; only the weight's, in the dtype of the statistics; only x's. */
bool case_rms_norm_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 3 * (int)SW_LEN(norm_shapes)) {
        return false;
    }
    const int64_t *s = norm_shapes[variant / 3];
    const int wanted = variant % 3;
    norm_init(c, SW_OP_RMS_NORM_GRAD, dtype, variant);
    c->slack = 2 + (double)s[1] / 1000;
    case_in(c, dtype, SW_SHAPE(s[0], s[1]), -1, 1);
    case_in(c, dtype, SW_SHAPE(s[0], s[1]), -1, 3);
    case_in(c, dtype, SW_SHAPE(s[1]), 0.5, 1.5);
    case_in(c, stat_of(dtype), SW_SHAPE(s[0]), 0.5, 1.5);
    if (wanted == 1) {
        case_out_absent(c);
    } else {
        case_out(c, dtype, SW_SHAPE(s[0], s[1]));
    }
    if (wanted == 2) {
        case_out_absent(c);
    } else {
        case_out(c, wanted ? stat_of(dtype) : dtype, SW_SHAPE(s[1]));
    }
    return true;
}

/* ---- elementwise ---- */

/* Equal shapes; then a second operand that is repeated. */
bool case_mul(struct op_case *c, enum sw_dtype dtype, int variant)
{
    static const int64_t widths[] = {1, 331, 331, 331, 64};
    if (variant >= (int)SW_LEN(widths)) {
        return false;
    }
    const int64_t n = widths[variant];
    const struct sw_shape shape = variant ? SW_SHAPE(3, 5, n) : SW_SHAPE(1);
    case_init(c, SW_OP_MUL, "mul %d %s", variant, sw_dtype_name(dtype));
    c->exact = true;
    case_in(c, dtype, shape, -2, 2);
    case_in(c, dtype, variant < 2 ? shape : variant == 2 ? SW_SHAPE(5, n) : SW_SHAPE(n), -2, 2);
    case_out(c, variant == 0 ? stat_of(dtype) : dtype, shape);
    return true;
}

/* Every activation; SW_ACT_NONE is the plain product. */
bool case_gated_act(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= SW_ACT_COUNT) {
        return false;
    }
    case_init(c, SW_OP_GATED_ACT, "gated_act %d %s", variant, sw_dtype_name(dtype));
    c->op.attrs.act.act = (enum sw_act)variant;
    case_in(c, dtype, SW_SHAPE(3, 467), -12, 12);
    case_in(c, dtype, SW_SHAPE(3, 467), -2, 2);
    case_out(c, dtype, SW_SHAPE(3, 467));
    return true;
}

/* Every activation; then silu with one gradient absent. */
bool case_gated_act_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    const int n = SW_ACT_COUNT;
    if (variant >= n + 2) {
        return false;
    }
    case_init(c, SW_OP_GATED_ACT_GRAD, "gated_act_grad %d %s", variant, sw_dtype_name(dtype));
    c->op.attrs.act.act = variant < n ? (enum sw_act)variant : SW_ACT_SILU;
    case_in(c, dtype, SW_SHAPE(3, 467), -1, 1);
    case_in(c, dtype, SW_SHAPE(3, 467), -12, 12);
    case_in(c, dtype, SW_SHAPE(3, 467), -2, 2);
    for (int k = 0; k < 2; k++) {
        if (variant == n + k) {
            case_out_absent(c);
        } else {
            case_out(c, dtype, SW_SHAPE(3, 467));
        }
    }
    return true;
}

/* ---- positions ---- */

struct rotary_row {
    int64_t b, t, h, d, r;
    /* gap between heads beyond d, in elements, as when q, k and v are side by side */
    int64_t apart;
    bool by_sample, interleaved, inverse;
};

static const struct rotary_row rotary_rows[] = {
    {1, 1, 1, 2, 2, 0, false, false, false},    {2, 5, 3, 8, 8, 0, false, false, false},
    {2, 5, 3, 8, 8, 0, true, true, true},       {3, 17, 2, 80, 32, 5, true, false, true},
    {3, 17, 2, 80, 32, 5, false, true, false},  {2, 33, 5, 64, 64, 128, true, false, false},
    {1, 9, 4, 46, 46, 0, false, false, true},   {1, 9, 4, 7, 6, 0, false, true, false},
    {2, 64, 4, 128, 128, 0, true, true, false}, {2, 5, 2, 80, 32, 16, false, false, true},
    {2, 5, 2, 80, 32, 16, false, true, false},
};

bool case_rotary(struct op_case *c, enum sw_dtype dtype, int variant)
{
    enum { ROWS = 70 };
    if (variant >= (int)SW_LEN(rotary_rows)) {
        return false;
    }
    const struct rotary_row *row = &rotary_rows[variant];
    const struct sw_shape shape = SW_SHAPE(row->b, row->t, row->h, row->d);
    const int64_t head = row->d + row->apart;
    const int64_t token = row->h * head + (row->d % 16 == 0 ? 16 : 3); /* aligned, or not */
    case_init(c, SW_OP_ROTARY, "rotary %d %s", variant, sw_dtype_name(dtype));
    c->op.attrs.rotary.interleaved = row->interleaved;
    c->op.attrs.rotary.inverse = row->inverse;
    case_in_strided(c, dtype, shape, (int64_t[]){row->t * token, token, head, 1});
    const int table = case_in(c, SW_F32, SW_SHAPE(ROWS, row->r), -1, 1);
    for (int64_t i = 0; i < ROWS * row->r; i++) {
        const int64_t half = row->r / 2, column = i % row->r;
        const double angle = (double)(i / row->r) * pow(100, -(double)(column % half) / 10);
        ((float *)c->in[table].view.data)[i] = (float)(column < half ? cos(angle) : sin(angle));
    }
    case_in_ints(c, row->by_sample ? SW_SHAPE(row->b, row->t) : SW_SHAPE(row->t), 0, ROWS);
    case_out(c, dtype, shape);
    return true;
}

bool case_positions(struct op_case *c, enum sw_dtype dtype, int variant)
{
    (void)dtype;
    case_init(c, SW_OP_POSITIONS, "positions %d", variant);
    c->exact = true;
    c->op.attrs.positions.offset = variant < 2 ? 2 : -7;
    c->op.attrs.positions.counted = variant != 1;
    case_in_ints(c, SW_SHAPE(3, 29), 0, variant == 1 ? 100 : 2);
    case_out(c, SW_I32, SW_SHAPE(3, 29));
    return variant < 3;
}

/* ---- the loss of logits with a cap, a bias, and both ---- */

static const struct loss_row {
    int64_t rows, vocab, width, chunk;
    double cap;
    bool bias;
    int64_t every;  /* one row in so many has a label; 0: four of five have */
    int64_t masked; /* last words, whose bias is -inf */
} loss_rows[] = {
    {5, 67, 9, 67, 3, false, 0, 0},
    {37, 130, 39, 50, 0, true, 0, 0},
    {66, 521, 35, 200, 5, true, 0, 0},
    {3, 5, 1, 2, 0.5, true, 0, 0},
    {4099, 3, 1, 2, 0, false, 0, 0}, /* more rows than are processed at a time */
    {300, 131, 24, 60, 0, true, 7, 0},
    {6, 11, 5, 4, 0, true, 100, 0},
    {37, 130, 39, 50, 0, true, 0, 31}, /* among the masked words is a whole chunk */
    /* a sum over all rows would be computed in chunks; one over those with a label is not */
    {1000, 131, 24, 60, 0, true, 7, 0},
};

/* The row of the table above that is also cut into tiles, and into parts of 3 ranks: the first
 * part, and the last one, which has a row of padding. */
enum { N_TILES = 3, N_PARTS = 2, TILE_OF = 2, PART = 174, PART_CHUNK = 80 };

enum { N_LOSSES = (int)SW_LEN(loss_rows) + N_TILES + N_PARTS };

/* Tiles of a table: one chunk, another chunk, the rest. The first starts the sum, the last finishes
 * it. */
static const struct loss_row *loss_init(struct op_case *c, enum sw_op_kind kind,
                                        enum sw_dtype dtype, int variant, int64_t *n)
{
    const int i_tile = variant - (int)SW_LEN(loss_rows);
    const struct sw_op op = {.kind = kind};
    if (i_tile >= N_TILES + N_PARTS) {
        return NULL;
    }
    const struct loss_row *row = &loss_rows[i_tile < 0 ? variant : TILE_OF];
    case_init(c, kind, "%s with cap or bias %d %s", sw_op_name(&op), variant, sw_dtype_name(dtype));
    c->op.attrs.linear_ce =
        (struct sw_linear_ce_attrs){.chunk = row->chunk, .cap = row->cap, .has_bias = row->bias};
    *n = row->vocab;
    if (i_tile >= N_TILES) {
        c->op.attrs.linear_ce.chunk = PART_CHUNK;
        c->op.attrs.linear_ce.whole = row->vocab;
        c->op.attrs.linear_ce.tile.first = i_tile == N_TILES ? 0 : 2 * PART;
        c->op.attrs.linear_ce.tile.partial = kind == SW_OP_LINEAR_CE;
        *n = PART;
    } else if (i_tile >= 0) {
        c->op.attrs.linear_ce.tile =
            (struct sw_tile_attrs){row->chunk * i_tile, i_tile > 0, i_tile < N_TILES - 1};
        *n = i_tile < N_TILES - 1 ? row->chunk : row->vocab - row->chunk * i_tile;
    }
    return row;
}

static void loss_inputs(struct op_case *c, enum sw_dtype dtype, const struct loss_row *row,
                        int64_t n)
{
    case_in(c, dtype, SW_SHAPE(1, row->rows, row->width), -1, 1);
    case_in(c, dtype, SW_SHAPE(n, row->width), -0.5, 0.5);
    const int labels = case_in_ints(c, SW_SHAPE(row->rows), 0, row->vocab - row->masked);
    for (int64_t r = 0; r < row->rows; r++) {
        if (row->every > 0 ? (r + 1) % row->every != 0 : r % 5 == 3) {
            ((int32_t *)c->in[labels].view.data)[r] = -100;
        }
    }
    c->labels = c->in[labels].view.data;
}

/* A part of a vocabulary has its own part of the bias, a tile has all of it. */
static int64_t bias_rows(const struct op_case *c, const struct loss_row *row, int64_t n)
{
    return c->op.attrs.linear_ce.whole > 0 ? n : row->vocab;
}

static void loss_bias(struct op_case *c, enum sw_dtype dtype, const struct loss_row *row, int64_t n)
{
    const int64_t rows = bias_rows(c, row, n);
    void *bias = c->in[case_in(c, dtype, SW_SHAPE(rows), -1, 1)].view.data;
    for (int64_t i = rows - row->masked; i < rows; i++) {
        sw_store_f64(dtype, bias, i, -INFINITY);
    }
}

bool case_linear_ce_more(struct op_case *c, enum sw_dtype dtype, int variant)
{
    int64_t n;
    const struct loss_row *row = loss_init(c, SW_OP_LINEAR_CE, dtype, variant, &n);
    if (!row) {
        return case_linear_ce_by_row(c, dtype, variant - N_LOSSES);
    }
    const struct sw_tile_attrs *tile = &c->op.attrs.linear_ce.tile;
    c->slack = 2;
    loss_inputs(c, dtype, row, n);
    if (row->bias) {
        loss_bias(c, dtype, row, n);
    }
    if (tile->continues) {
        case_in(c, stat_of(dtype), SW_SHAPE(3, row->rows), 1, 2);
    }
    if (tile->partial && tile->continues) {
        case_out_in_place(c, c->op.n_in - 1);
    } else if (tile->partial) {
        case_out(c, stat_of(dtype), SW_SHAPE(3, row->rows));
    } else {
        case_out(c, stat_of(dtype), SW_SHAPE(1));
        case_out(c, stat_of(dtype), SW_SHAPE(1));
        case_out(c, stat_of(dtype), SW_SHAPE(row->rows));
    }
    return true;
}

bool case_linear_ce_grad_more(struct op_case *c, enum sw_dtype dtype, int variant)
{
    int64_t n;
    const struct loss_row *row = loss_init(c, SW_OP_LINEAR_CE_GRAD, dtype, variant, &n);
    if (!row) {
        return case_linear_ce_grad_by_row(c, dtype, variant - N_LOSSES);
    }
    const struct sw_tile_attrs *tile = &c->op.attrs.linear_ce.tile;
    c->slack = 4;
    case_in(c, stat_of(dtype), SW_SHAPE(1), 0.1, 2);
    loss_inputs(c, dtype, row, n);
    case_in(c, stat_of(dtype), SW_SHAPE(row->rows), 4.5, 6);
    if (row->bias) {
        loss_bias(c, dtype, row, n);
    }
    int sum = -1;
    if (tile->continues) {
        sum = case_in(c, stat_of(dtype), SW_SHAPE(row->rows, row->width), -1, 1);
    }
    if (tile->partial && tile->continues) {
        case_out_in_place(c, sum);
    } else {
        case_out(c, tile->partial ? stat_of(dtype) : dtype, SW_SHAPE(row->rows, row->width));
    }
    case_out(c, dtype, SW_SHAPE(n, row->width));
    if (row->bias && tile->continues) { /* a tile writes its rows of the whole */
        case_out_in_place(c, case_in(c, dtype, SW_SHAPE(bias_rows(c, row, n)), -1, 1));
    } else if (row->bias) {
        case_out(c, variant % 2 ? stat_of(dtype) : dtype, SW_SHAPE(bias_rows(c, row, n)));
    }
    return true;
}
