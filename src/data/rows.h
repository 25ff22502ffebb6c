// SPDX-License-Identifier: Apache-2.0
// Documents that are rows of their own, and not parts of one stream: prompts and completions,
// chats. Each token knows whether it is wanted, that is, whether the loss counts it as the one to
// come after those before it. What makes rows of T tokens of them (padding here) draws from this
// list.
#pragma once

#include "data/data.h"

struct sw_row_place {
    int64_t first; /* of its tokens */
    int64_t n;
};

/* All zero is an empty list. */
struct sw_rows {
    struct sw_ids tokens; /* of all rows */
    bool *wanted;         /* [wanted_cap] beside them */
    int64_t wanted_cap;
    struct sw_row_place *places; /* [n] */
    int64_t n, cap;
    int64_t n_cut, n_dropped; /* cut at the end; left out because nothing that is wanted was left */
};

/* A row, lent until the next one is added. */
struct sw_row {
    const int32_t *ids; /* [n] at least 2 */
    const bool *wanted; /* [n] never the first one, which nothing comes before; one at least is */
    int64_t n;
};

void sw_rows_fini(struct sw_rows *rows);
/* Appends a document of n tokens, cut behind `most`; left out where it has nothing to learn. */
sw_status sw_rows_add(struct sw_rows *rows, const int32_t *ids, const bool *wanted, int64_t n,
                      int64_t most);
struct sw_row sw_rows_at(const struct sw_rows *rows, int64_t i);
