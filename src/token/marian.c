// SPDX-License-Identifier: Apache-2.0
// Marian's tokenizer. A text is cut in this order:
// - tokens that tokenizer_config.json or the older files name, wherever they occur;
// - ">>..<<", the code of a language, if the text between those tokens begins with it;
// - the pieces of the SentencePiece model of the text's side.
// vocab.json gives the ids. A piece that it lacks is unknown, because the ids of the models have no
// meaning in it. Ids become text by the target's model.
#include "token/marian.h"

#include "token/decoder.h"
#include "token/prefix.h"
#include "token/sentencepiece.h"

#include <string.h>
#include <unistd.h>

enum { MARK = 0x2581 }; /* a space, in pieces */

static const char *const file_names[SW_MARIAN_FILES] = {
    [SW_MARIAN_SOURCE] = "source.spm",
    [SW_MARIAN_TARGET] = "target.spm",
    [SW_MARIAN_VOCAB] = "vocab.json",
    [SW_MARIAN_SETTINGS] = "tokenizer_config.json",
    [SW_MARIAN_ROLES] = "special_tokens_map.json",
    [SW_MARIAN_ADDED] = "added_tokens.json",
};

enum { SOURCE, TARGET };

struct marian {
    struct sw_tokenizer super;
    struct sw_tokenizer *models[2]; /* owned */
    struct sw_vocab vocab;          /* vocab.json and added tokens */
    struct sw_added_set whole;      /* tokens that no model cuts; a list until all are known */
    bool *special;                  /* [vocab_size] */
    int32_t unknown;
    bool has_list; /* see sw_tokenizer_lists_added */
};

static struct marian *self_of(const struct sw_tokenizer *tokenizer)
{
    return SW_CONTAINER(tokenizer, struct marian, super);
}

static void close_marian(struct sw_tokenizer *tokenizer)
{
    struct marian *self = self_of(tokenizer);
    sw_tokenizer_close(self->models[SOURCE]);
    sw_tokenizer_close(self->models[TARGET]);
    sw_vocab_fini(&self->vocab);
    sw_added_set_fini(&self->whole);
    sw_free(self->special);
    sw_tokenizer_fini(&self->super);
    sw_free(self);
}

/* ---- encoding ---- */

struct encoding {
    const struct marian *self;
    struct sw_ids *ids;
};

static sw_status put_piece(void *ctx, const char *text, size_t len, int32_t id_of_model)
{
    const struct encoding *to = ctx;
    const int32_t id = sw_vocab_find(&to->self->vocab, text, len);
    (void)id_of_model;
    return sw_ids_push(to->ids, id >= 0 ? id : to->self->unknown);
}

static sw_status encode_plain(struct encoding *to, int side, const char *text, size_t len)
{
    const bool begins = len >= 2 && memcmp(text, ">>", 2) == 0;
    const char *end = begins ? memmem(text, len, "<<", 2) : NULL;
    const size_t n_code = end ? (size_t)(end - text) + 2 : 0;
    SW_TRY(n_code > 0 ? put_piece(to, text, n_code, -1) : SW_OK);
    return sw_sentencepiece_cut(to->self->models[side], text + n_code, len - n_code, put_piece, to);
}

static sw_status encode_side(struct marian *self, int side, const char *text, size_t len,
                             struct sw_ids *ids)
{
    struct encoding to = {self, ids};
    struct sw_added_scan scan;
    struct sw_added_piece piece;
    SW_TRY(sw_utf8_check("text", text, len));
    sw_added_scan_init(&scan, &self->whole, text, len);
    for (bool more;;) {
        SW_TRY(sw_added_scan_next(&scan, &piece, &more));
        if (!more) {
            return SW_OK;
        }
        SW_TRY(piece.token ? sw_ids_push(ids, piece.token->id)
                           : encode_plain(&to, side, text + piece.first, piece.len));
    }
}

static sw_status encode(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                        struct sw_ids *ids)
{
    return encode_side(self_of(tokenizer), SOURCE, text, len, ids);
}

static sw_status encode_target(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                               struct sw_ids *ids)
{
    return encode_side(self_of(tokenizer), TARGET, text, len, ids);
}

/* ---- decoding ---- */

/* Python's str.strip drops these. The mark is a space here, too. */
static bool is_space(int32_t c)
{
    return c == MARK || sw_char_is_space(c) || (c >= 0x1C && c <= 0x1F);
}

/* Appends a text with marks as spaces, without white space at its ends. */
static void put_stripped(const struct sw_str *text, struct sw_str *out)
{
    size_t begin = text->len, end = 0;
    for (size_t at = 0, next = 0; at < text->len; at = next) {
        if (!is_space(sw_utf8_step(text->ptr, text->len, &next))) {
            begin = at < begin ? at : begin;
            end = next;
        }
    }
    for (size_t at = begin, next = begin; at < end; at = next) {
        const bool space = sw_utf8_step(text->ptr, text->len, &next) == MARK;
        sw_str_append(out, space ? " " : text->ptr + at, space ? 1 : next - at);
    }
}

/* Appends the pieces collected so far to the text. */
static sw_status join(const struct marian *self, struct sw_ids *pieces, struct sw_str *text)
{
    SW_TRY(
        sw_sentencepiece_join(self->models[TARGET], &self->vocab, pieces->ptr, pieces->len, text));
    sw_ids_clear(pieces);
    return SW_OK;
}

/* A special token begins a new text for the model. */
static sw_status join_all(const struct marian *self, const int32_t *ids, int64_t n_ids,
                          bool skip_special, struct sw_ids *pieces, struct sw_str *text)
{
    for (int64_t i = 0; i < n_ids; ++i) {
        if (!self->special[ids[i]]) {
            SW_TRY(sw_ids_push(pieces, ids[i]));
        } else if (!skip_special) {
            const struct sw_vocab_token *token = sw_vocab_token(&self->vocab, ids[i]);
            SW_TRY(join(self, pieces, text));
            sw_str_append(text, token->text, token->len);
            sw_str_putc(text, ' ');
        }
    }
    return join(self, pieces, text);
}

static sw_status decode(const struct sw_tokenizer *tokenizer, const int32_t *ids, int64_t n_ids,
                        bool skip_special, struct sw_str *out)
{
    struct sw_ids pieces = {0};
    struct sw_str text = {0}, stripped = {0};
    const struct marian *self = self_of(tokenizer);
    sw_status st = join_all(self, ids, n_ids, skip_special, &pieces, &text);
    if (st >= 0) {
        put_stripped(&text, &stripped);
        sw_str_append(out, sw_str_text(&stripped), stripped.len);
        st = text.failed || stripped.failed || out->failed
                 ? SW_FAIL(SW_E_NOMEM, "out of host memory for the text of %lld tokens",
                           (long long)n_ids)
                 : SW_OK;
    }
    sw_ids_fini(&pieces);
    sw_str_fini(&text);
    sw_str_fini(&stripped);
    return st;
}

static const char *token(const struct sw_tokenizer *tokenizer, int32_t id, size_t *out_len)
{
    const struct sw_vocab_token *found = sw_vocab_token(&self_of(tokenizer)->vocab, id);
    if (found && out_len) {
        *out_len = found->len;
    }
    return found ? found->text : NULL;
}

static int32_t find(const struct sw_tokenizer *tokenizer, const char *text, size_t len)
{
    return sw_vocab_find(&self_of(tokenizer)->vocab, text, len);
}

static const struct sw_tokenizer_ops ops = {.close = close_marian,
                                            .encode = encode,
                                            .encode_target = encode_target,
                                            .decode = decode,
                                            .token = token,
                                            .find = find};

/* ---- tokens that stay whole ---- */

static sw_status list_token(struct marian *self, int32_t id)
{
    const size_t n = self->whole.n;
    struct sw_added_token *list = self->whole.tokens;
    if ((n & (n - 1)) == 0) { /* full: it grows at 0, 1, 2, 4, .. */
        list = sw_realloc("tokenizer", list, (n > 0 ? 2 * n : 1) * sizeof(*list));
        SW_TRY_ALLOC(list, "the added tokens");
        self->whole.tokens = list;
    }
    const struct sw_vocab_token *token = sw_vocab_token(&self->vocab, id);
    list[self->whole.n++] =
        (struct sw_added_token){.text = token->text, .len = token->len, .id = id};
    return SW_OK;
}

/* Lists a token of vocab.json, or one more. */
static sw_status add_token(struct marian *self, const char *text, size_t len, int64_t id)
{
    const int32_t known = sw_vocab_find(&self->vocab, text, len);
    if (len == 0) {
        return SW_FAIL(SW_E_FORMAT, "the added token with the id %lld is empty", (long long)id);
    }
    if (known >= 0 && known != id) {
        return SW_FAIL(SW_E_FORMAT, "added token '%.40s' has the id %lld; it has the id %d already",
                       text, (long long)id, (int)known);
    }
    if (len > SW_PREFIX_MOST_BYTES) {
        return SW_FAIL(SW_E_FORMAT, "added token '%.40s' has %zu bytes, wanted at most %d", text,
                       len, SW_PREFIX_MOST_BYTES);
    }
    SW_TRY(known < 0 ? sw_vocab_add(&self->vocab, text, len, id) : SW_OK);
    return list_token(self, (int32_t)id);
}

static sw_status add_entry(void *ctx, const struct sw_json_doc *doc, const struct sw_json *entry,
                           int64_t id)
{
    struct sw_added_token token = {0};
    bool normalized;
    SW_TRY(sw_added_token_read(doc, entry, &token, &normalized));
    if (token.single_word || token.lstrip || token.rstrip) {
        return SW_FAIL(SW_E_UNSUP,
                       "added token '%.40s': single_word, lstrip and rstrip are not built for "
                       "Marian's tokenizer",
                       token.text);
    }
    return add_token(ctx, token.text, token.len, id);
}

static sw_status add_file(struct marian *self, const struct sw_named_text *file)
{
    sw_status st;
    struct sw_vocab more;
    sw_vocab_init(&more);
    SW_TRY_OR(done, sw_vocab_read_json(file, &more));
    for (int64_t id = 0; id < more.n_ids && st >= 0; ++id) {
        const struct sw_vocab_token *token = sw_vocab_token(&more, id);
        st = token ? add_token(self, token->text, token->len, id) : SW_OK;
        st = st < 0 ? sw_fail_prefix(st, "%s", file->name) : SW_OK;
    }
done:
    sw_vocab_fini(&more);
    return st;
}

/* ---- special tokens ---- */

/* The files that name special tokens; a later one overrides. One that is not read is empty. */
struct naming {
    struct sw_json_doc *docs[2];
    const char *vocab; /* name of vocab.json */
};

static sw_status add_special(struct marian *self, const struct naming *in, const char *key,
                             const char *text, int32_t *out)
{
    const int32_t id = sw_vocab_find(&self->vocab, text, strlen(text));
    if (id < 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: there is no token '%.40s', the %s of Marian's tokenizer",
                       in->vocab, text, key);
    }
    if (strlen(text) > SW_PREFIX_MOST_BYTES) {
        return SW_FAIL(SW_E_FORMAT, "%s: token '%.40s', the %s, has %zu bytes, wanted at most %d",
                       in->vocab, text, key, strlen(text), SW_PREFIX_MOST_BYTES);
    }
    self->special[id] = true;
    *out = id;
    return list_token(self, id);
}

static sw_status add_roles(struct marian *self, const struct naming *in)
{
    int32_t other;
    const struct {
        const char *key, *usual;
        int32_t *id;
    } roles[] = {{"unk_token", "<unk>", &self->unknown},
                 {"eos_token", "</s>", &self->super.eos},
                 {"pad_token", "<pad>", &self->super.pad},
                 {"bos_token", NULL, &self->super.bos},
                 {"sep_token", NULL, &other},
                 {"cls_token", NULL, &other},
                 {"mask_token", NULL, &other}};
    for (size_t i = 0; i < SW_LEN(roles); ++i) {
        const char *text = roles[i].usual;
        for (size_t k = 0; k < SW_LEN(in->docs); ++k) {
            const char *given = sw_tokenizer_role_text(sw_json_root(in->docs[k]), roles[i].key);
            text = given ? given : text;
        }
        SW_TRY(text ? add_special(self, in, roles[i].key, text, roles[i].id) : SW_OK);
    }
    return SW_OK;
}

/* A list of texts, or of {"content": ..}; or an object of such with names. */
static sw_status add_list(struct marian *self, const struct naming *in, const struct sw_json *list)
{
    int32_t id;
    const bool has = list && (list->type == SW_JSON_ARRAY || list->type == SW_JSON_OBJECT);
    for (const struct sw_json *one = has ? list->first : NULL; one; one = one->next) {
        const struct sw_json *text = sw_tokenizer_token_text(one);
        if (text) {
            SW_TRY(add_special(self, in, list->key, text->string, &id));
        }
    }
    return SW_OK;
}

static sw_status add_specials(struct marian *self, const struct naming *in)
{
    self->special =
        sw_alloc_zero("tokenizer", (size_t)self->vocab.n_ids + 1, sizeof(*self->special));
    SW_TRY_ALLOC(self->special, "special tokens");
    SW_TRY(add_roles(self, in));
    for (size_t k = 0; k < SW_LEN(in->docs); ++k) {
        const struct sw_json *root = sw_json_root(in->docs[k]);
        SW_TRY(add_list(self, in, sw_json_get(root, "additional_special_tokens")));
        SW_TRY(add_list(self, in, sw_json_get(root, "extra_special_tokens")));
    }
    return SW_OK;
}

/* ---- the files ---- */

/* Switches of transformers' class that change ids, and are off in every published folder. */
static sw_status refuse_switches(const struct sw_json_doc *doc, const struct sw_json *root)
{
    static const char *const keys[] = {"separate_vocabs", "split_special_tokens",
                                       "sp_model_kwargs.enable_sampling"};
    for (size_t i = 0; i < SW_LEN(keys); ++i) {
        const struct sw_json *value = sw_json_path(root, keys[i]);
        if (value && value->type == SW_JSON_BOOL && value->boolean) {
            return SW_FAIL(SW_E_UNSUP, "%s:%d: %s is not built for Marian's tokenizer",
                           sw_json_name(doc), value->line, keys[i]);
        }
    }
    return SW_OK;
}

/* A model without any piece in the vocabulary belongs to another one. */
static sw_status check_model(const struct marian *self, int side, const char *name,
                             const char *vocab)
{
    const struct sw_tokenizer *model = self->models[side];
    for (int32_t i = 0; i < model->vocab_size; ++i) {
        size_t len;
        const char *piece = sw_tokenizer_token(model, i, &len);
        const int32_t id = sw_vocab_find(&self->vocab, piece, len);
        if (id >= 0 && !self->special[id]) {
            return SW_OK;
        }
    }
    return SW_FAIL(SW_E_FORMAT, "%s: none of its %lld pieces is in %s; wanted files of one model",
                   name, (long long)model->vocab_size, vocab);
}

/* One text, or two, and eos. */
static sw_status set_templates(struct marian *self)
{
    struct sw_template *const templates[] = {&self->super.single, &self->super.pair};
    for (int i = 0; i < 2; ++i) {
        sw_template_fini(templates[i]);
        SW_TRY(sw_template_add(templates[i], SW_TEMPLATE_FIRST, -1, 0));
        SW_TRY(i == 1 ? sw_template_add(templates[i], SW_TEMPLATE_SECOND, -1, 0) : SW_OK);
        SW_TRY(sw_template_add(templates[i], SW_TEMPLATE_SPECIAL, self->super.eos, 0));
    }
    return SW_OK;
}

static sw_status read_named(struct marian *self, const struct sw_named_text files[SW_MARIAN_FILES],
                            const struct naming *in)
{
    const struct sw_json_doc *settings = in->docs[0];
    const struct sw_json *root = sw_json_root(in->docs[0]);
    SW_TRY(refuse_switches(settings, root));
    SW_TRY(sw_added_entries_each(settings, root, add_entry, self));
    SW_TRY(files[SW_MARIAN_ADDED].text && !self->has_list ? add_file(self, &files[SW_MARIAN_ADDED])
                                                          : SW_OK);
    SW_TRY(add_specials(self, in));
    struct sw_added_token *listed = self->whole.tokens;
    return sw_added_set_init(&self->whole, listed, self->whole.n);
}

static sw_status read_all(struct marian *self, const struct sw_named_text files[SW_MARIAN_FILES])
{
    struct naming in = {.vocab = files[SW_MARIAN_VOCAB].name};
    const struct sw_named_text none = {.name = files[SW_MARIAN_ROLES].name};
    sw_status st;
    for (int side = SOURCE; side <= TARGET; ++side) {
        const struct sw_named_text *file = &files[SW_MARIAN_SOURCE + side];
        SW_TRY(sw_sentencepiece_parse(file->name, file->text, file->len, &self->models[side]));
    }
    SW_TRY(sw_vocab_read_json(&files[SW_MARIAN_VOCAB], &self->vocab));
    SW_TRY_OR(done, sw_named_text_parse(&files[SW_MARIAN_SETTINGS], &in.docs[0]));
    self->has_list = sw_tokenizer_lists_added(sw_json_root(in.docs[0]));
    SW_TRY_OR(done,
              sw_named_text_parse(self->has_list ? &none : &files[SW_MARIAN_ROLES], &in.docs[1]));
    SW_TRY_OR(done, read_named(self, files, &in));
    for (int side = SOURCE; side <= TARGET; ++side) {
        SW_TRY_OR(done, check_model(self, side, files[SW_MARIAN_SOURCE + side].name, in.vocab));
    }
    SW_TRY_OR(done, set_templates(self));
    self->super.vocab_size = self->vocab.n_ids;
    for (int i = 0; i < SW_MARIAN_FILES; ++i) {
        if (files[i].text && i != SW_MARIAN_SETTINGS &&
            i != SW_MARIAN_ROLES) { /* kept with roles */
            SW_TRY_OR(done, sw_tokenizer_keep_file(&self->super, file_names[i], files[i].text,
                                                   files[i].len));
            self->super.files[self->super.n_files - 1].is_unused =
                i == SW_MARIAN_ADDED && self->has_list;
        }
    }
done:
    sw_json_close(in.docs[0]);
    sw_json_close(in.docs[1]);
    return st;
}

sw_status sw_marian_parse(const struct sw_named_text files[SW_MARIAN_FILES],
                          struct sw_tokenizer **out)
{
    struct marian *self = sw_alloc_zero("tokenizer", 1, sizeof(*self));
    SW_TRY_ALLOC(self, "a tokenizer");
    sw_vocab_init(&self->vocab);
    sw_status st =
        sw_tokenizer_init(&self->super, &ops, "SentencePiece (Marian's source and target)");
    st = st < 0 ? st : read_all(self, files);
    if (st < 0) {
        close_marian(&self->super);
        return st;
    }
    *out = &self->super;
    return SW_OK;
}

static sw_status open_paths(const char *const paths[SW_MARIAN_FILES], const char *folder,
                            struct sw_tokenizer **out)
{
    sw_status st;
    struct sw_tokenizer *self = NULL;
    struct sw_named_text files[SW_MARIAN_FILES] = {0};
    char *texts[SW_MARIAN_FILES] = {0};
    for (int i = 0; i < SW_MARIAN_SETTINGS; ++i) {
        if (access(paths[i], F_OK) != 0) {
            return SW_FAIL(SW_E_IO,
                           "%s is not there; Marian's tokenizer is source.spm, target.spm and "
                           "vocab.json",
                           paths[i]);
        }
    }
    SW_TRY_OR(done, sw_named_texts_read(paths, SW_MARIAN_FILES, SW_MARIAN_SETTINGS, texts, files));
    SW_TRY_OR(done, sw_marian_parse(files, &self));
    SW_TRY_OR(done, sw_tokenizer_read_roles(self, folder));
    *out = self;
    self = NULL;
done:
    sw_tokenizer_close(self);
    for (int i = 0; i < SW_MARIAN_FILES; ++i) {
        sw_free(texts[i]);
    }
    return st;
}

sw_status sw_tokenizer_open_marian(const char *folder, struct sw_tokenizer **out)
{
    sw_status st = SW_OK;
    struct sw_str names[SW_MARIAN_FILES] = {{0}};
    const char *paths[SW_MARIAN_FILES];
    for (int i = 0; i < SW_MARIAN_FILES; ++i) {
        sw_str_printf(&names[i], "%s/%s", folder, file_names[i]);
        paths[i] = sw_str_text(&names[i]);
        st = names[i].failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a path") : st;
    }
    st = st < 0 ? st : open_paths(paths, folder, out);
    for (int i = 0; i < SW_MARIAN_FILES; ++i) {
        sw_str_fini(&names[i]);
    }
    return st;
}
