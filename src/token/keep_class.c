// SPDX-License-Identifier: Apache-2.0
// Names the class of a vocabulary or SentencePiece model in the tokenizer_config.json that is
// saved. An export puts the files beside the config.json of the trained model, whose model_type may
// imply another class than the folder that they came from.
#include "token/tokenizer.h"

#include <stdio.h>
#include <string.h>

static const char settings_file[] = "tokenizer_config.json";

static bool has_inputs(struct sw_json_doc *doc)
{
    const struct sw_json *names = sw_json_get(sw_json_root(doc), "model_input_names");
    return names && names->type != SW_JSON_NULL;
}

static sw_status fail_memory(void)
{
    return SW_FAIL(SW_E_NOMEM, "out of host memory for %s", settings_file);
}

/* model_input_names */
static sw_status put_inputs(struct sw_json_doc *doc, bool types)
{
    static const char *const names[] = {"input_ids", "attention_mask", "token_type_ids"};
    struct sw_json *list = sw_json_put(doc, sw_json_root(doc), "model_input_names", SW_JSON_ARRAY);
    bool good = list != NULL;
    for (size_t i = 0; i < SW_LEN(names) - !types; ++i) {
        good = good && sw_json_put_str(doc, list, NULL, names[i]);
    }
    return good ? SW_OK : fail_memory();
}

static sw_status put_class(const struct sw_tokenizer *tokenizer, struct sw_json_doc *doc)
{
    char class[64];
    snprintf(class, sizeof class, "%sTokenizer%s", tokenizer->equal_class,
             strcmp(tokenizer->equal_class, "PreTrained") == 0 ? "Fast" : "");
    if (!sw_json_put_str(doc, sw_json_root(doc), "tokenizer_class", class)) {
        return fail_memory();
    }
    return tokenizer->no_types && !has_inputs(doc) && sw_tokenizer_class_has_types(class)
               ? put_inputs(doc, false)
               : SW_OK;
}

static struct sw_saved_file *find_file(const struct sw_tokenizer *tokenizer)
{
    struct sw_saved_file *found = NULL;
    for (int i = 0; i < tokenizer->n_files; ++i) {
        const bool is_it = strcmp(tokenizer->files[i].name, settings_file) == 0;
        found = is_it ? &tokenizer->files[i] : found;
    }
    return found;
}

static sw_status read_file(const struct sw_tokenizer *tokenizer, struct sw_json_doc **out)
{
    const struct sw_saved_file *file = find_file(tokenizer);
    return file ? sw_json_parse(file->name, file->data, file->len, SW_JSON_STRICT, out)
                : sw_json_new(settings_file, out);
}

/* Replaces the kept file, or adds it. */
static sw_status keep_text(struct sw_tokenizer *tokenizer, const struct sw_str *text)
{
    struct sw_saved_file *file = find_file(tokenizer);
    if (text->failed) {
        return fail_memory();
    }
    if (!file) {
        return sw_tokenizer_keep_file(tokenizer, settings_file, text->ptr, text->len);
    }
    char *data = sw_alloc("tokenizer", text->len);
    SW_TRY_ALLOC(data, "a tokenizer's files");
    memcpy(data, text->ptr, text->len);
    sw_free(file->data);
    file->data = data;
    file->len = text->len;
    return SW_OK;
}

static sw_status keep(struct sw_tokenizer *tokenizer, struct sw_json_doc *doc)
{
    struct sw_str text = {0};
    sw_json_write(sw_json_root(doc), 2, &text);
    sw_str_putc(&text, '\n');
    const sw_status st = keep_text(tokenizer, &text);
    sw_str_fini(&text);
    return st;
}

/* Whether model_type alone adds the codes of languages. The class would leave them out. */
static bool has_other_languages(const struct sw_tokenizer *tokenizer)
{
    return tokenizer->has_languages && strncmp(tokenizer->equal_class, "MBart", 5) != 0;
}

sw_status sw_tokenizer_keep_class(struct sw_tokenizer *tokenizer)
{
    sw_status st;
    const char *class;
    struct sw_json_doc *doc = NULL;
    if (!tokenizer->equal_class || has_other_languages(tokenizer)) {
        return SW_OK;
    }
    SW_TRY(read_file(tokenizer, &doc));
    SW_TRY_OR(done, sw_json_get_str(doc, sw_json_root(doc), "tokenizer_class", "", &class));
    if (!*class) {
        SW_TRY_OR(done, put_class(tokenizer, doc));
        st = keep(tokenizer, doc);
    }
done:
    sw_json_close(doc);
    return st;
}

sw_status sw_tokenizer_keep_types(struct sw_tokenizer *tokenizer)
{
    sw_status st;
    const char *class;
    struct sw_json_doc *doc = NULL;
    if (!tokenizer->equal_class ||
        (!sw_template_has_types(&tokenizer->single) && !sw_template_has_types(&tokenizer->pair))) {
        return SW_OK;
    }
    SW_TRY(read_file(tokenizer, &doc));
    SW_TRY_OR(done, sw_json_get_str(doc, sw_json_root(doc), "tokenizer_class", "", &class));
    if (*class && !sw_tokenizer_class_has_types(class) && !has_inputs(doc)) {
        SW_TRY_OR(done, put_inputs(doc, true));
        st = keep(tokenizer, doc);
    }
done:
    sw_json_close(doc);
    return st;
}
