// SPDX-License-Identifier: Apache-2.0
// A tokenizer as tokenizer.json describes it: normalizer, added tokens, pre-tokenizer, model and
// decoder as one object. Readers of files fill it part by part and finish it.
#pragma once

#include "data/added.h"
#include "data/bpe.h"
#include "data/decoder.h"
#include "data/normalize.h"
#include "data/pretokenize.h"
#include "data/tokenizer.h"
#include "data/unigram.h"
#include "data/wordpiece.h"

#include "json/json.h"

/* An added token as the file has it. */
struct sw_added_entry {
    struct sw_added_token token; /* text lives in the vocabulary of added tokens */
    bool normalized;             /* searched in the normalised text, in its own normalised form */
    struct sw_vocab_token form;  /* that one, if it is another; text NULL: it is not */
};

enum sw_model_kind {
    SW_MODEL_BYTE_BPE,
    SW_MODEL_CHAR_BPE,
    SW_MODEL_UNIGRAM,
    SW_MODEL_WORDPIECE,
    SW_MODEL_WORD_LEVEL /* a word is a token */
};

struct sw_pipeline {
    struct sw_tokenizer super;
    struct sw_vocab vocab; /* of the model */
    struct sw_vocab added; /* tokens of the file's list; a token may be in both, under one id */
    enum sw_model_kind kind;
    struct sw_bpe bpe; /* the model is one of these */
    struct sw_unigram unigram;
    struct sw_wordpiece wordpiece;
    int32_t unknown_word; /* WORD_LEVEL: what is no token becomes it; -1 = such a text is refused */
    bool byte_fallback;   /* of unigram */
    int32_t byte_id[256]; /* its <0x00> to <0xFF>; -1 = none */
    struct sw_normalizer normalizer;
    struct sw_pretokenizer pretokenizer;
    struct sw_decoder decoder; /* no step: tokens with spaces between; bytes of a byte-level BPE */
    struct sw_added_entry *entries; /* [n_entries] by id once the tokenizer is finished */
    size_t n_entries;
    struct sw_added_set raw, normalized; /* entries, searched before and after the normalizer */
    struct sw_arena texts;               /* normalised forms of entries, `name` */
    const char *name;                    /* of its file, for messages; NULL: none is needed */
    struct sw_str scratch;               /* normalised text */
};

sw_status sw_pipeline_open(struct sw_pipeline **out);
/* The added token `text` (with the flags of `flags`; its text and len are not used). */
sw_status sw_pipeline_add_token(struct sw_pipeline *tokenizer, const char *text, size_t len,
                                int64_t id, struct sw_added_token flags, bool normalized);
/* The same from its object in a JSON file: content, special, single_word, lstrip, rstrip,
 * normalized. */
sw_status sw_pipeline_add_entry(struct sw_pipeline *tokenizer, const struct sw_json_doc *doc,
                                const struct sw_json *entry, int64_t id);
/* What model it is: fills the one of them that stays. */
void sw_pipeline_set_kind(struct sw_pipeline *tokenizer, enum sw_model_kind kind);
/* After all parts: builds what encoding needs and checks the templates. */
sw_status sw_pipeline_finish(struct sw_pipeline *tokenizer);

/* The text of a tokenizer.json; name for messages. Nothing beside it is read. */
sw_status sw_tokenizer_parse_json(const char *name, const char *text, size_t len,
                                  const struct sw_tokenizer_options *options,
                                  struct sw_pipeline **out);

/* A file's text; name for messages. */
struct sw_named_text {
    const char *name, *text; /* [len] */
    size_t len;
};
enum { SW_VOCAB_MERGES_FILES = 4 };
/* The texts of vocab.json, merges.txt, tokenizer_config.json and the model's config.json; NULL
 * where one of the last two is not there. */
sw_status sw_tokenizer_parse_vocab_merges(const struct sw_named_text files[SW_VOCAB_MERGES_FILES],
                                          const struct sw_tokenizer_options *options,
                                          struct sw_pipeline **out);
