// SPDX-License-Identifier: Apache-2.0
// pack - packs documents into rows of T tokens by best-fit decreasing over the whole set. Documents
// go longest first, each into the fullest row with room for it. Ties: the earlier document, and the
// row that reached its length first. The result thus depends only on the lengths and T. Johnson
// (1974) bounds the number of rows by 11/9 of the optimum.
#pragma once

#include "base/base.h"

struct sw_packing {
    int64_t n_rows;
    int64_t *first;     /* [n_rows + 1] offset of each row's documents in `documents` */
    int64_t *documents; /* [n] */
};

/* Each of lengths [n] is in 1 .. T. */
sw_status sw_pack(const int64_t *lengths, int64_t n, int64_t T, struct sw_packing *out);
void sw_packing_fini(struct sw_packing *packing);
