// SPDX-License-Identifier: Apache-2.0
// pack - documents into rows of T tokens, several to a row: best-fit decreasing over the whole set.
// The longest document goes first, each into the fullest row that has room for it; of equal
// documents the earlier one first, of rows alike the one that came to that length first. So what a
// row holds depends on the lengths and T alone. Johnson (1974) bounds the rows by 11/9 of the
// fewest.
#pragma once

#include "base/base.h"

struct sw_packing {
    int64_t n_rows;
    int64_t *first;     /* [n_rows + 1] where the documents of a row begin in `documents` */
    int64_t *documents; /* [n] */
};

/* lengths [n] of 1 .. T. */
sw_status sw_pack(const int64_t *lengths, int64_t n, int64_t T, struct sw_packing *out);
void sw_packing_fini(struct sw_packing *packing);
