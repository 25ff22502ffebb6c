// SPDX-License-Identifier: Apache-2.0
// What every kind of tokenizer shares: the table of its operations, the template of special tokens
// around a text, the files it is saved as.
#pragma once

#include "data/data.h"
#include "json/json.h"

/* Places in a text, between its characters. */
struct sw_edges {
    const size_t *at; /* [n] rising */
    size_t n;
};
/* How many edges are at `place` or before it. */
int32_t sw_edges_to(const struct sw_edges *edges, size_t place);

struct sw_tokenizer_ops {
    const char *kind; /* for people */
    void (*close)(struct sw_tokenizer *tokenizer);
    /* Appends the ids of the text itself. */
    sw_status (*encode)(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                        struct sw_ids *ids);
    /* The same, and for each id how many of the edges, places of the text in rising order, are not
     * behind its first character; these numbers rise, too. NULL: it cannot tell, or knows no
     * special tokens. */
    sw_status (*encode_edges)(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                              const struct sw_edges *edges, struct sw_ids *ids,
                              struct sw_ids *passed);
    /* The ids, and which characters (code points) of the text each stands for: those from begins on
     * and before ends. NULL: it cannot tell. */
    sw_status (*encode_offsets)(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                                struct sw_ids *ids, struct sw_ids *begins, struct sw_ids *ends);
    bool (*is_special)(const struct sw_tokenizer *tokenizer, int32_t id); /* goes with it */
    /* Appends the text; every id has a token. */
    sw_status (*decode)(const struct sw_tokenizer *tokenizer, const int32_t *ids, int64_t n_ids,
                        bool skip_special, struct sw_str *out);
    const char *(*token)(const struct sw_tokenizer *tokenizer, int32_t id, size_t *out_len);
    int32_t (*find)(const struct sw_tokenizer *tokenizer, const char *token, size_t len);
};

enum sw_template_part { SW_TEMPLATE_SPECIAL, SW_TEMPLATE_FIRST, SW_TEMPLATE_SECOND };

struct sw_template_item {
    enum sw_template_part part;
    int32_t id;      /* of a special token */
    int32_t type_id; /* token type, 0 or 1 as the file says */
};

/* The post-processor: what stands around one text, and around two. */
struct sw_template {
    struct sw_template_item *items; /* owned */
    int n_items;
};
/* SW_E_FORMAT: there are SW_TEMPLATE_MOST items already. */
enum { SW_TEMPLATE_MOST = 1024 };
sw_status sw_template_add(struct sw_template *template, enum sw_template_part part, int32_t id,
                          int32_t type_id);
void sw_template_fini(struct sw_template *template);

struct sw_saved_file {
    char *name, *data; /* owned */
    size_t len;
};

/* Base of every kind, its first member. */
struct sw_tokenizer {
    const struct sw_tokenizer_ops *ops;
    int64_t vocab_size;
    int32_t eos, bos, pad;
    struct sw_template single, pair;
    bool no_bos;   /* what stands before a text was dropped from both */
    bool no_types; /* all tokens are of type 0: sw_tokenizer_read_types */
    bool cut_left; /* a text that is too long for a row loses its first tokens, not its last */
    struct sw_saved_file *files; /* [n_files] what sw_tokenizer_save writes */
    int n_files;
};

/* ids -1, templates of the bare text. */
sw_status sw_tokenizer_init(struct sw_tokenizer *tokenizer, const struct sw_tokenizer_ops *ops);
/* From now on texts end with eos, where the templates put no token behind them and there is one. */
sw_status sw_tokenizer_end_texts(struct sw_tokenizer *tokenizer);
/* From now on each text begins with bos, ends with eos, or both. SW_E_FORMAT: there is no such
 * token. */
sw_status sw_tokenizer_surround(struct sw_tokenizer *tokenizer, bool bos, bool eos);
/* From now on texts stand between two tokens. RoBERTa: <s> A </s></s> B </s>, all of type 0; else
 * as BERT has them: [CLS] A [SEP] B [SEP], B and its end of type 1. */
sw_status sw_tokenizer_mark(struct sw_tokenizer *tokenizer, int32_t cls, int32_t sep, bool roberta);
/* From now on nothing stands before a text that the template of one text puts there. */
void sw_tokenizer_drop_bos(struct sw_tokenizer *tokenizer);
void sw_tokenizer_fini(struct sw_tokenizer *tokenizer);

/* Whether the template of one text puts a token behind it. */
bool sw_tokenizer_has_end(const struct sw_tokenizer *tokenizer);
/* Appends what ends a text: what the template puts behind it, else eos if there is one. */
sw_status sw_tokenizer_push_end(const struct sw_tokenizer *tokenizer, struct sw_ids *ids);

/* Keeps a copy of a file for sw_tokenizer_save. */
sw_status sw_tokenizer_keep_file(struct sw_tokenizer *tokenizer, const char *name, const char *data,
                                 size_t len);

/* The folder a path lies in, for the files beside it; "." for a bare name. out is replaced. */
sw_status sw_tokenizer_folder_of(const char *path, struct sw_str *out);

/* Reads a file of JSON beside a tokenizer; an empty object under its name if it is not there. */
sw_status sw_tokenizer_read_beside(const char *folder, const char *name, struct sw_json_doc **out);
/* The optional files beside a tokenizer, tokenizer_config.json and special_tokens_map.json: which
 * tokens are eos, bos and pad (well-known names where no file says it). */
sw_status sw_tokenizer_read_roles(struct sw_tokenizer *tokenizer, const char *folder);
/* Sets cut_left: side is "left" or "right", in any case; key is for the message. */
sw_status sw_tokenizer_set_cut(struct sw_tokenizer *tokenizer, const char *key, const char *side);
/* Makes all types of the templates 0 if the model is not given any, by the files of a folder. */
sw_status sw_tokenizer_read_types(struct sw_tokenizer *tokenizer, const char *folder);
/* The text of a role's token: "eos_token": "x" or {"content": "x", ..}; NULL: null, or absent. */
const char *sw_tokenizer_role_text(const struct sw_json *object, const char *key);
/* What one of the files says. */
sw_status sw_tokenizer_parse_roles(struct sw_tokenizer *tokenizer, const char *name,
                                   const char *text, size_t len);

/* ---- the kinds ---- */

/* tokenizer.json, and the optional files beside it. */
sw_status sw_tokenizer_open_json(const char *path, const struct sw_tokenizer_options *options,
                                 struct sw_tokenizer **out);
/* The two files of a byte-level BPE, and the optional files beside them. */
sw_status sw_tokenizer_open_vocab_merges(const char *vocab_path, const char *merges_path,
                                         const struct sw_tokenizer_options *options,
                                         struct sw_tokenizer **out);
/* A SentencePiece model, and the optional files beside it. */
sw_status sw_tokenizer_open_sentencepiece(const char *path, struct sw_tokenizer **out);
/* BERT's vocab.txt, and the optional files beside it. */
sw_status sw_tokenizer_open_vocab_txt(const char *path, struct sw_tokenizer **out);
/* chars.json. */
sw_status sw_tokenizer_open_chars_json(const char *path, struct sw_tokenizer **out);
