// SPDX-License-Identifier: Apache-2.0
// Records: JSON lines are read line by line (source.c); tables and JSON are in memory as a whole. A
// new format is a row of `formats`.
#include "data/record.h"

#include "data/source.h"
#include "text/text.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

struct parsing {
    const char *path, *text;
    size_t len;
    bool numbered;
    sw_record_fn fn;
    void *ctx;
    int64_t n; /* records so far */
};

static sw_status fail_memory(const char *path)
{
    return SW_FAIL(SW_E_NOMEM, "%s: out of host memory for a record", path);
}

/* ---- tables ---- */

enum { MOST_COLUMNS = 4096 };

/* Fields of one row, back to back, each NUL-terminated. */
struct row {
    struct sw_str text;
    size_t *begins; /* [cap] */
    int64_t n, cap;
};

struct table {
    struct parsing *in;
    char separator;
    bool quotes; /* fields may be quoted */
    size_t at;
    int64_t line; /* line of `at`, from 1 */
    struct row names, row;
};

static void row_fini(struct row *row)
{
    sw_str_fini(&row->text);
    sw_free(row->begins);
}

static const char *field_of(const struct row *row, int64_t i)
{
    return sw_str_text(&row->text) + row->begins[i];
}

static sw_status begin_field(struct table *t, struct row *row)
{
    if (row->n == MOST_COLUMNS) {
        return SW_FAIL(SW_E_FORMAT, "%s line %lld: more than %d columns", t->in->path,
                       (long long)t->line, MOST_COLUMNS);
    }
    if (row->n == row->cap) {
        const int64_t cap = row->cap ? 2 * row->cap : 16;
        size_t *begins = sw_realloc("records", row->begins, (size_t)cap * sizeof *begins);
        SW_TRY_ALLOC(begins, "the columns of a table");
        row->begins = begins;
        row->cap = cap;
    }
    row->begins[row->n++] = row->text.len;
    return SW_OK;
}

/* Reads a quoted field; a doubled quote is one quote. t->at is after the opening quote. */
static sw_status read_quoted(struct table *t, struct row *row)
{
    const char *text = t->in->text;
    const int64_t first = t->line;
    while (t->at < t->in->len) {
        const char c = text[t->at++];
        const bool quote = c == '"';
        if (quote && (t->at == t->in->len || text[t->at] != '"')) {
            return SW_OK;
        }
        t->at += quote;
        t->line += c == '\n';
        sw_str_putc(&row->text, c);
    }
    return SW_FAIL(SW_E_FORMAT, "%s line %lld: a quote opens here and is not closed", t->in->path,
                   (long long)first);
}

static bool ends_field(const struct table *t, size_t at)
{
    const char *text = t->in->text;
    return at >= t->in->len || text[at] == t->separator || text[at] == '\n' ||
           (text[at] == '\r' && (at + 1 == t->in->len || text[at + 1] == '\n'));
}

static sw_status read_field(struct table *t, struct row *row)
{
    SW_TRY(begin_field(t, row));
    if (t->quotes && t->at < t->in->len && t->in->text[t->at] == '"') {
        t->at++;
        SW_TRY(read_quoted(t, row));
        if (!ends_field(t, t->at)) {
            return SW_FAIL(SW_E_FORMAT,
                           "%s line %lld: column %lld continues after its closing quote (a "
                           "quote within one is written twice)",
                           t->in->path, (long long)t->line, (long long)row->n);
        }
    }
    const size_t first = t->at;
    while (!ends_field(t, t->at)) {
        t->at++;
    }
    sw_str_append(&row->text, t->in->text + first, t->at - first);
    sw_str_putc(&row->text, '\0');
    return SW_OK;
}

/* Reads one row. A blank line has no fields. */
static sw_status read_row(struct table *t, struct row *row)
{
    bool more;
    row->n = 0;
    sw_str_clear(&row->text);
    do {
        SW_TRY(read_field(t, row));
        more = t->at < t->in->len && t->in->text[t->at] == t->separator;
        t->at += more;
    } while (more);
    t->at += t->at < t->in->len && t->in->text[t->at] == '\r';
    t->at += t->at < t->in->len && t->in->text[t->at] == '\n';
    row->n = row->n == 1 && *field_of(row, 0) == '\0' ? 0 : row->n;
    return row->text.failed ? fail_memory(t->in->path) : SW_OK;
}

static sw_status check_names(const struct table *t, int64_t line)
{
    for (int64_t i = 0; i < t->names.n; i++) {
        for (int64_t k = 0; k < i; k++) {
            if (strcmp(field_of(&t->names, i), field_of(&t->names, k)) == 0) {
                return SW_FAIL(SW_E_FORMAT,
                               "%s line %lld: two columns are named \"%.60s\"; columns can "
                               "be named by number only in a table without names",
                               t->in->path, (long long)line, field_of(&t->names, i));
            }
        }
    }
    return SW_OK;
}

/* Passes on the row as an object of texts. */
static sw_status give_row(struct table *t, int64_t line)
{
    sw_status st;
    char number[24];
    struct sw_str name = {0};
    struct sw_json_doc *doc = NULL;
    const int64_t wanted = t->names.n;
    sw_str_printf(&name, "%s line %lld", t->in->path, (long long)line);
    if (wanted > 0 && t->row.n != wanted) {
        sw_str_fini(&name);
        return SW_FAIL(SW_E_FORMAT,
                       "%s line %lld: %lld columns, wanted %lld as in the lines before",
                       t->in->path, (long long)line, (long long)t->row.n, (long long)wanted);
    }
    SW_TRY_OR(done, sw_json_new(sw_str_text(&name), &doc));
    for (int64_t i = 0; i < t->row.n; i++) {
        snprintf(number, sizeof number, "%lld", (long long)i + 1);
        const char *key = t->in->numbered ? number : field_of(&t->names, i);
        if (!sw_json_put_str(doc, sw_json_root(doc), key, field_of(&t->row, i))) {
            st = fail_memory(t->in->path);
            goto done;
        }
    }
    t->in->n++;
    SW_TRY_OR(done, t->in->fn(t->in->ctx, doc, sw_json_root(doc)));
done:
    sw_json_close(doc);
    sw_str_fini(&name);
    return st;
}

static sw_status read_rows(struct table *t)
{
    while (t->at < t->in->len) {
        const int64_t line = t->line;
        const bool named = t->in->numbered || t->names.n > 0;
        SW_TRY(read_row(t, named ? &t->row : &t->names));
        t->line++;
        if (!named) {
            SW_TRY(check_names(t, line));
        } else if (t->row.n > 0) {
            SW_TRY(give_row(t, line));
            if (t->names.n == 0) { /* numbered: all rows are as long as the first */
                t->names.n = t->row.n;
            }
        }
    }
    return SW_OK;
}

static sw_status read_table(struct parsing *in, char separator, bool quotes)
{
    struct table t = {.in = in, .separator = separator, .quotes = quotes, .line = 1};
    SW_TRY(sw_utf8_check(in->path, in->text, in->len));
    if (memchr(in->text, '\0', in->len)) {
        return SW_FAIL(SW_E_FORMAT, "%s: byte %zu is NUL, so this is not a table of text", in->path,
                       (size_t)((const char *)memchr(in->text, '\0', in->len) - in->text));
    }
    const sw_status st = read_rows(&t);
    row_fini(&t.names);
    row_fini(&t.row);
    return st;
}

static sw_status read_csv(struct parsing *in)
{
    return read_table(in, ',', true);
}

/* TSV as in GLUE: a quote is an ordinary character. */
static sw_status read_tsv(struct parsing *in)
{
    return read_table(in, '\t', false);
}

/* ---- JSON ---- */

struct questions {
    struct parsing *in;
    const struct sw_json_doc *doc;
};

/* Child `key` of an object, of that type. */
static sw_status get(const struct questions *q, const struct sw_json *of, const char *key,
                     enum sw_json_type type, const struct sw_json **out)
{
    *out = sw_json_get(of, key);
    if (*out && (*out)->type == type) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_FORMAT, "%s line %d: \"%s\" is %s, wanted %s", q->in->path, of->line, key,
                   *out ? sw_json_type_name((*out)->type) : "absent", sw_json_type_name(type));
}

/* Writes "answers" as rows of the hub have them: parallel lists. */
static sw_status put_answers(const struct questions *q, const struct sw_json *from,
                             struct sw_json_doc *doc)
{
    struct sw_json *answers = sw_json_put(doc, sw_json_root(doc), "answers", SW_JSON_OBJECT);
    struct sw_json *texts = answers ? sw_json_put(doc, answers, "text", SW_JSON_ARRAY) : NULL;
    struct sw_json *starts =
        texts ? sw_json_put(doc, answers, "answer_start", SW_JSON_ARRAY) : NULL;
    if (!starts) {
        return fail_memory(q->in->path);
    }
    for (const struct sw_json *answer = from ? from->first : NULL; answer; answer = answer->next) {
        const struct sw_json *text, *start;
        SW_TRY(get(q, answer, "text", SW_JSON_STRING, &text));
        SW_TRY(get(q, answer, "answer_start", SW_JSON_INT, &start));
        if (!sw_json_put_copy(doc, texts, NULL, text) ||
            !sw_json_put_copy(doc, starts, NULL, start)) {
            return fail_memory(q->in->path);
        }
    }
    return SW_OK;
}

static sw_status give_question(struct questions *q, const struct sw_json *context,
                               const struct sw_json *qa)
{
    const struct sw_json *question, *id = sw_json_get(qa, "id");
    const struct sw_json *answers = sw_json_get(qa, "answers");
    struct sw_json_doc *doc = NULL;
    struct sw_str name = {0};
    sw_status st;
    SW_TRY(get(q, qa, "question", SW_JSON_STRING, &question));
    if (answers) { /* absent in test sets */
        SW_TRY(get(q, qa, "answers", SW_JSON_ARRAY, &answers));
    }
    sw_str_printf(&name, "%s line %d", q->in->path, qa->line);
    SW_TRY_OR(done, sw_json_new(sw_str_text(&name), &doc));
    struct sw_json *root = sw_json_root(doc);
    if ((id && !sw_json_put_copy(doc, root, "id", id)) ||
        !sw_json_put_copy(doc, root, "question", question) ||
        !sw_json_put_copy(doc, root, "context", context)) {
        st = fail_memory(q->in->path);
        goto done;
    }
    SW_TRY_OR(done, put_answers(q, answers, doc));
    q->in->n++;
    SW_TRY_OR(done, q->in->fn(q->in->ctx, doc, root));
done:
    sw_json_close(doc);
    sw_str_fini(&name);
    return st;
}

/* {"data": [{"paragraphs": [{"context", "qas": [{"question", "id", "answers"}]}]}]} */
static sw_status give_questions(struct questions *q, const struct sw_json *data)
{
    for (const struct sw_json *article = data->first; article; article = article->next) {
        const struct sw_json *paragraphs, *context, *qas;
        SW_TRY(get(q, article, "paragraphs", SW_JSON_ARRAY, &paragraphs));
        for (const struct sw_json *p = paragraphs->first; p; p = p->next) {
            SW_TRY(get(q, p, "context", SW_JSON_STRING, &context));
            SW_TRY(get(q, p, "qas", SW_JSON_ARRAY, &qas));
            for (const struct sw_json *qa = qas->first; qa; qa = qa->next) {
                SW_TRY(give_question(q, context, qa));
            }
        }
    }
    return SW_OK;
}

static sw_status give_object(struct parsing *in, const struct sw_json *object)
{
    sw_status st;
    struct sw_str name = {0};
    struct sw_json_doc *doc = NULL;
    sw_str_printf(&name, "%s line %d", in->path, object->line);
    SW_TRY_OR(done, sw_json_new(sw_str_text(&name), &doc));
    if (object->type != SW_JSON_OBJECT) {
        st = SW_FAIL(SW_E_FORMAT, "%s: %s, wanted an object", sw_str_text(&name),
                     sw_json_type_name(object->type));
        goto done;
    }
    in->n++;
    SW_TRY_OR(done, in->fn(in->ctx, doc, object));
done:
    sw_json_close(doc);
    sw_str_fini(&name);
    return st;
}

static sw_status read_json(struct parsing *in)
{
    sw_status st = SW_OK;
    struct sw_json_doc *doc;
    SW_TRY(sw_json_parse(in->path, in->text, in->len, SW_JSON_STRICT, &doc));
    const struct sw_json *root = sw_json_root(doc), *data = sw_json_get(root, "data");
    struct questions q = {in, doc};
    if (data && data->type == SW_JSON_ARRAY) {
        st = give_questions(&q, data);
    } else if (root->type == SW_JSON_ARRAY) {
        for (const struct sw_json *o = root->first; o && st >= 0; o = o->next) {
            st = give_object(in, o);
        }
    } else {
        st = SW_FAIL(SW_E_FORMAT,
                     "%s: wanted SQuAD's form, {\"data\": [{\"paragraphs\": ..}]}, or a list of "
                     "objects",
                     in->path);
    }
    sw_json_close(doc);
    return st;
}

static sw_status read_text(struct parsing *in)
{
    sw_status st;
    struct sw_json_doc *doc = NULL;
    SW_TRY(sw_utf8_check(in->path, in->text, in->len));
    SW_TRY(sw_json_new(in->path, &doc));
    const struct sw_json text = {.type = SW_JSON_STRING, .string = in->text, .string_len = in->len};
    if (in->len == 0) {
        st = SW_OK;
    } else if (!sw_json_put_copy(doc, sw_json_root(doc), "text", &text)) {
        st = fail_memory(in->path);
    } else {
        in->n++;
        st = in->fn(in->ctx, doc, sw_json_root(doc));
    }
    sw_json_close(doc);
    return st;
}

/* ---- formats ---- */

static sw_status read_object(void *ctx, const struct sw_json_doc *doc, const struct sw_json *record)
{
    struct parsing *in = ctx;
    in->n++;
    return in->fn(in->ctx, doc, record);
}

static const struct format {
    const char *ending;
    sw_status (*read)(struct parsing *in); /* NULL: JSON lines, a block at a time */
} formats[] = {
    {".jsonl", NULL},   {".ndjson", NULL},    {".csv", read_csv},
    {".tsv", read_tsv}, {".json", read_json}, {".txt", read_text},
};

static const struct format *format_of(const char *path)
{
    const size_t len = strlen(path);
    for (size_t i = 0; i < SW_LEN(formats); i++) {
        const size_t n = strlen(formats[i].ending);
        if (len > n && strcasecmp(path + len - n, formats[i].ending) == 0) {
            return &formats[i];
        }
    }
    return NULL;
}

static sw_status check_format(const char *path, const struct format *format)
{
    if (format) {
        return SW_OK;
    }
    if (sw_source_conversion(path)) {
        return SW_FAIL(SW_E_UNSUP, "%s: this format is not read; %s", path,
                       sw_source_conversion(path));
    }
    struct sw_str list = {0};
    for (size_t i = 0; i < SW_LEN(formats); i++) {
        sw_str_printf(&list, "%s%s", i ? ", " : "", formats[i].ending);
    }
    const sw_status st = SW_FAIL(SW_E_UNSUP, "%s: its ending names no format of records; wanted %s",
                                 path, sw_str_text(&list));
    sw_str_fini(&list);
    return st;
}

static sw_status check_any(const struct parsing *in)
{
    return in->n > 0 ? SW_OK
                     : SW_FAIL(SW_E_FORMAT, "%s: %s", in->path,
                               in->len > 0 ? "no record in it" : "the file is empty");
}

static sw_status parse(sw_status (*read)(struct parsing *in), struct parsing in)
{
    const size_t skip = sw_source_mark_len(in.text, in.len);
    in.text += skip;
    in.len -= skip;
    SW_TRY(read(&in));
    return check_any(&in);
}

sw_status sw_records_parse(const char *path, const char *text, size_t len, bool numbered,
                           sw_record_fn fn, void *ctx)
{
    const struct format *format = format_of(path);
    SW_TRY(check_format(path, format));
    SW_ASSERT(format->read);
    return parse(format->read, (struct parsing){path, text, len, numbered, fn, ctx, 0});
}

sw_status sw_records_read_text(const char *path, sw_record_fn fn, void *ctx)
{
    char *text;
    size_t len;
    SW_TRY(sw_file_read(path, &text, &len));
    const sw_status st = parse(read_text, (struct parsing){path, text, len, false, fn, ctx, 0});
    sw_free(text);
    return st;
}

sw_status sw_records_read(const char *path, bool numbered, sw_record_fn fn, void *ctx)
{
    const struct format *format = format_of(path);
    char *text;
    size_t len;
    SW_TRY(check_format(path, format));
    if (!format->read) {
        struct parsing in = {.path = path, .len = 1, .fn = fn, .ctx = ctx};
        SW_TRY(sw_source_lines(path, read_object, &in));
        return check_any(&in);
    }
    SW_TRY(sw_file_read(path, &text, &len));
    const sw_status st = sw_records_parse(path, text, len, numbered, fn, ctx);
    sw_free(text);
    return st;
}

/* ---- fields ---- */

static bool is_number(const char *name)
{
    const size_t n = name ? strlen(name) : 0;
    return n > 0 && strspn(name, "0123456789") == n;
}

struct sw_columns sw_columns_of(const struct sw_dataset_options *options)
{
    const struct sw_task_data *task = options->task;
    return (struct sw_columns){{task->text_columns[0], task->text_columns[1]}, task->label_column};
}

bool sw_columns_are_numbered(const struct sw_columns *columns)
{
    return is_number(columns->text[0]) || is_number(columns->text[1]) || is_number(columns->label);
}

const struct sw_json *sw_record_find(const struct sw_json *record,
                                     const struct sw_field_wanted *wanted)
{
    const struct sw_json *found = NULL;
    if (wanted->given) {
        return sw_json_get(record, wanted->given);
    }
    for (const char *const *name = wanted->usual; *name && !found; name++) {
        found = sw_json_get(record, *name);
    }
    return found;
}

sw_status sw_record_get(const struct sw_json_doc *doc, const struct sw_json *record,
                        const struct sw_field_wanted *wanted, const struct sw_json **out)
{
    struct sw_str there = {0}, names = {0};
    *out = sw_record_find(record, wanted);
    if (*out) {
        return SW_OK;
    }
    for (const struct sw_json *field = record->first; field; field = field->next) {
        sw_str_printf(&there, "%s\"%.60s\"", field == record->first ? "" : ", ", field->key);
    }
    for (const char *const *name = wanted->usual; *name && !wanted->given; name++) {
        sw_str_printf(&names, "%s\"%s\"", name == wanted->usual ? "" : " or ", *name);
    }
    const sw_status st =
        wanted->given
            ? SW_FAIL(SW_E_FORMAT, "%s: no \"%s\" (%s); there are %s", sw_json_name(doc),
                      wanted->given, wanted->flag, there.len > 0 ? there.ptr : "no fields")
            : SW_FAIL(SW_E_FORMAT, "%s: no %s; there are %s: %s names another", sw_json_name(doc),
                      sw_str_text(&names), there.len > 0 ? there.ptr : "no fields", wanted->flag);
    sw_str_fini(&there);
    sw_str_fini(&names);
    return st;
}

sw_status sw_record_get_text(const struct sw_json_doc *doc, const struct sw_json *record,
                             const struct sw_field_wanted *wanted, const struct sw_json **out)
{
    SW_TRY(sw_record_get(doc, record, wanted, out));
    if ((*out)->type != SW_JSON_STRING) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" is %s, wanted a string", sw_json_name(doc),
                       (*out)->key, sw_json_type_name((*out)->type));
    }
    return SW_OK;
}
