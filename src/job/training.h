// SPDX-License-Identifier: Apache-2.0
// The training job, as shared by the files that implement it. train.c runs it from start to end.
// The others open its inputs, validate, write samples, save its results and report its steps. The
// position of a run is the engine's count of global samples alone.
#pragma once

#include <limits.h>
#include <math.h>

#include "ckpt/ckpt.h"
#include "config/config.h"
#include "job/private.h"
#include "job/progress.h"

struct sw_launch_link;

/* State for reporting steps: metrics, monitors, the profile and the pace. */
struct told {
    FILE *metrics;
    struct sw_job_monitors monitors;
    struct sw_job_profile profile;
    struct pace pace;
    struct sw_json_doc *state;      /* the training's record in the last checkpoint; on rank 0 */
    struct sw_job_settings writing; /* rules for an encoder-decoder's samples */
    bool waits;                     /* that it waits for the folder */
};

/* The start of a run. */
struct sw_job_start {
    char path[PATH_MAX]; /* checkpoint to load; "" = none: the first step is 1 */
    int64_t serial;      /* of the checkpoint */
    bool continues;      /* the output folder's earlier results belong to this run */
};

/* The user's edits of the configuration, and defaults that depend on the task. */
struct sw_job_edits {
    const char **items; /* [n] the array is owned, its texts are not */
    int n;
    char steps[40]; /* "--steps=N", where N follows from --epochs */
};

/* The best validation, and the number of validations since. */
struct sw_job_patience {
    double best; /* NaN: none yet */
    int64_t best_step, waited;
};

struct sw_job_steps {
    int64_t all, first;       /* steps of the run; steps before this start */
    int64_t saved, validated; /* steps of the last checkpoint and validation; -1 = none */
    int64_t sound;            /* the newest step after which a loss was finite; -1 = none */
};

struct job {
    const struct sw_train_options *options;
    struct sw_job_edits edits;
    sw_comm *comm; /* NULL = a single rank */
    bool leads;    /* rank 0: prints, writes metrics and exports */
    struct sw_launch_link *link;
    struct sw_ckpt_lock *lock; /* lock on the output folder, on rank 0 */
    FILE *out;
    struct progress progress;
    sw_tokenizer *tokenizer;
    struct sw_job_chat chat;
    struct sw_job_task task;
    sw_dataset *dataset;
    struct sw_json_doc *data; /* record of the data for checkpoints; on rank 0 */
    sw_engine *engine;
    struct sw_engine_facts facts; /* of the engine */
    struct sw_job_shared shared;
    struct told told;
    int64_t batch, tokens, micro_batches;
    int64_t local;                 /* micro-batches of this rank */
    bool packed;                   /* rows hold several documents */
    struct sw_job_rows rows;       /* [local] micro-batches */
    struct sw_job_measure measure; /* outputs for the metrics */
    struct sw_job_start start;
    double began_s, val_loss, loss;
    struct sw_job_patience patience;
    struct sw_job_steps steps;
};

static inline bool sw_job_is_text(const struct job *job)
{
    return job->task.task->rows == SW_ROWS_TEXT;
}

/* Is the sample prompt the input of an encoder? */
static inline bool sw_job_is_answered(const struct job *job)
{
    const struct sw_task *task = job->task.task;
    return task->rows == SW_ROWS_TARGETS || task->rows == SW_ROWS_SPANS;
}

/* Does a step compare the vectors of all its rows? */
static inline bool sw_job_is_contrast(const struct job *job)
{
    return job->task.task->rows == SW_ROWS_CONTRAST;
}

static inline bool sw_job_is_images(const struct job *job)
{
    return job->task.task->rows == SW_ROWS_IMAGES;
}

/* Do totals of the loss give the metrics, also of each step? */
static inline bool sw_job_has_totals(const struct job *job)
{
    return job->task.task->rows == SW_ROWS_PREFERENCES;
}

/* Are metrics computed from the model's outputs for each row? */
static inline bool sw_job_has_score(const struct job *job)
{
    return !sw_job_has_totals(job) && !sw_job_is_contrast(job);
}

/* Units in a step, for its speed: images, or tokens for other tasks. */
static inline int64_t sw_job_units(const struct job *job)
{
    return job->micro_batches * job->batch *
           (sw_job_is_images(job) ? 1 : sw_task_rows(job->task.task) * job->tokens);
}

/* Does validation compute metrics besides the loss? */
static inline bool sw_job_counts_metrics(const struct job *job)
{
    return job->options->eval_every > 0 && job->task.metric != SW_METRIC_PERPLEXITY;
}

static inline bool sw_job_has_disk(const struct job *job)
{
    return sw_engine_tier_bytes(job->engine, SW_TIER_DISK) > 0;
}

/* Fetches the rows of samples from `first` on into micro-batch i of this rank. */
static inline sw_status sw_job_fetch(const struct job *job, enum sw_split split, int64_t first,
                                     int64_t i)
{
    return sw_job_rows_fetch(&job->rows, job->dataset, split, first, job->batch, i);
}

/* ---- resume.c: the checkpoint that a job resumes from ---- */

/* Rank 0 holds the lock on the folder and chooses for all ranks. Collective. */
sw_status sw_job_choose_start(struct job *job);
/* Loads the chosen checkpoint, if there is one. Collective. */
sw_status sw_job_load(struct job *job);

/* ---- open.c: the inputs of a job ---- */
/* Returns SW_E_ARG if both steps and epochs are given, or epochs without data. */
sw_status sw_job_check_length(const struct sw_train_options *options);
/* The tokenizer's folder: the one given, else the resumed adapter's own, else the model's. NULL:
 * the tokenizer is made from the data. */
const char *sw_job_tokenizer_path(const struct sw_train_options *options);
/* True if AdamW was chosen because the configuration file names no optimizer. */
bool sw_job_optimizer_is_default(const struct job *job);
/* Chooses the task first, because the task decides whether there is text. */
sw_status sw_job_open_tokenizer(struct job *job);
/* Opens job->engine. SW_E_CONFIG: the configuration trains nothing. The engine may be open after a
 * failure; the end of the job closes it. */
sw_status sw_job_open_engine(struct job *job);
/* Opens an engine that only evaluates, for the reference's model without adapters. */
sw_status sw_job_open_reference(struct job *job, const char *model);
sw_status sw_job_open_dataset(struct job *job);
/* Allocates the rows of this rank's batches. */
sw_status sw_job_make_batches(struct job *job);
/* Gives the engine the data record that checkpoints keep and that a loaded one is compared with. */
sw_status sw_job_tell_engine(struct job *job);

/* ---- reference.c: log-probabilities of the reference model ---- */
/* Reads or computes them, before the engine of the training opens. A no-op for tasks without a
 * reference. SW_E_CONFIG: the configuration. Collective. */
sw_status sw_job_prepare_reference(struct job *job);
/* Gives them to the dataset. SW_E_CONFIG: they are those of other rows. */
sw_status sw_job_give_reference(struct job *job);
void sw_job_close_reference(struct job *job);

/* agree.c. Puts numbers of samples, [world, rounds, batch, width] by rank, in the order of samples:
 * out [n, width]. */
void sw_job_in_order(const struct job *job, const float *all, int64_t n, int64_t width, float *out);

/* ---- contrast.c: vectors of pairs against those of the global batch ---- */
/* Allocates what steps need; a no-op for other tasks. SW_E_UNSUP: an axis that cuts rows. */
sw_status sw_job_open_contrast(struct job *job);
/* Computes the vectors of the fetched micro-batches of all ranks, and from them what the loss of a
 * step reads. A no-op for other tasks. Collective. */
sw_status sw_job_contrast(struct job *job);
/* Adds the loss of a batch of validation, whose pairs are each other's negatives: sum and count of
 * losses, and of pairs whose own vector is the nearest. */
sw_status sw_job_contrast_validate(struct job *job, int64_t first, double sums[4]);
void sw_job_close_contrast(struct job *job);

/* ---- validate.c ---- */
/* Runs a validation. Collective. */
sw_status sw_job_validate(struct job *job);
/* The share of the validation data that a validation covers. */
struct sw_job_coverage sw_job_validated(const struct job *job);

/* ---- patience.c: when to stop early ---- */
/* Counts a validation of --eval-every. */
void sw_job_patience_add(struct job *job);
bool sw_job_patience_ends(const struct job *job);
/* "3 validations without a better validation loss than 2.3151 of step 40" */
void sw_job_patience_text(const struct job *job, char *buf, size_t cap);
/* Save the count to a checkpoint, and load it from the one resumed from. Loading is collective. */
bool sw_job_patience_put(const struct job *job, struct sw_json_doc *doc, struct sw_json *root);
sw_status sw_job_patience_load(struct job *job);

/* ---- sample.c ---- */
/* Reads the generation settings of an encoder-decoder. An unusable prompt is refused before the
 * first step, not at the first sample. */
sw_status sw_job_prepare_sample(struct job *job);
sw_status sw_job_print_sample(struct job *job);

/* ---- keep.c: the files that a run leaves in its folder ---- */
/* Saves a checkpoint with the validation loss of its own weights. in_haste: skip that validation,
 * because the run was told to stop. */
sw_status sw_job_save(struct job *job, bool in_haste);
/* Saves the files that accompany the weights to OUTPUT/tokenizer. Later exports do not depend on
 * the model's folder or the text. */
sw_status sw_job_save_beside(const struct job *job);
/* Checks that OUTPUT/model may be written. */
sw_status sw_job_check_model(const struct job *job);
/* Claims OUTPUT/model for this run before the first step, however the run ends. */
sw_status sw_job_claim_model(const struct job *job);
/* Exports the weights to OUTPUT/model. With several ranks they come from the last checkpoint, and
 * with `--export best` from the best one. */
sw_status sw_job_export_model(struct job *job);

/* ---- metrics.c: metrics.jsonl and the monitors ---- */
/* Opens metrics.jsonl. Lines after the step resumed from are dropped, else those steps would appear
 * twice. */
sw_status sw_job_open_metrics(struct job *job);
/* The metrics of the task that the last validation computed. */
void sw_job_list_metrics(const struct job *job, struct sw_job_metrics *out);
sw_status sw_job_write_metrics(struct job *job, const struct sw_job_step *step);

/* ---- lines.c: output for people ---- */
void sw_job_print_head(const struct job *job);
/* Prints the size of the coming checkpoints and the free space, so that a full disk is known before
 * the first save. */
void sw_job_print_room(const struct job *job);
void sw_job_print_step(struct job *job, const struct sw_job_step *step);
void sw_job_print_end(struct job *job, const struct sw_train_result *result);
