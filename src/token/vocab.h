// SPDX-License-Identifier: Apache-2.0
// A vocabulary: maps token text to id and back. Ids may have holes.
#pragma once

#include "base/base.h"

/* No real vocabulary comes near this limit; a file with a higher id is damaged. */
enum { SW_VOCAB_MAX_ID = (1 << 24) - 1, SW_VOCAB_PAGE = 1024 };

struct sw_vocab_token {
    const char *text; /* NUL-terminated, may hold NUL; NULL: no token has this id */
    size_t len;
};

struct sw_vocab {
    struct sw_arena arena; /* the texts */
    struct sw_vocab_token *
        *pages; /* [n_pages] of SW_VOCAB_PAGE ids each; NULL: no id of the page is in use */
    int64_t n_pages, n_ids; /* n_ids: highest id + 1 */
    int32_t *slots;         /* [n_slots] hash table of ids, -1 empty */
    size_t n_slots, n_used; /* n_slots is 0 or a power of two */
    struct sw_hash_key key; /* hash key of slots; ids do not depend on it */
};

void sw_vocab_init(struct sw_vocab *vocab);
void sw_vocab_fini(struct sw_vocab *vocab);
/* SW_E_FORMAT: the id is out of range or taken, or the text exists. The message begins with the
 * token. */
sw_status sw_vocab_add(struct sw_vocab *vocab, const char *text, size_t len, int64_t id);
/* The id of a token; -1: there is none. */
int32_t sw_vocab_find(const struct sw_vocab *vocab, const char *text, size_t len);
/* The token of an id; NULL: there is none. */
const struct sw_vocab_token *sw_vocab_token(const struct sw_vocab *vocab, int64_t id);
/* The ids of <0x00> to <0xFF>; -1: no such token. */
void sw_vocab_find_bytes(const struct sw_vocab *vocab, int32_t out[256]);
