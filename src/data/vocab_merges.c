// SPDX-License-Identifier: Apache-2.0
// vocab.json + merges.txt (encoder.json + vocab.bpe at OpenAI): a byte-level BPE as GPT-2's class
// makes it. Which tokens are special is in no file of the pair, so tokenizer_config.json beside it is
// asked, and <|endoftext|> is special where the vocabulary has it.
#include "data/byte_bpe.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static sw_status read_vocab(const char *path, struct sw_byte_bpe *self)
{
    sw_status st;
    struct sw_json_doc *doc = NULL;
    char *data = NULL;
    size_t len;
    SW_TRY(sw_file_read(path, &data, &len));
    SW_TRY_OR(done, sw_json_parse(path, data, len, SW_JSON_STRICT, &doc));
    const struct sw_json *root = sw_json_root(doc);
    if (root->type != SW_JSON_OBJECT) {
        st = SW_FAIL(SW_E_FORMAT, "%s: %s, wanted an object of tokens and ids", path,
                     sw_json_type_name(root->type));
        goto done;
    }
    for (const struct sw_json *token = root->first; token; token = token->next) {
        if (token->type != SW_JSON_INT) {
            st = SW_FAIL(SW_E_FORMAT, "%s:%d: the id of '%.40s' is %s, wanted a number", path,
                         token->line, token->key, sw_json_type_name(token->type));
            goto done;
        }
        st = sw_vocab_add(&self->vocab, token->key, token->key_len, token->integer);
        if (st < 0) {
            sw_fail_prefix(st, "%s", path);
            goto done;
        }
    }
    SW_TRY_OR(done, sw_tokenizer_keep_file(&self->super, "vocab.json", data, len));
done:
    sw_json_close(doc);
    sw_free(data);
    return st;
}

/* One line "left right"; "#version" lines and empty ones are no merges. */
static sw_status read_merge_line(const char *path, int64_t i_line, const char *line, size_t len,
                                 struct sw_byte_bpe *self, int64_t *rank)
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

static sw_status read_merges(const char *path, struct sw_byte_bpe *self)
{
    sw_status st;
    char *data = NULL;
    size_t len;
    int64_t rank = 0, i_line = 1;
    SW_TRY(sw_file_read(path, &data, &len));
    for (size_t at = 0; at < len; ++i_line) {
        const char *end = memchr(data + at, '\n', len - at);
        const size_t n = end ? (size_t)(end - (data + at)) : len - at;
        SW_TRY_OR(done, read_merge_line(path, i_line, data + at, n, self, &rank));
        at += n + 1;
    }
    SW_TRY_OR(done, sw_tokenizer_keep_file(&self->super, "merges.txt", data, len));
done:
    sw_free(data);
    return st;
}

/* "added_tokens_decoder": {"50256": {"content": .., "special": .., ..}} of tokenizer_config.json. */
static sw_status add_listed_token(const struct sw_json_doc *doc, const struct sw_json *entry,
                                  struct sw_byte_bpe *self)
{
    char *end;
    const long long id = strtoll(entry->key, &end, 10);
    if (*end != '\0' || end == entry->key) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d: '%.20s' is not an id", sw_json_name(doc),
                       entry->key_line, entry->key);
    }
    const sw_status st = sw_byte_bpe_add_entry(self, doc, entry, id);
    return st < 0 ? sw_fail_prefix(st, "%s", sw_json_name(doc)) : SW_OK;
}

static sw_status read_settings(const char *path, struct sw_byte_bpe *self)
{
    sw_status st = SW_OK;
    struct sw_json_doc *doc = NULL;
    if (access(path, F_OK) != 0) {
        return SW_OK;
    }
    SW_TRY(sw_json_read(path, SW_JSON_STRICT, &doc));
    const struct sw_json *root = sw_json_root(doc);
    const struct sw_json *list = sw_json_get(root, "added_tokens_decoder");
    SW_TRY_OR(done, sw_json_get_bool(doc, root, "add_prefix_space", false,
                                     &self->pretokenizer.prefix_space));
    for (const struct sw_json *entry = list ? list->first : NULL; entry; entry = entry->next) {
        SW_TRY_OR(done, add_listed_token(doc, entry, self));
    }
done:
    sw_json_close(doc);
    return st;
}

static sw_status add_end_of_text(struct sw_byte_bpe *self)
{
    static const char text[] = "<|endoftext|>";
    const struct sw_added_token flags = {.special = true};
    const int32_t id = sw_vocab_find(&self->vocab, text, sizeof(text) - 1);
    if (id < 0 || sw_vocab_find(&self->added, text, sizeof(text) - 1) >= 0) {
        return SW_OK;
    }
    return sw_byte_bpe_add_token(self, text, sizeof(text) - 1, id, flags, false);
}

static sw_status read_all(const char *vocab_path, const char *merges_path, const char *folder,
                          const struct sw_tokenizer_options *options, struct sw_byte_bpe *self)
{
    sw_status st;
    struct sw_str settings = {0};
    SW_TRY(read_vocab(vocab_path, self));
    SW_TRY(sw_bpe_init(&self->bpe, &self->vocab));
    SW_TRY(read_merges(merges_path, self));
    SW_TRY(sw_pretokenizer_add(&self->pretokenizer, sw_gpt2_pattern, strlen(sw_gpt2_pattern), false,
                               SW_SPLIT_ISOLATED, false));
    sw_str_printf(&settings, "%s/tokenizer_config.json", folder);
    st = settings.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a path")
                         : read_settings(settings.ptr, self);
    sw_str_fini(&settings);
    SW_TRY(st);
    if (options->prefix_space != SW_PREFIX_AS_FILE) {
        self->pretokenizer.prefix_space = options->prefix_space == SW_PREFIX_ON;
    }
    SW_TRY(add_end_of_text(self));
    st = sw_byte_bpe_finish(self);
    return st < 0 ? sw_fail_prefix(st, "%s", vocab_path) : sw_byte_bpe_read_roles(self, folder);
}

sw_status sw_tokenizer_open_vocab_merges(const char *vocab_path, const char *merges_path,
                                         const struct sw_tokenizer_options *options,
                                         struct sw_tokenizer **out)
{
    sw_status st;
    struct sw_byte_bpe *self = NULL;
    struct sw_str folder = {0};
    SW_TRY_OR(done, sw_tokenizer_folder_of(vocab_path, &folder));
    SW_TRY_OR(done, sw_byte_bpe_open(&self));
    SW_TRY_OR(done, read_all(vocab_path, merges_path, folder.ptr, options, self));
    *out = &self->super;
    self = NULL;
done:
    sw_tokenizer_close(self ? &self->super : NULL);
    sw_str_fini(&folder);
    return st;
}
