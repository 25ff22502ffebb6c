// SPDX-License-Identifier: Apache-2.0
// BPE as in SentencePiece: of all adjacent pairs whose concatenation is a piece, the pair with the
// highest score is merged first, the leftmost among equals.
#pragma once

#include "token/prefix.h"
#include "token/unigram.h"
#include "token/vocab.h"

struct sw_piece_symbol;
struct sw_piece_pair;

struct sw_piece_bpe {
    const struct sw_vocab *vocab;     /* borrowed, as are the next three */
    const double *scores;             /* [vocab n_ids] */
    const unsigned char *kinds;       /* [vocab n_ids] enum sw_piece_kind */
    const struct sw_prefix_set *user; /* user-defined pieces, which are never split or merged */
    size_t longest;                   /* bytes of the longest piece */
    struct sw_piece_symbol *symbols;  /* scratch */
    struct sw_piece_pair *pairs;      /* a heap */
    size_t cap, n_pairs, cap_pairs;
    int64_t *splits; /* [n_ids] UNUSED pieces: length of the left part in bytes */
};

void sw_piece_bpe_fini(struct sw_piece_bpe *model);
/* Calls fn for each piece of a well-formed UTF-8 text, with id -1 if it is unknown. */
sw_status sw_piece_bpe_cut(struct sw_piece_bpe *model, const char *text, size_t len, sw_piece_fn fn,
                           void *ctx);
