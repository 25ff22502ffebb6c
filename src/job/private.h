// SPDX-License-Identifier: Apache-2.0
// Declarations that the files of src/job share. Other rooms include spillway/train.h instead.
#pragma once

#include <math.h>

#include "base/base.h"
#include "ckpt/ckpt.h"
#include "data/data.h"
#include "engine/engine.h"
#include "job/queues.h"
#include "json/json.h"
#include "monitor/monitor.h"
#include "spillway/train.h"
#include "token/token.h"

struct sw_job_reference;

/* ---- task.c ---- */
/* All zero: no task was chosen. */
struct sw_job_task {
    const struct sw_task *task;
    struct sw_task_data data; /* reading options, complete once the task fits the model */
    enum sw_metric metric;    /* the metric that checkpoints are compared by */
    struct sw_label_list found;
    /* The model's configuration. Names point into it, into `found` or into the user's words. */
    struct sw_json_doc *config;
    const char **names;                 /* [data.n_labels]; NULL: classes are numbers */
    struct sw_str preprocessor;         /* path of the model's preprocessor, for images */
    struct sw_job_reference *reference; /* reference.c; NULL = the task has none */
    struct sw_job_contrast *contrast;   /* NULL: another task */
};
/* Chooses the task from the model and the flags, and the classes from the flags, the model or the
 * files. trains: images whose classes differ from the model's get a new head. */
sw_status sw_job_task_choose(const struct sw_task_options *options, const char *model,
                             const struct sw_dataset_options *files, bool trains,
                             struct sw_job_task *out);
/* Takes over the sizes and the padding of the open model. */
sw_status sw_job_task_fit(struct sw_job_task *task, const char *model,
                          const struct sw_engine_facts *facts);
/* Describes how records become rows: the task, the fields, and the classes in order. */
void sw_job_task_text(const struct sw_job_task *task, struct sw_str *out);
void sw_job_task_close(struct sw_job_task *task);

/* Batches of a task's inputs, in memory that they own. */
struct sw_job_rows {
    int64_t batch, n; /* samples per batch; number of batches */
    int n_inputs;
    const char *names[SW_TASK_MAX_INPUTS];
    struct sw_view views[SW_TASK_MAX_INPUTS];
    void *memory;
    struct sw_tensor *tensors; /* [n, n_inputs] */
    struct sw_batch *batches;  /* [n] */
};
/* n: batches */
sw_status sw_job_rows_open(const struct sw_task *task, const struct sw_engine_facts *facts,
                           int64_t n, struct sw_job_rows *out);
void sw_job_rows_close(struct sw_job_rows *rows);
/* Fetches the rows of samples from `first` on into batch i. */
sw_status sw_job_rows_fetch(const struct sw_job_rows *rows, const sw_dataset *dataset,
                            enum sw_split split, int64_t first, int64_t n_rows, int64_t i);

/* Fetches the samples in the order of the files into batch 0. */
sw_status sw_job_rows_fetch_in_order(const struct sw_job_rows *rows, const sw_dataset *dataset,
                                     enum sw_split split, int64_t first, int64_t n_rows);

/* Model outputs for the metrics. */
struct sw_job_measure {
    sw_engine *engine;
    const struct sw_task *task;
    float *outputs[SW_TASK_MAX_LOSSES]; /* [elems] */
    int64_t elems[SW_TASK_MAX_LOSSES];
    double of[SW_METRIC_COUNT]; /* the latest values; NaN = not computed */
};
sw_status sw_job_measure_open(sw_engine *engine, const struct sw_task *task,
                              struct sw_job_measure *out);
void sw_job_measure_close(struct sw_job_measure *measure);
/* Adds batch 0 of rows, whose first row is sample `first`. Collective. */
sw_status sw_job_measure_add(struct sw_job_measure *measure, struct sw_score *score,
                             const struct sw_job_rows *rows, int64_t first);

/* Drops the sign of a NaN, which C would print and which means nothing. */
static inline double sw_job_shown(double value)
{
    return isnan(value) ? fabs(value) : value;
}

/* ---- settings.c ---- */
/* Settings for generation. Numbers are -1 if the model's files do not give them. */
struct sw_job_settings {
    struct sw_text_rules rules;
    struct sw_ids stops, never, begins;
    int64_t min_length, min_new, max_length, max_new;
    bool answers; /* see sw_job_answers */
};
/* Whether a prompt is the input of an encoder. */
bool sw_job_answers(const struct sw_task *task);
/* asked: the sampling that the caller chose. Returns SW_E_FORMAT, naming the key, if a value is
 * invalid. */
sw_status sw_job_settings_read(const char *model, bool answers, const struct sw_sampling *asked,
                               struct sw_job_settings *out);
/* Defaults the stop token to the tokenizer's end-of-text token. */
sw_status sw_job_settings_stop(struct sw_job_settings *settings, const sw_tokenizer *tokenizer);
void sw_job_settings_fini(struct sw_job_settings *settings);
/* The largest number of new tokens; 0 if the files do not give one. */
int64_t sw_job_settings_most(const struct sw_job_settings *settings);
/* Fills in the stops and rules for a prompt of n_prompt tokens. They point into settings. */
void sw_job_settings_apply(struct sw_job_settings *settings, int64_t n_prompt, bool ends,
                           struct sw_sampling *out);

/* ---- texts.c ---- */
struct sw_job_texts {
    sw_engine *engine;
    const sw_tokenizer *tokenizer;
    struct sw_job_settings settings;
    int64_t most;         /* limit on the new tokens of a text */
    int32_t *ids, *fresh; /* ids of a source or target; new ids */
    FILE *file;           /* NULL = another rank writes them */
};
/* The caller closes `out` even after a failure. */
sw_status sw_job_texts_open(sw_engine *engine, const sw_tokenizer *tokenizer, const char *model,
                            FILE *file, struct sw_job_texts *out);
void sw_job_texts_close(struct sw_job_texts *texts);
/* Writes the texts for the first n rows of batch 0. */
sw_status sw_job_texts_add(struct sw_job_texts *texts, const struct sw_job_rows *rows, int64_t n);

/* ---- agree.c ---- */
/* Compares samples of the dataset, read through batch 0 of rows, and `flags` over all ranks.
 * SW_E_CONFIG names a rank that differs. */
sw_status sw_job_agree(sw_comm *comm, const sw_dataset *dataset, const struct sw_job_rows *rows,
                       const char *flags);

/* The tokenizer's folder: the one given, else the adapter's if it has one, because it was trained
 * with that, else the model's. */
static inline const char *sw_job_tokenizer_folder(const char *tokenizer, const char *adapter,
                                                  const char *model)
{
    return tokenizer ? tokenizer : adapter && sw_tokenizer_is_there(adapter) ? adapter : model;
}

/* Does the run resume an earlier one? */
static inline bool sw_job_goes_on(const struct sw_train_options *options)
{
    return options->resume || options->resume_if_any || options->resume_from;
}

/* ---- chat.c ---- */
/* All zero: the data is text. */
struct sw_job_chat {
    enum sw_data_kind kind;
    bool preferences; /* responses to compare: the loss is on the last answer */
    bool has_weights; /* of answers, other than 0 and 1 */
    int64_t day;      /* the date given to the template */
    sw_chat *chat;    /* owned; NULL: the data needs no chat */
};
/* Checks that the chat flags are valid. */
sw_status sw_job_chat_check(const struct sw_train_options *options);
/* Determines the kind of data and the date, the same on all ranks. The date is the flag's, else
 * that of the checkpoint `from` unless `from` is "", else today's. Collective. */
/* preferences: the data is of that kind of rows */
sw_status sw_job_chat_choose(const struct sw_train_options *options, bool preferences,
                             const char *from, sw_comm *comm, struct sw_job_chat *out);
/* Opens the chat if the data needs one. folder: the tokenizer's; NULL: the tokenizer is made from
 * the text. */
sw_status sw_job_chat_open(const struct sw_train_options *options, const char *folder,
                           sw_tokenizer *tokenizer, struct sw_job_chat *out);
void sw_job_chat_close(struct sw_job_chat *chat);
/* tokens: tokens of a row. */
void sw_job_chat_print(const struct sw_job_chat *chat, const sw_dataset *dataset, int64_t tokens,
                       FILE *out);
/* Saves the template next to the weights, unless another file of the folder has it. */
sw_status sw_job_chat_save(const struct sw_job_chat *chat, const char *folder);

/* ---- data_record.c ---- */
struct sw_data_record_options {
    const char *const *files, *const *val_files; /* paths or globs */
    int n_files, n_val_files;
    const sw_tokenizer *tokenizer; /* NULL: shards need none */
    const sw_chat *chat;           /* NULL: the data has no chats */
    const char *task;              /* from sw_job_task_text; NULL: next-token prediction on text */
    bool templated;                /* texts are wrapped in the tokenizer's template */
    int64_t n_samples;             /* per epoch */
    const double *weights;         /* [n_files]; NULL: the files are one list */
    int64_t group;                 /* samples of a batch of similar lengths; 0: any lengths */
};
/* Records the files that a training reads: names, sizes and digests. Reads each file whole. */
sw_status sw_data_record(const struct sw_data_record_options *options, struct sw_json_doc **out);

/* ---- coverage.c: how much of the validation data a validation covers ---- */
struct sw_job_coverage {
    int64_t rows, of; /* 0 of 0: unknown */
};
/* Adds "rows" and "of" to an object. A no-op if the coverage is unknown. */
bool sw_job_coverage_put(struct sw_json_doc *doc, struct sw_json *object,
                         const struct sw_job_coverage *coverage);
/* The coverage of a checkpoint's validation. */
struct sw_job_coverage sw_job_coverage_of(const struct sw_ckpt_meta *meta);
/* Formats "128 of 200 rows"; "" if all rows are covered or the coverage is unknown. */
const char *sw_job_coverage_text(const struct sw_job_coverage *coverage, char *buf, size_t cap);

/* ---- export.c ---- */
/* Exports the weights of a checkpoint. note: describes the checkpoint and, for the best one, the
 * metric. */
sw_status sw_job_export_saved(const char *path, const char *folder, enum sw_dtype dtype, char *note,
                              size_t cap);

/* ---- card.c: the README.md of an export ---- */
/* Writes the card of a checkpoint from it and the files of its run. is_merged: the adapters are
 * merged into the model. */
sw_status sw_job_write_card(const struct sw_ckpt *ckpt, const char *folder, enum sw_dtype dtype,
                            bool is_merged);
/* Writes the card of a base that an adapter was merged into. */
sw_status sw_job_write_merged_card(const char *adapter, const char *base, const char *folder);

/* ---- record.c: the run's record for its report, besides metrics.jsonl ---- */
struct sw_run_record {
    const struct sw_train_options *options;
    const sw_engine *engine;
    const struct sw_engine_facts *facts;
    const struct sw_json *data;      /* the record from sw_data_record */
    const sw_tokenizer *tokenizer;   /* NULL: shards need none */
    int64_t first_step, steps;       /* steps before this start; in all */
    int64_t last_step;               /* the last step that was taken */
    const char *end;                 /* why the run ended; NULL: at its start */
    int64_t samples;                 /* per epoch */
    struct sw_job_coverage coverage; /* coverage of the validations */
};
/* Writes OUTPUT/run.json: the model, the effective configuration with its origins, the plan, the
 * machine. It also lists the starts of the run, with the time and first step of each. */
sw_status sw_run_record_write(const struct sw_run_record *record);
/* Adds a line to OUTPUT/samples.jsonl. between: the separator shown between prompt and text. */
sw_status sw_sample_record(const char *output, int64_t step, const char *prompt,
                           const char *between, const char *text);
/* Drops the lines after step `last` from a file of OUTPUT with one line per step, because those
 * steps run again. A missing file is a no-op. */
sw_status sw_job_keep_lines(const char *output, const char *file, int64_t last);
/* Resident memory of this process; 0 = unknown. */
int64_t sw_job_resident_bytes(void);

/* ---- step.c: the results of a step over all ranks ---- */

/* Numbers that each rank has; the maximum over all ranks is reported. */
enum sw_job_number {
    SW_JOB_STOP,    /* whether the rank is asked to stop */
    SW_JOB_STEP_NS, /* the step, including fetching its rows */
    SW_JOB_FORWARD_NS,
    SW_JOB_BACKWARD_NS,
    SW_JOB_REDUCE_NS, /* part of backward */
    SW_JOB_UPDATE_NS,
    SW_JOB_DEVICE, /* bytes planned on each tier */
    SW_JOB_HOST,
    SW_JOB_DISK,
    SW_JOB_BESIDES,        /* bytes that the process has allocated outside the plan */
    SW_JOB_RESIDENT,       /* resident bytes of the process */
    SW_JOB_ROUTED,         /* bytes sent along the expert axis */
    SW_JOB_EXPERTS_LOADED, /* see struct sw_job_loads */
    SW_JOB_EXPERTS_MOST,
    SW_JOB_NUMBERS
};
/* The record of a step on one rank. */
struct sw_job_said {
    int64_t numbers[SW_JOB_NUMBERS];
    struct queue_record queues;
};
/* ---- routers.c: numbers of the routers of a step; n 0: the model has no experts ---- */
enum { SW_JOB_MOST_ROUTERS = 10 };
struct sw_job_routers {
    struct {
        const char *name;
        struct sw_gauge gauge; /* with the value */
    } items[SW_JOB_MOST_ROUTERS];
    int n;
};
/* Reads those of the last step. most: the step's largest numbers of all ranks */
void sw_job_count_routers(const sw_engine *e, const int64_t most[SW_JOB_NUMBERS],
                          struct sw_job_routers *out);
/* Bytes that this rank has sent along the expert axis; 0 without one. */
int64_t sw_job_routed(const struct sw_engine_facts *facts);
/* Bytes of experts that were loaded because tokens chose them, and the most that there could have
 * been; 0 if no load waits for a router. */
struct sw_job_loads {
    int64_t chosen, most;
};
struct sw_job_loads sw_job_expert_loads(const struct sw_engine_facts *facts);

/* Metrics of a validation besides the loss, as every record of the step has them. */
struct sw_job_metrics {
    struct {
        enum sw_metric metric;
        double value; /* NaN = there is none, such as the F1 of no rows */
    } of[SW_METRIC_COUNT];
    int n;
};

struct sw_job_step {
    struct sw_step_report report;
    struct sw_job_routers routers;
    struct sw_job_said mine;
    int64_t most[SW_JOB_NUMBERS];
    struct queue_use use; /* queue use over all ranks */
    /* Results of the validation, if the step has one. */
    bool validated;
    double val_loss;
    struct sw_job_metrics metrics;
};
/* Writes the time of each phase between `before` and `after` to `numbers`. */
void sw_job_count_phases(const struct sw_phase_times *before, const struct sw_phase_times *after,
                         int64_t numbers[SW_JOB_NUMBERS]);
/* The step records of all ranks, and their queue records over all steps. */
struct sw_job_shared {
    int n;                          /* ranks */
    struct sw_job_said *said;       /* [n] scratch */
    struct queue_record *now, *ran; /* [n] the step; all steps so far */
};
sw_status sw_job_shared_open(int ranks, struct sw_job_shared *out);
void sw_job_shared_close(struct sw_job_shared *shared);
/* Gathers step->mine of each rank into `most` and `use`. Collective. */
sw_status sw_job_share(sw_comm *comm, struct sw_job_shared *shared, struct sw_job_step *step);
/* Also sets *stopped if any rank is asked to stop. Collective. */
sw_status sw_job_share_stop(sw_comm *comm, struct sw_job_shared *shared, bool mine, bool *stopped);
/* Converts a number in nanoseconds to seconds. */
static inline double sw_job_seconds(const struct sw_job_step *step, enum sw_job_number number)
{
    return (double)step->most[number] * 1e-9;
}

/* ---- monitors.c: output for other programs ---- */

struct sw_events;
struct sw_csv;
/* The monitors, on rank 0. All zero: no monitors. */
struct sw_job_monitors {
    struct sw_events *events;
    struct sw_csv *csv;
    struct sw_output gauges; /* not open = no gauges */
    bool breakdown, scaled, images, warned;
    int64_t tokens; /* per step; images instead for image tasks */
    int64_t n_skipped;
    const char *model;
};
struct sw_job_monitor_options {
    const struct sw_config *config;
    const char *metrics_file, *model, *output;
    bool goes_on;    /* append to the run's earlier files */
    int64_t samples; /* keep their points up to this sample */
    bool images;
    int64_t tokens;
};
sw_status sw_job_monitors_open(const struct sw_job_monitor_options *options,
                               struct sw_job_monitors *out);
sw_status sw_job_monitors_add(struct sw_job_monitors *monitors, const struct sw_job_step *step);
void sw_job_monitors_close(struct sw_job_monitors *monitors);

/* ---- profile.c: one step, by parts of the model ---- */

/* All zero: no profile is asked for. */
struct sw_job_profile {
    const struct sw_engine_facts *facts; /* NULL = none */
    const char *model;
    int64_t *ns; /* [n_instrs] readings before the step, then times of it */
    int64_t batch, local;
    double seconds[3]; /* forward, backward, update of an unprofiled step; 0 = not yet known */
    bool before;       /* whether measuring was on before */
};
/* Returns SW_E_CONFIG if the run does not have the step. */
sw_status sw_job_profile_open(const struct sw_engine_facts *facts, int64_t first_step,
                              int64_t last_step, struct sw_job_profile *out);
void sw_job_profile_begin(struct sw_job_profile *profile, int64_t step);
/* Writes the profile of the step to the configured file, else to out. */
void sw_job_profile_end(struct sw_job_profile *profile, const struct sw_job_step *step, bool leads,
                        FILE *out);
void sw_job_profile_close(struct sw_job_profile *profile);
