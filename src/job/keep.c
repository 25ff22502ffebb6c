// SPDX-License-Identifier: Apache-2.0
// The files that a run leaves in its folder: checkpoints, the files that accompany the weights, and
// the model.
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "hf/hf.h"
#include "job/training.h"
#include "spillway/checkpoint.h"

/* Writes --resume-from, the validation coverage and the early-stopping count into a checkpoint. */
static sw_status put_state(const struct job *job, struct sw_json_doc *doc)
{
    struct sw_json *root = sw_json_root(doc);
    const char *from = job->options->resume_from;
    bool good = !from || sw_json_put_str(doc, root, "resume_from", from);
    if (job->steps.validated == sw_engine_step(job->engine)) {
        const struct sw_job_coverage coverage = sw_job_validated(job);
        struct sw_json *to = sw_json_put(doc, root, "validation", SW_JSON_OBJECT);
        good = good && to && sw_job_coverage_put(doc, to, &coverage);
    }
    good = good && (job->options->eval_every == 0 || sw_job_patience_put(job, doc, root));
    return good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for a checkpoint");
}

static sw_status tell_state(struct job *job)
{
    struct sw_json_doc *doc = NULL;
    if (!job->leads) {
        return SW_OK;
    }
    SW_TRY(sw_json_new("training", &doc));
    const sw_status st = put_state(job, doc);
    if (st < 0) {
        sw_json_close(doc);
        return st;
    }
    const struct sw_training training = {.lock = job->lock,
                                         .data = sw_json_root(job->data),
                                         .state = sw_json_root(doc),
                                         .allow_other_data = job->options->allow_other_data};
    sw_engine_join_training(job->engine, &training);
    sw_json_close(job->told.state);
    job->told.state = doc;
    return SW_OK;
}

sw_status sw_job_save(struct job *job, bool in_haste)
{
    const int64_t step = sw_engine_step(job->engine);
    if (job->steps.saved == step) {
        return SW_OK;
    }
    if (job->options->eval_every > 0 && job->steps.validated != step && !in_haste) {
        SW_TRY(sw_job_validate(job));
    }
    const enum sw_metric metric = job->task.metric;
    const struct sw_save_options options = {
        .keep_last = (int)sw_min_i64(job->options->keep_last, INT_MAX),
        .val_loss = job->steps.validated == step ? job->val_loss : NAN,
        .metric = job->options->task.metric ? sw_metric_name(metric) : NULL,
        .metric_value = job->steps.validated == step ? job->measure.of[metric] : NAN,
        .metric_falls = metric == SW_METRIC_PERPLEXITY};
    SW_TRY(tell_state(job));
    const sw_status st = sw_save(job->engine, job->options->output, &options);
    if (st < 0) {
        return sw_fail_prefix(st, "saving step %lld", (long long)step);
    }
    job->steps.saved = step;
    return SW_OK;
}

/* Path of OUTPUT/tokenizer, the files that accompany this run's weights. Exports do not depend on
 * the model's folder or the text. */
static sw_status beside_path(const struct job *job, char *path, size_t cap)
{
    const int n = snprintf(path, cap, "%s/tokenizer", job->options->output);
    return n > 0 && (size_t)n < cap ? SW_OK : SW_FAIL(SW_E_ARG, "--output: the path is too long");
}

static bool has_token_types(const struct job *job)
{
    const struct sw_parameters *params = &job->facts.weights->params;
    bool has = false;
    for (int32_t i = 0; i < params->n; ++i) {
        has = has || strstr(params->items[i].work->name, "token_type_embeddings");
    }
    return has;
}

sw_status sw_job_save_beside(const struct job *job)
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
    if (sw_job_is_contrast(job)) { /* takes precedence over the pooling of the base */
        SW_TRY(sw_hf_save_pooling(path, job->facts.weights->model->width,
                                  job->facts.config->spillway.contrastive.pooling == 1));
    }
    if (!job->tokenizer) {
        return SW_OK;
    }
    const char *from = sw_job_tokenizer_path(job->options);
    if (model && from && !sw_hf_is_same_folder(model, from)) {
        sw_tokenizer_remove(path); /* removes the model's, so that only one is there */
    }
    SW_TRY(has_token_types(job) ? sw_tokenizer_keep_types(job->tokenizer) : SW_OK);
    SW_TRY(sw_tokenizer_save(job->tokenizer, path));
    return sw_job_chat_save(&job->chat, path); /* takes precedence over the tokenizer's template */
}

/* Path of OUTPUT/model, or of OUTPUT/adapter if adapters are trained. */
static const char *export_path(const struct job *job, char *path, size_t cap)
{
    snprintf(path, cap, "%s/%s", job->options->output, job->facts.lora ? "adapter" : "model");
    return path;
}

/* A run on the graph of an ONNX file leaves no folder of a family. */
static bool is_graph(const struct job *job)
{
    return !job->facts.lora && sw_onnx_is_import(job->facts.weights->model);
}

/* Only the rank that exports checks or claims the model's folder. */
static sw_status ask_for_folder(const struct job *job,
                                sw_status (*ask)(const char *folder, bool adapter))
{
    char path[4096];
    if (job->options->no_export || !job->leads || is_graph(job)) {
        return SW_OK;
    }
    return ask(export_path(job, path, sizeof path), job->facts.lora);
}

sw_status sw_job_check_model(const struct job *job)
{
    return ask_for_folder(job, sw_weights_check_folder);
}

sw_status sw_job_claim_model(const struct job *job)
{
    return ask_for_folder(job, sw_weights_claim_folder);
}

/* checkpoint: source of the weights, the newest one or the best. */
static sw_status write_card(const char *checkpoint, const char *folder, enum sw_dtype dtype)
{
    struct sw_ckpt *ckpt = NULL;
    const sw_status st = sw_ckpt_open(checkpoint, &ckpt);
    if (st != SW_OK) {
        return st < 0 ? st : SW_FAIL(SW_E_IO, "%s: no complete checkpoint", checkpoint);
    }
    const sw_status written = sw_job_write_card(ckpt, folder, dtype, false);
    sw_ckpt_close(ckpt);
    return written;
}

sw_status sw_job_export_model(struct job *job)
{
    const struct sw_train_options *o = job->options;
    char path[4096], from[4096], beside[4096], note[4608] = "";
    if (is_graph(job)) {
        fprintf(job->out,
                "model: \"spillway export %s%s --onnx DIR\" writes %s with these weights\n",
                o->output, o->export_best ? " --best" : "", o->model);
        return SW_OK;
    }
    export_path(job, path, sizeof path);
    const enum sw_dtype dtype =
        o->export_dtype < 0 ? job->facts.export_dtype : (enum sw_dtype)o->export_dtype;
    snprintf(from, sizeof from, "%s%s", o->output, o->export_best ? "/best" : "");
    if (job->facts.world.size == 1 && !o->export_best) {
        SW_TRY(sw_engine_settle(job->engine));
        SW_TRY(sw_weights_export(sw_engine_weights(job->engine), path, dtype));
    } else {
        SW_TRY(sw_job_export_saved(from, path, dtype, note, sizeof note));
    }
    const char *what = job->facts.lora ? "adapter" : "model";
    SW_TRY(beside_path(job, beside, sizeof beside));
    if (access(beside, R_OK) == 0) {
        sw_tokenizer_remove(path); /* left by an earlier export */
        SW_TRY(sw_hf_copy_sidecars(beside, path));
    }
    SW_TRY(write_card(from, path, dtype));
    if (o->export_best) {
        fprintf(job->out, "%s: %s, of the best checkpoint: %s\n", what, path, note);
    } else {
        fprintf(job->out, "%s: %s\n", what, path);
    }
    return SW_OK;
}
