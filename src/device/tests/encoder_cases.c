// SPDX-License-Identifier: Apache-2.0
// Cases of what encoders, pairs of sequences, images and recurrences have.
#include <math.h>
#include <string.h>

#include "device/tests/op_cases.h"

static enum sw_dtype stat_of(enum sw_dtype dtype)
{
    return dtype == SW_F64 ? SW_F64 : SW_F32;
}

static void start(struct op_case *c, enum sw_op_kind kind, enum sw_dtype dtype, int variant)
{
    const struct sw_op op = {.kind = kind};
    case_init(c, kind, "%s %d %s", sw_op_name(&op), variant, sw_dtype_name(dtype));
}

/* ---- integers ---- */

bool case_not_equal(struct op_case *c, enum sw_dtype dtype, int variant)
{
    start(c, SW_OP_NOT_EQUAL, dtype, variant);
    c->exact = true;
    c->op.attrs.integers.value = variant;
    case_in_ints(c, SW_SHAPE(3, 271), 0, 3);
    case_out(c, SW_I32, SW_SHAPE(3, 271));
    return variant < 2;
}

bool case_shift_right(struct op_case *c, enum sw_dtype dtype, int variant)
{
    static const int64_t tokens[] = {1, 2, 133};
    if (variant >= (int)SW_LEN(tokens)) {
        return false;
    }
    const struct sw_shape shape = SW_SHAPE(5, tokens[variant]);
    start(c, SW_OP_SHIFT_RIGHT, dtype, variant);
    c->exact = true;
    c->op.attrs.integers.value = 2;
    c->op.attrs.integers.pad = 1;
    const int i = case_in_ints(c, shape, 0, 9);
    for (int64_t e = 0; e < sw_shape_elems(&shape); e += 3) {
        ((int32_t *)c->in[i].view.data)[e] = -100;
    }
    case_out(c, SW_I32, shape);
    return true;
}

/* ---- rows ---- */

static const int64_t row_shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {2, 37, 72}, {4, 130, 33}};

/* Of the last sample nothing is there. */
static void mask_in(struct op_case *c, int64_t batch, int64_t tokens)
{
    const int i = case_in_ints(c, SW_SHAPE(batch, tokens), 0, 2);
    if (batch > 1) {
        memset((int32_t *)c->in[i].view.data + (batch - 1) * tokens, 0,
               (size_t)tokens * sizeof(int32_t));
    }
}

bool case_mask_rows(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(row_shapes)) {
        return false;
    }
    const int64_t *s = row_shapes[variant];
    start(c, SW_OP_MASK_ROWS, dtype, variant);
    c->exact = true;
    case_in(c, dtype, SW_SHAPE(s[0], s[1], s[2]), -1, 1);
    mask_in(c, s[0], s[1]);
    case_out(c, variant == 1 ? stat_of(dtype) : dtype, SW_SHAPE(s[0], s[1], s[2]));
    return true;
}

bool case_concat(struct op_case *c, enum sw_dtype dtype, int variant)
{
    static const int64_t lengths[][3] = {{1, 2, 3}, {4, 1, 8}, {16, 32, 8}};
    if (variant >= 3 * (int)SW_LEN(lengths)) {
        return false;
    }
    struct sw_shape shape = SW_SHAPE(3, 5, 8);
    const int dim = variant % 3;
    int64_t sum = 0;
    start(c, SW_OP_CONCAT, dtype, variant);
    c->exact = true;
    c->op.attrs.slice.dim = dim;
    for (int k = 0; k < 3; k++) {
        shape.dims[dim] = lengths[variant / 3][k];
        sum += shape.dims[dim];
        case_in(c, dtype, shape, -1, 1);
    }
    shape.dims[dim] = sum;
    case_out(c, dtype, shape);
    return true;
}

bool case_masked_mean(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(row_shapes)) {
        return false;
    }
    const int64_t *s = row_shapes[variant];
    start(c, SW_OP_MASKED_MEAN, dtype, variant);
    c->exact = true;
    case_in(c, dtype, SW_SHAPE(s[0], s[1], s[2]), -1, 1);
    mask_in(c, s[0], s[1]);
    case_out(c, dtype, SW_SHAPE(s[0], s[2]));
    return true;
}

bool case_masked_mean_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(row_shapes)) {
        return false;
    }
    const int64_t *s = row_shapes[variant];
    start(c, SW_OP_MASKED_MEAN_GRAD, dtype, variant);
    c->exact = true;
    case_in(c, dtype, SW_SHAPE(s[0], s[2]), -1, 1);
    mask_in(c, s[0], s[1]);
    case_out(c, variant == 1 ? stat_of(dtype) : dtype, SW_SHAPE(s[0], s[1], s[2]));
    return true;
}

/* ---- losses of elements ---- */

static const int64_t loss_sizes[] = {1, 37, 5003};

/* Of large numbers, too; every seventh target is none, or all. */
static void targets_in(struct op_case *c, enum sw_dtype dtype, int64_t n, bool none)
{
    case_in(c, dtype, SW_SHAPE(n), -30, 30);
    const int i = case_in(c, SW_F32, SW_SHAPE(n), 0, 1);
    for (int64_t e = 0; e < n; e++) {
        if (none || e % 7 == 3) {
            sw_store_f64(SW_F32, c->in[i].view.data, e, NAN);
        }
    }
}

bool case_element_loss(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant > 2 * (int)SW_LEN(loss_sizes)) {
        return false;
    }
    const int64_t n = loss_sizes[variant / 2 % (int)SW_LEN(loss_sizes)];
    start(c, SW_OP_ELEMENT_LOSS, dtype, variant);
    c->op.attrs.element_loss.binary = variant % 2;
    targets_in(c, dtype, n, variant == 2 * (int)SW_LEN(loss_sizes));
    case_out(c, stat_of(dtype), SW_SHAPE(1));
    case_out(c, stat_of(dtype), SW_SHAPE(1));
    return true;
}

bool case_element_loss_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 2 * (int)SW_LEN(loss_sizes)) {
        return false;
    }
    const int64_t n = loss_sizes[variant / 2];
    start(c, SW_OP_ELEMENT_LOSS_GRAD, dtype, variant);
    c->op.attrs.element_loss.binary = variant % 2;
    case_in(c, stat_of(dtype), SW_SHAPE(1), 0.1, 2);
    targets_in(c, dtype, n, false);
    case_out(c, variant < 2 ? stat_of(dtype) : dtype, SW_SHAPE(n));
    return true;
}
