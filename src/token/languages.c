// SPDX-License-Identifier: Apache-2.0
// Classes whose texts have the code of their language, a token: mBART's and mBART-50's. As in
// transformers 5, src_lang and tgt_lang of tokenizer_config.json name the codes, and the class puts
// them into the template, whatever tokenizer.json has there. A translation ends (mBART) or begins
// (mBART-50) with the code of the target.
#include "token/class_files.h"

#include <string.h>

struct language_class {
    const char *name;  /* of the class, without "Tokenizer" and "Fast" */
    const char *model; /* value of model_type that implies it if no class is named */
    bool code_first;   /* the code is before a text, and else after its end */
};
static const struct language_class classes[] = {{"MBart", "mbart", false},
                                                {"MBart50", "mbart50", true}};

static const char usual_code[] = "en_XX";

static bool is_class(const struct language_class *one, const char *class, const char *model)
{
    return *class ? sw_class_is(class, one->name) : strcmp(model, one->model) == 0;
}

/* A model may have been trained with any vocabulary. It implies its class only if the vocabulary
 * has the usual code, or a file names another one. */
static sw_status find_class(const struct sw_tokenizer *tokenizer, const struct sw_class_files *in,
                            const struct language_class **out)
{
    const char *class, *model;
    const struct sw_json *root = sw_json_root(in->settings);
    *out = NULL;
    SW_TRY(sw_class_files_class(in, &class));
    SW_TRY(sw_class_files_model(in, &model));
    if (!*class && !sw_json_get(root, "src_lang") && !sw_json_get(root, "tgt_lang") &&
        sw_tokenizer_find(tokenizer, usual_code) < 0) {
        return SW_OK;
    }
    for (size_t i = 0; i < SW_LEN(classes) && !*out; ++i) {
        *out = is_class(&classes[i], class, model) ? &classes[i] : NULL;
    }
    return SW_OK;
}

/* The id of a language's code; -1: the key is absent and has no usual value. */
static sw_status find_code(const struct sw_tokenizer *tokenizer, const struct sw_class_files *in,
                           const char *key, const char *usual, int32_t *out)
{
    const struct sw_json *root = sw_json_root(in->settings), *value = sw_json_get(root, key);
    const char *code = usual;
    if (value && value->type != SW_JSON_NULL) {
        SW_TRY(sw_json_get_str(in->settings, root, key, usual, &code));
    }
    *out = *code ? sw_tokenizer_find(tokenizer, code) : -1;
    return *out >= 0 || !*code
               ? SW_OK
               : SW_FAIL(SW_E_FORMAT,
                         "%s: %s is \"%.40s\"%s, wanted the code of a language in the vocabulary",
                         sw_json_name(in->settings), key, code, code == usual ? " by default" : "");
}

static sw_status add_token(struct sw_template *template, int32_t id)
{
    return sw_template_add(template, SW_TEMPLATE_SPECIAL, id, 0);
}

static sw_status set_template(const struct sw_tokenizer *tokenizer,
                              const struct language_class *class, int32_t code, bool pair,
                              struct sw_template *template)
{
    sw_template_fini(template);
    SW_TRY(class->code_first ? add_token(template, code) : SW_OK);
    SW_TRY(sw_template_add(template, SW_TEMPLATE_FIRST, -1, 0));
    SW_TRY(pair ? sw_template_add(template, SW_TEMPLATE_SECOND, -1, 0) : SW_OK);
    SW_TRY(add_token(template, tokenizer->eos));
    return class->code_first ? SW_OK : add_token(template, code);
}

static sw_status set_templates(struct sw_tokenizer *tokenizer, const struct sw_class_files *in,
                               const struct language_class *class)
{
    int32_t source, target;
    SW_TRY(find_code(tokenizer, in, "src_lang", usual_code, &source));
    SW_TRY(find_code(tokenizer, in, "tgt_lang", "", &target));
    if (tokenizer->eos < 0) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: a text of the class %s ends with eos_token, and there is "
                       "none",
                       sw_json_name(in->settings), class->name);
    }
    SW_TRY(set_template(tokenizer, class, source, false, &tokenizer->single));
    SW_TRY(set_template(tokenizer, class, source, true, &tokenizer->pair));
    tokenizer->has_languages = true;
    return target < 0 ? SW_OK : set_template(tokenizer, class, target, false, &tokenizer->target);
}

sw_status sw_tokenizer_read_languages(struct sw_tokenizer *tokenizer, const char *folder)
{
    sw_status st;
    const struct language_class *class = NULL;
    struct sw_class_files in = {0}; /* of the two that name classes and languages */
    SW_TRY_OR(done, sw_tokenizer_read_beside(folder, "tokenizer_config.json", &in.settings));
    SW_TRY_OR(done, sw_tokenizer_read_beside(folder, "config.json", &in.model));
    SW_TRY_OR(done, find_class(tokenizer, &in, &class));
    st = class ? set_templates(tokenizer, &in, class) : SW_OK;
done:
    sw_class_files_close(&in);
    return st;
}
