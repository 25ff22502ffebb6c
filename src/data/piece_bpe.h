// SPDX-License-Identifier: Apache-2.0
// BPE as SentencePiece does it: of all neighbours whose concatenation is a piece those with the
// highest score are joined first, the leftmost among equals.
#pragma once

#include "data/prefix.h"
#include "data/unigram.h"
#include "data/vocab.h"

struct sw_piece_symbol;
struct sw_piece_pair;

struct sw_piece_bpe {
    const struct sw_vocab *vocab;     /* borrowed, like what follows */
    const double *scores;             /* [vocab n_ids] */
    const unsigned char *kinds;       /* [vocab n_ids] enum sw_piece_kind */
    const struct sw_prefix_set *user; /* pieces that are taken as they stand */
    size_t longest;                   /* bytes of the longest piece */
    struct sw_piece_symbol *symbols;  /* scratch */
    struct sw_piece_pair *pairs;      /* a heap */
    size_t cap, n_pairs, cap_pairs;
    int64_t *splits; /* [n_ids] UNUSED pieces: bytes of the left one that it was made of */
};

void sw_piece_bpe_fini(struct sw_piece_bpe *model);
/* text: well-formed UTF-8. Calls fn for each piece, with -1 where it has none. */
sw_status sw_piece_bpe_cut(struct sw_piece_bpe *model, const char *text, size_t len, sw_piece_fn fn,
                           void *ctx);
