// SPDX-License-Identifier: Apache-2.0
// Documents that are separate rows rather than parts of a stream: prompts with completions, chats.
// Each token has a weight: that of its prediction in the loss, 0 if it is not counted. Rows of T
// tokens are built from this list by padding or packing.
#pragma once

#include "data/data.h"

struct sw_row_place {
    int64_t first; /* offset of its tokens */
    int64_t n;
};

/* All zero is an empty list. */
struct sw_rows {
    struct sw_ids tokens; /* tokens of all rows */
    float *weights;       /* [weights_cap] parallel to tokens */
    int64_t weights_cap;
    bool has_weights;            /* one is neither 0 nor 1 */
    struct sw_row_place *places; /* [n] */
    int64_t n, cap;
    int64_t n_cut, n_dropped; /* cut at the end; dropped because no counted token was left */
};

/* A row, borrowed until the next one is added. */
struct sw_row {
    const int32_t *ids;   /* [n] at least 2 */
    const float *weights; /* [n] 0 for the first token; above 0 for at least one */
    int64_t n;
};

void sw_rows_fini(struct sw_rows *rows);
/* Appends a document of n tokens, cut after `most`. A document without a counted token is
 * dropped. */
sw_status sw_rows_add(struct sw_rows *rows, const int32_t *ids, const float *weights, int64_t n,
                      int64_t most);
struct sw_row sw_rows_at(const struct sw_rows *rows, int64_t i);
