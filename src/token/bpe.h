// SPDX-License-Identifier: Apache-2.0
// BPE of one word: start from its bytes (or characters) and merge the adjacent pair of
// lowest rank (the leftmost among equals) until no pair has a rank. Results are cached by word.
#pragma once

#include "token/byte_alphabet.h"
#include "token/token.h"
#include "token/vocab.h"

struct sw_bpe_cache;

struct sw_bpe {
    const struct sw_vocab *vocab; /* borrowed */
    struct sw_byte_alphabet alphabet;
    bool by_char;          /* a word starts from its characters, not its bytes */
    bool byte_fallback;    /* by_char: a character without a token becomes its byte tokens <0xNN> */
    int32_t byte_id[256];  /* id of each byte's letter or of its <0xNN> token; -1: no such token */
    int32_t unknown;       /* id of the unknown token; -1: symbols without a token are dropped */
    bool fuse_unknown;     /* adjacent unknown symbols become one token */
    bool whole_word_first; /* a word that is itself a token skips the merges (ignore_merges) */
    /* Affixes of a word's initial tokens: all but the first have the prefix, the last has the
     * suffix. A merged pair keeps only the prefix of its left part. */
    struct sw_str prefix, suffix;
    struct sw_bpe_merge *merges; /* [n_slots] hash table by pair of ids */
    size_t n_slots, n_used;
    struct sw_hash_key key;     /* hash key of `merges` */
    struct sw_bpe_cache *cache; /* owned */
    struct sw_ids symbols;      /* scratch for one word */
    struct sw_ids links;
    uint64_t *heap;
    size_t heap_cap;
    struct sw_str letters, spelled;
};

/* Initialises `bpe`, which is all zero or fini'd, in byte mode. `vocab` must be complete. */
sw_status sw_bpe_init(struct sw_bpe *bpe, const struct sw_vocab *vocab);
void sw_bpe_fini(struct sw_bpe *bpe);
/* Switches to character mode. */
void sw_bpe_use_chars(struct sw_bpe *bpe, bool byte_fallback);
/* Must be called before the first merge. Fails with SW_E_NOMEM only. */
sw_status sw_bpe_set_affixes(struct sw_bpe *bpe, const char *prefix, const char *suffix);
/* Adds the pair (left, right) of tokens; their concatenation must be a token too. A later line for
 * the same pair replaces the earlier one, as in the reference. */
sw_status sw_bpe_add_merge(struct sw_bpe *bpe, const char *left, size_t left_len, const char *right,
                           size_t right_len, int64_t rank);
/* Appends the ids of one word. */
sw_status sw_bpe_encode(struct sw_bpe *bpe, const char *word, size_t len, struct sw_ids *out);
