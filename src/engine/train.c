// SPDX-License-Identifier: Apache-2.0
// The training job: tokenizer, dataset, engine, and the loop over steps with validation, samples,
// checkpoints and metrics. The position of a run is the engine's count of global samples alone.
#include "spillway/train.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data.h"
#include "engine/engine.h"
#include "engine/progress.h"
#include "engine/queues.h"
#include "launch/launch.h"
#include "spillway/checkpoint.h"
#include "spillway/comm.h"

struct job {
    const struct sw_train_options *options;
    sw_comm *comm; /* NULL = alone */
    bool leads;    /* rank 0: prints, writes metrics and exports */
    struct sw_launch_link *link;
    FILE *out;
    struct progress progress;
    sw_tokenizer *tokenizer;
    sw_dataset *dataset;
    sw_engine *engine;
    FILE *metrics;
    int64_t batch, tokens, micro_batches;
    int64_t local;             /* micro-batches of this rank */
    int32_t *ids, *labels;     /* [local, B, T] */
    struct sw_tensor *tensors; /* [local, 2] */
    struct sw_batch *batches;  /* [local] */
    int64_t first_step;
    double began_s, val_loss, loss;
    struct sw_queue_times began[SW_QUEUE_COUNT]; /* before the first step */
    int64_t saved_step;
};

static const char default_config[] =
    "{\"train_micro_batch_size_per_gpu\": 8, \"gradient_accumulation_steps\": 1,"
    " \"gradient_clipping\": 1.0,"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": %s, \"betas\": [0.9, 0.99],"
    " \"weight_decay\": 0.1}}, \"spillway\": {\"decay_1d\": false}}";

/* ---- setting up ---- */

/* A launcher that starts a job again on fewer ranks says how many the first start had. */
static int batch_ranks(void)
{
    const char *text = getenv("SPILLWAY_BATCH_RANKS");
    const int n = text ? atoi(text) : 0;
    return n > 0 ? n : 0;
}

static bool is_shard(const char *path)
{
    const size_t len = strlen(path);
    return len > 4 && strcmp(path + len - 4, ".bin") == 0;
}

static bool folder_has_tokenizer(const char *folder)
{
    static const char *const files[] = {"tokenizer.json", "vocab.json", "encoder.json",
                                        "chars.json"};
    for (size_t i = 0; i < SW_LEN(files); i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        if (access(path, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

static sw_status open_tokenizer(struct job *job)
{
    const struct sw_train_options *o = job->options;
    if (o->tokenizer) {
        return sw_tokenizer_open(o->tokenizer, NULL, &job->tokenizer);
    }
    if (folder_has_tokenizer(o->model)) {
        return sw_tokenizer_open(o->model, NULL, &job->tokenizer);
    }
    if (is_shard(o->data[0])) {
        return SW_OK; /* tokens already */
    }
    return sw_tokenizer_open_chars_of(o->data, o->n_data, &job->tokenizer);
}

static sw_status open_engine(struct job *job)
{
    const struct sw_train_options *o = job->options;
    char text[512];
    const bool preset = sw_model_is_preset(o->model);
    snprintf(text, sizeof text, default_config, preset ? "0.001" : "5e-05");
    const struct sw_engine_options options = {
        .config_path = o->config_path,
        .config_text = o->config_path ? NULL : text,
        .sets = o->sets,
        .n_sets = o->n_sets,
        .model = o->model,
        .vocab_size = job->tokenizer ? sw_tokenizer_vocab_size(job->tokenizer) : 0,
        .seq_len = o->seq_len,
        .seed = o->has_seed ? o->seed : 42,
        .want_eval = o->eval_every > 0,
        .generate_tokens = o->sample_every > 0 && job->tokenizer ? -1 : 0,
        .profile = o->profile,
        .comm = job->comm,
        .batch_ranks = batch_ranks(),
    };
    SW_TRY(sw_initialize(&options, &job->engine));
    if (!job->engine->trains) {
        return SW_FAIL(SW_E_CONFIG, "optimizer: the configuration has no such block");
    }
    if (job->engine->model->head != SW_HEAD_LM) {
        return SW_FAIL(SW_E_UNSUP, "train: text trains language models; this one is a classifier");
    }
    job->batch = sw_engine_micro_batch_size(job->engine);
    job->tokens = sw_engine_seq_len(job->engine);
    job->micro_batches = sw_engine_micro_batches(job->engine);
    job->local = sw_engine_local_micro_batches(job->engine);
    return SW_OK;
}

static sw_status open_data(struct job *job)
{
    const struct sw_train_options *o = job->options;
    const struct sw_dataset_options options = {
        .files = o->data,
        .n_files = o->n_data,
        .val_files = o->val_data,
        .n_val_files = o->n_val_data,
        .val_fraction = o->eval_every > 0 ? SW_VAL_FRACTION : 0,
        .tokenizer = job->tokenizer,
        .vocab_size = sw_engine_vocab(job->engine),
        .seq_len = job->tokens,
        .seed = job->engine->seed,
    };
    SW_TRY(sw_dataset_open(&options, &job->dataset));
    const size_t k = job->local > 0 ? (size_t)job->local : 1; /* validation takes one at least */
    const size_t elems = k * (size_t)(job->batch * job->tokens);
    job->ids = sw_alloc("train", elems * sizeof *job->ids);
    job->labels = sw_alloc("train", elems * sizeof *job->labels);
    job->tensors = sw_alloc_zero("train", 2 * k, sizeof *job->tensors);
    job->batches = sw_alloc_zero("train", k, sizeof *job->batches);
    if (!job->ids || !job->labels || !job->tensors || !job->batches) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the batch");
    }
    for (size_t i = 0; i < k; i++) {
        const size_t at = i * (size_t)(job->batch * job->tokens);
        const struct sw_shape shape = SW_SHAPE(job->batch, job->tokens);
        job->tensors[2 * i] = (struct sw_tensor){
            "input_ids", {.data = job->ids + at, .dtype = SW_I32, .shape = shape}};
        job->tensors[2 * i + 1] = (struct sw_tensor){
            "labels", {.data = job->labels + at, .dtype = SW_I32, .shape = shape}};
        job->batches[i] = (struct sw_batch){&job->tensors[2 * i], 2};
    }
    return SW_OK;
}

/* Lines of steps after the one resumed from would stand twice. */
static sw_status open_metrics(struct job *job)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/metrics.jsonl", job->options->output);
    char *old = NULL;
    size_t old_len = 0;
    struct sw_str kept = {0};
    if (job->first_step > 0 && access(path, R_OK) == 0) {
        SW_TRY(sw_file_read(path, &old, &old_len));
        for (char *line = old; line && *line;) {
            char *end = strchr(line, '\n');
            long long step = 0;
            if (!end || sscanf(line, "{\"step\":%lld", &step) != 1 || step > job->first_step) {
                break;
            }
            sw_str_append(&kept, line, (size_t)(end + 1 - line));
            line = end + 1;
        }
        sw_free(old);
    }
    sw_status st = sw_file_write_atomic(path, sw_str_text(&kept), kept.len);
    sw_str_fini(&kept);
    SW_TRY(st);
    job->metrics = fopen(path, "a");
    if (!job->metrics) {
        return SW_FAIL(SW_E_IO, "%s: %s", path, strerror(errno));
    }
    return SW_OK;
}

static sw_status check_options(const struct sw_train_options *o)
{
    const bool model = o->model && *o->model, output = o->output && *o->output;
    if (!model || o->n_data < 1 || !output) {
        return SW_FAIL(SW_E_ARG, "train wants %s",
                       !model          ? "--model"
                       : o->n_data < 1 ? "--data"
                                       : "--output");
    }
    if (o->n_val_data > 0 && o->eval_every < 1) {
        return SW_FAIL(SW_E_ARG, "--val-data wants --eval-every: the steps between validations");
    }
    if (o->steps < 1) {
        return SW_FAIL(SW_E_ARG, "--steps is %lld; wanted at least 1", (long long)o->steps);
    }
    if (!(o->deadline_s >= 0 && o->deadline_s <= SW_DEADLINE_MAX_S)) {
        return SW_FAIL(SW_E_ARG, "--deadline is %g; wanted above 0, at most %d", o->deadline_s,
                       SW_DEADLINE_MAX_S);
    }
    if (o->ranks < 0 || o->ranks > INT_MAX) {
        return SW_FAIL(SW_E_ARG, "--ranks is %lld; there are none so many", (long long)o->ranks);
    }
    char latest[4096];
    snprintf(latest, sizeof latest, "%s/latest", o->output);
    if (!o->resume && access(latest, F_OK) == 0) {
        return SW_FAIL(
            SW_E_ARG,
            "--output %s has checkpoints of a run: --resume goes on with it; for a new run "
            "name another folder",
            o->output);
    }
    return SW_OK;
}

/* ---- what happens between steps ---- */

static sw_status validate(struct job *job)
{
    const int64_t n_samples = sw_dataset_n_samples(job->dataset, SW_SPLIT_VAL);
    int64_t n_batches = (n_samples + job->batch - 1) / job->batch;
    n_batches =
        sw_min_i64(n_batches, job->options->eval_batches > 0 ? job->options->eval_batches : 16);
    double sum = 0, count = 0;
    for (int64_t i = 0; i < n_batches; i++) {
        SW_TRY(sw_dataset_fetch(job->dataset, SW_SPLIT_VAL, i * job->batch, job->batch, job->ids,
                                job->labels, NULL));
        double batch_sum = 0, batch_count = 0;
        SW_TRY(sw_evaluate(job->engine, &job->batches[0], &batch_sum, &batch_count));
        sum += batch_sum;
        count += batch_count;
    }
    job->val_loss = count > 0 ? sum / count : NAN;
    return SW_OK;
}

/* What a sample begins with. */
static sw_status sample_prompt(const struct job *job, struct sw_ids *prompt)
{
    const char *text = job->options->sample_prompt;
    const int32_t eos = sw_tokenizer_eos(job->tokenizer);
    if (text && *text) {
        return sw_tokenizer_encode(job->tokenizer, text, strlen(text), false, prompt);
    }
    if (eos >= 0) {
        return sw_ids_push(prompt, eos);
    }
    return sw_tokenizer_encode(job->tokenizer, "\n", 1, false, prompt) < 0
               ? sw_ids_push(prompt, 0) /* a text without line breaks */
               : SW_OK;
}

/* A prompt that cannot be continued is refused before the first step, not at the first sample. */
static sw_status check_sample(const struct job *job)
{
    struct sw_ids prompt = {0};
    if (job->options->sample_every < 1 || !job->tokenizer) {
        return SW_OK;
    }
    const int64_t most = job->engine->options.generate_tokens;
    sw_status st = sample_prompt(job, &prompt);
    if (st < 0) {
        st = sw_fail_prefix(st, "--sample-prompt");
    } else if (prompt.len >= most) {
        st = SW_FAIL(SW_E_ARG, "--sample-prompt has %lld tokens; wanted fewer than %lld",
                     (long long)prompt.len, (long long)most);
    }
    sw_ids_fini(&prompt);
    return st;
}

static sw_status print_sample(struct job *job)
{
    const struct sw_train_options *o = job->options;
    const int64_t most = job->engine->options.generate_tokens;
    struct sw_ids prompt = {0};
    int32_t *out = NULL;
    char *text = NULL;
    int64_t n = 0;
    sw_status st = SW_OK;
    SW_TRY_OR(done, sample_prompt(job, &prompt));
    const int64_t wanted = o->sample_tokens > 0 ? o->sample_tokens : 200;
    const int64_t n_new = sw_min_i64(wanted, most - prompt.len);
    out = sw_alloc("train", (size_t)(n_new > 0 ? n_new : 1) * sizeof *out);
    if (!out) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a sample");
        goto done;
    }
    const struct sw_sampling sampling = {.temperature = 0.8,
                                         .top_k = 40,
                                         .seed = job->engine->seed + (uint64_t)job->engine->step,
                                         .stop_id = -1};
    SW_TRY_OR(done,
              sw_generate(job->engine, prompt.ptr, prompt.len, n_new, &sampling, out, &n, NULL));
    SW_TRY_OR(done, sw_tokenizer_decode(job->tokenizer, out, n, true, &text, NULL));
    sw_progress_end(&job->progress);
    fprintf(job->out, "--- sample at step %lld ---\n%s%s\n---\n", (long long)job->engine->step,
            o->sample_prompt ? o->sample_prompt : "", text);
done:
    sw_ids_fini(&prompt);
    sw_free(out);
    sw_text_free(text);
    return st;
}

static sw_status save(struct job *job)
{
    if (job->saved_step == job->engine->step) {
        return SW_OK;
    }
    const struct sw_save_options options = {
        .keep_last = (int)sw_min_i64(job->options->keep_last, INT_MAX), .val_loss = job->val_loss};
    SW_TRY(sw_save(job->engine, job->options->output, &options));
    job->saved_step = job->engine->step;
    return SW_OK;
}

/* ---- the line a step ---- */

static void format_eta(double seconds, char *buf, size_t cap)
{
    const long s = seconds > 0 && seconds < 1e9 ? (long)(seconds + 0.5) : 0;
    if (s >= 3600) {
        snprintf(buf, cap, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    } else {
        snprintf(buf, cap, "%ld:%02ld", s / 60, s % 60);
    }
}

static bool has_disk(const struct job *job)
{
    return sw_engine_tier_bytes(job->engine, SW_TIER_DISK) > 0;
}

static void print_step(struct job *job, const struct sw_step_report *r, const struct queue_use *use,
                       double seconds)
{
    const struct sw_train_options *o = job->options;
    char eta[32], device[32], host[32], val[40] = "", queues[128] = "";
    struct sw_alloc_stats stats;
    const double per_step = (sw_now_s() - job->began_s) / (double)(r->step - job->first_step);
    format_eta(per_step * (double)(o->steps - r->step), eta, sizeof eta);
    sw_alloc_get_stats(&stats);
    sw_format_bytes(device, sizeof device, (double)sw_engine_tier_bytes(job->engine, 0));
    sw_format_bytes(host, sizeof host, (double)stats.live_bytes);
    const bool validated = o->eval_every > 0 && r->step % o->eval_every == 0;
    if (validated) {
        snprintf(val, sizeof val, " val %.4f", job->val_loss);
    }
    if (has_disk(job)) {
        sw_queue_use_line(use, queues, sizeof queues);
    }
    const double tokens = (double)(job->micro_batches * job->batch * job->tokens);
    char text[512];
    snprintf(
        text, sizeof text,
        "step %lld/%lld eta %s loss %.4f%s norm %.3f lr %.3e %.0f ms %.0f tok/s device %s host %s%s%s",
        (long long)r->step, (long long)o->steps, eta, r->loss, val, r->grad_norm, r->lr,
        seconds * 1e3, tokens / seconds, device, host, queues,
        r->skipped ? " (skipped: overflow)" : "");
    sw_progress_step(&job->progress, text, (double)r->step / (double)o->steps,
                     validated || r->step == o->steps || r->skipped);
}

static void json_number(struct sw_str *line, const char *key, double value)
{
    sw_str_printf(line, ",\"%s\":", key);
    if (isfinite(value)) {
        sw_json_write_f64(value, line);
    } else {
        sw_str_puts(line, "null");
    }
}

static sw_status write_metrics(struct job *job, const struct sw_step_report *r,
                               const struct queue_use *use, double seconds)
{
    struct sw_alloc_stats host;
    sw_alloc_get_stats(&host);
    const double tokens = (double)(job->micro_batches * job->batch * job->tokens);
    struct sw_str line = {0};
    sw_str_printf(&line, "{\"step\":%lld", (long long)r->step);
    json_number(&line, "loss", r->loss);
    json_number(&line, "grad_norm", r->grad_norm);
    json_number(&line, "lr", r->lr);
    json_number(&line, "loss_scale", r->loss_scale);
    sw_str_printf(&line, ",\"skipped\":%s", r->skipped ? "true" : "false");
    json_number(&line, "step_ms", seconds * 1e3);
    json_number(&line, "tokens_per_s", tokens / seconds);
    sw_str_printf(&line, ",\"device_bytes\":%lld,\"host_bytes\":%lld,\"disk_bytes\":%lld",
                  (long long)sw_engine_tier_bytes(job->engine, 0), (long long)host.live_bytes,
                  (long long)sw_engine_tier_bytes(job->engine, 2));
    if (has_disk(job)) {
        json_number(&line, "disk_read_gb_s", use->read_gb_s);
        json_number(&line, "disk_write_gb_s", use->write_gb_s);
        json_number(&line, "hidden", use->hidden);
        sw_str_printf(&line, ",\"bound\":\"%s\"", sw_queue_name(use->bound));
    }
    if (job->options->eval_every > 0 && r->step % job->options->eval_every == 0) {
        json_number(&line, "val_loss", job->val_loss);
    }
    sw_str_puts(&line, "}\n");
    const bool good = !line.failed && fwrite(line.ptr, 1, line.len, job->metrics) == line.len &&
                      fflush(job->metrics) == 0;
    sw_str_fini(&line);
    return good ? SW_OK
                : SW_FAIL(SW_E_IO, "%s/metrics.jsonl: %s", job->options->output, strerror(errno));
}

/* ---- the loop ---- */

static sw_status one_step(struct job *job)
{
    const struct sw_train_options *o = job->options;
    struct sw_step_report report;
    struct sw_queue_times before[SW_QUEUE_COUNT], after[SW_QUEUE_COUNT];
    struct queue_use use;
    sw_executor_queue_times(job->engine->executor, before);
    const double begin = sw_now_s();
    for (int64_t j = 0; j < job->local; j++) { /* micro-batch k = j R + rank of the global batch */
        const int64_t k = j * job->engine->ranks + job->engine->rank;
        const int64_t at = j * job->batch * job->tokens;
        SW_TRY(sw_dataset_fetch(job->dataset, SW_SPLIT_TRAIN,
                                sw_engine_samples(job->engine) + k * job->batch, job->batch,
                                job->ids + at, job->labels + at, NULL));
    }
    SW_TRY(sw_train_batch(job->engine, job->batches, job->local, &report));
    const double seconds = sw_now_s() - begin;
    sw_executor_queue_times(job->engine->executor, after);
    sw_queue_use(before, after, &use);
    if (!report.skipped && !isfinite(report.loss)) {
        return SW_FAIL(SW_E_ARG, "step %lld: the loss is %g; the checkpoint before it is intact",
                       (long long)report.step, report.loss);
    }
    job->loss = report.loss;
    if (o->eval_every > 0 && report.step % o->eval_every == 0) {
        SW_TRY(validate(job));
    }
    if (job->leads) {
        SW_TRY(write_metrics(job, &report, &use, seconds));
    }
    if (!o->quiet && job->leads) {
        print_step(job, &report, &use, seconds);
    }
    if (o->sample_every > 0 && report.step % o->sample_every == 0 && job->tokenizer) {
        SW_TRY(print_sample(job));
    }
    if (o->save_every > 0 && report.step % o->save_every == 0) {
        SW_TRY(save(job));
    }
    return SW_OK;
}

/* With slices on many ranks, the last checkpoint has what no rank holds alone. */
static sw_status export_model(struct job *job)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/model", job->options->output);
    const enum sw_dtype dtype = job->options->export_dtype < 0
                                    ? job->engine->export_dtype
                                    : (enum sw_dtype)job->options->export_dtype;
    if (job->engine->ranks == 1) {
        SW_TRY(sw_export(job->engine, path, dtype));
    } else {
        SW_TRY(sw_engine_export_saved(job->engine, job->options->output, path, dtype));
    }
    if (job->tokenizer) {
        SW_TRY(sw_tokenizer_save(job->tokenizer, path));
    }
    return SW_OK;
}

/* The tokenizer beside the checkpoints: what is exported of one has the words for its numbers, even when
 * the text that they were made from is gone. */
static sw_status save_tokenizer(const struct job *job)
{
    char path[4096];
    if (!job->tokenizer || !job->leads) {
        return SW_OK;
    }
    snprintf(path, sizeof path, "%s/tokenizer", job->options->output);
    SW_TRY(sw_mkdirs(path));
    return sw_tokenizer_save(job->tokenizer, path);
}

static bool asked_to_stop(const struct job *job)
{
    return job->options->stop && *job->options->stop;
}

/* Before there is a step to finish and to save. */
static sw_status go_on(const struct job *job)
{
    return asked_to_stop(job) ? SW_FAIL(SW_E_STOP, "stopped before the first step") : SW_OK;
}

static sw_status set_up(struct job *job)
{
    SW_TRY(go_on(job));
    SW_TRY(open_tokenizer(job));
    SW_TRY(go_on(job));
    SW_TRY(open_engine(job));
    SW_TRY(go_on(job));
    SW_TRY(open_data(job));
    SW_TRY(check_sample(job));
    SW_TRY(go_on(job));
    SW_TRY(sw_mkdirs(job->options->output));
    if (job->options->resume) {
        const sw_status st = sw_load(job->engine, job->options->output);
        SW_TRY(st);
        if (st == SW_OK) {
            job->first_step = job->saved_step = sw_engine_step(job->engine);
        }
    }
    SW_TRY(sw_engine_limit_trace(job->engine, job->options->steps));
    SW_TRY(go_on(job));
    return job->leads ? open_metrics(job) : SW_OK;
}

static void print_head(const struct job *job)
{
    char bytes[32];
    fprintf(
        job->out,
        "model %s, %lld parameters, %s; batch %lld x %lld of %lld tokens; %lld training samples\n",
        job->options->model, (long long)sw_engine_parameters(job->engine),
        sw_dtype_name(job->engine->dtype), (long long)job->micro_batches, (long long)job->batch,
        (long long)job->tokens, (long long)sw_dataset_n_samples(job->dataset, SW_SPLIT_TRAIN));
    fprintf(job->out, "plan: device %s; kernels %s\n",
            sw_format_bytes(bytes, sizeof bytes, (double)sw_engine_tier_bytes(job->engine, 0)),
            sw_device_kernel_set(job->engine->device));
    if (sw_engine_tier_bytes(job->engine, SW_TIER_DISK) > 0) {
        sw_format_bytes(bytes, sizeof bytes,
                        (double)sw_engine_tier_bytes(job->engine, SW_TIER_DISK));
        fprintf(job->out, "disk: %s, updates %s\n", bytes,
                sw_engine_writes_in_place(job->engine)
                    ? "written in place: after a step that fails a checkpoint is needed"
                    : "go beside what they replace: a step that fails changes nothing");
    }
    if (job->first_step > 0) {
        fprintf(job->out, "resumed at step %lld\n", (long long)job->first_step);
    }
    fflush(job->out);
}

static sw_status finish(struct job *job, bool stopped)
{
    SW_TRY(sw_engine_finish_trace(job->engine));
    SW_TRY(save(job));
    if (job->engine->trace.written) {
        fprintf(job->out, "trace: %s, steps %lld to %lld\n", job->engine->config->spillway.trace,
                (long long)job->engine->trace.first,
                (long long)sw_min_i64(job->engine->trace.last, job->engine->step));
    }
    if (stopped) {
        fprintf(job->out, "stopped at step %lld with a checkpoint; --resume goes on from it\n",
                (long long)job->engine->step);
        return SW_OK;
    }
    if (!job->options->no_export && job->leads) {
        SW_TRY(export_model(job));
        fprintf(job->out, "model: %s/model\n", job->options->output);
    }
    if (job->options->profile) {
        char *text = NULL;
        SW_TRY(sw_profile_text(job->engine, &text));
        fputs(text, job->out);
        sw_text_free(text);
    }
    return SW_OK;
}

/* Of this rank, and all its steps. */
static void print_queues(struct job *job)
{
    struct sw_queue_times now[SW_QUEUE_COUNT];
    struct queue_use use;
    struct sw_str text = {0};
    sw_executor_queue_times(job->engine->executor, now);
    sw_queue_use(job->began, now, &use);
    sw_queue_use_report(&use, &text);
    fputs(sw_str_text(&text), job->out);
    sw_str_fini(&text);
}

static void tear_down(struct job *job)
{
    if (job->metrics) {
        fclose(job->metrics);
    }
    sw_close(job->engine);
    sw_dataset_close(job->dataset);
    sw_tokenizer_close(job->tokenizer);
    sw_free(job->ids);
    sw_free(job->labels);
    sw_free(job->tensors);
    sw_free(job->batches);
}

static double deadline_of(const struct sw_train_options *options)
{
    return options->deadline_s > 0 ? options->deadline_s : 300;
}

/* All ranks stop after the same step, whoever got the signal. */
static sw_status agree_to_stop(struct job *job, bool *stopped)
{
    const sw_status mine = asked_to_stop(job) ? SW_E_STOP : SW_OK;
    if (job->engine->ranks == 1) {
        *stopped = mine != SW_OK;
        return SW_OK;
    }
    const int64_t word = mine;
    SW_TRY(
        sw_comm_all_gather(job->comm, &word, job->engine->statuses, sizeof word, "the stop flag"));
    for (int r = 0; r < job->engine->ranks; r++) {
        *stopped |= job->engine->statuses[r] != SW_OK;
    }
    return SW_OK;
}

/* All ranks of this process; or the one of many that this process is. */
struct team {
    const struct sw_train_options *options;
    FILE *out, *quiet;
    bool *started; /* of rank 0, as the result */
    struct sw_train_result *result;
    struct sw_launch_link *link; /* to the launcher that started this process; NULL = none */
};

static sw_status train_rank(const struct team *team, sw_comm *comm, FILE *out, bool *started,
                            struct sw_train_result *result)
{
    const struct sw_train_options *options = team->options;
    struct job job = {.options = options,
                      .link = team->link,
                      .comm = comm,
                      .leads = !comm || sw_comm_rank(comm) == 0,
                      .out = out,
                      .progress = sw_progress_start(out),
                      .val_loss = NAN,
                      .saved_step = -1};
    *started = false;
    sw_status st = set_up(&job);
    if (st >= 0 && comm) { /* it has started when all ranks have what they need */
        st = sw_comm_barrier(comm, "the first step");
    }
    bool stopped = false;
    if (st >= 0) {
        print_head(&job);
        *started = true;
        job.began_s = sw_now_s();
        sw_executor_queue_times(job.engine->executor, job.began);
        st = save_tokenizer(&job);
    }
    while (st >= 0 && job.engine->step < options->steps && !stopped) {
        sw_launch_link_at(job.link, job.engine->step + 1, "training");
        st = one_step(&job);
        st = st < 0 ? st : agree_to_stop(&job, &stopped);
    }
    sw_progress_end(&job.progress);
    if (st >= 0) {
        const double seconds = sw_now_s() - job.began_s;
        const double steps = (double)(job.engine->step - job.first_step);
        *result = (struct sw_train_result){
            .step = job.engine->step,
            .loss = job.loss,
            .val_loss = job.val_loss,
            .seconds = seconds,
            .tokens_per_s =
                seconds > 0 ? steps * (double)(job.micro_batches * job.batch * job.tokens) / seconds
                            : 0,
            .stopped = stopped && job.engine->step < options->steps,
        };
        st = finish(&job, result->stopped);
    }
    if (st >= 0 && job.engine->step == job.first_step) {
        fprintf(out, "nothing to do: step %lld was the last\n", (long long)job.first_step);
    } else if (st >= 0) {
        fprintf(out, "%lld steps in %.1f s, %.0f tok/s, loss %.4f",
                (long long)(result->step - job.first_step), result->seconds, result->tokens_per_s,
                result->loss);
        if (isfinite(result->val_loss)) {
            fprintf(out, ", validation loss %.4f", result->val_loss);
        }
        fputc('\n', out);
        if (has_disk(&job)) {
            print_queues(&job);
        }
    }
    tear_down(&job);
    return st;
}

/* ---- many ranks ---- */

static sw_status rank_main(void *ctx, sw_comm *comm)
{
    const struct team *t = ctx;
    struct sw_train_result ignored;
    bool started;
    return sw_comm_rank(comm) == 0 ? train_rank(t, comm, t->out, t->started, t->result)
                                   : train_rank(t, comm, t->quiet, &started, &ignored);
}

static sw_status train_threads(struct team *t)
{
    return sw_threads_run((int)t->options->ranks, deadline_of(t->options), rank_main, t);
}

/* This process is one of those that a launcher started. */
static sw_status train_in_world(struct team *t, sw_comm *comm)
{
    const int rank = sw_comm_rank(comm), size = sw_comm_size(comm);
    sw_status st = sw_launch_link_open(rank, &t->link);
    if (st >= 0 && t->options->ranks > 0 && t->options->ranks != size) {
        st = SW_FAIL(SW_E_ARG, "--ranks %lld: %d processes were started, and each is one rank",
                     (long long)t->options->ranks, size);
    }
    if (st >= 0) {
        st = train_rank(t, comm, rank == 0 ? t->out : t->quiet, t->started, t->result);
    }
    if (st < 0) {
        sw_comm_abort(comm, st);
        sw_fail_prefix(st, "rank %d of %d", rank, size);
    }
    sw_comm_close(comm, st < 0);
    sw_launch_link_close(t->link, st < 0);
    return st;
}

sw_status sw_train(const struct sw_train_options *options, FILE *out, bool *started,
                   struct sw_train_result *result)
{
    struct team t = {.options = options, .out = out, .started = started, .result = result};
    sw_comm *world = NULL;
    *started = false;
    SW_TRY_OPTIONS(options);
    SW_TRY(check_options(options));
    SW_TRY(sw_world_open(deadline_of(options), &world));
    if (!world && options->ranks <= 1) {
        SW_TRY(sw_launch_link_open(0, &t.link));
        const sw_status alone = train_rank(&t, NULL, out, started, result);
        sw_launch_link_close(t.link, alone < 0);
        return alone;
    }
    t.quiet = fopen("/dev/null", "w");
    if (!t.quiet) {
        sw_comm_close(world, true);
        return SW_FAIL(SW_E_NOMEM, "no resources for ranks");
    }
    const sw_status st = world ? train_in_world(&t, world) : train_threads(&t);
    fclose(t.quiet);
    return st;
}
