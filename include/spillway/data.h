// SPDX-License-Identifier: Apache-2.0
// Text in and token ids out (tokenizers), and the numbered samples of a training run (datasets).
//
// A tokenizer is read from a folder of the hub (BPE, Unigram, WordPiece), or is the characters of a
// text.
// A dataset is a pure function of (files, tokenizer, seed, sample number): what sample s holds does
// not depend on ranks, on the order of calls or on what was fetched before, so the number of the
// next sample is the whole position of a run.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A growing array of token ids; all zero is an empty one. */
struct sw_ids {
    int32_t *ptr; /* [len] */
    int64_t len, cap;
};
SW_API sw_status sw_ids_push(struct sw_ids *ids, int32_t id);
SW_API void sw_ids_clear(struct sw_ids *ids); /* keeps the memory */
SW_API void sw_ids_fini(struct sw_ids *ids);

/* ---- tokenizers ---- */

typedef struct sw_tokenizer sw_tokenizer;

enum sw_prefix_space { SW_PREFIX_AS_FILE, SW_PREFIX_OFF, SW_PREFIX_ON };

/* All zero: as the files say. */
struct sw_tokenizer_options {
    enum sw_prefix_space prefix_space; /* a space before the text, in place of what the file says */
    bool no_bos; /* leave out the tokens that the template puts before a text (<s>, <bos>) */
};

/*
 * sw_tokenizer_open - read a tokenizer.
 *
 * path         a folder with tokenizer.json, or vocab.json and merges.txt, or encoder.json and
 *              vocab.bpe, or chars.json, or vocab.txt, or tokenizer.model, spiece.model, spm.model,
 *              sentencepiece.bpe.model (looked for in this order); or one of those files
 * options      NULL: as the files say
 *
 * SW_E_UNSUP   the file asks for a component that is not built (named), or a library is missing
 * SW_E_FORMAT  a file is not what it claims
 */
SW_API sw_status sw_tokenizer_open(const char *path, const struct sw_tokenizer_options *options,
                                   struct sw_tokenizer **out);

/* Whether a folder has files that sw_tokenizer_open would read. */
SW_API bool sw_tokenizer_is_there(const char *folder);

/*
 * sw_tokenizer_open_chars - the character vocabulary of a text: its code points in rising order.
 *
 * name         of the text, for messages
 *
 * SW_E_FORMAT  not UTF-8 (with the byte offset), or empty
 */
SW_API sw_status sw_tokenizer_open_chars(const char *name, const char *text, size_t len,
                                         struct sw_tokenizer **out);
/* The same over all text of data files (paths or globs; plain text and JSONL). as_text: as in
 * sw_dataset_options. */
SW_API sw_status sw_tokenizer_open_chars_of(const char *const *files, int n_files, bool as_text,
                                            struct sw_tokenizer **out);
SW_API void sw_tokenizer_close(struct sw_tokenizer *tokenizer);

/*
 * sw_tokenizer_encode - append the ids of a text.
 *
 * Tokens written out in the text (`<|endoftext|>`) become their ids, as in the reference.
 *
 * thread       one thread at a time for one tokenizer (it remembers words)
 *
 * text         [len] UTF-8, may hold NUL
 * add_special  put the tokens around the text that the tokenizer's template asks for
 * ids          appended to; as before on failure
 *
 * SW_E_FORMAT  not UTF-8, or a character outside the vocabulary: the message has the byte offset
 */
SW_API sw_status sw_tokenizer_encode(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                                     bool add_special, struct sw_ids *ids);
/* A text that is to go on: of the template only what stands in front of it. */
SW_API sw_status sw_tokenizer_encode_prompt(struct sw_tokenizer *tokenizer, const char *text,
                                            size_t len, struct sw_ids *ids);
/* Two texts by the template for pairs. types (0 or 1 per id) may be NULL. */
SW_API sw_status sw_tokenizer_encode_pair(struct sw_tokenizer *tokenizer, const char *first,
                                          size_t first_len, const char *second, size_t second_len,
                                          bool add_special, struct sw_ids *ids,
                                          struct sw_ids *types);

/*
 * sw_tokenizer_decode - the text of ids.
 *
 * Bytes that are not UTF-8 become U+FFFD. An id without a token is left out.
 *
 * out_text     NUL-terminated, the caller's: sw_text_free
 * out_len      may be NULL
 */
SW_API sw_status sw_tokenizer_decode(const struct sw_tokenizer *tokenizer, const int32_t *ids,
                                     int64_t n_ids, bool skip_special, char **out_text,
                                     size_t *out_len);

/* A text that is written while its ids come. */
struct sw_text_writer {
    const struct sw_tokenizer *tokenizer;
    FILE *to;
    const int32_t
        *prompt; /* [n_prompt] what it goes on from, which is not written; NULL: nothing */
    int64_t n_prompt;
    size_t n_written; /* bytes so far; 0 at first */
};
/*
 * sw_text_write - writes what ids [n_ids], which begin with those of the calls before, add to the
 * text: without special tokens, and whole characters only.
 *
 * last         no more will come: what is no whole character is U+FFFD
 */
SW_API sw_status sw_text_write(struct sw_text_writer *writer, const int32_t *ids, int64_t n_ids,
                               bool last);

/* Rows an embedding needs: the highest id plus one. */
SW_API int64_t sw_tokenizer_vocab_size(const struct sw_tokenizer *tokenizer);
/* -1 where the tokenizer has none. */
SW_API int32_t sw_tokenizer_eos(const struct sw_tokenizer *tokenizer);
SW_API int32_t sw_tokenizer_bos(const struct sw_tokenizer *tokenizer);
SW_API int32_t sw_tokenizer_pad(const struct sw_tokenizer *tokenizer);
/* A token as the vocabulary spells it (byte-level BPE: in the byte alphabet), borrowed; NULL if the
 * id has none. */
SW_API const char *sw_tokenizer_token(const struct sw_tokenizer *tokenizer, int32_t id,
                                      size_t *out_len);
/* The id of a token as the vocabulary spells it; -1 if there is none. */
SW_API int32_t sw_tokenizer_find(const struct sw_tokenizer *tokenizer, const char *token);
/* "byte-level BPE", "characters". */
SW_API const char *sw_tokenizer_kind(const struct sw_tokenizer *tokenizer);
/* Writes the files it was read from into a folder that exists, so that sw_tokenizer_open reads them
 * again; chars.json for characters. */
SW_API sw_status sw_tokenizer_save(const struct sw_tokenizer *tokenizer, const char *folder);

/* ---- chats ---- */

/* What the loss of a conversation is on. */
enum sw_loss_on {
    SW_LOSS_ON_ANSWERS, /* all of them */
    SW_LOSS_ON_LAST,    /* the last one */
    SW_LOSS_ON_ALL      /* every token */
};
SW_API const char *sw_loss_on_name(enum sw_loss_on loss_on);
/* false: no such name. */
SW_API bool sw_loss_on_by_name(const char *name, enum sw_loss_on *out);
/* "2026-11-22" as seconds since 1970 in UTC, and back; false: that is no day of the years 1000 ..
 * 9999, and *out stays. */
SW_API bool sw_day_of_text(const char *text, int64_t *out);
SW_API void sw_day_text(int64_t day, char out[11]);

/* How conversations become tokens: a template of a folder, and which tokens the loss counts. For
 * one thread at a time, as its tokenizer. */
typedef struct sw_chat sw_chat;

struct sw_chat_options {
    const char *folder;        /* of the tokenizer, or a file in it: chat_template.jinja, else
                           chat_template of tokenizer_config.json, a text or a list of named ones */
    const char *template_path; /* a file in place of those; NULL = none */
    sw_tokenizer *tokenizer;   /* borrowed while the chat is open */
    int64_t date;              /* what strftime_now tells, seconds since 1970 in UTC */
    enum sw_loss_on loss_on;
    bool asked_for; /* sw_chat_open_for refuses data that wants no chat: the caller said something
                       about one */
};
/* What flags say of chats, NULL where one is not given: the template's file ("none": no chats), the
 * day (today, in UTC) and what the loss is on (answers). Of options only folder and tokenizer are
 * left to set. SW_E_ARG names the flag. */
SW_API sw_status sw_chat_options_read(const char *template_path, const char *date,
                                      const char *loss_on, struct sw_chat_options *out);
/*
 * sw_chat_open - reads the template.
 *
 * SW_E_CONFIG  there is none, or the tokenizer was opened with no_bos, which is for texts
 * SW_E_FORMAT  the template breaks the language's rules: line and column
 * SW_E_UNSUP   it asks for something that is not built, or the tokenizer knows no special tokens
 */
SW_API sw_status sw_chat_open(const struct sw_chat_options *options, sw_chat **out);
SW_API void sw_chat_close(sw_chat *chat);

enum sw_data_kind {
    SW_DATA_TEXT,  /* running text, or token shards */
    SW_DATA_PAIRS, /* JSON lines of prompt and completion */
    SW_DATA_CHATS  /* JSON lines of messages, conversations, or instruction and output */
};
/* By the first line of the first JSONL file among them. */
SW_API sw_status sw_data_kind_of(const char *const *files, int n_files, bool as_text,
                                 enum sw_data_kind *out);
/* Opens a chat for data that wants one: chats, and prompts and completions where there is a
 * template. *out NULL: it wants none. folder NULL: there is no tokenizer of a folder, and chats are
 * refused; template_path "none": likewise, and prompts and completions are joined as they are. */
SW_API sw_status sw_chat_open_for(const struct sw_chat_options *options, enum sw_data_kind kind,
                                  sw_chat **out);

/* Where the template came from, lent; the digest of its text and of the special tokens that it may
 * write; whether it is no template of the tokenizer's folder; and what it was opened with. */
SW_API const char *sw_chat_source(const sw_chat *chat);
SW_API const char *sw_chat_digest(const sw_chat *chat);
SW_API bool sw_chat_is_given(const sw_chat *chat);
SW_API int64_t sw_chat_date(const sw_chat *chat);
SW_API enum sw_loss_on sw_chat_loss_on(const sw_chat *chat);
/* Writes FOLDER/chat_template.jinja. */
SW_API sw_status sw_chat_save_template(const sw_chat *chat, const char *folder);

/* A conversation that goes on: what was said, and the ids (appended) that an answer begins with. */
SW_API sw_status sw_chat_say(sw_chat *chat, const char *role, const char *content);
SW_API sw_status sw_chat_prompt(sw_chat *chat, struct sw_ids *ids);
/* The ids of one question by itself. */
SW_API sw_status sw_chat_ask(sw_chat *chat, const char *content, struct sw_ids *ids);
/* Appends the ids that end an answer: eos_token_id, one or a list, of generation_config.json in a
 * folder; none where there is no such file or key. */
SW_API sw_status sw_chat_stops(const char *folder, struct sw_ids *ids);

/* What `spillway tokenize` does with a stream. All zero: one line of ids for each line of text. */
struct sw_tokenize_options {
    sw_chat *chat; /* JSON lines, each a conversation, to {"text", "ids", "mask"}; NULL = none */
    bool decode;   /* lines of ids to lines of text */
    bool json;     /* JSON lines: {"text": ..} or {"pair": [.., ..]} to {"ids": [..]}, and back */
    bool special;  /* template tokens when encoding; special tokens kept when decoding */
    const char *name; /* of the input, for messages; NULL: "standard input" */
};
/* options      NULL: all zero */
SW_API sw_status sw_tokenize_stream(struct sw_tokenizer *tokenizer,
                                    const struct sw_tokenize_options *options, FILE *in, FILE *out);

/* ---- datasets ---- */

typedef struct sw_dataset sw_dataset;

enum { SW_IGNORED_LABEL = -100 }; /* a position without a loss */
#define SW_VAL_FRACTION 0.1       /* the usual part held back for validation */

enum sw_split { SW_SPLIT_TRAIN, SW_SPLIT_VAL };

/*
 * What to read. Files are paths or globs; by content and ending they are
 *   *.jsonl      one JSON object a line: {"text"}; or in every line {"prompt", "completion"}, or,
 *                with a chat, {"messages"}, {"conversations"} or {"instruction", "input", "output"}
 *   *.bin        token shards: llm.c's (by its magic numbers), else nanoGPT's headerless u16
 *   all other    plain text, one document a file; what is structured by its name (.json, .csv, .gz
 *                ..) or begins and ends as JSON does is refused: as_text takes every file as one
 *                plain text
 * A document stands in the tokenizer's template for one text: <s> before it, if the template says
 * so. Where the template puts nothing behind a text, documents are joined by the end-of-text token,
 * if the tokenizer has one. They are cut in windows of seq_len inputs and as many labels, each
 * label the token after its input. Prompt and completion make one row each, in the same template,
 * padded on the right, with labels on the completion and its end only. So does a chat, whose tokens
 * are those of the chat template alone, with labels where its options say.
 */
struct sw_dataset_options {
    const char *const *files;
    int n_files;
    const char *const *val_files; /* none: the last val_fraction of the windows or rows */
    int n_val_files;
    double val_fraction;            /* 0 .. 1, 0: no validation samples; not used with val_files */
    struct sw_tokenizer *tokenizer; /* borrowed for the call; NULL is fine for shards */
    int64_t vocab_size; /* of the model: ids at or above it are refused. 0: the tokenizer's */
    int64_t seq_len;    /* T */
    uint64_t seed;      /* of the order of the training samples */
    bool as_text;
    sw_chat *chat; /* makes rows of conversations; borrowed for the call; NULL: they are refused */
    bool packing;  /* rows hold several documents, chats or prompts: see sw_dataset_fetch_packed */
    const struct sw_task_data *task; /* NULL: the next token of texts; borrowed for the call */
};

/* What a task other than the next token reads its files by: JSON lines, tables (.csv, .tsv),
 * SQuAD's .json, plain text; of images folders of pictures by class, and CIFAR's .bin.
 * docs/tasks.md has the fields of each task. */
struct sw_task_data {
    const char *name;               /* "masked", "classify", ..: of --task */
    int64_t target_len;             /* tokens that a decoder behind an encoder is asked for */
    int64_t n_labels;               /* classes, or numbers */
    const char *const *label_names; /* [n_labels]; NULL: the classes are 0, 1, .. */
    /* Fields of the text, or of both, and of labels, tags or targets; NULL: the usual ones. A
     * number counts the columns of a table without names. */
    const char *text_columns[2], *label_column;
    const char *source_prefix; /* before each source ("summarize: "); NULL: none */
    int64_t doc_stride;        /* tokens of a context that windows share; 0: 128, at most T / 3 */
    int64_t channels, height, width; /* of the images that are wanted */
    const char *preprocessor; /* preprocessor_config.json, for images; NULL: resized to what is
                                 wanted, mean and deviation 0.5 */
};

/* options      required: NULL is SW_E_ARG */
SW_API sw_status sw_dataset_open(const struct sw_dataset_options *options, struct sw_dataset **out);
SW_API void sw_dataset_close(struct sw_dataset *dataset);

/* Samples of one epoch. */
SW_API int64_t sw_dataset_n_samples(const struct sw_dataset *dataset, enum sw_split split);
/* Tokens of both splits together; for prompts and completions without padding. */
SW_API int64_t sw_dataset_n_tokens(const struct sw_dataset *dataset);

/* Of the documents in the files that a split is from, where they are rows: kept; of them cut at
 * seq_len; left out because nothing with a label was left. */
SW_API int64_t sw_dataset_n_documents(const struct sw_dataset *dataset, enum sw_split split);
SW_API int64_t sw_dataset_n_cut(const struct sw_dataset *dataset, enum sw_split split);
SW_API int64_t sw_dataset_n_dropped(const struct sw_dataset *dataset, enum sw_split split);

/*
 * sw_dataset_fetch - the rows of samples first .. first + n_rows - 1.
 *
 * Training samples are numbered without end: sample s is in epoch s / n, and each epoch is shuffled
 * by (seed, epoch). Validation samples keep the order of the files; rows past the last one are
 * blank (id 0, no labels), so that a last short batch has the shape of the others.
 *
 * thread       any number at once
 *
 * ids          [n_rows, T]
 * labels       [n_rows, T] the next token, SW_IGNORED_LABEL where there is no loss
 * mask         [n_rows, T] 1 for a token, 0 for padding; may be NULL
 *
 * SW_E_FORMAT  a shard holds an id that is not below vocab_size: file and position in the message
 */
SW_API sw_status sw_dataset_fetch(const struct sw_dataset *dataset, enum sw_split split,
                                  int64_t first, int64_t n_rows, int32_t *ids, int32_t *labels,
                                  int32_t *mask);

/* The same rows with the place of each token in its document, from 0, and which document of the row
 * it belongs to, from 1; padding is 0 in both. Without packing each row is one document. */
SW_API sw_status sw_dataset_fetch_packed(const struct sw_dataset *dataset, enum sw_split split,
                                         int64_t first, int64_t n_rows, int32_t *ids,
                                         int32_t *labels, int32_t *positions, int32_t *segments);
/* An input of a batch, by the name of its sw_input: [n_rows, ..] of i32, or f32. */
struct sw_row_input {
    const char *name;
    void *data;
};
/* The same rows, for any task, as those of its inputs that are named. What is drawn for a sample
 * (masks, spans, second texts) depends on seed, split and its number alone. Rows past the last one
 * of the validation samples have no labels. SW_E_ARG: the task has no such input. SW_E_FORMAT: a
 * picture is damaged; the message names its file. */
SW_API sw_status sw_dataset_fetch_inputs(const sw_dataset *dataset, enum sw_split split,
                                         int64_t first, int64_t n_rows,
                                         const struct sw_row_input *inputs, int n_inputs);
/* Of the tokens in the rows of a split the share that is padding. */
SW_API double sw_dataset_padding(const struct sw_dataset *dataset, enum sw_split split);

#ifdef __cplusplus
}
#endif
