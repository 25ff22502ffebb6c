// SPDX-License-Identifier: Apache-2.0
// Differences between two checkpoints, tensor by tensor, in constant memory.
#include "ckpt/private.h"

#include <math.h>
#include <string.h>

enum { PIECE_ELEMS = 1 << 14, MAX_ELEM_BYTES = 8 };

struct pieces {
    unsigned char *a, *b; /* [PIECE_ELEMS * MAX_ELEM_BYTES] */
};

static void compare_values(double a, double b, struct sw_ckpt_difference *row)
{
    if (a == b || (isnan(a) && isnan(b))) {
        return;
    }
    const double gap = isnan(a) || isnan(b) ? INFINITY : fabs(a - b);
    row->n_different++;
    row->max_abs = gap > row->max_abs ? gap : row->max_abs;
}

static sw_status compare_tensors(struct sw_ckpt *first, int64_t i_first, struct sw_ckpt *second,
                                 int64_t i_second, const struct pieces *pieces,
                                 struct sw_ckpt_difference *row)
{
    const enum sw_dtype dtype_a = row->entry.dtype;
    const enum sw_dtype dtype_b = sw_ckpt_entry(second, i_second)->dtype;
    const int64_t n_elems = sw_shape_elems(&row->entry.shape);
    for (int64_t start = 0; start < n_elems; start += PIECE_ELEMS) {
        const int64_t n = sw_min_i64(PIECE_ELEMS, n_elems - start);
        SW_TRY(sw_ckpt_read_flat(first, i_first, start, n, dtype_a, pieces->a));
        SW_TRY(sw_ckpt_read_flat(second, i_second, start, n, dtype_b, pieces->b));
        if (dtype_a == dtype_b &&
            memcmp(pieces->a, pieces->b, (size_t)n * sw_dtype_bytes(dtype_a)) == 0) {
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            compare_values(sw_load_f64(dtype_a, pieces->a, i), sw_load_f64(dtype_b, pieces->b, i),
                           row);
        }
    }
    return SW_OK;
}

static sw_status compare_all(struct sw_ckpt *first, struct sw_ckpt *second,
                             const struct pieces *pieces, struct sw_ckpt_diff *diff)
{
    for (int64_t i = 0; i < sw_ckpt_n_tensors(first); i++) {
        struct sw_ckpt_difference *row = &diff->items[diff->n_items++];
        row->entry = *sw_ckpt_entry(first, i);
        const int64_t i_other = sw_ckpt_find(second, row->entry.param, row->entry.kind);
        if (i_other < 0) {
            row->relation = SW_CKPT_ONLY_FIRST;
        } else if (!sw_shape_equal(&row->entry.shape, &sw_ckpt_entry(second, i_other)->shape)) {
            row->relation = SW_CKPT_RESHAPED;
        } else {
            SW_TRY(compare_tensors(first, i, second, i_other, pieces, row));
        }
    }
    for (int64_t i = 0; i < sw_ckpt_n_tensors(second); i++) {
        const struct sw_ckpt_entry *entry = sw_ckpt_entry(second, i);
        if (sw_ckpt_find(first, entry->param, entry->kind) < 0) {
            diff->items[diff->n_items++] =
                (struct sw_ckpt_difference){.entry = *entry, .relation = SW_CKPT_ONLY_SECOND};
        }
    }
    return SW_OK;
}

sw_status sw_ckpt_diff(struct sw_ckpt *first, struct sw_ckpt *second, struct sw_ckpt_diff *out)
{
    const size_t n_most = (size_t)(sw_ckpt_n_tensors(first) + sw_ckpt_n_tensors(second));
    struct sw_ckpt_diff diff = {.items = sw_alloc_zero("checkpoint", n_most, sizeof(*diff.items))};
    const struct pieces pieces = {sw_alloc("checkpoint", PIECE_ELEMS * MAX_ELEM_BYTES),
                                  sw_alloc("checkpoint", PIECE_ELEMS * MAX_ELEM_BYTES)};
    sw_status st = SW_OK;
    if (!diff.items || !pieces.a || !pieces.b) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the comparison of checkpoints");
        goto free_pieces;
    }
    SW_TRY_OR(free_pieces, compare_all(first, second, &pieces, &diff));
    *out = diff;
free_pieces:
    sw_free(pieces.a);
    sw_free(pieces.b);
    if (st < 0) {
        sw_ckpt_diff_fini(&diff);
    }
    return st;
}

void sw_ckpt_diff_fini(struct sw_ckpt_diff *diff)
{
    sw_free(diff->items);
    memset(diff, 0, sizeof(*diff));
}
