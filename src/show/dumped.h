// SPDX-License-Identifier: Apache-2.0
// dumped - a plan as read from its JSON, whatever version wrote it. It consists of the records of
// fields.h; strings are replaced by word numbers. All plans of a comparison share their words, so
// equal strings have equal numbers. Private to this folder; diff.c compares two.
#pragma once

#include "show/fields.h"

/* Strings by number. 0 is "", which also stands for an absent string. */
struct sw_words {
    struct sw_arena arena;
    struct sw_hash_key key;
    const char **texts; /* [n] */
    int64_t *slots;     /* [n_slots] number of the word, 0 = free */
    int64_t n, cap, n_slots;
};
sw_status sw_words_open(struct sw_words *words);
void sw_words_close(struct sw_words *words);
/* SW_E_NOMEM */
sw_status sw_words_find(struct sw_words *words, const char *text, int64_t *out);

/* A list that grows. */
struct sw_dumped_list {
    void *items;
    int64_t n, cap;
};

struct sw_dumped {
    struct sw_dumped_plan plan;
    struct sw_dumped_list lists[SW_DUMPED_LISTS]; /* [.] records of the lists of fields.h */
};

static inline const struct sw_dumped_program *sw_dumped_program(const struct sw_dumped *d,
                                                                int64_t i)
{
    return (const struct sw_dumped_program *)d->lists[SW_DUMPED_PROGRAMS].items + i;
}
/* i is an index over all programs. */
static inline const struct sw_dumped_instr *sw_dumped_instr(const struct sw_dumped *d, int64_t i)
{
    return (const struct sw_dumped_instr *)d->lists[SW_DUMPED_INSTRS].items + i;
}
static inline const struct sw_dumped_operand *sw_dumped_operand(const struct sw_dumped *d,
                                                                int64_t i)
{
    return (const struct sw_dumped_operand *)d->lists[SW_DUMPED_OPERANDS].items + i;
}
static inline const struct sw_dumped_tensor *sw_dumped_tensor(const struct sw_dumped *d, int64_t i)
{
    return (const struct sw_dumped_tensor *)d->lists[SW_DUMPED_TENSORS].items + i;
}

/*
 * sw_dumped_read - reads a plan that `spillway plan --json` wrote.
 *
 * SW_E_FORMAT  not JSON, or not a plan: names the file and the member
 */
sw_status sw_dumped_read(const struct sw_plan_source *source, struct sw_words *words,
                         struct sw_dumped *out);
void sw_dumped_close(struct sw_dumped *dumped);
