// SPDX-License-Identifier: Apache-2.0
// What the files of a training job share. Private to the room, whose door is spillway/train.h.
#pragma once

#include <math.h>

#include "base/base.h"
#include "ckpt/ckpt.h"
#include "data/data.h"
#include "engine/engine.h"
#include "job/queues.h"
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
    struct sw_str preprocessor; /* path of the model's, for images */
};
/* Which task a model and flags say, and which classes the flags, the model or the files have.
 * trains: pictures of other classes than the model's make a head of their own. */
sw_status sw_job_task_choose(const struct sw_task_options *options, const char *model,
                             const struct sw_dataset_options *files, bool trains,
                             struct sw_job_task *out);
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

/* For people: C prints the sign of a NaN, which means nothing. */
static inline double sw_job_shown(double value)
{
    return isnan(value) ? fabs(value) : value;
}

/* ---- settings.c ---- */
/* Of texts that a model writes; numbers are -1 where its files say none. */
struct sw_job_settings {
    struct sw_text_rules rules;
    struct sw_ids stops, never, begins;
    int64_t min_length, min_new, max_length, max_new;
    bool answers; /* an encoder reads what is asked */
};
/* asked: how tokens will be chosen. SW_E_FORMAT names a key that makes no sense. */
sw_status sw_job_settings_read(const char *model, bool answers, const struct sw_sampling *asked,
                               struct sw_job_settings *out);
/* Where nothing says what ends a text, the tokenizer's end does. */
sw_status sw_job_settings_stop(struct sw_job_settings *settings, const sw_tokenizer *tokenizer);
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

/* Is a run asked to go on with an earlier one? */
static inline bool sw_job_goes_on(const struct sw_train_options *options)
{
    return options->resume || options->resume_if_any || options->resume_from;
}

/* ---- chat.c ---- */
/* All zero: the data is text. */
struct sw_job_chat {
    enum sw_data_kind kind;
    int64_t day;   /* that the template is told */
    sw_chat *chat; /* owned; NULL = none */
};
/* What the flags of chats say is legal. */
sw_status sw_job_chat_check(const struct sw_train_options *options);
/* What the data is, and the day, that of the checkpoint `from` unless that is ""; on all ranks the
 * same. Collective. */
sw_status sw_job_chat_choose(const struct sw_train_options *options, const char *from,
                             sw_comm *comm, struct sw_job_chat *out);
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
    bool templated;                /* texts stand in the tokenizer's template */
    int64_t n_samples;             /* of an epoch */
};
/* What a training reads, for its checkpoints: names, sizes and digests of files, which are read
 * whole. */
sw_status sw_data_record(const struct sw_data_record_options *options, struct sw_json_doc **out);

/* ---- coverage.c: how much of the validation data a validation looks at ---- */
struct sw_job_coverage {
    int64_t rows, of; /* 0 of 0: not known */
};
/* Adds "rows" and "of" to an object; nothing if the coverage is not known. */
bool sw_job_coverage_put(struct sw_json_doc *doc, struct sw_json *object,
                         const struct sw_job_coverage *coverage);
/* The coverage of a checkpoint's validation. */
struct sw_job_coverage sw_job_coverage_of(const struct sw_ckpt_meta *meta);
/* "128 of 200 rows"; "" where they are all, or it is not known. */
const char *sw_job_coverage_text(const struct sw_job_coverage *coverage, char *buf, size_t cap);

/* ---- export.c ---- */
/* The weights of a checkpoint. note: which one it was and, if it is the best one, by what. */
sw_status sw_job_export_saved(const char *path, const char *folder, enum sw_dtype dtype, char *note,
                              size_t cap);

/* ---- card.c: README.md of what is exported ---- */
/* The card of a checkpoint, from it and from the files of its run. is_merged: its adapters are in
 * the model. */
sw_status sw_job_write_card(const struct sw_ckpt *ckpt, const char *folder, enum sw_dtype dtype,
                            bool is_merged);
/* The card of a base that the adapters of a folder were added to. */
sw_status sw_job_write_merged_card(const char *adapter, const char *base, const char *folder);

/* ---- record.c: what a run leaves for its report, beside metrics.jsonl ---- */
struct sw_run_record {
    const struct sw_train_options *options;
    const sw_engine *engine;
    const struct sw_engine_facts *facts;
    const struct sw_json *data;      /* of sw_data_record */
    const sw_tokenizer *tokenizer;   /* NULL: shards need none */
    int64_t first_step, steps;       /* those before this start; in all */
    int64_t last_step;               /* that was taken */
    const char *end;                 /* why the run ended; NULL: it begins */
    int64_t samples;                 /* of an epoch */
    struct sw_job_coverage coverage; /* of validations */
};
/* OUTPUT/run.json: the model, the effective configuration with its origins, the plan, the machine,
 * and when the run was started, and from which steps on again. */
sw_status sw_run_record_write(const struct sw_run_record *record);
/* Adds a line to OUTPUT/samples.jsonl; between: prompt and text, as they are shown. */
sw_status sw_sample_record(const char *output, int64_t step, const char *prompt,
                           const char *between, const char *text);
/* Of a file of OUTPUT with a line for each step, those up to `last` stay: the steps behind it are
 * about to be taken again. No file: nothing happens. */
sw_status sw_job_keep_lines(const char *output, const char *file, int64_t last);
/* Of this process, in memory now; 0 = not known. */
int64_t sw_job_resident_bytes(void);

/* ---- step.c: what a step was, on all ranks ---- */

/* Numbers that each rank has of its own; the largest of all ranks is told. */
enum sw_job_number {
    SW_JOB_STOP,    /* whether it is asked to stop */
    SW_JOB_STEP_NS, /* the step, with fetching its rows */
    SW_JOB_FORWARD_NS,
    SW_JOB_BACKWARD_NS,
    SW_JOB_REDUCE_NS, /* of backward */
    SW_JOB_UPDATE_NS,
    SW_JOB_DEVICE, /* bytes of the plan */
    SW_JOB_HOST,
    SW_JOB_DISK,
    SW_JOB_BESIDES,  /* bytes that its process has allocated besides */
    SW_JOB_RESIDENT, /* bytes of its process in memory */
    SW_JOB_NUMBERS
};
/* What a rank says of its step. */
struct sw_job_said {
    int64_t numbers[SW_JOB_NUMBERS];
    struct queue_record queues;
};
struct sw_job_step {
    struct sw_step_report report;
    struct sw_job_said mine;
    int64_t most[SW_JOB_NUMBERS];
    struct queue_use use; /* of all ranks */
    /* Of validation, where this step has one. */
    bool validated;
    double val_loss;
    const double *metrics; /* [SW_METRIC_COUNT] NaN = not counted; NULL = only the loss */
};
/* Sums of an engine from `before` to `after` into `numbers`. */
void sw_job_count_phases(const struct sw_phase_times *before, const struct sw_phase_times *after,
                         int64_t numbers[SW_JOB_NUMBERS]);
/* What all ranks said of their steps, and their queues in all of them. */
struct sw_job_shared {
    int n;                          /* ranks */
    struct sw_job_said *said;       /* [n] scratch */
    struct queue_record *now, *ran; /* [n] of the step; since the first one */
};
sw_status sw_job_shared_open(int ranks, struct sw_job_shared *out);
void sw_job_shared_close(struct sw_job_shared *shared);
/* From step->mine of each rank to `most` and `use`. Collective. */
sw_status sw_job_share(sw_comm *comm, struct sw_job_shared *shared, struct sw_job_step *step);
/* *stopped, too, if any rank is asked to. Collective. */
sw_status sw_job_share_stop(sw_comm *comm, struct sw_job_shared *shared, bool mine, bool *stopped);
/* Seconds of a number that is nanoseconds. */
static inline double sw_job_seconds(const struct sw_job_step *step, enum sw_job_number number)
{
    return (double)step->most[number] * 1e-9;
}

/* ---- monitors.c: what other programs read ---- */

struct sw_events;
struct sw_csv;
/* Of rank 0. All zero: there are none. */
struct sw_job_monitors {
    struct sw_events *events;
    struct sw_csv *csv;
    struct sw_output gauges; /* not open = none */
    bool breakdown, scaled, images, warned;
    int64_t tokens; /* of a step; of images how many */
    int64_t n_skipped;
    const char *model;
};
struct sw_job_monitor_options {
    const struct sw_config *config;
    const char *metrics_file, *model;
    bool goes_on;    /* with what an earlier run wrote .. */
    int64_t samples; /* .. up to here */
    bool images;
    int64_t tokens;
};
sw_status sw_job_monitors_open(const struct sw_job_monitor_options *options,
                               struct sw_job_monitors *out);
sw_status sw_job_monitors_add(struct sw_job_monitors *monitors, const struct sw_job_step *step);
void sw_job_monitors_close(struct sw_job_monitors *monitors);

/* ---- profile.c: one step by the parts of the model ---- */

/* All zero: none is asked for. */
struct sw_job_profile {
    const struct sw_engine_facts *facts; /* NULL = none */
    const char *model;
    int64_t *ns; /* [n_instrs] before the step, then of it */
    int64_t batch, local;
    double seconds[3]; /* forward, backward, update of a step that was not measured; 0 = none yet */
    bool before;       /* what measuring was */
};
/* SW_E_CONFIG: the run has no such step. */
sw_status sw_job_profile_open(const struct sw_engine_facts *facts, int64_t first_step,
                              int64_t last_step, struct sw_job_profile *out);
void sw_job_profile_begin(struct sw_job_profile *profile, int64_t step);
/* Writes what there is to say of the step to profile: to the configuration's file, else to out. */
void sw_job_profile_end(struct sw_job_profile *profile, const struct sw_job_step *step, bool leads,
                        FILE *out);
void sw_job_profile_close(struct sw_job_profile *profile);
