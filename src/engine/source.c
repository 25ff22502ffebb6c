// SPDX-License-Identifier: Apache-2.0
// Sources of a model: a folder, a file or a preset. Reads the description, opens the model for the
// requested task, and checks the configuration and the options against it. weights.c reads the
// weights once there is a plan.
#include <sys/stat.h>

#include "engine/adapter.h"

/* A plan needs no weights: without them the head is as config.json says. */
static sw_status open_weights(struct sw_engine *e, const struct sw_engine_options *o)
{
    if (o->plan.only && !sw_hf_folder_has_weights(o->model.path)) {
        return SW_OK;
    }
    return sw_hf_folder_open(o->model.path, &e->source.weights);
}

/* Opens the model by config.json and the options, replacing a model that is already open. */
static sw_status open_model(struct sw_engine *e)
{
    const struct sw_model_options options = {.task = e->options.model.task,
                                             .labels = e->options.model.labels};
    sw_model_close(e->model);
    e->model = NULL;
    return sw_model_open(e->source.doc, &options, &e->model);
}

sw_status sw_engine_tie(struct sw_engine *e, bool tied)
{
    struct sw_json_doc *doc = e->source.doc;
    struct sw_json *root = sw_json_root(doc);
    const char *scale_key = e->model->scale_key; /* its default may depend on the tie */
    if (!sw_json_put_bool(doc, root, "tie_word_embeddings", tied) ||
        (scale_key && !sw_json_put_bool(doc, root, scale_key, e->model->scales_head))) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for config.json");
    }
    return open_model(e);
}

/* Label smoothing applies to cross-entropy losses; other losses refuse it. */
static sw_status check_smoothing(const struct sw_engine *e, const struct sw_engine_options *o)
{
    const double smoothing = e->config->spillway.label_smoothing;
    const struct sw_task *task = e->model ? e->model->task : NULL;
    bool fits = task != NULL;
    for (int i = 0; task && i < task->n_losses; i++) {
        fits = fits &&
               (task->losses[i].kind == SW_LOSS_CLASSES || task->losses[i].kind == SW_LOSS_PLACE);
    }
    if (smoothing == 0 || fits || (!o->train.wanted && !o->evaluate.loss)) {
        return SW_OK;
    }
    if (!task) {
        return SW_FAIL(
            SW_E_CONFIG,
            "spillway.label_smoothing %g: a forward of your own sets its smoothing itself "
            "(sw_cross_entropy_of)",
            smoothing);
    }
    return SW_FAIL(
        SW_E_CONFIG,
        "spillway.label_smoothing %g: the loss of the task \"%s\" is not a cross entropy "
        "over classes",
        smoothing, task->name);
}

static sw_status check_task(const struct sw_engine *e, const struct sw_engine_options *o)
{
    const struct sw_task *task = e->model->task;
    SW_TRY(check_smoothing(e, o));
    if (e->config->spillway.packing && !sw_task_input_of(task, "segments")) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: the task \"%s\" reads one text a row; spillway.packing is for "
                       "language models",
                       o->model.path, task->name);
    }
    if (o->generate.wanted && !sw_model_is_causal(e->model) && !sw_model_is_seq2seq(e->model)) {
        return SW_FAIL(SW_E_UNSUP, "%s: a model for the task \"%s\" does not generate text",
                       o->model.path, task->name);
    }
    if (task->n_losses == 0 && (o->train.wanted || o->evaluate.loss)) {
        return SW_FAIL(
            SW_E_CONFIG,
            "%s: %s has no head, so there is no loss; wanted a task, which selects a head",
            o->model.path, e->model->class_name);
    }
    return SW_OK;
}

sw_status sw_engine_read_model(const struct sw_engine_options *o, struct sw_json_doc **out,
                               bool *out_folder)
{
    struct stat st;
    SW_TRY(sw_model_check_path(o->model.path));
    if (sw_model_is_preset(o->model.path) && stat(o->model.path, &st) != 0) {
        *out_folder = false;
        return sw_model_preset(o->model.path, o->model.vocab_size, o->inputs.seq_len, out);
    }
    *out_folder = sw_is_folder(o->model.path);
    return sw_hf_read_config(o->model.path, out);
}

static sw_status look_at(const char *model, const struct sw_model_options *as,
                         const struct sw_task **out_task, int64_t *out_context)
{
    const struct sw_engine_options options = {.model.path = model};
    struct sw_json_doc *doc = NULL;
    struct sw_model *opened = NULL;
    bool folder;
    SW_TRY(sw_engine_read_model(&options, &doc, &folder));
    const sw_status st = sw_model_open(doc, as, &opened);
    if (st >= 0) {
        *out_task = opened->task;
        *out_context = opened->max_tokens;
    }
    sw_model_close(opened);
    sw_json_close(doc);
    return st;
}

sw_status sw_engine_find_task(const char *model, const char *asked, int64_t labels,
                              const struct sw_task **out)
{
    const struct sw_model_options as = {.task = asked, .labels = labels};
    int64_t context;
    return look_at(model, &as, out, &context);
}

sw_status sw_engine_find_context(const char *model, int64_t *out)
{
    const struct sw_task *task;
    return look_at(model, NULL, &task, out);
}

static sw_status size_texts(const struct sw_engine_options *o, const struct sw_model *model,
                            struct engine_sizes *out)
{
    const int64_t most = o->inputs.most_tokens > 0 ? o->inputs.most_tokens : SW_DEFAULT_TOKENS;
    out->tokens = o->inputs.seq_len > 0 ? o->inputs.seq_len : sw_min_i64(model->max_tokens, most);
    if (out->tokens > model->max_tokens && !model->is_endless) {
        return SW_FAIL(SW_E_CONFIG, "sequence length %lld: the model has positions for %lld tokens",
                       (long long)out->tokens, (long long)model->max_tokens);
    }
    out->targets = o->inputs.target_len > 0 ? o->inputs.target_len : out->tokens;
    return SW_OK;
}

/* Sets the default limit on generated tokens. */
static sw_status size_generation(struct sw_engine *e)
{
    struct sw_engine_generate *g = &e->options.generate;
    if (g->tokens > e->model->max_tokens && !e->model->is_endless) {
        return SW_FAIL(SW_E_CONFIG,
                       "generation up to %lld tokens: the model has positions for %lld",
                       (long long)g->tokens, (long long)e->model->max_tokens);
    }
    if (g->wanted && g->tokens == 0) {
        g->tokens = sw_model_is_seq2seq(e->model) ? e->sizes.targets : e->sizes.tokens;
    }
    return SW_OK;
}

static sw_status read_source(struct sw_engine *e, const struct sw_engine_options *o)
{
    bool folder = false;
    SW_TRY(sw_engine_read_model(o, &e->source.doc, &folder));
    if (folder) {
        e->source.folder = sw_strdup("engine", o->model.path);
        SW_TRY_ALLOC(e->source.folder, "the model's path");
        SW_TRY(open_weights(e, o));
    }
    return SW_OK;
}

sw_status sw_engine_open_source(struct sw_engine *e)
{
    const struct sw_engine_options *o = &e->options;
    e->source.dtype = SW_F32;
    if (!o->model.path) {
        return o->model.forward ? check_smoothing(e, o)
                                : SW_FAIL(SW_E_ARG, "neither a model nor a forward is given");
    }
    if (o->model.forward) {
        return SW_FAIL(SW_E_ARG, "a model and a forward are both given");
    }
    SW_TRY(read_source(e, o));
    SW_TRY(open_model(e));
    SW_TRY(sw_engine_resolve_tie(e));
    SW_TRY(sw_engine_fit_lora(e));
    if (o->model.task || o->model.labels > 0) {
        SW_TRY(sw_model_put_task(e->model, o->model.labels > 0 ? o->model.label_names : NULL,
                                 e->source.doc));
    }
    SW_TRY(size_texts(o, e->model, &e->sizes));
    if (o->model.vocab_size > e->model->vocab) {
        return SW_FAIL(SW_E_CONFIG,
                       "the tokenizer has %lld tokens and the model a vocabulary of %lld",
                       (long long)o->model.vocab_size, (long long)e->model->vocab);
    }
    SW_TRY(check_task(e, o));
    return size_generation(e);
}

void sw_engine_close_weights(struct engine_source *source)
{
    sw_hf_folder_close(source->weights);
    source->weights = NULL;
}

void sw_engine_close_source(struct sw_engine *e)
{
    sw_model_close(e->model);
    sw_json_close(e->source.doc);
    sw_engine_close_weights(&e->source);
    sw_free(e->source.folder);
}
