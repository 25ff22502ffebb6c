// SPDX-License-Identifier: Apache-2.0
// Base of all tokenizer kinds: the table of operations, the template of special tokens around a
// text, and the files that a tokenizer is saved as.
#pragma once

#include "data/data.h"
#include "json/json.h"

/* Byte offsets of character boundaries in a text. */
struct sw_edges {
    const size_t *at; /* [n] rising */
    size_t n;
};
/* Number of edges at or before `place`. */
int32_t sw_edges_to(const struct sw_edges *edges, size_t place);

struct sw_tokenizer_ops {
    const char *kind; /* for people */
    void (*close)(struct sw_tokenizer *tokenizer);
    /* Appends the ids of the text itself. */
    sw_status (*encode)(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                        struct sw_ids *ids);
    /* Encodes as `encode` does. `passed` gets, for each id, the number of edges at or before its
     * first character; these numbers never decrease. NULL: unsupported, or the tokenizer has no
     * special tokens. */
    sw_status (*encode_edges)(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                              const struct sw_edges *edges, struct sw_ids *ids,
                              struct sw_ids *passed);
    /* Encodes, and gives each id its range of code points [begins, ends) in the text. NULL:
     * unsupported. */
    sw_status (*encode_offsets)(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                                struct sw_ids *ids, struct sw_ids *begins, struct sw_ids *ends);
    bool (*is_special)(const struct sw_tokenizer *tokenizer,
                       int32_t id); /* set if encode_edges is */
    /* Appends the text of the ids. Every id must have a token. */
    sw_status (*decode)(const struct sw_tokenizer *tokenizer, const int32_t *ids, int64_t n_ids,
                        bool skip_special, struct sw_str *out);
    const char *(*token)(const struct sw_tokenizer *tokenizer, int32_t id, size_t *out_len);
    int32_t (*find)(const struct sw_tokenizer *tokenizer, const char *token, size_t len);
};

enum sw_template_part { SW_TEMPLATE_SPECIAL, SW_TEMPLATE_FIRST, SW_TEMPLATE_SECOND };

struct sw_template_item {
    enum sw_template_part part;
    int32_t id;      /* SPECIAL: the token */
    int32_t type_id; /* token type, 0 or 1 as the file says */
};

/* The post-processor's template: the special tokens around one text, or around two. */
struct sw_template {
    struct sw_template_item *items; /* owned */
    int n_items;
};
/* Appends an item. SW_E_FORMAT: there are SW_TEMPLATE_MOST items already. */
enum { SW_TEMPLATE_MOST = 1024 };
sw_status sw_template_add(struct sw_template *template, enum sw_template_part part, int32_t id,
                          int32_t type_id);
void sw_template_fini(struct sw_template *template);

struct sw_saved_file {
    char *name, *data; /* owned */
    size_t len;
};

/* Base of every kind of tokenizer. It is the first member of each. */
struct sw_tokenizer {
    const struct sw_tokenizer_ops *ops;
    int64_t vocab_size;
    int32_t eos, bos, pad;
    struct sw_template single, pair;
    bool no_bos;   /* tokens before a text were dropped from both templates */
    bool no_types; /* all token types are 0: sw_tokenizer_read_types */
    bool cut_left; /* a text that is too long for a row loses its first tokens, not its last */
    struct sw_saved_file *files; /* [n_files] written by sw_tokenizer_save */
    int n_files;
};

/* Initialises with ids -1 and templates without special tokens. */
sw_status sw_tokenizer_init(struct sw_tokenizer *tokenizer, const struct sw_tokenizer_ops *ops);
/* Makes texts end with eos, if there is one. Exception: a template that already ends a text
 * stays. */
sw_status sw_tokenizer_end_texts(struct sw_tokenizer *tokenizer);
/* Makes each text begin with bos, end with eos, or both. SW_E_FORMAT: there is no such token. */
sw_status sw_tokenizer_surround(struct sw_tokenizer *tokenizer, bool bos, bool eos);
/* Puts texts between two special tokens. RoBERTa: <s> A </s></s> B </s>, all of type 0. BERT: [CLS]
 * A [SEP] B [SEP], with B and its [SEP] of type 1. */
sw_status sw_tokenizer_mark(struct sw_tokenizer *tokenizer, int32_t cls, int32_t sep, bool roberta);
/* Drops the tokens that the single-text template puts before a text. */
void sw_tokenizer_drop_bos(struct sw_tokenizer *tokenizer);
void sw_tokenizer_fini(struct sw_tokenizer *tokenizer);

/* Whether the single-text template puts a token after the text. */
bool sw_tokenizer_has_end(const struct sw_tokenizer *tokenizer);
/* Appends the tokens that the template puts after a text; if it puts none, eos if there is one. */
sw_status sw_tokenizer_push_end(const struct sw_tokenizer *tokenizer, struct sw_ids *ids);

/* Keeps a copy of a file for sw_tokenizer_save. */
sw_status sw_tokenizer_keep_file(struct sw_tokenizer *tokenizer, const char *name, const char *data,
                                 size_t len);

/* The folder that a path lies in; "." for a bare name. out is replaced. */
sw_status sw_tokenizer_folder_of(const char *path, struct sw_str *out);

/* Reads a JSON file beside a tokenizer. An absent file gives an empty object under its name. */
sw_status sw_tokenizer_read_beside(const char *folder, const char *name, struct sw_json_doc **out);
/* Finds eos, bos and pad in the optional files tokenizer_config.json and special_tokens_map.json.
 * Well-known names are the default. */
sw_status sw_tokenizer_read_roles(struct sw_tokenizer *tokenizer, const char *folder);
/* Sets cut_left: side is "left" or "right", in any case; key is for the message. */
sw_status sw_tokenizer_set_cut(struct sw_tokenizer *tokenizer, const char *key, const char *side);
/* Sets all token types of the templates to 0 if the folder's files say that the model takes
 * none. */
sw_status sw_tokenizer_read_types(struct sw_tokenizer *tokenizer, const char *folder);
/* The text of a role's token, "eos_token": "x" or {"content": "x", ..}. NULL: null or absent. */
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
/* Opens a SentencePiece model and the optional files beside it. */
sw_status sw_tokenizer_open_sentencepiece(const char *path, struct sw_tokenizer **out);
/* Opens BERT's vocab.txt and the optional files beside it. */
sw_status sw_tokenizer_open_vocab_txt(const char *path, struct sw_tokenizer **out);
/* Opens a chars.json. */
sw_status sw_tokenizer_open_chars_json(const char *path, struct sw_tokenizer **out);
