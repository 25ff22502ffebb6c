// SPDX-License-Identifier: Apache-2.0
// Early stopping: counts the validations of --eval-every since the best one. Checkpoints keep the
// count, so a resumed run ends at the step at which an uninterrupted one would. Validations made
// only for a save do not count, because they depend on when it happened.
#include <string.h>

#include "job/training.h"

/* Compares validations by the metric that selects the best checkpoint. */
static const char *compared_by(const struct job *job)
{
    return job->options->task.metric ? sw_metric_name(job->task.metric) : "validation loss";
}

void sw_job_patience_add(struct job *job)
{
    struct sw_job_patience *p = &job->patience;
    const bool by_metric = job->options->task.metric != NULL;
    const enum sw_metric metric = by_metric ? job->task.metric : SW_METRIC_PERPLEXITY;
    const double value = by_metric ? job->measure.of[metric] : job->val_loss;
    if (sw_metric_is_better(metric, value, p->best)) {
        *p = (struct sw_job_patience){value, sw_engine_step(job->engine), 0};
    } else {
        p->waited++;
    }
}

bool sw_job_patience_ends(const struct job *job)
{
    const int64_t most = job->options->early_stopping;
    return most > 0 && job->patience.waited >= most;
}

void sw_job_patience_text(const struct job *job, char *buf, size_t cap)
{
    const struct sw_job_patience *p = &job->patience;
    int n = snprintf(buf, cap, "%lld validation%s without a better %s", (long long)p->waited,
                     p->waited == 1 ? "" : "s", compared_by(job));
    if (p->best_step > 0 && n > 0 && (size_t)n < cap) {
        snprintf(buf + n, cap - (size_t)n, " than %.4f of step %lld", p->best,
                 (long long)p->best_step);
    }
}

/* ---- in checkpoints ---- */

bool sw_job_patience_put(const struct job *job, struct sw_json_doc *doc, struct sw_json *root)
{
    const struct sw_job_patience *p = &job->patience;
    struct sw_json *to = sw_json_put(doc, root, "patience", SW_JSON_OBJECT);
    return to && sw_json_put_str(doc, to, "by", compared_by(job)) &&
           sw_json_put_f64(doc, to, "best", p->best) &&
           sw_json_put_i64(doc, to, "step", p->best_step) &&
           sw_json_put_i64(doc, to, "waited", p->waited);
}

static int64_t count_of(const struct sw_json *object, const char *key)
{
    const struct sw_json *value = sw_json_get(object, key);
    return value && value->type == SW_JSON_INT ? value->integer : 0;
}

/* Restores the count if it used the same metric; else it starts anew. */
static void take(const struct job *job, const struct sw_json *was, struct sw_job_patience *out)
{
    const struct sw_json *by = was ? sw_json_get(was, "by") : NULL;
    const struct sw_json *best = was ? sw_json_get(was, "best") : NULL;
    if (by && by->type == SW_JSON_STRING && strcmp(by->string, compared_by(job)) == 0) {
        const bool known = best && (best->type == SW_JSON_FLOAT || best->type == SW_JSON_INT);
        *out = (struct sw_job_patience){known ? best->number : NAN, count_of(was, "step"),
                                        count_of(was, "waited")};
    }
}

static sw_status read_patience(const struct job *job, struct sw_job_patience *out)
{
    struct sw_ckpt *ckpt = NULL;
    SW_TRY(sw_ckpt_open(job->start.path, &ckpt));
    if (ckpt) {
        const struct sw_json *training = sw_ckpt_meta(ckpt)->training;
        take(job, training ? sw_json_get(training, "patience") : NULL, out);
        sw_ckpt_close(ckpt);
    }
    return SW_OK;
}

sw_status sw_job_patience_load(struct job *job)
{
    const sw_status st = job->leads ? read_patience(job, &job->patience) : SW_OK;
    if (!job->comm) {
        return st;
    }
    SW_TRY(sw_comm_agree(job->comm, st, "reading how a training stood"));
    SW_TRY(sw_comm_broadcast(job->comm, 0, &job->patience, sizeof job->patience,
                             "how a training stood"));
    return SW_OK;
}
