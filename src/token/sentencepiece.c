// SPDX-License-Identifier: Apache-2.0
// The model file is a protocol buffer (ModelProto of sentencepiece_model.proto): 1 pieces {1 text,
// 2 score, 3 kind}; 2 how it was trained {3 kind of model, 24 spaces as suffix, 35 byte fallback,
// 40 to 43 ids of unk, bos, eos, pad, 44 text of an unknown piece}; 3 how text is normalised
// {2 charsmap, 3 a space in front, 4 extra spaces go, 5 spaces become U+2581}; 5 what is undone
// after decoding.
#include "token/sentencepiece.h"

#include "json/json.h"
#include "text/text.h"
#include "token/charsmap.h"
#include "token/normalize.h"
#include "token/piece_bpe.h"
#include "token/piece_class.h"
#include "token/unigram.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char mark[] = "\xE2\x96\x81";

enum model { MODEL_UNIGRAM = 1, MODEL_BPE };

struct spm {
    struct sw_tokenizer super;
    struct sw_vocab vocab;
    enum model model;
    struct sw_unigram unigram; /* scores and kinds are used by both models */
    struct sw_piece_bpe bpe;
    struct sw_prefix_set user;
    int64_t cap;
    int32_t unknown, byte_id[256];
    bool byte_fallback, dummy_prefix, remove_spaces, escape;
    struct sw_charsmap charsmap;
    const char *charsmap_bytes; /* [charsmap_len] of the file's bytes; borrowed */
    size_t charsmap_len;
    struct sw_str unknown_text; /* text that an unknown piece decodes to */
    struct sw_str text;         /* scratch: the normalised text */
    struct sw_str name;         /* of the file, for messages */
};

static struct spm *self_of(const struct sw_tokenizer *tokenizer)
{
    return SW_CONTAINER(tokenizer, struct spm, super);
}

static void close_model(struct sw_tokenizer *tokenizer)
{
    struct spm *self = self_of(tokenizer);
    sw_piece_bpe_fini(&self->bpe);
    sw_unigram_fini(&self->unigram);
    sw_prefix_fini(&self->user);
    sw_vocab_fini(&self->vocab);
    sw_charsmap_fini(&self->charsmap);
    sw_str_fini(&self->unknown_text);
    sw_str_fini(&self->text);
    sw_str_fini(&self->name);
    sw_tokenizer_fini(&self->super);
    sw_free(self);
}

static enum sw_piece_kind kind_of(const struct spm *self, int32_t id)
{
    return (enum sw_piece_kind)self->unigram.kinds[id];
}

/* ---- text for the model ---- */

struct cut {
    const char *text; /* replacement of `taken` bytes of the input */
    size_t len, taken;
};

/* The next part of the input: a user-defined piece, a rule of the map, or a character. */
static struct cut next_part(const struct spm *self, const char *text, size_t len)
{
    int32_t id;
    size_t n = sw_prefix_longest(&self->user, text, len, &id);
    if (n > 0) {
        return (struct cut){text, n, n};
    }
    const struct sw_charsmap_match match = sw_charsmap_find(&self->charsmap, text, len, true);
    if (match.len > 0) {
        return (struct cut){match.text, strlen(match.text), match.len};
    }
    sw_utf8_next(text, len, &n);
    n += n == 0; /* never in well-formed text */
    return (struct cut){text, n, n};
}

static void put_space(const struct spm *self, struct sw_str *out)
{
    sw_str_puts(out, self->escape ? mark : " ");
}

static void put_part(const struct spm *self, const char *text, size_t len, struct sw_str *out)
{
    for (size_t i = 0; i < len; ++i) {
        if (text[i] == ' ') {
            put_space(self, out);
        } else {
            sw_str_putc(out, text[i]);
        }
    }
}

static void drop_spaces_at_end(const struct spm *self, struct sw_str *text)
{
    const char *space = self->escape ? mark : " ";
    const size_t n = strlen(space);
    while (text->len >= n && memcmp(text->ptr + text->len - n, space, n) == 0) {
        text->len -= n;
    }
}

static sw_status normalize(struct spm *self, const char *text, size_t len)
{
    struct sw_str *out = &self->text;
    const size_t n_given = len, most = sw_normal_most(len);
    bool after_space = self->remove_spaces;
    sw_str_clear(out);
    while (len > 0 && self->remove_spaces) {
        const struct cut part = next_part(self, text, len);
        if (part.len != 1 || part.text[0] != ' ') {
            break;
        }
        text += part.taken;
        len -= part.taken;
    }
    if (len == 0) {
        return SW_OK;
    }
    if (self->dummy_prefix) {
        put_space(self, out);
    }
    while (len > 0) {
        struct cut part = next_part(self, text, len);
        text += part.taken;
        len -= part.taken;
        while (after_space && part.len > 0 && part.text[0] == ' ') {
            part.text++;
            part.len--;
        }
        put_part(self, part.text, part.len, out);
        if (out->len > most) {
            return SW_FAIL(SW_E_FORMAT,
                           "%s: the charsmap makes more than %zu bytes of a text of %zu, wanted at "
                           "most %d times as many and %d",
                           sw_str_text(&self->name), most, n_given, SW_NORMAL_MOST_TIMES,
                           SW_NORMAL_MOST_MORE);
        }
        if (part.len > 0) {
            after_space = self->remove_spaces && part.text[part.len - 1] == ' ';
        }
    }
    if (self->remove_spaces) {
        drop_spaces_at_end(self, out);
    }
    return out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for normalised text") : SW_OK;
}

/* ---- encoding ---- */

/* Pieces on their way to a callback. */
struct cutting {
    const struct spm *self;
    sw_piece_fn fn;
    void *ctx;
    const char *unknown; /* [n_unknown] characters before the next piece that no piece covers */
    size_t n_unknown;
};

static sw_status give_unknown(struct cutting *to)
{
    const size_t n = to->n_unknown;
    to->n_unknown = 0;
    return n > 0 ? to->fn(to->ctx, to->unknown, n, -1) : SW_OK;
}

static sw_status take_piece(void *ctx, const char *text, size_t len, int32_t id)
{
    struct cutting *to = ctx;
    const struct spm *self = to->self;
    if (id >= 0) {
        SW_TRY(give_unknown(to));
        return to->fn(to->ctx, text, len, id);
    }
    if (!self->byte_fallback) { /* adjacent unknown characters become one piece */
        to->unknown = to->n_unknown > 0 ? to->unknown : text;
        to->n_unknown += len;
        return SW_OK;
    }
    for (size_t i = 0; i < len; ++i) {
        const int32_t byte = self->byte_id[(unsigned char)text[i]];
        const struct sw_vocab_token *piece = sw_vocab_token(&self->vocab, byte);
        SW_TRY(to->fn(to->ctx, piece->text, piece->len, byte));
    }
    return SW_OK;
}

sw_status sw_sentencepiece_cut(struct sw_tokenizer *model, const char *text, size_t len,
                               sw_piece_fn fn, void *ctx)
{
    struct spm *self = self_of(model);
    struct cutting to = {.self = self, .fn = fn, .ctx = ctx};
    SW_TRY(sw_utf8_check("text", text, len));
    SW_TRY(normalize(self, text, len));
    if (self->text.len == 0) {
        return SW_OK;
    }
    SW_TRY(self->model == MODEL_BPE
               ? sw_piece_bpe_cut(&self->bpe, self->text.ptr, self->text.len, take_piece, &to)
               : sw_unigram_cut(&self->unigram, self->text.ptr, self->text.len, take_piece, &to));
    return give_unknown(&to);
}

struct encoding {
    struct sw_ids *ids;
    int32_t unknown;
};

static sw_status take_id(void *ctx, const char *text, size_t len, int32_t id)
{
    struct encoding *to = ctx;
    (void)text;
    (void)len;
    return sw_ids_push(to->ids, id >= 0 ? id : to->unknown);
}

static sw_status encode(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                        struct sw_ids *ids)
{
    struct encoding to = {ids, self_of(tokenizer)->unknown};
    return sw_sentencepiece_cut(tokenizer, text, len, take_id, &to);
}

/* ---- decoding ---- */

/* Appends a run of bytes as characters, with U+FFFD for each byte that is not part of one. */
static void put_bytes(struct sw_str *run, struct sw_str *out)
{
    for (size_t pos = 0; pos < run->len;) {
        const size_t at = pos;
        if (sw_utf8_next(run->ptr, run->len, &pos) >= 0) {
            sw_str_append(out, run->ptr + at, pos - at);
        } else {
            sw_str_puts(out, "\xEF\xBF\xBD");
            pos = at + 1;
        }
    }
    sw_str_clear(run);
}

/* Appends the text of a piece, with marks as spaces. at_begin: a leading mark is the text's own. */
static bool put_text(const struct spm *self, const char *text, size_t len, bool at_begin,
                     struct sw_str *out)
{
    const size_t n = sizeof(mark) - 1;
    bool dropped = false;
    if (at_begin && (self->dummy_prefix || self->remove_spaces) && len >= n &&
        memcmp(text, mark, n) == 0) {
        text += n;
        len -= n;
        dropped = !self->remove_spaces;
    }
    while (len > 0) {
        const char *at = memmem(text, len, mark, n);
        const size_t plain = at ? (size_t)(at - text) : len;
        sw_str_append(out, text, plain);
        if (at) {
            sw_str_putc(out, ' ');
        }
        text += plain + (at ? n : 0);
        len -= plain + (at ? n : 0);
    }
    return dropped;
}

/* The byte of a <0xNN> token. */
static unsigned char byte_of(const struct spm *self, int32_t id)
{
    for (int byte = 0; byte < 256; ++byte) {
        if (self->byte_id[byte] == id) {
            return (unsigned char)byte;
        }
    }
    return '?';
}

/* A text that pieces make, one after the other. */
struct joining {
    const struct spm *self;
    struct sw_str *out, bytes;
    size_t begin; /* of the text in out */
    bool at_begin, dropped;
};

/* id: -1 = the model has no such piece; it stays as it is spelled. */
static void join_piece(struct joining *to, const struct sw_vocab_token *piece, int32_t id)
{
    const struct spm *self = to->self;
    const enum sw_piece_kind kind = id >= 0 ? kind_of(self, id) : SW_PIECE_UNKNOWN;
    if (kind == SW_PIECE_BYTE) {
        sw_str_putc(&to->bytes, (char)byte_of(self, id));
        return;
    }
    put_bytes(&to->bytes, to->out);
    to->at_begin = to->at_begin && !to->dropped && to->out->len == to->begin;
    to->dropped = false;
    if (id < 0) {
        sw_str_append(to->out, piece->text, piece->len);
    } else if (kind == SW_PIECE_UNKNOWN) {
        sw_str_append(to->out, sw_str_text(&self->unknown_text), self->unknown_text.len);
    } else if (kind != SW_PIECE_CONTROL) {
        to->dropped = put_text(self, piece->text, piece->len, to->at_begin, to->out);
    }
}

sw_status sw_sentencepiece_join(const struct sw_tokenizer *model, const struct sw_vocab *names,
                                const int32_t *ids, int64_t n_ids, struct sw_str *out)
{
    const struct spm *self = self_of(model);
    struct joining to = {.self = self, .out = out, .begin = out->len, .at_begin = true};
    for (int64_t i = 0; i < n_ids; ++i) {
        const struct sw_vocab_token *piece = sw_vocab_token(names, ids[i]);
        join_piece(&to, piece,
                   names == &self->vocab ? ids[i]
                                         : sw_vocab_find(&self->vocab, piece->text, piece->len));
    }
    put_bytes(&to.bytes, out);
    const bool failed = to.bytes.failed || out->failed;
    sw_str_fini(&to.bytes);
    return failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for the text of %lld tokens",
                            (long long)n_ids)
                  : SW_OK;
}

static sw_status decode(const struct sw_tokenizer *tokenizer, const int32_t *ids, int64_t n_ids,
                        bool skip_special, struct sw_str *out)
{
    (void)skip_special; /* control pieces are never text */
    return sw_sentencepiece_join(tokenizer, &self_of(tokenizer)->vocab, ids, n_ids, out);
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

static const struct sw_tokenizer_ops ops = {
    .close = close_model, .encode = encode, .decode = decode, .token = token, .find = find};

/* ---- the file ---- */

static sw_status want(const struct sw_proto_field *field, int wire, const char *what)
{
    return field->wire == wire ? SW_OK
                               : SW_FAIL(SW_E_FORMAT, "%s has the wire type %d, wanted %d", what,
                                         field->wire, wire);
}

static sw_status grow(struct spm *self)
{
    if (self->unigram.n_scores < self->cap) {
        return SW_OK;
    }
    const int64_t cap = self->cap ? 2 * self->cap : 1024;
    double *scores = sw_realloc("pieces", self->unigram.scores, (size_t)cap * sizeof(*scores));
    SW_TRY_ALLOC(scores, "the pieces");
    self->unigram.scores = scores;
    unsigned char *kinds = sw_realloc("pieces", self->unigram.kinds, (size_t)cap);
    SW_TRY_ALLOC(kinds, "the pieces");
    self->unigram.kinds = kinds;
    self->cap = cap;
    return SW_OK;
}

static sw_status add_piece(struct spm *self, const char *text, size_t len, float score,
                           int64_t kind)
{
    struct sw_unigram *unigram = &self->unigram;
    const int64_t id = unigram->n_scores;
    if (kind < SW_PIECE_NORMAL || kind > SW_PIECE_BYTE || !isfinite(score) || len == 0) {
        return SW_FAIL(SW_E_FORMAT, "piece %lld is not valid: '%.*s' of kind %lld with score %g",
                       (long long)id, (int)sw_min_i64((int64_t)len, 40), text, (long long)kind,
                       (double)score);
    }
    SW_TRY(sw_utf8_check("a piece", text, len));
    SW_TRY(grow(self));
    SW_TRY(sw_vocab_add(&self->vocab, text, len, id));
    const struct sw_vocab_token *piece = sw_vocab_token(&self->vocab, id);
    unigram->scores[id] = (double)score;
    unigram->kinds[id] = (unsigned char)kind;
    unigram->n_scores++;
    if (kind == SW_PIECE_NORMAL) {
        unigram->min_score =
            (double)score < unigram->min_score ? (double)score : unigram->min_score;
    }
    if (kind == SW_PIECE_UNKNOWN) {
        self->unknown = (int32_t)id;
    }
    if (kind == SW_PIECE_USER_DEFINED) {
        SW_TRY(sw_prefix_add(&self->user, piece->text, len, (int32_t)id));
    }
    if (kind != SW_PIECE_NORMAL && kind != SW_PIECE_USER_DEFINED && kind != SW_PIECE_UNUSED) {
        return SW_OK;
    }
    self->bpe.longest = len > self->bpe.longest ? len : self->bpe.longest;
    return sw_prefix_add(&unigram->pieces, piece->text, len, (int32_t)id);
}

static sw_status read_piece(struct spm *self, const struct sw_proto_field *message)
{
    struct sw_proto proto = {message->bytes, message->len, 0};
    struct sw_proto_field field;
    const char *text = "";
    size_t len = 0;
    float score = 0;
    int64_t kind = SW_PIECE_NORMAL;
    bool more;
    for (;;) {
        SW_TRY(sw_proto_next(&proto, &field, &more));
        if (!more) {
            return add_piece(self, text, len, score, kind);
        }
        if (field.number == 1) {
            SW_TRY(want(&field, SW_PROTO_BYTES, "the text of a piece"));
            text = (const char *)field.bytes;
            len = field.len;
        } else if (field.number == 2) {
            SW_TRY(want(&field, SW_PROTO_FIXED32, "the score of a piece"));
            score = sw_proto_float(&field);
        } else if (field.number == 3) {
            SW_TRY(want(&field, SW_PROTO_VARINT, "the kind of a piece"));
            kind = field.integer;
        }
    }
}

static sw_status take_training(struct spm *self, const struct sw_proto_field *field)
{
    enum { MODEL = 3, SUFFIX = 24, FALLBACK = 35, BOS = 41, EOS = 42, PAD = 43, SURFACE = 44 };
    static const char *const kinds[] = {"0", "UNIGRAM", "BPE", "WORD", "CHAR"};
    const int64_t value = field->integer;
    switch (field->number) {
    case MODEL:
        SW_TRY(want(field, SW_PROTO_VARINT, "model_type"));
        if (value != MODEL_UNIGRAM && value != MODEL_BPE) {
            return SW_FAIL(SW_E_UNSUP, "a SentencePiece model of type %s is not built",
                           value > 0 && value < (int64_t)SW_LEN(kinds) ? kinds[value] : "unknown");
        }
        self->model = (enum model)value;
        return SW_OK;
    case SUFFIX:
        return value == 0 ? SW_OK : SW_FAIL(SW_E_UNSUP, "treat_whitespace_as_suffix is not built");
    case FALLBACK:
        self->byte_fallback = value != 0;
        return SW_OK;
    case BOS:
    case EOS:
    case PAD:
        SW_TRY(want(field, SW_PROTO_VARINT, "an id"));
        *(field->number == BOS   ? &self->super.bos
          : field->number == EOS ? &self->super.eos
                                 : &self->super.pad) =
            value >= 0 && value <= SW_VOCAB_MAX_ID ? (int32_t)value : -1;
        return SW_OK;
    case SURFACE:
        SW_TRY(want(field, SW_PROTO_BYTES, "unk_surface"));
        if (field->len > SW_PREFIX_MOST_BYTES) {
            return SW_FAIL(SW_E_FORMAT, "unk_surface has %zu bytes, wanted at most %d", field->len,
                           SW_PREFIX_MOST_BYTES);
        }
        sw_str_clear(&self->unknown_text);
        sw_str_append(&self->unknown_text, (const char *)field->bytes, field->len);
        return SW_OK;
    default:
        return SW_OK;
    }
}

static sw_status take_normalizing(struct spm *self, const struct sw_proto_field *field)
{
    enum { CHARSMAP = 2, DUMMY = 3, EXTRA = 4, ESCAPE = 5 };
    switch (field->number) {
    case CHARSMAP:
        SW_TRY(want(field, SW_PROTO_BYTES, "precompiled_charsmap"));
        sw_charsmap_fini(&self->charsmap);
        self->charsmap_bytes = (const char *)field->bytes;
        self->charsmap_len = field->len;
        return sw_charsmap_init(&self->charsmap, (const char *)field->bytes, field->len);
    case DUMMY:
        self->dummy_prefix = field->integer != 0;
        return SW_OK;
    case EXTRA:
        self->remove_spaces = field->integer != 0;
        return SW_OK;
    case ESCAPE:
        self->escape = field->integer != 0;
        return SW_OK;
    default:
        return SW_OK;
    }
}

static sw_status refuse_denormalizing(struct spm *self, const struct sw_proto_field *field)
{
    (void)self;
    return field->number == 2 && field->len > 0
               ? SW_FAIL(SW_E_UNSUP, "a denormalizer_spec with a charsmap is not built")
               : SW_OK;
}

typedef sw_status (*take_fn)(struct spm *self, const struct sw_proto_field *field);
static sw_status each_field(struct spm *self, const struct sw_proto_field *message, take_fn take)
{
    struct sw_proto proto = {message->bytes, message->len, 0};
    struct sw_proto_field field;
    bool more;
    for (;;) {
        SW_TRY(sw_proto_next(&proto, &field, &more));
        if (!more) {
            return SW_OK;
        }
        SW_TRY(take(self, &field));
    }
}

static sw_status take_part(struct spm *self, const struct sw_proto_field *field)
{
    enum { PIECE = 1, TRAINING = 2, NORMALIZING = 3, DENORMALIZING = 5 };
    if (field->wire != SW_PROTO_BYTES) {
        return field->number > DENORMALIZING ? SW_OK
                                             : want(field, SW_PROTO_BYTES, "a part of the model");
    }
    switch (field->number) {
    case PIECE:
        return read_piece(self, field);
    case TRAINING:
        return each_field(self, field, take_training);
    case NORMALIZING:
        return each_field(self, field, take_normalizing);
    case DENORMALIZING:
        return each_field(self, field, refuse_denormalizing);
    default:
        return SW_OK;
    }
}

/* Drops ids without a piece: models give 3 for a pad that they lack. */
static void forget_missing_roles(struct spm *self)
{
    int32_t *const roles[] = {&self->super.bos, &self->super.eos, &self->super.pad};
    for (size_t i = 0; i < SW_LEN(roles); ++i) {
        *roles[i] = sw_vocab_token(&self->vocab, *roles[i]) ? *roles[i] : -1;
    }
}

static sw_status finish(struct spm *self)
{
    if (self->unigram.n_scores == 0 || self->unknown < 0) {
        return SW_FAIL(SW_E_FORMAT, "not a SentencePiece model: %lld pieces, %s unknown one",
                       (long long)self->unigram.n_scores, self->unknown < 0 ? "no" : "an");
    }
    sw_vocab_find_bytes(&self->vocab, self->byte_id);
    for (int byte = 0; byte < 256 && self->byte_fallback; ++byte) {
        if (self->byte_id[byte] < 0 || kind_of(self, self->byte_id[byte]) != SW_PIECE_BYTE) {
            return SW_FAIL(SW_E_FORMAT, "byte_fallback, and no byte piece <0x%02X>",
                           (unsigned)byte);
        }
    }
    if (!isfinite(self->unigram.min_score)) { /* no piece is NORMAL */
        self->unigram.min_score = 0;
    }
    sw_prefix_sort(&self->unigram.pieces);
    sw_prefix_sort(&self->user);
    self->unigram.unknown = self->unknown;
    self->unigram.single = true;
    self->unigram.longest = self->bpe.longest > 4 ? self->bpe.longest : 4;
    self->bpe.vocab = &self->vocab;
    self->bpe.scores = self->unigram.scores;
    self->bpe.kinds = self->unigram.kinds;
    self->bpe.user = &self->user;
    self->super.vocab_size = self->unigram.n_scores;
    forget_missing_roles(self);
    return self->unknown_text.failed || self->name.failed
               ? SW_FAIL(SW_E_NOMEM, "out of host memory for a tokenizer")
               : SW_OK;
}

static struct spm *open_empty(void)
{
    struct spm *self = sw_alloc_zero("tokenizer", 1, sizeof(*self));
    if (self && sw_tokenizer_init(&self->super, &ops, "SentencePiece") < 0) {
        sw_tokenizer_fini(&self->super);
        sw_free(self);
        self = NULL;
    }
    if (!self) {
        return NULL;
    }
    sw_vocab_init(&self->vocab);
    self->model = MODEL_UNIGRAM;
    self->super.bos = 1; /* default */
    self->super.eos = 2;
    self->unknown = -1;
    self->unigram.min_score = INFINITY;
    self->dummy_prefix = self->remove_spaces = self->escape = true;
    sw_str_puts(&self->unknown_text, " \xE2\x81\x87 ");
    return self;
}

sw_status sw_sentencepiece_parse(const char *name, const char *bytes, size_t len,
                                 struct sw_tokenizer **out)
{
    struct spm *self = open_empty();
    SW_TRY_ALLOC(self, "a tokenizer");
    sw_str_puts(&self->name, name);
    const struct sw_proto_field whole = {.bytes = (const unsigned char *)bytes, .len = len};
    sw_status st = each_field(self, &whole, take_part);
    st = st >= 0 ? finish(self) : st;
    if (st < 0) {
        close_model(&self->super);
        return sw_fail_prefix(st, "%s", name);
    }
    self->super.is_bpe = self->model == MODEL_BPE;
    *out = &self->super;
    return SW_OK;
}

void sw_sentencepiece_parts(const struct sw_tokenizer *model, struct sw_sentencepiece_parts *out)
{
    const struct spm *self = self_of(model);
    *out = (struct sw_sentencepiece_parts){.vocab = &self->vocab,
                                           .scores = self->unigram.scores,
                                           .kinds = self->unigram.kinds,
                                           .n = self->unigram.n_scores,
                                           .is_unigram = self->model == MODEL_UNIGRAM,
                                           .charsmap = self->charsmap_bytes,
                                           .charsmap_len = self->charsmap_len};
}

/* ---- with the files beside it ---- */

/* Whether texts begin with bos and end with eos: from tokenizer_config.json, else by class. */
static sw_status read_ends(const struct sw_class_files *files, bool *bos, bool *eos)
{
    const char *class;
    const struct sw_json *root = sw_json_root(files->settings);
    SW_TRY(sw_class_files_class(files, &class));
    const bool begins = sw_class_is(class, "Llama") || sw_class_is(class, "CodeLlama") ||
                        sw_class_is(class, "Gemma");
    SW_TRY(sw_json_get_bool(files->settings, root, "add_bos_token", begins, bos));
    return sw_json_get_bool(files->settings, root, "add_eos_token", false, eos);
}

/* Refuses tokens that only tokenizer_config.json has, because the model has no id for them. */
static sw_status check_added(const struct sw_tokenizer *super, const struct sw_json *root)
{
    const struct sw_json *list = sw_json_get(root, "added_tokens_decoder");
    for (const struct sw_json *entry = list && list->type == SW_JSON_OBJECT ? list->first : NULL;
         entry; entry = entry->next) {
        const struct sw_json *content = sw_json_get(entry, "content");
        if (content && content->type == SW_JSON_STRING &&
            sw_tokenizer_find(super, content->string) < 0) {
            return SW_FAIL(SW_E_UNSUP,
                           "line %d: added token '%.40s' is not in the model; with a "
                           "tokenizer.json in the folder it works",
                           entry->line, content->string);
        }
    }
    return SW_OK;
}

static sw_status set_ends(struct sw_tokenizer *super, const struct sw_class_files *files)
{
    bool bos = false, eos = false;
    sw_status st = check_added(super, sw_json_root(files->settings));
    st = st < 0 ? st : read_ends(files, &bos, &eos);
    st = st >= 0 && (bos || eos) ? sw_tokenizer_surround(super, bos, eos) : st;
    return st < 0 ? sw_fail_prefix(st, "%s", sw_json_name(files->settings)) : SW_OK;
}

/* Replaces a model by the tokenizer of its class, if it has one. path is for messages. */
static sw_status take_class(const char *path, const struct sw_class_files *files,
                            struct sw_tokenizer **model)
{
    struct sw_pipeline *pipeline;
    const struct sw_piece_class *class;
    const char *name;
    sw_status st = sw_piece_class_find(files, &class, &name);
    st = st >= 0 && class ? sw_piece_class_open(class, files, *model, &pipeline) : st;
    if (st < 0) {
        return sw_fail_prefix(st, "%s", path);
    }
    if (class) {
        sw_tokenizer_close(*model);
        *model = &pipeline->super;
    }
    (*model)->equal_class = name;
    return SW_OK;
}

/* The name under which a model is saved: its own if sw_tokenizer_open looks for it in a folder. */
static const char *kept_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return sw_tokenizer_knows_file(name) ? name : "tokenizer.model";
}

static sw_status open_beside(const char *path, const char *folder, struct sw_tokenizer **out)
{
    sw_status st;
    char *bytes = NULL;
    size_t len;
    struct sw_tokenizer *self = NULL;
    struct sw_class_files files = {0};
    SW_TRY(sw_file_read(path, &bytes, &len));
    SW_TRY_OR(done, sw_class_files_read(folder, &files));
    SW_TRY_OR(done, sw_sentencepiece_parse(path, bytes, len, &self));
    SW_TRY_OR(done, take_class(path, &files, &self));
    SW_TRY_OR(done, sw_tokenizer_keep_file(self, kept_name(path), bytes, len));
    SW_TRY_OR(done, sw_tokenizer_keep_added(self, folder));
    SW_TRY_OR(done, sw_tokenizer_read_roles(self, folder));
    st = self->class_name ? SW_OK : set_ends(self, &files);
    if (st >= 0) {
        *out = self;
        self = NULL;
    }
done:
    sw_tokenizer_close(self);
    sw_class_files_close(&files);
    sw_free(bytes);
    return st;
}

sw_status sw_tokenizer_open_sentencepiece(const char *path, struct sw_tokenizer **out)
{
    sw_status st;
    struct sw_str folder = {0};
    SW_TRY_OR(done, sw_tokenizer_folder_of(path, &folder));
    SW_TRY_OR(done, open_beside(path, folder.ptr, out));
done:
    sw_str_fini(&folder);
    return st;
}
