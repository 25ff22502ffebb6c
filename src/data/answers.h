// SPDX-License-Identifier: Apache-2.0
// answers - questions about a context longer than a row: cutting it into windows, locating the
// answer in each window, and choosing an answer from the scores of all windows. Pure.
#pragma once

#include "base/base.h"

/* Tokens of a context, each with its range of characters. */
struct sw_context {
    const int32_t *begins, *ends; /* [n] */
    int64_t n;
};

/* Number of windows of `room` tokens over the context. Neighbours overlap by `stride` tokens. */
int64_t sw_window_count(int64_t n_tokens, int64_t room, int64_t stride);
/* Window i: tokens [first, first + n) of the context. */
void sw_window_at(int64_t n_tokens, int64_t room, int64_t stride, int64_t i, int64_t *first,
                  int64_t *n);

/* Finds the first and last token of characters [begin, end) among tokens [first, first + n) of the
 * context. False: the range is not wholly within the window. */
bool sw_answer_find(const struct sw_context *context, int64_t first, int64_t n, int32_t begin,
                    int32_t end, int64_t *out_first, int64_t *out_last);

/* One window, with the model's scores for each token of its row. */
struct sw_window_scores {
    const float *starts, *ends; /* [n_row] */
    int64_t n_row;              /* includes padding */
    int64_t at;                 /* row index of the window's first context token */
    int64_t first, n;           /* index of that token in the context; number of context tokens */
};
struct sw_answer_candidate {
    int32_t begin, end; /* characters of the context; equal: no answer */
    float start, last;  /* scores of the first and the last token */
    double probability; /* among the candidates */
};
enum { SW_ANSWER_BEST = 20, SW_ANSWER_LONGEST = 30 };
struct sw_answer_rules {
    int n_best;         /* best starts and ends per window, and best candidates, to keep */
    int64_t longest;    /* most tokens in an answer */
    bool may_be_none;   /* a question may have no answer; a row's first token scores that */
    double null_margin; /* margin by which "no answer" must exceed the best answer */
};
struct sw_answer_best {
    struct sw_answer_candidate of[SW_ANSWER_BEST + 1]; /* best first */
    int n;
    int chosen;         /* index of the answer; -1: there is no candidate */
    double null_excess; /* "no answer" score minus that of the best answer (may_be_none) */
};
void sw_answer_choose(const struct sw_context *context, const struct sw_window_scores *windows,
                      int64_t n_windows, const struct sw_answer_rules *rules,
                      struct sw_answer_best *out);
