// SPDX-License-Identifier: Apache-2.0
// Tokenizers, and datasets: the numbered samples of a training run.
//
// A tokenizer is read from a Hugging Face folder (BPE, Unigram, WordPiece), or has the characters
// of a text as its vocabulary.
// A dataset is a pure function of (files, tokenizer, seed, sample number). The content of a sample
// does not depend on ranks, on the order of calls or on earlier calls. The number of the next
// sample is therefore the whole state of a run's data.
//
// No call here is collective. One thread at a time uses a tokenizer or a chat; many threads may
// read one dataset. Strings and arrays are borrowed for the call, unless a comment says more.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A growing array of token ids. All zero is an empty array. */
struct sw_ids {
    int32_t *ptr; /* [len] */
    int64_t len, cap;
};
/* Appends an id. SW_E_NOMEM: the array is unchanged. */
SW_API sw_status sw_ids_push(struct sw_ids *ids, int32_t id);
SW_API void sw_ids_clear(struct sw_ids *ids); /* keeps the memory */
SW_API void sw_ids_fini(struct sw_ids *ids);

/* ---- tokenizers ---- */

typedef struct sw_tokenizer sw_tokenizer;

enum sw_prefix_space { SW_PREFIX_AS_FILE, SW_PREFIX_OFF, SW_PREFIX_ON };

/* All zero: follow the tokenizer's files. */
struct sw_tokenizer_options {
    enum sw_prefix_space prefix_space; /* overrides whether a space is put before the text */
    bool no_bos; /* leave out the tokens that the template puts before a text (<s>, <bos>) */
};

/*
 * sw_tokenizer_open - read a tokenizer.
 *
 * path         one of these files, or a folder (or that of an ONNX file), searched in this order:
 *              source.spm, target.spm and vocab.json (Marian); tokenizer.json; vocab.json and
 *              merges.txt; encoder.json and vocab.bpe; chars.json; vocab.txt; tokenizer.model,
 *              spiece.model, spm.model, sentencepiece.bpe.model
 * options      NULL: follow the files
 *
 * SW_E_UNSUP   the file needs a component that is not built (named), or a library is missing
 * SW_E_FORMAT  a file is malformed
 */
SW_API sw_status sw_tokenizer_open(const char *path, const struct sw_tokenizer_options *options,
                                   struct sw_tokenizer **out);

/* Whether a folder has files that sw_tokenizer_open would read. */
SW_API bool sw_tokenizer_is_there(const char *folder);

/*
 * sw_tokenizer_open_chars - make a character vocabulary: the code points of a text, in ascending
 * order.
 *
 * name         of the text, for messages
 *
 * SW_E_FORMAT  not UTF-8 (with the byte offset), or empty
 */
SW_API sw_status sw_tokenizer_open_chars(const char *name, const char *text, size_t len,
                                         struct sw_tokenizer **out);
/* Like sw_tokenizer_open_chars, over all text of data files (paths or globs; plain text and JSONL).
 * as_text: as in sw_dataset_options. */
SW_API sw_status sw_tokenizer_open_chars_of(const char *const *files, int n_files, bool as_text,
                                            struct sw_tokenizer **out);
/* NULL is a no-op, as in all calls here that close. */
SW_API void sw_tokenizer_close(struct sw_tokenizer *tokenizer);

/*
 * sw_tokenizer_encode - append the ids of a text.
 *
 * Special tokens written in the text (`<|endoftext|>`) become their ids, as in the reference.
 *
 * thread       one thread at a time per tokenizer, because it caches words
 *
 * text         [len] UTF-8, may contain NUL
 * add_special  add the special tokens of the tokenizer's template
 * ids          appended to; unchanged on failure
 *
 * SW_E_FORMAT  not UTF-8, or a character outside the vocabulary: the message has the byte offset
 */
SW_API sw_status sw_tokenizer_encode(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                                     bool add_special, struct sw_ids *ids);
/* As sw_tokenizer_encode, for a text that a model writes. Marian's tokenizer has a model for each
 * language; those of mBART and mBART-50 have codes for them. */
SW_API sw_status sw_tokenizer_encode_target(struct sw_tokenizer *tokenizer, const char *text,
                                            size_t len, bool add_special, struct sw_ids *ids);
/* Encodes a prompt. Only the template's tokens before the text are added.
 *
 * SW_E_UNSUP   sources and targets have tokens of their own (Marian), and a prompt that the model
 *              continues would need both
 */
SW_API sw_status sw_tokenizer_encode_prompt(struct sw_tokenizer *tokenizer, const char *text,
                                            size_t len, struct sw_ids *ids);
/* Encodes two texts with the template for pairs. types (0 or 1 per id) may be NULL. */
SW_API sw_status sw_tokenizer_encode_pair(struct sw_tokenizer *tokenizer, const char *first,
                                          size_t first_len, const char *second, size_t second_len,
                                          bool add_special, struct sw_ids *ids,
                                          struct sw_ids *types);

/*
 * sw_tokenizer_decode - convert ids to text.
 *
 * Bytes that are not UTF-8 become U+FFFD. Ids without a token are skipped.
 *
 * out_text     NUL-terminated, the caller's: sw_text_free
 * out_len      may be NULL
 */
SW_API sw_status sw_tokenizer_decode(const struct sw_tokenizer *tokenizer, const int32_t *ids,
                                     int64_t n_ids, bool skip_special, char **out_text,
                                     size_t *out_len);

/* Writes a text incrementally while its ids are generated. */
struct sw_text_writer {
    const struct sw_tokenizer *tokenizer;
    FILE *to;
    const int32_t *prompt; /* [n_prompt] ids before the text, which are not written; NULL: none */
    int64_t n_prompt;
    size_t n_written; /* bytes written so far; initialize to 0 */
};
/*
 * sw_text_write - write the text that new ids add, without special tokens, in whole characters.
 *
 * ids          [n_ids] all ids so far, including those of earlier calls
 * last         no more ids follow; an incomplete character becomes U+FFFD
 */
SW_API sw_status sw_text_write(struct sw_text_writer *writer, const int32_t *ids, int64_t n_ids,
                               bool last);

/* Number of rows that an embedding needs: the highest id plus one. */
SW_API int64_t sw_tokenizer_vocab_size(const struct sw_tokenizer *tokenizer);
/* Ids of special tokens; -1 if the tokenizer has none. */
SW_API int32_t sw_tokenizer_eos(const struct sw_tokenizer *tokenizer);
SW_API int32_t sw_tokenizer_bos(const struct sw_tokenizer *tokenizer);
SW_API int32_t sw_tokenizer_pad(const struct sw_tokenizer *tokenizer);
/* A token as the vocabulary spells it (byte-level BPE: in the byte alphabet), borrowed. NULL if the
 * id has no token. */
SW_API const char *sw_tokenizer_token(const struct sw_tokenizer *tokenizer, int32_t id,
                                      size_t *out_len);
/* The id of a token as the vocabulary spells it; -1 if there is none. */
SW_API int32_t sw_tokenizer_find(const struct sw_tokenizer *tokenizer, const char *token);
/* Kind of the tokenizer, for example "byte-level BPE" or "characters". */
SW_API const char *sw_tokenizer_kind(const struct sw_tokenizer *tokenizer);
/* Writes the tokenizer's original files (chars.json for characters) into an existing folder, from
 * which sw_tokenizer_open can read them again. */
SW_API sw_status sw_tokenizer_save(const struct sw_tokenizer *tokenizer, const char *folder);

/* ---- chats ---- */

/* Tokens of a conversation that count in the loss. */
enum sw_loss_on {
    SW_LOSS_ON_ANSWERS, /* all answers */
    SW_LOSS_ON_LAST,    /* the last answer */
    SW_LOSS_ON_ALL      /* every token */
};
/* "answers", "last" or "all"; static storage. */
SW_API const char *sw_loss_on_name(enum sw_loss_on loss_on);
/* Returns false if there is no such name. */
SW_API bool sw_loss_on_by_name(const char *name, enum sw_loss_on *out);
/* Converts a date such as "2026-11-22" to seconds since 1970 in UTC, and back. Returns false, and
 * leaves *out unchanged, if the text is not a date of the years 1000 .. 9999. */
SW_API bool sw_day_of_text(const char *text, int64_t *out);
SW_API void sw_day_text(int64_t day, char out[11]);

/* Converts conversations to tokens, by a template, and selects the tokens that count in the loss.
 * Only one thread at a time may use a chat and its tokenizer. */
typedef struct sw_chat sw_chat;

struct sw_chat_options {
    /* The tokenizer's folder, or a file in it. The template is chat_template.jinja, or else
     * chat_template of tokenizer_config.json: a text, or a list of named templates. */
    const char *folder;
    const char *template_path; /* a template file instead; NULL = none */
    sw_tokenizer *tokenizer;   /* borrowed while the chat is open */
    int64_t date;              /* date for strftime_now, seconds since 1970 in UTC */
    enum sw_loss_on loss_on;
    /* The user gave chat flags: sw_chat_open_for then refuses data that needs no chat. */
    bool asked_for;
};
/* Parses the chat flags; NULL = not given. template_path: the template's file ("none": no chats).
 * date: default today, in UTC. loss_on: default answers. The caller still sets folder and tokenizer
 * of *out. SW_E_ARG names the flag. */
SW_API sw_status sw_chat_options_read(const char *template_path, const char *date,
                                      const char *loss_on, struct sw_chat_options *out);
/*
 * sw_chat_open - read the template.
 *
 * SW_E_CONFIG  there is no template, or the tokenizer was opened with no_bos, which is for texts
 * SW_E_FORMAT  the template has a syntax error; the message has line and column
 * SW_E_UNSUP   the template needs a feature that is not built, or the tokenizer has no special
 *              tokens
 */
SW_API sw_status sw_chat_open(const struct sw_chat_options *options, sw_chat **out);
SW_API void sw_chat_close(sw_chat *chat);

enum sw_data_kind {
    SW_DATA_TEXT,  /* running text, or token shards */
    SW_DATA_PAIRS, /* JSON lines of prompt and completion */
    SW_DATA_CHATS  /* JSON lines of messages, conversations, or instruction and output */
};
/* Detects the kind of data by the first line of the first JSONL file. */
SW_API sw_status sw_data_kind_of(const char *const *files, int n_files, bool as_text,
                                 enum sw_data_kind *out);
/* Do answers of the chats in these files have weights other than 0 and 1? Batches then need the
 * input weights (spillway.token_weights). */
SW_API sw_status sw_data_has_weights(const char *const *files, int n_files, bool *out);
/* Opens a chat if the data needs one: chats always do, and prompts and completions do if there is a
 * template. Otherwise *out is NULL. folder NULL means that there is no tokenizer folder: chats are
 * refused. template_path "none" also refuses chats, and joins prompts and completions as they
 * are. */
SW_API sw_status sw_chat_open_for(const struct sw_chat_options *options, enum sw_data_kind kind,
                                  sw_chat **out);

/* Properties of a chat. source: file of the template, lent. digest: over the template's text and
 * the special tokens that it may write. is_given: the template is not from the tokenizer's folder.
 * date and loss_on: the options it was opened with. */
SW_API const char *sw_chat_source(const sw_chat *chat);
SW_API const char *sw_chat_digest(const sw_chat *chat);
SW_API bool sw_chat_is_given(const sw_chat *chat);
SW_API int64_t sw_chat_date(const sw_chat *chat);
SW_API enum sw_loss_on sw_chat_loss_on(const sw_chat *chat);
/* Writes FOLDER/chat_template.jinja. */
SW_API sw_status sw_chat_save_template(const sw_chat *chat, const char *folder);

/* A conversation in progress. say adds a message; prompt appends the ids after which the model
 * writes its answer. */
SW_API sw_status sw_chat_say(sw_chat *chat, const char *role, const char *content);
SW_API sw_status sw_chat_prompt(sw_chat *chat, struct sw_ids *ids);
/* Appends the ids of a single question, without the conversation so far. */
SW_API sw_status sw_chat_ask(sw_chat *chat, const char *content, struct sw_ids *ids);
/* Appends the ids that end an answer: eos_token_id (an id or a list) in the folder's
 * generation_config.json. Appends nothing if there is no such file or key. */
SW_API sw_status sw_chat_stops(const char *folder, struct sw_ids *ids);

/* Options of `spillway tokenize`. All zero: one line of ids for each line of text. */
struct sw_tokenize_options {
    sw_chat *chat; /* converts lines of JSON conversations to {"text", "ids", "mask"}; or NULL */
    bool decode;   /* converts lines of ids to lines of text */
    bool json;     /* JSON lines: {"text": ..} or {"pair": [.., ..]} to {"ids": [..]}, and back */
    bool special;  /* adds template tokens when encoding; keeps special tokens when decoding */
    const char *name; /* name of the input, for messages; NULL: "standard input" */
};
/* options      NULL: all zero */
SW_API sw_status sw_tokenize_stream(struct sw_tokenizer *tokenizer,
                                    const struct sw_tokenize_options *options, FILE *in, FILE *out);
/* As sw_tokenize_stream, for texts that a model writes: sw_tokenizer_encode_target. There are no
 * pairs of them. */
SW_API sw_status sw_tokenize_targets(struct sw_tokenizer *tokenizer,
                                     const struct sw_tokenize_options *options, FILE *in,
                                     FILE *out);

/* ---- datasets ---- */

typedef struct sw_dataset sw_dataset;

enum { SW_IGNORED_LABEL = -100 }; /* label of a position that does not count in the loss */
#define SW_VAL_FRACTION 0.1       /* default fraction held back for validation */

enum sw_split { SW_SPLIT_TRAIN, SW_SPLIT_VAL };

/*
 * The files to read, as paths or globs. The format depends on the extension and the content:
 *   *.jsonl      one JSON object per line: {"text"}; or in every line {"prompt", "completion"}, or,
 *                with a chat, {"messages"}, {"conversations"} or {"instruction", "input", "output"}
 *   *.bin        token shards: llm.c's (by its magic numbers), else nanoGPT's headerless u16
 *   all other    plain text, one document per file. Structured files are refused: those named
 *                .json, .csv, .gz .., or that begin and end like JSON
 * as_text reads every file as one plain text.
 *
 * Texts: each document gets the tokenizer's template for one text, for example <s> before it. If
 * the template adds nothing after a text, documents are joined by the end-of-text token, if there
 * is one. They are cut into windows of seq_len inputs and seq_len labels. Each label is the token
 * after its input.
 *
 * Prompts and completions: each pair is one row, in the same template, padded on the right. Only
 * the completion and its end have labels.
 *
 * Chats: each chat is one row of the chat template's tokens. The chat's options select the labels.
 *
 * Weights: sample s belongs to file i so often as its weight says, exactly in every 65536 samples.
 * Each file is a stream or list of its own with its own epochs. Validation without val_files holds
 * back the last samples of each.
 */
struct sw_dataset_options {
    const char *const *files;
    int n_files;
    const char *const *val_files; /* none: the last val_fraction of the windows or rows */
    int n_val_files;
    double val_fraction;            /* 0 .. 1, 0: no validation samples; not used with val_files */
    struct sw_tokenizer *tokenizer; /* borrowed for the call; may be NULL for shards */
    int64_t vocab_size;             /* ids at or above it are refused; 0: that of the tokenizer */
    int64_t seq_len;                /* T */
    uint64_t seed;                  /* seed of the order of the training samples */
    bool as_text;
    sw_chat *chat; /* makes rows of conversations, borrowed for the call; NULL: chats are refused */
    bool packing;  /* rows hold several documents, chats or prompts: see sw_dataset_fetch_packed */
    const struct sw_task_data *task; /* borrowed for the call; NULL: language modelling */
    /* [n_files] shares of the training order for each of `files`, of any sum. NULL: the files are
     * one list, in which each sample comes once an epoch. */
    const double *weights;
    /* Samples of a batch: batches then have rows of similar lengths. 0: any rows. */
    int64_t group_by_length;
};

/* Data of tasks other than language modelling. Files are JSON lines, tables (.csv, .tsv), SQuAD's
 * .json or plain text; for images, folders of pictures by class or CIFAR's .bin. docs/tasks.md has
 * the fields of each task. */
struct sw_task_data {
    const char *name;               /* "masked", "classify", ..: as in --task */
    int64_t target_len;             /* target tokens of an encoder-decoder */
    int64_t n_labels;               /* number of classes, or of numbers */
    const char *const *label_names; /* [n_labels]; NULL: the classes are 0, 1, .. */
    /* Fields of the text or of both texts, and of labels, tags or targets. NULL: the usual ones. A
     * number selects a column of a table without names. */
    const char *text_columns[2], *label_column;
    const char *source_prefix; /* put before each source ("summarize: "); NULL: none */
    bool has_pad_id;           /* rows are padded with pad_id; false: with the tokenizer's */
    int32_t pad_id;
    int64_t doc_stride; /* overlap of windows of a context in tokens; 0: 128, at most T / 3 */
    int64_t channels, height, width; /* size of the images as the model needs them */
    /* preprocessor_config.json, for images. NULL: resize to that size, mean and standard deviation
     * 0.5. */
    const char *preprocessor;
};

/* options      must not be NULL (SW_E_ARG) */
SW_API sw_status sw_dataset_open(const struct sw_dataset_options *options, struct sw_dataset **out);
SW_API void sw_dataset_close(struct sw_dataset *dataset);

/* Number of samples per epoch. */
SW_API int64_t sw_dataset_n_samples(const struct sw_dataset *dataset, enum sw_split split);
/* Number of tokens of both splits; padding of prompts and completions does not count. */
SW_API int64_t sw_dataset_n_tokens(const struct sw_dataset *dataset);

/* Number of documents in the files of a split, if each document is a row: documents kept; those of
 * them cut at seq_len; documents dropped because no label was left. */
SW_API int64_t sw_dataset_n_documents(const struct sw_dataset *dataset, enum sw_split split);
SW_API int64_t sw_dataset_n_cut(const struct sw_dataset *dataset, enum sw_split split);
SW_API int64_t sw_dataset_n_dropped(const struct sw_dataset *dataset, enum sw_split split);

/*
 * sw_dataset_fetch - read the rows of samples first .. first + n_rows - 1.
 *
 * Training samples are numbered without end: sample s is in epoch s / n, and each epoch is shuffled
 * by (seed, epoch). Validation samples keep the order of the files. Rows after the last one are
 * blank (id 0, no labels), so that the last batch has the shape of the others.
 *
 * thread       any number of threads concurrently
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

/* The same rows, with the position of each token in its document, from 0, and the number of that
 * document in its row, from 1. Padding is 0 in both. Without packing, each row is one document. */
SW_API sw_status sw_dataset_fetch_packed(const struct sw_dataset *dataset, enum sw_split split,
                                         int64_t first, int64_t n_rows, int32_t *ids,
                                         int32_t *labels, int32_t *positions, int32_t *segments);
/* An input of a batch, by the name of its sw_input: [n_rows, ..], i32 or f32. */
struct sw_row_input {
    const char *name;
    void *data;
};
/* The same rows for any task, as the named inputs. Random choices for a sample (masks, spans,
 * second texts) depend only on seed, split and sample number. Rows after the last validation sample
 * have no labels. SW_E_ARG: the task has no such input. SW_E_FORMAT: a picture is damaged; the
 * message names its file. */
SW_API sw_status sw_dataset_fetch_inputs(const sw_dataset *dataset, enum sw_split split,
                                         int64_t first, int64_t n_rows,
                                         const struct sw_row_input *inputs, int n_inputs);
/* Fraction of padding among the tokens of a split's rows. */
SW_API double sw_dataset_padding(const struct sw_dataset *dataset, enum sw_split split);

#ifdef __cplusplus
}
#endif
