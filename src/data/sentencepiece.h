// SPDX-License-Identifier: Apache-2.0
// A SentencePiece model (tokenizer.model, spiece.model): pieces with scores, and how text is made
// ready for them. The ids and texts are those of its C++ library.
#pragma once

#include "data/tokenizer.h"

/* The bytes of a model; name for messages. Nothing beside it is read.
 *
 * SW_E_FORMAT  no such model
 * SW_E_UNSUP   a kind of model that is not built, named
 */
sw_status sw_sentencepiece_parse(const char *name, const char *bytes, size_t len,
                                 struct sw_tokenizer **out);
