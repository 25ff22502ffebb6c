// SPDX-License-Identifier: Apache-2.0
// Reads the files of a task. Each record becomes one or more rows, cut to the length of a row.
#include "data/task_rows.h"

#include "text/text.h"

#include <string.h>

void sw_task_rows_fini(struct sw_task_rows *rows)
{
    sw_ids_fini(&rows->ids);
    sw_ids_fini(&rows->labels);
    sw_free(rows->numbers);
    sw_free(rows->rows);
    sw_images_fini(&rows->images);
    sw_ids_fini(&rows->begins);
    sw_ids_fini(&rows->ends);
    sw_str_fini(&rows->texts);
    sw_free(rows->questions);
    sw_free(rows->answers);
    sw_free(rows->sides);
    *rows = (struct sw_task_rows){0};
}

void sw_task_reading_fini(struct sw_task_reading *in)
{
    sw_str_fini(&in->languages[0]);
    sw_str_fini(&in->languages[1]);
    sw_str_fini(&in->first_long);
    sw_str_fini(&in->joined);
    sw_chat_row_fini(&in->chat_row);
    sw_labels_fini(&in->labels);
}

bool sw_task_grow(void *list, int64_t n, int64_t *cap, size_t size)
{
    void **at = list;
    if (n == *cap) {
        const int64_t more = *cap ? 2 * *cap : 64;
        void *grown = sw_realloc("rows", *at, (size_t)more * size);
        if (!grown) {
            return false;
        }
        *at = grown;
        *cap = more;
    }
    return true;
}

sw_status sw_task_add_row(struct sw_task_reading *in, const struct sw_task_row *row)
{
    struct sw_task_rows *r = in->rows;
    SW_TRY_ALLOC(sw_task_grow(&r->rows, r->n, &r->cap, sizeof *r->rows) ? r : NULL, "the rows");
    r->rows[r->n++] = *row;
    return SW_OK;
}

static sw_status add_number(struct sw_task_reading *in, float number)
{
    struct sw_task_rows *r = in->rows;
    SW_TRY_ALLOC(
        sw_task_grow(&r->numbers, r->n_numbers, &r->numbers_cap, sizeof *r->numbers) ? r : NULL,
        "the labels");
    r->numbers[r->n_numbers++] = number;
    return SW_OK;
}

/* ---- tokens ---- */

/* Number of special tokens in a template, which reduce the room for texts. */
static int64_t n_special(const struct sw_template *template)
{
    int64_t n = 0;
    for (int i = 0; i < template->n_items; i++) {
        n += template->items[i].part == SW_TEMPLATE_SPECIAL;
    }
    return n;
}

static sw_status check_ids(const struct sw_task_reading *in, const char *name, const int32_t *ids,
                           int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] >= in->vocab_size) {
            return SW_FAIL(SW_E_FORMAT,
                           "%s: the tokenizer gives the id %d, wanted below the vocabulary's %lld",
                           name, ids[i], (long long)in->vocab_size);
        }
    }
    return SW_OK;
}

/* sw_tokenizer_encode, sw_tokenizer_encode_target or sw_tokenizer_encode_word. */
typedef sw_status (*encode_fn)(struct sw_tokenizer *tokenizer, const char *text, size_t len,
                               bool add_special, struct sw_ids *ids);

/* Appends the ids of a text. Returns their offset and count. */
static sw_status encode_by(encode_fn fn, struct sw_task_reading *in, const char *name,
                           const char *text, size_t len, int64_t *first, int64_t *n)
{
    struct sw_ids *ids = &in->rows->ids;
    *first = ids->len;
    const sw_status st = fn(in->options->tokenizer, text, len, false, ids);
    if (st < 0) {
        return sw_fail_prefix(st, "%s", name);
    }
    *n = ids->len - *first;
    return check_ids(in, name, ids->ptr + *first, *n);
}

static sw_status encode(struct sw_task_reading *in, const char *name, const char *text, size_t len,
                        int64_t *first, int64_t *n)
{
    return encode_by(sw_tokenizer_encode, in, name, text, len, first, n);
}

static sw_status encode_field(struct sw_task_reading *in, const struct sw_json_doc *doc,
                              const struct sw_json *text, int64_t *first, int64_t *n)
{
    return encode(in, sw_json_name(doc), text->string, text->string_len, first, n);
}

/* ---- pieces of texts: masks and spans ---- */

static const char *const usual_text[] = {"text", "sentence", NULL};

static struct sw_field_wanted text_field(const struct sw_task_reading *in)
{
    return (struct sw_field_wanted){in->columns.text[0], usual_text, "--text-column"};
}

static sw_status add_pieces(struct sw_task_reading *in, const struct sw_json_doc *doc,
                            const struct sw_json *record)
{
    const struct sw_json *text;
    const struct sw_field_wanted wanted = text_field(in);
    const struct sw_task_form *form = in->form;
    const int64_t room = form->task->rows == SW_ROWS_SPANS ? sw_span_most(form->T, form->U)
                                                           : form->T - n_special(&form->single);
    int64_t first, n;
    SW_TRY(sw_record_get_text(doc, record, &wanted, &text));
    SW_TRY(encode_field(in, doc, text, &first, &n));
    in->rows->n_dropped += n == 0;
    in->rows->n_cut += n > room;
    for (int64_t at = 0; at < n; at += room) {
        const struct sw_task_row row = {
            .first = first + at, .n = sw_min_i64(room, n - at), .n_second = -1};
        SW_TRY(sw_task_add_row(in, &row));
    }
    return SW_OK;
}

/* ---- one or two texts ---- */

/* Well-known field names of two texts, or of one. */
static const char *const usual_pairs[][2] = {
    {"sentence1", "sentence2"}, {"premise", "hypothesis"},  {"question1", "question2"},
    {"question", "sentence"},   {"#1 String", "#2 String"}, {"text", "text_pair"},
    {"first", "second"},        {"sentence", NULL},         {"text", NULL}};

static const struct sw_json *field(const struct sw_json *record, const char *name)
{
    return name ? sw_json_get(record, name) : NULL;
}

/* Finds the texts of a record. *second NULL: there is only one. */
static sw_status find_texts(const struct sw_task_reading *in, const struct sw_json_doc *doc,
                            const struct sw_json *record, const struct sw_json **first,
                            const struct sw_json **second)
{
    static const char *const usual[] = {"text",    "sentence",  "sentence1",
                                        "premise", "question1", NULL};
    struct sw_field_wanted a = {in->columns.text[0], usual, "--text-column"};
    struct sw_field_wanted b = {in->columns.text[1], usual, "--text-column"};
    for (size_t i = 0; i < SW_LEN(usual_pairs) && !a.given; i++) {
        const char *const *pair = usual_pairs[i];
        if (field(record, pair[0]) && (!pair[1] || field(record, pair[1]))) {
            a.given = pair[0];
            b.given = pair[1];
        }
    }
    *second = NULL;
    SW_TRY(sw_record_get_text(doc, record, &a, first));
    return b.given ? sw_record_get_text(doc, record, &b, second) : SW_OK;
}

/* Drops `by` tokens of a text, at the side that the tokenizer sets. */
static void cut(const struct sw_task_reading *in, int64_t by, int64_t *first, int64_t *n)
{
    *first += in->options->tokenizer->cut_left ? by : 0;
    *n -= by;
}

/* Cuts a single text to the room in a row. */
static void cut_text(struct sw_task_reading *in, int64_t room, struct sw_task_row *row)
{
    const int64_t by = sw_max_i64(row->n - room, 0);
    in->rows->n_cut += by > 0;
    cut(in, by, &row->first, &row->n);
}

/* Cuts two texts as longest_first of the library tokenizers does. The longer one is cut if that is
 * enough. Otherwise each gets half of the room. An odd token goes to the one that was longer, or to
 * the second. */
static void cut_pair(struct sw_task_reading *in, int64_t room, struct sw_task_row *row)
{
    const int64_t n = row->n, n_second = row->n_second;
    const bool swapped = n > n_second;
    int64_t less = sw_min_i64(n, n_second), more = sw_max_i64(n, n_second);
    if (less + more > room) {
        more = sw_max_i64(less, room - less);
    }
    if (less + more > room) {
        less = room / 2;
        more = room - less;
    }
    const int64_t a = swapped ? more : less, b = swapped ? less : more;
    in->rows->n_cut += a + b < n + n_second;
    cut(in, n - a, &row->first, &row->n);
    cut(in, n_second - b, &row->second, &row->n_second);
}

static sw_status encode_texts(struct sw_task_reading *in, const struct sw_json_doc *doc,
                              const struct sw_json *record, struct sw_task_row *row)
{
    const struct sw_json *first, *second;
    const struct sw_task_form *form = in->form;
    SW_TRY(find_texts(in, doc, record, &first, &second));
    SW_TRY(encode_field(in, doc, first, &row->first, &row->n));
    row->n_second = -1;
    if (second) {
        if (form->T < form->pair.n_items) {
            return SW_FAIL(SW_E_CONFIG, "%s: two texts want rows of %d tokens at least, not %lld",
                           sw_json_name(doc), form->pair.n_items, (long long)form->T);
        }
        SW_TRY(encode_field(in, doc, second, &row->second, &row->n_second));
        cut_pair(in, form->T - n_special(&form->pair), row);
    } else {
        cut_text(in, form->T - n_special(&form->single), row);
    }
    return SW_OK;
}

/* Two texts that belong together, each of which becomes a row. */
static sw_status add_contrast(struct sw_task_reading *in, const struct sw_json_doc *doc,
                              const struct sw_json *record)
{
    static const char *const firsts[] = {"anchor", "query", "question", "sentence1", NULL};
    static const char *const seconds[] = {"positive", "answer", "document", "sentence2", NULL};
    const struct sw_field_wanted a = {in->columns.text[0], firsts, "--text-column"};
    const struct sw_field_wanted b = {in->columns.text[1], seconds, "--text-column"};
    const int64_t room = in->form->T - n_special(&in->form->single);
    const struct sw_json *texts[2];
    struct sw_task_row row = {0};
    if (sw_json_get(record, "negative")) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: \"negative\": other pairs of the batch are the negatives; those of "
                       "files are not built in this version",
                       sw_json_name(doc));
    }
    SW_TRY(sw_record_get_text(doc, record, &a, &texts[0]));
    SW_TRY(sw_record_get_text(doc, record, &b, &texts[1]));
    SW_TRY(encode_field(in, doc, texts[0], &row.first, &row.n));
    SW_TRY(encode_field(in, doc, texts[1], &row.second, &row.n_second));
    in->rows->n_cut += row.n > room || row.n_second > room;
    cut(in, sw_max_i64(row.n - room, 0), &row.first, &row.n);
    cut(in, sw_max_i64(row.n_second - room, 0), &row.second, &row.n_second);
    return sw_task_add_row(in, &row);
}

static sw_status add_bit(struct sw_task_reading *in, const struct sw_json_doc *doc,
                         const struct sw_json *value, int64_t i)
{
    float number;
    SW_TRY(sw_number_of(doc, value, &number));
    if (!(number >= 0 && number <= 1)) {
        return SW_FAIL(SW_E_FORMAT, "%s: label %lld is %g, wanted 0 to 1", sw_json_name(doc),
                       (long long)i, (double)number);
    }
    return add_number(in, number);
}

/* Adds multi-label classes: a list with a number per class, or a list of the classes that apply.
 * The latter takes no memory for the others. */
static sw_status add_bits(struct sw_task_reading *in, const struct sw_json_doc *doc,
                          const struct sw_json *value, struct sw_task_row *row)
{
    const int64_t n = in->form->n_labels;
    const struct sw_json *one = value->first;
    const bool numbers = one && one->type != SW_JSON_STRING;
    if (value->type != SW_JSON_ARRAY || (numbers && value->n_children != n)) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: \"%s\" is %s of %lld, wanted a list: %lld numbers, or names of classes",
                       sw_json_name(doc), value->key, sw_json_type_name(value->type),
                       (long long)value->n_children, (long long)n);
    }
    if (!numbers) {
        row->numbers = in->rows->labels.len;
        row->n_classes = value->n_children;
    }
    for (int64_t i = 0; one; one = one->next, i++) {
        int32_t label;
        if (numbers) {
            SW_TRY(add_bit(in, doc, one, i));
        } else {
            SW_TRY(sw_label_of(&in->labels, doc, one, &label));
            SW_TRY(sw_ids_push(&in->rows->labels, label));
        }
    }
    return SW_OK;
}

static sw_status add_values(struct sw_task_reading *in, const struct sw_json_doc *doc,
                            const struct sw_json *value)
{
    const int64_t n = in->form->n_labels;
    const bool list = value->type == SW_JSON_ARRAY;
    float number;
    if (list ? value->n_children != n : n != 1) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" has %lld numbers, wanted %lld", sw_json_name(doc),
                       value->key, (long long)(list ? value->n_children : 1), (long long)n);
    }
    for (const struct sw_json *one = list ? value->first : value; one;
         one = list ? one->next : NULL) {
        SW_TRY(sw_number_of(doc, one, &number));
        SW_TRY(add_number(in, number));
    }
    return SW_OK;
}

static sw_status add_labelled(struct sw_task_reading *in, const struct sw_json_doc *doc,
                              const struct sw_json *record)
{
    const struct sw_json *value;
    struct sw_task_row row = {.numbers = in->rows->n_numbers, .n_classes = -1};
    const struct sw_field_wanted wanted = sw_label_field(in->form->task, &in->columns);
    SW_TRY(sw_record_get(doc, record, &wanted, &value));
    SW_TRY(encode_texts(in, doc, record, &row));
    switch (in->form->task->losses[0].kind) {
    case SW_LOSS_BITS:
        SW_TRY(add_bits(in, doc, value, &row));
        break;
    case SW_LOSS_SQUARES:
        SW_TRY(add_values(in, doc, value));
        break;
    default:
        SW_TRY(sw_label_of(&in->labels, doc, value, &row.label));
    }
    return sw_task_add_row(in, &row);
}

/* Whether the second text follows is drawn per sample, unless the record says it. */
static sw_status add_sentences(struct sw_task_reading *in, const struct sw_json_doc *doc,
                               const struct sw_json *record)
{
    struct sw_task_row row = {.label = -1};
    const struct sw_field_wanted wanted = sw_label_field(in->form->task, &in->columns);
    const struct sw_json *label = sw_record_find(record, &wanted);
    const struct sw_labels two = {.n = 2};
    SW_TRY(encode_texts(in, doc, record, &row));
    if (row.n_second < 0) {
        return SW_FAIL(
            SW_E_FORMAT,
            "%s: one text, wanted two: \"sentence1\" and \"sentence2\", or --text-column",
            sw_json_name(doc));
    }
    if (label) {
        SW_TRY(sw_label_of(&two, doc, label, &row.label));
    }
    return sw_task_add_row(in, &row);
}

/* ---- text to text ---- */

/* Learns source and target of {"translation": {"en": .., "ro": ..}}. The first record's languages,
 * in its order, apply to all. */
static sw_status learn_languages(struct sw_task_reading *in, const struct sw_json_doc *doc,
                                 const struct sw_json *both)
{
    if (in->knows_languages) {
        return SW_OK;
    }
    if (both->n_children != 2) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: \"translation\" has %lld languages, wanted two, or --text-column and "
                       "--label-column",
                       sw_json_name(doc), (long long)both->n_children);
    }
    sw_str_puts(&in->languages[0], both->first->key);
    sw_str_puts(&in->languages[1], both->last->key);
    in->knows_languages = true;
    return in->languages[0].failed || in->languages[1].failed
               ? SW_FAIL(SW_E_NOMEM, "out of host memory for the names of languages")
               : SW_OK;
}

static sw_status find_target(struct sw_task_reading *in, const struct sw_json_doc *doc,
                             const struct sw_json *record, const struct sw_json **source,
                             const struct sw_json **target)
{
    static const char *const sources[] = {"document", "article", "source", "text", NULL};
    static const char *const targets[] = {"summary", "highlights", "target", NULL};
    struct sw_field_wanted a = {in->columns.text[0], sources, "--text-column"};
    struct sw_field_wanted b = {in->columns.label, targets, "--label-column"};
    const struct sw_json *both = sw_json_get(record, "translation");
    if (both && both->type == SW_JSON_OBJECT) {
        record = both;
        if (!a.given && !b.given) {
            SW_TRY(learn_languages(in, doc, both));
            a.given = sw_str_text(&in->languages[0]);
            b.given = sw_str_text(&in->languages[1]);
        }
    }
    SW_TRY(sw_record_get_text(doc, record, &a, source));
    return sw_record_get_text(doc, record, &b, target);
}

static sw_status add_target(struct sw_task_reading *in, const struct sw_json_doc *doc,
                            const struct sw_json *record)
{
    const struct sw_json *source, *target;
    const char *prefix = in->options->task->source_prefix;
    const struct sw_task_form *form = in->form;
    struct sw_task_row row = {0};
    struct sw_str text = {0};
    SW_TRY(find_target(in, doc, record, &source, &target));
    sw_str_puts(&text, prefix ? prefix : "");
    sw_str_append(&text, source->string, source->string_len);
    const sw_status st =
        text.failed
            ? SW_FAIL(SW_E_NOMEM, "%s: out of host memory for a text", sw_json_name(doc))
            : encode(in, sw_json_name(doc), sw_str_text(&text), text.len, &row.first, &row.n);
    sw_str_fini(&text);
    SW_TRY(st);
    SW_TRY(encode_by(sw_tokenizer_encode_target, in, sw_json_name(doc), target->string,
                     target->string_len, &row.second, &row.n_second));
    cut_text(in, form->T - n_special(&form->single), &row);
    const int64_t wanted = row.n_second + n_special(&form->target);
    if (wanted > form->U) {
        if (in->n_long++ == 0) {
            sw_str_printf(&in->first_long, "%s", sw_json_name(doc));
        }
        in->longest = sw_max_i64(in->longest, wanted);
        return SW_OK;
    }
    return sw_task_add_row(in, &row);
}

/* ---- words ---- */

static sw_status get_list(const struct sw_json_doc *doc, const struct sw_json *record,
                          const struct sw_field_wanted *wanted, const struct sw_json **out)
{
    SW_TRY(sw_record_get(doc, record, wanted, out));
    if ((*out)->type != SW_JSON_ARRAY) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" is %s, wanted a list", sw_json_name(doc),
                       (*out)->key, sw_json_type_name((*out)->type));
    }
    return SW_OK;
}

/* Adds a word. Only its first token has the label. */
static sw_status add_word(struct sw_task_reading *in, const struct sw_json_doc *doc,
                          const struct sw_json *word, const struct sw_json *tag)
{
    int64_t first, n;
    int32_t label;
    if (word->type != SW_JSON_STRING) {
        return SW_FAIL(SW_E_FORMAT, "%s: a word is %s, wanted a string", sw_json_name(doc),
                       sw_json_type_name(word->type));
    }
    SW_TRY(encode_by(sw_tokenizer_encode_word, in, sw_json_name(doc), word->string,
                     word->string_len, &first, &n));
    SW_TRY(sw_label_of(&in->labels, doc, tag, &label));
    for (int64_t i = 0; i < n; i++) {
        SW_TRY(sw_ids_push(&in->rows->labels, i == 0 ? label : SW_IGNORED_LABEL));
    }
    return SW_OK;
}

static sw_status add_words(struct sw_task_reading *in, const struct sw_json_doc *doc,
                           const struct sw_json *record)
{
    static const char *const usual[] = {"tokens", "words", NULL};
    const struct sw_field_wanted of_words = {in->columns.text[0], usual, "--text-column"};
    const struct sw_field_wanted of_tags = sw_label_field(in->form->task, &in->columns);
    const struct sw_json *words, *tags;
    struct sw_task_row row = {.first = in->rows->ids.len, .second = in->rows->labels.len};
    SW_TRY(get_list(doc, record, &of_words, &words));
    SW_TRY(get_list(doc, record, &of_tags, &tags));
    if (words->n_children != tags->n_children) {
        return SW_FAIL(SW_E_FORMAT, "%s: %lld words and %lld labels", sw_json_name(doc),
                       (long long)words->n_children, (long long)tags->n_children);
    }
    const struct sw_json *tag = tags->first;
    for (const struct sw_json *word = words->first; word; word = word->next, tag = tag->next) {
        SW_TRY(add_word(in, doc, word, tag));
    }
    const int64_t first = row.first;
    row.n = in->rows->ids.len - first;
    cut_text(in, in->form->T - n_special(&in->form->single), &row);
    row.second += row.first - first;
    row.n_second = row.n;
    return sw_task_add_row(in, &row);
}

/* ---- questions ---- */

static sw_status get_string(const struct sw_json_doc *doc, const struct sw_json *record,
                            const char *name, const struct sw_json **out)
{
    const char *const usual[] = {name, NULL};
    const struct sw_field_wanted wanted = {NULL, usual, "no flag"};
    *out = sw_record_find(record, &wanted);
    return *out && (*out)->type == SW_JSON_STRING
               ? SW_OK
               : SW_FAIL(SW_E_FORMAT, "%s: \"%s\" is %s, wanted a string", sw_json_name(doc), name,
                         *out ? sw_json_type_name((*out)->type) : "absent");
}

static sw_status keep_text(struct sw_task_reading *in, const struct sw_json *text, int64_t *at,
                           int64_t *len)
{
    struct sw_str *texts = &in->rows->texts;
    *at = (int64_t)texts->len;
    *len = (int64_t)text->string_len;
    sw_str_append(texts, text->string, text->string_len);
    return texts->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for texts") : SW_OK;
}

/* Reads the tokens of a context, unless it is that of the previous question. */
static sw_status read_context(struct sw_task_reading *in, const struct sw_json_doc *doc,
                              const struct sw_json *context, struct sw_task_question *q)
{
    struct sw_task_rows *r = in->rows;
    const struct sw_task_question *last =
        r->n_questions > 0 ? &r->questions[r->n_questions - 1] : NULL;
    if (last && last->text_len == (int64_t)context->string_len &&
        memcmp(sw_str_text(&r->texts) + last->text, context->string, context->string_len) == 0) {
        q->text = last->text;
        q->text_len = last->text_len;
        q->tokens = last->tokens;
        q->n_tokens = last->n_tokens;
        return SW_OK;
    }
    SW_TRY(keep_text(in, context, &q->text, &q->text_len));
    while (r->begins.len < r->ids.len) { /* parallel to ids */
        SW_TRY(sw_ids_push(&r->begins, 0));
        SW_TRY(sw_ids_push(&r->ends, 0));
    }
    q->tokens = r->ids.len;
    struct sw_tokenizer *tokenizer = in->options->tokenizer;
    const sw_status st = tokenizer->ops->special->encode_offsets(
        tokenizer, context->string, context->string_len, &r->ids, &r->begins, &r->ends);
    if (st < 0) {
        return sw_fail_prefix(st, "%s", sw_json_name(doc));
    }
    q->n_tokens = r->ids.len - q->tokens;
    return check_ids(in, sw_json_name(doc), r->ids.ptr + q->tokens, q->n_tokens);
}

/* Bytes of the first n characters; -1: there are fewer. */
static int64_t bytes_of(const struct sw_json *text, int64_t n)
{
    size_t pos = 0;
    for (int64_t i = 0; i < n; i++) {
        if (pos >= text->string_len) {
            return -1;
        }
        sw_utf8_step(text->string, text->string_len, &pos);
    }
    return (int64_t)pos;
}

/* Checks that an answer is in its context at the stated position. */
static sw_status check_place(const struct sw_json *context, const struct sw_json *text,
                             const struct sw_json *start)
{
    const int64_t at = start->integer >= 0 ? bytes_of(context, start->integer) : -1;
    if (text->string_len == 0) {
        return SW_FAIL(SW_E_FORMAT, "the text of an answer is empty; a question that has no answer "
                                    "has empty lists");
    }
    if (at >= 0 && at + (int64_t)text->string_len <= (int64_t)context->string_len &&
        memcmp(context->string + at, text->string, text->string_len) == 0) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_FORMAT, "the answer \"%.60s\" is not in its context at %lld", text->string,
                   (long long)start->integer);
}

static sw_status check_answer(const struct sw_json_doc *doc, const struct sw_json *record,
                              const struct sw_json *text, const struct sw_json *start)
{
    const struct sw_json *id = sw_json_get(record, "id");
    if (text->type != SW_JSON_STRING || start->type != SW_JSON_INT) {
        const bool is_text = text->type != SW_JSON_STRING;
        return SW_FAIL(SW_E_FORMAT, "%s: in \"answers\" a \"%s\" is %s, wanted %s",
                       sw_json_name(doc), is_text ? "text" : "answer_start",
                       sw_json_type_name(is_text ? text->type : start->type),
                       sw_json_type_name(is_text ? SW_JSON_STRING : SW_JSON_INT));
    }
    const sw_status st = check_place(sw_json_get(record, "context"), text, start);
    return st >= 0 ? SW_OK
           : id && id->type == SW_JSON_STRING
               ? sw_fail_prefix(st, "%s: question \"%.60s\"", sw_json_name(doc), id->string)
               : sw_fail_prefix(st, "%s", sw_json_name(doc));
}

/* Reads the wanted answers. Returns the characters of the first one; -1: there is none. */
static sw_status read_answers(struct sw_task_reading *in, const struct sw_json_doc *doc,
                              const struct sw_json *record, struct sw_task_question *q,
                              int32_t out[2])
{
    struct sw_task_rows *r = in->rows;
    const struct sw_json *answers = sw_json_get(record, "answers");
    const struct sw_json *text = sw_json_get(answers, "text");
    const struct sw_json *start = sw_json_get(answers, "answer_start");
    q->answers = r->n_answers;
    out[0] = out[1] = -1;
    if (!text || !start || text->type != SW_JSON_ARRAY || start->type != SW_JSON_ARRAY ||
        text->n_children != start->n_children) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: \"answers\": wanted {\"text\": [..], \"answer_start\": [..]}, as many "
                       "of both",
                       sw_json_name(doc));
    }
    start = start->first;
    for (text = text->first; text; text = text->next, start = start->next) {
        SW_TRY(check_answer(doc, record, text, start));
        struct sw_task_answer answer;
        SW_TRY(keep_text(in, text, &answer.text, &answer.len));
        SW_TRY_ALLOC(sw_task_grow(&r->answers, r->n_answers, &r->answers_cap, sizeof answer) ? r
                                                                                             : NULL,
                     "answers");
        r->answers[r->n_answers++] = answer;
        if (out[0] < 0) {
            out[0] = (int32_t)start->integer;
            out[1] = out[0] + (int32_t)sw_utf8_count(text->string, text->string_len);
        }
    }
    q->n_answers = r->n_answers - q->answers;
    return SW_OK;
}

static sw_status add_windows(struct sw_task_reading *in, const struct sw_json_doc *doc,
                             struct sw_task_question *q, struct sw_task_row row,
                             const int32_t answer[2])
{
    struct sw_task_rows *r = in->rows;
    const int64_t room = in->form->T - n_special(&in->form->pair) - row.n;
    if (room <= in->form->stride) {
        return SW_FAIL(SW_E_CONFIG,
                       "%s: beside the question's %lld tokens a row of %lld has room for %lld of "
                       "the context; wanted more than the %lld that windows share",
                       sw_json_name(doc), (long long)row.n, (long long)in->form->T, (long long)room,
                       (long long)in->form->stride);
    }
    q->first_row = r->n;
    q->n_rows = sw_window_count(q->n_tokens, room, in->form->stride);
    for (int64_t i = 0; i < q->n_rows; i++) {
        int64_t first, n, a, b;
        const struct sw_context context = {r->begins.ptr + q->tokens, r->ends.ptr + q->tokens,
                                           q->n_tokens};
        sw_window_at(q->n_tokens, room, in->form->stride, i, &first, &n);
        const bool there =
            answer[0] >= 0 && sw_answer_find(&context, first, n, answer[0], answer[1], &a, &b);
        row.second = q->tokens + first;
        row.n_second = n;
        row.label = there ? (int32_t)(a - first) : -1;
        row.label_end = there ? (int32_t)(b - first) : -1;
        row.question = (int32_t)r->n_questions;
        SW_TRY(sw_task_add_row(in, &row));
    }
    return SW_OK;
}

static sw_status add_question(struct sw_task_reading *in, const struct sw_json_doc *doc,
                              const struct sw_json *record)
{
    struct sw_task_rows *r = in->rows;
    struct sw_task_question q = {.id = -1};
    struct sw_task_row row = {0};
    const struct sw_json *question, *context, *id = sw_json_get(record, "id");
    int32_t answer[2];
    size_t skip = 0;
    SW_TRY(get_string(doc, record, "question", &question));
    SW_TRY(get_string(doc, record, "context", &context));
    for (size_t pos = 0; pos < question->string_len; skip = pos) { /* as in the published script */
        if (!sw_char_is_space(sw_utf8_step(question->string, question->string_len, &pos))) {
            break;
        }
    }
    SW_TRY(read_context(in, doc, context, &q));
    SW_TRY(encode(in, sw_json_name(doc), question->string + skip, question->string_len - skip,
                  &row.first, &row.n));
    SW_TRY(read_answers(in, doc, record, &q, answer));
    if (id && id->type == SW_JSON_STRING) {
        SW_TRY(keep_text(in, id, &q.id, &q.id_len));
    }
    SW_TRY(add_windows(in, doc, &q, row, answer));
    SW_TRY_ALLOC(sw_task_grow(&r->questions, r->n_questions, &r->questions_cap, sizeof q) ? r
                                                                                          : NULL,
                 "questions");
    r->questions[r->n_questions++] = q;
    return SW_OK;
}

/* ---- files ---- */

typedef sw_status (*add_fn)(struct sw_task_reading *in, const struct sw_json_doc *doc,
                            const struct sw_json *record);
static const add_fn adders[] = {
    [SW_ROWS_MASKED] = add_pieces,     [SW_ROWS_PAIRS] = add_sentences,
    [SW_ROWS_SPANS] = add_pieces,      [SW_ROWS_TARGETS] = add_target,
    [SW_ROWS_LABELS] = add_labelled,   [SW_ROWS_WORDS] = add_words,
    [SW_ROWS_ANSWERS] = add_question,  [SW_ROWS_PREFERENCES] = sw_task_add_preference,
    [SW_ROWS_CONTRAST] = add_contrast,
};

static sw_status add_record(void *ctx, const struct sw_json_doc *doc, const struct sw_json *record)
{
    struct sw_task_reading *in = ctx;
    in->rows->n_documents++;
    return adders[in->form->task->rows](in, doc, record);
}

static sw_status add_images(struct sw_task_reading *in, const char *path)
{
    const struct sw_image_form form = sw_task_image_form(in->form);
    if (in->form->task->losses[0].kind == SW_LOSS_SQUARES && sw_is_folder(path)) {
        return SW_FAIL(SW_E_CONFIG,
                       "%s: a folder of pictures has classes, and the task \"%s\" numbers", path,
                       in->form->task->name);
    }
    SW_TRY(sw_images_add(&in->rows->images, path, &form));
    in->rows->n = in->rows->n_documents = in->rows->images.n;
    return SW_OK;
}

sw_status sw_task_read_file(struct sw_task_reading *in, const char *path)
{
    if (in->form->task->rows == SW_ROWS_IMAGES) {
        return add_images(in, path);
    }
    return in->options->as_text
               ? sw_records_read_text(path, add_record, in)
               : sw_records_read(path, sw_columns_are_numbered(&in->columns), add_record, in);
}

sw_status sw_task_read_end(struct sw_task_reading *in)
{
    sw_warn_merged(in->form->task->name, in->n_merged, in->n_responses, "responses");
    if (in->n_long > 0) {
        return SW_FAIL(
            SW_E_CONFIG,
            "%s: a target is longer than the decoder's %lld tokens; so are %lld of %lld, "
            "the longest has %lld (--target-len)",
            sw_str_text(&in->first_long), (long long)in->form->U, (long long)in->n_long,
            (long long)in->rows->n_documents, (long long)in->longest);
    }
    return sw_images_end(&in->rows->images);
}
