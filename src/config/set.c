// SPDX-License-Identifier: Apache-2.0
// --set a.b=1: an edit of the JSON tree before it is read, so that there is one reader and one set
// of messages. Blocks on the way are made; another name of the same key gives way. Two more forms
// are the program's: "a.b?=1" of a flag that means the same as the key, "a.b:=1" of a default that
// depends on what is trained. What begins with "--" is no edit, but a flag of trainer.c.
#include "config/private.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

void sw_config_mark(struct sw_json *node, int line)
{
    node->line = node->key_line = line;
    node->column = node->key_column = 0;
    for (struct sw_json *child = node->first; child; child = child->next) {
        sw_config_mark(child, line);
    }
}

/* The field's other name, when the file uses it, would make two values of one key. So would the
 * block that a deprecated flag stands for. */
static void drop_other_name(struct sw_json *parent, const char *block, const char *key)
{
    const struct config_field *field = sw_config_find_field(block, key, NULL);
    const char *name = sw_config_block_of_flag(block, key);
    if (!name && field && field->alias) {
        name = strcmp(key, field->key) == 0 ? field->alias : field->key;
    }
    struct sw_json *other = name ? sw_json_get(parent, name) : NULL;
    if (other) {
        sw_json_remove(parent, other);
    }
}

static sw_status put(struct sw_config_impl *impl, struct sw_json *parent, const char *key,
                     const char *text, struct sw_json **out)
{
    struct sw_json_doc *doc;
    if (sw_json_parse("--set", text, strlen(text), SW_JSON_STRICT, &doc) == SW_OK) {
        *out = sw_json_put_copy(impl->given, parent, key, sw_json_root(doc));
        sw_json_close(doc);
    } else {
        *out = sw_json_put_str(impl->given, parent, key, text);
    }
    SW_TRY_ALLOC(*out, "--set");
    return SW_OK;
}

/* Whether the text stands for a value: as JSON, or else as a string. */
static bool is_value(const char *text, const struct sw_json *value)
{
    struct sw_json_doc *doc;
    if (sw_json_parse("--set", text, strlen(text), SW_JSON_STRICT, &doc) != SW_OK) {
        return value->type == SW_JSON_STRING && strcmp(value->string, text) == 0;
    }
    const bool same = sw_config_json_equal(value, sw_json_root(doc));
    sw_json_close(doc);
    return same;
}

/* "key?=value" comes from a flag of the program that means the same as the key: the file and --set
 * may leave it out or say the same, but not something else. */
static sw_status check_agrees(const struct sw_config_impl *impl, const struct sw_json *parent,
                              const char *path, const char *key, const char *value)
{
    const struct sw_json *given = sw_json_get(parent, key);
    const bool ours = strncmp(path, "spillway.", 9) == 0; /* whose "auto" is a value of its own */
    if (!given || given->line == 0 || (!ours && sw_config_says_auto(given))) {
        return SW_OK;
    }
    struct sw_str text = {0};
    char place[256], block[256];
    snprintf(block, sizeof block, "%.*s", (int)(strlen(path) - strlen(key)), path);
    block[*block ? strlen(block) - 1 : 0] = '\0'; /* the dot */
    const struct config_field *field = sw_config_find_field(block, key, NULL);
    sw_json_write(given, 0, &text);
    const char *said = given->type == SW_JSON_STRING ? given->string : sw_str_text(&text);
    int64_t bytes[2];
    const bool is_name = given->type == SW_JSON_STRING && strcmp(key, "type") == 0;
    const bool same = is_value(value, given) ||
                      (is_name && strcasecmp(given->string, value) == 0) ||
                      (field && field->type == FIELD_BYTES && !sw_parse_bytes(said, &bytes[0]) &&
                       !sw_parse_bytes(value, &bytes[1]) && bytes[0] == bytes[1]);
    const sw_status st = same ? SW_OK
                              : SW_FAIL(SW_E_CONFIG, "%s: %s is %s, but the flag says %s; give one",
                                        sw_config_where(impl, given->line, place, sizeof place),
                                        path, sw_str_text(&text), value);
    sw_str_fini(&text);
    return st;
}

sw_status sw_config_apply_set(struct sw_config_impl *impl, int i_set)
{
    const char *set = impl->sets[i_set];
    if (sw_config_is_fact(set)) {
        return SW_OK; /* trainer.c handles it after all edits */
    }
    const char *equals = strchr(set, '=');
    if (!equals || equals == set) {
        return SW_FAIL(SW_E_CONFIG, "--set %s: wanted KEY=VALUE, such as fp16.enabled=true", set);
    }
    char *path = sw_arena_strndup(&impl->arena, set, (size_t)(equals - set));
    SW_TRY_ALLOC(path, "--set");
    const size_t path_len = strlen(path);
    const bool must_agree = path_len > 1 && path[path_len - 1] == '?';
    const bool gives_way = path_len > 1 && path[path_len - 1] == ':';
    if (must_agree || gives_way) {
        path[path_len - 1] = '\0';
    }
    SW_TRY(sw_config_modern_path(impl, &path));
    char *block = sw_arena_strdup(&impl->arena, path);
    SW_TRY_ALLOC(block, "--set");
    struct sw_json *parent = sw_json_root(impl->given);
    char *key = path;
    for (char *dot; (dot = strchr(key, '.')); key = dot + 1) {
        *dot = '\0';
        struct sw_json *next = sw_json_get(parent, key);
        if (!next || next->type != SW_JSON_OBJECT) {
            next = sw_json_put(impl->given, parent, key, SW_JSON_OBJECT);
            SW_TRY_ALLOC(next, "--set");
            sw_config_mark(next, line_of_set(i_set));
        }
        parent = next;
    }
    if (gives_way && sw_json_get(parent, key)) {
        return SW_OK;
    }
    if (must_agree) {
        SW_TRY(check_agrees(impl, parent, block, key, equals + 1));
    }
    block[key == path ? 0 : key - path - 1] = '\0';
    drop_other_name(parent, block, key);
    struct sw_json *value;
    SW_TRY(put(impl, parent, key, equals + 1, &value));
    sw_config_mark(value, line_of_set(i_set));
    return SW_OK;
}
