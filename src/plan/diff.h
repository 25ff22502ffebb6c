// SPDX-License-Identifier: Apache-2.0
// diff - what diff.c has found of two plans, A and B, and diff_print.c says. Private to the room.
#pragma once

#include "plan/dumped.h"

/* Of an instruction or tensor of A, what became of it in B; the worst that is true. */
enum sw_change {
    SW_CHANGE_NONE,
    SW_CHANGE_PLACE, /* other addresses, nothing else */
    SW_CHANGE_WAITS, /* instructions: other waits, queue, segment, predicate or batch */
    SW_CHANGE_ORDER, /* instructions: before or behind others that it was behind or before */
    SW_CHANGE_WORK,  /* other bytes, operations, types, kernels .. */
    SW_CHANGE_TIER,  /* .. and another tier */
    SW_CHANGE_ONLY_A,
    SW_CHANGE_ONLY_B,
    SW_CHANGE_COUNT
};
const char *sw_change_name(enum sw_change change);

/* Places in lists of A and B; -1 = it has none. */
struct sw_pair {
    int64_t a, b;
};

struct sw_diff_program {
    int64_t label;           /* word: its kind, with a number from the second one on */
    struct sw_pair programs; /* one of them may be missing */
    /* where walking both lists meets what differs in more than its place */
    struct sw_pair first_both;
    int64_t n[SW_CHANGE_COUNT];
    struct sw_pair first[SW_CHANGE_COUNT];
};

enum { SW_DIFF_SHOWN = 10 };

struct sw_diff_row { /* a number of both */
    int64_t name;    /* word */
    int64_t a, b;
};

struct sw_diff {
    const struct sw_plan_source *source; /* [2] */
    struct sw_words words;
    struct sw_dumped plans[2];
    struct sw_diff_row *rows;
    int64_t n_rows, cap_rows;
    struct sw_diff_program *programs;
    int64_t n_programs;
    int64_t n_tensors[SW_CHANGE_COUNT];
    struct sw_pair tensors[SW_CHANGE_COUNT][SW_DIFF_SHOWN]; /* the first ones */
    int64_t *others; /* [n_others] words: what else differs */
    int64_t n_others;
    bool same;
};

void sw_diff_print(const struct sw_diff *d, struct sw_str *out);
void sw_diff_print_json(const struct sw_diff *d, struct sw_str *out);
