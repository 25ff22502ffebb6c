// SPDX-License-Identifier: Apache-2.0
// The training job: tokenizer, dataset, engine, and the loop over steps with validation, samples,
// checkpoints and metrics. The position of a run is the engine's count of global samples alone.
#include "spillway/train.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "config/config.h"
#include "hf/hf.h"
#include "job/private.h"
#include "job/progress.h"
#include "job/queues.h"
#include "launch/launch.h"
#include "model/model.h"
#include "run/run.h"
#include "spillway/checkpoint.h"
#include "spillway/comm.h"

/* What it tells of its steps, and needs to. */
struct told {
    FILE *metrics;
    struct sw_job_monitors monitors;
    struct sw_job_profile profile;
    struct pace pace;
    struct sw_job_settings writing; /* of an encoder-decoder's samples */
};

struct job {
    const struct sw_train_options *options;
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
    int64_t first_step;
    double began_s, val_loss, loss;
    int64_t saved_step, val_step; /* of the last checkpoint, of the last validation */
};

enum { DEFAULT_CONFIG_CAP = 512 };
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

/* Where the tokenizer is: given, beside the adapter to go on with, which was trained with it, or
 * the model's; NULL: it is made of the data. */
static const char *tokenizer_path(const struct sw_train_options *o)
{
    if (!o->tokenizer && o->adapter && sw_tokenizer_is_there(o->adapter)) {
        return o->adapter;
    }
    return o->tokenizer ? o->tokenizer : sw_tokenizer_is_there(o->model) ? o->model : NULL;
}

static bool is_text(const struct job *job)
{
    return job->task.task->rows == SW_ROWS_TEXT;
}

/* An encoder reads what a sample is asked. */
static bool is_answered(const struct job *job)
{
    const struct sw_task *task = job->task.task;
    return task->rows == SW_ROWS_TARGETS || task->rows == SW_ROWS_SPANS;
}

static bool is_images(const struct job *job)
{
    return job->task.task->rows == SW_ROWS_IMAGES;
}

/* What a step is measured by: tokens, of images these. */
static int64_t units_of_step(const struct job *job)
{
    return job->micro_batches * job->batch * (is_images(job) ? 1 : job->tokens);
}

static const char *unit_of(const struct job *job)
{
    return is_images(job) ? "images/s" : "tok/s";
}

static sw_status choose_task(struct job *job)
{
    const struct sw_train_options *o = job->options;
    const struct sw_dataset_options files = {
        .files = o->data, .n_files = o->n_data, .as_text = o->as_text};
    SW_TRY(sw_job_task_choose(&o->task, o->model, &files, &job->task));
    if (!is_text(job) && !is_answered(job) && o->sample_every > 0) {
        return SW_FAIL(SW_E_ARG, "--sample-every: a model for the task \"%s\" continues no text",
                       job->task.task->name);
    }
    if (is_answered(job) && o->sample_every > 0 && !(o->sample_prompt && *o->sample_prompt)) {
        return SW_FAIL(SW_E_ARG,
                       "--sample-every: an encoder-decoder writes a text for one that it reads; "
                       "wanted --sample-prompt");
    }
    return SW_OK;
}

static sw_status open_tokenizer(struct job *job)
{
    const struct sw_train_options *o = job->options;
    const char *folder = tokenizer_path(o);
    SW_TRY(choose_task(job));
    if (!is_text(job)) {
        return folder ? sw_tokenizer_open(folder, NULL, &job->tokenizer) : SW_OK;
    }
    SW_TRY(sw_job_chat_choose(o, job->comm, &job->chat));
    if (folder) {
        SW_TRY(sw_tokenizer_open(folder, NULL, &job->tokenizer));
    }
    SW_TRY(sw_job_chat_open(o, folder, job->tokenizer, &job->chat));
    if (folder) {
        return SW_OK;
    }
    if (o->n_data < 1 || (!o->as_text && is_shard(o->data[0]))) {
        return SW_OK; /* tokens already */
    }
    return sw_tokenizer_open_chars_of(o->data, o->n_data, o->as_text, &job->tokenizer);
}

/* Validation counts more than losses. */
static bool counts_metrics(const struct job *job)
{
    return job->options->eval_every > 0 && job->task.metric != SW_METRIC_PERPLEXITY;
}

/* What a job's engine is opened with; text: of the default configuration. */
static struct sw_engine_options engine_options(const struct job *job, char *text, size_t cap)
{
    const struct sw_train_options *o = job->options;
    snprintf(text, cap, default_config, sw_model_is_preset(o->model) ? "0.001" : "5e-05");
    return (struct sw_engine_options){
        .config_path = o->config_path,
        .config_text = o->config_path ? NULL : text,
        .sets = job->chat.chat ? job->chat.sets : o->sets,
        .n_sets = job->chat.chat ? job->chat.n_sets : o->n_sets,
        .model = o->model,
        .adapter = o->adapter,
        .vocab_size = job->tokenizer ? sw_tokenizer_vocab_size(job->tokenizer) : 0,
        .task = o->task.name,
        .labels = job->task.data.n_labels,
        .label_names = job->task.data.label_names,
        .target_len = o->task.target_len,
        .seq_len = o->seq_len,
        .seed = o->has_seed ? o->seed : 42,
        .want_eval = o->eval_every > 0,
        .want_logits = counts_metrics(job),
        .generate_tokens = o->sample_every > 0 && job->tokenizer ? -1 : 0,
        .profile = o->profile,
        .comm = job->comm,
        .batch_ranks = batch_ranks(),
        .resume_from = o->resume ? o->output : NULL,
        .rates = o->rates,
        .n_rates = o->n_rates,
        .load_unverified = o->no_verify,
    };
}

/* What an open engine says of the sizes of batches. */
static sw_status join_engine(struct job *job)
{
    job->facts = sw_engine_facts(job->engine);
    SW_TRY(sw_job_task_fit(&job->task, job->options->model, &job->facts.sizes));
    job->batch = sw_engine_micro_batch_size(job->engine);
    job->tokens = sw_engine_seq_len(job->engine);
    job->micro_batches = sw_engine_micro_batches(job->engine);
    job->local = sw_engine_local_micro_batches(job->engine);
    return SW_OK;
}

static sw_status open_engine(struct job *job)
{
    char text[DEFAULT_CONFIG_CAP];
    const struct sw_engine_options options = engine_options(job, text, sizeof text);
    SW_TRY(sw_initialize(&options, &job->engine));
    SW_TRY(join_engine(job));
    return job->facts.trains
               ? SW_OK
               : SW_FAIL(SW_E_CONFIG, "optimizer: the configuration has no such block");
}

static sw_status make_batches(struct job *job)
{
    const int64_t n = sw_max_i64(job->local, 1); /* validation takes one at least */
    SW_TRY(sw_job_shared_open(job->facts.ranks, &job->shared));
    if (counts_metrics(job)) {
        SW_TRY(sw_job_measure_open(job->engine, job->task.task, &job->measure));
    }
    return sw_job_rows_open(job->task.task, &job->facts.sizes, job->packed, n, &job->rows);
}

static sw_status open_dataset(struct job *job)
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
        .seed = job->facts.seed,
        .as_text = o->as_text,
        .chat = job->chat.chat,
        .packing = job->facts.config->spillway.packing,
        .task = is_text(job) ? NULL : &job->task.data,
    };
    job->packed = options.packing;
    return sw_dataset_open(&options, &job->dataset);
}

/* The rows of samples from `first` on into micro-batch i of this rank. */
static sw_status fetch(const struct job *job, enum sw_split split, int64_t first, int64_t i)
{
    return sw_job_rows_fetch(&job->rows, job->dataset, split, first, job->batch, i);
}

/* Lines of steps after the one resumed from would stand twice. */
static sw_status open_metrics(struct job *job)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/metrics.jsonl", job->options->output);
    SW_TRY(sw_job_keep_lines(job->options->output, "metrics.jsonl", job->first_step));
    job->told.metrics = fopen(path, "a");
    if (!job->told.metrics) {
        return SW_FAIL(SW_E_IO, "%s: %s", path, strerror(errno));
    }
    const struct sw_job_monitor_options options = {.config = job->facts.config,
                                                   .metrics_file = job->options->metrics_file,
                                                   .model = job->options->model,
                                                   .goes_on = job->options->resume,
                                                   .samples = sw_engine_samples(job->engine),
                                                   .images = is_images(job),
                                                   .tokens = units_of_step(job)};
    return sw_job_monitors_open(&options, &job->told.monitors);
}

/* What a report shows besides the metrics, from before the first step on. */
static sw_status record_run(struct job *job)
{
    if (!job->leads) {
        return SW_OK;
    }
    const struct sw_run_record record = {
        .options = job->options,
        .engine = job->engine,
        .facts = &job->facts,
        .data = sw_json_root(job->data),
        .tokenizer = job->tokenizer,
        .first_step = job->first_step,
        .samples = sw_dataset_n_samples(job->dataset, SW_SPLIT_TRAIN),
    };
    SW_TRY(sw_run_record_write(&record));
    return sw_job_keep_lines(job->options->output, "samples.jsonl", job->first_step);
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
    if (o->export_best && (o->eval_every < 1 || o->no_export)) {
        return SW_FAIL(SW_E_ARG, "--export best %s",
                       o->no_export ? "and --no-export exclude each other"
                                    : "wants --eval-every: without validations there is no best");
    }
    if (o->task.metric && o->eval_every < 1) {
        return SW_FAIL(SW_E_ARG, "--metric wants --eval-every: it is counted by validations");
    }
    SW_TRY(sw_job_chat_check(o));
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
    return SW_OK;
}

/* ---- what happens between steps ---- */

/* Sums and counts of each term of the loss, and metrics, over the first batches of validation. */
static sw_status look_at_batches(struct job *job, int64_t n_batches, double *terms,
                                 struct sw_score *score)
{
    const int n_terms = sw_engine_terms(job->engine);
    double of_batch[2 * SW_TASK_MAX_LOSSES];
    for (int64_t i = 0; i < n_batches; i++) {
        SW_TRY(fetch(job, SW_SPLIT_VAL, i * job->batch, 0));
        SW_TRY(sw_engine_evaluate(job->engine, &job->rows.batches[0], of_batch));
        for (int k = 0; k < 2 * n_terms; k++) {
            terms[k] += of_batch[k];
        }
        if (score) {
            SW_TRY(sw_job_measure_add(&job->measure, score, &job->rows, i * job->batch));
        }
    }
    return SW_OK;
}

static sw_status validate(struct job *job)
{
    const int64_t n_samples = sw_dataset_n_samples(job->dataset, SW_SPLIT_VAL);
    const int64_t most = job->options->eval_batches > 0 ? job->options->eval_batches : 16;
    double terms[2 * SW_TASK_MAX_LOSSES] = {0};
    struct sw_score *score = NULL;
    if (counts_metrics(job)) {
        SW_TRY(sw_score_open(job->dataset, SW_SPLIT_VAL, NULL, &score));
    }
    const int64_t n_batches = sw_min_i64(sw_ceil_div(n_samples, job->batch), most);
    const sw_status st = look_at_batches(job, n_batches, terms, score);
    if (st >= 0) {
        job->val_loss = terms[1] > 0 ? sw_engine_mean_loss(job->engine, terms) : NAN;
        job->val_step = sw_engine_step(job->engine);
        job->measure.of[SW_METRIC_PERPLEXITY] = exp(job->val_loss);
    }
    for (int i = 0; i < job->task.task->n_metrics && st >= 0 && score; i++) {
        const enum sw_metric metric = job->task.task->metrics[i];
        if (metric != SW_METRIC_PERPLEXITY) {
            job->measure.of[metric] = sw_score_of(score, metric);
        }
    }
    sw_score_close(score);
    return st;
}

/* What a sample begins with. */
static sw_status sample_prompt(const struct job *job, struct sw_ids *prompt)
{
    const char *text = job->options->sample_prompt, *prefix = job->options->task.source_prefix;
    if (is_answered(job)) {
        struct sw_str whole = {0};
        sw_str_printf(&whole, "%s%s", prefix ? prefix : "", text);
        const sw_status st =
            whole.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a sample")
                         : sw_tokenizer_encode(job->tokenizer, whole.ptr, whole.len, true, prompt);
        sw_str_fini(&whole);
        return st;
    }
    const int32_t eos = sw_tokenizer_eos(job->tokenizer);
    if (text && *text && job->chat.chat) { /* a question, and then the answer */
        SW_TRY(sw_chat_ask(job->chat.chat, text, prompt));
        return SW_OK;
    }
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

/* How an encoder-decoder writes its samples. A prompt that cannot be continued is refused before
 * the first step, not at the first sample. */
static sw_status prepare_sample(struct job *job)
{
    struct sw_ids prompt = {0};
    if (job->options->sample_every < 1 || !job->tokenizer) {
        return SW_OK;
    }
    int64_t most = job->facts.generate_tokens;
    if (is_answered(job)) {
        most = job->tokens + 1;
        SW_TRY(sw_job_settings_read(job->options->model, true, false, &job->told.writing));
        SW_TRY(sw_job_settings_stop(&job->told.writing, job->tokenizer));
    }
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
    const bool chat = job->chat.chat && o->sample_prompt && *o->sample_prompt;
    const bool answered = is_answered(job);
    const char *between = chat || answered ? "\n" : "";
    const int64_t most = job->facts.generate_tokens;
    struct sw_ids prompt = {0};
    int32_t *out = NULL;
    char *text = NULL;
    int64_t n = 0;
    sw_status st = SW_OK;
    SW_TRY_OR(done, sample_prompt(job, &prompt));
    const int64_t wanted = o->sample_tokens > 0 ? o->sample_tokens : 200;
    const int64_t n_new = sw_min_i64(wanted, answered ? most : most - prompt.len);
    out = sw_alloc("train", (size_t)(n_new > 0 ? n_new : 1) * sizeof *out);
    if (!out) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a sample");
        goto done;
    }
    struct sw_sampling sampling = {.temperature = answered ? 0 : 0.8,
                                   .top_k = 40,
                                   .seed = job->facts.seed + (uint64_t)sw_engine_step(job->engine),
                                   .stop_id = chat ? sw_tokenizer_eos(job->tokenizer) : -1};
    if (answered) { /* the likeliest text, as `spillway generate` writes it */
        sw_job_settings_apply(&job->told.writing, prompt.len, true, &sampling);
    }
    SW_TRY_OR(done,
              sw_generate(job->engine, prompt.ptr, prompt.len, n_new, &sampling, out, &n, NULL));
    SW_TRY_OR(done, sw_tokenizer_decode(job->tokenizer, out, n, true, &text, NULL));
    sw_progress_end(&job->progress);
    fprintf(job->out, "--- sample at step %lld ---\n%s%s%s\n---\n",
            (long long)sw_engine_step(job->engine), o->sample_prompt ? o->sample_prompt : "",
            between, text);
    if (job->leads) {
        st = sw_sample_record(o->output, sw_engine_step(job->engine),
                              o->sample_prompt ? o->sample_prompt : "", between, text);
    }
done:
    sw_ids_fini(&prompt);
    sw_free(out);
    sw_text_free(text);
    return st;
}

/* The loss that a checkpoint is compared by is that of its own weights; a run that is told to stop
 * has no time for it. */
static sw_status save(struct job *job, bool in_haste)
{
    const int64_t step = sw_engine_step(job->engine);
    if (job->saved_step == step) {
        return SW_OK;
    }
    if (job->options->eval_every > 0 && job->val_step != step && !in_haste) {
        SW_TRY(validate(job));
    }
    const enum sw_metric metric = job->task.metric;
    const struct sw_save_options options = {
        .keep_last = (int)sw_min_i64(job->options->keep_last, INT_MAX),
        .val_loss = job->val_step == step ? job->val_loss : NAN,
        .metric = job->options->task.metric ? sw_metric_name(metric) : NULL,
        .metric_value = job->val_step == step ? job->measure.of[metric] : NAN,
        .metric_falls = metric == SW_METRIC_PERPLEXITY};
    SW_TRY(sw_save(job->engine, job->options->output, &options));
    job->saved_step = step;
    return SW_OK;
}

/* ---- the line a step ---- */

static bool has_disk(const struct job *job)
{
    return sw_engine_tier_bytes(job->engine, SW_TIER_DISK) > 0;
}

static const char *format_tier(const struct job *job, enum sw_tier tier, char buf[32])
{
    return sw_format_bytes(buf, 32, (double)sw_engine_tier_bytes(job->engine, tier));
}

/* "\tval 2.3237 f1 0.8" of a step with a validation. */
static void format_validation(const struct job *job, char *buf, size_t cap)
{
    const enum sw_metric metric = job->task.metric;
    const int n = snprintf(buf, cap, "\tval %.4f", job->val_loss);
    if (counts_metrics(job)) {
        snprintf(buf + n, cap - (size_t)n, " %s %.4f", sw_metric_name(metric),
                 job->measure.of[metric]);
    }
}

/* Every so many steps, where lines are no live line. */
static int64_t log_every(const struct job *job)
{
    return sw_max_i64(job->facts.config->misc.steps_per_print, 1);
}

/* As DeepSpeed's wall_clock_breakdown has it. */
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

static void print_step(struct job *job, const struct sw_job_step *step)
{
    const struct sw_train_options *o = job->options;
    const struct sw_step_report *r = &step->report;
    char eta[32], device[32], host[32], val[80] = "", queues[128] = "", text[512];
    const double seconds = sw_job_seconds(step, SW_JOB_STEP_NS), now = sw_now_s();
    sw_pace_mark(&job->told.pace, now, r->step);
    sw_format_eta(sw_pace_left(&job->told.pace, now, r->step, o->steps - r->step), eta, sizeof eta);
    sw_format_bytes(device, sizeof device, (double)step->most[SW_JOB_DEVICE]);
    sw_format_bytes(host, sizeof host, (double)step->most[SW_JOB_HOST]);
    if (step->validated) {
        format_validation(job, val, sizeof val);
    }
    if (has_disk(job)) {
        sw_queue_use_line(&step->use, queues, sizeof queues);
    }
    snprintf(text, sizeof text,
             "step %lld/%lld\teta %s\tloss %.4f%s%s\tnorm %.3f\tlr %.3e\t%.0f ms\t%.0f %s\tdevice "
             "%s\thost %s%s",
             (long long)r->step, (long long)o->steps, eta, r->loss,
             r->skipped ? " (skipped: overflow)" : "", val, r->grad_norm, r->lr, seconds * 1e3,
             (double)units_of_step(job) / seconds, unit_of(job), device, host, queues);
    const bool lasting = step->validated || r->step == o->steps || r->skipped ||
                         (!job->progress.live && r->step % log_every(job) == 0);
    sw_progress_step(&job->progress, text, (double)r->step / (double)o->steps,
                     lasting ? LINE_STAYS : LINE_PASSES);
    if (lasting && job->facts.config->misc.wall_clock_breakdown) {
        print_times(job, step);
    }
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

static void add_metrics(const struct job *job, struct sw_str *line)
{
    for (int i = 0; i < job->task.task->n_metrics && !is_text(job); i++) {
        char key[40];
        const enum sw_metric metric = job->task.task->metrics[i];
        snprintf(key, sizeof key, "val_%s", sw_metric_name(metric));
        if (metric == SW_METRIC_PERPLEXITY || counts_metrics(job)) {
            json_number(line, key, job->measure.of[metric]);
        }
    }
}

static void add_speed(const struct job *job, const struct sw_job_step *step, struct sw_str *line)
{
    const double seconds = sw_job_seconds(step, SW_JOB_STEP_NS);
    json_number(line, "step_ms", seconds * 1e3);
    json_number(line, is_images(job) ? "images_per_s" : "tokens_per_s",
                (double)units_of_step(job) / seconds);
    if (job->facts.config->misc.wall_clock_breakdown) {
        json_number(line, "forward_ms", 1e3 * sw_job_seconds(step, SW_JOB_FORWARD_NS));
        json_number(line, "backward_ms", 1e3 * sw_job_seconds(step, SW_JOB_BACKWARD_NS));
        json_number(line, "allreduce_ms", 1e3 * sw_job_seconds(step, SW_JOB_REDUCE_NS));
        json_number(line, "update_ms", 1e3 * sw_job_seconds(step, SW_JOB_UPDATE_NS));
    }
}

static sw_status write_metrics(struct job *job, const struct sw_job_step *step)
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
    add_speed(job, step, &line);
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        sw_str_printf(&line, ",\"%s_bytes\":%lld", sw_tier_name((enum sw_tier)t),
                      (long long)step->most[SW_JOB_DEVICE + t]);
    }
    sw_str_printf(&line, ",\"besides_bytes\":%lld,\"resident_bytes\":%lld",
                  (long long)step->most[SW_JOB_BESIDES], (long long)step->most[SW_JOB_RESIDENT]);
    if (has_disk(job)) {
        json_number(&line, "disk_read_gb_s", step->use.read_gb_s);
        json_number(&line, "disk_write_gb_s", step->use.write_gb_s);
    }
    json_number(&line, "hidden", step->use.hidden);
    sw_str_printf(&line, ",\"bound\":\"%s\"", sw_queue_name(step->use.bound));
    if (step->validated) {
        json_number(&line, "val_loss", job->val_loss);
        add_metrics(job, &line);
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

/* ---- the loop ---- */

static bool asked_to_stop(const struct job *job)
{
    return job->options->stop && *job->options->stop;
}

/* The micro-batches of this rank, through the engine; numbers: of this rank. */
static sw_status train_rows(struct job *job, struct sw_job_step *step)
{
    struct sw_queue_times after[SW_QUEUE_COUNT];
    struct sw_phase_times began, ended;
    int64_t *numbers = step->mine.numbers;
    struct sw_alloc_stats besides; /* no part of the plan, and of all ranks of this process */
    sw_executor_queue_times(job->facts.executor, step->mine.queues.of);
    sw_executor_phase_times(job->facts.executor, &began);
    const int64_t begin = sw_now_ns();
    for (int64_t j = 0; j < job->local; j++) { /* micro-batch k = j R + rank of the global batch */
        const int64_t k = j * job->facts.ranks + job->facts.rank;
        SW_TRY(fetch(job, SW_SPLIT_TRAIN, sw_engine_samples(job->engine) + k * job->batch, j));
    }
    SW_TRY(sw_train_batch(job->engine, job->rows.batches, job->local, &step->report));
    numbers[SW_JOB_STEP_NS] = sw_now_ns() - begin;
    sw_executor_queue_times(job->facts.executor, after);
    sw_executor_phase_times(job->facts.executor, &ended);
    sw_queue_record_end(&step->mine.queues, after);
    sw_job_count_phases(&began, &ended, numbers);
    sw_alloc_get_stats(&besides);
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        numbers[SW_JOB_DEVICE + t] = sw_engine_tier_bytes(job->engine, t);
    }
    numbers[SW_JOB_BESIDES] = besides.live_bytes;
    numbers[SW_JOB_RESIDENT] = sw_job_resident_bytes();
    return SW_OK;
}

/* All ranks stop after the same step, whoever got the signal; one that comes while it is saved ends
 * the next one. */
static sw_status one_step(struct job *job, bool *stopped)
{
    const struct sw_train_options *o = job->options;
    struct sw_job_step step = {0};
    const struct sw_step_report *report = &step.report;
    sw_job_profile_begin(&job->told.profile, sw_engine_step(job->engine) + 1);
    SW_TRY(train_rows(job, &step));
    if (!report->skipped && !isfinite(report->loss)) {
        return SW_FAIL(SW_E_ARG, "step %lld: the loss is %g; the checkpoint before it is intact",
                       (long long)report->step, report->loss);
    }
    job->loss = report->loss;
    step.validated = o->eval_every > 0 && report->step % o->eval_every == 0;
    SW_TRY(step.validated ? validate(job) : SW_OK);
    step.mine.numbers[SW_JOB_STOP] = asked_to_stop(job);
    SW_TRY(sw_job_share(job->comm, &job->shared, &step));
    *stopped = step.most[SW_JOB_STOP] != 0;
    step.val_loss = job->val_loss;
    step.metrics = counts_metrics(job) ? job->measure.of : NULL;
    SW_TRY(job->leads ? write_metrics(job, &step) : SW_OK);
    SW_TRY(job->leads ? sw_job_monitors_add(&job->told.monitors, &step) : SW_OK);
    if (!o->quiet && job->leads) {
        print_step(job, &step);
    }
    sw_job_profile_end(&job->told.profile, &step, job->leads, job->out);
    if (o->sample_every > 0 && report->step % o->sample_every == 0 && job->tokenizer) {
        SW_TRY(print_sample(job));
    }
    return o->save_every > 0 && report->step % o->save_every == 0 ? save(job, false) : SW_OK;
}

/* OUTPUT/tokenizer: what goes beside the weights of this run, wherever they are exported to and
 * whatever has become of the model's folder and the text by then. */
static sw_status beside_path(const struct job *job, char *path, size_t cap)
{
    const int n = snprintf(path, cap, "%s/tokenizer", job->options->output);
    return n > 0 && (size_t)n < cap ? SW_OK : SW_FAIL(SW_E_ARG, "--output: the path is too long");
}

static sw_status save_beside(const struct job *job)
{
    char path[4096];
    const char *model = job->facts.model_folder;
    if (!job->leads || (!job->tokenizer && !model)) {
        return SW_OK;
    }
    SW_TRY(beside_path(job, path, sizeof path));
    SW_TRY(sw_mkdirs(path));
    if (model) {
        SW_TRY(sw_hf_copy_sidecars(model, path));
    }
    if (!job->tokenizer) {
        return SW_OK;
    }
    const char *from = tokenizer_path(job->options);
    if (model && from && !sw_hf_is_same_folder(model, from)) {
        sw_tokenizer_remove(path); /* the model's: two would be there */
    }
    SW_TRY(sw_tokenizer_save(job->tokenizer, path));
    return sw_job_chat_save(&job->chat, path); /* goes before that of the tokenizer */
}

/* OUTPUT/model, or OUTPUT/adapter where adapters are trained. */
static const char *export_path(const struct job *job, char *path, size_t cap)
{
    snprintf(path, cap, "%s/%s", job->options->output, job->facts.lora ? "adapter" : "model");
    return path;
}

/* OUTPUT/model is this run's from the first step on, whenever it ends. */
static sw_status claim_model(const struct job *job)
{
    char path[4096];
    export_path(job, path, sizeof path);
    return job->options->no_export || !job->leads
               ? SW_OK
               : sw_engine_claim_folder(path, job->first_step > 0);
}

/* With slices on many ranks, the last checkpoint has what no rank holds alone; the best one is a
 * checkpoint, too. */
static sw_status export_model(struct job *job)
{
    const struct sw_train_options *o = job->options;
    char path[4096], from[4096], beside[4096], note[256] = "";
    export_path(job, path, sizeof path);
    const enum sw_dtype dtype =
        o->export_dtype < 0 ? job->facts.export_dtype : (enum sw_dtype)o->export_dtype;
    if (job->facts.ranks == 1 && !o->export_best) {
        SW_TRY(sw_engine_export_weights(job->engine, path, dtype));
    } else {
        snprintf(from, sizeof from, "%s%s", o->output, o->export_best ? "/best" : "");
        SW_TRY(sw_job_export_saved(from, path, dtype, note, sizeof note));
    }
    const char *what = job->facts.lora ? "adapter" : "model";
    SW_TRY(beside_path(job, beside, sizeof beside));
    if (access(beside, R_OK) == 0) {
        sw_tokenizer_remove(path); /* of an export before */
        SW_TRY(sw_hf_copy_sidecars(beside, path));
    }
    if (o->export_best) {
        fprintf(job->out, "%s: %s, of the best checkpoint: %s\n", what, path, note);
    } else {
        fprintf(job->out, "%s: %s\n", what, path);
    }
    return SW_OK;
}

/* What its checkpoints say of the data, and what those that it goes on from are compared with. */
static sw_status tell_engine(struct job *job)
{
    const struct sw_train_options *o = job->options;
    if (!job->leads) {
        return SW_OK;
    }
    struct sw_str task = {0};
    if (!is_text(job)) {
        sw_job_task_text(&job->task, &task);
    }
    const struct sw_data_record_options options = {
        .task = task.ptr,
        .files = o->data,
        .n_files = o->n_data,
        .val_files = o->val_data,
        .n_val_files = o->n_val_data,
        .tokenizer = job->tokenizer,
        .chat = job->chat.chat,
        .n_samples = sw_dataset_n_samples(job->dataset, SW_SPLIT_TRAIN),
    };
    const sw_status st = task.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for the task")
                                     : sw_data_record(&options, &job->data);
    sw_str_fini(&task);
    SW_TRY(st);
    const struct sw_engine_training training = {.lock = job->lock,
                                                .data = sw_json_root(job->data),
                                                .allow_other_data = o->allow_other_data};
    sw_engine_join_training(job->engine, &training);
    return SW_OK;
}

/* What decides which collectives a rank takes part in, and when. */
static sw_status agree(const struct job *job)
{
    const struct sw_train_options *o = job->options;
    char flags[256];
    if (job->facts.ranks == 1) {
        return SW_OK;
    }
    snprintf(flags, sizeof flags, "%lld %lld %lld %lld %lld %lld %d", (long long)o->steps,
             (long long)o->eval_every, (long long)o->eval_batches, (long long)o->sample_every,
             (long long)o->sample_tokens, (long long)o->save_every, o->resume);
    return sw_job_agree(job->comm, job->dataset, &job->rows, flags);
}

/* Before there is a step to finish and to save. */
static sw_status go_on(const struct job *job)
{
    return asked_to_stop(job) ? SW_FAIL(SW_E_STOP, "stopped before the first step") : SW_OK;
}

static sw_status set_up(struct job *job)
{
    SW_TRY(go_on(job));
    SW_TRY(sw_model_check_path(job->options->model));
    SW_TRY(open_tokenizer(job));
    SW_TRY(go_on(job));
    SW_TRY(open_engine(job));
    SW_TRY(go_on(job));
    SW_TRY(open_dataset(job));
    SW_TRY(make_batches(job));
    SW_TRY(agree(job));
    SW_TRY(prepare_sample(job));
    SW_TRY(go_on(job));
    SW_TRY(tell_engine(job));
    if (job->options->resume) {
        const sw_status st = sw_load(job->engine, job->options->output);
        SW_TRY(st);
        if (st == SW_OK) {
            job->first_step = job->saved_step = sw_engine_step(job->engine);
        }
    }
    if (!job->options->no_export && job->leads) {
        char path[4096];
        SW_TRY(sw_engine_check_folder(export_path(job, path, sizeof path), job->first_step > 0));
    }
    SW_TRY(sw_engine_limit_trace(job->engine, job->options->steps));
    SW_TRY(
        sw_job_profile_open(&job->facts, job->first_step, job->options->steps, &job->told.profile));
    job->told.profile.model = job->options->model;
    job->told.profile.batch = job->batch;
    job->told.profile.local = sw_max_i64(job->local, 1);
    SW_TRY(go_on(job));
    return job->leads ? open_metrics(job) : SW_OK;
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
    fprintf(job->out, "data: %lld records, %lld cut\n",
            (long long)sw_dataset_n_documents(job->dataset, SW_SPLIT_TRAIN), (long long)n_cut);
}

/* What a user may not expect: a model from nothing, letters as tokens, a setting that nobody
 * made. */
static void print_origins(const struct job *job)
{
    const struct sw_train_options *o = job->options;
    const struct sw_engine_facts *e = &job->facts;
    const struct sw_config *c = e->config;
    char source[256];
    if (!e->model_folder && job->first_step == 0) {
        const bool preset = sw_model_is_preset(o->model) && access(o->model, F_OK) != 0;
        fprintf(job->out, "%s%s: weights drawn with seed %llu, %s%s\n", preset ? "preset " : "",
                o->model, (unsigned long long)e->seed,
                preset ? "there is no folder ./" : "it is a configuration alone",
                preset ? o->model : "");
    }
    if (!is_text(job)) {
        print_task(job);
    } else if (!job->tokenizer) {
        fputs("tokens: those of the shards (no tokenizer)\n", job->out);
    } else if (!tokenizer_path(o)) {
        fputs("tokens: characters of the text (no tokenizer)\n", job->out);
    } else {
        fprintf(job->out, "tokens: %s of %s\n", sw_tokenizer_kind(job->tokenizer),
                tokenizer_path(o));
    }
    const char *from = sw_config_source(c, "gradient_clipping", source, sizeof source);
    const bool asked = strcmp(from, "default") != 0 && strncmp(from, "configuration:", 14) != 0;
    fprintf(job->out, "update: %s, lr ", c->optimizer.name);
    if (c->scheduler.type == SW_SCHEDULER_NONE) {
        fprintf(job->out, "%g, ", c->optimizer.lr);
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

/* Rows that are documents, not parts of a stream. */
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

static void print_head(const struct job *job)
{
    char bytes[SW_TIER_COUNT][32];
    struct sw_str chosen = {0};
    fprintf(job->out, "model %s, %lld parameters, %s\n", job->options->model,
            (long long)sw_engine_parameters(job->engine), sw_dtype_name(job->facts.dtype));
    print_origins(job);
    if (job->facts.lora) {
        fprintf(job->out, "lora: %lld parameters are trained, the others frozen%s%s\n",
                (long long)sw_engine_trained_parameters(job->engine),
                job->options->adapter ? "; goes on with " : "",
                job->options->adapter ? job->options->adapter : "");
    }
    fprintf(job->out, "batch %lld x %lld ", (long long)job->micro_batches, (long long)job->batch);
    if (is_images(job)) {
        fputs("images", job->out);
    } else {
        fprintf(job->out, "of %lld tokens", (long long)job->tokens);
    }
    fprintf(job->out, "; %lld training samples\n",
            (long long)sw_dataset_n_samples(job->dataset, SW_SPLIT_TRAIN));
    print_rows(job);
    sw_config_print_chosen(job->facts.config, false, &chosen);
    if (chosen.len > 0) {
        fprintf(job->out, "chosen: %s\n", sw_str_text(&chosen));
    }
    sw_str_fini(&chosen);
    if (strcmp(job->facts.device_name, "cpu") != 0) {
        fprintf(job->out, "device: %s\n", job->facts.device_name);
    }
    fprintf(job->out, "plan%s: device %s, host %s, disk %s\nkernels: %s\n",
            job->facts.ranks > 1 ? " of a rank" : "",
            format_tier(job, SW_TIER_DEVICE, bytes[SW_TIER_DEVICE]),
            format_tier(job, SW_TIER_HOST, bytes[SW_TIER_HOST]),
            format_tier(job, SW_TIER_DISK, bytes[SW_TIER_DISK]), job->facts.kernel_set);
    if (has_disk(job)) {
        fprintf(job->out, "disk: updates %s\n",
                sw_engine_writes_in_place(job->engine)
                    ? "written in place: after a step that fails a checkpoint is needed"
                    : "go beside what they replace: a step that fails changes nothing");
    }
    if (job->first_step > 0) {
        fprintf(job->out, "resumed at step %lld\n", (long long)job->first_step);
    }
    fflush(job->out);
}

/* What its checkpoints will take beside what is free: nobody wants to hear of it at the first
 * save. */
static void print_room(const struct job *job)
{
    const struct sw_train_options *o = job->options;
    const int64_t bytes = sw_engine_checkpoint_bytes(job->engine);
    const int64_t left = sw_max_i64(o->steps - job->first_step, 0);
    int64_t n = o->save_every > 0 ? sw_ceil_div(left, o->save_every) : left > 0;
    if (o->keep_last > 0) { /* those, the best, and the one that is being written */
        n = sw_min_i64(n, o->keep_last + 1 + (o->eval_every > 0));
    }
    double needed = (double)bytes * (double)n;
    struct sw_ckpt_list list;
    if (o->keep_last > 0 && job->first_step > 0 && sw_ckpt_list(o->output, &list) == SW_OK) {
        for (int64_t i = 0; i < list.n_items; i++) { /* they make room one by one */
            needed -= (double)list.items[i].bytes;
        }
        needed = fmax(needed, (double)bytes);
        sw_ckpt_list_fini(&list);
    }
    struct statvfs disk;
    if (n == 0 || statvfs(o->output, &disk) != 0) {
        return; /* nothing is saved, or nobody knows */
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
               "--save-every set how many there are",
               sw_format_bytes(missing, sizeof missing, needed - free_bytes), o->output,
               (long long)n, one);
    }
}

static sw_status finish(struct job *job, bool stopped)
{
    SW_TRY(sw_engine_finish_trace(job->engine));
    SW_TRY(save(job, stopped));
    int64_t first, last;
    if (sw_engine_trace_written(job->engine, &first, &last)) {
        fprintf(job->out, "trace: %s, steps %lld to %lld\n", job->facts.config->spillway.trace,
                (long long)first, (long long)last);
    }
    if (stopped) {
        fprintf(job->out, "stopped at step %lld with a checkpoint; --resume goes on from it\n",
                (long long)sw_engine_step(job->engine));
        return SW_OK;
    }
    if (!job->options->no_export && job->leads) {
        SW_TRY(export_model(job));
    }
    if (job->options->profile) {
        char *text = NULL;
        SW_TRY(sw_profile_text(job->engine, &text));
        fputs(text, job->out);
        sw_text_free(text);
    }
    return SW_OK;
}

/* Of all ranks, and all steps. */
static void print_queues(struct job *job)
{
    struct queue_use use;
    struct sw_str text = {0};
    sw_queue_use(job->shared.ran, job->shared.n, &use);
    sw_queue_use_report(&use, &text);
    fputs(sw_str_text(&text), job->out);
    sw_str_fini(&text);
}

static void tear_down(struct job *job)
{
    if (job->told.metrics) {
        fclose(job->told.metrics);
    }
    sw_job_monitors_close(&job->told.monitors);
    sw_job_profile_close(&job->told.profile);
    sw_close(job->engine);
    sw_dataset_close(job->dataset);
    sw_job_chat_close(&job->chat);
    sw_tokenizer_close(job->tokenizer);
    sw_job_rows_close(&job->rows);
    sw_job_settings_fini(&job->told.writing);
    sw_job_measure_close(&job->measure);
    sw_job_task_close(&job->task);
    sw_job_shared_close(&job->shared);
    sw_json_close(job->data);
    sw_ckpt_release(job->lock);
}

static double deadline_of(const struct sw_train_options *options)
{
    return options->deadline_s > 0 ? options->deadline_s : 300;
}

/* A restart may come while its predecessor is still ending: with --resume, or by a launcher. */
static double wait_for_folder(const struct job *job)
{
    const bool restart = job->options->resume || getenv("SPILLWAY_LAUNCH");
    const double most = job->comm ? deadline_of(job->options) / 2 : SW_CKPT_WAIT_S;
    return restart ? fmin(most, SW_CKPT_WAIT_S) : 0;
}

static sw_status check_new(const struct sw_train_options *o)
{
    struct sw_ckpt_list list;
    SW_TRY(sw_ckpt_list(o->output, &list));
    const sw_status st =
        list.n_items == 0
            ? SW_OK
            : SW_FAIL(SW_E_ARG,
                      "--output %s has checkpoints of a run (%s): --resume goes on with it; for a "
                      "new run name another folder",
                      o->output, list.items[0].name);
    sw_ckpt_list_fini(&list);
    return st;
}

/* Rank 0 holds the folder for all, from before anything in it is read to the end of the run. */
static sw_status hold_folder(struct job *job)
{
    const struct sw_train_options *o = job->options;
    sw_status st = SW_OK;
    if (job->leads) {
        st = sw_ckpt_acquire(o->output, wait_for_folder(job), &job->lock);
        st = st < 0 ? sw_fail_prefix(st, "--output") : o->resume ? SW_OK : check_new(o);
    }
    return job->comm ? sw_comm_agree(job->comm, st, "holding --output") : st;
}

/* All ranks of this process; or the one of many that this process is. */
struct team {
    const struct sw_train_options *options;
    FILE *out, *quiet;
    struct sw_work_listener listener; /* of the thread that called, for rank 0's */
    bool *started;                    /* of rank 0, as the result */
    struct sw_train_result *result;
    struct sw_launch_link *link; /* to the launcher that started this process; NULL = none */
};

/* It has started when all ranks have what they need. */
static sw_status start(struct job *job)
{
    SW_TRY(hold_folder(job));
    SW_TRY(set_up(job));
    return job->comm ? sw_comm_barrier(job->comm, "the first step") : SW_OK;
}

static sw_status run_steps(struct job *job, bool *stopped)
{
    job->began_s = sw_now_s();
    sw_pace_mark(&job->told.pace, job->began_s, job->first_step);
    SW_TRY(record_run(job));
    SW_TRY(claim_model(job));
    SW_TRY(save_beside(job));
    while (sw_engine_step(job->engine) < job->options->steps && !*stopped) {
        sw_launch_link_at(job->link, sw_engine_step(job->engine) + 1, "training");
        SW_TRY(one_step(job, stopped));
    }
    return SW_OK;
}

static sw_status end(struct job *job, bool stopped, struct sw_train_result *result)
{
    const double seconds = sw_now_s() - job->began_s;
    const int64_t step = sw_engine_step(job->engine);
    const double units = (double)units_of_step(job);
    *result = (struct sw_train_result){
        .step = step,
        .loss = job->loss,
        .val_loss = job->val_loss,
        .seconds = seconds,
        .tokens_per_s = seconds > 0 ? (double)(step - job->first_step) * units / seconds : 0,
        .stopped = stopped && step < job->options->steps,
    };
    const sw_status st = finish(job, result->stopped);
    result->val_loss = job->val_loss; /* the last checkpoint may have brought one along */
    return st;
}

static void print_end(struct job *job, const struct sw_train_result *result)
{
    if (result->step == job->first_step) {
        fprintf(job->out, "nothing to do: step %lld was the last\n", (long long)job->first_step);
        return;
    }
    fprintf(job->out, "%lld steps in %.1f s, %.0f %s, loss %.4f",
            (long long)(result->step - job->first_step), result->seconds, result->tokens_per_s,
            unit_of(job), result->loss);
    if (isfinite(result->val_loss)) {
        fprintf(job->out, ", validation loss %.4f", result->val_loss);
    }
    fputc('\n', job->out);
    if (has_disk(job)) {
        print_queues(job);
    }
}

static sw_status train_rank(const struct team *team, sw_comm *comm, FILE *out, bool *started,
                            struct sw_train_result *result)
{
    struct job job = {.options = team->options,
                      .link = team->link,
                      .comm = comm,
                      .leads = !comm || sw_comm_rank(comm) == 0,
                      .out = out,
                      .progress = sw_progress_start(out, team->options->bar),
                      .val_loss = NAN,
                      .saved_step = -1,
                      .val_step = -1};
    bool stopped = false;
    for (int i = 0; i < SW_METRIC_COUNT; i++) {
        job.measure.of[i] = NAN;
    }
    sw_status st = start(&job);
    *started = st >= 0;
    if (st >= 0) {
        print_head(&job);
        print_room(&job);
        st = run_steps(&job, &stopped);
    }
    sw_progress_end(&job.progress);
    st = st < 0 ? st : end(&job, stopped, result);
    if (st >= 0) {
        print_end(&job, result);
    }
    tear_down(&job);
    return st;
}

/* ---- what a job would open, for plans, and for those whose loop is their own ---- */

struct sw_train_setup {
    struct job job;
    char text[DEFAULT_CONFIG_CAP];
    struct sw_engine_options engine;
};

sw_status sw_train_setup_open(const struct sw_train_options *options, struct sw_train_setup **out)
{
    SW_TRY_OPTIONS(options);
    if (!options->model || !*options->model) {
        return SW_FAIL(SW_E_ARG, "plan wants --model");
    }
    SW_TRY(sw_model_check_path(options->model));
    struct sw_train_setup *setup = sw_alloc_zero("train", 1, sizeof *setup);
    SW_TRY_ALLOC(setup, "a plan");
    setup->job.options = options;
    sw_status st = sw_job_chat_check(options);
    st = st < 0 ? st : open_tokenizer(&setup->job);
    if (st < 0) {
        sw_train_setup_close(setup);
        return st;
    }
    setup->engine = engine_options(&setup->job, setup->text, sizeof setup->text);
    *out = setup;
    return SW_OK;
}

const struct sw_engine_options *sw_train_setup_engine(const struct sw_train_setup *setup)
{
    return &setup->engine;
}

struct sw_tokenizer *sw_train_setup_tokenizer(const struct sw_train_setup *setup)
{
    return setup->job.tokenizer;
}

/* The ranks have the same samples, or hear whose are others. */
static sw_status agree_on_data(struct job *job)
{
    SW_TRY(sw_job_rows_open(job->task.task, &job->facts.sizes, job->packed, 1, &job->rows));
    const sw_status st = sw_job_agree(job->comm, job->dataset, &job->rows, "");
    sw_job_rows_close(&job->rows);
    return st;
}

sw_status sw_train_setup_data(struct sw_train_setup *setup, sw_engine *engine, sw_comm *comm,
                              sw_dataset **out)
{
    struct job *job = &setup->job;
    if (job->options->n_data < 1) {
        return SW_FAIL(SW_E_ARG, "data: no files are given");
    }
    job->engine = engine;
    job->comm = comm;
    SW_TRY(join_engine(job));
    SW_TRY(open_dataset(job));
    const sw_status st = job->facts.ranks > 1 ? agree_on_data(job) : SW_OK;
    if (st < 0) {
        sw_dataset_close(job->dataset);
        return st;
    }
    *out = job->dataset;
    return SW_OK;
}

void sw_train_setup_close(struct sw_train_setup *setup)
{
    if (setup) {
        sw_job_chat_close(&setup->job.chat);
        sw_job_task_close(&setup->job.task);
        sw_tokenizer_close(setup->job.tokenizer);
        sw_free(setup);
    }
}

/* ---- many ranks ---- */

static sw_status rank_main(void *ctx, sw_comm *comm)
{
    const struct team *t = ctx;
    struct sw_train_result ignored;
    bool started;
    if (sw_comm_rank(comm) == 0) {
        sw_work_listen(t->listener);
    }
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
    t.listener = sw_work_listen((struct sw_work_listener){0});
    sw_work_listen(t.listener);
    const sw_status st = world ? train_in_world(&t, world) : train_threads(&t);
    fclose(t.quiet);
    return st;
}
