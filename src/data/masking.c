// SPDX-License-Identifier: Apache-2.0
// Masks and spans. Span lengths are a random composition of n tokens into k spans. The k - 1
// boundaries are drawn one by one (Knuth's algorithm S), so that no list is needed.
#include "data/masking.h"

#include <math.h>

uint64_t sw_draw_at(const struct sw_draw *draw, enum sw_draw_use use, int64_t i)
{
    /* Weights and sample order use the same seed, so this needs other keys. */
    const uint64_t key = sw_hash(sw_hash(SW_HASH_INIT, &draw->seed, sizeof draw->seed),
                                 &(uint64_t){(uint64_t)use << 1 | draw->split}, sizeof(uint64_t));
    return sw_philox_u64(key, (uint64_t)draw->sample, (uint64_t)i);
}

/* [0, 1) with 53 bits. */
static double unit(uint64_t u)
{
    return (double)(u >> 11) * 0x1p-53;
}

void sw_mask_tokens(const struct sw_draw *draw, int32_t mask_id, int64_t n_ids, int64_t n,
                    int32_t *ids, int32_t *labels)
{
    for (int64_t t = 0; t < n; t++) {
        if (labels[t] == SW_IGNORED_LABEL) {
            continue;
        }
        const double p = unit(sw_draw_at(draw, SW_DRAW_MASK, t)) / 0.15;
        if (p >= 1) {
            labels[t] = SW_IGNORED_LABEL;
        } else if (p < 0.8) {
            ids[t] = mask_id;
        } else if (p < 0.9) {
            ids[t] = (int32_t)(sw_draw_at(draw, SW_DRAW_TOKEN, t) % (uint64_t)n_ids);
        }
    }
}

/* ---- spans ---- */

static sw_status put_sentinel(const struct sw_span_writer *w, int32_t *n, int32_t *out)
{
    if (*n == w->n_sentinels) {
        return SW_FAIL(SW_E_CONFIG, "more spans than the vocabulary's %d sentinels",
                       w->n_sentinels);
    }
    *out = w->first_sentinel - (*n)++;
    return SW_OK;
}

sw_status sw_span_put(struct sw_span_writer *writer, int32_t id, bool masked)
{
    struct sw_span_writer *w = writer;
    if (w->last != masked) {
        SW_TRY(masked ? put_sentinel(w, &w->n_masked, &w->inputs[w->n_inputs])
                      : put_sentinel(w, &w->n_kept, &w->labels[w->n_labels]));
        w->n_inputs += masked;
        w->n_labels += !masked;
        w->last = masked;
    }
    if (masked) {
        w->labels[w->n_labels++] = id;
    } else {
        w->inputs[w->n_inputs++] = id;
    }
    return SW_OK;
}

void sw_span_end(struct sw_span_writer *writer)
{
    writer->inputs[writer->n_inputs++] = writer->eos;
    writer->labels[writer->n_labels++] = writer->eos;
}

struct sw_span_plan sw_span_plan_of(int64_t n)
{
    struct sw_span_plan plan = {.n_inputs = 1, .n_labels = 1};
    if (n > 0) {
        plan.n_masked = sw_min_i64(sw_max_i64(llround((double)n * 0.15), n > 1), n - (n > 1));
        plan.n_spans = plan.n_masked > 0 ? sw_max_i64(llround((double)plan.n_masked / 3.0), 1) : 0;
        plan.n_spans = sw_min_i64(plan.n_spans, n - plan.n_masked);
        plan.n_inputs = n - plan.n_masked + plan.n_spans + 1;
        plan.n_labels = plan.n_masked + sw_max_i64(plan.n_spans, 1) + 1;
    }
    return plan;
}

int64_t sw_span_most(int64_t n_inputs, int64_t n_labels)
{
    int64_t low = 0, high = 2 * n_inputs; /* fits, does not */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        const struct sw_span_plan plan = sw_span_plan_of(middle);
        if (plan.n_inputs <= n_inputs && plan.n_labels <= n_labels) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Draws one by one the lengths of n_spans spans that total n tokens. */
struct lengths {
    const struct sw_draw *draw;
    enum sw_draw_use use;
    int64_t n, n_spans; /* left */
    int64_t i;          /* of the next draw */
};

static int64_t next_length(struct lengths *l)
{
    int64_t length = 1;
    while (l->n_spans > 1 && l->n - length >= l->n_spans - 1) {
        /* n_spans - 1 of the remaining n - length positions are span ends. */
        const uint64_t u = sw_draw_at(l->draw, l->use, l->i++);
        if ((int64_t)(u % (uint64_t)(l->n - length)) < l->n_spans - 1) {
            break;
        }
        length++;
    }
    length = l->n_spans > 1 ? length : l->n;
    l->n -= length;
    l->n_spans--;
    return length;
}

sw_status sw_span_corrupt(const struct sw_draw *draw, const int32_t *ids, int64_t n,
                          struct sw_span_writer *writer)
{
    const struct sw_span_plan plan = sw_span_plan_of(n);
    struct lengths masked = {draw, SW_DRAW_SPANS, plan.n_masked, plan.n_spans, 0};
    struct lengths kept = {draw, SW_DRAW_KEPT, n - plan.n_masked, sw_max_i64(plan.n_spans, n > 0),
                           0};
    for (int64_t at = 0; at < n;) {
        for (int side = 0; side < 2; side++) {
            struct lengths *l = side ? &masked : &kept;
            const int64_t length = l->n_spans > 0 ? next_length(l) : 0;
            for (int64_t i = 0; i < length; i++) {
                SW_TRY(sw_span_put(writer, ids[at++], side));
            }
        }
    }
    sw_span_end(writer);
    return SW_OK;
}
