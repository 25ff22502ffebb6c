// SPDX-License-Identifier: Apache-2.0
// diff - the differences of two plans, A and B, that diff.c finds and diff_print.c prints. Private
// to this folder.
#pragma once

#include "show/dumped.h"

/* Change of an instruction or tensor from A to B. If several apply, the last one of this list
 * counts. */
enum sw_change {
    SW_CHANGE_NONE,
    SW_CHANGE_PLACE, /* other addresses only */
    SW_CHANGE_WAITS, /* instructions: other waits, queue, segment, predicate or batch */
    SW_CHANGE_ORDER, /* instructions: order relative to other instructions */
    SW_CHANGE_WORK,  /* other bytes, operations, types or kernels */
    SW_CHANGE_TIER,  /* another tier, whatever else changed */
    SW_CHANGE_ONLY_A,
    SW_CHANGE_ONLY_B,
    SW_CHANGE_COUNT
};
const char *sw_change_name(enum sw_change change);

/* Indices into the lists of A and B; -1 = absent. */
struct sw_pair {
    int64_t a, b;
};

struct sw_diff_program {
    int64_t label;           /* word: the program's kind, numbered from the second one on */
    struct sw_pair programs; /* one of them may be missing */
    /* first pair of instructions that differ in more than addresses */
    struct sw_pair first_both;
    int64_t n[SW_CHANGE_COUNT];
    struct sw_pair first[SW_CHANGE_COUNT];
};

enum { SW_DIFF_SHOWN = 10 };

struct sw_diff_row { /* a number that both plans have */
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
    struct sw_pair tensors[SW_CHANGE_COUNT][SW_DIFF_SHOWN]; /* the first few */
    int64_t *others; /* [n_others] words: names of other differences */
    int64_t n_others;
    bool same;
};

void sw_diff_print(const struct sw_diff *d, struct sw_str *out);
void sw_diff_print_json(const struct sw_diff *d, struct sw_str *out);
