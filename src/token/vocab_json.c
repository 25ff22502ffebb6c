// SPDX-License-Identifier: Apache-2.0
// Vocabularies in JSON.
#include "token/vocab_json.h"

#include "token/components.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

sw_status sw_named_texts_read(const char *const *paths, int n, int n_needed, char **texts,
                              struct sw_named_text *files)
{
    for (int i = 0; i < n; ++i) {
        files[i] = (struct sw_named_text){.name = paths[i]};
        if (i >= n_needed && access(paths[i], F_OK) != 0) {
            continue;
        }
        SW_TRY(sw_file_read(paths[i], &texts[i], &files[i].len));
        files[i].text = texts[i];
    }
    return SW_OK;
}

sw_status sw_named_text_parse(const struct sw_named_text *file, struct sw_json_doc **out)
{
    struct sw_json_doc *doc = NULL;
    if (!file->text) {
        return sw_json_new(file->name ? file->name : "no file", out);
    }
    SW_TRY(sw_json_parse(file->name, file->text, file->len, SW_JSON_STRICT, &doc));
    const struct sw_json *root = sw_json_root(doc);
    if (root->type != SW_JSON_OBJECT) {
        const sw_status st = SW_FAIL(SW_E_FORMAT, "%s: %s, wanted an object", file->name,
                                     sw_json_type_name(root->type));
        sw_json_close(doc);
        return st;
    }
    *out = doc;
    return SW_OK;
}

static sw_status take_vocab(const struct sw_json_doc *doc, const struct sw_json *root,
                            struct sw_vocab *vocab)
{
    const char *path = sw_json_name(doc);
    if (root->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s, wanted an object of tokens and ids", path,
                       sw_json_type_name(root->type));
    }
    for (const struct sw_json *token = root->first; token; token = token->next) {
        if (token->type != SW_JSON_INT) {
            return SW_FAIL(SW_E_FORMAT, "%s:%d: the id of '%.40s' is %s, wanted a number", path,
                           token->line, token->key, sw_json_type_name(token->type));
        }
        const sw_status st = sw_vocab_add(vocab, token->key, token->key_len, token->integer);
        if (st < 0) {
            return sw_fail_prefix(st, "%s", path);
        }
    }
    return SW_OK;
}

sw_status sw_vocab_read_json(const struct sw_named_text *file, struct sw_vocab *vocab)
{
    struct sw_json_doc *doc = NULL;
    SW_TRY(sw_json_parse(file->name, file->text, file->len, SW_JSON_STRICT, &doc));
    const sw_status st = take_vocab(doc, sw_json_root(doc), vocab);
    sw_json_close(doc);
    return st;
}

sw_status sw_added_token_read(const struct sw_json_doc *doc, const struct sw_json *entry,
                              struct sw_added_token *out, bool *normalized)
{
    const struct sw_json *content;
    SW_TRY(sw_component_member(entry, "content", SW_JSON_STRING, &content));
    SW_TRY(sw_json_get_bool(doc, entry, "special", false, &out->special));
    SW_TRY(sw_json_get_bool(doc, entry, "single_word", false, &out->single_word));
    SW_TRY(sw_json_get_bool(doc, entry, "lstrip", false, &out->lstrip));
    SW_TRY(sw_json_get_bool(doc, entry, "rstrip", false, &out->rstrip));
    SW_TRY(sw_json_get_bool(doc, entry, "normalized", !out->special, normalized));
    out->text = content->string;
    out->len = content->string_len;
    return SW_OK;
}

static sw_status read_entry(const struct sw_json_doc *doc, const struct sw_json *entry,
                            sw_added_entry_fn fn, void *ctx)
{
    char *end;
    errno = 0;
    const long long id = strtoll(entry->key, &end, 10);
    if (*end != '\0' || end == entry->key || errno != 0 || strlen(entry->key) != entry->key_len) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d: '%.20s' is not an id", sw_json_name(doc),
                       entry->key_line, entry->key);
    }
    if (entry->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d: added token %lld is %s, wanted an object",
                       sw_json_name(doc), entry->line, id, sw_json_type_name(entry->type));
    }
    const sw_status st = fn(ctx, doc, entry, id);
    return st < 0 ? sw_fail_prefix(st, "%s", sw_json_name(doc)) : SW_OK;
}

sw_status sw_added_entries_each(const struct sw_json_doc *doc, const struct sw_json *root,
                                sw_added_entry_fn fn, void *ctx)
{
    const struct sw_json *list = sw_json_get(root, "added_tokens_decoder");
    if (!list || list->type == SW_JSON_NULL) {
        return SW_OK;
    }
    if (list->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d: added_tokens_decoder is %s, wanted an object of ids",
                       sw_json_name(doc), list->line, sw_json_type_name(list->type));
    }
    for (const struct sw_json *entry = list->first; entry; entry = entry->next) {
        SW_TRY(read_entry(doc, entry, fn, ctx));
    }
    return SW_OK;
}
