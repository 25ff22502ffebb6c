// SPDX-License-Identifier: Apache-2.0
// Cases of ops of encoders, sequence pairs, images and LSTMs.
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
    static const int64_t tokens[] = {1, 2, 133, 1, 45};
    if (variant >= (int)SW_LEN(tokens)) {
        return false;
    }
    const struct sw_shape shape = SW_SHAPE(5, tokens[variant]);
    start(c, SW_OP_SHIFT_RIGHT, dtype, variant);
    c->exact = true;
    c->op.attrs.integers.value = variant < 3 ? 2 : -1;
    c->op.attrs.integers.pad = 1;
    const int i = case_in_ints(c, shape, 0, 9);
    for (int64_t e = 0; e < sw_shape_elems(&shape); e += 3) {
        ((int32_t *)c->in[i].view.data)[e] = -100;
    }
    case_out(c, SW_I32, shape);
    return true;
}

bool case_trim(struct op_case *c, enum sw_dtype dtype, int variant)
{
    start(c, SW_OP_TRIM, dtype, variant);
    c->exact = true;
    case_in_ints(c, SW_SHAPE(7, 33), 0, 9);
    case_in_ints(c, SW_SHAPE(7), 0, 34);
    case_out(c, SW_I32, SW_SHAPE(7, 33));
    return variant == 0;
}

/* ---- rows ---- */

static const int64_t row_shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {2, 37, 72}, {4, 130, 33}};

/* The last sample has no tokens. */
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

/* ---- elementwise losses ---- */

static const int64_t loss_sizes[] = {1, 37, 5003};

/* Includes large numbers. Every seventh target is NaN (no target), or all are. */
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

/* ---- relative positions ---- */

/* One row per difference; fewer rows; a query in the middle of a cache. */
static const struct {
    int64_t heads, queries, keys, rows, origin;
    int position; /* -1: not given */
} relative_rows[] = {
    {1, 1, 1, 1, 0, -1},   {3, 5, 5, 9, 4, -1},    {4, 37, 70, 106, 36, -1},
    {2, 20, 33, 7, 2, -1}, {5, 1, 40, 40, 39, 17}, {2, 3, 9, 4, 3, 90},
};

static void relative_init(struct op_case *c, enum sw_op_kind kind, enum sw_dtype dtype, int variant)
{
    start(c, kind, dtype, variant);
    c->exact = true;
    c->op.attrs.relative = (struct sw_relative_attrs){.queries = relative_rows[variant].queries,
                                                      .keys = relative_rows[variant].keys,
                                                      .origin = relative_rows[variant].origin};
}

static void position_in(struct op_case *c, int variant)
{
    if (relative_rows[variant].position >= 0) {
        case_in_i32(c, 1, (int32_t[]){relative_rows[variant].position});
    }
}

bool case_relative_bias(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(relative_rows)) {
        return false;
    }
    const int64_t heads = relative_rows[variant].heads;
    relative_init(c, SW_OP_RELATIVE_BIAS, dtype, variant);
    case_in(c, dtype, SW_SHAPE(relative_rows[variant].rows, heads), -1, 1);
    position_in(c, variant);
    case_out(c, stat_of(dtype),
             SW_SHAPE(heads, relative_rows[variant].queries, relative_rows[variant].keys));
    return true;
}

bool case_relative_bias_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(relative_rows)) {
        return false;
    }
    const int64_t heads = relative_rows[variant].heads;
    relative_init(c, SW_OP_RELATIVE_BIAS_GRAD, dtype, variant);
    case_in(c, stat_of(dtype),
            SW_SHAPE(heads, relative_rows[variant].queries, relative_rows[variant].keys), -1, 1);
    position_in(c, variant);
    case_out(c, dtype, SW_SHAPE(relative_rows[variant].rows, heads));
    return true;
}

static const int64_t score_shapes[][5] = {/* B, T, H, D, P */
                                          {1, 1, 1, 1, 1},
                                          {2, 7, 3, 5, 4},
                                          {1, 33, 2, 24, 17},
                                          {2, 130, 1, 64, 48}};

/* Table rows by difference, in order and clamped, as buckets are. */
static void relative_inputs(struct op_case *c, enum sw_dtype dtype, int variant)
{
    const int64_t *s = score_shapes[variant / 2];
    c->slack = 4;
    c->op.attrs.relative.by_key = variant % 2;
    c->op.attrs.relative.scale = 0.3;
    case_in(c, dtype, SW_SHAPE(s[0], s[1], s[2], s[3]), -1, 1);
    case_in(c, dtype, SW_SHAPE(s[4], s[2], s[3]), -1, 1);
    const int i = case_in_ints(c, SW_SHAPE(2 * s[1] - 1), 0, 1);
    for (int64_t e = 0; e < 2 * s[1] - 1; e++) {
        const int64_t row = (s[1] - 1 - e) / 2 + s[4] / 2;
        ((int32_t *)c->in[i].view.data)[e] = (int32_t)sw_max_i64(0, sw_min_i64(s[4] - 1, row));
    }
}

bool case_relative_scores(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 2 * (int)SW_LEN(score_shapes)) {
        return false;
    }
    const int64_t *s = score_shapes[variant / 2];
    start(c, SW_OP_RELATIVE_SCORES, dtype, variant);
    relative_inputs(c, dtype, variant);
    case_out(c, stat_of(dtype), SW_SHAPE(s[0], s[2], s[1], s[1]));
    return true;
}

/* The first variant wants only the table's gradient, the second only x's. */
bool case_relative_scores_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 2 * (int)SW_LEN(score_shapes)) {
        return false;
    }
    const int64_t *s = score_shapes[variant / 2];
    start(c, SW_OP_RELATIVE_SCORES_GRAD, dtype, variant);
    case_in(c, stat_of(dtype), SW_SHAPE(s[0], s[2], s[1], s[1]), -1, 1);
    relative_inputs(c, dtype, variant);
    if (variant == 0) {
        case_out_absent(c);
    } else {
        case_out(c, dtype, c->in[1].view.shape);
    }
    if (variant == 1) {
        case_out_absent(c);
    } else {
        case_out(c, dtype, c->in[2].view.shape);
    }
    return true;
}

/* ---- images ---- */

/* Windows that overlap, that leave gaps, that reach outside; the last are sequences. */
static const struct {
    int64_t batch, channels, size[2];
    struct sw_window_attrs window;
} images[] = {
    {1, 1, {1, 1}, {{1, 1}, {1, 1}, {0, 0}, false}},
    {2, 3, {8, 8}, {{2, 2}, {2, 2}, {0, 0}, false}},
    {2, 3, {9, 7}, {{3, 2}, {2, 1}, {0, 0}, false}},
    {1, 2, {9, 11}, {{2, 3}, {3, 4}, {0, 0}, false}},
    {2, 3, {6, 5}, {{3, 5}, {1, 2}, {1, 2}, false}},
    {3, 7, {1, 13}, {{1, 3}, {1, 1}, {0, 1}, false}},
};
enum { N_IMAGES = SW_LEN(images), N_POOLS = 4, ROW_IMAGE = 5 };

static void image_in(struct op_case *c, enum sw_dtype dtype, int variant)
{
    const int64_t b = images[variant].batch, n = images[variant].channels;
    const int64_t h = images[variant].size[0], w = images[variant].size[1];
    if (variant == ROW_IMAGE) {
        case_in_strided(c, dtype, SW_SHAPE(b, n, w), (int64_t[]){n * w, 1, n});
    } else {
        case_in_strided(c, dtype, SW_SHAPE(b, n, h, w), (int64_t[]){n * h * w, 1, n * w, n});
    }
}

static struct sw_shape windows_of(int variant, bool columns)
{
    const struct sw_window_attrs *w = &images[variant].window;
    const int64_t b = images[variant].batch, n = images[variant].channels;
    const int64_t rows = sw_window_places(w, 0, images[variant].size[0]);
    const int64_t across = sw_window_places(w, 1, images[variant].size[1]);
    return columns ? SW_SHAPE(b, rows * across, n * w->kernel[0] * w->kernel[1])
                   : SW_SHAPE(b, n, rows, across);
}

static void image_init(struct op_case *c, enum sw_op_kind kind, enum sw_dtype dtype, int variant)
{
    start(c, kind, dtype, variant);
    c->exact = true;
    c->op.attrs.window = images[variant % N_IMAGES].window;
}

bool case_im2col(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= N_IMAGES) {
        return false;
    }
    image_init(c, SW_OP_IM2COL, dtype, variant);
    image_in(c, dtype, variant);
    case_out(c, dtype, windows_of(variant, true));
    return true;
}

bool case_col2im(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= N_IMAGES) {
        return false;
    }
    image_init(c, SW_OP_COL2IM, dtype, variant);
    case_in(c, dtype, windows_of(variant, true), -1, 1);
    case_out(c, variant == 1 ? stat_of(dtype) : dtype,
             SW_SHAPE(images[variant].batch, images[variant].channels, images[variant].size[0],
                      images[variant].size[1]));
    return true;
}

bool case_pool(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 2 * N_POOLS) {
        return false;
    }
    image_init(c, SW_OP_POOL, dtype, variant / 2);
    c->op.attrs.window.mean = variant % 2;
    image_in(c, dtype, variant / 2);
    case_out(c, dtype, windows_of(variant / 2, false));
    return true;
}

/* Includes equal elements. */
bool case_pool_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= 2 * N_POOLS) {
        return false;
    }
    image_init(c, SW_OP_POOL_GRAD, dtype, variant / 2);
    c->op.attrs.window.mean = variant % 2;
    case_in(c, dtype, windows_of(variant / 2, false), -1, 1);
    image_in(c, dtype, variant / 2);
    for (int64_t i = 0; i + 3 < (int64_t)(c->in[1].bytes / sw_dtype_bytes(dtype)); i += 3) {
        sw_store_f64(dtype, c->in[1].view.data, i, 0.5);
    }
    case_out(c, dtype, c->in[1].view.shape);
    return true;
}

/* ---- LSTM ---- */

static const struct {
    int64_t batch, tokens, hidden;
    bool reverse, mask;
} recurrences[] = {
    {1, 1, 1, false, false},  {2, 5, 3, true, false},   {3, 9, 7, false, true},
    {3, 8, 20, true, true},   {2, 6, 40, false, false}, {35, 4, 9, false, true},
    {2, 2, 270, true, false},
};

/* Real tokens at the start, in the middle, and none at all. */
static void lengths_in(struct op_case *c, int variant)
{
    const int64_t b = recurrences[variant].batch, t = recurrences[variant].tokens;
    if (!recurrences[variant].mask) {
        return;
    }
    const int i = case_in_ints(c, SW_SHAPE(b, t), 0, 2);
    int32_t *mask = c->in[i].view.data;
    for (int64_t e = 0; e < b * t; e++) {
        mask[e] = e < t ? e < t - 3 : e < (b - 1) * t ? mask[e] : 0;
    }
}

bool case_lstm(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(recurrences)) {
        return false;
    }
    const int64_t b = recurrences[variant].batch, t = recurrences[variant].tokens;
    const int64_t n = recurrences[variant].hidden;
    start(c, SW_OP_LSTM, dtype, variant);
    c->slack = 4;
    c->op.attrs.lstm.reverse = recurrences[variant].reverse;
    c->op.attrs.lstm.has_mask = recurrences[variant].mask;
    case_in(c, dtype, SW_SHAPE(b, t, 4 * n), -2, 2);
    case_in(c, dtype, SW_SHAPE(4 * n, n), -0.5, 0.5);
    case_in(c, dtype, SW_SHAPE(4 * n), -1, 1);
    lengths_in(c, variant);
    case_out(c, dtype, SW_SHAPE(b, t, n));
    case_out(c, stat_of(dtype), SW_SHAPE(b, t, 4 * n));
    case_out(c, stat_of(dtype), SW_SHAPE(b, t, n));
    return true;
}

/* The first variant wants only the weights' gradients, the second only the input's. */
bool case_lstm_grad(struct op_case *c, enum sw_dtype dtype, int variant)
{
    if (variant >= (int)SW_LEN(recurrences)) {
        return false;
    }
    const int64_t b = recurrences[variant].batch, t = recurrences[variant].tokens;
    const int64_t n = recurrences[variant].hidden;
    start(c, SW_OP_LSTM_GRAD, dtype, variant);
    c->slack = 8;
    c->op.attrs.lstm.reverse = recurrences[variant].reverse;
    c->op.attrs.lstm.has_mask = recurrences[variant].mask;
    case_in(c, dtype, SW_SHAPE(b, t, n), -1, 1);
    case_in(c, dtype, SW_SHAPE(4 * n, n), -0.3, 0.3);
    case_in(c, dtype, SW_SHAPE(b, t, n), -1, 1);
    case_in(c, stat_of(dtype), SW_SHAPE(b, t, 4 * n), 0, 1);
    case_in(c, stat_of(dtype), SW_SHAPE(b, t, n), -1, 1);
    lengths_in(c, variant);
    if (variant == 0) {
        case_out_absent(c);
    } else {
        case_out(c, dtype, SW_SHAPE(b, t, 4 * n));
    }
    for (int k = 0; k < 2; k++) {
        if (variant == 1) {
            case_out_absent(c);
        } else {
            case_out(c, variant == 2 ? stat_of(dtype) : dtype,
                     k == 0 ? SW_SHAPE(4 * n, n) : SW_SHAPE(4 * n));
        }
    }
    return true;
}
