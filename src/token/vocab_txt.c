// SPDX-License-Identifier: Apache-2.0
// vocab.txt: one token per line, whose id is the line number. The tokenizer is WordPiece as in
// BERT's class. tokenizer_config.json beside it sets the handling of case and accents.
#include "token/pipeline.h"

#include "text/text.h"

#include <string.h>

struct settings {
    bool lower, ideographs, has_accents, accents;
};

static sw_status read_lines(const char *path, const char *text, size_t len,
                            struct sw_pipeline *self)
{
    int64_t id = 0;
    for (size_t at = 0; at < len; ++id) {
        const char *line = text + at, *end = memchr(line, '\n', len - at);
        size_t n = end ? (size_t)(end - line) : len - at;
        at += n + 1;
        while (n > 0 && strchr(" \t\r", line[n - 1])) {
            n--;
        }
        const sw_status st = sw_vocab_add(&self->vocab, line, n, id);
        if (st < 0) {
            return sw_fail_prefix(st, "%s:%lld", path, (long long)id + 1);
        }
    }
    return SW_OK;
}

static sw_status take_settings(struct sw_json_doc *doc, struct settings *out)
{
    const struct sw_json *root = sw_json_root(doc);
    const struct sw_json *accents = sw_json_get(root, "strip_accents");
    SW_TRY(sw_json_get_bool(doc, root, "do_lower_case", true, &out->lower));
    SW_TRY(sw_json_get_bool(doc, root, "tokenize_chinese_chars", true, &out->ideographs));
    out->has_accents = accents && accents->type != SW_JSON_NULL;
    return out->has_accents ? sw_json_get_bool(doc, root, "strip_accents", true, &out->accents)
                            : SW_OK;
}

static sw_status read_settings(const char *folder, struct settings *out)
{
    struct sw_json_doc *doc = NULL;
    *out = (struct settings){0};
    SW_TRY(sw_tokenizer_read_beside(folder, "tokenizer_config.json", &doc));
    const sw_status st = take_settings(doc, out);
    sw_json_close(doc);
    return st;
}

/* [CLS] text [SEP], [CLS] A [SEP] B [SEP]. */
static sw_status set_templates(struct sw_pipeline *self)
{
    const int32_t cls = sw_vocab_find(&self->vocab, "[CLS]", 5);
    const int32_t sep = sw_vocab_find(&self->vocab, "[SEP]", 5);
    if (cls < 0 || sep < 0) {
        return SW_FAIL(SW_E_FORMAT, "no token %s", cls < 0 ? "[CLS]" : "[SEP]");
    }
    return sw_tokenizer_mark(&self->super, cls, sep, false);
}

static sw_status add_special(struct sw_pipeline *self)
{
    static const char *const names[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    const struct sw_added_token flags = {.special = true};
    for (size_t i = 0; i < SW_LEN(names); ++i) {
        const size_t n = strlen(names[i]);
        const int32_t id = sw_vocab_find(&self->vocab, names[i], n);
        if (id >= 0) {
            SW_TRY(sw_pipeline_add_token(self, names[i], n, id, flags, false));
        }
    }
    return SW_OK;
}

static sw_status set_steps(struct sw_pipeline *self, const struct settings *settings)
{
    struct sw_normal_step *step;
    struct sw_decode_step *decode;
    SW_TRY(sw_normalizer_add(&self->normalizer, SW_NORMAL_BERT, &step));
    step->clean = true;
    step->ideographs = settings->ideographs;
    step->lower = settings->lower;
    step->accents = settings->has_accents ? settings->accents : settings->lower;
    SW_TRY(sw_pretokenizer_add_class(&self->pretokenizer, sw_char_is_space, SW_SPLIT_REMOVED));
    SW_TRY(
        sw_pretokenizer_add_class(&self->pretokenizer, sw_char_is_punctuation, SW_SPLIT_ISOLATED));
    SW_TRY(sw_decoder_add(&self->decoder, SW_DECODE_WORDPIECE, &decode));
    decode->clean = true;
    decode->pattern = sw_strdup("tokenizer", "##");
    SW_TRY_ALLOC(decode->pattern, "a tokenizer");
    return SW_OK;
}

static sw_status build(struct sw_pipeline *self, const struct settings *settings)
{
    enum { MOST_CHARS = 100 };
    struct sw_wordpiece *model = &self->wordpiece;
    sw_pipeline_set_kind(self, SW_MODEL_WORDPIECE);
    model->max_chars = MOST_CHARS;
    model->unknown = sw_vocab_find(&self->vocab, "[UNK]", 5);
    if (model->unknown < 0) {
        return SW_FAIL(SW_E_FORMAT, "no token [UNK]");
    }
    sw_str_puts(&model->prefix, "##");
    SW_TRY(model->prefix.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a tokenizer")
                                : SW_OK);
    SW_TRY(sw_wordpiece_init(model, &self->vocab));
    SW_TRY(set_steps(self, settings));
    SW_TRY(set_templates(self));
    SW_TRY(add_special(self));
    return sw_pipeline_finish(self);
}

static sw_status parse(const char *path, const char *text, size_t len,
                       const struct settings *settings, struct sw_pipeline *self)
{
    SW_TRY(read_lines(path, text, len, self));
    SW_TRY(sw_tokenizer_keep_file(&self->super, "vocab.txt", text, len));
    const sw_status st = build(self, settings);
    return st < 0 ? sw_fail_prefix(st, "%s", path) : SW_OK;
}

sw_status sw_tokenizer_open_vocab_txt(const char *path, struct sw_tokenizer **out)
{
    sw_status st;
    char *text = NULL;
    size_t len;
    struct sw_pipeline *self = NULL;
    struct sw_str folder = {0};
    struct settings settings;
    SW_TRY(sw_file_read(path, &text, &len));
    SW_TRY_OR(done, sw_tokenizer_folder_of(path, &folder));
    SW_TRY_OR(done, read_settings(folder.ptr, &settings));
    SW_TRY_OR(done, sw_pipeline_open(&self));
    SW_TRY_OR(done, parse(path, text, len, &settings, self));
    SW_TRY_OR(done, sw_tokenizer_read_roles(&self->super, folder.ptr));
    *out = &self->super;
    self = NULL;
done:
    sw_tokenizer_close(self ? &self->super : NULL);
    sw_str_fini(&folder);
    sw_free(text);
    return st;
}
