// SPDX-License-Identifier: Apache-2.0
// masking - what is hidden of a row, and what is asked for in its place. Pure: what is drawn
// depends on seed, split, sample number and position alone.
#pragma once

#include "data/data.h"

/* Whose draws they are. */
struct sw_draw {
    uint64_t seed;
    int64_t sample;
    enum sw_split split;
};
/* What for: each has numbers of its own. */
enum sw_draw_use { SW_DRAW_MASK, SW_DRAW_TOKEN, SW_DRAW_SPANS, SW_DRAW_KEPT, SW_DRAW_PAIR };
/* Number i = 0, 1, .. of a use. */
uint64_t sw_draw_at(const struct sw_draw *draw, enum sw_draw_use use, int64_t i);

/* BERT's masking in place: of the tokens whose label is not SW_IGNORED_LABEL 15 % are asked for; of
 * these 80 % become mask_id, 10 % any id below n_ids, 10 % stay. The labels of all others become
 * SW_IGNORED_LABEL. */
void sw_mask_tokens(const struct sw_draw *draw, int32_t mask_id, int64_t n_ids, int64_t n,
                    int32_t *ids, int32_t *labels);

/* T5's spans, token by token. A span of masked tokens becomes a sentinel for the encoder; a span of
 * those that stay one for the decoder. Sentinels count down from first_sentinel. */
struct sw_span_writer {
    int32_t first_sentinel, n_sentinels, eos;
    int32_t *inputs, *labels; /* with room for what comes */
    int64_t n_inputs, n_labels;
    int32_t n_masked, n_kept; /* spans so far */
    int last;                 /* of the span that is open: 1 masked, 0 kept; -1: none */
};
/* SW_E_CONFIG: there are more spans than sentinels. */
sw_status sw_span_put(struct sw_span_writer *writer, int32_t id, bool masked);
/* The ends of both sides. */
void sw_span_end(struct sw_span_writer *writer);

/* How much of n tokens is hidden: T5's 15 % in spans of 3 on average. */
struct sw_span_plan {
    int64_t n_masked, n_spans;
    int64_t n_inputs, n_labels; /* that they become, ends included */
};
struct sw_span_plan sw_span_plan_of(int64_t n);
/* The most tokens that fit into so many inputs and labels; 0: none do. */
int64_t sw_span_most(int64_t n_inputs, int64_t n_labels);
/* Draws the spans and writes them, the first one kept. */
sw_status sw_span_corrupt(const struct sw_draw *draw, const int32_t *ids, int64_t n,
                          struct sw_span_writer *writer);
