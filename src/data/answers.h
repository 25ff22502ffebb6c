// SPDX-License-Identifier: Apache-2.0
// answers - questions about a text that is longer than a row: the windows that it is cut into,
// where the answer stands in each, and which answer the scores of all windows say. Pure.
#pragma once

#include "base/base.h"

/* Tokens of a context, and the characters that each stands for. */
struct sw_context {
    const int32_t *begins, *ends; /* [n] */
    int64_t n;
};

/* Windows of `room` tokens of the context; neighbours share `stride` of them. */
int64_t sw_window_count(int64_t n_tokens, int64_t room, int64_t stride);
/* Window i: tokens [first, first + n) of the context. */
void sw_window_at(int64_t n_tokens, int64_t room, int64_t stride, int64_t i, int64_t *first,
                  int64_t *n);

/* The first and last token of the characters [begin, end), among tokens [first, first + n) of the
 * context; false: they are not wholly within the window. */
bool sw_answer_find(const struct sw_context *context, int64_t first, int64_t n, int32_t begin,
                    int32_t end, int64_t *out_first, int64_t *out_last);

/* One window with what the model said of each token of its row. */
struct sw_window_scores {
    const float *starts, *ends; /* [n_row] */
    int64_t n_row;              /* padding, too */
    int64_t at;                 /* in the row, of the first token of the context .. */
    int64_t first, n;           /* .. which is this one of the context; how many */
};
struct sw_answer_candidate {
    int32_t begin, end; /* characters of the context; equal: no answer */
    float start, last;  /* scores of the first and the last token */
    double probability; /* among the candidates */
};
enum { SW_ANSWER_BEST = 20, SW_ANSWER_LONGEST = 30 };
struct sw_answer_rules {
    int n_best;         /* of starts and ends of a window, and of all candidates; at most .. */
    int64_t longest;    /* tokens of an answer */
    bool may_be_none;   /* a question may have no answer: the scores of a row's first token */
    double null_margin; /* by how much "none" must exceed the best answer */
};
struct sw_answer_best {
    struct sw_answer_candidate of[SW_ANSWER_BEST + 1]; /* best first */
    int n;
    int chosen;         /* which of them is the answer; -1: there is no candidate */
    double null_excess; /* of "none" over the best answer (may_be_none) */
};
void sw_answer_choose(const struct sw_context *context, const struct sw_window_scores *windows,
                      int64_t n_windows, const struct sw_answer_rules *rules,
                      struct sw_answer_best *out);
