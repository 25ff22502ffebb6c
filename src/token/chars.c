// SPDX-License-Identifier: Apache-2.0
// Characters as tokens: the code points of a text in rising order, id = rank. Its file, chars.json,
// is a list of one-character strings, whose order is kept.
#include "token/tokenizer.h"

#include "json/json.h"
#include "text/text.h"

#include <stdlib.h>
#include <string.h>

enum { N_CODE_POINTS = 0x110000 };

struct chars {
    struct sw_tokenizer super;
    struct character {
        char text[4 + 1];
        uint8_t len;
    } * characters; /* [vocab_size] by id */
    struct place {
        int32_t code_point, id;
    } * places; /* [vocab_size] by code point */
};

static struct chars *self_of(const struct sw_tokenizer *tokenizer)
{
    return SW_CONTAINER(tokenizer, struct chars, super);
}

static void close(struct sw_tokenizer *tokenizer)
{
    struct chars *self = self_of(tokenizer);
    sw_free(self->characters);
    sw_free(self->places);
    sw_tokenizer_fini(&self->super);
    sw_free(self);
}

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return (x->code_point > y->code_point) - (x->code_point < y->code_point);
}

static int32_t id_of(const struct chars *self, int32_t code_point)
{
    const struct place key = {code_point, 0};
    const struct place *place =
        bsearch(&key, self->places, (size_t)self->super.vocab_size, sizeof(key), compare_places);
    return place ? place->id : -1;
}

static sw_status encode(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                        struct sw_ids *ids)
{
    const struct chars *self = self_of(tokenizer);
    size_t pos = 0;
    SW_TRY(sw_utf8_check("text", text, len));
    while (pos < len) {
        const size_t at = pos;
        const int32_t code_point = sw_utf8_next(text, len, &pos);
        const int32_t id = id_of(self, code_point);
        if (id < 0) {
            return SW_FAIL(SW_E_FORMAT,
                           "text: character U+%04X at offset %zu is not among the %lld characters "
                           "of the vocabulary",
                           (unsigned)code_point, at, (long long)self->super.vocab_size);
        }
        SW_TRY(sw_ids_push(ids, id));
    }
    return SW_OK;
}

static const char *token(const struct sw_tokenizer *tokenizer, int32_t id, size_t *out_len)
{
    const struct chars *self = self_of(tokenizer);
    if (id < 0 || id >= self->super.vocab_size) {
        return NULL;
    }
    if (out_len) {
        *out_len = self->characters[id].len;
    }
    return self->characters[id].text;
}

static sw_status decode(const struct sw_tokenizer *tokenizer, const int32_t *ids, int64_t n_ids,
                        bool skip_special, struct sw_str *out)
{
    (void)skip_special;
    for (int64_t i = 0; i < n_ids; ++i) {
        size_t len = 0;
        const char *text = token(tokenizer, ids[i], &len);
        sw_str_append(out, text, len);
    }
    return SW_OK;
}

static int32_t find(const struct sw_tokenizer *tokenizer, const char *text, size_t len)
{
    size_t pos = 0;
    const int32_t code_point = sw_utf8_next(text, len, &pos);
    return code_point >= 0 && pos == len ? id_of(self_of(tokenizer), code_point) : -1;
}

static const struct sw_tokenizer_ops ops = {
    .close = close, .encode = encode, .decode = decode, .token = token, .find = find};

/* chars.json as sw_tokenizer_save writes it. */
static sw_status keep_file(struct chars *self)
{
    sw_status st;
    struct sw_str text = {0};
    for (int64_t id = 0; id < self->super.vocab_size; ++id) {
        sw_str_puts(&text, id == 0 ? "[" : ", ");
        sw_json_write_string(self->characters[id].text, self->characters[id].len, &text);
    }
    sw_str_puts(&text, "]\n");
    st = text.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a character vocabulary")
                     : sw_tokenizer_keep_file(&self->super, "chars.json", text.ptr, text.len);
    sw_str_fini(&text);
    return st;
}

/* Sets n code points, id = position. Sorts `places` and checks for duplicates. */
static sw_status fill(struct chars *self, const int32_t *code_points, int64_t n)
{
    self->characters = sw_alloc_zero("characters", (size_t)n, sizeof(*self->characters));
    self->places = sw_alloc_zero("characters", (size_t)n, sizeof(*self->places));
    SW_TRY_ALLOC(self->characters && self->places ? self : NULL, "a character vocabulary");
    self->super.vocab_size = n;
    for (int64_t id = 0; id < n; ++id) {
        self->characters[id].len = (uint8_t)sw_utf8_put(code_points[id], self->characters[id].text);
        self->places[id] = (struct place){code_points[id], (int32_t)id};
    }
    qsort(self->places, (size_t)n, sizeof(*self->places), compare_places);
    for (int64_t i = 1; i < n; ++i) {
        if (self->places[i].code_point == self->places[i - 1].code_point) {
            return SW_FAIL(SW_E_FORMAT, "character U+%04X has the ids %d and %d",
                           (unsigned)self->places[i].code_point, self->places[i - 1].id,
                           self->places[i].id);
        }
    }
    return keep_file(self);
}

static sw_status open_code_points(const int32_t *code_points, int64_t n, struct sw_tokenizer **out)
{
    struct chars *self = sw_alloc_zero("tokenizer", 1, sizeof(*self));
    SW_TRY_ALLOC(self, "a tokenizer");
    sw_status st = sw_tokenizer_init(&self->super, &ops, "characters");
    st = st < 0 ? st : fill(self, code_points, n);
    if (st < 0) {
        close(&self->super);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    *out = &self->super;
    return SW_OK;
}

/* ---- from texts: a bit for each code point seen ---- */

struct sw_char_set {
    uint8_t bits[N_CODE_POINTS / 8];
    int64_t n;
};

sw_status sw_char_set_open(struct sw_char_set **out)
{
    struct sw_char_set *set = sw_alloc_zero("characters", 1, sizeof(*set));
    SW_TRY_ALLOC(set, "a character vocabulary");
    *out = set;
    return SW_OK;
}

void sw_char_set_close(struct sw_char_set *set)
{
    sw_free(set);
}

sw_status sw_char_set_add(struct sw_char_set *set, const char *name, const char *text, size_t len)
{
    size_t pos = 0;
    SW_TRY(sw_utf8_check(name, text, len));
    while (pos < len) {
        const int32_t code_point = sw_utf8_next(text, len, &pos);
        uint8_t *byte = &set->bits[code_point / 8];
        const uint8_t bit = (uint8_t)(1 << code_point % 8);
        set->n += !(*byte & bit);
        *byte |= bit;
    }
    return SW_OK;
}

sw_status sw_tokenizer_open_char_set(const char *name, const struct sw_char_set *set,
                                     struct sw_tokenizer **out)
{
    int64_t n = 0;
    if (set->n == 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: the text is empty", name);
    }
    int32_t *code_points = sw_alloc("characters", (size_t)set->n * sizeof(*code_points));
    SW_TRY_ALLOC(code_points, "a character vocabulary");
    for (int32_t c = 0; c < N_CODE_POINTS; ++c) {
        if (set->bits[c / 8] >> c % 8 & 1) {
            code_points[n++] = c;
        }
    }
    const sw_status st = open_code_points(code_points, n, out);
    sw_free(code_points);
    return st;
}

sw_status sw_tokenizer_open_chars(const char *name, const char *text, size_t len,
                                  struct sw_tokenizer **out)
{
    struct sw_char_set *set;
    SW_TRY(sw_char_set_open(&set));
    sw_status st = sw_char_set_add(set, name, text, len);
    st = st < 0 ? st : sw_tokenizer_open_char_set(name, set, out);
    sw_char_set_close(set);
    return st < 0 ? sw_frame_at(__FILE__, __LINE__, st) : SW_OK;
}

/* ---- from chars.json ---- */

static sw_status read_list(const struct sw_json_doc *doc, const struct sw_json *root,
                           int32_t *code_points)
{
    int64_t n = 0;
    for (const struct sw_json *item = root->first; item; item = item->next) {
        size_t pos = 0;
        const bool text = item->type == SW_JSON_STRING;
        const int32_t c = text ? sw_utf8_next(item->string, item->string_len, &pos) : -1;
        if (c < 0 || pos != item->string_len) {
            return SW_FAIL(SW_E_FORMAT, "%s:%d:%d: wanted a string of one character",
                           sw_json_name(doc), item->line, item->column);
        }
        code_points[n++] = c;
    }
    return SW_OK;
}

sw_status sw_tokenizer_open_chars_json(const char *path, struct sw_tokenizer **out)
{
    sw_status st;
    struct sw_json_doc *doc;
    int32_t *code_points = NULL;
    SW_TRY(sw_json_read(path, SW_JSON_STRICT, &doc));
    const struct sw_json *root = sw_json_root(doc);
    const int64_t n = root->n_children;
    if (root->type != SW_JSON_ARRAY || n < 1 || n > N_CODE_POINTS) {
        st = SW_FAIL(SW_E_FORMAT, "%s: wanted a list of characters", path);
        goto done;
    }
    code_points = sw_alloc("characters", (size_t)n * sizeof(*code_points));
    if (!code_points) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a character vocabulary");
        goto done;
    }
    SW_TRY_OR(done, read_list(doc, root, code_points));
    st = open_code_points(code_points, n, out);
    if (st < 0) {
        sw_fail_prefix(st, "%s", path);
    }
done:
    sw_free(code_points);
    sw_json_close(doc);
    return st;
}
