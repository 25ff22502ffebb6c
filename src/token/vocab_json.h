// SPDX-License-Identifier: Apache-2.0
// Vocabularies in JSON: vocab.json with the ids of tokens, and the tokens that
// tokenizer_config.json adds to it.
#pragma once

#include "token/added.h"
#include "token/tokenizer.h"
#include "token/vocab.h"

/* A file's text. `name` is for messages. */
struct sw_named_text {
    const char *name, *text; /* [len]; text NULL: there is no such file */
    size_t len;
};
/* Reads files [n]. The first n_needed must be there. texts [n] are what files points to; they are
 * the caller's, also on failure, and begin as NULL. */
sw_status sw_named_texts_read(const char *const *paths, int n, int n_needed, char **texts,
                              struct sw_named_text *files);
/* Parses a file that must hold an object. An absent file gives an empty object. */
sw_status sw_named_text_parse(const struct sw_named_text *file, struct sw_json_doc **out);

/* Adds the tokens of {"token": id, ..}. */
sw_status sw_vocab_read_json(const struct sw_named_text *file, struct sw_vocab *vocab);

/* Reads {"content": .., "special": .., ..}. The text is the document's; the id stays. */
sw_status sw_added_token_read(const struct sw_json_doc *doc, const struct sw_json *entry,
                              struct sw_added_token *out, bool *normalized);

typedef sw_status (*sw_added_entry_fn)(void *ctx, const struct sw_json_doc *doc,
                                       const struct sw_json *entry, int64_t id);
/* Calls fn for each entry of added_tokens_decoder: {"id": {"content": .., ..}, ..}. */
sw_status sw_added_entries_each(const struct sw_json_doc *doc, const struct sw_json *root,
                                sw_added_entry_fn fn, void *ctx);
