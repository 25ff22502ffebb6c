// SPDX-License-Identifier: Apache-2.0
// Prompts and completions as rows. A row that lost its whole completion to the cut would train
// nothing and make a batch without a target possible: it is left out, and counted.
#include "data/examples.h"

void sw_examples_fini(struct sw_examples *examples)
{
    sw_ids_fini(&examples->tokens);
    sw_free(examples->rows);
    *examples = (struct sw_examples){0};
}

static sw_status push_row(struct sw_examples *examples, struct sw_example row)
{
    if (examples->n == examples->cap) {
        const int64_t cap = examples->cap ? 2 * examples->cap : 64;
        struct sw_example *rows =
            sw_realloc("examples", examples->rows, (size_t)cap * sizeof(*rows));
        SW_TRY_ALLOC(rows, "the examples");
        examples->rows = rows;
        examples->cap = cap;
    }
    examples->rows[examples->n++] = row;
    return SW_OK;
}

sw_status sw_examples_add(struct sw_examples *examples, const int32_t *prompt, int64_t n_prompt,
                          const int32_t *completion, int64_t n_completion, int64_t seq_len)
{
    const int64_t whole = n_prompt + n_completion, n = sw_min_i64(whole, seq_len + 1);
    /* The first token of a row is never a label, so a row needs one of the completion after it. */
    const int64_t n_before = sw_max_i64(n_prompt, 1);
    if (n <= n_before) {
        examples->n_dropped++;
        return SW_OK;
    }
    examples->n_cut += n < whole;
    SW_TRY(push_row(examples,
                    (struct sw_example){examples->tokens.len, (int32_t)n, (int32_t)n_prompt}));
    for (int64_t i = 0; i < n; ++i) {
        SW_TRY(sw_ids_push(&examples->tokens, i < n_prompt ? prompt[i] : completion[i - n_prompt]));
    }
    return SW_OK;
}

void sw_examples_read(const struct sw_examples *examples, int64_t i, int64_t seq_len, int32_t pad,
                      int32_t *ids, int32_t *labels, int32_t *mask)
{
    const struct sw_example row = examples->rows[i];
    const int32_t *tokens = examples->tokens.ptr + row.first;
    for (int64_t t = 0; t < seq_len; ++t) {
        const bool real = t + 1 < row.n; /* has a next token */
        ids[t] = real ? tokens[t] : pad;
        labels[t] = real && t + 1 >= row.n_prompt ? tokens[t + 1] : SW_IGNORED_LABEL;
        if (mask) {
            mask[t] = real;
        }
    }
}
