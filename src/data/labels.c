// SPDX-License-Identifier: Apache-2.0
// Labels of records, and the classes of a whole data set: sorted names, or numbers up to the
// largest.
#include "data/labels.h"

#include "data/picture_folder.h"
#include "data/source.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sw_field_wanted sw_label_field(const struct sw_task *task, const struct sw_columns *columns)
{
    static const char *const of_text[] = {"label", "labels", "score", NULL};
    static const char *const of_words[] = {"ner_tags", "tags", "labels", "pos_tags", NULL};
    static const char *const of_pairs[] = {"next_sentence_label", NULL};
    const char *const *usual = task->rows == SW_ROWS_WORDS   ? of_words
                               : task->rows == SW_ROWS_PAIRS ? of_pairs
                                                             : of_text;
    return (struct sw_field_wanted){columns->label, usual, "--label-column"};
}

sw_status sw_labels_init(struct sw_labels *labels, const char *const *names, int64_t n)
{
    *labels = (struct sw_labels){.names = names, .n = n};
    for (int64_t i = 0; i < n && names; i++) {
        if (!sw_names_add(&labels->places, 0, names[i], (int32_t)i)) {
            return SW_FAIL(SW_E_NOMEM, "out of host memory for names of classes");
        }
    }
    return SW_OK;
}

void sw_labels_fini(struct sw_labels *labels)
{
    sw_names_close(&labels->places);
}

/* A whole number in a text. */
static bool whole_number(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    *out = n;
    return *text && !*end && !errno && !strchr(" \t\n\v\f\r+", *text);
}

static void list_names(const struct sw_labels *labels, struct sw_str *out)
{
    enum { MOST = 20 };
    for (int64_t i = 0; i < labels->n && i < MOST && labels->names; i++) {
        sw_str_printf(out, "%s\"%.40s\"", i ? ", " : ": ", labels->names[i]);
    }
    sw_str_puts(out, labels->names && labels->n > MOST ? ", .." : "");
    if (!labels->names) {
        sw_str_printf(out, ": 0 to %lld", (long long)labels->n - 1);
    }
}

static sw_status fail_class(const struct sw_labels *labels, const struct sw_json_doc *doc,
                            const struct sw_json *value)
{
    struct sw_str found = {0}, names = {0};
    sw_json_write(value, 0, &found);
    list_names(labels, &names);
    const sw_status st =
        SW_FAIL(SW_E_FORMAT, "%s: the label %.60s is not one of the %lld classes%s",
                sw_json_name(doc), sw_str_text(&found), (long long)labels->n, sw_str_text(&names));
    sw_str_fini(&found);
    sw_str_fini(&names);
    return st;
}

sw_status sw_label_of(const struct sw_labels *labels, const struct sw_json_doc *doc,
                      const struct sw_json *value, int32_t *out)
{
    int64_t number = -1;
    if (value->type == SW_JSON_STRING) {
        number = sw_names_find(&labels->places, 0, value->string);
        if (!labels->names && !whole_number(value->string, &number)) {
            number = -1;
        }
    } else if (value->type == SW_JSON_INT) {
        number = value->integer;
    } else if (value->type == SW_JSON_BOOL) {
        number = value->boolean;
    }
    if (number < 0 || number >= labels->n) {
        return fail_class(labels, doc, value);
    }
    *out = (int32_t)number;
    return SW_OK;
}

sw_status sw_number_of(const struct sw_json_doc *doc, const struct sw_json *value, float *out)
{
    double number = value->number;
    bool good = value->type == SW_JSON_INT || value->type == SW_JSON_FLOAT;
    if (value->type == SW_JSON_STRING) {
        char *end;
        number = strtod(value->string, &end);
        good = *value->string && !*end;
    } else if (value->type == SW_JSON_BOOL) {
        number = value->boolean;
        good = true;
    }
    if (!good || !isfinite((float)number)) {
        struct sw_str found = {0};
        sw_json_write(value, 0, &found);
        const sw_status st = SW_FAIL(SW_E_FORMAT, "%s: the label %.60s, wanted a number",
                                     sw_json_name(doc), sw_str_text(&found));
        sw_str_fini(&found);
        return st;
    }
    *out = (float)number;
    return SW_OK;
}

/* ---- the classes of data ---- */

enum { MOST_CLASSES = INT32_MAX };

struct finding {
    const struct sw_task *task;
    const struct sw_columns *columns;
    struct sw_names met;   /* index of names */
    struct sw_arena texts; /* owns the names */
    const char **names;    /* [n, cap] in order of first appearance */
    int32_t n, cap;
    int64_t highest;          /* highest JSON number; -1: no number seen */
    struct sw_str highest_at; /* its record */
    bool counts;              /* numbers are recorded as names, to count distinct ones */
    int64_t n_labels;         /* of all records */
    int64_t n_numbers;        /* of a list of them */
};

static sw_status meet_name(struct finding *f, const char *name)
{
    if (sw_names_find(&f->met, 0, name) >= 0) {
        return SW_OK;
    }
    if (f->n == f->cap) {
        const int32_t cap = f->cap ? 2 * f->cap : 64;
        const char **names = sw_realloc("labels", f->names, (size_t)cap * sizeof *names);
        SW_TRY_ALLOC(names, "names of classes");
        f->names = names;
        f->cap = cap;
    }
    f->names[f->n] = sw_arena_strdup(&f->texts, name);
    if (!f->names[f->n] || !sw_names_add(&f->met, 0, f->names[f->n], f->n)) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for names of classes");
    }
    f->n++;
    return SW_OK;
}

static sw_status meet_number(struct finding *f, const struct sw_json_doc *doc, int64_t number)
{
    char text[24];
    if (f->counts) {
        snprintf(text, sizeof text, "%lld", (long long)number);
        return meet_name(f, text);
    }
    if (number > f->highest) {
        f->highest = number;
        sw_str_clear(&f->highest_at);
        sw_str_puts(&f->highest_at, sw_json_name(doc));
    }
    return f->highest_at.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for classes") : SW_OK;
}

static sw_status meet(struct finding *f, const struct sw_json_doc *doc, const struct sw_json *value)
{
    f->n_labels++;
    if (value->type == SW_JSON_STRING && value->string_len == 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: a label is empty, wanted a class (--labels names them)",
                       sw_json_name(doc));
    }
    if (value->type == SW_JSON_STRING) {
        return meet_name(f, value->string);
    }
    if (value->type == SW_JSON_INT && value->integer >= MOST_CLASSES) {
        return SW_FAIL(SW_E_FORMAT, "%s: the label %lld, wanted a class below %d",
                       sw_json_name(doc), (long long)value->integer, MOST_CLASSES);
    }
    if (value->type == SW_JSON_INT || value->type == SW_JSON_BOOL) {
        return meet_number(f, doc, value->type == SW_JSON_INT ? value->integer : value->boolean);
    }
    return SW_OK;
}

static sw_status look_at(void *ctx, const struct sw_json_doc *doc, const struct sw_json *record)
{
    struct finding *f = ctx;
    const struct sw_json *value;
    const struct sw_field_wanted wanted = sw_label_field(f->task, f->columns);
    SW_TRY(sw_record_get(doc, record, &wanted, &value));
    const bool values = f->task->losses[0].kind == SW_LOSS_SQUARES;
    if (value->type != SW_JSON_ARRAY) {
        return values ? SW_OK : meet(f, doc, value);
    }
    const bool classes = !values && (f->task->rows == SW_ROWS_WORDS || !value->first ||
                                     value->first->type == SW_JSON_STRING);
    if (!classes) { /* a number for each class, or value */
        f->n_numbers = sw_max_i64(f->n_numbers, value->n_children);
        return SW_OK;
    }
    for (const struct sw_json *one = value->first; one; one = one->next) {
        SW_TRY(meet(f, doc, one));
    }
    return SW_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int by_number(const void *a, const void *b)
{
    int64_t x = 0, y = 0;
    whole_number(*(const char *const *)a, &x);
    whole_number(*(const char *const *)b, &y);
    return (x > y) - (x < y);
}

/* "O" sorts before the entity tags, because the first class is the default of a tag. */
static int by_tag(const void *a, const void *b)
{
    const bool x = strcmp(*(const char *const *)a, "O") == 0;
    const bool y = strcmp(*(const char *const *)b, "O") == 0;
    return x != y ? y - x : by_name(a, b);
}

static void sort_names(struct finding *f)
{
    bool numbers = true;
    int64_t ignored;
    for (int32_t i = 0; i < f->n; i++) {
        numbers = numbers && whole_number(f->names[i], &ignored);
    }
    qsort(f->names, (size_t)f->n, sizeof *f->names,
          numbers                          ? by_number
          : f->task->rows == SW_ROWS_WORDS ? by_tag
                                           : by_name);
}

static sw_status keep(const struct finding *f, struct sw_label_list *out)
{
    *out = (struct sw_label_list){0};
    out->n = sw_max_i64(sw_max_i64(f->n, f->highest + 1), f->n_numbers);
    if (f->n == 0) {
        return SW_OK;
    }
    out->names = sw_alloc_zero("labels", (size_t)f->n, sizeof *out->names);
    SW_TRY_ALLOC(out->names, "names of classes");
    for (int32_t i = 0; i < f->n; i++) {
        out->names[i] = sw_strdup("labels", f->names[i]);
        if (!out->names[i]) {
            out->n = f->n;
            sw_label_list_fini(out);
            return SW_FAIL(SW_E_NOMEM, "out of host memory for names of classes");
        }
    }
    return SW_OK;
}

/* Classes have names, or are numbers. */
static sw_status check_kinds(const struct finding *f, const char *path)
{
    const bool numbered = f->highest >= 0;
    if (f->n == 0 || (!numbered && f->n_numbers == 0)) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_FORMAT,
                   "%s: classes by name (\"%.40s\") and by number (%s%lld); wanted one", path,
                   f->names[0], numbered ? "" : "lists of ",
                   (long long)(numbered ? f->highest : f->n_numbers));
}

void sw_label_list_fini(struct sw_label_list *list)
{
    for (int64_t i = 0; i < list->n && list->names; i++) {
        sw_free(list->names[i]);
    }
    sw_free(list->names);
    *list = (struct sw_label_list){0};
}

static sw_status read_files(struct finding *f, const struct sw_file_list *files)
{
    for (int i = 0; i < files->n; i++) {
        SW_TRY(sw_records_read(files->paths[i], sw_columns_are_numbered(f->columns), look_at, f));
    }
    return SW_OK;
}

/* A number that is not a class, such as an id, would make the head far too large. */
static sw_status check_highest(struct finding *f, int64_t n_known, const struct sw_file_list *files)
{
    enum { MOST_PER_LABEL = 10, ALWAYS = 1000 };
    if (f->highest < sw_max_i64(n_known, sw_max_i64(ALWAYS, MOST_PER_LABEL * f->n_labels))) {
        return SW_OK;
    }
    const int64_t n_labels = f->n_labels;
    f->counts = true;
    SW_TRY(read_files(f, files));
    return SW_FAIL(SW_E_FORMAT,
                   "%s: the label %lld would make %lld classes, and of %lld labels %d differ "
                   "(--label-column names another field, --labels %lld says that they are classes)",
                   sw_str_text(&f->highest_at), (long long)f->highest, (long long)f->highest + 1,
                   (long long)n_labels, f->n, (long long)f->highest + 1);
}

/* ---- the classes of pictures ---- */

/* Takes the classes of the first folder. The others must have the same. */
static sw_status find_folders(const struct sw_file_list *files, struct sw_label_list *out)
{
    struct sw_pictures pictures = {0};
    *out = (struct sw_label_list){0};
    if (!sw_is_folder(files->paths[0])) {
        return SW_OK;
    }
    sw_status st = sw_pictures_read_classes(&pictures, files->paths[0]);
    if (st >= 0) {
        const struct finding f = {.names = pictures.classes, .n = pictures.n_classes};
        st = keep(&f, out);
    }
    sw_pictures_fini(&pictures);
    return st;
}

sw_status sw_labels_find(const struct sw_dataset_options *options, int64_t n_known,
                         struct sw_label_list *out)
{
    const struct sw_columns columns = sw_columns_of(options);
    struct finding f = {
        .task = sw_task_of(options->task->name), .columns = &columns, .highest = -1};
    struct sw_file_list files;
    sw_status st;
    SW_TRY(sw_file_list_init(&files, options->files, options->n_files));
    if (f.task->rows == SW_ROWS_IMAGES) {
        st = find_folders(&files, out);
        sw_file_list_fini(&files);
        return st;
    }
    sw_arena_init(&f.texts, "labels");
    st = read_files(&f, &files);
    st = st < 0 ? st : check_kinds(&f, files.paths[0]);
    st = st < 0 ? st : check_highest(&f, n_known, &files);
    if (st >= 0) {
        if (f.n > 0) {
            sort_names(&f);
        }
        st = keep(&f, out);
    }
    sw_names_close(&f.met);
    sw_arena_fini(&f.texts);
    sw_str_fini(&f.highest_at);
    sw_free(f.names);
    sw_file_list_fini(&files);
    return st;
}
