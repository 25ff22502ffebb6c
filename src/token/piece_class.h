// SPDX-License-Identifier: Apache-2.0
// Tokenizer classes of transformers that number the pieces of a SentencePiece model themselves, and
// have a normalizer, special tokens and a template of their own.
#pragma once

#include "token/class_files.h"
#include "token/sentencepiece.h"

struct sw_piece_class;

/* Finds the class of a SentencePiece model by the files beside it. *out NULL: texts become the ids
 * of the model itself, as by the library sentencepiece. *name: equal_class of the tokenizer.
 *
 * SW_E_UNSUP  a class that is not in the table, which the message names
 */
sw_status sw_piece_class_find(const struct sw_class_files *files, const struct sw_piece_class **out,
                              const char **name);
/* Makes the tokenizer of a class; `model` must be read from bytes that still exist. */
sw_status sw_piece_class_open(const struct sw_piece_class *class,
                              const struct sw_class_files *files, const struct sw_tokenizer *model,
                              struct sw_pipeline **out);
