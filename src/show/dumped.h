// SPDX-License-Identifier: Apache-2.0
// dumped - a plan as read from its JSON, whatever version wrote it. It consists of records of
// numbers; strings are replaced by word numbers. All plans of a comparison share their words, so
// equal strings have equal numbers. Private to this folder; diff.c compares two.
#pragma once

#include "show/private.h"

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

/* Each record begins with a hash of all members that have no field here. Strings are word numbers;
 * absent members are 0. */
struct sw_dumped_operand {
    uint64_t rest, rings; /* hashes */
    int64_t tier, offset, bytes, room, dtype;
};

/* A range of one of the lists of a plan. */
struct sw_dumped_span {
    int64_t first, n;
};

/* Fields of an exchange. */
struct sw_dumped_exchange {
    int64_t group, batch, blocking, whole_step, rows;
};

struct sw_dumped_instr {
    uint64_t rest;
    int64_t number, verb, name, queue, segment, phase, scope, tensor, micro, recomputed;
    int64_t waits[SW_QUEUE_COUNT]; /* 0 = no wait, else the number of the instruction + 1 */
    struct sw_dumped_exchange exchange;
    int64_t retired, predicate, last_only;
    int64_t loop, pieces, again, follows; /* the last two: number of the instruction + 1 */
    int64_t dtype, kernel, flops, bytes, n_out;
    int64_t workspace_offset, workspace_bytes;
    struct sw_dumped_span operands;
};

struct sw_dumped_program {
    uint64_t rest, inputs, outputs; /* hashes */
    int64_t kind, micro_batches, instructions, flops, transient_bytes, peak_live_bytes,
        peak_instruction, recomputed_blocks, turns, ahead;
    struct sw_dumped_span instrs;
};

struct sw_dumped_tensor {
    uint64_t rest;
    int64_t name, role, tier, offset, bytes, room, slot_bytes, pack;
};

/* A list that grows. */
struct sw_dumped_list {
    void *items;
    int64_t n, cap;
};

enum sw_dumped_lists {
    SW_DUMPED_PROGRAMS,
    SW_DUMPED_INSTRS, /* of all programs */
    SW_DUMPED_OPERANDS,
    SW_DUMPED_TENSORS,
    SW_DUMPED_LISTS
};

struct sw_dumped {
    uint64_t rest, groups, pack_list, tile_list, step, chosen; /* hashes */
    /* hash of members that follow from the others, or do not belong to the plan */
    uint64_t ignored;
    int64_t fingerprint, tier_bytes[SW_TIER_COUNT], tier_budget[SW_TIER_COUNT];
    int64_t parameter_bytes, state_bytes, gradient_bytes, persistent_bytes, staging_bytes,
        input_bytes;
    int64_t disk_slots, tiled_parameters, tiles, largest_tile_bytes, packs, packed_tensors;
    int64_t micro_steps, moved[2][SW_TIER_COUNT]; /* bytes moved from a tier, and to it */
    struct sw_dumped_span programs, tensors;
    struct sw_dumped_list lists[SW_DUMPED_LISTS];
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
