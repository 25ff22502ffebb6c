// SPDX-License-Identifier: Apache-2.0
// Finds the eos, bos and padding tokens. tokenizer.json does not name them, but the files that
// transformers writes beside it do. For a bare vocabulary the usual names are looked up.
#include "token/tokenizer.h"

#include "json/json.h"

#include <string.h>
#include <unistd.h>

static const char settings_file[] = "tokenizer_config.json";
static const char map_file[] = "special_tokens_map.json";
static const char template_file[] = "chat_template.jinja"; /* has no roles; saved with the others */

const struct sw_json *sw_tokenizer_token_text(const struct sw_json *token)
{
    const struct sw_json *text =
        token->type == SW_JSON_OBJECT ? sw_json_get(token, "content") : token;
    return text && text->type == SW_JSON_STRING ? text : NULL;
}

const char *sw_tokenizer_role_text(const struct sw_json *object, const char *key)
{
    const struct sw_json *value = sw_json_get(object, key);
    const struct sw_json *text = value ? sw_tokenizer_token_text(value) : NULL;
    return text ? text->string : NULL;
}

static sw_status read_side_file(struct sw_tokenizer *super, const struct sw_json *root)
{
    const struct {
        const char *key;
        int32_t *id;
    } roles[] = {
        {"eos_token", &super->eos}, {"bos_token", &super->bos}, {"pad_token", &super->pad}};
    for (size_t i = 0; i < SW_LEN(roles); ++i) {
        const char *text = sw_tokenizer_role_text(root, roles[i].key);
        const struct sw_json *value = sw_json_get(root, roles[i].key);
        if (value && value->type == SW_JSON_NULL) { /* takes back what an earlier file names */
            *roles[i].id = -1;
        }
        if (text) {
            *roles[i].id = sw_tokenizer_find(super, text);
            if (*roles[i].id < 0) {
                return SW_FAIL(SW_E_FORMAT, "%s is '%.60s', which the vocabulary does not have",
                               roles[i].key, text);
            }
        }
    }
    const struct sw_json *side = sw_json_get(root, "truncation_side");
    return side && side->type == SW_JSON_STRING
               ? sw_tokenizer_set_cut(super, "truncation_side", side->string)
               : SW_OK;
}

/* Returns the first of the names that is a token. */
static int32_t find_usual(const struct sw_tokenizer *tokenizer, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; ++i) {
        const int32_t id = sw_tokenizer_find(tokenizer, names[i]);
        if (id >= 0) {
            return id;
        }
    }
    return -1;
}

static void usual_roles(struct sw_tokenizer *tokenizer)
{
    static const char *const eos[] = {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"};
    static const char *const bos[] = {"<|begin_of_text|>", "<s>", "<bos>", "<|endoftext|>"};
    static const char *const pad[] = {"<pad>", "[PAD]", "<|pad|>"};
    tokenizer->eos = tokenizer->eos < 0 ? find_usual(tokenizer, eos, SW_LEN(eos)) : tokenizer->eos;
    tokenizer->bos = tokenizer->bos < 0 ? find_usual(tokenizer, bos, SW_LEN(bos)) : tokenizer->bos;
    tokenizer->pad = tokenizer->pad < 0 ? find_usual(tokenizer, pad, SW_LEN(pad)) : tokenizer->pad;
}

sw_status sw_tokenizer_parse_roles(struct sw_tokenizer *super, const char *name, const char *text,
                                   size_t len)
{
    struct sw_json_doc *doc = NULL;
    SW_TRY(sw_json_parse(name, text, len, SW_JSON_STRICT, &doc));
    const sw_status st = read_side_file(super, sw_json_root(doc));
    sw_json_close(doc);
    return st < 0 ? sw_fail_prefix(st, "%s", name) : SW_OK;
}

/* Keeps a file beside the tokenizer for saving, if it is there. has_roles: reads it, too. */
static sw_status read_if_there(struct sw_tokenizer *super, const char *path, const char *name,
                               bool has_roles)
{
    sw_status st;
    char *data = NULL;
    size_t len;
    if (access(path, F_OK) != 0) {
        return SW_OK;
    }
    SW_TRY(sw_file_read(path, &data, &len));
    if (has_roles) {
        SW_TRY_OR(done, sw_tokenizer_parse_roles(super, path, data, len));
    }
    SW_TRY_OR(done, sw_tokenizer_keep_file(super, name, data, len));
    super->files[super->n_files - 1].is_unused = !has_roles;
done:
    sw_free(data);
    return st;
}

sw_status sw_tokenizer_keep_added(struct sw_tokenizer *super, const char *folder)
{
    static const char name[] = "added_tokens.json";
    struct sw_str path = {0};
    const int n_files = super->n_files;
    sw_str_printf(&path, "%s/%s", folder, name);
    const sw_status st = path.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a path")
                                     : read_if_there(super, path.ptr, name, false);
    if (super->n_files > n_files) { /* it has tokens, though no roles */
        super->files[n_files].is_unused = false;
    }
    sw_str_fini(&path);
    return st;
}

sw_status sw_tokenizer_read_beside(const char *folder, const char *name, struct sw_json_doc **out)
{
    struct sw_str path = {0};
    sw_str_printf(&path, "%s/%s", folder, name);
    const sw_status st = path.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a path")
                         : access(path.ptr, F_OK) == 0 ? sw_json_read(path.ptr, SW_JSON_STRICT, out)
                                                       : sw_json_new(path.ptr, out);
    sw_str_fini(&path);
    return st;
}

bool sw_tokenizer_lists_added(const struct sw_json *settings)
{
    const struct sw_json *list = sw_json_get(settings, "added_tokens_decoder");
    return list && list->type == SW_JSON_OBJECT;
}

static sw_status read_files(struct sw_tokenizer *super, const char *folder, bool reads_map)
{
    const char *const names[] = {settings_file, map_file, template_file};
    for (size_t i = 0; i < SW_LEN(names); ++i) {
        sw_status st;
        struct sw_str path = {0};
        const bool has_roles = names[i] != template_file && (names[i] != map_file || reads_map);
        sw_str_printf(&path, "%s/%s", folder, names[i]);
        st = path.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a path")
                         : read_if_there(super, path.ptr, names[i], has_roles);
        sw_str_fini(&path);
        SW_TRY(st);
    }
    return SW_OK;
}

sw_status sw_tokenizer_read_roles(struct sw_tokenizer *super, const char *folder)
{
    struct sw_json_doc *doc = NULL;
    SW_TRY(sw_tokenizer_read_beside(folder, settings_file, &doc));
    const bool reads_map = !sw_tokenizer_lists_added(sw_json_root(doc));
    bool cleans_up;
    const sw_status st =
        sw_json_get_bool(doc, sw_json_root(doc), "clean_up_tokenization_spaces", false, &cleans_up);
    sw_json_close(doc);
    SW_TRY(st);
    super->cleans_up = cleans_up && !super->is_bpe; /* as in transformers */
    SW_TRY(read_files(super, folder, reads_map));
    usual_roles(super);
    return SW_OK;
}
