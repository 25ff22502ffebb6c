// SPDX-License-Identifier: Apache-2.0
// BPE of one word: start from its bytes (or characters), join the adjacent pair of lowest rank (the
// leftmost among equals) until no pair has a rank. Words are remembered: text repeats them.
#pragma once

#include "data/byte_alphabet.h"
#include "data/data.h"
#include "data/vocab.h"

struct sw_bpe_cache;

struct sw_bpe {
    const struct sw_vocab *vocab; /* borrowed */
    struct sw_byte_alphabet alphabet;
    bool by_char;          /* a word starts from its characters, not from its bytes .. */
    bool byte_fallback;    /* .. and those without a token from their bytes' tokens, <0x00> .. */
    int32_t byte_id[256];  /* id of each byte's letter, or of <0x00> ..; -1: no such token */
    int32_t unknown;       /* id for what has no token; -1: it is left out */
    bool fuse_unknown;     /* neighbours become one */
    bool whole_word_first; /* a word that is a token is not built by merges (ignore_merges) */
    /* Affixes of the tokens that a word starts from: of all but the first, and of the last. The
     * token of a pair has the prefix of its left part alone. */
    struct sw_str prefix, suffix;
    struct sw_bpe_merge *merges; /* [n_slots] hash table by pair of ids */
    size_t n_slots, n_used;
    struct sw_hash_key key;     /* of the places in merges */
    struct sw_bpe_cache *cache; /* owned */
    struct sw_ids symbols;      /* scratch of one word */
    struct sw_ids links;
    uint64_t *heap;
    size_t heap_cap;
    struct sw_str letters, spelled;
};

/* vocab is complete. `bpe` is all zero or fini'd; it works by bytes. */
sw_status sw_bpe_init(struct sw_bpe *bpe, const struct sw_vocab *vocab);
void sw_bpe_fini(struct sw_bpe *bpe);
/* From here on by characters. */
void sw_bpe_use_chars(struct sw_bpe *bpe, bool byte_fallback);
/* Before the first merge. SW_E_NOMEM. */
sw_status sw_bpe_set_affixes(struct sw_bpe *bpe, const char *prefix, const char *suffix);
/* Adds the pair (left, right) of tokens; their concatenation must be a token too. A later line for
 * the same pair replaces the earlier one, as in the reference. */
sw_status sw_bpe_add_merge(struct sw_bpe *bpe, const char *left, size_t left_len, const char *right,
                           size_t right_len, int64_t rank);
/* Appends the ids of a word of bytes. */
sw_status sw_bpe_encode(struct sw_bpe *bpe, const char *word, size_t len, struct sw_ids *out);
