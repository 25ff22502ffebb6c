// SPDX-License-Identifier: Apache-2.0
// Documents as rows. A document without a counted token (it may have been cut off) could give a
// batch without a target. It is dropped and counted.
#include "data/rows.h"

void sw_rows_fini(struct sw_rows *rows)
{
    sw_ids_fini(&rows->tokens);
    sw_free(rows->weights);
    sw_free(rows->places);
    *rows = (struct sw_rows){0};
}

static sw_status reserve(struct sw_rows *rows, int64_t n_tokens)
{
    const int64_t n_weights = rows->tokens.len + n_tokens;
    if (rows->n == rows->cap) {
        const int64_t cap = rows->cap ? 2 * rows->cap : 64;
        struct sw_row_place *places =
            sw_realloc("rows", rows->places, (size_t)cap * sizeof(*places));
        SW_TRY_ALLOC(places, "the rows");
        rows->places = places;
        rows->cap = cap;
    }
    if (n_weights > rows->weights_cap) {
        const int64_t cap = sw_max_i64(n_weights, rows->weights_cap + rows->weights_cap / 2);
        float *weights = sw_realloc("rows", rows->weights, (size_t)cap * sizeof *weights);
        SW_TRY_ALLOC(weights, "the rows");
        rows->weights = weights;
        rows->weights_cap = cap;
    }
    return SW_OK;
}

sw_status sw_rows_add(struct sw_rows *rows, const int32_t *ids, const float *weights, int64_t n,
                      int64_t most)
{
    const int64_t kept = sw_min_i64(n, most);
    bool any = false;
    for (int64_t i = 1; i < kept; ++i) {
        any = any || weights[i] > 0;
    }
    if (!any) {
        rows->n_dropped++;
        return SW_OK;
    }
    SW_TRY(reserve(rows, kept));
    const struct sw_row_place place = {rows->tokens.len, kept};
    for (int64_t i = 0; i < kept; ++i) {
        const float weight = i > 0 ? weights[i] : 0;
        rows->weights[place.first + i] = weight;
        rows->has_weights = rows->has_weights || (weight != 0 && weight != 1);
        SW_TRY(sw_ids_push(&rows->tokens, ids[i]));
    }
    rows->places[rows->n++] = place;
    rows->n_cut += kept < n;
    return SW_OK;
}

struct sw_row sw_rows_at(const struct sw_rows *rows, int64_t i)
{
    const struct sw_row_place place = rows->places[i];
    return (struct sw_row){rows->tokens.ptr + place.first, rows->weights + place.first, place.n};
}
