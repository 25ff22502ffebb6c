// SPDX-License-Identifier: Apache-2.0
// Unigram: cuts a word into the pieces with the highest total score (Kudo 2018), by the Viterbi
// algorithm. A character without a piece of its own is unknown: its score is ten below the worst
// piece.
#pragma once

#include "token/prefix.h"
#include "token/token.h"

/* Kind of a piece, with SentencePiece's numbers. */
enum sw_piece_kind {
    SW_PIECE_NORMAL = 1,
    SW_PIECE_UNKNOWN,
    SW_PIECE_CONTROL,
    SW_PIECE_USER_DEFINED, /* matched wherever it occurs */
    SW_PIECE_UNUSED,
    SW_PIECE_BYTE
};

struct sw_unigram_node {
    double score;  /* of the best segmentation up to here */
    int64_t start; /* of its last piece; -1: not reached yet */
    int32_t id;
};

struct sw_unigram {
    struct sw_prefix_set pieces;
    size_t longest;       /* bytes of the longest piece, or of a character; for `single` */
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
/* Receives the pieces from left to right. Adjacent unknown characters come as one piece. id: -1 if
 * unknown. */
typedef sw_status (*sw_piece_fn)(void *ctx, const char *text, size_t len, int32_t id);
/* Calls fn for each piece of the best segmentation of `word`, which is well-formed UTF-8. */
sw_status sw_unigram_cut(struct sw_unigram *model, const char *word, size_t len, sw_piece_fn fn,
                         void *ctx);
