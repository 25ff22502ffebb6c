// SPDX-License-Identifier: Apache-2.0
// vocab.json + merges.txt (encoder.json + vocab.bpe at OpenAI): a byte-level BPE as a class of
// transformers makes it - GPT-2's, RoBERTa's and BART's, or Qwen2's. The pair names neither the
// class nor the special tokens. They come from tokenizer_config.json and the model's config.json.
#include "token/class_files.h"

#include <string.h>

enum { VOCAB, MERGES, SETTINGS, MODEL, MAP, ADDED, N_FILES = SW_VOCAB_MERGES_FILES };

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

/* ---- differences between the classes ---- */

enum tokenizer_class { CLASS_GPT2, CLASS_ROBERTA, CLASS_QWEN2 };

static const char *const class_names[] = {
    [CLASS_GPT2] = "gpt2", [CLASS_ROBERTA] = "roberta", [CLASS_QWEN2] = "qwen2"};
static const char *const equal_classes[] = {
    [CLASS_GPT2] = "GPT2", [CLASS_ROBERTA] = "Roberta", [CLASS_QWEN2] = "Qwen2"};

/* Classes of transformers 5, and models that imply one of them. */
static const struct sw_class_names known[] = {
    [CLASS_GPT2] = {"GPT2 CodeGen",
                    "gpt2 gpt_neo gptj gpt_bigcode opt codegen phi starcoder2 dbrx jais2"},
    [CLASS_ROBERTA] = {"Roberta Bart Longformer LED Mvp",
                       "roberta roberta-prelayernorm bart longformer led mvp data2vec-text ibert"},
    [CLASS_QWEN2] = {"Qwen2 Qwen3", "qwen2 qwen2_moe qwen3 qwen3_moe"},
};

static const struct sw_class_table table = {
    "vocab.json and merges.txt", known, SW_LEN(known),
    "blenderbot blenderbot-small clip ctrl deberta flaubert fsmt herbert layoutlmv3 luke markuplm "
    "openai-gpt whisper xlm"};

static const char end_of_text[] = "<|endoftext|>";
/* RoBERTa's mask takes the space before it, as in the tokenizer.json of its models. */
static const struct sw_class_roles usual_tokens[] = {
    [CLASS_GPT2] = {{end_of_text, end_of_text, end_of_text}},
    [CLASS_ROBERTA] = {{"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"}, true},
    [CLASS_QWEN2] =
        {{[SW_ROLE_EOS] = end_of_text, [SW_ROLE_UNK] = end_of_text, [SW_ROLE_PAD] = end_of_text}},
};

/* Sets the special tokens around a text: RoBERTa's <s> and </s>, else as the settings say. */
static sw_status set_templates(enum tokenizer_class kind, const int32_t ids[SW_ROLES], bool bos,
                               bool eos, struct sw_pipeline *self)
{
    self->super.bos = ids[SW_ROLE_BOS];
    self->super.eos = ids[SW_ROLE_EOS];
    if (kind != CLASS_ROBERTA) {
        return bos || eos ? sw_tokenizer_surround(&self->super, bos, eos) : SW_OK;
    }
    if (ids[SW_ROLE_CLS] < 0 || ids[SW_ROLE_SEP] < 0) {
        return SW_FAIL(SW_E_FORMAT,
                       "RoBERTa's class puts <s> and </s> around a text (cls_token and sep_token "
                       "name others), and the vocabulary does not have them");
    }
    return sw_tokenizer_mark(&self->super, ids[SW_ROLE_CLS], ids[SW_ROLE_SEP], true);
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

/* vocab: the path of the vocabulary */
static sw_status take_class(const struct sw_class_files *files, const char *vocab,
                            struct sw_pipeline *self)
{
    int32_t ids[SW_ROLES];
    size_t kind;
    bool bos, eos;
    const struct sw_json *settings = sw_json_root(files->settings);
    sw_status st = sw_class_files_find(files, &table, &kind);
    SW_TRY(st < 0 ? sw_fail_prefix(st, "%s", vocab) : SW_OK);
    self->super.class_name = class_names[kind];
    self->super.equal_class = equal_classes[kind];
    SW_TRY(set_words((enum tokenizer_class)kind, self));
    SW_TRY(sw_json_get_bool(files->settings, settings, "add_prefix_space", false,
                            &self->pretokenizer.prefix_space));
    SW_TRY(sw_json_get_bool(files->settings, settings, "add_bos_token", false, &bos));
    SW_TRY(sw_json_get_bool(files->settings, settings, "add_eos_token", false, &eos));
    SW_TRY(sw_class_files_add_tokens(files, &usual_tokens[kind], false, self, ids));
    st = set_templates((enum tokenizer_class)kind, ids, bos, eos, self);
    return st < 0 ? sw_fail_prefix(st, "%s", vocab) : SW_OK;
}

static sw_status read_class(const struct sw_named_text files[N_FILES], struct sw_pipeline *self)
{
    sw_status st;
    struct sw_class_files in = {0};
    SW_TRY_OR(done, sw_named_text_parse(&files[SETTINGS], &in.settings));
    SW_TRY_OR(done, sw_named_text_parse(&files[MODEL], &in.model));
    SW_TRY_OR(done, sw_named_text_parse(&files[MAP], &in.map));
    SW_TRY_OR(done, sw_named_text_parse(&files[ADDED], &in.added));
    st = take_class(&in, files[VOCAB].name, self);
done:
    sw_class_files_close(&in);
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
    SW_TRY_OR(done, sw_tokenizer_keep_added(&(*out)->super, folder));
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
    static const char *const beside[N_FILES] = {[SETTINGS] = "tokenizer_config.json",
                                                [MODEL] = "config.json",
                                                [MAP] = "special_tokens_map.json",
                                                [ADDED] = "added_tokens.json"};
    sw_status st;
    struct sw_pipeline *self = NULL;
    struct sw_str folder = {0}, names[N_FILES] = {0};
    const char *paths[N_FILES] = {vocab_path, merges_path};
    bool failed = false;
    SW_TRY_OR(done, sw_tokenizer_folder_of(vocab_path, &folder));
    for (int i = SETTINGS; i < N_FILES; ++i) {
        sw_str_printf(&names[i], "%s/%s", folder.ptr, beside[i]);
        failed = failed || names[i].failed;
        paths[i] = sw_str_text(&names[i]);
    }
    if (failed) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a path");
        goto done;
    }
    SW_TRY_OR(done, open_paths(paths, folder.ptr, options, &self));
    *out = &self->super;
    self = NULL;
done:
    sw_tokenizer_close(self ? &self->super : NULL);
    for (int i = SETTINGS; i < N_FILES; ++i) {
        sw_str_fini(&names[i]);
    }
    sw_str_fini(&folder);
    return st;
}
