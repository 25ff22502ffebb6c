// SPDX-License-Identifier: Apache-2.0
// The order follows the reference. First the added tokens that match raw text are cut out. The rest
// is normalised, and the added tokens that match normalised text are cut out. The remaining text is
// split into words, which the model cuts into tokens.
#include "token/pipeline.h"

#include "text/text.h"

#include <stdlib.h>
#include <string.h>

static struct sw_pipeline *self_of(const struct sw_tokenizer *tokenizer)
{
    return SW_CONTAINER(tokenizer, struct sw_pipeline, super);
}

static void close(struct sw_tokenizer *tokenizer)
{
    struct sw_pipeline *self = self_of(tokenizer);
    sw_added_set_fini(&self->raw);
    sw_added_set_fini(&self->normalized);
    sw_normalizer_fini(&self->normalizer);
    sw_pretokenizer_fini(&self->pretokenizer);
    sw_decoder_fini(&self->decoder);
    sw_bpe_fini(&self->bpe);
    sw_unigram_fini(&self->unigram);
    sw_wordpiece_fini(&self->wordpiece);
    sw_vocab_fini(&self->vocab);
    sw_vocab_fini(&self->added);
    sw_arena_fini(&self->texts);
    sw_str_fini(&self->scratch);
    sw_free(self->entries);
    sw_tokenizer_fini(&self->super);
    sw_free(self);
}

/* ---- encoding ---- */

struct encoding {
    struct sw_pipeline *self;
    struct sw_ids *ids;     /* NULL: only the surface is needed */
    struct sw_str *surface; /* concatenated spelling of words and tokens; NULL: not kept */
    struct sw_ids *starts;  /* offset of each id in surface */
    const char *word;       /* the word being cut */
};

/* Appends the ids of a piece: its token, or the ids of an unknown piece. */
static sw_status push_piece(const struct encoding *to, const char *text, size_t len, int32_t id)
{
    const struct sw_pipeline *self = to->self;
    id = id < 0 ? sw_vocab_find(&self->vocab, text, len) : id;
    if (id >= 0) {
        return sw_ids_push(to->ids, id);
    }
    bool have_bytes = self->byte_fallback;
    for (size_t i = 0; i < len && have_bytes; ++i) {
        have_bytes = self->byte_id[(unsigned char)text[i]] >= 0;
    }
    for (size_t i = 0; i < len && have_bytes; ++i) {
        SW_TRY(sw_ids_push(to->ids, self->byte_id[(unsigned char)text[i]]));
    }
    if (have_bytes) {
        return SW_OK;
    }
    if (self->unigram.unknown < 0) {
        return SW_FAIL(SW_E_FORMAT, "no token for '%.*s', and the model has no unk_id",
                       (int)sw_min_i64((int64_t)len, 40), text);
    }
    return sw_ids_push(to->ids, self->unigram.unknown);
}

/* Takes a piece of the best segmentation. As in the reference, all ids of an unknown piece start at
 * its start. */
static sw_status take_piece(void *ctx, const char *text, size_t len, int32_t id)
{
    const struct encoding *to = ctx;
    const int64_t from = to->ids->len;
    SW_TRY(push_piece(to, text, len, id));
    for (int64_t i = from; i < to->ids->len && to->starts; ++i) {
        SW_TRY(sw_ids_push(to->starts, (int32_t)(to->surface->len + (size_t)(text - to->word))));
    }
    return SW_OK;
}

static sw_status push_word(const struct encoding *to, const char *word, size_t len)
{
    const struct sw_pipeline *self = to->self;
    int32_t id = sw_vocab_find(&self->vocab, word, len);
    id = id < 0 ? self->unknown_word : id;
    return id >= 0
               ? sw_ids_push(to->ids, id)
               : SW_FAIL(SW_E_FORMAT, "no token for '%.*s', and unk_token is not a token either",
                         (int)sw_min_i64((int64_t)len, 40), word);
}

static sw_status cut_word(const struct encoding *to, const char *word, size_t len)
{
    struct sw_pipeline *self = to->self;
    switch (self->kind) {
    case SW_MODEL_UNIGRAM:
        return sw_unigram_cut(&self->unigram, word, len, take_piece, (void *)to);
    case SW_MODEL_WORD_LEVEL:
        return push_word(to, word, len);
    case SW_MODEL_WORDPIECE:
        return sw_wordpiece_encode(&self->wordpiece, word, len, to->ids);
    default:
        return sw_bpe_encode(&self->bpe, word, len, to->ids);
    }
}

/* Drops the affixes of a token: the prefix if it continues a word, the suffix if it ends one. */
static void drop_affixes(const struct sw_pipeline *self, bool first, const char **text, size_t *n)
{
    const bool pieces = self->kind == SW_MODEL_WORDPIECE;
    const struct sw_str *prefix = pieces ? &self->wordpiece.prefix : &self->bpe.prefix;
    const struct sw_str *suffix = &self->bpe.suffix;
    if (!first && *n > prefix->len && memcmp(*text, sw_str_text(prefix), prefix->len) == 0) {
        *text += prefix->len;
        *n -= prefix->len;
    }
    if (*n > suffix->len &&
        memcmp(*text + *n - suffix->len, sw_str_text(suffix), suffix->len) == 0) {
        *n -= suffix->len;
    }
}

/* Bytes of the word, from `at` on, that a token spells; 0: the token does not match. */
static size_t spelled(const struct sw_pipeline *self, const char *word, size_t len, size_t at,
                      int32_t id, struct sw_str *bytes)
{
    const struct sw_vocab_token *token = sw_vocab_token(&self->vocab, id);
    const char *text = token ? token->text : "";
    size_t n = token ? token->len : 0;
    drop_affixes(self, at == 0, &text, &n);
    if (self->kind == SW_MODEL_BYTE_BPE) {
        sw_str_clear(bytes);
        sw_byte_alphabet_read(&self->bpe.alphabet, text, n, bytes);
        text = sw_str_text(bytes);
        n = bytes->len;
    } else if (at < len && self->bpe.byte_fallback &&
               self->bpe.byte_id[(unsigned char)word[at]] == id) {
        return 1; /* a byte token */
    }
    return n > 0 && n <= len - at && memcmp(word + at, text, n) == 0 ? n : 0;
}

/* Finds where the tokens of a word begin. An unknown token extends to the next known one. */
static sw_status find_starts(const struct encoding *to, const char *word, size_t len, int64_t from)
{
    sw_status st = SW_OK;
    struct sw_str bytes = {0};
    size_t at = 0;
    for (int64_t i = from; i < to->ids->len && st >= 0; ++i) {
        size_t n = spelled(to->self, word, len, at, to->ids->ptr[i], &bytes);
        st = sw_ids_push(to->starts, (int32_t)(to->surface->len + at));
        if (n == 0 && i + 1 < to->ids->len) {
            do {
                n += at + n < len;
            } while (at + n < len &&
                     spelled(to->self, word, len, at + n, to->ids->ptr[i + 1], &bytes) == 0);
        }
        at += n;
    }
    sw_str_fini(&bytes);
    return st;
}

static sw_status encode_word(void *ctx, const char *word, size_t len)
{
    struct encoding *to = ctx;
    if (to->ids) {
        const int64_t from = to->ids->len;
        to->word = word;
        SW_TRY(cut_word(to, word, len));
        if (to->starts &&
            to->self->kind != SW_MODEL_UNIGRAM) { /* Unigram reports the starts itself */
            SW_TRY(find_starts(to, word, len, from));
        }
    }
    if (to->surface) {
        sw_str_append(to->surface, word, len);
    }
    return SW_OK;
}

/* Takes an added token as it is spelled in the text. */
static sw_status take_token(const struct encoding *to, int32_t id, const char *text, size_t len)
{
    if (to->ids) {
        SW_TRY(sw_ids_push(to->ids, id));
        if (to->starts) {
            SW_TRY(sw_ids_push(to->starts, (int32_t)to->surface->len));
        }
    }
    if (to->surface) {
        sw_str_append(to->surface, text, len);
    }
    return SW_OK;
}

/* first: this is the start of the text. */
typedef sw_status (*plain_fn)(struct encoding *to, const char *text, size_t len, bool first);

/* Replaces tokens of the set by their ids. The text between them goes to `plain`. */
static sw_status cut_tokens(struct encoding *to, const struct sw_added_set *set, const char *text,
                            size_t len, bool first, plain_fn plain)
{
    struct sw_added_scan scan;
    struct sw_added_piece piece;
    bool more;
    sw_added_scan_init(&scan, set, text, len);
    for (;;) {
        SW_TRY(sw_added_scan_next(&scan, &piece, &more));
        if (!more) {
            return SW_OK;
        }
        if (piece.token) {
            SW_TRY(take_token(to, piece.token->id, text + piece.first, piece.len));
        } else {
            SW_TRY(plain(to, text + piece.first, piece.len, first && piece.first == 0));
        }
    }
}

static sw_status encode_plain(struct encoding *to, const char *text, size_t len, bool first)
{
    return sw_pretokenize(&to->self->pretokenizer, text, len, first, encode_word, to);
}

/* Puts the file's name before an error of one of its steps. */
static sw_status with_name(const struct sw_pipeline *self, sw_status st)
{
    return st < 0 && self->name ? sw_fail_prefix(st, "%s", self->name) : st;
}

/* Replaces the text by its normalised form in `scratch`. */
static sw_status normalise(struct sw_pipeline *self, const char **text, size_t *len)
{
    if (self->normalizer.n_steps > 0) {
        SW_TRY(
            with_name(self, sw_normalizer_apply(&self->normalizer, *text, *len, &self->scratch)));
        *text = sw_str_text(&self->scratch);
        *len = self->scratch.len;
    }
    return SW_OK;
}

static sw_status encode_raw(struct encoding *to, const char *text, size_t len, bool first)
{
    struct sw_pipeline *self = to->self;
    SW_TRY(normalise(self, &text, &len));
    return cut_tokens(to, &self->normalized, text, len, first, encode_plain);
}

static sw_status encode(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                        struct sw_ids *ids)
{
    struct encoding to = {.self = self_of(tokenizer), .ids = ids};
    SW_TRY(sw_utf8_check("text", text, len));
    return cut_tokens(&to, &to.self->raw, text, len, true, encode_raw);
}

/* A byte-level BPE has tokens for words after a space, so a word gets one if it has none. */
static sw_status encode_word_alone(struct sw_tokenizer *tokenizer, const char *word, size_t len,
                                   struct sw_ids *ids)
{
    struct sw_pretokenizer *words = &self_of(tokenizer)->pretokenizer;
    const bool prefix_space = words->prefix_space;
    const int i_prefix_step = words->i_prefix_step;
    if (self_of(tokenizer)->kind == SW_MODEL_BYTE_BPE) {
        words->prefix_space = true;
        words->i_prefix_step = 0;
    }
    const sw_status st = encode(tokenizer, word, len, ids);
    words->prefix_space = prefix_space;
    words->i_prefix_step = i_prefix_step;
    return st;
}

/* ---- edges among tokens ---- */

/* Normalizers do not track characters, so an edge is located in the spelled words (the surface).
 * The text before the edge is processed alone and spells the same up to the edge. If the two differ
 * before its end, the character there combines both sides. If white space at the edge is removed or
 * joined, the token there may go to the other side. Tokenizers for chats do not do this. */

struct marking {
    struct encoding whole; /* a piece of plain text: its ids and their starts in `surface` */
    struct sw_str surface, before; /* of the piece; of the text before an edge in it */
    struct sw_ids starts;
    struct sw_ids places; /* offsets of the piece's edges in its surface */
    const struct sw_edges *edges;
    struct sw_ids *passed;
};

static sw_status find_place(struct marking *m, const char *text, size_t len, bool first,
                            int32_t *out)
{
    struct encoding to = {.self = m->whole.self, .surface = &m->before};
    const char *a = sw_str_text(&m->surface);
    size_t same = 0;
    sw_str_clear(&m->before);
    if (len > 0) {
        SW_TRY(encode_raw(&to, text, len, first));
    }
    const char *b = sw_str_text(&m->before);
    while (same < m->surface.len && same < m->before.len && a[same] == b[same]) {
        same++;
    }
    if (same < m->before.len) {
        while (same > 0 && !sw_utf8_begins(a[same])) {
            same--;
        }
        sw_utf8_step(a, m->surface.len, &same);
    }
    *out = (int32_t)same;
    return SW_OK;
}

/* Each edge processes the text before it again. */
static sw_status check_work(const struct marking *m, size_t before, size_t at, size_t len)
{
    const size_t most = (size_t)1 << 28;
    size_t work = 0;
    for (size_t e = before; e < m->edges->n && m->edges->at[e] < at + len; ++e) {
        work += m->edges->at[e] - at;
    }
    return work <= most ? SW_OK
                        : SW_FAIL(SW_E_UNSUP,
                                  "a text of %zu bytes without a special token has too many "
                                  "messages; locating them takes %zu bytes of work, wanted at "
                                  "most %zu",
                                  len, work, most);
}

/* Encodes the plain text between two added tokens, which begins at `at` of the whole text. */
static sw_status mark_plain(struct marking *m, const char *text, size_t len, size_t at, bool first)
{
    const int32_t before = sw_edges_to(m->edges, at);
    int32_t n = 0;
    SW_TRY(check_work(m, (size_t)before, at, len));
    sw_str_clear(&m->surface);
    sw_ids_clear(&m->starts);
    sw_ids_clear(&m->places);
    SW_TRY(encode_raw(&m->whole, text, len, first));
    for (size_t e = (size_t)before; e < m->edges->n && m->edges->at[e] < at + len; ++e) {
        int32_t place;
        SW_TRY(find_place(m, text, m->edges->at[e] - at, first, &place));
        SW_TRY(sw_ids_push(&m->places, place));
    }
    for (int64_t i = 0; i < m->starts.len; ++i) {
        while (n < m->places.len && m->places.ptr[n] <= m->starts.ptr[i]) {
            n++;
        }
        SW_TRY(sw_ids_push(m->passed, before + n));
    }
    return m->surface.failed || m->before.failed
               ? SW_FAIL(SW_E_NOMEM, "out of host memory for a text of %zu bytes", len)
               : SW_OK;
}

static sw_status mark_pieces(struct marking *m, const char *text, size_t len)
{
    struct sw_added_scan scan;
    struct sw_added_piece piece;
    bool more;
    sw_added_scan_init(&scan, &m->whole.self->raw, text, len);
    for (;;) {
        SW_TRY(sw_added_scan_next(&scan, &piece, &more));
        if (!more) {
            return SW_OK;
        }
        if (piece.token) {
            SW_TRY(sw_ids_push(m->whole.ids, piece.token->id));
            SW_TRY(sw_ids_push(m->passed, sw_edges_to(m->edges, piece.first)));
        } else {
            SW_TRY(mark_plain(m, text + piece.first, piece.len, piece.first, piece.first == 0));
        }
    }
}

static sw_status encode_edges(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                              const struct sw_edges *edges, struct sw_ids *ids,
                              struct sw_ids *passed)
{
    struct marking m = {
        .whole = {.self = self_of(tokenizer), .ids = ids}, .edges = edges, .passed = passed};
    m.whole.surface = &m.surface;
    m.whole.starts = &m.starts;
    SW_TRY(sw_utf8_check("text", text, len));
    if (len > INT32_MAX / 4) {
        return SW_FAIL(SW_E_UNSUP, "a text of %zu bytes: longer than %d", len, INT32_MAX / 4);
    }
    const sw_status st = mark_pieces(&m, text, len);
    sw_str_fini(&m.surface);
    sw_str_fini(&m.before);
    sw_ids_fini(&m.starts);
    sw_ids_fini(&m.places);
    return st;
}

static int compare_entries(const void *a, const void *b)
{
    const struct sw_added_entry *x = a, *y = b;
    return (x->token.id > y->token.id) - (x->token.id < y->token.id);
}

/* ---- character ranges of tokens ---- */

/* Aligns the normal form of a text, made character by character, with the spelled words. The two
 * may differ in white space. */
struct aligning {
    struct sw_pipeline *self;
    struct sw_str normal, surface;
    struct sw_ids from; /* the character of each byte of `normal` */
    struct sw_ids at;   /* the character of each byte of `surface` */
    struct sw_ids starts;
};

static sw_status add_normal(struct aligning *a, const char *text, size_t len, int32_t i_char)
{
    struct sw_pipeline *self = a->self;
    SW_TRY(normalise(self, &text, &len));
    sw_str_append(&a->normal, text, len);
    for (size_t i = 0; i < len; ++i) {
        SW_TRY(sw_ids_push(&a->from, i_char));
    }
    return SW_OK;
}

/* Length of a space, or of the mark for one, at `at`; 0: neither. */
static size_t space_at(const struct sw_str *text, size_t at)
{
    size_t end = at;
    const int32_t c = at < text->len ? sw_utf8_next(text->ptr, text->len, &end) : -1;
    return c >= 0 && (sw_char_is_space(c) || c == 0x2581) ? end - at : 0;
}

static sw_status align(struct aligning *a)
{
    size_t n = 0;
    for (size_t s = 0; s < a->surface.len;) {
        const size_t spaces = space_at(&a->surface, s), skipped = space_at(&a->normal, n);
        const bool same = n < a->normal.len && a->surface.ptr[s] == a->normal.ptr[n];
        if (!same && skipped > 0) {
            n += skipped;
            continue;
        }
        if (!same && spaces == 0) {
            return SW_FAIL(SW_E_UNSUP, "the tokenizer does not tell which characters a token "
                                       "stands for");
        }
        for (size_t i = 0; i < (same ? 1 : spaces); ++i) { /* an added space has no length */
            const size_t last =
                a->normal.len > 0 ? sw_min_i64((int64_t)n, (int64_t)a->normal.len - 1) : 0;
            SW_TRY(sw_ids_push(&a->at, a->from.len > 0 ? a->from.ptr[last] : 0));
        }
        s += same ? 1 : spaces;
        n += same;
    }
    return SW_OK;
}

/* Appends the character range of the token at surface bytes first .. end - 1, without leading
 * spaces. */
static sw_status push_offsets(const struct aligning *a, size_t first, size_t end,
                              struct sw_ids *begins, struct sw_ids *ends)
{
    for (size_t n; first < end && (n = space_at(&a->surface, first)) > 0 && first + n < end;) {
        first += n;
    }
    const int32_t before = ends->len > 0 ? ends->ptr[ends->len - 1] : 0;
    SW_TRY(sw_ids_push(begins, first < end ? a->at.ptr[first] : before));
    return sw_ids_push(ends, first < end ? a->at.ptr[end - 1] + 1 : before);
}

static sw_status find_offsets(struct aligning *a, const char *text, size_t len, struct sw_ids *ids,
                              struct sw_ids *begins, struct sw_ids *ends)
{
    struct encoding to = {
        .self = a->self, .ids = ids, .surface = &a->surface, .starts = &a->starts};
    int32_t i_char = 0;
    SW_TRY(cut_tokens(&to, &a->self->raw, text, len, true, encode_raw));
    for (size_t pos = 0; pos < len; ++i_char) {
        const size_t at = pos;
        sw_utf8_step(text, len, &pos);
        SW_TRY(add_normal(a, text + at, pos - at, i_char));
    }
    if (a->normal.failed || a->surface.failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a text of %zu bytes", len);
    }
    SW_TRY(align(a));
    for (int64_t i = 0; i < a->starts.len; ++i) {
        const size_t end = i + 1 < a->starts.len ? (size_t)a->starts.ptr[i + 1] : a->surface.len;
        SW_TRY(push_offsets(a, (size_t)a->starts.ptr[i], end, begins, ends));
    }
    return SW_OK;
}

static sw_status encode_offsets(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                                struct sw_ids *ids, struct sw_ids *begins, struct sw_ids *ends)
{
    struct aligning a = {.self = self_of(tokenizer)};
    SW_TRY(sw_utf8_check("text", text, len));
    const sw_status st = find_offsets(&a, text, len, ids, begins, ends);
    sw_str_fini(&a.normal);
    sw_str_fini(&a.surface);
    sw_ids_fini(&a.from);
    sw_ids_fini(&a.at);
    sw_ids_fini(&a.starts);
    return st;
}

/* The added token of an id; NULL: there is none. Valid only after all are added. */
static const struct sw_added_entry *entry_of(const struct sw_pipeline *self, int32_t id)
{
    const struct sw_added_entry key = {.token.id = id};
    return self->n_entries > 0 && sw_vocab_token(&self->added, id)
               ? bsearch(&key, self->entries, self->n_entries, sizeof(key), compare_entries)
               : NULL;
}

static bool is_special(const struct sw_tokenizer *tokenizer, int32_t id)
{
    const struct sw_added_entry *entry = entry_of(self_of(tokenizer), id);
    return entry && entry->token.special;
}

/* ---- decoding ---- */

static const struct sw_vocab_token *token_of(const struct sw_pipeline *self, int32_t id)
{
    const struct sw_vocab_token *token = sw_vocab_token(&self->added, id);
    return token ? token : sw_vocab_token(&self->vocab, id);
}

/* The text that a token decodes to. An added token with a normalised form decodes to that form. */
static const struct sw_vocab_token *text_of(const struct sw_pipeline *self, int32_t id)
{
    const struct sw_added_entry *entry = entry_of(self, id);
    return entry && entry->form.text ? &entry->form : token_of(self, id);
}

/* Decides by the decoded text: a normalised form is skipped only if it is a special token
 * itself. */
static bool is_skipped(const struct sw_pipeline *self, int32_t id)
{
    const struct sw_added_entry *entry = entry_of(self, id);
    if (entry && entry->form.text) {
        entry = entry_of(self, sw_vocab_find(&self->added, entry->form.text, entry->form.len));
    }
    return entry && entry->token.special;
}

static void append_bytes(const struct sw_pipeline *self, const struct sw_texts *tokens,
                         struct sw_str *out)
{
    struct sw_str bytes = {0};
    for (size_t i = 0; i < tokens->n; ++i) {
        const size_t first = i > 0 ? tokens->ends[i - 1] : 0;
        sw_byte_alphabet_read(&self->bpe.alphabet, sw_str_text(&tokens->bytes) + first,
                              tokens->ends[i] - first, &bytes);
    }
    sw_utf8_append_lossy(out, sw_str_text(&bytes), bytes.len);
    out->failed |= bytes.failed;
    sw_str_fini(&bytes);
}

static sw_status list_tokens(const struct sw_pipeline *self, const int32_t *ids, int64_t n_ids,
                             bool skip_special, struct sw_texts *out)
{
    const bool spaced = self->decoder.n_steps == 0 && self->kind != SW_MODEL_BYTE_BPE;
    for (int64_t i = 0; i < n_ids; ++i) {
        if (!(skip_special && is_skipped(self, ids[i]))) {
            const struct sw_vocab_token *token = text_of(self, ids[i]);
            if (spaced && out->n > 0) {
                sw_str_putc(&out->bytes, ' ');
            }
            SW_TRY(sw_texts_add(out, token->text, token->len));
        }
    }
    return SW_OK;
}

static sw_status decode(const struct sw_tokenizer *tokenizer, const int32_t *ids, int64_t n_ids,
                        bool skip_special, struct sw_str *out)
{
    sw_status st;
    const struct sw_pipeline *self = self_of(tokenizer);
    struct sw_texts texts = {0};
    SW_TRY_OR(done, list_tokens(self, ids, n_ids, skip_special, &texts));
    SW_TRY_OR(done, with_name(self, sw_decoder_apply(&self->decoder, &texts)));
    if (self->kind == SW_MODEL_BYTE_BPE) {
        append_bytes(self, &texts, out);
    } else {
        sw_str_append(out, sw_str_text(&texts.bytes), texts.bytes.len);
    }
    st = out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for the text of %lld tokens",
                               (long long)n_ids)
                     : SW_OK;
done:
    sw_texts_fini(&texts);
    return st;
}

static const char *token(const struct sw_tokenizer *tokenizer, int32_t id, size_t *out_len)
{
    const struct sw_vocab_token *found = token_of(self_of(tokenizer), id);
    if (found && out_len) {
        *out_len = found->len;
    }
    return found ? found->text : NULL;
}

static int32_t find(const struct sw_tokenizer *tokenizer, const char *text, size_t len)
{
    const struct sw_pipeline *self = self_of(tokenizer);
    const int32_t id = sw_vocab_find(&self->added, text, len);
    return id >= 0 ? id : sw_vocab_find(&self->vocab, text, len);
}

static const struct sw_special_ops special_ops = {
    .encode_edges = encode_edges, .encode_offsets = encode_offsets, .is_special = is_special};

static const struct sw_tokenizer_ops ops = {.close = close,
                                            .encode = encode,
                                            .encode_word = encode_word_alone,
                                            .decode = decode,
                                            .token = token,
                                            .find = find,
                                            .special = &special_ops};

static const char *const names[] = {
    [SW_MODEL_BYTE_BPE] = "byte-level BPE", [SW_MODEL_CHAR_BPE] = "BPE",
    [SW_MODEL_UNIGRAM] = "Unigram",         [SW_MODEL_WORDPIECE] = "WordPiece",
    [SW_MODEL_WORD_LEVEL] = "WordLevel",
};

void sw_pipeline_set_kind(struct sw_pipeline *tokenizer, enum sw_model_kind kind)
{
    tokenizer->kind = kind;
    tokenizer->super.kind = names[kind];
    tokenizer->super.is_bpe = kind == SW_MODEL_BYTE_BPE || kind == SW_MODEL_CHAR_BPE;
}

/* ---- building ---- */

sw_status sw_pipeline_open(struct sw_pipeline **out)
{
    struct sw_pipeline *self = sw_alloc_zero("tokenizer", 1, sizeof(*self));
    SW_TRY_ALLOC(self, "a tokenizer");
    sw_vocab_init(&self->vocab);
    sw_vocab_init(&self->added);
    sw_arena_init(&self->texts, "tokenizer");
    const sw_status st = sw_tokenizer_init(&self->super, &ops, names[SW_MODEL_BYTE_BPE]);
    if (st < 0) {
        close(&self->super);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    *out = self;
    return SW_OK;
}

sw_status sw_pipeline_add_token(struct sw_pipeline *tokenizer, const char *text, size_t len,
                                int64_t id, struct sw_added_token flags, bool normalized)
{
    if (len == 0) {
        return SW_FAIL(SW_E_FORMAT, "an added token is empty");
    }
    const int32_t in_model = sw_vocab_find(&tokenizer->vocab, text, len);
    const struct sw_vocab_token *owner = sw_vocab_token(&tokenizer->vocab, id);
    if (in_model >= 0 ? in_model != id : owner != NULL) {
        return SW_FAIL(
            SW_E_FORMAT, "added token '%.40s' has the id %lld; in the vocabulary %s '%.40s'", text,
            (long long)id, owner ? "that id is" : "it has another id:", owner ? owner->text : text);
    }
    SW_TRY(sw_vocab_add(&tokenizer->added, text, len, id));
    const size_t n = tokenizer->n_entries;
    if ((n & (n - 1)) == 0) { /* full: it grows at 0, 1, 2, 4, .. */
        struct sw_added_entry *entries =
            sw_realloc("tokenizer", tokenizer->entries, (n > 0 ? 2 * n : 1) * sizeof(*entries));
        SW_TRY_ALLOC(entries, "the added tokens");
        tokenizer->entries = entries;
    }
    flags.text = sw_vocab_token(&tokenizer->added, id)->text;
    flags.len = len;
    flags.id = (int32_t)id;
    tokenizer->entries[tokenizer->n_entries++] = (struct sw_added_entry){flags, normalized, {0}};
    return SW_OK;
}

/* The normalised form of an entry; empty if normalising removes it. */
static sw_status normalize_entry(struct sw_pipeline *self, struct sw_added_token *token)
{
    SW_TRY(sw_normalizer_apply(&self->normalizer, token->text, token->len, &self->scratch));
    token->text = sw_arena_strndup(&self->texts, sw_str_text(&self->scratch), self->scratch.len);
    token->len = self->scratch.len;
    SW_TRY_ALLOC(token->text, "the added tokens");
    return SW_OK;
}

static void keep_form(struct sw_added_entry *entry, const struct sw_added_token *token)
{
    const struct sw_added_token *given = &entry->token;
    if (token->len != given->len || memcmp(token->text, given->text, token->len) != 0) {
        entry->form = (struct sw_vocab_token){token->text, token->len};
    }
}

/* The entries with this value of `normalized`, as a set. */
static sw_status build_set(struct sw_pipeline *self, bool normalized, struct sw_added_set *set)
{
    size_t n = 0;
    struct sw_added_token *tokens = sw_alloc("tokenizer", (self->n_entries + 1) * sizeof(*tokens));
    SW_TRY_ALLOC(tokens, "the added tokens");
    set->tokens = tokens; /* owned by the set from here on, even on failure */
    for (size_t i = 0; i < self->n_entries; ++i) {
        if (self->entries[i].normalized == normalized) {
            tokens[n] = self->entries[i].token;
            if (normalized) {
                SW_TRY(normalize_entry(self, &tokens[n]));
                keep_form(&self->entries[i], &tokens[n]);
            }
            n += tokens[n].len > 0;
        }
    }
    return sw_added_set_init(set, tokens, n);
}

static sw_status check_template(const struct sw_pipeline *self, const struct sw_template *template)
{
    for (int i = 0; i < template->n_items; ++i) {
        const struct sw_template_item *item = &template->items[i];
        if (item->part == SW_TEMPLATE_SPECIAL && !token_of(self, item->id)) {
            return SW_FAIL(SW_E_FORMAT, "post_processor adds the id %d, which no token has",
                           item->id);
        }
    }
    return SW_OK;
}

sw_status sw_pipeline_finish(struct sw_pipeline *tokenizer)
{
    tokenizer->super.vocab_size = sw_max_i64(tokenizer->vocab.n_ids, tokenizer->added.n_ids);
    if (tokenizer->super.vocab_size == 0) {
        return SW_FAIL(SW_E_FORMAT, "the vocabulary is empty");
    }
    SW_TRY(sw_normalizer_check(&tokenizer->normalizer));
    if (tokenizer->n_entries > 0) {
        qsort(tokenizer->entries, tokenizer->n_entries, sizeof(*tokenizer->entries),
              compare_entries);
    }
    SW_TRY(build_set(tokenizer, false, &tokenizer->raw));
    SW_TRY(build_set(tokenizer, true, &tokenizer->normalized));
    SW_TRY(check_template(tokenizer, &tokenizer->super.single));
    return check_template(tokenizer, &tokenizer->super.pair);
}
