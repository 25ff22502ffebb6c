// SPDX-License-Identifier: Apache-2.0
// Decides whether a model takes token types, 0 for a first text and 1 for a second. The inputs
// that a tokenizer names decide, as in transformers: model_input_names of tokenizer_config.json,
// else those of its class. A tokenizer that does not name token_type_ids has type 0 everywhere.
#include "token/class_files.h"

#include <string.h>

/* Classes, without "Tokenizer" and "Fast", that name token_type_ids in transformers 5. */
static const char *const classes[] = {"Bert",     "Canine",    "ConvBert",   "DPRQuestionEncoder",
                                      "Deberta",  "DebertaV2", "Electra",    "FNet",
                                      "LayoutLM", "Lxmert",    "MobileBert", "SqueezeBert"};
/* Values of model_type that imply one of these classes if no class is named. */
static const char *const models[] = {
    "bert",    "canine",     "convbert", "deberta",     "deberta-v2", "distilbert",    "dpr",
    "electra", "ernie",      "fnet",     "layoutlm",    "lxmert",     "megatron-bert", "mobilebert",
    "nezha",   "nomic_bert", "qdqbert",  "squeezebert", "visual_bert"};

bool sw_tokenizer_class_has_types(const char *name)
{
    for (size_t i = 0; i < SW_LEN(classes); ++i) {
        if (sw_class_is(name, classes[i])) {
            return true;
        }
    }
    return false;
}

static bool model_has_types(const char *type)
{
    for (size_t i = 0; i < SW_LEN(models); ++i) {
        if (strcmp(type, models[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The files of a folder; empty if absent. */
struct settings {
    struct sw_json_doc *words, *model; /* tokenizer_config.json, config.json */
};

/* Finds model_input_names; NULL: there is no such list. */
static sw_status find_names(const struct settings *in, const struct sw_json **out)
{
    const struct sw_json *names = sw_json_get(sw_json_root(in->words), "model_input_names");
    *out = names && names->type != SW_JSON_NULL ? names : NULL;
    bool good = !*out || names->type == SW_JSON_ARRAY;
    for (const struct sw_json *name = *out && good ? names->first : NULL; name; name = name->next) {
        good = good && name->type == SW_JSON_STRING;
    }
    return good ? SW_OK
                : SW_FAIL(SW_E_FORMAT, "%s:%d: model_input_names is %s, wanted a list of names",
                          sw_json_name(in->words), names->line, sw_json_type_name(names->type));
}

/* If no file names inputs, a class or a model, the template's types stay. */
static sw_status read_types(const struct settings *in, bool *out)
{
    const char *class, *type;
    const struct sw_json *names;
    const struct sw_json *words = sw_json_root(in->words), *model = sw_json_root(in->model);
    SW_TRY(find_names(in, &names));
    if (names) {
        *out = false;
        for (const struct sw_json *name = names->first; name; name = name->next) {
            *out = *out || strcmp(name->string, "token_type_ids") == 0;
        }
        return SW_OK;
    }
    SW_TRY(sw_json_get_str(in->model, model, "tokenizer_class", "", &class));
    SW_TRY(sw_json_get_str(in->words, words, "tokenizer_class", class, &class));
    SW_TRY(sw_json_get_str(in->model, model, "model_type", "", &type));
    *out = *class ? sw_tokenizer_class_has_types(class) : !*type || model_has_types(type);
    return SW_OK;
}

bool sw_template_has_types(const struct sw_template *template)
{
    bool any = false;
    for (int i = 0; i < template->n_items; ++i) {
        any = any || template->items[i].type_id != 0;
    }
    return any;
}

static void drop_types(struct sw_template *template)
{
    for (int i = 0; i < template->n_items; ++i) {
        template->items[i].type_id = 0;
    }
}

bool sw_tokenizer_has_no_types(const struct sw_tokenizer *tokenizer)
{
    return tokenizer->no_types;
}

sw_status sw_tokenizer_read_types(struct sw_tokenizer *tokenizer, const char *folder)
{
    sw_status st;
    bool types = true;
    struct settings in = {0};
    if (!sw_template_has_types(&tokenizer->single) && !sw_template_has_types(&tokenizer->pair)) {
        return SW_OK;
    }
    SW_TRY_OR(done, sw_tokenizer_read_beside(folder, "tokenizer_config.json", &in.words));
    SW_TRY_OR(done, sw_tokenizer_read_beside(folder, "config.json", &in.model));
    SW_TRY_OR(done, read_types(&in, &types));
    tokenizer->no_types = !types;
    if (!types) {
        drop_types(&tokenizer->single);
        drop_types(&tokenizer->pair);
    }
done:
    sw_json_close(in.words);
    sw_json_close(in.model);
    return st;
}
