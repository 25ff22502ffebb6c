// SPDX-License-Identifier: Apache-2.0
// Exports Hugging Face folders, from open weights or directly from a checkpoint. Tensors pass
// through one buffer of fixed size, so a model larger than memory can be exported. A non-empty
// folder is written to only if it has the marker of an earlier export: a user's model is never
// overwritten.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "weights/private.h"

enum { PIECE = 1 << 18 }; /* elements */

static const char mark[] = ".spillway-export";
static const char adapter_file[] = "adapter_model.safetensors";

/* ---- ownership of a folder ---- */

/* Temporary files of the marker do not count: a claim that was killed leaves one, and the next
 * claim removes it. Nothing else is written before the marker has its name. */
static sw_status is_empty(const char *folder, bool *out)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    if (!dir) {
        return SW_FAIL(SW_E_IO, "cannot list %s: %s", folder, strerror(errno));
    }
    *out = true;
    while (*out && (entry = readdir(dir))) {
        *out = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
               sw_output_is_temp(entry->d_name, mark);
    }
    closedir(dir);
    return SW_OK;
}

static sw_status mark_path(const char *folder, char *path, size_t cap)
{
    const int n = snprintf(path, cap, "%s/%s", folder, mark);
    return n > 0 && (size_t)n < cap ? SW_OK : SW_FAIL(SW_E_ARG, "%s: the path is too long", folder);
}

sw_status sw_weights_check_folder(const char *folder, bool adapter)
{
    char path[4096];
    bool empty = true;
    SW_TRY(mark_path(folder, path, sizeof path));
    /* The weights stay, because they may be the base of the adapters. */
    if (adapter && sw_is_folder(folder) && sw_hf_folder_has_weights(folder)) {
        return SW_FAIL(SW_E_ARG,
                       "%s has weights of a model; name another folder, since readers would add "
                       "the adapters to that model",
                       folder);
    }
    if (access(folder, F_OK) != 0 || access(path, F_OK) == 0) {
        return SW_OK;
    }
    SW_TRY(is_empty(folder, &empty));
    if (!empty) {
        return SW_FAIL(
            SW_E_ARG,
            "%s is not empty and is not an export of spillway; name another folder, or empty "
            "this one",
            folder);
    }
    return SW_OK;
}

/* The marker appears atomically. Its text is for people. */
sw_status sw_weights_claim_folder(const char *folder, bool adapter)
{
    static const char text[] = "An export of spillway: the next one may replace what is here.\n";
    char path[4096];
    SW_TRY(sw_weights_check_folder(folder, adapter));
    SW_TRY(mark_path(folder, path, sizeof path));
    SW_TRY(sw_mkdirs(folder));
    return sw_file_write_atomic(path, text, sizeof text - 1);
}

/* ---- weights ---- */

/* Fetches elements [first, first + n) of tensor i as f32. */
typedef sw_status (*fetch_fn)(void *ctx, int64_t i, int64_t first, int64_t n, float *out);

struct listing {
    sw_comm *comm;    /* of ranks that fetch together, of which the first one writes; NULL = one */
    const char *file; /* single file that holds all tensors; NULL: a model's files */
    struct sw_safetensor_spec *specs;
    int64_t n;
    fetch_fn fetch;
    void *ctx;
};

/* Either a folder or a single file. */
struct writer {
    struct sw_hf_folder_writer *folder;
    struct sw_safetensors_writer *file;
};

static sw_status open_writer(const char *folder, const struct listing *list, struct writer *out)
{
    char path[4096];
    if (!list->file) {
        return sw_hf_folder_create(folder, list->specs, list->n, 0, &out->folder);
    }
    snprintf(path, sizeof path, "%s/%s", folder, list->file);
    return sw_safetensors_create(path, list->specs, list->n, NULL, &out->file);
}

/* True on the rank that writes. */
static bool leads(sw_comm *comm)
{
    return !comm || sw_comm_rank(comm) == 0;
}

static sw_status agree(sw_comm *comm, sw_status st)
{
    return comm ? sw_comm_agree(comm, st, "exporting a model") : st;
}

static sw_status write_piece(const struct writer *writer, const struct sw_safetensor_spec *spec,
                             int64_t i, int64_t first, int64_t n, const float *piece, void *narrow)
{
    const size_t bytes = sw_dtype_bytes(spec->dtype);
    const void *src = piece;
    if (spec->dtype != SW_F32) {
        sw_convert(spec->dtype, narrow, SW_F32, piece, n);
        src = narrow;
    }
    const size_t at = (size_t)first * bytes, len = (size_t)n * bytes;
    return writer->file ? sw_safetensors_write(writer->file, i, at, src, len)
                        : sw_hf_folder_write(writer->folder, i, at, src, len);
}

/* Ranks go on after a failure up to the end of the tensor, where they agree. */
static sw_status write_tensor(const struct writer *writer, const struct listing *list, int64_t i,
                              float *piece, void *narrow)
{
    const struct sw_safetensor_spec *spec = &list->specs[i];
    const int64_t elems = sw_shape_elems(&spec->shape);
    sw_status st = SW_OK;
    for (int64_t first = 0; first < elems && (st >= 0 || list->comm); first += PIECE) {
        const int64_t n = sw_min_i64(elems - first, PIECE);
        const sw_status fetched = list->fetch(list->ctx, i, first, n, piece);
        st = st < 0 ? st : fetched;
        st = st < 0 || !leads(list->comm) ? st
                                          : write_piece(writer, spec, i, first, n, piece, narrow);
    }
    return agree(list->comm, st);
}

static sw_status write_weights(const char *folder, const struct listing *list)
{
    struct writer writer = {0};
    float *piece = sw_alloc("export", PIECE * sizeof *piece);
    void *narrow = sw_alloc("export", PIECE * sizeof *piece);
    sw_status st =
        piece && narrow ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for an export");
    st = st < 0 || !leads(list->comm) ? st : open_writer(folder, list, &writer);
    st = agree(list->comm, st);
    for (int64_t i = 0; i < list->n && st >= 0; i++) {
        sw_work_at("writing the model", i, list->n);
        st = write_tensor(&writer, list, i, piece, narrow);
    }
    if (st >= 0 && leads(list->comm)) {
        st = writer.file ? sw_safetensors_commit(writer.file) : sw_hf_folder_commit(writer.folder);
    }
    sw_work_end();
    sw_hf_folder_writer_close(writer.folder);
    sw_safetensors_writer_close(writer.file);
    sw_free(piece);
    sw_free(narrow);
    return st;
}

/* The dtype is under the key that it uses: "dtype" since
 * transformers 5, "torch_dtype" before. */
sw_status sw_weights_write_config(const char *folder, const struct sw_json *config,
                                  enum sw_dtype dtype)
{
    const char *name = dtype == SW_F32 ? "float32" : dtype == SW_BF16 ? "bfloat16" : "float16";
    struct sw_json_doc *doc = NULL;
    struct sw_str text = {0};
    char path[4096];
    SW_TRY(sw_json_new("config.json", &doc));
    struct sw_json *root = sw_json_root(doc);
    sw_status st = SW_OK;
    for (const struct sw_json *c = config->first; c && st >= 0; c = c->next) {
        if (!sw_json_put_copy(doc, root, c->key, c)) {
            st = SW_FAIL(SW_E_NOMEM, "out of host memory for config.json");
        }
    }
    const char *key = sw_json_get(config, "torch_dtype") ? "torch_dtype" : "dtype";
    if (st >= 0 && !sw_json_put_str(doc, root, key, name)) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for config.json");
    }
    if (st >= 0) {
        sw_json_write(root, 2, &text);
        sw_str_putc(&text, '\n');
        snprintf(path, sizeof path, "%s/config.json", folder);
        st = sw_file_write_str(path, &text);
    }
    sw_str_fini(&text);
    sw_json_close(doc);
    return st;
}

static sw_status write_adapter_config(const char *folder, const struct sw_json *config)
{
    struct sw_str text = {0};
    char path[4096];
    sw_json_write(config, 2, &text);
    sw_str_putc(&text, '\n');
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    const sw_status st = sw_file_write_str(path, &text);
    sw_str_fini(&text);
    return st;
}

static sw_status check_dtype(enum sw_dtype dtype)
{
    if (dtype != SW_F32 && dtype != SW_BF16 && dtype != SW_F16) {
        return SW_FAIL(SW_E_ARG, "weights are exported as f32, bf16 or f16, not %s",
                       sw_dtype_name(dtype));
    }
    return SW_OK;
}

/* Refuses the graph of an ONNX file, whose weights no family reads from a folder. */
static sw_status refuse_graph(const struct sw_json *config)
{
    const char *file = sw_onnx_source(config);
    return !file ? SW_OK
                 : SW_FAIL(SW_E_ARG,
                           "the model is the graph of %s, which has no family: \"spillway export\" "
                           "with --onnx DIR writes it with its new weights",
                           file);
}

/* ---- from open weights ---- */

struct masters_of {
    struct sw_weights *weights;
    const struct sw_parameter **params; /* [n] parameter of tensor i */
    struct sw_arena names;              /* names of adapter tensors */
    struct sw_collect collect;
};

static sw_status fetch_master(void *ctx, int64_t i, int64_t first, int64_t n, float *out)
{
    const struct masters_of *m = ctx;
    return sw_weights_collect(m->weights, m->params[i], first, n, &m->collect, out);
}

/* Writes adapter_config.json, the same as for a checkpoint. */
static sw_status write_adapter_of(const struct sw_weights *w, const char *folder)
{
    struct sw_json_doc *run = NULL;
    SW_TRY(sw_json_new("adapter_config.json", &run));
    sw_status st = sw_weights_put_lora(w, run, sw_json_root(run))
                       ? write_adapter_config(folder, sw_json_get(sw_json_root(run), "adapter"))
                       : SW_FAIL(SW_E_NOMEM, "out of host memory for an adapter");
    sw_json_close(run);
    return st;
}

/* Name in the exported file: PEFT's for an adapter, else the name that the parameter was read
 * under. */
static const char *name_of(struct masters_of *m, const struct sw_parameter *param)
{
    char name[600];
    if (m->weights->lora) {
        const bool wrapped = sw_weights_is_adapted(m->weights, param->work->name);
        return sw_arena_strdup(&m->names,
                               sw_adapter_name(param->work->name, wrapped, name, sizeof name));
    }
    return param->file_name ? param->file_name : param->work->name;
}

/* Lists the tensors to export: those that are trained, so with adapters not the frozen base. The
 * arrays of `list` and of its context must have room for all parameters. */
static sw_status list_params(struct sw_weights *w, enum sw_dtype dtype, struct listing *list)
{
    struct masters_of *m = list->ctx;
    for (int32_t i = 0; i < w->params.n; i++) {
        const struct sw_parameter *param = &w->params.items[i];
        if (sw_weights_keeps(w, param->work->name)) {
            m->params[list->n] = param;
            list->specs[list->n] =
                (struct sw_safetensor_spec){name_of(m, param), dtype, param->work->layout.whole};
            SW_TRY_ALLOC(list->specs[list->n].name, "an export");
            list->n++;
        }
    }
    return SW_OK;
}

static sw_status open_list(struct sw_weights *w, enum sw_dtype dtype, struct listing *list)
{
    struct masters_of *m = list->ctx;
    const size_t most = (size_t)w->params.n + 1;
    sw_arena_init(&m->names, "export");
    m->params = sw_alloc_zero("export", most, sizeof *m->params);
    list->specs = sw_alloc_zero("export", most, sizeof *list->specs);
    bool good = m->params && list->specs;
    if (list->comm) {
        m->collect.comm = list->comm;
        m->collect.runs = sw_alloc("export", PIECE * sizeof *m->collect.runs);
        m->collect.values = sw_alloc("export", PIECE * sizeof *m->collect.values);
        good = good && m->collect.runs && m->collect.values;
    }
    return good ? list_params(w, dtype, list)
                : SW_FAIL(SW_E_NOMEM, "out of host memory for an export");
}

static void close_list(struct listing *list)
{
    struct masters_of *m = list->ctx;
    sw_free(m->params);
    sw_free(m->collect.runs);
    sw_free(m->collect.values);
    sw_free(list->specs);
    sw_arena_fini(&m->names);
}

/* The files that the first rank writes after the weights. */
static sw_status write_beside(struct sw_weights *w, const char *folder, enum sw_dtype dtype,
                              bool with_sidecars)
{
    SW_TRY(w->lora ? write_adapter_of(w, folder)
                   : sw_weights_write_config(folder, sw_json_root(w->source.doc), dtype));
    if (!with_sidecars) {
        return SW_OK;
    }
    SW_TRY(sw_hf_remove_card(folder));
    return w->source.folder && !w->lora ? sw_hf_copy_sidecars(w->source.folder, folder) : SW_OK;
}

static sw_status export_all(struct sw_weights *w, sw_comm *comm, const char *folder,
                            enum sw_dtype dtype, bool with_sidecars)
{
    if (!w->model) {
        return SW_FAIL(SW_E_ARG, "sw_export: a forward of your own has no config.json");
    }
    SW_TRY(w->lora ? SW_OK : refuse_graph(sw_json_root(w->source.doc)));
    dtype = dtype == SW_DTYPE_COUNT ? w->source.dtype : dtype;
    SW_TRY(check_dtype(dtype));
    comm = comm && sw_comm_size(comm) > 1 ? comm : NULL;
    struct masters_of m = {.weights = w};
    struct listing list = {
        .comm = comm, .fetch = fetch_master, .ctx = &m, .file = w->lora ? adapter_file : NULL};
    sw_status st = open_list(w, dtype, &list);
    st = st < 0 || !leads(comm) ? st : sw_weights_claim_folder(folder, w->lora != NULL);
    st = agree(comm, st);
    st = st < 0 ? st : write_weights(folder, &list);
    st = st < 0 || !leads(comm) ? st : write_beside(w, folder, dtype, with_sidecars);
    close_list(&list);
    return agree(comm, st);
}

sw_status sw_weights_export(struct sw_weights *w, const char *folder, enum sw_dtype dtype)
{
    return export_all(w, NULL, folder, dtype, false);
}

sw_status sw_weights_export_folder(struct sw_weights *w, sw_comm *comm, const char *folder,
                                   enum sw_dtype dtype)
{
    return export_all(w, comm, folder, dtype, true);
}

/* ---- from a checkpoint ---- */

struct masters {
    struct sw_ckpt *ckpt;
    int64_t *index; /* [n] entry for tensor i */
};

static sw_status fetch_checkpoint(void *ctx, int64_t i, int64_t first, int64_t n, float *out)
{
    const struct masters *m = ctx;
    return sw_ckpt_read_flat(m->ckpt, m->index[i], first, n, SW_F32, out);
}

/* Name of a parameter in the folder that the run's model came from. */
static const char *name_in_file(const struct sw_json *names, const char *name)
{
    const struct sw_json *other = names ? sw_json_get(names, name) : NULL;
    return other && other->type == SW_JSON_STRING ? other->string : name;
}

/* The model's original dtype, if the checkpoint records it. */
static enum sw_dtype dtype_of(const struct sw_json *as)
{
    const struct sw_json *name = as ? sw_json_get(as, "dtype") : NULL;
    enum sw_dtype dtype = SW_F32;
    return name && name->type == SW_JSON_STRING && sw_dtype_parse(name->string, &dtype) ? dtype
                                                                                        : SW_F32;
}

/* Descriptions that go with exported weights. */
struct exported {
    const struct sw_json *model;   /* config.json */
    const struct sw_json *names;   /* names of tensors in the model's folder, if they differ */
    const struct sw_json *adapter; /* adapter_config.json; NULL if the model itself is exported */
};

static sw_status look_at(struct sw_ckpt *ckpt, struct exported *out, enum sw_dtype *dtype)
{
    const struct sw_json *run = sw_ckpt_meta(ckpt)->config;
    const struct sw_json *as = run ? sw_json_get(run, "export") : NULL;
    out->model = run ? sw_json_get(run, "model") : NULL;
    out->adapter = run ? sw_json_get(run, "adapter") : NULL;
    out->names = as ? sw_json_get(as, "names") : NULL;
    if (out->model && out->model->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_FORMAT, "%s: its \"model\" is %s, wanted an object", sw_ckpt_path(ckpt),
                       sw_json_type_name(out->model->type));
    }
    if (!out->model) {
        return SW_FAIL(SW_E_FORMAT, "%s: it was saved by a model without a config.json",
                       sw_ckpt_path(ckpt));
    }
    SW_TRY(out->adapter ? SW_OK : refuse_graph(out->model));
    *dtype = *dtype == SW_DTYPE_COUNT ? dtype_of(as) : *dtype;
    return check_dtype(*dtype);
}

static sw_status list_masters(const struct exported *x, enum sw_dtype dtype, struct sw_arena *names,
                              struct listing *list)
{
    const struct masters *m = list->ctx;
    for (int64_t i = 0; i < sw_ckpt_n_tensors(m->ckpt); i++) {
        const struct sw_ckpt_entry *entry = sw_ckpt_entry(m->ckpt, i);
        char full[600];
        if (strcmp(entry->kind, "master") != 0) {
            continue;
        }
        const bool wrapped = sw_adapter_beside_bias(entry->param, full, sizeof full) &&
                             sw_ckpt_find(m->ckpt, full, "master") >= 0;
        const char *name =
            x->adapter
                ? sw_arena_strdup(names, sw_adapter_name(entry->param, wrapped, full, sizeof full))
                : name_in_file(x->names, entry->param);
        SW_TRY_ALLOC(name, "an export");
        m->index[list->n] = i;
        list->specs[list->n++] = (struct sw_safetensor_spec){name, dtype, entry->shape};
    }
    return SW_OK;
}

sw_status sw_weights_export_checkpoint(struct sw_ckpt *ckpt, const char *folder,
                                       enum sw_dtype *dtype)
{
    struct exported x;
    struct sw_arena names;
    SW_TRY(look_at(ckpt, &x, dtype));
    SW_TRY(sw_weights_claim_folder(folder, x.adapter != NULL));
    const size_t most = (size_t)sw_ckpt_n_tensors(ckpt) + 1;
    struct masters m = {.ckpt = ckpt, .index = sw_alloc_zero("export", most, sizeof *m.index)};
    struct listing list = {.fetch = fetch_checkpoint,
                           .ctx = &m,
                           .file = x.adapter ? adapter_file : NULL,
                           .specs = sw_alloc_zero("export", most, sizeof *list.specs)};
    sw_arena_init(&names, "export");
    sw_status st = m.index && list.specs ? list_masters(&x, *dtype, &names, &list)
                                         : SW_FAIL(SW_E_NOMEM, "out of host memory for an export");
    st = st < 0 ? st : write_weights(folder, &list);
    st = st < 0      ? st
         : x.adapter ? write_adapter_config(folder, x.adapter)
                     : sw_weights_write_config(folder, x.model, *dtype);
    sw_arena_fini(&names);
    sw_free(m.index);
    sw_free(list.specs);
    return st;
}

/* ---- adapters merged ---- */

static sw_status fetch_merged(void *ctx, int64_t i, int64_t first, int64_t n, float *out)
{
    return sw_merge_fetch(ctx, i, first, n, out);
}

sw_status sw_weights_export_merged(struct sw_merge *merge, const char *folder, enum sw_dtype *dtype)
{
    *dtype = *dtype == SW_DTYPE_COUNT ? sw_merge_dtype(merge) : *dtype;
    SW_TRY(check_dtype(*dtype));
    SW_TRY(sw_weights_claim_folder(folder, false));
    struct listing list = {.n = sw_merge_n(merge), .fetch = fetch_merged, .ctx = merge};
    list.specs = sw_alloc_zero("export", (size_t)list.n + 1, sizeof *list.specs);
    SW_TRY_ALLOC(list.specs, "an export");
    for (int64_t i = 0; i < list.n; i++) {
        list.specs[i] = sw_merge_spec(merge, i);
        list.specs[i].dtype = *dtype;
    }
    sw_status st = write_weights(folder, &list);
    sw_free(list.specs);
    st = st < 0 ? st : sw_weights_write_config(folder, sw_merge_config(merge), *dtype);
    return st < 0 ? st : sw_hf_copy_sidecars(sw_merge_base(merge), folder);
}
