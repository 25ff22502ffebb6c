// SPDX-License-Identifier: Apache-2.0
// The tokenizer of Marian models, MarianTokenizer of transformers: a SentencePiece model for texts
// that a model reads, one for those that it writes, and one vocabulary for the pieces of both.
#pragma once

#include "token/tokenizer.h"
#include "token/vocab_json.h"

enum sw_marian_file {
    SW_MARIAN_SOURCE,   /* source.spm */
    SW_MARIAN_TARGET,   /* target.spm */
    SW_MARIAN_VOCAB,    /* vocab.json */
    SW_MARIAN_SETTINGS, /* tokenizer_config.json; it and the next may be absent */
    SW_MARIAN_ROLES,    /* special_tokens_map.json */
    SW_MARIAN_ADDED,    /* added_tokens.json */
    SW_MARIAN_FILES
};

/* Parses the files. No other file is read.
 *
 * SW_E_FORMAT  a file is malformed, has a token that the vocabulary lacks, or belongs to another
 *              model
 * SW_E_UNSUP   tokenizer_config.json asks for something that is not built (named)
 */
sw_status sw_marian_parse(const struct sw_named_text files[SW_MARIAN_FILES],
                          struct sw_tokenizer **out);
