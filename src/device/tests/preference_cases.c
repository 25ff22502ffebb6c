// SPDX-License-Identifier: Apache-2.0
// Cases of losses row by row, and of losses between rows.
#include "device/tests/op_cases.h"

static enum sw_dtype stat_of(enum sw_dtype dtype)
{
    return dtype == SW_F64 ? SW_F64 : SW_F32;
}

/* ---- LINEAR_CE by row ---- */

static const struct by_row {
    int64_t rows, vocab, width, chunk;
    bool bias;
} by_row[] = {{1, 5, 3, 5, false}, {37, 301, 39, 100, true}, {130, 64, 40, 64, false}};

static void tokens_in(struct op_case *c, enum sw_dtype dtype, const struct by_row *row)
{
    c->op.attrs.linear_ce =
        (struct sw_linear_ce_attrs){.chunk = row->chunk, .has_bias = row->bias, .by_row = true};
    case_in(c, dtype, SW_SHAPE(1, row->rows, row->width), -1, 1);
    case_in(c, dtype, SW_SHAPE(row->vocab, row->width), -0.5, 0.5);
    const int labels = case_in_ints(c, SW_SHAPE(1, row->rows), 0, row->vocab);
    for (int64_t r = 2; r < row->rows; r += 3) {
        ((int32_t *)c->in[labels].view.data)[r] = -100;
    }
    c->labels = c->in[labels].view.data;
}

bool case_linear_ce_by_row(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(by_row)) {
        return false;
    }
    const struct by_row *row = &by_row[variant];
    case_init(c, SW_OP_LINEAR_CE, "linear_ce by row %d %s", variant, sw_dtype_name(dtype));
    c->slack = 2;
    tokens_in(c, dtype, row);
    if (row->bias) {
        case_in(c, dtype, SW_SHAPE(row->vocab), -1, 1);
    }
    case_out(c, stat_of(dtype), SW_SHAPE(1, row->rows));
    case_out(c, stat_of(dtype), SW_SHAPE(1, row->rows));
    case_out(c, stat_of(dtype), SW_SHAPE(row->rows));
    return true;
}

bool case_linear_ce_grad_by_row(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(by_row)) {
        return false;
    }
    const struct by_row *row = &by_row[variant];
    case_init(c, SW_OP_LINEAR_CE_GRAD, "linear_ce_grad by row %d %s", variant,
              sw_dtype_name(dtype));
    c->slack = 4;
    case_in(c, stat_of(dtype), SW_SHAPE(1, row->rows), -2, 2);
    tokens_in(c, dtype, row);
    case_in(c, stat_of(dtype), SW_SHAPE(row->rows), 4.5, 6);
    if (row->bias) {
        case_in(c, dtype, SW_SHAPE(row->vocab), -1, 1);
    }
    case_out(c, dtype, SW_SHAPE(1, row->rows, row->width));
    case_out(c, dtype, SW_SHAPE(row->vocab, row->width));
    if (row->bias) {
        case_out(c, dtype, SW_SHAPE(row->vocab));
    }
    return true;
}

/* ---- PREFERENCE ---- */

static const struct sw_preference_attrs losses[] = {
    {.kind = SW_PREFERENCE_LINEAR, .beta = 20, .has_reference = true},
    {.kind = SW_PREFERENCE_SIGMOID, .beta = 0.1, .has_reference = true},
    {.kind = SW_PREFERENCE_SIGMOID, .beta = 0.5, .smoothing = 0.2, .has_reference = true},
    {.kind = SW_PREFERENCE_IPO, .beta = 0.3, .mean = true, .has_reference = true},
    {.kind = SW_PREFERENCE_ORPO, .beta = 0.2, .mean = true},
    {.kind = SW_PREFERENCE_KTO,
     .beta = 0.1,
     .desirable = 1,
     .undesirable = 1.5,
     .has_reference = true,
     .has_kinds = true},
    {.kind = SW_PREFERENCE_REWARD, .beta = 1}};

enum { ROWS = 12, WIDTH = 9, BLANK = 4 };

/* Row BLANK counts nowhere; other rows have up to WIDTH tokens. */
static void rows_in(struct op_case *c, enum sw_dtype dtype, int variant)
{
    const struct sw_preference_attrs *attrs = &losses[variant];
    const int64_t width = attrs->kind == SW_PREFERENCE_REWARD ? 1 : WIDTH;
    c->op.attrs.preference = *attrs;
    case_in(c, stat_of(dtype), SW_SHAPE(ROWS, width), 0.2, 3);
    const int counts = case_in_zero(c, SW_F32, SW_SHAPE(ROWS, width));
    for (int64_t i = 0; i < ROWS * width; i++) {
        const int64_t row = i / width, first = row % 3;
        ((float *)c->in[counts].view.data)[i] = row != BLANK && (width == 1 || i % width >= first);
    }
    if (attrs->has_reference) {
        case_in(c, SW_F32, SW_SHAPE(ROWS), -20, -2);
    }
    if (attrs->has_kinds) {
        const int kinds = case_in_ints(c, SW_SHAPE(ROWS), 0, 2);
        for (int64_t i = 1; i < ROWS; i += 2) {
            ((int32_t *)c->in[kinds].view.data)[i] = 2;
        }
    }
}

bool case_preference(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(losses)) {
        return false;
    }
    case_init(c, SW_OP_PREFERENCE, "preference %d %s", variant, sw_dtype_name(dtype));
    c->slack = 2;
    rows_in(c, dtype, variant);
    case_out(c, stat_of(dtype), SW_SHAPE(1));
    case_out(c, stat_of(dtype), SW_SHAPE(1));
    case_out(c, stat_of(dtype), SW_SHAPE(ROWS));
    case_out(c, stat_of(dtype), SW_SHAPE(SW_PREFERENCE_TOTALS));
    return true;
}

bool case_preference_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(losses)) {
        return false;
    }
    case_init(c, SW_OP_PREFERENCE_GRAD, "preference_grad %d %s", variant, sw_dtype_name(dtype));
    c->slack = 2;
    case_in(c, stat_of(dtype), SW_SHAPE(1), 0.1, 2);
    rows_in(c, dtype, variant);
    case_out(c, stat_of(dtype), c->in[1].view.shape);
    return true;
}
