// SPDX-License-Identifier: Apache-2.0
// Validation: losses and metrics over all of the validation data, or over its first batches.
#include "job/training.h"

/* Computes sums and counts of each loss term, and metrics, over the first batches. */
static sw_status look_at_batches(struct job *job, int64_t n_batches, double *terms,
                                 struct sw_score *score)
{
    const int n_terms = sw_engine_terms(job->engine);
    double of_batch[SW_ENGINE_MAX_SUMS];
    for (int64_t i = 0; i < n_batches; i++) {
        SW_TRY(sw_job_fetch(job, SW_SPLIT_VAL, i * job->batch, 0));
        SW_TRY(sw_engine_evaluate(job->engine, &job->rows.batches[0], of_batch));
        for (int k = 0; k < 2 * (n_terms + sw_engine_n_totals(job->engine)); k++) {
            terms[k] += of_batch[k];
        }
        if (score) {
            SW_TRY(sw_job_measure_add(&job->measure, score, &job->rows, i * job->batch));
        }
    }
    return SW_OK;
}

/* The same for vectors of pairs. */
static sw_status look_at_vectors(struct job *job, int64_t n_batches, double *terms)
{
    double sums[4] = {0};
    for (int64_t i = 0; i < n_batches; i++) {
        SW_TRY(sw_job_fetch(job, SW_SPLIT_VAL, i * job->batch, 0));
        SW_TRY(sw_job_contrast_validate(job, i * job->batch, sums));
    }
    terms[0] = sums[0];
    terms[1] = sums[1];
    job->measure.of[SW_METRIC_ACCURACY] = sums[3] > 0 ? sums[2] / sums[3] : NAN;
    return SW_OK;
}

/* The default limit on batches for language models. */
enum { TEXT_BATCHES = 16 };

/* Are rows labelled one by one? A user's set of such rows is validated whole. */
static bool has_labelled_rows(const struct sw_task *task)
{
    return task->rows == SW_ROWS_LABELS || task->rows == SW_ROWS_WORDS ||
           task->rows == SW_ROWS_ANSWERS || task->rows == SW_ROWS_IMAGES ||
           task->rows == SW_ROWS_PREFERENCES || task->rows == SW_ROWS_CONTRAST;
}

static int64_t count_batches(const struct job *job)
{
    const int64_t asked = job->options->eval_batches;
    const int64_t all = sw_ceil_div(sw_dataset_n_samples(job->dataset, SW_SPLIT_VAL), job->batch);
    return asked > 0 ? sw_min_i64(all, asked)
           : has_labelled_rows(job->task.task) || job->options->data_weights
               ? all
               : sw_min_i64(all, TEXT_BATCHES);
}

struct sw_job_coverage sw_job_validated(const struct job *job)
{
    const int64_t of = sw_dataset_n_samples(job->dataset, SW_SPLIT_VAL);
    return (struct sw_job_coverage){.rows = sw_min_i64(count_batches(job) * job->batch, of),
                                    .of = of};
}

sw_status sw_job_validate(struct job *job)
{
    double terms[SW_ENGINE_MAX_SUMS] = {0};
    struct sw_score *score = NULL;
    if (sw_job_counts_metrics(job) && sw_job_has_score(job)) {
        SW_TRY(sw_score_open(job->dataset, SW_SPLIT_VAL, NULL, &score));
    }
    /* padding rows after the last have no labels, so each row counts once */
    const sw_status st = sw_job_is_contrast(job)
                             ? look_at_vectors(job, count_batches(job), terms)
                             : look_at_batches(job, count_batches(job), terms, score);
    if (st >= 0) {
        job->val_loss = terms[1] > 0 ? sw_engine_mean_loss(job->engine, terms) : NAN;
        job->steps.validated = sw_engine_step(job->engine);
        job->measure.of[SW_METRIC_PERPLEXITY] = exp(job->val_loss);
    }
    for (int i = 0; i < job->task.task->n_metrics && st >= 0 && score; i++) {
        const enum sw_metric metric = job->task.task->metrics[i];
        if (metric != SW_METRIC_PERPLEXITY) {
            job->measure.of[metric] = sw_score_of(score, metric);
        }
    }
    for (int i = 0; i < job->task.task->n_metrics && st >= 0 && sw_job_has_totals(job); i++) {
        const enum sw_metric metric = job->task.task->metrics[i];
        const double *totals = terms + 2 * sw_engine_terms(job->engine);
        job->measure.of[metric] = sw_engine_metric(metric, totals);
    }
    sw_score_close(score);
    return st;
}
