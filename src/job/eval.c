// SPDX-License-Identifier: Apache-2.0
// Evaluates a task other than next-token prediction: the loss and the metrics over all rows of the
// files.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

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
    double terms[2 * SW_TASK_MAX_TERMS];
    int64_t n_rows;
};

static sw_status open_engine(struct eval *e)
{
    const struct sw_eval_options *o = e->options;
    char text[64];
    snprintf(text, sizeof text, "{\"train_micro_batch_size_per_gpu\": %lld}", (long long)o->batch);
    const struct sw_engine_options options = {
        .config = {.path = o->config_path,
                   .text = o->config_path ? NULL : text,
                   .sets = o->sets,
                   .n_sets = o->n_sets},
        .model = {.path = o->model,
                  .adapter = o->adapter,
                  .vocab_size = e->tokenizer ? sw_tokenizer_vocab_size(e->tokenizer) : 0,
                  .task = o->task.name,
                  .labels = e->task.data.n_labels,
                  .label_names = e->task.data.label_names},
        .inputs = {.seq_len = o->seq_len, .target_len = o->task.target_len},
        .run.comm = o->comm,
        .evaluate = {.loss = true, .logits = true},
        .generate.wanted = e->writes,
    };
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
    if (sw_task_rows(task) > 1) {
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

static sw_status open_all(struct eval *e)
{
    const struct sw_eval_options *o = e->options;
    const struct sw_dataset_options files = {
        .files = o->data, .n_files = o->n_data, .as_text = o->as_text};
    const char *folder = o->tokenizer ? o->tokenizer : o->model;
    SW_TRY(sw_model_check_path(o->model));
    SW_TRY(sw_job_task_choose(&o->task, o->model, &files, false, &e->task));
    e->writes = o->predictions && e->task.task->rows == SW_ROWS_TARGETS;
    SW_TRY(check_task(e));
    if (o->tokenizer || sw_tokenizer_is_there(folder)) {
        SW_TRY(sw_tokenizer_open(folder, NULL, &e->tokenizer));
    }
    SW_TRY(open_engine(e));
    const struct sw_engine_facts facts = sw_engine_facts(e->engine);
    SW_TRY(sw_job_task_fit(&e->task, o->model, &facts.sizes));
    struct sw_dataset_options data = files;
    data.val_files = o->data;
    data.n_val_files = o->n_data;
    data.tokenizer = e->tokenizer;
    data.vocab_size = sw_engine_vocab(e->engine);
    data.seq_len = sw_engine_seq_len(e->engine);
    data.seed = facts.seed;
    data.task = &e->task.data;
    SW_TRY(sw_dataset_open(&data, &e->dataset));
    SW_TRY(o->predictions && e->leads ? open_predictions(e) : SW_OK);
    SW_TRY(sw_job_rows_open(e->task.task, &facts.sizes, false, 1, &e->rows));
    SW_TRY(sw_job_measure_open(e->engine, e->task.task, &e->measure));
    if (e->writes) {
        SW_TRY(sw_job_texts_open(e->engine, e->tokenizer, o->model, e->predictions, &e->texts));
    }
    return sw_score_open(e->dataset, SW_SPLIT_VAL, e->writes ? NULL : e->predictions, &e->score);
}

static sw_status run(struct eval *e)
{
    const int64_t n = sw_dataset_n_samples(e->dataset, SW_SPLIT_VAL), batch = e->rows.batch;
    const int n_terms = sw_engine_terms(e->engine);
    int64_t done = 0;
    for (int64_t first = 0; first < n; first += batch) {
        double terms[2 * SW_TASK_MAX_TERMS];
        SW_TRY(sw_job_rows_fetch(&e->rows, e->dataset, SW_SPLIT_VAL, first, batch, 0));
        SW_TRY(sw_engine_evaluate(e->engine, &e->rows.batches[0], terms));
        for (int k = 0; k < 2 * n_terms; k++) {
            e->terms[k] += terms[k];
        }
        SW_TRY(sw_job_measure_add(&e->measure, e->score, &e->rows, first));
        e->n_rows = sw_min_i64(first + batch, n);
        if (e->writes) {
            SW_TRY(sw_job_texts_add(&e->texts, &e->rows, e->n_rows - first));
        }
        if (e->options->batches > 0 && ++done == e->options->batches) {
            break;
        }
    }
    return sw_score_end(e->score);
}

static void put_value(bool json, const char *name, double value, struct sw_str *out)
{
    if (!json) {
        sw_str_printf(out, "%s%s %.6f", out->len > 0 ? ", " : "", name, sw_job_shown(value));
        return;
    }
    sw_str_printf(out, "%s\"%s\":", out->len > 0 ? "," : "{", name);
    sw_json_write_f64(value, out);
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
        put_value(json, sw_metric_name(metric),
                  metric == SW_METRIC_PERPLEXITY ? exp(loss) : sw_score_of(e->score, metric),
                  &line);
    }
    sw_str_printf(&line, json ? ",\"rows\":%lld}" : ", %lld rows", (long long)e->n_rows);
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
    sw_tokenizer_close(e.tokenizer);
    return st;
}
