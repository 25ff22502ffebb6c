// SPDX-License-Identifier: Apache-2.0
// Datasets: files -> a corpus (a stream cut into windows, or one row per document) -> numbered
// samples. Window w is tokens w T .. w T + T. Neighbours share one token, so every token but the
// first is a label exactly once per epoch.
#include "data/data.h"

#include "data/pack.h"
#include "data/rows.h"
#include "data/shuffle.h"
#include "data/source.h"
#include "data/stream.h"
#include "data/task_rows.h"

#include <math.h>
#include <string.h>

enum corpus_shape { SHAPE_UNKNOWN, SHAPE_STREAM, SHAPE_ROWS, SHAPE_TASK };

struct corpus {
    enum corpus_shape shape; /* by the first document; all others must agree */
    bool templated;          /* has texts in the tokenizer's template */
    struct sw_stream stream;
    struct sw_rows rows;
    struct sw_task_rows of_task;
};

/* The samples of a split: n samples of one corpus from `first` on. If packed: n rows of documents
 * from `first` on. */
struct part {
    const struct corpus *corpus;
    int64_t first, n;
    bool packed;
    struct sw_packing packing;
};

struct sw_dataset {
    struct corpus corpus, val_corpus; /* val_corpus is used only with separate validation files */
    struct part parts[2];             /* by enum sw_split */
    int64_t seq_len;
    uint64_t seed;
    int32_t pad;                /* padding id; excluded from the loss */
    const struct sw_task *task; /* the task of the rows; default: next-token prediction */
    struct sw_task_form form;   /* settings of the task's rows */
    float *reference[2];        /* by split: [n, 2] of preferences; NULL = not set */
};

static void corpus_fini(struct corpus *corpus)
{
    sw_stream_fini(&corpus->stream);
    sw_rows_fini(&corpus->rows);
    sw_task_rows_fini(&corpus->of_task);
}

void sw_dataset_close(struct sw_dataset *dataset)
{
    if (dataset) {
        corpus_fini(&dataset->corpus);
        corpus_fini(&dataset->val_corpus);
        sw_packing_fini(&dataset->parts[SW_SPLIT_TRAIN].packing);
        sw_packing_fini(&dataset->parts[SW_SPLIT_VAL].packing);
        sw_task_form_fini(&dataset->form);
        sw_free(dataset->reference[SW_SPLIT_TRAIN]);
        sw_free(dataset->reference[SW_SPLIT_VAL]);
        sw_free(dataset);
    }
}

/* ---- reading files ---- */

struct reading {
    struct corpus *corpus;
    struct sw_tokenizer *tokenizer;
    struct sw_chat *chat;   /* NULL: prompts and completions are joined as they are */
    enum sw_chat_form form; /* form of the file's first chat line */
    struct sw_chat_row row; /* scratch */
    int64_t vocab_size, seq_len;
    bool as_text, packing;
    struct sw_ids first, second; /* scratch */
};

static const char *rows_name(const struct reading *in, bool many)
{
    if (in->chat) {
        return many ? "chats" : "a chat";
    }
    return many ? "prompts and completions" : "prompt and completion";
}

static sw_status set_shape(struct reading *in, enum corpus_shape shape, const char *name)
{
    if (in->corpus->shape != SHAPE_UNKNOWN && in->corpus->shape != shape) {
        return SW_FAIL(SW_E_CONFIG, "%s: %s among %s; give them to two runs", name,
                       shape == SHAPE_STREAM ? "running text" : rows_name(in, false),
                       shape == SHAPE_STREAM ? rows_name(in, true) : "running text");
    }
    in->corpus->shape = shape;
    return SW_OK;
}

static sw_status check_ids(const struct reading *in, const char *name, const struct sw_ids *ids)
{
    for (int64_t i = 0; i < ids->len; ++i) {
        if (ids->ptr[i] >= in->vocab_size) {
            return SW_FAIL(SW_E_FORMAT,
                           "%s: the tokenizer gives the id %d, wanted below the vocabulary's %lld",
                           name, ids->ptr[i], (long long)in->vocab_size);
        }
    }
    return SW_OK;
}

/* Encodes a document with the tokenizer's template. */
static sw_status encode(struct reading *in, const struct sw_document *document, struct sw_ids *out)
{
    sw_ids_clear(out);
    in->corpus->templated = true;
    const sw_status st =
        sw_tokenizer_encode(in->tokenizer, document->text, document->text_len, true, out);
    return st < 0 ? sw_fail_prefix(st, "%s", document->name) : check_ids(in, document->name, out);
}

/* Adds a row with the prompt `first` and the completion `second`. The loss counts only the
 * latter. */
static sw_status add_row(struct reading *in)
{
    const int64_t n_prompt = in->first.len, n = n_prompt + in->second.len;
    for (int64_t i = 0; i < in->second.len; ++i) {
        SW_TRY(sw_ids_push(&in->first, in->second.ptr[i]));
    }
    bool *wanted = sw_alloc("rows", (size_t)n + 1);
    SW_TRY_ALLOC(wanted, "the rows");
    for (int64_t i = 0; i < n; ++i) {
        wanted[i] = i >= n_prompt;
    }
    const sw_status st = sw_rows_add(&in->corpus->rows, in->first.ptr, wanted, n, in->seq_len + 1);
    sw_free(wanted);
    return st;
}

/* Adds a text as its own row. */
static sw_status add_text_row(struct reading *in, const struct sw_document *document)
{
    SW_TRY(set_shape(in, SHAPE_ROWS, document->name));
    sw_ids_clear(&in->first);
    SW_TRY(encode(in, document, &in->second));
    if (!sw_tokenizer_has_end(in->tokenizer)) {
        SW_TRY(sw_tokenizer_push_end(in->tokenizer, &in->second));
    }
    return add_row(in);
}

static sw_status add_text(struct reading *in, const struct sw_document *document)
{
    struct sw_stream *stream = &in->corpus->stream;
    const int32_t eos = sw_tokenizer_has_end(in->tokenizer) ? -1 : sw_tokenizer_eos(in->tokenizer);
    if (in->packing) {
        return add_text_row(in, document);
    }
    SW_TRY(set_shape(in, SHAPE_STREAM, document->name));
    SW_TRY(encode(in, document, &in->first));
    if (stream->n > 0 && eos >= 0) {
        SW_TRY(sw_stream_add(stream, document->name, &eos, 1));
    }
    return sw_stream_add(stream, document->name, in->first.ptr, in->first.len);
}

static sw_status add_example(struct reading *in, const struct sw_document *document)
{
    SW_TRY(set_shape(in, SHAPE_ROWS, document->name));
    sw_ids_clear(&in->first);
    sw_ids_clear(&in->second);
    in->corpus->templated = true;
    sw_status st =
        sw_tokenizer_encode_prompt(in->tokenizer, document->text, document->text_len, &in->first);
    st = st < 0 ? st
                : sw_tokenizer_encode(in->tokenizer, document->completion, document->completion_len,
                                      false, &in->second);
    st = st < 0 ? st : sw_tokenizer_push_end(in->tokenizer, &in->second);
    if (st < 0) {
        return sw_fail_prefix(st, "%s", document->name);
    }
    SW_TRY(check_ids(in, document->name, &in->first));
    SW_TRY(check_ids(in, document->name, &in->second));
    return add_row(in);
}

/* All documents of a file must have the same form. */
static sw_status check_form(struct reading *in, const struct sw_document *document)
{
    in->form = in->form == SW_CHAT_NONE ? document->form : in->form;
    if (document->form == in->form) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_FORMAT, "%s: it has %s, and the lines before it %s", document->name,
                   sw_chat_form_keys(document->form), sw_chat_form_keys(in->form));
}

static sw_status add_chat(struct reading *in, const struct sw_document *document)
{
    if (!in->chat) {
        return SW_FAIL(SW_E_CONFIG, "%s: a chat (%s), and no chat template was given",
                       document->name, sw_chat_form_keys(document->form));
    }
    SW_TRY(set_shape(in, SHAPE_ROWS, document->name));
    SW_TRY(sw_chat_encode(in->chat, document->doc, document->line, &in->row));
    SW_TRY(check_ids(in, document->name, &in->row.ids));
    return sw_rows_add(&in->corpus->rows, in->row.ids.ptr, in->row.wanted, in->row.ids.len,
                       in->seq_len + 1);
}

static sw_status add_document(void *ctx, const struct sw_document *document)
{
    struct reading *in = ctx;
    if (document->form != SW_CHAT_NONE) {
        SW_TRY(check_form(in, document));
        if (in->chat || document->form != SW_CHAT_PAIR) {
            return add_chat(in, document);
        }
    }
    return document->has_completion ? add_example(ctx, document) : add_text(ctx, document);
}

static sw_status add_file(struct reading *in, const char *path)
{
    if (!in->as_text && sw_source_kind_of(path) == SW_SOURCE_SHARD) {
        if (in->packing) {
            return SW_FAIL(SW_E_CONFIG,
                           "%s: a shard does not mark documents, which spillway.packing needs",
                           path);
        }
        SW_TRY(set_shape(in, SHAPE_STREAM, path));
        return sw_stream_add_shard(&in->corpus->stream, path);
    }
    if (!in->tokenizer) {
        return SW_FAIL(SW_E_CONFIG, "%s: text needs a tokenizer", path);
    }
    in->form = SW_CHAT_NONE;
    return sw_source_read(path, in->as_text, add_document, in);
}

static int64_t n_samples_of(const struct corpus *corpus, int64_t seq_len)
{
    if (corpus->shape == SHAPE_TASK) {
        return corpus->of_task.n;
    }
    return corpus->shape == SHAPE_ROWS ? corpus->rows.n
                                       : sw_max_i64(corpus->stream.n - 1, 0) / seq_len;
}

/* The files must hold enough data for at least one sample. */
static sw_status check_size(const struct reading *in, const char *path, int n_files)
{
    const struct corpus *corpus = in->corpus;
    const struct sw_rows *rows = &corpus->rows;
    if (!in->chat && rows->n_cut + rows->n_dropped > 0) { /* for chats the caller reports it */
        sw_log(SW_LOG_WARN,
               "%s: of %lld %s %lld are cut at %lld tokens and %lld left out, with no token "
               "%s",
               path, (long long)(rows->n + rows->n_dropped), in->packing ? "documents" : "examples",
               (long long)rows->n_cut, (long long)in->seq_len, (long long)rows->n_dropped,
               in->packing ? "to predict" : "of the completion left");
    }
    if (n_samples_of(corpus, in->seq_len) > 0) {
        return SW_OK;
    }
    if (corpus->shape == SHAPE_ROWS) {
        return SW_FAIL(SW_E_CONFIG, "%s: no %s within %lld tokens", path,
                       in->chat ? "chat has a token that the loss counts"
                                : "example has a completion",
                       (long long)in->seq_len);
    }
    return SW_FAIL(SW_E_CONFIG,
                   "%s%s: %lld tokens, wanted at least %lld (one sequence of %lld and the label of "
                   "its last token)",
                   path, n_files > 1 ? " and more" : "", (long long)corpus->stream.n,
                   (long long)in->seq_len + 1, (long long)in->seq_len);
}

static sw_status read_corpus(const struct sw_dataset_options *options, const char *const *files,
                             int n_files, int64_t vocab_size, struct corpus *corpus)
{
    sw_status st;
    struct sw_file_list list = {0};
    struct reading in = {.corpus = corpus,
                         .tokenizer = options->tokenizer,
                         .chat = options->chat,
                         .vocab_size = vocab_size,
                         .seq_len = options->seq_len,
                         .as_text = options->as_text,
                         .packing = options->packing};
    sw_stream_init(&corpus->stream, vocab_size);
    SW_TRY_OR(done, sw_file_list_init(&list, files, n_files));
    for (int i = 0; i < list.n; ++i) {
        sw_work_at("tokenising", i, list.n > 1 ? list.n : 0);
        SW_TRY_OR(done, add_file(&in, list.paths[i]));
    }
    SW_TRY_OR(done, check_size(&in, list.paths[0], list.n));
done:
    sw_work_end();
    sw_file_list_fini(&list);
    sw_ids_fini(&in.first);
    sw_ids_fini(&in.second);
    sw_chat_row_fini(&in.row);
    return st;
}

/* Reads the files of a task other than next-token prediction. */
static sw_status read_task(const struct sw_dataset_options *options, const char *const *files,
                           int n_files, const struct sw_dataset *dataset, struct corpus *corpus)
{
    sw_status st;
    struct sw_file_list list = {0};
    struct sw_task_reading in = {
        .form = &dataset->form,
        .options = options,
        .columns = sw_columns_of(options),
        .vocab_size = dataset->form.n_ids,
        .rows = &corpus->of_task,
    };
    corpus->shape = SHAPE_TASK;
    SW_TRY_OR(done,
              sw_labels_init(&in.labels, options->task->label_names, options->task->n_labels));
    SW_TRY_OR(done, sw_file_list_init(&list, files, n_files));
    for (int i = 0; i < list.n; ++i) {
        sw_work_at("reading records", i, list.n > 1 ? list.n : 0);
        SW_TRY_OR(done, sw_task_read_file(&in, list.paths[i]));
    }
    SW_TRY_OR(done, sw_task_read_end(&in));
    if (corpus->of_task.n == 0) {
        st = SW_FAIL(SW_E_FORMAT, "%s%s: no row for the task \"%s\" in it", list.paths[0],
                     list.n > 1 ? " and more" : "", dataset->task->name);
    }
done:
    sw_work_end();
    sw_file_list_fini(&list);
    sw_task_reading_fini(&in);
    return st;
}

static sw_status read_files(const struct sw_dataset_options *options, bool validation,
                            int64_t vocab_size, struct sw_dataset *dataset)
{
    const char *const *files = validation ? options->val_files : options->files;
    const int n = validation ? options->n_val_files : options->n_files;
    struct corpus *corpus = validation ? &dataset->val_corpus : &dataset->corpus;
    return dataset->task->rows == SW_ROWS_TEXT ? read_corpus(options, files, n, vocab_size, corpus)
                                               : read_task(options, files, n, dataset, corpus);
}

/* ---- opening ---- */

static sw_status check_options(const struct sw_dataset_options *options, int64_t vocab_size)
{
    if (options->n_files < 1) {
        return SW_FAIL(SW_E_ARG, "dataset: no files");
    }
    if (options->seq_len < 1 || options->seq_len >= INT32_MAX) {
        return SW_FAIL(SW_E_CONFIG, "sequence length %lld, wanted 1 or more",
                       (long long)options->seq_len);
    }
    if (!(options->val_fraction >= 0.0 && options->val_fraction < 1.0)) {
        return SW_FAIL(SW_E_CONFIG, "validation fraction %g, wanted 0 or more and below 1",
                       options->val_fraction);
    }
    if (vocab_size < 1 && !options->task) {
        return SW_FAIL(SW_E_ARG, "dataset: neither a tokenizer nor the size of a vocabulary");
    }
    return SW_OK;
}

/* Validation gets the last samples of the corpus, but never all of them. */
static void split(struct sw_dataset *dataset, double val_fraction)
{
    const int64_t n = n_samples_of(&dataset->corpus, dataset->seq_len);
    int64_t n_val = (int64_t)floor((double)n * val_fraction);
    n_val = val_fraction > 0.0 && n_val == 0 && n > 1 ? 1 : n_val;
    if (dataset->corpus.of_task.n_questions > 0) { /* windows of a question stay together */
        const struct sw_task_row *rows = dataset->corpus.of_task.rows;
        while (n_val > 0 && n_val < n && rows[n - n_val].question == rows[n - n_val - 1].question) {
            n_val++;
        }
        n_val = n_val < n ? n_val : 0;
    }
    dataset->parts[SW_SPLIT_TRAIN] = (struct part){.corpus = &dataset->corpus, .n = n - n_val};
    dataset->parts[SW_SPLIT_VAL] =
        (struct part){.corpus = &dataset->corpus, .first = n - n_val, .n = n_val};
}

/* Packs the documents of a part into rows. The split comes first: a row belongs to one part, and
 * validation is not biased towards short documents. */
static sw_status pack_part(struct part *part, int64_t seq_len)
{
    int64_t *lengths = sw_alloc("packing", ((size_t)part->n + 1) * sizeof(*lengths));
    SW_TRY_ALLOC(lengths, "the rows");
    for (int64_t i = 0; i < part->n; ++i) { /* the last token is a label only */
        lengths[i] = sw_rows_at(&part->corpus->rows, part->first + i).n - 1;
    }
    const sw_status st = sw_pack(lengths, part->n, seq_len, &part->packing);
    sw_free(lengths);
    part->packed = st >= 0;
    part->n = st >= 0 ? part->packing.n_rows : 0;
    return st;
}

static int32_t pad_id(const struct sw_tokenizer *tokenizer)
{
    if (!tokenizer) {
        return 0;
    }
    const int32_t pad = sw_tokenizer_pad(tokenizer), eos = sw_tokenizer_eos(tokenizer);
    return pad >= 0 ? pad : sw_max_i64(eos, 0);
}

static sw_status find_task(const struct sw_dataset_options *options, const struct sw_task **out)
{
    const char *name = options->task ? options->task->name : "causal";
    *out = sw_task_of(name);
    if (!*out) {
        struct sw_str names = {0};
        sw_task_list(&names);
        const sw_status st =
            SW_FAIL(SW_E_CONFIG, "task \"%s\": there are %s", name, sw_str_text(&names));
        sw_str_fini(&names);
        return st;
    }
    if ((*out)->rows == SW_ROWS_NONE) {
        return SW_FAIL(SW_E_CONFIG, "task \"%s\" is not trained: it has no labels", name);
    }
    const bool chats = (*out)->rows == SW_ROWS_TEXT || (*out)->rows == SW_ROWS_PREFERENCES;
    if ((options->packing && (*out)->rows != SW_ROWS_TEXT) || (options->chat && !chats)) {
        return SW_FAIL(SW_E_CONFIG, "task \"%s\": %s of texts that are continued", name,
                       options->chat && !chats ? "chats are" : "spillway.packing is for rows");
    }
    return SW_OK;
}

/* Validation pictures must have the same classes as the training pictures. */
static sw_status check_classes(const struct sw_dataset *dataset)
{
    const struct sw_pictures *trained = &dataset->corpus.of_task.images.pictures;
    const struct sw_pictures *others = &dataset->val_corpus.of_task.images.pictures;
    return trained->n > 0 && others->n > 0 ? sw_pictures_same_classes(trained, others) : SW_OK;
}

/* Reads the validation files. Records that are also trained on are not read again. */
static sw_status read_val(const struct sw_dataset_options *options, int64_t vocab_size,
                          struct sw_dataset *dataset)
{
    const bool same = options->val_files == options->files &&
                      options->n_val_files == options->n_files &&
                      dataset->task->rows != SW_ROWS_TEXT;
    const struct corpus *corpus = same ? &dataset->corpus : &dataset->val_corpus;
    if (!same) {
        SW_TRY(read_files(options, true, vocab_size, dataset));
        SW_TRY(check_classes(dataset));
    }
    dataset->parts[SW_SPLIT_VAL] =
        (struct part){.corpus = corpus, .n = n_samples_of(corpus, dataset->seq_len)};
    return SW_OK;
}

sw_status sw_dataset_open(const struct sw_dataset_options *options, struct sw_dataset **out)
{
    sw_status st;
    const struct sw_task *task;
    SW_TRY_OPTIONS(options);
    int64_t vocab_size = options->vocab_size;
    if (vocab_size == 0 && options->tokenizer) {
        vocab_size = sw_tokenizer_vocab_size(options->tokenizer);
    }
    SW_TRY(check_options(options, vocab_size));
    SW_TRY(find_task(options, &task));
    struct sw_dataset *dataset = sw_alloc_zero("dataset", 1, sizeof(*dataset));
    SW_TRY_ALLOC(dataset, "a dataset");
    dataset->seq_len = options->seq_len;
    dataset->seed = options->seed;
    dataset->pad = pad_id(options->tokenizer);
    dataset->task = task;
    if (task->rows != SW_ROWS_TEXT) {
        SW_TRY_OR(fail, sw_task_form_init(&dataset->form, task, options, vocab_size));
    }
    SW_TRY_OR(fail, read_files(options, false, vocab_size, dataset));
    split(dataset, options->n_val_files > 0 ? 0.0 : options->val_fraction);
    if (options->n_val_files > 0) {
        SW_TRY_OR(fail, read_val(options, vocab_size, dataset));
    }
    for (int i = 0; i < 2 && options->packing; ++i) {
        SW_TRY_OR(fail, pack_part(&dataset->parts[i], dataset->seq_len));
    }
    *out = dataset;
    return SW_OK;
fail:
    sw_dataset_close(dataset);
    return st;
}

int64_t sw_dataset_n_samples(const struct sw_dataset *dataset, enum sw_split split)
{
    return dataset->parts[split].n;
}

static int64_t corpus_tokens(const struct corpus *corpus)
{
    return corpus->stream.n + corpus->rows.tokens.len + corpus->of_task.ids.len;
}

int64_t sw_dataset_n_tokens(const struct sw_dataset *dataset)
{
    return corpus_tokens(&dataset->corpus) + corpus_tokens(&dataset->val_corpus);
}

bool sw_dataset_is_templated(const struct sw_dataset *dataset)
{
    return dataset->corpus.templated;
}

int64_t sw_dataset_n_documents(const struct sw_dataset *dataset, enum sw_split split)
{
    const struct corpus *corpus = dataset->parts[split].corpus;
    return corpus->rows.n + corpus->of_task.n_documents;
}

int64_t sw_dataset_n_cut(const struct sw_dataset *dataset, enum sw_split split)
{
    const struct corpus *corpus = dataset->parts[split].corpus;
    return corpus->rows.n_cut + corpus->of_task.n_cut;
}

int64_t sw_dataset_n_dropped(const struct sw_dataset *dataset, enum sw_split split)
{
    const struct corpus *corpus = dataset->parts[split].corpus;
    return corpus->rows.n_dropped + corpus->of_task.n_dropped;
}

bool sw_dataset_put_steps(const struct sw_dataset *dataset, struct sw_str *out)
{
    if (dataset->task->rows == SW_ROWS_IMAGES) {
        sw_image_steps_text(&dataset->form.steps, out);
    }
    return dataset->corpus.of_task.images.pictures.n > 0;
}

/* ---- kinds of files ---- */

struct glance {
    enum sw_data_kind kind;
    bool found;
};

/* Looks at the first document only. */
static sw_status glance_at(void *ctx, const struct sw_document *document)
{
    struct glance *glance = ctx;
    glance->found = true;
    glance->kind = document->form == SW_CHAT_NONE   ? SW_DATA_TEXT
                   : document->form == SW_CHAT_PAIR ? SW_DATA_PAIRS
                                                    : SW_DATA_CHATS;
    return SW_E_STOP;
}

sw_status sw_data_kind_of(const char *const *files, int n_files, bool as_text,
                          enum sw_data_kind *out)
{
    struct sw_file_list list;
    struct glance glance = {.kind = SW_DATA_TEXT};
    sw_status st = SW_OK;
    SW_TRY(sw_file_list_init(&list, files, n_files));
    for (int i = 0; i < list.n && !as_text && !glance.found && st >= 0; ++i) {
        if (sw_source_kind_of(list.paths[i]) == SW_SOURCE_JSONL) {
            st = sw_source_read(list.paths[i], false, glance_at, &glance);
        }
    }
    sw_file_list_fini(&list);
    if (st < 0 && !glance.found) {
        return st;
    }
    *out = glance.kind;
    return SW_OK;
}

/* ---- fetching ---- */

/* Output buffers of a row, [T] each. All but the first two may be NULL. */
struct row_out {
    int32_t *ids, *labels, *mask, *positions, *segments;
};

static struct row_out row_of(const struct row_out *all, int64_t offset)
{
    return (struct row_out){all->ids + offset, all->labels + offset,
                            all->mask ? all->mask + offset : NULL,
                            all->positions ? all->positions + offset : NULL,
                            all->segments ? all->segments + offset : NULL};
}

static sw_status read_window(const struct sw_dataset *dataset, const struct corpus *corpus,
                             int64_t i_window, int32_t *ids, int32_t *labels)
{
    const int64_t n = dataset->seq_len, first = i_window * n;
    SW_TRY(sw_stream_read(&corpus->stream, first, n, ids));
    memcpy(labels, ids + 1, (size_t)(n - 1) * sizeof(*labels));
    return sw_stream_read(&corpus->stream, first + n, 1, labels + n - 1);
}

static void put_token(const struct row_out *out, int64_t t, int32_t id, int32_t label,
                      int32_t position, int32_t segment)
{
    out->ids[t] = id;
    out->labels[t] = label;
    if (out->mask) {
        out->mask[t] = segment > 0;
    }
    if (out->positions) {
        out->positions[t] = position;
    }
    if (out->segments) {
        out->segments[t] = segment;
    }
}

/* Fills a row without a sample. Its mask marks tokens, because attention over no tokens would
 * divide by zero. */
static void blank_row(const struct sw_dataset *dataset, const struct row_out *out)
{
    for (int64_t t = 0; t < dataset->seq_len; ++t) {
        put_token(out, t, 0, SW_IGNORED_LABEL, 0, 1);
    }
}

/* Writes documents one after another, then padding. */
static void read_rows(const struct sw_dataset *dataset, const struct part *part, int64_t at,
                      const struct row_out *out)
{
    const int64_t first = part->packed ? part->packing.first[at] : at;
    const int64_t end = part->packed ? part->packing.first[at + 1] : at + 1;
    int64_t t = 0;
    for (int64_t d = first; d < end; ++d) {
        const int64_t document = part->packed ? part->first + part->packing.documents[d] : d;
        const struct sw_row row = sw_rows_at(&part->corpus->rows, document);
        for (int64_t i = 0; i + 1 < row.n; ++i, ++t) {
            put_token(out, t, row.ids[i], row.wanted[i + 1] ? row.ids[i + 1] : SW_IGNORED_LABEL,
                      (int32_t)i, (int32_t)(d - first + 1));
        }
    }
    for (; t < dataset->seq_len; ++t) {
        put_token(out, t, dataset->pad, SW_IGNORED_LABEL, 0, 0);
    }
}

/* Index of the sample in its corpus, or among the rows of its part; -1 for a blank row. */
static int64_t place_of(const struct sw_dataset *dataset, enum sw_split split, int64_t sample)
{
    const struct part *part = &dataset->parts[split];
    const int64_t first = part->packed ? 0 : part->first;
    if (split == SW_SPLIT_VAL) {
        return sample < part->n ? first + sample : -1;
    }
    return first + sw_shuffle(dataset->seed, sample / part->n, part->n, sample % part->n);
}

static sw_status read_row(const struct sw_dataset *dataset, const struct part *part, int64_t at,
                          const struct row_out *out)
{
    if (at < 0) {
        blank_row(dataset, out);
    } else if (part->corpus->shape == SHAPE_ROWS) {
        read_rows(dataset, part, at, out);
    } else {
        SW_TRY(read_window(dataset, part->corpus, at, out->ids, out->labels));
        for (int64_t t = 0; t < dataset->seq_len; ++t) {
            put_token(out, t, out->ids[t], out->labels[t], (int32_t)t, 1);
        }
    }
    return SW_OK;
}

static sw_status check_range(const struct sw_dataset *dataset, enum sw_split split, int64_t first,
                             int64_t n_rows)
{
    const struct part *part = &dataset->parts[split];
    if (first < 0 || n_rows < 0 || (split == SW_SPLIT_TRAIN && part->n == 0)) {
        return SW_FAIL(SW_E_ARG, "dataset: samples %lld to %lld are not among the %lld there are",
                       (long long)first, (long long)(first + n_rows), (long long)part->n);
    }
    return SW_OK;
}

static sw_status fetch(const struct sw_dataset *dataset, enum sw_split split, int64_t first,
                       int64_t n_rows, const struct row_out *out)
{
    const struct part *part = &dataset->parts[split];
    SW_TRY(check_range(dataset, split, first, n_rows));
    if (dataset->task->rows != SW_ROWS_TEXT) {
        return SW_FAIL(SW_E_ARG, "dataset: rows of the task \"%s\" are fetched by names of inputs",
                       dataset->task->name);
    }
    for (int64_t row = 0; row < n_rows; ++row) {
        const struct row_out one = row_of(out, row * dataset->seq_len);
        SW_TRY(read_row(dataset, part, place_of(dataset, split, first + row), &one));
    }
    return SW_OK;
}

sw_status sw_dataset_fetch(const struct sw_dataset *dataset, enum sw_split split, int64_t first,
                           int64_t n_rows, int32_t *ids, int32_t *labels, int32_t *mask)
{
    const struct row_out out = {.ids = ids, .labels = labels, .mask = mask};
    return fetch(dataset, split, first, n_rows, &out);
}

sw_status sw_dataset_fetch_packed(const struct sw_dataset *dataset, enum sw_split split,
                                  int64_t first, int64_t n_rows, int32_t *ids, int32_t *labels,
                                  int32_t *positions, int32_t *segments)
{
    const struct row_out out = {
        .ids = ids, .labels = labels, .positions = positions, .segments = segments};
    return fetch(dataset, split, first, n_rows, &out);
}

/* Finds the buffers of a text row among the inputs, by name. */
static sw_status name_inputs(const struct sw_row_input *inputs, int n_inputs, struct row_out *out)
{
    const struct {
        const char *name;
        int32_t **to;
    } known[] = {{"input_ids", &out->ids},
                 {"labels", &out->labels},
                 {"attention_mask", &out->mask},
                 {"positions", &out->positions},
                 {"segments", &out->segments}};
    for (int i = 0; i < n_inputs; ++i) {
        size_t k = 0;
        while (k < SW_LEN(known) && strcmp(known[k].name, inputs[i].name) != 0) {
            k++;
        }
        if (k == SW_LEN(known)) {
            return SW_FAIL(SW_E_ARG, "rows of text have no input \"%s\"", inputs[i].name);
        }
        *known[k].to = inputs[i].data;
    }
    return out->ids && out->labels
               ? SW_OK
               : SW_FAIL(SW_E_ARG, "rows of text have input_ids and labels: both are wanted");
}

/* in_order: the samples of the training split are numbered as in the files */
static sw_status fetch_task(const struct sw_dataset *dataset, enum sw_split split, bool in_order,
                            int64_t first, int64_t n_rows, const struct sw_row_input *inputs,
                            int n_inputs)
{
    const struct part *part = &dataset->parts[split];
    const struct sw_task_part of = {&dataset->form, &part->corpus->of_task,   part->first, part->n,
                                    split,          dataset->reference[split]};
    SW_TRY(check_range(dataset, split, first, n_rows));
    for (int64_t row = 0; row < n_rows; ++row) {
        const int64_t sample = first + row;
        const int64_t at = !in_order          ? place_of(dataset, split, sample)
                           : sample < part->n ? part->first + sample
                                              : -1;
        SW_TRY(sw_task_put_row(&of, at, sample, inputs, n_inputs, row));
    }
    return SW_OK;
}

sw_status sw_dataset_fetch_in_order(const struct sw_dataset *dataset, enum sw_split split,
                                    int64_t first, int64_t n_rows,
                                    const struct sw_row_input *inputs, int n_inputs)
{
    SW_ASSERT(dataset->task->rows != SW_ROWS_TEXT);
    return fetch_task(dataset, split, true, first, n_rows, inputs, n_inputs);
}

sw_status sw_dataset_set_reference(struct sw_dataset *dataset, enum sw_split split,
                                   const float *values)
{
    const size_t bytes = 2 * (size_t)dataset->parts[split].n * sizeof *values;
    float *copy = sw_alloc("dataset", bytes + 1);
    SW_TRY_ALLOC(copy, "the log-probabilities of the reference");
    memcpy(copy, values, bytes);
    sw_free(dataset->reference[split]);
    dataset->reference[split] = copy;
    return SW_OK;
}

uint64_t sw_dataset_hash_sides(const struct sw_dataset *dataset)
{
    uint64_t h = sw_hash_str(0, dataset->task->name);
    for (int i = 0; i < 2; i++) {
        const struct part *part = &dataset->parts[i];
        const struct sw_task_rows *rows = &part->corpus->of_task;
        h = sw_hash(h, &part->n, sizeof part->n);
        for (int64_t r = 0; r < part->n; r++) {
            const struct sw_task_row *row = &rows->rows[part->first + r];
            h = sw_hash(sw_hash(h, &row->label, sizeof row->label), &row->question,
                        sizeof row->question);
            for (int side = 0; side < 2; side++) {
                const struct sw_task_side *s = &rows->sides[2 * (part->first + r) + side];
                h = sw_hash(h, &s->n, 3 * sizeof s->n);
                h = sw_hash(h, rows->ids.ptr + s->first, (size_t)s->n * sizeof *rows->ids.ptr);
            }
        }
    }
    return h;
}

sw_status sw_dataset_fetch_inputs(const struct sw_dataset *dataset, enum sw_split split,
                                  int64_t first, int64_t n_rows, const struct sw_row_input *inputs,
                                  int n_inputs)
{
    struct row_out out = {0};
    if (dataset->task->rows == SW_ROWS_TEXT) {
        SW_TRY(name_inputs(inputs, n_inputs, &out));
        return fetch(dataset, split, first, n_rows, &out);
    }
    return fetch_task(dataset, split, false, first, n_rows, inputs, n_inputs);
}

sw_status sw_score_open(const struct sw_dataset *dataset, enum sw_split split, FILE *predictions,
                        struct sw_score **out)
{
    const struct part *part = &dataset->parts[split];
    if (dataset->task->rows == SW_ROWS_TEXT) {
        return SW_FAIL(SW_E_ARG, "rows of text have no metric but the loss");
    }
    return sw_score_open_part(&dataset->form, &part->corpus->of_task, part->first, part->n,
                              predictions, out);
}

double sw_dataset_padding(const struct sw_dataset *dataset, enum sw_split split)
{
    const struct part *part = &dataset->parts[split];
    const struct sw_rows *rows = &part->corpus->rows;
    int64_t n_documents = part->n, n_tokens = 0;
    if (part->corpus->shape != SHAPE_ROWS || part->n == 0) {
        return 0;
    }
    if (part->packed) {
        n_documents = part->packing.first[part->n];
    }
    for (int64_t i = 0; i < n_documents; ++i) {
        n_tokens += sw_rows_at(rows, part->first + i).n - 1;
    }
    return 1 - (double)n_tokens / ((double)part->n * (double)dataset->seq_len);
}
