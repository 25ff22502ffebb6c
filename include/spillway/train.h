// SPDX-License-Identifier: Apache-2.0
// The whole training job that `spillway train` runs: text or token shards in, steps with a line
// each, validation, samples, checkpoints, and at the end a Hugging Face folder.
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

/* What is learned, and how files say it: docs/tasks.md. All zero: what the model is for, and the
 * usual fields. */
struct sw_task_options {
    const char *name;          /* "masked", "classify", ..; NULL: what the model's class says */
    const char *const *labels; /* [n_labels] names of classes in their order, or one number; none:
                                  those of the model, else of the data */
    int n_labels;
    const char *const *text_columns; /* [n_text_columns] fields of the text, or of both */
    int n_text_columns;
    const char *label_column;  /* of labels, tags or targets */
    const char *source_prefix; /* before each source of a text for a text */
    const char *metric;        /* that the best checkpoint is best by; NULL: the validation loss */
    int64_t target_len;        /* tokens of a target; 0 = as long as the rows */
};

/* All zero plus model, data, output and steps is a legal start; no options at all (NULL) are
 * SW_E_ARG. Strings are borrowed for the call. */
struct sw_train_options {
    const char *model;       /* folder, config.json or preset */
    const char *adapter;     /* of the model, to go on with: a folder; NULL = none */
    const char *const *data; /* [n_data] paths or globs */
    int n_data;
    const char *const *val_data; /* [n_val_data]; none: the last tenth of the data */
    int n_val_data;
    const char *tokenizer; /* folder or file; NULL: the model folder's, else characters */
    /* Of chats: a template in place of that beside the tokenizer ("none": prompts and completions
     * are joined as they are); the day that it is told, "2026-11-22" (NULL: that on which the run
     * began); what the loss is on, "answers", "last" or "all" (NULL: answers). */
    const char *chat_template, *chat_date, *loss_on;
    struct sw_task_options task;
    /* ds_config.json, or its text; neither: micro-batch 8, AdamW, clipping at 1 */
    const char *config_path, *config_text;
    const char *const *sets; /* [n_sets] "a.b=value" */
    int n_sets;
    const char *const *rates; /* [n_rates] by which "auto" is chosen; see sw_engine_options */
    int n_rates;
    const char *output; /* folder of checkpoints, metrics.jsonl and the model */
    int64_t steps;      /* optimizer steps in all, those before a resume included */
    /* Passes over the training samples, in place of `steps`: ceil(epochs x ceil(samples / global
     * batch)) steps. 0 = `steps`. */
    double epochs;
    int64_t seq_len; /* 0 = the model's context; for chats at most 1024 */
    uint64_t seed;
    bool has_seed;
    /* The run goes on from a checkpoint, by at most one of these: the newest of the output folder,
     * which must have one; the newest if there is one; the one of this path, of this run or of
     * another. */
    bool resume, resume_if_any;
    const char *resume_from;
    bool allow_other_data; /* resumes although the checkpoint was trained on other data */
    bool no_verify;        /* resumes without comparing the digests of the checkpoint's files */
    int64_t eval_every;    /* 0 = no validation */
    /* Batches of one validation at most; 0 = all for tasks of labelled rows (classes, numbers,
     * tags, answers, images), 16 for language models. */
    int64_t eval_batches;
    /* Ends the run after so many validations of eval_every in a row without a better metric or
     * loss; 0 = never. */
    int64_t early_stopping;
    int64_t sample_every, sample_tokens; /* 0 = no samples; 0 tokens = 200 */
    const char *sample_prompt;           /* NULL = BOS, the end-of-text token, or a line break */
    int64_t save_every, keep_last;       /* 0 = at the end only; 0 = keep all */
    int export_dtype;  /* enum sw_dtype; -1 = as the model came, f32 for presets */
    int64_t ranks;     /* data-parallel ranks, threads of this process; 0 = 1 */
    double deadline_s; /* longest wait of a rank for the others; 0 = 300 */
    bool as_text;      /* every data file is plain text, whatever its name */
    bool no_bos;       /* leave out what the tokenizer puts before a text */
    bool quiet;        /* no line a step */
    bool bar;          /* a live line with a bar in any case, under mpirun, too */
    bool no_export;    /* leave out OUTPUT/model */
    bool export_best;  /* OUTPUT/model is the checkpoint of least validation loss, not the last */
    bool profile;      /* a table of time by operation at the end */
    const char *metrics_file;    /* Prometheus text, to a file or a stream; NULL = none */
    volatile sig_atomic_t *stop; /* set by a signal handler: checkpoint and stop; NULL = never */
};

struct sw_train_result {
    int64_t step;
    double loss, val_loss;        /* val_loss NaN where none was computed */
    double seconds, tokens_per_s; /* of images: images a second */
    bool stopped;                 /* by *stop, before the last step */
    bool stopped_early;           /* by early_stopping */
};

/*
 * sw_train - run the job; progress goes to `out` (lines, or a live bar where it is a terminal).
 *
 * SW_E_ARG, SW_E_CONFIG, SW_E_UNSUP, SW_E_NOMEM with *started false: refused before the first step
 */
SW_API sw_status sw_train(const struct sw_train_options *options, FILE *out, bool *started,
                          struct sw_train_result *result);

/*
 * What sw_train would open its engine with, for plans and for loops of one's own: the same
 * configuration, the vocabulary of the tokenizer or of the text, the classes. Only the model must
 * be given; options are borrowed while it is open.
 */
typedef struct sw_train_setup sw_train_setup;
/* The edit of a configuration (sw_engine_options.sets) by which a training has an optimizer if its
 * file has none: AdamW as transformers' Trainer makes it. Static. */
SW_API const char *sw_train_default_optimizer(void);
SW_API sw_status sw_train_setup_open(const struct sw_train_options *options, sw_train_setup **out);
/* Lent while it is open. */
SW_API const struct sw_engine_options *sw_train_setup_engine(const sw_train_setup *setup);
/* What makes tokens of the data; lent, NULL: the data has them, or is none of text. */
SW_API struct sw_tokenizer *sw_train_setup_tokenizer(const sw_train_setup *setup);
/*
 * sw_train_setup_data - the samples that sw_train would read: chats by their template, the records
 * of other tasks, with the tokenizer and the classes of the setup.
 *
 * engine  opened with the setup's options, or with those and more outputs
 * comm    that of the engine, whose ranks compare their data; NULL = alone. Collective
 * out     sw_dataset_close; outlives the setup
 */
SW_API sw_status sw_train_setup_data(sw_train_setup *setup, sw_engine *engine, sw_comm *comm,
                                     struct sw_dataset **out);
SW_API void sw_train_setup_close(sw_train_setup *setup);

/* The loss and the metrics of a task over all rows of files; text that is continued has only its
 * loss, and is none of these (sw_task_is_text). */
struct sw_eval_options {
    const char *model, *adapter, *tokenizer; /* as for a training */
    const char *const *data;                 /* [n_data] paths or globs */
    int n_data;
    struct sw_task_options task;
    const char *config_path; /* NULL: batches of `batch` rows */
    const char *const *sets; /* [n_sets] */
    int n_sets;
    int64_t batch, seq_len;
    int64_t batches; /* stops after so many; 0 = all */
    /* A file that answers are written to: {"id": "text"}, or the texts of an encoder-decoder, which
     * are generated: {"prediction": .., "target": ..} a line; NULL: none. */
    const char *predictions;
    bool as_text, json;
};
/* *started false: refused before the first batch. */
SW_API sw_status sw_eval(const struct sw_eval_options *options, FILE *out, bool *started);
/* Whether what a model is to learn is the next token of text. SW_E_ARG: an option that the task has
 * no use for. */
SW_API sw_status sw_task_is_text(const char *model, const struct sw_task_options *options,
                                 bool *out);

/* A text that is continued, or one for each that an encoder-decoder reads. */
struct sw_generate_options {
    const char *model, *adapter, *tokenizer; /* as for a training */
    const char *const *sets;                 /* [n_sets] */
    int n_sets;
    const char *prompt;        /* NULL: nothing; an encoder-decoder reads each line of `in` .. */
    FILE *in;                  /* .. if it is there */
    const char *source_prefix; /* before what an encoder reads; NULL = none */
    int64_t tokens;            /* new ones at most; 0 or less: what the model's files say, or 100 */
    /* Draws. What ends a text, and rules, are those of generation_config.json; of an
     * encoder-decoder without it those of config.json. */
    struct sw_sampling sampling;
    bool ignore_eos;
    bool no_bos; /* leave out what the tokenizer puts before a text that is continued */
};
/* *started false: refused before the first token. */
SW_API sw_status sw_generate_text(const struct sw_generate_options *options, FILE *out,
                                  bool *started);

/* What a model's generation_config.json says of the texts that it writes (docs/tasks.md). */
struct sw_writing;
/*
 * sw_writing_open - reads it, and names in a warning what would change a text and is not followed.
 *
 * tokenizer    its end ends a text where the file does not say what does
 * asked        how tokens will be chosen
 * out          sw_writing_close
 *
 * SW_E_FORMAT  names a key that makes no sense
 */
SW_API sw_status sw_writing_open(const char *model, const sw_tokenizer *tokenizer,
                                 const struct sw_sampling *asked, struct sw_writing **out);
/* The rules behind a prompt of so many tokens and, where `ends`, what ends the text; *sampling
 * points into writing then. */
SW_API void sw_writing_apply(struct sw_writing *writing, int64_t n_prompt, bool ends,
                             struct sw_sampling *sampling);
SW_API void sw_writing_close(struct sw_writing *writing);

#ifdef __cplusplus
}
#endif
