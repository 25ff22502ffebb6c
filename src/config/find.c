// SPDX-License-Identifier: Apache-2.0
// Looking things up: sections and fields by name, entries by path, and the words of messages.
#include "config/private.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct config_section *const sections[] = {
    &sw_config_table_top,
    &sw_config_table_optimizer,
    &sw_config_table_scheduler,
    &sw_config_table_fp16,
    &sw_config_table_bf16,
    &sw_config_table_data_types,
    &sw_config_table_zero,
    &sw_config_table_offload_param,
    &sw_config_table_offload_optimizer,
    &sw_config_table_leaf_module,
    &sw_config_table_zenflow,
    &sw_config_table_loco,
    &sw_config_table_activation,
    &sw_config_table_aio,
    &sw_config_table_spillway,
    &sw_config_table_mesh,
    &sw_config_table_lora,
    &sw_config_table_preference,
    &sw_config_table_contrastive,
    &sw_config_table_tensor_parallel,
};

const char *sw_config_where(const struct sw_config_impl *impl, int line, char *buf, size_t cap)
{
    if (line == SW_CONFIG_LINE_OF_TRAINER) {
        snprintf(buf, cap, "Trainer's default");
    } else if (line == SW_CONFIG_LINE_OF_PLAN) {
        snprintf(buf, cap, "planned");
    } else if (line > 0) {
        snprintf(buf, cap, "%s:%d", impl->name, line);
    } else if (line < 0 && -line - 1 < impl->n_sets) {
        const char *set = impl->sets[-line - 1], *equals = strchr(set, '=');
        const int key = equals ? (int)(equals - set) : (int)strlen(set);
        const bool flag = key > 0 && set[key - 1] == '?'; /* stands for a flag of the program */
        if (key > 0 && set[key - 1] == ':') { /* a default that depends on the training */
            snprintf(buf, cap, "default of a training");
            return buf;
        }
        const char *before = sw_config_is_fact(set) ? "" : "--set ";
        snprintf(buf, cap, "%s%.*s%s", before, flag ? key - 1 : key, set, equals ? equals : "");
    } else {
        snprintf(buf, cap, "%s", impl->name);
    }
    return buf;
}

sw_status sw_config_refuse(const struct sw_config_impl *impl, int line, const char *path,
                           const char *fmt, ...)
{
    char where[512], text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    sw_config_where(impl, line, where, sizeof where);
    return SW_FAIL(SW_E_CONFIG, "%s: %s%s%s", where, path, *path ? ": " : "", text);
}

bool sw_config_is_set_name(const struct config_field *field, const char *key)
{
    return strcmp(field->key, key) == 0 || (field->alias && strcmp(field->alias, key) == 0);
}

const struct config_section *sw_config_section_at(size_t i)
{
    return i < SW_LEN(sections) ? sections[i] : sw_config_other_tables[i - SW_LEN(sections)];
}

size_t sw_config_n_sections(void)
{
    return SW_LEN(sections) + sw_config_n_other_tables;
}

const struct config_field *sw_config_find_field(const char *section_path, const char *key,
                                                const struct config_section **out_section)
{
    for (size_t i = 0; i < sw_config_n_sections(); i++) {
        const struct config_section *section = sw_config_section_at(i);
        if (strcmp(section->path, section_path) != 0) {
            continue;
        }
        for (size_t j = 0; j < section->n_fields; j++) {
            if (sw_config_is_set_name(&section->fields[j], key)) {
                if (out_section) {
                    *out_section = section;
                }
                return &section->fields[j];
            }
        }
    }
    return NULL;
}

const struct config_section *sw_config_find_section(const char *path)
{
    for (size_t i = 0; i < sw_config_n_sections(); i++) {
        if (strcmp(sw_config_section_at(i)->path, path) == 0) {
            return sw_config_section_at(i);
        }
    }
    return NULL;
}

bool sw_config_is_child(const char *parent, const char *path)
{
    const size_t len = strlen(parent);
    if (*path == '\0' || strncmp(parent, path, len) != 0) {
        return false;
    }
    if (len > 0 && path[len] != '.') {
        return false;
    }
    return strchr(path + len + (len > 0), '.') == NULL;
}

const char *sw_config_leaf(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

const struct config_variant *sw_config_find_variant(const struct config_variant *list, size_t n,
                                                    const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcasecmp(list[i].name, name) == 0) {
            return &list[i];
        }
    }
    return NULL;
}

struct config_entry *sw_config_find_entry(const struct sw_config *config, const char *path)
{
    for (int i = 0; i < config->impl->n_entries; i++) {
        if (strcmp(config->impl->entries[i].path, path) == 0) {
            return &config->impl->entries[i];
        }
    }
    return NULL;
}

sw_status sw_config_refuse_key(const struct sw_config *config, const char *key, const char *why)
{
    const struct config_entry *entry = sw_config_find_entry(config, key);
    return sw_config_refuse(config->impl, entry ? entry->line : 0, key, "%s", why);
}

bool sw_config_choice_is(const struct sw_config *config, const char *path, const char *name)
{
    const struct config_entry *entry = sw_config_find_entry(config, path);
    return entry && entry->value->type == SW_JSON_STRING && strcmp(entry->value->string, name) == 0;
}

bool sw_config_json_equal(const struct sw_json *a, const struct sw_json *b)
{
    const bool both_numbers = (a->type == SW_JSON_INT || a->type == SW_JSON_FLOAT) &&
                              (b->type == SW_JSON_INT || b->type == SW_JSON_FLOAT);
    if (both_numbers) {
        return a->number == b->number;
    }
    if (a->type != b->type) {
        return false;
    }
    if (a->type == SW_JSON_BOOL) {
        return a->boolean == b->boolean;
    }
    if (a->type == SW_JSON_STRING) {
        return a->string_len == b->string_len && memcmp(a->string, b->string, a->string_len) == 0;
    }
    if (a->n_children != b->n_children) {
        return false;
    }
    const struct sw_json *y = b->first;
    for (const struct sw_json *x = a->first; x; x = x->next, y = y->next) {
        const struct sw_json *other = a->type == SW_JSON_OBJECT ? sw_json_get(b, x->key) : y;
        if (!other || !sw_config_json_equal(x, other)) {
            return false;
        }
    }
    return true;
}
