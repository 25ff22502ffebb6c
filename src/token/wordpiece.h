// SPDX-License-Identifier: Apache-2.0
// WordPiece: takes the longest token that begins the word, then repeatedly the longest continuation
// token (with a prefix) of the rest. A word that cannot be covered this way is unknown (Schuster
// and Nakajima 2012, as BERT uses it).
#pragma once

#include "token/prefix.h"
#include "token/token.h"
#include "token/vocab.h"

struct sw_wordpiece {
    int32_t unknown;
    int64_t max_chars; /* longer words are unknown */
    struct sw_str prefix;
    struct sw_prefix_set first, rest; /* word-initial tokens; continuation tokens without prefix */
};

/* unknown, max_chars and prefix must be set; vocab must outlive the model. SW_E_FORMAT: a token
 * that can occur in a word is longer than SW_PREFIX_MOST_BYTES. */
sw_status sw_wordpiece_init(struct sw_wordpiece *model, const struct sw_vocab *vocab);
void sw_wordpiece_fini(struct sw_wordpiece *model);
/* Appends the ids of a word. */
sw_status sw_wordpiece_encode(struct sw_wordpiece *model, const char *word, size_t len,
                              struct sw_ids *out);
