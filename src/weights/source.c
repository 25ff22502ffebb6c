// SPDX-License-Identifier: Apache-2.0
// Sources of a model: a folder, a file or a preset. Reads the description and opens the model for
// the requested task. values.c reads the weights once there is a plan.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weights/private.h"

/* A plan needs no weights: without them the head is as config.json says. */
static sw_status open_files(struct sw_weights *w, const struct sw_engine_options *o)
{
    if (o->plan.only && !sw_hf_folder_has_weights(o->model.path)) {
        return SW_OK;
    }
    return sw_hf_folder_open(o->model.path, &w->source.files);
}

sw_status sw_weights_open_model(struct sw_json_doc *doc, const struct sw_model_options *options,
                                struct sw_model **out)
{
    return sw_onnx_source(sw_json_root(doc)) ? sw_onnx_model_open(doc, options, out)
                                             : sw_model_open(doc, options, out);
}

/* Opens the model by config.json and the options, replacing a model that is already open. */
static sw_status open_model(struct sw_weights *w)
{
    const struct sw_model_options options = {.task = w->options->model.task,
                                             .labels = w->options->model.labels,
                                             .has_pad_id = w->options->model.has_pad_id,
                                             .pad_id = w->options->model.pad_id};
    sw_model_close(w->model);
    w->model = NULL;
    return sw_weights_open_model(w->source.doc, &options, &w->model);
}

sw_status sw_weights_tie(struct sw_weights *w, bool tied)
{
    struct sw_json_doc *doc = w->source.doc;
    struct sw_json *root = sw_json_root(doc);
    const char *scale_key = w->model->scale_key; /* its default may depend on the tie */
    if (!sw_json_put_bool(doc, root, "tie_word_embeddings", tied) ||
        (scale_key && !sw_json_put_bool(doc, root, scale_key, w->model->scales_head))) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for config.json");
    }
    return open_model(w);
}

/* Adds the path of an ONNX file to the config.json beside it. */
static sw_status read_onnx(const char *path, struct sw_json_doc **out)
{
    char whole[PATH_MAX];
    if (!realpath(path, whole)) {
        return SW_FAIL(SW_E_IO, "cannot read %s: %s", path, strerror(errno));
    }
    SW_TRY(sw_hf_read_config(path, out));
    if (!sw_json_put_str(*out, sw_json_root(*out), SW_ONNX_KEY, whole)) {
        sw_json_close(*out);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for config.json");
    }
    return SW_OK;
}

/* The ONNX file that a path stands for: itself, or model.onnx of a folder without other weights. */
static bool find_onnx(const char *path, char *out, size_t cap)
{
    const bool folder = sw_is_folder(path);
    const int n = snprintf(out, cap, folder ? "%s/model.onnx" : "%s", path);
    return n > 0 && (size_t)n < cap && sw_onnx_is_file(out) && access(out, R_OK) == 0 &&
           !(folder && sw_hf_folder_has_weights(path));
}

/* Reads config.json of a folder, a file or a preset. *out_folder: true for a folder. */
sw_status sw_weights_read_model(const struct sw_engine_options *o, struct sw_json_doc **out,
                                bool *out_folder)
{
    struct stat st;
    if (*o->model.path == '{') { /* the text itself, for plans */
        *out_folder = false;
        return sw_json_parse("the model", o->model.path, strlen(o->model.path), SW_JSON_STRICT,
                             out);
    }
    SW_TRY(sw_model_check_path(o->model.path));
    if (sw_model_is_preset(o->model.path) && stat(o->model.path, &st) != 0) {
        *out_folder = false;
        return sw_model_preset(o->model.path, o->model.vocab_size, o->inputs.seq_len, out);
    }
    char onnx[4096];
    if (find_onnx(o->model.path, onnx, sizeof onnx)) {
        *out_folder = false;
        return read_onnx(onnx, out);
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
    SW_TRY(sw_weights_read_model(&options, &doc, &folder));
    const sw_status st = sw_weights_open_model(doc, as, &opened);
    if (st >= 0) {
        *out_task = opened->task;
        *out_context = opened->max_tokens;
    }
    sw_model_close(opened);
    sw_json_close(doc);
    return st;
}

sw_status sw_weights_find_task(const char *model, const char *asked, int64_t labels,
                               const struct sw_task **out)
{
    const struct sw_model_options as = {.task = asked, .labels = labels};
    int64_t context;
    return look_at(model, &as, out, &context);
}

sw_status sw_weights_find_context(const char *model, int64_t *out)
{
    const struct sw_task *task;
    return look_at(model, NULL, &task, out);
}

static sw_status read_source(struct sw_weights *w, const struct sw_engine_options *o)
{
    bool folder = false;
    SW_TRY(sw_weights_read_model(o, &w->source.doc, &folder));
    if (folder) {
        w->source.folder = sw_strdup("engine", o->model.path);
        SW_TRY_ALLOC(w->source.folder, "the model's path");
        SW_TRY(open_files(w, o));
    }
    const char *onnx = sw_onnx_source(sw_json_root(w->source.doc));
    if (onnx) {
        w->source.folder = sw_strdup("engine", onnx);
        SW_TRY_ALLOC(w->source.folder, "the model's path");
        *strrchr(w->source.folder, '/') = '\0';
    }
    return SW_OK;
}

static sw_status put_padding(const struct sw_weights *w)
{
    struct sw_json_doc *doc = w->source.doc;
    const bool put = !w->model->has_other_pad ||
                     sw_json_put_i64(doc, sw_json_root(doc), "pad_token_id", w->model->pad_id);
    return put ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for config.json");
}

sw_status sw_weights_open(struct sw_weights *w)
{
    const struct sw_engine_options *o = w->options;
    SW_TRY(read_source(w, o));
    SW_TRY(open_model(w));
    SW_TRY(sw_weights_resolve_tie(w));
    SW_TRY(sw_weights_fit_lora(w));
    SW_TRY(sw_weights_open_quantizer(w));
    SW_TRY(put_padding(w));
    return (o->model.task || o->model.labels > 0) && !sw_onnx_is_import(w->model)
               ? sw_model_put_task(w->model, o->model.labels > 0 ? o->model.label_names : NULL,
                                   w->source.doc)
               : SW_OK;
}

void sw_weights_close_files(struct sw_weights *w)
{
    sw_hf_folder_close(w->source.files);
    w->source.files = NULL;
}

void sw_weights_close_source(struct sw_weights *w)
{
    sw_model_close(w->model);
    sw_json_close(w->source.doc);
    sw_weights_close_files(w);
    sw_free(w->source.folder);
}

/* ---- the model's hidden size ---- */

/* The hidden size under transformers' own names; such a config.json may describe a model that is
 * not supported here. */
static int64_t said_size(const struct sw_json *config)
{
    const struct sw_json *one = sw_json_get(config, "hidden_size");
    const struct sw_json *all = one ? NULL : sw_json_get(config, "hidden_sizes");
    int64_t largest = one && one->type == SW_JSON_INT ? one->integer : 0;
    for (const struct sw_json *of = all ? all->first : NULL; of; of = of->next) {
        largest = of->type == SW_JSON_INT ? sw_max_i64(largest, of->integer) : largest;
    }
    return largest;
}

sw_status sw_model_hidden_size(const char *model, int64_t *out)
{
    struct sw_json_doc *doc = NULL;
    struct sw_model *opened = NULL;
    bool folder;
    SW_TRY(sw_weights_read_model(&(struct sw_engine_options){.model.path = model}, &doc, &folder));
    int64_t size = said_size(sw_json_root(doc));
    sw_status st = SW_OK;
    if (size < 1) {
        st = sw_weights_open_model(doc, NULL, &opened);
        size = st >= 0 ? opened->width : 0;
        sw_model_close(opened);
    }
    sw_json_close(doc);
    SW_TRY(st);
    if (size < 1) {
        return SW_FAIL(SW_E_CONFIG, "%s: the model has no hidden size", model);
    }
    *out = size;
    return SW_OK;
}
