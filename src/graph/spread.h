// SPDX-License-Identifier: Apache-2.0
// Shared by the files that make the graph of one rank: spreads of values, and what an op wants of
// its inputs if one of them is cut.
#pragma once

#include "graph/private.h"

/* How the ranks have a value. CUT: along split.dim, each group in `parts` equal parts; a last part
 * that is too short is padded. With fewer parts than ranks, consecutive ranks have the same one.
 * Groups that repeat: parts / repeats consecutive ranks divide those of each repeat. */
struct sw_spread {
    enum sw_spread_kind kind;
    bool is_rows; /* CUT: of a sequence-parallel region */
    int parts;
    struct sw_tensor_split split;
    int copies[SW_SPLIT_MAX_GROUPS]; /* of each part of a group; 0 counts as 1 */
    int repeats;                     /* 0 counts as 1 */
    bool is_nested;                  /* split.dim has the repeats, the next one the groups */
};

/* An op as this rank computes it. */
struct sw_op_part {
    struct sw_op op; /* attributes */
    struct sw_spread in[SW_MAX_INPUTS], out[SW_MAX_OUTPUTS];
};

static inline struct sw_spread sw_spread_of(enum sw_spread_kind kind)
{
    return (struct sw_spread){.kind = kind};
}
/* Equal parts of one dimension. */
struct sw_spread sw_spread_cut(int dim, int64_t elems, int parts);
bool sw_spread_equal(const struct sw_spread *a, const struct sw_spread *b);
/* Number of different parts of a group, or of it in one repeat. */
int sw_spread_parts(const struct sw_spread *spread, int group);
/* True if all parts of all groups have equally many elements. */
bool sw_spread_is_even(const struct sw_spread *spread);
/* The shape of a part. */
struct sw_shape sw_spread_shape(const struct sw_spread *spread, const struct sw_shape *whole);

/* Finds the spreads of all operands if input `lead` is cut like that. desc: the whole op. false =
 * the op cannot work on such parts. */
bool sw_op_part(const struct sw_op_desc *desc, int lead, const struct sw_spread *cut,
                const struct sw_ranks *ranks, struct sw_op_part *out);
/* The same if input 0 is a sum over ranks, and the op is linear in it. */
bool sw_op_part_of_sum(const struct sw_op_desc *desc, const struct sw_spread *in,
                       struct sw_op_part *out);
