// SPDX-License-Identifier: Apache-2.0
// A SentencePiece model (tokenizer.model, spiece.model): pieces with scores, and the
// normalisation of text. Ids and texts match the C++ library.
#pragma once

#include "token/tokenizer.h"
#include "token/unigram.h"
#include "token/vocab.h"

/* Parses the bytes of a model; `name` is for messages. No other file is read.
 *
 * SW_E_FORMAT  not a valid model
 * SW_E_UNSUP   an unsupported kind of model, which the message names
 */
sw_status sw_sentencepiece_parse(const char *name, const char *bytes, size_t len,
                                 struct sw_tokenizer **out);

/* The pieces of a model, and the map by which it normalises texts. */
struct sw_sentencepiece_parts {
    const struct sw_vocab *vocab; /* [n] pieces by id */
    const double *scores;
    const unsigned char *kinds; /* enum sw_piece_kind */
    int64_t n;
    bool is_unigram;
    const char *charsmap; /* [charsmap_len] part of the bytes that the model was read from */
    size_t charsmap_len;
};
void sw_sentencepiece_parts(const struct sw_tokenizer *model, struct sw_sentencepiece_parts *out);

/* ---- pieces as text, for a vocabulary that numbers the pieces of several models ---- */

/* Calls fn for each piece of a text, from left to right, with its spelling. id: that of the model;
 * -1: neighbouring characters that no piece covers. Their spelling is that of the normalised text.
 *
 * SW_E_FORMAT  the text is not UTF-8, or the normalisation makes too much of it
 */
sw_status sw_sentencepiece_cut(struct sw_tokenizer *model, const char *text, size_t len,
                               sw_piece_fn fn, void *ctx);
/* Appends the text of ids [n_ids], which are those of `names` and all have a token there. A token
 * that is not a piece of the model stays as it is spelled. */
sw_status sw_sentencepiece_join(const struct sw_tokenizer *model, const struct sw_vocab *names,
                                const int32_t *ids, int64_t n_ids, struct sw_str *out);
