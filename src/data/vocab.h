// SPDX-License-Identifier: Apache-2.0
// A vocabulary: token text <-> id, both ways, holes in the ids allowed.
#pragma once

#include "base/base.h"

/* No vocabulary comes near it; a file that asks for more is damaged. */
enum { SW_VOCAB_MAX_ID = (1 << 24) - 1, SW_VOCAB_PAGE = 1024 };

struct sw_vocab_token {
    const char *text; /* NUL-terminated, may hold NUL; NULL where no token has this id */
    size_t len;
};

struct sw_vocab {
    struct sw_arena arena;         /* the texts */
    struct sw_vocab_token **pages; /* [n_pages] of SW_VOCAB_PAGE ids each; NULL: none is taken */
    int64_t n_pages, n_ids;        /* n_ids: highest id + 1 */
    int32_t *slots;                /* [n_slots] hash table of ids, -1 empty */
    size_t n_slots, n_used;        /* n_slots is 0 or a power of two */
    struct sw_hash_key key;        /* of the places in slots: ids do not depend on it */
};

void sw_vocab_init(struct sw_vocab *vocab);
void sw_vocab_fini(struct sw_vocab *vocab);
/* SW_E_FORMAT, starting with the token: id out of range, or taken, or the text is there already. */
sw_status sw_vocab_add(struct sw_vocab *vocab, const char *text, size_t len, int64_t id);
/* -1 if there is none. */
int32_t sw_vocab_find(const struct sw_vocab *vocab, const char *text, size_t len);
/* NULL if there is none. */
const struct sw_vocab_token *sw_vocab_token(const struct sw_vocab *vocab, int64_t id);
/* The ids of <0x00> to <0xFF>, -1 where there is none. */
void sw_vocab_find_bytes(const struct sw_vocab *vocab, int32_t out[256]);
