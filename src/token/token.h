// SPDX-License-Identifier: Apache-2.0
// token - tokenizers. The public interface is spillway/data.h. Other rooms also use the base of all
// kinds: its operations, and the template of special tokens around a text.
#pragma once

#include "base/base.h"
#include "spillway/data.h"

/* Byte offsets of character boundaries in a text. */
struct sw_edges {
    const size_t *at; /* [n] rising */
    size_t n;
};
/* Number of edges at or before `place`. */
int32_t sw_edges_to(const struct sw_edges *edges, size_t place);

/* Tokenizers that know their special tokens. */
struct sw_special_ops {
    /* Encodes as `encode` does. `passed` gets, for each id, the number of edges at or before its
     * first character; these numbers never decrease. */
    sw_status (*encode_edges)(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                              const struct sw_edges *edges, struct sw_ids *ids,
                              struct sw_ids *passed);
    /* Encodes, and gives each id its range of code points [begins, ends) in the text. */
    sw_status (*encode_offsets)(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                                struct sw_ids *ids, struct sw_ids *begins, struct sw_ids *ends);
    bool (*is_special)(const struct sw_tokenizer *tokenizer, int32_t id);
};

struct sw_tokenizer_ops {
    void (*close)(struct sw_tokenizer *tokenizer);
    /* Appends the ids of the text itself. */
    sw_status (*encode)(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                        struct sw_ids *ids);
    /* As encode, for one word of a text that is split into words. NULL: encode does both. */
    sw_status (*encode_word)(struct sw_tokenizer *tokenizer, const char *word, size_t len,
                             struct sw_ids *ids);
    /* As encode, for texts that a model writes. NULL: encode does both. */
    sw_status (*encode_target)(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                               struct sw_ids *ids);
    /* Appends the text of the ids. Every id must have a token. */
    sw_status (*decode)(const struct sw_tokenizer *tokenizer, const int32_t *ids, int64_t n_ids,
                        bool skip_special, struct sw_str *out);
    const char *(*token)(const struct sw_tokenizer *tokenizer, int32_t id, size_t *out_len);
    int32_t (*find)(const struct sw_tokenizer *tokenizer, const char *token, size_t len);
    const struct sw_special_ops *special; /* NULL: it has no special tokens */
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
enum { SW_TEMPLATE_MOST = 1024 };
/* Appends an item. SW_E_FORMAT: there are SW_TEMPLATE_MOST items already. */
sw_status sw_template_add(struct sw_template *template, enum sw_template_part part, int32_t id,
                          int32_t type_id);
void sw_template_fini(struct sw_template *template);

/* Base of every kind of tokenizer. It is the first member of each. */
struct sw_tokenizer {
    const struct sw_tokenizer_ops *ops;
    const char *kind; /* for people */
    /* The class that chose how words are split, if the kind alone does not say it; else NULL. */
    const char *class_name;
    /* The class that makes the same tokenizer if tokenizer_config.json names it, without
     * "Tokenizer". NULL: the files of this kind need no class. */
    const char *equal_class;
    int64_t vocab_size;
    int32_t eos, bos, pad;
    struct sw_template single, pair;
    struct sw_template target; /* of a text that a model writes; no items: that of one text */
    bool has_languages; /* texts have the code of their language: sw_tokenizer_read_languages */
    bool no_bos;        /* tokens before a text were dropped from all templates */
    bool no_types;      /* all token types are 0: sw_tokenizer_read_types */
    bool cut_left;      /* a text that is too long for a row loses its first tokens, not its last */
    bool is_bpe;        /* the model is byte-pair encoding */
    bool cleans_up;     /* a decoded text: sw_clean_up_spaces */
    struct sw_saved_file *files; /* [n_files] written by sw_tokenizer_save */
    int n_files;
};

/* Makes texts end with eos, if there is one. Exception: a template that already ends a text
 * stays. */
sw_status sw_tokenizer_end_texts(struct sw_tokenizer *tokenizer);

/* The id that fills rows up: pad, or else eos, or else 0. tokenizer NULL: 0 */
int32_t sw_tokenizer_padding(const struct sw_tokenizer *tokenizer);

/* Whether the single-text template puts a token after the text. */
bool sw_tokenizer_has_end(const struct sw_tokenizer *tokenizer);
/* Appends the tokens that the template puts after a text; if it puts none, eos if there is one. */
sw_status sw_tokenizer_push_end(const struct sw_tokenizer *tokenizer, struct sw_ids *ids);

/* As sw_tokenizer_encode, for one word of a text that is split into words. A byte-level BPE reads
 * the word with a space before it. add_special must be false. */
sw_status sw_tokenizer_encode_word(struct sw_tokenizer *tokenizer, const char *word, size_t len,
                                   bool add_special, struct sw_ids *ids);

/* The template of a text that a model writes. */
const struct sw_template *sw_tokenizer_target_template(const struct sw_tokenizer *tokenizer);

/* Replaces ids by those of a prompt and a text that a model writes after it, joined as one text,
 * with the template's tokens before it and those that sw_tokenizer_push_end adds. If these are eos
 * alone, because the template puts none after a text, a text that ends with eos gets no other.
 *
 * n_prompt     the first ids, which are those of the prompt alone too
 * merged       the prompt alone has more: a token crosses its end, or depends on what follows
 */
sw_status sw_tokenizer_encode_example(struct sw_tokenizer *tokenizer, const struct sw_str *joined,
                                      size_t prompt_len, struct sw_ids *ids, int64_t *n_prompt,
                                      bool *merged);

/* Whether texts that a model reads and texts that it writes have tokens of their own, as in a
 * translation. Such a tokenizer cannot encode a text that is both, as a chat or plain text is. */
bool sw_tokenizer_has_sides(const struct sw_tokenizer *tokenizer);

/* As sw_tokenizer_decode, but appends to out. */
sw_status sw_tokenizer_decode_str(const struct sw_tokenizer *tokenizer, const int32_t *ids,
                                  int64_t n_ids, bool skip_special, struct sw_str *out);

/* Appends the text that ids add to that of a prompt. The first word keeps its leading space. */
sw_status sw_tokenizer_decode_behind(const struct sw_tokenizer *tokenizer, const int32_t *prompt,
                                     int64_t n_prompt, const int32_t *ids, int64_t n_ids,
                                     struct sw_str *out);

/* Appends the single-text template as "<s> ..", with tokens as the vocabulary spells them. Appends
 * nothing if the template adds no tokens. */
void sw_tokenizer_template_text(const struct sw_tokenizer *tokenizer, struct sw_str *out);

/* Appends the rules by which the tokenizer makes ids of a text: merges, scores, normalizer,
 * pre-tokenizer, added tokens, options and the end of a text, all but the vocabulary and the
 * templates. Equal rules and vocabularies make the same ids. */
sw_status sw_tokenizer_put_rules(const struct sw_tokenizer *tokenizer, struct sw_str *out);
/* Appends the templates of one text, two and a target, and which end of a long text is cut. */
void sw_tokenizer_put_templates(const struct sw_tokenizer *tokenizer, struct sw_str *out);

/* Names the input token_type_ids in the tokenizer_config.json that sw_tokenizer_save writes, for a
 * model with token types. Without it the class named there may have none. */
sw_status sw_tokenizer_keep_types(struct sw_tokenizer *tokenizer);

/* Whether all token types are 0 because the model takes none. */
bool sw_tokenizer_has_no_types(const struct sw_tokenizer *tokenizer);

struct sw_json;
/* Whether tokenizer_config.json has added_tokens_decoder, even an empty one. As in transformers,
 * special_tokens_map.json and added_tokens.json are then kept for saving, and not read. */
bool sw_tokenizer_lists_added(const struct sw_json *settings);

/* The folder that a path lies in; "." for a bare name. out is replaced. */
sw_status sw_tokenizer_folder_of(const char *path, struct sw_str *out);
/* Removes all files that sw_tokenizer_open would read from the folder, to make room for another
 * tokenizer. */
void sw_tokenizer_remove(const char *folder);

/* A set of characters, from which a tokenizer is made. */
struct sw_char_set;
sw_status sw_char_set_open(struct sw_char_set **out);
void sw_char_set_close(struct sw_char_set *set);
/* Adds the characters of a text. `name` is for messages. SW_E_FORMAT: not UTF-8. */
sw_status sw_char_set_add(struct sw_char_set *set, const char *name, const char *text, size_t len);
/* Opens a tokenizer of the characters. SW_E_FORMAT: the set is empty; `name` is for the message. */
sw_status sw_tokenizer_open_char_set(const char *name, const struct sw_char_set *set,
                                     struct sw_tokenizer **out);
