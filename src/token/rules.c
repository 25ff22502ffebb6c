// SPDX-License-Identifier: Apache-2.0
// The rules by which a tokenizer makes ids of a text, from its files: all that changes an id,
// except for the vocabulary, and nothing else. Rules of two tokenizers are the same if their texts
// are. The files may be written differently: tokenizer.json with or without line breaks, and its
// merges as "a b" or ["a", "b"].
#include "json/json.h"
#include "token/tokenizer.h"

#include <string.h>

/* Members of tokenizer.json. The template is put apart, a decoder changes no id. */
static const char *const parts[] = {"added_tokens", "normalizer", "pre_tokenizer", "model", NULL};
/* Keys that change ids in the files beside others, for any kind. */
static const char *const keys[] = {"add_prefix_space",
                                   "do_lower_case",
                                   "strip_accents",
                                   "tokenize_chinese_chars",
                                   "added_tokens_decoder",
                                   "additional_special_tokens",
                                   "extra_special_tokens",
                                   "bos_token",
                                   "eos_token",
                                   "unk_token",
                                   "sep_token",
                                   "cls_token",
                                   "pad_token",
                                   "mask_token",
                                   "mask_token_sent",
                                   "extra_ids",
                                   "offset",
                                   "keep_accents",
                                   "split_by_punct",
                                   NULL};

static void put_merges(const struct sw_json *merges, struct sw_str *out)
{
    for (const struct sw_json *merge = merges->first; merge; merge = merge->next) {
        if (merge->type == SW_JSON_ARRAY && merge->n_children == 2) {
            sw_str_append(out, merge->first->string, merge->first->string_len);
            sw_str_putc(out, ' ');
            sw_str_append(out, merge->last->string, merge->last->string_len);
        } else {
            sw_str_append(out, merge->string, merge->string_len);
        }
        sw_str_putc(out, '\n');
    }
}

static void put_model(const struct sw_json *model, struct sw_str *out)
{
    for (const struct sw_json *one = model->first; one; one = one->next) {
        const bool is_vocab = strcmp(one->key, "vocab") == 0 && one->type == SW_JSON_OBJECT;
        if (is_vocab || one->type == SW_JSON_NULL) {
            continue;
        }
        sw_str_printf(out, "%s: ", one->key);
        if (strcmp(one->key, "merges") == 0) {
            put_merges(one, out);
        } else {
            sw_json_write(one, 0, out);
        }
        sw_str_putc(out, '\n');
    }
}

static void put_members(const struct sw_json *root, const char *const *names, struct sw_str *out)
{
    for (; *names; names++) {
        const struct sw_json *value = sw_json_get(root, *names);
        if (!value || value->type == SW_JSON_NULL) {
            continue;
        }
        sw_str_printf(out, "%s: ", *names);
        if (strcmp(*names, "model") == 0) {
            put_model(value, out);
        } else {
            sw_json_write(value, 0, out);
        }
        sw_str_putc(out, '\n');
    }
}

static sw_status put_json(const struct sw_saved_file *file, const char *const *names,
                          struct sw_str *out)
{
    struct sw_json_doc *doc = NULL;
    SW_TRY(sw_json_parse(file->name, file->data, file->len, SW_JSON_STRICT, &doc));
    put_members(sw_json_root(doc), names, out);
    sw_json_close(doc);
    return SW_OK;
}

/* Puts the rules in a kept file. A tokenizer.json has all of them: the files beside it name roles
 * only. */
static sw_status put_file(const struct sw_tokenizer *self, const struct sw_saved_file *file,
                          struct sw_str *out)
{
    static const char *const vocabularies[] = {"vocab.json", "vocab.txt", "chars.json"};
    const bool is_pipeline = strcmp(self->files[0].name, "tokenizer.json") == 0;
    bool skips = file->is_unused;
    for (size_t i = 0; i < SW_LEN(vocabularies); ++i) {
        skips = skips || strcmp(file->name, vocabularies[i]) == 0;
    }
    if (skips) {
        return SW_OK;
    }
    if (strcmp(file->name, "tokenizer.json") == 0) {
        return put_json(file, parts, out);
    }
    if (strcmp(file->name, "tokenizer_config.json") == 0 ||
        strcmp(file->name, "special_tokens_map.json") == 0) {
        return is_pipeline ? SW_OK : put_json(file, keys, out);
    }
    sw_str_printf(out, "%zu bytes: ", file->len);
    sw_str_append(out, file->data, file->len);
    sw_str_putc(out, '\n');
    return SW_OK;
}

sw_status sw_tokenizer_put_rules(const struct sw_tokenizer *self, struct sw_str *out)
{
    for (int i = 0; i < self->n_files; ++i) {
        SW_TRY(put_file(self, &self->files[i], out));
    }
    sw_str_printf(out, "class: %s\neos: %d\n", self->class_name ? self->class_name : "",
                  (int)self->eos);
    return out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a tokenizer's rules") : SW_OK;
}

void sw_tokenizer_put_templates(const struct sw_tokenizer *self, struct sw_str *out)
{
    const struct sw_template *const templates[] = {&self->single, &self->pair, &self->target};
    const size_t n = SW_LEN(templates) - (self->target.n_items == 0);
    for (size_t t = 0; t < n; ++t) {
        for (int i = 0; i < templates[t]->n_items; ++i) {
            const struct sw_template_item *item = &templates[t]->items[i];
            sw_str_printf(out, "%d %d %d, ", (int)item->part, (int)item->id, (int)item->type_id);
        }
        sw_str_putc(out, '\n');
    }
    sw_str_printf(out, "cut: %s\n", self->cut_left ? "left" : "right");
}
