// SPDX-License-Identifier: Apache-2.0
// Shares are exact in every SW_MIX_SLOTS samples: each source has a fixed number of slots there,
// and a permutation drawn for each run of slots says which slot a sample takes. A source's samples
// are so numbered by counting, without a list.
#include "data/order.h"

#include "data/shuffle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Slots by largest remainder; of equal ones, the earlier source gets one. */
static sw_status share(const double *weights, int n, double sum, double *rest, int64_t *slots)
{
    int64_t given = 0;
    for (int i = 0; i < n; i++) {
        const double exact = weights[i] / sum * SW_MIX_SLOTS;
        slots[i] = (int64_t)exact;
        rest[i] = exact - (double)slots[i];
        given += slots[i];
    }
    for (; given < SW_MIX_SLOTS; given++) {
        int most = 0;
        for (int i = 1; i < n; i++) {
            most = rest[i] > rest[most] ? i : most;
        }
        slots[most]++;
        rest[most] = -1;
    }
    for (int i = 0; i < n; i++) {
        if (slots[i] < 1) {
            return SW_FAIL(SW_E_CONFIG, "weight %g of %g is less than one sample in %d", weights[i],
                           sum, SW_MIX_SLOTS);
        }
    }
    return SW_OK;
}

sw_status sw_mix_init(struct sw_mix *mix, const double *weights, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        if (!(weights[i] > 0 && isfinite(weights[i]))) {
            return SW_FAIL(SW_E_CONFIG, "weight %g of data; wanted a number above 0", weights[i]);
        }
        sum += weights[i];
    }
    if (!isfinite(sum)) {
        return SW_FAIL(SW_E_CONFIG, "the weights of data add up to %g", sum);
    }
    int64_t *ends = sw_alloc("dataset", (size_t)n * sizeof *ends);
    double *rest = sw_alloc("dataset", (size_t)n * sizeof *rest);
    sw_status st = ends && rest ? share(weights, n, sum, rest, ends)
                                : SW_FAIL(SW_E_NOMEM, "out of host memory for the weights");
    sw_free(rest);
    if (st < 0) {
        sw_free(ends);
        return st;
    }
    for (int i = 1; i < n; i++) {
        ends[i] += ends[i - 1];
    }
    *mix = (struct sw_mix){ends, n};
    return SW_OK;
}

void sw_mix_fini(struct sw_mix *mix)
{
    sw_free(mix->ends);
    *mix = (struct sw_mix){0};
}

struct sw_mixed sw_mix_at(const struct sw_mix *mix, uint64_t seed, int64_t sample)
{
    if (mix->n < 2) {
        return (struct sw_mixed){0, sample};
    }
    const int64_t run = sample / SW_MIX_SLOTS;
    const int64_t slot =
        sw_shuffle(sw_hash_str(seed, "mix"), run, SW_MIX_SLOTS, sample % SW_MIX_SLOTS);
    int i = 0;
    while (slot >= mix->ends[i]) {
        i++;
    }
    const int64_t first = i > 0 ? mix->ends[i - 1] : 0;
    return (struct sw_mixed){i, run * (mix->ends[i] - first) + slot - first};
}

/* Longest first; equal ones keep their order. */
static int compare(const void *a, const void *b)
{
    const struct sw_length *x = a, *y = b;
    const int by_length = (x->tokens < y->tokens) - (x->tokens > y->tokens);
    return by_length != 0 ? by_length : (x->sample > y->sample) - (x->sample < y->sample);
}

void sw_lengths_group(struct sw_length *items, int64_t n, int64_t batch, uint64_t seed,
                      int64_t number, struct sw_length *scratch)
{
    const int64_t batches = n / batch;
    qsort(items, (size_t)n, sizeof *items, compare);
    memcpy(scratch, items, (size_t)n * sizeof *items);
    for (int64_t i = 0; i < batches; i++) {
        const int64_t from = sw_shuffle(sw_hash_str(seed, "lengths"), number, batches, i);
        memcpy(items + i * batch, scratch + from * batch, (size_t)batch * sizeof *items);
    }
}
