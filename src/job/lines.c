// SPDX-License-Identifier: Apache-2.0
// The lines that a training prints for people: at its start, after steps, and at its end.
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "job/training.h"
#include "model/model.h"

/* ---- at the start ---- */

static const char *format_tier(const struct job *job, enum sw_tier tier, char buf[32])
{
    return sw_format_bytes(buf, 32, (double)sw_engine_tier_bytes(job->engine, tier));
}

static void print_task(const struct job *job)
{
    const struct sw_job_task *t = &job->task;
    const int64_t n_cut = sw_dataset_n_cut(job->dataset, SW_SPLIT_TRAIN);
    fprintf(job->out, "task: %s, %s", t->task->name, t->task->what);
    for (int64_t i = 0; i < t->data.n_labels && i < 12 && t->names; i++) {
        fprintf(job->out, "%s%s", i ? ", " : "; classes ", t->names[i]);
    }
    fputs(t->names && t->data.n_labels > 12 ? ", ..\n" : "\n", job->out);
    if (sw_job_is_images(job)) {
        struct sw_str steps = {0};
        sw_dataset_put_steps(job->dataset, &steps);
        fprintf(job->out, "pixels: %s\n", sw_str_text(&steps));
        sw_str_fini(&steps);
    }
    fprintf(job->out, "data: %lld records, %lld cut\n",
            (long long)sw_dataset_n_documents(job->dataset, SW_SPLIT_TRAIN), (long long)n_cut);
}

/* Prints what a user may not expect: randomly drawn weights, characters as tokens, and settings
 * that nobody chose. */
static void print_origins(const struct job *job)
{
    const struct sw_train_options *o = job->options;
    const struct sw_engine_facts *e = &job->facts;
    const struct sw_config *c = e->config;
    char source[256];
    if (!e->model_folder && job->steps.first == 0) {
        const bool preset = sw_model_is_preset(o->model) && access(o->model, F_OK) != 0;
        fprintf(job->out, "%s%s: weights drawn with seed %llu, %s%s\n", preset ? "preset " : "",
                o->model, (unsigned long long)e->seed,
                preset ? "there is no folder ./" : "it is a configuration alone",
                preset ? o->model : "");
    }
    if (!sw_job_is_text(job)) {
        print_task(job);
    } else if (!job->tokenizer) {
        fputs("tokens: those of the shards (no tokenizer)\n", job->out);
    } else if (!sw_job_tokenizer_path(o)) {
        fputs("tokens: characters of the text (no tokenizer)\n", job->out);
    } else {
        fprintf(job->out, "tokens: %s of %s\n", sw_tokenizer_kind(job->tokenizer),
                sw_job_tokenizer_path(o));
    }
    if (sw_job_optimizer_is_default(job)) {
        fprintf(job->out,
                "optimizer: %s has no such block: AdamW with betas %g and %g, eps %g, weight decay "
                "%g, as transformers' Trainer\n",
                o->config_path ? o->config_path : "the configuration", c->optimizer.betas.items[0],
                c->optimizer.betas.items[1], c->optimizer.eps, c->optimizer.weight_decay);
    }
    const char *from = sw_config_source(c, "gradient_clipping", source, sizeof source);
    const bool asked = strcmp(from, "default") != 0 && strncmp(from, "configuration:", 14) != 0;
    fprintf(job->out, "update: %s, lr ", c->optimizer.name);
    if (c->scheduler.type == SW_SCHEDULER_NONE) {
        fprintf(job->out, "%g, ", c->optimizer.lr);
    } else if (c->scheduler.type >= SW_SCHEDULER_CONSTANT) {
        fprintf(job->out, "%g, %s, ", c->optimizer.lr, c->scheduler.name);
    } else {
        fprintf(job->out, "of %s, ", c->scheduler.name);
    }
    if (c->misc.gradient_clipping > 0) {
        fprintf(job->out, "clipped to norm %g%s\n", c->misc.gradient_clipping,
                asked ? "" : " (default; gradient_clipping)");
    } else {
        fputs("not clipped\n", job->out);
    }
}

/* Describes rows that hold documents rather than parts of a stream. */
static void print_rows(const struct job *job)
{
    if (job->packed) {
        fprintf(job->out, "packed: rows hold several documents; %.1f%% of them is padding\n",
                100 * sw_dataset_padding(job->dataset, SW_SPLIT_TRAIN));
    }
    if (job->chat.chat) {
        sw_job_chat_print(&job->chat, job->dataset, job->tokens, job->out);
    }
    if (job->options->seq_len == 0 &&
        (job->chat.chat || job->packed || job->tokens < job->facts.context)) {
        fprintf(job->out,
                "rows: %lld tokens, the lesser of %d and the model's context; --seq-len sets it\n",
                (long long)job->tokens, SW_DEFAULT_TOKENS);
    }
}

static void print_captures(const struct job *job)
{
    const struct sw_captures captures = sw_executor_captures(job->facts.executor);
    if (captures.n_replays > 0) {
        fprintf(job->out, "captured: %lld launches of a step are replayed as %lld (%lld graphs)\n",
                (long long)captures.n_launches, (long long)captures.n_replays,
                (long long)captures.n_graphs);
    }
}

static void print_quantized(const struct job *job)
{
    const struct sw_quantized_sizes sizes = sw_weights_quantized_sizes(job->facts.weights);
    char bytes[32], dense[32];
    if (sizes.n > 0) {
        fprintf(job->out, "quantized: %d weights to %s, %s instead of %s in %s\n", sizes.n,
                sw_quantized_name(sizes.kind),
                sw_format_bytes(bytes, sizeof bytes, (double)sizes.bytes),
                sw_format_bytes(dense, sizeof dense,
                                (double)sizes.elems * (double)sw_dtype_bytes(job->facts.dtype)),
                sw_dtype_name(job->facts.dtype));
    }
}

void sw_job_print_head(const struct job *job)
{
    char bytes[SW_TIER_COUNT][32];
    struct sw_str chosen = {0}, mesh = {0};
    fprintf(job->out, "model %s, %lld parameters, %s\n", job->options->model,
            (long long)sw_engine_parameters(job->engine), sw_dtype_name(job->facts.dtype));
    print_origins(job);
    if (job->facts.lora) {
        fprintf(job->out, "lora: %lld parameters are trained, the others frozen%s%s\n",
                (long long)sw_weights_trained(job->facts.weights),
                job->options->adapter ? "; continues " : "",
                job->options->adapter ? job->options->adapter : "");
    }
    print_quantized(job);
    fprintf(job->out, "batch %lld x %lld ", (long long)job->micro_batches, (long long)job->batch);
    if (sw_job_is_images(job)) {
        fputs("images", job->out);
    } else {
        fprintf(job->out, "of %lld tokens", (long long)job->tokens);
    }
    fprintf(job->out, "; %lld training samples\n",
            (long long)sw_dataset_n_samples(job->dataset, SW_SPLIT_TRAIN));
    if (job->options->epochs > 0) {
        fprintf(job->out, "epochs: %g, %lld steps\n", job->options->epochs,
                (long long)job->steps.all);
    }
    print_rows(job);
    sw_config_print_chosen(job->facts.config, false, &chosen);
    if (chosen.len > 0) {
        fprintf(job->out, "chosen: %s\n", sw_str_text(&chosen));
    }
    sw_str_fini(&chosen);
    if (strcmp(job->facts.device_name, "cpu") != 0) {
        fprintf(job->out, "device: %s\n", job->facts.device_name);
    }
    sw_engine_print_mesh(job->engine, &mesh);
    fputs(sw_str_text(&mesh), job->out);
    sw_str_fini(&mesh);
    fprintf(job->out, "plan%s: device %s, host %s, disk %s\nkernels: %s\n",
            job->facts.config->parallel.pipe > 1 ? " of rank 0" /* stages differ */
            : job->facts.world.size > 1          ? " of a rank"
                                                 : "",
            format_tier(job, SW_TIER_DEVICE, bytes[SW_TIER_DEVICE]),
            format_tier(job, SW_TIER_HOST, bytes[SW_TIER_HOST]),
            format_tier(job, SW_TIER_DISK, bytes[SW_TIER_DISK]), job->facts.kernel_set);
    print_captures(job);
    if (sw_job_has_disk(job)) {
        fprintf(job->out, "disk: updates %s\n",
                sw_engine_writes_in_place(job->engine)
                    ? "write in place: after a failed step, training continues from a checkpoint"
                    : "write to second slots: a failed step changes nothing");
    }
    if (job->steps.first > 0) {
        fprintf(job->out, "resumed at step %lld\n", (long long)job->steps.first);
    }
    fflush(job->out);
}

void sw_job_print_room(const struct job *job)
{
    const struct sw_train_options *o = job->options;
    const int64_t bytes = sw_weights_checkpoint_bytes(job->facts.weights);
    const int64_t left = sw_max_i64(job->steps.all - job->steps.first, 0);
    int64_t n = o->save_every > 0 ? sw_ceil_div(left, o->save_every) : left > 0;
    if (o->keep_last > 0) { /* the kept ones, the best, and the one being written */
        n = sw_min_i64(n, o->keep_last + 1 + (o->eval_every > 0));
    }
    double needed = (double)bytes * (double)n;
    struct sw_ckpt_list list;
    if (o->keep_last > 0 && job->steps.first > 0 && sw_ckpt_list(o->output, &list) == SW_OK) {
        for (int64_t i = 0; i < list.n_items; i++) { /* old checkpoints are removed one by one */
            needed -= (double)list.items[i].bytes;
        }
        needed = fmax(needed, (double)bytes);
        sw_ckpt_list_fini(&list);
    }
    struct statvfs disk;
    if (n == 0 || statvfs(o->output, &disk) != 0) {
        return; /* nothing is saved, or a size is unknown */
    }
    char one[32], all[32], room[32];
    const double free_bytes = (double)disk.f_bavail * (double)disk.f_frsize;
    sw_format_bytes(one, sizeof one, (double)bytes);
    sw_format_bytes(all, sizeof all, needed);
    sw_format_bytes(room, sizeof room, free_bytes);
    fprintf(job->out, "checkpoints: %s each, %s more in all; %s free in %s\n", one, all, room,
            o->output);
    if (needed > free_bytes) {
        char missing[32];
        sw_log(SW_LOG_WARN,
               "checkpoints will take %s more than is free in %s: %lld of %s each; --keep-last and "
               "--save-every limit their number",
               sw_format_bytes(missing, sizeof missing, needed - free_bytes), o->output,
               (long long)n, one);
    }
}

/* ---- of a step ---- */

static const char *unit_of(const struct job *job)
{
    return sw_job_is_images(job) ? "images/s" : "tok/s";
}

/* Formats " (128 of 200 rows)" if the validation does not cover all rows. */
static const char *format_coverage(const struct job *job, char *buf, size_t cap)
{
    char rows[64];
    const struct sw_job_coverage coverage = sw_job_validated(job);
    sw_job_coverage_text(&coverage, rows, sizeof rows);
    snprintf(buf, cap, *rows ? " (%s)" : "%s", rows);
    return buf;
}

/* Formats "\tval 2.3237 f1 0.8 (128 of 200 rows)" for a step with a validation. */
static void format_validation(const struct job *job, char *buf, size_t cap)
{
    char metric[48] = "", rows[72];
    if (sw_job_counts_metrics(job)) {
        snprintf(metric, sizeof metric, " %s %.4f", sw_metric_name(job->task.metric),
                 sw_job_shown(job->measure.of[job->task.metric]));
    }
    snprintf(buf, cap, "\tval %.4f%s%s", sw_job_shown(job->val_loss), metric,
             format_coverage(job, rows, sizeof rows));
}

/* Formats " margin 0.12 accuracy 0.75" for a step on preferences. */
static void format_totals(const struct job *job, char *buf, size_t cap)
{
    const double *totals = sw_engine_totals(job->engine);
    const double right = sw_engine_metric(SW_METRIC_ACCURACY, totals);
    if (sw_job_has_totals(job)) {
        snprintf(buf, cap, "\tmargin %.4f",
                 sw_job_shown(sw_engine_metric(SW_METRIC_MARGIN, totals)));
    }
    if (sw_job_has_totals(job) && isfinite(right)) {
        snprintf(buf + strlen(buf), cap - strlen(buf), " accuracy %.3f", right);
    }
}

/* Steps between printed lines, if there is no live line. */
static int64_t log_every(const struct job *job)
{
    return sw_max_i64(job->facts.config->misc.steps_per_print, 1);
}

/* Prints the times that DeepSpeed's wall_clock_breakdown prints. */
static void print_times(const struct job *job, const struct sw_job_step *step)
{
    const double backward = sw_job_seconds(step, SW_JOB_BACKWARD_NS);
    const double reduce = sw_job_seconds(step, SW_JOB_REDUCE_NS);
    fprintf(job->out,
            "time (ms) | fwd: %.2f | bwd: %.2f | bwd_inner: %.2f | bwd_allreduce: %.2f | step: "
            "%.2f\n",
            1e3 * sw_job_seconds(step, SW_JOB_FORWARD_NS), 1e3 * backward,
            1e3 * fmax(backward - reduce, 0), 1e3 * reduce,
            1e3 * sw_job_seconds(step, SW_JOB_UPDATE_NS));
}

void sw_job_print_step(struct job *job, const struct sw_job_step *step)
{
    const struct sw_step_report *r = &step->report;
    char eta[32], device[32], host[32], val[160] = "", queues[128] = "", text[512];
    const double seconds = sw_job_seconds(step, SW_JOB_STEP_NS), now = sw_now_s();
    sw_pace_mark(&job->told.pace, now, r->step);
    sw_format_eta(sw_pace_left(&job->told.pace, now, r->step, job->steps.all - r->step), eta,
                  sizeof eta);
    sw_format_bytes(device, sizeof device, (double)step->most[SW_JOB_DEVICE]);
    sw_format_bytes(host, sizeof host, (double)step->most[SW_JOB_HOST]);
    format_totals(job, val, sizeof val);
    if (step->validated) {
        format_validation(job, val + strlen(val), sizeof val - strlen(val));
    }
    if (sw_job_has_disk(job)) {
        sw_queue_use_line(&step->use, queues, sizeof queues);
    }
    snprintf(text, sizeof text,
             "step %lld/%lld\teta %s\tloss %.4f%s%s\tnorm %.3f\tlr %.3e\t%.0f ms\t%.0f %s\tdevice "
             "%s\thost %s%s",
             (long long)r->step, (long long)job->steps.all, eta, sw_job_shown(r->loss),
             r->skipped ? " (skipped: overflow)" : "", val, sw_job_shown(r->grad_norm), r->lr,
             seconds * 1e3, (double)sw_job_units(job) / seconds, unit_of(job), device, host,
             queues);
    const bool lasting = step->validated || r->step == job->steps.all || r->skipped ||
                         (!job->progress.live && r->step % log_every(job) == 0);
    sw_progress_step(&job->progress, text, (double)r->step / (double)job->steps.all,
                     lasting ? LINE_STAYS : LINE_PASSES);
    if (lasting && job->facts.config->misc.wall_clock_breakdown) {
        print_times(job, step);
    }
}

/* ---- at the end ---- */

/* Prints the use of the queues over all ranks and all steps. */
static void print_queues(struct job *job)
{
    struct queue_use use;
    struct sw_str text = {0};
    sw_queue_use(job->shared.ran, job->shared.n, &use);
    sw_queue_use_report(&use, &text);
    fputs(sw_str_text(&text), job->out);
    sw_str_fini(&text);
}

void sw_job_print_end(struct job *job, const struct sw_train_result *result)
{
    char why[160], rows[64];
    if (result->stopped_early) {
        sw_job_patience_text(job, why, sizeof why);
        fprintf(job->out, "stopped early at step %lld: %s (--early-stopping %lld)\n",
                (long long)result->step, why, (long long)job->options->early_stopping);
    }
    if (result->step == job->steps.first) {
        fprintf(job->out, "nothing to do: step %lld was the last\n", (long long)job->steps.first);
        return;
    }
    fprintf(job->out, "%lld steps in %.1f s, %.0f %s, loss %.4f",
            (long long)(result->step - job->steps.first), result->seconds, result->tokens_per_s,
            unit_of(job), result->loss);
    if (isfinite(result->val_loss)) {
        fprintf(job->out, ", validation loss %.4f", result->val_loss);
    }
    fputc('\n', job->out);
    const struct sw_job_coverage coverage = sw_job_validated(job);
    if (isfinite(result->val_loss) && *sw_job_coverage_text(&coverage, rows, sizeof rows)) {
        fprintf(job->out, "validated on %s\n", rows);
    }
    if (sw_job_has_disk(job)) {
        print_queues(job);
    }
}
