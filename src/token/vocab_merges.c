// SPDX-License-Identifier: Apache-2.0
// vocab.json + merges.txt (encoder.json + vocab.bpe at OpenAI): a byte-level BPE as a class of
// transformers makes it - GPT-2's, RoBERTa's and BART's, or Qwen2's. The pair names neither the
// class nor the special tokens. They come from tokenizer_config.json and the model's config.json.
#include "token/pipeline.h"

#include <string.h>
#include <strings.h>

enum { VOCAB, MERGES, SETTINGS, MODEL, N_FILES = SW_VOCAB_MERGES_FILES };

static sw_status read_vocab(const struct sw_named_text *file, struct sw_pipeline *self)
{
    SW_TRY(sw_vocab_read_json(file, &self->vocab));
    return sw_tokenizer_keep_file(&self->super, "vocab.json", file->text, file->len);
}

/* Reads one line "left right". "#version" lines and empty ones are skipped. */
static sw_status read_merge_line(const char *path, int64_t i_line, const char *line, size_t len,
                                 struct sw_pipeline *self, int64_t *rank)
{
    if (len > 0 && line[len - 1] == '\r') {
        len--;
    }
    if (len == 0 || (len >= 8 && memcmp(line, "#version", 8) == 0)) {
        return SW_OK;
    }
    const char *space = memchr(line, ' ', len);
    const size_t n_left = space ? (size_t)(space - line) : 0;
    if (!space || memchr(space + 1, ' ', len - n_left - 1)) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s:%lld: wanted two tokens with one space between, found '%.*s'", path,
                       (long long)i_line, (int)sw_min_i64((int64_t)len, 60), line);
    }
    const sw_status st =
        sw_bpe_add_merge(&self->bpe, line, n_left, space + 1, len - n_left - 1, (*rank)++);
    return st < 0 ? sw_fail_prefix(st, "%s:%lld", path, (long long)i_line) : SW_OK;
}

static sw_status read_merges(const struct sw_named_text *file, struct sw_pipeline *self)
{
    int64_t rank = 0, i_line = 1;
    for (size_t at = 0; at < file->len; ++i_line) {
        const char *line = file->text + at, *end = memchr(line, '\n', file->len - at);
        const size_t n = end ? (size_t)(end - line) : file->len - at;
        SW_TRY(read_merge_line(file->name, i_line, line, n, self, &rank));
        at += n + 1;
    }
    return sw_tokenizer_keep_file(&self->super, "merges.txt", file->text, file->len);
}

static sw_status add_listed_token(void *ctx, const struct sw_json_doc *doc,
                                  const struct sw_json *entry, int64_t id)
{
    return sw_pipeline_add_entry(ctx, doc, entry, id);
}

static sw_status take_settings(const struct sw_json_doc *doc, const struct sw_json *root,
                               struct sw_pipeline *self)
{
    SW_TRY(
        sw_json_get_bool(doc, root, "add_prefix_space", false, &self->pretokenizer.prefix_space));
    return sw_added_entries_each(doc, root, add_listed_token, self);
}

/* ---- differences between the classes ---- */

enum tokenizer_class { CLASS_GPT2, CLASS_ROBERTA, CLASS_QWEN2 };
enum role { ROLE_BOS, ROLE_EOS, ROLE_UNK, ROLE_SEP, ROLE_CLS, ROLE_PAD, ROLE_MASK, N_ROLES };

static const char *const class_names[] = {
    [CLASS_GPT2] = "gpt2", [CLASS_ROBERTA] = "roberta", [CLASS_QWEN2] = "qwen2"};

static const char end_of_text[] = "<|endoftext|>";
/* Default special tokens of a class; NULL: it has none. */
static const char *const usual_tokens[][N_ROLES] = {
    [CLASS_GPT2] = {end_of_text, end_of_text, end_of_text},
    [CLASS_ROBERTA] = {"<s>", "</s>", "<unk>", "</s>", "<s>", "<pad>", "<mask>"},
    [CLASS_QWEN2] = {[ROLE_EOS] = end_of_text, [ROLE_UNK] = end_of_text, [ROLE_PAD] = end_of_text},
};
static const char *const role_keys[N_ROLES] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "cls_token", "pad_token", "mask_token"};

/* "bart", "BartTokenizer" and "BartTokenizerFast" are the same class. The default is GPT-2's. */
static enum tokenizer_class class_of(const char *name)
{
    static const struct {
        const char *model;
        enum tokenizer_class kind;
    } known[] = {{"roberta", CLASS_ROBERTA},
                 {"bart", CLASS_ROBERTA},
                 {"qwen2", CLASS_QWEN2},
                 {"qwen3", CLASS_QWEN2}};
    for (size_t i = 0; i < SW_LEN(known); ++i) {
        const size_t n = strlen(known[i].model);
        if (strncasecmp(name, known[i].model, n) == 0 &&
            (name[n] == '\0' || strncmp(name + n, "Tokenizer", 9) == 0)) {
            return known[i].kind;
        }
    }
    return CLASS_GPT2;
}

/* Marks the class's special tokens as special. Returns their ids; -1: not in the vocabulary. */
static sw_status add_special(const struct sw_json *settings, enum tokenizer_class kind,
                             struct sw_pipeline *self, int32_t ids[N_ROLES])
{
    const struct sw_added_token flags = {.special = true};
    for (int i = 0; i < N_ROLES; ++i) {
        const char *given = sw_tokenizer_role_text(settings, role_keys[i]);
        const char *text = given ? given : usual_tokens[kind][i];
        const size_t n = text ? strlen(text) : 0;
        const int32_t added = text ? sw_vocab_find(&self->added, text, n) : -1;
        ids[i] = added >= 0 || !text ? added : sw_vocab_find(&self->vocab, text, n);
        if (ids[i] >= 0 && added < 0) {
            SW_TRY(sw_pipeline_add_token(self, text, n, ids[i], flags, false));
        }
    }
    return SW_OK;
}

/* Sets the special tokens around a text: RoBERTa's <s> and </s>, else as the settings say. */
static sw_status set_templates(enum tokenizer_class kind, const int32_t ids[N_ROLES], bool bos,
                               bool eos, struct sw_pipeline *self)
{
    self->super.bos = ids[ROLE_BOS];
    self->super.eos = ids[ROLE_EOS];
    if (kind != CLASS_ROBERTA) {
        return bos || eos ? sw_tokenizer_surround(&self->super, bos, eos) : SW_OK;
    }
    if (ids[ROLE_CLS] < 0 || ids[ROLE_SEP] < 0) {
        return SW_FAIL(SW_E_FORMAT,
                       "RoBERTa's class puts <s> and </s> around a text (cls_token and sep_token "
                       "name others), and the vocabulary does not have them");
    }
    return sw_tokenizer_mark(&self->super, ids[ROLE_CLS], ids[ROLE_SEP], true);
}

static sw_status set_words(enum tokenizer_class kind, struct sw_pipeline *self)
{
    struct sw_normal_step *step;
    const char *pattern = kind == CLASS_QWEN2 ? sw_qwen2_pattern : sw_gpt2_pattern;
    if (kind == CLASS_QWEN2) {
        SW_TRY(sw_normalizer_add(&self->normalizer, SW_NORMAL_NFC, &step));
    }
    return sw_pretokenizer_add(&self->pretokenizer, pattern, strlen(pattern), false,
                               SW_SPLIT_ISOLATED, false);
}

/* The files beside the pair; empty if absent. */
struct beside {
    struct sw_json_doc *settings, *model;
    const char *vocab; /* the path of the vocabulary */
};

/* Takes the class from tokenizer_config.json, else from the model's config.json, else by family. */
static sw_status take_class(const struct beside *in, struct sw_pipeline *self)
{
    int32_t ids[N_ROLES];
    const char *name;
    bool bos, eos;
    const struct sw_json *settings = sw_json_root(in->settings), *model = sw_json_root(in->model);
    SW_TRY(sw_json_get_str(in->model, model, "model_type", "", &name));
    SW_TRY(sw_json_get_str(in->model, model, "tokenizer_class", name, &name));
    SW_TRY(sw_json_get_str(in->settings, settings, "tokenizer_class", name, &name));
    const enum tokenizer_class kind = class_of(name);
    self->super.class_name = class_names[kind];
    SW_TRY(set_words(kind, self));
    SW_TRY(take_settings(in->settings, settings, self));
    SW_TRY(sw_json_get_bool(in->settings, settings, "add_bos_token", false, &bos));
    SW_TRY(sw_json_get_bool(in->settings, settings, "add_eos_token", false, &eos));
    SW_TRY(add_special(settings, kind, self, ids));
    const sw_status st = set_templates(kind, ids, bos, eos, self);
    return st < 0 ? sw_fail_prefix(st, "%s", in->vocab) : SW_OK;
}

static sw_status read_class(const struct sw_named_text files[N_FILES], struct sw_pipeline *self)
{
    sw_status st;
    struct beside in = {.vocab = files[VOCAB].name};
    SW_TRY_OR(done, sw_named_text_parse(&files[SETTINGS], &in.settings));
    SW_TRY_OR(done, sw_named_text_parse(&files[MODEL], &in.model));
    st = take_class(&in, self);
done:
    sw_json_close(in.settings);
    sw_json_close(in.model);
    return st;
}

static sw_status parse_all(const struct sw_named_text files[N_FILES],
                           const struct sw_tokenizer_options *options, struct sw_pipeline *self)
{
    SW_TRY(read_vocab(&files[VOCAB], self));
    SW_TRY(sw_bpe_init(&self->bpe, &self->vocab));
    SW_TRY(read_merges(&files[MERGES], self));
    SW_TRY(read_class(files, self));
    if (options->prefix_space != SW_PREFIX_AS_FILE) {
        self->pretokenizer.prefix_space = options->prefix_space == SW_PREFIX_ON;
    }
    const sw_status st = sw_pipeline_finish(self);
    return st < 0 ? sw_fail_prefix(st, "%s", files[VOCAB].name) : SW_OK;
}

sw_status sw_tokenizer_parse_vocab_merges(const struct sw_named_text files[N_FILES],
                                          const struct sw_tokenizer_options *options,
                                          struct sw_pipeline **out)
{
    struct sw_pipeline *self = NULL;
    SW_TRY(sw_pipeline_open(&self));
    const sw_status st = parse_all(files, options, self);
    if (st < 0) {
        sw_tokenizer_close(&self->super);
        return st;
    }
    *out = self;
    return SW_OK;
}

/* Reads the files, then makes the tokenizer from them. */
static sw_status open_paths(const char *const paths[N_FILES], const char *folder,
                            const struct sw_tokenizer_options *options, struct sw_pipeline **out)
{
    sw_status st;
    struct sw_named_text files[N_FILES] = {0};
    char *texts[N_FILES] = {0};
    SW_TRY_OR(done, sw_named_texts_read(paths, N_FILES, SETTINGS, texts, files));
    SW_TRY_OR(done, sw_tokenizer_parse_vocab_merges(files, options, out));
    SW_TRY_OR(done, sw_tokenizer_read_roles(&(*out)->super, folder));
done:
    for (int i = 0; i < N_FILES; ++i) {
        sw_free(texts[i]);
    }
    return st;
}

sw_status sw_tokenizer_open_vocab_merges(const char *vocab_path, const char *merges_path,
                                         const struct sw_tokenizer_options *options,
                                         struct sw_tokenizer **out)
{
    sw_status st;
    struct sw_pipeline *self = NULL;
    struct sw_str folder = {0}, settings = {0}, model = {0};
    SW_TRY_OR(done, sw_tokenizer_folder_of(vocab_path, &folder));
    sw_str_printf(&settings, "%s/tokenizer_config.json", folder.ptr);
    sw_str_printf(&model, "%s/config.json", folder.ptr);
    if (settings.failed || model.failed) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a path");
        goto done;
    }
    const char *const paths[N_FILES] = {vocab_path, merges_path, settings.ptr, model.ptr};
    SW_TRY_OR(done, open_paths(paths, folder.ptr, options, &self));
    *out = &self->super;
    self = NULL;
done:
    sw_tokenizer_close(self ? &self->super : NULL);
    sw_str_fini(&settings);
    sw_str_fini(&model);
    sw_str_fini(&folder);
    return st;
}
