// SPDX-License-Identifier: Apache-2.0
// Models as ONNX files: opens a source (a folder, a checkpoint, or a base with adapters), and
// writes the files of the room onnx with those that accompany a model.
#include <stdio.h>
#include <string.h>

#include "engine/private.h"

/* A source that is open: the model, its configuration, and its values. */
struct source {
    const struct sw_model *model;
    const struct sw_json *config;
    struct sw_named_values values;
    const char *beside; /* folder of the files that accompany it; NULL = none */
};

/* file: of the folder, describes the model */
static sw_status write_case(struct source *source, const char *file,
                            const struct sw_engine_onnx *options)
{
    char config[4096];
    const int n = snprintf(config, sizeof config, "%s/%s", options->folder, file);
    if (n < 0 || (size_t)n >= sizeof config) {
        return SW_FAIL(SW_E_ARG, "%s: the path is too long", options->folder);
    }
    return sw_engine_write_case(source->model, config, &source->values, options->case_path);
}

/* The config.json that was beside an ONNX file; none if there was none. */
static sw_status write_config_beside(const struct source *source, const char *folder)
{
    struct sw_json_doc *doc = NULL;
    struct sw_str text = {0};
    char path[4096];
    SW_TRY(sw_json_new("config.json", &doc));
    sw_status st = SW_OK;
    for (const struct sw_json *c = source->config->first; c && st >= 0; c = c->next) {
        if (strcmp(c->key, SW_ONNX_KEY) != 0 &&
            !sw_json_put_copy(doc, sw_json_root(doc), c->key, c)) {
            st = SW_FAIL(SW_E_NOMEM, "out of host memory for config.json");
        }
    }
    if (st >= 0 && sw_json_root(doc)->n_children > 0) {
        sw_json_write(sw_json_root(doc), 2, &text);
        sw_str_putc(&text, '\n');
        snprintf(path, sizeof path, "%s/config.json", folder);
        st = sw_file_write_str(path, &text);
    }
    sw_str_fini(&text);
    sw_json_close(doc);
    return st;
}

/* The file that the model is the graph of, with the weights of the source. */
static sw_status write_graph(struct source *source, const struct sw_engine_onnx *options,
                             struct sw_onnx_summary *out)
{
    const struct sw_onnx_values values = {.fetch = sw_named_values_fetch, .ctx = &source->values};
    const bool same = source->values.folder != NULL;
    if (options->is_asked) {
        return SW_FAIL(SW_E_ARG, "%s keeps its opset and dtypes: leave --opset and --dtype out",
                       sw_onnx_source(source->config));
    }
    SW_TRY(sw_weights_claim_folder(options->folder, false));
    SW_TRY(source->beside ? sw_hf_copy_sidecars(source->beside, options->folder) : SW_OK);
    SW_TRY(write_config_beside(source, options->folder));
    SW_TRY(sw_onnx_model_write(source->model, same ? NULL : &values, options->folder, out));
    return options->case_path ? write_case(source, out->files[0], options) : SW_OK;
}

static sw_status write_source(struct source *source, const struct sw_engine_onnx *options,
                              struct sw_onnx_summary *out)
{
    const struct sw_onnx_export_options to = {
        .model = source->model,
        .values = {.fetch = sw_named_values_fetch, .ctx = &source->values},
        .folder = options->folder,
        .dtype = options->dtype,
        .opset = options->opset,
    };
    if (sw_is_folder(options->folder) && sw_hf_folder_has_weights(options->folder)) {
        return SW_FAIL(SW_E_ARG,
                       "%s has weights of a model; name another folder, since an ONNX file beside "
                       "them would be of another model",
                       options->folder);
    }
    if (sw_onnx_is_import(source->model)) {
        return write_graph(source, options, out);
    }
    SW_TRY(sw_weights_claim_folder(options->folder, false));
    SW_TRY(source->beside ? sw_hf_copy_sidecars(source->beside, options->folder) : SW_OK);
    SW_TRY(sw_weights_write_config(options->folder, source->config, options->dtype));
    SW_TRY(sw_onnx_export(&to, out));
    return options->case_path ? write_case(source, "config.json", options) : SW_OK;
}

sw_status sw_engine_onnx_folder(const char *model, const struct sw_engine_onnx *options,
                                struct sw_onnx_summary *out)
{
    const struct sw_engine_options engine = {.model = {.path = model, .task = options->task}};
    struct sw_weights w = {.options = &engine};
    sw_status st = sw_weights_open(&w);
    if (st >= 0 && !w.source.files && !sw_onnx_is_import(w.model)) {
        st = SW_FAIL(SW_E_ARG, "%s: it has no weights; wanted a folder with some", model);
    }
    if (st >= 0) {
        struct source source = {
            w.model, sw_json_root(w.source.doc), {.folder = &w}, w.source.folder};
        st = write_source(&source, options, out);
    }
    sw_weights_close(&w);
    return st;
}

static sw_status write_merged(struct sw_engine_merge *m, const struct sw_engine_onnx *options,
                              struct sw_onnx_summary *out)
{
    struct source source = {m->engine->weights.model,
                            sw_merge_config(m->merge),
                            {.merge = m->merge},
                            sw_merge_base(m->merge)};
    const sw_status st = write_source(&source, options, out);
    sw_engine_close_merge(m);
    return st;
}

sw_status sw_engine_onnx_adapter(const char *adapter, const char *base,
                                 const struct sw_engine_onnx *options, struct sw_onnx_summary *out)
{
    struct sw_engine_merge m = {0};
    SW_TRY(sw_engine_open_merge(adapter, base, &m));
    return write_merged(&m, options, out);
}

sw_status sw_engine_onnx_checkpoint(struct sw_ckpt *ckpt, const char *base,
                                    const struct sw_engine_onnx *options,
                                    struct sw_onnx_summary *out)
{
    struct sw_engine_merge m = {0};
    struct sw_json_doc *doc = NULL;
    struct sw_model *model = NULL;
    if (sw_weights_has_adapter(ckpt)) {
        SW_TRY(sw_engine_open_merge_of(ckpt, base, &m));
        return write_merged(&m, options, out);
    }
    SW_TRY(sw_weights_checkpoint_config(ckpt, &doc));
    const struct sw_model_options as = {.task = options->task};
    if (base && sw_onnx_is_file(base) && sw_onnx_source(sw_json_root(doc)) &&
        !sw_json_put_str(doc, sw_json_root(doc), SW_ONNX_KEY, base)) {
        sw_json_close(doc);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for config.json");
    }
    sw_status st = sw_weights_open_model(doc, &as, &model);
    if (st >= 0) {
        struct source source = {model, sw_json_root(doc), {.ckpt = ckpt}, NULL};
        st = write_source(&source, options, out);
    }
    sw_model_close(model);
    sw_json_close(doc);
    return st;
}
