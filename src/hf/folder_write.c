// SPDX-License-Identifier: Apache-2.0
// hf/folder_write - the weights of a model folder, cut into shards, and their index.
//
// Every file is replaced whole. The set of files is not: where shards of the same names are
// replaced, a crash between two of them leaves a mix, so a folder that matters is written beside
// the old one.

#include "hf/private.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_SHARD_BYTES INT64_C(5000000000)

struct shard {
    char name[64];
    struct sw_safetensors_writer *writer;
};

struct sw_hf_folder_writer {
    struct sw_arena arena;
    const char *path;
    int64_t n_specs, n_shards;
    const char **names;   /* [n_specs] */
    int64_t *shard_of;    /* [n_specs] */
    int64_t *first_of;    /* [n_shards + 1] first spec of each shard: they are consecutive */
    struct shard *shards; /* [n_shards] */
    int64_t total_bytes, total_elems;
};

static sw_status spec_bytes(const char *path, const struct sw_safetensor_spec *spec, int64_t *out)
{
    if (spec->dtype >= SW_DTYPE_COUNT ||
        !sw_shape_check(&spec->shape, sw_dtype_bytes(spec->dtype))) {
        return SW_FAIL(SW_E_ARG, "%s: tensor \"%s\" has a shape or dtype that cannot be written",
                       path, spec->name);
    }
    *out = sw_shape_elems(&spec->shape) * (int64_t)sw_dtype_bytes(spec->dtype);
    return SW_OK;
}

/* Fills shards greedily in the order of specs. */
static sw_status cut(struct sw_hf_folder_writer *w, const struct sw_safetensor_spec *specs,
                     int64_t max_shard_bytes)
{
    int64_t filled = 0;
    w->n_shards = 1;
    for (int64_t i = 0; i < w->n_specs; i++) {
        int64_t bytes = 0;
        SW_TRY(spec_bytes(w->path, &specs[i], &bytes));
        if (filled > 0 && bytes > max_shard_bytes - filled) {
            w->first_of[w->n_shards++] = i;
            filled = 0;
        }
        if (!sw_add_i64(w->total_bytes, bytes, &w->total_bytes)) {
            return SW_FAIL(SW_E_ARG, "%s: more bytes than files can hold", w->path);
        }
        w->total_elems += sw_shape_elems(&specs[i].shape);
        filled += bytes;
        w->shard_of[i] = w->n_shards - 1;
        w->names[i] = sw_arena_strdup(&w->arena, specs[i].name);
        SW_TRY_ALLOC(w->names[i], w->path);
    }
    w->first_of[w->n_shards] = w->n_specs;
    return SW_OK;
}

static sw_status open_shard(struct sw_hf_folder_writer *w, const struct sw_safetensor_spec *specs,
                            int64_t i_shard)
{
    struct shard *shard = &w->shards[i_shard];
    if (w->n_shards == 1) {
        snprintf(shard->name, sizeof(shard->name), SW_HF_SINGLE);
    } else {
        snprintf(shard->name, sizeof(shard->name), "model-%05lld-of-%05lld.safetensors",
                 (long long)i_shard + 1, (long long)w->n_shards);
    }
    const int64_t first = w->first_of[i_shard];
    char *file = sw_hf_join(w->path, shard->name);
    SW_TRY_ALLOC(file, w->path);
    const sw_status st = sw_safetensors_create(
        file, specs + first, w->first_of[i_shard + 1] - first, NULL, &shard->writer);
    sw_free(file);
    SW_TRY(st);
    return SW_OK;
}

static sw_status start(struct sw_hf_folder_writer *w, const char *path,
                       const struct sw_safetensor_spec *specs, int64_t max_shard_bytes)
{
    w->path = sw_arena_strdup(&w->arena, path);
    SW_TRY_ALLOC(w->path, path);
    const size_t n = (size_t)w->n_specs;
    w->names = sw_arena_array(&w->arena, n + 1, sizeof(*w->names));
    w->shard_of = sw_arena_array(&w->arena, n + 1, sizeof(*w->shard_of));
    w->first_of = sw_arena_array(&w->arena, n + 2, sizeof(*w->first_of));
    SW_TRY_ALLOC(w->names && w->shard_of && w->first_of, w->path);
    SW_TRY(sw_mkdirs(w->path));
    SW_TRY(cut(w, specs, max_shard_bytes > 0 ? max_shard_bytes : DEFAULT_SHARD_BYTES));
    w->shards = sw_arena_array(&w->arena, (size_t)w->n_shards, sizeof(*w->shards));
    SW_TRY_ALLOC(w->shards, w->path);
    for (int64_t i = 0; i < w->n_shards; i++) {
        SW_TRY(open_shard(w, specs, i));
    }
    return SW_OK;
}

sw_status sw_hf_folder_create(const char *path, const struct sw_safetensor_spec *specs,
                              int64_t n_specs, int64_t max_shard_bytes,
                              struct sw_hf_folder_writer **out)
{
    sw_status st;
    struct sw_hf_folder_writer *w = sw_alloc_zero("hf", 1, sizeof(*w));
    SW_TRY_ALLOC(w, path);
    sw_arena_init(&w->arena, "hf");
    w->n_specs = n_specs;
    SW_TRY_OR(close, start(w, path, specs, max_shard_bytes));
    *out = w;
    return SW_OK;
close:
    sw_hf_folder_writer_close(w);
    return st;
}

sw_status sw_hf_folder_write(struct sw_hf_folder_writer *writer, int64_t i_spec, size_t offset,
                             const void *data, size_t bytes)
{
    SW_TRY(sw_hf_check_tensor(writer->path, i_spec, writer->n_specs));
    const int64_t i_shard = writer->shard_of[i_spec];
    SW_TRY(sw_safetensors_write(writer->shards[i_shard].writer, i_spec - writer->first_of[i_shard],
                                offset, data, bytes));
    return SW_OK;
}

/* ---- commit ---- */

/* The weight map in order of name, as other writers have it. */
static sw_status fill_index(const struct sw_hf_folder_writer *w, struct sw_json_doc *index)
{
    struct sw_json *root = sw_json_root(index);
    struct sw_json *metadata = sw_json_put(index, root, "metadata", SW_JSON_OBJECT);
    struct sw_json *map = sw_json_put(index, root, "weight_map", SW_JSON_OBJECT);
    bool ok = metadata && map &&
              sw_json_put_i64(index, metadata, "total_parameters", w->total_elems) &&
              sw_json_put_i64(index, metadata, "total_size", w->total_bytes);
    const size_t n = (size_t)w->n_specs;
    struct sw_safetensor *entries = sw_alloc_zero("hf", n, sizeof(*entries));
    const struct sw_safetensor **by_name = sw_alloc_zero("hf", n, sizeof(*by_name));
    ok = ok && entries && by_name;
    if (ok) {
        for (int64_t i = 0; i < w->n_specs; i++) {
            entries[i].name = w->names[i];
            entries[i].file = w->shards[w->shard_of[i]].name;
            by_name[i] = &entries[i];
        }
        qsort(by_name, n, sizeof(*by_name), sw_hf_compare_names);
        for (size_t i = 0; i < n && ok; i++) {
            ok = sw_json_put_str(index, map, by_name[i]->name, by_name[i]->file);
        }
    }
    sw_free(by_name);
    sw_free(entries);
    return ok ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for the index of %s", w->path);
}

static sw_status write_index(const struct sw_hf_folder_writer *w)
{
    struct sw_json_doc *index = NULL;
    SW_TRY(sw_json_new(SW_HF_INDEX, &index));
    struct sw_str text = {0};
    char *file = sw_hf_join(w->path, SW_HF_INDEX);
    sw_status st = fill_index(w, index);
    if (st == SW_OK) {
        sw_json_write(sw_json_root(index), 2, &text);
        sw_str_putc(&text, '\n');
        st = file ? sw_file_write_str(file, &text)
                  : SW_FAIL(SW_E_NOMEM, "out of host memory for the index of %s", w->path);
    }
    sw_free(file);
    sw_str_fini(&text);
    sw_json_close(index);
    SW_TRY(st);
    return SW_OK;
}

/* model.safetensors, its index, or model-00001-of-00004.safetensors; or what `export --onnx` or an
 * export of adapters writes. */
static bool is_weights(const char *name)
{
    static const char *const whole[] = {SW_HF_SINGLE,
                                        SW_HF_INDEX,
                                        "model.onnx",
                                        "model.onnx.data",
                                        "encoder_model.onnx",
                                        "encoder_model.onnx.data",
                                        "decoder_model.onnx",
                                        "decoder_model.onnx.data",
                                        "adapter_model.safetensors",
                                        "adapter_config.json"};
    int i = 0, n = 0, end = -1;
    for (size_t k = 0; k < SW_LEN(whole); k++) {
        if (strcmp(name, whole[k]) == 0) {
            return true;
        }
    }
    return sscanf(name, "model-%5d-of-%5d.safetensors%n", &i, &n, &end) == 2 && end >= 0 &&
           name[end] == '\0';
}

static bool is_ours(const struct sw_hf_folder_writer *w, const char *name)
{
    if (w->n_shards > 1 && strcmp(name, SW_HF_INDEX) == 0) {
        return true;
    }
    for (int64_t i = 0; i < w->n_shards; i++) {
        if (strcmp(w->shards[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Readers prefer model.safetensors, so an old one would hide new shards. An ONNX file would be of
 * another model, and readers would add an adapter to this one. */
static sw_status remove_stale(const struct sw_hf_folder_writer *w)
{
    DIR *dir = opendir(w->path);
    if (!dir) {
        return SW_FAIL(SW_E_IO, "cannot list %s: %s", w->path, strerror(errno));
    }
    sw_status st = SW_OK;
    const struct dirent *entry;
    while (st == SW_OK && (entry = readdir(dir)) != NULL) {
        if (is_weights(entry->d_name) && !is_ours(w, entry->d_name) &&
            (sw_fault_fails("unlink", NULL) || unlinkat(dirfd(dir), entry->d_name, 0) != 0)) {
            st = SW_FAIL(SW_E_IO, "cannot remove %s/%s: %s", w->path, entry->d_name,
                         strerror(errno));
        }
    }
    closedir(dir);
    return st;
}

sw_status sw_hf_folder_commit(struct sw_hf_folder_writer *writer)
{
    for (int64_t i = 0; i < writer->n_shards; i++) {
        SW_TRY(sw_safetensors_commit(writer->shards[i].writer));
    }
    if (writer->n_shards > 1) {
        SW_TRY(write_index(writer));
    }
    SW_TRY(remove_stale(writer));
    SW_TRY(sw_hf_sync_folder(writer->path));
    return SW_OK;
}

void sw_hf_folder_writer_close(struct sw_hf_folder_writer *writer)
{
    if (!writer) {
        return;
    }
    for (int64_t i = 0; writer->shards && i < writer->n_shards; i++) {
        sw_safetensors_writer_close(writer->shards[i].writer);
    }
    sw_arena_fini(&writer->arena);
    sw_free(writer);
}
