// SPDX-License-Identifier: Apache-2.0
// Added tokens: strings that become one id before any other step sees the text. The
// leftmost-longest match wins, then the flags apply. single_word requires that no word character is
// adjacent. lstrip and rstrip include the adjacent white space.
#pragma once

#include "text/text.h"
#include "token/prefix.h"

struct sw_added_token {
    const char *text; /* text to search for; borrowed from the owner of the list */
    size_t len;
    int32_t id;
    bool single_word, lstrip, rstrip, special;
};

/* A searchable set. All zero is an empty one. */
struct sw_added_set {
    struct sw_added_token *tokens; /* [n] sorted by text, no two equal */
    size_t n;
    struct sw_prefix_set texts; /* texts of tokens; ids are indices into tokens */
    struct sw_regex *word;      /* one word character; NULL unless a token is single_word */
};

/* Takes ownership of tokens [n] (from sw_alloc), even on failure. Among equal texts the lowest id
 * stays. SW_E_FORMAT: a token is longer than SW_PREFIX_MOST_BYTES. */
sw_status sw_added_set_init(struct sw_added_set *set, struct sw_added_token *tokens, size_t n);
void sw_added_set_fini(struct sw_added_set *set);

/* Cuts a text into plain pieces and tokens, from left to right. */
struct sw_added_scan {
    const struct sw_added_set *set;
    const char *text;
    size_t len;
    size_t search;  /* where the next match may start */
    size_t covered; /* end of the pieces returned so far */
    const struct sw_added_token
        *pending; /* found already; the plain text before it was returned first */
    size_t pending_end;
    size_t spaces_end; /* end of the white space of the last rstrip token */
};

struct sw_added_piece {
    size_t first, len;                  /* in the text */
    const struct sw_added_token *token; /* NULL: plain text */
};

void sw_added_scan_init(struct sw_added_scan *scan, const struct sw_added_set *set,
                        const char *text, size_t len);
/* The next piece; *out_more false when there is none. Plain pieces are not empty. */
sw_status sw_added_scan_next(struct sw_added_scan *scan, struct sw_added_piece *out,
                             bool *out_more);
