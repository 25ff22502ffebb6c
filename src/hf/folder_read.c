// SPDX-License-Identifier: Apache-2.0
// hf/folder_read - a model folder as one list of tensors over one file or several.

#include "hf/private.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef sw_status open_fn(const char *path, struct sw_safetensors **out);

struct sw_hf_folder {
    struct sw_arena arena;
    open_fn *open; /* opens a file */
    struct sw_safetensors **shards;
    int64_t n_shards;
    const struct sw_safetensor **by_name;
    int64_t n;
};

static bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

/* ---- the index ---- */

/* The shards are files of this folder, whatever the index says. */
static bool is_plain_name(const struct sw_json *value)
{
    return value->type == SW_JSON_STRING && value->string_len > 0 &&
           strlen(value->string) == value->string_len && !strchr(value->string, '/') &&
           !strchr(value->string, '\\') && strcmp(value->string, ".") != 0 &&
           strcmp(value->string, "..") != 0;
}

/* The open shard `name`; files maps the names seen so far to their number. */
static sw_status shard_of(struct sw_hf_folder *folder, const char *path, struct sw_json_doc *files,
                          const char *name, const struct sw_safetensors **out)
{
    struct sw_json *known = sw_json_get(sw_json_root(files), name);
    if (!known) {
        char *file = sw_hf_join(path, name);
        SW_TRY_ALLOC(file, path);
        const sw_status st = folder->open(file, &folder->shards[folder->n_shards]);
        sw_free(file);
        SW_TRY(st);
        known = sw_json_put_i64(files, sw_json_root(files), name, folder->n_shards++);
        SW_TRY_ALLOC(known, path);
    }
    *out = folder->shards[known->integer];
    return SW_OK;
}

static void warn_unmapped(const struct sw_hf_folder *folder, const struct sw_json *map)
{
    for (int64_t i = 0; i < folder->n_shards; i++) {
        for (int64_t t = 0; t < sw_safetensors_count(folder->shards[i]); t++) {
            const struct sw_safetensor *tensor = sw_safetensors_at(folder->shards[i], t);
            if (!sw_json_get(map, tensor->name)) {
                sw_log(SW_LOG_WARN, "%s: tensor \"%s\" is not in the index and is left out",
                       tensor->file, tensor->name);
            }
        }
    }
}

static sw_status read_map(struct sw_hf_folder *folder, const char *path, const char *index_path,
                          const struct sw_json *map, struct sw_json_doc *files)
{
    folder->shards =
        sw_arena_array(&folder->arena, (size_t)map->n_children + 1, sizeof(*folder->shards));
    folder->by_name =
        sw_arena_array(&folder->arena, (size_t)map->n_children + 1, sizeof(*folder->by_name));
    SW_TRY_ALLOC(folder->shards && folder->by_name, path);
    for (const struct sw_json *m = map->first; m; m = m->next) {
        if (!is_plain_name(m)) {
            return SW_FAIL(SW_E_FORMAT,
                           "%s:%d:%d: the file of tensor \"%s\" must be a plain file name",
                           index_path, m->line, m->column, m->key);
        }
        const struct sw_safetensors *shard = NULL;
        SW_TRY(shard_of(folder, path, files, m->string, &shard));
        const struct sw_safetensor *tensor = sw_safetensors_find(shard, m->key);
        if (!tensor) {
            return SW_FAIL(SW_E_FORMAT, "%s:%d:%d: tensor \"%s\" is not in %s", index_path,
                           m->key_line, m->key_column, m->key, m->string);
        }
        folder->by_name[folder->n++] = tensor;
    }
    warn_unmapped(folder, map);
    return SW_OK;
}

static sw_status open_sharded(struct sw_hf_folder *folder, const char *path, const char *index_path)
{
    struct sw_json_doc *index = NULL;
    struct sw_json_doc *files = NULL;
    SW_TRY(sw_json_read(index_path, SW_JSON_STRICT, &index));
    sw_status st = sw_json_new("shards", &files);
    if (st == SW_OK) {
        const struct sw_json *map = sw_json_get(sw_json_root(index), "weight_map");
        st = map && map->type == SW_JSON_OBJECT
                 ? read_map(folder, path, index_path, map, files)
                 : SW_FAIL(SW_E_FORMAT, "%s: weight_map must be an object", index_path);
    }
    sw_json_close(files);
    sw_json_close(index);
    SW_TRY(st);
    return SW_OK;
}

/* ---- one file ---- */

static sw_status open_single(struct sw_hf_folder *folder, const char *path, const char *file)
{
    (void)path;
    folder->shards = sw_arena_array(&folder->arena, 1, sizeof(*folder->shards));
    SW_TRY_ALLOC(folder->shards, file);
    SW_TRY(folder->open(file, &folder->shards[0]));
    folder->n_shards = 1;
    folder->n = sw_safetensors_count(folder->shards[0]);
    folder->by_name =
        sw_arena_array(&folder->arena, (size_t)folder->n + 1, sizeof(*folder->by_name));
    SW_TRY_ALLOC(folder->by_name, file);
    for (int64_t i = 0; i < folder->n; i++) {
        folder->by_name[i] = sw_safetensors_at(folder->shards[0], i);
    }
    return SW_OK;
}

bool sw_hf_folder_has_weights(const char *path)
{
    static const char *const names[] = {SW_HF_SINGLE, SW_HF_INDEX, SW_HF_PICKLED,
                                        SW_HF_PICKLED_INDEX};
    bool any = false;
    for (size_t i = 0; i < SW_LEN(names) && !any; i++) {
        char *file = sw_hf_join(path, names[i]);
        any = !file || exists(file); /* out of memory: opening will say so */
        sw_free(file);
    }
    return any;
}

/* As other readers do, safetensors go before pickles, and the single file before shards. */
static sw_status open_files(struct sw_hf_folder *folder, const char *path)
{
    static const struct {
        const char *name;
        sw_status (*open)(struct sw_hf_folder *folder, const char *path, const char *file);
        open_fn *file;
    } kinds[] = {{SW_HF_SINGLE, open_single, sw_safetensors_open},
                 {SW_HF_INDEX, open_sharded, sw_safetensors_open},
                 {SW_HF_PICKLED, open_single, sw_pickled_open},
                 {SW_HF_PICKLED_INDEX, open_sharded, sw_pickled_open}};
    for (size_t i = 0; i < SW_LEN(kinds); i++) {
        char *file = sw_hf_join(path, kinds[i].name);
        SW_TRY_ALLOC(file, path);
        const bool is_there = exists(file);
        folder->open = kinds[i].file;
        const sw_status st = is_there ? kinds[i].open(folder, path, file) : SW_OK;
        sw_free(file);
        SW_TRY(st);
        if (is_there) {
            qsort(folder->by_name, (size_t)folder->n, sizeof(*folder->by_name),
                  sw_hf_compare_names);
            return SW_OK;
        }
    }
    return SW_FAIL(SW_E_IO, "%s: no " SW_HF_SINGLE ", no " SW_HF_INDEX " and no " SW_HF_PICKLED,
                   path);
}

sw_status sw_hf_folder_open(const char *path, struct sw_hf_folder **out)
{
    struct sw_hf_folder *folder = sw_alloc_zero("hf", 1, sizeof(*folder));
    SW_TRY_ALLOC(folder, path);
    sw_arena_init(&folder->arena, "hf");
    const sw_status st = open_files(folder, path);
    if (st < 0) {
        sw_hf_folder_close(folder);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    *out = folder;
    return SW_OK;
}

void sw_hf_folder_close(struct sw_hf_folder *folder)
{
    if (!folder) {
        return;
    }
    for (int64_t i = 0; i < folder->n_shards; i++) {
        sw_safetensors_close(folder->shards[i]);
    }
    sw_arena_fini(&folder->arena);
    sw_free(folder);
}

int64_t sw_hf_folder_count(const struct sw_hf_folder *folder)
{
    return folder->n;
}

const struct sw_safetensor *sw_hf_folder_at(const struct sw_hf_folder *folder, int64_t i)
{
    return folder->by_name[i];
}

const struct sw_safetensor *sw_hf_folder_find(const struct sw_hf_folder *folder, const char *name)
{
    return sw_hf_find_by_name(folder->by_name, folder->n, name);
}
