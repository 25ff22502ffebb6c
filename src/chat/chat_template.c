// SPDX-License-Identifier: Apache-2.0
// Finds the chat template of a folder, and the special tokens that it uses. As in transformers,
// chat_template.jinja takes precedence over `chat_template` of tokenizer_config.json. The latter is
// a text or a list of named texts.
#include "chat/private.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void template_fini(struct sw_chat_template *template)
{
    sw_jinja_close(template->jinja);
    sw_free(template->source);
    sw_free(template->text);
    *template = (struct sw_chat_template){0};
}

void sw_chat_templates_close(struct sw_chat_templates *templates)
{
    template_fini(&templates->plain);
    template_fini(&templates->with_tools);
    sw_json_close(templates->tokens);
    *templates = (struct sw_chat_templates){0};
}

static sw_status set_template(struct sw_chat_template *template, const char *source,
                              const char *text, size_t len)
{
    template->source = sw_strdup("chat template", source);
    template->text = sw_alloc("chat template", len + 1);
    SW_TRY_ALLOC(template->source, "a chat template");
    SW_TRY_ALLOC(template->text, "a chat template");
    memcpy(template->text, text, len);
    template->text[len] = '\0';
    template->len = len;
    return SW_OK;
}

sw_status sw_chat_template_read(struct sw_chat_template *template)
{
    return template->jinja
               ? SW_OK
               : sw_jinja_open(template->source, template->text, template->len, &template->jinja);
}

static sw_status read_template(struct sw_chat_template *template, const char *path)
{
    char *text;
    size_t len;
    SW_TRY(sw_file_read(path, &text, &len));
    const sw_status st = set_template(template, path, text, len);
    sw_free(text);
    return st;
}

/* ---- tokenizer_config.json and special_tokens_map.json ---- */

/* The name and text of a list item. NULL: the item is malformed. */
static const char *named(const struct sw_json *item, const struct sw_json **out_text)
{
    const struct sw_json *name = sw_json_get(item, "name");
    *out_text = sw_json_get(item, "template");
    return name && *out_text && name->type == SW_JSON_STRING && (*out_text)->type == SW_JSON_STRING
               ? name->string
               : NULL;
}

static sw_status take_named(struct sw_chat_templates *templates, const char *source,
                            const struct sw_json *list)
{
    for (const struct sw_json *item = list->first; item; item = item->next) {
        const struct sw_json *text;
        const char *name = named(item, &text);
        if (!name) {
            return SW_FAIL(SW_E_FORMAT, "%s: an item is not {\"name\": .., \"template\": ..}",
                           source);
        }
        if (strcmp(name, "default") == 0 && !templates->plain.text) {
            SW_TRY(set_template(&templates->plain, source, text->string, text->string_len));
        } else if (strcmp(name, "tool_use") == 0 && !templates->with_tools.text) {
            SW_TRY(set_template(&templates->with_tools, source, text->string, text->string_len));
        }
    }
    return templates->plain.text ? SW_OK
                                 : SW_FAIL(SW_E_FORMAT, "%s: none is named \"default\"", source);
}

static sw_status take_template(struct sw_chat_templates *templates, const char *path,
                               const struct sw_json *template)
{
    sw_status st;
    struct sw_str source = {0};
    sw_str_printf(&source, "%s: chat_template", path);
    if (source.failed) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a chat template");
    } else if (template->type == SW_JSON_STRING) {
        st = set_template(&templates->plain, sw_str_text(&source), template->string,
                          template->string_len);
    } else if (template->type == SW_JSON_ARRAY) {
        st = take_named(templates, sw_str_text(&source), template);
    } else {
        st = SW_FAIL(SW_E_FORMAT, "%s is %s, wanted a string, or an array of named ones",
                     sw_str_text(&source), sw_json_type_name(template->type));
    }
    sw_str_fini(&source);
    return st;
}

/* Reads tokens given as "x" or {"content": "x", ..}. They replace those of an earlier file; null
 * takes one back. */
static sw_status take_tokens(struct sw_json_doc *tokens, const struct sw_json *root)
{
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < SW_LEN(keys); ++i) {
        const struct sw_json *token = sw_json_get(root, keys[i]);
        struct sw_json *before = (struct sw_json *)sw_json_get(sw_json_root(tokens), keys[i]);
        if (token && token->type == SW_JSON_OBJECT) {
            token = sw_json_get(token, "content");
        }
        if (!token || (token->type != SW_JSON_STRING && token->type != SW_JSON_NULL)) {
            continue;
        }
        if (before) {
            sw_json_remove(sw_json_root(tokens), before);
        }
        if (token->type == SW_JSON_STRING &&
            !sw_json_put_copy(tokens, sw_json_root(tokens), keys[i], token)) {
            return SW_FAIL(SW_E_NOMEM, "out of host memory for the special tokens");
        }
    }
    return SW_OK;
}

/* want_template: use the file's template. *lists_added: see sw_tokenizer_lists_added. */
static sw_status read_side_file(struct sw_chat_templates *templates, const char *path,
                                bool want_template, bool *lists_added)
{
    struct sw_json_doc *doc;
    SW_TRY(sw_json_read(path, SW_JSON_STRICT, &doc));
    const struct sw_json *root = sw_json_root(doc), *template = sw_json_get(root, "chat_template");
    sw_status st = take_tokens(templates->tokens, root);
    *lists_added = sw_tokenizer_lists_added(root);
    if (st >= 0 && want_template && template && template->type != SW_JSON_NULL) {
        st = take_template(templates, path, template);
    }
    sw_json_close(doc);
    return st;
}

/* ---- a folder ---- */

/* Sets path to "FOLDER/name" and *out to whether that file exists. */
static sw_status look_for(const char *folder, const char *name, struct sw_str *path, bool *out)
{
    sw_str_clear(path);
    sw_str_printf(path, "%s/%s", folder, name);
    if (path->failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a path");
    }
    *out = access(path->ptr, F_OK) == 0;
    return SW_OK;
}

static sw_status read_folder(struct sw_chat_templates *templates, const char *folder,
                             struct sw_str *path)
{
    bool there = false, lists_added = false;
    if (!templates->plain.text) {
        SW_TRY(look_for(folder, "chat_template.jinja", path, &there));
    }
    if (there) {
        SW_TRY(read_template(&templates->plain, path->ptr));
        SW_TRY(look_for(folder, "additional_chat_templates/tool_use.jinja", path, &there));
        SW_TRY(there ? read_template(&templates->with_tools, path->ptr) : SW_OK);
    }
    const bool want_template = !templates->plain.text;
    SW_TRY(look_for(folder, "tokenizer_config.json", path, &there));
    SW_TRY(there ? read_side_file(templates, path->ptr, want_template, &lists_added) : SW_OK);
    SW_TRY(look_for(folder, "special_tokens_map.json", path, &there));
    return there && !lists_added ? read_side_file(templates, path->ptr, false, &lists_added)
                                 : SW_OK;
}

sw_status sw_chat_templates_open(struct sw_chat_templates *templates, const char *folder,
                                 const char *path)
{
    sw_status st;
    struct stat info;
    struct sw_str parent = {0}, scratch = {0};
    *templates = (struct sw_chat_templates){0};
    SW_TRY_OR(done, sw_json_new("special tokens", &templates->tokens));
    if (path) {
        SW_TRY_OR(done, read_template(&templates->plain, path));
    }
    if (stat(folder, &info) == 0 && !S_ISDIR(info.st_mode)) {
        SW_TRY_OR(done, sw_tokenizer_folder_of(folder, &parent));
        folder = sw_str_text(&parent);
    }
    SW_TRY_OR(done, read_folder(templates, folder, &scratch));
done:
    sw_str_fini(&parent);
    sw_str_fini(&scratch);
    if (st < 0) {
        sw_chat_templates_close(templates);
    }
    return st;
}
