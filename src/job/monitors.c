// SPDX-License-Identifier: Apache-2.0
// Routes the numbers of a step to the monitors. Event files and CSV use DeepSpeed's names and count
// samples. They add the gradient norm, the speed and validation to DeepSpeed's numbers.
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/private.h"

/* Joins output_path and job_name as Python does. */
static sw_status folder_of(const struct sw_monitor_config *config, const char *block,
                           struct sw_str *out)
{
    const char *path = config->output_path ? config->output_path : "";
    const size_t len = strlen(path);
    if (!config->job_name || !*config->job_name) {
        return SW_FAIL(SW_E_CONFIG, "%s.job_name is empty; wanted the name of a folder", block);
    }
    sw_str_printf(out, "%s%s%s", path, len > 0 && path[len - 1] != '/' ? "/" : "",
                  config->job_name);
    return out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for monitors") : SW_OK;
}

/* Opens the events or CSV monitor if its block is enabled. */
static sw_status open_monitor(const struct sw_monitor_config *config, const char *block,
                              struct sw_monitor_place *place, struct sw_events **events,
                              struct sw_csv **csv)
{
    struct sw_str folder = {0};
    if (!config->enabled) {
        return SW_OK;
    }
    sw_status st = folder_of(config, block, &folder);
    place->folder = folder.ptr;
    if (st >= 0) {
        st = events ? sw_events_open(place, events) : sw_csv_open(place, csv);
    }
    sw_str_fini(&folder);
    return st < 0 ? sw_fail_prefix(st, "%s", block) : SW_OK;
}

sw_status sw_job_monitors_open(const struct sw_job_monitor_options *options,
                               struct sw_job_monitors *out)
{
    const struct sw_config *c = options->config;
    char run[PATH_MAX]; /* one run writes to an output folder */
    struct sw_monitor_place place = {.run = realpath(options->output, run) ? run : options->output,
                                     .goes_on = options->goes_on,
                                     .last = options->samples};
    *out = (struct sw_job_monitors){.model = options->model,
                                    .breakdown = c->misc.wall_clock_breakdown,
                                    .scaled = c->fp16.enabled,
                                    .images = options->images,
                                    .tokens = options->tokens};
    SW_TRY(open_monitor(&c->tensorboard, "tensorboard", &place, &out->events, NULL));
    SW_TRY(open_monitor(&c->csv_monitor, "csv_monitor", &place, NULL, &out->csv));
    if (options->metrics_file) { /* an unusable path is refused before the first step */
        const struct sw_gauge none = {"spillway_step", "Optimizer steps so far.", NULL, true, 0};
        sw_status st = sw_output_open(options->metrics_file, true, &out->gauges);
        st = st < 0 ? st : sw_gauges_write(&out->gauges, &none, 1);
        SW_TRY(st < 0 ? sw_fail_prefix(st, "--metrics-file") : SW_OK);
    }
    return SW_OK;
}

void sw_job_monitors_close(struct sw_job_monitors *monitors)
{
    sw_events_close(monitors->events);
    sw_csv_close(monitors->csv);
    sw_output_close(&monitors->gauges);
    *monitors = (struct sw_job_monitors){0};
}

/* ---- points ---- */

struct points {
    struct sw_point of[16 + SW_METRIC_COUNT + SW_JOB_MOST_ROUTERS];
    char tags[SW_METRIC_COUNT + SW_JOB_MOST_ROUTERS][64];
    int n, n_tags;
};

static void put(struct points *p, const char *tag, double value)
{
    p->of[p->n++] = (struct sw_point){tag, value};
}

static void put_named(struct points *p, const char *group, const char *name, double value)
{
    char *tag = p->tags[p->n_tags++];
    snprintf(tag, sizeof p->tags[0], "%s/Samples/%s", group, name);
    put(p, tag, value);
}

static void put_times(struct points *p, const struct sw_job_step *step)
{
    const double ms = 1e3, backward = sw_job_seconds(step, SW_JOB_BACKWARD_NS);
    const double reduce = sw_job_seconds(step, SW_JOB_REDUCE_NS);
    put(p, "Train/Samples/elapsed_time_ms_forward", ms * sw_job_seconds(step, SW_JOB_FORWARD_NS));
    put(p, "Train/Samples/elapsed_time_ms_backward", ms * backward);
    put(p, "Train/Samples/elapsed_time_ms_backward_inner", ms * fmax(backward - reduce, 0));
    put(p, "Train/Samples/elapsed_time_ms_backward_allreduce", ms * reduce);
    put(p, "Train/Samples/elapsed_time_ms_step", ms * sw_job_seconds(step, SW_JOB_UPDATE_NS));
}

static void put_validation(struct points *p, const struct sw_job_step *step)
{
    put(p, "Validation/Samples/loss", step->val_loss);
    for (int i = 0; i < step->metrics.n; i++) {
        if (!isnan(step->metrics.of[i].value)) {
            put_named(p, "Validation", sw_metric_name(step->metrics.of[i].metric),
                      step->metrics.of[i].value);
        }
    }
}

static void make_points(const struct sw_job_monitors *m, const struct sw_job_step *step,
                        struct points *p)
{
    const struct sw_step_report *r = &step->report;
    const double seconds = sw_job_seconds(step, SW_JOB_STEP_NS);
    p->n = p->n_tags = 0;
    put(p, "Train/Samples/train_loss", r->loss);
    put(p, "Train/Samples/lr", r->lr);
    if (m->scaled) {
        put(p, "Train/Samples/loss_scale", r->loss_scale);
    }
    put(p, "Train/Samples/grad_norm", r->grad_norm);
    put(p, m->images ? "Train/Samples/images_per_s" : "Train/Samples/tokens_per_s",
        (double)m->tokens / seconds);
    for (int i = 0; i < step->routers.n; i++) {
        put_named(p, "Train", step->routers.items[i].name, step->routers.items[i].gauge.value);
    }
    if (m->breakdown) {
        put_times(p, step);
    }
    if (step->validated) {
        put_validation(p, step);
    }
}

/* ---- gauges ---- */

/* Writes a label value, quoted as the text format requires. */
static void quote(const char *text, char *out, size_t cap)
{
    size_t n = 0;
    for (; *text && n + 3 < cap; text++) {
        if (*text == '"' || *text == '\\') {
            out[n++] = '\\';
        }
        out[n++] = *text == '\n' ? ' ' : *text;
    }
    out[n] = '\0';
}

static sw_status write_gauges(struct sw_job_monitors *m, const struct sw_job_step *step)
{
    const struct sw_step_report *r = &step->report;
    const double seconds = sw_job_seconds(step, SW_JOB_STEP_NS);
    static const char memory[] = "Bytes of the plan, of the rank with most.";
    char model[512], label[600];
    quote(m->model, model, sizeof model);
    snprintf(label, sizeof label, "model=\"%s\"", model);
    const struct sw_gauge gauges[] = {
        {"spillway_run_info", "What is trained.", label, false, 1},
        {"spillway_step", "Optimizer steps so far.", NULL, true, (double)r->step},
        {"spillway_samples_total", "Samples so far, of all ranks.", NULL, true, (double)r->samples},
        {"spillway_skipped_steps_total", "Steps of this run that overflowed.", NULL, true,
         (double)m->n_skipped},
        {"spillway_loss", "Mean loss of the step.", NULL, false, r->loss},
        {"spillway_grad_norm", "Norm of the gradient before clipping.", NULL, false, r->grad_norm},
        {"spillway_learning_rate", "Learning rate of the step.", NULL, false, r->lr},
        {"spillway_loss_scale", "Scale of the loss.", NULL, false, r->loss_scale},
        {"spillway_step_seconds", "Time of the step, of the slowest rank.", NULL, false, seconds},
        {m->images ? "spillway_images_per_second" : "spillway_tokens_per_second",
         "Speed of the step, of all ranks.", NULL, false, (double)m->tokens / seconds},
        {"spillway_memory_bytes", memory, "tier=\"device\"", false,
         (double)step->most[SW_JOB_DEVICE]},
        {"spillway_memory_bytes", memory, "tier=\"host\"", false, (double)step->most[SW_JOB_HOST]},
        {"spillway_memory_bytes", memory, "tier=\"disk\"", false, (double)step->most[SW_JOB_DISK]},
        {"spillway_besides_bytes", "Bytes beside the plan, of the process with most.", NULL, false,
         (double)step->most[SW_JOB_BESIDES]},
        {"spillway_disk_read_gb_s", "Speed of the disks while they read, of all ranks.", NULL,
         false, step->use.read_gb_s},
        {"spillway_disk_write_gb_s", "Speed of the disks while they wrote, of all ranks.", NULL,
         false, step->use.write_gb_s},
        {"spillway_validation_loss", "Loss of the last validation.", NULL, false, step->val_loss},
    };
    struct sw_gauge all[SW_LEN(gauges) + SW_JOB_MOST_ROUTERS];
    int n = (int)SW_LEN(gauges) - isnan(step->val_loss);
    memcpy(all, gauges, (size_t)n * sizeof *all);
    for (int i = 0; i < step->routers.n; i++) {
        all[n++] = step->routers.items[i].gauge;
    }
    return sw_gauges_write(&m->gauges, all, n);
}

/* A failed write of points ends the training, as for metrics.jsonl, because they would be lost for
 * good. A failed gauge does not: the next step writes it anew. */
sw_status sw_job_monitors_add(struct sw_job_monitors *m, const struct sw_job_step *step)
{
    m->n_skipped += step->report.skipped;
    if (m->events || m->csv) {
        struct points p;
        make_points(m, step, &p);
        const int64_t x = step->report.samples;
        SW_TRY(m->events ? sw_events_add(m->events, x, p.of, p.n) : SW_OK);
        SW_TRY(m->csv ? sw_csv_add(m->csv, x, p.of, p.n) : SW_OK);
    }
    if (m->gauges.path && write_gauges(m, step) < 0) {
        if (!m->warned) {
            sw_log(SW_LOG_WARN, "--metrics-file: %s; the training continues", sw_error_message());
        }
        m->warned = true;
    }
    return SW_OK;
}
