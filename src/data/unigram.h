// SPDX-License-Identifier: Apache-2.0
// Unigram: of all ways to cut a word into pieces the one whose scores add up to most (Kudo 2018),
// found by Viterbi from left to right. A character that no piece covers alone costs ten more than
// the worst piece, and is unknown.
#pragma once

#include "data/data.h"
#include "data/prefix.h"

/* What a piece is, as SentencePiece numbers it. */
enum sw_piece_kind {
    SW_PIECE_NORMAL = 1,
    SW_PIECE_UNKNOWN,
    SW_PIECE_CONTROL,
    SW_PIECE_USER_DEFINED, /* taken wherever it stands */
    SW_PIECE_UNUSED,
    SW_PIECE_BYTE
};

struct sw_unigram_node {
    double score;  /* of the best way up to here */
    int64_t start; /* of its last piece; -1 = none yet */
    int32_t id;
};

struct sw_unigram {
    struct sw_prefix_set pieces;
    size_t longest;       /* bytes of the longest of them, or of a character; for `single` */
    double *scores;       /* [n_scores] by id; owned */
    unsigned char *kinds; /* [n_scores] enum sw_piece_kind; owned; NULL = all NORMAL */
    int64_t n_scores;
    double min_score;              /* of NORMAL pieces */
    int32_t unknown;               /* -1: a text with unknown characters is refused */
    bool single;                   /* sums are rounded to fp32, as in the C++ library */
    struct sw_unigram_node *nodes; /* scratch; [cap] */
    size_t cap;
};

void sw_unigram_fini(struct sw_unigram *model);
/* A piece of the word, from left to right; neighbours that are unknown come as one. id: -1 where it
 * is unknown. */
typedef sw_status (*sw_piece_fn)(void *ctx, const char *text, size_t len, int32_t id);
/* word: well-formed UTF-8. Calls fn for each piece of the best way. */
sw_status sw_unigram_cut(struct sw_unigram *model, const char *word, size_t len, sw_piece_fn fn,
                         void *ctx);
