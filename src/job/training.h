// SPDX-License-Identifier: Apache-2.0
// A training job as the files see it that share it: train.c, which runs it from its start to its
// end, and those that open what it needs, validate, write samples, keep what it leaves, and tell of
// its steps. The position of a run is the engine's count of global samples alone.
#pragma once

#include <limits.h>
#include <math.h>

#include "ckpt/ckpt.h"
#include "config/config.h"
#include "job/private.h"
#include "job/progress.h"

struct sw_launch_link;

/* What it tells of its steps, and needs to. */
struct told {
    FILE *metrics;
    struct sw_job_monitors monitors;
    struct sw_job_profile profile;
    struct pace pace;
    struct sw_json_doc *state;      /* what the last checkpoint says of the training; on rank 0 */
    struct sw_job_settings writing; /* of an encoder-decoder's samples */
};

/* The start of a run. */
struct sw_job_start {
    char path[PATH_MAX]; /* of a checkpoint; "" = nothing: its first step is 1 */
    bool continues;      /* what an earlier start left in the output folder is this run's */
};

/* The user's edits of the configuration, and defaults that depend on what is trained. */
struct sw_job_edits {
    const char **items; /* [n] owned; the texts are not */
    int n;
    char steps[40]; /* "--steps=N", where N follows from --epochs */
};

/* The best validation, and how many came since. */
struct sw_job_patience {
    double best; /* NaN: none yet */
    int64_t best_step, waited;
};

struct sw_job_steps {
    int64_t all, first;       /* of the run; those before this start */
    int64_t saved, validated; /* of the last checkpoint, of the last validation; -1 = none */
};

struct job {
    const struct sw_train_options *options;
    struct sw_job_edits edits;
    sw_comm *comm; /* NULL = alone */
    bool leads;    /* rank 0: prints, writes metrics and exports */
    struct sw_launch_link *link;
    struct sw_ckpt_lock *lock; /* of the output folder, on rank 0 */
    FILE *out;
    struct progress progress;
    sw_tokenizer *tokenizer;
    struct sw_job_chat chat;
    struct sw_job_task task;
    sw_dataset *dataset;
    struct sw_json_doc *data; /* what is read, for checkpoints; on rank 0 */
    sw_engine *engine;
    struct sw_engine_facts facts; /* of it */
    struct sw_job_shared shared;
    struct told told;
    int64_t batch, tokens, micro_batches;
    int64_t local;                 /* micro-batches of this rank */
    bool packed;                   /* rows hold several documents */
    struct sw_job_rows rows;       /* [local] micro-batches */
    struct sw_job_measure measure; /* what metrics are counted from */
    struct sw_job_start start;
    double began_s, val_loss, loss;
    struct sw_job_patience patience;
    struct sw_job_steps steps;
};

static inline bool sw_job_is_text(const struct job *job)
{
    return job->task.task->rows == SW_ROWS_TEXT;
}

/* An encoder reads what a sample is asked. */
static inline bool sw_job_is_answered(const struct job *job)
{
    const struct sw_task *task = job->task.task;
    return task->rows == SW_ROWS_TARGETS || task->rows == SW_ROWS_SPANS;
}

static inline bool sw_job_is_images(const struct job *job)
{
    return job->task.task->rows == SW_ROWS_IMAGES;
}

/* What a step is measured by: tokens, of images these. */
static inline int64_t sw_job_units(const struct job *job)
{
    return job->micro_batches * job->batch * (sw_job_is_images(job) ? 1 : job->tokens);
}

/* Validation counts more than losses. */
static inline bool sw_job_counts_metrics(const struct job *job)
{
    return job->options->eval_every > 0 && job->task.metric != SW_METRIC_PERPLEXITY;
}

static inline bool sw_job_has_disk(const struct job *job)
{
    return sw_engine_tier_bytes(job->engine, SW_TIER_DISK) > 0;
}

/* The rows of samples from `first` on into micro-batch i of this rank. */
static inline sw_status sw_job_fetch(const struct job *job, enum sw_split split, int64_t first,
                                     int64_t i)
{
    return sw_job_rows_fetch(&job->rows, job->dataset, split, first, job->batch, i);
}

/* ---- resume.c: what a job goes on from ---- */

/* Rank 0, which holds the folder, chooses for all. Collective. */
sw_status sw_job_choose_start(struct job *job);
/* Loads it, if there is one. Collective. */
sw_status sw_job_load(struct job *job);

/* ---- open.c: what a job reads ---- */
/* SW_E_ARG: steps and epochs, or epochs of no data. */
sw_status sw_job_check_length(const struct sw_train_options *options);
/* Where the tokenizer is: given, beside the adapter to go on with, which was trained with it, or
 * the model's; NULL: it is made of the data. */
const char *sw_job_tokenizer_path(const struct sw_train_options *options);
/* AdamW, because the file of the configuration has no optimizer. */
bool sw_job_optimizer_is_default(const struct job *job);
/* The task first, which says whether there is text. */
sw_status sw_job_open_tokenizer(struct job *job);
sw_status sw_job_open_engine(struct job *job);
sw_status sw_job_open_dataset(struct job *job);
/* Rows for the batches of this rank. */
sw_status sw_job_make_batches(struct job *job);
/* What its checkpoints say of the data, and what those that it goes on from are compared with. */
sw_status sw_job_tell_engine(struct job *job);

/* ---- validate.c ---- */
/* Collective, as what follows. */
sw_status sw_job_validate(struct job *job);
/* How much of the validation data it looks at. */
struct sw_job_coverage sw_job_validated(const struct job *job);

/* ---- patience.c: when to stop early ---- */
/* Counts a validation of --eval-every. */
void sw_job_patience_add(struct job *job);
bool sw_job_patience_ends(const struct job *job);
/* "3 validations without a better validation loss than 2.3151 of step 40" */
void sw_job_patience_text(const struct job *job, char *buf, size_t cap);
/* Into a checkpoint; and out of the one that the run goes on from, which is collective. */
bool sw_job_patience_put(const struct job *job, struct sw_json_doc *doc, struct sw_json *root);
sw_status sw_job_patience_load(struct job *job);

/* ---- sample.c ---- */
/* How an encoder-decoder writes its samples. A prompt that cannot be continued is refused before
 * the first step, not at the first sample. */
sw_status sw_job_prepare_sample(struct job *job);
sw_status sw_job_print_sample(struct job *job);

/* ---- keep.c: what stays of a run in its folder ---- */
/* The loss that a checkpoint is compared by is that of its own weights; a run that is told to stop
 * has no time for it. */
sw_status sw_job_save(struct job *job, bool in_haste);
/* OUTPUT/tokenizer: what goes beside the weights of this run, wherever they are exported to and
 * whatever has become of the model's folder and the text by then. */
sw_status sw_job_save_beside(const struct job *job);
/* OUTPUT/model may be written to, .. */
sw_status sw_job_check_model(const struct job *job);
/* .. is this run's from the first step on, whenever it ends, .. */
sw_status sw_job_claim_model(const struct job *job);
/* .. and has the weights. With slices on many ranks, the last checkpoint has what no rank holds
 * alone; the best one is a checkpoint, too. */
sw_status sw_job_export_model(struct job *job);

/* ---- metrics.c: metrics.jsonl, and where else numbers go ---- */
/* Lines of steps after the one resumed from would stand twice. */
sw_status sw_job_open_metrics(struct job *job);
sw_status sw_job_write_metrics(struct job *job, const struct sw_job_step *step);

/* ---- lines.c: what people read ---- */
void sw_job_print_head(const struct job *job);
/* What its checkpoints will take beside what is free: nobody wants to hear of it at the first
 * save. */
void sw_job_print_room(const struct job *job);
void sw_job_print_step(struct job *job, const struct sw_job_step *step);
void sw_job_print_end(struct job *job, const struct sw_train_result *result);
