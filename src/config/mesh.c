// SPDX-License-Identifier: Apache-2.0
// The keys of the mesh: DeepSpeed's names for sizes that spillway.mesh has, the partition of a
// pipeline, its default schedule. Invariant: two keys that name different meshes are refused.
#include "config/private.h"

#include <string.h>

/* ---- tables ---- */

static const struct config_field mesh_fields[] = {
    INT("pipe", AT(parallel.pipe), "1", 1, HIGHEST, "stages of the pipeline", BUILT),
    INT("tensor", AT(parallel.tensor), "1", 1, HIGHEST,
        "ranks that share each matrix, preferably on one host", BUILT),
    INT("context", AT(parallel.context), "1", 1, HIGHEST,
        "ranks that share each row of tokens, and the heads of attention; they divide both", BUILT),
    INT("expert", AT(parallel.expert), "1", 1, HIGHEST,
        "ranks that share the experts of a layer; each has micro-batches of its own", BUILT),
};
SECTION(sw_config_table_mesh, "spillway.mesh", mesh_fields, SECTION_NULL,
        "ranks along each axis; others form the data axis; the word \"auto\" chooses the sizes");

static const struct config_field tensor_parallel_fields[] = {
    INT("autotp_size", NOWHERE, "0", 0, HIGHEST,
        "ranks that share each matrix, the same as spillway.mesh.tensor; 0 = that key decides",
        BUILT),
    JSON("dtype", "null", "dtype of the model while it is split",
         NEEDLESS("parts have the working dtype")),
    BOOL("tp_overlap_comm", NOWHERE, "false", "overlap exchanges with computation",
         NEEDLESS("zero_optimization.overlap_comm decides it")),
    JSON("tensor_parallel", "null", "tp_size, tp_grain_size, mpu, tp_group", LATER, .alias = "tp"),
    JSON("injection_policy_tuple", "null", "layers to split", LATER),
    JSON("partition_config", "null", "how to split layers", LATER),
    JSON("preset_model", "null", "name of a model whose layers are known", LATER),
    BOOL("keep_module_on_host", NOWHERE, "false", "split the model on the host",
         NEEDLESS("only parts are read")),
    BOOL("replace_with_kernel_inject", NOWHERE, "false", "kernels for inference", LATER,
         .alias = "kernel_inject"),
};
SECTION(sw_config_table_tensor_parallel, "tensor_parallel", tensor_parallel_fields,
        SECTION_MODEL | SECTION_NULL | SECTION_QUIET, "AutoTP: tensor ranks");

/* ---- sizes ---- */

static sw_status refuse_two(const struct sw_config *config, const struct config_entry *theirs,
                            const struct config_entry *ours, const char *what)
{
    struct sw_str text = {0};
    char where[256];
    sw_json_write(theirs->value, 0, &text);
    sw_str_puts(&text, " contradicts ");
    sw_str_printf(&text, "%s ", ours->path);
    sw_json_write(ours->value, 0, &text);
    sw_config_where(config->impl, ours->line, where, sizeof where);
    const sw_status st =
        sw_config_refuse(config->impl, theirs->line, theirs->path, "%s (%s): %s; give one of them",
                         sw_str_text(&text), where, what);
    sw_str_fini(&text);
    return st;
}

/* A size of the mesh, and DeepSpeed's key for it. */
struct size {
    const char *ours, *theirs;
    size_t offset; /* of the size in struct sw_config */
    int64_t unset; /* value of their key that names no size */
};

static sw_status take_size(struct sw_config *config, const struct size *size)
{
    const struct config_entry *theirs = sw_config_find_entry(config, size->theirs);
    struct config_entry *ours = sw_config_find_entry(config, size->ours);
    int64_t *member = (int64_t *)((char *)config + size->offset);
    if (!theirs || theirs->origin == SW_CONFIG_DEFAULT || theirs->value->type != SW_JSON_INT ||
        theirs->value->integer == size->unset) {
        return SW_OK;
    }
    if (config->parallel.is_auto) {
        return sw_config_refuse(config->impl, theirs->line, theirs->path,
                                "%lld contradicts spillway.mesh \"auto\", which chooses it; give "
                                "one of them",
                                (long long)theirs->value->integer);
    }
    if (ours->origin != SW_CONFIG_DEFAULT) {
        return *member == theirs->value->integer
                   ? SW_OK
                   : refuse_two(config, theirs, ours, "these are two different meshes");
    }
    *member = theirs->value->integer;
    ours->value =
        sw_json_put_i64(config->impl->effective, ours->value->parent, ours->field->key, *member);
    SW_TRY_ALLOC(ours->value, "the configuration");
    ours->origin = SW_CONFIG_DERIVED;
    return SW_OK;
}

/* ---- "auto" ---- */

sw_status sw_config_take_auto_mesh(struct sw_config *config)
{
    struct sw_config_impl *impl = config->impl;
    struct sw_json *block = sw_json_get(sw_json_root(impl->given), "spillway");
    const struct sw_json *mesh =
        block && block->type == SW_JSON_OBJECT ? sw_json_get(block, "mesh") : NULL;
    const struct sw_json *data = mesh ? sw_json_get(mesh, "data") : NULL;
    if (data) {
        return sw_config_refuse(impl, data->key_line, "spillway.mesh",
                                "the data axis has no key, as its ranks are those that pipe, "
                                "tensor and context leave; leave \"data\" out");
    }
    if (!mesh || mesh->type != SW_JSON_STRING) {
        return SW_OK;
    }
    if (strcmp(mesh->string, "auto") != 0) {
        return sw_config_refuse(impl, mesh->line, "spillway.mesh",
                                "\"%.80s\" is not \"auto\"; that word, or an object with the sizes "
                                "of pipe, tensor and context, was wanted",
                                mesh->string);
    }
    config->parallel.is_auto = true;
    /* sizes of 1 until they are chosen */
    SW_TRY_ALLOC(sw_json_put(impl->given, block, "mesh", SW_JSON_OBJECT), "the configuration");
    return SW_OK;
}

bool sw_config_fixes_batch(const struct sw_config *config)
{
    return config->impl->given_batch[0] || config->spillway.micro_batches > 0;
}

sw_status sw_config_refuse_mesh(const struct sw_config *config, const char *why)
{
    static const char *const keys[] = {"spillway.mesh.pipe", "spillway.mesh.tensor",
                                       "spillway.mesh.context", "spillway.mesh.expert"};
    const struct sw_parallel_config *p = &config->parallel;
    const int64_t sizes[SW_LEN(keys)] = {p->pipe, p->tensor, p->context, p->expert};
    size_t largest = 0;
    for (size_t i = 1; i < SW_LEN(keys); i++) {
        largest = sizes[i] > sizes[largest] ? i : largest;
    }
    return sw_config_refuse_key(config, keys[largest], why);
}

void sw_config_note_mesh(struct sw_config *config)
{
    static const char *const keys[] = {"spillway.mesh.pipe", "spillway.mesh.tensor",
                                       "spillway.mesh.context"};
    for (size_t i = 0; i < SW_LEN(keys); i++) {
        sw_config_find_entry(config, keys[i])->origin = SW_CONFIG_PLANNED;
    }
    config->impl->chose_mesh = true;
}

/* ---- the partition ---- */

static const char type_prefix[] = "type:";

/* Block numbers ascend from 0; one for each chunk, and the end. The first chunk has the embedding
 * and the last one the head, so these two may have no block. */
static const char *check_bounds(const struct sw_json *list, int64_t n_chunks)
{
    double last = 0;
    int at = 0;
    for (const struct sw_json *item = list->first; item; item = item->next, at++) {
        const bool may_repeat = at <= 1 || !item->next;
        if (item->type != SW_JSON_INT || item->number < last || (at == 0 && item->number != 0) ||
            (item->number == last && !may_repeat)) {
            return "wanted block numbers that ascend from 0, and blocks in all chunks but the "
                   "first and the last one";
        }
        last = item->number;
    }
    return (int64_t)list->n_children == n_chunks + 1
               ? NULL
               : "wanted the first block of each chunk of each stage, and the number of blocks";
}

static sw_status refuse_bounds(const struct sw_config *config, const struct config_entry *entry,
                               const char *why)
{
    const struct sw_parallel_config *p = &config->parallel;
    struct sw_str found = {0};
    sw_json_write(entry->value, 0, &found);
    const sw_status st = sw_config_refuse(
        config->impl, entry->line, entry->path,
        "%s, with %lld stage%s of %lld chunk%s; found %d numbers, %.200s", why, (long long)p->pipe,
        p->pipe == 1 ? "" : "s", (long long)p->chunks, p->chunks == 1 ? "" : "s",
        (int)entry->value->n_children, sw_str_text(&found));
    sw_str_fini(&found);
    return st;
}

static sw_status take_bounds(struct sw_config *config, const struct config_entry *entry)
{
    struct sw_partition_config *out = &config->parallel.partition;
    const struct sw_json *list = entry->value;
    int64_t n_chunks = INT64_MAX;
    sw_mul_i64(config->parallel.pipe, config->parallel.chunks, &n_chunks);
    n_chunks = config->parallel.is_auto ? (int64_t)list->n_children - 1 : n_chunks;
    const char *why = check_bounds(list, n_chunks);
    if (why) {
        return refuse_bounds(config, entry, why);
    }
    double *items = sw_arena_array(&config->impl->arena, (size_t)list->n_children, sizeof *items);
    SW_TRY_ALLOC(items, "the configuration");
    int n = 0;
    for (const struct sw_json *item = list->first; item; item = item->next) {
        items[n++] = item->number;
    }
    out->by = SW_PARTITION_BOUNDS;
    out->bounds = (struct sw_config_numbers){items, n, true};
    return SW_OK;
}

/* Reads the value of one of the two keys. */
static sw_status take_partition(struct sw_config *config, const struct config_entry *entry)
{
    static const char *const names[] = {"time", "parameters", "uniform", "best", "type:REGEX"};
    static const enum sw_partition_by by[] = {SW_PARTITION_TIME, SW_PARTITION_PARAMETERS,
                                              SW_PARTITION_UNIFORM, SW_PARTITION_TIME};
    struct sw_partition_config *out = &config->parallel.partition;
    const struct sw_json *value = entry->value;
    if (value->type == SW_JSON_ARRAY) {
        return take_bounds(config, entry);
    }
    if (value->type != SW_JSON_STRING) {
        return sw_config_refuse(config->impl, entry->line, entry->path,
                                "wanted a word or a list of block numbers, found %s",
                                sw_json_type_name(value->type));
    }
    for (size_t i = 0; i < SW_LEN(by); i++) {
        if (strcmp(value->string, names[i]) == 0) {
            out->by = by[i];
            return SW_OK;
        }
    }
    if (strncmp(value->string, type_prefix, sizeof type_prefix - 1) == 0 &&
        value->string[sizeof type_prefix - 1]) {
        out->by = SW_PARTITION_TYPE;
        out->type = value->string + sizeof type_prefix - 1;
        return SW_OK;
    }
    const char *nearest = sw_nearest(value->string, names, SW_LEN(names));
    return sw_config_refuse(config->impl, entry->line, entry->path,
                            "\"%.80s\" is not \"time\", \"parameters\", \"uniform\", "
                            "\"type:REGEX\" or a list of block numbers%s",
                            value->string, sw_hint(nearest).text);
}

static bool is_best(const struct sw_json *value)
{
    return value->type == SW_JSON_STRING && strcmp(value->string, "best") == 0;
}

static sw_status derive_partition(struct sw_config *config)
{
    const struct config_entry *theirs = sw_config_find_entry(config, "pipeline.partition");
    struct config_entry *ours = sw_config_find_entry(config, "spillway.partition");
    SW_TRY(take_partition(config, ours));
    if (theirs->value->type == SW_JSON_NULL || is_best(theirs->value)) {
        return SW_OK;
    }
    if (ours->origin != SW_CONFIG_DEFAULT) {
        return sw_config_json_equal(theirs->value, ours->value)
                   ? SW_OK
                   : refuse_two(config, theirs, ours, "these are two different partitions");
    }
    SW_TRY(take_partition(config, theirs));
    ours->value = sw_json_put_copy(config->impl->effective, ours->value->parent, ours->field->key,
                                   theirs->value);
    SW_TRY_ALLOC(ours->value, "the configuration");
    ours->origin = SW_CONFIG_DERIVED;
    return SW_OK;
}

/* ---- the whole ---- */

sw_status sw_config_derive_mesh(struct sw_config *config)
{
    static const struct size sizes[] = {
        {"spillway.mesh.pipe", "pipeline.stages", AT(parallel.pipe), SW_CONFIG_AUTO},
        {"spillway.mesh.tensor", "tensor_parallel.autotp_size", AT(parallel.tensor), 0},
        {"spillway.mesh.context", "sequence_parallel_size", AT(parallel.context), 0},
    };
    for (size_t i = 0; i < SW_LEN(sizes); i++) {
        SW_TRY(take_size(config, &sizes[i]));
    }
    if (config->parallel.is_auto) {
        struct sw_json *block = sw_config_find_entry(config, sizes[0].ours)->value->parent->parent;
        SW_TRY_ALLOC(sw_json_put_str(config->impl->effective, block, "mesh", "auto"),
                     "the configuration");
    }
    struct config_entry *schedule = sw_config_find_entry(config, "spillway.schedule");
    if (config->parallel.pipe > 1 && schedule->origin == SW_CONFIG_DEFAULT) {
        config->spillway.schedule = SW_STEP_1F1B;
        schedule->value = sw_json_put_str(config->impl->effective, schedule->value->parent,
                                          schedule->field->key, "1f1b");
        SW_TRY_ALLOC(schedule->value, "the configuration");
        schedule->origin = SW_CONFIG_DERIVED;
    }
    return derive_partition(config);
}
