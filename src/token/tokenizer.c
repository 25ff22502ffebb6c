// SPDX-License-Identifier: Apache-2.0
// The front of all tokenizers: checks, templates, saving. Differences between kinds are behind ops.
#include "token/tokenizer.h"

#include "token/decoder.h"

#include <string.h>
#include <strings.h>

sw_status sw_template_add(struct sw_template *template, enum sw_template_part part, int32_t id,
                          int32_t type_id)
{
    if (template->n_items == SW_TEMPLATE_MOST) {
        return SW_FAIL(SW_E_FORMAT, "a template of special tokens has more than %d items",
                       SW_TEMPLATE_MOST);
    }
    struct sw_template_item *items =
        sw_realloc("template", template->items, (size_t)(template->n_items + 1) * sizeof(*items));
    SW_TRY_ALLOC(items, "a template");
    items[template->n_items++] = (struct sw_template_item){part, id, type_id};
    template->items = items;
    return SW_OK;
}

int32_t sw_edges_to(const struct sw_edges *edges, size_t place)
{
    size_t low = 0, high = edges->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (edges->at[middle] <= place) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (int32_t)low;
}

void sw_template_fini(struct sw_template *template)
{
    sw_free(template->items);
    *template = (struct sw_template){0};
}

sw_status sw_tokenizer_end_texts(struct sw_tokenizer *tokenizer)
{
    struct sw_template *const templates[] = {&tokenizer->single, &tokenizer->pair};
    for (size_t i = 0; i < SW_LEN(templates) && tokenizer->eos >= 0; i++) {
        const struct sw_template *template = templates[i];
        const int n = template->n_items;
        if (n > 0 && template->items[n - 1].part != SW_TEMPLATE_SPECIAL) {
            SW_TRY(sw_template_add(templates[i], SW_TEMPLATE_SPECIAL, tokenizer->eos,
                                   template->items[n - 1].type_id));
        }
    }
    return SW_OK;
}

static sw_status add_end(struct sw_template *template, int32_t id, int32_t type_id, const char *key)
{
    return id >= 0 ? sw_template_add(template, SW_TEMPLATE_SPECIAL, id, type_id)
                   : SW_FAIL(SW_E_FORMAT, "%s is requested, but the model has no such token", key);
}

sw_status sw_tokenizer_surround(struct sw_tokenizer *tokenizer, bool bos, bool eos)
{
    struct sw_template *const templates[] = {&tokenizer->single, &tokenizer->pair};
    for (int t = 0; t < 2; ++t) {
        sw_template_fini(templates[t]);
        for (int text = 0; text <= t; ++text) { /* with bos the second text is of type 1 */
            const int32_t type_id = bos ? text : 0;
            SW_TRY(bos ? add_end(templates[t], tokenizer->bos, type_id, "add_bos_token") : SW_OK);
            SW_TRY(sw_template_add(templates[t], text == 0 ? SW_TEMPLATE_FIRST : SW_TEMPLATE_SECOND,
                                   -1, type_id));
            SW_TRY(eos ? add_end(templates[t], tokenizer->eos, type_id, "add_eos_token") : SW_OK);
        }
    }
    return SW_OK;
}

sw_status sw_tokenizer_mark(struct sw_tokenizer *tokenizer, int32_t cls, int32_t sep, bool roberta)
{
    struct sw_template *const templates[] = {&tokenizer->single, &tokenizer->pair};
    const int32_t second_type = roberta ? 0 : 1;
    for (int i = 0; i < 2; ++i) {
        sw_template_fini(templates[i]);
        SW_TRY(sw_template_add(templates[i], SW_TEMPLATE_SPECIAL, cls, 0));
        SW_TRY(sw_template_add(templates[i], SW_TEMPLATE_FIRST, -1, 0));
        SW_TRY(sw_template_add(templates[i], SW_TEMPLATE_SPECIAL, sep, 0));
    }
    if (roberta) {
        SW_TRY(sw_template_add(templates[1], SW_TEMPLATE_SPECIAL, sep, 0));
    }
    SW_TRY(sw_template_add(templates[1], SW_TEMPLATE_SECOND, -1, second_type));
    return sw_template_add(templates[1], SW_TEMPLATE_SPECIAL, sep, second_type);
}

/* Number of special tokens before the first text of a template. */
static int n_leading(const struct sw_template *template)
{
    int n = 0;
    while (n < template->n_items && template->items[n].part == SW_TEMPLATE_SPECIAL) {
        n++;
    }
    return n;
}

/* Number of items before the special tokens at the end of a template. */
static int n_to_end(const struct sw_template *template)
{
    int n = template->n_items;
    while (n > 0 && template->items[n - 1].part == SW_TEMPLATE_SPECIAL) {
        n--;
    }
    return n;
}

static bool same_ids(const struct sw_template_item *a, const struct sw_template_item *b, int n)
{
    for (int i = 0; i < n; ++i) {
        if (a[i].part != SW_TEMPLATE_SPECIAL || a[i].id != b[i].id) {
            return false;
        }
    }
    return true;
}

static void drop_leading(struct sw_template *template)
{
    const int n = n_leading(template);
    for (int i = n; i < template->n_items; ++i) {
        template->items[i - n] = template->items[i];
    }
    template->n_items -= n;
}

void sw_tokenizer_drop_bos(struct sw_tokenizer *tokenizer)
{
    struct sw_template *single = &tokenizer->single, *pair = &tokenizer->pair;
    const int n_bos = n_leading(single);
    int n = 0;
    for (int i = 0; i < pair->n_items; ++i) { /* those before each of the two texts */
        if (pair->items[i].part != SW_TEMPLATE_SPECIAL && n >= n_bos &&
            same_ids(pair->items + n - n_bos, single->items, n_bos)) {
            n -= n_bos;
        }
        pair->items[n++] = pair->items[i];
    }
    pair->n_items = n;
    drop_leading(single);
    drop_leading(&tokenizer->target);
    tokenizer->no_bos = true;
}

bool sw_tokenizer_has_end(const struct sw_tokenizer *tokenizer)
{
    return n_to_end(&tokenizer->single) < tokenizer->single.n_items;
}

sw_status sw_tokenizer_push_end(const struct sw_tokenizer *tokenizer, struct sw_ids *ids)
{
    const struct sw_template *template = &tokenizer->single;
    if (!sw_tokenizer_has_end(tokenizer)) {
        return tokenizer->eos >= 0 ? sw_ids_push(ids, tokenizer->eos) : SW_OK;
    }
    for (int i = n_to_end(template); i < template->n_items; ++i) {
        SW_TRY(sw_ids_push(ids, template->items[i].id));
    }
    return SW_OK;
}

sw_status sw_tokenizer_set_cut(struct sw_tokenizer *tokenizer, const char *key, const char *side)
{
    tokenizer->cut_left = strcasecmp(side, "left") == 0;
    return tokenizer->cut_left || strcasecmp(side, "right") == 0
               ? SW_OK
               : SW_FAIL(SW_E_FORMAT, "%s is '%.20s', wanted left or right", key, side);
}

void sw_tokenizer_template_text(const struct sw_tokenizer *tokenizer, struct sw_str *out)
{
    const struct sw_template *template = &tokenizer->single;
    const bool bare = n_leading(template) == 0 && !sw_tokenizer_has_end(tokenizer);
    for (int i = 0; i < template->n_items && !bare; ++i) {
        const struct sw_template_item *item = &template->items[i];
        const char *token = item->part == SW_TEMPLATE_SPECIAL
                                ? sw_tokenizer_token(tokenizer, item->id, NULL)
                                : "..";
        sw_str_printf(out, "%s%s", i > 0 ? " " : "", token ? token : "?");
    }
}

sw_status sw_tokenizer_init(struct sw_tokenizer *tokenizer, const struct sw_tokenizer_ops *ops,
                            const char *kind)
{
    *tokenizer = (struct sw_tokenizer){.ops = ops, .kind = kind, .eos = -1, .bos = -1, .pad = -1};
    SW_TRY(sw_template_add(&tokenizer->single, SW_TEMPLATE_FIRST, -1, 0));
    SW_TRY(sw_template_add(&tokenizer->pair, SW_TEMPLATE_FIRST, -1, 0));
    SW_TRY(sw_template_add(&tokenizer->pair, SW_TEMPLATE_SECOND, -1, 1));
    return SW_OK;
}

void sw_tokenizer_fini(struct sw_tokenizer *tokenizer)
{
    sw_template_fini(&tokenizer->single);
    sw_template_fini(&tokenizer->pair);
    sw_template_fini(&tokenizer->target);
    for (int i = 0; i < tokenizer->n_files; ++i) {
        sw_free(tokenizer->files[i].name);
        sw_free(tokenizer->files[i].data);
    }
    sw_free(tokenizer->files);
}

sw_status sw_tokenizer_keep_file(struct sw_tokenizer *tokenizer, const char *name, const char *data,
                                 size_t len)
{
    const int n = tokenizer->n_files;
    struct sw_saved_file *files =
        sw_realloc("tokenizer", tokenizer->files, (size_t)(n + 1) * sizeof(*files));
    SW_TRY_ALLOC(files, "a tokenizer's files");
    tokenizer->files = files;
    files[n] = (struct sw_saved_file){sw_strdup("tokenizer", name), sw_alloc("tokenizer", len), len,
                                      false};
    tokenizer->n_files++;
    SW_TRY_ALLOC(files[n].name && files[n].data ? files : NULL, "a tokenizer's files");
    if (len > 0) {
        memcpy(files[n].data, data, len);
    }
    return SW_OK;
}

void sw_tokenizer_close(struct sw_tokenizer *tokenizer)
{
    if (tokenizer) {
        tokenizer->ops->close(tokenizer);
    }
}

static sw_status apply_template(const struct sw_template *template, const struct sw_ids texts[2],
                                bool add_special, struct sw_ids *ids, struct sw_ids *types)
{
    for (int i = 0; i < template->n_items; ++i) {
        const struct sw_template_item *item = &template->items[i];
        const struct sw_ids one = {(int32_t *)&item->id, 1, 1};
        const struct sw_ids *part = &one;
        if (item->part != SW_TEMPLATE_SPECIAL) {
            part = &texts[item->part == SW_TEMPLATE_SECOND];
        } else if (!add_special) {
            continue;
        }
        for (int64_t k = 0; k < part->len; ++k) {
            SW_TRY(sw_ids_push(ids, part->ptr[k]));
            if (types) {
                SW_TRY(sw_ids_push(types, item->type_id));
            }
        }
    }
    return SW_OK;
}

typedef sw_status (*encode_fn)(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                               struct sw_ids *ids);

/* Encodes one text. template: the special tokens around it; NULL: none. */
static sw_status encode(struct sw_tokenizer *tokenizer, encode_fn by,
                        const struct sw_template *template, const char *text, size_t len,
                        struct sw_ids *ids)
{
    sw_status st;
    const int64_t n_ids = ids->len;
    if (!template || template->n_items == 1) { /* no copy for the common case */
        st = by(tokenizer, text, len, ids);
    } else {
        struct sw_ids parts[2] = {{0}};
        st = by(tokenizer, text, len, &parts[0]);
        st = st < 0 ? st : apply_template(template, parts, true, ids, NULL);
        sw_ids_fini(&parts[0]);
    }
    ids->len = st < 0 ? n_ids : ids->len;
    return st < 0 ? sw_frame_at(__FILE__, __LINE__, st) : SW_OK;
}

sw_status sw_tokenizer_encode(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                              bool add_special, struct sw_ids *ids)
{
    return encode(tokenizer, tokenizer->ops->encode, add_special ? &tokenizer->single : NULL, text,
                  len, ids);
}

sw_status sw_tokenizer_encode_word(struct sw_tokenizer *tokenizer, const char *word, size_t len,
                                   bool add_special, struct sw_ids *ids)
{
    const encode_fn by = tokenizer->ops->encode_word;
    SW_ASSERT(!add_special);
    return encode(tokenizer, by ? by : tokenizer->ops->encode, NULL, word, len, ids);
}

bool sw_tokenizer_has_sides(const struct sw_tokenizer *tokenizer)
{
    return tokenizer->ops->encode_target != NULL;
}

const struct sw_template *sw_tokenizer_target_template(const struct sw_tokenizer *tokenizer)
{
    return tokenizer->target.n_items > 0 ? &tokenizer->target : &tokenizer->single;
}

sw_status sw_tokenizer_encode_target(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                                     bool add_special, struct sw_ids *ids)
{
    const encode_fn by = tokenizer->ops->encode_target;
    return encode(tokenizer, by ? by : tokenizer->ops->encode,
                  add_special ? sw_tokenizer_target_template(tokenizer) : NULL, text, len, ids);
}

sw_status sw_tokenizer_encode_prompt(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                                     struct sw_ids *ids)
{
    const int64_t before = ids->len;
    const struct sw_template *template = &tokenizer->single;
    sw_status st = SW_OK;
    if (sw_tokenizer_has_sides(tokenizer)) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: sources and targets have tokens of their own, so it cannot encode a "
                       "prompt that the model continues; use it for pairs (task seq2seq)",
                       tokenizer->kind);
    }
    for (int i = 0; i < n_leading(template); ++i) {
        SW_TRY_OR(done, sw_ids_push(ids, template->items[i].id));
    }
    st = sw_tokenizer_encode(tokenizer, text, len, false, ids);
done:
    ids->len = st < 0 ? before : ids->len;
    return st;
}

sw_status sw_tokenizer_encode_example(struct sw_tokenizer *tokenizer, const struct sw_str *joined,
                                      size_t prompt_len, struct sw_ids *ids, int64_t *n_prompt,
                                      bool *merged)
{
    sw_status st;
    struct sw_ids alone = {0};
    const char *text = sw_str_text(joined);
    sw_ids_clear(ids);
    SW_TRY_OR(done, sw_tokenizer_encode_prompt(tokenizer, text, prompt_len, &alone));
    SW_TRY_OR(done, sw_tokenizer_encode_prompt(tokenizer, text, joined->len, ids));
    *n_prompt = 0;
    while (*n_prompt < alone.len && *n_prompt < ids->len &&
           alone.ptr[*n_prompt] == ids->ptr[*n_prompt]) {
        ++*n_prompt;
    }
    *merged = *n_prompt < alone.len;
    const bool ends = ids->len > *n_prompt && ids->ptr[ids->len - 1] == tokenizer->eos;
    if (!ends || sw_tokenizer_has_end(tokenizer)) {
        st = sw_tokenizer_push_end(tokenizer, ids);
    }
done:
    sw_ids_fini(&alone);
    return st;
}

sw_status sw_tokenizer_encode_pair(struct sw_tokenizer *tokenizer, const char *first,
                                   size_t first_len, const char *second, size_t second_len,
                                   bool add_special, struct sw_ids *ids, struct sw_ids *types)
{
    sw_status st;
    struct sw_ids parts[2] = {{0}};
    const int64_t n_ids = ids->len, n_types = types ? types->len : 0;
    SW_TRY_OR(done, tokenizer->ops->encode(tokenizer, first, first_len, &parts[0]));
    SW_TRY_OR(done, tokenizer->ops->encode(tokenizer, second, second_len, &parts[1]));
    SW_TRY_OR(done, apply_template(&tokenizer->pair, parts, add_special, ids, types));
done:
    if (st < 0) { /* the outputs get their old length back */
        ids->len = n_ids;
        if (types) {
            types->len = n_types;
        }
    }
    sw_ids_fini(&parts[0]);
    sw_ids_fini(&parts[1]);
    return st;
}

sw_status sw_tokenizer_decode_str(const struct sw_tokenizer *tokenizer, const int32_t *ids,
                                  int64_t n_ids, bool skip_special, struct sw_str *out)
{
    sw_status st = SW_OK;
    struct sw_ids known = {0};
    struct sw_str text = {0};
    for (int64_t i = 0; i < n_ids;
         ++i) { /* padding rows of an embedding have no token and no text */
        if (tokenizer->ops->token(tokenizer, ids[i], NULL)) {
            SW_TRY_OR(done, sw_ids_push(&known, ids[i]));
        }
    }
    SW_TRY_OR(done, tokenizer->ops->decode(tokenizer, known.ptr, known.len, skip_special, &text));
    if (tokenizer->cleans_up) {
        sw_clean_up_spaces(&text);
    }
    sw_str_append(out, sw_str_text(&text), text.len);
    if (text.failed || out->failed) {
        st =
            SW_FAIL(SW_E_NOMEM, "out of host memory for the text of %lld tokens", (long long)n_ids);
    }
done:
    sw_ids_fini(&known);
    sw_str_fini(&text);
    return st;
}

sw_status sw_tokenizer_decode(const struct sw_tokenizer *tokenizer, const int32_t *ids,
                              int64_t n_ids, bool skip_special, char **out_text, size_t *out_len)
{
    struct sw_str text = {0};
    sw_status st = sw_tokenizer_decode_str(tokenizer, ids, n_ids, skip_special, &text);
    if (st >= 0 && !text.ptr) {
        text.ptr = sw_strdup("text", "");
        st = text.ptr ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for a text");
    }
    if (st < 0) {
        sw_str_fini(&text);
        return st;
    }
    *out_text = text.ptr;
    if (out_len) {
        *out_len = text.len;
    }
    return SW_OK;
}

/* The first character of a text at or after byte `at`. Byte tokens of an incomplete character
 * decode to U+FFFD each, but to a character of another length once complete. An offset in one text
 * may thus be inside a character of the other. */
static size_t character_from(const struct sw_str *text, size_t at)
{
    while (at < text->len && ((unsigned char)text->ptr[at] & 0xC0) == 0x80) {
        at++;
    }
    return at;
}

static bool ends_with(const char *text, size_t len, const char *ending)
{
    const size_t n = strlen(ending);
    return len >= n && memcmp(text + len - n, ending, n) == 0;
}

/* Length of the text that later ids do not change. They may complete a trailing U+FFFD to a
 * character, and the clean-up may then remove a space near the end. */
static size_t settled_bytes(const struct sw_tokenizer *tokenizer, const struct sw_str *text)
{
    /* what the first bytes of a match become, the longest first; see sw_clean_up_spaces */
    static const char *const begun[] = {" n '", " n'", " n ", " 'v", " 'r", " n", " '", " ", "'"};
    size_t n = text->len;
    while (ends_with(sw_str_text(text), n, "\xEF\xBF\xBD")) {
        n -= 3;
    }
    for (size_t i = 0; i < SW_LEN(begun) && tokenizer->cleans_up; ++i) {
        if (ends_with(sw_str_text(text), n, begun[i])) {
            return n - strlen(begun[i]);
        }
    }
    return n;
}

/* Appends the text that ids add to that of the prompt. *settled: the bytes of it that later ids do
 * not change */
static sw_status decode_after(const struct sw_tokenizer *tokenizer, const int32_t *prompt,
                              int64_t n_prompt, const int32_t *ids, int64_t n_ids,
                              struct sw_str *out, size_t *settled)
{
    struct sw_ids all = {0};
    struct sw_str before = {0}, whole = {0};
    sw_status st;
    for (int64_t i = 0; i < n_prompt + n_ids; i++) {
        SW_TRY_OR(done, sw_ids_push(&all, i < n_prompt ? prompt[i] : ids[i - n_prompt]));
    }
    SW_TRY_OR(done, sw_tokenizer_decode_str(tokenizer, all.ptr, n_prompt, true, &before));
    SW_TRY_OR(done, sw_tokenizer_decode_str(tokenizer, all.ptr, all.len, true, &whole));
    const size_t at = character_from(&whole, before.len), n = settled_bytes(tokenizer, &whole);
    *settled = n > at ? n - at : 0;
    if (whole.len > at) {
        sw_str_append(out, whole.ptr + at, whole.len - at);
    }
    st = out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a text") : SW_OK;
done:
    sw_ids_fini(&all);
    sw_str_fini(&before);
    sw_str_fini(&whole);
    return st;
}

sw_status sw_tokenizer_decode_behind(const struct sw_tokenizer *tokenizer, const int32_t *prompt,
                                     int64_t n_prompt, const int32_t *ids, int64_t n_ids,
                                     struct sw_str *out)
{
    size_t settled;
    return decode_after(tokenizer, prompt, n_prompt, ids, n_ids, out, &settled);
}

sw_status sw_text_write(struct sw_text_writer *writer, const int32_t *ids, int64_t n_ids, bool last)
{
    struct sw_str text = {0};
    size_t n = 0;
    sw_status st =
        decode_after(writer->tokenizer, writer->prompt, writer->n_prompt, ids, n_ids, &text, &n);
    n = last ? text.len : n;
    const size_t done = character_from(&text, writer->n_written);
    if (st >= 0 && n > done) {
        const bool good =
            fwrite(text.ptr + done, 1, n - done, writer->to) == n - done && !fflush(writer->to);
        st = good ? SW_OK : SW_FAIL(SW_E_IO, "the text cannot be written");
        writer->n_written = n;
    }
    sw_str_fini(&text);
    return st;
}

int64_t sw_tokenizer_vocab_size(const struct sw_tokenizer *tokenizer)
{
    return tokenizer->vocab_size;
}

int32_t sw_tokenizer_eos(const struct sw_tokenizer *tokenizer)
{
    return tokenizer->eos;
}

int32_t sw_tokenizer_bos(const struct sw_tokenizer *tokenizer)
{
    return tokenizer->bos;
}

int32_t sw_tokenizer_pad(const struct sw_tokenizer *tokenizer)
{
    return tokenizer->pad;
}

int32_t sw_tokenizer_padding(const struct sw_tokenizer *tokenizer)
{
    return !tokenizer            ? 0
           : tokenizer->pad >= 0 ? tokenizer->pad
                                 : (int32_t)sw_max_i64(tokenizer->eos, 0);
}

const char *sw_tokenizer_token(const struct sw_tokenizer *tokenizer, int32_t id, size_t *out_len)
{
    return tokenizer->ops->token(tokenizer, id, out_len);
}

int32_t sw_tokenizer_find(const struct sw_tokenizer *tokenizer, const char *token)
{
    return tokenizer->ops->find(tokenizer, token, strlen(token));
}

const char *sw_tokenizer_kind(const struct sw_tokenizer *tokenizer)
{
    return tokenizer->kind;
}

sw_status sw_tokenizer_save(const struct sw_tokenizer *tokenizer, const char *folder)
{
    for (int i = 0; i < tokenizer->n_files; ++i) {
        sw_status st;
        struct sw_str path = {0};
        sw_str_printf(&path, "%s/%s", folder, tokenizer->files[i].name);
        st = path.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a path")
                         : sw_file_write_atomic(path.ptr, tokenizer->files[i].data,
                                                tokenizer->files[i].len);
        sw_str_fini(&path);
        SW_TRY(st);
    }
    return SW_OK;
}
