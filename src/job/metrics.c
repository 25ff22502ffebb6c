// SPDX-License-Identifier: Apache-2.0
// Writes the numbers of each step as a line of metrics.jsonl, and passes them to the monitors.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "job/training.h"
#include "run/run.h"

sw_status sw_job_open_metrics(struct job *job)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/metrics.jsonl", job->options->output);
    SW_TRY(sw_job_keep_lines(job->options->output, "metrics.jsonl", job->steps.first));
    int fd;
    SW_TRY(sw_file_append(path, &fd));
    job->told.metrics = fdopen(fd, "a");
    if (!job->told.metrics) {
        close(fd);
        return SW_FAIL(SW_E_IO, "%s: %s", path, strerror(errno));
    }
    const struct sw_job_monitor_options options = {.config = job->facts.config,
                                                   .metrics_file = job->options->metrics_file,
                                                   .model = job->options->model,
                                                   .output = job->options->output,
                                                   .goes_on = job->start.continues,
                                                   .samples = sw_engine_samples(job->engine),
                                                   .images = sw_job_is_images(job),
                                                   .tokens = sw_job_units(job)};
    return sw_job_monitors_open(&options, &job->told.monitors);
}

static void json_number(struct sw_str *line, const char *key, double value)
{
    sw_str_printf(line, ",\"%s\":", key);
    sw_json_write_any_f64(value, line);
}

void sw_job_list_metrics(const struct job *job, struct sw_job_metrics *out)
{
    out->n = 0;
    for (int i = 0; i < job->task.task->n_metrics && !sw_job_is_text(job); i++) {
        const enum sw_metric metric = job->task.task->metrics[i];
        if (metric == SW_METRIC_PERPLEXITY || sw_job_counts_metrics(job)) {
            out->of[out->n].metric = metric;
            out->of[out->n++].value = job->measure.of[metric];
        }
    }
}

static void add_metrics(const struct sw_job_metrics *metrics, struct sw_str *line)
{
    for (int i = 0; i < metrics->n; i++) {
        char key[40];
        snprintf(key, sizeof key, "val_%s", sw_metric_name(metrics->of[i].metric));
        json_number(line, key, metrics->of[i].value);
    }
}

/* The metrics of the step itself. */
static void add_totals(const struct job *job, struct sw_str *line)
{
    for (int i = 0; i < job->task.task->n_metrics && sw_job_has_totals(job); i++) {
        const enum sw_metric metric = job->task.task->metrics[i];
        json_number(line, sw_metric_name(metric),
                    sw_engine_metric(metric, sw_engine_totals(job->engine)));
    }
}

static void add_totals_and_speed(const struct job *job, const struct sw_job_step *step,
                                 struct sw_str *line)
{
    const double seconds = sw_job_seconds(step, SW_JOB_STEP_NS);
    add_totals(job, line);
    for (int i = 0; i < step->routers.n; i++) {
        json_number(line, step->routers.items[i].name, step->routers.items[i].gauge.value);
    }
    json_number(line, "step_ms", seconds * 1e3);
    json_number(line, sw_job_is_images(job) ? "images_per_s" : "tokens_per_s",
                (double)sw_job_units(job) / seconds);
    if (job->facts.config->misc.wall_clock_breakdown) {
        json_number(line, "forward_ms", 1e3 * sw_job_seconds(step, SW_JOB_FORWARD_NS));
        json_number(line, "backward_ms", 1e3 * sw_job_seconds(step, SW_JOB_BACKWARD_NS));
        json_number(line, "allreduce_ms", 1e3 * sw_job_seconds(step, SW_JOB_REDUCE_NS));
        json_number(line, "update_ms", 1e3 * sw_job_seconds(step, SW_JOB_UPDATE_NS));
    }
}

static void add_use(const struct job *job, const struct sw_job_step *step, struct sw_str *line)
{
    if (sw_job_has_disk(job)) {
        json_number(line, "disk_read_gb_s", step->use.read_gb_s);
        json_number(line, "disk_write_gb_s", step->use.write_gb_s);
    }
    sw_str_puts(line, ",\"hidden\":");
    sw_json_write_f64(step->use.hidden, line); /* NaN: nothing was moved */
    sw_str_printf(line, ",\"bound\":\"%s\"", sw_queue_name(step->use.bound));
}

sw_status sw_job_write_metrics(struct job *job, const struct sw_job_step *step)
{
    const struct sw_step_report *r = &step->report;
    struct sw_str line = {0};
    sw_str_printf(&line, "{\"step\":%lld", (long long)r->step);
    json_number(&line, "loss", r->loss);
    json_number(&line, "grad_norm", r->grad_norm);
    json_number(&line, "lr", r->lr);
    json_number(&line, "loss_scale", r->loss_scale);
    sw_str_printf(&line, ",\"skipped\":%s,\"samples\":%lld", r->skipped ? "true" : "false",
                  (long long)r->samples);
    add_totals_and_speed(job, step, &line);
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        sw_str_printf(&line, ",\"%s_bytes\":%lld", sw_tier_name((enum sw_tier)t),
                      (long long)step->most[SW_JOB_DEVICE + t]);
    }
    sw_str_printf(&line, ",\"besides_bytes\":%lld,\"resident_bytes\":%lld",
                  (long long)step->most[SW_JOB_BESIDES], (long long)step->most[SW_JOB_RESIDENT]);
    add_use(job, step, &line);
    if (step->validated) {
        json_number(&line, "val_loss", job->val_loss);
        add_metrics(&step->metrics, &line);
    }
    if (job->chat.chat || job->packed) {
        json_number(&line, "padding", sw_dataset_padding(job->dataset, SW_SPLIT_TRAIN));
        sw_str_printf(&line, ",\"rows_cut\":%lld,\"rows_dropped\":%lld",
                      (long long)sw_dataset_n_cut(job->dataset, SW_SPLIT_TRAIN),
                      (long long)sw_dataset_n_dropped(job->dataset, SW_SPLIT_TRAIN));
    }
    sw_str_puts(&line, "}\n");
    const bool good = !line.failed &&
                      fwrite(line.ptr, 1, line.len, job->told.metrics) == line.len &&
                      fflush(job->told.metrics) == 0;
    sw_str_fini(&line);
    return good ? SW_OK
                : SW_FAIL(SW_E_IO, "%s/metrics.jsonl: %s", job->options->output, strerror(errno));
}
