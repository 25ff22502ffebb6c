// SPDX-License-Identifier: Apache-2.0
// The byte-level BPE tokenizer: normalizer, added tokens, pre-tokenizer and merges as one object.
// Readers of files fill it part by part and finish it.
#pragma once

#include "data/added.h"
#include "data/bpe.h"
#include "data/normalize.h"
#include "data/pretokenize.h"
#include "data/tokenizer.h"

#include "json/json.h"

/* An added token as the file has it. */
struct sw_added_entry {
    struct sw_added_token token; /* text lives in the vocabulary of added tokens */
    bool normalized;             /* searched in the normalised text, in its own normalised form */
};

struct sw_byte_bpe {
    struct sw_tokenizer super;
    struct sw_vocab vocab; /* of the model */
    struct sw_vocab added; /* tokens of the file's list; a token may be in both, under one id */
    struct sw_bpe bpe;
    struct sw_normalizer normalizer;
    struct sw_pretokenizer pretokenizer;
    struct sw_added_entry *entries; /* [n_entries] */
    size_t n_entries;
    struct sw_added_set raw, normalized; /* entries, searched before and after the normalizer */
    struct sw_arena texts;               /* normalised forms of entries */
    bool *special;                       /* [vocab_size] left out when special tokens are skipped */
    struct sw_str scratch;               /* normalised text */
};

sw_status sw_byte_bpe_open(struct sw_byte_bpe **out);
/* The added token `text` (with the flags of `flags`; its text and len are not used). */
sw_status sw_byte_bpe_add_token(struct sw_byte_bpe *tokenizer, const char *text, size_t len,
                                int64_t id, struct sw_added_token flags, bool normalized);
/* The same from its object in a JSON file: content, special, single_word, lstrip, rstrip,
 * normalized. */
sw_status sw_byte_bpe_add_entry(struct sw_byte_bpe *tokenizer, const struct sw_json_doc *doc,
                                const struct sw_json *entry, int64_t id);
/* After all parts: builds what encoding needs and checks the templates. */
sw_status sw_byte_bpe_finish(struct sw_byte_bpe *tokenizer);

/* The optional files beside a tokenizer, tokenizer_config.json and special_tokens_map.json: which
 * tokens are eos, bos and pad (well-known names where no file says it). */
sw_status sw_byte_bpe_read_roles(struct sw_byte_bpe *tokenizer, const char *folder);
/* What one of them says. */
sw_status sw_byte_bpe_parse_roles(struct sw_byte_bpe *tokenizer, const char *name, const char *text,
                                  size_t len);

/* The text of a tokenizer.json; name for messages. Nothing beside it is read. */
sw_status sw_tokenizer_parse_json(const char *name, const char *text, size_t len,
                                  const struct sw_tokenizer_options *options,
                                  struct sw_byte_bpe **out);

/* A file's text; name for messages. */
struct sw_named_text {
    const char *name, *text; /* [len] */
    size_t len;
};
/* The texts of vocab.json, merges.txt and tokenizer_config.json, the last NULL where there is
 * none. */
sw_status sw_tokenizer_parse_vocab_merges(const struct sw_named_text files[3],
                                          const struct sw_tokenizer_options *options,
                                          struct sw_byte_bpe **out);
