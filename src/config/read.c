// SPDX-License-Identifier: Apache-2.0
// From text to struct sw_config: parse, rewrite old spellings, apply --set and flags, walk the
// tables, derive what follows from other keys, check combinations.
#include "config/private.h"

#include <stdio.h>
#include <string.h>

/* ---- unknown keys ---- */

enum { MAX_NAMES = 160 };

static void add_name(const char **names, size_t *n, const char *name)
{
    if (name && *n < MAX_NAMES) {
        names[(*n)++] = name;
    }
}

static void add_fields(const char **names, size_t *n, const struct config_section *section)
{
    for (size_t i = 0; i < section->n_fields; i++) {
        add_name(names, n, section->fields[i].key);
        add_name(names, n, section->fields[i].alias);
    }
}

/* Old spellings are gone from the tree by now, but are near names all the same. */
static const char *const old_names[] = {"cpu_offload", "cpu_offload_param", "bfloat16"};

static sw_status unknown_key(const struct sw_config_impl *impl, const char *path,
                             const struct config_section *variant, const struct sw_json *child)
{
    const char *names[MAX_NAMES];
    size_t n = 0;
    if (variant) {
        add_fields(names, &n, variant);
    }
    for (size_t i = 0; !variant && i < sw_config_n_sections(); i++) {
        if (strcmp(sw_config_section_at(i)->path, path) == 0) {
            add_fields(names, &n, sw_config_section_at(i));
        }
        if (sw_config_is_child(path, sw_config_section_at(i)->path)) {
            add_name(names, &n, sw_config_leaf(sw_config_section_at(i)->path));
        }
    }
    for (size_t i = 0; i < SW_LEN(old_names); i++) {
        add_name(names, &n, old_names[i]);
    }
    const char *nearest = sw_nearest(child->key, names, n);
    return sw_config_refuse(impl, child->key_line ? child->key_line : child->line, path,
                            "unknown key \"%.80s\"%s", child->key, sw_hint(nearest).text);
}

/* ---- entries ---- */

static sw_status add_entry(struct sw_config_impl *impl, struct config_entry entry)
{
    if (impl->n_entries == impl->cap_entries) {
        const int cap = impl->cap_entries ? 2 * impl->cap_entries : 256;
        struct config_entry *grown = sw_arena_array(&impl->arena, (size_t)cap, sizeof *grown);
        SW_TRY_ALLOC(grown, "the configuration");
        if (impl->n_entries > 0) {
            memcpy(grown, impl->entries, (size_t)impl->n_entries * sizeof *grown);
        }
        impl->entries = grown;
        impl->cap_entries = cap;
    }
    impl->entries[impl->n_entries++] = entry;
    return SW_OK;
}

/* The member for a row, under either of its names; a model block's "auto" is as good as absent. */
static sw_status given_value(const struct sw_config_impl *impl,
                             const struct config_section *section, const struct config_field *field,
                             const struct sw_json *object, const struct sw_json **out)
{
    const struct sw_json *one = object ? sw_json_get(object, field->key) : NULL;
    const struct sw_json *two = object && field->alias ? sw_json_get(object, field->alias) : NULL;
    if (one && two) {
        return sw_config_refuse(impl, two->line, section->path,
                                "%s and %s are names of the same key, but both are given; give one",
                                field->key, field->alias);
    }
    const struct sw_json *node = one ? one : two;
    *out = node && section->flags & SECTION_MODEL && sw_config_says_auto(node) ? NULL : node;
    return SW_OK;
}

/* The path as the user wrote it, by the key's other name. */
static const char *name_given(struct sw_config_impl *impl, const struct config_section *section,
                              const struct sw_json *node)
{
    return sw_arena_printf(&impl->arena, "%s.%s", section->path, node->key);
}

static sw_status read_field(struct sw_config *config, const struct config_section *section,
                            const struct config_field *field, const struct sw_json *object,
                            struct sw_json *parent)
{
    struct sw_config_impl *impl = config->impl;
    const char *path = section->path[0]
                           ? sw_arena_printf(&impl->arena, "%s.%s", section->path, field->key)
                           : field->key;
    SW_TRY_ALLOC(path, "the configuration");
    const struct sw_json *node = NULL;
    SW_TRY(given_value(impl, section, field, object, &node));
    struct config_entry entry = {section, field, path, NULL, SW_CONFIG_DEFAULT, 0};
    if (node) {
        entry.origin = node->line > 0                            ? SW_CONFIG_FILE
                       : node->line == SW_CONFIG_LINE_OF_PLAN    ? SW_CONFIG_PLANNED
                       : node->line == SW_CONFIG_LINE_OF_TRAINER ? SW_CONFIG_TRAINER
                       : node->line < 0                          ? SW_CONFIG_SET
                                                                 : SW_CONFIG_DERIVED;
        entry.line = node->line;
        const char *shown =
            strcmp(node->key, field->key) == 0 ? path : name_given(impl, section, node);
        SW_TRY_ALLOC(shown, "the configuration");
        SW_TRY(sw_config_convert(config, field, section->flags & SECTION_MODEL, shown, node, parent,
                                 &entry.value));
        return add_entry(impl, entry);
    }
    const bool quiet = field->status == STATUS_GONE || field->flags & FIELD_QUIET;
    if (quiet && !(section->flags & SECTION_ASKS)) {
        return SW_OK; /* an effective configuration stays one that DeepSpeed reads */
    }
    if (field->flags & FIELD_REQUIRED) {
        return sw_config_refuse(impl, object ? object->line : 0, path, "is required");
    }
    struct sw_json_doc *doc;
    SW_TRY(sw_json_parse(path, field->default_json, strlen(field->default_json), SW_JSON_STRICT,
                         &doc));
    const sw_status st =
        sw_config_convert(config, field, false, path, sw_json_root(doc), parent, &entry.value);
    sw_json_close(doc);
    SW_TRY(st);
    return add_entry(impl, entry);
}

static sw_status read_fields(struct sw_config *config, const struct config_section *section,
                             const struct sw_json *object, struct sw_json *parent)
{
    for (size_t i = 0; i < section->n_fields; i++) {
        SW_TRY(read_field(config, section, &section->fields[i], object, parent));
    }
    return SW_OK;
}

/* ---- blocks ---- */

static bool section_has(const struct config_section *section, const char *key)
{
    for (size_t i = 0; i < section->n_fields; i++) {
        if (sw_config_is_set_name(&section->fields[i], key)) {
            return true;
        }
    }
    return false;
}

static bool is_known(const char *path, const char *key)
{
    if (strchr(key, '.')) {
        return false; /* "optimizer.params" is a path, not a key */
    }
    if (sw_config_find_field(path, key, NULL)) {
        return true;
    }
    char child[128];
    snprintf(child, sizeof child, "%s%s%s", path, *path ? "." : "", key);
    const bool variant =
        strcmp(child, "optimizer.params") == 0 || strcmp(child, "scheduler.params") == 0;
    return variant || sw_config_find_section(child);
}

static sw_status check_keys(const struct sw_config_impl *impl, const char *path,
                            const struct config_section *variant, const struct sw_json *object)
{
    for (const struct sw_json *child = object ? object->first : NULL; child; child = child->next) {
        const bool whole = strlen(child->key) == child->key_len;
        if (!whole || !(variant ? section_has(variant, child->key) : is_known(path, child->key))) {
            return unknown_key(impl, path, variant, child);
        }
    }
    return SW_OK;
}

/* NULL in *out when the block is absent, null where that is allowed, or a model block's "auto". */
static sw_status find_block(const struct sw_config_impl *impl, const struct config_section *section,
                            const struct sw_json *node, const struct sw_json **out)
{
    *out = NULL;
    if (!node || (node->type == SW_JSON_NULL && section->flags & SECTION_NULL)) {
        return SW_OK;
    }
    const unsigned switched = SECTION_GATED | SECTION_NULL;
    if ((section->flags & switched) == switched && node->type == SW_JSON_BOOL && !node->boolean) {
        return SW_OK; /* "amp": false */
    }
    if (sw_config_says_auto(node) && section->flags & SECTION_MODEL && strchr(section->path, '.')) {
        return SW_OK;
    }
    if (node->type != SW_JSON_OBJECT) {
        return sw_config_refuse(impl, node->line, section->path, "wanted an object, got %s",
                                sw_json_type_name(node->type));
    }
    *out = node;
    return SW_OK;
}

/* Structs of an optional block that is not there hold its defaults; nothing is printed. */
static sw_status fill_defaults(struct sw_config *config, const struct config_section *section)
{
    struct sw_config_impl *impl = config->impl;
    const int n_before = impl->n_entries;
    struct sw_json_doc *scratch, *effective = impl->effective;
    SW_TRY(sw_json_new("defaults", &scratch));
    impl->effective = scratch;
    const sw_status st = read_fields(config, section, NULL, sw_json_root(scratch));
    impl->effective = effective;
    impl->n_entries = n_before;
    sw_json_close(scratch);
    SW_TRY(st);
    return SW_OK;
}

static sw_status read_block(struct sw_config *config, const struct config_section *section,
                            const struct sw_json *node, struct sw_json *parent);

static sw_status read_children(struct sw_config *config, const char *path,
                               const struct sw_json *object, struct sw_json *parent)
{
    for (size_t i = 0; i < sw_config_n_sections(); i++) {
        const struct config_section *section = sw_config_section_at(i);
        if (sw_config_is_child(path, section->path)) {
            const struct sw_json *node =
                object ? sw_json_get(object, sw_config_leaf(section->path)) : NULL;
            SW_TRY(read_block(config, section, node, parent));
        }
    }
    return SW_OK;
}

static sw_status read_block(struct sw_config *config, const struct config_section *section,
                            const struct sw_json *node, struct sw_json *parent)
{
    struct sw_config_impl *impl = config->impl;
    const struct sw_json *object;
    SW_TRY(find_block(impl, section, node, &object));
    const char *key = sw_config_leaf(section->path);
    if (!object && section->flags & SECTION_QUIET) {
        return SW_OK;
    }
    if (!object && section->flags & SECTION_OPTIONAL) {
        SW_TRY_ALLOC(sw_json_put(impl->effective, parent, key, SW_JSON_NULL), "the configuration");
        return fill_defaults(config, section);
    }
    SW_TRY(check_keys(impl, section->path, NULL, object));
    struct sw_json *mine = sw_json_put(impl->effective, parent, key, SW_JSON_OBJECT);
    SW_TRY_ALLOC(mine, "the configuration");
    SW_TRY(read_fields(config, section, object, mine));
    return read_children(config, section->path, object, mine);
}

/* ---- optimizer and scheduler: `params` depends on `type` ---- */

/* Both kinds in one shape, so that one function reads them. */
struct typed_block {
    const struct config_section *section;
    const struct config_variant *list;
    size_t n_list;
};

/* Params of a type whose rows we do not have. */
static const struct config_field raw_params = {
    .key = "params", .type = FIELD_JSON, .default_json = "null", .help = "kept as they are"};

static sw_status unknown_type(const struct sw_config_impl *impl, const struct typed_block *block,
                              const struct sw_json *type)
{
    const char *names[64];
    size_t n = 0;
    char path[64];
    snprintf(path, sizeof path, "%s.type", block->section->path);
    if (sw_config_says_auto(type) && block->list == sw_config_schedulers) {
        return sw_config_refuse(impl, type->line, path, "\"auto\" needs --lr-scheduler NAME");
    }
    for (; n < block->n_list && n < SW_LEN(names); n++) {
        names[n] = block->list[n].name;
    }
    const char *nearest = sw_nearest(type->string, names, n);
    return sw_config_refuse(impl, type->line, path, "unknown %s \"%.80s\"%s", block->section->path,
                            type->string, sw_hint(nearest).text);
}

static sw_status read_params(struct sw_config *config, const struct typed_block *block,
                             const struct config_variant *variant, const struct sw_json *object,
                             struct sw_json *parent)
{
    struct sw_config_impl *impl = config->impl;
    const struct sw_json *params = object ? sw_json_get(object, "params") : NULL;
    if (!variant->section) {
        return read_field(config, block->section, &raw_params, object, parent);
    }
    const struct sw_json *found;
    SW_TRY(find_block(impl, variant->section, params, &found));
    SW_TRY(check_keys(impl, variant->section->path, variant->section, found));
    struct sw_json *mine = sw_json_put(impl->effective, parent, "params", SW_JSON_OBJECT);
    SW_TRY_ALLOC(mine, "the configuration");
    return read_fields(config, variant->section, found, mine);
}

static sw_status read_typed(struct sw_config *config, const struct typed_block *block,
                            const struct config_variant **out)
{
    struct sw_config_impl *impl = config->impl;
    const struct sw_json *object;
    SW_TRY(find_block(impl, block->section,
                      sw_json_get(sw_json_root(impl->given), block->section->path), &object));
    SW_TRY(check_keys(impl, block->section->path, NULL, object));
    struct sw_json *mine = sw_json_put(impl->effective, sw_json_root(impl->effective),
                                       block->section->path, SW_JSON_OBJECT);
    SW_TRY_ALLOC(mine, "the configuration");
    SW_TRY(read_fields(config, block->section, object, mine));
    *out = NULL;
    const struct sw_json *type = object ? sw_json_get(object, "type") : NULL;
    if (!type || type->type == SW_JSON_NULL) {
        const struct sw_json *params = object ? sw_json_get(object, "params") : NULL;
        if (params) {
            return sw_config_refuse(impl, params->line, block->section->path,
                                    "params are given without a type");
        }
        return SW_OK;
    }
    const struct config_variant *variant =
        sw_config_find_variant(block->list, block->n_list, type->string);
    if (!variant) {
        return unknown_type(impl, block, type);
    }
    *out = variant;
    struct config_entry *entry = NULL;
    for (int i = 0; i < impl->n_entries; i++) {
        if (impl->entries[i].section == block->section &&
            strcmp(impl->entries[i].field->key, "type") == 0) {
            entry = &impl->entries[i];
        }
    }
    entry->value = sw_json_put_str(impl->effective, mine, "type", variant->name);
    SW_TRY_ALLOC(entry->value, "the configuration");
    return read_params(config, block, variant, object, mine);
}

/* ---- what follows from other keys ---- */

static void derive(struct sw_config *config, const char *path, bool value, bool *member)
{
    struct config_entry *entry = sw_config_find_entry(config, path);
    *member = value;
    entry->value =
        sw_json_put_bool(config->impl->effective, entry->value->parent, entry->field->key, value);
    entry->origin = SW_CONFIG_DERIVED;
}

bool sw_config_is_8bit(const struct config_variant *optimizer)
{
    return optimizer &&
           (strcmp(optimizer->name, "Adam8bit") == 0 || strcmp(optimizer->name, "AdamW8bit") == 0);
}

/* Derives settings of Adam from the name of the optimizer. */
static void derive_adam(struct sw_config *config)
{
    const struct config_variant *optimizer = config->impl->optimizer;
    struct config_entry *moments = sw_config_find_entry(config, "spillway.moments");
    if (optimizer && strncmp(optimizer->name, "AdamW", 5) == 0 && !config->optimizer.adam_w_mode) {
        derive(config, "optimizer.params.adam_w_mode", true, &config->optimizer.adam_w_mode);
    }
    if (sw_config_is_8bit(optimizer) && moments->origin == SW_CONFIG_DEFAULT) {
        config->spillway.moments = SW_MOMENTS_8BIT;
        moments->value = sw_json_put_str(config->impl->effective, moments->value->parent,
                                         moments->field->key, "8bit");
        moments->origin = SW_CONFIG_DERIVED;
    }
}

static int dtype_of(const struct sw_config *config, const char *path)
{
    return sw_config_choice_is(config, path, "fp32")   ? SW_F32
           : sw_config_choice_is(config, path, "fp16") ? SW_F16
           : sw_config_choice_is(config, path, "bf16") ? SW_BF16
                                                       : SW_DTYPE_COUNT;
}

/* Ranks of the context axis and of the data axis add gradients in one reduction. */
static void take_communication_dtype(struct sw_config *config)
{
    const int of_context = config->parallel.context > 1
                               ? dtype_of(config, "seq_parallel_communication_data_type")
                               : SW_DTYPE_COUNT;
    config->misc.communication_data_type =
        of_context != SW_DTYPE_COUNT ? of_context : dtype_of(config, "communication_data_type");
}

static bool value_is_true(const struct sw_config *config, const char *path)
{
    const struct config_entry *entry = sw_config_find_entry(config, path);
    return entry && entry->value->type == SW_JSON_BOOL && entry->value->boolean;
}

static sw_status derive_all(struct sw_config *config)
{
    struct sw_config_impl *impl = config->impl;
    if (sw_config_find_entry(config, "zero_optimization.overlap_comm")->value->type ==
        SW_JSON_NULL) {
        derive(config, "zero_optimization.overlap_comm", config->zero.stage == 3,
               &config->zero.overlap_comm);
    }
    if (value_is_true(config, "flops_profiler.enabled") && !config->misc.wall_clock_breakdown) {
        derive(config, "wall_clock_breakdown", true, &config->misc.wall_clock_breakdown);
    }
    derive_adam(config);
    SW_TRY(sw_config_derive_mesh(config));
    take_communication_dtype(config);
    const struct config_entry *warmup =
        sw_config_find_entry(config, "scheduler.params.warmup_type");
    if (warmup) {
        const char *type = warmup->value->string;
        config->scheduler.warmup_type =
            strcmp(type, "linear") == 0 ? SW_WARMUP_LINEAR : SW_WARMUP_LOG;
        if (strcmp(type, "linear") != 0 && strcmp(type, "log") != 0) {
            sw_log(SW_LOG_WARN, "unknown scheduler.params.warmup_type \"%.40s\"; log is used",
                   type);
        }
    }
    const char *const batch[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                 "gradient_accumulation_steps"};
    for (int i = 0; i < 3; i++) {
        impl->given_batch[i] = sw_config_find_entry(config, batch[i])->value->type == SW_JSON_INT;
    }
    impl->batch = config->batch;
    return impl->plans_micro_batch ? sw_config_open_micro_batch(config) : SW_OK;
}

/* ---- the whole ---- */

static sw_status read_all(struct sw_config *config)
{
    struct sw_config_impl *impl = config->impl;
    const struct sw_json *root = sw_json_root(impl->given);
    struct sw_json *top = sw_json_root(impl->effective);
    SW_TRY(check_keys(impl, "", NULL, root));
    SW_TRY(sw_config_take_auto_mesh(config));
    for (size_t i = 0; i < sw_config_n_sections(); i++) {
        const struct config_section *section = sw_config_section_at(i);
        if (section->path[0] == '\0') {
            SW_TRY(read_fields(config, section, root, top));
        }
    }
    const struct typed_block optimizer = {&sw_config_table_optimizer, sw_config_optimizers,
                                          sw_config_n_optimizers};
    const struct typed_block scheduler = {&sw_config_table_scheduler, sw_config_schedulers,
                                          sw_config_n_schedulers};
    SW_TRY(read_typed(config, &optimizer, &impl->optimizer));
    SW_TRY(read_typed(config, &scheduler, &impl->scheduler));
    config->optimizer.type =
        impl->optimizer ? (enum sw_optimizer_type)impl->optimizer->type : SW_OPTIMIZER_NONE;
    config->optimizer.name = impl->optimizer ? impl->optimizer->name : NULL;
    config->scheduler.type =
        impl->scheduler ? (enum sw_scheduler_type)impl->scheduler->type : SW_SCHEDULER_NONE;
    config->scheduler.name = impl->scheduler ? impl->scheduler->name : NULL;
    for (size_t i = 0; i < sw_config_n_sections(); i++) {
        const struct config_section *section = sw_config_section_at(i);
        if (sw_config_is_child("", section->path) && section != &sw_config_table_optimizer &&
            section != &sw_config_table_scheduler) {
            SW_TRY(read_block(config, section, sw_json_get(root, section->path), top));
        }
    }
    SW_TRY(derive_all(config));
    return sw_config_check(config);
}

static sw_status prepare(struct sw_config_impl *impl)
{
    if (sw_json_root(impl->given)->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_CONFIG, "%s: wanted an object, got %s", impl->name,
                       sw_json_type_name(sw_json_root(impl->given)->type));
    }
    SW_TRY(sw_config_modernise(impl));
    for (int i = 0; i < impl->n_sets; i++) {
        SW_TRY(sw_config_apply_set(impl, i));
    }
    SW_TRY(impl->n_sets > 0 ? sw_config_modernise(impl) : SW_OK);
    return sw_config_fill_auto(impl);
}

static sw_status keep_sets(struct sw_config_impl *impl, const char *const *sets, int n_sets)
{
    impl->sets = sw_arena_array(&impl->arena, (size_t)n_sets + 1, sizeof *impl->sets);
    SW_TRY_ALLOC(impl->sets, "the configuration");
    for (int i = 0; i < n_sets; i++) {
        impl->sets[i] = sw_arena_strdup(&impl->arena, sets[i]);
        SW_TRY_ALLOC(impl->sets[i], "the configuration");
    }
    impl->n_sets = n_sets;
    return SW_OK;
}

/* Takes the document, also when it fails. */
static sw_status open_config(struct sw_json_doc *given, const char *const *sets, int n_sets,
                             struct sw_config **out)
{
    sw_status st = SW_OK;
    struct sw_config *config = sw_alloc_zero("config", 1, sizeof *config);
    struct sw_config_impl *impl = sw_alloc_zero("config", 1, sizeof *impl);
    if (!config || !impl) {
        sw_free(config);
        sw_free(impl);
        sw_json_close(given);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the configuration");
    }
    config->impl = impl;
    impl->given = given;
    sw_arena_init(&impl->arena, "config");
    impl->name = sw_arena_strdup(&impl->arena, sw_json_name(given));
    if (!impl->name) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the configuration");
        goto close_config;
    }
    SW_TRY_OR(close_config, keep_sets(impl, sets, n_sets));
    SW_TRY_OR(close_config, sw_json_new(impl->name, &impl->effective));
    SW_TRY_OR(close_config, prepare(impl));
    SW_TRY_OR(close_config, read_all(config));
    *out = config;
    return SW_OK;
close_config:
    sw_config_close(config);
    return st;
}

sw_status sw_config_load(const char *path, const char *const *sets, int n_sets,
                         struct sw_config **out)
{
    struct sw_json_doc *given;
    SW_TRY(sw_json_read(path, SW_JSON_TOLERANT, &given));
    return open_config(given, sets, n_sets, out);
}

sw_status sw_config_parse(const char *name, const char *text, size_t len, const char *const *sets,
                          int n_sets, struct sw_config **out)
{
    struct sw_json_doc *given;
    SW_TRY(sw_json_parse(name, text, len, SW_JSON_TOLERANT, &given));
    return open_config(given, sets, n_sets, out);
}

void sw_config_close(struct sw_config *config)
{
    if (!config) {
        return;
    }
    sw_json_close(config->impl->given);
    sw_json_close(config->impl->effective);
    sw_arena_fini(&config->impl->arena);
    sw_free(config->impl);
    sw_free(config);
}
