// SPDX-License-Identifier: Apache-2.0
// Documents that are separate rows rather than parts of a stream: prompts with completions, chats.
// Each token has a flag: whether the loss counts its prediction. Rows of T tokens are built from
// this list by padding or packing.
#pragma once

#include "data/data.h"

struct sw_row_place {
    int64_t first; /* offset of its tokens */
    int64_t n;
};

/* All zero is an empty list. */
struct sw_rows {
    struct sw_ids tokens; /* tokens of all rows */
    bool *wanted;         /* [wanted_cap] parallel to tokens */
    int64_t wanted_cap;
    struct sw_row_place *places; /* [n] */
    int64_t n, cap;
    int64_t n_cut,
        n_dropped; /* rows cut at the end; rows dropped because no wanted token was left */
};

/* A row, borrowed until the next one is added. */
struct sw_row {
    const int32_t *ids; /* [n] at least 2 */
    const bool *wanted; /* [n] never true for the first token; true for at least one */
    int64_t n;
};

void sw_rows_fini(struct sw_rows *rows);
/* Appends a document of n tokens, cut after `most`. A document without a wanted token is
 * dropped. */
sw_status sw_rows_add(struct sw_rows *rows, const int32_t *ids, const bool *wanted, int64_t n,
                      int64_t most);
struct sw_row sw_rows_at(const struct sw_rows *rows, int64_t i);
