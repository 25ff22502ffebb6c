// SPDX-License-Identifier: Apache-2.0
// Prompts and completions: one row each, a loss on the completion only.
#pragma once

#include "data/data.h"

struct sw_example {
    int64_t first;    /* of its tokens */
    int32_t n;        /* at most seq_len + 1 */
    int32_t n_prompt; /* the first of them, without a loss; below n */
};

struct sw_examples {
    struct sw_ids tokens; /* of all examples */
    struct sw_example *rows;
    int64_t n, cap;
    int64_t n_cut,
        n_dropped; /* cut at seq_len; left out because nothing of the completion was left */
};

void sw_examples_fini(struct sw_examples *examples);
/* Appends prompt and completion; what passes seq_len + 1 tokens is cut off. */
sw_status sw_examples_add(struct sw_examples *examples, const int32_t *prompt, int64_t n_prompt,
                          const int32_t *completion, int64_t n_completion, int64_t seq_len);
/* Row i: [seq_len] each, padded on the right with `pad` and ignored labels; mask may be NULL. */
void sw_examples_read(const struct sw_examples *examples, int64_t i, int64_t seq_len, int32_t pad,
                      int32_t *ids, int32_t *labels, int32_t *mask);
