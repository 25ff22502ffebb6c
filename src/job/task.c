// SPDX-License-Identifier: Apache-2.0
// The task of a job: its kind, its classes and their names, and the inputs of its batches.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hf/hf.h"
#include "job/private.h"

/* ---- classes ---- */

/* Do rows have classes or values, so that the head has a size? */
static bool has_labels(const struct sw_task *task)
{
    return task->rows == SW_ROWS_LABELS || task->rows == SW_ROWS_WORDS ||
           task->rows == SW_ROWS_IMAGES;
}

/* The class names in config.json; NULL if nobody chose names. */
static const struct sw_json *names_of_config(const struct sw_json *config)
{
    const struct sw_json *names = sw_json_get(config, "id2label");
    if (!names || names->type != SW_JSON_OBJECT || !names->first) {
        return NULL;
    }
    for (const struct sw_json *name = names->first; name; name = name->next) {
        if (name->type != SW_JSON_STRING) {
            return NULL;
        }
    }
    return strncmp(names->first->string, "LABEL_", 6) == 0 ? NULL : names;
}

static sw_status set_names(struct sw_job_task *t, int64_t n)
{
    t->names = sw_alloc_zero("train", (size_t)n + 1, sizeof *t->names);
    SW_TRY_ALLOC(t->names, "names of classes");
    t->data.n_labels = n;
    t->data.label_names = (const char *const *)t->names;
    return SW_OK;
}

/* Takes --labels: "3" alone is a number of classes, anything else is names. */
static sw_status take_given(const struct sw_task_options *o, struct sw_job_task *t)
{
    char *end;
    const long long n = strtoll(o->labels[0], &end, 10);
    if (o->n_labels == 1 && *o->labels[0] && !*end) {
        t->data.n_labels = n;
        return n > 0 && n < INT32_MAX
                   ? SW_OK
                   : SW_FAIL(SW_E_ARG, "--labels %s: wanted at least one class", o->labels[0]);
    }
    SW_TRY(set_names(t, o->n_labels));
    for (int i = 0; i < o->n_labels; i++) {
        for (int k = 0; k < i; k++) {
            if (strcmp(o->labels[i], o->labels[k]) == 0) {
                return SW_FAIL(SW_E_ARG, "--labels: \"%s\" is given twice", o->labels[i]);
            }
        }
        t->names[i] = o->labels[i];
    }
    return SW_OK;
}

static sw_status take_config(const struct sw_json_doc *doc, const struct sw_json *names,
                             struct sw_job_task *t)
{
    SW_TRY(set_names(t, names->n_children));
    for (const struct sw_json *name = names->first; name; name = name->next) {
        char *end;
        const long long i = strtoll(name->key, &end, 10);
        if (*end || i < 0 || i >= names->n_children || t->names[i]) {
            return SW_FAIL(SW_E_FORMAT,
                           "%s: \"id2label\" has the key \"%s\", wanted 0 to %lld once",
                           sw_json_name(doc), name->key, (long long)names->n_children - 1);
        }
        t->names[i] = name->string;
    }
    return SW_OK;
}

/* Takes the classes found in the data. n_config: classes of the model's head. */
static sw_status take_found(int64_t n_config, struct sw_job_task *t)
{
    if (!t->found.names) {
        const bool values = t->task->losses[0].kind == SW_LOSS_SQUARES;
        t->data.n_labels = sw_max_i64(t->found.n, values ? 1 : n_config);
        return SW_OK;
    }
    SW_TRY(set_names(t, t->found.n));
    for (int64_t i = 0; i < t->found.n; i++) {
        t->names[i] = t->found.names[i];
    }
    return SW_OK;
}

/* Refuses a single class: there is nothing to tell apart. Classes from config.json are checked with
 * the model. */
static sw_status check_count(const struct sw_task_options *o, const struct sw_dataset_options *data,
                             const struct sw_job_task *t)
{
    const bool pictures = t->task->rows == SW_ROWS_IMAGES && t->found.n > 0;
    if (t->data.n_labels != 1 || (strcmp(t->task->head, "classify") != 0 && !pictures)) {
        return SW_OK;
    }
    if (o->n_labels > 0) {
        return SW_FAIL(SW_E_ARG, "--labels %s: one class, wanted two or more", o->labels[0]);
    }
    return SW_FAIL(
        SW_E_FORMAT,
        "%s: all labels are the class %s; wanted two or more classes (--labels names them)",
        data->files[0], t->names ? t->names[0] : "0");
}

static bool has_name(const struct sw_json *names, const char *name)
{
    const struct sw_json *one = names->first;
    while (one && strcmp(one->string, name) != 0) {
        one = one->next;
    }
    return one != NULL;
}

/* Chooses the classes of images. Folders name them. A training on classes that the model lacks gets
 * the folders' classes. */
static sw_status choose_image_labels(const struct sw_dataset_options *data,
                                     const struct sw_json *names, bool trains,
                                     struct sw_job_task *t)
{
    bool known = names != NULL;
    if (trains) {
        SW_TRY(sw_labels_find(data, 0, &t->found));
    }
    for (int64_t i = 0; i < t->found.n && known; i++) {
        known = has_name(names, t->found.names[i]);
    }
    if (known) {
        return take_config(t->config, names, t);
    }
    return t->found.n > 0 ? take_found(0, t) : SW_OK;
}

static sw_status choose_labels(const struct sw_task_options *o,
                               const struct sw_dataset_options *data, const char *model,
                               bool trains, struct sw_job_task *t)
{
    const struct sw_json *names = NULL;
    int64_t n_config = 0;
    if (o->n_labels > 0) {
        SW_TRY(take_given(o, t));
        return check_count(o, data, t);
    }
    if (access(model, R_OK) == 0) {
        SW_TRY(sw_hf_read_config(model, &t->config));
        const struct sw_json *root = sw_json_root(t->config);
        const struct sw_json *said = sw_json_get(root, "id2label");
        names = t->task->losses[0].kind == SW_LOSS_SQUARES ? NULL : names_of_config(root);
        n_config = said && said->type == SW_JSON_OBJECT ? said->n_children : 0;
    }
    if (t->task->rows == SW_ROWS_IMAGES) {
        SW_TRY(choose_image_labels(data, names, trains, t));
        return check_count(o, data, t);
    }
    if (names) {
        return take_config(t->config, names, t);
    }
    SW_TRY(sw_labels_find(data, n_config, &t->found));
    SW_TRY(take_found(n_config, t));
    return check_count(o, data, t);
}

/* ---- pixels ---- */

/* Finds the model's preprocessor_config.json, if it has one. */
static sw_status find_preprocessor(const char *model, struct sw_job_task *t)
{
    sw_str_clear(&t->preprocessor);
    sw_str_printf(&t->preprocessor, "%s/preprocessor_config.json", model);
    if (t->preprocessor.failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a path");
    }
    t->data.preprocessor = access(t->preprocessor.ptr, R_OK) == 0 ? t->preprocessor.ptr : NULL;
    return SW_OK;
}

/* ---- choosing ---- */

/* Refuses a flag that the task does not use. */
static sw_status check_flags(const struct sw_task *task, const struct sw_task_options *o)
{
    const bool text = task->rows == SW_ROWS_TEXT || task->rows == SW_ROWS_PREFERENCES;
    const struct {
        const char *name;
        bool wrong;
    } flags[] = {{"--labels", text && o->n_labels > 0},
                 {"--text-column", text && o->n_text_columns > 0},
                 {"--label-column", text && o->label_column},
                 {"--source-prefix", task->rows != SW_ROWS_TARGETS && o->source_prefix}};
    for (size_t i = 0; i < SW_LEN(flags); i++) {
        if (flags[i].wrong) {
            return SW_FAIL(SW_E_ARG, "%s does not apply to the task \"%s\"", flags[i].name,
                           task->name);
        }
    }
    return SW_OK;
}

sw_status sw_task_is_text(const char *model, const struct sw_task_options *options, bool *out)
{
    const struct sw_task *task;
    SW_TRY(sw_model_check_path(model));
    SW_TRY(sw_weights_find_task(model, options->name, 0, &task));
    SW_TRY(check_flags(task, options));
    *out = task->rows == SW_ROWS_TEXT;
    return SW_OK;
}

/* Returns SW_E_ARG if the task has no metric of this name. */
static sw_status find_metric(const struct sw_task *task, const char *name, enum sw_metric *out)
{
    struct sw_str names = {0};
    for (int i = 0; i < task->n_metrics; i++) {
        const char *one = sw_metric_name(task->metrics[i]);
        if (strcmp(one, name) == 0) {
            *out = task->metrics[i];
            sw_str_fini(&names);
            return SW_OK;
        }
        sw_str_printf(&names, "%s%s", i ? ", " : "", one);
    }
    const sw_status st = SW_FAIL(SW_E_ARG, "--metric %s: the task \"%s\" has %s", name, task->name,
                                 sw_str_text(&names));
    sw_str_fini(&names);
    return st;
}

sw_status sw_job_task_choose(const struct sw_task_options *o, const char *model,
                             const struct sw_dataset_options *files, bool trains,
                             struct sw_job_task *out)
{
    struct sw_job_task *t = out;
    struct sw_dataset_options data = *files;
    SW_TRY(sw_weights_find_task(model, o->name, 0, &t->task));
    SW_TRY(check_flags(t->task, o));
    t->data = (struct sw_task_data){
        .name = t->task->name,
        .target_len = o->target_len,
        .text_columns = {o->n_text_columns > 0 ? o->text_columns[0] : NULL,
                         o->n_text_columns > 1 ? o->text_columns[1] : NULL},
        .label_column = o->label_column,
        .source_prefix = o->source_prefix,
    };
    if (o->n_text_columns > 2) {
        return SW_FAIL(SW_E_ARG, "--text-column: %d columns, wanted one or two", o->n_text_columns);
    }
    t->metric = t->task->n_metrics > 0 ? t->task->metrics[0] : SW_METRIC_PERPLEXITY;
    if (o->metric) {
        SW_TRY(find_metric(t->task, o->metric, &t->metric));
    }
    data.task = &t->data;
    return has_labels(t->task) && files->n_files > 0 ? choose_labels(o, &data, model, trains, t)
           : o->n_labels > 0                         ? take_given(o, t)
                                                     : SW_OK;
}

sw_status sw_job_task_fit(struct sw_job_task *task, const char *model,
                          const struct sw_engine_facts *facts)
{
    const struct sw_task_sizes *sizes = &facts->sizes;
    task->data.has_pad_id = facts->pad_id >= 0;
    task->data.pad_id = (int32_t)facts->pad_id;
    task->data.target_len = sizes->of[SW_DIM_TARGETS];
    task->data.n_labels = task->data.n_labels > 0 ? task->data.n_labels : sizes->of[SW_DIM_LABELS];
    task->data.channels = sizes->of[SW_DIM_CHANNELS];
    task->data.height = sizes->of[SW_DIM_HEIGHT];
    task->data.width = sizes->of[SW_DIM_WIDTH];
    if (has_labels(task->task) && task->data.n_labels != sizes->of[SW_DIM_LABELS]) {
        return SW_FAIL(SW_E_CONFIG, "%s: its head has %lld classes, and the data %lld (--labels)",
                       model, (long long)sizes->of[SW_DIM_LABELS], (long long)task->data.n_labels);
    }
    return task->task->rows == SW_ROWS_IMAGES ? find_preprocessor(model, task) : SW_OK;
}

static void put_word(const char *what, const char *word, struct sw_str *out)
{
    if (word) {
        sw_str_printf(out, "; %s \"%s\"", what, word);
    }
}

void sw_job_task_text(const struct sw_job_task *task, struct sw_str *out)
{
    const struct sw_task_data *data = &task->data;
    sw_str_puts(out, data->name);
    put_word("text", data->text_columns[0], out);
    put_word("text", data->text_columns[1], out);
    put_word("label", data->label_column, out);
    put_word("prefix", data->source_prefix, out);
    if (data->target_len > 0) {
        sw_str_printf(out, "; targets of %lld", (long long)data->target_len);
    }
    for (int64_t i = 0; i < data->n_labels && task->names; i++) {
        put_word("class", task->names[i], out);
    }
}

void sw_job_task_close(struct sw_job_task *task)
{
    sw_label_list_fini(&task->found);
    sw_json_close(task->config);
    sw_str_fini(&task->preprocessor);
    sw_free(task->names);
    *task = (struct sw_job_task){0};
}

/* ---- batches ---- */

/* Inputs that only packed rows need are left out otherwise: counted positions and document ids.
 * Text needs no attention mask: it would be all ones; and weights only if labels have some. */
static bool is_given(const struct sw_task *task, const struct sw_task_input *input,
                     const struct sw_spillway_config *c)
{
    const bool text = task->rows == SW_ROWS_TEXT;
    const bool of_packed =
        input->absent == SW_ABSENT_COUNTED || strcmp(input->name, "segments") == 0;
    return of_packed                                   ? c->packing
           : strcmp(input->name, SW_TASK_WEIGHTS) == 0 ? c->token_weights
                                                       : !(text && input->absent == SW_ABSENT_ONES);
}

sw_status sw_job_rows_open(const struct sw_task *task, const struct sw_engine_facts *facts,
                           int64_t n, struct sw_job_rows *out)
{
    const struct sw_task_sizes *sizes = &facts->sizes;
    size_t bytes = 0, at = 0;
    struct sw_job_rows *r = out;
    *r = (struct sw_job_rows){.batch = sizes->of[SW_DIM_BATCH] / sw_task_rows(task), .n = n};
    for (int i = 0; i < task->n_inputs; i++) {
        if (is_given(task, &task->inputs[i], &facts->config->spillway)) {
            struct sw_view *view = &r->views[r->n_inputs];
            r->names[r->n_inputs++] = task->inputs[i].name;
            *view = (struct sw_view){.dtype = task->inputs[i].dtype,
                                     .shape = sw_task_shape(&task->inputs[i], sizes)};
            bytes += (size_t)sw_shape_elems(&view->shape) * 4;
        }
    }
    r->memory =
        sw_alloc_zero("train", (size_t)n, bytes); /* the data may leave inputs as they are */
    r->tensors = sw_alloc_zero("train", (size_t)(n * r->n_inputs), sizeof *r->tensors);
    r->batches = sw_alloc_zero("train", (size_t)n, sizeof *r->batches);
    SW_TRY_ALLOC(r->memory && r->tensors && r->batches ? r : NULL, "the batch");
    for (int64_t k = 0; k < n; k++) {
        struct sw_tensor *tensors = r->tensors + k * r->n_inputs;
        for (int i = 0; i < r->n_inputs; i++) {
            tensors[i] = (struct sw_tensor){r->names[i], r->views[i]};
            tensors[i].view.data = (char *)r->memory + at;
            at += (size_t)sw_shape_elems(&r->views[i].shape) * 4;
        }
        r->batches[k] = (struct sw_batch){tensors, r->n_inputs};
    }
    return SW_OK;
}

void sw_job_rows_close(struct sw_job_rows *rows)
{
    sw_free(rows->memory);
    sw_free(rows->tensors);
    sw_free(rows->batches);
    *rows = (struct sw_job_rows){0};
}

/* The inputs of batch i. */
static void list_inputs(const struct sw_job_rows *rows, int64_t i,
                        struct sw_row_input out[SW_TASK_MAX_INPUTS])
{
    const struct sw_batch *batch = &rows->batches[i];
    for (int k = 0; k < rows->n_inputs; k++) {
        out[k] = (struct sw_row_input){batch->tensors[k].name, batch->tensors[k].view.data};
    }
}

sw_status sw_job_rows_fetch(const struct sw_job_rows *rows, const sw_dataset *dataset,
                            enum sw_split split, int64_t first, int64_t n_rows, int64_t i)
{
    struct sw_row_input inputs[SW_TASK_MAX_INPUTS];
    list_inputs(rows, i, inputs);
    return sw_dataset_fetch_inputs(dataset, split, first, n_rows, inputs, rows->n_inputs);
}

sw_status sw_job_rows_fetch_in_order(const struct sw_job_rows *rows, const sw_dataset *dataset,
                                     enum sw_split split, int64_t first, int64_t n_rows)
{
    struct sw_row_input inputs[SW_TASK_MAX_INPUTS];
    list_inputs(rows, 0, inputs);
    return sw_dataset_fetch_in_order(dataset, split, first, n_rows, inputs, rows->n_inputs);
}

/* ---- evaluation ---- */

sw_status sw_job_measure_open(sw_engine *engine, const struct sw_task *task,
                              struct sw_job_measure *out)
{
    out->engine = engine;
    out->task = task;
    for (int k = 0; k < task->n_losses; k++) {
        const int64_t n = sw_engine_output_elems(engine, task->losses[k].output);
        SW_ASSERT(n > 0);
        out->elems[k] = n;
        out->outputs[k] = sw_alloc("train", (size_t)n * sizeof(float));
        SW_TRY_ALLOC(out->outputs[k], "the model's outputs");
    }
    return SW_OK;
}

void sw_job_measure_close(struct sw_job_measure *measure)
{
    for (int k = 0; k < SW_TASK_MAX_LOSSES; k++) {
        sw_free(measure->outputs[k]);
    }
    *measure = (struct sw_job_measure){0};
}

sw_status sw_job_measure_add(struct sw_job_measure *measure, struct sw_score *score,
                             const struct sw_job_rows *rows, int64_t first)
{
    struct sw_row_input inputs[SW_TASK_MAX_INPUTS];
    struct sw_score_rows said = {
        .first = first, .n = rows->batch, .inputs = inputs, .n_inputs = rows->n_inputs};
    list_inputs(rows, 0, inputs);
    SW_TRY(sw_logits(measure->engine, &rows->batches[0], NULL));
    for (int k = 0; k < measure->task->n_losses; k++) {
        SW_TRY(sw_engine_output(measure->engine, measure->task->losses[k].output,
                                measure->outputs[k]));
        said.outputs[k] = measure->outputs[k];
        said.widths[k] = measure->elems[k] / rows->batch;
    }
    return sw_score_add(score, &said);
}
