// SPDX-License-Identifier: Apache-2.0
// What the files of a training job share. Private to the room, whose door is spillway/train.h.
#pragma once

#include "base/base.h"
#include "data/data.h"
#include "engine/engine.h"
#include "json/json.h"
#include "spillway/train.h"

/* ---- task.c ---- */
/* All zero: nothing was chosen. */
struct sw_job_task {
    const struct sw_task *task;
    struct sw_task_data data; /* of its files, once it fits the model */
    enum sw_metric metric;    /* that checkpoints are compared by */
    struct sw_label_list found;
    struct sw_json_doc *config; /* of the model; names are of it, or of `found`, or the user's */
    const char **names;         /* [data.n_labels]; NULL: classes are numbers */
};
/* Which task a model and flags say, and which classes the flags, the model or the files have. */
sw_status sw_job_task_choose(const struct sw_task_options *options, const char *model,
                             const struct sw_dataset_options *files, struct sw_job_task *out);
/* SW_E_ARG: the task has no metric of this name. */
sw_status sw_job_task_metric(const struct sw_task *task, const char *name, enum sw_metric *out);
/* Takes what the open model says of sizes. */
sw_status sw_job_task_fit(struct sw_job_task *task, const char *model,
                          const struct sw_task_sizes *sizes);
/* What makes rows of its records: the task, fields, classes in their order. */
void sw_job_task_text(const struct sw_job_task *task, struct sw_str *out);
void sw_job_task_close(struct sw_job_task *task);

/* Batches of a task's inputs, in memory of their own. */
struct sw_job_rows {
    int64_t batch, n; /* rows of a batch; batches */
    int n_inputs;
    const char *names[SW_TASK_MAX_INPUTS];
    struct sw_view views[SW_TASK_MAX_INPUTS];
    void *memory;
    struct sw_tensor *tensors; /* [n, n_inputs] */
    struct sw_batch *batches;  /* [n] */
};
sw_status sw_job_rows_open(const struct sw_task *task, const struct sw_task_sizes *sizes,
                           bool packed, int64_t n, struct sw_job_rows *out);
void sw_job_rows_close(struct sw_job_rows *rows);
/* The inputs of batch i. */
void sw_job_rows_inputs(const struct sw_job_rows *rows, int64_t i,
                        struct sw_row_input out[SW_TASK_MAX_INPUTS]);
/* Rows of samples from `first` on into batch i. */
sw_status sw_job_rows_fetch(const struct sw_job_rows *rows, const sw_dataset *dataset,
                            enum sw_split split, int64_t first, int64_t n_rows, int64_t i);

/* What a model says of batches, for metrics. */
struct sw_job_measure {
    sw_engine *engine;
    const struct sw_task *task;
    float *outputs[SW_TASK_MAX_LOSSES]; /* [elems] */
    int64_t elems[SW_TASK_MAX_LOSSES];
    double of[SW_METRIC_COUNT]; /* the last that were counted; NaN: not counted */
};
sw_status sw_job_measure_open(sw_engine *engine, const struct sw_task *task,
                              struct sw_job_measure *out);
void sw_job_measure_close(struct sw_job_measure *measure);
/* Batch 0 of rows, which are those from `first` on. Collective. */
sw_status sw_job_measure_add(struct sw_job_measure *measure, struct sw_score *score,
                             const struct sw_job_rows *rows, int64_t first);

/* ---- settings.c ---- */
/* Of texts that a model writes; numbers are -1 where its files say none. */
struct sw_job_settings {
    struct sw_text_rules rules;
    struct sw_ids stops, never, begins;
    int64_t min_length, min_new, max_length, max_new;
    bool answers; /* an encoder reads what is asked */
};
/* draws: tokens are drawn. SW_E_FORMAT names a key that makes no sense. */
sw_status sw_job_settings_read(const char *model, bool answers, bool draws,
                               struct sw_job_settings *out);
void sw_job_settings_fini(struct sw_job_settings *settings);
/* New tokens at most; 0: the files do not say. */
int64_t sw_job_settings_most(const struct sw_job_settings *settings);
/* Stops and rules for a prompt of so many tokens; they point into settings. */
void sw_job_settings_apply(struct sw_job_settings *settings, int64_t n_prompt, bool ends,
                           struct sw_sampling *out);

/* ---- texts.c ---- */
struct sw_job_texts {
    sw_engine *engine;
    const sw_tokenizer *tokenizer;
    struct sw_job_settings settings;
    int64_t most;         /* new tokens of a text */
    int32_t *ids, *fresh; /* of a source or a target; what is new */
    FILE *file;
};
/* To be closed after a failure, too. */
sw_status sw_job_texts_open(sw_engine *engine, const sw_tokenizer *tokenizer, const char *model,
                            FILE *file, struct sw_job_texts *out);
void sw_job_texts_close(struct sw_job_texts *texts);
/* For the first n rows of batch 0. */
sw_status sw_job_texts_add(struct sw_job_texts *texts, const struct sw_job_rows *rows, int64_t n);

/* ---- agree.c ---- */
/* The samples of a dataset, one by one through batch 0 of rows; and flags, as a text. SW_E_CONFIG
 * names a rank that has others. */
sw_status sw_job_agree(sw_comm *comm, const sw_dataset *dataset, const struct sw_job_rows *rows,
                       const char *flags);

/* ---- chat.c ---- */
/* All zero: the data is text. */
struct sw_job_chat {
    enum sw_data_kind kind;
    int64_t day;       /* that the template is told */
    sw_chat *chat;     /* owned; NULL = none */
    const char **sets; /* [n_sets] the job's edits and those of chats; owned; NULL without a chat */
    int n_sets;
};
/* What the flags of chats say is legal. */
sw_status sw_job_chat_check(const struct sw_train_options *options);
/* What the data is, and the day; on all ranks the same. Collective. */
sw_status sw_job_chat_choose(const struct sw_train_options *options, sw_comm *comm,
                             struct sw_job_chat *out);
/* Opens the chat, if the data wants one. folder: of the tokenizer; NULL: it is made of the text. */
sw_status sw_job_chat_open(const struct sw_train_options *options, const char *folder,
                           sw_tokenizer *tokenizer, struct sw_job_chat *out);
void sw_job_chat_close(struct sw_job_chat *chat);
/* tokens: of a row. */
void sw_job_chat_print(const struct sw_job_chat *chat, const sw_dataset *dataset, int64_t tokens,
                       FILE *out);
/* What goes beside the weights: the template, where no other file of the folder has it. */
sw_status sw_job_chat_save(const struct sw_job_chat *chat, const char *folder);

/* ---- data_record.c ---- */
struct sw_data_record_options {
    const char *const *files, *const *val_files; /* paths or globs */
    int n_files, n_val_files;
    const sw_tokenizer *tokenizer; /* NULL: shards need none */
    const sw_chat *chat;           /* NULL: the data is no chats */
    const char *task;              /* sw_job_task_text; NULL: the next token of text */
    int64_t n_samples;             /* of an epoch */
};
/* What a training reads, for its checkpoints: names, sizes and digests of files, which are read
 * whole. */
sw_status sw_data_record(const struct sw_data_record_options *options, struct sw_json_doc **out);

/* ---- export.c ---- */
/* The weights of a checkpoint; note: which one it was, for people. */
sw_status sw_job_export_saved(const char *path, const char *folder, enum sw_dtype dtype, char *note,
                              size_t cap);
