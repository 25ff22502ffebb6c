// SPDX-License-Identifier: Apache-2.0
// vocab.json + merges.txt (encoder.json + vocab.bpe at OpenAI): a byte-level BPE as GPT-2's class
// makes it. Which tokens are special is in no file of the pair, so tokenizer_config.json beside it
// is asked, and <|endoftext|> is special where the vocabulary has it.
#include "data/pipeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static sw_status take_vocab(const struct sw_json_doc *doc, const struct sw_json *root,
                            struct sw_pipeline *self)
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
        const sw_status st = sw_vocab_add(&self->vocab, token->key, token->key_len, token->integer);
        if (st < 0) {
            return sw_fail_prefix(st, "%s", path);
        }
    }
    return SW_OK;
}

static sw_status read_vocab(const struct sw_named_text *file, struct sw_pipeline *self)
{
    struct sw_json_doc *doc = NULL;
    SW_TRY(sw_json_parse(file->name, file->text, file->len, SW_JSON_STRICT, &doc));
    const sw_status st = take_vocab(doc, sw_json_root(doc), self);
    sw_json_close(doc);
    SW_TRY(st);
    return sw_tokenizer_keep_file(&self->super, "vocab.json", file->text, file->len);
}

/* One line "left right"; "#version" lines and empty ones are no merges. */
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

/* "added_tokens_decoder": {"50256": {"content": .., "special": .., ..}} of
 * tokenizer_config.json. */
static sw_status add_listed_token(const struct sw_json_doc *doc, const struct sw_json *entry,
                                  struct sw_pipeline *self)
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
    const sw_status st = sw_pipeline_add_entry(self, doc, entry, id);
    return st < 0 ? sw_fail_prefix(st, "%s", sw_json_name(doc)) : SW_OK;
}

static sw_status take_settings(const struct sw_json_doc *doc, const struct sw_json *root,
                               struct sw_pipeline *self)
{
    if (root->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s, wanted an object", sw_json_name(doc),
                       sw_json_type_name(root->type));
    }
    SW_TRY(
        sw_json_get_bool(doc, root, "add_prefix_space", false, &self->pretokenizer.prefix_space));
    const struct sw_json *list = sw_json_get(root, "added_tokens_decoder");
    if (!list || list->type == SW_JSON_NULL) {
        return SW_OK;
    }
    if (list->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d: added_tokens_decoder is %s, wanted an object of ids",
                       sw_json_name(doc), list->line, sw_json_type_name(list->type));
    }
    for (const struct sw_json *entry = list->first; entry; entry = entry->next) {
        SW_TRY(add_listed_token(doc, entry, self));
    }
    return SW_OK;
}

static sw_status read_settings(const struct sw_named_text *file, struct sw_pipeline *self)
{
    struct sw_json_doc *doc = NULL;
    SW_TRY(sw_json_parse(file->name, file->text, file->len, SW_JSON_STRICT, &doc));
    const sw_status st = take_settings(doc, sw_json_root(doc), self);
    sw_json_close(doc);
    return st;
}

static sw_status add_end_of_text(struct sw_pipeline *self)
{
    static const char text[] = "<|endoftext|>";
    const struct sw_added_token flags = {.special = true};
    const int32_t id = sw_vocab_find(&self->vocab, text, sizeof(text) - 1);
    if (id < 0 || sw_vocab_find(&self->added, text, sizeof(text) - 1) >= 0) {
        return SW_OK;
    }
    return sw_pipeline_add_token(self, text, sizeof(text) - 1, id, flags, false);
}

static sw_status parse_all(const struct sw_named_text files[3],
                           const struct sw_tokenizer_options *options, struct sw_pipeline *self)
{
    SW_TRY(read_vocab(&files[0], self));
    SW_TRY(sw_bpe_init(&self->bpe, &self->vocab));
    SW_TRY(read_merges(&files[1], self));
    SW_TRY(sw_pretokenizer_add(&self->pretokenizer, sw_gpt2_pattern, strlen(sw_gpt2_pattern), false,
                               SW_SPLIT_ISOLATED, false));
    if (files[2].text) {
        SW_TRY(read_settings(&files[2], self));
    }
    if (options->prefix_space != SW_PREFIX_AS_FILE) {
        self->pretokenizer.prefix_space = options->prefix_space == SW_PREFIX_ON;
    }
    SW_TRY(add_end_of_text(self));
    const sw_status st = sw_pipeline_finish(self);
    return st < 0 ? sw_fail_prefix(st, "%s", files[0].name) : SW_OK;
}

sw_status sw_tokenizer_parse_vocab_merges(const struct sw_named_text files[3],
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

/* The third file may be missing. */
static sw_status read_files(const char *const paths[3], char *texts[3],
                            struct sw_named_text files[3])
{
    for (int i = 0; i < 3; ++i) {
        if (i == 2 && access(paths[i], F_OK) != 0) {
            break;
        }
        SW_TRY(sw_file_read(paths[i], &texts[i], &files[i].len));
        files[i].name = paths[i];
        files[i].text = texts[i];
    }
    return SW_OK;
}

sw_status sw_tokenizer_open_vocab_merges(const char *vocab_path, const char *merges_path,
                                         const struct sw_tokenizer_options *options,
                                         struct sw_tokenizer **out)
{
    sw_status st;
    struct sw_pipeline *self = NULL;
    struct sw_str folder = {0}, settings = {0};
    struct sw_named_text files[3] = {0};
    char *texts[3] = {0};
    SW_TRY_OR(done, sw_tokenizer_folder_of(vocab_path, &folder));
    sw_str_printf(&settings, "%s/tokenizer_config.json", folder.ptr);
    if (settings.failed) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a path");
        goto done;
    }
    const char *const paths[3] = {vocab_path, merges_path, settings.ptr};
    SW_TRY_OR(done, read_files(paths, texts, files));
    SW_TRY_OR(done, sw_tokenizer_parse_vocab_merges(files, options, &self));
    SW_TRY_OR(done, sw_tokenizer_read_roles(&self->super, folder.ptr));
    *out = &self->super;
    self = NULL;
done:
    sw_tokenizer_close(self ? &self->super : NULL);
    for (int i = 0; i < 3; ++i) {
        sw_free(texts[i]);
    }
    sw_str_fini(&settings);
    sw_str_fini(&folder);
    return st;
}
