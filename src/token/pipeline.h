// SPDX-License-Identifier: Apache-2.0
// A tokenizer as tokenizer.json describes it: normalizer, added tokens, pre-tokenizer, model and
// decoder as one object. Readers of files fill it part by part and finish it.
#pragma once

#include "token/added.h"
#include "token/bpe.h"
#include "token/decoder.h"
#include "token/normalize.h"
#include "token/pretokenize.h"
#include "token/tokenizer.h"
#include "token/unigram.h"
#include "token/vocab_json.h"
#include "token/wordpiece.h"

#include "json/json.h"

/* An added token as the file declares it. */
struct sw_added_entry {
    struct sw_added_token token; /* its text is owned by `added` of the pipeline */
    bool normalized;             /* its normalised form is searched in the normalised text */
    struct sw_vocab_token form;  /* normalised form; text NULL: same as the token */
};

enum sw_model_kind {
    SW_MODEL_BYTE_BPE,
    SW_MODEL_CHAR_BPE,
    SW_MODEL_UNIGRAM,
    SW_MODEL_WORDPIECE,
    SW_MODEL_WORD_LEVEL /* each word is one token */
};

struct sw_pipeline {
    struct sw_tokenizer super;
    struct sw_vocab vocab; /* the model's */
    struct sw_vocab added; /* added tokens of the file; a token may be in both, with one id */
    enum sw_model_kind kind;
    struct sw_bpe bpe; /* `kind` says which model is used */
    struct sw_unigram unigram;
    struct sw_wordpiece wordpiece;
    int32_t unknown_word; /* WORD_LEVEL: id of unknown words; -1: a text with one is refused */
    bool byte_fallback;   /* UNIGRAM */
    int32_t byte_id[256]; /* ids of <0x00> to <0xFF>; -1: no such token */
    struct sw_normalizer normalizer;
    struct sw_pretokenizer pretokenizer;
    struct sw_decoder
        decoder; /* without steps: byte-level BPE joins bytes, others join with spaces */
    struct sw_added_entry *entries; /* [n_entries] sorted by id once the tokenizer is finished */
    size_t n_entries;
    struct sw_added_set raw, normalized; /* entries, searched before and after the normalizer */
    struct sw_arena texts;               /* normalised forms of entries, `name` */
    const char *name;                    /* name of the file, for messages; may be NULL */
    struct sw_str scratch;               /* normalised text */
};

sw_status sw_pipeline_open(struct sw_pipeline **out);
/* Adds the token `text`. Only the flags of `flags` are used, not its text and len. */
sw_status sw_pipeline_add_token(struct sw_pipeline *tokenizer, const char *text, size_t len,
                                int64_t id, struct sw_added_token flags, bool normalized);
/* Adds the token that a JSON object describes by content, special, single_word, lstrip, rstrip and
 * normalized. */
sw_status sw_pipeline_add_entry(struct sw_pipeline *tokenizer, const struct sw_json_doc *doc,
                                const struct sw_json *entry, int64_t id);
/* Sets the kind of model. */
void sw_pipeline_set_kind(struct sw_pipeline *tokenizer, enum sw_model_kind kind);
/* Makes the model a Unigram of n pieces, without an unknown one. */
sw_status sw_pipeline_open_pieces(struct sw_pipeline *tokenizer, int64_t n);
/* Adds a piece. Ids begin with 0. */
sw_status sw_pipeline_add_piece(struct sw_pipeline *tokenizer, const char *text, size_t len,
                                double score, int32_t id);
/* Call after all pieces are added. */
void sw_pipeline_close_pieces(struct sw_pipeline *tokenizer);
/* Call after all parts are set. Builds the tables for encoding and checks the templates. */
sw_status sw_pipeline_finish(struct sw_pipeline *tokenizer);

/* Parses the text of a tokenizer.json; `name` is for messages. No other file is read. */
sw_status sw_tokenizer_parse_json(const char *name, const char *text, size_t len,
                                  const struct sw_tokenizer_options *options,
                                  struct sw_pipeline **out);

enum { SW_VOCAB_MERGES_FILES = 6 };
/* Parses vocab.json, merges.txt, tokenizer_config.json, the model's config.json,
 * special_tokens_map.json and added_tokens.json. The text of an absent one of the last four is
 * NULL. */
sw_status sw_tokenizer_parse_vocab_merges(const struct sw_named_text files[SW_VOCAB_MERGES_FILES],
                                          const struct sw_tokenizer_options *options,
                                          struct sw_pipeline **out);
