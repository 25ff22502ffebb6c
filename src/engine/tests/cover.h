// SPDX-License-Identifier: Apache-2.0
// Covering arrays: few rows of choices in which each pair, or each triple, of choices of different
// axes occurs.
#pragma once

#include <stdint.h>

enum { COVER_AXES = 32 };

struct cover_row {
    int8_t at[COVER_AXES]; /* the choice of each axis */
};
typedef void (*cover_fn)(void *ctx, const struct cover_row *row);

/* Calls fn with each row. strength: 2 or 3 axes at a time. counts: [n_axes] number of choices.
 * left_out: percent of the tuples that need not occur; the last ones take most rows. Returns the
 * number of rows. */
int cover(int strength, int n_axes, const int *counts, int left_out, cover_fn fn, void *ctx);
