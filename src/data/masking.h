// SPDX-License-Identifier: Apache-2.0
// masking - hides tokens of a row and sets the labels to predict in their place. Pure: every draw
// depends only on seed, split, sample number and position.
#pragma once

#include "data/data.h"

/* Identifies a stream of draws. */
struct sw_draw {
    uint64_t seed;
    int64_t sample;
    enum sw_split split;
};
/* Purpose of a draw. Each purpose has an independent sequence. */
enum sw_draw_use { SW_DRAW_MASK, SW_DRAW_TOKEN, SW_DRAW_SPANS, SW_DRAW_KEPT, SW_DRAW_PAIR };
/* Draw number i (from 0) of the sequence for `use`. */
uint64_t sw_draw_at(const struct sw_draw *draw, enum sw_draw_use use, int64_t i);

/* BERT's masking in place. It selects 15 % of the tokens whose label is not SW_IGNORED_LABEL. Of
 * the selected, 80 % become mask_id, 10 % a random id below n_ids, 10 % stay. All other labels
 * become SW_IGNORED_LABEL. */
void sw_mask_tokens(const struct sw_draw *draw, int32_t mask_id, int64_t n_ids, int64_t n,
                    int32_t *ids, int32_t *labels);

/* Writes T5's spans token by token. A masked span becomes a sentinel in the inputs; a kept span
 * becomes one in the labels. Sentinels count down from first_sentinel. */
struct sw_span_writer {
    int32_t first_sentinel, n_sentinels, eos;
    int32_t *inputs, *labels; /* large enough for all tokens to come */
    int64_t n_inputs, n_labels;
    int32_t n_masked, n_kept; /* spans so far */
    int last;                 /* kind of the open span: 1 masked, 0 kept; -1: no span yet */
};
/* Adds a token. SW_E_CONFIG: there are more spans than sentinels. */
sw_status sw_span_put(struct sw_span_writer *writer, int32_t id, bool masked);
/* Ends both the inputs and the labels. */
void sw_span_end(struct sw_span_writer *writer);

/* Number of tokens to hide: T5's 15 %, in spans of 3 on average. */
struct sw_span_plan {
    int64_t n_masked, n_spans;
    int64_t n_inputs, n_labels; /* resulting lengths, ends included */
};
struct sw_span_plan sw_span_plan_of(int64_t n);
/* The most tokens whose spans fit into n_inputs and n_labels; 0: not even one fits. */
int64_t sw_span_most(int64_t n_inputs, int64_t n_labels);
/* Draws the spans and writes them. The first span is a kept one. */
sw_status sw_span_corrupt(const struct sw_draw *draw, const int32_t *ids, int64_t n,
                          struct sw_span_writer *writer);
