// SPDX-License-Identifier: Apache-2.0
// order - which sample a number of the training order stands for, beyond a shuffle: shares of
// several sources, and batches of similar lengths. Both are pure functions of the seed and the
// number, so a run that continues needs no other state.
#pragma once

#include <stdint.h>

#include "base/base.h"

enum { SW_MIX_SLOTS = 65536 }; /* samples after which the shares are exact */

/* Sources in fixed shares. All zero: there is one. */
struct sw_mix {
    int64_t *ends; /* [n] owned: of SW_MIX_SLOTS samples, source i has ends[i] - ends[i - 1] */
    int n;
};
/* weights [n] above 0; their sum is the whole. SW_E_CONFIG: a weight is not above 0, or too small a
 * part of the whole for a slot. */
sw_status sw_mix_init(struct sw_mix *mix, const double *weights, int n);
void sw_mix_fini(struct sw_mix *mix);

/* A sample of a source, numbered without end. */
struct sw_mixed {
    int source;
    int64_t number;
};
struct sw_mixed sw_mix_at(const struct sw_mix *mix, uint64_t seed, int64_t sample);

/* A sample and its number of tokens. */
struct sw_length {
    int64_t tokens, sample;
};
/* Reorders n samples into batches of similar lengths, as transformers' group_by_length does, the
 * batches in an order drawn from (seed, number). n is a multiple of batch. */
void sw_lengths_group(struct sw_length *items, int64_t n, int64_t batch, uint64_t seed,
                      int64_t number, struct sw_length *scratch);
