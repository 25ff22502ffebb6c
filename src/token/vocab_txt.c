// SPDX-License-Identifier: Apache-2.0
// vocab.txt: one token per line, whose id is the line number. The tokenizer is WordPiece as in
// BERT's class, or MPNet's. The files beside it name the class and special tokens, and set the
// handling of case and accents.
#include "token/class_files.h"

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

static sw_status take_settings(const struct sw_class_files *files, struct settings *out)
{
    struct sw_json_doc *doc = files->settings;
    const struct sw_json *root = sw_json_root(doc);
    const struct sw_json *accents = sw_json_get(root, "strip_accents");
    *out = (struct settings){0};
    SW_TRY(sw_json_get_bool(doc, root, "do_lower_case", true, &out->lower));
    SW_TRY(sw_json_get_bool(doc, root, "tokenize_chinese_chars", true, &out->ideographs));
    out->has_accents = accents && accents->type != SW_JSON_NULL;
    return out->has_accents ? sw_json_get_bool(doc, root, "strip_accents", true, &out->accents)
                            : SW_OK;
}

enum tokenizer_class { CLASS_BERT, CLASS_MPNET };

/* Classes of transformers 5, and models that imply one of them. */
static const struct sw_class_names known[] = {
    [CLASS_BERT] = {"Bert DistilBert Electra ConvBert MobileBert SqueezeBert LayoutLM Lxmert "
                    "RetriBert DPRQuestionEncoder DPRContextEncoder DPRReader",
                    "bert distilbert electra convbert mobilebert squeezebert layoutlm lxmert dpr "
                    "ernie megatron-bert nezha nomic_bert qdqbert retribert visual_bert"},
    [CLASS_MPNET] = {"MPNet", "mpnet"},
};
static const struct sw_class_table table = {
    "vocab.txt", known, SW_LEN(known),
    "cpmant esm funnel layoutlmv2 prophetnet roc_bert roformer splinter tapas"};

static const char *const equal_classes[] = {[CLASS_BERT] = "Bert", [CLASS_MPNET] = "MPNet"};

static const struct sw_class_roles usual_tokens[] = {
    [CLASS_BERT] = {{[SW_ROLE_UNK] = "[UNK]",
                     [SW_ROLE_SEP] = "[SEP]",
                     [SW_ROLE_PAD] = "[PAD]",
                     [SW_ROLE_CLS] = "[CLS]",
                     [SW_ROLE_MASK] = "[MASK]"}},
    [CLASS_MPNET] = {{"<s>", "</s>", "[UNK]", "</s>", "<pad>", "<s>", "<mask>"}, true},
};

/* [CLS] text [SEP], [CLS] A [SEP] B [SEP]; MPNet's are those of RoBERTa. */
static sw_status set_templates(struct sw_pipeline *self, size_t kind, const int32_t ids[SW_ROLES])
{
    const int32_t cls = ids[SW_ROLE_CLS], sep = ids[SW_ROLE_SEP];
    if (cls < 0 || sep < 0) {
        return SW_FAIL(SW_E_FORMAT, "no token %s (%s)",
                       usual_tokens[kind].text[cls < 0 ? SW_ROLE_CLS : SW_ROLE_SEP],
                       cls < 0 ? "cls_token" : "sep_token");
    }
    return sw_tokenizer_mark(&self->super, cls, sep, kind == CLASS_MPNET);
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

static sw_status build(struct sw_pipeline *self, const struct sw_class_files *files)
{
    enum { MOST_CHARS = 100 };
    int32_t ids[SW_ROLES];
    struct settings settings;
    size_t kind;
    struct sw_wordpiece *model = &self->wordpiece;
    SW_TRY(sw_class_files_find(files, &table, &kind));
    self->super.equal_class = equal_classes[kind];
    SW_TRY(take_settings(files, &settings));
    sw_pipeline_set_kind(self, SW_MODEL_WORDPIECE);
    SW_TRY(sw_class_files_add_tokens(files, &usual_tokens[kind], false, self, ids));
    model->max_chars = MOST_CHARS;
    model->unknown = ids[SW_ROLE_UNK];
    if (model->unknown < 0) {
        return SW_FAIL(SW_E_FORMAT, "no token [UNK] (unk_token)");
    }
    sw_str_puts(&model->prefix, "##");
    SW_TRY(model->prefix.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a tokenizer")
                                : SW_OK);
    SW_TRY(sw_wordpiece_init(model, &self->vocab));
    SW_TRY(set_steps(self, &settings));
    SW_TRY(set_templates(self, kind, ids));
    return sw_pipeline_finish(self);
}

static sw_status parse(const char *path, const char *text, size_t len,
                       const struct sw_class_files *files, struct sw_pipeline *self)
{
    SW_TRY(read_lines(path, text, len, self));
    SW_TRY(sw_tokenizer_keep_file(&self->super, "vocab.txt", text, len));
    const sw_status st = build(self, files);
    return st < 0 ? sw_fail_prefix(st, "%s", path) : SW_OK;
}

sw_status sw_tokenizer_open_vocab_txt(const char *path, struct sw_tokenizer **out)
{
    sw_status st;
    char *text = NULL;
    size_t len;
    struct sw_pipeline *self = NULL;
    struct sw_str folder = {0};
    struct sw_class_files files = {0};
    SW_TRY(sw_file_read(path, &text, &len));
    SW_TRY_OR(done, sw_tokenizer_folder_of(path, &folder));
    SW_TRY_OR(done, sw_class_files_read(folder.ptr, &files));
    SW_TRY_OR(done, sw_pipeline_open(&self));
    SW_TRY_OR(done, parse(path, text, len, &files, self));
    SW_TRY_OR(done, sw_tokenizer_keep_added(&self->super, folder.ptr));
    SW_TRY_OR(done, sw_tokenizer_read_roles(&self->super, folder.ptr));
    *out = &self->super;
    self = NULL;
done:
    sw_tokenizer_close(self ? &self->super : NULL);
    sw_class_files_close(&files);
    sw_str_fini(&folder);
    sw_free(text);
    return st;
}
