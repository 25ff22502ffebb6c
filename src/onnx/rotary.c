// SPDX-License-Identifier: Apache-2.0
// Rotary positions: RotaryEmbedding from opset 23 on, else its parts. The table is as long as the
// model allows; a graph reads as many of its rows as there are tokens.
#include "onnx/emit.h"

#include <stdio.h>

/* Cosines (part 0) or sines (part 1) of the table, in the dtype of x: [P, R/2]. */
static const char *half_of_table(struct sw_onnx_emit *e, int part)
{
    const int64_t half = sw_onnx_in_info(e, 1)->shape.dims[1] / 2;
    char key[320];
    snprintf(key, sizeof key, "rotary %d of %s", part, sw_onnx_in(e, 1));
    const char *known = sw_onnx_known(e, key);
    if (known) {
        return known;
    }
    const char *out = sw_onnx_slice_at(e, sw_onnx_in(e, 1), 1, part * half, (part + 1) * half);
    const enum sw_onnx_type type = sw_onnx_in_type(e, 0);
    return sw_onnx_note(e, key, type == ONNX_F32 ? out : sw_onnx_cast(e, out, type));
}

/* The same for the tokens of x: [T, 1, R/2], or [B, T, 1, R/2]. */
static const char *by_token(struct sw_onnx_emit *e, int part)
{
    static const int64_t before_last[] = {-2};
    char key[320];
    snprintf(key, sizeof key, "rotary %d of %s at %s", part, sw_onnx_in(e, 1), sw_onnx_in(e, 2));
    const char *known = sw_onnx_known(e, key);
    return known ? known
                 : sw_onnx_note(e, key,
                                sw_onnx_unsqueeze(
                                    e,
                                    ONNX_ADD(e, "Gather", half_of_table(e, part), sw_onnx_in(e, 2)),
                                    before_last, 1));
}

static const char *whole(struct sw_onnx_emit *e)
{
    const struct sw_onnx_dims *dims = sw_onnx_in_dims(e, 0);
    const int64_t heads = dims->of[2].c0, width = dims->of[3].c0;
    const int64_t rotated = sw_onnx_in_info(e, 1)->shape.dims[1];
    const struct sw_onnx_dims flat = {.rank = 3,
                                      .of = {dims->of[0], dims->of[1], {.c0 = heads * width}}};
    const struct sw_onnx_dims tokens = {.rank = 2, .of = {dims->of[0], dims->of[1]}};
    const char *x = sw_onnx_reshape(e, sw_onnx_in(e, 0), dims, &flat);
    const char *positions = sw_onnx_in(e, 2);
    if (sw_onnx_in_dims(e, 2)->rank == 1) {
        positions = ONNX_ADD(e, "Expand", positions, sw_onnx_shape_value(e, &tokens));
    }
    const char *out =
        ONNX_ADD(e, "RotaryEmbedding", x, half_of_table(e, 0), half_of_table(e, 1), positions);
    sw_onnx_set_int(&e->file, "interleaved", e->op->attrs.rotary.interleaved);
    sw_onnx_set_int(&e->file, "num_heads", heads);
    sw_onnx_set_int(&e->file, "rotary_embedding_dim", rotated == width ? 0 : rotated);
    return sw_onnx_reshape(e, out, &flat, dims);
}

/* The two elements of each pair, [.., R/2] each. */
static void pairs(struct sw_onnx_emit *e, const char *x, int64_t half, const char *out[2])
{
    const struct sw_onnx_dims *dims = sw_onnx_in_dims(e, 0);
    if (!e->op->attrs.rotary.interleaved) {
        out[0] = sw_onnx_slice_at(e, x, 3, 0, half);
        out[1] = sw_onnx_slice_at(e, x, 3, half, 2 * half);
        return;
    }
    struct sw_onnx_dims split = *dims;
    const int64_t last[] = {-1};
    split.rank = 5;
    split.of[3] = (struct sw_onnx_size){.c0 = half};
    split.of[4] = (struct sw_onnx_size){.c0 = 2};
    const char *both = sw_onnx_reshape(e, x, dims, &split);
    for (int i = 0; i < 2; i++) {
        out[i] = ONNX_ADD(e, "Squeeze", sw_onnx_slice_at(e, both, 4, i, i + 1),
                          sw_onnx_ints(&e->file, last, 1));
    }
}

static const char *join(struct sw_onnx_emit *e, const char *const y[2], int64_t half)
{
    static const int64_t last[] = {-1};
    if (!e->op->attrs.rotary.interleaved) {
        return sw_onnx_concat(e, ONNX_IN(y[0], y[1]), 3);
    }
    struct sw_onnx_dims from = *sw_onnx_in_dims(e, 0), to = from;
    from.rank = 5;
    from.of[3] = (struct sw_onnx_size){.c0 = half};
    from.of[4] = (struct sw_onnx_size){.c0 = 2};
    to.of[3] = (struct sw_onnx_size){.c0 = 2 * half};
    const char *both = sw_onnx_concat(
        e, ONNX_IN(sw_onnx_unsqueeze(e, y[0], last, 1), sw_onnx_unsqueeze(e, y[1], last, 1)), 4);
    return sw_onnx_reshape(e, both, &from, &to);
}

static const char *in_parts(struct sw_onnx_emit *e)
{
    const int64_t rotated = sw_onnx_in_info(e, 1)->shape.dims[1];
    const int64_t width = sw_onnx_in_dims(e, 0)->of[3].c0;
    const char *x[2], *y[2], *c = by_token(e, 0), *s = by_token(e, 1), *all = sw_onnx_in(e, 0);
    const char *head = rotated == width ? all : sw_onnx_slice_at(e, all, 3, 0, rotated);
    pairs(e, head, rotated / 2, x);
    y[0] = ONNX_ADD(e, "Sub", ONNX_ADD(e, "Mul", x[0], c), ONNX_ADD(e, "Mul", x[1], s));
    y[1] = ONNX_ADD(e, "Add", ONNX_ADD(e, "Mul", x[1], c), ONNX_ADD(e, "Mul", x[0], s));
    const char *out = join(e, y, rotated / 2);
    return rotated == width
               ? out
               : sw_onnx_concat(e, ONNX_IN(out, sw_onnx_slice_at(e, all, 3, rotated, width)), 3);
}

void sw_onnx_rotary(struct sw_onnx_emit *e)
{
    if (e->op->attrs.rotary.inverse) {
        sw_onnx_refuse(e, "is of backward");
        return;
    }
    sw_onnx_set_out(e, e->opset >= 23 ? whole(e) : in_parts(e));
}
