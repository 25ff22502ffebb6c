// SPDX-License-Identifier: Apache-2.0
// If tokenizer_config.json has added_tokens_decoder, special_tokens_map.json and added_tokens.json
// have no effect, as in transformers 5.
#include "token/class_files.h"

#include <stdio.h>
#include <string.h>

static const char *const role_keys[SW_ROLES] = {
    [SW_ROLE_BOS] = "bos_token",  [SW_ROLE_EOS] = "eos_token", [SW_ROLE_UNK] = "unk_token",
    [SW_ROLE_SEP] = "sep_token",  [SW_ROLE_PAD] = "pad_token", [SW_ROLE_CLS] = "cls_token",
    [SW_ROLE_MASK] = "mask_token"};
static const char *const list_keys[] = {"additional_special_tokens", "extra_special_tokens"};

static sw_status read_object(const char *folder, const char *name, struct sw_json_doc **out)
{
    SW_TRY(sw_tokenizer_read_beside(folder, name, out));
    const struct sw_json *root = sw_json_root(*out);
    return root->type == SW_JSON_OBJECT
               ? SW_OK
               : SW_FAIL(SW_E_FORMAT, "%s is %s, wanted an object", sw_json_name(*out),
                         sw_json_type_name(root->type));
}

sw_status sw_class_files_read(const char *folder, struct sw_class_files *out)
{
    SW_TRY(read_object(folder, "tokenizer_config.json", &out->settings));
    SW_TRY(read_object(folder, "config.json", &out->model));
    SW_TRY(read_object(folder, "special_tokens_map.json", &out->map));
    return read_object(folder, "added_tokens.json", &out->added);
}

void sw_class_files_close(struct sw_class_files *files)
{
    sw_json_close(files->settings);
    sw_json_close(files->model);
    sw_json_close(files->map);
    sw_json_close(files->added);
    *files = (struct sw_class_files){0};
}

sw_status sw_class_files_class(const struct sw_class_files *files, const char **out)
{
    SW_TRY(sw_json_get_str(files->model, sw_json_root(files->model), "tokenizer_class", "", out));
    return sw_json_get_str(files->settings, sw_json_root(files->settings), "tokenizer_class", *out,
                           out);
}

sw_status sw_class_files_model(const struct sw_class_files *files, const char **out)
{
    return sw_json_get_str(files->model, sw_json_root(files->model), "model_type", "", out);
}

bool sw_class_is(const char *class, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(class, name, n) == 0 &&
           (strcmp(class + n, "Tokenizer") == 0 || strcmp(class + n, "TokenizerFast") == 0);
}

/* Whether a word of the list is the class or the model. */
static bool is_among(const char *list, const char *name, bool is_class)
{
    bool found = false;
    while (*list && !found) {
        char word[64];
        const size_t n = strcspn(list, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, list);
        found = is_class ? sw_class_is(name, word) : strcmp(name, word) == 0;
        list += n + (list[n] == ' ');
    }
    return found;
}

static sw_status refuse_class(const struct sw_class_table *table, const char *class,
                              const char *model)
{
    struct sw_str list = {0};
    for (size_t i = 0; i < table->n; ++i) {
        sw_str_printf(&list, "%s%s", i > 0 ? " " : "", table->names[i].classes);
    }
    const sw_status st = SW_FAIL(
        SW_E_UNSUP,
        "the %s %.60s is not built for %s; classes there are %s; any class works with a "
        "tokenizer.json in the folder",
        *class ? "class" : "model_type", *class ? class : model, table->what, sw_str_text(&list));
    sw_str_fini(&list);
    return st;
}

sw_status sw_class_files_find(const struct sw_class_files *files,
                              const struct sw_class_table *table, size_t *out)
{
    const char *class, *model;
    size_t i = 0;
    SW_TRY(sw_class_files_class(files, &class));
    SW_TRY(sw_class_files_model(files, &model));
    while (i < table->n && !(*class ? is_among(table->names[i].classes, class, true)
                                    : is_among(table->names[i].models, model, false))) {
        i++;
    }
    *out = i < table->n ? i : 0;
    return i == table->n && (*class || is_among(table->others, model, false))
               ? refuse_class(table, class, model)
               : SW_OK;
}

static bool has_decoder(const struct sw_class_files *files)
{
    const struct sw_json *list = sw_json_get(sw_json_root(files->settings), "added_tokens_decoder");
    return list && list->type != SW_JSON_NULL;
}

/* A member of special_tokens_map.json, or else of tokenizer_config.json; NULL: neither has it. */
static const struct sw_json *member(const struct sw_class_files *files, const char *key,
                                    const struct sw_json_doc **doc)
{
    const struct sw_json *value =
        has_decoder(files) ? NULL : sw_json_get(sw_json_root(files->map), key);
    *doc = value ? files->map : files->settings;
    value = value ? value : sw_json_get(sw_json_root(files->settings), key);
    return value && value->type != SW_JSON_NULL ? value : NULL;
}

static bool is_text(const struct sw_json *value, const struct sw_json *text)
{
    const struct sw_json *content = sw_tokenizer_token_text(value);
    return content && content->string_len == text->key_len &&
           memcmp(content->string, text->key, text->key_len) == 0;
}

/* Whether the files name the key of an entry of added_tokens.json as a special token. */
static bool is_named(const struct sw_class_files *files, const struct sw_json *entry)
{
    const struct sw_json_doc *doc;
    bool named = false;
    for (int i = 0; i < SW_ROLES && !named; ++i) {
        const struct sw_json *value = member(files, role_keys[i], &doc);
        named = value && is_text(value, entry);
    }
    for (size_t i = 0; i < SW_LEN(list_keys) && !named; ++i) {
        const struct sw_json *list = member(files, list_keys[i], &doc);
        for (const struct sw_json *one = list ? list->first : NULL; one; one = one->next) {
            named = named || is_text(one, entry);
        }
    }
    return named;
}

/* Whether an entry is a special token that a class has by default. */
static bool is_usual(const struct sw_class_roles *roles, const struct sw_json *entry)
{
    bool usual = false;
    for (int i = 0; i < SW_ROLES; ++i) {
        usual = usual || (roles->text[i] && strcmp(roles->text[i], entry->key) == 0);
    }
    return usual;
}

static sw_status add_decoded(void *ctx, const struct sw_json_doc *doc, const struct sw_json *entry,
                             int64_t id)
{
    return sw_pipeline_add_entry(ctx, doc, entry, id);
}

/* {"token": id, ..} */
static sw_status add_file(const struct sw_class_files *files, const struct sw_class_roles *roles,
                          struct sw_pipeline *self)
{
    for (const struct sw_json *one = sw_json_root(files->added)->first; one; one = one->next) {
        if (one->type != SW_JSON_INT) {
            return SW_FAIL(SW_E_FORMAT, "%s:%d: the id of '%.40s' is %s, wanted a number",
                           sw_json_name(files->added), one->line, one->key,
                           sw_json_type_name(one->type));
        }
        const bool named = is_named(files, one);
        const struct sw_added_token flags = {.special = named || is_usual(roles, one)};
        const sw_status st =
            sw_pipeline_add_token(self, one->key, one->key_len, one->integer, flags, !named);
        SW_TRY(st < 0 ? sw_fail_prefix(st, "%s", sw_json_name(files->added)) : SW_OK);
    }
    return SW_OK;
}

/* Makes a text a special token. A token that the vocabulary lacks gets the next id if `appends`.
 * normalized, flags: of a token that no list of added tokens has. */
static sw_status add_special(struct sw_pipeline *self, const char *text, size_t len,
                             struct sw_added_token flags, bool normalized, bool appends,
                             int32_t *out)
{
    const int32_t added = sw_vocab_find(&self->added, text, len);
    *out = added >= 0 ? added : sw_vocab_find(&self->vocab, text, len);
    if (added >= 0 || (*out < 0 && !appends)) {
        return SW_OK;
    }
    flags.special = true;
    if (*out < 0) {
        *out = (int32_t)sw_max_i64(self->vocab.n_ids, self->added.n_ids);
    }
    return sw_pipeline_add_token(self, text, len, *out, flags, normalized);
}

/* Adds a token that a file gives as "x" or as {"content": "x", ..}. usual: its flags if it is a
 * string. */
static sw_status add_value(struct sw_pipeline *self, const struct sw_json_doc *doc,
                           const struct sw_json *value, struct sw_added_token usual, bool appends,
                           int32_t *out)
{
    bool normalized = false;
    const struct sw_json *content = sw_tokenizer_token_text(value);
    if (!content) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s:%d: a special token is %s, wanted a string, or an object "
                       "with \"content\"",
                       sw_json_name(doc), value->line, sw_json_type_name(value->type));
    }
    if (value->type == SW_JSON_OBJECT) {
        const sw_status st = sw_added_token_read(doc, value, &usual, &normalized);
        SW_TRY(st < 0 ? sw_fail_prefix(st, "%s", sw_json_name(doc)) : SW_OK);
        normalized = normalized && sw_json_get(value, "normalized");
    }
    return add_special(self, content->string, content->string_len, usual, normalized, appends, out);
}

static sw_status add_role(const struct sw_class_files *files, const struct sw_class_roles *roles,
                          enum sw_role role, bool appends, struct sw_pipeline *self, int32_t *out)
{
    const struct sw_added_token usual = {.lstrip = role == SW_ROLE_MASK && roles->mask_lstrip};
    const struct sw_json_doc *doc;
    const struct sw_json *value = member(files, role_keys[role], &doc);
    const char *text = roles->text[role];
    *out = -1;
    if (value) {
        return add_value(self, doc, value, usual, appends, out);
    }
    return text ? add_special(self, text, strlen(text), usual, false, appends, out) : SW_OK;
}

/* Lists of more special tokens. An object there names tokens of its own. */
static sw_status add_list(const struct sw_class_files *files, const char *key,
                          struct sw_pipeline *self)
{
    int32_t id;
    const struct sw_json_doc *doc;
    const struct sw_json *list = member(files, key, &doc);
    if (list && list->type != SW_JSON_ARRAY && list->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d: %s is %s, wanted a list", sw_json_name(doc), list->line,
                       key, sw_json_type_name(list->type));
    }
    for (const struct sw_json *one = list ? list->first : NULL; one; one = one->next) {
        SW_TRY(add_value(self, doc, one, (struct sw_added_token){0}, true, &id));
    }
    return SW_OK;
}

sw_status sw_class_files_add_tokens(const struct sw_class_files *files,
                                    const struct sw_class_roles *roles, bool appends,
                                    struct sw_pipeline *self, int32_t ids[SW_ROLES])
{
    if (has_decoder(files)) {
        SW_TRY(sw_added_entries_each(files->settings, sw_json_root(files->settings), add_decoded,
                                     self));
    } else {
        SW_TRY(add_file(files, roles, self));
    }
    for (int i = 0; i < SW_ROLES; ++i) {
        SW_TRY(add_role(files, roles, (enum sw_role)i, appends, self, &ids[i]));
    }
    for (size_t i = 0; i < SW_LEN(list_keys); ++i) {
        SW_TRY(add_list(files, list_keys[i], self));
    }
    return SW_OK;
}
