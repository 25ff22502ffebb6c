// SPDX-License-Identifier: Apache-2.0
// Rules for generated text: required tokens and forbidden tokens. Order and formulas are those of
// transformers' logits processors.
#include <math.h>

#include "engine/private.h"

static int32_t token_at(const struct engine_text *t, int64_t i)
{
    return i < t->n_before ? t->before[i] : t->fresh[i - t->n_before];
}

static void forbid(float *logits, int64_t vocab, int32_t id)
{
    if (id >= 0 && id < vocab) {
        logits[id] = -INFINITY;
    }
}

static void forbid_all(float *logits, int64_t vocab, const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        forbid(logits, vocab, ids[i]);
    }
}

/* Applies the repetition penalty once per distinct token, however often it occurs. */
static void punish(const struct engine_text *t, double factor, float *logits)
{
    const int64_t n = t->n_before + t->n_fresh;
    for (int64_t i = 0; i < n; i++) {
        const int32_t id = token_at(t, i);
        int64_t earlier = 0;
        while (earlier < i && token_at(t, earlier) != id) {
            earlier++;
        }
        if (earlier == i) {
            const float x = logits[id], by = (float)factor;
            logits[id] = x < 0 ? x * by : x / by;
        }
    }
}

/* Forbids each token that would complete an n-gram of the text a second time. */
static void forbid_repeats(const struct engine_text *t, int64_t size, float *logits, int64_t vocab)
{
    const int64_t n = t->n_before + t->n_fresh;
    for (int64_t first = 0; first + size <= n; first++) {
        int64_t same = 0;
        while (same < size - 1 && token_at(t, first + same) == token_at(t, n - (size - 1) + same)) {
            same++;
        }
        if (same == size - 1) {
            forbid(logits, vocab, token_at(t, first + size - 1));
        }
    }
}

bool sw_engine_ends_text(const struct sw_sampling *sampling, int32_t id)
{
    bool any = id == sampling->stop_id;
    for (int64_t i = 0; i < sampling->n_stop_ids; i++) {
        any = any || id == sampling->stop_ids[i];
    }
    return any;
}

int32_t sw_engine_apply_rules(const struct engine_text *t, const struct sw_sampling *sampling,
                              float *logits, int64_t vocab)
{
    const struct sw_text_rules *r = sampling->rules;
    if (!r) {
        return -1;
    }
    const bool first = t->n_before == 1 && t->n_fresh == 0 && r->first_id >= 0;
    if (first || (r->last_id >= 0 && t->n_fresh == t->most - 1)) {
        return t->n_fresh == t->most - 1 && r->last_id >= 0 ? r->last_id : r->first_id;
    }
    const int64_t free_from = t->n_before == 1 && r->first_id >= 0 ? 1 : 0;
    if (r->repetition > 0 && r->repetition != 1) {
        punish(t, r->repetition, logits);
    }
    if (r->no_repeat > 0) {
        forbid_repeats(t, r->no_repeat, logits, vocab);
    }
    if (t->n_fresh < r->least) {
        forbid(logits, vocab, sampling->stop_id);
        forbid_all(logits, vocab, sampling->stop_ids, sampling->n_stop_ids);
    }
    forbid_all(logits, vocab, r->never, r->n_never);
    if (t->n_fresh == free_from) {
        forbid_all(logits, vocab, r->begins, r->n_begins);
    }
    return -1;
}
