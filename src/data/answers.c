// SPDX-License-Identifier: Apache-2.0
// Windows and answers, as in the published fine-tunings on SQuAD.
#include "data/answers.h"

#include <math.h>
#include <string.h>

/* ---- windows ---- */

int64_t sw_window_count(int64_t n_tokens, int64_t room, int64_t stride)
{
    return n_tokens <= room ? 1 : 1 + sw_ceil_div(n_tokens - room, room - stride);
}

void sw_window_at(int64_t n_tokens, int64_t room, int64_t stride, int64_t i, int64_t *first,
                  int64_t *n)
{
    *first = i * (room - stride);
    *n = sw_min_i64(room, n_tokens - *first);
}

bool sw_answer_find(const struct sw_context *context, int64_t first, int64_t n, int32_t begin,
                    int32_t end, int64_t *out_first, int64_t *out_last)
{
    int64_t at = first, last = first + n - 1;
    if (n == 0 || context->begins[first] > begin || context->ends[last] < end) {
        return false;
    }
    while (at + 1 < first + n && context->begins[at + 1] <= begin) {
        at++;
    }
    for (int64_t i = first + n - 1; i >= first && context->ends[i] >= end; i--) {
        last = i;
    }
    *out_first = at;
    *out_last = last;
    return true;
}

/* ---- the best answer ---- */

/* Indices of the n largest scores, best first. Ties: the later index first, as in a sorted list
 * read backwards. */
static int largest(const float *scores, int64_t n, int most, int64_t *out)
{
    int found = 0;
    for (int64_t i = 0; i < n; i++) {
        int at = found;
        while (at > 0 && scores[out[at - 1]] <= scores[i]) {
            at--;
        }
        if (at < most) {
            found += found < most;
            memmove(out + at + 1, out + at, (size_t)(found - at - 1) * sizeof *out);
            out[at] = i;
        }
    }
    return found;
}

static double score_of(const struct sw_answer_candidate *candidate)
{
    return (double)(candidate->start + candidate->last);
}

/* Among equal candidates the earlier one stays in front. */
static void insert(struct sw_answer_best *best, int most, struct sw_answer_candidate candidate)
{
    int at = best->n;
    while (at > 0 && score_of(&best->of[at - 1]) < score_of(&candidate)) {
        at--;
    }
    if (at < most) {
        best->n += best->n < most;
        memmove(best->of + at + 1, best->of + at, (size_t)(best->n - at - 1) * sizeof *best->of);
        best->of[at] = candidate;
    }
}

static bool is_context(const struct sw_window_scores *w, int64_t place)
{
    return place >= w->at && place < w->at + w->n;
}

static void add_window(const struct sw_context *context, const struct sw_window_scores *w,
                       const struct sw_answer_rules *rules, struct sw_answer_best *best)
{
    int64_t starts[SW_ANSWER_BEST], ends[SW_ANSWER_BEST];
    const int n_starts = largest(w->starts, w->n_row, rules->n_best, starts);
    const int n_ends = largest(w->ends, w->n_row, rules->n_best, ends);
    for (int i = 0; i < n_starts; i++) {
        for (int k = 0; k < n_ends; k++) {
            const int64_t start = starts[i], end = ends[k];
            if (is_context(w, start) && is_context(w, end) && end >= start &&
                end - start + 1 <= rules->longest) {
                insert(
                    best, rules->n_best,
                    (struct sw_answer_candidate){.begin = context->begins[w->first + start - w->at],
                                                 .end = context->ends[w->first + end - w->at],
                                                 .start = w->starts[start],
                                                 .last = w->ends[end]});
            }
        }
    }
}

/* Adds the candidate "no answer" with its lowest score over all windows. */
static void add_none(const struct sw_window_scores *windows, int64_t n_windows,
                     const struct sw_answer_rules *rules, struct sw_answer_best *best)
{
    struct sw_answer_candidate none = {0};
    for (int64_t i = 0; i < n_windows; i++) {
        const struct sw_answer_candidate one = {.start = windows[i].starts[0],
                                                .last = windows[i].ends[0]};
        none = i == 0 || score_of(&one) < score_of(&none) ? one : none;
    }
    const int i_best = best->n > 0 ? 0 : -1;
    best->null_excess = i_best < 0 ? INFINITY : score_of(&none) - score_of(&best->of[0]);
    struct sw_answer_best with = *best;
    insert(&with, rules->n_best, none);
    bool kept = false;
    for (int i = 0; i < with.n; i++) {
        kept = kept || with.of[i].begin == with.of[i].end;
    }
    if (!kept) {
        with.of[with.n++] = none;
    }
    *best = with;
}

static void set_probabilities(struct sw_answer_best *best)
{
    double sum = 0;
    for (int i = 0; i < best->n; i++) {
        best->of[i].probability = exp(score_of(&best->of[i]) - score_of(&best->of[0]));
        sum += best->of[i].probability;
    }
    for (int i = 0; i < best->n; i++) {
        best->of[i].probability /= sum;
    }
}

void sw_answer_choose(const struct sw_context *context, const struct sw_window_scores *windows,
                      int64_t n_windows, const struct sw_answer_rules *rules,
                      struct sw_answer_best *out)
{
    *out = (struct sw_answer_best){0};
    for (int64_t i = 0; i < n_windows; i++) {
        add_window(context, &windows[i], rules, out);
    }
    if (rules->may_be_none && n_windows > 0) {
        add_none(windows, n_windows, rules, out);
    }
    set_probabilities(out);
    out->chosen = out->n > 0 ? 0 : -1;
    for (int i = 0; i < out->n && rules->may_be_none; i++) {
        const bool none = out->of[i].begin == out->of[i].end;
        if (none == (out->null_excess > rules->null_margin)) {
            out->chosen = i;
            break;
        }
    }
}
