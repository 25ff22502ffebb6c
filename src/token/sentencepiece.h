// SPDX-License-Identifier: Apache-2.0
// A SentencePiece model (tokenizer.model, spiece.model): pieces with scores, and the
// normalisation of text. Ids and texts match the C++ library.
#pragma once

#include "token/tokenizer.h"

/* Parses the bytes of a model; `name` is for messages. No other file is read.
 *
 * SW_E_FORMAT  not a valid model
 * SW_E_UNSUP   an unsupported kind of model, which the message names
 */
sw_status sw_sentencepiece_parse(const char *name, const char *bytes, size_t len,
                                 struct sw_tokenizer **out);
