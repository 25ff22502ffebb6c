// SPDX-License-Identifier: Apache-2.0
// Evaluates a task other than next-token prediction: the loss and the metrics over all rows of the
// files. The reference of preferences runs first and is closed before the model opens.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "job/private.h"

struct eval {
    const struct sw_eval_options *options;
    bool leads; /* the first rank, which writes */
    sw_tokenizer *tokenizer;
    struct sw_job_task task;
    sw_engine *engine;
    sw_dataset *dataset;
    struct sw_job_rows rows;
    struct sw_job_measure measure;
    struct sw_score *score;
    struct sw_output output; /* the file of predictions */
    FILE *predictions;       /* stream to the output */
    bool writes;             /* predictions are texts */
    struct sw_job_texts texts;
    sw_chat *chat; /* of preferences that are chats */
    double terms[SW_ENGINE_MAX_SUMS];
    int64_t n_rows;
};

static bool is_preference(const struct eval *e)
{
    return e->task.task->rows == SW_ROWS_PREFERENCES;
}

static struct sw_engine_options engine_options(const struct eval *e, char *text, size_t cap)
{
    const struct sw_eval_options *o = e->options;
    snprintf(text, cap, "{\"train_micro_batch_size_per_gpu\": %lld}", (long long)o->batch);
    return (struct sw_engine_options){
        .config = {.path = o->config_path,
                   .text = o->config_path ? NULL : text,
                   .sets = o->sets,
                   .n_sets = o->n_sets},
        .model = {.path = o->model,
                  .adapter = o->adapter,
                  .vocab_size = e->tokenizer ? sw_tokenizer_vocab_size(e->tokenizer) : 0,
                  .task = o->task.name,
                  .labels = e->task.data.n_labels,
                  .label_names = e->task.data.label_names,
                  .has_pad_id = e->tokenizer != NULL,
                  .pad_id = sw_tokenizer_padding(e->tokenizer)},
        .inputs = {.seq_len = o->seq_len, .target_len = o->task.target_len},
        .run.comm = o->comm,
        .evaluate = {.loss = true, .logits = !is_preference(e)},
        .generate.wanted = e->writes,
    };
}

static sw_status open_engine(struct eval *e)
{
    char text[64];
    const struct sw_engine_options options = engine_options(e, text, sizeof text);
    return sw_initialize(&options, &e->engine);
}

static sw_status open_predictions(struct eval *e)
{
    const char *path = e->options->predictions;
    SW_TRY(sw_output_open(path, true, &e->output));
    SW_TRY(sw_output_begin(&e->output));
    const int fd = fcntl(e->output.fd, F_DUPFD_CLOEXEC, 0);
    e->predictions = fd < 0 ? NULL : fdopen(fd, "w");
    if (!e->predictions) {
        const int error = errno;
        if (fd >= 0) {
            close(fd);
        }
        return SW_FAIL(SW_E_IO, "%s: %s", path, strerror(error));
    }
    return SW_OK;
}

static sw_status close_predictions(struct eval *e, sw_status st)
{
    if (e->predictions && fclose(e->predictions) != 0 && st >= 0) {
        st = SW_FAIL(SW_E_IO, "%s: %s", e->options->predictions, strerror(errno));
    }
    st = st < 0 || !e->predictions ? st : sw_output_commit(&e->output, true);
    sw_output_close(&e->output);
    return st;
}

static sw_status check_task(const struct eval *e)
{
    const struct sw_task *task = e->task.task;
    if (task->rows == SW_ROWS_CONTRAST) {
        return SW_FAIL(SW_E_UNSUP,
                       "task \"%s\": not evaluated alone; train --val-data FILE --eval-every N "
                       "writes its metrics to metrics.jsonl",
                       task->name);
    }
    if (e->options->predictions && !e->writes && task->rows != SW_ROWS_ANSWERS) {
        return SW_FAIL(SW_E_ARG,
                       "--predictions: wanted a task with answers or generated texts, not \"%s\"",
                       task->name);
    }
    return SW_OK;
}

/* Opens the chat template if preferences are chats, or texts beside which there is one. */
static sw_status open_chat(struct eval *e)
{
    const struct sw_eval_options *o = e->options;
    struct sw_chat_options options = o->chat ? *o->chat : (struct sw_chat_options){0};
    enum sw_data_kind kind;
    if (options.loss_on != SW_LOSS_ON_ANSWERS) {
        return SW_FAIL(SW_E_ARG, "--loss-on: a preference is on the last answer of a chat");
    }
    SW_TRY(sw_preferences_kind(o->data[0], &kind));
    options.folder = sw_job_tokenizer_folder(o->tokenizer, o->adapter, o->model);
    options.tokenizer = e->tokenizer;
    options.loss_on = SW_LOSS_ON_LAST;
    return sw_chat_open_for(&options, kind, &e->chat);
}

static sw_status open_dataset(struct eval *e)
{
    const struct sw_eval_options *o = e->options;
    const struct sw_engine_facts facts = sw_engine_facts(e->engine);
    SW_TRY(sw_job_task_fit(&e->task, o->model, &facts));
    const struct sw_dataset_options data = {.files = o->data,
                                            .n_files = o->n_data,
                                            .as_text = o->as_text,
                                            .val_files = o->data,
                                            .n_val_files = o->n_data,
                                            .tokenizer = e->tokenizer,
                                            .vocab_size = sw_engine_vocab(e->engine),
                                            .seq_len = sw_engine_seq_len(e->engine),
                                            .seed = facts.seed,
                                            .chat = e->chat,
                                            .task = &e->task.data};
    return sw_dataset_open(&data, &e->dataset);
}

static sw_status open_rows(struct eval *e)
{
    const struct sw_engine_facts facts = sw_engine_facts(e->engine);
    return sw_job_rows_open(e->task.task, &facts, 1, &e->rows);
}

/* ---- the reference of preferences ---- */

/* Reads spillway.preference.reference. Without it the reference is the model without --adapter. */
static sw_status find_reference(const struct eval *e, struct sw_str *out)
{
    const struct sw_eval_options *o = e->options;
    struct sw_config *c = NULL;
    sw_status st;
    SW_TRY(o->config_path ? sw_config_load(o->config_path, o->sets, o->n_sets, &c)
                          : sw_config_parse("configuration", "{}", 2, o->sets, o->n_sets, &c));
    const char *given = c->spillway.preference.reference;
    if (given || o->adapter) {
        sw_str_puts(out, given ? given : o->model);
        st = out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a path") : SW_OK;
    } else {
        st = SW_FAIL(SW_E_CONFIG,
                     "task \"%s\": the model would be its own reference; wanted --adapter, or "
                     "--set spillway.preference.reference=DIR",
                     e->task.task->name);
    }
    sw_config_close(c);
    return st;
}

static sw_status open_reference(struct eval *e, const char *model)
{
    char text[64];
    const char **sets = NULL, *const bare = "spillway.lora=null";
    struct sw_engine_options options = engine_options(e, text, sizeof text);
    SW_TRY(sw_engine_join_sets(&options.config, &bare, 1, &sets));
    options.config.sets = sets;
    options.config.n_sets++;
    options.model.path = model;
    options.model.adapter = NULL;
    const sw_status st = sw_initialize(&options, &e->engine);
    sw_free(sets);
    return st < 0 ? sw_fail_prefix(st, "the reference") : SW_OK;
}

/* Computes the log-probabilities of all rows, and gives them to the dataset. */
static sw_status compute_reference(struct eval *e)
{
    const int64_t n = sw_dataset_n_samples(e->dataset, SW_SPLIT_VAL), batch = e->rows.batch;
    const size_t bytes = 2 * (size_t)(sw_ceil_div(n, batch) * batch) * sizeof(float);
    float *values = sw_alloc("reference", bytes);
    double sums[SW_ENGINE_MAX_SUMS];
    sw_status st = SW_OK;
    SW_TRY_ALLOC(values, "the reference's log-probabilities");
    for (int64_t first = 0; first < n && st >= 0; first += batch) {
        sw_work_at("reference log-probabilities", first, n);
        st = sw_job_rows_fetch(&e->rows, e->dataset, SW_SPLIT_VAL, first, batch, 0);
        st = st < 0 ? st : sw_engine_evaluate(e->engine, &e->rows.batches[0], sums);
        st = st < 0 ? st : sw_engine_evaluated(e->engine, "log_probs", values + 2 * first);
    }
    sw_work_end();
    st = st < 0 ? st : sw_dataset_set_reference(e->dataset, SW_SPLIT_VAL, values);
    sw_free(values);
    return st;
}

/* Opens the dataset, too, as the reference reads its rows. */
static sw_status run_reference(struct eval *e)
{
    struct sw_str model = {0};
    sw_status st = find_reference(e, &model);
    st = st < 0 ? st : open_reference(e, sw_str_text(&model));
    st = st < 0 ? st : open_dataset(e);
    st = st < 0 ? st : open_rows(e);
    st = st < 0 ? st : compute_reference(e);
    sw_str_fini(&model);
    sw_job_rows_close(&e->rows);
    sw_close(e->engine);
    e->engine = NULL;
    return st;
}

/* ---- all ---- */

static sw_status open_words(struct eval *e)
{
    const struct sw_eval_options *o = e->options;
    const char *folder = sw_job_tokenizer_folder(o->tokenizer, o->adapter, o->model);
    if (o->tokenizer || sw_tokenizer_is_there(folder)) {
        SW_TRY(sw_tokenizer_open(folder, NULL, &e->tokenizer));
    }
    return is_preference(e) ? open_chat(e) : SW_OK;
}

static sw_status open_all(struct eval *e)
{
    const struct sw_eval_options *o = e->options;
    const struct sw_dataset_options files = {
        .files = o->data, .n_files = o->n_data, .as_text = o->as_text};
    SW_TRY(sw_model_check_path(o->model));
    SW_TRY(sw_job_task_choose(&o->task, o->model, &files, false, &e->task));
    e->writes = o->predictions && e->task.task->rows == SW_ROWS_TARGETS;
    SW_TRY(check_task(e));
    SW_TRY(open_words(e));
    if (sw_task_input_of(e->task.task, SW_TASK_REFERENCE)) {
        SW_TRY(run_reference(e));
    }
    SW_TRY(open_engine(e));
    SW_TRY(e->dataset ? SW_OK : open_dataset(e));
    SW_TRY(o->predictions && e->leads ? open_predictions(e) : SW_OK);
    SW_TRY(open_rows(e));
    if (is_preference(e)) {
        return SW_OK;
    }
    SW_TRY(sw_job_measure_open(e->engine, e->task.task, &e->measure));
    if (e->writes) {
        SW_TRY(sw_job_texts_open(e->engine, e->tokenizer, o->model, e->predictions, &e->texts));
    }
    return sw_score_open(e->dataset, SW_SPLIT_VAL, e->writes ? NULL : e->predictions, &e->score);
}

static sw_status run(struct eval *e)
{
    const int64_t n = sw_dataset_n_samples(e->dataset, SW_SPLIT_VAL), batch = e->rows.batch;
    const int n_sums = sw_engine_terms(e->engine) + sw_engine_n_totals(e->engine);
    int64_t done = 0;
    for (int64_t first = 0; first < n; first += batch) {
        double terms[SW_ENGINE_MAX_SUMS];
        SW_TRY(sw_job_rows_fetch(&e->rows, e->dataset, SW_SPLIT_VAL, first, batch, 0));
        SW_TRY(sw_engine_evaluate(e->engine, &e->rows.batches[0], terms));
        for (int k = 0; k < 2 * n_sums; k++) {
            e->terms[k] += terms[k];
        }
        SW_TRY(e->score ? sw_job_measure_add(&e->measure, e->score, &e->rows, first) : SW_OK);
        e->n_rows = sw_min_i64(first + batch, n);
        if (e->writes) {
            SW_TRY(sw_job_texts_add(&e->texts, &e->rows, e->n_rows - first));
        }
        if (e->options->batches > 0 && ++done == e->options->batches) {
            break;
        }
    }
    return e->score ? sw_score_end(e->score) : SW_OK;
}

static double metric_of(const struct eval *e, enum sw_metric metric, double loss)
{
    return !e->score ? sw_engine_metric(metric, e->terms + 2 * sw_engine_terms(e->engine))
           : metric == SW_METRIC_PERPLEXITY ? exp(loss)
                                            : sw_score_of(e->score, metric);
}

static void put_value(bool json, const char *name, double value, struct sw_str *out)
{
    if (!json) {
        sw_str_printf(out, "%s%s %.6f", out->len > 0 ? ", " : "", name, sw_job_shown(value));
        return;
    }
    sw_str_printf(out, "%s\"%s\":", out->len > 0 ? "," : "{", name);
    sw_json_write_any_f64(value, out);
}

/* Experts that were loaded, if loads wait for a router. */
static void add_loads(const struct eval *e, struct sw_str *out)
{
    const struct sw_engine_facts facts = sw_engine_facts(e->engine);
    const struct sw_job_loads loads = sw_job_expert_loads(&facts);
    char chosen[32], most[32];
    if (loads.most > 0 && e->options->json) {
        sw_str_printf(out, ",\"expert_loaded_bytes\":%lld,\"expert_most_bytes\":%lld",
                      (long long)loads.chosen, (long long)loads.most);
    } else if (loads.most > 0) {
        sw_str_printf(out, ", %s of %s of experts loaded",
                      sw_format_bytes(chosen, sizeof chosen, (double)loads.chosen),
                      sw_format_bytes(most, sizeof most, (double)loads.most));
    }
}

static sw_status print(const struct eval *e, FILE *out)
{
    const bool json = e->options->json;
    const struct sw_task *task = e->task.task;
    const double loss = e->terms[1] > 0 ? sw_engine_mean_loss(e->engine, e->terms) : NAN;
    struct sw_str line = {0};
    put_value(json, "loss", loss, &line);
    for (int i = 0; i < task->n_metrics; i++) {
        const enum sw_metric metric = task->metrics[i];
        put_value(json, sw_metric_name(metric), metric_of(e, metric, loss), &line);
    }
    sw_str_printf(&line, json ? ",\"rows\":%lld" : ", %lld rows", (long long)e->n_rows);
    add_loads(e, &line);
    sw_str_puts(&line, json ? "}" : "");
    const bool good = !line.failed && fprintf(out, "%s\n", line.ptr) > 0;
    sw_str_fini(&line);
    return good ? SW_OK : SW_FAIL(SW_E_IO, "the result cannot be written");
}

sw_status sw_eval(const struct sw_eval_options *options, FILE *out, bool *started)
{
    SW_TRY_OPTIONS(options);
    struct eval e = {.options = options,
                     .leads = !options->comm || sw_comm_rank(options->comm) == 0};
    *started = false;
    sw_status st = open_all(&e);
    if (st >= 0) {
        *started = true;
        st = run(&e);
    }
    st = st < 0 || !e.leads ? st : print(&e, out);
    st = close_predictions(&e, st);
    sw_job_texts_close(&e.texts);
    sw_score_close(e.score);
    sw_job_measure_close(&e.measure);
    sw_job_rows_close(&e.rows);
    sw_dataset_close(e.dataset);
    sw_close(e.engine);
    sw_job_task_close(&e.task);
    sw_chat_close(e.chat);
    sw_tokenizer_close(e.tokenizer);
    return st;
}
