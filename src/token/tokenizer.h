// SPDX-License-Identifier: Apache-2.0
// tokenizer - calls on the base of all kinds, for the files of this room that read a tokenizer.
#pragma once

#include "json/json.h"
#include "token/token.h"

/* A file as it was read; sw_tokenizer_save writes it. */
struct sw_saved_file {
    char *name, *data; /* owned */
    size_t len;
    bool is_unused; /* nothing in it was read */
};

/* Initialises with ids -1 and templates without special tokens. */
sw_status sw_tokenizer_init(struct sw_tokenizer *tokenizer, const struct sw_tokenizer_ops *ops,
                            const char *kind);
/* Makes each text begin with bos, end with eos, or both. SW_E_FORMAT: there is no such token. */
sw_status sw_tokenizer_surround(struct sw_tokenizer *tokenizer, bool bos, bool eos);
/* Puts texts between two special tokens. RoBERTa: <s> A </s></s> B </s>, all of type 0. BERT: [CLS]
 * A [SEP] B [SEP], with B and its [SEP] of type 1. */
sw_status sw_tokenizer_mark(struct sw_tokenizer *tokenizer, int32_t cls, int32_t sep, bool roberta);
/* Drops the tokens that the single-text template puts before a text. */
void sw_tokenizer_drop_bos(struct sw_tokenizer *tokenizer);
void sw_tokenizer_fini(struct sw_tokenizer *tokenizer);

/* Keeps a copy of a file for sw_tokenizer_save. */
sw_status sw_tokenizer_keep_file(struct sw_tokenizer *tokenizer, const char *name, const char *data,
                                 size_t len);

/* Whether sw_tokenizer_open looks for a file of this name in a folder. */
bool sw_tokenizer_knows_file(const char *name);

/* Reads a JSON file beside a tokenizer. An absent file gives an empty object under its name. */
sw_status sw_tokenizer_read_beside(const char *folder, const char *name, struct sw_json_doc **out);
/* Keeps added_tokens.json for saving, if it is there. */
sw_status sw_tokenizer_keep_added(struct sw_tokenizer *tokenizer, const char *folder);
/* Finds eos, bos and pad in the optional files tokenizer_config.json and special_tokens_map.json.
 * The latter has precedence, but see sw_tokenizer_lists_added. Well-known names are the default. */
sw_status sw_tokenizer_read_roles(struct sw_tokenizer *tokenizer, const char *folder);
/* Sets cut_left: side is "left" or "right", in any case; key is for the message. */
sw_status sw_tokenizer_set_cut(struct sw_tokenizer *tokenizer, const char *key, const char *side);
/* Sets all token types of the templates to 0 if the folder's files say that the model takes
 * none. */
sw_status sw_tokenizer_read_types(struct sw_tokenizer *tokenizer, const char *folder);
/* Whether an item's type is not 0. */
bool sw_template_has_types(const struct sw_template *template);
/* Whether a class, with "Tokenizer" or "TokenizerFast" at its end, names token types as inputs. */
bool sw_tokenizer_class_has_types(const char *name);
/* Names equal_class in the tokenizer_config.json that sw_tokenizer_save writes, unless the file
 * names a class already. Beside the config.json of any model the saved files then make the same
 * tokenizer. */
sw_status sw_tokenizer_keep_class(struct sw_tokenizer *tokenizer);
/* Sets the templates of a class whose texts have the code of their language. */
sw_status sw_tokenizer_read_languages(struct sw_tokenizer *tokenizer, const char *folder);
/* The string of a token, "x" or {"content": "x", ..}; NULL: it is neither. */
const struct sw_json *sw_tokenizer_token_text(const struct sw_json *token);
/* The text of a role's token; NULL: null or absent. */
const char *sw_tokenizer_role_text(const struct sw_json *object, const char *key);
/* Takes the roles from the text of one of these files. */
sw_status sw_tokenizer_parse_roles(struct sw_tokenizer *tokenizer, const char *name,
                                   const char *text, size_t len);

/* ---- the kinds ---- */

/* Opens a tokenizer.json and the optional files beside it. */
sw_status sw_tokenizer_open_json(const char *path, const struct sw_tokenizer_options *options,
                                 struct sw_tokenizer **out);
/* Opens the two files of a byte-level BPE and the optional files beside them. */
sw_status sw_tokenizer_open_vocab_merges(const char *vocab_path, const char *merges_path,
                                         const struct sw_tokenizer_options *options,
                                         struct sw_tokenizer **out);
/* Opens the folder of a Marian model: source.spm, target.spm, vocab.json and the optional files
 * beside them. */
sw_status sw_tokenizer_open_marian(const char *folder, struct sw_tokenizer **out);
/* Opens a SentencePiece model and the optional files beside it. */
sw_status sw_tokenizer_open_sentencepiece(const char *path, struct sw_tokenizer **out);
/* Opens BERT's vocab.txt and the optional files beside it. */
sw_status sw_tokenizer_open_vocab_txt(const char *path, struct sw_tokenizer **out);
/* Opens a chars.json. */
sw_status sw_tokenizer_open_chars_json(const char *path, struct sw_tokenizer **out);
