// SPDX-License-Identifier: Apache-2.0
// The training job of `spillway train`. It reads text or token shards, prints a line per step,
// validates, writes samples and checkpoints, and exports a Hugging Face folder at the end.
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "spillway/data.h"
#include "spillway/engine.h"
#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The task and the fields of the data files: docs/tasks.md. All zero: the task of the model's class
 * and the usual fields. */
struct sw_task_options {
    const char *name;          /* "masked", "classify", ..; NULL: the task of the model's class */
    const char *const *labels; /* [n_labels] class names in order, or one number; none: the labels
                                  of the model, or else of the data */
    int n_labels;
    const char *const *text_columns; /* [n_text_columns] fields of the text, or of both texts */
    int n_text_columns;
    const char *label_column;  /* field of labels, tags or targets */
    const char *source_prefix; /* put before each source text of a sequence-to-sequence task */
    const char *metric;        /* metric that selects the best checkpoint; NULL: validation loss */
    int64_t target_len;        /* tokens of a target; 0 = the length of the rows */
};

/* Only model, data, output and steps must be set; all other fields may be zero. A NULL pointer to
 * options is SW_E_ARG. Strings are borrowed for the call. */
struct sw_train_options {
    const char *model;       /* folder, config.json or preset */
    const char *adapter;     /* adapter folder to continue training from; NULL = none */
    const char *const *data; /* [n_data] paths or globs */
    int n_data;
    const double *data_weights;  /* [n_data] shares of samples; NULL: the files are one list */
    const char *const *val_data; /* [n_val_data]; none: the last tenth of the data */
    int n_val_data;
    const char *tokenizer; /* folder or file; NULL: that of the model folder, or else characters */
    /* Chats. chat_template: a file instead of the tokenizer's template ("none": prompts and
     * completions are joined as they are). chat_date: the date for the template, "2026-11-22";
     * NULL: the day on which the run began. loss_on: "answers", "last" or "all"; NULL: answers. */
    const char *chat_template, *chat_date, *loss_on;
    struct sw_task_options task;
    /* A ds_config.json file, or its text. Neither: micro-batch 8, AdamW, clipping at 1. */
    const char *config_path, *config_text;
    const char *const *sets; /* [n_sets] "a.b=value" */
    int n_sets;
    const char *const *rates; /* [n_rates] rates for "auto" keys; see sw_engine_plan */
    int n_rates;
    const char *output; /* folder of checkpoints, metrics.jsonl and the model */
    int64_t steps;      /* optimizer steps in total, including those before a resume */
    /* Passes over the training samples, instead of `steps`: ceil(epochs x ceil(samples / global
     * batch)) steps. 0 = use `steps`. */
    double epochs;
    int64_t seq_len; /* 0 = the model's context; for chats at most 1024 */
    uint64_t seed;
    bool has_seed;
    /* Checkpoint to resume from; at most one of the three. resume: the newest of the output folder,
     * which must have one. resume_if_any: the newest, if there is one. resume_from: a path, of this
     * run or of another. */
    bool resume, resume_if_any;
    const char *resume_from;
    bool allow_other_data; /* resume even if the checkpoint was trained on other data */
    bool no_verify;        /* resume without comparing the digests of the checkpoint's files */
    int64_t eval_every;    /* steps between validations; 0 = no validation */
    /* Maximum number of batches per validation. 0 = all for tasks with labelled rows (classes,
     * numbers, tags, answers, images), 16 for language models. */
    int64_t eval_batches;
    /* Ends the run after this many validations of eval_every in a row without a better metric or
     * loss; 0 = never. */
    int64_t early_stopping;
    int64_t sample_every, sample_tokens; /* steps, 0 = no samples; tokens, 0 = 200 */
    const char *sample_prompt;           /* NULL = BOS, the end-of-text token, or a line break */
    int64_t save_every, keep_last;       /* steps, 0 = at the end only; checkpoints, 0 = all */
    int export_dtype;     /* enum sw_dtype; -1 = the original dtype of the model, f32 for presets */
    int64_t ranks;        /* data-parallel ranks, threads of this process; 0 = 1 */
    double deadline_s;    /* longest wait of a rank for the others; 0 = 300 */
    bool as_text;         /* treat every data file as plain text, whatever its name */
    bool no_bos;          /* leave out the tokens that the tokenizer puts before a text */
    bool group_by_length; /* the rows of a step have similar lengths */
    bool quiet;           /* do not print a line per step */
    bool bar;             /* always show a progress bar, also under mpirun */
    bool no_export;       /* do not write OUTPUT/model */
    bool export_best;     /* export the checkpoint with the lowest validation loss, not the last */
    bool profile;         /* print a table of time by operation at the end */
    const char *metrics_file;    /* Prometheus text, to a file or a stream; NULL = none */
    volatile sig_atomic_t *stop; /* a signal handler sets it to save and stop; NULL = never */
};

struct sw_train_result {
    int64_t step;
    double loss, val_loss;        /* val_loss is NaN if it was not computed */
    double seconds, tokens_per_s; /* images per second for image tasks */
    bool stopped;                 /* stopped by *stop, before the last step */
    bool stopped_early;           /* stopped by early_stopping */
};

/*
 * sw_train - run the job. Progress goes to `out`: lines, or a live bar if it is a terminal.
 *
 * started      true once the first step begins
 *
 * SW_E_ARG, SW_E_CONFIG, SW_E_UNSUP, SW_E_NOMEM with *started false: refused before the first step
 *
 * With options->ranks it starts the ranks itself, as threads. In a process that a launcher started
 * it is collective: each process makes the call with the same options.
 */
SW_API sw_status sw_train(const struct sw_train_options *options, FILE *out, bool *started,
                          struct sw_train_result *result);

/*
 * The engine options that sw_train would use, for plans and for your own training loops: the same
 * configuration, the vocabulary of the tokenizer or of the text, and the classes. Only the model
 * must be given. The options are borrowed while the setup is open.
 */
typedef struct sw_train_setup sw_train_setup;
/* The configuration edit (sw_engine_config.sets) that adds the default optimizer if the file has
 * none: AdamW with the defaults of transformers' Trainer. Static storage. */
SW_API const char *sw_train_default_optimizer(void);
/*
 * sw_train_setup_open - read what decides the options: the tokenizer, the template and the classes.
 *
 * options      borrowed while the setup is open, with its strings
 * out          close with sw_train_setup_close
 *
 * SW_E_ARG, SW_E_CONFIG, SW_E_UNSUP  as sw_train before its first step
 *
 * Not collective.
 */
SW_API sw_status sw_train_setup_open(const struct sw_train_options *options, sw_train_setup **out);
/* The engine options; lent while the setup is open. */
SW_API const struct sw_engine_options *sw_train_setup_engine(const sw_train_setup *setup);
/* The tokenizer of the data, lent. NULL if the data holds tokens already, or is not text. */
SW_API struct sw_tokenizer *sw_train_setup_tokenizer(const sw_train_setup *setup);
/*
 * sw_train_setup_data - open the samples that sw_train would read: texts, chats by their template,
 * or records of other tasks, with the tokenizer and the classes of the setup.
 *
 * engine  opened with the setup's options; more outputs may be enabled
 * comm    communicator of the engine, whose ranks compare their data; NULL = one rank. Collective
 * out     close with sw_dataset_close; outlives the setup
 */
SW_API sw_status sw_train_setup_data(sw_train_setup *setup, sw_engine *engine, sw_comm *comm,
                                     struct sw_dataset **out);
/* NULL is a no-op. */
SW_API void sw_train_setup_close(sw_train_setup *setup);

/* Options of an evaluation: the loss and the metrics of a task over all rows of files. It does not
 * serve language modelling, which has only a loss (sw_task_is_text). */
struct sw_eval_options {
    const char *model, *adapter, *tokenizer; /* as for a training */
    const char *const *data;                 /* [n_data] paths or globs */
    int n_data;
    struct sw_task_options task;
    const char *config_path; /* NULL: batches of `batch` rows */
    const char *const *sets; /* [n_sets] */
    int n_sets;
    int64_t batch, seq_len;
    int64_t batches; /* maximum number of batches; 0 = all */
    /* Output file for predictions; NULL: none. Answers are written as {"id": "text"}. Texts that an
     * encoder-decoder generates are written as {"prediction": .., "target": ..}, one per line. */
    const char *predictions;
    const struct sw_chat_options *chat; /* the chat flags, for preferences; NULL = none is given */
    bool as_text, json;
    sw_comm *comm; /* of this rank; borrowed; NULL = a single rank */
};
/* Evaluates a task and prints the results. *started is false if the call was refused before the
 * first batch. Collective: ranks give the same options and evaluate the same rows together, and the
 * first one writes. */
SW_API sw_status sw_eval(const struct sw_eval_options *options, FILE *out, bool *started);
/* Whether the task of a model is language modelling: the next token of text. SW_E_ARG: an option
 * does not apply to the task. */
SW_API sw_status sw_task_is_text(const char *model, const struct sw_task_options *options,
                                 bool *out);

/* Options of text generation: the continuation of a prompt, or the output of an encoder-decoder for
 * each text that it reads. */
struct sw_generate_options {
    const char *model, *adapter, *tokenizer; /* as for a training */
    const char *const *sets;                 /* [n_sets] */
    int n_sets;
    const char *prompt; /* NULL: those of `in` */
    /* lines, each a prompt; NULL, or none for a decoder: one that is empty */
    FILE *in;
    const char *source_prefix; /* put before each text that an encoder reads; NULL = none */
    int64_t tokens; /* maximum of new tokens; 0 or less: as in the model's files, or else 100 */
    /* Sampling. Stop tokens and rules come from generation_config.json. For an encoder-decoder
     * without that file they come from config.json. */
    struct sw_sampling sampling;
    bool ignore_eos;
    bool no_bos;   /* leave out the tokens that the tokenizer puts before a prompt */
    sw_comm *comm; /* of this rank; borrowed; NULL = a single rank */
};
/* Generates text and prints it. *started is false if the call was refused before the first token.
 * Collective: ranks give the same options, and the first one reads `in` and writes to `out`. */
SW_API sw_status sw_generate_text(const struct sw_generate_options *options, FILE *out,
                                  bool *started);

/* Stop tokens and rules of a model's generation_config.json (docs/tasks.md). For an encoder-decoder
 * without that file they come from config.json. */
struct sw_writing;
/*
 * sw_writing_open - read the file. A warning names the keys that would change a text and are not
 * supported.
 *
 * model        a folder, config.json or preset; one without either file has no rules
 * tokenizer    its end-of-text token is the stop token if the file has none; NULL = there is none
 * asked        the sampling that will be used
 * out          close with sw_writing_close
 *
 * SW_E_FORMAT  names a key with an invalid value
 * Other errors are those of opening the model.
 */
SW_API sw_status sw_writing_open(const char *model, const sw_tokenizer *tokenizer,
                                 const struct sw_sampling *asked, struct sw_writing **out);
/* Sets the rules for a prompt of n_prompt tokens in *sampling and, if `ends`, the stop tokens.
 * *sampling then points into `writing`. */
SW_API void sw_writing_apply(struct sw_writing *writing, int64_t n_prompt, bool ends,
                             struct sw_sampling *sampling);
SW_API void sw_writing_close(struct sw_writing *writing);

#ifdef __cplusplus
}
#endif
