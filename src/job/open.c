// SPDX-License-Identifier: Apache-2.0
// Opens the inputs of a training job: the task, the tokenizer, the engine and the dataset. Plans,
// and callers with their own training loop, use it too.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hf/hf.h"
#include "job/training.h"
#include "model/model.h"
#include "spillway/comm.h"

enum { DEFAULT_CONFIG_CAP = 512 };
static const char default_config[] =
    "{\"train_micro_batch_size_per_gpu\": 8, \"gradient_accumulation_steps\": 1,"
    " \"gradient_clipping\": 1.0,"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": %s, \"betas\": [0.9, 0.99],"
    " \"weight_decay\": 0.1}}, \"spillway\": {\"decay_1d\": false}}";

/* The default for a file without an optimizer block: that of transformers' Trainer, with values
 * that flags replace. */
static const char default_optimizer[] =
    "optimizer:={\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", \"betas\": \"auto\", "
    "\"eps\": \"auto\", \"weight_decay\": \"auto\"}}";

static bool is_shard(const char *path)
{
    const size_t len = strlen(path);
    return len > 4 && strcmp(path + len - 4, ".bin") == 0;
}

const char *sw_job_tokenizer_path(const struct sw_train_options *o)
{
    const char *folder = sw_job_tokenizer_folder(o->tokenizer, o->adapter, o->model);
    return o->tokenizer || sw_tokenizer_is_there(folder) ? folder : NULL;
}

static sw_status choose_task(struct job *job)
{
    const struct sw_train_options *o = job->options;
    const struct sw_dataset_options files = {
        .files = o->data, .n_files = o->n_data, .as_text = o->as_text};
    SW_TRY(sw_job_task_choose(&o->task, o->model, &files, true, &job->task));
    if (!sw_job_is_text(job) && !sw_job_is_answered(job) && o->sample_every > 0) {
        return SW_FAIL(SW_E_ARG,
                       "--sample-every: a model for the task \"%s\" does not generate text",
                       job->task.task->name);
    }
    if (!sw_job_is_text(job) && o->no_bos) {
        return SW_FAIL(SW_E_ARG, "--no-bos: rows of the task \"%s\" keep the tokenizer's template",
                       job->task.task->name);
    }
    if (sw_job_is_answered(job) && o->sample_every > 0 &&
        !(o->sample_prompt && *o->sample_prompt)) {
        return SW_FAIL(
            SW_E_ARG,
            "--sample-every: an encoder-decoder needs a text to read; wanted --sample-prompt");
    }
    return SW_OK;
}

sw_status sw_job_open_tokenizer(struct job *job)
{
    const struct sw_train_options *o = job->options;
    const struct sw_tokenizer_options words = {.no_bos = o->no_bos};
    const char *folder = sw_job_tokenizer_path(o);
    SW_TRY(choose_task(job));
    if (!sw_job_is_text(job) && !sw_job_has_totals(job)) {
        return folder ? sw_tokenizer_open(folder, NULL, &job->tokenizer) : SW_OK;
    }
    SW_TRY(sw_job_chat_choose(o, sw_job_has_totals(job), job->start.path, job->comm, &job->chat));
    if (folder) {
        SW_TRY(sw_tokenizer_open(folder, &words, &job->tokenizer));
    }
    SW_TRY(sw_job_chat_open(o, folder, job->tokenizer, &job->chat));
    if (folder || sw_job_has_totals(job)) {
        return SW_OK;
    }
    if (o->n_data < 1 || (!o->as_text && is_shard(o->data[0]))) {
        return SW_OK; /* the data is already tokenized */
    }
    return sw_tokenizer_open_chars_of(o->data, o->n_data, o->as_text, &job->tokenizer);
}

/* A launcher that restarts a job on fewer ranks passes the number of ranks of its first start. */
static int batch_ranks(void)
{
    const char *text = getenv("SPILLWAY_BATCH_RANKS");
    const int n = text ? atoi(text) : 0;
    return n > 0 ? n : 0;
}

/* The chosen checkpoint. A plan chooses none and takes the folder or path that a run would choose
 * from. */
static const char *resume_from(const struct job *job)
{
    const struct sw_train_options *o = job->options;
    return job->start.path[0]  ? job->start.path
           : o->resume_from    ? o->resume_from
           : sw_job_goes_on(o) ? o->output
                               : NULL;
}

const char *sw_train_default_optimizer(void)
{
    return default_optimizer;
}

/* Lists the edits of the configuration. Defaults come last and have the lowest precedence. */
static sw_status make_edits(struct job *job)
{
    const struct sw_train_options *o = job->options;
    struct sw_job_edits *e = &job->edits;
    e->items = sw_alloc("train", (size_t)(o->n_sets + 4) * sizeof *e->items);
    SW_TRY_ALLOC(e->items, "the configuration");
    for (e->n = 0; e->n < o->n_sets; e->n++) {
        e->items[e->n] = o->sets[e->n];
    }
    if (job->chat.chat && sw_job_is_text(job)) {
        e->items[e->n++] = "spillway.loss:=tokens";
    }
    if (job->chat.has_weights) {
        e->items[e->n++] = "spillway.token_weights:=true";
    }
    if (o->config_path || o->config_text) {
        e->items[e->n++] = default_optimizer;
    }
    return SW_OK;
}

bool sw_job_optimizer_is_default(const struct job *job)
{
    char source[512];
    sw_config_source(job->facts.config, "optimizer.type", source, sizeof source);
    return strcmp(source, "default of a training") == 0;
}

/* The options of a job's engine. text: receives the default configuration. */
static struct sw_engine_options engine_options(const struct job *job, char *text, size_t cap)
{
    const struct sw_train_options *o = job->options;
    snprintf(text, cap, default_config, sw_model_is_preset(o->model) ? "0.001" : "5e-05");
    return (struct sw_engine_options){
        .config = {.path = o->config_path,
                   .text = o->config_path   ? NULL
                           : o->config_text ? o->config_text
                                            : text,
                   .sets = job->edits.items,
                   .n_sets = job->edits.n},
        .model = {.path = o->model,
                  .adapter = o->adapter,
                  .vocab_size = job->tokenizer ? sw_tokenizer_vocab_size(job->tokenizer) : 0,
                  .task = o->task.name,
                  .labels = job->task.data.n_labels,
                  .label_names = job->task.data.label_names,
                  .has_pad_id = job->tokenizer != NULL,
                  .pad_id = sw_tokenizer_padding(job->tokenizer)},
        .inputs = {.seq_len = o->seq_len, .target_len = o->task.target_len},
        .run = {.comm = job->comm,
                .batch_ranks = batch_ranks(),
                .profile = o->profile,
                .load_unverified = o->no_verify},
        .seed = o->has_seed ? o->seed : 42,
        /* a step embeds its rows twice, and a draw would differ */
        .train = {.wanted = true, .no_dropout = sw_job_is_contrast(job)},
        .evaluate = {.loss = o->eval_every > 0 || sw_job_is_contrast(job),
                     .logits = sw_job_counts_metrics(job) && sw_job_has_score(job)},
        .generate.wanted = o->sample_every > 0 && job->tokenizer,
        .plan = {.resume_from = resume_from(job), .rates = o->rates, .n_rates = o->n_rates},
    };
}

/* Takes over the batch sizes of the open engine. */
static sw_status join_engine(struct job *job)
{
    job->facts = sw_engine_facts(job->engine);
    SW_TRY(sw_job_task_fit(&job->task, job->options->model, &job->facts));
    job->batch = sw_engine_micro_batch_size(job->engine);
    job->tokens = sw_engine_seq_len(job->engine);
    job->micro_batches = sw_engine_micro_batches(job->engine);
    job->local = sw_engine_local_micro_batches(job->engine);
    return SW_OK;
}

/* ---- epochs ---- */

sw_status sw_job_check_length(const struct sw_train_options *o)
{
    if (o->epochs == 0) {
        return SW_OK;
    }
    if (!(o->epochs > 0 && isfinite(o->epochs))) {
        return SW_FAIL(SW_E_ARG, "--epochs is %g; wanted a number of passes above 0", o->epochs);
    }
    if (o->steps > 0) {
        return SW_FAIL(SW_E_ARG, "--steps and --epochs exclude each other");
    }
    return o->n_data > 0 ? SW_OK
                         : SW_FAIL(SW_E_ARG, "--epochs are passes over the data; wanted --data");
}

/* Counts steps as transformers' Trainer does: the last batch of an epoch may be short, and the
 * steps of all epochs are rounded up. */
static sw_status steps_of_epochs(const struct job *job, int64_t *out)
{
    const int64_t samples = sw_dataset_n_samples(job->dataset, SW_SPLIT_TRAIN);
    const int64_t of_one = sw_ceil_div(samples, job->micro_batches * job->batch);
    const double steps = ceil(job->options->epochs * (double)of_one);
    if (!(steps >= 1 && steps < 0x1p53)) {
        return SW_FAIL(SW_E_ARG, "--epochs is %g, which is %.0f steps; wanted 1 to 2^53 steps",
                       job->options->epochs, steps);
    }
    *out = (int64_t)steps;
    return SW_OK;
}

/* Counts the steps from a plan of rank 0, which determines the batch and the sample length. The
 * dataset stays open. */
static sw_status count_steps(struct job *job)
{
    char text[DEFAULT_CONFIG_CAP];
    struct sw_job_edits *e = &job->edits;
    e->items[e->n] = "--open-steps=true";
    struct sw_engine_options options = engine_options(job, text, sizeof text);
    options.config.n_sets = e->n + 1;
    const int64_t asked = job->options->ranks;
    const struct sw_transport alone = {.size = job->comm   ? sw_comm_size(job->comm)
                                               : asked > 1 ? (int)asked
                                                           : 1};
    options.plan.only = true;
    options.run.profile = false;
    options.run.comm = NULL;
    sw_status st = sw_comm_open(&alone, &options.run.comm);
    st = st < 0 ? st : sw_initialize(&options, &job->engine);
    st = st < 0 ? st : join_engine(job);
    st = st < 0 ? st : sw_job_open_dataset(job);
    st = st < 0 ? st : steps_of_epochs(job, &job->steps.all);
    sw_close(job->engine);
    job->engine = NULL;
    sw_comm_close(options.run.comm, st < 0);
    SW_TRY(st);
    snprintf(e->steps, sizeof e->steps, "--steps=%lld", (long long)job->steps.all);
    e->items[e->n++] = e->steps;
    return SW_OK;
}

/* Lists the edits and sets the number of steps that schedules follow. */
static sw_status prepare_engine(struct job *job)
{
    if (job->edits.items) { /* for the reference */
        return SW_OK;
    }
    SW_TRY(make_edits(job));
    job->steps.all = job->options->steps;
    return job->options->epochs > 0 ? count_steps(job) : SW_OK;
}

/* Ranks that plan together may choose another micro-batch than a plan of one rank. A different
 * number of steps is then refused. */
static sw_status check_epochs(const struct job *job)
{
    int64_t steps = job->steps.all;
    SW_TRY(job->options->epochs > 0 ? steps_of_epochs(job, &steps) : SW_OK);
    return steps == job->steps.all
               ? SW_OK
               : SW_FAIL(SW_E_CONFIG,
                         "--epochs: the ranks chose a micro-batch of %lld, with which the epochs "
                         "have %lld steps and not %lld; wanted --batch-size",
                         (long long)job->batch, (long long)steps, (long long)job->steps.all);
}

sw_status sw_job_open_engine(struct job *job)
{
    char text[DEFAULT_CONFIG_CAP];
    SW_TRY(prepare_engine(job));
    const struct sw_engine_options options = engine_options(job, text, sizeof text);
    SW_TRY(sw_initialize(&options, &job->engine));
    SW_TRY(join_engine(job));
    SW_TRY(check_epochs(job));
    return job->facts.trains
               ? SW_OK
               : SW_FAIL(SW_E_CONFIG, "optimizer: the configuration has no such block");
}

sw_status sw_job_open_reference(struct job *job, const char *model)
{
    char text[DEFAULT_CONFIG_CAP];
    sw_status st;
    SW_TRY(prepare_engine(job));
    struct sw_engine_options options = engine_options(job, text, sizeof text);
    const char **sets = NULL, *const bare = "spillway.lora=null";
    SW_TRY(sw_engine_join_sets(&options.config, &bare, 1, &sets));
    options.config.sets = sets;
    options.config.n_sets++;
    options.model.path = model;
    options.model.adapter = NULL;
    options.run.profile = false;
    options.train.wanted = false;
    options.evaluate.loss = true;
    options.evaluate.logits = false;
    options.generate.wanted = false;
    options.plan.resume_from = NULL;
    st = sw_initialize(&options, &job->engine);
    sw_free(sets);
    SW_TRY(st < 0 ? sw_fail_prefix(st, "the reference") : st);
    return join_engine(job);
}

sw_status sw_job_open_dataset(struct job *job)
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
        .weights = o->data_weights,
        .group_by_length = o->group_by_length ? job->micro_batches * job->batch : 0,
        .task = sw_job_is_text(job) ? NULL : &job->task.data,
    };
    job->packed = options.packing;
    if (job->dataset) { /* already open: epochs were counted with it */
        return SW_OK;
    }
    return sw_dataset_open(&options, &job->dataset);
}

sw_status sw_job_make_batches(struct job *job)
{
    const int64_t n = sw_max_i64(job->local, 1); /* validation needs at least one */
    SW_TRY(sw_job_shared_open(job->facts.world.size, &job->shared));
    if (sw_job_counts_metrics(job) && sw_job_has_score(job)) {
        SW_TRY(sw_job_measure_open(job->engine, job->task.task, &job->measure));
    }
    SW_TRY(sw_job_rows_open(job->task.task, &job->facts, n, &job->rows));
    return sw_job_open_contrast(job);
}

/* Appends how pictures become pixels. A no-op for other data. */
static void put_steps(const struct job *job, struct sw_str *out)
{
    struct sw_str steps = {0};
    if (sw_dataset_put_steps(job->dataset, &steps)) {
        sw_str_printf(out, "; pixels %s", sw_str_text(&steps));
    }
    out->failed = out->failed || steps.failed;
    sw_str_fini(&steps);
}

sw_status sw_job_tell_engine(struct job *job)
{
    const struct sw_train_options *o = job->options;
    if (!job->leads) {
        return SW_OK;
    }
    struct sw_str task = {0};
    if (!sw_job_is_text(job)) {
        sw_job_task_text(&job->task, &task);
        put_steps(job, &task);
    }
    const struct sw_data_record_options options = {
        .task = task.ptr,
        .files = o->data,
        .n_files = o->n_data,
        .val_files = o->val_data,
        .n_val_files = o->n_val_data,
        .tokenizer = job->tokenizer,
        .chat = job->chat.chat,
        .templated = sw_dataset_is_templated(job->dataset),
        .n_samples = sw_dataset_n_samples(job->dataset, SW_SPLIT_TRAIN),
        .weights = o->data_weights,
        .group = o->group_by_length ? job->micro_batches * job->batch : 0,
    };
    const sw_status st = task.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for the task")
                                     : sw_data_record(&options, &job->data);
    sw_str_fini(&task);
    SW_TRY(st);
    const struct sw_training training = {.lock = job->lock,
                                         .data = sw_json_root(job->data),
                                         .allow_other_data = o->allow_other_data};
    sw_engine_join_training(job->engine, &training);
    return SW_OK;
}

/* ---- setups for other training loops ---- */

struct sw_train_setup {
    struct job job;
    char text[DEFAULT_CONFIG_CAP];
    struct sw_engine_options engine;
};

sw_status sw_train_setup_open(const struct sw_train_options *options, struct sw_train_setup **out)
{
    SW_TRY_OPTIONS(options);
    if (!options->model || !*options->model) {
        return SW_FAIL(SW_E_ARG, "plan needs --model");
    }
    SW_TRY(sw_model_check_path(options->model));
    struct sw_train_setup *setup = sw_alloc_zero("train", 1, sizeof *setup);
    SW_TRY_ALLOC(setup, "a plan");
    setup->job.options = options;
    sw_status st = sw_job_chat_check(options);
    st = st < 0 ? st : sw_job_open_tokenizer(&setup->job);
    st = st < 0 ? st : sw_job_check_length(options);
    st = st < 0 ? st : prepare_engine(&setup->job);
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

/* Compares the samples of all ranks. An error names the ranks that differ. */
static sw_status agree_on_data(struct job *job)
{
    SW_TRY(sw_job_rows_open(job->task.task, &job->facts, 1, &job->rows));
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
    SW_TRY(sw_job_open_dataset(job));
    const sw_status st = job->facts.world.size > 1 ? agree_on_data(job) : SW_OK;
    if (st < 0) {
        sw_dataset_close(job->dataset);
        job->dataset = NULL;
        return st;
    }
    *out = job->dataset;
    job->dataset = NULL; /* owned by the caller */
    return SW_OK;
}

void sw_train_setup_close(struct sw_train_setup *setup)
{
    if (setup) {
        sw_job_chat_close(&setup->job.chat);
        sw_free(setup->job.edits.items);
        sw_dataset_close(setup->job.dataset);
        sw_job_task_close(&setup->job.task);
        sw_tokenizer_close(setup->job.tokenizer);
        sw_free(setup);
    }
}
